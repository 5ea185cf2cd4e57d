//! The load generator: N connections on one thread, a load on them, and an audit of every message. The same loads run on every
//! [`Protocol`].
//!
//! Latency counts from the *intended* time of sending, which is in the payload (`crate::payload`), so a server that stalls can't
//! hide it (no coordinated omission). The generator also measures its own CPU and its lag behind the schedule; see
//! [`Outcome::doubts`]. Every run is limited in number and time.
//!
//! [`Workers`] runs generators in separate processes, as many as the limit on file descriptors requires.
//!
//! Deliberately absent: assembling messages (`protocol::frames` and `protocol::envelope`), except compressed ones.

mod ask;
mod bare;
mod budget;
mod chat;
mod echo;
mod fanout;
mod follow;
mod latency;
mod line;
mod live;
mod misbehave;
mod opening;
mod outcome;
mod pool;
mod presence;
mod protocol;
mod reconnect;
mod run;
mod schedule;
mod spec;
mod tls;
mod tokens;
mod topics;
mod worker;

pub use budget::BudgetPlan;
pub use chat::{ChatPlan, ChatStep};
pub use fanout::FanoutPlan;
pub use follow::Following;
pub(crate) use follow::SAMPLE_EVERY;
pub use latency::Latencies;
pub use live::Live;
pub use misbehave::Misbehaviour;
pub use outcome::{Audit, Cause, Doubt, Outcome, Progress, Span};
pub(crate) use outcome::{LAG_SHARE_MAX, OWN_CPU_MAX, is_spoiled};
pub use protocol::Protocol;
pub(crate) use protocol::WATCH;
pub use run::run;
pub use spec::{CONNECTIONS_PER_PROCESS_MAX, Cut, LoadSpec, Publisher, Spec};
pub(crate) use tokens::ISSUER;
pub use tokens::{TokenKey, Tokens};
pub use topics::TopicsPlan;
pub use worker::{Workers, serve_worker, this_program};
