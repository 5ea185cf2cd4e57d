use std::net::SocketAddr;

use super::*;
use crate::generator::outcome::Audit;
use crate::generator::{LoadSpec, Spec};

const PLAN: TopicsPlan = TopicsPlan {
    bytes: 100,
    topics: 10,
    subscribers: 2,
    rate_hz: 100.0,
    warm_up: Duration::ZERO,
    measure: Duration::from_secs(1),
};
/// Each client is subscribed to five topics in a row: two of the first half, two of the second.
const CLIENTS: usize = 4;

/// Receives messages, and records the resulting events.
struct Heard {
    pool: ConnectionPool,
    load: Receiving,
}

impl Heard {
    fn new(measured_ns: Range<u64>) -> Self {
        let load = LoadSpec::Idle { hold: Duration::ZERO };
        let spec = Spec::new(SocketAddr::from(([127, 0, 0, 1], 1)), "/ws", CLIENTS, load);
        let load = Receiving {
            bytes: PLAN.bytes,
            topics: PLAN.topics,
            each: PLAN.topics * PLAN.subscribers / CLIENTS,
            measured_ns,
            last: vec![None; CLIENTS],
            answered: 0,
        };
        Self { pool: ConnectionPool::new(&spec).unwrap(), load }
    }

    fn hear(&mut self, number: usize, sequence: u64, change: impl FnOnce(&mut Message)) {
        let head = Some(Head { sequence, intended_ns: sequence });
        let at_ns = sequence + 2000;
        let mut message = Message { number, head, payload_bytes: 100, clean: true, at_ns };
        change(&mut message);
        self.load.message(&mut self.pool, message);
    }

    /// Number of delivered messages.
    fn delivered(&self) -> u64 {
        self.pool.audit.delivered
    }
}

#[test]
fn only_subscribers_of_a_topic_may_have_its_publications() {
    let mut heard = Heard::new(0..100);
    for sequence in 0..100 {
        for number in 0..CLIENTS {
            let before = heard.delivered();
            heard.hear(number, sequence, |_| {});
            let half = topic_of(sequence, PLAN.topics) / 5;
            assert_eq!(heard.delivered() > before, number % 2 == half, "{number}, {sequence}");
        }
    }
    assert_eq!(heard.pool.audit, Audit { delivered: 200, corrupt: 200, ..Audit::default() });
    assert_eq!(heard.pool.outcome.latency.max(), Duration::from_nanos(2000));
}

#[test]
fn all_topics_are_published_to() {
    let mut times = [0; 10];
    (0..10_000).for_each(|sequence| times[topic_of(sequence, 10)] += 1);
    assert!(times.iter().all(|times| (800..1200).contains(times)), "{times:?}");
}

#[test]
fn faults_are_counted_and_what_is_not_measured_is_not() {
    let sequences: Vec<u64> = (0..100).filter(|sequence| topic_of(*sequence, PLAN.topics) < 5).collect();
    let [first, second, third, fourth] = sequences[..4] else { panic!("{sequences:?}") };
    let mut heard = Heard::new(second..100);
    heard.hear(0, first, |_| {});
    assert_eq!(heard.pool.audit, Audit::default());
    heard.hear(0, second, |_| {});
    // The same message again, and an older one.
    heard.hear(0, second, |_| {});
    heard.hear(0, first, |_| {});
    assert_eq!(heard.pool.audit, Audit { delivered: 1, repeated: 2, ..Audit::default() });
    heard.hear(0, third, |message| message.payload_bytes = 99);
    heard.hear(0, fourth, |message| message.clean = false);
    let expect = Audit { delivered: 1, repeated: 2, wrong_length: 1, corrupt: 1, ..Audit::default() };
    assert_eq!(heard.pool.audit, expect);
    heard.hear(0, 0, |message| (message.head, message.payload_bytes) = (None, 0));
    assert_eq!((heard.load.answered, heard.delivered()), (1, 1));
}
