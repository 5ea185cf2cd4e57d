//! Versions of a server: fixed by its folder, or printed by a command on this machine.
//!
//! The command runs in the server's folder, with `/usr/sbin` at the end of its path, like the scripts of the servers. The version is
//! the first non-blank line of its output, or else of its errors, up to [`CHARS_MAX`]. If there is none, the version is [`UNKNOWN`]
//! with the reason; the run continues.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

/// Start of a version that couldn't be determined.
const UNKNOWN: &str = "unknown: ";
const CHARS_MAX: usize = 200;

/// An entry of `[versions]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a version, or { command = [\"PROGRAM\", \"ARGUMENT\"] }")]
pub(super) enum Version {
    Fixed(String),
    Printed(Printed),
}

/// A version that a command prints.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Printed {
    command: Vec<String>,
}

impl Version {
    /// Returns `true` if the entry is well-formed.
    pub(super) fn is_valid(&self) -> bool {
        !matches!(self, Self::Printed(Printed { command }) if command.is_empty())
    }

    /// The version in words, for a peer in this folder.
    pub(super) fn read(&self, folder: &Path) -> String {
        match self {
            Self::Fixed(version) => version.clone(),
            Self::Printed(Printed { command }) => ask(command, folder),
        }
    }
}

/// Returns `true` if the version in a result could be determined.
pub(crate) fn is_known(version: &str) -> bool {
    !version.starts_with(UNKNOWN)
}

fn ask(command: &[String], folder: &Path) -> String {
    let [program, arguments @ ..] = command else { return format!("{UNKNOWN}nothing is said to be run") };
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env("PATH", format!("{path}:/usr/sbin"))
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else { return format!("{UNKNOWN}{program} can't be run") };
    let line = [&output.stdout, &output.stderr].into_iter().find_map(|said| first_line(said));
    match (output.status.success(), line) {
        (true, Some(line)) => line,
        (true, None) => format!("{UNKNOWN}{program} says nothing"),
        (false, Some(line)) => format!("{UNKNOWN}{program} fails: {line}"),
        (false, None) => format!("{UNKNOWN}{program} fails"),
    }
}

/// The first line that isn't blank, shortened, without control characters.
fn first_line(said: &[u8]) -> Option<String> {
    let said = String::from_utf8_lossy(said).replace(|c: char| c.is_control() && c != '\n', " ");
    let line = said.lines().map(str::trim).find(|line| !line.is_empty())?;
    let is_long = line.chars().count() > CHARS_MAX;
    Some(line.chars().take(CHARS_MAX - usize::from(is_long)).chain(is_long.then_some('…')).collect())
}

#[cfg(test)]
mod tests;
