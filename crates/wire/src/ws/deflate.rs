//! permessage-deflate (RFC 7692), without context takeover if the peer allows that.
//!
//! A server compresses each message independently, so a compressed message serves every connection, and one
//! [`Inflater`] serves all connections of a core. In return, the ratio of short messages is somewhat worse.
//!
//! A client may keep its context unless its offer waives that. Its connection then has a `Window`, which the
//! inflater reads before each message.
//!
//! Windows: the window of a sender is 512 bytes to 32 kB. 256 bytes (`server_max_window_bits=8`) is declined,
//! because zlib doesn't support it for raw DEFLATE. The inflater always uses 32 kB, so a peer's window is
//! irrelevant.
//!
//! Invariant: the inflater never exceeds the limit, whatever the ratio.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::Error;

/// Window bits of a sender (RFC 7692 section 7.1.2) that zlib supports.
pub(super) const WINDOW_BITS: std::ops::RangeInclusive<u8> = 9..=15;

/// The bytes that a sender omits at the end of a message and a receiver appends (RFC 7692 section 7.2.1).
const SYNC_TAIL: [u8; 4] = [0x00, 0x00, 0xff, 0xff];

/// [`SYNC_TAIL`] and an empty final block: a message that ends here is complete.
const INFLATE_TAIL: [u8; 9] = [0x00, 0x00, 0xff, 0xff, 0x01, 0x00, 0x00, 0xff, 0xff];

/// Limit for final blocks (RFC 7692 section 7.2.3.4) in one message. Each of them resets the decompressor.
const FINAL_BLOCKS_MAX: u32 = 64;

/// Maximum capacity of the inflater's buffer that is kept between messages.
const INFLATED_BYTES_KEPT: usize = 1 << 20;

/// The farthest distance at which a compressed message may refer to earlier bytes.
const WINDOW_BYTES: usize = 1 << *WINDOW_BITS.end();

/// A server's policy for offers of compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeflateOptions {
    /// The largest window for compression, 9 to 15 bits. Default 15 (32 kB).
    pub window_bits_max: u8,
    /// `false` declines offers of clients that keep their context, which costs up to 32 kB per connection. Default `true`.
    pub allows_context: bool,
}

impl Default for DeflateOptions {
    fn default() -> Self {
        DeflateOptions { window_bits_max: 15, allows_context: true }
    }
}

/// The agreed parameters. The server never keeps its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiated {
    /// Window of the server's compression, 9 to 15 bits. The response to a client may state 8.
    pub server_max_window_bits: u8,
    /// Window of the client's compression, 9 to 15 bits.
    pub client_max_window_bits: u8,
    /// `true` if the client keeps its context: a message may refer to earlier ones.
    pub client_keeps_context: bool,
}

/// The last bytes of the compressed messages that a peer has sent. Grows with them, up to 32 kB.
#[derive(Default)]
pub(super) struct Window(Vec<u8>);

impl Window {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.0.capacity()
    }

    /// Returns the number of bytes whose inflation takes about as long as copying the window.
    pub(super) fn cost_bytes(&self) -> usize {
        self.0.len() / 64
    }

    /// Adds an inflated message.
    pub(super) fn push(&mut self, message: &[u8]) {
        let added = &message[message.len().saturating_sub(WINDOW_BYTES)..];
        let kept = self.0.len().min(WINDOW_BYTES - added.len());
        self.0.drain(..self.0.len() - kept);
        let length = kept + added.len();
        if length > self.0.capacity() {
            // Reserves exactly, because a doubled capacity would exceed the window.
            self.0.reserve_exact(length.next_power_of_two() - kept);
        }
        self.0.extend_from_slice(added);
    }
}

/// Compresses messages. One per core or thread. Holds about 256 kB for each window size that has been used.
pub struct Deflater {
    level: Compression,
    by_window_bits: [Option<Box<Compress>>; 7],
    out: Vec<u8>,
}

