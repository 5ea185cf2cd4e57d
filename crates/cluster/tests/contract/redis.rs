//! The engine on Redis.

use crate::proxy::Proxy;
use crate::redis_server::RedisServer;
use crate::{Fixture, KEEP, Node, START, contract, room, sleep_ms};
use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use stentor_cluster::NodeId;
use stentor_cluster::engine::redis::Redis;
use stentor_cluster::engine::{
    Channel, ConnectOptions, Engine, EngineError, Event, EventReceiver, Limits, PAYLOAD_BYTES_MAX, Reply,
    Request, SILENCE_MAX, Waiting,
};
use stentor_edge::Ledger;
use stentor_hub::Position;

pub(crate) fn options() -> ConnectOptions {
    let limits = Limits { request_timeout: Duration::from_secs(10), ..Limits::default() };
    let ledger = Arc::new(Ledger::new(usize::MAX));
    ConnectOptions {
        prefix: "test:".into(),
        wait: false,
        ca_file: None,
        credentials_file: None,
        identity: None,
        limits,
        ledger,
    }
}

pub(crate) async fn connect(url: &str) -> Result<Node, String> {
    connect_with(url, options()).await
}

pub(crate) async fn connect_with(url: &str, options: ConnectOptions) -> Result<Node, String> {
    let id = NodeId::draw();
    let (engine, events) = Redis::connect(id, url, &options).await.map_err(|error| error.to_string())?;
    Ok(Node { id, engine: Arc::new(engine), events })
}

impl Fixture for RedisServer {
    async fn connect(&self, node: NodeId, limits: Limits) -> (Arc<dyn Engine>, EventReceiver) {
        let options = ConnectOptions { limits, ..options() };
        let (engine, events) = Redis::connect(node, &self.url(), &options).await.unwrap();
        (Arc::new(engine), events)
    }

    async fn forget(&self) {
        self.stop();
        self.run();
    }
}

contract!(RedisServer::start(&[]));

impl Node {
    /// Waits until the connection is lost, and why; then until it is back.
    pub(crate) async fn reconnected(&mut self) -> Arc<str> {
        loop {
            if let Event::Disconnected { reason } = self.event().await {
                assert_eq!(self.event().await, Event::Connected);
                return reason;
            }
        }
    }

    pub(crate) async fn receives(&mut self, name: &str) {
        let key: Arc<str> = fastrand::u64(..).to_string().into();
        let append = || Request::Append {
            room: room(name),
            payload: "again".into(),
            idempotency_key: Some(key.clone()),
            limits: KEEP,
        };
        // Read after the subscription: what is appended before that doesn't come as a message.
        let history = || Request::History { room: room(name), since: START, messages_max: 0 };
        while self.try_request(history()).await.is_err() {}
        // A request on a connection that was cut has an unknown outcome.
        while let Err(error) = self.try_request(append()).await {
            assert!(matches!(error, EngineError::Unavailable(_)), "{error}");
        }
        assert_eq!(self.message().await.2, "again");
    }
}

#[tokio::test]
async fn a_server_that_starts_again_begins_another_epoch_also_with_its_data() {
    let Some(server) = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]) else {
        return;
    };
    let mut node = Node::connect(&server).await;
    let r = room("r");
    node.join(&r).await;
    let old = node.append_with(&r, "old", Some("key"), KEEP).await;
    assert_eq!(node.message().await.2, "old");
    server.stop();
    server.run();
    node.reconnected().await;
    // Reading alone begins the epoch: a head never goes back within one.
    let head = node.head(&r).await.unwrap();
    assert!(head.epoch != old.epoch && head.offset == 0, "{head:?}");
    assert_eq!(node.history(&r, old, 10).await, (Some(head), vec![], true));
    assert_eq!(node.append_with(&r, "retried", Some("key"), KEEP).await, old, "the data is kept");
    assert_eq!(node.append(&r, "new").await, Position { offset: 1, ..head });
    assert_eq!(node.message().await.2, "new");
}

