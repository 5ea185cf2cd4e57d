//! The request of a worker for a link: `GET /link/v1?app=NAME`.
//!
//! The admin port has checked `Host` and `Origin`. This module checks the WebSocket handshake, the application and the token. A request
//! that is a handshake is answered with 101 even if there is no such application, or the token is wrong: the worker then receives ERROR.

use crate::options::AppOptions;
use std::borrow::Cow;
use std::net::IpAddr;
use stentor_link::{Code, Refusal};
use stentor_wire::http1;
use stentor_wire::ws::handshake;
use subtle::ConstantTimeEq;

/// The subprotocol of links.
const SUBPROTOCOL: &str = "stentor.link.v1";

/// A request on the admin port.
#[derive(Clone, Copy, Debug)]
pub struct LinkRequest<'a> {
    /// The query, without `?`.
    pub query: &'a str,
    /// The headers, each with its name.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// `true` if the request has the admin token.
    pub has_admin_token: bool,
    /// `true` if the admin port has a token.
    pub needs_token: bool,
    /// The worker's address. `None` if it isn't known.
    pub peer: Option<IpAddr>,
}

/// A request that is answered with 101.
#[derive(Debug)]
pub struct Accepted {
    /// Headers of the response.
    pub headers: Vec<(&'static str, String)>,
    /// The number of the application, or the error that the worker receives.
    pub(crate) target: Result<usize, Refusal>,
    pub(crate) peer: Option<IpAddr>,
}

/// A request that isn't a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The status of the response.
    pub status: u16,
    /// The reason, for people.
    pub message: String,
    /// Headers that the status requires.
    pub headers: &'static [(&'static str, &'static str)],
}

impl Refused {
    fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), headers: &[] }
    }
}

/// Checks a request.
///
/// # Errors
/// If it isn't a handshake for a WebSocket of the subprotocol.
pub(crate) fn check(request: LinkRequest<'_>, apps: &[AppOptions]) -> Result<Accepted, Refused> {
    let mut head = b"GET /link/v1 HTTP/1.1\r\n".to_vec();
    for (name, value) in request.headers {
        head.extend([name.as_bytes(), b": ", *value, b"\r\n"].concat());
    }
    head.extend(b"\r\n");
    let limits = http1::Limits { header_bytes_max: head.len(), ..http1::Limits::default() };
    let parsed =
        http1::parse_request(&head, &limits).map_err(|error| Refused::new(400, error.to_string()))?;
    let accepted = handshake::check_request(&parsed, None).map_err(|error| Refused {
        headers: error.headers(),
        ..Refused::new(error.status(), error.to_string())
    })?;
    if !handshake::subprotocols(&parsed).any(|name| name == SUBPROTOCOL) {
        return Err(Refused::new(400, format!("Sec-WebSocket-Protocol doesn't list {SUBPROTOCOL}")));
    }
    let accept = String::from_utf8_lossy(&accepted.accept).into_owned();
    let headers = vec![
        ("upgrade", "websocket".to_owned()),
        ("connection", "Upgrade".to_owned()),
        ("sec-websocket-accept", accept),
        ("sec-websocket-protocol", SUBPROTOCOL.to_owned()),
    ];
    let target = target(request, parsed.header("authorization"), apps);
    Ok(Accepted { headers, target, peer: request.peer })
}

fn target(
    request: LinkRequest<'_>,
    authorization: Option<&[u8]>,
    apps: &[AppOptions],
) -> Result<usize, Refusal> {
    let name = http1::query_pairs(request.query).find(|(key, _)| key == "app").map(|(_, name)| name);
    let found = match &name {
        None if apps.len() == 1 => Some(0),
        None => None,
        Some(name) => apps.iter().position(|app| app.name == **name),
    };
    // A client without the token doesn't learn which applications there are.
    let token = found.and_then(|index| apps[index].token.as_ref());
    let has_token = request.has_admin_token
        || match token {
            Some(token) => bearer(authorization).is_some_and(|given| given.ct_eq(token.bytes()).into()),
            None => !request.needs_token,
        };
    if !has_token {
        return Err(Refusal::new(
            Code::Token,
            "the token of the application, or the admin token, is missing or wrong",
        ));
    }
    found.ok_or_else(|| {
        let message: Cow<'_, str> = match name {
            Some(name) => format!("there is no [[links]] with the app {name:?}").into(),
            None => "there are several [[links]]; name one: /link/v1?app=NAME".into(),
        };
        Refusal::new(Code::AppUnknown, message)
    })
}

