//! Body framing (RFC 9112 sections 6 and 7): finds the end of a body without copying it.

use super::Error;
use super::list::is_token_byte;

/// Limit for the chunk extensions of one body, in bytes. They are ignored, so many of them only waste CPU
/// time.
pub const CHUNK_EXTENSION_BYTES_MAX: u32 = 4096;

/// Limit for the trailers of one body, in bytes, line ends included.
pub const TRAILER_BYTES_MAX: u32 = 4096;

/// Limit for the digits of a chunk size: enough for 64 bits. Bounds leading zeros too.
const CHUNK_SIZE_DIGITS_MAX: u8 = 16;

/// The rule that determines the end of a body (RFC 9112 section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// The message has no body.
    Empty,
    /// The body has this many bytes, at least one.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
    /// The body ends when the connection closes; responses only.
    UntilClose,
}

/// The result of one [`BodyDecoder::decode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// Number of input bytes that are processed.
    pub consumed: usize,
    /// The next bytes of the body, possibly none.
    pub data: &'a [u8],
    /// `true` if the body has ended. Further input belongs to the next message.
    pub done: bool,
}

/// Extracts one body from the stream.
///
/// The decoder holds a few words and no bytes. The caller limits the body's size, since it sees every byte.
#[derive(Debug, Clone)]
pub struct BodyDecoder {
    state: State,
    /// Invariant: `<= CHUNK_EXTENSION_BYTES_MAX`.
    extension_bytes: u32,
    /// Invariant: `<= TRAILER_BYTES_MAX`.
    trailer_bytes: u32,
}

/// ```text
/// Size -> (Padding | Extension)* -> SizeLf -> Data -> DataCr -> DataLf -> Size
///                                     `-(size 0)-> TrailerStart -> TrailerName -> TrailerValue -> TrailerLf -> TrailerStart
///                                                       `-(CR)-> EndLf -> Done
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Done,
    UntilClose,
    Length(u64),
    Size { value: u64, digits: u8 },
    Padding { size: u64 },
    Extension { size: u64 },
    SizeLf { size: u64 },
    Data(u64),
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
}

const FIRST_SIZE: State = State::Size { value: 0, digits: 0 };

impl BodyDecoder {
    /// Makes a decoder at the start of a body.
    pub fn new(kind: BodyKind) -> Self {
        let state = match kind {
            BodyKind::Empty | BodyKind::Length(0) => State::Done,
            BodyKind::Length(bytes) => State::Length(bytes),
            BodyKind::Chunked => FIRST_SIZE,
            BodyKind::UntilClose => State::UntilClose,
        };
        BodyDecoder { state, extension_bytes: 0, trailer_bytes: 0 }
    }

    /// Returns `true` once the body has ended. When the connection closes, a body of [`BodyKind::UntilClose`]
    /// has ended too; every other unfinished body is truncated.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Processes the start of `input`: framing, and at most one run of data. Call it again with the remaining
    /// bytes until it returns `done` or has consumed all input.
    ///
    /// # Errors
    /// The chunked framing is broken or too large; the connection must be closed.
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Decoded<'a>, Error> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match self.state {
                State::Done => return Ok(Decoded { consumed: at, data: &[], done: true }),
                State::UntilClose => return Ok(Decoded { consumed: input.len(), data: rest, done: false }),
                _ if rest.is_empty() => return Ok(Decoded { consumed: at, data: &[], done: false }),
                State::Length(left) => {
                    let (data, left) = take(rest, left);
                    self.state = if left == 0 { State::Done } else { State::Length(left) };
                    return Ok(Decoded { consumed: at + data.len(), data, done: left == 0 });
                }
                State::Data(left) => {
                    let (data, left) = take(rest, left);
                    self.state = if left == 0 { State::DataCr } else { State::Data(left) };
                    return Ok(Decoded { consumed: at + data.len(), data, done: false });
                }
                framing => {
                    self.state = self.step(framing, rest[0])?;
                    at += 1;
                }
            }
        }
    }

    /// Processes one byte of framing.
    fn step(&mut self, state: State, byte: u8) -> Result<State, Error> {
        Ok(match (state, byte) {
            (State::Size { value, digits }, _) if byte.is_ascii_hexdigit() => {
                if digits == CHUNK_SIZE_DIGITS_MAX {
                    return Err(Error::BadChunk);
                }
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                State::Size { value: value << 4 | u64::from(digit), digits: digits + 1 }
            }
            (State::Size { digits: 0, .. }, _) => return Err(Error::BadChunk),
            (
                State::Size { value: size, .. } | State::Padding { size } | State::Extension { size },
                b'\r',
            ) => State::SizeLf { size },
            (State::Size { value: size, .. } | State::Padding { size }, b' ' | b'\t') => {
                self.count_extension()?;
                State::Padding { size }
            }
            (State::Size { value: size, .. } | State::Padding { size }, b';') => {
                self.count_extension()?;
                State::Extension { size }
            }
            (State::Extension { size }, b'\t' | b' '..=b'~' | 0x80..) => {
                self.count_extension()?;
                State::Extension { size }
            }
            (State::SizeLf { size: 0 }, b'\n') => State::TrailerStart,
            (State::SizeLf { size }, b'\n') => State::Data(size),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => FIRST_SIZE,
            (State::TrailerStart, b'\r') => State::EndLf,
            (State::EndLf, b'\n') => State::Done,
            (State::TrailerStart | State::TrailerName, _) if is_token_byte(byte) => {
                self.count_trailer()?;
                State::TrailerName
            }
            (State::TrailerName, b':') | (State::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => {
                self.count_trailer()?;
                State::TrailerValue
            }
            (State::TrailerValue, b'\r') => {
                self.count_trailer()?;
                State::TrailerLf
            }
            (State::TrailerLf, b'\n') => {
                self.count_trailer()?;
                State::TrailerStart
            }
            (
                State::TrailerStart
                | State::TrailerName
                | State::TrailerValue
                | State::TrailerLf
                | State::EndLf,
                _,
            ) => {
                return Err(Error::BadTrailer);
            }
            _ => return Err(Error::BadChunk),
        })
    }

    fn count_extension(&mut self) -> Result<(), Error> {
        if self.extension_bytes == CHUNK_EXTENSION_BYTES_MAX {
            return Err(Error::ChunkExtensionTooLarge);
        }
        self.extension_bytes += 1;
        Ok(())
    }

    fn count_trailer(&mut self) -> Result<(), Error> {
        if self.trailer_bytes == TRAILER_BYTES_MAX {
            return Err(Error::TrailerTooLarge);
        }
        self.trailer_bytes += 1;
        Ok(())
    }
}

/// Splits off at most `left` bytes. Returns them, and the number of bytes that are still missing.
fn take(bytes: &[u8], left: u64) -> (&[u8], u64) {
    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    (&bytes[..taken], left - taken as u64)
}
