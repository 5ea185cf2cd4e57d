//! How the traffic between nodes grows with them, counted on the engine in memory. `docs/sizing-cluster.md` has the same formulas;
//! presence is in the tests of the hub.

use crate::fixture::{MOMENT, Users, answer_to, options, pass, user};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_cluster::engine::memory::{Memory, MemoryEngine};
use stentor_cluster::engine::{Answer, Channel, Engine, EngineError, Event, Limits, Reply, Request, events};
use stentor_cluster::{Cluster, ClusterCommands, HEARTBEAT_INTERVAL, NodeId, Options};
use stentor_hub::{
    Data, Document, HistoryLimits, Key, OutgoingPresence, PresenceMessage, Room, Rooms, Topic,
};
use stentor_ports::fake::{self, Call};
use stentor_ports::{
    Broadcast, Broker, Command, Commands, ControlPlane, FeedUpdate, Feeds, KeyInterest, Ledger,
    RevocationList, SessionList, Target,
};
use tokio::sync::watch;

/// Numbers of nodes. The largest are simulated for seconds, the others for minutes.
const SIZES: [usize; 5] = [2, 4, 8, 64, 256];
const MINUTES_MAX: usize = 64;
/// Rooms with history on each node.
const KEPT_ROOMS: usize = 5;
const SECOND: Duration = Duration::from_secs(1);

/// Traffic of all nodes through an engine.
#[derive(Debug, Default)]
struct Traffic {
    /// Messages that nodes have published, and that they have received, with their bytes.
    sent: usize,
    sent_bytes: usize,
    received: usize,
    received_bytes: usize,
    /// Requests by kind. A request for the heads of several rooms counts for each room.
    requests: BTreeMap<&'static str, usize>,
    /// Records of nodes in replies, with their bytes.
    records: usize,
    records_bytes: usize,
}

type Counts = Arc<Mutex<Traffic>>;

/// An engine that counts.
struct Counted {
    engine: MemoryEngine,
    counts: Counts,
}

impl Engine for Counted {
    fn publish(&self, channel: Channel, payload: Bytes) -> Result<(), EngineError> {
        let mut counts = self.counts.lock().unwrap();
        (counts.sent, counts.sent_bytes) = (counts.sent + 1, counts.sent_bytes + payload.len());
        drop(counts);
        self.engine.publish(channel, payload)
    }

    fn set_interest(&self, channel: Channel, is_interested: bool) -> bool {
        self.engine.set_interest(channel, is_interested)
    }

    fn request(&self, request: Request) -> Answer {
        let (kind, count) = match &request {
            Request::Append { .. } => ("append", 1),
            Request::History { .. } => ("history", 1),
            Request::Heads { rooms } => ("heads", rooms.len()),
            Request::AcquireLease { .. } => ("acquire", 1),
            Request::RenewLease { .. } => ("renew", 1),
            Request::StoreVersion { .. } => ("store", 1),
            Request::LoadFeed { .. } => ("load", 1),
            Request::Heartbeat { .. } => ("heartbeat", 1),
            _ => ("other", 1),
        };
        *self.counts.lock().unwrap().requests.entry(kind).or_default() += count;
        let (answer, counts) = (self.engine.request(request), self.counts.clone());
        Box::pin(async move {
            let reply = answer.await;
            if let Ok(Reply::Nodes(records)) = &reply {
                let mut counts = counts.lock().unwrap();
                counts.records += records.len();
                counts.records_bytes += records.iter().map(|(_, record)| record.len()).sum::<usize>();
            }
            reply
        })
    }
}

struct Node {
    cluster: Arc<Cluster>,
    all: ClusterCommands,
    wanted: Arc<Mutex<Vec<KeyInterest>>>,
    /// Messages about the presence of rooms, with their senders.
    presence: Arc<Mutex<Vec<(u64, PresenceMessage)>>>,
}

impl Node {
    /// Starts a node, which runs until the test ends. It has revoked no tokens.
    fn start(memory: &Memory, counts: &Counts) -> Self {
        Self::with(memory, counts, Arc::new(Users::new(0)))
    }

