use super::*;

fn minified(text: &str) -> Result<String, JsonError> {
    minify(text.as_bytes().to_vec()).map(|out| String::from_utf8(out).unwrap())
}

#[test]
fn whitespace_goes_and_spelling_stays() {
    fn check(text: &str, expect: &str) {
        assert_eq!(minified(text).as_deref(), Ok(expect), "{text:?}");
        assert_eq!(minified(expect).as_deref(), Ok(expect), "twice: {text:?}");
    }
    check("null", "null");
    check(" true\r\n", "true");
    check("\u{feff}{}", "{}");
    check("[ ]", "[]");
    check("{ }", "{}");
    check("[1 , 2.50e+3,-0]", "[1,2.50e+3,-0]");
    check(
        "{ \"a b\" : \" c\\n\\u00e9\\\\\" ,\t\"d\":[ [ ] , {\"e\" :false} ] }",
        r#"{"a b":" c\n\u00e9\\","d":[[],{"e":false}]}"#,
    );
    check(r#""\ud800""#, r#""\ud800""#);
    check("  \"\u{2028} é \"  ", "\"\u{2028} é \"");
    check("12345678901234567890123456789", "12345678901234567890123456789");
}

#[test]
fn what_is_no_json_is_refused() {
    fn check(text: &str, expect: JsonError) {
        assert_eq!(minified(text), Err(expect), "{text:?}");
    }
    use JsonError::*;
    check("", Incomplete);
    check("  ", Incomplete);
    check("{", Incomplete);
    check("[1,", Incomplete);
    check("\"a", Incomplete);
    check("\"a\\", Incomplete);
    check("\"\\u12", Incomplete);
    check("tru", Incomplete);
    check("-", Incomplete);
    check("1.", Incomplete);
    check("1e", Incomplete);
    check("nul}", Unexpected(3));
    check("01", Unexpected(1));
    check("+1", Unexpected(0));
    check(".5", Unexpected(0));
    check("1.e3", Unexpected(2));
    check("[1,]", Unexpected(3));
    check("[,1]", Unexpected(1));
    check("{\"a\":1,}", Unexpected(7));
    check("{\"a\"}", Unexpected(4));
    check("{a:1}", Unexpected(1));
    check("{\"a\":1]", Unexpected(6));
    check("[1}", Unexpected(2));
    check("]", Unexpected(0));
    check("}", Unexpected(0));
    check("1 2", Unexpected(2));
    check("{} {}", Unexpected(3));
    check("\"a\nb\"", Unexpected(2));
    check("\"\\x\"", Unexpected(2));
    check("\"\\u12g4\"", Unexpected(5));
    check("NaN", Unexpected(0));
    check("<html>", Unexpected(0));
    assert_eq!(minify(b"\"\xff\"".to_vec()), Err(Utf8(1)));
}

#[test]
fn depth_is_bounded_without_recursion() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(minified(&nested(DEPTH_MAX)).is_ok());
    assert_eq!(minified(&nested(DEPTH_MAX + 1)), Err(JsonError::TooDeep(DEPTH_MAX)));
    assert_eq!(minified(&"{\"a\":".repeat(100_000)), Err(JsonError::TooDeep(5 * DEPTH_MAX)));
    assert!(is_shallow(nested(DEPTH_MAX).as_bytes()));
    assert!(!is_shallow(nested(DEPTH_MAX + 1).as_bytes()));
    assert!(is_shallow(format!("[\"{}\\\"\",1]", "[".repeat(1000)).as_bytes()));
    // Objects and arrays in turn keep apart what they are, down to the deepest level.
    let mixed = |open: &str, close: &str, n: usize| format!("{}1{}", open.repeat(n), close.repeat(n));
    assert!(minified(&mixed("[{\"a\":", "}]", DEPTH_MAX / 2)).is_ok());
    assert!(minified(&mixed("[{\"a\":", "]}", DEPTH_MAX / 2)).is_err());
}

