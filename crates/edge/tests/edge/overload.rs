//! Above the memory budget, no application, rule or protocol publishes.

use crate::harness::{Io, Server, TRANSPORTS, UPGRADE, Way, Ws, request};
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
fn a_rule_refuses_in_its_acknowledgement() {
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
fn a_chat_publishes_nothing() {
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
fn an_echo_answers_and_keeps_nothing_for_recovery() {
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

/// A client that keeps its compression context needs a window.
#[test]
fn no_window_is_allocated() {
    let server = server(|options| options.app = App::Echo);
    let offer = |agent: &str| {
        let headers = format!("{UPGRADE}{agent}Sec-WebSocket-Extensions: permessage-deflate\r\n");
        request("GET", "/ws", &headers)
    };
    let [mut first, mut second] = [0, 1].map(|_| {
        let mut http = server.http();
        http.send(offer(""));
        Ws::answered(http.into_stream(), None).unwrap()
    });
    first.send_deflated("one");
    assert_eq!(first.next_text(), "one");
    let [mut other, mut browser] = [0, 1].map(|_| server.http());
    let _subscribers = server.overload(BUDGET);
    // The first client already has a window.
    first.send_deflated("two");
    assert_eq!(first.next_text(), "two");
    second.echoes("plain");
    second.send_deflated("one");
    assert_eq!(second.expect_close().0, 4502);
    assert_eq!(server.metric("memory_inputs_refused"), 1);
    assert_eq!(other.ask(offer("")).header("sec-websocket-extensions"), "");
    let answer = browser.ask(offer("User-Agent: Mozilla/5.0\r\n"));
    assert!(answer.header("sec-websocket-extensions").contains("client_no_context_takeover"));
}

/// Each part of the packet is small, but their sum isn't.
#[test]
fn a_client_that_grows_ends() {
    let server = server(|_| {});
    let mut io = Io::socket(&server, Way::Socket);
    io.connect("", json!(null));
    let _subscribers = server.overload(BUDGET);
    let placeholders = [0, 1, 2].map(|number| json!({"_placeholder": true, "num": number}));
    io.send(&format!("453-{}", json!(["say", placeholders])));
    assert_eq!(server.metric("memory_inputs_refused"), 0);
    io.send_binary(&[7; 12_000]);
    io.send_binary(&[7; 12_000]);
    server.until_metric("memory_inputs_refused", |refused| refused == 1);
    io.expect_end();
}
