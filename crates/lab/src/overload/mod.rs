//! What becomes of a server that is given more to deliver than it can: a document changes up to ten times as often as everybody
//! can be sent it, then as before.
//!
//! Clients of one key get whole documents. The capacity, of this server and this generator on this machine at this hour, is the
//! most versions a second of which clients skip hardly any; it is looked for first. The phases offer multiples of it. Age is that of what clients *have*: at each look, of all of them, how long ago the version that a client has was due.
//! So it also grows where nothing arrives. It rises when a version takes longer to reach everybody; with a policy that keeps
//! the newest value only, it doesn't rise further with what is offered, as versions are skipped instead.
//!
//! What is to be seen: nobody is disconnected, what arrives is whole and never older than before, the server's memory stays
//! where it was, and the age comes back. [`Report::faults`] judges that.
//!
//! Deliberately absent: deltas, which would make the load a hundredth, and other servers, which have no such policy.

mod api;
mod crowd;
mod plot;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::document::{Document, Shape};
use crate::measure::{
    CpuClock, KernelSockets, ProcessMemory, Server, ServerCommand, is_in_namespace, memfd_bytes, pin_current,
};
use api::Api;
use crowd::Crowd;

pub use plot::plot;

/// The key of the document.
const KEY: &str = "bench";
/// Versions a second while it is found out about how many can be delivered, and how long that takes.
const SATURATING_HZ: f64 = 40.0;
const SATURATED: Duration = Duration::from_secs(6);
/// The capacity is looked for in steps of this factor, each so long and at least so many versions.
const STEP: f64 = 1.2;
const STEP_SETTLES: Duration = Duration::from_secs(1);
const STEP_LASTS: Duration = Duration::from_secs(3);
const STEP_VERSIONS: f64 = 8.0;
const STEPS_MAX: usize = 24;
/// Of what is offered at the capacity, clients skip less than this share.
const SKIPPED_MAX: f64 = 0.01;
const LEAST_HZ: f64 = 0.1;
/// Between that and the first phase, so that it begins with nothing under way.
const REST: Duration = Duration::from_secs(2);
/// Of how many looks at memory one counts the memfds as well: it takes a microsecond for each descriptor.
const LOOKS_PER_MEMFDS: u32 = 4;
/// Of a socket in the kernel: less than a document.
const RECEIVE_BUFFER_BYTES: usize = 128 * 1024;
/// Connections begun a second; each is sent the document.
const CONNECT_HZ: f64 = 1000.0;
/// What each phase offers, as a multiple of the capacity.
const OFFERED: [f64; 5] = [0.5, 2.0, 5.0, 10.0, 0.5];
/// From this multiple of the capacity on there is no way but to skip.
const FAR: f64 = 5.0;
/// Of a phase, the share at its beginning in which the one before still shows.
const SETTLING_SHARE: f64 = 0.4;
/// Memory counts as flat up to this growth over the first phase, beside what an allocator may keep.
const GROWTH_SHARE_MAX: f64 = 0.1;
const GROWTH_BYTES: f64 = 16e6;
/// The age has recovered if its median is at most this multiple of what it was in the first phase, and a version's time.
const RECOVERED: f64 = 1.5;

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `stentor` binary.
    pub stentor: PathBuf,
    /// Further arguments of `stentor serve`.
    pub serve: Vec<String>,
    /// How many clients.
    pub clients: usize,
    /// About how long the document is.
    pub bytes: usize,
    /// How long each phase lasts; the last one twice as long.
    pub phase: Duration,
    /// From one look at everything to the next.
    pub every: Duration,
    /// Versions a second that everybody can be sent; `None`: looked for.
    pub capacity_hz: Option<f64>,
    /// The core of the server, and that of everything else.
    pub cores: (usize, usize),
}

