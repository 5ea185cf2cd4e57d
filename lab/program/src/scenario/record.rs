//! A result: `results/SCENARIO-TIME.json`, whose schema is in docs/lab.md. It is written after each run, and read by the pages,
//! [`super::compare`], [`super::history`], [`super::gate`] and `--resume`. Files with a higher schema number are refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Machine, Scenario};
use crate::Error;
use crate::bench::{CaseReport, Effort, Report, separated};

/// The number of the schema. It is increased when a field is removed or changes its meaning.
pub(super) const SCHEMA: u32 = 1;

/// One run of a scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub(crate) schema: u32,
    /// The texts and published figures.
    pub(crate) scenario: Scenario,
    pub(crate) effort: Effort,
    /// The start time of the run in ISO 8601.
    pub(crate) began: String,
    #[serde(default)]
    pub(crate) took_s: f64,
    pub(crate) machine: Machine,
    pub(crate) servers: Vec<Server>,
    /// The measurements.
    pub report: Report,
}

/// Results with their file names.
pub(super) type Named = Vec<(String, Record)>;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Server {
    pub name: String,
    #[serde(default)]
    pub about: String,
    /// The versions of the relevant software.
    pub versions: BTreeMap<String, String>,
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

impl Record {
    /// Reads a file written by [`super::run()`].
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |what: String| Error::Usage(format!("{}: {what}", path.display()));
        let bytes = fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let text =
            String::from_utf8(bytes).map_err(|_| wrong("no result of a scenario: it isn't text".into()))?;
        Self::parse(&text).map_err(wrong)
    }

    /// Results in a folder with the names of their files, oldest first, and errors of its other JSON files.
    pub(crate) fn read_folder(folder: &Path) -> Result<(Named, Vec<String>), Error> {
        let unreadable = |error: std::io::Error| Error::Usage(format!("{}: {error}", folder.display()));
        let (mut found, mut unread) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match Self::read(&path) {
                Ok(record) => found.push((file, record)),
                Err(error) => unread.push(error.to_string()),
            }
        }
        found.sort_by(|(_, one), (_, other)| one.began.cmp(&other.began));
        Ok((found, unread))
    }

    /// Does the same for a text. The error is the reason why it can't be read.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let wrong = |error: serde_json::Error| match error.is_eof() {
            true if text.trim().is_empty() => "no result of a scenario: it is empty".to_owned(),
            true => format!("no whole result of a scenario: it ends in the middle ({error})"),
            false => format!("no result of a scenario: {error}"),
        };
        match serde_json::from_str(text).map_err(wrong)? {
            Version { schema: 0..=SCHEMA } => {
                let mut record: Self = serde_json::from_str(text).map_err(wrong)?;
                // Files of 2026 have no separators.
                record.report.cases.iter_mut().for_each(|case| case.title = separated(&case.title));
                Ok(record)
            }
            Version { schema } => {
                Err(format!("its format has the number {schema}, this program knows {SCHEMA}"))
            }
        }
    }

    /// Returns `true` if all servers have a result in each of their cases.
    pub(crate) fn is_complete(&self) -> bool {
        let servers = self.report.cases.iter().flat_map(|case| &case.servers);
        self.report.missing.is_empty()
            && servers.flat_map(|server| &server.trials).all(|trial| !trial.figures.is_empty())
    }

    pub(crate) fn server_names(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.name.clone()).collect()
    }

    pub(super) fn case(&self, name: &str) -> Option<&CaseReport> {
        self.report.cases.iter().find(|case| case.name == name)
    }

    pub(crate) fn case_names(&self) -> Vec<String> {
        self.report.cases.iter().map(|case| case.name.clone()).collect()
    }

    pub(super) fn server(&self, name: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.name == name)
    }

    pub(super) fn version(&self, server: &str) -> Option<String> {
        self.server(server).map(|found| listed(&found.versions))
    }
}

pub(super) fn listed(map: &BTreeMap<String, String>) -> String {
    map.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}
