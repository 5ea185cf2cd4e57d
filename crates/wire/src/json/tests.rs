use proptest::prelude::*;
use serde::de::IgnoredAny;

use super::*;

fn nested(open: &str, close: &str, levels: usize) -> String {
    format!("{}{}", open.repeat(levels), close.repeat(levels))
}

/// The text is what JSON.parse and serde_json take for it.
#[test]
fn check_table() {
    let good = [
        "null",
        "true",
        "false",
        "0",
        "-0",
        "-1.5e+3",
        "1E9",
        "1e999",
        "0.0",
        "\"\"",
        "[]",
        "{}",
        " [ ] ",
        "\n{\t\"a\" : [1 , 2,{ }]\r, \"a\":null } ",
        r#""\"\\\/\b\f\n\r\t\u00e9\uD83D\ude00\ud800""#,
        "\"\u{7f}\u{2028}😀 eight and more bytes\"",
        r#"[[[]],{"a":{}}]"#,
    ];
    for text in good {
        assert_eq!(check(text), Ok(()), "{text}");
        serde_json::from_str::<IgnoredAny>(text).unwrap();
    }
    let bad = [
        "",
        " ",
        "nul",
        "nulll",
        "TRUE",
        "01",
        "-",
        "+1",
        ".5",
        "1.",
        "1e",
        "1e+",
        "--1",
        "0x1",
        "\"",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\u12",
        "\"\n\"",
        "\"twelve bytes\u{1}\"",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1}",
        "{",
        "}",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{a:1}",
        "{1:1}",
        "{\"a\":1]",
        "{,}",
        "1 2",
        "[]]",
        "{}x",
        "\u{feff}1",
        "\u{a0}1",
        "'a'",
        "NaN",
        "/**/1",
    ];
    for text in bad {
        assert_eq!(check(text), Err(Error::Syntax), "{text}");
        assert!(serde_json::from_str::<IgnoredAny>(text).is_err(), "{text}");
    }
}

/// Every ASCII character, at every place of strings of different lengths: strings are read by eight bytes.
#[test]
fn strings_end_where_serde_ends_them() {
    for len in 0..20 {
        for at in 0..=len {
            for put in (0..0x80).map(char::from).chain(['é', '😀']) {
                let text = format!("\"{}{put}{}\"", "a".repeat(at), "b".repeat(len - at));
                compare(&text);
                compare(&format!("{text},"));
            }
        }
    }
}

#[test]
fn depth_is_bounded() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")] {
        let per_level = open.matches(['[', '{']).count();
        let inner = if open.ends_with(':') { "1" } else { "" };
        let text = |levels: usize| format!("{}{inner}{}", open.repeat(levels), close.repeat(levels));
        let most = DEPTH_MAX as usize / per_level;
        assert_eq!(check(&text(most)), Ok(()));
        assert_eq!(check(&text(most + 1)), Err(Error::TooDeep));
        assert_eq!(check(&text(1_000_000)), Err(Error::TooDeep));
    }
    // Siblings don't add up.
    assert_eq!(check(&format!("[{}[]]", "[[]],".repeat(1000))), Ok(()));
    assert_eq!(check(&format!("[{},{}]", nested("[", "]", 127), nested("[", "]", 128))), Err(Error::TooDeep));
}

#[test]
fn values_end_where_they_end() {
    for (text, start, end) in [
        ("1,2", 0, 1),
        ("1,2", 2, 3),
        (" [1],2", 0, 4),
        ("{\"a\":1}}", 0, 7),
        ("\"a\"b", 0, 3),
        ("12a", 0, 2),
        ("-0.5e-1]", 0, 7),
        ("truefalse", 4, 9),
    ] {
        assert_eq!(value_end(text, start), Ok(end), "{text}");
    }
    assert_eq!(value_end("1", 1), Err(Error::Syntax));
    assert_eq!(value_end("1", 9), Err(Error::Syntax));
}

