//! The codecs of Socket.IO's adapters: messages that its packages publish (`tests/golden`), and invalid ones.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use stentor_cluster::socketio::channels::{Channel, Channels, PREFIX};
use stentor_cluster::socketio::{
    ATTACHMENTS_MAX, Broadcast, Event, Flags, LIST_MAX, NAME_BYTES_MAX, Parser, ROOMS_MAX, RemoteSession,
    Request, RequestBody, Response, ResponseBody, Selection, Target, WireError, python, sender, sharded,
};
use stentor_hub::Data;

struct Vector {
    name: String,
    channel: String,
    payload: Bytes,
    meaning: Value,
}

fn golden(file: &str) -> Vec<Vector> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    let vectors: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert!(!vectors.is_empty());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let vector = |vector: &Value| Vector {
        name: format!("{file}: {}", text(&vector["name"])),
        channel: text(&vector["channel"]),
        payload: STANDARD.decode(text(&vector["payload"])).unwrap().into(),
        meaning: vector["meaning"].clone(),
    };
    vectors.iter().map(vector).collect()
}

/// A vector's meaning, with its arguments parsed: their JSON may be written in several ways.
fn expected(meaning: &Value) -> Value {
    let mut expected = meaning.clone();
    if let Some(text) = meaning["arguments"].as_str() {
        expected["arguments"] = serde_json::from_str(&format!("[{text}]")).unwrap();
    }
    expected
}

/// Merges several objects into one.
fn merged(parts: impl IntoIterator<Item = Value>) -> Value {
    let members = parts.into_iter().flat_map(|part| match part {
        Value::Object(members) => members,
        other => panic!("{other}"),
    });
    Value::Object(members.collect())
}

fn names(names: &[Arc<str>]) -> Vec<&str> {
    names.iter().map(|name| &**name).collect()
}

fn arguments(data: &Data) -> Value {
    let Data::Arguments { json, attachments } = data else { panic!("{data:?}") };
    let values: Value = serde_json::from_str(&format!("[{}]", str::from_utf8(json).unwrap())).unwrap();
    let attachments: Vec<_> = attachments.iter().map(|attachment| STANDARD.encode(attachment)).collect();
    json!({ "arguments": values, "attachments": attachments })
}

fn event(event: &Event) -> Value {
    merged([json!({ "event": &*event.name }), arguments(&event.arguments)])
}

fn selection(selection: &Selection) -> Value {
    json!({ "rooms": names(&selection.rooms), "except": names(&selection.except) })
}

fn target(target: &Target) -> Value {
    match target {
        Target::Selection(found) => json!({ "target": selection(found) }),
        Target::Session(_) => panic!("{target:?}"),
    }
}

fn flags(flags: Flags) -> Value {
    let all = [
        ("volatile", flags.volatile.then_some(json!(true))),
        ("compress", flags.compress.map(Value::from)),
        ("timeout", flags.timeout_ms.map(Value::from)),
        ("expectSingleResponse", flags.expect_single_response.then_some(json!(true))),
    ];
    let set = all.into_iter().filter_map(|(name, flag)| Some((name.to_owned(), flag?)));
    json!({ "flags": Value::Object(set.collect()) })
}

/// A request as JSON. `types` are the numbers for joining, leaving, closing, fetching, emitting to servers, and
/// broadcasting.
fn request(body: &RequestBody, types: [u8; 6]) -> Value {
    let (kind, content) = match body {
        RequestBody::Sessions { .. } => panic!("{body:?}"),
        RequestBody::Rooms => (1, json!({})),
        RequestBody::Join { target: of, rooms } => {
            (types[0], merged([target(of), json!({ "names": names(rooms) })]))
        }
        RequestBody::Leave { target: of, rooms } => {
            (types[1], merged([target(of), json!({ "names": names(rooms) })]))
        }
        RequestBody::Disconnect { target: of, close } => {
            (types[2], merged([target(of), json!({ "close": close })]))
        }
        RequestBody::Fetch(found) => (types[3], selection(found)),
        RequestBody::ServerSideEmit(emitted) => (types[4], event(emitted)),
        RequestBody::Broadcast { namespace, selection: found, flags: set, event: sent } => {
            let namespace = json!({ "namespace": &**namespace });
            (types[5], merged([namespace, selection(found), flags(*set), event(sent)]))
        }
    };
    merged([json!({ "type": kind }), content])
}

