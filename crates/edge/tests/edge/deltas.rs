//! Feeds to clients that apply deltas. The tests check each message, and that the client ends with the newest version.

use crate::harness::io::post;
use crate::harness::{HOUR, Http, Io, Server, Way, Ws, now, on_one_and_three};
use serde_json::{Value, json};
use stentor_delta::{ApplyLimits, apply};
use stentor_edge::{Options, SockJs};
use stentor_hub::FeedState;
use stentor_ports::FeedUpdate;
use stentor_wire::engineio::Version;

/// Disables all timeouts, so that only the subject of a test ends a session.
fn patient(options: &mut Options) {
    options.heartbeat.interval = HOUR;
    options.limits.message_timeout = HOUR;
}

/// A client's replica of a feed.
#[derive(Default)]
struct Kept {
    epoch: u64,
    offset: u64,
    document: Value,
}

impl Kept {
    /// Applies a message. Returns its type.
    fn take(&mut self, message: &Value) -> String {
        let number = |name: &str| message[name].as_u64().unwrap();
        let kind = message["type"].as_str().unwrap();
        match kind {
            "snapshot" => {
                let same = number("epoch") == self.epoch;
                assert!(!same || number("offset") >= self.offset, "an older one after a newer one");
                self.document = message["data"].clone();
            }
            "delta" => {
                assert_eq!((number("epoch"), number("base")), (self.epoch, self.offset));
                assert!(number("offset") > self.offset);
                let document = serde_json::to_vec(&self.document).unwrap();
                let patch = serde_json::to_vec(&message["patch"]).unwrap();
                let document = apply(&document, &patch, ApplyLimits::default()).unwrap();
                self.document = serde_json::from_slice(&document).unwrap();
            }
            other => return other.to_owned(),
        }
        (self.epoch, self.offset) = (number("epoch"), number("offset"));
        kind.to_owned()
    }

    /// Applies messages until the version with this offset. Returns their types.
    fn until(&mut self, ws: &mut Ws, offset: u64) -> Vec<String> {
        let mut kinds = Vec::new();
        while self.offset < offset {
            kinds.push(self.take(&ws.next_json()));
        }
        assert_eq!(self.offset, offset);
        kinds
    }
}

fn client(server: &Server, subscribe: Value) -> Ws {
    let mut ws = server.client();
    ws.ask(subscribe);
    ws
}

/// Version `n` of a small document.
fn document(n: u64) -> Value {
    let list: Vec<_> = (0..20).map(|i| json!({"id": i, "n": if n % 20 == i { n } else { 0 }})).collect();
    json!({"list": list, "n": n, "same": "x".repeat(2000)})
}

fn version(n: u64) -> String {
    document(n).to_string()
}

#[test]
fn a_client_that_reads_gets_one_delta_per_version() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut clients: Vec<(Ws, Kept)> = (0..4)
            .map(|_| (client(&server, json!({"type": "subscribe", "feed": "k"})), Kept::default()))
            .collect();
        let mut queue =
            (client(&server, json!({"type": "subscribe", "feed": "k", "policy": "queue"})), Kept::default());
        server.wait_wanted("k", true);
        for n in 1..=30 {
            server.version("k", &version(n));
            for (ws, kept) in clients.iter_mut().chain([&mut queue]) {
                let kinds = kept.until(ws, n);
                assert_eq!(kinds, [if n == 1 { "snapshot" } else { "delta" }]);
                assert_eq!(kept.document, document(n));
            }
        }
        // A core reports its metrics at the end of a turn, and clients may receive messages before that.
        server.until_metric("feed_snapshots", |taken| taken == 5);
        server.until_metric("feed_deltas", |taken| taken == 5 * 29);
        server.until_metric("feed_patches", |patches| patches > 0);
        assert!(server.metric("feed_patch_bytes") < 10_000);
        drop((clients, queue));
        server.wait_wanted("k", false);
        server.update("k", FeedUpdate::Forget);
        server.check_empty();
        server.until_metric("memory_bytes{publications}", |bytes| bytes == 0);
        server.until_metric("feed_patches", |patches| patches == 0);
    });
}

