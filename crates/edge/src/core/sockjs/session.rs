//! A SockJS client's messages, its heartbeats, and its end.

use super::super::client::{Carrier, ClientId, End, Upper};
use super::super::socket::Talker;
use super::super::table::{Again, Conn, RestOfFrame, Stack, Unread, Waiting};
use super::super::turn::MESSAGE_BYTES;
use super::super::{About, Core, Later};
use super::{Receiver, SockJs};
use crate::app::{Message, Sent};
use crate::encode::{FrameTarget, Writer};
use stentor_driver::{ConnId, Driver};
use stentor_hub::Disconnect;
use stentor_wire::http1::Request;
use stentor_wire::sockjs::{self, Close, Error, Frame, Limits, Messages};
use stentor_wire::ws::Kind;

/// The application has closed the session.
struct Closed;

impl SockJs {
    /// Later receivers are told these words, once the client has ended.
    pub(in super::super) fn say_when_closed(&mut self, code: u16, reason: &str) {
        self.closed = Some(Box::new((code, reason.into())));
    }
}

impl<D: Driver> Core<D> {
    /// Passes the messages of a client's body to the application, and sends its answers. If the connection has used
    /// its share of the turn, returns the number of remaining bytes at the end of the body, and of remaining
    /// messages.
    pub(super) fn deliver_sockjs(
        &mut self,
        id: ClientId,
        mut messages: Messages<'_>,
        request: &Request<'_>,
    ) -> Option<(usize, usize)> {
        let send_buffer_bytes_max = self.shared.options.limits.send_buffer_bytes_max;
        let client = self.clients.get_mut(id)?;
        let Upper::Plain { session, envelope } = client.upper else { return None };
        if !client.sockjs()?.accepts {
            self.end_client(id, End::Because(Disconnect::NotAccepted));
            return None;
        }
        let sockjs = client.sockjs()?;
        let service = sockjs.service;
        let mut queue = client.take_queue();
        let asked = self.actions.len();
        let (mut delivered, mut scratch) = (0, String::new());
        let mut left = None;
        loop {
            let is_much =
                self.published_bytes > self.published_bytes_max || queue.len() > send_buffer_bytes_max;
            if delivered > 0
                && (is_much || self.budget.is_used())
                && !messages.is_empty()
                && let Some(rest) = messages.rest()
            {
                left = Some((rest.len(), messages.len()));
                break;
            }
            let Some(text) = messages.next_in(&mut scratch) else { break };
            delivered += 1;
            self.budget.count(text.len() + MESSAGE_BYTES);
            let about = About {
                session: Some(session),
                writer: Writer::SockJs(FrameTarget::Poll),
                envelope,
                request: Some(request),
                service,
                ..About::default()
            };
            self.tell_app(about, &mut queue, |app, ctx| app.message(ctx, session, Message::Text(text)));
            if self.asks_to_close(asked, session) {
                break;
            }
        }
        self.metrics().messages.add(delivered);
        if let Some(client) = self.clients.get_mut(id) {
            client.queue = queue;
        }
        self.weigh_client(id);
        self.flush_client(id);
        // Nobody has come for so much.
        if self.clients.get(id).is_some_and(|client| client.queue.len() > send_buffer_bytes_max) {
            self.end_client(id, End::Because(Disconnect::SlowConsumer));
            return None;
        }
        left
    }

