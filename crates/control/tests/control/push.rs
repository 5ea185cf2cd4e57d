//! Tests of `PUT` and `DELETE /api/v1/feeds/KEY`: what the data plane receives, and refusals. Tests of the list of these keys.

use crate::common::*;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stentor_control::{AdminOptions, FeedsOptions, PushedKeys};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

/// Time that a push waits before it is refused as busy.
const BUSY: Duration = Duration::from_millis(50);

fn rig(change: impl Fn(&mut FeedsOptions)) -> Rig {
    let addr = "127.0.0.1:9".parse().unwrap();
    let mut options = feeds(vec![upstream("api", addr)]);
    change(&mut options);
    let admin = AdminOptions { busy_timeout: BUSY, ..AdminOptions::default() };
    Rig::new(options, admin)
}

/// Makes the request of a push or a deletion.
fn push(method: &str, key: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    request(method, &format!("/api/v1/feeds/{key}"), fields, body)
}

async fn put(rig: &Rig, key: &str, body: &str) -> (u16, String) {
    rig.send(&push("PUT", key, JSON, body.as_bytes())).await
}

/// Pushes a document, and asserts that it is a new version.
async fn put_new(rig: &Rig, key: &str, body: &str) {
    assert_eq!(put(rig, key, body).await, (200, CHANGED.into()), "{key}");
}

async fn delete(rig: &Rig, key: &str) -> (u16, String) {
    rig.send(&push("DELETE", key, "", b"")).await
}

/// Waits for the next update, and asserts that it is a document of this key.
async fn expect_document(rig: &Rig, key: &str) {
    let update = rig.plane.next().await;
    assert!(update.starts_with(&format!("{key}=")), "{update}");
}

const CHANGED: &str = "{\"changed\":true}\n";
const SAME: &str = "{\"changed\":false}\n";

fn string(len: usize) -> String {
    format!("\"{}\"", "x".repeat(len - 2))
}