#[test]
fn a_reconnecting_client_receives_missed_versions() {
    on_one_and_three(|cores| {
        let mut kept = Kept::default();
        for life in 0..2 {
            let server = Server::start(cores, |options| options.limits.feed_patches_max = 5);
            let since = |kept: &Kept| json!({"type": "subscribe", "feed": "k", "epoch": kept.epoch, "offset": kept.offset});
            server.version("k", &version(1));
            server.version("k", &version(2));
            let mut ws = client(&server, since(&kept));
            let first = ws.next_json();
            assert_eq!(
                (kept.take(&first), &first["reason"]),
                ("snapshot".into(), &json!("epoch")),
                "life {life}"
            );
            for (missed, expect) in [(0, None), (1, Some("delta")), (5, Some("delta")), (6, Some("snapshot"))]
            {
                drop(ws);
                for n in 0..missed {
                    server.version("k", &version(kept.offset + 1 + n));
                }
                // Waits until the home core has the versions. A client that subscribes earlier receives them one by one.
                let newest = version(kept.offset + missed);
                crate::harness::until("the versions", || server.http().get("/feed/k").text() == newest);
                ws = client(&server, since(&kept));
                if let Some(expect) = expect {
                    let message = ws.next_json();
                    assert_eq!(kept.take(&message), expect, "{missed} missed");
                    let reason = message["reason"].as_str();
                    assert_eq!(reason, (expect == "snapshot").then_some("history"), "{missed} missed");
                }
                assert_eq!(ws.fence(), []);
                assert_eq!(kept.document, document(kept.offset));
            }
            assert_eq!(kept.offset, 14);
        }
    });
}

#[test]
fn clients_without_deltas_receive_whole_documents() {
    let server = Server::start(1, |_| {});
    let mut whole = client(&server, json!({"type": "subscribe", "feed": "k", "delta": false}));
    let mut raw = server.ws("/ws/k");
    server.wait_wanted("k", true);
    for n in 1..4 {
        server.version("k", &version(n));
        assert_eq!(whole.next_json()["type"], "snapshot");
        assert_eq!(raw.next_json()["n"], n);
    }
    // A changed subscription starts from the client's version.
    let mut kept = Kept { offset: 3, document: document(3), ..Kept::default() };
    server.version("k", &version(4));
    kept.epoch = whole.next_json()["epoch"].as_u64().unwrap();
    (kept.offset, kept.document) = (4, document(4));
    whole.ask(json!({"type": "subscribe", "feed": "k", "epoch": kept.epoch, "offset": 4}));
    server.version("k", &version(5));
    assert_eq!(kept.until(&mut whole, 5), ["delta"]);
    // Without a position, the document is sent again.
    whole.ask(json!({"type": "subscribe", "feed": "k"}));
    assert_eq!(kept.take(&whole.next_json()), "snapshot");
}

#[test]
fn a_rate_limits_the_frequency_of_versions() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, patient);
        server.version("k", &version(1));
        let mut slow = client(&server, json!({"type": "subscribe", "feed": "k", "rate": 20}));
        let mut kept = Kept::default();
        assert_eq!(kept.until(&mut slow, 1), ["snapshot"]);
        // Publishes until most versions have been conflated.
        let (mut last, begun, mut seen) = (1, now(), 0);
        while seen < 5 {
            last += 1;
            server.version("k", &version(last));
            server.state("k", FeedState::Live, "");
            if last % 50 == 0 {
                kept.take(&slow.next_json());
                seen += 1;
            }
        }
        kept.until(&mut slow, last);
        let kinds = server.metric("feed_deltas") + server.metric("feed_deltas_joined");
        let took = now() - begun;
        let bound = took.as_millis() as u64 / 50 + 2;
        assert!(kinds + server.metric("feed_snapshots") <= bound + 1, "{kinds} in {took:?}");
        assert_eq!(kept.document, document(last));
        // The changed subscription has no rate, so all versions arrive.
        let change = json!({"type": "subscribe", "feed": "k", "epoch": kept.epoch, "offset": kept.offset});
        slow.ask(change);
        for n in last + 1..last + 20 {
            server.version("k", &version(n));
            assert_eq!(kept.until(&mut slow, n), ["delta"]);
        }
        // No state is kept for clients that have disconnected.
        slow.ask(json!({"type": "subscribe", "feed": "k", "rate": 0.001, "epoch": kept.epoch, "offset": kept.offset}));
        server.version("k", "true");
        assert_eq!(kept.take(&slow.next_json()), "snapshot");
        server.version("k", "false");
        server.until_metric("deliveries_pending", |pending| pending == 1);
        drop(slow);
        server.check_empty();
    });
}

