//! A chat that gets faster until it is slow (SockJS against Socket.IO, 2011).

use std::time::Duration;

use super::marks::MEMORY;
use super::{Effort, Scenario};
use crate::bench::Case;
use crate::bench::Metric::Deliveries;
use crate::generator::{ChatPlan, LoadSpec, Protocol};
use crate::payload::HEAD_BYTES;
use crate::plot::Place::Point;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "chat-rtt",
    question: "How many messages a second does a chat room deliver before it becomes slow?",
    load: "One room; everybody says something in turn, at a fixed total rate that grows from step to step, and everybody \
           receives everything, the sender included. It ends when copies are missing, or at a mean of 1,500 ms. Where the \
           generator had no CPU left by then, the result is a lower bound, since that makes copies later and fewer.",
    metric: "Deliveries a second at a mean latency of 200 ms of the senders' own copies.",
    source: "SockJS against Socket.IO, December 2011: thousand deliveries/s with a mean under 200 ms, for 25, 100, 500, \
             1,000 and 2,000 clients.",
    published: &[
        ("sockjs-node", "50, 47, 50, 49, 44", &[]),
        ("Socket.IO 0.8.7", "54, 51, 50, 47, 42", &[]),
        ("sockjs-tornado, CPython", "55, 68, 56, 52, 70", &[]),
        ("sockjs-tornado, PyPy", "171, 197, 160, 149, 146", &[]),
        ("sockjs-node", "36 MB at 2,000 clients", &[(MEMORY, "chat-2000", Point(2000.0, 36.0))]),
        ("tornado CPython", "52 MB at 2,000 clients", &[(MEMORY, "chat-2000", Point(2000.0, 52.0))]),
        ("tornado PyPy", "100 MB at 2,000 clients", &[(MEMORY, "chat-2000", Point(2000.0, 100.0))]),
    ],
    repaired: "Every copy is counted, not the senders' alone, and what was delivered is drawn, not what was offered. A message is \
               44 bytes with a number, a time and a checksum instead of `ID:EPOCH_MS`. Steps \
               grow by a factor instead of a constant, so that fast servers end too.",
    peers: &[
        "stentor:sockjs",
        "stentor:socketio",
        "sockjs-node",
        "sockjs-tornado-pypy45",
        "sockjs-tornado",
        "socketio4",
        "socketio08",
    ],
    cases,
};

/// Deliveries a second at which the published test ends.
const DELIVERIES_MAX_HZ: f64 = 500_000.0;

fn cases(effort: Effort) -> Vec<Case> {
    let level = |name, connections: usize| {
        let growth = effort.of(1.15, 1.5, 2.0);
        let first = effort.of(10_000.0, 10_000.0, 2000.0);
        let last = effort.of(DELIVERIES_MAX_HZ, DELIVERIES_MAX_HZ, 4000.0);
        let rates = std::iter::successors(Some(first), |rate: &f64| Some(rate * growth));
        let rates = rates.take_while(|rate| *rate < last).chain([last]);
        let rates_hz = rates.map(|rate| rate / connections as f64).collect();
        let plan = ChatPlan {
            bytes: HEAD_BYTES,
            rates_hz,
            step: effort.span(3.0, 0.6, 0.3),
            late: Duration::from_secs(5),
            mean_max: Duration::from_millis(1500),
        };
        let case = Case::new(
            name,
            format!("a chat of {connections}"),
            (connections, LoadSpec::Chat(plan)),
            Protocol::SockJs,
            &[Deliveries],
        );
        effort.case(case.or(&[Protocol::SocketIo, Protocol::WebSocket]))
    };
    match effort {
        Effort::Smoke => vec![level("chat-25", 25)],
        Effort::Quick => vec![level("chat-500", 500)],
        Effort::Full => vec![
            level("chat-25", 25),
            level("chat-100", 100),
            level("chat-500", 500),
            level("chat-1000", 1000),
            level("chat-2000", 2000),
        ],
    }
}
