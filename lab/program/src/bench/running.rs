//! Runs one server under one load: fresh processes, pinned, watched, and ended.
//!
//! If a server's process can't hold the connections of a case, several processes share them, and their CPU and memory are added up.
//! Misbehaving clients run in generators of their own. A proxy starts in the same way.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use minijinja::context;

use super::overload::{Conductor, Phase};
use super::proxy::free_address;
use super::sampler::{Sample, Sampler};
use super::setup::Setup;
use super::{Application, Case, Contestant, Course, Metric, Options, engine, proxy, source};
use crate::Error;
use crate::catalogue::Extra;
use crate::generator::{FanoutPlan, Live, LoadSpec, Outcome, Protocol, Publisher, Spec, WATCH, Workers};
use crate::measure::{
    CallCounter, Calls, CpuClock, MachineTime, ProcessMemory, Server, bound_receive_buffers, kernel_bytes,
    pin_current, socket_bytes,
};
use crate::upstream::Upstream;

/// Memory in memfds is counted for payloads from this size on.
const LARGE_BYTES: usize = 10_000;
/// The kernel's receive buffer per socket in an overload: smaller than a document. Otherwise, up to 200 old documents
/// would wait there for each client.
const RECEIVE_BUFFER_BYTES: usize = 128 * 1024;
/// Time without a change after which a server's memory is steady.
const STEADY_FOR: Duration = Duration::from_millis(100);
/// Time for which connections are idle before memory is read.
const REST: Duration = Duration::from_millis(1500);
/// Extra time that the misbehaving clients run after the load.
const BESIDE_LONGER: Duration = Duration::from_millis(300);
/// Time added to it with an HTTP API, because its first version arrives later.
const FEED_LONGER: Duration = Duration::from_secs(1);
/// Offset of the source addresses of misbehaving clients.
const BESIDE_SOURCE: u8 = 180;

/// Measurements of one server's run.
pub(super) struct Ran {
    pub(super) load: LoadSpec,
    pub(super) outcome: Outcome,
    /// Outcome of the misbehaving clients.
    pub(super) beside: Option<Outcome>,
    pub(super) before: ProcessMemory,
    pub(super) connected: ProcessMemory,
    /// Memory of the kernel's sockets before any connection.
    pub(super) sockets_before_bytes: u64,
    /// Figures that are known from the run alone.
    pub(super) figures: BTreeMap<Metric, f64>,
    pub(super) samples: Vec<Sample>,
    pub(super) peak_resident_bytes: u64,
    pub(super) processes: usize,
    /// Names of the processes that the servers started.
    pub(super) started: Vec<String>,
    /// For an overload: versions per second at the capacity, and the phases.
    pub(super) overload: Option<(f64, Vec<Phase>)>,
    /// System calls under the load, if they were counted.
    pub(super) calls: Option<Calls>,
    /// The share (0 to 1) of the requested CPU time that a hypervisor took during the load.
    pub(super) steal_share: f64,
    /// CPU of processes outside the run, as a share of one core.
    pub(super) others_share: f64,
    /// Frequency of the server's core, if the kernel reports it.
    pub(super) frequency_mhz: Option<f64>,
}

/// The processes of one server.
struct Servers {
    name: String,
    /// Servers started for this run. Empty if the server was already running.
    own: Vec<Server>,
    /// The addresses that clients connect to.
    addresses: Vec<SocketAddr>,
    /// Processes that accept connections.
    first: Vec<u32>,
    /// Running processes that those have started, such as a Redis of the server. Their CPU and memory are the server's.
    /// With several nodes, these are all nodes except the first.
    started: Vec<u32>,
}

impl Servers {
    /// Starts as many processes as the connections of a case need.
    fn start(
        contestant: &Contestant,
        case: &Case,
        application: Application,
        protocol: Protocol,
        setup: &Setup,
    ) -> Result<Self, Error> {
        let name = contestant.name().to_owned();
        if let Some(running) = &contestant.known.running {
            let (first, addresses) = (running.pid.into_iter().collect(), vec![running.address]);
            return Ok(Self { name, own: Vec::new(), addresses, first, started: Vec::new() });
        }
        let shared = case.is_shared_out();
        let nodes = contestant.known.nodes;
        let count = match shared && nodes == 1 {
            true => case.connections.div_ceil(contestant.holds()).max(1),
            false => nodes,
        };
        let contestant = contestant.holding(case.connections.div_ceil(count));
        let mut command = contestant.command(application, protocol, setup.config.as_deref());
        command.args.extend(setup.args.iter().cloned());
        // A server prints the address of its clients, but backends use the admin address.
        let admin = (protocol == Protocol::PublishApi).then(free_address).transpose()?;
        if let Some((value, admin)) =
            command.args.iter_mut().skip_while(|arg| *arg != "--admin").nth(1).zip(admin)
        {
            *value = admin.to_string();
        }
        let own: Vec<Server> = (0..count).map(|_| Server::start(&command)).collect::<Result<_, _>>()?;
        let addresses = admin.map_or_else(|| own.iter().map(Server::address).collect(), |admin| vec![admin]);
        let mut first: Vec<u32> = own.iter().map(Server::pid).collect();
        let mut started = if nodes > 1 { first.split_off(1) } else { Vec::new() };
        started.extend(own.iter().flat_map(Server::started));
        Ok(Self { name, own, addresses, first, started })
    }

