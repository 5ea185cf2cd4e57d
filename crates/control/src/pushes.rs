//! Documents that backends push into feeds, instead of being asked for them.
//!
//! A key is either fetched or pushed: one that an upstream serves is refused here, so that a document has one source.
//! A pushed document stays, whether anybody wants it or not, until it is deleted, the process ends, or its room is needed:
//! then those go that nobody is subscribed to, the one first that was pushed or wanted the longest ago. One that
//! somebody is subscribed to never goes; where nothing else is left, a push is refused.
//! Who asks for a key before its first document waits for it where the configuration says that it will be pushed
//! ([`FeedsOptions::pushed`]), and is told otherwise that it is lost.
//! When a key becomes wanted the data plane is given its document again, because it may have had no room to keep it.
//!
//! Pushes of several backends, or of one that tries again, may overtake each other on their way. A push that says its
//! sequence number is refused if one with a higher number was there before.
//!
//! **Invariants.** What is done to one key is done in order, each of it to the end, also if the one who asked is gone: in a
//! task of its own, under the lock of the key's slot. The bytes in the table are those of the documents in its slots, and of
//! those that are about to be there. A task that holds a slot waits for no other slot but that of an idle key, which no
//! such task holds.

use crate::options::FeedsOptions;
use crate::route::Routes;
use crate::schedule::{Validators, Version};
use crate::signals::Signals;
use crate::upstream::{Coding, Digested, Digester, Failure, Received, differ, is_json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stentor_delta::Differ;
use stentor_edge::{DataPlane, FeedUpdate};
use stentor_hub::{FeedState, Key};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Why a document isn't taken.
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
}

/// A document as it is pushed.
pub(crate) struct Push {
    pub(crate) content_type: String,
    pub(crate) coding: Coding,
    pub(crate) body: Vec<u8>,
    /// From [`Pushes::room_for`].
    pub(crate) room: OwnedSemaphorePermit,
    pub(crate) sequence: Option<u64>,
}

/// Bodies that are being received are counted in units of so many bytes.
const BODY_UNIT_BYTES: usize = 1 << 10;

/// What is kept for a key.
struct Kept {
    version: Arc<Version>,
    /// The highest that came with a push.
    sequence: Option<u64>,
}

/// A key's document. Empty before the first and after the last.
type Slot = Arc<tokio::sync::Mutex<Option<Kept>>>;

/// What the table knows of a key.
#[derive(Default)]
struct Place {
    slot: Slot,
    /// Of its document, if there is one.
    bytes: Option<usize>,
    wanted: bool,
    /// Tasks that are about it.
    tasks: usize,
    /// When it was used last, in uses of all.
    used: u64,
    /// Whether the configuration says that it will be pushed.
    is_declared: bool,
}

impl Place {
    fn is_idle(&self) -> bool {
        self.bytes.is_some() && !self.wanted && self.tasks == 0
    }
}

#[derive(Default)]
struct Table {
    places: HashMap<Key, Place>,
    /// The keys that may go, by their last use.
    idle: BTreeMap<u64, Key>,
    idle_bytes: usize,
    /// Keys without a document that somebody waits for, because it will be pushed.
    waiting: HashSet<Key>,
    uses: u64,
    /// Of all documents.
    bytes: usize,
    evicted: u64,
}

impl Table {
    /// Changes what is known of a key, which thereby is used. Without a document and a task it goes.
    fn change(&mut self, key: &Key, change: impl FnOnce(&mut Place)) -> Option<Slot> {
        let place = self.places.get_mut(key)?;
        if place.is_idle() {
            self.idle.remove(&place.used);
            self.idle_bytes -= place.bytes.unwrap_or(0);
        }
        change(place);
        self.uses += 1;
        place.used = self.uses;
        if place.is_idle() {
            self.idle.insert(place.used, key.clone());
            self.idle_bytes += place.bytes.unwrap_or(0);
        }
        let slot = place.slot.clone();
        if place.bytes.is_none() && place.tasks == 0 {
            if place.wanted && place.is_declared {
                self.waiting.insert(key.clone());
            }
            self.places.remove(key);
        }
        Some(slot)
    }

