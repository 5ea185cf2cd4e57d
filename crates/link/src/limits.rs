//! Bounds and times of the protocol.

use std::time::Duration;

/// Maximum length of a received frame in bytes: 16 MiB. A frame of more than [`FRAME_BYTES`] has one large entry.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// Maximum length of a written frame in bytes, unless it has one entry that is larger. 3,000 events in one frame would keep a
/// Node process busy for about 12 ms.
pub const FRAME_BYTES: usize = 64 << 10;

/// Bits of a link's number that count the links of one application. The other bits belong to the caller.
pub const LINK_BITS: u32 = 22;

/// Maximum length of the frame with HELLO in bytes. Its options are kept as long as the application runs.
pub const HELLO_BYTES_MAX: usize = 64 << 10;

/// A side acknowledges at once when it has handled this many bytes since its last acknowledgement.
pub const ACK_BYTES: usize = 32 << 10;

/// Maximum time between the arrival of a handled frame and its acknowledgement.
pub const ACK_DELAY: Duration = Duration::from_millis(20);

/// Version of the protocol.
pub const VERSION: u32 = 1;

/// Maximum length of a worker's name, and of the id of its process, in bytes.
pub const IDENTITY_BYTES_MAX: usize = 255;

/// Maximum length of a namespace's name, in bytes. Clients choose the names of dynamic namespaces.
pub const NAMESPACE_NAME_BYTES_MAX: usize = 256;

/// Maximum length of the rooms that a SELECT joins or leaves, in bytes, unless it is local. The workers of the changed sockets receive
/// them.
pub const TARGETS_BYTES_MAX: usize = 1 << 20;

/// Maximum length of the names of all namespaces that a worker declares, in bytes.
pub const NAMESPACE_BYTES_MAX: usize = 4 << 20;

/// The longest time after the loss of its client in which a socket can be recovered.
pub const RECOVERY_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The time for the recovery of a socket if HELLO has none, as in Socket.IO.
pub const RECOVERY_DEFAULT: Duration = Duration::from_secs(2 * 60);
