//! The engine on Redis Cluster.

use crate::redis_acl::permissions;
use crate::redis_server::{RedisServer, free_port, until};
use crate::servers::{append, attach, check_refused, connect_with, connected, options};
use crate::{Fixture, Node, contract, room};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use stentor_cluster::NodeId;
use stentor_cluster::engine::{ConnectOptions, Engine, EngineError, Event, EventReceiver, Limits, Reply};
use stentor_hub::{Position, Room};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

pub(crate) const PRIMARIES: usize = 3;
const SLOTS: usize = 16_384;

/// Permissions that docs/cluster.md adds for clusters.
const CLUSTER_PERMISSIONS: &str = "+asking +cluster|info +cluster|slots +cluster|links";

/// Three primaries, each with replicas.
pub(crate) struct RedisCluster {
    /// The primaries come first.
    pub(crate) nodes: Vec<RedisServer>,
    prefix: Mutex<String>,
}

impl RedisCluster {
    fn start(replicas: usize) -> Option<Self> {
        // Node timeout (ms): a server that doesn't run for this long counts as failed. A minute if no failover is
        // tested.
        Self::with_timeout(replicas, if replicas == 0 { "60000" } else { "1000" })
    }

    fn with_timeout(replicas: usize, node_timeout: &str) -> Option<Self> {
        // All names of keys are allowed. The tests without a cluster check them.
        let user = [permissions(), CLUSTER_PERMISSIONS].join(" ").replace("stentor:*", "*");
        Self::with_user(replicas, node_timeout, &user)
    }

