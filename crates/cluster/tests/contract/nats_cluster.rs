//! The engine on a cluster of NATS servers.

use crate::nats_server::{NatsServer, version};
use crate::servers::{append, attach, check_refused, connected, options};
use crate::{Fixture, Node, contract, room, sleep_ms};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use stentor_cluster::NodeId;
use stentor_cluster::engine::{ConnectOptions, Engine, EngineError, EventReceiver, Limits};
use stentor_hub::Position;

/// A cluster of three servers. Each node connects to the next one.
struct Cluster {
    servers: [NatsServer; 3],
    nodes: AtomicUsize,
}

fn is_too_old() -> Option<bool> {
    let version = version()?;
    let numbers: Vec<u32> = version.split('.').map_while(|number| number.parse().ok()).collect();
    Some(numbers < vec![2, 9, 21])
}

impl Cluster {
    fn start() -> Option<Self> {
        if is_too_old()? {
            eprintln!("skipped: clusters need nats-server 2.9.21 or newer");
            return None;
        }
        Some(Self { servers: NatsServer::start_cluster()?, nodes: AtomicUsize::new(0) })
    }
}

impl Fixture for Cluster {
    const DELIVERS_IN_ORDER: bool = false;

    async fn connect(&self, node: NodeId, limits: Limits) -> (Arc<dyn Engine>, EventReceiver) {
        let server = &self.servers[self.nodes.fetch_add(1, Ordering::Relaxed) % 3];
        // `wait`: the servers elect a leader first.
        let options = ConnectOptions { limits, wait: true, ..options() };
        attach(node, &server.url(), options).await
    }

    async fn forget(&self) {
        self.servers.iter().for_each(NatsServer::stop);
        self.servers.iter().for_each(NatsServer::wipe);
        self.servers.iter().for_each(NatsServer::run);
    }
}

contract!(Cluster::start() =>
    messages::messages_of_a_node_arrive_in_order_also_at_itself,
    rooms::appends_of_several_nodes_have_one_order,
    rooms::messages_missing_in_a_history_arrive_live,
    feeds::a_version_needs_the_lease,
    feeds::a_log_has_a_base_and_its_changes,
    registry::a_claim_has_one_owner,
);

#[tokio::test]
async fn old_servers_in_a_cluster_are_refused() {
    if is_too_old() != Some(true) {
        return;
    }
    let Some([server, ..]) = NatsServer::start_cluster() else { return };
    check_refused([(server.url(), "needs 2.9.21 or newer in a cluster of servers")]).await;
}

#[tokio::test]
async fn rooms_keep_their_epoch_when_a_server_fails() {
    let Some(cluster) = Cluster::start() else { return };
    let hosts = |first: usize| {
        let hosts = (0..3).map(|i| format!("127.0.0.1:{}", cluster.servers[(first + i) % 3].port));
        format!("nats://{}", hosts.collect::<Vec<_>>().join(","))
    };
    let r = room("r");
    let mut nodes = Vec::new();
    for first in 0..3 {
        let node = connected(&hosts(first), ConnectOptions { wait: true, ..options() }).await;
        node.join(&r).await;
        nodes.push(node);
    }
    let append_number = async |node: &Node, i: usize| {
        // The outcome of appends is unknown until the servers have another leader.
        loop {
            match node.try_request(append(&r, i.to_string(), Some(i.to_string().into()))).await {
                Ok(_) => return,
                Err(EngineError::Unavailable(_)) => {}
                Err(error) => panic!("{error}"),
            }
            sleep_ms(50).await;
        }
    };
    append_number(&nodes[0], 1).await;
    let first = nodes[0].head(&r).await.unwrap();
    for (stopped, i) in (0..3).zip(2..) {
        cluster.servers[stopped].stop();
        append_number(&nodes[i % 3], i).await;
        cluster.servers[stopped].run();
        append_number(&nodes[(i + 1) % 3], i + 10).await;
    }
    let head = nodes[2].head(&r).await.unwrap();
    assert_eq!(head, Position { offset: 7, ..first });
    let start = Position { offset: 0, ..first };
    let (_, messages, truncated) = nodes[1].history(&r, start, 100).await;
    assert_eq!(
        (messages, truncated),
        (["1", "2", "12", "3", "13", "4", "14"].map(Into::into).to_vec(), false)
    );
}