    fn all_pids(&self) -> Vec<u32> {
        [&self.first[..], &self.started].concat()
    }

    fn names_of_started(&self) -> Vec<String> {
        let read = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
        self.started.iter().filter_map(read).map(|name| name.trim().to_owned()).collect()
    }

    /// An error with the text `what` and the last output of the first process.
    fn error(&self, what: &str) -> Error {
        match self.own.first() {
            Some(server) => server.error(what),
            None => Error::Server { name: self.name.clone(), what: what.to_owned() },
        }
    }

    fn memory(&self) -> Result<ProcessMemory, Error> {
        let mut sum = ProcessMemory::default();
        let ended = |_| self.error("it ended by itself");
        let first = self.first.iter().map(|pid| ProcessMemory::of_process(*pid).map_err(ended));
        let started = self.started.iter().filter_map(|pid| ProcessMemory::of_process(*pid).ok()).map(Ok);
        for one in first.chain(started) {
            let one = one?;
            sum.private_bytes += one.private_bytes;
            sum.peak_resident_bytes += one.peak_resident_bytes;
        }
        Ok(sum)
    }

    /// The memory once it no longer changes: a server may still allocate when it is ready. Waits at most [`REST`].
    fn steady_memory(&self) -> Result<ProcessMemory, Error> {
        let deadline = Instant::now() + REST;
        loop {
            let before = self.memory()?;
            thread::sleep(STEADY_FOR);
            let after = self.memory()?;
            if after.private_bytes == before.private_bytes || Instant::now() > deadline {
                return Ok(after);
            }
        }
    }

    fn stop(self) -> Result<(), Error> {
        self.own.into_iter().try_for_each(Server::stop)
    }
}

