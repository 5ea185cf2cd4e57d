//! WebSocket as it was before RFC 6455: draft-hixie-thewebsocketprotocol-76 (2010), which the servers of Socket.IO 0.6 and
//! 0.7 speak.
//!
//! * Opening (sections 4.1 and 5.2): a GET with two headers that hide a number each in a text, and 8 bytes behind the
//!   head. The server proves that it has read them with the MD5 of both numbers and those bytes, behind its own head.
//! * Frames (section 5.3): `00`, UTF-8, `FF`. `FF 00` closes. Text has no byte `FF`, so it is cut there, however it comes.
//!
//! Deliberately strict: the frames with a length, which the draft lets clients skip, are a [`Fault`]; no server sends one.

use fastrand::Rng;
use md5::{Digest, Md5};
use memchr::memchr;
use stentor_wire::http1::write_request_head;

use super::answer::AnswerHead;
use super::frames::Piece;
use super::{Dialect, Fault};

/// Before a text, and behind the head of a closing frame.
const BEGIN: u8 = 0;
/// Behind a text, and the head of a closing frame.
const END: u8 = 0xff;
/// Of the answer to the challenge.
const PROOF_BYTES: usize = 16;
/// The most spaces that a key has.
const SPACES_MAX: u64 = 12;

/// An opening that is under way.
pub(super) struct HixieHandshake {
    proof: [u8; PROOF_BYTES],
    answer: AnswerHead,
    /// What came behind the server's head, once that has come.
    rest: Option<Vec<u8>>,
}

impl HixieHandshake {
    /// Asks for `path`. `key` is unlike that of every other connection.
    pub(super) fn begin(dialect: &Dialect, key: u128, path: &str, out: &mut Vec<u8>) -> Self {
        let mut random = Rng::with_seed(key as u64 ^ (key >> 64) as u64);
        let (first, first_number) = hide_number(&mut random);
        let (second, second_number) = hide_number(&mut random);
        let body = random.u64(..).to_be_bytes();
        let headers = [
            ("Upgrade", "WebSocket"),
            ("Connection", "Upgrade"),
            ("Host", dialect.host.as_str()),
            ("Origin", &format!("http://{}", dialect.host)),
            ("Sec-WebSocket-Key1", &first),
            ("Sec-WebSocket-Key2", &second),
        ];
        write_request_head(out, "GET", path, &headers);
        out.extend_from_slice(&body);
        let proof = prove(first_number, second_number, body);
        Self { proof, answer: AnswerHead::default(), rest: None }
    }

    /// Takes what came; once the server has proved itself, what came behind that.
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
        let Some((proof, rest)) = rest.split_at_checked(PROOF_BYTES) else { return Ok(None) };
        match proof == self.proof {
            true => Ok(Some(rest.to_vec())),
            false => Err(Fault::Answer("an answer to another challenge")),
        }
    }
}

/// A text with a number in it (section 4.1, steps 16 to 23): its digits make a multiple of it, by how many spaces are
/// among them.
pub(super) fn hide_number(random: &mut Rng) -> (String, u32) {
    let spaces = random.u64(1..=SPACES_MAX);
    let number = random.u64(..=u64::from(u32::MAX) / spaces) as u32;
    let mut text = (u64::from(number) * spaces).to_string();
    for _ in 0..random.u8(1..=12) {
        // U+0021 to U+002F or U+003A to U+007E.
        let other = match random.u8(..84) {
            low @ 0..15 => 0x21 + low,
            high => 0x3a + high - 15,
        };
        let at = random.usize(..=text.len());
        text.insert(at, char::from(other));
    }
    for _ in 0..spaces {
        // Neither in front nor at the end.
        let at = random.usize(1..text.len());
        text.insert(at, ' ');
    }
    (text, number)
}

/// What a server answers (section 5.2, step 8).
pub(super) fn prove(first: u32, second: u32, body: [u8; 8]) -> [u8; PROOF_BYTES] {
    let digest = Md5::new().chain_update(first.to_be_bytes()).chain_update(second.to_be_bytes());
    digest.chain_update(body).finalize().into()
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
    /// Behind the first byte of a closing frame.
    Closing,
}

/// Cuts the frames of one connection.
#[derive(Debug, Default)]
pub(super) struct HixieReader {
    stage: Stage,
}

impl HixieReader {
    /// Takes `data` and calls `each` for every piece of it; a closing frame counts as one of RFC 6455. Stops where `each`
    /// fails.
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
                        each(Piece::Data { bytes: &data[..end], ends: true })?;
                        data = &data[end + 1..];
                    }
                    None => return each(Piece::Data { bytes: data, ends: false }),
                },
            }
        }
        Ok(())
    }
}
