//! Clients that come and go, fall silent or send fragments beside others.

use std::time::Duration;

use super::{Effort, Scenario};
use crate::bench::Metric::{CutOff, LatencyP99, LatencyShift, PeakMemory};
use crate::bench::{Case, Course};
use crate::generator::{LoadSpec, Misbehaviour, Protocol};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "misbehaving",
    question: "What do well-behaved clients notice of others who come and go, fall silent, or send in crumbs?",
    load: "64 bytes are echoed on 500 connections, 2,000 a second in all, from the intended time of sending; then the same beside \
           clients that are silent after the handshake, or before it, that come and go (200 a second), that are cut off and \
           come back all at once each second, or that send in TCP segments of one to three bytes.",
    metric: "p99 of the well-behaved, as a multiple of the p99 without the others; the others that the server ended; peak memory.",
    source: "Our own.",
    published: &[],
    repaired: "Nothing. The rate is small, so that the core they all share isn't what is measured. Those whose connections are sound \
               are audited as well.",
    peers: &["stentor", "uws-cpp", "ws8"],
    cases,
};

fn cases(effort: Effort) -> Vec<Case> {
    let connections = effort.of(500, 500, 50);
    let load = LoadSpec::EchoOpen {
        bytes: 64,
        rate_hz: effort.of(2000.0, 2000.0, 500.0),
        warm_up: effort.span(2.0, 0.5, 0.1),
        measure: effort.span(10.0, 2.0, 0.3),
    };
    let beside = |name, clients: usize, what: &str, how| {
        let case = Case::new(
            name,
            format!("{clients} clients that {what} beside {connections} echoes"),
            (connections, load.clone()),
            Protocol::WebSocket,
            &[LatencyShift, LatencyP99, CutOff, PeakMemory],
        );
        let course = Course::Beside { how, clients, alone_max: 0 };
        effort.long_case(Case { course, ..case.or(&[Protocol::SocketIo, Protocol::SockJs, Protocol::Tcp]) })
    };
    let many = effort.of(500, 200, 20);
    let every = effort.span(1.0, 1.0, 0.3);
    let fragments = beside("fragments", effort.of(50, 50, 5), "send in crumbs", Misbehaviour::Fragments);
    let storms = beside("storms", many, "are cut off and come back", Misbehaviour::Storms { every });
    if effort == Effort::Smoke {
        return vec![fragments];
    }
    vec![
        beside("silent", many, "fall silent", Misbehaviour::Silent),
        beside("mute", many, "never say anything", Misbehaviour::Mute),
        beside("churn", many, "come and go", Misbehaviour::Churns { every: Duration::from_millis(5) }),
        storms,
        fragments,
    ]
}
