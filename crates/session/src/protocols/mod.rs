//! The protocols, one machine each. A machine owns the state of one connection or client and is driven from outside:
//!
//! - `handle_*` receives an event: bytes, a request, a message, a command, or the end of `poll_timeout`.
//! - Answers to the input are appended to `out`. Requests that need an answer at once are calls of the
//!   [`Executor`](crate::executor::Executor); an action on another machine is an [`Effect`](crate::executor::Effect).
//! - `poll_timeout` is the time at which `handle_timeout` is due. It may change with each event.
//!
//! No file here names the core, the driver or the hub, so that each protocol is tested on a virtual clock without a
//! socket. Modules use only those above them in this list:
//!
//! ```text
//!  client, clients, query, response, request, message    common parts of several protocols
//!  token                                                 the token and identity of a request's client
//!  opening                                               decisions about a request that opens a session
//!  dialect                                               messages and heartbeats of WebSockets with a session of their own
//!  upgrade                                               requests for these WebSockets
//!  document, file, ndjson, page, primus, sse,            one protocol each
//!  socketio, sockjs
//!  link                                                  messages between clients of Engine.IO and workers
//!  engineio                                              carries Socket.IO and the application link
//!  websocket                                             frames of WebSockets
//!  http                                                  requests, and their routes to all of the above
//! ```

pub mod client;
pub mod clients;
pub(crate) mod dialect;
pub(crate) mod document;
pub mod engineio;
mod file;
pub mod http;
pub(crate) mod link;
mod message;
pub(crate) mod ndjson;
mod opening;
pub(crate) mod page;
pub(crate) mod primus;
mod query;
pub(crate) mod request;
pub mod response;
pub mod route;
pub(crate) mod socketio;
pub(crate) mod sockjs;
pub(crate) mod sse;
mod token;
pub(crate) mod upgrade;
pub mod websocket;

#[cfg(test)]
mod tests;
