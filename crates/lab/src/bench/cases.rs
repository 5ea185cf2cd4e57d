//! The cases of the first table, and what is to be reached.

use std::time::Duration;

use super::{KNOWN, Metric};
use crate::generator::Protocol;

/// Something to compare servers by.
#[derive(Clone, Debug)]
pub struct Case {
    /// For `--cases`.
    pub name: &'static str,
    /// For people.
    pub title: String,
    /// What happens.
    pub kind: CaseKind,
    /// What the clients speak.
    pub protocol: Protocol,
    /// What is reported, the decisive one first.
    pub metrics: &'static [Metric],
    /// What is to be reached by the first server.
    pub targets: Vec<Target>,
    /// Who can take part; empty: everybody.
    pub only: &'static [&'static str],
    /// Who takes part where nobody is named (`--servers`), the judged one first.
    pub usual: &'static [&'static str],
    /// Runs of each server where no number is given (`--pairs`): six, fewer where a run is long and the targets
    /// are bounds or far off.
    pub pairs: usize,
}

impl Case {
    /// Whether the server of this name takes part: not where it can't or doesn't speak what the clients do, and one that is made for more
    /// connections than descriptors only there.
    pub fn admits(&self, server: &str) -> bool {
        if !KNOWN.iter().any(|known| known.name == server && known.admits(self.protocol)) {
            return false;
        }
        if self.only.is_empty() { server != "bare-direct" } else { self.only.contains(&server) }
    }
}

/// What happens in a case.
#[derive(Clone, Debug)]
pub enum CaseKind {
    /// Open-loop echo.
    Echo {
        /// How many.
        connections: usize,
        /// Payload.
        bytes: usize,
        /// Messages per second; set from the reference's saturation.
        rate_hz: f64,
        /// Before the measurement.
        warm_up: Duration,
        /// The measurement.
        measure: Duration,
    },
    /// The next message of each connection when the echo of its last has come.
    EchoClosed {
        /// How many.
        connections: usize,
        /// Payload.
        bytes: usize,
        /// Before the measurement.
        warm_up: Duration,
        /// The measurement.
        measure: Duration,
    },
    /// One connection publishes to all.
    Fanout {
        /// Whether Stentor gets what it publishes from an HTTP API instead.
        feed: bool,
        /// How many.
        connections: usize,
        /// Payload.
        bytes: usize,
        /// Publications per second.
        rate_hz: f64,
        /// Publications before the measurement.
        warm_up: u64,
        /// Publications measured.
        count: u64,
    },
    /// Connections that do nothing, joined in chat.
    Idle {
        /// How many.
        connections: usize,
        /// How long their cost is looked at; zero: not at all.
        hold: Duration,
    },
    /// Connecting at a fixed rate, in chat.
    Connect {
        /// How many.
        connections: usize,
        /// Per second.
        rate_hz: f64,
    },
    /// A fan-out of which some never read, and before it the same without them.
    Slow {
        /// How many read.
        readers: usize,
        /// How many don't.
        paused: usize,
        /// Payload.
        bytes: usize,
        /// Publications per second.
        rate_hz: f64,
        /// Publications before the measurement.
        warm_up: u64,
        /// Publications measured.
        count: u64,
    },
}

/// A figure to be reached: the metric of the first server, divided by that of `against` where there is one,
/// is at most `at_most`.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Which figure.
    pub metric: Metric,
    /// The other server; `None`: the figure itself.
    pub against: Option<&'static str>,
    /// The bound, in the metric's unit where it stands alone.
    pub at_most: f64,
}

const fn ratio(metric: Metric, against: &'static str, at_most: f64) -> Target {
    Target { metric, against: Some(against), at_most }
}

const fn bound(metric: Metric, at_most: f64) -> Target {
    Target { metric, against: None, at_most }
}

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

