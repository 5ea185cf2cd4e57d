//! Bounds of the protocol.

/// Maximum length of a received frame in bytes: 16 MiB. A frame of more than 64 KiB has one large entry.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
