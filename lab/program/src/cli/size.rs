//! The command `size`, which computes the cores, memory and nodes for a load.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::Error;
use crate::bench::grouped;
use crate::sizing::{
    self, Costs, EngineLoad, Feeds, Limit, Load, MEASURED_HERE, MEMORY_RESERVE, Machines, Part, Plan, Source,
    bare_echo, plan,
};
use crate::table::Table;

/// Duration of a calibration.
const CALIBRATION: Duration = Duration::from_secs(10);
/// Cores of an engine above which one engine isn't enough.
const ENGINE_CORES_MAX: f64 = 0.5;
/// Minimum memory of a node.
const NODE_BYTES_MIN: f64 = 256e6;

#[derive(Args)]
pub(super) struct SizeArguments {
    /// Number of open connections: 1000000, 1,000,000 or 1M.
    #[arg(long, value_parser = sizing::count)]
    connections: f64,
    /// Messages that clients send, in all: 200000/s or 30/min.
    #[arg(long, value_parser = sizing::rate, default_value = "0/s")]
    messages: f64,
    /// Size of a message: 400 or 1kB.
    #[arg(long, value_parser = sizing::bytes, default_value = "100")]
    bytes: f64,
    /// Clients that receive each message.
    #[arg(long, value_parser = sizing::count, default_value = "1")]
    recipients: f64,
    /// Messages that clients receive, in all, instead of --recipients: 5M/s.
    #[arg(long, value_parser = sizing::rate, conflicts_with = "recipients")]
    deliveries: Option<f64>,
    /// The clients' protocol.
    #[arg(long, value_parser = protocol, default_value = "websocket")]
    protocol: String,
    /// Stentor does TLS.
    #[arg(long)]
    tls: bool,
    /// WebSockets use permessage-deflate.
    #[arg(long)]
    deflate: bool,
    /// New connections: 500/s [default: all connections within ten minutes].
    #[arg(long, value_parser = sizing::rate)]
    connects: Option<f64>,
    /// Number of rooms.
    #[arg(long, value_parser = sizing::count, default_value = "0")]
    rooms: f64,
    /// Documents that Stentor fetches. Each connection follows one of them.
    #[arg(long, value_parser = sizing::count, default_value = "0")]
    feeds: f64,
    /// Size of a document.
    #[arg(long, value_parser = sizing::bytes, default_value = "5kB")]
    feed_bytes: f64,
    /// New versions of each document.
    #[arg(long, value_parser = sizing::rate, default_value = "1/s")]
    feed_versions: f64,
    /// Cores of a node.
    #[arg(long, value_parser = sizing::count, default_value = "4")]
    cores_per_node: f64,
    /// Memory of a node.
    #[arg(long, value_parser = sizing::bytes, default_value = "8GiB")]
    memory_per_node: f64,
    /// Share of the CPU that stays free.
    #[arg(long, value_parser = sizing::share, default_value = "50%")]
    reserve: f64,
    /// The engine between several nodes.
    #[arg(long, value_parser = engine, default_value = "redis")]
    engine: String,
    /// Measure this machine's speed first, for ten seconds.
    #[arg(long)]
    calibrate: bool,
    /// CPU that the machine of the load needs, relative to that of the figures, as --calibrate prints it: 1.3 is slower.
    #[arg(long, value_parser = factor, conflicts_with = "calibrate")]
    calibration: Option<f64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Checks a name by `find`, so that an unknown one is an invalid argument.
fn checked<T>(name: &str, find: impl Fn(&Costs) -> Result<T, Error>) -> Result<String, String> {
    let found = Costs::committed().and_then(|costs| find(&costs).map(drop));
    found.map(|()| name.to_owned()).map_err(|error| error.to_string())
}

fn protocol(name: &str) -> Result<String, String> {
    checked(name, |costs| costs.protocol(name).map(drop))
}

fn engine(name: &str) -> Result<String, String> {
    checked(name, |costs| costs.engine(name).map(drop))
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (0.05..=50.0).contains(factor));
    factor.ok_or_else(|| "it has to be a number such as 1.3".to_owned())
}

/// What `--json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    load: &'a Load,
    machines: &'a Machines,
    plan: &'a Plan,
    assumptions: &'a [String],
}

