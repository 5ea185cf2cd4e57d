//! `--app rooms`: `stentor.v1`, as docs/protocol.md defines it.

use crate::harness::{Seen, Server, Ws, meet, on_one_and_three};
use serde_json::{Value, json};
use std::time::Duration;
use stentor_edge::{FeedUpdate, Options, PublicId, Publish};
use stentor_hub::{Data, Document, FeedState, HistoryLimits, Room};

fn may_publish(options: &mut Options) {
    options.rooms.publish = true;
    let limits =
        HistoryLimits { publications_max: 100, bytes_max: 100_000, age_max: Duration::from_secs(3600) };
    options.rooms.history = vec![("kept".into(), limits)];
}

/// The next message to a room; answers are skipped.
fn next_message(ws: &mut Ws) -> Value {
    loop {
        let message = ws.next_json();
        match message["type"].as_str().unwrap() {
            "message" => return message,
            "ok" | "welcome" => {}
            other => panic!("{other}: {message}"),
        }
    }
}

/// Clients on each core, subscribed to `room`, who know of each other.
fn members(server: &Server, room: &str) -> Vec<Ws> {
    let mut clients = server.ws_on_each_core("/ws");
    for ws in &mut clients {
        assert_eq!(ws.next_json()["type"], "welcome");
        ws.ask(json!({"type": "subscribe", "room": room}));
    }
    meet(
        &mut clients,
        |ws, text| ws.send_json(json!({"type": "publish", "room": room, "data": text})),
        |ws| next_message(ws)["data"].as_str().unwrap().to_owned(),
    );
    for ws in &mut clients {
        assert!(ws.fence().iter().all(|seen| matches!(seen, Seen::Text(text) if text == r#"{"type":"ok"}"#)));
    }
    clients
}

#[test]
fn the_welcome_tells_the_session_and_the_heartbeat() {
    let server = Server::start(1, |options| options.heartbeat.interval = Duration::from_millis(12_345));
    let mut sessions = Vec::new();
    for _ in 0..20 {
        let mut ws = server.ws("/ws");
        let mut welcome = ws.next_json();
        sessions.push(welcome["session"].take().as_str().unwrap().to_owned());
        assert_eq!(welcome, json!({"type": "welcome", "session": null, "ping_ms": 12_345}));
    }
    assert!(sessions.iter().all(|session| PublicId::parse(session).is_some()), "{sessions:?}");
    sessions.sort();
    sessions.dedup();
    assert_eq!(sessions.len(), 20);
}

#[test]
fn a_document_that_comes_before_and_one_that_comes_after() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        for n in 0..10 {
            let key = format!("feed/{n}");
            let snapshot = |offset: u64, data: Value| {
                move |got: Value| {
                    let epoch = got["epoch"].as_u64().unwrap();
                    assert!(epoch > 0);
                    let expect = json!({"type": "snapshot", "feed": format!("feed/{n}"), "epoch": epoch,
                        "offset": offset, "state": "live", "data": data});
                    assert_eq!(got, expect);
                    epoch
                }
            };
            let mut early = server.client();
            early.ask(json!({"type": "subscribe", "feed": key}));
            server.wait_wanted(&key, true);
            server.document(&key, "{\"n\":1}");
            let epoch = snapshot(1, json!({"n": 1}))(early.next_json());
            let mut late = server.client();
            late.ask(json!({"type": "subscribe", "feed": key}));
            assert_eq!(snapshot(1, json!({"n": 1}))(late.next_json()), epoch);
            // The same bytes again are nothing new.
            server.document(&key, "{\"n\":1}");
            server.document(&key, "{\"n\":2}");
            for ws in [&mut early, &mut late] {
                assert_eq!(snapshot(2, json!({"n": 2}))(ws.next_json()), epoch);
            }
            // Asking again gives it again, and what follows comes once.
            late.ask(json!({"type": "subscribe", "feed": key, "policy": "queue"}));
            assert_eq!(snapshot(2, json!({"n": 2}))(late.next_json()), epoch);
            server.document(&key, "3");
            snapshot(3, json!(3))(late.next_json());
            snapshot(3, json!(3))(early.next_json());
            for ws in [&mut early, &mut late] {
                assert_eq!(ws.fence(), []);
                ws.ask(json!({"type": "unsubscribe", "feed": key}));
            }
            server.wait_wanted(&key, false);
        }
    });
}