    /// Starts a node with a list of revoked tokens.
    fn with(memory: &Memory, counts: &Counts, list: Arc<Users>) -> Self {
        let id = NodeId::draw();
        let (engine, mut received) = memory.connect(id, Limits::default());
        let (passed_on, events) = events(&Limits::default(), &Arc::new(Ledger::new(usize::MAX)));
        let counted = counts.clone();
        tokio::spawn(async move {
            while let Some(event) = received.next().await {
                if let Event::Message { payload, .. } = &event {
                    let mut counts = counted.lock().unwrap();
                    counts.received += 1;
                    counts.received_bytes += payload.len();
                }
                passed_on.send(event);
            }
        });
        let kept = HistoryLimits { publications_max: 3, bytes_max: 1_000, age_max: 300 * SECOND };
        let options = Options { history: vec![("kept".into(), kept)], revocations: Some(list), ..options() };
        let engine = Counted { engine, counts: counts.clone() };
        let cluster = Cluster::new(id, options, Arc::new(engine), &events, 0);
        let presence = Arc::<Mutex<Vec<_>>>::default();
        let seen = presence.clone();
        let mut plane = fake::Node::new(move |call| {
            match call {
                Call::Command(_, Command::Sessions { done, .. }) => {
                    done.answer(Ok(SessionList::new(Vec::new(), 1)));
                }
                Call::UpdatePresence(_, sender, message) => seen.lock().unwrap().push((sender, message)),
                _ => {}
            }
            Ok(())
        });
        let wanted = Arc::<Mutex<Vec<KeyInterest>>>::default();
        let taken = wanted.clone();
        plane.take_key_interest = Box::new(move || std::mem::take(&mut *taken.lock().unwrap()));
        let plane = Arc::new(plane);
        let (_, stopped) = watch::channel(false);
        tokio::spawn(cluster.clone().run(events, plane.clone(), stopped));
        Self { all: ClusterCommands::new(plane, cluster.clone()), cluster, wanted, presence }
    }

    fn join(&self, room: &str) {
        self.cluster.set_interest(&Topic::Room(Room::plain(room).unwrap()), true);
    }

    fn want(&self, key: &Key) {
        self.cluster.set_interest(&Topic::Feed(key.clone()), true);
        let wanted = KeyInterest { key: key.clone(), wanted: true, requesters: Vec::new() };
        self.wanted.lock().unwrap().push(wanted);
        self.cluster.interest_changed();
    }
}

/// Runs `act` and the nodes for a time. Returns the traffic in this time.
async fn traffic(counts: &Counts, time: Duration, act: impl FnOnce()) -> Traffic {
    *counts.lock().unwrap() = Traffic::default();
    act();
    pass(time).await;
    std::mem::take(&mut *counts.lock().unwrap())
}

fn message(rooms: &[&str]) -> Broadcast {
    Broadcast {
        id: 7,
        rooms: Rooms::new("/", rooms.iter().copied()).unwrap(),
        except_rooms: Vec::new(),
        except_sessions: Vec::new(),
        event: Some("goal".into()),
        data: Data::Json(vec![b'1'; 400].into()),
        volatile: false,
    }
}

#[tokio::test(start_paused = true)]
async fn traffic_grows_with_nodes_as_documented() {
    for size in SIZES {
        let (memory, counts) = (Memory::default(), Counts::default());
        let nodes: Vec<Node> = (0..size).map(|_| Node::start(&memory, &counts)).collect();
        pass(HEARTBEAT_INTERVAL + SECOND).await;
        idle(&nodes, &counts).await;
        messages(&nodes, &counts).await;
        questions(&nodes, &counts).await;
        feeds(&nodes, &counts).await;
        if size <= MINUTES_MAX {
            heads(&nodes, &counts).await;
        }
        let joined = traffic(&counts, SECOND, || drop(Node::start(&memory, &counts))).await;
        // The node sends all nodes a report, and asks one of them for its revocations. Each of them reads the registry once more. The node
        // does both again if it learns of its connection after its first report. The node that fetches feeds reports once as well.
        let comparisons = (joined.sent - 1) / 3;
        assert!([4, 7].contains(&joined.sent), "{size} nodes: {joined:?}");
        assert_eq!(joined.received, (comparisons + 1) * (size + 1) + 2 * comparisons, "{size} nodes");
        assert!(joined.requests["heartbeat"] >= size, "{size} nodes: {joined:?}");
        assert!(joined.requests["heartbeat"] <= 3 * size + 4, "{size} nodes: {joined:?}");
    }
}

/// Each node reports every 3 s and reads the records of all nodes.
async fn idle(nodes: &[Node], counts: &Counts) {
    let (size, reports) = (nodes.len(), 2);
    let idle = traffic(counts, HEARTBEAT_INTERVAL * 2, || {}).await;
    assert_eq!((idle.sent, idle.received), (0, 0), "{size} nodes");
    assert_eq!(idle.requests, [("heartbeat", reports * size)].into(), "{size} nodes");
    assert_eq!(idle.records, reports * size * size, "{size} nodes");
    let record = idle.records_bytes / idle.records;
    assert!((80..120).contains(&record), "{record} bytes");
}

