//! The task of a generator.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{BudgetPlan, ChatPlan, Misbehaviour, Protocol, Tokens, TopicsPlan};
use crate::document::Shape;

/// Connections that one source address opens to one destination: beyond about this many the kernel searches
/// long for a free port.
pub(super) const CONNECTIONS_PER_SOURCE_MAX: usize = 12_000;

/// How late echoes and deliveries may be, where a spec doesn't say.
const LATE: Duration = Duration::from_secs(5);

/// Connections of one generator process, where the limit on descriptors is 20,000.
pub const CONNECTIONS_PER_PROCESS_MAX: usize = 15_000;

/// A generator's task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// Where the server listens.
    pub target: SocketAddr,
    /// Where more of its processes do, which share the connections out among them.
    pub targets_also: Vec<SocketAddr>,
    /// Where the last connection goes, the one that publishes, if not to `target`.
    pub entry: Option<SocketAddr>,
    /// Protocol of the clients.
    pub protocol: Protocol,
    /// Path and query of the WebSocket; of Engine.IO and what is upon it without `EIO` (unless that isn't the usual one) and
    /// `transport`, of SockJS and of older Socket.IO the prefix of the service. `{}` in that of a WebSocket stands for the number
    /// of the connection.
    pub path: String,
    /// The certificate of a server that is spoken to over TLS.
    pub certificate: Option<PathBuf>,
    /// How clients show who they are, where they do.
    pub tokens: Option<Tokens>,
    /// Whether clients of a WebSocket require permessage-deflate, without context takeover. Payloads of a fan-out are JSON then.
    pub deflate: bool,
    /// How many connections, the publisher's included.
    pub connections: usize,
    /// Offset into the source addresses, so that several processes don't share one.
    pub first_source: u8,
    /// Connections begun per second.
    pub connect_rate_hz: f64,
    /// A payload sent on each connection once it is open, such as a subscription. It isn't escaped.
    pub first_message: Option<String>,
    /// How long to watch the connections doing nothing, before the load.
    pub idle: Duration,
    /// How long to wait, after the end of an echo or a fan-out, for what hasn't come yet; what comes later counts as missing.
    pub late: Duration,
    /// Slices between two publications of a fan-out for [`super::Outcome::slices`]; 0: none.
    pub slices: u32,
    /// The document that clients of `websocket` and `stentor-v1` are subscribed to; without, see `crate::payload`.
    pub document: Option<Shape>,
    /// The load.
    pub load: LoadSpec,
    /// The server's processes, whose CPU clocks are read at the ends of each span.
    pub server_pids: Vec<u32>,
    /// Processes that the servers have started. Their CPU counts as the server's, and is also reported separately.
    pub started_pids: Vec<u32>,
    /// The core to be pinned to.
    pub core: Option<usize>,
    /// Whether others on that core go first (nice(1)).
    pub stands_back: bool,
    /// By the least that a client can do, in its place: what the kernel costs.
    pub bare: bool,
    /// `Some` if the process reports its progress: the factor for its messages, so that all processes are included.
    pub live: Option<f64>,
}

impl Spec {
    /// A task on `target` with the usual values.
    pub fn new(target: SocketAddr, path: &str, connections: usize, load: LoadSpec) -> Self {
        Self {
            target,
            targets_also: Vec::new(),
            entry: None,
            protocol: Protocol::WebSocket,
            path: path.to_owned(),
            certificate: None,
            tokens: None,
            deflate: false,
            connections,
            first_source: 0,
            connect_rate_hz: 4000.0,
            first_message: None,
            idle: Duration::from_secs(1),
            late: LATE,
            slices: 0,
            document: None,
            load,
            server_pids: Vec::new(),
            started_pids: Vec::new(),
            core: None,
            stands_back: false,
            bare: false,
            live: None,
        }
    }

    /// The address that connection `number` comes from: spread over 127.0.0.0/8 where the target is there, and another one
    /// in each `round`, so that no reconnection meets what is left of its last one.
    pub(crate) fn source(&self, number: usize, round: u8) -> Option<IpAddr> {
        let loopback = matches!(self.target.ip(), IpAddr::V4(address) if address.is_loopback());
        let nth = number / CONNECTIONS_PER_SOURCE_MAX;
        // Always a chosen address, also for few: with one the port is searched per pair of addresses.
        let last = (2 + usize::from(self.first_source) + nth) % 250;
        loopback.then(|| IpAddr::V4(Ipv4Addr::new(127, 0, round, last as u8)))
    }

    /// How many source addresses its connections take.
    pub(crate) fn sources(&self) -> usize {
        self.connections.div_ceil(CONNECTIONS_PER_SOURCE_MAX)
    }
}

