//! Going on with a run that was broken off: what its file has isn't measured again.
//!
//! Only the same can be gone on with: the same scenario, effort, servers in the same versions, machine and congestion control.
//! A run that gave nothing but its reason is made again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Kept, Record};
use crate::Error;
use crate::bench::{Before, CaseBefore, Trial};

/// Of a file what [`Kept`] doesn't have: whole runs.
#[derive(Deserialize)]
struct Whole {
    took_s: f64,
    report: Report,
}

#[derive(Deserialize)]
struct Report {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    #[serde(default)]
    rate_hz: Option<f64>,
    servers: Vec<Runs>,
}

#[derive(Deserialize)]
struct Runs {
    name: String,
    trials: Vec<Trial>,
}

/// What is gone on with.
#[derive(Clone, Debug)]
pub(super) struct BrokenOff {
    /// When it began.
    pub(super) began: String,
    /// How long it took so far.
    pub(super) took_s: f64,
    /// What was measured.
    pub(super) before: Before,
}

/// The newest result of `scenario` in `folder`.
///
/// # Errors
/// If there is none.
pub(super) fn newest(folder: &Path, scenario: &str) -> Result<PathBuf, Error> {
    let nothing =
        || Error::Usage(format!("there is no result of {scenario} in {} to resume", folder.display()));
    let entries = fs::read_dir(folder).map_err(|_| nothing())?;
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let time = name.strip_prefix(scenario).and_then(|rest| rest.strip_prefix('-'));
        time.is_some_and(|time| {
            time.starts_with(|first: char| first.is_ascii_digit()) && time.ends_with(".json")
        })
    };
    // Their names have the time, in an order that sorts.
    entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_one).max().ok_or_else(nothing)
}

/// Reads what `record`, which has measured nothing yet, can go on with.
///
/// # Errors
/// If the file is none, or of something else: it says of what.
pub(super) fn read(path: &Path, record: &Record) -> Result<BrokenOff, Error> {
    let wrong = |what: String| Error::Usage(format!("{} can't be resumed: {what}", path.display()));
    let kept = Kept::read(path)?;
    let now = Kept::of(record)?;
    let mut differing = kept.machine.differences(&now.machine);
    for (what, was, is) in [
        ("scenario", &kept.scenario.name, &now.scenario.name),
        ("effort", &kept.effort, &now.effort),
        ("congestion control", &kept.report.congestion, &now.report.congestion),
        ("servers", &kept.server_names().join(","), &now.server_names().join(",")),
    ] {
        if was != is {
            differing.push(format!("{what}: {was} / {is}"));
        }
    }
    for name in now.server_names() {
        let (was, is) = (kept.version(&name).unwrap_or_default(), now.version(&name).unwrap_or_default());
        if was != is {
            differing.push(format!("{name}: {was} / {is}"));
        }
    }
    if !differing.is_empty() {
        return Err(wrong(format!("it was of something else: {}", differing.join("; "))));
    }
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let whole: Whole = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let mut before = BTreeMap::new();
    for case in whole.report.cases {
        let trials = case.servers.into_iter().map(|runs| (runs.name, runs.trials)).collect();
        before.insert(case.name, CaseBefore { rate_hz: case.rate_hz, trials });
    }
    Ok(BrokenOff { began: kept.began, took_s: whole.took_s, before })
}
