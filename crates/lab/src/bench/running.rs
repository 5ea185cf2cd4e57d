//! One server put through one load: fresh processes, pinned, watched, and ended.
//!
//! Where a server's process can't hold the connections of a case, several of its processes share them out, and what they use
//! is added up; the same machinery starts those who misbehave beside a load, in generators of their own, and the proxy between.

use std::thread;
use std::time::{Duration, Instant};

use super::overload::{Conductor, Phase};
use super::proxy::Proxy;
use super::sampler::{Sample, Sampler};
use super::source::Source;
use super::{Application, Case, Contestant, Options};
use crate::Error;
use crate::document::Shape;
use crate::generator::{Live, LoadSpec, Misbehaviour, Outcome, Protocol, Spec, Workers};
use crate::measure::{
    CallCounter, Calls, CpuClock, KernelSockets, MachineTime, ProcessMemory, Server, bound_receive_buffers,
    kernel_bytes, pin_current,
};
use crate::upstream::Content;

/// Payloads from which on memfds are counted.
const LARGE_BYTES: usize = 10_000;
/// Of a socket of an overload's, in the kernel: less than a document. Otherwise up to 200 old documents wait there for each client.
const RECEIVE_BUFFER_BYTES: usize = 128 * 1024;
/// How long idle connections are left alone before memory is read.
const SETTLE: Duration = Duration::from_millis(1500);
/// How much longer than the load those go on who misbehave beside it, and how much longer still where an HTTP API takes its time
/// until the first version is due.
const BESIDE_LONGER: Duration = Duration::from_millis(300);
const FEED_LONGER: Duration = Duration::from_secs(1);
/// Offset of their source addresses.
const BESIDE_SOURCE: u8 = 180;

/// What is left of one server's run.
pub(super) struct Ran {
    pub(super) load: LoadSpec,
    pub(super) outcome: Outcome,
    /// Of those who misbehaved beside it.
    pub(super) beside: Option<Outcome>,
    pub(super) before: ProcessMemory,
    pub(super) connected: ProcessMemory,
    /// Of the kernel's sockets before any connection.
    pub(super) kernel_before: KernelSockets,
    /// By how much the kernel's memory grew with the connections, bytes.
    pub(super) kernel_grown_bytes: u64,
    pub(super) samples: Vec<Sample>,
    pub(super) peak_resident_bytes: u64,
    /// Processes of the server.
    pub(super) processes: usize,
    /// The names of what these have started.
    pub(super) started: Vec<String>,
    /// Of an overload, versions a second at the capacity, and the phases.
    pub(super) overload: Option<(f64, Vec<Phase>)>,
    /// Requests that the API behind a feed got, where there is one.
    pub(super) upstream_requests: Option<u64>,
    /// System calls under the load, where they were counted.
    pub(super) calls: Option<Calls>,
    /// Of the time that the machine's cores requested during the load, what a hypervisor took, 0 to 1.
    pub(super) stolen_share: f64,
    /// CPU of processes that have nothing to do with the run, as a share of one core.
    pub(super) others_share: f64,
    /// Of the server's core, where the kernel reports it.
    pub(super) frequency_mhz: Option<f64>,
}

/// What one server has to go through.
pub(super) struct Task {
    pub(super) application: Application,
    /// What the case is about, and what is spoken else.
    pub(super) protocols: Vec<Protocol>,
    pub(super) connections: usize,
    pub(super) load: LoadSpec,
    /// Who misbehaves beside it, and on how many connections.
    pub(super) beside: Option<(Misbehaviour, usize)>,
    pub(super) connect_rate_hz: Option<f64>,
    /// What the document of a feed is like; `None`: a string.
    pub(super) document: Option<Shape>,
    /// How long the API behind a feed takes for its first answer.
    pub(super) hesitates: Duration,
    /// Of an overload, how long each phase lasts.
    pub(super) overload: Option<Duration>,
    pub(super) counts_calls: bool,
    /// Whether memory is read when the connections have been left alone for a while.
    pub(super) settles: bool,
    /// How long connections are looked at doing nothing; `None`: as the pace says.
    pub(super) idle: Option<Duration>,
    /// Into how many slices the time between two publications is cut; 0: it isn't.
    pub(super) slices: u32,
    /// Whether clients come through nginx.
    pub(super) proxied: bool,
}

