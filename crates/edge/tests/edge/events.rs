//! Events that the application behind the server handles. Each waits for its reply, and so does the client's later input.

use crate::harness::io::post;
use crate::harness::{Io, PATIENCE, Server, Way, on_one_and_three, until};
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_edge::{Options, Rule, Template};
use stentor_hub::{Data, HistoryLimits, Room, Rooms};
use stentor_ports::{ClientEvent, Denial, EventEmit, EventReply, EventSink, Recipients, ReplyToEvent};

/// An event in the form that the application receives.
#[derive(Debug)]
struct Seen {
    reply: ReplyToEvent,
    session: String,
    text: String,
}

/// An application that handles all events except those whose names begin with `_`. Of the events that the server knows,
/// it handles only `unsubscribe`.
#[derive(Debug, Default)]
struct Application(Mutex<Vec<Seen>>);

impl EventSink for Application {
    fn takes(&self, _namespace: &str, name: &str, is_known: bool) -> bool {
        !name.starts_with('_') && (!is_known || name == "unsubscribe")
    }

    fn handle(&self, event: &ClientEvent<'_>) -> Result<(), Denial> {
        if event.name == "full" {
            return Err(Denial::new("full", "no room"));
        }
        let ClientEvent { protocol, source, namespace, name, arguments, wants_ack, .. } = *event;
        assert_eq!(source, 0x7f00_0001, "127.0.0.1");
        let attachments = arguments.attachments.len();
        let text = format!("{protocol} {namespace} {name} [{}] {attachments} {wants_ack}", arguments.json);
        let (reply, session) = (event.later(), event.session.to_string());
        self.0.lock().unwrap().push(Seen { reply, session, text });
        Ok(())
    }
}

struct Node {
    server: Server,
    application: Arc<Application>,
}

impl Node {
    fn start(cores: usize, set: impl FnOnce(&mut Options)) -> Self {
        let application = Arc::new(Application::default());
        let port = application.clone();
        let server = Server::start(cores, move |options| {
            options.events = Some(port);
            options.limits.decision_timeout = PATIENCE;
            options.rooms.rules = vec![Rule { event: "ruled".into(), ack: true, ..Rule::default() }];
            set(options);
        });
        Self { server, application }
    }

    fn check_empty(&self) {
        assert!(self.application.0.lock().unwrap().is_empty(), "handed over more than once");
        self.server.until_metric("decisions_pending", |pending| pending == 0);
        self.server.until_metric("memory_bytes{decisions}", |bytes| bytes == 0);
        self.server.check_balance();
    }

