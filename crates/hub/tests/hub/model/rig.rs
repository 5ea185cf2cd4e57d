//! What the test stands on: a small seeded generator, what publications say in this test, and an encoder
//! with four formats, two of which can't say everything.

use std::sync::Arc;
use stentor_hub::{Body, Data, Encoder, FeedState, FormatId, Publication, SnapshotReason};

/// A seeded generator.
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n)
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, among: &'a [T]) -> Option<&'a T> {
        self.0.choice(among)
    }
}

/// What a publication says, as the test tells it from others: messages and documents by a number that is
/// used once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Message(u64),
    Document(u64, FeedState),
    /// A document to somebody who said what it has.
    SnapshotWithReason(u64, FeedState, SnapshotReason),
    /// From the document at an offset, by the versions after it.
    Delta(u64, Vec<u64>),
    State(FeedState, String),
}

impl Said {
    pub(crate) fn is_state(&self) -> bool {
        matches!(self, Self::State(..))
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::State(FeedState::NotFound, _))
    }

    pub(crate) fn of(body: &Body) -> Self {
        match body {
            Body::Message {
                data: Data::Json(b) | Data::Text(b) | Data::Binary(b) | Data::Arguments { json: b, .. },
                ..
            } => Self::Message(number(b)),
            Body::Snapshot { document, state, snapshot_reason, .. } => {
                let number = number(&document.body);
                match snapshot_reason {
                    None => Self::Document(number, *state),
                    Some(why) => Self::SnapshotWithReason(number, *state, *why),
                }
            }
            Body::Delta { base, patch, .. } => {
                let steps = patch.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]")).unwrap();
                Self::Delta(*base, steps.split(|byte| *byte == b',').map(number).collect())
            }
            Body::State { state, reason, .. } => Self::State(*state, reason.to_string()),
            Body::Presence { .. } => unreachable!("no room has presence"),
        }
    }
}

/// A patch of `len` bytes, if that is enough, that says which version it leads to.
pub(crate) fn patch_of(number: u64, len: usize) -> Vec<u8> {
    [b"[", &bytes_of(number, len.saturating_sub(2))[..], b"]"].concat()
}

/// Bytes that say `number` and are `len` long, if that is long enough.
pub(crate) fn bytes_of(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = number.to_string().into_bytes();
    bytes.resize(len.max(bytes.len()), b' ');
    bytes
}

fn number(bytes: &[u8]) -> u64 {
    std::str::from_utf8(bytes).unwrap().trim().parse().unwrap()
}

/// How long a frame is: different in each format, nothing at all for a state without a reason in format 1,
/// `None` where format 2 or 3 can't say it. Only format 2 can't say deltas.
pub(crate) fn frame_bytes(format: FormatId, said: &Said, body_len: usize) -> Option<usize> {
    match format.0 {
        0 => Some(body_len + 8),
        1 => Some(2 * body_len),
        _ if said.is_state() => None,
        2 if matches!(said, Said::Delta(..)) => None,
        _ => Some(body_len),
    }
}

/// A frame remembers what it says, and in which format.
pub(crate) type Frame = Arc<(FormatId, Said, usize)>;

pub(crate) struct Encoding;

impl Encoder for Encoding {
    type Frame = Frame;

    fn encode(&self, format: FormatId, publication: &Publication<Frame>) -> Option<Frame> {
        let body = publication.body();
        let said = Said::of(body);
        let bytes = frame_bytes(format, &said, body.len())?;
        Some(Arc::new((format, said, bytes)))
    }

    fn len(frame: &Frame) -> usize {
        frame.2
    }
}
