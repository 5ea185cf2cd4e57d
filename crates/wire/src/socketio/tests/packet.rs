use super::*;
use Error::{
    BadAttachmentCount, BadEventName, BadId, BadJson, BadPayload, Empty, MissingPayload, ReservedEventName,
    TooBig, TooDeep, TooManyAttachments, UnknownKind, WrongDirection,
};
use Role::{Client, Server};
use Version::{V4, V5};

fn check(version: Version, role: Role, text: &str, expect: Result<&str, Error>) {
    let seen = decode(version, role, &Limits::default(), text, &[]).map(|seen| seen.expect("no attachments"));
    assert_eq!(seen.as_deref().map_err(|error| *error), expect, "{version:?} {role:?} {text}");
}

fn check_all(text: &str, expect: Result<&str, Error>) {
    for (version, role) in ROLES {
        check(version, role, text, expect);
    }
}

/// Examples of both documents, and variations.
#[test]
fn examples_of_the_protocol_are_parsed() {
    check_all("0", Ok("/ connect None None"));
    check_all("0/admin,", Ok("/admin connect None None"));
    check_all("0/admin", Ok("/admin connect None None"));
    check_all(
        r#"0/admin,{"sid":"oSO0OpakMV_3jnilAAAA"}"#,
        Ok(r#"/admin connect Some("{\"sid\":\"oSO0OpakMV_3jnilAAAA\"}") None"#),
    );
    check_all(r#"2["foo"]"#, Ok(r#"/ event "foo" "#));
    check_all(r#"2/admin,["bar"]"#, Ok(r#"/admin event "bar" "#));
    check_all(r#"212["foo"]"#, Ok(r#"/ event 12 "foo" "#));
    check_all(r#"2["hello",1]"#, Ok(r#"/ event "hello" 1"#));
    check_all(r#"2/admin,456["project:delete",123]"#, Ok(r#"/admin event 456 "project:delete" 123"#));
    check_all(r#"2["message",1,"2",{"3":[true]}]"#, Ok(r#"/ event "message" 1|"2"|{"3":[true]}"#));
    check_all(r#"313["bar"]"#, Ok(r#"/ ack 13 "bar""#));
    check_all(r#"3/admin,13["bar"]"#, Ok(r#"/admin ack 13 "bar""#));
    check_all("3/admin,456[]", Ok("/admin ack 456 "));
    check_all("1", Ok("/ disconnect"));
    check_all("1/admin,", Ok("/admin disconnect"));
    check_all("1/admin", Ok("/admin disconnect"));
    for version in [V4, V5] {
        check(
            version,
            Client,
            r#"4{"message":"Not authorized"}"#,
            Ok(r#"/ refused Some("{\"message\":\"Not authorized\"}")"#),
        );
        check(
            version,
            Client,
            r#"4/admin,"Not authorized""#,
            Ok(r#"/admin refused Some("\"Not authorized\"")"#),
        );
        check(version, Client, "4", Ok("/ refused None"));
        check(version, Server, r#"4{"message":"Not authorized"}"#, Err(WrongDirection));
    }
    check_all("abc", Err(UnknownKind));
    check_all("2{}", Err(BadPayload));
    check_all(r#"2abc["message-with-ack",1,"2",{"3":[false]}]"#, Err(BadPayload));
}

#[test]
fn packet_kinds_are_parsed() {
    check_all("", Err(Empty));
    for unknown in ["7", "9", "a", " 2", "é", "/", "-1"] {
        check_all(unknown, Err(UnknownKind));
    }
}

#[test]
fn namespaces_are_parsed() {
    check_all(r#"2/,["a"]"#, Ok(r#"/ event "a" "#));
    check_all(r#"2/a/b c é,["a"]"#, Ok(r#"/a/b c é event "a" "#));
    check_all("0/", Ok("/ connect None None"));
    check_all("0/,{}", Ok(r#"/ connect Some("{}") None"#));
    // Without a comma the whole text is the namespace.
    check_all(r#"2/a["x"]"#, Err(MissingPayload));
    check_all("2/a", Err(MissingPayload));
    check_all(r#"2/a,,["x"]"#, Err(BadPayload));
    // Only protocol 4 has a query, in every packet, as in the reference.
    check(
        V4,
        Server,
        "0/admin?token=1234&uid=abcd,",
        Ok(r#"/admin connect None Some("token=1234&uid=abcd")"#),
    );
    check(V4, Server, "0/admin?token=1234", Ok(r#"/admin connect None Some("token=1234")"#));
    check(V4, Server, "0/?a=/?,", Ok(r#"/ connect None Some("a=/?")"#));
    check(V4, Server, "0/a?,", Ok(r#"/a connect None Some("")"#));
    check(V4, Server, r#"2/a?b=1,["x",2]"#, Ok(r#"/a event "x" 2"#));
    check(V4, Server, "1/a?b=1", Ok("/a disconnect"));
    check(V5, Server, "0/admin?token=1234,", Ok("/admin?token=1234 connect None None"));
}

#[test]
fn ack_ids_are_parsed() {
    check_all(r#"2007["a"]"#, Ok(r#"/ event 7 "a" "#));
    check_all(r#"20["a"]"#, Ok(r#"/ event 0 "a" "#));
    check_all(r#"29007199254740993["a"]"#, Ok(r#"/ event 9007199254740993 "a" "#));
    check_all(r#"218446744073709551615["a"]"#, Ok(r#"/ event 18446744073709551615 "a" "#));
    check_all(r#"200000000000000000000000000001["a"]"#, Ok(r#"/ event 1 "a" "#));
    check_all(r#"218446744073709551616["a"]"#, Err(BadId));
    check_all(r#"299999999999999999999999["a"]"#, Err(BadId));
    check_all("3[]", Err(BadId));
    for text in ["01", "01{}", "11", "0/a,1"] {
        check_all(text, Err(BadId));
    }
    check(V5, Client, r#"41{"message":""}"#, Err(BadId));
    for text in [r#"21.5["a"]"#, r#"2-1["a"]"#, r#"21 ["a"]"#, r#"2 1["a"]"#, r#"2+1["a"]"#] {
        check_all(text, Err(BadPayload));
    }
}

#[test]
fn events_are_parsed() {
    check_all(r#"2[1]"#, Ok("/ event 1 "));
    check_all(r#"2[-1.5e3,"x"]"#, Ok(r#"/ event -1.5e3 "x""#));
    check_all(r#"2[""]"#, Ok(r#"/ event "" "#));
    check_all("2[ \"a\"\t,\n1 , 2\r] ", Ok("/ event \"a\" 1|2"));
    check_all(r#"2["a",[],{},"],[",null,true]"#, Ok(r#"/ event "a" []|{}|"],["|null|true"#));
    check_all(r#"2["\ud800",1e999]"#, Ok(r#"/ event "\ud800" 1e999"#));
    // CVE-2024-38355: Node.js throws if `error` has no listener. Here it is an ordinary event.
    check_all(r#"2["error"]"#, Ok(r#"/ event "error" "#));
    for name in ["connecting", "__proto__", "Connect", "connect ", "reconnect", "ping", "d", "c\\u006f"] {
        check_all(&format!("2[\"{name}\"]"), Ok(&format!("/ event \"{name}\" ")));
    }
    check_all("2", Err(MissingPayload));
    check_all("27", Err(MissingPayload));
    // CVE-2023-32695: names that are no strings.
    for name in ["", " ", "null", "true", "false", "{}", "[]", r#"{"toString":"foo"}"#, r#"["a"]"#] {
        check_all(&format!("2[{name}]"), Err(BadEventName));
    }
    for name in ["null", "false", "[]", r#"{"toString":"foo"}"#] {
        check_all(&format!("51-[{name},{{\"_placeholder\":true,\"num\":0}}]"), Err(BadEventName));
    }
    for text in [r#"2"a""#, r#"2{"0":"a"}"#, "2null", "2,", "2 [\"a\"]", "2\u{feff}[\"a\"]", "2\n[\"a\"]"] {
        check_all(text, Err(BadPayload));
    }
    for text in [
        r#"2["a"]x"#,
        r#"2["a"]]"#,
        r#"2["a"]["b"]"#,
        r#"2["a""#,
        r#"2["a",]"#,
        r#"2["a" 1]"#,
        r#"2["a",1"#,
        r#"2["a",01]"#,
        "2[\"\n\"]",
        "2[\"\u{1}\"]",
        r#"2["\x"]"#,
        "2[",
        "2[,]",
        r#"2['a']"#,
        r#"2["a",undefined]"#,
        "2[\"a\"]\0",
    ] {
        check_all(text, Err(BadJson));
    }
    for reserved in RESERVED_EVENTS {
        check_all(&format!("2[\"{reserved}\"]"), Err(ReservedEventName));
        check_all(&format!("2/a,7[\"{reserved}\",1]"), Err(ReservedEventName));
        let escaped: String = reserved.bytes().map(|byte| format!("\\u{byte:04x}")).collect();
        check_all(&format!("2[\"{escaped}\"]"), Err(ReservedEventName));
        let (start, end) = reserved.split_at(4);
        check_all(
            &format!("2[\"{start}\\u{:04x}{}\"]", end.as_bytes()[0], &end[1..]),
            Err(ReservedEventName),
        );
    }
    check_all(
        &format!("2[\"a\",{}{}]", "[".repeat(127), "]".repeat(127)),
        Ok(&format!("/ event \"a\" {}{}", "[".repeat(127), "]".repeat(127))),
    );
    check_all(&format!("2[\"a\",{}{}]", "[".repeat(128), "]".repeat(128)), Err(TooDeep));
    // A recursive reader would run out of stack.
    for open in ["[", "{\"a\":", "[{\"a\":["] {
        for head in ["2[\"a\",", "31[", "51-[\"a\",", "0{\"a\":"] {
            check_all(&format!("{head}{}]", open.repeat(100_000)), Err(TooDeep));
        }
    }
    check_all(&format!("2{}", "0".repeat(100_000)), Err(MissingPayload));
    check_all(&format!("2/{},", "a".repeat(100_000)), Err(MissingPayload));
}

#[test]
fn event_names_are_read() {
    for (text, name) in
        [(r#"2["a\n\u00e9😀"]"#, "a\né😀"), ("2[1.50]", "1.50"), (r#"2["\ud800"]"#, "\u{fffd}")]
    {
        let mut decoder = Decoder::new(V5, Server);
        let Ok(Some(Packet { body: Body::Event(event), .. })) = decoder.text(text, &Limits::default()) else {
            panic!()
        };
        assert_eq!(event.name(), name);
    }
}

#[test]
fn acks_are_parsed() {
    check_all("31[]", Ok("/ ack 1 "));
    check_all("31[ ]", Ok("/ ack 1 "));
    check_all(r#"31[ null , {"a":[1]}]"#, Ok(r#"/ ack 1 null|{"a":[1]}"#));
    check_all(r#"3/a,1["connect"]"#, Ok(r#"/a ack 1 "connect""#));
    check_all("31{}", Err(BadPayload));
    check_all("31[1,]", Err(BadJson));
    check_all("31[]1", Err(BadJson));
    // Protocol 5 requires a payload. The reference accepts an ack without a payload as an ack without
    // arguments.
    for role in [Server, Client] {
        check(V5, role, "31", Ok("/ ack 1 "));
        check(V4, role, "31", Ok("/ ack 1 "));
        check(V4, role, "3/a,1", Ok("/a ack 1 "));
    }
}

#[test]
fn connects_and_disconnects_are_parsed() {
    check_all(r#"0{"token":"123"}"#, Ok(r#"/ connect Some("{\"token\":\"123\"}") None"#));
    for text in ["0[]", r#"0"""#, "0null", "0true", "0 {}", "1[]", "1null", "1{}", "0/a,[]", "1 "] {
        check_all(text, Err(BadPayload));
    }
    for text in ["0{", "0{}x", "0{}{}", r#"0{"a"}"#, "0{a:1}"] {
        check_all(text, Err(BadJson));
    }
    for text in ["4[]", "4null", "4true", "4 {}", "4 \"a\""] {
        check(V5, Client, text, Err(BadPayload));
    }
    check(V4, Client, "4[]", Ok("/ refused Some(\"[]\")"));
    check(V4, Client, "4null", Ok("/ refused Some(\"null\")"));
    check(V4, Client, "4 1", Err(BadPayload));
    check(V4, Client, "4\"a", Err(BadJson));
}

#[test]
fn attachment_counts_are_parsed() {
    for text in [
        "5",
        "5-",
        r#"5["a"]"#,
        r#"5-["a"]"#,
        r#"50-["a"]"#,
        r#"500-["a"]"#,
        r#"51["a"]"#,
        "51",
        r#"51.0-["a"]"#,
        r#"5 1-["a"]"#,
        r#"5+1-["a"]"#,
        r#"51/a,["x"]"#,
        r#"6["a"]"#,
        "60-1[]",
        "5--1-",
        r#"51e0-["a"]"#,
    ] {
        check_all(text, Err(BadAttachmentCount));
    }
    // CVE-2026-33151.
    check_all("611-1[]", Err(TooManyAttachments));
    for count in ["11", "1000000", "4294967297", "18446744073709551617", &"9".repeat(1_000_000)] {
        check_all(&format!("5{count}-[\"a\"]"), Err(TooManyAttachments));
    }
    // Not a binary packet: 50 is an id.
    check_all(r#"250-["a"]"#, Err(BadPayload));
    check_all("51-", Err(MissingPayload));
    check_all("61-1", Err(MissingPayload));
    check_all("61-[]", Err(BadId));
    check_all(r#"51-{"_placeholder":true,"num":0}"#, Err(BadPayload));
    check_all(r#"51-[{"_placeholder":true,"num":0}]"#, Err(BadEventName));
    check_all(r#"51-["connect",{"_placeholder":true,"num":0}]"#, Err(ReservedEventName));
}

#[test]
fn size_is_bounded() {
    let text = r#"2["a",1]"#;
    for (packet_bytes_max, is_good) in [(text.len(), true), (text.len() - 1, false)] {
        let limits = Limits { packet_bytes_max, ..Limits::default() };
        let seen = decode(V5, Server, &limits, text, &[]);
        assert_eq!(seen, if is_good { Ok(Some("/ event \"a\" 1".into())) } else { Err(TooBig) });
    }
}
