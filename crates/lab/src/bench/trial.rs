//! One run of one server in one case.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::curve::{self, Curve};
use super::sampler::{Sample, Sampler, growth_percent_per_10_s, held_kernel_bytes};
use super::servers::Feeds;
use super::source::Source;
use super::{Application, Case, CaseKind, Contestant, Metric, Options};
use crate::Error;
use crate::document::Shape;
use crate::generator::{Doubt, LAG_SHARE_MAX, LoadSpec, Outcome, Protocol, Publisher, Spec, Workers};
use crate::measure::{CallCounter, KernelSockets, ProcessMemory, Server, pin_current};
use crate::upstream::Content;

/// Payloads from which on memfds are counted.
const LARGE_BYTES: usize = 10_000;
/// How long idle connections are left alone before memory is read.
const SETTLE: Duration = Duration::from_millis(1500);
/// Publications of a run that counts system calls, and how many a second: few enough that a traced server is done with
/// one before the next is due.
const COUNTED: u64 = 5;
const COUNTED_RATE_HZ: f64 = 1.0;
/// Of the calls, those that make up this share of a call per message are told by name.
const CALLS_TOLD: f64 = 0.01;

/// The generator's share of its core above which it doesn't keep up the rate of connecting.
const CONNECTING_SHARE_MAX: f64 = 0.8;

/// The name of the generator's lag (p99) among what stands beside the figures, in milliseconds.
pub(crate) const LAG: &str = "p99 lag ms";

/// What one run gave.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trial {
    /// The figures, all that could be taken.
    pub figures: BTreeMap<Metric, f64>,
    /// Figures beside the table: shares of a core, counts.
    pub context: BTreeMap<String, f64>,
    /// What is drawn.
    pub curves: BTreeMap<Curve, Vec<(f64, f64)>>,
    /// Why the run, or its times, are not to be believed.
    pub doubts: Vec<Doubt>,
    /// A figure that couldn't be taken, and why. The others stand.
    pub unmeasured: Option<String>,
}

impl Trial {
    /// One that gave nothing.
    pub(super) fn failed(why: &Error) -> Self {
        let doubt = Doubt { latency_only: false, what: why.to_string() };
        Self { doubts: vec![doubt], ..Self::default() }
    }

    /// A figure, unless it is in doubt.
    pub fn sound(&self, metric: Metric) -> Option<f64> {
        if metric.is_its_own_doubt() {
            return self.figures.get(&metric).copied();
        }
        let doubted = self.doubts.iter().any(|doubt| !doubt.latency_only || metric.is_time());
        if doubted { None } else { self.figures.get(&metric).copied() }
    }

    /// Whether it gave anything: else it counts as not measured.
    pub fn is_measured(&self) -> bool {
        !self.figures.is_empty()
    }

    /// One line.
    pub fn summary(&self) -> String {
        let mut parts: Vec<String> = self
            .figures
            .iter()
            .map(|(metric, value)| format!("{} {}", metric.label(), metric.format(*value)))
            .collect();
        parts.extend(self.context.iter().map(|(name, value)| format!("{name} {value:.2}")));
        parts.extend(self.unmeasured.clone());
        parts.extend(self.doubts.iter().map(|doubt| {
            let what = if doubt.latency_only { "TIMES INVALID" } else { "INVALID" };
            format!("{what}: {}", doubt.what)
        }));
        parts.join(", ")
    }
}

/// What is left of one server's run.
struct Ran {
    load: LoadSpec,
    outcome: Outcome,
    before: ProcessMemory,
    connected: ProcessMemory,
    /// Of the kernel's sockets before any connection.
    kernel_before: KernelSockets,
    samples: Vec<Sample>,
    peak_resident_bytes: u64,
    /// Requests that the API behind a feed got, where there is one.
    upstream_requests: Option<u64>,
    /// System calls under the load, by name, where they were counted.
    calls: Option<BTreeMap<String, u64>>,
}

/// What one server has to go through.
struct Task {
    application: Application,
    /// What the case is about, and what is spoken else.
    protocols: Vec<Protocol>,
    connections: usize,
    paused: usize,
    connect_rate_hz: Option<f64>,
    load: LoadSpec,
    /// What the document of a feed is like; `None`: a string.
    document: Option<Shape>,
    /// How long the API behind a feed takes for its first answer.
    hesitates: Duration,
    counts_calls: bool,
}

