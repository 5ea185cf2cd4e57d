//! Answers requests by their routes.

use super::{Http, HttpContext, Placement};
use crate::access::{Entry, shown_path};
use crate::app::HandlerScope;
use crate::identity::Service;
use crate::limits::{LimitReached, Slot};
use crate::model::{Key, KeyError, Topic};
use crate::options::Options;
use crate::origin::{self, Origins};
use crate::ports::{Denial, EngineOptions, ForwardedClient, Handover, Lifecycle as _, LinkApp};
use crate::protocols::clients::Clients;
use crate::protocols::dialect::Plain;
use crate::protocols::engineio::Endpoint;
use crate::protocols::request::{
    Answered, BufferedRequest, RequestContext, RequestOutcome, ResponseOptions, cors,
    cors_without_credentials, key_of_path, push_preflight,
};
use crate::protocols::route::{PROTOCOLS, Protocol, RouteFacts};
use crate::protocols::{document, engineio, file, page, sse, upgrade};
use crate::proxies::ForwardedHeader;
use crate::proxy_users::UserFault;
use crate::refusal_log::Refusal;
use std::net::IpAddr;
use std::sync::Arc;
use stentor_wire::http1::{self, BodyKind, Request};

type Outcome = RequestOutcome;

/// The Content Security Policy of built-in pages: inline scripts and styles, and connections to this server.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline' 'self'; style-src 'unsafe-inline'; img-src data: 'self'; \
     connect-src 'self' ws: wss:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The route of a request.
enum Route {
    /// `/healthz`: whether the process runs.
    Health,
    /// `/readyz`: whether the node is ready for new clients.
    Ready,
    /// A page, by its index in the options.
    Static(usize),
    /// A file for pages of all origins, by its index in the options.
    File(usize),
    /// A plain WebSocket: `/ws` for the application, `/ws/KEY` for one feed in raw mode.
    Socket(Option<Key>),
    /// `/feed/KEY`
    Feed(Key),
    /// A path of Engine.IO.
    Engine(Endpoint),
    /// `/sse`, `/sse/KEY`
    Events(Option<Key>),
    /// A path of a protocol in the table of protocols.
    Of(&'static dyn Protocol, RouteFacts),
    /// A path with an invalid key.
    BadKey(KeyError),
    /// `/socket.io/1/…`, the first request of clients of Socket.IO before 1.0.
    OldSocketIo,
    Unknown,
}

impl Route {
    /// Returns `true` if the route checks the page's origin.
    fn connects(&self) -> bool {
        matches!(self, Self::Socket(..) | Self::Feed(_) | Self::Engine(_) | Self::Events(_) | Self::Of(..))
    }

    /// Returns `true` if the connection stays open after a response while the node drains.
    fn outlives_drain(&self) -> bool {
        match self {
            Self::Engine(_) => true,
            Self::Of(_, facts) => facts.outlives_drain,
            _ => false,
        }
    }

    /// Returns `true` if the route handles the request's body.
    fn takes_body(&self) -> bool {
        match self {
            Self::Engine(_) | Self::Events(_) => true,
            Self::Of(_, facts) => facts.takes_body,
            _ => false,
        }
    }
}

/// An application whose clients are served by workers, with its options.
type Engine = (LinkApp, Arc<EngineOptions>);

/// The application of a request's path. `None`: the path isn't one of its clients.
fn engine_of(path: &str, options: &Options) -> Option<Engine> {
    options.link.as_ref()?.apps.find(path)
}

fn find(path: &str, engine: Option<&Engine>, options: &Options) -> Route {
    // The path isn't below `Options::base_path`.
    if path.is_empty() {
        return Route::Unknown;
    }
    if let Some(page) = options.routes.iter().position(|page| page.path == path) {
        return Route::Static(page);
    }
    if let Some(file) = options.files.iter().position(|file| file.path == path) {
        return Route::File(file);
    }
    if let Some((app, of_app)) = engine {
        let http = options.link.as_ref().and_then(|link| link.http.as_ref());
        if http.is_some_and(|(serving, _)| serving == app) && of_app.has_script(path) {
            return Route::Unknown;
        }
        return Route::Engine(Endpoint::Link(*app));
    }
    let with_key = |rest: &str, then: fn(Key) -> Route| match key_of_path(rest, &options.keys) {
        Ok(key) => then(key),
        Err(error) => Route::BadKey(error),
    };
    match path {
        "/healthz" => Route::Health,
        "/readyz" => Route::Ready,
        "/ws" | "/ws/" => Route::Socket(None),
        "/sse" | "/sse/" => Route::Events(None),
        "/engine.io" | "/engine.io/" => Route::Engine(Endpoint::Plain),
        "/socket.io" | "/socket.io/" => Route::Engine(Endpoint::SocketIo),
        _ if path.starts_with("/socket.io/1/") => Route::OldSocketIo,
        _ => match ["/ws/", "/feed/", "/sse/"].map(|begin| path.strip_prefix(begin)) {
            [Some(rest), ..] => with_key(rest, |key| Route::Socket(Some(key))),
            [_, Some(rest), _] => with_key(rest, Route::Feed),
            [_, _, Some(rest)] => with_key(rest, |key| Route::Events(Some(key))),
            _ => {
                let of = |protocol: &&'static dyn Protocol| {
                    Some(Route::Of(*protocol, protocol.route(path, options)?))
                };
                PROTOCOLS.iter().find_map(of).unwrap_or(Route::Unknown)
            }
        },
    }
}

