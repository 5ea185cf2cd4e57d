//! WebSocket: RFC 6455 and 7692, heartbeats, limits, and the routes `/ws` and `/ws/KEY`.

use crate::harness::ws::frame;
use crate::harness::{
    HOUR, Http, Seen, Server, UPGRADE, Ws, meet, now, on_one_and_three, pass, request, takes,
};
use serde_json::json;
use std::time::Duration;
use stentor_edge::{App, Options};
use stentor_hub::{Document, FeedState};
use stentor_ports::FeedUpdate;
use stentor_wire::ws::{Deflater, Opcode};

fn echo(options: &mut Options) {
    options.app = App::Echo;
}

fn echo_with(set: impl FnOnce(&mut Options)) -> Server {
    Server::start(1, |options| {
        echo(options);
        set(options);
    })
}

fn handshake(target: &str, headers: &str) -> String {
    request("GET", target, &format!("{UPGRADE}{headers}"))
}

fn document(body: Vec<u8>) -> FeedUpdate {
    FeedUpdate::Changed(Document { body: body.into(), json: false, content_type: "x/y".into() }.into())
}

#[test]
fn handshakes() {
    let server = Server::start(1, echo);
    let good = handshake("/ws", "");
    let with = |headers: &str| handshake("/ws", headers);
    for (request, status, header, value) in [
        (good.clone(), 101, "sec-websocket-extensions", ""),
        (good.replace("websocket", "WebSocket"), 101, "", ""),
        (good.replace("/ws", "/ws/"), 101, "", ""),
        (good.replace("Upgrade: websocket\r\n", ""), 426, "upgrade", "websocket"),
        (good.replace("Connection: Upgrade\r\n", ""), 400, "", ""),
        (good.replace("GET", "POST"), 405, "allow", "GET"),
        (good.replace("HTTP/1.1", "HTTP/1.0"), 400, "", ""),
        (good.replace(": 13", ": 12"), 400, "sec-websocket-version", "13"),
        (good.replace("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ="), 400, "", ""),
        (with("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"), 400, "", ""),
        (with("Content-Length: 3\r\n"), 400, "", ""),
        (with("Origin: http://a.test\r\n"), 101, "", ""),
        (handshake("/wss", ""), 404, "", ""),
        // A handshake with unknown subprotocols is accepted, and none is selected.
        (with("Sec-WebSocket-Protocol: chat, superchat\r\n"), 101, "sec-websocket-protocol", ""),
    ] {
        let answer = server.ask(&request);
        assert_eq!((answer.status, answer.header(header)), (status, value), "{request}");
    }
    server.check_empty();
}

#[test]
fn messages_come_back_whatever_their_size_and_kind() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, echo);
        let mut clients: Vec<Ws> = (0..4).map(|_| server.ws("/ws")).collect();
        for len in [0, 1, 125, 126, 127, 65_535, 65_536, 65_537, 1_000_000] {
            let text = "é".repeat(len / 2) + &"x".repeat(len % 2);
            for ws in &mut clients {
                ws.stream().enqueue(&frame(Opcode::Text, text.as_bytes(), true, false));
                ws.stream().enqueue(&frame(Opcode::Binary, &vec![0xff; len], true, false));
            }
            for ws in &mut clients {
                assert_eq!(ws.next_text(), text, "{len}");
                assert_eq!(ws.next_binary(), vec![0xff; len], "{len}");
            }
        }
        drop(clients);
        server.check_empty();
    });
}

#[test]
fn many_messages_at_once_come_back_in_order() {
    let server = Server::start(1, echo);
    let mut ws = server.ws("/ws");
    let all = (0..2000).flat_map(|n: u32| frame(Opcode::Binary, &n.to_be_bytes(), true, false));
    ws.send_raw(&all.collect::<Vec<u8>>());
    for n in 0..2000_u32 {
        assert_eq!(ws.next_binary(), n.to_be_bytes());
    }
    assert_eq!(server.metric("messages_received"), 2000);
}