    pub(crate) fn with_user(replicas: usize, node_timeout: &str, user: &str) -> Option<Self> {
        let start = |_| {
            let bus = free_port().to_string();
            let cluster =
                ["--cluster-enabled", "yes", "--cluster-node-timeout", node_timeout, "--cluster-port", &bus];
            let more = ["--repl-diskless-sync-delay", "0", "--cluster-allow-replica-migration", "no"];
            let arguments = [&cluster[..], &more, &["--user"], &user.split(' ').collect::<Vec<_>>()].concat();
            RedisServer::start(&arguments).map(|server| (server, bus))
        };
        let nodes: Vec<_> = (0..PRIMARIES * (1 + replicas)).map(start).collect::<Option<_>>()?;
        for (i, (node, bus)) in nodes.iter().enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(i + 1).to_string()]);
            if i < PRIMARIES {
                let (first, last) = (i * SLOTS / PRIMARIES, (i + 1) * SLOTS / PRIMARIES - 1);
                node.command(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
            }
            nodes[0].0.command(&["CLUSTER", "MEET", "127.0.0.1", &node.port.to_string(), bus]);
        }
        let nodes: Vec<RedisServer> = nodes.into_iter().map(|(node, _)| node).collect();
        let knows_all = format!("cluster_known_nodes:{}", nodes.len());
        until("the nodes know each other", || {
            nodes.iter().all(|node| node.command(&["CLUSTER", "INFO"]).contains(&knows_all))
        });
        for (i, replica) in nodes.iter().enumerate().skip(PRIMARIES) {
            let id = nodes[i % PRIMARIES].command(&["CLUSTER", "MYID"]);
            until("the replica has a primary", || {
                replica.command(&["CLUSTER", "REPLICATE", id.trim()]) == "OK\n"
            });
        }
        until("the replicas are connected", || {
            nodes[PRIMARIES..]
                .iter()
                .all(|node| node.command(&["INFO", "replication"]).contains("link_status:up"))
        });
        until("the cluster is up", || nodes.iter().all(is_up));
        // A server without a link to the publisher doesn't receive its messages. Links are reported when they connect
        // later, but the tests expect no such report.
        until("each node has a link from each other", || {
            nodes.iter().all(|node| {
                let from = node.command(&["CLUSTER", "LINKS"]).lines().filter(|line| *line == "from").count();
                from == nodes.len() - 1 && !node.command(&["CLUSTER", "NODES"]).contains("handshake")
            })
        });
        Some(Self { nodes, prefix: Mutex::new("test:".into()) })
    }

    fn url(&self) -> String {
        // The first address can't be reached.
        format!("redis+cluster://stentor:password@127.0.0.1:1,127.0.0.1:{}", self.nodes[1].port)
    }

    /// The URL with one of the servers as its only address.
    pub(crate) fn url_at(&self, server: usize) -> String {
        format!("redis+cluster://stentor:password@127.0.0.1:{}", self.nodes[server].port)
    }

    /// Returns the slot of a key or channel, and the index of the primary that has the slot at the start.
    pub(crate) fn slot_of(&self, name: &str) -> (String, usize) {
        let slot: usize = self.nodes[0].command(&["CLUSTER", "KEYSLOT", name]).trim().parse().unwrap();
        (slot.to_string(), (0..PRIMARIES).find(|i| slot < (i + 1) * SLOTS / PRIMARIES).unwrap())
    }

    /// Returns the slot of a room, and the index of the primary that has the slot at the start.
    fn place_of(&self, room: &Room) -> (String, usize) {
        self.slot_of(&format!("{{room:1:/{}}}", room.name()))
    }

    /// Cuts a primary off from all other servers, and makes its replica the primary of its slots. Clients still reach the former primary, which
    /// is a primary by its own account, but no longer accepts requests.
    pub(crate) fn isolate(&self, primary: usize) {
        let ids: Vec<_> = self.nodes.iter().map(|node| node.command(&["CLUSTER", "MYID"])).collect();
        let others = ids.iter().enumerate().filter(|(i, _)| *i != primary).map(|(_, id)| id.trim());
        // One script: the primary would tell the servers that it still knows to forget the first ones, too.
        let script = "for _, id in ipairs(ARGV) do redis.call('CLUSTER', 'FORGET', id) end return 'OK'";
        let forget: Vec<_> = ["EVAL", script, "0"].into_iter().chain(others).collect();
        assert_eq!(self.nodes[primary].command(&forget), "OK\n");
        until("the primary accepts no requests", || !is_up(&self.nodes[primary]));
        let replica = PRIMARIES + primary;
        assert_eq!(self.nodes[replica].command(&["CLUSTER", "FAILOVER", "TAKEOVER"]), "OK\n");
        let is_primary = |line: &str| line.starts_with(ids[replica].trim()) && line.contains("master");
        until("the others know the new primary", || {
            let mut others = self.nodes.iter().enumerate().filter(|(i, _)| *i != primary);
            others.all(|(_, node)| node.command(&["CLUSTER", "NODES"]).lines().any(is_primary))
        });
    }

    /// Returns one room for each primary.
    fn rooms(&self) -> [Room; PRIMARIES] {
        let rooms = (0..100).map(|i| room(&format!("r{i}")));
        let placed: Vec<_> = rooms.map(|room| (self.place_of(&room).1, room)).collect();
        std::array::from_fn(|i| placed.iter().find(|(place, _)| *place == i).unwrap().1.clone())
    }
}