/// One look.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Since the first phase began, seconds.
    pub at_s: f64,
    /// Which phase, from 0.
    pub phase: usize,
    /// Age of what clients have, milliseconds: the median client's, and beyond.
    pub age_p50_ms: f64,
    /// The 99th percentile.
    pub age_p99_ms: f64,
    /// The oldest.
    pub age_max_ms: f64,
    /// Documents delivered a second, since the look before.
    pub delivered_hz: f64,
    /// Versions that clients skipped since the look before.
    pub skipped: u64,
    /// Clients that are connected.
    pub open: usize,
    /// Share of its core that the server used.
    pub server_share: f64,
    /// The server's own memory: its proportional share of its pages (PSS), and its memfds.
    pub server_bytes: u64,
    /// Buffers of all TCP sockets of the machine, both ends.
    pub kernel_bytes: u64,
}

/// A phase in short: medians of its looks but for the settling ones, and maxima where it says so.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Phase {
    /// What was offered, as a multiple of the capacity.
    pub multiple: f64,
    /// Versions a second.
    pub offered_hz: f64,
    /// When it began and ended, seconds.
    pub from_s: f64,
    /// The end.
    pub to_s: f64,
    /// Documents a second.
    pub delivered_hz: f64,
    /// Of the versions between those that clients got and the last they got, the share that they skipped.
    pub skipped_share: f64,
    /// Milliseconds.
    pub age_p50_ms: f64,
    /// Milliseconds.
    pub age_p99_ms: f64,
    /// The greatest of all looks, the settling ones included; milliseconds.
    pub age_max_ms: f64,
    /// Share of the server's core.
    pub server_share: f64,
    /// The greatest.
    pub server_bytes_max: u64,
    /// Median.
    pub server_bytes: u64,
    /// The greatest.
    pub kernel_bytes_max: u64,
}

/// All that was seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Clients.
    pub clients: usize,
    /// Length of the document.
    pub document_bytes: usize,
    /// Versions a second that everybody can be sent.
    pub capacity_hz: f64,
    /// In short.
    pub phases: Vec<Phase>,
    /// At length.
    pub samples: Vec<Sample>,
    /// Clients that were disconnected.
    pub lost: usize,
    /// Why the first one was.
    pub first_loss: Option<String>,
    /// Documents that came and were compared byte by byte with what the API answered.
    pub compared: u64,
    /// What came and was wrong.
    pub wrong: Vec<String>,
}

/// Runs it; progress goes to `progress`, line by line.
pub fn run(options: &Options, progress: &mut dyn Write) -> Result<Report, Error> {
    let mut say = |line: String| {
        let _ = writeln!(progress, "{line}");
    };
    if let Err(why) = bound_receive_buffers() {
        say(format!("receive buffers are as the system has them ({why}): then what is old waits there"));
    }
    let _pinned = pin_current(options.cores.1).map_err(Error::io("pinning (--generator-core)"))?;
    let shape = Shape { bytes: options.bytes, changes: 20 };
    let document_bytes = Document::new(shape).text().len();
    let api = Api::start(shape)?;
    let config = Config::write(&api)?;
    let server = Server::start(&command(options, &config))?;
    let lost = |error: Error| match error {
        Error::Generator(what) => server.error(&what),
        other => other,
    };
    let mut crowd = Crowd::new(server.address(), KEY, document_bytes, &api)?;
    crowd.open(options.clients, CONNECT_HZ).map_err(lost)?;
    say(format!("{} clients have the document of {document_bytes} bytes", options.clients));
    let capacity_hz = match options.capacity_hz {
        Some(capacity_hz) => capacity_hz,
        None => find_capacity_hz(&mut crowd, &api, options)?,
    };
    say(format!("capacity: {capacity_hz:.2} versions a second to each"));
    api.set_rate_hz(capacity_hz * OFFERED[0]);
    turn_for(&mut crowd, REST)?;

    let watch = Watch::start(server.pid(), options.every)?;
    let mut samples: Vec<Sample> = Vec::new();
    let mut phases = Vec::new();
    let begun = Instant::now();
    let mut seen = (crowd.came, begun);
    let mut end = Duration::ZERO;
    for (nth, multiple) in OFFERED.into_iter().enumerate() {
        let offered_hz = capacity_hz * multiple;
        let from = end;
        end += if nth + 1 == OFFERED.len() { options.phase * 2 } else { options.phase };
        api.set_rate_hz(offered_hz);
        let first = samples.len();
        let mut next = begun + from;
        while next < begun + end {
            next = (next + options.every).min(begun + end);
            while Instant::now() < next {
                crowd.turn(next)?;
            }
            let now = Instant::now();
            let since_s = now.duration_since(seen.1).as_secs_f64();
            let ages = crowd.ages();
            let age_ms = |percent: usize| {
                let at = (ages.len() * percent / 100).min(ages.len().saturating_sub(1));
                ages.get(at).map_or(0.0, |age| age.as_secs_f64() * 1e3)
            };
            let memory = watch.newest();
            samples.push(Sample {
                at_s: now.duration_since(begun).as_secs_f64(),
                phase: nth,
                age_p50_ms: age_ms(50),
                age_p99_ms: age_ms(99),
                age_max_ms: age_ms(100),
                delivered_hz: (crowd.came.delivered - seen.0.delivered) as f64 / since_s,
                skipped: crowd.came.skipped - seen.0.skipped,
                open: crowd.open,
                server_share: memory.share,
                server_bytes: memory.server_bytes,
                kernel_bytes: memory.kernel_bytes,
            });
            seen = (crowd.came, now);
        }
        let phase = in_short(multiple, offered_hz, from, end, &samples[first..], options.every);
        say(phase.to_string());
        phases.push(phase);
    }
    watch.stop();
    let report = Report {
        clients: options.clients,
        document_bytes,
        capacity_hz,
        phases,
        samples,
        lost: crowd.lost,
        first_loss: crowd.first_loss.take(),
        compared: crowd.came.compared,
        wrong: std::mem::take(&mut crowd.wrong),
    };
    drop(crowd);
    server.stop()?;
    Ok(report)
}

