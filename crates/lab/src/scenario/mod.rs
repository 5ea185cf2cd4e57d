//! Scenarios: published comparisons run again, and our own. Each is a set of cases of [`crate::bench`] with what is needed to
//! understand them: the question, the load, what is measured, and what was published. The measuring is the bench's:
//! alternating runs of fresh processes, every message audited, ratios with intervals, A against A.
//!
//! To add one: a file here that opens with its question, load model, metric, unit and the published numbers, and its line in
//! [`SCENARIOS`].

mod chat_rtt;
pub mod compare;
mod cpu_budget;
mod drawn;
mod echo_25k;
mod fanout;
mod feed_capacity;
pub mod gate;
mod goals;
pub mod history;
mod html;
mod idle;
mod machine;
mod marks;
mod misbehaving;
mod overload;
mod record;
mod room_broadcast;
mod run;
mod scale;
mod slow_readers;
mod storm;

pub use html::{folder_pages, page};
pub use machine::Machine;
pub use record::{About, Record, Server};
pub use run::{Resume, install, run};

use serde::Serialize;

use crate::bench::{Case, Effort};

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
    overload::SCENARIO,
    goals::SCENARIO,
];

#[cfg(test)]
mod tests;
