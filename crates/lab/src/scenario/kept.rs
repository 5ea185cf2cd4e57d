//! Results read back from their files, as far as they are looked at again: by [`super::compare`], [`super::history`] and
//! [`super::gate`]. A metric that this version doesn't know is passed over, and so is a field; a file with a greater number of
//! its format is refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::record::SCHEMA;
use super::{Effort, Machine, Record};
use crate::Error;
use crate::bench::{Metric, median};

/// A record that was kept.
#[derive(Clone, Debug, Deserialize)]
pub struct Kept {
    pub(super) schema: u32,
    pub(super) scenario: About,
    pub(super) effort: String,
    pub(super) began: String,
    pub(super) machine: Machine,
    pub(super) servers: Vec<Server>,
    pub(super) report: Report,
}

/// Of a scenario.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct About {
    pub(super) name: String,
}

/// Who took part.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) versions: BTreeMap<String, String>,
}

/// What was found.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Report {
    pub(super) congestion: String,
    #[serde(default)]
    pub(super) missing: Vec<String>,
    pub(super) cases: Vec<Case>,
}

/// One case.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) metrics: Vec<String>,
    pub(super) servers: Vec<Runs>,
}

/// The runs of one server.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Runs {
    pub(super) name: String,
    pub(super) trials: Vec<Trial>,
}

/// One run.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Trial {
    pub(super) figures: BTreeMap<String, f64>,
    #[serde(default)]
    pub(super) context: BTreeMap<String, f64>,
    pub(super) doubts: Vec<Doubt>,
}

/// Why it isn't to be believed.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Doubt {
    pub(super) latency_only: bool,
    pub(super) what: String,
}

impl Kept {
    /// Reads a file that [`super::run`] wrote.
    ///
    /// # Errors
    /// If it isn't there, is none, or has a format that this version doesn't know.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |what: String| Error::Usage(format!("{}: {what}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        Self::parse(&text).map_err(wrong)
    }

    /// The same of a record that was made just now.
    ///
    /// # Errors
    /// Never, unless what is written can't be read.
    pub fn of(record: &Record) -> Result<Self, Error> {
        let text = serde_json::to_string(record).map_err(|error| Error::Usage(error.to_string()))?;
        Self::parse(&text).map_err(Error::Usage)
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let kept: Self =
            serde_json::from_str(text).map_err(|error| format!("no result of a scenario: {error}"))?;
        match kept.schema {
            0..=SCHEMA => Ok(kept),
            newer => Err(format!("its format has the number {newer}, this program knows {SCHEMA}")),
        }
    }

    /// Of which scenario it is.
    pub fn scenario_name(&self) -> &str {
        &self.scenario.name
    }

    /// Who took part, the judged one first.
    pub fn server_names(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.name.clone()).collect()
    }

    /// What was run, in order.
    pub fn case_names(&self) -> Vec<String> {
        self.report.cases.iter().map(|case| case.name.clone()).collect()
    }

    /// How much time it had, where that is still known by its name.
    pub fn effort(&self) -> Option<Effort> {
        serde_json::from_value(self.effort.clone().into()).ok()
    }

    /// The versions of a server, in one line.
    pub(super) fn version(&self, server: &str) -> Option<String> {
        let found = self.servers.iter().find(|known| known.name == server)?;
        let pairs: Vec<String> =
            found.versions.iter().map(|(what, version)| format!("{what} {version}")).collect();
        Some(pairs.join(", "))
    }
}

impl Case {
    /// Its metrics that this version knows, the decisive one first.
    pub(super) fn known_metrics(&self) -> impl Iterator<Item = Metric> {
        self.metrics.iter().filter_map(|name| Metric::of_name(name))
    }

    pub(super) fn runs(&self, server: &str) -> Option<&Runs> {
        self.servers.iter().find(|runs| runs.name == server)
    }
}

impl Runs {
    /// The sound figures, as [`crate::bench::Trial::sound`] has them.
    pub(super) fn sound(&self, metric: Metric) -> Vec<f64> {
        let is_sound = |trial: &&Trial| {
            let doubted = trial.doubts.iter().any(|doubt| !doubt.latency_only || metric.is_time());
            !doubted || metric.is_its_own_doubt()
        };
        self.trials
            .iter()
            .filter(is_sound)
            .filter_map(|trial| trial.figures.get(metric.name()).copied())
            .collect()
    }

    /// How late the generator was, of the median run; milliseconds.
    pub(super) fn lag_ms(&self) -> f64 {
        let lags = self.trials.iter().filter_map(|trial| trial.context.get(crate::bench::LAG).copied());
        median(&lags.collect::<Vec<f64>>()).unwrap_or(0.0)
    }
}
