//! Frames: a header and entries.

use crate::codec::{Entry, Reader, Sink};
use crate::error::FrameError;
use crate::limits::FRAME_BYTES_MAX;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use smallvec::SmallVec;
use std::marker::PhantomData;

/// Length of a frame's header.
pub const HEADER_BYTES: usize = 8;

/// Messages of at least this length aren't copied into a frame: the frame refers to them. Below it, a copy costs less than
/// another piece in a write.
pub const SHARED_BYTES_MIN: usize = 4_096;

/// A frame to send, in pieces that are sent one after the other as one WebSocket message.
#[derive(Clone, Debug)]
pub struct Frame {
    pieces: SmallVec<[Bytes; 1]>,
    len: usize,
}

impl Frame {
    /// The pieces, none of which is empty.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// Length in bytes. A frame has at least its header.
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The bytes, copied if the frame has several pieces.
    pub fn to_bytes(&self) -> Bytes {
        match &*self.pieces {
            [all] => all.clone(),
            pieces => pieces.concat().into(),
        }
    }
}

/// Writes a frame.
pub struct Writer {
    /// The frame up to the first shared message.
    head: BytesMut,
    /// Shared messages, and the bytes between them.
    shared: SmallVec<[Bytes; 1]>,
    /// Bytes after the last shared message.
    tail: BytesMut,
    len: usize,
}

impl Default for Writer {
    fn default() -> Self {
        let mut writer =
            Self { head: BytesMut::new(), shared: SmallVec::new(), tail: BytesMut::new(), len: HEADER_BYTES };
        writer.head.put_bytes(0, HEADER_BYTES);
        writer
    }
}

impl Writer {
    /// Appends an entry. Panics if a name or a list of the entry exceeds the bounds of its type.
    pub fn entry(&mut self, entry: &impl Entry) {
        entry.write(self);
    }

    /// Length so far, in bytes, including the header.
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// `true` if an entry was written.
    pub fn has_entries(&self) -> bool {
        self.len > HEADER_BYTES
    }

    /// Returns the frame with its number, 0 if it isn't numbered, and the number of the peer's last handled frame. The writer
    /// begins another frame.
    pub fn finish(&mut self, number: u32, ack: u32) -> Frame {
        let len = std::mem::replace(&mut self.len, HEADER_BYTES);
        let mut head = self.head.split();
        head[..4].copy_from_slice(&number.to_le_bytes());
        head[4..HEADER_BYTES].copy_from_slice(&ack.to_le_bytes());
        self.head.put_bytes(0, HEADER_BYTES);
        let mut pieces: SmallVec<[Bytes; 1]> = SmallVec::new();
        pieces.push(head.freeze());
        pieces.append(&mut self.shared);
        if !self.tail.is_empty() {
            pieces.push(self.tail.split().freeze());
        }
        Frame { pieces, len }
    }
}

impl Sink for Writer {
    fn bytes(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        let current = if self.shared.is_empty() { &mut self.head } else { &mut self.tail };
        current.extend_from_slice(bytes);
    }

    fn content(&mut self, content: &Bytes) {
        if content.len() < SHARED_BYTES_MIN {
            return self.bytes(content);
        }
        self.len += content.len();
        if !self.tail.is_empty() {
            self.shared.push(self.tail.split().freeze());
        }
        self.shared.push(content.clone());
    }
}

/// A received frame: an iterator over its entries, which ends after the first malformed one.
pub struct Received<E> {
    /// Number of the frame. 0: it isn't numbered.
    pub number: u32,
    /// Number of the last frame that the peer has handled.
    pub ack: u32,
    reader: Reader,
    entry: PhantomData<E>,
}

impl<E: Entry> Received<E> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// If the frame is longer than [`FRAME_BYTES_MAX`], or shorter than its header.
    pub fn new(mut frame: Bytes) -> Result<Self, FrameError> {
        if frame.len() > FRAME_BYTES_MAX {
            return Err(FrameError::TooLong(frame.len()));
        }
        if frame.len() < HEADER_BYTES {
            return Err(FrameError::NoHeader);
        }
        let (number, ack) = (frame.get_u32_le(), frame.get_u32_le());
        Ok(Self { number, ack, reader: Reader { rest: frame, entry: "" }, entry: PhantomData })
    }

    /// Bytes of entries that haven't been read.
    pub fn unread_bytes(&self) -> usize {
        self.reader.rest.len()
    }
}

impl<E: Entry> Iterator for Received<E> {
    type Item = Result<E, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        let number = self.reader.rest.try_get_u8().ok()?;
        let entry = E::read(number, &mut self.reader);
        if entry.is_err() {
            self.reader.rest.clear();
        }
        Some(entry)
    }
}
