//! Published attacks on servers of this kind, and some of our own, each named after its number: the right
//! answer, others are served, and what it cost is given back. What needs memory to be measured is in
//! `memory.rs`; protocol violations without a number are in `websocket.rs` and `http.rs`.

use crate::harness::ws::frame;
use crate::harness::{Seen, Server, Ws, meet};
use serde_json::json;
use std::time::Duration;
use stentor_edge::{App, Options, Origins};
use stentor_hub::FeedState;
use stentor_wire::ws::{Deflater, Opcode};

const HANDSHAKE: &str = "Host: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

fn echo() -> Server {
    Server::start(1, |options| options.app = App::Echo)
}

/// The status of a request.
fn status(server: &Server, request: &str) -> u16 {
    server.ask(request).status
}

/// The close code with which bytes after the handshake are answered.
fn code(server: &Server, bytes: &[u8]) -> u16 {
    let mut ws = Ws::open(server.addr, "/ws", &[], true).unwrap();
    ws.send_if_open(bytes);
    ws.expect_close().0
}

/// Another client is served, and nothing is left of the attack.
fn survives(server: &Server) {
    let mut ws = server.ws("/ws");
    ws.send_text("alive");
    assert_eq!(ws.next_text(), "alive");
    drop(ws);
    server.check_serves();
    server.check_empty();
}

#[test]
fn cve_2022_21676_reserved_bits_after_the_upgrade() {
    let server = echo();
    for bits in [0x10, 0x20, 0x30] {
        let glued = [0x81 | bits, 0x80, 0, 0, 0, 0];
        let mut ws = Ws::open_with(server.addr, "/ws", &[], false, &glued).unwrap();
        assert_eq!(ws.expect_close().0, 1002);
    }
    survives(&server);
}

