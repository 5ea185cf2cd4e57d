//! Everybody asks for one thing at once, and is answered once.

use std::time::{Duration, Instant};

use super::pool::{ConnectionPool, Load, Message};
use super::{Latencies, Outcome};
use crate::Error;

/// How long the answers may take.
const WITHIN: Duration = Duration::from_secs(30);
/// Questions between two looks at what has come.
const BURST: usize = 64;

struct Answers {
    begin_ns: u64,
    latency: Latencies,
    arrived: u64,
}

impl Load for Answers {
    fn message(&mut self, pool: &mut ConnectionPool, message: Message) {
        if message.head.is_none() || !message.clean {
            pool.audit.corrupt += 1;
            return;
        }
        self.arrived += 1;
        self.latency.record_ns(message.at_ns.saturating_sub(self.begin_ns));
    }
}

pub(super) fn run(pool: &mut ConnectionPool, outcome: &mut Outcome) -> Result<(), Error> {
    let before = pool.read_clocks();
    let begin = Instant::now();
    let mut load = Answers { begin_ns: pool.ns(begin), latency: Latencies::new(), arrived: 0 };
    let open = pool.open_ones();
    for some in open.chunks(BURST) {
        for number in some {
            pool.ask(*number);
        }
        pool.turn(Some(Instant::now()), &mut load)?;
    }
    // Asking took so long: what the last one's answer can't be faster by.
    outcome.asking = begin.elapsed();
    pool.turn_while(WITHIN, &mut load, |pool, load| {
        load.arrived < open.len() as u64 && pool.audit.lost_connections == 0
    })?;
    outcome.load = before.until(&pool.read_clocks());
    outcome.messages = load.arrived;
    outcome.last_of_each_ns.push(load.latency.max().as_nanos() as u64);
    outcome.latency = load.latency;
    pool.audit.expected = open.len() as u64;
    pool.audit.delivered = load.arrived;
    Ok(())
}