/// Bounds the kernel's receive buffers, in the lab's own network namespace only. A system's bound may be 32 MB, and on loopback,
/// where nothing is lost, buffers grow up to it: then 200 old documents wait in front of a client that falls behind, and
/// its age says nothing of the server.
fn bound_receive_buffers() -> Result<(), String> {
    if !is_in_namespace() {
        return Err("this isn't a network namespace of its own".into());
    }
    let most = RECEIVE_BUFFER_BYTES;
    std::fs::write("/proc/sys/net/ipv4/tcp_rmem", format!("4096 {most} {most}"))
        .map_err(|error| error.to_string())
}

/// A configuration whose feed is the API's document. Removed when it is dropped.
struct Config(PathBuf);

impl Config {
    fn write(api: &Api) -> Result<Self, Error> {
        let address = api.address();
        let name = format!("stentor-overload-{}-{}.toml", std::process::id(), address.port());
        // The API holds its answer until there is another version, so it is asked again at once.
        let text = format!(
            "[[feeds]]\nname = \"{KEY}\"\nurl = \"http://{address}\"\npoll_interval = \"1ms\"\ntimeout = \"1h\"\n\
             read_timeout = \"1h\"\n"
        );
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).map_err(Error::io("writing a configuration"))?;
        Ok(Self(path))
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn command(options: &Options, config: &Config) -> ServerCommand {
    let args = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--cores", "1", "--config"];
    let args = args.into_iter().map(str::to_owned).chain([config.0.to_string_lossy().into_owned()]);
    ServerCommand {
        name: "stentor".to_owned(),
        program: options.stentor.clone(),
        args: args.chain(options.serve.clone()).collect(),
        core: Some(options.cores.0),
    }
}

fn turn_for(crowd: &mut Crowd<'_>, span: Duration) -> Result<(), Error> {
    let end = Instant::now() + span;
    while Instant::now() < end {
        crowd.turn(end)?;
    }
    Ok(())
}

/// The most versions a second of which clients skip hardly any.
fn find_capacity_hz(crowd: &mut Crowd<'_>, api: &Api, options: &Options) -> Result<f64, Error> {
    // What is delivered of too many says where to look: a server that is busy with what it throws away delivers less.
    api.set_rate_hz(SATURATING_HZ);
    turn_for(crowd, SATURATED / 2)?;
    let (before, begun) = (crowd.came.delivered, Instant::now());
    turn_for(crowd, SATURATED / 2)?;
    let delivered_hz = (crowd.came.delivered - before) as f64 / begun.elapsed().as_secs_f64();
    let mut rate_hz = (delivered_hz / options.clients as f64).max(LEAST_HZ);
    let mut good = None;
    for _ in 0..STEPS_MAX {
        // A machine that was busy for a moment gets another chance.
        let is_good = keeps_up(crowd, api, rate_hz)? || keeps_up(crowd, api, rate_hz)?;
        match (is_good, good) {
            (true, _) => good = Some(rate_hz),
            (false, Some(good)) => return Ok(good),
            (false, None) => {}
        }
        // Down until it keeps up, and from there up until it doesn't.
        let up = good.is_some();
        rate_hz = if up { rate_hz * STEP } else { rate_hz / STEP };
    }
    good.ok_or_else(|| Error::Generator("there is no rate at which nothing is skipped".into()))
}

/// Whether clients skip hardly anything of so many versions a second.
fn keeps_up(crowd: &mut Crowd<'_>, api: &Api, rate_hz: f64) -> Result<bool, Error> {
    api.set_rate_hz(rate_hz);
    turn_for(crowd, STEP_SETTLES)?;
    let before = crowd.came;
    turn_for(crowd, STEP_LASTS.max(Duration::from_secs_f64(STEP_VERSIONS / rate_hz)))?;
    let delivered = (crowd.came.delivered - before.delivered) as f64;
    let skipped = (crowd.came.skipped - before.skipped) as f64;
    Ok(delivered > 0.0 && skipped / (skipped + delivered) < SKIPPED_MAX)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    crate::bench::median(&values.collect::<Vec<_>>()).unwrap_or(0.0)
}

fn in_short(
    multiple: f64,
    offered_hz: f64,
    from: Duration,
    to: Duration,
    samples: &[Sample],
    every: Duration,
) -> Phase {
    let settled = &samples[(samples.len() as f64 * SETTLING_SHARE) as usize..];
    let of = |value: fn(&Sample) -> f64| median(settled.iter().map(value));
    let delivered: f64 = settled.iter().map(|sample| sample.delivered_hz * every.as_secs_f64()).sum();
    let skipped: f64 = settled.iter().map(|sample| sample.skipped as f64).sum();
    Phase {
        multiple,
        offered_hz,
        from_s: from.as_secs_f64(),
        to_s: to.as_secs_f64(),
        delivered_hz: delivered / (settled.len().max(1) as f64 * every.as_secs_f64()),
        skipped_share: skipped / (skipped + delivered).max(1.0),
        age_p50_ms: of(|sample| sample.age_p50_ms),
        age_p99_ms: of(|sample| sample.age_p99_ms),
        age_max_ms: samples.iter().map(|sample| sample.age_max_ms).fold(0.0, f64::max),
        server_share: of(|sample| sample.server_share),
        server_bytes_max: samples.iter().map(|sample| sample.server_bytes).max().unwrap_or(0),
        server_bytes: of(|sample| sample.server_bytes as f64) as u64,
        kernel_bytes_max: samples.iter().map(|sample| sample.kernel_bytes).max().unwrap_or(0),
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "| {} × | {:.1} | {:.0} | {:.0} % | {:.0} | {:.0} | {:.0} | {:.0} % | {:.1} | {:.0} |",
            self.multiple,
            self.offered_hz,
            self.delivered_hz,
            self.skipped_share * 100.0,
            self.age_p50_ms,
            self.age_p99_ms,
            self.age_max_ms,
            self.server_share * 100.0,
            self.server_bytes_max as f64 / 1e6,
            self.kernel_bytes_max as f64 / 1e6,
        )
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "| offered | versions/s | delivered/s | skipped | age p50, ms | p99 | max | server's core | its memory, MB | \
             kernel, MB |\n|---|---|---|---|---|---|---|---|---|---|"
        )?;
        for phase in &self.phases {
            writeln!(f, "{phase}")?;
        }
        writeln!(
            f,
            "\n{} clients, {} bytes; capacity {:.2} versions a second; {} disconnected; {} documents compared, {} wrong",
            self.clients,
            self.document_bytes,
            self.capacity_hz,
            self.lost,
            self.compared,
            self.wrong.len()
        )?;
        for fault in self.faults() {
            writeln!(f, "FAULT: {fault}")?;
        }
        Ok(())
    }
}

