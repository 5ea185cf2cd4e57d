//! Scenarios: published comparisons run again, and our own. Each is a set of cases of [`crate::bench`] with what is needed to
//! understand them: the question, the load, what is measured, and what was published. The measuring is the bench's:
//! alternating runs of fresh processes, every message audited, ratios with intervals, A against A.
//!
//! To add one: a file here that opens with its question, load model, metric, unit and the published numbers, and its line in
//! [`SCENARIOS`].

mod chat_rtt;
pub(crate) mod compare;
mod cpu_budget;
mod drawn;
mod echo_25k;
mod fanout;
mod feed_capacity;
pub(crate) mod gate;
mod goals;
pub(crate) mod history;
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

pub(crate) use html::{folder_pages, page};
pub(crate) use machine::Machine;
pub use record::Record;
pub use run::run;
pub(crate) use run::{install, tell};

use serde::Serialize;

use self::marks::Over;
use crate::bench::{Case, Effort};
use crate::plot::Place;

/// Of whom, figure and unit, and where that is drawn: over which axes, and in cases whose names contain what.
pub(crate) type Published = (&'static str, &'static str, &'static [(Over, &'static str, Place)]);

/// See the module's documentation.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Scenario {
    /// For the command line.
    pub name: &'static str,
    pub(crate) question: &'static str,
    pub(crate) load: &'static str,
    /// What is measured, and its unit.
    pub(crate) metric: &'static str,
    /// Where the published figures are from.
    pub(crate) source: &'static str,
    #[serde(skip)]
    pub(crate) published: &'static [Published],
    /// What is done otherwise than there, and why.
    pub(crate) repaired: &'static str,
    /// Who takes part where nobody is named.
    pub(crate) peers: &'static [&'static str],
    #[serde(skip)]
    pub(crate) cases: fn(Effort) -> Vec<Case>,
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
