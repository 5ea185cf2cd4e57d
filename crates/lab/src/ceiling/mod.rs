//! What the generator costs itself, beside the least that a client can do (`bare`): CPU per message, and the messages a second
//! that a whole core of it is good for.
//!
//! Both run against the same server, in turn, each in a process of its own on the same core. The loads are an echo in a closed
//! loop, where each message is received and sent, and a fan-out, where messages are received.

mod bare;

use std::fmt;
use std::io::{BufRead, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::bench::{Application, Contestant, Options, median};
use crate::catalogue::Catalogue;
use crate::generator::{LoadSpec, Protocol, Publisher, Spec, Workers};
use crate::measure::{Server, Ward};

/// What the generator may cost at most, as a multiple of the bare client.
pub const RATIO_MAX: f64 = 1.2;
/// The word that begins a bare client on the lab's command line.
pub const BARE_CLIENT: &str = "bare-client";

/// What the clients do.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Load {
    Echo { bytes: usize },
    Fanout { bytes: usize, rate_hz: f64 },
}

impl Load {
    fn bytes(self) -> usize {
        match self {
            Self::Echo { bytes } | Self::Fanout { bytes, .. } => bytes,
        }
    }
}

/// How it is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub against: String,
    /// How many connections, at most 10,000.
    pub connections: usize,
    /// Runs of each.
    pub pairs: usize,
    /// The span that is measured, after a fifth of it.
    pub measure: Duration,
}

/// What was found, load by load.
#[derive(Clone, Debug, Serialize)]
pub struct Ceiling {
    /// Load by load.
    pub rows: Vec<Row>,
}

/// One load.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// In words.
    pub load: String,
    /// The generator's CPU per message, the median run's; microseconds.
    pub generator_us: f64,
    /// The bare client's.
    pub bare_us: f64,
    /// The median of the ratios of runs with the same number.
    pub ratio: f64,
}

/// Measures; progress goes to `progress`, line by line.
///
/// # Errors
/// If the server or a client fails.
pub fn run(plan: &Plan, options: &Options, progress: &mut dyn Write) -> Result<Ceiling, Error> {
    let catalogue = Catalogue::read(&options.peers)?;
    let contestant = Contestant::find(&plan.against, &catalogue, options)?;
    let mut rows = Vec::new();
    for (load, application) in [
        (Load::Echo { bytes: 64 }, Application::Echo),
        (Load::Fanout { bytes: 1000, rate_hz: 50.0 }, Application::Chat),
    ] {
        let title = match load {
            Load::Echo { bytes } => format!("echo of {bytes} bytes, closed loop"),
            Load::Fanout { bytes, rate_hz } => format!("fan-out of {bytes} bytes, {rate_hz:.0} a second"),
        };
        let mut costs = [Vec::new(), Vec::new()];
        for round in 0..plan.pairs.max(1) {
            for which in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
                let server = Server::start(&contestant.command(application, Protocol::WebSocket, None))?;
                let path = contestant.path(application, Protocol::WebSocket);
                let (messages, cpu, wall) = match which {
                    0 => by_generator(plan, options, load, &server, path)?,
                    _ => by_bare_client(plan, options, load, &server)?,
                };
                server.stop()?;
                if messages == 0 {
                    return Err(Error::Generator(format!("no message came ({title})")));
                }
                let each_us = cpu.as_secs_f64() * 1e6 / messages as f64;
                let name = ["generator", "bare client"][which];
                let (rate, share) =
                    (messages as f64 / wall.as_secs_f64(), cpu.as_secs_f64() / wall.as_secs_f64() * 100.0);
                // Nobody may be listening.
                let _ = writeln!(
                    progress,
                    "{title}: {name}: {each_us:.2} µs, {rate:.0}/s, {share:.0} % of a core"
                );
                costs[which].push(each_us);
            }
        }
        let ratios: Vec<f64> = costs[0].iter().zip(&costs[1]).map(|(ours, bare)| ours / bare).collect();
        let middle = |values: &[f64]| median(values).unwrap_or_default();
        rows.push(Row {
            load: title,
            generator_us: middle(&costs[0]),
            bare_us: middle(&costs[1]),
            ratio: middle(&ratios),
        });
    }
    Ok(Ceiling { rows })
}