fn is_up(node: &RedisServer) -> bool {
    node.command(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
}

impl Fixture for RedisCluster {
    async fn connect(&self, node: NodeId, limits: Limits) -> (Arc<dyn Engine>, EventReceiver) {
        let prefix = self.prefix.lock().unwrap().clone();
        let options = ConnectOptions { prefix, limits, ..options() };
        attach(node, &self.url(), options).await
    }

    async fn forget(&self) {
        for node in &self.nodes[..PRIMARIES] {
            node.command(&["FLUSHALL"]);
        }
    }

    fn begin(&self, check: &str) {
        *self.prefix.lock().unwrap() = format!("{check}:");
    }
}

#[tokio::test]
async fn the_contract_holds_on_a_cluster() {
    assert!(include_str!("../../../../docs/cluster.md").contains(CLUSTER_PERMISSIONS));
    let Some(cluster) = RedisCluster::start(0) else { return };
    let fixture = &cluster;
    contract!(fixture one by one);
}

/// A seed in front of `port` that passes bytes on only after 1.5 s, as a server does whose disk is busy.
async fn slow_seed(port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let slow = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                crate::sleep_ms(1_500).await;
                let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    slow
}

#[tokio::test]
async fn the_only_seed_may_answer_late() {
    let Some(cluster) = RedisCluster::start(0) else { return };
    let seed = slow_seed(cluster.nodes[0].port).await;
    connected(&format!("redis+cluster://stentor:password@127.0.0.1:{seed}"), options()).await;
}

#[tokio::test]
async fn a_cluster_is_told_from_a_server() {
    let Some(server) = RedisServer::start(&[]) else { return };
    // Without a port of its own, the bus has one that the kernel may have given to an outgoing connection.
    let bus = free_port().to_string();
    let Some(member) = RedisServer::start(&["--cluster-enabled", "yes", "--cluster-port", &bus]) else {
        return;
    };
    check_refused([
        (format!("redis://127.0.0.1:{}", member.port), "write redis+cluster://"),
        (format!("redis+cluster://127.0.0.1:{}", server.port), "write redis:// for a server alone"),
        (format!("redis+cluster://127.0.0.1:{}", member.port), "the cluster is down"),
    ])
    .await;
}

impl Node {
    /// Appends until it succeeds.
    async fn append_at_last(&self, room: &Room, payload: &'static str) -> Position {
        let key: Arc<str> = fastrand::u64(..).to_string().into();
        loop {
            match self.try_request(append(room, payload, Some(key.clone()))).await {
                Ok(Reply::Position(position)) => return position,
                Err(EngineError::Unavailable(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Waits for a message with this payload.
    async fn until_message(&mut self, payload: &str) {
        while !matches!(self.event().await, Event::Message { payload: received, .. } if received == payload) {
        }
    }
}

#[tokio::test]
async fn after_the_failover_of_a_primary_its_rooms_begin_new_epochs_and_the_others_go_on() {
    let Some(cluster) = RedisCluster::start(1) else { return };
    let (mut a, mut b) =
        (connected(&cluster.url(), options()).await, connected(&cluster.url(), options()).await);
    let rooms = cluster.rooms();
    let mut before = Vec::new();
    for node in [&mut a, &mut b] {
        for room in &rooms {
            node.join(room).await;
        }
    }
    for room in &rooms {
        before.push(a.append(room, "before").await);
    }
    let killed_at = Instant::now();
    cluster.nodes[0].stop();
    // The other primaries answer until the cluster notices the failure and stops as a whole, its default.
    let during = a.append_at_last(&rooms[1], "during").await;
    assert_eq!(during, Position { offset: 2, ..before[1] });
    let after = a.append_at_last(&rooms[0], "after").await;
    println!("served again after {:?}", killed_at.elapsed());
    assert!(after.epoch != before[0].epoch && after.offset == 1, "{after:?} after {:?}", before[0]);
    for (i, room) in rooms.iter().enumerate().skip(1) {
        assert_eq!(b.append_at_last(room, "go on").await.epoch, before[i].epoch);
    }
    // Each node reports the lost links to the dead primary, and has established all interest again.
    for node in [&mut a, &mut b] {
        node.reconnected().await;
    }
    let rounds: HashSet<String> = rooms.iter().map(|room| format!("again in {}", room.name())).collect();
    for payload in &rounds {
        let room = room(payload.strip_prefix("again in ").unwrap());
        while a.engine.publish(room.clone().into(), payload.clone().into()).is_err() {}
        b.until_message(payload).await;
    }
}

#[tokio::test]
async fn requests_follow_a_slot_that_moves() {
    let Some(cluster) = RedisCluster::start(0) else { return };
    let mut node = connected(&cluster.url(), options()).await;
    let [r, ..] = cluster.rooms();
    let (slot, from) = cluster.place_of(&r);
    let [from, to] = [&cluster.nodes[from], &cluster.nodes[(from + 1) % PRIMARIES]];
    let id = |node: &RedisServer| node.command(&["CLUSTER", "MYID"]).trim().to_owned();
    let set_slot = |node: &RedisServer, what: &str, id: &str| {
        assert_eq!(node.command(&["CLUSTER", "SETSLOT", &slot, what, id]), "OK\n");
    };
    node.join(&r).await;
    let before = node.append(&r, "before").await;
    node.until_message("before").await;
    set_slot(to, "IMPORTING", &id(from));
    set_slot(from, "MIGRATING", &id(to));
    let keys = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"]);
    let keys: Vec<&str> = keys.lines().collect();
    assert_eq!(keys.len(), 2, "{keys:?}");
    let migrate = |key: &str| {
        let port = to.port.to_string();
        assert_eq!(from.command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]), "OK\n");
    };
    migrate(keys[0]);
    // The new primary has one of the room's two keys. The append waits for the other key.
    let meanwhile = tokio::spawn(node.engine.request(append(&r, "meanwhile", None)));
    crate::sleep_ms(300).await;
    assert!(!meanwhile.is_finished());
    migrate(keys[1]);
    let Ok(Reply::Position(meanwhile)) = meanwhile.await.unwrap() else { panic!() };
    // The room begins a new epoch on another primary, which may lack messages.
    assert!(meanwhile.epoch != before.epoch && meanwhile.offset == 1, "{meanwhile:?} after {before:?}");
    node.until_message("meanwhile").await;
    set_slot(to, "NODE", &id(to));
    set_slot(from, "NODE", &id(to));
    for offset in 2..4 {
        assert_eq!(node.append(&r, "moved").await, Position { offset, ..meanwhile });
        node.until_message("moved").await;
    }
}

#[tokio::test]
async fn a_node_may_wait_for_a_cluster() {
    // Restarted servers need a part of the node timeout to find each other.
    let Some(cluster) = RedisCluster::with_timeout(0, "1000") else { return };
    for node in &cluster.nodes {
        node.stop();
    }
    let options = ConnectOptions { wait: true, ..options() };
    let mut node = connect_with(&cluster.url(), options).await.unwrap();
    for node in &cluster.nodes {
        node.run();
    }
    assert_eq!(node.event().await, Event::Connected);
    node.engine.set_interest(room("r").into(), true);
    node.receives("r").await;
}

#[tokio::test]
async fn requests_leave_a_primary_that_is_cut_off_and_replaced() {
    let Some(cluster) = RedisCluster::with_timeout(1, "60000") else { return };
    let node = connected(&cluster.url(), options()).await;
    let [r, ..] = cluster.rooms();
    node.append(&r, "before").await;
    // The node asks for the state of the cluster in each round of probes, and whenever it reads the slots.
    let rounds = || {
        let asked = |subcommand| asked(&cluster, subcommand).iter().sum::<usize>();
        asked("info") - asked("slots")
    };
    let until_probed = rounds() + 1;
    while rounds() < until_probed {
        crate::sleep_ms(50).await;
    }
    cluster.isolate(0);
    let before = rounds();
    node.append_at_last(&r, "after").await;
    let taken = rounds() - before;
    // Without a reason, the node reads the slots after 10 to 28 s.
    assert!(taken <= 3, "after {taken} rounds");
}

/// How often a server has been asked by a command.
pub(crate) fn calls(server: &RedisServer, command: &str) -> usize {
    let prefix = format!("cmdstat_{command}:calls=");
    let stats = server.command(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix(&prefix)?.split(',').next());
    line.map_or(0, |calls| calls.parse().unwrap())
}

/// How often the servers have been asked by this subcommand of `CLUSTER`.
pub(crate) fn asked(cluster: &RedisCluster, subcommand: &str) -> Vec<usize> {
    let command = format!("cluster|{subcommand}");
    cluster.nodes.iter().map(|server| calls(server, &command)).collect()
}

#[tokio::test]
async fn nodes_ask_for_the_slots_rarely_or_when_the_cluster_changes_and_not_always_the_same_server() {
    const NODES: usize = 12;
    let Some(cluster) = RedisCluster::start(0) else { return };
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        nodes.push(connected(&cluster.url(), options()).await);
    }
    let all = |subcommand| asked(&cluster, subcommand).iter().sum::<usize>();
    // Each node asks for the links once in each round of probes. The number of these requests gives the number of rounds.
    let rounds = async |count: usize| {
        let until = all("links") + count * NODES;
        while all("links") < until {
            crate::sleep_ms(50).await;
        }
    };
    rounds(1).await;
    let before = all("slots");
    rounds(2).await;
    let asked_idle = all("slots") - before;
    assert!(asked_idle <= NODES, "{asked_idle} times in two rounds");
    let before = all("slots");
    assert!(cluster.nodes[0].command(&["CLUSTER", "BUMPEPOCH"]).starts_with("BUMPED"));
    rounds(3).await;
    let asked_after = all("slots") - before;
    assert!(asked_after >= NODES, "{asked_after} times after the change");
    assert!(asked(&cluster, "slots").iter().all(|calls| *calls > 0), "{:?}", asked(&cluster, "slots"));
}
