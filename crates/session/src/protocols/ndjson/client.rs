//! The messages, heartbeats and end of an NDJSON client.

use super::encode::lines;
use crate::app::{HandlerScope, Message, Sent};
use crate::budget::MESSAGE_BYTES;
use crate::encode::{Encoding, Own};
use crate::executor::{Effect, Executor, PollAnswer, SEND_BYTES_MAX, SEND_FRAMES_MAX, ToConnection};
use crate::identity::{End, Service, Sid};
use crate::message::Envelope;
use crate::model::{ConnId, Disconnect, Frame, SessionId};
use crate::protocols::client::{self, ActiveTransport, Client as _, ClientState, Flow, TransportStatus};
use crate::protocols::message::{self, scope_of};
use std::time::Duration;
use stentor_wire::http1::Request;

/// The encoding of all sessions.
pub(super) const ENCODING: Encoding = Encoding::own(Own::NdJson, Envelope::V1);

/// Time for which a session lives without a stream or a request, the same as for a polling client of Engine.IO.
pub(super) fn session_timeout(ex: &Executor) -> Duration {
    let heartbeat = ex.options().heartbeat;
    heartbeat.interval + heartbeat.timeout
}

/// A client. Its state doesn't depend on the connections of its requests.
pub struct Client {
    pub(super) state: ClientState,
    pub(super) session: Option<SessionId>,
    /// Number of lines that streams have carried, including lost lines.
    pub(super) lines_sent: u64,
    /// The number of the last request whose messages have all been handled.
    pub(super) handled: u64,
    /// Number of handled bytes of the next request.
    pub(super) handled_bytes: usize,
    closed: Option<Box<(u16, Box<str>)>>,
}

impl Client {
    pub(super) fn new(ex: &Executor, sid: Sid, source: u64) -> Self {
        let due_at = ex.millis().after(session_timeout(ex));
        Self {
            state: ClientState::new(sid, source, ActiveTransport::None, ex.millis(), due_at),
            session: None,
            lines_sent: 0,
            handled: 0,
            handled_bytes: 0,
            closed: None,
        }
    }

    /// Extends the life of the session, because a request has arrived.
    pub(super) fn touch(&mut self, ex: &Executor) {
        let now = ex.millis();
        self.state.alive_at = now;
        if self.state.transport == ActiveTransport::None {
            self.state.due_at = now.after(session_timeout(ex));
        }
    }

    /// Ends the session because a stream broke with lines that its client hasn't received.
    pub(super) fn end_lost(&mut self, ex: &mut Executor) {
        self.set_closed(Disconnect::HeartbeatTimeout.code(), "lines were lost with a stream");
        self.end(ex, End::Because(Disconnect::HeartbeatTimeout));
    }

    /// Passes the lines of a request to the application, from the first unhandled line on. Returns `true` if all lines are
    /// handled now.
    pub(super) fn handle_lines(
        &mut self,
        ex: &mut Executor,
        conn: ConnId,
        body: &str,
        request: &Request<'_>,
    ) -> bool {
        let Some(session) = self.session else { return true };
        let send_buffer_bytes_max = ex.options().limits.send_buffer_bytes_max;
        let scope = scope_of(session, ENCODING, Service::default(), Some(request));
        let scope = HandlerScope { asker: Some(conn), ..scope };
        let mut queue = self.take_queue();
        let mut delivered = 0;
        let is_whole = loop {
            let rest = body.get(self.handled_bytes..).unwrap_or_default();
            if rest.is_empty() {
                // All lines are handled, unless the last one waits for a decision.
                break !ex.questions.waiting.is_waiting(conn);
            }
            let is_much = ex.budget.is_used()
                || queue.len() > send_buffer_bytes_max
                || ex.budget.published_much()
                || ex.questions.waiting.is_waiting(conn);
            if delivered > 0 && is_much {
                break false;
            }
            let bytes = rest.find('\n').map_or(rest.len(), |at| at + 1);
            let line = rest[..bytes].trim();
            delivered += 1;
            ex.budget.count(bytes + MESSAGE_BYTES);
            if !line.is_empty() {
                match message::deliver(ex, scope, Message::Text(line), &mut queue) {
                    Flow::Continue => ex.metrics().messages.add(1),
                    Flow::Wait | Flow::Yield | Flow::Migrate(_) => break false,
                    Flow::Stop => break true,
                }
            }
            self.handled_bytes += bytes;
        };
        if is_whole {
            self.handled_bytes = 0;
        }
        self.state.queue = queue;
        self.weigh(ex);
        if self.state.transport == ActiveTransport::None {
            self.check_queue(ex, false);
        }
        ex.flush_client(self.state.id);
        is_whole
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
        let heartbeat = ex.options().heartbeat.interval;
        client::handle_http_timeout(self, ex, status, heartbeat);
    }

    /// The client outlives its stream. Lines in flight count as sent: the request for the next stream says how many have
    /// arrived.
    fn handle_connection_lost(&mut self, ex: &mut Executor, conn: ConnId, _why: End, _unsent: bool) {
        if self.state.transport.conn() == Some(conn) {
            self.handle_response_end(ex);
            self.handle_sent(ex);
        }
    }

    fn handle_response_end(&mut self, ex: &mut Executor) {
        self.set_transport(ex, ActiveTransport::None);
        self.state.due_at = ex.millis().after(session_timeout(ex));
        ex.arm_client(self.state.id);
    }

    fn send(&mut self, ex: &mut Executor, _session: SessionId, what: &Sent) {
        if self.state.ended {
            return;
        }
        what.write(ENCODING, "/", &mut self.state.queue);
        self.charge(ex);
        ex.flush_client(self.state.id);
    }

    fn take_frames(&mut self, ex: &mut Executor, frames: &mut Vec<Frame>) {
        let queue = self.take_queue();
        if !queue.is_empty() {
            self.lines_sent += lines(&queue).count() as u64;
            frames.push(Frame::owned(queue));
        }
        let begin = frames.len();
        if let Some(session) = self.session {
            ex.take(session, SEND_BYTES_MAX, SEND_FRAMES_MAX, |_, frame| frames.push(frame.clone()));
        }
        self.lines_sent += (frames.len() - begin) as u64;
    }

    /// Ends the client. Later requests receive the reason, for the time that a session lives without a request.
    fn end(&mut self, ex: &mut Executor, end: End) {
        if !self.state.begin_end(ex, end) {
            return;
        }
        if self.closed.is_none() {
            let why = match end {
                End::Because(why) => why,
                End::Gone | End::Closed | End::TakenOver | End::Fault => Disconnect::HeartbeatTimeout,
            };
            self.set_closed(why.code(), why.reason());
        }
        let Some(session) = self.session.take() else { return };
        ex.close_session(session, end);
        let scope = HandlerScope { service: Service::default(), ..HandlerScope::default() };
        ex.notify_app(scope, |app, ctx| app.closed(ctx, session));
        let transport = self.state.transport;
        self.handle_response_end(ex);
        if let ActiveTransport::Poll(conn) | ActiveTransport::Stream(conn) = transport {
            ex.push(Effect::Connection(conn, ToConnection::Answer(PollAnswer::Pending)));
        }
    }
}
