//! Cases: a load with its servers, figures, goals and number of runs. The scenarios declare them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::stats::Rule;
use super::{Application, Contestant, Metric, delivery};
use crate::catalogue::Known;
use crate::document::Shape;
use crate::generator::{FanoutPlan, LoadSpec, Misbehaviour, Protocol, Publisher};

/// A load, and the rules for comparing servers by it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub name: String,
    pub title: String,
    /// Efforts that run this case; if empty, all do.
    #[serde(default)]
    pub efforts: Vec<Effort>,
    /// `true` if a full run leaves the case out on a machine with too little memory.
    #[serde(default)]
    pub fits_memory: bool,
    /// Activity on the connections. An open-loop echo without a rate gets a share of the slowest server's rate.
    pub load: LoadSpec,
    /// Number of connections. For a search and a budget it is the maximum.
    pub connections: usize,
    /// Connections begun per second. `None` for the generator's usual rate.
    pub connect_rate_hz: Option<f64>,
    /// `true` if Stentor publishes through a feed, from an HTTP API.
    #[serde(default)]
    pub feed: bool,
    /// The feed's document. `None` for a string. Servers without feeds publish messages of the load's length.
    pub document: Option<Shape>,
    #[serde(default)]
    pub course: Course,
    /// `true` if clients connect through nginx.
    #[serde(default)]
    pub proxied: bool,
    /// Protocols of the clients. A server uses the first one that it supports.
    pub protocols: Vec<Protocol>,
    /// The reported figures, the decisive one first.
    pub metrics: Vec<Metric>,
    /// Goals of the first server.
    #[serde(default)]
    pub goals: Vec<Goal>,
    /// Servers that can take part; if empty, all.
    #[serde(default)]
    pub only: Vec<String>,
    /// Servers that take part unless others are named (`--peers`), the baseline first.
    #[serde(default)]
    pub servers: Vec<String>,
    /// Maximum number of runs of each server, unless `--pairs` gives a number. From two on, the baseline also runs
    /// under a second name.
    pub pairs: usize,
}

