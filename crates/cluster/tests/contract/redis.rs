//! The engine on Redis.

use crate::feeds::{LONG, acquire, release, renew, store, version};
use crate::proxy::Proxy;
use crate::redis_server::RedisServer;
use crate::servers::{Server, append, attach, check_refused, connect, connected, http_server, options};
use crate::{Fixture, KEEP, Node, START, contract, key, room, sleep_ms};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use stentor_cluster::NodeId;
use stentor_cluster::engine::{
    Channel, ConnectOptions, Engine, EngineError, EventReceiver, Limits, PAYLOAD_BYTES_MAX, Reply, Request,
    SILENCE_MAX,
};
use stentor_hub::{Epoch, HistoryLimits, Position};

impl Fixture for RedisServer {
    async fn connect(&self, node: NodeId, limits: Limits) -> (Arc<dyn Engine>, EventReceiver) {
        attach(node, &self.url(), ConnectOptions { limits, ..options() }).await
    }

    async fn forget(&self) {
        self.stop();
        self.run();
    }
}

impl Server for RedisServer {
    const READING_BEGINS_EPOCHS: bool = true;
    // The connection for publishing may be open before the one for subscribing.
    const PUBLISHES_WHEN_SUBSCRIBED: bool = false;
    const SILENCE: &str = "";

    fn port(&self) -> u16 {
        self.port
    }

    fn url_at(&self, port: u16) -> String {
        format!("redis://127.0.0.1:{port}")
    }

    fn stop(&self) {
        self.stop();
    }

    fn run(&self) {
        self.run();
    }
}

contract!(RedisServer::start(&[]));

contract!(RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]) =>
    servers::a_server_that_starts_again_begins_another_epoch_also_with_its_data,
);

contract!(RedisServer::start(&[]) =>
    servers::messages_published_during_an_outage_wait_within_bounds,
    servers::a_connection_that_is_silent_in_one_direction_is_replaced,
    servers::a_node_may_wait_for_the_server,
);

#[tokio::test]
async fn interest_is_established_again_after_the_connection_was_killed() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let mut node = Node::connect(&server).await;
    let rooms = node.join_many().await;
    for kind in ["pubsub", "normal"] {
        server.command(&["CLIENT", "KILL", "TYPE", kind]);
        if kind == "pubsub" {
            assert_eq!(&*node.reconnected().await, "the connection was closed");
        }
        for r in &rooms {
            node.receives(r.name()).await;
        }
    }
}

#[tokio::test]
async fn interest_may_take_longer_to_establish_than_a_connection_may_be_silent() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let proxy = Proxy::start(server.port);
    let limits = Limits { request_timeout: 3 * SILENCE_MAX, ..Limits::default() };
    let options = ConnectOptions { limits, ..options() };
    let mut node = connected(&server.url_at(proxy.port), options).await;
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
    let (port, http) = (server.port, http_server());
    check_refused([
        (format!("redis://127.0.0.1:{port}"), "refused the credentials"),
        (format!("redis://:wrong@127.0.0.1:{port}"), "refused the credentials"),
        (format!("redis://user:right@127.0.0.1:{port}"), "refused the credentials"),
        (format!("redis://:wrong@127.0.0.1:{http}"), "doesn't speak Redis's protocol"),
        ("redis://:wrong@127.0.0.1:1".into(), "refused"),
        (format!("rediss://:right@127.0.0.1:{port}"), "no connection within 5 s"),
    ])
    .await;
    let url = format!("redis://:right@127.0.0.1:{port}");
    assert!(connect(&url).await.is_ok());
    server.command(&["-a", "right", "REPLICAOF", "127.0.0.1", "1"]);
    check_refused([(url, "isn't a primary")]).await;
}

#[tokio::test]
async fn foreign_messages_arrive_without_content() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let mut node = Node::connect(&server).await;
    node.join(&room("r")).await;
    for (sent, position, payload) in
        [("?", None, ""), ("1:2", None, ""), ("1:2:?", Some(Position { epoch: Epoch(1), offset: 2 }), "?")]
    {
        server.command(&["PUBLISH", "test:{room:1:/r}", sent]);
        assert_eq!(node.message().await, (room("r").into(), position, payload.into()), "{sent}");
    }
}

