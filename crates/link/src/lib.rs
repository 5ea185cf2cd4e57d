//! The application link: the protocol between Stentor and the workers of an application, without I/O.
//!
//! A worker runs an application's own Socket.IO server code. It has one connection to Stentor, the *link*, on which both
//! sides exchange *frames*: binary WebSocket messages of the subprotocol `stentor.link.v1`. Stentor keeps the clients'
//! sessions. A worker handles what they send.
//!
//! # Frames
//!
//! All numbers are little endian.
//!
//! ```text
//! u32 number   from 1 in each direction; 0: the frame isn't numbered. 1 follows 4,294,967,295
//! u32 ack      number of the last frame of the peer that has been handled
//! entries      u8 type, then the fields of the type; up to the end of the frame
//!
//! str      u16 length, UTF-8                       msgs      u16 count, msg…
//! json     u32 length, a JSON text                 strs      u16 count, str…
//! msg      u32 (length << 1 | binary), bytes       handles   u32 count, u32…
//! bool     u8, 0 or 1
//! ```
//!
//! [`Received`] reads a frame, [`Writer`] writes one. [`WorkerEntry`] and [`ServerEntry`] list the entries of both directions. The nodes of
//! a cluster exchange [`NodeEntry`] in frames of the same form.
//!
//! # Connections
//!
//! A worker sends the request `GET /link/v1?app=NAME` to the admin port, for a WebSocket with the subprotocol `stentor.link.v1`. Without
//! `app`, it means the only application. `Authorization: Bearer TOKEN` has the admin token, or the application's own token.
//!
//! * A valid handshake is answered with 101, whatever the token and the application. A connection that can't have a link receives one
//!   frame with ERROR ([`Code`]) and is closed. So a worker has one place for all errors.
//! * The server answers with 404 if it has no application, with 400 or 426 if the request isn't a WebSocket of this subprotocol, and with
//!   403 or 421 if the admin port doesn't accept its `Origin` or `Host`. Proxies may have answers of their own.
//! * HELLO is the first message, at most 10 s after the handshake. Messages are binary, at most [`FRAME_BYTES_MAX`] long, and not compressed.
//!   A text, or another break of the WebSocket protocol, is ERROR `protocol`.
//! * Stentor sends WebSocket pings. Any frame or pong shows that the worker is alive.
//! * Stentor closes the connection after ERROR, after BYE `done` and after BYE `stop`. The frame that acknowledges BYE comes before. A
//!   connection that ends otherwise, also by the worker's Close frame, is broken: the worker may join again within `rejoin`.
//! * A request of a client that a worker asks about (OPEN with `ask`) and that isn't answered within `grace` is refused with 503. The worker
//!   receives CLOSED.
//!
//! # Links
//!
//! [`Hello::read`] reads the first frame of a connection. A [`Link`] is Stentor's side from then on: it survives a broken
//! connection. [`Exchange`] is the part that both sides have in common: numbers, acknowledgements, and frames that are sent again.
//!
//! An [`Application`] has the links of all its workers, and decides which worker has which session.
//!
//! Decisions:
//! * A reader refuses unknown types, unknown flags, texts that aren't UTF-8, and JSON that isn't valid: a worker's bug ends its
//!   link, but it never reaches a client or another worker.
//! * Messages share the memory of their frame, in both directions. A short message that is kept for long should be copied.
//! * Names and JSON texts are copied, because tables keep them.
//! * Entries have no length, so a side sends only types that the version of the link has.
//!
//! Deliberately absent: COPY (type 77), because no worker handles other workers' broadcasts.
//!
//! **Invariant.** No socket, clock, thread or random source. Lengths and counts that a peer declares allocate at most a fixed
//! multiple of the bytes that it has sent.
#![forbid(unsafe_code)]

mod application;
mod codec;
mod entry;
mod error;
mod exchange;
mod frame;
mod heartbeat;
mod hello;
mod limits;
mod link;
mod namespaces;
mod number;
mod session;
mod value;

pub use application::{Action, Application, ApplicationOptions, Closing, MOVES_MAX, Stats};
pub use codec::Entry;
pub use entry::{Broadcast, NodeEntry, Select, SelectFlags, SendFlags, ServerEntry, WorkerEntry};
pub use error::{Code, Fault, FrameError, LinkError};
pub use exchange::Exchange;
pub use frame::{Frame, HEADER_BYTES, Received, SHARED_BYTES_MIN, Writer};
pub use hello::{Hello, OnCrash, Parser, Refusal, Settings};
pub use limits::{
    ACK_BYTES, ACK_DELAY, FRAME_BYTES, FRAME_BYTES_MAX, HELLO_BYTES_MAX, IDENTITY_BYTES_MAX, LINK_BITS,
    NAMESPACE_BYTES_MAX, NAMESPACE_NAME_BYTES_MAX, RECOVERY_DEFAULT, RECOVERY_MAX, TARGETS_BYTES_MAX,
    VERSION,
};
pub use link::{Aftermath, End, Event, Link, LinkOptions, Transmit};
pub use session::{QueuedBytes, SessionId};
pub use value::{Change, Handle, Json, Message, Messages, Name, Names, Namespace};
