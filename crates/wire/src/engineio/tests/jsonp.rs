use super::*;

fn check(body: &str, expect: Result<&str, Error>) {
    assert_eq!(decode_jsonp_form(body.as_bytes()).as_deref(), expect.as_deref(), "{body}");
}

#[test]
fn forms_are_decoded() {
    check("d=4%3A4hey", Ok("4:4hey"));
    check("d=4hello%1E4world", Ok("4hello\x1e4world"));
    check("d=", Ok(""));
    check("x=1&d=4+a%2Bb&y", Ok("4 a+b"));
    check("d=%F0%9F%98%80", Ok("😀"));
    // A backslash followed by n is a line feed. One more backslash before it makes it literal.
    check("d=4a%5Cnb", Ok("4a\nb"));
    check("d=4a\\nb", Ok("4a\nb"));
    check("d=4a%5C%5Cnb", Ok("4a\\nb"));
    check("d=4a%5C%5C%5Cnb", Ok("4a\\\\nb"));
    check("d=%5Cn%5Cn%5C%5Cn", Ok("\n\n\\n"));
    check("d=%5C%5C%5Cx%5C", Ok("\\\\\\x\\"));
    for bad in ["", "e=1", "4hello", "d=1&d=2", "D=1"] {
        check(bad, Err(Error::BadForm));
    }
    assert_eq!(decode_jsonp_form(b"d=\xff"), Err(Error::BadUtf8));
    // Many fields, escapes and backslashes: a quadratic decoder would take minutes.
    for piece in ["d&", "a=b&", "%5C", "%5Cn", "\\\\n", "%", "+"] {
        let _ = decode_jsonp_form(format!("d={}", piece.repeat(100_000)).as_bytes());
    }
}

#[test]
fn responses_are_scripts() {
    for (index, payload, script) in [
        (0, "4:4hey", "___eio[0](\"4:4hey\");"),
        (4, "packet data", "___eio[4](\"packet data\");"),
        (
            u32::MAX,
            "\"\\</script>\n\u{2028}\u{2029}é\0",
            "___eio[4294967295](\"\\\"\\\\</script>\\n\\u2028\\u2029é\\u0000\");",
        ),
    ] {
        let mut out = Vec::new();
        write_jsonp_answer(&mut out, index, payload);
        assert_eq!(str::from_utf8(&out).unwrap(), script);
    }
}

proptest! {
    #[test]
    fn client_posts_are_decoded(payload in prop_oneof![any::<String>(), "[\\\\n\r\n aé&=+%]{0,12}"]) {
        // The reference is ambiguous too for a backslash before a line feed and for several backslashes
        // before n.
        prop_assume!(!payload.contains("\\\n"));
        let mut body = Vec::new();
        encode_jsonp_form(&mut body, &payload);
        prop_assert_eq!(decode_jsonp_form(&body).unwrap(), payload);
    }

    #[test]
    fn a_response_contains_its_payload(payload in any::<String>()) {
        let mut out = Vec::new();
        write_jsonp_answer(&mut out, 7, &payload);
        let script = String::from_utf8(out).unwrap();
        let breaks_lines = script.contains(['\n', '\r', '\u{2028}', '\u{2029}']);
        prop_assert!(!breaks_lines);
        let string = script.strip_prefix("___eio[7](").unwrap().strip_suffix(");").unwrap();
        prop_assert_eq!(serde_json::from_str::<String>(string).unwrap(), payload);
    }
}
