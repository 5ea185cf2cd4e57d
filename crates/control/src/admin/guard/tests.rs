//! Tests of the checks of hosts, origins and tokens.

use super::*;

const TOKEN: &str = "0123456789abcdef";

fn options() -> AdminOptions {
    AdminOptions { hosts: vec!["stentor.internal".into()], ..AdminOptions::default() }
}

fn request(uri: &str, fields: &[(&str, &str)]) -> Request<()> {
    let request = Request::builder().uri(uri);
    fields.iter().fold(request, |request, (name, value)| request.header(*name, *value)).body(()).unwrap()
}

fn status(options: &AdminOptions, request: &Request<()>) -> u16 {
    let local = SocketAddr::from(([192, 0, 2, 7], 8001));
    check(options, local, request).err().map_or(200, |refusal| refusal.reason.status())
}

#[test]
fn hosts_are_checked() {
    let local = ["localhost", "LocalHost:9999", "127.0.0.1:8001", "127.8.9.10", "[::1]:8001"];
    let known = ["[::ffff:127.0.0.1]:8001", "192.0.2.7:8001", "stentor.internal:8001"];
    let names = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.localhost", ""];
    let users = ["localhost@evil.example", "evil.example@localhost"];
    let addresses = ["192.0.2.8:8001", "0.0.0.0:8001", "127.1", "2130706433"];
    let hosts: [(&[&str], u16); 5] =
        [(&local, 200), (&known, 200), (&names, 421), (&users, 421), (&addresses, 421)];
    for (hosts, expect) in hosts {
        for host in hosts {
            assert_eq!(status(&options(), &request("/metrics", &[("host", *host)])), expect, "{host:?}");
        }
    }
}

#[test]
fn the_host_header_is_required_once_and_matches_the_target() {
    let check = |request: Request<()>, expect| assert_eq!(status(&options(), &request), expect);
    check(request("/", &[]), 400);
    check(request("/", &[("host", "localhost"), ("host", "localhost")]), 400);
    check(request("http://evil.example/", &[("host", "localhost")]), 421);
    check(request("http://localhost/", &[("host", "evil.example")]), 421);
    check(request("http://localhost:1/", &[("host", "localhost")]), 200);
}

#[test]
fn web_pages_are_refused() {
    fn check(name: &str, value: &str, expect: u16) {
        let request = request("/api/v1/publish", &[("host", "localhost"), (name, value)]);
        assert_eq!(status(&options(), &request), expect, "{name}: {value}");
    }
    for origin in [
        "https://evil.example",
        "http://localhost:8001",
        "http://localhost.evil.example",
        "localhost",
        "null",
        "",
    ] {
        check("origin", origin, 403);
    }
    for (site, expect) in [("cross-site", 403), ("same-site", 403), ("none", 200), ("same-origin", 200)] {
        check("sec-fetch-site", site, expect);
    }
}

#[test]
fn links_to_the_status_page_may_be_followed() {
    let check = |method: &str, path: &str, mode: &str, destination: &str, expect: u16| {
        let fields = [
            ("host", "localhost"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", mode),
            ("sec-fetch-dest", destination),
        ];
        let mut request = request(path, &fields);
        *request.method_mut() = method.parse().unwrap();
        assert_eq!(status(&options(), &request), expect, "{method} {path} {mode} {destination}");
    };
    check("GET", "/", "navigate", "document", 200);
    check("GET", "/", "navigate", "iframe", 403);
    check("GET", "/", "no-cors", "document", 403);
    check("GET", "/", "no-cors", "script", 403);
    check("POST", "/", "navigate", "document", 403);
    check("GET", "/api/v1/sessions", "navigate", "document", 403);
    check("GET", "/metrics", "navigate", "document", 403);
}

#[test]
fn the_status_page_may_send_requests() {
    fn check(host: &str, origin: &str, expect: u16) {
        let request = request("/api/v1/disconnect", &[("host", host), ("origin", origin)]);
        assert_eq!(status(&options(), &request), expect, "{origin} to {host}");
    }
    check("localhost:8001", "http://localhost:8001", 200);
    check("stentor.internal", "https://stentor.internal", 200);
    check("localhost:8001", "http://localhost:3000", 403);
    check("localhost:8001", "http://127.0.0.1:8001", 403);
    check("localhost:8001", "ftp://localhost:8001", 403);
    // DNS rebinding: another site's host name resolves to this machine.
    check("evil.example", "http://evil.example", 421);
    let twice = [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://evil.example")];
    assert_eq!(status(&options(), &request("/", &twice)), 403);
}

#[test]
fn tokens_are_checked() {
    let options = AdminOptions { token: Some(TOKEN.into()), ..options() };
    let check = |path: &str, authorization: Option<&str>, expect: u16| {
        let mut fields = vec![("host", "localhost")];
        fields.extend(authorization.map(|value| ("authorization", value)));
        assert_eq!(status(&options, &request(path, &fields)), expect, "{authorization:?}");
    };
    check("/metrics", None, 401);
    check("/metrics", Some("Bearer 0123456789abcdef"), 200);
    check("/metrics", Some("bearer 0123456789abcdef"), 200);
    check("/metrics", Some("Bearer 0123456789abcde"), 401);
    check("/metrics", Some("Bearer 0123456789abcdeF"), 401);
    check("/metrics", Some("Bearer 0123456789abcdef "), 401);
    check("/metrics", Some("Basic 0123456789abcdef"), 401);
    check("/metrics", Some("Bearer"), 401);
    check("/metrics", Some(""), 401);
    check("/healthz", None, 200);
    check("/readyz", None, 200);
}
