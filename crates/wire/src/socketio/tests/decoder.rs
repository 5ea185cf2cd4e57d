use super::*;
use Error::{BadPlaceholder, ExpectedAttachment, TooBig, UnexpectedAttachment};
use Version::V5;

fn limits() -> Limits {
    Limits::default()
}

fn check(text: &str, attachments: &[&[u8]], expect: Result<Option<&str>, Error>) {
    for (version, role) in ROLES {
        let seen = decode(version, role, &limits(), text, attachments);
        assert_eq!(seen.as_ref().map(|seen| seen.as_deref()).map_err(|error| *error), expect, "{text}");
    }
}

#[test]
fn examples_of_the_protocol_are_decoded() {
    let (zero, one) = (r#"{"_placeholder":true,"num":0}"#, r#"{"_placeholder":true,"num":1}"#);
    check(
        &format!(r#"51-["baz",{zero}]"#),
        &[&[1, 2, 3, 4]],
        Ok(Some(&format!(r#"/ event "baz" {zero} +01020304"#))),
    );
    check(
        &format!(r#"52-/admin,["baz",{zero},{one}]"#),
        &[&[1, 2], &[3, 4]],
        Ok(Some(&format!(r#"/admin event "baz" {zero}|{one} +0102 +0304"#))),
    );
    check(&format!(r#"61-15["bar",{zero}]"#), &[&[1]], Ok(Some(&format!(r#"/ ack 15 "bar"|{zero} +01"#))));
    check(
        &format!(r#"61-/admin,456[{zero}]"#),
        &[&[3, 2, 1]],
        Ok(Some(&format!("/admin ack 456 {zero} +030201"))),
    );
    check(
        &format!(r#"51-/admin,456["project:delete",{zero}]"#),
        &[&[1]],
        Ok(Some(&format!(r#"/admin event 456 "project:delete" {zero} +01"#))),
    );
}

#[test]
fn attachments_are_collected() {
    // Empty attachments, packets without placeholders, the count `01`, a missing attachment, and ten attachments
    // (the maximum).
    check(r#"51-["a"]"#, &[b""], Ok(Some(r#"/ event "a"  +"#)));
    check(r#"53-["a"]"#, &[b"", b"\x01", b""], Ok(Some(r#"/ event "a"  + +01 +"#)));
    check(r#"501-["a"]"#, &[b"\x02"], Ok(Some(r#"/ event "a"  +02"#)));
    check(r#"52-["a"]"#, &[b"\x01"], Ok(None));
    let ten: Vec<&[u8]> = vec![b"\x07"; 10];
    check(r#"510-["a"]"#, &ten, Ok(Some(&format!(r#"/ event "a" {}"#, " +07".repeat(10)))));
}

#[test]
fn placeholders_are_checked() {
    let check = |payload: &str, is_good: bool| {
        for text in [
            format!("52-[\"a\",{payload}]"),
            format!("62-1[[{payload}]]"),
            format!("52-[\"a\",0,{{\"x\":{payload}}},1]"),
        ] {
            self::check(&text, &[], if is_good { Ok(None) } else { Err(BadPlaceholder) });
        }
    };
    for good in [
        r#"{"_placeholder":true,"num":0}"#,
        r#"{"num":1,"_placeholder":true}"#,
        " { \"num\" : 1 ,\n\"_placeholder\"\t: true }",
        r#"{"\u005fplaceholder":true,"n\u0075m":1}"#,
        r#"{"_placeholder":true,"num":0.0}"#,
        r#"{"_placeholder":true,"num":-0}"#,
        r#"{"_placeholder":true,"num":10e-1}"#,
        r#"{"_placeholder":true,"num":0,"x":1}"#,
        r#"{"x":1,"_placeholder":true,"num":0}"#,
        r#"{"num":0,"x":[{}],"_placeholder":true}"#,
        r#"{"num":0,"x":{"_placeholder":true},"_placeholder":true}"#,
        // If a member occurs twice, the last one counts.
        r#"{"num":9,"num":0,"_placeholder":true}"#,
        r#"{"num":9,"_placeholder":true,"num":0}"#,
        r#"{"num":9,"_placeholder":true,"_placeholder":false}"#,
        r#"[{"_placeholder":true,"num":0},{"_placeholder":true,"num":0}]"#,
        // No placeholders.
        r#"{"_placeholder":false,"num":"x"}"#,
        r#"{"_placeholder":1,"num":9}"#,
        r#"{"_placeholder":"true","num":9}"#,
        r#"{"_placeholder":{"_placeholder":true,"num":1}}"#,
        r#"{"num":{"num":{"num":9}}}"#,
        r#"["_placeholder",true,"num",9]"#,
        r#"{"x":"{\"_placeholder\":true,\"num\":9}"}"#,
        r#"{"x_placeholder":true}"#,
    ] {
        check(good, true);
    }
    // CVE-2022-2421: placeholders that refer to another property of the list of attachments.
    for bad in [
        r#"{"_placeholder":true,"num":2}"#,
        r#"{"_placeholder":true,"num":99999999999999999999999}"#,
        r#"{"_placeholder":true,"num":-1}"#,
        r#"{"_placeholder":true,"num":0.5}"#,
        r#"{"_placeholder":true,"num":"0"}"#,
        r#"{"_placeholder":true,"num":"splice"}"#,
        r#"{"_placeholder":true,"num":"__proto__"}"#,
        r#"{"_placeholder":true,"num":{}}"#,
        r#"{"_placeholder":true,"num":1e99}"#,
        r#"{"_placeholder":true,"num":null}"#,
        r#"{"_placeholder":true,"num":[0]}"#,
        r#"{"_placeholder":true}"#,
        r#"{"_placeholder":true,"num":0,"num":9}"#,
        r#"{"num":0,"x":{"num":0},"_placeholder":true,"num":{}}"#,
        r#"{"_placeholder":true,"_placeholder":true}"#,
        r#"{"\u005fplaceholder":true,"num":2}"#,
        r#"{"_placeholder":true,"num":{"_placeholder":true,"num":0}}"#,
        r#"[{"_placeholder":true,"num":0},{"_placeholder":true,"num":2}]"#,
        r#"{"x":[{"y":{"_placeholder" : true}}]}"#,
    ] {
        check(bad, false);
    }
    // In a packet without attachments, a placeholder is an ordinary object.
    let text = r#"2["a",{"_placeholder":true,"num":"x"}]"#;
    assert!(Decoder::new(V5, Role::Server).text(text, &limits()).unwrap().is_some());
}

#[test]
fn order_is_kept() {
    let mut decoder = Decoder::new(V5, Role::Server);
    assert_eq!(decoder.binary(b"x", &limits()).err(), Some(UnexpectedAttachment));
    assert!(decoder.text(r#"52-["a"]"#, &limits()).unwrap().is_none());
    assert!(decoder.binary(b"x", &limits()).unwrap().is_none());
    for text in [r#"2["a"]"#, "1", "", r#"52-["a"]"#] {
        let mut decoder = Decoder::new(V5, Role::Server);
        assert!(decoder.text(r#"51-["a"]"#, &limits()).unwrap().is_none());
        assert_eq!(decoder.text(text, &limits()), Err(ExpectedAttachment));
        assert_eq!(decoder.held_bytes(), 0);
    }
    // One packet after another.
    let packet = decoder.binary(b"y", &limits()).unwrap().map(|assembled| seen(&assembled.packet()));
    assert_eq!(packet.as_deref(), Some(r#"/ event "a"  +78 +79"#));
    assert_eq!(decoder.binary(b"x", &limits()).err(), Some(UnexpectedAttachment));
    assert!(decoder.text(r#"2["b"]"#, &limits()).unwrap().is_some());
}

#[test]
fn size_is_bounded() {
    let text = r#"52-["a"]"#;
    let limits = |bytes| Limits { packet_bytes_max: text.len() + bytes, attachments_max: 2 };
    for (first, second, error) in
        [(3, 2, None), (3, 3, Some(TooBig)), (5, 0, None), (6, 0, Some(TooBig)), (0, 5, None)]
    {
        let (first, second) = (vec![1; first], vec![2; second]);
        let seen = decode(V5, Role::Server, &limits(5), text, &[&first, &second]);
        assert_eq!(seen.err(), error);
    }
}

/// CVE-2026-69185: after a binary packet without attachments, the reference collects binary messages without
/// limit.
#[test]
fn unexpected_attachments_are_not_held() {
    for (version, role) in ROLES {
        let mut decoder = Decoder::new(version, role);
        assert!(decoder.text(r#"50-["a"]"#, &limits()).is_err());
        for _ in 0..1000 {
            assert_eq!(decoder.binary(&[0; 1000], &limits()).err(), Some(UnexpectedAttachment));
            assert_eq!(decoder.held_bytes(), 0);
        }
    }
}

/// CVE-2026-33151: a packet announces very many attachments. Memory follows the received bytes, and ends at
/// the limit.
#[test]
fn huge_attachment_counts_cost_only_received_attachments() {
    let limits = Limits { attachments_max: usize::MAX, ..limits() };
    for (version, role) in ROLES {
        let mut decoder = Decoder::new(version, role);
        assert_eq!(decoder.text(&format!("5{}-[\"a\"]", i64::MAX), &limits), Ok(None));
        assert!(decoder.held_bytes() <= 512, "{}", decoder.held_bytes());
        let mut sent = 0;
        let error = loop {
            match decoder.binary(&[7; 1000], &limits) {
                Ok(assembled) => assert!(assembled.is_none()),
                Err(error) => break error,
            }
            sent += 1000;
            assert!(decoder.held_bytes() <= 3 * sent + 1024, "{} for {sent}", decoder.held_bytes());
        };
        assert_eq!((error, decoder.held_bytes()), (TooBig, 0));
        assert!(sent <= limits.packet_bytes_max);
    }
}

/// CVE-2020-36049: large packets, also in many pieces, cost time linear in their length. Quadratic work would
/// take minutes for these sizes.
#[test]
fn large_packets_cost_linear_time() {
    let limits = Limits { packet_bytes_max: usize::MAX, attachments_max: 1_000_000 };
    let n = 100_000;
    let items = [
        "[],",
        "{},",
        r#"{"num":0,"a":{"num":0,"a":[]}},"#,
        r#"{"_placeholder":true,"num":0},"#,
        " 1 ,",
        r#""_placeholder","#,
        r#"{"_placeholder":false},"#,
        r#"{"\u005fplaceholder":1},"#,
    ];
    for (version, role) in ROLES {
        let mut decoder = Decoder::new(version, role);
        for inner in ["\\\\".repeat(n), "\\u0061".repeat(n), "{".repeat(n), "😀".repeat(n)] {
            let text = format!("51-[\"{inner}\",\"{inner}\"]");
            assert_eq!(decoder.text(&text, &limits), Ok(None));
            assert!(decoder.binary(b"x", &limits).unwrap().is_some());
        }
        for item in items {
            let text = format!("51-[\"a\",{}0]", item.repeat(n / item.len()));
            assert_eq!(decoder.text(&text, &limits), Ok(None));
            let assembled = decoder.binary(b"x", &limits).unwrap().unwrap();
            let Body::Event(event) = assembled.packet().body else { panic!("{item}") };
            assert_eq!(event.arguments.iter().count(), n / item.len() + 1);
        }
        assert_eq!(decoder.text(r#"520000-["a"]"#, &limits), Ok(None));
        for number in 1..=20_000 {
            let assembled = decoder.binary(b"0123456789", &limits).unwrap();
            assert_eq!(assembled.is_some(), number == 20_000);
        }
    }
}

/// A single attachment isn't copied, and a packet without attachments allocates no memory.
#[test]
fn pieces_are_borrowed() {
    let mut decoder = Decoder::new(V5, Role::Server);
    let text = String::from(r#"2/a,["name",{"b":1}]"#);
    let Ok(Some(Packet { namespace, body: Body::Event(event) })) = decoder.text(&text, &limits()) else {
        panic!()
    };
    assert_eq!(namespace.as_ptr(), text[1..].as_ptr());
    assert_eq!(event.arguments.raw().as_ptr(), text[12..].as_ptr());
    assert!(matches!(event.name(), std::borrow::Cow::Borrowed(_)));
    assert!(decoder.text(r#"51-["a"]"#, &limits()).unwrap().is_none());
    let data = vec![1, 2, 3];
    let assembled = decoder.binary(&data, &limits()).unwrap().unwrap();
    let Body::Event(event) = assembled.packet().body else { panic!() };
    assert_eq!(event.attachments.get(0).map(<[u8]>::as_ptr), Some(data.as_ptr()));
    assert_eq!(size_of::<Decoder>(), 16);
}
