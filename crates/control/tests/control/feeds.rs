//! Feeds from upstreams on loopback that change, stall, fail and lie, into a fake data plane.

use crate::common::*;
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http_body_util::Full;
use hyper::Response;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_control::{AdminOptions, Content, FeedsOptions, UpstreamOptions};
use stentor_edge::ControlPlane;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Notify, Semaphore};

#[tokio::test]
async fn a_subscribed_key_is_fetched_and_its_changes_are_sent() {
    let bodies = [
        "{ \"a\": 1, \"b\": [] }",
        // The same value, written otherwise: not told.
        "{\"a\":1,\"b\":[]}",
        "{\"b\":[],\"a\":1.0}",
        "{\"a\":0,\"b\":[],\"a\":1}",
        "{\"a\":2,\"b\":[]}",
        "null",
    ];
    let paths = Arc::new(Mutex::new(Vec::new()));
    let seen = paths.clone();
    let addr = http(move |n, request| {
        seen.lock().unwrap().push(request.uri().to_string());
        async move { ok(bodies[n.min(bodies.len() - 1)]) }
    })
    .await;
    let rig = Rig::feeds(vec![upstream("s", addr)]);
    rig.plane.want("s/x/1", true);
    assert_eq!(rig.plane.next().await, "s/x/1={\"a\":1,\"b\":[]}");
    assert_eq!(rig.plane.next().await, "s/x/1={\"a\":2,\"b\":[]}");
    assert_eq!(rig.plane.next().await, "s/x/1=null");
    assert!(paths.lock().unwrap().iter().all(|path| path == "/api/s/x/1"));
    assert_eq!(rig.metric("stentor_feed_fetches_total{upstream=\"s\",outcome=\"changed\"}").await, Some(3.0));
    assert!(
        rig.metric("stentor_feed_fetches_total{upstream=\"s\",outcome=\"unchanged\"}").await >= Some(3.0)
    );
    assert_eq!(rig.metric("stentor_feed_keys{state=\"live\"}").await, Some(1.0));
    assert_eq!(rig.metric("stentor_feed_documents_bytes").await, Some(4.0));
    rig.control.shutdown().await;
}

#[tokio::test]
async fn requests_are_conditional_and_carry_the_configured_fields() {
    let full = Arc::new(AtomicUsize::new(0));
    let answers = full.clone();
    let addr = http(move |n, request| {
        let field = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(field("authorization").as_deref(), Some("Bearer upstream"));
        assert_eq!(field("accept-encoding").as_deref(), Some("gzip, br"));
        assert_eq!(request.uri(), "/api/s/k?id=7");
        let etag = if n < 5 { "\"one\"" } else { "\"two\"" };
        let known = field("if-none-match").as_deref() == Some(etag);
        let answers = answers.clone();
        async move {
            if known {
                return bare(304, &[]);
            }
            answers.fetch_add(1, Ordering::SeqCst);
            let mut answer = ok(etag);
            answer.headers_mut().insert("etag", etag.parse().unwrap());
            answer
        }
    })
    .await;
    let rig = Rig::feeds(vec![UpstreamOptions {
        url: format!("http://{addr}/api/?id=7"),
        headers: vec![("Authorization".into(), "Bearer upstream".into())],
        ..upstream("s", addr)
    }]);
    rig.plane.want("s/k", true);
    assert_eq!(rig.plane.next().await, "s/k=\"one\"");
    assert_eq!(rig.plane.next().await, "s/k=\"two\"");
    assert_eq!(full.load(Ordering::SeqCst), 2);
    // Fetching goes on meanwhile.
    let not_modified =
        rig.metric("stentor_feed_fetches_total{upstream=\"s\",outcome=\"not_modified\"}").await;
    assert!(not_modified.is_some_and(|count| count >= 4.0), "{not_modified:?}");
}

