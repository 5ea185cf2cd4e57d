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
        or: &[],
        by_slowest: false,
        usual: SOCKET_IO.to_vec(),
        again: true,
        pairs: scale.pairs(PAIRS),
    };
    let fanout = |connections, rate_hz, warm_up, count| CaseKind::Fanout {
        feed: false,
        connections,
        bytes: 1000,
        rate_hz,
        warm_up,
        count,
    };
    let crowd = scale.of(2000, 2000, 300);
    let echoing = scale.of(1000, 1000, 200);
    let idle = scale.of(10_000, 10_000, 1000);
    let connecting = scale.of(5000, 3000, 1000);
    let polling = scale.of(1300, 1300, 300);
    let (connecting_hz, budget) = (1000.0, Duration::from_secs_f64(scale.of(1.0, 1.0, 0.2)));
    // The interval of pings, so that each connection has one; a fast table looks at memory alone.
    let hold = Duration::from_secs_f64(scale.of(25.0, 0.0, 2.0));
    vec![
        case(
            "io-fanout",
            format!(
                "fan-out of an event of 1000 bytes to {crowd} Socket.IO clients over WebSocket, 10 a second"
            ),
            fanout(crowd, 10.0, scale.of(20, 10, 5), scale.of(60, 40, 15)),
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
                warm_up: Duration::from_secs_f64(scale.of(2.0, 1.0, 0.5)),
                measure: Duration::from_secs_f64(scale.of(5.0, 3.0, 1.5)),
            },
            &[Metric::CpuPerMessage],
            vec![
                ratio(Metric::CpuPerMessage, "stentor-epoll-ws", 1.2),
                ratio(Metric::CpuPerMessage, "socketio4", 0.333),
            ],
        ),
        Case {
            pairs: scale.pairs(PAIRS_OF_LONG),
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
            usual: POLLED.to_vec(),
            again: true,
            pairs: scale.pairs(PAIRS_OF_STEADY),
            ..case(
                "io-polling",
                format!(
                    "fan-out of an event of 1000 bytes to {polling} long-polling Socket.IO clients, once a second"
                ),
                fanout(polling, 1.0, scale.of(5, 3, 2), scale.of(10, 6, 3)),
                &[Metric::CpuPerMessage, Metric::LatencyP50, Metric::LatencyP99, Metric::Undelivered],
                vec![ratio(Metric::CpuPerMessage, "socketio4", 0.25), bound(Metric::Undelivered, 0.0)],
            )
        },
        Case {
            pairs: scale.pairs(PAIRS_OF_STEADY),
            usual: BUDGETED.to_vec(),
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
                    rate_hz: Some(connecting_hz),
                    cpu: budget,
                },
                &[Metric::Connections, Metric::LatencyP99],
                vec![ratio(Metric::Connections, "tcp", 1.0)],
            )
        },
    ]
}
