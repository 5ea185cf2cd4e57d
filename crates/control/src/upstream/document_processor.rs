//! Turns a received body into a document and a patch from the previous document, or finds that it is
//! unchanged.
//!
//! A body of moderate size that differs from the previous document in a few values is compared at once. Other
//! work (inflating, checking, comparing) runs on tokio's blocking pool. At most one body per processor is
//! processed there at a time, so that the number of processors, not that of fetches in flight, bounds the
//! memory for inflated and parsed bodies. The text is kept between two versions and parsed again for each
//! comparison: parsing 165 kB takes half a millisecond, and a tree takes 15 times the memory of the text.

use super::answer::{Coding, is_json};
use super::decode::{decode, is_utf8, to_utf8};
use super::failure::Failure;
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, LazyLock};
use stentor_delta::{self as delta, Delta, Differ, Ignored, ParseError, Seed, Update};
use stentor_hub::{Document, Patch};
use stentor_ports::DocumentChange;
use tokio::sync::Semaphore;

/// Maximum size of an uncompressed body, and of its previous document, that is processed inline. Inline
/// processing costs less than a task.
const INLINE_BYTES_MAX: usize = 8 << 10;
/// The same for a comparison in place, which takes at most 5 µs per kB. A task takes about 20 µs in all, and wakes two
/// threads.
const IN_PLACE_BYTES_MAX: usize = 256 << 10;
/// Maximum size of the text that is parsed for a comparison in place.
const PARSED_BYTES_MAX: usize = 16 << 10;

/// A complete body and its headers.
pub(crate) struct Received {
    pub(crate) body: Vec<u8>,
    pub(crate) coding: Coding,
    pub(crate) content_type: Option<String>,
    /// `true` if the body must be JSON, whatever its content type.
    pub(crate) json_only: bool,
    /// Maximum size of the document in bytes.
    pub(crate) bytes_max: usize,
    pub(crate) kept: Option<Arc<Document>>,
    /// Compares the document with the kept one.
    pub(crate) differ: Arc<Differ>,
}

impl Received {
    fn has_json_type(&self) -> bool {
        self.content_type.as_deref().is_some_and(is_json)
    }

    /// Returns the kept JSON, if the body is JSON that is neither compressed nor of a charset other than UTF-8.
    fn kept_json(&self) -> Option<&Document> {
        let is_json = self.coding == Coding::Identity && (self.json_only || self.has_json_type());
        self.kept.as_deref().filter(|kept| is_json && kept.json && is_utf8(self.content_type.as_deref()))
    }

    /// Compares the body with the kept JSON in place. `None` if that takes longer.
    fn compare_in_place(&self) -> Option<Compared> {
        let kept = self.kept_json()?;
        let text = stentor_json::without_byte_order_mark(&self.body);
        let update = self.differ.update_in_place(&kept.body, text, PARSED_BYTES_MAX)?;
        Some(Compared::new(update, &self.body))
    }
}

/// The result of comparing a body with the kept JSON.
struct Compared {
    /// The text without whitespace. `None` if this is the body itself.
    minified: Option<Vec<u8>>,
    delta: Delta,
}

impl Compared {
    fn new(update: Update<'_>, body: &[u8]) -> Self {
        let minified = match update.text {
            Cow::Borrowed(text) if text.len() == body.len() => None,
            text => Some(text.into_owned()),
        };
        Self { minified, delta: update.diff.delta }
    }

    /// Returns the new version and its patch. `None` if it has the same value as the kept one.
    fn into_change(
        self,
        body: Vec<u8>,
        content_type: &str,
        kept: Option<&Document>,
    ) -> Option<DocumentChange> {
        let patch = match self.delta {
            Delta::Unchanged => return None,
            Delta::Patch(operations) => kept.map(|kept| {
                // The patch is kept as long as the document, so its spare capacity is freed.
                Patch { base: kept.body.clone(), operations: operations.into_boxed_slice().into() }
            }),
            Delta::Snapshot => None,
        };
        let body = kept_bytes(self.minified.unwrap_or(body));
        let content_type = shared_type(content_type, kept);
        let document = Document { body, json: true, content_type }.into();
        Some(DocumentChange { document, patch })
    }
}

/// Returns a content type, without a copy if it is that of the kept document or the most common one.
fn shared_type(content_type: &str, kept: Option<&Document>) -> Arc<str> {
    static JSON: LazyLock<Arc<str>> = LazyLock::new(|| "application/json".into());
    let known = kept.map_or(&*JSON, |kept| &kept.content_type);
    if **known == *content_type { known.clone() } else { content_type.into() }
}

