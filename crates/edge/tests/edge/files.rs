//! Files that pages of all origins may load, compressed and cached.

use crate::harness::{Response, Server, request};
use stentor_edge::{Origins, PublicFile};

const GOOD: &str = "http://good.test";

fn start() -> Server {
    Server::start(1, |options| {
        options.origins = Origins::parse(&[GOOD]).unwrap();
        options.files = vec![PublicFile {
            path: "/lib.js".into(),
            content_type: "text/javascript".into(),
            cache_control: "public, max-age=300".into(),
            tag: "tag".into(),
            body: "plain".into(),
            brotli: "brotli".into(),
            gzip: "gzip".into(),
        }];
    })
}

/// Checks the headers that let pages of all origins load the file.
fn check_public(answer: &Response) {
    let expect = [
        ("access-control-allow-origin", "*"),
        ("access-control-allow-credentials", ""),
        ("cross-origin-resource-policy", "cross-origin"),
        ("x-content-type-options", "nosniff"),
    ];
    for (name, value) in expect {
        assert_eq!(answer.header(name), value, "{name} of {answer:?}");
    }
}

#[test]
fn the_best_coding_that_a_client_accepts() {
    let server = start();
    for (accepted, coding, body) in [
        ("", "", "plain"),
        ("Accept-Encoding: identity\r\n", "", "plain"),
        ("Accept-Encoding: deflate, zstd\r\n", "", "plain"),
        ("Accept-Encoding: gzip, deflate, br, zstd\r\n", "br", "brotli"),
        ("Accept-Encoding: gzip, deflate\r\n", "gzip", "gzip"),
        ("Accept-Encoding: gzip\r\nAccept-Encoding: BR\r\n", "br", "brotli"),
        ("Accept-Encoding: br;q=0, gzip;q=0.5\r\n", "gzip", "gzip"),
        ("Accept-Encoding: br; q=0.000,gzip;q=0\r\n", "", "plain"),
        ("Accept-Encoding: brx, xgzip\r\n", "", "plain"),
    ] {
        for origin in ["", GOOD, "http://other.test", "null"] {
            let origin = if origin.is_empty() { String::new() } else { format!("Origin: {origin}\r\n") };
            let answer = server.request("GET", "/lib.js", &format!("{accepted}{origin}"));
            let seen = (answer.status, answer.header("content-encoding"), answer.text());
            assert_eq!(seen, (200, coding, body), "{accepted}{origin}");
            check_public(&answer);
            let cached = ["vary", "cache-control", "content-type"].map(|name| answer.header(name));
            assert_eq!(cached, ["Accept-Encoding", "public, max-age=300", "text/javascript"]);
            let tag = if coding.is_empty() { "\"tag\"".to_owned() } else { format!("\"tag-{coding}\"") };
            assert_eq!(answer.header("etag"), tag);
        }
    }
}

#[test]
fn a_cached_file_is_not_sent_again() {
    let server = start();
    for (known, status) in [
        ("\"tag\"", 304),
        ("\"tag-br\"", 304),
        ("W/\"tag-gzip\"", 304),
        ("\"other\", \"tag\"", 304),
        ("*", 304),
        ("\"other\"", 200),
        ("\"tags\"", 200),
        ("", 200),
    ] {
        let headers = format!("Accept-Encoding: br\r\nIf-None-Match: {known}\r\n");
        let answer = server.request("GET", "/lib.js", &headers);
        let seen = (answer.status, answer.header("etag"), answer.header("vary"));
        assert_eq!(seen, (status, "\"tag-br\"", "Accept-Encoding"), "{known}");
        assert_eq!(answer.body.is_empty(), status == 304, "{known}");
        check_public(&answer);
    }
}

#[test]
fn other_methods() {
    let server = start();
    let mut http = server.http();
    http.send(request("HEAD", "/lib.js", "Accept-Encoding: gzip\r\n"));
    let head = http.response_to(true);
    assert_eq!(
        (head.status, head.header("content-length"), head.header("content-encoding")),
        (200, "4", "gzip")
    );
    check_public(&head);
    let refused = http.ask(request("PUT", "/lib.js", &format!("Origin: {GOOD}\r\n")));
    assert_eq!((refused.status, refused.header("allow")), (405, "GET, HEAD"));
    check_public(&refused);
}
