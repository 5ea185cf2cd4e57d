//! A message to everybody in a room (half a million notifications, 2017). How it grows beyond 10,000 is [`super::scale`].

use std::time::Duration;

use super::marks::{AGE, EACH, LAST, LATENCY, MEMORY};
use super::{Effort, Scenario};
use crate::bench::Metric::{
    BytesPerConnection, CpuPerMessage, IdleCpu, LastReceiver, LatencyP50, LatencyP99,
};
use crate::bench::{Case, Course, bound};
use crate::generator::{LoadSpec, Protocol};
use crate::plot::Place::{Band, Point};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "room-broadcast",
    question: "How long does it take until everybody in a room has a message?",
    load: "Everybody is in one room. Messages of 1,000 characters go to it at 4 a second, from one of them; each is timed \
           one way at every receiver, from its intended time.",
    metric: "The last receiver (of the median message), p50 and p99, ms; server CPU per delivery, µs; private memory per \
             connection, bytes.",
    source: "Half a million notifications with Socket.IO, June 2017: 1 core, 1 GB, Redis adapter, nginx, Artillery.",
    published: &[
        (
            "Node, 1,800 connections",
            "34 kB each",
            &[(MEMORY, "room-1800", Point(1800.0, 61.2)), (EACH, "", Point(1800.0, 34e3))],
        ),
        (
            "system",
            "73.9 kB each",
            &[(MEMORY, "room-1800", Point(1800.0, 133.02)), (EACH, "", Point(1800.0, 73.9e3))],
        ),
        ("Socket.IO, CPU", "7.9 % at most while connecting, 1.2 % when idle", &[]),
        (
            "a broadcast",
            "under 300 ms on average (half a round trip, one browser)",
            &[(LATENCY, "", Band(300.0, 300.0)), (AGE, "", Band(300.0, 300.0))],
        ),
        ("the aim", "1,300 connections, at most 300 ms", &[(LAST, "", Point(1300.0, 300.0))]),
    ],
    repaired: "There half a round trip of one browser was measured; here each message at every receiver. Clients connect at \
               4,000 a second instead of 5 (but in `room-1800-slowly`, full only, where the messages come once a second), and are in the \
               room by connecting. In the cases `…-nginx` clients come through \
               nginx on the server's core, where it is installed; its CPU isn't the server's. The peers `socketio2-redis` (what \
               was published, in its last release) and `socketio4-redis` have the Redis adapter, and a Redis of their own on the \
               server's core, whose CPU and memory are the server's; each run says which part of the CPU was Redis's, and \
               which was without it.",
    peers: &[
        "stentor:socketio",
        "socketio4",
        "socketio4-redis",
        "socketio2",
        "socketio2-redis",
        "socketioxide",
    ],
    cases,
};

/// Connects a second of the published test.
const CONNECTS_HZ: f64 = 5.0;
/// The last receiver of a message has it within so many milliseconds, with 1,300 clients.
const LAST_MAX_MS: f64 = 300.0;

fn cases(effort: Effort) -> Vec<Case> {
    let room = |name, connections: usize| {
        let rate_hz = effort.of(4.0, 4.0, 10.0);
        let load = LoadSpec::to_all(1000, rate_hz, effort.of(8, 2, 2), effort.of(30, 16, 5));
        let title = format!("messages of 1000 characters to a room of {connections}");
        let metrics = &[LastReceiver, LatencyP50, LatencyP99, CpuPerMessage, BytesPerConnection];
        let case = Case::new(name, title, (connections, load), Protocol::SocketIo, metrics);
        effort.case(case.or(&[Protocol::WebSocket]))
    };
    let slowly = |name, connections: usize| Case {
        title: format!(
            "a room of {connections}, {CONNECTS_HZ} connects a second, then 30 s of rest, then messages of 1000 characters"
        ),
        load: LoadSpec::to_all(1000, 1.0, 1, 30),
        connect_rate_hz: Some(CONNECTS_HZ),
        course: Course::Rested(Duration::from_secs(30)),
        metrics: &[LastReceiver, IdleCpu, BytesPerConnection],
        ..room(name, connections)
    };
    // The aim of the original.
    let gated = |case: Case| Case { targets: vec![bound(LastReceiver, LAST_MAX_MS)], ..case };
    let through_nginx = |name, case: Case| Case {
        name,
        title: format!("{}, through nginx", case.title),
        proxied: true,
        ..case
    };
    match effort {
        Effort::Smoke => {
            vec![room("room-200", 200), through_nginx("room-100-nginx", room("room-100", 100))]
        }
        Effort::Quick => vec![
            gated(room("room-1300", 1300)),
            gated(through_nginx("room-1300-nginx", room("room-1300", 1300))),
        ],
        Effort::Full => vec![
            gated(room("room-1300", 1300)),
            gated(through_nginx("room-1300-nginx", room("room-1300", 1300))),
            room("room-1800", 1800),
            through_nginx("room-1800-nginx", room("room-1800", 1800)),
            room("room-10k", 10_000),
            slowly("room-1800-slowly", 1800),
        ],
    }
}