/// Runs the load of `case` on `contestant`.
pub(super) fn run_server(contestant: &Contestant, case: &Case, options: &Options) -> Result<Ran, Error> {
    let application = case.application(contestant);
    let protocol = contestant.protocol(case.protocols());
    let load = case.load_on(contestant, application);
    let document = case.document.filter(|_| application == Application::Feed);
    // This process must not run on the server's core.
    let _pinned =
        pin_current(options.placing.generator_core).map_err(Error::io("pinning (--generator-core)"))?;
    let upstream =
        (application == Application::Feed).then(|| source::start(case, &load, document)).transpose()?;
    let poll_interval_ms = source::poll_interval(&load).as_millis().to_string();
    let extra = contestant.known.extra;
    let nodes = contestant.known.nodes;
    let redis = (nodes > 1)
        .then(|| engine::start(options.placing.generator_core, &std::env::temp_dir()))
        .transpose()?;
    let of_stentor = redis.as_ref().filter(|_| contestant.known.is_stentor());
    let values = context! {
        upstream => upstream.as_ref().map(|upstream| upstream.address.to_string()),
        poll_interval_ms => poll_interval_ms,
        has_rooms => application == Application::Rooms,
        redis => of_stentor.map(|redis| redis.address().to_string()),
    };
    let mut setup = Setup::new(&contestant.known, values)?;
    if let (Some(redis), None) = (&redis, of_stentor) {
        setup.args.extend(["--redis".to_owned(), redis.address().port().to_string()]);
    }
    if let (Some(upstream), Some(_)) = (&upstream, &contestant.known.peer) {
        let url = format!("http://{}", upstream.address);
        setup.args.extend(["--upstream".to_owned(), url, "--interval-ms".to_owned(), poll_interval_ms]);
    }
    let mut servers = Servers::start(contestant, case, application, protocol, &setup)?;
    let core = options.placing.server_core;
    let proxy_certificate = setup.certificate.as_deref().filter(|_| extra == Extra::TlsByNginx);
    let proxy = (case.proxied || proxy_certificate.is_some())
        .then(|| proxy::start(servers.addresses[0], core, setup.folder.path(), proxy_certificate))
        .transpose()?;
    // nginx does a part of the work that other servers do themselves.
    if let (Some(proxy), Extra::TlsByNginx) = (&proxy, extra) {
        servers.started.push(proxy.pid());
    }
    let overload = if let Course::Overload(phase) = case.course { Some(phase) } else { None };
    // Small payloads don't use memfds, so counting would only cost time.
    let large = match (&load, document) {
        (LoadSpec::Fanout(FanoutPlan { bytes, .. }), None) => *bytes >= LARGE_BYTES,
        (_, document) => document.is_some_and(|shape| shape.bytes >= LARGE_BYTES),
    };
    if overload.is_some() {
        // Limits the receive buffers, if this process may. In larger buffers, old documents would wait in the kernel.
        let _ = bound_receive_buffers(RECEIVE_BUFFER_BYTES);
    }
    // Clients that subscribe later aren't subscribed by the path.
    let path = match load {
        LoadSpec::Ask => contestant.path(Application::Chat, protocol),
        LoadSpec::Receive { .. } if document.is_some() => "/ws?feed=bench/{}",
        _ => contestant.path(application, protocol),
    };
    let target = proxy.as_ref().map_or(servers.addresses[0], Server::address);
    let spec_of = |connections, load| Spec {
        protocol,
        core: Some(options.placing.generator_core),
        ..Spec::new(target, path, connections, load)
    };
    let mut spec = spec_of(case.connections, load.clone());
    match load {
        LoadSpec::Fanout(FanoutPlan { publisher: Publisher::Own, .. }) if nodes > 1 => {
            spec.entry = servers.addresses.last().copied();
        }
        _ => spec.targets.extend_from_slice(&servers.addresses[1..]),
    }
    spec.document = document;
    let watches = protocol == Protocol::Rooms && matches!(load, LoadSpec::Presence { .. });
    spec.first_message = watches.then(|| WATCH.to_owned());
    spec.certificate.clone_from(&setup.certificate);
    spec.tokens.clone_from(&setup.tokens);
    spec.deflate = extra == Extra::Deflate;
    spec.server_pids.clone_from(&servers.first);
    spec.started_pids.clone_from(&servers.started);
    spec.connect_rate_hz = case.connect_rate_hz.unwrap_or(spec.connect_rate_hz);
    (spec.idle, spec.slices) = case.rest(options.effort.idle());
    let lost = |error: Error| match error {
        Error::Generator(what) => servers.error(&what),
        other => other,
    };
    let sockets_before_bytes = socket_bytes().map_err(Error::io("the kernel's sockets"))?;
    let mut beside = match case.course {
        Course::Beside { how, clients, .. } => {
            let feed = if upstream.is_some() { FEED_LONGER } else { Duration::ZERO };
            let lasts = spec.idle + load.lasts() + BESIDE_LONGER + feed;
            let spec = Spec {
                first_source: BESIDE_SOURCE,
                // The measuring generator is on the same core and must be on time.
                stands_back: true,
                ..spec_of(clients, LoadSpec::Misbehave { how, lasts })
            };
            Some(Workers::connect(&options.program, &spec).map_err(lost)?)
        }
        _ => None,
    };
    let before = match case.metrics.contains(&Metric::BytesPerConnection) {
        true => servers.steady_memory()?,
        false => servers.memory()?,
    };
    let kernel_grown_from = kernel_bytes().map_err(Error::io("the kernel's memory"))?;
    let conductor = overload.zip(upstream.as_ref()).map(|(phase, upstream)| {
        Rc::new(RefCell::new(Conductor::new(upstream.pacer(), case.connections, phase)))
    });
    let (bar, conducting) = (options.live.clone(), conductor.clone());
    let watch = (bar.is_some() || conducting.is_some()).then(|| {
        Box::new(move |live: &Live| {
            bar.iter().for_each(|bar| bar.set_message(live.to_string()));
            conducting.iter().for_each(|conductor| conductor.borrow_mut().observe(live));
        }) as Box<dyn Fn(&Live)>
    });
    let mut workers = Workers::connect_watched(&options.program, &spec, watch).map_err(lost)?;
    if spec.slices > 0 || matches!(load, LoadSpec::Idle { .. }) {
        thread::sleep(REST);
    }
    let connected = servers.memory()?;
    let kernel_grown_to = kernel_bytes().map_err(Error::io("the kernel's memory"))?;
    let sampler = Sampler::start(servers.first.clone(), servers.started.clone(), large);
    if let (Some(upstream), LoadSpec::Fanout(FanoutPlan { rate_hz, .. })) = (&upstream, &load) {
        upstream.pacer().set_rate_hz(*rate_hz, spec.idle + source::WAITS);
    }
    if let Some(beside) = &mut beside {
        beside.begin()?;
    }
    let counts = case.course == Course::Counted;
    let counter = counts.then(|| CallCounter::attach(&servers.all_pids()).ok()).flatten();
    let mut ours =
        [servers.all_pids(), workers.pids(), beside.iter().flat_map(Workers::pids).collect()].concat();
    ours.extend(redis.as_ref().map(Server::pid));
    let read_engine = || redis.as_ref().map_or(Ok(0), engine::bytes);
    let read_versions = || upstream.as_ref().map(Upstream::versions);
    let (engine_before, versions_before) = (read_engine()?, read_versions());
    // The CPU of strace, or of a server with an unknown process, can't be separated from that of other processes.
    let machine = Machine::now(&ours, counter.is_none() && !servers.first.is_empty());
    conductor.iter().for_each(|conductor| conductor.borrow_mut().begin());
    let result = workers.run();
    let (steal_share, others_share) = machine.since();
    let through_engine = read_engine()?.saturating_sub(engine_before) as f64;
    // The API counts further versions until the generators have ended.
    let versions = read_versions().zip(versions_before).map(|(after, before)| (after - before).max(1));
    let publications = match load {
        LoadSpec::Fanout(FanoutPlan { warm_up, count, .. }) if redis.is_some() => {
            Some(versions.unwrap_or(warm_up + count))
        }
        _ => None,
    };
    let mut figures = BTreeMap::new();
    figures
        .extend(publications.map(|publications| {
            (Metric::EngineBytes, through_engine / (publications * nodes as u64) as f64)
        }));
    let frequency_mhz = frequency_mhz(options.placing.server_core);
    let calls = counter.and_then(|counter| counter.stop().ok());
    drop(workers);
    let samples = sampler.stop();
    let mut outcome = result.map_err(lost)?;
    let peak_resident_bytes = servers.memory()?.peak_resident_bytes;
    let beside = beside.map(|mut beside| beside.finish()).transpose().map_err(lost)?;
    drop(proxy);
    let processes = servers.first.len();
    let started = if nodes > 1 { vec!["other nodes".to_owned()] } else { servers.names_of_started() };
    // The API is read before the servers end. If one node ends, another node takes over its fetches.
    if let Some(upstream) = upstream {
        let served = upstream.stop();
        outcome.lag.merge(&served.lag);
        figures.insert(Metric::UpstreamRequests, served.requests as f64);
        // One node requests each version, and the next one.
        let ratio = served.requests as f64 / (served.versions + 1) as f64;
        figures.extend((nodes > 1).then_some((Metric::UpstreamRatio, ratio)));
    }
    let grown = kernel_grown_to.saturating_sub(kernel_grown_from) as f64;
    figures.insert(Metric::KernelPerConnection, grown / outcome.connections.max(1) as f64);
    servers.stop()?;
    Ok(Ran {
        load,
        outcome,
        beside,
        before,
        connected,
        sockets_before_bytes,
        figures,
        samples,
        peak_resident_bytes,
        processes,
        started,
        overload: conductor.map(|conductor| {
            let conductor = conductor.borrow();
            (conductor.capacity_hz, conductor.phases.clone())
        }),
        calls,
        steal_share,
        others_share,
        frequency_mhz,
    })
}

