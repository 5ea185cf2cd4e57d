//! Origins of pages: one list applies to all routes that have secrets.

use crate::harness::{Io, Response, Server, UPGRADE, Way};
use stentor_edge::{ForwardedHeader, Hosts, Origins};
use stentor_hub::FeedState;
use stentor_ports::Networks;

/// The answers to a handshake and to a request for a feed.
fn answers(server: &Server, host: &str, origin: &[u8]) -> [Response; 2] {
    [("/ws", UPGRADE), ("/feed/k", "")].map(|(target, headers)| {
        let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{headers}Origin: ");
        server.ask([head.as_bytes(), origin, b"\r\n\r\n"].concat())
    })
}

fn statuses(server: &Server, host: &str, origin: &[u8]) -> [u16; 2] {
    answers(server, host, origin).map(|answer| answer.status)
}

fn with(origins: &[&str]) -> Server {
    let server = Server::start(1, |options| options.origins = Origins::parse(origins).unwrap());
    server.document("k", "1");
    server
}

/// The tests of `Origins` cover the rules in detail.
#[test]
fn origins() {
    let listed: &[&str] = &["https://*.example.com", "http://local.test:3000"];
    for (list, host, origin, allowed) in [
        (&[][..], "a.test:8000", &b"http://a.test:8000"[..], true),
        (&[], "a.test:8000", b"http://a.test", false),
        (&[], "a.test", b"", false),
        (&[], "a.test", b"\xff", false),
        (&[], "", b"http://", false),
        (&[], "a.test", b"https://www.example.com\xc3\xa9", false),
        (&["*"], "a.test", b"null", true),
        (listed, "a.test", b"https://a.b.example.com", true),
        (listed, "a.test", b"https://example.com", false),
        (listed, "a.test", b"http://local.test:3001", false),
        // The list is in addition to the server's own origin.
        (listed, "a.test", b"http://a.test", true),
    ] {
        let server = with(list);
        let expect = if allowed { [101, 200] } else { [403, 403] };
        let [upgrade, feed] = answers(&server, host, origin);
        let origin = String::from_utf8_lossy(origin);
        let name = format!("{list:?} {host} {origin}");
        assert_eq!([upgrade.status, feed.status], expect, "{name}");
        // Without these headers, a page couldn't read the answer.
        let readable_by = if !allowed {
            ""
        } else if list == ["*"] {
            "*"
        } else {
            &*origin
        };
        assert_eq!(feed.header("access-control-allow-origin"), readable_by, "{name}");
        let exposed = ["", "ETag, Retry-After, Stentor-Version, WWW-Authenticate"][usize::from(allowed)];
        assert_eq!(feed.header("access-control-expose-headers"), exposed, "{name}");
        assert_eq!(feed.header("vary"), "Origin", "{name}");
        assert_eq!(server.metric("origins_refused"), if allowed { 0 } else { 2 }, "{name}");
        server.check_serves();
    }
}

#[test]
fn a_request_without_an_origin_is_not_from_a_page() {
    let answer = with(&[]).http().get("/feed/k");
    let headers = ["access-control-allow-origin", "access-control-expose-headers", "vary"];
    assert_eq!((answer.status, headers.map(|name| answer.header(name))), (200, ["", "", "Origin"]));
}