#[test]
fn a_session_may_come_in_any_pieces() {
    let server = Server::start(1, echo);
    let mut bytes = frame(Opcode::Text, "grüße".as_bytes(), true, false);
    bytes.extend(frame(Opcode::Binary, b"ab", false, false));
    bytes.extend(frame(Opcode::Ping, b"!", true, false));
    bytes.extend(frame(Opcode::Continuation, &[7; 200], true, false));
    let check = |ws: &mut Ws| {
        assert_eq!(ws.next_text(), "grüße");
        assert_eq!(ws.next(), Seen::Pong(b"!".to_vec()));
        assert_eq!(ws.next_binary()[..3], *b"ab\x07");
    };
    let mut ws = server.ws("/ws");
    for split in 0..=bytes.len() {
        ws.send_raw(&bytes[..split]);
        ws.send_raw(&bytes[split..]);
        check(&mut ws);
    }
    for byte in &bytes {
        ws.send_raw(&[*byte]);
    }
    check(&mut ws);
}

#[test]
fn as_many_fragments_as_the_limit_says() {
    let server = echo_with(|options| options.limits.fragments_max = 65_536);
    let mut ws = server.ws("/ws");
    let fragments = |count: usize| {
        let next = frame(Opcode::Continuation, b"x", false, false).repeat(count - 2);
        let last = frame(Opcode::Continuation, b"x", true, false);
        [frame(Opcode::Text, b"x", false, false), next, last].concat()
    };
    ws.send_raw(&fragments(65_536));
    assert_eq!(ws.next_text(), "x".repeat(65_536));
    ws.send_if_open(&fragments(65_537));
    assert_eq!(ws.expect_close(), (1009, String::new()));
    server.check_serves();
    server.check_empty();
}

/// The server answers a violation at once with its close code, and ends the connection. Valid input before the
/// violation is answered first. The parser's tests cover the details.
#[test]
fn violations() {
    let server = echo_with(|options| {
        options.limits.message_bytes_max = 1000;
        // The test would fail if the server waited for the client to close.
        options.limits.close_timeout = HOUR;
    });
    let text = |payload: &[u8], fin| frame(Opcode::Text, payload, fin, false);
    let next = |payload: &[u8], fin| frame(Opcode::Continuation, payload, fin, false);
    let close = |payload: &[u8]| frame(Opcode::Close, payload, true, false);
    let errors_before = server.metric("protocol_errors");
    let rows = [
        ("a reserved bit", vec![0xa1, 0x80, 0, 0, 0, 0], 1002),
        ("a reserved opcode", vec![0x83, 0x80, 0, 0, 0, 0], 1002),
        ("no mask", vec![0x81, 0x01, b'x'], 1002),
        ("a long ping", frame(Opcode::Ping, &[0; 126], true, false), 1002),
        ("a ping in fragments", frame(Opcode::Ping, b"", false, false), 1002),
        ("a continuation of nothing", next(b"x", true), 1002),
        ("two messages at once", text(b"x", false).repeat(2), 1002),
        // Refused when the length arrives, before anything is allocated.
        ("a length above the limit", text(&[b'x'; 1001], true)[..4].to_vec(), 1009),
        ("a length of 64 bits", vec![0x82, 0xff, 0, 0, 0, 0, 0x80, 0, 0, 0], 1009),
        ("a length that is none", vec![0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0], 1002),
        ("a long message", [text(&[b'x'; 600], false), next(&[b'x'; 600], true)].concat(), 1009),
        // Refused at the first invalid byte, also in an incomplete frame.
        ("broken UTF-8", text(b"\xff", true), 1007),
        ("UTF-8 that doesn't end", text(b"\xc3", true), 1007),
        (
            "broken UTF-8 in half a frame",
            text(&[&b"ab\xff"[..], &[b'x'; 97]].concat(), true)[..9].to_vec(),
            1007,
        ),
        ("broken UTF-8 in fragments", [text(b"ok\xe2", false), next(b"x", false)].concat(), 1007),
        ("half a code", close(b"\x03"), 1002),
        ("a reason that is no UTF-8", close(b"\x03\xe8\xff"), 1007),
        ("a code that is none", close(&999_u16.to_be_bytes()), 1002),
        ("compression that wasn't agreed on", frame(Opcode::Text, b"x", true, true), 1002),
    ];
    for (name, bytes, code) in &rows {
        let mut ws = server.ws("/ws");
        ws.send_raw(&[&text(b"before", true), &bytes[..]].concat());
        assert_eq!(ws.next_text(), "before", "{name}");
        assert_eq!(ws.expect_close(), (*code, String::new()), "{name}");
    }
    assert_eq!(server.metric("protocol_errors"), errors_before + rows.len() as u64);
    server.check_serves();
    server.check_empty();
}