/// A response as JSON. `types` are the numbers for sessions, a number of clients, and the answers of servers and of
/// clients.
fn response(body: &ResponseBody, types: [Option<u8>; 4]) -> Value {
    let session = |session: &RemoteSession| {
        let details = session.details.as_ref().unwrap();
        let text = |bytes: &Bytes| str::from_utf8(bytes).unwrap().to_owned();
        let (handshake, data) = (text(&details.handshake), text(&details.data));
        json!({"id": &*session.id, "rooms": names(&details.rooms), "handshake": handshake, "data": data})
    };
    let (kind, content) = match body {
        ResponseBody::Done => panic!("{body:?}"),
        ResponseBody::Rooms(rooms) => (None, json!({ "rooms": names(rooms) })),
        ResponseBody::Sessions(sessions) => {
            (types[0], json!({ "sockets": sessions.iter().map(session).collect::<Value>() }))
        }
        ResponseBody::ClientCount(count) => (types[1], json!({ "clientCount": count })),
        ResponseBody::ServerSideEmit(data) => (types[2], arguments(data)),
        ResponseBody::Acknowledged(data) => (types[3], arguments(data)),
    };
    merged([kind.map_or(json!({}), |kind| json!({ "type": kind })), content])
}

/// Returns `false` for vectors with values that JSON lacks, which are sent as their text or as null.
fn is_exact(vector: &Vector) -> bool {
    !["dates", "not numbers"].iter().any(|name| vector.name.ends_with(name))
}

#[test]
fn broadcasts_are_read_and_written_as_the_packages_do() {
    for file in ["adapter.json", "emitter.json", "old-emitter.json"] {
        for vector in golden(file) {
            let Vector { name, channel, payload, meaning } = &vector;
            let broadcast = Broadcast::decode(payload).unwrap_or_else(|error| panic!("{name}: {error}"));
            let content = [selection(&broadcast.selection), flags(broadcast.flags), event(&broadcast.event)];
            let header = json!({ "uid": &*broadcast.uid, "namespace": &*broadcast.namespace });
            assert_eq!(merged([header].into_iter().chain(content)), expected(meaning), "{name}");
            assert_eq!(sender(payload), meaning["uid"].as_str(), "{name}");

            let channels = Channels::new(PREFIX, &broadcast.namespace);
            assert_eq!(channels.broadcast(&broadcast.selection.rooms), *channel, "{name}");
            let room = match &broadcast.selection.rooms[..] {
                [room] => Some(&**room),
                _ => None,
            };
            assert_eq!(channels.decode(channel.as_bytes()), Some(Channel::Broadcast { room }), "{name}");

            let encoded = broadcast.encode(Parser::MessagePack).unwrap();
            if file == "adapter.json" && is_exact(&vector) {
                assert_eq!(encoded, *payload, "{name}");
            }
            assert_eq!(Broadcast::decode(&encoded), Ok(broadcast), "{name}");
        }
    }
}

