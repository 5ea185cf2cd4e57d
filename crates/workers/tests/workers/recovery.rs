//! Clients that reconnect to another worker, and to workers that have restarted.

use crate::nodes::Engine;
use crate::rig::{Rig, Worker, json, text};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stentor_link::{Broadcast, Handle, Name, Names, Namespace, ServerEntry, WorkerEntry};
use stentor_ports::fake::names;
use stentor_ports::{
    LinkDescription, LinkEntry, LinkMessage, LinkMessages, LinkReport, LinkSession, LinkSocket,
};
use stentor_workers::{AppOptions, RecoveryOptions};

pub(crate) const ROOT: Namespace = Namespace(0);
pub(crate) const RECOVERY: &str = r#","recovery":{"maxDisconnectionDuration":60000,"skipMiddlewares":true}"#;
const TTL: Duration = Duration::from_secs(60);

pub(crate) fn declare() -> WorkerEntry {
    WorkerEntry::Nsp { namespace: ROOT, name: "/".into() }
}

pub(crate) fn add(handle: Handle, id: &str, pid: &str, rooms: &Names) -> WorkerEntry {
    let (id, pid, rooms) = (id.into(), pid.into(), rooms.clone());
    WorkerEntry::Add { handle, namespace: ROOT, id, pid, rooms, state: json("{}") }
}

/// A broadcast whose offset is its message.
pub(crate) fn broadcast(offset: &str, rooms: Names, except: Names) -> WorkerEntry {
    let messages = std::iter::once(text(offset)).collect();
    let broadcast =
        Broadcast { rooms, except, offset: Some(offset.into()), messages, ..Broadcast::default() };
    WorkerEntry::Broadcast { namespace: ROOT, broadcast }
}