#[test]
fn a_close_is_answered_and_ends_the_connection_at_once() {
    let server = echo_with(|options| options.limits.close_timeout = HOUR);
    for code in [1000, 1001, 1002, 1003, 1007, 1011, 1014, 3000, 3999, 4000, 4999] {
        let mut ws = server.ws("/ws");
        ws.send_text("last");
        ws.send_close(code, "good bye");
        assert_eq!(ws.next_text(), "last");
        assert_eq!(ws.expect_close(), (code, "good bye".into()));
    }
    let close = |payload: &[u8]| frame(Opcode::Close, payload, true, false);
    let after = frame(Opcode::Text, b"after", true, false);
    // Input after a Close frame is ignored.
    for (bytes, code) in [(close(b""), 1005), ([close(&1000_u16.to_be_bytes()), after].concat(), 1000)] {
        let mut ws = server.ws("/ws");
        ws.send_raw(&bytes);
        assert_eq!(ws.expect_close().0, code);
    }
    server.check_empty();
}

#[test]
fn a_message_that_does_not_end_in_time_ends_the_session() {
    let time = Duration::from_secs(1);
    let server = echo_with(|options| options.limits.message_timeout = time);
    let message = frame(Opcode::Text, b"never", true, false);
    for bytes in [&message[..8], &message[..1], &frame(Opcode::Text, b"never", false, false)] {
        let mut ws = server.ws("/ws");
        ws.send_raw(bytes);
        let closed = takes(time, || ws.expect_close());
        assert_eq!(closed, (4504, "the message was not complete in time".into()));
    }
    assert_eq!(server.disconnects("message_timeout"), 3);
    // Pings aren't part of the message, so they don't extend its timeout.
    let mut ws = server.ws("/ws");
    ws.send_frame(Opcode::Text, b"never", false, false);
    let code = loop {
        ws.send_if_open(&frame(Opcode::Ping, b"", true, false));
        match ws.next() {
            Seen::Pong(_) => {}
            Seen::Closed(code, _) => break code,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(code, 4504);
    server.check_empty();
}

/// The timeout starts again with each message, even if each read ends in the middle of the next message.
#[test]
fn a_stream_of_messages_may_last() {
    let time = Duration::from_millis(200);
    let server = echo_with(|options| options.limits.message_timeout = time);
    let mut ws = server.ws("/ws");
    let message = frame(Opcode::Text, b"message", true, false);
    let (head, tail) = message.split_at(5);
    ws.send_raw(head);
    let begun = now();
    while (now() - begun) < time * 4 {
        ws.send_raw(&[tail, head].concat());
        assert_eq!(ws.next_text(), "message");
    }
}

#[test]
fn a_silent_client_is_pinged_and_then_disconnected() {
    on_one_and_three(|cores| {
        let time = Duration::from_secs(1);
        let server = Server::start(cores, |options| {
            echo(options);
            options.heartbeat.interval = time;
            options.heartbeat.timeout = time * 4;
            // The first ping must not depend on the timer for the handshake's headers.
            options.limits.header_timeout = HOUR;
        });
        let mut dead = server.ws("/ws");
        dead.ignore_pings();
        assert_eq!(takes(time, || dead.next()), Seen::Ping);
        let closed = takes(time * 4, || dead.expect_close());
        assert_eq!(closed, (4503, "the heartbeat was not answered".into()));
        // A client that answers stays connected.
        let mut alive = server.ws("/ws");
        for _ in 0..10 {
            assert_eq!(takes(time, || alive.next()), Seen::Ping);
        }
        alive.send_text("here");
        while alive.next() != Seen::Text("here".into()) {}
        assert_eq!(server.disconnects("heartbeat_timeout"), 1);
        drop(alive);
        server.check_empty();
    });
}

/// Proxies close silent connections, so the server sends pings at `heartbeat.interval`, even if `heartbeat.timeout` is
/// longer. A pong may arrive after the next ping was due.
#[test]
fn pings_are_sent_at_the_interval_whatever_the_timeout() {
    let interval = Duration::from_secs(1);
    let server = echo_with(|options| {
        options.heartbeat.interval = interval;
        options.heartbeat.timeout = HOUR;
    });
    let mut ws = server.ws("/ws");
    for _ in 0..5 {
        assert_eq!(takes(interval, || ws.next()), Seen::Ping);
    }
    ws.ignore_pings();
    assert_eq!(ws.next(), Seen::Ping);
    pass(2 * interval);
    ws.send_text("late");
    assert_eq!(ws.next(), Seen::Text("late".into()));
    assert_eq!(ws.next(), Seen::Ping);
}

/// A client that needs longer for a document than the heartbeat timeout stays connected while it reads.
#[test]
fn a_slow_reader_is_alive_while_it_reads() {
    let time = Duration::from_millis(400);
    let server = Server::start(1, |options| {
        options.heartbeat.interval = time;
        options.heartbeat.timeout = time;
    });
    server.update("big", document(vec![b'd'; 32 << 20]));
    let mut http = server.http();
    assert_eq!(http.ask(handshake("/ws/big", "")).status, 101);
    // Some bytes may have arrived with the handshake.
    http.read_slowly((31 << 20) + 10, time / 26, 2 * time);
    assert_eq!(server.disconnects("heartbeat_timeout"), 0);
}

#[test]
fn resources_of_a_client_that_ends_without_a_close_are_freed() {
    let server = Server::start(1, echo);
    let mut ws = server.ws("/ws");
    ws.stream().finish_sending();
    server.check_empty();
    drop(server.ws("/ws"));
    server.check_empty();
}

/// Negotiation in detail is tested with the parser.
#[test]
fn offers_of_compression() {
    let accepted = "permessage-deflate; server_no_context_takeover";
    let smaller = format!("{accepted}; server_max_window_bits=9");
    let resets = format!("{accepted}; client_no_context_takeover");
    for (is_enabled, offer, expect) in [
        (true, "permessage-deflate", accepted),
        (true, "permessage-deflate; server_max_window_bits=9", &smaller),
        (true, "permessage-deflate; server_max_window_bits=8, permessage-deflate", accepted),
        (true, "permessage-deflate; server_max_window_bits=8", ""),
        (true, "permessage-deflate; client_no_context_takeover", &resets),
        (true, "permessage-deflate\r\nUser-Agent: Mozilla/5.0", &resets),
        (true, "constructor", ""),
        (false, "permessage-deflate", ""),
    ] {
        let server = Server::start(1, |options| options.deflate.enabled = is_enabled);
        let answer = server.ask(handshake("/ws", &format!("Sec-WebSocket-Extensions: {offer}\r\n")));
        assert_eq!((answer.status, answer.header("sec-websocket-extensions")), (101, expect), "{offer}");
    }
}

/// Headers of Netty's clients, and so of Spring's, Vert.x's and async-http-client's. They look like a browser's, except
/// that the user agent is missing.
const NETTY: &str =
    "Origin: http://a.test\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";

#[test]
fn engine_io_and_sockjs_decline_compression() {
    let server = Server::start(1, echo);
    for (target, expect) in [
        ("/engine.io/?EIO=4&transport=websocket", ""),
        ("/socket.io/?EIO=4&transport=websocket", ""),
        ("/socket.io/?EIO=3&transport=websocket", ""),
        ("/sockjs/000/session/websocket", ""),
        // The raw WebSocket of SockJS, without its framing.
        ("/sockjs/websocket", "permessage-deflate; server_no_context_takeover"),
    ] {
        let answer = server.ask(handshake(target, NETTY));
        assert_eq!((answer.status, answer.header("sec-websocket-extensions")), (101, expect), "{target}");
    }
}

/// RFC 7692, 7.2.3.2: "Hello", and a second "Hello" that refers to the first one.
const HELLO: &[u8] = &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
const HELLO_AGAIN: &[u8] = &[0xf2, 0x00, 0x11, 0x00, 0x00];

#[test]
fn a_client_may_keep_its_compression_context() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, echo);
        let held = || server.metric("memory_bytes{messages}");
        let begin = || {
            let mut http = server.http();
            http.send(handshake("/ws", NETTY));
            Ws::answered(http.into_stream(), None).unwrap()
        };
        let (mut ws, mut other) = (begin(), begin());
        ws.echoes("plain");
        assert_eq!(held(), 0, "nothing is held before the first compressed message");
        for ws in [&mut ws, &mut other] {
            for payload in [HELLO, HELLO_AGAIN, HELLO_AGAIN] {
                ws.send_frame(Opcode::Text, payload, true, true);
                assert_eq!(ws.next_text(), "Hello");
            }
        }
        assert!((20..2_000).contains(&held()), "{}", held());
        ws.send_deflated(&"x".repeat(100_000));
        assert_eq!(ws.next_text().len(), 100_000);
        // The window, and the fixed size of the state around it.
        assert!((32_768..35_000).contains(&held()), "{}", held());
        drop((ws, other));
        server.until_metric("memory_bytes{messages}", |bytes| bytes == 0);
        // A browser keeps no compression context.
        let mut browser = server.http();
        browser.send(handshake("/ws", &format!("{NETTY}User-Agent: Mozilla/5.0\r\n")));
        let mut browser = Ws::answered(browser.into_stream(), None).unwrap();
        browser.send_deflated("Hello");
        assert_eq!(browser.next_text(), "Hello");
        assert_eq!(held(), 0);
        browser.send_frame(Opcode::Text, HELLO_AGAIN, true, true);
        assert_eq!(browser.expect_close().0, 1007);
        server.check_empty();
    });
}