/// No prefix of a text that needs its last byte is a whole one, and none panics.
#[test]
fn every_prefix_is_incomplete() {
    let text = r#"{"a\u00e9\"":[1.5e-3,true,false,null,{"b":[]},"\ud83d\ude00"],"c":-0}"#;
    for end in 0..text.len() {
        assert_eq!(minified(&text[..end]), Err(JsonError::Incomplete), "{end}");
    }
    assert!(minified(text).is_ok());
}

#[test]
fn equal_means_as_javascript_sees_it() {
    let prints = Fingerprints::default();
    let print = |text: &str| prints.of(minified(text).unwrap().as_bytes());
    let same = |a: &str, b: &str| assert_eq!(print(a), print(b), "{a} {b}");
    let differ = |a: &str, b: &str| assert_ne!(print(a), print(b), "{a} {b}");
    same("1", "1.0");
    same("1", "10e-1");
    same("0", "-0.0");
    same("1e400", "1E+999");
    same("9007199254740993", "9007199254740992");
    same("0.1", "0.1000000000000000055511151231257827");
    same(r#""é""#, r#""\u00e9""#);
    same(r#""é""#, r#""\u00E9""#);
    same(r#""😀""#, r#""\ud83d\ude00""#);
    same(r#""\/\b\f\n\r\t\"\\""#, r#""\u002f\u0008\u000c\u000a\u000d\u0009\u0022\u005c""#);
    same(r#"{"a":1,"b":2}"#, r#"{ "b":2.0, "a":1 }"#);
    same(r#"{"a":1,"a":2}"#, r#"{"a":2}"#);
    same(r#"{"a":1,"b":0,"\u0061":2}"#, r#"{"a":2,"b":0}"#);
    same(r#"{"a":{"x":[1,{"y":2,"z":3}]}}"#, r#"{"a":{"x":[1,{"z":3,"y":2}]}}"#);
    differ(r#"{"a":2,"a":1}"#, r#"{"a":2}"#);
    differ("1", "\"1\"");
    differ("1", "[1]");
    differ("null", "false");
    differ("true", "false");
    differ("[]", "{}");
    differ("[1,2]", "[2,1]");
    differ("[[1],2]", "[[1,2]]");
    differ("[[],[]]", "[[[]]]");
    differ(r#"{"a":"b"}"#, r#"{"b":"a"}"#);
    differ(r#"["ab","c"]"#, r#"["a","bc"]"#);
    differ(r#""\ud800""#, r#""\ud801""#);
    differ(r#""\ud83d\ude00""#, r#""\ude00\ud83d""#);
    differ(r#""\ud83da\ude00""#, r#""\ud83d\ude00a""#);
    differ("1e400", "-1e400");
    differ("0.1", "0.10000000000000002");
}

#[test]
fn fingerprints_of_other_keys_mean_nothing() {
    assert_ne!(Fingerprints::default().of(b"1"), Fingerprints::default().of(b"1"));
}

proptest::proptest! {
    /// Whatever passes is JSON for serde_json as well (which allows a depth of 127 only), and the other way
    /// round; minifying changes no value.
    #[test]
    fn agrees_with_serde(text in "[\\[\\]{}:,\"0-9eE+.\\-truefalsn \\\\ub\n]{0,24}") {
        let ours = minified(&text);
        let theirs: Result<&serde_json::value::RawValue, _> = serde_json::from_str(&text);
        proptest::prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{}", text);
        if let Ok(ours) = ours {
            proptest::prop_assert!(!ours.contains('\n'));
            // Not all that is JSON is a value for serde_json: it has no infinity, no lonely surrogates.
            if let Ok(value) = serde_json::from_str::<serde_json::Value>(&text) {
                proptest::prop_assert_eq!(value, serde_json::from_str::<serde_json::Value>(&ours).unwrap());
            }
        }
    }

    /// Any bytes at all: no panic, here or in the fingerprint of text that was never checked.
    #[test]
    fn nothing_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..64)) {
        let _ = minify(bytes.clone());
        if bytes.iter().filter(|b| matches!(b, b'[' | b'{')).count() < 100 {
            Fingerprints::default().of(&bytes);
        }
        is_shallow(&bytes);
    }
}
