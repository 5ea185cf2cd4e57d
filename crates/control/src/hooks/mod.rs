//! Hooks: the backend decides and acts, over HTTP. docs/hooks.md is the definition.
//!
//! ```text
//!  cores ── EventSink, Authorizer, Authenticator ──► Batcher ──► POST ──► the backend
//!    ▲                                                                       │
//!    └──────── CommandInbox: reply, decide, identify ◄──── answers ◄─────────┘
//! ```
//!
//! - `batcher`: gathers questions into requests; sans-I/O. `breaker`: when a hook isn't asked.
//! - `question`, `answer`: the wire format. `signature`: how requests are signed. `http`: one request.
//! - `cache`: answers with a `ttl`.
//! - `ports`: what the data plane asks.
//! - `notices`: notices of what has happened. `delivery`: when each of them is sent; `resync`: the list of occupied topics after a
//!   gap; both sans-I/O.
//! - `run`: the task of a hook, which sends its requests and delivers its answers.
//!
//! Nothing here holds a core: a question is written to a bounded queue, or refused. A hook that fails concerns nobody but those who
//! ask it. Secrets, tokens and bodies are in no log.

mod answer;
mod batcher;
mod breaker;
mod cache;
mod delivery;
mod failure;
mod http;
mod metrics;
mod notices;
mod options;
mod pattern;
mod ports;
mod question;
mod resync;
mod run;
mod signature;
#[cfg(test)]
mod tests;

pub(crate) use metrics::Metrics;
pub use options::{HookKind, HookOptions, HookSecret, WhenUnavailable};
pub use ports::{HookAuthenticator, HookAuthorizer};

use crate::error::Error;
use crate::fair::Owner;
use batcher::{Batcher, Limits, Source};
use cache::Cache;
use delivery::{Queue, QueueLimits};
use failure::Cause;
use http::Sender;
use metrics::HookMetrics;
use notices::Occupied;
use options::Filter;
use ports::Verifying;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use stentor_ports::{Charge, Class, DataPlane, Denial, Identity, Ledger, Ticket};
use tokio::sync::Notify;

/// Bytes of the questions of one request, unless it has only one.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Approximate size of a question besides its text.
const QUESTION_BYTES: usize = 256;

/// A client that asks.
#[derive(Clone, Copy)]
struct Client {
    /// The number of [`Source::source`].
    number: u64,
    /// The number of its address.
    address: u64,
}

/// The operation that waits for an answer.
enum Asker {
    /// An event of a client in this namespace.
    Event(Client, Ticket, Box<str>),
    /// A permission, and the key under which the answer is kept.
    Access(Client, Ticket, Box<str>),
    /// A client that wants to connect to this namespace, as its token identifies it.
    Connect(Client, Ticket, Box<str>, Arc<Identity>),
}

impl Asker {
    fn parts(&self) -> (Client, Ticket) {
        match self {
            Self::Event(client, ticket, _)
            | Self::Access(client, ticket, _)
            | Self::Connect(client, ticket, ..) => (*client, *ticket),
        }
    }
}

impl Source for Asker {
    fn source(&self) -> u64 {
        self.parts().0.number
    }

    fn owner(&self) -> Owner {
        let (Client { number, address }, _) = self.parts();
        Owner::new(address, number)
    }

    fn ticket(&self) -> Ticket {
        self.parts().1
    }
}

/// One hook.
struct Hook {
    name: Arc<str>,
    filter: Filter,
    when_unavailable: WhenUnavailable,
    sender: Sender,
    batcher: Mutex<Batcher<Asker>>,
    cache: Mutex<Cache>,
    /// The batcher has something for the hook's task.
    asked: Notify,
    notices: Mutex<Queue>,
    /// There is a notice.
    notified: Notify,
    timeout: Duration,
    batch_delay: Duration,
    metrics: HookMetrics,
    ledger: Arc<Ledger>,
    /// The questions that wait.
    waiting: Charge,
    /// Requests and responses.
    bodies: Charge,
    /// The cache.
    cached: Charge,
    /// The notices that wait.
    noticed: Charge,
}

/// All hooks of a node.
pub struct Hooks {
    /// Names the node in requests.
    node: String,
    hooks: Vec<Arc<Hook>>,
    /// Set when the data plane has started.
    plane: OnceLock<Arc<dyn DataPlane>>,
    metrics: Metrics,
    /// Topics with subscribers on this node, if a hook wants to know.
    occupied: Mutex<Occupied>,
    occupied_bytes: Charge,
    /// Clients whose tokens are being verified, oldest first.
    verifying: Mutex<VecDeque<Verifying>>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.hooks.iter().map(|hook| &hook.name)).finish()
    }
}

