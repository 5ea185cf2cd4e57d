//! Engine.IO: sessions that share connections, upgrades, budgets, bodies, ends. Public attacks are in
//! `threats_io.rs`, Socket.IO in `socketio.rs`.

use super::threats_io::refusal;
use crate::harness::io::{body, packets, post};
use crate::harness::{
    HOUR, Http, Io, Packet, Response, Seen, Server, TRANSPORTS, UPGRADE, VERSIONS, WAYS, Way, Ws, meet,
    on_one_and_three, request, takes, until,
};
use fastrand::Rng;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use stentor_edge::{
    App, AppFactory, Application, Connect, Context, Envelope, Message, Options, Origins, RequestId,
};
use stentor_hub::{Data, Emit, Policy, Room, SessionId};
use stentor_wire::engineio::Version;
use stentor_wire::http1::Request;

const HANDSHAKE: &str = "/engine.io/?EIO=4&transport=polling";

fn get(target: &str) -> String {
    request("GET", target, "")
}

/// Checks that a session doesn't exist any more.
fn check_gone(server: &Server, io: &Io) {
    assert_eq!(refusal(&server.get(&io.target("polling"))), (400, 1));
}

/// Opens an Engine.IO session of this version.
fn open(server: &Server, version: Version, way: Way) -> Io {
    Io::open(server.addr, "/engine.io/", version, way, "")
}

/// Begins the upgrade of a polling session. Returns the WebSocket after its probe has been answered.
fn probed(io: &Io) -> Ws {
    let mut ws = io.begin_upgrade();
    ws.send_text("2probe");
    assert_eq!(ws.next_text(), "3probe");
    ws
}

/// The open packet of a session.
fn opened(text: &str) -> Value {
    serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap()
}

/// The target of the requests of a session that began with this answer.
fn polling_target(open: &Response) -> String {
    format!("{HANDSHAKE}&sid={}", opened(open.text())["sid"].as_str().unwrap())
}

// ---- connections that sessions share ----

/// A proxy: few connections and many sessions. Each request uses any free connection.
struct Proxy {
    conns: Vec<Http>,
    /// `true` for connections that wait for the answer to a poll.
    waits: Vec<bool>,
}

impl Proxy {
    fn free(&self, random: &mut Rng) -> usize {
        let free: Vec<usize> = (0..self.conns.len()).filter(|conn| !self.waits[*conn]).collect();
        free[random.usize(..free.len())]
    }
}

struct Shared {
    io: Io,
    sent: u32,
    received: u32,
    poll: Option<usize>,
}

impl Shared {
    fn take(&mut self, response: &Response) {
        for packet in packets(self.io.version(), response) {
            self.received += 1;
            assert_eq!(packet, Packet::Text(format!("4{}", self.received)), "in order, each once");
        }
    }
}

#[test]
fn sessions_share_connections_of_all_cores() {
    let mut handed_over = 0;
    for seed in 0..6 {
        for cores in [1, 3] {
            let mut random = Rng::with_seed(seed);
            let server = Server::quiet(cores, App::Echo, |options| {
                // In half of the runs, the rings between cores are tiny.
                options.limits.mailbox_messages_max = if seed % 2 == 0 { 1 } else { 4_096 };
            });
            let mut sessions: Vec<Shared> = (0..9)
                .map(|n| {
                    let version = VERSIONS[n % 2];
                    let io = open(&server, version, Way::Polling);
                    Shared { io, sent: 0, received: 0, poll: None }
                })
                .collect();
            let mut proxy = Proxy { conns: (0..8).map(|_| server.http()).collect(), waits: vec![false; 8] };
            for _ in 0..250 {
                let n = random.usize(..sessions.len());
                let session = &mut sessions[n];
                let is_owed = session.sent > session.received;
                let waiting = proxy.waits.iter().filter(|waits| **waits).count();
                match (session.poll, random.usize(..3)) {
                    // A poll that is answered at once, or waits.
                    (None, 0) if is_owed || waiting < 6 => {
                        let conn = proxy.free(&mut random);
                        proxy.conns[conn].send(get(&session.io.target("polling")));
                        if is_owed {
                            let answer = proxy.conns[conn].response();
                            session.take(&answer);
                        } else {
                            proxy.waits[conn] = true;
                            session.poll = Some(conn);
                        }
                    }
                    _ => {
                        let conn = proxy.free(&mut random);
                        let several: Vec<String> = (0..1 + random.usize(..3))
                            .map(|_| {
                                session.sent += 1;
                                format!("4{}", session.sent)
                            })
                            .collect();
                        let several: Vec<&str> = several.iter().map(String::as_str).collect();
                        let body = body(session.io.version(), &several);
                        let request = post(&session.io.target("polling"), "text/plain", body.as_bytes());
                        // Some requests are sent in pieces: the headers are read on one core, and the body on the session's core.
                        let cut = if random.usize(..2) == 0 {
                            request.len()
                        } else {
                            random.usize(..request.len())
                        };
                        proxy.conns[conn].send(&request[..cut]);
                        if cut < request.len() {
                            server.check_serves();
                        }
                        proxy.conns[conn].send(&request[cut..]);
                        assert_eq!(proxy.conns[conn].response().text(), "ok");
                        if let Some(poll) = session.poll.take() {
                            let answer = proxy.conns[poll].response();
                            proxy.waits[poll] = false;
                            session.take(&answer);
                        }
                    }
                }
            }
            handed_over += server.metric("connections_migrated");
            drop((proxy, sessions));
            server.check_serves();
        }
    }
    // The number of requests that were handed over depends on the choice of cores for connections, and on how full the
    // rings were.
    assert!(handed_over > 150, "{handed_over}");
}