pub(super) fn size(
    arguments: &SizeArguments,
    out: &mut dyn Write,
    progress: &mut dyn Write,
) -> Result<(), Error> {
    let costs = Costs::committed()?;
    let calibration = match arguments.calibrate {
        true => {
            let _ = writeln!(progress, "calibrating for {} s", CALIBRATION.as_secs());
            costs.calibration(bare_echo(CALIBRATION)?)
        }
        false => arguments.calibration.unwrap_or(1.0),
    };
    let (load, machines) = arguments.read(calibration)?;
    let plan = plan(&load, &machines, &costs)?;
    let assumptions = assumptions(arguments, &load, &machines, &plan, &costs);
    if arguments.json {
        let printed = Printed { load: &load, machines: &machines, plan: &plan, assumptions: &assumptions };
        let text = serde_json::to_string_pretty(&printed).map_err(|error| Error::Usage(error.to_string()))?;
        return super::print(out, text + "\n");
    }
    super::print(out, describe(&load, &machines, &plan, &assumptions))
}

impl SizeArguments {
    fn read(&self, calibration: f64) -> Result<(Load, Machines), Error> {
        let usage = |what: &str| Err(Error::Usage(what.to_owned()));
        if self.cores_per_node < 1.0 {
            return usage("--cores-per-node has to be at least 1");
        }
        if self.memory_per_node < NODE_BYTES_MIN {
            return usage("--memory-per-node has to be at least 256MB");
        }
        let recipients = match self.deliveries {
            Some(_) if self.messages == 0.0 => {
                return usage("--deliveries needs --messages, which are delivered");
            }
            Some(deliveries) => deliveries / self.messages,
            None => self.recipients,
        };
        if recipients > self.connections {
            return usage("a message can't have more recipients than there are connections");
        }
        let feeds = Feeds { count: self.feeds, bytes: self.feed_bytes, versions_hz: self.feed_versions };
        let load = Load {
            connections: self.connections,
            protocol: self.protocol.clone(),
            tls: self.tls,
            deflate: self.deflate,
            messages_hz: self.messages,
            recipients,
            bytes: self.bytes,
            connects_hz: self.connects.unwrap_or(self.connections / 600.0),
            rooms: self.rooms,
            feeds,
        };
        let machines = Machines {
            cores: self.cores_per_node,
            memory_bytes: self.memory_per_node,
            reserve: self.reserve,
            calibration,
            engine: self.engine.clone(),
        };
        Ok((load, machines))
    }
}

/// A number of at most three significant digits, with thousands separators.
fn rounded(value: f64) -> String {
    match value {
        ..10.0 => grouped(value, 2),
        10.0..100.0 => grouped(value, 1),
        _ => grouped(value, 0),
    }
}

