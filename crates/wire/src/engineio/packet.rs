//! Packets, and their encoding in WebSocket messages.
//!
//! | | protocol 4 | protocol 3 |
//! |---|---|---|
//! | text | text message: kind as a digit, text | the same |
//! | binary | binary message: the data | binary message: the kind as a byte (4), data |
//! | binary as base64 (`b64=1`) | text message: `b`, base64 | text message: `b`, kind as a digit, base64 |
//!
//! Base64 is decoded as in the reference server: padding may be missing, and whitespace is skipped anywhere.

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::Error;
use crate::ws;

/// Accepts missing padding and arbitrary unused bits in the last character, as every JavaScript decoder does.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The protocol revision, parameter `EIO` of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Socket.IO 1 and 2: the client sends the pings, payloads prefix packets with their length.
    V3,
    /// Socket.IO 3 and 4: the server sends the pings, payloads separate packets.
    V4,
}

/// The purpose of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketKind {
    /// The handshake, see [`Open`](super::Open).
    Open,
    /// The session ends.
    Close,
    /// Requests a pong with the same text. Sent by the server in protocol 4 (except probes), by the client in
    /// 3.
    Ping,
    /// Answers a ping.
    Pong,
    /// Carries data of the application.
    Message,
    /// The client moves to the transport that carries this packet.
    Upgrade,
    /// Carries no data; completes a pending poll.
    Noop,
}

impl PacketKind {
    fn from_digit(digit: u8) -> Option<PacketKind> {
        Some(match digit {
            b'0' => PacketKind::Open,
            b'1' => PacketKind::Close,
            b'2' => PacketKind::Ping,
            b'3' => PacketKind::Pong,
            b'4' => PacketKind::Message,
            b'5' => PacketKind::Upgrade,
            b'6' => PacketKind::Noop,
            _ => return None,
        })
    }

    /// Returns the digit that begins a packet with text.
    pub fn digit(self) -> u8 {
        self.digits()[0]
    }

    fn digits(self) -> &'static [u8; 1] {
        match self {
            PacketKind::Open => b"0",
            PacketKind::Close => b"1",
            PacketKind::Ping => b"2",
            PacketKind::Pong => b"3",
            PacketKind::Message => b"4",
            PacketKind::Upgrade => b"5",
            PacketKind::Noop => b"6",
        }
    }
}

/// One packet. Invariant of decoded packets: only a message has binary data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The packet's purpose.
    pub kind: PacketKind,
    /// The packet's data, possibly an empty text.
    pub data: Data<'a>,
}

/// The data of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data<'a> {
    /// Text.
    Text(&'a str),
    /// Bytes.
    Binary(&'a [u8]),
}

impl<'a> Packet<'a> {
    /// Makes a packet with text.
    pub fn text(kind: PacketKind, text: &'a str) -> Self {
        Packet { kind, data: Data::Text(text) }
    }

    /// Makes a message with bytes.
    pub fn binary(bytes: &'a [u8]) -> Self {
        Packet { kind: PacketKind::Message, data: Data::Binary(bytes) }
    }
}

/// Reads the packet in one WebSocket message. The packet borrows from the message or, if it was base64, from
/// `scratch`, whose previous content is overwritten.
///
/// # Errors
/// [`Error::EmptyPacket`], [`Error::UnknownPacketKind`], [`Error::BinaryNotMessage`], and [`Error::BadBase64`].
#[inline]
pub fn decode_message<'a>(
    version: Version,
    message: ws::Message<'a>,
    scratch: &'a mut Vec<u8>,
) -> Result<Packet<'a>, Error> {
    match message {
        ws::Message::Text(text) => decode_text(version, text, scratch),
        ws::Message::Binary(data) => decode_binary(version, data),
    }
}

#[inline]
pub(super) fn decode_text<'a>(
    version: Version,
    text: &'a str,
    scratch: &'a mut Vec<u8>,
) -> Result<Packet<'a>, Error> {
    match text.as_bytes() {
        [] => Err(Error::EmptyPacket),
        [b'b', ..] => decode_base64(version, &text[1..], scratch),
        [digit, ..] => {
            let kind = PacketKind::from_digit(*digit).ok_or(Error::UnknownPacketKind)?;
            Ok(Packet::text(kind, &text[1..]))
        }
    }
}

