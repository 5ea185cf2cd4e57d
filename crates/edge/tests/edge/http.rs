//! HTTP/1.1 over real sockets: what is answered, in which order, and what ends a connection (RFC 9110, 9112).

use crate::harness::ws::frame;
use crate::harness::{Http, Server, Ws, now, on_one_and_three, pass};
use std::time::Duration;
use stentor_edge::{App, FeedUpdate, ListenerOptions, Options, StaticRoute};
use stentor_wire::ws::Opcode;

const GET: &str = "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";

fn page(path: &str, bytes: usize) -> StaticRoute {
    StaticRoute { path: path.into(), content_type: "text/html".into(), body: vec![b'p'; bytes].into() }
}

fn with_pages(options: &mut Options) {
    options.routes = vec![page("/", 10), page("/page", 20_000), page("/huge", 32 << 20)];
}

#[test]
fn a_connection_is_kept_for_many_requests() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, with_pages);
        let mut http = server.http();
        for _ in 0..50 {
            let health = http.get("/healthz");
            assert_eq!((health.status, health.text()), (200, "ok\n"));
            assert_eq!(health.header("connection"), "keep-alive");
            assert_eq!(health.header("cache-control"), "no-store");
            let page = http.get("/page?x=1");
            assert_eq!((page.status, page.body.len()), (200, 20_000));
            assert_eq!(page.header("content-type"), "text/html");
            assert_eq!(page.header("x-content-type-options"), "nosniff");
            assert_eq!(http.get("/nothing").status, 404);
        }
        drop(http);
        server.check_empty();
    });
}

#[test]
fn a_node_listens_at_several_addresses() {
    on_one_and_three(|cores| {
        let anywhere = ListenerOptions { address: ([127, 0, 0, 2], 0).into(), ..ListenerOptions::default() };
        let server = Server::start(cores, |options| options.listeners = vec![anywhere.clone(), anywhere]);
        let ips: Vec<_> = server.addrs.iter().map(|addr| addr.ip().to_string()).collect();
        assert_eq!(ips, ["127.0.0.1", "127.0.0.2", "127.0.0.2"]);
        assert_eq!(server.addrs[0], server.addr);
        assert_ne!(server.addrs[1], server.addrs[2]);
        for addr in &server.addrs {
            assert_eq!(Http::connect(*addr).get("/healthz").status, 200);
        }
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, with_pages);
        let mut http = server.http();
        let paths = ["/healthz", "/", "/nothing", "/page", "/feed/%zz"];
        let all: String = paths.map(|path| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).concat();
        http.send(all.repeat(20));
        for _ in 0..20 {
            let answers = paths.map(|_| http.response()).map(|answer| (answer.status, answer.body.len()));
            let [health, root, nothing, page, bad] = answers;
            assert_eq!((health, root, page), ((200, 3), (200, 10), (200, 20_000)));
            assert_eq!((nothing.0, bad.0), (404, 400));
        }
    });
}

#[test]
fn answers_that_nobody_reads_stop_the_reading_of_pipelined_requests() {
    let server = Server::start(1, with_pages);
    let mut http = server.http();
    let request = b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n";
    let sent = http.stream().send_until_stalled(|sent| {
        // Unread answers of 20 kB each: without a bound the server would hold 600 times this.
        assert!(sent < 2_000, "the server reads on");
        request.repeat(1_000)
    });
    for n in 0..(1_000 * sent).min(3_000) {
        let answer = http.response();
        assert_eq!((answer.status, answer.body.len()), (200, 20_000), "answer {n}");
    }
    drop(http);
    server.check_empty();
}

