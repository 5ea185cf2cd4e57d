//! The task of a generator.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{BudgetPlan, ChatPlan, FanoutPlan, Misbehaviour, Protocol, Tokens, TopicsPlan};
use crate::document::Shape;

/// Maximum number of connections from one source address to one destination. Above this, the kernel's search for a free
/// port becomes slow.
pub(super) const CONNECTIONS_PER_SOURCE_MAX: usize = 12_000;

/// Default time to wait for late echoes and deliveries.
const LATE: Duration = Duration::from_secs(5);

/// Maximum number of connections of one generator process, with a limit of 20,000 descriptors.
pub const CONNECTIONS_PER_PROCESS_MAX: usize = 15_000;

/// A generator's task.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Spec {
    /// The addresses of the server's processes, at least one, which share the connections.
    pub targets: Vec<SocketAddr>,
    /// The address for the last connection, which publishes, if it isn't the first of `targets`.
    pub entry: Option<SocketAddr>,
    /// Protocol of the clients.
    pub protocol: Protocol,
    /// Path and query of the WebSocket. For Engine.IO and protocols over it, it has no `transport`, and no `EIO` unless
    /// that differs from the usual one. For SockJS and older Socket.IO, it is the prefix of the service. `{}` in the
    /// path of a WebSocket is replaced by the number of the connection.
    pub path: String,
    /// The server's certificate, if it uses TLS.
    pub certificate: Option<PathBuf>,
    /// The tokens of clients, if they need them.
    pub tokens: Option<Tokens>,
    /// `true` if clients of a WebSocket require permessage-deflate, without context takeover. Payloads of a fan-out are
    /// JSON then.
    pub deflate: bool,
    /// Number of connections, including the publisher's.
    pub connections: usize,
    /// Offset of the source addresses, so that several processes have different ones.
    pub first_source: u8,
    /// Connections started per second.
    pub connect_rate_hz: f64,
    /// A payload sent on each connection once it is open, such as a subscription. It isn't escaped.
    pub first_message: Option<String>,
    /// Duration of the idle measurement before the load.
    pub idle: Duration,
    /// Time to wait for missing messages after an echo or a fan-out. Later ones count as missing.
    pub late: Duration,
    /// Number of slices between two publications of a fan-out, for [`super::Outcome::slices`]. 0 for none.
    pub slices: u32,
    /// The document that clients of `websocket` and `stentor-v1` are subscribed to. Without one, payloads are those of
    /// `crate::payload`.
    pub document: Option<Shape>,
    /// The load.
    pub load: LoadSpec,
    /// The server's processes, whose CPU clocks are read at the ends of each span.
    pub server_pids: Vec<u32>,
    /// Processes that the servers have started. Their CPU counts as the server's, and is also reported separately.
    pub started_pids: Vec<u32>,
    /// The core to which the generator is pinned.
    pub core: Option<usize>,
    /// `true` if other processes on that core have priority (nice(1)).
    pub stands_back: bool,
    /// `true` to use the minimal client instead, to measure the kernel's cost.
    pub bare: bool,
    /// The factor for the process's messages in its progress reports, so that all processes are included. `None`
    /// without reports.
    pub live: Option<f64>,
}

impl Spec {
    /// A task for `target` with the default values.
    pub fn new(target: SocketAddr, path: &str, connections: usize, load: LoadSpec) -> Self {
        Self {
            targets: vec![target],
            path: path.to_owned(),
            connections,
            load,
            connect_rate_hz: 4000.0,
            idle: Duration::from_secs(1),
            late: LATE,
            ..Self::default()
        }
    }

    /// The address of the server's first process.
    pub(crate) fn target(&self) -> SocketAddr {
        self.targets[0]
    }

    /// The source address of connection `number`. If the target is in 127.0.0.0/8, sources are spread over it, and
    /// differ in each `round`, so that a reconnection doesn't meet the remains of its predecessor.
    pub(crate) fn source(&self, number: usize, round: u8) -> Option<IpAddr> {
        let loopback = matches!(self.target().ip(), IpAddr::V4(address) if address.is_loopback());
        let nth = number / CONNECTIONS_PER_SOURCE_MAX;
        // Few connections also get a chosen address: with it, the kernel searches the port per pair of addresses.
        let last = (2 + usize::from(self.first_source) + nth) % 250;
        loopback.then(|| IpAddr::V4(Ipv4Addr::new(127, 0, round, last as u8)))
    }