#[test]
fn documents_that_are_no_json_are_strings() {
    let server = Server::start(1, |_| {});
    let mut ws = server.client();
    ws.ask(json!({"type": "subscribe", "feed": "k"}));
    let mut check = |body: &'static [u8], data: &str| {
        let document = Document { body: body.into(), json: false, content_type: "text/plain".into() };
        server.update("k", FeedUpdate::Document(document));
        assert_eq!(ws.next_json()["data"], data);
    };
    check(b"a \"quoted\"\n\ttext", "a \"quoted\"\n\ttext");
    check(b"bad \xff byte", "bad \u{fffd} byte");
    check(b"", "");
}

#[test]
fn a_feed_tells_how_it_is_doing() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut ws = server.client();
        ws.ask(json!({"type": "subscribe", "feed": "k"}));
        server.wait_wanted("k", true);
        server.document("k", "1");
        assert_eq!(ws.next_json()["state"], "live");
        server.state("k", FeedState::Stale, "it \"fails\"");
        ws.expect_json(json!({"type": "state", "feed": "k", "state": "stale", "reason": "it \"fails\""}));
        // Who comes now learns both.
        let mut late = server.client();
        late.ask(json!({"type": "subscribe", "feed": "k"}));
        assert_eq!(late.next_json()["data"], 1);
        assert_eq!(late.next_json()["state"], "stale");
        // The same document makes it live again, and isn't sent again.
        server.document("k", "1");
        for ws in [&mut ws, &mut late] {
            ws.expect_json(json!({"type": "state", "feed": "k", "state": "live", "reason": ""}));
        }
        server.state("k", FeedState::Complete, "over");
        server.state("k", FeedState::NotFound, "gone");
        for ws in [&mut ws, &mut late] {
            let state = ws.next_json();
            // Only the newest change of state waits for a client that is slow.
            let lost = if state["state"] == "complete" { ws.next_json() } else { state };
            assert_eq!(lost, json!({"type": "state", "feed": "k", "state": "not_found", "reason": "gone"}));
            // The subscription is over; the session is not.
            ws.ask(json!({"type": "unsubscribe", "feed": "k"}));
        }
        server.wait_wanted("k", false);
    });
}

#[test]
fn who_comes_back_gets_what_is_new() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        server.document("k", "1");
        let mut ws = server.client();
        ws.ask(json!({"type": "subscribe", "feed": "k"}));
        let first = ws.next_json();
        let (epoch, offset) = (first["epoch"].clone(), first["offset"].clone());
        // On whichever core, and whether that follows the feed already or not.
        for _ in 0..6 {
            let mut back = server.client();
            back.ask(json!({"type": "subscribe", "feed": "k", "epoch": epoch, "offset": offset}));
            back.ask(json!({"type": "ping"}));
            let mut stranger = server.client();
            stranger.ask(json!({"type": "subscribe", "feed": "k", "epoch": 1, "offset": offset}));
            assert_eq!(stranger.next_json()["data"], 1);
            // Half of a position is none.
            let mut half = server.client();
            half.ask(json!({"type": "subscribe", "feed": "k", "offset": offset}));
            assert_eq!(half.next_json()["data"], 1);
            assert_eq!(back.fence(), []);
        }
        let mut back = server.client();
        back.ask(json!({"type": "subscribe", "feed": "k", "epoch": epoch, "offset": offset}));
        server.document("k", "2");
        assert_eq!(back.next_json()["data"], 2);
        assert_eq!(back.fence(), []);
    });
}

#[test]
fn clients_may_not_publish_unless_they_may() {
    let server = Server::start(1, |_| {});
    let mut ws = server.client();
    ws.ask(json!({"type": "subscribe", "room": "r"}));
    ws.send_json(json!({"type": "publish", "id": 1, "room": "r", "data": 1}));
    let error = ws.next_json();
    assert_eq!((&error["code"], &error["retry"]), (&json!("not_allowed"), &json!(false)));
    assert!(error["message"].as_str().unwrap().contains("rooms.publish = true"), "{error}");
    // The control plane may.
    server.publish("r", "{\"from\":\"us\"}");
    ws.expect_json(json!({"type": "message", "room": "r", "data": {"from": "us"}}));
}

