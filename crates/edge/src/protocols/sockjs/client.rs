//! A client's messages, its heartbeats, and its end.

use super::{Receiver, messages};
use crate::app::{Envelope, HandlerScope, Sent};
use crate::encode::Encoding;
use crate::executor::{Effect, Executor};
use crate::identity::{ClientKind, End, Service, Sid};
use crate::millis::Millis;
use crate::model::{Disconnect, SessionId};
use crate::ports::SessionClaim;
use crate::protocols::client::{ActiveTransport, ClientState, TransportStatus};
use crate::protocols::clients::TableEntry;
use crate::protocols::message::scope_of;
use std::sync::Arc;
use stentor_wire::http1::Request;
use stentor_wire::sockjs::{Close, Error, Frame, Messages, Wrapping};

/// A client of SockJS over HTTP.
pub(crate) struct Client {
    pub(super) state: ClientState,
    pub(crate) service: Service,
    pub(crate) envelope: Envelope,
    pub(crate) session: Option<SessionId>,
    /// There is only a feed: the application isn't asked, and the client may send nothing.
    pub(super) push_only: bool,
    /// How it was closed, if the application has said so or the client is to be told.
    pub(super) closed: Option<Box<(u16, Box<str>)>>,
    /// Keeps its name for this node, in a cluster.
    pub(super) claim: Option<Arc<dyn SessionClaim>>,
}

impl TableEntry for Client {
    const KIND: ClientKind = ClientKind::SockJs;

    fn state(&self) -> &ClientState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ClientState {
        &mut self.state
    }
}

impl Client {
    pub(super) fn new(
        ex: &Executor,
        sid: Sid,
        source: u64,
        (service, envelope, push_only): (Service, Envelope, bool),
    ) -> Self {
        let due_at = ex.millis().after(disconnect_delay(ex, service));
        let state = ClientState::new(sid, source, ActiveTransport::None, ex.millis(), due_at);
        Self { state, service, envelope, session: None, push_only, closed: None, claim: None }
    }

    /// Later receivers are told these words, once the client has ended.
    pub(crate) fn say_when_closed(&mut self, code: u16, reason: &str) {
        self.closed = Some(Box::new((code, reason.into())));
    }

    /// How its session is written to by a transport. Messages are records, whatever the transport.
    pub(super) fn encoding(&self, wrapping: Wrapping) -> Encoding {
        Encoding::sockjs(wrapping, self.envelope)
    }

    pub(crate) fn poll_timeout(&self) -> Millis {
        self.state.due_at
    }

    /// Passes the messages of a body of this size to the application. If they can't all be handled now, returns the
    /// number of remaining bytes at the end of the body, and of remaining messages.
    pub(super) fn handle_messages(
        &mut self,
        ex: &mut Executor,
        messages: Messages<'_>,
        payload_bytes: usize,
        request: &Request<'_>,
    ) -> Option<(usize, usize)> {
        let send_buffer_bytes_max = ex.options().limits.send_buffer_bytes_max;
        let session = self.session?;
        if self.push_only {
            self.end(ex, End::Because(Disconnect::NotAccepted));
            return None;
        }
        let mut queue = self.take_queue();
        let scope = scope_of(session, self.encoding(Wrapping::Xhr), self.service, Some(request));
        let rest = messages::deliver(ex, scope, messages, &mut queue, send_buffer_bytes_max);
        if ex.questions.awaits_decision() {
            ex.questions.hold_client(self.state.id);
        }
        self.state.queue = queue;
        self.weigh(ex);
        // Nobody has come for so much.
        if self.state.transport == ActiveTransport::None
            && self.state.queue.len() > ex.options().limits.send_buffer_bytes_max
        {
            self.end(ex, End::Because(Disconnect::SlowConsumer));
            return None;
        }
        ex.push(Effect::FlushClient(self.state.id));
        rest.unwrap_or_default().map(|(rest, messages)| (rest.map_or(payload_bytes, str::len), messages))
    }

    /// Sends a message, outside the handling of the client's own messages.
    pub(crate) fn send(&mut self, ex: &mut Executor, what: &Sent) {
        if self.state.ended {
            return;
        }
        what.write(self.encoding(Wrapping::Xhr), "/", &mut self.state.queue);
        self.charge(ex);
        ex.push(Effect::FlushClient(self.state.id));
    }

    /// Keeps messages for a receiver, which gets them before it is told how the client ended.
    pub(crate) fn keep(&mut self, ex: &mut Executor, records: &[u8]) {
        self.state.queue.extend_from_slice(records);
        self.charge(ex);
    }

