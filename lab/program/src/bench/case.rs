//! What a case is: a load of the generator's, what is around it, its servers, its figures, its goals, and how often each effort runs
//! it. The scenarios declare them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::stats::Rule;
use super::{Application, Contestant, Metric};
use crate::catalogue::Known;
use crate::document::Shape;
use crate::generator::{LoadSpec, Misbehaviour, Protocol, Publisher};

/// Something to compare servers by.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub name: &'static str,
    pub title: String,
    /// What happens on the connections. An open loop of echoes without a rate gets a share of what the slowest server can do.
    pub load: LoadSpec,
    /// On how many connections; of a search and a budget, at most.
    pub connections: usize,
    /// Connections begun per second, where not the generator's usual rate.
    pub connect_rate_hz: Option<f64>,
    /// Whether Stentor publishes by a feed, from an HTTP API.
    pub feed: bool,
    /// What the feed's document is like; `None`: a string. Servers without feeds publish messages as the load says.
    pub document: Option<Shape>,
    /// What happens beside running the load once.
    pub course: Course,
    pub proxied: bool,
    pub protocol: Protocol,
    /// What they speak instead to servers that don't speak that, the first that fits.
    pub or: &'static [Protocol],
    /// What is reported, the decisive one first.
    pub metrics: &'static [Metric],
    /// What is to be reached by the first server.
    pub targets: Vec<Target>,
    /// Who can take part; empty: everybody.
    pub only: &'static [&'static str],
    /// Who takes part where nobody is named (`--servers`), the judged one first.
    pub usual: Vec<&'static str>,
    /// Whether the judged server is run under a second name as well, where nobody is named.
    pub again: bool,
    /// Runs of each server where no number is given (`--pairs`), at most: see `Effort::case`.
    pub pairs: usize,
}

/// What happens in a case beside running its load once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Course {
    Once,
    /// Nothing but that system calls are counted.
    Counted,
    /// Connections rest for so long before, and what that costs is looked at: it is taken off the cost of what follows.
    Rested(Duration),
    /// It runs alone, and again beside clients that misbehave.
    Beside {
        how: Misbehaviour,
        clients: usize,
        /// Publications of a fan-out without them at most.
        alone_max: u64,
    },
    /// It runs on more and more connections, to find the most that it holds on.
    Search {
        first: usize,
        /// The search ends when what holds and what doesn't are within this share.
        within: f64,
    },
    /// The server doesn't have the document yet, and the HTTP API takes so long to answer.
    Cold(Duration),
    /// The document changes up to ten times as often as all clients can be sent it. Each phase lasts so long; the last one twice as
    /// long.
    Overload(Duration),
}

impl Case {
    /// One without goals, for every server that speaks `protocol`, run once.
    pub(crate) fn new(
        name: &'static str,
        title: String,
        (connections, load): (usize, LoadSpec),
        protocol: Protocol,
        metrics: &'static [Metric],
    ) -> Self {
        Self {
            name,
            title,
            load,
            connections,
            connect_rate_hz: None,
            feed: false,
            document: None,
            course: Course::Once,
            proxied: false,
            protocol,
            or: &[],
            metrics,
            targets: Vec::new(),
            only: &[],
            usual: Vec::new(),
            again: false,
            pairs: 1,
        }
    }

    /// Whether this server takes part: not where it can't do or doesn't speak what the clients do, and one that is made for
    /// more connections than descriptors only there.
    pub(crate) fn admits(&self, server: &Known) -> bool {
        let mode = self.plain_application().name();
        if server.peer.as_ref().is_some_and(|peer| !peer.knows(mode)) {
            return false;
        }
        let name = server.name.as_str();
        // That loop is for what no other one holds.
        let held_by_all = name != "bare-direct" || matches!(self.course, Course::Rested(_));
        let fits = if self.only.is_empty() { held_by_all } else { self.only.contains(&name) };
        fits && self.protocols().any(|protocol| server.admits(protocol))
    }

    /// What clients speak, the first that a server speaks.
    pub(super) fn protocols(&self) -> impl Iterator<Item = Protocol> {
        std::iter::once(self.protocol).chain(self.or.iter().copied())
    }

    /// What a server has to be that has no feeds.
    fn plain_application(&self) -> Application {
        match self.load {
            LoadSpec::EchoOpen { .. } | LoadSpec::EchoClosed { .. } | LoadSpec::Budget { .. } => {
                Application::Echo
            }
            LoadSpec::Topics { .. } | LoadSpec::Presence { .. } => Application::Rooms,
            _ => Application::Chat,
        }
    }

    /// What this server is asked to be.
    pub(super) fn application(&self, contestant: &Contestant) -> Application {
        match self.plain_application() {
            Application::Chat if self.feed => contestant.publishes_by(self.document.is_some()),
            plain => plain,
        }
    }