    /// Waits for the only event that the application has.
    fn seen(&self) -> Seen {
        until("an event", || !self.application.0.lock().unwrap().is_empty());
        let mut all = self.application.0.lock().unwrap();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    fn reply(&self, expect: &str, reply: Result<EventReply, Denial>) -> Seen {
        let seen = self.seen();
        assert_eq!(seen.text, expect);
        seen.reply.send(reply).unwrap();
        seen
    }
}

fn room(name: &str) -> Room {
    Room::plain(name).unwrap()
}

fn ack(json: &str) -> Result<EventReply, Denial> {
    Ok(EventReply { ack: json.into(), ..EventReply::default() })
}

fn emit(rooms: Option<Rooms>, except_sender: bool, event: &str) -> EventEmit {
    let (event, data) = (Some(event.into()), Data::Json(Bytes::from("1")));
    EventEmit { rooms, except_sender, volatile: false, event, data, recipients: Recipients::default() }
}

#[test]
fn socketio_events_are_handled_by_the_application() {
    for way in [Way::Socket, Way::Polling] {
        on_one_and_three(|cores| {
            let node = Node::start(cores, |_| {});
            let mut io = Io::socket(&node.server, way);
            io.connect("", Value::Null);
            io.begin_send(&[
                r#"421["a",1,"x"]"#,
                r#"42["b"]"#,
                r#"423["c"]"#,
                r#"424["full"]"#,
                r#"425["ruled"]"#,
                r#"426["unsubscribe","k"]"#,
                r#"427["_ignored"]"#,
                r#"428["subscribe","k"]"#,
            ]);
            node.reply("socketio / a [1,\"x\"] 0 true", ack(r#""done",2"#));
            // The node passes on the next event after the reply to the previous one.
            node.reply("socketio / b [] 0 false", ack("3"));
            let denial = Denial::new("not_allowed", "not yours");
            node.reply("socketio / c [] 0 true", Err(denial));
            node.reply("socketio / unsubscribe [\"k\"] 0 true", ack(""));
            io.end_send();
            for expect in [
                r#"431["done",2]"#,
                r#"433[{"ok":false,"code":"not_allowed","message":"not yours"}]"#,
                r#"434[{"ok":false,"code":"full","message":"no room"}]"#,
                r#"435[{"ok":true}]"#,
                "436[]",
                r#"438[{"ok":true}]"#,
            ] {
                io.expect(expect);
            }
            io.leave();
            node.check_empty();
        });
    }
}

#[test]
fn a_reply_leaves_joins_acknowledges_and_emits() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, |_| {});
        let mut other = node.server.client();
        other.ask(json!({"type": "subscribe", "room": "r"}));
        let mut io = Io::socket(&node.server, Way::Socket);
        io.connect("", Value::Null);
        io.send(r#"421["go"]"#);
        let reply = EventReply {
            join: vec![room("r"), room("s")],
            ack: "0".into(),
            emit: vec![
                emit(Some(room("r").into()), true, "others"),
                emit(None, false, "own"),
                emit(Some(Rooms::try_from(vec![room("r"), room("s")]).unwrap()), false, "all"),
            ],
            ..EventReply::default()
        };
        node.reply("socketio / go [] 0 true", Ok(reply));
        io.expect("431[0]");
        let mut own = [io.next_text(), io.next_text()];
        own.sort_unstable();
        assert_eq!(own, [r#"42["all",1]"#, r#"42["own",1]"#]);
        let mut events =
            [other.next_json(), other.next_json()].map(|m| m["event"].as_str().unwrap().to_owned());
        events.sort();
        assert_eq!(events, ["all", "others"]);

        io.send(r#"422["end"]"#);
        let leave = EventReply {
            leave: vec![room("s")],
            ack: "1".into(),
            emit: vec![emit(Some(room("s").into()), false, "nobody"), emit(None, false, "last")],
            disconnect: true,
            ..EventReply::default()
        };
        node.reply("socketio / end [] 0 true", Ok(leave));
        io.expect("432[1]");
        io.expect(r#"42["last",1]"#);
        io.expect("41");

        other.send_json(json!({"type": "event", "event": "end", "id": 1}));
        let last = vec![emit(None, false, "last")];
        let reply = EventReply { ack: "2".into(), emit: last, disconnect: true, ..EventReply::default() };
        node.reply("websocket / end [null] 0 true", Ok(reply));
        other.expect_json(json!({"type": "ok", "id": 1, "data": 2}));
        assert_eq!(other.next_json()["event"], "last");
        assert_eq!(other.skip_to_close(), 4403);
        drop((io, other));
        node.check_empty();
    });
}

#[test]
fn volatile_messages_of_a_reply_are_in_no_history() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, |options| {
            let age_max = Duration::from_secs(60);
            let limits = HistoryLimits { publications_max: 9, bytes_max: 10_000, age_max };
            options.rooms.history = vec![("kept".into(), limits)];
        });
        let mut member = node.server.member("kept");
        let mut ws = node.server.client();
        ws.send_json(json!({"type": "event", "event": "go"}));
        let message =
            |volatile, event| EventEmit { volatile, ..emit(Some(Rooms::from(room("kept"))), false, event) };
        // The volatile message is the first one, because it would skip a member with pending data.
        let emit = vec![message(true, "passing"), message(false, "kept")];
        node.reply("websocket / go [null] 0 false", Ok(EventReply { emit, ..EventReply::default() }));
        for (event, is_kept) in [("passing", false), ("kept", true)] {
            let message = member.next_json();
            assert_eq!((&message["event"], message["offset"].is_u64()), (&json!(event), is_kept));
        }
        drop((member, ws));
        node.check_empty();
    });
}

#[test]
fn plain_clients_send_events() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, |_| {});
        let mut ws = node.server.ws("/ws");
        let session = ws.next_json()["session"].as_str().unwrap().to_owned();
        ws.send_json(json!({"type": "event", "event": "a", "data": {"n": 1}, "id": 1}));
        ws.send_json(json!({"type": "event", "event": "b"}));
        ws.send_json(json!({"type": "event", "event": "_c", "id": 3}));
        ws.send_json(json!({"type": "event", "id": 4}));
        let seen = node.reply("websocket / a [{\"n\":1}] 0 true", ack(r#"{"m":2},3"#));
        assert_eq!(seen.session, session);
        ws.expect_json(json!({"type": "ok", "id": 1, "data": {"m": 2}}));
        node.reply("websocket / b [null] 0 false", ack(""));
        ws.expect_json(json!({"type": "ok"}));
        let error = ws.next_json();
        assert_eq!((error["id"].as_u64(), error["code"].as_str()), (Some(3), Some("unknown_event")));
        assert_eq!(ws.next_json()["code"], "bad_request");
        drop(ws);
        node.check_empty();
    });
}

