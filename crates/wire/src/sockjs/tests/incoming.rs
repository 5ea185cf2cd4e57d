use super::*;

/// Returns the messages. Reads them as an iterator and with `next_in`, and compares the results.
fn all(messages: Messages<'_>) -> Vec<String> {
    let mut again = messages.clone();
    let mut scratch = String::from("left over");
    let count = messages.len();
    let taken: Vec<String> = messages.map(|text| text.into_owned()).collect();
    let mut in_scratch = Vec::new();
    while let Some(text) = again.next_in(&mut scratch) {
        in_scratch.push(text.to_owned());
    }
    assert_eq!((in_scratch, count), (taken.clone(), taken.len()));
    assert!(again.is_empty() && again.next().is_none());
    taken
}

fn body(text: &str) -> Result<Vec<String>, Error> {
    parse_body(text.as_bytes(), &Limits::default()).map(all)
}

#[test]
fn request_bodies_are_decoded() {
    fn check(text: &str, expect: Result<&[&str], Error>) {
        let expect = expect.map(|texts| texts.iter().map(|&text| text.to_owned()).collect());
        assert_eq!(body(text), expect, "{text:?}");
        // A WebSocket message is read in the same way, unless it is empty or a single string.
        if !text.is_empty() && !text.trim_start().starts_with('"') {
            assert_eq!(parse_websocket(text, &Limits::default()).map(all), expect, "{text:?}");
        }
    }
    check("[]", Ok(&[]));
    check(" [ ] \r\n", Ok(&[]));
    check(r#"["a"]"#, Ok(&["a"]));
    check("\t[ \"a\" ,\n\"\",\"b\" ]\r", Ok(&["a", "", "b"]));
    check(r#"["a,]","[\"b\"]"]"#, Ok(&["a,]", "[\"b\"]"]));
    check(r#"["%61bc"]"#, Ok(&["%61bc"]));
    check("", Err(Error::NoPayload));
    for broken in [
        "[\"x",
        "[",
        "[\"a\"",
        "[\"a\",",
        "[\"a\",]",
        "[,]",
        "[\"a\"\"b\"]",
        "[\"a\"]]",
        "[\"a\"] x",
        "]",
        "x",
        "[x]",
        " ",
        "\u{feff}[]",
        "['a']",
        "[\"a\";]",
        "[\"\\\"]",
        "nul",
        "undefined",
    ] {
        check(broken, Err(Error::BadJson));
    }
    for other in ["{}", "5", "-1", "null", "true", "false", "{\"a\""] {
        check(other, Err(Error::NotArray));
    }
    assert_eq!(body("\"a\""), Err(Error::NotArray));
    for other in ["[1]", "[\"a\",null]", "[[\"a\"]]", "[{\"a\":1}]", "[\"a\",true]", "[-0.5e3]"] {
        check(other, Err(Error::NotText));
    }
    assert!(matches!(parse_body(b"[\"\xff\"]", &Limits::default()), Err(Error::BadJson)));
    assert!(matches!(parse_body(b"[\"\xed\xa0\x80\"]", &Limits::default()), Err(Error::BadJson)));
}

#[test]
fn strings_are_decoded() {
    fn check(inner: &str, expect: Option<&str>) {
        let expect = expect.map(|text| vec![text.to_owned()]).ok_or(Error::BadJson);
        assert_eq!(body(&format!("[\"{inner}\"]")), expect, "{inner:?}");
        // At each of the eight positions that the decoder examines together.
        for padding in 1..9 {
            let padding = "p".repeat(padding);
            let expect = expect.clone().map(|texts| vec![format!("{padding}{}{padding}", texts[0])]);
            assert_eq!(body(&format!("[\"{padding}{inner}{padding}\"]")), expect, "{padding}{inner:?}");
        }
    }
    check(r#"\"\\\/\b\f\n\r\t"#, Some("\"\\/\u{8}\u{c}\n\r\t"));
    check(r"\u0041\u00e4\u20AC\uFFFF", Some("A\u{e4}\u{20ac}\u{ffff}"));
    check(r"\u0000", Some("\0"));
    check(r"\ud83d\ude00", Some("\u{1f600}"));
    check(r"\uD83D\uDE00x", Some("\u{1f600}x"));
    check("\u{1f600}\u{2028}\x7f", Some("\u{1f600}\u{2028}\x7f"));
    // Unpaired surrogates with various neighbours.
    check(r"\ud83d", Some("\u{fffd}"));
    check(r"\ude00", Some("\u{fffd}"));
    check(r"\ude00\ud83d", Some("\u{fffd}\u{fffd}"));
    check(r"\ud83d\ud83d\ude00", Some("\u{fffd}\u{1f600}"));
    check(r"\ud83dx\ude00", Some("\u{fffd}x\u{fffd}"));
    check(r"\ud83d\n", Some("\u{fffd}\n"));
    check(r"\ud83d\u0041", Some("\u{fffd}A"));
    check("\\ud83d\u{e4}", Some("\u{fffd}\u{e4}"));
    for broken in
        [r"\x", r"\u", r"\u12", r"\u12g4", r"\u+123", r"\U0041", r"\'", "\n", "\t", "\0", "\x1f", "\\\u{e4}"]
    {
        check(broken, None);
    }
}

#[test]
fn websocket_messages_are_decoded() {
    fn check(text: &str, expect: Result<&[&str], Error>) {
        let expect = expect.map(|texts| texts.iter().map(|&text| text.to_owned()).collect());
        assert_eq!(parse_websocket(text, &Limits::default()).map(all), expect, "{text:?}");
    }
    check("", Ok(&[]));
    check("[]", Ok(&[]));
    check(r#"["a"]"#, Ok(&["a"]));
    check("[\"a", Err(Error::BadJson));
    check(r#""a""#, Ok(&["a"]));
    check(" \"\\u0061\" ", Ok(&["a"]));
    check(r#""a" "b""#, Err(Error::BadJson));
    check(r#""a"#, Err(Error::BadJson));
}

#[test]
fn forms_are_decoded() {
    const FORM: &str = "application/x-www-form-urlencoded";
    fn check(content_type: &str, body: &[u8], expect: Result<&[&str], Error>) {
        let payload = jsonp_payload((content_type != "-").then_some(content_type), body);
        let seen = payload.and_then(|payload| parse_body(&payload, &Limits::default()).map(all));
        assert_eq!(seen, expect.map(|texts| texts.iter().map(|&text| text.to_owned()).collect()), "{body:?}");
    }
    check(FORM, b"d=%5B%22x%22%5D", Ok(&["x"]));
    check(FORM, b"d=%5B%5D", Ok(&[]));
    check(FORM, b"a=b&d=[%22x+y%22]&d=x", Ok(&["x y"]));
    check("Application/X-WWW-form-urlencoded; charset=UTF-8", b"d=%5B%22x%22%5D", Ok(&["x"]));
    check(FORM, b"d=%5B%22x", Err(Error::BadJson));
    for nothing in [&b""[..], b"d=", b"p=p", b"[\"a\"]"] {
        check(FORM, nothing, Err(Error::NoPayload));
    }
    check(FORM, b"d=\xff", Err(Error::BadJson));
    check("text/plain", b"[\"%61bc\"]", Ok(&["%61bc"]));
    check("text/plain;charset=UTF-8", b"[\"a\"]", Ok(&["a"]));
    check("-", b"[\"a\"]", Ok(&["a"]));
    check("", b"", Err(Error::NoPayload));
    check("application/json", b"[\"a\"]", Err(Error::NoPayload));
}

#[test]
fn messages_are_bounded() {
    let limits = Limits { messages_max: 3 };
    let count = |text: &str| parse_body(text.as_bytes(), &limits).map(|messages| messages.len());
    assert_eq!(count(r#"["","",""]"#), Ok(3));
    assert_eq!(count(r#"["","","",""]"#), Err(Error::TooManyMessages));
    assert_eq!(Error::TooManyMessages.status(), 413);
}

/// Like CVE-2020-36049: payloads that cost more than their length. Quadratic work would take minutes for
/// these sizes.
#[test]
fn long_payloads_take_linear_time() {
    let limits = Limits { messages_max: usize::MAX };
    let count = |text: &str| parse_body(text.as_bytes(), &limits).map(Iterator::count);
    assert_eq!(count(&format!("[\"{}", "\\\"".repeat(500_000))), Err(Error::BadJson));
    assert_eq!(count(&"[".repeat(1_000_000)), Err(Error::NotText));
    assert_eq!(count(&format!("[{}\"a\"{}]", " ".repeat(500_000), "\n".repeat(500_000))), Ok(1));
    let many = format!("[{}\"\"]", "\"\",".repeat(300_000));
    assert_eq!(count(&many), Ok(300_001));
    assert_eq!(body(&many), Err(Error::TooManyMessages));
    let surrogates = format!("[\"{}\"]", "\\ud83d".repeat(300_000));
    assert_eq!(body(&surrogates), Ok(vec!["\u{fffd}".repeat(300_000)]));
    let form = "d&".repeat(500_000);
    let form = jsonp_payload(Some("application/x-www-form-urlencoded"), form.as_bytes());
    assert_eq!(form.err(), Some(Error::NoPayload));
}

/// The specification prescribes these texts.
#[test]
fn errors_are_reported() {
    for (error, body) in [
        (Error::NoPayload, "Payload expected."),
        (Error::NotArray, "Payload expected."),
        (Error::NotText, "Payload expected."),
        (Error::BadJson, "Broken JSON encoding."),
    ] {
        assert_eq!((error.status(), error.body()), (500, body));
    }
}