impl Task {
    fn new(case: &Case, application: Application, connections: usize, load: LoadSpec) -> Self {
        let protocols = [&[case.protocol], case.or].concat();
        Self {
            application,
            protocols,
            connections,
            paused: 0,
            connect_rate_hz: None,
            load,
            document: None,
            hesitates: Duration::ZERO,
            counts_calls: false,
        }
    }
}

/// A closed loop on the connections of `case`, short.
pub(super) fn saturate(case: &Case, contestant: &Contestant, options: &Options) -> Result<Outcome, Error> {
    look_at(case, contestant, None, options)
}

/// An open loop on the connections of `case`, short.
pub(super) fn look(
    case: &Case,
    contestant: &Contestant,
    rate_hz: f64,
    options: &Options,
) -> Result<Outcome, Error> {
    look_at(case, contestant, Some(rate_hz), options)
}

fn look_at(
    case: &Case,
    contestant: &Contestant,
    rate_hz: Option<f64>,
    options: &Options,
) -> Result<Outcome, Error> {
    let CaseKind::Echo { connections, bytes, warm_up, measure, .. } = case.kind else {
        return Err(Error::Usage(format!("{} is no echo", case.name)));
    };
    let measure = measure / 2;
    let load = match rate_hz {
        Some(rate_hz) => LoadSpec::EchoOpen { bytes, rate_hz, warm_up, measure },
        None => LoadSpec::EchoClosed { bytes, warm_up, measure },
    };
    Ok(run_server(contestant, Task::new(case, Application::Echo, connections, load), options)?.outcome)
}

