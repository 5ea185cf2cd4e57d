//! Errors of frames.

use crate::limits::FRAME_BYTES_MAX;

/// Reason why a frame was refused. The peer is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame is longer than [`FRAME_BYTES_MAX`].
    #[error("the frame has {0} bytes; the maximum is {FRAME_BYTES_MAX}")]
    TooLong(usize),
    /// The frame ends within its header.
    #[error("the frame ends within its header")]
    NoHeader,
    /// The version of the link doesn't have this type of entry in this direction.
    #[error("the frame has an entry of the unknown type {0}")]
    UnknownType(u8),
    /// An entry is malformed.
    #[error("{entry} is malformed: `{field}` {fault}")]
    Malformed {
        /// The entry, as the protocol names it.
        entry: &'static str,
        /// The field at fault.
        field: &'static str,
        /// The broken rule.
        fault: Fault,
    },
}

/// The rule that a field breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The frame ends within the field, or the field declares a length or a count that doesn't fit into the frame.
    #[error("exceeds the frame")]
    Cut,
    /// A text isn't UTF-8.
    #[error("isn't UTF-8")]
    NotUtf8,
    /// A text isn't a JSON value.
    #[error("isn't JSON")]
    NotJson,
    /// A flag or a choice that the version of the link doesn't have.
    #[error("has the unknown value {0}")]
    Unknown(u8),
}
