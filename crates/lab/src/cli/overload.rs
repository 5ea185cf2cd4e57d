//! `overload`: a server is offered more than it can deliver.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::Placing;
use crate::{Error, overload};

#[derive(Args)]
pub(super) struct Arguments {
    /// How many clients.
    #[arg(long, default_value_t = 10_000)]
    clients: usize,
    /// Length of the document.
    #[arg(long, default_value_t = 165_000)]
    bytes: usize,
    /// Seconds of each phase; the last one takes twice as long.
    #[arg(long, default_value_t = 20.0)]
    phase: f64,
    /// Versions a second that everybody can be sent [default: looked for].
    #[arg(long)]
    capacity: Option<f64>,
    /// Milliseconds from one look to the next.
    #[arg(long, default_value_t = 250)]
    every_ms: u64,
    /// Draw it here.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Write everything here, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Run nothing, but print and draw (--svg) what an earlier run wrote there (--json).
    #[arg(long, conflicts_with = "json")]
    again: Option<PathBuf>,
    #[command(flatten)]
    placing: Placing,
    /// Further arguments of `stentor serve`.
    #[arg(last = true)]
    serve: Vec<String>,
}

/// Runs it, prints the table, and fails if the server didn't do what it should.
pub(super) fn run(arguments: Arguments, out: &mut dyn Write, progress: &mut dyn Write) -> Result<(), Error> {
    if let Some(path) = arguments.again {
        return print_and_draw(&kept(&path)?, arguments.svg.as_deref(), out);
    }
    let placing = arguments.placing;
    let stentor = placing.options()?.stentor;
    let phase =
        Duration::try_from_secs_f64(arguments.phase).map_err(|error| Error::Usage(error.to_string()))?;
    placing.enter(None, progress)?;
    let options = overload::Options {
        stentor: stentor.ok_or_else(|| Error::Usage("it needs --stentor PATH".into()))?,
        serve: arguments.serve,
        clients: arguments.clients,
        bytes: arguments.bytes,
        phase,
        every: Duration::from_millis(arguments.every_ms.max(1)),
        capacity_hz: arguments.capacity,
        cores: (placing.server_core, placing.generator_core),
    };
    let report = overload::run(&options, progress)?;
    print_and_draw(&report, arguments.svg.as_deref(), out)?;
    if let Some(path) = arguments.json {
        let text = serde_json::to_string(&report).map_err(|error| Error::Usage(error.to_string()))?;
        fs::write(&path, text + "\n").map_err(Error::io("writing --json"))?;
    }
    match report.faults().is_empty() {
        true => Ok(()),
        false => Err(Error::Usage("the server didn't do what it should".into())),
    }
}

/// What an earlier run wrote.
fn kept(path: &Path) -> Result<overload::Report, Error> {
    let wrong = |what: String| Error::Usage(format!("{}: {what}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| wrong(format!("no result of an overload: {error}")))
}

fn print_and_draw(report: &overload::Report, svg: Option<&Path>, out: &mut dyn Write) -> Result<(), Error> {
    write!(out, "{report}").map_err(Error::io("printing the table"))?;
    if let Some(path) = svg {
        fs::write(path, overload::plot(report)).map_err(Error::io("writing --svg"))?;
    }
    Ok(())
}
