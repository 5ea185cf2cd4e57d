//! SockJS and Server-Sent Events.

use std::time::Duration;

use super::{Case, CaseKind, PAIRS_OF_STEADY, Scale, TIMED, bound, ratio};
use crate::bench::Metric;
use crate::generator::Protocol;

/// What is upon WebSocket, beside the same server on nothing but that.
const SOCK_JS: &[&str] = &["stentor-epoll", "stentor-epoll-ws", "sockjs-node", "sockjs-tornado-pypy45"];
/// Nobody else has feeds, and without any nothing comes as Server-Sent Events.
const EVENTS: &[&str] = &["stentor-epoll", "stentor-epoll-ws"];

pub(super) fn cases(scale: Scale) -> Vec<Case> {
    let room = scale.of(1000, 1000, 200);
    let crowd = scale.of(2000, 2000, 300);
    let idle = scale.of(10_000, 10_000, 1000);
    let (warm_up, count) = (scale.of(40, 20, 10), scale.of(100, 60, 30));
    let fanout = |feed, connections| CaseKind::Fanout {
        feed,
        connections,
        bytes: 1000,
        rate_hz: 20.0,
        warm_up,
        count,
    };
    let case = |name, title, kind, protocol, usual: &[&'static str], metrics, targets| Case {
        name,
        title,
        kind,
        protocol,
        metrics,
        targets,
        only: &[],
        or: &[],
        by_slowest: false,
        usual: usual.to_vec(),
        again: true,
        pairs: scale.pairs(PAIRS_OF_STEADY),
    };
    let resting = |feed| CaseKind::Idle { feed, connections: idle, hold: Duration::ZERO };
    vec![
        case(
            "sockjs-fanout",
            format!("fan-out of 1000 characters to a room of {room} over SockJS websocket, 20 a second"),
            fanout(false, room),
            Protocol::SockJs,
            SOCK_JS,
            TIMED,
            vec![
                ratio(Metric::CpuPerMessage, "stentor-epoll-ws", 1.10),
                ratio(Metric::CpuPerMessage, "sockjs-node", 0.35),
                ratio(Metric::CpuPerMessage, "sockjs-tornado-pypy45", 0.55),
            ],
        ),
        case(
            "xhr-streaming-fanout",
            format!("fan-out of 1000 characters to a room of {room} over SockJS xhr_streaming, 20 a second"),
            fanout(false, room),
            Protocol::SockJsStreaming,
            &["stentor-epoll", "stentor-epoll-ws", "sockjs-node"],
            TIMED,
            vec![ratio(Metric::CpuPerMessage, "stentor-epoll-ws", 1.20)],
        ),
        case(
            "sse-fanout",
            format!("a feed of 1000 bytes to {crowd} clients of Server-Sent Events, 20 versions a second"),
            fanout(true, crowd),
            Protocol::Sse,
            EVENTS,
            TIMED,
            vec![ratio(Metric::CpuPerMessage, "stentor-epoll-ws", 1.10)],
        ),
        case(
            "sockjs-idle",
            format!("{idle} idle clients in a room, SockJS websocket"),
            resting(false),
            Protocol::SockJs,
            &["stentor-epoll", "sockjs-node", "sockjs-tornado-pypy45"],
            &[Metric::BytesPerConnection],
            vec![bound(Metric::BytesPerConnection, 1000.0)],
        ),
        case(
            "sse-idle",
            format!("{idle} idle clients of Server-Sent Events, subscribed to a feed"),
            resting(true),
            Protocol::Sse,
            EVENTS,
            &[Metric::BytesPerConnection],
            vec![bound(Metric::BytesPerConnection, 1000.0)],
        ),
    ]
}
