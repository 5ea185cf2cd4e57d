//! WebSocket connections: messages to the application, heartbeats, and their end.

use super::Core;
use super::table::{Accepts, Conn, Held, Socket, Stack};
use crate::app::{Action, Message};
use stentor_driver::{Driver, Sending};
use stentor_hub::Disconnect;
use stentor_wire::ws::{Event, Kind};

/// A ping without payload, as a server sends it (RFC 6455, 5.5.2).
const PING: [u8; 2] = [0x89, 0];

impl<D: Driver> Core<D> {
    /// Deals with received bytes; what answers them is appended to `out`. What would make more answers or
    /// publications than may gather waits, and the connection isn't read from until it is dealt with.
    pub(super) fn socket_input(&mut self, index: usize, data: &mut [u8], out: &mut Vec<u8>) {
        let now = self.millis();
        let replies_bytes_max = self.shared.options.limits.replies_bytes_max;
        let Some(conn) = self.table.get_mut(index) else { return };
        let (Stack::Socket(socket), Some(session)) = (&mut conn.stack, conn.session) else { return };
        socket.alive_at = now;
        socket.pinged_at = None;
        let mut at = 0;
        let mut messages = 0;
        let mut published = false;
        let mut closed = false;
        while at < data.len() {
            if out.len() > replies_bytes_max || self.published_bytes > self.published_bytes_max {
                socket.unread = Some(Box::new(data[at..].to_vec()));
                break;
            }
            let received = socket.ws.receive(&mut self.ws, &mut data[at..], out);
            at += received.consumed;
            match received.event {
                Some(Event::Message { kind, data }) => {
                    messages += 1;
                    socket.message_since = None;
                    if socket.accepts == Accepts::Nothing {
                        self.actions.push(Action::Close { session, why: Disconnect::NotAccepted });
                        break;
                    }
                    let message = match (kind, std::str::from_utf8(data)) {
                        (Kind::Text, Ok(text)) => Message::Text(text),
                        _ => Message::Binary(data),
                    };
                    let asked = self.actions.len();
                    let mut ctx = self.facts.context(
                        &mut self.hub,
                        out,
                        &mut self.actions,
                        Some(session),
                        socket.envelope,
                    );
                    self.app.message(&mut ctx, session, message);
                    published |= ctx.published_bytes > 0;
                    self.published_bytes += ctx.published_bytes;
                    if self.actions[asked..]
                        .iter()
                        .any(|action| matches!(action, Action::Close { session: s, .. } if *s == session))
                    {
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
                None if received.consumed == 0 => break,
                None => {}
            }
        }
        let waits = socket.unread.is_some();
        if !socket.ws.is_mid_message() {
            socket.message_since = None;
        } else if socket.message_since.is_none() {
            socket.message_since = Some(now);
            self.arm(index, now.after(self.shared.options.limits.message_time_max));
        }
        self.metrics().messages.add(messages);
        if closed {
            if let Some(conn) = self.table.get_mut(index) {
                conn.replies.get_or_insert_default().append(out);
            }
            return self.end(index);
        }
        if waits {
            self.hold(index, Held::INPUT);
        }
        if published {
            self.hold_if_congested(index);
        }
    }

    /// Closes a WebSocket connection with a code and a reason, or any other at once.
    pub(super) fn close_socket(&mut self, index: usize, code: u16, reason: &str) {
        if let Some(conn) = self.table.get_mut(index)
            && let Stack::Socket(socket) = &mut conn.stack
        {
            socket.ws.close(code, reason, conn.replies.get_or_insert_default());
        }
        self.end(index);
    }

    /// Something may be due on a WebSocket connection: a ping, the end of a message, the end of patience.
    pub(super) fn socket_due(&mut self, index: usize) {
        let now = self.millis();
        let heartbeat = self.shared.options.heartbeat;
        let message_time_max = self.shared.options.limits.message_time_max;
        let progressed = self.progress(index) == Some(true);
        let Some(Conn { stack: Stack::Socket(socket), session, held, .. }) = self.table.get_mut(index) else {
            return;
        };
        let Some(session) = *session else { return };
        if held.has(Held::CORES) {
            // It isn't read from because of us: what it sends meanwhile can't be seen.
            socket.alive_at = now;
            socket.message_since = socket.message_since.map(|_| now);
        }
        let message_due = socket.message_since.map(|since| since.after(message_time_max));
        if message_due.is_some_and(|due| !now.is_before(due)) {
            return self.disconnect(session, Disconnect::MessageTimeout);
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
            next = now.after(heartbeat.timeout);
            self.ping(index);
        }
        let next = message_due.map_or(next, |due| due.earlier(next));
        self.arm(index, next);
    }

    fn ping(&mut self, index: usize) {
        let Some(conn) = self.table.get_mut(index) else { return };
        if conn.in_flight || conn.replies.is_some() {
            conn.replies.get_or_insert_default().extend_from_slice(&PING);
        } else if self.driver.send_bytes(conn.id, &PING) == Sending::InFlight {
            conn.in_flight = true;
        }
    }
}

impl Socket {
    /// Whether there was a sign of life after a ping.
    fn is_alive_since(&self, pinged_at: crate::millis::Millis) -> bool {
        pinged_at.is_before(self.alive_at)
    }
}
