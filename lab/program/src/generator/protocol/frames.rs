//! Reads the frames of a server without keeping their payloads (RFC 6455, section 5.2).
//!
//! The generator receives hundreds of megabytes per second and needs little of each message. So this module splits the data into
//! frames in place, however it arrives, and passes their payload on piece by piece. `stentor-wire` would assemble whole messages and
//! check UTF-8, which would add the generator's CPU to the result. It is deliberately strict: a mask, a reserved bit (except that of
//! negotiated compression), a fragment or a control frame over 125 bytes is a [`Violation`], because no server here has a reason to
//! send them.
//!
//! Invariants: while a header is collected, `header_len` is below its full length. `left` is the number of missing
//! payload bytes of the current frame.

/// Maximum size of a control frame in bytes, all of which are kept for the answer (RFC 6455 section 5.5).
const CONTROL_BYTES_MAX: usize = 125;

/// Size of the longest header without a mask, in bytes.
const HEADER_BYTES_MAX: usize = 10;

/// The bit of a compressed message.
const COMPRESSED: u8 = 0x40;

/// A part of the server's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// The next bytes of a text or binary message, possibly none.
    Data {
        /// The bytes.
        bytes: &'a [u8],
        /// `true` if the bytes are the last ones of this message.
        ends: bool,
        /// `true` if the message is compressed (RFC 7692 section 6).
        compressed: bool,
    },
    /// A complete control frame.
    Control {
        /// 8 close, 9 ping, 10 pong.
        opcode: u8,
        /// The payload.
        payload: &'a [u8],
    },
}

/// A violation of RFC 6455 by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum Violation {
    /// A server's frame has a mask (section 5.1).
    #[error("a masked frame")]
    Masked,
    /// A reserved bit is set without a negotiated extension (section 5.2).
    #[error("a reserved bit is set")]
    ReservedBit,
    /// The generator's servers have no reason to fragment.
    #[error("a fragment")]
    Fragment,
    /// Unknown opcode.
    #[error("an unknown opcode")]
    UnknownOpcode,
    /// A control frame is longer than 125 bytes (section 5.5).
    #[error("a long control frame")]
    LongControl,
}

/// Splits the data of one connection into frames.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    left: u64,
    header: [u8; HEADER_BYTES_MAX],
    header_len: u8,
    in_payload: bool,
    /// `true` if compression was negotiated.
    pub(super) deflate: bool,
    control_len: u8,
    /// Allocated for a control frame that arrives in pieces, which is rare.
    control: Option<Box<[u8; CONTROL_BYTES_MAX]>>,
}

impl FrameReader {
    /// Consumes `data` and calls `each` for every piece. Stops at the first error of `each`.
    pub(super) fn feed<E: From<Violation>>(
        &mut self,
        mut data: &[u8],
        mut each: impl FnMut(Piece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !data.is_empty() {
            if !self.in_payload && !self.take_header(&mut data)? {
                return Ok(());
            }
            let here = data.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            let (bytes, rest) = data.split_at(here);
            data = rest;
            self.left -= here as u64;
            let ends = self.left == 0;
            if ends {
                self.in_payload = false;
                self.header_len = 0;
            }
            let opcode = self.header[0] & 0x0f;
            if opcode < 8 {
                if ends || here > 0 {
                    each(Piece::Data { bytes, ends, compressed: self.header[0] & COMPRESSED != 0 })?;
                }
            } else if let Some(payload) = self.take_control(bytes, ends) {
                each(Piece::Control { opcode, payload })?;
            }
        }
        Ok(())
    }

    /// Returns the payload of a control frame, once it is complete.
    fn take_control<'a>(&'a mut self, bytes: &'a [u8], ends: bool) -> Option<&'a [u8]> {
        let had = usize::from(self.control_len);
        if ends && had == 0 {
            return Some(bytes);
        }
        let control = self.control.get_or_insert_with(|| Box::new([0; CONTROL_BYTES_MAX]));
        let len = had + bytes.len();
        control[had..len].copy_from_slice(bytes);
        self.control_len = if ends { 0 } else { len as u8 };
        ends.then_some(&control[..len])
    }

    /// Consumes the header's bytes of `data`. Returns `true` once the header is complete. The caller reports a frame
    /// without payload.
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
            if have < 2 && have + take == 2 {
                let allowed = if self.deflate { COMPRESSED } else { 0 };
                check_start(self.header[0], self.header[1], allowed)?;
            }
        }
        let short = self.header[1] & 0x7f;
        let long: &[u8] = &self.header[2..usize::from(self.header_len)];
        self.left = match short {
            126 | 127 => long.iter().fold(0, |length, byte| length << 8 | u64::from(*byte)),
            _ => u64::from(short),
        };
        self.in_payload = true;
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

fn check_start(first: u8, second: u8, allowed: u8) -> Result<(), Violation> {
    let opcode = first & 0x0f;
    let allowed = if opcode < 8 { allowed } else { 0 };
    if first & 0x70 & !allowed != 0 {
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
