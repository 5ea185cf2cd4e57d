//! WebSocket before RFC 6455: draft-hixie-thewebsocketprotocol-76 (2010), which the servers of Socket.IO 0.6 and 0.7 use.
//!
//! * Opening (sections 4.1 and 5.2): a GET with two headers that hide a number each in a text, and 8 bytes behind the
//!   head. The server proves that it has read them with the MD5 of both numbers and those bytes, behind its own head. All
//!   clients have the challenge that the draft has as an example: it costs a server what any other does.
//! * Frames (section 5.3): `00`, UTF-8, `FF`. `FF 00` closes. Text has no byte `FF`, so it is cut there, however it comes.
//!
//! Deliberately strict: frames with a length, which the draft lets clients skip, are a [`Fault`], because no server
//! sends them.

use memchr::memchr;
use stentor_wire::http1::write_request_head;

use super::answer::AnswerHead;
use super::frames::Piece;
use super::{Dialect, Fault};

/// The byte before a text, and the second byte of a closing frame.
const BEGIN: u8 = 0;
/// The byte after a text, and the first byte of a closing frame.
const END: u8 = 0xff;
/// The challenge of section 1.2 and its answer.
const KEYS: [&str; 2] = ["4 @1  46546xW%0l 1 5", "12998 5 Y3 1  .P00"];
const BODY: &[u8] = b"^n:ds[4U";
pub(super) const PROOF: &[u8] = b"8jKS'y:G*Co,Wxa-";

/// A handshake in progress.
#[derive(Default)]
pub(super) struct HixieHandshake {
    answer: AnswerHead,
    /// Bytes after the server's headers, once those are complete.
    rest: Option<Vec<u8>>,
}

impl HixieHandshake {
    /// Requests `path`.
    pub(super) fn begin(dialect: &Dialect, path: &str, out: &mut Vec<u8>) -> Self {
        let headers = [
            ("Upgrade", "WebSocket"),
            ("Connection", "Upgrade"),
            ("Host", dialect.host.as_str()),
            ("Origin", &format!("http://{}", dialect.host)),
            ("Sec-WebSocket-Key1", KEYS[0]),
            ("Sec-WebSocket-Key2", KEYS[1]),
        ];
        write_request_head(out, "GET", path, &headers);
        out.extend_from_slice(BODY);
        Self::default()
    }

    /// Consumes received data. Once the server's proof has arrived, returns the data after it.
    pub(super) fn take(&mut self, data: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let rest = match &mut self.rest {
            Some(rest) => {
                rest.extend_from_slice(data);
                rest
            }
            None => {
                let agreed = self.answer.take(data, |answer| match answer.status() {
                    101 => Ok(()),
                    status => Err(Fault::Status(status, String::new())),
                })?;
                let Some(((), rest)) = agreed else { return Ok(None) };
                self.rest.insert(rest)
            }
        };
        let Some((proof, rest)) = rest.split_at_checked(PROOF.len()) else { return Ok(None) };
        match proof == PROOF {
            true => Ok(Some(rest.to_vec())),
            false => Err(Fault::Answer("an answer to another challenge")),
        }
    }
}

/// Appends a text as a frame.
pub(super) fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(BEGIN);
    out.extend_from_slice(text);
    out.push(END);
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Between,
    Text,
    /// The first byte of a closing frame has arrived.
    Closing,
}

/// Splits the data of one connection into frames.
#[derive(Debug, Default)]
pub(super) struct HixieReader {
    stage: Stage,
}

impl HixieReader {
    /// Consumes `data` and calls `each` for every piece. A closing frame is passed on as one of RFC 6455. Stops at the
    /// first error of `each`.
    pub(super) fn feed(
        &mut self,
        mut data: &[u8],
        mut each: impl FnMut(Piece<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        while let Some((first, rest)) = data.split_first() {
            match self.stage {
                Stage::Between => {
                    self.stage = match *first {
                        BEGIN => Stage::Text,
                        END => Stage::Closing,
                        _ => return Err(Fault::Answer("a frame that isn't text")),
                    };
                    data = rest;
                }
                Stage::Closing => {
                    if *first != BEGIN {
                        return Err(Fault::Answer("a frame that isn't text"));
                    }
                    self.stage = Stage::Between;
                    data = rest;
                    each(Piece::Control { opcode: 8, payload: b"" })?;
                }
                Stage::Text => match memchr(END, data) {
                    Some(end) => {
                        self.stage = Stage::Between;
                        each(Piece::Data { bytes: &data[..end], ends: true, compressed: false })?;
                        data = &data[end + 1..];
                    }
                    None => return each(Piece::Data { bytes: data, ends: false, compressed: false }),
                },
            }
        }
        Ok(())
    }
}
