//! Running a scenario, and what is kept of it: `results/SCENARIO-TIME.json`, whose schema docs/lab.md tells, and beside it the
//! same as a page.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::{Effort, Machine, Scenario, html};
use crate::Error;
use crate::bench::{Contestant, Options, Report, install_for, run_cases};
use crate::catalogue::Catalogue;

/// The number of the schema; it grows when something changes its meaning or goes.
pub(super) const SCHEMA: u32 = 1;

/// One run of a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Of this format.
    pub schema: u32,
    /// Which, with its texts and the published figures.
    pub scenario: Scenario,
    /// How much time it had.
    pub effort: Effort,
    /// When it began, as ISO 8601 has it.
    pub began: String,
    /// How long it took.
    pub took_s: f64,
    /// Where.
    pub machine: Machine,
    /// Who took part.
    pub servers: Vec<Server>,
    /// What was found.
    pub report: Report,
}

/// Who took part.
#[derive(Clone, Debug, Serialize)]
pub struct Server {
    /// As in the tables.
    pub name: String,
    /// One line.
    pub about: String,
    /// Of what matters.
    pub versions: BTreeMap<String, String>,
    /// What was chosen.
    pub settings: BTreeMap<String, String>,
}

impl Record {
    /// Whether everybody who was to take part gave something in each case that it takes part in.
    pub fn is_complete(&self) -> bool {
        let trials =
            self.report.cases.iter().flat_map(|case| &case.servers).flat_map(|server| &server.trials);
        self.report.missing.is_empty() && trials.into_iter().all(|trial| !trial.figures.is_empty())
    }
}

/// Runs `scenario`, with `options.servers` or else its usual ones, and writes what was found to `results` after each case, so
/// that nothing is lost if it is broken off. Returns the record, and the page's path.
pub fn run(
    scenario: &Scenario,
    effort: Effort,
    options: &Options,
    results: &Path,
    progress: &mut dyn Write,
) -> Result<(Record, PathBuf), Error> {
    let options = with_servers(scenario, options);
    let catalogue = Catalogue::read(&options.peers)?;
    let mut servers = Vec::new();
    for name in &options.servers {
        let contestant = Contestant::find(name, &catalogue, &options)?;
        let known = contestant.known();
        let manifest = known.peer.as_ref().map(|peer| &peer.manifest);
        let own = own_versions(options.stentor.as_deref());
        servers.push(Server {
            name: name.clone(),
            about: known.about().to_owned(),
            versions: manifest.map_or(own, |manifest| manifest.versions.clone()),
            settings: manifest.map(|manifest| manifest.settings.clone()).unwrap_or_default(),
        });
    }
    let began = SystemTime::now();
    let since_1970 = began.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let time = iso_8601(since_1970);
    fs::create_dir_all(results).map_err(Error::io("making the folder for results"))?;
    let stem = format!("{}-{}", scenario.name, time.replace([':', '-'], ""));
    let (json, page) = (results.join(format!("{stem}.json")), results.join(format!("{stem}.html")));
    let record = |report: &Report| Record {
        schema: SCHEMA,
        scenario: *scenario,
        effort,
        began: time.clone(),
        took_s: began.elapsed().unwrap_or_default().as_secs_f64(),
        machine: Machine::here(),
        servers: servers.clone(),
        report: report.clone(),
    };
    let mut keep = |report: &Report| {
        let record = record(report);
        let text = serde_json::to_string_pretty(&record).map_err(|error| Error::Usage(error.to_string()))?;
        fs::write(&json, text + "\n").map_err(Error::io("writing results"))?;
        fs::write(&page, html::page(&record)).map_err(Error::io("writing results"))
    };
    let report = run_cases((scenario.cases)(effort), &options, progress, &mut keep)?;
    Ok((record(&report), page))
}

/// Makes the servers ready that [`run`] takes with these options: in a network namespace it can't fetch anything.
///
/// # Errors
/// If a server that was named is unknown. Of those that can't be installed, [`run`] tells.
pub fn install(
    scenario: &Scenario,
    effort: Effort,
    options: &Options,
    progress: &mut dyn Write,
) -> Result<(), Error> {
    install_for(&(scenario.cases)(effort), &with_servers(scenario, options), progress)
}

/// With the scenario's usual servers, if none were named; the judged one comes first.
fn with_servers(scenario: &Scenario, options: &Options) -> Options {
    let mut options = options.clone();
    if options.servers.is_empty() {
        options.servers = scenario.peers.iter().map(|name| (*name).to_owned()).collect();
    }
    options.servers.sort_by_key(|name| !name.starts_with("stentor"));
    options
}

/// Which Stentor this is: what it says of itself, and what tells two builds of one version apart.
fn own_versions(program: Option<&Path>) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    let Some(program) = program else { return versions };
    if let Ok(output) = Command::new(program).arg("--version").output() {
        let said = String::from_utf8_lossy(&output.stdout);
        versions
            .extend(said.split_whitespace().last().map(|version| ("stentor".to_owned(), version.to_owned())));
    }
    if let Ok(bytes) = fs::read(program) {
        // FNV-1a (Fowler, Noll, Vo): nobody has a reason to forge it.
        let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold);
        versions.insert("build".to_owned(), format!("{hash:016x}")[..8].to_owned());
    }
    versions
}

/// So many seconds after 1970 began, as `2026-11-21T19:12:14Z`.
fn iso_8601(seconds: u64) -> String {
    // Civil from days (Hinnant, chrono-compatible low-level date algorithms): eras of 400 years that begin in March.
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let check = |seconds, expect: &str| assert_eq!(iso_8601(seconds), expect);
        check(0, "1970-01-01T00:00:00Z");
        check(951_782_400, "2000-02-29T00:00:00Z");
        check(1_795_288_334, "2026-11-21T19:12:14Z");
        check(4_107_542_399, "2100-02-28T23:59:59Z");
        check(4_107_542_400, "2100-03-01T00:00:00Z");
    }
}