    /// The idle key that was used the longest ago; it is the caller's now, as if by [`Pushes::hold`].
    fn take_idle(&mut self) -> Option<(Key, Slot)> {
        let key = self.idle.first_key_value().map(|(_, key)| key.clone())?;
        let slot = self.change(&key, |place| place.tasks += 1)?;
        self.evicted += 1;
        Some((key, slot))
    }
}

/// What there is, for metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PushFigures {
    pub(crate) keys: usize,
    pub(crate) bytes: usize,
    /// What bodies that are on their way take.
    pub(crate) bodies_bytes: usize,
    pub(crate) evicted: u64,
}

/// The documents that were pushed.
pub(crate) struct Pushes {
    options: FeedsOptions,
    routes: Routes,
    busy_timeout: Duration,
    data_plane: Arc<dyn DataPlane>,
    signals: Arc<Signals>,
    digester: Digester,
    differ: Arc<Differ>,
    /// Room for bodies on their way to be documents, in [`BODY_UNIT_BYTES`].
    bodies: Arc<Semaphore>,
    bodies_max: u32,
    table: Mutex<Table>,
}

/// A key that a task is about.
struct Held {
    pushes: Arc<Pushes>,
    key: Key,
    slot: Slot,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.pushes.table().change(&self.key, |place| place.tasks -= 1);
    }
}

impl Pushes {
    pub(crate) fn new(
        options: FeedsOptions,
        busy_timeout: Duration,
        data_plane: Arc<dyn DataPlane>,
        signals: Arc<Signals>,
    ) -> Arc<Self> {
        let (digester, differ, table) = (Digester::default(), differ(&[]), Mutex::default());
        let routes = Routes::with_pushed(&options.upstreams, &options.pushed);
        let all_bytes = options.pushed_documents_bytes_max.max(options.pushed_document_bytes_max);
        let bodies_max = units(all_bytes);
        let bodies = Arc::new(Semaphore::new(bodies_max as usize));
        Arc::new(Self {
            options,
            routes,
            busy_timeout,
            data_plane,
            signals,
            digester,
            differ,
            bodies,
            bodies_max,
            table,
        })
    }

    /// Waits for room for a body of so many bytes. All bodies that are being received, inflated and compared have as much
    /// as all documents may have.
    pub(crate) async fn room_for(&self, bytes: usize) -> Result<OwnedSemaphorePermit, PushError> {
        let room = self.bodies.clone().acquire_many_owned(units(bytes).min(self.bodies_max));
        tokio::time::timeout(self.busy_timeout, room).await.ok().and_then(Result::ok).ok_or(PushError::Busy)
    }

    /// Bytes of one document, at the most.
    pub(crate) fn document_bytes_max(&self) -> usize {
        self.options.pushed_document_bytes_max
    }

    pub(crate) fn figures(&self) -> PushFigures {
        let table = self.table();
        let units = self.bodies_max as usize - self.bodies.available_permits();
        PushFigures {
            keys: table.places.len(),
            bytes: table.bytes,
            bodies_bytes: units * BODY_UNIT_BYTES,
            evicted: table.evicted,
        }
    }

    /// Takes a document, and says whether it is another than the last.
    pub(crate) async fn put(self: &Arc<Self>, key: &Key, push: Push) -> Result<bool, PushError> {
        self.check(key)?;
        let held = self.hold(key).await?;
        to_the_end(async move {
            let mut kept = held.slot.lock().await;
            held.pushes.replace(&held.key, &mut kept, push).await
        })
        .await
    }

