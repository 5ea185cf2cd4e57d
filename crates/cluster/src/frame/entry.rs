//! Entries of a feed's log in frames: a state, with or without a version. A version is a whole document, or a change of the version before.
//!
//! A change names the version that it applies to and has the document compressed with that version as the dictionary:
//! unlike a JSON Patch, it rebuilds the exact bytes. The patch for clients travels beside it.

use super::FrameError;
use super::codec::{Reader, Writer};
use bytes::Bytes;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use stentor_hub::{Document, Epoch, FeedState, Position};

/// The fastest level that finds matches far from their place in the dictionary: 300 bytes for two changes in 120 kB, where level
/// 1 takes 2,900.
const LEVEL: i32 = 3;

/// An entry of a feed's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The term of the node that stored the entry.
    pub term: u64,
    /// The feed's state. With `NotFound`, there is no document, even if the entry has one.
    pub state: FeedState,
    /// The reason for the state, for people.
    pub reason: Arc<str>,
    /// The greatest sequence number of a push.
    pub sequence: Option<u64>,
    /// `None` if the previous version stays.
    pub version: Option<Version>,
}

/// A version of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The version that this one is a change of, and the patch from there for clients. `None` if this version is a
    /// whole document.
    pub base: Option<(Position, Option<Bytes>)>,
    /// `true` if the engine had lost the version, and it was stored again. Other nodes may have had newer versions, so
    /// the next version begins an epoch.
    pub is_restored: bool,
    /// `true` if the document is JSON.
    json: bool,
    content_type: Arc<str>,
    /// Length of the document.
    len: usize,
    /// Digest of the document.
    digest: u64,
    compressed: Bytes,
}

const STATES: [FeedState; 4] = [FeedState::Live, FeedState::Stale, FeedState::Complete, FeedState::NotFound];

fn digest(body: &[u8]) -> u64 {
    // Detects errors. The frame's tag detects forgeries.
    let mut hasher = DefaultHasher::new();
    hasher.write(body);
    hasher.finish()
}

impl LogEntry {
    /// An entry with a state only.
    pub fn state(term: u64, (state, reason): (FeedState, Arc<str>), sequence: Option<u64>) -> Self {
        Self { term, state, reason, sequence, version: None }
    }

    /// A whole document.
    pub fn whole(term: u64, document: &Document) -> Self {
        Self::new(term, document, None, &[])
    }

    /// A change of the document `before` at `position`, with the patch from there for clients.
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
        // Compression in memory isn't known to fail. If it does, the version can't be rebuilt, and is read from the log again.
        let compressed = compressed.unwrap_or_default().into();
        let (len, digest) = (body.len(), digest(body));
        let (json, content_type) = (*json, content_type.clone());
        let version = Version { base, is_restored: false, json, content_type, len, digest, compressed };
        Self { version: Some(version), ..Self::state(term, (FeedState::Live, Arc::from("")), None) }
    }

    /// The version that the entry's version is a change of, and the patch from there.
    pub fn base(&self) -> Option<&(Position, Option<Bytes>)> {
        self.version.as_ref().and_then(|version| version.base.as_ref())
    }

    /// Rebuilds the document. `before` is the body of the version that the entry's version is a change of, or empty for
    /// a whole one.
    ///
    /// # Errors
    /// [`FrameError::Malformed`] if `before` is another version, the frame is broken, or the entry has no version.
    pub fn document(&self, before: &[u8]) -> Result<Document, FrameError> {
        let version = self.version.as_ref().ok_or(FrameError::Malformed)?;
        let body = zstd::bulk::Decompressor::with_dictionary(before)
            .and_then(|mut decompressor| decompressor.decompress(&version.compressed, version.len))
            .map_err(|_| FrameError::Malformed)?;
        if body.len() != version.len || digest(&body) != version.digest {
            return Err(FrameError::Malformed);
        }
        Ok(Document { body: body.into(), json: version.json, content_type: version.content_type.clone() })
    }

    /// The size that the document claims to have. [`super::Frames::decode`] has checked it.
    pub fn document_bytes(&self) -> usize {
        self.version.as_ref().map_or(0, |version| version.len)
    }

    /// The size of the version in a frame, without names.
    pub fn bytes(&self) -> usize {
        let patch = self.base().and_then(|(_, patch)| patch.as_ref());
        self.version.as_ref().map_or(0, |version| version.compressed.len()) + patch.map_or(0, Bytes::len)
    }
}

