//! Results read back from their files: by [`super::compare`], [`super::history`], [`super::gate`] and for the pages. A metric or
//! a curve that this version doesn't know is passed over, and so is a field; what an older file doesn't have is empty; a file
//! with a greater number of its format is refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::record::SCHEMA;
use super::{Effort, Machine, Record};
use crate::Error;
use crate::bench::{Curve, Metric, median};
use crate::generator::Doubt;

/// A record that was kept.
#[derive(Clone, Debug, Deserialize)]
pub struct Kept {
    pub(super) schema: u32,
    pub(super) scenario: About,
    pub(super) effort: String,
    pub(super) began: String,
    #[serde(default)]
    pub(super) took_s: f64,
    pub(super) machine: Machine,
    pub(super) servers: Vec<Server>,
    pub(super) report: Report,
}

/// Of a scenario.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct About {
    pub(super) name: String,
    pub(super) question: String,
    pub(super) load: String,
    pub(super) metric: String,
    pub(super) source: String,
    pub(super) published: Vec<Published>,
    pub(super) repaired: String,
}

/// A figure that was published.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Published {
    pub(super) who: String,
    pub(super) figure: String,
}

/// Who took part.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Server {
    pub(super) name: String,
    #[serde(default)]
    pub(super) about: String,
    pub(super) versions: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) settings: BTreeMap<String, String>,
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
    #[serde(default)]
    pub(super) connections: Option<usize>,
    pub(super) servers: Vec<Runs>,
    #[serde(default)]
    pub(super) verdicts: Vec<Verdict>,
}

/// What was to be reached.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Verdict {
    pub(super) metric: String,
    pub(super) bound: f64,
    pub(super) measured: Option<f64>,
    pub(super) reached: bool,
}

/// The judged server against another one. JSON has no number for what was divided by nothing.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Comparison {
    pub(super) ratio: Ratio,
    pub(super) resolution: Option<f64>,
    pub(super) differs: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Ratio {
    pub(super) median: Option<f64>,
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
}

/// The runs of one server.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Runs {
    pub(super) name: String,
    #[serde(default)]
    medians: BTreeMap<String, f64>,
    #[serde(default)]
    comparisons: BTreeMap<String, Comparison>,
    pub(super) trials: Vec<Trial>,
}

/// One run.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Trial {
    pub(super) figures: BTreeMap<String, f64>,
    #[serde(default)]
    pub(super) context: BTreeMap<String, f64>,
    #[serde(default)]
    curves: BTreeMap<String, Vec<(f64, f64)>>,
    pub(super) doubts: Vec<Doubt>,
    #[serde(default)]
    pub(super) unmeasured: Option<String>,
}

impl Kept {
    /// Reads a file that [`super::run`] wrote.
    ///
    /// # Errors
    /// If it isn't there, is none, or has a format that this version doesn't know.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |what: String| Error::Usage(format!("{}: {what}", path.display()));
        let bytes = fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let text =
            String::from_utf8(bytes).map_err(|_| wrong("no result of a scenario: it isn't text".into()))?;
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
        let wrong = |error: serde_json::Error| match error.is_eof() {
            true if text.trim().is_empty() => "no result of a scenario: it is empty".to_owned(),
            true => format!("no whole result of a scenario: it ends in the middle ({error})"),
            false => format!("no result of a scenario: {error}"),
        };
        let kept: Self = serde_json::from_str(text).map_err(wrong)?;
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

    /// The median of its sound runs.
    pub(super) fn median(&self, metric: Metric) -> Option<f64> {
        self.medians.get(metric.name()).copied()
    }

    /// The judged server's figure to this one's.
    pub(super) fn comparison(&self, metric: Metric) -> Option<&Comparison> {
        self.comparisons.get(metric.name())
    }

    /// A curve of one of its sound runs, in the order they were made that in the middle.
    pub(super) fn curve(&self, curve: Curve) -> Option<&[(f64, f64)]> {
        let sound = self.trials.iter().filter(|trial| curve.stands(&trial.doubts));
        let runs: Vec<_> = sound.filter_map(|trial| trial.curves.get(curve.name())).collect();
        runs.get(runs.len() / 2).map(|points| points.as_slice())
    }

    /// How late the generator was, of the median run; milliseconds.
    pub(super) fn lag_ms(&self) -> f64 {
        let lags = self.trials.iter().filter_map(|trial| trial.context.get(crate::bench::LAG).copied());
        median(&lags.collect::<Vec<f64>>()).unwrap_or(0.0)
    }
}