#[test]
fn an_event_without_a_reply_is_refused() {
    let node = Node::start(1, |options| options.limits.decision_timeout = Duration::from_millis(50));
    let mut io = Io::socket(&node.server, Way::Socket);
    io.connect("", Value::Null);
    io.send(r#"421["a"]"#);
    let unavailable = io.next_text();
    assert!(unavailable.starts_with(r#"431[{"ok":false,"code":"unavailable""#), "{unavailable}");
    assert!(unavailable.ends_with(r#","retry":true}]"#), "{unavailable}");
    // A late reply neither joins rooms nor acknowledges the event. Only its messages to rooms are sent.
    let late = EventReply { join: vec![room("r")], ack: "1".into(), ..EventReply::default() };
    node.reply("socketio / a [] 0 true", Ok(late));
    io.send(r#"422["ruled"]"#);
    io.expect(r#"432[{"ok":true}]"#);
    node.server.publish("r", "1");
    io.send(r#"423["ruled"]"#);
    io.expect(r#"433[{"ok":true}]"#);
    io.leave();
    node.check_empty();
}

#[test]
fn a_reply_reaches_rooms_after_its_client_has_gone() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, |_| {});
        let mut other = node.server.client();
        other.ask(json!({"type": "subscribe", "room": "r"}));
        let mut io = Io::socket(&node.server, Way::Socket);
        io.connect("", Value::Null);
        io.send(r#"421["a"]"#);
        let seen = node.seen();
        drop(io);
        node.server.until_metric("decisions_pending", |pending| pending == 0);
        let emits = vec![emit(Some(room("r").into()), false, "late"), emit(None, false, "own")];
        seen.reply.send(Ok(EventReply { emit: emits, ..EventReply::default() })).unwrap();
        assert_eq!(other.next_json()["event"], "late");
        drop(other);
        node.check_empty();
    });
}

/// Over HTTP, a frame of SockJS depends on the request that carries it.
#[test]
fn a_client_of_sockjs_over_http_receives_what_a_reply_emits_to_it() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, |_| {});
        let mut http = node.server.http();
        let mut poll = || {
            http.send(post("/sockjs/000/x/xhr", "text/plain", b""));
            http.response().text().to_owned()
        };
        assert_eq!(poll(), "o\n");
        assert!(poll().contains("welcome"));
        let body = json!([r#"{"type":"event","event":"a","id":1}"#]).to_string();
        let mut posted = node.server.http();
        posted.send(post("/sockjs/000/x/xhr_send", "text/plain", body.as_bytes()));
        let emit = vec![emit(None, false, "<\u{2028}>")];
        let reply = EventReply { ack: "2".into(), emit, ..EventReply::default() };
        node.reply("sockjs / a [null] 0 true", Ok(reply));
        assert_eq!(posted.response().status, 204);
        let messages = poll();
        let messages: Vec<String> = serde_json::from_str(messages.strip_prefix('a').unwrap()).unwrap();
        assert_eq!(messages[0], r#"{"type":"ok","id":1,"data":2}"#);
        let message: Value = serde_json::from_str(&messages[1]).unwrap();
        assert_eq!(message, json!({"type": "message", "event": "<\u{2028}>", "data": 1}));
    });
}

#[test]
fn rules_handle_events_of_stentor_v1() {
    on_one_and_three(|cores| {
        let room = || vec![Template::parse("{room}").unwrap()];
        let rule = |event: &str| Rule { event: event.into(), ..Rule::default() };
        let node = Node::start(cores, |options| {
            options.rooms.rules = vec![
                Rule { join: room(), ..rule("join") },
                Rule { broadcast: room(), except_sender: true, echo: true, ..rule("say") },
                Rule { namespace: Some("/chat".into()), ..rule("_elsewhere") },
            ];
        });
        let [mut ann, mut ben] = [node.server.client(), node.server.client()];
        let event =
            |event: &str, data: Value| json!({"type": "event", "id": 1, "event": event, "data": data});
        for client in [&mut ann, &mut ben] {
            client.send_json(event("join", json!({"room": "r"})));
            client.expect_json(json!({"type": "ok", "id": 1}));
        }
        ann.send_json(event("join", json!([])));
        let no_room = ann.next_json();
        assert_eq!((&no_room["code"], &no_room["id"]), (&json!("bad_request"), &json!(1)));
        let data = json!({"room": "r", "text": "hello"});
        ann.send_json(event("say", data.clone()));
        assert_eq!(ann.next_json(), json!({"type": "message", "event": "say", "data": data}));
        assert_eq!(ann.next_json(), json!({"type": "ok", "id": 1}));
        assert_eq!(ben.next_json(), json!({"type": "message", "room": "r", "event": "say", "data": data}));
        ann.send_json(event("_elsewhere", data));
        assert_eq!(ann.next_json()["code"], "unknown_event");
        drop((ann, ben));
        node.check_empty();
    });
}