/// A message to one room reaches the nodes with members, one to several rooms all nodes.
async fn messages(nodes: &[Node], counts: &Counts) {
    let size = nodes.len();
    nodes[size / 2..].iter().for_each(|node| node.join("room"));
    let publish = |rooms: &[&str]| nodes[0].cluster.publish(&message(rooms)).unwrap();
    let one = traffic(counts, MOMENT, || publish(&["room"])).await;
    assert_eq!((one.sent, one.received), (1, size - size / 2), "{size} nodes");
    // The content, the names and 49 bytes.
    assert_eq!(one.sent_bytes, 400 + "/".len() + "room".len() + "goal".len() + 49);
    assert_eq!(one.received_bytes, one.received * one.sent_bytes);
    let two = traffic(counts, MOMENT, || publish(&["room", "other"])).await;
    assert_eq!((two.sent, two.received), (1, size), "{size} nodes");
    assert_eq!((one.requests, two.requests), ([].into(), [].into()));
}

/// A command asks all nodes with one message. Each other node answers the one that asks.
async fn questions(nodes: &[Node], counts: &Counts) {
    let size = nodes.len();
    *counts.lock().unwrap() = Traffic::default();
    let target = Target::of("/").unwrap().everybody();
    let list: SessionList =
        answer_to(|done| nodes[0].all.command(target, Command::Sessions { limit: 0, done })).await.unwrap();
    assert_eq!(list.count, size);
    let asked = std::mem::take(&mut *counts.lock().unwrap());
    assert_eq!((asked.sent, asked.received), (size, 2 * size - 1), "{size} nodes");
}

/// One node fetches a feed. Its costs don't depend on the other nodes; each of those asks for the lease once a minute.
async fn feeds(nodes: &[Node], counts: &Counts) {
    let (size, key) = (nodes.len(), Key::parse("game/1").unwrap());
    nodes.iter().for_each(|node| node.want(&key));
    pass(SECOND).await;
    let is_fetching = |node: &&Node| node.all.take_key_interest().iter().any(|wanted| wanted.wanted);
    let holders: Vec<&Node> = nodes.iter().filter(is_fetching).collect();
    let [holder] = holders[..] else { panic!("{} nodes fetch", holders.len()) };
    let update = |body: &str| {
        let body = Bytes::from(body.to_owned());
        let document = Document { body, json: true, content_type: "application/json".into() };
        holder.all.update_feed(&key, FeedUpdate::Changed(document.into())).unwrap();
    };
    // Half a second between the reports of the node that fetches.
    traffic(counts, SECOND * 3 / 2, || update("[1]")).await;
    let version = traffic(counts, MOMENT, || update("[1,2]")).await;
    assert_eq!((version.requests, version.received), ([("store", 1)].into(), size), "{size} nodes");
    // In 6 s, the holder renews its lease every 2 s, and reports every second to all nodes.
    let held = traffic(counts, 6 * SECOND, || {}).await;
    assert_eq!((held.sent, held.received), (6, 6 * size), "{size} nodes");
    assert_eq!(held.sent_bytes, 6 * 10, "version, kind and sender");
    assert_eq!((held.requests["renew"], held.requests.get("acquire")), (3, None), "{size} nodes");
    if size <= MINUTES_MAX {
        // Each follower asks once a minute, and then waits up to 0.9 s longer.
        let minutes = traffic(counts, 180 * SECOND, || {}).await;
        let asked = minutes.requests.get("acquire").copied().unwrap_or_default();
        assert!((2 * (size - 1)..=3 * (size - 1)).contains(&asked), "{size} nodes: {asked}");
    }
}

