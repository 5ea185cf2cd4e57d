//! Sizing: the cores, memory and nodes that a load needs, computed from measured costs (`costs.toml`).
//!
//! The CPU of a load is a sum of rates times costs, scaled by the calibration of the machine. Memory is a sum of counts times sizes.
//! The number of nodes is the smallest one that holds both with the reserves, including what more than one node costs.
//!
//! Deliberately absent: latency, which no sum predicts, and bursts, for which the reserve is there.

mod calibration;
mod costs;
mod units;

use serde::Serialize;

pub use self::calibration::bare_echo;
pub use self::costs::{Costs, MEASURED_HERE, Source};
pub use self::units::{bytes, count, rate, share};
use crate::Error;

/// Share of the memory that stays free: send buffers of slow clients, bursts, fragmentation.
pub const MEMORY_RESERVE: f64 = 0.25;
/// Maximum number of nodes of a plan.
const NODES_MAX: u32 = 1_000;
/// Bytes of a document's delta, with its frame (docs/benchmarks.md: 20 changes of a document of 165 kB).
const DELTA_BYTES: f64 = 1_300.0;
/// Bytes of a message in front of the payload on the way to a client: frame, packet and event name, and the headers of TCP and IP.
const ENVELOPE_BYTES: f64 = 80.0;
/// Size of the messages with which `deliver_us` was measured.
const MEASURED_BYTES: f64 = 100.0;

/// Size from which messages are compressed: the default of `deflate.bytes_min`.
const COMPRESSED_BYTES_MIN: f64 = 512.0;

/// A load on a server or a cluster.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Load {
    /// Number of open connections.
    pub connections: f64,
    /// The clients' protocol, a name of [`Costs::protocols`].
    pub protocol: String,
    /// `true` if Stentor does TLS.
    pub tls: bool,
    /// `true` if WebSockets use permessage-deflate.
    pub deflate: bool,
    /// Messages that clients send, per second.
    pub messages_hz: f64,
    /// Clients that receive each message.
    pub recipients: f64,
    /// Size of a message.
    pub bytes: f64,
    /// New connections per second.
    pub connects_hz: f64,
    /// Number of rooms.
    pub rooms: f64,
    /// Documents that Stentor fetches from an API.
    pub feeds: Feeds,
}

/// Documents that Stentor fetches from an API. Each connection follows one of them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Feeds {
    /// Number of documents.
    pub count: f64,
    /// Size of a document.
    pub bytes: f64,
    /// New versions of each document per second.
    pub versions_hz: f64,
}

/// The machines that carry a load.
#[derive(Clone, Debug, Serialize)]
pub struct Machines {
    /// Cores of a node.
    pub cores: f64,
    /// Memory of a node, in bytes.
    pub memory_bytes: f64,
    /// Share of the CPU that stays free, 0 to 1.
    pub reserve: f64,
    /// CPU of the bare echo on these machines, divided by that on the machine of the figures.
    pub calibration: f64,
    /// The engine between several nodes, a name of [`Costs::engines`].
    pub engine: String,
}

/// A part of a sum.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// The work or the data.
    pub name: &'static str,
    /// Cores, or bytes.
    pub amount: f64,
}

/// The resource that determines the number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The cores.
    Cpu,
    /// The memory.
    Memory,
}

/// The load on the engine of a cluster.
#[derive(Clone, Debug, Serialize)]
pub struct EngineLoad {
    /// Messages that nodes publish, per second.
    pub published_hz: f64,
    /// Messages that the engine sends to nodes, per second.
    pub sent_hz: f64,
    /// Bytes through the engine, per second.
    pub bytes_hz: f64,
    /// Cores that the engine uses. Redis has one.
    pub cores: f64,
}

