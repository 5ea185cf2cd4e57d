//! Documents that backends push into feeds, instead of being asked for them.
//!
//! A key is either fetched or pushed: one that an upstream serves is refused here, so that a document has one source.
//! A pushed document stays, whether anybody wants it or not, until it is deleted or the process ends: nobody else has
//! it. When its key becomes wanted the data plane is given it again, because it may have had no room to keep it.
//!
//! **Invariants.** What is done to one key is done in order, each of it to the end: under the lock of its slot. The
//! bytes in the table are those of the documents in its slots, and of those that are about to be there.

use crate::options::FeedsOptions;
use crate::schedule::{Validators, Version};
use crate::signals::Signals;
use crate::upstream::{Digested, Digester, Failure, Received, differ, is_json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stentor_edge::{DataPlane, FeedUpdate};
use stentor_hub::delta::Differ;
use stentor_hub::{FeedState, Key};
use tokio::time::Instant;

/// Why a document isn't taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PushError {
    #[error("the key belongs to {0:?}, from where its documents are fetched")]
    Fetched(String),
    #[error("there are as many pushed keys as there may be (feeds.pushed_keys_max)")]
    TooManyKeys,
    #[error("there is no room for the document (feeds.pushed_documents_bytes_max)")]
    NoRoom,
    #[error("{0}")]
    Document(#[from] Failure),
    #[error("the server is too busy to take documents (admin.busy_timeout); try later")]
    Busy,
    #[error("no document was pushed to this key")]
    Unknown,
}

/// A key's document. Empty before the first and after the last.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<Version>>>>;

#[derive(Default)]
struct Table {
    slots: HashMap<Key, Slot>,
    bytes: usize,
}

/// The documents that were pushed.
pub(crate) struct Pushes {
    options: FeedsOptions,
    busy_timeout: Duration,
    data_plane: Arc<dyn DataPlane>,
    signals: Arc<Signals>,
    digester: Digester,
    differ: Arc<Differ>,
    table: Mutex<Table>,
}

impl Pushes {
    pub(crate) fn new(
        options: FeedsOptions,
        busy_timeout: Duration,
        data_plane: Arc<dyn DataPlane>,
        signals: Arc<Signals>,
    ) -> Arc<Self> {
        let (digester, differ, table) = (Digester::default(), differ(&[]), Mutex::default());
        Arc::new(Self { options, busy_timeout, data_plane, signals, digester, differ, table })
    }

    /// Bytes of one document, at the most.
    pub(crate) fn document_bytes_max(&self) -> usize {
        self.options.pushed_document_bytes_max
    }

    /// How many keys there are, and bytes of their documents.
    pub(crate) fn figures(&self) -> (usize, usize) {
        let table = self.table();
        (table.slots.len(), table.bytes)
    }

    /// Takes a document, and says whether it is another than the last.
    pub(crate) async fn put(
        &self,
        key: &Key,
        content_type: String,
        body: Vec<u8>,
    ) -> Result<bool, PushError> {
        self.check(key)?;
        let (mut place, slot) = loop {
            let slot = self.slot(key)?;
            let place = slot.clone().lock_owned().await;
            // Unless it was deleted meanwhile.
            if self.table().slots.get(key).is_some_and(|known| Arc::ptr_eq(known, &slot)) {
                break (place, slot);
            }
        };
        let done = self.replace(key, &mut place, content_type, body).await;
        if place.is_none() {
            let mut table = self.table();
            table.slots.retain(|_, known| !Arc::ptr_eq(known, &slot));
        }
        done
    }

    async fn replace(
        &self,
        key: &Key,
        place: &mut Option<Arc<Version>>,
        content_type: String,
        body: Vec<u8>,
    ) -> Result<bool, PushError> {
        let received = Received {
            json_only: is_json(&content_type),
            content_type: Some(content_type),
            body,
            gzipped: false,
            bytes_max: self.options.pushed_document_bytes_max,
            validators: Validators::default(),
            kept: place.clone(),
            differ: self.differ.clone(),
        };
        let Some(Digested { version, patch }) = self.digester.digest(received).await? else {
            return Ok(false);
        };
        let (new, old) = (version.document.body.len(), bytes_of(place));
        {
            let mut table = self.table();
            let rest = table.bytes - old;
            if rest.checked_add(new).is_none_or(|sum| sum > self.options.pushed_documents_bytes_max) {
                return Err(PushError::NoRoom);
            }
            table.bytes = rest + new;
        }
        let document = version.document.clone();
        let update = patch
            .map_or(FeedUpdate::Document(document.clone()), |patch| FeedUpdate::Patched(document, patch));
        if let Err(busy) = self.tell(key, update).await {
            let mut table = self.table();
            table.bytes = table.bytes - new + old;
            return Err(busy);
        }
        *place = Some(Arc::new(version));
        Ok(true)
    }

    /// Ends a feed: its subscribers are told that it is lost.
    pub(crate) async fn delete(&self, key: &Key) -> Result<(), PushError> {
        self.check(key)?;
        let Some(slot) = self.table().slots.get(key).cloned() else { return Err(PushError::Unknown) };
        let mut place = slot.lock().await;
        if place.is_none() {
            return Err(PushError::Unknown);
        }
        let state = FeedUpdate::State { state: FeedState::Lost, reason: "it was deleted".into() };
        self.tell(key, state).await?;
        // What comes next is sent without a deadline: half of it would be worse than late.
        let _ = self.signals.when_space(None, || self.data_plane.update_feed(key, FeedUpdate::Forget)).await;
        let mut table = self.table();
        table.bytes -= bytes_of(&place);
        table.slots.remove(key);
        *place = None;
        Ok(())
    }

    /// Whether a key belongs here. Then the data plane is given its document again, soon.
    pub(crate) fn resend(self: &Arc<Self>, key: &Key) -> bool {
        let Some(slot) = self.table().slots.get(key).cloned() else { return false };
        let (pushes, key) = (self.clone(), key.clone());
        tokio::spawn(async move {
            let place = slot.lock().await;
            let Some(version) = &*place else { return };
            let update = FeedUpdate::Document(version.document.clone());
            let send = || pushes.data_plane.update_feed(&key, update.clone());
            // The next wish asks again.
            let _ = pushes.signals.when_space(Some(Instant::now() + pushes.busy_timeout), send).await;
        });
        true
    }

    async fn tell(&self, key: &Key, update: FeedUpdate) -> Result<(), PushError> {
        let deadline = Instant::now() + self.busy_timeout;
        let send = || self.data_plane.update_feed(key, update.clone());
        self.signals.when_space(Some(deadline), send).await.map_err(|_| PushError::Busy)
    }

    fn check(&self, key: &Key) -> Result<(), PushError> {
        let mut upstreams = self.options.upstreams.iter();
        match upstreams.find(|upstream| key.as_str().starts_with(&upstream.prefix)) {
            Some(upstream) => Err(PushError::Fetched(upstream.name.clone())),
            None => Ok(()),
        }
    }

    fn slot(&self, key: &Key) -> Result<Slot, PushError> {
        let mut table = self.table();
        if let Some(slot) = table.slots.get(key) {
            return Ok(slot.clone());
        }
        if table.slots.len() >= self.options.pushed_keys_max {
            return Err(PushError::TooManyKeys);
        }
        Ok(table.slots.entry(key.clone()).or_default().clone())
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing panics while it holds the lock; if something did, what is there is still whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes_of(place: &Option<Arc<Version>>) -> usize {
    place.as_ref().map_or(0, |version| version.document.body.len())
}
