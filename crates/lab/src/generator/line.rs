//! What waits to be sent on one of the driver's connections, and how it leaves.
//!
//! Invariant: bytes wait in the outbox only while the connection isn't up or a send is in flight, or to leave in pieces.

use stentor_driver::{ConnId, Driver, Sending};

/// The longest piece of what is said in pieces.
const PIECE_BYTES_MAX: usize = 3;

/// One of the driver's connections.
pub(super) struct Line {
    pub(super) conn: ConnId,
    /// Whether the kernel has connected it.
    pub(super) up: bool,
    pub(super) in_flight: bool,
    /// Whether what is written waits until it is sent piece by piece.
    in_pieces: bool,
    outbox: Vec<u8>,
}

impl Line {
    pub(super) fn new(conn: ConnId, behavior: ClientBehavior) -> Self {
        Self {
            conn,
            up: false,
            in_flight: false,
            in_pieces: behavior == ClientBehavior::Pieces,
            outbox: Vec::new(),
        }
    }

    pub(super) fn write(&mut self, driver: &mut impl Driver, bytes: &[u8]) {
        if self.in_flight || !self.up || self.in_pieces {
            self.outbox.extend_from_slice(bytes);
        } else {
            self.in_flight = driver.send_bytes(self.conn, bytes) == Sending::InFlight;
        }
    }

    pub(super) fn flush(&mut self, driver: &mut impl Driver) {
        if self.up && !self.in_flight && !self.in_pieces && !self.outbox.is_empty() {
            let outbox = std::mem::take(&mut self.outbox);
            self.in_flight = driver.send_bytes(self.conn, &outbox) == Sending::InFlight;
        }
    }

    /// Sends the next piece, one to three bytes; TCP_NODELAY makes a segment of it.
    pub(super) fn drip(&mut self, driver: &mut impl Driver) {
        if self.up && !self.in_flight && !self.outbox.is_empty() {
            let end = (1 + self.outbox.len() % PIECE_BYTES_MAX).min(self.outbox.len());
            self.in_flight = driver.send_bytes(self.conn, &self.outbox[..end]) == Sending::InFlight;
            self.outbox.drain(..end);
        }
    }
}

/// How clients of a pool behave, other than well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ClientBehavior {
    /// Well.
    #[default]
    Good,
    /// What they say leaves in segments of one to three bytes.
    Pieces,
    /// They read once each time that their reading is resumed.
    Sips,
    /// They say nothing any more once they are open, no heartbeat either.
    Silent,
    /// They connect, and say nothing at all.
    Mute,
}
