//! What requests are answered with, by their routes.

use super::{Http, HttpContext, Waiting};
use crate::app::HandlerScope;
use crate::identity::Service;
use crate::model::{Key, KeyError, SessionId, Topic};
use crate::options::Options;
use crate::origin;
use crate::plane;
use crate::protocols::document::Awaited;
use crate::protocols::profile::{Framing, Pinging};
use crate::protocols::request::{
    BufferedRequest, RequestContext, RequestOutcome, ResponseOptions, answer, cors, key_of_path, text,
};
use crate::protocols::websocket::{UpgradeOutcome, UpgradeTarget, WebSocket, handle_upgrade};
use crate::protocols::{engineio, page, primus, sockjs, sse};
use stentor_wire::http1::{BodyKind, Request};
use stentor_wire::sockjs::{Resource, Transport};

type Outcome = RequestOutcome<Waiting>;

/// What the built-in pages may do: run and style themselves, and talk to this server.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline' 'self'; style-src 'unsafe-inline'; img-src data: 'self'; \
     connect-src 'self' ws: wss:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What became of a request.
pub(super) enum Routed {
    Response(Outcome),
    Upgraded(WebSocket, SessionId),
}

/// Where a request goes.
enum Route<'p> {
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
        route: stentor_wire::sockjs::Route<'p>,
    },
    /// The path of a custom protocol, by its place in the options.
    Custom(usize),
    /// A path that should have a key, and hasn't.
    BadKey(KeyError),
    /// `/socket.io/1/…`, where clients of Socket.IO before 1.0 begin.
    OldSocketIo,
    Unknown,
}

impl Route<'_> {
    /// Whether a page must be allowed to connect.
    fn connects(&self) -> bool {
        matches!(
            self,
            Self::Socket(_)
                | Self::Feed(_)
                | Self::Engine { .. }
                | Self::Events(_)
                | Self::Primus
                | Self::PrimusSpec
                | Self::SockJs { .. }
                | Self::Custom(_)
        )
    }

    /// Whether a request's body is what it is about.
    fn takes_body(&self) -> bool {
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

fn find<'p>(path: &'p str, options: &Options) -> Route<'p> {
    if let Some(page) = options.routes.iter().position(|page| page.path == path) {
        return Route::Static(page);
    }
    let with_key = |rest: &str, then: fn(Key) -> Route<'p>| match key_of_path(rest) {
        Ok(key) => then(key),
        Err(error) => Route::BadKey(error),
    };
    match path.strip_prefix(primus::PATH).and_then(stentor_wire::primus::parse_path) {
        Some(stentor_wire::primus::Route::Connect) => return Route::Primus,
        Some(stentor_wire::primus::Route::Spec) => return Route::PrimusSpec,
        // Pages get it from their own build of the client.
        Some(stentor_wire::primus::Route::Library) | None => {}
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
            _ => match options.protocols.iter().position(|protocol| protocol.path == path) {
                Some(place) => Route::Custom(place),
                None => sockjs_route(path, options).unwrap_or(Route::Unknown),
            },
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
    Some(Route::SockJs { service: Service::of(place), route: stentor_wire::sockjs::parse_path(rest)? })
}

