//! Searches for the largest number of clients that a server keeps up to date.
//!
//! Each level is a fresh process with this number of clients. It fails on any disconnect, when less than 99.9 % arrived, when the
//! 99th percentile of the age exceeds the period, or when memory still grows by more than 1 % in 10 s. Levels double until one
//! fails; from then on, the interval is halved. The reported run is that of the largest level that passed. A level that fails only
//! because of the generator ends the search with a lower bound.

use std::collections::BTreeMap;
use std::fmt;

use super::disturbance::steal_doubt;
use super::running::{Ran, run_server};
use super::sampler::growth_percent_per_10_s;
use super::trial::{Trial, judge};
use super::{Case, Contestant, Curve, Metric, Options};
use crate::Error;
use crate::generator::{FanoutPlan, LoadSpec};

/// Minimum share of delivered messages in a level that passes.
const DELIVERED_MIN: f64 = 0.999;
/// Maximum growth of memory, in percent per 10 s.
const GROWTH_MAX: f64 = 1.0;
/// Above this share of its core, the generator may be the reason why a level fails.
const GENERATOR_SHARE_MAX: f64 = 0.95;
/// Maximum number of levels of one search.
const LEVELS_MAX: usize = 24;

/// The state of a search, which doubles the level and then bisects.
#[derive(Clone, Copy, Debug)]
struct Search {
    first: usize,
    most: usize,
    within: f64,
    /// The largest level that succeeded.
    held: usize,
    /// The smallest level that failed.
    failed: Option<usize>,
}

impl Search {
    /// The next level. `None` if the search is over.
    fn next(&self) -> Option<usize> {
        let next = match self.failed {
            None if self.held == 0 => self.first.min(self.most),
            None => (self.held * 2).min(self.most),
            Some(failed) if ((failed - self.held) as f64) <= failed as f64 * self.within => self.held,
            Some(failed) => usize::midpoint(self.held, failed),
        };
        (next > self.held).then_some(next)
    }

    fn learn(&mut self, level: usize, holds: bool) {
        if holds {
            self.held = level;
        } else {
            self.failed = Some(level);
        }
    }
}

/// The level that ended a search.
struct Failure {
    level: usize,
    what: String,
    /// The reason if the generator or the machine caused the failure. The result is then a lower bound.
    excuse: Option<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, what, excuse } = self;
        match excuse {
            Some(excuse) => write!(f, "a lower bound; {level}: {what}, but {excuse}"),
            None => write!(f, "{level}: {what}"),
        }
    }
}

/// The reason why a level failed, or `None` if it succeeded.
fn failure(level: usize, ran: &Ran, rate_hz: f64) -> Option<Failure> {
    let outcome = &ran.outcome;
    let audit = &outcome.audit;
    let share = audit.delivered as f64 / audit.expected.max(1) as f64;
    let p99 = outcome.latency.percentile(99.0).as_secs_f64();
    let growth = growth_percent_per_10_s(&ran.samples);
    let wrong = audit.repeated + audit.wrong_length + audit.corrupt;
    let what = if audit.lost_connections > 0 {
        format!("{} disconnected", audit.lost_connections)
    } else if wrong > 0 {
        format!("{wrong} messages were wrong")
    } else if share < DELIVERED_MIN {
        format!("{:.1} % delivered", share * 100.0)
    } else if p99 > 1.0 / rate_hz {
        format!("p99 of the age {:.0} ms", p99 * 1e3)
    } else if growth > GROWTH_MAX {
        format!("memory grows by {growth:.1} % in 10 s")
    } else {
        return None;
    };
    let own = outcome.load.own_share();
    let busy = format!("the generator used {:.0} % of its core", own * 100.0);
    let excuse =
        steal_doubt(ran.steal_share).map(|doubt| doubt.what).or((own > GENERATOR_SHARE_MAX).then_some(busy));
    Some(Failure { level, what, excuse })
}

/// Searches, and returns the trial of the best level.
pub(super) fn run(
    case: &Case,
    contestant: &Contestant,
    (first, within): (usize, f64),
    options: &Options,
) -> Result<Trial, Error> {
    let LoadSpec::Fanout(FanoutPlan { rate_hz, .. }) = case.load else {
        return Err(Error::Usage(format!("{} is no search", case.name)));
    };
    let most = case.connections.min(contestant.holds());
    let mut search = Search { first, most, within, held: 0, failed: None };
    let mut best: Option<Ran> = None;
    let mut ended: Option<Failure> = None;
    let mut levels = 0;
    let (mut ages, mut memory) = (Vec::new(), Vec::new());
    while let Some(level) = search.next()
        && levels < LEVELS_MAX
    {
        levels += 1;
        match run_server(contestant, &Case { connections: level, ..case.clone() }, options) {
            Ok(ran) => {
                let peak = ran.samples.iter().map(|sample| sample.resident_bytes + sample.memfd_bytes).max();
                ages.push((level as f64, ran.outcome.latency.percentile(99.0).as_secs_f64() * 1e3));
                memory.extend(peak.map(|bytes| (level as f64, bytes as f64 / 1e6)));
                let failed = failure(level, &ran, rate_hz);
                search.learn(level, failed.is_none());
                match failed {
                    None => best = Some(ran),
                    why => ended = why,
                }
            }
            // The server ended, or too many clients couldn't connect.
            Err(Error::Server { what, .. }) if search.held > 0 => {
                search.learn(level, false);
                let first = what.lines().next().unwrap_or_default().to_owned();
                ended = Some(Failure { level, what: first, excuse: None });
            }
            Err(error) => return Err(error),
        }
    }
    let Some(ran) = best else {
        let why = ended.map_or("no level was tried".to_owned(), |failure| failure.to_string());
        return Err(Error::Server { name: contestant.name().to_owned(), what: why });
    };
    let outcome = &ran.outcome;
    let megabytes = outcome.received_bytes as f64 / 1e6;
    let mut context = BTreeMap::from([
        ("levels".to_owned(), levels as f64),
        ("memory at first MB".to_owned(), ran.before.private_bytes as f64 / 1e6),
        ("oldest ms".to_owned(), outcome.latency.max().as_secs_f64() * 1e3),
    ]);
    if megabytes > 0.0 {
        context.insert("CPU ms/MB".to_owned(), outcome.load.server_cpu.as_secs_f64() * 1e3 / megabytes);
    }
    let figures = BTreeMap::from([(Metric::Clients, search.held as f64)]);
    let reached = search.held == most;
    let is_bound = reached || ended.as_ref().is_some_and(|failure| failure.excuse.is_some());
    let begun = Trial { figures, context, ..Trial::default() };
    let mut trial = judge(case, ran, begun);
    // The generator's lag invalidates the times of a level, but its success is known from the deliveries.
    trial.unmeasured = if reached { None } else { ended.map(|why| format!("it ended at {why}")) };
    trial.bounds.extend(is_bound.then_some(Metric::Clients));
    for (curve, mut points) in [(Curve::AgeOverClients, ages), (Curve::MemoryOverConnections, memory)] {
        points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        trial.curves.insert(curve, points);
    }
    Ok(trial)
}

#[cfg(test)]
mod tests;
