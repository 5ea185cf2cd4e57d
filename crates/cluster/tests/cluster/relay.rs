//! Real data planes on an engine in memory: requests for sessions of another node, and invalid input to the internal listener.

use crate::fixture::{Intercepted, options};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use stentor_cluster::engine::memory::{Memory, MemoryEngine};
use stentor_cluster::engine::{Answer, Engine, EngineError, Limits, Request};
use stentor_cluster::{Cluster, NodeId, Options, Relays};
use stentor_edge::{App, DriverChoice, Node as EdgeNode, Options as EdgeOptions};
use stentor_ports::{ControlPlane, Ledger, LocalNode, MetricSource, Topology};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

/// Timeout of each wait. No step takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(60);
const SECRET: &str = "known to all nodes";

struct NoControl;

impl ControlPlane for NoControl {
    fn interest_changed(&self) {}
    fn space(&self) {}
}

/// Passes requests to the engine, but fails each request to claim a name.
fn forgetful(engine: &MemoryEngine, request: Request) -> Answer {
    match request {
        Request::Claim { .. } => {
            Box::pin(std::future::ready(Err(EngineError::Unavailable("it is away".into()))))
        }
        request => engine.request(request),
    }
}

struct Node {
    id: NodeId,
    cluster: Arc<Cluster>,
    plane: Arc<dyn LocalNode>,
    addr: SocketAddr,
    internal: SocketAddr,
    _stop: watch::Sender<bool>,
    _edge: EdgeNode,
}

impl Node {
    async fn start(memory: &Memory, secret: &str) -> Self {
        Self::with(memory, secret, false, |_| {}).await
    }

    async fn with(
        memory: &Memory,
        secret: &str,
        is_forgetful: bool,
        set: impl FnOnce(&mut EdgeOptions),
    ) -> Self {
        let id = NodeId::draw();
        let (engine, events) = memory.connect(id, Limits::default());
        let engine: Arc<dyn Engine> = match is_forgetful {
            true => Arc::new(Intercepted { engine, request: forgetful, delay_max: Arc::default() }),
            false => Arc::new(engine),
        };
        let ledger = Arc::new(Ledger::new(1 << 30));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let internal = listener.local_addr().unwrap();
        let relays = Relays::new(id, Some(secret.as_bytes()), engine.clone(), ledger.clone());
        let unready_after = Some(Duration::ZERO);
        let options = Options { unready_after, ..reachable(&relays, &internal.to_string()) };
        let cluster = Cluster::new(id, options, engine, &events, 0);
        let listen = ([127, 0, 0, 1], 0).into();
        let mut options = EdgeOptions { listen, cores: 2, ..EdgeOptions::default() };
        options.app = App::Echo;
        options.broker = Some(cluster.clone());
        options.node_tag = Some(id.tag());
        options.relay = Some(relays.clone());
        options.ledger = Some(ledger);
        set(&mut options);
        let edge = EdgeNode::start(options, DriverChoice::Epoll, Arc::new(NoControl), None).unwrap();
        let (plane, addr) = (edge.plane(), edge.started().addr);
        relays.start(listener, plane.clone());
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(cluster.clone().run(events, plane.clone(), stopped));
        Self { id, cluster, plane, addr, internal, _stop: stop, _edge: edge }
    }

    /// Sum of a metric's samples with the label `reason`, or of all samples if `reason` is empty.
    fn metric(&self, name: &str, reason: &str) -> u64 {
        let all = [self.cluster.metrics(), self.plane.metrics()].concat();
        let metric = all.iter().find(|metric| metric.name == name).unwrap();
        let counts = |labels: &[(&str, String)]| reason.is_empty() || labels.iter().any(|(_, l)| l == reason);
        metric.samples.iter().filter(|(labels, _)| counts(labels)).map(|(_, value)| value).sum()
    }

    async fn until_metric(&self, name: &str, reason: &str, value: u64) {
        until(|| self.metric(name, reason) == value).await;
    }

