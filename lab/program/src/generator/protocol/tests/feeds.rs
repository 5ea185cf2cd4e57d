//! Clients of a known document, against servers whose documents are right or wrong.

use stentor_wire::ws::Opcode;

use super::frames::frame;
use super::handshakes::{Pair, spec};
use crate::document::{BODY_AT, Document, HEAD_AT, Shape};
use crate::generator::Spec;
use crate::generator::protocol::{ClientEvent, Lane, Protocol};
use crate::payload::Head;

const SHAPE: Shape = Shape { bytes: 2000, changes: 3 };

/// A client of the document at `path`.
fn pair(protocol: Protocol, path: &str) -> Pair {
    let spec = Spec { path: path.into(), document: Some(SHAPE), ..spec(protocol) };
    let (pair, target) = Pair::of(&spec).upgrade();
    assert_eq!(target, path.replace("{}", "4711"));
    pair
}

/// The last event: number and length of a payload, and whether it was clean.
fn last(pair: &Pair) -> (Option<u64>, u64, bool) {
    match pair.out.happened.iter().rev().find(|happened| **happened != ClientEvent::Opened) {
        Some(ClientEvent::Payload { head, payload_bytes, clean }) => {
            (head.map(|head| head.sequence), *payload_bytes, *clean)
        }
        other => panic!("{other:?}"),
    }
}

/// The document after `version` changes: publication `version - 1`, which is due at `version`.
fn document(version: u64) -> Document {
    let mut document = Document::new(SHAPE);
    for _ in 0..version {
        document.advance();
    }
    if version > 0 {
        document.set_head(Head { sequence: version - 1, intended_ns: version });
    }
    document
}

fn text(document: &Document) -> String {
    String::from_utf8(document.text().to_vec()).unwrap()
}

#[test]
fn whole_documents_are_compared_byte_by_byte() {
    let length = document(0).text().len() as u64;
    for cut in [1, HEAD_AT, HEAD_AT + 5, BODY_AT, BODY_AT + 1, 1000, length as usize] {
        let mut pair = pair(Protocol::WebSocket, "/ws/bench");
        for version in [0, 1, 3, 2] {
            let framed = frame(Opcode::Text, document(version).text());
            for piece in framed.chunks(cut) {
                pair.react(Lane::Main, piece);
            }
            // The document before the first version has no number.
            let right = (Some(version.saturating_sub(1)), length, version > 0);
            assert_eq!(last(&pair), right, "cut at {cut}");
        }
        assert!(pair.out.happened.contains(&ClientEvent::Opened));
        // A changed byte at any place, a missing byte, and one too many.
        for at in [0, HEAD_AT - 1, BODY_AT, 700, length as usize - 1] {
            let mut wrong = document(3).text().to_vec();
            wrong[at] ^= 1;
            pair.hear_text(&wrong);
            assert!(!last(&pair).2, "byte {at}");
        }
        pair.hear_text(&document(3).text()[..1500]);
        assert_eq!(last(&pair).1, 1500);
        pair.hear_text(&[document(3).text(), b" "].concat());
        assert!(!last(&pair).2);
        pair.hear_text(b"null");
        assert_eq!(last(&pair), (None, 4, false));
    }
}

