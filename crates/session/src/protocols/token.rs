//! Sources of a client's token, and the response to a refused token.
//!
//! | source | form | for |
//! |---|---|---|
//! | header `Authorization` | `Bearer TOKEN` | programs, on every route |
//! | subprotocol | `stentor.bearer.TOKEN`, beside the protocol's own subprotocol | WebSockets of browsers |
//! | query | `?token=TOKEN` | every route: SSE, SockJS, Engine.IO 3, Primus |
//! | cookie | [`Tokens::cookie`](crate::options::Tokens::cookie), from pages of the server's own origin or of one that is listed by name | browsers |
//! | header of an authenticating proxy | [`ProxyUsers`](crate::proxy_users::ProxyUsers): the user itself, for the same pages as a cookie | users who have signed in at the proxy |
//!
//! A request with different tokens in the first three sources is refused. A cookie, which a browser sends automatically, counts
//! only without a token in these sources. Socket.IO's `auth.token`, and messages of `stentor.v1` and of Socket.IO clients, also
//! carry tokens, which are newer than the request's token.

use super::request::RequestContext;
use crate::app::{ClientIdentity, Decided, Refused, renews};
use crate::identity::ClientId;
use crate::model::{Disconnect, SessionId};
use crate::ports::{ClientFacts, Credentials, Denial, Identity, ProxyUser};
use crate::proxy_users::UserFault;
use std::borrow::Cow;
use std::sync::Arc;
use stentor_wire::http1::{self, Request};
use stentor_wire::ws::handshake;

/// The prefix of a subprotocol that carries a token.
const BEARER_PROTOCOL: &str = "stentor.bearer.";
/// The subprotocol of `stentor.v1`.
pub(crate) const V1_PROTOCOL: &str = "stentor.v1";

/// The explicit tokens of a request, in no particular order.
fn explicit<'r>(request: &'r Request<'_>) -> impl Iterator<Item = Cow<'r, str>> {
    let header = request.headers().all("authorization").filter_map(|value| {
        let (scheme, token) = std::str::from_utf8(value).ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| Cow::Borrowed(token.trim()))
    });
    let protocol = handshake::subprotocols(request)
        .filter_map(|protocol| protocol.strip_prefix(BEARER_PROTOCOL))
        .map(Cow::Borrowed);
    let query = http1::query_pairs(request.query()).filter(|(name, _)| name == "token");
    header.chain(protocol).chain(query.map(|(_, value)| value)).filter(|token| !token.is_empty())
}

/// Returns `true` if a `traceparent` header is well-formed: version, trace id, parent id and flags, in hexadecimal.
fn is_traceparent(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([2, 32, 16, 2]) && text.bytes().all(|b| matches!(b, b'-' | b'0'..=b'9' | b'a'..=b'f'))
}

/// The token in a cookie.
fn in_cookie<'r>(request: &Request<'r>, name: &str) -> Option<&'r str> {
    let cookies = request.headers().all("cookie").filter_map(|value| std::str::from_utf8(value).ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.split_once('='));
    let (_, token) = pairs.find(|(found, _)| found.trim() == name)?;
    Some(token.trim().trim_matches('"')).filter(|token| !token.is_empty())
}

/// The offered subprotocols that carry no token.
pub(crate) fn subprotocols<'b>(request: &Request<'b>) -> impl Iterator<Item = &'b str> + use<'b> {
    handshake::subprotocols(request).filter(|protocol| !protocol.starts_with(BEARER_PROTOCOL))
}

/// The subprotocol for the response to a handshake. If an offered subprotocol carries a token, this is the first one without a
/// token; otherwise `stentor.v1`, if it is offered.
pub(crate) fn subprotocol<'b>(request: &Request<'b>) -> Option<&'b str> {
    // Most clients offer no subprotocol.
    request.header("sec-websocket-protocol")?;
    let carries_token =
        handshake::subprotocols(request).any(|protocol| protocol.starts_with(BEARER_PROTOCOL));
    let mut others = subprotocols(request);
    if carries_token { others.next() } else { others.find(|protocol| *protocol == V1_PROTOCOL) }
}