impl Http {
    fn request_context<'a>(
        &mut self,
        cx: &'a mut HttpContext<'_>,
        request: &'a Request<'a>,
        engine: Option<&'a Engine>,
        out: &'a mut Vec<u8>,
    ) -> (RequestContext<'a>, &'a mut Slot, &'a mut Clients) {
        let proxies = &cx.ex.options().proxies;
        let client = proxies.client_of(self.peer.ip(), self.socket.is_tls, request);
        let authority = proxies.authority_of(self.peer.ip(), request);
        let context = RequestContext {
            clients: cx.clients.counts().iter().sum(),
            options: ResponseOptions::of(
                cx.ex,
                request,
                cx.ex.is_finishing() || self.handover == Some(Handover::Relayed),
            ),
            ex: cx.ex,
            request,
            engine: engine.map(|(_, options)| options),
            out,
            conn: cx.conn,
            session: cx.session,
            client,
            authority,
            is_gateway: self.socket.is_gateway,
            port: if client.is_forwarded { 0 } else { self.peer.port() },
            stays: !matches!(self.placement, Placement::Movable),
            handover: self.handover,
            departed: cx.departed,
        };
        (context, cx.slot, cx.clients)
    }

    /// Handles the headers of a request.
    pub(super) fn route(
        &mut self,
        cx: &mut HttpContext<'_>,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Outcome {
        self.release_slot(cx);
        let before = out.len();
        let outcome = self.route_to(cx, request, out);
        self.after_request(cx, request, &outcome, &out[before..]);
        outcome
    }

    /// Continues a request with the answer for which it waited.
    pub(super) fn resume(
        &mut self,
        cx: &mut HttpContext<'_>,
        request: &Request<'_>,
        answered: Answered,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let before = out.len();
        let engine = engine_of(request.path(), cx.ex.options());
        let (mut context, _, clients) = self.request_context(cx, request, engine.as_ref(), out);
        let outlives_drain = find(request.path(), engine.as_ref(), context.ex.options()).outlives_drain();
        end_unread(&mut context);
        context.options.keep_alive &= context.ex.keeps_connection(outlives_drain);
        let outcome = answered.resume(&mut context, clients);
        self.after_request(cx, request, &outcome, &out[before..]);
        outcome
    }

    fn after_request(
        &self,
        cx: &mut HttpContext<'_>,
        request: &Request<'_>,
        outcome: &Outcome,
        response: &[u8],
    ) {
        if cx.access.is_on {
            self.log(cx, request, outcome, response);
        }
        // A request that has been answered no longer counts.
        if matches!(outcome, Outcome::Answered { .. } | Outcome::Rest | Outcome::Move(_))
            || matches!(outcome, Outcome::Relay(_) | Outcome::Forward(_))
        {
            self.release_slot(cx);
        }
    }

    /// Begins a line of the access log.
    fn log(&self, cx: &mut HttpContext<'_>, request: &Request<'_>, outcome: &Outcome, response: &[u8]) {
        let lasts = match outcome {
            Outcome::Answered { .. } => false,
            Outcome::Waiting(response) => !response.is_whole(),
            Outcome::Upgraded(_) | Outcome::Body { .. } => true,
            // The response follows later, here or on another core.
            _ => return,
        };
        let options = cx.ex.options();
        let secret = PROTOCOLS.iter().find_map(|protocol| protocol.secret(request.path(), options));
        let user = cx.session.and_then(|session| cx.ex.who_is(session).0);
        let begun = cx.ex.context.now;
        let entry = Entry {
            begun,
            method: request.method().into(),
            path: shown_path(request.base(), request.path(), secret),
            address: options.proxies.client_of(self.peer.ip(), self.socket.is_tls, request).ip,
            user: user.map(|user| user.subject),
            status: None,
        };
        cx.access.begin(cx.conn.index(), begun, entry, response, lasts);
    }

    /// Stops counting a connection for the client address of its request. A trusted proxy's connection counts only while a
    /// request is handled.
    pub(super) fn release_slot(&self, cx: &mut HttpContext<'_>) {
        if *cx.slot != Slot::NONE && cx.ex.options().proxies.trusted.contains(self.peer.ip()) {
            cx.ex.release_connection(cx.slot);
        }
    }

    fn route_to(&mut self, cx: &mut HttpContext<'_>, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
        let placement = self.placement;
        let engine = engine_of(request.path(), cx.ex.options());
        let (mut cx, slot, clients) = self.request_context(cx, request, engine.as_ref(), out);
        let cx = &mut cx;
        end_unread(cx);
        if let Placement::Refused(reached) = placement {
            return cx.refuse_limit(reached);
        }
        // `/` is the usual path of plain WebSocket servers, so a WebSocket there is one of the application.
        let target = match find(request.path(), engine.as_ref(), cx.ex.options()) {
            Route::Static(_) | Route::Unknown if cx.is_upgrade() && request.path() == "/" => {
                Route::Socket(None)
            }
            target => target,
        };
        warn_of_client_header(cx, &target, self.peer.ip());
        if let Some(outcome) = refuse(cx, &target) {
            return outcome;
        }
        if target.connects()
            && let Err(fault) = cx.proxy_user()
        {
            return refuse_user(cx, fault, self.peer.ip());
        }
        if let Err(reached) = count(cx, &target, slot) {
            return cx.refuse_limit(reached);
        }
        // While the node drains, at most requests of existing sessions keep their connection. For a new session, the client may
        // reach another node.
        cx.options.keep_alive &= cx.ex.keeps_connection(target.outlives_drain());
        match target {
            Route::Health if cx.reads() => {
                cx.answer(200, "text/plain; charset=utf-8", &[("Cache-Control", "no-store")], b"ok\n")
            }
            Route::Ready if cx.reads() => {
                let readiness = cx.ex.shared.readiness();
                let no_store = [("Cache-Control", "no-store")];
                let body = format!("{readiness}\n");
                cx.answer(readiness.status(), "text/plain; charset=utf-8", &no_store, body.as_bytes())
            }
            Route::Static(page) if cx.reads() => {
                let options = cx.ex.options.clone();
                let page = &options.routes[page];
                let extra = [("Cache-Control", "no-cache"), ("Content-Security-Policy", PAGE_POLICY)];
                cx.answer(200, &page.content_type, &extra, &page.body)
            }
            Route::File(file) => file::handle_request(cx, file),
            // Browsers send a preflight request before a request with a token in the header `Authorization`.
            Route::Feed(_) if request.method() == "OPTIONS" => {
                let mut extra = cors(cx.allow_origin());
                push_preflight(&mut extra, request, "GET, HEAD");
                cx.answer(204, "text/plain", &extra, b"")
            }
            Route::Feed(key) if cx.reads() => {
                let home = cx.ex.core_of(&Topic::Feed(key.clone()));
                if home != cx.ex.context.core && !cx.ex.is_draining() && !cx.stays {
                    return Outcome::Move(home);
                }
                document::handle_request(cx, key)
            }
            Route::Health | Route::Ready | Route::Static(_) | Route::Feed(_) => cx.refuse_method(Vec::new()),
            Route::Events(key) => sse::handle_request(cx, key),
            Route::Socket(key) => upgrade::handle_request(cx, clients, Plain.into(), Service::default(), key),
            Route::Of(protocol, _) => protocol.handle_request(cx, clients),
            Route::Engine(endpoint) => engineio::handle_request(cx, clients, endpoint),
            Route::BadKey(error) => cx.refuse(400, &[], &error.to_string()),
            Route::OldSocketIo => {
                let why = "Socket.IO before 1.0 is not supported; use socket.io-client 1 or newer";
                cx.refuse_last(400, &[], why)
            }
            Route::Unknown => unknown(cx),
        }
    }

    /// Handles the body of a request, or the rest of the body.
    pub(super) fn route_body(
        &mut self,
        cx: &mut HttpContext<'_>,
        request: &Request<'_>,
        buffered: &mut BufferedRequest,
        answered: Option<Answered>,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let options = cx.ex.options.clone();
        let before = out.len();
        let engine = engine_of(request.path(), &options);
        let (mut context, _, clients) = self.request_context(cx, request, engine.as_ref(), out);
        let target = find(request.path(), engine.as_ref(), &options);
        context.options.keep_alive &= context.ex.keeps_connection(target.outlives_drain());
        let outcome = match (answered, target) {
            (Some(answered), _) => answered.resume(&mut context, clients),
            (None, Route::Of(protocol, _)) => protocol.handle_body(&mut context, clients, buffered),
            (None, Route::Events(key)) => sse::handle_body(&mut context, key, buffered),
            (None, _) => engineio::handle_body(&mut context, &mut clients.engineio, buffered),
        };
        if !matches!(outcome, Outcome::Waiting(_) | Outcome::Rest | Outcome::Move(_) | Outcome::Suspended(_))
        {
            self.release_slot(cx);
        }
        if cx.access.is_on {
            let is_whole = matches!(outcome, Outcome::Answered { .. });
            cx.access.sent(cx.conn.index(), cx.ex.context.now, &out[before..], is_whole);
        }
        outcome
    }
}