impl Report {
    /// What should not have been; nothing, if the server does what it promises.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.wrong.clone();
        if self.lost > 0 {
            let why = self.first_loss.as_deref().unwrap_or_default();
            faults.push(format!("{} clients were disconnected; the first: {why}", self.lost));
        }
        let ([first, between @ .., last], false) = (&self.phases[..], self.phases.len() < 3) else {
            return faults;
        };
        let most = first.server_bytes_max as f64 * (1.0 + GROWTH_SHARE_MAX) + GROWTH_BYTES;
        for phase in self.phases.iter().filter(|phase| phase.server_bytes_max as f64 > most) {
            faults.push(format!(
                "the server's memory grew from {:.1} to {:.1} MB at {} ×",
                first.server_bytes_max as f64 / 1e6,
                phase.server_bytes_max as f64 / 1e6,
                phase.multiple
            ));
        }
        // At twice the capacity a machine that was busy when that was looked for may keep up.
        let far = between.iter().filter(|phase| phase.multiple >= FAR);
        for phase in far.filter(|phase| phase.skipped_share <= 0.0) {
            faults.push(format!("no version was skipped at {} ×", phase.multiple));
        }
        // Between two versions it grows by the time between them, and where in it a look falls is chance.
        let most_ms = first.age_p50_ms * RECOVERED + 1e3 / last.offered_hz;
        if last.age_p50_ms > most_ms {
            faults.push(format!(
                "the age is {:.0} ms in the end, and was {:.0}",
                last.age_p50_ms, first.age_p50_ms
            ));
        }
        faults
    }
}