    /// The load on a server that is asked to do this: longer before the measurement, where it needs longer to be as fast as it gets.
    pub(super) fn load_on(&self, contestant: &Contestant, application: Application) -> LoadSpec {
        let mut load = self.load.clone();
        if let LoadSpec::Fanout { rate_hz, warm_up, publisher, .. } = &mut load {
            // Nothing before the measurement may be counted with it.
            if self.course != Course::Counted {
                let warms_up_s = contestant.known().warms_up().as_secs_f64();
                *warm_up = (*warm_up).max((warms_up_s * *rate_hz).ceil() as u64);
            }
            *publisher = if application == Application::Feed { Publisher::Server } else { Publisher::Own };
        }
        load
    }

    /// What an open loop offers to all, messages a second; 0 until that is known.
    pub(super) fn offered_hz(&self) -> Option<f64> {
        match (&self.load, self.course) {
            (LoadSpec::EchoOpen { rate_hz, .. }, Course::Once) => Some(*rate_hz),
            _ => None,
        }
    }

    /// On how many connections it happens, but for those that misbehave; `None` where that is what is looked for.
    pub(super) fn fixed_connections(&self) -> Option<usize> {
        let is_found =
            matches!(self.load, LoadSpec::Budget { .. }) || matches!(self.course, Course::Search { .. });
        (!is_found).then_some(self.connections)
    }

    /// Whether several processes of a server may have the connections: those have nothing to do with each other.
    pub(super) fn is_shared_out(&self) -> bool {
        matches!(self.load, LoadSpec::EchoOpen { .. } | LoadSpec::EchoClosed { .. } | LoadSpec::Idle { .. })
    }

    /// Connections that one process of a server has to hold.
    pub(super) fn held(&self) -> usize {
        if self.is_shared_out() { 0 } else { self.fixed_connections().unwrap_or(0) }
    }

    /// The same for clients that speak one of these where a server doesn't speak the first.
    pub(crate) fn or(self, or: &'static [Protocol]) -> Self {
        Self { or, ..self }
    }

    pub(crate) fn connecting_at(self, rate_hz: f64) -> Self {
        Self { connect_rate_hz: Some(rate_hz), ..self }
    }

    /// The same by a feed, with such a document.
    pub(crate) fn by_feed(self, document: Option<Shape>) -> Self {
        Self { feed: true, document, ..self }
    }

    /// The same with these servers where none is named, the baseline first, and these goals.
    pub(crate) fn goals(self, usual: &[&'static str], targets: Vec<Target>) -> Self {
        Self { usual: usual.to_vec(), targets, ..self }
    }
}

/// A figure to be reached: the metric of the first server, divided by that of `against` where there is one,
/// is at most `bound`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub metric: Metric,
    /// The other server; `None`: the figure itself.
    pub against: Option<&'static str>,
    /// The bound, in the metric's unit where it stands alone: the most, or the least where more of it is better.
    pub bound: f64,
}

pub(crate) const fn ratio(metric: Metric, against: &'static str, bound: f64) -> Target {
    Target { metric, against: Some(against), bound }
}

pub(crate) const fn bound(metric: Metric, bound: f64) -> Target {
    Target { metric, against: None, bound }
}

/// How much time a scenario may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// At most 10 seconds for Stentor and a peer: whether it works.
    Smoke,
    /// At most 2 minutes for a case with the same: up to six short runs, fewer where their interval suffices.
    Quick,
    /// As was published, where that is possible.
    Full,
}

impl Effort {
    pub(crate) fn of<T>(self, full: T, quick: T, smoke: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
            Self::Smoke => smoke,
        }
    }

    pub(crate) fn span(self, full_s: f64, quick_s: f64, smoke_s: f64) -> Duration {
        Duration::from_secs_f64(self.of(full_s, quick_s, smoke_s))
    }

    /// How long the generators look at connections doing nothing.
    pub(super) fn idle(self) -> Duration {
        self.span(1.0, 0.5, 0.3)
    }

    pub(super) fn rule(self) -> Rule {
        self.of(Rule::Fixed, Rule::Sequential, Rule::Fixed)
    }

    /// A case as often as this effort runs it.
    pub(crate) fn case(self, case: Case) -> Case {
        Case { pairs: self.of(6, 6, 1), again: self != Self::Smoke, ..case }
    }

    /// A case whose figures repeat to a percent.
    pub(crate) fn steady_case(self, case: Case) -> Case {
        Case { pairs: self.of(3, 3, 1), ..self.case(case) }
    }

    /// A case whose runs are long: it is read by its bounds, not by ratios of a few percent.
    pub(crate) fn long_case(self, case: Case) -> Case {
        let pairs = self.of(2, 1, 1);
        Case { pairs, again: pairs > 1, ..case }
    }
}