/// CPU use of the machine and of this run's processes at one moment.
struct Machine {
    at: Instant,
    all: Option<MachineTime>,
    clocks: Vec<CpuClock>,
    used: Duration,
    /// `true` if all processes of this run are known, so the rest of the CPU belongs to others.
    is_known: bool,
}

impl Machine {
    fn now(pids: &[u32], is_known: bool) -> Self {
        let mut clocks: Vec<CpuClock> =
            pids.iter().filter_map(|pid| CpuClock::of_process(*pid).ok()).collect();
        clocks.push(CpuClock::own());
        let used = used(&clocks);
        Self { at: Instant::now(), all: MachineTime::now().ok(), clocks, used, is_known }
    }

    /// Since this moment: the share of the requested CPU time that a hypervisor took, and the CPU of other processes as
    /// a share of a core.
    fn since(&self) -> (f64, f64) {
        let Some((before, after)) = self.all.zip(MachineTime::now().ok()) else { return (0.0, 0.0) };
        let ours = used(&self.clocks).saturating_sub(self.used);
        let others = after.ran_since(&before).saturating_sub(ours);
        let share = others.as_secs_f64() / self.at.elapsed().as_secs_f64().max(1e-9);
        (after.steal_since(&before), if self.is_known { share } else { 0.0 })
    }
}

fn used(clocks: &[CpuClock]) -> Duration {
    clocks.iter().filter_map(|clock| clock.read().ok()).sum()
}

/// The current frequency of a core, if the kernel reports it.
fn frequency_mhz(core: usize) -> Option<f64> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq");
    Some(std::fs::read_to_string(path).ok()?.trim().parse::<f64>().ok()? / 1e3)
}
