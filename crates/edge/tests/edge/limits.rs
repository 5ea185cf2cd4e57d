//! A test for each limit of [`Limits`](stentor_edge::Limits). Limits that need a larger test are in another file:
//!
//! | limit | test |
//! |---|---|
//! | `message_timeout` | `websocket.rs`: `a_message_that_does_not_end_in_time_ends_the_session` |
//! | `fragments_max` | `websocket.rs`: `as_many_fragments_as_the_limit_says` |
//! | `body_bytes_max` | `http.rs`: `bodies_that_are_too_large_or_broken_end_the_connection_after_one_answer` |
//! | `header_timeout`, `idle_timeout` | `http.rs`: `a_head_that_does_not_end_is_answered_408` and those after it |
//! | `request_timeout` | `feed.rs`: `a_slow_upstream_is_answered_with_504` |
//! | `close_timeout` | `backpressure.rs`: `a_client_that_never_reads_its_answers_is_disconnected` |
//! | `send_buffer_bytes_max` | `backpressure.rs`: `a_slow_member_is_ended_and_the_others_do_not_notice` |
//! | `replies_bytes_max` | `backpressure.rs`: `a_server_that_is_not_read_from_stops_reading` |
//! | `mailbox_messages_max` | `backpressure.rs`: `speakers_keep_their_order_and_full_rings_only_slow_them_down` |

use crate::harness::{Http, Server, Ws};
use serde_json::json;
use std::time::Duration;
use stentor_edge::App;
use stentor_hub::{Data, Document, Key, Room};
use stentor_ports::{Busy, FeedUpdate, Publish};

#[test]
fn message_bytes_max() {
    let server = Server::start(1, |options| {
        options.app = App::Echo;
        options.limits.message_bytes_max = 1000;
    });
    let mut ws = server.ws("/ws");
    ws.send_text(&"x".repeat(1000));
    assert_eq!(ws.next_text().len(), 1000);
    ws.send_text(&"x".repeat(1001));
    assert_eq!(ws.expect_close().0, 1009);
    server.check_serves();
    server.check_empty();
}

#[test]
fn head_bytes_max_and_headers_max() {
    let server = Server::start(1, |options| {
        options.limits.header_bytes_max = 500;
        options.limits.headers_max = 5;
    });
    let check = |headers: &str, status: u16| {
        assert_eq!(
            server.ask(format!("GET /healthz HTTP/1.1\r\nHost: a\r\n{headers}\r\n")).status,
            status,
            "{headers:.20}"
        );
    };
    check(&"X: y\r\n".repeat(4), 200);
    check(&"X: y\r\n".repeat(5), 431);
    check(&format!("X: {}\r\n", "y".repeat(440)), 200);
    check(&format!("X: {}\r\n", "y".repeat(500)), 431);
    server.check_empty();
}

