use crate::http1::*;

#[test]
fn queries_are_read_as_browsers_do() {
    fn check(query: &str, expect: &[(&str, &str)]) {
        let seen: Vec<_> = query_pairs(query).collect();
        let seen: Vec<(&str, &str)> = seen.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(seen, expect, "{query:?}");
    }
    check("", &[]);
    check("&&", &[]);
    check("a=1&b=2", &[("a", "1"), ("b", "2")]);
    check("a&=b&c=", &[("a", ""), ("", "b"), ("c", "")]);
    check("a=b=c", &[("a", "b=c")]);
    check("a=1&a=2", &[("a", "1"), ("a", "2")]);
    check("a+b=c%20d%2B", &[("a b", "c d+")]);
    check("%61=%C3%A4", &[("a", "\u{e4}")]);
    // Decoded once, not twice.
    check("a=%2541", &[("a", "%41")]);
    check("a=%&b=%4&c=%zz%", &[("a", "%"), ("b", "%4"), ("c", "%zz%")]);
    check("a=%ff", &[("a", "\u{fffd}")]);
}

#[test]
fn paths_are_decoded_strictly() {
    fn check(text: &str, expect: Result<&str, Error>) {
        assert_eq!(percent_decode(text).as_deref(), expect.as_ref().copied(), "{text:?}");
    }
    check("a+b", Ok("a+b"));
    check("a%20%C3%a4%2F", Ok("a \u{e4}/"));
    check("%2541", Ok("%41"));
    for bad in ["%", "%4", "%4g", "%%41", "a%ff", "%C3%28", "%+1"] {
        check(bad, Err(Error::BadPercentEncoding));
    }
}

#[test]
fn heads_are_written() {
    let mut out = Vec::new();
    write_response_head(&mut out, 200, &[("A", "b"), ("Content-Length", "0")]);
    assert_eq!(out, b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 0\r\n\r\n");
    out.clear();
    write_response_head(&mut out, 799, &[]);
    assert_eq!(out, b"HTTP/1.1 799 \r\n\r\n");
    out.clear();
    write_request_head(&mut out, "GET", "/a b\r\nc", &[("Host", "h")]);
    assert_eq!(out, b"GET /abc HTTP/1.1\r\nHost: h\r\n\r\n");
}

/// A header's value can't inject another header.
#[test]
fn headers_are_never_split() {
    let mut out = Vec::new();
    for (name, value) in [
        ("A", "b\r\nC: d"),
        ("A", "b\nC"),
        ("A", "b\0"),
        ("A", "\r"),
        ("A: b\r\nC", "d"),
        ("", "x"),
        ("A ", "b"),
    ] {
        write_header(&mut out, name, value);
        assert!(out.is_empty(), "{name:?}: {value:?}");
    }
}

#[test]
fn token_lists_are_searched() {
    fn check(value: &str, expect: &[&str]) {
        assert_eq!(tokens(value.as_bytes()).collect::<Vec<_>>(), expect, "{value:?}");
    }
    check("", &[]);
    check("a", &["a"]);
    check(" a ,\tb,, c d,\"e\", f", &["a", "b", "f"]);
}
