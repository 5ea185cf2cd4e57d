//! Primus.

use crate::harness::{HOUR, Seen, Server, Ws, on_one_and_three, pass, takes};
use serde_json::{Value, json};
use std::time::Duration;
use stentor_edge::{App, Heartbeat};
use stentor_hub::FeedState;
use stentor_wire::ws::Opcode;

/// A client's connection.
fn connect(server: &Server, query: &str) -> Ws {
    server.ws(&format!("/primus/?_primuscb=P{query}"))
}

fn say(ws: &mut Ws, value: &Value) {
    ws.send_text(&value.to_string());
}

#[test]
fn echoes_values_as_they_are() {
    let server = Server::start(1, |options| options.app = App::Echo);
    let mut ws = connect(&server, "");
    for value in
        [json!("text"), json!(""), json!({"a": [1, null]}), json!([1]), json!(7), json!(true), json!("{}")]
    {
        say(&mut ws, &value);
        ws.expect_json(value);
    }
    // Characters that old browsers take for the end of a line are escaped.
    ws.send_text("{\"a\":\"\u{2028}\"}");
    assert_eq!(ws.next_text(), r#"{"a":"\u2028"}"#);
    ws.send_text(" \n\"spaces\" ");
    assert_eq!(ws.next_text(), r#""spaces""#);
    // Messages of the protocol, and messages that only look like it.
    say(&mut ws, &json!("primus::pong::1"));
    say(&mut ws, &json!("primus::unknown::1"));
    say(&mut ws, &json!("primus::id::"));
    let id = ws.next_json();
    assert!(id.as_str().unwrap().strip_prefix("primus::id::").unwrap().len() == 20, "{id}");
    say(&mut ws, &json!("primus::id::"));
    ws.expect_json(id);
}

#[test]
fn invalid_json_ends_the_connection_for_good() {
    let server = Server::start(1, |options| options.app = App::Echo);
    let deep = "[".repeat(200);
    let texts = ["", "{", "[1] 2", "nope", &deep].map(|text| (Opcode::Text, text));
    for (opcode, bad) in texts.into_iter().chain([(Opcode::Binary, "\"x\"")]) {
        let mut ws = connect(&server, "");
        ws.send_frame(opcode, bad.as_bytes(), true, false);
        ws.expect_json(json!("primus::server::close"));
        assert_eq!(ws.expect_close().0, 4405, "{opcode:?} {bad}");
    }
    server.check_empty();
}

#[test]
fn rooms_reach_all_and_clients_can_not_disconnect_others() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.rooms.publish = true);
        let mut primus = connect(&server, "");
        assert_eq!(primus.next_json()["type"], "welcome");
        let mut plain = server.client();
        // A message may be a JSON object, or a string that contains one.
        say(&mut primus, &json!({"id": 1, "type": "subscribe", "room": "r"}));
        primus.expect_json(json!({"type": "ok", "id": 1}));
        say(&mut primus, &json!("{\"id\":2,\"type\":\"ping\"}"));
        primus.expect_json(json!({"type": "ok", "id": 2}));
        plain.ask(json!({"type": "subscribe", "room": "r"}));
        say(&mut primus, &json!({"id": 3, "type": "publish", "room": "r", "data": {"x": [1]}}));
        let mut got = [primus.next_json(), primus.next_json()];
        got.sort_by_key(|message| message["type"].to_string());
        let message = json!({"type": "message", "room": "r", "data": {"x": [1]}});
        assert_eq!(got, [message.clone(), json!({"type": "ok", "id": 3})]);
        if cores == 1 {
            plain.expect_json(message);
        }
    });
    // In raw mode, messages that a client would take for the protocol's own are dropped.
    let server = Server::start(1, |options| options.app = App::Chat);
    let mut primus = connect(&server, "");
    let mut plain = server.ws("/ws");
    for text in ["primus::server::close", "{\"a\":1}", "primus", "last"] {
        plain.send_text(text);
        assert_eq!(plain.next_text(), text);
    }
    for text in ["{\"a\":1}", "primus", "last"] {
        primus.expect_json(json!(text));
    }
    plain.send_binary(b"\xff");
    primus.expect_json(json!("/w=="));
    server.publish("chat", r#"{"json":[true]}"#);
    primus.expect_json(json!({"json": [true]}));
    server.publish("chat", r#""\u0070rimus::server::close""#);
    server.publish("chat", "1");
    primus.expect_json(json!(1));
    say(&mut primus, &json!({"to": "all"}));
    primus.expect_json(json!("{\"to\":\"all\"}"));
}

#[test]
fn feeds_by_resource_id() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        server.document("a/b", r#"{"n":1}"#);
        let mut ws = connect(&server, "&resourceId=a%2Fb");
        assert_eq!(ws.next_json()["type"], "welcome");
        let snapshot = ws.next_json();
        assert_eq!((&snapshot["type"], &snapshot["data"]), (&json!("snapshot"), &json!({"n": 1})));
        let mut raw = connect(&server, "&feed=a/b&format=raw");
        raw.expect_json(json!({"n": 1}));
        server.document("a/b", r#""primus::server::close""#);
        server.document("a/b", "[2]");
        // A message that clients would take for the protocol's own is dropped.
        raw.expect_json(json!([2]));
        server.state("a/b", FeedState::NotFound, "gone");
        raw.expect_json(json!("primus::server::close"));
        assert_eq!(raw.expect_close().0, 4404);
    });
}

