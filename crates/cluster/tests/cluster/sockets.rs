//! Sockets that move between nodes: one node under test, and peers whose frames the test sends, on an engine in memory.

use crate::fixture::{Intercepted, MOMENT, options, pass};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use stentor_cluster::engine::memory::{Memory, MemoryEngine};
use stentor_cluster::engine::{Answer, Channel, Engine, Event, EventReceiver, Limits, Request};
use stentor_cluster::frame::{Frame, Frames, SocketAnswer, SocketFrame};
use stentor_cluster::{Cluster, HEARTBEAT_INTERVAL, NODE_TTL, NodeId, NodeRecord, Options};
use stentor_hub::{Data, HistoryLimits, Key, MissedMessage, Policy, Room, SubscribeOptions, Topic};
use stentor_ports::fake::{self, Call};
use stentor_ports::{
    Broadcast, Broker, Claimant, MetricSource, MovingSocket, MovingSubscription, Pid, PublicId, RoomUpdate,
    SocketName, SocketQuestion,
    SocketRequest::{self, Describe, Look, Take},
    Ticket,
};
use tokio::sync::watch;

const SECRET: Option<&[u8]> = Some(b"secret");
const DOCUMENT_BYTES_MAX: usize = 1_000;
const KEEP: HistoryLimits =
    HistoryLimits { publications_max: 10, bytes_max: 10_000, age_max: Duration::from_mins(5) };
const SECOND: Duration = Duration::from_secs(1);

/// A data plane that records sockets and the requests for them.
#[derive(Default)]
struct Plane {
    /// The socket that this node hands over to other nodes.
    socket: Mutex<Option<MovingSocket>>,
    expected: Mutex<Vec<MovingSocket>>,
    /// `true` if no client waits for the expected socket any more.
    has_given_up: Mutex<bool>,
    delivered: Mutex<Vec<(Ticket, Option<MovingSocket>)>>,
    /// Requests for sockets, and messages of rooms with history, in the order of their arrival.
    log: Mutex<Vec<String>>,
}

impl Plane {
    fn data_plane(self: &Arc<Self>) -> Arc<fake::Node> {
        let this = self.clone();
        Arc::new(fake::Node::new(move |call| {
            this.handle(call);
            Ok(())
        }))
    }

    fn handle(&self, call: Call) {
        match call {
            Call::RequestSocket(_, request, done) => {
                self.log.lock().unwrap().push(format!("{request:?}"));
                let mut socket = self.socket.lock().unwrap();
                done.answer(Ok(match request {
                    Look | Describe => socket.clone(),
                    Take => socket.take(),
                }));
            }
            Call::UpdateRoom(_, update) => {
                let count = match update {
                    RoomUpdate::Message { .. } => 1,
                    RoomUpdate::History { messages, .. } => messages.len(),
                    RoomUpdate::Confirmed => 0,
                };
                self.log.lock().unwrap().extend((0..count).map(|_| "message".to_owned()));
            }
            Call::ExpectSocket(_, socket, done) => {
                self.expected.lock().unwrap().push(socket);
                done.answer(Ok(!*self.has_given_up.lock().unwrap()));
            }
            Call::DeliverSocket(ticket, socket) => self.delivered.lock().unwrap().push((ticket, socket)),
            _ => {}
        }
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
        let (engine, events) = memory.connect(id, Limits::default());
        let (established, is_established) = watch::channel(true);
        let (reads, delay) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<Mutex<Duration>>::default());
        let reads_of_engine = reads.clone();
        // The engine's answers to reads wait until the test sets `established`.
        let request = move |engine: &MemoryEngine, request: Request| {
            let is_read = matches!(request, Request::History { .. });
            if let Request::History { room, .. } = &request {
                reads_of_engine.lock().unwrap().push(room.name().to_owned());
            }
            let (mut is_established, answer) = (is_established.clone(), engine.request(request));
            Box::pin(async move {
                if is_read {
                    is_established.wait_for(|is| *is).await.unwrap();
                }
                answer.await
            }) as Answer
        };
        let engine = Intercepted { engine, request, delay_max: delay.clone() };
        let options = Options {
            secret: SECRET.map(Into::into),
            document_bytes_max: DOCUMENT_BYTES_MAX,
            history: vec![("kept".into(), KEEP)],
            ..options()
        };
        let cluster = Cluster::new(id, options, Arc::new(engine), &events, 0);
        let plane = Arc::<Plane>::default();
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(cluster.clone().run(events, plane.data_plane(), stopped));
        Self { id, cluster, plane, reads, delay, established, _stop: stop }
    }

    fn find(&self, number: u64, pid: Pid) -> bool {
        let name = SocketName { pid, namespace: "/".into(), last: Some(3), claimant: Claimant::Unverified };
        self.cluster.find_socket(SocketQuestion { ticket: Ticket::for_test(number), name })
    }

    fn outcomes(&self) -> Vec<(String, u64)> {
        let metric = self.cluster.metrics().into_iter().find(|metric| metric.name == "cluster_recoveries");
        let samples = metric.unwrap().samples.into_iter().filter(|(_, count)| *count > 0);
        samples.map(|(labels, count)| (labels[0].1.clone(), count)).collect()
    }
}

