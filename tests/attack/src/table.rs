//! Runs the attacks one by one, each against a fresh server with canaries, and prints the measurements and the
//! targets.

use crate::attacks::{Also, Attack, Others, Place};
use crate::canary::{Canaries, Record};
use crate::http::WebSocket;
use crate::measure::{Meter, Seen};
use crate::redis::Redis;
use crate::script::{self, Addresses, Totals};
use crate::server::{Launch, Server, configuration};
use crate::{checks, cluster, doors, layers, strange};
use anyhow::bail;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// `limits.memory_bytes_max` of every server that is attacked.
pub(crate) const BUDGET_BYTES: u64 = 64 << 20;
/// The bound of resident set and memfds together.
pub(crate) const BOUND_BYTES: u64 = BUDGET_BYTES / 4 * 5 + (32 << 20);
/// Maximum growth of memory between the start and the end of an attack.
pub(crate) const REMAINS_BYTES_MAX: u64 = 16 << 20;
/// Maximum time until memory returns after an attack.
pub(crate) const RETURN_TIME_MAX: Duration = Duration::from_secs(20);
/// `heartbeat.timeout`: a polled session without polls ends within the time in which memory must return.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);
/// Additional time for which the program waits for memory to return.
const RETURN_PATIENCE: Duration = Duration::from_secs(25);
/// Maximum response time of ports and feeds under [`Also::Health`].
const HEALTH_TIME_MAX: Duration = Duration::from_millis(100);
/// Maximum uninterrupted time above the bound under [`Also::TimeAboveBound`].
const ABOVE_BOUND_TIME_MAX: Duration = Duration::from_secs(2);
/// Time for which the server serves its canaries before the memory at the start is measured.
const CALM_TIME: Duration = Duration::from_secs(1);

/// The measurements of one attack.
pub(crate) struct Outcome {
    name: &'static str,
    driver: String,
    totals: Totals,
    start_bytes: u64,
    seen: Seen,
    /// The time until memory returned after the attack.
    back: Option<Duration>,
    latency: Duration,
    slowest: &'static str,
    missed: u64,
    /// The additional measurement, in words.
    also: String,
    /// Missed targets.
    pub(crate) faults: Vec<String>,
}

