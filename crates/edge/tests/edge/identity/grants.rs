//! Granted subscriptions are kept as long as the clients are subscribed.

use super::{Issuer, Node, join, subscribe};
use crate::harness::on_one_and_three;
use serde_json::json;
use stentor_hub::FeedState;
use stentor_ports::Target;

#[test]
fn grants_end_with_their_subscriptions() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, Issuer::default(), |options| options.limits.subscriptions_max = 3);
        let mut ws = node.user("42");
        let held = || node.metric("memory_bytes{identities}");
        let before = held();
        let long = "x".repeat(200);
        for n in 0..50 {
            let room = format!("public:{n}:{long}");
            assert_eq!(subscribe(&mut ws, &room), "ok");
            assert!(held() - before > 200, "the name is charged");
            ws.ask(json!({"type": "unsubscribe", "room": room}));
        }
        assert_eq!(held(), before, "by the client");
        // With the room that the identity names, two more rooms reach the maximum. The permissions allow a third one, but
        // the client isn't subscribed to it.
        for room in ["public:1", "public:2"] {
            assert_eq!(subscribe(&mut ws, room), "ok");
        }
        let full = held();
        assert_eq!(subscribe(&mut ws, "public:3"), "too_many_subscriptions");
        assert_eq!(held(), full, "not subscribed");
        let everybody = || Target::of("/").unwrap().room("lobby").unwrap();
        assert_eq!(node.leave_rooms(everybody(), &["public:1", "public:2"]).sessions, 1);
        assert_eq!(held(), before, "by the application");
        ws.ask(json!({"type": "subscribe", "feed": "public"}));
        node.state("public", FeedState::NotFound, "no");
        while ws.next_json()["state"] != "not_found" {}
        ws.fence();
        assert_eq!(held(), before, "not found");
        // A subscription by the application, after the client's own has ended, doesn't depend on the client's permissions.
        assert_eq!(subscribe(&mut ws, "public:4"), "ok");
        ws.ask(json!({"type": "unsubscribe", "room": "public:4"}));
        assert_eq!(node.join_rooms(everybody(), &["public:4"]).sessions, 1);
        node.forbid("public:4");
        node.publish("public:4", "4");
        assert_eq!(ws.next_json()["data"], 4);
        assert_eq!(held(), before);

        let mut io = node.socketio_user("42");
        let before = held();
        for _ in 0..2 {
            join(&mut io, "public");
            assert_eq!(io.ask("leave", &[json!("public")]), json!([{"ok": true}]));
        }
        assert_eq!(held(), before, "by a rule");
    });
}