#[test]
fn requests_and_answers_are_read_and_written_as_the_packages_do() {
    for Vector { name, channel, payload, meaning } in
        golden("requests.json").iter().chain(&golden("emitter-requests.json"))
    {
        let (found, encoded, kind, meaning) = if meaning["response"].is_null() {
            let found = Request::decode(payload).unwrap_or_else(|error| panic!("{name}: {error}"));
            let meaning = &meaning["request"];
            assert_eq!(found.is_answered(), !meaning["id"].is_null(), "{name}");
            let header = json!({ "uid": found.uid.as_deref(), "id": found.id.as_deref() });
            let content = request(&found.body, [2, 3, 4, 5, 6, 7]);
            (merged([header, content]), found.encode(Parser::MessagePack), Channel::Request, meaning)
        } else {
            let found = Response::decode(payload).unwrap_or_else(|error| panic!("{name}: {error}"));
            let content = response(&found.body, [None, None, Some(6), Some(9)]);
            let content = merged([json!({ "id": &*found.id }), content]);
            (content, found.encode(Parser::MessagePack), Channel::Response, &meaning["response"])
        };
        assert_eq!(found, expected(meaning), "{name}");
        assert_eq!(encoded.as_ref(), Ok(payload), "{name}");
        assert_eq!(Channels::new(PREFIX, "/").decode(channel.as_bytes()), Some(kind), "{name}");
    }
}

#[test]
fn pythons_messages_are_read_and_written_as_the_package_does() {
    for Vector { name, channel, payload, meaning } in &golden("python.json") {
        assert_eq!(channel, python::CHANNEL);
        let message = python::Message::decode(payload).unwrap_or_else(|error| panic!("{name}: {error}"));
        let header = json!({ "host": &*message.host, "namespace": &*message.namespace });
        let (method, content) = match &message.action {
            python::Action::Emit { selection, event: emitted, callback } => {
                let callback = callback.as_ref().map(|to| json!([&*to.room, &*to.namespace, to.id]));
                let (rooms, skip) = (names(&selection.rooms), names(&selection.except));
                let options = json!({ "rooms": rooms, "skip": skip, "callback": callback });
                ("emit", merged([options, event(emitted)]))
            }
            python::Action::Callback { session, id, arguments: data } => {
                ("callback", merged([json!({ "session": &**session, "id": id }), arguments(data)]))
            }
            python::Action::Disconnect { session } => ("disconnect", json!({ "session": &**session })),
            python::Action::EnterRoom { session, room } => {
                ("enter_room", json!({ "session": &**session, "room": &**room }))
            }
            python::Action::LeaveRoom { session, room } => {
                ("leave_room", json!({ "session": &**session, "room": &**room }))
            }
            python::Action::CloseRoom { room } => ("close_room", json!({ "room": &**room })),
        };
        assert_eq!(merged([header, json!({ "method": method }), content]), expected(meaning), "{name}");
        let value = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        assert_eq!(value(&message.encode().unwrap()), value(payload), "{name}");
    }
}

#[test]
fn the_sharded_adapters_messages_are_read_and_written_as_the_package_does() {
    for Vector { name, channel, payload, meaning } in &golden("sharded.json") {
        let message = sharded::Message::decode(payload).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (id, content) = match &message.body {
            sharded::Body::Request { id, body } => {
                assert_eq!(message.channel(PREFIX, sharded::Mode::Dynamic), *channel, "{name}");
                (id.as_deref(), request(body, [4, 5, 6, 7, 9, 3]))
            }
            sharded::Body::Response(found) => {
                assert!(channel.starts_with(&format!("{PREFIX}#/#")) && channel.len() == 29, "{name}");
                (Some(&*found.id), response(&found.body, [8, 11, 10, 12].map(Some)))
            }
        };
        let header = json!({ "uid": &*message.uid, "namespace": &*message.namespace, "id": id });
        let meaning = ["request", "response"].iter().find_map(|part| meaning.get(part)).unwrap_or(meaning);
        // Vectors of broadcasts have neither `id` nor `type`.
        let defaults = json!({ "id": null, "type": 3 });
        assert_eq!(merged([content, header]), merged([defaults, expected(meaning)]), "{name}");
        assert_eq!(message.encode().unwrap(), *payload, "{name}");
    }
    let check = |mode: sharded::Mode, room: &str| mode.has_channel(room);
    let session = "abcdefghijklmnopqrst";
    assert!(check(sharded::Mode::Dynamic, "r") && !check(sharded::Mode::Dynamic, session));
    assert!(check(sharded::Mode::DynamicPrivate, session) && !check(sharded::Mode::Static, "r"));
}

