//! Ignored places: a document that differs only in ignored places counts as unchanged.

use crate::generate;
use crate::random::equal;
use fastrand::Rng;
use serde_json::{Map, Value};
use stentor_delta::{Delta, Differ, Ignored, Options, Seed};

fn pointers(texts: &[&str]) -> Vec<String> {
    texts.iter().copied().map(String::from).collect()
}

fn ignoring(texts: &[&str]) -> Differ {
    let ignored = Ignored::parse(&pointers(texts)).unwrap_or_else(|error| panic!("{error}: {texts:?}"));
    Differ::new(Options { ignored, patch_percent_max: 100_000, ..Options::default() }, Seed([3, 4]))
}

/// Returns `true` if the document has changed. Checks that an update and a comparison of parsed documents
/// agree.
fn has_changed(differ: &Differ, old: &str, new: &str) -> bool {
    let (before, after) = (differ.parse(old.as_bytes()).unwrap(), differ.parse(new.as_bytes()).unwrap());
    let update = differ.update(Some(before.minified()), new.as_bytes()).unwrap().diff.delta;
    let delta = differ.diff(&before, &after).delta;
    let changed = delta != Delta::Unchanged;
    assert_eq!(update != Delta::Unchanged, changed, "old {old}\nnew {new}\n{update:?}\n{delta:?}");
    changed
}