/// Decodes a base64 message. `text` follows the `b`.
#[cold]
fn decode_base64<'a>(version: Version, text: &str, scratch: &'a mut Vec<u8>) -> Result<Packet<'a>, Error> {
    let base64 = match version {
        Version::V4 => text.as_bytes(),
        Version::V3 => {
            let (digit, base64) = text.as_bytes().split_first().ok_or(Error::EmptyPacket)?;
            check_binary_kind(PacketKind::from_digit(*digit))?;
            base64
        }
    };
    scratch.clear();
    // MIME style, as the Java client writes it: a line break after 76 characters and at the end.
    let without_breaks: Vec<u8>;
    let base64 = if base64.iter().any(u8::is_ascii_whitespace) {
        without_breaks = base64.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
        &without_breaks
    } else {
        base64
    };
    BASE64.decode_vec(base64, scratch).map_err(|_| Error::BadBase64)?;
    Ok(Packet::binary(scratch))
}

pub(super) fn decode_binary(version: Version, data: &[u8]) -> Result<Packet<'_>, Error> {
    match version {
        Version::V4 => Ok(Packet::binary(data)),
        Version::V3 => {
            let (kind, data) = data.split_first().ok_or(Error::EmptyPacket)?;
            check_binary_kind(PacketKind::from_digit(kind.wrapping_add(b'0')))?;
            Ok(Packet::binary(data))
        }
    }
}

fn check_binary_kind(kind: Option<PacketKind>) -> Result<(), Error> {
    match kind {
        Some(PacketKind::Message) => Ok(()),
        Some(_) => Err(Error::BinaryNotMessage),
        None => Err(Error::UnknownPacketKind),
    }
}

/// Returns the bytes that precede a packet's data, and the kind of WebSocket message, for data that isn't
/// base64. Used if the data stays in a shared frame. At most one byte.
pub fn message_header(version: Version, kind: PacketKind, data: ws::Kind) -> &'static [u8] {
    match (data, version) {
        (ws::Kind::Text, _) => kind.digits(),
        (ws::Kind::Binary, Version::V3) => &[4],
        (ws::Kind::Binary, Version::V4) => &[],
    }
}

/// Appends the packet as the content of one WebSocket message and returns the kind of that message. `base64`
/// is set for sessions whose requests have `b64`: they receive text only.
pub fn encode_message(out: &mut Vec<u8>, version: Version, packet: &Packet<'_>, base64: bool) -> ws::Kind {
    match packet.data {
        Data::Text(text) => {
            out.extend_from_slice(message_header(version, packet.kind, ws::Kind::Text));
            out.extend_from_slice(text.as_bytes());
            ws::Kind::Text
        }
        Data::Binary(data) if base64 => {
            encode_base64(out, version, data);
            ws::Kind::Text
        }
        Data::Binary(data) => {
            out.extend_from_slice(message_header(version, packet.kind, ws::Kind::Binary));
            out.extend_from_slice(data);
            ws::Kind::Binary
        }
    }
}

fn base64_prefix(version: Version) -> &'static [u8] {
    match version {
        Version::V4 => b"b",
        Version::V3 => b"b4",
    }
}

/// Returns the number of bytes that [`encode_base64`] appends. All of them are ASCII.
pub(super) fn base64_bytes(version: Version, data: &[u8]) -> usize {
    base64_prefix(version).len() + data.len().div_ceil(3) * 4
}

pub(super) fn encode_base64(out: &mut Vec<u8>, version: Version, data: &[u8]) {
    out.extend_from_slice(base64_prefix(version));
    // Encodes in pieces on the stack. Each piece is a multiple of 3 bytes, so that only the last one is
    // padded.
    let mut encoded = [0; 1024];
    for piece in data.chunks(768) {
        let written = BASE64.encode_slice(piece, &mut encoded).unwrap_or_default();
        out.extend_from_slice(&encoded[..written]);
    }
}
