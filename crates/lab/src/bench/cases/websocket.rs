//! What the first light is judged by: plain WebSocket.

use std::time::Duration;

use super::{Case, CaseKind, PAIRS, PAIRS_OF_LONG, PAIRS_OF_STEADY, Scale, TIMED, Target, bound, ratio};
use crate::bench::Metric;
use crate::generator::{LoadSpec, Misbehaviour, Protocol, Publisher};

const ECHO: &[Target] = &[
    ratio(Metric::CpuPerMessage, "bare-epoll", 1.15),
    ratio(Metric::CpuPerMessage, "bare-uring", 1.15),
    ratio(Metric::CpuPerMessage, "uws-cpp", 1.0),
    ratio(Metric::LatencyP50, "uws-cpp", 1.0),
    ratio(Metric::LatencyP99, "uws-cpp", 1.0),
];

/// Those that hold more connections than they have descriptors.
const DIRECT: &[&str] = &["stentor-uring", "bare-direct"];
/// For 1.65 GB a second: what copies it for each client takes most of a core, npm ws more than one.
const CROWD: &[&str] = &["stentor-uring", "bare-sendfile", "uws-cpp"];
const ALL: &[&str] = &["stentor-uring", "stentor-epoll", "bare-uring", "bare-epoll", "uws-cpp", "ws8"];
const JUDGED: &[&str] = &["stentor-uring", "bare-uring", "bare-epoll", "uws-cpp"];
const LARGEST: &[&str] = &["stentor-uring", "stentor-epoll", "bare-sendfile", "bare-epoll", "uws-cpp", "ws8"];
const HELD: &[&str] = &["stentor-uring", "bare-epoll", "uws-cpp", "ws8"];
const SLOW: &[&str] = &["stentor-uring", "bare-epoll", "uws-cpp"];

const LARGE: &[Metric] = &[Metric::CpuPerMessage, Metric::LatencyP50, Metric::LatencyP99, Metric::PeakMemory];
const FLAT: &[Metric] = &[
    Metric::CpuPerMessage,
    Metric::LatencyP99,
    Metric::PeakMemory,
    Metric::MemoryGrowth,
    Metric::Undelivered,
];

