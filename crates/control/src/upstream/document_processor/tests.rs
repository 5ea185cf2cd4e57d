//! Tests of which bodies are new versions, and of their patches.

use super::*;

fn received(body: &[u8], kept: Option<Arc<Document>>) -> Received {
    Received {
        body: body.to_vec(),
        coding: Coding::Identity,
        content_type: Some("application/json".into()),
        json_only: true,
        bytes_max: 1000,
        kept,
        differ: differ(&[], Ignored::default()),
    }
}

fn processed(received: Received) -> Result<Option<Arc<Document>>, Failure> {
    process(received).map(|change| change.map(|change| change.document))
}

#[test]
fn only_a_different_value_is_a_new_version() {
    let first = processed(received(b"{ \"a\": 1, \"b\": [ 2 ] }\n", None)).unwrap().unwrap();
    assert_eq!(&first.body[..], b"{\"a\":1,\"b\":[2]}");
    assert!(first.json);
    let check = |body: &[u8], changed: bool| {
        let version = processed(received(body, Some(first.clone()))).unwrap();
        assert_eq!(version.is_some(), changed, "{}", String::from_utf8_lossy(body));
    };
    check(b"{\"a\":1,\"b\":[2]}", false);
    check(b"{\n\"a\":1,\n\"b\":[2]}", false);
    check(b"{\"b\":[2.0],\"a\":1}", false);
    check(b"{\"a\":0,\"b\":[2],\"a\":1e0}", false);
    check(b"{\"a\":1,\"b\":[2,2]}", true);
    check(b"{\"a\":\"1\",\"b\":[2]}", true);
}

#[test]
fn a_patch_applies_to_the_kept_document() {
    let list = |score: u32| format!(r#"[ {{"team":"a","score":0}}, {{"team":"b","score":{score}}} ]"#);
    let first = process(received(list(0).as_bytes(), None)).unwrap().unwrap();
    assert_eq!(first.patch, None);
    let base = first.document.body.clone();
    let second = process(received(list(1).as_bytes(), Some(first.document))).unwrap().unwrap();
    let operations = Bytes::from_static(br#"[{"op":"replace","path":"/1/score","value":1}]"#);
    assert_eq!(second.patch, Some(Patch { base, operations }));
    // A patch is dropped if it is longer than the document.
    let third = process(received(b"1", Some(second.document))).unwrap().unwrap();
    assert_eq!((third.patch, &third.document.body[..]), (None, &b"1"[..]));
}

#[tokio::test]
async fn a_few_changes_of_a_long_document_are_compared_in_place() {
    let list = |score: u32, space: &str| {
        let element =
            |id: u32| format!(r#"{{"id":{id},{space}"score":{}}}"#, if id == 700 { score } else { 0 });
        format!("[{}]", (0..1_000).map(element).collect::<Vec<_>>().join(",")).into_bytes()
    };
    let first = process(Received { bytes_max: 1 << 20, ..received(&list(0, ""), None) }).unwrap().unwrap();
    let kept = || Some(first.document.clone());
    let next = |body: &[u8]| Received { bytes_max: 1 << 20, ..received(body, kept()) };
    let processor = DocumentProcessor::default();
    for space in ["", " "] {
        let body = list(1, space);
        assert!(body.len() > INLINE_BYTES_MAX && next(&body).compare_in_place().is_some());
        let made = processor.process(next(&body)).await.unwrap().unwrap();
        assert_eq!(
            made.patch.unwrap().operations,
            &br#"[{"op":"replace","path":"/700/score","value":1}]"#[..]
        );
        assert_eq!(made.document.body, list(1, ""));
        assert!(Arc::ptr_eq(&made.document.content_type, &first.document.content_type));
    }
    assert!(processor.process(next(&list(0, " "))).await.unwrap().is_none());
    // Other documents are left to the blocking pool.
    let latin = Some("application/json; charset=iso-8859-1".to_owned());
    let text = Document { json: false, ..Document::clone(&first.document) };
    assert!(Received { content_type: latin, ..next(&list(1, "")) }.compare_in_place().is_none());
    assert!(Received { kept: Some(text.into()), ..next(&list(1, "")) }.compare_in_place().is_none());
    assert!(Received { coding: Coding::Gzip, ..next(&list(1, "")) }.compare_in_place().is_none());
    let shifted = [b"[0,".to_vec(), list(0, "")[1..].to_vec()].concat();
    assert!(next(&shifted).compare_in_place().is_none());
    assert!(next(b"[").compare_in_place().is_none());
}

/// A document with more values than a comparison allows (2²⁰) is sent without a patch.
#[test]
fn a_document_too_large_to_compare_is_sent_whole() {
    let large = |last: &str| [b"[ ".to_vec(), b"1,".repeat(1 << 20), last.into(), b"]".to_vec()].concat();
    let version = |body: Vec<u8>, kept| {
        let bytes_max = 4 << 20;
        process(Received { bytes_max, ..received(&body, kept) }).unwrap()
    };
    let first = version(large("1"), None).unwrap();
    assert_eq!(&first.document.body[..3], b"[1,");
    assert!(version(large("1"), Some(first.document.clone())).is_none());
    let second = version(large("2"), Some(first.document)).unwrap();
    assert_eq!(second.patch, None);
    assert_eq!(version(b"[]".to_vec(), Some(second.document)).unwrap().patch, None);
    assert_eq!(process(received(&large("x"), None)).unwrap_err().class().outcome(), "failed_invalid_json");
}

#[test]
fn a_json_content_type_requires_json() {
    let check = |content_type: Option<&str>, json_only, body: &[u8], expect: Result<(bool, &str), &str>| {
        let content_type = content_type.map(String::from);
        let version = processed(Received { content_type, json_only, ..received(body, None) });
        let found = version.map(Option::unwrap);
        match (&found, expect) {
            (Ok(document), Ok((json, content_type))) => {
                assert_eq!((document.json, &*document.content_type), (json, content_type));
            }
            (Err(failure), Err(label)) => assert_eq!(failure.class().outcome(), label),
            _ => panic!("{:?}, expected {expect:?}", found.is_ok()),
        }
    };
    check(Some("application/geo+json"), false, b"{}", Ok((true, "application/geo+json")));
    check(Some("text/html"), true, b"{}", Ok((true, "application/json")));
    check(None, true, b"{}", Ok((true, "application/json")));
    check(None, false, b"{}", Ok((false, "application/octet-stream")));
    check(Some("text/csv"), false, b"a;b \n", Ok((false, "text/csv")));
    check(Some("application/json"), false, b"<html>", Err("failed_invalid_json"));
    check(Some("text/html"), true, b"<html>", Err("failed_not_json"));
    check(Some("text/html"), true, b"", Err("failed_not_json"));
    let deep = "[".repeat(900);
    check(Some("application/json"), true, deep.as_bytes(), Err("failed_invalid_json"));
}

#[test]
fn other_content_is_compared_by_bytes_and_type() {
    let text = |content_type: &str, kept| Received {
        content_type: Some(content_type.into()),
        json_only: false,
        ..received(b"1", kept)
    };
    let first = processed(text("text/plain", None)).unwrap().unwrap();
    assert!(processed(text("text/plain", Some(first.clone()))).unwrap().is_none());
    assert!(processed(text("text/csv", Some(first.clone()))).unwrap().is_some());
    assert!(processed(text("application/json", Some(first))).unwrap().is_some());
}
