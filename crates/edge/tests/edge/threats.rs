//! Published attacks on servers of this kind, and some of our own, each named after its number. Each test checks the answer, that
//! other clients are served, and that all resources are freed. Tests that measure memory are in `memory.rs`; protocol violations
//! without a number are in `websocket.rs` and `http.rs`.

use crate::harness::ws::frame;
use crate::harness::{Response, Seen, Server, UPGRADE, Ws, request};
use serde_json::json;
use std::time::Duration;
use stentor_edge::{App, Options, Origins};
use stentor_hub::FeedState;
use stentor_wire::ws::{Deflater, Opcode};

/// The targets at which a WebSocket may be opened.
const SOCKETS: [&str; 7] = [
    "/ws",
    "/primus/",
    "/sockjs/websocket",
    "/engine.io/?EIO=4&transport=websocket",
    "/engine.io/?EIO=3&transport=websocket",
    "/socket.io/?EIO=4&transport=websocket",
    "/socket.io/?EIO=3&transport=websocket",
];

/// Checks that another client is served, and that all resources of the attack are freed.
fn survives(server: &Server) {
    server.ws("/ws").echoes("alive");
    server.check_serves();
    server.check_empty();
}

fn upgrade(server: &Server, target: &str, headers: &str) -> Response {
    server.request("GET", target, &format!("{UPGRADE}{headers}"))
}

/// Sends invalid frames together with the handshake.
#[test]
fn cve_2022_21676_reserved_bits_after_the_upgrade() {
    let server = Server::echo(1);
    for target in SOCKETS {
        for bits in [0x10, 0x20, 0x30, 0x40] {
            let glued = [0x81 | bits, 0x80, 0, 0, 0, 0];
            let mut ws = Ws::open_with(server.addr, target, &[], false, &glued).unwrap();
            assert_eq!(ws.skip_to_close(), 1002, "{target} {bits}");
        }
    }
    survives(&server);
}

