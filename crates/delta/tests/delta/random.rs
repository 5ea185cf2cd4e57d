//! Random documents: applying a delta to the old document gives the new one. The crate `json-patch` applies
//! the patches as well, if its parser accepts the documents.

use crate::generate;
use crate::{diff, differ};
use serde_json::Value;
use stentor_delta::{ApplyLimits, Delta, Differ, Options, Seed, apply, join};

/// Number of seeds. They take two seconds without optimization.
const SEEDS: u64 = 1000;

/// Makes a differ that returns a patch of any length for every pair that can have one.
fn willing() -> Differ {
    Differ::new(Options { patch_percent_max: 100_000, ..Options::default() }, Seed([3, 4]))
}

pub(crate) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| equal(a, b)))
        }
        _ => a == b,
    }
}

#[test]
fn applying_a_delta_gives_the_new_version() {
    let (mut patches, mut oracles, mut moves) = (0, 0, 0);
    for seed in 0..SEEDS {
        let (old, new) = generate::pair(seed);
        let values = serde_json::from_str::<Value>(&old).ok().zip(serde_json::from_str::<Value>(&new).ok());
        let says = || format!("seed {seed}\nold {old}\nnew {new}");
        let patch = match diff(&willing(), &old, &new).0 {
            Delta::Unchanged => {
                assert!(values.is_none_or(|(old, new)| equal(&old, &new)), "{}", says());
                continue;
            }
            Delta::Patch(patch) => patch,
            Delta::Snapshot => panic!("{}", says()),
        };
        patches += 1;
        let text = String::from_utf8(patch.clone()).unwrap();
        moves += usize::from(text.contains("\"move\""));
        let made = apply(old.as_bytes(), &patch, ApplyLimits::default());
        let made = made.unwrap_or_else(|error| panic!("{error} by {text}: {}", says()));
        let made = String::from_utf8(made).unwrap();
        assert_eq!(diff(&differ(), &made, &new).0, Delta::Unchanged, "{text}: {}", says());
        if let Some((mut old, new)) = values {
            oracles += 1;
            assert!(!equal(&old, &new), "{}", says());
            let patch: json_patch::Patch = serde_json::from_str(&text).unwrap();
            json_patch::patch(&mut old, &patch)
                .unwrap_or_else(|error| panic!("{error} by {text}: {}", says()));
            assert!(equal(&old, &new), "{text}: {}", says());
        }
        // A patch that isn't shorter than the document becomes a snapshot.
        let whole = differ().parse(new.as_bytes()).unwrap().minified().len();
        let expect = if patch.len() < whole { Delta::Patch(patch) } else { Delta::Snapshot };
        assert_eq!(diff(&differ(), &old, &new).0, expect, "{}", says());
    }
    // The generator must still cover these cases.
    assert!(patches > SEEDS / 2 && oracles > SEEDS / 4 && moves > 50, "{patches} {oracles} {moves}");
}

#[test]
fn joined_patches_do_all_steps() {
    for seed in 0..100 {
        let versions: Vec<String> = (0..5).map(|i| generate::pair(seed * 5 + i).1).collect();
        let patches: Vec<Vec<u8>> = versions
            .windows(2)
            .map(|pair| match diff(&willing(), &pair[0], &pair[1]).0 {
                Delta::Patch(patch) => patch,
                _ => b"[]".to_vec(),
            })
            .collect();
        let joined = join(patches.iter().map(Vec::as_slice)).unwrap();
        let made = apply(versions[0].as_bytes(), &joined, ApplyLimits::default()).unwrap();
        let made = String::from_utf8(made).unwrap();
        assert_eq!(diff(&differ(), &made, &versions[4]).0, Delta::Unchanged, "seed {seed}");
    }
}

/// Operations of all kinds on few paths, so that many replace values that earlier ones have replaced or
/// moved.
#[test]
fn joined_patches_only_leave_out_replaced_values() {
    let document = br#"{"a":{"b":1,"c":{"d":2}},"e":[1,[2,3],{"f":4}],"g":0,"~1":5}"#;
    let paths =
        ["", "/a", "/a/b", "/a/c", "/a/c/d", "/e", "/e/0", "/e/1", "/e/1/0", "/e/2", "/e/2/f", "/g", "/~01"];
    let values = [
        "6",
        r#"{"b":7,"c":{"d":8}}"#,
        r#"[9,[1,2],{"f":3}]"#,
        r#"{"a":{"b":1,"c":{}},"e":[],"g":2,"~1":3}"#,
    ];
    let (mut all_bytes, mut joined_bytes, mut applied) = (0, 0, 0);
    for seed in 0..SEEDS {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut made, mut patches) = (document.to_vec(), Vec::new());
        for number in 0..random.usize(2..30) {
            let (path, from) = (random.choice(paths).unwrap(), random.choice(paths).unwrap());
            let value = random.choice(values).unwrap().replace('9', &number.to_string());
            let operation = match random.u8(..12) {
                0 => format!(r#"{{"op":"add","path":"{path}","value":{value}}}"#),
                1 => format!(r#"{{"op":"remove","path":"{path}"}}"#),
                2 => format!(r#"{{"op":"move","from":"{from}","path":"{path}"}}"#),
                _ => format!(r#"{{"op":"replace","path":"{path}","value":{value}}}"#),
            };
            let patch = format!("[{operation}]").into_bytes();
            // Only patches that apply, as a server sends them.
            if let Ok(after) = apply(&made, &patch, ApplyLimits::default()) {
                (made, applied) = (after, applied + 1);
                patches.push(patch);
            }
        }
        let joined = join(patches.iter().map(Vec::as_slice)).unwrap();
        assert_eq!(apply(document, &joined, ApplyLimits::default()).unwrap(), made, "seed {seed}");
        all_bytes += patches.concat().len();
        joined_bytes += joined.len();
    }
    assert!(applied > 5 * SEEDS && joined_bytes < all_bytes * 9 / 10, "{applied} {joined_bytes} {all_bytes}");
}

/// The seed only selects hashes; patches don't depend on it.
#[test]
fn patches_do_not_depend_on_the_seed() {
    for seed in 0..500 {
        let (old, new) = generate::pair(seed);
        let other = Differ::new(Options::default(), Seed([seed, 99]));
        assert_eq!(diff(&differ(), &old, &new).0, diff(&other, &old, &new).0, "seed {seed}");
    }
}
