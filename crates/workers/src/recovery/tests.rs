use super::*;
use stentor_ports::fake::{broadcast, names};

const TTL: Duration = Duration::from_secs(60);

/// A recovery with a clock, in which each broadcast has its offset as its message.
struct Table {
    recovery: Recovery,
    now: Instant,
    ttl: Duration,
}

fn socket(rooms: &[&str]) -> Persisted {
    let data = Json::new(r#"{"a":1}"#).unwrap();
    Persisted { id: "id".into(), rooms: names(rooms), data, brought: None }
}

impl Table {
    fn new(options: RecoveryOptions) -> Self {
        Self { recovery: Recovery::new(options), now: Instant::now(), ttl: TTL }
    }

    fn log(&mut self, namespace: &str, offset: &str, rooms: &[&str], except: &[&str]) {
        let broadcast = broadcast(rooms, except, offset);
        let source = self.recovery.origins.draw();
        self.recovery.log(namespace.into(), (offset.into(), source), broadcast, (self.now, self.ttl));
    }

    /// Logs a broadcast of another node, for all sockets.
    fn log_of(&mut self, node: u64, number: u64, offset: &str) {
        let source = Source { node: Some(node), number };
        let broadcast = broadcast(&[], &[], offset);
        self.recovery.log("/".into(), (offset.into(), source), broadcast, (self.now, self.ttl));
    }

    /// Logs a broadcast of this node for sockets of one worker.
    fn log_local(&mut self, offset: &str) {
        let broadcast = LinkBroadcast { is_local: true, ..(*broadcast(&[], &[], offset)).clone() };
        let source = self.recovery.origins.draw();
        self.recovery.log("/".into(), (offset.into(), source), broadcast.into(), (self.now, self.ttl));
    }

    fn persist(&mut self, pid: &str, rooms: &[&str]) {
        self.recovery.persist(("/".into(), pid.into()), socket(rooms), (self.now, self.ttl));
    }

    /// The client leaves a worker, which is notified with this frame.
    fn leave(&mut self, link: u32, frame: u64, pid: &str, rooms: &[&str]) {
        let closed = Closed { link, frame, needed: 0, overdue_at: self.now + Duration::from_millis(1) };
        self.recovery.leave(closed, ("/".into(), pid.into()), socket(rooms), (self.now, self.ttl));
    }

    /// A worker writes PERSIST.
    fn report(&mut self, link: u32, pid: &str, rooms: &[&str]) {
        if self.recovery.unreported.report(link, &("/".into(), pid.into()), self.now).is_some() {
            self.persist(pid, rooms);
        }
    }

    fn claim(&mut self, session: u64, pid: &str, offset: &str) -> Option<String> {
        let (session, key) = (LinkSession::from_bits(session), ("/".into(), pid.into()));
        let socket = self.recovery.claim(session, key, offset, self.now).and_then(Persisted::restored);
        if socket.is_none() {
            self.recovery.count_failed();
        }
        Some(socket?.as_str().into())
    }

    /// The client of this table, of node 1, returns to a session of another table, of node 2. Returns `true` if its socket is brought.
    fn bring_to(&mut self, other: &mut Self, session: u64, pid: &str, offset: &str) -> bool {
        let key = ("/".into(), pid.into());
        let Some(given) = self.recovery.give(&key, offset, self.now) else { return false };
        let had = Had::read(&self.recovery.origins.report(2), 1);
        other.recovery.bring(LinkSession::from_bits(session), key, (given, had), other.now).is_some()
    }

    /// The missed messages. `None`: the socket isn't recovered.
    fn complete(&mut self, session: u64, pid: &str) -> Option<Result<Vec<String>, Evicted>> {
        let recovered = self.recovery.complete(LinkSession::from_bits(session), &"/".into(), pid)?;
        let text = |message: &LinkMessage| String::from_utf8(message.data().to_vec()).unwrap();
        Some(recovered.map(|recovered| recovered.missed.iter().map(text).collect()))
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.recovery.handle_timeout(self.now);
    }
}

#[test]
fn a_client_receives_what_its_rooms_missed_after_its_offset() {
    let mut table = Table::new(RecoveryOptions::default());
    table.log("/", "seen", &[], &[]);
    table.persist("pid", &["id", "r", "\"quoted\""]);
    table.log("/", "all", &[], &[]);
    table.log("/", "room", &["x", "r"], &[]);
    table.log("/", "other room", &["x"], &[]);
    table.log("/", "excepted", &[], &["x", "id"]);
    table.log("/chat", "other namespace", &[], &[]);
    let socket = r#"{"sid":"id","rooms":["id","r","\"quoted\""],"data":{"a":1}}"#;
    assert_eq!(table.claim(1, "pid", "seen").as_deref(), Some(socket));
    // Messages that are sent before the socket is there are missed as well.
    table.log("/", "late", &["r"], &[]);
    assert_eq!(table.claim(2, "pid", "seen"), None);
    assert_eq!(table.complete(1, "pid"), Some(Ok(["all", "room", "late"].map(String::from).into())));
    // The socket has a client again.
    assert_eq!((table.complete(1, "pid"), table.claim(3, "pid", "seen")), (None, None));
    let stats = table.recovery.stats();
    assert_eq!((stats.recovered, stats.failed, stats.sockets), (1, 2, 0));
}

#[test]
fn a_client_without_a_kept_offset_or_socket_begins_anew() {
    let mut table = Table::new(RecoveryOptions { missed_bytes_max: 200, ..RecoveryOptions::default() });
    table.log("/", "seen", &[], &[]);
    table.persist("pid", &["id"]);
    assert_eq!(table.claim(1, "pid", "unknown"), None);
    assert_eq!(table.claim(1, "unknown", "seen"), None);
    for (pid, room) in [("", "id"), ("large", &*".".repeat(SOCKET_BYTES_MAX))] {
        table.persist(pid, &[room]);
        assert_eq!(table.claim(1, pid, "seen"), None);
    }
    for n in 0..5 {
        table.log("/", &format!("{n}"), &[], &[]);
    }
    assert_eq!(table.claim(1, "pid", "seen"), None, "the client has missed too much");
    assert!(table.claim(1, "pid", "2").is_some());
}

/// A client that returns again and again costs no more than the broadcasts to its rooms. Those that it is excepted from count, too.
#[test]
fn a_search_looks_only_at_broadcasts_to_the_rooms_of_the_socket() {
    let bytes = 100 * size_of::<LinkMessage>();
    let mut table = Table::new(RecoveryOptions { missed_bytes_max: bytes, ..RecoveryOptions::default() });
    table.log("/", "seen", &["r"], &[]);
    table.persist("pid", &["id", "r", "s"]);
    for n in 0..1_000 {
        table.log("/", &format!("room {n}"), &["x"], &[]);
        table.log("/chat", &format!("namespace {n}"), &["r"], &[]);
    }
    let looked_at = |table: &Table| {
        let rooms = names(&["id", "r", "s"]);
        table.recovery.log.addressed("/", &rooms, 1).count()
    };
    assert_eq!(looked_at(&table), 0);
    table.log("/", "missed", &["s", "x", "r", "s"], &[]);
    assert_eq!(looked_at(&table), 1);
    for n in 0..98 {
        table.log("/", &format!("excepted {n}"), &["r"], &["id"]);
    }
    assert!(table.claim(1, "pid", "seen").is_some());
    table.recovery.release_all(LinkSession::from_bits(1));
    table.log("/", "one too many", &[], &["id"]);
    assert_eq!((looked_at(&table), table.claim(1, "pid", "seen")), (100, None));
}

#[test]
fn the_index_finds_what_is_in_the_log() {
    for seed in 0..50 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut table = Table::new(RecoveryOptions { bytes_max: 20_000, ..RecoveryOptions::default() });
        for offset in 0..300 {
            let mut pick = |most: usize| -> Vec<&str> {
                (0..random.usize(..=most)).map(|_| ["a", "b", "c", "d"][random.usize(..4)]).collect()
            };
            let (rooms, except, own) = (pick(3), pick(1), names(&pick(3)));
            table.now += Duration::from_millis(1);
            table.log(["/", "/chat"][random.usize(..2)], &offset.to_string(), &rooms, &except);
            let log = &table.recovery.log;
            let from = random.u64(log.first()..=log.next());
            let found: Vec<&str> =
                table.recovery.missed("/", &own, from).map(|logged| &*logged.offset).collect();
            let is_in = |names: &[Box<str>]| names.iter().any(|name| own.contains(name));
            let is_missed = |logged: &Logged| {
                let LinkBroadcast { rooms, except, .. } = &*logged.broadcast;
                *logged.namespace == *"/" && (rooms.is_empty() || is_in(rooms)) && !is_in(except)
            };
            let later = log.newest_first().take_while(|(number, _)| *number >= from);
            let mut expected: Vec<&str> =
                later.filter(|(_, logged)| is_missed(logged)).map(|(_, logged)| &*logged.offset).collect();
            expected.reverse();
            assert_eq!(found, expected, "seed {seed}, offset {offset}");
        }
        assert!(table.recovery.stats().evicted > 0);
        table.pass(TTL);
        assert!(table.recovery.log.is_empty());
    }
}

