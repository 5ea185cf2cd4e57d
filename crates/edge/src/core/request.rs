//! Which route a request takes, and the answers that HTTP clients get.

use crate::encode::ERROR_BYTES_MAX;
use crate::options::{Options, Service};
use stentor_driver::Frame;
use stentor_hub::{Body, FeedState, Hub, Key, KeyError, Position, SessionId};
use stentor_wire::http1::{self, Request};
use stentor_wire::primus;
use stentor_wire::sockjs::{self, Resource, Transport};

use super::table::Awaited;
use crate::encode::Formats;

/// Where a request goes.
pub(super) enum Route<'p> {
    /// `/healthz`
    Health,
    /// A page, by its place in the options.
    Static(usize),
    /// `/ws`: the application's; `/ws/KEY`: one feed, bodies only.
    Socket(Option<Key>),
    /// `/feed/KEY`
    Feed(Key),
    /// `/engine.io/`, or `/socket.io/`.
    Engine {
        is_socketio: bool,
    },
    /// `/sse`, `/sse/KEY`
    Events(Option<Key>),
    /// `/primus/`
    Primus,
    /// `/primus/spec`
    PrimusSpec,
    /// A path under a prefix of SockJS.
    SockJs {
        service: Service,
        route: sockjs::Route<'p>,
    },
    /// A path that should have a key, and hasn't.
    BadKey(KeyError),
    /// `/socket.io/1/…`, where clients of Socket.IO before 1.0 begin.
    OldSocketIo,
    Unknown,
}

impl Route<'_> {
    /// Whether a request's body is what it is about.
    pub(super) fn takes_body(&self) -> bool {
        match self {
            Self::Engine { .. } => true,
            Self::SockJs { route, .. } => matches!(
                route.resource,
                Resource::Session { transport: Transport::XhrSend | Transport::JsonpSend, .. }
            ),
            _ => false,
        }
    }
}

pub(super) fn route<'p>(path: &'p str, options: &Options) -> Route<'p> {
    if let Some(page) = options.routes.iter().position(|page| page.path == path) {
        return Route::Static(page);
    }
    let with_key = |rest: &str, then: fn(Key) -> Route<'p>| match key_of_path(rest) {
        Ok(key) => then(key),
        Err(error) => Route::BadKey(error),
    };
    match path.strip_prefix(super::primus::PATH).and_then(primus::parse_path) {
        Some(primus::Route::Connect) => return Route::Primus,
        Some(primus::Route::Spec) => return Route::PrimusSpec,
        // Pages get it from their own build of the client.
        Some(primus::Route::Library) | None => {}
    }
    match path {
        "/healthz" => Route::Health,
        "/ws" | "/ws/" => Route::Socket(None),
        "/sse" | "/sse/" => Route::Events(None),
        "/engine.io" | "/engine.io/" => Route::Engine { is_socketio: false },
        "/socket.io" | "/socket.io/" => Route::Engine { is_socketio: true },
        _ if path.starts_with("/socket.io/1/") => Route::OldSocketIo,
        _ => match ["/ws/", "/feed/", "/sse/"].map(|begin| path.strip_prefix(begin)) {
            [Some(rest), ..] => with_key(rest, |key| Route::Socket(Some(key))),
            [_, Some(rest), _] => with_key(rest, Route::Feed),
            [_, _, Some(rest)] => with_key(rest, |key| Route::Events(Some(key))),
            _ => sockjs_route(path, options).unwrap_or(Route::Unknown),
        },
    }
}

/// A path under the longest prefix of SockJS that fits.
fn sockjs_route<'p>(path: &'p str, options: &Options) -> Option<Route<'p>> {
    let under =
        |prefix: &str| path.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let all = options.sockjs.iter().enumerate();
    let fitting =
        all.filter_map(|(place, sockjs)| Some((place, sockjs.prefix.len(), under(&sockjs.prefix)?)));
    let (place, _, rest) = fitting.max_by_key(|(_, bytes, _)| *bytes)?;
    Some(Route::SockJs { service: Service::of(place), route: sockjs::parse_path(rest)? })
}

