//! What a connection shares with others, and what it yields.

use super::deflate::Inflater;
use super::{Error, Message};
use std::sync::Arc;

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

/// Limits of the work on messages outside of the receive buffer before a connection pauses
/// ([`Connection::is_paused`]).
///
/// [`Connection::is_paused`]: super::Connection::is_paused
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLimits {
    /// Bytes that are inflated of a message. Default: all of it.
    pub inflate_bytes_max: usize,
    /// Bytes of a message that was gathered or inflated and is delivered now. Default: any number.
    pub deliver_bytes_max: usize,
}

impl Default for StepLimits {
    fn default() -> Self {
        StepLimits { inflate_bytes_max: usize::MAX, deliver_bytes_max: usize::MAX }
    }
}

/// What the connections of one core share: the limits, one inflater, and room for the message being delivered.
///
/// Messages that are too large for one step are inflated one at a time. However many clients send such messages, at
/// most one is half inflated.
pub struct Shared {
    pub(super) limits: Limits,
    pub(super) steps: StepLimits,
    pub(super) inflater: Option<Box<Inflater>>,
    /// The message or control payload that arrived in pieces and is being delivered.
    pub(super) gathered: Vec<u8>,
    /// The connection whose message is inflated in steps holds a second reference.
    pub(super) step_slot: Arc<()>,
    stepped_bytes: usize,
}

impl Shared {
    /// Memory grows on use: about 50 kB once something is inflated, and the last message that came in pieces.
    pub fn new(limits: Limits) -> Self {
        Shared {
            limits,
            steps: StepLimits::default(),
            inflater: None,
            gathered: Vec::new(),
            step_slot: Arc::new(()),
            stepped_bytes: 0,
        }
    }

    /// The limits of all connections that use this.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Changes the limits of all connections that use this.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Sets the limits until the next call.
    #[inline]
    pub fn set_steps(&mut self, steps: StepLimits) {
        self.steps = steps;
    }

    /// The number of bytes inflated, or delivered from outside of the receive buffer, since the last call.
    #[inline]
    pub fn take_stepped_bytes(&mut self) -> usize {
        std::mem::take(&mut self.stepped_bytes)
    }

    /// Whether no message is half inflated, so that a waiting connection can continue.
    pub fn is_step_slot_free(&self) -> bool {
        Arc::strong_count(&self.step_slot) == 1
    }

    pub(super) fn count(&mut self, bytes: usize) {
        self.stepped_bytes = self.stepped_bytes.saturating_add(bytes);
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
    /// A whole message, inflated.
    Message(Message<'a>),
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
