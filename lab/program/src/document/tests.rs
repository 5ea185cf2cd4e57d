use serde_json::Value;

use super::*;
use crate::payload::is_intact;

/// Returns the values of all rows, and the head.
fn parsed(document: &Document) -> (Vec<u64>, String) {
    let value: Value = serde_json::from_slice(document.text()).unwrap();
    assert_eq!(serde_json::to_vec(&value).unwrap().len(), document.text().len(), "minified");
    let rows = value["rows"].as_array().unwrap();
    let values = rows.iter().flat_map(|row| MEMBERS.map(|member| row[member].as_u64().unwrap()));
    (values.collect(), value["head"].as_str().unwrap().to_owned())
}

#[test]
fn changes_as_many_values_as_it_says_and_is_the_same_for_all() {
    for shape in [Shape { bytes: 165_000, changes: 20 }, Shape { bytes: 1, changes: 3 }] {
        let (mut one, mut other) = (Document::new(shape), Document::new(shape));
        let length = one.text().len();
        assert!(length >= shape.bytes && length < shape.bytes + 200, "{length}");
        let (mut before, _) = parsed(&one);
        for version in 1..50 {
            one.advance();
            other.advance();
            let head = Head { sequence: version, intended_ns: 4711 };
            one.set_head(head);
            assert_eq!(one.text()[BODY_AT..], other.text()[BODY_AT..]);
            assert_eq!((one.version(), one.text().len()), (version, length));
            let (after, digits) = parsed(&one);
            assert_eq!(Head::read(digits.as_bytes()), Some(head));
            assert!(is_intact(digits.as_bytes()));
            let changed = before.iter().zip(&after).filter(|(before, after)| before != after);
            assert_eq!(changed.count(), shape.changes, "version {version}");
            before = after;
        }
    }
}
