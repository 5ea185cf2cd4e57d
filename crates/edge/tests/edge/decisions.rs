//! Permissions: the refusals that clients receive, and the messages that wait while the authorizer decides.

use crate::harness::io::post;
use crate::harness::ws::frame;
use crate::harness::{
    Http, Io, PATIENCE, Packet, Seen, Server, Way, Ws, joins, now, on_one_and_three, pass, request, rule,
    says, template, until,
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_edge::{LinkRoutes, Options, Rule};
use stentor_hub::Topic;
use stentor_ports::fake::{Link, LinkCall};
use stentor_ports::{
    Access, Authorizer, Command, Decision, Denial, Done, EngineOptions, LinkApps, LinkEntry, LinkReport,
    Networks, PermissionReply, PublicId, Question, Target, Ticket,
};
use stentor_wire::engineio::Version;
use stentor_wire::ws::Opcode;

/// An authorizer. It answers questions about names that begin with `later` later, and all others at once. It refuses
/// names that begin with `secret`. Clients may subscribe to `listen`, but not publish to it.
#[derive(Debug, Default)]
struct ByName {
    later: Mutex<Vec<(String, PermissionReply)>>,
    sessions: Mutex<Vec<PublicId>>,
    cancelled: Mutex<Vec<Ticket>>,
}

impl Authorizer for ByName {
    fn authorize(&self, question: &Question<'_>) -> Decision {
        self.sessions.lock().unwrap().extend(question.session);
        // Clients have the address 127.0.0.1, or one in 192.0.2.0/24.
        let is_known = matches!(question.source, 0x7f00_0001 | 0xc000_0200..=0xc000_02ff);
        assert_eq!(
            (is_known, question.source == 0),
            (question.session.is_some(), question.session.is_none())
        );
        let name = match question.access {
            Access::Subscribe(Topic::Feed(key)) => key.as_str(),
            Access::Subscribe(Topic::Room(room)) | Access::Publish(room) => room.name(),
            Access::Connect { namespace } => namespace.trim_start_matches('/'),
            other => panic!("nobody asks for {other:?} yet"),
        };
        match (name, question.access) {
            ("listen", Access::Publish(_)) => {
                Decision::Deny(Denial::new("only_listen", "only \"listening\""))
            }
            _ if name.starts_with("secret") => Decision::Deny(Denial::new("not_allowed", "this is secret")),
            _ if name.starts_with("later") => {
                self.later.lock().unwrap().push((name.to_owned(), question.later()));
                Decision::Pending
            }
            _ => Decision::Allow,
        }
    }

    fn cancel(&self, ticket: Ticket) {
        self.cancelled.lock().unwrap().push(ticket);
    }
}

struct Node {
    server: Server,
    authorizer: Arc<ByName>,
}

impl Node {
    fn start(cores: usize, set: impl FnOnce(&mut Options)) -> Self {
        let authorizer = Arc::new(ByName::default());
        let port = authorizer.clone();
        let server = Server::start(cores, move |options| {
            options.authorizer = Some(port);
            options.rooms.publish = true;
            options.limits.decision_timeout = PATIENCE;
            options.rooms.namespaces = vec!["/later".into()];
            let both = Rule { join: template("{}"), broadcast: template("{}"), ..rule("both") };
            options.rooms.rules = vec![joins("join"), says("say"), both];
            set(options);
        });
        Self { server, authorizer }
    }

    /// Checks that no questions are open, and no state is kept or charged.
    fn check_empty(&self) {
        assert!(self.authorizer.later.lock().unwrap().is_empty(), "asked more than once");
        self.server.until_metric("decisions_pending", |pending| pending == 0);
        self.server.until_metric("memory_bytes{decisions}", |bytes| bytes == 0);
        self.server.check_balance();
    }

    /// Checks that all questions were about this session.
    fn check_asked_for(&self, id: &Value) {
        assert!(self.authorizer.sessions.lock().unwrap().iter().all(|asked| *id == asked.to_string()));
    }

    /// The reply to the oldest open question about `name`, once it has been asked.
    fn asked(&self, name: &str) -> PermissionReply {
        let mut reply = None;
        until(&format!("a question about {name}"), || {
            let mut asked = self.authorizer.later.lock().unwrap();
            let at = asked.iter().position(|(asked, _)| asked == name);
            reply = at.map(|at| asked.remove(at).1);
            reply.is_some()
        });
        reply.unwrap()
    }

    /// The ticket of the oldest open question about `name`, once it has been asked.
    fn ticket(&self, name: &str) -> Ticket {
        self.asked(name).ticket()
    }

    fn allow(&self, name: &str) {
        self.asked(name).send(Ok(())).unwrap();
    }

    fn deny(&self, name: &str) {
        let denial = Denial::new("not_allowed", "this is secret");
        self.asked(name).send(Err(denial)).unwrap();
    }
}

fn ok(id: u64) -> Value {
    json!({"type": "ok", "id": id})
}

/// Makes pending decisions fail at once.
fn at_once(options: &mut Options) {
    options.limits.decision_timeout = Duration::from_millis(1);
}

#[test]
fn a_plain_client_is_notified_of_refusals() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, at_once);
        let mut ws = node.server.ws("/ws");
        let id = ws.next_json()["session"].take();
        ws.join("listen");
        let (secret, later) =
            ("this is secret", "it isn't known yet whether this is allowed; try again later");
        for (message, code, text) in [
            (json!({"type": "subscribe", "room": "secret"}), "not_allowed", secret),
            (json!({"type": "subscribe", "feed": "secret/1"}), "not_allowed", secret),
            (json!({"type": "publish", "room": "secret", "data": 1}), "not_allowed", secret),
            (json!({"type": "publish", "room": "listen", "data": 1}), "only_listen", "only \"listening\""),
            (json!({"type": "subscribe", "room": "later"}), "unavailable", later),
        ] {
            ws.send_json(message);
            let retry = code == "unavailable";
            ws.expect_json(json!({"type": "error", "code": code, "message": text, "retry": retry}));
        }
        // A backend may publish to rooms that clients may not use, and no client was subscribed.
        node.server.publish("secret", "1");
        node.server.publish("listen", "2");
        ws.expect_json(json!({"type": "message", "room": "listen", "data": 2}));
        node.check_asked_for(&id);
    });
}