#[test]
fn the_index_keeps_no_memory_for_the_broadcasts_of_a_burst() {
    let mut table = Table::new(RecoveryOptions::default());
    let log = |table: &mut Table| {
        table.log("/", "room", &["r"], &[]);
        table.log("/", "all", &[], &[]);
    };
    (0..1_000).for_each(|_| log(&mut table));
    assert!(table.recovery.log.capacity() >= 1_000);
    table.pass(TTL / 2);
    log(&mut table);
    table.pass(TTL / 2);
    assert!(table.recovery.log.capacity() <= 64, "{}", table.recovery.log.capacity());
}

#[test]
fn the_index_finds_the_first_broadcast_that_another_node_has_not_had() {
    for seed in 0..50 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut table = Table::new(RecoveryOptions { bytes_max: 20_000, ..RecoveryOptions::default() });
        // The broadcasts that the other node, of number 1, has had.
        let mut origins = origins::Origins::default();
        let mut numbers = [0; 6];
        for offset in 0..300 {
            let node = random.usize(..6);
            numbers[node] += 1;
            table.now += Duration::from_millis(1);
            match node as u64 {
                2 => table.log("/", &offset.to_string(), &[], &[]),
                node => table.log_of(node, numbers[node as usize], &offset.to_string()),
            }
            match random.usize(..20) {
                0 if numbers[1] > origins.own() => _ = origins.draw(),
                1..6 => origins.handle(node as u64, random.u64(..=numbers[node]), table.now),
                _ => {}
            }
            let log = &table.recovery.log;
            let had = Had::read(&origins.report(2), 1);
            let unknown = log.newest_first().filter(|(_, logged)| !had.has(logged.source));
            let first = unknown.map(|(number, _)| number).last();
            assert_eq!(log.first_unknown(&had), first.unwrap_or(log.next()), "seed {seed}, offset {offset}");
        }
        assert!(table.recovery.stats().evicted > 0);
        table.pass(TTL);
        assert!(table.recovery.log.is_empty());
    }
}