impl Deflater {
    /// Makes a compressor. `level` is 0 (none) to 9 (best); larger values mean 9. Use 1 for live data; 6 is
    /// zlib's default.
    pub fn new(level: u8) -> Self {
        Deflater {
            level: Compression::new(u32::from(level.min(9))),
            by_window_bits: Default::default(),
            out: Vec::new(),
        }
    }

    /// Returns the payload of a compressed message; send it with RSV1. `window_bits` is our side's value in
    /// [`Negotiated`]. A message that is compressed for a smaller window is valid for a larger one too.
    /// Values outside 9 to 15 are clamped.
    pub fn deflate(&mut self, payload: &[u8], window_bits: u8) -> &[u8] {
        self.out.clear();
        if payload.is_empty() {
            // RFC 7692 section 7.2.3.6.
            self.out.push(0);
            return &self.out;
        }
        let window_bits = window_bits.clamp(*WINDOW_BITS.start(), *WINDOW_BITS.end());
        let level = self.level;
        let compress = self.by_window_bits[usize::from(window_bits - WINDOW_BITS.start())]
            .get_or_insert_with(|| Box::new(Compress::new_with_window_bits(level, false, window_bits)));
        compress.reset();
        self.out.reserve(payload.len() / 2 + 64);
        loop {
            let consumed = compress.total_in() as usize;
            let status = compress.compress_vec(&payload[consumed..], &mut self.out, FlushCompress::Sync);
            // The parameters of our own compressor are valid.
            assert!(status.is_ok(), "deflate failed: {status:?}");
            if compress.total_in() as usize == payload.len() && self.out.len() < self.out.capacity() {
                break;
            }
            self.out.reserve(payload.len() / 2 + 64);
        }
        debug_assert!(self.out.ends_with(&SYNC_TAIL));
        &self.out[..self.out.len() - SYNC_TAIL.len()]
    }
}

/// Inflates messages up to a limit, at once or in steps. One per core, and one for the message that is
/// inflated in steps.
///
/// Invariants: the inflated bytes of the current message are `buffer[..length]`. `consumed` counts the bytes
/// read from its payload and from `INFLATE_TAIL` after it.
pub struct Inflater {
    decompress: Decompress,
    /// Initialized to its full length. Grows with the inflated bytes, not with a declared size.
    buffer: Vec<u8>,
    length: usize,
    consumed: usize,
    final_blocks: u32,
}

/// The reason why a run of the decompressor ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunEnd {
    /// The input is used up and completely inflated.
    InputUsed,
    /// A final block has ended.
    FinalBlock,
    /// The limit of one step is reached.
    Step,
}

impl Default for Inflater {
    fn default() -> Self {
        Inflater::new()
    }
}

impl Inflater {
    /// Makes an inflater for any window.
    pub fn new() -> Self {
        let decompress = Decompress::new_with_window_bits(false, *WINDOW_BITS.end());
        Inflater { decompress, buffer: Vec::new(), length: 0, consumed: 0, final_blocks: 0 }
    }

