//! A result: `results/SCENARIO-TIME.json`, whose schema docs/lab.md has. It is written after each run, and read by the pages,
//! [`super::compare`], [`super::history`], [`super::gate`] and `--resume`. A greater number of the schema is refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Machine, Scenario};
use crate::Error;
use crate::bench::{Effort, Report, separated};

/// The number of the schema; it grows when something changes its meaning or goes.
pub(super) const SCHEMA: u32 = 1;

/// One run of a scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The number of this format.
    pub schema: u32,
    /// Which, with its texts and the published figures.
    pub scenario: About,
    /// How much time it had.
    pub effort: Effort,
    /// When it began, as ISO 8601 has it.
    pub began: String,
    /// How long it took, seconds.
    #[serde(default)]
    pub took_s: f64,
    /// Where.
    pub machine: Machine,
    /// The servers.
    pub servers: Vec<Server>,
    /// What was found.
    pub report: Report,
}

/// Results with the names of their files.
pub(super) type Named = Vec<(String, Record)>;

/// The texts of a scenario: see [`Scenario`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "they are those of `Scenario`")]
pub struct About {
    pub name: String,
    pub question: String,
    pub load: String,
    pub metric: String,
    pub source: String,
    pub published: Vec<Figure>,
    pub repaired: String,
    pub peers: Vec<String>,
}

/// A published figure, and whose it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "they are those of `Published`")]
pub struct Figure {
    pub who: String,
    pub figure: String,
}

/// A server that takes part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Server {
    /// As in the tables.
    pub name: String,
    /// One line.
    #[serde(default)]
    pub about: String,
    /// Of what matters.
    pub versions: BTreeMap<String, String>,
    /// What was chosen.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

impl From<&Scenario> for About {
    fn from(scenario: &Scenario) -> Self {
        // The same members; a test reads the texts of each scenario back.
        serde_json::to_value(scenario).and_then(serde_json::from_value).unwrap_or_default()
    }
}

impl Record {
    /// Reads a file that [`super::run()`] wrote.
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

    /// Those in a folder with the names of their files, the oldest first, and which of its JSON files are none.
    ///
    /// # Errors
    /// If the folder can't be read.
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

    /// The same of a text; an error says what is wrong with it.
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
                // Those of 2026 have none.
                record.report.cases.iter_mut().for_each(|case| case.title = separated(&case.title));
                Ok(record)
            }
            Version { schema } => {
                Err(format!("its format has the number {schema}, this program knows {SCHEMA}"))
            }
        }
    }

    /// Whether all servers that were to take part gave something in each of their cases.
    pub fn is_complete(&self) -> bool {
        let servers = self.report.cases.iter().flat_map(|case| &case.servers);
        self.report.missing.is_empty()
            && servers.flat_map(|server| &server.trials).all(|trial| !trial.figures.is_empty())
    }

    /// The servers, the baseline first.
    pub fn server_names(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.name.clone()).collect()
    }

    /// The cases, in order.
    pub fn case_names(&self) -> Vec<String> {
        self.report.cases.iter().map(|case| case.name.clone()).collect()
    }

    /// The effort, as results call it.
    pub(super) fn effort_name(&self) -> String {
        format!("{:?}", self.effort).to_lowercase()
    }

    /// The versions of a server, in one line.
    pub(super) fn version(&self, server: &str) -> Option<String> {
        let found = self.servers.iter().find(|known| known.name == server)?;
        Some(listed(&found.versions))
    }
}

/// The entries of a map in one line.
pub(super) fn listed(map: &BTreeMap<String, String>) -> String {
    map.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}