    /// Number of source addresses for the connections.
    pub(crate) fn sources(&self) -> usize {
        self.connections.div_ceil(CONNECTIONS_PER_SOURCE_MAX)
    }
}

/// The load on open connections. Payloads have the layout of `crate::payload`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadSpec {
    /// Messages at a fixed total rate over the connections in turn, independent of answers.
    EchoOpen {
        /// Payload size.
        bytes: usize,
        /// Messages per second over all connections. A case without a rate gets a share of the slowest server's.
        #[serde(default)]
        rate_hz: f64,
        /// Duration of the warm-up.
        #[serde(with = "crate::seconds")]
        warm_up: Duration,
        /// Duration of the measurement.
        #[serde(with = "crate::seconds")]
        measure: Duration,
    },
    /// On each connection, the next message is sent after the echo of the last.
    EchoClosed {
        /// Payload size.
        bytes: usize,
        /// Duration of the warm-up.
        #[serde(with = "crate::seconds")]
        warm_up: Duration,
        /// Duration of the measurement.
        #[serde(with = "crate::seconds")]
        measure: Duration,
    },
    /// One connection publishes, all receive.
    Fanout(FanoutPlan),
    /// Many topics with few subscribers each.
    Topics(TopicsPlan),
    /// Members of a room are notified of others that join and leave.
    Presence {
        /// Number of clients that leave and join, one after the other. The others stay.
        moving: usize,
        /// Changes per second.
        rate_hz: f64,
        /// Duration of the measurement.
        #[serde(with = "crate::seconds")]
        measure: Duration,
    },
    /// Each connection receives the versions of its document, starting with any number.
    Receive {
        /// Duration of the warm-up.
        #[serde(default, with = "crate::seconds")]
        warm_up: Duration,
        /// Duration of the measurement.
        #[serde(with = "crate::seconds")]
        measure: Duration,
    },
    /// The clients of a room take turns in sending, faster in each step.
    Chat(ChatPlan),
    /// All clients subscribe at once, and each receives one response.
    #[default]
    Ask,
    /// Connections stay idle.
    Idle {
        /// Duration.
        #[serde(with = "crate::seconds")]
        hold: Duration,
    },
    /// Opens connections until the server has used a CPU budget.
    Budget(BudgetPlan),
    /// All connections are cut at once and all clients reconnect at once. Then one client publishes to all.
    Reconnect {
        /// The way in which the connections are cut.
        cut: Cut,
        /// Payload size of the publications.
        bytes: usize,
        /// The publisher.
        #[serde(default)]
        publisher: Publisher,
    },
    /// Clients follow a document whose rate another process sets, and the age of their versions is sampled.
    Follow {
        /// Duration.
        #[serde(with = "crate::seconds")]
        lasts: Duration,
    },
    /// Misbehaving clients, beside others that the server must serve.
    Misbehave {
        /// The misbehaviour.
        how: Misbehaviour,
        /// Duration.
        #[serde(with = "crate::seconds")]
        lasts: Duration,
    },
}

impl LoadSpec {
    /// The load's minimum duration. Zero if unknown.
    pub(crate) fn lasts(&self) -> Duration {
        match self {
            Self::EchoOpen { warm_up, measure, .. }
            | Self::EchoClosed { warm_up, measure, .. }
            | Self::Receive { warm_up, measure }
            | Self::Topics(TopicsPlan { warm_up, measure, .. }) => *warm_up + *measure,
            Self::Fanout(FanoutPlan { rate_hz, warm_up, count, .. }) => {
                Duration::from_secs_f64((warm_up + count) as f64 / rate_hz)
            }
            Self::Presence { measure, .. } => *measure,
            Self::Idle { hold } => *hold,
            Self::Misbehave { lasts, .. } | Self::Follow { lasts } => *lasts,
            _ => Duration::ZERO,
        }
    }

    /// Number of times that all generators wait for each other during the load.
    pub(super) fn meetings(&self) -> usize {
        usize::from(matches!(self, Self::Reconnect { .. }))
    }
}

/// The way in which connections are cut before a reconnection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// The connections end by FIN, without a closing message.
    Finish,
    /// The connections end by RST: the generator closes them without reading data that was sent to them.
    Reset,
}

/// The publisher of a fan-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Publisher {
    /// The last one of these connections.
    #[default]
    Own,
    /// A connection of another process, which also reads the clocks.
    Elsewhere,
    /// The server itself, from its own source, with numbers from 0.
    Server,
}