/// What a server takes, looked at from a thread of its own.
struct Watch {
    over: Arc<AtomicBool>,
    newest: Arc<std::sync::Mutex<Taken>>,
    thread: JoinHandle<()>,
}

#[derive(Clone, Copy, Default)]
struct Taken {
    share: f64,
    server_bytes: u64,
    kernel_bytes: u64,
}

impl Watch {
    fn start(pid: u32, every: Duration) -> Result<Self, Error> {
        let cpu = CpuClock::of_process(pid).map_err(Error::io("the CPU clock of the server"))?;
        let over = Arc::new(AtomicBool::new(false));
        let newest = Arc::new(std::sync::Mutex::new(Taken::default()));
        let (is_over, tell) = (Arc::clone(&over), Arc::clone(&newest));
        let mut look = Look { cpu, pid, nth: 0, memfd_bytes: 0, before: None };
        // Once here, so that the first sample has something to say.
        if let Ok(mut newest) = tell.lock() {
            *newest = look.take();
        }
        let thread = thread::spawn(move || {
            while !is_over.load(Ordering::Acquire) {
                thread::sleep(every);
                let taken = look.take();
                if let Ok(mut newest) = tell.lock() {
                    *newest = taken;
                }
            }
        });
        Ok(Self { over, newest, thread })
    }

    fn newest(&self) -> Taken {
        self.newest.lock().map(|newest| *newest).unwrap_or_default()
    }

    fn stop(self) {
        self.over.store(true, Ordering::Release);
        let _ = self.thread.join();
    }
}

struct Look {
    cpu: CpuClock,
    pid: u32,
    nth: u32,
    memfd_bytes: u64,
    before: Option<(Instant, Duration)>,
}

impl Look {
    /// A server that is gone takes nothing, and shows in what is lost.
    fn take(&mut self) -> Taken {
        if self.nth.is_multiple_of(LOOKS_PER_MEMFDS) {
            self.memfd_bytes = memfd_bytes(self.pid).unwrap_or(0);
        }
        self.nth += 1;
        let now = (Instant::now(), self.cpu.read().unwrap_or_default());
        let share = self.before.map_or(0.0, |before| {
            now.1.saturating_sub(before.1).as_secs_f64() / now.0.duration_since(before.0).as_secs_f64()
        });
        self.before = Some(now);
        let own = ProcessMemory::of_process(self.pid).map_or(0, |memory| memory.pss_bytes);
        Taken {
            share,
            server_bytes: own + self.memfd_bytes,
            kernel_bytes: KernelSockets::now().map_or(0, |kernel| kernel.memory_bytes),
        }
    }
}

#[cfg(test)]
mod tests;
