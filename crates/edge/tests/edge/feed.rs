//! `GET /feed/KEY`: a request waits for its response on the key's home core.

use crate::harness::{Http, Server, now, on_one_and_three, until};
use std::time::Duration;
use stentor_hub::{Document, FeedState, Requester};
use stentor_ports::FeedUpdate;

fn request(target: &str, headers: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n{headers}\r\n")
}

#[test]
fn a_cold_key_holds_the_answer_until_there_is_a_document() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut http = server.http();
        http.send(request("/feed/matches/8", ""));
        server.wait_wanted("matches/8", true);
        server.document("matches/8", r#"{"goals":1}"#);
        let answer = http.response();
        assert_eq!((answer.status, answer.text()), (200, r#"{"goals":1}"#));
        assert_eq!(answer.header("content-type"), "application/json");
        assert_eq!(answer.header("cache-control"), "no-cache");
        assert_eq!(answer.header("vary"), "Origin");
        // A page from an upstream isn't a page of this server: its scripts don't run, and its origin is separate.
        assert_eq!(answer.header("content-security-policy"), "sandbox");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert!(!answer.header("etag").is_empty());
        server.wait_wanted("matches/8", false);
        // The document is now known, until `Forget`.
        assert_eq!(http.get("/feed/matches/8").text(), r#"{"goals":1}"#);
        server.wait_wanted("matches/8", false);
        server.update("matches/8", FeedUpdate::Forget);
        server.until_metric("topics", |topics| topics == 0);
        http.send(request("/feed/matches/8", ""));
        server.wait_wanted("matches/8", true);
        // `Forget` has no effect on a key that has subscribers again.
        server.update("matches/8", FeedUpdate::Forget);
        server.document("matches/8", "2");
        assert_eq!(http.response().text(), "2");
        drop(http);
        server.wait_wanted("matches/8", false);
        server.update("matches/8", FeedUpdate::Forget);
        server.check_empty();
    });
}

#[test]
fn documents_that_are_not_json_are_served_unchanged() {
    let server = Server::start(1, |_| {});
    let body = vec![0xff; 200_000];
    let document =
        Document { body: body.clone().into(), json: false, content_type: "application/x-bytes".into() };
    server.update("k", FeedUpdate::Changed(document.into()));
    let answer = server.http().get("/feed/k");
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/x-bytes"));
    assert!(answer.body == body);
    server.document("k", "");
    assert_eq!(server.http().get("/feed/k").body, b"");
}

/// All waiting requests for a key without a document are answered when the key has a state, and later ones at once.
#[test]
fn a_key_without_a_document_is_answered_by_its_state() {
    on_one_and_three(|cores| {
        for (state, reason, status) in [
            (FeedState::NotFound, "the upstream says 404", 404),
            (FeedState::Complete, "the upstream says 410", 404),
            (FeedState::Stale, "the upstream answered 500", 502),
        ] {
            let server = Server::start(cores, |_| {});
            let mut waiting: Vec<Http> = (0..6).map(|_| server.http()).collect();
            for http in &mut waiting {
                http.send(request("/feed/k", ""));
            }
            server.wait_wanted("k", true);
            server.state("k", state, reason);
            for http in &mut waiting {
                let answer = http.response();
                assert_eq!((answer.status, answer.text()), (status, &*format!("{reason}\n")), "{state:?}");
                assert_eq!(answer.header("cache-control"), "no-store", "{state:?}");
                assert_eq!(answer.header("content-security-policy"), "sandbox", "{state:?}");
                assert_eq!(http.get("/healthz").status, 200, "{state:?}");
            }
            server.until_metric("http_request_errors", |errors| errors == 6);
            assert_eq!(waiting[0].get("/feed/k").status, status, "{state:?}");
            if state == FeedState::Stale {
                // The cause stays known until the next fetch, so no request waits for that fetch.
                server.state("k", FeedState::Stale, "the upstream answered 401");
                until_text(&mut waiting[1], "/feed/k", "the upstream answered 401\n");
                server.document("k", "1");
                until_text(&mut waiting[2], "/feed/k", "1");
                continue;
            }
            // The key stays not found until `Forget`. Then it is requested anew.
            server.wait_wanted("k", false);
            server.update("k", FeedUpdate::Forget);
            server.until_metric("topics", |topics| topics == 0);
            waiting[0].send(request("/feed/k", ""));
            server.wait_wanted("k", true);
            server.document("k", "1");
            assert_eq!(waiting[0].response().text(), "1", "{state:?}");
        }
    });
}

#[test]
fn a_document_is_the_answer_also_when_its_feed_is_stale_or_complete() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        for (key, state) in [("stale", FeedState::Stale), ("once", FeedState::Complete)] {
            let (target, mut http) = (format!("/feed/{key}"), server.http());
            server.document(key, "1");
            let tag = http.get(&target).header("etag").to_owned();
            server.state(key, state, "the upstream is away");
            for http in [&mut http, &mut server.http()] {
                let answer = http.get(&target);
                assert_eq!((answer.status, answer.text()), (200, "1"), "{key}");
            }
            http.send(request(&target, &format!("If-None-Match: {tag}\r\n")));
            assert_eq!(http.response().status, 304, "{key}");
        }
    });
}

