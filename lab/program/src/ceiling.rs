//! CPU of the generator itself, beside a minimal client (`bare`): CPU per message, and messages a second of a whole core.
//!
//! Both run alternately against the same server, each in its own process on the same core. The loads are an echo in a closed loop,
//! where each message is received and sent, and a fan-out, where messages are only received.

use std::fmt;
use std::io::Write;
use std::time::Duration;

use clap::Args;

use crate::Error;
use crate::bench::{Application, Contestant, Options, median};
use crate::catalogue::Catalogue;
use crate::generator::{LoadSpec, Protocol, Spec, Workers};
use crate::measure::Server;

/// Goal for the generator's CPU, as a multiple of the bare client's.
pub(crate) const RATIO_MAX: f64 = 1.2;
/// Publications per second of the fan-out.
const RATE_HZ: f64 = 50.0;

#[derive(Args)]
pub(crate) struct Plan {
    /// The server to connect to.
    #[arg(long, default_value = "bare-epoll")]
    against: String,
    /// Number of connections.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: u16,
    /// Runs of each client.
    #[arg(long, default_value_t = 3)]
    pairs: usize,
    /// Seconds of the measurement; the warm-up before it is a fifth of that.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct Ceiling {
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub load: String,
    /// The generator's CPU per message in the median run; microseconds.
    pub generator_us: f64,
    pub bare_us: f64,
    /// The median of the ratios of runs with the same number.
    pub ratio: f64,
}

/// Measures; writes the progress to `progress`, line by line.
pub(crate) fn run(plan: &Plan, options: &Options, progress: &mut dyn Write) -> Result<Ceiling, Error> {
    let catalogue = Catalogue::read(&options.peers)?;
    let contestant = Contestant::find(&plan.against, &catalogue, options)?;
    let mut rows = Vec::new();
    let measure =
        Duration::try_from_secs_f64(plan.seconds).map_err(|error| Error::Usage(error.to_string()))?;
    let warm_up = measure / 5;
    let times = |span: Duration| (span.as_secs_f64() * RATE_HZ).ceil() as u64;
    let echo = LoadSpec::EchoClosed { bytes: 64, warm_up, measure };
    let fanout = LoadSpec::to_all(1000, RATE_HZ, times(warm_up), times(measure).max(1));
    for (title, load, application) in [
        ("echo of 64 bytes, closed loop".to_owned(), echo, Application::Echo),
        (format!("fan-out of 1000 bytes, {RATE_HZ:.0} a second"), fanout, Application::Chat),
    ] {
        let mut costs = [Vec::new(), Vec::new()];
        for round in 0..plan.pairs.max(1) {
            for which in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
                let server = Server::start(&contestant.command(application, Protocol::WebSocket, None))?;
                let path = contestant.path(application, Protocol::WebSocket);
                let mut spec = Spec::new(server.address(), path, usize::from(plan.connections), load.clone());
                spec.core = Some(options.generator_core);
                spec.bare = which == 1;
                let lost = |error: Error| server.error(&error.to_string());
                let outcome = Workers::connect(&options.invocation, &spec)
                    .and_then(|mut workers| workers.run())
                    .map_err(lost)?;
                server.stop()?;
                let (messages, cpu, wall) = (outcome.messages, outcome.load.own_cpu, outcome.load.wall);
                if messages == 0 {
                    return Err(Error::Generator(format!("no message came ({title})")));
                }
                let each_us = cpu.as_secs_f64() * 1e6 / messages as f64;
                let name = ["generator", "bare client"][which];
                let (rate, share) =
                    (messages as f64 / wall.as_secs_f64(), cpu.as_secs_f64() / wall.as_secs_f64() * 100.0);
                // Standard error may be closed.
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