#[test]
fn requests_to_sessions_of_several_cores_in_one_pipeline() {
    on_one_and_three(|cores| {
        let server = Server::echo(cores);
        let sessions: Vec<Io> = (0..8).map(|_| Io::engine(&server, Way::Polling)).collect();
        let mut http = server.http();
        let mut requests = Vec::new();
        for (n, io) in sessions.iter().enumerate() {
            requests.extend(post(&io.target("polling"), "text/plain", format!("4{n}").as_bytes()));
            requests.extend(get(&io.target("polling")).into_bytes());
        }
        http.send(&requests);
        for n in 0..sessions.len() {
            assert_eq!(http.response().text(), "ok");
            assert_eq!(http.response().text(), format!("4{n}"));
        }
    });
}

// ---- the upgrade ----

/// The number that a message packet carries as its text. `None` for other packets.
fn number(packet: &Packet) -> Option<u32> {
    match packet {
        Packet::Text(text) => text.strip_prefix('4')?.parse().ok(),
        _ => None,
    }
}

#[test]
fn nothing_is_lost_or_doubled_while_a_client_moves_to_a_websocket() {
    for seed in 0..8 {
        on_one_and_three(|cores| {
            let mut random = Rng::with_seed(seed);
            let server = Server::quiet(cores, App::Chat, |options| {
                // In this test, no poll ends because an upgrade takes too long.
                options.engine.upgrade_timeout = HOUR;
            });
            let version = VERSIONS[random.usize(..2)];
            let mut publisher = server.ws("/ws");
            let mut io = open(&server, version, Way::Polling);
            // Waits until the cores know each other's members.
            for met in 1.. {
                io.echoes("4met");
                let seen = publisher.fence();
                if seen.contains(&Seen::Text("met".into())) {
                    break;
                }
                assert!(met < 100_000, "they never meet");
            }
            let (mut sent, mut received) = (0, 0);
            let mut publish = |random: &mut Rng| {
                for _ in 0..random.usize(..4) {
                    sent += 1;
                    publisher.send_text(&sent.to_string());
                }
                publisher.fence();
                sent
            };
            let mut take = |packet: &Packet| {
                if let Some(n) = number(packet) {
                    received += 1;
                    assert_eq!(n, received, "seed {seed}: in order, each once");
                }
                received
            };
            let polls = random.usize(..2) == 0;
            if polls {
                io.begin_poll();
            }
            publish(&mut random);
            let mut ws = io.begin_upgrade();
            publish(&mut random);
            ws.send_text("2probe");
            assert_eq!(ws.next_text(), "3probe");
            publish(&mut random);
            if polls {
                // The poll is answered with a message, or released.
                for packet in packets(version, &io.end_poll()) {
                    take(&packet);
                }
            }
            publish(&mut random);
            if random.usize(..2) == 0 {
                io.begin_poll();
                for packet in packets(version, &io.end_poll()) {
                    take(&packet);
                }
            }
            publish(&mut random);
            io.end_upgrade(ws);
            let last = publish(&mut random);
            publisher.send_text("end");
            loop {
                match io.next() {
                    Packet::Text(end) if end == "4end" => break,
                    packet => {
                        take(&packet);
                    }
                }
            }
            assert_eq!(take(&Packet::End(0)), last, "seed {seed}");
            // Another client that polls from now on, or opens a second WebSocket, is refused. The session continues.
            assert_eq!(refusal(&server.http().get(&io.target("polling"))), (400, 3));
            assert_eq!(io.begin_upgrade().expect_close().0, 1000);
            io.echoes("4after");
            drop((io, publisher));
            server.check_empty();
        });
    }
}

#[test]
fn a_failed_upgrade_leaves_the_session_polling() {
    on_one_and_three(|cores| {
        let server = Server::quiet(cores, App::Echo, |options| {
            options.engine.upgrade_timeout = Duration::from_secs(1);
        });
        let mut io = Io::engine(&server, Way::Polling);
        // The client sends no message, or another message than the probe.
        for first in [None, Some("4hello"), Some("5")] {
            let mut ws = io.begin_upgrade();
            first.into_iter().for_each(|text| ws.send_text(text));
            assert_eq!(ws.expect_close().0, 1000, "{first:?}");
        }
        let ws = probed(&io);
        // A second WebSocket at the same time is refused.
        assert_eq!(io.begin_upgrade().expect_close().0, 1000);
        drop(ws);
        io.echoes("4polled");
        io.cut();
    });
}