fn by_generator(
    plan: &Plan,
    options: &Options,
    load: Load,
    server: &Server,
    path: &str,
) -> Result<(u64, Duration, Duration), Error> {
    let (warm_up, measure) = (plan.measure / 5, plan.measure);
    let load = match load {
        Load::Echo { bytes } => LoadSpec::EchoClosed { bytes, warm_up, measure },
        Load::Fanout { bytes, rate_hz } => {
            let count = |span: Duration| (span.as_secs_f64() * rate_hz).ceil() as u64;
            let publisher = Publisher::Own;
            LoadSpec::Fanout {
                bytes,
                rate_hz,
                warm_up: count(warm_up),
                count: count(measure).max(1),
                publisher,
            }
        }
    };
    let mut spec = Spec::new(server.address(), path, plan.connections, load);
    spec.core = Some(options.generator_core);
    spec.driver = options.generator_driver;
    let outcome = Workers::connect(&options.invocation, &spec)?.run()?;
    Ok((outcome.messages, outcome.load.own_cpu, outcome.load.wall))
}

fn by_bare_client(
    plan: &Plan,
    options: &Options,
    load: Load,
    server: &Server,
) -> Result<(u64, Duration, Duration), Error> {
    let task = bare::Task {
        target: server.address(),
        connections: plan.connections,
        load,
        warm_up: plan.measure / 5,
        measure: plan.measure,
        core: options.generator_core,
    };
    let mut command = Command::new(&options.invocation.program);
    command.arg(BARE_CLIENT).stdin(Stdio::piped()).stdout(Stdio::piped());
    let (mut child, _ward) = Ward::spawn(&mut command).map_err(Error::io("starting a bare client"))?;
    let task = serde_json::to_string(&task).map_err(|error| Error::Usage(error.to_string()))?;
    let told = child.stdin.take().map(|mut stdin| writeln!(stdin, "{task}"));
    told.transpose().map_err(Error::io("giving a bare client its task"))?;
    let output = child.wait_with_output().map_err(Error::io("waiting for a bare client"))?;
    let found: bare::Found =
        serde_json::from_slice(&output.stdout).map_err(|_| server.error("the bare client failed"))?;
    Ok((found.messages, found.own_cpu, found.wall))
}

/// The bare client's own process: its task from `input`, what it found to `output`.
///
/// # Errors
/// If the server doesn't do what is expected of it.
pub fn serve_bare_client(input: &mut dyn BufRead, output: &mut dyn Write) -> Result<(), Error> {
    let mut line = String::new();
    input.read_line(&mut line).map_err(Error::io("reading the task"))?;
    let task = serde_json::from_str(&line).map_err(|error| Error::Usage(format!("the task: {error}")))?;
    let found = serde_json::to_string(&bare::run(&task)?).map_err(|error| Error::Usage(error.to_string()))?;
    writeln!(output, "{found}").map_err(Error::io("reporting"))
}

impl fmt::Display for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Row { load, generator_us, bare_us, ratio } in &self.rows {
            let word = if *ratio <= RATIO_MAX { "reached" } else { "MISSED" };
            writeln!(f, "{load}")?;
            writeln!(
                f,
                "  generator    {generator_us:.2} µs per message, a core is good for {:.0} a second",
                1e6 / generator_us
            )?;
            writeln!(
                f,
                "  bare client  {bare_us:.2} µs per message, a core is good for {:.0} a second",
                1e6 / bare_us
            )?;
            writeln!(f, "  {word}: {ratio:.2} ≤ {RATIO_MAX}")?;
        }
        Ok(())
    }
}