fn size_of(bytes: f64) -> String {
    match bytes {
        1e9.. => format!("{} GB", rounded(bytes / 1e9)),
        1e6.. => format!("{} MB", rounded(bytes / 1e6)),
        1e3.. => format!("{} kB", rounded(bytes / 1e3)),
        _ => format!("{} B", grouped(bytes, 0)),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn describe(load: &Load, machines: &Machines, plan: &Plan, assumptions: &[String]) -> String {
    let with = match (load.tls, load.deflate) {
        (true, true) => " with TLS and permessage-deflate",
        (true, false) => " with TLS",
        (false, true) => " with permessage-deflate",
        (false, false) => "",
    };
    let mut text = format!("{} connections, {}{with}", grouped(load.connections, 0), load.protocol);
    if load.messages_hz > 0.0 {
        let [messages, deliveries] = [1.0, load.recipients].map(|each| rounded(load.messages_hz * each));
        text += &format!("; {messages} messages/s of {}, {deliveries} deliveries/s", size_of(load.bytes));
    }
    text += "\n\n";
    let reserve = |share: f64| format!("{} in reserve", percent(share));
    let limit = match plan.limit {
        Limit::Cpu => "the CPU limits",
        Limit::Memory => "the memory limits",
    };
    let [busy, used] = [rounded(plan.busy_cores), size_of(plan.used_bytes)];
    let mut table = Table::new([
        "cores".to_owned(),
        rounded(plan.cores),
        format!("{busy} busy, {}", reserve(machines.reserve)),
    ]);
    table.push([
        "memory".to_owned(),
        size_of(plan.memory_bytes),
        format!("{used} used, {}", reserve(MEMORY_RESERVE)),
    ]);
    let node = format!("of {} cores and {}; {limit}", machines.cores, size_of(machines.memory_bytes));
    table.push(["nodes".to_owned(), plan.nodes.to_string(), node]);
    let to_clients = format!("{}/s", size_of(plan.network_bytes_hz));
    table.push(["network".to_owned(), to_clients, "to clients".to_owned()]);
    if let Some(engine) = &plan.engine {
        table.push([machines.engine.clone(), format!("{} cores", rounded(engine.cores)), through(engine)]);
    }
    let cpu = parts(&plan.cpu, |cores| format!("{} cores", rounded(cores)));
    let memory = parts(&plan.memory, size_of);
    let assumptions: String = assumptions.iter().map(|line| format!("- {line}\n")).collect();
    text += &format!("{table}\nCPU, without the reserve:\n{cpu}\nMemory, without the reserve:\n{memory}");
    text + "\nAssumptions:\n" + &assumptions
}

/// The messages of an engine.
fn through(engine: &EngineLoad) -> String {
    let [published, sent] = [engine.published_hz, engine.sent_hz].map(rounded);
    format!("{published} messages/s in, {sent} out, {}/s", size_of(engine.bytes_hz))
}

/// The parts of a sum, the largest first, each with its share.
fn parts(parts: &[Part], amount: impl Fn(f64) -> String) -> Table {
    let total: f64 = parts.iter().map(|part| part.amount).sum();
    let mut parts: Vec<&Part> = parts.iter().collect();
    parts.sort_by(|one, other| other.amount.total_cmp(&one.amount));
    let rows =
        parts.iter().map(|part| [part.name.to_owned(), amount(part.amount), percent(part.amount / total)]);
    let mut rows = rows.collect::<Vec<_>>().into_iter();
    let mut table = Table::new(rows.next().unwrap_or_default());
    rows.for_each(|row| table.push(row));
    table
}

fn assumptions(
    arguments: &SizeArguments,
    load: &Load,
    machines: &Machines,
    plan: &Plan,
    costs: &Costs,
) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(Source { date, about }) = costs.sources.get(MEASURED_HERE) {
        lines.push(format!("Figures: {date}, {about}. lab/program/src/sizing/costs.toml has all sources."));
    }
    lines.push(if arguments.calibrate || arguments.calibration.is_some() {
        let factor = grouped(machines.calibration, 2);
        format!(
            "Calibration {factor}: the machines need {factor} times the CPU of the machine of the figures."
        )
    } else {
        "No calibration: the machines are as fast as that of the figures. --calibrate measures this machine."
            .to_owned()
    });
    if arguments.connects.is_none() {
        let connects = rounded(load.connects_hz);
        lines.push(format!(
            "{connects} clients connect per second: all of them within ten minutes, as after a restart."
        ));
    }
    lines.push(
        "CPU includes the kernel's, and on loopback the receiver's half of TCP. A network card's interrupts aren't included."
            .to_owned(),
    );
    lines.push(
        "Memory includes the kernel's for idle sockets, but not messages that slow clients haven't read."
            .to_owned(),
    );
    if machines.cores > 1.0 || plan.nodes > 1 {
        lines.push("A message's recipients are on random cores and nodes.".to_owned());
    }
    if load.feeds.count > 0.0 {
        lines.push(
            "Each connection follows one document, and receives a delta of at most 1.3 kB of each version."
                .to_owned(),
        );
    }
    if let Some(engine) = &plan.engine {
        lines.push(
            "Each message goes through the engine. No node is in reserve: add one if a node may fail."
                .to_owned(),
        );
        if engine.cores > ENGINE_CORES_MAX {
            let most = percent(ENGINE_CORES_MAX);
            lines.push(format!(
                "More than {most} of a core of {}: one isn't enough. docs/cluster.md says how to use several.",
                machines.engine
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests;
