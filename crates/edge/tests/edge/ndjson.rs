//! Newline-delimited JSON: sessions that outlive their connections.

use crate::harness::{HOUR, Http, Response, Server, now, on_one_and_three, request, takes};
use serde_json::{Value, json};
use std::time::Duration;
use stentor_edge::{App, Options, Origins};

/// A session, its current stream, and the connection of its requests.
struct Session<'s> {
    server: &'s Server,
    id: String,
    stream: Http,
    posts: Http,
    lines: u64,
    number: u64,
}

fn head(http: &mut Http) {
    let head = http.stream_head();
    assert_eq!(head.header("content-type"), "application/x-ndjson");
    assert_eq!(head.header("cache-control"), "no-store, no-transform");
}

fn lines(messages: &[Value]) -> String {
    messages.iter().map(|message| format!("{message}\n")).collect()
}

impl<'s> Session<'s> {
    fn open(server: &'s Server) -> Self {
        Self::begin(server, request("GET", "/ndjson", ""))
    }

    /// Opens a session with first messages.
    fn open_with(server: &'s Server, messages: &[Value]) -> Self {
        let body = lines(messages);
        let headers = format!("Content-Length: {}\r\n", body.len());
        Self::begin(server, request("POST", "/ndjson", &headers) + &body)
    }

    fn begin(server: &'s Server, first: String) -> Self {
        let mut stream = server.http();
        stream.send(first);
        head(&mut stream);
        let mut opened =
            Self { server, id: String::new(), stream, posts: server.http(), lines: 0, number: 0 };
        let first = opened.line();
        assert_eq!(first["type"], "session");
        assert_eq!(first["timeout_ms"], 45_000);
        opened.id = first["sid"].as_str().unwrap().to_owned();
        assert_eq!(opened.line()["type"], "welcome");
        opened
    }

    fn path(&self) -> String {
        format!("/ndjson/{}", self.id)
    }

    /// The next line that isn't a heartbeat.
    fn line(&mut self) -> Value {
        loop {
            let line = self.stream.next_chunk();
            assert!(line.ends_with('\n') && line.matches('\n').count() == 1, "{line:?}");
            if line != "\n" {
                self.lines += 1;
                return serde_json::from_str(&line).unwrap();
            }
        }
    }

    /// Sends messages as the request with this number.
    fn post_as(&mut self, number: u64, messages: &[Value]) -> Response {
        let body = lines(messages);
        let headers = format!("Content-Length: {}\r\n", body.len());
        self.posts.ask(request("POST", &format!("{}?n={number}", self.path()), &headers) + &body)
    }

    /// Sends messages as the next request.
    fn post(&mut self, messages: &[Value]) {
        self.number += 1;
        let answer = self.post_as(self.number, messages);
        assert_eq!(answer.status, 204, "{}", answer.text());
    }

    fn join(&mut self, room: &str) {
        self.post(&[json!({"type": "subscribe", "id": 1, "room": room})]);
        assert_eq!(self.line()["type"], "ok");
    }

    /// Requests another stream on a new connection.
    fn stream_again(&mut self, query: &str) -> Http {
        let mut http = self.server.http();
        http.send(request("GET", &format!("{}?received={}{query}", self.path(), self.lines), ""));
        head(&mut http);
        http
    }
}

fn ping(id: u64) -> Value {
    json!({"type": "ping", "id": id})
}

#[test]
fn messages_go_both_ways_in_order() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.rooms.publish = true);
        let mut session = Session::open(&server);
        session.join("a");
        let mut other = server.client();
        other.ask(json!({"type": "subscribe", "id": 1, "room": "a"}));
        let publish = |n: u64| json!({"type": "publish", "id": n, "room": "a", "data": n});
        session.post(&[publish(1), ping(2), publish(3)]);
        let mut ids = Vec::new();
        let mut data = Vec::new();
        for _ in 0..5 {
            let line = session.line();
            match line["type"].as_str().unwrap() {
                "message" => data.push(line["data"].clone()),
                _ => ids.push(line["id"].clone()),
            }
        }
        assert_eq!((ids, data), (vec![json!(1), json!(2), json!(3)], vec![json!(1), json!(3)]));
        assert_eq!([other.next_json()["data"].clone(), other.next_json()["data"].clone()], [1, 3]);
        // A line that is no message is answered with an error, and the next one is handled.
        session.post(&[json!("nonsense"), json!({}), ping(4)]);
        assert_eq!([session.line()["type"].clone(), session.line()["type"].clone()], ["error", "error"]);
        assert_eq!(session.line()["id"], 4);
    });
}