    /// The messages in one message of a WebSocket. Says whether to go on with what follows it.
    pub(in super::super) fn sockjs_messages(
        &mut self,
        conn: ConnId,
        talker: Talker,
        kind: Kind,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> bool {
        let options = talker.speech.service.place().and_then(|place| self.shared.options.sockjs.get(place));
        let limits = Limits { messages_max: options.map_or(1, |options| options.messages_max) };
        let text = kind.text(data).ok_or(Error::NotText);
        let messages = text.and_then(|text| sockjs::parse_websocket(text, &limits));
        let Ok(messages) = messages else {
            self.metrics().protocol_errors.add(1);
            self.later.push(Later::Broken(conn));
            return false;
        };
        let rest = match self.hand_messages(talker, messages, out) {
            Ok(rest) => rest,
            Err(Closed) => return false,
        };
        let goes_on = rest.is_none();
        self.again = rest.map(Again::Rest);
        goes_on
    }

    /// Passes the messages of one frame to the application, until the share of the turn is used. Then returns the
    /// remaining ones.
    fn hand_messages(
        &mut self,
        talker: Talker,
        mut messages: Messages<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<RestOfFrame>, Closed> {
        let replies_bytes_max = self.shared.options.limits.replies_bytes_max;
        let (mut scratch, mut delivered) = (String::new(), 0);
        let result = loop {
            let is_much = self.budget.is_used()
                || out.len() > replies_bytes_max
                || self.published_bytes > self.published_bytes_max;
            if delivered > 0
                && is_much
                && !messages.is_empty()
                && let Some(rest) = messages.rest()
            {
                break Ok(Some(RestOfFrame { text: rest.to_owned(), messages: messages.len() }));
            }
            let Some(text) = messages.next_in(&mut scratch) else { break Ok(None) };
            delivered += 1;
            self.budget.count(text.len() + MESSAGE_BYTES);
            if !self.hand_message(talker, talker.writer(), Message::Text(text), out) {
                break Err(Closed);
            }
        };
        self.metrics().messages.add(delivered);
        result
    }

    /// Continues with the messages of a frame. Returns whether all are handled; the rest is kept.
    pub(in super::super) fn sockjs_rest(
        &mut self,
        index: usize,
        rest: RestOfFrame,
        unread: &mut Unread,
        out: &mut Vec<u8>,
    ) -> bool {
        let dispatches_before = self.hub.dispatches();
        let Some(Conn { session: Some(session), stack: Stack::Socket(socket), .. }) = self.table.get(index)
        else {
            return false;
        };
        let talker = Talker { session: *session, speech: socket.speech, envelope: socket.envelope };
        let messages = Messages::resume(&rest.text, rest.messages);
        let result = self.hand_messages(talker, messages, out);
        if self.hub.dispatches() != dispatches_before {
            self.hold_if_congested(index);
        }
        match result {
            Ok(None) => return true,
            Ok(rest) => unread.rest = rest,
            Err(Closed) => return false,
        }
        if let Some(Conn { stack: Stack::Socket(socket), .. }) = self.table.get_mut(index) {
            socket.unread = Some(Box::new(std::mem::take(unread)));
            self.leave(index);
        }
        false
    }

    /// The messages on a WebSocket can't be understood: it ends, without a frame of SockJS, as in sockjs-node.
    pub(in super::super) fn close_broken_sockjs(&mut self, index: usize) {
        if let Some(conn) = self.table.get_mut(index)
            && let Conn { stack: Stack::Socket(socket), replies, .. } = conn
        {
            socket.ws.close(Error::CLOSE_CODE, Error::CLOSE_REASON, replies.get_or_insert_default());
            conn.weigh(&self.shared.ledger);
        }
        self.end(index);
    }

    /// Says something to a client, from outside of the handling of its own messages.
    pub(in super::super) fn say_to_sockjs(&mut self, id: ClientId, what: &Sent) {
        let send_buffer_bytes_max = self.shared.options.limits.send_buffer_bytes_max;
        let Some(client) = self.clients.get_mut(id).filter(|client| !client.ended) else { return };
        what.write(Writer::SockJs(FrameTarget::Poll), &mut client.queue);
        client.weigh(&self.shared.ledger);
        self.flush_client(id);
        if self.clients.get(id).is_some_and(|client| client.queue.len() > send_buffer_bytes_max) {
            self.end_client(id, End::Because(Disconnect::SlowConsumer));
        }
    }

    /// Lets a client's receiver say something, at `conn`; detaches it where its answer ends with that.
    fn with_receiver(&mut self, conn: ConnId, say: impl FnOnce(&mut Self, &mut Receiver, &mut Vec<u8>)) {
        let deadline = self.millis().after(self.shared.options.limits.idle_timeout);
        let Some(index) = self.table.index_of(conn) else { return };
        let Some(http) = self.http(index) else { return };
        let Some(Waiting::Receiver(mut receiver)) = http.waiting.take() else { return };
        let mut out = Vec::new();
        say(self, &mut receiver, &mut out);
        receiver.keep_alive &= !self.draining;
        let (client, answered) = (receiver.client, receiver.answered);
        let Some(conn) = self.table.get_mut(index) else { return };
        let Conn { stack: Stack::Http(http), replies, .. } = conn else { return };
        http.waiting = Some(Waiting::Receiver(receiver));
        if !out.is_empty() {
            replies.get_or_insert_default().append(&mut out);
        }
        conn.weigh(&self.shared.ledger);
        if answered {
            if let Some(http) = self.http(index) {
                http.deadline = deadline;
            }
            self.arm(index, deadline);
            self.receiver_left(client);
        }
        self.flush(index);
    }

    /// Answers a poll, if something waits.
    pub(in super::super) fn answer_sockjs_poll(&mut self, id: ClientId, conn: ConnId) {
        self.with_receiver(conn, |core, receiver, out| {
            if let Some(client) = core.clients.get_mut(id) {
                receiver.messages(client, &mut core.hub, out);
            }
        });
    }

    /// The answer that carried a client has ended: it is to come again soon.
    pub(in super::super) fn receiver_left(&mut self, id: ClientId) {
        let now = self.millis();
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(sockjs) = client.sockjs() else { return };
        let Some(place) = sockjs.service.place() else { return };
        let due_at = now.after(self.shared.options.sockjs[place].disconnect_delay);
        client.carrier = Carrier::None;
        client.due_at = due_at;
        self.arm_client(id, due_at);
    }

    /// Something may be due of a client, whose timer isn't set.
    pub(in super::super) fn sockjs_due(&mut self, id: ClientId) {
        let now = self.millis();
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(place) = client.sockjs().and_then(|sockjs| sockjs.service.place()) else { return };
        let due_at = client.due_at;
        if now.is_before(due_at) {
            return self.arm_client(id, due_at);
        }
        match client.carrier {
            _ if client.ended => self.drop_client(id),
            Carrier::Poll(conn) | Carrier::Stream(conn) => {
                let due_at = now.after(self.shared.options.sockjs[place].heartbeat);
                client.due_at = due_at;
                self.arm_client(id, due_at);
                // What is on its way is sign of life enough.
                let is_busy = self
                    .table
                    .index_of(conn)
                    .and_then(|index| self.table.get(index))
                    .is_none_or(|conn| conn.in_flight);
                if !is_busy {
                    self.with_receiver(conn, |_, receiver, out| receiver.say(out, &Frame::Heartbeat));
                }
            }
            Carrier::None | Carrier::Socket(_) => {
                self.end_client(id, End::Gone);
                self.drop_client(id);
            }
        }
    }

    /// The client has ended; `carrier` carried it. It is told, and again if it comes once more.
    pub(in super::super) fn end_sockjs(&mut self, id: ClientId, carrier: Carrier, end: End) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if let Some(sockjs) = client.sockjs_mut()
            && sockjs.closed.is_none()
        {
            let Close { code, reason } = match end {
                End::Because(why) => Close { code: why.code(), reason: why.reason() },
                End::Gone => Close::INTERRUPTED,
                End::Closed | End::TakenOver(_) => Close::NORMAL,
                End::Fault => Close { code: Error::CLOSE_CODE, reason: Error::CLOSE_REASON },
            };
            sockjs.say_when_closed(code, reason);
        }
        self.receiver_left(id);
        match carrier {
            Carrier::Poll(conn) | Carrier::Stream(conn) if end != End::Gone => {
                self.with_receiver(conn, |core, receiver, out| {
                    if let Some(client) = core.clients.get_mut(id) {
                        receiver.last_words(client, &mut core.hub, out);
                    }
                });
            }
            _ => {}
        }
    }
}
