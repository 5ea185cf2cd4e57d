use proptest::prelude::*;
use serde::de::IgnoredAny;
use std::borrow::Cow;

use super::*;

fn nested(open: &str, close: &str, levels: usize) -> String {
    format!("{}{}", open.repeat(levels), close.repeat(levels))
}

/// Texts that JSON.parse and serde_json accept.
#[test]
fn valid_texts_are_accepted() {
    let scalars = ["null", "true", "false", "0", "-0", "-1.5e+3", "1E9", "1e999", "0.0", "\"\""];
    let longer = [
        r#""\"\\\/\b\f\n\r\t\u00e9\uD83D\ude00\ud800""#,
        "\"\u{7f}\u{2028}😀 eight and more bytes\"",
        "[]",
        "{}",
        " [ ] ",
        r#"[[[]],{"a":{}}]"#,
        "\n{\t\"a\" : [1 , 2,{ }]\r, \"a\":null } ",
        r#"{"a\u00e9\"":[1.5e-3,true,false,null,{"b":[]},"\ud83d\ude00"],"c":-0}"#,
    ];
    for text in scalars.into_iter().chain(longer) {
        assert_eq!(check(text), Ok(()), "{text}");
        serde_json::from_str::<IgnoredAny>(text).unwrap();
    }
}

/// Texts that JSON.parse and serde_json refuse, and the positions of their errors.
#[test]
fn invalid_texts_are_refused_with_their_position() {
    fn check_error(text: &str, expect: Error) {
        assert_eq!(check(text), Err(expect), "{text:?}");
        assert_eq!(minify(text.as_bytes().to_vec()), Err(expect), "{text:?}");
        assert!(serde_json::from_str::<IgnoredAny>(text).is_err(), "{text:?}");
    }
    use Error::{Incomplete, Unexpected};
    for (expect, texts) in [
        (Incomplete, &["", " ", "  ", "nul", "tru", "-", "1.", "1e", "1e+"][..]),
        (Incomplete, &["\"", "\"a", "\"a\\", "\"\\\"", "\"\\u12", "[", "[1", "[1,", "{", "{\"a\""]),
        (Incomplete, &["{\"a\":", "{\"a\":1", "{\"a\":1,"]),
        (Unexpected(0), &["+1", ".5", "TRUE", "NaN", "'a'", "]", "}", "/**/1", "<html>", "\u{a0}1"]),
        (Unexpected(1), &["01", "-x", "--1", "0x1", "[,1]", "{a:1}", "{1:1}", "{,}", "\"\n\""]),
        (Unexpected(2), &["1.e3", "1 2", "[1}", "[]]", "{}x", "\"a\nb\"", "\"\\x\""]),
        (Unexpected(3), &["nul}", "[1,]", "[1 2]", "{} {}"]),
        (Unexpected(4), &["nulll", "{\"a\"}"]),
        (Unexpected(5), &["{\"a\" 1}", "\"\\u12g4\""]),
        (Unexpected(6), &["{\"a\":1]"]),
        (Unexpected(7), &["{\"a\":1,}"]),
        (Unexpected(13), &["\"twelve bytes\u{1}\""]),
    ] {
        for text in texts {
            check_error(text, expect);
        }
    }
    // Only `check` and serde_json refuse a byte order mark.
    assert_eq!(check("\u{feff}1"), Err(Unexpected(0)));
    compare("\u{feff}1");
    assert_eq!(minify(b"\"\xff\"".to_vec()), Err(Error::Utf8(1)));
    // No proper prefix of a text that needs its last byte is valid.
    let text = r#"{"a\u00e9\"":[1.5e-3,true,false,null,{"b":[]},"\ud83d\ude00"],"c":-0}"#;
    for end in 0..text.len() {
        check_error(&text[..end], Incomplete);
    }
}