/// Connects a Socket.IO client. `query` is added to the query of its handshake.
fn socketio(server: &Server, query: &str) -> Io {
    let mut io = Io::open(server.addr, "/socket.io/", Version::V4, Way::Socket, query);
    io.connect("", Value::Null);
    io
}

/// Subscribes to `k`. Returns the code of the refusal, or null.
fn subscribe(io: &mut Io, options: Value) -> Value {
    io.ask("subscribe", &[json!("k"), options])[0]["code"].take()
}

/// The argument of the next feed event.
fn feed_event(io: &mut Io) -> Value {
    let mut event = io.event();
    assert_eq!(event[0], "feed");
    event[1].take()
}

#[test]
fn socketio_clients_get_the_same_objects() {
    let server = Server::start(1, |_| {});
    let mut kept = Kept::default();
    server.version("k", &version(1));
    // A client that doesn't request deltas receives none.
    let mut old = socketio(&server, "");
    assert_eq!(old.ask("subscribe", &[json!("k")]), json!([{"ok": true}]));
    assert_eq!(feed_event(&mut old)["type"], "snapshot");
    let mut io = socketio(&server, "");
    assert_eq!(subscribe(&mut io, json!({"delta": true})), Value::Null);
    assert_eq!(kept.take(&feed_event(&mut io)), "snapshot");
    server.version("k", &version(2));
    assert_eq!(kept.take(&feed_event(&mut io)), "delta");
    let whole = feed_event(&mut old);
    assert_eq!((&whole["type"], whole["data"]["n"].as_u64()), (&json!("snapshot"), Some(2)));
    let mut back = socketio(&server, "");
    let since = json!({"epoch": kept.epoch, "offset": 1, "rate": 5, "policy": "latest", "delta": true});
    subscribe(&mut back, since);
    assert_eq!(feed_event(&mut back)["type"], "delta");
    let mut late = socketio(&server, "");
    subscribe(&mut late, json!({"epoch": kept.epoch.wrapping_add(1) as u32, "offset": 1, "delta": true}));
    let document = feed_event(&mut late);
    assert_eq!((&document["type"], &document["reason"]), (&json!("snapshot"), &json!("epoch")));
    for (options, code) in [
        (json!({"rate": 0}), "bad_rate"),
        (json!({"rate": 5, "policy": "queue"}), "bad_rate"),
        (json!({"policy": "slowly"}), "bad_policy"),
        (json!({"offset": -1}), "bad_request"),
    ] {
        assert_eq!(subscribe(&mut back, options.clone()), code, "{options}");
    }
    // The query can request deltas as well.
    let mut io = socketio(&server, "&feed=k&delta=1&rate=100");
    assert_eq!(feed_event(&mut io)["type"], "snapshot");
    server.version("k", &version(3));
    assert_eq!(feed_event(&mut io)["type"], "delta");
    // A client that receives the document as a string receives all of it.
    let server = Server::start(1, |options| options.engine.feed_as_string = true);
    let mut io = socketio(&server, "");
    subscribe(&mut io, json!({"delta": true}));
    for n in 1..4 {
        server.version("k", &version(n));
        assert_eq!(feed_event(&mut io), version(n));
    }
}

/// Opens an SSE stream of `/sse?feed=k`.
fn events(server: &Server, query: &str, header: &str) -> Http {
    let mut http = server.http();
    http.send(format!("GET /sse?feed=k{query} HTTP/1.1\r\nHost: a\r\n{header}\r\n"));
    assert_eq!(http.stream_head().status, 200);
    assert!(http.next_chunk().starts_with("retry: "));
    http
}