#[tokio::test]
async fn what_is_published_during_an_outage_waits_within_bounds() {
    let Some(server) = RedisServer::start(&[]) else { return };
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
    let waiting_bytes = waiting.messages_bytes + waiting.requests_bytes;
    assert!(waiting_bytes > 100 && ledger.has_room((1 << 20) - waiting_bytes), "{waiting:?}");
    assert!(!ledger.has_room((1 << 20) - waiting_bytes + 1), "it is charged");
    let asked = asked.await;
    assert_eq!(node.engine.waiting().requests_bytes, 0);
    assert!(matches!(asked, Err(EngineError::Unavailable(_))), "{asked:?}");
    server.run();
    assert_eq!(node.event().await, Event::Connected);
    // The connection that publishes may be back first: then some are published before the node is subscribed again.
    while node.engine.publish(room("r").into(), "end".into()).is_err() {
        sleep_ms(10).await;
    }
    while node.message().await.2 != "end" {}
    // The answer to the last batch follows its messages.
    while node.engine.waiting() != Waiting::default() {
        sleep_ms(1).await;
    }
    assert!(ledger.has_room(1 << 20));
}

#[tokio::test]
async fn interest_is_established_again_after_the_connection_was_killed() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let mut node = Node::connect(&server).await;
    let rooms: Vec<_> = (0..2_500).map(|i| room(&format!("r{i}"))).collect();
    for r in &rooms {
        node.engine.set_interest(r.clone().into(), true);
    }
    node.join(rooms.last().unwrap()).await;
    for kind in ["pubsub", "normal"] {
        server.command(&["CLIENT", "KILL", "TYPE", kind]);
        if kind == "pubsub" {
            assert_eq!(&*node.reconnected().await, "the connection was closed");
        }
        for r in rooms.iter().step_by(500) {
            node.receives(r.name()).await;
        }
    }
}

#[tokio::test]
async fn a_connection_that_is_silent_in_one_direction_is_replaced() {
    let Some(server) = RedisServer::start(&[]) else { return };
    for way in [0, 1] {
        let proxy = Proxy::start(server.port);
        let mut node = connect(&format!("redis://127.0.0.1:{}", proxy.port)).await.unwrap();
        assert_eq!(node.event().await, Event::Connected);
        node.join(&room("r")).await;
        let cut_at = Instant::now();
        proxy.swallows[way].store(true, Ordering::Relaxed);
        node.reconnected().await;
        let took = cut_at.elapsed();
        let most = SILENCE_MAX + Duration::from_secs(3);
        assert!(took > Duration::from_secs(2) && took < most, "{took:?}");
        node.receives("r").await;
    }
}

#[tokio::test]
async fn interest_may_take_longer_to_establish_than_a_connection_may_be_silent() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let proxy = Proxy::start(server.port);
    let limits = Limits { request_timeout: 3 * SILENCE_MAX, ..Limits::default() };
    let url = format!("redis://127.0.0.1:{}", proxy.port);
    let mut node = connect_with(&url, ConnectOptions { limits, ..options() }).await.unwrap();
    assert_eq!(node.event().await, Event::Connected);
    proxy.delay_ms.store(30, Ordering::Relaxed);
    let started = Instant::now();
    for i in 0..20_000 {
        node.engine.set_interest(room(&format!("r{i}")).into(), true);
    }
    for i in [0, 10_000, 19_999] {
        node.join(&room(&format!("r{i}"))).await;
    }
    assert!(started.elapsed() > SILENCE_MAX, "{:?}", started.elapsed());
    node.publish(room("r0"), b"end");
    assert_eq!(node.message().await.2, "end");
}