/// Runs `case` once on a fresh process. `counts`: counts system calls as well, where the case wants that, on a process of
/// their own; they repeat to three digits, so one run of each server does.
pub(super) fn run(
    case: &Case,
    contestant: &Contestant,
    counts: bool,
    options: &Options,
) -> Result<Trial, Error> {
    let mut figures = BTreeMap::new();
    let mut context = BTreeMap::new();
    let mut doubts = Vec::new();
    let mut unmeasured = None;
    let ran = match case.kind {
        CaseKind::Echo { connections, bytes, rate_hz, warm_up, measure } => {
            let load = LoadSpec::EchoOpen { bytes, rate_hz, warm_up, measure };
            run_server(contestant, Task::new(case, Application::Echo, connections, load), options)?
        }
        CaseKind::EchoClosed { connections, bytes, warm_up, measure } => {
            let load = LoadSpec::EchoClosed { bytes, warm_up, measure };
            run_server(contestant, Task::new(case, Application::Echo, connections, load), options)?
        }
        CaseKind::Fanout { feed, connections, bytes, rate_hz, warm_up, count } => {
            let application = if feed { contestant.publishes_by() } else { Application::Chat };
            let publisher = publisher(application);
            let warm_up = warm_up.max((contestant.known().warms_up().as_secs_f64() * rate_hz).ceil() as u64);
            let load = LoadSpec::Fanout { bytes, rate_hz, warm_up, count, publisher };
            if counts && case.metrics.contains(&Metric::CallsPerMessage) {
                match count_calls(case, contestant, connections, bytes, options)? {
                    Ok(calls) => {
                        figures.insert(Metric::CallsPerMessage, calls.values().sum());
                        let told = calls.into_iter().filter(|(_, count)| *count >= CALLS_TOLD);
                        context.extend(told.map(|(name, count)| (format!("{name}/message"), count)));
                    }
                    // It takes no other figure with it: the row says what is missing.
                    Err(why) => unmeasured = Some(format!("system calls weren't counted: {why}")),
                }
            }
            run_server(contestant, Task::new(case, application, connections, load), options)?
        }
        CaseKind::Idle { feed, connections, hold } => {
            let load = LoadSpec::Idle { hold };
            let application = if feed { contestant.publishes_by() } else { Application::Chat };
            run_server(contestant, Task::new(case, application, connections, load), options)?
        }
        CaseKind::Connect { connections, rate_hz } => {
            let load = LoadSpec::Idle { hold: Duration::ZERO };
            let task = Task::new(case, Application::Chat, connections, load);
            run_server(contestant, Task { connect_rate_hz: Some(rate_hz), ..task }, options)?
        }
        CaseKind::Budget { connections_max, bytes, every, rate_hz, cpu } => {
            let load = LoadSpec::Budget { bytes, every, cpu };
            let task = Task::new(case, Application::Echo, connections_max, load);
            run_server(contestant, Task { connect_rate_hz: Some(rate_hz), ..task }, options)?
        }
        CaseKind::Feed { connections, shape, message_bytes, connect_rate_hz, rate_hz, warm_up, count } => {
            let feeds = contestant.feeds();
            let application = if feeds == Feeds::Messages { Application::Chat } else { Application::Feed };
            let bytes = if feeds == Feeds::Messages { message_bytes } else { shape.bytes };
            let load = LoadSpec::Fanout { bytes, rate_hz, warm_up, count, publisher: publisher(application) };
            let task = Task::new(case, application, connections, load);
            let document = (feeds != Feeds::Messages).then_some(shape);
            let connect_rate_hz = Some(connect_rate_hz);
            run_server(contestant, Task { document, connect_rate_hz, ..task }, options)?
        }
        CaseKind::Cold { connections, shape, hesitates } => {
            let task = Task::new(case, Application::Feed, connections, LoadSpec::Ask);
            run_server(contestant, Task { document: Some(shape), hesitates, ..task }, options)?
        }
        CaseKind::Chat { connections, ref plan } => {
            let load = LoadSpec::Chat(plan.clone());
            run_server(contestant, Task::new(case, Application::Chat, connections, load), options)?
        }
        CaseKind::Slow { readers, paused, bytes, rate_hz, warm_up, count } => {
            let application = contestant.publishes_by();
            let publisher = publisher(application);
            let load = LoadSpec::Fanout { bytes, rate_hz, warm_up, count: count.min(10), publisher };
            let alone = run_server(contestant, Task::new(case, application, readers, load), options)?;
            let load = LoadSpec::Fanout { bytes, rate_hz, warm_up, count, publisher };
            let task = Task::new(case, application, readers + paused, load);
            let ran = run_server(contestant, Task { paused, ..task }, options)?;
            let p99 = |ran: &Ran| ran.outcome.each_p99.percentile(50.0).as_secs_f64();
            // Medians both, so it takes a lag in every other publication to spoil them.
            let timely =
                |ran: &Ran| ran.outcome.lag.percentile(50.0).as_secs_f64() <= p99(ran) * LAG_SHARE_MAX;
            if timely(&alone) && timely(&ran) {
                figures.insert(Metric::LatencyShift, p99(&ran) / p99(&alone).max(1e-9));
            }
            doubts.extend(alone.outcome.doubts().into_iter().filter(|doubt| !doubt.latency_only));
            let kernel = |ran: &Ran| {
                let held = held_kernel_bytes(&ran.samples);
                held.saturating_sub(ran.kernel_before.memory_bytes)
            };
            figures.insert(Metric::KernelPerSlow, kernel(&ran) as f64 / paused.max(1) as f64);
            ran
        }
    };
    let outcome = &ran.outcome;
    let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
    let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
    let per_message = outcome.server_cpu_per_message().map(micros);
    let per_connection = outcome.server_cpu_per_connection().map(micros);
    figures.extend(per_message.map(|value| (Metric::CpuPerMessage, value)));
    figures.extend(per_connection.map(|value| (Metric::CpuPerConnection, value)));
    if !outcome.latency.is_empty() {
        figures.insert(Metric::LatencyP50, millis(outcome.latency.percentile(50.0)));
        figures.insert(Metric::LatencyP99, millis(outcome.latency.percentile(99.0)));
        context.insert("server share".to_owned(), outcome.load.server_share());
        context.insert("generator share".to_owned(), outcome.load.own_share());
        context.insert(LAG.to_owned(), millis(outcome.lag.percentile(99.0)));
    }
    if !outcome.last.is_empty() {
        context.insert("slowest publication ms".to_owned(), millis(outcome.last.max()));
    }
    if outcome.audit.expected > 0 {
        let delivered = outcome.audit.delivered as f64 / outcome.audit.expected as f64;
        figures.insert(Metric::Undelivered, (1.0 - delivered) * 100.0);
    }
    if let LoadSpec::Idle { hold } = ran.load
        && !hold.is_zero()
    {
        let each = outcome.load.server_cpu.div_f64(outcome.connections.max(1) as f64);
        figures.insert(Metric::IdleCpu, micros(each) / outcome.load.wall.as_secs_f64());
    }
    if !outcome.last.is_empty() {
        figures.insert(Metric::LastReceiver, millis(outcome.last.percentile(50.0)));
    }
    if outcome.messages > 0 && outcome.received_bytes > 0 {
        figures.insert(Metric::BytesPerMessage, outcome.received_bytes as f64 / outcome.messages as f64);
    }
    if let Some(requests) = ran.upstream_requests {
        figures.insert(Metric::UpstreamRequests, requests as f64);
    }
    if outcome.verified > 0 {
        context.insert("documents verified".to_owned(), outcome.verified as f64);
    }
    if !outcome.asking.is_zero() {
        context.insert("asking ms".to_owned(), millis(outcome.asking));
    }
    if matches!(case.kind, CaseKind::Budget { .. }) {
        figures.insert(Metric::Connections, outcome.connections as f64);
        if let Some((connect, echo)) = curve::fitted(&outcome.progress) {
            figures.insert(Metric::CpuPerConnection, connect * 1e6);
            figures.insert(Metric::CpuPerMessage, echo * 1e6);
        }
        context.insert("echoes".to_owned(), outcome.messages as f64);
    }
    figures.insert(Metric::MemoryGrowth, growth_percent_per_10_s(&ran.samples));
    let shared = ran.samples.iter().map(|sample| sample.memfd_bytes).max().unwrap_or(0);
    figures.insert(Metric::PeakMemory, (ran.peak_resident_bytes + shared) as f64);
    let grown = ran.connected.private_bytes.saturating_sub(ran.before.private_bytes);
    figures.insert(Metric::BytesPerConnection, grown as f64 / outcome.connections.max(1) as f64);
    doubts.extend(outcome.doubts());
    if matches!(case.kind, CaseKind::Connect { .. }) && outcome.connect.own_share() > CONNECTING_SHARE_MAX {
        let share = outcome.connect.own_share() * 100.0;
        doubts.push(Doubt {
            latency_only: false,
            what: format!("the generator used {share:.0} % of its core"),
        });
    }
    if outcome.closed_loop && !outcome.load.wall.is_zero() {
        figures.insert(Metric::Rate, outcome.messages as f64 / outcome.load.wall.as_secs_f64());
    }
    if !outcome.steps.is_empty() {
        figures.insert(Metric::Deliveries, curve::saturation_hz(&outcome.steps));
        // What ends it is what is looked for, and the figure is that of the steps before.
        doubts = curve::doubts(&outcome.steps);
        if curve::is_lower_bound(&outcome.steps) {
            unmeasured =
                Some("it wasn't saturated when the steps, or the generator's core, were at their end".into());
        }
    }
    figures.retain(|metric, _| case.metrics.contains(metric));
    let curves = curve::curves(outcome);
    Ok(Trial { figures, context, curves, doubts, unmeasured })
}