#[test]
fn compressed_messages_are_read_and_publications_compressed() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.app = App::Chat);
        let deflating = Ws::open(server.addr, "/ws", &[], true).unwrap();
        let mut small_window = server.http();
        let offer = "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=9\r\n";
        small_window.send(handshake("/ws", offer));
        let small_window = Ws::answered(small_window.into_stream(), None).unwrap();
        let mut clients = [deflating, server.ws("/ws"), small_window];
        meet(&mut clients, Ws::send_text, Ws::next_text);
        // A long message, and a short one that compression wouldn't make shorter.
        for text in ["compressible ".repeat(1000), "short".to_owned()] {
            clients[0].send_deflated(&text);
            for ws in &mut clients {
                assert!(ws.next_text() == text);
            }
        }
        assert!(server.metric("memory_bytes{frames}") < 100_000);
        drop(clients);
        server.check_empty();
    });
}

#[test]
fn a_compressed_message_that_is_too_large_or_broken_ends_the_session() {
    let server = echo_with(|options| options.limits.message_bytes_max = 100_000);
    let deflated = |bytes: &[u8]| Deflater::new(9).deflate(bytes, 15).to_vec();
    let long = |len: usize| deflated(&vec![b'x'; len]);
    for (name, payload, code) in [
        ("too large", long(100_001), 1009),
        ("much too large", long(50 << 20), 1009),
        ("no DEFLATE", b"\xff\xff\xff".to_vec(), 1007),
        ("cut off", long(1000)[..3].to_vec(), 1007),
        ("no UTF-8", deflated(b"\xff"), 1007),
    ] {
        let mut ws = Ws::open(server.addr, "/ws", &[], true).unwrap();
        ws.send_frame(Opcode::Text, &payload, true, true);
        assert_eq!(ws.expect_close().0, code, "{name}");
    }
    let mut ws = Ws::open(server.addr, "/ws", &[], true).unwrap();
    ws.send_frame(Opcode::Text, &long(100_000), true, true);
    assert_eq!(ws.next_text().len(), 100_000);
    // A compressed message in fragments, an empty one, and an uncompressed message on the same connection.
    let bytes = long(5000);
    ws.send_frame(Opcode::Text, &bytes[..4], false, true);
    ws.send_frame(Opcode::Continuation, &bytes[4..], true, false);
    assert_eq!(ws.next_text().len(), 5000);
    ws.send_frame(Opcode::Text, &[0], true, true);
    assert_eq!(ws.next_text(), "");
    ws.echoes("plain");
    drop(ws);
    server.check_serves();
    server.check_empty();
}

