use super::answer::Callback;
use super::*;
use proptest::prelude::*;

fn written(wrapping: Wrapping, frame: &Frame<'_>) -> String {
    let mut out = b"before".to_vec();
    wrapping.write(&mut out, frame);
    String::from_utf8(out).unwrap()["before".len()..].to_owned()
}

#[test]
fn frames_match_the_specification() {
    fn check(wrapping: Wrapping, frame: Frame<'_>, expect: &str) {
        assert_eq!(written(wrapping, &frame), expect, "{wrapping:?}");
    }
    let away = Frame::Close(Close { code: 3000, reason: "Go away!" });
    check(Wrapping::WebSocket, Frame::Open, "o");
    check(Wrapping::WebSocket, Frame::Heartbeat, "h");
    check(Wrapping::WebSocket, Frame::Messages(&["a"]), r#"a["a"]"#);
    check(Wrapping::WebSocket, away, r#"c[3000,"Go away!"]"#);
    check(Wrapping::Xhr, Frame::Open, "o\n");
    check(Wrapping::Xhr, Frame::Heartbeat, "h\n");
    check(Wrapping::Xhr, Frame::Messages(&["a", "b"]), "a[\"a\",\"b\"]\n");
    check(Wrapping::Xhr, Frame::Messages(&[]), "a[]\n");
    check(
        Wrapping::Xhr,
        Frame::Close(Close::ANOTHER_CONNECTION),
        "c[2010,\"Another connection still open\"]\n",
    );
    check(Wrapping::Xhr, Frame::Close(Close::INTERRUPTED), "c[1002,\"Connection interrupted\"]\n");
    check(Wrapping::EventSource, Frame::Open, "data: o\r\n\r\n");
    check(Wrapping::EventSource, Frame::Messages(&["x"]), "data: a[\"x\"]\r\n\r\n");
    check(Wrapping::EventSource, Frame::Messages(&["  \0\n\r "]), "data: a[\"  \\u0000\\n\\r \"]\r\n\r\n");
    check(Wrapping::EventSource, Frame::Messages(&["100%25"]), "data: a[\"100%2525\"]\r\n\r\n");
    check(Wrapping::HtmlFile, Frame::Open, "<script>\np(\"o\");\n</script>\r\n");
    check(Wrapping::HtmlFile, Frame::Messages(&["x"]), "<script>\np(\"a[\\\"x\\\"]\");\n</script>\r\n");
    check(Wrapping::Jsonp, Frame::Open, "(\"o\");\r\n");
    check(Wrapping::Jsonp, Frame::Messages(&["abc", "%61bc"]), "(\"a[\\\"abc\\\",\\\"%61bc\\\"]\");\r\n");
    check(Wrapping::Jsonp, away, "(\"c[3000,\\\"Go away!\\\"]\");\r\n");
    check(
        Wrapping::Jsonp,
        Frame::Messages(&["\"\\\n\u{2028}<"]),
        concat!(r#"("a[\"\\\"\\\\\\n\\u2028<\"]");"#, "\r\n"),
    );
    let mut out = Vec::new();
    write_jsonp_callback(&mut out, &Callback::from_query("c=x").unwrap());
    assert_eq!(out, b"/**/x");
}

/// The specification's "server killer string": every character from U+00FF on that a server must escape.
#[test]
fn the_killer_string_is_escaped() {
    let units = [0x200c..=0x200f, 0x2028..=0x202f, 0x2060..=0x206f, 0xfff0..=0xffff].into_iter().flatten();
    let text: String = units.clone().map(|unit| char::from_u32(unit).unwrap()).collect();
    let expect: String = units.map(|unit| format!("\\u{unit:04x}")).collect();
    assert_eq!(written(Wrapping::Xhr, &Frame::Messages(&[&text])), format!("a[\"{expect}\"]\n"));
}

/// Escapes a message by a naive implementation: character by character, one layer after another.
fn naive(wrapping: Wrapping, message: &str) -> String {
    let mut json = String::from('"');
    for character in message.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\u{8}' => json.push_str("\\b"),
            '\t' => json.push_str("\\t"),
            '\n' => json.push_str("\\n"),
            '\u{c}' => json.push_str("\\f"),
            '\r' => json.push_str("\\r"),
            '\0'..='\x1f'
            | '\u{200c}'..='\u{200f}'
            | '\u{2028}'..='\u{202f}'
            | '\u{2060}'..='\u{206f}'
            | '\u{fff0}'..='\u{ffff}' => json.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => json.push(character),
        }
    }
    json.push('"');
    let json = format!("a[{json}]");
    let script = || json.replace('\\', "\\\\").replace('"', "\\\"");
    match wrapping {
        Wrapping::WebSocket => json,
        Wrapping::Xhr => format!("{json}\n"),
        Wrapping::EventSource => format!("data: {}\r\n\r\n", json.replace('%', "%25")),
        Wrapping::HtmlFile => {
            format!("<script>\np(\"{}\");\n</script>\r\n", script().replace('<', "\\u003c"))
        }
        Wrapping::Jsonp => format!("(\"{}\");\r\n", script()),
    }
}

/// Escapes every character alone, and at each of the eight positions that the encoder examines together.
#[test]
fn every_character_is_escaped_correctly() {
    for character in ('\0'..=char::MAX).filter(|character| u32::from(*character) < 0x1_0100) {
        for wrapping in Wrapping::ALL {
            let alone = character.to_string();
            assert_eq!(written(wrapping, &Frame::Messages(&[&alone])), naive(wrapping, &alone));
        }
    }
    for character in [
        '"', '\\', '\0', '\x1f', ' ', '\x7f', '%', '<', '\u{80}', '\u{200b}', '\u{200c}', '\u{fff0}',
        '\u{ffef}',
    ] {
        for before in 0..20 {
            for after in 0..10 {
                let text = format!("{}{character}{}", "a".repeat(before), "\u{ff}".repeat(after));
                for wrapping in Wrapping::ALL {
                    assert_eq!(written(wrapping, &Frame::Messages(&[&text])), naive(wrapping, &text));
                }
            }
        }
    }
}

fn message() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        4 => any::<char>(),
        4 => proptest::char::range(' ', '~'),
        1 => proptest::char::range('\0', '\x1f'),
        1 => proptest::char::range('\u{1ff0}', '\u{2070}'),
        1 => proptest::char::range('\u{ffe0}', '\u{ffff}'),
        1 => proptest::sample::select(vec!['"', '\\', '%', '<', '/']),
    ];
    proptest::collection::vec(character, 0..60).prop_map(String::from_iter)
}