#[test]
fn cve_2022_41940_http_2_upgrade_and_reset() {
    let server = echo();
    for _ in 0..50 {
        let mut http = server.http();
        http.send(
            "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
             HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        );
        // Closed with the answer unread: the kernel sends a reset.
        drop(http);
    }
    assert_eq!(status(&server, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
    survives(&server);
}

#[test]
fn cve_2020_28481_and_cve_2019_13611_foreign_origins_are_refused_by_default() {
    let server = echo();
    server.document("k", "1");
    let mut http = server.http();
    http.send("GET /feed/k HTTP/1.1\r\nHost: a.test\r\nOrigin: http://evil.test\r\nCookie: s=1\r\n\r\n");
    let answer = http.response();
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (403, ""));
    let hijack = format!("GET /ws HTTP/1.1\r\n{HANDSHAKE}Origin: http://evil.test\r\nCookie: s=1\r\n\r\n");
    assert_eq!(status(&server, &hijack), 403);
}

#[test]
fn ws_2020_0443_and_cve_2022_42975_origins_are_compared_by_label() {
    let server = Server::start(1, |options| {
        options.app = App::Echo;
        options.origins = Origins::parse(&["https://*.example.com"]).unwrap();
    });
    let with =
        |origin: &str| status(&server, &format!("GET /ws HTTP/1.1\r\n{HANDSHAKE}Origin: {origin}\r\n\r\n"));
    assert_eq!(with("https://www.example.com"), 101);
    for origin in [
        "https://evilexample.com",
        "https://example.com`.evil.test",
        "https://evil.test$.example.com",
        "https://evil.test/.example.com",
        "https://evil.test?.example.com",
        "https://evil.test#.example.com",
        "https://evil.test\\.example.com",
        "https://user@www.example.com",
        "https://evil.test https://www.example.com",
    ] {
        assert_eq!(with(origin), 403, "{origin}");
    }
    survives(&server);
}

#[test]
fn cve_2026_62389_endless_continuations() {
    let time = Duration::from_millis(100);
    let server = Server::start(1, |options| {
        options.app = App::Echo;
        options.limits.fragments_max = 10_000;
        options.limits.message_timeout = time;
        options.limits.close_timeout = time;
    });
    for payload in [&b""[..], b"x"] {
        // As many as the server takes.
        let errors = server.metric("protocol_errors");
        let mut ws = server.ws("/ws");
        ws.send_frame(Opcode::Text, b"", false, false);
        let many = frame(Opcode::Continuation, payload, false, false).repeat(1000);
        while ws.send_if_open(&many) {}
        // A reset may have taken the close frame with it.
        while !matches!(ws.next(), Seen::Closed(1009, _) | Seen::End) {}
        assert_eq!(server.metric("protocol_errors"), errors + 1);
        // Few, but without an end.
        let mut ws = server.ws("/ws");
        ws.send_frame(Opcode::Text, b"", false, false);
        loop {
            ws.send_if_open(&frame(Opcode::Continuation, payload, false, false));
            ws.send_if_open(&frame(Opcode::Ping, b"", true, false));
            match ws.next() {
                Seen::Pong(_) => {}
                Seen::Closed(code, _) => break assert!(code == 4504 || code == 1009, "{code}"),
                other => panic!("{other:?}"),
            }
        }
    }
    survives(&server);
}

#[test]
fn cve_2026_48779_tiny_fragments_in_tiny_segments() {
    let server = echo();
    let mut ws = server.ws("/ws");
    let mut bytes = frame(Opcode::Text, b"x", false, false);
    bytes.extend(frame(Opcode::Continuation, b"x", false, false).repeat(300));
    bytes.extend(frame(Opcode::Continuation, b"x", true, false));
    for byte in bytes {
        ws.send_raw(&[byte]);
    }
    assert_eq!(ws.next_text(), "x".repeat(302));
    drop(ws);
    survives(&server);
}

#[test]
fn cve_2026_45736_and_cve_2016_10518_payloads_of_control_frames() {
    let server = echo();
    let mut ws = server.ws("/ws");
    for len in 0..=125_u8 {
        let payload: Vec<u8> = (0..len).map(|n| n.wrapping_mul(len)).collect();
        ws.send_frame(Opcode::Pong, &payload, true, false);
        ws.send_frame(Opcode::Ping, &payload, true, false);
        assert_eq!(ws.next(), Seen::Pong(payload));
    }
    drop(ws);
    for len in 0..=123 {
        let mut ws = server.ws("/ws");
        let reason = "r".repeat(len);
        ws.send_close(1000, &reason);
        // The client's own reason comes back, and nothing else.
        assert_eq!(ws.expect_close(), (1000, reason));
    }
    survives(&server);
}

#[test]
fn cve_2024_37890_more_headers_than_the_limit() {
    let server = echo();
    for count in [100, 128, 129, 1000] {
        let many = "X: y\r\n".repeat(count);
        assert_eq!(status(&server, &format!("GET /ws HTTP/1.1\r\n{HANDSHAKE}{many}\r\n")), 431, "{count}");
    }
    survives(&server);
}

#[test]
fn cve_2021_32640_spaces_in_a_subprotocol() {
    let server = echo();
    for spaces in [15_000, 32_000] {
        let header = format!("Sec-WebSocket-Protocol: b{}x\r\n", " ".repeat(spaces));
        let expect = if spaces < 16_000 { 101 } else { 431 };
        assert_eq!(status(&server, &format!("GET /ws HTTP/1.1\r\n{HANDSHAKE}{header}\r\n")), expect);
    }
    survives(&server);
}

#[test]
fn ghsa_5v72_xg48_5rpm_names_of_extensions() {
    let server = echo();
    for name in [
        "constructor",
        "__proto__",
        "toString",
        "permessage-deflate; __proto__=1",
        ";",
        ",,,",
        "\"",
        "=",
        "a;b=\"",
    ] {
        let answer =
            server.ask(format!("GET /ws HTTP/1.1\r\n{HANDSHAKE}Sec-WebSocket-Extensions: {name}\r\n\r\n"));
        assert_eq!((answer.status, answer.header("sec-websocket-extensions")), (101, ""), "{name}");
    }
    survives(&server);
}

#[test]
fn cve_2016_10542_and_cve_2022_35922_and_cve_2020_27813_declared_lengths() {
    let server = echo();
    for length in [1_000_001, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, u64::MAX, u64::MAX - 13] {
        for first in [0x81, 0x82, 0x01, 0xc1] {
            let mut bytes = vec![first, 0xff];
            bytes.extend_from_slice(&length.to_be_bytes());
            let expect = if length >= 1 << 63 { 1002 } else { 1009 };
            assert_eq!(code(&server, &bytes), expect, "{length}");
        }
    }
    survives(&server);
}

#[test]
fn cve_2016_10544_cve_2026_62963_cve_2026_39804_and_cve_2018_1000518_deflate_bombs() {
    let server = echo();
    let mut deflater = Deflater::new(9);
    for inflated in [1_000_001, 16 << 20, 256 << 20] {
        // 1,024 to 1.
        let bomb = deflater.deflate(&vec![0; inflated], 15).to_vec();
        assert!(bomb.len() < inflated / 900);
        assert_eq!(code(&server, &frame(Opcode::Binary, &bomb, true, true)), 1009);
        let half = bomb.len() / 2;
        let mut parts = frame(Opcode::Text, &bomb[..half], false, true);
        parts.extend(frame(Opcode::Continuation, &bomb[half..], true, false));
        assert_eq!(code(&server, &parts), 1009);
    }
    // Many small final blocks, and none that ends.
    assert_eq!(code(&server, &frame(Opcode::Binary, &[3, 0].repeat(100_000), true, true)), 1007);
    assert_eq!(code(&server, &frame(Opcode::Binary, &[0xff; 100_000], true, true)), 1007);
    survives(&server);
}

#[test]
fn cve_2021_45945_and_cve_2023_43669_heads_in_pieces() {
    let server = echo();
    // A byte at a time costs what all at once does.
    let mut http = server.http();
    let head = format!("GET /healthz HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(4000));
    for byte in head.as_bytes() {
        http.send([*byte]);
    }
    assert_eq!(http.response().status, 200);
    drop(http);
    let mut http = server.http();
    let endless = format!("GET /healthz HTTP/1.1\r\nHost: a\r\nX: {}", "y".repeat(20_000));
    for bytes in endless.as_bytes().chunks(10) {
        if !http.send_if_open(bytes) {
            break;
        }
    }
    let rest = http.rest();
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 431 "), "{}", String::from_utf8_lossy(&rest));
    survives(&server);
}

#[test]
fn osv_2020_1694_subscribing_and_leaving_while_it_is_published() {
    let server = Server::on_sockets(3, |options| options.rooms.publish = true);
    let addr = server.addr;
    let storms: Vec<_> = (0..4)
        .map(|n| {
            std::thread::spawn(move || {
                for round in 0..20 {
                    let mut ws = Ws::open(addr, "/ws?feed=storm", &[], n % 2 == 0).unwrap();
                    for _ in 0..10 {
                        for kind in ["subscribe", "publish", "unsubscribe", "subscribe"] {
                            ws.send_json(json!({"type": kind, "room": "storm", "data": round}));
                        }
                        ws.send_json(json!({"type": "unsubscribe", "feed": "storm"}));
                        ws.send_json(json!({"type": "subscribe", "feed": "storm"}));
                    }
                    // Half of them go without a word, whatever is under way.
                    if round % 2 == 0 {
                        ws.send_json(json!({"type": "ping", "id": "last"}));
                        while ws.next() != Seen::Text(r#"{"type":"ok","id":"last"}"#.into()) {}
                    }
                }
            })
        })
        .collect();
    let mut version = 0;
    while storms.iter().any(|storm| !storm.is_finished()) {
        version += 1;
        server.document("storm", &version.to_string());
        if version % 50 == 0 {
            server.state("storm", FeedState::NotFound, "for a moment");
        }
        server.publish("storm", &version.to_string());
        server.until_metric("inbox_messages", |waiting| waiting == 0);
    }
    storms.into_iter().for_each(|storm| storm.join().unwrap());
    server.until_metric("sessions", |sessions| sessions == 0);
    // Nothing that was subscribed to is left.
    server.forget_unwanted("storm");
    server.check_empty();
}

#[test]
fn cve_2020_7693_upgrades_where_there_is_no_socket() {
    let server = echo();
    for target in ["/healthz", "/feed/k", "/feed/k?x"] {
        assert_eq!(status(&server, &format!("GET {target} HTTP/1.1\r\n{HANDSHAKE}\r\n")), 400, "{target}");
    }
    assert_eq!(status(&server, &format!("GET /nothing HTTP/1.1\r\n{HANDSHAKE}\r\n")), 404);
    survives(&server);
}

#[test]
fn cve_2020_35896_a_client_that_never_reads() {
    let server = Server::start(1, |options| {
        options.app = App::Chat;
        options.limits.close_timeout = Duration::from_millis(50);
    });
    let mut clients: Vec<Ws> = (0..3).map(|_| server.ws("/ws")).collect();
    meet(&mut clients, |ws, text| ws.send_text(text), Ws::next_text);
    let never = clients.pop().unwrap();
    let text = "x".repeat(500_000);
    while server.disconnects("slow_consumer") == 0 {
        clients[0].send_text(&text);
        for ws in &mut clients {
            assert_eq!(ws.next_text().len(), 500_000);
        }
    }
    server.until_metric("connections", |connections| connections == 2);
    drop((never, clients));
    survives(&server);
}

#[test]
fn keys_never_leave_their_upstreams_path() {
    let server = echo();
    for key in [
        "..",
        "../admin",
        "a/../../admin",
        "a/..",
        "./a",
        "%2e%2e/admin",
        "%2E%2E%2Fadmin",
        "a%2fb",
        "a%252fb",
        "a%00b",
        "a%0d%0aHost:%20evil.test",
        "http://169.254.169.254/latest/meta-data",
        "//evil.test/a",
        "a//b",
        "a%5c..%5cb",
        "a%3Fb=c",
        "a%23b",
        "a%c0%ae",
    ] {
        assert_eq!(status(&server, &format!("GET /feed/{key} HTTP/1.1\r\nHost: a\r\n\r\n")), 400, "{key}");
        let in_path = format!("GET /ws/{key} HTTP/1.1\r\n{HANDSHAKE}\r\n");
        assert_eq!(status(&server, &in_path), 400, "{key}");
    }
    for key in ["..", "..%2Fadmin", "a%2F..", "http:%2F%2Fevil.test", "a%0d%0ab", "", "a%3Fb"] {
        assert_eq!(status(&server, &format!("GET /ws?feed={key} HTTP/1.1\r\n{HANDSHAKE}\r\n")), 400, "{key}");
    }
    assert!(server.plane().take_wanted().is_empty(), "nobody is asked for what is no key");
    survives(&server);
}

#[test]
fn key_explosion_is_bounded_and_given_back() {
    let server = Server::start(1, |options: &mut Options| {
        options.limits.topics_max = 1000;
        options.limits.subscriptions_max = 400;
    });
    let mut clients: Vec<Ws> = (0..3).map(|_| server.ws("/ws")).collect();
    let mut refused = 0;
    for (n, ws) in clients.iter_mut().enumerate() {
        assert_eq!(ws.next_json()["type"], "welcome");
        for key in 0..500 {
            ws.send_json(json!({"type": "subscribe", "feed": format!("explode/{n}/{key}")}));
            refused += usize::from(ws.next_json()["type"] == "error");
        }
    }
    assert_eq!(refused, 500);
    server.until_metric("topics", |topics| topics == 1000);
    drop(clients);
    server.check_empty();
    server.until_metric("topics", |topics| topics == 0);
}

#[test]
fn subscribing_and_leaving_in_a_loop_asks_once() {
    let server = Server::start(1, |_| {});
    let mut ws = server.client();
    for _ in 0..200 {
        for kind in ["subscribe", "unsubscribe"] {
            ws.send_json(json!({"type": kind, "feed": "loop"}));
        }
    }
    for _ in 0..400 {
        assert_eq!(ws.next_json()["type"], "ok");
    }
    // What the last ones have changed is told in the turn of their answers, hence before this one's.
    ws.ask(json!({"type": "ping"}));
    // A level, not an event: at most one answer per key waits for the control plane, and it is the last one.
    let wanted = server.plane().take_wanted();
    assert!(wanted.len() <= 1 && wanted.iter().all(|wanted| !wanted.wanted), "{wanted:?}");
}

#[test]
fn json_nested_100_000_deep() {
    let server = Server::start(1, |options| options.rooms.publish = true);
    let mut ws = server.client();
    let deep = |open: &str, close: &str| open.repeat(100_000) + "1" + &close.repeat(100_000);
    for data in [deep("[", "]"), deep("{\"a\":", "}")] {
        ws.send_text(&format!(r#"{{"type":"publish","room":"r","data":{data}}}"#));
        assert_eq!(ws.next_json()["code"], "too_deep");
        ws.send_text(&format!(r#"{{"type":{data}}}"#));
        assert_eq!(ws.next_json()["code"], "bad_json");
        ws.send_text(&data);
        assert_eq!(ws.next_json()["type"], "error");
    }
    ws.ask(json!({"type": "ping"}));
}

/// What a request says comes back as text at most, never as a page or a header.
#[test]
fn what_is_said_back_is_no_markup_and_no_header() {
    let server = Server::start(1, |options| {
        options.origins = Origins::parse(&["*"]).unwrap();
        options.sockjs[0].jsessionid = true;
        options.limits.request_timeout = Duration::from_millis(20);
    });
    let script = "%3Cscript%3Ealert(1)%3C/script%3E";
    let raw = "<script>alert(1)</script>";
    let split = "a%0d%0aX-Evil:%20y%0d%0a%0d%0a<script>";
    let mut targets = Vec::new();
    for said in [script, raw, split] {
        let in_path = said.replace('/', "%2f");
        for prefix in
            ["/", "/ws/", "/feed/", "/sse/", "/primus/", "/sockjs/", "/sockjs/a/", "/sockjs/iframe-"]
        {
            targets.push(format!("{prefix}{in_path}"));
        }
        for query in [
            "/ws?feed=",
            "/sse?feed=",
            "/primus/?resourceId=",
            "/feed/k?wait=",
            "/socket.io/?EIO=4&transport=polling&sid=",
            "/socket.io/?EIO=4&transport=",
            "/engine.io/?EIO=",
            "/engine.io/?EIO=3&transport=polling&j=",
            "/sockjs/0/x/jsonp?c=",
            "/sockjs/0/x/htmlfile?c=",
            "/sockjs/iframe.html?t=",
            "/sockjs/info?t=",
        ] {
            targets.push(format!("{query}{said}"));
        }
    }
    let hostile = format!(
        "Host: a.test\r\nOrigin: http://{raw}\r\nAccess-Control-Request-Headers: {raw}\r\nCookie: JSESSIONID={raw}\r\n\
         If-None-Match: \"{raw}\"\r\nLast-Event-ID: {raw}\r\nReferer: {raw}\r\nUser-Agent: {raw}\r\n"
    );
    for target in &targets {
        for method in ["GET", "POST", "OPTIONS"] {
            let answer =
                server.ask(format!("{method} {target} HTTP/1.1\r\n{hostile}Content-Length: 0\r\n\r\n"));
            let what = format!("{method} {target}: {answer:?}");
            assert_eq!(answer.header("x-evil"), "", "{what}");
            let kind = answer.header("content-type");
            let says = String::from_utf8_lossy(&answer.body).contains("<script>alert");
            assert!(!says || !kind.contains("html"), "{what}");
            // Browsers aren't to guess what it may be.
            let is_told = answer.header("x-content-type-options") == "nosniff";
            assert!(answer.body.is_empty() || is_told || kind.contains("html"), "{what}");
        }
    }
    server.check_serves();
}