/// Who publishes to the clients of `application`.
fn publisher(application: Application) -> Publisher {
    if application == Application::Feed { Publisher::Server } else { Publisher::Own }
}

/// A fan-out to `connections` with the server's system calls counted: calls per message, by name; or why not.
fn count_calls(
    case: &Case,
    contestant: &Contestant,
    connections: usize,
    bytes: usize,
    options: &Options,
) -> Result<Result<BTreeMap<String, f64>, String>, Error> {
    let publisher = Publisher::Own;
    let load = LoadSpec::Fanout { bytes, rate_hz: COUNTED_RATE_HZ, warm_up: 0, count: COUNTED, publisher };
    let task = Task::new(case, Application::Chat, connections, load);
    let ran = run_server(contestant, Task { counts_calls: true, ..task }, options)?;
    let audit = &ran.outcome.audit;
    let delivered = audit.delivered as f64;
    Ok(match ran.calls {
        _ if audit.delivered != audit.expected => {
            Err(format!("{} of {} messages came", audit.delivered, audit.expected))
        }
        _ if ran.outcome.overlapping > 0 => Err("the traced server didn't keep up".to_owned()),
        Some(calls) => Ok(calls.into_iter().map(|(name, calls)| (name, calls as f64 / delivered)).collect()),
        None => Err("strace isn't installed, or may not trace".to_owned()),
    })
}

