//! One node of a cluster: joins an engine with the node's data plane.
//!
//! ```text
//!  cores ── Broker::publish ──────────────► engine ──► other nodes
//!  cores ◄── NodeInbox::receive ───── task ◄── events ──┘
//!  admin API ── ClusterCommands::command ──► this node first, then a question to the others
//! ```
//!
//! A message to rooms is delivered to the members on its own node before it is sent, whatever the engine does with it. Messages
//! from other nodes wait while the data plane has no room. If that lasts, they are dropped, as after a lost connection.

mod absence;
mod broker;
mod links;
mod questions;
mod revocations;
mod sockets;
mod topology;

use crate::NodeId;
use crate::calls::Calls;
use crate::clock::{self, since_1970};
use crate::engine::{Channel, Engine, EngineError, Event, EventReceiver, EventsWaiting, Reply};
use crate::feeds::{ColdKeys, FeedDriver, SourceOf, Surroundings};
use crate::finish::Finish;
use crate::frame::{Answered, Frame, Frames, PresenceFrame};
use crate::metrics::{Counters, count};
use crate::registry::{Change, NodeRecord, Registry};
use crate::relay::Relays;
use crate::rooms::{Content, RoomDriver, VacantRooms};
use crate::space::Space;
use crate::surveys::Surveys;
use absence::Absence;
use bytes::Bytes;
use parking_lot::Mutex;
use revocations::Comparison;
pub use revocations::REVOCATIONS_INTERVAL;
use sockets::Sockets;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use stentor_hub::{Data, HistoryLimits, PresenceMessage, Topic};
use stentor_ports::{Busy, ControlPlane, FeedLister, Ledger, LinkNodeSink, LocalNode, Order, RevocationList};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep_until, timeout};

/// Time for releasing the leases of feeds when the node ends.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(500);

/// Options of a node in a cluster.
#[derive(Clone)]
pub struct Options {
    /// The node's name, for people.
    pub name: String,
    /// The address at which other nodes reach this one.
    pub advertise: Option<String>,
    /// The secret of the cluster's nodes. Frames without its signature are refused.
    pub secret: Option<Arc<[u8]>>,
    /// Stentor's version.
    pub version: String,
    /// Rooms with history, by the longest prefix of their names.
    pub history: Vec<(String, HistoryLimits)>,
    /// Maximum number of rooms with history and without subscribers on this node that the engine stores because of this node's
    /// clients.
    pub vacant_rooms_max: usize,
    /// Maximum time for which a publisher waits for the engine.
    pub decision_timeout: Duration,
    /// Time without the engine after which the node may become unready. `None` if it never does.
    pub unready_after: Option<Duration>,
    /// Relays clients' connections to other nodes.
    pub relays: Option<Arc<Relays>>,
    /// Returns the source of a feed's documents.
    pub feed_source: SourceOf,
    /// Time for which a feed without subscribers is fetched.
    pub feed_idle_ttl: Duration,
    /// Maximum number of feeds that the control plane fetches. The engine stores at most twice as many keys without a document
    /// because of this node.
    pub feed_keys_max: usize,
    /// Maximum size of a feed's document.
    pub document_bytes_max: usize,
    /// The ledger of the memory that the node holds for its clients.
    pub ledger: Arc<Ledger>,
    /// The revocations that all nodes share. `None` if the node has no tokens.
    pub revocations: Option<Arc<dyn RevocationList>>,
}

/// State that several threads change.
struct State {
    registry: Registry,
    surveys: Surveys<Answered>,
    finishes: HashMap<u64, Finish>,
    calls: Calls,
    /// `true` until the other nodes have been notified that this one has joined.
    is_joining: bool,
}

/// The parts of the process that the cluster notifies.
#[derive(Default)]
struct Observers {
    control: OnceLock<Arc<dyn ControlPlane>>,
    /// The application link. It isn't set on a node without applications.
    link: OnceLock<Arc<dyn LinkNodeSink>>,
    /// The names of the applications, by number.
    applications: OnceLock<Arc<[Arc<str>]>>,
    /// The control plane of this node, which lists the feed keys that it fetches.
    feeds: OnceLock<Arc<dyn FeedLister>>,
}

