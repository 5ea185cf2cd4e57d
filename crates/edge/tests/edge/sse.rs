//! Server-Sent Events.

use crate::harness::{Http, Server, on_one_and_three, pass, request, takes};
use std::time::Duration;
use stentor_edge::Origins;
use stentor_hub::{Document, FeedState};
use stentor_ports::FeedUpdate;

/// Size of the first line of a stream, with four digits of milliseconds.
const RETRY_BYTES: usize = "retry: 3000\n".len();

/// The start of a stream: `retry`, about 3 s. It is a line of the first event's block, because clients such as
/// httpx-sse and r3labs/sse deliver a block that contains nothing else.
fn check_retry(text: &str) {
    let ms = text.strip_prefix("retry: ").and_then(|rest| rest.strip_suffix("\n")).map(str::parse);
    assert!(matches!(ms, Some(Ok(1500..4500))), "{text:?}");
}

/// Opens a stream, and reads its beginning.
fn stream(server: &Server, target: &str, headers: &str) -> Http {
    let mut http = server.http();
    http.send(request("GET", target, headers));
    assert_eq!(http.stream_head().header("content-type"), "text/event-stream");
    check_retry(&http.next_chunk());
    http
}

/// The id and the rest of an event.
fn event(text: &str) -> (&str, &str) {
    let (id, rest) =
        text.strip_prefix("id: ").unwrap_or_else(|| panic!("no id: {text}")).split_once('\n').unwrap();
    (id, rest)
}

#[test]
fn one_feed() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut cold = stream(&server, "/sse/a/b", "");
        server.wait_wanted("a/b", true);
        server.document("a/b", "{\"n\":1}");
        let first = cold.next_chunk();
        let (id, rest) = event(&first);
        assert_eq!(rest, "event: snapshot\ndata: {\"n\":1}\n\n");
        assert!(id.starts_with("a/b!") && id.ends_with("!1"), "{id}");
        // A client that subscribes later (`warm`) receives the same bytes as the first one (`cold`).
        let mut warm = stream(&server, "/sse?feed=a/b", "");
        assert_eq!(warm.next_chunk(), first);
        server.document("a/b", "2");
        let second = cold.next_chunk();
        assert_eq!(warm.next_chunk(), second);
        let (newest, rest) = event(&second);
        assert_eq!(rest, "event: snapshot\ndata: 2\n\n");
        server.state("a/b", FeedState::Stale, "500");
        let stale = "event: state\ndata: {\"feed\":\"a/b\",\"state\":\"stale\",\"reason\":\"500\"}\n\n";
        assert_eq!((cold.next_chunk(), warm.next_chunk()), (stale.into(), stale.into()));
        // A client with the newest version receives only the feed's state, which it may have missed. A client with an
        // older or invented position receives the document.
        let mut resumed = stream(&server, "/sse/a/b", &format!("Last-Event-ID: {newest}\r\n"));
        assert_eq!(resumed.next_chunk(), stale);
        for old in [id, "a/b!0!2", "", "a/b!1", "b!1!1", "\u{e9}", "a/b!ffffffffff!1"] {
            let mut resumed = stream(&server, "/sse/a/b", &format!("Last-Event-ID: {old}\r\n"));
            assert_eq!(event(&resumed.next_chunk()).1, "event: snapshot\ndata: 2\n\n", "{old:?}");
            assert_eq!(resumed.next_chunk(), stale);
        }
        drop((cold, warm, resumed));
        server.wait_wanted("a/b", false);
        server.update("a/b", FeedUpdate::Forget);
        server.check_empty();
    });
}