#[tokio::test]
async fn a_reply_that_is_too_large_ends_the_connection_and_is_reported() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let node = Node::connect(&server).await;
    let fill = "for i = 1, 5 do redis.call('RPUSH', KEYS[1], string.rep('x', 16777216)) end";
    server.command(&["EVAL", fill, "1", "test:{feed:large}:log"]);
    let loaded = node.try_request(Request::LoadFeed { key: key("large") }).await;
    let Err(EngineError::Unavailable(reason)) = loaded else { panic!("{loaded:?}") };
    assert!(reason.contains("larger than anything that a node stores"), "{reason}");
    assert_eq!(node.request(Request::LoadFeed { key: key("other") }).await, Reply::Feed(None));
}

#[tokio::test]
async fn a_long_history_is_read_in_parts() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let node = Node::connect(&server).await;
    let (r, large) = (room("r"), "x".repeat(9 << 20).leak());
    let limits = HistoryLimits { bytes_max: 1 << 30, ..KEEP };
    let first = node.append_with(&r, large, None, limits).await;
    let head = node.append_with(&r, large, None, limits).await;
    for since in [START, first] {
        let (at, messages, _) = node.history(&r, since, 10).await;
        assert_eq!((at, messages.len()), (Some(head), 1), "{since:?}");
    }
}

#[tokio::test]
async fn a_full_server_refuses() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let node = Node::connect(&server).await;
    let r = room("r");
    let before = node.append(&r, "x").await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = node.try_request(append(&r, "y", None)).await;
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
    // An empty room expires within a minute. A server without memory for the room answers as well.
    let empty = room("empty");
    node.history(&empty, START, 10).await;
    let ttl = server.command(&["PTTL", "test:{room:1:/empty}:head"]);
    assert!((1..=60_000).contains(&ttl.trim().parse::<u64>().unwrap()), "{ttl}");
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(node.history(&room("third"), START, 10).await, (None, vec![], true));
}

/// The server deletes a room's messages at their maximum age, and its position 60 s later unless a node reads it.
#[tokio::test]
async fn a_room_leaves_nothing() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let node = Node::connect(&server).await;
    let r = room("r");
    node.append(&r, "x").await;
    let ttl_ms = |key: &str| server.command(&["PTTL", key]).trim().parse::<u64>().unwrap();
    let (head, stream) = ("test:{room:1:/r}:head", "test:{room:1:/r}");
    let age_ms = u64::try_from(KEEP.age_max.as_millis()).unwrap();
    assert!((1..=age_ms).contains(&ttl_ms(stream)));
    assert!((age_ms..=age_ms + 60_000).contains(&ttl_ms(head)));
    // A read extends the position's lifetime shortly before its end.
    server.command(&["PEXPIRE", head, "20000"]);
    assert!(node.head(&r).await.is_some());
    assert!((20_001..=60_000).contains(&ttl_ms(head)));
    server.command(&["PEXPIRE", head, "20000"]);
    node.history(&r, START, 10).await;
    assert!((20_001..=60_000).contains(&ttl_ms(head)));
}

#[tokio::test]
async fn an_idempotency_key_counts_unless_its_room_was_lost() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let node = Node::connect(&server).await;
    let r = room("r");
    let (head, stream, key) = ("test:{room:1:/r}:head", "test:{room:1:/r}", "test:{room:1:/r}:key:k");
    let mut last = node.append_with(&r, "first", Some("k"), KEEP).await;
    // The server loses the room, which begins anew with the repeated message or before it.
    for is_read in [false, true] {
        server.command(&["DEL", head, stream]);
        if is_read {
            node.history(&r, START, 10).await;
        }
        let new = node.append_with(&r, "repeated", Some("k"), KEEP).await;
        assert_eq!((new.offset, new.epoch == last.epoch), (1, false));
        assert_eq!(node.append_with(&r, "again", Some("k"), KEEP).await, new);
        assert_eq!(node.history(&r, START, 10).await, (Some(new), vec!["repeated".into()], true));
        last = new;
    }
    // Redis keeps an answer in one allocation.
    assert_eq!(server.command(&["OBJECT", "ENCODING", key]).trim(), "embstr");
    // Another primary begins another epoch of the same room.
    server.command(&["HSET", head, "r", "another"]);
    let after = node.append_with(&r, "after", Some("l"), KEEP).await;
    assert_ne!(after.epoch, last.epoch);
    for (key, expected) in [("k", last), ("l", after)] {
        assert_eq!(node.append_with(&r, "again", Some(key), KEEP).await, expected);
    }
    // The room has expired, at a time that has passed, or an earlier build has stored the answer.
    let Position { epoch: Epoch(epoch), offset } = last;
    server.command(&["DEL", head, stream]);
    for rest in [":1:1", "::1", ""] {
        server.command(&["SET", key, &format!("{epoch}:{offset}{rest}")]);
        assert_eq!(node.append_with(&r, "again", Some("k"), KEEP).await, last);
    }
}