#[test]
fn a_websocket_of_a_key_sends_documents_and_accepts_no_messages() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut clients: Vec<Ws> = (0..6).map(|_| server.ws("/ws/match/8")).collect();
        server.wait_wanted("match/8", true);
        server.document("match/8", "{\"goals\":0}");
        for ws in &mut clients {
            assert_eq!(ws.next_text(), "{\"goals\":0}");
        }
        // A later client receives the newest document at once.
        let mut late = server.ws("/ws/match%2D8?format=raw");
        server.wait_wanted("match-8", true);
        server.document("match-8", "1");
        assert_eq!(late.next_text(), "1");
        let mut later = server.ws("/ws/match-8");
        assert_eq!(later.next_text(), "1");
        // A document that isn't text is sent as a binary message.
        server.update("match-8", document(vec![0xff, 0]));
        assert_eq!(later.next_binary(), [0xff, 0]);
        // A change of state isn't sent to these clients.
        server.state("match-8", FeedState::Stale, "fails");
        server.document("match-8", "2");
        assert_eq!(later.next_text(), "2");
        assert_eq!(later.fence(), []);
        later.send_text("hello");
        assert_eq!(later.expect_close(), (4400, "this connection accepts no messages".into()));
        drop(late);
        drop(clients);
        server.wait_wanted("match/8", false);
        server.wait_wanted("match-8", false);
    });
}