#[test]
fn a_feed_with_line_ends_is_one_line() {
    let server = Server::start(1, |_| {});
    server.document("k", "{\"a\":\n [1,\r\n2]}");
    let mut http = server.http();
    http.send(request("GET", "/ndjson?feed=k", ""));
    head(&mut http);
    let snapshot = (0..3).map(|_| http.next_chunk()).find(|line| line.contains("snapshot")).unwrap();
    let snapshot: Value = serde_json::from_str(&snapshot).unwrap();
    assert_eq!(snapshot["data"], json!({"a": [1, 2]}));
}

#[test]
fn http_1_0_has_no_chunks() {
    let server = Server::start(1, |_| {});
    let mut http = server.http();
    http.send("GET /ndjson HTTP/1.0\r\nHost: a.test\r\n\r\n");
    assert_eq!(http.endless_head().header("connection"), "close");
    assert_eq!(http.next_bytes(24), "{\"type\":\"session\",\"sid\":");
}

#[test]
fn a_session_outlives_its_stream_and_queues_lines() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut session = Session::open(&server);
        session.join("a");
        let lost = std::mem::replace(&mut session.stream, server.http());
        drop(lost);
        server.until_metric("connections", |connections| connections <= 2);
        for n in 0..3 {
            server.publish("a", &n.to_string());
        }
        // Requests are handled even while the session has no stream.
        session.post(&[ping(7)]);
        session.stream = session.stream_again("");
        let mut lines: Vec<Value> = (0..4).map(|_| session.line()).collect();
        lines.retain(|line| line["type"] == "message");
        let data: Vec<_> = lines.iter().map(|line| line["data"].as_u64().unwrap()).collect();
        assert_eq!(data, [0, 1, 2]);
        // The stream continues.
        server.publish("a", "3");
        assert_eq!(session.line()["data"], 3);
        drop(session);
        server.until_metric("sessions", |sessions| sessions == 0);
        server.check_empty();
    });
}

#[test]
fn a_second_stream_takes_over() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut session = Session::open(&server);
        session.join("a");
        let second = session.stream_again("");
        assert_eq!(session.stream.chunk(), None);
        // The connection of the first stream can be used again.
        let mut first = std::mem::replace(&mut session.stream, second);
        assert_eq!(first.get("/healthz").status, 200);
        server.publish("a", "1");
        assert_eq!(session.line()["data"], 1);
    });
}

#[test]
fn lines_that_were_lost_end_the_session() {
    let server = Server::start(1, |_| {});
    let mut session = Session::open(&server);
    session.join("a");
    session.lines -= 1;
    session.stream = session.stream_again("");
    let end = session.line();
    assert_eq!((&end["type"], &end["code"]), (&json!("disconnect"), &json!(4503)));
    assert_eq!(end["reason"], "lines were lost with a stream");
    assert_eq!(session.stream.chunk(), None);
    assert_eq!(session.post_as(session.number + 1, &[ping(1)]).status, 410);
    // A client that reports more received lines than the server has sent is refused.
    let mut session = Session::open(&server);
    let target = format!("{}?received=3", session.path());
    assert_eq!(session.posts.get(&target).status, 400);
    assert_eq!(session.posts.get(&session.path()).status, 400);
    session.post(&[ping(1)]);
    assert_eq!(session.line()["id"], 1);
}

#[test]
fn a_repeated_request_is_handled_once() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut session = Session::open(&server);
        session.post(&[ping(1)]);
        for number in [1, 1, 0] {
            assert_eq!(session.post_as(number, &[ping(2)]).status, 204, "{number}");
        }
        let early = session.post_as(3, &[ping(3)]);
        assert_eq!((early.status, early.text()), (409, "the number of the next request is 2\n"));
        session.post(&[ping(4)]);
        assert_eq!([session.line()["id"].clone(), session.line()["id"].clone()], [1, 4]);
        assert_eq!(session.posts.ask(request("POST", &session.path(), "Content-Length: 0\r\n")).status, 400);
    });
}

