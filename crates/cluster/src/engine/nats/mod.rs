//! An engine on NATS: nats-server 2.9 or newer, with JetStream.
//!
//! A node has one connection. Messages travel on core NATS; what must survive a node is stored in three streams, which the first node
//! makes. Servers assign no offsets and run no scripts, so each name (of a room, a feed, a claim) has one subject, on which a message is
//! stored only if the newest one is the one that the writer knows (`Nats-Expected-Last-Subject-Sequence`). Whoever knows the newest
//! message knows the state; whoever doesn't is refused, reads, and tries again.
//!
//! The client is our own: `async-nats` has a queue per subscription, so that messages of one node on several channels would lose
//! their order, and 100,000 rooms would need 600 MB.

mod address;
mod calls;
mod claims;
mod connection;
mod credentials;
mod entries;
mod feeds;
mod interest;
mod jetstream;
mod link;
mod names;
mod observed;
mod outgoing;
mod parts;
mod permits;
mod protocol;
mod records;
mod rooms;
mod snapshot;
mod terms;
mod topics;

use super::{
    Answer, Channel, ConnectError, ConnectOptions, Engine, EngineError, EventReceiver, EventSender, Limits,
    PAYLOAD_BYTES_MAX, Reply, Request, SERVERS_DELAY, Waiting, events,
};
use crate::NodeId;
use address::Servers;
use bytes::Bytes;
use calls::Calls;
use claims::ClaimState;
use feeds::{FeedState, Subjects};
use interest::Interest;
use jetstream::{IDLE_TTL, Session, StreamLimits};
use names::Names;
use observed::Observed;
use outgoing::Outgoing;
use parts::Assembly;
use permits::{Permit, Permits};
use records::Records;
use rooms::RoomState;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stentor_hub::{Key, ShrinkingMap, Topic};
use terms::ReleasedTerms;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};
use topics::{Topics, Turn};

/// How long the other nodes have to report to one that has just connected.
const REPORT_DELAY: Duration = Duration::from_millis(200);

/// What changes with what arrives.
struct State {
    assembly: Assembly,
    probed_at: Instant,
    /// When something was stored about the feeds that the node is interested in.
    seen: ShrinkingMap<Key, Observed>,
}

/// What the connection and the requests have in common.
struct Shared {
    servers: Servers,
    names: Names,
    limits: Limits,
    events: EventSender,
    interest: Interest,
    outgoing: Outgoing,
    calls: Calls,
    records: Records,
    rooms: Topics<RoomState>,
    feeds: Topics<FeedState>,
    claims: Topics<ClaimState>,
    released_terms: ReleasedTerms,
    stream_limits: tokio::sync::Mutex<StreamLimits>,
    state: Mutex<State>,
    /// Where the server answers.
    inbox: String,
    /// Over which the node proves that messages arrive.
    probe: String,
    /// Something is to be written.
    wake: Notify,
    session: watch::Sender<Option<Arc<Session>>>,
    /// Whether an outage was reported.
    is_lost: AtomicBool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, as soon as there is one.
    async fn session(&self) -> Result<Arc<Session>, EngineError> {
        let mut session = self.session.subscribe();
        let session = session.wait_for(Option::is_some).await.ok().and_then(|session| session.clone());
        // Its sender lives as long as `self`.
        session.ok_or_else(|| EngineError::Unavailable("the connection was lost".into()))
    }

    fn record(&self, record: &[u8]) -> Vec<u8> {
        let mut command = Vec::new();
        protocol::publish(&mut command, &self.names.records(), "", "", &[record]);
        command
    }

    fn publish_record(&self, record: &[u8]) {
        self.calls.command(self.record(record));
        self.wake.notify_one();
    }

    /// Answers a question, or several.
    fn answer_with_record(&self, record: &[u8]) {
        self.calls.report(self.record(record));
        self.wake.notify_one();
    }

    async fn heartbeat(
        &self,
        session: &Session,
        node: NodeId,
        record: Bytes,
        ttl: Duration,
    ) -> Result<Reply, EngineError> {
        let report = self.records.report(Instant::now(), node, record, ttl);
        self.publish_record(&report);
        sleep_until(session.established_at + REPORT_DELAY).await;
        // What was reported before has arrived when the server answers.
        let answered = self.calls.ping(session.connection);
        self.wake.notify_one();
        answered.await.map_err(|_| EngineError::Unavailable("the connection was lost".into()))?;
        Ok(Reply::Nodes(self.records.alive(Instant::now())))
    }
}

