//! `--app rooms`: `stentor.v1`, according to docs/protocol.md.

use crate::harness::{Seen, Server, Ws, meet, on_one_and_three};
use serde_json::{Value, json};
use std::time::Duration;
use stentor_edge::{Options, Rule, Template};
use stentor_hub::{Data, Document, FeedState, HistoryLimits, Room};
use stentor_ports::{FeedUpdate, PublicId, Publish};

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

/// Clients on each core that are subscribed to `room`, after their cores have learned of each other's members.
fn members(server: &Server, room: &str) -> Vec<Ws> {
    let mut clients = server.members_on_each_core(room);
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

/// Connects a client that subscribes to a feed or a room, from this position.
fn resume(server: &Server, topic: &str, name: &str, epoch: &Value, offset: u64) -> Ws {
    let mut ws = server.client();
    ws.ask(json!({"type": "subscribe", topic: name, "epoch": epoch, "offset": offset}));
    ws
}

#[test]
fn the_id_of_a_session_is_no_room_of_clients() {
    on_one_and_three(|cores| {
        // The id of a session of a node that left before this one started.
        let left = Server::start(cores, |_| {}).client_and_id().1.to_string();
        let server = Server::start(cores, |options| {
            may_publish(options);
            let join = vec![Template::parse("{room}").unwrap()];
            options.rooms.rules = vec![Rule { event: "join".into(), join, ..Rule::default() }];
        });
        let mut ann = server.ws("/ws");
        let id = ann.next_json()["session"].as_str().unwrap().to_owned();
        let mut ben = server.client();
        let other = "AAAAAAAAAAAAAAAAAAAA";
        let check = |client: &mut Ws, room: &str, code: Option<&str>| {
            let list = code.map(|_| json!({"type": "presence", "room": room}));
            let requests = [
                json!({"type": "subscribe", "room": room}),
                json!({"type": "event", "event": "join", "data": {"room": room}}),
                json!({"type": "publish", "room": room, "data": 1}),
            ];
            for request in requests.into_iter().chain(list) {
                client.send_json(request.clone());
                let seen = client.fence();
                let mut answers = seen.iter().filter_map(|seen| match seen {
                    Seen::Text(text) => serde_json::from_str::<Value>(text).ok(),
                    _ => None,
                });
                let answer = answers.find(|answer| answer["type"] != "message").unwrap();
                assert_eq!(answer["code"].as_str(), code, "{request}: {answer}");
            }
        };
        for client in [&mut ann, &mut ben] {
            check(client, &id, Some("not_allowed"));
            check(client, &format!("/#{id}"), Some("not_allowed"));
            check(client, &left, Some("not_allowed"));
            check(client, other, None);
        }
        // The name of an ended session stays reserved.
        drop(ann);
        server.until_metric("sessions", |sessions| sessions == 1);
        check(&mut ben, &id, Some("not_allowed"));
    });
}

#[test]
fn the_welcome_has_the_session_the_heartbeat_and_the_largest_message() {
    let server = Server::start(1, |options| {
        options.heartbeat.interval = Duration::from_millis(12_345);
        options.limits.message_bytes_max = 1_000;
    });
    let mut sessions = Vec::new();
    for _ in 0..20 {
        let mut ws = server.ws("/ws");
        let mut welcome = ws.next_json();
        sessions.push(welcome["session"].take().as_str().unwrap().to_owned());
        let expect =
            json!({"type": "welcome", "session": null, "ping_ms": 12_345, "message_bytes_max": 1_000});
        assert_eq!(welcome, expect);
    }
    assert!(sessions.iter().all(|session| PublicId::parse(session).is_some()), "{sessions:?}");
    sessions.sort();
    sessions.dedup();
    assert_eq!(sessions.len(), 20);
}

#[test]
fn a_document_arrives_whether_it_is_published_before_or_after_the_subscription() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        for n in 0..10 {
            let key = format!("feed/{n}");
            let snapshot = |ws: &mut Ws, offset: u64, data: Value| {
                let got = ws.next_json();
                let epoch = got["epoch"].as_u64().unwrap();
                assert!(epoch > 0);
                let expect = json!({"type": "snapshot", "feed": key, "epoch": epoch, "offset": offset,
                    "state": "live", "data": data});
                assert_eq!(got, expect);
                epoch
            };
            let subscribe = json!({"type": "subscribe", "feed": key});
            let mut early = server.client();
            early.ask(subscribe.clone());
            server.wait_wanted(&key, true);
            server.document(&key, "{\"n\":1}");
            let epoch = snapshot(&mut early, 1, json!({"n": 1}));
            let mut late = server.client();
            late.ask(subscribe);
            assert_eq!(snapshot(&mut late, 1, json!({"n": 1})), epoch);
            // The same bytes aren't a new version.
            server.document(&key, "{\"n\":1}");
            server.document(&key, "{\"n\":2}");
            for ws in [&mut early, &mut late] {
                assert_eq!(snapshot(ws, 2, json!({"n": 2})), epoch);
            }
            // A second subscription returns the document again, and later versions arrive once.
            late.ask(json!({"type": "subscribe", "feed": key, "policy": "queue"}));
            assert_eq!(snapshot(&mut late, 2, json!({"n": 2})), epoch);
            server.document(&key, "3");
            for ws in [&mut early, &mut late] {
                snapshot(ws, 3, json!(3));
                assert_eq!(ws.fence(), []);
                ws.ask(json!({"type": "unsubscribe", "feed": key}));
            }
            server.wait_wanted(&key, false);
        }
    });
}

