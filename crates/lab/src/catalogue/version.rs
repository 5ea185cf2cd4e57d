//! What a peer was made of: a version that its folder fixes, or one that the machine has, which a command tells.
//!
//! The command is run in the peer's folder, with `/usr/sbin` on its path after all else, as the peers' scripts have it, and gets
//! [`WITHIN`]. What counts is the first line that isn't blank of what it prints, or else of what it complains, up to [`CHARS_MAX`]. Where
//! there is none, the version begins with [`UNKNOWN`] and says why: nobody is kept from a run by it.

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;

/// What a version begins with that couldn't be found out.
pub(crate) const UNKNOWN: &str = "unknown: ";
/// How long a command may take.
const WITHIN: Duration = Duration::from_secs(5);
/// From one look whether it has ended to the next.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Of what it says, what is kept; and of that line.
const BYTES_MAX: u64 = 4096;
const CHARS_MAX: usize = 200;

/// An entry of `[versions]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a version, or { command = [\"PROGRAM\", \"ARGUMENT\"] }")]
pub(super) enum Version {
    Fixed(String),
    Told(Told),
}

/// One that a command tells.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Told {
    command: Vec<String>,
}

impl Version {
    /// Whether it can be asked for.
    pub(super) fn is_sound(&self) -> bool {
        !matches!(self, Self::Told(Told { command }) if command.is_empty())
    }

    /// In words, for a peer in this folder.
    pub(super) fn read(&self, folder: &Path) -> String {
        match self {
            Self::Fixed(version) => version.clone(),
            Self::Told(Told { command }) => ask(command, folder, WITHIN),
        }
    }
}

fn ask(command: &[String], folder: &Path, within: Duration) -> String {
    let [program, arguments @ ..] = command else { return format!("{UNKNOWN}nothing is said to be run") };
    let unknown = |what: &str| format!("{UNKNOWN}{program} {what}");
    let path = std::env::var("PATH").unwrap_or_default();
    let child = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env("PATH", format!("{path}:/usr/sbin"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    let Ok(mut child) = child else { return unknown("can't be run") };
    let deadline = Instant::now() + within;
    let streams = [child.stdout.take().map(read_some), child.stderr.take().map(read_some)];
    let ended = end_of(&mut child, deadline);
    let said = streams.map(|stream| {
        let left = deadline.saturating_duration_since(Instant::now());
        stream.and_then(|stream| stream.recv_timeout(left).ok())
    });
    // Also what it has left behind, with its pipes.
    if (ended.is_none() || said.iter().any(Option::is_none))
        && let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
    {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
    let line = said.iter().flatten().find_map(|said| first_line(said));
    match (ended, line) {
        (None, _) => unknown(&format!("doesn't end within {} s", within.as_secs())),
        (Some(false), None) => unknown("fails"),
        (Some(false), Some(line)) => unknown(&format!("fails: {line}")),
        (Some(true), None) => unknown("says nothing"),
        (Some(true), Some(line)) => line,
    }
}

/// Whether it ended well; `None`: not in time.
fn end_of(child: &mut Child, deadline: Instant) -> Option<bool> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
            _ => return None,
        }
    }
}

/// Reads to the end, so that whoever writes never waits, and keeps the beginning.
fn read_some(mut stream: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (tell, told) = channel();
    thread::spawn(move || {
        let mut said = Vec::new();
        let _ = stream.by_ref().take(BYTES_MAX).read_to_end(&mut said);
        let _ = io::copy(&mut stream, &mut io::sink());
        let _ = tell.send(said);
    });
    told
}

/// The first line that isn't blank, short and without what isn't to be printed.
fn first_line(said: &[u8]) -> Option<String> {
    let said = String::from_utf8_lossy(said).replace(|c: char| c.is_control() && c != '\n', " ");
    let line = said.lines().map(str::trim).find(|line| !line.is_empty())?;
    let is_long = line.chars().count() > CHARS_MAX;
    Some(line.chars().take(CHARS_MAX - usize::from(is_long)).chain(is_long.then_some('…')).collect())
}

#[cfg(test)]
mod tests;
