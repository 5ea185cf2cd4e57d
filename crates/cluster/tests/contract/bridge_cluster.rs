//! Namespaces shared with Socket.IO's servers over a Redis Cluster. The user has only the permissions listed in
//! docs/cluster.md.

use crate::redis_cluster::{PRIMARIES, RedisCluster, asked, calls};
use crate::redis_server::RedisServer;
use crate::sleep_ms;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_cluster::bridge::{Bridges, Options};
use stentor_cluster::engine::{Address, Limits};
use stentor_cluster_settings::{Adapter, ClassicParser, SubscriptionMode};
use stentor_hub::{Data, Room, Topic};
use stentor_ports::fake::{self, Call};
use stentor_ports::{Broadcast, Broker, Ledger, MetricSource};
use tokio::sync::watch;
use tokio::time::timeout;

/// Timeout of each wait. No step takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Permissions that docs/cluster.md adds for clusters.
const CLUSTER_PERMISSIONS: &str = "+cluster|info +cluster|slots";

/// The permissions of the user for bridges, from docs/cluster.md.
fn permissions() -> String {
    let page = include_str!("../../../../docs/cluster.md");
    assert!(page.contains(&format!("In a Redis Cluster also: `{CLUSTER_PERMISSIONS}`.")));
    let mut users = page.lines().filter_map(|line| line.strip_prefix("ACL SETUSER "));
    let user = users.find(|user| user.contains("&socketio*")).unwrap();
    format!("{user} {CLUSTER_PERMISSIONS}")
}

/// A data plane that records the texts of the events that it receives.
#[derive(Default)]
struct Plane(Mutex<Vec<String>>);

impl Plane {
    fn data_plane(self: &Arc<Self>) -> Arc<fake::Node> {
        let this = self.clone();
        Arc::new(fake::Node::new(move |call| {
            let Call::Receive(message, _) = call else { return Ok(()) };
            let Data::Arguments { json, .. } = message.data else { panic!("{:?}", message.data) };
            let text: String = serde_json::from_slice(&json).unwrap();
            let rooms: Vec<&str> = message.rooms.iter().map(Room::name).collect();
            this.0.lock().unwrap().push(format!("{text} to {}", rooms.join(", ")));
            Ok(())
        }))
    }
}

/// A node that shares the namespace `/` and has a member of the room `red`.
struct Member {
    bridges: Arc<Bridges>,
    plane: Arc<Plane>,
    _stop: watch::Sender<bool>,
}

fn red() -> Room {
    Room::plain("red").unwrap()
}

impl Member {
    async fn start(url: String, adapter: Adapter) -> Self {
        let options = Options {
            address: Address::parse(&url).unwrap(),
            ca_file: None,
            identity: None,
            wait: false,
            limits: Limits::default(),
            prefix: adapter.default_prefix().into(),
            namespaces: vec!["/".into()],
            adapter,
            mode: SubscriptionMode::default(),
            parser: ClassicParser::default(),
        };
        let bridges = Bridges::new(&[options], None, &Arc::new(Ledger::new(1 << 30))).unwrap();
        bridges.set_interest(&Topic::Room(red()), true);
        let connections = bridges.connect().await.unwrap();
        let (plane, (stop, stopped)) = (Arc::<Plane>::default(), watch::channel(false));
        tokio::spawn(bridges.clone().run(connections, plane.data_plane(), stopped));
        let member = Self { bridges, plane, _stop: stop };
        until("the bridge is up", || member.metric("bridge_up") == 1).await;
        member
    }

    fn metric(&self, name: &str) -> u64 {
        let all = self.bridges.metrics();
        let metric = all.iter().find(|metric| metric.name == name).unwrap();
        metric.samples.iter().map(|(_, value)| value).sum()
    }

    fn say(&self, text: &str) {
        let message = Broadcast {
            id: 0,
            rooms: red().into(),
            except_rooms: Vec::new(),
            except_sessions: Vec::new(),
            event: Some("say".into()),
            data: Data::Json(format!("{text:?}").into()),
            volatile: false,
        };
        assert_eq!(self.bridges.publish(&message), Ok(()));
    }

    /// Returns `true` if the node has received a text that begins with `text`.
    fn has(&self, text: &str) -> bool {
        self.plane.0.lock().unwrap().iter().any(|received| received.starts_with(text))
    }

    /// Returns the texts received since the last call, except those that prove the connections.
    fn take(&self) -> Vec<String> {
        let received = std::mem::take(&mut *self.plane.0.lock().unwrap());
        received.into_iter().filter(|text| !text.contains("met")).collect()
    }
}

async fn until(what: &str, mut is_done: impl FnMut() -> bool) {
    let wait = async {
        while !is_done() {
            sleep_ms(20).await;
        }
    };
    assert!(timeout(PATIENCE, wait).await.is_ok(), "in vain: {what}");
}

