//! Errors of frames.

use crate::limits::{
    FRAME_BYTES, FRAME_BYTES_MAX, HELLO_BYTES_MAX, NAMESPACE_NAME_BYTES_MAX, TARGETS_BYTES_MAX,
};

/// Reason why a frame was refused. The peer is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame is longer than [`FRAME_BYTES_MAX`].
    #[error("the frame has {0} bytes; the maximum is {FRAME_BYTES_MAX}")]
    TooLong(usize),
    /// A frame with several entries is longer than [`FRAME_BYTES`].
    #[error("the frame has several entries in {0} bytes; the maximum is {FRAME_BYTES}")]
    SeveralEntries(usize),
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

/// Reason why a link ends. The peer is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// A frame is malformed.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A frame is missing, or came twice.
    #[error("the frame has the number {found}; expected {expected}")]
    Number {
        /// The number after that of the last frame.
        expected: u32,
        /// The frame's number.
        found: u32,
    },
    /// The acknowledgement of a frame that the peer can't have received, or of one before the last acknowledged one.
    #[error("the frame {found} is acknowledged; the last one is {last}")]
    Ack {
        /// The acknowledged number.
        found: u32,
        /// Number of the last frame that was transmitted.
        last: u32,
    },
    /// HELLO, WELCOME or ERROR in a numbered frame, or another entry in a frame without a number.
    #[error(
        "{0} is in the wrong kind of frame: only HELLO, WELCOME and ERROR are in frames without a number"
    )]
    Misplaced(&'static str),
    /// An entry that isn't allowed at this time.
    #[error("{0} isn't allowed now")]
    Unexpected(&'static str),
    /// A namespace was used that isn't declared, or was declared with an index that is neither the next one nor vacant.
    #[error("the namespace {0} isn't declared, or its index isn't the next one")]
    Namespace(u16),
    /// The text of an entry lacks a field, or has a wrong one.
    #[error("{0} has a missing or wrong field")]
    Field(&'static str),
    /// HELLO is too long.
    #[error("HELLO has {0} bytes; the maximum is {HELLO_BYTES_MAX}")]
    HelloBytes(usize),
    /// The name of a namespace is too long.
    #[error("the name of a namespace has {0} bytes; the maximum is {NAMESPACE_NAME_BYTES_MAX}")]
    NamespaceName(usize),
    /// The worker has declared too many namespaces.
    #[error("the names of the namespaces have too many bytes")]
    TooManyNamespaces,
    /// A rule of the WebSocket protocol is broken: the close code.
    #[error("the WebSocket connection is malformed, close code {0}")]
    WebSocket(u16),
    /// A WebSocket message is a text.
    #[error("a message is a text; frames are binary messages")]
    Text,
    /// The rooms that a SELECT joins or leaves are too long.
    #[error("the rooms of a SELECT have more than {TARGETS_BYTES_MAX} bytes")]
    Targets,
    /// The worker sends pings, and doesn't read the pongs.
    #[error("too many pongs wait for the worker")]
    UnreadPongs,
    /// The worker acknowledges too little.
    #[error("too many bytes aren't acknowledged")]
    Unacknowledged,
}

impl LinkError {
    /// The `code` of ERROR.
    pub fn code(&self) -> Code {
        match self {
            Self::HelloBytes(_)
            | Self::NamespaceName(_)
            | Self::TooManyNamespaces
            | Self::Targets
            | Self::UnreadPongs
            | Self::Unacknowledged
            | Self::Frame(FrameError::TooLong(_) | FrameError::SeveralEntries(_)) => Code::Limit,
            _ => Code::Protocol,
        }
    }
}

/// The `code` of ERROR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// No common version.
    Version,
    /// The token is missing or wrong.
    Token,
    /// There is no such application.
    AppUnknown,
    /// The options differ from those of the running workers.
    OptionsConflict,
    /// The application has as many workers as it may have.
    TooManyWorkers,
    /// The worker didn't answer for too long. Its sessions belong to other workers.
    Replaced,
    /// The worker has broken a rule of the protocol.
    Protocol,
    /// The worker has exceeded a limit.
    Limit,
}

impl Code {
    /// All codes.
    pub const ALL: [Self; 8] = [
        Self::Version,
        Self::Token,
        Self::AppUnknown,
        Self::OptionsConflict,
        Self::TooManyWorkers,
        Self::Replaced,
        Self::Protocol,
        Self::Limit,
    ];

    /// The code as ERROR has it, which is also a label of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Token => "token",
            Self::AppUnknown => "app_unknown",
            Self::OptionsConflict => "options_conflict",
            Self::TooManyWorkers => "too_many_workers",
            Self::Replaced => "replaced",
            Self::Protocol => "protocol",
            Self::Limit => "limit",
        }
    }
}
