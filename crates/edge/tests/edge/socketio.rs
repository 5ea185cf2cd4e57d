//! Socket.IO over real sockets: namespaces, acknowledgements, bytes, rooms that mix all protocols, faults. Recovery is in
//! `recovery.rs`, public attacks in `threats_io.rs`.

use crate::harness::{Io, Packet, Server, VERSIONS, WAYS, Way, Ws, on_one_and_three};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use stentor_edge::{
    Admission, App, AppFactory, Application, Arguments, Connect, Context, Event, Hello, Message, Options,
    Publish, Recovery, Rule, Template,
};
use stentor_hub::{Data, Disconnect, Room, SessionId};
use stentor_wire::engineio::Version;
use stentor_wire::http1::Request;

const HOUR: Duration = Duration::from_secs(3600);

fn open(server: &Server, version: Version, way: Way) -> Io {
    Io::open(server.addr, "/socket.io/", version, way, "")
}

/// Does what its clients tell it.
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

    fn connect_namespace(&mut self, _: &mut Context<'_>, hello: &Hello<'_>) -> Admission {
        match hello.namespace {
            "/secret" if !hello.auth.contains("token") => {
                Admission::Refuse { message: "who are you?".into(), data: Some(r#"{"code":7}"#.into()) }
            }
            "/nowhere" => Admission::Unknown,
            _ => Admission::Accept,
        }
    }

    fn joined(&mut self, ctx: &mut Context<'_>, session: SessionId, hello: &Hello<'_>, _: &str) {
        self.first.entry(hello.namespace.to_owned()).or_insert(session);
        if hello.namespace == "/hello" {
            ctx.emit(session, "welcome", Arguments { json: hello.auth, attachments: &[] });
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
        // From outside of the handling of its own messages, in order all the same.
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

/// With recovery and without, on one core and on three.
fn both(test: impl Fn(&dyn Fn(&mut Options), usize)) {
    let recovery = Recovery { age_max: Duration::from_millis(100), ..Recovery::default() };
    for recovery in [None, Some(recovery)] {
        on_one_and_three(|cores| test(&|options: &mut Options| options.engine.recovery = recovery, cores));
    }
}

/// An event without the offset that a client of a server with recovery gets.
fn plain(mut event: Value, recovers: bool) -> Value {
    if recovers {
        let offset = event.as_array_mut().unwrap().pop().unwrap();
        assert_eq!(offset.as_str().unwrap().len(), 16, "{event} {offset}");
    }
    event
}

fn check_empty(server: &Server) {
    server.until_metric("engineio_sessions", |clients| clients == 0);
    server.check_empty();
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
            // Who leaves makes room, and can come back.
            io.send("41/n1,");
            io.connect("/n4", json!(null));
            io.send("40/n1,");
            assert!(io.next_text().starts_with("44/n1,"));
            assert_eq!(io.ask("echo it", &[json!(1)]), json!([1]));
            io.send("42/n3,[\"echo\"]");
            assert!(io.next_text().starts_with("42/n3,[\"echo\""));
            io.leave();
        }
        check_empty(&server);
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
            // A name that no room could have.
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
        check_empty(&server);
    });
}

#[test]
fn acknowledgements_both_ways() {
    both(|set, cores| {
        let server = puppet(cores, set);
        let recovers = server.recovers();
        for version in VERSIONS {
            for way in WAYS {
                let recovers = recovers && version == Version::V4;
                let mut io = open(&server, version, way);
                io.connect("", json!(null));
                assert_eq!(io.ask("x", &[]), json!([]));
                assert_eq!(io.ask("x", &[json!({"a": [1]}), json!("é")]), json!([{"a": [1]}, "é"]));
                io.send("42007[\"x\"]");
                io.expect("437[]");
                // Asked, and answered once.
                io.send(r#"42["ask",3600000]"#);
                let asked = io.next_text();
                let number = asked.strip_prefix("42").unwrap().strip_suffix(r#"["asked"]"#).unwrap();
                let number = number.to_owned();
                // By nobody else: another namespace of the same client, and another client.
                let mut other = open(&server, version, way);
                other.connect("", json!(null));
                other.send(&format!("43{number}[\"stolen\"]"));
                assert_eq!(other.ask("x", &[]), json!([]));
                io.connect("/other", json!(null));
                io.send(&format!("43/other,{number}[\"stolen\"]"));
                io.send("43123456789[\"made up\"]");
                io.send(&format!("43{number}[5,{{\"test\":true}}]"));
                let answered = plain(io.event(), recovers);
                assert_eq!(answered, json!(["answered", 77, "[5,{\"test\":true}]"]));
                io.send(&format!("43{number}[6]"));
                assert_eq!(io.ask("x", &[]), json!([]));
                // Not in time.
                io.send(r#"42["ask",1]"#);
                let asked = io.next_text();
                assert_eq!(plain(io.event(), recovers), json!(["answered", 77, "nothing"]));
                io.send(&format!("43{}[\"late\"]", &asked[2..asked.len() - 9]));
                assert_eq!(io.ask("x", &[]), json!([]));
                io.leave();
                other.leave();
            }
        }
        check_empty(&server);
    });
}

#[test]
fn bytes_both_ways() {
    both(|set, cores| {
        let server = puppet(cores, set);
        let recovers = server.recovers();
        for version in VERSIONS {
            for way in WAYS {
                let recovers = recovers && version == Version::V4;
                let mut io = open(&server, version, way);
                io.connect("", json!(null));
                io.send(
                    r#"452-["echo",{"a":{"_placeholder":true,"num":1},"b":{"_placeholder":true,"num":0}}]"#,
                );
                io.send_binary(b"first");
                io.send_binary(b"");
                let text = io.next_text();
                let event: Value = serde_json::from_str(text.strip_prefix("452-").unwrap()).unwrap();
                let placeholder = |n| json!({"_placeholder": true, "num": n});
                assert_eq!(
                    plain(event, recovers),
                    json!(["echo", {"a": placeholder(1), "b": placeholder(0)}])
                );
                assert_eq!(io.next(), Packet::Binary(b"first".to_vec()));
                assert_eq!(io.next(), Packet::Binary(Vec::new()));
                // In an acknowledgement, both ways.
                io.send(r#"451-9["x",{"_placeholder":true,"num":0}]"#);
                io.send_binary(&[0xff; 70_000]);
                io.expect(r#"461-9[{"_placeholder":true,"num":0}]"#);
                assert_eq!(io.next(), Packet::Binary(vec![0xff; 70_000]));
                io.send(r#"42["ask",3600000]"#);
                let asked = io.next_text();
                let number = &asked[2..asked.len() - 9];
                io.send(&format!(r#"461-{number}[{{"_placeholder":true,"num":0}}]"#));
                io.send_binary(b"answer");
                assert_eq!(plain(io.event(), recovers)[1], 77);
                // As messages of the application's.
                io.send(r#"42["send"]"#);
                assert_eq!(plain(io.event(), recovers), json!(["message", "text"]));
                let text = io.next_text();
                let event: Value = serde_json::from_str(text.strip_prefix("451-").unwrap()).unwrap();
                assert_eq!(plain(event, recovers), json!(["message", placeholder(0)]));
                assert_eq!(io.next(), Packet::Binary(b"bytes".to_vec()));
                io.leave();
            }
        }
        check_empty(&server);
    });
}

#[test]
fn what_is_sent_comes_in_order() {
    both(|set, cores| {
        let server = puppet(cores, set);
        for way in WAYS {
            let mut io = open(&server, Version::V4, way);
            io.connect("", json!(null));
            io.send(r#"421["in order"]"#);
            assert_eq!(io.event()[0], "one");
            io.expect("431[2]");
            assert_eq!(io.event()[0], "three");
            io.send(r#"42["later"]"#);
            assert_eq!(io.event()[0], "one");
            let two = io.next_text();
            assert!(two.starts_with("42") && two.ends_with("[\"two\"]"), "{two}");
            assert_eq!(io.event()[0], "three");
            // To somebody else of the same core: a namespace of its own.
            let mut first = open(&server, Version::V4, way);
            if cores == 1 {
                first.connect("", json!(null));
                first.send(r#"42["tell first",7]"#);
                assert_eq!(io.event()[1], 7);
            }
            first.leave();
            // Who is shown the door hears why.
            io.send(r#"42["last words"]"#);
            assert_eq!(io.event()[0], "goodbye");
            io.expect("41");
            // The connection is still there.
            io.connect("", json!(null));
            io.leave();
        }
        check_empty(&server);
    });
}

#[test]
fn who_breaks_the_protocol_is_disconnected() {
    on_one_and_three(|cores| {
        let server = puppet(cores, |options| options.engine.attachments_max = 2);
        for version in VERSIONS {
            for way in WAYS {
                for packet in [
                    "42[]",
                    "42[null]",
                    "42{}",
                    r#"42["connect"]"#,
                    r#"42["disconnecting"]"#,
                    r#"42["newListener"]"#,
                    r#"42["x"]trailing"#,
                    r#"44{"message":"error"}"#,
                    r#"42/unknown,["x"]"#,
                    r#"453-["x"]"#,
                    r#"45-["x"]"#,
                    r#"450-["x"]"#,
                    "4",
                    "49",
                ] {
                    let mut io = open(&server, version, way);
                    io.connect("", json!(null));
                    io.send(packet);
                    let code = io.expect_end();
                    let expect = if way == Way::Polling { 0 } else { Disconnect::ProtocolError.code() };
                    assert_eq!(code, expect, "{version:?} {way:?} {packet}");
                }
            }
        }
        // A second CONNECT, and text where an attachment should be.
        for way in WAYS {
            for packets in [&["40"][..], &[r#"451-["x",{"_placeholder":true,"num":0}]"#, r#"42["y"]"#]] {
                let mut io = open(&server, Version::V4, way);
                io.connect("", json!(null));
                packets.iter().for_each(|packet| io.send(packet));
                io.expect_end();
            }
        }
        // Pings between attachments are none.
        let mut io = open(&server, Version::V4, Way::Polling);
        io.connect("", json!(null));
        io.send(r#"451-1["x",{"_placeholder":true,"num":0}]"#);
        io.send("3");
        io.send_binary(b"x");
        assert!(io.next_text().starts_with("461-1"));
        io.leave();
        check_empty(&server);
    });
}

#[test]
fn who_connects_to_nothing_is_disconnected() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| {
            options.engine.connect_timeout = Duration::from_secs(1);
            options.limits.close_timeout = HOUR;
        });
        for way in WAYS {
            let mut io = open(&server, Version::V4, way);
            let code = io.expect_end();
            let expect = if way == Way::Polling { 0 } else { Disconnect::NotConnected.code() };
            assert_eq!(code, expect);
            let mut io = open(&server, Version::V4, way);
            io.connect("", json!(null));
            io.send("41");
            assert_eq!(io.expect_end(), expect, "nor who leaves all");
        }
        assert_eq!(server.disconnects("not_connected"), 6);
        check_empty(&server);
    });
}

// ---- one room, all protocols ----

/// `join` joins, `say` says, `shout` is for everybody.
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

#[test]
fn a_publication_reaches_each_client_as_it_expects_it() {
    both(|set, cores| {
        let server = Server::start(cores, |options| {
            options.app = App::Rooms;
            rules(options);
            set(options);
        });
        let recovers = server.recovers();
        let subscribe = json!({"type": "subscribe", "room": "r"}).to_string();
        let mut v1: Vec<Ws> = (0..2).map(|_| server.ws("/ws")).collect();
        for ws in &mut v1 {
            assert_eq!(ws.next_json()["type"], "welcome");
            ws.ask(json!({"type": "subscribe", "room": "r"}));
        }
        let mut raw = server.ws("/ws?format=raw");
        raw.send_text(&subscribe);
        raw.fence();
        let engine = |way, version, extra: &str| {
            let mut io = Io::open(server.addr, "/engine.io/", version, way, extra);
            if extra.is_empty() {
                assert!(io.next_text().starts_with("4{\"type\":\"welcome\""));
                io.send(&format!("4{subscribe}"));
                io.expect(r#"4{"type":"ok"}"#);
            } else {
                io.send(&format!("4{subscribe}"));
            }
            io
        };
        let mut engine_v1: Vec<Io> =
            WAYS.iter().flat_map(|way| VERSIONS.map(|version| engine(*way, version, ""))).collect();
        let mut engine_raw: Vec<Io> =
            WAYS.iter().map(|way| engine(*way, Version::V4, "&format=raw")).collect();
        let mut sockets: Vec<Io> =
            WAYS.iter().flat_map(|way| VERSIONS.map(|version| open(&server, version, *way))).collect();
        for io in &mut sockets {
            io.connect("", json!(null));
            assert_eq!(io.ask("join", &[json!("r")]), json!([{"ok": true}]));
        }
        let members = v1.len() + 1 + engine_v1.len() + engine_raw.len() + sockets.len();
        meet(&server, &mut v1, &mut raw, &mut engine_v1, &mut engine_raw, &mut sockets);
        let room = Room::plain("r").unwrap();
        let bytes = |bytes: &'static [u8]| bytes::Bytes::from_static(bytes);
        let placeholder = r#"{"_placeholder":true,"num":0}"#;
        let with_bytes =
            Data::Arguments { json: bytes(placeholder.as_bytes()), attachments: [bytes(b"att")].into() };
        let several = Data::Arguments { json: bytes(b"1,{\"a\":2}"), attachments: [].into() };
        let text = Data::Arguments { json: bytes(b"\"text\""), attachments: [].into() };
        let cases: [(Option<&str>, Data, &str, &str, &str); 6] = [
            (None, Data::Json(bytes(b"[1]")), r#""data":[1]"#, "[1]", r#"["message",[1]]"#),
            (
                Some("e"),
                several,
                r#""event":"e","data":[1,{"a":2}]"#,
                r#"["e",1,{"a":2}]"#,
                r#"["e",1,{"a":2}]"#,
            ),
            (Some("message"), text, r#""event":"message","data":"text""#, "text", r#"["message","text"]"#),
            (
                Some("e"),
                Data::Json(bytes(b"\"s\"")),
                r#""event":"e","data":"s""#,
                r#"["e","s"]"#,
                r#"["e","s"]"#,
            ),
            (None, Data::Binary(bytes(b"\x00\xff")), r#""encoding":"base64","data":"AP8=""#, "", "BYTES"),
            (Some("e"), with_bytes, "ATTACHED", "ATTACHED", "ATTACHED"),
        ];
        for (event, data, expect_v1, expect_raw, expect_io) in cases {
            let publish = Publish { room: room.clone(), event: event.map(Into::into), data };
            server.plane().publish(publish).unwrap();
            let attached = expect_v1 == "ATTACHED";
            let expect = if attached {
                format!(r#"{{"type":"message","room":"r","event":"e","data":{placeholder}}}"#)
            } else {
                format!(r#"{{"type":"message","room":"r",{expect_v1}}}"#)
            };
            for ws in &mut v1 {
                assert_eq!(ws.next_text(), expect);
            }
            for io in &mut engine_v1 {
                io.expect(&format!("4{expect}"));
            }
            let expect_raw = if attached { format!(r#"["e",{placeholder}]"#) } else { expect_raw.to_owned() };
            if expect_raw.is_empty() {
                assert_eq!(raw.next_binary(), b"\x00\xff");
            } else {
                assert_eq!(raw.next_text(), expect_raw);
            }
            for io in &mut engine_raw {
                match expect_raw.as_str() {
                    "" => assert_eq!(io.next(), Packet::Binary(b"\x00\xff".to_vec())),
                    text => io.expect(&format!("4{text}")),
                }
            }
            for io in &mut sockets {
                let recovers = recovers && io.version() == Version::V4;
                let (prefix, expect, attachment): (_, Value, Option<&[u8]>) = match expect_io {
                    "BYTES" => {
                        ("451-", json!(["message", {"_placeholder": true, "num": 0}]), Some(b"\x00\xff"))
                    }
                    "ATTACHED" => ("451-", json!(["e", {"_placeholder": true, "num": 0}]), Some(b"att")),
                    text => ("42", serde_json::from_str(text).unwrap(), None),
                };
                let got = io.next_text();
                let got = serde_json::from_str(got.strip_prefix(prefix).unwrap()).unwrap();
                assert_eq!(plain(got, recovers), expect);
                if let Some(attachment) = attachment {
                    assert_eq!(io.next(), Packet::Binary(attachment.to_vec()));
                }
            }
        }
        // Each format is encoded once, however many there are.
        server.until_metric("deliveries_pending", |pending| pending == 0);
        assert!(members > 15);
        drop((v1, raw));
        for io in engine_v1.into_iter().chain(engine_raw).chain(sockets) {
            io.leave();
        }
        server.until_metric("engineio_sessions", |clients| clients == 0);
    });
}

/// Publishes until everybody has had something, then a last word that everybody has.
fn meet(
    server: &Server,
    v1: &mut [Ws],
    raw: &mut Ws,
    engine_v1: &mut [Io],
    engine_raw: &mut [Io],
    sockets: &mut [Io],
) {
    // The control plane publishes at one core: who of another one has had something will have the rest.
    let publish = |text: &str| server.publish("r", &format!("\"{text}\""));
    let members = server.metric("sessions");
    for round in 0.. {
        let before = server.metric("deliveries_due");
        publish(&format!("round {round}"));
        crate::harness::until("the round", || server.metric("deliveries_due") > before);
        if server.metric("deliveries_due") - before >= members {
            break;
        }
        assert!(round < 100_000, "they never meet");
    }
    publish("met");
    let is_last = |text: &str| text.contains("met");
    v1.iter_mut().for_each(|ws| while !is_last(&ws.next_text()) {});
    while !is_last(&raw.next_text()) {}
    for io in engine_v1.iter_mut().chain(engine_raw).chain(sockets) {
        while !is_last(&io.next_text()) {}
    }
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
                    // No client takes a document for a place to come back to.
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
