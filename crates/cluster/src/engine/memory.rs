//! An engine in this process: for tests, and for several nodes in one process.
//!
//! [`Bus`] is the engine's server without time, tasks or chance of its own, so that a simulation can drive it.

use super::{
    Answer, Channel, Engine, EngineError, Event, EventReceiver, EventSender, FEED_CHANGES_BYTES_MAX,
    FEED_CHANGES_MAX, FeedLog, HEAD_TTL, History, Lease, Limits, Reply, Request, Version, check_size, events,
    failed,
};
use crate::NodeId;
use crate::clock::now;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::{Epoch, HistoryLimits, Key, Position, Room};
use stentor_ports::Ledger;

/// Time for which an idempotency key is kept.
const IDEMPOTENCY_TTL: Duration = Duration::from_secs(300);

#[derive(Debug)]
struct RoomLog {
    head: Position,
    messages: VecDeque<(Instant, Position, Bytes)>,
    bytes: usize,
    answered: HashMap<Arc<str>, (Instant, Position)>,
    kept_until: Instant,
}

impl RoomLog {
    fn new(epoch: Epoch, kept_until: Instant) -> Self {
        let head = Position { epoch, offset: 0 };
        Self { head, messages: VecDeque::new(), bytes: 0, answered: HashMap::new(), kept_until }
    }

    /// Keeps the room for `ttl` from now, if it isn't kept longer already.
    fn keep(&mut self, now: Instant, ttl: Duration) {
        // The sum overflows for an age without a bound.
        let until = now.checked_add(ttl).unwrap_or(self.kept_until);
        self.kept_until = self.kept_until.max(until);
    }

    fn trim(&mut self, now: Instant, limits: &HistoryLimits) {
        while self.messages.front().is_some_and(|(at, ..)| {
            self.messages.len() > limits.publications_max
                || self.bytes > limits.bytes_max
                || now.saturating_duration_since(*at) > limits.age_max
        }) {
            self.bytes -= self.messages.pop_front().map_or(0, |(.., payload)| payload.len());
        }
        self.answered.retain(|_, (at, _)| now.saturating_duration_since(*at) < IDEMPOTENCY_TTL);
    }
}

#[derive(Clone, Debug, Default)]
struct Feed {
    holder: Option<(Lease, Instant)>,
    term: u64,
    log: Option<FeedLog>,
}

/// The state that all nodes share.
#[derive(Debug, Default)]
pub struct Bus {
    interest: HashMap<NodeId, HashSet<Channel>>,
    rooms: HashMap<Room, RoomLog>,
    /// Rooms of the server that isn't the primary.
    former_rooms: HashMap<Room, RoomLog>,
    feeds: HashMap<Key, Feed>,
    /// Feeds of the server that isn't the primary: a replica, or a former primary.
    former_feeds: HashMap<Key, Feed>,
    records: BTreeMap<NodeId, (Bytes, Instant)>,
    claims: HashMap<Arc<str>, (NodeId, Instant)>,
    /// Number of epochs and tokens drawn so far, and the last one of them.
    drawn: u64,
    /// The first use, from which terms are counted. They grow with the clock as in other engines, also after
    /// [`Bus::forget`].
    began: Option<Instant>,
    deliveries: VecDeque<(NodeId, Event)>,
    /// `true` if a room gets an epoch as soon as its history is read.
    begins_rooms: bool,
}

impl Bus {
    /// Makes each room have an epoch as soon as its history is read, as on Redis.
    pub fn begin_rooms_when_read(&mut self) {
        self.begins_rooms = true;
    }

    /// A node connects, or connects again. It has no interest then.
    pub fn connect(&mut self, node: NodeId) {
        self.interest.insert(node, HashSet::from([Channel::Node(node), Channel::Nodes]));
    }

    /// A node's connection is lost.
    pub fn disconnect(&mut self, node: NodeId) {
        self.interest.remove(&node);
    }

    /// Forgets everything but the connections, as a server that starts again without its data.
    pub fn forget(&mut self) {
        self.rooms.clear();
        self.feeds.clear();
        self.records.clear();
        self.claims.clear();
    }

