//! Round trips on many connections (IncludeOS against node/ws, 2017).

use super::{Effort, Published, Scenario};
use crate::bench::Case;
use crate::bench::Metric::{BytesPerConnection, CpuPerMessage, LatencyP50, LatencyP99, Rate};
use crate::generator::{LoadSpec, Protocol};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "echo-25k",
    question: "How many round trips does a server make with many connections, and how long do they take?",
    load: "A closed loop, one message of 64 bytes under way on each connection; and an open loop at 60 % of what the \
           slowest server does in a closed one.",
    metric: "Echoes a second; server CPU per echo, µs; latency, ms; private memory per connection, bytes.",
    source: "IncludeOS against node/ws, October 2017: 25,005 connections, one message under way on each.",
    published: &[
        Published { who: "node/ws", figure: "30,000–35,000 round trips/s, 680–750 ms, 680 MB" },
        Published {
            who: "IncludeOS",
            figure: "100,000–105,000 round trips/s, 160–280 ms, 320 MB (whole machine)",
        },
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
