//! The service of the application link: the connections of workers on tokio, and the sessions that the workers have.
//!
//! ```text
//!  admin port ── accept, connect ──► connections ── frames ──► link::Application
//!                                        one task               │ actions    ▲
//!                                                               ▼            │ reports
//!                                              ports::LinkInbox, the cores ──┘
//! ```
//!
//! [`Workers`] is the handle: the admin port gives it connections of workers, the cores report to it, and it has the metrics. [`Service`] is
//! the task: it has the applications, the connections and the sessions. `stentor_link` documents the protocol.
//!
//! A turn of the task takes the calls of the cores, reads at most [`TURN_BYTES`] from each connection, carries out what follows, and then
//! writes at most one buffer per connection. So a frame has the entries of a whole turn.
//!
//! - `connection`: frames on a WebSocket.
//! - `handshake`: the request of a worker.
//! - `inbox`: calls of the cores, and connections of the admin port.
//! - `known`: handshake and sockets of each session, for the worker that resumes it.
//! - `engine`: the options in HELLO.
//! - `forward`: requests for other paths, for workers' HTTP servers.
//! - `recovery`: sockets whose clients are disconnected, and the broadcasts that they may have missed.
//! - `refused`: requests that Stentor refuses itself.
//! - `headers`: the JSON of ACCEPT and REFUSE.
//! - `node_sink`: calls of the cluster.
//! - `nodes`: the other nodes of a cluster.
//! - `application`: an application's links, and instructions for the cores.
//! - `occasional`: events that are logged once a minute.
//! - `outbox`: instructions that wait for the inboxes of cores.
//! - `searches`: questions to other nodes about clients that return.
//! - `service`: the turns.
//! - `view`: metrics, and the list of links.
//!
//! **Invariant.** Everything that waits is bounded and charged to the ledger (class `link`). While the inbox of a core is full, or a message
//! waits for the engine of a cluster, no frame is read and no message of another node is taken. Workers then wait; other nodes don't, and
//! their messages are dropped above a bound.

mod application;
mod connection;
mod engine;
mod forward;
mod handshake;
mod headers;
mod inbox;
mod known;
mod node_sink;
mod nodes;
mod occasional;
mod options;
mod outbox;
mod recovery;
mod refused;
mod searches;
mod service;
mod view;

pub use connection::Io;
pub use forward::ForwardOptions;
pub use handshake::{Accepted, LinkRequest, Refused};
pub use options::{APPS_MAX, AppOptions, Token};
pub use recovery::RecoveryOptions;
pub use service::{Service, TURN_BYTES, Workers};
pub use view::sample_metrics;