/// Each node asks for the newest position of each of its rooms with history every 18 to 30 s.
async fn heads(nodes: &[Node], counts: &Counts) {
    let size = nodes.len();
    let room = |number: usize| format!("kept {number}");
    for node in nodes {
        (0..KEPT_ROOMS).for_each(|number| node.join(&room(number)));
    }
    pass(SECOND).await;
    for number in 0..KEPT_ROOMS {
        nodes[0].cluster.publish_with_history(&message(&[&room(number)]), None, None, None).unwrap();
    }
    pass(SECOND).await;
    let minutes = traffic(counts, 180 * SECOND, || {}).await;
    // One node reports every second that it fetches. Each asks one of the others for its revocations every 30 s.
    let asked = 6 * size;
    assert_eq!((minutes.sent, minutes.received), (180 + 2 * asked, 180 * size + 2 * asked), "{size} nodes");
    assert_eq!(minutes.sent_bytes, 180 * 10 + asked * (20 + 23));
    let rounds = minutes.requests["heads"] as f64 / (size * KEPT_ROOMS) as f64;
    assert!((180.0 / 30.0 - 1.0..=180.0 / 18.0 + 1.0).contains(&rounds), "{size} nodes: {rounds} rounds");
    let append = traffic(counts, MOMENT, || {
        nodes[0].cluster.publish_with_history(&message(&["kept 0"]), None, None, None).unwrap();
    });
    let append = append.await;
    assert_eq!((append.requests, append.received), ([("append", 1)].into(), size), "{size} nodes");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_joins_receives_the_list_of_revoked_tokens_from_one_node() {
    const ENTRIES: usize = 2_500;
    let entries = |prefix: &str, count| (0..count).map(|n| user(&format!("{prefix}{n:05}"))).collect();
    for size in [2, 8, 64] {
        let (memory, counts) = (Memory::default(), Counts::default());
        let listed = || {
            let list = Arc::new(Users::new(10 * ENTRIES));
            list.merge(entries("all", ENTRIES)).unwrap();
            list
        };
        let lists: Vec<_> = (0..size).map(|_| listed()).collect();
        let _nodes: Vec<Node> = lists.iter().map(|list| Node::with(&memory, &counts, list.clone())).collect();
        pass(HEARTBEAT_INTERVAL + SECOND).await;
        // The node asks for three pages, and sends all nodes the entries that they lack.
        let own = Arc::new(Users::new(10 * ENTRIES));
        own.merge(entries("new", 3)).unwrap();
        let joined = traffic(&counts, SECOND, || drop(Node::with(&memory, &counts, own.clone()))).await;
        let list_bytes = ENTRIES * 25;
        let per_node = (40 + 3 * 25) * (size + 1);
        assert!(joined.received_bytes > list_bytes, "{size} nodes: {joined:?}");
        assert!(joined.received_bytes < list_bytes + 300 + 3 * per_node, "{size} nodes: {joined:?}");
        assert_eq!(own.len(), ENTRIES + 3);
        assert!(lists.iter().all(|list| list.len() == ENTRIES + 3), "{size} nodes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_revocation_during_a_comparison_of_equal_lists_sends_no_list() {
    let (memory, counts) = (Memory::default(), Counts::default());
    let lists = [(); 2].map(|()| Arc::new(Users::new(2_000)));
    for list in &lists {
        list.merge((0..1_000).map(|n| user(&format!("all{n:05}"))).collect()).unwrap();
    }
    let [in_a, in_b] = &lists;
    let _a = Node::with(&memory, &counts, in_a.clone());
    // The nodes compare their lists at different times.
    pass(10 * SECOND).await;
    let _b = Node::with(&memory, &counts, in_b.clone());
    pass(15 * SECOND).await;
    let compared = traffic(&counts, 10 * SECOND, || in_a.add_after_digest(user("late"))).await;
    assert_eq!((in_a.len(), in_b.len()), (1_001, 1_000));
    assert!(compared.sent_bytes < 1_000, "{compared:?}");
    // The next comparison finds the entry.
    pass(30 * SECOND).await;
    assert_eq!(in_b.len(), 1_001);
}

/// The cores don't know their node's id.
#[tokio::test(start_paused = true)]
async fn a_node_that_receives_a_list_of_versions_is_node_0_in_it() {
    let (memory, counts) = (Memory::default(), Counts::default());
    let [a, b, c] = [(); 3].map(|()| Node::start(&memory, &counts));
    pass(MOMENT).await;
    [&a, &b, &c].into_iter().for_each(|node| node.join("room"));
    let [id_of_a, id_of_b, id_of_c] = [&a, &b, &c].map(|node| node.cluster.node().0);
    let room = Room::plain("room").unwrap();
    let message = PresenceMessage::Watch { have: vec![(id_of_b, 7), (id_of_c, 8)] };
    a.cluster.send_presence(&OutgoingPresence { room, to: None, message });
    pass(MOMENT).await;
    let expect = |have| [(id_of_a, PresenceMessage::Watch { have })];
    assert_eq!(*b.presence.lock().unwrap(), expect(vec![(0, 7), (id_of_c, 8)]));
    assert_eq!(*c.presence.lock().unwrap(), expect(vec![(id_of_b, 7), (0, 8)]));
    assert_eq!(*a.presence.lock().unwrap(), [], "its own");
}