/// Runs one attack.
pub(crate) fn run(
    binary: &Path,
    driver: &str,
    attack: &Attack,
    (upstream, backend): (SocketAddr, SocketAddr),
    duration: Duration,
) -> anyhow::Result<Outcome> {
    let mut more = (attack.more)(backend)?;
    let (mut addresses, mut files, mut _redis) = (None, Vec::new(), None);
    match attack.place {
        Place::Alone => {}
        Place::Tls => {
            let (certificate, theirs) = layers::certificate_with_rsa()?;
            let own = layers::addresses(certificate)?;
            more += &layers::configuration(&own);
            (addresses, files) = (Some(own), theirs);
        }
        Place::Cluster => {
            let mut own = Addresses::plain(layers::own(8000), layers::own(8001));
            own.redis = layers::own(6379);
            _redis = Some(Redis::start(own.redis)?);
            more += &cluster::beside_a_bridge(strange::start(own.redis)?, layers::own(8003));
            addresses = Some(own);
        }
    }
    let mut server = Server::start(&Launch {
        binary: binary.to_owned(),
        driver: driver.to_owned(),
        configuration: configuration(BUDGET_BYTES, upstream, HEARTBEAT_TIMEOUT, attack.rooms, &more),
        files,
        addresses,
        descriptors_max: attack.descriptors_max,
    })?;
    let canaries = Canaries::start(&server)?;
    let meter = Meter::start(&server, BOUND_BYTES)?;
    std::thread::sleep(CALM_TIME);
    let start_bytes = meter.held_bytes();
    canaries.reset();
    meter.reset();
    let others = match attack.also {
        Also::Others(others) => Some(Sessions::start(server.listen, others)),
        _ => None,
    };
    let totals = script::run(server.addresses, (attack.scripts)(attack.clients), duration)?;
    let waited = others.map(Sessions::finish).unwrap_or_default();
    let (seen, probes) = (meter.seen(), canaries.probes());
    let mut faults = Vec::new();
    if let Err(error) = canaries.catch_up() {
        faults.push(format!("canaries {error:#}"));
    }
    // Publications sent during the attack count, even if they arrive later. Publications sent later don't.
    let records_then = canaries.records();
    let back = meter.until_below(start_bytes + REMAINS_BYTES_MAX, attack.back_max + RETURN_PATIENCE);
    let records = canaries.records();
    faults.extend(records.iter().filter_map(Record::fault));
    faults.extend(server.fault());
    let slowest = records_then.iter().max_by_key(|record| record.latency(0.99));
    let latency = slowest.map(|record| record.latency(0.99)).unwrap_or_default();
    if latency > attack.latency_max {
        faults.push(format!("canaries' p99 is above {} ms", attack.latency_max.as_millis()));
    }
    if seen.held_bytes_max > BOUND_BYTES {
        faults.push(format!("more than {} MB held", mb(BOUND_BYTES)));
    }
    if back.is_none_or(|time| time > attack.back_max) {
        let (held, ledger) = (mb(meter.held_bytes()), mb(meter.ledger_bytes()));
        let after = attack.back_max.as_secs();
        faults.push(format!("memory isn't back after {after} s (at last {held} MB, ledger {ledger} MB)"));
    }
    let mut also = format!("{} publish retries", canaries.publish_retries());
    match attack.also {
        Also::Nothing => {}
        Also::Others(Others { what, wait_max, .. }) => {
            let served: Vec<_> = waited.iter().flatten().collect();
            let longest = served.iter().max().map_or(Duration::ZERO, |time| **time);
            let refused = waited.len() - served.len();
            also = format!("{} {what}, {refused} refused, at most {}", waited.len(), words(longest));
            if waited.is_empty() || refused > 0 {
                faults.push(format!("{refused} of {} {what} are refused", waited.len()));
            }
            if longest > wait_max {
                faults.push(format!("{what} wait longer than {}", words(wait_max)));
            }
        }
        Also::Health => {
            let longest = |is_admin| {
                let of_port = probes.iter().filter(|probe| probe.is_admin == is_admin);
                of_port.map(|probe| if probe.answered { probe.took } else { Duration::MAX }).max()
            };
            let longest = [false, true].map(|is_admin| longest(is_admin).unwrap_or(Duration::MAX));
            let [public, admin] = longest.map(words);
            also = format!("/healthz {public}, admin {admin}");
            if longest.iter().any(|longest| *longest > HEALTH_TIME_MAX) {
                faults.push(format!("/healthz takes longer than {} ms", HEALTH_TIME_MAX.as_millis()));
            }
        }
        Also::Ledger => {
            let off = seen.ledger_off_bytes_max;
            also = format!("the ledger is off by {} MB more than it may", mb(off));
            if off > 0 {
                let (held, ledger) = seen.off_at;
                faults.push(format!("the ledger has {} MB where {} MB are held", mb(ledger), mb(held)));
            }
        }
        Also::Turns => {
            let long = seen.turns - seen.short_turns;
            also = format!("{long} of {} turns above 5 ms", seen.turns);
            if long > seen.turns / 1000 {
                faults.push("more than 0.1 % of the turns take longer than 5 ms".to_owned());
            }
        }
        Also::Log(text) => {
            let is_there = server.has_logged(text);
            also = format!("{} the log", if is_there { "in" } else { "not in" });
            if !is_there {
                faults.push(format!("the log doesn't say \"{text}\""));
            }
        }
        Also::TimeAboveBound => {
            also = format!("above the bound for {:.1} s", seen.above_bound_max.as_secs_f64());
            if seen.above_bound_max > ABOVE_BOUND_TIME_MAX {
                faults.push(format!("above the bound for more than {} s", ABOVE_BOUND_TIME_MAX.as_secs()));
            }
        }
    }
    Ok(Outcome {
        name: attack.name,
        driver: driver.to_owned(),
        totals,
        start_bytes,
        seen,
        back,
        latency,
        slowest: slowest.map_or("", |record| record.name),
        missed: records.iter().map(|record| record.missed + u64::from(record.ended.is_some())).sum(),
        also,
        faults,
    })
}