/// A key in a path: decoded once, and an encoded slash is refused, because proxies disagree on what it
/// means.
pub(super) fn key_of_path(encoded: &str) -> Result<Key, KeyError> {
    if let Some(at) = encoded.to_ascii_lowercase().find("%2f") {
        return Err(KeyError::Character(at));
    }
    match http1::percent_decode(encoded) {
        Ok(text) => Key::parse(&text),
        Err(_) => Err(KeyError::Character(encoded.find('%').unwrap_or(0))),
    }
}

/// How a request wants to be answered.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    /// The connection is kept for the next request.
    pub(super) keep_alive: bool,
    /// Only the head is sent: an answer to HEAD, whatever its status, has no body (RFC 9110, 9.3.2).
    pub(super) head_only: bool,
}

impl Manner {
    /// The last answer of a connection, to a request that may not have been understood.
    pub(super) const LAST: Self = Self { keep_alive: false, head_only: false };

    pub(super) fn of(request: &Request<'_>, draining: bool) -> Self {
        Self { keep_alive: request.keep_alive() && !draining, head_only: request.method() == "HEAD" }
    }
}

/// An answer with a short text for people.
pub(super) fn text(out: &mut Vec<u8>, manner: Manner, status: u16, extra: &[(&str, &str)], text: &str) {
    let text = &text[..text.floor_char_boundary(ERROR_BYTES_MAX)];
    let body = format!("{text}\n");
    answer(out, manner, status, "text/plain; charset=utf-8", extra, body.as_bytes());
}

/// An answer with a body that is there already.
pub(super) fn answer(
    out: &mut Vec<u8>,
    manner: Manner,
    status: u16,
    content_type: &str,
    extra: &[(&str, &str)],
    body: &[u8],
) {
    write_head(out, manner, status, content_type, extra, body.len());
    if !manner.head_only && status != 304 {
        out.extend_from_slice(body);
    }
}

fn write_head(
    out: &mut Vec<u8>,
    manner: Manner,
    status: u16,
    content_type: &str,
    extra: &[(&str, &str)],
    len: usize,
) {
    let length = len.to_string();
    let mut headers: Vec<(&str, &str)> = Vec::with_capacity(extra.len() + 4);
    if !matches!(status, 204 | 304) {
        headers.push(("Content-Type", content_type));
        headers.push(("Content-Length", &length));
    }
    // Nothing is guessed from content: a document is never run as a script.
    headers.push(("X-Content-Type-Options", "nosniff"));
    headers.push(("Connection", if manner.keep_alive { "keep-alive" } else { "close" }));
    headers.extend_from_slice(extra);
    http1::write_response_head(out, status, &headers);
}

/// The headers by which a page of another origin may read the answer, with the tag of a document and the time to come
/// back after.
pub(super) fn cors(origin: Option<&str>) -> Vec<(&str, &str)> {
    match origin {
        Some(origin) => vec![
            ("Access-Control-Allow-Origin", origin),
            ("Access-Control-Expose-Headers", "ETag, Retry-After"),
            ("Vary", "Origin"),
        ],
        None => vec![("Vary", "Origin")],
    }
}

/// A document is content of its upstream, not of this server. With this header, a browser that opens it gives it a
/// separate origin and runs no script in it (CSP 3, section 6.3.2).
const SANDBOX: (&str, &str) = ("Content-Security-Policy", "sandbox");

/// Lets a page send cookies if its origin is listed. For `*`, this would let every page act as the user.
pub(super) fn push_credentials(headers: &mut Vec<(&str, &str)>, origin: Option<&str>) {
    if origin.is_some_and(|origin| origin != "*") {
        headers.push(("Access-Control-Allow-Credentials", "true"));
    }
}

