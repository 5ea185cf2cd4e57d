//! Differences that are found without parsing the documents, and differences that require a comparison of the
//! complete documents.

use super::{Unsure, compare};
use crate::hash::Keys;
use crate::tests::generate::{Json, mutate, value, write};
use crate::{Delta, Differ, Options, Seed};
use fastrand::Rng;

/// Makes a document with a list of 200 elements, long enough not to be parsed (`TRUSTED_BYTES_MIN`).
fn list(of: impl Fn(usize) -> String) -> String {
    let elements: Vec<String> = (0..200).map(of).collect();
    format!("{{\"list\":[{}],\"last\":[1,2]}}", elements.join(","))
}

fn lockstep(old: &str, new: &str) -> Result<String, Unsure> {
    let keys = Keys::new(Seed([1, 2]));
    let (writer, _) = compare(&Options::default(), &keys, old.as_bytes(), new.as_bytes(), usize::MAX)?;
    Ok(String::from_utf8(writer.finish()).unwrap())
}

/// Checks that the operations equal those of a comparison of the parsed documents.
#[track_caller]
fn check(old: &str, new: &str) {
    let differ = Differ::new(Options { patch_percent_max: 100_000, ..Options::default() }, Seed([1, 2]));
    let (before, after) = (differ.parse(old.as_bytes()).unwrap(), differ.parse(new.as_bytes()).unwrap());
    let expect = match differ.diff(&before, &after).delta {
        Delta::Unchanged => b"[]".to_vec(),
        Delta::Patch(patch) => patch,
        Delta::Snapshot => panic!("a snapshot"),
    };
    assert_eq!(lockstep(old, new), Ok(String::from_utf8(expect).unwrap()), "{old}\n{new}");
}

