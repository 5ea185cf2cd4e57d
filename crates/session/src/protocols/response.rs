//! HTTP responses that aren't complete when their request has been handled: documents, polls, receivers, SSE streams, pages.

use super::client::{Client, TransportStatus};
use crate::executor::{Executor, PollAnswer};
use crate::identity::ClientId;
use crate::millis::Millis;
use crate::model::{ConnId, Frame, SessionId};
use std::time::Duration;
use stentor_wire::http1;

/// The common state of responses.
#[derive(Clone, Copy, Debug)]
pub struct ResponseState {
    /// `true` if the connection is kept after the response.
    pub keep_alive: bool,
    /// `true` if the end of the response has been passed to the driver or will be in this turn.
    pub is_whole: bool,
}

impl ResponseState {
    pub(crate) fn new(keep_alive: bool) -> Self {
        Self { keep_alive, is_whole: false }
    }

    /// Ends the response. Without chunks, it ends with the connection.
    pub(crate) fn finish(&mut self, is_chunked: bool, out: &mut Vec<u8>) {
        if is_chunked && !self.is_whole {
            http1::write_last_chunk(out);
        }
        self.is_whole = true;
    }
}

/// The parts of the core that a response needs to continue.
pub struct ResponseContext<'a> {
    /// The executor.
    pub ex: &'a mut Executor,
    /// The connection.
    pub conn: ConnId,
    /// The session of the connection.
    pub session: Option<SessionId>,
    /// The client that the response carries.
    pub client: Option<&'a mut (dyn Client + 'static)>,
}

/// An incomplete response.
pub trait Response {
    /// The part of the state that all responses have.
    fn state(&self) -> &ResponseState;
    /// The common state, mutable.
    fn state_mut(&mut self) -> &mut ResponseState;

    /// Returns `true` if the response is complete.
    fn is_whole(&self) -> bool {
        self.state().is_whole
    }

    /// The client that the response carries.
    fn client(&self) -> Option<ClientId> {
        None
    }

    /// Bytes held besides the response itself, without bytes that are counted elsewhere.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Returns `true` if the response is an SSE stream, which lasts as long as its session.
    fn is_stream(&self) -> bool {
        false
    }

    /// Returns `true` if the connection ends when its client finishes sending: by default, if the response isn't complete.
    fn ends_with_input(&self) -> bool {
        !self.is_whole()
    }

    /// The time until [`Self::handle_timeout`] is due for the first time.
    fn first_timeout(&self, ex: &Executor) -> Duration {
        ex.options().limits.request_timeout
    }

    /// Handles a timeout. Returns the time of the next timeout, or `None` if the connection must end at once.
    fn handle_timeout(
        &mut self,
        ex: &Executor,
        status: TransportStatus,
        _out: &mut Vec<u8>,
    ) -> Option<Millis> {
        status.idle_deadline(ex)
    }

    /// Moves data that can be sent now into `frames`.
    fn take_frames(&mut self, _cx: &mut ResponseContext<'_>, _frames: &mut Vec<Frame>) {}

    /// Appends content for the client that the response carries.
    fn answer(&mut self, _cx: &mut ResponseContext<'_>, _answer: PollAnswer, _out: &mut Vec<u8>) {}

    /// Completes the response with an error, if it hasn't begun.
    fn fail(&mut self, _ex: &Executor, _status: u16, _why: &str, _out: &mut Vec<u8>) {}

    /// Ends an SSE stream, so that its client reconnects: after this time, or after the client's own delay if `None`.
    fn send_away(&mut self, _after: Option<Duration>, _out: &mut Vec<u8>) {}
}
