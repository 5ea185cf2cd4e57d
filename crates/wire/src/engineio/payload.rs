//! Payloads: several packets in one body.
//!
//! | format | a packet | the body |
//! |---|---|---|
//! | [`Separated`](PayloadFormat::Separated) | as in a text message | joined by U+001E |
//! | [`Counted`](PayloadFormat::Counted) | its length in UTF-16 units, `:`, then as in a text message | one after the other |
//! | [`CountedTwice`](PayloadFormat::CountedTwice) | the same, of the text whose characters are the UTF-8 bytes of the packet | one after the other |
//! | [`Octets`](PayloadFormat::Octets) | `00` (text) or `01`, its length in bytes as digits of a byte each, `FF`, then as in a message | one after the other |

use super::packet::{base64_bytes, decode_binary, decode_text, encode_base64};
use super::{Data, Error, Packet, PacketKind, Version, message_header};
use crate::ws;

/// The separator between packets in protocol 4.
const SEPARATOR: u8 = 0x1e;

/// Maximum number of digits in a length: more than any body needs.
const LENGTH_DIGITS_MAX: usize = 12;

/// Encoding of packets in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadFormat {
    /// Protocol 4.
    Separated,
    /// Protocol 3, text; binary data is base64.
    Counted,
    /// [`Counted`](Self::Counted) as engine.io-client 1.x reads and writes it: encoded as UTF-8 twice.
    CountedTwice,
    /// Protocol 3, with raw binary data.
    Octets,
}

impl PayloadFormat {
    /// Returns the format of a POST's body. `is_octet_stream` is `true` if its Content-Type is
    /// `application/octet-stream`. `None` for such a body in protocol 4: the server refuses it with status
    /// 400 and closes the session.
    pub fn of_request(version: Version, is_octet_stream: bool) -> Option<PayloadFormat> {
        match (version, is_octet_stream) {
            (Version::V4, false) => Some(PayloadFormat::Separated),
            (Version::V4, true) => None,
            (Version::V3, false) => Some(PayloadFormat::Counted),
            (Version::V3, true) => Some(PayloadFormat::Octets),
        }
    }

    /// Returns the format of the response to a poll. `text_only` is set if the request has `b64` or `j`.
    pub fn of_answer(version: Version, text_only: bool, has_binary: bool) -> PayloadFormat {
        match version {
            Version::V4 => PayloadFormat::Separated,
            Version::V3 if has_binary && !text_only => PayloadFormat::Octets,
            Version::V3 => PayloadFormat::Counted,
        }
    }

    /// Returns the format that engine.io-client 1.x uses in place of this one. Packets with text in
    /// [`Octets`](Self::Octets) are the same in all versions.
    pub fn of_client_1(self) -> Self {
        if self == PayloadFormat::Counted { PayloadFormat::CountedTwice } else { self }
    }

    /// Returns the Content-Type of a POST or a response in this format, JSONP excepted.
    pub fn content_type(self) -> &'static str {
        match self {
            PayloadFormat::Separated | PayloadFormat::Counted | PayloadFormat::CountedTwice => {
                "text/plain; charset=UTF-8"
            }
            PayloadFormat::Octets => "application/octet-stream",
        }
    }

    fn version(self) -> Version {
        match self {
            PayloadFormat::Separated => Version::V4,
            PayloadFormat::Counted | PayloadFormat::CountedTwice | PayloadFormat::Octets => Version::V3,
        }
    }
}