#[test]
fn pings_both_ways_round() {
    let time = Duration::from_secs(1);
    let server = Server::start(1, |options| {
        options.app = App::Echo;
        options.primus.ping_interval = time;
        options.heartbeat = Heartbeat { interval: time, timeout: time * 5 / 2 };
    });
    let ping =
        |seen: &Value| seen.as_str().unwrap().strip_prefix("primus::ping::").unwrap().parse::<u64>().unwrap();
    // Clients of versions 7 and 8 are pinged at a fixed interval, and are disconnected if they don't answer.
    let mut ws = connect(&server, "");
    let mut last = 0;
    for _ in 0..5 {
        let sent = takes(time, || ping(&ws.next_json()));
        assert!(sent >= last);
        last = sent;
        say(&mut ws, &json!(format!("primus::pong::{sent}")));
    }
    // A late client has the same time for an answer as any other: `heartbeat.timeout`.
    for _ in 0..3 {
        takes(time, || ping(&ws.next_json()));
    }
    say(&mut ws, &json!(format!("primus::pong::{last}")));
    for _ in 0..3 {
        takes(time, || ping(&ws.next_json()));
    }
    // With 4503, the client may reconnect.
    assert_eq!(takes(time, || ws.expect_close()).0, 4503);
    // Clients up to version 6 send pings, and are never pinged.
    let mut old = connect(&server, "");
    for n in 0..20 {
        say(&mut old, &json!(format!("primus::ping::{n}")));
        old.expect_json(json!(format!("primus::pong::{n}")));
        pass(time * 2 / 5);
    }
    assert_eq!(old.expect_close().0, 4503);
    // WebSocket pings aren't used.
    assert_eq!(connect(&server, "").fence(), Vec::<Seen>::new());
}

#[test]
fn other_paths() {
    let server = Server::start(1, |options| options.app = App::Echo);
    let spec = server.http().get("/primus/spec");
    let spec: Value = serde_json::from_str(spec.text()).unwrap();
    assert_eq!((&spec["pathname"], &spec["pingInterval"]), (&json!("/primus"), &json!(30_000)));
    assert_eq!((&spec["parser"], &spec["transformer"]), (&json!("json"), &json!("websockets")));
    for (target, status) in
        [("/primus", 426), ("/primus/", 426), ("/primus/primus.js", 404), ("/primus/x", 404)]
    {
        assert_eq!(server.http().get(target).status, status, "{target}");
    }
    server.ws("/primus").fence();
}

#[test]
fn clients_may_reconnect_after_a_drain() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.app = App::Echo);
        let mut ws = connect(&server, "");
        assert_eq!(ws.fence(), []);
        server.drain(HOUR);
        assert_eq!(ws.expect_close().0, 4500);
        drop(ws);
        server.join();
    });
}
