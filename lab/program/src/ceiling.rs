//! CPU of the generator itself, beside a minimal client (`bare`): CPU per message, and messages a second of a whole core.
//!
//! Both run alternately against the same server, each in its own process on the same core. The loads are an echo in a closed loop,
//! where each message is received and sent, and a fan-out, where messages are only received.

use std::io::Write;
use std::time::Duration;

use clap::Args;

use crate::Error;
use crate::bench::{Application, Contestant, Options, grouped, median};
use crate::catalogue::Catalogue;
use crate::generator::{FanoutPlan, LoadSpec, Protocol, Publisher, Spec, Workers};
use crate::measure::Server;
use crate::table::Table;

/// Goal for the generator's CPU, as a multiple of the bare client's.
const RATIO_MAX: f64 = 1.2;
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

/// Measures both clients, and writes the progress to `progress`, line by line. The table has the medians of the CPU per
/// message, and the median of the ratios of runs with the same number.
pub(crate) fn run(plan: &Plan, options: &Options, progress: &mut dyn Write) -> Result<Table, Error> {
    let catalogue = Catalogue::read(&options.placing.peers_dir)?;
    let contestant = Contestant::find(&plan.against, &catalogue, options)?;
    let mut table = Table::new(["load", "generator", "bare client", "ratio", "goal"]);
    let measure =
        Duration::try_from_secs_f64(plan.seconds).map_err(|error| Error::Usage(error.to_string()))?;
    let warm_up = measure / 5;
    let times = |span: Duration| (span.as_secs_f64() * RATE_HZ).ceil() as u64;
    let echo = LoadSpec::EchoClosed { bytes: 64, warm_up, measure };
    let (before, count, publisher) = (times(warm_up), times(measure).max(1), Publisher::Own);
    let fanout =
        LoadSpec::Fanout(FanoutPlan { bytes: 1000, rate_hz: RATE_HZ, warm_up: before, count, publisher });
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
                spec.core = Some(options.placing.generator_core);
                spec.bare = which == 1;
                let lost = |error: Error| server.error(&error.to_string());
                let outcome = Workers::connect(&options.program, &spec)
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
        let [generator, bare] = [0, 1].map(|which| {
            let each_us = middle(&costs[which]);
            format!("{each_us:.2} µs per message, at most {}/s", grouped(1e6 / each_us, 0))
        });
        let ratio = middle(&ratios);
        let goal = format!("{}: ≤ {RATIO_MAX}", if ratio <= RATIO_MAX { "reached" } else { "MISSED" });
        table.push([title, generator, bare, format!("{ratio:.2}"), goal]);
    }
    Ok(table)
}
