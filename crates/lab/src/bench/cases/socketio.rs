//! Socket.IO clients.

use std::time::Duration;

use super::{Case, CaseKind, PAIRS, PAIRS_OF_LONG, PAIRS_OF_STEADY, Scale, bound, ratio};
use crate::bench::Metric;
use crate::generator::Protocol;

/// What is upon WebSocket, beside the same server on nothing but that.
const SOCKET_IO: &[&str] = &["stentor-epoll", "stentor-epoll-ws", "socketio4", "socketioxide"];
/// With `tcp`, which speaks lines over TCP: what Node can do with no protocol at all.
const BUDGETED: &[&str] = &["stentor-epoll", "tcp", "stentor-epoll-ws", "socketio4"];
const POLLED: &[&str] = &["stentor-epoll", "socketio4", "socketioxide"];

/// "The same" system calls per delivery: what timers and a busy turn's end add stays below a fiftieth.
const SAME_CALLS: f64 = 1.02;

pub(super) fn cases(scale: Scale) -> Vec<Case> {
    let case = |name, title, kind, metrics, targets| Case {
        name,
        title,
        kind,
        protocol: Protocol::SocketIo,
        metrics,
        targets,
        only: &[],
        usual: SOCKET_IO,
        pairs: PAIRS,
    };
    let fanout = |connections, rate_hz, warm_up, count| CaseKind::Fanout {
        feed: false,
        connections,
        bytes: 1000,
        rate_hz,
        warm_up,
        count,
    };
    let crowd = scale.number(2000, 300);
    let echoing = scale.number(1000, 200);
    let idle = scale.number(10_000, 1000);
    let connecting = scale.number(5000, 1000);
    let polling = scale.number(1300, 300);
    let (connecting_hz, budget) = (1000.0, scale.seconds(1.0, 0.2));
    // The interval of pings, so that each connection has one.
    let hold = scale.seconds(25.0, 2.0);
    vec![
        case(
            "io-fanout",
            format!(
                "fan-out of an event of 1000 bytes to {crowd} Socket.IO clients over WebSocket, 10 a second"
            ),
            fanout(crowd, 10.0, scale.times(20, 5), scale.times(60, 15)),
            &[Metric::CpuPerMessage, Metric::LatencyP50, Metric::LatencyP99, Metric::CallsPerMessage],
            vec![
                ratio(Metric::CpuPerMessage, "stentor-epoll-ws", 1.10),
                ratio(Metric::CallsPerMessage, "stentor-epoll-ws", SAME_CALLS),
                ratio(Metric::CpuPerMessage, "socketio4", 0.45),
                ratio(Metric::CpuPerMessage, "socketioxide", 0.75),
            ],
        ),
        case(
            "io-echo",
            format!(
                "echo of an event of 64 bytes on {echoing} Socket.IO clients over WebSocket, closed loop"
            ),
            CaseKind::EchoClosed {
                connections: echoing,
                bytes: 64,
                warm_up: scale.seconds(2.0, 0.5),
                measure: scale.seconds(5.0, 1.5),
            },
            &[Metric::CpuPerMessage],
            vec![
                ratio(Metric::CpuPerMessage, "stentor-epoll-ws", 1.2),
                ratio(Metric::CpuPerMessage, "socketio4", 0.333),
            ],
        ),
        Case {
            pairs: PAIRS_OF_LONG,
            ..case(
                "io-idle",
                format!("{idle} idle Socket.IO clients over WebSocket, {hold:?} with heartbeats"),
                CaseKind::Idle { feed: false, connections: idle, hold },
                &[Metric::BytesPerConnection, Metric::IdleCpu],
                vec![
                    bound(Metric::BytesPerConnection, 1000.0),
                    ratio(Metric::BytesPerConnection, "socketio4", 1.0 / 16.0),
                    bound(Metric::IdleCpu, 0.5),
                ],
            )
        },
        case(
            "io-connect",
            format!(
                "connect and enter, Socket.IO over WebSocket only; {connecting} clients at 1000 a second"
            ),
            CaseKind::Connect { connections: connecting, rate_hz: 1000.0 },
            &[Metric::CpuPerConnection],
            vec![ratio(Metric::CpuPerConnection, "socketio4", 0.1)],
        ),
        Case {
            protocol: Protocol::SocketIoPolling,
            usual: POLLED,
            pairs: PAIRS_OF_STEADY,
            ..case(
                "io-polling",
                format!(
                    "fan-out of an event of 1000 bytes to {polling} long-polling Socket.IO clients, once a second"
                ),
                fanout(polling, 1.0, scale.times(5, 2), scale.times(10, 3)),
                &[Metric::CpuPerMessage, Metric::LatencyP50, Metric::LatencyP99, Metric::Undelivered],
                vec![ratio(Metric::CpuPerMessage, "socketio4", 0.25), bound(Metric::Undelivered, 0.0)],
            )
        },
        Case {
            pairs: PAIRS_OF_STEADY,
            usual: BUDGETED,
            ..case(
                "siobench",
                format!(
                    "{connecting_hz} clients a second connect, and each that is connected sends 17 bytes a second and \
                     is answered, until the server has used {budget:?} of CPU"
                ),
                CaseKind::Budget {
                    connections_max: 15_000,
                    bytes: 17,
                    every: Duration::from_secs(1),
                    rate_hz: connecting_hz,
                    cpu: budget,
                },
                &[Metric::Connections, Metric::LatencyP99],
                vec![ratio(Metric::Connections, "tcp", 1.0)],
            )
        },
    ]
}
