//! Socket.IO clients that lose their connection and reconnect: each event arrives once, in order, over each transport, from each
//! core.

mod short_memory;

use crate::harness::io::{packets, post};
use crate::harness::ws::frame;
use crate::harness::{HOUR, Io, Packet, Server, WAYS, Way, joins, on_one_and_three, rule, until};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fastrand::Rng;
use serde_json::{Value, json};
use std::time::Duration;
use stentor_edge::{App, Options, Recovery, Rule};
use stentor_wire::engineio::Version;
use stentor_wire::ws::Opcode;

/// Starts a server on which `join` joins a room and `echo` returns its arguments.
fn server_with(cores: usize, recovery: Recovery, set: impl FnOnce(&mut Options)) -> Server {
    Server::start(cores, |options| {
        options.app = App::Rooms;
        options.heartbeat.interval = HOUR;
        options.engine.recovery = Some(recovery);
        options.rooms.namespaces = vec!["/n".into()];
        options.rooms.rules = vec![joins("join"), Rule { echo: true, ..rule("echo") }];
        set(options);
    })
}

fn server(cores: usize) -> Server {
    server_with(cores, Recovery::default(), |_| {})
}

/// The state of a Socket.IO client.
#[derive(Clone, Debug)]
struct Memory {
    sid: Value,
    pid: Value,
    /// The last string at the end of an event.
    offset: Option<String>,
}

impl Memory {
    /// The state of a client that has just connected.
    fn new(answer: &Value) -> Self {
        let memory = Self { sid: answer["sid"].clone(), pid: answer["pid"].clone(), offset: None };
        assert!(memory.sid.is_string() && memory.pid.is_string(), "{answer}");
        memory
    }

    /// The CONNECT with which the client reconnects.
    fn connect(&self) -> String {
        format!("40{}", self.auth())
    }

    fn auth(&self) -> Value {
        match &self.offset {
            Some(offset) => json!({"pid": self.pid, "offset": offset}),
            None => json!({"pid": self.pid}),
        }
    }

    /// Handles an event like socket.io-client: a string at its end is the offset. Returns the event without the offset.
    fn heard(&mut self, mut event: Value) -> Value {
        if let Some(offset) = event.as_array_mut().unwrap().pop_if(|last| last.is_string()) {
            self.offset = offset.as_str().map(str::to_owned);
        }
        event
    }
}

/// Connects a client that is a member of room `r`.
fn member(server: &Server, way: Way) -> (Io, Memory) {
    let mut io = Io::socket(server, way);
    let memory = Memory::new(&io.connect("", json!(null)));
    check_joins(&mut io);
    (io, memory)
}

fn check_joins(io: &mut Io) {
    assert_eq!(io.ask("join", &[json!("r")]), json!([{"ok": true}]));
}

/// Cuts the client's connections, and waits until the server has `lost` suspended sockets.
fn lose(server: &Server, io: Io, lost: u64) {
    lose_until(server, io, || server.metric("socketio_recovery_sockets") == lost);
}

/// Cuts the client's connections, and waits until `shows` is true.
fn lose_until(server: &Server, io: Io, shows: impl Fn() -> bool) {
    let target = io.target("polling");
    let is_polled = io.is_polled();
    io.cut();
    until("the loss to be noticed", || {
        // An answer may have been in transit, so polls are abandoned until one has to wait.
        if is_polled {
            let mut http = server.http();
            http.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        }
        shows()
    });
}

/// Reads up to the answer to CONNECT. Returns the missed messages, and whether the socket was recovered.
fn read_answer(io: &mut Io, memory: &mut Memory) -> (Vec<Value>, bool) {
    let mut missed = Vec::new();
    loop {
        let text = io.next_text();
        if let Some(answer) = text.strip_prefix("40") {
            let answer: Value = serde_json::from_str(answer).unwrap();
            let recovered = answer["pid"] == memory.pid;
            assert_eq!(answer["sid"] == memory.sid, recovered);
            return (missed, recovered);
        }
        missed.push(memory.heard(serde_json::from_str(text.strip_prefix("42").unwrap()).unwrap()));
    }
}