/// The connection of this node with the cluster: the state about other nodes, and the tasks that exchange messages with them.
pub struct Cluster {
    options: Options,
    frames: Frames,
    pub(crate) engine: Arc<dyn Engine>,
    state: Mutex<State>,
    feeds: FeedDriver,
    pub(crate) rooms: RoomDriver,
    pub(crate) sockets: Sockets,
    pub(crate) counters: Counters,
    absence: Absence,
    comparison: Comparison,
    /// Notified when the data plane has room again.
    space: Space,
    /// Notified when a survey has begun or received an answer.
    surveyed: Notify,
    observers: Observers,
    started_at_seconds: u64,
    waiting: EventsWaiting,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("node", &self.node()).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Makes a node on an engine whose events arrive in `events`. `started_at_seconds` is the time, in seconds since 1970.
    pub fn new(
        node: NodeId,
        options: Options,
        engine: Arc<dyn Engine>,
        events: &EventReceiver,
        started_at_seconds: u64,
    ) -> Arc<Self> {
        let frames = Frames::new(node, options.secret.as_deref(), options.document_bytes_max);
        let registry = Registry::new(node, frames.clone(), clock::now());
        let state = State {
            registry,
            surveys: Surveys::default(),
            finishes: HashMap::new(),
            calls: Calls::default(),
            is_joining: true,
        };
        let ledger = &options.ledger;
        let cold = ColdKeys::new(options.feed_keys_max, ledger.clone());
        let (source, idle_ttl) = (options.feed_source.clone(), options.feed_idle_ttl);
        let feeds = FeedDriver::new(frames.clone(), source, idle_ttl, cold, ledger.clone());
        let vacant = VacantRooms::new(options.vacant_rooms_max, engine.room_grace(), ledger.clone());
        let rooms =
            RoomDriver::new(node, options.history.clone(), options.decision_timeout, vacant, ledger.clone());
        Arc::new(Self {
            feeds,
            rooms,
            sockets: Sockets::new(ledger.clone()),
            options,
            frames,
            engine,
            state: Mutex::new(state),
            counters: Counters::default(),
            absence: Absence::new(),
            comparison: Comparison::default(),
            space: Space::default(),
            surveyed: Notify::new(),
            observers: Observers::default(),
            started_at_seconds,
            waiting: events.waiting(),
        })
    }

    /// This node's id.
    pub fn node(&self) -> NodeId {
        self.frames.node()
    }

    /// Returns the control plane for the data plane: a wrapper of `control`, which is notified only of the keys that this node
    /// fetches, be it alone or for all nodes.
    pub fn observe(self: &Arc<Self>, control: Arc<dyn ControlPlane>) -> Arc<dyn ControlPlane> {
        // A second call would be a bug of the node's start.
        assert!(self.observers.control.set(control).is_ok());
        self.clone()
    }

    /// The feeds of this node.
    pub(crate) fn feeds(&self) -> &FeedDriver {
        &self.feeds
    }

    /// The other nodes that are alive.
    pub(crate) fn others(&self) -> BTreeSet<NodeId> {
        self.state.lock().registry.others().map(|(node, _)| node).collect()
    }

    pub(crate) fn send(&self, channel: Channel, frame: &Frame) -> Result<(), EngineError> {
        let payload = self.frames.encode(&channel, frame);
        self.engine.publish(channel, payload)
    }

    /// The name of a node, or its id.
    fn name_of(&self, node: NodeId) -> String {
        let state = self.state.lock();
        state.registry.nodes().get(&node).map_or_else(|| node.to_string(), |record| record.name.clone())
    }

    /// Runs until `stop` is set, and then notifies the other nodes that this node has left.
    pub async fn run(
        self: Arc<Self>,
        events: EventReceiver,
        plane: Arc<dyn LocalNode>,
        mut stop: watch::Receiver<bool>,
    ) {
        // A message that waits for the data plane delays later messages, but no heartbeat.
        tokio::select! {
            () = self.release_feeds(&mut stop) => {}
            () = self.handle_events(events, &plane) => {}
            () = self.keep_time(&plane) => {}
            () = self.watch_engine() => {}
            () = self.feeds.run(self.surroundings(&*plane)) => {}
            () = self.find_sockets(&plane) => {}
            () = self.share_revocations(&*plane) => {}
            () = self.rooms.run(&*self.engine, &*plane, &self.space, |room, payload| {
                self.message(&Channel::from(room.clone()), payload).map(|(_, content)| content)
            }) => {}
        }
        let leave = self.state.lock().registry.leave(since_1970(), &self.record(&*plane));
        // If this request fails, the other nodes notice only after `NODE_TTL`.
        let _ = self.engine.request(leave).await;
    }

    /// Waits until `stop` is set, and then until the other nodes may fetch this node's feeds.
    async fn release_feeds(&self, stop: &mut watch::Receiver<bool>) {
        stopped(stop).await;
        self.feeds.leave();
        // If the engine doesn't answer, the leases expire.
        let _ = timeout(RELEASE_TIMEOUT, self.feeds.released()).await;
    }

