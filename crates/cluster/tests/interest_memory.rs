//! The memory of a room in which a node is interested. There is one test, so that no other test runs in this process: memory on
//! the heap is counted.

#![allow(clippy::unwrap_used, clippy::print_stderr)] // Tests may panic, and say what they found.

#[path = "cluster/fixture.rs"]
#[allow(dead_code)] // Nodes under test use more of it.
mod fixture;
#[path = "contract/nats_server.rs"]
#[allow(dead_code)] // The contract uses more of it.
mod nats_server;
#[path = "contract/redis_server.rs"]
#[allow(dead_code)] // The contract uses more of it.
mod redis_server;

use cap::Cap;
use nats_server::NatsServer;
use redis_server::RedisServer;
use std::alloc::System;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;
use stentor_cluster::engine::nats::Nats;
use stentor_cluster::engine::redis::Redis;
use stentor_cluster::engine::{ConnectOptions, Engine, EventReceiver, Limits, Request};
use stentor_cluster::{Cluster, NodeId};
use stentor_hub::{Epoch, Position, Room, Topic};
use stentor_ports::{Broker, Ledger};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const ROOMS: usize = 100_000;
const ROOM_BYTES_MAX: usize = 100;

/// Waits until interest in the topic is established. The node then receives messages published to the room.
async fn established(engine: &Arc<dyn Engine>, topic: &Topic) {
    let Topic::Room(room) = topic.clone() else { panic!() };
    let since = Position { epoch: Epoch(0), offset: 0 };
    while engine
        .request(Request::History { room: room.clone(), since, messages_max: 0, age_max: Duration::ZERO })
        .await
        .is_err()
    {}
}

/// Returns the heap memory (bytes) per room, with 100,000 rooms.
async fn bytes_per_room<E: Engine + 'static>(
    name: &str,
    connect: impl AsyncFnOnce(NodeId, &ConnectOptions) -> (E, EventReceiver),
) -> usize {
    let node = NodeId::draw();
    let ledger = Arc::new(Ledger::new(1 << 30));
    let options = ConnectOptions {
        prefix: "stentor:".into(),
        wait: false,
        ca_file: None,
        identity: None,
        credentials_file: None,
        limits: Limits::default(),
        ledger: ledger.clone(),
    };
    let (engine, events) = connect(node, &options).await;
    let engine: Arc<dyn Engine> = Arc::new(engine);
    let options = stentor_cluster::Options { ledger, ..fixture::options() };
    let cluster = Cluster::new(node, options, engine.clone(), &events, 0);
    // Names are allocated before the measurement, because a node's cores have them already.
    let topic = |i| Topic::Room(Room::new("/", &format!("conversation-{i:06}")).unwrap());
    let topics: Vec<Topic> = (0..ROOMS).map(topic).collect();
    established(&engine, &topics[0]).await;
    let before = ALLOCATOR.allocated();
    let begun = Instant::now();
    for topic in &topics {
        cluster.set_interest(topic, true);
    }
    for topic in [&topics[0], &topics[ROOMS / 2], &topics[ROOMS - 1]] {
        established(&engine, topic).await;
    }
    let bytes = (ALLOCATOR.allocated() - before) / ROOMS;
    eprintln!("{name}: {bytes} bytes per room; established in {:?}", begun.elapsed());
    bytes
}

#[tokio::test]
async fn a_room_with_members_takes_little_memory() {
    if let Some(server) = RedisServer::start(&[]) {
        let connect = async |node, options: &ConnectOptions| {
            Redis::connect(node, &server.url(), options).await.unwrap()
        };
        let bytes = bytes_per_room("Redis", connect).await;
        assert!(bytes <= ROOM_BYTES_MAX, "{bytes} bytes per room");
    }
    if let Some(server) = NatsServer::start("") {
        let connect =
            async |node, options: &ConnectOptions| Nats::connect(node, &server.url(), options).await.unwrap();
        let bytes = bytes_per_room("NATS", connect).await;
        assert!(bytes <= ROOM_BYTES_MAX, "{bytes} bytes per room");
    }
}
