//! The WebSocket load generator: N connections on one thread, a load on them, and an audit of every message.
//!
//! Latency counts from the *intended* time of sending, which travels in the payload ([`crate::payload`]), so a
//! server that stalls can't hide it (no coordinated omission). The generator watches itself: its own CPU and
//! its lag behind the schedule; see [`Outcome::doubts`]. Every run is bounded in count and in time.
//!
//! One generator holds what one process may (descriptors); [`Workers`] runs several in processes of their own,
//! which is also how a bench keeps the generator's core and CPU clock apart from everything else.
//!
//! Deliberately absent: any protocol above WebSocket, compression, and gathering messages (see [`FrameReader`]).

mod echo;
mod fanout;
mod fleet;
mod idle;
mod latency;
mod outcome;
mod reader;
mod run;
mod spec;
mod storm;
mod worker;

pub use latency::Latencies;
pub(crate) use outcome::LAG_SHARE_MAX;
pub use outcome::{Audit, Doubt, Outcome, Span};
pub use reader::{Arrived, FrameReader, Violation};
pub use run::run;
pub use spec::{CONNECTIONS_PER_PROCESS_MAX, DriverKind, LoadSpec, MaskKey, Publisher, Spec};
pub use worker::{Invocation, Workers, serve_worker};
