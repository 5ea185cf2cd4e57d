//! The operations of patches.

use crate::{diff, differ};
use stentor_delta::{Delta, Differ, Options, Seed, join};

/// Returns the patch between two values, at `/d` of documents so large that a snapshot is never shorter.
fn patch(differ: &Differ, old: &str, new: &str) -> String {
    let document = |value: &str| format!("{{\"pad\":\"{}\",\"d\":{value}}}", "x".repeat(9000));
    match diff(differ, &document(old), &document(new)).0 {
        Delta::Patch(patch) => String::from_utf8(patch).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn check(old: &str, new: &str, expect: &[&str]) {
    assert_eq!(patch(&differ(), old, new), format!("[{}]", expect.join(",")));
}

/// Makes an array of long strings, one per letter.
fn long(letters: &str) -> String {
    let elements: Vec<_> =
        letters.chars().map(|letter| format!("\"{}\"", letter.to_string().repeat(60))).collect();
    format!("[{}]", elements.join(","))
}

/// Makes an array of objects: an identity, a score, and padding that is equal in all objects.
fn games(name: &str, games: &[(u32, u32)]) -> String {
    let ballast = "the same in all".repeat(5);
    let game = |(id, score): &(u32, u32)| {
        format!("{{\"{name}\":{id},\"round\":\"{ballast}\",\"score\":{score},\"state\":\"live\"}}")
    };
    format!("[{}]", games.iter().map(game).collect::<Vec<_>>().join(","))
}

#[test]
fn elements_of_an_array_cost_one_operation_each() {
    let z = format!("\"{}\"", "z".repeat(60));
    let add = |at: usize| format!(r#"{{"op":"add","path":"/d/{at}","value":{z}}}"#);
    check(&long("abcd"), &long("zabcd"), &[&add(0)]);
    check(&long("abcd"), &long("abzcd"), &[&add(2)]);
    check(&long("abcd"), &long("abcdz"), &[&add(4)]);
    check(&long("aaaa"), &long("aazaa"), &[&add(2)]);
    check(&long("abcd"), &long("bcd"), &[r#"{"op":"remove","path":"/d/0"}"#]);
    check(&long("abcd"), &long("abd"), &[r#"{"op":"remove","path":"/d/2"}"#]);
    check(
        &long("abcd"),
        &long("ad"),
        &[r#"{"op":"remove","path":"/d/2"}"#, r#"{"op":"remove","path":"/d/1"}"#],
    );
    check(&long("abcd"), &long("bcda"), &[r#"{"op":"move","from":"/d/0","path":"/d/3"}"#]);
    check(&long("abcd"), &long("dabc"), &[r#"{"op":"move","from":"/d/3","path":"/d/0"}"#]);
    check(&long("abcd"), &long("acbd"), &[r#"{"op":"move","from":"/d/2","path":"/d/1"}"#]);
    let replace = format!(r#"{{"op":"replace","path":"/d/2","value":{z}}}"#);
    check(&long("abcd"), &long("abzd"), &[&replace]);
    let add = format!(r#"{{"op":"add","path":"/d/0","value":{z}}}"#);
    check(
        &long("abcdef"),
        &long("zafbce"),
        &[r#"{"op":"remove","path":"/d/3"}"#, &add, r#"{"op":"move","from":"/d/5","path":"/d/2"}"#],
    );
}

#[test]
fn a_change_in_an_identified_object_is_one_path() {
    for name in ["id", "matchId", "nr"] {
        let list = |of: &[(u32, u32)]| games(name, of);
        let old = list(&[(1, 0), (2, 0), (3, 0), (4, 0), (5, 0)]);
        let score = |at: usize| format!(r#"{{"op":"replace","path":"/d/{at}/score","value":7}}"#);
        check(&old, &list(&[(1, 0), (2, 0), (3, 7), (4, 0), (5, 0)]), &[&score(2)]);
        check(&old, &list(&[(1, 7), (2, 0), (3, 7), (4, 0), (5, 7)]), &[&score(0), &score(2), &score(4)]);
        let moved = r#"{"op":"move","from":"/d/4","path":"/d/0"}"#;
        check(&old, &list(&[(5, 0), (1, 0), (2, 0), (3, 0), (4, 0)]), &[moved]);
        check(&old, &list(&[(5, 7), (1, 0), (2, 0), (3, 7), (4, 0)]), &[moved, &score(0), &score(3)]);
        let removed = r#"{"op":"remove","path":"/d/0"}"#;
        check(&old, &list(&[(2, 0), (3, 7), (4, 0), (5, 0)]), &[removed, &score(1)]);
        let added =
            format!(r#"{{"op":"add","path":"/d/0","value":{}}}"#, list(&[(9, 1)]).trim_matches(['[', ']']));
        check(&old, &list(&[(9, 1), (1, 0), (2, 0), (3, 7), (4, 0), (5, 0)]), &[&added, &score(3)]);
    }
}

#[test]
fn a_configured_identity_is_trusted() {
    // By default elements are matched by `id`, so they stay in place and their other members change.
    let ballast = "x".repeat(200);
    let element =
        |a: u32, b: u32| format!("{{\"a\":{a},\"id\":{a},\"b\":{b},\"c\":{b},\"d\":\"{ballast}\"}}");
    let old = format!("[{},{},{}]", element(1, 7), element(2, 8), element(3, 9));
    let new = format!("[{},{},{}]", element(1, 9), element(2, 7), element(3, 8));
    let by = |identity: &[&str]| {
        let identity = identity.iter().map(|name| name.to_string()).collect();
        patch(&Differ::new(Options { identity, ..Options::default() }, Seed([1, 2])), &old, &new)
    };
    assert!(!by(&[]).contains("move"));
    assert!(by(&["none", "b"]).starts_with(r#"[{"op":"move","from":"/d/2","path":"/d/0"},"#));
}

#[test]
fn without_identity_similar_elements_are_matched() {
    // Only goal B has a unique name. The minutes of all goals change, and goal C is inserted.
    let goal = |name: &str, minute: u32| {
        format!("{{\"name\":\"{name} {name} {name}\",\"team\":\"{}\",\"minute\":{minute}}}", name.repeat(9))
    };
    let old = format!("[{},{},{}]", goal("A", 3), goal("B", 3), goal("A", 3));
    let new = format!("[{},{},{},{}]", goal("A", 4), goal("C", 9), goal("B", 5), goal("A", 6));
    let minute =
        |at: usize, minute: u32| format!(r#"{{"op":"replace","path":"/d/{at}/minute","value":{minute}}}"#);
    let added = format!(r#"{{"op":"add","path":"/d/1","value":{}}}"#, goal("C", 9));
    check(&old, &new, &[&added, &minute(0, 4), &minute(2, 5), &minute(3, 6)]);
}

#[test]
fn members_are_matched_by_name() {
    let x = format!("\"{}\"", "x".repeat(200));
    let object = |members: &str| format!("{{\"x\":{x}{members}}}");
    let check = |old: &str, new: &str, expect: &[&str]| check(&object(old), &object(new), expect);
    check("", ",\"a\":1", &[r#"{"op":"add","path":"/d/a","value":1}"#]);
    check(",\"a\":1", "", &[r#"{"op":"remove","path":"/d/a"}"#]);
    check(",\"a\":1", ",\"a\":2", &[r#"{"op":"replace","path":"/d/a","value":2}"#]);
    check(
        ",\"a\":1,\"b\":[1]",
        ",\"b\":[1], \"a\" :null",
        &[r#"{"op":"replace","path":"/d/a","value":null}"#],
    );
    check(",\"a\":[1, 2]", ",\"b\":[1,2]", &[r#"{"op":"move","from":"/d/a","path":"/d/b"}"#]);
    check(",\"a\":1,\"a\":2", ",\"a\":3,\"\\u0061\":4", &[r#"{"op":"replace","path":"/d/a","value":4}"#]);
    // RFC 6901, section 5, and further names.
    check("", ",\"\":1", &[r#"{"op":"add","path":"/d/","value":1}"#]);
    check("", ",\"a/b\":1", &[r#"{"op":"add","path":"/d/a~1b","value":1}"#]);
    check("", ",\"m~n\":1", &[r#"{"op":"add","path":"/d/m~0n","value":1}"#]);
    check("", ",\"\\/\":1", &[r#"{"op":"add","path":"/d/~1","value":1}"#]);
    check("", r#","\"\\":1"#, &[r#"{"op":"add","path":"/d/\"\\","value":1}"#]);
    check("", ",\"\\u0000\\t\":1", &[r#"{"op":"add","path":"/d/\u0000\t","value":1}"#]);
    check("", ",\"\\ud83d\":1", &[r#"{"op":"add","path":"/d/\ud83d","value":1}"#]);
    check("", ",\"\\ud83d\\ude00\":1", &[r#"{"op":"add","path":"/d/😀","value":1}"#]);
}

#[test]
fn values_keep_their_spelling() {
    let keep =
        |value: &str| check("[1]", value, &[&format!(r#"{{"op":"replace","path":"/d","value":{value}}}"#)]);
    keep("-0.10");
    keep("1E400");
    keep("12345678901234567890123");
    keep("\"\\u00e9\\ud83d\"");
    check("1", " [ 1 , { \"a b\" : null } ] ", &[r#"{"op":"replace","path":"/d","value":[1,{"a b":null}]}"#]);
}

#[test]
fn the_shorter_patch_is_used() {
    // Changing three members of a small object costs more than the object.
    check(
        r#"{"a":1,"b":2,"c":3}"#,
        r#"{"a":4,"b":5,"c":6}"#,
        &[r#"{"op":"replace","path":"/d","value":{"a":4,"b":5,"c":6}}"#],
    );
    check("[0,2,4]", "[1,3,4]", &[r#"{"op":"replace","path":"/d","value":[1,3,4]}"#]);
    check("[0,2]", "[2,0]", &[r#"{"op":"move","from":"/d/1","path":"/d/0"}"#]);
    // Two short values that swap places: two replacements are shorter than two moves.
    let list = |a: u32, b: u32| format!("[{},{a},{},{b},{}]", long("ab"), long("cd"), long("ef"));
    let replace = |at: u32, value: u32| format!(r#"{{"op":"replace","path":"/d/{at}","value":{value}}}"#);
    check(&list(1, 2), &list(2, 1), &[&replace(1, 2), &replace(3, 1)]);
}

#[test]
fn no_path_leads_through_a_prototype() {
    // npm fast-json-patch refuses such paths, so the surrounding object is replaced.
    for (old, new) in [
        (r#"{"x":{"__proto__":1}}"#, r#"{"x":{"__proto__":2}}"#),
        (r#"{"x":{"__proto__":{"y":1}}}"#, r#"{"x":{"__proto__":{"y":2}}}"#),
        (r#"{"x":{"__pr\u006fto__":1}}"#, r#"{"x":{"y":1}}"#),
        (r#"{"x":{"y":1}}"#, r#"{"x":{"__proto__":1}}"#),
    ] {
        let value = new.trim_start_matches("{\"x\":").strip_suffix('}').unwrap();
        check(old, new, &[&format!(r#"{{"op":"replace","path":"/d/x","value":{value}}}"#)]);
    }
    let value = r#"{"prototype":2}"#;
    let with = |value: &str| format!("{{\"constructor\":{value}}}");
    check(
        &with(r#"{"prototype":1}"#),
        &with(value),
        &[&format!(r#"{{"op":"replace","path":"/d/constructor","value":{value}}}"#)],
    );
    check(
        r#"{"prototype":1}"#,
        r#"{"prototype":2}"#,
        &[r#"{"op":"replace","path":"/d/prototype","value":2}"#],
    );
}

#[test]
fn a_member_called_dash_is_added_not_replaced() {
    // PyPI jsonpatch refuses to replace a member called `-`.
    check(r#"{"-":1,"a":[]}"#, r#"{"-":2,"a":[]}"#, &[r#"{"op":"add","path":"/d/-","value":2}"#]);
}

#[test]
fn the_same_value_is_unchanged() {
    let check = |old: &str, new: &str, unchanged: bool| {
        assert_eq!(diff(&differ(), old, new).0 == Delta::Unchanged, unchanged, "{old} {new}");
    };
    check(r#"{"a":1,"b":[1,2]}"#, "{ \"b\":[1.0,\n2e0], \"a\":1 }", true);
    check("[-0]", "[0]", true);
    check("[1e999]", "[1e1000]", false);
    check("[10e999]", "[1e1000]", true);
    check(r#"{"a":1,"a":2}"#, r#"{"a":2}"#, true);
    check(r#"{"a":{"x":1,"y":2},"b":{}}"#, r#"{"b":{},"a":{"y":2,"x":1}}"#, true);
    check(r#""\ud83d""#, r#""\ud83e""#, false);
    check(r#"{"id":1234567890123456789}"#, r#"{"id":1234567890123456790}"#, false);
    check("9007199254740993", "9007199254740992", false);
}

#[test]
fn a_snapshot_where_a_patch_is_not_shorter() {
    let old = r#"{"a":"0123456789012345678901234567890123456789","b":1}"#;
    let new = r#"{"a":"0123456789012345678901234567890123456789","b":2}"#;
    let patch = r#"[{"op":"replace","path":"/b","value":2}]"#;
    let check = |percent: usize, expect: Delta| {
        let options = Options { patch_percent_max: percent as u32, ..Options::default() };
        assert_eq!(diff(&Differ::new(options, Seed([1, 2])), old, new).0, expect, "{percent} %");
    };
    check(100, Delta::Patch(patch.into()));
    // A patch of exactly this percentage of the document isn't used, a shorter one is.
    let percent = patch.len() * 100 / new.len();
    check(percent, Delta::Snapshot);
    check(percent + 2, Delta::Patch(patch.into()));
    check(0, Delta::Snapshot);
    let whole = |old: &str, new: &str| assert_eq!(diff(&differ(), old, new).0, Delta::Snapshot);
    whole("1", "2");
    whole("{}", "[]");
    whole("[]", "[1]");
    whole(old, r#"["something else", 0123456789]"#.replace("0123456789", "123456789").as_str());
}

#[test]
fn joined_patches_replace_each_value_once() {
    let replace = |path: &str, value: u32| format!(r#"{{"op":"replace","path":"{path}","value":{value}}}"#);
    let add = || r#"{"op":"add","path":"/d/0","value":0}"#.to_owned();
    let check = |patches: &[&[&str]], expect: &[&str]| {
        let patches: Vec<String> = patches.iter().map(|patch| format!("[{}]", patch.join(","))).collect();
        let joined = join(patches.iter().map(String::as_bytes)).unwrap();
        assert_eq!(String::from_utf8(joined).unwrap(), format!("[{}]", expect.join(",")));
    };
    let (a1, a2, b3) = (&*replace("/a", 1), &*replace("/a", 2), &*replace("/b", 3));
    let (other1, other2) = (&*replace("/a!", 1), &*replace("/a!", 2));
    check(&[], &[]);
    check(&[&[], &[a1], &[]], &[a1]);
    check(&[&[a1, b3], &[a2]], &[b3, a2]);
    check(&[&[a1], &[b3], &[a2], &[a1]], &[b3, a1]);
    check(&[&[other1], &[a1], &[other2]], &[a1, other2]);
    // The first operation stays if an operation after it needs its value or may move it.
    for between in [replace("/a/b", 3), replace("", 3), replace("/\\u0061", 3), add()] {
        check(&[&[a1], &[&between], &[a2]], &[a1, &between, a2]);
    }
    for wrong in [&b""[..], b"{}", b"[1", b"[\"\xff\"]"] {
        assert_eq!(join([&b"[]"[..], wrong]), None);
    }
}