/// Reads the packets of a body one by one.
#[derive(Debug)]
pub struct PayloadDecoder<'b> {
    rest: Remaining<'b>,
    version: Version,
    packets_left: usize,
    is_twice: bool,
    /// The last packet that was encoded as UTF-8 twice, decoded once.
    once: String,
    /// The last decoded base64 data. Unallocated until the first base64 packet.
    scratch: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum Remaining<'b> {
    /// A packet follows, possibly an empty one.
    Separated(&'b str),
    Counted(&'b str),
    Octets(&'b [u8]),
    /// The last packet has been read, or an error occurred.
    Nothing,
}

/// An encoded packet.
enum Piece<'b> {
    Text(&'b str),
    Binary(&'b [u8]),
}

impl<'b> PayloadDecoder<'b> {
    /// Makes a decoder of `body` that accepts at most `packets_max` packets.
    ///
    /// # Errors
    /// [`Error::EmptyPayload`], and [`Error::BadUtf8`] in text formats.
    pub fn new(format: PayloadFormat, body: &'b [u8], packets_max: usize) -> Result<Self, Error> {
        if body.is_empty() {
            return Err(Error::EmptyPayload);
        }
        let text = || simdutf8::basic::from_utf8(body).map_err(|_| Error::BadUtf8);
        let rest = match format {
            PayloadFormat::Separated => Remaining::Separated(text()?),
            PayloadFormat::Counted | PayloadFormat::CountedTwice => Remaining::Counted(text()?),
            PayloadFormat::Octets => Remaining::Octets(body),
        };
        Ok(PayloadDecoder {
            rest,
            version: format.version(),
            packets_left: packets_max,
            is_twice: format == PayloadFormat::CountedTwice,
            once: String::new(),
            scratch: Vec::new(),
        })
    }

    /// Returns the next packet; `None` after the last packet and after an error.
    ///
    /// # Errors
    /// All variants of [`Error`] that concern packets. Packets before the faulty one are valid, and the
    /// reference has already processed them.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, Error> {
        let piece = match self.next_piece() {
            Ok(Some(piece)) => piece,
            Ok(None) => return Ok(None),
            Err(error) => {
                self.rest = Remaining::Nothing;
                return Err(error);
            }
        };
        let packet = match piece {
            Piece::Text(text) if self.is_twice && !text.is_ascii() => {
                self.once = utf8_once(text).unwrap_or_else(|| text.to_owned());
                decode_text(self.version, &self.once, &mut self.scratch)
            }
            Piece::Text(text) => decode_text(self.version, text, &mut self.scratch),
            Piece::Binary(data) => decode_binary(self.version, data),
        };
        if packet.is_err() {
            self.rest = Remaining::Nothing;
        }
        packet.map(Some)
    }

    /// Returns the number of unread bytes of the body. A reader that stops can continue with these bytes
    /// later.
    pub fn bytes_left(&self) -> usize {
        match self.rest {
            Remaining::Separated(text) | Remaining::Counted(text) => text.len(),
            Remaining::Octets(bytes) => bytes.len(),
            Remaining::Nothing => 0,
        }
    }

    fn next_piece(&mut self) -> Result<Option<Piece<'b>>, Error> {
        loop {
            let (piece, rest) = match self.rest {
                Remaining::Nothing | Remaining::Counted("") | Remaining::Octets([]) => return Ok(None),
                Remaining::Separated(text) => match memchr::memchr(SEPARATOR, text.as_bytes()) {
                    Some(end) => (Piece::Text(&text[..end]), Remaining::Separated(&text[end + 1..])),
                    None => (Piece::Text(text), Remaining::Nothing),
                },
                Remaining::Counted(text) => {
                    let (text, rest) = counted(text)?;
                    (Piece::Text(text), Remaining::Counted(rest))
                }
                Remaining::Octets(bytes) => {
                    let (piece, rest) = octets(bytes)?;
                    (piece, Remaining::Octets(rest))
                }
            };
            self.packets_left = self.packets_left.checked_sub(1).ok_or(Error::TooManyPackets)?;
            self.rest = rest;
            if !matches!((&piece, rest), (Piece::Text(""), Remaining::Counted(_))) {
                return Ok(Some(piece));
            }
        }
    }
}

/// Undoes one UTF-8 encoding: returns the text whose UTF-8 bytes are the characters of `text`. `None` for
/// text that was encoded only once, as by engine.io-client 2.
fn utf8_once(text: &str) -> Option<String> {
    let bytes: Vec<u8> = text.chars().map(|char| u8::try_from(char).ok()).collect::<Option<_>>()?;
    String::from_utf8(bytes).ok()
}

/// Splits the first packet off `text`, which isn't empty.
fn counted(text: &str) -> Result<(&str, &str), Error> {
    let digits = text.bytes().take(LENGTH_DIGITS_MAX).take_while(u8::is_ascii_digit).count();
    let units = number(text.bytes().take(digits)).ok_or(Error::BadLength)?;
    let text = text[digits..].strip_prefix(':').ok_or(Error::BadLength)?;
    text.split_at_checked(utf16_prefix_bytes(text, units)?).ok_or(Error::Truncated)
}

/// Splits the first packet off `bytes`, which aren't empty.
fn octets(bytes: &[u8]) -> Result<(Piece<'_>, &[u8]), Error> {
    let (kind, bytes) = bytes.split_first().ok_or(Error::BadLength)?;
    let digits = bytes.iter().take(LENGTH_DIGITS_MAX).take_while(|digit| **digit <= 9).count();
    let length = number(bytes[..digits].iter().map(|digit| digit + b'0')).ok_or(Error::BadLength)?;
    let Some((0xff, bytes)) = bytes[digits..].split_first() else { return Err(Error::BadLength) };
    let (data, rest) = bytes.split_at_checked(length).ok_or(Error::Truncated)?;
    let piece = match kind {
        0 => Piece::Text(simdutf8::basic::from_utf8(data).map_err(|_| Error::BadUtf8)?),
        1 => Piece::Binary(data),
        _ => return Err(Error::BadLength),
    };
    Ok((piece, rest))
}

/// Reads a number of at most [`LENGTH_DIGITS_MAX`] ASCII digits; `None` if there is no digit.
fn number(digits: impl Iterator<Item = u8>) -> Option<usize> {
    digits.fold(None, |value: Option<usize>, digit| {
        Some(value.unwrap_or(0).saturating_mul(10).saturating_add(usize::from(digit - b'0')))
    })
}

/// Returns the number of UTF-16 units of `text`.
fn utf16_units(text: &str) -> usize {
    // One unit per character, two for a character of four bytes.
    text.bytes().map(|byte| usize::from(byte & 0xc0 != 0x80) + usize::from(byte >= 0xf0)).sum()
}

/// Returns the number of bytes at the start of `text` that hold `units` UTF-16 units.
fn utf16_prefix_bytes(text: &str, units: usize) -> Result<usize, Error> {
    if text.as_bytes().get(..units).ok_or(Error::Truncated)?.is_ascii() {
        return Ok(units);
    }
    let mut left = units;
    for (at, char) in text.char_indices() {
        if left == 0 {
            return Ok(at);
        }
        left = left.checked_sub(char.len_utf16()).ok_or(Error::Truncated)?;
    }
    if left == 0 { Ok(text.len()) } else { Err(Error::Truncated) }
}

/// Writes packets into one body, at the end of a buffer.
#[derive(Debug)]
pub struct PayloadEncoder<'o> {
    out: &'o mut Vec<u8>,
    /// The body is `out[start..]`.
    start: usize,
    format: PayloadFormat,
}

