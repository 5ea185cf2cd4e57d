//! Many topics, each with few subscribers, and publications to them in random order, which is the same for all servers.
//!
//! The last connection publishes, and the others are subscribed: each to as many topics in a row, so that each topic has as many
//! subscribers. Publication n goes to topic [`topic_of`] n, so a receiver knows whether it should have come.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::outcome::Reading;
use super::pool::{ConnectionPool, Load, Message};
use super::{Latencies, Outcome};
use crate::Error;
use crate::document::mixed;
use crate::payload::{self, Head};

/// Publications, or connections that subscribe, between two looks at what has come.
const BURST: usize = 16;
/// How long all may take to be subscribed.
const WITHIN: Duration = Duration::from_secs(60);

/// See [`super::LoadSpec::Topics`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub bytes: usize,
    pub topics: usize,
    pub subscribers: usize,
    pub rate_hz: f64,
    pub warm_up: Duration,
    pub measure: Duration,
}

struct Receiving {
    plan: Plan,
    /// Topics of one connection.
    each: usize,
    /// Publications that are measured.
    measured: Range<u64>,
    /// The last one that each connection received.
    last: Vec<Option<u64>>,
    answered: usize,
    arrived: u64,
    delivered: u64,
    latency: Latencies,
}

impl Load for Receiving {
    fn message(&mut self, pool: &mut ConnectionPool, message: Message) {
        if message.is_answer() {
            self.answered += 1;
            return;
        }
        self.arrived += 1;
        let Some(head) = pool.check_alone(&message, self.plan.bytes) else { return };
        let topics = self.plan.topics;
        let ahead = topic_of(head.sequence, topics) + topics - message.number * self.each % topics;
        if ahead % topics >= self.each {
            pool.audit.corrupt += 1;
        } else if self.last[message.number].replace(head.sequence) >= Some(head.sequence) {
            pool.audit.repeated += 1;
        } else if self.measured.contains(&head.sequence) {
            self.delivered += 1;
            self.latency.record_ns(message.at_ns.saturating_sub(head.intended_ns));
        }
    }
}

fn topic_of(sequence: u64, topics: usize) -> usize {
    (mixed(sequence) % topics as u64) as usize
}

pub(super) fn run(pool: &mut ConnectionPool, plan: Plan, outcome: &mut Outcome) -> Result<(), Error> {
    let publisher = pool.begun() - 1;
    let each = plan.topics * plan.subscribers / publisher.max(1);
    if plan.rate_hz <= 0.0 || each * publisher != plan.topics * plan.subscribers || each > plan.topics {
        return Err(Error::Generator("the subscriptions can't be divided among the connections".into()));
    }
    let count = |span: Duration| (span.as_secs_f64() * plan.rate_hz) as u64;
    let (first, total) = (count(plan.warm_up), count(plan.warm_up + plan.measure));
    let mut payload = payload::blank(plan.bytes);
    let mut load = Receiving {
        plan: Plan { bytes: payload.len(), ..plan },
        each,
        measured: first..total,
        last: vec![None; publisher + 1],
        answered: 0,
        arrived: 0,
        delivered: 0,
        latency: Latencies::new(),
    };
    let mut text = Vec::new();
    for number in 0..publisher {
        for nth in 0..each {
            let topic = (number * each + nth) % plan.topics;
            pool.send(number, format!(r#"{{"type":"subscribe","room":"{topic}"}}"#).as_bytes());
        }
        if number % BURST == 0 {
            pool.turn(Some(Instant::now()), &mut load)?;
        }
    }
    pool.turn_while(WITHIN, &mut load, |_, load| load.answered < publisher * each)?;
    if load.answered < publisher * each {
        let answered = load.answered;
        return Err(Error::Generator(format!(
            "{answered} of {} subscriptions were answered",
            publisher * each
        )));
    }
    let begin = Instant::now() + Duration::from_millis(5);
    let due_of = |nth: u64| begin + Duration::from_secs_f64(nth as f64 / plan.rate_hz);
    let deadline = due_of(total) + pool.spec.late;
    let expected = (total - first) * plan.subscribers as u64;
    let mut ends: Vec<(Reading, u64)> = Vec::new();
    let mut sent = 0;
    loop {
        let now = Instant::now();
        if ends.len() < 2 && now >= due_of([first, total][ends.len()]) {
            ends.push((pool.read_clocks(), load.arrived));
        }
        if ends.len() == 2 && load.delivered >= expected || now > deadline {
            break;
        }
        for _ in 0..BURST {
            let due = due_of(sent);
            if sent == total || due > now {
                break;
            }
            if sent >= first {
                outcome.lag.record_ns(now.duration_since(due).as_nanos() as u64);
            }
            Head { sequence: sent, intended_ns: pool.ns(due) }.write(&mut payload);
            text.clear();
            let topic = topic_of(sent, plan.topics);
            text.extend_from_slice(format!(r#"{{"type":"publish","room":"{topic}","data":""#).as_bytes());
            text.extend_from_slice(&payload);
            text.extend_from_slice(br#""}"#);
            pool.send(publisher, &text);
            sent += 1;
        }
        let due = if sent < total { due_of(sent) } else { now + Duration::from_millis(5) };
        pool.turn(Some(due), &mut load)?;
    }
    if let [(begin, before), (end, after)] = &ends[..] {
        outcome.load = begin.until(end);
        outcome.messages = after - before;
    }
    outcome.latency = load.latency;
    pool.audit.expected = expected;
    pool.audit.delivered = load.delivered;
    Ok(())
}

#[cfg(test)]
mod tests;
