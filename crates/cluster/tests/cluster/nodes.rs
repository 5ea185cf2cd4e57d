//! Several nodes on an engine in memory, with data planes that record what reaches them.

use crate::fixture::{MOMENT, Users, answer_to, options, pass, user};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_cluster::bridge::{BridgedCommands, Bridges};
use stentor_cluster::engine::memory::Memory;
use stentor_cluster::engine::{Channel, Engine, Event, Limits, PAYLOAD_BYTES_MAX, Request};
use stentor_cluster::{
    Cluster, ClusterCommands, HEARTBEAT_INTERVAL, NODE_TTL, NodeId, Options, REVOCATIONS_INTERVAL,
    SURVEY_TIMEOUT,
};
use stentor_hub::{
    Data, Document, FeedState, HistoryLimits, Key, KeyCharset, Patch, Room, Rooms, SessionId, Topic,
};
use stentor_ports::fake::{self, Call};
use stentor_ports::{
    Acknowledged, Broadcast, Broker, Busy, Charge, Class, Command, Commands, Concerned, ControlPlane,
    DocumentChange, Done, Drain, FeedFetches, FeedInfo, FeedList, FeedLister, FeedSource, FeedUpdate, Feeds,
    FeedsQuery, IdKey, IdentityFilter, KeyInterest, Ledger, Lifecycle, LinkApp, LinkCarrier, LinkInfo,
    LinkNodeSink, LinkState, MetricSource, PublicId, Publish, PushDenied, PushedFeed, Recheck, RecheckAction,
    RevocationList, RoomList, RoomUpdate, RoomsQuery, SessionApp, SessionDetails, SessionInfo, SessionList,
    SessionsQuery, SubscriberCounts, Target, Topology,
};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

const KEEP: HistoryLimits =
    HistoryLimits { publications_max: 3, bytes_max: 1_000, age_max: Duration::from_secs(300) };

/// Maximum size of a feed's document (bytes).
const DOCUMENT_BYTES_MAX: usize = 100;
/// Memory budget of a node (bytes).
const BUDGET: usize = 1 << 20;

/// A data plane that reports `sessions` sessions and records the calls that it receives.
#[derive(Default)]
struct Plane {
    sessions: usize,
    received: Mutex<Vec<Broadcast>>,
    commands: Mutex<Vec<String>>,
    /// Number of calls of `receive` that still fail with `Busy`.
    busy: Mutex<usize>,
    is_silent: Mutex<bool>,
    wanted: Mutex<Vec<KeyInterest>>,
    /// Updates of rooms and feeds, as texts.
    shown: Mutex<Vec<String>>,
    kept: Mutex<Vec<Command>>,
    /// Numbers of the applications that commands were for.
    apps: Mutex<Vec<u16>>,
}

impl Plane {
    fn data_plane(self: &Arc<Self>) -> Arc<fake::Node> {
        let (this, asked, sessions) = (self.clone(), self.clone(), self.sessions);
        let mut node = fake::Node::new(move |call| match call {
            Call::Receive(message, _) => this.receive(message),
            Call::UpdateRoom(room, update) => this.update_room(&room, update),
            Call::UpdateFeed(key, update) => this.update_feed(&key, update),
            other => {
                this.carry_out(other);
                Ok(())
            }
        });
        node.take_key_interest = Box::new(move || std::mem::take(&mut *asked.wanted.lock().unwrap()));
        node.connections = Box::new(move || sessions);
        Arc::new(node)
    }

    fn carry_out(&self, call: Call) {
        match call {
            Call::Command(target, command) => self.command(target, command),
            Call::CommandLink(LinkApp(app), target, command) => {
                self.apps.lock().unwrap().push(app);
                self.command(target, command);
            }
            Call::ListLinkRooms(LinkApp(app), query, done) => {
                self.apps.lock().unwrap().push(app);
                self.list_rooms(query, done);
            }
            Call::Recheck(recheck, done) => self.recheck(recheck, done),
            Call::ListRooms(query, done) => self.list_rooms(query, done),
            Call::ListSessions(query, done) => self.list_sessions(query, done),
            Call::CountSubscribers(keys, done) => {
                let counts = keys.iter().map(|key| self.sessions * key.as_str().len()).collect();
                done.answer(Ok(SubscriberCounts { counts, ..SubscriberCounts::default() }));
            }
            Call::PauseAccepting(is_paused, done) => {
                self.commands.lock().unwrap().push(format!("pause_accepting {is_paused}"));
                done.answer(Ok(()));
            }
            _ => {}
        }
    }

    fn receive(&self, message: Broadcast) -> Result<(), Busy> {
        let mut busy = self.busy.lock().unwrap();
        if *busy > 0 {
            *busy -= 1;
            return Err(Busy);
        }
        self.received.lock().unwrap().push(message);
        Ok(())
    }

    fn update_room(&self, room: &Room, update: RoomUpdate) -> Result<(), Busy> {
        let text = |data: &Data| match data {
            Data::Json(text) => std::str::from_utf8(text).unwrap().to_owned(),
            other => panic!("{other:?}"),
        };
        let shown = match update {
            RoomUpdate::Message { position, event, data, except_rooms, except_sessions } => {
                let except = except_rooms.iter().map(|room| room.name().to_owned());
                let except: Vec<_> = except.chain(except_sessions.iter().map(PublicId::to_string)).collect();
                let except = if except.is_empty() { String::new() } else { format!(" -{except:?}") };
                format!("{} {} {event:?} {}{except}", room.name(), position.offset, text(&data))
            }
            RoomUpdate::History { after, messages } => {
                let messages: Vec<_> = messages.iter().map(|message| text(&message.data)).collect();
                format!("{} after {} {messages:?}", room.name(), after.offset)
            }
            RoomUpdate::Confirmed => format!("{} confirmed", room.name()),
        };
        self.shown.lock().unwrap().push(shown);
        Ok(())
    }

    fn update_feed(&self, key: &Key, update: FeedUpdate) -> Result<(), Busy> {
        let shown = match update {
            FeedUpdate::At { position, document, patches } => {
                let body = String::from_utf8(document.body.to_vec()).unwrap();
                format!("{key} {} {body} {patches:?}", position.offset)
            }
            // Confirmations aren't recorded: no client waits for one.
            FeedUpdate::Confirmed(_) => return Ok(()),
            other => format!("{key} {other:?}"),
        };
        self.shown.lock().unwrap().push(shown);
        Ok(())
    }

    fn command(&self, target: Target, command: Command) {
        if *self.is_silent.lock().unwrap() {
            self.kept.lock().unwrap().push(command);
            return;
        }
        let ids: Vec<String> = target.session_ids().map(|id| id.to_string()).collect();
        let names = |rooms: &[Room]| rooms.iter().map(Room::name).collect::<Vec<_>>().join(" ");
        let (rooms, except) = (names(&target.rooms), names(&target.except_rooms));
        let note = |what: &str| {
            let note = format!("{what} {} [{rooms}] -[{except}] {ids:?}", target.namespace());
            self.commands.lock().unwrap().push(note);
        };
        let (what, done) = match command {
            Command::Emit { event, data, volatile, done } => {
                (format!("emit {event:?} {data:?} {volatile}"), done)
            }
            Command::Call { event, timeout, answered, done, .. } => {
                // Each client but the last acknowledges.
                for n in 1..self.sessions {
                    let json = format!("{},{n}", self.sessions).into();
                    answered(Data::Arguments { json, attachments: [].into() });
                }
                (format!("call {event} {timeout:?}"), done)
            }
            Command::Join { rooms, done } => (format!("join {}", rooms.first().name()), done),
            Command::Leave { rooms, done } => (format!("leave {}", rooms.first().name()), done),
            Command::Disconnect { close, done } => (format!("disconnect {close}"), done),
            Command::Sessions { limit, done } => {
                note(&format!("sessions {limit}"));
                let session = |n: usize| SessionInfo {
                    id: format!("{}-{n}", self.sessions),
                    protocol: "socketio".into(),
                    rooms: vec!["a".into()],
                    handshake: None,
                    details: SessionDetails::default(),
                };
                let sessions = (0..self.sessions).map(session).collect();
                return done.answer(Ok(SessionList::new(sessions, self.sessions)));
            }
        };
        note(&what);
        done.answer(Ok(Concerned::sessions(self.sessions)));
    }

