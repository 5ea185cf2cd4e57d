//! Settings, time and answers for nodes under test.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_cluster::Options;
use stentor_cluster::engine::{Answer, Channel, Engine, EngineError, Request};
use stentor_ports::{
    CommandError, Done, FeedSource, IdentityFilter, Ledger, RevocationList, RevocationsFull, Revoked,
};
use tokio::sync::oneshot;

/// Long enough for all tasks to run once the clock is stopped.
pub(crate) const MOMENT: Duration = Duration::from_millis(1);

/// A node without relays, history and revocations, and with plenty of memory.
pub(crate) fn options() -> Options {
    Options {
        name: "node".into(),
        advertise: None,
        relays: None,
        unready_after: None,
        secret: None,
        version: "1".into(),
        history: Vec::new(),
        vacant_rooms_max: 10_000,
        decision_timeout: Duration::from_secs(5),
        feed_source: Arc::new(|_| FeedSource::Fetched),
        feed_idle_ttl: Duration::ZERO,
        feed_keys_max: 10_000,
        revocations: None,
        document_bytes_max: 1_000,
        ledger: Arc::new(Ledger::new(1 << 30)),
    }
}

/// Lets all tasks run, and advances the paused clock by `time`.
pub(crate) async fn pass(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

/// Makes a call, and returns its answer.
pub(crate) async fn answer_to<T: Send + 'static>(call: impl FnOnce(Done<T>)) -> Result<T, CommandError> {
    let (sender, answer) = oneshot::channel();
    call(Done::new(|result| drop(sender.send(result))));
    answer.await.unwrap()
}

/// An engine whose requests pass through a function.
pub(crate) struct Intercepted<E, F> {
    pub(crate) engine: E,
    pub(crate) request: F,
    /// Maximum time that messages are on their way, as the engine reports it.
    pub(crate) delay_max: Arc<Mutex<Duration>>,
}

impl<E: Engine, F: Fn(&E, Request) -> Answer + Send + Sync> Engine for Intercepted<E, F> {
    fn publish(&self, channel: Channel, payload: Bytes) -> Result<(), EngineError> {
        self.engine.publish(channel, payload)
    }

    fn delay_max(&self) -> Duration {
        *self.delay_max.lock().unwrap()
    }

    fn set_interest(&self, channel: Channel, is_interested: bool) -> bool {
        self.engine.set_interest(channel, is_interested)
    }

    fn request(&self, request: Request) -> Answer {
        (self.request)(&self.engine, request)
    }
}

/// A list of revoked users.
#[derive(Debug)]
pub(crate) struct Users {
    list: Mutex<BTreeMap<Arc<str>, Revoked>>,
    entries_max: usize,
    /// The entry to add as soon as the digest has been read.
    late: Mutex<Option<Revoked>>,
}

impl Users {
    pub(crate) fn new(entries_max: usize) -> Self {
        Self { list: Mutex::default(), entries_max, late: Mutex::default() }
    }

    /// Adds an entry as soon as the digest has been read.
    pub(crate) fn add_after_digest(&self, entry: Revoked) {
        *self.late.lock().unwrap() = Some(entry);
    }

    /// Removes an entry, as a list does when no token of the user can be valid any more.
    pub(crate) fn expire(&self, name: &str) {
        self.list.lock().unwrap().remove(name);
    }

    /// Names of the revoked users.
    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        self.list.lock().unwrap().keys().cloned().collect()
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.list.lock().unwrap().len()
    }
}

impl RevocationList for Users {
    fn digest(&self) -> u64 {
        let mut list = self.list.lock().unwrap();
        let number = |name: &Arc<str>| {
            name.bytes().fold(0_u64, |n, byte| n.wrapping_mul(31).wrapping_add(byte.into()))
        };
        let digest = list.keys().map(number).fold(list.len() as u64, u64::wrapping_add);
        let late = self.late.lock().unwrap().take();
        list.extend(late.map(|entry| (entry.filter.subject.clone().unwrap(), entry)));
        digest
    }

    fn entries(&self, after: Option<&IdentityFilter>, count: usize) -> Vec<Revoked> {
        let after = after.and_then(|filter| filter.subject.clone());
        let list = self.list.lock().unwrap();
        let follows = |(name, _): &(&Arc<str>, &Revoked)| after.as_ref().is_none_or(|after| *name > after);
        list.iter().filter(follows).take(count).map(|(_, entry)| entry.clone()).collect()
    }

    fn merge(&self, entries: Vec<Revoked>) -> Result<bool, RevocationsFull> {
        let mut list = self.list.lock().unwrap();
        let before = list.len();
        for entry in entries {
            let name = entry.filter.subject.clone().unwrap();
            if list.len() == self.entries_max && !list.contains_key(&name) {
                return Err(RevocationsFull);
            }
            list.entry(name).or_insert(entry);
        }
        Ok(list.len() > before)
    }
}

pub(crate) fn user(name: &str) -> Revoked {
    let filter = IdentityFilter { subject: Some(name.into()), ..IdentityFilter::default() };
    Revoked { filter, until: 7 }
}
