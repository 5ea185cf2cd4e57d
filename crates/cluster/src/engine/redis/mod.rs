//! An engine on Redis, 6.2 or newer.
//!
//! A node has three connections to the primary: one publishes, one makes requests, one receives. Each is replaced on its own. In a
//! Redis Cluster, a connection per primary makes requests; the others are to any primary, as its nodes forward messages to
//! each other. `SPUBLISH` would need a connection per primary for messages, too, and they would lose their order across rooms. All
//! state is changed by scripts (`scripts/`), each of which is one step. Messages are `:PAYLOAD`, or `EPOCH:OFFSET:PAYLOAD`.
//!
//! **Epochs.** Replication is asynchronous, so a failover or a restart can decrease a room's counter. Epoch and counter
//! are in one key, with the replication id of the primary that counted. A primary with another id begins a new epoch.
//! The log of a feed has the id of the primary where it began: with another one, it may lack its newest versions.
//!
//! Rooms expire a day after the last message's age limit, feeds a day after the last version or renewed lease.
//! A feed that never had a document expires soon after its lease.

mod address;
mod connection;
pub(crate) mod direct;
mod lanes;
pub(crate) mod link;
mod meter;
mod names;
pub(crate) mod publications;
pub(crate) mod publisher;
mod receiver;
mod replies;
mod requests;
mod scripts;
pub(crate) mod server;
pub(crate) mod slots;
mod subscriber;
mod values;

use super::common::{Backoff, Endpoint, Interest, Outages, Outgoing, Permits, Probe};
use super::{
    Answer, Channel, ConnectError, ConnectOptions, Engine, EngineError, EventReceiver, EventSender,
    FEED_CHANGES_BYTES_MAX, FEED_CHANGES_MAX, HEAD_TTL, Limits, Request, SERVERS_DELAY, TERM_TTL, Waiting,
    check_size, events, failed, in_time,
};
use crate::NodeId;
use bytes::Bytes;
use direct::Direct;
use lanes::Requests;
use link::Link;
use names::Names;
use publications::Publish;
use redis::aio::AsyncPushSender;
use scripts::{Call, Script};
use server::Server;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::Room;
use subscriber::Inbox;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Time for which an idempotency key is kept.
const IDEMPOTENCY_TTL: Duration = Duration::from_secs(300);
/// Time for which a feed without a holder is kept.
const IDLE_TTL: Duration = Duration::from_secs(86_400);
/// Maximum time, which replaces longer ones. Redis counts milliseconds.
const TTL_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Role {
    Publish,
    Requests,
    Subscribe,
}

/// State that the connections share.
struct Shared {
    server: Arc<Server>,
    names: Names,
    limits: Limits,
    events: EventSender,
    interest: Interest,
    probe: Probe,
    messages: Arc<Direct>,
    requests: Requests,
    permits: Arc<Permits>,
    /// Outages by role, and in a cluster by primary as well.
    outages: Outages<(Role, Option<Endpoint>)>,
}

impl Shared {
    /// Connects to the primary, or to the primary `to` of a cluster. Repeats this until it succeeds.
    async fn connect(&self, role: Role, to: Option<Endpoint>, inbox: Option<&Arc<Shared>>) -> Link {
        let mut backoff = Backoff::default();
        loop {
            let inbox = inbox.map(|shared| Inbox::begin(shared.clone()) as Arc<dyn AsyncPushSender>);
            let opened = match &to {
                Some(endpoint) => Link::to(&self.server, endpoint.clone(), inbox).await,
                None => Link::connect(&self.server, inbox).await,
            };
            match opened {
                Ok(link) => {
                    self.outages.end(&(role, to));
                    return link;
                }
                Err(reason) => self.outages.begin((role, to.clone()), &reason),
            }
            // Another primary may have its slots.
            self.requests.moved.notify_one();
            backoff.wait().await;
        }
    }
}

/// A node's connection to Redis.
pub struct Redis {
    shared: Arc<Shared>,
    /// Tasks that end with the engine.
    _tasks: JoinSet<()>,
}

