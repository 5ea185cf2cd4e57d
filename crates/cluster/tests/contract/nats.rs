//! The engine on NATS.

use crate::feeds::{LONG, acquire, load, release, renew, store, version};
use crate::nats_server::NatsServer;
use crate::proxy::Proxy;
use crate::servers::{
    Server, append, attach, check_refused, connect, connect_with, connected, http_server, options,
};
use crate::{Fixture, KEEP, Node, contract, key, room, sleep_ms};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_cluster::NodeId;
use stentor_cluster::engine::{
    ConnectOptions, Engine, EngineError, EventReceiver, Limits, Reply, Request, Version,
};
use stentor_hub::{Epoch, HistoryLimits, Position};

impl Fixture for NatsServer {
    const DELIVERS_IN_ORDER: bool = false;

    async fn connect(&self, node: NodeId, limits: Limits) -> (Arc<dyn Engine>, EventReceiver) {
        attach(node, &self.url(), ConnectOptions { limits, ..options() }).await
    }

    async fn forget(&self) {
        self.stop();
        self.wipe();
        self.run();
    }
}

impl Server for NatsServer {
    const READING_BEGINS_EPOCHS: bool = false;
    const PUBLISHES_WHEN_SUBSCRIBED: bool = true;
    const SILENCE: &str = "nothing arrived for 6 s";

    fn port(&self) -> u16 {
        self.port
    }

    fn url_at(&self, port: u16) -> String {
        format!("nats://127.0.0.1:{port}")
    }

    fn stop(&self) {
        self.stop();
    }

    fn run(&self) {
        self.run();
    }
}

contract!(NatsServer::start(""));

contract!(NatsServer::start("") =>
    servers::a_server_that_starts_again_begins_another_epoch_also_with_its_data,
    servers::messages_published_during_an_outage_wait_within_bounds,
    servers::a_connection_that_is_silent_in_one_direction_is_replaced,
    servers::a_node_may_wait_for_the_server,
);