/// A node's connection to NATS.
pub struct Nats {
    shared: Arc<Shared>,
    permits: Arc<Permits>,
    /// Requests may be made on threads that know none.
    runtime: Handle,
    /// It ends with the engine.
    _task: JoinSet<()>,
}

/// What a request does, when it is connected.
type Work = Pin<Box<dyn Future<Output = Result<Reply, EngineError>> + Send>>;

impl Nats {
    /// Connects a node. `url` is `nats://[user:password@|token@]host[:port][,host[:port]…]`, or `tls://`. Called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// What is wrong with the options; or, unless they say to wait, why the servers can't be used. Without the password.
    pub async fn connect(
        node: NodeId,
        url: &str,
        options: &ConnectOptions,
    ) -> Result<(Self, EventReceiver), ConnectError> {
        let names = Names::new(&options.prefix).map_err(ConnectError)?;
        let servers = Servers::parse(
            url,
            options.ca_file.as_deref(),
            options.identity.as_ref(),
            options.credentials_file.as_deref(),
        )
        .map_err(ConnectError)?;
        let (events, receiver) = events(&options.limits, &options.ledger);
        let shared = Arc::new(Shared {
            servers,
            limits: options.limits,
            events,
            interest: Interest::default(),
            outgoing: Outgoing::new(options.ledger.clone()),
            calls: Calls::default(),
            records: Records::default(),
            rooms: Topics::new(&options.ledger),
            feeds: Topics::new(&options.ledger),
            claims: Topics::new(&options.ledger),
            released_terms: ReleasedTerms::new(options.ledger.clone()),
            stream_limits: tokio::sync::Mutex::default(),
            state: Mutex::new(State {
                assembly: Assembly::new(options.ledger.clone()),
                probed_at: Instant::now(),
                seen: ShrinkingMap::default(),
            }),
            inbox: names.inbox(node),
            probe: names.probe(node),
            names,
            wake: Notify::new(),
            session: watch::Sender::new(None),
            is_lost: AtomicBool::new(false),
        });
        for channel in [Channel::Node(node), Channel::Nodes] {
            shared.interest.set(channel, true);
        }
        let (sender, first) = oneshot::channel();
        let mut task = JoinSet::new();
        task.spawn(connection::run(shared.clone(), (!options.wait).then_some(sender)));
        if !options.wait {
            let failed = || Err("the connection was lost".into());
            first.await.unwrap_or_else(|_| failed()).map_err(ConnectError)?;
        }
        let permits = Permits::new(options.ledger.clone());
        let engine = Self { shared, permits, runtime: Handle::current(), _task: task };
        Ok((engine, receiver))
    }

    fn feed(&self, key: &Key) -> (Subjects, Turn<FeedState>) {
        let names = &self.shared.names;
        let subjects = Subjects { log: names.feed(key), base: names.base(key) };
        let turn = self.shared.feeds.turn(&subjects.log);
        (subjects, turn)
    }