impl Redis {
    /// Connects a node. `url` is `redis://[[user]:password@]host[:port][/database]`, or
    /// `redis+sentinel://[[user]:password@]host[:port][,…]/name[/database][?sentinel_user=…&sentinel_password=…]`; `rediss` for TLS.
    /// Called within a tokio runtime.
    ///
    /// # Errors
    /// The mistake in the options, or the reason why the server can't be used, unless [`ConnectOptions::wait`] is set.
    /// The text doesn't contain the password.
    pub async fn connect(
        node: NodeId,
        url: &str,
        options: &ConnectOptions,
    ) -> Result<(Self, EventReceiver), ConnectError> {
        let names =
            Names::new(&options.prefix).ok_or_else(|| ConnectError("the prefix has braces".into()))?;
        let (ca_file, identity) = (options.ca_file.as_deref(), options.identity.as_ref());
        let server = Server::parse(url, ca_file, identity, options.ledger.clone());
        let server = Arc::new(server.map_err(ConnectError)?);
        let (events, receiver) = events(&options.limits, &options.ledger);
        let (limits, ledger) = (options.limits, &options.ledger);
        let shared = Arc::new(Shared {
            limits,
            events,
            interest: Interest::default(),
            probe: Probe::new(names.probe(node).into()),
            names,
            // Messages without a position begin with a colon.
            messages: Direct::new(
                Outgoing::new(ledger.clone(), &limits),
                Publish { command: "PUBLISH", prefix: b":" },
            ),
            requests: Requests::new(server.is_cluster()),
            server,
            permits: Permits::new(ledger.clone(), limits.requests_max, limits.outgoing_bytes_max),
            outages: Outages::new("Redis"),
        });
        let engine = Self { shared: shared.clone(), _tasks: JoinSet::new() };
        for channel in [Channel::Node(node), Channel::Nodes] {
            engine.set_interest(channel, true);
        }
        let first = match options.wait {
            true => None,
            false => {
                let inbox = Inbox::begin(shared.clone());
                let link = Link::connect(&shared.server, Some(inbox)).await.map_err(ConnectError)?;
                subscriber::begin(&link, &shared).await.map_err(ConnectError)?;
                Some(link)
            }
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(publisher::run(shared.clone()));
        tasks.spawn(requests::run(shared.clone()));
        tasks.spawn(subscriber::run(shared, first));
        Ok((Self { _tasks: tasks, ..engine }, receiver))
    }

    fn calls(&self, request: &Request) -> Vec<Call> {
        let names = &self.shared.names;
        let room =
            |script, room: &Room| Call::new(script, vec![names.room(room, ":head"), names.room(room, "")]);
        let feed = |script, key| {
            Call::new(script, vec![names.feed(key, ":lease"), names.feed(key, ""), names.feed(key, ":log")])
        };
        let call = match request {
            Request::Append { room: to, payload, idempotency_key, limits } => {
                let mut call = room(Script::Append, to)
                    .text(names.channel(&to.clone().into()))
                    .bytes(payload.clone())
                    .text(limits.publications_max)
                    .text(limits.bytes_max)
                    .text(ms(limits.age_max))
                    .text(ms(limits.age_max.min(TTL_MAX) + HEAD_TTL))
                    .text(ms(IDEMPOTENCY_TTL));
                if let Some(key) = idempotency_key {
                    call.keys.push(names.room(to, &format!(":key:{key}")));
                }
                call
            }
            Request::History { room: of, since, messages_max, age_max } => {
                let call = room(Script::History, of).text(since.epoch.0).text(since.offset);
                call.text(messages_max).text(ms(HEAD_TTL)).text(ms(*age_max))
            }
            Request::Heads { rooms } => {
                return rooms.iter().map(|of| room(Script::Head, of).text(ms(HEAD_TTL))).collect();
            }
            Request::EndEpoch { room: of, epoch } => room(Script::End, of).text(epoch.0),
            Request::AcquireLease { key, term_seen, ttl } => feed(Script::Acquire, key)
                .text(fastrand::u64(1..))
                .text(term_seen)
                .text(ms(*ttl).max(1))
                .text(ms(IDLE_TTL))
                .text(ms(ttl.saturating_add(TERM_TTL))),
            Request::RenewLease { key, lease, ttl } => feed(Script::Renew, key)
                .text(format_args!("{}:{}", lease.term, lease.token))
                .text(ms(*ttl).max(1))
                .text(ms(IDLE_TTL))
                .text(ms(ttl.saturating_add(TERM_TTL))),
            Request::ReleaseLease { key, lease, term_ttl } => feed(Script::Renew, key)
                .text(format_args!("{}:{}", lease.term, lease.token))
                .text(0)
                .text(ms(IDLE_TTL))
                .text(ms(*term_ttl)),
            Request::StoreVersion { key, lease, version } => {
                let position = version.position;
                let call = feed(Script::Store, key)
                    .text(format_args!("{}:{}", lease.term, lease.token))
                    .text(lease.term)
                    .text(format_args!("{}:{}", position.epoch.0, position.offset))
                    .text(names.channel(&key.clone().into()))
                    .bytes(version.change.clone())
                    .text(ms(IDLE_TTL))
                    .text(FEED_CHANGES_MAX)
                    .text(FEED_CHANGES_BYTES_MAX);
                match &version.base {
                    Some(base) => call.bytes(base.clone()),
                    None => call,
                }
            }
            Request::LoadFeed { key } => {
                Call::new(Script::Load, vec![names.feed(key, ""), names.feed(key, ":log")])
            }
            Request::Heartbeat { node, record, ttl } => Call::new(Script::Heartbeat, vec![names.nodes()])
                .text(node)
                .bytes(record.clone())
                .text(ms(*ttl)),
            Request::Claim { name, owner, ttl } => {
                Call::new(Script::Claim, vec![names.claim(name)]).text(owner).text(ms(*ttl))
            }
        };
        vec![call]
    }

    /// The channel in which interest must be established before a request is answered. Messages that the answer lacks
    /// then arrive as messages.
    fn awaited(request: &Request) -> Option<Channel> {
        match request {
            Request::History { room, .. } => Some(room.clone().into()),
            Request::LoadFeed { key } => Some(key.clone().into()),
            _ => None,
        }
    }
}

fn ms(time: Duration) -> u128 {
    time.min(TTL_MAX * 2).as_millis()
}

impl Engine for Redis {
    fn publish(&self, channel: Channel, payload: Bytes) -> Result<(), EngineError> {
        check_size(payload.len())?;
        let (Shared { messages, names, .. }, bytes) = (&*self.shared, payload.len());
        messages.outgoing.append(names.channel(&channel), payload)?;
        messages.flush(bytes);
        Ok(())
    }

