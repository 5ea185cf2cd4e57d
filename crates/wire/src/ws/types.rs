//! Types that connections share, and the events that they return.

use super::deflate::Inflater;
use super::{Error, Message};
use std::sync::Arc;

/// The side of a connection: a client masks its frames, a server does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The side that accepted the connection.
    Server,
    /// The side that opened the connection.
    Client,
}

/// Limits for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a message in bytes, both as received and inflated. Default 1,000,000.
    pub message_bytes_max: usize,
    /// Maximum number of frames of a message. Values below 65,536 fail Autobahn 9.3 and 9.4. Default 131,072.
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
    /// Maximum number of bytes that are inflated. Default: the complete message.
    pub inflate_bytes_max: usize,
    /// Maximum size of a copied or inflated message that may be delivered, in bytes. Default: no limit.
    pub deliver_bytes_max: usize,
}

impl Default for StepLimits {
    fn default() -> Self {
        StepLimits { inflate_bytes_max: usize::MAX, deliver_bytes_max: usize::MAX }
    }
}

/// State that the connections of one core share: the limits, one inflater, and a buffer for the delivered
/// message.
///
/// Messages that are too large for one step are inflated one at a time. However many clients send such
/// messages, at most one is partly inflated.
pub struct Shared {
    pub(super) limits: Limits,
    pub(super) steps: StepLimits,
    pub(super) inflater: Option<Box<Inflater>>,
    /// The delivered message or control payload, if it arrived in pieces.
    pub(super) gathered: Vec<u8>,
    /// The slot for inflating in steps. The connection whose message is inflated holds a second reference.
    pub(super) step_slot: Arc<()>,
    stepped_bytes: usize,
}

impl Shared {
    /// Makes the shared state. Its memory grows on use: about 50 kB after the first inflated message, and the
    /// last message that arrived in pieces.
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

    /// Returns the limits of all connections that use this state.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Changes the limits of all connections that use this state.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Sets the limits of the work until the next call of this function.
    #[inline]
    pub fn set_steps(&mut self, steps: StepLimits) {
        self.steps = steps;
    }

    /// Returns the number of bytes inflated, or delivered from outside the receive buffer, since the last
    /// call.
    #[inline]
    pub fn take_stepped_bytes(&mut self) -> usize {
        std::mem::take(&mut self.stepped_bytes)
    }

    /// Returns `true` if no message is partly inflated, so that a waiting connection can continue.
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
    /// Number of input bytes that are processed.
    pub consumed: usize,
    /// The event that occurred.
    pub event: Option<Event<'a>>,
}

/// An event of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A complete, inflated message.
    Message(Message<'a>),
    /// A ping; its pong is already in the transmit buffer.
    Ping,
    /// A pong, requested or not.
    Pong(&'a [u8]),
    /// The connection is over; no event follows. The transmit buffer holds the last bytes for the peer. A
    /// server closes TCP once they are sent.
    Closed {
        /// The peer's close code, 1005 if the peer sent none; our own code if the peer made an error.
        code: u16,
        /// The peer's reason, at most 123 bytes.
        reason: &'a str,
        /// The peer's error, if it caused the end.
        error: Option<Error>,
    },
}
