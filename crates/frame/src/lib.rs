//! The vocabulary of the driver and the protocols: [`Frame`]s, [`Meter`]s, and the numbers of connections and timers.
//!
//! A protocol makes frames and names connections without knowing the driver; the driver sends frames without knowing the protocol.

mod frame;
mod key;

pub use frame::{Charge, FILE_FRAME_BYTES_MIN, FILE_FRAMES_MAX, FileFrame, Frame, Meter, View};
pub use key::{ConnId, Key, TimerId};
