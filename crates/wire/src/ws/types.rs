//! What a connection shares with others, and what it yields.

use super::deflate::Inflater;
use super::{Error, Kind};

/// Which side of a connection this is: a client masks, a server does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The side that accepted.
    Server,
    /// The side that connected.
    Client,
}

/// Bounds on a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a message, both as it arrives and inflated. Default 1,000,000.
    pub message_bytes_max: usize,
    /// Frames of a message. Fewer than 65,536 fail Autobahn 9.3 and 9.4. Default 131,072.
    pub fragments_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { message_bytes_max: 1_000_000, fragments_max: 131_072 }
    }
}

/// What the connections of one core share: the limits, one inflater, and room for the message being delivered.
pub struct Shared {
    pub(super) limits: Limits,
    pub(super) inflater: Option<Box<Inflater>>,
    /// The message or control payload that arrived in pieces and is being delivered.
    pub(super) gathered: Vec<u8>,
}

impl Shared {
    /// Memory grows on use: about 50 kB once something is inflated, and the last message that came in pieces.
    pub fn new(limits: Limits) -> Self {
        Shared { limits, inflater: None, gathered: Vec::new() }
    }

    /// The limits of all connections that use this.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    pub(super) fn inflate(&mut self, payload: &[u8]) -> Result<&[u8], Error> {
        let inflater = self.inflater.get_or_insert_with(Default::default);
        inflater.inflate(payload, self.limits.message_bytes_max)
    }
}

/// The result of one [`Connection::receive`](super::Connection::receive).
#[derive(Debug, PartialEq, Eq)]
pub struct Received<'a> {
    /// Bytes of the input that are dealt with.
    pub consumed: usize,
    /// What has happened.
    pub event: Option<Event<'a>>,
}

/// What a peer did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A whole message.
    Message {
        /// Text or binary.
        kind: Kind,
        /// The message, inflated; valid UTF-8 if it is text.
        data: &'a [u8],
    },
    /// A ping; its pong is in the transmit buffer already.
    Ping,
    /// A pong, asked for or not.
    Pong(&'a [u8]),
    /// The connection is over; nothing follows. What the peer must still get is in the transmit buffer. A server closes
    /// TCP once that is sent.
    Closed {
        /// The peer's close code, 1005 if it gave none; ours, if the peer erred.
        code: u16,
        /// The peer's reason, at most 123 bytes.
        reason: &'a str,
        /// What the peer did wrong, if that is why.
        error: Option<Error>,
    },
}
