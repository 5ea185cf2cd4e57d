//! Versions of feeds in frames: a whole document, or what it takes to make it of the one before.
//!
//! A change names the version that it applies to and has the document compressed with that version as the dictionary:
//! unlike a JSON Patch, it rebuilds the exact bytes. The patch for clients travels beside it.

use super::FrameError;
use super::codec::{Reader, Writer};
use bytes::Bytes;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use stentor_hub::{Document, Epoch, FeedState, Position};

/// The fastest level that finds what is far from its place in the dictionary: 300 bytes for two changes in 120 kB, where level 1
/// takes 2,900.
const LEVEL: i32 = 3;
/// A version of a feed as it travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedVersion {
    /// The term of the node that stored it.
    pub term: u64,
    /// The version that it was made of, and the patch from there for clients. `None`: it is whole.
    pub base: Option<(Position, Option<Bytes>)>,
    /// The feed's state. `NotFound`: there is no document, whatever this one has.
    pub state: FeedState,
    /// Why, for people.
    pub reason: Arc<str>,
    /// The greatest sequence number of a push.
    pub sequence: Option<u64>,
    /// What the engine had lost was stored again: other nodes may have had newer versions, so the next one begins an epoch.
    pub is_restored: bool,
    /// Whether the document is JSON.
    json: bool,
    content_type: Arc<str>,
    /// Of the document.
    len: usize,
    digest: u64,
    compressed: Bytes,
}

/// A feed's state, and who answers for it, without a new version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedStateChange {
    /// The term of the node that noticed it.
    pub term: u64,
    /// The state.
    pub state: FeedState,
    /// Why, for people.
    pub reason: Arc<str>,
    /// The greatest sequence number of a push.
    pub sequence: Option<u64>,
}

const STATES: [FeedState; 4] = [FeedState::Live, FeedState::Stale, FeedState::Complete, FeedState::NotFound];

fn digest(body: &[u8]) -> u64 {
    // Recognizes errors, not forgeries: those are recognized by the frame's tag.
    let mut hasher = DefaultHasher::new();
    hasher.write(body);
    hasher.finish()
}

impl FeedVersion {
    /// A whole document.
    pub fn whole(term: u64, document: &Document) -> Self {
        Self::new(term, document, None, &[])
    }

    /// A document, made of the one before at `position`, with the patch from there for clients.
    pub fn change(
        term: u64,
        document: &Document,
        before: &Document,
        position: Position,
        patch: Option<Bytes>,
    ) -> Self {
        Self::new(term, document, Some((position, patch)), &before.body)
    }

    fn new(
        term: u64,
        document: &Document,
        base: Option<(Position, Option<Bytes>)>,
        dictionary: &[u8],
    ) -> Self {
        let Document { body, json, content_type } = document;
        let compressed = zstd::bulk::Compressor::with_dictionary(LEVEL, dictionary)
            .and_then(|mut compressor| compressor.compress(body));
        // Compression in memory doesn't fail, as far as is known. A version that can't be rebuilt is asked for again.
        let compressed = compressed.unwrap_or_default().into();
        let (len, digest) = (body.len(), digest(body));
        let (json, content_type) = (*json, content_type.clone());
        let (state, reason) = (FeedState::Live, Arc::from(""));
        let (sequence, is_restored) = (None, false);
        Self { term, base, state, reason, sequence, is_restored, json, content_type, len, digest, compressed }
    }

    /// The document. `before` is the body of the version that it was made of; empty for a whole one.
    ///
    /// # Errors
    /// [`FrameError::Malformed`] if `before` is another version, or the frame is broken.
    pub fn document(&self, before: &[u8]) -> Result<Document, FrameError> {
        let body = zstd::bulk::Decompressor::with_dictionary(before)
            .and_then(|mut decompressor| decompressor.decompress(&self.compressed, self.len))
            .map_err(|_| FrameError::Malformed)?;
        if body.len() != self.len || digest(&body) != self.digest {
            return Err(FrameError::Malformed);
        }
        Ok(Document { body: body.into(), json: self.json, content_type: self.content_type.clone() })
    }

    /// The size that the document claims to have. [`super::Frames::decode`] has checked it.
    pub fn document_bytes(&self) -> usize {
        self.len
    }

    /// Its size in a frame, without names.
    pub fn bytes(&self) -> usize {
        let patch = self.base.as_ref().and_then(|(_, patch)| patch.as_ref());
        self.compressed.len() + patch.map_or(0, Bytes::len)
    }
}