#[test]
fn an_unknown_key_closes_with_4404() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut clients: Vec<Ws> =
            ["/ws/no", "/ws/no", "/ws/no", "/ws?feed=no&format=raw"].map(|target| server.ws(target)).into();
        server.wait_wanted("no", true);
        server.state("no", FeedState::NotFound, "404");
        for ws in &mut clients {
            assert_eq!(ws.expect_close(), (4404, "there is no such feed".into()));
        }
        server.wait_wanted("no", false);
        // The key is already known as not found, so the connection is closed at once.
        assert_eq!(server.ws("/ws/no").expect_close().0, 4404);
        assert_eq!(server.disconnects("not_found"), 5);
        server.update("no", FeedUpdate::Forget);
        server.check_empty();
    });
}

#[test]
fn feeds_in_the_query() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        server.document("a/b", "1");
        server.document("c", "2");
        // `feed` and `resourceId` are equivalent. Libraries write a slash in a query as %2F.
        let mut ws = server.ws("/ws?feed=a%2Fb&x=y&resourceId=c");
        assert_eq!(ws.next_json()["type"], "welcome");
        let mut got = [ws.next_json(), ws.next_json()].map(|m| (m["feed"].clone(), m["data"].clone()));
        got.sort_by_key(|(feed, _)| feed.to_string());
        assert_eq!(got, [(json!("a/b"), json!(1)), (json!("c"), json!(2))]);
        let mut raw = server.ws("/ws?resourceId=c&format=raw");
        assert_eq!(raw.next_text(), "2");
        server.document("c", "3");
        assert_eq!(raw.next_text(), "3");
        assert_eq!(ws.next_json()["data"], 3);
    });
    // Clients of an application without an envelope receive only the documents.
    let server = Server::start(1, echo);
    server.document("k", "1");
    let mut ws = server.ws("/ws?feed=k");
    assert_eq!(ws.next_text(), "1");
    ws.echoes("hi");
}

#[test]
fn versions_reach_all_subscribers_in_order() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        server.document("k", "0");
        let mut clients: Vec<Ws> = (0..12).map(|_| server.ws("/ws/k")).collect();
        for ws in &mut clients {
            assert_eq!(ws.next_text(), "0");
        }
        // Versions published slowly: each client receives each version.
        for n in 1..50 {
            server.document("k", &n.to_string());
            for ws in &mut clients {
                assert_eq!(ws.next_text(), n.to_string());
            }
        }
        // Versions published fast may be conflated. The last one arrives, and no older version follows a newer one.
        for n in 50..=500 {
            server.document("k", &n.to_string());
        }
        for ws in &mut clients {
            let mut last = 49;
            while last < 500 {
                let next: i32 = ws.next_text().parse().unwrap();
                assert!(next > last);
                last = next;
            }
        }
        server.check_balance();
    });
}

#[test]
fn connections_of_both_kinds_share_a_port() {
    let server = Server::start(3, echo);
    let sockets: Vec<Ws> = (0..50).map(|_| server.ws("/ws")).collect();
    let clients: Vec<Http> = (0..50).map(|_| server.http()).collect();
    for mut http in clients {
        assert_eq!(http.get("/healthz").status, 200);
    }
    for mut ws in sockets {
        ws.echoes("x");
        ws.send_close(1000, "");
        ws.expect_close();
    }
    server.check_empty();
    assert_eq!(server.metric("connections_accepted"), 100);
}
