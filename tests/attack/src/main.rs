//! Attacks a running Stentor, in two ways.
//!
//! * `stentor-attack table` runs the attacks of docs/attacks.md one by one and prints the measurements
//!   ([`table`]).
//! * `stentor-attack fuzz` mutates sessions of every protocol, including attacks, by a seed ([`fuzz`]).
//!
//! Both start the real binary ([`server`]), keep well-behaved clients of every protocol beside the attack
//! ([`canary`]) and measure the process's memory ([`measure`]). The program uses only the server's sockets
//! and shares no code with it. Loads are bounded in count and time, and go to loopback.

#![forbid(unsafe_code)]

mod attacks;
mod backend;
mod canary;
mod checks;
mod cluster;
mod corpus;
mod doors;
mod faults;
mod fuzz;
mod http;
mod layers;
mod measure;
mod mutate;
mod process;
mod redis;
mod reduce;
mod script;
mod second;
mod server;
mod strange;
mod table;
mod token;
mod upstream;
mod wire;

use anyhow::{Context, ensure};
use clap::{Args, Parser, Subcommand};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Attacks a Stentor binary and checks that it stays within its budgets and serves all other clients.
#[derive(Debug, Parser)]
#[command(name = "stentor-attack", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the attacks of docs/attacks.md and print the measurements.
    Table(TableArgs),
    /// Mutate sessions of every protocol for a while, or replay one round.
    Fuzz(FuzzArgs),
}

#[derive(Args, Clone, Debug)]
struct CommonArgs {
    /// The server's binary.
    #[arg(long, value_name = "FILE", env = "STENTOR_BINARY", default_value = "target/release/stentor")]
    binary: PathBuf,
    /// The server's drivers, one after the other.
    #[arg(long = "driver", value_name = "NAME", default_values = ["epoll", "io_uring"])]
    drivers: Vec<String>,
}

#[derive(Args, Debug)]
struct TableArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Run these attacks only, by name or by the beginning of it.
    #[arg(long = "attack", value_name = "NAME")]
    attacks: Vec<String>,
    /// Duration of each attack.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    seconds: u64,
}

#[derive(Args, Debug)]
struct FuzzArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Duration per driver.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    seconds: u64,
    /// Seed of all sessions [default: a random number, which is printed].
    #[arg(long)]
    seed: Option<u64>,
    /// Sessions at the same time.
    #[arg(long, value_name = "COUNT", default_value_t = 120)]
    sessions: usize,
    /// Maximum memory of the server at any time: resident set and memfds.
    #[arg(long, value_name = "MB", default_value_t = table::BOUND_BYTES / 1_000_000)]
    held_max: u64,
    /// Maximum growth of memory between the start and the end.
    #[arg(long, value_name = "MB", default_value_t = table::REMAINS_BYTES_MAX / 1_000_000)]
    remains_max: u64,
    /// Replay this round of the seed only.
    #[arg(long, value_name = "NUMBER", requires = "seed")]
    round: Option<u64>,
    /// Replay only these sessions of the round.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', requires = "round")]
    only: Vec<usize>,
}

/// Prints a line.
#[expect(clippy::print_stdout, reason = "the program's results")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    raise_descriptors()?;
    let holds = match &cli.command {
        Command::Table(args) => run_table(args)?,
        Command::Fuzz(args) => run_fuzz(args)?,
    };
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Raises the limit of file descriptors, because ten thousand clients need as many.
fn raise_descriptors() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .context("the limit of descriptors can't be raised")
}

fn run_table(args: &TableArgs) -> anyhow::Result<bool> {
    let addresses = (upstream::start()?, backend::start()?);
    let all = || attacks::ALL.iter().chain(&faults::ALL);
    let has_redis = redis::is_installed();
    let wanted =
        |name: &str| args.attacks.is_empty() || args.attacks.iter().any(|wanted| name.starts_with(wanted));
    say(&table::header());
    let mut all_hold = true;
    for attack in all().filter(|attack| wanted(attack.name)) {
        if attack.place == attacks::Place::Cluster && !has_redis {
            say(&format!("| {} | redis-server isn't installed: left out |", attack.name));
            continue;
        }
        for driver in &args.common.drivers {
            let duration = Duration::from_secs(args.seconds);
            let outcome = table::run(&args.common.binary, driver, attack, addresses, duration)?;
            say(&outcome.to_string());
            all_hold &= outcome.faults.is_empty();
        }
    }
    say("");
    for attack in all().filter(|attack| wanted(attack.name)) {
        say(&format!("* {}: {}", attack.name, attack.summary));
    }
    if wanted("S6") || wanted("S10") || wanted("A12") {
        for driver in &args.common.drivers {
            all_hold &= table::check_answers(&args.common.binary, driver, addresses)?;
        }
    }
    Ok(all_hold)
}

fn run_fuzz(args: &FuzzArgs) -> anyhow::Result<bool> {
    ensure!(args.sessions > 0, "--sessions must be at least 1");
    let upstream = upstream::start()?;
    let backend = backend::start()?;
    let is_clustered = redis::is_installed();
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let mut all_hold = true;
    for driver in &args.common.drivers {
        let plan = fuzz::Plan {
            binary: args.common.binary.clone(),
            driver: driver.clone(),
            upstream,
            backend,
            is_clustered,
            seed,
            sessions: args.sessions,
            bound_bytes: args.held_max * 1_000_000,
            remains_bytes_max: args.remains_max * 1_000_000,
        };
        all_hold &= match args.round {
            Some(round) => plan.replay(round, &args.only)?,
            None => plan.run(Duration::from_secs(args.seconds))?,
        };
    }
    Ok(all_hold)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The other commands run in crates/stentor/tests/slow/commands.rs.
    #[test]
    fn commands_in_documents_are_valid() {
        let page = include_str!("../../../docs/attacks.md");
        let commands: Vec<_> =
            page.lines().filter(|line| line.starts_with("target/release/stentor-attack")).collect();
        assert!(commands.len() >= 3, "{commands:?}");
        for command in commands {
            let words = command.split_whitespace().take_while(|word| *word != "#");
            Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{command}: {error}"));
        }
    }
}