#[test]
fn what_is_published_reaches_the_members_and_nobody_else() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, may_publish);
        let mut red = members(&server, "red");
        let mut stranger = server.client();
        stranger.ask(json!({"type": "subscribe", "room": "blue"}));
        stranger.ask(json!({"type": "subscribe", "feed": "red"}));
        server.wait_wanted("red", true);
        server.document("red", "\"a feed\"");
        assert_eq!(stranger.next_json()["type"], "snapshot");
        red[0].ask(json!({"type": "publish", "room": "red", "event": "said", "data": {"n": 1}}));
        for ws in &mut red {
            ws.expect_json(json!({"type": "message", "room": "red", "event": "said", "data": {"n": 1}}));
        }
        // Everything of the first publication has been delivered: the stranger had no part in it.
        assert_eq!(stranger.fence(), []);
        // A publisher need not be a member.
        stranger.ask(json!({"type": "publish", "room": "red"}));
        for ws in &mut red {
            ws.expect_json(json!({"type": "message", "room": "red", "data": null}));
        }
        assert_eq!(stranger.fence(), []);
        // Who has left hears nothing more.
        red[1].ask(json!({"type": "unsubscribe", "room": "red"}));
        red[0].ask(json!({"type": "publish", "room": "red", "data": "last"}));
        for (n, ws) in red.iter_mut().enumerate() {
            if n != 1 {
                ws.expect_json(json!({"type": "message", "room": "red", "data": "last"}));
            }
        }
        assert_eq!(red[1].fence(), []);
        drop((red, stranger));
        server.wait_wanted("red", false);
        server.update("red", FeedUpdate::Forget);
        server.check_empty();
    });
}

#[test]
fn order_is_kept_per_publisher_across_cores() {
    let server = Server::start(3, may_publish);
    let mut clients = members(&server, "r");
    let count = clients.len();
    for n in 0..100 {
        for (who, ws) in clients.iter_mut().enumerate() {
            ws.send_json(json!({"type": "publish", "room": "r", "data": [who, n]}));
        }
    }
    for ws in &mut clients {
        let mut next = vec![0; count];
        for _ in 0..count * 100 {
            let data = next_message(ws)["data"].clone();
            let who = data[0].as_u64().unwrap() as usize;
            assert_eq!(data[1], next[who]);
            next[who] += 1;
        }
    }
}

#[test]
fn a_room_with_history_has_one_order_for_all() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, may_publish);
        let mut clients = server.ws_on_each_core("/ws");
        for ws in &mut clients {
            assert_eq!(ws.next_json()["type"], "welcome");
            ws.ask(json!({"type": "subscribe", "room": "kept"}));
        }
        // A member has been heard of at the room's home before it hears anything: no need to meet, but for
        // knowing where each one begins.
        server.publish("kept", "\"begin\"");
        let begins: Vec<u64> = clients
            .iter_mut()
            .map(|ws| {
                let mut tries = 0;
                loop {
                    // One that has joined after `begin` needs another one.
                    server.publish("kept", "\"begin\"");
                    tries += 1;
                    assert!(tries < 1000);
                    let message = next_message(ws);
                    if message["data"] == "begin" {
                        return message["offset"].as_u64().unwrap();
                    }
                }
            })
            .collect();
        for n in 0..20 {
            for (who, ws) in clients.iter_mut().enumerate() {
                ws.send_json(json!({"type": "publish", "room": "kept", "data": [who, n]}));
            }
        }
        let total = clients.len() * 20;
        let mut orders: Vec<Vec<(u64, Value)>> = Vec::new();
        for (ws, begin) in clients.iter_mut().zip(begins) {
            let mut order = Vec::new();
            let mut last = begin;
            let mut data_seen = 0;
            while data_seen < total {
                let message = next_message(ws);
                let offset = message["offset"].as_u64().unwrap();
                assert_eq!(offset, last + 1, "offsets have no gaps");
                last = offset;
                if message["data"] != "begin" {
                    data_seen += 1;
                    order.push((offset, message["data"].clone()));
                }
            }
            orders.push(order);
        }
        assert!(orders.iter().all(|order| *order == orders[0]), "one order for all");
    });
}

