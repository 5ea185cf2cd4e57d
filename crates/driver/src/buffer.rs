//! Buffers for received bytes: few per driver, lent to the handler of the event.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Maximum number of spare buffers for later reads; further recycled buffers are freed.
const SPARE_MAX: usize = 4;

/// Received bytes in a buffer of the driver. Writable, so that they can be unmasked in place. Return it with
/// [`crate::Driver::recycle`]; dropping it instead costs an allocation.
pub struct ReceiveBuffer {
    storage: Box<[u8]>,
    len: usize,
}

impl ReceiveBuffer {
    /// Makes an empty buffer that belongs to the caller, for data that a layer above the driver derives from
    /// received bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { storage: vec![0; bytes].into_boxed_slice(), len: 0 }
    }

    /// Returns the number of bytes that the buffer can hold without growing.
    pub fn capacity(&self) -> usize {
        self.storage.len()
    }

    /// Removes all bytes.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends `bytes`. Grows if necessary, which costs an allocation.
    pub fn append(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if end > self.storage.len() {
            let mut larger = std::mem::take(&mut self.storage).into_vec();
            larger.resize(end.next_power_of_two(), 0);
            self.storage = larger.into_boxed_slice();
        }
        self.storage[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }
}

impl Deref for ReceiveBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.storage[..self.len]
    }
}

impl DerefMut for ReceiveBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.storage[..self.len]
    }
}

impl fmt::Debug for ReceiveBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReceiveBuffer({} bytes)", self.len)
    }
}

/// The spare buffers of one driver, which all have the same size.
pub(crate) struct Buffers {
    size_bytes: usize,
    spare: Vec<Box<[u8]>>,
}

impl Buffers {
    /// # Panics
    /// If the size is 0.
    pub(crate) fn new(size_bytes: usize) -> Self {
        assert!(size_bytes > 0, "a receive buffer holds at least a byte");
        Self { size_bytes, spare: Vec::with_capacity(SPARE_MAX) }
    }

    /// Returns a complete buffer, allocated if none is spare.
    #[inline]
    pub(crate) fn take(&mut self) -> Box<[u8]> {
        self.spare.pop().unwrap_or_else(|| vec![0; self.size_bytes].into_boxed_slice())
    }

    /// Lends the first `len` bytes of `storage`.
    #[inline]
    pub(crate) fn lend(storage: Box<[u8]>, len: usize) -> ReceiveBuffer {
        ReceiveBuffer { storage, len }
    }

    /// Takes back a buffer that wasn't lent.
    #[inline]
    pub(crate) fn put(&mut self, storage: Box<[u8]>) {
        if self.spare.len() < SPARE_MAX && storage.len() == self.size_bytes {
            self.spare.push(storage);
        }
    }

    #[inline]
    pub(crate) fn recycle(&mut self, buffer: ReceiveBuffer) {
        self.put(buffer.storage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_of_the_callers_own_grows() {
        let mut buffer = ReceiveBuffer::with_capacity(4);
        buffer.append(b"abc");
        assert_eq!((&*buffer, buffer.capacity()), (&b"abc"[..], 4));
        buffer.append(b"defgh");
        assert_eq!((&*buffer, buffer.capacity()), (&b"abcdefgh"[..], 8));
        buffer.clear();
        buffer.append(b"x");
        assert_eq!((&*buffer, buffer.capacity()), (&b"x"[..], 8));
    }
}
