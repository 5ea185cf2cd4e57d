//! The send buffers of a shard's sessions: the bytes under `Queue` and `DropOldest`, waiting or in flight.
//!
//! **Invariant.** `bytes` is the sum of `queue_bytes` of all sessions.

pub(crate) struct SendBuffers {
    /// Maximum size of one send buffer.
    bytes_max: u32,
    bytes: usize,
}

impl SendBuffers {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let mut buffers = Self { bytes_max: 0, bytes: 0 };
        buffers.set_bytes_max(bytes_max);
        buffers
    }

    pub(crate) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = u32::try_from(bytes_max).unwrap_or(u32::MAX);
    }

    /// Returns the size of all send buffers in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns `true` if a send buffer can hold this number of bytes.
    #[inline]
    pub(crate) fn can_hold(&self, bytes: u64) -> bool {
        bytes <= self.bytes_max.into()
    }

    /// Returns `true` if a send buffer with `queue_bytes` can take one more publication.
    #[inline]
    pub(crate) fn can_take(&self, queue_bytes: u32, bytes: u32) -> bool {
        queue_bytes == 0 || self.can_hold(u64::from(queue_bytes) + u64::from(bytes))
    }

    /// Adds bytes to a session's `queue_bytes`.
    #[inline]
    pub(crate) fn charge(&mut self, queue_bytes: &mut u32, bytes: u32) {
        *queue_bytes += bytes;
        self.bytes += bytes as usize;
    }

    /// Removes bytes from a session's `queue_bytes`.
    #[inline]
    pub(crate) fn release(&mut self, queue_bytes: &mut u32, bytes: u32) {
        *queue_bytes -= bytes;
        self.bytes -= bytes as usize;
    }
}
