//! What is due on an HTTP connection.

use super::{Http, Waiting, write_error};
use crate::executor::Executor;
use crate::ports::Location;
use crate::protocols::client::TransportStatus;

/// What the core does after a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeoutOutcome {
    /// It goes on; what is in `out` leaves.
    Continue,
    /// The connection ends after what is in `out`.
    End,
    /// The connection ends at once.
    Abort,
}

impl Http {
    /// Handles what is due. Responses are appended to `out`.
    pub(crate) fn handle_timeout(
        &mut self,
        ex: &Executor,
        status: TransportStatus,
        out: &mut Vec<u8>,
    ) -> TimeoutOutcome {
        let now = ex.millis();
        if now.is_before(self.deadline) {
            return TimeoutOutcome::Continue;
        }
        let idle_deadline = now.after(ex.options().limits.idle_timeout);
        if let Some(Waiting::Page(page)) = &mut self.waiting
            && !page.is_answered()
        {
            page.handle_timeout(out);
            self.deadline = if page.is_answered() { idle_deadline } else { now.after(page.next_after()) };
            return TimeoutOutcome::Continue;
        }
        // While a response leaves, its progress decides: slow is not dead.
        if status.in_flight && !status.progressed {
            return TimeoutOutcome::Abort;
        }
        if let Some(Waiting::Events(events)) = &mut self.waiting
            && !events.answered
        {
            if !status.in_flight {
                events.heartbeat(out);
            }
            self.deadline = now.after(ex.options().heartbeat.interval);
            return TimeoutOutcome::Continue;
        }
        if status.in_flight {
            self.deadline = idle_deadline;
            return TimeoutOutcome::Continue;
        }
        let is_busy = self.is_busy();
        match &mut self.waiting {
            Some(Waiting::Admission(_) | Waiting::StreamAdmission) => {
                let why = "no answer from the application in time (limits.request_timeout)";
                write_error(ex, &self.buffer, out, 504, &[], why);
                return TimeoutOutcome::End;
            }
            // Nobody says that it is elsewhere.
            Some(Waiting::Location) => {
                self.handle_location(Location::Unknown);
                self.deadline = idle_deadline;
            }
            Some(Waiting::Document(awaited)) if !awaited.answered => {
                if let Some(position) = awaited.unchanged() {
                    awaited.answered = true;
                    awaited.answer_unchanged(awaited.options(ex), position, out);
                    self.deadline = idle_deadline;
                } else if ex.draining {
                    self.fail(ex, 503, "the server is shutting down", out);
                } else {
                    self.fail(ex, 504, "no document arrived in time (limits.request_timeout)", out);
                }
            }
            // The timer of a client says when its request is over; a whole request is about to be handled.
            Some(_) => self.deadline = idle_deadline,
            None if is_busy => self.deadline = idle_deadline,
            None if !self.begun || self.buffer.is_empty() => return TimeoutOutcome::End,
            None => {
                let why = "the request headers did not arrive in time (limits.header_timeout)";
                write_error(ex, &self.buffer, out, 408, &[], why);
                return TimeoutOutcome::End;
            }
        }
        TimeoutOutcome::Continue
    }

    /// Answers a request that waits for a document with an error.
    pub(crate) fn fail(&mut self, ex: &Executor, status: u16, why: &str, out: &mut Vec<u8>) {
        let Some(Waiting::Document(awaited)) = &mut self.waiting else { return };
        ex.metrics().request_errors.add(1);
        awaited.answered = true;
        awaited.fail(awaited.options(ex), status, why, out);
        self.deadline = ex.millis().after(ex.options().limits.idle_timeout);
    }
}