#[test]
fn a_socketio_client_is_notified_of_refusals() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, at_once);
        let mut io = Io::socket(&node.server, Way::Polling);
        io.send("40/secret,");
        io.expect(r#"44/secret,{"message":"this is secret","data":{"code":"not_allowed","retry":false}}"#);
        let id = io.connect("", Value::Null)["sid"].take();
        let failed = |code: &str, message: &str| json!([{"ok": false, "code": code, "message": message}]);
        for (event, name, answer) in [
            ("join", "listen", json!([{"ok": true}])),
            ("join", "secret", failed("not_allowed", "this is secret")),
            ("say", "secret", failed("not_allowed", "this is secret")),
            ("say", "listen", failed("only_listen", "only \"listening\"")),
            ("subscribe", "secret/1", failed("not_allowed", "this is secret")),
            ("subscribe", "scores/1", json!([{"ok": true}])),
        ] {
            assert_eq!(io.ask(event, &[name.into()]), answer, "{event} {name}");
        }
        node.check_asked_for(&id);
    });
}

#[test]
fn every_route_to_a_feed_asks() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, at_once);
        let server = &node.server;
        for (target, code) in [
            ("/ws/secret/1", 4406),
            ("/ws?feed=secret/1", 4406),
            ("/sockjs/websocket?feed=secret/1", 4406),
            // If the decision doesn't arrive, the client reconnects and the question is asked again.
            ("/ws/later/1", 4502),
        ] {
            assert_eq!(server.ws(target).skip_to_close(), code, "{target}");
        }
        for (target, status) in
            [("/feed/secret/1", 403), ("/feed/later/1", 503), ("/sse/secret/1", 403), ("/sse/later/1", 503)]
        {
            assert_eq!(server.http().get(target).status, status, "{target}");
        }
        for frame in ["o\n", "c[4406,\"the client may not subscribe to this\"]\n"] {
            assert_eq!(server.ask(post("/sockjs/feed/secret/1/0/x/xhr", "text/plain", b"")).text(), frame);
        }
        assert_eq!(server.disconnects("not_allowed"), 4);
    });
}