/// A MessagePack string (str 8).
fn text(text: &str) -> Vec<u8> {
    [&[0xd9, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
}

/// A broadcast of event `e` with this data, and these options.
fn broadcast(kind: &[u8], data: &[u8], options: &[u8]) -> Bytes {
    let packet = [&[0x82], &*text("type"), kind, &text("data"), data].concat();
    [&[0x93], &*text("emitter"), &packet, options].concat().into()
}

/// The JSON text of a broadcast's only argument.
fn argument(value: &[u8]) -> Result<String, WireError> {
    let payload = broadcast(&[2], &[&[0x92], &*text("e"), value].concat(), &[0x80]);
    Broadcast::decode(&payload).map(|broadcast| match broadcast.event.arguments {
        Data::Arguments { json, .. } => String::from_utf8(json.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    })
}

#[test]
fn values_are_those_that_clients_would_get_from_node() {
    let check = |value: &[u8], expected: &str| {
        assert_eq!(argument(value).as_deref(), Ok(expected), "{value:x?}");
    };
    check(&[0xcb, 0x40, 0x45, 0, 0, 0, 0, 0, 0], "42"); // A float64 that is an integer.
    check(&[0xca, 0x3f, 0xc0, 0, 0], "1.5");
    check(&[0xca, 0x7f, 0xc0, 0, 0], "null"); // NaN.
    check(&[0xcb, 0x80, 0, 0, 0, 0, 0, 0, 0], "0"); // -0.
    check(&[0xcf, 255, 255, 255, 255, 255, 255, 255, 255], "18446744073709551615");
    check(&[0xd4, 0, 0], "null"); // Undefined.
    check(&[0x82, 0xa1, b'a', 0xd4, 0, 0, 0xa1, b'b', 1], "{\"b\":1}");
    check(&[0x82, 0xa1, b'b', 1, 0xa1, b'a', 0xd4, 0, 0], "{\"b\":1}");
    check(&[0xd7, 0, 0, 0, 0, 0, 0, 0, 0, 1], "\"1970-01-01T00:00:00.001Z\""); // notepack 2.
    check(&[0xd7, 0, 0x7f, 0, 0, 0, 0, 0, 0, 1], "null"); // Beyond what a date can be.
    check(&[0xd6, 0xff, 0x65, 0x93, 0xf7, 0xd4], "\"2024-01-02T11:47:32.000Z\"");
    check(&[0xc7, 1, 0, 9], "{\"_placeholder\":true,\"num\":0}"); // An ArrayBuffer.
    let object = [&[0x82], &*text("_placeholder"), &[0xc3], &*text("num"), &[5]].concat();
    check(&object, "{\"_placeholder\":true,\"num\":5}");
    check(&[&[0x91], &*object].concat(), "[{\"_placeholder\":true,\"num\":5}]");
    check(&[0x82, 1, 2, 0xd0, 0xff, 3], "{\"1\":2,\"-1\":3}"); // PHP.
    check(&[0xa2, 0xff, b'a'], "\"\u{fffd}a\"");
}

#[test]
fn broadcasts_of_other_packages_are_tolerated() {
    let data = [&[0x91], &*text("e")].concat();
    let check = |options: &[u8], rooms: &[&str]| {
        let decoded = Broadcast::decode(&broadcast(&[2], &data, options));
        let decoded = decoded.unwrap_or_else(|error| panic!("{options:x?}: {error}"));
        assert_eq!(decoded.selection.rooms, rooms.iter().map(|room| Arc::from(*room)).collect::<Vec<_>>());
        assert_eq!((&*decoded.namespace, decoded.selection.except.len()), ("/", 0));
        assert_eq!(decoded.flags, Flags::default());
    };
    check(&[0x80], &[]);
    check(&[0x90], &[]);
    check(&[&[0x82], &*text("rooms"), &[0xa0], &*text("flags"), &[0x90]].concat(), &[]);
    check(&[&[0x82], &*text("rooms"), &[0xc0], &*text("other"), &[0x91, 0x80]].concat(), &[]);
    check(&[&[0x81], &*text("rooms"), &*text("one")].concat(), &["one"]);
    check(&[&[0x81], &*text("rooms"), &[0x92, 7, 0xcb, 0x40, 0x45, 0, 0, 0, 0, 0, 0]].concat(), &["7", "42"]);
    // The packet type as a float, and the type of events with binary data before Socket.IO 3.
    let float = [0xcb, 0x40, 0, 0, 0, 0, 0, 0, 0];
    assert!(Broadcast::decode(&broadcast(&float, &data, &[0x80])).is_ok());
    assert!(Broadcast::decode(&broadcast(&[5], &data, &[0x80])).is_ok());
}

#[test]
fn malformed_broadcasts_are_refused() {
    let check = |payload: Bytes, expected: WireError| {
        assert_eq!(Broadcast::decode(&payload), Err(expected), "{payload:x?}");
    };
    let data = [&[0x91], &*text("e")].concat();
    let packet = [&[0x82], &*text("type"), &[2], &*text("data"), &data].concat();
    check([&[0x92], &*packet, &[0x80]].concat().into(), WireError::Obsolete);
    check([&[0x91], &*packet].concat().into(), WireError::Malformed);
    check([&[0x94], &*text("u"), &packet, &[0x80, 0x80]].concat().into(), WireError::Malformed);
    check(broadcast(&[2], &data, &[0xc0]), WireError::Malformed);
    check(broadcast(&[2], &[0x90], &[0x80]), WireError::Malformed);
    check(broadcast(&[1], &data, &[0x80]), WireError::UnknownType);
    check(broadcast(&[2], &[&[0x91], &*text("disconnect")].concat(), &[0x80]), WireError::ReservedEvent);
    check([&broadcast(&[2], &data, &[0x80])[..], &[0]].concat().into(), WireError::Malformed);
    check(Bytes::from_static(&[0x93, 0xdd, 0xff, 0xff, 0xff, 0xff]), WireError::Malformed);
    check(Bytes::from(vec![0x91; 1 << 20]), WireError::TooDeep);
    check(Bytes::from(vec![0xc0; (16 << 20) + 1]), WireError::TooLarge);
    let rooms = [&[0xdd, 0, 1, 0, 0][..], &vec![0xa0; 1 << 16]].concat();
    check(broadcast(&[2], &data, &[&[0x81], &*text("rooms"), &rooms].concat()), WireError::TooMany);
    let attachments = [&[0xdc, 0x10, 0][..], &[0xc4, 0].repeat(0x1000)].concat();
    check(broadcast(&[2], &[&[0x92], &*text("e"), &attachments].concat(), &[0x80]), WireError::TooMany);
    // A forged placeholder beside a real attachment names a missing attachment, which would end a client's connection.
    let forged = [&[0x82], &*text("_placeholder"), &[0xc3], &*text("num"), &[5]].concat();
    let beside = [&[0x92, 0xc4, 1, 7], &*forged].concat();
    assert_eq!(argument(&beside), Err(WireError::BadPlaceholder));
    assert_eq!(argument(&[0xd5, 9, 0, 0]), Err(WireError::Malformed)); // An unknown extension.
    assert_eq!(argument(&[0xc1]), Err(WireError::Malformed));

    let check = |text: &'static str, expected: WireError| {
        assert_eq!(Request::decode(&Bytes::from_static(text.as_bytes())), Err(expected), "{text}");
    };
    check(r#"{"type":10}"#, WireError::UnknownType);
    check(r#"{"uid":"a"}"#, WireError::Malformed);
    check(r#"{"type":5,"opts":{"rooms":[],"except":[]}}"#, WireError::Malformed);
    check(r#"{"type":2}"#, WireError::Malformed);
    check(r#"{"type":1,"requestId":"x""#, WireError::Malformed);

    let check = |payload: &'static [u8], expected: WireError| {
        assert_eq!(python::Message::decode(&Bytes::from_static(payload)), Err(expected));
    };
    check(b"\x80\x04\x95", WireError::Pickle);
    check(br#"{"method":"shutdown","host_id":"h"}"#, WireError::UnknownType);
    check(br#"{"method":"emit","event":"connect","data":[]}"#, WireError::ReservedEvent);
    check(
        br#"{"method":"emit","event":"e","data":[[{"_placeholder":true,"num":1}],"YQ=="],"binary":true}"#,
        WireError::BadPlaceholder,
    );
    check(br#"{"method":"emit","event":"e","data":[[1],"?"],"binary":true}"#, WireError::Malformed);
    // python-socketio delivers these emits to no client. Decoded without rooms, they would reach all clients.
    check(br#"{"method":"emit","event":"e","data":[1],"room":""}"#, WireError::Malformed);
    check(br#"{"method":"emit","event":"e","data":[1],"room":[]}"#, WireError::Malformed);
    let everybody = Bytes::from_static(br#"{"method":"emit","event":"e","data":[1],"room":null}"#);
    assert!(python::Message::decode(&everybody).is_ok());
}

#[test]
fn names_are_bounded() {
    let request = |len| Bytes::from(format!(r#"{{"type":1,"requestId":"{}"}}"#, "a".repeat(len)));
    assert!(Request::decode(&request(NAME_BYTES_MAX)).is_ok());
    assert_eq!(Request::decode(&request(NAME_BYTES_MAX + 1)), Err(WireError::NameTooLong));
}

/// JavaScript's rooms may be numbers. Each number has one name, the same as in a node's rules.
#[test]
fn numbers_are_names_as_in_javascript() {
    for (number, name) in [("5", "5"), ("5.0", "5"), ("5e0", "5"), ("1.50", "1.5"), ("-0", "0")] {
        let text = format!(r#"{{"requestId":"i","type":0,"rooms":[{number}]}}"#);
        let request = Request::decode(&Bytes::from(text)).unwrap();
        assert_eq!(request.body, RequestBody::Sessions { rooms: vec![name.into()] }, "{number}");
    }
}

#[test]
fn a_short_event_does_not_keep_a_long_payload() {
    let data = [&[0x92], &*text("e"), &[1]].concat();
    let options = [&[0x81], &*text("x"), &[0xdb, 0, 0x10, 0, 0], &vec![b'y'; 1 << 20]].concat();
    let Data::Arguments { json, .. } =
        Broadcast::decode(&broadcast(&[2], &data, &options)).unwrap().event.arguments
    else {
        panic!("an event has arguments")
    };
    assert_eq!(json, "1");
    assert!(Vec::from(json).capacity() < 100);
}

#[test]
fn requests_in_the_old_format_address_one_socket() {
    let check = |text: &'static str, body: RequestBody| {
        let payload = Bytes::from_static(text.as_bytes());
        let request = Request::decode(&payload).unwrap();
        assert_eq!((request.id.as_deref(), &request.body), (Some("i"), &body), "{text}");
        assert_eq!(request.encode(Parser::MessagePack).unwrap(), payload);
    };
    let target = || Target::Session("s".into());
    let rooms = || vec!["r".into()];
    check(r#"{"requestId":"i","type":0,"rooms":["r"]}"#, RequestBody::Sessions { rooms: rooms() });
    let text = r#"{"requestId":"i","type":2,"sid":"s","room":"r"}"#;
    check(text, RequestBody::Join { target: target(), rooms: rooms() });
    let text = r#"{"requestId":"i","type":3,"sid":"s","room":"r"}"#;
    check(text, RequestBody::Leave { target: target(), rooms: rooms() });
    let text = r#"{"requestId":"i","type":4,"sid":"s","close":true}"#;
    check(text, RequestBody::Disconnect { target: target(), close: true });
    let done = Bytes::from_static(br#"{"requestId":"i"}"#);
    let response = Response::decode(&done).unwrap();
    assert_eq!(response, Response { id: "i".into(), body: ResponseBody::Done });
    assert_eq!(response.encode(Parser::MessagePack).unwrap(), done);
}

#[test]
fn an_attachment_named_often_does_not_make_a_message_large() {
    let placeholder = r#"{"_placeholder":true,"num":0}"#;
    let json = vec![placeholder; 100].join(",");
    let attachments = [Bytes::from(vec![0; 1 << 20])].into();
    let arguments = Data::Arguments { json: json.into(), attachments };
    let event = Event { name: "e".into(), arguments };
    let broadcast = Broadcast {
        uid: "u".into(),
        namespace: "/".into(),
        selection: Selection::default(),
        flags: Flags::default(),
        event,
    };
    assert_eq!(broadcast.encode(Parser::MessagePack), Err(WireError::TooLarge));
}

#[test]
fn channels_are_those_of_one_namespace() {
    let channels = Channels::new("p", "/a*");
    assert_eq!(channels.pattern(), "p#/a\\*#*");
    let check = |channel: &[u8], expected| assert_eq!(channels.decode(channel), expected, "{channel:?}");
    check(b"p#/a*#", Some(Channel::Broadcast { room: None }));
    check(b"p#/a*#r#s#", Some(Channel::Broadcast { room: Some("r#s") }));
    check(b"p#/a*#r", None);
    check(b"p#/a*#\xff#", None);
    check(b"p#/b#", None);
    check(channels.request().as_bytes(), Some(Channel::Request));
    check(channels.response().as_bytes(), Some(Channel::Response));
    check(channels.response_to("u").as_bytes(), Some(Channel::Response));
    check(b"p-request#/a*#x", None);
}

/// Servers and emitters may be configured with a parser that writes JSON.
#[test]
fn a_parser_for_json() {
    let payload = Bytes::from(
        r#"["abcdef",{"type":2,"data":["news",{"a":[1]}],"nsp":"/"},{"rooms":["red"],"except":[],"flags":{}}]"#,
    );
    assert_eq!(sender(&payload), Some("abcdef"));
    let broadcast = Broadcast::decode(&payload).unwrap();
    assert_eq!(Broadcast::decode(&broadcast.encode(Parser::Json).unwrap()), Ok(broadcast.clone()));
    assert_eq!(broadcast.encode(Parser::Json).unwrap()[0], b'[');
    assert_eq!(Broadcast::decode(&broadcast.encode(Parser::MessagePack).unwrap()), Ok(broadcast.clone()));
    let Broadcast { uid, namespace, selection, flags, mut event } = broadcast;
    let body = RequestBody::Broadcast {
        namespace: namespace.clone(),
        selection: selection.clone(),
        flags,
        event: event.clone(),
    };
    let request = Request { uid: Some(uid.clone()), id: Some("1".into()), body };
    assert_eq!(Request::decode(&request.encode(Parser::Json).unwrap()), Ok(request));
    let response = Response { id: "1".into(), body: ResponseBody::Acknowledged(event.arguments.clone()) };
    let encoded = response.encode(Parser::Json).unwrap();
    assert_eq!((encoded[0], Response::decode(&encoded)), (b'{', Ok(response)));
    let json = Bytes::from_static(br#"{"_placeholder":true,"num":0}"#);
    event.arguments = Data::Arguments { json, attachments: [Bytes::from_static(b"a")].into() };
    let binary = Broadcast { uid, namespace, selection, flags, event };
    assert_eq!(binary.encode(Parser::Json), Err(WireError::NoBinary));
    assert_eq!(Broadcast::decode(&binary.encode(Parser::MessagePack).unwrap()), Ok(binary));
    for wrong in ["[", "[\"", "[1]", "[\"a\",1,2]"] {
        let payload = Bytes::from(wrong);
        assert!(Broadcast::decode(&payload).is_err(), "{:?}", sender(&payload));
    }
}

/// Decodes a payload with every decoder, and checks that each result is bounded and can be encoded. Returns the number
/// of decoders that succeed.
fn decode_all(payload: &Bytes) -> usize {
    let bounded = |event: &Event| {
        let Data::Arguments { json, attachments } = &event.arguments else { panic!("{event:?}") };
        assert!(json.len() <= 6 * payload.len() + 40 * attachments.len());
        assert!(attachments.len() <= ATTACHMENTS_MAX);
        assert!(stentor_json::check(&format!("[{}]", str::from_utf8(json).unwrap())).is_ok());
    };
    let mut decoded = 0;
    if let Ok(broadcast) = Broadcast::decode(payload) {
        bounded(&broadcast.event);
        assert!(broadcast.selection.rooms.len() <= ROOMS_MAX);
        let encoded = broadcast.encode(Parser::MessagePack).unwrap();
        assert_eq!(Broadcast::decode(&encoded).as_ref(), Ok(&broadcast));
        decoded += 1;
    }
    if let Ok(request) = Request::decode(payload) {
        if let RequestBody::ServerSideEmit(event) | RequestBody::Broadcast { event, .. } = &request.body {
            bounded(event);
        }
        assert!(Request::decode(&request.encode(Parser::MessagePack).unwrap()).is_ok());
        decoded += 1;
    }
    if let Ok(response) = Response::decode(payload) {
        if let ResponseBody::Sessions(sessions) = &response.body {
            assert!(sessions.len() <= LIST_MAX);
        }
        assert!(Response::decode(&response.encode(Parser::MessagePack).unwrap()).is_ok());
        decoded += 1;
    }
    if let Ok(message) = python::Message::decode(payload) {
        if let python::Action::Emit { event, .. } = &message.action {
            bounded(event);
        }
        assert!(python::Message::decode(&message.encode().unwrap()).is_ok());
        decoded += 1;
    }
    if let Ok(message) = sharded::Message::decode(payload) {
        assert!(sharded::Message::decode(&message.encode().unwrap()).is_ok());
        decoded += 1;
    }
    let _ = (sender(payload), Channels::new(PREFIX, "/").decode(payload));
    decoded
}

#[test]
fn changed_payloads_do_no_harm() {
    const FILES: [&str; 7] = [
        "adapter.json",
        "emitter.json",
        "old-emitter.json",
        "requests.json",
        "emitter-requests.json",
        "python.json",
        "sharded.json",
    ];
    let vectors: Vec<_> = FILES.into_iter().flat_map(golden).collect();
    for vector in &vectors {
        for end in 0..vector.payload.len().min(300) {
            assert_eq!(decode_all(&vector.payload.slice(..end)), 0, "{} up to {end}", vector.name);
        }
    }
    let mut decoded = 0;
    for seed in 0..20_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut payload = vectors[random.usize(..vectors.len())].payload.to_vec();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..payload.len());
            match random.u8(..4) {
                0 => payload[at] = random.u8(..),
                1 => payload.insert(at, random.u8(..)),
                2 if payload.len() > 1 => drop(payload.remove(at)),
                _ => payload[at] ^= 1 << random.u8(..8),
            }
        }
        decoded += decode_all(&payload.into());
    }
    assert!(decoded > 1000, "most payloads weren't even decoded");
}
