//! Timeouts of HTTP connections.

use super::{Http, Waiting, write_error};
use crate::executor::{Effect, Executor, ToConnection};
use crate::model::ConnId;
use crate::ports::Location;
use crate::protocols::client::{Flow, TransportStatus};

impl Http {
    /// Handles timeouts that are due. Responses are appended to `out`. After [`Flow::Stop`], the connection ends when `out`
    /// has been sent.
    pub fn handle_timeout(
        &mut self,
        ex: &mut Executor,
        conn: ConnId,
        status: TransportStatus,
        out: &mut Vec<u8>,
    ) -> Flow {
        let now = ex.millis();
        if now.is_before(self.deadline) {
            return Flow::Continue;
        }
        let deadline = match self.response_mut() {
            Some(response) if !response.is_whole() => response.handle_timeout(ex, status, out),
            _ => status.idle_deadline(ex),
        };
        // The response being sent has made no progress.
        let Some(deadline) = deadline else {
            ex.push(Effect::Connection(conn, ToConnection::Abort));
            return Flow::Continue;
        };
        if status.in_flight || self.response().is_some() {
            self.deadline = deadline;
            return Flow::Continue;
        }
        let is_busy = self.is_busy();
        match &mut self.waiting {
            // The lookup wasn't answered in time, so the session's node counts as unknown.
            Some(Waiting::Suspended { request, .. }) if request.is_lookup() => {
                self.handle_location(Location::Unknown);
                self.deadline = deadline;
            }
            Some(Waiting::Suspended { buffered, .. }) => {
                let why = "no answer from the application in time (limits.request_timeout)";
                let head = buffered.as_ref().map_or(&self.buffer, |buffered| &buffered.head);
                write_error(ex, head, out, 504, &[], why);
                return Flow::Stop;
            }
            // A complete request is about to be handled, so the deadline moves.
            Some(_) => self.deadline = deadline,
            None if is_busy => self.deadline = deadline,
            None if !self.begun || self.buffer.is_empty() => return Flow::Stop,
            None => {
                let why = "the request headers did not arrive in time (limits.header_timeout)";
                write_error(ex, &self.buffer, out, 408, &[], why);
                return Flow::Stop;
            }
        }
        Flow::Continue
    }

    /// Answers a waiting request for a document with an error.
    pub fn fail(&mut self, ex: &Executor, status: u16, why: &str, out: &mut Vec<u8>) {
        let Some(response) = self.response_mut().filter(|response| !response.is_whole()) else { return };
        response.fail(ex, status, why, out);
        if response.is_whole() {
            self.deadline = ex.millis().after(ex.options().limits.idle_timeout);
        }
    }
}