/// A node whose frames the test sends and receives.
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

    /// Publishes to a room with history.
    async fn publish(&self, room: &Room) {
        let message = Broadcast {
            id: 0,
            rooms: room.clone().into(),
            except_rooms: Vec::new(),
            except_sessions: Vec::new(),
            event: None,
            data: Data::Json(Bytes::from_static(b"1")),
            volatile: false,
        };
        let payload = self.frames.encode(&room.clone().into(), &Frame::Message(message));
        let append = Request::Append { room: room.clone(), payload, idempotency_key: None, limits: KEEP };
        self.engine.request(append).await.unwrap();
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

    /// The next frame about sockets that has reached this peer. `None` if there is none.
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

    /// Returns the id of the next question, which must be for `expected`.
    async fn asked(&mut self, expected: SocketRequest) -> u64 {
        match self.next().await {
            Some(SocketFrame::Question { id, request, .. }) if request == expected => id,
            other => panic!("{other:?} instead of {expected:?}"),
        }
    }

    /// Expects questions for the description and for the socket, and answers both.
    async fn hand_over(&mut self, to: NodeId) {
        let id = self.asked(Describe).await;
        self.answer(to, id, answer_with(described()));
        let id = self.asked(Take).await;
        self.answer(to, id, answer_with(socket()));
    }

    fn answer(&self, to: NodeId, id: u64, answer: SocketAnswer) {
        self.send(to, SocketFrame::Answer { id, answer });
    }
}

/// A `pid` drawn by a node.
fn pid_of(node: NodeId) -> Pid {
    let mut bytes = [7; 15];
    bytes[1..5].copy_from_slice(&node.tag().0.to_le_bytes());
    let pid = Pid::parse(&URL_SAFE_NO_PAD.encode(bytes)).unwrap();
    assert_eq!(pid.node(), node.tag());
    pid
}

