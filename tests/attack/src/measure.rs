//! Measures the server's memory during an attack on a separate thread, with the kernel's figures and the
//! server's gauges.

use crate::http::Http;
use crate::process::{anonymous_bytes, memfd_bytes, resident_bytes};
use crate::server::Server;
use crate::wire;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval between two reads of the resident set.
const RESIDENT_PACE: Duration = Duration::from_millis(50);
/// Interval between two scans of all file descriptors, of which there may be ten thousand.
const MEMFD_PACE: Duration = Duration::from_secs(1);
/// Time between two scrapes of `/metrics`.
const SCRAPE_PACE: Duration = Duration::from_millis(500);
/// Maximum time of a scrape.
const SCRAPE_TIME_MAX: Duration = Duration::from_secs(5);

/// The gauge of memory that the ledger has charged, with one sample per class.
pub(crate) const LEDGER: &str = "stentor_memory_bytes";

/// The histogram of turns.
const TURNS: &str = "stentor_turn_cpu_seconds_count";
const TURN_BUCKETS: &str = "stentor_turn_cpu_seconds_bucket";
/// The label of turns of at most 5 ms.
const SHORT_TURN: &str = "le=\"0.005\"";

/// Returns the maximum difference between the ledger and the held memory: 20 % and 16 MB.
fn tolerance_bytes(held: u64) -> u64 {
    held / 5 + 16_000_000
}

/// The maxima since the last [`Meter::reset`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Maximum of resident set and memfds together.
    pub(crate) held_bytes_max: u64,
    /// Maximum sum of the ledger's classes. 0 if the server has no such gauge.
    pub(crate) ledger_bytes_max: u64,
    /// Maximum difference between the ledger and the held memory, beyond [`tolerance_bytes`].
    pub(crate) ledger_off_bytes_max: u64,
    /// Held and charged bytes at the time of `ledger_off_bytes_max`.
    pub(crate) off_at: (u64, u64),
    /// Number of turns, and number of turns that took at most 5 ms of CPU time.
    pub(crate) turns: u64,
    pub(crate) short_turns: u64,
    /// Maximum number of publications that waited between cores.
    pub(crate) mailbox_overflow_max: u64,
    /// Longest uninterrupted time above the bound.
    pub(crate) above_bound_max: Duration,
    above_bound_since: Option<Instant>,
}

impl Seen {
    fn note_held(&mut self, held_bytes: u64, bound_bytes: u64) {
        self.held_bytes_max = self.held_bytes_max.max(held_bytes);
        if held_bytes > bound_bytes {
            let since = *self.above_bound_since.get_or_insert_with(Instant::now);
            self.above_bound_max = self.above_bound_max.max(since.elapsed());
        } else {
            self.above_bound_since = None;
        }
    }
}

struct Shared {
    pid: AtomicU32,
    admin: SocketAddr,
    /// The bound of resident set and memfds together.
    bound_bytes: u64,
    memfd_bytes: Mutex<u64>,
    held_bytes: Mutex<u64>,
    ledger_bytes: Mutex<u64>,
    seen: Mutex<Seen>,
    stop: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running measurement.
pub(crate) struct Meter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Meter {
    pub(crate) fn start(server: &Server, bound_bytes: u64) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            pid: server.pid().into(),
            admin: server.admin,
            bound_bytes,
            memfd_bytes: Mutex::default(),
            held_bytes: Mutex::default(),
            ledger_bytes: Mutex::default(),
            seen: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let theirs = shared.clone();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::join!(watch_resident(&theirs), watch_memfds(&theirs), watch_gauges(&theirs));
            });
        });
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Switches to the server's new process.
    pub(crate) fn follow(&self, server: &Server) {
        self.shared.pid.store(server.pid(), Relaxed);
    }

    /// Returns the size of resident set and memfds now.
    pub(crate) fn held_bytes(&self) -> u64 {
        *lock(&self.shared.held_bytes)
    }

    /// Returns the bytes that the ledger had charged at the last scrape.
    pub(crate) fn ledger_bytes(&self) -> u64 {
        *lock(&self.shared.ledger_bytes)
    }

    pub(crate) fn seen(&self) -> Seen {
        *lock(&self.shared.seen)
    }

    /// Clears the maxima, to begin a measurement.
    pub(crate) fn reset(&self) {
        *lock(&self.shared.seen) = Seen::default();
    }

    /// Waits until the server holds at most `bytes`. Returns the waiting time; `None` after `patience`.
    pub(crate) fn until_below(&self, bytes: u64, patience: Duration) -> Option<Duration> {
        let begun = Instant::now();
        while begun.elapsed() < patience {
            if (1..=bytes).contains(&self.held_bytes()) {
                return Some(begun.elapsed());
            }
            std::thread::sleep(RESIDENT_PACE);
        }
        None
    }
}

