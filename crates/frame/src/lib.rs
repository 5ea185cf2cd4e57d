//! Types that the driver and the protocols share: [`Frame`]s, [`Meter`]s, and identifiers of connections and timers.
//!
//! A protocol makes frames and refers to connections without access to the driver; the driver sends frames without access to the protocol.

mod frame;
mod key;
#[cfg(target_os = "linux")]
mod memfd;
#[cfg(not(target_os = "linux"))]
#[path = "absent.rs"]
mod memfd;

pub use frame::{Charge, FILE_FRAME_BYTES_MIN, FILE_FRAMES_MAX, FileFrame, Frame, Meter, View};
pub use key::{ConnId, Key, TimerId};
