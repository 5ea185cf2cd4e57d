//! Messages published to a room before a session leaves it, in the same turn: the session receives them, and no later ones.

use crate::harness::io::post;
use crate::harness::ws::frame;
use crate::harness::{
    Http, Io, Server, VERSIONS, WAYS, Way, Ws, joins, leaves, on_one_and_three, rule, template,
};
use serde_json::{Value, json};
use std::sync::Arc;
use stentor_edge::{Application, Context, Event, Message, Options, Rule};
use stentor_hub::{Data, Policy, Room, SessionId};
use stentor_wire::ws::Opcode;

/// Larger than the deliveries that are sent together with an answer.
const LARGE_BYTES: usize = 100_000;

/// An application that publishes to a room, removes all sessions from it, and publishes to it again. Then it publishes
/// to a room in which the sessions stay.
struct Leaver {
    policy: Policy,
    sessions: Vec<SessionId>,
}

fn room(name: &str) -> Room {
    Room::plain(name).unwrap()
}

impl Leaver {
    fn enter(&mut self, ctx: &mut Context<'_>, session: SessionId) {
        if !self.sessions.contains(&session) {
            self.sessions.push(session);
        }
        ctx.join(session, &room("left"), self.policy).unwrap();
        ctx.join(session, &room("kept"), Policy::Queue).unwrap();
        ctx.send(session, Message::Text("entered"));
    }

    fn act(&self, ctx: &mut Context<'_>) {
        let publish = |ctx: &mut Context<'_>, name: &str, text: &str| {
            ctx.publish(&room(name), None, Data::Text(text.to_owned().into()), Default::default()).unwrap();
        };
        publish(ctx, "left", &"x".repeat(LARGE_BYTES));
        publish(ctx, "left", "last");
        for session in &self.sessions {
            assert!(ctx.unsubscribe(*session, &room("left").into()));
            assert!(!ctx.unsubscribe(*session, &room("left").into()));
        }
        publish(ctx, "left", "never");
        publish(ctx, "kept", "end");
    }
}

impl Application for Leaver {
    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, message: Message<'_>) {
        match message {
            Message::Text("enter") => self.enter(ctx, session),
            _ => self.act(ctx),
        }
    }

    fn event(&mut self, ctx: &mut Context<'_>, session: SessionId, event: &Event<'_>) {
        match event.name {
            "enter" => self.enter(ctx, session),
            _ => self.act(ctx),
        }
    }
}

/// A client of one protocol and transport.
enum Client {
    Ws(Ws),
    SockJsWs(Ws),
    Xhr(Http, &'static str),
    Engine(Io),
    Socket(Io),
}

fn send_all(io: &mut Io, packets: impl Iterator<Item = String>) {
    let packets: Vec<String> = packets.collect();
    io.send_all(&packets.iter().map(|packet| &**packet).collect::<Vec<_>>());
}

/// The messages of a SockJS frame.
fn messages(frame: &str) -> Vec<String> {
    serde_json::from_str(frame.strip_prefix('a').unwrap_or_else(|| panic!("{frame}"))).unwrap()
}

impl Client {
    fn all(server: &Server) -> Vec<Self> {
        let mut all = vec![Self::Ws(server.ws("/ws")), Self::sockjs_ws(server), Self::xhr(server)];
        for way in WAYS {
            all.push(Self::Engine(Io::engine(server, way)));
            for version in VERSIONS {
                let mut io = Io::open(server.addr, "/socket.io/", version, way, "");
                io.connect("", Value::Null);
                all.push(Self::Socket(io));
            }
        }
        all
    }

    fn sockjs_ws(server: &Server) -> Self {
        let mut ws = server.ws("/sockjs/000/w/websocket");
        assert_eq!(ws.next_text(), "o");
        Self::SockJsWs(ws)
    }

    fn xhr(server: &Server) -> Self {
        let (mut http, session) = (server.http(), "/sockjs/000/x");
        http.send(post(&format!("{session}/xhr"), "text/plain", b""));
        assert_eq!(http.response().text(), "o\n");
        Self::Xhr(http, session)
    }

    /// Sends messages together, if the protocol allows it.
    fn send_all(&mut self, texts: &[&str]) {
        match self {
            Self::Ws(ws) => {
                let frame = |text: &&str| frame(Opcode::Text, text.as_bytes(), true, false);
                ws.send_raw(&texts.iter().flat_map(frame).collect::<Vec<u8>>());
            }
            Self::SockJsWs(ws) => ws.send_text(&json!(texts).to_string()),
            Self::Xhr(http, session) => {
                let body = json!(texts).to_string();
                http.send(post(&format!("{session}/xhr_send"), "text/plain", body.as_bytes()));
                assert_eq!(http.response().status, 204);
            }
            Self::Engine(io) => send_all(io, texts.iter().map(|text| format!("4{text}"))),
            Self::Socket(io) => send_all(io, texts.iter().map(|text| format!("42{}", json!([text])))),
        }
    }

