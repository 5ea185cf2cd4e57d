//! Running a scenario, and what is kept of it: `results/SCENARIO-TIME.json`, whose schema docs/lab.md tells, and beside it the
//! same as a page.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::{Effort, Kept, Machine, Scenario, html, resume};
use crate::Error;
use crate::bench::{Before, Contestant, Options, Report, install_for, run_cases};
use crate::catalogue::Catalogue;
use crate::measure::end_children_on_signal;

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

/// Whether a run goes on with one that was broken off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resume {
    /// It is a new one.
    No,
    /// With the newest result of that scenario.
    Newest,
    /// With this one.
    File(PathBuf),
}

/// Runs `scenario`, with `options.servers` or else its usual ones, and writes what was found to `results` after each run, so
/// that nothing is lost if it is broken off: a signal ends the servers and generators with this process. Returns the record,
/// and the page's path.
///
/// # Errors
/// If a server is unknown, the kernel refuses something, or what is to be resumed is of something else. A server's failure is
/// none, but stands in the record.
pub fn run(
    scenario: &Scenario,
    effort: Effort,
    options: &Options,
    results: &Path,
    resume: &Resume,
    progress: &mut dyn Write,
) -> Result<(Record, PathBuf), Error> {
    let options = with_servers(scenario, options);
    let catalogue = Catalogue::read(&options.peers)?;
    let mut servers = Vec::new();
    for name in &options.servers {
        let contestant = match Contestant::find(name, &catalogue, &options) {
            // It can't take part, which is told below.
            Err(Error::Server { .. }) => continue,
            found => found?,
        };
        let known = contestant.known();
        let peer = known.peer.as_ref();
        let own = own_versions(options.stentor.as_deref());
        servers.push(Server {
            name: name.clone(),
            about: known.about().to_owned(),
            versions: peer.map_or(own, |peer| peer.versions().clone()),
            settings: peer.map(|peer| peer.manifest.settings.clone()).unwrap_or_default(),
        });
    }
    let (clock, time) = (Instant::now(), now());
    fs::create_dir_all(results)
        .map_err(|error| Error::Usage(format!("{}: {error} (--results)", results.display())))?;
    let nothing = Report {
        congestion: options.congestion.clone(),
        pace: options.pace,
        missing: Vec::new(),
        cases: Vec::new(),
    };
    let mut record = Record {
        schema: SCHEMA,
        scenario: *scenario,
        effort,
        began: time.clone(),
        took_s: 0.0,
        machine: Machine::here(),
        servers,
        report: nothing,
    };
    let resumed = match resume {
        Resume::No => None,
        Resume::Newest => Some(resume::newest(results, scenario.name)?),
        Resume::File(path) => Some(path.clone()),
    };
    let json = match &resumed {
        Some(path) => path.clone(),
        None => reserve(results, &format!("{}-{}", scenario.name, time.replace([':', '-'], "")))?,
    };
    let page = json.with_extension("html");
    let mut before = Before::new();
    if let Some(path) = resumed {
        let broken_off = resume::read(&path, &record)?;
        let left_out = |name: &&String| !options.cases.is_empty() && !options.cases.contains(name);
        if let Some(name) = broken_off.before.keys().find(left_out) {
            let what = format!("{} can't be resumed: it has {name}, which is left out", path.display());
            return Err(Error::Usage(what));
        }
        (record.began, record.took_s, before) = (broken_off.began, broken_off.took_s, broken_off.before);
    }
    let _ = writeln!(progress, "results: {}", json.display());
    let file = json.clone();
    end_children_on_signal(move || match file.exists() {
        true => tell(&format!("interrupted; {} has what was measured (--resume goes on)", file.display())),
        false => {
            unreserve(&file);
            tell("interrupted; nothing was measured yet");
        }
    });
    let took_s = record.took_s;
    let mut keep = |report: &Report| {
        record.report.clone_from(report);
        record.took_s = took_s + clock.elapsed().as_secs_f64();
        let text = serde_json::to_string_pretty(&record).map_err(|error| Error::Usage(error.to_string()))?;
        let kept = Kept::parse(&text).map_err(Error::Usage)?;
        write_whole(&json, &(text + "\n"))?;
        write_whole(&page, &html::page(&[kept]))
    };
    let ended = run_cases((scenario.cases)(effort), &options, &before, progress, &mut keep)
        .and_then(|report| keep(&report));
    ended.inspect_err(|_| unreserve(&json))?;
    Ok((record, page))
}

/// The path of a result of that name, or with a number where another run began in the same second. Until there is a result
/// its draft says that the name is taken.
fn reserve(results: &Path, name: &str) -> Result<PathBuf, Error> {
    let mut path = results.join(format!("{name}.json"));
    for number in 2.. {
        match fs::File::create_new(path.with_extension("draft")) {
            Ok(_) if !path.exists() => break,
            // What took the name has a result already.
            Ok(_) => unreserve(&path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(unwritable(&path, &error)),
        }
        path = results.join(format!("{name}-{number}.json"));
    }
    Ok(path)
}

/// Nothing comes to this path any more.
fn unreserve(path: &Path) {
    let _ = fs::remove_file(path.with_extension("draft"));
}

fn unwritable(path: &Path, error: &io::Error) -> Error {
    Error::Usage(format!("writing {}: {error} (--results)", path.display()))
}

/// Writes a file such that there is a whole one at any time, whatever ends this process.
fn write_whole(path: &Path, text: &str) -> Result<(), Error> {
    let draft = path.with_extension("draft");
    fs::write(&draft, text).and_then(|()| fs::rename(&draft, path)).map_err(|error| unwritable(path, &error))
}

/// Says something when the rest of this process can't any more.
fn tell(what: &str) {
    let _ = writeln!(std::io::stderr(), "lab: {what}");
}

/// Now, as ISO 8601 has it.
fn now() -> String {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    iso_8601(since_1970.as_secs())
}

/// Makes the servers ready that [`run`] takes with these options: in a network namespace it can't fetch anything. Returns who
/// can't be, for [`Options::left_out`]; why is told.
///
/// # Errors
/// If a server that was named is unknown.
pub fn install(
    scenario: &Scenario,
    effort: Effort,
    options: &Options,
    progress: &mut dyn Write,
) -> Result<Vec<String>, Error> {
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
mod tests;
