//! Above the memory budget, no application, rule or protocol publishes anything.

use crate::harness::{Io, Server, TRANSPORTS, Way};
use serde_json::json;
use std::time::Duration;
use stentor_edge::{App, Options, Recovery, Rule, Template};

const BUDGET: usize = 200_000;

fn server(set: impl FnOnce(&mut Options)) -> Server {
    Server::start(1, |options| {
        options.limits.memory_bytes_max = BUDGET;
        options.heartbeat.interval = Duration::from_secs(3600);
        set(options);
    })
}

#[test]
fn a_rule_says_so_in_its_acknowledgement() {
    let server = server(|options| {
        let broadcast = vec![Template::parse("room").unwrap()];
        options.rooms.rules =
            vec![Rule { event: "say".into(), broadcast, ack: true, echo: true, ..Rule::default() }];
    });
    let mut clients = Vec::new();
    for (version, way) in TRANSPORTS {
        let mut io = Io::open(server.addr, "/socket.io/", version, way, "");
        io.connect("", json!(null));
        clients.push((version, way, io));
    }
    let _subscribers = server.overload(BUDGET);
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
    let _subscribers = server.overload(BUDGET);
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
    let _subscribers = server.overload(BUDGET);
    io.echoes(r#"42["hello",1]"#);
    assert_eq!(server.metric("socketio_recovery_publications"), 0);
}
