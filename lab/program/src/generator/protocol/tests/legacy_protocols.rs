//! Clients of old protocols against messages of servers, word by word.

use stentor_wire::http1::write_response_head;
use stentor_wire::ws::Opcode;

use super::frames::frame;
use super::handshakes::{Pair, answer, check_complaints, numbered, request, upgrade};
use crate::generator::protocol::hixie::{PROOF, write_text};
use crate::generator::protocol::{ClientEvent, Lane, Protocol, socketio06, socketio09};

const SESSION: &str = "9183-x:15:25:websocket,xhr-polling";

/// A server's answer to a handshake of hixie-76.
fn upgraded(request: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_response_head(&mut out, 101, &[("Upgrade", "WebSocket"), ("Connection", "Upgrade")]);
    assert!(request.ends_with(b"\r\n\r\n^n:ds[4U"));
    out.extend_from_slice(PROOF);
    out
}

fn hixie(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    write_text(&mut out, text.as_bytes());
    out
}

/// `text` in a frame of Socket.IO 0.6.
fn counted(text: &str) -> Vec<u8> {
    let mut message = Vec::new();
    socketio06::write_message(&mut message, text.as_bytes());
    let mut out = Vec::new();
    write_text(&mut out, &message);
    out
}

/// A client of `protocol` that has its session id, and its request to upgrade.
fn named(protocol: Protocol) -> (Pair, Vec<u8>) {
    let mut pair = Pair::new(protocol);
    assert_eq!(pair.main(), b"");
    let asked = pair.side();
    assert!(asked.starts_with("GET /socket.io/1/ HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("Connection: close") && !pair.client.side_is_idle());
    pair.react(Lane::Side, &answer(200, SESSION));
    assert!(pair.client.side_is_idle());
    let request = pair.main();
    assert!(request.starts_with(b"GET /socket.io/1/websocket/9183-x HTTP/1.1\r\n"));
    (pair, request)
}

#[test]
fn socket_io_09_asks_for_a_session_first() {
    let (text, arrives) = numbered(4);
    let event = format!(r#"5:::{{"name":"message","args":["{text}"]}}"#);
    let (mut pair, request) = named(Protocol::SocketIo09);
    pair.react(Lane::Main, &upgrade(&request, None).0);
    assert!(!pair.is_open());
    assert_eq!(pair.exchange("1::"), "");
    assert!(pair.is_open() && pair.client.heartbeat_interval().is_none());
    assert_eq!(pair.exchange("2::"), "2::");
    assert_eq!(pair.exchange(r#"5:::{"name":"news","args":[{}]}"#), "");
    assert_eq!(pair.send(&text), event);
    assert_eq!(pair.exchange(&event), "");
    assert_eq!(pair.out.happened.last(), Some(&arrives));
    assert!(pair.complains_of_text(b"0::").contains("disconnect"));
    assert!(pair.complains(Lane::Side, &answer(200, SESSION)).contains("no request"));

    let mut pair = Pair::new(Protocol::SocketIo09);
    assert!(pair.complains(Lane::Side, &answer(403, "handshake bad origin")).contains("bad origin"));
    let mut pair = Pair::new(Protocol::SocketIo09);
    assert!(pair.complains(Lane::Main, b"HTTP/1.1 101").contains("no request"));
}

#[test]
fn socket_io_07_upgrades_as_it_was_done_then() {
    let (text, arrives) = numbered(4);
    let event = format!(r#"5:::{{"name":"message","args":["{text}"]}}"#);
    let (_, request) = named(Protocol::SocketIo07);
    let begin = [upgraded(&request), hixie("1::"), hixie(&event), hixie("2::"), hixie(&event)].concat();
    for cut in 0..begin.len() {
        let (mut pair, _) = named(Protocol::SocketIo07);
        pair.hear_cut(&begin, cut);
        assert_eq!(pair.out.happened, [ClientEvent::Opened, arrives, arrives], "{cut}");
        assert_eq!(pair.main(), hixie("2::"));
        pair.publish(&text);
        assert_eq!(pair.main(), hixie(&event));
        assert!(pair.complains(Lane::Main, b"\xff\0").contains("close"));
    }
    let (mut pair, request) = named(Protocol::SocketIo07);
    let mut forged = upgraded(&request);
    *forged.last_mut().unwrap() ^= 1;
    assert!(pair.complains(Lane::Main, &forged).contains("another challenge"));
    let (mut pair, _) = named(Protocol::SocketIo07);
    assert!(pair.complains(Lane::Main, &answer(400, "no")).contains("400"));
}

#[test]
fn socket_io_06_counts_in_its_frames() {
    let (text, arrives) = numbered(4);
    let mut first = Pair::new(Protocol::SocketIo06);
    let request = first.main();
    assert!(request.starts_with(b"GET /socket.io/websocket HTTP/1.1\r\n"));
    let two = [counted(&text), counted(&text)].concat();
    // Several messages in one frame.
    let two: Vec<u8> = [&[0][..], &two[1..two.len() / 2 - 1], &two[two.len() / 2 + 1..]].concat();
    let begin = [&upgraded(&request)[..], &counted("8351"), &counted(&text), &counted("~h~1"), &two].concat();
    for cut in 0..begin.len() {
        let mut pair = Pair::new(Protocol::SocketIo06);
        assert_eq!(pair.main(), request);
        pair.hear_cut(&begin, cut);
        assert_eq!(pair.out.happened, [ClientEvent::Opened, arrives, arrives, arrives], "{cut}");
        assert_eq!(pair.main(), b"\0~m~4~m~~h~1\xff");
        pair.publish(&text);
        assert_eq!(
            pair.main(),
            format!("\0~m~60~m~{text}").into_bytes().into_iter().chain([0xff]).collect::<Vec<u8>>()
        );
        pair.react(Lane::Main, &counted("~j~{\"a\":1}"));
        assert_eq!((pair.out.happened.len(), pair.main()), (4, vec![]));
    }
}

#[test]
fn messages_are_cut_out_of_frames() {
    let check = |frame: &str, expect: Result<&[&str], &str>| {
        let mut seen = Vec::new();
        let read = socketio06::messages(frame.as_bytes(), |message| {
            seen.push(message.to_owned());
            Ok(())
        });
        match (read, expect) {
            (Ok(()), Ok(expect)) => assert_eq!(seen, expect),
            (Err(why), Err(expect)) => assert!(why.to_string().contains(expect), "{why}"),
            (read, _) => panic!("{frame}: {read:?} instead of {expect:?}"),
        }
    };
    check("~m~2~m~17", Ok(&["17"]));
    check("~m~2~m~17~m~5~m~hello~m~0~m~~m~4~m~~h~1", Ok(&["17", "hello", "", "~h~1"]));
    check("~m~2~m~\u{1f600}~m~1~m~a", Ok(&["\u{1f600}", "a"]));
    for wrong in ["hello", "~m~", "~m~~m~", "~m~x~m~", "~m~2~m~1", "~m~1~m~12", "~m~1~m~\u{1f600}", "~m~2~mx"]
    {
        check(wrong, Err("length"));
    }
    check("~m~99999999999999999999~m~x", Err("length"));
}

#[test]
fn polling_of_socket_io_09_begins_twice() {
    let (text, arrives) = numbered(4);
    let event = format!(r#"5:::{{"name":"message","args":["{text}"]}}"#);
    let mut pair = Pair::new(Protocol::SocketIo09Polling);
    assert_eq!(request(&pair.main()).1, "/socket.io/1/");
    pair.react(Lane::Main, &answer(200, SESSION));
    let poll = ("GET".to_owned(), "/socket.io/1/xhr-polling/9183-x".to_owned());
    let polls = |pair: &mut Pair| {
        let (method, target, _) = request(&pair.main());
        assert_eq!((method, target), poll);
    };
    polls(&mut pair);
    pair.react(Lane::Main, &answer(200, "1::"));
    polls(&mut pair);
    assert_eq!(pair.out.happened, [ClientEvent::Opened]);
    pair.react(Lane::Main, &answer(200, "8::"));
    polls(&mut pair);
    let body =
        format!("\u{fffd}{0}\u{fffd}{event}\u{fffd}3\u{fffd}2::\u{fffd}{0}\u{fffd}{event}", event.len());
    pair.react(Lane::Main, &answer(200, &body));
    polls(&mut pair);
    assert_eq!(pair.out.happened, [ClientEvent::Opened, arrives, arrives]);
    let posted = |pair: &mut Pair| pair.side();
    let post = posted(&mut pair);
    assert!(
        post.starts_with("POST /socket.io/1/xhr-polling/9183-x ") && post.ends_with("\r\n\r\n2::"),
        "{post}"
    );
    for _ in 0..2 {
        pair.publish(&text);
    }
    pair.react(Lane::Side, &answer(200, "1"));
    let post = posted(&mut pair);
    assert!(
        post.ends_with(&format!("\u{fffd}{0}\u{fffd}{event}\u{fffd}{0}\u{fffd}{event}", event.len())),
        "{post}"
    );
    assert!(pair.complains(Lane::Main, &answer(200, "7:::1+0")).contains("1+0"));
}

#[test]
fn bodies_of_socket_io_09_are_taken_apart() {
    let check = |body: &str, expect: Option<&[&str]>| {
        let mut seen = Vec::new();
        let read = socketio09::packets(body.as_bytes(), |packet| {
            seen.push(packet.to_owned());
            Ok(())
        });
        assert_eq!(read.is_ok(), expect.is_some(), "{body:?}: {read:?}");
        if let Some(expect) = expect {
            assert_eq!(seen, expect);
            let mut out = Vec::new();
            socketio09::write_packets(&mut out, &seen);
            assert_eq!(String::from_utf8(out).unwrap(), body);
        }
    };
    check("1::", Some(&["1::"]));
    check("\u{fffd}3\u{fffd}1::\u{fffd}3\u{fffd}2::", Some(&["1::", "2::"]));
    // Lengths are in UTF-16 units: one for ö, two for the character beyond the basic plane.
    check("\u{fffd}5\u{fffd}3:::ö\u{fffd}6\u{fffd}3:::\u{1f600}", Some(&["3:::ö", "3:::\u{1f600}"]));
    for wrong in [
        "\u{fffd}",
        "\u{fffd}3",
        "\u{fffd}x\u{fffd}1::",
        "\u{fffd}4\u{fffd}1::",
        "\u{fffd}2\u{fffd}1::",
        "\u{fffd}5\u{fffd}3:::\u{1f600}",
        "\u{fffd}99999999999999999999\u{fffd}1::",
    ] {
        check(wrong, None);
    }
}

#[test]
fn packets_of_socket_io_09_are_told_apart() {
    let check = |packet: &str, expect: Result<(bool, Option<&str>), &str>| match (
        socketio09::react(packet.as_bytes()),
        expect,
    ) {
        (Ok(reaction), Ok(expect)) => {
            assert_eq!((reaction.opened, reaction.answer.as_deref()), expect, "{packet}")
        }
        (Err(fault), Err(expect)) => assert!(fault.to_string().contains(expect), "{packet}: {fault}"),
        (reaction, _) => panic!("{packet}: {reaction:?}"),
    };
    check("1::", Ok((true, None)));
    check("1::/chat", Ok((false, None)));
    check("2::", Ok((false, Some("2::"))));
    for nothing in ["3:::text", "4:::{}", "5:1+::{\"name\":\"a:b\"}", "6:::1", "8::", "0::/chat"] {
        check(nothing, Ok((false, None)));
    }
    check("0::", Err("disconnect"));
    check("7:::2+0", Err("2+0"));
    for wrong in ["", "1", "1:", "9::", "x::", "hello"] {
        check(wrong, Err("a packet"));
    }
    for (answer, expect) in [
        (SESSION, Some("9183-x")),
        ("1::25:websocket", Some("1")),
        (":15:25:websocket", None),
        ("1:15:25", None),
        ("a/b:15:25:websocket", None),
        ("handshake unauthorized", None),
    ] {
        assert_eq!(socketio09::session_id(answer.as_bytes()).ok(), expect, "{answer}");
    }
}

#[test]
fn primus_is_json_and_who_pings_depends() {
    let (text, arrives) = numbered(4);
    let quoted = format!("\"{text}\"");
    for (protocol, pong, beat) in [
        (Protocol::Primus, "\"primus::pong::1388534400000\"", None),
        (Protocol::Primus6, "", Some("\"primus::ping::1388534400000\"")),
    ] {
        let (mut pair, target) = Pair::upgraded(protocol);
        assert_eq!((target.as_str(), pair.is_open()), ("/primus/", true));
        assert_eq!(pair.send(&text), quoted);
        assert_eq!(pair.exchange("\"primus::ping::1388534400000\""), pong);
        for other in ["\"primus::pong::1388534400000\"", "\"primus::id::x\"", "\"hello\"", "{}", "\"\"", "7"]
        {
            assert_eq!(pair.exchange(other), "");
        }
        assert_eq!(pair.out.happened, [ClientEvent::Opened]);
        // Split at any byte, messages of the protocol are distinguished from those of the load.
        let both = [&b"\"primus::ping::1388534400000\""[..], quoted.as_bytes()];
        let both: Vec<u8> = both.iter().flat_map(|text| frame(Opcode::Text, text)).collect();
        for cut in 0..both.len() {
            pair.out.happened.clear();
            pair.hear_cut(&both, cut);
            assert_eq!(pair.out.happened, [arrives], "{cut}");
            assert_eq!(pair.main().is_empty(), pong.is_empty());
        }
        assert_eq!(pair.client.heartbeat_interval().is_some(), beat.is_some());
        if let Some(beat) = beat {
            assert_eq!(pair.heartbeat(), beat);
        }
        assert!(pair.complains_of_text(b"\"primus::server::close\"").contains("the end"));
    }
}

#[test]
fn bayeux_shakes_hands_subscribes_and_connects() {
    let (text, arrives) = numbered(4);
    let (mut pair, target) = Pair::upgraded(Protocol::Bayeux);
    assert_eq!(target, "/faye");
    let greeting = String::from_utf8(pair.main()[6..].to_vec()).unwrap();
    assert_eq!(
        greeting,
        r#"[{"channel":"/meta/handshake","version":"1.0","supportedConnectionTypes":["websocket"]}]"#
    );
    let named =
        r#"[{"channel":"/meta/handshake","successful":true,"version":"1.0","clientId":"x7","advice":{}}]"#;
    let subscribe = r#"[{"channel":"/meta/subscribe","clientId":"x7","subscription":"/room"}]"#;
    let connect = |more| {
        format!(r#"[{{"channel":"/meta/connect","clientId":"x7","connectionType":"websocket"{more}}}]"#)
    };
    assert_eq!(pair.exchange(named), subscribe);
    let subscribed =
        r#"[{"channel":"/meta/subscribe","clientId":"x7","successful":true,"subscription":"/room"}]"#;
    assert_eq!(pair.exchange(subscribed), connect(r#","advice":{"timeout":0}"#));
    assert!(!pair.is_open());
    let connected =
        r#"[{"channel":"/meta/connect","clientId":"x7","successful":true,"advice":{"interval":0}}]"#;
    assert_eq!(pair.exchange(connected), connect(""));
    assert!(pair.is_open());
    assert_eq!(pair.send(&text), format!(r#"[{{"channel":"/room","clientId":"x7","data":"{text}"}}]"#));
    for nothing in
        [r#"[{"channel":"/room","successful":true}]"#, r#"[{"channel":"/news","data":{"a":1}}]"#, "[]"]
    {
        assert_eq!(pair.exchange(nothing), "");
    }
    assert_eq!(pair.exchange(&format!(r#"[{{"channel":"/room","data":"{text}"}}]"#)), "");
    assert_eq!(pair.out.happened, [ClientEvent::Opened, arrives]);
    let wrong = [
        (r#"[{"channel":"/room","successful":false,"error":"403::no"}]"#, "403::no"),
        (r#"[{"channel":"/meta/connect","successful":false,"error":"401::who"}]"#, "401::who"),
        (r#"[{"channel":"/meta/connect"}]"#, "refusal"),
        (r#"[{"channel":"/meta/handshake","successful":true,"clientId":"a\"b"}]"#, "id"),
        (r#"[{"channel":"/meta/handshake","successful":true}]"#, "id"),
        ("hello", "Bayeux"),
    ];
    check_complaints(Protocol::Bayeux, Opcode::Text, &wrong);
}