    fn delay_max(&self) -> Duration {
        if self.shared.server.is_cluster() { SERVERS_DELAY } else { Duration::ZERO }
    }

    fn set_interest(&self, channel: Channel, is_interested: bool) -> bool {
        self.shared.interest.set(channel, is_interested)
    }

    fn request(&self, request: Request) -> Answer {
        let calls = self.calls(&request);
        let permit = match self.shared.permits.admit(&request, calls.iter().map(Call::size).sum()) {
            Ok(permit) => permit,
            Err(error) => return failed(error),
        };
        let deadline = Instant::now() + self.shared.limits.request_timeout;
        let shared = self.shared.clone();
        // The request is made now, even if the caller never awaits the answer, because requests take effect in the order of the
        // calls.
        let (awaited, mut answer, calls) = match Self::awaited(&request) {
            Some(channel) => (Some(channel), None, Some(calls)),
            None => (None, Some(shared.requests.push(calls)), None),
        };
        Box::pin(async move {
            let _permit = permit;
            let mut replies = in_time(deadline, async {
                if let (Some(channel), Some(calls)) = (awaited, calls) {
                    shared.interest.established(&channel).await;
                    answer = Some(shared.requests.push(calls));
                }
                match answer {
                    Some(pending) => pending.replies(&shared.server.ledger).await,
                    None => Err(EngineError::connection_lost()),
                }
            })
            .await?;
            replies::decode(&request, std::mem::take(&mut replies.values))
        })
    }

    fn waiting(&self) -> Waiting {
        let (messages, messages_bytes) = self.shared.messages.outgoing.unsent();
        let (requests, requests_bytes) = self.shared.permits.used();
        Waiting { messages, messages_bytes, requests, requests_bytes }
    }
}
