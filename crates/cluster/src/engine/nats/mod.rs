//! An engine on NATS: nats-server 2.9 or newer, with JetStream.
//!
//! A node has one connection. Messages travel on core NATS. The state that must survive a node is stored in three
//! streams, which the first node creates. Servers assign no offsets and run no scripts, so each name (of a room, a
//! feed, a claim) has one subject. A message is stored on it only if its writer knows the newest one
//! (`Nats-Expected-Last-Subject-Sequence`). The newest message contains the state. A writer that doesn't know this
//! message is refused, reads it, and tries again.
//!
//! The client is our own: `async-nats` has a queue per subscription. Messages of one node on several channels would lose their order
//! (the contract checks it: `a_publishers_messages_arrive_in_order_over_rooms`), and 100,000 rooms would need 600 MB.

mod address;
mod calls;
mod claims;
mod connection;
mod credentials;
mod entries;
mod feeds;
mod jetstream;
mod link;
mod names;
mod observed;
mod parts;
mod protocol;
mod records;
mod rooms;
mod snapshot;
mod terms;
mod topics;

use super::common::{Interest, Outgoing, Permits, Probe};
use super::{
    Answer, Channel, ConnectError, ConnectOptions, Engine, EngineError, EventReceiver, EventSender, Reply,
    Request, SERVERS_DELAY, Waiting, check_size, events, failed, in_time,
};
use crate::NodeId;
use address::Servers;
use bytes::Bytes;
use calls::Calls;
use claims::ClaimState;
use feeds::{FeedState, FeedTurn, Subjects};
use jetstream::{IDLE_TTL, Session};
use names::Names;
use observed::Observed;
use parking_lot::{Mutex, MutexGuard};
use parts::Assembly;
use records::Records;
use rooms::RoomState;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::{Key, ShrinkingMap, Topic};
use terms::ReleasedTerms;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use topics::{Topics, Turn};

/// Time for the other nodes to report to a node that has just connected.
const REPORT_DELAY: Duration = Duration::from_millis(200);

/// State that arriving messages change.
struct State {
    assembly: Assembly,
    /// Arrival times of messages about the feeds in which the node is interested.
    seen: ShrinkingMap<Key, Observed>,
}

/// State that the connection and the requests share.
struct Shared {
    servers: Servers,
    names: Names,
    events: EventSender,
    interest: Interest,
    /// Messages to publish. The state of a message in parts: its id, and the number of its bytes that are written.
    outgoing: Outgoing<Option<(u64, usize)>>,
    permits: Arc<Permits>,
    calls: Calls,
    records: Records,
    rooms: Topics<RoomState>,
    feeds: Topics<FeedState>,
    claims: Topics<ClaimState>,
    released_terms: ReleasedTerms,
    state: Mutex<State>,
    probe: Probe,
    session: watch::Sender<Option<Arc<Session>>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits for the connection.
    async fn session(&self) -> Result<Arc<Session>, EngineError> {
        let mut session = self.session.subscribe();
        let session = session.wait_for(Option::is_some).await.ok().and_then(|session| session.clone());
        // The sender of the watched session lives as long as `self`.
        session.ok_or_else(EngineError::connection_lost)
    }

    fn record(&self, record: &[u8]) -> Vec<u8> {
        let mut command = Vec::new();
        protocol::publish(&mut command, &self.names.records(), "", "", &[record]);
        command
    }

    fn publish_record(&self, record: &[u8]) {
        self.calls.command(self.record(record));
    }

    /// Answers one or more questions of other nodes.
    fn answer_with_record(&self, record: &[u8]) {
        self.calls.report(self.record(record));
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
        // When the server answers the ping, the reports from before it have arrived.
        let answered = self.calls.ping(session.connection).await;
        answered.map_err(|_| EngineError::connection_lost())?;
        Ok(Reply::Nodes(self.records.alive(Instant::now())))
    }
}

/// A node's connection to NATS.
pub struct Nats {
    shared: Arc<Shared>,
    request_timeout: Duration,
    /// The tokio runtime that runs requests. Callers may be on threads outside a runtime.
    runtime: Handle,
    /// The task, which ends with the engine.
    _task: JoinSet<()>,
}

/// The work of a request, which waits for a connection.
type Work = Pin<Box<dyn Future<Output = Result<Reply, EngineError>> + Send>>;