/// Makes a document so long that a patch of its last number is shorter.
fn list(last: u32) -> String {
    format!(r#"["{}",{last}]"#, "x".repeat(100))
}

#[tokio::test]
async fn documents_reach_the_data_plane_with_their_patches() {
    let rig = rig(|_| {});
    put_new(&rig, "scores/1", &format!(" {}\n", list(1))).await;
    assert_eq!(rig.plane.next().await, format!("scores/1={}", list(1)));
    assert_eq!(put(&rig, "scores/1", &list(1).replace(",1]", ", 1.0 ]")).await, (200, SAME.into()));
    put_new(&rig, "scores/1", &list(2)).await;
    let expect = format!(r#"scores/1={} by [{{"op":"replace","path":"/1","value":2}}]"#, list(2));
    assert_eq!(rig.plane.next().await, expect);
    // A document that isn't JSON is passed on unchanged.
    assert_eq!(
        rig.send(&push("PUT", "page", "content-type: text/html\r\n", b" <p> ")).await,
        (200, CHANGED.into())
    );
    rig.plane.expect(&["page= <p> "]).await;
    rig.expect_metrics(&[
        ("stentor_feed_pushes_total", 3.0),
        ("stentor_feed_pushed_keys", 2.0),
        ("stentor_feed_pushed_documents_bytes", (list(2).len() + 5) as f64),
    ])
    .await;
    assert!(!rig.plane.has_updates());
}

/// The control plane has the list without the data plane, which only counts the subscribers.
#[tokio::test]
async fn keys_are_listed_at_once_while_a_core_is_overloaded() {
    let rig = rig(|_| {});
    put_new(&rig, "k", "1").await;
    rig.plane.expect(&["k=1"]).await;
    let listed = |subscribers: &str| {
        let feed = r#""key":"k","pushed":true,"state":"live","document_bytes":1,"subscribed":false"#;
        (200, format!("{{\"feeds\":[{{{feed}{subscribers}}}],\"count\":1,\"truncated\":false}}\n"))
    };
    assert_eq!(rig.admin("/api/v1/feeds").await, listed(r#","subscribers":2"#));
    rig.plane.busy.store(usize::MAX, Ordering::SeqCst);
    assert_eq!(rig.admin("/api/v1/feeds").await, listed(""));
    assert_eq!(rig.plane.refusals.load(Ordering::SeqCst), 1, "it doesn't repeat the question");
}

#[tokio::test]
async fn a_key_with_a_new_subscriber_is_sent_again_and_a_deleted_key_is_not_found() {
    let rig = rig(|_| {});
    put(&rig, "k", "1").await;
    rig.plane.expect(&["k=1"]).await;
    rig.want("k");
    rig.plane.expect(&["k=1"]).await;
    rig.plane.want("k", false);
    assert_eq!(delete(&rig, "k").await, (200, CHANGED.into()));
    rig.plane.expect(&["k:not_found:it was deleted", "k:forget"]).await;
    let (status, body) = delete(&rig, "k").await;
    assert!(status == 404 && body.contains("not_found"), "{body}");
    rig.want("k");
    rig.plane.expect(&["k:not_found:no feed is configured for this key", "k:forget"]).await;
    // After its deletion, the key can be pushed again.
    put_new(&rig, "k", "1").await;
    rig.plane.expect(&["k=1"]).await;
}

#[tokio::test]
async fn an_invalid_push_is_refused_and_changes_nothing() {
    let rig = rig(|options| {
        options.pushed_keys_max = 2;
        options.pushed_document_bytes_max = 100;
        options.pushed_documents_bytes_max = 120;
    });
    let check = async |answer: (u16, String), status: u16, code: &str| {
        assert_eq!(answer.0, status, "{}", answer.1);
        assert!(answer.1.contains(&format!(r#""code":"{code}""#)), "{}", answer.1);
    };
    check(put(&rig, "api/1", "1").await, 409, "fetched").await;
    check(delete(&rig, "api/1").await, 409, "fetched").await;
    check(put(&rig, "a//b", "1").await, 400, "key").await;
    check(put(&rig, "a", "{").await, 400, "document").await;
    check(put(&rig, "a", "").await, 400, "document").await;
    check(put(&rig, "a", &string(101)).await, 413, "too_long").await;
    check(rig.send(&push("PUT", "a", "", b"1")).await, 415, "content_type").await;
    // Refused documents take no space.
    put_new(&rig, "a", &string(100)).await;
    rig.want("a");
    expect_document(&rig, "a").await;
    expect_document(&rig, "a").await;
    check(put(&rig, "b", &string(21)).await, 507, "no_space").await;
    put_new(&rig, "b", &string(20)).await;
    expect_document(&rig, "b").await;
    rig.want("b");
    expect_document(&rig, "b").await;
    check(put(&rig, "c", "1").await, 507, "too_many_keys").await;
    // After an invalid push, the key keeps its last document.
    check(put(&rig, "b", "nope").await, 400, "document").await;
    assert_eq!(put(&rig, "b", &string(20)).await, (200, SAME.into()));
    rig.plane.busy.store(usize::MAX, Ordering::SeqCst);
    check(put(&rig, "b", "2").await, 503, "busy").await;
    rig.plane.busy.store(0, Ordering::SeqCst);
    put_new(&rig, "b", "2").await;
    put_new(&rig, "a", "1").await;
    assert_eq!(delete(&rig, "a").await, (200, CHANGED.into()));
    put_new(&rig, "c", &string(100)).await;
    assert_eq!(rig.metric("stentor_feed_pushed_documents_bytes").await, Some(101.0));
    let refusals = rig.metric("stentor_feed_push_refusals_total{reason=\"document\"}").await;
    assert_eq!(refusals, Some(3.0));
}

#[tokio::test]
async fn concurrent_pushes_to_one_key_are_serialized() {
    let rig = Arc::new(rig(|_| {}));
    let mut pushes = JoinSet::new();
    for n in 0..20 {
        let rig = rig.clone();
        pushes.spawn(async move { put_new(&rig, "k", &list(n)).await });
    }
    pushes.join_all().await;
    // The fake plane checks that each patch applies to the previous document.
    for n in 0..20 {
        let update = rig.plane.next().await;
        assert_eq!(update.contains(" by "), n > 0, "{update}");
    }
}

#[tokio::test]
async fn keys_without_subscribers_are_evicted_least_recently_used_first() {
    let rig = rig(|options| {
        options.pushed_keys_max = 4;
        options.pushed_documents_bytes_max = 100;
    });
    for key in ["a", "b", "c"] {
        put_new(&rig, key, &string(30)).await;
        expect_document(&rig, key).await;
    }
    // `a` has a subscriber, so it isn't evicted. The push to `b` makes `c` the least recently used key.
    rig.want("a");
    expect_document(&rig, "a").await;
    assert_eq!(put(&rig, "b", &string(30)).await, (200, SAME.into()));
    put_new(&rig, "d", &string(40)).await;
    rig.plane.expect(&["c:forget"]).await;
    expect_document(&rig, "d").await;
    rig.expect_metrics(&[
        ("stentor_feed_pushed_documents_bytes", 100.0),
        ("stentor_feed_pushed_evicted_keys_total", 1.0),
    ])
    .await;
    // A document that can't fit is refused without evicting others.
    let (status, body) = put(&rig, "e", &string(71)).await;
    assert!(status == 507 && body.contains("no_space"), "{body}");
    assert_eq!(rig.metric("stentor_feed_pushed_keys").await, Some(3.0));
    // A new version takes the space of the key's previous version, so only `b` is evicted.
    put_new(&rig, "d", &string(70)).await;
    rig.plane.expect(&["b:forget"]).await;
    expect_document(&rig, "d").await;
    // Without its subscriber, `a` is evicted for a fifth key. The update of `api/seen` shows that the control
    // plane has processed the change of `a`: changes are processed in order.
    rig.plane.want("a", false);
    rig.want("api/seen");
    assert!(rig.plane.next().await.starts_with("api/seen:stale"));
    for key in ["d", "f", "g", "h"] {
        put_new(&rig, key, "1").await;
        if key == "h" {
            rig.plane.expect(&["a:forget"]).await;
        }
        expect_document(&rig, key).await;
    }
    assert_eq!(rig.metric("stentor_feed_pushed_keys").await, Some(4.0));
}

#[tokio::test]
async fn a_push_with_an_old_sequence_is_refused() {
    let rig = rig(|_| {});
    let check = async |method: &str, query: &str, body: &str, status: u16, expect: &str| {
        let found = rig.send(&push(method, &format!("k{query}"), JSON, body.as_bytes())).await;
        assert!(found.0 == status && found.1.contains(expect), "{method} {query}: {found:?}");
    };
    check("PUT", "?sequence=7", "7", 200, "true").await;
    check("PUT", "?sequence=6", "6", 409, "sequence 6 is too old: the last one was 7").await;
    // A push with the last sequence number (a retry) is accepted.
    check("PUT", "?sequence=7", "7", 200, "false").await;
    // A push without a sequence number is accepted, and doesn't change the last number.
    check("PUT", "", "0", 200, "true").await;
    check("PUT", "?sequence=6", "6", 409, "sequence").await;
    // A push of an unchanged value also sets the last number.
    check("PUT", "?sequence=9", "0", 200, "false").await;
    check("PUT", "?sequence=8", "8", 409, "sequence").await;
    check("DELETE", "?sequence=8", "", 409, "sequence").await;
    check("DELETE", "?sequence=9", "", 200, "true").await;
    // A deletion also removes the last number.
    check("PUT", "?sequence=1", "1", 200, "true").await;
    check("PUT", "?sequense=1", "1", 400, "the only query parameter is sequence=N").await;
    rig.plane.expect(&["k=7", "k=0", "k:not_found:it was deleted", "k:forget", "k=1"]).await;
}

#[tokio::test]
async fn compressed_documents_are_inflated_within_the_limit() {
    let rig = rig(|options| options.pushed_document_bytes_max = 1000);
    let gzip = |body: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    };
    let check = async |coding: &str, body: &[u8], status: u16, expect: &str| {
        let fields = format!("{JSON}content-encoding: {coding}\r\n");
        let found = rig.send(&push("PUT", "k", &fields, body)).await;
        assert!(found.0 == status && found.1.contains(expect), "{coding}: {found:?}");
    };
    check("gzip", &gzip(b" [1, 2] "), 200, "true").await;
    rig.plane.expect(&["k=[1,2]"]).await;
    check("gzip", &gzip(&vec![b' '; 200_000]), 413, "feeds_limits.pushed_document_bytes_max").await;
    check("gzip", b"[1]", 400, "the compressed body is broken").await;
    check("br", &[0x11, 0xff], 400, "large window").await;
    check("zstd", b"[1]", 415, "use gzip, br or none").await;
    check("identity", b"[3]", 200, "true").await;
    rig.plane.expect(&["k=[3]"]).await;
}

/// The server finishes a push whose client disconnects before the response. Here it refuses the push as busy,
/// and keeps no bytes of it.
#[tokio::test]
async fn a_push_with_a_disconnected_sender_leaves_nothing_behind() {
    let rig = rig(|_| {});
    rig.plane.busy.store(usize::MAX, Ordering::SeqCst);
    let stream = rig.begin(&push("PUT", "k", JSON, b"1")).await;
    rig.plane.until_refused().await;
    drop(stream);
    rig.until_metric("stentor_feed_pushed_keys", |keys| keys == 0.0).await;
    assert_eq!(rig.metric("stentor_feed_pushed_documents_bytes").await, Some(0.0));
    rig.plane.busy.store(0, Ordering::SeqCst);
    put_new(&rig, "k", "1").await;
}

#[tokio::test]
async fn bodies_in_transit_are_bounded_together() {
    let rig = rig(|options| {
        options.pushed_document_bytes_max = 64 << 10;
        options.pushed_documents_bytes_max = 64 << 10;
    });
    let whole = push("PUT", "k", JSON, string(60 << 10).as_bytes());
    let (head, body) = whole.split_at(whole.len() - (60 << 10));
    let taken = async |bytes: usize| {
        rig.until_metric("stentor_feed_pushed_bodies_bytes", |taken| taken == bytes as f64).await;
    };
    let mut slow = rig.begin(head).await;
    taken(60 << 10).await;
    // While 60 KiB are in use, a small push is accepted. A larger one waits for space, and is refused after
    // `BUSY`.
    put_new(&rig, "j", &list(100)).await;
    expect_document(&rig, "j").await;
    let (status, text) = put(&rig, "j", &string(8 << 10)).await;
    assert!(status == 503 && text.contains("busy"), "{status} {text}");
    slow.write_all(body).await.unwrap();
    assert_eq!(answer(&mut slow).await, (200, CHANGED.into()));
    taken(0).await;
    // A client that disconnects frees its space.
    let gone = rig.begin(head).await;
    taken(60 << 10).await;
    drop(gone);
    taken(0).await;
}

/// A client that subscribes during the first push of a key receives `not_found` if the push fails.
#[tokio::test]
async fn a_failed_first_push_is_reported_to_waiting_subscribers() {
    let rig = rig(|_| {});
    rig.plane.busy.store(usize::MAX, Ordering::SeqCst);
    let pushed = async { put(&rig, "k", "1").await };
    let wanted = async {
        rig.plane.until_refused().await;
        // Pauses the clock, so that the push doesn't time out before the subscription is processed.
        tokio::time::pause();
        rig.want("k");
        rig.plane.until("the subscription to be seen", |plane| (!plane.has_wanted()).then_some(())).await;
        tokio::time::advance(BUSY).await;
        tokio::time::resume();
    };
    let ((status, body), ()) = tokio::join!(pushed, wanted);
    assert!(status == 503 && body.contains("busy"), "{body}");
    rig.plane.busy.store(0, Ordering::SeqCst);
    let lost = rig.plane.next().await;
    assert!(lost.starts_with("k:not_found:no "), "{lost}");
    rig.plane.expect(&["k:forget"]).await;
    assert_eq!(rig.metric("stentor_feed_pushed_keys").await, Some(0.0));
    put_new(&rig, "k", "1").await;
    rig.plane.expect(&["k=1"]).await;
}

/// A key that the configuration declares as pushed isn't `not_found` before its first push. Its subscribers
/// wait.
#[tokio::test]
async fn subscribers_of_a_declared_key_wait_for_its_first_push() {
    let rig = rig(|options| {
        options.pushed = vec![PushedKeys { prefix: "live/".into(), ..PushedKeys::default() }];
        options.upstreams[0].prefix = "live/fetched/".into();
        options.pushed_keys_max = 1;
    });
    // The declared key `live/a` causes no update: the first update is for `b`.
    rig.want("live/a");
    rig.want("b");
    rig.plane.expect(&["b:not_found:no feed is configured for this key", "b:forget"]).await;
    // At the maximum of waiting keys, another declared key is `not_found`.
    rig.want("live/b");
    let lost = rig.plane.next().await;
    assert!(lost.starts_with("live/b:not_found:too many keys wait for their first document"), "{lost}");
    rig.plane.expect(&["live/b:forget"]).await;
    rig.plane.want("live/b", false);
    // After a failed push, subscribers still wait.
    assert_eq!(put(&rig, "live/a", "{").await.0, 400);
    put_new(&rig, "live/a", "1").await;
    rig.plane.expect(&["live/a=1"]).await;
    // `live/a` has a subscriber, so it isn't evicted for `live/b`.
    assert_eq!(put(&rig, "live/b", "1").await.0, 507);
    rig.plane.want("live/a", false);
    assert_eq!(rig.metric("stentor_feed_pushed_keys").await, Some(1.0));
    put_new(&rig, "live/b", "2").await;
    rig.plane.expect(&["live/a:forget", "live/b=2"]).await;
    // After the key's deletion, new subscribers wait for its next push.
    assert_eq!(delete(&rig, "live/b").await.0, 200);
    rig.plane.expect(&["live/b:not_found:it was deleted", "live/b:forget"]).await;
    rig.want("live/b");
    rig.plane.want("b", false);
    rig.want("b");
    rig.plane.expect(&["b:not_found:no feed is configured for this key", "b:forget"]).await;
    // A key that matches an upstream with a longer prefix can't be pushed.
    assert_eq!(put(&rig, "live/fetched/a", "1").await.0, 409);
}
