//! HTTP/1.1: responses, their order, and the ends of connections (RFC 9110, 9112).

use crate::harness::ws::frame;
use crate::harness::{HOUR, Http, Server, UPGRADE, Ws, now, on_one_and_three, pass, request};
use std::time::Duration;
use stentor_edge::{App, ListenerOptions, Options, StaticRoute};
use stentor_ports::FeedUpdate;
use stentor_wire::ws::Opcode;

fn get(target: &str) -> String {
    request("GET", target, "")
}

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
        let rows = [
            ("/healthz", 200, 3),
            ("/", 200, 10),
            ("/nothing", 404, 0),
            ("/page", 200, 20_000),
            ("/feed/%zz", 400, 0),
        ];
        http.send(rows.map(|(path, ..)| get(path)).concat().repeat(20));
        for (path, status, bytes) in std::iter::repeat_n(rows, 20).flatten() {
            let answer = http.response();
            assert_eq!(answer.status, status, "{path}");
            assert!(bytes == 0 || answer.body.len() == bytes, "{path}");
        }
    });
}

#[test]
fn unread_answers_stop_the_reading_of_pipelined_requests() {
    let server = Server::start(1, with_pages);
    let mut http = server.http();
    let sent = http.stream().send_until_stalled(|sent| {
        // Each unread answer has 20 kB, so without a bound the server would hold 20 MB more for each send.
        assert!(sent < 2_000, "the server reads on");
        get("/page").repeat(1_000).into_bytes()
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
    for (request, connection, bytes) in [
        ("GET /healthz HTTP/1.0\r\n\r\n", "close", 3),
        ("GET /page HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "keep-alive", 20_000),
        ("GET /page HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "close", 20_000),
    ] {
        let mut http = server.http();
        let answer = http.ask(request);
        let seen = (answer.status, answer.header("connection"), answer.body.len());
        assert_eq!(seen, (200, connection, bytes), "{request}");
        match connection {
            "close" => http.expect_end(),
            _ => assert_eq!(http.ask(request).header("connection"), connection),
        }
    }
}

#[test]
fn answers_to_head_have_no_body_whatever_the_status() {
    let server = Server::start(1, with_pages);
    server.document("k", "{}");
    let mut http = server.http();
    for (target, headers, status) in [
        ("/healthz", "", 200),
        ("/page", "", 200),
        ("/feed/k", "", 200),
        ("/nothing", "", 404),
        ("/feed/..", "", 400),
        ("/ws", "", 405),
        ("/feed/k", "Origin: http://evil.test\r\n", 403),
    ] {
        http.send(request("HEAD", target, headers) + &get("/healthz"));
        let answer = http.response_to(true);
        let length: usize = answer.header("content-length").parse().unwrap();
        assert!(answer.status == status && length > 0, "{target}: {} {length}", answer.status);
        // If a body had been sent, it would be parsed as this response.
        assert_eq!(http.response().text(), "ok\n", "{target}");
    }
}

#[test]
fn a_websocket_at_the_root_reaches_the_application_with_or_without_a_page() {
    for (pages, status) in [(vec![page("/", 10)], 200), (Vec::new(), 404)] {
        let server = Server::quiet(1, App::Echo, |options| options.routes = pages);
        server.ws("/").echoes("hello");
        assert_eq!(server.get("/").status, status);
        assert_eq!(Ws::open(server.addr, "/other", &[], false).err(), Some(404));
    }
}

#[test]
fn bodies_are_discarded_on_routes_that_take_none() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, with_pages);
        server.document("k", "[1]");
        let mut http = server.http();
        let mut check = |method: &str, path: &str, header: &str, body: &[u8], status: u16| {
            let next = get("/healthz");
            http.send([request(method, path, header).as_bytes(), body, next.as_bytes()].concat());
            assert_eq!(http.response().status, status, "{method} {path} {header}");
            assert_eq!(http.response().text(), "ok\n", "{method} {path} {header}");
        };
        let smuggled = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
        let chunks = [b"5;x=y\r\nGET /\r\n23\r\n", &smuggled[..], b"\r\n0\r\nTrailer: x\r\n\r\n"].concat();
        assert_eq!(smuggled.len(), 0x23);
        let chunked = "Transfer-Encoding: chunked\r\n";
        for (method, path, status) in [
            ("GET", "/healthz", 200),
            ("POST", "/healthz", 405),
            ("PUT", "/nothing", 404),
            ("GET", "/feed/k", 200),
        ] {
            check(method, path, "Content-Length: 35\r\n", smuggled, status);
            check(method, path, chunked, &chunks, status);
            check(method, path, "Content-Length: 0\r\n", b"", status);
        }
        // The server reads and discards exactly `body_bytes_max` (64 KiB by default).
        check("POST", "/", chunked, ("1\r\nx\r\n".repeat(65_536) + "0\r\n\r\n").as_bytes(), 405);
        check("POST", "/", "Content-Length: 65536\r\n", &[b'x'; 65_536], 405);
    });
}

