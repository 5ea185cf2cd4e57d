//! Shared frames, chunks of HTTP/1.1, and records.
//!
//! Data that waits for a poll is kept as *records*, because the response is assembled when the poll arrives. A record is: `kind`
//! (1 byte), length (4 bytes, little endian), then an Engine.IO packet as in a WebSocket message, or a SockJS message as the
//! application wrote it.

use stentor_frame::{Frame, Meter};

/// A record's kind: a text packet.
pub(crate) const TEXT: u8 = 0;
/// A record's kind: a binary message.
pub(crate) const BINARY: u8 = 1;
/// Size of a record's header, before its packet, in bytes.
pub(crate) const RECORD_HEAD_BYTES: usize = 5;

/// Makes the frames that all sessions of an encoding share.
pub(crate) struct SharedFrames {
    meter: Meter,
}

impl SharedFrames {
    pub(super) fn new(meter: Meter) -> Self {
        Self { meter }
    }

    /// Returns a frame with these bytes.
    pub(crate) fn of(&self, parts: &[&[u8]]) -> Frame {
        Frame::shared(parts, &self.meter)
    }

    /// Returns a chunk of an HTTP/1.1 response.
    pub(crate) fn chunk(&self, data: &[u8]) -> Frame {
        self.of(&[format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"])
    }
}

/// Appends a record with the packet that `write` appends.
pub(crate) fn record(out: &mut Vec<u8>, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let len = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&len.to_le_bytes());
}

/// Iterates over the records in `bytes`: kind and packet. Ends at invalid bytes.
pub(crate) fn records(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = bytes.split_first_chunk::<RECORD_HEAD_BYTES>()?;
        let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (packet, rest) = rest.split_at_checked(len)?;
        bytes = rest;
        Some((head[0], packet))
    })
}

/// Returns the data of one chunk.
pub(crate) fn unchunked(chunk: &[u8]) -> &[u8] {
    let head = chunk.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    chunk[head..].strip_suffix(b"\r\n").unwrap_or_default()
}

/// Returns the size of a chunk's data: `chunk_bytes` without the size line and line ends.
pub(crate) fn unchunked_bytes(chunk_bytes: usize) -> usize {
    (1..=16)
        .filter_map(|digits| chunk_bytes.checked_sub(digits + 4).map(|bytes| (digits, bytes)))
        .find(|(digits, bytes)| bytes.checked_ilog(16).map_or(1, |log| log as usize + 1) == *digits)
        .map_or(0, |(_, bytes)| bytes)
}