impl Task {
    pub(super) fn new(case: &Case, application: Application, connections: usize, load: LoadSpec) -> Self {
        let protocols = [&[case.protocol], case.or].concat();
        let settles = matches!(load, LoadSpec::Idle { .. });
        Self {
            application,
            protocols,
            connections,
            load,
            beside: None,
            connect_rate_hz: None,
            document: None,
            hesitates: Duration::ZERO,
            overload: None,
            counts_calls: false,
            settles,
            idle: None,
            slices: 0,
            proxied: case.kind.is_proxied(),
        }
    }
}

/// The processes of one server.
struct Servers {
    /// Those that connections come to.
    first: Vec<Server>,
    /// What those have started and is still there, a store between processes of a service: its CPU and memory are the server's.
    started: Vec<u32>,
}

impl Servers {
    /// As many as are needed for so many connections. What they say to each other is nothing, so only loads whose
    /// connections have nothing to do with each other can be shared out.
    fn start(
        contestant: &Contestant,
        task: &Task,
        protocol: Protocol,
        source: Option<&Source>,
    ) -> Result<Self, Error> {
        let shared_out = matches!(
            task.load,
            LoadSpec::EchoOpen { .. } | LoadSpec::EchoClosed { .. } | LoadSpec::Idle { .. }
        );
        let count = if shared_out { task.connections.div_ceil(contestant.holds()).max(1) } else { 1 };
        let config = source.map(Source::config);
        let contestant = contestant.holding(task.connections.div_ceil(count));
        let command = contestant.command(task.application, protocol, config);
        let first: Vec<Server> = (0..count).map(|_| Server::start(&command)).collect::<Result<_, _>>()?;
        let started = first.iter().flat_map(Server::started).collect();
        Ok(Self { first, started })
    }

    fn pids(&self) -> Vec<u32> {
        self.first.iter().map(Server::pid).collect()
    }

    /// And of what they have started.
    fn all_pids(&self) -> Vec<u32> {
        [self.pids(), self.started.clone()].concat()
    }

    /// What they have started.
    fn names_of_started(&self) -> Vec<String> {
        let read = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
        self.started.iter().filter_map(read).map(|name| name.trim().to_owned()).collect()
    }

    fn memory(&self) -> Result<ProcessMemory, Error> {
        let mut sum = ProcessMemory::default();
        let first = self.first.iter().map(|server| {
            ProcessMemory::of_process(server.pid()).map_err(|_| server.error("it ended by itself"))
        });
        let started = self.started.iter().filter_map(|pid| ProcessMemory::of_process(*pid).ok()).map(Ok);
        for one in first.chain(started) {
            let one = one?;
            sum.pss_bytes += one.pss_bytes;
            sum.private_bytes += one.private_bytes;
            sum.peak_resident_bytes += one.peak_resident_bytes;
        }
        Ok(sum)
    }

    fn stop(self) -> Result<(), Error> {
        self.first.into_iter().try_for_each(Server::stop)
    }
}

/// The HTTP API that a task's server fetches from, where it does.
fn source_of(task: &Task) -> Result<Option<Source>, Error> {
    if task.application != Application::Feed {
        return Ok(None);
    }
    match (&task.load, task.document) {
        (LoadSpec::Fanout { rate_hz, .. }, Some(shape)) => Source::new(Content::Document(shape), *rate_hz),
        (LoadSpec::Fanout { bytes, rate_hz, .. }, None) => {
            Source::new(Content::Text { bytes: *bytes }, *rate_hz)
        }
        (LoadSpec::Follow { .. }, Some(shape)) => Source::paced(Content::Document(shape)),
        (LoadSpec::Ask, Some(shape)) => Source::cold(Content::Document(shape), task.hesitates),
        // One that is never said to begin: its first answer is all there is.
        _ => Source::new(Content::Text { bytes: 0 }, 1.0),
    }
    .map(Some)
}