/// The entity tag of a version.
fn etag(position: Position) -> String {
    format!("\"{}-{}\"", position.epoch.0, position.offset)
}

/// Whether an `If-None-Match` names a tag (RFC 9110, 13.1.2, weak comparison).
fn names(if_none_match: &str, tag: &str) -> bool {
    if_none_match.split(',').map(str::trim).any(|one| one == "*" || one.trim_start_matches("W/") == tag)
}

/// Whether `?wait=` names a tag, with or without its quotes.
fn is_known(wait: &str, tag: &str) -> bool {
    names(wait, tag) || wait == tag.trim_matches('"')
}

impl Awaited {
    pub(super) fn new(key: Key, request: &Request<'_>, origin: Option<&str>, manner: Manner) -> Self {
        let wait = http1::query_pairs(request.query()).find(|(name, _)| name == "wait");
        Self {
            key,
            head_only: manner.head_only,
            keep_alive: manner.keep_alive,
            if_none_match: request.header_str("if-none-match").map(str::to_owned),
            origin: origin.map(str::to_owned),
            known: wait.map(|(_, tag)| tag.into_owned()),
            unchanged: None,
            answered: false,
        }
    }

    /// The same, but the connection's last request where `last`.
    pub(super) fn last_if(self, last: bool) -> Self {
        Self { keep_alive: self.keep_alive && !last, ..self }
    }

    /// Answers with what the session is owed, if that is an answer; says whether it is an error.
    pub(super) fn answer(
        &mut self,
        session: SessionId,
        hub: &mut Hub<Formats>,
        frames: &mut Vec<Frame>,
        draining: bool,
    ) -> bool {
        let mut failed = false;
        while !self.answered && hub.has_pending(session) {
            let mut taken = 0;
            hub.take(session, 0, 1, |publication, frame| {
                taken += 1;
                match publication.body() {
                    Body::Snapshot { position, document, .. } => {
                        let tag = etag(*position);
                        if self.known.as_deref().is_some_and(|known| is_known(known, &tag)) {
                            self.unchanged = Some(*position);
                            return;
                        }
                        self.answered = true;
                        let mut extra = cors(self.origin.as_deref());
                        extra.extend([SANDBOX, ("ETag", &*tag), ("Cache-Control", "no-cache")]);
                        let unchanged = self.if_none_match.as_deref().is_some_and(|list| names(list, &tag));
                        let status = if unchanged { 304 } else { 200 };
                        let mut head = Vec::with_capacity(256);
                        let len = document.body.len();
                        let manner = self.manner(draining);
                        write_head(&mut head, manner, status, &document.content_type, &extra, len);
                        frames.push(Frame::owned(head));
                        if !self.head_only && !unchanged && len > 0 {
                            frames.push(frame.clone());
                        }
                    }
                    Body::State { state, reason, .. } => {
                        // While the client has the newest document, only the end of the feed completes the request.
                        let status = match state {
                            FeedState::NotFound => 404,
                            FeedState::Complete if self.unchanged.is_none() => 404,
                            FeedState::Stale if self.unchanged.is_none() => 502,
                            FeedState::Complete | FeedState::Stale | FeedState::Live => return,
                        };
                        self.answered = true;
                        failed = true;
                        let mut out = Vec::with_capacity(256);
                        self.fail(status, reason, draining, &mut out);
                        frames.push(Frame::owned(out));
                    }
                    Body::Message { .. } | Body::Delta { .. } => {}
                }
            });
            if taken == 0 {
                break;
            }
        }
        failed
    }

    /// Appends an answer without a document: an error, or that it is unchanged.
    pub(super) fn fail(&self, status: u16, reason: &str, draining: bool, out: &mut Vec<u8>) {
        let mut extra = cors(self.origin.as_deref());
        extra.push(SANDBOX);
        let tag = self.unchanged.map(etag);
        match &tag {
            Some(tag) if status == 304 => extra.extend([("ETag", &**tag), ("Cache-Control", "no-cache")]),
            _ => extra.push(("Cache-Control", "no-store")),
        }
        text(out, self.manner(draining), status, &extra, reason);
    }

