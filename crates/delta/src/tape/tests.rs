use super::*;
use crate::hash::Seed;

fn parse(text: &str) -> Result<Parsed<'_>, ParseError> {
    Parsed::parse(text.as_bytes(), &Keys::new(Seed([1, 2])), 1000)
}

#[test]
fn equal_values_have_one_hash() {
    let check = |a: &str, b: &str, expect: bool| {
        let (first, second) = (parse(a).unwrap(), parse(b).unwrap());
        assert_eq!(first.hash(0) == second.hash(0), expect, "{a} {b}");
    };
    check("1", "1.0", true);
    check("0", "-0", true);
    check("100", "1e2", true);
    check("9007199254740993", "9007199254740992", false);
    check("9007199254740993.0", "90071992547409930e-1", true);
    check("1e999", "2e999", false);
    check("1", "-1", false);
    check("12345678901234567890123", "12345678901234567890123.0", true);
    check("12345678901234567890123", "12345678901234567890124", false);
    check("1e99999999999999999999", "2e99999999999999999999", false);
    check("1", "\"1\"", false);
    check("[]", "{}", false);
    check("[[]]", "[]", false);
    check("[[],1]", "[[1]]", false);
    check("[1,2]", "[2,1]", false);
    check("{\"a\":1,\"b\":2}", " { \"b\" : 2 ,\n\"a\" : 1 } ", true);
    check("{\"a\":1,\"b\":2}", "{\"a\":2,\"b\":1}", false);
    check("{\"a\":0,\"a\":1}", "{\"\\u0061\":1}", true);
    check("{\"a\":1,\"a\":1,\"a\":1}", "{\"a\":1}", true);
    check("{\"a\":{\"b\":1}}", "{\"a\":{},\"b\":1}", false);
    check("\"\\ud83d\\ude00\"", "\"😀\"", true);
    check("\"\\ud83d\"", "\"\\udc00\"", false);
    check("\"a\"", "\"a\\u0000\"", false);
    check("null", "false", false);
}

#[test]
fn the_tape_locates_every_value() {
    let parsed = parse(" { \"a\" : [ 1 , { } ] , \"b\" : 2, \"a\":\"x \" }").unwrap();
    assert_eq!(parsed.minified(), b"{\"a\":[1,{}],\"b\":2,\"a\":\"x \"}");
    let members: Vec<_> = parsed.children(0).map(|id| (parsed.name(id), parsed.raw(id))).collect();
    assert_eq!(members, [(&b"b"[..], &b"2"[..]), (b"a", b"\"x \"")]);
    assert_eq!((parsed.kind(1), parsed.raw(1), parsed.children(1).count()), (Kind::Array, &b"[1,{}]"[..], 2));
    assert_eq!(parsed.nodes.len(), 6);
}

#[test]
fn malformed_and_too_large_texts_are_refused() {
    use stentor_json::Error;
    let check = |text: &str, expect| assert_eq!(parse(text).map(|_| ()), Err(expect), "{text}");
    let not_json = |text: &str, expect| check(text, ParseError::NotJson(expect));
    not_json("", Error::Incomplete);
    not_json("[1,]", Error::Unexpected(3));
    not_json("1 2", Error::Unexpected(2));
    not_json("{\"a\":1]", Error::Unexpected(6));
    not_json(&"[".repeat(DEPTH_MAX + 1), Error::TooDeep(DEPTH_MAX));
    not_json(&"{\"a\":".repeat(100_000), Error::TooDeep(DEPTH_MAX * 5));
    check(&format!("[{}1]", "1,".repeat(999)), ParseError::TooLarge);
    let deep = "[".repeat(DEPTH_MAX) + &"]".repeat(DEPTH_MAX);
    assert!(parse(&deep).is_ok());
    let keys = Keys::new(Seed([1, 2]));
    let invalid = Parsed::parse(b"\"\xff\"", &keys, 9).map(|_| ());
    assert_eq!(invalid, Err(ParseError::NotJson(Error::Utf8(1))));
}
