//! Turns a received body into a document and a patch from the previous document, or finds that it is
//! unchanged.
//!
//! The work (inflating, checking, comparing) runs on tokio's blocking pool. At most one body per processor is
//! processed at a time, so that the number of processors, not that of fetches in flight, bounds the memory
//! for inflated and parsed bodies. The text is kept between two versions and parsed again for each
//! comparison: parsing 165 kB takes half a millisecond, and a tree takes 15 times the memory of the text.

use super::answer::{Coding, is_json};
use super::decode::{decode, to_utf8};
use super::failure::Failure;
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use stentor_delta::{self as delta, Delta, Differ, Ignored, ParseError, Seed, Update};
use stentor_hub::{Document, Patch};
use stentor_ports::DocumentChange;
use tokio::sync::Semaphore;

/// Maximum size of an uncompressed body, and of its previous document, that is processed inline. Inline
/// processing costs less than a task.
const INLINE_BYTES_MAX: usize = 8 << 10;

/// A complete body and its headers.
pub(crate) struct Received {
    pub(crate) body: Vec<u8>,
    pub(crate) coding: Coding,
    pub(crate) content_type: Option<String>,
    /// `true` if the body must be JSON, whatever its content type.
    pub(crate) json_only: bool,
    /// Maximum size of the document in bytes.
    pub(crate) bytes_max: usize,
    pub(crate) kept: Option<Document>,
    /// Compares the document with the kept one.
    pub(crate) differ: Arc<Differ>,
}

impl Received {
    fn has_json_type(&self) -> bool {
        self.content_type.as_deref().is_some_and(is_json)
    }

    /// Returns `true` if the body is byte for byte the kept JSON. It then needs no check, because the kept
    /// JSON has been checked and minified.
    fn is_kept_text(&self) -> bool {
        let kept = self.kept.as_ref().filter(|kept| kept.json);
        let is_json = self.coding == Coding::Identity && (self.json_only || self.has_json_type());
        is_json && kept.is_some_and(|kept| kept.body == self.body)
    }
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
        if received.is_kept_text() {
            return Ok(None);
        }
        let kept_bytes = received.kept.as_ref().map_or(0, |kept| kept.body.len());
        if received.coding == Coding::Identity && received.body.len().max(kept_bytes) <= INLINE_BYTES_MAX {
            return process(received);
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
    let kept = kept.as_ref();
    if !json_only && !has_json_type {
        let content_type = content_type.as_deref().unwrap_or("application/octet-stream");
        if kept.is_some_and(|kept| !kept.json && kept.body == body && *kept.content_type == *content_type) {
            return Ok(None);
        }
        let document = Document { body: Bytes::from(body), json: false, content_type: content_type.into() };
        return Ok(Some(document.into()));
    }
    let kept = kept.filter(|kept| kept.json);
    // For a compressed body, this is the check of `Received::is_kept_text`.
    if kept.is_some_and(|kept| kept.body == body) {
        return Ok(None);
    }
    let compared = compared(body, kept, &differ).map_err(|failure| match (failure, &content_type) {
        (Failure::Corrupt(error), Some(content_type)) if !has_json_type => {
            Failure::NotJson { content_type: content_type.clone(), error }
        }
        (failure, _) => failure,
    });
    let Some((body, patch)) = compared? else { return Ok(None) };
    let content_type = content_type.filter(|_| has_json_type);
    let content_type = content_type.as_deref().unwrap_or("application/json").into();
    let document = Document { body, json: true, content_type };
    Ok(Some(DocumentChange { document, patch }))
}

/// Returns a JSON text without whitespace, and the patch from the kept text to it. `None` if both have the
/// same value.
fn compared(
    body: Vec<u8>,
    kept: Option<&Document>,
    differ: &Differ,
) -> Result<Option<(Bytes, Option<Patch>)>, Failure> {
    let text = stentor_json::without_byte_order_mark(&body);
    let (minified, delta) = match differ.update(kept.map(|kept| &kept.body[..]), text) {
        Ok(Update { text: Cow::Borrowed(text), diff }) if text.len() == body.len() => (None, diff.delta),
        Ok(Update { text, diff }) => (Some(text.into_owned()), diff.delta),
        // A document that is too large to parse is compared only by its bytes, and sent whole.
        Err(ParseError::TooLarge) => {
            let body = stentor_json::minify(body).map_err(ParseError::from)?;
            let is_same = kept.is_some_and(|kept| kept.body == body);
            return Ok((!is_same).then(|| (kept_bytes(body), None)));
        }
        Err(error) => return Err(error.into()),
    };
    let patch = match delta {
        Delta::Unchanged => return Ok(None),
        Delta::Patch(operations) => kept.map(|kept| {
            // The patch is kept as long as the document, so its spare capacity is freed.
            Patch { base: kept.body.clone(), operations: operations.into_boxed_slice().into() }
        }),
        Delta::Snapshot => None,
    };
    Ok(Some((kept_bytes(minified.unwrap_or(body)), patch)))
}

/// Returns a text without spare capacity, for keeping.
fn kept_bytes(text: Vec<u8>) -> Bytes {
    // A copy, because shrinking in place could keep the old allocation.
    if text.capacity() == text.len() { text.into() } else { Bytes::copy_from_slice(&text) }
}

#[cfg(test)]
mod tests;