#[tokio::test]
async fn records_of_nodes_expire_even_if_the_clock_goes_back() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let node = Node::connect(&server).await;
    let (nodes, dead) = ("test:{nodes}:records", NodeId(7));
    // The dead node's last heartbeat was before the clock went back.
    server.command(&["HSET", nodes, &dead.to_string(), "99999999999999:dead"]);
    let beat = async |ttl_ms| {
        let ttl = Duration::from_millis(ttl_ms);
        let answer = node.request(Request::Heartbeat { node: node.id, record: "node".into(), ttl }).await;
        let Reply::Nodes(nodes) = answer else { panic!("{answer:?}") };
        nodes.into_iter().map(|(node, _)| node).collect::<Vec<_>>()
    };
    let both = BTreeSet::from([node.id, dead]);
    assert_eq!(beat(1_000).await.into_iter().collect::<BTreeSet<_>>(), both);
    // The table of nodes doesn't expire, because a node is alive.
    let deadline = Instant::now() + Duration::from_secs(10);
    while beat(1_000).await != [node.id] {
        assert!(Instant::now() < deadline, "the dead node seems alive");
        sleep_ms(100).await;
    }
    // Without nodes, the server keeps nothing.
    sleep_ms(1_100).await;
    assert_eq!(server.command(&["EXISTS", nodes]).trim(), "0");
}

#[tokio::test]
async fn a_server_that_takes_only_small_messages_is_refused() {
    let Some(server) = RedisServer::start(&["--proto-max-bulk-len", "16mb"]) else { return };
    check_refused([(server.url(), "proto-max-bulk-len is 16777216")]).await;
    server.command(&["CONFIG", "SET", "proto-max-bulk-len", "17mb"]);
    let mut node = connected(&server.url(), options()).await;
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
        let r = room(&round.to_string());
        let appends: Vec<_> = (0..100).map(|_| node.engine.request(append(&r, "x", None))).collect();
        for (offset, append) in (1..).zip(appends) {
            let Ok(Reply::Position(position)) = append.await else { panic!() };
            assert_eq!(position.offset, offset);
        }
    }
}

#[tokio::test]
async fn a_feed_without_a_document_leaves_nothing() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let node = Node::connect(&server).await;
    let ttl_ms = |key: &str| server.command(&["PTTL", key]).trim().parse::<i64>().unwrap();
    let (none, some) = (key("none"), key("some"));
    let empty = acquire(&node, &none, 0, LONG).await.unwrap();
    let lease = acquire(&node, &some, 0, LONG).await.unwrap();
    assert_eq!(store(&node, &some, lease, version(1, "", Some("base"))).await, Ok(Reply::Done));
    assert!((60_001..=70_000).contains(&ttl_ms("test:{feed:none}")), "its node may be killed");
    assert!(renew(&node, &none, empty, LONG).await && renew(&node, &some, lease, LONG).await);
    assert!((60_001..=70_000).contains(&ttl_ms("test:{feed:none}")));
    for (key, lease) in [(&none, empty), (&some, lease)] {
        release(&node, key, lease).await;
    }
    assert!((..=10_000).contains(&ttl_ms("test:{feed:none}")), "only its term stays, for a moment");
    assert!(ttl_ms("test:{feed:some}") > 86_000_000);
    let next = acquire(&node, &some, 0, LONG).await.unwrap();
    assert!(next.term > lease.term && ttl_ms("test:{feed:some}") > 86_000_000);
}
