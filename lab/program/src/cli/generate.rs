//! The command `generate`, which puts a load on one server and prints the result.

use std::io::Write;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::Error;
use crate::catalogue::Running;
use crate::generator::{
    FanoutPlan, Latencies, LoadSpec, Misbehaviour, Outcome, Publisher, Spec, Workers, this_program,
};
use crate::measure::end_children_on_signal;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Open-loop echo.
    Echo,
    /// Closed-loop echo.
    EchoClosed,
    /// One connection publishes, all receive.
    Fanout,
    /// Hold connections.
    Idle,
    /// Never read.
    NeverRead,
    /// Read at most 64 KiB per second.
    ReadSlowly,
    /// Send nothing after connecting, not even heartbeats.
    Silent,
    /// Connect and never send anything.
    Mute,
    /// Connect and disconnect repeatedly, `--connect-rate` times per second in all.
    ComeAndGo,
    /// Disconnect all clients every second; they reconnect at once.
    Storms,
    /// Send in TCP segments of one to three bytes, to an echo.
    Fragment,
}

#[derive(Args)]
pub(super) struct GenerateArguments {
    #[command(flatten)]
    server: Running,
    /// The load.
    #[arg(long, value_enum)]
    mode: Mode,
    /// Number of connections.
    #[arg(long, default_value_t = 100)]
    connections: usize,
    /// Payload in bytes, at least 44.
    #[arg(long, default_value_t = 64)]
    bytes: usize,
    /// Messages, publications or connections per second.
    #[arg(long, default_value_t = 1000.0)]
    rate: f64,
    /// Seconds of the warm-up.
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// Seconds of the measurement.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Connections started per second.
    #[arg(long, default_value_t = 4000.0)]
    connect_rate: f64,
}

pub(super) fn generate(arguments: GenerateArguments, out: &mut dyn Write) -> Result<(), Error> {
    let bytes = arguments.bytes;
    let rate_hz = arguments.rate;
    let seconds =
        |seconds: f64| Duration::try_from_secs_f64(seconds).map_err(|error| Error::Usage(error.to_string()));
    let (warm_up, measure) = (seconds(arguments.warm_up)?, seconds(arguments.seconds)?);
    let count = |span: Duration| (span.as_secs_f64() * rate_hz).ceil() as u64;
    let visit = seconds(1.0 / arguments.connect_rate)?;
    let misbehave = |how| LoadSpec::Misbehave { how, lasts: measure };
    let load = match arguments.mode {
        Mode::Echo => LoadSpec::EchoOpen { bytes, rate_hz, warm_up, measure },
        Mode::EchoClosed => LoadSpec::EchoClosed { bytes, warm_up, measure },
        Mode::Fanout => LoadSpec::Fanout(FanoutPlan {
            bytes,
            rate_hz,
            warm_up: count(warm_up),
            count: count(measure).max(1),
            publisher: Publisher::Own,
        }),
        Mode::Idle => LoadSpec::Idle { hold: measure },
        Mode::NeverRead => misbehave(Misbehaviour::NeverReads),
        Mode::ReadSlowly => misbehave(Misbehaviour::ReadsSlowly { every: Duration::from_secs(1) }),
        Mode::Silent => misbehave(Misbehaviour::Silent),
        Mode::Mute => misbehave(Misbehaviour::Mute),
        Mode::ComeAndGo => misbehave(Misbehaviour::Churns { every: visit }),
        Mode::Storms => misbehave(Misbehaviour::Storms { every: Duration::from_secs(1) }),
        Mode::Fragment => misbehave(Misbehaviour::Fragments),
    };
    let Running { address, protocol, path, pid } = arguments.server;
    let path = path.as_deref().unwrap_or(protocol.usual_path());
    let mut spec = Spec::new(address, path, arguments.connections, load);
    spec.protocol = protocol;
    spec.connect_rate_hz = arguments.connect_rate;
    spec.server_pids = pid.into_iter().collect();
    end_children_on_signal(|| ());
    let outcome = Workers::connect(&this_program()?, &spec)?.run()?;
    super::print(out, describe(&outcome))
}

fn describe(outcome: &Outcome) -> String {
    let mut lines =
        vec![format!("{} connections opened in {:.2?}", outcome.connections, outcome.connect.wall)];
    if let Some(cpu) = outcome.server_cpu_per_connection() {
        lines.push(format!("server CPU per connection: {cpu:.2?}"));
    }
    if outcome.messages > 0 {
        let rate = outcome.messages as f64 / outcome.load.wall.as_secs_f64().max(1e-9);
        lines.push(format!("{} messages in {:.2?}: {rate:.0}/s", outcome.messages, outcome.load.wall));
    }
    if let Some(cpu) = outcome.server_cpu_per_message() {
        let share = outcome.load.server_share() * 100.0;
        lines.push(format!("server CPU per message: {cpu:.2?} ({share:.0} % of a core)"));
    }
    lines.push(format!("generator: {:.0} % of a core", outcome.load.own_share() * 100.0));
    for (what, times) in [
        ("latency", &outcome.latency),
        ("last receiver", &Latencies::of(&outcome.last_of_each_ns)),
        ("lag", &outcome.lag),
    ] {
        if !times.is_empty() {
            let [p50, p99, max] = [50.0, 99.0, 100.0].map(|percent| times.percentile(percent));
            lines.push(format!("{what}: p50 {p50:.1?}, p99 {p99:.1?}, max {max:.1?}"));
        }
    }
    if outcome.cut_off > 0 {
        lines.push(format!("{} connections were ended by the server", outcome.cut_off));
    }
    let audit = &outcome.audit;
    lines.push(format!("audit: {} of {} delivered", audit.delivered, audit.expected));
    lines.extend(outcome.doubts().into_iter().map(|doubt| format!("INVALID: {}", doubt.what)));
    lines.join("\n") + "\n"
}