    /// Copies the feeds to the replica.
    pub fn replicate(&mut self) {
        self.former_feeds = self.feeds.clone();
        for log in self.former_feeds.values_mut().filter_map(|feed| feed.log.as_mut()) {
            log.may_lack_newest = true;
        }
    }

    /// The replica becomes the primary. It has no more than at the last [`Bus::replicate`]. The connections stay.
    pub fn fail_over(&mut self) {
        self.rooms.clear();
        self.feeds = self.former_feeds.clone();
    }

    /// Another server becomes the primary. It has the feeds that it received as a replica, and no messages of rooms. A former
    /// primary that becomes the primary again has the state that it had before.
    pub fn change_primary(&mut self) {
        std::mem::swap(&mut self.rooms, &mut self.former_rooms);
        std::mem::swap(&mut self.feeds, &mut self.former_feeds);
    }

    /// Changes whether a node receives the messages of a channel.
    pub fn set_interest(&mut self, node: NodeId, channel: Channel, is_interested: bool) -> bool {
        let Some(channels) = self.interest.get_mut(&node) else { return false };
        if is_interested { channels.insert(channel) } else { channels.remove(&channel) }
    }

    /// Publishes a message.
    pub fn publish(&mut self, channel: &Channel, payload: &Bytes) {
        self.deliver(channel, None, payload);
    }

    /// The next message for a node.
    pub fn poll_delivery(&mut self) -> Option<(NodeId, Event)> {
        self.deliveries.pop_front()
    }

    fn deliver(&mut self, channel: &Channel, position: Option<Position>, payload: &Bytes) {
        let interested = self.interest.iter().filter(|(_, channels)| channels.contains(channel));
        let mut nodes: Vec<NodeId> = interested.map(|(node, _)| *node).collect();
        nodes.sort_unstable();
        for node in nodes {
            let event = Event::Message { channel: channel.clone(), position, payload: payload.clone() };
            self.deliveries.push_back((node, event));
        }
    }

    /// Returns a room that hasn't expired, and keeps it longer, because a node has asked for it.
    fn room(&mut self, now: Instant, room: &Room) -> Option<&mut RoomLog> {
        if self.rooms.get(room).is_some_and(|log| log.kept_until <= now) {
            self.rooms.remove(room);
        }
        let log = self.rooms.get_mut(room)?;
        log.keep(now, HEAD_TTL);
        Some(log)
    }

    fn begin(&mut self, now: Instant, room: &Room) {
        let epoch = Epoch(self.draw() % (1 << 53));
        self.rooms.insert(room.clone(), RoomLog::new(epoch, now + HEAD_TTL));
    }

    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    /// Carries out a request.
    ///
    /// # Errors
    /// [`EngineError::Fenced`] if a version isn't stored under the newest lease.
    pub fn handle_request(&mut self, now: Instant, request: Request) -> Result<Reply, EngineError> {
        Ok(match request {
            Request::Append { room, payload, idempotency_key, limits } => {
                Reply::Position(self.append(now, room, &payload, idempotency_key, &limits))
            }
            Request::History { room, since, messages_max, age_max } => {
                if self.room(now, &room).is_none() && self.begins_rooms {
                    self.begin(now, &room);
                }
                Reply::History(self.history(now, &room, since, messages_max, age_max))
            }
            Request::Heads { rooms } => {
                let heads = rooms.iter().map(|room| self.room(now, room).map(|log| log.head));
                Reply::Heads(heads.collect())
            }
            Request::EndEpoch { room, epoch } => {
                let began = Epoch(self.draw() % (1 << 53));
                if let Some(log) = self.rooms.get_mut(&room).filter(|log| log.head.epoch == epoch) {
                    *log = RoomLog::new(began, log.kept_until);
                }
                Reply::Done
            }
            Request::AcquireLease { key, term_seen, ttl } => {
                Reply::Lease(self.acquire(now, key, term_seen, ttl))
            }
            Request::RenewLease { key, lease, ttl } => {
                let holder = self.feeds.get_mut(&key).and_then(|feed| feed.holder.as_mut());
                let held = holder.filter(|(held, until)| *held == lease && *until > now);
                Reply::Lease(held.map(|(_, until)| {
                    *until = now + ttl;
                    lease
                }))
            }
            Request::ReleaseLease { key, lease, .. } => {
                if let Some(feed) = self.feeds.get_mut(&key) {
                    feed.holder.take_if(|(held, _)| *held == lease);
                }
                Reply::Done
            }
            Request::StoreVersion { key, lease, version } => {
                self.store(now, key, lease, version)?;
                Reply::Done
            }
            Request::LoadFeed { key } => Reply::Feed(self.feeds.get(&key).and_then(|feed| feed.log.clone())),
            Request::Heartbeat { node, record, ttl } => {
                self.records.retain(|_, (_, until)| *until > now);
                self.records.insert(node, (record, now + ttl));
                let records = self.records.iter().map(|(node, (record, _))| (*node, record.clone()));
                Reply::Nodes(records.collect())
            }
            Request::Claim { name, owner, ttl } => Reply::Owner(self.claim(now, name, owner, ttl)),
        })
    }

