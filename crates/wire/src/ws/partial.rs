//! The state of a connection within a frame or a message, and between messages if the client keeps its
//! context.

use super::deflate::Window;
use super::frame::{HEADER_BYTES_MAX, Kind, Opcode};
use super::step::Paused;

/// An incomplete frame or message, or the window of a client that keeps its context.
#[derive(Default)]
pub(super) struct Partial {
    /// The start of a header, `header[..header_len]`, still too short to be parsed.
    pub(super) header: [u8; HEADER_BYTES_MAX],
    pub(super) header_len: u8,
    /// The frame whose payload is arriving.
    pub(super) frame: Option<Frame>,
    /// The incomplete message, with any number of frames so far.
    pub(super) message: Option<Message>,
    /// The message's bytes so far, unmasked, not inflated.
    pub(super) payload: Vec<u8>,
    /// The payload of a control frame that arrives in pieces.
    pub(super) control: Vec<u8>,
    /// The complete message in `payload`, if it waits for delivery.
    pub(super) paused: Option<Paused>,
    /// Empty unless the client keeps its context.
    pub(super) window: Window,
}

/// A frame with a valid header.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) opcode: Opcode,
    pub(super) fin: bool,
    pub(super) rsv1: bool,
    /// The masking key, rotated so that its first byte applies to the next byte of the payload. Zero without
    /// a mask.
    pub(super) mask: [u8; 4],
    /// Missing bytes of the payload. `usize` suffices, because the limits have been checked.
    pub(super) left: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) compressed: bool,
    pub(super) fragments: u32,
    /// `payload[..valid]` is valid UTF-8. Stays 0 unless the message is uncompressed text.
    pub(super) valid: usize,
}

impl Partial {
    /// Returns `true` if no frame or message is incomplete.
    pub(super) fn is_between_messages(&self) -> bool {
        self.header_len == 0 && self.frame.is_none() && self.message.is_none() && self.paused.is_none()
    }

    /// Returns `true` if it holds no data.
    pub(super) fn is_idle(&self) -> bool {
        self.is_between_messages() && self.window.is_empty()
    }
}

impl Frame {
    /// Returns the frame after `done` more bytes of its payload.
    pub(super) fn after(mut self, done: usize) -> Frame {
        self.mask.rotate_left(done % 4);
        self.left -= done;
        self
    }
}