/// The token of `Authorization: Bearer TOKEN`.
fn bearer(authorization: Option<&[u8]>) -> Option<&[u8]> {
    let (scheme, token) = authorization?.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Token;

    const HANDSHAKE: [(&str, &[u8]); 6] = [
        ("host", b"127.0.0.1:8001"),
        ("connection", b"Upgrade"),
        ("upgrade", b"websocket"),
        ("sec-websocket-version", b"13"),
        ("sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", b"other, stentor.link.v1"),
    ];

    fn apps(names: &[(&str, Option<&str>)]) -> Vec<AppOptions> {
        let app = |(name, token): &(&str, Option<&str>)| AppOptions {
            name: (*name).into(),
            token: token.map(Token::new),
            ..AppOptions::default()
        };
        names.iter().map(app).collect()
    }

    #[test]
    fn a_request_is_a_handshake_or_refused() {
        let check = |headers: &[(&str, &[u8])], expect: Result<(), (u16, &str)>| {
            let request =
                LinkRequest { query: "", headers, has_admin_token: true, needs_token: true, peer: None };
            let checked = super::check(request, &apps(&[("chat", None)]));
            let found = checked.as_ref().map(|_| ()).map_err(|refused| (refused.status, &*refused.message));
            assert_eq!(found, expect);
        };
        check(&HANDSHAKE, Ok(()));
        check(&HANDSHAKE[..5], Err((400, "Sec-WebSocket-Protocol doesn't list stentor.link.v1")));
        check(&HANDSHAKE[..4], Err((400, "Sec-WebSocket-Key is not base64 of 16 bytes")));
        check(&HANDSHAKE[..2], Err((426, "Upgrade is not websocket")));
        check(&[], Err((400, "Host is missing, repeated or malformed")));
        let request = LinkRequest {
            query: "",
            headers: &HANDSHAKE,
            has_admin_token: true,
            needs_token: true,
            peer: None,
        };
        let accepted = super::check(request, &apps(&[("chat", None)])).unwrap();
        // The example of RFC 6455 section 1.3.
        assert_eq!(accepted.headers[2], ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".to_owned()));
    }

    #[test]
    fn a_worker_needs_a_token_and_an_application() {
        let all = apps(&[("chat", None), ("shop", Some("shop-token"))]);
        let check = |query: &str, token: Option<&str>, admin: Option<bool>, expect: Result<usize, Code>| {
            let authorization = token.map(|token| format!("bearer {token}"));
            let request = LinkRequest {
                query,
                headers: &[],
                has_admin_token: admin == Some(true),
                needs_token: admin.is_some(),
                peer: None,
            };
            let found = target(request, authorization.as_ref().map(|text| text.as_bytes()), &all);
            assert_eq!(found.map_err(|refusal| refusal.code), expect, "{query} {token:?} {admin:?}");
        };
        check("app=chat", None, None, Ok(0));
        check("app=chat", None, Some(true), Ok(0));
        check("app=chat", None, Some(false), Err(Code::Token));
        check("app=chat", Some("shop-token"), Some(false), Err(Code::Token));
        check("app=shop", Some("shop-token"), Some(false), Ok(1));
        check("app=shop", Some("shop-token"), None, Ok(1));
        check("app=shop", None, Some(true), Ok(1));
        check("app=shop", None, None, Err(Code::Token));
        check("app=shop", Some("shop-toke"), None, Err(Code::Token));
        check("app=none", None, None, Err(Code::AppUnknown));
        check("app=none", None, Some(false), Err(Code::Token));
        check("", None, None, Err(Code::AppUnknown));
    }
}