    fn recheck(&self, recheck: Recheck, done: Done<Concerned>) {
        let subject = recheck.filter.subject.unwrap_or_else(|| "everybody".into());
        self.commands.lock().unwrap().push(format!("{:?} {subject}", recheck.action));
        done.answer(Ok(Concerned::sessions(self.sessions)));
    }

    /// A session of an application. Its send buffer has a byte for each session of the node.
    fn list_sessions(&self, query: SessionsQuery, done: Done<SessionList>) {
        let details = SessionDetails {
            app: Some(SessionApp::Number(LinkApp(0))),
            namespace: Some("/chat".into()),
            send_buffer_bytes: self.sessions,
            ..SessionDetails::default()
        };
        let session = SessionInfo {
            id: query.search,
            protocol: "socketio".into(),
            rooms: Vec::new(),
            handshake: None,
            details,
        };
        done.answer(Ok(SessionList::new(vec![session], self.sessions)));
    }

    fn list_rooms(&self, query: RoomsQuery, done: Done<RoomList>) {
        let rooms = vec![("a".to_owned(), self.sessions), (format!("only {}", self.sessions), 1)];
        let rooms = rooms.into_iter().take(query.limit).collect();
        done.answer(Ok(RoomList { rooms, ..RoomList::default() }));
    }
}

