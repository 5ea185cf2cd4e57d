//! Opens the connections of a generator, and waits for the other generators while heartbeats continue.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::pool::{ConnectionPool, Load};
use super::{Outcome, Progress};
use crate::Error;

/// Maximum time for connecting, in addition to the time that the rate needs.
const CONNECT_SLACK: Duration = Duration::from_secs(30);
/// Maximum number of connections in progress at once.
const CONNECTING_MAX: usize = 256;
/// Number of samples of the server's CPU and memory while connections are opened.
const OPENING_POINTS: usize = 20;

/// Waits until `connected` returns, while clients keep answering: opening half a million connections takes longer than
/// a server's timeout.
pub(super) fn meet(
    pool: &mut ConnectionPool,
    connected: &mut (impl FnMut(&Outcome) -> Result<(), Error> + Send),
) -> Result<(), Error> {
    let (waker, outcome) = (pool.waker(), pool.outcome.clone());
    let is_back = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let result = catch_unwind(AssertUnwindSafe(|| connected(&outcome)));
            // This is also done if a test panics.
            is_back.store(true, Ordering::Release);
            waker.wake();
            result
        });
        pool.untold(|pool| {
            while !is_back.load(Ordering::Acquire) {
                pool.turn(None, &mut Ignore)?;
            }
            Ok(())
        })?;
        waiting.join().and_then(|result| result).unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Opens all connections at the rate of the spec. Returns the samples.
pub(super) fn open_all(pool: &mut ConnectionPool, load: &mut impl Load) -> Result<Vec<Progress>, Error> {
    let total = pool.spec.connections;
    let every = Duration::from_secs_f64(1.0 / pool.spec.connect_rate_hz.max(1.0));
    let begin = Instant::now();
    let deadline = begin + every.mul_f64(total as f64) + CONNECT_SLACK;
    let mut next = begin;
    let begun = pool.read_clocks();
    let mut opening = vec![pool.progress(&begun, 0)];
    let step = total.div_ceil(OPENING_POINTS).max(1);
    loop {
        let now = Instant::now();
        let settled = pool.open() + pool.audit.lost_connections as usize;
        if settled == total || pool.open() >= opening.len() * step {
            opening.push(pool.progress(&begun, 0));
        }
        if settled == total {
            return Ok(opening);
        }
        if now > deadline {
            let why = pool.audit.first_loss.as_deref().unwrap_or_else(|| pool.awaited());
            let (open, within) = (pool.open(), begin.elapsed());
            return Err(Error::Generator(format!(
                "{open} of {total} connections opened within {within:.0?}; {why}"
            )));
        }
        let mut burst = 0;
        while next <= now && burst < 16 && pool.begun() < total && pool.begun() - settled < CONNECTING_MAX {
            pool.begin()?;
            next += every;
            burst += 1;
        }
        // If a slow server delays the schedule, no burst makes up for it.
        next = next.max(now - Duration::from_millis(5));
        let due = if pool.begun() < total { next } else { deadline };
        // Coarse waits are precise enough here and leave the core to the server's half of TCP.
        pool.turn(Some(due.max(now + Duration::from_micros(2_300))), load)?;
    }
}

/// A load that ignores all events.
pub(super) struct Ignore;

impl Load for Ignore {}