impl<'o> PayloadEncoder<'o> {
    /// Starts a body at the end of `out`.
    pub fn new(format: PayloadFormat, out: &'o mut Vec<u8>) -> Self {
        PayloadEncoder { start: out.len(), out, format }
    }

    /// Returns the number of bytes in the body so far.
    pub fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Returns `true` if the body has no packet yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size that the body would have with this packet, in bytes.
    pub fn len_with(&self, packet: &Packet<'_>) -> usize {
        self.len() + self.part(packet).bytes(self.format, self.is_empty())
    }

    /// Adds a packet.
    pub fn push(&mut self, packet: &Packet<'_>) {
        self.push_part(&self.part(packet));
    }

    /// Adds a packet that is already encoded as a text message (`4hello`), as it stands in a shared frame.
    pub fn push_encoded(&mut self, packet: &str) {
        self.push_part(&self.encoded_part(packet));
    }

    fn part<'a>(&self, packet: &Packet<'a>) -> Part<'a> {
        match packet.data {
            Data::Binary(data) => Part::Binary(data),
            Data::Text(text) if self.would_split(text) => Part::Binary(text.as_bytes()),
            Data::Text(text) => Part::Text(Some(packet.kind), text),
        }
    }

    fn encoded_part<'a>(&self, packet: &'a str) -> Part<'a> {
        if self.would_split(packet) {
            Part::Binary(packet.as_bytes().get(1..).unwrap_or_default())
        } else {
            Part::Text(None, packet)
        }
    }

    /// Returns `true` if the text contains a separator. A client would read such text as several packets, of
    /// kinds that the author of the text chose, so it is sent as binary data with the same bytes. The
    /// reference sends it as text. JSON never contains this character.
    fn would_split(&self, text: &str) -> bool {
        self.format == PayloadFormat::Separated && memchr::memchr(SEPARATOR, text.as_bytes()).is_some()
    }

    fn push_part(&mut self, part: &Part<'_>) {
        let (format, is_first) = (self.format, self.is_empty());
        self.out.reserve(part.bytes(format, is_first));
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(part.length(format));
        match format {
            PayloadFormat::Separated if is_first => {}
            PayloadFormat::Separated => self.out.push(SEPARATOR),
            PayloadFormat::Counted | PayloadFormat::CountedTwice => {
                self.out.extend_from_slice(digits.as_bytes());
                self.out.push(b':');
            }
            PayloadFormat::Octets => {
                self.out.push(u8::from(matches!(part, Part::Binary(_))));
                self.out.extend(digits.bytes().map(|digit| digit - b'0'));
                self.out.push(0xff);
            }
        }
        match part {
            Part::Text(kind, text) => {
                self.out.extend(kind.map(PacketKind::digit));
                if format == PayloadFormat::CountedTwice && !text.is_ascii() {
                    let mut encoded = [0; 2];
                    for byte in text.bytes() {
                        self.out.extend_from_slice(char::from(byte).encode_utf8(&mut encoded).as_bytes());
                    }
                } else {
                    self.out.extend_from_slice(text.as_bytes());
                }
            }
            Part::Binary(data) if format == PayloadFormat::Octets => {
                self.out.extend_from_slice(message_header(
                    Version::V3,
                    PacketKind::Message,
                    ws::Kind::Binary,
                ));
                self.out.extend_from_slice(data);
            }
            Part::Binary(data) => encode_base64(self.out, format.version(), data),
        }
    }
}