#[tokio::test]
async fn many_subscribers_of_a_cold_key_cost_one_request() {
    let (requests, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (count, open) = (requests.clone(), gate.clone());
    let addr = http(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        let open = open.clone();
        async move {
            let _permit = open.acquire().await.unwrap();
            ok("1")
        }
    })
    .await;
    let hour = Duration::from_secs(3600);
    let rig = Rig::feeds(vec![UpstreamOptions { poll_interval: hour, ..upstream("s", addr) }]);
    for _ in 0..1000 {
        rig.plane.want("s/k", true);
        tokio::task::yield_now().await;
    }
    gate.add_permits(1);
    assert_eq!(rig.plane.next().await, "s/k=1");
    // Subscribing and unsubscribing in a loop forces nothing; a key that is new is the proof that it was seen.
    for _ in 0..1000 {
        rig.plane.want("s/k", false);
        rig.plane.want("s/k", true);
        tokio::task::yield_now().await;
    }
    rig.plane.want("s/other", true);
    gate.add_permits(1);
    assert_eq!(rig.plane.next().await, "s/other=1");
    assert_eq!(requests.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_complete_key_is_reported_once_and_not_fetched_again() {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    let addr = http(move |_, request| {
        count.fetch_add(1, Ordering::SeqCst);
        let gone = request.uri().path().ends_with("gone");
        async move {
            if gone {
                return bare(410, &[]);
            }
            let mut last = ok("\"last\"");
            last.headers_mut().insert("cache-control", "max-age=0".parse().unwrap());
            last
        }
    })
    .await;
    let rig = Rig::feeds(vec![
        UpstreamOptions { concurrency_max: 1, complete_on_max_age_zero: true, ..upstream("s", addr) },
        UpstreamOptions { complete_on_max_age_zero: true, ignore_cache_control: true, ..upstream("t", addr) },
    ]);
    rig.plane.want("s/k", true);
    assert_eq!(rig.plane.next().await, "s/k=\"last\"");
    assert_eq!(
        rig.plane.next().await,
        "s/k:complete:the upstream said that this is the last version (max-age=0)"
    );
    rig.plane.want("s/gone", true);
    assert_eq!(rig.plane.next().await, "s/gone:complete:the upstream said that it has ended (410)");
    assert_eq!(requests.load(Ordering::SeqCst), 2);
    // An upstream whose Cache-Control is ignored.
    rig.plane.want("t/k", true);
    assert_eq!(rig.plane.next().await, "t/k=\"last\"");
    let more = async {
        while requests.load(Ordering::SeqCst) < 6 {
            tokio::task::yield_now().await
        }
    };
    patiently("more fetches", more).await;
    assert!(!rig.plane.has_updates());
    assert_eq!(rig.metric("stentor_feed_keys{state=\"complete\"}").await, Some(2.0));
}

/// The default headers of Rails, Express, Spring, Django and others.
#[tokio::test]
async fn cache_control_without_a_max_age_ends_no_feed() {
    for cache_control in [
        "max-age=0",
        "max-age=0, private, must-revalidate",
        "no-cache",
        "no-store",
        "no-cache, no-store, max-age=0, must-revalidate",
    ] {
        let addr = http(move |n, _| async move {
            let mut answer = ok(&n.to_string());
            answer.headers_mut().insert("cache-control", cache_control.parse().unwrap());
            answer
        })
        .await;
        let rig = Rig::feeds(vec![upstream("s", addr)]);
        rig.plane.want("s/k", true);
        for n in 0..4 {
            assert_eq!(rig.plane.next().await, format!("s/k={n}"), "{cache_control}");
        }
    }
}

fn encoded(name: &str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut answer = ok("");
    answer.headers_mut().insert("content-encoding", name.parse().unwrap());
    *answer.body_mut() = Full::from(body);
    answer
}

fn gzipped(body: &[u8]) -> Response<Full<Bytes>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).unwrap();
    encoded("gzip", encoder.finish().unwrap())
}

fn brotlied(mut body: &[u8]) -> Response<Full<Bytes>> {
    let mut out = Vec::new();
    brotli::BrotliCompress(
        &mut body,
        &mut out,
        &brotli::enc::BrotliEncoderParams { quality: 5, ..Default::default() },
    )
    .unwrap();
    encoded("br", out)
}

