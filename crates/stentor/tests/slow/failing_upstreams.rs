//! Tests that waiting clients, the log and the metrics receive the cause of an upstream's failure at once.

use crate::process::{self, Subscriber, answer, ask, until_metric, upstream};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// For each failure: the key that causes it, the reason that clients receive, and the label in the metrics.
const FAILURES: [(&str, &str, &str); 5] = [
    ("500", "the upstream answered 500", "server_error"),
    ("401", "the upstream answered 401", "unauthorized"),
    ("html", "the upstream's document is not JSON", "not_json"),
    ("cut", "the upstream's document is not valid JSON", "invalid_json"),
    ("down", "the upstream can't be reached", "connect"),
];

fn respond(head: &str) -> (&'static str, &'static str) {
    match head.split(' ').nth(1).unwrap().rsplit('/').next().unwrap() {
        "500" => ("500 Internal Server Error\r\nContent-Type: application/json", "{\"error\":true}"),
        "401" => ("401 Unauthorized\r\nContent-Type: application/json", "{}"),
        "html" => ("200 OK\r\nContent-Type: text/html; charset=utf-8", "<title>Sign in</title>"),
        _ => ("200 OK\r\nContent-Type: application/json", "{\"home\": 1, \"aw"),
    }
}

#[test]
fn waiting_subscribers_receive_the_cause_at_once() {
    let is_well = Arc::new(AtomicBool::new(false));
    let becomes_well = is_well.clone();
    let addr = upstream(move |head| match becomes_well.load(Ordering::SeqCst) {
        true => ("200 OK\r\nContent-Type: application/json", "1"),
        false => respond(head),
    });
    // A bound socket that doesn't listen refuses connections, and keeps the port reserved.
    let closed = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    closed.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let down = closed.local_addr().unwrap().as_socket().unwrap();
    // `request_timeout` is longer than the test's own timeout, so the test fails if a client is answered only
    // by timeout.
    let server = process::start(&format!(
        "[limits]\nrequest_timeout = \"10min\"\n\
         [feeds_limits]\nbackoff_initial = \"20ms\"\nbackoff_max = \"20ms\"\n\
         [[feeds]]\nname = \"api\"\nprefix = \"api/\"\nurl = \"http://{addr}\"\npoll_interval = \"1h\"\n\
         [[feeds]]\nname = \"down\"\nprefix = \"down/\"\nurl = \"http://{down}\"\n"
    ));
    let key = |what: &str| if what == "down" { "down/down".into() } else { format!("api/{what}") };
    let mut subscribers = Vec::new();
    for (what, reason, failure) in FAILURES {
        let key = key(what);
        assert_eq!(answer(ask(&server.addr, "GET", &format!("/feed/{key}"), "")), (502, reason.to_owned()));
        let state = format!(r#"{{"type":"state","feed":"{key}","state":"stale","reason":"{reason}"}}"#);
        let mut socket = Subscriber::open(&server.addr, &format!("/ws?feed={key}"));
        assert!(socket.receive().contains(r#""type":"welcome""#));
        assert_eq!(socket.receive(), state);
        let mut events = Subscriber::events(&server.addr, &format!("/sse/{key}"));
        let event = events.data();
        assert!(event.contains(r#""state":"stale""#) && event.contains(reason), "{event}");
        subscribers.push((socket, events));
        let name = if what == "down" { "down" } else { "api" };
        let keys = format!("stentor_feed_failing_keys{{upstream=\"{name}\",failure=\"{failure}\"}}");
        until_metric(&server.admin, &keys, |keys| keys == 1.0);
        // The upstream fails repeatedly, which the log reports once.
        let fetches =
            format!("stentor_feed_fetches_total{{upstream=\"{name}\",outcome=\"failed_{failure}\"}}");
        until_metric(&server.admin, &fetches, |fetches| fetches >= 3.0);
        let line = ["fetches fail", &format!("upstream=\"{name}\""), &format!("failure=\"{failure}\"")];
        assert_eq!(server.until_logged(&line, 1), 1, "{failure}");
    }
    is_well.store(true, Ordering::SeqCst);
    for ((what, _, failure), (socket, _)) in FAILURES.iter().zip(&mut subscribers) {
        if *what == "down" {
            continue;
        }
        assert!(socket.receive().contains(r#""type":"snapshot""#), "{what}");
        server.until_logged(&["fetches no longer fail", &format!("failure=\"{failure}\"")], 1);
        assert_eq!(
            answer(ask(&server.addr, "GET", &format!("/feed/{}", key(what)), "")),
            (200, "1".to_owned())
        );
    }
    assert_eq!(server.until_logged(&["fetches fail"], FAILURES.len()), FAILURES.len());
}
