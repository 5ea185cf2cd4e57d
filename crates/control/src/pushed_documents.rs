//! Documents that backends push into feeds.
//!
//! A push to a key of an upstream is refused, so that each document has one source: it is either fetched or
//! pushed. A pushed document stays until it is deleted, evicted, or the process ends. Documents without
//! subscribers are evicted, least recently used first, when their space is needed. A document with
//! subscribers is never evicted. A push is refused if no space is left. If the configuration declares a key
//! as pushed ([`FeedsOptions::pushed`]), its subscribers wait for the first document. Otherwise a key without
//! a document is reported as not found. When a key gains subscribers, its document is sent to the data plane
//! again, because the data plane may not have had space to keep it.
//!
//! In a cluster, the engine keeps the documents for all nodes ([`stentor_ports::PushedFeeds`]), and this node
//! keeps none (module [`shared`]).
//!
//! Concurrent pushes and retries may arrive in any order. A push with a sequence number is refused if a push
//! with a higher number arrived before. Entity tags and `If-Match` would do the same, but the backend would
//! have to request the tag first.
//!
//! **Invariants.** Operations on one key run in order and to completion, even if the request is cancelled:
//! each runs in a separate task and holds the lock of the key's slot. `bytes` of the table is the size of the
//! documents in its slots and of those that are about to be stored. A task that holds a slot waits only for
//! the slot of an idle key, which no other task holds.

mod shared;

use crate::current::Current;
use crate::options::FeedsOptions;
use crate::route::Routes;
use crate::signals::Signals;
use crate::upstream::{Coding, DocumentProcessor, Failure, Received, differ, is_json};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use stentor_delta::{Differ, Ignored};
use stentor_hub::{Document, FeedState, Key, KeyError, KeyRule};
use stentor_ports::{DocumentChange, FeedUpdate, Feeds};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Reason for refusing a push.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PushError {
    #[error("the key belongs to the feed {0:?}, whose documents are fetched")]
    Fetched(String),
    #[error("the maximum of pushed keys is reached, and all have subscribers (feeds_limits.pushed_keys_max)")]
    TooManyKeys,
    #[error("not enough memory for the document (feeds_limits.pushed_documents_bytes_max)")]
    NoRoom,
    #[error("sequence {given} is too old: the last one was {last}")]
    Sequence { given: u64, last: u64 },
    #[error("{0}")]
    Document(#[from] Failure),
    #[error("the server is too busy to accept documents (admin_limits.busy_timeout); try again later")]
    Busy,
    #[error("no document was pushed to this key")]
    Unknown,
    #[error("the cluster's engine doesn't answer; the document isn't stored; try again later")]
    Unavailable,
    #[error("the cluster's engine doesn't answer; whether the document is stored is unknown; push it again")]
    OutcomeUnknown,
    #[error("the server shut down before the push was finished")]
    Stopped,
}

/// A pushed document as received.
pub(crate) struct Push {
    pub(crate) content_type: String,
    pub(crate) coding: Coding,
    pub(crate) body: Vec<u8>,
    /// The space for the body, from [`PushedDocuments::room_for`].
    pub(crate) room: OwnedSemaphorePermit,
    pub(crate) sequence: Option<u64>,
}

/// Unit in which the space for received bodies is counted, in bytes.
const BODY_UNIT_BYTES: usize = 1 << 10;

/// The last document of a key.
struct StoredDocument {
    document: Arc<Document>,
    /// The highest sequence number of the key's pushes. `None` if none had a number.
    sequence: Option<u64>,
}

/// A key's document. `None` before the first push and after a deletion.
type Slot = Arc<tokio::sync::Mutex<Option<StoredDocument>>>;

/// The state of a key.
#[derive(Default)]
struct Entry {
    slot: Slot,
    /// Size of the key's document in bytes. `None` without a document.
    bytes: Option<usize>,
    wanted: bool,
    /// Number of tasks that use the key.
    tasks: usize,
    /// The last use of the key, as a number: uses of all keys are counted.
    used: u64,
    /// `true` if the configuration declares the key as pushed.
    is_declared: bool,
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.bytes.is_some() && !self.wanted && self.tasks == 0
    }
}