    async fn replace(
        self: &Arc<Self>,
        key: &Key,
        kept: &mut Option<Kept>,
        push: Push,
    ) -> Result<bool, PushError> {
        let sequence = in_sequence(kept, push.sequence)?;
        let received = Received {
            json_only: is_json(&push.content_type),
            content_type: Some(push.content_type),
            body: push.body,
            coding: push.coding,
            bytes_max: self.options.pushed_document_bytes_max,
            validators: Validators::default(),
            kept: kept.as_ref().map(|kept| kept.version.clone()),
            differ: self.differ.clone(),
        };
        let Some(Digested { version, patch }) = self.digester.digest(received).await? else {
            if let Some(kept) = kept {
                kept.sequence = sequence;
            }
            return Ok(false);
        };
        let (new, old) = (version.document.body.len(), bytes_of(kept));
        self.make_room(old, new).await?;
        let document = version.document.clone();
        let update = patch
            .map_or(FeedUpdate::Document(document.clone()), |patch| FeedUpdate::Patched(document, patch));
        if let Err(busy) = self.tell(key, update).await {
            let mut table = self.table();
            table.bytes = table.bytes - new + old;
            return Err(busy);
        }
        drop(push.room);
        *kept = Some(Kept { version: Arc::new(version), sequence });
        self.table().change(key, |place| place.bytes = Some(new));
        Ok(true)
    }

    /// Ends a feed: its subscribers are told that it is lost.
    pub(crate) async fn delete(self: &Arc<Self>, key: &Key, sequence: Option<u64>) -> Result<(), PushError> {
        self.check(key)?;
        if !self.table().places.contains_key(key) {
            return Err(PushError::Unknown);
        }
        let held = self.hold(key).await?;
        to_the_end(async move {
            let mut kept = held.slot.lock().await;
            if kept.is_none() {
                return Err(PushError::Unknown);
            }
            in_sequence(&kept, sequence)?;
            let state = FeedUpdate::State { state: FeedState::NotFound, reason: "it was deleted".into() };
            held.pushes.tell(&held.key, state).await?;
            held.pushes.forget(&held.key, &mut kept).await;
            Ok(())
        })
        .await
    }

    /// Takes a document away, and lets the data plane do so.
    async fn forget(&self, key: &Key, kept: &mut Option<Kept>) {
        self.insist(key, FeedUpdate::Forget).await;
        let mut table = self.table();
        table.bytes -= bytes_of(kept);
        table.change(key, |place| place.bytes = None);
        *kept = None;
    }

    /// Says whether anybody wants a key, and gives the data plane its document again if so. False: the key doesn't
    /// belong here.
    pub(crate) fn handle_wanted(self: &Arc<Self>, key: &Key, wanted: bool) -> bool {
        let change = |place: &mut Place| {
            place.wanted = wanted;
            place.tasks += usize::from(wanted);
        };
        let Some(slot) = self.table().change(key, change) else { return self.waits(key, wanted) };
        if wanted {
            let held = Held { pushes: self.clone(), key: key.clone(), slot };
            tokio::spawn(async move {
                let kept = held.slot.lock().await;
                match &*kept {
                    Some(kept) => {
                        let update = FeedUpdate::Document(kept.version.document.clone());
                        // The next wish asks again.
                        let _ = held.pushes.tell(&held.key, update).await;
                    }
                    None if held.pushes.is_declared(&held.key) => {}
                    // The first push has failed: nobody shall wait for a second one.
                    None => held.pushes.refuse(&held.key, "no document was pushed to this key").await,
                }
            });
        }
        true
    }

    /// Takes note of whether anybody waits for the first document of a key. False: it doesn't belong here.
    fn waits(self: &Arc<Self>, key: &Key, wanted: bool) -> bool {
        if !self.is_declared(key) {
            return false;
        }
        let mut table = self.table();
        if !wanted {
            table.waiting.remove(key);
        } else if table.waiting.len() < self.options.pushed_keys_max {
            table.waiting.insert(key.clone());
        } else {
            let (pushes, key) = (self.clone(), key.clone());
            tokio::spawn(async move {
                let reason = "too many keys wait for their first document (feeds_limits.pushed_keys_max); try again later";
                pushes.refuse(&key, reason).await;
            });
        }
        true
    }

    fn is_declared(&self, key: &Key) -> bool {
        self.routes.find(key).is_some_and(|number| number >= self.options.upstreams.len())
    }

