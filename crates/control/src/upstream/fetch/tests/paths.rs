//! Tests of responses that depend on the path: redirects and cookies.

use super::{Reply, Rig, raw, reply, request_head};
use crate::options::{Redirects, UpstreamOptions};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::Key;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

/// Requested paths, each with its `If-None-Match` and `Cookie` headers.
type Log = Arc<Mutex<Vec<String>>>;

/// Makes a fetcher, and a server whose response depends on the path and these headers.
async fn rig(change: fn(&mut UpstreamOptions), answer: fn(&str, &str) -> Reply) -> (Rig, Log) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rig = Rig::at(listener.local_addr().unwrap(), change);
    let log = Log::default();
    let requests = log.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            while let Some(head) = request_head(&mut stream).await {
                let path = head.split(' ').nth(1).unwrap_or_default();
                let headers: Vec<_> = head
                    .lines()
                    .filter(|line| line.starts_with("if-none-match") || line.starts_with("cookie"))
                    .collect();
                let headers = headers.join(" ");
                requests.lock().push(format!("{path} {headers}").trim_end().to_owned());
                let Reply { bytes, closes } = answer(path, &headers);
                let _ = stream.write_all(&bytes).await;
                if closes {
                    break;
                }
            }
        }
    });
    (rig, log)
}

/// Fetches a key. Returns the result and the requests.
async fn fetch(rig: &mut Rig, log: &Log, key: &str) -> (String, String) {
    rig.job.key = Key::parse(key).unwrap();
    let happened = rig.fetch().await;
    (happened, std::mem::take(&mut *log.lock()).join(", "))
}

fn redirect(location: &str) -> Reply {
    reply(&format!("302 Found|location: {location}"), "moved")
}

fn redirecting(path: &str, headers: &str) -> Reply {
    match (path, headers) {
        ("/api/slash", "") => redirect("/api/slash/"),
        ("/api/slash/", "") => reply("200 OK|etag: \"1\"", "1"),
        ("/api/slash/", _) => raw("HTTP/1.1 304 Not Modified\r\n\r\n"),
        ("/api/changing", "") => redirect("/api/other"),
        ("/api/three", _) => redirect("/api/2"),
        ("/api/2", _) => redirect("/api/1"),
        ("/api/1", _) => redirect("/api/0?x=1"),
        ("/api/0?x=1", _) => reply("200 OK", "0"),
        ("/api/loop", _) => redirect("/api/loop"),
        ("/api/out", _) => redirect("/admin"),
        ("/api/up", _) => redirect("/api/../admin"),
        ("/api/far", _) => redirect("http://evil.test/api/far"),
        ("/api/late", _) => redirect("/api/missing"),
        ("/api/missing", _) => reply("404 Not Found", "no"),
        _ => reply("200 OK|etag: \"1\"", "2"),
    }
}

const SAME_PATH: fn(&mut UpstreamOptions) = |options| options.redirects = Redirects::SamePath;

#[tokio::test]
async fn redirects_are_followed_within_the_path() {
    let (mut rig, log) = rig(SAME_PATH, redirecting).await;
    let failure = "redirect: the upstream answered 302, a redirect to";
    let another = format!("{failure} another path of its own host; it leads out of the path of `url`");
    let endless = format!("{failure} its own path; at most 3 redirects are followed");
    let far = format!("{failure} the host evil.test; it leads out of the path of `url`");
    for (key, expect, requests) in [
        ("slash", "1", "/api/slash, /api/slash/"),
        // The validators belong to the redirect's target, so only the second request has them.
        ("slash", "same", "/api/slash, /api/slash/ if-none-match: \"1\""),
        ("changing", "2", "/api/changing, /api/other"),
        ("three", "0", "/api/three, /api/2, /api/1, /api/0?x=1"),
        ("loop", &endless, "/api/loop, /api/loop, /api/loop, /api/loop"),
        ("out", &another, "/api/out"),
        ("up", &another, "/api/up"),
        ("far", &far, "/api/far"),
        ("late", "not found: the upstream answered 404 to /api/missing: no", "/api/late, /api/missing"),
    ] {
        assert_eq!(fetch(&mut rig, &log, key).await, (expect.to_owned(), requests.to_owned()), "{key}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed_by_default() {
    let (mut rig, log) = rig(|_| {}, redirecting).await;
    let expect =
        "redirect: the upstream answered 302, a redirect to the same URL with a trailing slash: change `url`";
    assert_eq!(fetch(&mut rig, &log, "slash").await, (expect.into(), "/api/slash".into()));
}

/// The timeout of a fetch includes its redirects. Each response takes 4 s of the fetcher's clock.
#[tokio::test]
async fn redirects_share_the_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut rig = Rig::at(listener.local_addr().unwrap(), |options| {
        options.redirects = Redirects::SamePath;
        options.timeout = Duration::from_secs(10);
    });
    tokio::spawn(async move {
        let mut streams = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            while request_head(&mut stream).await.is_some() {
                tokio::time::pause();
                tokio::time::advance(Duration::from_secs(4)).await;
                tokio::time::resume();
                let _ = stream.write_all(&redirect("/api/k").bytes).await;
            }
            streams.push(stream);
        }
    });
    assert_eq!(rig.fetch().await, "timeout: the response was not complete after 10s (timeout)");
}

fn session(path: &str, headers: &str) -> Reply {
    let cookies = "set-cookie: sid=abcdef; Path=/; HttpOnly|set-cookie: x=1; Domain=evil.test";
    match (path, headers) {
        ("/api/login", "") => reply(&format!("302 Found|location: /api/login/|{cookies}"), ""),
        ("/api/secret", "cookie: sid=abcdef") => reply("401 Unauthorized", "not abcdef"),
        (_, "cookie: sid=abcdef") => reply("200 OK", "2"),
        _ => reply(&format!("200 OK|{cookies}"), "1"),
    }
}

#[tokio::test]
async fn cookies_are_sent_back() {
    let (mut rig, log) = rig(|options| options.cookies = true, session).await;
    for (key, expect, requests) in [
        ("k", "1", "/api/k"),
        ("k", "2", "/api/k cookie: sid=abcdef"),
        ("other", "same", "/api/other cookie: sid=abcdef"),
        (
            "secret",
            "unauthorized: the upstream answered 401 to /api/secret: not ***",
            "/api/secret cookie: sid=abcdef",
        ),
    ] {
        assert_eq!(fetch(&mut rig, &log, key).await, (expect.to_owned(), requests.to_owned()), "{key}");
    }
}

#[tokio::test]
async fn a_redirect_may_set_a_cookie() {
    let change = |options: &mut UpstreamOptions| {
        options.cookies = true;
        options.redirects = Redirects::SamePath;
    };
    let (mut rig, log) = rig(change, session).await;
    let requests = "/api/login, /api/login/ cookie: sid=abcdef";
    assert_eq!(fetch(&mut rig, &log, "login").await, ("2".into(), requests.into()));
}

#[tokio::test]
async fn cookies_are_ignored_by_default() {
    let (mut rig, log) = rig(|_| {}, session).await;
    for expect in ["1", "same"] {
        assert_eq!(fetch(&mut rig, &log, "k").await, (expect.into(), "/api/k".into()));
    }
}