/// An upstream whose first answer is good, whose second is `bad`, and whose third is good again: the feed goes
/// stale, keeps its value, and recovers.
async fn check_bad(bad: fn() -> Response<Full<Bytes>>, reason: &str, label: &str) {
    let addr = http(move |n, _| async move {
        match n {
            0 => ok("\"good\""),
            1 => bad(),
            2 => ok("\"good\""),
            _ => ok("\"new\""),
        }
    })
    .await;
    let limited = UpstreamOptions { document_bytes_max: 1000, ..upstream("s", addr) };
    let rig = Rig::feeds(vec![limited]);
    rig.plane.want("s/k", true);
    assert_eq!(rig.plane.next().await, "s/k=\"good\"");
    assert_eq!(rig.plane.next().await, format!("s/k:stale:{reason}"));
    assert_eq!(rig.plane.next().await, "s/k:live:the upstream answers again");
    assert_eq!(rig.plane.next().await, "s/k=\"new\"");
    let metric = format!("stentor_feed_fetches_total{{upstream=\"s\",outcome=\"{label}\"}}");
    assert_eq!(rig.metric(&metric).await, Some(1.0), "{label}");
}

fn html(body: &str) -> Response<Full<Bytes>> {
    let mut answer = ok(body);
    answer.headers_mut().insert("content-type", "text/html; charset=utf-8".parse().unwrap());
    answer
}

#[tokio::test]
async fn invalid_responses_keep_the_last_value() {
    check_bad(|| bare(500, &[]), "the upstream answered 500", "failed_server_error").await;
    check_bad(|| bare(403, &[]), "the upstream answered 403", "failed_unauthorized").await;
    check_bad(|| bare(204, &[]), "the upstream answered 204", "failed_status").await;
    check_bad(|| ok("{\"a\":"), "the upstream's document is not valid JSON", "failed_invalid_json").await;
    check_bad(|| ok("<html>"), "the upstream's document is not valid JSON", "failed_invalid_json").await;
    check_bad(|| html("<html>"), "the upstream's document is not JSON", "failed_not_json").await;
    check_bad(|| html("{"), "the upstream's document is not JSON", "failed_not_json").await;
    check_bad(|| ok(""), "the upstream's document is not valid JSON", "failed_invalid_json").await;
    check_bad(|| ok(&"[".repeat(900)), "the upstream's document is not valid JSON", "failed_invalid_json")
        .await;
    let too_large = "the upstream's document is too large";
    check_bad(|| ok(&format!("\"{}\"", "x".repeat(1000))), too_large, "failed_too_large").await;
    check_bad(|| gzipped(&vec![b' '; 20 << 20]), too_large, "failed_too_large").await;
    check_bad(|| brotlied(&vec![b' '; 20 << 20]), too_large, "failed_too_large").await;
    let undecodable = "the upstream's response can't be decoded";
    check_bad(|| encoded("gzip", b"not gzip".to_vec()), undecodable, "failed_encoding").await;
    check_bad(|| encoded("br", b"not brotli".to_vec()), undecodable, "failed_encoding").await;
    check_bad(|| encoded("zstd", b"1".to_vec()), undecodable, "failed_encoding").await;
}

#[tokio::test]
async fn compressed_responses_are_decoded() {
    let addr = http(|n, _| async move {
        let body = format!(" {{ \"a\" : {n} }} ");
        if n % 2 == 0 { gzipped(body.as_bytes()) } else { brotlied(body.as_bytes()) }
    })
    .await;
    let rig = Rig::feeds(vec![upstream("s", addr)]);
    rig.plane.want("s/k", true);
    for n in 0..4 {
        assert_eq!(rig.plane.next().await, format!("s/k={{\"a\":{n}}}"));
    }
}

#[tokio::test]
async fn last_modified_is_sent_back_as_it_came() {
    let date = "Sat, 21 Nov 2026 12:00:00 GMT";
    let addr = http(move |n, request| {
        let since =
            request.headers().get("if-modified-since").map(|value| value.to_str().unwrap().to_owned());
        async move {
            match (n, since.as_deref()) {
                (0, None) => {
                    let mut answer = ok("1");
                    answer.headers_mut().insert("last-modified", date.parse().unwrap());
                    answer
                }
                (1, Some(since)) if since == date => bare(304, &[]),
                (2, Some(since)) if since == date => ok("2"),
                // The second version came without.
                (_, None) => ok("3"),
                (n, since) => panic!("{n}: {since:?}"),
            }
        }
    })
    .await;
    let rig = Rig::feeds(vec![upstream("s", addr)]);
    rig.plane.want("s/k", true);
    for n in 1..4 {
        assert_eq!(rig.plane.next().await, format!("s/k={n}"));
    }
}

