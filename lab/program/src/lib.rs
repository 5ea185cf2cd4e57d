//! Load generator, scenarios and reports: measures Stentor and other servers with the same code.
//!
//! The lab depends on `stentor-wire`, `stentor-driver` and `stentor-auth` only; it treats Stentor like any other server with a
//! command line. Its parts:
//!
//! - [`generator`]: many WebSocket connections and the load on them, audited message by message;
//! - `upstream`: the HTTP API of servers that fetch what they push;
//! - [`catalogue`]: the known servers;
//! - [`measure`]: servers as pinned processes, their CPU time and memory;
//! - [`mod@bench`]: alternating runs of servers against each other, and the resulting table;
//! - `doctor`: checks whether a machine is suitable for measurements;
//! - `ceiling`: the generator's own cost, beside a bare client;
//! - [`sizing`]: the machines that a load needs, from committed measurements;
//! - [`scenario`]: published comparisons, run by the bench, with the texts that explain them.
//!
//! Deliberately absent: verdicts by throughput alone, and reading a server's internals.

#![allow(clippy::missing_errors_doc, reason = "a program; its library has no other callers")]

pub mod bench;
pub mod catalogue;
mod ceiling;
pub mod cli;
mod clock;
mod doctor;
pub mod document;
pub mod generator;
pub mod measure;
mod payload;
mod plot;
pub mod scenario;
mod seconds;
pub mod sizing;
mod table;
mod templates;
mod upstream;

use std::io;

/// The reason why a run gave no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A server didn't start, or ended early.
    #[error("server {name}: {what}")]
    Server {
        /// The server's name.
        name: String,
        /// The failure.
        what: String,
    },
    /// The generator could not do its part.
    #[error("generator: {0}")]
    Generator(String),
    /// The user named something that doesn't exist.
    #[error("{0}")]
    Usage(String),
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The failed operation.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
}

impl Error {
    /// Returns a function for `map_err`, which makes an [`Error::Io`] about `what`.
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// Finds the value called `name`. The error lists the known names.
pub(crate) fn named<'a, T>(
    what: &str,
    name: &str,
    all: &'a [T],
    name_of: impl Fn(&T) -> &str,
) -> Result<&'a T, Error> {
    all.iter().find(|one| name_of(one) == name).ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(name_of).collect();
        let near = suggestion(name, &known);
        Error::Usage(format!("there is no {what} `{name}`; there are {}{near}", known.join(", ")))
    })
}

/// A question that suggests the most similar known name, if one is similar enough.
pub(crate) fn suggestion(name: &str, known: &[&str]) -> String {
    let near = known.iter().map(|known| (strsim::jaro_winkler(name, known), *known));
    let near = near.filter(|(similarity, _)| *similarity > 0.8);
    let nearest = near.max_by(|(one, _), (other, _)| one.total_cmp(other));
    nearest.map_or(String::new(), |(_, known)| format!(" (did you mean `{known}`?)"))
}