/// The result of [`plan`].
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Number of nodes.
    pub nodes: u32,
    /// The resource that determines the number of nodes.
    pub limit: Limit,
    /// Cores of all nodes together, with the reserve.
    pub cores: f64,
    /// CPU of all nodes together, in cores, without the reserve.
    pub busy_cores: f64,
    /// Memory of all nodes together, with the reserve.
    pub memory_bytes: f64,
    /// Memory of all nodes together, without the reserve.
    pub used_bytes: f64,
    /// Bytes per second to clients, headers included.
    pub network_bytes_hz: f64,
    /// Parts of `busy_cores`.
    pub cpu: Vec<Part>,
    /// Parts of `used_bytes`.
    pub memory: Vec<Part>,
    /// The engine's load. `None` for one node.
    pub engine: Option<EngineLoad>,
}

/// Computes the smallest number of nodes that carry `load`, and what it uses on them.
pub fn plan(load: &Load, machines: &Machines, costs: &Costs) -> Result<Plan, Error> {
    let sums = Sums { load, machines, costs };
    let mut nodes = 1;
    loop {
        let (cpu, memory) = (sums.cpu(nodes)?, sums.memory(nodes)?);
        let total = |parts: &[Part]| parts.iter().map(|part| part.amount).sum::<f64>();
        let (busy_cores, used_bytes) = (total(&cpu), total(&memory));
        let cores = busy_cores / (1.0 - machines.reserve);
        let memory_bytes = used_bytes / (1.0 - MEMORY_RESERVE);
        let (of_cpu, of_memory) = (cores / machines.cores, memory_bytes / machines.memory_bytes);
        let limit = if of_cpu >= of_memory { Limit::Cpu } else { Limit::Memory };
        let needed = of_cpu.max(of_memory).ceil().max(1.0);
        if needed <= f64::from(nodes) {
            return Ok(Plan {
                nodes,
                limit,
                cores,
                busy_cores,
                memory_bytes,
                used_bytes,
                network_bytes_hz: sums.network_bytes_hz(),
                cpu,
                memory,
                engine: if nodes > 1 { Some(sums.engine(nodes)?) } else { None },
            });
        }
        if needed > f64::from(NODES_MAX) {
            return Err(Error::Usage(sums.too_much(limit)));
        }
        nodes = needed as u32;
    }
}

/// Number of `places` in which at least one of `recipients` is, if each is at a random place.
fn places_with_recipients(places: f64, recipients: f64) -> f64 {
    places * (1.0 - (1.0 - 1.0 / places).powf(recipients))
}

/// The sums of a load for some number of nodes.
struct Sums<'a> {
    load: &'a Load,
    machines: &'a Machines,
    costs: &'a Costs,
}

