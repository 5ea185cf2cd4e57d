//! Sockets that move between nodes: one node under test, and others that the test plays on an engine in memory.

use bytes::Bytes;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use stentor_cluster::engine::memory::Memory;
use stentor_cluster::engine::{Answer, Channel, Engine, EngineError, Event, EventReceiver, Limits, Request};
use stentor_cluster::frame::{Frame, Frames, SocketAnswer, SocketFrame};
use stentor_cluster::{Cluster, HEARTBEAT_INTERVAL, NODE_TTL, NodeId, NodeRecord, Options};
use stentor_edge::{
    Broker, Busy, CommandInbox, DataPlane, Done, FeedSource, Ledger, MOVING_MESSAGES_MAX, MovingSocket,
    MovingSubscription, Pid, PublicId, SocketName, SocketQuestion, SocketRequest, Ticket,
};
use stentor_hub::{Data, Key, MissedMessage, Policy, Room, SubscribeOptions, Topic};
use tokio::sync::watch;

const SECRET: Option<&[u8]> = Some(b"secret");
const DOCUMENT_BYTES_MAX: usize = 1_000;
const SECOND: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_millis(1);

/// A data plane that notes what becomes of sockets.
#[derive(Default)]
struct Plane {
    /// What it has for other nodes.
    socket: Mutex<Option<MovingSocket>>,
    requests: Mutex<Vec<SocketRequest>>,
    expected: Mutex<Vec<MovingSocket>>,
    /// Sockets aren't waited for any more.
    has_given_up: Mutex<bool>,
    delivered: Mutex<Vec<(Ticket, Option<MovingSocket>)>>,
}

impl CommandInbox for Plane {
    ignore!(publish, receive, update_room, decide, update_feed, command, list_rooms);

    fn request_socket(&self, _: SocketName, request: SocketRequest, done: Done<Option<MovingSocket>>) {
        self.requests.lock().unwrap().push(request);
        let mut socket = self.socket.lock().unwrap();
        done.answer(Ok(match request {
            SocketRequest::Describe => socket.clone(),
            SocketRequest::Take => socket.take(),
        }));
    }

    fn expect_socket(&self, _: Ticket, socket: MovingSocket, done: Done<bool>) {
        self.expected.lock().unwrap().push(socket);
        done.answer(Ok(!*self.has_given_up.lock().unwrap()));
    }

    fn deliver_socket(&self, ticket: Ticket, socket: Option<MovingSocket>) -> Result<(), Busy> {
        self.delivered.lock().unwrap().push((ticket, socket));
        Ok(())
    }
}

impl DataPlane for Plane {
    ignore!(take_wanted, metrics, is_ready, drain);
}

/// An engine that establishes interest when it is told to.
struct Slow<E> {
    engine: E,
    is_established: watch::Receiver<bool>,
    reads: Arc<Mutex<Vec<String>>>,
    delay: Arc<Mutex<Duration>>,
}

impl<E: Engine> Engine for Slow<E> {
    fn publish(&self, channel: Channel, payload: Bytes) -> Result<(), EngineError> {
        self.engine.publish(channel, payload)
    }

    fn delay_max(&self) -> Duration {
        *self.delay.lock().unwrap()
    }

    fn set_interest(&self, channel: Channel, is_interested: bool) {
        self.engine.set_interest(channel, is_interested);
    }

    fn request(&self, request: Request) -> Answer {
        let mut is_established = self.is_established.clone();
        let is_read = matches!(request, Request::History { .. });
        if let Request::History { room, .. } = &request {
            self.reads.lock().unwrap().push(room.name().to_owned());
        }
        let answer = self.engine.request(request);
        Box::pin(async move {
            if is_read {
                is_established.wait_for(|is| *is).await.unwrap();
            }
            answer.await
        })
    }
}

/// The node under test.
struct Node {
    id: NodeId,
    cluster: Arc<Cluster>,
    plane: Arc<Plane>,
    reads: Arc<Mutex<Vec<String>>>,
    delay: Arc<Mutex<Duration>>,
    established: watch::Sender<bool>,
    _stop: watch::Sender<bool>,
}