proptest! {
    #[test]
    fn escaping_matches_the_naive_implementation(text in message()) {
        for wrapping in Wrapping::ALL {
            prop_assert_eq!(written(wrapping, &Frame::Messages(&[&text])), naive(wrapping, &text));
        }
    }

    /// A message can't end the line, the element or the string that contains it.
    #[test]
    fn messages_stay_inside(text in message()) {
        for wrapping in Wrapping::ALL {
            let frame = written(wrapping, &Frame::Messages(&[&text]));
            let inner = wrapping.messages_of(frame.as_bytes()).unwrap();
            prop_assert!(inner.iter().all(|byte| *byte >= 0x20));
            if wrapping == Wrapping::HtmlFile {
                prop_assert!(!inner.contains(&b'<'));
            }
        }
    }
}

#[test]
fn frames_are_joined() {
    for wrapping in Wrapping::ALL {
        let frames = ["a", "\"b\"<%\n"].map(|text| written(wrapping, &Frame::Messages(&[text])));
        let inner: Vec<&[u8]> =
            frames.iter().map(|frame| wrapping.messages_of(frame.as_bytes()).unwrap()).collect();
        let joined =
            [wrapping.head().as_bytes(), &inner.join(&b","[..]), wrapping.tail().as_bytes()].concat();
        assert_eq!(joined, written(wrapping, &Frame::Messages(&["a", "\"b\"<%\n"])).into_bytes());
        for other in [Frame::Open, Frame::Heartbeat, Frame::Close(Close::NORMAL)] {
            assert_eq!(wrapping.messages_of(written(wrapping, &other).as_bytes()), None);
        }
    }
}

#[test]
fn each_transport_wraps_frames_its_own_way() {
    for transport in Transport::ALL {
        let takes_frames = !matches!(transport, Transport::XhrSend | Transport::JsonpSend);
        assert_eq!(Wrapping::of(transport).is_some(), takes_frames, "{transport:?}");
    }
}

/// The specification's responses of 4096 bytes: 31 messages of 128 `x` over `xhr_streaming`, one message over
/// other transports.
#[test]
fn responses_end_at_the_limit() {
    let send = |limit: &mut ResponseLimit, wrapping, frame: &Frame<'_>| {
        limit.is_reached_by(written(wrapping, frame).len())
    };
    let mut limit = ResponseLimit::new(Transport::XhrStreaming, 4096);
    assert!(!send(&mut limit, Wrapping::Xhr, &Frame::Open));
    let text = "x".repeat(128);
    let ended = (1..100).find(|_| send(&mut limit, Wrapping::Xhr, &Frame::Messages(&[&text])));
    assert_eq!(ended, Some(31));
    let text = "x".repeat(4096);
    for (transport, wrapping) in
        [(Transport::EventSource, Wrapping::EventSource), (Transport::HtmlFile, Wrapping::HtmlFile)]
    {
        let mut limit = ResponseLimit::new(transport, 4096);
        assert!(!send(&mut limit, wrapping, &Frame::Open));
        assert!(send(&mut limit, wrapping, &Frame::Messages(&[&text])));
    }
    // The limit is exact to the byte.
    let mut limit = ResponseLimit::new(Transport::EventSource, 10);
    assert!(!limit.is_reached_by(9));
    assert!(limit.is_reached_by(1));
    assert!(limit.is_reached_by(1));
    for transport in [Transport::Xhr, Transport::Jsonp] {
        assert!(ResponseLimit::new(transport, 4096).is_reached_by(2));
    }
    let mut limit = ResponseLimit::new(Transport::WebSocket, 4096);
    assert!(!limit.is_reached_by(usize::MAX));
    assert!(!limit.is_reached_by(usize::MAX));
}
