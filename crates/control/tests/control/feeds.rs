//! Tests of feeds: upstreams on loopback change, stall, fail and misbehave. The data plane is a fake.

use crate::common::*;
use flate2::{Compression, write::GzEncoder};
use http_body_util::Full;
use std::collections::HashSet;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_control::{AdminOptions, Content, FeedsOptions, UpstreamOptions};
use stentor_hub::KeyCharset;
use stentor_ports::ControlPlane;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};

fn fetches(outcome: &str) -> String {
    format!("stentor_feed_fetches_total{{upstream=\"s\",outcome=\"{outcome}\"}}")
}

/// Asserts the updates of the key `s/k`. Its upstream sends these responses in order, then repeats the last
/// one. A second upstream, `t`, has no subscribers.
async fn check(
    name: &str,
    change: impl FnOnce(&mut UpstreamOptions),
    answers: Vec<Answer>,
    updates: &[&str],
) -> Rig {
    let addr = script(answers).await;
    let mut options = upstream("s", addr);
    change(&mut options);
    let rig = Rig::feeds(vec![options, upstream("t", addr)]);
    rig.want("s/k");
    for update in updates {
        assert_eq!(rig.plane.next().await, *update, "{name}");
    }
    rig
}

#[tokio::test]
async fn a_subscribed_key_is_fetched_and_its_changes_are_sent() {
    let bodies = [
        "{ \"a\": 1, \"b\": [] }",
        // The upstream repeats the same value, written in other ways, which causes no update.
        "{\"a\":1,\"b\":[]}",
        "{\"b\":[],\"a\":1.0}",
        "{\"a\":0,\"b\":[],\"a\":1}",
        "{\"a\":2,\"b\":[]}",
        "null",
    ];
    let addr = http(move |n, request| {
        assert_eq!(request.uri(), "/api/s/x/1");
        std::future::ready(ok(bodies[n.min(bodies.len() - 1)]))
    })
    .await;
    let rig = Rig::feeds(vec![upstream("s", addr)]);
    rig.want("s/x/1");
    rig.plane.expect(&["s/x/1={\"a\":1,\"b\":[]}", "s/x/1={\"a\":2,\"b\":[]}", "s/x/1=null"]).await;
    rig.expect_metrics(&[
        (&fetches("changed"), 3.0),
        ("stentor_feed_keys{state=\"live\"}", 1.0),
        ("stentor_feed_documents_bytes", 4.0),
    ])
    .await;
    assert!(rig.metric(&fetches("unchanged")).await >= Some(3.0));
    rig.control.shutdown().await;
}

#[tokio::test]
async fn keys_are_percent_encoded_in_requests() {
    let addr = http(|_, request| {
        let target = request.uri().to_string();
        std::future::ready(ok(&format!("{target:?}")))
    })
    .await;
    let wide = UpstreamOptions { keys: KeyCharset::Utf8, ..upstream("s", addr) };
    let rig = Rig::feeds(vec![wide, upstream("t", addr)]);
    for (key, target) in [
        ("s/S\u{e3}o Paulo", "/api/s/S%C3%A3o%20Paulo"),
        ("s/o'brien@example.com", "/api/s/o%27brien@example.com"),
        ("s/50%/?a#b", "/api/s/50%25/%3Fa%23b"),
        ("s/..%2", "/api/s/..%252"),
    ] {
        rig.want(key);
        rig.plane.expect(&[&format!("{key}={target:?}")]).await;
        rig.plane.want(key, false);
    }
    // The upstream `t` doesn't allow a space in keys, so the key isn't requested from it.
    rig.want("t/a b");
    rig.plane.expect(&["t/a b:not_found:no feed is configured for this key", "t/a b:forget"]).await;
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
        std::future::ready(if field("if-none-match").as_deref() == Some(etag) {
            bare(304)
        } else {
            answers.fetch_add(1, Ordering::SeqCst);
            with(ok(etag), "etag", etag)
        })
    })
    .await;
    let rig = Rig::feeds(vec![UpstreamOptions {
        url: format!("http://{addr}/api/?id=7"),
        headers: vec![("Authorization".into(), "Bearer upstream".into())],
        ..upstream("s", addr)
    }]);
    rig.want("s/k");
    rig.plane.expect(&["s/k=\"one\"", "s/k=\"two\""]).await;
    assert_eq!(full.load(Ordering::SeqCst), 2);
    // The upstream is polled further, although the data plane gets no update.
    assert!(rig.metric(&fetches("not_modified")).await >= Some(4.0));
}

