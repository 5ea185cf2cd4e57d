//! Workers beside several nodes of a cluster are one application.

use crate::rig::{Rig, Worker, json, text};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_link::{
    Broadcast, Change, Handle, Messages, Namespace, Select, SelectFlags, ServerEntry, WorkerEntry,
};
use stentor_ports::fake;
use stentor_ports::{
    Busy, Done, LinkApp, LinkCarrier, LinkChange, LinkEntry, LinkList, LinkMessage, LinkNodeSink, LinkSelect,
    LinkSelected, LinkSession,
};
use tokio::time::timeout;

const ROOT: Namespace = Namespace(0);

/// Messages about applications, in order.
type Held = Vec<(Arc<str>, Bytes)>;

/// An engine that carries messages at once, unless they are held.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    sinks: Mutex<Vec<(u64, Arc<dyn LinkNodeSink>)>>,
    is_full: AtomicBool,
    /// Messages that are held, by sender and receiver.
    held: Mutex<BTreeMap<(u64, u64), Held>>,
    /// Maximum delay of a message behind a later one, in milliseconds.
    pub(crate) delay_ms: AtomicU64,
}

impl Engine {
    /// The service of a node.
    pub(crate) fn node(self: &Arc<Self>, node: u64) -> Rig {
        Rig::on(Arc::new(Port { engine: self.clone(), node }))
    }

    /// Holds the messages of a node to another one, until [`Self::release`].
    pub(crate) fn hold(&self, from: u64, to: u64) {
        self.held.lock().unwrap().entry((from, to)).or_default();
    }

    pub(crate) fn release(&self, from: u64, to: u64) {
        let held = self.held.lock().unwrap().remove(&(from, to));
        held.into_iter().flatten().for_each(|(app, message)| self.sink(to).receive(from, &app, &message));
    }

    /// A node is dead: it receives nothing any more.
    pub(crate) fn kill(&self, node: u64) {
        self.sinks.lock().unwrap().retain(|(other, _)| *other != node);
    }

    pub(crate) fn sink(&self, node: u64) -> Arc<dyn LinkNodeSink> {
        self.sinks.lock().unwrap().iter().find(|(found, _)| *found == node).unwrap().1.clone()
    }
}

/// A node's connection to the engine.
#[derive(Debug)]
struct Port {
    engine: Arc<Engine>,
    node: u64,
}

impl LinkCarrier for Port {
    fn join(&self, apps: &[Arc<str>], sink: Arc<dyn LinkNodeSink>) {
        assert_eq!(apps, ["chat".into(), "shop".into()]);
        sink.engine_changed(true);
        self.engine.sinks.lock().unwrap().push((self.node, sink));
    }

    fn carry(&self, app: &Arc<str>, node: Option<u64>, message: Bytes) -> Result<bool, Busy> {
        if self.engine.is_full.load(Ordering::Relaxed) {
            return Err(Busy);
        }
        let sinks = self.engine.sinks.lock().unwrap().clone();
        for (other, sink) in sinks {
            if other != self.node && node.is_none_or(|node| node == other) {
                match self.engine.held.lock().unwrap().get_mut(&(self.node, other)) {
                    Some(held) => held.push((app.clone(), message.clone())),
                    None => sink.receive(self.node, app, &message),
                }
            }
        }
        Ok(true)
    }

    fn delay_max(&self) -> Duration {
        Duration::from_millis(self.engine.delay_ms.load(Ordering::Relaxed))
    }

    fn list_links(&self, done: Done<LinkList>) {
        let sinks = self.engine.sinks.lock().unwrap().clone();
        done.answer(Ok(LinkList::new(sinks.iter().flat_map(|(_, sink)| sink.links()).collect())));
    }
}

fn declare(index: u16, name: &str) -> WorkerEntry {
    WorkerEntry::Nsp { namespace: Namespace(index), name: name.into() }
}

fn messages(content: &str) -> Messages {
    std::iter::once(text(content)).collect()
}