#[test]
fn http_1_0() {
    let server = Server::start(1, with_pages);
    let mut http = server.http();
    http.send("GET /healthz HTTP/1.0\r\n\r\n");
    let answer = http.response();
    assert_eq!((answer.status, answer.header("connection"), answer.text()), (200, "close", "ok\n"));
    http.expect_end();
    let mut http = server.http();
    for _ in 0..2 {
        http.send("GET /page HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
        assert_eq!(http.response().header("connection"), "keep-alive");
    }
    let mut http = server.http();
    http.send("GET /page HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let answer = http.response();
    assert_eq!((answer.status, answer.header("connection"), answer.body.len()), (200, "close", 20_000));
    http.expect_end();
}

#[test]
fn answers_to_head_have_no_body_whatever_the_status() {
    let server = Server::start(1, with_pages);
    server.document("k", "{}");
    let mut http = server.http();
    let mut check = |target: &str, headers: &str, status: u16| {
        http.send(format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n{headers}\r\n{GET}"));
        let answer = http.response_to(true);
        let length: usize = answer.header("content-length").parse().unwrap();
        assert!(answer.status == status && length > 0, "{target}: {} {length}", answer.status);
        // If a body had been sent, this would be it.
        assert_eq!(http.response().text(), "ok\n", "{target}");
    };
    check("/healthz", "", 200);
    check("/page", "", 200);
    check("/feed/k", "", 200);
    check("/nothing", "", 404);
    check("/feed/..", "", 400);
    check("/ws", "", 405);
    check("/feed/k", "Origin: http://evil.test\r\n", 403);
}

#[test]
fn a_websocket_without_a_path_is_the_applications_whether_there_is_a_page_or_not() {
    for pages in [vec![page("/", 10)], Vec::new()] {
        let has_page = !pages.is_empty();
        let server = Server::start(1, |options| {
            options.app = App::Echo;
            options.routes = pages;
        });
        let mut ws = server.ws("/");
        ws.echoes("hello");
        assert_eq!(server.http().get("/").status, if has_page { 200 } else { 404 });
        assert_eq!(Ws::open(server.addr, "/other", &[], false).err(), Some(404));
    }
}

#[test]
fn bodies_are_read_past_on_routes_that_take_none() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, with_pages);
        server.document("k", "[1]");
        let mut http = server.http();
        let mut check = |request: &str, body: &[u8], status: u16| {
            http.send(request);
            http.send(body);
            http.send(GET);
            assert_eq!(http.response().status, status, "{request}");
            let next = http.response();
            assert_eq!((next.status, next.text()), (200, "ok\n"), "{request}");
        };
        let smuggled = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
        let length = format!("Content-Length: {}", smuggled.len());
        let chunked = "Transfer-Encoding: chunked";
        let mut chunks = b"5;x=y\r\nGET /\r\n".to_vec();
        chunks.extend_from_slice(b"23\r\n");
        chunks.extend_from_slice(smuggled);
        chunks.extend_from_slice(b"\r\n0\r\nTrailer: x\r\n\r\n");
        assert_eq!(smuggled.len(), 0x23);
        for (method, path, status) in [
            ("GET", "/healthz", 200),
            ("POST", "/healthz", 405),
            ("PUT", "/nothing", 404),
            ("GET", "/feed/k", 200),
        ] {
            check(&format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{length}\r\n\r\n"), smuggled, status);
            check(&format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{chunked}\r\n\r\n"), &chunks, status);
            check(&format!("{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"), b"", status);
        }
        // 64 kB is the limit.
        let many = "1\r\nx\r\n".repeat(65_536) + "0\r\n\r\n";
        check(&format!("POST / HTTP/1.1\r\nHost: a\r\n{chunked}\r\n\r\n"), many.as_bytes(), 405);
        let long = vec![b'x'; 65_536];
        check("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 65536\r\n\r\n", &long, 405);
    });
}

#[test]
fn bodies_that_are_too_large_or_broken_end_the_connection_after_one_answer() {
    let server = Server::start(1, with_pages);
    let check = |request: &str, body: &[u8], status: u16| {
        let mut http = server.http();
        http.send(request);
        http.send_if_open(body);
        http.send_if_open(GET);
        assert_eq!(http.response().status, status, "{request}");
        http.expect_end();
    };
    check("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 65537\r\n\r\n", b"", 413);
    check("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775807\r\n\r\n", b"x", 413);
    check("GET /ws HTTP/1.1\r\nHost: a\r\nContent-Length: 65537\r\n\r\n", b"", 413);
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    check(chunked, "1\r\nx\r\n".repeat(65_537).as_bytes(), 405);
    check(chunked, format!("10001\r\n{}", "x".repeat(65_537)).as_bytes(), 405);
    check(chunked, b"x\r\n", 405);
    check(chunked, b"1\r\nxy", 405);
    check(chunked, format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(5000)).as_bytes(), 405);
    check(chunked, format!("0\r\n{}\r\n\r\n", "e".repeat(5000)).as_bytes(), 405);
    check("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", b"12345", 405);
    server.check_empty();
}