#[test]
fn a_claimed_socket_waits_for_another_session_if_its_session_ends() {
    let mut table = Table::new(RecoveryOptions::default());
    table.log("/", "seen", &[], &[]);
    table.persist("pid", &["id"]);
    assert!(table.claim(1, "pid", "seen").is_some());
    table.recovery.release_all(LinkSession::from_bits(2));
    assert_eq!(table.claim(2, "pid", "seen"), None);
    table.recovery.release_all(LinkSession::from_bits(1));
    assert!(table.claim(2, "pid", "seen").is_some());
    // The worker has given the session another socket.
    assert_eq!(table.complete(2, "another"), None);
    table.pass(TTL / 2);
    assert!(table.claim(3, "pid", "seen").is_some());
    table.pass(TTL / 2);
    assert_eq!(table.recovery.poll_timeout(), Some(table.now + TTL / 2));
    table.recovery.release_all(LinkSession::from_bits(3));
    assert_eq!(table.recovery.poll_timeout(), Some(table.now));
    assert_eq!(table.claim(4, "pid", "seen"), None, "the time counts from the loss of the client");
    table.pass(SWEEP_INTERVAL);
    assert_eq!((table.recovery.bytes(), table.recovery.poll_timeout()), (0, None));
}

#[test]
fn sockets_and_broadcasts_are_forgotten_in_time() {
    let mut table = Table::new(RecoveryOptions::default());
    table.log("/", "seen", &[], &[]);
    table.pass(TTL / 2);
    table.persist("pid", &["id"]);
    table.persist("pid", &["id"]);
    table.log("/", "later", &[], &[]);
    table.pass(TTL / 2);
    assert_eq!(table.claim(1, "pid", "seen"), None);
    table.log("/", "missed", &[], &[]);
    assert!(table.claim(1, "pid", "later").is_some());
    assert_eq!(table.complete(1, "pid"), Some(Ok(vec!["missed".into()])));
    let at = table.recovery.poll_timeout().unwrap();
    assert_eq!(at, table.now + TTL / 2);
    table.pass(TTL);
    assert_eq!((table.recovery.bytes(), table.recovery.poll_timeout()), (0, None));
    assert!(table.recovery.log.is_empty() && table.recovery.expiries.is_empty());
}