#[test]
fn a_waiting_poll_is_released_while_the_client_moves() {
    let server = Server::echo(1);
    for version in VERSIONS {
        let mut io = open(&server, version, Way::Polling);
        io.begin_poll();
        let ws = probed(&io);
        for _ in 0..3 {
            assert_eq!(packets(version, &io.end_poll()), [Packet::Text("6".into())]);
            server.until_requested(|| io.begin_poll());
        }
        // The client completes the upgrade while a poll waits. The server answers the poll.
        io.end_upgrade_waiting(ws);
        io.echoes("4hello");
    }
    server.check_empty();
}

#[test]
fn a_websocket_for_a_session_that_has_ended_is_refused() {
    let server = Server::quiet(1, App::Chat, |options| {
        options.limits.send_buffer_bytes_max = 1_000;
        options.limits.close_timeout = HOUR;
    });
    let io = Io::engine(&server, Way::Polling);
    let mut publisher = server.ws("/ws");
    publisher.send_text(&"x".repeat(600));
    publisher.send_text(&"x".repeat(600));
    server.until_metric("disconnects", |ended| ended > 0);
    // The server refuses the handshake, because a WebSocket of this session would have no timeouts.
    assert_eq!(Ws::open(server.addr, &io.target("websocket"), &[], false).err(), Some(400));
    // The next poll receives the end of the session, and the poll after it finds no session.
    assert_eq!(server.get(&io.target("polling")).status, 503);
    check_gone(&server, &io);
}

// ---- budgets ----

#[test]
fn a_client_that_doesnt_poll_stays_in_its_budget() {
    on_one_and_three(|cores| {
        let server = Server::quiet(cores, App::Chat, |options| options.limits.send_buffer_bytes_max = 10_000);
        let mut others = server.ws_on_each_core("/ws");
        meet(&mut others, |ws, text| ws.send_text(text), Ws::next_text);
        let idle = VERSIONS.map(|version| open(&server, version, Way::Polling));
        let text = "x".repeat(1_000);
        for sent in 1.. {
            // Clients of other cores may not be members at first.
            assert!(sent < 1_000, "nobody is ended");
            let busy = others.len();
            others[sent % busy].send_text(&text);
            for ws in &mut others {
                assert_eq!(ws.next_text().len(), 1_000);
            }
            assert!(server.metric("send_buffer_bytes") <= 2 * 10_000);
            if server.disconnects("slow_consumer") == 2 {
                break;
            }
        }
        server.until_metric("send_buffer_bytes", |bytes| bytes == 0);
        server.until_metric("memory_bytes{frames}", |bytes| bytes == 0);
        for mut io in idle {
            assert_eq!(io.expect_end(), 503);
        }
        drop(others);
        server.check_empty();
    });
}

#[test]
fn answers_that_arent_polled_for_stay_in_their_budget() {
    let server = Server::quiet(1, App::Echo, |options| options.limits.send_buffer_bytes_max = 10_000);
    let mut io = Io::engine(&server, Way::Polling);
    let packet = format!("4{}", "x".repeat(999));
    for _ in 0..9 {
        io.send(&packet);
    }
    // One body whose answers exceed the budget.
    io.send_all(&[&*packet, &*packet, &*packet]);
    assert_eq!(server.disconnects("slow_consumer"), 1);
    assert_eq!(io.expect_end(), 503);
    drop(io);
    server.check_empty();
}

/// An application that sends messages of Engine.IO clients to all plain WebSockets.
struct Broadcaster(Room);

impl Application for Broadcaster {
    fn opened(&mut self, ctx: &mut Context<'_>, session: SessionId, _: Envelope) {
        if ctx.request().is_some_and(|request| request.path() == "/ws") {
            ctx.join(session, &self.0, Policy::Queue).unwrap();
        }
    }

    fn message(&mut self, ctx: &mut Context<'_>, _: SessionId, message: Message<'_>) {
        if let Message::Text(text) = message {
            let _ = ctx.publish(&self.0, None, Data::Text(text.to_owned().into()), Emit::default());
        }
    }
}

#[test]
fn a_long_body_does_not_close_clients_that_read() {
    for cores in [1, 3] {
        let broadcaster: AppFactory = Arc::new(|_| Box::new(Broadcaster(Room::plain("all").unwrap())));
        let server = Server::with_app(cores, broadcaster, |options| {
            options.heartbeat.interval = HOUR;
            options.limits.send_buffer_bytes_max = 100_000;
            options.limits.mailbox_messages_max = 64;
        });
        let mut readers = server.ws_on_each_core("/ws");
        meet(&mut readers, |ws, text| ws.send_text(text), Ws::next_text);
        let mut io = Io::engine(&server, Way::Polling);
        // Frames of three bytes. Together they exceed an outbox, but fit into an outbox and the kernel's buffers.
        let messages = 45_000;
        io.send_all(&vec!["4y"; messages]);
        for ws in &mut readers {
            for _ in 0..messages {
                assert_eq!(ws.next_text(), "y");
            }
        }
        assert_eq!(server.disconnects("slow_consumer"), 0);
    }
}