/// The load on open connections. Payloads are as `crate::payload` says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadSpec {
    /// Messages at a fixed total rate, round robin, whatever comes back.
    EchoOpen {
        /// Payload.
        bytes: usize,
        /// Messages per second over all connections. A case without a rate gets a share of the slowest server's.
        #[serde(default)]
        rate_hz: f64,
        /// Before the measurement.
        #[serde(with = "crate::seconds")]
        warm_up: Duration,
        /// The measurement.
        #[serde(with = "crate::seconds")]
        measure: Duration,
    },
    /// On each connection the next message when the echo of the last has come.
    EchoClosed {
        /// Payload.
        bytes: usize,
        /// Before the measurement.
        #[serde(with = "crate::seconds")]
        warm_up: Duration,
        /// The measurement.
        #[serde(with = "crate::seconds")]
        measure: Duration,
    },
    /// One connection publishes, all receive.
    Fanout {
        /// Payload.
        bytes: usize,
        /// Publications per second.
        rate_hz: f64,
        /// Publications before the measurement.
        warm_up: u64,
        /// Publications measured.
        count: u64,
        /// The publisher.
        #[serde(default)]
        publisher: Publisher,
    },
    /// Many topics with few subscribers each.
    Topics(TopicsPlan),
    /// Members of a room that are notified of who joins and leaves.
    Presence {
        /// Clients that leave and join, one after the other; the others stay.
        moving: usize,
        /// So many a second.
        rate_hz: f64,
        /// The measurement.
        #[serde(with = "crate::seconds")]
        measure: Duration,
    },
    /// Each connection receives the versions of the document that it is subscribed to, from any number on.
    Receive {
        /// The measurement.
        #[serde(with = "crate::seconds")]
        measure: Duration,
    },
    /// Everybody in a room says something in turn, faster from step to step.
    Chat(ChatPlan),
    /// Everybody subscribes at once, and is answered once.
    Ask,
    /// Connections stay idle.
    Idle {
        /// How long.
        #[serde(with = "crate::seconds")]
        hold: Duration,
    },
    /// As many connections as so much CPU of the server's lasts for.
    Budget(BudgetPlan),
    /// Everybody's connection is cut at once, and everybody comes back at once; then one publishes to all.
    Reconnect {
        /// How they are cut.
        cut: Cut,
        /// Payload of the publications.
        bytes: usize,
        /// The publisher.
        #[serde(default)]
        publisher: Publisher,
    },
    /// Clients follow a document whose rate another process sets, and the age of their versions is sampled.
    Follow {
        /// How long.
        #[serde(with = "crate::seconds")]
        lasts: Duration,
    },
    /// Misbehaving clients, beside others that the server has to serve.
    Misbehave {
        /// Their misbehaviour.
        how: Misbehaviour,
        /// How long.
        #[serde(with = "crate::seconds")]
        lasts: Duration,
    },
}

impl LoadSpec {
    /// One of the connections publishes to all, so often in a second, so often before the measurement, and so often within it.
    pub fn to_all(bytes: usize, rate_hz: f64, warm_up: u64, count: u64) -> Self {
        Self::Fanout { bytes, rate_hz, warm_up, count, publisher: Publisher::Own }
    }

    /// How long it takes at least, from its begin; zero where that isn't known.
    pub(crate) fn lasts(&self) -> Duration {
        match self {
            Self::EchoOpen { warm_up, measure, .. }
            | Self::EchoClosed { warm_up, measure, .. }
            | Self::Topics(TopicsPlan { warm_up, measure, .. }) => *warm_up + *measure,
            Self::Fanout { rate_hz, warm_up, count, .. } => {
                Duration::from_secs_f64((warm_up + count) as f64 / rate_hz)
            }
            Self::Receive { measure } | Self::Presence { measure, .. } => *measure,
            Self::Idle { hold } => *hold,
            Self::Misbehave { lasts, .. } | Self::Follow { lasts } => *lasts,
            _ => Duration::ZERO,
        }
    }

    /// Number of publications, if it is known.
    pub(crate) fn publications(&self) -> Option<u64> {
        if let Self::Fanout { warm_up, count, .. } = self { Some(warm_up + count) } else { None }
    }

    /// How often all generators wait for each other in the middle of it.
    pub(super) fn meetings(&self) -> usize {
        usize::from(matches!(self, Self::Reconnect { .. }))
    }
}

/// How connections are cut that come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// By FIN, with no word of the protocol.
    Finish,
    /// By RST: they are sent something, don't read it, and are closed.
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
    /// The server itself, from a source of its own that numbers from 0.
    Server,
}