/// The way in which a case runs its load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Course {
    /// Once.
    #[default]
    Once,
    /// Once, at once. The cost of idle connections isn't subtracted: messages reach each client more often than pings would, and
    /// servers that ping only silent clients send none.
    AtOnce,
    /// Once, counting only system calls.
    Counted,
    /// After a rest of the connections; the cost of the rest is subtracted.
    Rested(#[serde(with = "crate::seconds")] Duration),
    /// Once alone and once beside misbehaving clients.
    Beside {
        how: Misbehaviour,
        clients: usize,
        /// The maximum number of publications of a fan-out that runs alone.
        alone_max: u64,
    },
    /// With more and more connections, to find the largest number that succeeds.
    Search {
        first: usize,
        /// The search ends when the distance between success and failure is below this share.
        within: f64,
    },
    /// With a document that the server has to fetch first, from an HTTP API that answers after this time.
    Cold(#[serde(with = "crate::seconds")] Duration),
    /// With a document that changes up to ten times as often as it can be delivered, in phases of this length. The last phase takes
    /// twice as long.
    Overload(#[serde(with = "crate::seconds")] Duration),
}

impl Case {
    /// Returns `true` if this server takes part. It must support the protocol and the extras of the case. A server for
    /// more connections than file descriptors takes part only in cases that need it.
    pub(crate) fn admits(&self, server: &Known) -> bool {
        let mode = self.plain_application().name();
        let knows = server.peer.as_ref().is_none_or(|peer| peer.knows(mode));
        if !(knows || self.feed && server.has_feeds()) {
            return false;
        }
        let name = server.name.as_str();
        // The loop without descriptors is for cases that no other server can run.
        let held_by_all = name != "bare-direct" || matches!(self.course, Course::Rested(_));
        let fits = if self.only.is_empty() { held_by_all } else { self.only.contains(&server.name) };
        fits && self.protocols().any(|protocol| server.admits(protocol))
    }

    pub(super) fn protocols(&self) -> impl Iterator<Item = Protocol> {
        self.protocols.iter().copied()
    }

    /// The application that a server without feeds runs.
    fn plain_application(&self) -> Application {
        match self.load {
            LoadSpec::EchoOpen { .. } | LoadSpec::EchoClosed { .. } | LoadSpec::Budget { .. } => {
                Application::Echo
            }
            LoadSpec::Topics { .. } | LoadSpec::Presence { .. } => Application::Rooms,
            _ => Application::Chat,
        }
    }

    /// The application that this server runs.
    pub(super) fn application(&self, contestant: &Contestant) -> Application {
        match self.plain_application() {
            Application::Chat if self.feed => contestant.publishes_by(self.document.is_some()),
            plain => plain,
        }
    }

    /// The load for this server, with a longer warm-up for servers that need one.
    pub(super) fn load_on(&self, contestant: &Contestant, application: Application) -> LoadSpec {
        let mut load = self.load.clone();
        let is_measured = self.course != Course::Counted;
        let warms_up = if is_measured { contestant.known.warms_up() } else { Duration::ZERO };
        // Messages of the server's warm-up must not be measured.
        match &mut load {
            LoadSpec::Fanout(FanoutPlan { rate_hz, warm_up, publisher, .. }) => {
                *warm_up = (*warm_up).max((warms_up.as_secs_f64() * *rate_hz).ceil() as u64);
                *publisher =
                    if application == Application::Feed { Publisher::Server } else { Publisher::Own };
            }
            LoadSpec::Receive { warm_up, .. } => *warm_up = (*warm_up).max(warms_up),
            _ => {}
        }
        load
    }

    /// Messages per second that an open loop sends to all servers. `Some(0)` until the rate is known. `None` for other
    /// loads.
    pub(super) fn offered_hz(&self) -> Option<f64> {
        match (&self.load, self.course) {
            (LoadSpec::EchoOpen { rate_hz, .. }, Course::Once) => Some(*rate_hz),
            _ => None,
        }
    }

    /// The time for which the connections are idle before the load, so that their cost can be subtracted, and the number of slices
    /// between two publications. Most cases take the `usual` time.
    pub(super) fn rest(&self, usual: Duration) -> (Duration, u32) {
        match (self.course, &self.load) {
            (Course::Rested(rest), _) => (rest, delivery::SLICES),
            (Course::AtOnce | Course::Overload(_), _) => (Duration::ZERO, 0),
            // Documents change by themselves, and new members are announced, so connections are never idle.
            (_, LoadSpec::Receive { .. } | LoadSpec::Presence { .. }) => (Duration::ZERO, 0),
            _ => (usual, 0),
        }
    }

    /// Number of connections without those of misbehaving clients. `None` for a search or a budget, which determine this number.
    pub(super) fn fixed_connections(&self) -> Option<usize> {
        let is_found =
            matches!(self.load, LoadSpec::Budget { .. }) || matches!(self.course, Course::Search { .. });
        (!is_found).then_some(self.connections)
    }

    /// Returns `true` if the connections may be spread over several processes of a server, because no message goes from
    /// one connection to another.
    pub(super) fn is_shared_out(&self) -> bool {
        matches!(self.load, LoadSpec::EchoOpen { .. } | LoadSpec::EchoClosed { .. } | LoadSpec::Idle { .. })
    }

    /// Number of connections that one process of a server must hold.
    pub(super) fn held(&self) -> usize {
        if self.is_shared_out() { 0 } else { self.fixed_connections().unwrap_or(0) }
    }
}

/// A goal for a figure.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Goal {
    pub metric: Metric,
    /// The other server if the goal is about the ratio to it. `None` if the goal is about the figure itself.
    pub against: Option<String>,
    /// The maximum, or the minimum if a larger figure is better.
    pub bound: f64,
}

/// The duration of a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// A check that everything works, at most 10 seconds for two servers.
    Smoke,
    /// At most 2 minutes for a case with two servers: up to six short runs, fewer if the interval is narrow enough.
    #[default]
    Quick,
    /// Runs with the published effort, where the machine allows it.
    Full,
}

impl Effort {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }

    /// Time for which the generators measure idle connections.
    pub(super) fn idle(self) -> Duration {
        Duration::from_millis(match self {
            Self::Smoke => 300,
            Self::Quick => 500,
            Self::Full => 1000,
        })
    }

    pub(super) fn rule(self) -> Rule {
        if self == Self::Quick { Rule::Sequential } else { Rule::Fixed }
    }
}

#[cfg(test)]
mod tests;