#[test]
fn big_documents_reach_clients_that_poll() {
    on_one_and_three(|cores| {
        let server = Server::quiet(cores, App::Rooms, |_| {});
        let document = |n: usize| format!("\"{}{}\"", n, "x".repeat(5 << 20));
        server.document("big", &document(0));
        for way in [Way::Polling, Way::Moved] {
            let mut clients: Vec<Io> = (0..3)
                .map(|_| Io::open(server.addr, "/engine.io/", Version::V4, way, "&feed=big&format=raw"))
                .collect();
            for io in &mut clients {
                assert!(io.next_text() == format!("4{}", document(0)));
            }
            // Only the newest of several versions is sent.
            for n in 1..4 {
                server.document("big", &document(n));
            }
            for io in &mut clients {
                while io.next_text() != format!("4{}", document(3)) {}
            }
            server.document("big", &document(0));
            for io in &mut clients {
                assert!(io.next_text() == format!("4{}", document(0)));
            }
            clients.into_iter().for_each(Io::leave);
        }
        server.update("big", stentor_ports::FeedUpdate::Forget);
        server.check_empty();
    });
}

// ---- ends ----

/// python-engineio and rust_socketio don't reconnect after the close packet, and OkHttp's Socket.IO client takes 43 s
/// to notice a Close frame. Clients that are to reconnect receive no close packet and no Close frame.
#[test]
fn every_client_is_notified_of_a_shutdown() {
    on_one_and_three(|cores| {
        let server = Server::echo(cores);
        let polled = || (0..4).map(|_| Io::engine(&server, Way::Polling)).collect();
        let (mut waiting, absent): (Vec<Io>, Vec<Io>) = (polled(), polled());
        let mut sockets: Vec<Io> = [Way::Socket, Way::Moved]
            .into_iter()
            .flat_map(|way| [Io::connected(&server, Version::V4, way), Io::engine(&server, way)])
            .collect();
        let moving = Io::engine(&server, Way::Polling);
        let mut probe = probed(&moving);
        waiting.iter_mut().for_each(|io| server.until_requested(|| io.begin_poll()));
        server.drain(HOUR);
        for io in &mut waiting {
            let answer = io.end_poll();
            let headers = ["retry-after", "connection", "cache-control"].map(|name| answer.header(name));
            assert_eq!((answer.status, headers), (503, ["1", "close", "no-store"]));
        }
        for io in &mut sockets {
            assert_eq!(io.expect_end(), 1006);
        }
        assert_eq!(probe.next(), Seen::End);
        drop((waiting, absent, sockets, moving, probe));
        server.join();
    });
}

#[test]
fn aborting_a_poll_ends_the_session() {
    on_one_and_three(|cores| {
        let server = Server::echo(cores);
        let until_gone = || server.until_metric("engineio_sessions", |clients| clients == 0);
        for (version, finishes) in VERSIONS.iter().flat_map(|version| [(*version, true), (*version, false)]) {
            let io = open(&server, version, Way::Polling);
            server.until_metric("engineio_sessions", |clients| clients == 1);
            let mut poll = server.http();
            poll.send(get(&io.target("polling")));
            if finishes {
                poll.finish_sending();
                poll.expect_end();
            }
            drop(poll);
            until_gone();
            check_gone(&server, &io);
            drop(io);
            // A connection used for POSTs doesn't carry the session.
            let mut io = open(&server, version, Way::Polling);
            io.send("4one");
            let half = post(&io.target("polling"), "text/plain", b"1234567");
            io.posts().send(&half[..half.len() - 3]);
            io.posts().finish_sending();
            io.posts().expect_end();
            io.expect("4one");
            io.cut();
            until_gone();
        }
        server.check_empty();
    });
}

#[test]
fn aborting_a_response_ends_the_session() {
    let server = Server::quiet(1, App::Rooms, |_| {});
    server.document("big", &format!("\"{}\"", "x".repeat(32 << 20)));
    let io = Io::open(server.addr, "/engine.io/", Version::V4, Way::Polling, "&feed=big&format=raw");
    let mut poll = server.http();
    poll.send(get(&io.target("polling")));
    // The answer begins to arrive, and most of it isn't in the kernel yet.
    poll.read(&mut [0; 1]);
    server.until_metric("engineio_sessions", |clients| clients == 1);
    drop(poll);
    server.until_metric("engineio_sessions", |clients| clients == 0);
    check_gone(&server, &io);
}

