//! Tests of valid messages, and of the explanations of invalid ones.

use super::*;

fn parse(text: &str) -> Result<Option<Publish>, String> {
    let parsed = Parser::default().parse(text.as_bytes()).map_err(|refusal| refusal.message)?;
    Ok(parsed.map(|parsed| parsed.message))
}

#[test]
fn messages() {
    fn check(text: &str, namespace: &str, room: &str, event: Option<&str>, data: &str) {
        let message = parse(text).unwrap().unwrap();
        assert_eq!((message.room.namespace(), message.room.name()), (namespace, room));
        assert_eq!(message.event.as_deref(), event);
        assert_eq!(message.data, Data::Json(Bytes::copy_from_slice(data.as_bytes())));
    }
    check(r#"{"room":"a","data":1}"#, "/", "a", None, "1");
    let spaced = r#" {"data": {"b": 1.50} ,"room":"a","event":"e","x":[1]} "#;
    check(spaced, "/", "a", Some("e"), r#"{"b": 1.50}"#);
    let escaped = r#"{"room":"\u00e9","data":"\ud800","namespace":"/n","event":null}"#;
    check(escaped, "/n", "é", None, r#""\ud800""#);
    check("{\"room\":\"a\",\"data\":[1,\r\n \"b c\"]}", "/", "a", None, r#"[1,"b c"]"#);
    check("{\"room\":\"a\",\"data\":12345678901234567890.10}", "/", "a", None, "12345678901234567890.10");
    check("\u{feff}{\"room\":\"a\",\"data\":1}", "/", "a", None, "1");
    assert!(parse("").unwrap().is_none());
    assert!(parse(" \r").unwrap().is_none());
}

#[test]
fn an_event_may_have_several_arguments() {
    let check = |args: &str, expect: &str| {
        let text = format!("{{\"room\":\"a\",\"event\":\"e\",\"args\":{args}}}");
        let Data::Arguments { json, attachments } = parse(&text).unwrap().unwrap().data else {
            panic!("{args}")
        };
        assert_eq!((json, attachments.len()), (Bytes::copy_from_slice(expect.as_bytes()), 0), "{args}");
    };
    check("[]", "");
    check("[1]", "1");
    check(
        "[\"private-orders\" , {\"a\": 1e400},\nnull,[\r\n2]]",
        "\"private-orders\",{\"a\": 1e400},null,[2]",
    );
}

#[test]
fn mistakes_are_explained() {
    fn check(text: &str, expect: &str) {
        let message = parse(text).expect_err("an error");
        assert!(message.contains(expect), "{message}");
    }
    check("{", "EOF while parsing an object at column 1");
    check("[]", "a message must be a JSON object");
    check(r#"["a",null,null,1]"#, "a message must be a JSON object");
    check(r#"{"room":"a"}"#, "\"data\" or \"args\" is missing");
    check(r#"{"room":"a","args":[]}"#, "\"args\" needs an \"event\"");
    check(r#"{"room":"a","event":"e","args":[],"data":null}"#, "both \"data\" and \"args\"");
    check(r#"{"room":"a","event":"e","args":{}}"#, "invalid type: map, expected a sequence");
    check(
        &format!(r#"{{"room":"a","event":"e","args":[{}]}}"#, "[".repeat(200) + &"]".repeat(200)),
        "deeper",
    );
    check(r#"{"data":1}"#, "\"room\" or \"namespace\" is missing");
    check(r#"{"room":"","data":1}"#, "the room's name is empty");
    check(&format!(r#"{{"room":"{}","data":1}}"#, "r".repeat(257)), "longer than 256 bytes");
    check(&format!(r#"{{"room":"r","event":"{}","data":1}}"#, "e".repeat(257)), "longer than 256 bytes");
    check(r#"{"room":7,"data":1}"#, "invalid type: integer `7`, expected a string");
    check(r#"{"room":"a","room":"b","data":1}"#, "duplicate field `room`");
    for key in ["", "with space", "é", &"k".repeat(129)] {
        let text = format!(r#"{{"room":"a","data":1,"idempotency_key":"{key}"}}"#);
        check(&text, "\"idempotency_key\" must have 1 to 128 visible ASCII characters");
    }
    check(r#"{"room":"a","data":1} x"#, "trailing characters");
    check(r#"{"room":"a","data":nope}"#, "expected");
    let deep = format!(r#"{{"room":"a","data":{}}}"#, "[".repeat(1000) + &"]".repeat(1000));
    check(&deep, "nested deeper than 128");
    check(&format!(r#"{{"room":"a","data":{}"#, "[".repeat(100_000)), "EOF");
    assert!(Parser::default().parse(b"{\"room\":\"\xff\",\"data\":1}").is_err());
}

#[test]
fn the_last_room_is_shared_only_if_it_is_the_same() {
    let mut parser = Parser::default();
    let mut room = |text: &str| parser.parse(text.as_bytes()).unwrap().unwrap().message.room;
    let first = room(r#"{"room":"a","data":1}"#);
    assert_eq!(room(r#"{"room":"a","data":2}"#), first);
    assert_ne!(room(r#"{"room":"a","namespace":"/n","data":2}"#), first);
    assert_ne!(room(r#"{"room":"b","data":2}"#), first);
    assert_eq!(room(r#"{"room":"a","data":2}"#), first);
}