fn broadcast(content: &str, is_local: bool) -> WorkerEntry {
    let broadcast = Broadcast { is_local, messages: messages(content), ..Broadcast::default() };
    WorkerEntry::Broadcast { namespace: ROOT, broadcast }
}

fn select(target: &str, is_local: bool) -> WorkerEntry {
    let flags = SelectFlags { is_local, closes: false };
    let targets = vec![target.into()];
    let select = Select { change: Change::Join, flags, rooms: Vec::new(), except: Vec::new(), targets };
    WorkerEntry::Select { namespace: ROOT, select }
}

fn relay(namespace: u16, link: u32, body: &str) -> WorkerEntry {
    WorkerEntry::Relay {
        namespace: Namespace(namespace),
        link,
        body: json(body),
        messages: messages("arguments"),
    }
}

/// The text of a broadcast, or the target of a `Select`.
fn shown(entry: LinkEntry) -> String {
    match entry {
        LinkEntry::Broadcast(LinkApp(0), _, broadcast) => {
            let [LinkMessage::Text(text)] = &broadcast.messages[..] else { panic!("another message") };
            String::from_utf8(text.to_vec()).unwrap()
        }
        LinkEntry::Select(LinkApp(0), _, select) => format!("join {}", select.targets[0]),
        other => panic!("{other:?}"),
    }
}

