//! The demo: simulated football matches and a replay behind an ordinary HTTP API ([`upstream`]), and a [`page`] that shows them
//! beside a room. If Node is there, a [`worker`] runs the handlers of a chat.
//!
//! The crate uses no other crate of Stentor. The binary starts the API, configures a feed for each kind of
//! document and the room of [`page::ROOM`], serves the page's files, and publishes the goals.

pub mod page;
pub mod replay;
mod simulation;
pub mod upstream;
pub mod worker;