impl Node {
    fn start(memory: &Memory) -> Self {
        let id = NodeId::draw();
        let ledger = Arc::new(Ledger::new(1 << 20));
        let (engine, events) = memory.connect(id, Limits::default());
        let (established, is_established) = watch::channel(true);
        let (reads, delay) = (Arc::new(Mutex::default()), Arc::new(Mutex::default()));
        let engine = Slow { engine, is_established, reads: reads.clone(), delay: delay.clone() };
        let options = Options {
            name: "under test".into(),
            advertise: None,
            relays: None,
            secret: SECRET.map(Into::into),
            version: "1".into(),
            history: Vec::new(),
            decision_timeout: 5 * SECOND,
            feed_source: Arc::new(|_| FeedSource::Fetched),
            feed_idle_ttl: Duration::ZERO,
            revocations: None,
            document_bytes_max: DOCUMENT_BYTES_MAX,
            ledger,
        };
        let cluster = Cluster::new(id, options, Arc::new(engine), &events, 0);
        let plane = Arc::new(Plane::default());
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(cluster.clone().run(events, plane.clone(), stopped));
        Self { id, cluster, plane, reads, delay, established, _stop: stop }
    }

    fn find(&self, number: u64, pid: Pid) -> bool {
        let name = SocketName { pid, namespace: "/".into(), last: Some(3) };
        self.cluster.find_socket(SocketQuestion { ticket: Ticket::for_test(number), name })
    }

    fn delivered(&self) -> Vec<(Ticket, Option<MovingSocket>)> {
        std::mem::take(&mut *self.plane.delivered.lock().unwrap())
    }

    fn outcomes(&self) -> Vec<(String, u64)> {
        let metric = self.cluster.metrics().into_iter().find(|metric| metric.name == "cluster_recoveries");
        let samples = metric.unwrap().samples.into_iter().filter(|(_, count)| *count > 0);
        samples.map(|(labels, count)| (labels[0].1.clone(), count)).collect()
    }
}

/// A node that the test plays.
struct Peer {
    id: NodeId,
    frames: Frames,
    engine: Box<dyn Engine>,
    events: EventReceiver,
}

impl Peer {
    async fn join(memory: &Memory) -> Self {
        let id = NodeId::draw();
        let (engine, events) = memory.connect(id, Limits::default());
        let peer = Self {
            id,
            frames: Frames::new(id, SECRET, DOCUMENT_BYTES_MAX),
            engine: Box::new(engine),
            events,
        };
        peer.beat().await;
        peer
    }