#[test]
fn bodies_that_are_too_large_or_broken_end_the_connection_after_one_answer() {
    let server = Server::start(1, with_pages);
    let length = |length: &str| format!("Content-Length: {length}\r\n");
    let chunked = || "Transfer-Encoding: chunked\r\n".to_owned();
    let extension = "e".repeat(5000);
    for (name, headers, body, status) in [
        ("a long body", length("65537"), String::new(), 413),
        ("a very long body", length("9223372036854775807"), "x".to_owned(), 413),
        ("many chunks", chunked(), "1\r\nx\r\n".repeat(65_537), 405),
        ("a large chunk", chunked(), format!("10001\r\n{}", "x".repeat(65_537)), 405),
        ("no size", chunked(), "x\r\n".to_owned(), 405),
        ("no end of a chunk", chunked(), "1\r\nxy".to_owned(), 405),
        ("a long extension", chunked(), format!("1;{extension}\r\nx\r\n0\r\n\r\n"), 405),
        ("a long trailer", chunked(), format!("0\r\n{extension}\r\n\r\n"), 405),
        ("an expectation", length("5\r\nExpect: 100-continue"), "12345".to_owned(), 405),
    ] {
        let mut http = server.http();
        http.send(request("POST", "/", &headers));
        http.send_if_open(body);
        http.send_if_open(get("/healthz"));
        assert_eq!(http.response().status, status, "{name}");
        http.expect_end();
    }
    let long = request("GET", "/ws", &length("65537"));
    assert_eq!(server.ask(long).status, 413);
    server.check_empty();
}

#[test]
fn a_response_instead_of_100_announces_the_end_of_the_connection() {
    let server = Server::start(1, with_pages);
    server.document("k", "[1]");
    for (method, path, status) in
        [("GET", "/healthz", 200), ("POST", "/healthz", 405), ("GET", "/feed/k", 200)]
    {
        let mut http = server.http();
        let expected = http.ask(request(method, path, "Content-Length: 5\r\nExpect: 100-continue\r\n"));
        assert_eq!((expected.status, expected.header("connection")), (status, "close"), "{method} {path}");
        http.expect_end();
    }
    server.check_empty();
}

/// The parser's own tests cover details of requests.
#[test]
fn answers_by_status() {
    let server = Server::start(1, |options| {
        with_pages(options);
        options.limits.headers_max = 20;
    });
    let socket = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    let h2c = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n";
    // The connection can be used afterwards.
    for (request, status, header, value) in [
        (get("/feed/a%2fb"), 400, "", ""),
        (get("/feed/"), 400, "", ""),
        (get("/feed/a/../b"), 400, "", ""),
        (get(&format!("/feed/{}", "k".repeat(257))), 400, "", ""),
        (get("/healthz/"), 404, "", ""),
        (request("OPTIONS", "*", ""), 404, "", ""),
        (request("CONNECT", "a:80", ""), 404, "", ""),
        (request("DELETE", "/healthz", ""), 405, "allow", "GET, HEAD"),
        (request("POST", "/feed/k", ""), 405, "", ""),
        (request("POST", "/ws", ""), 405, "allow", "GET"),
        (get("/ws"), 426, "upgrade", "websocket"),
        // Upgrades to other protocols are ignored (RFC 9110, 7.8).
        (request("GET", "/healthz", h2c), 200, "", ""),
    ] {
        let mut http = server.http();
        let answer = http.ask(&request);
        assert_eq!((answer.status, answer.header(header)), (status, value), "{request:.100}");
        assert_eq!(http.get("/healthz").status, 200, "{request:.100}");
    }
    // The connection ends. A second request, which another parser would find after the first one, gets no response.
    let post = |headers: &str| request("POST", "/", headers);
    for (request, status) in [
        (get(&format!("/{}", "x".repeat(17_000))), 414),
        (request("GET", "/", &"X: y\r\n".repeat(20)), 431),
        (request("GET", "/", &format!("X: {}\r\n", "y".repeat(17_000))), 431),
        (post("Transfer-Encoding: gzip, chunked\r\n"), 501),
        (get("/").replace("HTTP/1.1", "HTTP/2.0"), 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 505),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n".to_owned(), 400),
        (post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400),
        (post("Content-Length: +5\r\n"), 400),
        (post("Transfer-Encoding: chunked, identity\r\n"), 400),
        (post("X: y\r\n Transfer-Encoding: chunked\r\n"), 400),
        (post("X: y\nContent-Length: 5\r\n"), 400),
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), 400),
        (post("Host: b\r\n"), 400),
        (get("/#x"), 400),
        ("G\u{e9}T / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        // After a refused upgrade, whose client may continue in frames, further input isn't parsed as HTTP.
        (request("GET", "/ws", socket), 400),
        (request("GET", "/ws/a%2fb", socket), 400),
        (request("GET", "/ws", &format!("{socket}Origin: http://evil.test\r\n")), 403),
        (request("POST", "/ws", socket), 405),
        (request("GET", "/healthz", socket), 400),
        (request("GET", "/feed/k", socket), 400),
    ] {
        let mut http = server.http();
        let answer = http.ask(request.clone() + &get("/page"));
        assert_eq!((answer.status, answer.header("connection")), (status, "close"), "{request:.100}");
        http.expect_end();
    }
    server.check_serves();
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
    let pieces = (0..=bytes.len()).map(|split| vec![&bytes[..split], &bytes[split..]]);
    for pieces in pieces.chain([bytes.chunks(1).collect()]) {
        pieces.into_iter().for_each(|piece| http.send(piece));
        answered(&mut http);
    }
}