#[test]
fn documents_that_are_no_json_are_strings_or_base64() {
    let server = Server::start(1, |_| {});
    let mut ws = server.client();
    ws.ask(json!({"type": "subscribe", "feed": "k"}));
    let mut check = |body: &'static [u8], data: &str, encoding: Value| {
        let document = Document { body: body.into(), json: false, content_type: "text/plain".into() };
        server.update("k", FeedUpdate::Changed(document.into()));
        let snapshot = ws.next_json();
        assert_eq!((&snapshot["data"], &snapshot["encoding"]), (&json!(data), &encoding));
    };
    check(b"a \"quoted\"\n\ttext", "a \"quoted\"\n\ttext", Value::Null);
    check(b"", "", Value::Null);
    // Bytes that aren't text are sent as base64.
    check(b"bad \xff byte", "YmFkIP8gYnl0ZQ==", json!("base64"));
}

#[test]
fn subscribers_receive_the_state_of_a_feed() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut ws = server.client();
        ws.ask(json!({"type": "subscribe", "feed": "k"}));
        server.wait_wanted("k", true);
        server.document("k", "1");
        assert_eq!(ws.next_json()["state"], "live");
        server.state("k", FeedState::Stale, "it \"fails\"");
        ws.expect_json(json!({"type": "state", "feed": "k", "state": "stale", "reason": "it \"fails\""}));
        // A new subscriber receives the document and the state.
        let mut late = server.client();
        late.ask(json!({"type": "subscribe", "feed": "k"}));
        assert_eq!(late.next_json()["data"], 1);
        assert_eq!(late.next_json()["state"], "stale");
        // The same document makes the feed live again, but isn't sent again.
        server.document("k", "1");
        for ws in [&mut ws, &mut late] {
            ws.expect_json(json!({"type": "state", "feed": "k", "state": "live", "reason": ""}));
        }
        server.state("k", FeedState::Complete, "over");
        server.state("k", FeedState::NotFound, "gone");
        for ws in [&mut ws, &mut late] {
            let state = ws.next_json();
            // Only the newest change of state is pending for a slow client.
            let lost = if state["state"] == "complete" { ws.next_json() } else { state };
            assert_eq!(lost, json!({"type": "state", "feed": "k", "state": "not_found", "reason": "gone"}));
            // The subscription is over; the session is not.
            ws.ask(json!({"type": "unsubscribe", "feed": "k"}));
        }
        server.wait_wanted("k", false);
    });
}

