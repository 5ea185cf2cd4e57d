//! Request/response load: all clients subscribe at the same time, and each receives one response.

use std::time::{Duration, Instant};

use super::pool::{ConnectionPool, Load, Message};
use crate::Error;

/// Maximum time for all responses.
const WITHIN: Duration = Duration::from_secs(30);
/// Number of requests between two polls for responses.
const BURST: usize = 64;

struct Answers {
    begin_ns: u64,
}

impl Load for Answers {
    fn message(&mut self, pool: &mut ConnectionPool, message: Message) {
        if message.head.is_none() || !message.clean {
            pool.audit.corrupt += 1;
        } else {
            pool.deliver(&message, self.begin_ns);
        }
    }
}

pub(super) fn run(pool: &mut ConnectionPool) -> Result<(), Error> {
    let before = pool.read_clocks();
    let begin = Instant::now();
    let mut load = Answers { begin_ns: pool.ns(begin) };
    let open = pool.open_ones();
    for some in open.chunks(BURST) {
        for number in some {
            pool.send(*number, &[]);
        }
        pool.turn(Some(Instant::now()), &mut load)?;
    }
    // The last answer can't arrive before all requests are sent.
    pool.outcome.asking = begin.elapsed();
    pool.audit.expected = open.len() as u64;
    pool.turn_while(WITHIN, &mut load, |pool, _| {
        pool.audit.delivered < pool.audit.expected && pool.audit.lost_connections == 0
    })?;
    let end = pool.read_clocks();
    pool.outcome.measured(&before, &end);
    let last = pool.outcome.latency.max();
    pool.outcome.last_of_each_ns.push(last.as_nanos() as u64);
    Ok(())
}