impl Http {
    /// Handles the head of a request.
    pub(super) fn route(
        &mut self,
        cx: &mut HttpContext<'_>,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Routed {
        let HttpContext { ex, engineio: engineio_clients, sockjs: sockjs_clients, departed, conn, session } =
            cx;
        let mut cx = RequestContext {
            clients: engineio_clients.count() + sockjs_clients.count(),
            ex,
            conn: *conn,
            source: plane::source_of(self.peer.ip()),
            stays: self.stays,
            admission: self.admission.take(),
        };
        let options = ResponseOptions::of(request, cx.ex.draining);
        let is_upgrade = request.headers().list_has("upgrade", "websocket");
        // Where clients of plain WebSocket servers come that are given no path.
        let target = match find(request.path(), cx.ex.options()) {
            Route::Static(_) | Route::Unknown if is_upgrade && request.path() == "/" => Route::Socket(None),
            target => target,
        };
        if let Some(outcome) = refuse(&mut cx, request, &target, is_upgrade, out) {
            return Routed::Response(outcome);
        }
        let origin = cx.allow_origin(request);
        let readable = matches!(request.method(), "GET" | "HEAD");
        let outcome = match target {
            Route::Health if readable => {
                let (status, body) = if cx.ex.draining { (503, "shutting down\n") } else { (200, "ok\n") };
                let no_store = [("Cache-Control", "no-store")];
                answer(out, options, status, "text/plain; charset=utf-8", &no_store, body.as_bytes());
                Outcome::Answered { keep_alive: options.keep_alive }
            }
            Route::Static(page) if readable => {
                let page = &cx.ex.options().routes[page];
                let extra = [("Cache-Control", "no-cache"), ("Content-Security-Policy", PAGE_POLICY)];
                answer(out, options, 200, &page.content_type, &extra, &page.body);
                Outcome::Answered { keep_alive: options.keep_alive }
            }
            Route::Feed(key) if readable => {
                let home = cx.ex.core_of(&Topic::Feed(key.clone()));
                if home != cx.ex.context.core && !cx.ex.draining && !cx.stays {
                    return Routed::Response(Outcome::Move(home));
                }
                let awaited = Awaited::new(key, request, origin, options);
                match awaited.subscribe(&mut cx, out) {
                    Some(opened) => {
                        **session = Some(opened);
                        Outcome::Waiting(Waiting::Document(Box::new(awaited)))
                    }
                    None => Outcome::Answered { keep_alive: options.keep_alive },
                }
            }
            Route::Primus => {
                let target = UpgradeTarget::new(Framing::Primus(Pinging::Idle), Service::default(), None);
                return upgrade(&mut cx, request, target, out);
            }
            Route::PrimusSpec => primus::handle_spec_request(&cx, request, out),
            Route::Events(key) => {
                sse::handle_request(&mut cx, session, request, key, out).map(Waiting::Events)
            }
            Route::Socket(key) => {
                let target = UpgradeTarget::new(Framing::Plain, Service::default(), key);
                return upgrade(&mut cx, request, target, out);
            }
            Route::Custom(place) => {
                let target = UpgradeTarget::new(Framing::Plain, Service::of_custom(place), None);
                return upgrade(&mut cx, request, target, out);
            }
            Route::SockJs { service, route } => {
                match sockjs::handle_request(&mut cx, sockjs_clients, request, service, &route, out) {
                    sockjs::Handled::Response(outcome) => outcome.map(Waiting::Receiver),
                    sockjs::Handled::WebSocket { framed, key } => {
                        let framing = if framed { Framing::SockJs } else { Framing::Plain };
                        return upgrade(&mut cx, request, UpgradeTarget::new(framing, service, key), out);
                    }
                }
            }
            Route::Engine { is_socketio } => {
                engineio::handle_request(&mut cx, engineio_clients, *departed, request, is_socketio, out)
                    .map(Waiting::Poll)
            }
            Route::BadKey(error) => {
                cx.count_error();
                text(out, options, 400, &cors(origin), &error.to_string());
                Outcome::Answered { keep_alive: options.keep_alive }
            }
            Route::OldSocketIo => {
                cx.count_error();
                let why = "Socket.IO before 1.0 is not supported; use socket.io-client 1 or newer";
                text(out, ResponseOptions::LAST, 400, &cors(origin), why);
                Outcome::LAST
            }
            Route::Unknown => unknown(&mut cx, request, is_upgrade, out),
            Route::Health | Route::Static(_) | Route::Feed(_) => {
                cx.count_error();
                let allow = [("Allow", "GET, HEAD")];
                text(out, options, 405, &allow, "only GET and HEAD are answered here");
                Outcome::Answered { keep_alive: options.keep_alive }
            }
        };
        Routed::Response(outcome)
    }

    /// Handles the body of a request, or what is left of it.
    pub(super) fn route_body(
        &mut self,
        cx: &mut HttpContext<'_>,
        request: &Request<'_>,
        buffered: &mut BufferedRequest,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let HttpContext { ex, engineio: engineio_clients, sockjs: sockjs_clients, conn, .. } = cx;
        let mut cx = RequestContext {
            clients: engineio_clients.count() + sockjs_clients.count(),
            ex,
            conn: *conn,
            source: plane::source_of(self.peer.ip()),
            stays: self.stays,
            admission: None,
        };
        let shared = cx.ex.shared.clone();
        match find(request.path(), &shared.options) {
            Route::SockJs { service, route } => {
                sockjs::handle_body(&mut cx, sockjs_clients, request, (service, &route), buffered, out)
                    .map(Waiting::Receiver)
            }
            _ => engineio::handle_body(&mut cx, engineio_clients, request, buffered, out).map(Waiting::Poll),
        }
    }
}