/// The number of a client, by its session or its address.
fn source_of(client: impl Hash) -> u64 {
    // Two clients with one number are isolated together, and nothing else.
    let mut hasher = DefaultHasher::new();
    client.hash(&mut hasher);
    hasher.finish()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these locks; if something did, the data is still whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hooks {
    /// Hooks that ask nothing yet. `node` names the node in requests: letters, digits and hyphens. What waits is counted in `ledger`.
    ///
    /// # Errors
    /// An option is invalid.
    pub fn new(node: &str, options: &[HookOptions], ledger: &Arc<Ledger>) -> Result<Arc<Self>, Error> {
        let metrics = Metrics::default();
        let hook = |options: &HookOptions| {
            options.check().map_err(|(field, text)| options.error(field, text))?;
            Ok(Arc::new(Hook {
                name: options.name.as_str().into(),
                filter: Filter::new(options),
                when_unavailable: options.when_unavailable,
                sender: Sender::new(options)?,
                batcher: Mutex::new(Batcher::new(Limits {
                    batch_max: options.batch_max,
                    batch_bytes_max: BATCH_BYTES_MAX,
                    gather: options.batch_delay,
                    timeout: options.timeout,
                    requests_max: options.concurrency_max,
                    waiting_max: options.waiting_max,
                    waiting_bytes_max: options.waiting_bytes_max,
                })),
                cache: Mutex::new(Cache::new(options.cached_answers_max)),
                asked: Notify::new(),
                notices: Mutex::new(Queue::new(QueueLimits {
                    waiting_max: options.waiting_max,
                    waiting_bytes_max: options.waiting_bytes_max,
                    batch_max: options.batch_max,
                    has_resync: options.on.contains(&HookKind::Resync),
                })),
                notified: Notify::new(),
                timeout: options.timeout,
                batch_delay: options.batch_delay,
                metrics: metrics.of(&options.name),
                ledger: ledger.clone(),
                waiting: Charge::new(ledger.clone(), Class::Hooks),
                bodies: Charge::new(ledger.clone(), Class::Hooks),
                cached: Charge::new(ledger.clone(), Class::Hooks),
                noticed: Charge::new(ledger.clone(), Class::Hooks),
            }))
        };
        let node = node.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        let hooks = options.iter().map(hook).collect::<Result<_, _>>()?;
        Ok(Arc::new(Self {
            node,
            hooks,
            plane: OnceLock::new(),
            metrics,
            occupied: Mutex::default(),
            occupied_bytes: Charge::new(ledger.clone(), Class::Hooks),
            verifying: Mutex::default(),
        }))
    }

    /// Sets the data plane of this node, to which answers are delivered.
    pub fn connect(&self, plane: Arc<dyn DataPlane>) {
        let _ = self.plane.set(plane);
    }

    /// Drops a question whose client has gone, unless it is in a request.
    fn cancel(&self, ticket: Ticket) {
        for hook in &self.hooks {
            let mut batcher = locked(&hook.batcher);
            if batcher.cancel(ticket) {
                hook.waiting.set(batcher.waiting_bytes() + batcher.waiting() * QUESTION_BYTES);
                return;
            }
        }
    }

    /// Whether any hook is asked about this.
    pub fn asks_about(&self, kind: HookKind) -> bool {
        self.hooks.iter().any(|hook| hook.filter.is_on(kind))
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}

impl Hook {
    /// Asks a question, which `write` writes, given its id.
    ///
    /// # Errors
    /// It isn't asked.
    fn ask(
        &self,
        kind: HookKind,
        asker: Asker,
        write: impl FnOnce(u64) -> Vec<u8>,
    ) -> Result<(), (Asker, Cause)> {
        self.metrics.question(kind).inc();
        if !self.ledger.has_room(QUESTION_BYTES) {
            return Err((asker, self.unanswered(Cause::QueueFull)));
        }
        let mut batcher = locked(&self.batcher);
        let asked = batcher.ask(Instant::now(), asker, write);
        self.waiting.set(batcher.waiting_bytes() + batcher.waiting() * QUESTION_BYTES);
        // Others have made room, even if it wasn't enough.
        let is_due = batcher.has_failed() || matches!(asked, Ok(true));
        drop(batcher);
        if is_due {
            self.asked.notify_one();
        }
        asked.map(|_| ()).map_err(|(asker, cause)| (asker, self.unanswered(cause)))
    }

    /// Counts a question without an answer.
    fn unanswered(&self, cause: Cause) -> Cause {
        self.metrics.unanswered(cause).inc();
        cause
    }

    /// What happens to a question without an answer, unless it is an event.
    fn decide_without_answer(&self) -> Result<(), Denial> {
        match self.when_unavailable {
            WhenUnavailable::Allow => Ok(()),
            WhenUnavailable::Refuse => Err(unavailable()),
        }
    }
}

/// The refusal of a client whose question has no answer. It says nothing about the backend.
fn unavailable() -> Denial {
    Denial {
        retry: true,
        ..Denial::new("unavailable", "the application behind the server doesn't answer; try again later")
    }
}
