//! WebSocket connections: messages to the application, heartbeats, and their end.

use super::client::End;
use super::table::{Accepts, Again, Conn, Dialect, Held, Socket, Speech, Stack, Unread};
use super::turn::MESSAGE_BYTES;
use super::{About, Core, Later};
use crate::app::{Action, Envelope, Message};
use crate::encode::{Writer, frame};
use stentor_driver::{Driver, Sending};
use stentor_hub::{Disconnect, SessionId};
use stentor_wire::sockjs::{self, Wrapping};
use stentor_wire::ws::{self, Event, Kind, Opcode};

/// A session on a WebSocket, whose message is dealt with.
#[derive(Clone, Copy)]
pub(super) struct Talker {
    pub(super) session: SessionId,
    pub(super) speech: Speech,
    pub(super) envelope: Envelope,
}

impl Talker {
    /// How the application's messages leave.
    pub(super) fn writer(self) -> Writer<'static> {
        self.speech.dialect.writer(self.envelope)
    }
}

/// A ping without payload, as a server sends it (RFC 6455, 5.5.2).
const PING: [u8; 2] = [0x89, 0];

impl<D: Driver> Core<D> {
    /// Deals with received bytes; what answers them is appended to `out`. What would make more answers or
    /// publications than may gather waits, and the connection isn't read from until it is dealt with.
    pub(super) fn socket_input(&mut self, index: usize, data: &mut [u8], out: &mut Vec<u8>) {
        let now = self.millis();
        let replies_bytes_max = self.shared.options.limits.replies_bytes_max;
        // Messages lie in what was received or in what all connections share: neither may be reached by anything else
        // while they are handled, so both are taken out.
        let Some(mut shared) = self.ws.take() else { return };
        let Some(conn) = self.table.get_mut(index) else {
            self.ws = Some(shared);
            return;
        };
        let (id, session) = (conn.id, conn.session);
        let Stack::Socket(socket) = &mut conn.stack else {
            self.ws = Some(shared);
            return;
        };
        socket.alive_at = now;
        socket.has_spoken();
        let (accepts, envelope, speech) = (socket.accepts, socket.envelope, socket.speech);
        shared.set_steps(self.budget.steps());
        let mut is_paused = socket.ws.is_paused();
        let mut socket_ws = std::mem::replace(&mut socket.ws, ws::Connection::new(ws::Role::Server, None));
        let dispatches_before = self.hub.dispatches();
        let mut at = 0;
        let mut messages = 0;
        let mut ended = false;
        let mut closed = false;
        let mut unread = None;
        let mut used = false;
        while at < data.len() || is_paused {
            used = self.budget.is_used();
            if used || out.len() > replies_bytes_max || self.published_bytes > self.published_bytes_max {
                unread = Some(Box::new(Unread { bytes: data[at..].to_vec(), rest: None }));
                break;
            }
            is_paused = false;
            let received = socket_ws.receive(&mut shared, &mut data[at..], out);
            at += received.consumed;
            self.budget.count(received.consumed + MESSAGE_BYTES);
            match received.event {
                Some(Event::Message { kind, data }) => {
                    ended = true;
                    if self.is_too_large_now(data.len()) {
                        self.later.push(Later::Overload(id));
                        break;
                    }
                    let goes_on = match (accepts, session) {
                        (Accepts::Client(client), _) => self.engine_frame(id, client, kind, data, out),
                        (Accepts::Messages, Some(session)) if speech.is_deaf => {
                            self.actions.push(Action::Close { session, why: Disconnect::NotAccepted });
                            false
                        }
                        (Accepts::Messages, Some(session)) => {
                            let talker = Talker { session, speech, envelope };
                            match speech.dialect {
                                Dialect::Plain => {
                                    messages += 1;
                                    self.message(talker, kind, data, out)
                                }
                                Dialect::SockJs => self.sockjs_messages(id, talker, kind, data, out),
                                Dialect::Primus(_) => self.primus_message(id, talker, kind, data, out),
                            }
                        }
                        (_, None) => false,
                    };
                    if !goes_on {
                        break;
                    }
                }
                Some(Event::Ping | Event::Pong(_)) => {}
                Some(Event::Closed { error, .. }) => {
                    if error.is_some() {
                        self.shared.metrics[self.facts.core].protocol_errors.add(1);
                    }
                    closed = true;
                    break;
                }
                None if socket_ws.is_paused() => {
                    used = true;
                    unread = Some(Box::new(Unread { bytes: data[at..].to_vec(), rest: None }));
                    break;
                }
                None if received.consumed == 0 => break,
                None => {}
            }
        }
        self.budget.count(shared.take_stepped_bytes());
        self.ws = Some(shared);
        self.metrics().messages.add(messages);
        match self.again.take() {
            None => {}
            Some(Again::Frame(frame)) => {
                let bytes = [&frame, &data[at..]].concat();
                unread = Some(Box::new(Unread { bytes, rest: None }));
            }
            Some(Again::Rest(rest)) => {
                used = true;
                unread = Some(Box::new(Unread { bytes: data[at..].to_vec(), rest: Some(rest) }));
            }
        }
        let waits = unread.is_some();
        let Some(conn) = self.table.get_mut(index) else { return };
        let Stack::Socket(socket) = &mut conn.stack else { return };
        socket.ws = socket_ws;
        if waits {
            socket.unread = unread;
        }
        if ended || !socket.ws.is_mid_message() {
            socket.message_since = None;
        }
        if socket.ws.is_mid_message() && socket.message_since.is_none() {
            socket.message_since = Some(now);
            self.arm(index, now.after(self.shared.options.limits.message_timeout));
        }
        if closed {
            if let Some(conn) = self.table.get_mut(index) {
                conn.replies.get_or_insert_default().append(out);
                conn.weigh(&self.shared.ledger);
            }
            return self.end(index);
        }
        if waits {
            self.hold(index, Held::INPUT);
            if used {
                self.leave(index);
            }
        }
        if self.hub.dispatches() != dispatches_before {
            self.hold_if_congested(index);
        }
    }