#[test]
fn unmoved_values_are_compared_in_place() {
    let long = "a long text, so that a patch is worth it";
    let object = |inner: &str| format!(r#"{{"a":"{long}","b":[{inner}],"c":{{"d":"{long}"}}}}"#);
    check(&object("1"), &object("1"));
    check(&object("1"), &object("2"));
    check(&object("1"), &object("12"));
    check(&object("12"), &object("1"));
    check(&object("-0,1.0"), &object("0,1e0"));
    check(&object(r#""\u0041""#), &object(r#""A""#));
    check(&object(r#""\\\"]""#), &object(r#""\\\"}""#));
    check(&object(r#""a,b""#), &object(r#""a, b""#));
    check(&object("null"), &object(r#"{"x":[1,2]}"#));
    check(&object(r#"{"x":[1,2]}"#), &object("true"));
    check(&object("[]"), &object("{}"));
    check(&object("[[[1]]]"), &object("[[[2]]]"));
    // Elements that only one text has.
    check(&object("1,2"), &object("1,2,3,[4]"));
    check(&object("1,2,[3],4"), &object("1,2"));
    check(&object(""), &object("1"));
    check(&object("1"), &object(""));
    check(&object("1,2,3"), &object("0,1,2,3"));
    // Replacing the array is shorter.
    check(&object("1,2,3,4"), &object("5,6,7,8"));
    // Members that only one text has.
    check(&object(r#"{"x":1,"y":2}"#), &object(r#"{"x":1,"z":3,"y":2}"#));
    check(&object(r#"{"x":1,"y":2}"#), &object(r#"{"y":2}"#));
    check(&object(r#"{"x":1,"y":2}"#), &object(r#"{"y":3,"x":1}"#));
    // The last of duplicate names counts.
    check(&object(r#"{"x":1,"x":2}"#), &object(r#"{"x":3,"x":2}"#));
    check(&object(r#"{"x":1,"\u0078":2}"#), &object(r#"{"x":3,"\u0078":2}"#));
    check(&object(r#"{"a/~":1}"#), &object(r#"{"a/~":2}"#));
}

#[test]
fn elements_are_matched_by_identity_or_by_their_neighbors() {
    let named = |changed: &'static [usize]| {
        move |i: usize| {
            let score = if changed.contains(&i) { 7 } else { 3 };
            format!(r#"{{"id":"n{i}","name":"a name that takes some bytes {i}","score":[{score},{i}]}}"#)
        }
    };
    check(&list(named(&[])), &list(named(&[3, 4, 5, 100, 199])));
    let nameless = |changed: &'static [usize]| {
        move |i: usize| {
            format!(
                r#"{{"team":"a team that takes some bytes","score":{}}}"#,
                if changed.contains(&i) { 7000 } else { i }
            )
        }
    };
    check(&list(nameless(&[])), &list(nameless(&[3, 50, 100])));
    check(&list(nameless(&[])), &list(nameless(&[3, 4])));
}

/// The rest that follows the last difference isn't JSON, so a comparison that reads it fails.
#[test]
fn the_rest_is_not_read() {
    let check = |changed: &[&str; 2], rest: &str, expect: &str| {
        let [old, new] = changed.map(|changed| format!("{changed}{rest}"));
        assert_eq!(lockstep(&old, &new).as_deref(), Ok(expect), "{old}");
    };
    check(&["[1,[2", "[1,[3"], "],x]}}", r#"[{"op":"replace","path":"/1/0","value":3}]"#);
    check(
        &[r#"{"a":{"b":1"#, r#"{"a":{"b":2"#],
        r#","c":0},d]"#,
        r#"[{"op":"replace","path":"/a/b","value":2}]"#,
    );
    let elements = |changed: usize| {
        let element =
            |i: usize| format!(r#"{{"id":{i},"value":{}}}"#, if i.is_multiple_of(2) { changed } else { 0 });
        format!(r#"{{"list":[{}"#, (0..6).map(element).collect::<Vec<_>>().join(","))
    };
    let operation = |i: usize| format!(r#"{{"op":"replace","path":"/list/{i}/value","value":2}}"#);
    let operations = [0, 2, 4].map(operation).join(",");
    check(&[&elements(1), &elements(2)], "],x", &format!("[{operations}]"));
}

#[test]
fn the_rest_is_read_if_it_may_change_what_a_difference_means() {
    let check = |changed: [&str; 2], rest: &str| {
        let long = "a long text, so that a patch is worth it";
        let [old, new] = changed.map(|changed| format!(r#"{{"a":"{long}","b":{changed}{rest},"c":{{}}}}"#));
        check(&old, &new);
    };
    // The last of duplicate names counts.
    check([r#"{"x":1"#, r#"{"x":2"#], r#","x":3}"#);
    check([r#"{"x":1"#, r#"{"x":2"#], r#","\u0078":3}"#);
    check([r#"{"x":{"y":1}"#, r#"{"x":{"y":2}"#], r#","x":{"y":1}}"#);
    check([r#"{"x":{"y":1}"#, r#"{"x":{"y":2}"#], r#","z":{"x":1}}"#);
    check([r#"{"x":0,"z":{"x":{"y":1}}"#, r#"{"x":5,"z":{"x":{"y":2}}"#], r#","z":4}"#);
    check([r#"{"x":{"z":"long enough","y":1"#, r#"{"x":{"z":"long enough","y":2"#], r#","w":0},"x":{}}"#);
    // Neighbors may have been moved.
    check(["[[1],[2]", "[[3],[4]"], ",[1],[2],[9]]");
    let pair = |one: &str, other: &str| {
        let long = "a longer text, so that a patch of two values is shorter than their object".repeat(2);
        format!(r#"[{{"text":"{long}",{one},"z":0}},{{"text":"{long}",{other}"#)
    };
    let (one, other) = (r#""x":"one","y":1"#, r#""x":"other","y":2"#);
    check([&pair(one, other), &pair(other, one)], r#","z":0}]"#);
    // The value is shorter than its patch, or longer.
    check(["[1,2,3,4", "[5,2,7,8"], "]");
    check(["[1,2,3,4", "[5,2,7,8"], &format!("{}]", ",9".repeat(200)));
}

/// A second change, at the end of the document, makes the comparison read everything, and otherwise only adds an
/// operation.
#[test]
fn skipping_the_rest_changes_no_patch() {
    let (mut patches, mut refused) = (0, 0);
    for seed in 0..600 {
        let mut random = Rng::with_seed(seed);
        let mut old: Vec<_> = (0..4).map(|i| (format!("m{i}"), value(&mut random, 4, false))).collect();
        let numbers = (0..900).map(|i| Json::Scalar(format!("1{i:03}"))).collect();
        old.insert(random.usize(..5), ("numbers".to_owned(), Json::Array(numbers)));
        let mut new = old.clone();
        for _ in 0..random.usize(1..4) {
            mutate(&mut new[random.usize(..5)].1, &mut random, false);
        }
        let mut text = |members: &[(String, Json)], end: &str| {
            let last = [("end".to_owned(), Json::Scalar(end.to_owned()))];
            let mut text = String::new();
            write(&Json::Object([members, &last].concat()), &mut random, false, &mut text);
            text
        };
        let (old, new, changed) = (text(&old, "1"), text(&new, "1"), text(&new, "2"));
        let expect = lockstep(&old, &new).map(|patch| {
            let before = patch.strip_suffix(']').unwrap();
            let comma = if before == "[" { "" } else { "," };
            format!(r#"{before}{comma}{{"op":"replace","path":"/end","value":2}}]"#)
        });
        assert_eq!(lockstep(&old, &changed), expect, "seed {seed}\n{old}\n{new}");
        patches += usize::from(expect.is_ok());
        refused += usize::from(expect.is_err());
    }
    assert!(patches > 400 && refused < 150, "{patches} {refused}");
}

#[test]
fn malformed_text_is_left_to_the_parser() {
    let old = r#"{"a":[1,{"b":"xy"}],"c":null}"#;
    let check = |new: &str, expect| assert_eq!(lockstep(old, new), Err(expect), "{new}");
    for cut in 0..old.len() {
        check(&old[..cut], Unsure::Other);
    }
    for end in ["}", ",", "x", "]"] {
        check(&format!("{old}{end}"), Unsure::Other);
    }
    check(r#"{"a":[1,{"b":"xy"}],"c":nul}"#, Unsure::Other);
    check(r#"{"a":[1,{"b":"x\y"}],"c":null}"#, Unsure::Other);
    check(r#"{"a":[01,{"b":"xy"}],"c":null}"#, Unsure::Other);
    check(r#"{"a":[1,{"b":"xy"}},"c":null}"#, Unsure::Other);
    check(r#"{"a":[1,{"b":"xy"}],"c": null}"#, Unsure::Space);
    check(r#"{"a":[1,{ "b":"xy"}],"c":null}"#, Unsure::Space);
    check(r#"{"a":[1 ,{"b":"xy"}],"c":null}"#, Unsure::Space);
    check(r#"{ "a":[1,{"b":"xy"}],"c":null}"#, Unsure::Space);
    check(r#"{"a": [1,{"b":"xy"}],"c":null}"#, Unsure::Space);
    // Whitespace is found without reading the value after it.
    assert_eq!(lockstep(r#"{"a":[1,x"#, r#"{"a": [1,x"#), Err(Unsure::Space));
    let keys = Keys::new(Seed([1, 2]));
    let broken = compare(&Options::default(), &keys, br#"["ab"]"#, b"[\"a\xff\"]", usize::MAX).map(|_| ());
    assert_eq!(broken, Err(Unsure::Other));
    // The maximum depth of documents, and more.
    let nested = |depth: usize, inner: &str| format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(lockstep(&nested(127, "1"), &nested(127, "[]")).is_ok());
    assert_eq!(lockstep(&nested(127, "1"), &nested(127, "[[]]")), Err(Unsure::Other));
    assert_eq!(lockstep(&nested(128, "1"), &nested(128, "[]")), Err(Unsure::Other));
}

/// A change is found at every offset within a block of text.
#[test]
fn changes_are_found_at_every_offset() {
    for padding in 0..130 {
        let text = |x: &str| {
            let fill = "p".repeat(padding);
            format!(r#"{{"{fill}\\":"\"{{[,{fill}\\\\","b":["x{fill}y",{{"c":{x},"d":"{fill}"}}],"e":{x}}}"#)
        };
        for (old, new) in [("1", "2"), ("1", "10"), (r#""\\""#, r#""\"""#), ("[1,2]", "[1,2,3]")] {
            // An escape in one of the root's names leaves changes of the root to the parser.
            assert_eq!(lockstep(&text(old), &text(new)), Err(Unsure::Other));
            let text = |x| text(x).replace(r#"\\":"#, r#"":"#);
            check(&text(old), &text(new));
        }
    }
}
