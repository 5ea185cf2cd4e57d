//! Which pages may connect, over real sockets: the same list for handshakes and for feeds.

#![allow(clippy::unwrap_used)] // Tests may panic; clippy knows only functions marked as such.

mod harness;

use harness::Server;
use stentor_edge::Origins;

/// The statuses of a handshake and of a request for a feed.
fn statuses(server: &Server, host: &str, origin: &[u8]) -> [u16; 2] {
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    [("/ws", upgrade), ("/feed/k", "")].map(|(target, headers)| {
        let mut request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{headers}Origin: ").into_bytes();
        request.extend_from_slice(origin);
        request.extend_from_slice(b"\r\n\r\n");
        let mut http = server.http();
        http.send(request);
        http.response().status
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
fn routes_without_secrets_ask_for_no_origin() {
    let server = Server::start(1, |_| {});
    let mut http = server.http();
    http.send("GET /healthz HTTP/1.1\r\nHost: a\r\nOrigin: http://evil.test\r\n\r\n");
    let answer = http.response();
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