impl Writer {
    pub(super) fn version(&mut self, version: &FeedVersion) {
        let FeedVersion { term, base, state, reason, sequence, is_restored, .. } = version;
        self.u64(*term);
        self.option(base.as_ref(), |w, (position, patch)| {
            w.u64(position.epoch.0);
            w.u64(position.offset);
            w.option(patch.as_ref(), |w, patch| w.bytes(patch));
        });
        self.feed_state(*state, reason, *sequence);
        self.u8(u8::from(*is_restored));
        let FeedVersion { json, content_type, len, digest, compressed, .. } = version;
        self.u8(u8::from(*json));
        self.text(content_type);
        self.len(*len);
        self.u64(*digest);
        self.bytes(compressed);
    }

    pub(super) fn state(&mut self, change: &FeedStateChange) {
        let FeedStateChange { term, state, reason, sequence } = change;
        self.u64(*term);
        self.feed_state(*state, reason, *sequence);
    }

    fn feed_state(&mut self, state: FeedState, reason: &str, sequence: Option<u64>) {
        self.u8(STATES.iter().position(|known| *known == state).unwrap_or_default() as u8);
        self.text(reason);
        self.option(sequence, Self::u64);
    }
}

impl Reader {
    /// A version of a document that has at most `bytes_max`, when it is rebuilt.
    pub(super) fn version(&mut self, bytes_max: usize) -> Result<FeedVersion, FrameError> {
        let term = self.u64()?;
        let base = self.option(|r| {
            let position = Position { epoch: Epoch(r.u64()?), offset: r.u64()? };
            Ok((position, r.option(Self::utf8)?))
        })?;
        let (state, reason, sequence) = self.feed_state()?;
        let is_restored = self.flag()?;
        let (json, content_type) = (self.flag()?, self.text()?);
        let len = self.u32()? as usize;
        if len > bytes_max {
            return Err(FrameError::TooLarge);
        }
        Ok(FeedVersion {
            term,
            base,
            state,
            reason,
            sequence,
            is_restored,
            json,
            content_type,
            len,
            digest: self.u64()?,
            compressed: self.bytes()?,
        })
    }

    pub(super) fn state(&mut self) -> Result<FeedStateChange, FrameError> {
        let term = self.u64()?;
        let (state, reason, sequence) = self.feed_state()?;
        Ok(FeedStateChange { term, state, reason, sequence })
    }

    fn feed_state(&mut self) -> Result<(FeedState, Arc<str>, Option<u64>), FrameError> {
        let state = STATES.get(usize::from(self.u8()?)).copied().ok_or(FrameError::Malformed)?;
        Ok((state, self.text()?, self.option(Self::u64)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(body: &str) -> Document {
        Document { body: body.to_owned().into(), json: true, content_type: "application/json".into() }
    }

    const BEFORE: Position = Position { epoch: Epoch(7), offset: 1 };

    #[test]
    fn a_change_rebuilds_the_exact_bytes_and_is_small() {
        let before: String =
            (0..4_000).map(|n| format!("{{\"id\": {n}, \"score\":  {}}},\n", n % 7)).collect();
        let after = before.replace("\"id\": 17,", "\"id\": 17, \"x\":1,").replace("\"id\": 3999", "\"id\":4");
        let (before, after) = (document(&before), document(&after));
        let change = FeedVersion::change(3, &after, &before, BEFORE, Some(Bytes::from_static(b"[]")));
        assert!(change.bytes() < 400, "{}", change.bytes());
        assert_eq!(change.document(&before.body), Ok(after.clone()));
        assert_eq!(change.document(b"another"), Err(FrameError::Malformed));
        assert_eq!(FeedVersion::whole(3, &after).document(b""), Ok(after));
    }

    #[test]
    fn frames_that_lie_are_refused() {
        let whole = FeedVersion::whole(1, &document("{}"));
        for wrong in [
            FeedVersion { len: 1, ..whole.clone() },
            FeedVersion { digest: 1, ..whole.clone() },
            FeedVersion { compressed: Bytes::new(), ..whole.clone() },
            FeedVersion { compressed: Bytes::from_static(b"garbage"), ..whole.clone() },
        ] {
            assert_eq!(wrong.document(b""), Err(FrameError::Malformed));
        }
    }

    #[test]
    fn an_empty_document_is_one() {
        let empty = document("");
        assert_eq!(FeedVersion::whole(1, &empty).document(b""), Ok(empty.clone()));
        let change = FeedVersion::change(1, &document("1"), &empty, BEFORE, None);
        assert_eq!(change.document(b""), Ok(document("1")));
    }
}
