//! One connection publishes, and all receive.
//!
//! Publication n is due at `begin + n / rate`. The measured ones are `warm_up .. warm_up + count`. The span of the clocks begins
//! just before the first of them is sent and ends when the one after the last would be due, so it covers whole periods. If the
//! server publishes by itself, the first publication received defines `begin`.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Publisher;
use super::outcome::Reading;
use super::pool::{ConnectionPool, Load, Message};
use crate::Error;
use crate::document::{self, Document};
use crate::payload;

/// Time before a publication of the server at which the clocks are read. Waits are coarse then, so that the upstream on
/// the generator's core isn't delayed.
const READ_EARLY: Duration = Duration::from_millis(5);
/// Above this time, the driver waits. Below, it polls.
const COARSE: Duration = Duration::from_micros(2_300);
/// Maximum time to wait for a publisher in another process to start.
const BEGIN_WITHIN: Duration = Duration::from_secs(30);
/// Time within which a publication is delivered in time although the next one is due. Above 100 publications a second they
/// overlap whenever a process waits for a core, and the server keeps up nevertheless.
const IN_TIME: Duration = Duration::from_millis(10);

/// One connection publishes, all receive.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FanoutPlan {
    /// Payload size.
    pub bytes: usize,
    /// Publications per second.
    pub rate_hz: f64,
    /// Number of publications before the measurement.
    pub warm_up: u64,
    /// Number of measured publications.
    pub count: u64,
    /// The publisher.
    #[serde(default)]
    pub publisher: Publisher,
}

impl FanoutPlan {
    fn measures(&self, sequence: u64) -> bool {
        (self.warm_up..self.warm_up + self.count).contains(&sequence)
    }

    fn total(&self) -> u64 {
        self.warm_up + self.count
    }

    fn period(&self) -> Duration {
        Duration::from_secs_f64(1.0 / self.rate_hz)
    }
}

/// Returns `true` if a publication reached its last receiver too late: it took longer than a period and than [`IN_TIME`].
fn is_late(took: Duration, period: Duration) -> bool {
    took > period.max(IN_TIME)
}

struct Receiving {
    plan: FanoutPlan,
    /// The latencies of the receivers of each measured publication, in nanoseconds.
    each_ns: Vec<Vec<u64>>,
    /// Number of deliveries of the last publication.
    of_final: usize,
    /// Time at which publication 0 was due, in nanoseconds of CLOCK_MONOTONIC, according to the first publication
    /// received.
    begin_ns: Option<u64>,
}

impl Load for Receiving {
    fn message(&mut self, pool: &mut ConnectionPool, message: Message) {
        let plan = self.plan;
        let Some(head) = pool.check(&message, plan.bytes, |sequence| plan.measures(sequence)) else {
            return;
        };
        if self.begin_ns.is_none() {
            let since = plan.period().mul_f64(head.sequence as f64);
            self.begin_ns = Some(head.intended_ns.saturating_sub(since.as_nanos() as u64));
        }
        self.of_final += usize::from(head.sequence + 1 == plan.total());
        if plan.measures(head.sequence) {
            if pool.spec.entry.is_some() && message.number + 1 == pool.spec.connections {
                // The publisher's own copy doesn't come from another node.
                pool.audit.delivered += 1;
                return;
            }
            pool.deliver(&message, head.intended_ns);
            let each_ns = &mut self.each_ns[(head.sequence - plan.warm_up) as usize];
            each_ns.push(message.at_ns.saturating_sub(head.intended_ns));
        }
    }
}

/// The schedule of publications. If this process publishes, it sends each one when it is due. It also reads the clocks.
#[derive(Default)]
struct Publishing {
    /// The connection that publishes. `None` if the server publishes.
    publisher: Option<usize>,
    payload: Vec<u8>,
    /// Due time of the first publication. `None` while it is unknown.
    begin: Option<Instant>,
    /// Number of publications due so far.
    sent: u64,
    /// The clocks before the first measured publication.
    first: Option<Reading>,
    /// `true` once the publication after the last measured one is due.
    is_over: bool,
    /// Number of slice ends so far, including the start of the first slice, and the clocks at the last of them.
    cuts: u64,
    cut: Option<Reading>,
}

