//! Connections that come, shake hands, and go.

use std::time::{Duration, Instant};

use stentor_driver::Driver;

use super::Outcome;
use super::pool::{ConnectionPool, Load};
use crate::Error;

/// How long the last ones may take beyond what the rate needs.
const SLACK: Duration = Duration::from_secs(30);

struct Churn {
    done: usize,
}

impl<D: Driver> Load<D> for Churn {
    fn opened(&mut self, pool: &mut ConnectionPool<D>, number: usize) {
        pool.leave(number, self);
    }

    fn lost(&mut self, _fleet: &mut ConnectionPool<D>, _number: usize) {
        self.done += 1;
    }
}

/// `total` connections at the spec's rate; `outcome.connect` and `outcome.connections` tell what they cost.
pub(super) fn run<D: Driver>(
    pool: &mut ConnectionPool<D>,
    total: usize,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    let idle = pool.read_clocks();
    let mut churn = Churn { done: 0 };
    pool.turn_for(pool.spec.idle, &mut churn)?;
    let begun = pool.read_clocks();
    outcome.idle = idle.until(&begun);

    let every = Duration::from_secs_f64(1.0 / pool.spec.connect_rate_hz.max(1.0));
    let begin = Instant::now();
    let deadline = begin + every.mul_f64(total as f64) + SLACK;
    let mut next = begin;
    while churn.done < total {
        let now = Instant::now();
        if now > deadline {
            return Err(Error::Generator(format!("{} of {total} connections went through", churn.done)));
        }
        while next <= now && pool.begun() < total && pool.begun() - churn.done < pool.spec.connecting_max {
            outcome.lag.record_ns(now.duration_since(next).as_nanos() as u64);
            pool.begin()?;
            next += every;
        }
        next = next.max(now - Duration::from_millis(5));
        let due = if pool.begun() < total { next } else { deadline };
        pool.turn(Some(due), &mut churn)?;
    }
    // The server's half of the last goodbyes.
    pool.turn_for(Duration::from_millis(200), &mut churn)?;
    outcome.connect = begun.until(&pool.read_clocks());
    outcome.connections = total as u64 - pool.audit.lost_connections;
    Ok(())
}
