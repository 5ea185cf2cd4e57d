//! Everybody's connection is cut at once, and everybody comes back at once, as when a proxy is started again: nobody waits
//! before trying, so it is the worst that can come. Then one publishes to all, so that it is seen that all are in the room again.
//!
//! Each connection is timed from its own begin until it is open (joined, where the protocol has that); the whole from the cut.
//! A connection that fails on its way back isn't tried again, and counts as lost.

use std::time::{Duration, Instant};

use super::fanout::{self, Plan};
use super::pool::{ConnectionPool, Load};
use super::run::meet;
use super::{Cut, Outcome, Publisher};
use crate::Error;
use crate::payload;

/// How long they may take.
const WITHIN: Duration = Duration::from_secs(60);
/// How long a message may take to everybody's kernel, before they are closed with it unread.
const UNREAD_WITHIN: Duration = Duration::from_secs(1);
/// The publications afterwards: a second, in all, and before those that are measured.
const RATE_HZ: f64 = 2.0;
const COUNT: u64 = 3;
const WARM_UP: u64 = 1;

struct ComingBack {
    begun: Vec<Instant>,
    back: usize,
}

impl Load for ComingBack {
    fn opened(&mut self, pool: &mut ConnectionPool, number: usize) {
        self.back += 1;
        pool.outcome.back.record_ns(self.begun[number].elapsed().as_nanos() as u64);
    }
}

/// What it costs to come back is in `connect`, `back_in` and `back`, the publication in what a fan-out fills.
/// `connected` returns when all generators' clients are back; until then clients answer.
pub(super) fn run(
    pool: &mut ConnectionPool,
    cut: Cut,
    bytes: usize,
    publisher: Publisher,
    connected: &mut (impl FnMut(&Outcome) -> Result<(), Error> + Send),
) -> Result<(), Error> {
    let there = pool.open_ones();
    let mut load = ComingBack { begun: vec![Instant::now(); pool.begun()], back: 0 };
    if cut == Cut::Reset {
        there.iter().for_each(|number| pool.pause(*number));
        if let Some(last) = there.last() {
            pool.send_now(*last, &mut payload::blank(bytes));
        }
        pool.turn_for(UNREAD_WITHIN, &mut load)?;
    }
    let before = pool.read_clocks();
    let begin = Instant::now();
    there.iter().for_each(|number| pool.cut(*number));
    pool.bring_back(&there, &mut load, |load, number| load.begun[number] = Instant::now())?;
    pool.outcome.asking = begin.elapsed();
    let is_missing = |pool: &ConnectionPool, load: &ComingBack| {
        load.back + (pool.audit.lost_connections as usize) < there.len()
    };
    pool.turn_while(WITHIN, &mut load, is_missing)?;
    pool.outcome.back_in = begin.elapsed();
    pool.outcome.connect = before.until(&pool.read_clocks());
    pool.outcome.connections = load.back as u64;
    if is_missing(pool, &load) {
        let (back, within) = (load.back, pool.outcome.back_in);
        return Err(Error::Generator(format!(
            "{back} of {} connections came back in {within:.1?}",
            there.len()
        )));
    }
    meet(pool, connected)?;
    // What the server has to put away belongs to the storm's aftermath, not to the publication.
    pool.turn_for(pool.spec.idle, &mut load)?;
    let plan = Plan { bytes, rate_hz: RATE_HZ, warm_up: WARM_UP, count: COUNT, publisher };
    fanout::run(pool, plan)
}
