//! Clients that return to another node of a cluster.

use crate::nodes::{Engine, peers};
use crate::recovery::{RECOVERY, ROOT, add, broadcast, declare, lose, opened, persist, restore, restored};
use crate::rig::{Rig, Worker, json, text};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stentor_link::{Broadcast, Handle, Messages, Name, Names, NodeEntry, ServerEntry, WorkerEntry, Writer};
use stentor_ports::fake::names;
use stentor_ports::{
    LinkApp, LinkBroadcast, LinkChange, LinkEntry, LinkMessage, LinkSelect, LinkSelected, LinkSession,
    LinkSocket,
};
use tokio::time::Instant;

const FOUND: &str = r#"{"sid":"id","rooms":["id","r"],"data":{"name":"Ann"}}"#;

fn to_all(offset: &str) -> WorkerEntry {
    broadcast(offset, Vec::new(), Vec::new())
}

/// Nodes with a worker each, which know each other. All but the first of several have declared the namespace.
async fn start(engine: &Arc<Engine>, count: u64) -> Vec<(Rig, Worker)> {
    let mut nodes = Vec::new();
    for node in 1..=count {
        let rig = engine.node(node);
        let (worker, _) = rig.start_with("worker", RECOVERY).await;
        nodes.push((rig, worker));
    }
    for (index, (_, worker)) in nodes.iter_mut().enumerate() {
        if count > 1 {
            peers(worker, count as u16).await;
        }
        if index > 0 || count == 1 {
            worker.write_handled(&[declare()]).await;
        }
    }
    nodes
}

/// A client of node 1 with the rooms `id` and `r` has received the message `seen`, and is disconnected.
async fn start_with_lost_client(engine: &Arc<Engine>, count: u64) -> Vec<(Rig, Worker)> {
    let mut nodes = start(engine, count).await;
    let (rig, worker) = &mut nodes[0];
    lose(rig, worker, &names(&["id", "r"])).await;
    nodes
}

/// A client returns to a node. Its handle there.
async fn come((rig, worker): &mut (Rig, Worker), session: u64) -> Handle {
    rig.open(session);
    let handle = opened(worker).await;
    worker.write(&[restore(handle, "pid", "seen")]).await;
    handle
}

fn text_of(message: &LinkMessage) -> String {
    String::from_utf8(message.data().to_vec()).unwrap()
}

