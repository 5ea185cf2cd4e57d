//! Connections that come, shake hands, and go.

use std::time::{Duration, Instant};

use stentor_driver::Driver;

use super::Outcome;
use super::fleet::{Fleet, Load};
use crate::Error;

/// How long the last ones may take beyond what the rate needs.
const SLACK: Duration = Duration::from_secs(30);

struct Churn {
    done: usize,
}

impl<D: Driver> Load<D> for Churn {
    fn opened(&mut self, fleet: &mut Fleet<D>, number: usize) {
        fleet.leave(number, self);
    }

    fn lost(&mut self, _fleet: &mut Fleet<D>, _number: usize) {
        self.done += 1;
    }
}

/// `total` connections at the spec's rate; `outcome.connect` and `outcome.connections` tell what they cost.
pub(super) fn run<D: Driver>(fleet: &mut Fleet<D>, total: usize, outcome: &mut Outcome) -> Result<(), Error> {
    let idle = fleet.read_clocks();
    let mut churn = Churn { done: 0 };
    fleet.turn_for(fleet.spec.idle, &mut churn)?;
    let begun = fleet.read_clocks();
    outcome.idle = idle.until(&begun);

    let every = Duration::from_secs_f64(1.0 / fleet.spec.connect_rate_hz.max(1.0));
    let begin = Instant::now();
    let deadline = begin + every.mul_f64(total as f64) + SLACK;
    let mut next = begin;
    while churn.done < total {
        let now = Instant::now();
        if now > deadline {
            return Err(Error::Generator(format!("{} of {total} connections went through", churn.done)));
        }
        while next <= now && fleet.begun() < total && fleet.begun() - churn.done < fleet.spec.connecting_max {
            outcome.lag.record_ns(now.duration_since(next).as_nanos() as u64);
            fleet.begin()?;
            next += every;
        }
        next = next.max(now - Duration::from_millis(5));
        let due = if fleet.begun() < total { next } else { deadline };
        fleet.turn(Some(due), &mut churn)?;
    }
    // The server's half of the last goodbyes.
    fleet.turn_for(Duration::from_millis(200), &mut churn)?;
    outcome.connect = begun.until(&fleet.read_clocks());
    outcome.connections = total as u64 - fleet.audit.lost_connections;
    Ok(())
}