#[derive(Default)]
struct Table {
    entries: HashMap<Key, Entry>,
    /// Keys that may be evicted, in the order of their last use.
    idle: BTreeMap<u64, Key>,
    idle_bytes: usize,
    /// Declared keys that have subscribers and no document.
    waiting: HashSet<Key>,
    uses: u64,
    /// Size of all documents in bytes.
    bytes: usize,
    evicted: u64,
}

impl Table {
    /// Changes a key's entry, which counts as a use. Removes the entry if it then has neither a document nor
    /// a task.
    fn change(&mut self, key: &Key, change: impl FnOnce(&mut Entry)) -> Option<Slot> {
        let entry = self.entries.get_mut(key)?;
        if entry.is_idle() {
            self.idle.remove(&entry.used);
            self.idle_bytes -= entry.bytes.unwrap_or(0);
        }
        change(entry);
        self.uses += 1;
        entry.used = self.uses;
        if entry.is_idle() {
            self.idle.insert(entry.used, key.clone());
            self.idle_bytes += entry.bytes.unwrap_or(0);
        }
        let slot = entry.slot.clone();
        if entry.bytes.is_none() && entry.tasks == 0 {
            if entry.wanted && entry.is_declared {
                self.waiting.insert(key.clone());
            }
            self.entries.remove(key);
        }
        Some(slot)
    }

    /// Takes the least recently used idle key. The caller then holds the key as after
    /// [`PushedDocuments::acquire`].
    fn take_least_recently_used(&mut self) -> Option<(Key, Slot)> {
        let key = self.idle.first_key_value().map(|(_, key)| key.clone())?;
        let slot = self.change(&key, |entry| entry.tasks += 1)?;
        self.evicted += 1;
        Some((key, slot))
    }
}

/// Statistics for metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PushStats {
    pub(crate) keys: usize,
    pub(crate) bytes: usize,
    /// Size of the bodies that are being received, in bytes.
    pub(crate) bodies_bytes: usize,
    pub(crate) evicted: u64,
}

/// A pushed document in a list.
pub(crate) struct ListedDocument {
    pub(crate) key: Key,
    pub(crate) document_bytes: usize,
    /// `true` if the key has subscribers.
    pub(crate) is_subscribed: bool,
}

/// The options that a reload replaces.
struct Config {
    options: FeedsOptions,
    routes: Routes,
    keys: KeyRule,
}

impl Config {
    fn new(options: FeedsOptions) -> Self {
        let routes = Routes::with_pushed(&options.upstreams, &options.pushed);
        Self { routes, keys: options.key_rule(), options }
    }
}

/// The pushed documents.
pub(crate) struct PushedDocuments {
    config: Current<Config>,
    busy_timeout: Duration,
    data_plane: Arc<dyn Feeds>,
    signals: Arc<Signals>,
    processor: DocumentProcessor,
    differ: Arc<Differ>,
    /// Space for bodies of future documents, in [`BODY_UNIT_BYTES`].
    bodies: Arc<Semaphore>,
    bodies_max: u32,
    table: Mutex<Table>,
}

/// Protects a key from eviction while a task uses the key.
struct KeyGuard {
    pushed_documents: Arc<PushedDocuments>,
    key: Key,
    slot: Slot,
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        self.pushed_documents.table.lock().change(&self.key, |entry| entry.tasks -= 1);
    }
}

impl PushedDocuments {
    pub(crate) fn new(
        options: FeedsOptions,
        busy_timeout: Duration,
        data_plane: Arc<dyn Feeds>,
        signals: Arc<Signals>,
    ) -> Arc<Self> {
        let (processor, table) = (DocumentProcessor::default(), Mutex::default());
        let differ = differ(&[], Ignored::default());
        let all_bytes = options.pushed_documents_bytes_max.max(options.pushed_document_bytes_max);
        let bodies_max = units(all_bytes);
        let bodies = Arc::new(Semaphore::new(bodies_max as usize));
        Arc::new(Self {
            config: Current::new(Config::new(options)),
            busy_timeout,
            data_plane,
            signals,
            processor,
            differ,
            bodies,
            bodies_max,
            table,
        })
    }