#[tokio::test]
async fn many_subscribers_of_a_cold_key_cost_one_request() {
    let gate = Arc::new(Semaphore::new(0));
    let open = gate.clone();
    let (addr, requests) = counted(move |_, _| {
        let open = open.clone();
        async move {
            let _permit = open.acquire().await.unwrap();
            ok("1")
        }
    })
    .await;
    let rig = Rig::feeds(vec![hourly("s", addr)]);
    for _ in 0..1000 {
        rig.want("s/k");
        tokio::task::yield_now().await;
    }
    gate.add_permits(1);
    rig.plane.expect(&["s/k=1"]).await;
    // Subscribing and unsubscribing in a loop causes no fetch. The update of a new key shows that the control
    // plane has processed the loop.
    for _ in 0..1000 {
        rig.plane.want("s/k", false);
        rig.want("s/k");
        tokio::task::yield_now().await;
    }
    rig.want("s/other");
    gate.add_permits(1);
    rig.plane.expect(&["s/other=1"]).await;
    assert_eq!(requests.load(Ordering::SeqCst), 2);
    rig.expect_metrics(&[("stentor_feed_fetch_received_bytes_total{upstream=\"s\"}", 2.0)]).await;
}

#[tokio::test]
async fn a_complete_key_is_reported_once_and_not_fetched_again() {
    let (addr, requests) = counted(|_, request| {
        let is_gone = request.uri().path().ends_with("gone");
        let last = with(ok("\"last\""), "cache-control", "max-age=0");
        std::future::ready(if is_gone { bare(410) } else { last })
    })
    .await;
    let rig = Rig::feeds(vec![
        UpstreamOptions { concurrency_max: 1, complete_on_max_age_zero: true, ..upstream("s", addr) },
        UpstreamOptions { complete_on_max_age_zero: true, ignore_cache_control: true, ..upstream("t", addr) },
    ]);
    rig.want("s/k");
    let complete = "s/k:complete:the upstream said that this is the last version (max-age=0)";
    rig.plane.expect(&["s/k=\"last\"", complete]).await;
    rig.want("s/gone");
    rig.plane.expect(&["s/gone:complete:the upstream said that it has ended (410)"]).await;
    assert_eq!(requests.load(Ordering::SeqCst), 2);
    // The upstream `t` ignores `Cache-Control`, so its keys are fetched again.
    rig.want("t/k");
    rig.plane.expect(&["t/k=\"last\""]).await;
    let more = async {
        while requests.load(Ordering::SeqCst) < 6 {
            tokio::task::yield_now().await
        }
    };
    patiently("more fetches", more).await;
    assert!(!rig.plane.has_updates());
    rig.expect_metrics(&[("stentor_feed_keys{state=\"complete\"}", 2.0)]).await;
}

/// Tests `Cache-Control` as Rails, Express, Spring, Django and others send it by default.
#[tokio::test]
async fn cache_control_without_a_max_age_ends_no_feed() {
    for cache_control in [
        "max-age=0",
        "max-age=0, private, must-revalidate",
        "no-cache",
        "no-store",
        "no-cache, no-store, max-age=0, must-revalidate",
    ] {
        let answers = ["0", "1", "2", "3"].map(|body| with(ok(body), "cache-control", cache_control));
        check(cache_control, |_| {}, answers.into(), &["s/k=0", "s/k=1", "s/k=2", "s/k=3"]).await;
    }
}

fn encoded(name: &str, body: Vec<u8>) -> Answer {
    with(ok("").map(|_| Full::from(body)), "content-encoding", name)
}

fn gzipped(body: &[u8]) -> Answer {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).unwrap();
    encoded("gzip", encoder.finish().unwrap())
}

