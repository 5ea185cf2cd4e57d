//! The interface to whoever makes frames: the hub knows no format.

use crate::publication::{FormatId, Publication};

/// How publications become frames. The hub knows no format.
pub trait Encoder: Sized {
    /// An encoded publication: a reference, cheap to clone.
    type Frame: Clone;

    /// Encodes, or says that the format has no way to say it. What it makes is shared by all sessions of the
    /// format, on all cores: it can hold the publication's id, and nothing that differs per session.
    ///
    /// A format that can say deltas can say all snapshots and all deltas. Those of one session
    /// ([`Hub::set_format`](crate::Hub::set_format)) agree on whether they can.
    fn encode(&self, format: FormatId, publication: &Publication<Self::Frame>) -> Option<Self::Frame>;

    /// Bytes of a frame.
    fn len(frame: &Self::Frame) -> usize;

    /// A handle of the frame for one core: [`Hub::take`](crate::Hub::take) lends it, to be cloned once per
    /// delivery. Where all cores clone the same handle they fight for the cache line that counts its
    /// clones; a type with a count per core avoids that here.
    fn per_core(frame: &Self::Frame) -> Self::Frame {
        frame.clone()
    }
}