/// Puts `contestant` through `task`.
pub(super) fn run_server(contestant: &Contestant, task: Task, options: &Options) -> Result<Ran, Error> {
    let protocol = contestant.protocol(&task.protocols);
    // Whatever this process does itself must not run on the server's core.
    let _pinned = pin_current(options.generator_core).map_err(Error::io("pinning (--generator-core)"))?;
    let source = source_of(&task)?;
    let servers = Servers::start(contestant, &task, protocol, source.as_ref())?;
    let [first, others @ ..] = &servers.first[..] else {
        return Err(Error::Generator("a server without processes".into()));
    };
    let proxy = task.proxied.then(|| Proxy::start(first.address(), options.server_core)).transpose()?;
    let load = task.load;
    // Smaller ones aren't worth a memfd, nor the look at it.
    let large =
        task.overload.is_some() || matches!(load, LoadSpec::Fanout { bytes, .. } if bytes >= LARGE_BYTES);
    if task.overload.is_some() {
        // Where that isn't allowed, old documents wait there.
        let _ = bound_receive_buffers(RECEIVE_BUFFER_BYTES);
    }
    // Who asks later isn't subscribed by the path.
    let path = match load {
        LoadSpec::Ask => contestant.path(Application::Chat, protocol),
        _ => contestant.path(task.application, protocol),
    };
    let target = proxy.as_ref().map_or(first.address(), Proxy::address);
    let mut spec = Spec::new(target, path, task.connections, load.clone());
    spec.targets_also = others.iter().map(Server::address).collect();
    spec.protocol = protocol;
    spec.document = task.document;
    spec.server_pids = servers.pids();
    spec.started_pids = servers.started.clone();
    spec.core = Some(options.generator_core);
    spec.driver = options.generator_driver;
    spec.connect_rate_hz = task.connect_rate_hz.unwrap_or(spec.connect_rate_hz);
    spec.slices = task.slices;
    spec.idle = task.idle.unwrap_or(options.effort.idle());
    let lost = |error: Error| match error {
        Error::Generator(what) => first.error(&what),
        other => other,
    };
    let kernel_before = KernelSockets::now().map_err(Error::io("the kernel's sockets"))?;
    let mut beside = match task.beside {
        Some((how, connections)) => {
            let feed = if source.is_some() { FEED_LONGER } else { Duration::ZERO };
            let lasts = spec.idle + load.lasts() + BESIDE_LONGER + feed;
            let mut spec = Spec::new(target, path, connections, LoadSpec::Misbehave { how, lasts });
            spec.protocol = protocol;
            spec.core = Some(options.generator_core);
            spec.driver = options.generator_driver;
            spec.first_source = BESIDE_SOURCE;
            // The measuring generator is on the same core, and has to be in time.
            spec.stands_back = true;
            Some(Workers::connect(&options.invocation, &spec).map_err(lost)?)
        }
        None => None,
    };
    let before = servers.memory()?;
    let kernel_grown_from = kernel_bytes().map_err(Error::io("the kernel's memory"))?;
    let conductor = task.overload.zip(source.as_ref());
    let conductor = conductor.map(|(phase, source)| Conductor::new(source.pacer(), task.connections, phase));
    let (bar, conducting) = (options.live.clone(), conductor.clone());
    let watch = (bar.is_some() || conducting.is_some()).then(|| {
        Box::new(move |live: &Live| {
            bar.iter().for_each(|bar| bar.tell(live));
            conducting.iter().for_each(|conductor| conductor.hear(live));
        }) as Box<dyn Fn(&Live)>
    });
    let mut workers = Workers::connect_watched(&options.invocation, &spec, watch).map_err(lost)?;
    if task.settles {
        thread::sleep(SETTLE);
    }
    let connected = servers.memory()?;
    let kernel_grown_to = kernel_bytes().map_err(Error::io("the kernel's memory"))?;
    let sampler = Sampler::start(servers.pids(), servers.started.clone(), large);
    if let (Some(source), LoadSpec::Fanout { .. }) = (&source, &load) {
        source.begin_after(spec.idle);
    }
    if let Some(beside) = &mut beside {
        beside.begin()?;
    }
    let counter = task.counts_calls.then(|| CallCounter::attach(&servers.all_pids()).ok()).flatten();
    let ours = [servers.all_pids(), workers.pids(), beside.iter().flat_map(Workers::pids).collect()].concat();
    let machine = Machine::now(&ours, counter.is_some());
    conductor.iter().for_each(Conductor::begin);
    let result = workers.run();
    let (stolen_share, others_share) = machine.since();
    let frequency_mhz = frequency_mhz(options.server_core);
    let calls = counter.and_then(|counter| counter.stop().ok());
    drop(workers);
    let samples = sampler.stop();
    let mut outcome = result.map_err(lost)?;
    let peak_resident_bytes = servers.memory()?.peak_resident_bytes;
    let beside = beside.map(|mut beside| beside.finish()).transpose().map_err(lost)?;
    drop(proxy);
    let processes = servers.first.len();
    let started = servers.names_of_started();
    servers.stop()?;
    let mut upstream_requests = None;
    if let Some(source) = source {
        let served = source.stop()?;
        outcome.lag.merge(&served.lag);
        upstream_requests = Some(served.requests);
    }
    Ok(Ran {
        load,
        outcome,
        beside,
        before,
        connected,
        kernel_before,
        kernel_grown_bytes: kernel_grown_to.saturating_sub(kernel_grown_from),
        samples,
        peak_resident_bytes,
        processes,
        started,
        overload: conductor.map(|conductor| conductor.phases()),
        upstream_requests,
        calls,
        stolen_share,
        others_share,
        frequency_mhz,
    })
}

