//! The interface to the encoder of frames: the hub knows no format.

use crate::publication::{FormatId, Publication};

/// Encodes publications into frames. The hub knows no wire format.
pub trait Encoder: Sized {
    /// An encoded publication: a reference, cheap to clone.
    type Frame: Clone;

    /// Encodes a publication; `None` if the format doesn't support it. All sessions of the format share the
    /// frame, on all cores: it may contain the publication's id, but no data that differs per session.
    ///
    /// A format that supports deltas supports all snapshots and all deltas. The formats of one session
    /// ([`Hub::set_format`](crate::Hub::set_format)) either all support deltas or none does.
    fn encode(&self, format: FormatId, publication: &Publication<Self::Frame>) -> Option<Self::Frame>;

    /// Returns the size of a frame in bytes.
    fn len(frame: &Self::Frame) -> usize;

    /// Returns a handle of the frame for one core. [`Hub::take`](crate::Hub::take) lends it, to be cloned
    /// once per delivery. If all cores cloned the same handle, they would compete for the cache line with its
    /// count. A type with a count per core avoids that here.
    fn per_core(frame: &Self::Frame) -> Self::Frame {
        frame.clone()
    }
}