/// Returns the token if it must be kept for later CONNECTs, which only Socket.IO has.
fn kept_token(token: &str, protocol: &'static str) -> Option<Box<str>> {
    (protocol == "socketio").then(|| token.into())
}

/// Returns `true` if a request of this protocol opens a lasting session. Requests for documents open none, and Socket.IO's
/// CONNECT does later.
pub(crate) fn opens_session(protocol: &str) -> bool {
    !matches!(protocol, "http" | "socketio")
}

impl<'a> RequestContext<'a> {
    /// The token of the request.
    fn token(&self) -> Result<Option<Cow<'a, str>>, Denial> {
        let mut tokens = explicit(self.request);
        let Some(token) = tokens.next() else {
            let options = self.ex.options();
            let cookie = options.tokens.cookie.as_deref();
            let cookie = cookie
                .filter(|_| options.origins.vouches_for(self.request, self.authority, self.client.is_secure));
            return Ok(cookie.and_then(|name| in_cookie(self.request, name)).map(Cow::Borrowed));
        };
        if tokens.any(|other| other != token) {
            return Err(Denial::new("token_invalid", "the request has different tokens"));
        }
        Ok(Some(token))
    }

    /// The user that an authenticating proxy names, if the request comes from a page that may act for it.
    ///
    /// # Errors
    /// The request must be refused, whichever page it comes from.
    pub(crate) fn proxy_user(&self) -> Result<Option<ProxyUser>, UserFault> {
        let options = self.ex.options();
        let Some(proxy) = &options.tokens.proxy else { return Ok(None) };
        let user = proxy.user_of(self.request, self.is_gateway, self.ex.unix_millis() / 1_000)?;
        Ok(user.filter(|_| options.origins.vouches_for(self.request, self.authority, self.client.is_secure)))
    }

    /// The user of a request whose headers have been checked.
    pub(crate) fn checked_user(&self) -> Option<ProxyUser> {
        self.proxy_user().ok().flatten()
    }

    fn facts(&self, protocol: &'static str) -> ClientFacts<'a> {
        ClientFacts {
            address: Some(self.client.ip),
            protocol,
            namespace: None,
            origin: self.request.header_str("origin"),
            user_agent: self.request.header_str("user-agent"),
            traceparent: self.request.header_str("traceparent").filter(|text| is_traceparent(text)),
        }
    }

    /// Returns `true` if the request has a token, or names a user. Always `false` without an authenticator.
    pub(crate) fn has_token(&self) -> bool {
        let is_on = self.ex.questions.identities.is_on();
        is_on && (!matches!(self.token(), Ok(None)) || self.checked_user().is_some())
    }

    /// Verifies the client's identity. `None` if clients have no identities. `decided` is the decision for which the request
    /// waited, if any.
    ///
    /// # Errors
    /// The token is refused, or the decision is pending.
    pub(crate) fn identify(
        &mut self,
        protocol: &'static str,
        decided: Option<Decided>,
    ) -> Result<Option<Arc<Identity>>, Refused> {
        if !self.ex.questions.identities.is_on() {
            return Ok(None);
        }
        let token = self.token().map_err(Refused::Denied)?;
        let user = self.checked_user();
        let client = self.facts(protocol);
        let credentials = Credentials { user: user.as_ref(), token: token.as_deref(), client, session: None };
        let identity = self.ex.identify(self.conn, &credentials, decided, true)?;
        self.check_user(protocol, identity.as_deref()).map_err(Refused::Denied)?;
        Ok(identity)
    }

    /// Checks whether one more session of an identity's user may begin.
    ///
    /// # Errors
    /// The user has the maximum number of sessions.
    pub(crate) fn check_user(&self, protocol: &str, identity: Option<&Identity>) -> Result<(), Denial> {
        if !opens_session(protocol) {
            return Ok(());
        }
        self.ex.check_user(identity).map_err(|reached| reached.denial())
    }

    /// Keeps the token of a client's first request, and the verified identity.
    pub(crate) fn remember_client(
        &mut self,
        id: ClientId,
        protocol: &'static str,
        identity: Option<Arc<Identity>>,
    ) {
        if !self.ex.questions.identities.is_on() {
            return;
        }
        let token = self.token().ok().flatten();
        let user = self.checked_user();
        let address = self.client.ip;
        let identities = &mut self.ex.questions.identities;
        let request_token = token.as_ref().map(|token| identities.digest(token, None));
        let token = token.and_then(|token| kept_token(&token, protocol));
        identities.set_client(id, ClientIdentity { identity, token, user, request_token, address });
    }

    /// Checks the token of a client's later request, if the request has one: the session's id alone is then not sufficient. A
    /// newer token of the same principal renews the client's sessions. A user that an authenticating proxy names must be that of
    /// the first request, and renews nothing. `decided` is the decision for which the request waited.
    ///
    /// # Errors
    /// The token is refused or belongs to another principal, another user is named, or the decision is pending.
    pub(crate) fn check_token(
        &mut self,
        id: ClientId,
        protocol: &'static str,
        sessions: &[SessionId],
        decided: Option<Decided>,
    ) -> Result<(), Refused> {
        if !self.ex.questions.identities.is_on() {
            return Ok(());
        }
        let user = self.checked_user();
        let identities = &self.ex.questions.identities;
        if let Some(user) = &user {
            let first = identities.client(id).and_then(|client| client.user.as_ref());
            if first.is_none_or(|first| first.subject != user.subject) {
                return Err(Refused::Denied(Denial::new("not_allowed", "the request is another user's")));
            }
        }
        let Some(token) = self.token().map_err(Refused::Denied)? else { return Ok(()) };
        let digest = identities.digest(&token, None);
        if identities.client(id).is_some_and(|client| client.request_token == Some(digest)) {
            return Ok(());
        }
        let client = self.facts(protocol);
        let credentials = Credentials { user: user.as_ref(), token: Some(&token), client, session: None };
        let Some(new) = self.ex.identify(self.conn, &credentials, decided, false)? else { return Ok(()) };
        if user.is_some() {
            return Ok(());
        }
        let identities = &mut self.ex.questions.identities;
        let of_handshake = identities.client(id).and_then(|client| client.identity.clone());
        // In other namespaces, a hook may have assigned another identity.
        let of_sessions = sessions.iter().filter(|_| of_handshake.is_none());
        for current in of_sessions.filter_map(|session| identities.get(*session)).chain(&of_handshake) {
            renews(current, &new).map_err(Refused::Denied)?;
        }
        let is_newer = |current: &Arc<Identity>| renews(current, &new) == Ok(true);
        if let Some(mut client) = identities.client(id).cloned() {
            client.request_token = Some(digest);
            if client.identity.as_ref().is_none_or(is_newer) {
                client.identity = Some(new.clone());
                client.token = kept_token(&token, protocol);
            }
            identities.set_client(id, client);
        }
        for session in sessions {
            if self.ex.questions.identities.get(*session).is_some_and(is_newer) {
                self.ex.renew(*session, new.clone());
            }
        }
        Ok(())
    }
}

/// The reason for closing a session whose client is denied as soon as it begins.
pub(crate) fn disconnect_for(denial: &Denial) -> Disconnect {
    match &*denial.code {
        "token_expired" => Disconnect::TokenExpired,
        "token_revoked" => Disconnect::TokenRevoked,
        code if code.starts_with("token_") => Disconnect::TokenRefused,
        "too_many_requests" => Disconnect::TooManyRequests,
        _ if denial.retry => Disconnect::Overloaded,
        _ => Disconnect::NotAllowed,
    }
}
