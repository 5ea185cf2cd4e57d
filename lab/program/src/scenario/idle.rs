//! Connections that do nothing.

use std::time::Duration;

use super::{Effort, Scenario};
use crate::bench::Metric::{BytesPerConnection, CpuPerConnection};
use crate::bench::{Case, bound};
use crate::generator::{LoadSpec, Protocol};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "idle",
    question: "What does a connection cost that does nothing?",
    load: "15,000 connections (quick: 10,000) that are in a room and say nothing.",
    metric: "Private memory of the server per connection, bytes; server CPU per connection opened, µs.",
    source: "Our own.",
    published: &[],
    repaired: "Nothing. What the kernel holds for a connection is the same for all, and not in the figure.",
    peers: &["stentor", "uws-cpp", "ws8", "socketio4", "sockjs-node"],
    cases,
};

fn cases(effort: Effort) -> Vec<Case> {
    vec![case(effort)]
}

pub(super) fn case(effort: Effort) -> Case {
    let connections = effort.of(15_000, 10_000, 500);
    let case = Case::new(
        "idle",
        format!("{connections} idle connections"),
        (connections, LoadSpec::Idle { hold: Duration::ZERO }),
        Protocol::WebSocket,
        &[BytesPerConnection, CpuPerConnection],
    );
    let usual = &["stentor-uring", "bare-epoll", "uws-cpp", "ws8"];
    effort
        .steady_case(case.or(&[Protocol::SocketIo, Protocol::SockJs, Protocol::Tcp]))
        .goals(usual, vec![bound(BytesPerConnection, 500.0)])
}
