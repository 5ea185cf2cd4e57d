//! Tests of the service on tokio's paused clock, with in-memory streams, scripted workers and fake cores.

#![allow(clippy::unwrap_used)] // Tests may panic.

mod changes;
mod connections;
mod forwards;
mod nodes;
mod recovery;
mod restarts;
mod returns;
mod rig;
mod sessions;
