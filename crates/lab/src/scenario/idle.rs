//! **Question:** what does a connection cost that does nothing?
//!
//! **Load:** connections, joined in a room, on which nothing happens.
//! **Metric:** private memory of the server per connection, bytes (user space).
//!
//! **Published:** nothing.

use std::time::Duration;

use super::{Effort, Scenario};
use crate::bench::{Case, CaseKind, Metric};
use crate::generator::Protocol;

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
    let connections = effort.of(15_000, 10_000, 500);
    vec![effort.case(Case {
        or: &[Protocol::SocketIo, Protocol::SockJs, Protocol::Tcp],
        ..Case::new(
            "idle",
            format!("{connections} idle connections"),
            CaseKind::Idle { feed: false, connections, hold: Duration::ZERO },
            Protocol::WebSocket,
            &[Metric::BytesPerConnection, Metric::CpuPerConnection],
        )
    })]
}
