//! What a generator is told to do.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ChatPlan, Protocol};
use crate::document::Shape;

/// Connections that one source address opens to one destination: beyond about this many the kernel searches
/// long for a free port.
pub(super) const CONNECTIONS_PER_SOURCE_MAX: usize = 12_000;

/// Connections of one generator process, where the limit on descriptors is 20,000.
pub const CONNECTIONS_PER_PROCESS_MAX: usize = 15_000;

/// A generator's task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// Where the server listens.
    pub target: SocketAddr,
    /// What is spoken.
    pub protocol: Protocol,
    /// Path and query of the WebSocket; of Engine.IO and what is upon it without `EIO` and `transport`, of SockJS the
    /// prefix of the service.
    pub path: String,
    /// How many connections, the publisher's and the paused ones included.
    pub connections: usize,
    /// How many of them, the first ones, stop reading once they are open.
    pub paused: usize,
    /// Offset into the source addresses, so that several processes don't share one.
    pub first_source: u8,
    /// Connections begun per second.
    pub connect_rate_hz: f64,
    /// Connections under way at once.
    pub connecting_max: usize,
    /// A text message sent on each connection once it is open, such as a subscription. It is put where a payload is,
    /// and not escaped there.
    pub hello: Option<String>,
    /// The key that frames are masked with.
    pub mask: MaskKey,
    /// How long to watch the connections doing nothing, before the load.
    pub idle: Duration,
    /// What the document is like that clients are subscribed to; without one, documents are as [`crate::payload`] says.
    /// Only `websocket` and `stentor-v1` clients can be subscribed to one.
    pub document: Option<Shape>,
    /// The load.
    pub load: LoadSpec,
    /// The server's process, whose CPU clock is read at the ends of each span.
    pub server_pid: Option<u32>,
    /// The core to be pinned to.
    pub core: Option<usize>,
    /// The driver to stand on.
    pub driver: DriverKind,
}

impl Spec {
    /// A task on `target` with the usual values.
    pub fn new(target: SocketAddr, path: &str, connections: usize, load: LoadSpec) -> Self {
        Self {
            target,
            protocol: Protocol::WebSocket,
            path: path.to_owned(),
            connections,
            paused: 0,
            first_source: 0,
            connect_rate_hz: 4000.0,
            connecting_max: 256,
            hello: None,
            mask: MaskKey::Zero,
            idle: Duration::from_secs(1),
            document: None,
            load,
            server_pid: None,
            core: None,
            driver: DriverKind::Epoll,
        }
    }

    /// The address that connection `number` comes from: spread over 127.0.0.0/8 where the target is there.
    pub(crate) fn source(&self, number: usize) -> Option<IpAddr> {
        let loopback = matches!(self.target.ip(), IpAddr::V4(address) if address.is_loopback());
        let nth = number / CONNECTIONS_PER_SOURCE_MAX;
        // Always a chosen address, also for few: with one the port is searched per pair of addresses.
        let last = (2 + usize::from(self.first_source) + nth) % 250;
        loopback.then(|| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last as u8)))
    }

    /// How many source addresses its connections take.
    pub(crate) fn sources(&self) -> usize {
        self.connections.div_ceil(CONNECTIONS_PER_SOURCE_MAX)
    }
}

/// The load on open connections. Payloads are as [`crate::payload`] says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum LoadSpec {
    /// Messages at a fixed total rate, round robin, whatever comes back.
    EchoOpen {
        /// Payload.
        bytes: usize,
        /// Messages per second over all connections.
        rate_hz: f64,
        /// Before the measurement.
        warm_up: Duration,
        /// The measurement.
        measure: Duration,
    },
    /// On each connection the next message when the echo of the last has come.
    EchoClosed {
        /// Payload.
        bytes: usize,
        /// Before the measurement.
        warm_up: Duration,
        /// The measurement.
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
        /// Who publishes.
        publisher: Publisher,
    },
    /// The server publishes by itself; each connection receives what comes, from any number on.
    Receive {
        /// Payload.
        bytes: usize,
        /// The measurement.
        measure: Duration,
    },
    /// Everybody in a room says something in turn, faster from step to step.
    Chat(ChatPlan),
    /// Everybody subscribes at once, and is answered once.
    Ask,
    /// Nothing is sent.
    Idle {
        /// How long.
        hold: Duration,
    },
    /// Connections that are opened one after the other, at the rate of the spec, and send and are answered from then on,
    /// until the server has used so much CPU.
    Budget {
        /// Payload, which may be too short for a time.
        bytes: usize,
        /// From one message of a connection to its next.
        every: Duration,
        /// The server's CPU time.
        cpu: Duration,
    },
    /// Connections that are opened, shaken hands with, and closed.
    Storm {
        /// How many.
        total: usize,
    },
}

/// Who publishes in a fan-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Publisher {
    /// The last one of these connections.
    Own,
    /// A connection of another process, which also reads the clocks.
    Elsewhere,
    /// The server itself, from a source of its own that numbers from 0.
    Server,
}

/// The masking key of the generator's frames (RFC 6455 section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MaskKey {
    /// Zero: valid, and costs neither side more than it must.
    Zero,
    /// This one.
    Fixed([u8; 4]),
}

impl MaskKey {
    pub(crate) fn bytes(self) -> [u8; 4] {
        match self {
            Self::Zero => [0; 4],
            Self::Fixed(key) => key,
        }
    }
}

/// The driver under a generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum DriverKind {
    /// Edge-triggered epoll.
    Epoll,
    /// io_uring.
    #[value(name = "io_uring")]
    IoUring,
}
