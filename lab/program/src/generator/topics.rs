//! Many topics, each with few subscribers, and publications to them in random order, which is the same for all servers.
//!
//! The last connection publishes, and the others subscribe, each to the same number of consecutive topics, so that each topic has
//! the same number of subscribers. Publication n goes to topic [`topic_of`] n, so a receiver knows whether it should arrive.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::pool::{ConnectionPool, Load, Message};
use super::schedule::{Window, run_open};
use crate::Error;
use crate::document::mixed;
use crate::payload::{self, Head};
use serde::{Deserialize, Serialize};

/// Number of publications, or subscribing connections, between two polls.
const BURST: usize = 16;
/// Maximum time for all subscriptions.
const WITHIN: Duration = Duration::from_secs(60);

/// The parameters of a load in which the last connection publishes to topics in random order, and each of the others subscribes
/// to the same number of topics.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TopicsPlan {
    /// Payload size.
    pub bytes: usize,
    /// Number of topics.
    pub topics: usize,
    /// Number of subscribers per topic.
    pub subscribers: usize,
    /// Publications per second.
    pub rate_hz: f64,
    /// Duration of the warm-up.
    #[serde(with = "crate::seconds")]
    pub warm_up: Duration,
    /// Duration of the measurement.
    #[serde(with = "crate::seconds")]
    pub measure: Duration,
}

struct Receiving {
    bytes: usize,
    topics: usize,
    /// Number of topics per connection.
    each: usize,
    /// Intended times within the measurement.
    measured_ns: Range<u64>,
    /// The last number that each connection has received.
    last: Vec<Option<u64>>,
    answered: usize,
}

impl Load for Receiving {
    fn message(&mut self, pool: &mut ConnectionPool, message: Message) {
        if message.is_answer() {
            self.answered += 1;
            return;
        }
        let Some(head) = pool.check_alone(&message, self.bytes) else { return };
        let topics = self.topics;
        let ahead = topic_of(head.sequence, topics) + topics - message.number * self.each % topics;
        if ahead % topics >= self.each {
            pool.audit.corrupt += 1;
        } else if self.last[message.number].replace(head.sequence) >= Some(head.sequence) {
            pool.audit.repeated += 1;
        } else if self.measured_ns.contains(&head.intended_ns) {
            pool.deliver(&message, head.intended_ns);
        }
    }
}

fn topic_of(sequence: u64, topics: usize) -> usize {
    (mixed(sequence) % topics as u64) as usize
}

pub(super) fn run(pool: &mut ConnectionPool, plan: &TopicsPlan) -> Result<(), Error> {
    let publisher = pool.begun() - 1;
    let each = plan.topics * plan.subscribers / publisher.max(1);
    if plan.rate_hz <= 0.0 || each * publisher != plan.topics * plan.subscribers || each > plan.topics {
        return Err(Error::Generator("the subscriptions can't be divided among the connections".into()));
    }
    let mut payload = payload::blank(plan.bytes);
    let mut load = Receiving {
        bytes: payload.len(),
        topics: plan.topics,
        each,
        measured_ns: 0..0,
        last: vec![None; publisher + 1],
        answered: 0,
    };
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
    let window = Window::new(pool, begin, plan.warm_up, plan.measure);
    load.measured_ns = window.ns.clone();
    let mut text = Vec::new();
    run_open(pool, &mut load, window, plan.rate_hz, plan.subscribers as u64, |pool, sequence, intended_ns| {
        Head { sequence, intended_ns }.write(&mut payload);
        text.clear();
        let topic = topic_of(sequence, plan.topics);
        text.extend_from_slice(format!(r#"{{"type":"publish","room":"{topic}","data":""#).as_bytes());
        text.extend_from_slice(&payload);
        text.extend_from_slice(br#""}"#);
        pool.send(publisher, &text);
    })
}

#[cfg(test)]
mod tests;
