//! Sessions of clients: protocol machines, the executor, applications and encodings.
//!
//! The crate does no I/O. `edge` passes received bytes, expired timeouts and commands to it, sends the bytes that machines
//! append, and carries out the effects in the executor's queue.
//!
//! **Invariants.** The crate opens no socket, starts no thread and never sleeps, and it doesn't know the driver. A test
//! forbids the names of all these.
//!
//! # Types of other crates
//!
//! Public items name these types of the crates below, so that applications use the same rooms, feeds and sessions as the hub. A
//! test compares the table with the code.
//!
//! | crate | types | for |
//! |---|---|---|
//! | `hub` | `Room`, `Topic`, `Key`, `KeyRule` | what is subscribed and published to |
//! | `hub` | `Body`, `Data`, `Emit` | what is published |
//! | `hub` | `SessionId`, `Policy`, `SubscribeOptions`, `Position`, `SubscribeError`, `Disconnect`, `Notice` | sessions in [`app::Application`] and [`app::Context`] |
//! | `hub` | `HistoryLimits` | [`rule::Rooms`] |
//! | `wire` | `Request` | the request in [`app::Application`] and [`app::Context`] |
//! | `hub` | `CoreId`, `Dispatch`, `Hub`, `Publication`, `Rooms`, `Selection`, `PresenceMessage`, `HistoryStats`, `LogStats` | `edge`, which runs the core |
//! | `wire` | `StepLimits` | `edge`, which bounds the work of a turn |
//! | `frame` | `ConnId`, `Frame`, `Meter` | `edge`, which owns the connections |

#[macro_use]
mod table;

pub mod access;
pub mod app;
pub mod budget;
pub mod core;
pub mod drain;
pub mod encode;
pub mod executor;
pub mod hosts;
pub mod http_date;
pub mod identity;
pub mod limits;
pub mod message;
pub mod metrics;
pub mod millis;
pub mod model;
pub mod moved;
pub mod options;
pub mod origin;
pub mod protocols;
pub mod proxies;
pub mod proxy_users;
mod published;
pub mod recovery;
pub mod refusal_log;
mod reload;
pub mod rule;
pub mod shared;
pub mod subscribe_options;
pub mod system;
mod timelines;
pub mod tracked;

use stentor_ports::{self as ports, ledger};