    /// Receives the next messages; over HTTP, the messages of a frame.
    fn receive(&mut self) -> Vec<String> {
        match self {
            Self::Ws(ws) => vec![ws.next_text()],
            Self::SockJsWs(ws) => messages(&ws.next_text()),
            Self::Xhr(http, session) => {
                http.send(post(&format!("{session}/xhr"), "text/plain", b""));
                messages(http.response().text())
            }
            Self::Engine(io) => vec![io.next_text().strip_prefix('4').unwrap().to_owned()],
            Self::Socket(io) => vec![io.event()[1].as_str().unwrap().to_owned()],
        }
    }

    fn expect_all(&mut self, expect: &[&str]) {
        let mut received = Vec::new();
        while received.len() < expect.len() {
            received.extend(self.receive());
        }
        let short = |texts: &[String]| -> Vec<String> {
            texts.iter().map(|text| text.chars().take(80).collect()).collect()
        };
        assert!(received == expect, "{:?}", short(&received));
    }
}

fn leaver(policy: Policy, set: impl FnOnce(&mut Options)) -> Server {
    Server::with_app(1, Arc::new(move |_| Box::new(Leaver { policy, sessions: Vec::new() })), set)
}

#[test]
fn a_session_receives_what_a_handler_publishes_before_it_takes_it_out_of_the_room() {
    let large = "x".repeat(LARGE_BYTES);
    for (policy, expect) in [
        (Policy::Queue, &[&large, "last", "end"][..]),
        (Policy::DropOldest, &[&large, "last", "end"]),
        (Policy::Latest, &["last", "end"]),
    ] {
        let server = leaver(policy, |_| {});
        let mut clients = Client::all(&server);
        for client in &mut clients {
            client.send_all(&["enter"]);
            client.expect_all(&["entered"]);
        }
        clients[0].send_all(&["act"]);
        clients.iter_mut().for_each(|client| client.expect_all(expect));
        server.check_balance();
    }
}

/// A room keeps its slot in a session until its publications have been sent. There are few slots, which are reused.
#[test]
fn slots_of_rooms_that_were_left_are_used_again() {
    let server = leaver(Policy::Queue, |options| options.limits.subscriptions_max = 3);
    let mut ws = server.ws("/ws");
    let large = "x".repeat(LARGE_BYTES);
    for _ in 0..10 {
        // The session has already joined the room in which it stays.
        ws.send_text("enter");
        ws.send_text("act");
        for expect in ["entered", &*large, "last", "end"] {
            assert!(ws.next_text() == expect);
        }
    }
    server.check_balance();
}

/// In `stentor.v1`, the publication precedes the answer, and no message of the room follows it.
#[test]
fn a_client_that_unsubscribes_receives_its_earlier_publications() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.rooms.publish = true);
        let mut clients = vec![
            Client::Ws(server.ws("/ws")),
            Client::sockjs_ws(&server),
            Client::xhr(&server),
            Client::Engine(Io::engine(&server, Way::Socket)),
            Client::Engine(Io::engine(&server, Way::Polling)),
        ];
        for client in &mut clients {
            let welcome = client.receive();
            assert!(welcome[0].starts_with(r#"{"type":"welcome""#), "{welcome:?}");
            client.send_all(&[
                r#"{"type":"subscribe","room":"r"}"#,
                r#"{"type":"publish","room":"r","data":"\u2028<\"1"}"#,
                r#"{"type":"unsubscribe","room":"r"}"#,
                r#"{"type":"publish","room":"r","data":2}"#,
            ]);
            let message = r#"{"type":"message","room":"r","data":"\u2028<\"1"}"#;
            let ok = r#"{"type":"ok"}"#;
            client.expect_all(&[ok, ok, message, ok, ok]);
        }
        server.check_balance();
    });
}

/// The events arrive together, so the room is left before the earlier message has been sent.
#[test]
fn a_rule_that_leaves_keeps_publications_of_earlier_events() {
    for version in VERSIONS {
        for way in WAYS {
            let server = Server::start(1, |options| {
                let say =
                    Rule { broadcast: template("{}"), broadcast_as: Some("said".into()), ..rule("say") };
                options.rooms.rules = vec![joins("join"), say, leaves("leave")];
            });
            let mut io = Io::open(server.addr, "/socket.io/", version, way, "");
            io.connect("", Value::Null);
            let event = |name: &str, text: &str| format!("42{}", json!([name, "r", text]));
            let events = [("join", ""), ("say", "one"), ("leave", ""), ("say", "two")];
            send_all(&mut io, events.into_iter().map(|(name, text)| event(name, text)));
            assert_eq!(io.event(), json!(["said", "r", "one"]));
            io.send_all(&[&event("join", ""), &event("say", "three")]);
            assert_eq!(io.event(), json!(["said", "r", "three"]));
            server.check_balance();
        }
    }
}
