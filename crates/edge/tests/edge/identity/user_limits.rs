//! Limits per user.

use super::{Issuer, Node};
use crate::harness::{Io, Seen, Way, Ws, on_one_and_three, until};
use serde_json::json;
use stentor_edge::Recovery;

#[test]
fn the_number_of_sessions_of_a_user_is_limited() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, Issuer::default(), |options| {
            options.user_limits.sessions_max = 2;
            options.engine.recovery = Some(Recovery::default());
        });
        let ws = |token: &str| Ws::open(node.addr, &format!("/ws?token={token}"), &[], false);
        let first = ws("seven").unwrap();
        let mut io = Io::socket(&node, Way::Socket);
        let pid = io.connect("", json!({"token": "seven"}))["pid"].clone();
        // The limit applies to each protocol. Other users aren't affected.
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
        // A recovered session doesn't count as a new one. A session that ends makes room for another one.
        io.cut();
        node.until_metric("socketio_recovery_sockets", |value| value == 1);
        let mut io = Io::socket(&node, Way::Socket);
        io.connect("", json!({"token": "seven", "pid": pid}));
        drop(first);
        until("a place for the session", || ws("seven").is_ok());
    });
}

#[test]
fn an_anonymous_session_that_becomes_a_users_counts() {
    on_one_and_three(|cores| {
        let issuer = Issuer { lets_anonymous_in: true, ..Issuer::default() };
        let node = Node::start(cores, issuer, |options| options.user_limits.sessions_max = 2);
        let mut all = node.clients(4);
        for ws in &mut all {
            ws.send_json(json!({"type": "auth", "id": 1, "token": "seven.1"}));
        }
        node.until_metric("sessions_limited", |value| value == 2);
        let is_open = |ws: &mut Ws| {
            ws.expect_json(json!({"type": "ok", "id": 1}));
            ws.send_json(json!({"type": "auth", "id": 2, "token": "seven.2"}));
            matches!(ws.next(), Seen::Text(_))
        };
        assert_eq!(all.iter_mut().filter_map(|ws| is_open(ws).then_some(())).count(), 2);
        assert_eq!(node.disconnects("too_many_requests"), 2);
        // Other users aren't affected.
        let mut other = node.client();
        other.ask(json!({"type": "auth", "token": "eight"}));
        other.fence();
    });
}
