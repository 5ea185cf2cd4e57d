//! Refused tokens count as work of the connections that present them.

use super::{Issuer, Node, request};
use crate::harness::ws::frame;
use crate::harness::{Io, Way};
use stentor_wire::ws::Opcode;

/// Number of refused tokens after which a Socket.IO connection ends.
const REFUSED_MAX: usize = 100;

#[test]
fn tokens_that_are_refused_use_up_the_share_of_a_turn() {
    let node = Node::start(1, Issuer { lets_anonymous_in: true, ..Issuer::default() }, |_| {});
    let mut yields = 0;
    let mut yielded = |what: &str| {
        let now = node.metric("turn_yields");
        assert!(now >= yields + 5, "{what}: {now} yields, {yields} before");
        yields = now;
    };
    let texts = |text: &str| frame(Opcode::Text, text.as_bytes(), true, false).repeat(60);
    let mut io = Io::socket(&node, Way::Socket);
    io.ws().send_raw(&texts(r#"40{"token":"bad"}"#));
    for _ in 0..60 {
        assert!(io.next_text().starts_with("44"));
    }
    yielded("CONNECT");
    let mut ws = node.client();
    ws.send_raw(&texts(r#"{"type":"auth","token":"bad"}"#));
    for _ in 0..60 {
        assert_eq!(ws.next_json()["code"], "token_invalid");
    }
    yielded("auth");
    let mut http = node.http();
    http.send(request("/feed/public?token=bad", &[]).repeat(60));
    for _ in 0..60 {
        assert_eq!(http.response().status, 401);
    }
    yielded("requests");
    // A cached token doesn't count as work.
    ws.send_raw(&texts(r#"{"type":"auth","token":"42"}"#));
    for _ in 0..60 {
        assert_eq!(ws.next_json()["type"], "ok");
    }
    assert_eq!(node.metric("turn_yields"), yields);
}

#[test]
fn a_connection_ends_after_many_refused_tokens() {
    for way in [Way::Socket, Way::Polling] {
        let node = Node::start(1, Issuer { lets_anonymous_in: true, ..Issuer::default() }, |_| {});
        let mut io = Io::socket(&node, way);
        for _ in 0..REFUSED_MAX {
            io.send(r#"40{"token":"bad"}"#);
            assert!(io.next_text().starts_with("44"));
        }
        assert_eq!(node.disconnects("too_many_requests"), 0);
        io.send(r#"40{"token":"bad"}"#);
        io.expect_end();
        assert_eq!(node.disconnects("too_many_requests"), 1);
    }
}