/// CVE-2020-28481, CVE-2019-13611: foreign origins are refused by default. WS-2020-0443, CVE-2022-42975: origins are
/// compared by label.
#[test]
fn every_route_refuses_foreign_origins() {
    for cores in [1, 3] {
        for (list, origins) in [
            (&[][..], &["http://evil.test", "null"][..]),
            (
                &["https://*.example.com"],
                &[
                    "https://evilexample.com",
                    "https://example.com`.evil.test",
                    "https://evil.test$.example.com",
                    "https://evil.test/.example.com",
                    "https://evil.test?.example.com",
                    "https://evil.test#.example.com",
                    "https://evil.test\\.example.com",
                    "https://user@www.example.com",
                    "https://evil.test https://www.example.com",
                    "null",
                ],
            ),
        ] {
            let server = Server::quiet(cores, stentor_edge::App::Echo, |options| {
                options.origins = Origins::parse(list).unwrap();
            });
            server.document("k", "1");
            let mut io = Io::engine(&server, Way::Polling);
            let body = "Content-Length: 0\r\n";
            let mut requests = vec![
                ("GET", "/feed/k".to_owned(), ""),
                ("GET", "/sse/k".to_owned(), ""),
                ("GET", "/ws".to_owned(), UPGRADE),
                ("GET", "/primus/".to_owned(), UPGRADE),
                ("GET", io.target("polling"), ""),
                ("GET", io.target("websocket"), UPGRADE),
                ("OPTIONS", io.target("polling"), ""),
                ("GET", "/ndjson".to_owned(), ""),
                // Transports can't read this refusal, and retry. Pages can read that of `POST /sse`, which is
                // tested below.
                ("POST", "/ndjson".to_owned(), "Content-Length: 0\r\n"),
            ];
            for path in ["", "/info", "/0/x/eventsource", "/0/x/xhr", "/websocket"] {
                requests.push(("GET", format!("/sockjs{path}"), ""));
            }
            for (path, version) in
                ["engine", "socket"].iter().flat_map(|path| [3, 4].map(|version| (path, version)))
            {
                let target = |transport| format!("/{path}.io/?EIO={version}&transport={transport}");
                requests.push(("GET", target("polling"), ""));
                requests.push(("OPTIONS", target("polling"), ""));
                requests.push(("GET", target("websocket"), UPGRADE));
            }
            for origin in origins {
                let from = format!("Origin: {origin}\r\nCookie: io=1; session=2\r\n");
                for (method, target, headers) in &requests {
                    let answer = server.request(method, target, &format!("{headers}{from}"));
                    let seen = (answer.status, answer.header("access-control-allow-origin"));
                    assert_eq!(seen, (403, ""), "{method} {target} from {origin}");
                }
                let post = server.request("POST", &io.target("polling"), &format!("{body}{from}"));
                assert_eq!(post.status, 403, "a POST from {origin}");
                // With this request, a page asks why it can't connect.
                let asked = server.request("POST", "/sse", &format!("{body}{from}"));
                let seen = (asked.status, asked.header("access-control-allow-origin"));
                assert_eq!(seen, (403, *origin), "the question from {origin}");
            }
            io.echoes("4untouched");
            io.leave();
            server.check_serves();
            server.check_empty();
        }
    }
    // Pages of the server's own origin may connect.
    let server = with(&[]);
    let own = "Origin: http://a.test\r\n";
    let open = server.request("GET", "/engine.io/?EIO=4&transport=polling", own);
    assert_eq!(open.status, 200);
    let info = server.request("GET", "/sockjs/info", own);
    assert_eq!(info.header("access-control-allow-origin"), "http://a.test");
}

#[test]
fn a_host_that_is_not_listed_is_misdirected() {
    let server = Server::start(1, |options| options.hosts = Hosts::parse(&["a.test"]).unwrap());
    server.document("k", "1");
    for (host, expect) in [
        ("a.test", [101, 200]),
        ("a.test:8000", [101, 200]),
        // DNS rebinding: a page's own name resolves to this server, so Origin and Host agree.
        ("evil.test", [421, 421]),
    ] {
        assert_eq!(statuses(&server, host, format!("http://{host}").as_bytes()), expect, "{host}");
    }
    for target in ["/", "/socket.io/?EIO=4&transport=polling", "/sse/k", "/sockjs/info", "/stentor.js"] {
        let answer = server.ask(format!("GET {target} HTTP/1.1\r\nHost: evil.test\r\n\r\n"));
        assert_eq!((answer.status, answer.header("connection")), (421, "close"), "{target}");
    }
    // The host in the first line of a request takes precedence over `Host`.
    assert_eq!(server.get("http://evil.test/feed/k").status, 421);
    // The request has no host at all.
    assert_eq!(server.ask("GET /feed/k HTTP/1.0\r\n\r\n").status, 421);
    // A load balancer uses the IP address as host.
    assert_eq!(server.ask("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").status, 200);
}