pub(crate) fn persist(id: &str, pid: &str, rooms: &Names) -> WorkerEntry {
    let (id, pid, rooms) = (id.into(), pid.into(), rooms.clone());
    WorkerEntry::Persist { namespace: ROOT, id, pid, rooms, data: json(r#"{"name":"Ann"}"#) }
}

pub(crate) fn restore(handle: Handle, pid: &str, offset: &str) -> WorkerEntry {
    WorkerEntry::Restore { request: 7, handle, namespace: ROOT, pid: pid.into(), offset: offset.into() }
}

/// Lets time pass on the virtual clock.
pub(crate) async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

pub(crate) async fn opened(worker: &mut Worker) -> Handle {
    loop {
        if let ServerEntry::Open { handle, .. } = worker.entry().await {
            return handle;
        }
    }
}

/// The text of RESTORED.
pub(crate) async fn restored(worker: &mut Worker) -> String {
    loop {
        if let ServerEntry::Restored { request: 7, socket } = worker.entry().await {
            return socket.as_str().into();
        }
    }
}

/// Opens a session, whose worker gives it a socket and loses it after the message `seen`.
pub(crate) async fn lose(rig: &mut Rig, worker: &mut Worker, rooms: &Names) {
    rig.open(1);
    let handle = opened(worker).await;
    worker
        .write_handled(&[
            declare(),
            add(handle, "id", "pid", rooms),
            broadcast("seen", Vec::new(), Vec::new()),
        ])
        .await;
    rig.close(1);
    while !matches!(worker.entry().await, ServerEntry::Closed { .. }) {}
    worker.write_handled(&[persist("id", "pid", rooms)]).await;
}

#[tokio::test(start_paused = true)]
async fn another_worker_recovers_the_sockets_of_a_crashed_one() {
    let mut rig = Rig::new();
    let (mut a, _) = rig.start_with("a", RECOVERY).await;
    let rooms = names(&["id", "r"]);
    lose(&mut rig, &mut a, &rooms).await;
    drop(a);
    let (mut b, link) = rig.start_with("b", RECOVERY).await;
    let missed = [broadcast("1", names(&["r"]), Vec::new()), broadcast("no", names(&["x"]), Vec::new())];
    b.write_handled(&[&[declare()], &missed[..]].concat()).await;
    rig.core_entries();
    rig.open(2);
    let handle = opened(&mut b).await;
    b.write(&[restore(handle, "pid", "seen"), broadcast("2", Vec::new(), Vec::new())]).await;
    assert_eq!(restored(&mut b).await, r#"{"sid":"id","rooms":["id","r"],"data":{"name":"Ann"}}"#);
    b.write_handled(&[add(handle, "id", "pid", &rooms), broadcast("3", Vec::new(), Vec::new())]).await;
    // The socket receives later messages as others do.
    let entries = rig.core_entries();
    let session = LinkSession::from_bits(2);
    let socket = LinkSocket { namespace: "/".into(), id: "id".into(), rooms };
    let (is_volatile, is_compressed, wants_receipt) = (false, true, false);
    let messages = ["1", "2"].map(|text| LinkMessage::Text(text.into())).into_iter().collect();
    let expect = [
        (link, LinkEntry::Add { session, socket: Box::new(socket) }),
        (link, LinkEntry::Send { session, is_volatile, is_compressed, wants_receipt, messages }),
    ];
    let added = entries.iter().position(|entry| matches!(entry.1, LinkEntry::Add { .. })).unwrap();
    assert_eq!(entries[added..added + 2], expect);
    assert!(matches!(&entries[added + 2].1, LinkEntry::Broadcast(..)));
    assert_eq!(rig.metric("link_recoveries", &["recovered"]), 1);
    // The data are there for the next worker.
    drop(b);
    let (mut c, _) = rig.start_with("c", RECOVERY).await;
    let (_, LinkEntry::Own(_)) = rig.core().await else { panic!("no Own") };
    let (_, LinkEntry::Describe { request, .. }) = rig.core().await else { panic!("no Describe") };
    let sockets = vec![LinkSocket { namespace: "/".into(), id: "id".into(), rooms: Vec::new() }];
    rig.report(2, LinkReport::Described(LinkDescription { request, upgraded: false, sockets }));
    let ServerEntry::Resume { session, .. } = c.entry().await else { panic!("no RESUME") };
    assert!(session.as_str().contains(r#""pid":"pid","rooms":[],"data":{"name":"Ann"}"#), "{session:?}");
}

/// The worker has crashed, so that it can't write PERSIST.
#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_it_has_no_worker_is_recovered() {
    let data = r#"{"name":"Ann"}"#;
    let found = format!(r#"{{"sid":"id","rooms":["id","r"],"data":{data}}}"#);
    for (sent, is_connected, expect) in [
        (None, false, &*found),
        (Some("2[\"a\"]"), false, &*found),
        // The connection of the worker is broken, but it isn't lost yet.
        (None, true, &*found),
        // The client has left on purpose.
        (Some("1"), false, "null"),
    ] {
        let rig = Rig::new();
        let (mut a, _) = rig.start_with("a", RECOVERY).await;
        let rooms = names(&["id", "r"]);
        rig.open(1);
        let handle = opened(&mut a).await;
        let state = WorkerEntry::State { handle, namespace: ROOT, data: json(data) };
        let seen = broadcast("seen", Vec::new(), Vec::new());
        a.write_handled(&[declare(), add(handle, "id", "pid", &rooms), state, seen]).await;
        drop(a);
        pass(if is_connected { 100 } else { 300 }).await;
        if let Some(packet) = sent {
            rig.say(1, packet);
        }
        rig.close_with(1, vec![LinkSocket { namespace: "/".into(), id: "id".into(), rooms }]);
        let (mut b, _) = rig.start_with("b", RECOVERY).await;
        rig.open(2);
        let handle = opened(&mut b).await;
        b.write_handled(&[declare(), restore(handle, "pid", "seen")]).await;
        assert_eq!(restored(&mut b).await, expect, "{sent:?}");
    }
}

/// Opens a session whose worker gives it a socket with saved data. The client sends this packet, and leaves. The worker reads all that, and
/// acknowledges nothing.
pub(crate) async fn leave_unnoticed(rig: &mut Rig, worker: &mut Worker, packet: Option<&str>) {
    let rooms = names(&["id"]);
    rig.open(1);
    let handle = opened(worker).await;
    let state = WorkerEntry::State { handle, namespace: ROOT, data: json("1") };
    let seen = broadcast("seen", Vec::new(), Vec::new());
    worker.write_handled(&[declare(), add(handle, "id", "pid", &rooms), state, seen]).await;
    if let Some(packet) = packet {
        rig.say(1, packet);
    }
    rig.close_with(1, vec![LinkSocket { namespace: "/".into(), id: "id".into(), rooms }]);
    while !matches!(worker.entry().await, ServerEntry::Closed { .. }) {}
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_a_worker_that_crashes_or_hangs_is_recovered() {
    let found = r#"{"sid":"id","rooms":["id"],"data":1}"#;
    let message = Some(r#"2["a"]"#);
    for (on_crash, packet, is_hung, wait, expect) in [
        ("disconnect", None, false, 300, found),
        // The worker may have handled the message.
        ("disconnect", message, false, 300, "null"),
        ("drop", message, false, 300, found),
        ("drop", Some("1"), false, 300, "null"),
        ("disconnect", None, true, 300, found),
        ("disconnect", message, true, 300, "null"),
        ("drop", message, true, 300, found),
        // The worker still has time to report the socket.
        ("disconnect", None, true, 200, "null"),
    ] {
        let fields = format!(r#"{RECOVERY},"on_crash":"{on_crash}""#);
        let mut rig = Rig::new();
        let (mut a, _) = rig.start_with("a", &fields).await;
        leave_unnoticed(&mut rig, &mut a, packet).await;
        let hung = is_hung.then_some(a);
        let (mut b, _) = rig.start_with("b", &fields).await;
        b.write_handled(&[declare()]).await;
        pass(wait).await;
        // The first one goes to the worker that hangs.
        rig.open(2);
        rig.open(3);
        let handle = opened(&mut b).await;
        b.write_handled(&[restore(handle, "pid", "seen")]).await;
        assert_eq!(restored(&mut b).await, expect, "{on_crash} {packet:?} {is_hung} {wait}");
        drop(hung);
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_lives_decides_what_is_recovered() {
    for (reported, expect) in [
        // The worker can't keep the data that the socket has now.
        (None, "null"),
        (Some(persist("id", "pid", &names(&["id"]))), r#"{"sid":"id","rooms":["id"],"data":{"name":"Ann"}}"#),
    ] {
        let mut rig = Rig::new();
        let (mut worker, _) = rig.start_with("a", RECOVERY).await;
        leave_unnoticed(&mut rig, &mut worker, None).await;
        worker.write_handled(&reported.into_iter().collect::<Vec<_>>()).await;
        pass(300).await;
        rig.open(2);
        let handle = opened(&mut worker).await;
        worker.write(&[restore(handle, "pid", "seen")]).await;
        assert_eq!(restored(&mut worker).await, expect);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_report_of_a_recovered_socket_is_ignored() {
    let mut rig = Rig::new();
    let (mut late, _) = rig.start_with("late", RECOVERY).await;
    leave_unnoticed(&mut rig, &mut late, None).await;
    let (mut worker, _) = rig.start_with("b", RECOVERY).await;
    worker.write_handled(&[declare()]).await;
    pass(300).await;
    rig.open(2);
    rig.open(3);
    let handle = opened(&mut worker).await;
    worker.write(&[restore(handle, "pid", "seen")]).await;
    assert_ne!(restored(&mut worker).await, "null");
    // The client leaves again.
    let rooms = names(&["id", "new"]);
    worker.write_handled(&[add(handle, "id", "pid", &rooms)]).await;
    let socket = LinkSocket { namespace: "/".into(), id: "id".into(), rooms: rooms.clone() };
    rig.close_with(3, vec![socket]);
    while !matches!(worker.entry().await, ServerEntry::Closed { .. }) {}
    worker.write_handled(&[persist("id", "pid", &rooms)]).await;
    late.write_handled(&[persist("id", "pid", &names(&["id"]))]).await;
    rig.open(4);
    let handle = opened(&mut worker).await;
    worker.write(&[restore(handle, "pid", "seen")]).await;
    assert_eq!(restored(&mut worker).await, r#"{"sid":"id","rooms":["id","new"],"data":{"name":"Ann"}}"#);
}

#[tokio::test(start_paused = true)]
async fn a_socket_is_kept_for_as_long_as_the_application_wants() {
    for (fields, wait, is_recovered) in [
        (RECOVERY, TTL - Duration::from_secs(1), true),
        (RECOVERY, TTL + Duration::from_secs(1), false),
        ("", Duration::ZERO, false),
        (r#","recovery":null"#, Duration::ZERO, false),
        (r#","recovery":{}"#, Duration::from_secs(119), true),
        (r#","recovery":{"maxDisconnectionDuration":1e300}"#, Duration::from_secs(3_600), true),
        (r#","recovery":{"maxDisconnectionDuration":-1}"#, Duration::ZERO, false),
    ] {
        let mut rig = Rig::new();
        let (mut worker, _) = rig.start_with("a", fields).await;
        lose(&mut rig, &mut worker, &names(&["id"])).await;
        // The worker answers pings while the time passes.
        worker.entries_of(wait).await;
        rig.open(2);
        let handle = opened(&mut worker).await;
        worker.write(&[restore(handle, "pid", "seen")]).await;
        assert_eq!(restored(&mut worker).await != "null", is_recovered, "{fields} {wait:?}");
        assert_eq!(rig.metric("link_recoveries", &["failed"]), u64::from(!is_recovered));
        if !is_recovered {
            worker.entries_of(TTL * 2).await;
            assert_eq!(rig.metric("link_recovery_bytes", &["chat"]), 0, "{fields} {wait:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_missed_messages_are_evicted_connects_again() {
    let recovery = RecoveryOptions { bytes_max: 4_000, ..RecoveryOptions::default() };
    let mut rig = Rig::with(AppOptions { recovery, ..AppOptions::default() });
    let (mut worker, _) = rig.start_with("a", RECOVERY).await;
    let rooms = names(&["id"]);
    lose(&mut rig, &mut worker, &rooms).await;
    let empty = rig.held_bytes();
    rig.open(2);
    let handle = opened(&mut worker).await;
    worker.write(&[restore(handle, "pid", "seen")]).await;
    assert_ne!(restored(&mut worker).await, "null");
    for n in 0..100 {
        worker.write_handled(&[broadcast(&n.to_string(), Vec::new(), Vec::new())]).await;
    }
    assert!(rig.metric("link_recovery_bytes", &["chat"]) <= 4_000);
    assert!(rig.held_bytes() <= empty + 8_000, "{} {empty}", rig.held_bytes());
    assert!(rig.metric("link_recovery_evicted", &["chat"]) > 50);
    rig.core_entries();
    worker.write_handled(&[add(handle, "id", "pid", &rooms)]).await;
    let session = LinkSession::from_bits(2);
    let closes = |(_, entry): &(u32, LinkEntry)| *entry == LinkEntry::Close { session, discards: true };
    assert!(rig.core_entries().iter().any(closes));
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_no_worker_has_taken_waits_for_another_session() {
    let mut rig = Rig::new();
    let (mut a, _) = rig.start_with("a", RECOVERY).await;
    lose(&mut rig, &mut a, &names(&["id"])).await;
    rig.open(2);
    let handle = opened(&mut a).await;
    a.write(&[restore(handle, "pid", "seen")]).await;
    assert_ne!(restored(&mut a).await, "null");
    rig.core_entries();
    // Its worker crashes before it has the socket.
    drop(a);
    let (mut b, _) = rig.start_with("b", RECOVERY).await;
    b.write(&[declare()]).await;
    while !matches!(rig.core().await.1, LinkEntry::Describe { .. }) {}
    rig.open(3);
    let handle = opened(&mut b).await;
    b.write(&[restore(handle, "pid", "seen")]).await;
    assert_ne!(restored(&mut b).await, "null");
}

/// A client, and the session in which its socket is.
struct Client {
    id: String,
    rooms: Names,
    /// The session, its worker's link, and its handle there. `None`: the client is disconnected.
    place: Option<(u64, u32, Handle)>,
    received: Vec<String>,
    expected: Vec<String>,
}

/// Random broadcasts, losses of clients, recoveries and crashes of workers.
struct Random {
    rig: Rig,
    rng: fastrand::Rng,
    workers: BTreeMap<u32, Worker>,
    clients: Vec<Client>,
    /// Rooms of each session's socket, as a core has them.
    sockets: BTreeMap<u64, Names>,
    last: u64,
    recovered: usize,
}

fn is_for(rooms: &Names, to: &[Name], except: &[Name]) -> bool {
    (to.is_empty() || to.iter().any(|room| rooms.contains(room)))
        && !except.iter().any(|room| rooms.contains(room))
}

impl Random {
    async fn start(&mut self) {
        self.last += 1;
        let (mut worker, link) = self.rig.start_with(&format!("w{}", self.last), RECOVERY).await;
        worker.write_handled(&[declare()]).await;
        self.workers.insert(link, worker);
        self.run_cores().await;
    }

    fn link(&mut self) -> u32 {
        let links: Vec<u32> = self.workers.keys().copied().collect();
        *self.rng.choice(&links).unwrap()
    }

    /// Carries out the entries of the cores. Returns the link that got a session.
    async fn run_cores(&mut self) -> u32 {
        let mut owner = 0;
        for (link, entry) in self.rig.core_entries() {
            let deliver = |clients: &mut Vec<Client>, session: u64, text: &LinkMessage| {
                let of_session = |client: &&mut Client| client.place.is_some_and(|place| place.0 == session);
                let client = clients.iter_mut().find(of_session).unwrap();
                client.received.push(String::from_utf8(text.data().to_vec()).unwrap());
            };
            match entry {
                LinkEntry::Accept(..) => owner = link,
                LinkEntry::Add { session, socket } => {
                    self.sockets.insert(session.to_bits(), socket.rooms);
                }
                LinkEntry::Send { session, messages, .. } => {
                    messages.iter().for_each(|text| deliver(&mut self.clients, session.to_bits(), text));
                }
                LinkEntry::Broadcast(_, _, broadcast) => {
                    for (session, rooms) in &self.sockets {
                        if is_for(rooms, &broadcast.rooms, &broadcast.except) {
                            deliver(&mut self.clients, *session, &broadcast.messages[0]);
                        }
                    }
                }
                LinkEntry::Own(session) => {
                    let session = session.to_bits();
                    let place = self.clients.iter_mut().filter_map(|client| client.place.as_mut());
                    place.filter(|place| place.0 == session).for_each(|place| place.1 = link);
                }
                LinkEntry::Describe { session, request } => {
                    let session = session.to_bits();
                    let client = self
                        .clients
                        .iter_mut()
                        .find(|client| client.place.is_some_and(|place| place.0 == session));
                    let client = client.unwrap();
                    let place = client.place.as_mut().unwrap();
                    place.2 = Handle(request);
                    let rooms = client.rooms.clone();
                    let sockets =
                        vec![LinkSocket { namespace: "/".into(), id: client.id.clone().into(), rooms }];
                    let description = LinkDescription { request, upgraded: false, sockets };
                    let link = place.1;
                    self.rig.report(session, LinkReport::Described(description));
                    let worker = self.workers.get_mut(&link).unwrap();
                    while !matches!(worker.entry().await, ServerEntry::Resume { handle, .. } if handle.0 == request)
                    {
                    }
                }
                _ => {}
            }
        }
        owner
    }

    async fn write(&mut self, link: u32, entries: &[WorkerEntry]) {
        self.workers.get_mut(&link).unwrap().write_handled(entries).await;
        self.run_cores().await;
    }

    /// Opens a session. Returns it with its worker's link and its handle.
    async fn open(&mut self) -> (u64, u32, Handle) {
        self.last += 1;
        self.rig.open(self.last);
        let (owner, LinkEntry::Accept(..)) = self.rig.core().await else { panic!("no Accept") };
        (self.last, owner, opened(self.workers.get_mut(&owner).unwrap()).await)
    }

    async fn close(&mut self, (session, link, handle): (u64, u32, Handle)) {
        self.rig.close(session);
        let worker = self.workers.get_mut(&link).unwrap();
        while !matches!(worker.entry().await, ServerEntry::Closed { handle: closed, .. } if closed == handle)
        {
        }
    }

    async fn broadcast(&mut self) {
        self.last += 1;
        let offset = format!("o{}", self.last);
        let rng = &mut self.rng;
        let mut some = |share: u8| {
            let rooms = ["r0", "r1", "r2"].into_iter().filter(|_| rng.u8(..share) == 0);
            rooms.map(Name::from).collect::<Names>()
        };
        let (to, except) = (some(3), some(8));
        for client in &mut self.clients {
            if is_for(&client.rooms, &to, &except) {
                client.expected.push(offset.clone());
            }
        }
        let link = self.link();
        self.write(link, &[broadcast(&offset, to, except)]).await;
    }

    async fn connect(&mut self) {
        let place = self.open().await;
        let id = format!("s{}", place.0);
        let mut rooms = names(&[&id]);
        rooms.extend((0..3).filter(|_| self.rng.bool()).map(|n| Name::from(format!("r{n}"))));
        let offset = format!("first of {id}");
        let add = add(place.2, &id, &id, &rooms);
        let first = broadcast(&offset, names(&[&id]), Vec::new());
        let expected = vec![offset];
        self.clients.push(Client { id, rooms, place: Some(place), received: Vec::new(), expected });
        self.write(place.1, &[add, first]).await;
    }

    async fn lose(&mut self, index: usize) {
        let Some(place) = self.clients[index].place.take() else { return };
        self.sockets.remove(&place.0);
        self.close(place).await;
        let lost = self.rng.usize(..3);
        let client = &mut self.clients[index];
        // The last messages were on their way.
        client.received.truncate(client.received.len().saturating_sub(lost).max(1));
        let entry = persist(&client.id, &client.id, &client.rooms);
        self.write(place.1, &[entry]).await;
    }

    async fn recover(&mut self, index: usize) {
        if self.clients[index].place.is_some() {
            return;
        }
        let place = self.open().await;
        let client = &self.clients[index];
        let (id, rooms, offset) =
            (client.id.clone(), client.rooms.clone(), client.received.last().unwrap().clone());
        self.write(place.1, &[restore(place.2, &id, &offset)]).await;
        assert_ne!(restored(self.workers.get_mut(&place.1).unwrap()).await, "null");
        for _ in 0..self.rng.u8(..3) {
            self.broadcast().await;
        }
        if self.rng.u8(..4) == 0 {
            // The client leaves before its socket is there.
            return self.close(place).await;
        }
        self.clients[index].place = Some(place);
        self.write(place.1, &[add(place.2, &id, &id, &rooms)]).await;
        self.recovered += 1;
    }

    async fn crash(&mut self) {
        let link = self.link();
        self.workers.remove(&link);
        self.start().await;
        // The worker isn't expected any more.
        tokio::time::advance(Duration::from_millis(300)).await;
        let link = self.link();
        self.write(link, &[]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn recovered_clients_receive_each_message_once_and_in_order() {
    let mut recovered = 0;
    for seed in 0..60 {
        let rng = fastrand::Rng::with_seed(seed);
        let (workers, clients, sockets) = Default::default();
        let mut random = Random { rig: Rig::new(), rng, workers, clients, sockets, last: 0, recovered: 0 };
        random.start().await;
        random.start().await;
        for _ in 0..60 {
            let index = random.rng.usize(..random.clients.len().max(1));
            match random.rng.u8(..8) {
                0 => random.connect().await,
                _ if random.clients.is_empty() => {}
                1 => random.lose(index).await,
                2 | 3 => random.recover(index).await,
                4 if random.rng.u8(..4) == 0 => random.crash().await,
                _ => random.broadcast().await,
            }
            for client in random.clients.iter().filter(|client| client.place.is_some()) {
                assert_eq!(client.received, client.expected, "seed {seed}, {}", client.id);
            }
        }
        recovered += random.recovered;
    }
    assert!(recovered > 100, "{recovered}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reconnects_has_missed_broadcasts_of_other_nodes() {
    let engine = Arc::<Engine>::default();
    let (here, mut there) = (engine.node(1), engine.node(2));
    let (mut a, _) = here.start_with("a", RECOVERY).await;
    let (mut b, _) = there.start_with("b", RECOVERY).await;
    let rooms = names(&["id", "r"]);
    lose(&mut there, &mut b, &rooms).await;
    there.core_entries();
    a.write_handled(&[declare(), broadcast("missed", names(&["r"]), Vec::new())]).await;
    let (0, LinkEntry::Broadcast(..)) = there.core().await else { panic!("no broadcast") };
    there.open(2);
    let handle = opened(&mut b).await;
    b.write(&[restore(handle, "pid", "seen")]).await;
    assert!(restored(&mut b).await.contains(r#""sid":"id""#));
    b.write_handled(&[add(handle, "id", "pid", &rooms)]).await;
    let entries = there.core_entries();
    let expect: LinkMessages = [LinkMessage::Text("missed".into())].into_iter().collect();
    assert!(
        entries
            .iter()
            .any(|(_, entry)| matches!(entry, LinkEntry::Send { messages, .. } if *messages == expect))
    );
}