/// The id of an event, and its other lines.
fn event_of(http: &mut Http) -> (String, Vec<String>) {
    let chunk = http.next_chunk();
    let mut lines = chunk.lines().filter(|line| !line.is_empty()).map(str::to_owned);
    let id = lines.next().unwrap().strip_prefix("id: ").unwrap().to_owned();
    (id, lines.collect())
}

#[test]
fn sse_streams_carry_deltas_on_request() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.limits.feed_patches_max = 2);
        server.version("k", &version(1));
        let mut whole = events(&server, "", "");
        let mut http = events(&server, "&delta=1", "");
        let (first, lines) = event_of(&mut http);
        assert_eq!(lines, ["event: snapshot", &format!("data: {}", version(1))]);
        assert_eq!(event_of(&mut whole).1, lines);
        let mut kept = Kept { offset: 1, document: document(1), ..Kept::default() };
        kept.epoch = u64::from_str_radix(first.split('!').nth(1).unwrap(), 16).unwrap();
        let delta = |lines: &[String]| {
            assert_eq!(lines[0], "event: delta");
            serde_json::from_str::<Value>(lines[1].strip_prefix("data: ").unwrap()).unwrap()
        };
        let mut last = first.clone();
        for n in 2..4 {
            server.version("k", &version(n));
            let (id, lines) = event_of(&mut http);
            assert_eq!(id, format!("k!{:x}!{n:x}", kept.epoch));
            assert_eq!(kept.take(&delta(&lines)), "delta");
            assert_eq!(kept.document, document(n));
            last = id;
            assert_eq!(event_of(&mut whole).1[0], "event: snapshot");
        }
        // A client that reconnects names the id in the header, like a browser, or in the URL. The header takes precedence.
        let header = |id: &str| format!("Last-Event-ID: {id}\r\n");
        let in_query = |id: &str| format!("&delta=1&lastEventId={}", id.replace('!', "%21"));
        let from_1 = [
            events(&server, "&delta=1", &header(&first)),
            events(&server, &in_query(&first), ""),
            events(&server, &in_query("k!1!1"), &header(&first)),
        ];
        for mut http in from_1 {
            let (id, lines) = event_of(&mut http);
            assert_eq!((&id, delta(&lines)["base"].as_u64()), (&last, Some(1)));
        }
        let reset = |reason: &str| {
            ["event: reset".to_owned(), format!(r#"data: {{"feed":"k","reason":"{reason}"}}"#)]
        };
        let (id, lines) = event_of(&mut events(&server, &in_query("k!1!1"), ""));
        assert_eq!((&id, &lines[0][..], &lines[2..]), (&last, "event: snapshot", &reset("epoch")[..]));
        server.version("k", &version(4));
        // Waits until this core has the version. Otherwise, the core could answer with the previous one.
        event_of(&mut http);
        event_of(&mut whole);
        let (_, lines) = event_of(&mut events(&server, "&delta=1", &header(&first)));
        assert_eq!((&lines[0][..], &lines[2..]), ("event: snapshot", &reset("history")[..]));
        // Without deltas, a document needs no reason.
        assert_eq!(event_of(&mut events(&server, "", &header(&first))).1.len(), 2);
        for query in ["&delta=yes", "&rate=0", "&policy=x", "&rate=2&policy=queue"] {
            assert_eq!(
                server.ask(format!("GET /sse?feed=k{query} HTTP/1.1\r\nHost: a\r\n\r\n")).status,
                400,
                "{query}"
            );
        }
    });
}

