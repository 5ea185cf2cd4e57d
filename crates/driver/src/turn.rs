//! State that the event loop and its kernel share: the clock, and the connections and their queue.

use crate::buffer::Buffers;
use crate::connection::{Connection, Phase};
use crate::slab::Slab;
use crate::wheel::Wheel;
use crate::{ConnId, Options, descriptors};
use std::collections::VecDeque;
use std::time::Instant;

/// The timers of a driver, and its other due times.
pub(crate) struct Clock {
    pub(crate) timers: Wheel<u64>,
    /// Timeouts of `finish`.
    pub(crate) lingers: Wheel<ConnId>,
    /// End of the pause of accepting after a failure.
    pub(crate) accept_again_at: Option<Instant>,
    /// `true` if the alarm may fire too late for one of the times above, and `wakes_at` may be too late as
    /// well.
    needs_alarm: bool,
    /// Time at which [`Clock::advance`] has work, or an earlier time.
    wakes_at: Option<Instant>,
}

impl Clock {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            timers: Wheel::new(now),
            lingers: Wheel::new(now),
            accept_again_at: None,
            needs_alarm: true,
            wakes_at: None,
        }
    }

    /// Returns the times at which [`Clock::advance`] has work.
    pub(crate) fn wakes(&self) -> [Option<Instant>; 3] {
        [self.timers.next_wake(), self.lingers.next_wake(), self.accept_again_at]
    }

    /// Records that the alarm has fired, or that an event is due earlier than before.
    #[inline]
    pub(crate) fn needs_alarm(&mut self) {
        self.needs_alarm = true;
    }

    /// Returns the time to which the alarm must be set. `None` if the alarm needn't fire earlier than
    /// planned, as in most turns, which then compare no times.
    #[inline]
    pub(crate) fn take_alarm(&mut self) -> Option<Instant> {
        if !std::mem::take(&mut self.needs_alarm) {
            return None;
        }
        self.wakes_at = self.wakes().into_iter().flatten().min();
        self.wakes_at
    }

    /// Advances the clock. In most turns no timer has been set and none is due, which costs one comparison.
    #[inline]
    pub(crate) fn advance(&mut self, now: Instant) {
        if self.needs_alarm || self.wakes_at.is_some_and(|at| at <= now) {
            self.advance_all(now);
        }
    }

    #[inline(never)]
    fn advance_all(&mut self, now: Instant) {
        self.accept_again_at = self.accept_again_at.filter(|at| *at > now);
        self.timers.advance(now);
        self.lingers.advance(now);
        self.wakes_at = self.wakes().into_iter().flatten().min();
    }
}

/// The state of one turn.
pub(crate) struct Turn<S> {
    pub(crate) now: Instant,
    pub(crate) connections: Slab<Connection<S>>,
    pub(crate) queue: VecDeque<ConnId>,
    /// Number of connections in the queue to step now: a part of those that belong to this turn.
    pub(crate) queue_left: usize,
    /// Number of connections to step after these in this turn.
    pub(crate) queue_later: usize,
    /// The connection that is being stepped.
    pub(crate) current: Option<ConnId>,
    pub(crate) accepts_left: usize,
    pub(crate) woken: bool,
    pub(crate) buffers: Buffers,
    pub(crate) options: Options,
}

impl<S> Turn<S> {
    /// # Panics
    /// If an option is below its minimum.
    pub(crate) fn new(options: &Options, now: Instant) -> Self {
        assert!(options.events_per_turn > 0 && options.accepts_per_turn > 0, "{options:?}");
        Self {
            now,
            connections: Slab::new(),
            queue: VecDeque::new(),
            queue_left: 0,
            queue_later: 0,
            current: None,
            accepts_left: 0,
            woken: false,
            buffers: Buffers::new(options.receive_buffer_bytes),
            options: Options {
                accepts_per_turn: descriptors::accepts_per_turn(options.accepts_per_turn),
                ..options.clone()
            },
        }
    }

    /// Returns the connection, if it is open for the caller: not while it is being finished.
    #[inline]
    pub(crate) fn open(&mut self, conn: ConnId) -> Option<&mut Connection<S>> {
        let connection = self.connections.get_mut(conn.0)?;
        (connection.state.phase != Phase::Finishing).then_some(connection)
    }

    /// Defers all but the first part of the connections to step: a kernel reads a part ahead, and holds the
    /// data that its connections have received.
    #[cold]
    pub(crate) fn divide(&mut self) {
        let all = self.queue_left;
        self.queue_left = all.min(self.options.events_per_turn);
        self.queue_later = all - self.queue_left;
    }

    /// Queues a connection unless it is queued already.
    #[inline]
    pub(crate) fn enqueue(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(conn.0)
            && !std::mem::replace(&mut connection.state.queued, true)
        {
            self.queue.push_back(conn);
        }
    }
}