#[test]
fn minify_removes_whitespace_and_keeps_spelling() {
    fn check(text: &str, expect: &str) {
        let minified =
            |text: &str| minify(text.as_bytes().to_vec()).map(|out| String::from_utf8(out).unwrap());
        assert_eq!(minified(text).as_deref(), Ok(expect), "{text:?}");
        assert_eq!(minified(expect).as_deref(), Ok(expect), "twice: {text:?}");
        let mut out = b"before".to_vec();
        minify_to(&mut out, without_byte_order_mark(text.as_bytes()));
        assert_eq!(String::from_utf8(out).unwrap(), format!("before{expect}"));
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
fn depths() {
    fn check(json: &str, expect: usize) {
        assert_eq!(depth(json.as_bytes()), expect, "{json}");
    }
    check("1", 0);
    check("[]", 1);
    check(r#"{"a":[{"b":1}],"c":{}}"#, 3);
    check(r#""[[[""#, 0);
    check(r#"["\"[[[", "\\", [1]]"#, 2);
    check(&"[".repeat(100_000), 100_000);
}

/// Checks the sequence of calls that a visitor receives.
#[test]
fn visitors_see_every_part() {
    struct Log(String);
    impl Visitor for Log {
        type Error = Error;

        fn value(&mut self, at: usize) -> Result<(), Error> {
            self.0 += &format!("{at}:");
            Ok(())
        }
        fn scalar(&mut self, scalar: Scalar, start: usize, end: usize) {
            self.0 += &format!("{scalar:?}={start}-{end} ");
        }
        fn open(&mut self, is_object: bool) {
            self.0 += if is_object { "{ " } else { "[ " };
        }
        fn close(&mut self, end: usize) {
            self.0 += &format!(".{end} ");
        }
        fn name(&mut self, start: usize, end: usize, is_escaped: bool) {
            self.0 += &format!("({start}-{end} {is_escaped}) ");
        }
        fn space(&mut self, bytes: usize) {
            self.0 += &format!("_{bytes} ");
        }
    }
    let mut log = Log(String::new());
    let end = scan(br#" {"a\n": [1,null],"b":{ }}, "#, 0, 2, &mut log);
    assert_eq!(end, Ok(26));
    assert_eq!(
        log.0,
        "_1 1:{ (2-7 true) _1 9:[ 10:Number=10-11 12:Null=12-16 .17 (18-21 false) 22:{ _1 .25 .26 "
    );
}

/// Every ASCII character, at every position of strings of different lengths, because strings are read and written eight or
/// 16 bytes at a time.
#[test]
fn strings_are_read_and_written_as_by_serde() {
    for len in (0..20).chain([31, 34]) {
        for at in 0..=len {
            for put in (0..0x80).map(char::from).chain(['é', '😀']) {
                let value = format!("{}{put}{}", "a".repeat(at), "b".repeat(len - at));
                let text = format!("\"{value}\"");
                compare(&text);
                compare(&format!("{text},"));
                let mut written = Vec::new();
                write_string(&mut written, &value);
                assert_eq!(String::from_utf8(written).unwrap(), serde_json::to_string(&value).unwrap());
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
        let most = DEPTH_MAX / per_level;
        assert_eq!(check(&text(most)), Ok(()));
        let too_deep = Err(Error::TooDeep(most * open.len()));
        assert_eq!(check(&text(most + 1)), too_deep);
        assert_eq!(check(&text(1_000_000)), too_deep);
        for text in [most, most + 1].map(text).iter().filter(|text| text.starts_with('[')) {
            assert_eq!(check_list(&text[1..text.len() - 1]).is_ok(), check(text).is_ok());
        }
    }
    // The depths of siblings don't add up.
    assert_eq!(check(&format!("[{}[]]", "[[]],".repeat(1000))), Ok(()));
    let siblings = format!("[{},{}]", nested("[", "]", 127), nested("[", "]", 128));
    assert_eq!(check(&siblings), Err(Error::TooDeep(2 * 127 + 2 + 127)));
    // Alternating objects and arrays keep their kinds, at every possible level.
    for levels in [1, 63, 64, 65, 127, 128, 129, LEVELS_MAX - 1, LEVELS_MAX] {
        for first in [0, 1] {
            let is_object = |level: usize| (level + first).is_multiple_of(2);
            let opens: String =
                (0..levels).map(|level| if is_object(level) { "{\"a\":" } else { "[" }).collect();
            let closes: Vec<_> =
                (0..levels).rev().map(|level| if is_object(level) { b'}' } else { b']' }).collect();
            let text = [opens.as_bytes(), b"1", &closes].concat();
            assert_eq!(scan(&text, 0, levels, &mut crate::scan::Check), Ok(text.len()));
            assert!(matches!(scan(&text, 0, levels - 1, &mut crate::scan::Check), Err(Error::TooDeep(_))));
            // Each closing bracket is wrong once.
            for level in 0..levels {
                let mut wrong = text.clone();
                let at = opens.len() + 1 + level;
                wrong[at] ^= b'}' ^ b']';
                assert_eq!(scan(&wrong, 0, levels, &mut crate::scan::Check), Err(Error::Unexpected(at)));
            }
        }
    }
}

#[test]
fn value_end_finds_the_end_of_a_value() {
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
    assert_eq!(value_end("1", 1), Err(Error::Incomplete));
    assert_eq!(value_end("1", 9), Err(Error::Incomplete));
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
        assert!(!string_is(&format!("{raw}x"), text));
        // With surroundings of every length, because eight bytes are read at once.
        for (before, after) in (0..10).flat_map(|before| (0..10).map(move |after| (before, after))) {
            let around = |text: &str| format!("{}{text}{}", "a".repeat(before), "b".repeat(after));
            assert_eq!(unescape(&around(raw)), around(text), "{raw}");
        }
    }
    assert!(matches!(unescape("plain"), Cow::Borrowed(_)));
    assert_eq!(string("1"), None);
    assert_eq!(string("\""), None);
    // Unchecked text causes no panic.
    for raw in ["\\", "\\u", "\\u12", "\\u12€", "\\ud83d\\u", "\\ud83d\\u12"] {
        unescape(raw);
        string_is(raw, "text");
        unescape_to_wtf8(&mut Vec::new(), raw.as_bytes());
        replace_lone_surrogates(&mut raw.as_bytes().to_vec());
    }
}

#[test]
fn lone_surrogates_are_replaced() {
    for (text, expect) in [
        (r#"["a\n","é"]"#, r#"["a\n","é"]"#),
        (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
        (r#""\ud83d""#, r#""\ufffd""#),
        (r#""\uDE00\ud83d""#, r#""\ufffd\ufffd""#),
        (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
        (r#""\\ud83d\n\ud83dx""#, r#""\\ud83d\n\ufffdx""#),
    ] {
        let mut bytes = text.as_bytes().to_vec();
        replace_lone_surrogates(&mut bytes);
        assert_eq!(String::from_utf8(bytes).unwrap(), expect, "{text}");
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
    write_escaped(&mut out, "\u{2027}\u{2028}\u{2029}\u{202a}", Escaping::Script);
    assert_eq!(str::from_utf8(&out).unwrap(), "\"\u{2027}\\u2028\\u2029\u{202a}\"");
}

/// WTF-8 keeps unpaired surrogates.
#[test]
fn wtf8_keeps_surrogates() {
    for (raw, decoded, written) in [
        ("é😀", "é😀".as_bytes(), "é😀"),
        (r#"\"\\\/\b\f\n\r\t"#, b"\"\\/\x08\x0c\n\r\t", r#"\"\\/\b\f\n\r\t"#),
        (r"\u0041\u00e9\u20AC", "Aé€".as_bytes(), "Aé€"),
        (r"\ud83d\ude00", "😀".as_bytes(), "😀"),
        (r"\ud83d", b"\xed\xa0\xbd", r"\ud83d"),
        (r"\ude00\ud83d", b"\xed\xb8\x80\xed\xa0\xbd", r"\ude00\ud83d"),
        (r"\ud83d\ud83d\ude00", b"\xed\xa0\xbd\xf0\x9f\x98\x80", r"\ud83d😀"),
        (r"\ud83dx\ude00", b"\xed\xa0\xbdx\xed\xb8\x80", r"\ud83dx\ude00"),
        ("\u{d7ff}", "\u{d7ff}".as_bytes(), "\u{d7ff}"),
    ] {
        let (mut means, mut out) = (Vec::new(), Vec::new());
        unescape_to_wtf8(&mut means, raw.as_bytes());
        assert_eq!(means, decoded, "{raw}");
        write_wtf8(&mut out, &means);
        assert_eq!(str::from_utf8(&out).unwrap(), written);
    }
}

/// Generates JSON and almost valid JSON.
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

/// Generates any value, with some whitespace.
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

/// Returns the maximum depth of brackets. Only for JSON without brackets in strings.
fn brackets(text: &str) -> usize {
    let (mut now, mut most) = (0usize, 0);
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

/// Compares our scanner with serde_json's, and [`check_list`] with our scanner.
fn compare(text: &str) {
    assert_eq!(check(text).is_ok(), serde_json::from_str::<IgnoredAny>(text).is_ok(), "{text:?}");
    compare_list(text, &format!("[{text}]"));
    if let Some(list) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        compare_list(list, text);
    }
}

/// `array` is `list` in brackets.
fn compare_list(list: &str, array: &str) {
    let is_empty = trim_start(list).is_empty();
    let checked = check_list(list);
    assert_eq!(checked.is_ok(), check(array).is_ok() && !is_empty, "{list:?}");
    if let Ok((first_end, is_first_escaped)) = checked {
        let first = elements(list).next().unwrap_or_default();
        assert!(list[..first_end].ends_with(first), "{list:?}");
        assert_eq!(is_first_escaped, first.starts_with('"') && first.contains('\\'), "{list:?}");
    }
}

#[test]
fn arrays_end_with_their_bracket() {
    for end in ["", "]", "}", ",]", ",}", " ]", " , ]", ":1]", "]]", "\"]"] {
        for inside in ["", " ", "1", "\"a\"", "\"a\",\"b\"", "[]", "{\"a\":[1]}", "\"\\n\",1"] {
            compare(&format!("[{inside}{end}"));
        }
    }
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
        // Variants with one character changed, removed or inserted, and truncated texts.
        let chars: Vec<char> = text.chars().collect();
        let at = at.index(chars.len());
        let (before, after) = (chars[..at].iter().collect::<String>(), chars[at + 1..].iter().collect::<String>());
        compare(&format!("{before}{put}{after}"));
        compare(&format!("{before}{after}"));
        compare(&format!("{before}{put}{}{after}", chars[at]));
        compare(&before);
    }

    #[test]
    fn plain_text_is_written_unchanged(text in "[\u{0}-\u{80}é]{0,3}") {
        let mut written = Vec::new();
        write_string(&mut written, &text);
        prop_assert_eq!(is_plain(&text), written == format!("\"{text}\"").into_bytes());
    }

    /// Text without its whitespace is JSON exactly if the text is.
    #[test]
    fn text_without_space_is_minified(text in json(), at in any::<prop::sample::Index>(), put in "[ \n\t\"\\\\{}\\[\\],:1ax]{0,3}") {
        let at = text.floor_char_boundary(at.index(text.len() + 1));
        for text in [text.clone(), format!("{}{put}{}", &text[..at], &text[at..])] {
            let without = without_space(text.as_bytes());
            match minify(text.clone().into_bytes()) {
                Ok(minified) => prop_assert_eq!(without, Some(minified)),
                Err(_) => {
                    let without = without.map(|text| String::from_utf8(text).unwrap());
                    prop_assert!(without.is_none_or(|without| check(&without).is_err()), "{}", text);
                }
            }
        }
    }

    #[test]
    fn depth_is_counted(shape in prop::collection::vec(prop::sample::select(vec!["[", "{\"a\":"]), 100..160)) {
        let close: String = shape.iter().rev().map(|open| if *open == "[" { "]" } else { "}" }).collect();
        let text = format!("{}1{close}", shape.concat());
        prop_assert_eq!(depth(text.as_bytes()), brackets(&text));
        match check(&text) {
            Ok(()) => prop_assert!(depth(text.as_bytes()) <= DEPTH_MAX),
            Err(error) => prop_assert!(depth(text.as_bytes()) > DEPTH_MAX && matches!(error, Error::TooDeep(_))),
        }
    }

    #[test]
    fn parts_equal_serdes(text in json()) {
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
    fn strings_equal_serdes(text in any::<String>()) {
        let mut out = Vec::new();
        write_string(&mut out, &text);
        let written = String::from_utf8(out).unwrap();
        prop_assert_eq!(&written, &serde_json::to_string(&text).unwrap());
        prop_assert_eq!(string(&written).unwrap(), text.as_str());
        let mut out = Vec::new();
        write_escaped(&mut out, &text, Escaping::Script);
        prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        // Every character is escaped.
        let escaped: String = written.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        prop_assert_eq!(unescape(&escaped), written.as_str());
        prop_assert!(string_is(&escaped, &written));
        let quoted = format!("\"{escaped}\"");
        let (raw, rest) = RawString::read(&quoted).unwrap();
        prop_assert_eq!(rest, "");
        let middle = written.floor_char_boundary(written.len() / 2);
        prop_assert!(raw.starts_with(&written[..middle]));
        let other = format!("{}!", &written[1..]);
        prop_assert!(!raw.starts_with(&other));
    }
}
