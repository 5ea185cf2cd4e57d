//! Memory of an application, and counts of events of its sessions.

use super::{Application, Closing};
use crate::link::{End, Link};
use crate::session::Session;

/// Bytes that a session needs in the table and its indexes, beside its queue and its handshake.
const SESSION_BYTES: usize = size_of::<Session>() + 104;

/// Running totals over all sessions.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Weight of the messages that wait for workers.
    pub(super) queued_bytes: usize,
    /// Bytes of the requests that aren't answered.
    pub(super) handshake_bytes: usize,
}

impl Held {
    /// Drops the request of a session that is answered.
    pub(super) fn forget_handshake(&mut self, session: &mut Session) {
        let handshake = session.handshake.take();
        self.handshake_bytes -= handshake.map_or(0, |handshake| handshake.as_str().len());
    }

    /// Subtracts a session that is removed.
    pub(super) fn forget(&mut self, session: &mut Session) {
        self.queued_bytes -= session.forget_queued();
        self.handshake_bytes -= session.handshake.as_ref().map_or(0, |handshake| handshake.as_str().len());
    }
}

/// Totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests that were refused with 503: there was no worker, or no answer, for too long, or too many requests waited.
    pub requests_refused: u64,
    /// Sessions that another worker has resumed.
    pub sessions_resumed: u64,
    /// Sessions that a worker has given back, because they move to another one.
    pub sessions_moved: u64,
    /// Sessions that were closed because there was no worker for too long, or no worker can take them.
    pub sessions_without_worker: u64,
    /// Sessions that were closed because their worker has crashed (`disconnect`).
    pub sessions_crashed: u64,
    /// Messages that are sent again after a crash (`redeliver`).
    pub messages_redelivered: u64,
    /// Messages that were dropped by a crash (`drop`).
    pub messages_dropped: u64,
}

impl Stats {
    /// Counts a session that the table closes, or a request that it refuses.
    pub(super) fn count(&mut self, is_request: bool, closing: Closing) {
        match closing {
            _ if is_request => self.requests_refused += 1,
            Closing::Stopped | Closing::Disconnected => {}
            Closing::Crashed => self.sessions_crashed += 1,
            Closing::NoWorker | Closing::TooLarge => self.sessions_without_worker += 1,
        }
    }
}

impl Application {
    /// Bytes of messages that wait for workers.
    pub fn queued_bytes(&self) -> usize {
        self.held.queued_bytes
    }

    /// Bytes that the application holds: sessions, requests, messages that wait or aren't acknowledged, and names of namespaces.
    pub fn held_bytes(&self) -> usize {
        let links: usize = self.links().map(Link::held_bytes).sum();
        self.held.queued_bytes + self.held.handshake_bytes + links + self.sessions.len() * SESSION_BYTES
    }

    /// Number of requests that aren't answered.
    pub fn requests(&self) -> usize {
        self.requests
    }

    /// Number of sessions and requests that wait for a worker.
    pub fn waiting(&self) -> usize {
        self.line.waiting.len()
    }

    /// Totals since the start.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The links, by number.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.workers.values().map(|worker| &worker.link)
    }

    /// Returns the next link that has ended: its number, the name of its worker, and how it has ended.
    pub fn poll_end(&mut self) -> Option<(u32, Box<str>, End)> {
        self.ended.pop_front()
    }
}