/// Counts a request towards the limits of its address: the connection, if a proxy forwards the request, and the session
/// that the request opens. A SockJS session over HTTP is counted later, when it is known to be new.
fn count(cx: &mut RequestContext<'_>, target: &Route, slot: &mut Slot) -> Result<(), LimitReached> {
    // While the server drains, an SSE request opens no session.
    let opens_no_session = matches!(target, Route::Events(_)) && cx.ex.is_draining();
    if !target.connects() || opens_no_session {
        return Ok(());
    }
    if cx.client.is_forwarded {
        cx.ex.hold_forwarded(cx.client.source(), slot)?;
    }
    if cx.ex.shared.limits.sessions.is_none() {
        return Ok(());
    }
    let opens = match target {
        Route::Socket(..) => true,
        Route::Events(_) => sse::opens(cx.request),
        Route::Engine(_) => !http1::query_pairs(cx.request.query()).any(|(name, _)| name == "sid"),
        Route::Of(_, facts) => facts.opens_session,
        _ => false,
    };
    if opens { cx.ex.check_address(cx.client.source()) } else { Ok(()) }
}

/// Refuses requests for another host, from pages of other origins, with too large a body, or for a WebSocket on a route without
/// one.
fn refuse(cx: &mut RequestContext<'_>, target: &Route) -> Option<Outcome> {
    let (request, options) = (cx.request, cx.ex.options());
    // Health checks of load balancers use the server's address as `Host`.
    if !matches!(target, Route::Health | Route::Ready) && !options.hosts.allow(cx.authority) {
        return Some(cx.refuse_last(421, &[], "this server has another name ([server] hosts)"));
    }
    let page = origin::of_page(request);
    let cors = cx.engine.and_then(|engine| engine.cors.as_ref());
    let is_of_app = cors.zip(page).is_some_and(|(cors, page)| cors.allows(page));
    if target.connects() && !is_of_app && !options.origins.allow(page, cx.authority, cx.client.is_secure) {
        if matches!(target, Route::Engine(Endpoint::Link(_)))
            && cx.engine.is_some_and(|app| !app.is_of_worker)
        {
            return Some(cx.unavailable("1", &[], "no worker of the application has connected yet"));
        }
        return Some(refuse_origin(cx));
    }
    let is_forwarded =
        matches!(target, Route::Unknown) && options.link.as_ref().is_some_and(|link| link.http.is_some());
    if !target.takes_body()
        && !is_forwarded
        && matches!(request.body(), BodyKind::Length(bytes) if bytes > options.limits.body_bytes_max as u64)
    {
        return Some(cx.refuse_last(413, &[], "the body is too large (limits.body_bytes_max)"));
    }
    let has_no_socket = match target {
        Route::Health
        | Route::Ready
        | Route::Static(_)
        | Route::File(_)
        | Route::Feed(_)
        | Route::Events(_) => true,
        Route::Of(_, facts) => !facts.has_socket,
        _ => false,
    };
    (has_no_socket && cx.is_upgrade())
        .then(|| cx.refuse_last(400, &[], "this path has no WebSocket; use /ws or /ws/KEY"))
}