    /// Applies new options. A pushed document stays until it is deleted or evicted, even if its key is now a
    /// fetched one.
    pub(crate) fn configure(&self, options: &FeedsOptions) {
        self.config.store(Config::new(options.clone()));
    }

    /// Waits for space for a body of this size. All bodies that are being received, inflated or compared
    /// share a space as large as that of all documents.
    pub(crate) async fn room_for(&self, bytes: usize) -> Result<OwnedSemaphorePermit, PushError> {
        let room = self.bodies.clone().acquire_many_owned(units(bytes).min(self.bodies_max));
        tokio::time::timeout(self.busy_timeout, room).await.ok().and_then(Result::ok).ok_or(PushError::Busy)
    }

    /// Returns the maximum size of one document in bytes.
    pub(crate) fn document_bytes_max(&self) -> usize {
        self.config.load().options.pushed_document_bytes_max
    }

    pub(crate) fn stats(&self) -> PushStats {
        let table = self.table.lock();
        let units = self.bodies_max as usize - self.bodies.available_permits();
        PushStats {
            keys: table.entries.len(),
            bytes: table.bytes,
            bodies_bytes: units * BODY_UNIT_BYTES,
            evicted: table.evicted,
        }
    }

    /// Lists the keys that have a document and contain a text, in their order. Returns at most `limit` keys, and the number of all.
    pub(crate) fn list(&self, search: &str, limit: usize) -> (Vec<ListedDocument>, usize) {
        let table = self.table.lock();
        let found = table.entries.iter().filter(|(key, _)| key.as_str().contains(search));
        let found = found.filter_map(|(key, entry)| Some((key, entry.bytes?, entry.wanted)));
        let mut found: Vec<_> = found.collect();
        let count = found.len();
        if count > limit {
            found.select_nth_unstable_by_key(limit, |(key, ..)| *key);
            found.truncate(limit);
        }
        found.sort_unstable_by_key(|(key, ..)| *key);
        let listed = found.into_iter().map(|(key, document_bytes, is_subscribed)| ListedDocument {
            key: key.clone(),
            document_bytes,
            is_subscribed,
        });
        (listed.collect(), count)
    }

    /// Stores a document. Returns `true` if it differs from the previous one.
    pub(crate) async fn put(self: &Arc<Self>, key: &Key, push: Push) -> Result<bool, PushError> {
        self.check(key)?;
        let guard = self.acquire(key).await?;
        run_to_completion(async move {
            let mut stored = guard.slot.lock().await;
            if let Some(feeds) = guard.pushed_documents.data_plane.pushed_feeds() {
                return guard.pushed_documents.replace_shared(feeds, &guard.key, push).await;
            }
            guard.pushed_documents.replace(&guard.key, &mut stored, push).await
        })
        .await
    }

    async fn replace(
        self: &Arc<Self>,
        key: &Key,
        stored: &mut Option<StoredDocument>,
        push: Push,
    ) -> Result<bool, PushError> {
        let sequence = in_sequence(stored, push.sequence)?;
        let kept = stored.as_ref().map(|stored| stored.document.clone());
        let (changed, room) = self.process(push, kept).await?;
        let Some(change) = changed else {
            if let Some(stored) = stored {
                stored.sequence = sequence;
            }
            return Ok(false);
        };
        let (new, old) = (change.document.body.len(), bytes_of(stored));
        self.make_room(old, new).await?;
        let document = change.document.clone();
        if let Err(busy) = self.deliver(key, FeedUpdate::Changed(change)).await {
            let mut table = self.table.lock();
            table.bytes = table.bytes - new + old;
            return Err(busy);
        }
        drop(room);
        *stored = Some(StoredDocument { document, sequence });
        self.table.lock().change(key, |entry| entry.bytes = Some(new));
        Ok(true)
    }

    /// Compares a document with the previous one. Also returns the space of the push's body.
    pub(super) async fn process(
        &self,
        push: Push,
        kept: Option<Arc<Document>>,
    ) -> Result<(Option<DocumentChange>, OwnedSemaphorePermit), PushError> {
        let received = Received {
            json_only: is_json(&push.content_type),
            content_type: Some(push.content_type),
            body: push.body,
            coding: push.coding,
            bytes_max: self.config.load().options.pushed_document_bytes_max,
            kept,
            differ: self.differ.clone(),
        };
        Ok((self.processor.process(received).await?, push.room))
    }

