//! HTTP through proxies, caches and browsers that change and interpret it.

use crate::harness::{HOUR, Http, Response, Server, UPGRADE, now, on_one_and_three, pass};
use std::time::{Duration, SystemTime};
use stentor_edge::{Hosts, Options, Origins};
use stentor_hub::FeedState;
use stentor_ports::{Drain, NewConnections};

const SECOND: Duration = Duration::from_secs(1);
const GOOD: &str = "http://good.test";

/// A server with one allowed origin.
fn start(cores: usize, set: impl FnOnce(&mut Options)) -> Server {
    Server::start(cores, |options| {
        options.origins = Origins::parse(&[GOOD]).unwrap();
        set(options);
    })
}

/// A request of a page of an allowed origin, with more headers.
fn request(method: &str, target: &str, headers: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: a.test\r\nOrigin: {GOOD}\r\n{headers}\r\n")
}

fn get(server: &Server, target: &str, headers: &str) -> Response {
    server.ask(request("GET", target, headers))
}

/// Headers of a browser's `EventSource`.
const EVENT_SOURCE: &str = "User-Agent: Mozilla/5.0 (X11) Firefox/140.0\r\nAccept: text/event-stream\r\n";

fn events(server: &Server, target: &str, headers: &str) -> Http {
    let mut http = server.http();
    http.send(request("GET", target, headers));
    http.stream_head();
    assert!(http.next_chunk().starts_with("retry: "));
    http
}

#[test]
fn a_prefix_that_a_proxy_keeps() {
    for cores in [1, 3] {
        let server = start(cores, |options| {
            options.base_path = "/rt".to_owned();
            options.engine.cookie = Some("io".into());
            options.sockjs[0].jsessionid = true;
        });
        server.document("k", "1");
        for (target, headers, status) in [
            ("/rt/feed/k", "", 200),
            ("/rt/sockjs/info", "", 200),
            ("/rt/primus/spec", "", 200),
            ("/rt/ws", UPGRADE, 101),
            ("/rt/ws/k", UPGRADE, 101),
            ("/rt/primus/", UPGRADE, 101),
            ("/rt/sockjs/websocket", UPGRADE, 101),
            // A plain WebSocket at the root of the server.
            ("/rt", UPGRADE, 101),
            ("/rt/", UPGRADE, 101),
            ("/rt/healthz", "", 200),
            ("/rt/readyz", "", 200),
            ("/healthz", "", 200),
            ("/readyz", "", 200),
            ("/feed/k", "", 404),
            ("/sse/k", "", 404),
            ("/", UPGRADE, 404),
            ("/ws", UPGRADE, 404),
            ("/socket.io/?EIO=4&transport=polling", "", 404),
            ("/rtx/feed/k", "", 404),
            ("/RT/feed/k", "", 404),
            ("/%72t/feed/k", "", 404),
            ("//rt/feed/k", "", 404),
            ("/rt/rt/feed/k", "", 404),
            ("/rt//feed/k", "", 404),
        ] {
            assert_eq!(server.request("GET", target, headers).status, status, "{target} {headers}");
        }
        assert_eq!(
            server.get("/ws").text(),
            "all paths of this server begin with /rt/ ([server] base_path)\n"
        );
        events(&server, "/rt/sse/k", "");
        let open = server.get("/rt/socket.io/?EIO=4&transport=polling");
        let cookie = open.header("set-cookie");
        assert!(cookie.ends_with("; Path=/rt; HttpOnly; SameSite=Lax"), "{cookie}");
        let sid = open.text().split('"').nth(3).unwrap().to_owned();
        let target = format!("/rt/socket.io/?EIO=4&transport=polling&sid={sid}");
        let post = server.ask(request("POST", &target, "Content-Length: 2\r\n") + "40");
        assert_eq!((post.status, post.text()), (200, "ok"));
        let session = server.request("POST", "/rt/sockjs/0/a/xhr", "Content-Length: 0\r\n");
        assert_eq!((session.status, session.header("set-cookie")), (200, "JSESSIONID=dummy; path=/rt"));
    }
}