/// Waits for PEERS with this number.
pub(crate) async fn peers(worker: &mut Worker, expect: u16) {
    let wait = async { while worker.next().await.unwrap() != (ServerEntry::Peers { count: expect }) {} };
    timeout(Duration::from_secs(60), wait).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn broadcasts_and_changes_reach_other_nodes_in_order() {
    let engine = Arc::<Engine>::default();
    let (mut here, mut there) = (engine.node(1), engine.node(2));
    let (mut a, a_link) = here.start("a").await;
    let (mut b, b_link) = there.start("b").await;
    b.write_handled(&[declare(0, "/"), broadcast("hello", false)]).await;
    assert_eq!(there.core().await, (b_link, broadcast_of("hello")));
    assert_eq!(here.core().await, (0, broadcast_of("hello")));
    a.write(&[
        declare(0, "/"),
        broadcast("1", false),
        select("r", false),
        broadcast("local", true),
        select("s", true),
        broadcast("2", false),
    ])
    .await;
    for (expect, is_shared) in
        [("1", true), ("join r", true), ("local", false), ("join s", false), ("2", true)]
    {
        let (link, entry) = here.core().await;
        assert_eq!((link, &*shown(entry)), (a_link, expect));
        if is_shared {
            let (link, entry) = there.core().await;
            assert_eq!((link, &*shown(entry)), (0, expect));
        }
    }
    // The worker at the other node learns of its sockets.
    there.open(1);
    let ServerEntry::Open { handle, .. } = b.entry().await else { panic!("no OPEN") };
    let select = Arc::new(LinkSelect {
        change: LinkChange::Join,
        is_local: false,
        rooms: Vec::new(),
        except: Vec::new(),
        targets: vec!["r".into()],
    });
    let sessions = vec![LinkSession::from_bits(1)];
    there.sink.report_selected(LinkSelected {
        app: LinkApp(0),
        link: 0,
        namespace: "/".into(),
        select,
        sessions,
    });
    let (handles, rooms): (Vec<Handle>, _) = (vec![handle], vec!["r".into()]);
    assert_eq!(
        b.entry().await,
        ServerEntry::Members { namespace: ROOT, change: Change::Join, handles, rooms }
    );
    assert_eq!(there.metric("link_cluster_messages_refused", &["chat"]), 0);
}

fn broadcast_of(content: &str) -> LinkEntry {
    LinkEntry::Broadcast(LinkApp(0), "/".into(), fake::broadcast(&[], &[], content))
}

#[tokio::test(start_paused = true)]
async fn requests_and_answers_travel_between_nodes() {
    let engine = Arc::<Engine>::default();
    let (here, there, mut third) = (engine.node(1), engine.node(2), engine.node(3));
    let (mut a, a_link) = here.start("a").await;
    let (mut b, b_link) = there.start("b").await;
    peers(&mut a, 2).await;
    b.write_handled(&[declare(0, "/none"), declare(1, "/")]).await;
    a.write(&[declare(0, "/"), declare(1, "/own"), relay(0, 0, r#"{"id":7}"#)]).await;
    let ServerEntry::Relayed { namespace, link, body, messages: arguments } = b.entry().await else {
        panic!()
    };
    assert_eq!((namespace, body.as_str(), &arguments), (Namespace(1), r#"{"id":7}"#, &messages("arguments")));
    assert!(link != a_link && link != b_link, "the other node's link has a number of its own");
    // The answer is for one node, a broadcast of the same turn for all.
    b.write(&[relay(1, link, r#"{"answer":1}"#), broadcast("after", false)]).await;
    assert_eq!(shown(third.core().await.1), "after");
    let ServerEntry::Relayed { namespace, link: of_b, body, .. } = a.entry().await else { panic!() };
    assert_eq!((namespace, body.as_str()), (ROOT, r#"{"answer":1}"#));
    // A request to that worker alone.
    a.write(&[relay(0, of_b, "[]")]).await;
    let ServerEntry::Relayed { link: same, body, .. } = b.entry().await else { panic!() };
    assert_eq!((same, body.as_str()), (link, "[]"));
    // The other node answers for its worker, which hasn't the namespace.
    a.write(&[relay(1, 0, r#"{"id":8}"#)]).await;
    let ServerEntry::Relayed { namespace, link, body, .. } = a.entry().await else { panic!() };
    assert_eq!((namespace, link, body.as_str()), (Namespace(1), of_b, r#"{"k":"none","id":8}"#));
}

#[tokio::test(start_paused = true)]
async fn workers_of_all_nodes_count_as_long_as_they_can_be_reached() {
    let engine = Arc::<Engine>::default();
    let (here, there) = (engine.node(1), engine.node(2));
    let (mut a, _) = here.start("a").await;
    let (b, _) = there.start("b").await;
    peers(&mut a, 2).await;
    let (c, _) = there.start("c").await;
    peers(&mut a, 3).await;
    drop(c);
    peers(&mut a, 2).await;
    // A node that joins later learns of the workers.
    let third = engine.node(3);
    let (mut d, _) = third.start("d").await;
    peers(&mut a, 3).await;
    assert_eq!(third.metric("link_cluster_workers", &["chat"]), 2);
    // Without the engine, a node is alone.
    engine.sink(3).engine_changed(false);
    peers(&mut d, 1).await;
    d.write_handled(&[declare(0, "/"), broadcast("lost", false)]).await;
    assert_eq!(third.metric("link_cluster_entries_dropped", &["chat"]), 1);
    engine.sink(3).engine_changed(true);
    peers(&mut d, 3).await;
    // A node that ends says so, and a dead one is reported, or silent for long.
    there.workers.stop();
    peers(&mut a, 2).await;
    drop(b);
    engine.sink(1).node_left(3);
    peers(&mut a, 1).await;
    peers(&mut a, 2).await;
    engine.sinks.lock().unwrap().retain(|(node, _)| *node == 1);
    third.service.abort();
    peers(&mut a, 1).await;
    assert_eq!(here.metric("link_cluster_workers", &["chat"]), 0);
}

#[tokio::test(start_paused = true)]
async fn a_worker_waits_while_the_engine_has_no_room() {
    let engine = Arc::<Engine>::default();
    let (mut here, mut there) = (engine.node(1), engine.node(2));
    let (mut a, _) = here.start("a").await;
    a.write_handled(&[declare(0, "/"), broadcast("0", false)]).await;
    here.core().await;
    assert_eq!(shown(there.core().await.1), "0");
    engine.is_full.store(true, Ordering::Relaxed);
    a.write(&[broadcast("1", false)]).await;
    assert_eq!(shown(here.core().await.1), "1");
    a.write(&[broadcast("2", false)]).await;
    assert!(timeout(Duration::from_secs(1), here.core()).await.is_err(), "the frame isn't read");
    assert!(here.held_bytes() > 0);
    engine.is_full.store(false, Ordering::Relaxed);
    assert_eq!(shown(here.core().await.1), "2");
    for expect in ["1", "2"] {
        assert_eq!(shown(there.core().await.1), expect);
    }
    assert_eq!(here.metric("link_cluster_entries_dropped", &["chat"]), 0);
    // The loss of the engine ends the wait.
    engine.is_full.store(true, Ordering::Relaxed);
    a.write(&[broadcast("3", false)]).await;
    assert_eq!(shown(here.core().await.1), "3");
    a.write(&[broadcast("4", false)]).await;
    engine.sink(1).engine_changed(false);
    assert_eq!(shown(here.core().await.1), "4");
    a.write_handled(&[]).await;
    assert_eq!(here.metric("link_cluster_entries_dropped", &["chat"]), 2);
}

#[tokio::test(start_paused = true)]
async fn malformed_messages_are_refused_and_counted() {
    let engine = Arc::<Engine>::default();
    let mut here = engine.node(1);
    let sink = engine.sink(1);
    for message in [&b""[..], b"\0\0\0\0\0\0\0\0\x09", b"\0\0\0\0\0\0\0\0\x02\xff\xff"] {
        sink.receive(2, "chat", &Bytes::from_static(message));
    }
    sink.receive(2, "unknown", &Bytes::new());
    let (mut a, _) = here.start("a").await;
    a.write_handled(&[declare(0, "/"), broadcast("1", false)]).await;
    assert_eq!(shown(here.core().await.1), "1");
    assert_eq!(here.metric("link_cluster_messages_refused", &["chat"]), 3);
}

/// The cores of a node are full, so its link takes no messages of other nodes. Another application's messages aren't dropped.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_behind_drops_messages_and_nobody_waits_for_it() {
    const LARGE: usize = 1 << 20;
    let engine = Arc::<Engine>::default();
    let (here, mut there) = (engine.node(1), engine.node(2));
    let (mut a, _) = here.start("a").await;
    let (mut b, _) = there.start("b").await;
    let mut shop = here.connect("app=shop", Some("shop-token")).await;
    shop.hello_with("s", None, "", r#"{"path":"/shop"}"#).await;
    shop.welcome().await;
    peers(&mut a, 2).await;
    b.write_handled(&[declare(0, "/")]).await;
    *there.is_full.lock().unwrap() = true;
    b.write(&[broadcast("own", true)]).await;
    assert_eq!(b.entries_of(Duration::from_millis(1)).await, ["PEERS"]);
    a.write_handled(&[declare(0, "/")]).await;
    for n in 0..8 {
        a.write_handled(&[broadcast(&n.to_string().repeat(LARGE), false)]).await;
    }
    a.write_handled(&[relay(0, 0, r#"{"id":7}"#)]).await;
    // Changes of sockets are kept up to twice the share, and aren't in a message with broadcasts.
    a.write_handled(&[broadcast("dropped", false), select("r", false)]).await;
    for n in 0..8 {
        let WorkerEntry::Select { namespace, mut select } = select(&n.to_string(), false) else { panic!() };
        select.rooms = vec!["x".repeat(LARGE / 16 - 1).into(); 16];
        a.write_handled(&[WorkerEntry::Select { namespace, select }]).await;
    }
    shop.write_handled(&[declare(0, "/"), broadcast("of another application", false)]).await;
    // Half of the bound, because there are two applications.
    let dropped = there.metric("link_cluster_messages_dropped", &["chat"]);
    assert_eq!((dropped, there.metric("link_cluster_messages_dropped", &["shop"])), (10, 0));
    assert!((8 * LARGE..9 * LARGE).contains(&there.held_bytes()));
    *there.is_full.lock().unwrap() = false;
    there.sink.space();
    assert_eq!(shown(there.core().await.1), "own");
    for n in 0..4 {
        assert_eq!(shown(there.core().await.1), n.to_string().repeat(LARGE));
    }
    for target in ["r", "0", "1", "2", "3"] {
        assert_eq!(shown(there.core().await.1), format!("join {target}"));
    }
    assert!(matches!(there.core().await.1, LinkEntry::Broadcast(LinkApp(1), ..)));
    // The worker has no request, and later messages arrive.
    a.write_handled(&[broadcast("after", false)]).await;
    assert_eq!(shown(there.core().await.1), "after");
    assert_eq!(b.entries_of(Duration::from_secs(1)).await, [""; 0]);
    assert_eq!(there.metric("link_cluster_messages_dropped", &["chat"]), dropped);
}

#[tokio::test(start_paused = true)]
async fn workers_beside_all_nodes_have_the_same_options() {
    let engine = Arc::<Engine>::default();
    let (here, there) = (engine.node(1), engine.node(2));
    let refused = async |rig: &Rig, fields: &str, options: &str, expect: &str| {
        let mut worker = rig.connect("app=chat", None).await;
        worker.hello_with("other", None, fields, options).await;
        let begin = "the options differ from those of";
        let message = format!(r#"{{"code":"options_conflict","message":"{begin} {expect}"}}"#);
        assert_eq!(worker.error().await, message.replace('\'', r#"\""#));
    };
    let begin = async |rig: &Rig, fields: &str, options: &str| {
        let mut worker = rig.connect("app=chat", None).await;
        worker.hello_with("a", None, fields, options).await;
        worker.welcome().await;
        worker
    };
    let recovery = r#","recovery":{"maxDisconnectionDuration":5000}"#;
    let mut a = begin(&here, recovery, r#"{"path":"/a/"}"#).await;
    for (fields, options, expect) in [
        (recovery, r#"{"path":"/b/"}"#, "`path` is '/b/', and '/a/' there"),
        ("", r#"{"path":"/a/"}"#, "`connectionStateRecovery` is not set, and 5000 ms there"),
        (r#","parser":"opaque""#, r#"{"path":"/a/"}"#, "one of both has a custom `parser`"),
    ] {
        refused(&there, fields, options, &format!("the workers beside other nodes: {expect}")).await;
        refused(&here, fields, options, &format!("the running workers: {expect}")).await;
    }
    let b = begin(&there, recovery, r#"{"path":"/a/"}"#).await;
    peers(&mut a, 2).await;
    assert_eq!(here.metric("link_cluster_conflicts", &["chat"]), 0);
    // While the engine is away, a node can't know the others. The difference is found later, and the running workers stay.
    drop(b);
    peers(&mut a, 1).await;
    engine.sink(2).engine_changed(false);
    let mut b = begin(&there, "", r#"{"path":"/b/"}"#).await;
    engine.sink(2).engine_changed(true);
    peers(&mut b, 2).await;
    peers(&mut a, 2).await;
    let conflicts = || [&here, &there].map(|rig| rig.metric("link_cluster_conflicts", &["chat"]));
    assert_eq!(conflicts(), [1, 1]);
    refused(
        &there,
        recovery,
        r#"{"path":"/a/"}"#,
        "the running workers: `connectionStateRecovery` is 5000 ms, and not set there",
    )
    .await;
    drop(a);
    peers(&mut b, 1).await;
    assert_eq!(conflicts(), [0, 0]);
    // The former workers of the other node decide nothing.
    let mut a = begin(&here, "", r#"{"path":"/b/"}"#).await;
    peers(&mut a, 2).await;
    assert_eq!(conflicts(), [0, 0]);
}