/// The CPU of the machine, and of this run's processes, at one moment.
struct Machine {
    at: Instant,
    all: Option<MachineTime>,
    clocks: Vec<CpuClock>,
    used: Duration,
    /// What else belongs to the run can't be told from others.
    is_traced: bool,
}

impl Machine {
    fn now(pids: &[u32], is_traced: bool) -> Self {
        let mut clocks: Vec<CpuClock> =
            pids.iter().filter_map(|pid| CpuClock::of_process(*pid).ok()).collect();
        clocks.push(CpuClock::own());
        let used = used(&clocks);
        Self { at: Instant::now(), all: MachineTime::now().ok(), clocks, used, is_traced }
    }

    /// Since then: the share of what the cores requested that a hypervisor took, and what other processes used as a share of a
    /// core.
    fn since(&self) -> (f64, f64) {
        let Some((before, after)) = self.all.zip(MachineTime::now().ok()) else { return (0.0, 0.0) };
        let ours = used(&self.clocks).saturating_sub(self.used);
        let others = after.ran_since(&before).saturating_sub(ours);
        let share = others.as_secs_f64() / self.at.elapsed().as_secs_f64().max(1e-9);
        (after.stolen_since(&before), if self.is_traced { 0.0 } else { share })
    }
}

fn used(clocks: &[CpuClock]) -> Duration {
    clocks.iter().filter_map(|clock| clock.read().ok()).sum()
}

/// The frequency of a core now, where the kernel reports it.
fn frequency_mhz(core: usize) -> Option<f64> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq");
    Some(std::fs::read_to_string(path).ok()?.trim().parse::<f64>().ok()? / 1e3)
}
