//! What a server sends, frame by frame, without keeping it (RFC 6455 section 5.2).
//!
//! The generator receives hundreds of megabytes a second and needs of each message its length, its first 36
//! bytes and whether the rest is padding. So this reads frames where they lie, however they are cut, and
//! gathers nothing else; `stentor-wire` gathers whole messages and checks UTF-8, which would be the
//! generator's CPU in the result. A message that begins with `"` is a JSON string around the payload, as documents
//! of feeds are: the quotes are checked and left out. Deliberately strict: a mask, a reserved bit, a fragment or a control frame
//! over 125 bytes is a [`Violation`] (no server here has a reason to send them).
//!
//! Invariants: `0 < header_len <= header_need` while a header is gathered; `left` counts the payload bytes
//! of the frame at hand that have not come.

use crate::payload::{HEAD_BYTES, is_padding};

/// Bytes of a control frame kept to answer it (RFC 6455 section 5.5: none is longer).
const CONTROL_BYTES_MAX: usize = 125;

/// Bytes of the longest header without a mask.
const HEADER_BYTES_MAX: usize = 10;

/// A whole frame that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived<'a> {
    /// The opcode's four bits: 1 text, 2 binary, 8 close, 9 ping, 10 pong.
    pub opcode: u8,
    /// Bytes of the payload.
    pub payload_bytes: u64,
    /// The first bytes of the payload: up to [`HEAD_BYTES`] of a message (behind its quote, if it has one), all
    /// of a control frame.
    pub start: &'a [u8],
    /// Whether everything behind that was padding, and a quote at the end where one was at the begin.
    pub clean: bool,
}

/// How a server broke RFC 6455.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A frame from a server is never masked (section 5.1).
    #[error("a masked frame")]
    Masked,
    /// No extension was negotiated (section 5.2).
    #[error("a reserved bit is set")]
    ReservedBit,
    /// Nobody asked for fragments.
    #[error("a fragment")]
    Fragment,
    /// An opcode that doesn't exist.
    #[error("an unknown opcode")]
    UnknownOpcode,
    /// A control frame has at most 125 bytes (section 5.5).
    #[error("a long control frame")]
    LongControl,
}

/// Reads the frames of one connection.
#[derive(Debug, Default)]
pub struct FrameReader {
    left: u64,
    payload_bytes: u64,
    header: [u8; HEADER_BYTES_MAX],
    header_len: u8,
    opcode: u8,
    in_payload: bool,
    /// Whether the message began with a quote.
    quoted: bool,
    clean: bool,
    start_len: u8,
    /// Allocated for a frame whose start is cut; most connections never need it.
    start: Option<Box<[u8; CONTROL_BYTES_MAX]>>,
}

impl FrameReader {
    /// Takes `data` and calls `each` for every frame that is complete with it.
    pub fn feed(&mut self, mut data: &[u8], mut each: impl FnMut(Arrived<'_>)) -> Result<(), Violation> {
        while !data.is_empty() {
            if !self.in_payload && !self.take_header(&mut data)? {
                return Ok(());
            }
            let here = data.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            let (mut payload, rest) = data.split_at(here);
            let ends = self.left == here as u64;
            let whole = ends && self.left == self.payload_bytes;
            if self.left == self.payload_bytes
                && self.opcode < 8
                && let Some((b'"', unquoted)) = payload.split_first()
            {
                self.quoted = true;
                payload = unquoted;
            }
            let keep = self.keep_bytes();
            if whole {
                let (start, padding) = payload.split_at(keep);
                each(Arrived {
                    opcode: self.opcode,
                    payload_bytes: self.payload_bytes,
                    start,
                    clean: self.is_intact(padding, true),
                });
            } else {
                self.take_part(payload, keep, ends);
            }
            self.left -= here as u64;
            data = rest;
            if self.left == 0 {
                if !whole {
                    let start =
                        self.start.as_deref().map_or(&[][..], |start| &start[..usize::from(self.start_len)]);
                    each(Arrived {
                        opcode: self.opcode,
                        payload_bytes: self.payload_bytes,
                        start,
                        clean: self.clean,
                    });
                }
                self.in_payload = false;
                self.header_len = 0;
            } else {
                return Ok(());
            }
        }
        Ok(())
    }

    /// How many bytes of this frame's payload are kept.
    fn keep_bytes(&self) -> usize {
        let keep = if self.opcode >= 8 { CONTROL_BYTES_MAX } else { HEAD_BYTES };
        let unquoted = self.payload_bytes - u64::from(self.quoted);
        keep.min(usize::try_from(unquoted).unwrap_or(usize::MAX))
    }

    /// Whether `rest`, of what follows the start, is as it was sent; it is the last of it if the frame `ends`.
    fn is_intact(&self, rest: &[u8], ends: bool) -> bool {
        match rest.split_last() {
            Some((last, padding)) if ends && self.quoted => *last == b'"' && is_padding(padding),
            _ => is_padding(rest),
        }
    }

    fn take_part(&mut self, payload: &[u8], keep: usize, ends: bool) {
        let had = usize::from(self.start_len);
        let missing = (keep - had).min(payload.len());
        if missing > 0 {
            let start = self.start.get_or_insert_with(|| Box::new([0; CONTROL_BYTES_MAX]));
            start[had..had + missing].copy_from_slice(&payload[..missing]);
            self.start_len += missing as u8;
        }
        self.clean &= self.is_intact(&payload[missing..], ends);
    }

    /// Takes the header's bytes off `data`; true once it is complete (and a frame without payload is left
    /// for the caller to report).
    fn take_header(&mut self, data: &mut &[u8]) -> Result<bool, Violation> {
        loop {
            let have = usize::from(self.header_len);
            let need = if have < 2 { 2 } else { header_bytes(self.header[1]) };
            if have == need {
                break;
            }
            let take = (need - have).min(data.len());
            if take == 0 {
                return Ok(false);
            }
            self.header[have..have + take].copy_from_slice(&data[..take]);
            self.header_len += take as u8;
            *data = &data[take..];
            if have + take == 2 {
                check_start(self.header[0], self.header[1])?;
            }
        }
        let short = self.header[1] & 0x7f;
        let long: &[u8] = &self.header[2..usize::from(self.header_len)];
        self.payload_bytes = match short {
            126 | 127 => long.iter().fold(0, |length, byte| length << 8 | u64::from(*byte)),
            _ => u64::from(short),
        };
        self.left = self.payload_bytes;
        self.opcode = self.header[0] & 0x0f;
        self.in_payload = true;
        self.clean = true;
        self.quoted = false;
        self.start_len = 0;
        Ok(true)
    }
}

fn header_bytes(second: u8) -> usize {
    match second & 0x7f {
        126 => 4,
        127 => 10,
        _ => 2,
    }
}

fn check_start(first: u8, second: u8) -> Result<(), Violation> {
    let opcode = first & 0x0f;
    if first & 0x70 != 0 {
        Err(Violation::ReservedBit)
    } else if second & 0x80 != 0 {
        Err(Violation::Masked)
    } else if first & 0x80 == 0 || opcode == 0 {
        Err(Violation::Fragment)
    } else if !matches!(opcode, 1 | 2 | 8 | 9 | 10) {
        Err(Violation::UnknownOpcode)
    } else if opcode >= 8 && second > 125 {
        Err(Violation::LongControl)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