impl Shared {
    fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Returns the held memory without pages of files (mainly the program), which the ledger doesn't charge.
    fn private_bytes(&self) -> u64 {
        anonymous_bytes(self.pid.load(Relaxed)).unwrap_or(0) + *lock(&self.memfd_bytes)
    }
}

async fn watch_resident(shared: &Shared) {
    while !shared.is_stopped() {
        let held = resident_bytes(shared.pid.load(Relaxed)).unwrap_or(0) + *lock(&shared.memfd_bytes);
        *lock(&shared.held_bytes) = held;
        lock(&shared.seen).note_held(held, shared.bound_bytes);
        tokio::time::sleep(RESIDENT_PACE).await;
    }
}

async fn watch_memfds(shared: &Shared) {
    let mut due = Instant::now();
    while !shared.is_stopped() {
        if due.elapsed() >= MEMFD_PACE {
            due = Instant::now();
            let bytes = memfd_bytes(shared.pid.load(Relaxed));
            *lock(&shared.memfd_bytes) = bytes;
        }
        tokio::time::sleep(RESIDENT_PACE).await;
    }
}

async fn watch_gauges(shared: &Shared) {
    let mut connection = None;
    while !shared.is_stopped() {
        let before = shared.private_bytes();
        match scrape(shared.admin, &mut connection).await {
            Some(metrics) => {
                let after = shared.private_bytes();
                let seen = &mut *lock(&shared.seen);
                let ledger = sum(&metrics, LEDGER);
                *lock(&shared.ledger_bytes) = ledger;
                seen.ledger_bytes_max = seen.ledger_bytes_max.max(ledger);
                // The ledger was read at some time between the two measurements.
                let held = ledger.clamp(before.min(after), before.max(after));
                let off = held.abs_diff(ledger).saturating_sub(tolerance_bytes(held));
                if off > seen.ledger_off_bytes_max {
                    seen.ledger_off_bytes_max = off;
                    seen.off_at = (held, ledger);
                }
                seen.turns = sum(&metrics, TURNS);
                let short = |line: &&str| line.contains(SHORT_TURN);
                seen.short_turns = sum_where(&metrics, TURN_BUCKETS, short);
                let overflow = sum(&metrics, "stentor_mailbox_overflow_messages");
                seen.mailbox_overflow_max = seen.mailbox_overflow_max.max(overflow);
            }
            None => connection = None,
        }
        tokio::time::sleep(SCRAPE_PACE).await;
    }
}

async fn scrape(admin: SocketAddr, connection: &mut Option<Http>) -> Option<String> {
    let exchange = async {
        let http = match connection {
            Some(http) => http,
            none => none.insert(Http::connect(admin).await?),
        };
        let (_, body) = http.ask(&wire::get("/metrics")).await?;
        anyhow::Ok(String::from_utf8_lossy(&body).into_owned())
    };
    tokio::time::timeout(SCRAPE_TIME_MAX, exchange).await.ok()?.ok()
}

/// Returns the sum of a metric over all its samples.
fn sum(metrics: &str, name: &str) -> u64 {
    sum_where(metrics, name, |_| true)
}

/// Returns the sum of a metric over the samples for which `is_meant` returns `true`.
fn sum_where(metrics: &str, name: &str, is_meant: impl Fn(&&str) -> bool) -> u64 {
    let samples = metrics.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
    let samples = samples.filter(is_meant);
    samples.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_over_labels() {
        let metrics = "# TYPE a gauge\na{core=\"0\"} 3\na{core=\"1\"} 4\nab 9\nb 5\n";
        assert_eq!((sum(metrics, "a"), sum(metrics, "b"), sum(metrics, "c")), (7, 5, 0));
    }
}