#[test]
fn a_close_packet_ends_the_session_at_once() {
    on_one_and_three(|cores| {
        let server = Server::echo(cores);
        for (version, way) in TRANSPORTS {
            let mut io = open(&server, version, way);
            if way == Way::Polling {
                server.until_requested(|| io.begin_poll());
                io.send("1");
                assert_eq!(packets(version, &io.end_poll()), [Packet::Text("6".into())]);
                check_gone(&server, &io);
            } else {
                io.send("1");
                assert_eq!(io.expect_end(), 1000);
            }
            drop(io);
            server.check_empty();
        }
    });
}

// ---- bodies ----

#[test]
fn bodies_come_in_every_shape() {
    on_one_and_three(|cores| {
        let server = Server::quiet(cores, App::Echo, |options| options.limits.message_bytes_max = 1_000);
        let mut io = Io::engine(&server, Way::Polling);
        let target = io.target("polling");
        let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\n");
        let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
        // A chunked body, with one byte per chunk.
        let conn = io.posts();
        for byte in format!("{chunked}3\r\n4ch\r\n4\r\nunks\r\n0\r\n\r\n").bytes() {
            conn.send([byte]);
        }
        assert_eq!(conn.response().text(), "ok");
        // A body after `Expect: 100-continue`.
        conn.send(format!("{head}Expect: 100-continue\r\nContent-Length: 4\r\n\r\n"));
        assert_eq!(conn.response().status, 100);
        assert_eq!(conn.ask("4exp").text(), "ok");
        // Several requests in one write.
        conn.send([b"4a", b"4b", b"4c"].map(|body| post(&target, "text/plain", body)).concat());
        for _ in 0..3 {
            assert_eq!(conn.response().text(), "ok");
        }
        for expect in ["4chunks", "4exp", "4a", "4b", "4c"] {
            io.expect(expect);
        }
        // A body that is too long by its header, and one by its content: the connection ends, the session doesn't.
        for (rest, status, text) in [
            (format!("{head}Content-Length: 1001\r\n\r\n"), 413, ""),
            (format!("{chunked}3e9\r\n{}", "x".repeat(1001)), 413, ""),
            (format!("{chunked}nonsense\r\n"), 400, "the body's framing is broken\n"),
        ] {
            let mut http = server.http();
            let answer = http.ask(&rest);
            let seen = (answer.status, answer.text(), answer.header("connection"));
            assert_eq!(seen, (status, text, "close"), "{rest}");
            http.expect_end();
        }
        io.send(&format!("4{}", "x".repeat(999)));
        assert_eq!(io.next_text().len(), 1_000);
        // An empty body is invalid, and ends the session.
        let answer = io.posts().ask(post(&target, "text/plain", b""));
        assert_eq!(refusal(&answer), (400, 3));
        check_gone(&server, &io);
        drop(io);
        server.check_empty();
    });
}

#[test]
fn an_unfinished_body_ends_the_connection_after_the_timeout() {
    let server = Server::quiet(1, App::Echo, |options| {
        options.limits.idle_timeout = Duration::from_millis(50);
    });
    let io = Io::engine(&server, Way::Polling);
    let request = post(&io.target("polling"), "text/plain", b"4hello");
    let mut http = server.http();
    http.send(&request[..request.len() - 1]);
    http.expect_end();
    assert_eq!(server.metric("engineio_sessions"), 1);
}

/// Each request arrives while a poll waits.
#[test]
fn requests_that_end_the_session() {
    on_one_and_three(|cores| {
        let server = Server::quiet(cores, App::Echo, |options| options.engine.packets_max = 3);
        for (version, body) in [
            (Version::V4, Some("abc")),
            (Version::V4, Some("4a\u{1e}")),
            (Version::V4, Some("4a\u{1e}4b\u{1e}4c\u{1e}4d")),
            (Version::V4, Some("b~~~~")),
            (Version::V3, Some("abc")),
            (Version::V3, Some("9:4a")),
            (Version::V3, Some("2:4a2:4b2:4c2:4d")),
            // A second poll at the same time.
            (Version::V4, None),
            (Version::V3, None),
        ] {
            let mut io = open(&server, version, Way::Polling);
            server.until_requested(|| io.begin_poll());
            let target = io.target("polling");
            let request = body.map_or_else(
                || get(&target).into_bytes(),
                |body| post(&target, "text/plain", body.as_bytes()),
            );
            assert_eq!(refusal(&io.posts().ask(request)), (400, 3), "{version:?} {body:?}");
            let close = [Packet::Text("1".into())];
            assert_eq!(packets(version, &io.end_poll()), close, "{version:?} {body:?}");
            check_gone(&server, &io);
        }
        server.check_empty();
    });
}

#[test]
fn text_of_client_1_is_encoded_twice_by_polling_only() {
    let server = Server::quiet(1, App::Echo, |options| options.engine.polling_1 = true);
    for (version, way) in TRANSPORTS {
        let mut io = open(&server, version, way);
        let is_twice = version == Version::V3 && io.is_polled();
        for (sent, echoed) in [("4ü", "4\u{c3}\u{bc}"), ("4\u{c3}\u{bc}", "4\u{c3}\u{bc}")] {
            io.send(sent);
            assert_eq!(io.next_text(), if is_twice { echoed } else { sent }, "{version:?} {way:?}");
        }
    }
}

