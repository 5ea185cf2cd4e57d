//! Which pages may connect, over real sockets: the same list for handshakes and for feeds.

use crate::harness::Server;
use stentor_edge::{Hosts, Origins};

/// The statuses of a handshake and of a request for a feed.
fn statuses(server: &Server, host: &str, origin: &[u8]) -> [u16; 2] {
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    [("/ws", upgrade), ("/feed/k", "")].map(|(target, headers)| {
        let mut request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{headers}Origin: ").into_bytes();
        request.extend_from_slice(origin);
        request.extend_from_slice(b"\r\n\r\n");
        server.ask(request).status
    })
}

#[test]
fn origins() {
    let check = |list: &[&str], host: &str, origin: &[u8], allowed: bool| {
        let server = Server::start(1, |options| options.origins = Origins::parse(list).unwrap());
        server.document("k", "1");
        let expect = if allowed { [101, 200] } else { [403, 403] };
        assert_eq!(
            statuses(&server, host, origin),
            expect,
            "{list:?} {host} {}",
            String::from_utf8_lossy(origin)
        );
        assert_eq!(server.metric("origins_refused"), if allowed { 0 } else { 2 });
        server.check_serves();
    };
    check(&[], "a.test", b"http://a.test", true);
    check(&[], "a.test:8000", b"http://a.test:8000", true);
    check(&[], "a.test:8000", b"http://a.test", false);
    check(&[], "a.test", b"http://b.test", false);
    check(&[], "a.test", b"null", false);
    check(&[], "a.test", b"", false);
    check(&[], "a.test", b"\xff", false);
    check(&[], "", b"http://", false);
    check(&["*"], "a.test", b"null", true);
    check(&["*"], "a.test", b"https://anybody.test", true);
    let list: &[&str] = &["https://*.example.com", "http://local.test:3000"];
    check(list, "a.test", b"https://www.example.com", true);
    check(list, "a.test", b"https://a.b.example.com", true);
    check(list, "a.test", b"https://example.com", false);
    check(list, "a.test", b"http://www.example.com", false);
    check(list, "a.test", b"https://evilexample.com", false);
    check(list, "a.test", b"https://www.example.com.evil.test", false);
    check(list, "a.test", b"http://local.test:3000", true);
    check(list, "a.test", b"http://local.test:3001", false);
    // The list adds to the server's own.
    check(list, "a.test", b"http://a.test", true);
}

#[test]
fn a_host_that_is_not_listed_is_misdirected() {
    let server = Server::start(1, |options| options.hosts = Hosts::parse(&["a.test"]).unwrap());
    server.document("k", "1");
    assert_eq!(statuses(&server, "a.test", b"http://a.test"), [101, 200]);
    assert_eq!(statuses(&server, "a.test:8000", b"http://a.test:8000"), [101, 200]);
    // DNS rebinding: a page's own name resolves to this server, so Origin and Host agree.
    assert_eq!(statuses(&server, "evil.test", b"http://evil.test"), [421, 421]);
    for target in ["/", "/socket.io/?EIO=4&transport=polling", "/sse/k", "/sockjs/info", "/stentor.js"] {
        let answer = server.ask(format!("GET {target} HTTP/1.1\r\nHost: evil.test\r\n\r\n"));
        assert_eq!((answer.status, answer.header("connection")), (421, "close"), "{target}");
    }
    // Requests may name the host in their first line, which counts more than Host.
    assert_eq!(server.ask("GET http://evil.test/feed/k HTTP/1.1\r\nHost: a.test\r\n\r\n").status, 421);
    // Without any name.
    assert_eq!(server.ask("GET /feed/k HTTP/1.0\r\n\r\n").status, 421);
    // A load balancer knows the address only.
    assert_eq!(server.ask("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").status, 200);
}

#[test]
fn routes_without_secrets_ask_for_no_origin() {
    let server = Server::start(1, |_| {});
    let answer = server.ask("GET /healthz HTTP/1.1\r\nHost: a\r\nOrigin: http://evil.test\r\n\r\n");
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, ""));
}

#[test]
fn scripts_for_pages_of_other_origins() {
    // JSONP, by its protocols; scripts are loaded without an Origin.
    let targets = ["/engine.io/?EIO=3&transport=polling&j=0", "/sockjs/0/x/jsonp?c=cb"];
    let check = |list: &[&str], headers: &str, allowed: bool| {
        let server = Server::start(1, |options| options.origins = Origins::parse(list).unwrap());
        for target in targets {
            let mut http = server.http();
            http.send(format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n{headers}\r\n"));
            assert_eq!(
                http.response().status,
                if allowed { 200 } else { 403 },
                "{list:?} {target} {headers}"
            );
        }
    };
    let script =
        |site: &str, referer: &str| format!("Sec-Fetch-Dest: script\r\nSec-Fetch-Site: {site}\r\n{referer}");
    let from = "Referer: https://www.example.com/page?x=://evil.test/\r\n";
    check(&[], "", true);
    check(&[], from, true);
    check(&[], &script("same-origin", ""), true);
    check(&[], &script("none", ""), true);
    check(&[], &script("cross-site", ""), false);
    check(&[], &script("cross-site", from), false);
    check(&[], &script("same-site", from), false);
    check(&["https://*.example.com"], &script("cross-site", from), true);
    check(&["https://*.example.com"], &script("cross-site", "Referer: https://www.example.com\r\n"), true);
    check(
        &["https://*.example.com"],
        &script("cross-site", "Referer: https://evil.test/.example.com/\r\n"),
        false,
    );
    check(&["https://*.example.com"], &script("cross-site", "Referer: x\r\n"), false);
    check(&["https://*.example.com"], &script("cross-site", ""), false);
    check(&["*"], &script("cross-site", ""), true);
}