/// Logs that a trusted proxy doesn't name the client of a request in the configured header. Its own health checks have no client.
fn warn_of_client_header(cx: &RequestContext<'_>, target: &Route, peer: IpAddr) {
    let Some(fault) = cx.client.fault.filter(|_| !matches!(target, Route::Health | Route::Ready)) else {
        return;
    };
    let ForwardedHeader::Named(name) = &cx.ex.options().proxies.header else { return };
    if let Some(logged) = cx.ex.log_refusal(Refusal::ClientHeader, name) {
        let (fault, others) = (fault.text(), logged.others());
        tracing::warn!(
            "the header {name} of a request from the proxy {peer} {fault}; the proxy counts as the client ([proxies] \
             header){others}"
        );
    }
}

/// Refuses a request that names a user although it may not.
fn refuse_user(cx: &mut RequestContext<'_>, fault: UserFault, peer: IpAddr) -> Outcome {
    let why = fault.text();
    if let Some(logged) = cx.ex.log_refusal(Refusal::User, &format!("{peer}: {why}")) {
        let others = logged.others();
        tracing::warn!("refused a request that names a user ([auth.proxy]), from {}{others}", logged.value);
    }
    let denial =
        Denial::new("token_invalid", format!("this request may not name a user: {why} ([auth.proxy])"));
    cx.options = ResponseOptions::last(cx.ex);
    cx.refuse_denied(&denial, &[("Cache-Control", "no-store")])
}