/// The worker has a socket for the client. The broadcasts that the cores of the node have received before, and the messages that the client
/// has missed.
async fn added((rig, worker): &mut (Rig, Worker), handle: Handle) -> (Vec<String>, Vec<String>) {
    worker.write_handled(&[add(handle, "id", "pid", &names(&["id", "r"]))]).await;
    let (mut before, mut missed) = (Vec::new(), Vec::new());
    let mut is_added = false;
    for (_, entry) in rig.core_entries() {
        match entry {
            LinkEntry::Broadcast(_, _, sent) if !is_added => before.push(text_of(&sent.messages[0])),
            LinkEntry::Add { .. } => is_added = true,
            LinkEntry::Send { messages, .. } => missed.extend(messages.iter().map(text_of)),
            _ => {}
        }
    }
    assert!(is_added);
    (before, missed)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_returns_to_another_node_is_recovered_there() {
    let engine = Arc::<Engine>::default();
    let mut nodes = start_with_lost_client(&engine, 3).await;
    let held_bytes = nodes[1].0.held_bytes();
    // The client's former node is behind.
    engine.hold(3, 1);
    nodes[2].1.write_handled(&[to_all("3.1")]).await;
    nodes[0].1.write_handled(&[broadcast("1.1", names(&["r"]), Vec::new())]).await;
    nodes[1].1.write_handled(&[to_all("2.1"), broadcast("no", names(&["x"]), Vec::new())]).await;
    let handle = come(&mut nodes[1], 2).await;
    assert_eq!(restored(&mut nodes[1].1).await, FOUND);
    engine.release(3, 1);
    nodes[2].1.write_handled(&[to_all("3.2")]).await;
    let (before, missed) = added(&mut nodes[1], handle).await;
    assert_eq!(before, ["seen", "3.1", "1.1", "2.1", "no", "3.2"]);
    assert_eq!(missed, ["1.1", "2.1", "3.1", "3.2"]);
    let metric = |node: usize, name: &str, label: &str| nodes[node].0.metric(name, &[label]);
    assert_eq!((metric(1, "link_recoveries", "recovered"), metric(1, "link_recoveries", "failed")), (1, 0));
    assert_eq!(metric(0, "link_recovery_sockets", "chat"), 0);
    assert!(nodes[1].0.held_bytes() > held_bytes, "the log");
    // The client has one socket.
    come(&mut nodes[0], 3).await;
    assert_eq!(restored(&mut nodes[0].1).await, "null");
}

/// A node that drains waits until it keeps no socket.
#[tokio::test(start_paused = true)]
async fn a_node_keeps_sockets_until_other_nodes_have_taken_them() {
    let engine = Arc::<Engine>::default();
    let mut nodes = start_with_lost_client(&engine, 2).await;
    assert!(nodes[0].0.sink.keeps_sockets());
    nodes[0].0.core_entries();
    come(&mut nodes[1], 2).await;
    assert_eq!(restored(&mut nodes[1].1).await, FOUND);
    // The cores are notified.
    nodes[0].0.space().await;
    assert!(!nodes[0].0.sink.keeps_sockets());
    // Without a cluster, no other node takes sockets.
    let mut rig = Rig::new();
    let (mut worker, _) = rig.start_with("worker", RECOVERY).await;
    lose(&mut rig, &mut worker, &names(&["id", "r"])).await;
    assert_eq!((rig.metric("link_recovery_sockets", &["chat"]), rig.sink.keeps_sockets()), (1, false));
}

/// The engine has several servers: a message of the client's former node may arrive before one that this node has had.
#[tokio::test(start_paused = true)]
async fn a_node_waits_for_the_broadcasts_that_the_former_one_has_had() {
    let engine = Arc::<Engine>::default();
    engine.delay_ms.store(50, Ordering::Relaxed);
    let mut nodes = start_with_lost_client(&engine, 3).await;
    engine.hold(3, 2);
    nodes[2].1.write_handled(&[to_all("3.1")]).await;
    nodes[0].1.write_handled(&[]).await;
    let handle = come(&mut nodes[1], 2).await;
    assert_eq!(nodes[1].1.entries_of(Duration::from_millis(40)).await, [""; 0]);
    engine.release(3, 2);
    assert_eq!(restored(&mut nodes[1].1).await, FOUND);
    assert_eq!(added(&mut nodes[1], handle).await, (vec!["seen".into(), "3.1".into()], vec!["3.1".into()]));
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_node_is_gone_starts_a_new_session_in_time() {
    const AT_ONCE: Duration = Duration::from_millis(50);
    let search_time = Duration::from_secs(2);
    for (case, count, expect) in [
        ("nobody has it", 3, Duration::ZERO),
        ("alone", 1, Duration::ZERO),
        ("dead", 3, search_time),
        ("reported", 2, AT_ONCE),
        ("without an engine", 2, AT_ONCE),
    ] {
        let engine = Arc::<Engine>::default();
        let mut nodes = start(&engine, count).await;
        let held_bytes = nodes[count as usize - 1].0.held_bytes();
        if count > 1 && case != "nobody has it" {
            engine.kill(1);
        }
        let start = Instant::now();
        let node = nodes.last_mut().unwrap();
        come(node, 2).await;
        if expect == AT_ONCE {
            assert_eq!(node.1.entries_of(AT_ONCE).await, [""; 0], "{case}");
            assert!(node.0.held_bytes() > held_bytes, "{case}");
            assert_eq!(node.0.metric("link_recovery_searches", &["chat"]), 1, "{case}");
        }
        match case {
            "reported" => engine.sink(count).node_left(1),
            "without an engine" => engine.sink(count).engine_changed(false),
            _ => {}
        }
        assert_eq!(restored(&mut node.1).await, "null", "{case}");
        let time = start.elapsed();
        assert!(time >= expect && time < expect + Duration::from_millis(20), "{case}: {time:?}");
        assert_eq!(node.0.metric("link_recoveries", &["failed"]), 1, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_arrives_after_the_end_of_the_session_is_dropped() {
    let engine = Arc::<Engine>::default();
    let mut nodes = start_with_lost_client(&engine, 2).await;
    engine.hold(1, 2);
    come(&mut nodes[1], 2).await;
    nodes[1].1.write_handled(&[]).await;
    nodes[0].1.write_handled(&[]).await;
    nodes[1].0.close(2);
    engine.release(1, 2);
    let (rig, worker) = &mut nodes[1];
    assert_eq!(worker.entries_of(Duration::from_secs(5)).await, ["CLOSED"]);
    assert_eq!(rig.metric("link_recovery_sockets", &["chat"]), 0);
    come(&mut nodes[1], 3).await;
    assert_eq!(restored(&mut nodes[1].1).await, "null");
}

#[tokio::test(start_paused = true)]
async fn answers_of_other_nodes_are_checked() {
    let with_had = r#"{"sid":"id","rooms":["id","r"],"data":{"name":"Ann"},"last":"seen","had":{"own":1,"yours":0,"others":[]}}"#;
    for (node, socket, is_refused, expect) in [
        (1, with_had, false, Some(FOUND)),
        (1, "null", false, Some("null")),
        (1, FOUND, true, Some("null")),
        (1, "[]", true, Some("null")),
        // A node that wasn't asked.
        (9, with_had, false, None),
    ] {
        let engine = Arc::<Engine>::default();
        let mut nodes = start(&engine, 2).await;
        engine.kill(1);
        come(&mut nodes[1], 2).await;
        let taken = |request| {
            let mut writer = Writer::default();
            writer.entry(&NodeEntry::Taken { request, socket: json(socket), missed: Messages::new() });
            writer.finish(0, 0).to_bytes()
        };
        nodes[1].1.write_handled(&[]).await;
        let receive = |message: Bytes| engine.sink(2).receive(node, "chat", &message);
        receive(taken(7));
        receive(taken(1));
        let (rig, worker) = &mut nodes[1];
        match expect {
            Some(expect) => assert_eq!(restored(worker).await, expect, "{socket}"),
            None => assert_eq!(worker.entries_of(Duration::from_secs(1)).await, [""; 0]),
        }
        assert_eq!(rig.metric("link_cluster_messages_refused", &["chat"]), u64::from(is_refused), "{socket}");
    }
}

/// The answers to many questions at once take much more memory than the questions.
#[tokio::test(start_paused = true)]
async fn a_node_gives_only_as_many_sockets_at_once_as_the_other_node_takes() {
    const CLIENTS: u64 = 40;
    let engine = Arc::<Engine>::default();
    let mut nodes = start(&engine, 2).await;
    let pid = |session: u64| format!("p{session}");
    let rooms = names(&["id"]);
    let (rig, worker) = &mut nodes[0];
    worker.write_handled(&[declare()]).await;
    for session in 1..=CLIENTS {
        rig.open(session);
        let handle = opened(worker).await;
        worker.write_handled(&[add(handle, "id", &pid(session), &rooms)]).await;
    }
    let messages = std::iter::once(text(&"x".repeat(400 << 10))).collect();
    let long = Broadcast { offset: Some("long".into()), messages, ..Broadcast::default() };
    let long = WorkerEntry::Broadcast { namespace: ROOT, broadcast: long };
    worker.write_handled(&[to_all("seen"), long]).await;
    for session in 1..=CLIENTS {
        rig.close(session);
        while !matches!(worker.entry().await, ServerEntry::Closed { .. }) {}
        worker.write_handled(&[persist("id", &pid(session), &rooms)]).await;
    }
    let (rig, worker) = &mut nodes[1];
    let mut asked = Vec::new();
    for session in 1..=CLIENTS {
        rig.open(session);
        asked.push(restore(opened(worker).await, &pid(session), "seen"));
    }
    worker.write(&asked).await;
    let mut recovered = 0;
    for _ in 0..CLIENTS {
        recovered += u64::from(restored(worker).await != "null");
    }
    assert_eq!(recovered, 6, "2 MiB and one socket");
    assert_eq!(nodes[0].0.metric("link_recovery_sockets", &["chat"]), CLIENTS - recovered);
}

/// A client leaves a namespace and connects again, with another private id each time.
#[tokio::test(start_paused = true)]
async fn a_client_causes_few_questions_to_other_nodes() {
    let engine = Arc::<Engine>::default();
    let mut nodes = start(&engine, 2).await;
    let (rig, worker) = &mut nodes[1];
    let before = rig.metric("link_cluster_entries_sent", &["chat"]);
    rig.open(2);
    let handle = opened(worker).await;
    let asked: Vec<WorkerEntry> = (0..40).map(|n| restore(handle, &format!("p{n}"), "seen")).collect();
    worker.write(&asked).await;
    for _ in &asked {
        assert_eq!(restored(worker).await, "null");
    }
    assert_eq!(rig.metric("link_cluster_entries_sent", &["chat"]), before + 32);
}

/// The answer to a worker that is behind would end its link.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_behind_recovers_no_client() {
    let engine = Arc::<Engine>::default();
    let mut nodes = start_with_lost_client(&engine, 2).await;
    let (rig, worker) = &mut nodes[0];
    rig.open(2);
    let handle = opened(worker).await;
    let change = LinkSelect {
        change: LinkChange::Join,
        is_local: false,
        rooms: Vec::new(),
        except: Vec::new(),
        targets: vec!["x".repeat(60_000).into(); 15],
    };
    let select = Arc::new(change);
    for _ in 0..5 {
        let (namespace, select, sessions) = ("/".into(), select.clone(), vec![LinkSession::from_bits(2)]);
        rig.sink.report_selected(LinkSelected { app: LinkApp(0), link: 0, namespace, select, sessions });
    }
    worker.write(&[restore(handle, "pid", "seen")]).await;
    assert_eq!(restored(worker).await, "null");
    worker.write_handled(&[]).await;
    worker.write(&[restore(handle, "pid", "seen")]).await;
    assert_eq!(restored(worker).await, FOUND);
}

/// A client, and its place: a node, a session there, and its handle.
struct Client {
    id: String,
    place: Option<(usize, u64, Handle)>,
    /// The node of its last place.
    node: usize,
    received: Vec<String>,
    expected: BTreeSet<String>,
    /// Number of messages that it had received when it had returned from another node.
    complete: usize,
}

/// Random broadcasts of three nodes whose messages are delayed, and clients that leave a node and return to any.
struct Random {
    rng: fastrand::Rng,
    engine: Arc<Engine>,
    nodes: Vec<(Rig, Worker)>,
    clients: Vec<Client>,
    /// Rooms of the socket of each session, as a core has them, by node.
    sockets: Vec<BTreeMap<u64, Names>>,
    last: u64,
    held: BTreeSet<(u64, u64)>,
    moved: usize,
    /// Number of clients that started a new session.
    lost: usize,
}

impl Random {
    /// Handles what has arrived at a node.
    async fn run(&mut self, node: usize, entries: &[WorkerEntry]) {
        self.nodes[node].1.write_handled(entries).await;
        for (_, entry) in self.nodes[node].0.core_entries() {
            match entry {
                LinkEntry::Add { session, socket } => {
                    self.sockets[node].insert(session.to_bits(), socket.rooms);
                }
                LinkEntry::Send { session, messages, .. } => {
                    messages.iter().for_each(|message| self.deliver(node, session.to_bits(), message));
                }
                LinkEntry::Broadcast(_, _, sent) => {
                    let LinkBroadcast { rooms, messages, .. } = &*sent;
                    let is_for = |of: &Names| rooms.is_empty() || rooms.iter().any(|room| of.contains(room));
                    let sessions: Vec<u64> =
                        self.sockets[node].iter().filter(|(_, of)| is_for(of)).map(|(id, _)| *id).collect();
                    sessions.into_iter().for_each(|session| self.deliver(node, session, &messages[0]));
                }
                _ => {}
            }
        }
    }

    fn deliver(&mut self, node: usize, session: u64, message: &LinkMessage) {
        let is_at =
            |client: &&mut Client| client.place.is_some_and(|place| (place.0, place.1) == (node, session));
        let client = self.clients.iter_mut().find(is_at).unwrap();
        let text = text_of(message);
        assert!(!client.received.contains(&text), "{} received {text} twice", client.id);
        client.received.push(text);
    }

    async fn release(&mut self, (from, to): (u64, u64)) {
        if self.held.remove(&(from, to)) {
            self.engine.release(from, to);
            self.run(to as usize - 1, &[]).await;
        }
    }

    async fn broadcast(&mut self, node: usize, to: Option<usize>) {
        self.last += 1;
        let offset = format!("{node}.{}", self.last);
        let is_meant = |index: usize| to.is_none_or(|to| to == index);
        for (_, client) in self.clients.iter_mut().enumerate().filter(|(index, _)| is_meant(*index)) {
            client.expected.insert(offset.clone());
        }
        let rooms = to.map_or(Names::new(), |to| vec![Name::from(&*self.clients[to].id)]);
        self.run(node, &[broadcast(&offset, rooms, Vec::new())]).await;
    }

    async fn open(&mut self, node: usize) -> (usize, u64, Handle) {
        self.last += 1;
        self.nodes[node].0.open(self.last);
        let handle = opened(&mut self.nodes[node].1).await;
        (node, self.last, handle)
    }

    async fn connect(&mut self, node: usize) {
        let place = self.open(node).await;
        let id = format!("c{}", place.1);
        let index = self.clients.len();
        let socket = add(place.2, &id, &id, &names(&[&id]));
        let (received, expected, complete) = Default::default();
        self.clients.push(Client { id, place: Some(place), node, received, expected, complete });
        self.run(node, &[socket]).await;
        self.broadcast(node, Some(index)).await;
    }

    async fn lose(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let Some((node, session, _)) = client.place.take() else { return };
        client.node = node;
        // The last messages were on their way.
        let lost = self.rng.usize(..3);
        client.received.truncate(client.received.len().saturating_sub(lost).max(1));
        let (pid, id) = (Name::from(&*client.id), Name::from(&*client.id));
        self.sockets[node].remove(&session);
        let (rig, worker) = &mut self.nodes[node];
        let rooms = vec![id.clone()];
        let socket = LinkSocket { namespace: "/".into(), id: id.clone(), rooms: rooms.clone() };
        rig.close_with(session, vec![socket]);
        while !matches!(worker.entry().await, ServerEntry::Closed { .. }) {}
        let namespace = crate::recovery::ROOT;
        self.run(node, &[WorkerEntry::Persist { namespace, id, pid, rooms, data: json("{}") }]).await;
    }

    async fn come(&mut self, index: usize, node: usize) {
        let Client { place: None, node: former, .. } = self.clients[index] else { return };
        let (here, there) = (node as u64 + 1, former as u64 + 1);
        // An engine delivers in order to one node, and the two nodes reach each other.
        for pair in (1..=3).map(|from| (from, here)).chain([(here, there)]) {
            self.release(pair).await;
        }
        let place = self.open(node).await;
        let client = &self.clients[index];
        let (id, last) = (client.id.clone(), client.received.last().unwrap().clone());
        self.nodes[node].1.write(&[restore(place.2, &id, &last)]).await;
        if restored(&mut self.nodes[node].1).await == "null" {
            // Its messages had another order at the node before.
            let client = self.clients.remove(index);
            assert!(client.received.len() < client.complete, "{} {:?}", client.id, client.received);
            self.lost += 1;
            return;
        }
        for _ in 0..self.rng.u8(..3) {
            let sender = self.rng.usize(..3);
            self.broadcast(sender, None).await;
        }
        self.clients[index].place = Some(place);
        self.run(node, &[add(place.2, &id, &id, &names(&[&id]))]).await;
        if former != node {
            self.moved += 1;
            self.clients[index].complete = self.clients[index].received.len();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_return_to_any_node_receive_each_message_once() {
    let (mut moved, mut lost) = (0, 0);
    for seed in 0..60 {
        let engine = Arc::<Engine>::default();
        let mut nodes = start(&engine, 3).await;
        nodes[0].1.write_handled(&[declare()]).await;
        let (clients, held) = Default::default();
        let (rng, sockets) = (fastrand::Rng::with_seed(seed), vec![BTreeMap::new(); 3]);
        let mut random = Random { rng, engine, nodes, clients, sockets, last: 0, held, moved: 0, lost: 0 };
        for _ in 0..80 {
            let (node, other) = (random.rng.usize(..3), random.rng.usize(..3));
            let index = random.rng.usize(..random.clients.len().max(1));
            let pair = (node as u64 + 1, other as u64 + 1);
            match random.rng.u8(..10) {
                0 => random.connect(node).await,
                1 if node != other && random.held.insert(pair) => random.engine.hold(pair.0, pair.1),
                2 => random.release(pair).await,
                _ if random.clients.is_empty() => {}
                3 => random.lose(index).await,
                4 | 5 => random.come(index, node).await,
                6 => random.broadcast(node, Some(index)).await,
                _ => random.broadcast(node, None).await,
            }
        }
        for pair in random.held.clone() {
            random.release(pair).await;
        }
        for node in 0..3 {
            random.run(node, &[]).await;
        }
        for client in random.clients.iter().filter(|client| client.place.is_some()) {
            let received: BTreeSet<String> = client.received.iter().cloned().collect();
            assert!(
                client.expected.is_subset(&received),
                "seed {seed}, {}: {:?}",
                client.id,
                client.received
            );
            let of_node = |node: char| client.received.iter().filter(move |text| text.starts_with(node));
            let number = |text: &String| text[2..].parse::<u64>().unwrap();
            for node in ['0', '1', '2'] {
                assert!(of_node(node).map(number).is_sorted(), "seed {seed}, {}", client.id);
            }
        }
        (moved, lost) = (moved + random.moved, lost + random.lost);
    }
    assert!(moved > 100 && lost < moved / 4, "{moved} moved, {lost} lost");
}