    /// Ends the client if too much waits for it after a flush.
    pub(crate) fn check_queue(&mut self, ex: &mut Executor) {
        if self.state.queue.len() > ex.options().limits.send_buffer_bytes_max {
            self.end(ex, End::Because(Disconnect::SlowConsumer));
        }
    }

    /// Answers the poll that carries the client, if something waits; or tells its receiver how it ended.
    pub(crate) fn answer(&mut self, ex: &mut Executor, receiver: &mut Receiver, out: &mut Vec<u8>) {
        if self.state.ended {
            receiver.last_words(self, ex, out);
        } else {
            receiver.messages(self, ex, out);
        }
        if receiver.answered {
            self.receiver_left(ex);
        }
    }

    /// The answer that carried the client has ended: the client is to come again soon.
    pub(crate) fn receiver_left(&mut self, ex: &mut Executor) {
        self.state.transport = ActiveTransport::None;
        self.state.due_at = ex.millis().after(disconnect_delay(ex, self.service));
        ex.push(Effect::ArmClient(self.state.id));
    }

    /// Handles what is due. Returns whether the receiver is to be sent a heartbeat.
    pub(crate) fn handle_timeout(&mut self, ex: &mut Executor, status: TransportStatus) -> bool {
        let now = ex.millis();
        if now.is_before(self.state.due_at) {
            return false;
        }
        match self.state.transport {
            _ if self.state.ended => self.remove(ex),
            ActiveTransport::Poll(_) | ActiveTransport::Stream(_) => {
                self.state.due_at = now.after(service_options(ex, self.service, |options| options.heartbeat));
                // What is on its way is sign of life enough.
                return !status.in_flight;
            }
            ActiveTransport::None | ActiveTransport::WebSocket(_) => {
                self.end(ex, End::Gone);
                self.remove(ex);
            }
        }
        false
    }

    /// Sends a heartbeat.
    pub(crate) fn heartbeat(&mut self, ex: &mut Executor, receiver: &mut Receiver, out: &mut Vec<u8>) {
        receiver.say(out, &Frame::Heartbeat);
        if receiver.answered {
            self.receiver_left(ex);
        }
    }

    /// The connection that carries the client has ended.
    pub(crate) fn handle_connection_lost(&mut self, ex: &mut Executor, carried: bool, unsent: bool) {
        if carried {
            self.state.transport = ActiveTransport::None;
        }
        if carried || unsent {
            self.end(ex, End::Gone);
        }
    }

    /// Ends the client: its session now, then the receiver is told, and again if the client comes once more.
    pub(crate) fn end(&mut self, ex: &mut Executor, end: End) {
        if !self.state.begin_end(ex, end) {
            return;
        }
        if self.closed.is_none() {
            let Close { code, reason } = match end {
                End::Because(why) => Close { code: why.code(), reason: why.reason() },
                End::Gone => Close::INTERRUPTED,
                End::Closed | End::TakenOver(_) => Close::NORMAL,
                End::Fault => Close { code: Error::CLOSE_CODE, reason: Error::CLOSE_REASON },
            };
            self.say_when_closed(code, reason);
        }
        let Some(session) = self.session else { return };
        ex.close_session(session);
        // The application doesn't know of a client that may send nothing.
        if !self.push_only {
            let scope = HandlerScope { service: self.service, ..HandlerScope::default() };
            ex.notify_app(scope, |app, ctx| app.closed(ctx, session));
        }
        self.session = None;
        self.state.due_at = ex.millis().after(disconnect_delay(ex, self.service));
        ex.push(Effect::ArmClient(self.state.id));
        match std::mem::replace(&mut self.state.transport, ActiveTransport::None) {
            ActiveTransport::Poll(conn) | ActiveTransport::Stream(conn) if end != End::Gone => {
                ex.push(Effect::TellReceiver { client: self.state.id, conn });
            }
            _ => {}
        }
    }
}

fn service_options<T: Default>(
    ex: &Executor,
    service: Service,
    get: impl FnOnce(&crate::options::SockJs) -> T,
) -> T {
    service.place().and_then(|place| ex.options().sockjs.get(place)).map(get).unwrap_or_default()
}

/// How long a client may be without a receiver.
pub(super) fn disconnect_delay(ex: &Executor, service: Service) -> std::time::Duration {
    service_options(ex, service, |options| options.disconnect_delay)
}
