//! The heartbeat of a worker: when a ping is due, and whether the worker responds.
//!
//! A worker answers pings within its event loop. An acknowledgement may take longer, because a frame isn't handled while one of its sessions
//! is being resumed. So a worker responds as long as it sends frames or pongs, and a frame that isn't acknowledged soon causes a ping.

use std::time::{Duration, Instant};

/// Pings in the time after which a worker has crashed.
const PINGS: u32 = 3;
/// Time after a frame at which a ping follows, if nothing has arrived.
const CHECK_DELAY: Duration = Duration::from_millis(100);
/// Time after a frame or a ping at which a worker doesn't respond, if nothing has arrived. As long as the time in which a worker reports a
/// disconnected socket for recovery.
const RESPONSE_TIME: Duration = Duration::from_millis(250);

pub(crate) struct Heartbeat {
    /// Time without a frame or a pong after which the worker has crashed.
    timeout: Duration,
    /// Time of the last frame or pong, or of the last call of [`Self::keep`].
    heard_at: Instant,
    ping_at: Instant,
    is_ping_due: bool,
    /// The end of the time in which the worker has to answer. `None`: no answer is expected.
    answer_by: Option<Instant>,
    /// `false` from the end of that time to the next frame or pong.
    pub(crate) responds: bool,
}

impl Heartbeat {
    pub(crate) fn new(now: Instant, timeout: Duration) -> Self {
        let ping_at = now + timeout / PINGS;
        Self { timeout, heard_at: now, ping_at, is_ping_due: false, answer_by: None, responds: true }
    }

    /// Time of the last frame or pong, unless the worker isn't read.
    pub(crate) fn heard_at(&self) -> Instant {
        self.heard_at
    }

    /// A frame or a pong has arrived.
    pub(crate) fn handle_arrival(&mut self, now: Instant) {
        *self = Self::new(now, self.timeout);
    }

    /// Frames and pongs of the worker aren't read, so it may be silent. It is pinged as before, and doesn't respond until it is read again.
    pub(crate) fn keep(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// A frame was transmitted that the worker has to acknowledge, or one before isn't acknowledged yet.
    pub(crate) fn expect_acknowledgement(&mut self, now: Instant) {
        if self.answer_by.is_none() && self.responds {
            self.answer_by = Some(now + RESPONSE_TIME);
            self.ping_at = self.ping_at.min(now + CHECK_DELAY);
        }
    }

    /// `true` if the worker has been silent for so long that it has crashed.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now >= self.heard_at + self.timeout
    }

    /// Checks what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if now >= self.ping_at {
            self.is_ping_due = true;
            self.ping_at = now + self.timeout / PINGS;
        }
        if self.answer_by.is_some_and(|at| now >= at) {
            (self.answer_by, self.responds) = (None, false);
        }
    }

    /// Returns `true` if a ping is transmitted now.
    pub(crate) fn poll_ping(&mut self, now: Instant) -> bool {
        let is_due = std::mem::take(&mut self.is_ping_due);
        if is_due && self.responds {
            self.answer_by.get_or_insert(now + RESPONSE_TIME);
        }
        is_due
    }

    /// The time at which [`Self::handle_timeout`] has something to do, or [`Self::is_over`].
    pub(crate) fn poll_timeout(&self) -> Instant {
        let over_at = self.heard_at + self.timeout;
        self.answer_by.map_or(over_at, |at| at.min(over_at)).min(self.ping_at)
    }
}
