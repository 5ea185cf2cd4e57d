use super::*;
use crate::ws::{self, Opcode};
use proptest::prelude::*;

fn check(write: impl FnOnce(&mut Vec<u8>), expect: &str) {
    let mut out = b"4".to_vec();
    write(&mut out);
    assert_eq!(str::from_utf8(&out).unwrap(), format!("4{expect}"));
}

#[test]
fn events_and_acks_are_encoded() {
    let (plain, admin) = (Head::new("/"), Head::new("/admin"));
    check(|out| write_event(out, &plain, "foo", &[]), r#"2["foo"]"#);
    check(|out| write_event(out, &plain, "foo", &["", ""]), r#"2["foo"]"#);
    check(|out| write_event(out, &admin, "a\"b", &["1,{}"]), r#"2/admin,["a\"b",1,{}]"#);
    check(|out| write_event(out, &plain, "foo", &["", "\"offset\""]), r#"2["foo","offset"]"#);
    check(|out| write_event(out, &plain, "foo", &["1", "", "2,3"]), r#"2["foo",1,2,3]"#);
    check(|out| write_event(out, &Head { id: Some(12), ..plain }, "foo", &[]), r#"212["foo"]"#);
    check(
        |out| write_event(out, &Head { id: Some(456), attachments: 2, ..admin }, "baz", &["0"]),
        r#"52-/admin,456["baz",0]"#,
    );
    check(|out| write_event_list(out, &plain, &[r#""a",1"#]), r#"2["a",1]"#);
    check(|out| write_event_list(out, &admin, &[r#""a""#, "", "1"]), r#"2/admin,["a",1]"#);
    check(|out| write_ack(out, "/", 0, 0, &[]), "30[]");
    check(|out| write_ack(out, "/", 437, 0, &["", "1", "2"]), "3437[1,2]");
    check(
        |out| write_ack(out, "/admin", u64::MAX, 0, &["\"bar\""]),
        r#"3/admin,18446744073709551615["bar"]"#,
    );
    check(
        |out| {
            let mut argument = Vec::new();
            write_placeholder(&mut argument, 0);
            write_ack(out, "/", 15, 1, &["\"bar\"", str::from_utf8(&argument).unwrap()]);
        },
        r#"61-15["bar",{"_placeholder":true,"num":0}]"#,
    );
}

#[test]
fn connects_and_disconnects_are_encoded() {
    use Version::{V4, V5};
    check(|out| write_connect(out, V5, "/", None), "0");
    check(|out| write_connect(out, V5, "/admin", None), "0/admin,");
    check(|out| write_connect(out, V5, "/", Some(r#"{"token":"123"}"#)), r#"0{"token":"123"}"#);
    check(|out| write_connect(out, V5, "/admin", Some("{}")), "0/admin,{}");
    check(|out| write_connect(out, V4, "/admin", None), "0/admin,");
    check(
        |out| write_connect(out, V4, "/admin", Some("token=1234&uid=abcd")),
        "0/admin?token=1234&uid=abcd,",
    );
    check(|out| write_connect(out, V4, "/", Some("a=1")), "0/?a=1,");
    check(|out| write_connected(out, V5, "/", "s\"d", None), r#"0{"sid":"s\"d"}"#);
    check(|out| write_connected(out, V5, "/admin", "a", Some("b")), r#"0/admin,{"sid":"a","pid":"b"}"#);
    check(|out| write_connected(out, V4, "/", "a", Some("b")), "0");
    check(|out| write_connected(out, V4, "/admin", "a", None), "0/admin,");
    check(
        |out| write_connect_error(out, V5, "/random", "Invalid namespace", None),
        r#"4/random,{"message":"Invalid namespace"}"#,
    );
    check(|out| write_connect_error(out, V5, "/", "no", Some("[1]")), r#"4{"message":"no","data":[1]}"#);
    check(
        |out| write_connect_error(out, V4, "/admin", "Not authorized", None),
        r#"4/admin,"Not authorized""#,
    );
    check(|out| write_connect_error(out, V4, "/", "no", Some(r#"{"a":1}"#)), r#"4{"a":1}"#);
    check(|out| write_disconnect(out, "/"), "1");
    check(|out| write_disconnect(out, "/admin"), "1/admin,");
}

proptest! {
    /// A lone event is encoded like any other. Names that must be escaped and long messages are left to the general encoder.
    #[test]
    fn lone_events_are_encoded_like_others(name in "[a-c\"\\\\\n\u{e9}]{0,4}", bytes in 0usize..130) {
        let argument = "1".repeat(bytes);
        let mut expect = b"before".to_vec();
        ws::encode_with(&mut expect, Opcode::Text, 0, |out| {
            out.push(b'4');
            write_event(out, &Head::new("/"), &name, &[&argument]);
        });
        let mut out = b"before".to_vec();
        let is_written = write_lone_event(&mut out, &name, &argument);
        prop_assert_eq!(is_written, bytes > 0 && name.len() + bytes <= 118 && !name.contains(['"', '\\', '\n']));
        prop_assert_eq!(out, if is_written { expect } else { b"before".to_vec() });
    }
}
