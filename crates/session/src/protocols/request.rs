//! The outcomes of HTTP requests, and the responses to HTTP clients.

mod suspended;

pub(super) use suspended::Answer;
pub(crate) use suspended::{Answered, Suspended};

use super::dialect::Upgraded;
use super::response::Response;
use crate::encode::ERROR_BYTES_MAX;
use crate::executor::Executor;
use crate::http_date::HttpDate;
use crate::identity::{ClientId, Owner, Service, Sid};
use crate::limits::LimitReached;
use crate::model::{ConnId, CoreId, Key, KeyError, KeyRule, SessionId};
use crate::ports::{Denial, EngineCors, EngineOptions, ForwardedClient, Handover, NodeTag};
use crate::proxies::ClientAddress;
use std::sync::Arc;
use stentor_wire::http1::{self, Request, Version};

/// The outcome of a request.
pub enum RequestOutcome {
    /// The response is complete.
    Answered { keep_alive: bool },
    /// The connection is upgraded to a WebSocket.
    Upgraded(Upgraded),
    /// The rest of the response follows later.
    Waiting(Box<dyn Response>),
    /// The request waits for an answer.
    Suspended(Suspended),
    /// The request needs its body, of at most this size. `opened` is the client that the request has opened, if the body
    /// has the client's first messages.
    Body { bytes_max: usize, opened: Option<Box<Opened>> },
    /// The rest of the body is handled later: after the publications of its first part have been sent, or when a decision
    /// arrives.
    Rest,
    /// The request belongs to another core.
    Move(CoreId),
    /// The request belongs to another node.
    Relay(NodeTag),
    /// The HTTP server of a worker answers the request.
    Forward(ForwardedClient),
}

impl RequestOutcome {
    /// The response is complete, and the connection ends.
    pub(crate) const LAST: Self = Self::Answered { keep_alive: false };
}

/// A request that is being answered, with the functions that answer, refuse or move it.
pub struct RequestContext<'a> {
    pub(crate) ex: &'a mut Executor,
    pub(crate) request: &'a Request<'a>,
    /// Options of the application whose workers serve the client. `None`: it isn't served by workers.
    pub(crate) engine: Option<&'a Arc<EngineOptions>>,
    /// Properties of the response.
    pub options: ResponseOptions,
    /// Responses are appended to this.
    pub out: &'a mut Vec<u8>,
    pub(crate) conn: ConnId,
    /// The session of the connection.
    pub session: &'a mut Option<SessionId>,
    /// The client that sent the request.
    pub client: ClientAddress,
    /// The host and port that the client named: the header `Host`, unless a trusted proxy states another one.
    pub(crate) authority: &'a str,
    /// `true` if the other end of the socket is an authenticating proxy, which may name the user.
    pub(crate) is_gateway: bool,
    /// The client's port. 0 if a proxy hides it.
    pub(crate) port: u16,
    /// Number of clients of this core.
    pub clients: usize,
    /// `true` if the connection can't be moved, because another core had no room for it.
    pub stays: bool,
    /// The way in which the connection arrived. `None` if it comes directly from its client. Other connections aren't relayed.
    pub handover: Option<Handover>,
    /// Returns the current core of a client that began on this core and was moved.
    pub(crate) departed: &'a dyn Fn(Sid) -> Option<CoreId>,
}

impl<'a> RequestContext<'a> {
    /// Returns `true` if the client requests a WebSocket.
    pub(crate) fn is_upgrade(&self) -> bool {
        self.request.upgrade_has_websocket()
    }

    /// The connection as the owner of a session.
    pub(crate) fn owner(&self, service: Service) -> Owner {
        Owner::Connection(self.conn.index(), service)
    }

    /// Returns `true` if the request is for a representation (GET or HEAD).
    pub(crate) fn reads(&self) -> bool {
        matches!(self.request.method(), "GET" | "HEAD")
    }

