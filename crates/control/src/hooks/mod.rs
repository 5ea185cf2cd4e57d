//! Hooks: questions and notices to the backend over HTTP. docs/hooks.md defines them.
//!
//! ```text
//!  cores ── EventSink, Authorizer, Authenticator ──► Batcher ──► POST ──► the backend
//!    ▲                                                                       │
//!    └──────── Reply::send ◄──── answers ◄───────────────────────────────────┘
//! ```
//!
//! - `batcher`: batches questions into requests; sans-I/O. `breaker`: pauses a failing hook.
//! - `question`, `answer`: the wire format. `signature`: signs requests. `http`: one request.
//! - `cache`: answers with a `ttl`. `direct`: messages of answers to sessions.
//! - `ports`: the data plane's questions.
//! - `notices`: notices of events. `delivery`: schedules their requests; `resync`: the list of occupied
//!   topics after a gap; both sans-I/O.
//! - `reach`: a request without questions, for `stentor check`.
//! - `run`: the task of a hook, which sends its requests and delivers its answers.
//!
//! Hooks never block a core: a question is written to a bounded queue, or refused. A failing hook affects
//! only the clients about which it is asked. Logs contain no secrets, tokens or bodies.

mod answer;
mod batcher;
mod breaker;
mod cache;
mod charged;
mod delivery;
mod direct;
mod failure;
mod http;
mod metrics;
mod notices;
mod options;
mod pattern;
mod ports;
mod question;
mod reach;
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
use charged::Charged;
use delivery::{Queue, QueueLimits};
use failure::Cause;
use http::Sender;
use metrics::HookMetrics;
use notices::Occupied;
use options::Filter;
use parking_lot::Mutex;
use ports::Verifying;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_ports::{
    Charge, Class, Denial, Identity, IdentityReply, Ledger, PermissionReply, PublicId, ReplyToEvent, Ticket,
};
use tokio::sync::Notify;

/// Maximum size of the questions in one request in bytes. A single question may be larger.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Approximate size of a question without its text, in bytes.
const QUESTION_BYTES: usize = 256;

/// A client that asks a question.
#[derive(Clone, Copy)]
struct Client {
    /// The number from [`Source::source`].
    number: u64,
    /// The number of the client's address.
    address: u64,
}

/// The operation that waits for a question's answer.
enum Asker {
    /// An event of a client's session. The text is its namespace.
    Event(Client, ReplyToEvent, Box<str>, PublicId),
    /// A permission. The text is the key under which the answer is cached.
    Access(Client, PermissionReply, Box<str>),
    /// A client that connects, with the namespace and the identity from its token.
    Connect(Client, IdentityReply, Box<str>, Arc<Identity>),
}