    /// Sends a request on a new connection, and returns the answer.
    async fn ask(&self, request: &str) -> String {
        let mut socket = TcpStream::connect(self.addr).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !is_whole(&answer) {
            let mut chunk = [0; 4096];
            let bytes = timeout(PATIENCE, socket.read(&mut chunk)).await.unwrap().unwrap();
            assert!(bytes > 0, "{request} is not answered: {}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&chunk[..bytes]);
        }
        String::from_utf8(answer).unwrap()
    }

    /// Sends a request, and checks the status and the end of the answer.
    async fn check(&self, request: &str, status: u16, end: &str) -> String {
        let answer = self.ask(request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        assert!(answer.ends_with(end), "{request}: {answer}");
        answer
    }
}

/// Starts two nodes that know each other, and opens a session on the first one. Returns also the path of its polls.
async fn two(memory: &Memory) -> (Node, Node, String) {
    let (a, b) = (Node::start(memory, SECRET).await, Node::start(memory, SECRET).await);
    known(&[&a, &b], 2).await;
    let path = open(&a).await;
    (a, b, path)
}

fn reachable(relays: &Arc<Relays>, advertise: &str) -> Options {
    Options { advertise: Some(advertise.into()), relays: Some(relays.clone()), ..options() }
}

/// Returns `true` if an answer with a `Content-Length`, or without a body, has arrived completely.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    length.is_none_or(|length| body.len() >= length.parse().unwrap())
}

async fn until(mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            let _ = timeout(Duration::from_millis(5), std::future::pending::<()>()).await;
        }
    };
    timeout(PATIENCE, wait).await.unwrap();
}

/// Waits until each node knows `count` nodes.
async fn known(nodes: &[&Node], count: usize) {
    for node in nodes {
        until(|| node.cluster.nodes().len() == count).await;
    }
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n")
}

