//! The measured costs, with their sources.

use std::collections::BTreeMap;
use std::ops::Deref;

use serde::Deserialize;

use crate::Error;

/// The source of figures that `tests/sizing.rs` measures and writes.
pub const MEASURED_HERE: &str = "sizing";

/// A figure, and the name of its source.
#[derive(Clone, Debug, Deserialize)]
pub struct Figure(f64, String);

impl Figure {
    /// The name of its source in [`Costs::sources`].
    pub fn source(&self) -> &str {
        &self.1
    }
}

impl Deref for Figure {
    type Target = f64;

    fn deref(&self) -> &f64 {
        &self.0
    }
}

/// A session of measurements.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The day.
    pub date: String,
    /// The machine, the method and the page.
    pub about: String,
}

/// The costs of a protocol. CPU is in microseconds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProtocolCosts {
    /// Receiving a message of 64 bytes, and delivering it to one client, as in an echo.
    pub message_us: Figure,
    /// Delivering a message of 100 bytes to a further recipient.
    pub deliver_us: Figure,
    /// Opening a connection, and entering.
    pub connect_us: Figure,
    /// Heartbeats of an idle connection, per second.
    pub idle_us: Figure,
    /// User memory of an idle connection, with its session and its membership in a room.
    pub bytes: Figure,
}

/// What TLS adds to the costs of a protocol.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsCosts {
    /// Each message, in either direction.
    pub message_us: Figure,
    /// Each kilobyte that is delivered.
    pub kilobyte_us: Figure,
    /// A full handshake with an ECDSA key (P-256).
    pub connect_us: Figure,
    /// Memory of a connection.
    pub bytes: Figure,
}

/// What permessage-deflate adds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeflateCosts {
    /// Compressing a message once for all recipients.
    pub publication_us: Figure,
    /// Each delivery.
    pub delivery_us: Figure,
}

/// Costs of feeds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedCosts {
    /// Fetching a version and comparing it, without its bytes.
    pub version_us: Figure,
    /// The same, for each kilobyte of the document.
    pub kilobyte_us: Figure,
    /// Memory of a feed besides its document.
    pub bytes: Figure,
}

/// Costs of a process that don't depend on the protocol.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessCosts {
    /// Each kilobyte that is delivered, in microseconds.
    pub kilobyte_us: Figure,
    /// A publication's message to another core that has recipients.
    pub hop_us: Figure,
    /// Resident memory of a process without clients.
    pub bytes: Figure,
    /// The kernel's memory of a connection.
    pub socket_bytes: Figure,
    /// Memory of a room and a membership.
    pub room_bytes: Figure,
}

/// What several nodes add.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterCosts {
    /// Publishing a message to the engine, on the publishing node.
    pub publish_us: Figure,
    /// Receiving a message from the engine, on each other node with members.
    pub receive_us: Figure,
    /// Memory of the interest in a room.
    pub interest_bytes: Figure,
}

/// Costs of an engine, on its own machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineCosts {
    /// A published message.
    pub message_us: Figure,
    /// Sending a message to a node.
    pub node_us: Figure,
}

/// The content of `costs.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// CPU of the bare echo on the machine of the source [`MEASURED_HERE`], in microseconds.
    pub calibration_us: Figure,
    /// Sessions of measurements, by name.
    pub sources: BTreeMap<String, Source>,
    /// Protocols, by name.
    pub protocols: BTreeMap<String, ProtocolCosts>,
    /// What TLS adds.
    pub tls: TlsCosts,
    /// What permessage-deflate adds.
    pub deflate: DeflateCosts,
    /// Costs of feeds.
    pub feeds: FeedCosts,
    /// Costs of a process.
    pub process: ProcessCosts,
    /// What several nodes add.
    pub cluster: ClusterCosts,
    /// Engines, by name.
    pub engines: BTreeMap<String, EngineCosts>,
}

impl Costs {
    /// The committed figures.
    pub fn committed() -> Result<Self, Error> {
        Self::parse(include_str!("costs.toml"))
    }

    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        toml::from_str(text).map_err(|error| Error::Usage(format!("the figures of `size`: {error}")))
    }

    /// The CPU that a machine needs for the same work, relative to that of the figures, if the bare echo takes `bare_us` there.
    pub fn calibration(&self, bare_us: f64) -> f64 {
        bare_us / *self.calibration_us
    }

    /// The costs of the protocol called `name`.
    pub fn protocol(&self, name: &str) -> Result<&ProtocolCosts, Error> {
        known("protocol", name, &self.protocols)
    }

    /// The costs of the engine called `name`.
    pub fn engine(&self, name: &str) -> Result<&EngineCosts, Error> {
        known("engine", name, &self.engines)
    }
}

fn known<'a, T>(what: &str, name: &str, all: &'a BTreeMap<String, T>) -> Result<&'a T, Error> {
    let entries: Vec<(&String, &T)> = all.iter().collect();
    crate::named(what, name, &entries, |(known, _)| known.as_str()).map(|(_, costs)| *costs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_a_source_that_is_described() {
        let text = include_str!("costs.toml");
        let costs = Costs::committed().unwrap();
        let figures = text.lines().filter_map(|line| line.split_once(" = [")).map(|(_, rest)| rest);
        let mut checked = 0;
        for figure in figures {
            let source = figure.split('"').nth(1).unwrap();
            assert!(costs.sources.contains_key(source), "{figure}");
            checked += 1;
        }
        assert!(checked > 40, "only {checked} figures were found");
        let date_of = |source: &Source| source.date.split('-').map(str::len).collect::<Vec<_>>();
        assert!(
            costs.sources.values().all(|source| date_of(source) == [4, 2, 2] && !source.about.is_empty())
        );
    }

    #[test]
    fn an_unknown_name_gets_a_suggestion() {
        let costs = Costs::committed().unwrap();
        let told = costs.protocol("socket-io").unwrap_err().to_string();
        assert!(told.contains("did you mean `socketio`?"), "{told}");
        let told = costs.engine("rediss").unwrap_err().to_string();
        assert!(told.contains("did you mean `redis`?"), "{told}");
    }

    #[test]
    fn a_misspelt_figure_is_an_error() {
        let text = include_str!("costs.toml").replace("deliver_us", "delivre_us");
        let told = Costs::parse(&text).unwrap_err().to_string();
        assert!(told.contains("delivre_us"), "{told}");
    }
}