/// Makes a response to headers the last one if the client waits for 100 (Continue). After another status the client may or may
/// not send the body (RFC 9110, 10.1.1), so the start of the next request is unknown.
fn end_unread(cx: &mut RequestContext<'_>) {
    cx.options.keep_alive &= !cx.request.expects_continue();
}

fn refuse_origin(cx: &mut RequestContext<'_>) -> Outcome {
    cx.ex.metrics().origins_refused.add(1);
    let origin = origin::of_page(cx.request).unwrap_or_default();
    if let Some(logged) = cx.ex.log_refusal(Refusal::Origin, origin) {
        let others = logged.others();
        let advice = match Origins::parse(&[origin]) {
            Ok(_) if origin.len() == logged.value.len() => format!(
                "if its pages may connect, add to the configuration: [origins] allow = [\"{origin}\"]"
            ),
            _ => "that is no origin that a page can have".to_owned(),
        };
        tracing::warn!("refused a request from origin \"{}\"; {advice}{others}", logged.value);
    }
    // The JavaScript client sends a POST to learn why it can't connect, so its page may read the response. For other
    // requests, the page's transports can't read the response, and retry.
    let asks = cx.request.method() == "POST" && cx.request.path() == "/sse";
    let extra = cors_without_credentials(cx.request.header_str("origin").filter(|_| asks));
    cx.refuse(403, &extra, "this origin may not connect ([origins] allow)")
}

/// Answers a request for a path that isn't the server's own: by a worker's HTTP server, or with the application's page if there is one.
fn unknown(cx: &mut RequestContext<'_>) -> Outcome {
    let request = cx.request;
    let base = cx.ex.options().base_path.clone();
    if request.path().is_empty() && !base.is_empty() {
        return cx.refuse(
            404,
            &[],
            &format!("all paths of this server begin with {base}/ ([server] base_path)"),
        );
    }
    // CONNECT and TRACE are for proxies, and a worker's HTTP server isn't a proxy.
    let is_for_proxies = matches!(request.method(), "CONNECT" | "TRACE");
    if !is_for_proxies && cx.ex.options().link.as_ref().is_some_and(|link| link.http.is_some()) {
        if let Some(outcome) = cx.unavailable_while_draining(&[]) {
            return outcome;
        }
        if cx.stays {
            return cx.unavailable("1", &[], "too many requests are passed on to workers; try again");
        }
        return Outcome::Forward(ForwardedClient { ip: cx.client.ip, is_secure: cx.client.is_secure });
    }
    if !cx.is_upgrade()
        && request.method() == "GET"
        && let Some(page) = cx.ex.notify_app(HandlerScope::default(), |app, ctx| app.page(ctx, request))
    {
        return page::handle_request(cx, page);
    }
    let of_table: Vec<&str> = PROTOCOLS.iter().filter_map(|protocol| protocol.example()).collect();
    let of_table = of_table.join(", ");
    cx.refuse(
        404,
        &[],
        &format!(
            "there is nothing here; see /ws, /ws/KEY, /socket.io/, /engine.io/, {of_table}, /sse/KEY, /feed/KEY, \
             /healthz, /readyz"
        ),
    )
}

#[cfg(test)]
mod tests;