#[test]
fn reconnecting_clients_receive_newer_versions() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        server.document("k", "1");
        let mut ws = server.client();
        ws.ask(json!({"type": "subscribe", "feed": "k"}));
        let first = ws.next_json();
        let (epoch, offset) = (&first["epoch"], first["offset"].as_u64().unwrap());
        // The client resumes on any core, whether or not that core already has the feed.
        for _ in 0..6 {
            let mut back = resume(&server, "feed", "k", epoch, offset);
            back.ask(json!({"type": "ping"}));
            // A position needs epoch and offset.
            for epoch in [json!(1), Value::Null] {
                let mut other = resume(&server, "feed", "k", &epoch, offset);
                assert_eq!(other.next_json()["data"], 1, "{epoch}");
            }
            assert_eq!(back.fence(), []);
        }
        let mut back = resume(&server, "feed", "k", epoch, offset);
        server.document("k", "2");
        assert_eq!(back.next_json()["data"], 2);
        assert_eq!(back.fence(), []);
    });
}

#[test]
fn clients_publish_only_with_permission() {
    let server = Server::start(1, |_| {});
    let mut ws = server.member("r");
    ws.send_json(json!({"type": "publish", "id": 1, "room": "r", "data": 1}));
    let error = ws.next_json();
    assert_eq!((&error["code"], &error["retry"]), (&json!("not_allowed"), &json!(false)));
    assert!(error["message"].as_str().unwrap().contains("rooms.publish = true"), "{error}");
    // The control plane may publish.
    server.publish("r", "{\"from\":\"us\"}");
    ws.expect_json(json!({"type": "message", "room": "r", "data": {"from": "us"}}));
}

/// A client sends a publication again, in another session and on any core, because it doesn't know whether the first one arrived.
#[test]
fn a_repeated_publication_is_published_once() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| {
            may_publish(options);
            // Clients of one address have at most three of them.
            options.limits.idempotency_keys_max = 5;
        });
        for room in ["red", "kept"] {
            let mut heard = server.member(room);
            let publish = |key: &str, more: Value| {
                let mut message =
                    json!({"type": "publish", "id": 1, "room": room, "data": key, "idempotency_key": key});
                message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                message
            };
            let answer = |message: Value| {
                let mut ws = server.client();
                ws.send_json(message);
                let answer = ws.next_json();
                answer["code"].as_str().unwrap_or(answer["type"].as_str().unwrap()).to_owned()
            };
            let mut welcomed = server.ws("/ws");
            let session = welcomed.next_json()["session"].as_str().unwrap().to_owned();
            let again = json!({ "first_session": session });
            let elsewhere = json!({ "first_session": "nSp4eVh0Zr_L3kW9tQ2b" });
            let first = format!("{room}-1");
            assert_eq!(answer(publish(&first, json!({}))), "ok");
            // Whether it is said to be repeated or not, and wherever it was first.
            for more in [json!({}), again.clone(), elsewhere.clone()] {
                assert_eq!(answer(publish(&first, more)), "ok");
            }
            // One that hasn't arrived is published, unless another node or process may have published it.
            let lost = format!("{room}-2");
            assert_eq!(answer(publish(&lost, elsewhere)), "unavailable");
            for bad in ["", "a b", "é", &"x".repeat(129)] {
                assert_eq!(answer(publish(bad, json!({}))), "bad_request", "{bad}");
            }
            if room == "red" {
                assert_eq!(answer(publish(&lost, again)), "ok");
            }
            let expect = if room == "red" { vec![first, lost] } else { vec![first] };
            for key in expect {
                assert_eq!(next_message(&mut heard)["data"], json!(key));
            }
            assert_eq!(heard.fence(), []);
        }
        // The address has three keys. A repeated publication is still recognized.
        let mut ws = server.client();
        for (key, expect) in [("red-1", "ok"), ("four", "overloaded")] {
            ws.send_json(json!({"type": "publish", "id": key, "room": "red", "idempotency_key": key}));
            let answer = ws.next_json();
            assert_eq!(answer["code"].as_str().unwrap_or("ok"), expect, "{key}: {answer}");
        }
        server.until_metric("publications_repeated", |count| count == 7);
    });
}

