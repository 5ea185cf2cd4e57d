//! The engine on NATS.

use crate::nats_server::NatsServer;
use crate::proxy::Proxy;
use crate::{Fixture, KEEP, Node, contract, key, room, sleep_ms};
use bytes::Bytes;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_cluster::NodeId;
use stentor_cluster::engine::nats::Nats;
use stentor_cluster::engine::{
    ConnectOptions, Engine, EngineError, Event, EventReceiver, Limits, Reply, Request, SILENCE_MAX, Version,
    Waiting,
};
use stentor_edge::Ledger;
use stentor_hub::{Epoch, HistoryLimits, Position};

pub(crate) fn options() -> ConnectOptions {
    let limits = Limits { request_timeout: Duration::from_secs(10), ..Limits::default() };
    let ledger = Arc::new(Ledger::new(usize::MAX));
    ConnectOptions {
        prefix: "test:".into(),
        wait: false,
        ca_file: None,
        identity: None,
        credentials_file: None,
        limits,
        ledger,
    }
}

pub(crate) async fn connect(url: &str) -> Result<Node, String> {
    connect_with(url, options()).await
}

pub(crate) async fn connect_with(url: &str, options: ConnectOptions) -> Result<Node, String> {
    let id = NodeId::draw();
    let (engine, events) = Nats::connect(id, url, &options).await.map_err(|error| error.to_string())?;
    Ok(Node { id, engine: Arc::new(engine), events })
}

impl Fixture for NatsServer {
    const DELIVERS_IN_ORDER: bool = false;

    async fn connect(&self, node: NodeId, limits: Limits) -> (Arc<dyn Engine>, EventReceiver) {
        let options = ConnectOptions { limits, ..options() };
        let (engine, events) = Nats::connect(node, &self.url(), &options).await.unwrap();
        (Arc::new(engine), events)
    }

    async fn forget(&self) {
        self.stop();
        self.wipe();
        self.run();
    }
}

contract!(NatsServer::start(""));

/// Sends a command to a server, past the engine.
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