fn brotlied(mut body: &[u8]) -> Answer {
    let mut out = Vec::new();
    let params = brotli::enc::BrotliEncoderParams { quality: 5, ..Default::default() };
    brotli::BrotliCompress(&mut body, &mut out, &params).unwrap();
    encoded("br", out)
}

fn html(body: &str) -> Answer {
    with(ok(body), "content-type", "text/html; charset=utf-8")
}

/// On an invalid response, a feed keeps its value and becomes stale. A valid response ends the state.
#[tokio::test]
async fn invalid_responses_keep_the_last_value() {
    let invalid = ("the upstream's document is not valid JSON", "failed_invalid_json");
    let other = ("the upstream's document is not JSON", "failed_not_json");
    let large = ("the upstream's document is too large", "failed_too_large");
    let undecodable = ("the upstream's response can't be decoded", "failed_encoding");
    for (name, bad, (reason, label)) in [
        ("500", bare(500), ("the upstream answered 500", "failed_server_error")),
        ("403", bare(403), ("the upstream answered 403", "failed_unauthorized")),
        ("204", bare(204), ("the upstream answered 204", "failed_status")),
        ("half a document", ok("{\"a\":"), invalid),
        ("HTML as JSON", ok("<html>"), invalid),
        ("HTML", html("<html>"), other),
        ("half a document as HTML", html("{"), other),
        ("nothing", ok(""), invalid),
        ("deeply nested", ok(&"[".repeat(900)), invalid),
        ("too large", ok(&format!("\"{}\"", "x".repeat(1000))), large),
        ("a bomb of gzip", gzipped(&vec![b' '; 20 << 20]), large),
        ("a bomb of Brotli", brotlied(&vec![b' '; 20 << 20]), large),
        ("no gzip", encoded("gzip", b"not gzip".to_vec()), undecodable),
        ("no Brotli", encoded("br", b"not brotli".to_vec()), undecodable),
        ("zstd", encoded("zstd", b"1".to_vec()), undecodable),
    ] {
        let answers = vec![ok("\"good\""), bad, ok("\"good\""), ok("\"new\"")];
        let stale = format!("s/k:stale:{reason}");
        let updates = ["s/k=\"good\"", &stale, "s/k:live:the upstream answers again", "s/k=\"new\""];
        let rig = check(name, |options| options.document_bytes_max = 1000, answers, &updates).await;
        assert_eq!(rig.metric(&fetches(label)).await, Some(1.0), "{name}");
    }
}

#[tokio::test]
async fn compressed_responses_are_decoded() {
    let answers =
        vec![gzipped(b" { \"a\" : 0 } "), brotlied(b" { \"a\" : 1 } "), gzipped(b"2"), brotlied(b"3")];
    let updates = ["s/k={\"a\":0}", "s/k={\"a\":1}", "s/k=2", "s/k=3"];
    check("compressed", |_| {}, answers, &updates).await;
}

#[tokio::test]
async fn other_content_is_passed_through() {
    let csv = |body| with(ok(body), "content-type", "text/csv");
    let (padded, bare) = (csv(" a ;\n b "), csv("a;\n b"));
    // Each new document is sent whole, without a patch. The same bytes aren't a new version.
    let answers = vec![padded.clone(), padded.clone(), padded, bare];
    let any = |options: &mut UpstreamOptions| options.content = Content::Any;
    check("other content", any, answers, &["s/k= a ;\n b ", "s/k=a;\n b"]).await;
}

#[tokio::test]
async fn a_key_that_answers_410_later_keeps_its_last_value() {
    let updates = ["s/k=1", "s/k:complete:the upstream said that it has ended (410)"];
    let rig = check("410", |_| {}, vec![ok("1"), bare(410)], &updates).await;
    rig.expect_metrics(&[("stentor_feed_documents_bytes", 1.0), (&fetches("gone"), 1.0)]).await;
}