#[test]
fn a_plain_message_delays_later_messages() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, |_| {});
        let mut ws = node.server.client();
        // All messages are in one segment, so that they are buffered when the first is handled.
        let messages = [
            json!({"type": "subscribe", "room": "later/a", "id": 1}),
            json!({"type": "subscribe", "room": "now", "id": 2}),
            json!({"type": "publish", "room": "later/b", "data": 1, "id": 3}),
            json!({"type": "publish", "room": "now", "data": 2, "id": 4}),
            json!({"type": "subscribe", "feed": "later/c", "id": 5}),
            json!({"type": "ping", "id": 6}),
        ];
        let frame = |message: &Value| frame(Opcode::Text, message.to_string().as_bytes(), true, false);
        ws.send_raw(&messages.iter().flat_map(frame).collect::<Vec<u8>>());
        node.allow("later/a");
        ws.expect_json(ok(1));
        ws.expect_json(ok(2));
        node.deny("later/b");
        let denied = json!({"type": "error", "id": 3, "code": "not_allowed", "message": "this is secret", "retry": false});
        ws.expect_json(denied);
        ws.expect_json(ok(4));
        ws.expect_json(json!({"type": "message", "room": "now", "data": 2}));
        node.allow("later/c");
        ws.expect_json(ok(5));
        ws.expect_json(ok(6));
        node.server.publish("later/a", "3");
        ws.expect_json(json!({"type": "message", "room": "later/a", "data": 3}));
        // Each message is handled once.
        node.server.until_metric("messages_received", |count| count == messages.len() as u64);
        drop(ws);
        node.check_empty();
    });
}

/// Messages in other envelopes: Primus, and several SockJS messages in one frame.
#[test]
fn wrapped_messages_wait() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, |_| {});
        let subscribe = json!({"type": "subscribe", "room": "later", "id": 1});
        let ping = json!({"type": "ping", "id": 2});
        let mut primus = node.server.ws("/primus");
        primus.next_json();
        primus.send_json(subscribe.clone());
        primus.send_json(ping.clone());
        node.allow("later");
        primus.expect_json(ok(1));
        primus.expect_json(ok(2));

        let mut sockjs = node.server.ws("/sockjs/0/a/websocket");
        assert_eq!(sockjs.next_text(), "o");
        assert!(sockjs.next_text().contains("welcome"));
        // The waiting message is the first one of a frame, or a later one.
        for before in [vec![], vec![json!({"type": "ping", "id": 0}).to_string()]] {
            let mut messages = before.clone();
            messages.extend([subscribe.to_string(), ping.to_string()]);
            sockjs.send_json(json!(messages));
            for _ in &before {
                assert!(sockjs.next_text().contains(r#"\"ok\",\"id\":0"#));
            }
            node.deny("later");
            assert!(sockjs.next_text().contains("not_allowed"));
            assert!(sockjs.next_text().contains(r#"\"ok\",\"id\":2"#));
        }
        drop((primus, sockjs));
        node.check_empty();
    });
}

#[test]
fn sockjs_messages_over_http_wait() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, |_| {});
        let session = "/sockjs/0/x";
        let poll = |http: &mut Http| {
            http.send(post(&format!("{session}/xhr"), "text/plain", b""));
            http.response().text().to_owned()
        };
        let mut down = node.server.http();
        assert_eq!(poll(&mut down), "o\n");
        assert!(poll(&mut down).contains("welcome"));
        let send = |messages: &[Value]| {
            let messages: Vec<String> = messages.iter().map(Value::to_string).collect();
            post(&format!("{session}/xhr_send"), "text/plain", json!(messages).to_string().as_bytes())
        };
        // The second request must not overtake the first one, which waits for decisions.
        let mut up = [node.server.http(), node.server.http()];
        let subscribe = |room: &str, id: u64| json!({"type": "subscribe", "room": room, "id": id});
        up[0].send(send(&[subscribe("later/a", 1), subscribe("later/b", 2)]));
        let first = node.asked("later/a");
        up[1].send(send(&[subscribe("now", 3)]));
        node.server.until_metric("http_requests", |requests| requests >= 4);
        first.send(Ok(())).unwrap();
        node.deny("later/b");
        let mut answers = String::new();
        while answers.matches(r#"\"id\""#).count() < 3 {
            answers += &poll(&mut down);
        }
        let at = |id: u64| answers.find(&format!(r#"\"id\":{id}"#)).unwrap();
        assert!(at(1) < at(2) && at(2) < at(3) && answers.contains("not_allowed"), "{answers}");
        up.iter_mut().for_each(|http| assert_eq!(http.response().status, 204));
        node.check_empty();
    });
}