/// Proxies such as Apache send their own address as `Host`, and state the client's host in a header of their own.
#[test]
fn a_trusted_proxy_states_the_host() {
    const X: &str = "X-Forwarded-Host: a.test:8443, inner.test\r\n";
    const RFC: &str = "Forwarded: for=192.0.2.1;host=\"a.test:8443\"\r\n";
    let [own, foreign] = ["a.test:8443", "evil.test"];
    for (header, trusted, stated, origin, expect) in [
        (ForwardedHeader::XForwardedFor, "127.0.0.0/8", X, own, [101, 200]),
        (ForwardedHeader::XForwardedFor, "127.0.0.0/8", X, foreign, [403, 403]),
        // A page of the proxy's inner name isn't the server's own.
        (ForwardedHeader::XForwardedFor, "127.0.0.0/8", X, "inner.test", [403, 403]),
        (
            ForwardedHeader::XForwardedFor,
            "127.0.0.0/8",
            "X-Forwarded-Host: evil.test, a.test\r\n",
            foreign,
            [421, 421],
        ),
        (ForwardedHeader::XForwardedFor, "127.0.0.0/8", RFC, own, [421, 421]),
        (ForwardedHeader::XForwardedFor, "10.0.0.0/8", X, own, [421, 421]),
        (ForwardedHeader::Forwarded, "127.0.0.0/8", RFC, own, [101, 200]),
        (ForwardedHeader::Forwarded, "127.0.0.0/8", RFC, foreign, [403, 403]),
        (ForwardedHeader::Forwarded, "127.0.0.0/8", X, own, [421, 421]),
        (ForwardedHeader::Forwarded, "10.0.0.0/8", RFC, own, [421, 421]),
    ] {
        let server = Server::start(1, |options| {
            options.hosts = Hosts::parse(&["a.test"]).unwrap();
            options.proxies.trusted = Networks::parse(&[trusted]).unwrap();
            options.proxies.header = header.clone();
        });
        server.document("k", "1");
        let seen = [("/ws", UPGRADE), ("/feed/k", "")].map(|(target, headers)| {
            let from = format!("Origin: http://{origin}\r\n");
            let head = format!("GET {target} HTTP/1.1\r\nHost: 10.0.0.5:8000\r\n{headers}{stated}{from}\r\n");
            server.ask(head).status
        });
        assert_eq!(seen, expect, "{header:?} {trusted} {stated} {origin}");
    }
}

#[test]
fn routes_without_secrets_ask_for_no_origin() {
    let answer = with(&[]).request("GET", "/healthz", "Origin: http://evil.test\r\n");
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, ""));
}

/// With `*`, every page could act as the user whose cookies its requests carry.
#[test]
fn only_pages_of_listed_origins_send_cookies() {
    const GOOD: &str = "http://good.test";
    for (list, origin, is_listed) in [
        (&[GOOD][..], GOOD, true),
        (&["http://*.good.test"], "http://www.good.test", true),
        (&["*"], GOOD, false),
        (&["*", GOOD], GOOD, true),
        (&["*", GOOD], "http://other.test", false),
    ] {
        let server = with(list);
        server.document("k", "1");
        server.state("gone", FeedState::NotFound, "404");
        for (method, target) in [
            ("GET", "/feed/k"),
            ("OPTIONS", "/feed/k"),
            ("GET", "/feed/gone"),
            ("GET", "/sse"),
            ("OPTIONS", "/sse"),
            ("POST", "/sse"),
            ("GET", "/primus/spec"),
            ("GET", "/engine.io/?EIO=4&transport=polling"),
            ("OPTIONS", "/engine.io/?EIO=4&transport=polling"),
            ("GET", "/nothing"),
        ] {
            let answer = server.request(method, target, &format!("Origin: {origin}\r\n"));
            let seen =
                ["origin", "credentials"].map(|name| answer.header(&format!("access-control-allow-{name}")));
            let expect = if is_listed { [origin, "true"] } else { ["*", ""] };
            assert_eq!(seen, expect, "{method} {target} from {origin}, allowed are {list:?}");
        }
    }
}

/// JSONP of each protocol. Scripts are loaded without an Origin.
#[test]
fn scripts_for_pages_of_other_origins() {
    const PAGE: &str = "https://www.example.com/page?x=://evil.test/";
    let listed: &[&str] = &["https://*.example.com"];
    for (list, site, referer, allowed) in [
        (&[][..], "", "", true),
        (&[], "", PAGE, true),
        (&[], "same-origin", "", true),
        (&[], "none", "", true),
        (&[], "cross-site", "", false),
        (&[], "cross-site", PAGE, false),
        (&[], "same-site", PAGE, false),
        (listed, "cross-site", PAGE, true),
        (listed, "cross-site", "https://www.example.com", true),
        (listed, "cross-site", "https://evil.test/.example.com/", false),
        (listed, "cross-site", "x", false),
        (listed, "cross-site", "", false),
        (&["*"], "cross-site", "", true),
    ] {
        let server = with(list);
        let mut headers = String::new();
        if !site.is_empty() {
            headers += &format!("Sec-Fetch-Dest: script\r\nSec-Fetch-Site: {site}\r\n");
        }
        if !referer.is_empty() {
            headers += &format!("Referer: {referer}\r\n");
        }
        for target in ["/engine.io/?EIO=3&transport=polling&j=0", "/sockjs/0/x/jsonp?c=cb"] {
            let status = server.request("GET", target, &headers).status;
            assert_eq!(status, if allowed { 200 } else { 403 }, "{list:?} {target} {headers}");
        }
    }
}