#[test]
fn several_feeds_share_their_events() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        server.document("a", "1");
        server.document("b", "\"x\"");
        let mut http = stream(&server, "/sse?feed=b&resourceId=a&feed=b", "");
        let mut last = String::new();
        let mut seen = Vec::new();
        for _ in 0..2 {
            let line = http.next_chunk();
            let data = http.next_chunk();
            let (id, rest) = event(&line);
            assert_eq!(rest, "");
            seen.push((id.split('!').next().unwrap().to_owned(), data));
            last = id.to_owned();
        }
        seen.sort();
        let expect = [("a", "event: snapshot\ndata: 1\n\n"), ("b", "event: snapshot\ndata: \"x\"\n\n")];
        assert_eq!(seen, expect.map(|(key, data)| (key.to_owned(), data.to_owned())));
        assert_eq!(last.split(';').count(), 2, "{last}");
        // Only the changed feed is sent. Its id names that feed first, and then the other one.
        server.document("a", "2");
        let mut both = || (http.next_chunk(), http.next_chunk());
        assert_eq!(both().1, "event: snapshot\ndata: 2\n\n");
        let mut again = stream(&server, "/sse?feed=a&feed=b", &format!("Last-Event-ID: {last}\r\n"));
        let line = again.next_chunk();
        let (id, _) = event(&line);
        assert!(id.starts_with("a!") && id.contains(";b!"), "{id}");
        assert_eq!(again.next_chunk(), "event: snapshot\ndata: 2\n\n");
        server.document("b", "3");
        assert!(event(&again.next_chunk()).0.starts_with("b!"));
        assert_eq!(again.next_chunk(), "event: snapshot\ndata: 3\n\n");
    });
}

#[test]
fn documents_of_several_lines_and_of_bytes() {
    let server = Server::start(1, |_| {});
    let text = |body: &'static [u8]| {
        FeedUpdate::Changed(
            Document { body: body.into(), json: false, content_type: "text/plain".into() }.into(),
        )
    };
    let mut http = stream(&server, "/sse/k", "");
    server.wait_wanted("k", true);
    for (body, expect) in [
        (&b"one\ntwo\r\nthree\rfour"[..], "snapshot\ndata: one\ndata: two\ndata: three\ndata: four\n\n"),
        (b"", "snapshot\ndata: \n\n"),
        (b"\xff\x00", "snapshot-base64\ndata: /wA=\n\n"),
    ] {
        server.update("k", text(body));
        assert_eq!(event(&http.next_chunk()).1, format!("event: {expect}"));
    }
    // A large document is in a memfd.
    let large = format!("\"{}\"", "x".repeat(100_000));
    server.document("k", &large);
    assert_eq!(event(&http.next_chunk()).1, format!("event: snapshot\ndata: {large}\n\n"));
}

#[test]
fn http_1_0_has_no_chunks() {
    let server = Server::start(1, |_| {});
    server.document("a", "1");
    server.document("b", "2");
    let mut http = server.http();
    http.send("GET /sse/a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(http.endless_head().header("connection"), "close");
    check_retry(&http.next_bytes(RETRY_BYTES));
    assert_eq!(http.next_bytes(6), "id: a!");
    drop(http);
    server.until_metric("sessions", |sessions| sessions == 0);
}

#[test]
fn a_feed_that_is_lost_ends_the_stream_when_it_was_the_last() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut http = stream(&server, "/sse?feed=a&feed=b", "");
        server.wait_wanted("a", true);
        server.wait_wanted("b", true);
        let lost = |key| {
            format!(
                "event: state\ndata: {{\"feed\":\"{key}\",\"state\":\"not_found\",\"reason\":\"404\"}}\n\n"
            )
        };
        server.state("a", FeedState::NotFound, "404");
        assert_eq!(http.next_chunk(), lost("a"));
        server.document("b", "1");
        assert!(event(&http.next_chunk()).0.starts_with("b!"));
        http.next_chunk();
        server.state("b", FeedState::NotFound, "404");
        assert_eq!(http.next_chunk(), "retry: 60000\n");
        assert_eq!(http.next_chunk(), lost("b"));
        assert_eq!(http.chunk(), None);
        // The connection can be used again.
        assert_eq!(http.get("/healthz").status, 200);
        server.until_metric("sessions", |sessions| sessions == 0);
    });
}

