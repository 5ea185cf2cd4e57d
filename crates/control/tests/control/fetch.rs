//! Tests of `POST /api/v1/fetch`.

use crate::common::*;
use serde_json::Value;
use std::sync::atomic::Ordering;
use stentor_control::{AdminOptions, FeedsOptions, Options};

/// Requests a fetch of this key. Returns the status and body of the response.
async fn fetch(rig: &Rig, key: &str) -> (u16, Value) {
    let (status, text) = rig.post("/api/v1/fetch", &format!(r#"{{"key":"{key}"}}"#)).await;
    (status, serde_json::from_str(&text).unwrap())
}

fn too_many() -> Answer {
    with(bare(429), "retry-after", "3600")
}

async fn retry_after(rig: &Rig) -> u64 {
    let (_, status) = rig.admin("/api/v1/status").await;
    let status: Value = serde_json::from_str(&status).unwrap();
    status["upstreams"][0]["retry_after_seconds"].as_u64().unwrap()
}

#[tokio::test]
async fn a_document_that_is_fetched_on_request_ends_a_hold() {
    let addr = script(vec![too_many(), bare(500), ok("[ 7 ]")]).await;
    let rig = Rig::feeds(vec![hourly("s", addr)]);
    rig.want("s/k");
    rig.plane.expect(&["s/k:stale:the upstream answered 429"]).await;
    let (status, answer) = fetch(&rig, "s/k").await;
    let text = answer["text"].as_str().unwrap();
    assert_eq!((status, &answer["document"]), (200, &Value::Bool(false)), "{text}");
    assert!(text.contains("failure: server_error: "), "{text}");
    assert!(retry_after(&rig).await > 3000, "no document, so the hold goes on");

    let (status, answer) = fetch(&rig, "s/k").await;
    let text = answer["text"].as_str().unwrap();
    assert_eq!((status, &answer["document"]), (200, &Value::Bool(true)), "{text}");
    assert!(text.starts_with(&format!("feed: s\nURL: http://{addr}/api/s/k\n")), "{text}");
    assert!(text.contains("document: application/json, 3 bytes, of 5 received\n"), "{text}");
    rig.plane.expect(&["s/k=[7]"]).await;
    assert_eq!(retry_after(&rig).await, 0);
}

#[tokio::test]
async fn keys_without_subscribers_are_fetched_and_not_kept() {
    let (addr, requests) = counted(|_, _| std::future::ready(ok("1"))).await;
    let rig = Rig::feeds(vec![hourly("s", addr)]);
    let (_, answer) = fetch(&rig, "s/k").await;
    assert_eq!(answer["document"], Value::Bool(true));
    for (body, expect) in [
        (r#"{"key":"a//b"}"#, (400, "key")),
        (r#"{"key":"t/k"}"#, (404, "no_feed")),
        (r#"{"keys":["s/k"]}"#, (400, "command")),
        (r#"["s/k"]"#, (400, "command")),
    ] {
        let (status, text) = rig.post("/api/v1/fetch", body).await;
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, answer["code"].as_str().unwrap()), expect, "{body}");
    }
    rig.expect_metrics(&[("stentor_feed_keys{state=\"live\"}", 0.0)]).await;
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_fetch_follows_a_reload() {
    let (first, second) = (script(vec![ok("1")]).await, script(vec![ok("[2]")]).await);
    let rig = Rig::new(FeedsOptions::default(), AdminOptions::default());
    assert_eq!(fetch(&rig, "s/k").await.0, 404);
    for (addr, bytes) in [(first, "1 bytes"), (second, "3 bytes")] {
        let options = Options { feeds: feeds(vec![hourly("s", addr)]), ..Options::default() };
        rig.control.handle().configure(options.prepare().unwrap()).await;
        let (_, answer) = fetch(&rig, "s/k").await;
        assert!(answer["text"].as_str().unwrap().contains(bytes), "{answer}");
    }
}