#[test]
fn answers_by_status() {
    let server = Server::start(1, |options| {
        with_pages(options);
        options.limits.headers_max = 20;
    });
    /// Whether the connection can be used afterwards.
    enum Then {
        Kept,
        Ended,
    }
    let check = |request: &str, status: u16, then: Then| {
        let mut http = server.http();
        http.send(request);
        let answer = http.response();
        assert_eq!(answer.status, status, "{request:.100}");
        match then {
            Then::Kept => assert_eq!(http.get("/healthz").status, 200, "{request:.100}"),
            Then::Ended => {
                assert_eq!(answer.header("connection"), "close");
                http.expect_end();
            }
        }
        answer
    };
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
    check(&get("/feed/a%2fb"), 400, Then::Kept);
    check(&get("/feed/"), 400, Then::Kept);
    check(&get("/feed/a/../b"), 400, Then::Kept);
    check(&get(&format!("/feed/{}", "k".repeat(257))), 400, Then::Kept);
    check(&get("/healthz/"), 404, Then::Kept);
    check("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 404, Then::Kept);
    check("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 404, Then::Kept);
    let not_allowed = check("DELETE /healthz HTTP/1.1\r\nHost: a\r\n\r\n", 405, Then::Kept);
    assert_eq!(not_allowed.header("allow"), "GET, HEAD");
    check("POST /feed/k HTTP/1.1\r\nHost: a\r\n\r\n", 405, Then::Kept);
    let no_get = check("POST /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n", 405, Then::Kept);
    assert_eq!(no_get.header("allow"), "GET");
    check(&format!("GET /{}", "x".repeat(17_000)), 414, Then::Ended);
    let upgrade = check(&get("/ws"), 426, Then::Kept);
    assert_eq!(upgrade.header("upgrade"), "websocket");
    let many = "X: y\r\n".repeat(20);
    check(&format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), 431, Then::Ended);
    check(&format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "y".repeat(17_000)), 431, Then::Ended);
    check("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501, Then::Ended);
    check("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505, Then::Ended);
    check("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, Then::Ended);
    check("GET / HTTP/1.1\r\n\r\n", 400, Then::Ended);
    check("\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n", 400, Then::Ended);
    // After what a WebSocket client may go on with in frames, the connection isn't read as HTTP.
    let socket = "Host: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
    check(&format!("GET /ws HTTP/1.1\r\n{socket}\r\n"), 400, Then::Ended);
    check(&format!("GET /healthz HTTP/1.1\r\n{socket}\r\n"), 400, Then::Ended);
    check(&format!("GET /feed/k HTTP/1.1\r\n{socket}\r\n"), 400, Then::Ended);
    // Other protocols are none of our business (RFC 9110, 7.8).
    let h2c = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n";
    check(&format!("GET /healthz HTTP/1.1\r\nHost: a\r\n{h2c}\r\n"), 200, Then::Kept);
    server.check_serves();
    server.check_empty();
}

#[test]
fn requests_that_two_readers_would_read_differently_are_refused() {
    let server = Server::start(1, with_pages);
    let check = |head: &str, status: u16| {
        let mut http = server.http();
        // What a second reader might take for a request of its own gets no answer.
        http.send(format!("{head}\r\nGET /page HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = http.response();
        assert_eq!(answer.status, status, "{head:?}");
        http.expect_end();
    };
    let post = "POST / HTTP/1.1\r\nHost: a\r\n";
    check(&format!("{post}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400);
    check(&format!("{post}Content-Length: 5\r\nContent-Length: 5\r\n"), 400);
    check(&format!("{post}Content-Length: 5, 5\r\n"), 400);
    check(&format!("{post}Content-Length: +5\r\n"), 400);
    check(&format!("{post}Content-Length: 0x5\r\n"), 400);
    check(&format!("{post}Content-Length: -1\r\n"), 400);
    check(&format!("{post}Content-Length: 99999999999999999999\r\n"), 400);
    check(&format!("{post}Content-Length : 5\r\n"), 400);
    check(&format!("{post}Content-Length:\r\n"), 400);
    check(&format!("{post}Transfer-Encoding: chunked, chunked\r\n"), 400);
    check(&format!("{post}Transfer-Encoding: chunked, identity\r\n"), 400);
    check(&format!("{post}Transfer-Encoding: xchunked\r\n"), 400);
    check(&format!("{post}Transfer-Encoding: identity, chunked\r\n"), 501);
    check(&format!("{post}Transfer-Encoding : chunked\r\n"), 400);
    check(&format!("{post}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400);
    check(&format!("{post}X: y\r\n Transfer-Encoding: chunked\r\n"), 400);
    check(&format!("{post}X: y\nContent-Length: 5\r\n"), 400);
    check(&format!("{post}X: y\rContent-Length: 5\r\n"), 400);
    check(&format!("{post}X\0: y\r\n"), 400);
    check(&format!("{post}X: y\0z\r\n"), 400);
    check("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n", 400);
    check("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n", 400);
    check("GET / HTTP/1.1\r\nHost: a, b\r\n", 400);
    check("GET / HTTP/1.1\r\nHost: a@b\r\n", 400);
    check("GET  / HTTP/1.1\r\nHost: a\r\n", 400);
    check("GET / x HTTP/1.1\r\nHost: a\r\n", 505);
    check("GET /\tHTTP/1.1\r\nHost: a\r\n", 400);
    check("GET /#x HTTP/1.1\r\nHost: a\r\n", 400);
    check("G\u{e9}T / HTTP/1.1\r\nHost: a\r\n", 400);
    server.check_empty();
}

#[test]
fn a_request_may_come_in_any_pieces() {
    let server = Server::start(1, with_pages);
    let bytes = b"\r\nPOST /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: x\r\n\r\n\
        GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbodyHEAD /nothing HTTP/1.1\r\nHost: a\r\n\r\n";
    let answered = |http: &mut Http| {
        assert_eq!(http.response().status, 405);
        assert_eq!(http.response().body, b"pppppppppp");
        assert_eq!(http.response_to(true).status, 404);
    };
    let mut http = server.http();
    for split in 0..=bytes.len() {
        http.send(&bytes[..split]);
        if split > 90 {
            // The first piece is there by itself.
            assert_eq!(http.response().status, 405);
            http.send(&bytes[split..]);
            assert_eq!(http.response().body, b"pppppppppp");
            assert_eq!(http.response_to(true).status, 404);
        } else {
            http.send(&bytes[split..]);
            answered(&mut http);
        }
    }
    for byte in bytes {
        http.send([*byte]);
    }
    answered(&mut http);
}

#[test]
fn a_head_that_does_not_end_is_answered_408() {
    let time = Duration::from_millis(100);
    let server = Server::start(1, |options| options.limits.header_timeout = time);
    let mut http = server.http();
    http.send("GET / HTTP/1.1\r\nHost:");
    assert_eq!(http.response().status, 408);
    http.expect_end();
    // Nothing at all is answered by nothing.
    let mut http = server.http();
    http.expect_end();
    // A byte now and then doesn't help.
    let mut http = server.http();
    http.send("GET / HTTP/1.1\r\nHost: a\r\n");
    let errors = server.metric("http_request_errors");
    while server.metric("http_request_errors") == errors {
        http.send("X");
        pass(time / 10);
    }
    assert_eq!(http.response().status, 408);
    http.expect_end();
    server.check_empty();
    server.check_serves();
}

#[test]
fn a_later_head_has_its_time_from_its_first_byte() {
    let time = Duration::from_millis(100);
    // Longer than a test may take: if the time-out is that of an idle connection, nothing comes.
    let idle = Duration::from_secs(3600);
    let server = Server::start(1, |options| {
        options.limits.idle_timeout = idle;
        options.limits.header_timeout = time;
    });
    let mut http = server.http();
    http.send(format!("{GET}GET /"));
    assert_eq!(http.response().status, 200);
    assert_eq!(http.response().status, 408);
    http.expect_end();
    let mut http = server.http();
    assert_eq!(http.get("/healthz").status, 200);
    http.send("GET /");
    assert_eq!(http.response().status, 408);
    http.expect_end();
}

#[test]
fn an_idle_connection_is_ended_without_a_word() {
    let time = Duration::from_millis(50);
    let server = Server::start(1, |options| options.limits.idle_timeout = time);
    let mut http = server.http();
    assert_eq!(http.get("/healthz").status, 200);
    http.expect_end();
    // Nor may a body take for ever.
    let mut http = server.http();
    http.send("POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(http.response().status, 405);
    http.expect_end();
    server.check_empty();
}

#[test]
fn a_client_that_has_finished_sending_gets_its_answers() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, with_pages);
        let mut http = server.http();
        http.send(format!("{GET}GET /page HTTP/1.1\r\nHost: a\r\n\r\n{GET}GET /incompl"));
        http.finish_sending();
        assert_eq!(http.response().text(), "ok\n");
        assert_eq!(http.response().body.len(), 20_000);
        assert_eq!(http.response().text(), "ok\n");
        http.expect_end();
        // Also those that something is awaited for, on whichever core.
        let mut http = server.http();
        let keys: Vec<String> = (0..6).map(|n| format!("key{n}")).collect();
        for key in &keys {
            http.send(format!("GET /feed/{key} HTTP/1.1\r\nHost: a\r\n\r\n"));
        }
        http.finish_sending();
        for key in &keys {
            server.wait_wanted(key, true);
            server.document(key, &format!("\"{key}\""));
            assert_eq!(http.response().text(), format!("\"{key}\""));
        }
        http.expect_end();
        // And an answer that is larger than what the kernel takes at once.
        let mut http = server.http();
        http.send("GET /huge HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        http.finish_sending();
        assert_eq!(http.response().body.len(), 32 << 20);
        http.expect_end();
        for key in &keys {
            server.wait_wanted(key, false);
            server.update(key, FeedUpdate::Forget);
        }
        server.check_empty();
    });
}

#[test]
fn frames_glued_to_the_handshake_are_not_lost() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.app = App::Echo);
        let mut glued = frame(Opcode::Text, b"one", true, false);
        glued.extend(frame(Opcode::Binary, &[7; 3000], true, false));
        glued.extend(frame(Opcode::Text, b"half", true, false));
        let end = glued.split_off(glued.len() - 3);
        let mut ws = Ws::open_with(server.addr, "/ws", &[], false, &glued).unwrap();
        assert_eq!(ws.next_text(), "one");
        assert_eq!(ws.next_binary(), [7; 3000]);
        ws.send_raw(&end);
        assert_eq!(ws.next_text(), "half");
    });
}

#[test]
fn requests_before_a_handshake_are_answered_before_it() {
    let server = Server::start(1, |options| {
        with_pages(options);
        options.app = App::Echo;
    });
    let mut http = server.http();
    http.send(format!(
        "{GET}GET /page HTTP/1.1\r\nHost: a\r\n\r\nGET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ));
    http.send(frame(Opcode::Text, b"hello", true, false));
    assert_eq!(http.response().text(), "ok\n");
    assert_eq!(http.response().body.len(), 20_000);
    let switched = http.response();
    assert_eq!(switched.status, 101);
    // RFC 6455, 1.3
    assert_eq!(switched.header("sec-websocket-accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    http.finish_sending();
    assert_eq!(http.rest(), b"\x81\x05hello");
}

/// A client that reads slowly, but reads, gets a large answer in full; one that doesn't read at all is let go.
#[test]
fn slow_is_not_dead() {
    let time = Duration::from_millis(500);
    let server = Server::start(1, |options| {
        with_pages(options);
        options.limits.idle_timeout = time;
        options.limits.close_timeout = time;
    });
    for connection in ["keep-alive", "close"] {
        let request = format!("GET /huge HTTP/1.1\r\nHost: a\r\nConnection: {connection}\r\n\r\n");
        let mut dead = server.http();
        dead.send(&request);
        let mut slow = server.http();
        slow.send(&request);
        let begun = now();
        let mut bytes = vec![0; 256 * 1024];
        let mut left: usize = 32 << 20;
        while left > 0 {
            let n = slow.read(&mut bytes);
            assert!(n > 0, "{connection}: cut off with {left} bytes left after {:?}", (now() - begun));
            left = left.saturating_sub(n);
            pass(time / 50);
        }
        assert!((now() - begun) > time, "too fast to show anything");
        drop(slow);
        server.until_metric("connections", |connections| connections == 0);
        drop(dead);
    }
}
