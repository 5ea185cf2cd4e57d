//! Who may talk to the admin port: programs on this machine, or whoever holds the token; never a web page.
//!
//! A page in somebody's browser can send requests to loopback. It can't leave out `Origin` where its requests have
//! effects, it can't send a JSON content type across origins without asking first, and if its name was pointed
//! at 127.0.0.1 (DNS rebinding), `Host` shows that name. So all three are checked.

use super::{Refusal, api};
use crate::options::AdminOptions;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Request, header};
use std::net::{IpAddr, SocketAddr};
use subtle::ConstantTimeEq;

/// Whether the request may be answered. `local` is the address that the connection came in on.
pub(super) fn check<B>(
    options: &AdminOptions,
    local: SocketAddr,
    request: &Request<B>,
) -> Result<(), Refusal> {
    let headers = request.headers();
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Refusal::new(api::HOST_MISSING, "exactly one Host header is required"));
    };
    let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    let names = [host.as_ref(), request.uri().authority()];
    let known = host.is_some() && names.into_iter().flatten().all(|host| is_ours(options, local, host));
    if !known {
        return Err(Refusal::new(
            api::HOST,
            "Host is neither loopback nor the address of the admin port; to allow it, add it to server.admin_hosts",
        ));
    }
    let cross_site = |site: &[u8]| site != b"none" && site != b"same-origin";
    if headers.contains_key(header::ORIGIN)
        || headers.get("sec-fetch-site").is_some_and(|site| cross_site(site.as_bytes()))
    {
        return Err(Refusal::new(api::ORIGIN, "requests from web pages (with an Origin) are refused"));
    }
    match &options.token {
        // Whether the process is well is no secret, and those who ask rarely can send tokens.
        Some(token) if request.uri().path() != "/healthz" && !has_token(headers, token) => Err(Refusal::new(
            api::TOKEN,
            "send the token of server.admin_token as Authorization: Bearer TOKEN",
        )),
        _ => Ok(()),
    }
}

/// Whether a host (the port doesn't matter: it may be forwarded) is this one.
fn is_ours(options: &AdminOptions, local: SocketAddr, authority: &Authority) -> bool {
    if authority.as_str().contains('@') {
        return false;
    }
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match bare.parse::<IpAddr>() {
        Ok(address) => {
            let address = address.to_canonical();
            address.is_loopback() || address == local.ip().to_canonical() || address == options.listen.ip()
        }
        Err(_) => {
            let is = |name: &str| name.eq_ignore_ascii_case(host);
            is("localhost") || options.hosts.iter().any(|name| is(name))
        }
    }
}

fn has_token(headers: &HeaderMap, token: &str) -> bool {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return false };
    let Some((scheme, given)) = value.as_bytes().split_at_checked("bearer ".len()) else { return false };
    scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(given.ct_eq(token.as_bytes()))
}

#[cfg(test)]
mod tests {
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
        fn check(host: &str, expect: u16) {
            assert_eq!(status(&options(), &request("/metrics", &[("host", host)])), expect, "{host:?}");
        }
        check("localhost", 200);
        check("LocalHost:9999", 200);
        check("127.0.0.1:8001", 200);
        check("127.8.9.10", 200);
        check("[::1]:8001", 200);
        check("[::ffff:127.0.0.1]:8001", 200);
        check("192.0.2.7:8001", 200);
        check("stentor.internal:8001", 200);
        check("192.0.2.8:8001", 421);
        check("evil.example", 421);
        check("localhost.evil.example", 421);
        check("127.0.0.1.evil.example", 421);
        check("evil.localhost", 421);
        check("localhost@evil.example", 421);
        check("evil.example@localhost", 421);
        check("0.0.0.0:8001", 421);
        check("", 421);
        check("127.1", 421);
        check("2130706433", 421);
    }

    #[test]
    fn one_host_and_no_other_in_the_target() {
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
        check("origin", "https://evil.example", 403);
        check("origin", "http://localhost:8001", 403);
        check("origin", "null", 403);
        check("origin", "", 403);
        check("sec-fetch-site", "cross-site", 403);
        check("sec-fetch-site", "same-site", 403);
        check("sec-fetch-site", "none", 200);
        check("sec-fetch-site", "same-origin", 200);
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
    }
}
