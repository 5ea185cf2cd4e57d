//! Encodes and decodes frame headers (RFC 6455 section 5.2).

use std::ops::{Deref, Range};

use super::mask;

/// Size of the longest header in bytes: two bytes, a 64-bit length, a mask.
pub(super) const HEADER_BYTES_MAX: usize = 14;

/// Maximum size of a control frame's payload in bytes (RFC 6455 section 5.5).
pub const CONTROL_BYTES_MAX: usize = 125;

/// Maximum size of a payload whose length needs no further bytes.
const SHORT_BYTES_MAX: usize = 125;

pub(super) const FIN: u8 = 0x80;
pub(super) const RSV1: u8 = 0x40;
pub(super) const RSV2_RSV3: u8 = 0x30;
pub(super) const MASKED: u8 = 0x80;

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8 text.
    Text,
    /// Bytes.
    Binary,
}

impl Kind {
    /// Makes a message of this kind; `None` for text that isn't UTF-8.
    #[inline]
    pub fn message(self, bytes: &[u8]) -> Option<Message<'_>> {
        match self {
            Self::Text => simdutf8::basic::from_utf8(bytes).ok().map(Message::Text),
            Self::Binary => Some(Message::Binary(bytes)),
        }
    }
}

/// A complete message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// UTF-8 text.
    Text(&'a str),
    /// Bytes.
    Binary(&'a [u8]),
}

impl<'a> Message<'a> {
    /// Returns the kind: text or binary.
    #[inline]
    pub fn kind(self) -> Kind {
        match self {
            Self::Text(_) => Kind::Text,
            Self::Binary(_) => Kind::Binary,
        }
    }

    /// Returns the bytes.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }

    /// Returns the text of a text message.
    #[inline]
    pub fn text(self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Binary(_) => None,
        }
    }
}

/// The opcode of a frame (RFC 6455 section 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// Continues a message.
    Continuation = 0,
    /// Begins a text message.
    Text = 1,
    /// Begins a binary message.
    Binary = 2,
    /// Ends the connection.
    Close = 8,
    /// Requests a pong.
    Ping = 9,
    /// Answers a ping.
    Pong = 10,
}

impl Opcode {
    /// Returns `true` for close, ping and pong.
    pub fn is_control(self) -> bool {
        self as u8 >= 8
    }

    pub(super) fn from_bits(bits: u8) -> Option<Opcode> {
        Some(match bits {
            0 => Opcode::Continuation,
            1 => Opcode::Text,
            2 => Opcode::Binary,
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            _ => return None,
        })
    }
}

impl From<Kind> for Opcode {
    fn from(kind: Kind) -> Opcode {
        match kind {
            Kind::Text => Opcode::Text,
            Kind::Binary => Opcode::Binary,
        }
    }
}

/// A frame's header. Can encode malformed frames too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// `true` for the last frame of a message.
    pub fin: bool,
    /// `true` for the first frame of a compressed message.
    pub rsv1: bool,
    /// The opcode.
    pub opcode: Opcode,
    /// Size of the payload in bytes.
    pub payload_bytes: u64,
    /// The mask of a client's frame.
    pub mask: Option<[u8; 4]>,
}

impl Header {
    /// Encodes the header.
    #[inline]
    pub fn encode(&self) -> HeaderBuf {
        let mut bytes = [0; HEADER_BYTES_MAX];
        bytes[0] = self.opcode as u8 | if self.fin { FIN } else { 0 } | if self.rsv1 { RSV1 } else { 0 };
        let mut len = match self.payload_bytes {
            short if short <= SHORT_BYTES_MAX as u64 => {
                bytes[1] = short as u8;
                2
            }
            medium @ ..=0xffff => {
                bytes[1] = 126;
                bytes[2..4].copy_from_slice(&(medium as u16).to_be_bytes());
                4
            }
            long => {
                bytes[1] = 127;
                bytes[2..10].copy_from_slice(&long.to_be_bytes());
                10
            }
        };
        if let Some(mask) = self.mask {
            bytes[1] |= MASKED;
            bytes[len..len + 4].copy_from_slice(&mask);
            len += 4;
        }
        HeaderBuf { bytes, len: len as u8 }
    }
}