impl Writer {
    pub(super) fn entry(&mut self, entry: &LogEntry) {
        let LogEntry { term, state, reason, sequence, version } = entry;
        self.u64(*term);
        if let Some(version) = version {
            self.option(version.base.as_ref(), |w, (position, patch)| {
                w.u64(position.epoch.0);
                w.u64(position.offset);
                w.option(patch.as_ref(), |w, patch| w.bytes(patch));
            });
        }
        self.u8(STATES.iter().position(|known| known == state).unwrap_or_default() as u8);
        self.text(reason);
        self.option(*sequence, Self::u64);
        if let Some(version) = version {
            self.u8(u8::from(version.is_restored));
            self.u8(u8::from(version.json));
            self.text(&version.content_type);
            self.len(version.len);
            self.u64(version.digest);
            self.bytes(&version.compressed);
        }
    }
}

impl Reader {
    /// Reads an entry. A document in it has at most `bytes_max` bytes.
    pub(super) fn entry(&mut self, has_version: bool, bytes_max: usize) -> Result<LogEntry, FrameError> {
        let term = self.u64()?;
        let base = if has_version { self.option(Self::base)? } else { None };
        let state = STATES.get(usize::from(self.u8()?)).copied().ok_or(FrameError::Malformed)?;
        let (reason, sequence) = (self.text()?, self.option(Self::u64)?);
        let entry = LogEntry::state(term, (state, reason), sequence);
        if !has_version {
            return Ok(entry);
        }
        let is_restored = self.flag()?;
        let (json, content_type) = (self.flag()?, self.text()?);
        let len = self.u32()? as usize;
        if len > bytes_max {
            return Err(FrameError::TooLarge);
        }
        let (digest, compressed) = (self.u64()?, self.bytes()?);
        let version = Version { base, is_restored, json, content_type, len, digest, compressed };
        Ok(LogEntry { version: Some(version), ..entry })
    }

    fn base(&mut self) -> Result<(Position, Option<Bytes>), FrameError> {
        let position = Position { epoch: Epoch(self.u64()?), offset: self.u64()? };
        Ok((position, self.option(Self::utf8)?))
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
        let change = LogEntry::change(3, &after, &before, BEFORE, Some(Bytes::from_static(b"[]")));
        assert!(change.bytes() < 400, "{}", change.bytes());
        assert_eq!(change.document(&before.body), Ok(after.clone()));
        assert_eq!(change.document(b"another"), Err(FrameError::Malformed));
        assert_eq!(LogEntry::whole(3, &after).document(b""), Ok(after));
    }

    #[test]
    fn versions_with_a_wrong_length_digest_or_content_are_refused() {
        let whole = LogEntry::whole(1, &document("{}"));
        let version = whole.version.clone().unwrap();
        for wrong in [
            Version { len: 1, ..version.clone() },
            Version { digest: 1, ..version.clone() },
            Version { compressed: Bytes::new(), ..version.clone() },
            Version { compressed: Bytes::from_static(b"garbage"), ..version.clone() },
        ] {
            let wrong = LogEntry { version: Some(wrong), ..whole.clone() };
            assert_eq!(wrong.document(b""), Err(FrameError::Malformed));
        }
    }

    #[test]
    fn an_empty_document_is_valid() {
        let empty = document("");
        assert_eq!(LogEntry::whole(1, &empty).document(b""), Ok(empty.clone()));
        let change = LogEntry::change(1, &document("1"), &empty, BEFORE, None);
        assert_eq!(change.document(b""), Ok(document("1")));
    }

    /// Nodes of different versions, and logs in the engine, have this format.
    #[test]
    fn the_format_of_entries_stays() {
        let bytes = |entry: &LogEntry| {
            let mut w = Writer::default();
            w.entry(entry);
            w.0.to_vec()
        };
        let state = LogEntry::state(7, (FeedState::Stale, "r".into()), Some(5));
        let sequence = [1, 5, 0, 0, 0, 0, 0, 0, 0];
        let expected = [&[7, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, b'r'][..], &sequence].concat();
        assert_eq!(bytes(&state), expected);
        let change = LogEntry::change(7, &document("12"), &document("1"), BEFORE, Some("[]".into()));
        let version = change.version.clone().unwrap();
        let number = |n: usize| (n as u64).to_le_bytes();
        let length = |n: usize| (n as u32).to_le_bytes();
        let base = [&[1][..], &number(7), &number(1), &[1], &length(2), b"[]"].concat();
        let content = [&[0, 1][..], &length(16), b"application/json", &length(2)].concat();
        let compressed = [&version.digest.to_le_bytes()[..], &length(version.compressed.len())].concat();
        let live = [0, 0, 0, 0, 0, 0];
        let expected = [&number(7), &*base, &live, &content, &compressed, &version.compressed].concat();
        assert_eq!(bytes(&change), expected);
    }
}
