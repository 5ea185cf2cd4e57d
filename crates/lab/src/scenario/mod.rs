//! Scenarios: published comparisons run again, and our own. Each is a set of cases of [`crate::bench`] with what is needed to
//! understand them: the question, the load, what is measured, and what was published. The measuring is the bench's:
//! alternating runs of fresh processes, every message audited, ratios with intervals, A against A.
//!
//! To add one: a file here that opens with its question, load model, metric, unit and the published numbers, and its line in
//! [`SCENARIOS`].

mod chart;
mod chat_rtt;
pub mod compare;
mod cpu_budget;
mod drawn;
mod echo_25k;
mod fanout;
mod feed_capacity;
pub mod gate;
pub mod history;
mod html;
mod idle;
mod kept;
mod machine;
mod marks;
mod misbehaving;
mod record;
mod resume;
mod room_broadcast;
mod scale;
mod slow_readers;
mod storm;

pub use chart::chart;
pub use html::page;
pub use kept::Kept;
pub use machine::Machine;
pub use record::{Record, Resume, Server, install, run};

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bench::Case;

/// How much time a scenario may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// At most 10 seconds for Stentor and a peer: whether it works.
    Smoke,
    /// At most 2 minutes for the same.
    Quick,
    /// As was published, where that is possible.
    Full,
}

impl Effort {
    fn of<T>(self, full: T, quick: T, smoke: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
            Self::Smoke => smoke,
        }
    }

    fn span(self, full_s: f64, quick_s: f64, smoke_s: f64) -> Duration {
        Duration::from_secs_f64(self.of(full_s, quick_s, smoke_s))
    }

    /// A case as often as this effort runs it.
    fn case(self, case: Case) -> Case {
        Case { pairs: self.of(6, 2, 1), again: self != Self::Smoke, ..case }
    }

    /// A case whose runs are long, as often: by its bounds it is read, not by ratios of a few percent.
    fn long_case(self, case: Case) -> Case {
        let pairs = self.of(2, 1, 1);
        Case { pairs, again: pairs > 1, ..case }
    }
}

/// A figure that was published.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Published {
    /// Of whom.
    pub who: &'static str,
    /// Figure and unit.
    pub figure: &'static str,
}

/// See the module's documentation.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Scenario {
    /// For the command line.
    pub name: &'static str,
    /// What it asks.
    pub question: &'static str,
    /// The load model.
    pub load: &'static str,
    /// What is measured, and its unit.
    pub metric: &'static str,
    /// Where the published figures are from.
    pub source: &'static str,
    /// What was published.
    pub published: &'static [Published],
    /// What is done otherwise than there, and why.
    pub repaired: &'static str,
    /// Who takes part where nobody is named.
    pub peers: &'static [&'static str],
    /// What is run.
    #[serde(skip)]
    pub cases: fn(Effort) -> Vec<Case>,
}

/// All of them.
pub const SCENARIOS: &[Scenario] = &[
    echo_25k::SCENARIO,
    room_broadcast::SCENARIO,
    chat_rtt::SCENARIO,
    cpu_budget::SCENARIO,
    feed_capacity::SCENARIO,
    fanout::SCENARIO,
    idle::SCENARIO,
    scale::SCENARIO,
    storm::SCENARIO,
    slow_readers::SCENARIO,
    misbehaving::SCENARIO,
];

#[cfg(test)]
mod tests;