#[test]
fn the_oldest_are_evicted_above_the_bound() {
    let mut table = Table::new(RecoveryOptions { bytes_max: 2_000, ..RecoveryOptions::default() });
    table.log("/", "seen", &[], &[]);
    table.persist("pid", &["id"]);
    assert!(table.claim(1, "pid", "seen").is_some());
    table.log("/", "missed", &[], &[]);
    table.persist("old", &["id"]);
    for n in 0..20 {
        table.now += Duration::from_millis(1);
        table.log("/", &format!("{n}"), &[], &[]);
        assert!(table.recovery.bytes() <= 2_000);
    }
    let stats = table.recovery.stats();
    assert_eq!((stats.sockets, stats.evicted > 3), (0, true), "{stats:?}");
    // A message that the client has missed was evicted.
    assert_eq!(table.complete(1, "pid"), Some(Err(Evicted)));
    assert_eq!(table.recovery.stats().recovered, 0);
}

/// A worker that asks for sockets and never adds them, as when its middlewares don't answer, holds no memory for long.
#[test]
fn claimed_sockets_are_evicted_and_expire() {
    let options = RecoveryOptions { bytes_max: 40_000, ..RecoveryOptions::default() };
    let room = ".".repeat(1_000);
    let mut table = Table::new(options);
    table.log("/", "seen", &[], &[]);
    for n in 0..100 {
        let pid = n.to_string();
        table.now += Duration::from_millis(1);
        table.persist(&pid, &[&room]);
        table.log("/", "seen", &[], &[]);
        assert!(table.claim(n, &pid, "seen").is_some());
        assert!(table.recovery.bytes() <= 41_000, "{}", table.recovery.bytes());
    }
    // The client was promised its messages, so its session is closed.
    assert_eq!(table.complete(0, "0"), Some(Err(Evicted)));
    assert_eq!(table.complete(99, "99"), Some(Ok(Vec::new())));
    table.pass(CLAIM_MIN);
    assert_eq!(table.complete(98, "98"), Some(Err(Evicted)));
    assert!(table.recovery.expiries.is_empty());
    for session in 1..98 {
        table.recovery.release_all(LinkSession::from_bits(session));
    }
    let (bytes, stats) = (table.recovery.bytes(), table.recovery.stats());
    assert_eq!((bytes, stats.sockets, stats.recovered), (0, 0, 1));
}