#[test]
fn every_answer_has_the_date() {
    let server = start(1, |_| {});
    server.document("k", "1");
    let requests = [
        "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /feed/k HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS /sse/k HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /socket.io/?EIO=4&transport=polling HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /sockjs/info HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /sockjs/0/session/xhr HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        "GET /primus/spec HTTP/1.1\r\nHost: a\r\n\r\n",
        "nonsense\r\n\r\n",
    ];
    let dates = || {
        let date = |what: &str, response: &Response| {
            let date = httpdate::parse_http_date(response.header("date"));
            date.unwrap_or_else(|error| panic!("{what}: {error}"))
        };
        let mut stream = server.http();
        stream.send("GET /sse/k HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut dates = vec![date("a stream", &stream.stream_head())];
        dates.extend(requests.map(|request| date(request, &server.ask(request))));
        dates
    };
    // The dates of one round are equal, or differ by one second if a new second begins during the round.
    let is_about = |date: SystemTime, expect: SystemTime| {
        let late = date.duration_since(expect).unwrap_or_else(|early| early.duration());
        assert!(late <= SECOND, "{date:?} is not about {expect:?}");
    };
    let before = dates();
    before.iter().for_each(|date| is_about(*date, before[0]));
    pass(SECOND * 3600);
    dates().into_iter().for_each(|date| is_about(date, before[0] + SECOND * 3600));
}

/// Sends an invalid request. Pages of its origin may read the error, and pages of other origins may not.
fn check_error(server: &Server, status: u16, request: String) {
    let readable = server.ask(&request);
    let seen = (readable.status, readable.header("access-control-allow-origin"));
    assert_eq!(seen, (status, GOOD), "{request}");
    assert!(readable.header("vary").contains("Origin"), "{request}");
    let other = server.ask(request.replace(GOOD, "http://evil.test"));
    assert_eq!(other.header("access-control-allow-origin"), "", "{request}");
}

/// A page learns the status and `Retry-After` of an error only if the response allows its origin.
#[test]
fn pages_of_allowed_origins_can_read_errors() {
    let server = start(1, |options| {
        options.limits.body_bytes_max = 100;
        options.limits.header_bytes_max = 1000;
        options.limits.header_timeout = SECOND;
        options.limits.request_timeout = SECOND;
    });
    server.state("gone", FeedState::NotFound, "404");
    let long = "x".repeat(1000);
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\n";
    for (status, request) in [
        (404, request("GET", "/nothing", "")),
        (405, request("POST", "/healthz", "")),
        (400, request("GET", "/feed/a%2fb", "")),
        (404, request("GET", "/feed/gone", "")),
        (504, request("GET", "/feed/never", "")),
        (400, request("GET", "/sse", "")),
        (400, request("GET", "/healthz", upgrade)),
        (400, request("GET", "/socket.io/1/", "")),
        (413, request("POST", "/nothing", "Content-Length: 101\r\n")),
        (431, request("GET", "/nothing", &format!("X: {long}\r\n"))),
        (400, request("GET", "/nothing", "no colon\r\n")),
        (505, request("GET", "/nothing", "").replace("HTTP/1.1", "HTTP/2.0")),
        // The rest of the request never arrives.
        (408, format!("GET /nothing HTTP/1.1\r\nHost: a.test\r\nOrigin: {GOOD}\r\nX: ")),
    ] {
        check_error(&server, status, request);
    }
    // The server answers before it has read the `Origin` header, which follows a URL that is too long.
    let mut http = server.http();
    http.send(format!("GET /{long}"));
    let answer = http.response();
    let readable = ["access-control-allow-origin", "access-control-allow-credentials"];
    assert_eq!((answer.status, readable.map(|name| answer.header(name))), (414, ["*", ""]));
    let _session = server.client();
    let (window, timeout) = (SECOND * 60, HOUR);
    server.plane().drain(Drain {
        delay: Duration::ZERO,
        window,
        timeout,
        new_connections: NewConnections::Accepted,
    });
    server.until_metric("drain_sessions_pending", |pending| pending == 1);
    for target in ["/socket.io/?EIO=4&transport=polling", "/sse/k"] {
        check_error(&server, 503, request("GET", target, ""));
    }
    let posted = server.ask(request("POST", "/sse", "Content-Length: 2\r\n") + "{}");
    assert_eq!((posted.status, posted.header("retry-after")), (503, "1"));
}

#[test]
fn pages_can_read_that_the_server_has_another_name() {
    let server = start(1, |options| options.hosts = Hosts::parse(&["a.test"]).unwrap());
    check_error(&server, 421, request("GET", "/nothing", "").replace("a.test", "b.test"));
}

#[test]
fn pages_can_read_that_their_address_is_above_its_limit() {
    let server = start(1, |options| {
        options.address_limits.sessions_per_second = 1;
    });
    let target = "/socket.io/?EIO=4&transport=polling";
    let refused = (0..100).map(|_| get(&server, target, "")).find(|answer| answer.status == 429).unwrap();
    assert_eq!(refused.header("access-control-allow-origin"), GOOD);
    assert_ne!(refused.header("retry-after"), "");
}

/// A URL is limited only by the size of the headers: 200 feeds, or a token of 8,192 bytes.
#[test]
fn long_addresses() {
    let server = start(1, |options| options.limits.subscriptions_max = 1000);
    let feeds: String = (0..200).map(|n| format!("feed=matches/{n:030}&")).collect();
    let stream = events(&server, &format!("/sse?{feeds}"), "");
    server.wait_wanted(&format!("matches/{:030}", 199), true);
    drop(stream);
    let token = "t".repeat(8192);
    assert_eq!(get(&server, &format!("/healthz?token={token}"), "").status, 200);
    assert_eq!(get(&server, &format!("/healthz?token={}", token.repeat(2)), "").status, 414);
}

/// A chain of proxies adds headers: Node allows 2,000, nginx counts bytes only, Apache allows 100.
#[test]
fn a_hundred_headers() {
    let server = start(1, |_| {});
    let status = |headers: usize| get(&server, "/healthz", &"X-Hop: 1\r\n".repeat(headers)).status;
    assert_eq!((status(98), status(99)), (200, 431));
}

/// Apache and others append the coding to entity tags, nginx makes them weak, Envoy removes them.
#[test]
fn entity_tags_survive_proxies_that_compress() {
    on_one_and_three(|cores| {
        let server = start(cores, |options| options.limits.request_timeout = SECOND);
        server.document("k", "1");
        let first = get(&server, "/feed/k", "");
        let tag = first.header("etag").to_owned();
        assert_eq!(first.header("stentor-version"), tag);
        let bare = tag.trim_matches('"');
        for seen in
            [tag.clone(), format!("\"{bare}-gzip\""), format!("W/\"{bare};gzip\""), format!("\"{bare}-br\"")]
        {
            let answer = get(&server, "/feed/k", &format!("If-None-Match: {seen}\r\n"));
            assert_eq!((answer.status, answer.header("etag")), (304, &*tag), "{seen}");
            // A waiting client isn't answered before there is another version.
            let begun = now();
            let waited = get(&server, &format!("/feed/k?wait={}", seen.replace('"', "%22")), "");
            assert_eq!((waited.status, waited.text()), (204, ""), "{seen}");
            assert!(now() - begun >= SECOND, "{seen}");
        }
    });
}

/// Status 304 answers only a request's own condition. Varnish removes conditions, and treats an unexpected 304 as an error.
#[test]
fn an_unchanged_document_is_304_only_for_conditional_requests() {
    let server = start(1, |options| options.limits.request_timeout = SECOND);
    server.document("k", "1");
    let tag = get(&server, "/feed/k", "").header("etag").to_owned();
    let target = format!("/feed/k?wait={}", tag.trim_matches('"'));
    let check = |headers: &str, status: u16, cache_control: &str| {
        let answer = get(&server, &target, headers);
        let seen = (answer.status, answer.header("etag"), answer.header("cache-control"), answer.text());
        assert_eq!(seen, (status, &*tag, cache_control, ""), "{headers}");
    };
    // If the client has another version, it is answered at once.
    assert_eq!(get(&server, "/feed/k?wait=other", "").text(), "1");
    check("", 204, "no-store");
    check("If-None-Match: \"1-1\"\r\n", 204, "no-store");
    check(&format!("If-None-Match: {tag}\r\n"), 304, "no-cache");
    check("If-None-Match: *\r\n", 304, "no-cache");
}

/// Compressing proxies buffer data, unless they may not transform the response.
#[test]
fn event_streams_are_not_transformed() {
    let server = start(1, |_| {});
    let mut http = server.http();
    http.send(request("GET", "/sse/k", ""));
    assert_eq!(http.stream_head().header("cache-control"), "no-store, no-transform");
}

#[test]
fn an_empty_last_event_id_is_none() {
    let server = start(1, |_| {});
    server.document("k", "1");
    let mut http = events(&server, "/sse/k", "");
    let first = http.next_chunk();
    let id = first.lines().next().unwrap().trim_start_matches("id: ").to_owned();
    server.state("k", FeedState::Stale, "why");
    for (headers, next) in [
        ("", "event: state"),
        ("Last-Event-ID: \r\n", "event: state"),
        ("Last-Event-ID: k!0!0\r\n", "event: snapshot"),
    ] {
        let mut resumed = events(&server, &format!("/sse/k?lastEventId={id}"), headers);
        let chunk = resumed.next_chunk();
        assert!(chunk.contains(next), "{headers:?}: {chunk}");
    }
}

/// http-proxy and Vite forward only a clean end, so a browser's stream ends with the last chunk. The stream of a
/// program is cut, because r3labs/sse takes the last chunk for the end of the feed.
#[test]
fn streams_of_browsers_end_with_the_last_chunk() {
    on_one_and_three(|cores| {
        let server = start(cores, |_| {});
        server.document("k", "1");
        let program = "User-Agent: Go-http-client/1.1\r\n";
        let mut streams = Vec::new();
        for (headers, has_last_chunk) in [(EVENT_SOURCE, true), (program, false)] {
            let mut http = events(&server, "/sse/k", headers);
            http.next_chunk();
            streams.extend([(http, has_last_chunk), (events(&server, "/sse/cold", headers), has_last_chunk)]);
        }
        server.drain(HOUR);
        for (mut http, has_last_chunk) in streams {
            assert!(http.next_chunk().starts_with("retry: "));
            if has_last_chunk {
                assert_eq!(http.chunk(), None);
            }
            http.expect_end();
        }
        server.join();
    });
}

/// The milliseconds of a line with `retry`.
fn retry_of(line: &str) -> u64 {
    let digits = line.strip_prefix("retry: ").and_then(|rest| rest.strip_suffix('\n'));
    digits.unwrap_or_else(|| panic!("{line:?}")).parse().unwrap()
}

/// A browser's `EventSource` reconnects only after status 200. So while the node drains, an `EventSource` receives
/// status 200 and a `retry` that lasts until the next process listens. All other clients receive 503.
#[test]
fn event_sources_reconnect_after_a_drain() {
    on_one_and_three(|cores| {
        let server = start(cores, |options| options.address_limits.sessions_per_second = 1);
        let window = Duration::from_secs(10);
        let stream = |n: usize| {
            pass(SECOND);
            events(&server, &format!("/sse/{n}"), EVENT_SOURCE)
        };
        let streams: Vec<Http> = (0..8).map(stream).collect();
        let begun = now();
        server.plane().drain(Drain {
            delay: Duration::ZERO,
            window,
            timeout: window,
            new_connections: NewConnections::Accepted,
        });
        server.until_metric("drain_sessions_pending", |pending| pending == 8);
        for _ in 0..20 {
            let left = || (window - (now() - begun)).as_millis() as u64;
            let before = left();
            let mut returned = server.http();
            returned.send(request("GET", "/sse/k", EVENT_SOURCE));
            returned.stream_head();
            let retry = retry_of(&returned.next_chunk());
            let most = before + 2500;
            assert!((left() + 1500..=most).contains(&retry), "{retry}, at most {most}");
            assert_eq!(returned.chunk(), None);
            returned.expect_end();
        }
        assert_eq!(server.metric("sessions"), 8);
        for headers in ["", "Accept: text/event-stream\r\n", "User-Agent: Mozilla/5.0\r\nAccept: */*\r\n"] {
            let refused = get(&server, "/sse/k", headers);
            assert_eq!((refused.status, refused.header("retry-after")), (503, "1"), "{headers}");
        }
        for mut stream in streams {
            let retry = retry_of(&stream.next_chunk());
            assert_eq!(stream.chunk(), None);
            // The streams end late in the window, so that clients are disconnected for a short time, until the window is over.
            let ended = now() - begun;
            assert!(ended >= window - SECOND, "ended after {ended:?}");
            assert!((1500..=3500).contains(&retry), "{retry}");
        }
    });
}
