//! Messages and interest.

use crate::{Fixture, KEEP, Node, room, sleep_ms};
use bytes::Bytes;
use std::time::Duration;
use stentor_cluster::engine::{Channel, EngineError, Event, Limits, PAYLOAD_BYTES_MAX, Request};
use stentor_hub::Room;

pub(crate) async fn messages_of_a_node_arrive_in_order_also_at_itself(fixture: &impl Fixture) {
    let (mut a, mut b) = (Node::connect(fixture).await, Node::connect(fixture).await);
    let r = room("r");
    a.join(&r).await;
    b.join(&r).await;
    let channels: [Channel; 2] = [r.into(), Channel::Nodes];
    for i in 0..1_000_usize {
        a.publish(channels[i % 2].clone(), i.to_string().as_bytes());
    }
    for node in [&mut a, &mut b] {
        for i in 0..1_000_usize {
            let expected = (channels[i % 2].clone(), None, Bytes::from(i.to_string()));
            assert_eq!(node.message().await, expected);
        }
    }
    b.engine.set_interest(app("chat.a b"), true);
    // The history of a room is read after earlier interest is established.
    b.join(&room("later")).await;
    a.publish(Channel::Node(b.id), b"for b");
    a.publish(app("chat"), b"for nobody");
    a.publish(app("chat.a b"), b"for those with the application");
    a.publish(Channel::Nodes, b"for all");
    assert_eq!(b.message().await.2, "for b");
    assert_eq!(b.message().await, (app("chat.a b"), None, Bytes::from("for those with the application")));
    assert_eq!(b.message().await.2, "for all");
    assert_eq!(a.message().await.2, "for all");
}

fn app(name: &str) -> Channel {
    Channel::Application(name.into())
}

/// Engines with a queue per subscription fail this check.
pub(crate) async fn a_publishers_messages_arrive_in_order_over_rooms(fixture: &impl Fixture) {
    let (publisher, mut node) = (Node::connect(fixture).await, Node::connect(fixture).await);
    let rooms: Vec<Room> = (0..50).map(|i| room(&format!("room {i}"))).collect();
    for r in &rooms {
        node.join(r).await;
    }
    // Payloads of 2 MiB: NATS takes at most 1 MiB at once.
    let payload = |i: usize| format!("{i}{}", " ".repeat(if i % 400 == 200 { 2 << 20 } else { 0 }));
    for i in 0..1_000 {
        publisher.publish(rooms[i * 7 % rooms.len()].clone(), payload(i).as_bytes());
    }
    for i in 0..1_000 {
        let (channel, _, received) = node.message().await;
        assert_eq!(channel, rooms[i * 7 % rooms.len()].clone().into());
        assert!(received == payload(i), "message {i}: {:?}", received.get(..4));
    }
}

pub(crate) async fn interest_is_a_level(fixture: &impl Fixture) {
    let mut node = Node::connect(fixture).await;
    let (r, other) = (room("r"), room("other"));
    for i in 0..1_001 {
        node.engine.set_interest(r.clone().into(), i % 2 == 0);
    }
    node.join(&r).await;
    node.publish(other.clone(), b"nobody's");
    node.publish(r.clone(), b"wanted");
    assert_eq!(node.message().await.2, "wanted");

    for i in 0..1_001 {
        node.engine.set_interest(r.clone().into(), i % 2 == 1);
    }
    for _ in 0..100 {
        sleep_ms(20).await;
        node.publish(r.clone(), b"late");
        node.publish(Channel::Nodes, b"end");
        let mut was_delivered = false;
        while node.message().await.2 != "end" {
            was_delivered = true;
        }
        if !was_delivered {
            return;
        }
    }
    panic!("messages arrive although the interest has ended");
}

pub(crate) async fn payloads_of_any_size_up_to_the_maximum(fixture: &impl Fixture) {
    let mut node = Node::connect(fixture).await;
    let bytes: Vec<u8> = (0..=255).collect();
    for payload in [vec![], b":".to_vec(), b"1:2:3".to_vec(), bytes, vec![b'x'; PAYLOAD_BYTES_MAX]] {
        // The largest payload is refused until the queue is empty.
        while node.engine.publish(Channel::Nodes, payload.clone().into()) == Err(EngineError::Full) {
            sleep_ms(1).await;
        }
        let received = node.message().await.2;
        assert!(received == payload, "{} bytes became {}", payload.len(), received.len());
    }
    let too_large = node.engine.publish(Channel::Nodes, vec![0; PAYLOAD_BYTES_MAX + 1].into());
    assert!(matches!(too_large, Err(EngineError::Refused(_))), "{too_large:?}");
    let append = |bytes| {
        let payload = vec![b'x'; bytes].into();
        Request::Append { room: room("r"), payload, idempotency_key: None, limits: KEEP }
    };
    let too_large = node.try_request(append(PAYLOAD_BYTES_MAX + 1)).await;
    assert_eq!(too_large, Err(EngineError::Refused("the message is too large".into())));
    assert_eq!(node.head(&room("r")).await, None, "it had no effect");
    assert!(node.try_request(append(PAYLOAD_BYTES_MAX)).await.is_ok());
}

/// Names with a meaning for some engine, and pairs of names that become equal if joined carelessly.
fn names() -> Vec<Room> {
    let names =
        ["a b", "*", "a*", ">", "a.b", "line\nbreak\r\n", "ümlaut 🦀", "{}", "}", "{a}b", "a:b", "$1", "%"];
    let namespaces = ["/", "/#", "/a#b", "/ ", "/{x}", "/a:1"];
    let mut rooms: Vec<_> =
        namespaces.iter().flat_map(|ns| names.iter().map(|name| Room::new(ns, name).unwrap())).collect();
    for (namespace, name) in [("/ab", "c"), ("/a", "bc"), ("/a:", "b"), ("/a", ":b"), ("1:/", "a")] {
        rooms.push(Room::new(namespace, name).unwrap());
    }
    rooms.push(Room::new(&"n".repeat(256), &"é".repeat(128)).unwrap());
    rooms.push(Room::all_members("/").unwrap());
    rooms
}

pub(crate) async fn names_are_arbitrary(fixture: &impl Fixture) {
    let mut node = Node::connect(fixture).await;
    let rooms = names();
    for r in &rooms {
        node.join(r).await;
    }
    for (i, r) in rooms.iter().enumerate() {
        node.publish(r.clone(), i.to_string().as_bytes());
    }
    for (i, r) in rooms.iter().enumerate() {
        assert_eq!(node.message().await, (r.clone().into(), None, i.to_string().into()));
    }
    for r in &rooms {
        assert_eq!(node.append(r, "first").await.offset, 1, "{r:?}");
        assert_eq!(node.message().await.0, r.clone().into());
    }
}

pub(crate) async fn a_slow_node_sees_a_lost_connection(fixture: &impl Fixture) {
    let limits = Limits { events_max: 10, ..Limits::default() };
    let mut slow = Node::with(fixture, limits).await;
    let mut quick = Node::connect(fixture).await;
    for i in 0..100 {
        quick.publish(Channel::Nodes, i.to_string().as_bytes());
    }
    for i in 0..100 {
        assert_eq!(quick.message().await.2, i.to_string());
    }
    // The quick node has all messages, so the engine has also sent them to the slow node.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(matches!(slow.event().await, Event::Disconnected { .. }));
    assert_eq!(slow.event().await, Event::Connected);
    let mut last = slow.message().await.2;
    while last != "99" {
        last = slow.message().await.2;
    }
    quick.publish(Channel::Nodes, b"on time");
    assert_eq!(slow.message().await.2, "on time");
}
