use super::*;

fn applied(document: &str, patch: &str) -> Result<String, ApplyError> {
    let limits = ApplyLimits { bytes_max: 1000, ..ApplyLimits::default() };
    apply(document.as_bytes(), patch.as_bytes(), limits).map(|text| String::from_utf8(text).unwrap())
}

#[test]
fn operations_follow_the_rfc() {
    let check = |document: &str, operation: &str, expect: Result<&str, ApplyError>| {
        assert_eq!(applied(document, &format!("[{operation}]")), expect.map(String::from), "{operation}");
    };
    let missing = Err(ApplyError::Missing(0));
    let malformed = Err(ApplyError::Malformed(0));
    // Examples of RFC 6902, appendix A, and edge cases.
    check(r#"{"b":2}"#, r#"{"op":"add","path":"/a","value":1}"#, Ok(r#"{"a":1,"b":2}"#));
    check(r#"{"a":2}"#, r#"{"op":"add","path":"/a","value":1}"#, Ok(r#"{"a":1}"#));
    check("[1,3]", r#"{"op":"add","path":"/1","value":2}"#, Ok("[1,2,3]"));
    check("[1]", r#"{"op":"add","path":"/1","value":2}"#, Ok("[1,2]"));
    check("[1]", r#"{"op":"add","path":"/-","value":2}"#, Ok("[1,2]"));
    check("[1]", r#"{"op":"add","path":"/2","value":2}"#, missing);
    check("[1]", r#"{"op":"add","path":"/01","value":2}"#, missing);
    check("[1]", r#"{"op":"add","path":"","value":2}"#, Ok("2"));
    check("[1]", r#"{"op":"add","path":"0","value":2}"#, malformed);
    check("[1]", r#"{"op":"add","path":"/~2","value":2}"#, malformed);
    check("[1]", r#"{"op":"add","path":"/0"}"#, malformed);
    check("[1]", r#"{"op":"find","path":"/0"}"#, malformed);
    check("[1]", r#"{"path":"/0"}"#, malformed);
    check("[1]", "7", malformed);
    check("[1,2]", r#"{"op":"remove","path":"/0"}"#, Ok("[2]"));
    check("[1,2]", r#"{"op":"remove","path":"/2"}"#, missing);
    check("[1,2]", r#"{"op":"remove","path":"/-"}"#, missing);
    check("{}", r#"{"op":"remove","path":"/a"}"#, missing);
    check(r#"{"a":{"":[0]}}"#, r#"{"op":"replace","path":"/a//0","value":-0.0}"#, Ok(r#"{"a":{"":[-0.0]}}"#));
    check("{}", r#"{"op":"replace","path":"/a","value":1}"#, missing);
    check(r#"{"a/b":1,"m~n":2}"#, r#"{"op":"move","from":"/a~1b","path":"/m~0n"}"#, Ok(r#"{"m~n":1}"#));
    check("[1,2,3]", r#"{"op":"move","from":"/2","path":"/0"}"#, Ok("[3,1,2]"));
    check(r#"{"a":{}}"#, r#"{"op":"move","from":"/a","path":"/a/b"}"#, malformed);
    check(r#"{"a":[1]}"#, r#"{"op":"copy","from":"/a","path":"/b"}"#, Ok(r#"{"a":[1],"b":[1]}"#));
    check(r#"{"a":1e1}"#, r#"{"op":"test","path":"/a","value":10}"#, Ok(r#"{"a":1e1}"#));
    check(r#"{"a":"1"}"#, r#"{"op":"test","path":"/a","value":1}"#, Err(ApplyError::Different(0)));
    check(r#"{"\ud83d":1}"#, r#"{"op":"add","path":"/\uD83D","value":2}"#, Ok(r#"{"\ud83d":2}"#));
}

#[test]
fn a_patch_cannot_blow_up_a_document() {
    let copy = r#"{"op":"copy","from":"/0","path":"/0/0"}"#;
    let patch = format!("[{}]", [copy; 40].join(","));
    assert!(matches!(applied("[[1]]", &patch), Err(ApplyError::TooLarge(_))));
    let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    let patch = format!(r#"[{{"op":"add","path":"/0/0","value":{}}}]"#, deep(DEPTH_MAX - 1));
    assert_eq!(applied("[[]]", &patch), Err(ApplyError::TooLarge(0)));
    assert!(matches!(applied(&deep(DEPTH_MAX + 1), "[]"), Err(ApplyError::Document(_))));
    assert!(matches!(applied("1", "{}"), Err(ApplyError::Malformed(0))));
    assert!(matches!(applied("1", "["), Err(ApplyError::Patch(_))));
}