fn post(target: &str, body: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

const ENGINE: &str = "/engine.io/?EIO=4&transport=polling";

/// Opens an Engine.IO session. Returns the path of its polls.
async fn open(node: &Node) -> String {
    let answer = node.ask(&get(ENGINE)).await;
    let (_, rest) = answer.split_once(r#""sid":""#).unwrap();
    format!("{ENGINE}&sid={}", &rest[..20])
}

const UNKNOWN: &str = "Session ID unknown";

/// A request to a SockJS session whose name a client has chosen.
fn sockjs(name: &str, body: &str) -> String {
    let transport = if body.is_empty() { "xhr" } else { "xhr_send" };
    post(&format!("/sockjs/000/{name}/{transport}"), body)
}

const HELLO: &str = r#"["hello"]"#;

#[tokio::test(flavor = "multi_thread")]
async fn any_node_answers_requests_of_a_session() {
    let memory = Memory::default();
    let (a, b, path) = two(&memory).await;
    for (n, node) in [&b, &a, &b].into_iter().enumerate() {
        node.check(&post(&path, &format!("4message {n}")), 200, "\r\n\r\nok").await;
        let answer = b.check(&get(&path), 200, &format!("4message {n}")).await;
        assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    }
    assert_eq!(b.metric("relays", ""), 5);
    assert_eq!(a.metric("relays_received", ""), 5);
    b.until_metric("relayed_connections", "", 0).await;
    b.until_metric("memory_bytes", "relays", 0).await;
    assert_eq!(b.metric("cluster_relay_failures", ""), 0);
    a.check(&sockjs("name", ""), 200, "\r\n\r\no\n").await;
    b.check(&sockjs("name", HELLO), 204, "").await;
    b.check(&sockjs("name", ""), 200, "\r\n\r\na[\"hello\"]\n").await;
    assert!(a.metric("memory_bytes", "relays") > 0, "the claim");
    b.until_metric("cluster_sockjs_claims", "", 0).await;
    assert_eq!(a.metric("cluster_sockjs_claims", ""), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_a_node_that_has_just_started_are_found() {
    let memory = Memory::default();
    let a = Node::start(&memory, SECRET).await;
    known(&[&a], 1).await;
    let b = Node::start(&memory, SECRET).await;
    let path = open(&b).await;
    b.check(&sockjs("name", ""), 200, "\r\n\r\no\n").await;
    let (engine, sockjs) = (post(&path, "4hello"), sockjs("name", HELLO));
    tokio::join!(a.check(&engine, 200, ""), a.check(&sockjs, 204, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_room_a_request_is_to_be_tried_again() {
    let memory = Memory::default();
    let (a, b) = (
        Node::start(&memory, SECRET).await,
        Node::with(&memory, SECRET, false, |options| options.limits.relayed_connections_max = 1).await,
    );
    known(&[&a, &b], 2).await;
    let path = open(&a).await;
    // A waiting poll takes the only relayed connection.
    let mut waiting = TcpStream::connect(b.addr).await.unwrap();
    waiting.write_all(get(&path).as_bytes()).await.unwrap();
    b.until_metric("relayed_connections", "", 1).await;
    let answer = b.check(&post(&path, "4hello"), 503, "").await;
    assert!(answer.contains("\r\nRetry-After: 1\r\n"), "{answer}");
    assert_eq!(b.metric("relays_refused", ""), 1);
    drop(waiting);
    b.until_metric("relayed_connections", "", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_engine_does_not_answer_sockjs_sessions_are_opened_where_they_arrive() {
    let memory = Memory::default();
    let node = Node::with(&memory, SECRET, true, |_| {}).await;
    node.check(&sockjs("name", ""), 200, "\r\n\r\no\n").await;
    node.check(&sockjs("name", HELLO), 204, "").await;
    node.check(&sockjs("other", HELLO), 404, "").await;
    assert_eq!(node.metric("cluster_sockjs_claims_failed", ""), 2);
}

/// Adds a member to the registry whose internal listener is `advertise`.
async fn pretend(memory: &Memory, advertise: &str) -> (NodeId, watch::Sender<bool>) {
    let id = NodeId::draw();
    let (engine, events) = memory.connect(id, Limits::default());
    let engine: Arc<dyn Engine> = Arc::new(engine);
    let relays = Relays::new(id, None, engine.clone(), Arc::new(Ledger::new(1 << 30)));
    let cluster = Cluster::new(id, reachable(&relays, advertise), engine, &events, 0);
    let alone = stentor_edge::idle(EdgeOptions::default(), Arc::new(NoControl));
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(cluster.run(events, alone, stopped));
    (id, stop)
}

/// The path of polls of an invented session of a node.
fn path_of(node: NodeId) -> String {
    let mut id = [7; 15];
    id[1..5].copy_from_slice(&node.tag().0.to_le_bytes());
    format!("{ENGINE}&sid={}", URL_SAFE_NO_PAD.encode(id))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_a_node_that_cannot_be_reached_is_unknown() {
    let memory = Memory::default();
    let node = Node::start(&memory, SECRET).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = closed.local_addr().unwrap().to_string();
    drop(closed);
    // The kernel accepts connections for a stopped process.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stopped = pretend(&memory, &silent.local_addr().unwrap().to_string()).await;
    let dead = pretend(&memory, &nobody).await;
    // A node that has ended. `node` listens at its address now.
    let former = pretend(&memory, &node.internal.to_string()).await;
    known(&[&node], 4).await;
    for (id, reason) in [(dead.0, "unreachable"), (former.0, "not_authentic"), (stopped.0, "timeout")] {
        let answer = node.check(&get(&path_of(id)), 400, "").await;
        assert!(answer.contains(UNKNOWN), "{reason}: {answer}");
        assert!(answer.contains("\r\nConnection: keep-alive\r\n"), "{reason}: {answer}");
        assert_eq!(node.metric("cluster_relay_failures", reason), 1, "{reason}");
    }
    node.until_metric("relayed_connections", "", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_with_different_secrets_do_not_serve_each_other() {
    let memory = Memory::default();
    let (a, b) = (Node::start(&memory, SECRET).await, Node::start(&memory, "guessed").await);
    known(&[&a, &b], 2).await;
    let path = open(&a).await;
    let answer = b.check(&get(&path), 400, "").await;
    assert!(answer.contains(UNKNOWN), "{answer}");
    a.until_metric("cluster_internal_refused", "not_authentic", 1).await;
    assert_eq!(a.metric("relays_received", ""), 0);
}

/// Sends bytes to the internal listener after its challenge. Returns the answer up to the end of the connection.
async fn answer_to(node: &Node, bytes: &[u8]) -> (Vec<u8>, TcpStream) {
    let mut socket = TcpStream::connect(node.internal).await.unwrap();
    let mut challenge = [0; 32];
    timeout(PATIENCE, socket.read_exact(&mut challenge)).await.unwrap().unwrap();
    assert_eq!(challenge[8..16], node.id.0.to_le_bytes());
    socket.write_all(bytes).await.unwrap();
    let mut rest = Vec::new();
    // A reset is an end as well.
    let _ = timeout(PATIENCE, socket.read_to_end(&mut rest)).await.unwrap();
    (rest, socket)
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_get_nothing_from_the_internal_listener() {
    let memory = Memory::default();
    let node = Node::start(&memory, SECRET).await;
    let garbage: Vec<u8> = (0..10_000_u32).map(|n| (n * 31 % 256) as u8).collect();
    for bytes in [get("/healthz").repeat(3).as_bytes(), &garbage, &[0; 75]] {
        let (answer, _) = answer_to(&node, bytes).await;
        assert!(answer.is_empty(), "{answer:?}");
    }
    node.until_metric("cluster_internal_refused", "not_authentic", 3).await;
    // Connections that end early, send too few bytes, or send none.
    drop(TcpStream::connect(node.internal).await.unwrap());
    node.until_metric("cluster_internal_refused", "incomplete", 1).await;
    let (slow, silent) = tokio::join!(answer_to(&node, &[1; 74]), answer_to(&node, b""));
    assert!(slow.0.is_empty() && silent.0.is_empty());
    node.until_metric("cluster_internal_refused", "timeout", 2).await;
    assert_eq!(node.metric("relays_received", "") + node.metric("connections", ""), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_served_while_silent_strangers_have_all_places() {
    let memory = Memory::default();
    let (a, b, path) = two(&memory).await;
    let mut strangers = VecDeque::new();
    for n in 0..5 {
        // Connects until the listener evicts a connection: all places are taken.
        let evicted = a.metric("cluster_internal_refused", "too_many");
        while a.metric("cluster_internal_refused", "too_many") == evicted {
            strangers.push_back(TcpStream::connect(a.internal).await.unwrap());
            if strangers.len() > 300 {
                strangers.pop_front();
            }
        }
        b.check(&post(&path, &format!("4message {n}")), 200, "").await;
        b.check(&get(&path), 200, &format!("4message {n}")).await;
    }
    assert_eq!(b.metric("cluster_relay_failures", ""), 0);
    assert_eq!(a.metric("relays_received", ""), 10);
}

/// Without its engine, a node is ready only if it reaches other nodes, and these have no engine either.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_its_engine_is_ready_if_no_other_node_has_one() {
    let memory = Memory::default();
    let (a, b) = (Node::start(&memory, SECRET).await, Node::start(&memory, SECRET).await);
    known(&[&a, &b], 2).await;
    let ready = |node: &Node| node.plane.readiness().is_ready();
    let is_away = |node: &Node| node.plane.readiness().engine_away.is_some();
    a.check(&get("/readyz"), 200, "\r\n\r\nready\n").await;
    memory.set_connected(a.id, false);
    until(|| !ready(&a)).await;
    let body = format!("\r\n\r\n{}\n", a.plane.readiness());
    assert!(body.contains("not ready; engine away since "), "{body}");
    a.check(&get("/readyz"), 503, &body).await;
    assert!(ready(&b));
    memory.set_connected(b.id, false);
    // At first, each node may still believe that the other one has its engine.
    until(|| is_away(&b) && ready(&a) && ready(&b)).await;
    let body = format!("\r\n\r\n{}\n", b.plane.readiness());
    assert!(body.contains("\nready; engine away since "), "{body}");
    b.check(&get("/readyz"), 200, &body).await;
    memory.set_connected(a.id, true);
    until(|| !is_away(&a) && ready(&a) && !ready(&b)).await;
    memory.set_connected(b.id, true);
    until(|| ready(&b) && !is_away(&b)).await;
    // A node that reaches no other node isn't ready without its engine.
    let memory = Memory::default();
    let alone = Node::start(&memory, SECRET).await;
    known(&[&alone], 1).await;
    memory.set_connected(alone.id, false);
    until(|| !ready(&alone)).await;
    memory.set_connected(alone.id, true);
    until(|| ready(&alone)).await;
}