    /// The value of `Access-Control-Allow-Origin`, except for SockJS.
    pub(crate) fn allow_origin(&self) -> Option<&'a str> {
        self.ex.options().origins.answer(self.request.header_str("origin"))
    }

    /// The rules by which the application allows the request's origin. `None`: those of the node apply.
    pub(crate) fn cors_of_app(&self) -> Option<&'a EngineCors> {
        let origin = self.request.header_str("origin");
        self.engine?.cors.as_ref().filter(|cors| origin.is_none_or(|origin| cors.allows(origin)))
    }

    /// Counts a request that is answered with an error.
    pub(crate) fn count_error(&self) {
        self.ex.metrics().request_errors.add(1);
    }

    /// The outcome of a request that needs its body, with messages of a client.
    pub(crate) fn body(&self) -> RequestOutcome {
        let bytes_max = self.ex.options().limits.message_bytes_max;
        let of_app = self.engine.and_then(|engine| engine.message_bytes_max);
        RequestOutcome::Body {
            bytes_max: of_app.map_or(bytes_max, |of_app| of_app.min(bytes_max)),
            opened: None,
        }
    }

    pub(crate) fn answered(&self) -> RequestOutcome {
        RequestOutcome::Answered { keep_alive: self.options.keep_alive }
    }

    /// Answers with a complete body.
    pub(crate) fn answer(
        &mut self,
        status: u16,
        content_type: &str,
        extra: &[(&str, &str)],
        body: &[u8],
    ) -> RequestOutcome {
        answer(self.out, self.options, status, content_type, extra, body);
        self.answered()
    }

    /// The headers with which a page of another origin may read an error.
    fn cors_of_error(&self) -> Vec<(&'a str, &'a str)> {
        let origin = self.request.header_str("origin");
        if let Some(cors) = self.cors_of_app() {
            return cors.headers(origin);
        }
        cors_of_error(self.ex, origin, self.authority, self.client.is_secure)
    }

    /// Answers with an error. A page of an allowed origin may read it. `extra` are further headers.
    pub(crate) fn refuse(&mut self, status: u16, extra: &[(&str, &str)], why: &str) -> RequestOutcome {
        self.count_error();
        let extra = with_cors(self.cors_of_error(), extra);
        text(self.out, self.options, status, &extra, why);
        self.answered()
    }

    /// Answers a client that is refused, or whose action is refused.
    pub(crate) fn refuse_denied(&mut self, denial: &Denial, extra: &[(&str, &str)]) -> RequestOutcome {
        let challenge = challenge(denial);
        let challenge = challenge.as_ref().map(|(name, value)| (*name, &**value));
        let status = status_of(denial);
        let retry_after = (status == 429).then_some(("Retry-After", "5"));
        let extra: Vec<(&str, &str)> = extra.iter().copied().chain(challenge).chain(retry_after).collect();
        self.refuse(status, &extra, &denial.message)
    }

    /// Answers with an error. Then the connection ends.
    pub(crate) fn refuse_last(&mut self, status: u16, extra: &[(&str, &str)], why: &str) -> RequestOutcome {
        self.options = ResponseOptions::last(self.ex);
        self.refuse(status, extra, why)
    }

    /// Refuses a request whose method isn't GET or HEAD.
    pub(crate) fn refuse_method(&mut self, mut extra: Vec<(&str, &str)>) -> RequestOutcome {
        extra.push(("Allow", "GET, HEAD"));
        self.refuse(405, &extra, "only GET and HEAD are answered here")
    }

    /// Answers that the client should retry after this number of seconds. The connection ends.
    pub(crate) fn unavailable(
        &mut self,
        retry_after: &str,
        extra: &[(&str, &str)],
        why: &str,
    ) -> RequestOutcome {
        let extra = with_cors(self.cors_of_error(), &[extra, &[("Retry-After", retry_after)]].concat());
        text(self.out, ResponseOptions::last(self.ex), 503, &extra, why);
        RequestOutcome::LAST
    }

    /// Answers that the client has reached a limit. The connection ends.
    pub(crate) fn refuse_limit(&mut self, reached: LimitReached) -> RequestOutcome {
        let retry_after = reached.retry_after_seconds().to_string();
        self.refuse_last(429, &[("Retry-After", &*retry_after)], &reached.denial().message)
    }

    /// Answers while the server shuts down.
    pub(crate) fn unavailable_while_draining(&mut self, extra: &[(&str, &str)]) -> Option<RequestOutcome> {
        self.ex.is_draining().then(|| self.unavailable("1", extra, "the server is shutting down"))
    }

    /// Answers that the server has no room for another client.
    pub(crate) fn unavailable_to_new_clients(&mut self) -> Option<RequestOutcome> {
        let is_full = self.clients >= self.ex.options().limits.connections_max;
        let outcome = self.unavailable_while_draining(&[]);
        outcome.or_else(|| {
            is_full.then(|| self.unavailable("5", &[], "too many sessions (limits.connections_max)"))
        })
    }

    /// Moves the connection to the core of its client, or answers that this isn't possible now.
    pub(crate) fn move_to(&mut self, core: CoreId) -> RequestOutcome {
        if self.ex.is_finishing() || self.stays {
            return self.unavailable("1", &[], "the session's core is busy; try again");
        }
        RequestOutcome::Move(core)
    }

    /// Relays the connection to the node that an id names, after the node has been looked up if it isn't known. `refuse`
    /// answers if the node can't be reached, or the request has already been relayed.
    pub(crate) fn relay_to_node_of(
        &mut self,
        id: Sid,
        refuse: fn(&mut RequestContext<'_>) -> RequestOutcome,
    ) -> RequestOutcome {
        let node = id.node();
        if let Some(relay) = self.ex.options().relay.as_ref().filter(|_| self.handover.is_none())
            && !relay.reaches(node)
        {
            relay.find(node, self.ex.when_located(self.conn));
            return RequestOutcome::Suspended(Suspended::until_located(move |cx, _, _| {
                cx.relay_to(node).unwrap_or_else(|| refuse(cx))
            }));
        }
        self.relay_to(node).unwrap_or_else(|| refuse(self))
    }

    /// Relays the connection to the node of its client, or answers that this isn't possible now. `None` if the node can't be
    /// reached, or the request has already been relayed.
    pub(crate) fn relay_to(&mut self, node: NodeTag) -> Option<RequestOutcome> {
        let relay = self.ex.options().relay.as_ref().filter(|_| self.handover.is_none())?;
        if !relay.reaches(node) {
            return None;
        }
        if self.ex.is_draining() || self.stays {
            return Some(self.unavailable("1", &[], "the session's node is busy; try again"));
        }
        Some(RequestOutcome::Relay(node))
    }
}