/// A response with `Connection: close` ends the connection on which a message waits.
#[test]
fn a_request_is_answered_after_its_last_message() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, |_| {});
        let poll = |http: &mut Http| {
            http.send(post("/sockjs/0/x/xhr", "text/plain", b""));
            http.response().text().to_owned()
        };
        let mut down = node.server.http();
        assert_eq!(poll(&mut down), "o\n");
        assert!(poll(&mut down).contains("welcome"));
        let body = json!([json!({"type": "subscribe", "room": "later", "id": 1}).to_string()]).to_string();
        let mut up = node.server.http();
        up.send(format!(
            "POST /sockjs/0/x/xhr_send HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: text/plain\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        node.allow("later");
        assert_eq!(up.response().status, 204);
        up.expect_end();
        assert!(poll(&mut down).contains(r#"\"ok\",\"id\":1"#));
        node.check_empty();
    });
}

#[test]
fn socketio_events_wait() {
    for way in [Way::Socket, Way::Polling] {
        on_one_and_three(|cores| {
            let node = Node::start(cores, |_| {});
            let mut io = Io::socket(&node.server, way);
            io.connect("", Value::Null);
            io.begin_send(&[
                r#"421["join","later/a"]"#,
                r#"422["both","later/b"]"#,
                r#"423["say","now"]"#,
                r#"424["join","later/c"]"#,
            ]);
            node.allow("later/a");
            // One decision to join, one to publish.
            node.allow("later/b");
            node.deny("later/b");
            node.allow("later/c");
            io.end_send();
            let refused = r#"[{"ok":false,"code":"not_allowed","message":"this is secret"}]"#;
            for id in 1..=4 {
                let expect = if id == 2 { refused } else { r#"[{"ok":true}]"# };
                assert_eq!(io.next_text(), format!("43{id}{expect}"), "{way:?}");
            }
            // A packet with an attachment consists of two messages.
            io.send(r#"451-["say","later/a",{"_placeholder":true,"num":0}]"#);
            io.begin_send_binary(b"bytes");
            node.allow("later/a");
            io.end_send();
            assert_eq!(io.next_text(), r#"451-["say","later/a",{"_placeholder":true,"num":0}]"#);
            assert_eq!(io.next(), Packet::Binary(b"bytes".into()));
            io.leave();
            node.check_empty();
        });
    }
}

#[test]
fn a_namespace_waits() {
    for way in [Way::Socket, Way::Polling] {
        on_one_and_three(|cores| {
            let node = Node::start(cores, |_| {});
            let mut io = Io::socket(&node.server, way);
            io.begin_send(&["40/later,", "40"]);
            node.deny("later");
            io.end_send();
            io.expect(r#"44/later,{"message":"this is secret","data":{"code":"not_allowed","retry":false}}"#);
            assert!(io.next_text().starts_with(r#"40{"sid":"#));
            io.begin_send(&["40/later,", r#"421["subscribe","k"]"#]);
            node.allow("later");
            io.end_send();
            assert!(io.next_text().starts_with(r#"40/later,{"sid":"#));
            io.expect(r#"431[{"ok":true}]"#);
            io.leave();
            node.check_empty();
        });
    }
}

#[test]
fn routes_to_a_feed_wait() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, |_| {});
        let get = |target: &str| {
            let mut http = node.server.http();
            http.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
            http
        };
        for (target, key) in [("/feed/later/1", "later/1"), ("/sse/later/2", "later/2")] {
            let mut http = get(target);
            node.deny(key);
            assert_eq!(http.response().status, 403, "{target}");
            // The connection continues.
            assert_eq!(http.get("/healthz").status, 200);
        }
        let mut document = get("/feed/later/1");
        node.allow("later/1");
        node.server.wait_wanted("later/1", true);
        node.server.document("later/1", "1");
        assert_eq!(document.response().text(), "1");
        // Several questions at once, answered in any order.
        let mut events = get("/sse?feed=later/3&feed=later/2&feed=now");
        node.allow("later/3");
        node.allow("later/2");
        events.stream_head();
        assert!(events.next_chunk().starts_with("retry"));
        node.server.document("later/3", "3");
        assert!(events.next_chunk().contains("later/3"));
        drop(events);
        let posted = || {
            let mut http = node.server.http();
            http.send(post("/sse", "text/plain", br#"{"feeds":{"later/2":null,"later/3":null}}"#));
            http
        };
        let mut events = posted();
        node.allow("later/3");
        node.deny("later/2");
        assert_eq!(events.response().status, 403);
        assert_eq!(events.get("/healthz").status, 200);
        let mut events = posted();
        node.allow("later/2");
        node.allow("later/3");
        events.stream_head();
        assert!(events.next_chunk().starts_with("retry"));
        assert!(events.next_chunk().contains("later/3"));
        drop(events);

        let mut raw = node.server.ws("/ws/later/4");
        node.deny("later/4");
        assert_eq!(raw.skip_to_close(), 4406);
        let mut raw = node.server.ws("/ws/later/4");
        node.allow("later/4");
        node.server.wait_wanted("later/4", true);
        node.server.document("later/4", "4");
        assert_eq!(raw.next_text(), "4");
        // Messages of the client wait for the feeds of its query.
        let mut ws = node.server.ws("/ws?feed=later/5");
        ws.send_json(json!({"type": "unsubscribe", "feed": "later/5", "id": 1}));
        assert_eq!(ws.next_json()["type"], "welcome");
        node.allow("later/5");
        ws.expect_json(ok(1));
        node.server.wait_wanted("later/5", false);
        let xhr = || node.server.ask(post("/sockjs/feed/later/6/0/x/xhr", "text/plain", b""));
        assert_eq!(xhr().text(), "o\n");
        node.deny("later/6");
        assert_eq!(xhr().text(), "c[4406,\"the client may not subscribe to this\"]\n");
        let mut io = Io::open(node.server.addr, "/socket.io/", Version::V4, Way::Socket, "&feed=later/7");
        io.send_all(&["40", r#"421["unsubscribe","later/7"]"#]);
        assert!(io.next_text().starts_with(r#"40{"sid":"#));
        node.allow("later/7");
        io.expect(r#"431[{"ok":true}]"#);
        node.server.wait_wanted("later/7", false);
        drop((raw, ws, io));
        node.check_empty();
    });
}

/// An authorizer that answers later whether a client may connect.
#[derive(Debug, Default)]
struct Door(Mutex<Vec<PermissionReply>>);

impl Authorizer for Door {
    fn authorize(&self, question: &Question<'_>) -> Decision {
        let Access::Connect { .. } = question.access else { return Decision::Allow };
        self.0.lock().unwrap().push(question.later());
        Decision::Pending
    }
}

#[test]
fn connecting_waits() {
    on_one_and_three(|cores| {
        let door = Arc::new(Door::default());
        let port = door.clone();
        let server = Server::start(cores, move |options| options.authorizer = Some(port));
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        let requests = [
            (format!("GET /ws HTTP/1.1\r\nHost: a\r\n{upgrade}\r\n"), 101),
            ("GET /engine.io/?EIO=4&transport=polling HTTP/1.1\r\nHost: a\r\n\r\n".into(), 200),
            ("GET /socket.io/?EIO=3&transport=polling HTTP/1.1\r\nHost: a\r\n\r\n".into(), 200),
            ("POST /sockjs/0/x/xhr HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".into(), 200),
        ];
        for (request, expect) in requests {
            for answer in [Err(Denial::new("not_allowed", "go away")), Ok(())] {
                let mut http = server.http();
                http.send(&request);
                until("a question", || !door.0.lock().unwrap().is_empty());
                let reply = door.0.lock().unwrap().pop().unwrap();
                let expect = if answer.is_ok() { expect } else { 403 };
                reply.send(answer).unwrap();
                assert_eq!(http.response().status, expect, "{request}");
                assert!(door.0.lock().unwrap().is_empty(), "asked again: {request}");
            }
        }
    });
}

#[test]
fn no_client_waits_for_ever() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, |options| options.limits.decision_timeout = Duration::from_millis(1));
        let mut ws = node.server.client();
        ws.send_json(json!({"type": "subscribe", "room": "later", "id": 1}));
        let late = node.asked("later");
        let answer = ws.next_json();
        assert_eq!((&answer["code"], &answer["retry"]), (&json!("unavailable"), &json!(true)));
        // An answer after the timeout has no effect, and neither has a second answer.
        for answer in [Ok(()), Err(Denial::UNAVAILABLE)] {
            late.send(answer).unwrap();
        }
        assert_eq!(node.server.http().get("/feed/later/1").status, 503);
        node.asked("later/1");
        node.server.publish("later", "1");
        ws.ask(json!({"type": "ping"}));
        node.server.until_metric("decisions_unanswered", |unanswered| unanswered == 2);
        node.check_empty();
    });
}

/// An address with many open questions makes room for questions of others.
#[test]
fn a_flood_of_questions_refuses_no_other_address() {
    let node = Node::start(1, |options| {
        options.limits.decisions_max = 3;
        options.proxies.trusted = Networks::parse(&["127.0.0.0/8"]).unwrap();
    });
    let client = |address: &str, target: &str| {
        let mut ws = Ws::open(node.server.addr, target, &[("X-Forwarded-For", address)], false).unwrap();
        assert_eq!(ws.next_json()["type"], "welcome");
        ws
    };
    let _flood = client("192.0.2.1", "/ws?feed=later/1&feed=later/2&feed=later/3");
    let [_, second, third] = ["later/1", "later/2", "later/3"].map(|name| node.ticket(name));
    let cancelled = || node.authorizer.cancelled.lock().unwrap().clone();
    let mut clients = Vec::new();
    // Questions of a second address, of the same address again, of a third address, and of a fourth address when all
    // addresses have equally many open questions.
    for (address, expect) in [
        ("192.0.2.2", vec![third]),
        ("192.0.2.2", vec![]),
        ("192.0.2.3", vec![second]),
        ("192.0.2.4", vec![]),
    ] {
        let before = cancelled().len();
        let mut ws = client(address, "/ws");
        ws.send_json(json!({"type": "subscribe", "room": "later", "id": 1}));
        let own = node.asked("later");
        if expect.is_empty() {
            assert_eq!(ws.next_json()["code"], "unavailable", "{address}");
            assert_eq!(cancelled()[before..], [own.ticket()], "{address}");
        } else {
            assert_eq!(cancelled()[before..], expect, "{address}");
            clients.push((ws, own));
        }
    }
    for (ws, reply) in &mut clients {
        reply.send(Ok(())).unwrap();
        ws.expect_json(ok(1));
    }
}

/// A slow worker of the application link doesn't take the places of questions.
#[test]
fn clients_that_wait_for_their_workers_leave_room_for_questions() {
    let link = Arc::new(Link::default());
    let sink = link.clone();
    let node = Node::start(1, |options| {
        options.limits.decisions_max = 1;
        options.link = Some(LinkRoutes {
            sink,
            apps: Arc::new(LinkApps::new([EngineOptions::of_path("/app/")])),
            http: None,
        });
    });
    let reported = |is_expected: &dyn Fn(&LinkReport) -> bool| {
        let mut found = None;
        until("a report", || {
            found = link.take().into_iter().find_map(|call| match call {
                LinkCall::Report(session, report) if is_expected(&report) => Some(session),
                _ => None,
            });
            found.is_some()
        });
        found.unwrap()
    };
    let entries = |entries: &[LinkEntry]| node.server.plane().carry_out(1, &mut entries.to_vec()).unwrap();
    let is_message = |report: &LinkReport| matches!(report, LinkReport::Messages(_));
    let mut clients: Vec<_> = (0..2)
        .map(|_| {
            let stream = Ws::begin_open(node.server.addr, "/app/?EIO=4&transport=websocket");
            let session = reported(&|report| matches!(report, LinkReport::Opened(..)));
            entries(&[LinkEntry::Accept(session, Box::default()), LinkEntry::Pause(session)]);
            let mut ws = Ws::answered(stream, None).unwrap();
            node.server.check_serves();
            ws.send_text("4waits");
            assert_eq!(reported(&is_message), session);
            (ws, session)
        })
        .collect();
    let mut ws = node.server.client();
    ws.send_json(json!({"type": "subscribe", "room": "later", "id": 1}));
    node.allow("later");
    ws.expect_json(ok(1));
    for (ws, session) in &mut clients {
        ws.send_text("4next");
        entries(&[LinkEntry::Continue(*session)]);
        assert_eq!(reported(&is_message), *session);
    }
    drop(clients);
    node.check_empty();
}

/// Questions are cancelled if their connection has ended, or if there was no room for them.
#[test]
fn questions_of_closed_connections_are_cancelled() {
    let node = Node::start(1, |options| options.limits.decisions_max = 1);
    let cancelled = || node.authorizer.cancelled.lock().unwrap().clone();
    let (mut ws, id) = node.server.client_and_id();
    ws.send_json(json!({"type": "subscribe", "room": "later", "id": 1}));
    let waits = node.ticket("later");
    let mut other = node.server.client();
    other.send_json(json!({"type": "subscribe", "room": "later/2", "id": 1}));
    assert_eq!(other.next_json()["code"], "unavailable");
    let refused = node.ticket("later/2");
    assert_eq!(cancelled(), [refused]);
    let command = Command::Disconnect { close: true, done: Done::new(|_| ()) };
    node.server.plane().command(Target::of("/").unwrap().session(id), command);
    assert_eq!(ws.skip_to_close(), 4403);
    node.server.until_metric("sessions", |sessions| sessions == 1);
    assert_eq!(cancelled(), [refused, waits]);
    // An answered question isn't cancelled.
    other.send_json(json!({"type": "subscribe", "room": "later", "id": 2}));
    node.allow("later");
    other.expect_json(ok(2));
    drop(other);
    node.server.until_metric("sessions", |sessions| sessions == 0);
    assert_eq!(cancelled(), [refused, waits]);
    node.check_empty();
}

/// A client that has finished sending while it waits: questions about its subscriptions are cancelled, and all of its other input
/// is handled.
#[test]
fn a_client_that_finishes_sending_is_not_waited_for() {
    let node = Node::start(1, |_| {});
    let cancelled = || std::mem::take(&mut *node.authorizer.cancelled.lock().unwrap());
    let text = |message: Value| frame(Opcode::Text, message.to_string().as_bytes(), true, false);
    let mut witness = node.server.client();
    witness.ask(json!({"type": "subscribe", "room": "now"}));
    let publish = |data: u64| json!({"type": "publish", "room": "now", "data": data, "id": data});
    let message = |data: u64| json!({"type": "message", "room": "now", "data": data});
    // An SSE stream.
    let mut stream = node.server.http();
    stream.send(request("GET", "/sse?feed=later/1&feed=later/2", ""));
    let asked = ["later/1", "later/2"].map(|name| node.ticket(name));
    stream.finish_sending();
    stream.expect_end();
    assert_eq!(cancelled(), asked);
    // A WebSocket whose query names feeds.
    let mut ws = node.server.ws("/ws?feed=later/1&feed=later/2");
    let asked = ["later/1", "later/2"].map(|name| node.ticket(name));
    ws.send_json(publish(1));
    ws.stream().finish_sending();
    witness.expect_json(message(1));
    assert_eq!(cancelled(), asked);
    // A WebSocket with messages that the server has already read, and messages that it hasn't.
    let mut ws = node.server.client();
    ws.send_raw(
        &[
            text(json!({"type": "subscribe", "room": "later/a", "id": 1})),
            text(json!({"type": "publish", "room": "later/b", "data": 2, "id": 2})),
            text(json!({"type": "subscribe", "feed": "later/c", "id": 3})),
        ]
        .concat(),
    );
    let asked = node.ticket("later/a");
    ws.send_json(publish(4));
    ws.stream().finish_sending();
    let is_published = node.asked("later/b");
    pass(Duration::from_secs(1));
    assert_eq!(cancelled(), [asked]);
    is_published.send(Ok(())).unwrap();
    witness.expect_json(message(4));
    assert_eq!(cancelled(), [node.ticket("later/c")]);
    for (id, answer) in [(1, "error"), (2, "ok"), (3, "error"), (4, "ok")] {
        let next = ws.next_json();
        assert_eq!((&next["type"], &next["id"]), (&json!(answer), &json!(id)), "{next}");
    }
    assert_eq!(ws.next(), Seen::End);
    // A request, whose client reads the response.
    node.server.document("later/1", "5");
    let mut http = node.server.http();
    http.send(request("GET", "/feed/later/1", ""));
    http.finish_sending();
    pass(Duration::from_secs(1));
    node.allow("later/1");
    assert_eq!(http.response().text(), "5");
    assert_eq!(cancelled(), []);
    node.check_empty();
}

#[test]
fn a_late_answer_is_refused_at_its_deadline() {
    let node = Node::start(1, |options| options.limits.decision_timeout = Duration::from_millis(20));
    let mut ws = node.server.client();
    let begun = now();
    for id in 0..20 {
        ws.send_json(json!({"type": "subscribe", "room": "later", "id": id}));
        assert_eq!(ws.next_json()["code"], "unavailable");
        node.asked("later");
    }
    // The sessions end together, not one per second.
    let took = now() - begun;
    assert!(took < Duration::from_secs(12), "{took:?}");
    node.check_empty();
}

#[test]
fn a_flood_of_questions_is_refused() {
    let node = Node::start(1, |options| options.limits.decisions_max = 3);
    let mut ids = Vec::new();
    let mut clients: Vec<Ws> = (0..6)
        .map(|n| {
            let (mut ws, id) = node.server.client_and_id();
            ids.push(id);
            ws.send_json(json!({"type": "subscribe", "room": format!("later/{n}"), "id": n}));
            node.server.until_metric("messages_received", |messages| messages == n + 1);
            ws
        })
        .collect();
    for ws in &mut clients[3..] {
        assert_eq!(ws.next_json()["code"], "unavailable");
    }
    assert!(node.server.metric("memory_bytes{decisions}") > 0);
    // A session that ends makes room for a question of another session. The answer to its own question has no effect.
    let gone = node.asked("later/0");
    let command = Command::Disconnect { close: true, done: Done::new(|_| ()) };
    node.server.plane().command(Target::of("/").unwrap().session(ids[0]), command);
    assert_eq!(clients.remove(0).skip_to_close(), 4403);
    node.server.until_metric("sessions", |sessions| sessions == 5);
    gone.send(Ok(())).unwrap();
    let mut last = clients.pop().unwrap();
    node.asked("later/5");
    last.send_json(json!({"type": "subscribe", "room": "later/5", "id": 7}));
    node.allow("later/5");
    last.expect_json(ok(7));
    for n in [1, 2] {
        node.allow(&format!("later/{n}"));
        clients[n - 1].expect_json(ok(n as u64));
    }
    for n in [3, 4] {
        node.asked(&format!("later/{n}"));
    }
    node.check_empty();
}
