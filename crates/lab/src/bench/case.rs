//! What a case is: its load, its servers, its figures, its goals, and how often each effort runs it. The scenarios declare them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::stats::Rule;
use super::{Application, Metric};
use crate::catalogue::Known;
use crate::document::Shape;
use crate::generator::{ChatPlan, Cut, LoadSpec, Misbehaviour, Protocol};

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

impl Case {
    /// One without goals, for every server that speaks `protocol`, run once.
    pub(crate) fn new(
        name: &'static str,
        title: String,
        kind: CaseKind,
        protocol: Protocol,
        metrics: &'static [Metric],
    ) -> Self {
        Self {
            name,
            title,
            kind,
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
    pub fn admits(&self, server: &Known) -> bool {
        let mode = self.kind.application().name();
        if server.peer.as_ref().is_some_and(|peer| !peer.manifest.modes.iter().any(|known| known == mode)) {
            return false;
        }
        let name = server.name.as_str();
        // That loop is for what no other one holds.
        let held_by_all = name != "bare-direct" || matches!(self.kind.direct(), CaseKind::Scale { .. });
        let fits = if self.only.is_empty() { held_by_all } else { self.only.contains(&name) };
        fits && (server.admits(self.protocol) || self.or.iter().any(|protocol| server.admits(*protocol)))
    }

    /// What an open loop offers, messages a second.
    pub(super) fn offered_hz(&self) -> Option<f64> {
        match self.kind {
            CaseKind::Echo { rate_hz, .. } => Some(rate_hz),
            _ => None,
        }
    }

    /// The same for clients that speak one of these where a server doesn't speak the first.
    pub(crate) fn or(self, or: &'static [Protocol]) -> Self {
        Self { or, ..self }
    }

    /// The same with these servers where none is named, the baseline first, and these goals.
    pub(crate) fn goals(self, usual: &[&'static str], targets: Vec<Target>) -> Self {
        Self { usual: usual.to_vec(), targets, ..self }
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
    /// Connecting while everybody who is connected sends and is answered, until the server has used so much CPU.
    Budget {
        /// How many at most.
        connections_max: usize,
        /// Payload.
        bytes: usize,
        /// From one message of a connection to its next.
        every: Duration,
        /// Connections per second; `None`: the next one is begun when the last one is up.
        rate_hz: Option<f64>,
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
        /// Connections begun per second: each is sent the document.
        connect_rate_hz: f64,
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
    /// Everybody in a room says something in turn, faster from step to step.
    Chat {
        /// How many.
        connections: usize,
        /// What they say, and when.
        plan: ChatPlan,
    },
    /// A load on clients that behave, once by themselves and once beside others that don't.
    Beside {
        /// How many behave.
        connections: usize,
        /// What they do: an open-loop echo, or a fan-out, which Stentor does by a feed.
        load: LoadSpec,
        /// What the others do.
        how: Misbehaviour,
        /// How many they are.
        misbehaving: usize,
        /// Publications of the fan-out without them at most.
        alone_max: u64,
    },
    /// Everybody in a room is cut off at once, and comes back at once.
    Storm {
        /// How many.
        connections: usize,
        /// How they are cut off.
        cut: Cut,
    },
    /// Many connections at rest, and then something for all of them.
    Scale {
        /// How many.
        connections: usize,
        /// Connections begun per second.
        connect_rate_hz: f64,
        /// How long they rest, and what that costs is looked at: it is taken off the cost of what follows.
        rest: Duration,
        /// Payload.
        bytes: usize,
        /// From one publication to the next.
        every: Duration,
        /// Publications measured.
        count: u64,
    },
    /// A document to more and more clients, to find the most that it can be kept up to date for.
    Capacity {
        /// What the document is like; a message of its length, where a server has no feeds.
        shape: Shape,
        /// Versions per second.
        rate_hz: f64,
        /// Versions before the measurement.
        warm_up: u64,
        /// Versions measured.
        count: u64,
        /// Clients to begin with.
        first: usize,
        /// The most to try.
        most: usize,
        /// The search ends when what holds and what doesn't are within this share.
        within: f64,
    },
    /// A document that changes up to ten times as often as all clients can be sent it.
    Overload {
        /// How many.
        connections: usize,
        /// What the document is like.
        shape: Shape,
        /// How long each phase lasts; the last one twice as long.
        phase: Duration,
    },
    /// The same with nginx between clients and server.
    Proxied(Box<CaseKind>),
}

impl CaseKind {
    /// Whether clients come through nginx.
    pub(super) fn is_proxied(&self) -> bool {
        matches!(self, Self::Proxied(_))
    }

    /// What happens, whatever is between.
    pub(super) fn direct(&self) -> &Self {
        match self {
            Self::Proxied(kind) => kind.direct(),
            kind => kind,
        }
    }

    /// What a server has to be that has no feeds.
    fn application(&self) -> Application {
        match self.direct() {
            Self::Echo { .. } | Self::EchoClosed { .. } | Self::Budget { .. } => Application::Echo,
            Self::Beside { load, .. } if !matches!(load, LoadSpec::Fanout { .. }) => Application::Echo,
            _ => Application::Chat,
        }
    }

    /// On how many connections it happens, but for those that misbehave; `None` where that is what is looked for.
    pub(super) fn connections(&self) -> Option<usize> {
        match self.direct() {
            Self::Echo { connections, .. }
            | Self::EchoClosed { connections, .. }
            | Self::Fanout { connections, .. }
            | Self::Idle { connections, .. }
            | Self::Connect { connections, .. }
            | Self::Feed { connections, .. }
            | Self::Cold { connections, .. }
            | Self::Chat { connections, .. }
            | Self::Beside { connections, .. }
            | Self::Storm { connections, .. }
            | Self::Overload { connections, .. }
            | Self::Scale { connections, .. } => Some(*connections),
            Self::Budget { .. } | Self::Capacity { .. } | Self::Proxied(_) => None,
        }
    }

    /// Connections that one process of a server has to hold, where they can't be shared out.
    pub(super) fn held(&self) -> usize {
        match self.direct() {
            Self::Scale { connections, .. } | Self::Fanout { connections, .. } => *connections,
            _ => 0,
        }
    }
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

    /// When comparisons are looked at.
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
