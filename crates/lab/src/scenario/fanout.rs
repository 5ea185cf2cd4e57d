//! **Question:** what does it cost to send one message to many?
//!
//! **Load:** one of 2,000 connections publishes at a fixed rate, all receive it.
//! **Metric:** server CPU per delivery, µs; p50, p99, ms.
//!
//! **Published:** nothing; this is the scenario to compare servers on, since CPU at a fixed rate repeats to a few percent.

use super::{Effort, Scenario};
use crate::bench::{Case, CaseKind, Metric};
use crate::generator::Protocol;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "fanout",
    question: "What does it cost to send one message to many?",
    load: "One of 2,000 connections publishes at a fixed rate, and all receive it: 1 kB 20 times a second, and 165 kB once a \
           second (full).",
    metric: "Server CPU per delivery, µs; p50 and p99, ms.",
    source: "Our own.",
    published: &[],
    repaired: "Nothing: CPU at a fixed rate is what repeats to a few percent on a small machine.",
    peers: &["stentor", "uws-cpp", "ws8", "socketio4", "sockjs-node"],
    cases,
};

fn cases(effort: Effort) -> Vec<Case> {
    let connections = effort.of(2000, 2000, 200);
    let of = |name, bytes, rate_hz, warm_up, count| {
        effort.case(Case {
            or: &[Protocol::SocketIo, Protocol::SockJs, Protocol::Tcp],
            ..Case::new(
                name,
                format!("{bytes} bytes to {connections} connections, {rate_hz} a second"),
                CaseKind::Fanout { feed: false, connections, bytes, rate_hz, warm_up, count },
                Protocol::WebSocket,
                &[Metric::CpuPerMessage, Metric::LatencyP50, Metric::LatencyP99, Metric::PeakMemory],
            )
        })
    };
    let small = of("1kB", 1000, 20.0, effort.of(20, 20, 4), effort.of(100, 80, 10));
    if effort == Effort::Full { vec![small, of("165kB", 165_000, 1.0, 2, 8)] } else { vec![small] }
}