    async fn handle_events(self: &Arc<Self>, mut events: EventReceiver, plane: &Arc<dyn LocalNode>) {
        while let Some(event) = events.next().await {
            self.handle_event(event, plane).await;
        }
    }

    /// Reports that this node is alive, tracks the other nodes, and ends surveys.
    async fn keep_time(&self, plane: &Arc<dyn LocalNode>) {
        let mut heartbeat = None;
        loop {
            let now = clock::now();
            self.finish_surveys(now);
            let timeout = {
                let state = &mut *self.state.lock();
                if heartbeat.is_none()
                    && let Some(request) =
                        state.registry.handle_timeout(now, since_1970(), &self.record(&**plane))
                {
                    heartbeat = Some(self.engine.request(request));
                }
                // The next heartbeat waits until the previous one is answered.
                let report = Some(state.registry.poll_timeout()).filter(|_| heartbeat.is_none());
                [state.surveys.poll_timeout(), report].into_iter().flatten().min()
            };
            tokio::select! {
                answer = async { heartbeat.as_mut()?.await.ok() }, if heartbeat.is_some() => {
                    heartbeat = None;
                    if let Some(Reply::Nodes(records)) = answer {
                        self.handle_nodes(records, &**plane);
                        if std::mem::take(&mut self.state.lock().is_joining) {
                            // If the engine's queue is full, the other nodes learn of this node a few seconds later.
                            let _ = self.send(Channel::Nodes, &Frame::Alive);
                            self.comparison.wanted.notify_one();
                        }
                    }
                }
                () = Relays::node_wanted(self.options.relays.as_deref()) => {
                    self.state.lock().registry.hasten(clock::now());
                }
                () = self.surveyed.notified() => {}
                () = sleep_until(timeout.unwrap_or(now).into()), if timeout.is_some() => {}
            }
        }
    }

    fn surroundings<'a>(&'a self, plane: &'a dyn LocalNode) -> Surroundings<'a> {
        Surroundings {
            engine: &*self.engine,
            plane,
            control: &self.observers.control,
            space: &self.space,
            frames: &self.frames,
            refuse: Box::new(|error| self.counters.count_refused(error)),
            has_memory_for: Box::new(|bytes| self.has_memory_for(bytes)),
        }
    }

    fn has_memory_for(&self, bytes: usize) -> bool {
        let has_room = self.options.ledger.has_room(bytes);
        if !has_room {
            count(&self.counters.refused_for_memory);
        }
        has_room
    }

    /// The sender and the content of a message of a room with history, from any node.
    fn message(&self, channel: &Channel, payload: &Bytes) -> Option<(NodeId, Content)> {
        match self.frames.decode(channel, payload) {
            Ok((sender, Frame::Message(message))) => Some((sender, message.into())),
            Ok(_) => None,
            Err(error) => {
                self.counters.count_refused(error);
                None
            }
        }
    }

    fn record(&self, plane: &dyn LocalNode) -> NodeRecord {
        NodeRecord {
            name: self.options.name.clone(),
            version: self.options.version.clone(),
            address: self.options.advertise.clone(),
            started_at_seconds: self.started_at_seconds,
            connections: plane.connections(),
        }
    }

    fn handle_nodes(&self, records: Vec<(NodeId, Bytes)>, plane: &dyn LocalNode) {
        let now = clock::now();
        let changes = {
            let registry = &mut self.state.lock().registry;
            let ignored = registry.unreadable();
            let changes = registry.handle_nodes(now, since_1970(), records);
            if ignored == 0 && registry.unreadable() > 0 {
                tracing::warn!(
                    records = registry.unreadable(),
                    "the engine has records of nodes that prove nothing; all nodes need the same `cluster.secret`, and \
                     clocks that differ by less than a minute"
                );
            }
            self.options.relays.iter().for_each(|relays| relays.handle_nodes(registry.nodes()));
            changes
        };
        for change in changes {
            match change {
                Change::Joined(node) => {
                    tracing::info!(node = self.name_of(node), id = %node, "a node has joined the cluster");
                }
                Change::Left(node, record) => {
                    tracing::warn!(node = record.name, id = %node, "a node has left the cluster, or is dead");
                    self.state.lock().surveys.handle_left(node);
                    self.sockets.handle_left(node);
                    self.observers.link.get().into_iter().for_each(|link| link.node_left(node.0));
                    // If an inbox is full, its core removes the dead node's members when that node doesn't answer.
                    let _ = plane.lose_node(node.0);
                    self.surveyed.notify_one();
                }
            }
        }
    }

