//! Numbers, texts and bytes in frames: lengths first, least significant byte first, nothing padded.

use super::FrameError;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::sync::Arc;

/// Writes a frame.
#[derive(Default)]
pub(super) struct Writer(pub(super) BytesMut);

impl Writer {
    pub(super) fn u8(&mut self, value: u8) {
        self.0.put_u8(value);
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.0.put_u32_le(value);
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.put_u64_le(value);
    }

    /// A length or count. The parts of a frame are much shorter than 4 GB.
    pub(super) fn len(&mut self, len: usize) {
        self.u32(u32::try_from(len).unwrap_or(u32::MAX));
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.len(bytes.len());
        self.0.put_slice(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(super) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.u8(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub(super) fn list<T>(
        &mut self,
        items: impl ExactSizeIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        self.len(items.len());
        items.for_each(|item| write(self, item));
    }
}

/// Maximum number of items of all lists of a frame. While a list grows, an item of a few bytes takes up to 100 bytes of memory.
/// The longest lists that nodes write have 1 MiB of room names.
const ITEMS_MAX: usize = 1 << 18;
/// A content shares the memory of its frame if the frame is at most twice as long, plus this size. Otherwise, it is
/// copied.
const ENVELOPE_BYTES_MAX: usize = 1_024;

/// Reads a frame. The returned values share the frame's memory.
pub(super) struct Reader {
    pub(super) rest: Bytes,
    /// Size of the whole frame.
    bytes: usize,
    /// Number of items that lists may still have.
    items_left: usize,
}

impl Reader {
    pub(super) fn new(frame: Bytes) -> Self {
        Self { bytes: frame.len(), rest: frame, items_left: ITEMS_MAX }
    }

    pub(super) fn u8(&mut self) -> Result<u8, FrameError> {
        self.rest.try_get_u8().map_err(|_| FrameError::TooShort)
    }

    pub(super) fn u32(&mut self) -> Result<u32, FrameError> {
        self.rest.try_get_u32_le().map_err(|_| FrameError::TooShort)
    }

    pub(super) fn u64(&mut self) -> Result<u64, FrameError> {
        self.rest.try_get_u64_le().map_err(|_| FrameError::TooShort)
    }

    pub(super) fn flag(&mut self) -> Result<bool, FrameError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(FrameError::Malformed),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes, FrameError> {
        let len = self.u32()? as usize;
        if len > self.rest.len() { Err(FrameError::TooShort) } else { Ok(self.rest.split_to(len)) }
    }

    /// Reads bytes that may be kept. A short part of a long frame is copied: it would keep the whole frame, which isn't
    /// charged.
    pub(super) fn content_bytes(&mut self) -> Result<Bytes, FrameError> {
        let bytes = self.bytes()?;
        let is_short = 2 * bytes.len() + ENVELOPE_BYTES_MAX < self.bytes;
        Ok(if is_short { Bytes::copy_from_slice(&bytes) } else { bytes })
    }

    pub(super) fn text(&mut self) -> Result<Arc<str>, FrameError> {
        let bytes = self.bytes()?;
        std::str::from_utf8(&bytes).map(Arc::from).map_err(|_| FrameError::Malformed)
    }

    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, FrameError>,
    ) -> Result<Option<T>, FrameError> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }

    /// A list of items, each of at least one byte.
    pub(super) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, FrameError>,
    ) -> Result<Vec<T>, FrameError> {
        let len = self.u32()? as usize;
        if len > self.rest.len() {
            return Err(FrameError::TooShort);
        }
        self.items_left = self.items_left.checked_sub(len).ok_or(FrameError::Malformed)?;
        // The list grows as items are read: a count alone takes no memory.
        (0..len).map(|_| read(self)).collect()
    }

    /// Ends the frame: no bytes may follow.
    pub(super) fn end(self) -> Result<(), FrameError> {
        if self.rest.is_empty() { Ok(()) } else { Err(FrameError::Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_content_keeps_no_long_frame() {
        let mut w = Writer::default();
        w.bytes(b"short");
        w.bytes(&vec![0; 1 << 20]);
        let mut r = Reader::new(w.0.freeze());
        let short = r.content_bytes().unwrap_or_default();
        let long = r.content_bytes().unwrap_or_default();
        drop(r);
        assert_eq!((&*short, long.len()), (&b"short"[..], 1 << 20));
        drop(long);
        assert!(Vec::from(short).capacity() < 100);
    }

    #[test]
    fn the_lists_of_a_frame_are_bounded() {
        for (second, result) in [(ITEMS_MAX - 7, Ok(())), (ITEMS_MAX - 6, Err(FrameError::Malformed))] {
            let mut w = Writer::default();
            w.list(std::iter::repeat_n((), 7), |w, ()| w.u8(0));
            w.list(std::iter::repeat_n((), second), |w, ()| w.u8(0));
            let mut r = Reader::new(w.0.freeze());
            assert_eq!(r.list(Reader::u8).map(|list| list.len()), Ok(7));
            assert_eq!(r.list(Reader::u8).map(|_| ()), result);
        }
    }
}