/// The HTTP status for a denial.
pub(crate) fn status_of(denial: &Denial) -> u16 {
    match &*denial.code {
        code if code.starts_with("token_") => 401,
        "too_many_requests" => 429,
        _ if denial.retry => 503,
        _ => 403,
    }
}

/// The header of a response with status 401 (RFC 6750, section 3).
pub(crate) fn challenge(denial: &Denial) -> Option<(&'static str, String)> {
    let value = match &*denial.code {
        "token_missing" => "Bearer".to_owned(),
        code if code.starts_with("token_") => {
            // Quotes and control characters would break the header.
            let code: String =
                code.chars().filter(|char| char.is_ascii_alphanumeric() || *char == '_').collect();
            format!("Bearer error=\"invalid_token\", error_description=\"{code}\"")
        }
        _ => return None,
    };
    Some(("WWW-Authenticate", value))
}

/// A client whose first messages are in the body of the request that opened its session.
pub struct Opened {
    pub(crate) client: ClientId,
    /// Headers for the response.
    pub(crate) headers: Vec<(String, String)>,
}

/// A request with the received part of its body.
#[derive(Default)]
pub struct BufferedRequest {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
    /// Number of handled bytes of the body (of the decoded body, if it is a form).
    pub done: usize,
    /// Number of remaining SockJS messages, if the body is partly handled. `body` is then decoded.
    pub begun: Option<usize>,
    /// The client that the request has opened.
    pub(crate) opened: Option<Box<Opened>>,
    /// The client that moves to another core with the rest of the request.
    pub migrates: Option<ClientId>,
}

