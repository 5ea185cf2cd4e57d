//! Limits the work that a connection may cause in one turn. The core continues with the rest in a later turn. Work is
//! measured in bytes of input, plus a constant per item.

use crate::ports::SignatureWork;
use std::time::Duration;
use stentor_wire::ws::StepLimits;

/// The constant for each message, ping and fragment: a short one takes about 1 µs, and scanning JSON takes 4 ns per byte.
pub(crate) const MESSAGE_BYTES: usize = 128;
/// The constant for an HTTP request, and for a message with its own answer.
pub(crate) const REQUEST_BYTES: usize = 1024;
/// The constant for a token that is refused: about the cost of a signature of any algorithm. Accepted tokens don't count,
/// because they are cached, and no client has many of them.
const REFUSED_TOKEN_BYTES: usize = 32 * 1024;
/// The constant for each delivery of a publication: a connection that publishes to a large room shares its core too. Without it,
/// two clients that publish to a room of 300 sessions delay all other clients by 100 ms.
const DELIVERY_BYTES: usize = 16;
/// CPU time for signatures of tokens in a turn, over all connections.
const SIGNATURES_PER_TURN: Duration = Duration::from_millis(2);
/// The share of a connection when others have used up the turn is `limits.turn_bytes_max` divided by this number.
const SMALLEST_SHARE: usize = 8;

/// The work done in this turn, and the limit for the current connection.
pub struct Budget {
    /// The share of a connection in bytes of work (`limits.turn_bytes_max`).
    bytes_max: usize,
    /// Work done in this turn.
    done_bytes: usize,
    /// The part of `done_bytes` for connections that earlier turns left unfinished.
    left_bytes: usize,
    /// The part of `done_bytes` for connections that waited for a condition.
    revisited_bytes: usize,
    /// The time for signatures that this turn has left.
    pub signatures: SignatureWork,
    /// The value of `done_bytes` at which the current connection has used its share.
    stop_at_bytes: usize,
    /// `true` if the current connection is the first in this turn that an earlier turn left unfinished. It may then handle
    /// a message of any size.
    takes_any: bool,
    /// Approximate number of bytes published since sessions were last sent their deliveries.
    published_bytes: usize,
    /// Number of published bytes above which pending deliveries are sent at once.
    published_bytes_max: usize,
}

/// The value of `done_bytes` when the core continued with a connection.
#[must_use]
pub struct Before(usize);

impl Budget {
    /// A budget of `bytes_max` for each connection. Sessions have at most `send_buffer_bytes_max` of pending deliveries.
    pub(crate) fn new(bytes_max: usize, send_buffer_bytes_max: usize) -> Self {
        Self {
            bytes_max,
            done_bytes: 0,
            left_bytes: 0,
            revisited_bytes: 0,
            signatures: SignatureWork::new(SIGNATURES_PER_TURN),
            stop_at_bytes: bytes_max,
            takes_any: false,
            published_bytes: 0,
            published_bytes_max: published_bytes_max(send_buffer_bytes_max),
        }
    }

    pub(crate) fn set_limits(&mut self, bytes_max: usize, send_buffer_bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.published_bytes_max = published_bytes_max(send_buffer_bytes_max);
    }

    #[inline]
    pub(crate) fn begin_turn(&mut self) {
        self.done_bytes = 0;
        self.left_bytes = 0;
        self.revisited_bytes = 0;
        self.signatures = SignatureWork::new(SIGNATURES_PER_TURN);
    }

    /// Begins with a connection whose data has arrived or can now be handled.
    #[inline]
    pub fn begin(&mut self) {
        self.stop_at_bytes = self.bytes_max.max(self.done_bytes + self.bytes_max / SMALLEST_SHARE);
        self.takes_any = false;
    }

    /// Begins with a connection that waited for a condition. `None` if this turn has no room for more such connections.
    pub fn begin_revisited(&mut self) -> Option<Before> {
        (self.revisited_bytes < self.bytes_max).then(|| {
            self.begin();
            Before(self.done_bytes)
        })
    }

    /// Counts the work of a connection that waited for a condition.
    pub fn end_revisited(&mut self, before: Before) {
        self.revisited_bytes += (self.done_bytes - before.0).max(MESSAGE_BYTES);
    }

    /// Returns `true` if this turn has room for more connections that earlier turns left unfinished.
    pub fn has_room(&self) -> bool {
        self.left_bytes < self.bytes_max
    }

    /// Begins with a connection that continues work of an earlier turn.
    pub fn begin_left(&mut self) -> Before {
        self.stop_at_bytes = self.done_bytes + self.bytes_max.saturating_sub(self.left_bytes).max(1);
        self.takes_any = self.left_bytes == 0;
        Before(self.done_bytes)
    }

    /// Counts the work of a connection that continued work of an earlier turn. Even work without bytes took some time.
    pub fn end_left(&mut self, before: Before) {
        self.left_bytes += (self.done_bytes - before.0).max(MESSAGE_BYTES);
    }

    /// Counts published bytes, which sessions have yet to be sent.
    #[inline]
    pub fn count_published(&mut self, bytes: usize) {
        self.published_bytes += bytes;
    }

    /// Returns `true` if so much has been published that pending deliveries must be sent.
    #[inline]
    pub fn published_much(&self) -> bool {
        self.published_bytes > self.published_bytes_max
    }

    /// Returns the number of published bytes and resets it, because pending deliveries are sent now.
    #[inline]
    pub fn take_published(&mut self) -> usize {
        std::mem::take(&mut self.published_bytes)
    }

    /// Returns `true` if work that may publish more continues in this turn, after it has published this number of bytes.
    #[inline]
    pub fn may_publish_after(&self, bytes: usize) -> bool {
        bytes <= self.published_bytes_max
    }

    #[inline]
    pub(crate) fn count(&mut self, bytes: usize) {
        self.done_bytes += bytes;
    }

    /// Counts a token that was refused.
    pub(crate) fn count_refused_token(&mut self) {
        self.count(REFUSED_TOKEN_BYTES);
    }

    /// Counts deliveries to sessions of this core that the current connection has caused.
    #[inline]
    pub(crate) fn count_deliveries(&mut self, deliveries: u64) {
        self.done_bytes += deliveries as usize * DELIVERY_BYTES;
    }

    /// Returns `true` if the current connection has used its share.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.done_bytes >= self.stop_at_bytes
    }

    /// The limits for the next step of a WebSocket: the number of bytes to inflate, and the maximum size of a copied or inflated
    /// message to deliver.
    #[inline]
    pub fn steps(&self) -> StepLimits {
        let bytes = self.stop_at_bytes.saturating_sub(self.done_bytes);
        let deliver_bytes_max = if self.takes_any { usize::MAX } else { bytes };
        StepLimits { inflate_bytes_max: bytes.max(1), deliver_bytes_max }
    }
}

/// The number of published bytes above which pending deliveries are sent: a quarter of a session's send buffer.
fn published_bytes_max(send_buffer_bytes_max: usize) -> usize {
    send_buffer_bytes_max / 4
}