fn words(time: Duration) -> String {
    if time == Duration::MAX { "not answered".to_owned() } else { format!("{} ms", time.as_millis()) }
}

fn mb(bytes: u64) -> u64 {
    bytes / 1_000_000
}

/// Returns the table's first lines.
pub(crate) fn header() -> String {
    format!(
        "Bounds: {} MB held, back within {} MB of the start after {} s.\n\n\
         | attack | driver | sent | held at the start | held, most | ledger, most | back after | canaries' p99 | lost | also | holds |\n\
         |---|---|---|---|---|---|---|---|---|---|---|",
        mb(BOUND_BYTES),
        mb(REMAINS_BYTES_MAX),
        RETURN_TIME_MAX.as_secs()
    )
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let back =
            self.back.map_or_else(|| "never".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()));
        let holds = if self.faults.is_empty() { "yes".to_owned() } else { self.faults.join("; ") };
        write!(
            f,
            "| {} | {} | {} kB on {} | {} MB | {} MB | {} MB | {back} | {} ms ({}) | {} | {} | {holds} |",
            self.name,
            self.driver,
            self.totals.sent_bytes / 1000,
            self.totals.connections,
            mb(self.start_bytes),
            mb(self.seen.held_bytes_max),
            mb(self.seen.ledger_bytes_max),
            self.latency.as_millis(),
            self.slowest,
            self.missed,
            self.also,
        )
    }
}

/// Runs the checks of answers and prints a line for each. Returns `true` if all pass.
pub(crate) fn check_answers(
    binary: &Path,
    driver: &str,
    (upstream, backend): (SocketAddr, SocketAddr),
) -> anyhow::Result<bool> {
    let server = Server::start(&Launch {
        binary: binary.to_owned(),
        driver: driver.to_owned(),
        configuration: configuration(
            BUDGET_BYTES,
            upstream,
            HEARTBEAT_TIMEOUT,
            doors::ROOMS,
            &format!("{}{}", checks::LIMITS, doors::configuration(backend)),
        ),
        files: Vec::new(),
        addresses: None,
        descriptors_max: None,
    })?;
    let mut all_hold = true;
    for (name, result) in checks::run(&server)? {
        let holds = result.is_ok();
        all_hold &= holds;
        let words = result.err().map_or_else(|| "yes".to_owned(), |error| format!("{error:#}"));
        crate::say(&format!("{name} ({driver}): {words}"));
    }
    Ok(all_hold)
}

/// [`Others`], on a thread of their own.
struct Sessions {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<Option<Duration>>>,
}

/// Time between two sessions.
const PACE: Duration = Duration::from_millis(250);
/// Maximum waiting time of a session. A later answer counts as a refusal.
const WAIT_TIME_MAX: Duration = Duration::from_secs(30);

impl Sessions {
    fn start(listen: SocketAddr, others: Others) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let theirs = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut waited = Vec::new();
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
                return waited;
            };
            // The attackers start first.
            std::thread::sleep(PACE * 2);
            while !theirs.load(Relaxed) {
                let number = waited.len();
                let time = runtime.block_on(async {
                    let wait = tokio::time::timeout(WAIT_TIME_MAX, session(listen, others, number)).await;
                    wait.ok().and_then(Result::ok)
                });
                waited.push(time);
                std::thread::sleep(PACE);
            }
            waited
        });
        Self { stop, thread }
    }

    /// Stops the sessions. Returns the waiting time of each; `None` for a refused session.
    fn finish(self) -> Vec<Option<Duration>> {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// Opens a session. Returns the time until its answer.
async fn session(listen: SocketAddr, others: Others, number: usize) -> anyhow::Result<Duration> {
    let mut ws = WebSocket::open_from(others.from, listen, "/ws").await?;
    let begun = Instant::now();
    ws.send(&others.message.replace("{number}", &number.to_string())).await?;
    loop {
        let message = ws.next().await?;
        if message.contains(others.answer) {
            return Ok(begun.elapsed());
        }
        if message.contains(r#""type":"error""#) {
            bail!("refused: {message}");
        }
    }
}