    fn manner(&self, draining: bool) -> Manner {
        Manner { keep_alive: self.keep_alive && !draining, head_only: self.head_only }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{SockJs, StaticRoute};

    #[test]
    fn routes() {
        fn check(path: &str, expect: &str) {
            let page = StaticRoute { path: "/".into(), content_type: "text/html".into(), body: [].into() };
            let options = Options {
                routes: vec![page],
                sockjs: ["/sockjs", "/s", "/s/long"].map(SockJs::at).into(),
                ..Options::default()
            };
            let got = match route(path, &options) {
                Route::Health => "health".to_owned(),
                Route::Static(n) => format!("page {n}"),
                Route::Socket(None) => "socket".to_owned(),
                Route::Socket(Some(key)) => format!("socket {key}"),
                Route::Feed(key) => format!("feed {key}"),
                Route::Engine { is_socketio } => format!("engine {is_socketio}"),
                Route::Primus => "primus".to_owned(),
                Route::PrimusSpec => "primus spec".to_owned(),
                Route::Events(key) => format!("events {key:?}"),
                Route::SockJs { service, route } => {
                    format!("sockjs {:?} {:?} {:?}", service.place(), route.key, route.resource.status())
                }
                Route::BadKey(error) => format!("{error:?}"),
                Route::OldSocketIo => "old".to_owned(),
                Route::Unknown => "unknown".to_owned(),
            };
            assert_eq!(got, expect, "{path}");
        }
        check("/", "page 0");
        check("/healthz", "health");
        check("/socket.io/1/", "old");
        check("/socket.io/1/websocket/1234", "old");
        check("/socket.io/1", "unknown");
        check("/socket.io/socket.io.js", "unknown");
        check("/ws", "socket");
        check("/ws/matches/8", "socket matches/8");
        check("/ws/a%20b", "Character(1)");
        check("/ws/a%2Fb", "Character(1)");
        check("/ws/a%252fb", "Character(1)");
        check("/ws/%zz", "Character(0)");
        check("/feed/x%2Dy", "feed x-y");
        check("/feed/../admin", "DotSegment");
        check("/feed/%2e%2e/admin", "DotSegment");
        check("/feed/", "Empty");
        check("/engine.io/", "engine false");
        check("/socket.io", "engine true");
        check("/socket.io/socket.io.js", "unknown");
        check("/wsx", "unknown");
        check("/primus", "primus");
        check("/primus/", "primus");
        check("/primus/spec", "primus spec");
        check("/primus/primus.js", "unknown");
        check("/primusx", "unknown");
        check("/sse", "events None");
        check("/sse/a/b", "events Some(Key(a/b))");
        check("/sse/a%2fb", "Character(1)");
        check("/sockjs", "sockjs Some(0) None 200");
        check("/sockjs/1/2/xhr_send", "sockjs Some(0) None 204");
        check("/sockjs/feed/a/b/1/2/xhr", "sockjs Some(0) Some(\"a/b\") 200");
        check("/sockjsx/info", "unknown");
        check("/sockjs/info/x", "unknown");
        check("/s/info", "sockjs Some(1) None 200");
        check("/s/long/info", "sockjs Some(2) None 200");
        check("/s/long/a/b/xhr_send", "sockjs Some(2) None 204");
        check("/s/longer/b/xhr_send", "sockjs Some(1) None 204");
    }

    #[test]
    fn entity_tags() {
        assert!(
            names("\"1-2\"", "\"1-2\"") && names("\"0-1\", W/\"1-2\"", "\"1-2\"") && names("*", "\"1-2\"")
        );
        assert!(!names("\"1-20\"", "\"1-2\""));
        assert!(is_known("1-2", "\"1-2\"") && is_known("\"1-2\"", "\"1-2\"") && !is_known("1-20", "\"1-2\""));
    }
}
