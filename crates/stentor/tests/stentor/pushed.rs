//! Tests of keys that are only pushed (`[[feeds]] push = true`), with the binary: early subscribers of every
//! transport wait, and receive the document that a backend pushes to the admin port. docs/feeds.md,
//! "Pushing", has the rules.

use crate::process::{self, Server, Subscriber, answer, ask, until_metrics};

const FEEDS: &str = "[[feeds]]\nname = \"live\"\nkey = \"live/{id}\"\npush = true\n\
                     [[feeds]]\nname = \"api\"\nprefix = \"api/\"\nurl = \"http://127.0.0.1:9\"\n";

fn start(request_timeout: &str) -> Server {
    process::start(&format!("[limits]\nrequest_timeout = \"{request_timeout}\"\n{FEEDS}"))
}

fn push(server: &Server, key: &str, document: &str) -> (u16, String) {
    answer(ask(&server.admin, "PUT", &format!("/api/v1/feeds/{key}"), document))
}

/// Waits until the server has removed all subscribers of keys that are not found. A client that subscribes
/// before receives `not_found` once more.
fn until_no_subscriber_is_left(server: &Server) {
    until_metrics(&server.admin, |metrics| {
        let mut topics = metrics.lines().filter(|line| line.starts_with("stentor_topics{")).peekable();
        assert!(topics.peek().is_some(), "{metrics}");
        topics.all(|line| line.ends_with(" 0"))
    });
}

#[test]
fn an_early_subscriber_waits_for_the_first_push() {
    let server = start("5min");
    let mut client = Subscriber::open(&server.addr, "/ws");
    assert!(client.receive().starts_with("{\"type\":\"welcome\","));
    client.send_text(r#"{"id":1,"type":"subscribe","feed":"live/1"}"#);
    assert_eq!(client.receive(), r#"{"type":"ok","id":1}"#);
    // Subscribes to a key that is neither fetched nor configured as pushed.
    client.send_text(r#"{"id":2,"type":"subscribe","feed":"other/1"}"#);
    assert_eq!(client.receive(), r#"{"type":"ok","id":2}"#);
    let lost = client.receive();
    assert!(lost.starts_with(r#"{"type":"state","feed":"other/1","state":"not_found","#), "{lost}");
    assert_eq!(answer(ask(&server.addr, "GET", "/feed/other/1", "")).0, 404);
    assert_eq!(Subscriber::open(&server.addr, "/ws/other/1").receive(), "close 4404");

    let mut raw = Subscriber::open(&server.addr, "/ws/live/1");
    let mut events = Subscriber::events(&server.addr, "/sse/live/1");
    let get = ask(&server.addr, "GET", "/feed/live/1", "");
    assert_eq!(push(&server, "live/1", r#"{ "minute": 1 }"#), (200, r#"{"changed":true}"#.into()));
    // The first message about the pushed key is its document.
    let snapshot = client.receive();
    assert!(snapshot.starts_with(r#"{"type":"snapshot","feed":"live/1","#), "{snapshot}");
    assert!(snapshot.ends_with(r#""state":"live","data":{"minute":1}}"#), "{snapshot}");
    assert_eq!(raw.receive(), r#"{"minute":1}"#);
    assert!(events.data().contains(r#"{"minute":1}"#));
    assert_eq!(answer(get), (200, r#"{"minute":1}"#.into()));

    // Pushing the same value makes no new version. Pushing another value does.
    assert_eq!(push(&server, "live/1", r#"{"minute":1.0}"#), (200, r#"{"changed":false}"#.into()));
    assert_eq!(push(&server, "live/1", r#"{"minute":2}"#), (200, r#"{"changed":true}"#.into()));
    let newer = client.receive();
    assert!(newer.contains(r#""offset":2"#) && newer.contains('2'), "{newer}");
    assert_eq!(raw.receive(), r#"{"minute":2}"#);
    assert!(events.data().contains(r#"{"minute":2}"#));

    // The deletion ends all subscriptions. Later subscribers wait again.
    assert_eq!(answer(ask(&server.admin, "DELETE", "/api/v1/feeds/live/1", "")).0, 200);
    let lost = client.receive();
    assert!(lost.starts_with(r#"{"type":"state","feed":"live/1","state":"not_found","#), "{lost}");
    assert_eq!(raw.receive(), "close 4404");
    until_no_subscriber_is_left(&server);
    client.send_text(r#"{"id":3,"type":"subscribe","feed":"live/1"}"#);
    assert_eq!(client.receive(), r#"{"type":"ok","id":3}"#);
    assert_eq!(push(&server, "live/1", r#"{"minute":3}"#), (200, r#"{"changed":true}"#.into()));
    let again = client.receive();
    assert!(again.ends_with(r#""state":"live","data":{"minute":3}}"#), "{again}");

    // A key that is fetched can't be pushed. A key that matches no `[[feeds]]` can.
    let refused = push(&server, "api/1", "1");
    assert!(refused.0 == 409 && refused.1.starts_with(r#"{"code":"fetched","#), "{refused:?}");
    assert_eq!(push(&server, "other/1", "1"), (200, r#"{"changed":true}"#.into()));
    assert_eq!(answer(ask(&server.addr, "GET", "/feed/other/1", "")), (200, "1".into()));
}

#[test]
fn a_get_waits_until_its_timeout() {
    let server = start("100ms");
    assert_eq!(answer(ask(&server.addr, "GET", "/feed/live/1", "")).0, 504);
}