#[tokio::test]
async fn a_stream_that_is_gone_is_made_again_by_one_new_connection() {
    let Some(server) = NatsServer::start("") else { return };
    let mut node = Node::connect(&server).await;
    node.append(&room("r"), "x").await;
    send(&server, "PUB $JS.API.STREAM.DELETE.test_rooms 0\r\n");
    sleep_ms(100).await;
    let appends: Vec<_> = (0..20)
        .map(|i| Request::Append {
            room: room(&format!("r{i}")),
            payload: "x".into(),
            idempotency_key: None,
            limits: KEEP,
        })
        .map(|append| node.engine.request(append))
        .collect();
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
async fn a_server_that_starts_again_begins_another_epoch_also_with_its_data() {
    let Some(server) = NatsServer::start("") else { return };
    let mut node = Node::connect(&server).await;
    let r = room("r");
    node.join(&r).await;
    let old = node.append_with(&r, "old", Some("key"), KEEP).await;
    assert_eq!(node.message().await.2, "old");
    server.stop();
    server.run();
    node.reconnected().await;
    // What is stored can be read; what follows it may follow something that was lost.
    assert_eq!(node.head(&r).await, Some(old));
    assert_eq!(node.append_with(&r, "retried", Some("key"), KEEP).await, old, "the data is kept");
    let new = node.append(&r, "new").await;
    assert!(new.epoch != old.epoch && new.offset == 1, "{new:?}");
    assert_eq!(node.message().await.2, "new");
    assert_eq!(node.history(&r, old, 10).await, (Some(new), vec!["new".into()], true));
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
async fn a_lease_is_taken_over_by_a_node_that_missed_its_last_renewal() {
    let Some(server) = NatsServer::start("") else { return };
    let proxy = Proxy::start(server.port);
    let holder = Node::connect(&server).await;
    let mut other = connect(&format!("nats://127.0.0.1:{}", proxy.port)).await.unwrap();
    assert_eq!(other.event().await, Event::Connected);
    let (k, ttl) = (key("feed"), Duration::from_millis(500));
    let acquire = || Request::AcquireLease { key: k.clone(), term_seen: 0, ttl };
    let renewed = |lease| Request::RenewLease { key: k.clone(), lease, ttl: Duration::from_secs(1) };
    other.follow(&k).await;
    let Reply::Lease(Some(lease)) = holder.request(acquire()).await else { panic!() };
    assert_eq!(holder.request(renewed(lease)).await, Reply::Lease(Some(lease)));
    // The follower has received what was stored until here.
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
    // By its own clock, it holds the lease for a minute. A node with another clock acquires it.
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
async fn what_is_published_during_an_outage_waits_within_bounds() {
    let Some(server) = NatsServer::start("") else { return };
    let limits =
        Limits { outgoing_messages_max: 3, request_timeout: Duration::from_millis(300), ..Limits::default() };
    let ledger = Arc::new(Ledger::new(1 << 20));
    let options = ConnectOptions { limits, ledger: ledger.clone(), ..options() };
    let mut node = connect_with(&server.url(), options).await.unwrap();
    assert_eq!(node.event().await, Event::Connected);
    node.join(&room("r")).await;
    assert_eq!(node.engine.waiting(), Waiting::default());
    assert!(ledger.has_room(1 << 20));
    server.stop();
    let Event::Disconnected { reason } = node.event().await else { panic!() };
    assert_eq!(&*reason, "the connection was closed");
    let published: Vec<_> =
        (0..5).map(|i| node.engine.publish(room("r").into(), vec![b'0' + i].into())).collect();
    assert_eq!(published, [Ok(()), Ok(()), Ok(()), Err(EngineError::Full), Err(EngineError::Full)]);
    let asked = node.engine.request(Request::Heads { rooms: vec![room("r")] });
    let waiting = node.engine.waiting();
    assert_eq!((waiting.messages, waiting.requests), (3, 1));
    assert!(!ledger.has_room(1 << 20), "it is charged");
    let asked = asked.await;
    assert!(matches!(asked, Err(EngineError::Unavailable(_))), "{asked:?}");
    server.run();
    assert_eq!(node.event().await, Event::Connected);
    // What waited is published after the node is subscribed again.
    for i in 0..3 {
        assert_eq!(node.message().await.2, Bytes::from(vec![b'0' + i]));
    }
    node.receives("r").await;
    assert_eq!(node.engine.waiting(), Waiting::default());
    assert!(ledger.has_room(1 << 20));
}

#[tokio::test]
async fn interest_is_established_again_after_a_restart() {
    let Some(server) = NatsServer::start("") else { return };
    let mut node = Node::connect(&server).await;
    let rooms: Vec<_> = (0..2_500).map(|i| room(&format!("r{i}"))).collect();
    for r in &rooms {
        node.engine.set_interest(r.clone().into(), true);
    }
    node.join(rooms.last().unwrap()).await;
    server.stop();
    server.run();
    assert_eq!(&*node.reconnected().await, "the connection was closed");
    for r in rooms.iter().step_by(500) {
        node.receives(r.name()).await;
    }
}

#[tokio::test]
async fn a_connection_that_is_silent_in_one_direction_is_replaced() {
    let Some(server) = NatsServer::start("") else { return };
    for way in [0, 1] {
        let proxy = Proxy::start(server.port);
        let mut node = connect(&format!("nats://127.0.0.1:{}", proxy.port)).await.unwrap();
        assert_eq!(node.event().await, Event::Connected);
        node.join(&room("r")).await;
        let cut_at = Instant::now();
        proxy.swallows[way].store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(&*node.reconnected().await, "nothing arrived for 6 s");
        let took = cut_at.elapsed();
        let most = SILENCE_MAX + Duration::from_secs(3);
        assert!(took > Duration::from_secs(2) && took < most, "{took:?}");
        node.receives("r").await;
    }
}

#[tokio::test]
async fn a_server_that_wont_do_is_an_error() {
    let users = "authorization { user: user, password: right }";
    let (Some(server), Some(other)) = (NatsServer::start(users), NatsServer::start_without_jetstream())
    else {
        return;
    };
    let port = server.port;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let http = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    for (url, reason) in [
        (format!("nats://127.0.0.1:{port}"), "refused the credentials"),
        (format!("nats://user:wrong@127.0.0.1:{port}"), "refused the credentials"),
        (format!("nats://wrong@127.0.0.1:{port}"), "refused the credentials"),
        (format!("nats://user:wrong@127.0.0.1:{http}"), "doesn't speak NATS's protocol"),
        ("nats://user:wrong@127.0.0.1:1".into(), "refused"),
        (format!("tls://user:right@127.0.0.1:{port}"), "TLS"),
        (other.url(), "JetStream can't be used"),
    ] {
        let error = connect(&url).await.err().unwrap();
        assert!(error.contains(reason) && !error.contains("wrong"), "{url}: {error}");
    }
    // The first one that will do.
    let url = format!("nats://user:right@127.0.0.1:1,127.0.0.1:{port}");
    assert!(connect(&url).await.is_ok());
}

#[tokio::test]
async fn a_node_may_wait_for_the_server() {
    let Some(server) = NatsServer::start("") else { return };
    server.stop();
    let mut node = connect_with(&server.url(), ConnectOptions { wait: true, ..options() }).await.unwrap();
    node.engine.set_interest(room("r").into(), true);
    server.run();
    assert_eq!(node.event().await, Event::Connected);
    node.receives("r").await;
}

#[tokio::test]
async fn a_full_server_refuses() {
    let Some(server) = NatsServer::start("jetstream { max_file_store: 100K }") else { return };
    let node = Node::connect(&server).await;
    let append = || Request::Append {
        room: room("r"),
        payload: vec![b'x'; 10_000].into(),
        idempotency_key: None,
        limits: KEEP,
    };
    let mut appended = node.try_request(append()).await;
    let mut count = 0;
    while appended.is_ok() && count < 100 {
        appended = node.try_request(append()).await;
        count += 1;
    }
    let Err(EngineError::Refused(reason)) = appended else { panic!("{appended:?}") };
    assert!(reason.starts_with("JetStream: "), "{reason}");
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