    /// A message for the application, from a plain session. Says whether to go on with what follows it.
    fn message(&mut self, talker: Talker, kind: Kind, data: &[u8], out: &mut Vec<u8>) -> bool {
        let message = kind.text(data).map_or(Message::Binary(data), Message::Text);
        self.hand_message(talker, talker.writer(), message, out)
    }

    /// Hands a message of a session on a WebSocket to the application. Says whether to go on with what follows it.
    pub(super) fn hand_message(
        &mut self,
        talker: Talker,
        writer: Writer<'_>,
        message: Message<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        let Talker { session, speech: Speech { service, .. }, envelope } = talker;
        let asked = self.actions.len();
        let about = About { session: Some(session), writer, envelope, service, ..About::default() };
        self.tell_app(about, out, |app, ctx| app.message(ctx, session, message));
        !self.asks_to_close(asked, session)
    }

    /// Closes a WebSocket connection with a code and a reason, or any other at once.
    pub(super) fn close_socket(&mut self, index: usize, code: u16, reason: &str) {
        if let Some(conn) = self.table.get_mut(index)
            && let Stack::Socket(socket) = &mut conn.stack
        {
            let out = conn.replies.get_or_insert_default();
            socket.speech.dialect.say_goodbye(out, code, reason);
            socket.ws.close(code, reason, out);
            conn.weigh(&self.shared.ledger);
        }
        self.end(index);
    }

    /// Something may be due on a WebSocket connection: a ping, the end of a message, the end of patience.
    pub(super) fn socket_due(&mut self, index: usize) {
        let now = self.millis();
        let heartbeat = self.shared.options.heartbeat;
        let message_timeout = self.shared.options.limits.message_timeout;
        let progressed = self.progress(index) == Some(true);
        let Some(Conn { stack: Stack::Socket(socket), session, held, .. }) = self.table.get_mut(index) else {
            return;
        };
        let (session, accepts) = (*session, socket.accepts);
        if held.is_ours() {
            // It isn't read from because of us: what it sends meanwhile can't be seen.
            socket.alive_at = now;
            socket.message_since = socket.message_since.map(|_| now);
        }
        let message_due = socket.message_since.map(|since| since.after(message_timeout));
        if message_due.is_some_and(|due| !now.is_before(due)) {
            let why = Disconnect::MessageTimeout;
            return match (accepts, session) {
                (Accepts::Client(client), _) => self.end_client(client, End::Because(why)),
                (_, Some(session)) => self.disconnect(session, why),
                (_, None) => {}
            };
        }
        // A client has heartbeats of its own.
        let Some(session) = session else {
            if let Some(due) = message_due {
                self.arm(index, due);
            }
            return;
        };
        if let Dialect::Primus(_) = socket.speech.dialect {
            if let Some(due) = message_due {
                self.arm(index, due);
            }
            return self.primus_due(index, session, progressed);
        }
        if progressed {
            socket.alive_at = now;
        }
        let mut next = match socket.pinged_at {
            Some(pinged_at) if socket.is_alive_since(pinged_at) => {
                socket.pinged_at = None;
                socket.alive_at.after(heartbeat.interval)
            }
            Some(pinged_at) => pinged_at.after(heartbeat.timeout),
            None => socket.alive_at.after(heartbeat.interval),
        };
        if !now.is_before(next) {
            if socket.pinged_at.is_some() {
                return self.disconnect(session, Disconnect::HeartbeatTimeout);
            }
            socket.pinged_at = Some(now);
            // Whoever answers is to be pinged again in time, also where patience lasts longer.
            next = now.after(heartbeat.timeout.min(heartbeat.interval));
            self.ping(index);
        }
        let next = message_due.map_or(next, |due| due.earlier(next));
        self.arm(index, next);
    }

    fn ping(&mut self, index: usize) {
        let Some(conn) = self.table.get_mut(index) else { return };
        if conn.in_flight || conn.replies.is_some() {
            conn.replies.get_or_insert_default().extend_from_slice(&PING);
            conn.weigh(&self.shared.ledger);
        } else if self.driver.send_bytes(conn.id, &PING) == Sending::InFlight {
            conn.in_flight = true;
        }
    }
}

impl Dialect {
    /// Says what the close frame can't say to clients of this kind.
    fn say_goodbye(self, out: &mut Vec<u8>, code: u16, reason: &str) {
        match self {
            Self::Plain => {}
            Self::SockJs => frame(out, Opcode::Text, reason.len() + 10, |out| {
                Wrapping::WebSocket.write(out, &sockjs::Frame::Close(sockjs::Close { code, reason }));
            }),
            Self::Primus(_) => super::primus::say_goodbye(out, code),
        }
    }
}

impl Socket {
    /// How the application's messages leave.
    pub(super) fn writer(&self) -> Writer<'static> {
        self.speech.dialect.writer(self.envelope)
    }

    /// Whether there was a sign of life after a ping.
    fn is_alive_since(&self, pinged_at: crate::millis::Millis) -> bool {
        pinged_at.is_before(self.alive_at)
    }
}
