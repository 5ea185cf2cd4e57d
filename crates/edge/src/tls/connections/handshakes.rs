//! The unfinished handshakes of a core: their number, their deadlines and their turns.

use crate::ports::SignatureWork;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use stentor_driver::{ConnId, Driver};

/// CPU time for answers of handshakes in a turn, over all connections. The last one may take longer.
pub(super) const HANDSHAKES_PER_TURN: Duration = Duration::from_millis(4);

pub(super) struct Handshakes {
    max: usize,
    timeout: Duration,
    /// The token of the timer.
    timer: u64,
    has_timer: bool,
    /// Number of unfinished handshakes.
    unfinished: usize,
    /// Deadlines, in order. Entries of completed handshakes are ignored.
    deadlines: VecDeque<(Instant, ConnId)>,
    /// Connections whose handshakes wait for a later turn.
    waiting: VecDeque<ConnId>,
    /// Time for handshakes that this turn has left.
    work: SignatureWork,
}

impl Handshakes {
    pub(super) fn new(max: usize, timeout: Duration, timer: u64) -> Self {
        Self {
            max,
            timeout,
            timer,
            has_timer: false,
            unfinished: 0,
            deadlines: VecDeque::new(),
            waiting: VecDeque::new(),
            work: SignatureWork::new(HANDSHAKES_PER_TURN),
        }
    }

    /// Takes the connection with the oldest handshake that must end before another one begins.
    pub(super) fn pop_excess(&mut self) -> Option<ConnId> {
        if self.unfinished < self.max { None } else { self.pop_deadline() }
    }

    pub(super) fn begin(&mut self, now: Instant, conn: ConnId) {
        self.unfinished += 1;
        self.deadlines.push_back((now + self.timeout, conn));
    }

    /// Records that a handshake is complete, or has failed.
    pub(super) fn end(&mut self) {
        self.unfinished -= 1;
    }

    /// Returns the connection with the first deadline.
    pub(super) fn first_deadline(&self) -> Option<ConnId> {
        self.deadlines.front().map(|(_, conn)| *conn)
    }

    pub(super) fn pop_deadline(&mut self) -> Option<ConnId> {
        self.deadlines.pop_front().map(|(_, conn)| conn)
    }

    /// Takes a connection whose deadline has passed.
    pub(super) fn pop_late(&mut self, now: Instant) -> Option<ConnId> {
        self.deadlines.front().filter(|(at, _)| *at <= now)?;
        self.pop_deadline()
    }

    /// Sets the timer for the first deadline, unless it is set.
    pub(super) fn set_timer<D: Driver>(&mut self, driver: &mut D) {
        if let Some((at, _)) = self.deadlines.front()
            && !std::mem::replace(&mut self.has_timer, true)
        {
            driver.timer_set(*at, self.timer);
        }
    }

    pub(super) fn is_timer(&self, timer: u64) -> bool {
        timer == self.timer
    }

    /// Records that the timer is no longer set.
    pub(super) fn end_timer(&mut self) {
        self.has_timer = false;
    }

    /// Adds a connection to those that wait for a turn. One that has already waited goes to the front.
    pub(super) fn wait(&mut self, conn: ConnId, has_waited: bool) {
        if has_waited {
            self.waiting.push_front(conn);
        } else {
            self.waiting.push_back(conn);
        }
    }

    /// Takes the next waiting connection, if this turn has time left for it.
    pub(super) fn next(&mut self) -> Option<ConnId> {
        if self.has_time() { self.waiting.pop_front() } else { None }
    }

    /// Begins a turn. Returns `true` if connections wait.
    pub(super) fn begin_turn(&mut self) -> bool {
        self.work = SignatureWork::new(HANDSHAKES_PER_TURN);
        !self.waiting.is_empty()
    }

    /// Returns `true` if this turn has time left.
    pub(super) fn has_time(&self) -> bool {
        self.work.is_left()
    }

    /// Records the CPU time of an answer.
    pub(super) fn spend(&mut self, time: Duration) {
        self.work.add(time);
    }
}