    fn append(
        &mut self,
        now: Instant,
        room: Room,
        payload: &Bytes,
        idempotency_key: Option<Arc<str>>,
        limits: &HistoryLimits,
    ) -> Position {
        if self.room(now, &room).is_none() {
            self.begin(now, &room);
        }
        let Some(log) = self.rooms.get_mut(&room) else { unreachable!("it was inserted") };
        log.keep(now, limits.age_max.saturating_add(HEAD_TTL));
        log.trim(now, limits);
        if let Some((_, position)) = idempotency_key.as_ref().and_then(|key| log.answered.get(key)) {
            return *position;
        }
        log.head.offset += 1;
        let position = log.head;
        log.bytes += payload.len();
        log.messages.push_back((now, position, payload.clone()));
        log.trim(now, limits);
        if let Some(key) = idempotency_key {
            log.answered.insert(key, (now, position));
        }
        self.deliver(&room.into(), Some(position), payload);
        position
    }

    fn history(
        &mut self,
        now: Instant,
        room: &Room,
        since: Position,
        messages_max: usize,
        age_max: Duration,
    ) -> History {
        let Some(log) = self.room(now, room) else {
            return History { truncated: true, ..History::default() };
        };
        let is_same = since.epoch == log.head.epoch && since.offset <= log.head.offset;
        let after = if is_same { since.offset } else { 0 };
        let later = log.messages.iter().filter(|(at, position, _)| {
            position.offset > after && now.saturating_duration_since(*at) <= age_max
        });
        let messages: Vec<_> =
            later.take(messages_max).map(|(_, position, payload)| (*position, payload.clone())).collect();
        let first = messages.first().map_or(log.head.offset + 1, |(position, _)| position.offset);
        History { head: Some(log.head), messages, truncated: !is_same || first > after + 1 }
    }

    fn acquire(&mut self, now: Instant, key: Key, term_seen: u64, ttl: Duration) -> Option<Lease> {
        let token = self.draw();
        let began = *self.began.get_or_insert(now);
        let clock = u64::try_from(now.saturating_duration_since(began).as_micros()).unwrap_or(u64::MAX);
        let feed = self.feeds.entry(key).or_default();
        if feed.holder.is_some_and(|(held, until)| until > now && held.term >= term_seen) {
            return None;
        }
        feed.term = (feed.term.max(term_seen) + 1).max(clock);
        let lease = Lease { term: feed.term, token };
        feed.holder = Some((lease, now + ttl));
        Some(lease)
    }

    fn store(&mut self, now: Instant, key: Key, lease: Lease, version: Version) -> Result<(), EngineError> {
        let feed = self.feeds.entry(key.clone()).or_default();
        if !feed.holder.is_some_and(|(held, until)| held == lease && until > now) {
            return Err(EngineError::Fenced);
        }
        let Version { position, change, base } = version;
        match (base, &mut feed.log) {
            (Some(base), log) => {
                let (term, base_position, changes) = (lease.term, position, Vec::new());
                *log = Some(FeedLog { term, base_position, base, changes, may_lack_newest: false });
            }
            (None, Some(log)) => {
                if log.may_lack_newest {
                    return Err(EngineError::Refused(
                        "the feed's log may lack versions; store a base".into(),
                    ));
                }
                let bytes: usize = log.changes.iter().map(|(_, change)| change.len()).sum();
                if log.changes.len() >= FEED_CHANGES_MAX || bytes + change.len() > FEED_CHANGES_BYTES_MAX {
                    return Err(EngineError::Refused("the feed's log is full; store a base".into()));
                }
                log.term = lease.term;
                log.changes.push((position, change.clone()));
            }
            (None, None) => {
                return Err(EngineError::Refused("the feed has no base for a change".into()));
            }
        }
        self.deliver(&key.into(), Some(position), &change);
        Ok(())
    }

