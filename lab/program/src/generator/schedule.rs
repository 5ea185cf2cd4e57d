//! The measured span of a load, and messages at a fixed rate independent of answers: message n is due at `begin + n / rate`.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::outcome::Reading;
use super::pool::{ConnectionPool, Load};
use crate::Error;

/// Number of messages sent between two polls.
const BURST: usize = 32;
/// Maximum wait of a loop if nothing is due.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A warm-up and a measurement, with the clocks read at both ends of the measurement.
pub(super) struct Window {
    begin: Instant,
    from: Instant,
    until: Instant,
    /// Intended times within the measurement.
    pub(super) ns: Range<u64>,
    first: Option<Reading>,
    is_over: bool,
}

impl Window {
    pub(super) fn new(pool: &ConnectionPool, begin: Instant, warm_up: Duration, measure: Duration) -> Self {
        let from = begin + warm_up;
        let until = from + measure;
        Self { begin, from, until, ns: pool.ns(from)..pool.ns(until), first: None, is_over: false }
    }

    /// Reads the clocks when due. Returns `true` if the measurement is over.
    pub(super) fn look(&mut self, pool: &mut ConnectionPool, now: Instant) -> bool {
        match &self.first {
            None if now >= self.from => self.first = Some(pool.read_clocks()),
            Some(first) if !self.is_over && now >= self.until => {
                let end = pool.read_clocks();
                pool.outcome.measured(first, &end);
                self.is_over = true;
            }
            _ => {}
        }
        self.is_over
    }

    /// The time at which waiting for missing messages ends.
    pub(super) fn deadline(&self, pool: &ConnectionPool) -> Instant {
        self.until + pool.spec.late
    }
}

/// Calls `send` with the number and the intended time of each message when it is due. Each measured message is expected
/// `copies` times.
pub(super) fn run_open<L: Load>(
    pool: &mut ConnectionPool,
    load: &mut L,
    mut window: Window,
    rate_hz: f64,
    copies: u64,
    mut send: impl FnMut(&mut ConnectionPool, u64, u64),
) -> Result<(), Error> {
    let total = ((window.until - window.begin).as_secs_f64() * rate_hz) as u64;
    let begin = window.begin;
    let due_of = |nth: u64| begin + Duration::from_secs_f64(nth as f64 / rate_hz);
    let deadline = window.deadline(pool);
    let mut sent = 0;
    loop {
        let mut now = Instant::now();
        let is_measured = window.look(pool, now);
        for _ in 0..BURST {
            let due = due_of(sent);
            if sent == total || due > now {
                break;
            }
            let intended_ns = pool.ns(due);
            if window.ns.contains(&intended_ns) {
                pool.audit.expected += copies;
                pool.outcome.lag.record_ns(now.duration_since(due).as_nanos() as u64);
            }
            send(pool, sent, intended_ns);
            sent += 1;
            now = Instant::now();
        }
        let settled = pool.audit.accounted() >= pool.audit.expected;
        if sent == total && is_measured && settled || now > deadline {
            return Ok(());
        }
        pool.turn(Some(if sent < total { due_of(sent) } else { now + LOOK_EVERY }), load)?;
    }
}