/// A worker that hangs has no say about a socket that other workers have had meanwhile.
#[test]
fn the_report_of_a_worker_before_the_last_one_is_ignored() {
    let mut table = Table::new(RecoveryOptions::default());
    table.log("/", "seen", &[], &[]);
    table.leave(1, 1, "pid", &["old"]);
    table.pass(Duration::from_millis(1));
    assert!(table.claim(1, "pid", "seen").is_some());
    assert_eq!(table.complete(1, "pid"), Some(Ok(Vec::new())));
    table.leave(2, 1, "pid", &["new"]);
    table.report(2, "pid", &["new"]);
    table.recovery.unreported.acknowledge(2, 1);
    table.report(1, "pid", &["old"]);
    assert!(table.claim(2, "pid", "seen").unwrap().contains(r#""rooms":["new"]"#));
    // A session has the socket, so that no other gets it.
    assert_eq!(table.complete(2, "pid"), Some(Ok(Vec::new())));
    table.report(1, "pid", &["old"]);
    table.recovery.handle_end(1, table.now);
    assert_eq!(table.claim(3, "pid", "seen"), None);
    // A worker adds a socket that it hasn't asked for.
    table.leave(3, 1, "pid", &["third"]);
    table.leave(4, 1, "pid", &["fourth"]);
    table.report(3, "pid", &["third"]);
    table.recovery.handle_end(3, table.now);
    assert_eq!(table.claim(3, "pid", "seen"), None);
    table.pass(Duration::from_millis(1));
    assert!(table.claim(3, "pid", "seen").unwrap().contains(r#""rooms":["fourth"]"#));
}

#[test]
fn a_socket_of_a_worker_that_hangs_is_recovered_in_its_time() {
    let mut table = Table::new(RecoveryOptions::default());
    // The application's time was longer before.
    table.ttl = 2 * TTL;
    table.leave(1, 1, "first", &["id"]);
    table.ttl = TTL;
    table.leave(1, 2, "pid", &["id"]);
    table.pass(TTL - Duration::from_millis(1));
    table.log("/", "seen", &[], &[]);
    table.pass(Duration::from_millis(1));
    assert_eq!(table.claim(1, "pid", "seen"), None);
    table.report(1, "pid", &["id"]);
    assert_eq!(table.claim(1, "pid", "seen"), None, "the report comes too late as well");
}

#[test]
fn a_failed_recovery_leaves_the_socket_to_its_worker() {
    let mut table = Table::new(RecoveryOptions::default());
    table.log("/", "seen", &[], &[]);
    table.leave(1, 1, "pid", &["old"]);
    table.pass(Duration::from_millis(1));
    assert_eq!(table.claim(1, "pid", "unknown"), None);
    table.report(1, "pid", &["new"]);
    assert!(table.claim(2, "pid", "seen").unwrap().contains(r#""rooms":["new"]"#));
}

#[test]
fn sockets_of_workers_that_hang_are_evicted_and_expire() {
    let options = RecoveryOptions { bytes_max: 40_000, ..RecoveryOptions::default() };
    let room = ".".repeat(1_000);
    let mut table = Table::new(options);
    for n in 1..=100 {
        table.pass(Duration::from_millis(1));
        table.log("/", "seen", &[], &[]);
        table.persist(&n.to_string(), &[&room]);
        table.pass(Duration::from_millis(1));
        let (link, frame) = (n % 2, n / 2 + 1);
        table.leave(link as u32, frame, &format!("left {n}"), &[&room]);
        assert!(table.recovery.bytes() <= options.bytes_max, "{}", table.recovery.bytes());
    }
    table.pass(Duration::from_millis(1));
    for (n, is_kept) in
        [("1", false), ("left 1", false), ("100", true), ("left 99", true), ("left 100", true)]
    {
        assert_eq!(table.claim(1, n, "seen").is_some(), is_kept, "{n}");
        table.recovery.release_all(LinkSession::from_bits(1));
    }
    table.pass(TTL);
    assert_eq!((table.recovery.bytes(), table.recovery.poll_timeout()), (0, None));
    // Worker 0 wakes up. Its sockets may have been recovered meanwhile.
    table.log("/", "later", &[], &[]);
    table.report(0, "left 100", &["id"]);
    assert_eq!(table.claim(2, "left 100", "later"), None);
    table.recovery.unreported.acknowledge(0, 50);
    table.report(0, "left 100", &["id"]);
    assert_eq!(table.claim(2, "left 100", "later"), None);
    table.recovery.unreported.acknowledge(0, 51);
    table.report(0, "another", &["id"]);
    assert!(table.claim(2, "another", "later").is_some());
}

#[test]
fn older_sockets_are_evicted_before_claimed_ones() {
    let mut table = Table::new(RecoveryOptions { bytes_max: 3_000, ..RecoveryOptions::default() });
    table.ttl = 3 * CLAIM_MIN;
    table.persist("old", &["id"]);
    table.now += Duration::from_millis(1);
    table.log("/", "seen", &[], &[]);
    table.persist("pid", &["id"]);
    assert!(table.claim(1, "pid", "seen").is_some());
    while table.recovery.stats().evicted == 0 {
        table.now += Duration::from_millis(1);
        table.persist(&table.recovery.next.to_string(), &["id"]);
    }
    assert_eq!(table.complete(1, "pid"), Some(Ok(Vec::new())));
    assert_eq!(table.claim(2, "old", "seen"), None);
}

#[test]
fn a_logged_message_keeps_no_frame() {
    let frame = bytes::Bytes::from(vec![b'a'; 100]);
    let parts = [LinkMessage::Binary(frame.slice(..1)), LinkMessage::Text(frame.slice(1..2))];
    let mut messages = parts.into_iter().collect();
    detach(&mut messages);
    assert!(frame.is_unique() && messages.iter().all(|message| *message.data() == "a"));
}

/// Node 1 has the client, node 2 is the one to which it returns, and node 3 sends as well. Broadcasts are named by their node and number.
#[test]
fn a_client_that_returns_to_another_node_misses_and_repeats_nothing() {
    let mut here = Table::new(RecoveryOptions::default());
    let mut there = Table::new(RecoveryOptions::default());
    // Both nodes have had these, in different orders.
    there.log_of(3, 1, "3.1");
    there.log_of(1, 1, "1.1");
    here.log("/", "1.1", &[], &[]);
    here.log_of(3, 1, "3.1");
    there.log("/", "2.1", &[], &[]);
    here.log_of(2, 1, "2.1");
    here.persist("pid", &["id"]);
    here.log("/", "1.2", &[], &[]);
    there.log_of(1, 2, "1.2");
    here.log_local("1.3");
    // These are on their way to the node that the client has left.
    there.log_of(3, 2, "3.2");
    there.log("/", "2.2", &["id"], &[]);
    there.log("/", "2.3", &["elsewhere"], &[]);
    there.log_local("2.4");
    assert!(here.bring_to(&mut there, 7, "pid", "1.1"));
    assert!(!here.bring_to(&mut there, 8, "pid", "1.1"), "the socket has moved");
    // This one is sent before the client's socket is there.
    there.log_of(3, 3, "3.3");
    let expect = ["3.1", "2.1", "1.2", "1.3", "3.2", "2.2", "3.3"].map(String::from).into();
    assert_eq!(there.complete(7, "pid"), Some(Ok(expect)));
    assert_eq!((here.recovery.stats().sockets, there.recovery.stats().recovered), (0, 1));
}

#[test]
fn a_socket_of_another_node_is_bounded_and_belongs_to_one_session() {
    let mut here = Table::new(RecoveryOptions::default());
    let options = RecoveryOptions { missed_bytes_max: 200, ..RecoveryOptions::default() };
    let mut there = Table::new(options);
    here.log("/", "seen", &[], &[]);
    for n in 0..5 {
        here.log("/", &format!("{n}"), &[], &[]);
    }
    for pid in ["a", "b", "c"] {
        here.persist(pid, &["id"]);
    }
    assert!(!here.bring_to(&mut there, 1, "a", "seen"), "the client has missed too much");
    assert!(here.bring_to(&mut there, 1, "b", "3"));
    assert!(there.recovery.bytes() > kept_bytes("b", &socket(&["id"])), "with the missed message");
    // The session ends before it has the socket.
    there.recovery.release_all(LinkSession::from_bits(1));
    assert_eq!((there.claim(2, "b", "seen"), there.recovery.stats().sockets), (None, 0));
    // The node that has the socket may have another bound.
    let large = socket(&[&"r".repeat(SOCKET_BYTES_MAX)]);
    let given = Given { socket: large, missed: LinkMessages::new(), last: "4".into() };
    let (key, had) = (("/".into(), "d".into()), Had::read(&here.recovery.origins.report(2), 1));
    assert!(there.recovery.bring(LinkSession::from_bits(4), key, (given, had), there.now).is_none());
    // The broadcasts that it has missed are evicted before it has the socket.
    there.log("/", "first", &[], &[]);
    there.pass(TTL / 2);
    assert!(here.bring_to(&mut there, 3, "c", "4"));
    there.pass(TTL / 2);
    assert_eq!(there.complete(3, "c"), Some(Err(Evicted)));
    assert_eq!(there.recovery.bytes(), 0);
}