/// A requester of a key without a state, as reported to the control plane.
pub(crate) fn requester(server: &Server, key: &str) -> Requester {
    let mut found = None;
    until("a requester", || {
        let all = server.plane().take_key_interest();
        let wanted = all.iter().find(|wanted| wanted.key.as_str() == key && wanted.wanted);
        found = wanted.and_then(|wanted| wanted.requesters.first().copied());
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn a_key_can_be_refused_to_one_session_alone() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut http = server.http();
        http.send(request("/feed/cold", ""));
        let first = requester(&server, "cold");
        assert_eq!(first.source, u64::from(u32::from_be_bytes([127, 0, 0, 1])));
        // Other requesters of the same key are reported too, on any core.
        let mut others = Vec::new();
        let mut requesters = vec![first];
        for _ in 0..6 {
            others.push(server.ws("/ws?feed=cold"));
            let next = requester(&server, "cold");
            assert!(!requesters.contains(&next));
            requesters.push(next);
        }
        server.update("cold", FeedUpdate::Refuse(first));
        let answer = http.response();
        assert_eq!(answer.status, 429, "{}", answer.text());
        assert!(answer.text().contains("limits.cold_keys_max"), "{}", answer.text());
        // A WebSocket receives an error without an id.
        server.update("cold", FeedUpdate::Refuse(requesters[1]));
        let mut refused = others.remove(0);
        assert_eq!(refused.next_json()["type"], "welcome");
        let error = refused.next_json();
        assert!(error["code"] == "too_many_cold_keys" && error["retry"] == true, "{error}");
        // The other requests keep waiting.
        server.document("cold", "1");
        for ws in &mut others {
            assert_eq!(ws.next_json()["type"], "welcome");
            assert_eq!(ws.next_json()["type"], "snapshot");
        }
        // A key with a document isn't refused.
        server.update("cold", FeedUpdate::Refuse(requesters[2]));
        server.document("cold", "2");
        assert_eq!(others[0].next_json()["offset"], 2);
    });
}

/// Sends requests until the answer has this text, because an update of the control plane takes a moment.
fn until_text(http: &mut Http, target: &str, text: &str) {
    until(&format!("{target} to be {text:?}"), || http.get(target).text() == text);
}

#[test]
fn a_slow_upstream_is_answered_with_504() {
    let time = Duration::from_millis(50);
    let server = Server::start(3, |options| options.limits.request_timeout = time);
    let mut http = server.http();
    for key in ["a", "b", "c", "d"] {
        let answer = http.get(&format!("/feed/{key}"));
        assert_eq!((answer.status, answer.header("connection")), (504, "keep-alive"));
        assert_eq!(answer.header("cache-control"), "no-store");
        server.wait_wanted(key, false);
    }
    assert_eq!(http.get("/healthz").status, 200);
    server.document("a", "1");
    assert_eq!(http.get("/feed/a").text(), "1");
}

#[test]
fn entity_tags_and_head() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        server.document("k", "[1,2]");
        let mut http = server.http();
        let tag = http.get("/feed/k").header("etag").to_owned();
        let check = |http: &mut Http, if_none_match: &str, status: u16, body: &str| {
            http.send(request("/feed/k", &format!("If-None-Match: {if_none_match}\r\n")));
            let answer = http.response();
            assert_eq!((answer.status, answer.text()), (status, body), "{if_none_match}");
            answer.header("etag").to_owned()
        };
        assert_eq!(check(&mut http, &tag, 304, ""), tag);
        check(&mut http, &format!("\"other\", W/{tag}"), 304, "");
        check(&mut http, "*", 304, "");
        check(&mut http, "\"other\"", 200, "[1,2]");
        http.send("HEAD /feed/k HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = http.response_to(true);
        assert_eq!((head.status, head.header("content-length"), head.header("etag")), (200, "5", &*tag));
        // The same bytes keep the version. Other bytes make a new one.
        server.document("k", "[1,2]");
        check(&mut http, &tag, 304, "");
        server.document("k", "[1,3]");
        assert_ne!(check(&mut http, &tag, 200, "[1,3]"), tag);
    });
}