#[test]
fn bytes_travel_both_ways() {
    on_one_and_three(|cores| {
        let server = Server::echo(cores);
        for (version, way) in TRANSPORTS {
            let mut io = open(&server, version, way);
            for bytes in [&b""[..], b"\0", b"4", b"\x04\x1e\xff", &[0x80; 100_000]] {
                io.send_binary(bytes);
                assert_eq!(io.next(), Packet::Binary(bytes.to_vec()), "{version:?} {way:?}");
            }
            for text in ["", "é€😀", "\u{2028}\"\\", "\0"] {
                io.echoes(&format!("4{text}"));
            }
            // A client that can't receive binary data requests base64.
            let mut io = Io::open(server.addr, "/engine.io/", version, Way::Polling, "&b64=1");
            io.send_binary(b"\x00\xff");
            io.begin_poll();
            let expect = if version == Version::V4 { "bAP8=" } else { "6:b4AP8=" };
            assert_eq!(io.end_poll().text(), expect);
        }
    });
}

#[test]
fn scripts_and_forms() {
    on_one_and_three(|cores| {
        let server = Server::echo(cores);
        // Form bodies are percent-encoded, and a client writes a line feed as `\n`.
        for (number, payload) in [(4, "4a%3D%26+%C3%A9%5Cn"), (3, "7:4a%3D%26+%C3%A9%5Cn")] {
            let base = format!("/engine.io/?EIO={number}&transport=polling&j=7");
            let mut http = server.http();
            let script = |answer: &Response| {
                assert_eq!(answer.header("content-type"), "text/javascript; charset=UTF-8");
                let text = answer.text().strip_prefix("___eio[7](").unwrap().strip_suffix(");").unwrap();
                serde_json::from_str::<String>(text).unwrap()
            };
            let open = opened(&script(&http.get(&base)));
            assert_eq!(open["upgrades"], json!(["websocket"]));
            let target = format!("{base}&sid={}", open["sid"].as_str().unwrap());
            let form = "application/x-www-form-urlencoded";
            assert_eq!(http.ask(post(&target, form, format!("d={payload}").as_bytes())).text(), "ok");
            let answer = script(&http.get(&target));
            assert!(answer.ends_with("4a=& é\n"), "{answer:?}");
            assert_eq!(refusal(&http.ask(post(&target, form, b"e=4a"))), (400, 3));
            assert_eq!(refusal(&http.get(&target)), (400, 1));
        }
        for bad in ["", "-1", "x", "%3Cscript%3E", "4294967296"] {
            assert_eq!(refusal(&server.get(&format!("{HANDSHAKE}&j={bad}"))), (400, 3), "{bad}");
        }
    });
}

// ---- pages of other origins, cookies ----

#[test]
fn pages_of_allowed_origins_may_read_and_others_may_not() {
    const GOOD: &str = "https://www.example.com";
    const EVIL: &str = "https://evil.test";
    let server = Server::quiet(3, App::Echo, |options| {
        options.origins = Origins::parse(&["https://*.example.com"]).unwrap();
    });
    let ask = |method: &str, target: &str, origin: &str, more: &str| {
        server.ask(request(method, target, &format!("Origin: {origin}\r\n{more}")))
    };
    let check = |answer: &Response, status: u16, origin: &str, credentials: &str| {
        let headers = ["access-control-allow-origin", "access-control-allow-credentials"];
        let seen = (answer.status, headers.map(|name| answer.header(name)));
        assert_eq!(seen, (status, [origin, credentials]), "{answer:?}");
    };
    let open = ask("GET", HANDSHAKE, GOOD, "");
    check(&open, 200, GOOD, "true");
    assert!(open.header("vary").eq_ignore_ascii_case("origin"));
    let target = polling_target(&open);
    let body = post(&target, "text/plain", b"4hi");
    let body = String::from_utf8(body).unwrap().replacen("\r\n", &format!("\r\nOrigin: {GOOD}\r\n"), 1);
    check(&server.ask(body), 200, GOOD, "true");
    let answer = ask("GET", &target, GOOD, "");
    check(&answer, 200, GOOD, "true");
    assert_eq!(answer.text(), "4hi");
    // Allowed pages can read errors, too.
    check(&ask("GET", "/engine.io/?EIO=4&transport=x", GOOD, ""), 400, GOOD, "true");
    // The browser sends a preflight request.
    let asks = "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-token\r\n";
    let answer = ask("OPTIONS", &target, GOOD, asks);
    check(&answer, 204, GOOD, "true");
    assert_eq!(answer.header("access-control-allow-headers"), "x-token");
    assert_eq!(answer.header("access-control-allow-methods"), "GET,POST");
    assert_eq!(answer.header("access-control-max-age"), "7200");
    for method in ["GET", "POST", "OPTIONS"] {
        check(&ask(method, &target, EVIL, "Content-Length: 0\r\n"), 403, "", "");
    }
    let upgrade = HANDSHAKE.replace("polling", "websocket");
    for (origin, refused) in [(GOOD, None), (EVIL, Some(403))] {
        assert_eq!(Ws::open(server.addr, &upgrade, &[("Origin", origin)], false).err(), refused);
    }
}