#[tokio::test]
async fn a_server_that_wont_do_is_an_error() {
    let Some(server) = RedisServer::start(&["--requirepass", "right"]) else { return };
    let port = server.port;
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let http = other.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in other.incoming() {
            let _ = stream.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    for (url, reason) in [
        (format!("redis://127.0.0.1:{port}"), "refused the credentials"),
        (format!("redis://:wrong@127.0.0.1:{port}"), "refused the credentials"),
        (format!("redis://user:right@127.0.0.1:{port}"), "refused the credentials"),
        (format!("redis://:wrong@127.0.0.1:{http}"), "doesn't speak Redis's protocol"),
        ("redis://:wrong@127.0.0.1:1".into(), "refused"),
        (format!("rediss://:right@127.0.0.1:{port}"), "no connection within 5 s"),
    ] {
        let error = connect(&url).await.err().unwrap();
        assert!(error.contains(reason) && !error.contains("wrong"), "{url}: {error}");
    }
    assert!(connect(&format!("redis://:right@127.0.0.1:{port}")).await.is_ok());
    server.command(&["-a", "right", "REPLICAOF", "127.0.0.1", "1"]);
    let error = connect(&format!("redis://:right@127.0.0.1:{port}")).await.err().unwrap();
    assert!(error.contains("isn't a primary"), "{error}");
}

#[tokio::test]
async fn a_node_may_wait_for_the_server() {
    let Some(server) = RedisServer::start(&[]) else { return };
    server.stop();
    let mut node = connect_with(&server.url(), ConnectOptions { wait: true, ..options() }).await.unwrap();
    node.engine.set_interest(room("r").into(), true);
    server.run();
    assert_eq!(node.event().await, Event::Connected);
    node.receives("r").await;
}

#[tokio::test]
async fn a_full_server_refuses() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let node = Node::connect(&server).await;
    let r = room("r");
    let before = node.append(&r, "x").await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let append =
        Request::Append { room: r.clone(), payload: "y".into(), idempotency_key: None, limits: KEEP };
    let refused = node.try_request(append).await;
    assert_eq!(refused, Err(EngineError::Refused("Redis is out of memory (maxmemory)".into())));
    assert_eq!(node.head(&r).await, Some(before), "it had no effect");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(node.append(&r, "z").await.offset, 2);
}

#[tokio::test]
async fn a_room_has_an_epoch_before_its_first_message_once_it_is_read() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let node = Node::connect(&server).await;
    let r = room("r");
    let (head, messages, _) = node.history(&r, START, 10).await;
    let head = head.unwrap();
    assert_eq!((head.offset, messages.len()), (0, 0));
    assert_eq!((node.head(&r).await, node.history(&r, START, 10).await.0), (Some(head), Some(head)));
    assert_eq!(node.append(&r, "x").await, Position { offset: 1, ..head });
    assert_eq!(
        node.history(&r, head, 10).await,
        (Some(Position { offset: 1, ..head }), vec!["x".into()], false)
    );
    // It isn't kept for long, and a server without memory for it answers as well.
    let empty = room("empty");
    node.history(&empty, START, 10).await;
    let ttl = server.command(&["PTTL", "test:{room:1:/empty}:head"]);
    assert!((1..=600_000).contains(&ttl.trim().parse::<u64>().unwrap()), "{ttl}");
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(node.history(&room("third"), START, 10).await, (None, vec![], true));
}

#[tokio::test]
async fn a_server_that_takes_small_messages_only_wont_do() {
    let Some(server) = RedisServer::start(&["--proto-max-bulk-len", "16mb"]) else { return };
    let error = connect(&server.url()).await.err().unwrap();
    assert!(error.contains("proto-max-bulk-len is 16777216"), "{error}");
    server.command(&["CONFIG", "SET", "proto-max-bulk-len", "17mb"]);
    let mut node = connect(&server.url()).await.unwrap();
    assert_eq!(node.event().await, Event::Connected);
    node.engine.publish(Channel::Nodes, vec![b'x'; PAYLOAD_BYTES_MAX].into()).unwrap();
    assert_eq!(node.message().await.2.len(), PAYLOAD_BYTES_MAX);
}

#[tokio::test]
async fn scripts_are_loaded_again_after_they_were_flushed() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let node = Node::connect(&server).await;
    for offset in 1..4 {
        server.command(&["SCRIPT", "FLUSH"]);
        assert_eq!(node.append(&room("r"), "x").await.offset, offset);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_keep_their_order_on_a_server_without_the_scripts() {
    let Some(server) = RedisServer::start(&[]) else { return };
    for round in 0..20 {
        server.command(&["SCRIPT", "FLUSH"]);
        let node = Node::connect(&server).await;
        let append = |_| Request::Append {
            room: room(&round.to_string()),
            payload: "x".into(),
            idempotency_key: None,
            limits: KEEP,
        };
        let appends: Vec<_> = (0..100).map(append).map(|append| node.engine.request(append)).collect();
        for (offset, append) in (1..).zip(appends) {
            let Ok(Reply::Position(position)) = append.await else { panic!() };
            assert_eq!(position.offset, offset);
        }
    }
}