    /// Deletes a key's document. The key's subscribers receive `not_found`.
    pub(crate) async fn delete(self: &Arc<Self>, key: &Key, sequence: Option<u64>) -> Result<(), PushError> {
        self.check(key)?;
        if let Some(feeds) = self.data_plane.pushed_feeds() {
            return shared::delete(feeds, key, sequence).await;
        }
        if !self.table.lock().entries.contains_key(key) {
            return Err(PushError::Unknown);
        }
        let guard = self.acquire(key).await?;
        run_to_completion(async move {
            let mut stored = guard.slot.lock().await;
            if stored.is_none() {
                return Err(PushError::Unknown);
            }
            in_sequence(&stored, sequence)?;
            let state = FeedUpdate::State { state: FeedState::NotFound, reason: "it was deleted".into() };
            guard.pushed_documents.deliver(&guard.key, state).await?;
            guard.pushed_documents.forget(&guard.key, &mut stored).await;
            Ok(())
        })
        .await
    }

    /// Removes a document here and from the data plane.
    async fn forget(&self, key: &Key, stored: &mut Option<StoredDocument>) {
        self.deliver_until_accepted(key, FeedUpdate::Forget).await;
        let mut table = self.table.lock();
        table.bytes -= bytes_of(stored);
        table.change(key, |entry| entry.bytes = None);
        *stored = None;
    }

    /// Records whether a key has subscribers. If it has, sends the key's document to the data plane again.
    /// Returns `false` if the key isn't a pushed one.
    pub(crate) fn handle_wanted(self: &Arc<Self>, key: &Key, wanted: bool) -> bool {
        let change = |entry: &mut Entry| {
            entry.wanted = wanted;
            entry.tasks += usize::from(wanted);
        };
        let Some(slot) = self.table.lock().change(key, change) else {
            return self.handle_cold_wanted(key, wanted);
        };
        if wanted {
            let guard = KeyGuard { pushed_documents: self.clone(), key: key.clone(), slot };
            tokio::spawn(async move {
                let stored = guard.slot.lock().await;
                match &*stored {
                    Some(stored) => {
                        let update = FeedUpdate::Changed(stored.document.clone().into());
                        // If the delivery fails, the next subscription repeats it.
                        let _ = guard.pushed_documents.deliver(&guard.key, update).await;
                    }
                    None if guard.pushed_documents.is_declared(&guard.key) => {}
                    // The key's first push has failed, and subscribers of an undeclared key don't wait for
                    // another one.
                    None => {
                        guard
                            .pushed_documents
                            .reject_subscribers(&guard.key, "no document was pushed to this key")
                            .await
                    }
                }
            });
        }
        true
    }

    /// Records whether a key without an entry has subscribers. Returns `false` if the key isn't declared as
    /// pushed.
    fn handle_cold_wanted(self: &Arc<Self>, key: &Key, wanted: bool) -> bool {
        if !self.is_declared(key) {
            return false;
        }
        let mut table = self.table.lock();
        if !wanted {
            table.waiting.remove(key);
        } else if table.waiting.len() < self.config.load().options.pushed_keys_max {
            table.waiting.insert(key.clone());
        } else {
            let (pushed_documents, key) = (self.clone(), key.clone());
            tokio::spawn(async move {
                let reason = "too many keys wait for their first document (feeds_limits.pushed_keys_max); try again later";
                pushed_documents.reject_subscribers(&key, reason).await;
            });
        }
        true
    }

    /// Parses a backend's key from a text that has been percent-decoded once.
    pub(crate) fn parse_key(&self, text: &str) -> Result<Key, KeyError> {
        self.config.load().keys.parse(text)
    }

    fn is_declared(&self, key: &Key) -> bool {
        let config = self.config.load();
        config.routes.find(key).is_some_and(|number| number >= config.options.upstreams.len())
    }