impl Asker {
    fn parts(&self) -> (Client, Ticket) {
        match self {
            Self::Event(client, reply, ..) => (*client, reply.ticket()),
            Self::Access(client, reply, _) => (*client, reply.ticket()),
            Self::Connect(client, reply, ..) => (*client, reply.ticket()),
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

/// A configured hook with its queues and its cache.
struct Hook {
    name: Arc<str>,
    filter: Filter,
    when_unavailable: WhenUnavailable,
    /// Maximum number of a session's rooms in questions and notices.
    rooms_max: usize,
    sender: Sender,
    batcher: Charged<Batcher<Asker>>,
    cache: Charged<Cache>,
    /// Notified when the batcher has work for the hook's task.
    asked: Notify,
    notices: Charged<Queue>,
    /// Notified when there is a notice.
    notified: Notify,
    timeout: Duration,
    batch_delay: Duration,
    metrics: HookMetrics,
    ledger: Arc<Ledger>,
}

/// All hooks of a node.
pub struct Hooks {
    /// Identifies the node in requests.
    node: String,
    hooks: Vec<Arc<Hook>>,
    metrics: Metrics,
    /// Topics with subscribers on this node. Recorded only if a hook needs them.
    occupied: Mutex<Occupied>,
    occupied_bytes: Charge,
    /// Clients whose tokens are being verified, oldest first.
    verifying: Mutex<VecDeque<Verifying>>,
    ledger: Arc<Ledger>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.hooks.iter().map(|hook| &hook.name)).finish()
    }
}

/// Returns the number of a client, by its session or its address.
fn source_of(client: impl Hash) -> u64 {
    // Two clients may get the same number. The only effect is that they are suspects together.
    let mut hasher = DefaultHasher::new();
    client.hash(&mut hasher);
    hasher.finish()
}

impl Hooks {
    /// Makes the hooks, which ask no questions before they run. `node` identifies the node in requests:
    /// letters, digits and hyphens. Waiting questions and notices are charged to `ledger`.
    ///
    /// # Errors
    /// An option is invalid.
    pub fn new(node: &str, options: &[HookOptions], ledger: &Arc<Ledger>) -> Result<Arc<Self>, Error> {
        let metrics = Metrics::default();
        let hook = |options: &HookOptions| {
            if let Some((field, text)) = options.check().into_iter().next() {
                return Err(options.error(field, text));
            }
            let questions = Limits {
                batch_max: options.batch_max,
                batch_bytes_max: BATCH_BYTES_MAX,
                batch_delay: options.batch_delay,
                timeout: options.timeout,
                requests_max: options.concurrency_max,
                waiting_max: options.waiting_max,
                waiting_bytes_max: options.waiting_bytes_max,
            };
            let notices = QueueLimits {
                waiting_max: options.waiting_max,
                waiting_bytes_max: options.waiting_bytes_max,
                batch_max: options.batch_max,
                has_resync: options.on.contains(&HookKind::Resync),
            };
            Ok(Arc::new(Hook {
                name: options.name.as_str().into(),
                filter: Filter::new(options),
                when_unavailable: options.when_unavailable,
                rooms_max: options.rooms_max,
                sender: Sender::new(options)?,
                batcher: Charged::new(ledger, Batcher::new(questions)),
                cache: Charged::new(ledger, Cache::new(options.cached_answers_max)),
                asked: Notify::new(),
                notices: Charged::new(ledger, Queue::new(notices)),
                notified: Notify::new(),
                timeout: options.timeout,
                batch_delay: options.batch_delay,
                metrics: metrics.of(&options.name),
                ledger: ledger.clone(),
            }))
        };
        let node = node.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        let hooks = options.iter().map(hook).collect::<Result<_, _>>()?;
        Ok(Arc::new(Self {
            node,
            hooks,
            metrics,
            occupied: Mutex::default(),
            occupied_bytes: Charge::new(ledger.clone(), Class::Hooks),
            verifying: Mutex::default(),
            ledger: ledger.clone(),
        }))
    }

    /// Drops a question of a disconnected client, unless the question is already in a request.
    fn cancel(&self, ticket: Ticket) {
        for hook in &self.hooks {
            if hook.batcher.with(|batcher| batcher.cancel(ticket)) {
                return;
            }
        }
    }

    /// Returns `true` if any hook receives questions or notices of this kind.
    pub fn asks_about(&self, kind: HookKind) -> bool {
        self.hooks.iter().any(|hook| hook.filter.is_on(kind))
    }

    /// Returns the names of the hooks whose breaker is open.
    pub(crate) fn paused(&self) -> impl Iterator<Item = String> {
        let paused = self.hooks.iter().filter(|hook| hook.metrics.breaker_open.get() != 0);
        paused.map(|hook| hook.name.to_string())
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}

impl Hook {
    /// Asks a question. `write` receives the question's id and writes its text.
    ///
    /// # Errors
    /// Returns the cause if the question isn't asked.
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
        let (asked, has_failed) = self.batcher.with(|batcher| {
            let asked = batcher.ask(Instant::now(), asker, write);
            // Other questions may have been refused to make space, even if the space didn't suffice.
            (asked, batcher.has_failed())
        });
        if has_failed || matches!(asked, Ok(true)) {
            self.asked.notify_one();
        }
        asked.map(|_| ()).map_err(|(asker, cause)| (asker, self.unanswered(cause)))
    }

    /// Charges the body of a request or response to the ledger, until the charge is dropped.
    fn charge_body(&self, bytes: usize) -> Charge {
        Charge::of(self.ledger.clone(), Class::Hooks, bytes)
    }

    /// Counts a question without an answer.
    fn unanswered(&self, cause: Cause) -> Cause {
        self.metrics.unanswered(cause).inc();
        cause
    }

    /// Decides a question without an answer, by `when_unavailable`. Not for events.
    fn decide_without_answer(&self) -> Result<(), Denial> {
        match self.when_unavailable {
            WhenUnavailable::Allow => Ok(()),
            WhenUnavailable::Refuse => Err(unavailable()),
        }
    }
}

/// Makes the refusal of a client whose question has no answer. The text reveals nothing about the backend.
fn unavailable() -> Denial {
    Denial {
        retry: true,
        ..Denial::new("unavailable", "the application behind the server doesn't answer; try again later")
    }
}