#[test]
fn wait_holds_the_answer_until_there_is_another_version() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut http = server.http();
        server.document("k", "1");
        // A new version ends the wait, and so does the end of a feed.
        let mut tag = http.get("/feed/k").header("etag").to_owned();
        for expect in [(200, "2"), (404, "gone\n")] {
            server.wait_wanted("k", false);
            http.send(request(&format!("/feed/k?wait={}", tag.trim_matches('"')), ""));
            server.wait_wanted("k", true);
            match expect {
                (200, body) => server.document("k", body),
                _ => server.state("k", FeedState::NotFound, "gone"),
            }
            let answer = http.response();
            assert_eq!((answer.status, answer.text()), expect);
            assert_ne!(std::mem::replace(&mut tag, answer.header("etag").to_owned()), tag);
        }
        assert_eq!(tag, "");
    });
}

/// A page that aborts a request closes its connection.
#[test]
fn an_aborted_poll_ends_at_once() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        server.document("k", "1");
        let tag = server.get("/feed/k").header("etag").trim_matches('"').to_owned();
        server.wait_wanted("k", false);
        // After the poll, the client sends nothing, or more requests than the server reads while the poll waits.
        for rest in [String::new(), request("/healthz", "").repeat(1_000)] {
            let mut http = server.http();
            http.send(request(&format!("/feed/k?wait={tag}"), "") + &rest);
            server.wait_wanted("k", true);
            let before = now();
            http.finish_sending();
            server.wait_wanted("k", false);
            server.until_metric("connections", |connections| connections == 0);
            assert!(now() - before < Duration::from_secs(1), "after {:?}", now() - before);
        }
        server.check_balance();
    });
}

/// Keep-alive connections with requests for different cores: no request is lost or reordered.
#[test]
fn a_connection_moves_to_the_core_of_each_request() {
    moves(Server::start(3, |_| {}), 100);
}

#[test]
fn a_connection_moves_between_threads() {
    moves(Server::on_sockets(3, |_| {}), 100);
}

/// The rings are full most of the time, so a request is answered on the core where it arrived.
#[test]
fn a_connection_that_can_not_move_is_served_where_it_is() {
    moves(Server::start(3, |options| options.limits.mailbox_messages_max = 1), 10);
}

fn moves(server: Server, moves_min: u64) {
    let keys: Vec<String> = (0..40).map(|n| format!("k/{n}")).collect();
    for key in &keys {
        server.document(key, &format!("\"document of {key}\""));
    }
    let check = |http: &mut Http, key: &str| {
        let answer = http.response();
        assert_eq!((answer.status, answer.text()), (200, &*format!("\"document of {key}\"")));
    };
    // Each client sends its requests one after the other.
    let mut clients: Vec<Http> = (0..6).map(|_| server.http()).collect();
    for key in &keys {
        for http in &mut clients {
            http.send(request(&format!("/feed/{key}"), ""));
        }
        for http in &mut clients {
            check(http, key);
        }
    }
    let moved = server.metric("connections_migrated");
    assert!(moved > moves_min, "{moved} moves for 6 connections, 40 keys and 3 cores");
    // Pipelined requests, together with requests that any core answers.
    for http in &mut clients {
        for key in &keys {
            http.send(request(&format!("/feed/{key}"), "") + &request("/healthz", ""));
        }
    }
    for http in &mut clients {
        for key in &keys {
            check(http, key);
            assert_eq!(http.response().text(), "ok\n");
        }
    }
    // One client sends its requests in pieces.
    let all: String = keys.iter().map(|key| request(&format!("/feed/{key}"), "")).collect();
    let http = &mut clients[0];
    for byte in all.as_bytes().chunks(7) {
        http.send(byte);
    }
    for key in &keys {
        check(http, key);
    }
    server.until_metric("connections", |connections| connections == 6);
    drop(clients);
    for key in &keys {
        server.wait_wanted(key, false);
        server.update(key, FeedUpdate::Forget);
    }
    server.check_empty();
}