#[test]
fn a_response_ends_after_its_bytes() {
    let server = Server::start(1, |_| {});
    let mut session = Session::open(&server);
    session.join("a");
    session.stream = session.stream_again("&bytes=1");
    server.publish("a", "1");
    assert_eq!(session.line()["data"], 1);
    assert_eq!(session.stream.chunk(), None);
    // No lines wait, so the response is empty.
    session.stream = session.stream_again("&bytes=0");
    assert_eq!(session.stream.chunk(), None);
}

#[test]
fn heartbeats_are_empty_lines() {
    let time = Duration::from_secs(3);
    let server = Server::start(1, |options| options.heartbeat.interval = time);
    let mut http = server.http();
    http.send(request("GET", "/ndjson", ""));
    head(&mut http);
    http.next_chunk();
    http.next_chunk();
    for _ in 0..3 {
        assert_eq!(takes(time, || http.next_chunk()), "\n");
    }
}

#[test]
fn a_session_without_a_request_ends() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut session = Session::open(&server);
        drop(std::mem::replace(&mut session.stream, server.http()));
        let begun = now();
        // A request keeps the session alive.
        session.post(&[ping(1)]);
        server.until_metric("sessions", |sessions| sessions == 0);
        assert!(now() - begun >= Duration::from_secs(45), "{:?}", now() - begun);
        assert_eq!(session.post_as(2, &[ping(2)]).status, 404);
        let gone = session.posts.get(&format!("{}?received={}", session.path(), session.lines));
        assert_eq!((gone.status, gone.text()), (404, "there is no such session\n"));
        drop(session);
        server.check_empty();
    });
}

#[test]
fn bad_ids_methods_and_bodies_are_refused() {
    let server = Server::start(1, |options| options.limits.message_bytes_max = 1_000);
    let mut session = Session::open(&server);
    let known = session.id.clone();
    let guess = "A".repeat(known.len());
    for id in ["x", "..", "a/b", &guess, &known[1..], &format!("{known}A")] {
        let answer = server.get(&format!("/ndjson/{id}?received=0"));
        assert_eq!(answer.status, 404, "{id}");
        assert_eq!(server.request("POST", &format!("/ndjson/{id}?n=1"), "Content-Length: 0\r\n").status, 404);
    }
    for (method, path) in [("PUT", "/ndjson"), ("PATCH", "/ndjson"), ("DELETE", &*session.path())] {
        assert_eq!(server.request(method, path, "Content-Length: 0\r\n").status, 405, "{method} {path}");
    }
    let too_large = session.post_as(1, &[json!("x".repeat(1_000))]);
    assert_eq!(too_large.status, 413);
    session.posts = server.http();
    let path = format!("{}?n=1", session.path());
    let not_utf8 = [request("POST", &path, "Content-Length: 1\r\n").as_bytes(), b"\xff"].concat();
    assert_eq!(session.posts.ask(not_utf8).status, 400);
    // The refused requests haven't used up their number.
    session.post(&[ping(1)]);
    assert_eq!(session.line()["id"], 1);
}

#[test]
fn pages_of_other_origins_need_permission() {
    let server = Server::start(1, |options| {
        options.origins = Origins::parse(&["https://good.test"]).unwrap();
    });
    let session = Session::open(&server);
    let post = format!("{}?n=1", session.path());
    for (method, target) in [("GET", "/ndjson"), ("POST", &*post)] {
        let refused = server.request(method, target, "Origin: https://bad.test\r\nContent-Length: 0\r\n");
        assert_eq!(refused.status, 403, "{method}");
    }
    let accepted = server.request("POST", &post, "Origin: https://good.test\r\nContent-Length: 0\r\n");
    assert_eq!(accepted.status, 204);
    assert_eq!(accepted.header("access-control-allow-origin"), "https://good.test");
    // Browsers would read two of these headers as another value.
    let credentials =
        |(name, _): &&(String, String)| name.eq_ignore_ascii_case("access-control-allow-credentials");
    assert_eq!(accepted.headers.iter().filter(credentials).count(), 1);
    assert_eq!(accepted.header("access-control-allow-credentials"), "true");
    let preflight = server.request("OPTIONS", &post, "Origin: https://good.test\r\n");
    assert_eq!((preflight.status, preflight.header("access-control-allow-methods")), (204, "GET, POST"));
}

