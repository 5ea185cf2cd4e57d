//! The messages, heartbeats and end of a SockJS client.

use super::encode::wire;
use super::messages;
use crate::app::{Envelope, HandlerScope, Sent};
use crate::encode::Encoding;
use crate::executor::{Effect, Executor, PollAnswer, ToConnection};
use crate::identity::{End, Service, Sid};
use crate::model::{ConnId, Disconnect, SessionId};
use crate::ports::SessionClaim;
use crate::protocols::client::{self, ActiveTransport, Client as _, ClientState, TransportStatus};
use crate::protocols::message::scope_of;
use std::sync::Arc;
use stentor_wire::http1::Request;
use stentor_wire::sockjs::{Close, Error, Messages, Wrapping};

/// A client of SockJS over HTTP.
pub struct Client {
    pub(super) state: ClientState,
    pub(crate) service: Service,
    pub(crate) envelope: Envelope,
    pub(crate) session: Option<SessionId>,
    /// `true` if the session is for a feed only: the application isn't called, and the client may send no messages.
    pub(super) push_only: bool,
    /// Close code and reason. `None` until the application sets them or the client ends.
    pub(super) closed: Option<Box<(u16, Box<str>)>>,
    /// The claim of the session's name for this node, in a cluster.
    pub(super) claim: Option<Arc<dyn SessionClaim>>,
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

    /// The encoding of the session on a transport. Messages to the session are records on all transports.
    pub(super) fn encoding(&self, wrapping: Wrapping) -> Encoding {
        Encoding::own(wire(wrapping), self.envelope)
    }

    /// Passes the messages of a body of this size to the application. If not all can be handled now, returns the number of
    /// unhandled bytes at the end of the body, and the number of remaining messages.
    pub(super) fn handle_messages(
        &mut self,
        ex: &mut Executor,
        messages: Messages<'_>,
        payload_bytes: usize,
        (conn, request): (ConnId, &Request<'_>),
    ) -> Option<(usize, usize)> {
        let send_buffer_bytes_max = ex.options().limits.send_buffer_bytes_max;
        let session = self.session?;
        if self.push_only {
            self.end(ex, End::Because(Disconnect::NotAccepted));
            return None;
        }
        let mut queue = self.take_queue();
        let scope = scope_of(session, self.encoding(Wrapping::Xhr), self.service, Some(request));
        let scope = HandlerScope { asker: Some(conn), ..scope };
        let rest = messages::deliver(ex, scope, messages, &mut queue, send_buffer_bytes_max);
        let waits = ex.questions.waiting.is_waiting(conn);
        self.state.queue = queue;
        self.weigh(ex);
        // The client doesn't request its messages.
        if self.state.transport == ActiveTransport::None
            && self.state.queue.len() > ex.options().limits.send_buffer_bytes_max
        {
            self.end(ex, End::Because(Disconnect::SlowConsumer));
            return None;
        }
        ex.flush_client(self.state.id);
        match rest.unwrap_or_default() {
            Some((rest, messages)) => Some((rest.map_or(payload_bytes, str::len), messages)),
            // All messages are handled, but the request isn't answered before the decision about the last one.
            None => waits.then_some((0, 0)),
        }
    }
}

impl client::Client for Client {
    fn state(&self) -> &ClientState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ClientState {
        &mut self.state
    }

    fn into_state(self) -> ClientState {
        self.state
    }

    fn each_session(&self, each: &mut dyn FnMut(SessionId)) {
        self.session.into_iter().for_each(each);
    }

    fn service(&self) -> Service {
        self.service
    }

    fn session_in(&self, namespace: &str) -> Option<SessionId> {
        self.session.filter(|_| namespace == "/")
    }

    fn closed(&self) -> Option<(u16, &str)> {
        self.closed.as_deref().map(|(code, reason)| (*code, &**reason))
    }

    fn set_closed(&mut self, code: u16, reason: &str) {
        self.closed = Some(Box::new((code, reason.into())));
    }

    fn handle_timeout(&mut self, ex: &mut Executor, status: TransportStatus) {
        let heartbeat = service_options(ex, self.service, |options| options.heartbeat);
        client::handle_http_timeout(self, ex, status, heartbeat);
    }

    /// Starts the time within which the client's next request must arrive.
    fn handle_response_end(&mut self, ex: &mut Executor) {
        self.set_transport(ex, ActiveTransport::None);
        self.state.due_at = ex.millis().after(disconnect_delay(ex, self.service));
        ex.arm_client(self.state.id);
    }

    fn send(&mut self, ex: &mut Executor, _session: SessionId, what: &Sent) {
        if self.state.ended {
            return;
        }
        what.write(self.encoding(Wrapping::Xhr), "/", &mut self.state.queue);
        self.charge(ex);
        ex.flush_client(self.state.id);
    }

    /// Ends the client. Each later receiver gets the close code as well.
    fn end(&mut self, ex: &mut Executor, end: End) {
        if !self.state.begin_end(ex, end) {
            return;
        }
        if self.closed.is_none() {
            let Close { code, reason } = match end {
                End::Because(why) => Close { code: why.code(), reason: why.reason() },
                End::Gone => Close::INTERRUPTED,
                End::Closed | End::TakenOver => Close::NORMAL,
                End::Fault => Close { code: Error::CLOSE_CODE, reason: Error::CLOSE_REASON },
            };
            self.set_closed(code, reason);
        }
        let Some(session) = self.session else { return };
        ex.close_session(session, end);
        // The application isn't notified of clients that may not send messages.
        if !self.push_only {
            let scope = HandlerScope { service: self.service, ..HandlerScope::default() };
            ex.notify_app(scope, |app, ctx| app.closed(ctx, session));
        }
        self.session = None;
        self.state.due_at = ex.millis().after(disconnect_delay(ex, self.service));
        ex.arm_client(self.state.id);
        match std::mem::replace(&mut self.state.transport, ActiveTransport::None) {
            ActiveTransport::Poll(conn) | ActiveTransport::Stream(conn) if end != End::Gone => {
                ex.push(Effect::Connection(conn, ToConnection::Answer(PollAnswer::Pending)));
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

/// Time for which a client may be without a receiver.
pub(super) fn disconnect_delay(ex: &Executor, service: Service) -> std::time::Duration {
    service_options(ex, service, |options| options.disconnect_delay)
}