    async fn handle_event(self: &Arc<Self>, event: Event, plane: &Arc<dyn LocalNode>) {
        match event {
            Event::Message {
                channel: Channel::Topic(Topic::Room(room)),
                position: Some(position),
                payload,
            } => {
                let message = self.message(&Channel::from(room.clone()), &payload);
                if message.as_ref().is_some_and(|(sender, _)| *sender != self.node()) {
                    count(&self.counters.received);
                }
                let content = message.map(|(_, content)| content);
                self.rooms.handle_message(&room, position, content).await;
            }
            Event::Message { channel, position, payload } => {
                match self.frames.decode_foreign(&channel, &payload) {
                    Ok(None) => {}
                    Ok(Some((sender, frame @ (Frame::Feed(_) | Frame::Released(_) | Frame::Alive)))) => {
                        self.handle_sender(sender);
                        let key =
                            if let Channel::Topic(Topic::Feed(key)) = &channel { Some(key) } else { None };
                        let has_memory_for = |bytes| self.has_memory_for(bytes);
                        self.feeds.handle_frame(sender, key, position, &frame, has_memory_for);
                    }
                    Ok(Some((sender, frame))) => self.handle_frame(sender, frame, plane).await,
                    Err(error) => self.counters.count_refused(error),
                }
            }
            Event::Connected => {
                self.counters.is_connected.store(1, Ordering::Relaxed);
                self.absence.end();
                {
                    let state = &mut *self.state.lock();
                    state.is_joining = true;
                    state.registry.hasten(clock::now());
                }
                self.surveyed.notify_one();
                self.feeds.handle_connected();
                self.rooms.handle_connected();
                self.observers.link.get().into_iter().for_each(|link| link.engine_changed(true));
                tracing::info!("the cluster's engine is connected");
            }
            Event::Disconnected { reason } => {
                self.counters.is_connected.store(0, Ordering::Relaxed);
                self.absence.begin();
                self.rooms.handle_disconnected();
                self.observers.link.get().into_iter().for_each(|link| link.engine_changed(false));
                count(&self.counters.connection_losses);
                tracing::warn!(
                    reason = &*reason,
                    "the connection to the cluster's engine is lost; clients of other nodes don't receive this node's \
                     messages until it is back"
                );
            }
        }
    }

    /// Asks an unknown node for its record at once. Otherwise, its sessions would be missing in answers, and its death unnoticed.
    fn handle_sender(&self, sender: NodeId) {
        let state = &mut *self.state.lock();
        if !state.registry.nodes().contains_key(&sender) {
            state.registry.hasten(clock::now());
            self.surveyed.notify_one();
        }
    }

    async fn handle_frame(self: &Arc<Self>, sender: NodeId, frame: Frame, plane: &Arc<dyn LocalNode>) {
        match frame {
            Frame::Message(message) => {
                count(&self.counters.received);
                while plane.receive(message.clone(), Order::Rooms) == Err(Busy) {
                    self.space.wait().await;
                }
            }
            Frame::Question { id, question } => self.answer(sender, id, question, plane),
            Frame::Answer { id, answer } => {
                self.state.lock().surveys.handle_answer(clock::now(), id, sender, answer.ok());
                self.surveyed.notify_one();
            }
            Frame::Acknowledged { call, texts } => {
                let Some(answered) = self.state.lock().calls.receiver(call) else { return };
                for json in texts {
                    answered(Data::Arguments { json, attachments: [].into() });
                }
            }
            Frame::Socket(frame) => {
                // Earlier messages must reach the sockets' logs first.
                self.rooms.flush().await;
                self.handle_socket_frame(sender, frame, plane);
            }
            Frame::Revocations(frame) => self.handle_revocations(sender, frame, &**plane),
            Frame::Presence(PresenceFrame { room, mut message }) => {
                if let PresenceMessage::Watch { have } = &mut message {
                    have.iter_mut()
                        .filter(|(node, _)| *node == self.node().0)
                        .for_each(|(node, _)| *node = 0);
                }
                // The next presence message about the room repairs a lost one.
                if self.has_memory_for(message.bytes()) {
                    let _ = plane.update_presence(&room, sender.0, message);
                }
            }
            Frame::Application { app, message } => self.deliver_to_link(sender, &app, &message),
            Frame::Feed(_) | Frame::Released(_) | Frame::Alive => {}
        }
    }
}

impl ControlPlane for Cluster {
    fn interest_changed(&self) {
        self.feeds.interest_changed();
    }

    fn space(&self) {
        self.space.notify();
        if let Some(control) = self.observers.control.get() {
            control.space();
        }
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // The sender has been dropped, so `stop` no longer changes.
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}