/// If a stale feed fails for a new reason, subscribers receive the new reason, and the metrics count it.
#[tokio::test]
async fn a_different_failure_is_reported_again() {
    let failures = [
        (bare(500), "the upstream answered 500", "server_error"),
        (bare(401), "the upstream answered 401", "unauthorized"),
        (html("<title>Sign in</title>"), "the upstream's document is not JSON", "not_json"),
    ];
    let mut answers: Vec<_> = failures.iter().flat_map(|(answer, ..)| vec![answer.clone(); 3]).collect();
    answers.push(ok("1"));
    let stale = failures.each_ref().map(|(_, reason, _)| format!("s/k:stale:{reason}"));
    let updates = [&*stale[0], &*stale[1], &*stale[2], "s/k=1"];
    let rig = check("failures", |options| options.poll_interval = HOUR, answers, &updates).await;
    let failing =
        |upstream, class| format!("stentor_feed_failing_keys{{upstream=\"{upstream}\",failure=\"{class}\"}}");
    for (.., class) in failures {
        let fetches = fetches(&format!("failed_{class}"));
        rig.expect_metrics(&[(&fetches, 3.0), (&failing("s", class), 0.0)]).await;
    }
    // The metrics have no failure lines for an upstream that has never failed.
    assert_eq!(rig.metric(&failing("t", "server_error")).await, None);
}