pub(super) fn run(pool: &mut ConnectionPool, mut plan: FanoutPlan) -> Result<(), Error> {
    let payload = match pool.spec.deflate {
        // Padding would be compressed to almost nothing.
        true => document::excerpt(plan.bytes),
        false => payload::blank(plan.bytes),
    };
    plan.bytes = match pool.spec.document {
        Some(shape) => Document::new(shape).text().len(),
        None => payload.len(),
    };
    if pool.open() == 0 || plan.rate_hz <= 0.0 || plan.count == 0 {
        return Err(Error::Generator("a fan-out needs connections, a rate and a count".into()));
    }
    pool.expect_from_zero();
    let readers = pool.open();
    let mut load =
        Receiving { plan, each_ns: vec![Vec::new(); plan.count as usize], of_final: 0, begin_ns: None };
    let period = plan.period();
    let lasts = period.mul_f64(plan.total() as f64);
    let mut deadline = Instant::now() + lasts + pool.spec.late + BEGIN_WITHIN;
    let mut publishing = match plan.publisher {
        Publisher::Own => {
            let begin = Instant::now() + Duration::from_millis(50);
            deadline = begin + lasts + pool.spec.late;
            let publisher = pool.open_ones().pop();
            Some(Publishing { publisher, begin: Some(begin), payload, ..Publishing::default() })
        }
        Publisher::Server => Some(Publishing { payload, ..Publishing::default() }),
        Publisher::Elsewhere => None,
    };
    let follower_begin = pool.read_clocks();
    loop {
        let now = Instant::now();
        let due = match &mut publishing {
            Some(publishing) => publishing.step(pool, &load, now),
            None => None,
        };
        let over =
            load.of_final >= readers && publishing.as_ref().is_none_or(|publishing| publishing.is_over);
        if over || now > deadline {
            break;
        }
        if pool.open() == 0 {
            let why = pool.audit.first_loss.as_deref().unwrap_or("no reason known");
            return Err(Error::Generator(format!("all connections were lost; {why}")));
        }
        pool.turn(Some(due.unwrap_or(deadline).min(now + Duration::from_millis(50))), &mut load)?;
    }
    match publishing {
        Some(publishing) if publishing.is_over => {}
        Some(_) => return Err(Error::Generator("the publications were not finished in time".into())),
        None => {
            pool.outcome.load = follower_begin.until(&pool.read_clocks());
            pool.outcome.messages = pool.audit.delivered;
        }
    }
    for mut ns in load.each_ns {
        ns.sort_unstable();
        let last_ns = ns.last().copied().unwrap_or(0);
        let p99_ns = ns.get(ns.len() * 99 / 100).copied().unwrap_or(0);
        pool.outcome.p99_of_each_ns.push(p99_ns);
        pool.outcome.last_of_each_ns.push(last_ns);
        pool.outcome.overlapping += u64::from(is_late(Duration::from_nanos(last_ns), period));
    }
    pool.audit.expected = readers as u64 * plan.count;
    Ok(())
}

impl Publishing {
    /// Time at which the next slice begins, or the last one ends.
    fn next_cut(&self, plan: &FanoutPlan, slices: u32) -> Option<Instant> {
        let slices = u64::from(slices);
        if slices == 0 || self.cuts > slices * plan.count {
            return None;
        }
        let periods = plan.warm_up as f64 + self.cuts as f64 / slices as f64;
        Some(self.begin? + plan.period().mul_f64(periods))
    }

    /// Ends the slices that are complete.
    fn cut_slices(&mut self, pool: &mut ConnectionPool, plan: &FanoutPlan, now: Instant) -> Option<Instant> {
        while let Some(at) = self.next_cut(plan, pool.spec.slices) {
            if now < at {
                return Some(at.max(now + COARSE));
            }
            let clocks = pool.read_clocks();
            pool.outcome.slices.extend(self.cut.replace(clocks).map(|before| before.until(&clocks)));
            self.cuts += 1;
        }
        None
    }

    /// Publishes if a publication is due. Returns the time of the next action.
    fn step(&mut self, pool: &mut ConnectionPool, load: &Receiving, now: Instant) -> Option<Instant> {
        let plan = load.plan;
        if self.begin.is_none() {
            let ago = pool.ns(now).saturating_sub(load.begin_ns?);
            self.begin = now.checked_sub(Duration::from_nanos(ago) + READ_EARLY);
        }
        let begin = self.begin?;
        let next_cut = self.cut_slices(pool, &plan, now);
        let due = begin + Duration::from_secs_f64(self.sent as f64 / plan.rate_hz);
        if self.is_over || now < due {
            let due = if self.publisher.is_some() { due } else { due.max(now + COARSE) };
            let due = next_cut.map_or(due, |cut| cut.min(due));
            return (!self.is_over).then_some(due);
        }
        if self.sent == plan.total() {
            let end = pool.read_clocks();
            pool.outcome.measured(self.first.as_ref()?, &end);
            self.is_over = true;
            return None;
        }
        if self.sent == plan.warm_up {
            self.first = Some(pool.read_clocks());
        }
        if plan.measures(self.sent) && self.publisher.is_some() {
            pool.outcome.lag.record_ns(Instant::now().duration_since(due).as_nanos() as u64);
        }
        let intended_ns = pool.ns(due);
        if let Some(publisher) = self.publisher {
            pool.send_message(publisher, &mut self.payload, intended_ns);
        }
        self.sent += 1;
        let due = due + plan.period();
        Some(next_cut.map_or(due, |cut| cut.min(due)))
    }
}

#[cfg(test)]
mod tests;