/// An application that admits clients by their query: at once, later or never.
struct Porter {
    waiting: Vec<(RequestId, bool)>,
}

impl Application for Porter {
    fn connect(&mut self, ctx: &mut Context<'_>, request: &Request<'_>) -> Connect {
        let headers = vec![
            ("Set-Cookie".to_owned(), "a=1; Path=/".to_owned()),
            ("Set-Cookie".to_owned(), "b=2".to_owned()),
        ];
        let refusal = Connect::Refuse { status: 403, message: "not you".into() };
        match request.query() {
            query if query.contains("never") => refusal,
            query if query.contains("later") => {
                self.waiting.push((ctx.request_id().unwrap(), query.contains("later=yes")));
                Connect::Pending
            }
            query if query.contains("answer") => {
                // A new client triggers the answers to the waiting clients.
                for (request, admitted) in self.waiting.drain(..) {
                    let answer =
                        if admitted { Connect::AcceptWith(headers.clone()) } else { refusal.clone() };
                    ctx.admit(request, answer);
                }
                Connect::Accept
            }
            _ => Connect::AcceptWith(headers),
        }
    }

    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, message: Message<'_>) {
        ctx.send(session, message);
    }
}

fn porter(set: impl FnOnce(&mut Options)) -> Server {
    Server::with_app(1, Arc::new(|_| Box::new(Porter { waiting: Vec::new() })), set)
}

fn cookies(response: &Response) -> Vec<&str> {
    let headers = response.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    headers.map(|(_, value)| value.as_str()).collect()
}

#[test]
fn headers_of_the_first_answer() {
    let server = porter(|options| options.engine.cookie = Some("io".into()));
    let answer = server.get(HANDSHAKE);
    let open = opened(answer.text());
    let own = format!("io={}; Path=/; HttpOnly; SameSite=Lax", open["sid"].as_str().unwrap());
    assert_eq!(cookies(&answer), ["a=1; Path=/", "b=2", &own]);
    // Only the first request has the headers.
    let target = polling_target(&answer);
    for request in [post(&target, "text/plain", b"4x"), get(&target).into_bytes()] {
        assert_eq!(cookies(&server.ask(request)), [""; 0]);
    }
    let ws = server.ws("/engine.io/?EIO=4&transport=websocket");
    let cookies: Vec<&str> = ws.head.lines().filter(|line| line.starts_with("Set-Cookie: ")).collect();
    assert_eq!(cookies[..2], ["Set-Cookie: a=1; Path=/", "Set-Cookie: b=2"]);
    assert!(cookies[2].starts_with("Set-Cookie: io="));
}

/// All three clients were below the limit when they asked.
#[test]
fn limits_apply_again_when_the_application_admits_a_client() {
    let server = porter(|options| options.address_limits.sessions_max = 2);
    let mut waiting: Vec<_> = (0..2).map(|_| server.http()).collect();
    for http in &mut waiting {
        http.send(get(&format!("{HANDSHAKE}&later=yes")));
        server.check_serves();
    }
    assert_eq!(server.get(&format!("{HANDSHAKE}&answer")).status, 200);
    let mut statuses: Vec<u16> = waiting.iter_mut().map(|http| http.response().status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 429]);
}

#[test]
fn the_application_may_admit_clients_later() {
    let server = porter(|_| {});
    let upgrade =
        |query: &str| request("GET", &format!("/engine.io/?EIO=4&transport=websocket&{query}"), UPGRADE);
    let poll = |query: &str| get(&format!("{HANDSHAKE}&{query}"));
    let received = server.metric("received_bytes");
    let mut bytes = 0;
    let mut begin = |request: String| {
        let mut http = server.http();
        http.send(&request);
        bytes += request.len() as u64;
        server.until_metric("received_bytes", |now| now == received + bytes);
        http
    };
    // The second request waits for the first one's admission.
    let mut polled = [begin(poll("later=yes") + &get("/healthz")), begin(poll("later=no"))];
    let [yes, no] = [begin(upgrade("later=yes")), begin(upgrade("later=no"))];
    // A client that has finished sending still gets an answer, but no WebSocket, which would have no timeouts.
    let mut last = begin(poll("later=yes&last"));
    let mut half = begin(upgrade("later=yes&half"));
    last.finish_sending();
    half.finish_sending();
    assert_eq!(server.ask(poll("answer")).status, 200);
    let answer = polled[0].response();
    assert_eq!((answer.status, cookies(&answer)), (200, vec!["a=1; Path=/", "b=2"]));
    assert_eq!(polled[0].response().text(), "ok\n");
    assert_eq!(refusal(&polled[1].response()), (403, 4));
    let mut ws = Ws::answered(yes.into_stream(), None).ok().unwrap();
    assert!(ws.head.contains("Set-Cookie: a=1"));
    assert!(ws.next_text().starts_with("0{"));
    ws.echoes("4hello");
    assert_eq!(Ws::answered(no.into_stream(), None).err(), Some(403));
    assert_eq!(last.response().status, 200);
    last.expect_end();
    assert!(half.rest().starts_with(b"HTTP/1.1 101"));
    // Three clients poll, and one has a WebSocket.
    server.until_metric("engineio_sessions", |clients| clients == 4);
    assert_eq!(refusal(&server.ask(poll("never"))), (403, 4));
}

