//! Records of nodes, and claims.

use crate::{Fixture, Node, room, sleep_ms};
use bytes::Bytes;
use std::time::Duration;
use stentor_cluster::NodeId;
use stentor_cluster::engine::{Channel, Reply, Request};

async fn heartbeat(node: &Node, record: &'static str, ttl_ms: u64) -> Vec<(NodeId, Bytes)> {
    let ttl = Duration::from_millis(ttl_ms);
    let request = Request::Heartbeat { node: node.id, record: record.into(), ttl };
    let Reply::Nodes(nodes) = node.request(request).await else { panic!() };
    nodes
}

pub(crate) async fn records_expire(fixture: &impl Fixture) {
    let (a, b) = (Node::connect(fixture).await, Node::connect(fixture).await);
    let both = |a_record: &'static str| {
        let mut nodes = vec![(a.id, Bytes::from(a_record)), (b.id, Bytes::from("b\n:\0"))];
        nodes.sort_unstable_by_key(|(node, _)| *node);
        nodes
    };
    assert_eq!(heartbeat(&a, "a", 2_000).await, [(a.id, "a".into())]);
    assert_eq!(heartbeat(&b, "b\n:\0", 2_000).await, both("a"));
    assert_eq!(heartbeat(&a, "a2", 2_000).await, both("a2"));
    // The record of `b` lasts while that of `a` ends.
    for _ in 0..2 {
        sleep_ms(1_100).await;
        heartbeat(&b, "b", 2_000).await;
    }
    assert_eq!(heartbeat(&b, "b", 2_000).await, [(b.id, "b".into())]);
    assert_eq!(heartbeat(&a, "a", 2_000).await.len(), 2);
}

async fn claim(node: &Node, name: &str, ttl_ms: u64) -> Option<NodeId> {
    let ttl = Duration::from_millis(ttl_ms);
    let Reply::Owner(owner) = node.request(Request::Claim { name: name.into(), owner: node.id, ttl }).await
    else {
        panic!()
    };
    owner
}

pub(crate) async fn a_claim_has_one_owner(fixture: &impl Fixture) {
    let (a, b) = (Node::connect(fixture).await, Node::connect(fixture).await);
    let name = "sockjs/{1}/ é\n";
    assert_eq!(claim(&a, name, 2_000).await, Some(a.id));
    assert_eq!(claim(&b, name, 2_000).await, Some(a.id));
    assert_eq!(claim(&b, "another", 60_000).await, Some(b.id));
    assert_eq!(claim(&a, name, 2_000).await, Some(a.id));
    assert_eq!(claim(&b, name, 0).await, Some(a.id), "another node's claim can't be given up");
    sleep_ms(2_200).await;
    assert_eq!(claim(&b, name, 60_000).await, Some(b.id));
    assert_eq!(claim(&b, name, 0).await, None);
    assert_eq!(claim(&a, name, 60_000).await, Some(a.id));
}

pub(crate) async fn calls_come_from_any_thread(fixture: &impl Fixture) {
    let mut node = Node::connect(fixture).await;
    let (id, engine) = (node.id, node.engine.clone());
    // Threads of cores have no tokio runtime.
    let call = move || {
        let ttl = Duration::from_secs(60);
        engine.set_interest(room("r").into(), true);
        let answer = engine.request(Request::Claim { name: "name".into(), owner: id, ttl });
        engine.publish(Channel::Nodes, "message".into()).unwrap();
        answer
    };
    let answer = std::thread::spawn(call).join().unwrap();
    assert_eq!(answer.await, Ok(Reply::Owner(Some(node.id))));
    assert_eq!(node.message().await.2, "message");
}
