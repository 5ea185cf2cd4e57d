//! Updates of texts, checked against a comparison of the parsed documents.

use crate::diff;
use crate::generate::{self, Json, mutate, value, write};
use fastrand::Rng;
use stentor_delta::{ApplyLimits, Delta, Differ, Options, Seed, apply};

const SEEDS: u64 = 1000;

fn willing() -> Differ {
    Differ::new(Options { patch_percent_max: 100_000, ..Options::default() }, Seed([3, 4]))
}

fn minified(text: &str) -> String {
    String::from_utf8(willing().parse(text.as_bytes()).unwrap().minified().to_vec()).unwrap()
}

/// Checks an update against a comparison of the parsed documents. Returns the lengths of the two patches.
fn check(differ: &Differ, old: &str, new: &str) -> (usize, usize) {
    let old = minified(old);
    let says = || format!("old {old}\nnew {new}");
    let update = differ
        .update(Some(old.as_bytes()), new.as_bytes())
        .unwrap_or_else(|error| panic!("{error}: {}", says()));
    assert_eq!(String::from_utf8_lossy(&update.text), minified(new), "{}", says());
    let reference = diff(differ, &old, new).0;
    match (update.diff.delta, reference) {
        (Delta::Unchanged, Delta::Unchanged) => (0, 0),
        (Delta::Patch(patch), Delta::Patch(reference)) => {
            let text = String::from_utf8_lossy(&patch);
            let made = apply(old.as_bytes(), &patch, ApplyLimits::default());
            let made = made.unwrap_or_else(|error| panic!("{error} by {text}: {}", says()));
            let made = String::from_utf8(made).unwrap();
            assert_eq!(diff(differ, &made, new).0, Delta::Unchanged, "{text}: {}", says());
            (patch.len(), reference.len())
        }
        (update, reference) => panic!("{update:?} instead of {reference:?}: {}", says()),
    }
}

#[test]
fn updates_give_the_new_version() {
    let (mut lengths, mut references, mut longer) = (0, 0, 0);
    for seed in 0..SEEDS {
        let (old, new) = generate::pair(seed);
        let (length, reference) = check(&willing(), &old, &new);
        longer += usize::from(length > reference);
        (lengths, references) = (lengths + length, references + reference);
    }
    assert!(
        lengths <= references + references / 100 && longer < SEEDS as usize / 100,
        "{lengths} {references} {longer}"
    );
}

/// Many elements and few changes, like the documents of feeds.
#[test]
fn updates_of_large_documents_give_the_new_version() {
    let (mut lengths, mut references) = (0, 0);
    for seed in 0..40 {
        let (old, new) = large_pair(seed);
        let (length, reference) = check(&willing(), &old, &new);
        (lengths, references) = (lengths + length, references + reference);
    }
    assert!(lengths <= references + references / 100 && references > 0, "{lengths} {references}");
}

#[test]
fn malformed_text_is_refused() {
    let old = r#"{"a":[1,2,{"b":null}],"c":"d"}"#;
    for cut in 0..old.len() {
        let new = &old[..cut];
        assert!(willing().update(Some(old.as_bytes()), new.as_bytes()).is_err(), "{new}");
        for inserted in ["x", "\"", "\\", "{", "]", ",", ":", "1", "\u{1}"] {
            let new = format!("{new}{inserted}{}", &old[cut..]);
            let expect = willing().parse(new.as_bytes()).is_ok();
            assert_eq!(willing().update(Some(old.as_bytes()), new.as_bytes()).is_ok(), expect, "{new}");
        }
        // Whitespace may only follow a complete token.
        let new = format!("{new} {}", &old[cut..]);
        assert_eq!(
            willing().update(Some(old.as_bytes()), new.as_bytes()).is_ok(),
            willing().parse(new.as_bytes()).is_ok(),
            "{new}"
        );
    }
}

/// An old text that isn't JSON violates the contract, but causes neither a panic nor an endless loop.
#[test]
fn an_old_text_that_was_not_checked_does_no_harm() {
    let text = r#"{"a":[1,2,{"b":null}],"c":"d\"e"}"#;
    for from in 0..text.len() {
        for cut in 0..text.len() {
            let old = format!("{}{}", &text[from..], &text[..cut]);
            let _ = willing().update(Some(old.as_bytes()), text.as_bytes());
            let _ = willing().update(Some(old.as_bytes()), old.replace('1', "3").as_bytes());
        }
    }
}

/// Makes two versions of a document with long arrays and few changes. Both are formatted alike, except for
/// one seed in four.
fn large_pair(seed: u64) -> (String, String) {
    let mut random = Rng::with_seed(seed);
    let has_id = random.bool();
    let element = |i: usize, random: &mut Rng| {
        let mut members = vec![
            ("name".to_owned(), Json::Scalar(format!("\"element {i} \\u00e9 of many\""))),
            ("values".to_owned(), Json::Array((0..4).map(|j| Json::Scalar((i * j).to_string())).collect())),
            ("more".to_owned(), value(random, 2, false)),
        ];
        if has_id {
            members.insert(0, ("id".to_owned(), Json::Scalar(i.to_string())));
        }
        Json::Object(members)
    };
    let count = random.usize(50..200);
    let elements = (0..count).map(|i| element(i, &mut random)).collect();
    let numbers = (0..random.usize(0..3_000)).map(|_| Json::Scalar(random.usize(..50).to_string())).collect();
    let mut json = Json::Object(vec![
        ("elements".to_owned(), Json::Array(elements)),
        ("numbers".to_owned(), Json::Array(numbers)),
        ("rest".to_owned(), value(&mut random, 4, false)),
    ]);
    let (mut old, mut new) = (String::new(), String::new());
    write(&json, &mut random, false, &mut old);
    for _ in 0..random.usize(..30) {
        let Json::Object(members) = &mut json else { break };
        let part = random.usize(..members.len());
        match &mut members[part].1 {
            Json::Array(elements) if !elements.is_empty() && random.usize(..10) > 0 => {
                let i = random.usize(..elements.len());
                mutate(&mut elements[i], &mut random, false);
            }
            other => mutate(other, &mut random, false),
        }
    }
    let spaces = random.usize(..4) == 0;
    write(&json, &mut random, spaces, &mut new);
    (old, new)
}
