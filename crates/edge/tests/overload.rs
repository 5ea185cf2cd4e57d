//! Over the budget for memory nothing is published, whatever application, rule or protocol would: nothing that others get
//! depends on which of them looks at it.

#![allow(clippy::unwrap_used)] // Tests may panic; clippy knows only functions marked as such.

mod harness;

use harness::{Io, Server, VERSIONS, WAYS, Way, Ws};
use serde_json::json;
use std::time::Duration;
use stentor_edge::{App, Options, Recovery, Rule, Template};

const BYTES_MAX: usize = 200_000;
const DOCUMENT_BYTES: usize = 3_000;

fn server(set: impl FnOnce(&mut Options)) -> Server {
    Server::start(1, |options| {
        options.limits.memory_bytes_max = BYTES_MAX;
        options.heartbeat.interval = Duration::from_secs(3600);
        set(options);
    })
}

/// Puts the server over its budget for as long as the clients that this returns are open: their feeds' documents are
/// larger together, and nobody holds enough to be ended for it.
fn overload(server: &Server) -> Vec<Ws> {
    let keys: Vec<_> = (0..BYTES_MAX / DOCUMENT_BYTES + 1).map(|n| format!("document-{n}")).collect();
    let subscribers = keys.iter().map(|key| server.ws(&format!("/ws/{key}"))).collect();
    for key in &keys {
        server.document(key, &"1".repeat(DOCUMENT_BYTES));
    }
    server.until_metric("memory_bytes{publications}", |bytes| bytes > BYTES_MAX as u64);
    subscribers
}

#[test]
fn a_rule_says_so_in_its_acknowledgement() {
    let server = server(|options| {
        let broadcast = vec![Template::parse("room").unwrap()];
        options.rooms.rules =
            vec![Rule { event: "say".into(), broadcast, ack: true, echo: true, ..Rule::default() }];
    });
    let mut clients = Vec::new();
    for version in VERSIONS {
        for way in WAYS {
            let mut io = Io::open(server.addr, "/socket.io/", version, way, "");
            io.connect("", json!(null));
            clients.push((version, way, io));
        }
    }
    let _subscribers = overload(&server);
    for (version, way, mut io) in clients {
        let answer = io.ask("say", &[json!("hello")]);
        assert_eq!(answer[0]["code"], "overloaded", "{version:?} {way:?}: {answer}");
        io.leave();
    }
    server.until_metric("publications_refused", |refused| refused == 6);
}

#[test]
fn a_chat_says_nothing() {
    let server = server(|options| options.app = App::Chat);
    let mut plain = server.ws("/ws");
    let mut io = Io::socket(&server, Way::Socket);
    io.connect("", json!(null));
    let _subscribers = overload(&server);
    plain.send_text("hello");
    io.send(r#"42["hello"]"#);
    io.send(r#"427["hello"]"#);
    server.until_metric("publications_refused", |refused| refused == 3);
    assert_eq!(plain.fence(), []);
}

#[test]
fn an_echo_answers_and_keeps_nothing() {
    let server = server(|options| {
        options.app = App::Echo;
        options.engine.recovery = Some(Recovery::default());
    });
    let mut io = Io::socket(&server, Way::Socket);
    io.connect("", json!(null));
    let _subscribers = overload(&server);
    io.send(r#"42["hello",1]"#);
    io.expect(r#"42["hello",1]"#);
    assert_eq!(server.metric("socketio_recovery_publications"), 0);
}