#[test]
fn cve_2022_41940_http_2_upgrade_and_reset() {
    for cores in [1, 3] {
        let server = Server::echo(cores);
        for target in SOCKETS.map(|target| target.replace("=websocket", "=polling")) {
            let h2c =
                "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n";
            for _ in 0..20 {
                // The client closes without reading the response, so the kernel sends a reset.
                server.http().send(request("GET", &target, h2c) + "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
            }
        }
        server.until_metric("connections", |connections| connections == 0);
        server.check_serves();
    }
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
        // As many fragments as the server accepts.
        let errors = server.metric("protocol_errors");
        let mut ws = server.ws("/ws");
        ws.send_frame(Opcode::Text, b"", false, false);
        let many = frame(Opcode::Continuation, payload, false, false).repeat(1000);
        while ws.send_if_open(&many) {}
        // A reset may have discarded the Close frame.
        while !matches!(ws.next(), Seen::Closed(1009, _) | Seen::End) {}
        assert_eq!(server.metric("protocol_errors"), errors + 1);
        // One fragment at a time, without an end.
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
fn cve_2026_45736_and_cve_2016_10518_payloads_of_control_frames() {
    let server = Server::echo(1);
    let mut ws = server.ws("/ws");
    for len in 0..=125_u8 {
        let payload: Vec<u8> = (0..len).map(|n| n.wrapping_mul(len)).collect();
        ws.send_frame(Opcode::Pong, &payload, true, false);
        ws.send_frame(Opcode::Ping, &payload, true, false);
        assert_eq!(ws.next(), Seen::Pong(payload));
    }
    assert_eq!(ws.fence(), []);
    drop(ws);
    for len in 0..=123 {
        let mut ws = server.ws("/ws");
        let reason = "r".repeat(len);
        ws.send_close(1000, &reason);
        // The server repeats the client's own reason, and no other bytes.
        assert_eq!(ws.expect_close(), (1000, reason));
    }
    survives(&server);
}

/// Handshakes, each with the status of its answer.
#[test]
fn handshakes() {
    let server = Server::echo(1);
    let headers = |count| "X: y\r\n".repeat(count);
    let protocol = |spaces| format!("Sec-WebSocket-Protocol: b{}x\r\n", " ".repeat(spaces));
    for (name, target, headers, status) in [
        ("CVE-2024-37890: more headers than the limit", "/ws", headers(100), 431),
        ("CVE-2024-37890: more headers than the parser has room for", "/ws", headers(1000), 431),
        ("CVE-2021-32640: spaces in a subprotocol", "/ws", protocol(15_000), 101),
        ("CVE-2021-32640: more spaces than the limit", "/ws", protocol(32_000), 431),
        ("CVE-2020-7693: upgrade of a page", "/healthz", String::new(), 400),
        ("CVE-2020-7693: upgrade of a feed", "/feed/k", String::new(), 400),
        ("CVE-2020-7693: upgrade of a feed with a query", "/feed/k?x", String::new(), 400),
        ("CVE-2020-7693: upgrade of nothing", "/nothing", String::new(), 404),
    ] {
        assert_eq!(upgrade(&server, target, &headers).status, status, "{name}");
    }
    for path in ["", "/", "/info", "/iframe.html", "/a/b/xhr", "/a/b/xhr_send"] {
        for method in ["GET", "POST", "OPTIONS"] {
            let mut http = server.http();
            let answer = http.ask(request(method, &format!("/sockjs{path}"), UPGRADE));
            assert_eq!(answer.status, 400, "CVE-2020-7693: {method} {path}");
            http.expect_end();
        }
    }
    survives(&server);
}

/// Frames, each with the close code of the answer.
#[test]
fn frames() {
    let server = Server::echo(1);
    let check = |name: &str, bytes: &[u8], code: u16| {
        let mut ws = Ws::open(server.addr, "/ws", &[], true).unwrap();
        ws.send_if_open(bytes);
        assert_eq!(ws.expect_close().0, code, "{name}");
    };
    let lengths = "CVE-2016-10542, CVE-2022-35922, CVE-2020-27813: declared lengths";
    for length in [1_000_001, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, u64::MAX, u64::MAX - 13] {
        for first in [0x81, 0x82, 0x01, 0xc1] {
            let bytes = [&[first, 0xff][..], &length.to_be_bytes()].concat();
            check(&format!("{lengths}, {length}"), &bytes, if length >= 1 << 63 { 1002 } else { 1009 });
        }
    }
    let bombs = "CVE-2016-10544, CVE-2026-62963, CVE-2026-39804, CVE-2018-1000518: bombs";
    let mut deflater = Deflater::new(9);
    for inflated in [1_000_001, 16 << 20, 256 << 20] {
        // The compression ratio is about 1,024 to 1.
        let bomb = deflater.deflate(&vec![0; inflated], 15).to_vec();
        assert!(bomb.len() < inflated / 900);
        check(bombs, &frame(Opcode::Binary, &bomb, true, true), 1009);
        let (first, second) = bomb.split_at(bomb.len() / 2);
        let parts =
            [frame(Opcode::Text, first, false, true), frame(Opcode::Continuation, second, true, false)];
        check(bombs, &parts.concat(), 1009);
    }
    check("small final blocks", &frame(Opcode::Binary, &[3, 0].repeat(100_000), true, true), 1007);
    check("a block without end", &frame(Opcode::Binary, &[0xff; 100_000], true, true), 1007);
    survives(&server);
}

#[test]
fn cve_2021_45945_and_cve_2023_43669_heads_in_pieces() {
    let server = Server::echo(1);
    // Headers that arrive byte by byte are accepted.
    let mut http = server.http();
    for byte in request("GET", "/healthz", &format!("X: {}\r\n", "y".repeat(4000))).bytes() {
        http.send([byte]);
    }
    assert_eq!(http.response().status, 200);
    drop(http);
    let mut http = server.http();
    let endless = format!("GET /healthz HTTP/1.1\r\nHost: a\r\nX: {}", "y".repeat(20_000));
    let _ = endless.as_bytes().chunks(10).all(|bytes| http.send_if_open(bytes));
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
                    // In every second round, the client disconnects without waiting for its answers.
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
    // No subscribed topic is left.
    server.forget_unwanted("storm");
    server.check_empty();
}

#[test]
fn keys_never_leave_their_upstreams_path() {
    let server = Server::echo(1);
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
        assert_eq!(server.get(&format!("/feed/{key}")).status, 400, "{key}");
        assert_eq!(upgrade(&server, &format!("/ws/{key}"), "").status, 400, "{key}");
    }
    for key in ["..", "..%2Fadmin", "a%2F..", "http:%2F%2Fevil.test", "a%0d%0ab", "", "a%3Fb"] {
        assert_eq!(upgrade(&server, &format!("/ws?feed={key}"), "").status, 400, "{key}");
    }
    assert!(server.plane().take_key_interest().is_empty(), "nobody is asked for what is no key");
    survives(&server);
}

#[test]
fn key_explosion_is_bounded_and_given_back() {
    let server = Server::start(1, |options: &mut Options| {
        options.limits.topics_max = 1000;
        options.limits.subscriptions_max = 400;
    });
    let mut clients: Vec<Ws> = (0..3).map(|_| server.client()).collect();
    let mut refused = 0;
    for (n, ws) in clients.iter_mut().enumerate() {
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
fn subscribing_and_leaving_in_a_loop_is_reported_once() {
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
    // Changes by the last messages are reported in the turn of their answers, and thus before this answer.
    ws.ask(json!({"type": "ping"}));
    // Interest is a level: at most one report per key waits for the control plane, with the last value.
    let wanted = server.plane().take_key_interest();
    assert!(wanted.len() <= 1 && wanted.iter().all(|wanted| !wanted.wanted), "{wanted:?}");
}

/// The server returns text of a request only as text, never as markup or as a header.
#[test]
fn returned_text_is_neither_markup_nor_a_header() {
    let server = Server::start(1, |options| {
        options.origins = Origins::parse(&["*"]).unwrap();
        options.sockjs[0].jsessionid = true;
        options.limits.request_timeout = Duration::from_millis(20);
    });
    let script = "%3Cscript%3Ealert(1)%3C/script%3E";
    let raw = "<script>alert(1)</script>";
    let split = "a%0d%0aX-Evil:%20y%0d%0a%0d%0a<script>";
    let in_path = ["/", "/ws/", "/feed/", "/sse/", "/primus/", "/sockjs/", "/sockjs/a/", "/sockjs/iframe-"];
    let in_query = [
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
    ];
    let hostile = format!(
        "Origin: http://{raw}\r\nAccess-Control-Request-Headers: {raw}\r\nCookie: JSESSIONID={raw}\r\n\
         If-None-Match: \"{raw}\"\r\nLast-Event-ID: {raw}\r\nReferer: {raw}\r\nUser-Agent: {raw}\r\n\
         Content-Length: 0\r\n"
    );
    let targets = [script, raw, split].into_iter().flat_map(|said| {
        let paths = in_path.iter().map(|prefix| format!("{prefix}{}", said.replace('/', "%2f")));
        paths.chain(in_query.iter().map(move |query| format!("{query}{said}"))).collect::<Vec<_>>()
    });
    for target in targets {
        for method in ["GET", "POST", "OPTIONS"] {
            let answer = server.request(method, &target, &hostile);
            let what = format!("{method} {target}: {answer:?}");
            assert_eq!(answer.header("x-evil"), "", "{what}");
            let kind = answer.header("content-type");
            let says = String::from_utf8_lossy(&answer.body).contains("<script>alert");
            assert!(!says || !kind.contains("html"), "{what}");
            // Browsers must not guess the content type.
            let is_told = answer.header("x-content-type-options") == "nosniff";
            assert!(answer.body.is_empty() || is_told || kind.contains("html"), "{what}");
        }
    }
    server.check_serves();
}