pub(super) fn cases(scale: Scale) -> Vec<Case> {
    let echo = |name, usual: &[&'static str], connections: usize| Case {
        name,
        title: format!("echo of 64 bytes on {connections} connections, open loop"),
        kind: CaseKind::Echo {
            connections,
            bytes: 64,
            rate_hz: 0.0,
            warm_up: Duration::from_secs_f64(scale.of(1.5, 1.0, 0.5)),
            measure: Duration::from_secs_f64(scale.of(5.0, 3.0, 1.5)),
        },
        protocol: Protocol::WebSocket,
        metrics: TIMED,
        targets: ECHO.to_vec(),
        only: &[],
        or: &[],
        by_slowest: false,
        usual: usual.to_vec(),
        again: true,
        pairs: scale.pairs(PAIRS),
    };
    let crowd = scale.of(2000, 2000, 500);
    let fanout =
        |name, connections: usize, bytes: usize, rate_hz: f64, warm_up, count, metrics, targets| Case {
            name,
            title: format!("fan-out of {bytes} bytes to {connections} connections, {rate_hz} a second"),
            kind: CaseKind::Fanout { feed: false, connections, bytes, rate_hz, warm_up, count },
            protocol: Protocol::WebSocket,
            metrics,
            targets,
            only: &[],
            or: &[],
            by_slowest: false,
            usual: ALL.to_vec(),
            again: true,
            pairs: scale.pairs(PAIRS),
        };
    let idle = scale.of(15_000, 15_000, 2000);
    let connecting = scale.of(10_000, 6000, 2000);
    let (readers, paused) = (scale.of(500, 500, 100), scale.of(500, 500, 100));
    let slow_hz = scale.of(1.0, 1.0, 4.0);
    vec![
        echo("echo-1k", ALL, scale.of(1000, 1000, 200)),
        echo("echo-10k", JUDGED, scale.of(10_000, 10_000, 1000)),
        fanout(
            "fanout-1kB",
            crowd,
            1000,
            20.0,
            scale.of(20, 15, 10),
            scale.of(100, 60, 30),
            TIMED,
            vec![
                ratio(Metric::CpuPerMessage, "bare-uring", 1.15),
                ratio(Metric::CpuPerMessage, "uws-cpp", 0.85),
                ratio(Metric::LatencyP50, "uws-cpp", 1.0),
                ratio(Metric::LatencyP99, "uws-cpp", 1.0),
            ],
        ),
        Case {
            usual: LARGEST.to_vec(),
            ..fanout(
                "fanout-165kB",
                crowd,
                165_000,
                1.0,
                scale.of(2, 1, 1),
                scale.of(5, 4, 3),
                LARGE,
                vec![
                    ratio(Metric::CpuPerMessage, "bare-epoll", 0.85),
                    ratio(Metric::CpuPerMessage, "uws-cpp", 0.6),
                    ratio(Metric::PeakMemory, "uws-cpp", 0.1),
                ],
            )
        },
        Case {
            name: "idle",
            title: format!("{idle} idle connections, joined in chat"),
            kind: CaseKind::Idle { feed: false, connections: idle, hold: Duration::ZERO },
            protocol: Protocol::WebSocket,
            metrics: &[Metric::BytesPerConnection],
            targets: vec![bound(Metric::BytesPerConnection, 500.0)],
            only: &[],
            or: &[],
            by_slowest: false,
            usual: HELD.to_vec(),
            again: true,
            pairs: scale.pairs(PAIRS_OF_STEADY),
        },
        Case {
            name: "connect",
            title: format!("connect, handshake, join in chat; {connecting} connections at 2000 a second"),
            kind: CaseKind::Connect { connections: connecting, rate_hz: 2000.0 },
            protocol: Protocol::WebSocket,
            metrics: &[Metric::CpuPerConnection],
            targets: vec![ratio(Metric::CpuPerConnection, "uws-cpp", 1.2)],
            only: &[],
            or: &[],
            by_slowest: false,
            usual: HELD.to_vec(),
            again: true,
            pairs: scale.pairs(PAIRS),
        },
        Case {
            name: "slow",
            title: format!(
                "{paused} clients that never read beside {readers} that do, 165000 bytes {slow_hz} times a second each"
            ),
            kind: CaseKind::Beside {
                connections: readers,
                load: LoadSpec::Fanout {
                    bytes: 165_000,
                    rate_hz: slow_hz,
                    warm_up: scale.of(6, 4, 5),
                    count: scale.of(14, 6, 5),
                    publisher: Publisher::Own,
                },
                how: Misbehaviour::NeverReads,
                misbehaving: paused,
                alone_max: 10,
            },
            protocol: Protocol::WebSocket,
            metrics: &[
                Metric::LatencyShift,
                Metric::LatencyP99,
                Metric::KernelPerSlow,
                Metric::PeakMemory,
                Metric::MemoryGrowth,
            ],
            targets: vec![
                bound(Metric::LatencyShift, 1.5),
                bound(Metric::KernelPerSlow, 200_000.0),
                bound(Metric::MemoryGrowth, 1.0),
            ],
            only: &[],
            or: &[],
            by_slowest: false,
            usual: SLOW.to_vec(),
            again: true,
            pairs: scale.pairs(PAIRS_OF_LONG),
        },
        Case {
            only: DIRECT,
            or: &[],
            by_slowest: false,
            usual: DIRECT.to_vec(),
            again: true,
            pairs: scale.pairs(PAIRS_OF_LONG),
            ..fanout(
                "direct",
                scale.of(100_000, 30_000, 25_000),
                1000,
                0.5,
                scale.of(2, 1, 1),
                scale.of(5, 3, 2),
                &[Metric::CpuPerMessage, Metric::LatencyP99, Metric::PeakMemory],
                vec![ratio(Metric::CpuPerMessage, "bare-direct", 1.15)],
            )
        },
        Case {
            usual: CROWD.to_vec(),
            again: true,
            pairs: scale.pairs(PAIRS_OF_LONG),
            kind: CaseKind::Fanout {
                feed: true,
                connections: scale.of(10_000, 10_000, 2000),
                bytes: 165_000,
                rate_hz: 1.0,
                warm_up: scale.of(4, 3, 1),
                count: scale.of(16, 8, 4),
            },
            ..fanout(
                "crowd",
                scale.of(10_000, 10_000, 2000),
                165_000,
                1.0,
                0,
                0,
                FLAT,
                vec![bound(Metric::Undelivered, 0.0), bound(Metric::MemoryGrowth, 1.0)],
            )
        },
    ]
}