/// Sends a command directly to a server.
fn send(server: &NatsServer, command: &str) {
    let mut raw = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    write!(raw, "CONNECT {{\"headers\":true}}\r\n{command}\r\nPING\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"PONG\r\n") {
        let mut byte = [0];
        raw.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
}

/// A number in the server's description of a stream.
fn number(server: &NatsServer, stream: &str, name: &str) -> u64 {
    let mut raw = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    write!(raw, "CONNECT {{}}\r\nSUB info 1\r\nPUB $JS.API.STREAM.INFO.{stream} info 0\r\n\r\n").unwrap();
    let mut answer = String::new();
    loop {
        let mut byte = [0];
        raw.read_exact(&mut byte).unwrap();
        answer.push(char::from(byte[0]));
        let rest = answer.split_once(&format!("\"{name}\":")).map(|(_, rest)| rest);
        if let Some((number, _)) = rest.and_then(|rest| rest.split_once(',')) {
            return number.parse().unwrap();
        }
    }
}

/// Number of messages in a stream.
fn messages(server: &NatsServer, stream: &str) -> u64 {
    number(server, stream, "messages")
}

#[tokio::test]
async fn a_claim_that_is_given_up_leaves_nothing() {
    let Some(server) = NatsServer::start("") else { return };
    let node = Node::connect(&server).await;
    for (name, ttl_ms) in [("a", 60_000), ("b", 60_000), ("a", 0), ("c", 0)] {
        let ttl = Duration::from_millis(ttl_ms);
        node.request(Request::Claim { name: name.into(), owner: node.id, ttl }).await;
    }
    // The server doesn't answer a deletion, so the test reads the number of messages.
    while messages(&server, "test_claims") > 1 {
        sleep_ms(10).await;
    }
    let ttl = Duration::from_secs(60);
    let claimed = node.request(Request::Claim { name: "a".into(), owner: node.id, ttl }).await;
    assert_eq!(claimed, Reply::Owner(Some(node.id)));
    assert_eq!(messages(&server, "test_claims"), 2);
}

/// Advances the node's clock. Each second, a request shows the node that its connection is alive.
async fn advance(node: &Node, seconds: u64) {
    for _ in 0..seconds {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::time::resume();
        load(node, &key("some")).await;
    }
}

#[tokio::test]
async fn a_feed_without_a_document_leaves_nothing() {
    let Some(server) = NatsServer::start("") else { return };
    let node = Node::connect(&server).await;
    let some = key("some");
    let lease = acquire(&node, &some, 0, LONG).await.unwrap();
    assert_eq!(store(&node, &some, lease, version(1, "", Some("base"))).await, Ok(Reply::Done));
    release(&node, &some, lease).await;
    let log = load(&node, &some).await;
    // The engine removes earlier messages without waiting for an answer.
    while messages(&server, "test_feeds") > 3 {
        load(&node, &some).await;
    }
    let mut none = Vec::new();
    for i in 0..100 {
        let key = key(&format!("none/{i}"));
        none.push((acquire(&node, &key, 0, LONG).await.unwrap(), key));
    }
    let held = none.split_off(99);
    for (lease, key) in &none {
        release(&node, key, *lease).await;
    }
    while messages(&server, "test_feeds") > 103 {
        load(&node, &some).await;
    }
    advance(&node, 9).await;
    assert_eq!(messages(&server, "test_feeds"), 103, "their terms stay for ten seconds");
    let (lease, again) = none.pop().unwrap();
    let next = acquire(&node, &again, 0, LONG).await.unwrap();
    assert!(next.term > lease.term);
    advance(&node, 3).await;
    // Messages that stay: the lease that was acquired again, the held lease, and the log.
    while messages(&server, "test_feeds") > 5 {
        load(&node, &some).await;
    }
    assert_eq!(load(&node, &some).await, log);
    for (lease, key) in held.iter().chain([&(next, again)]) {
        assert!(renew(&node, key, *lease, LONG).await, "{key}");
    }
}

#[tokio::test]
async fn a_stream_that_is_gone_is_made_again_by_one_new_connection() {
    let Some(server) = NatsServer::start("") else { return };
    let mut node = Node::connect(&server).await;
    node.append(&room("r"), "x").await;
    send(&server, "PUB $JS.API.STREAM.DELETE.test_rooms 0\r\n");
    sleep_ms(100).await;
    let appends: Vec<_> =
        (0..20).map(|i| node.engine.request(append(&room(&format!("r{i}")), "x", None))).collect();
    for append in appends {
        assert!(matches!(append.await, Err(EngineError::Unavailable(_))));
    }
    node.reconnected().await;
    sleep_ms(1_000).await;
    node.join(&room("r")).await;
    node.append(&room("r"), "x").await;
    assert_eq!(node.message().await.2, "x");
}

#[tokio::test]
async fn the_holder_of_a_lease_proves_that_a_log_is_whole_after_a_restart() {
    let Some(server) = NatsServer::start("") else { return };
    let (mut node, mut other) = (Node::connect(&server).await, Node::connect(&server).await);
    let (k, ttl) = (key("feed"), Duration::from_secs(60));
    let acquire = Request::AcquireLease { key: k.clone(), term_seen: 0, ttl };
    let Reply::Lease(Some(lease)) = node.request(acquire).await else { panic!() };
    let position = Position { epoch: Epoch(7), offset: 1 };
    let version = Version { position, change: "".into(), base: Some("base".into()) };
    node.request(Request::StoreVersion { key: k.clone(), lease, version }).await;
    server.stop();
    server.run();
    other.reconnected().await;
    node.reconnected().await;
    let load = || Request::LoadFeed { key: k.clone() };
    assert_eq!(other.request(load()).await, Reply::Feed(None), "a later version may be lost");
    node.request(Request::RenewLease { key: k.clone(), lease, ttl }).await;
    let Reply::Feed(Some(log)) = other.request(load()).await else { panic!() };
    assert_eq!((log.base_position, log.base), (position, "base".into()));
}

#[tokio::test]
async fn a_version_renews_the_lease() {
    let Some(server) = NatsServer::start("") else { return };
    let (a, b) = (Node::connect(&server).await, Node::connect(&server).await);
    let (k, stored) = (key("feed/1"), || number(&server, "test_feeds", "last_seq"));
    let lease = acquire(&a, &k, 0, LONG).await.unwrap();
    let before = stored();
    assert!(renew(&a, &k, lease, LONG).await);
    assert_eq!(stored(), before + 1);
    store(&a, &k, lease, version(1, "", Some("base"))).await.unwrap();
    let before = stored();
    assert!(renew(&a, &k, lease, LONG).await);
    assert_eq!(stored(), before, "a version was stored a moment ago");
    // The lease of this feed would have ended without the second version.
    let (k, ttl) = (key("feed/2"), Duration::from_secs(2));
    let lease = acquire(&a, &k, 0, ttl).await.unwrap();
    store(&a, &k, lease, version(1, "", Some("base"))).await.unwrap();
    sleep_ms(1_200).await;
    store(&a, &k, lease, version(2, "change", None)).await.unwrap();
    sleep_ms(1_200).await;
    assert_eq!(acquire(&b, &k, 0, ttl).await, None);
    store(&a, &k, lease, version(3, "change", None)).await.unwrap();
}

#[tokio::test]
async fn a_lease_is_taken_over_by_a_node_that_missed_its_last_renewal() {
    let Some(server) = NatsServer::start("") else { return };
    let proxy = Proxy::start(server.port);
    let holder = Node::connect(&server).await;
    let mut other = connected(&server.url_at(proxy.port), options()).await;
    let (k, ttl) = (key("feed"), Duration::from_millis(500));
    let acquire = || Request::AcquireLease { key: k.clone(), term_seen: 0, ttl };
    let renewed = |lease| Request::RenewLease { key: k.clone(), lease, ttl: Duration::from_secs(1) };
    other.follow(&k).await;
    let Reply::Lease(Some(lease)) = holder.request(acquire()).await else { panic!() };
    assert_eq!(holder.request(renewed(lease)).await, Reply::Lease(Some(lease)));
    // The follower has received all renewals up to here.
    holder.engine.publish(k.clone().into(), "end".into()).unwrap();
    assert_eq!(other.message().await.2, "end");
    proxy.swallows[1].store(true, std::sync::atomic::Ordering::Relaxed);
    sleep_ms(200).await;
    assert_eq!(holder.request(renewed(lease)).await, Reply::Lease(Some(lease)));
    drop(holder);
    other.reconnected().await;
    assert_eq!(other.request(acquire()).await, Reply::Lease(None), "it may be alive");
    sleep_ms(1_200).await;
    assert!(matches!(other.request(acquire()).await, Reply::Lease(Some(_))));
}

#[tokio::test]
async fn a_holder_that_another_node_has_replaced_is_fenced_by_the_server() {
    let Some(server) = NatsServer::start("") else { return };
    let node = Node::connect(&server).await;
    let (k, ttl) = (key("feed"), Duration::from_secs(60));
    let acquire = Request::AcquireLease { key: k.clone(), term_seen: 0, ttl };
    let Reply::Lease(Some(lease)) = node.request(acquire).await else { panic!() };
    // By its own clock, the node holds the lease for a minute. Another node, whose clock is ahead, acquires it.
    let meta = r#"{"g":"","t":99999999999999,"k":5,"x":60000,"b":[],"a":0,"p":[],"c":0,"z":0}"#;
    let headers = format!("NATS/1.0\r\nStentor: {meta}\r\n\r\n");
    let length = headers.len();
    send(&server, &format!("HPUB test.feed.feed {length} {length}\r\n{headers}"));
    sleep_ms(100).await;
    let version = Version {
        position: Position { epoch: Epoch(7), offset: 1 },
        change: "".into(),
        base: Some("base".into()),
    };
    let stored = node.try_request(Request::StoreVersion { key: k.clone(), lease, version }).await;
    assert_eq!(stored, Err(EngineError::Fenced));
    assert_eq!(node.request(Request::RenewLease { key: k.clone(), lease, ttl }).await, Reply::Lease(None));
}

#[tokio::test]
async fn interest_is_established_again_after_a_restart() {
    let Some(server) = NatsServer::start("") else { return };
    let mut node = Node::connect(&server).await;
    let rooms = node.join_many().await;
    server.stop();
    server.run();
    assert_eq!(&*node.reconnected().await, "the connection was closed");
    for r in &rooms {
        node.receives(r.name()).await;
    }
}

#[tokio::test]
async fn a_server_that_wont_do_is_an_error() {
    let users = "authorization { user: user, password: right }";
    let (Some(server), Some(other)) = (NatsServer::start(users), NatsServer::start_without_jetstream())
    else {
        return;
    };
    let (port, http) = (server.port, http_server());
    check_refused([
        (format!("nats://127.0.0.1:{port}"), "refused the credentials"),
        (format!("nats://user:wrong@127.0.0.1:{port}"), "refused the credentials"),
        (format!("nats://wrong@127.0.0.1:{port}"), "refused the credentials"),
        (format!("nats://user:wrong@127.0.0.1:{http}"), "doesn't speak NATS's protocol"),
        ("nats://user:wrong@127.0.0.1:1".into(), "refused"),
        (format!("tls://user:right@127.0.0.1:{port}"), "TLS"),
        (other.url(), "JetStream can't be used"),
    ])
    .await;
    // The node uses the first server of the list that accepts it.
    let url = format!("nats://user:right@127.0.0.1:1,127.0.0.1:{port}");
    assert!(connect(&url).await.is_ok());
}

#[tokio::test]
async fn nodes_that_start_at_once_share_their_streams() {
    let Some(server) = NatsServer::start("") else { return };
    let mut starting = tokio::task::JoinSet::new();
    for prefix in 0..10 {
        for _ in 0..8 {
            let (url, prefix) = (server.url(), format!("test{prefix}:"));
            let options = ConnectOptions { prefix, ..options() };
            starting.spawn(async move { connect_with(&url, options).await.map(drop) });
        }
    }
    while let Some(connected) = starting.join_next().await {
        assert_eq!(connected.unwrap(), Ok(()));
    }
}

#[tokio::test]
async fn a_foreign_stream_with_the_same_subjects_is_an_error() {
    let Some(server) = NatsServer::start("") else { return };
    let config = r#"{"name":"other","subjects":["test.claim.>"],"storage":"memory"}"#;
    send(&server, &format!("PUB $JS.API.STREAM.CREATE.other {}\r\n{config}", config.len()));
    check_refused([(server.url(), "subjects overlap with an existing stream")]).await;
}

#[tokio::test]
async fn foreign_messages_arrive_without_content() {
    let Some(server) = NatsServer::start("") else { return };
    let mut node = Node::connect(&server).await;
    node.join(&room("r")).await;
    for header in ["", "Stentor: ?\r\n"] {
        let header = format!("NATS/1.0\r\n{header}\r\n");
        send(&server, &format!("HPUB test.live.room./.r {} {}\r\n{header}?", header.len(), header.len() + 1));
        assert_eq!(node.message().await, (room("r").into(), None, "".into()), "{header}");
    }
}

#[tokio::test]
async fn a_full_server_refuses() {
    let Some(server) = NatsServer::start("jetstream { max_file_store: 100K }") else { return };
    let node = Node::connect(&server).await;
    let mut appended = Ok(Reply::Done);
    for _ in 0..100 {
        if appended.is_ok() {
            appended = node.try_request(append(&room("r"), vec![b'x'; 10_000], None)).await;
        }
    }
    let Err(EngineError::Refused(reason)) = appended else { panic!("{appended:?}") };
    assert!(reason.starts_with("JetStream: "), "{reason}");
}

/// JetStream can't update a stream on the condition that it is unchanged.
#[tokio::test]
async fn limits_that_another_node_has_lowered_are_raised_again() {
    let Some(server) = NatsServer::start("") else { return };
    let node = Node::connect(&server).await;
    let messages_max = || number(&server, "test_rooms", "max_msgs_per_subject");
    let limits = HistoryLimits { publications_max: 1_000, ..KEEP };
    node.append_with(&room("r"), "x", None, limits).await;
    let raised = messages_max();
    assert!(raised >= 1_000, "{raised}");
    // The other node has read the limits before this one has raised them.
    let stale = serde_json::json!({
        "name": "test_rooms",
        "subjects": ["test.room.>"],
        "republish": { "src": "test.room.>", "dest": "test.live.room.>" },
        "discard": "old",
        "storage": "file",
        "num_replicas": 1,
        "max_msgs_per_subject": 256,
    })
    .to_string();
    send(&server, &format!("PUB $JS.API.STREAM.UPDATE.test_rooms answer {}\r\n{stale}", stale.len()));
    let deadline = Instant::now() + Duration::from_secs(30);
    while messages_max() != 256 {
        assert!(Instant::now() < deadline, "the stream can't be updated");
        sleep_ms(20).await;
    }
    // A room with lower limits restores those of the others.
    while messages_max() != raised {
        assert!(Instant::now() < deadline, "{}", messages_max());
        node.append(&room("other"), "x").await;
        sleep_ms(20).await;
    }
}

#[tokio::test]
async fn messages_do_not_wait_until_limits_are_read_again() {
    let Some(server) = NatsServer::start("") else { return };
    let proxy = Proxy::start(server.port);
    let node = connected(&server.url_at(proxy.port), options()).await;
    let limits = HistoryLimits { publications_max: 1_000, ..KEEP };
    node.append_with(&room("r"), "x", None, limits).await;
    // A subscriber that never answers receives the questions about streams from now on.
    let mut silent = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    write!(silent, "CONNECT {{}}\r\nSUB $JS.XPI.> 1\r\nPING\r\n").unwrap();
    let (sender, mut questions) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(silent).lines().map_while(Result::ok);
        lines
            .filter(|line| line.starts_with("PONG") || line.starts_with("MSG"))
            .all(|line| sender.send(line).is_ok())
    });
    assert_eq!(questions.recv().await.unwrap(), "PONG");
    *proxy.replaced.lock().unwrap() = Some(["$JS.API.STREAM.INFO.", "$JS.XPI.STREAM.INFO."]);
    for _ in 0..2 {
        advance(&node, 3).await;
        for name in ["r", "other"] {
            node.append_with(&room(name), "x", None, limits).await;
        }
        assert!(questions.recv().await.unwrap().contains("STREAM.INFO.test_rooms"));
    }
    // A room that needs higher limits waits for them.
    let higher = HistoryLimits { publications_max: 2_000, ..KEEP };
    let append =
        Request::Append { room: room("higher"), payload: "x".into(), idempotency_key: None, limits: higher };
    let waiting = node.engine.request(append.clone());
    questions.recv().await.unwrap();
    advance(&node, 11).await;
    assert!(matches!(waiting.await, Err(EngineError::Unavailable(_))));
    *proxy.replaced.lock().unwrap() = None;
    node.request(append).await;
    assert!(number(&server, "test_rooms", "max_msgs_per_subject") >= 2_000);
}

#[tokio::test]
async fn a_read_of_a_long_history_is_bounded() {
    let Some(server) = NatsServer::start("") else { return };
    let node = Node::connect(&server).await;
    let limits = HistoryLimits { publications_max: 1_000_000, ..KEEP };
    let append = |i: usize| Request::Append {
        room: room("r"),
        payload: i.to_string().into(),
        idempotency_key: None,
        limits,
    };
    let mut appends = std::collections::VecDeque::new();
    for i in 1..=4_200 {
        appends.push_back(node.engine.request(append(i)));
        if appends.len() == 100 {
            appends.pop_front().unwrap().await.unwrap();
        }
    }
    for append in appends {
        append.await.unwrap();
    }
    let start = Position { offset: 0, ..node.head(&room("r")).await.unwrap() };
    let (head, messages, truncated) = node.history(&room("r"), start, 10_000).await;
    assert_eq!((head.unwrap().offset, messages.len(), truncated), (4_200, 4_096, true));
    assert_eq!((&messages[0], messages.last().unwrap()), (&"105".into(), &"4200".into()));
    let (_, messages, truncated) = node.history(&room("r"), Position { offset: 200, ..start }, 2).await;
    assert_eq!((messages, truncated), (vec!["201".into(), "202".into()], false));
}