fn subscription(
    topic: impl Into<Topic>,
    options: impl Into<SubscribeOptions>,
    is_granted: bool,
) -> MovingSubscription {
    MovingSubscription { topic: topic.into(), options: options.into(), position: None, is_granted }
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

/// Starts a node and two peers that it knows.
async fn cluster() -> (Memory, Node, [Peer; 2]) {
    let memory = Memory::default();
    let node = Node::start(&memory);
    let peers = [Peer::join(&memory).await, Peer::join(&memory).await];
    pass(HEARTBEAT_INTERVAL + MOMENT).await;
    (memory, node, peers)
}

/// Checks the sockets that the data plane has received since the last check, for tickets by number.
#[track_caller]
fn check_delivered(node: &Node, expected: impl IntoIterator<Item = (u64, Option<MovingSocket>)>) {
    let expected = expected.into_iter().map(|(number, socket)| (Ticket::for_test(number), socket));
    let delivered = std::mem::take(&mut *node.plane.delivered.lock().unwrap());
    assert_eq!(delivered, expected.collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_socket_is_taken_when_the_interest_in_its_rooms_is_established() {
    let (_memory, node, [mut owner, mut other]) = cluster().await;
    node.established.send(false).unwrap();
    *node.delay.lock().unwrap() = 50 * MOMENT;
    assert!(node.find(1, pid_of(owner.id)));
    let id = owner.asked(Describe).await;
    owner.answer(node.id, id, answer_with(described()));
    assert_eq!(owner.next().await, None, "the interest isn't established");
    assert_eq!(*node.plane.expected.lock().unwrap(), [described()]);
    assert_eq!(*node.reads.lock().unwrap(), ["", "red"]);
    node.established.send(true).unwrap();
    assert_eq!(owner.next().await, None, "messages may be under way");
    pass(50 * MOMENT).await;
    let id = owner.asked(Take).await;
    check_delivered(&node, []);
    owner.answer(node.id, id, answer_with(socket()));
    pass(MOMENT).await;
    check_delivered(&node, [(1, Some(socket()))]);
    assert_eq!(other.next().await, None, "the pid names its node");
    assert_eq!(node.outcomes(), [("found".to_owned(), 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_lags_behind_the_engine_gives_no_socket_away() {
    for (is_late, has_connection) in [(false, true), (true, true), (false, false)] {
        let (memory, node, [mut peer, _]) = cluster().await;
        let kept = Room::plain("kept").unwrap();
        node.cluster.set_interest(&kept.clone().into(), true);
        pass(MOMENT).await;
        let subscriptions = vec![subscription(kept.clone(), Policy::Queue, false)];
        *node.plane.socket.lock().unwrap() = Some(MovingSocket { subscriptions, ..socket() });
        // The node begins a read. The answer is still on its way when a message is published.
        node.established.send(false).unwrap();
        node.cluster.confirm_history(&kept);
        pass(MOMENT).await;
        peer.publish(&kept).await;
        if !has_connection {
            memory.set_connected(node.id, false);
            peer.publish(&kept).await;
            memory.set_connected(node.id, true);
        }
        let name = SocketName {
            pid: pid_of(node.id),
            namespace: "/".into(),
            last: None,
            claimant: Claimant::Unverified,
        };
        peer.send(node.id, SocketFrame::Question { id: 5, name, request: Take });
        assert_eq!(peer.next().await, None, "its rooms are being read");
        assert_eq!(*node.plane.log.lock().unwrap(), ["Look"]);
        if is_late {
            // The node that asked has given up. The socket stays.
            pass(2 * SECOND).await;
            assert_eq!(peer.next().await, Some(SocketFrame::Answer { id: 5, answer: SocketAnswer::None }));
            assert!(node.plane.socket.lock().unwrap().is_some(), "it stays");
            continue;
        }
        node.established.send(true).unwrap();
        pass(10 * MOMENT).await;
        let Some(SocketFrame::Answer { id: 5, answer: SocketAnswer::Socket(_) }) = peer.next().await else {
            panic!("no socket")
        };
        let log = std::mem::take(&mut *node.plane.log.lock().unwrap());
        let expected: &[&str] = if has_connection {
            &["Look", "message", "Take"]
        } else {
            &["Look", "message", "message", "Take"]
        };
        assert_eq!(log, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_answer_is_waited_for_two_seconds() {
    let (_memory, node, [mut owner, _]) = cluster().await;
    for step in 0..2 {
        assert!(node.find(step, pid_of(owner.id)));
        let mut id = owner.asked(Describe).await;
        if step > 0 {
            owner.answer(node.id, id, answer_with(described()));
            id = owner.asked(Take).await;
        }
        pass(2 * SECOND - 10 * MOMENT).await;
        check_delivered(&node, []);
        pass(20 * MOMENT).await;
        check_delivered(&node, [(step, None)]);
        // This answer is too late.
        owner.answer(node.id, id, answer_with(socket()));
        pass(MOMENT).await;
        check_delivered(&node, []);
    }
    assert_eq!(node.outcomes(), [("timeout".to_owned(), 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_has_moved_is_found_by_the_node_that_drew_its_pid() {
    let (_memory, node, [mut home, mut holder]) = cluster().await;
    // The socket has moved to a living node, to a dead one, or to the node that asks. Only the living node hands it
    // over.
    for (number, at) in [(1, holder.id), (2, NodeId(9)), (3, node.id)] {
        assert!(node.find(number, pid_of(home.id)));
        let id = home.asked(Describe).await;
        home.answer(node.id, id, SocketAnswer::At(at));
        if at == holder.id {
            holder.hand_over(node.id).await;
        }
        pass(MOMENT).await;
        check_delivered(&node, [(number, (at == holder.id).then(socket))]);
    }
}

#[tokio::test(start_paused = true)]
async fn if_the_node_that_drew_a_pid_is_dead_all_are_asked() {
    let (_memory, node, [mut first, mut second]) = cluster().await;
    let dead = pid_of(NodeId(1 << 40));
    assert!(node.find(1, dead));
    let id = first.asked(Describe).await;
    assert_eq!(second.asked(Describe).await, id);
    first.answer(node.id, id, SocketAnswer::None);
    pass(MOMENT).await;
    check_delivered(&node, []);
    second.answer(node.id, id, answer_with(described()));
    let id = second.asked(Take).await;
    assert_eq!(first.next().await, None);
    second.answer(node.id, id, answer_with(socket()));
    pass(MOMENT).await;
    check_delivered(&node, [(1, Some(socket()))]);
    // All nodes answer that they don't have the socket, so the search ends at once.
    assert!(node.find(2, dead));
    for peer in [&mut first, &mut second] {
        let id = peer.asked(Describe).await;
        peer.answer(node.id, id, SocketAnswer::None);
    }
    pass(MOMENT).await;
    check_delivered(&node, [(2, None)]);
}

#[tokio::test(start_paused = true)]
async fn answers_of_others_and_without_a_question_have_no_effect() {
    let (_memory, node, [mut owner, other]) = cluster().await;
    assert!(node.find(1, pid_of(owner.id)));
    let id = owner.asked(Describe).await;
    other.answer(node.id, id, answer_with(described()));
    owner.answer(node.id, id ^ 1, answer_with(described()));
    // An answer by a sender that doesn't know the secret.
    let frames = Frames::new(owner.id, Some(b"another"), DOCUMENT_BYTES_MAX);
    let answer = SocketFrame::Answer { id, answer: answer_with(described()) };
    let forged = frames.encode(&Channel::Node(node.id), &Frame::Socket(answer));
    other.engine.publish(Channel::Node(node.id), forged).unwrap();
    pass(MOMENT).await;
    assert_eq!(*node.plane.expected.lock().unwrap(), []);
    // The client has disconnected. The node doesn't take the socket.
    *node.plane.has_given_up.lock().unwrap() = true;
    owner.answer(node.id, id, answer_with(described()));
    assert_eq!(owner.next().await, None);
    check_delivered(&node, [(1, None)]);
    assert_eq!(node.outcomes(), [("failed".to_owned(), 1)]);
}

#[tokio::test(start_paused = true)]
async fn own_pids_that_have_not_moved_are_nowhere_else() {
    let (_memory, node, [mut peer, mut other]) = cluster().await;
    let own = pid_of(node.id);
    assert!(!node.find(1, own));
    // A peer takes the socket, and reports that another peer has it now.
    *node.plane.socket.lock().unwrap() = Some(socket());
    let name_of = |pid| SocketName { pid, namespace: "/".into(), last: None, claimant: Claimant::Unverified };
    for (request, expected) in
        [(Describe, answer_with(socket())), (Take, answer_with(socket())), (Take, SocketAnswer::At(peer.id))]
    {
        peer.send(node.id, SocketFrame::Question { id: 5, name: name_of(own), request });
        assert_eq!(peer.next().await, Some(SocketFrame::Answer { id: 5, answer: expected }));
    }
    peer.send(node.id, SocketFrame::Moved { pid: own, to: other.id });
    pass(MOMENT).await;
    assert!(node.find(2, own));
    other.asked(Describe).await;
    assert_eq!(peer.next().await, None);
    // This node hands over a socket whose pid another node drew, and notifies that node.
    *node.plane.socket.lock().unwrap() = Some(socket());
    let name = name_of(pid_of(peer.id));
    other.send(node.id, SocketFrame::Question { id: 6, name, request: Take });
    let moved = SocketFrame::Moved { pid: pid_of(peer.id), to: other.id };
    assert_eq!(peer.next().await, Some(moved));
}
