//! Canaries: well-behaved clients of every protocol, which must receive every publication, in order and soon.
//!
//! A publisher sends numbered publications through the admin API, at a fixed pace: one to a room, one to a
//! feed that is pushed. If the publisher falls behind, the delay counts as latency (no coordinated omission).
//! Each canary searches the received bytes for these numbers. A long poll of a feed may skip versions, but
//! never go back or miss the newest one.

mod clients;
mod publisher;

use crate::server::Server;
use anyhow::ensure;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time from one publication to the next.
const PACE: Duration = Duration::from_millis(25);
/// Maximum time until all canaries have received their first publication, and later the newest one.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between two checks of a condition.
const LOOK: Duration = Duration::from_millis(10);

/// The room and the feed of the canaries.
const ROOM: &str = "canary-room-5f1c";
const FEED: &str = "canary/5f1c";

/// The record of one canary.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) name: &'static str,
    /// `true` if versions may be skipped.
    conflates: bool,
    newest: Option<u64>,
    /// Number of publications that hadn't arrived when a later one did.
    pub(crate) missed: u64,
    /// Number of publications that arrived twice, or after a later one.
    pub(crate) misplaced: u64,
    /// Time from the due time of each publication until its arrival.
    pub(crate) latencies: Vec<Duration>,
    /// The reason why the canary is no longer served.
    pub(crate) ended: Option<String>,
}

impl Record {
    /// Records the arrival of publication `number`.
    fn note(&mut self, number: u64, latency: Option<Duration>) {
        match self.newest {
            // A feed has a newest version from the start, and a poll may return the same version again.
            Some(newest) if number == newest && self.conflates => return,
            Some(newest) if number <= newest => self.misplaced += 1,
            Some(newest) if !self.conflates => self.missed += number - newest - 1,
            _ => {}
        }
        self.newest = Some(self.newest.map_or(number, |newest| newest.max(number)));
        self.latencies.extend(latency);
    }

    /// Describes the canary's faults, if any.
    pub(crate) fn fault(&self) -> Option<String> {
        let name = self.name;
        if let Some(why) = &self.ended {
            let longest = self.latency(1.0).as_millis();
            return Some(format!("{name}: {why} (until then publications took at most {longest} ms)"));
        }
        let (missed, misplaced) = (self.missed, self.misplaced);
        (missed + misplaced > 0)
            .then(|| format!("{name}: {missed} publications missed, {misplaced} out of order"))
    }

    /// Returns a quantile of the latencies, from 0 to 1.
    pub(crate) fn latency(&self, quantile: f64) -> Duration {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index of a list")]
        let index = (sorted.len() as f64 * quantile) as usize;
        sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

/// Shared between the canaries' thread and the checks.
struct Board {
    listen: SocketAddr,
    admin: SocketAddr,
    records: Mutex<Vec<Record>>,
    /// The due time of each publication, by number.
    due: Mutex<Vec<Instant>>,
    /// Number of accepted publications.
    published: Mutex<u64>,
    /// Number of failed attempts to publish.
    retries: Mutex<u64>,
    probes: Mutex<Vec<Probe>>,
    stop: AtomicBool,
}

/// A request to `/healthz` on a new connection.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) is_admin: bool,
    pub(crate) took: Duration,
    pub(crate) answered: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    /// Records the publications in bytes that a canary received.
    fn see(&self, canary: usize, text: &[u8]) {
        for number in numbers(text) {
            let due = usize::try_from(number).ok().and_then(|number| lock(&self.due).get(number).copied());
            let latency = due.map(|due| due.elapsed());
            lock(&self.records)[canary].note(number, latency);
        }
    }
}

/// Returns the text of publication `number`. No encoding escapes its characters, so a search always finds it.
fn mark(number: u64) -> String {
    format!("canary={number};")
}

/// Iterates over the numbers of the publications in a text.
fn numbers(text: &[u8]) -> impl Iterator<Item = u64> {
    const NAME: &[u8] = b"canary=";
    memchr::memmem::find_iter(text, NAME).filter_map(|at| {
        let rest = &text[at + NAME.len()..];
        let digits = &rest[..rest.iter().position(|byte| *byte == b';')?];
        std::str::from_utf8(digits).ok()?.parse().ok()
    })
}

/// Running canaries.
pub(crate) struct Canaries {
    board: Arc<Board>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Canaries {
    fn drop(&mut self) {
        self.board.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been printed.
            let _ = thread.join();
        }
    }
}

impl Canaries {
    /// Starts one canary of each protocol, all on one new thread. Returns when all have received a
    /// publication.
    pub(crate) fn start(server: &Server) -> anyhow::Result<Self> {
        let record = |(name, conflates): &(&'static str, bool)| Record {
            name,
            conflates: *conflates,
            ..Record::default()
        };
        let board = Arc::new(Board {
            listen: server.listen,
            admin: server.admin,
            records: Mutex::new(clients::ALL.iter().map(record).collect()),
            due: Mutex::default(),
            published: Mutex::default(),
            retries: Mutex::default(),
            probes: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let theirs = board.clone();
        let thread = std::thread::spawn(move || {
            runtime.block_on(tokio::task::LocalSet::new().run_until(live(theirs)));
        });
        let canaries = Self { board, thread: Some(thread) };
        canaries.until("get no publication", |record| record.newest.is_some())?;
        Ok(canaries)
    }

    /// Waits until a condition holds for all canaries that haven't ended.
    fn until(&self, otherwise: &str, holds: impl Fn(&Record) -> bool) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let missing: Vec<String> = {
                let records = lock(&self.board.records);
                let waits = |record: &&Record| record.ended.is_none() && !holds(record);
                records.iter().filter(waits).map(|record| record.name.to_owned()).collect()
            };
            if missing.is_empty() {
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "after {PATIENCE:?} {otherwise}: {}", missing.join(", "));
            std::thread::sleep(LOOK);
        }
    }