/// Makes a differ that identifies objects in arrays by members with these names first, and ignores changes at
/// the places in `ignored`.
pub(crate) fn differ(identity: &[String], ignored: Ignored) -> Arc<Differ> {
    let options = delta::Options { identity: identity.to_vec(), ignored, ..delta::Options::default() };
    let random = RandomState::new();
    Arc::new(Differ::new(options, Seed([random.hash_one(0), random.hash_one(1)])))
}

/// Turns received bodies into documents.
#[derive(Clone)]
pub(crate) struct DocumentProcessor {
    permits: Arc<Semaphore>,
}

impl Default for DocumentProcessor {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { permits: Arc::new(Semaphore::new(processors)) }
    }
}

impl DocumentProcessor {
    /// Returns the document in `received`, with the patch from the kept one. `None` if it has the same value as the kept one.
    pub(crate) async fn process(&self, received: Received) -> Result<Option<DocumentChange>, Failure> {
        // The kept JSON has been checked and minified, so the same text needs no check.
        if received.kept_json().is_some_and(|kept| kept.body == received.body) {
            return Ok(None);
        }
        let kept_bytes = received.kept.as_ref().map_or(0, |kept| kept.body.len());
        let bytes = received.body.len().max(kept_bytes);
        if received.coding == Coding::Identity && bytes <= INLINE_BYTES_MAX {
            return process(received);
        }
        if bytes <= IN_PLACE_BYTES_MAX
            && let Some(compared) = received.compare_in_place()
        {
            let content_type = json_type(received.content_type.as_deref());
            return Ok(compared.into_change(received.body, content_type, received.kept.as_deref()));
        }
        let Ok(_permit) = self.permits.acquire().await else {
            return Err(Failure::Internal("the document processor has ended"));
        };
        let work = tokio::task::spawn_blocking(move || process(received));
        work.await.unwrap_or(Err(Failure::Internal("processing a document panicked")))
    }
}

fn process(received: Received) -> Result<Option<DocumentChange>, Failure> {
    let has_json_type = received.has_json_type();
    let Received { body, coding, content_type, json_only, bytes_max, kept, differ } = received;
    let body = decode(coding, body, bytes_max)?;
    let (body, content_type) = to_utf8(body, content_type, bytes_max)?;
    let kept = kept.as_deref();
    if !json_only && !has_json_type {
        let content_type = content_type.as_deref().unwrap_or("application/octet-stream");
        if kept.is_some_and(|kept| !kept.json && kept.body == body && *kept.content_type == *content_type) {
            return Ok(None);
        }
        let document = Document { body: Bytes::from(body), json: false, content_type: content_type.into() };
        return Ok(Some(document.into()));
    }
    let kept = kept.filter(|kept| kept.json);
    // For a compressed body, this is the first check of `DocumentProcessor::process`.
    if kept.is_some_and(|kept| kept.body == body) {
        return Ok(None);
    }
    let compared = compare(&body, kept, &differ).map_err(|failure| match (failure, &content_type) {
        (Failure::Corrupt(error), Some(content_type)) if !has_json_type => {
            Failure::NotJson { content_type: content_type.clone(), error }
        }
        (failure, _) => failure,
    })?;
    Ok(compared.into_change(body, json_type(content_type.as_deref()), kept))
}

/// Returns the content type of a JSON document that was received with `content_type`.
fn json_type(content_type: Option<&str>) -> &str {
    content_type.filter(|content_type| is_json(content_type)).unwrap_or("application/json")
}

/// Compares a JSON text with the kept one.
fn compare(body: &[u8], kept: Option<&Document>, differ: &Differ) -> Result<Compared, Failure> {
    let text = stentor_json::without_byte_order_mark(body);
    match differ.update(kept.map(|kept| &kept.body[..]), text) {
        Ok(update) => Ok(Compared::new(update, body)),
        // A document that is too large to parse is compared only by its bytes, and sent whole.
        Err(ParseError::TooLarge) => {
            let minified = stentor_json::minify(body.to_vec()).map_err(ParseError::from)?;
            let is_same = kept.is_some_and(|kept| kept.body == minified);
            let delta = if is_same { Delta::Unchanged } else { Delta::Snapshot };
            Ok(Compared { minified: Some(minified), delta })
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns a text without spare capacity, for keeping.
fn kept_bytes(text: Vec<u8>) -> Bytes {
    // A copy, because shrinking in place could keep the old allocation.
    if text.capacity() == text.len() { text.into() } else { Bytes::copy_from_slice(&text) }
}

#[cfg(test)]
mod tests;