    fn claim(&mut self, now: Instant, name: Arc<str>, owner: NodeId, ttl: Duration) -> Option<NodeId> {
        match self.claims.get(&name) {
            Some((other, until)) if *other != owner && *until > now => Some(*other),
            _ if ttl.is_zero() => {
                self.claims.remove(&name);
                None
            }
            _ => {
                self.claims.insert(name, (owner, now + ttl));
                Some(owner)
            }
        }
    }
}

#[derive(Default)]
struct Server {
    bus: Bus,
    nodes: HashMap<NodeId, EventSender>,
    cut_off: HashSet<NodeId>,
}

/// Engines of several nodes in one process.
#[derive(Clone, Default)]
pub struct Memory(Arc<Mutex<Server>>);

impl Memory {
    /// A node's engine, which is connected at once.
    pub fn connect(&self, node: NodeId, limits: Limits) -> (MemoryEngine, EventReceiver) {
        // The queues of this node share payloads with other nodes of this process, so they have their own ledger.
        let (sender, receiver) = events(&limits, &Arc::new(Ledger::new(usize::MAX)));
        sender.send(Event::Connected);
        let mut server = self.server();
        server.bus.connect(node);
        server.nodes.insert(node, sender);
        drop(server);
        (MemoryEngine { memory: self.clone(), node }, receiver)
    }

    /// Forgets everything but the connections, as a server that starts again without its data.
    pub fn forget(&self) {
        self.server().bus.forget();
    }

    /// Disconnects a node from the engine, or connects it again.
    pub fn set_connected(&self, node: NodeId, is_connected: bool) {
        let server = &mut *self.server();
        let event = if is_connected {
            server.cut_off.remove(&node);
            server.bus.connect(node);
            Event::Connected
        } else {
            server.cut_off.insert(node);
            server.bus.disconnect(node);
            Event::Disconnected { reason: "cut off".into() }
        };
        server.nodes.get(&node).into_iter().for_each(|sender| sender.send(event.clone()));
    }

    fn server(&self) -> MutexGuard<'_, Server> {
        self.0.lock()
    }

    fn with<R>(&self, act: impl FnOnce(&mut Bus) -> R) -> R {
        let mut server = self.server();
        let result = act(&mut server.bus);
        while let Some((node, event)) = server.bus.poll_delivery() {
            if let Some(sender) = server.nodes.get(&node) {
                sender.send(event);
            }
        }
        result
    }
}

/// One node's connection to [`Memory`].
pub struct MemoryEngine {
    memory: Memory,
    node: NodeId,
}

impl Drop for MemoryEngine {
    fn drop(&mut self) {
        let mut server = self.memory.server();
        server.bus.disconnect(self.node);
        server.nodes.remove(&self.node);
    }
}

impl Engine for MemoryEngine {
    fn publish(&self, channel: Channel, payload: Bytes) -> Result<(), EngineError> {
        check_size(payload.len())?;
        self.memory.with(|bus| bus.publish(&channel, &payload));
        Ok(())
    }

    fn set_interest(&self, channel: Channel, is_interested: bool) -> bool {
        self.memory.with(|bus| bus.set_interest(self.node, channel, is_interested))
    }

    fn request(&self, request: Request) -> Answer {
        if let Err(error) = check_size(request.largest_payload()) {
            return failed(error);
        }
        if self.memory.server().cut_off.contains(&self.node) {
            return failed(EngineError::Unavailable("cut off".into()));
        }
        let reply = self.memory.with(|bus| bus.handle_request(now(), request));
        Box::pin(std::future::ready(reply))
    }
}