    /// Returns the memory held for output, in bytes: at most the limit and one, or 1 MiB between messages.
    pub fn held_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// Returns the bytes of the last message.
    pub fn inflated(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    /// Inflates the payload of one message, at most `bytes_max` bytes.
    ///
    /// # Errors
    /// [`Error::MessageTooBig`] if the message exceeds the limit, [`Error::BadDeflate`] if the payload is
    /// malformed or truncated. Both are the peer's fault.
    pub fn inflate(&mut self, payload: &[u8], bytes_max: usize) -> Result<&[u8], Error> {
        self.begin(None);
        self.advance(payload, bytes_max, usize::MAX)?;
        Ok(self.inflated())
    }

    /// Discards the last message. [`Inflater::advance`] then inflates the next one, which may refer to
    /// `window`.
    pub(super) fn begin(&mut self, window: Option<&Window>) {
        (self.length, self.consumed, self.final_blocks) = (0, 0, 0);
        self.decompress.reset(false);
        if let Some(Window(bytes)) = window.filter(|window| !window.is_empty()) {
            let set = self.decompress.set_dictionary(bytes);
            // Raw DEFLATE accepts any dictionary.
            debug_assert!(set.is_ok(), "{set:?}");
        }
        if self.buffer.len() > INFLATED_BYTES_KEPT {
            self.buffer.truncate(INFLATED_BYTES_KEPT);
            self.buffer.shrink_to_fit();
        }
    }

    /// Inflates at most `step_bytes` more of a message with this complete payload. Returns `true` once the
    /// message is complete.
    ///
    /// # Errors
    /// The same as for [`Inflater::inflate`].
    pub(super) fn advance(
        &mut self,
        payload: &[u8],
        bytes_max: usize,
        step_bytes: usize,
    ) -> Result<bool, Error> {
        if payload.is_empty() {
            // RFC 7692 section 7.2.3.6 requires one zero byte, but the meaning of an empty frame is clear.
            return Ok(true);
        }
        let until = self.length.saturating_add(step_bytes);
        while self.consumed < payload.len() {
            let mut input = &payload[self.consumed..];
            let end = self.run(&mut input, bytes_max, until)?;
            self.consumed = payload.len() - input.len();
            match end {
                RunEnd::Step => return Ok(false),
                RunEnd::InputUsed => break,
                RunEnd::FinalBlock if input.is_empty() => return Ok(true),
                // A final block before the end of the message. A new stream follows.
                RunEnd::FinalBlock => {
                    self.final_blocks += 1;
                    if self.final_blocks > FINAL_BLOCKS_MAX {
                        return Err(Error::BadDeflate);
                    }
                    self.decompress.reset(false);
                }
            }
        }
        let before = self.consumed - payload.len();
        let mut input = &INFLATE_TAIL[before..];
        let end = self.run(&mut input, bytes_max, until)?;
        let read = INFLATE_TAIL.len() - input.len();
        self.consumed = payload.len() + read;
        match end {
            RunEnd::Step => Ok(false),
            // At the end of the tail, or at the end of the payload if the last step left only the end of its
            // final block.
            RunEnd::FinalBlock if input.is_empty() || read == 0 => Ok(true),
            RunEnd::FinalBlock | RunEnd::InputUsed => Err(Error::BadDeflate),
        }
    }

    /// Inflates until the input is used up, a final block has ended, or `until` bytes are inflated.
    fn run(&mut self, input: &mut &[u8], bytes_max: usize, until: usize) -> Result<RunEnd, Error> {
        // One byte more than the limit, to distinguish a message that ends there from a longer message.
        let room_max = bytes_max.saturating_add(1);
        loop {
            if self.length >= until {
                return Ok(RunEnd::Step);
            }
            if self.length == self.buffer.len() {
                let larger = (self.buffer.len() * 2).max(4096).min(room_max);
                // Reserves exactly, because a doubled capacity would exceed the limit.
                self.buffer.reserve_exact(larger - self.length);
                self.buffer.resize(larger, 0);
            }
            let room_end = self.buffer.len().min(room_max).min(until);
            let (before_in, before_out) = (self.decompress.total_in(), self.decompress.total_out());
            let status = self.decompress.decompress(
                input,
                &mut self.buffer[self.length..room_end],
                FlushDecompress::None,
            );
            let consumed = (self.decompress.total_in() - before_in) as usize;
            let produced = (self.decompress.total_out() - before_out) as usize;
            *input = &input[consumed..];
            self.length += produced;
            if self.length > bytes_max {
                self.length = 0;
                return Err(Error::MessageTooBig);
            }
            match status {
                Ok(Status::StreamEnd) => return Ok(RunEnd::FinalBlock),
                // Output may be buffered in the decompressor although the input is used up. Only free room
                // shows that it isn't.
                Ok(_) if input.is_empty() && self.length < room_end => return Ok(RunEnd::InputUsed),
                Ok(_) if consumed == 0 && produced == 0 => return Err(Error::BadDeflate),
                Ok(_) => {}
                Err(_) => return Err(Error::BadDeflate),
            }
        }
    }
}