impl Nats {
    /// Connects a node. `url` is `nats://[user:password@|token@]host[:port][,host[:port]…]`, or `tls://`. Called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// The mistake in the options, or the reason why the servers can't be used, unless [`ConnectOptions::wait`] is set.
    /// The text doesn't contain the password.
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
        let (limits, ledger) = (options.limits, &options.ledger);
        let (events, receiver) = events(&limits, ledger);
        let shared = Arc::new(Shared {
            servers,
            events,
            interest: Interest::default(),
            outgoing: Outgoing::new(ledger.clone(), &limits),
            permits: Permits::new(ledger.clone(), limits.requests_max, limits.outgoing_bytes_max),
            probe: Probe::new(names.probe(node).into()),
            calls: Calls::new(names.inbox(node)),
            records: Records::default(),
            rooms: Topics::new(ledger),
            feeds: Topics::new(ledger),
            claims: Topics::new(ledger),
            released_terms: ReleasedTerms::new(ledger.clone()),
            state: Mutex::new(State {
                assembly: Assembly::new(ledger.clone()),
                seen: ShrinkingMap::default(),
            }),
            names,
            session: watch::Sender::new(None),
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
        let request_timeout = limits.request_timeout;
        let engine = Self { shared, request_timeout, runtime: Handle::current(), _task: task };
        Ok((engine, receiver))
    }

    fn feed(&self, key: &Key) -> (Subjects, Turn<FeedState>) {
        let names = &self.shared.names;
        let subjects = Subjects { log: names.feed(key), base: names.base(key) };
        let turn = self.shared.feeds.turn(&subjects.log);
        (subjects, turn)
    }

    /// Takes the request's turn at once, so that requests take effect in the order of the calls.
    fn work(&self, request: Request) -> Work {
        let shared = self.shared.clone();
        // Waits for the turn and for a connection.
        macro_rules! in_turn {
            ($turn:expr, |$session:ident, $state:ident| $work:expr) => {{
                let turn = $turn;
                Box::pin(async move {
                    #[allow(unused_mut)] // Reads don't change the state.
                    let (mut $state, $session) = (turn.await, shared.session().await?);
                    let $session = &$session;
                    $work.await
                })
            }};
        }
        macro_rules! of_feed {
            ($key:expr, |$feed:ident| $work:expr) => {{
                let (subjects, turn) = self.feed($key);
                Box::pin(async move {
                    let (mut state, session) = (turn.await, shared.session().await?);
                    let (shared, session, subjects) = (&*shared, &*session, &subjects);
                    let mut $feed = FeedTurn { shared, session, subjects, state: &mut state };
                    $work.await
                })
            }};
        }
        match request {
            Request::Append { room, payload, idempotency_key, limits } => {
                let subject = shared.names.room(&room);
                in_turn!(shared.rooms.turn(&subject), |session, state| async {
                    let key = idempotency_key.as_deref();
                    let appended = shared.append(session, &mut state, &subject, &payload, key, &limits);
                    appended.await.map(Reply::Position)
                })
            }
            Request::History { room, since, messages_max, age_max } => {
                let subject = shared.names.room(&room);
                in_turn!(shared.rooms.turn(&subject), |session, _state| {
                    shared.history(session, &subject, since, messages_max, age_max)
                })
            }
            Request::Heads { rooms } => {
                let subjects: Vec<String> = rooms.iter().map(|room| shared.names.room(room)).collect();
                Box::pin(async move {
                    let session = shared.session().await?;
                    shared.heads(&session, &subjects).await
                })
            }
            // A stream has one epoch while it exists.
            Request::EndEpoch { .. } => Box::pin(async { Err(EngineError::Unsupported) }),
            Request::AcquireLease { key, term_seen, ttl } => {
                of_feed!(&key, |feed| feed.acquire(&key, term_seen, ttl))
            }
            Request::RenewLease { key, lease, ttl } => of_feed!(&key, |feed| feed.renew(lease, ttl)),
            Request::ReleaseLease { key, lease, term_ttl } => {
                of_feed!(&key, |feed| feed.release(lease, term_ttl))
            }
            Request::StoreVersion { key, lease, version } => {
                of_feed!(&key, |feed| feed.store_version(lease, version))
            }
            Request::LoadFeed { key } => {
                of_feed!(&key, |feed| async { feed.load().await.map(Reply::Feed) })
            }
            Request::Heartbeat { node, record, ttl } => Box::pin(async move {
                let session = shared.session().await?;
                shared.heartbeat(&session, node, record, ttl).await
            }),
            Request::Claim { name, owner, ttl } => {
                let subject = shared.names.claim(&name);
                in_turn!(shared.claims.turn(&subject), |session, state| {
                    shared.claim(session, &mut state, &subject, owner, ttl)
                })
            }
        }
    }
}

impl Engine for Nats {
    fn publish(&self, channel: Channel, payload: Bytes) -> Result<(), EngineError> {
        check_size(payload.len())?;
        self.shared.outgoing.push(self.shared.names.channel(&channel), payload)
    }

    fn delay_max(&self) -> Duration {
        // Servers in a cluster redirect clients to each other, so nodes may use several servers.
        SERVERS_DELAY
    }

    fn room_grace(&self) -> Duration {
        // The stream keeps messages for at least this time.
        IDLE_TTL * 2
    }

    fn set_interest(&self, channel: Channel, is_interested: bool) -> bool {
        if let (Channel::Topic(Topic::Feed(key)), false) = (&channel, is_interested) {
            self.shared.state().seen.remove(key);
        }
        self.shared.interest.set(channel, is_interested)
    }

    fn request(&self, request: Request) -> Answer {
        let bytes = match &request {
            Request::StoreVersion { version, .. } => {
                version.change.len() + version.base.as_ref().map_or(0, Bytes::len)
            }
            _ => request.largest_payload(),
        };
        let permit = match self.shared.permits.admit(&request, size_of::<Request>() + bytes) {
            Ok(permit) => permit,
            Err(error) => return failed(error),
        };
        let deadline = Instant::now() + self.request_timeout;
        let work = self.work(request);
        // The request is made now, even if the caller never awaits the answer.
        let task = self.runtime.spawn(async move {
            let _permit = permit;
            in_time(deadline, work).await
        });
        Box::pin(async move {
            task.await.unwrap_or_else(|_| Err(EngineError::Unavailable("the request was cancelled".into())))
        })
    }

    fn waiting(&self) -> Waiting {
        let (messages, messages_bytes) = self.shared.outgoing.unsent();
        let (requests, requests_bytes) = self.shared.permits.used();
        Waiting { messages, messages_bytes, requests, requests_bytes }
    }
}
