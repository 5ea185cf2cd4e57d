//! Differences that are found without parsing the documents, and differences that require a comparison of the
//! complete documents.

use super::{Unsure, compare};
use crate::hash::Keys;
use crate::{Delta, Differ, Options, Seed};

/// Makes a document with a list of 200 elements, long enough not to be parsed (`TRUSTED_BYTES_MIN`).
fn list(of: impl Fn(usize) -> String) -> String {
    let elements: Vec<String> = (0..200).map(of).collect();
    format!("{{\"list\":[{}],\"last\":[1,2]}}", elements.join(","))
}

fn lockstep(old: &str, new: &str) -> Result<String, Unsure> {
    let keys = Keys::new(Seed([1, 2]));
    let (writer, _) = compare(&Options::default(), &keys, old.as_bytes(), new.as_bytes())?;
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
    let keys = Keys::new(Seed([1, 2]));
    let broken = compare(&Options::default(), &keys, br#"["ab"]"#, b"[\"a\xff\"]").map(|_| ());
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