    async fn beat(&self) {
        let record = NodeRecord {
            name: "peer".into(),
            version: "1".into(),
            address: None,
            started_at_seconds: 0,
            connections: 0,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let record = self.frames.seal_record(now, &serde_json::to_vec(&record).unwrap());
        self.engine.request(Request::Heartbeat { node: self.id, record, ttl: NODE_TTL }).await.unwrap();
    }

    fn send(&self, to: NodeId, frame: SocketFrame) {
        let channel = Channel::Node(to);
        let payload = self.frames.encode(&channel, &Frame::Socket(frame));
        self.engine.publish(channel, payload).unwrap();
    }

    /// The next frame about sockets that has reached this node.
    async fn next(&mut self) -> Option<SocketFrame> {
        loop {
            let event = tokio::time::timeout(MOMENT, self.events.next()).await.ok()??;
            if let Event::Message { channel, payload, .. } = event
                && let Ok((_, Frame::Socket(frame))) = self.frames.decode(&channel, &payload)
            {
                return Some(frame);
            }
        }
    }

    /// The next question: its number, and what is asked for.
    async fn question(&mut self) -> Option<(u64, SocketRequest)> {
        match self.next().await? {
            SocketFrame::Question { id, request, .. } => Some((id, request)),
            other => panic!("{other:?}"),
        }
    }

    fn answer(&self, to: NodeId, id: u64, answer: SocketAnswer) {
        self.send(to, SocketFrame::Answer { id, answer });
    }
}

/// A `pid` that a node drew.
fn pid_of(node: NodeId) -> Pid {
    let mut bytes = [7; 15];
    bytes[1..5].copy_from_slice(&node.tag().0.to_le_bytes());
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let text = bytes.chunks(3).flat_map(|three| {
        let bits = three.iter().fold(0, |bits, byte| bits << 8 | usize::from(*byte));
        [18, 12, 6, 0].map(|shift| char::from(alphabet[bits >> shift & 63]))
    });
    let pid = Pid::parse(&text.collect::<String>()).unwrap();
    assert_eq!(pid.node(), node.tag());
    pid
}

fn subscription(
    topic: impl Into<Topic>,
    options: impl Into<SubscribeOptions>,
    is_granted: bool,
) -> MovingSubscription {
    MovingSubscription { topic: topic.into(), options: options.into(), is_granted }
}

fn socket() -> MovingSocket {
    let options = SubscribeOptions { policy: Policy::Latest, deltas: false, interval: SECOND };
    let message = |id, data| MissedMessage { id, is_direct: id == 2, event: Some("news".into()), data };
    MovingSocket {
        id: PublicId::parse("aaaaaaaaaaaaaaaaaaaa").unwrap(),
        principal: None,
        subscriptions: vec![
            subscription(Room::all_members("/").unwrap(), Policy::Queue, false),
            subscription(Room::plain("red").unwrap(), Policy::DropOldest, true),
            subscription(Key::parse("game").unwrap(), options, true),
        ],
        missed: vec![
            message(1, Data::Json(Bytes::from_static(b"[1]"))),
            message(
                2,
                Data::Arguments {
                    json: Bytes::from_static(b"1"),
                    attachments: [Bytes::from_static(b"\0\xff")].into(),
                },
            ),
        ],
        known: vec![1, 2, u64::MAX],
    }
}

fn described() -> MovingSocket {
    MovingSocket { missed: Vec::new(), known: Vec::new(), ..socket() }
}

fn answer_with(socket: MovingSocket) -> SocketAnswer {
    SocketAnswer::Socket(Box::new(socket))
}

/// Lets all tasks run, and as much time pass of the clock, which is stopped.
async fn pass(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

/// A node, and two others that it knows.
async fn cluster() -> (Memory, Node, [Peer; 2]) {
    let memory = Memory::default();
    let node = Node::start(&memory);
    let peers = [Peer::join(&memory).await, Peer::join(&memory).await];
    pass(HEARTBEAT_INTERVAL + MOMENT).await;
    (memory, node, peers)
}

#[tokio::test(start_paused = true)]
async fn a_socket_is_taken_when_the_interest_in_its_rooms_is_established() {
    let (_memory, node, [mut owner, mut other]) = cluster().await;
    node.established.send(false).unwrap();
    *node.delay.lock().unwrap() = 50 * MOMENT;
    assert!(node.find(1, pid_of(owner.id)));
    let (id, request) = owner.question().await.unwrap();
    assert_eq!(request, SocketRequest::Describe);
    owner.answer(node.id, id, answer_with(described()));
    assert_eq!(owner.question().await, None, "the interest isn't established");
    assert_eq!(*node.plane.expected.lock().unwrap(), [described()]);
    assert_eq!(*node.reads.lock().unwrap(), ["", "red"]);
    node.established.send(true).unwrap();
    assert_eq!(owner.question().await, None, "messages may be under way");
    pass(50 * MOMENT).await;
    let (id, request) = owner.question().await.unwrap();
    assert_eq!(request, SocketRequest::Take);
    assert_eq!(node.delivered(), []);
    owner.answer(node.id, id, answer_with(socket()));
    pass(MOMENT).await;
    assert_eq!(node.delivered(), [(Ticket::for_test(1), Some(socket()))]);
    assert_eq!(other.question().await, None, "the pid names its node");
    assert_eq!(node.outcomes(), [("found".to_owned(), 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_answer_is_waited_for_two_seconds() {
    let (_memory, node, [mut owner, _]) = cluster().await;
    for step in 0..2 {
        assert!(node.find(step, pid_of(owner.id)));
        let (mut id, _) = owner.question().await.unwrap();
        if step > 0 {
            owner.answer(node.id, id, answer_with(described()));
            (id, _) = owner.question().await.unwrap();
        }
        pass(2 * SECOND - 10 * MOMENT).await;
        assert_eq!(node.delivered(), []);
        pass(20 * MOMENT).await;
        assert_eq!(node.delivered(), [(Ticket::for_test(step), None)]);
        // Too late.
        owner.answer(node.id, id, answer_with(socket()));
        pass(MOMENT).await;
        assert_eq!(node.delivered(), []);
    }
    assert_eq!(node.outcomes(), [("timeout".to_owned(), 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_has_moved_is_found_by_the_node_that_drew_its_pid() {
    let (_memory, node, [mut home, mut holder]) = cluster().await;
    assert!(node.find(1, pid_of(home.id)));
    let (id, _) = home.question().await.unwrap();
    home.answer(node.id, id, SocketAnswer::At(holder.id));
    let (id, request) = holder.question().await.unwrap();
    assert_eq!(request, SocketRequest::Describe);
    holder.answer(node.id, id, answer_with(described()));
    let (id, request) = holder.question().await.unwrap();
    assert_eq!(request, SocketRequest::Take);
    holder.answer(node.id, id, answer_with(socket()));
    pass(MOMENT).await;
    assert_eq!(node.delivered(), [(Ticket::for_test(1), Some(socket()))]);
    // To a node that is dead, or to the node that asks: it isn't there.
    for (n, wrong) in [NodeId(9), node.id].into_iter().enumerate() {
        assert!(node.find(2 + n as u64, pid_of(home.id)));
        let (id, _) = home.question().await.unwrap();
        home.answer(node.id, id, SocketAnswer::At(wrong));
        pass(MOMENT).await;
        assert_eq!(node.delivered(), [(Ticket::for_test(2 + n as u64), None)]);
    }
}

#[tokio::test(start_paused = true)]
async fn if_the_node_that_drew_a_pid_is_dead_all_are_asked() {
    let (_memory, node, [mut first, mut second]) = cluster().await;
    let dead = pid_of(NodeId(1 << 40));
    assert!(node.find(1, dead));
    let ((id, _), (same, _)) = (first.question().await.unwrap(), second.question().await.unwrap());
    assert_eq!(id, same);
    first.answer(node.id, id, SocketAnswer::None);
    pass(MOMENT).await;
    assert_eq!(node.delivered(), []);
    second.answer(node.id, id, answer_with(described()));
    let (id, _) = second.question().await.unwrap();
    assert_eq!(first.question().await, None);
    second.answer(node.id, id, answer_with(socket()));
    pass(MOMENT).await;
    assert_eq!(node.delivered(), [(Ticket::for_test(1), Some(socket()))]);
    // No node has it: that is known at once. One that dies meanwhile has nothing to say.
    assert!(node.find(2, dead));
    let (id, _) = first.question().await.unwrap();
    first.answer(node.id, id, SocketAnswer::None);
    second.question().await.unwrap();
    second.answer(node.id, id, SocketAnswer::None);
    pass(MOMENT).await;
    assert_eq!(node.delivered(), [(Ticket::for_test(2), None)]);
}

#[tokio::test(start_paused = true)]
async fn answers_of_others_and_without_a_question_have_no_effect() {
    let (memory, node, [mut owner, other]) = cluster().await;
    assert!(node.find(1, pid_of(owner.id)));
    let (id, _) = owner.question().await.unwrap();
    other.answer(node.id, id, answer_with(described()));
    owner.answer(node.id, id ^ 1, answer_with(described()));
    // One that doesn't know the secret.
    let frames = Frames::new(owner.id, Some(b"another"), DOCUMENT_BYTES_MAX);
    let answer = SocketFrame::Answer { id, answer: answer_with(described()) };
    let forged = frames.encode(&Channel::Node(node.id), &Frame::Socket(answer));
    other.engine.publish(Channel::Node(node.id), forged).unwrap();
    pass(MOMENT).await;
    assert_eq!(*node.plane.expected.lock().unwrap(), []);
    // The client has gone meanwhile: the socket stays where it is.
    *node.plane.has_given_up.lock().unwrap() = true;
    owner.answer(node.id, id, answer_with(described()));
    assert_eq!(owner.question().await, None);
    assert_eq!(node.delivered(), [(Ticket::for_test(1), None)]);
    assert_eq!(node.outcomes(), [("failed".to_owned(), 1)]);
    drop(memory);
}

#[tokio::test(start_paused = true)]
async fn own_pids_that_have_not_moved_are_nowhere_else() {
    let (_memory, node, [mut peer, mut other]) = cluster().await;
    let own = pid_of(node.id);
    assert!(!node.find(1, own));
    // Another node takes it, and hands it to a third one.
    *node.plane.socket.lock().unwrap() = Some(socket());
    for request in [SocketRequest::Describe, SocketRequest::Take, SocketRequest::Take] {
        let name = SocketName { pid: own, namespace: "/".into(), last: None };
        peer.send(node.id, SocketFrame::Question { id: 5, name, request });
        let answer = match peer.next().await.unwrap() {
            SocketFrame::Answer { id: 5, answer } => answer,
            other => panic!("{other:?}"),
        };
        let is_first = node.plane.requests.lock().unwrap().len() < 3;
        assert_eq!(answer, if is_first { answer_with(socket()) } else { SocketAnswer::At(peer.id) });
    }
    peer.send(node.id, SocketFrame::Moved { pid: own, to: other.id });
    pass(MOMENT).await;
    assert!(node.find(2, own));
    assert_eq!(other.question().await.unwrap().1, SocketRequest::Describe);
    assert_eq!(peer.question().await, None);
    // What this node hands over of another's is reported to that one.
    *node.plane.socket.lock().unwrap() = Some(socket());
    let name = SocketName { pid: pid_of(peer.id), namespace: "/".into(), last: None };
    other.send(node.id, SocketFrame::Question { id: 6, name, request: SocketRequest::Take });
    let moved = SocketFrame::Moved { pid: pid_of(peer.id), to: other.id };
    assert_eq!(peer.next().await, Some(moved));
}

#[test]
fn frames_keep_what_they_say_and_refuse_what_is_too_much() {
    let frames = Frames::new(NodeId(1), SECRET, DOCUMENT_BYTES_MAX);
    let channel = Channel::Node(NodeId(2));
    let again = |frame: SocketFrame| {
        let bytes = frames.encode(&channel, &Frame::Socket(frame));
        match frames.decode(&channel, &bytes) {
            Ok((NodeId(1), Frame::Socket(frame))) => Ok(frame),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        }
    };
    let name = SocketName { pid: pid_of(NodeId(1)), namespace: "/chat".into(), last: Some(u64::MAX) };
    let much = MovingSocket { missed: vec![socket().missed[0].clone(); MOVING_MESSAGES_MAX + 1], ..socket() };
    let elsewhere = MovingSocket {
        subscriptions: vec![subscription(Room::new("/chat", "red").unwrap(), Policy::Queue, true)],
        ..socket()
    };
    for frame in [
        SocketFrame::Question { id: 1, name, request: SocketRequest::Take },
        SocketFrame::Answer { id: 1, answer: SocketAnswer::None },
        SocketFrame::Answer { id: 1, answer: SocketAnswer::At(NodeId(3)) },
        SocketFrame::Answer { id: u64::MAX, answer: answer_with(socket()) },
        SocketFrame::Answer { id: 1, answer: answer_with(elsewhere) },
        SocketFrame::Moved { pid: pid_of(NodeId(1)), to: NodeId(3) },
    ] {
        assert_eq!(again(frame.clone()), Ok(frame));
    }
    assert!(again(SocketFrame::Answer { id: 1, answer: answer_with(much) }).is_err());
    // Without a tag, each byte is read.
    let open = Frames::new(NodeId(1), None, DOCUMENT_BYTES_MAX);
    let answer = SocketFrame::Answer { id: 1, answer: answer_with(socket()) };
    let bytes = open.encode(&channel, &Frame::Socket(answer));
    for len in 0..bytes.len() {
        assert!(open.decode(&channel, &bytes.slice(..len)).is_err(), "{len}");
    }
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut changed = bytes.to_vec();
            changed[at] = value;
            // No panic, whatever it is.
            let _ = open.decode(&channel, &changed.into());
        }
    }
}