/// A packet that is about to be written.
enum Part<'a> {
    /// The kind, unless the text already begins with it, and the text.
    Text(Option<PacketKind>, &'a str),
    Binary(&'a [u8]),
}

impl Part<'_> {
    /// Returns the length that precedes the packet, in every format but the separated one.
    fn length(&self, format: PayloadFormat) -> usize {
        match (self, format) {
            (Part::Text(kind, text), PayloadFormat::Counted) => {
                usize::from(kind.is_some()) + utf16_units(text)
            }
            (Part::Text(kind, text), _) => usize::from(kind.is_some()) + text.len(),
            (Part::Binary(data), PayloadFormat::Octets) => 1 + data.len(),
            (Part::Binary(data), _) => base64_bytes(format.version(), data),
        }
    }

    /// Returns the number of bytes that the packet adds to a body.
    fn bytes(&self, format: PayloadFormat, is_first: bool) -> usize {
        let length = self.length(format);
        let digits = length.checked_ilog10().map_or(1, |log| log as usize + 1);
        match (self, format) {
            (_, PayloadFormat::Separated) => usize::from(!is_first) + length,
            (Part::Text(kind, text), PayloadFormat::Counted) => {
                digits + 1 + usize::from(kind.is_some()) + text.len()
            }
            (Part::Text(_, text), PayloadFormat::CountedTwice) => {
                digits + 1 + length + text.bytes().filter(|byte| !byte.is_ascii()).count()
            }
            (Part::Binary(_), PayloadFormat::Counted | PayloadFormat::CountedTwice) => digits + 1 + length,
            (_, PayloadFormat::Octets) => digits + 2 + length,
        }
    }
}
