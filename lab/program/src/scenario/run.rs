//! Runs a scenario: the result is written after each run, with a page of the same name. `--resume` continues an interrupted run if
//! the scenario, effort, servers, versions, machine and congestion control are the same.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use time::UtcDateTime;
use time::format_description::well_known::Rfc3339;

use super::record::{SCHEMA, Server};
use super::{Machine, Record, Scenario, html};
use crate::Error;
use crate::bench::{Contestant, Options, Report, choose, gather, run_cases};
use crate::catalogue::TARGET;
use crate::measure::end_children_on_signal;

/// Runs `scenario` with `options.servers` or its usual servers, in the network namespace that the options select. Writes the record to `results` after each run, so that
/// an interruption loses nothing. A signal ends the servers and generators with this process. Returns the record and
/// the path of the page. `resume` continues an interrupted run from this file, or from the newest one of the scenario.
pub fn run(
    scenario: &Scenario,
    options: Options,
    results: &Path,
    resume: Option<Option<PathBuf>>,
    progress: &mut dyn Write,
) -> Result<(Record, PathBuf), Error> {
    let mut options = with_servers(scenario, options);
    let cases = choose(&scenario.cases(options.effort), &options.cases)?;
    let gathered = gather(&cases, &options, progress)?;
    options.placing.enter(&gathered.1, options.target.is_some(), progress)?;
    let describe = |contestant: &Contestant| {
        let known = &contestant.known;
        let peer = known.peer.as_ref();
        let program = options.placing.stentor.as_deref().filter(|_| known.is_stentor());
        Server {
            name: contestant.name().to_owned(),
            about: known.about.clone(),
            versions: peer.map_or_else(|| own_versions(program), |peer| peer.versions().clone()),
            settings: peer.map(|peer| peer.manifest.settings.clone()).unwrap_or_default(),
        }
    };
    let servers = gathered.0.iter().map(describe).collect();
    let (clock, time) = (Instant::now(), now());
    fs::create_dir_all(results)
        .map_err(|error| Error::Usage(format!("{}: {error} (--results)", results.display())))?;
    let mut record = Record {
        schema: SCHEMA,
        scenario: scenario.clone(),
        effort: options.effort,
        began: time.clone(),
        took_s: 0.0,
        machine: Machine::here(),
        servers,
        report: Report { congestion: options.placing.congestion.clone(), ..Report::default() },
    };
    let resumed = resume.map(|file| file.map_or_else(|| newest(results, &scenario.name), Ok)).transpose()?;
    let json = match &resumed {
        Some(path) => path.clone(),
        None => reserve(results, &format!("{}-{}", scenario.name, time.replace([':', '-'], "")))?,
    };
    let page = json.with_extension("html");
    let mut before = Report::default();
    if let Some(path) = resumed {
        let interrupted = Record::read(&path)?;
        check_resumable(&interrupted, &record, &options.cases)
            .map_err(|what| Error::Usage(format!("{} can't be resumed: {what}", path.display())))?;
        (record.began, record.took_s, before) = (interrupted.began, interrupted.took_s, interrupted.report);
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
        write_whole(&json, &(text + "\n"))?;
        write_whole(&page, &html::page(&record))
    };
    let ended =
        run_cases(cases, gathered, &options, &before, progress, &mut keep).and_then(|report| keep(&report));
    ended.inspect_err(|_| unreserve(&json))?;
    Ok((record, page))
}

fn newest(folder: &Path, scenario: &str) -> Result<PathBuf, Error> {
    let (found, _) = Record::read_folder(folder).unwrap_or_default();
    let newest = found.iter().rfind(|(_, record)| record.scenario.name == scenario);
    newest.map(|(file, _)| folder.join(file)).ok_or_else(|| {
        Error::Usage(format!("there is no result of {scenario} in {} to resume", folder.display()))
    })
}

/// Checks that `now`, without measurements yet, can continue `was`. The error lists the differences.
fn check_resumable(was: &Record, now: &Record, cases: &[String]) -> Result<(), String> {
    let mut differing = was.machine.differences(&now.machine);
    let names = |record: &Record| record.server_names().join(",");
    let mut check = |what: &str, was: String, is: String| {
        if was != is {
            differing.push(format!("{what}: {was} / {is}"));
        }
    };
    check("scenario", was.scenario.name.clone(), now.scenario.name.clone());
    check("effort", was.effort.name().to_owned(), now.effort.name().to_owned());
    check("congestion control", was.report.congestion.clone(), now.report.congestion.clone());
    check("servers", names(was), names(now));
    for name in now.server_names() {
        check(&name, was.version(&name).unwrap_or_default(), now.version(&name).unwrap_or_default());
    }
    if !differing.is_empty() {
        return Err(format!("it was of something else: {}", differing.join("; ")));
    }
    let left_out = |name: &String| !cases.is_empty() && !cases.contains(name);
    match was.case_names().into_iter().find(left_out) {
        Some(name) => Err(format!("it has {name}, which is left out")),
        None => Ok(()),
    }
}

/// Reserves the path of a result of that name, with a number if another run started in the same second. Until the first result, a
/// draft file reserves the name.
fn reserve(results: &Path, name: &str) -> Result<PathBuf, Error> {
    let mut path = results.join(format!("{name}.json"));
    for number in 2.. {
        match fs::File::create_new(path.with_extension("draft")) {
            Ok(_) if !path.exists() => break,
            // The file that has this name is a complete result.
            Ok(_) => unreserve(&path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(unwritable(&path, &error)),
        }
        path = results.join(format!("{name}-{number}.json"));
    }
    Ok(path)
}

/// Releases a path that is no longer used.
fn unreserve(path: &Path) {
    let _ = fs::remove_file(path.with_extension("draft"));
}

fn unwritable(path: &Path, error: &io::Error) -> Error {
    Error::Usage(format!("writing {}: {error} (--results)", path.display()))
}

/// Writes a file so that it is always complete, even if this process ends.
fn write_whole(path: &Path, text: &str) -> Result<(), Error> {
    let draft = path.with_extension("draft");
    fs::write(&draft, text).and_then(|()| fs::rename(&draft, path)).map_err(|error| unwritable(path, &error))
}

/// Prints a message from the signal thread, which has no `progress`.
pub(crate) fn tell(what: &str) {
    let _ = writeln!(std::io::stderr(), "lab: {what}");
}

fn now() -> String {
    UtcDateTime::now().truncate_to_second().format(&Rfc3339).unwrap_or_default()
}

/// Adds the scenario's usual servers if none were named, and sorts the servers: the target, Stentor's own, then the others. If
/// the scenario has no servers, each case has its own.
fn with_servers(scenario: &Scenario, mut options: Options) -> Options {
    if options.target.is_some() {
        options.servers.insert(0, TARGET.to_owned());
    }
    if options.servers.is_empty() {
        options.servers.clone_from(&scenario.peers);
    }
    options.servers.sort_by_key(|name| name != TARGET && !name.starts_with("stentor"));
    options
}

/// Versions of Stentor: its version number, and a hash that distinguishes two builds.
fn own_versions(program: Option<&Path>) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    let Some(program) = program else { return versions };
    if let Ok(output) = Command::new(program).arg("--version").output() {
        let said = String::from_utf8_lossy(&output.stdout);
        versions
            .extend(said.split_whitespace().last().map(|version| ("stentor".to_owned(), version.to_owned())));
    }
    if let Ok(bytes) = fs::read(program) {
        // A checksum is enough: protection against forgery isn't needed.
        versions.insert("build".to_owned(), format!("{:08x}", crc32fast::hash(&bytes)));
    }
    versions
}

#[cfg(test)]
mod tests;
