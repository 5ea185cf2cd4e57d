//! Round trips on many connections (IncludeOS against node/ws, 2017).

use super::marks::{LATENCY, MEMORY, RATE};
use super::{Effort, Scenario};
use crate::bench::Case;
use crate::bench::Metric::{BytesPerConnection, CpuPerMessage, LatencyP50, LatencyP99, Rate};
use crate::generator::{LoadSpec, Protocol};
use crate::plot::Place::{Band, Point, Span};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "echo-25k",
    question: "How many round trips does a server make with many connections, and how long do they take?",
    load: "A closed loop, one message of 64 bytes under way on each connection; and an open loop at 60 % of what the \
           slowest server does in a closed one.",
    metric: "Echoes a second; server CPU per echo, µs; latency, ms; private memory per connection, bytes.",
    source: "IncludeOS against node/ws, October 2017: 25,005 connections, one message under way on each.",
    published: &[
        ("node/ws", "30,000–35,000 round trips/s", &[(RATE, "closed", Span(25_005.0, (30e3, 35e3)))]),
        ("node/ws", "680–750 ms", &[(LATENCY, "-25k", Band(680.0, 750.0))]),
        ("node/ws", "680 MB", &[(MEMORY, "-25k", Point(25_005.0, 680.0))]),
        ("IncludeOS", "100,000–105,000 round trips/s", &[(RATE, "closed", Span(25_005.0, (100e3, 105e3)))]),
        ("IncludeOS", "160–280 ms", &[(LATENCY, "-25k", Band(160.0, 280.0))]),
        ("IncludeOS", "320 MB (whole machine)", &[(MEMORY, "-25k", Point(25_005.0, 320.0))]),
    ],
    repaired: "In a closed loop latency is nothing but connections divided by throughput, so it is measured in an open \
               loop, from the intended time of sending. Where a process may hold only 20,000 descriptors, a server that needs \
               one for each connection has the 25,000 in two processes on the same core (`server processes` says so). A message is \
               64 bytes with a number, a time and a checksum instead of `{\"timestamp\":<ms>}`.",
    peers: &["stentor", "ws8", "uws-cpp"],
    cases,
};

fn cases(effort: Effort) -> Vec<Case> {
    let (warm_up, measure) = (effort.span(3.0, 1.0, 0.2), effort.span(10.0, 3.0, 0.5));
    let closed = |name, connections: usize| {
        effort.case(Case::new(
            name,
            format!("echo of 64 bytes on {connections} connections, closed loop"),
            (connections, LoadSpec::EchoClosed { bytes: 64, warm_up, measure }),
            Protocol::WebSocket,
            &[Rate, CpuPerMessage, BytesPerConnection],
        ))
    };
    let open = |name, connections: usize| {
        effort.case(Case::new(
            name,
            format!("echo of 64 bytes on {connections} connections, open loop"),
            (connections, LoadSpec::EchoOpen { bytes: 64, rate_hz: 0.0, warm_up, measure }),
            Protocol::WebSocket,
            &[CpuPerMessage, LatencyP50, LatencyP99],
        ))
    };
    match effort {
        Effort::Smoke => vec![closed("closed-200", 200)],
        Effort::Quick => vec![closed("closed-5k", 5000), open("open-5k", 5000)],
        Effort::Full => vec![
            closed("closed-5k", 5000),
            closed("closed-10k", 10_000),
            closed("closed-15k", 15_000),
            closed("closed-19k", 19_000),
            closed("closed-25k", 25_000),
            open("open-5k", 5000),
            open("open-15k", 15_000),
            open("open-25k", 25_000),
        ],
    }
}