struct Node {
    cluster: Arc<Cluster>,
    plane: Arc<Plane>,
    /// Commands for the sessions of all nodes.
    all: ClusterCommands,
    ledger: Arc<Ledger>,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Node {
    fn start(memory: &Memory, name: &str, sessions: usize) -> Self {
        Self::with(memory, name, sessions, |_| {})
    }

    fn with(memory: &Memory, name: &str, sessions: usize, set: impl FnOnce(&mut Options)) -> Self {
        let ledger = Arc::new(Ledger::new(BUDGET));
        let id = NodeId::draw();
        let (engine, events) = memory.connect(id, Limits::default());
        let mut options = Options {
            name: name.into(),
            secret: Some(b"secret".as_slice().into()),
            history: vec![("kept".into(), KEEP)],
            feed_source: Arc::new(|key| match key.as_str().starts_with("pushed/") {
                true => FeedSource::Pushed,
                false => FeedSource::Fetched,
            }),
            document_bytes_max: DOCUMENT_BYTES_MAX,
            ledger: ledger.clone(),
            ..options()
        };
        set(&mut options);
        let cluster = Cluster::new(id, options, Arc::new(engine), &events, 0);
        let plane = Arc::new(Plane { sessions, ..Plane::default() });
        let local = plane.data_plane();
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(cluster.clone().run(events, local.clone(), stopped));
        let all = ClusterCommands::new(local, cluster.clone());
        Self { cluster, plane, all, ledger, stop, task }
    }

    fn join(&self, room: &str) {
        self.cluster.set_interest(&Topic::Room(Room::plain(room).unwrap()), true);
    }

    /// Reports whether clients of the node subscribe to a feed.
    async fn want(&self, key: &Key, wanted: bool) {
        self.cluster.set_interest(&Topic::Feed(key.clone()), wanted);
        let wanted = KeyInterest { key: key.clone(), wanted, requesters: Vec::new() };
        self.plane.wanted.lock().unwrap().push(wanted);
        self.cluster.interest_changed();
        pass(MOMENT).await;
    }

    /// Passes news of a feed from the node's control plane to the cluster.
    async fn update(&self, key: &Key, update: FeedUpdate) {
        self.all.update_feed(key, update).unwrap();
        pass(MOMENT).await;
    }

    async fn command(&self, target: Target, command: impl FnOnce(Done<Concerned>) -> Command) -> Concerned {
        answer_to(|done| self.all.command(target, command(done))).await.unwrap()
    }

    async fn sessions(&self, target: Target, limit: usize) -> SessionList {
        answer_to(|done| self.all.command(target, Command::Sessions { limit, done })).await.unwrap()
    }

    fn shown(&self) -> Vec<String> {
        std::mem::take(&mut *self.plane.shown.lock().unwrap())
    }

    fn received(&self) -> Vec<Broadcast> {
        std::mem::take(&mut *self.plane.received.lock().unwrap())
    }

    fn commands(&self) -> Vec<String> {
        std::mem::take(&mut *self.plane.commands.lock().unwrap())
    }

    fn metric(&self, name: &str) -> u64 {
        let metric = self.cluster.metrics().into_iter().find(|metric| metric.name == name).unwrap();
        metric.samples.iter().map(|(_, value)| value).sum()
    }
}

fn message(rooms: &[&str]) -> Broadcast {
    Broadcast {
        id: 7,
        rooms: Rooms::new("/", rooms.iter().copied()).unwrap(),
        except_rooms: vec![Room::plain("quiet").unwrap()],
        except_sessions: vec![PublicId::parse("aaaaaaaaaaaaaaaaaaaa").unwrap()],
        event: Some("goal".into()),
        data: Data::Json(Bytes::from_static("{\"by\":\"Ä\"}".as_bytes())),
        volatile: true,
    }
}

fn everybody() -> Target {
    Target::of("/").unwrap().everybody()
}

fn document(body: &str) -> Document {
    Document { body: body.to_owned().into(), json: true, content_type: "application/json".into() }
}

async fn three() -> (Memory, [Node; 3]) {
    let memory = Memory::default();
    let nodes = [("a", 1), ("b", 2), ("c", 4)].map(|(name, sessions)| Node::start(&memory, name, sessions));
    // Waits until each node knows the others.
    pass(HEARTBEAT_INTERVAL + MOMENT).await;
    (memory, nodes)
}

#[tokio::test(start_paused = true)]
async fn a_message_reaches_the_other_nodes_that_are_interested_once() {
    let (_memory, [a, b, c]) = three().await;
    b.join("room");
    a.join("room");
    a.cluster.publish(&message(&["room"])).unwrap();
    a.cluster.publish(&message(&["room", "other"])).unwrap();
    pass(MOMENT).await;
    assert_eq!(a.received(), [], "its own");
    assert_eq!(b.received(), [message(&["room"]), message(&["room", "other"])]);
    assert_eq!(c.received(), [message(&["room", "other"])], "only what isn't for one room alone");
    assert_eq!((a.metric("cluster_messages_sent"), b.metric("cluster_messages_received")), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_too_large_for_the_engine_stays_on_its_node_and_is_counted() {
    let (_memory, [a, b, _c]) = three().await;
    b.join("room");
    let large = Bytes::from(vec![b' '; PAYLOAD_BYTES_MAX]);
    a.cluster.publish(&Broadcast { data: Data::Text(large), ..message(&["room"]) }).unwrap();
    a.cluster.publish(&message(&["room"])).unwrap();
    pass(MOMENT).await;
    assert_eq!(b.received(), [message(&["room"])]);
    assert_eq!(a.metric("cluster_messages_too_large"), 1);
}

#[tokio::test(start_paused = true)]
async fn messages_wait_in_order_while_the_data_plane_has_no_room() {
    let (_memory, [a, b, _c]) = three().await;
    b.join("room");
    *b.plane.busy.lock().unwrap() = 2;
    let numbered = |n: u8| Broadcast { data: Data::Binary(vec![n].into()), ..message(&["room"]) };
    for n in 0..3 {
        a.cluster.publish(&numbered(n)).unwrap();
    }
    pass(MOMENT).await;
    assert_eq!(b.received(), []);
    for _ in 0..2 {
        b.cluster.space();
        pass(MOMENT).await;
    }
    assert_eq!(b.received(), [0, 1, 2].map(numbered));
}

/// An application link that records the calls of the cluster.
#[derive(Debug, Default)]
struct Link {
    calls: Mutex<Vec<String>>,
}

impl Link {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }
}

impl LinkNodeSink for Link {
    fn receive(&self, node: u64, app: &str, message: &Bytes) {
        let message = std::str::from_utf8(message).unwrap();
        self.calls.lock().unwrap().push(format!("{app} {message} of {node}"));
    }

    fn links(&self) -> Vec<LinkInfo> {
        vec![LinkInfo {
            node: None,
            app: "chat".into(),
            link: 7,
            worker: "w".into(),
            instance: "i".into(),
            state: LinkState::Draining,
            on_crash: "drop".into(),
            sessions: 1,
            unacknowledged_bytes: 2,
        }]
    }

    fn node_left(&self, node: u64) {
        self.calls.lock().unwrap().push(format!("{node} left"));
    }

    fn engine_changed(&self, is_connected: bool) {
        self.calls.lock().unwrap().push(format!("connected {is_connected}"));
    }
}

#[tokio::test(start_paused = true)]
async fn messages_of_the_application_link_reach_the_nodes_with_the_application() {
    let memory = Memory::default();
    let [a, b, c] = ["a", "b", "c"].map(|name| Node::start(&memory, name, 0));
    let links = [&a, &b, &c].map(|node| {
        let link = Arc::new(Link::default());
        let apps: &[Arc<str>] = if node.cluster.node() == c.cluster.node() { &[] } else { &["chat".into()] };
        node.cluster.join(apps, link.clone());
        link
    });
    pass(HEARTBEAT_INTERVAL + MOMENT).await;
    for link in &links {
        assert_eq!(link.take(), ["connected true"]);
    }
    let send = |node: Option<&Node>, message: &'static str| {
        let node = node.map(|node| node.cluster.node().0);
        a.cluster.carry(&"chat".into(), node, Bytes::from_static(message.as_bytes()))
    };
    for message in ["1", "2", "3"] {
        assert_eq!(send(None, message), Ok(true));
    }
    pass(Duration::from_secs(1)).await;
    let of_a = |message: &str| format!("chat {message} of {}", a.cluster.node().0);
    assert_eq!(links[1].take(), ["1", "2", "3"].map(of_a));
    assert_eq!(send(Some(&c), "4"), Ok(true));
    assert_eq!(
        a.cluster.carry(&"chat".into(), None, vec![0; PAYLOAD_BYTES_MAX].into()),
        Ok(false),
        "it is too large"
    );
    pass(MOMENT).await;
    assert_eq!([links[0].take(), links[1].take()], [[""; 0], [""; 0]]);
    assert_eq!(links[2].take(), [of_a("4")]);
    a.stop.send(true).unwrap();
    pass(HEARTBEAT_INTERVAL + MOMENT).await;
    assert_eq!(links[1].take(), [format!("{} left", a.cluster.node().0)]);
}

#[tokio::test(start_paused = true)]
async fn the_links_of_all_nodes_are_listed() {
    let (_memory, [a, b, c]) = three().await;
    for node in [&a, &b] {
        node.cluster.join(&["chat".into()], Arc::new(Link::default()));
    }
    let list = async || {
        let mut list = answer_to(|done| a.cluster.list_links(done)).await.unwrap();
        let of_node = |mut link: LinkInfo| {
            let node = link.node.take();
            assert_eq!(vec![link], Link::default().links());
            node.unwrap().to_string()
        };
        list.links.sort_by(|one, other| one.node.cmp(&other.node));
        (list.links.into_iter().map(of_node).collect::<Vec<_>>().join(" "), list.missing_nodes.join(" "))
    };
    assert_eq!(list().await, ("a b".into(), String::new()));
    b.task.abort();
    c.task.abort();
    let (nodes, missing) = list().await;
    assert_eq!((&*nodes, missing.split(' ').collect::<BTreeSet<_>>()), ("a", BTreeSet::from(["b", "c"])));
}

/// A control plane that fetches one key, as slowly as `0` says.
struct Lister(u64);

impl FeedLister for Lister {
    fn list_feeds(&self, query: FeedsQuery, done: Done<FeedList>) {
        done.answer(Ok(self.list(&query)));
    }
}

impl Lister {
    fn list(&self, query: &FeedsQuery) -> FeedList {
        let info = FeedInfo {
            node: None,
            key: query.search.as_str().into(),
            state: "live".into(),
            document_bytes: 0,
            is_subscribed: true,
            fetches: Some(FeedFetches { took_micros: self.0, ..FeedFetches::default() }),
        };
        FeedList::new([info], 3)
    }
}

#[tokio::test(start_paused = true)]
async fn the_feed_keys_of_all_nodes_are_listed_with_their_nodes() {
    let (_memory, [a, b, c]) = three().await;
    // Node c has no control plane yet.
    for (node, took) in [(&a, 1), (&b, 2)] {
        node.cluster.join_feeds(Arc::new(Lister(took)));
    }
    let list = async |limit| {
        let query = FeedsQuery { search: "news".into(), limit };
        let own = Lister(1).list(&query);
        let list = answer_to(|done| a.cluster.list_feeds(query, own, done)).await.unwrap();
        let shown = list.feeds.iter().map(|info| format!("{} {}", info.key, info.node.as_ref().unwrap()));
        (shown.collect::<Vec<_>>().join(" "), list.count, list.missing_nodes.join(" "))
    };
    assert_eq!(list(9).await, ("news b news a".into(), 6, String::new()));
    assert_eq!(list(1).await, ("news b".into(), 6, String::new()));
    c.task.abort();
    assert_eq!(list(9).await, ("news b news a".into(), 6, "c".into()));
}

#[tokio::test(start_paused = true)]
async fn the_pushed_documents_that_have_subscribers_on_any_node_are_listed_once() {
    let (_memory, [a, b, c]) = three().await;
    let keys = ["pushed/1", "pushed/2", "pushed/3", "pushed/4"].map(|key| Key::parse(key).unwrap());
    for (node, key) in [(&a, 0), (&b, 0), (&c, 0), (&c, 1), (&c, 3)] {
        node.want(&keys[key], true).await;
    }
    // The third key has no subscribers, and the fourth no document.
    for (key, body) in keys.iter().zip(["[1]", "[1,2]", "[]"]) {
        let push = PushedFeed { change: Some(document(body).into()), sequence: None };
        let pushed = answer_to(|done| b.all.pushed_feeds().unwrap().push(key, push, done));
        assert_eq!(pushed.await.unwrap(), Ok(true));
    }
    for node in [&a, &b, &c] {
        node.cluster.join_feeds(Arc::new(Lister(1)));
    }
    pass(MOMENT).await;
    let list = async |search: &str, limit| {
        let query = FeedsQuery { search: search.into(), limit };
        let list = answer_to(|done| a.cluster.list_feeds(query, FeedList::default(), done)).await.unwrap();
        let pushed = list.feeds.iter().filter(|info| info.fetches.is_none());
        let shown = pushed.map(|info| {
            assert!(info.is_subscribed && info.node.is_none(), "{info:?}");
            format!("{} {} {}", info.key, info.state, info.document_bytes)
        });
        (shown.collect::<Vec<_>>(), list.count)
    };
    // Two nodes fetch three keys each.
    assert_eq!(list("pushed", 9).await, (vec!["pushed/1 live 3".into(), "pushed/2 live 5".into()], 6 + 2));
    assert_eq!(list("/2", 9).await, (vec!["pushed/2 live 5".into()], 6 + 1));
    // A list that is cut off has the keys that are fetched.
    assert_eq!(list("pushed", 2).await.0, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_subscribers_of_feed_keys_are_counted_on_all_nodes() {
    let (_memory, [a, _b, c]) = three().await;
    let keys = ["x", "news/é"].map(|key| Key::parse_as(key, KeyCharset::Utf8).unwrap());
    let count = async || answer_to(|done| a.all.count_subscribers(keys.to_vec(), done)).await.unwrap();
    let expect = |sessions, missing: &[&str]| SubscriberCounts {
        counts: vec![sessions, sessions * "news/é".len()],
        missing_nodes: missing.iter().map(|name| (*name).to_owned()).collect(),
    };
    assert_eq!(count().await, expect(1 + 2 + 4, &[]));
    c.task.abort();
    assert_eq!(count().await, expect(1 + 2, &["c"]));
}

#[tokio::test(start_paused = true)]
async fn commands_reach_the_sockets_of_an_application_at_all_nodes() {
    let (_memory, [a, b, c]) = three().await;
    a.cluster.join(&["other".into(), "chat".into()], Arc::new(Link::default()));
    b.cluster.join(&["chat".into()], Arc::new(Link::default()));
    let target = || Target::of("/chat").unwrap().room("red").unwrap();
    let rooms = Rooms::new("/chat", ["green"]).unwrap();
    let join = |done| a.all.command_link(LinkApp(1), target(), Command::Join { rooms, done });
    assert_eq!(answer_to(join).await.unwrap(), Concerned::sessions(1 + 2 + 4));
    let list = |done| a.all.command_link(LinkApp(1), target(), Command::Sessions { limit: 5, done });
    assert_eq!(answer_to(list).await.unwrap().count, 7);
    let query = RoomsQuery { namespace: "/".into(), prefix: String::new(), after: String::new(), limit: 3 };
    answer_to(|done| a.all.list_link_rooms(LinkApp(1), query, done)).await.unwrap();
    for (node, app) in [(&a, 1), (&b, 0), (&c, u16::MAX)] {
        assert_eq!(*node.plane.apps.lock().unwrap(), [app; 3]);
        assert_eq!(node.commands()[0], "join green /chat [red] -[] []");
    }
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let answered = recording(&seen);
    let call = |done| a.all.command_link(LinkApp(1), target(), calling(&answered, done));
    assert_eq!(answer_to(call).await.unwrap(), Concerned::sessions(1 + 2 + 4));
    pass(Duration::from_millis(30)).await;
    let mut texts = std::mem::take(&mut *seen.lock().unwrap());
    texts.sort();
    assert_eq!(texts, ["2,1", "4,1", "4,2", "4,3"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_with_a_bridge_reaches_the_sockets_of_an_application_at_all_nodes() {
    let (_memory, [a, _b, _c]) = three().await;
    a.cluster.join(&["chat".into()], Arc::new(Link::default()));
    let local = a.plane.data_plane();
    let inner = ClusterCommands::new(local.clone(), a.cluster.clone());
    let all = BridgedCommands::new(local, Arc::new(inner), Bridges::alone().unwrap());
    let target = Target::of("/chat").unwrap().everybody();
    let list = |done| all.command_link(LinkApp(0), target, Command::Sessions { limit: 5, done });
    assert_eq!(answer_to(list).await.unwrap().count, 1 + 2 + 4);
    let query = RoomsQuery { namespace: "/".into(), prefix: String::new(), after: String::new(), limit: 1 };
    let rooms = answer_to(|done| all.list_link_rooms(LinkApp(0), query, done)).await.unwrap().rooms;
    assert_eq!(rooms, [("a".to_owned(), 1 + 2 + 4)]);
}

#[tokio::test(start_paused = true)]
async fn sessions_of_all_nodes_are_listed_with_their_nodes() {
    let (_memory, [a, b, c]) = three().await;
    a.cluster.join(&["other".into()], Arc::new(Link::default()));
    b.cluster.join(&["chat".into()], Arc::new(Link::default()));
    let list = async |limit| {
        let query = SessionsQuery { search: "ada".into(), limit, ..SessionsQuery::default() };
        let list = answer_to(|done| a.all.list_sessions(query, done)).await.unwrap();
        let shown = list.sessions.into_iter().map(|SessionInfo { id, details, .. }| {
            let SessionDetails { node, app, namespace, send_buffer_bytes, .. } = details;
            let app = app.map(|app| if let SessionApp::Name(name) = app { name } else { "a number".into() });
            let texts = [Some(id.into()), node, app.map(|app| (*app).into()), namespace];
            format!(
                "{send_buffer_bytes} {}",
                texts.map(|text: Option<Box<str>>| text.unwrap_or_default()).join(" ")
            )
        });
        (shown.collect::<Vec<_>>(), list.count, list.missing_nodes)
    };
    let of_all = ["4 ada c  /chat", "2 ada b chat /chat", "1 ada a other /chat"];
    assert_eq!(list(9).await, (of_all.map(String::from).into(), 7, vec![]));
    assert_eq!(list(1).await.0, of_all[..1]);
    c.task.abort();
    assert_eq!(list(9).await, (of_all[1..].iter().map(|&text| text.into()).collect(), 3, vec!["c".into()]));
}

#[tokio::test(start_paused = true)]
async fn frames_without_the_secret_are_refused_and_counted() {
    let (memory, [a, _b, _c]) = three().await;
    let stranger =
        Node::with(&memory, "d", 8, |options| options.secret = Some(b"another secret".as_slice().into()));
    let open = Node::with(&memory, "e", 16, |options| options.secret = None);
    a.join("room");
    for node in [&stranger, &open] {
        node.cluster.publish(&message(&["room"])).unwrap();
    }
    // A frame that was overheard on one channel is published on another one.
    let id = NodeId::draw();
    let (engine, mut events) = memory.connect(id, Limits::default());
    engine.set_interest(Channel::from(Room::plain("overheard").unwrap()), true);
    a.cluster.publish(&message(&["overheard"])).unwrap();
    let payload = loop {
        if let Event::Message { payload, .. } = events.next().await.unwrap() {
            break payload;
        }
    };
    engine.publish(Channel::from(Room::plain("room").unwrap()), payload).unwrap();
    engine.publish(Channel::Nodes, Bytes::from_static(b"\x07garbage")).unwrap();
    pass(MOMENT).await;
    assert_eq!(a.received(), []);
    // Four of these frames, and the announcements of the two foreign nodes.
    assert_eq!(a.metric("cluster_frames_refused"), 6);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_strangers_announce_are_neither_asked_nor_waited_for() {
    let (memory, [a, _b, _c]) = three().await;
    let id = NodeId::draw();
    let (engine, _events) = memory.connect(id, Limits::default());
    let record =
        r#"{"name":"d","version":"1","address":"127.0.0.1:1","started_at_seconds":1,"connections":0}"#;
    engine.request(Request::Heartbeat { node: id, record: record.into(), ttl: 60 * NODE_TTL }).await.unwrap();
    pass(HEARTBEAT_INTERVAL).await;
    assert_eq!((a.cluster.nodes().len(), a.metric("cluster_nodes_unreadable")), (3, 1));
    let begun = Instant::now();
    assert_eq!(a.sessions(everybody(), 1).await.missing_nodes, [""; 0]);
    assert!(begun.elapsed() < SURVEY_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn nodes_know_each_other_and_notice_who_leaves_or_dies() {
    let (_memory, [a, b, c]) = three().await;
    let names = |node: &Node| {
        let mut names: Vec<_> =
            node.cluster.nodes().into_iter().map(|n| (n.name, n.connections, n.is_this)).collect();
        names.sort();
        names
    };
    let all = [("a".to_owned(), 1, true), ("b".to_owned(), 2, false), ("c".to_owned(), 4, false)];
    assert_eq!(names(&a), all);
    b.stop.send(true).unwrap();
    b.task.await.unwrap();
    pass(HEARTBEAT_INTERVAL).await;
    assert_eq!(names(&a).len(), 2, "it has said that it leaves");
    c.task.abort();
    pass(NODE_TTL - HEARTBEAT_INTERVAL).await;
    assert_eq!(names(&a).len(), 2, "it may be slow");
    pass(2 * HEARTBEAT_INTERVAL).await;
    assert_eq!(names(&a).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn commands_reach_the_sessions_of_all_nodes() {
    let (_memory, [a, b, c]) = three().await;
    let target = || Target::of("/chat").unwrap().room("red").unwrap().except_room("blue").unwrap();
    let rooms = || Rooms::new("/chat", ["green"]).unwrap();
    type Make = fn(Rooms, Done<Concerned>) -> Command;
    let commands: [(Make, &str); 3] = [
        (|rooms, done| Command::Join { rooms, done }, "join green"),
        (|rooms, done| Command::Leave { rooms, done }, "leave green"),
        (|_, done| Command::Disconnect { close: true, done }, "disconnect true"),
    ];
    for (command, note) in commands {
        let concerned = a.command(target(), |done| command(rooms(), done)).await;
        assert_eq!(concerned, Concerned::sessions(1 + 2 + 4));
        for node in [&a, &b, &c] {
            assert_eq!(node.commands(), [format!("{note} /chat [red] -[blue] []")]);
        }
    }
    let list = a.sessions(target(), 5).await;
    assert_eq!((list.sessions.len(), list.count, list.missing_nodes), (5, 7, vec![]));
    let query = RoomsQuery { namespace: "/".into(), prefix: String::new(), after: String::new(), limit: 3 };
    let list = answer_to(|done| a.all.list_rooms(query, done)).await.unwrap();
    let rooms = [("a".to_owned(), 7), ("only 1".to_owned(), 1), ("only 2".to_owned(), 1)];
    assert_eq!((&list.rooms[..], list.truncated), (&rooms[..], true));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_has_just_joined_is_asked_as_well() {
    let (memory, [a, _b, _c]) = three().await;
    let _late = Node::start(&memory, "d", 8);
    pass(Duration::from_millis(1_100)).await;
    let list = a.sessions(everybody(), 1).await;
    assert_eq!((list.count, list.missing_nodes), (1 + 2 + 4 + 8, vec![]));
}

#[tokio::test(start_paused = true)]
async fn an_emit_is_carried_by_the_broker_but_to_sessions_by_name() {
    let (_memory, [a, b, _c]) = three().await;
    let emit = |done| Command::Emit {
        event: Some("e".into()),
        data: Data::Text(Bytes::from_static(b"t")),
        volatile: false,
        done,
    };
    let to = |room| Target::of("/").unwrap().room(room).unwrap();
    assert_eq!(a.command(to("red"), emit).await, Concerned::sessions(1), "those of this node");
    pass(MOMENT).await;
    assert_eq!(b.commands(), [""; 0]);
    // An emit to a room with history is answered before it is delivered, so the answer counts the room's members.
    a.commands();
    assert_eq!(a.command(to("kept"), emit).await, Concerned::sessions(1));
    assert_eq!(a.commands()[1..], ["sessions 0 / [kept] -[] []"]);
    let id = PublicId::parse("aaaaaaaaaaaaaaaaaaaa").unwrap();
    assert_eq!(a.command(to("red").session(id), emit).await, Concerned::sessions(7));
    assert_eq!(a.commands().len(), 1);
    // This node has the session, so no other node is asked.
    let none = Target::of("/").unwrap();
    assert_eq!(a.command(none.clone().session(id), emit).await, Concerned::sessions(1));
    let other = PublicId::parse("bbbbbbbbbbbbbbbbbbbb").unwrap();
    assert_eq!(a.command(none.session(id).session(other), emit).await, Concerned::sessions(7));
    assert_eq!(b.commands().len(), 2);
    assert_eq!(a.command(to("red").session(id), emit).await, Concerned::sessions(7));
    // Only the named session gets a command. Members of the room receive the message from the broker.
    let note = format!(r#"emit Some("e") Text(b"t") false / [] -[red] ["{id}"]"#);
    assert_eq!(b.commands(), [note]);
}

/// Records the acknowledgements of a call.
fn recording(seen: &Arc<Mutex<Vec<String>>>) -> Acknowledged {
    let seen = seen.clone();
    Arc::new(move |data| match data {
        Data::Arguments { json, .. } => {
            seen.lock().unwrap().push(String::from_utf8(json.to_vec()).unwrap());
        }
        other => panic!("{other:?}"),
    })
}

fn calling(answered: &Acknowledged, done: Done<Concerned>) -> Command {
    let data = Data::Arguments { json: "1".into(), attachments: [].into() };
    let timeout = Duration::from_secs(5);
    Command::Call { event: "ask".into(), data, timeout, answered: answered.clone(), done }
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_of_all_nodes_reach_the_caller() {
    let (_memory, [a, b, c]) = three().await;
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let answered = recording(&seen);
    let call = |done| calling(&answered, done);
    let target = Target::of("/").unwrap().room("red").unwrap();
    assert_eq!(a.command(target.clone(), call).await, Concerned::sessions(1 + 2 + 4));
    pass(Duration::from_millis(30)).await;
    let mut texts = std::mem::take(&mut *seen.lock().unwrap());
    texts.sort();
    assert_eq!(texts, ["2,1", "4,1", "4,2", "4,3"]);
    for node in [&a, &b, &c] {
        assert_eq!(node.commands(), ["call ask 5s / [red] -[] []"]);
    }
    // The acknowledgements of a node that doesn't answer in time are passed on all the same.
    *b.plane.is_silent.lock().unwrap() = true;
    let concerned = a.command(target, call).await;
    assert_eq!((concerned.sessions, concerned.missing_nodes), (5, vec!["b".to_owned()]));
    let Some(Command::Call { answered, .. }) = b.plane.kept.lock().unwrap().pop() else { panic!() };
    seen.lock().unwrap().clear();
    answered(Data::Arguments { json: "late".into(), attachments: [].into() });
    pass(Duration::from_millis(30)).await;
    assert_eq!(*seen.lock().unwrap(), ["late"]);
    // The call has ended.
    pass(Duration::from_secs(9)).await;
    answered(Data::Arguments { json: "too late".into(), attachments: [].into() });
    pass(Duration::from_millis(30)).await;
    assert_eq!(*seen.lock().unwrap(), ["late"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_with_its_caller() {
    let (_memory, [a, b, _c]) = three().await;
    let seen = Arc::default();
    let answered = recording(&seen);
    *b.plane.is_silent.lock().unwrap() = true;
    a.command(everybody(), |done| calling(&answered, done)).await;
    *a.plane.is_silent.lock().unwrap() = true;
    a.all.command(everybody(), calling(&answered, Done::new(|_| {})));
    pass(Duration::from_millis(30)).await;
    // Clients of both nodes acknowledge after the caller has ended.
    drop(answered);
    seen.lock().unwrap().clear();
    for node in [&a, &b] {
        let Some(Command::Call { answered, .. }) = node.plane.kept.lock().unwrap().pop() else { panic!() };
        answered(Data::Arguments { json: "too late".into(), attachments: [].into() });
    }
    pass(Duration::from_millis(30)).await;
    assert!(seen.lock().unwrap().is_empty());
    assert_eq!(Arc::strong_count(&seen), 1, "the sessions' receivers keep nothing of the caller");
}

/// The id of a session of a node.
fn id_of(node: &Node) -> PublicId {
    let key = IdKey { seed: node.cluster.id_seed().unwrap(), cores: 1 };
    PublicId::of(key, 0, SessionId::from_bits(9))
}

/// A message to one session.
fn emit_to(id: PublicId) -> (Target, impl Fn(Done<Concerned>) -> Command) {
    let data = Data::Text(Bytes::from_static(b"t"));
    let emit =
        move |done| Command::Emit { event: Some("e".into()), data: data.clone(), volatile: false, done };
    (Target::of("/").unwrap().session(id), emit)
}

#[tokio::test(start_paused = true)]
async fn a_message_to_a_session_goes_to_the_issuer_of_its_id_first() {
    let memory = Memory::default();
    // Nodes a and d have no session; b and c have one.
    let [a, b, c, d] =
        [("a", 0), ("b", 1), ("c", 1), ("d", 0)].map(|(name, sessions)| Node::start(&memory, name, sessions));
    pass(HEARTBEAT_INTERVAL + MOMENT).await;
    let reached = || [&b, &c, &d].map(|node| node.commands().len());
    let send = async |id| {
        let (target, emit) = emit_to(id);
        a.command(target, emit).await
    };
    assert_eq!(send(id_of(&b)).await, Concerned::sessions(1));
    assert_eq!((reached(), a.metric("cluster_surveys")), ([1, 0, 0], 1));
    // A node that doesn't answer delays no message to a session of another node.
    *c.plane.is_silent.lock().unwrap() = true;
    let begun = Instant::now();
    assert_eq!(send(id_of(&b)).await, Concerned::sessions(1));
    assert!(begun.elapsed() < SURVEY_TIMEOUT);
    *c.plane.is_silent.lock().unwrap() = false;
    assert_eq!(reached(), [1, 0, 0]);
    // The issuer doesn't have the session, which has moved.
    assert_eq!(send(id_of(&d)).await, Concerned::sessions(2));
    assert_eq!(reached(), [1, 1, 2]);
    // The issuer may have delivered the message, so it isn't asked again.
    *b.plane.is_silent.lock().unwrap() = true;
    let concerned = send(id_of(&b)).await;
    assert_eq!((concerned.sessions, concerned.missing_nodes), (1, vec!["b".to_owned()]));
    assert_eq!((reached(), b.plane.kept.lock().unwrap().len()), ([0, 1, 1], 1));
    *b.plane.is_silent.lock().unwrap() = false;
    // The issuer has left, or is this node: all others are asked.
    let left = id_of(&d);
    drop(d);
    pass(2 * NODE_TTL).await;
    for id in [left, id_of(&a)] {
        assert_eq!(send(id).await, Concerned::sessions(2));
        assert_eq!([&b, &c].map(|node| node.commands().len()), [1, 1]);
    }
    // Of two sessions, the issuer has one.
    let target = Target::of("/").unwrap().session(id_of(&b)).session(id_of(&a));
    let (_, emit) = emit_to(left);
    assert_eq!(a.command(target, emit).await, Concerned::sessions(2));
    assert_eq!([&b, &c].map(|node| node.commands().len()), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn questions_that_are_not_sent_are_counted_and_name_the_nodes() {
    let memory = Memory::default();
    let [a, b] = [("a", 0), ("b", 1)].map(|(name, sessions)| Node::start(&memory, name, sessions));
    pass(HEARTBEAT_INTERVAL + MOMENT).await;
    *b.plane.is_silent.lock().unwrap() = true;
    let (target, emit) = emit_to(id_of(&b));
    for _ in 0..1_024 {
        a.all.command(target.clone(), emit(Done::new(|_| {})));
    }
    let begun = Instant::now();
    let concerned = a.command(target, emit).await;
    assert_eq!((begun.elapsed(), concerned.sessions), (Duration::ZERO, 0));
    assert_eq!((concerned.missing_nodes, a.metric("cluster_surveys_refused")), (vec!["b".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_answer_is_named() {
    let (_memory, [a, b, c]) = three().await;
    *b.plane.is_silent.lock().unwrap() = true;
    let disconnect = |done| Command::Disconnect { close: false, done };
    let begun = Instant::now();
    let concerned = a.command(everybody(), disconnect).await;
    assert_eq!(begun.elapsed(), SURVEY_TIMEOUT);
    assert_eq!((concerned.sessions, concerned.missing_nodes), (5, vec!["b".to_owned()]));
    assert_eq!(a.metric("cluster_surveys_incomplete"), 1);
    // Node b answers that it can't carry out the command. Node a doesn't wait for the deadline.
    let begun = Instant::now();
    let (concerned, ()) = tokio::join!(a.command(everybody(), disconnect), async {
        pass(MOMENT).await;
        b.plane.kept.lock().unwrap().clear();
    });
    assert_eq!(concerned.missing_nodes, ["b".to_owned()]);
    assert!(begun.elapsed() < SURVEY_TIMEOUT);
    drop(c);
}

#[tokio::test(start_paused = true)]
async fn a_message_with_an_idempotency_key_is_published_once_whichever_node_is_asked() {
    let (_memory, [a, b, c]) = three().await;
    let (kept, plain) = (Room::plain("kept/1").unwrap(), Room::plain("plain").unwrap());
    assert_eq!((a.cluster.is_ordered(&kept), a.cluster.is_ordered(&plain)), (true, false));
    c.join("kept/1");
    pass(MOMENT).await;
    let publish = async |node: &Node, room: &Room, text: &'static str, key: &str| {
        let data = Data::Json(Bytes::from_static(text.as_bytes()));
        let message = Publish { room: room.clone(), event: None, data };
        answer_to(|done| node.all.publish_kept(message, Some(key.into()), done)).await.unwrap()
    };
    let other = Room::plain("kept/2").unwrap();
    for (node, room, text, key) in
        [(&a, &kept, "1", "k"), (&b, &kept, "2", "k"), (&a, &kept, "3", "l"), (&b, &other, "4", "k")]
    {
        assert_eq!(publish(node, room, text, key).await, Ok(()));
    }
    pass(MOMENT).await;
    assert_eq!(c.shown(), ["kept/1 after 0 []", "kept/1 1 None 1", "kept/1 2 None 3"]);
    assert_eq!((a.metric("cluster_messages_received"), c.metric("cluster_messages_received")), (0, 2));
    a.join("kept/2");
    pass(MOMENT).await;
    assert_eq!(a.shown(), [r#"kept/2 after 0 ["4"]"#]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_denied_does_not_count_as_sent() {
    let memory = Memory::default();
    let node = Node::with(&memory, "a", 1, |options| options.vacant_rooms_max = 1);
    pass(MOMENT).await;
    for (room, sent) in [("kept/1", 1), ("kept/2", 1), ("kept/1", 2)] {
        node.cluster.publish_with_history(&message(&[room]), None, Some(7), None).unwrap();
        pass(MOMENT).await;
        assert_eq!(node.metric("cluster_messages_sent"), sent);
    }
    assert_eq!(node.metric("cluster_vacant_rooms_refused"), 1);
}

/// A core reports a feed twice if the control plane has dropped it in between, and a room whose history it has dropped.
#[tokio::test(start_paused = true)]
async fn a_topic_that_is_reported_twice_counts_once() {
    let memory = Memory::default();
    let node = Node::start(&memory, "a", 1);
    let topics = [Topic::Feed(Key::parse("game/1").unwrap()), Topic::Room(Room::plain("red").unwrap())];
    for (has_subscribers, expected) in [(true, 2), (true, 2), (false, 0), (false, 0), (true, 2)] {
        topics.iter().for_each(|topic| node.cluster.set_interest(topic, has_subscribers));
        assert_eq!(node.metric("cluster_topics"), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_larger_than_documents_may_be_is_refused_and_counted() {
    let (memory, [_a, b, _c]) = three().await;
    let generous = Node::with(&memory, "d", 1, |options| options.document_bytes_max = 1 << 20);
    let key = Key::parse("game/1").unwrap();
    generous.want(&key, true).await;
    b.want(&key, true).await;
    let fits = format!("{:>1$}", 1, DOCUMENT_BYTES_MAX);
    for (body, refused) in [(&*fits, 0), (&*format!("{fits} "), 1)] {
        generous.update(&key, FeedUpdate::Changed(document(body).into())).await;
        assert_eq!(generous.shown().len(), 1);
        assert_eq!(b.shown().len(), 1 - refused);
        assert_eq!(b.metric("cluster_frames_refused"), refused as u64);
    }
    // Node b shows the feed again from the next version within its maximum.
    generous.update(&key, FeedUpdate::Changed(document("[2]").into())).await;
    pass(Duration::from_secs(2)).await;
    assert_eq!(b.shown().last().map(String::as_str), Some("game/1 3 [2] []"));
}

#[tokio::test(start_paused = true)]
async fn a_version_for_which_there_is_no_memory_is_read_later() {
    let (_memory, [a, b, _c]) = three().await;
    let key = Key::parse("game/1").unwrap();
    a.want(&key, true).await;
    b.want(&key, true).await;
    let held = Charge::new(b.ledger.clone(), Class::Cluster);
    held.add(BUDGET - 2);
    a.update(&key, FeedUpdate::Changed(document("[1]").into())).await;
    pass(Duration::from_secs(3)).await;
    assert_eq!((a.shown().len(), b.shown().len()), (1, 0));
    assert!((2..6).contains(&b.metric("cluster_versions_deferred")));
    drop(held);
    pass(Duration::from_secs(2)).await;
    assert_eq!(b.shown(), ["game/1 1 [1] []"]);
}

#[tokio::test(start_paused = true)]
async fn a_document_that_is_pushed_to_one_node_reaches_all() {
    let (_memory, [a, b, c]) = three().await;
    let key = Key::parse("pushed/1").unwrap();
    b.want(&key, true).await;
    let push = async |node: &Node, body, patch: Option<Patch>, sequence| {
        let push =
            PushedFeed { change: Some(DocumentChange { document: document(body).into(), patch }), sequence };
        answer_to(|done| node.all.pushed_feeds().unwrap().push(&key, push, done)).await.unwrap()
    };
    let read = async |node: &Node| {
        let read = answer_to(|done| node.all.pushed_feeds().unwrap().read(&key, done));
        read.await.unwrap().unwrap().map(Arc::unwrap_or_clone)
    };
    assert_eq!(read(&a).await, None);
    assert_eq!(push(&a, "[1]", None, Some(3)).await, Ok(true));
    assert_eq!([read(&b).await, read(&c).await], [Some(document("[1]")), Some(document("[1]"))]);
    let patch = Patch { base: document("[1]").body, operations: Bytes::from_static(b"[op]") };
    assert_eq!(push(&c, "[1,2]", Some(patch), Some(3)).await, Ok(true));
    assert_eq!(push(&b, "[3]", None, Some(2)).await, Err(PushDenied::OldSequence { last: 3 }));
    pass(MOMENT).await;
    assert_eq!(b.shown(), ["pushed/1 1 [1] []".to_owned(), r#"pushed/1 2 [1,2] [b"[op]"]"#.to_owned()]);
    assert_eq!((a.shown().len(), c.shown().len()), (0, 0), "without subscribers");
    for node in [&a, &b, &c] {
        assert_eq!(
            (node.all.take_key_interest(), node.metric("cluster_leases")),
            (vec![], 0),
            "nobody fetches it"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn one_node_fetches_a_feed_and_all_nodes_show_it() {
    let (_memory, [a, b, c]) = three().await;
    let key = Key::parse("game/1").unwrap();
    for node in [&a, &b, &c] {
        node.want(&key, true).await;
    }
    let fetching = |node: &Node| {
        node.all.take_key_interest().into_iter().map(|wanted| wanted.wanted).collect::<Vec<_>>()
    };
    assert_eq!([&a, &b, &c].map(fetching), [vec![true], vec![], vec![]]);
    a.update(&key, FeedUpdate::Changed(document("[1]").into())).await;
    let patch = Patch { base: document("[1]").body, operations: Bytes::from_static(b"[op]") };
    let change = DocumentChange { document: document("[1,2]").into(), patch: Some(patch) };
    a.update(&key, FeedUpdate::Changed(change)).await;
    let stale = FeedUpdate::State { state: FeedState::Stale, reason: "slow".into() };
    a.update(&key, stale.clone()).await;
    let expect =
        ["game/1 1 [1] []".to_owned(), r#"game/1 2 [1,2] [b"[op]"]"#.to_owned(), format!("game/1 {stale:?}")];
    for node in [&a, &b, &c] {
        assert_eq!(node.shown(), expect);
    }
    // A later subscriber receives the document at once. When the fetching node has no subscribers, another node
    // fetches.
    c.want(&key, false).await;
    c.want(&key, true).await;
    a.want(&key, false).await;
    pass(Duration::from_secs(10)).await;
    assert!(c.shown().iter().any(|shown| shown.starts_with("game/1 2 [1,2]")));
    assert_eq!(fetching(&a), [false]);
    assert_eq!([&b, &c].map(fetching).concat(), [true]);
    assert_eq!(a.metric("cluster_leases") + b.metric("cluster_leases") + c.metric("cluster_leases"), 1);
}

/// The node passes `pause_accepting` to its data plane, as when the process hands its listening sockets over.
#[tokio::test(start_paused = true)]
async fn a_node_pauses_accepting() {
    let (_memory, [Node { all, plane, .. }, ..]) = three().await;
    for is_paused in [true, false] {
        let (done, answer) = oneshot::channel();
        all.pause_accepting(is_paused, Done::new(move |paused| _ = done.send(paused)));
        assert_eq!(answer.await.unwrap(), Ok(()));
    }
    let commands = plane.commands.lock().unwrap();
    assert_eq!(commands[..], ["pause_accepting true", "pause_accepting false"]);
}

/// When the fetching node drains or ends, another node fetches its feed within 500 ms.
#[tokio::test(start_paused = true)]
async fn a_node_that_shuts_down_gives_its_feeds_away_first() {
    let drain: fn(&Node) = |node| node.all.drain(Drain::within(Duration::from_mins(1)));
    let end: fn(&Node) = |node| node.stop.send(true).unwrap();
    for way in [drain, end] {
        let (_memory, [a, b, _c]) = three().await;
        let key = Key::parse("game/1").unwrap();
        a.want(&key, true).await;
        b.want(&key, true).await;
        let fetching = |node: &Node| {
            node.all.take_key_interest().into_iter().map(|wanted| wanted.wanted).collect::<Vec<_>>()
        };
        assert_eq!([&a, &b].map(fetching), [vec![true], vec![]]);
        way(&a);
        pass(Duration::from_millis(500)).await;
        assert_eq!([&a, &b].map(fetching), [[false], [true]]);
    }
}

#[tokio::test(start_paused = true)]
async fn feeds_that_a_node_knows_count_towards_its_memory() {
    let node = Node::start(&Memory::default(), "a", 0);
    pass(MOMENT).await;
    assert!(node.ledger.has_room(BUDGET));
    let key = Key::parse("game/1").unwrap();
    node.want(&key, true).await;
    assert!(node.ledger.has_room(BUDGET - 2_000) && !node.ledger.has_room(BUDGET - 500));
    node.want(&key, false).await;
    // Until then, the engine keeps the term of the lease, which is charged too.
    pass(Duration::from_secs(11)).await;
    assert!(node.ledger.has_room(BUDGET));
}

#[tokio::test(start_paused = true)]
async fn a_state_without_other_subscribers_is_not_sent_to_other_nodes() {
    let (_memory, [a, b, _c]) = three().await;
    let key = Key::parse("pushed").unwrap();
    let update = FeedUpdate::State { state: FeedState::NotFound, reason: "none".into() };
    a.update(&key, update.clone()).await;
    assert_eq!((a.shown(), b.shown()), (vec![format!("pushed {update:?}")], vec![]));
}

#[tokio::test(start_paused = true)]
async fn rooms_with_history_have_one_order_on_all_nodes() {
    let (memory, [a, b, c]) = three().await;
    assert!(a.cluster.orders_history());
    let numbered = |n: usize| Broadcast {
        rooms: Rooms::new("/", ["kept"]).unwrap(),
        data: Data::Json(n.to_string().into()),
        ..message(&["kept"])
    };
    b.join("kept");
    pass(MOMENT).await;
    for n in 1..=5 {
        let node = if n % 2 == 0 { &a } else { &b };
        node.cluster.publish_with_history(&numbered(n), None, None, None).unwrap();
        pass(MOMENT).await;
    }
    let shown = b.shown();
    assert_eq!(shown[0], "kept after 0 []");
    // The updates contain the excluded rooms and sessions, which the core applies.
    let expect = [1, 2].map(|n| format!(r#"kept {n} Some("goal") {n} -["quiet", "aaaaaaaaaaaaaaaaaaaa"]"#));
    assert_eq!(shown[1..3], expect);
    assert_eq!((shown.len(), b.received()), (6, vec![]));
    // A node that joins later receives the messages that the engine keeps.
    c.join("kept");
    pass(MOMENT).await;
    assert_eq!(c.shown(), [r#"kept after 2 ["3", "4", "5"]"#]);
    // A second join, as after the core has forgotten the room, leads to one more update.
    c.join("kept");
    pass(MOMENT).await;
    assert_eq!(c.shown().len(), 1);
    memory.forget();
    a.cluster.publish_with_history(&numbered(6), None, None, None).unwrap();
    pass(MOMENT).await;
    for node in [&b, &c] {
        assert_eq!(node.shown(), [r#"kept after 0 []"#, r#"kept after 0 ["6"]"#]);
        assert_eq!(node.metric("cluster_history_resyncs"), 1);
        assert_eq!((node.metric("cluster_history_rooms"), node.metric("cluster_appends")), (1, 0));
    }
}

fn keeper(memory: &Memory, name: &str, sessions: usize, entries_max: usize) -> (Node, Arc<Users>) {
    let list = Arc::new(Users::new(entries_max));
    let keeps = list.clone();
    (Node::with(memory, name, sessions, |options| options.revocations = Some(keeps)), list)
}

#[tokio::test(start_paused = true)]
async fn a_revocation_reaches_all_nodes_and_those_that_come_later() {
    let memory = Memory::default();
    let (a, in_a) = keeper(&memory, "a", 1, 5_000);
    let (b, in_b) = keeper(&memory, "b", 2, 5_000);
    let (d, in_d) = keeper(&memory, "d", 8, 0);
    pass(HEARTBEAT_INTERVAL + MOMENT).await;
    let recheck = async |filter, action| {
        answer_to(|done| a.all.recheck(Recheck { filter, action }, done)).await.unwrap()
    };
    in_a.merge(vec![user("42")]).unwrap();
    let concerned = recheck(user("42").filter, RecheckAction::Disconnect).await;
    // Node d has no room for the entry, and reports it. Its sessions end nevertheless.
    assert_eq!((concerned.sessions, concerned.missing_nodes), (3, vec!["d".to_owned()]));
    for node in [&a, &b, &d] {
        assert_eq!(node.commands(), ["Disconnect 42"]);
    }
    assert_eq!((in_b.digest(), in_d.digest()), (in_a.digest(), 0));
    // `Renew` reaches the sessions of all nodes and revokes no identity.
    assert_eq!(recheck(user("43").filter, RecheckAction::Renew).await.sessions, 11);
    assert_eq!((b.commands(), in_b.digest()), (vec!["Renew 43".to_owned()], in_a.digest()));
    // `Authorize` concerns only the sessions of the node that receives the request.
    assert_eq!(recheck(IdentityFilter::default(), RecheckAction::Authorize).await.sessions, 1);
    assert_eq!(b.commands(), [""; 0]);

    // Each node gets the entries that it lacks from the other one, as after it was cut off: several pages, both ways.
    in_a.merge((0..2_500).map(|n| user(&format!("a{n}"))).collect()).unwrap();
    in_b.merge((0..1_500).map(|n| user(&format!("b{n}"))).collect()).unwrap();
    pass(REVOCATIONS_INTERVAL).await;
    assert_eq!((in_a.len(), in_b.len()), (4_001, 4_001));
    assert!(b.commands().contains(&"EndRevoked everybody".to_owned()));
    // A node that starts gets the list at once, or from the next node if d is asked first, whose list is full.
    let (c, in_c) = keeper(&memory, "c", 4, 5_000);
    pass(SURVEY_TIMEOUT + MOMENT).await;
    assert_eq!(in_c.len(), 4_001);
    assert!(c.commands().contains(&"EndRevoked everybody".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn nodes_with_full_lists_repair_lost_revocations_as_soon_as_there_is_room() {
    let memory = Memory::default();
    let (a, in_a) = keeper(&memory, "a", 1, 2);
    let (b, in_b) = keeper(&memory, "b", 1, 2);
    pass(HEARTBEAT_INTERVAL + MOMENT).await;
    // Each node gets an entry of its own at the same time, and has no room for the other's.
    in_a.merge(vec![user("old"), user("x")]).unwrap();
    in_b.merge(vec![user("old"), user("y")]).unwrap();
    for (node, name) in [(&a, "x"), (&b, "y")] {
        let recheck = Recheck { filter: user(name).filter, action: RecheckAction::Disconnect };
        answer_to(|done| node.all.recheck(recheck, done)).await.unwrap();
    }
    pass(4 * REVOCATIONS_INTERVAL).await;
    let names = || [&in_a, &in_b].map(|list| list.names().join(" "));
    assert_eq!(names(), ["old x", "old y"]);
    [&in_a, &in_b].into_iter().for_each(|list| list.expire("old"));
    pass(2 * (REVOCATIONS_INTERVAL + SURVEY_TIMEOUT)).await;
    assert_eq!(names(), ["x y", "x y"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_list_is_full_sends_the_entries_that_others_lack() {
    let memory = Memory::default();
    let (a, in_a) = keeper(&memory, "a", 1, 5);
    let (_b, in_b) = keeper(&memory, "b", 1, 1);
    pass(HEARTBEAT_INTERVAL + MOMENT).await;
    // Node a hasn't received the message with this entry.
    in_b.merge(vec![user("y")]).unwrap();
    in_a.merge(vec![user("x")]).unwrap();
    let recheck = Recheck { filter: user("x").filter, action: RecheckAction::Disconnect };
    assert_eq!(answer_to(|done| a.all.recheck(recheck, done)).await.unwrap().missing_nodes, ["b"]);
    pass(REVOCATIONS_INTERVAL + SURVEY_TIMEOUT).await;
    assert_eq!((in_a.names().join(" "), in_b.names().join(" ")), ("x y".into(), "y".into()));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_answer_is_not_the_only_one_asked_for_revocations() {
    let memory = Memory::default();
    // A node that has died a moment ago. Its id is the first one.
    let (dead, _events) = memory.connect(NodeId(0), Limits::default());
    let record = r#"{"name":"dead","version":"1","started_at_seconds":0,"connections":0}"#.into();
    dead.request(Request::Heartbeat { node: NodeId(0), record, ttl: NODE_TTL }).await.unwrap();
    let lists = [Arc::new(Users::new(1)), Arc::new(Users::new(1))];
    let start = |name, list: &Arc<Users>| {
        Node::with(&memory, name, 1, |options| {
            // The dead node's record has no signature.
            options.secret = None;
            options.revocations = Some(list.clone());
        })
    };
    let [in_a, in_b] = &lists;
    in_a.merge(vec![user("42")]).unwrap();
    let _a = start("a", in_a);
    pass(MOMENT).await;
    let b = start("b", in_b);
    pass(MOMENT).await;
    assert_eq!((b.cluster.nodes().len(), in_b.len()), (3, 0));
    pass(SURVEY_TIMEOUT).await;
    assert_eq!(in_b.len(), 1);
}