#[test]
fn several_feeds_share_deltas_too() {
    let server = Server::start(1, |_| {});
    server.version("a", &version(1));
    server.version("k", &version(1));
    let mut http = events(&server, "&feed=a&delta=1", "");
    // Reads the chunk with the id, and then the shared event.
    let mut both = || (http.next_chunk(), http.next_chunk());
    assert!(both().1.starts_with("event: snapshot\n") && both().1.starts_with("event: snapshot\n"));
    for (key, n) in [("a", 2), ("k", 2), ("k", 3)] {
        server.version(key, &version(n));
        let (id, event) = both();
        assert!(id.starts_with(&format!("id: {key}!")) && id.split(';').count() == 2, "{id}");
        assert!(
            event.starts_with(&format!(r#"event: delta{}data: {{"type":"delta","feed":"{key}","#, '\n')),
            "{event}"
        );
    }
}

#[test]
fn options_in_a_query_apply_in_raw_mode() {
    let server = Server::start(1, patient);
    server.version("k", "1");
    let mut slow = server.ws("/ws/k?rate=0.001");
    let mut all = server.ws("/ws?feed=k&format=raw&policy=queue");
    assert_eq!((slow.next_text(), all.next_text()), ("1".into(), "1".into()));
    for n in 2..5 {
        server.version("k", &n.to_string());
        assert_eq!(all.next_text(), n.to_string());
    }
    // The newest version is pending, because of the rate.
    server.until_metric("deliveries_conflated", |conflated| conflated == 2);
    server.until_metric("deliveries_pending", |pending| pending == 1);
    let refused = Ws::open(server.addr, "/ws/k?rate=fast", &[], false);
    assert!(refused.is_err());
}

/// Long polling: each poll is a request of its own.
#[test]
fn clients_that_poll_get_deltas() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.sockjs = vec![SockJs::at("/sockjs")]);
        server.version("k", &version(1));
        let ask = json!({"type": "subscribe", "feed": "k"}).to_string();
        let mut engine = Io::engine(&server, Way::Polling);
        engine.send(&format!("4{ask}"));
        let xhr = |suffix: &str, body: &str| {
            server.ask(post(&format!("/sockjs/000/one/xhr{suffix}"), "", body.as_bytes())).text().to_owned()
        };
        assert_eq!(xhr("", ""), "o\n");
        xhr("_send", &json!([ask]).to_string());
        let mut from_engine = || vec![engine.next_text()[1..].to_owned()];
        let mut from_sockjs =
            || serde_json::from_str(xhr("", "").strip_prefix('a').unwrap().trim_end()).unwrap();
        let mut polls: [&mut dyn FnMut() -> Vec<String>; 2] = [&mut from_engine, &mut from_sockjs];
        let mut kept = [Kept::default(), Kept::default()];
        for n in 1..5 {
            if n > 1 {
                server.version("k", &version(n));
            }
            for (poll, kept) in polls.iter_mut().zip(&mut kept) {
                while kept.offset < n {
                    for text in poll() {
                        let kind = kept.take(&serde_json::from_str(&text).unwrap());
                        assert!(n == 1 || kind == "delta", "{kind}");
                    }
                }
                assert_eq!(kept.document, document(n));
            }
        }
    });
}

/// A client that subscribes over and over, with invented positions, has at most one pending document.
#[test]
fn repeated_subscriptions_have_one_pending_document() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, patient);
        let body = json!({"text": "x".repeat(200_000)}).to_string();
        server.version("k", &body);
        let mut greedy = client(&server, json!({"type": "subscribe", "feed": "k"}));
        server.wait_wanted("k", true);
        let asked = 300;
        for n in 0..asked {
            greedy.send_json(json!({"type": "subscribe", "feed": "k", "epoch": n % 2, "offset": n}));
            // Frames of the document with and without a reason, each shared, and those in flight.
            assert!(server.metric("memory_bytes{frames}") < 4 * body.len() as u64);
            assert!(server.metric("deliveries_pending") <= 2);
        }
        // The client receives less than it requested, unless it reads as fast as it requests.
        let mut kept = Kept::default();
        let (mut ok, mut documents) = (0, 0);
        while ok < asked || documents == 0 {
            let message = greedy.next_json();
            match message["type"].as_str().unwrap() {
                "ok" => ok += 1,
                _ => {
                    kept.take(&message);
                    documents += 1;
                }
            }
        }
        assert!(documents <= asked + 1, "{documents}");
        drop(greedy);
        server.wait_wanted("k", false);
        server.update("k", FeedUpdate::Forget);
        server.check_empty();
    });
}
