//! The cases of the table, and what is to be reached.

mod fallbacks;
mod feeds;
mod socketio;
mod websocket;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Metric;
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
    /// Whether the rate of an open loop is that of the slowest server, instead of the reference's.
    pub by_slowest: bool,
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
    /// Runs of each server where no number is given (`--pairs`): six, fewer where a run is long and the targets
    /// are bounds or far off.
    pub pairs: usize,
}

impl Case {
    /// One without targets, for every server that speaks `protocol`.
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
            by_slowest: true,
            metrics,
            targets: Vec::new(),
            only: &[],
            usual: Vec::new(),
            again: true,
            pairs: PAIRS,
        }
    }

    /// Whether this server takes part: not where it can't or doesn't speak what the clients do, and one that is made for
    /// more connections than descriptors only there.
    pub fn admits(&self, server: &Known) -> bool {
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

    /// Leaves out what no target is about.
    fn hurry(&mut self) {
        // What takes time to be seen, and was given none.
        if matches!(self.kind, CaseKind::Idle { hold: Duration::ZERO, .. }) {
            self.metrics = &[Metric::BytesPerConnection];
            self.targets.retain(|target| target.metric == Metric::BytesPerConnection);
        }
        let targets = &self.targets;
        let mut nth = 0;
        self.usual.retain(|server| {
            nth += 1;
            nth == 1 || targets.iter().any(|target| target.against == Some(server))
        });
        self.again = targets.iter().any(|target| target.against.is_some());
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

const fn ratio(metric: Metric, against: &'static str, bound: f64) -> Target {
    Target { metric, against: Some(against), bound }
}

pub(crate) const fn bound(metric: Metric, bound: f64) -> Target {
    Target { metric, against: None, bound }
}

const TIMED: &[Metric] = &[Metric::CpuPerMessage, Metric::LatencyP50, Metric::LatencyP99];

/// Runs of each server for a claim, and of cases that are long. All together end within 85 minutes.
const PAIRS: usize = 6;
/// Of figures that repeat to a percent.
const PAIRS_OF_STEADY: usize = 3;
const PAIRS_OF_LONG: usize = 2;

/// How much time a table may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// As much as the figures need.
    Full,
    /// Sound, but less of everything: three pairs, shorter spans, nobody whom no target names, and only bounds where the
    /// noise of the machine doesn't matter.
    Fast,
    /// For a look whether it works: small and short.
    Quick,
}

impl Pace {
    /// How long the generators look at connections doing nothing.
    pub(super) fn idle(self) -> Duration {
        Scale(self).of(Duration::from_secs(1), Duration::from_millis(500), Duration::from_millis(300))
    }
}

/// Runs of each server in a fast table.
const PAIRS_OF_FAST: usize = 3;
/// And in a quick one.
const PAIRS_OF_QUICK: usize = 2;

/// Chooses a case's numbers.
#[derive(Clone, Copy, Debug)]
struct Scale(Pace);

impl Scale {
    fn of<T>(self, full: T, fast: T, quick: T) -> T {
        match self.0 {
            Pace::Full => full,
            Pace::Fast => fast,
            Pace::Quick => quick,
        }
    }

    fn pairs(self, full: usize) -> usize {
        self.of(full, PAIRS_OF_FAST, full.min(PAIRS_OF_QUICK))
    }
}

/// All cases.
pub fn cases(pace: Pace) -> Vec<Case> {
    let scale = Scale(pace);
    let mut cases =
        [websocket::cases(scale), socketio::cases(scale), fallbacks::cases(scale), feeds::cases(scale)]
            .concat();
    if pace == Pace::Fast {
        for case in &mut cases {
            case.hurry();
        }
    }
    cases
}

#[cfg(test)]
mod tests;