fn come_back(server: &Server, way: Way, memory: &mut Memory) -> (Io, Vec<Value>, bool) {
    let mut io = Io::socket(server, way);
    io.send(&memory.connect());
    let (missed, recovered) = read_answer(&mut io, memory);
    (io, missed, recovered)
}

fn messages(numbers: std::ops::Range<u32>) -> Vec<Value> {
    numbers.map(|n| json!(["message", n])).collect()
}

fn publish(server: &Server, numbers: std::ops::Range<u32>) {
    numbers.for_each(|n| server.publish("r", &n.to_string()));
}

/// Publishes until the other cores know that the client's core has a member of the room. The publications aren't kept.
fn be_known(server: &Server, io: &mut Io) {
    server.publish("r", "\"first\"");
    until("the first one", || {
        server.publish("r", "\"first\"");
        server.metric("deliveries_due") > 0
    });
    server.publish("r", "\"last\"");
    while io.event()[1] != "last" {}
}

/// Reads events up to the last expected one. By then, all clients on the same core have received them.
fn hear(io: &mut Io, memory: &mut Memory, expect: &[Value]) {
    for one in expect {
        assert_eq!(memory.heard(io.event()), *one);
    }
}

#[test]
fn a_client_recovers_before_its_first_event_and_several_times() {
    for way in WAYS {
        let server = server(1);
        let (io, mut memory) = member(&server, way);
        let mut witness = member(&server, Way::Socket);
        lose(&server, io, 1);
        let mut at = 0;
        for round in 0..4 {
            publish(&server, at..at + 3);
            hear(&mut witness.0, &mut witness.1, &messages(at..at + 3));
            let (mut io, missed, recovered) = come_back(&server, WAYS[round % 3], &mut memory);
            assert!(recovered, "{way:?} {round}");
            assert_eq!(missed, messages(at..at + 3));
            // The socket is still a member, and receives messages for it alone.
            publish(&server, at + 3..at + 5);
            hear(&mut io, &mut memory, &messages(at + 3..at + 5));
            io.send(r#"42["echo","text"]"#);
            let event = io.event();
            assert_eq!(event[1], "text");
            memory.heard(event);
            hear(&mut witness.0, &mut witness.1, &messages(at + 3..at + 5));
            at += 5;
            lose(&server, io, 1);
        }
        // The client reconnects once without missed messages.
        let (io, missed, recovered) = come_back(&server, way, &mut memory);
        assert_eq!((missed, recovered), (vec![], true));
        assert_eq!(server.metric("socketio_recoveries"), 5);
        io.leave();
    }
}

#[test]
fn messages_for_one_socket_are_not_lost() {
    for way in WAYS {
        let server = server(1);
        let (mut io, mut memory) = member(&server, way);
        let mut witness = member(&server, Way::Socket);
        server.until_metric("messages_received", |received| received == 4);
        // The client has received only the first of several events.
        let before = server.metric("messages_received");
        for n in 0..3 {
            io.send(&format!(r#"42["echo",{n}]"#));
        }
        server.until_metric("messages_received", |received| received >= before + 3);
        publish(&server, 0..1);
        hear(&mut witness.0, &mut witness.1, &messages(0..1));
        assert_eq!(memory.heard(io.event()), json!(["echo", 0]));
        lose(&server, io, 1);
        let (mut io, missed, recovered) = come_back(&server, way, &mut memory);
        assert!(recovered);
        assert_eq!(missed, [json!(["echo", 1]), json!(["echo", 2]), json!(["message", 0])]);
        // A string of the client itself isn't an offset of the server.
        io.send(r#"42["echo","0000000000000000"]"#);
        let event = io.event();
        assert_eq!((&event[1], event.as_array().unwrap().len()), (&json!("0000000000000000"), 3));
        memory.heard(event);
        lose(&server, io, 1);
        assert!(come_back(&server, way, &mut memory).2);
    }
}

#[test]
fn a_client_that_reconnects_before_the_loss_is_noticed_keeps_its_socket() {
    for (before, after) in WAYS.iter().flat_map(|before| WAYS.map(|after| (*before, after))) {
        on_one_and_three(|cores| {
            let server = server(cores);
            let (mut io, mut memory) = member(&server, before);
            let other = Memory::new(&io.connect("/n", json!(null)));
            be_known(&server, &mut io);
            for round in 0..3 {
                let at = round * 3;
                publish(&server, at..at + 3);
                hear(&mut io, &mut memory, &messages(at..at + 1));
                // The usual state of a polling client: a poll waits.
                if io.is_polled() && round != 1 {
                    io.begin_poll();
                }
                let (mut back, missed, recovered) = come_back(&server, after, &mut memory);
                assert!(recovered, "{before:?} {after:?} {cores} {round}");
                // Messages that hadn't reached the client's core by then arrive as usual.
                let had = at + 1 + missed.len() as u32;
                assert_eq!(missed, messages(at + 1..had));
                assert!(cores > 1 || had == at + 3);
                hear(&mut back, &mut memory, &messages(had..at + 3));
                // The previous connection ends, perhaps with some of these messages.
                let mut also = messages(at + 1..at + 3).into_iter();
                let code = loop {
                    match io.next() {
                        Packet::Text(event) => {
                            let event: Value =
                                serde_json::from_str(event.strip_prefix("42").unwrap()).unwrap();
                            let expect = also.next().unwrap();
                            assert_eq!(event.as_array().unwrap()[..2], expect.as_array().unwrap()[..]);
                        }
                        Packet::End(code) => break code,
                        other @ Packet::Binary(_) => panic!("{other:?}"),
                    }
                };
                assert_eq!(code, if io.is_polled() { 400 } else { 1000 });
                // The socket of the other namespace was suspended as well, and is recovered.
                back.send(&format!("40/n,{}", other.auth()));
                let answer = back.next_text();
                let answer: Value = serde_json::from_str(answer.strip_prefix("40/n,").unwrap()).unwrap();
                assert_eq!((&answer["sid"], &answer["pid"]), (&other.sid, &other.pid));
                io = back;
            }
            // The `pid` of a connected socket of another namespace starts a new session. The connected socket misses no
            // messages.
            io.send("41/n,");
            let fresh = io.connect("/n", memory.auth());
            assert!(fresh["pid"] != memory.pid && fresh["pid"] != other.pid);
            let mut stranger = Io::socket(&server, after);
            stranger.send(&format!("40/n,{}", memory.auth()));
            assert!(stranger.next_text().starts_with("40/n,"));
            publish(&server, 9..10);
            hear(&mut io, &mut memory, &messages(9..10));
            io.leave();
            stranger.leave();
            server.until_metric("socketio_recovery_sockets", |suspended| suspended == 3);
        });
    }
}

#[test]
fn a_recovered_client_does_not_count_as_suspended() {
    let server = server_with(1, Recovery { sessions_max: 0, ..Recovery::default() }, |_| {});
    let (mut io, _) = member(&server, Way::Socket);
    let other = io.connect("/n", json!(null));
    let mut back = Io::socket(&server, Way::Socket);
    let answer = back.connect("/n", json!({"pid": other["pid"]}));
    assert_eq!(answer["sid"], other["sid"]);
    assert_eq!(io.expect_end(), 1000);
    back.cut();
    server.check_empty();
}

#[test]
fn the_pid_of_another_namespace_recovers_no_session() {
    let server = server(1);
    let (mut io, mut memory) = member(&server, Way::Socket);
    let mut other = Memory::new(&io.connect("/n", json!(null)));
    assert_ne!(other.pid, memory.pid);
    lose(&server, io, 2);
    // Each client presents the other's `pid`: both start new sessions, and the right sockets can still be recovered.
    let mut io = Io::socket(&server, Way::Socket);
    io.send(&other.connect());
    assert!(!read_answer(&mut io, &mut memory).1);
    let answer = io.connect("/n", memory.auth());
    assert!(answer["pid"] != other.pid && answer["pid"] != memory.pid);
    io.leave();
    let (mut io, _, recovered) = come_back(&server, Way::Socket, &mut memory);
    assert!(recovered);
    assert_eq!(io.connect("/n", other.auth())["sid"], other.sid);
    // The `pid` of a connected socket of another namespace recovers no session.
    assert!(!come_back(&server, Way::Polling, &mut other).2);
    check_joins(&mut io);
}

#[test]
fn a_client_that_can_not_be_recovered_starts_a_new_session() {
    let one = Recovery::default();
    let short = Recovery { age_max: Duration::from_millis(10), ..one };
    let small = Recovery { bytes_max: 1_000, ..one };
    let long = "0".repeat(1_000);
    on_one_and_three(|cores| {
        for (what, recovery, offset) in [
            ("an unknown offset", one, Some("0123456789abcdef")),
            ("no offset at all", one, Some("what?")),
            ("a long one", one, Some(&*long)),
            ("too late", short, None),
            ("a log too small", small, None),
        ] {
            for way in WAYS {
                let server = server_with(cores, recovery, |_| {});
                let (mut io, mut memory) = member(&server, way);
                io.send(r#"42["echo",1]"#);
                memory.heard(io.event());
                // A socket that is kept only for a moment may not appear as suspended.
                let (shows, left) =
                    if what == "too late" { ("sessions", 0) } else { ("socketio_recovery_sockets", 1) };
                lose_until(&server, io, || server.metric(shows) == left);
                if what == "a log too small" {
                    fill_logs(&server, cores);
                }
                memory.offset = offset.map(str::to_owned).or(memory.offset);
                let (mut io, missed, recovered) = come_back(&server, way, &mut memory.clone());
                assert_eq!((missed, recovered), (vec![], false), "{what} {way:?}");
                // The new session is a member of no room, and works.
                check_joins(&mut io);
                server.until_metric("socketio_recovery_sockets", |suspended| suspended == 0);
                // A second attempt doesn't find the socket either.
                assert!(!come_back(&server, way, &mut memory).2, "{what} {way:?}");
            }
        }
    });
}

/// Adds members until the core with a suspended socket is among those that deliver to them.
fn fill_logs(server: &Server, cores: usize) {
    let mut members: Vec<_> = (0..6 * cores).map(|_| member(server, Way::Socket)).collect();
    for (io, _) in &mut members {
        (0..20).for_each(|n| io.send(&format!(r#"42["echo",{n}]"#)));
        (0..20).for_each(|_| drop(io.event()));
    }
    members.into_iter().for_each(|(mut io, _)| io.send("41"));
}

#[test]
fn clients_that_leave_or_break_the_protocol_are_not_kept() {
    for way in WAYS {
        for last in ["41", "42[]"] {
            let server = server(1);
            let (mut io, mut memory) = member(&server, way);
            io.send(last);
            if last == "41" {
                io.leave();
            } else {
                io.expect_end();
                drop(io);
            }
            server.until_metric("connections", |connections| connections == 0);
            let suspended = (server.metric("engineio_sessions"), server.metric("socketio_recovery_sockets"));
            assert_eq!(suspended, (0, 0), "{way:?} {last}");
            assert!(!come_back(&server, way, &mut memory).2);
        }
    }
}

#[test]
fn suspended_sockets_are_kept_up_to_the_maximum() {
    let age_max = Duration::from_millis(300);
    let recovery = Recovery { sessions_max: 2, age_max, ..Recovery::default() };
    let server = server_with(1, recovery, |_| {});
    let clients: Vec<_> = (0..5).map(|_| member(&server, Way::Socket)).collect();
    clients.into_iter().for_each(|(io, _)| io.cut());
    server.until_metric("engineio_sessions", |clients| clients == 0);
    server.until_metric("socketio_recovery_sockets", |suspended| suspended == 2);
    server.until_metric("sessions", |sessions| sessions == 2);
    server.until_metric("socketio_recovery_sockets", |suspended| suspended == 0);
    server.check_empty();
}

// ---- several cores ----

fn core_of(sid: &Value, cores: usize) -> usize {
    usize::from(URL_SAFE_NO_PAD.decode(sid.as_str().unwrap()).unwrap()[0]) % cores
}

/// Makes values until `is_right` accepts one. Passes the other values to `leave`.
fn until_found<T>(make: impl Fn() -> T, is_right: impl Fn(&T) -> bool, leave: impl Fn(T)) -> T {
    for _ in 0..1_000 {
        let made = make();
        if is_right(&made) {
            return made;
        }
        leave(made);
    }
    panic!("the kernel doesn't spread connections");
}

/// Connects a client to another core than that of the suspended socket (`other`), or to the same core.
fn elsewhere(server: &Server, way: Way, memory: &Memory, other: bool) -> Io {
    let home = core_of(&memory.pid, 3);
    let is_right = |io: &Io| (core_of(&io.sid.clone().into(), 3) != home) == other;
    until_found(|| Io::socket(server, way), is_right, Io::leave)
}

/// A member on the core with a suspended socket. The suspended socket misses the messages that this member receives.
fn member_beside(server: &Server, memory: &Memory) -> (Io, Memory) {
    let is_right = |(_, other): &(Io, Memory)| core_of(&other.pid, 3) == core_of(&memory.pid, 3);
    until_found(
        || member(server, Way::Socket),
        is_right,
        |(mut io, _)| {
            io.send("41");
            io.leave();
        },
    )
}

#[test]
fn a_client_that_reconnects_to_another_core_is_moved() {
    for way in WAYS {
        for posted in 0..4 {
            let server = server(3);
            let (io, mut memory) = member(&server, Way::Socket);
            let mut witness = member_beside(&server, &memory);
            lose(&server, io, 1);
            // Waits until the cores know each other's members. Earlier publications have no deliveries.
            let mut at = 0;
            until("deliveries", || {
                publish(&server, at..at + 1);
                at += 1;
                server.metric("deliveries_due") >= 20
            });
            publish(&server, at..at + 1);
            while witness.1.heard(witness.0.event()) != json!(["message", at]) {}
            let mut io = elsewhere(&server, way, &memory, true);
            let (connect, echo) = (memory.connect(), r#"421["echo",5]"#);
            let text = |text: &str| frame(Opcode::Text, text.as_bytes(), true, false);
            match (way, posted) {
                // The CONNECT arrives while a poll waits, in the body of one POST, or during an upgrade.
                (Way::Polling, 1) => {
                    io.begin_poll();
                    io.send(&connect);
                }
                (Way::Polling, 2) => io.send_all(&[&connect, "40/n,", echo]),
                (Way::Polling, 3) => {
                    let mut ws = io.begin_upgrade();
                    ws.send_text("2probe");
                    assert_eq!(ws.next_text(), "3probe");
                    io.send(&connect);
                    io.end_upgrade(ws);
                }
                (_, 2) => io.ws().send_raw(&[text(&connect), text("40/n,"), text(echo)].concat()),
                (_, 3) => {
                    // The body arrives in pieces, the last one after the move.
                    let all = [text(&connect), text(echo)].concat();
                    let (begin, end) = all.split_at(all.len() - 9);
                    io.ws().send_raw(begin);
                    server.check_serves();
                    io.ws().send_raw(end);
                }
                _ => io.send(&connect),
            }
            let (missed, recovered) = read_answer(&mut io, &mut memory);
            assert!(recovered, "{way:?} {posted}");
            assert_eq!(missed.last(), Some(&json!(["message", at])));
            let numbers: Vec<u64> = missed.iter().map(|event| event[1].as_u64().unwrap()).collect();
            assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
            if posted == 2 {
                assert!(io.next_text().starts_with("40/n,"));
            }
            if posted == 2 || posted == 3 && way != Way::Polling {
                assert_eq!(memory.heard(io.event()), json!(["echo", 5]));
                io.expect(r#"431[{"ok":true}]"#);
            }
            // The client continues on that core over any connection, and may still upgrade to a WebSocket.
            publish(&server, at + 1..at + 3);
            hear(&mut io, &mut memory, &messages(at + 1..at + 3));
            if way == Way::Polling && posted != 3 {
                io.send(r#"42["echo",6]"#);
                io.upgrade();
                assert_eq!(memory.heard(io.event()), json!(["echo", 6]));
            }
            let target = io.target("polling");
            io.leave();
            // No state of the client is left on either core.
            drop(witness);
            server.until_metric("engineio_sessions", |clients| clients == 0);
            assert_eq!(server.http().get(&target).status, 400);
        }
    }
}

#[test]
fn a_moved_client_that_is_polled_shares_connections_with_others() {
    for seed in 0..3 {
        let mut random = Rng::with_seed(seed);
        let server = server_with(3, Recovery::default(), |options| options.limits.mailbox_messages_max = 2);
        let mut all: Vec<(Io, Memory, u32)> = Vec::new();
        for n in 0..9 {
            let (io, mut memory) = member(&server, WAYS[random.usize(..3)]);
            lose(&server, io, 1);
            let mut io = elsewhere(&server, Way::Polling, &memory, n % 3 > 0);
            io.send(&memory.connect());
            assert!(read_answer(&mut io, &mut memory).1);
            all.push((io, memory, 0));
        }
        let mut conns: Vec<_> = (0..4).map(|_| server.http()).collect();
        for _ in 0..150 {
            let n = random.usize(..all.len());
            let (io, memory, count) = &mut all[n];
            *count += 1;
            let body = format!(r#"42["echo",{count}]"#);
            let conn = &mut conns[random.usize(..4)];
            conn.send(post(&io.target("polling"), "text/plain", body.as_bytes()));
            assert_eq!(conn.response().text(), "ok");
            let conn = &mut conns[random.usize(..4)];
            let answer = conn.get(&io.target("polling"));
            let [Packet::Text(event)] = &packets(Version::V4, &answer)[..] else { panic!() };
            let event = serde_json::from_str(event.strip_prefix("42").unwrap()).unwrap();
            assert_eq!(memory.heard(event), json!(["echo", count]));
        }
        all.into_iter().for_each(|(io, ..)| io.leave());
        server.until_metric("engineio_sessions", |clients| clients == 0);
    }
}

#[test]
fn a_client_moves_once_and_only_at_its_beginning() {
    let server = server(3);
    let (io, mut first) = member(&server, Way::Socket);
    let (second_io, mut second) = member(&server, Way::Socket);
    lose(&server, io, 1);
    lose(&server, second_io, 2);
    // The client has already done something, so it stays and starts a new session.
    let mut io = elsewhere(&server, Way::Socket, &first, true);
    io.connect("/n", json!(null));
    io.send(&first.connect());
    assert!(!read_answer(&mut io, &mut first.clone()).1);
    io.leave();
    // An unknown `pid` of another core: the client moves there in vain.
    let mut io = elsewhere(&server, Way::Polling, &first, true);
    let mut made_up = Memory {
        sid: json!(""),
        pid: json!(URL_SAFE_NO_PAD.encode([core_of(&first.pid, 3) as u8; 15])),
        offset: None,
    };
    io.send(&made_up.connect());
    assert!(!read_answer(&mut io, &mut made_up).1);
    assert_eq!(io.ask("join", &[json!("x")]), json!([{"ok": true}]));
    // The client doesn't move a second time.
    io.send("41");
    io.send(&second.connect());
    let (_, recovered) = read_answer(&mut io, &mut second);
    assert_eq!(recovered, core_of(&second.pid, 3) == core_of(&first.pid, 3));
    io.leave();
    // The first socket can still be recovered.
    let mut io = elsewhere(&server, Way::Moved, &first, true);
    io.send(&first.connect());
    assert!(read_answer(&mut io, &mut first).1);
    io.leave();
    server.until_metric("engineio_sessions", |clients| clients == 0);
}