#[test]
fn a_header_replaces_the_query() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut session =
            Session::begin(&server, request("GET", "/ndjson?bytes=0", "Stentor-Query: bytes=100000\r\n"));
        let post = |session: &mut Session<'_>, query: &str, message: &Value| {
            let body = lines(std::slice::from_ref(message));
            let headers = format!("Stentor-Query: {query}\r\nContent-Length: {}\r\n", body.len());
            session.posts.ask(request("POST", "/ndjson/session?sid=other&n=7", &headers) + &body)
        };
        let sid = format!("sid={}", session.id);
        for number in [1, 1, 2] {
            assert_eq!(post(&mut session, &format!("{sid}&n={number}"), &ping(number)).status, 204);
        }
        assert_eq!([session.line()["id"].clone(), session.line()["id"].clone()], [1, 2]);
        // The address of the session still works.
        session.number = 2;
        session.post(&[ping(3)]);
        let lines = session.lines;
        let headers = format!("Stentor-Query: {sid}&received={}&bytes=1\r\n", lines + 1);
        assert_eq!(session.line()["id"], 3);
        session.stream = server.http();
        session.stream.send(request("GET", "/ndjson/session", &headers));
        head(&mut session.stream);
        session.post(&[ping(4)]);
        assert_eq!(session.line()["id"], 4);
        assert_eq!(session.stream.chunk(), None);
        for query in ["n=3", "sid=&n=3", "sid=session&n=3", "sid=x&n=3"] {
            assert_eq!(post(&mut session, query, &ping(5)).status, 404, "{query}");
        }
        assert_eq!(post(&mut session, &format!("{sid}&end=1"), &ping(5)).status, 204);
        drop(session);
        server.until_metric("sessions", |sessions| sessions == 0);
        server.check_empty();
    });
}

#[test]
fn a_preflight_allows_the_header_that_replaces_the_query() {
    let server = Server::start(1, |options| {
        options.origins = Origins::parse(&["https://good.test"]).unwrap();
    });
    let asks = "Origin: https://good.test\r\nAccess-Control-Request-Method: POST\r\n\
                Access-Control-Request-Headers: authorization,stentor-query\r\n";
    for path in ["/ndjson", "/ndjson/session"] {
        let preflight = server.request("OPTIONS", path, asks);
        let header = |name| preflight.header(name);
        assert_eq!(
            (preflight.status, header("access-control-allow-headers")),
            (204, "authorization,stentor-query")
        );
        assert_eq!(header("access-control-max-age"), "7200");
    }
}

#[test]
fn draining_says_goodbye() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut session = Session::open(&server);
        server.drain(HOUR);
        let end = session.line();
        assert_eq!((&end["type"], &end["code"]), (&json!("disconnect"), &json!(4500)));
        assert_eq!(session.stream.chunk(), None);
        session.stream.expect_end();
        drop(session);
        server.join();
    });
}

#[test]
fn a_client_that_reads_nothing_is_disconnected() {
    let server = Server::start(1, |options: &mut Options| {
        options.limits.send_buffer_bytes_max = 10_000;
    });
    let mut session = Session::open(&server);
    drop(std::mem::replace(&mut session.stream, server.http()));
    server.until_metric("connections", |connections| connections <= 2);
    // Each answer is an error that repeats the type.
    let unknown = json!({"type": "x".repeat(200)});
    let many: Vec<Value> = (0..100).map(|_| unknown.clone()).collect();
    let answer = session.post_as(1, &many);
    assert!([204, 410].contains(&answer.status), "{}", answer.status);
    assert_eq!(server.disconnects("slow_consumer"), 1);
    server.until_metric("sessions", |sessions| sessions == 0);
}

