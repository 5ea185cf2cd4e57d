//! The interface to the encoder of frames: the hub knows no format.

use crate::publication::{FormatId, Publication};

/// How publications become frames. The hub knows no format.
pub trait Encoder: Sized {
    /// An encoded publication: a reference, cheap to clone.
    type Frame: Clone;

    /// Encodes a publication; `None` if the format doesn't support it. The frame is shared by all sessions of the
    /// format, on all cores: it can hold the publication's id, and nothing that differs per session.
    ///
    /// A format that supports deltas supports all snapshots and all deltas. The formats of one session
    /// ([`Hub::set_format`](crate::Hub::set_format)) either all support deltas or none does.
    fn encode(&self, format: FormatId, publication: &Publication<Self::Frame>) -> Option<Self::Frame>;

    /// Bytes of a frame.
    fn len(frame: &Self::Frame) -> usize;

    /// A handle of the frame for one core: [`Hub::take`](crate::Hub::take) lends it, to be cloned once per
    /// delivery. If all cores clone the same handle, they compete for the cache line with its count. A type with a
    /// count per core avoids that here.
    fn per_core(frame: &Self::Frame) -> Self::Frame {
        frame.clone()
    }
}