#[test]
fn lists_and_objects_are_cut() {
    let cut = |list| elements(list).collect::<Vec<_>>();
    assert_eq!(cut(""), [""; 0]);
    assert_eq!(cut("  "), [""; 0]);
    assert_eq!(cut("1"), ["1"]);
    assert_eq!(cut(r#" 1 ,"a,]" , [2,{"b":[3]}],{} "#), ["1", r#""a,]""#, r#"[2,{"b":[3]}]"#, "{}"]);
    let object = r#" { "a" : 1 ,"\u0061":[2], "b,}":{"a":9} } "#;
    let parts: Vec<_> = members(object).collect();
    assert_eq!(parts, [("a", "1"), ("\\u0061", "[2]"), ("b,}", r#"{"a":9}"#)]);
    assert_eq!(member(object, "a"), Some("[2]"));
    assert_eq!(member(object, "b,}"), Some(r#"{"a":9}"#));
    assert_eq!(member(object, "c"), None);
    assert_eq!(string_member(r#"{"a":"\n","b":1}"#, "a").as_deref(), Some("\n"));
    assert_eq!(string_member(r#"{"a":"\n","b":1}"#, "b"), None);
    for none in ["{}", " { } ", "[]", "1", "\"a\"", ""] {
        assert_eq!(members(none).next(), None, "{none}");
    }
}

#[test]
fn strings_are_read() {
    for (raw, text) in [
        ("", ""),
        ("plain é😀", "plain é😀"),
        (r#"\"\\\/\b\f\n\r\t"#, "\"\\/\u{8}\u{c}\n\r\t"),
        (r"\u00e9\u20AC\ud83d\ude00!", "é€😀!"),
        (r"\ud83d", "\u{fffd}"),
        (r"\ude00\ud83d", "\u{fffd}\u{fffd}"),
        (r"\ud83dx", "\u{fffd}x"),
        (r"\ud83d\n", "\u{fffd}\n"),
        (r"\ud83d\ud83d\ude00", "\u{fffd}😀"),
    ] {
        assert_eq!(unescape(raw), text, "{raw}");
        assert!(string_is(raw, text));
        assert!(!string_is(raw, &format!("{text}x")));
    }
    assert!(matches!(unescape("plain"), Cow::Borrowed(_)));
    assert_eq!(string("1"), None);
    assert_eq!(string("\""), None);
    // Not checked before: no panic.
    for raw in ["\\", "\\u", "\\u12", "\\u12€", "\\ud83d\\u", "\\ud83d\\u12"] {
        unescape(raw);
    }
}

#[test]
fn strings_are_written() {
    for (text, written) in [
        ("", r#""""#),
        ("a\"b\\c/é", r#""a\"b\\c/é""#),
        ("\u{8}\u{c}\n\r\t\0\u{1f}\u{7f}", "\"\\b\\f\\n\\r\\t\\u0000\\u001f\u{7f}\""),
        ("\u{2027}\u{2028}\u{2029}", "\"\u{2027}\u{2028}\u{2029}\""),
    ] {
        let mut out = Vec::new();
        write_string(&mut out, text);
        assert_eq!(str::from_utf8(&out).unwrap(), written);
    }
    let mut out = Vec::new();
    write_script_string(&mut out, "\u{2027}\u{2028}\u{2029}\u{202a}");
    assert_eq!(str::from_utf8(&out).unwrap(), "\"\u{2027}\\u2028\\u2029\u{202a}\"");
}

/// Text that is JSON or nearly so.
fn nearly_json() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        8 => prop::sample::select(vec![
            "[", "]", "{", "}", ",", ":", "\"", "\\", "\\u", "\\ud83d", "0", "1", "9", "-", "+", ".", "e", "E", "true",
            "false", "null", " ", "\n", "\"a\"", "\"a\":", "\"long enough for a word\"", "é", "😀", "\u{1}",
        ]).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(token, 0..24).prop_map(|tokens| tokens.concat())
}

/// Any value, written with some white space.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        any::<i64>().prop_map(|value| value.to_string()),
        any::<f64>()
            .prop_filter("JSON has none", |value| value.is_finite())
            .prop_map(|value| format!("{value:e}")),
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    leaf.prop_recursive(6, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(|list| format!("[ {}]", list.join(" , "))),
            prop::collection::vec((any::<String>(), inner), 0..6).prop_map(|members| {
                let members: Vec<_> = members
                    .iter()
                    .map(|(name, value)| format!("{}\t:\n{value}", serde_json::to_string(name).unwrap()))
                    .collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

fn depth(text: &str) -> u32 {
    // Only for text that is known to be JSON with no brackets in strings.
    let (mut now, mut most) = (0u32, 0);
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => now += 1,
            b']' | b'}' => now -= 1,
            _ => {}
        }
        most = most.max(now);
    }
    most
}

/// Ours and serde_json's say the same.
fn compare(text: &str) {
    assert_eq!(check(text).is_ok(), serde_json::from_str::<IgnoredAny>(text).is_ok(), "{text:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn nearly_json_is_judged_as_by_serde(text in nearly_json()) {
        compare(&text);
    }

    #[test]
    fn json_is_judged_as_by_serde(text in json(), at in any::<prop::sample::Index>(), put in any::<char>()) {
        prop_assert_eq!(check(&text), Ok(()));
        prop_assert_eq!(value_end(&format!("{text} ,"), 0), Ok(text.len()));
        // One character changed, taken out, put in, and the text cut off.
        let chars: Vec<char> = text.chars().collect();
        let at = at.index(chars.len());
        let (before, after) = (chars[..at].iter().collect::<String>(), chars[at + 1..].iter().collect::<String>());
        compare(&format!("{before}{put}{after}"));
        compare(&format!("{before}{after}"));
        compare(&format!("{before}{put}{}{after}", chars[at]));
        compare(&before);
    }

    #[test]
    fn depth_is_counted(shape in prop::collection::vec(prop::sample::select(vec!["[", "{\"a\":"]), 100..160)) {
        let close: String = shape.iter().rev().map(|open| if *open == "[" { "]" } else { "}" }).collect();
        let text = format!("{}1{close}", shape.concat());
        let expect = if depth(&text) > DEPTH_MAX { Err(Error::TooDeep) } else { Ok(()) };
        prop_assert_eq!(check(&text), expect);
    }

    #[test]
    fn parts_are_serdes(text in json()) {
        if let Ok(values) = serde_json::from_str::<Vec<&serde_json::value::RawValue>>(&text) {
            let inside = text.trim().strip_prefix('[').unwrap().strip_suffix(']').unwrap();
            let expect: Vec<_> = values.iter().map(|value| value.get()).collect();
            prop_assert_eq!(elements(inside).collect::<Vec<_>>(), expect);
        }
        if let Ok(object) = serde_json::from_str::<std::collections::BTreeMap<String, &serde_json::value::RawValue>>(&text) {
            for (name, value) in &object {
                prop_assert_eq!(member(&text, name), Some(value.get()));
            }
        }
    }

    #[test]
    fn strings_are_serdes(text in any::<String>()) {
        let mut out = Vec::new();
        write_string(&mut out, &text);
        let written = String::from_utf8(out).unwrap();
        prop_assert_eq!(&written, &serde_json::to_string(&text).unwrap());
        prop_assert_eq!(string(&written).unwrap(), text.as_str());
        let mut out = Vec::new();
        write_script_string(&mut out, &text);
        prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        // All escaped.
        let escaped: String = written.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        prop_assert_eq!(unescape(&escaped), written);
    }
}
