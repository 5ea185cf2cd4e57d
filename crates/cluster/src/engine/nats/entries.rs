//! The messages of one name form a chain. Each contains the state after it, and the sequences of earlier messages to
//! read.
//!
//! Content that is larger than the server's maximum is stored in parts. Each part is a link of the chain that changes
//! nothing.

use super::Shared;
use super::jetstream::{Outcome, Session, Stored, Stream, Which, unexpected};
use super::parts::{self, Part, WHOLE};
use crate::engine::EngineError;
use bytes::{Bytes, BytesMut};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Maximum number of earlier messages that a message names. Reading a history takes a round trip for each group of
/// them.
pub(super) const RECENT_MAX: usize = 16;

/// Adds a sequence to those that the next message names, newest first.
pub(super) fn add_recent(recent: &mut Vec<u64>, sequence: u64) {
    recent.truncate(RECENT_MAX - 1);
    recent.insert(0, sequence);
}

/// An entry to store.
pub(super) struct Entry<'a> {
    pub(super) subject: &'a str,
    /// Sequence of the newest message on the subject. Zero if there is none.
    pub(super) expected: u64,
    pub(super) idempotency_key: Option<&'a str>,
    /// The header of all parts but the last one.
    pub(super) part_meta: String,
    pub(super) content: &'a [u8],
}

impl Shared {
    /// Stores content. `meta` makes the header of the last part from the sequences of the other parts.
    pub(super) async fn store_entry(
        &self,
        session: &Session,
        entry: Entry<'_>,
        meta: impl FnOnce(Vec<u64>) -> String,
    ) -> Result<Option<Outcome>, EngineError> {
        let Entry { subject, mut expected, idempotency_key: key, part_meta, content } = entry;
        let (id, total) = (fastrand::u64(..), content.len());
        let (mut rest, mut sequences) = (content, Vec::new());
        while let Some((part, after)) = rest.split_at_checked(session.part_bytes_max)
            && !after.is_empty()
        {
            let start = parts::start(id, total, false);
            let payload: [&[u8]; 2] = [&start, part];
            let stored = self.store(session, subject, Some(expected), None, &part_meta, &payload).await?;
            let Some(Outcome { sequence, .. }) = stored else { return Ok(None) };
            expected = sequence;
            sequences.push(sequence);
            rest = after;
        }
        let start = if sequences.is_empty() { WHOLE.into() } else { parts::start(id, total, true) };
        self.store(session, subject, Some(expected), key, &meta(sequences), &[&start, rest]).await
    }

    /// Stores content outside a chain. Returns the sequences of its parts.
    pub(super) async fn store_document(
        &self,
        session: &Session,
        subject: &str,
        content: &[u8],
    ) -> Result<Vec<u64>, EngineError> {
        let mut sequences = Vec::new();
        for part in content.chunks(session.part_bytes_max) {
            let stored = self.store(session, subject, None, None, "{}", &[WHOLE, part]).await?;
            sequences.push(stored.ok_or_else(unexpected)?.sequence);
        }
        Ok(sequences)
    }

    /// The content of the message `last`, whose other parts have these sequences. `None` if a part has been removed.
    pub(super) async fn content(
        &self,
        session: &Session,
        stream: Stream,
        last: Bytes,
        others: &[u64],
    ) -> Result<Option<Bytes>, EngineError> {
        if let (Some(Part::Whole(content)), true) = (parts::parse(last.clone()), others.is_empty()) {
            return Ok(Some(content));
        }
        let mut content = BytesMut::new();
        for part in self.read_all(session, stream, others).await? {
            let Some(part) = part else { return Ok(None) };
            match parts::parse(part.payload) {
                Some(Part::More(_, part) | Part::Whole(part)) => content.extend_from_slice(&part),
                _ => return Err(unexpected()),
            }
        }
        match parts::parse(last) {
            Some(Part::Last { total, content: last, .. }) if content.len() + last.len() == total => {
                content.extend_from_slice(&last);
            }
            _ => return Err(unexpected()),
        }
        Ok(Some(content.freeze()))
    }

    /// Reads a document stored by [`Self::store_document`]. `None` if a part has been removed.
    pub(super) async fn document(
        &self,
        session: &Session,
        stream: Stream,
        sequences: &[u64],
    ) -> Result<Option<Bytes>, EngineError> {
        let mut content = BytesMut::new();
        for part in self.read_all(session, stream, sequences).await? {
            let Some(part) = part else { return Ok(None) };
            let Some(Part::Whole(part)) = parts::parse(part.payload) else { return Err(unexpected()) };
            content.extend_from_slice(&part);
        }
        Ok(Some(content.freeze()))
    }

    /// Reads the messages with these sequences concurrently. Returns them in the order of `sequences`.
    pub(super) async fn read_all(
        &self,
        session: &Session,
        stream: Stream,
        sequences: &[u64],
    ) -> Result<Vec<Option<Stored>>, EngineError> {
        let reads = sequences.iter().map(|sequence| self.read(session, stream, Which::Sequence(*sequence)));
        all(reads).await.into_iter().collect()
    }
}

/// Waits for all futures concurrently. Returns their outputs in order.
pub(super) async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, output) in futures.iter_mut().zip(&mut outputs).filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(context) {
                *output = Some(ready);
            }
        }
        if outputs.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
