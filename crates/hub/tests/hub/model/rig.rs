//! The test's tools: a small seeded generator, the content of publications, and an encoder with four formats,
//! two of which don't support all publications.

use std::sync::Arc;
use stentor_hub::{Body, Data, Encoder, FeedState, FormatId, Publication, SnapshotReason};

/// A seeded random number generator.
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Returns a number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n)
    }

    /// Returns `true` once in `n` times on average.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, among: &'a [T]) -> Option<&'a T> {
        self.0.choice(among)
    }
}

/// The content by which the test identifies a publication. Messages and documents have unique numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Message(u64),
    Document(u64, FeedState),
    /// A complete document for a client that named its version, and the reason why it isn't a delta.
    SnapshotWithReason(u64, FeedState, SnapshotReason),
    /// A delta from the document at an offset, with the numbers of the versions after it.
    Delta(u64, Vec<u64>),
    State(FeedState, String),
}

impl Content {
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

/// Makes a patch that contains the number of its version, with `len` bytes if they suffice.
pub(crate) fn patch_of(number: u64, len: usize) -> Vec<u8> {
    [b"[", &bytes_of(number, len.saturating_sub(2))[..], b"]"].concat()
}

/// Makes `len` bytes that contain `number`, or more if the number is longer.
pub(crate) fn bytes_of(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = number.to_string().into_bytes();
    bytes.resize(len.max(bytes.len()), b' ');
    bytes
}

fn number(bytes: &[u8]) -> u64 {
    std::str::from_utf8(bytes).unwrap().trim().parse().unwrap()
}

/// Returns the length of a frame in a format. 0 for a state without a reason in format 1, `None` for
/// publications that format 2 or 3 doesn't support. Only format 2 doesn't support deltas.
pub(crate) fn frame_bytes(format: FormatId, said: &Content, body_len: usize) -> Option<usize> {
    match format.0 {
        0 => Some(body_len + 8),
        1 => Some(2 * body_len),
        _ if said.is_state() => None,
        2 if matches!(said, Content::Delta(..)) => None,
        _ => Some(body_len),
    }
}

/// A frame: its format, content and length.
pub(crate) type Frame = Arc<(FormatId, Content, usize)>;

pub(crate) struct Encoding;

impl Encoder for Encoding {
    type Frame = Frame;

    fn encode(&self, format: FormatId, publication: &Publication<Frame>) -> Option<Frame> {
        let body = publication.body();
        let said = Content::of(body);
        let bytes = frame_bytes(format, &said, body.len())?;
        Some(Arc::new((format, said, bytes)))
    }

    fn len(frame: &Frame) -> usize {
        frame.2
    }
}