/// Deltas that carry `values` over: of the head, and where documents differ.
fn delta(base: u64, offset: u64, patch: &str) -> String {
    format!(r#"{{"type":"delta","feed":"bench","epoch":7,"base":{base},"offset":{offset},"patch":{patch}}}"#)
}

fn snapshot(offset: u64, document: &Document) -> String {
    let data = text(document);
    format!(
        r#"{{"type":"snapshot","feed":"bench","epoch":7,"offset":{offset},"state":"live","data":{data}}}"#
    )
}

/// The patch from version `from` to the next one.
fn patch(from: u64) -> String {
    let value = |version| serde_json::from_slice::<serde_json::Value>(document(version).text()).unwrap();
    serde_json::to_string(&json_patch::diff(&value(from), &value(from + 1))).unwrap()
}

#[test]
fn deltas_are_carried_out_and_verified() {
    let length = document(0).text().len() as u64;
    let welcome = br#"{"type":"welcome","session":"c0ffee","ping_ms":25000}"#;
    let begun = || {
        let mut pair = pair(Protocol::StentorV1, "/ws?feed=bench");
        pair.hear_text(welcome);
        assert!(!pair.out.happened.contains(&ClientEvent::Opened));
        let first = frame(Opcode::Text, snapshot(1, &document(0)).as_bytes());
        pair.hear_cut(&first, 500);
        assert!(pair.out.happened.contains(&ClientEvent::Opened));
        pair.hear_text(delta(1, 2, &patch(0)).as_bytes());
        assert_eq!(last(&pair), (Some(0), length, true));
        pair
    };
    let verified = |pair: &Pair| pair.client.verify(&pair.dialect);
    let mut pair = begun();
    pair.hear_text(delta(2, 3, &patch(1)).as_bytes());
    pair.hear_text(snapshot(4, &document(3)).as_bytes());
    assert_eq!((last(&pair).0, verified(&pair)), (Some(2), Some((0, 4))));

    // Applying a delta shows that it left out a value.
    let mut pair = begun();
    let operations: Vec<serde_json::Value> = serde_json::from_str(&patch(1)).unwrap();
    let some: Vec<&serde_json::Value> =
        operations.iter().filter(|operation| operation["path"] == "/head").collect();
    pair.hear_text(delta(2, 3, &serde_json::to_string(&some).unwrap()).as_bytes());
    assert_eq!(verified(&pair), Some((1, 3)));
    let mut pair = begun();
    pair.hear_text(delta(2, 3, r#"[{"op":"replace","path":"/nowhere","value":1}]"#).as_bytes());
    assert_eq!((last(&pair).0, verified(&pair)), (None, Some((1, 2))));

    // A delta for another version or another epoch is an error.
    let complaint = |text: &str| begun().complains_of_text(text.as_bytes());
    assert!(complaint(&delta(1, 3, "[]")).contains("version"));
    assert!(complaint(&delta(2, 3, "[]").replace("\"epoch\":7", "\"epoch\":8")).contains("version"));
    assert!(complaint(&delta(2, 3, "[]").replace("bench", "branch")).contains("branch"));
    assert!(complaint("[1]").contains("stentor.v1"));
    let lost = r#"{"type":"state","feed":"bench","state":"not_found","reason":"gone"}"#;
    assert!(complaint(lost).contains("not_found: gone"));
}

#[test]
fn each_client_may_have_a_feed_of_its_own() {
    let mut pair = pair(Protocol::StentorV1, "/ws?feed=bench/{}");
    let own = |text: String, name: &str| text.replace("bench", name).into_bytes();
    pair.hear_text(&own(snapshot(1, &document(0)), "bench/4711"));
    pair.hear_text(&own(delta(1, 2, &patch(0)), "bench/4711"));
    assert_eq!((pair.out.happened.len(), pair.client.verify(&pair.dialect)), (3, Some((0, 2))));
    let other = own(delta(2, 3, &patch(1)), "bench/4712");
    assert!(pair.complains_of_text(&other).contains("bench/4712"));
}

#[test]
fn a_client_that_subscribes_is_open_before_its_snapshot() {
    let mut pair = pair(Protocol::StentorV1, "/ws");
    pair.hear_text(br#"{"type":"welcome","session":"c0ffee","ping_ms":25000}"#);
    assert_eq!(pair.out.happened, [ClientEvent::Opened]);
    pair.publish("");
    assert!(pair.out.main.ends_with(br#"{"type":"subscribe","feed":"bench"}"#));
    pair.hear_text(br#"{"type":"ok"}"#);
    pair.hear_text(snapshot(1, &document(0)).as_bytes());
    assert_eq!(pair.out.happened.len(), 2);
}
