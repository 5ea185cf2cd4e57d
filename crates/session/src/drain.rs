//! The state of a drain of the node, for sessions and responses. The core decides when the next step is due.
//!
//! ```text
//!  serving ── begin ──► delay ── open_window ──► draining ── finish ──► finishing
//!                         ▲                         │                      │
//!                         └───────── begin ─────────┴──────────────────────┘
//! ```

use std::time::{Duration, Instant};

/// The state of a drain. The default is the state without a drain.
#[derive(Clone, Copy, Debug, Default)]
pub struct DrainState {
    /// The time at which another process replaces this one.
    replaced_at: Option<Instant>,
    is_draining: bool,
    is_finishing: bool,
    /// `true` if connections stay open for further requests of existing sessions while the node drains.
    keeps_connections: bool,
}

impl DrainState {
    /// Begins a drain, even while another drain is under way. Another process replaces this one at `replaced_at`.
    pub fn begin(&mut self, replaced_at: Instant) {
        self.replaced_at = Some(replaced_at);
        self.is_draining = false;
    }

    /// Opens the window in which sessions end. No session begins from now on. `keeps_connections` is `true` if connections stay
    /// open for further requests of existing sessions.
    pub fn open_window(&mut self, keeps_connections: bool) {
        (self.is_draining, self.keeps_connections) = (true, keeps_connections);
    }

    /// Finishes the drain, because all sessions have ended. From now on, connections end after their response.
    pub fn finish(&mut self) {
        (self.is_draining, self.is_finishing) = (true, true);
    }

    /// `true` once the window has opened: no session begins.
    #[inline]
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// `true` if a connection stays open after a response. `is_of_session` is `true` for a response to an existing session.
    #[inline]
    pub(crate) fn keeps_connection(&self, is_of_session: bool) -> bool {
        !self.is_draining || self.keeps_connections && is_of_session
    }

    /// `true` once all sessions have ended: connections end after their response.
    #[inline]
    pub fn is_finishing(&self) -> bool {
        self.is_finishing
    }

    /// The time until another process replaces this one. Zero if no process will.
    pub(crate) fn until_replaced(&self, now: Instant) -> Duration {
        self.replaced_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }
}