#[tokio::test]
async fn a_template_gives_the_url_of_a_key_and_other_keys_are_unknown() {
    let paths = Arc::new(Mutex::new(Vec::new()));
    let seen = paths.clone();
    let addr = http(move |_, request| {
        assert_eq!(request.headers().get("x-api-key").unwrap(), "of the configuration");
        seen.lock().unwrap().push(request.uri().to_string());
        async { ok("1") }
    })
    .await;
    let by_key = |name: &str, key: &str, url: &str| UpstreamOptions {
        prefix: String::new(),
        key: key.into(),
        url: format!("http://{addr}{url}"),
        headers: vec![("X-Api-Key".into(), "of the configuration".into())],
        poll_interval: Duration::from_secs(3600),
        ..upstream(name, addr)
    };
    let rig = Rig::feeds(vec![
        by_key("all", "matches/{rest*}", "/any/{rest}"),
        by_key("centre", "matchesfeed/{id}/matchcentre", "/api/match/{id}?full=1"),
        by_key("search", "search/{q}", "/s?q={q}&limit=1"),
        by_key("dots", "d{x}", "/in/{x}/out"),
    ]);
    for (key, expect) in [
        ("matchesfeed/8/matchcentre", "/api/match/8?full=1"),
        ("search/a+b=c", "/s?q=a%2Bb%3Dc&limit=1"),
        ("matches/8/live", "/any/8/live"),
    ] {
        rig.plane.want(key, true);
        assert_eq!(rig.plane.next().await, format!("{key}=1"));
        assert_eq!(paths.lock().unwrap().pop().as_deref(), Some(expect));
    }
    rig.plane.want("matchesfeed/8/other", true);
    assert_eq!(rig.plane.next().await, "matchesfeed/8/other:not_found:no feed is configured for this key");
    assert_eq!(rig.plane.next().await, "matchesfeed/8/other:forget");
    // One that would leave the path isn't asked for.
    rig.plane.want("d..", true);
    assert_eq!(rig.plane.next().await, "d..:not_found:no URL can be built from this key");
    assert_eq!(*paths.lock().unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn fetches_keep_to_the_upstreams_concurrency() {
    let (flying, most, answers) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let arrivals = Arc::new(Semaphore::new(0));
    let (now, highest, permits, arrived) = (flying.clone(), most.clone(), answers.clone(), arrivals.clone());
    let addr = http(move |_, _| {
        highest.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        arrived.add_permits(1);
        let (now, permits) = (now.clone(), permits.clone());
        async move {
            permits.acquire().await.unwrap().forget();
            now.fetch_sub(1, Ordering::SeqCst);
            ok("1")
        }
    })
    .await;
    let limited = UpstreamOptions {
        concurrency_max: 3,
        poll_interval: Duration::from_secs(3600),
        ..upstream("s", addr)
    };
    let rig = Rig::feeds(vec![limited]);
    for n in 0..60 {
        rig.plane.want(&format!("s/{n}"), true);
    }
    arrivals.acquire_many(3).await.unwrap().forget();
    // Each answer lets one more fetch begin. The others wait at the upstream meanwhile.
    for _ in 0..60 {
        answers.add_permits(1);
        assert!(rig.plane.next().await.ends_with("=1"));
    }
    assert_eq!((most.load(Ordering::SeqCst), flying.load(Ordering::SeqCst)), (3, 0));
    assert_eq!(rig.metric("stentor_feed_upstream_waiting_keys{upstream=\"s\"}").await, Some(0.0));
    assert_eq!(rig.metric("stentor_feed_upstream_fetches_in_flight{upstream=\"s\"}").await, Some(0.0));
}

/// The pace itself is the scheduler's, whose tests have a clock of their own.
#[tokio::test]
async fn a_rate_that_is_reached_shows_in_the_metrics() {
    let addr = http(|n, _| async move { ok(&n.to_string()) }).await;
    let limited = UpstreamOptions {
        requests_per_second_max: 20,
        poll_interval: Duration::from_millis(100),
        ..upstream("s", addr)
    };
    let rig = Rig::feeds(vec![limited]);
    for n in 0..10 {
        rig.plane.want(&format!("s/{n}"), true);
    }
    // Ten keys at 20 fetches a second: half a second, and more while the machine is busy.
    let interval = "stentor_feed_upstream_interval_seconds{upstream=\"s\"}";
    while rig.metric(interval).await < Some(0.4) {
        rig.plane.next().await;
    }
    assert!(rig.metric("stentor_feed_upstream_rate_waits_total{upstream=\"s\"}").await >= Some(1.0));
}

/// A fetch uses the connection of the one before, also if that brought no document.
#[tokio::test]
async fn connections_are_used_again() {
    let addrs = Arc::new(Mutex::new(std::collections::HashSet::new()));
    let seen = addrs.clone();
    let addr = raw(move |n, mut stream| {
        seen.lock().unwrap().insert(stream.peer_addr().unwrap());
        async move {
            let (status, body) =
                if n % 3 == 2 { ("503 Unavailable", "later".into()) } else { ("200 OK", n.to_string()) };
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\nretry-after: 0\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(head.as_bytes()).await.ok()?;
            Some(stream)
        }
    })
    .await;
    let rig = Rig::feeds(vec![upstream("s", addr)]);
    rig.plane.want("s/k", true);
    let mut documents = 0;
    while documents < 6 {
        documents += usize::from(rig.plane.next().await.starts_with("s/k="));
    }
    assert_eq!(addrs.lock().unwrap().len(), 1);
}

/// When the pause ends, the scheduler's tests say.
#[tokio::test]
async fn an_upstream_that_answers_429_is_paused_for_all_its_keys() {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    let addr = http(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        async { bare(429, &[("retry-after", "3600")]) }
    })
    .await;
    let other = http(|n, _| async move { ok(&n.to_string()) }).await;
    let patient = FeedsOptions {
        backoff_max: Duration::from_secs(3600),
        ..feeds(vec![upstream("s", addr), upstream("t", other)])
    };
    let rig = Rig::new(patient, AdminOptions::default());
    rig.plane.want("s/1", true);
    assert_eq!(rig.plane.next().await, "s/1:stale:the upstream answered 429");
    rig.plane.want("s/2", true);
    rig.plane.want("t/1", true);
    for _ in 0..10 {
        assert!(rig.plane.next().await.starts_with("t/1="));
    }
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_key_that_answers_404_later_keeps_its_last_value() {
    let addr = http(|n, _| async move { if n == 0 { ok("1") } else { bare(410, &[]) } }).await;
    let rig = Rig::feeds(vec![upstream("s", addr)]);
    rig.plane.want("s/k", true);
    assert_eq!(rig.plane.next().await, "s/k=1");
    assert_eq!(rig.plane.next().await, "s/k:complete:the upstream said that it has ended (410)");
    assert_eq!(rig.metric("stentor_feed_documents_bytes").await, Some(1.0));
    assert_eq!(rig.metric("stentor_feed_fetches_total{upstream=\"s\",outcome=\"gone\"}").await, Some(1.0));
}

/// The original's test key number 12: corrupt once a second, for ever. It costs its own feed only.
#[tokio::test]
async fn a_corrupt_key_is_stale_and_affects_no_other_key() {
    let addr = http(|n, request| async move {
        if request.uri().path().ends_with("12") { ok("{\"matches\": [1, 2,") } else { ok(&n.to_string()) }
    })
    .await;
    let rig = Rig::feeds(vec![upstream("s", addr)]);
    rig.plane.want("s/12", true);
    assert_eq!(rig.plane.next().await, "s/12:stale:the upstream's document is not valid JSON");
    rig.plane.want("s/1", true);
    for _ in 0..5 {
        assert!(rig.plane.next().await.starts_with("s/1="));
    }
    assert!(
        rig.metric("stentor_feed_fetches_total{upstream=\"s\",outcome=\"failed_invalid_json\"}").await
            >= Some(1.0)
    );
    let (_, status) = rig.admin("/api/v1/status").await;
    assert!(status.contains("the document is not valid JSON: the JSON text ends too early"), "{status}");
}

/// Subscribers and metrics receive a new cause while a feed stays stale.
#[tokio::test]
async fn a_different_failure_is_reported_again() {
    let addr = http(|n, _| async move {
        match n {
            0..3 => bare(500, &[]),
            3..6 => bare(401, &[]),
            6..9 => html("<title>Sign in</title>"),
            _ => ok("1"),
        }
    })
    .await;
    let other = http(|_, _| async { ok("1") }).await;
    let hour = UpstreamOptions { poll_interval: Duration::from_secs(3600), ..upstream("s", addr) };
    let rig = Rig::feeds(vec![hour, upstream("t", other)]);
    rig.plane.want("s/k", true);
    for reason in
        ["the upstream answered 500", "the upstream answered 401", "the upstream's document is not JSON"]
    {
        assert_eq!(rig.plane.next().await, format!("s/k:stale:{reason}"));
    }
    assert_eq!(rig.plane.next().await, "s/k=1");
    for outcome in ["failed_server_error", "failed_unauthorized", "failed_not_json"] {
        let fetches = format!("stentor_feed_fetches_total{{upstream=\"s\",outcome=\"{outcome}\"}}");
        assert_eq!(rig.metric(&fetches).await, Some(3.0), "{outcome}");
        let keys = outcome.trim_start_matches("failed_");
        let keys = format!("stentor_feed_failing_keys{{upstream=\"s\",failure=\"{keys}\"}}");
        assert_eq!(rig.metric(&keys).await, Some(0.0), "{outcome}");
    }
    // An upstream that has never failed has no such lines.
    let never = rig.metric("stentor_feed_failing_keys{upstream=\"t\",failure=\"server_error\"}").await;
    assert_eq!(never, None);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let metadata = Arc::new(AtomicUsize::new(0));
    let asked = metadata.clone();
    let target = http(move |_, _| {
        asked.fetch_add(1, Ordering::SeqCst);
        async { ok("\"secret\"") }
    })
    .await;
    let addr = http(move |_, _| async move {
        let location = format!("http://{target}/latest/meta-data");
        bare(302, &[("location", &location)])
    })
    .await;
    let rig = Rig::feeds(vec![upstream("s", addr)]);
    rig.plane.want("s/k", true);
    // Subscribers learn that it failed, the operator where it pointed.
    assert_eq!(rig.plane.next().await, "s/k:stale:the upstream answered 302");
    let (_, status) = rig.admin("/api/v1/status").await;
    assert!(status.contains("a redirect to the host 127.0.0.1; redirects aren't followed"), "{status}");
    assert_eq!(metadata.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn unknown_keys_are_not_found() {
    let found = Arc::new(AtomicUsize::new(0));
    let there = found.clone();
    let addr = http(move |_, _| {
        let there = there.load(Ordering::SeqCst) > 0;
        async move { if there { ok("1") } else { bare(404, &[]) } }
    })
    .await;
    let rig = Rig::feeds(vec![upstream("s", addr)]);
    rig.plane.want("nobody/serves/this", true);
    assert_eq!(rig.plane.next().await, "nobody/serves/this:not_found:no feed is configured for this key");
    assert_eq!(rig.plane.next().await, "nobody/serves/this:forget");
    rig.plane.want("s/k", true);
    assert_eq!(rig.plane.next().await, "s/k:not_found:the upstream has no such key (404)");
    // While it is wanted it is looked at again.
    found.store(1, Ordering::SeqCst);
    assert_eq!(rig.plane.next().await, "s/k=1");
}

#[tokio::test]
async fn ever_new_keys_are_bounded() {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    let addr = http(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        async { ok("1") }
    })
    .await;
    let slow = UpstreamOptions { poll_interval: Duration::from_secs(3600), ..upstream("s", addr) };
    let rig = Rig::new(FeedsOptions { keys_max: 10, ..feeds(vec![slow]) }, AdminOptions::default());
    for i in 0..1000 {
        rig.plane.want(&format!("s/{i}"), true);
    }
    let (mut told, mut lost, mut forgotten) = (0, 0, 0);
    while told + lost < 1000 || forgotten < 990 {
        match rig.plane.next().await {
            text if text.ends_with("=1") => told += 1,
            text if text.contains(":not_found:the maximum of keys is reached") => lost += 1,
            text if text.ends_with(":forget") => forgotten += 1,
            text => panic!("{text}"),
        }
    }
    assert_eq!((told, lost, requests.load(Ordering::SeqCst)), (10, 990, 10));
    assert_eq!(rig.metric("stentor_feed_refused_keys_total").await, Some(990.0));
}

#[tokio::test]
async fn documents_beyond_the_memory_limit_are_refused() {
    let addr = http(|_, _| async { ok(&format!("\"{}\"", "x".repeat(98))) }).await;
    let slow = UpstreamOptions { poll_interval: Duration::from_secs(3600), ..upstream("s", addr) };
    let rig =
        Rig::new(FeedsOptions { documents_bytes_max: 150, ..feeds(vec![slow]) }, AdminOptions::default());
    rig.plane.want("s/1", true);
    assert!(rig.plane.next().await.starts_with("s/1="));
    rig.plane.want("s/2", true);
    let refused = "s/2:stale:there is no room for the new version (feeds_limits.documents_bytes_max)";
    assert_eq!(rig.plane.next().await, refused);
    assert_eq!(rig.metric("stentor_feed_documents_bytes").await, Some(100.0));
}

#[tokio::test]
async fn updates_wait_for_room_and_keep_their_order() {
    let addr = http(|n, _| async move { ok(&n.to_string()) }).await;
    let rig = Rig::feeds(vec![upstream("s", addr)]);
    let plane = &rig.plane;
    plane.want("s/k", true);
    assert_eq!(plane.next().await, "s/k=0");
    plane.busy.store(usize::MAX, Ordering::SeqCst);
    let before = plane.refusals.load(Ordering::SeqCst);
    plane.until("a refusal", |plane| (plane.refusals.load(Ordering::SeqCst) > before).then_some(())).await;
    plane.busy.store(0, Ordering::SeqCst);
    plane.signals.space();
    let mut last = 0;
    while last < 10 {
        let text = plane.next().await;
        let n: usize = text.strip_prefix("s/k=").unwrap().parse().unwrap();
        assert_eq!(n, last + 1, "no version is lost or overtakes another");
        last = n;
    }
    assert!(rig.metric("stentor_mailbox_waits_total").await >= Some(1.0));
}

#[tokio::test]
async fn other_content_is_passed_through() {
    let addr = http(|n, _| async move {
        let mut answer = ok(if n < 3 { " a ;\n b " } else { "a;\n b" });
        answer.headers_mut().insert("content-type", "text/csv".parse().unwrap());
        answer
    })
    .await;
    let rig = Rig::feeds(vec![UpstreamOptions { content: Content::Any, ..upstream("s", addr) }]);
    rig.plane.want("s/k", true);
    // Whole each time, without a patch, and the same bytes aren't news.
    assert_eq!(rig.plane.next().await, "s/k= a ;\n b ");
    assert_eq!(rig.plane.next().await, "s/k=a;\n b");
}

#[tokio::test]
async fn a_closed_idle_connection_is_no_failure() {
    // Says nothing of closing, and closes as soon as the next request arrives on it.
    let answered = Arc::new(Mutex::new(std::collections::HashSet::new()));
    let addr = raw(move |n, mut stream| {
        let again = !answered.lock().unwrap().insert(stream.peer_addr().unwrap());
        async move {
            if again {
                return None;
            }
            let body = n.to_string();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(head.as_bytes()).await.ok()?;
            Some(stream)
        }
    })
    .await;
    let rig = Rig::feeds(vec![upstream("s", addr)]);
    rig.plane.want("s/k", true);
    for _ in 0..5 {
        let text = rig.plane.next().await;
        assert!(text.starts_with("s/k="), "{text}");
    }
}

const SLOW: &str = "the upstream took too long";

/// An upstream that misbehaves in its bytes: the key goes stale for this reason, and another upstream's key lives
/// on meanwhile.
async fn check_raw(head: &'static str, then: Then, reason: &str) {
    let addr = raw(move |_, mut stream| async move {
        stream.write_all(head.as_bytes()).await.ok()?;
        match then {
            Then::Close => return None,
            Then::Hang => std::future::pending::<()>().await,
            Then::Flood(bytes) => while stream.write_all(bytes).await.is_ok() {},
            Then::Drip(bytes) => {
                while stream.write_all(bytes).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
        None
    })
    .await;
    let good = http(|n, _| async move { ok(&n.to_string()) }).await;
    // Only who is to be found slow is given little time.
    let (read_timeout, timeout) = if reason == SLOW {
        (Duration::from_millis(200), Duration::from_millis(500))
    } else {
        (PATIENCE, PATIENCE)
    };
    let bad = UpstreamOptions { read_timeout, timeout, document_bytes_max: 100_000, ..upstream("bad", addr) };
    let rig = Rig::feeds(vec![bad, upstream("good", good)]);
    rig.plane.want("bad/k", true);
    rig.plane.want("good/k", true);
    let (mut stale, mut live) = (false, 0);
    while !stale || live < 5 {
        match rig.plane.next().await {
            text if text.starts_with("good/k=") => live += 1,
            text => {
                assert_eq!(text, format!("bad/k:stale:{reason}"), "{head:?}");
                stale = true;
            }
        }
    }
    // Nothing much beyond the limit was ever taken in.
    let metric = async |name: &str| rig.metric(&format!("{name}{{upstream=\"bad\"}}")).await.unwrap_or(0.0);
    let fetches = metric("stentor_feed_fetch_seconds_count").await;
    let received = metric("stentor_feed_fetch_received_bytes_total").await;
    assert!(fetches >= 1.0 && received <= fetches * 200_000.0, "{head:?}: {received} in {fetches}");
}

#[derive(Clone, Copy)]
enum Then {
    Close,
    Hang,
    Flood(&'static [u8]),
    Drip(&'static [u8]),
}

#[tokio::test]
async fn upstreams_that_lie_stall_or_flood_are_contained() {
    let slow = SLOW;
    let broke = "the connection to the upstream broke";
    let large = "the upstream's document is too large";
    check_raw("", Then::Hang, slow).await;
    check_raw("HTTP/1.1 200 OK\r\nx: y\r\n", Then::Hang, slow).await;
    check_raw("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"a\":", Then::Hang, slow).await;
    check_raw("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"a\":", Then::Close, broke).await;
    check_raw("HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n", Then::Drip(b" "), slow).await;
    check_raw("HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n", Then::Hang, large).await;
    check_raw("HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551615\r\n\r\n", Then::Hang, broke).await;
    // One GB and no end, without a length and in chunks.
    check_raw("HTTP/1.1 200 OK\r\n\r\n", Then::Flood(&[b' '; 65536]), large).await;
    check_raw(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        Then::Flood(b"10\r\n                \r\n"),
        large,
    )
    .await;
    check_raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", Then::Hang, broke).await;
    check_raw("HTTP/1.1 200 OK\r\nx: ", Then::Flood(&[b'x'; 65536]), broke).await;
    check_raw("", Then::Flood(b"HTTP/1.1 100 Continue\r\n\r\n"), slow).await;
    check_raw("SSH-2.0-OpenSSH_9.9\r\n", Then::Hang, broke).await;
    check_raw(
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{\"a\":1}",
        Then::Close,
        "the upstream's document is not valid JSON",
    )
    .await;
}

#[tokio::test]
async fn an_unreachable_upstream_recovers() {
    // Bound without listening it refuses, and nobody else gets the port.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = socket.local_addr().unwrap();
    let rig = Rig::feeds(vec![upstream("s", addr)]);
    rig.plane.want("s/k", true);
    assert_eq!(rig.plane.next().await, "s/k:stale:the upstream can't be reached");
    let listener = socket.listen(16).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\n1").await;
        }
    });
    assert_eq!(rig.plane.next().await, "s/k=1");
}

#[tokio::test]
async fn shutdown_aborts_fetches_in_flight() {
    let arrived = Arc::new(Notify::new());
    let seen = arrived.clone();
    let addr = http(move |_, _| {
        seen.notify_one();
        std::future::pending()
    })
    .await;
    let rig = Rig::feeds(vec![upstream("s", addr)]);
    rig.plane.want("s/k", true);
    patiently("the request", arrived.notified()).await;
    patiently("shutdown", rig.control.shutdown()).await;
}
