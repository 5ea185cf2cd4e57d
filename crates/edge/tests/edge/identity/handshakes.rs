//! Tokens in the handshakes of Engine.IO.

use super::{Issuer, Node};
use crate::harness::{Io, Way, Ws, on_one_and_three};
use serde_json::Value;
use stentor_wire::engineio::Version;

#[test]
fn the_identity_in_a_namespace_is_verified_even_after_a_verified_handshake() {
    on_one_and_three(|cores| {
        let issuer = Issuer { lets_anonymous_in: true, ..Issuer::default() };
        let node = Node::start(cores, issuer, |_| {});
        let open = |version, way, token: &str| {
            let mut io = Io::open(node.addr, "/socket.io/", version, way, token);
            io.connect("", Value::Null);
            io
        };
        for (version, way) in [
            (Version::V3, Way::Polling),
            (Version::V3, Way::Socket),
            (Version::V4, Way::Polling),
            (Version::V4, Way::Socket),
        ] {
            for token in ["", "&token=42"] {
                node.issuer.rules.closed.lock().unwrap().insert("/public".into());
                let mut io = open(version, way, token);
                io.send("40/public");
                let answer = io.next_text();
                assert!(answer.starts_with("44/public"), "{version:?} {way:?} {token:?}: {answer}");
                node.issuer.rules.closed.lock().unwrap().clear();
                io.connect("/public", Value::Null);
                if !token.is_empty() {
                    let asked = node.issuer.asked.lock().unwrap();
                    assert_eq!(
                        asked[asked.len() - 2..],
                        ["socketio:42", "socketio:42"],
                        "in the handshake, and then"
                    );
                }
                io.leave();
            }
        }
        // The memory of kept tokens is charged, and freed.
        node.until_metric("identities", |identities| identities == 0);
        node.until_metric("memory_bytes{identities}", |bytes| bytes == 0);
    });
}

#[test]
fn a_subprotocol_with_a_token_is_not_repeated() {
    let node = Node::start(1, Issuer::default(), |_| {});
    let polling = Io::open(node.addr, "/engine.io/", Version::V4, Way::Polling, "&token=42");
    for target in ["/engine.io/?EIO=4&transport=websocket".into(), polling.target("websocket")] {
        let headers = [("Sec-WebSocket-Protocol", "stentor.bearer.42, other")];
        let ws = Ws::open(node.addr, &target, &headers, false).unwrap();
        let head = ws.head.to_ascii_lowercase();
        assert!(head.contains("sec-websocket-protocol: other\r\n") && !head.contains("bearer"), "{head}");
    }
}
