//! Sessions of a user.

use super::{Issuer, Node};
use crate::harness::{Io, Way, Ws, on_one_and_three, until};
use serde_json::json;
use stentor_edge::Recovery;

#[test]
fn a_user_has_so_many_sessions() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, Issuer::default(), |options| {
            options.user_limits.sessions_max = 2;
            options.engine.recovery = Some(Recovery::default());
        });
        let ws = |token: &str| Ws::open(node.addr, &format!("/ws?token={token}"), &[], false);
        let first = ws("seven").unwrap();
        let mut io = Io::socket(&node, Way::Socket);
        let pid = io.connect("", json!({"token": "seven"}))["pid"].clone();
        // On every protocol; another user isn't concerned.
        assert_eq!(ws("seven").err(), Some(429));
        let mut refused = Io::socket(&node, Way::Polling);
        refused.send(r#"40{"token":"seven"}"#);
        let answer = refused.next_text();
        assert!(answer.starts_with("44") && answer.contains("too_many_requests"), "{answer}");
        let mut http = node.http();
        let response = http.get("/sse/user:seven?token=seven");
        assert_eq!((response.status, response.header("Retry-After")), (429, "5"), "{response:?}");
        let _other = ws("eight").unwrap();
        node.until_metric("sessions_limited", |value| value == 3);
        // A session that is recovered is no new one, and one that ends makes room.
        io.cut();
        node.until_metric("socketio_recovery_sockets", |value| value == 1);
        let mut io = Io::socket(&node, Way::Socket);
        io.connect("", json!({"token": "seven", "pid": pid}));
        drop(first);
        until("a place for the session", || ws("seven").is_ok());
    });
}