#[test]
fn only_applications_of_v1_are_served() {
    let server = Server::start(1, |options| options.app = App::Echo);
    assert_eq!(server.get("/ndjson").status, 404);
}

#[test]
fn a_body_of_many_lines_takes_several_turns() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut session = Session::open(&server);
        let pings: Vec<Value> = (0..3_000).map(ping).collect();
        session.post(&pings);
        for id in 0..3_000 {
            assert_eq!(session.line()["id"], id);
        }
        // A client repeats a request whose connection broke. The server continues where the first request was cut off.
        let body: String = pings.iter().map(|message| format!("{message}\n")).collect();
        let headers = format!("Content-Length: {}\r\n", body.len());
        let mut cut_off = server.http();
        cut_off.send(request("POST", &format!("{}?n=2", session.path()), &headers) + &body);
        drop(cut_off);
        session.post(&pings);
        for id in 0..3_000 {
            assert_eq!(session.line()["id"], id);
        }
        session.post(&[ping(7)]);
        assert_eq!(session.line()["id"], 7);
    });
}

#[test]
fn a_request_opens_a_session_with_its_first_messages() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.rooms.publish = true);
        let mut session =
            Session::open_with(&server, &[ping(1), json!({"type": "subscribe", "id": 2, "room": "a"})]);
        assert_eq!([session.line()["id"].clone(), session.line()["id"].clone()], [1, 2]);
        // The request that opens a session has number 0, and the next one has number 1.
        session.post(&[ping(3)]);
        assert_eq!(session.line()["id"], 3);
        server.publish("a", "1");
        assert_eq!(session.line()["data"], 1);
        drop(session);
        // More messages than one turn handles.
        let pings: Vec<Value> = (0..3_000).map(ping).collect();
        let mut session = Session::open_with(&server, &pings);
        for id in 0..3_000 {
            assert_eq!(session.line()["id"], id);
        }
        session.post(&[ping(7)]);
        assert_eq!(session.line()["id"], 7);
        // A body that isn't text opens no session.
        let bad = [request("POST", "/ndjson", "Content-Length: 1\r\n").as_bytes(), b"\xff"].concat();
        assert_eq!(server.http().ask(bad).status, 400);
        drop(session);
        server.until_metric("sessions", |sessions| sessions == 0);
        server.check_empty();
    });
}

#[test]
fn a_client_ends_its_session() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.rooms.publish = true);
        let mut other = server.client();
        other.ask(json!({"type": "subscribe", "id": 1, "room": "a"}));
        let begun = now();
        for with_messages in [false, true] {
            let mut session = Session::open(&server);
            let message = json!({"type": "publish", "room": "a", "data": with_messages}).to_string();
            let (query, body) = if with_messages { ("n=1&end=1", &*message) } else { ("end=1", "") };
            let headers = format!("Content-Length: {}\r\n", body.len());
            let path = session.path();
            let answer = session.posts.ask(request("POST", &format!("{path}?{query}"), &headers) + body);
            assert_eq!(answer.status, 204);
            assert_eq!(session.post_as(2, &[ping(1)]).status, 404);
        }
        assert_eq!(other.next_json()["data"], true);
        drop(other);
        server.until_metric("sessions", |sessions| sessions == 0);
        assert!(now() - begun < Duration::from_secs(45), "{:?}", now() - begun);
        server.check_empty();
    });
}

#[test]
fn a_response_with_a_bound_ends_when_there_is_nothing() {
    let time = Duration::from_secs(4);
    let server = Server::start(1, |options| options.limits.request_timeout = time);
    let mut session = Session::open(&server);
    for bytes in ["1", "1000"] {
        session.stream = session.stream_again(&format!("&bytes={bytes}"));
        if bytes == "1" {
            assert_eq!(takes(time, || session.stream.next_chunk()), "\n");
            assert_eq!(session.stream.chunk(), None);
        } else {
            assert_eq!(takes(time, || session.stream.next_chunk()), "\n");
            session.post(&[ping(1)]);
            assert_eq!(session.line()["id"], 1);
        }
    }
}