/// Repeats a message until all `members` have received it.
async fn meet(say: impl Fn(&str), text: &str, members: &[&Member]) {
    until(text, || {
        say(text);
        members.iter().all(|member| member.has(text))
    })
    .await;
}

/// Publishes a message on one of the servers, as the package `python-socketio` does.
fn say_in_python(server: &RedisServer, text: &str) {
    let message = format!(
        r#"{{"method": "emit", "event": "say", "data": ["{text}"], "binary": false, "namespace": "/", "room": "red", "skip_sid": null, "callback": null, "host_id": "0123456789abcdef0123456789abcdef"}}"#
    );
    // The reply must be a number: the clients that receive the message.
    server.command(&["PUBLISH", "socketio", &message]).trim().parse::<u64>().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_adapter_works_on_a_redis_cluster_with_the_permissions_of_the_page() {
    let Some(cluster) = RedisCluster::with_user(0, "60000", &permissions()) else { return };
    for adapter in [Adapter::Classic, Adapter::Sharded, Adapter::Python] {
        let (a, b) = tokio::join!(
            Member::start(cluster.url_at(0), adapter),
            Member::start(cluster.url_at(1), adapter)
        );
        meet(|text| a.say(text), "a met b", &[&b]).await;
        meet(|text| b.say(text), "b met a", &[&a]).await;
        for (publisher, receiver) in [(&a, &b), (&b, &a)] {
            publisher.take();
            receiver.take();
            (0..20).for_each(|n| publisher.say(&format!("{n}")));
            publisher.say("end");
            until("all has arrived", || receiver.has("end")).await;
            let texts = (0..20).map(|n| n.to_string()).chain(["end".into()]);
            let expected: Vec<String> = texts.map(|text| format!("{text} to red")).collect();
            assert_eq!(receiver.take(), expected, "{adapter:?}");
            assert_eq!(publisher.take(), [""; 0], "{adapter:?}: its own");
        }
        for name in [
            "bridge_messages_refused",
            "bridge_messages_not_sent",
            "bridge_messages_dropped",
            "bridge_connection_losses",
        ] {
            assert_eq!((a.metric(name), b.metric(name)), (0, 0), "{adapter:?}: {name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sharded_channels_leave_a_primary_that_is_cut_off_and_replaced() {
    let Some(cluster) = RedisCluster::with_user(1, "60000", &permissions()) else { return };
    let (_, primary) = cluster.slot_of("socket.io#/#red#");
    let other = (primary + 1) % PRIMARIES;
    let a = Member::start(cluster.url_at(other), Adapter::Sharded).await;
    // The bridge reads the slots once more soon after its start.
    let slots_read = || asked(&cluster, "slots").iter().sum::<usize>();
    let at_start = slots_read();
    until("the slots are read again", || slots_read() > at_start).await;
    cluster.isolate(primary);
    // This bridge connects to the new primary.
    let b = Member::start(cluster.url_at(other), Adapter::Sharded).await;
    // Each bridge checks its connection to this server in each round of probes.
    let checks = || calls(&cluster.nodes[other], "info");
    let before = checks();
    meet(|text| a.say(text), "a met b", &[&b]).await;
    meet(|text| b.say(text), "b met a", &[&a]).await;
    let taken = checks() - before;
    // Without a reason, a bridge reads the slots after 10 to 28 s.
    assert!(taken <= 6, "after {taken} checks");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_in_python_reach_each_node_at_whichever_primary_they_publish() {
    let Some(cluster) = RedisCluster::with_user(0, "60000", &permissions()) else { return };
    let (a, b) = tokio::join!(
        Member::start(cluster.url_at(0), Adapter::Python),
        Member::start(cluster.url_at(1), Adapter::Python)
    );
    for (n, server) in cluster.nodes.iter().enumerate() {
        let (met, once) = (format!("met {n}"), format!("once {n}"));
        meet(|text| say_in_python(server, text), &met, &[&a, &b]).await;
        say_in_python(server, &once);
        until("it has arrived", || a.has(&once) && b.has(&once)).await;
    }
    // Messages arrive in order on a connection, so a later one shows that no message has come twice.
    for server in &cluster.nodes {
        say_in_python(server, "end");
    }
    for member in [&a, &b] {
        let ends = || member.plane.0.lock().unwrap().iter().filter(|text| text.starts_with("end")).count();
        until("all has arrived", || ends() == 3).await;
        let once = member.take().into_iter().filter(|text| text.starts_with("once"));
        assert_eq!(once.collect::<Vec<_>>(), ["once 0 to red", "once 1 to red", "once 2 to red"]);
        assert_eq!(member.metric("bridge_messages_refused"), 0);
    }
}
