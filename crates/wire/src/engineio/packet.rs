//! Packets, and how they travel in WebSocket messages.
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

/// Padding may be missing, and the bits that fill the last character may be anything, as in every JavaScript reader.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The protocol's revision, the `EIO` of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Socket.IO 1 and 2: the client pings, payloads count characters.
    V3,
    /// Socket.IO 3 and 4: the server pings, payloads are separated.
    V4,
}

/// What a packet is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketKind {
    /// The handshake, see [`Open`](super::Open).
    Open,
    /// The session ends.
    Close,
    /// Asks for a pong with the same text. From the server in protocol 4, but for probes; from the client in 3.
    Ping,
    /// The answer.
    Pong,
    /// Data of the application.
    Message,
    /// The client moves to the transport that carries this.
    Upgrade,
    /// Nothing; ends a poll.
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

    /// The digit that begins a packet with text.
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

/// One packet. Invariant of decoded ones: binary data is a message's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// What it is for.
    pub kind: PacketKind,
    /// What it carries, perhaps an empty text.
    pub data: Data<'a>,
}

/// What a packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data<'a> {
    /// Text.
    Text(&'a str),
    /// Bytes.
    Binary(&'a [u8]),
}

impl<'a> Packet<'a> {
    /// A packet with text.
    pub fn text(kind: PacketKind, text: &'a str) -> Self {
        Packet { kind, data: Data::Text(text) }
    }

    /// A message with bytes.
    pub fn binary(bytes: &'a [u8]) -> Self {
        Packet { kind: PacketKind::Message, data: Data::Binary(bytes) }
    }
}

/// Reads the packet in one WebSocket message. It borrows from the message, or, if it was base64, from `scratch`, whose
/// old content is lost.
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

/// `text` is what follows the `b`.
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
    // MIME style, as the Java client has it: a line break after 76 characters and at the end.
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

/// What comes before a packet's data, and in which kind of message, when the data goes as it is: for data that stays in
/// a shared frame. At most one byte.
pub fn message_header(version: Version, kind: PacketKind, data: ws::Kind) -> &'static [u8] {
    match (data, version) {
        (ws::Kind::Text, _) => kind.digits(),
        (ws::Kind::Binary, Version::V3) => &[4],
        (ws::Kind::Binary, Version::V4) => &[],
    }
}

/// Appends the packet as the content of one WebSocket message of the returned kind. `base64` is for a session whose
/// requests say `b64`: it gets text only.
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

/// Bytes that [`encode_base64`] appends: all ASCII.
pub(super) fn base64_bytes(version: Version, data: &[u8]) -> usize {
    base64_prefix(version).len() + data.len().div_ceil(3) * 4
}

pub(super) fn encode_base64(out: &mut Vec<u8>, version: Version, data: &[u8]) {
    out.extend_from_slice(base64_prefix(version));
    // In pieces through the stack: a multiple of 3 bytes in each, so that only the last one is padded.
    let mut encoded = [0; 1024];
    for piece in data.chunks(768) {
        let written = BASE64.encode_slice(piece, &mut encoded).unwrap_or_default();
        out.extend_from_slice(&encoded[..written]);
    }
}