fn run_server(contestant: &Contestant, task: Task, options: &Options) -> Result<Ran, Error> {
    let Task {
        application,
        connections,
        paused,
        connect_rate_hz,
        load,
        document,
        hesitates,
        counts_calls,
        ..
    } = task;
    let protocol = contestant.protocol(&task.protocols);
    // Whatever this process does itself must not run on the server's core.
    let _pinned = pin_current(options.generator_core).map_err(Error::io("pinning (--generator-core)"))?;
    let source = match (application, &load, document) {
        (Application::Feed, LoadSpec::Fanout { rate_hz, .. }, Some(shape)) => {
            Some(Source::new(Content::Document(shape), *rate_hz)?)
        }
        (Application::Feed, LoadSpec::Fanout { bytes, rate_hz, .. }, None) => {
            Some(Source::new(Content::Text { bytes: *bytes }, *rate_hz)?)
        }
        (Application::Feed, LoadSpec::Ask, Some(shape)) => {
            Some(Source::cold(Content::Document(shape), hesitates)?)
        }
        // One that is never said to begin: its first answer is all there is.
        (Application::Feed, _, _) => Some(Source::new(Content::Text { bytes: 0 }, 1.0)?),
        _ => None,
    };
    let config = source.as_ref().map(Source::config);
    let server = Server::start(&contestant.command(application, protocol, config))?;
    // Smaller ones aren't worth a memfd, nor the look at it.
    let large = matches!(load, LoadSpec::Fanout { bytes, .. } if bytes >= LARGE_BYTES);
    let rests = matches!(load, LoadSpec::Idle { .. });
    // Who asks later isn't subscribed by the path.
    let path = match load {
        LoadSpec::Ask => contestant.path(Application::Chat, protocol),
        _ => contestant.path(application, protocol),
    };
    let mut spec = Spec::new(server.address(), path, connections, load.clone());
    spec.protocol = protocol;
    spec.paused = paused;
    spec.document = document;
    spec.server_pid = Some(server.pid());
    spec.core = Some(options.generator_core);
    spec.driver = options.generator_driver;
    spec.connect_rate_hz = connect_rate_hz.unwrap_or(spec.connect_rate_hz);
    spec.idle = options.pace.idle();
    let lost = |error: Error| match error {
        Error::Generator(what) => server.error(&what),
        other => other,
    };
    let memory = || ProcessMemory::of_process(server.pid()).map_err(|_| server.error("it ended by itself"));
    let before = memory()?;
    let kernel_before = KernelSockets::now().map_err(Error::io("the kernel's sockets"))?;
    let mut workers = Workers::connect(&options.invocation, &spec).map_err(lost)?;
    if rests {
        thread::sleep(SETTLE);
    }
    let connected = memory()?;
    let sampler = Sampler::start(server.pid(), large);
    if let (Some(source), LoadSpec::Fanout { .. }) = (&source, &load) {
        source.begin_after(spec.idle);
    }
    let counter = counts_calls.then(|| CallCounter::attach(server.pid()).ok()).flatten();
    let result = workers.run();
    let calls = counter.and_then(|counter| counter.stop().ok());
    drop(workers);
    let samples = sampler.stop();
    let mut outcome = result.map_err(lost)?;
    let peak_resident_bytes = memory()?.peak_resident_bytes;
    server.stop()?;
    let mut upstream_requests = None;
    if let Some(source) = source {
        let served = source.stop()?;
        outcome.lag.merge(&served.lag);
        upstream_requests = Some(served.requests);
    }
    Ok(Ran {
        load,
        outcome,
        before,
        connected,
        kernel_before,
        samples,
        peak_resident_bytes,
        upstream_requests,
        calls,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_about_times_leaves_the_rest() {
        let mut trial = Trial {
            figures: BTreeMap::from([(Metric::CpuPerMessage, 4.0), (Metric::LatencyP99, 2.0)]),
            doubts: vec![Doubt { latency_only: true, what: "lag".into() }],
            ..Trial::default()
        };
        assert_eq!((trial.sound(Metric::CpuPerMessage), trial.sound(Metric::LatencyP99)), (Some(4.0), None));
        trial.doubts[0].latency_only = false;
        trial.figures.insert(Metric::Undelivered, 1.0);
        assert_eq!(trial.sound(Metric::Undelivered), Some(1.0));
        assert_eq!(trial.sound(Metric::CpuPerMessage), None);
    }
}