#[test]
fn history_is_replayed_to_who_comes_back_on_any_core() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, may_publish);
        let mut ws = server.client();
        ws.ask(json!({"type": "subscribe", "room": "kept/a"}));
        for n in 1..=5 {
            ws.send_json(json!({"type": "publish", "room": "kept/a", "data": n}));
        }
        let mut last = next_message(&mut ws);
        while last["data"] != 5 {
            last = next_message(&mut ws);
        }
        let (epoch, newest) = (last["epoch"].clone(), last["offset"].as_u64().unwrap());
        for since in newest - 5..=newest {
            let mut back = server.client();
            back.ask(json!({"type": "subscribe", "room": "kept/a", "epoch": epoch, "offset": since}));
            for offset in since + 1..=newest {
                let message = back.next_json();
                assert_eq!((&message["offset"], &message["type"]), (&json!(offset), &json!("message")));
            }
            back.ask(json!({"type": "ping"}));
        }
        // Without a position there is no past; with an impossible one there is an error.
        let mut fresh = server.client();
        fresh.ask(json!({"type": "subscribe", "room": "kept/a"}));
        for (epoch, offset) in [(json!(1), newest), (epoch, newest + 1)] {
            let mut lost = server.client();
            lost.ask(json!({"type": "subscribe", "room": "kept/a", "epoch": epoch, "offset": offset}));
            let error = lost.next_json();
            assert_eq!((&error["code"], error.get("id")), (&json!("history_expired"), None));
        }
        ws.ask(json!({"type": "publish", "room": "kept/a", "data": 6}));
        assert_eq!(next_message(&mut fresh)["data"], 6);
    });
}

#[test]
fn history_is_bounded() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, may_publish);
        let mut ws = server.client();
        ws.ask(json!({"type": "subscribe", "room": "kept/b"}));
        for n in 1..=150 {
            ws.send_json(json!({"type": "publish", "room": "kept/b", "data": n}));
        }
        let first = next_message(&mut ws);
        let first_offset = first["offset"].as_u64().unwrap();
        assert_eq!(first["data"], 1);
        let mut last = first;
        while last["data"] != 150 {
            last = next_message(&mut ws);
        }
        let epoch = last["epoch"].clone();
        let mut lost = server.client();
        lost.ask(json!({"type": "subscribe", "room": "kept/b", "epoch": epoch, "offset": first_offset + 48}));
        assert_eq!(lost.next_json()["code"], "history_expired");
        let mut back = server.client();
        back.ask(json!({"type": "subscribe", "room": "kept/b", "epoch": epoch, "offset": first_offset + 49}));
        for n in 51..=150 {
            assert_eq!(next_message(&mut back)["data"], n);
        }
        // The last hundred, of which 49 have two digits. It is looked at once a second.
        server.until_metric("room_history_publications", |kept| kept == 100);
        server.until_metric("room_history_bytes", |bytes| bytes == 49 * 2 + 51 * 3);
    });
}

