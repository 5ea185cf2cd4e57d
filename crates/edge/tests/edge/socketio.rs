//! Socket.IO: namespaces, acknowledgements, bytes, rooms that mix all protocols, faults. Recovery is in
//! `recovery.rs`, public attacks in `threats_io.rs`.

use crate::harness::{
    HOUR, Io, Packet, Seen, Server, TRANSPORTS, WAYS, Way, Ws, on_one_and_three, takes, until,
};
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use stentor_edge::{
    Admission, App, AppFactory, Application, Arguments, Connect, Context, Event, Message, NamespaceRequest,
    Options, Recovery, Rule, Template,
};
use stentor_hub::{Data, Disconnect, Room, SessionId};
use stentor_ports::Publish;
use stentor_wire::engineio::Version;
use stentor_wire::http1::Request;

fn open(server: &Server, version: Version, way: Way) -> Io {
    Io::open(server.addr, "/socket.io/", version, way, "")
}

/// Reads the text of a packet with attachments. Returns its JSON without the offset.
fn with_attachments(io: &mut Io, prefix: &str, recovers: bool) -> Value {
    let text = io.next_text();
    plain(serde_json::from_str(text.strip_prefix(prefix).unwrap()).unwrap(), recovers)
}

/// Makes the application request an acknowledgement, with this timeout. Returns the acknowledgement's number.
fn asked(io: &mut Io, milliseconds: u64) -> String {
    io.send(&format!(r#"42["ask",{milliseconds}]"#));
    let text = io.next_text();
    text.strip_prefix("42").unwrap().strip_suffix(r#"["asked"]"#).unwrap().to_owned()
}

/// An application that carries out its clients' commands.
#[derive(Default)]
struct Puppet {
    /// The first session of each namespace.
    first: HashMap<String, SessionId>,
    timers: HashMap<u64, SessionId>,
}

impl Application for Puppet {
    fn connect(&mut self, _: &mut Context<'_>, request: &Request<'_>) -> Connect {
        match request.query().contains("stranger") {
            true => Connect::Refuse { status: 403, message: "strangers".into() },
            false => Connect::Accept,
        }
    }

    fn connect_namespace(&mut self, _: &mut Context<'_>, request: &NamespaceRequest<'_>) -> Admission {
        match request.namespace {
            "/secret" if !request.auth.contains("token") => {
                Admission::Refuse { message: "who are you?".into(), data: Some(r#"{"code":7}"#.into()) }
            }
            "/nowhere" => Admission::Unknown,
            _ => Admission::Accept,
        }
    }

    fn joined(&mut self, ctx: &mut Context<'_>, session: SessionId, request: &NamespaceRequest<'_>, _: &str) {
        self.first.entry(request.namespace.to_owned()).or_insert(session);
        if request.namespace == "/hello" {
            ctx.emit(session, "welcome", Arguments { json: request.auth, attachments: &[] });
        }
    }

    fn closed(&mut self, _: &mut Context<'_>, session: SessionId) {
        self.first.retain(|_, first| *first != session);
    }

    fn message(&mut self, _: &mut Context<'_>, _: SessionId, _: Message<'_>) {}

    fn event(&mut self, ctx: &mut Context<'_>, session: SessionId, event: &Event<'_>) {
        let first = self.first[ctx.namespace().unwrap()];
        match event.name {
            "echo" => ctx.emit(session, "echo", event.arguments),
            "tell first" => ctx.emit(first, "told", event.arguments),
            "ask" => {
                let time = Duration::from_millis(event.arguments.json.parse().unwrap());
                ctx.emit_with_ack(session, "asked", Arguments::default(), time, 77);
            }
            "ask first" => ctx.emit_with_ack(first, "asked", Arguments::default(), HOUR, 78),
            "send" => {
                ctx.send(session, Message::Text("text"));
                ctx.send(session, Message::Binary(b"bytes"));
            }
            "last words" => {
                ctx.emit(session, "goodbye", Arguments::default());
                ctx.close(session, Disconnect::NotAccepted);
            }
            "in order" => {
                ctx.emit(session, "one", Arguments::default());
                ctx.ack(session, event.ack.unwrap(), Arguments { json: "2", attachments: &[] });
                ctx.emit(session, "three", Arguments::default());
                return;
            }
            "later" => {
                self.timers.insert(1, session);
                ctx.after(Duration::from_millis(1), 1);
            }
            _ => {}
        }
        if let Some(ack) = event.ack {
            ctx.ack(session, ack, event.arguments);
        }
    }

    fn acked(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        token: u64,
        answer: Option<Arguments<'_>>,
    ) {
        let text = answer.map_or("nothing".to_owned(), |answer| format!("[{}]", answer.json));
        let json = format!("{token},{}", Value::from(text));
        let attachments = answer.map(|answer| answer.attachments.to_vec()).unwrap_or_default();
        assert!(attachments.iter().all(|bytes| bytes == "answer"));
        ctx.emit(session, "answered", Arguments { json: &json, attachments: &[] });
    }

    fn timer(&mut self, ctx: &mut Context<'_>, token: u64) {
        // The event is sent outside of the client's own message, but still in order.
        let session = self.timers[&token];
        ctx.emit(session, "one", Arguments::default());
        ctx.emit_with_ack(session, "two", Arguments::default(), HOUR, 79);
        ctx.emit(session, "three", Arguments::default());
    }
}

fn puppet(cores: usize, set: impl FnOnce(&mut Options)) -> Server {
    let app: AppFactory = Arc::new(|_| Box::new(Puppet::default()));
    Server::with_app(cores, app, |options| {
        options.heartbeat.interval = HOUR;
        set(options);
    })
}

/// Runs a test with and without recovery, on one core and on three.
fn both(test: impl Fn(&dyn Fn(&mut Options), usize)) {
    let recovery = Recovery { age_max: Duration::from_millis(100), ..Recovery::default() };
    for recovery in [None, Some(recovery)] {
        on_one_and_three(|cores| test(&|options: &mut Options| options.engine.recovery = recovery, cores));
    }
}

/// An event without the offset that a recoverable client receives.
fn plain(mut event: Value, recovers: bool) -> Value {
    if recovers {
        let offset = event.as_array_mut().unwrap().pop().unwrap();
        assert_eq!(offset.as_str().unwrap().len(), 16, "{event} {offset}");
    }
    event
}

#[test]
fn namespaces_up_to_the_limit() {
    both(|set, cores| {
        let server = puppet(cores, |options| {
            set(options);
            options.engine.namespaces_max = 4;
        });
        for way in WAYS {
            let mut io = open(&server, Version::V4, way);
            let mut ids = vec![io.connect("", json!(null))["sid"].clone()];
            for n in 1..4 {
                ids.push(io.connect(&format!("/n{n}"), json!(null))["sid"].clone());
            }
            ids.push(io.sid.clone().into());
            let mut distinct: Vec<&str> = ids.iter().map(|id| id.as_str().unwrap()).collect();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), 5, "no id tells another");
            io.send("40/n4,");
            io.expect(r#"44/n4,{"message":"Too many namespaces (socketio.namespaces_max)"}"#);
            // Leaving a namespace makes room, and the client can connect to it again.
            io.send("41/n1,");
            io.connect("/n4", json!(null));
            io.send("40/n1,");
            assert!(io.next_text().starts_with("44/n1,"));
            assert_eq!(io.ask("echo it", &[json!(1)]), json!([1]));
            io.send("42/n3,[\"echo\"]");
            assert!(io.next_text().starts_with("42/n3,[\"echo\""));
            io.leave();
        }
        server.check_empty();
    });
}

#[test]
fn namespaces_that_are_not_there() {
    both(|set, cores| {
        let server = puppet(cores, set);
        for way in WAYS {
            let mut io = open(&server, Version::V4, way);
            io.send("40/nowhere,");
            io.expect(r#"44/nowhere,{"message":"Invalid namespace"}"#);
            io.send("40/secret,{}");
            io.expect(r#"44/secret,{"message":"who are you?","data":{"code":7}}"#);
            io.connect("/secret", json!({"token": 1}));
            // A name that is too long for a room.
            let long = "x".repeat(300);
            io.send(&format!("40/{long},"));
            io.expect(&format!(r#"44/{long},{{"message":"Invalid namespace"}}"#));
            let sid = io.connect("/hello", json!({"me": true}));
            assert!(sid["sid"].is_string());
            assert!(io.next_text().starts_with(r#"42/hello,["welcome",{"me":true}"#));
            let mut old = open(&server, Version::V3, way);
            old.expect("40");
            old.send("40/nowhere");
            old.expect(r#"44/nowhere,"Invalid namespace""#);
            assert!(old.connect("/n", json!(null)).is_null());
            old.leave();
            io.leave();
        }
        server.check_empty();
    });
}

#[test]
fn acknowledgements_both_ways() {
    both(|set, cores| {
        let server = puppet(cores, set);
        for (version, way) in TRANSPORTS {
            let recovers = server.recovers() && version == Version::V4;
            let mut io = Io::connected(&server, version, way);
            assert_eq!(io.ask("x", &[]), json!([]));
            assert_eq!(io.ask("x", &[json!({"a": [1]}), json!("é")]), json!([{"a": [1]}, "é"]));
            io.send("42007[\"x\"]");
            io.expect("437[]");
            // The acknowledgement is requested, and counted once.
            let number = asked(&mut io, 3_600_000);
            // Acknowledgements of another namespace of the same client, and of another client, are ignored.
            let mut other = Io::connected(&server, version, way);
            other.send(&format!("43{number}[\"not mine\"]"));
            assert_eq!(other.ask("x", &[]), json!([]));
            io.connect("/other", json!(null));
            io.send(&format!("43/other,{number}[\"not mine\"]"));
            io.send("43123456789[\"made up\"]");
            io.send(&format!("43{number}[5,{{\"test\":true}}]"));
            let answered = plain(io.event(), recovers);
            assert_eq!(answered, json!(["answered", 77, "[5,{\"test\":true}]"]));
            io.send(&format!("43{number}[6]"));
            assert_eq!(io.ask("x", &[]), json!([]));
            // The acknowledgement is late.
            let number = asked(&mut io, 1);
            assert_eq!(plain(io.event(), recovers), json!(["answered", 77, "nothing"]));
            io.send(&format!("43{number}[\"late\"]"));
            assert_eq!(io.ask("x", &[]), json!([]));
            // An acknowledgement without payload that no receiver waits for.
            io.send("431");
            assert_eq!(io.ask("x", &[]), json!([]));
            io.leave();
            other.leave();
        }
        server.check_empty();
    });
}

#[test]
fn bytes_both_ways() {
    both(|set, cores| {
        let server = puppet(cores, set);
        let placeholder = |n| json!({"_placeholder": true, "num": n});
        for (version, way) in TRANSPORTS {
            let recovers = server.recovers() && version == Version::V4;
            let mut io = Io::connected(&server, version, way);
            io.send(r#"452-["echo",{"a":{"_placeholder":true,"num":1},"b":{"_placeholder":true,"num":0}}]"#);
            io.send_binary(b"first");
            io.send_binary(b"");
            let event = with_attachments(&mut io, "452-", recovers);
            assert_eq!(event, json!(["echo", {"a": placeholder(1), "b": placeholder(0)}]));
            assert_eq!(io.next(), Packet::Binary(b"first".to_vec()));
            assert_eq!(io.next(), Packet::Binary(Vec::new()));
            // Attachments of acknowledgements, in both directions. Pings between attachments aren't attachments.
            io.send(r#"451-9["x",{"_placeholder":true,"num":0}]"#);
            if version == Version::V4 {
                io.send("3");
            }
            io.send_binary(&[0xff; 70_000]);
            io.expect(r#"461-9[{"_placeholder":true,"num":0}]"#);
            assert_eq!(io.next(), Packet::Binary(vec![0xff; 70_000]));
            let number = asked(&mut io, 3_600_000);
            io.send(&format!(r#"461-{number}[{{"_placeholder":true,"num":0}}]"#));
            io.send_binary(b"answer");
            assert_eq!(plain(io.event(), recovers)[1], 77);
            // The application sends a text message and a binary message.
            io.send(r#"42["send"]"#);
            assert_eq!(plain(io.event(), recovers), json!(["message", "text"]));
            let event = with_attachments(&mut io, "451-", recovers);
            assert_eq!(event, json!(["message", placeholder(0)]));
            assert_eq!(io.next(), Packet::Binary(b"bytes".to_vec()));
            io.leave();
        }
        server.check_empty();
    });
}

#[test]
fn messages_arrive_in_order() {
    both(|set, cores| {
        let server = puppet(cores, set);
        for way in WAYS {
            let mut io = Io::connected(&server, Version::V4, way);
            io.send(r#"421["in order"]"#);
            assert_eq!(io.event()[0], "one");
            io.expect("431[2]");
            assert_eq!(io.event()[0], "three");
            io.send(r#"42["later"]"#);
            assert_eq!(io.event()[0], "one");
            let two = io.next_text();
            assert!(two.starts_with("42") && two.ends_with("[\"two\"]"), "{two}");
            assert_eq!(io.event()[0], "three");
            // A message from another session on the same core.
            let mut first = open(&server, Version::V4, way);
            if cores == 1 {
                first.connect("", json!(null));
                first.send(r#"42["tell first",7]"#);
                assert_eq!(io.event()[1], 7);
            }
            first.leave();
            // A disconnected client receives the last message.
            io.send(r#"42["last words"]"#);
            assert_eq!(io.event()[0], "goodbye");
            io.expect("41");
            // The connection is still there.
            io.connect("", json!(null));
            io.leave();
        }
        server.check_empty();
    });
}

#[test]
fn clients_without_a_namespace_are_disconnected() {
    on_one_and_three(|cores| {
        let time = Duration::from_secs(1);
        let server = Server::start(cores, |options| {
            options.engine.connect_timeout = time;
            options.limits.close_timeout = HOUR;
        });
        for way in WAYS {
            let mut io = open(&server, Version::V4, way);
            let code = takes(time, || io.expect_end());
            let expect = if way == Way::Polling { 0 } else { Disconnect::NotConnected.code() };
            assert_eq!(code, expect);
            let mut io = Io::connected(&server, Version::V4, way);
            io.send("41");
            assert_eq!(io.expect_end(), expect, "nor who leaves all");
        }
        assert_eq!(server.disconnects("not_connected"), 6);
        server.check_empty();
    });
}

// ---- one room, all protocols ----

/// Rules: `join` joins a room, `say` publishes to it, and `shout` reaches all sockets.
fn rules(options: &mut Options) {
    let template = |text: &str| vec![Template::parse(text).unwrap()];
    let rule = |event: &str| Rule { event: event.into(), ack: true, ..Rule::default() };
    options.rooms.rules = vec![
        Rule { join: template("{}"), ..rule("join") },
        Rule { broadcast: template("{}"), ..rule("say") },
    ];
    options.rooms.publish = true;
    options.heartbeat.interval = HOUR;
}

/// A member of a room, by the form in which it receives publications.
enum Member {
    V1(Ws),
    Raw(Ws),
    EngineV1(Io),
    EngineRaw(Io),
    /// A socket, with or without offsets.
    Socket(Io, bool),
}

impl Member {
    /// The next publication, as text.
    fn next(&mut self) -> String {
        match self {
            Self::V1(ws) | Self::Raw(ws) => match ws.next() {
                Seen::Text(text) => text,
                Seen::Binary(bytes) => format!("{bytes:?}"),
                other => panic!("{other:?}"),
            },
            Self::EngineV1(io) | Self::EngineRaw(io) => match io.next() {
                Packet::Text(text) => text.strip_prefix('4').unwrap().to_owned(),
                Packet::Binary(bytes) => format!("{bytes:?}"),
                other => panic!("{other:?}"),
            },
            Self::Socket(io, recovers) => {
                let text = io.next_text();
                let event = |list| plain(serde_json::from_str(list).unwrap(), *recovers).to_string();
                match text.strip_prefix("451-").map(event) {
                    Some(event) => format!("{event} {:?}", io.next()),
                    None => event(text.strip_prefix("42").unwrap()),
                }
            }
        }
    }

    /// Chooses the form that the member receives.
    fn choose<'a>(&self, v1: &'a str, raw: &'a str, event: &'a str) -> &'a str {
        match self {
            Self::V1(_) | Self::EngineV1(_) => v1,
            Self::Raw(_) | Self::EngineRaw(_) => raw,
            Self::Socket(..) => event,
        }
    }
}

/// Members of the room `r`, of every kind.
fn members(server: &Server) -> Vec<Member> {
    let subscribe = json!({"type": "subscribe", "room": "r"});
    let mut members = Vec::new();
    for _ in 0..2 {
        let mut ws = server.client();
        ws.ask(subscribe.clone());
        members.push(Member::V1(ws));
    }
    let mut raw = server.ws("/ws?format=raw");
    raw.send_json(subscribe.clone());
    raw.fence();
    members.push(Member::Raw(raw));
    for way in WAYS {
        let mut io = Io::open(server.addr, "/engine.io/", Version::V4, way, "&format=raw");
        io.send(&format!("4{subscribe}"));
        members.push(Member::EngineRaw(io));
    }
    for (version, way) in TRANSPORTS {
        let mut io = Io::open(server.addr, "/engine.io/", version, way, "");
        assert!(io.next_text().starts_with("4{\"type\":\"welcome\""));
        io.send(&format!("4{subscribe}"));
        io.expect(r#"4{"type":"ok"}"#);
        members.push(Member::EngineV1(io));
        let mut io = Io::connected(server, version, way);
        assert_eq!(io.ask("join", &[json!("r")]), json!([{"ok": true}]));
        members.push(Member::Socket(io, server.recovers() && version == Version::V4));
    }
    // The control plane publishes on one core. A client of another core that has received one message will receive the later
    // ones.
    for round in 0.. {
        let before = server.metric("deliveries_due");
        server.publish("r", &format!("\"round {round}\""));
        until("the round", || server.metric("deliveries_due") > before);
        if server.metric("deliveries_due") - before >= members.len() as u64 {
            break;
        }
        assert!(round < 100_000, "they never meet");
    }
    server.publish("r", "\"met\"");
    members.iter_mut().for_each(|member| while !member.next().contains("met") {});
    members
}

#[test]
fn a_publication_reaches_each_client_as_it_expects_it() {
    const PLACEHOLDER: &str = r#"{"_placeholder":true,"num":0}"#;
    both(|set, cores| {
        let server = Server::start(cores, |options| {
            options.app = App::Rooms;
            rules(options);
            set(options);
        });
        let mut members = members(&server);
        let arguments = |json: &'static str, attachments: &[&'static [u8]]| Data::Arguments {
            json: json.into(),
            attachments: attachments.iter().map(|bytes| Bytes::from_static(bytes)).collect(),
        };
        for (event, data, v1, raw, socket) in [
            (None, Data::Json("[1]".into()), r#""data":[1]"#, "[1]", r#"["message",[1]]"#),
            (
                Some("e"),
                arguments("1,{\"a\":2}", &[]),
                r#""event":"e","data":[1,{"a":2}]"#,
                r#"["e",1,{"a":2}]"#,
                r#"["e",1,{"a":2}]"#,
            ),
            (
                Some("message"),
                arguments("\"text\"", &[]),
                r#""event":"message","data":"text""#,
                "text",
                r#"["message","text"]"#,
            ),
            (
                Some("e"),
                Data::Json("\"s\"".into()),
                r#""event":"e","data":"s""#,
                r#"["e","s"]"#,
                r#"["e","s"]"#,
            ),
            (
                None,
                Data::Binary(Bytes::from_static(b"\x00\xff")),
                r#""encoding":"base64","data":"AP8=""#,
                "[0, 255]",
                r#"["message",{"_placeholder":true,"num":0}] Binary([0, 255])"#,
            ),
            (
                Some("e"),
                arguments(PLACEHOLDER, &[b"att"]),
                r#""event":"e","data":{"_placeholder":true,"num":0}"#,
                r#"["e",{"_placeholder":true,"num":0}]"#,
                r#"["e",{"_placeholder":true,"num":0}] Binary([97, 116, 116])"#,
            ),
        ] {
            let room = Room::plain("r").unwrap();
            server.plane().publish(Publish { room, event: event.map(Into::into), data }).unwrap();
            let v1 = format!(r#"{{"type":"message","room":"r",{v1}}}"#);
            for member in &mut members {
                assert_eq!(member.next(), member.choose(&v1, raw, socket));
            }
        }
        server.until_metric("deliveries_pending", |pending| pending == 0);
        for member in members {
            if let Member::EngineV1(io) | Member::EngineRaw(io) | Member::Socket(io, _) = member {
                io.leave();
            }
        }
        server.check_empty();
    });
}

#[test]
fn feeds_reach_sockets_as_events() {
    for as_string in [false, true] {
        both(|set, cores| {
            let server = Server::start(cores, |options| {
                options.app = App::Rooms;
                options.heartbeat.interval = HOUR;
                options.engine.feed_as_string = as_string;
                set(options);
            });
            server.document("k", "{\"n\":1}");
            let recovers = server.recovers();
            for way in WAYS {
                let mut io = Io::open(server.addr, "/socket.io/", Version::V4, way, "&feed=k");
                io.connect("", json!(null));
                let event = io.event();
                if as_string {
                    // The `null` keeps clients from taking the document for the offset.
                    let expect = if recovers {
                        json!(["feed", "{\"n\":1}", null])
                    } else {
                        json!(["feed", "{\"n\":1}"])
                    };
                    assert_eq!(event, expect);
                } else {
                    assert_eq!(
                        (&event[1]["type"], &event[1]["data"]),
                        (&json!("snapshot"), &json!({"n": 1}))
                    );
                    assert_eq!(event.as_array().unwrap().len(), 2);
                }
                io.leave();
            }
        });
    }
}