#[test]
fn a_client_without_an_admission_receives_504() {
    let server = porter(|options| options.limits.request_timeout = Duration::from_millis(50));
    for (transport, headers) in [("polling", ""), ("websocket", UPGRADE)] {
        let target = format!("/engine.io/?EIO=4&transport={transport}&later=yes");
        assert_eq!(server.request("GET", &target, headers).status, 504, "{transport}");
    }
    // An answer after that has no effect.
    assert_eq!(server.get(&format!("{HANDSHAKE}&answer")).status, 200);
    server.until_metric("engineio_sessions", |clients| clients == 1);
}

// ---- heartbeats ----

fn heartbeats(interval: Duration, timeout: Duration) -> impl Fn(&mut Options) {
    move |options| {
        options.app = App::Echo;
        options.heartbeat.interval = interval;
        options.heartbeat.timeout = timeout;
    }
}

#[test]
fn the_server_pings_clients_of_version_4() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, heartbeats(Duration::from_millis(20), HOUR));
        for way in WAYS {
            let mut io = Io::engine(&server, way);
            assert_eq!((&io.open["pingInterval"], &io.open["pingTimeout"]), (&json!(20), &json!(3_600_000)));
            for _ in 0..3 {
                io.expect_ping();
                io.send("3");
            }
            io.echoes("4alive");
            io.send("1");
        }
        server.check_empty();
    });
}

#[test]
fn a_silent_client_is_ended() {
    on_one_and_three(|cores| {
        let time = Duration::from_secs(1);
        let server = Server::start(cores, heartbeats(time, time));
        for (before, (version, way)) in (0..).zip(TRANSPORTS) {
            let mut io = open(&server, version, way);
            io.ignore_pings();
            let silence = match version {
                Version::V4 => {
                    takes(time, || io.expect_ping());
                    time
                }
                Version::V3 => time * 2,
            };
            takes(silence, || {
                if way == Way::Polling {
                    let has_ended = || server.disconnects("heartbeat_timeout") > before;
                    until("the end of a silent client", has_ended);
                } else {
                    // The connection ends without a Close frame, so that the client reconnects.
                    assert_eq!(io.expect_end(), 1006);
                }
            });
            if way == Way::Polling {
                check_gone(&server, &io);
            }
            assert_eq!(server.disconnects("heartbeat_timeout"), before + 1, "{version:?} {way:?}");
        }
        server.check_empty();
    });
}

/// A client of version 3 pings, one of version 4 answers pings.
#[test]
fn only_one_side_pings() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, heartbeats(HOUR, HOUR));
        for (version, way) in TRANSPORTS {
            let mut io = open(&server, version, way);
            let others = match version {
                Version::V3 => {
                    io.send("2");
                    io.expect("3");
                    io.send("2hello");
                    io.expect("3hello");
                    "3"
                }
                Version::V4 => {
                    // A pong without a ping is ignored.
                    io.send("3");
                    io.echoes("4still here");
                    "2"
                }
            };
            // A packet that only the server may send.
            io.send(others);
            let code = io.expect_end();
            assert!(code == 1002 || code == 400, "{code}");
        }
    });
}

#[test]
fn a_message_over_the_limit_ends_a_websocket_with_1009() {
    let server = Server::quiet(1, App::Echo, |options| options.limits.message_bytes_max = 1_000);
    let mut io = Io::engine(&server, Way::Moved);
    io.send(&format!("4{}", "x".repeat(1_000)));
    assert_eq!(io.ws().next(), Seen::Closed(1009, String::new()));
    server.check_empty();
}

#[test]
fn old_clients_receive_the_supported_versions() {
    let server = Server::echo(1);
    for (target, says) in [
        ("/socket.io/1/?t=1", "use socket.io-client 1 or newer"),
        ("/socket.io/1/websocket/1234", "use socket.io-client 1 or newer"),
        ("/socket.io/?EIO=2&transport=polling", "protocols 4 and 3 are spoken here"),
        ("/engine.io/?EIO=1&transport=websocket", "protocols 4 and 3 are spoken here"),
    ] {
        let answer = server.http().get(target);
        assert_eq!(answer.status, 400, "{target}");
        assert!(answer.text().contains(says), "{target}: {}", answer.text());
    }
}
