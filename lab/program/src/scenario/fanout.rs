//! One message to many: the scenario to compare servers by, since CPU at a fixed rate repeats to a few percent.

use super::{Effort, Scenario};
use crate::bench::Metric::{CpuPerMessage, LatencyP50, LatencyP99, PeakMemory};
use crate::bench::{Case, ratio};
use crate::generator::{LoadSpec, Protocol};

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

const ALL: &[&str] = &["stentor-uring", "stentor-epoll", "bare-uring", "bare-epoll", "uws-cpp", "ws8"];
const LARGEST: &[&str] = &["stentor-uring", "stentor-epoll", "bare-sendfile", "bare-epoll", "uws-cpp", "ws8"];

fn cases(effort: Effort) -> Vec<Case> {
    if effort == Effort::Full { vec![small(effort), large(effort)] } else { vec![small(effort)] }
}

fn case(
    effort: Effort,
    name: &'static str,
    bytes: usize,
    rate_hz: f64,
    (warm_up, count): (u64, u64),
) -> Case {
    let connections = effort.of(2000, 2000, 200);
    let case = Case::new(
        name,
        format!("fan-out of {bytes} bytes to {connections} connections, {rate_hz} a second"),
        (connections, LoadSpec::to_all(bytes, rate_hz, warm_up, count)),
        Protocol::WebSocket,
        &[CpuPerMessage, LatencyP50, LatencyP99, PeakMemory],
    );
    effort.case(case.or(&[
        Protocol::SocketIo,
        Protocol::SockJs,
        Protocol::Centrifuge,
        Protocol::Nats,
        Protocol::Mqtt,
        Protocol::Tcp,
    ]))
}

pub(super) fn small(effort: Effort) -> Case {
    let goals = vec![
        ratio(CpuPerMessage, "bare-uring", 1.15),
        ratio(CpuPerMessage, "uws-cpp", 0.85),
        ratio(LatencyP50, "uws-cpp", 1.0),
        ratio(LatencyP99, "uws-cpp", 1.0),
    ];
    let counts = (effort.of(20, 15, 4), effort.of(100, 50, 10));
    case(effort, "fanout-1kB", 1000, 20.0, counts).goals(ALL, goals)
}

pub(super) fn large(effort: Effort) -> Case {
    let goals = vec![
        ratio(CpuPerMessage, "bare-epoll", 0.85),
        ratio(CpuPerMessage, "uws-cpp", 0.6),
        ratio(PeakMemory, "uws-cpp", 0.1),
    ];
    let counts = (effort.of(2, 1, 1), effort.of(8, 4, 3));
    case(effort, "fanout-165kB", 165_000, 1.0, counts).goals(LARGEST, goals)
}