/// The state of one request never affects another one on the same connection, with or without a fetched document, answered at
/// once or late.
#[test]
fn cold_keys_pipelined_over_one_connection_are_answered_in_order() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut http = server.http();
        let keys: Vec<String> = (0..30).map(|n| format!("cold{n}")).collect();
        http.send(keys.iter().map(|key| request(&format!("/feed/{key}"), "")).collect::<String>());
        http.send("HEAD /nothing HTTP/1.1\r\nHost: a\r\n\r\n");
        for (n, key) in keys.iter().enumerate() {
            server.wait_wanted(key, true);
            match n % 3 {
                0 => server.document(key, &n.to_string()),
                1 => server.state(key, FeedState::NotFound, "lost"),
                _ => server.document(key, &format!("\"{}\"", "x".repeat(300_000))),
            }
            let answer = http.response();
            match n % 3 {
                0 => assert_eq!((answer.status, answer.text()), (200, &*n.to_string())),
                1 => assert_eq!((answer.status, answer.text()), (404, "lost\n")),
                _ => assert_eq!((answer.status, answer.body.len()), (200, 300_002)),
            }
            server.wait_wanted(key, false);
        }
        assert_eq!(http.response_to(true).status, 404);
    });
}

/// While a request waits, later ones wait in a bounded buffer, and then in the kernel.
#[test]
fn pipelining_behind_a_request_that_waits_is_bounded() {
    let server = Server::start(1, |options| options.limits.request_timeout = Duration::from_secs(3600));
    let mut http = server.http();
    http.send(request("/feed/cold", ""));
    server.wait_wanted("cold", true);
    let sent = http.stream().send_until_stalled(|sent| {
        assert!(sent < 2_000, "the server reads on");
        request("/healthz", "").repeat(1_000).into()
    });
    // At most some headers and one read are buffered.
    let received = server.metric("received_bytes");
    assert!(received < 200_000, "{received} bytes were read");
    server.document("cold", "1");
    assert_eq!(http.response().text(), "1");
    for _ in 0..(1_000 * sent).min(20_000) {
        assert_eq!(http.response().text(), "ok\n");
    }
}

#[test]
fn sent_bytes_are_counted_for_answers_and_documents() {
    let server = Server::start(1, |_| {});
    let mut http = server.http();
    assert_eq!(http.get("/healthz").text(), "ok\n");
    let answer = server.metric("sent_bytes");
    assert!(answer > 0);
    assert_eq!(http.get("/healthz").text(), "ok\n");
    server.until_metric("sent_bytes", |sent| sent == 2 * answer);
    let document = format!("\"{}\"", "x".repeat(100_000));
    server.document("k", &document);
    assert_eq!(http.get("/feed/k").text(), document);
    let bytes = document.len() as u64;
    server.until_metric("sent_bytes", |sent| (bytes..bytes + 1_000).contains(&(sent - 2 * answer)));
}

#[test]
fn keys_in_paths_are_decoded_once() {
    let server = Server::start(1, |_| {});
    server.document("a-b/c", "1");
    let mut http = server.http();
    assert_eq!(http.get("/feed/a%2Db/c").text(), "1");
    for bad in ["/feed/a-b%2Fc", "/feed/a-b%2fc", "/feed/a%252Db/c", "/feed/%2e%2e/c", "/feed//c", "/feed/c/"]
    {
        assert_eq!(http.get(bad).status, 400, "{bad}");
    }
}

#[test]
fn interest_in_a_key_is_a_level_of_all_clients() {
    let server = Server::start(3, |_| {});
    let mut clients: Vec<Http> = (0..6).map(|_| server.http()).collect();
    for http in &mut clients {
        http.send(request("/feed/shared", ""));
    }
    let mut socket = server.ws("/ws?feed=shared");
    assert_eq!(socket.next_json()["type"], "welcome");
    server.wait_wanted("shared", true);
    server.document("shared", "1");
    for http in &mut clients {
        assert_eq!(http.response().text(), "1");
    }
    assert_eq!(socket.next_json()["data"], 1);
    // One subscriber is left.
    server.wait_wanted("shared", true);
    assert!(server.plane().take_key_interest().iter().all(|wanted| wanted.wanted));
    socket.send_close(1000, "");
    server.wait_wanted("shared", false);
}