/// The bytes of one header, on the stack.
#[derive(Debug, Clone, Copy)]
pub struct HeaderBuf {
    bytes: [u8; HEADER_BYTES_MAX],
    /// Invariant: `2 <= len <= HEADER_BYTES_MAX`.
    len: u8,
}

impl Deref for HeaderBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Makes the header of a complete frame of a server, for a payload that is stored elsewhere.
pub fn server_header(opcode: Opcode, payload_bytes: usize, rsv1: bool) -> HeaderBuf {
    Header { fin: true, rsv1, opcode, payload_bytes: payload_bytes as u64, mask: None }.encode()
}

/// Makes the header of a complete frame of a server. `None` if the payload's length needs further bytes.
#[inline]
pub(crate) fn short_header(opcode: Opcode, payload_bytes: usize) -> Option<[u8; 2]> {
    (payload_bytes <= SHORT_BYTES_MAX).then_some([opcode as u8 | FIN, payload_bytes as u8])
}

/// Appends a complete frame. `rsv1` marks a compressed `payload`; `mask` is for clients.
#[inline]
pub fn encode(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8], rsv1: bool, mask: Option<[u8; 4]>) {
    if mask.is_none() && payload.len() <= SHORT_BYTES_MAX {
        // Most frames of a server take this path, with a third of the general path's instructions.
        let first = opcode as u8 | FIN | if rsv1 { RSV1 } else { 0 };
        out.reserve(2 + payload.len());
        out.extend_from_slice(&[first, payload.len() as u8]);
        return out.extend_from_slice(payload);
    }
    encode_fragment(out, opcode, payload, true, rsv1, mask);
}

/// Appends a complete frame of a server, with the payload that `write` appends. Room for the header is left first, for a
/// payload of about `estimate` bytes. If the estimate is wrong, the payload is moved.
#[inline]
pub fn encode_with(out: &mut Vec<u8>, opcode: Opcode, estimate: usize, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    match estimate {
        ..=SHORT_BYTES_MAX => out.extend_from_slice(&[0; 2]),
        126..=0xffff => out.extend_from_slice(&[0; 4]),
        _ => out.extend_from_slice(&[0; 10]),
    }
    let begin = out.len();
    write(out);
    let payload_bytes = out.len() - begin;
    match &mut out[start..begin] {
        [first, second] if payload_bytes <= SHORT_BYTES_MAX => {
            (*first, *second) = (opcode as u8 | FIN, payload_bytes as u8);
        }
        _ => write_header(out, start..begin, opcode, payload_bytes),
    }
}

/// Writes a server's header into the room that was left for it.
fn write_header(out: &mut Vec<u8>, room: Range<usize>, opcode: Opcode, payload_bytes: usize) {
    let header = server_header(opcode, payload_bytes, false);
    if header.len() == room.len() {
        out[room].copy_from_slice(&header);
    } else {
        out.splice(room, header.iter().copied());
    }
}

/// Appends one frame of a fragmented message. The caller sets `fin` for the last frame, and
/// [`Opcode::Continuation`] without `rsv1` for every frame but the first.
#[inline]
pub fn encode_fragment(
    out: &mut Vec<u8>,
    opcode: Opcode,
    payload: &[u8],
    fin: bool,
    rsv1: bool,
    mask: Option<[u8; 4]>,
) {
    let header = Header { fin, rsv1, opcode, payload_bytes: payload.len() as u64, mask }.encode();
    out.reserve(header.len() + payload.len());
    out.extend_from_slice(&header);
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(mask) = mask {
        mask::apply(&mut out[start..], mask);
    }
}