    /// Takes its turn at once, so that requests take effect in the order of the calls.
    fn work(&self, request: Request) -> Work {
        let shared = self.shared.clone();
        match request {
            Request::Append { room, payload, idempotency_key, limits } => {
                let subject = shared.names.room(&room);
                let turn = shared.rooms.turn(&subject);
                Box::pin(async move {
                    let (mut state, session) = (turn.await, shared.session().await?);
                    let key = idempotency_key.as_deref();
                    let position =
                        shared.append(&session, &mut state, &subject, &payload, key, &limits).await;
                    position.map(Reply::Position)
                })
            }
            Request::History { room, since, messages_max, age_max } => {
                let subject = shared.names.room(&room);
                let turn = shared.rooms.turn(&subject);
                Box::pin(async move {
                    let (_turn, session) = (turn.await, shared.session().await?);
                    shared.history(&session, &subject, since, messages_max, age_max).await
                })
            }
            Request::Heads { rooms } => {
                let subjects: Vec<String> = rooms.iter().map(|room| shared.names.room(room)).collect();
                Box::pin(async move {
                    let session = shared.session().await?;
                    shared.heads(&session, &subjects).await
                })
            }
            Request::EndEpoch { .. } => {
                Box::pin(async { Err(EngineError::Refused("a stream has one epoch while it exists".into())) })
            }
            Request::AcquireLease { key, term_seen, ttl } => {
                let (subjects, turn) = self.feed(&key);
                Box::pin(async move {
                    let (mut state, session) = (turn.await, shared.session().await?);
                    shared.acquire(&session, &mut state, &subjects, &key, term_seen, ttl).await
                })
            }
            Request::RenewLease { key, lease, ttl } => {
                let (subjects, turn) = self.feed(&key);
                Box::pin(async move {
                    let (mut state, session) = (turn.await, shared.session().await?);
                    shared.renew(&session, &mut state, &subjects, lease, ttl).await
                })
            }
            Request::ReleaseLease { key, lease, term_ttl } => {
                let (subjects, turn) = self.feed(&key);
                Box::pin(async move {
                    let (mut state, session) = (turn.await, shared.session().await?);
                    shared.release(&session, &mut state, &subjects, lease, term_ttl).await
                })
            }
            Request::StoreVersion { key, lease, version } => {
                let (subjects, turn) = self.feed(&key);
                Box::pin(async move {
                    let (mut state, session) = (turn.await, shared.session().await?);
                    shared.store_version(&session, &mut state, &subjects, lease, version).await
                })
            }
            Request::LoadFeed { key } => {
                let (subjects, turn) = self.feed(&key);
                Box::pin(async move {
                    let (_turn, session) = (turn.await, shared.session().await?);
                    shared.load(&session, &subjects).await.map(Reply::Feed)
                })
            }
            Request::Heartbeat { node, record, ttl } => Box::pin(async move {
                let session = shared.session().await?;
                shared.heartbeat(&session, node, record, ttl).await
            }),
            Request::Claim { name, owner, ttl } => {
                let subject = shared.names.claim(&name);
                let turn = shared.claims.turn(&subject);
                Box::pin(async move {
                    let (mut state, session) = (turn.await, shared.session().await?);
                    shared.claim(&session, &mut state, &subject, owner, ttl).await
                })
            }
        }
    }
}

impl Engine for Nats {
    fn publish(&self, channel: Channel, payload: Bytes) -> Result<(), EngineError> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(EngineError::too_large());
        }
        self.shared.outgoing.push(&self.shared.limits, self.shared.names.channel(&channel), payload)?;
        self.shared.wake.notify_one();
        Ok(())
    }

    fn delay_max(&self) -> Duration {
        // Servers of a cluster are found as clients are moved to them, so there may be more than one.
        SERVERS_DELAY
    }

    fn room_grace(&self) -> Duration {
        // The age that the stream keeps messages for, at least.
        IDLE_TTL * 2
    }

    fn set_interest(&self, channel: Channel, is_interested: bool) {
        if let (Channel::Topic(Topic::Feed(key)), false) = (&channel, is_interested) {
            self.shared.state().seen.remove(key);
        }
        self.shared.interest.set(channel, is_interested);
        self.shared.wake.notify_one();
    }

    fn request(&self, request: Request) -> Answer {
        let bytes = match &request {
            Request::StoreVersion { version, .. } => {
                version.change.len() + version.base.as_ref().map_or(0, Bytes::len)
            }
            _ => request.largest_payload(),
        };
        if request.largest_payload() > PAYLOAD_BYTES_MAX {
            return Box::pin(std::future::ready(Err(EngineError::too_large())));
        }
        let permit = match Permit::new(&self.permits, &self.shared.limits, size_of::<Request>() + bytes) {
            Ok(permit) => permit,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let deadline = Instant::now() + self.shared.limits.request_timeout;
        let work = self.work(request);
        // Not within the answer, which may be awaited later or never.
        let task = self.runtime.spawn(async move {
            let _permit = permit;
            match timeout_at(deadline, work).await {
                Ok(result) => result,
                Err(_) => Err(EngineError::Unavailable("it took too long".into())),
            }
        });
        Box::pin(async move {
            task.await.unwrap_or_else(|_| Err(EngineError::Unavailable("the request was cancelled".into())))
        })
    }

    fn waiting(&self) -> Waiting {
        let (messages, messages_bytes) = self.shared.outgoing.unsent();
        let (requests, requests_bytes) = self.permits.unanswered();
        Waiting { messages, messages_bytes, requests, requests_bytes }
    }
}