#[tokio::test]
async fn last_modified_is_sent_back_unchanged() {
    let date = "Sat, 21 Nov 2026 12:00:00 GMT";
    let addr = http(move |n, request| {
        let since = request.headers().get("if-modified-since").map(|value| value.to_str().unwrap());
        std::future::ready(match (n, since) {
            (0, None) => with(ok("1"), "last-modified", date),
            (1, Some(since)) if since == date => bare(304),
            (2, Some(since)) if since == date => ok("2"),
            // The response with version 2 had no `Last-Modified`, so the request has no condition.
            (_, None) => ok("3"),
            (n, since) => panic!("{n}: {since:?}"),
        })
    })
    .await;
    let rig = Rig::feeds(vec![upstream("s", addr)]);
    rig.want("s/k");
    rig.plane.expect(&["s/k=1", "s/k=2", "s/k=3"]).await;
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
        ..hourly(name, addr)
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
        rig.want(key);
        rig.plane.expect(&[&format!("{key}=1")]).await;
        assert_eq!(paths.lock().unwrap().pop().as_deref(), Some(expect));
    }
    rig.want("matchesfeed/8/other");
    let unknown = "matchesfeed/8/other:not_found:no feed is configured for this key";
    rig.plane.expect(&[unknown, "matchesfeed/8/other:forget"]).await;
    // A key that would lead out of the URL's path isn't requested.
    rig.want("d..");
    rig.plane.expect(&["d..:not_found:no URL can be built from this key"]).await;
    assert_eq!(*paths.lock().unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn fetches_keep_to_the_upstreams_concurrency() {
    let [flying, most] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let [answers, arrivals] = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
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
    let rig = Rig::feeds(vec![UpstreamOptions { concurrency_max: 3, ..hourly("s", addr) }]);
    for n in 0..60 {
        rig.want(&format!("s/{n}"));
    }
    arrivals.acquire_many(3).await.unwrap().forget();
    // Each response lets one more fetch begin. Two other requests wait for their responses meanwhile.
    for _ in 0..60 {
        answers.add_permits(1);
        assert!(rig.plane.next().await.ends_with("=1"));
    }
    assert_eq!((most.load(Ordering::SeqCst), flying.load(Ordering::SeqCst)), (3, 0));
    rig.expect_metrics(&[
        ("stentor_feed_upstream_waiting_keys{upstream=\"s\"}", 0.0),
        ("stentor_feed_upstream_fetches_in_flight{upstream=\"s\"}", 0.0),
    ])
    .await;
}

/// This test checks only the metrics. The scheduler's tests check the rate, on a virtual clock.
#[tokio::test]
async fn a_rate_that_is_reached_shows_in_the_metrics() {
    let limited = UpstreamOptions {
        requests_per_second_max: 20,
        poll_interval: Duration::from_millis(100),
        ..upstream("s", numbers().await)
    };
    let rig = Rig::feeds(vec![limited]);
    for n in 0..10 {
        rig.want(&format!("s/{n}"));
    }
    // At 20 fetches per second, ten keys take 0.5 s each, and more on a busy machine.
    while rig.metric("stentor_feed_upstream_interval_seconds{upstream=\"s\"}").await < Some(0.4) {
        rig.plane.next().await;
    }
    assert!(rig.metric("stentor_feed_upstream_rate_waits_total{upstream=\"s\"}").await >= Some(1.0));
}

#[tokio::test]
async fn a_max_age_that_governs_shows_in_metrics_and_status() {
    let check = async |cache_control: &str, max_age: f64, interval: f64, set_by: &str| {
        let addr = script(vec![with(ok("1"), "cache-control", cache_control)]).await;
        let bounded = UpstreamOptions {
            max_age_min: Duration::from_secs(30),
            max_age_max: Duration::from_secs(60),
            ..hourly("s", addr)
        };
        let rig = Rig::feeds(vec![bounded]);
        rig.want("s/k");
        rig.plane.expect(&["s/k=1"]).await;
        rig.expect_metrics(&[
            ("stentor_feed_upstream_max_age_seconds{upstream=\"s\"}", max_age),
            ("stentor_feed_upstream_interval_seconds{upstream=\"s\"}", interval),
        ])
        .await;
        let (_, status) = rig.admin("/api/v1/status").await;
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let upstream = &status["upstreams"][0];
        assert_eq!(upstream["effective_interval_seconds"], interval);
        assert_eq!(upstream["interval_set_by"], set_by);
    };
    check("max-age=45", 45.0, 45.0, "max-age").await;
    check("max-age=3600", 60.0, 60.0, "max-age").await;
    check("max-age=1", 30.0, 30.0, "max-age").await;
    check("no-cache", 0.0, 3600.0, "poll_interval").await;
}

async fn write_answer(mut stream: TcpStream, status: &str, body: &str) -> Option<TcpStream> {
    let text = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nretry-after: 0\r\n\r\n{body}", body.len());
    stream.write_all(text.as_bytes()).await.ok()?;
    Some(stream)
}

/// A fetch reuses the connection of the previous fetch, even if the previous response had no document.
#[tokio::test]
async fn connections_are_used_again() {
    let addrs = Arc::new(Mutex::new(HashSet::new()));
    let seen = addrs.clone();
    let addr = raw(move |n, stream| {
        seen.lock().unwrap().insert(stream.peer_addr().unwrap());
        let status = if n % 3 == 2 { "503 Unavailable" } else { "200 OK" };
        async move { write_answer(stream, status, &n.to_string()).await }
    })
    .await;
    let rig = Rig::feeds(vec![upstream("s", addr)]);
    rig.want("s/k");
    let mut documents = 0;
    while documents < 6 {
        documents += usize::from(rig.plane.next().await.starts_with("s/k="));
    }
    assert_eq!(addrs.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_closed_idle_connection_is_no_failure() {
    // The server sends no `Connection: close`, but closes each connection when the second request arrives on
    // it.
    let answered = Arc::new(Mutex::new(HashSet::new()));
    let addr = raw(move |n, stream| {
        let again = !answered.lock().unwrap().insert(stream.peer_addr().unwrap());
        async move { if again { None } else { write_answer(stream, "200 OK", &n.to_string()).await } }
    })
    .await;
    let rig = Rig::feeds(vec![upstream("s", addr)]);
    rig.want("s/k");
    for _ in 0..5 {
        let text = rig.plane.next().await;
        assert!(text.starts_with("s/k="), "{text}");
    }
}

/// This test checks the pause's beginning. The scheduler's tests check its end.
#[tokio::test]
async fn an_upstream_that_answers_429_is_paused_for_all_its_keys() {
    let (addr, requests) = counted(|_, _| std::future::ready(with(bare(429), "retry-after", "3600"))).await;
    let upstreams = vec![upstream("s", addr), upstream("t", numbers().await)];
    let patient = FeedsOptions { backoff_max: HOUR, ..feeds(upstreams) };
    let rig = Rig::new(patient, AdminOptions::default());
    rig.want("s/1");
    rig.plane.expect(&["s/1:stale:the upstream answered 429"]).await;
    rig.want("s/2");
    rig.want("t/1");
    for _ in 0..10 {
        assert!(rig.plane.next().await.starts_with("t/1="));
    }
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

/// The upstream always returns invalid JSON for the key `12`, like that test key of the original server. The
/// other keys of the upstream aren't affected.
#[tokio::test]
async fn a_corrupt_key_is_stale_and_affects_no_other_key() {
    let addr = http(|n, request| async move {
        if request.uri().path().ends_with("12") { ok("{\"matches\": [1, 2,") } else { ok(&n.to_string()) }
    })
    .await;
    let rig = Rig::feeds(vec![upstream("s", addr)]);
    rig.want("s/12");
    rig.plane.expect(&["s/12:stale:the upstream's document is not valid JSON"]).await;
    rig.want("s/1");
    for _ in 0..5 {
        assert!(rig.plane.next().await.starts_with("s/1="));
    }
    assert!(rig.metric(&fetches("failed_invalid_json")).await >= Some(1.0));
    let (_, status) = rig.admin("/api/v1/status").await;
    assert!(status.contains("the document is not valid JSON: the JSON text ends too early"), "{status}");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (target, requests) = counted(async |_, _| ok("\"secret\"")).await;
    let location = format!("http://{target}/latest/meta-data");
    // Subscribers receive the failure without the redirect's target. The status page names its host.
    let answer = with(bare(302), "location", &location);
    let rig = check("redirect", |_| {}, vec![answer], &["s/k:stale:the upstream answered 302"]).await;
    let (_, status) = rig.admin("/api/v1/status").await;
    assert!(status.contains("a redirect to the host 127.0.0.1; redirects aren't followed"), "{status}");
    assert_eq!(requests.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn unknown_keys_are_not_found() {
    let found = Arc::new(AtomicBool::new(false));
    let there = found.clone();
    let addr =
        http(move |_, _| std::future::ready(if there.load(Ordering::SeqCst) { ok("1") } else { bare(404) }))
            .await;
    let rig = Rig::feeds(vec![upstream("s", addr)]);
    rig.want("nobody/serves/this");
    let unknown = "nobody/serves/this:not_found:no feed is configured for this key";
    rig.plane.expect(&[unknown, "nobody/serves/this:forget"]).await;
    rig.want("s/k");
    rig.plane.expect(&["s/k:not_found:the upstream has no such key (404)"]).await;
    // An unknown key is fetched again while it has subscribers.
    found.store(true, Ordering::SeqCst);
    rig.plane.expect(&["s/k=1"]).await;
}

#[tokio::test]
async fn the_number_of_keys_is_limited() {
    let (addr, requests) = counted(async |_, _| ok("1")).await;
    let options = FeedsOptions { keys_max: 10, ..feeds(vec![hourly("s", addr)]) };
    let rig = Rig::new(options, AdminOptions::default());
    for i in 0..1000 {
        rig.want(&format!("s/{i}"));
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
    rig.expect_metrics(&[("stentor_feed_refused_keys_total", 990.0)]).await;
}

#[tokio::test]
async fn documents_beyond_the_memory_limit_are_refused() {
    let addr = script(vec![ok(&format!("\"{}\"", "x".repeat(98)))]).await;
    let options = FeedsOptions { documents_bytes_max: 150, ..feeds(vec![hourly("s", addr)]) };
    let rig = Rig::new(options, AdminOptions::default());
    rig.want("s/1");
    assert!(rig.plane.next().await.starts_with("s/1="));
    rig.want("s/2");
    let refused = "s/2:stale:there is no room for the new version (feeds_limits.documents_bytes_max)";
    rig.plane.expect(&[refused]).await;
    rig.expect_metrics(&[("stentor_feed_documents_bytes", 100.0)]).await;
}

#[tokio::test]
async fn updates_wait_for_room_and_keep_their_order() {
    let rig = Rig::feeds(vec![upstream("s", numbers().await)]);
    rig.want("s/k");
    rig.plane.expect(&["s/k=0"]).await;
    rig.plane.busy.store(usize::MAX, Ordering::SeqCst);
    rig.plane.until_refused().await;
    rig.plane.busy.store(0, Ordering::SeqCst);
    rig.plane.signals.space();
    // No version is lost or overtakes another.
    for n in 1..=10 {
        rig.plane.expect(&[&format!("s/k={n}")]).await;
    }
    assert!(rig.metric("stentor_mailbox_waits_total").await >= Some(1.0));
}

#[derive(Clone, Copy)]
enum Then {
    Close,
    Hang,
    Flood(&'static [u8]),
    Drip(&'static [u8]),
}

const SLOW: &str = "the upstream took too long";
const BROKE: &str = "the connection to the upstream broke";
const HEADERS: &str = "the upstream's response headers are too large";
const LARGE: &str = "the upstream's document is too large";
const INVALID: &str = "the upstream's document is not valid JSON";

/// Checks an upstream that sends these raw bytes: its key becomes stale for this reason, and the key of
/// another upstream still receives updates.
async fn check_raw(name: &str, head: &'static str, then: Then, reason: &str) {
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
    // The timeouts are short only in cases where the server must be too slow.
    let (read_timeout, timeout) = if reason == SLOW {
        (Duration::from_millis(200), Duration::from_millis(500))
    } else {
        (PATIENCE, PATIENCE)
    };
    let bad = UpstreamOptions { read_timeout, timeout, document_bytes_max: 100_000, ..upstream("bad", addr) };
    let rig = Rig::feeds(vec![bad, upstream("good", numbers().await)]);
    rig.want("bad/k");
    rig.want("good/k");
    let (mut stale, mut live) = (false, 0);
    while !stale || live < 5 {
        match rig.plane.next().await {
            text if text.starts_with("good/k=") => live += 1,
            text => {
                assert_eq!(text, format!("bad/k:stale:{reason}"), "{name}");
                stale = true;
            }
        }
    }
    // Each fetch received at most twice `document_bytes_max`.
    let metric = async |name: &str| rig.metric(&format!("{name}{{upstream=\"bad\"}}")).await.unwrap_or(0.0);
    let fetches = metric("stentor_feed_fetch_seconds_count").await;
    let received = metric("stentor_feed_fetch_received_bytes_total").await;
    assert!(fetches >= 1.0 && received <= fetches * 200_000.0, "{name}: {received} in {fetches}");
}

#[tokio::test]
async fn upstreams_that_lie_stall_or_flood_are_contained() {
    let hundred = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"a\":";
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let bad_chunk = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n";
    let longest = "HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551615\r\n\r\n";
    for (name, head, then, reason) in [
        ("silence", "", Then::Hang, SLOW),
        ("half a head", "HTTP/1.1 200 OK\r\nx: y\r\n", Then::Hang, SLOW),
        ("half a body", hundred, Then::Hang, SLOW),
        ("a body cut off", hundred, Then::Close, BROKE),
        ("drops", "HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n", Then::Drip(b" "), SLOW),
        ("1 GB", "HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n", Then::Hang, LARGE),
        ("2^64 - 1 bytes", longest, Then::Hang, HEADERS),
        ("no length and no end", "HTTP/1.1 200 OK\r\n\r\n", Then::Flood(&[b' '; 65536]), LARGE),
        ("chunks without end", chunked, Then::Flood(b"10\r\n                \r\n"), LARGE),
        ("a broken chunk", bad_chunk, Then::Hang, BROKE),
        ("an endless field", "HTTP/1.1 200 OK\r\nx: ", Then::Flood(&[b'x'; 65536]), HEADERS),
        ("interim responses", "", Then::Flood(b"HTTP/1.1 100 Continue\r\n\r\n"), SLOW),
        ("SSH", "SSH-2.0-OpenSSH_9.9\r\n", Then::Hang, BROKE),
        ("a short length", "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{\"a\":1}", Then::Close, INVALID),
    ] {
        check_raw(name, head, then, reason).await;
    }
}

#[tokio::test]
async fn an_unreachable_upstream_recovers() {
    // A bound socket that doesn't listen refuses connections, and keeps the port reserved.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let rig = Rig::feeds(vec![upstream("s", socket.local_addr().unwrap())]);
    rig.want("s/k");
    rig.plane.expect(&["s/k:stale:the upstream can't be reached"]).await;
    let listener = socket.listen(16).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = write_answer(stream, "200 OK\r\nconnection: close", "1").await;
        }
    });
    rig.plane.expect(&["s/k=1"]).await;
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
    rig.want("s/k");
    patiently("the request", arrived.notified()).await;
    patiently("shutdown", rig.control.shutdown()).await;
}