#[test]
fn publications_reach_members_only() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, may_publish);
        let mut red = members(&server, "red");
        let mut stranger = server.member("blue");
        stranger.ask(json!({"type": "subscribe", "feed": "red"}));
        server.wait_wanted("red", true);
        server.document("red", "\"a feed\"");
        assert_eq!(stranger.next_json()["type"], "snapshot");
        red[0].ask(json!({"type": "publish", "room": "red", "event": "said", "data": {"n": 1}}));
        for ws in &mut red {
            ws.expect_json(json!({"type": "message", "room": "red", "event": "said", "data": {"n": 1}}));
        }
        // The first publication has been delivered completely. The other client didn't receive it.
        assert_eq!(stranger.fence(), []);
        // A publisher need not be a member.
        stranger.ask(json!({"type": "publish", "room": "red"}));
        for ws in &mut red {
            ws.expect_json(json!({"type": "message", "room": "red", "data": null}));
        }
        assert_eq!(stranger.fence(), []);
        // A client that has left receives no further messages.
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
fn history_is_replayed_to_reconnecting_clients_on_any_core() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, may_publish);
        let mut ws = server.member("kept/a");
        for n in 1..=150 {
            ws.send_json(json!({"type": "publish", "room": "kept/a", "data": n}));
        }
        let first = next_message(&mut ws);
        assert_eq!(first["data"], 1);
        let last = (2..=150).map(|_| next_message(&mut ws)).last().unwrap();
        let (epoch, newest) = (last["epoch"].clone(), last["offset"].as_u64().unwrap());
        assert_eq!((&last["data"], newest), (&json!(150), first["offset"].as_u64().unwrap() + 149));
        for since in [newest - 100, newest - 5, newest - 4, newest - 3, newest - 2, newest - 1, newest] {
            let mut back = resume(&server, "room", "kept/a", &epoch, since);
            for offset in since + 1..=newest {
                let message = back.next_json();
                let expect = [&json!("message"), &json!(offset), &json!(150 - (newest - offset))];
                assert_eq!([&message["type"], &message["offset"], &message["data"]], expect);
            }
            back.ask(json!({"type": "ping"}));
        }
        // Without a position, no history is replayed. An impossible or expired position is an error.
        let mut fresh = server.member("kept/a");
        for (epoch, offset) in [(&json!(1), newest), (&epoch, newest + 1), (&epoch, newest - 101)] {
            let error = resume(&server, "room", "kept/a", epoch, offset).next_json();
            let found = (&error["code"], &error["room"], error.get("id"));
            assert_eq!(found, (&json!("history_expired"), &json!("kept/a"), None));
        }
        // The history has the last hundred messages, of which 49 have two digits. It is checked once per second.
        server.until_metric("room_history_publications", |kept| kept == 100);
        server.until_metric("room_history_bytes", |bytes| bytes == 49 * 2 + 51 * 3);
        ws.ask(json!({"type": "publish", "room": "kept/a", "data": 6}));
        assert_eq!(next_message(&mut fresh)["data"], 6);
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
    // Errors have the id too, even if the rest of the message is invalid.
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
fn invalid_messages_have_no_effect() {
    let server = Server::start(1, may_publish);
    let mut ws = server.member("r");
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
        let mut ws = server.member("r\"1\"");
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
fn data_of_other_protocols_is_written_as_json() {
    let server = Server::start(1, |_| {});
    let mut ws = server.member("r");
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
fn raw_mode_clients_receive_no_answers() {
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