#[test]
fn heartbeats_and_the_end_of_a_client() {
    let time = Duration::from_secs(1);
    let server = Server::start(1, |options| options.heartbeat.interval = time);
    let mut http = stream(&server, "/sse/k", "");
    for _ in 0..3 {
        assert_eq!(takes(time, || http.next_chunk()), ": \n");
    }
    http.finish_sending();
    server.until_metric("sessions", |sessions| sessions == 0);
    drop(http);
    server.check_empty();
}

/// Only the newest version is pending at any time. A client that accepts no byte for the time of two heartbeats is disconnected.
#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let server = Server::start(1, |options| options.heartbeat.interval = Duration::from_millis(200));
    let http = stream(&server, "/sse/k", "");
    server.wait_wanted("k", true);
    let mut n = 0;
    while server.metric("sessions") > 0 {
        n += 1;
        server.document("k", &format!("\"{n}{}\"", "x".repeat(500_000)));
        pass(Duration::from_millis(10));
        assert!(server.metric("memory_bytes{frames}") < 16 << 20);
    }
    drop(http);
    server.until_metric("connections", |connections| connections == 0);
    server.check_balance();
}

#[test]
fn invalid_requests_are_refused() {
    let server = Server::start(1, |options| {
        options.origins = Origins::parse(&["http://good.test"]).unwrap();
        options.limits.subscriptions_max = 2;
    });
    for (method, target, headers, expect) in [
        ("GET", "/sse", "", 400),
        ("GET", "/sse/", "", 400),
        ("GET", "/sse?feed=", "", 400),
        ("GET", "/sse/a%2fb", "", 400),
        ("GET", "/sse/../admin", "", 400),
        ("GET", "/sse?feed=..%2fadmin", "", 400),
        ("GET", "/sse?feed=a&feed=b&feed=c", "", 400),
        ("GET", "/sse/k", "Origin: http://evil.test\r\n", 403),
        ("GET", "/sse/k", "Upgrade: websocket\r\nConnection: Upgrade\r\n", 400),
        ("PUT", "/sse/k", "Content-Length: 0\r\n", 405),
    ] {
        assert_eq!(server.request(method, target, headers).status, expect, "{target} {headers}");
    }
    let good = "Origin: http://good.test\r\nAccess-Control-Request-Headers: x\r\n";
    let preflight = server.request("OPTIONS", "/sse/k", good);
    assert_eq!((preflight.status, preflight.header("access-control-allow-headers")), (204, "x"));
    assert_eq!(preflight.header("access-control-allow-methods"), "GET, POST");
    assert_eq!(preflight.header("access-control-max-age"), "7200");
    let mut http = server.http();
    http.send(request("GET", "/sse/k", good));
    let head = http.stream_head();
    assert_eq!(head.header("access-control-allow-origin"), "http://good.test");
    assert_eq!(head.header("access-control-allow-credentials"), "true");
    assert_eq!(head.header("x-accel-buffering"), "no");
    // An id that contains a line break ends the request's header. No part of it is returned.
    let mut http = stream(&server, "/sse/k", "Last-Event-ID: k!1!1;k!1!1\r\nX: y\r\n");
    server.document("k", "1");
    assert!(event(&http.next_chunk()).0.starts_with("k!"));
}

/// A request whose body names feeds.
fn posted(target: &str, headers: &str, body: &str) -> String {
    request("POST", target, &format!("Content-Length: {}\r\n{headers}", body.len())) + body
}

/// Opens a stream of the feeds in a body.
fn posted_stream(server: &Server, target: &str, body: &str) -> Http {
    let mut http = server.http();
    http.send(posted(target, "", body));
    assert_eq!(http.stream_head().header("content-type"), "text/event-stream");
    check_retry(&http.next_chunk());
    http
}