impl BufferedRequest {
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.head.capacity() + self.body.capacity()
    }
}

/// Properties of a response.
#[derive(Clone, Copy)]
pub struct ResponseOptions {
    /// `true` if the connection is kept for the next request.
    pub keep_alive: bool,
    /// `true` if only the headers are sent, because the request is HEAD (RFC 9110, 9.3.2).
    pub(crate) head_only: bool,
    pub(crate) date: HttpDate,
}

impl ResponseOptions {
    /// Properties of the last response of a connection, to a request that may be invalid.
    pub(crate) fn last(ex: &Executor) -> Self {
        Self { keep_alive: false, head_only: false, date: ex.date() }
    }

    /// Properties of the response to a request. After a refused WebSocket, further input may be frames, which must not be parsed
    /// as requests, so the connection ends (CVE-2020-7693). `ends` is `true` if it ends in any case.
    pub(crate) fn of(ex: &Executor, request: &Request<'_>, ends: bool) -> Self {
        Self {
            keep_alive: request.keep_alive() && !request.upgrade_has_websocket() && !ends,
            head_only: request.method() == "HEAD",
            date: ex.date(),
        }
    }
}

/// Appends a response with a short text for people.
pub(crate) fn text(
    out: &mut Vec<u8>,
    options: ResponseOptions,
    status: u16,
    extra: &[(&str, &str)],
    text: &str,
) {
    let text = &text[..text.floor_char_boundary(ERROR_BYTES_MAX)];
    let body = format!("{text}\n");
    answer(out, options, status, "text/plain; charset=utf-8", extra, body.as_bytes());
}

/// Appends a response with a complete body.
pub(crate) fn answer(
    out: &mut Vec<u8>,
    options: ResponseOptions,
    status: u16,
    content_type: &str,
    extra: &[(&str, &str)],
    body: &[u8],
) {
    write_head(out, options, status, content_type, extra, body.len());
    if !options.head_only && !matches!(status, 204 | 304) {
        out.extend_from_slice(body);
    }
}

pub(crate) fn write_head(
    out: &mut Vec<u8>,
    options: ResponseOptions,
    status: u16,
    content_type: &str,
    extra: &[(&str, &str)],
    len: usize,
) {
    let length = len.to_string();
    let mut headers: Vec<(&str, &str)> = Vec::with_capacity(extra.len() + 5);
    headers.push(("Date", options.date.as_str()));
    if !matches!(status, 204 | 304) {
        headers.push(("Content-Type", content_type));
        headers.push(("Content-Length", &length));
    }
    // Browsers must not guess the type from the content, so a document never runs as a script.
    headers.push(("X-Content-Type-Options", "nosniff"));
    headers.push(("Connection", if options.keep_alive { "keep-alive" } else { "close" }));
    headers.extend_from_slice(extra);
    http1::write_response_head(out, status, &headers);
}

/// Borrows headers in the form in which they are written.
pub(crate) fn borrowed(headers: &[(String, String)]) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, value)| (&**name, &**value)).collect()
}

/// Writes the headers of a response that is sent in pieces, including the header that determines where it ends. Returns `true`
/// if the pieces are chunks (HTTP/1.1). Otherwise, the connection ends with the response.
pub(crate) fn write_stream_head(
    out: &mut Vec<u8>,
    request: &Request<'_>,
    options: &mut ResponseOptions,
    status: u16,
    content_type: &str,
    extra: &[(&str, &str)],
) -> bool {
    let chunked = request.version() == Version::Http11;
    options.keep_alive &= chunked;
    let date = options.date;
    let mut headers = vec![
        ("Date", date.as_str()),
        ("Content-Type", content_type),
        ("X-Content-Type-Options", "nosniff"),
        ("Connection", if options.keep_alive { "keep-alive" } else { "close" }),
    ];
    if chunked {
        headers.push(("Transfer-Encoding", "chunked"));
    }
    headers.extend_from_slice(extra);
    http1::write_response_head(out, status, &headers);
    chunked
}