/// Refuses requests that no route answers: for another host, from a page of another origin, with too large a body, for
/// a WebSocket where there is none.
fn refuse(
    cx: &mut RequestContext<'_>,
    request: &Request<'_>,
    target: &Route<'_>,
    is_upgrade: bool,
    out: &mut Vec<u8>,
) -> Option<Outcome> {
    let options = cx.ex.options();
    // Load balancers check the server's health by its address.
    if !matches!(target, Route::Health) && !options.hosts.allow(request.authority()) {
        cx.count_error();
        text(out, ResponseOptions::LAST, 421, &[], "this server has another name ([server] hosts)");
        return Some(Outcome::LAST);
    }
    if target.connects() && !options.origins.allow(origin::of_page(request), request.authority()) {
        return Some(refuse_origin(cx, request, out));
    }
    if !target.takes_body()
        && matches!(request.body(), BodyKind::Length(bytes) if bytes > options.limits.body_bytes_max as u64)
    {
        cx.count_error();
        text(out, ResponseOptions::LAST, 413, &[], "the body is too large (limits.body_bytes_max)");
        return Some(Outcome::LAST);
    }
    let has_no_socket = matches!(
        target,
        Route::Health | Route::Static(_) | Route::Feed(_) | Route::Events(_) | Route::PrimusSpec
    );
    if has_no_socket && is_upgrade {
        // What follows may be frames, which must not be read as requests.
        cx.count_error();
        let extra = cors(cx.allow_origin(request));
        text(out, ResponseOptions::LAST, 400, &extra, "this path has no WebSocket; use /ws or /ws/KEY");
        return Some(Outcome::LAST);
    }
    None
}

fn refuse_origin(cx: &mut RequestContext<'_>, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    cx.ex.metrics().origins_refused.add(1);
    cx.count_error();
    if cx.ex.once_a_second() {
        let origin = origin::of_page(request).filter(|origin| !origin.is_empty());
        let origin = origin.unwrap_or("null").escape_default().to_string();
        tracing::warn!(
            "refused a request from origin {origin}; if its pages may connect, add to the configuration: \
             [origins] allow = [\"{origin}\"]"
        );
    }
    let options = ResponseOptions::of(request, cx.ex.draining);
    text(out, options, 403, &[("Vary", "Origin")], "this origin may not connect ([origins] allow)");
    Outcome::Answered { keep_alive: options.keep_alive }
}

/// Answers a request for a path that isn't the server's own: the application may have a page.
fn unknown(
    cx: &mut RequestContext<'_>,
    request: &Request<'_>,
    is_upgrade: bool,
    out: &mut Vec<u8>,
) -> Outcome {
    let options = ResponseOptions::of(request, cx.ex.draining);
    // What follows may be frames.
    let options = ResponseOptions { keep_alive: options.keep_alive && !is_upgrade, ..options };
    if request.method() == "GET"
        && !is_upgrade
        && let Some(page) = cx.ex.notify_app(HandlerScope::default(), |app, ctx| app.page(ctx, request))
    {
        return page::begin(request, cx.ex.draining, &page, out).map(Waiting::Page);
    }
    cx.count_error();
    text(
        out,
        options,
        404,
        &[],
        "there is nothing here; see /ws, /ws/KEY, /socket.io/, /engine.io/, /sockjs/, /primus/, /sse/KEY, \
         /feed/KEY, /healthz",
    );
    Outcome::Answered { keep_alive: options.keep_alive }
}

fn upgrade(
    cx: &mut RequestContext<'_>,
    request: &Request<'_>,
    target: UpgradeTarget,
    out: &mut Vec<u8>,
) -> Routed {
    match handle_upgrade(cx, request, target, out) {
        UpgradeOutcome::Answered { keep_alive } => Routed::Response(Outcome::Answered { keep_alive }),
        UpgradeOutcome::Admission => Routed::Response(Outcome::Admission(None)),
        UpgradeOutcome::Upgraded(socket, session) => Routed::Upgraded(*socket, session),
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
            let got = match find(path, &options) {
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
                Route::Custom(place) => format!("custom {place}"),
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
}
