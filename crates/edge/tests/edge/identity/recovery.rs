//! Only the same user can recover a socket.

use super::{Issuer, Node, join, subscribe};
use crate::harness::{Io, Way, on_one_and_three};
use serde_json::{Value, json};
use stentor_edge::Recovery;

#[test]
fn only_the_same_user_recovers_a_socket() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, Issuer::default(), |options| {
            options.engine.recovery = Some(Recovery::default())
        });
        let mut others = node.ws_on_each_core("/ws?token=42.1");
        for ws in &mut others {
            ws.next_json();
            assert_eq!(subscribe(ws, "user:42"), "ok");
        }
        let lose = |token: &str| {
            let mut io = Io::socket(&node, Way::Socket);
            let pid = io.connect("", json!({"token": token}))["pid"].clone();
            ["public", "user:42"].iter().for_each(|room| join(&mut io, room));
            io.cut();
            node.until_metric("socketio_recovery_sockets", |sockets| sockets == 1);
            pid
        };
        let back = |pid: &Value, token: &str| {
            let mut io = Io::socket(&node, Way::Socket);
            io.send(&format!("40{}", json!({"pid": pid, "token": token})));
            let mut missed = Vec::new();
            loop {
                let packet = io.next_text();
                match packet.strip_prefix("40") {
                    Some(answer) => {
                        let answer: Value = serde_json::from_str(answer).unwrap();
                        return (io, answer["pid"] == *pid, missed);
                    }
                    None => missed.push(packet[..packet.find(',').unwrap_or(packet.len())].to_owned()),
                }
            }
        };
        let pid = lose("42.1");
        node.publish("public", "1");
        let (_other, recovered, missed) = back(&pid, "43");
        assert_eq!((recovered, missed), (false, vec![]), "another user's");
        // Changed permissions apply to missed messages. All cores have the message once clients on each core have
        // received it.
        node.publish("user:42", "2");
        for ws in &mut others {
            assert_eq!(ws.next_json()["data"], 2);
        }
        node.issuer.rules.forbidden.lock().unwrap().insert("public".into());
        let (_same, recovered, missed) = back(&pid, "42.2");
        assert!(recovered);
        assert_eq!(missed.len(), 1, "{missed:?}");
        node.issuer.rules.forbidden.lock().unwrap().clear();
        node.until_metric("socketio_recovery_sockets", |sockets| sockets == 0);
        // The missed messages of a revoked user are dropped.
        lose("42.3");
        assert!(node.revoke("42").refused >= 1);
        node.until_metric("socketio_recovery_sockets", |sockets| sockets == 0);
    });
}