    /// Reports a key as not found to its subscribers.
    async fn reject_subscribers(&self, key: &Key, reason: &str) {
        let lost = FeedUpdate::State { state: FeedState::NotFound, reason: reason.into() };
        self.deliver_until_accepted(key, lost).await;
        self.deliver_until_accepted(key, FeedUpdate::Forget).await;
    }

    /// Delivers an update to the data plane. Waits without a limit, because subscribers would wait forever
    /// for a lost update.
    async fn deliver_until_accepted(&self, key: &Key, update: FeedUpdate) {
        let _ = self.signals.when_space(None, || self.data_plane.update_feed(key, update.clone())).await;
    }

    async fn deliver(&self, key: &Key, update: FeedUpdate) -> Result<(), PushError> {
        let deadline = Instant::now() + self.busy_timeout;
        let send = || self.data_plane.update_feed(key, update.clone());
        self.signals.when_space(Some(deadline), send).await.map_err(|_| PushError::Busy)
    }

    fn check(&self, key: &Key) -> Result<(), PushError> {
        let config = self.config.load();
        match config.routes.find(key).and_then(|upstream| config.options.upstreams.get(upstream)) {
            Some(upstream) => Err(PushError::Fetched(upstream.name.clone())),
            None => Ok(()),
        }
    }

    /// Acquires a key, so that it isn't evicted. Creates the key if there is space.
    async fn acquire(self: &Arc<Self>, key: &Key) -> Result<KeyGuard, PushError> {
        loop {
            let idle = {
                let mut table = self.table.lock();
                if table.entries.len() < self.config.load().options.pushed_keys_max
                    || table.entries.contains_key(key)
                {
                    let is_waited_for = table.waiting.remove(key);
                    let entry = table.entries.entry(key.clone()).or_default();
                    entry.wanted |= is_waited_for;
                    entry.is_declared = self.is_declared(key);
                    let slot = entry.slot.clone();
                    table.change(key, |entry| entry.tasks += 1);
                    return Ok(KeyGuard { pushed_documents: self.clone(), key: key.clone(), slot });
                }
                table.take_least_recently_used().ok_or(PushError::TooManyKeys)?
            };
            self.evict(idle).await;
        }
    }

    /// Counts `new` bytes in place of `old`. Evicts other documents if necessary.
    async fn make_room(self: &Arc<Self>, old: usize, new: usize) -> Result<(), PushError> {
        let most = self.config.load().options.pushed_documents_bytes_max;
        loop {
            let idle = {
                let mut table = self.table.lock();
                let rest = table.bytes - old;
                if rest.checked_add(new).is_some_and(|sum| sum <= most) {
                    table.bytes = rest + new;
                    return Ok(());
                }
                // A document that can't fit is refused without evicting others.
                if (rest - table.idle_bytes).checked_add(new).is_none_or(|sum| sum > most) {
                    return Err(PushError::NoRoom);
                }
                table.take_least_recently_used().ok_or(PushError::NoRoom)?
            };
            self.evict(idle).await;
        }
    }

    async fn evict(self: &Arc<Self>, (key, slot): (Key, Slot)) {
        let guard = KeyGuard { pushed_documents: self.clone(), key, slot };
        let mut stored = guard.slot.lock().await;
        tracing::debug!(key = guard.key.as_str(), "evicted a pushed document");
        self.forget(&guard.key, &mut stored).await;
    }
}

/// Runs `work` to completion, even if the caller is dropped.
async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T, PushError>> + Send + 'static,
) -> Result<T, PushError> {
    let done = tokio::spawn(work).await;
    done.unwrap_or(Err(PushError::Document(Failure::Internal("a push panicked"))))
}

/// Returns the new highest sequence number. Refuses a `given` number that is lower than the last one.
fn in_sequence(stored: &Option<StoredDocument>, given: Option<u64>) -> Result<Option<u64>, PushError> {
    let last = stored.as_ref().and_then(|stored| stored.sequence);
    match (given, last) {
        (Some(given), Some(last)) if given < last => Err(PushError::Sequence { given, last }),
        _ => Ok(given.max(last)),
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(BODY_UNIT_BYTES).max(1)).unwrap_or(u32::MAX)
}

fn bytes_of(stored: &Option<StoredDocument>) -> usize {
    stored.as_ref().map_or(0, |stored| stored.document.body.len())
}