#[test]
fn feeds_and_positions_in_a_body() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        server.document("a/b", "1");
        server.document("c", "1");
        let mut http = posted_stream(&server, "/sse", r#"{"feeds":{"c":null,"a/b":null},"more":1}"#);
        let mut first = [http.next_chunk(), http.next_chunk()];
        first.sort();
        // Each event has the position in its own feed.
        let [a, c] = first.each_ref().map(|text| event(text).0);
        assert!(a.starts_with("a/b!") && a.ends_with("!1") && c.starts_with("c!"), "{first:?}");
        assert!(!first.concat().contains(';'), "{first:?}");
        server.document("c", "2");
        let second = http.next_chunk();
        assert_eq!(event(&second).1, "event: snapshot\ndata: 2\n\n");
        // The client has missed a version of one feed. The URL names another feed.
        server.document("d", "4");
        let mut again =
            posted_stream(&server, "/sse/d", &format!(r#"{{"feeds":{{"a/b":"{a}","c":"{c}"}}}}"#));
        let mut missed = [again.next_chunk(), again.next_chunk()];
        missed.sort();
        assert_eq!(missed[0], second);
        assert!(event(&missed[1]).0.starts_with("d!"), "{missed:?}");
        server.document("a/b", "3");
        assert_eq!(event(&again.next_chunk()).1, "event: snapshot\ndata: 3\n\n");
        // An invalid id and the id of another feed aren't used as positions.
        let mut hinted = posted_stream(&server, "/sse", r#"{"feeds":{"c":"d!1!1","d":"x"}}"#);
        let mut both = [hinted.next_chunk(), hinted.next_chunk()];
        both.sort();
        assert!(both[0].starts_with("id: c!") && both[1].starts_with("id: d!"), "{both:?}");
        drop((http, again, hinted));
        server.until_metric("sessions", |sessions| sessions == 0);
        server.check_balance();
    });
}

#[test]
fn more_feeds_than_an_address_has_room_for() {
    let server = Server::start(1, |_| {});
    let feeds = |count: usize| {
        let members = (0..count).map(|n| format!("\"matches/{n:060}\":\"matches/{n:060}!123456789!1\""));
        format!("{{\"feeds\":{{{}}}}}", members.collect::<Vec<_>>().join(","))
    };
    let mut http = posted_stream(&server, "/sse?delta=1", &feeds(1000));
    let last = format!("matches/{:060}", 999);
    server.wait_wanted(&last, true);
    server.document(&last, "1");
    assert!(event(&http.next_chunk()).0.starts_with(&last));
    let answer = server.ask(posted("/sse", "", &feeds(1001)));
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("limits.subscriptions_max"), "{}", answer.text());
    drop(http);
    server.until_metric("sessions", |sessions| sessions == 0);
    server.check_balance();
}

#[test]
fn bodies_that_are_refused() {
    let server = Server::start(1, |options| {
        options.origins = Origins::parse(&["http://good.test"]).unwrap();
        options.limits.message_bytes_max = 100;
    });
    let long = format!(r#"{{"feeds":{{"{}":null}}}}"#, "x".repeat(100));
    for (body, expect) in [
        // A page asks whether its origin may connect.
        ("", 204),
        ("{", 400),
        ("[]", 400),
        ("null", 400),
        ("{}", 400),
        (r#"{"feeds":null}"#, 400),
        (r#"{"feeds":["a"]}"#, 400),
        (r#"{"feeds":{}}"#, 400),
        (r#"{"feeds":{"a":1}}"#, 400),
        (r#"{"feeds":{"..":null}}"#, 400),
        (r#"{"feeds":{"":null}}"#, 400),
        (&*long, 413),
    ] {
        let ask = |origin: &str| server.ask(posted("/sse", &format!("Origin: {origin}\r\n"), body));
        let answer = ask("http://good.test");
        let seen = (answer.status, answer.header("access-control-allow-origin"));
        assert_eq!(seen, (expect, "http://good.test"), "{body}");
        let refused = ask("http://evil.test");
        assert_eq!((refused.status, refused.header("access-control-allow-credentials")), (403, ""), "{body}");
    }
    assert_eq!(server.metric("sessions"), 0);
}