/// Appends a piece of a response that is sent in pieces.
pub(crate) fn write_piece(out: &mut Vec<u8>, chunked: bool, piece: &[u8]) {
    if chunked {
        http1::write_chunk(out, piece);
    } else {
        out.extend_from_slice(piece);
    }
}

/// The headers with which a page of another origin may read the response, including the entity tag and `Retry-After`. A
/// page of a listed origin may also send cookies.
pub(crate) fn cors(origin: Option<&str>) -> Vec<(&str, &str)> {
    let mut headers = cors_without_credentials(origin);
    push_credentials(&mut headers, origin);
    headers
}

/// Like [`cors`], for requests without cookies.
pub(crate) fn cors_without_credentials(origin: Option<&str>) -> Vec<(&str, &str)> {
    match origin {
        Some(origin) => vec![
            ("Access-Control-Allow-Origin", origin),
            ("Access-Control-Expose-Headers", "ETag, Retry-After, Stentor-Version, WWW-Authenticate"),
            ("Vary", "Origin"),
        ],
        None => vec![("Vary", "Origin")],
    }
}

/// The headers with which a page may read an error, if its origin is allowed to connect to `authority`.
pub(crate) fn cors_of_error<'r>(
    ex: &Executor,
    origin: Option<&'r str>,
    authority: &str,
    is_secure: bool,
) -> Vec<(&'r str, &'r str)> {
    let origins = &ex.options().origins;
    let allowed = origin.filter(|_| origins.allow(origin, authority, is_secure));
    match origins.answer(allowed) {
        Some("*") => cors(Some("*")),
        _ => cors(allowed),
    }
}

/// Returns `extra` with the headers of `cors` whose names `extra` doesn't have.
fn with_cors<'h>(cors: Vec<(&'h str, &'h str)>, extra: &[(&'h str, &'h str)]) -> Vec<(&'h str, &'h str)> {
    let has = |name: &str| extra.iter().any(|(other, _)| *other == name);
    let missing = cors.into_iter().filter(|(name, _)| !has(name)).collect();
    [missing, extra.to_vec()].concat()
}

/// Allows a page to send cookies if its origin is listed. With `*`, this would allow every page to act as the user.
pub(crate) fn push_credentials(headers: &mut Vec<(&str, &str)>, origin: Option<&str>) {
    if origin.is_some_and(|origin| origin != "*") {
        headers.push(("Access-Control-Allow-Credentials", "true"));
    }
}

/// The time for which browsers cache the response to a preflight request: the maximum of Chromium. Firefox allows a day.
/// Without this header, browsers send another preflight after 5 s (Fetch, 4.9). The requests themselves are still checked.
const PREFLIGHT_SECONDS: &str = "7200";

/// Adds the headers of the response to a preflight request (Fetch, 3.2.2).
pub(crate) fn push_preflight<'r>(
    headers: &mut Vec<(&'r str, &'r str)>,
    request: &Request<'r>,
    methods: &'r str,
) {
    headers.push(("Access-Control-Allow-Methods", methods));
    headers.push(("Access-Control-Max-Age", PREFLIGHT_SECONDS));
    if let Some(asked) = request.header_str("access-control-request-headers") {
        headers.push(("Access-Control-Allow-Headers", asked));
    }
}

/// Decodes a key in a path. An encoded slash or backslash is refused, because proxies interpret it differently.
pub(crate) fn key_of_path(encoded: &str, keys: &KeyRule) -> Result<Key, KeyError> {
    let lower = encoded.to_ascii_lowercase();
    if let Some(at) = ["%2f", "%5c"].iter().filter_map(|slash| lower.find(slash)).min() {
        return Err(KeyError::Encoding(at));
    }
    match http1::percent_decode(encoded) {
        Ok(text) => keys.parse(&text),
        Err(_) => Err(KeyError::Encoding(encoded.find('%').unwrap_or(0))),
    }
}