#[test]
fn only_changes_elsewhere_count() {
    const SAME: bool = false;
    const CHANGED: bool = true;
    let check = |texts: &[&str], old: &str, new: &str, expect: bool| {
        assert_eq!(has_changed(&ignoring(texts), old, new), expect, "{texts:?} {old} {new}");
        assert_eq!(has_changed(&ignoring(texts), new, old), expect, "{texts:?} {new} {old}");
    };
    let at = &["/at"];
    check(at, r#"{"at":1,"a":1}"#, r#"{"at":2,"a":1}"#, SAME);
    check(at, r#"{"at":1,"a":1}"#, r#"{"a":1, "at":{"b":[]}}"#, SAME);
    check(at, r#"{"at":1,"a":1}"#, r#"{"a":1}"#, SAME);
    check(at, r#"{"at":1,"a":1}"#, r#"{"at":2,"a":2}"#, CHANGED);
    check(at, r#"{"at":1,"a":1}"#, r#"{"at":1,"a":1,"b":1}"#, CHANGED);
    check(at, r#"{"at":1,"a":{"at":1}}"#, r#"{"at":2,"a":{"at":2}}"#, CHANGED);
    check(at, r#"{"at":1}"#, "[]", CHANGED);
    check(at, r#"{"at":1}"#, "{}", SAME);
    check(at, r#"{"at":1,"at":2}"#, r#"{"at":3}"#, SAME);
    check(at, r#"{"\u0061t":1}"#, r#"{"at":2}"#, SAME);
    // A member that takes another member's value is moved.
    check(&["/a", "/b"], r#"{"a":[1,2,3],"c":1}"#, r#"{"b":[1,2,3],"c":1}"#, SAME);
    check(&["/a"], r#"{"a":[1,2,3],"c":1}"#, r#"{"b":[1,2,3],"c":1}"#, CHANGED);
    // In short objects with several changes the complete object is replaced.
    let both = &["/i/*/a", "/i/*/b"];
    check(both, r#"{"i":[{"a":1,"b":1,"c":1}]}"#, r#"{"i":[{"a":2,"b":2,"c":1}]}"#, SAME);
    check(both, r#"{"i":[{"a":1,"b":1,"c":1}]}"#, r#"{"i":[{"a":2,"b":2,"c":2}]}"#, CHANGED);
    check(both, r#"{"i":[{"a":1},{"a":2}]}"#, r#"{"i":[{"a":3},{"a":4}]}"#, SAME);
    check(both, r#"{"i":[{"a":1},{"a":2}]}"#, r#"{"i":[{"a":1}]}"#, CHANGED);
    check(both, r#"{"i":{"x":{"a":1},"y":{"b":1}}}"#, r#"{"i":{"x":{"a":2},"y":{}}}"#, SAME);
    check(both, r#"{"i":{"x":{"a":1}}}"#, r#"{"i":{"y":{"a":1}}}"#, CHANGED);
    // Elements are identified by index only.
    check(&["/0/a"], r#"[{"a":1},{"a":1}]"#, r#"[{"a":2},{"a":1}]"#, SAME);
    check(&["/0/a"], r#"[{"a":1},{"a":1}]"#, r#"[{"a":1},{"a":2}]"#, CHANGED);
    check(&["/00/a"], r#"[{"a":1},2]"#, r#"[{"a":2},2]"#, CHANGED);
    check(&["/0"], "[1,2,3]", "[9,2,3]", SAME);
    check(&["/0"], "[1,2,3]", "[2,3]", CHANGED);
    let (all, rest) = (r#"{"i":["first, removed","second","third"]}"#, r#"{"i":["second","third"]}"#);
    check(&["/i/0"], all, rest, CHANGED);
    check(&["/i/*"], all, rest, SAME);
    check(&["/i/*"], r#"{"i":[1,2,3]}"#, r#"{"i":[4]}"#, SAME);
    check(&["/i/*"], r#"{"i":[1,2,3]}"#, r#"{"i":{}}"#, CHANGED);
    check(&["/*/a", "/*/*/b"], r#"[{"a":1,"c":{"b":1}}]"#, r#"[{"a":2,"c":{"b":2}}]"#, SAME);
    // Names that are escaped in pointers, in texts and in patches.
    check(&["/a~1b~0/\"\\é"], r#"{"a/b~":{"\"\\\u00e9":1}}"#, r#"{"a\/b~":{"\u0022\\é":2}}"#, SAME);
    check(&["/-", "/"], r#"{"-":1,"":1}"#, r#"{"-":2,"":2}"#, SAME);
    check(&["/__proto__/a"], r#"{"__proto__":{"a":1}}"#, r#"{"__proto__":{"a":2}}"#, SAME);
    check(&["/a"], r#"{"a":"\ud800"}"#, r#"{"a":"\udc00"}"#, SAME);
    check(&["/a"], r#"{"\ud800":1}"#, r#"{"\ud800":2}"#, CHANGED);
}

#[test]
fn ignored_changes_are_sent_with_the_next_change() {
    let differ = ignoring(&["/at"]);
    let old = br#"{"at":1,"score":1,"teams":["the ones at home","their guests"]}"#;
    let new = br#"{"at":7,"score":2,"teams":["the ones at home","their guests"]}"#;
    let update = differ.update(Some(old), new).unwrap();
    let patch = r#"[{"op":"replace","path":"/at","value":7},{"op":"replace","path":"/score","value":2}]"#;
    assert_eq!(update.diff.delta, Delta::Patch(patch.into()));
}

#[test]
fn wrong_pointers_are_refused() {
    let check = |text: &str, expect: &str| {
        let error = Ignored::parse(&pointers(&["/a", text])).expect_err("an error");
        assert_eq!(error.to_string(), expect);
    };
    check("a", "expected a JSON pointer, which begins with a slash, such as \"/meta/age\"; found \"a\"");
    check("/a~", "a ~ in a JSON pointer is written ~0, and a slash in a name ~1: \"/a~\"");
    check("/a~2/b", "a ~ in a JSON pointer is written ~0, and a slash in a name ~1: \"/a~2/b\"");
    check("/a*/b", "a * stands for a whole name or index, between slashes: \"/a*/b\"");
    check("", "the document would never change with \"\"");
    check("/*", "the document would never change with \"/*\"");
    check(&"/a".repeat(150), "a pointer may have at most 256 bytes, found one of 300");
    assert!(Ignored::parse(&pointers(&["/a"; 32])).is_ok());
    let error = Ignored::parse(&pointers(&["/a"; 33])).expect_err("an error");
    assert_eq!(error.to_string(), "at most 32 pointers are allowed, found 33");
}

/// Removes the values at the ends of these paths. Arrays become objects, so that elements keep their indices.
fn stripped(value: &Value, paths: &[Vec<String>]) -> Value {
    let members: Vec<(String, &Value)> = match value {
        Value::Array(elements) => elements.iter().enumerate().map(|(i, v)| (i.to_string(), v)).collect(),
        Value::Object(members) => members.iter().map(|(name, v)| (name.clone(), v)).collect(),
        _ => return value.clone(),
    };
    let mut left = Map::new();
    for (name, value) in members {
        let below =
            paths.iter().filter(|path| path[0] == "*" || path[0] == name).map(|path| path[1..].to_vec());
        let below: Vec<Vec<String>> = below.collect();
        if below.iter().all(|path| !path.is_empty()) {
            left.insert(name, stripped(value, &below));
        }
    }
    let kind = if value.is_array() { "array" } else { "object" };
    Value::Array(vec![kind.into(), left.into()])
}

#[test]
fn random_documents_change_exactly_if_their_rest_differs() {
    const NAMES: [&str; 9] = ["a", "b", "é", "id", "0", "1", "*", "*", "~1"];
    let (mut ignored, mut changed) = (0, 0);
    for seed in 0..1000 {
        let mut random = Rng::with_seed(seed);
        let (old, new) = generate::pair(seed);
        let parse = |text: &str| serde_json::from_str::<Value>(text).ok();
        let Some((before, after)) = parse(&old).zip(parse(&new)) else { continue };
        let mut path = || {
            let length = random.usize(1..4);
            let path: Vec<&str> = (0..length).map(|_| random.choice(NAMES).unwrap()).collect();
            if path == ["*"] { vec!["a"] } else { path }
        };
        let paths: Vec<Vec<&str>> = (0..30).map(|_| path()).collect();
        let texts: Vec<String> = paths.iter().map(|path| format!("/{}", path.join("/"))).collect();
        let differ = ignoring(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let decoded = |path: &Vec<&str>| path.iter().map(|name| name.replace("~1", "/")).collect();
        let paths: Vec<Vec<String>> = paths.iter().map(decoded).collect();
        let expect = !equal(&stripped(&before, &paths), &stripped(&after, &paths));
        let found = has_changed(&differ, &old, &new);
        assert_eq!(found, expect, "seed {seed} {texts:?}\nold {old}\nnew {new}");
        changed += usize::from(found);
        ignored += usize::from(!found && !equal(&before, &after));
    }
    // The generator must still cover both cases.
    assert!(ignored > 50 && changed > 200, "{ignored} {changed}");
}