    /// Clears the latencies and probes, to begin a measurement.
    pub(crate) fn reset(&self) {
        lock(&self.board.records).iter_mut().for_each(|record| record.latencies.clear());
        lock(&self.board.probes).clear();
    }

    /// Waits until every canary that hasn't ended has received the current newest publication.
    pub(crate) fn catch_up(&self) -> anyhow::Result<()> {
        let newest = lock(&self.board.published).saturating_sub(1);
        self.until("don't get the newest publication", |record| record.newest >= Some(newest))
    }

    /// Returns the current record of each canary.
    pub(crate) fn records(&self) -> Vec<Record> {
        lock(&self.board.records).clone()
    }

    /// Returns the requests to `/healthz` since the last reset.
    pub(crate) fn probes(&self) -> Vec<Probe> {
        lock(&self.board.probes).clone()
    }

    /// Returns the number of attempts to publish that the server refused.
    pub(crate) fn publish_retries(&self) -> u64 {
        *lock(&self.board.retries)
    }
}

/// Runs the publisher, the probes and all canaries until [`Board::stop`] is set.
async fn live(board: Arc<Board>) {
    tokio::task::spawn_local(publisher::publish(board.clone()));
    for is_admin in [false, true] {
        tokio::task::spawn_local(publisher::probe(board.clone(), is_admin));
    }
    for number in 0..clients::ALL.len() {
        let board = board.clone();
        tokio::task::spawn_local(async move {
            if let Err(error) = clients::live(&board, number).await {
                lock(&board.records)[number].ended = Some(format!("{error:#}"));
            }
        });
    }
    while !board.stop.load(Relaxed) {
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publications_are_found_in_any_encoding() {
        let check = |text: &str, expect: &[u64]| {
            assert_eq!(numbers(text.as_bytes()).collect::<Vec<_>>(), expect, "{text}");
        };
        check(&mark(7), &[7]);
        check(r#"a["{\"data\":\"canary=12;\"}","x canary=13;"]"#, &[12, 13]);
        check("canary=12", &[]);
        check("canary=;canary=x;", &[]);
    }

    #[test]
    fn order_and_losses() {
        let check = |conflates, numbers: &[u64], expect: (u64, u64)| {
            let mut record = Record { conflates, ..Record::default() };
            numbers.iter().for_each(|number| record.note(*number, None));
            assert_eq!((record.missed, record.misplaced), expect, "{numbers:?}");
        };
        check(false, &[5, 6, 7], (0, 0));
        check(false, &[5, 7, 8], (1, 0));
        check(false, &[5, 5], (0, 1));
        check(false, &[5, 7, 6], (1, 1));
        check(true, &[5, 5, 9], (0, 0));
        check(true, &[5, 4], (0, 1));
    }

    #[test]
    fn quantiles() {
        let latencies: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        let record = Record { latencies, ..Record::default() };
        assert_eq!(record.latency(0.99), Duration::from_millis(100));
        assert_eq!(record.latency(0.5), Duration::from_millis(51));
        assert_eq!(Record::default().latency(0.99), Duration::ZERO);
    }
}