#[test]
fn a_head_that_does_not_end_is_answered_408() {
    let time = Duration::from_millis(100);
    let server = Server::start(1, |options| {
        options.limits.header_timeout = time;
        // `idle_timeout` ends a connection without a response, so it must not expire here.
        options.limits.idle_timeout = HOUR;
    });
    // The timeout of later headers starts with their first byte.
    let healthz = get("/healthz");
    for (first, rest) in [("", ""), (&healthz, ""), ("", &healthz)] {
        let mut http = server.http();
        if !rest.is_empty() {
            assert_eq!(http.ask(rest).status, 200);
        }
        let begun = now();
        http.send(format!("{first}GET / HTTP/1.1\r\nHost:"));
        if !first.is_empty() {
            assert_eq!(http.response().status, 200);
        }
        assert_eq!(http.response().status, 408);
        assert!(now() - begun >= time, "{first}{rest}");
        http.expect_end();
    }
    // A connection without any input ends without an answer.
    server.http().expect_end();
    // Single bytes don't extend the timeout.
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
fn an_idle_connection_ends_without_a_response() {
    let server = Server::start(1, |options| options.limits.idle_timeout = Duration::from_millis(50));
    // A body has a timeout, too.
    for (request, status) in
        [(get("/healthz"), 200), (request("POST", "/healthz", "Content-Length: 5\r\n"), 405)]
    {
        let mut http = server.http();
        assert_eq!(http.ask(request).status, status);
        http.expect_end();
    }
    server.check_empty();
}

#[test]
fn a_client_that_has_finished_sending_gets_its_answers() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, with_pages);
        let mut http = server.http();
        http.send(get("/healthz") + &get("/page") + &get("/healthz") + "GET /incompl");
        http.finish_sending();
        for bytes in [3, 20_000, 3] {
            assert_eq!(http.response().body.len(), bytes);
        }
        http.expect_end();
        // Requests that wait on other cores are answered as well.
        let mut http = server.http();
        let keys: Vec<String> = (0..6).map(|n| format!("key{n}")).collect();
        keys.iter().for_each(|key| http.send(get(&format!("/feed/{key}"))));
        http.finish_sending();
        for key in &keys {
            server.wait_wanted(key, true);
            server.document(key, &format!("\"{key}\""));
            assert_eq!(http.response().text(), format!("\"{key}\""));
        }
        http.expect_end();
        // An answer that is larger than the kernel's buffers.
        let mut http = server.http();
        http.send(request("GET", "/huge", "Connection: close\r\n"));
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
        let server = Server::echo(cores);
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
    let server = Server::quiet(1, App::Echo, with_pages);
    let mut http = server.http();
    http.send(get("/healthz") + &get("/page") + &request("GET", "/ws", UPGRADE));
    http.send(frame(Opcode::Text, b"hello", true, false));
    assert_eq!(http.response().text(), "ok\n");
    assert_eq!(http.response().body.len(), 20_000);
    let switched = http.response();
    // RFC 6455, 1.3
    let accept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
    assert_eq!((switched.status, switched.header("sec-websocket-accept")), (101, accept));
    http.finish_sending();
    assert_eq!(http.rest(), b"\x81\x05hello");
}

/// A client that reads slowly receives a large answer completely. A client that doesn't read at all is disconnected.
#[test]
fn slow_readers_are_served_and_clients_that_do_not_read_are_disconnected() {
    let time = Duration::from_millis(500);
    let server = Server::start(1, |options| {
        with_pages(options);
        options.limits.idle_timeout = time;
        options.limits.close_timeout = time;
    });
    for connection in ["keep-alive", "close"] {
        let request = request("GET", "/huge", &format!("Connection: {connection}\r\n"));
        let [mut dead, mut slow] = [server.http(), server.http()];
        dead.send(&request);
        slow.send(&request);
        slow.read_slowly(32 << 20, time / 50, time);
        drop(slow);
        server.until_metric("connections", |connections| connections == 0);
        drop(dead);
    }
}
