//! What is kept of a connection while a frame or a message is under way.

use super::frame::{HEADER_BYTES_MAX, Kind, Opcode};
use super::step::Paused;

/// A frame or message under way.
#[derive(Default)]
pub(super) struct Partial {
    /// The start of a header: `header[..header_len]`, too short to be read yet.
    pub(super) header: [u8; HEADER_BYTES_MAX],
    pub(super) header_len: u8,
    /// The frame whose payload is arriving.
    pub(super) frame: Option<Frame>,
    /// The message that has begun, however many frames it has so far.
    pub(super) message: Option<Message>,
    /// The message's bytes so far, unmasked, not inflated.
    pub(super) payload: Vec<u8>,
    /// The payload of a control frame that arrives in pieces.
    pub(super) control: Vec<u8>,
    /// The message whose bytes `payload` has is whole, and waits to be delivered.
    pub(super) paused: Option<Paused>,
}

/// A frame whose header has been read and found good.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) opcode: Opcode,
    pub(super) fin: bool,
    pub(super) rsv1: bool,
    /// Turned so that its first byte belongs to the next byte of the payload; zero if there is none.
    pub(super) mask: [u8; 4],
    /// Bytes of the payload that are still to come. `usize` suffices: the limits were checked first.
    pub(super) left: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) compressed: bool,
    pub(super) fragments: u32,
    /// `payload[..valid]` is valid UTF-8; stays 0 unless this is text and not compressed.
    pub(super) valid: usize,
}

impl Partial {
    pub(super) fn is_idle(&self) -> bool {
        self.header_len == 0 && self.frame.is_none() && self.message.is_none() && self.paused.is_none()
    }
}

impl Frame {
    /// What is left of the frame after `done` more bytes of its payload.
    pub(super) fn after(mut self, done: usize) -> Frame {
        self.mask.rotate_left(done % 4);
        self.left -= done;
        self
    }
}