    /// Lets those go who wait for a key that there is no document of.
    async fn refuse(&self, key: &Key, reason: &str) {
        let lost = FeedUpdate::State { state: FeedState::NotFound, reason: reason.into() };
        self.insist(key, lost).await;
        self.insist(key, FeedUpdate::Forget).await;
    }

    /// Tells the data plane, however long it takes, where half of it would be worse than late.
    async fn insist(&self, key: &Key, update: FeedUpdate) {
        let _ = self.signals.when_space(None, || self.data_plane.update_feed(key, update.clone())).await;
    }

    async fn tell(&self, key: &Key, update: FeedUpdate) -> Result<(), PushError> {
        let deadline = Instant::now() + self.busy_timeout;
        let send = || self.data_plane.update_feed(key, update.clone());
        self.signals.when_space(Some(deadline), send).await.map_err(|_| PushError::Busy)
    }

    fn check(&self, key: &Key) -> Result<(), PushError> {
        match self.routes.find(key).and_then(|upstream| self.options.upstreams.get(upstream)) {
            Some(upstream) => Err(PushError::Fetched(upstream.name.clone())),
            None => Ok(()),
        }
    }

    /// Takes a key up, a new one if there is room for it.
    async fn hold(self: &Arc<Self>, key: &Key) -> Result<Held, PushError> {
        loop {
            let idle = {
                let mut table = self.table();
                if table.places.len() < self.options.pushed_keys_max || table.places.contains_key(key) {
                    let is_waited_for = table.waiting.remove(key);
                    let place = table.places.entry(key.clone()).or_default();
                    place.wanted |= is_waited_for;
                    place.is_declared = self.is_declared(key);
                    let slot = place.slot.clone();
                    table.change(key, |place| place.tasks += 1);
                    return Ok(Held { pushes: self.clone(), key: key.clone(), slot });
                }
                table.take_idle().ok_or(PushError::TooManyKeys)?
            };
            self.evict(idle).await;
        }
    }

    /// Counts `new` bytes instead of `old`, when others have gone for it.
    async fn make_room(self: &Arc<Self>, old: usize, new: usize) -> Result<(), PushError> {
        let most = self.options.pushed_documents_bytes_max;
        loop {
            let idle = {
                let mut table = self.table();
                let rest = table.bytes - old;
                if rest.checked_add(new).is_some_and(|sum| sum <= most) {
                    table.bytes = rest + new;
                    return Ok(());
                }
                // None goes for what doesn't fit anyhow.
                if (rest - table.idle_bytes).checked_add(new).is_none_or(|sum| sum > most) {
                    return Err(PushError::NoRoom);
                }
                table.take_idle().ok_or(PushError::NoRoom)?
            };
            self.evict(idle).await;
        }
    }

    async fn evict(self: &Arc<Self>, (key, slot): (Key, Slot)) {
        let held = Held { pushes: self.clone(), key, slot };
        let mut kept = held.slot.lock().await;
        tracing::debug!(key = %held.key, "evicted a pushed document");
        self.forget(&held.key, &mut kept).await;
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing panics while it holds the lock; if something did, what is there is still whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does all of it, also if nobody waits for it any more.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, PushError>> + Send + 'static,
) -> Result<T, PushError> {
    let done = tokio::spawn(work).await;
    done.unwrap_or(Err(PushError::Document(Failure::Internal("a push panicked"))))
}

/// The highest sequence number, if this one isn't lower than it.
fn in_sequence(kept: &Option<Kept>, given: Option<u64>) -> Result<Option<u64>, PushError> {
    let last = kept.as_ref().and_then(|kept| kept.sequence);
    match (given, last) {
        (Some(given), Some(last)) if given < last => Err(PushError::Sequence { given, last }),
        _ => Ok(given.max(last)),
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(BODY_UNIT_BYTES).max(1)).unwrap_or(u32::MAX)
}

fn bytes_of(kept: &Option<Kept>) -> usize {
    kept.as_ref().map_or(0, |kept| kept.version.document.body.len())
}