impl Sums<'_> {
    /// Nodes that receive a message through the engine. The publishing node is counted by its own cost.
    fn other_nodes(&self, nodes: u32) -> f64 {
        let nodes = f64::from(nodes);
        places_with_recipients(nodes, self.load.recipients) * (nodes - 1.0) / nodes
    }

    fn deliveries_hz(&self) -> f64 {
        self.load.messages_hz * self.load.recipients
    }

    /// Versions of documents that clients receive, per second.
    fn updates_hz(&self) -> f64 {
        if self.load.feeds.count > 0.0 { self.load.connections * self.load.feeds.versions_hz } else { 0.0 }
    }

    /// The parts of the CPU, in cores.
    fn cpu(&self, nodes: u32) -> Result<Vec<Part>, Error> {
        let (load, costs) = (self.load, self.costs);
        let protocol = costs.protocol(&load.protocol)?;
        let of_tls = |us: f64| if load.tls { us } else { 0.0 };
        // A message costs more if it is longer than those of the figures.
        let bytes_us = |bytes: f64| {
            let kilobytes = (bytes - MEASURED_BYTES).max(0.0) / 1e3;
            kilobytes * (*costs.process.kilobyte_us + of_tls(*costs.tls.kilobyte_us))
        };
        let delivery_us = |bytes: f64| *protocol.deliver_us + bytes_us(bytes) + of_tls(*costs.tls.message_us);
        // Received, and delivered once.
        let message_us = *protocol.message_us + bytes_us(load.bytes) + of_tls(2.0 * *costs.tls.message_us);
        let further = (load.recipients - 1.0).max(0.0);
        let feeds = load.feeds;
        let version_us = *costs.feeds.version_us + feeds.bytes / 1e3 * *costs.feeds.kilobyte_us;
        let connect_us = *protocol.connect_us + of_tls(*costs.tls.connect_us);
        let deflate_us = match load.deflate && load.bytes >= COMPRESSED_BYTES_MIN {
            true => *costs.deflate.publication_us + load.recipients * *costs.deflate.delivery_us,
            false => 0.0,
        };
        let mut works = vec![
            ("messages", load.messages_hz, message_us),
            ("further recipients", load.messages_hz * further, delivery_us(load.bytes)),
            ("compression", load.messages_hz, deflate_us),
            ("versions of feeds", feeds.count * feeds.versions_hz, version_us),
            ("updates of feeds delivered", self.updates_hz(), delivery_us(DELTA_BYTES.min(feeds.bytes))),
            ("connecting", load.connects_hz, connect_us),
            ("heartbeats", load.connections, *protocol.idle_us),
        ];
        let cores = self.machines.cores;
        if cores > 1.0 {
            let other_cores = places_with_recipients(cores, load.recipients) * (cores - 1.0) / cores;
            works.push(("messages between cores", load.messages_hz * other_cores, *costs.process.hop_us));
        }
        if nodes > 1 {
            works.push(("publishing to the engine", load.messages_hz, *costs.cluster.publish_us));
            let received_hz = load.messages_hz * self.other_nodes(nodes);
            works.push(("receiving from the engine", received_hz, *costs.cluster.receive_us));
        }
        let parts = works
            .into_iter()
            .map(|(name, hz, us)| Part { name, amount: hz * us / 1e6 * self.machines.calibration });
        Ok(parts.filter(|part| part.amount > 0.0).collect())
    }

    /// The parts of the memory, in bytes.
    fn memory(&self, nodes: u32) -> Result<Vec<Part>, Error> {
        let (load, costs) = (self.load, self.costs);
        let protocol = costs.protocol(&load.protocol)?;
        let connections = load.connections;
        let of_tls = if load.tls { *costs.tls.bytes } else { 0.0 };
        let document_bytes = load.feeds.bytes + *costs.feeds.bytes;
        let interest_bytes = if nodes > 1 { *costs.cluster.interest_bytes } else { 0.0 };
        let parts = [
            ("connections", connections * *protocol.bytes),
            ("TLS", connections * of_tls),
            ("the kernel's sockets", connections * *costs.process.socket_bytes),
            ("rooms", load.rooms * (*costs.process.room_bytes + interest_bytes)),
            ("feeds", load.feeds.count * document_bytes),
            ("processes", f64::from(nodes) * *costs.process.bytes),
        ];
        let parts = parts.map(|(name, amount)| Part { name, amount });
        Ok(parts.into_iter().filter(|part| part.amount > 0.0).collect())
    }

    fn network_bytes_hz(&self) -> f64 {
        let update_bytes = DELTA_BYTES.min(self.load.feeds.bytes);
        self.deliveries_hz() * (self.load.bytes + ENVELOPE_BYTES)
            + self.updates_hz() * (update_bytes + ENVELOPE_BYTES)
    }

    fn engine(&self, nodes: u32) -> Result<EngineLoad, Error> {
        let engine = self.costs.engine(&self.machines.engine)?;
        let published_hz = self.load.messages_hz;
        // The publishing node also receives its own message.
        let copies = self.other_nodes(nodes) + 1.0;
        let us = *engine.message_us + copies * *engine.node_us;
        Ok(EngineLoad {
            published_hz,
            sent_hz: published_hz * copies,
            bytes_hz: published_hz * (1.0 + copies) * (self.load.bytes + ENVELOPE_BYTES),
            cores: published_hz * us / 1e6 * self.machines.calibration,
        })
    }

    /// The reason why a load has no plan.
    fn too_much(&self, limit: Limit) -> String {
        let what = match limit {
            Limit::Cpu => "CPU: each node with members receives each message, so more nodes don't help",
            Limit::Memory => "memory",
        };
        format!("this needs more than {NODES_MAX} nodes because of the {what}. Larger nodes may carry it")
    }
}

#[cfg(test)]
mod tests;
