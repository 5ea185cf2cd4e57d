//! All connections are cut at once and all clients reconnect at once, as after the restart of a proxy. No client waits
//! before its attempt, so it is the worst case. Then one client publishes to all, which shows that all have joined the
//! room again.
//!
//! Each connection is timed from its own start until it is open (and joined, if the protocol has that). The whole time
//! counts from the disconnection. A connection that fails isn't tried again and counts as lost.

use std::time::{Duration, Instant};

use super::fanout;
use super::opening::meet;
use super::pool::{ConnectionPool, Load};
use super::{Cut, FanoutPlan, Outcome, Publisher};
use crate::Error;
use crate::payload;

/// Maximum time for all clients to reconnect.
const WITHIN: Duration = Duration::from_secs(60);
/// Maximum time for a message to reach all kernels, before the connections are closed with the message unread.
const UNREAD_WITHIN: Duration = Duration::from_secs(1);
/// The publications afterwards: their rate, the number of measured ones, and the number before the measurement.
const RATE_HZ: f64 = 2.0;
const COUNT: u64 = 3;
const WARM_UP: u64 = 1;

struct ComingBack {
    begun: Vec<Instant>,
}

impl Load for ComingBack {
    fn opened(&mut self, pool: &mut ConnectionPool, number: usize) {
        pool.outcome.back.record_ns(self.begun[number].elapsed().as_nanos() as u64);
    }
}

/// Runs the load. The costs of reconnecting are in `connect`, `back_in` and `back`. The publications fill the fields of
/// a fan-out. `connected` returns when all generators' clients have reconnected. Until then, clients answer pings.
pub(super) fn run(
    pool: &mut ConnectionPool,
    cut: Cut,
    bytes: usize,
    publisher: Publisher,
    connected: &mut (impl FnMut(&Outcome) -> Result<(), Error> + Send),
) -> Result<(), Error> {
    let there = pool.open_ones();
    let mut load = ComingBack { begun: vec![Instant::now(); pool.begun()] };
    if cut == Cut::Reset {
        there.iter().for_each(|number| pool.pause(*number));
        if let Some(last) = there.last() {
            pool.send_now(*last, &mut payload::blank(bytes));
        }
        pool.turn_for(UNREAD_WITHIN, &mut load)?;
    }
    let before = pool.read_clocks();
    let [asking, back_in] =
        pool.restart(WITHIN, &mut load, |load, number| load.begun[number] = Instant::now())?;
    (pool.outcome.asking, pool.outcome.back_in) = (asking, back_in);
    pool.outcome.connect = before.until(&pool.read_clocks());
    pool.outcome.connections = pool.open() as u64;
    meet(pool, connected)?;
    // The server's work after the storm isn't part of the publications.
    pool.turn_for(pool.spec.idle, &mut load)?;
    let plan = FanoutPlan { bytes, rate_hz: RATE_HZ, warm_up: WARM_UP, count: COUNT, publisher };
    fanout::run(pool, plan)
}