#[test]
fn json_depth_max() {
    let server = Server::start(1, |options| {
        options.rooms.publish = true;
        options.limits.json_depth_max = 10;
    });
    let mut ws = server.client();
    let publish = |data: &str| format!(r#"{{"type":"publish","room":"r","data":{data}}}"#);
    let deep = |open: &str, close: &str, n| open.repeat(n) + "1" + &close.repeat(n);
    ws.send_text(&publish(&deep("[", "]", 10)));
    assert_eq!(ws.next_json()["type"], "ok");
    for data in [deep("[", "]", 11), deep("[", "]", 100_000), deep("{\"a\":", "}", 100_000)] {
        for (message, code) in [
            (publish(&data), "too_deep"),
            (format!(r#"{{"type":{data}}}"#), "bad_json"),
            (data.clone(), if data.starts_with('[') { "bad_json" } else { "bad_request" }),
        ] {
            ws.send_text(&message);
            assert_eq!(ws.next_json()["code"], code, "{message:.30}");
        }
    }
    ws.ask(json!({"type": "ping"}));
}

#[test]
fn subscriptions_max() {
    let server = Server::start(1, |options| options.limits.subscriptions_max = 3);
    let mut ws = server.client();
    ws.ask(json!({"type": "subscribe", "room": "a"}));
    ws.ask(json!({"type": "subscribe", "feed": "a"}));
    ws.ask(json!({"type": "subscribe", "room": "b"}));
    ws.ask(json!({"type": "subscribe", "room": "b"}));
    for _ in 0..2 {
        ws.send_json(json!({"type": "subscribe", "room": "c"}));
        assert_eq!(ws.next_json()["code"], "too_many_subscriptions");
    }
    ws.ask(json!({"type": "unsubscribe", "room": "a"}));
    ws.ask(json!({"type": "subscribe", "room": "c"}));
    // Feeds in the query count as well.
    let mut ws = server.ws("/ws?feed=a&feed=b&feed=c&feed=d");
    assert_eq!(ws.next_json()["type"], "welcome");
    assert_eq!(ws.expect_close().0, 4401);
}

#[test]
fn topics_max() {
    let server = Server::start(1, |options| options.limits.topics_max = 2);
    let mut ws = server.client();
    ws.ask(json!({"type": "subscribe", "room": "a"}));
    ws.ask(json!({"type": "subscribe", "feed": "a"}));
    ws.send_json(json!({"type": "subscribe", "room": "b"}));
    let error = ws.next_json();
    assert_eq!((&error["code"], &error["retry"]), (&json!("too_many_topics"), &json!(true)));
    // Requests receive the error in their order, and the connection continues.
    let mut http = server.http();
    http.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nGET /feed/b HTTP/1.1\r\nHost: a\r\n\r\n");
    http.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!([http.response().status, http.response().status, http.response().status], [200, 503, 200]);
    let mut refused = server.ws("/ws?feed=b");
    assert_eq!(refused.next_json()["type"], "welcome");
    assert_eq!(refused.expect_close().0, 4502);
    assert_eq!(server.ws("/ws/b").expect_close().0, 4502);
    // The end of a subscription makes room.
    ws.ask(json!({"type": "unsubscribe", "room": "a"}));
    ws.ask(json!({"type": "subscribe", "room": "b"}));
}

#[test]
fn connections_max() {
    let server = Server::start(1, |options| {
        options.app = App::Echo;
        options.limits.connections_max = 5;
    });
    let clients: Vec<Ws> = (0..5).map(|_| server.ws("/ws")).collect();
    for _ in 0..10 {
        let mut refused = Http::connect(server.addr);
        assert_eq!(refused.rest(), b"");
    }
    assert_eq!(server.metric("connections_refused"), 10);
    server.until_metric("connections", |open| open == 5);
    for mut ws in clients {
        ws.echoes("still here");
    }
    server.check_empty();
    server.check_serves();
}

/// Above the memory budget, the control plane must wait and is notified when there is space; clients receive an error and may
/// publish later; and the session with the most pending deliveries is closed.
#[test]
fn memory_bytes_max() {
    let server = Server::start(1, |options| {
        options.rooms.publish = true;
        options.limits.memory_bytes_max = 2_000_000;
        options.limits.send_buffer_bytes_max = 100_000_000;
        options.heartbeat.interval = Duration::from_secs(3600);
        options.limits.close_timeout = Duration::from_millis(10);
    });
    let mut slow = server.client();
    slow.ask(json!({"type": "subscribe", "room": "r"}));
    let mut other = server.client();
    let spaces = server.spaces();
    let room = Room::plain("r").unwrap();
    let data = Data::Json(format!("\"{}\"", "x".repeat(100_000)).into());
    let mut published = 0;
    let publish = || server.plane().publish(Publish { room: room.clone(), event: None, data: data.clone() });
    // The slow client may be closed before any publication is refused.
    while publish() != Err(Busy) && server.disconnects("overloaded") == 0 {
        published += 1;
        server.until_metric("inbox_messages", |waiting| waiting == 0);
        assert!(published < 1000, "the budget is not held");
    }
    other.send_json(json!({"type": "publish", "room": "r", "data": 1}));
    let error = other.next_json();
    // The slow client may have been closed already.
    assert!(error["code"] == "overloaded" || server.disconnects("overloaded") == 1, "{error}");
    server.until_metric("memory_overloads", |overloads| overloads > 0);
    server.until_metric("memory_bytes{publications}", |bytes| bytes == 0);
    assert_eq!(server.disconnects("overloaded"), 1);
    drop(slow);
    // The control plane is notified of space after each accepted publication.
    server.wait_space(spaces + published - 1);
    other.ask(json!({"type": "publish", "room": "r", "data": 1}));
}

/// Commands of the control plane for a busy core wait in a bounded inbox.
#[test]
fn inbox_messages_max_and_inbox_bytes_max() {
    let check = |messages_max: usize, bytes_max: usize, len: usize, expect: usize| {
        let server = Server::start(1, |options| {
            options.limits.inbox_messages_max = messages_max;
            options.limits.inbox_bytes_max = bytes_max;
        });
        server.stop_core(0, true);
        let spaces = server.spaces();
        let key = Key::parse("k").unwrap();
        let document = |n: usize| {
            let body = format!("{n:len$}");
            let content_type = "text/plain".into();
            FeedUpdate::Changed(Document { body: body.into(), json: false, content_type }.into())
        };
        let taken = (0..1000).take_while(|n| server.plane().update_feed(&key, document(*n)).is_ok()).count();
        assert_eq!(taken, expect);
        assert_eq!(server.metric("inbox_messages"), expect as u64);
        assert_eq!(server.metric("inbox_bytes"), (expect * len) as u64);
        assert_eq!(server.spaces(), spaces);
        server.stop_core(0, false);
        server.wait_space(spaces);
        assert_eq!(server.metric("inbox_bytes"), 0);
        assert_eq!(server.http().get("/feed/k").text().trim(), (expect - 1).to_string());
        server.update("k", document(1000));
    };
    check(10, 1 << 20, 100, 10);
    check(1000, 1000, 100, 10);
    // An empty inbox accepts a command that is larger than `inbox_bytes_max`.
    check(1000, 1000, 5000, 1);
}

/// Attack S1: an error that repeats the client's text would be many times longer than the text, because of its escapes.
#[test]
fn an_error_text_is_short_whatever_was_sent() {
    let server = Server::start(1, |_| {});
    let mut ws = server.client();
    let hostile = "\u{7f}\\u0001\\\"é".repeat(50_000);
    for message in [
        format!(r#"{{"type":"ping","epoch":"{hostile}"}}"#),
        format!(r#"{{"type":"{hostile}"}}"#),
        format!(r#"{{"type":"subscribe","feed":"{hostile}"}}"#),
        format!(r#"{{"type":"subscribe","room":"r","policy":"{hostile}"}}"#),
        hostile,
    ] {
        ws.send_text(&message);
        let answer = ws.next_text();
        let sent = answer.split(r#""message":""#).nth(1).unwrap().rsplit_once(r#"","retry""#).unwrap().0;
        assert!(sent.len() <= 256, "{} bytes", sent.len());
    }
}
