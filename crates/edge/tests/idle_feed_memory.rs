//! The memory of a feed whose document doesn't change, with a subscriber: little more than the document. There is one test, so
//! that no other test runs in this process, because memory is measured per process. Memory on the heap is counted.

#![allow(clippy::unwrap_used, clippy::print_stderr)] // Tests may panic, and say what they found.

mod harness;

use bytes::Bytes;
use cap::Cap;
use harness::Server;
use stentor_hub::{Document, Patch};
use stentor_ports::{DocumentChange, FeedUpdate};

/// The server's allocator, counted.
#[global_allocator]
static ALLOCATOR: Cap<mimalloc::MiMalloc> = Cap::new(mimalloc::MiMalloc, usize::MAX);

const KEYS: usize = 2_000;
/// Size of each document. It contains no characters that JSON or SSE escapes.
const DOCUMENT_BYTES: usize = 4_870;
/// Maximum memory of a feed besides its document: on a core with a subscription, and of one session.
const REST_BYTES_MAX: usize = 710;
const REST_AFTER_PATCH_BYTES_MAX: usize = 970;

fn document(version: usize) -> Bytes {
    let number = format!("{version:09}");
    let text = format!(r#"{{"n":"{number}","rest":"{}"}}"#, "x".repeat(DOCUMENT_BYTES - 27));
    assert_eq!(text.len(), DOCUMENT_BYTES);
    text.into_boxed_str().into_boxed_bytes().into()
}

fn patch(before: Bytes, version: usize) -> Patch {
    let operations = format!(r#"[{{"op":"replace","path":"/n","value":"{version:09}"}}]"#);
    Patch { base: before, operations: operations.into_boxed_str().into_boxed_bytes().into() }
}

/// Waits until the server has freed its frames, takes the reports of subscribers as the control plane does, and checks that a feed
/// then takes at most `most` bytes besides its document.
fn check(server: &Server, before: usize, most: usize, what: &str) {
    server.until_metric("memory_bytes{frames}", |bytes| bytes == 0);
    drop(server.plane().take_key_interest());
    let (taken, most) = (ALLOCATOR.allocated().saturating_sub(before) / KEYS, DOCUMENT_BYTES + most);
    eprintln!("{what}: {taken} bytes per feed, at most {most}");
    assert!(taken > DOCUMENT_BYTES && taken <= most, "{what}: {taken} bytes per feed, at most {most}");
}

#[test]
fn an_idle_feed_keeps_its_document_and_no_frame() {
    let server = Server::start(1, |options| options.limits.subscriptions_max = KEYS + 1);
    let mut ws = server.ws("/ws");
    ws.next_json();
    let update = |name: &str, update: FeedUpdate| {
        server.update(name, update);
        server.until_metric("inbox_messages", |waiting| waiting == 0);
    };
    let of = |body: Bytes| Document { body, json: true, content_type: "application/json".into() };
    let mut feed = |name: &str| {
        update(name, FeedUpdate::Changed(of(document(0)).into()));
        ws.ask(serde_json::json!({"type": "subscribe", "feed": name}));
        while !ws.next_text().contains("xxx") {}
    };
    // The first feed makes the memory of threads, allocator and buffers grow.
    feed("warm");
    let before = ALLOCATOR.allocated();
    let names: Vec<String> = (0..KEYS).map(|key| format!("feeds/of-some-length/{key:04}")).collect();
    names.iter().for_each(|name| feed(name));
    check(&server, before, REST_BYTES_MAX, "with its first document");

    for name in &names {
        let next = of(document(1)).into();
        update(
            name,
            FeedUpdate::Changed(DocumentChange { document: next, patch: Some(patch(document(0), 1)) }),
        );
        assert!(ws.next_text().contains("000000001"));
    }
    check(&server, before, REST_AFTER_PATCH_BYTES_MAX, "after a patch");
}
