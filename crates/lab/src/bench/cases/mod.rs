//! The cases of the table, and what is to be reached.

mod fallbacks;
mod feeds;
mod socketio;
mod websocket;

use std::time::Duration;

use super::{KNOWN, Metric};
use crate::document::Shape;
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
        /// Whether they are subscribed to a feed of Stentor's instead, whose document doesn't change.
        feed: bool,
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
    /// Connecting at a fixed rate while everybody who is connected sends and is answered, until the server has used so
    /// much CPU.
    Budget {
        /// How many at most.
        connections_max: usize,
        /// Payload.
        bytes: usize,
        /// From one message of a connection to its next.
        every: Duration,
        /// Connections per second.
        rate_hz: f64,
        /// The server's CPU time.
        cpu: Duration,
    },
    /// A document of an HTTP API that changes a little from version to version, to clients that are sent what changed.
    Feed {
        /// How many.
        connections: usize,
        /// What the document is like.
        shape: Shape,
        /// Bytes of the plain message that servers send instead whose name ends with `-ws`.
        message_bytes: usize,
        /// Versions per second.
        rate_hz: f64,
        /// Versions before the measurement.
        warm_up: u64,
        /// Versions measured.
        count: u64,
    },
    /// Connections that ask at once for a document that the server doesn't have yet.
    Cold {
        /// How many.
        connections: usize,
        /// What it is like.
        shape: Shape,
        /// How long the HTTP API takes.
        hesitates: Duration,
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
/// is at most `bound`.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Which figure.
    pub metric: Metric,
    /// The other server; `None`: the figure itself.
    pub against: Option<&'static str>,
    /// The bound, in the metric's unit where it stands alone: the most, or the least where more of it is better.
    pub bound: f64,
}

const fn ratio(metric: Metric, against: &'static str, bound: f64) -> Target {
    Target { metric, against: Some(against), bound }
}

const fn bound(metric: Metric, bound: f64) -> Target {
    Target { metric, against: None, bound }
}

const TIMED: &[Metric] = &[Metric::CpuPerMessage, Metric::LatencyP50, Metric::LatencyP99];

/// Runs of each server for a claim, and of cases that are long. All together end within 70 minutes.
const PAIRS: usize = 6;
/// Of figures that repeat to a percent.
const PAIRS_OF_STEADY: usize = 3;
const PAIRS_OF_LONG: usize = 2;

/// Numbers of a full case, or of one that is small and short.
#[derive(Clone, Copy, Debug)]
struct Scale {
    quick: bool,
}

impl Scale {
    fn seconds(self, full: f64, quick: f64) -> Duration {
        Duration::from_secs_f64(if self.quick { quick } else { full })
    }

    fn number(self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    fn times(self, full: u64, quick: u64) -> u64 {
        if self.quick { quick } else { full }
    }
}

/// All cases; `quick` makes them small and short.
pub fn cases(quick: bool) -> Vec<Case> {
    let scale = Scale { quick };
    [websocket::cases(scale), socketio::cases(scale), fallbacks::cases(scale), feeds::cases(scale)].concat()
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
