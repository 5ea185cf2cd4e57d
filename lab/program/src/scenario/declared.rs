//! The scenarios. Each is a TOML file in `lab/program/scenarios`, compiled in: its question, load model, figures,
//! published figures and cases.
//!
//! A value that depends on the effort is a table, `{ full = 10_000, quick = 6000, smoke = 500 }`. Without `quick`, a quick run has the
//! value of a full one; without `smoke`, a smoke run has that of a quick one. `efforts` lists the efforts that run a case (all, if it is
//! missing). `of` takes a case of the same name from another scenario. `{name}` in a title is replaced by that value of the case or its
//! load.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::machine::memory_bytes;
use crate::bench::{Case, Curve, Effort, Metric};
use crate::plot::Place;

macro_rules! embedded {
    ($($name:literal)*) => { [$(($name, include_str!(concat!("../../scenarios/", $name, ".toml")))),*] };
}

/// All scenarios.
pub static SCENARIOS: LazyLock<Vec<Scenario>> = LazyLock::new(|| {
    let texts = embedded! {
        "echo-25k" "room-broadcast" "chat-rtt" "cpu-budget" "feed-capacity" "fanout" "idle" "scale" "storm" "slow-readers"
        "misbehaving" "overload" "goals"
    };
    texts.map(|(name, text)| Scenario { name: name.to_owned(), ..read(name, text) }).into()
});

/// Memory that the connections of a full run leave free.
const MEMORY_KEPT_BYTES: usize = 4 << 30;
/// Memory of a connection at both ends, with a margin.
const CONNECTION_BYTES: usize = 16 << 10;

/// A question and the way in which it is answered. Results include these texts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Scenario {
    /// The name of its file.
    pub name: String,
    /// The question, with its question mark.
    pub(crate) question: String,
    /// The load model.
    pub(crate) load: String,
    /// The figures, with their units.
    pub(crate) metric: String,
    /// Publisher and date.
    pub(crate) source: String,
    pub(crate) published: Vec<Published>,
    /// Differences from the original, with the reasons.
    pub(crate) repaired: String,
    /// Servers that take part unless others are named. If empty, each case has its own.
    pub(crate) peers: Vec<String>,
    #[serde(skip_serializing)]
    cases: Vec<Table>,
}

/// A published figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Published {
    /// The server.
    pub who: String,
    pub figure: String,
    #[serde(default, skip_serializing)]
    pub marks: Vec<PublishedMark>,
}

/// The place of a published figure in a plot.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PublishedMark {
    pub over: Over,
    /// A word that the names of the cases contain. If empty, all cases.
    #[serde(default)]
    cases: String,
    /// A label instead of that of the figure. If empty, only the server is named.
    pub figure: Option<String>,
    #[serde(flatten)]
    pub place: Place,
}

impl PublishedMark {
    /// Returns `true` if the mark belongs in plots of a case.
    pub(crate) fn is_of(&self, case: &str) -> bool {
        self.cases.is_empty() || case.split('-').any(|word| word == self.cases)
    }
}

/// A plot: a curve of the runs, or a figure over the connections of several cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Over {
    Curve(Curve),
    Connections(Metric),
}

/// Parses an embedded text. A mistake in one is a bug of this program.
fn read<T: for<'de> Deserialize<'de>>(name: &str, text: &str) -> T {
    toml::from_str(text).unwrap_or_else(|error| panic!("scenario {name}: {error}"))
}

impl Scenario {
    /// The cases that an effort runs.
    pub(crate) fn cases(&self, effort: Effort) -> Vec<Case> {
        let fits = |case: &Case| {
            let is_run = case.efforts.is_empty() || case.efforts.contains(&effort);
            is_run && (effort != Effort::Full || !case.fits_memory || case.connections <= connections_max())
        };
        self.cases.iter().map(|entry| self.case(entry, effort)).filter(fits).collect()
    }

    fn case(&self, entry: &Table, effort: Effort) -> Case {
        let invalid = |what: String| -> ! { panic!("scenario {}: {what} in {entry}", self.name) };
        if let Some(other) = entry.get("of").and_then(Value::as_str) {
            let other = SCENARIOS.iter().find(|scenario| scenario.name == other);
            let found = other.and_then(|other| {
                Some((other, other.cases.iter().find(|case| case["name"] == entry["name"])?))
            });
            let Some((other, case)) = found else { invalid("an unknown case".to_owned()) };
            return Case { efforts: Vec::new(), ..other.case(case, effort) };
        }
        let values = of_effort(&Value::Table(entry.clone()), effort);
        let mut case: Case = values.clone().try_into().unwrap_or_else(|error| invalid(error.to_string()));
        fill(&mut case.title, &values);
        case.goals.retain(|goal| case.metrics.contains(&goal.metric));
        if effort == Effort::Smoke {
            case.pairs = 1;
        }
        // Quick runs measure only the servers of the goals.
        if effort == Effort::Quick {
            let is_in_goals =
                |name: &String| case.goals.iter().any(|goal| goal.against.as_ref() == Some(name));
            let baseline = case.servers.first().cloned();
            case.servers.retain(|name| Some(name) == baseline.as_ref() || is_in_goals(name));
        }
        case
    }
}

/// Maximum number of connections for which this machine has memory, at least 10,000.
fn connections_max() -> usize {
    let free = (memory_bytes("MemAvailable") as usize).saturating_sub(MEMORY_KEPT_BYTES);
    (free / CONNECTION_BYTES).max(10_000)
}

/// Returns the value for one effort.
fn of_effort(value: &Value, effort: Effort) -> Value {
    let names = match effort {
        Effort::Smoke => &["smoke", "quick", "full"][..],
        Effort::Quick => &["quick", "full"],
        Effort::Full => &["full"],
    };
    match value {
        Value::Table(table) if table.contains_key("full") => {
            let chosen = names.iter().find_map(|name| table.get(*name));
            of_effort(chosen.unwrap_or(value), effort)
        }
        Value::Table(table) => {
            let values = table.iter().map(|(key, value)| (key.clone(), of_effort(value, effort)));
            Value::Table(values.collect())
        }
        Value::Array(values) => Value::Array(values.iter().map(|value| of_effort(value, effort)).collect()),
        other => other.clone(),
    }
}

/// Replaces `{name}` by the numbers of that name.
fn fill(title: &mut String, values: &Value) {
    for (name, value) in values.as_table().into_iter().flatten() {
        let number = value.as_integer().map(|number| number.to_string());
        match number.or_else(|| value.as_float().map(|number| number.to_string())) {
            Some(number) => *title = title.replace(&format!("{{{name}}}"), &number),
            None => fill(title, value),
        }
    }
}