/// What is upon WebSocket, beside the same server on nothing but that.
const SOCKET_IO: &[&str] = &["stentor-epoll", "stentor-epoll-ws", "socketio4", "socketioxide"];
const POLLED: &[&str] = &["stentor-epoll", "socketio4", "socketioxide"];

const TIMED: &[Metric] = &[Metric::CpuPerMessage, Metric::LatencyP50, Metric::LatencyP99];
const LARGE: &[Metric] = &[Metric::CpuPerMessage, Metric::LatencyP50, Metric::LatencyP99, Metric::PeakMemory];
const FLAT: &[Metric] = &[
    Metric::CpuPerMessage,
    Metric::LatencyP99,
    Metric::PeakMemory,
    Metric::MemoryGrowth,
    Metric::Undelivered,
];

/// "The same" system calls per delivery: what timers and a busy turn's end add stays below a fiftieth.
const SAME_CALLS: f64 = 1.02;

/// Runs of each server for a claim, and of cases that are long. All together end within 70 minutes.
const PAIRS: usize = 6;
/// Of figures that repeat to a percent.
const PAIRS_OF_STEADY: usize = 3;
const PAIRS_OF_LONG: usize = 2;

/// All cases; `quick` makes them small and short.
pub fn cases(quick: bool) -> Vec<Case> {
    let seconds = |long: f64, short: f64| Duration::from_secs_f64(if quick { short } else { long });
    let number = |full: usize, small: usize| if quick { small } else { full };
    let times = |full: u64, small: u64| if quick { small } else { full };
    let echo = |name, usual, connections: usize| Case {
        name,
        title: format!("echo of 64 bytes on {connections} connections, open loop"),
        kind: CaseKind::Echo {
            connections,
            bytes: 64,
            rate_hz: 0.0,
            warm_up: seconds(1.5, 0.5),
            measure: seconds(5.0, 1.5),
        },
        protocol: Protocol::WebSocket,
        metrics: TIMED,
        targets: ECHO.to_vec(),
        only: &[],
        usual,
        pairs: PAIRS,
    };
    let crowd = number(2000, 500);
    let fanout =
        |name, connections: usize, bytes: usize, rate_hz: f64, warm_up, count, metrics, targets| Case {
            name,
            title: format!("fan-out of {bytes} bytes to {connections} connections, {rate_hz} a second"),
            kind: CaseKind::Fanout { feed: false, connections, bytes, rate_hz, warm_up, count },
            protocol: Protocol::WebSocket,
            metrics,
            targets,
            only: &[],
            usual: ALL,
            pairs: PAIRS,
        };
    let idle = number(15_000, 2000);
    let connecting = number(10_000, 2000);
    let (readers, paused) = (number(500, 100), number(500, 100));
    let slow_hz = if quick { 4.0 } else { 1.0 };
    let mut cases = vec![
        echo("echo-1k", ALL, number(1000, 200)),
        echo("echo-10k", JUDGED, number(10_000, 1000)),
        fanout(
            "fanout-1kB",
            crowd,
            1000,
            20.0,
            times(20, 10),
            times(100, 30),
            TIMED,
            vec![
                ratio(Metric::CpuPerMessage, "bare-uring", 1.15),
                ratio(Metric::CpuPerMessage, "uws-cpp", 0.85),
                ratio(Metric::LatencyP50, "uws-cpp", 1.0),
                ratio(Metric::LatencyP99, "uws-cpp", 1.0),
            ],
        ),
        Case {
            usual: LARGEST,
            ..fanout(
                "fanout-165kB",
                crowd,
                165_000,
                1.0,
                times(2, 1),
                times(5, 3),
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
            kind: CaseKind::Idle { connections: idle, hold: Duration::ZERO },
            protocol: Protocol::WebSocket,
            metrics: &[Metric::BytesPerConnection],
            targets: vec![bound(Metric::BytesPerConnection, 500.0)],
            only: &[],
            usual: HELD,
            pairs: PAIRS_OF_STEADY,
        },
        Case {
            name: "connect",
            title: format!("connect, handshake, join in chat; {connecting} connections at 2000 a second"),
            kind: CaseKind::Connect { connections: connecting, rate_hz: 2000.0 },
            protocol: Protocol::WebSocket,
            metrics: &[Metric::CpuPerConnection],
            targets: vec![ratio(Metric::CpuPerConnection, "uws-cpp", 1.2)],
            only: &[],
            usual: HELD,
            pairs: PAIRS,
        },
        Case {
            name: "slow",
            title: format!(
                "{paused} clients that never read beside {readers} that do, 165000 bytes {slow_hz} times a second each"
            ),
            kind: CaseKind::Slow {
                readers,
                paused,
                bytes: 165_000,
                rate_hz: slow_hz,
                warm_up: times(6, 5),
                count: times(14, 5),
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
            usual: SLOW,
            pairs: PAIRS_OF_LONG,
        },
        Case {
            only: DIRECT,
            usual: DIRECT,
            pairs: PAIRS_OF_LONG,
            ..fanout(
                "direct",
                number(100_000, 25_000),
                1000,
                0.5,
                times(2, 1),
                times(5, 2),
                &[Metric::CpuPerMessage, Metric::LatencyP99, Metric::PeakMemory],
                vec![ratio(Metric::CpuPerMessage, "bare-direct", 1.15)],
            )
        },
        Case {
            usual: CROWD,
            pairs: PAIRS_OF_LONG,
            kind: CaseKind::Fanout {
                feed: true,
                connections: number(10_000, 2000),
                bytes: 165_000,
                rate_hz: 1.0,
                warm_up: times(4, 1),
                count: times(16, 4),
            },
            ..fanout(
                "crowd",
                number(10_000, 2000),
                165_000,
                1.0,
                0,
                0,
                FLAT,
                vec![bound(Metric::Undelivered, 0.0), bound(Metric::MemoryGrowth, 1.0)],
            )
        },
    ];
    cases.extend(socket_io(quick));
    cases
}

/// The cases of Socket.IO clients.
fn socket_io(quick: bool) -> Vec<Case> {
    let seconds = |long: f64, short: f64| Duration::from_secs_f64(if quick { short } else { long });
    let number = |full: usize, small: usize| if quick { small } else { full };
    let times = |full: u64, small: u64| if quick { small } else { full };
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
    let crowd = number(2000, 300);
    let echoing = number(1000, 200);
    let idle = number(10_000, 1000);
    let connecting = number(5000, 1000);
    let polling = number(1300, 300);
    // The interval of pings, so that each connection has one.
    let hold = seconds(25.0, 2.0);
    vec![
        case(
            "io-fanout",
            format!(
                "fan-out of an event of 1000 bytes to {crowd} Socket.IO clients over WebSocket, 10 a second"
            ),
            fanout(crowd, 10.0, times(20, 5), times(60, 15)),
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
                warm_up: seconds(2.0, 0.5),
                measure: seconds(5.0, 1.5),
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
                CaseKind::Idle { connections: idle, hold },
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
                fanout(polling, 1.0, times(5, 2), times(10, 3)),
                &[Metric::CpuPerMessage, Metric::LatencyP50, Metric::LatencyP99, Metric::Undelivered],
                vec![ratio(Metric::CpuPerMessage, "socketio4", 0.25), bound(Metric::Undelivered, 0.0)],
            )
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_name_what_there_is() {
        for case in cases(false).iter().chain(&cases(true)) {
            for target in &case.targets {
                assert!(case.metrics.contains(&target.metric), "{}: {:?}", case.name, target.metric);
                if let Some(against) = target.against {
                    assert!(case.admits(against), "{}: {against}", case.name);
                    assert!(case.usual.contains(&against), "{}: {against}", case.name);
                }
            }
            for server in case.usual {
                assert!(case.admits(server), "{}: {server}", case.name);
                assert!(KNOWN.iter().any(|known| known.name == *server), "{}: {server}", case.name);
            }
        }
    }
}
