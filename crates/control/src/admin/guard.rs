//! Access control of the admin port. It accepts programs on this machine, or clients with the token, and no
//! web page except the status page.
//!
//! A page in a browser can send requests to loopback. But the page can't omit or forge `Origin` in requests
//! that have effects, and can't send a JSON content type across origins without a preflight request. If the
//! page's own host name resolves to 127.0.0.1 (DNS rebinding), `Host` contains this name. So `Origin`, the
//! content type and `Host` are checked.

use super::page::is_page;
use super::{Refusal, reason};
use crate::options::AdminOptions;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, Request, header};
use std::net::{IpAddr, SocketAddr};
use subtle::ConstantTimeEq;

/// The path of workers' links.
pub(super) const LINK_PATH: &str = "/link/v1";

/// Checks whether the request is allowed. `local` is the server's address of the connection.
pub(super) fn check<B>(
    options: &AdminOptions,
    local: SocketAddr,
    request: &Request<B>,
) -> Result<(), Refusal> {
    let headers = request.headers();
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Refusal::new(reason::HOST_MISSING, "exactly one Host header is required"));
    };
    let host_text = host;
    let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    let names = [host.as_ref(), request.uri().authority()];
    let known = host.is_some() && names.into_iter().flatten().all(|host| is_ours(options, local, host));
    if !known {
        return Err(Refusal::new(
            reason::HOST,
            "Host is neither loopback nor the address of the admin port; to allow it, add it to server.admin_hosts",
        ));
    }
    let cross_site = |site: &[u8]| site != b"none" && site != b"same-origin";
    let mut origins = headers.get_all(header::ORIGIN).iter();
    if origins.any(|origin| !is_own(origin.as_bytes(), host_text.as_bytes()))
        || headers.get("sec-fetch-site").is_some_and(|site| cross_site(site.as_bytes()))
            && !is_hyperlink(request)
    {
        return Err(Refusal::new(reason::ORIGIN, "requests from web pages (with an Origin) are refused"));
    }
    match &options.token {
        // Health and readiness are public, because health checks often can't send a token.
        Some(token) if !is_public(request.uri().path()) && !has_token(headers, token) => Err(Refusal::new(
            reason::TOKEN,
            "send the token of server.admin_token as Authorization: Bearer TOKEN",
        )),
        _ => Ok(()),
    }
}

/// Returns `true` if a request that passed [`check`] has the token, or no token is needed.
pub(super) fn is_authorized<B>(options: &AdminOptions, request: &Request<B>) -> bool {
    options.token.as_ref().is_none_or(|token| has_token(request.headers(), token))
}

/// Returns `true` for a hyperlink to the status page, for example from another site or a chat. The page opens by
/// itself, and the linking page learns nothing about it (Fetch Metadata, section 4).
fn is_hyperlink<B>(request: &Request<B>) -> bool {
    let has = |name: &str, value: &str| request.headers().get(name).is_some_and(|given| given == value);
    is_page(request.uri().path())
        && request.method() == Method::GET
        && has("sec-fetch-mode", "navigate")
        && has("sec-fetch-dest", "document")
}

/// Returns `true` if an `Origin` is that of the status page: the host and port of the request, which
/// [`check`] accepts.
fn is_own(origin: &[u8], host: &[u8]) -> bool {
    let authority = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

/// Returns `true` if the admin port doesn't check the token: of a health check, because load balancers send none, of the status page,
/// which asks for the token, and of a worker, whose application may have a token of its own.
fn is_public(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz") || is_page(path) || path == LINK_PATH
}

/// Returns `true` if a `Host` value names this server. Ignores the port, which may be forwarded.
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
mod tests;