#[test]
fn ids_are_repeated_as_they_were_written() {
    let server = Server::start(1, |_| {});
    let mut ws = server.client();
    for id in ["1", "1.50", "\"a\\u0062\"", "null", "true", "[1, {\"x\": 2}]", "{}"] {
        ws.send_text(&format!("{{\"id\":{id},\"type\":\"ping\"}}"));
        let expect =
            if id == "null" { r#"{"type":"ok"}"#.into() } else { format!(r#"{{"type":"ok","id":{id}}}"#) };
        assert_eq!(ws.next_text(), expect);
    }
    let long = "x".repeat(254);
    ws.send_text(&format!(r#"{{"id":"{long}","type":"ping"}}"#));
    assert_eq!(ws.next_text(), format!(r#"{{"type":"ok","id":"{long}"}}"#));
    ws.send_text(&format!(r#"{{"id":"{long}x","type":"ping"}}"#));
    assert_eq!(ws.next_text(), r#"{"type":"ok"}"#);
    // Errors have them too, also where the message can't be understood otherwise.
    for (message, code) in [
        (r#"{"id":7,"type":"subscribe","feed":""}"#, "bad_key"),
        (r#"{"id":7,"type":"subscribe","feed":7}"#, "bad_json"),
        (r#"{"id":7,"type":7}"#, "bad_json"),
        (r#"{"id":7}"#, "bad_request"),
    ] {
        ws.send_text(message);
        let error = ws.next_json();
        assert_eq!((&error["id"], &error["code"]), (&json!(7), &json!(code)), "{message}");
    }
}

#[test]
fn what_is_not_understood_changes_nothing() {
    let server = Server::start(1, may_publish);
    let mut ws = server.client();
    ws.ask(json!({"type": "subscribe", "room": "r"}));
    for bad in [
        "",
        "{",
        "[]",
        "1",
        "\"ping\"",
        "{\"type\":\"ping\"}x",
        "\u{0}",
        "{\"type\":\"ping\",\"type\":\"ping\"}",
    ] {
        ws.send_text(bad);
        let error = ws.next_json();
        assert_eq!((&error["type"], &error["code"]), (&json!("error"), &json!("bad_json")), "{bad}");
    }
    ws.send_binary(b"{\"type\":\"ping\"}");
    assert_eq!(ws.next_json()["code"], "bad_json");
    ws.send_text(&"[".repeat(500_000));
    assert_eq!(ws.next_json()["code"], "bad_json");
    // Unknown fields are ignored, however deep.
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    ws.send_text(&format!(r#"{{"future":{deep},"rate":5,"id":1,"type":"ping","feed":null}}"#));
    assert_eq!(ws.next_text(), r#"{"type":"ok","id":1}"#);
    ws.ask(json!({"type": "publish", "room": "r", "data": 1}));
    assert_eq!(ws.next_json()["data"], 1);
}

#[test]
fn data_is_passed_on_as_it_was_written() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, may_publish);
        let mut ws = server.client();
        ws.ask(json!({"type": "subscribe", "room": "r\"1\""}));
        for data in [
            "1.50",
            "1e400",
            "\"\\u00e9\\/\"",
            "{\"b\":1, \"a\":[ ]}",
            "\"é\u{2028}\"",
            "12345678901234567890",
        ] {
            ws.send_text(&format!(r#"{{"type":"publish","room":"r\"1\"","event":"e\n\"","data":{data}}}"#));
            assert_eq!(ws.next_text(), r#"{"type":"ok"}"#);
            let expect = format!(r#"{{"type":"message","room":"r\"1\"","event":"e\n\"","data":{data}}}"#);
            assert_eq!(ws.next_text(), expect);
        }
        drop(ws);
    });
}

#[test]
fn what_only_others_can_publish_is_written_as_json() {
    let server = Server::start(1, |_| {});
    let mut ws = server.client();
    ws.ask(json!({"type": "subscribe", "room": "r"}));
    let publish = |event: Option<&str>, data: Data| {
        let room = Room::plain("r").unwrap();
        server.plane().publish(Publish { room, event: event.map(Into::into), data }).unwrap();
    };
    publish(None, Data::Text("a \"text\"".into()));
    ws.expect_json(json!({"type": "message", "room": "r", "data": "a \"text\""}));
    publish(Some("e"), Data::Binary(vec![0xff, 0, 1].into()));
    ws.expect_json(
        json!({"type": "message", "room": "r", "event": "e", "encoding": "base64", "data": "/wAB"}),
    );
}

#[test]
fn a_publisher_of_the_control_plane_reaches_members_on_all_cores() {
    let server = Server::start(3, may_publish);
    let mut clients = members(&server, "r");
    // The control plane speaks from one core; that the others' members are known there, they have shown.
    for n in 0..1000 {
        server.publish("r", &n.to_string());
    }
    for ws in &mut clients {
        for n in 0..1000 {
            assert_eq!(ws.next_json()["data"], n);
        }
    }
    server.check_balance();
}

#[test]
fn bodies_only_are_answered_by_nothing() {
    let server = Server::start(1, may_publish);
    let mut raw = server.ws("/ws?format=raw");
    raw.send_json(json!({"type": "subscribe", "room": "r"}));
    raw.send_json(json!({"type": "publish", "room": "r", "data": {"a": 1}}));
    assert_eq!(raw.next_text(), r#"{"a":1}"#);
    raw.send_json(json!({"type": "publish", "room": "r", "event": "e", "data": 2}));
    assert_eq!(raw.next_text(), r#"["e",2]"#);
    raw.send_text("nonsense");
    assert_eq!(raw.expect_close(), (4401, "the request was malformed".into()));
}
