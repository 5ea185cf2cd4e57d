//! What requests are answered with, by their routes; WebSockets among them.

use super::http::Verdict;
use super::request::{Manner, Route, answer, cors, route, text};
use super::table::{Accepts, Awaited, Dialect, Kept, Pinging, Socket, Speech, Stack, Waiting};
use super::wishes::Wishes;
use super::{About, Core, Later};
use crate::app::{Application, Connect, Envelope, RequestId};
use crate::encode::frame;
use crate::encode::{Format, WINDOW_BITS};
use crate::options::Service;
use crate::origin;
use stentor_driver::Driver;
use stentor_hub::{FormatId, Key, Topic};
use stentor_wire::http1::{BodyKind, Request};
use stentor_wire::sockjs::{self, Wrapping};
use stentor_wire::ws::{self, DeflateOptions, Opcode, handshake};

/// A WebSocket that somebody asks for.
pub(super) struct Door {
    /// The one feed that it carries, bodies only.
    pub(super) key: Option<Key>,
    pub(super) speech: Speech,
}

impl Door {
    /// One that belongs to a service; with a key it takes no messages.
    pub(super) fn of(dialect: Dialect, service: Service, key: Option<Key>) -> Self {
        Self { speech: Speech { dialect, service, is_deaf: key.is_some() }, key }
    }

    fn format(&self, envelope: Envelope, deflates: bool) -> FormatId {
        let format = match self.speech.dialect {
            Dialect::Primus(_) => Format::primus(envelope),
            Dialect::SockJs => Format::sockjs(Wrapping::WebSocket, envelope),
            Dialect::Plain => Format::websocket(envelope, deflates),
        };
        format.into()
    }

    /// What a session begins with.
    fn greet(&self, out: &mut Vec<u8>) {
        match self.speech.dialect {
            Dialect::Plain | Dialect::Primus(_) => {}
            Dialect::SockJs => {
                frame(out, Opcode::Text, 1, |out| Wrapping::WebSocket.write(out, &sockjs::Frame::Open));
            }
        }
    }
}

impl<D: Driver> Core<D> {
    pub(super) fn request(&mut self, index: usize, request: &Request<'_>, out: &mut Vec<u8>) -> Verdict {
        let manner = Manner::of(request, self.draining);
        let Manner { keep_alive, .. } = manner;
        let shared = &self.shared;
        let options = &shared.options;
        let is_upgrade = request.headers().list_has("upgrade", "websocket");
        // Where clients of plain WebSocket servers come that are given no path.
        let target = match route(request.path(), options) {
            Route::Static(_) | Route::Unknown if is_upgrade && request.path() == "/" => Route::Socket(None),
            target => target,
        };
        // Load balancers check the server's health by its address.
        if !matches!(target, Route::Health) && !options.hosts.allow(request.authority()) {
            self.metrics().request_errors.add(1);
            text(out, Manner::LAST, 421, &[], "this server has another name ([server] hosts)");
            return Verdict::Answered { keep_alive: false };
        }
        let origin = self.allow_origin(request);
        let page = origin::of_page(request);
        let readable = matches!(request.method(), "GET" | "HEAD");
        if let Route::Socket(_)
        | Route::Feed(_)
        | Route::Engine { .. }
        | Route::Events(_)
        | Route::Primus
        | Route::PrimusSpec
        | Route::SockJs { .. } = target
            && !options.origins.allow(page, request.authority())
        {
            return self.refuse_origin(request, out);
        }
        let takes_body = target.takes_body();
        if !takes_body
            && matches!(request.body(), BodyKind::Length(bytes) if bytes > options.limits.body_bytes_max as u64)
        {
            self.metrics().request_errors.add(1);
            text(out, Manner::LAST, 413, &[], "the body is too large (limits.body_bytes_max)");
            return Verdict::Answered { keep_alive: false };
        }
        match target {
            Route::Health | Route::Static(_) | Route::Feed(_) | Route::Events(_) | Route::PrimusSpec
                if is_upgrade =>
            {
                // What follows may be frames, which must not be read as requests.
                self.metrics().request_errors.add(1);
                text(out, Manner::LAST, 400, &cors(origin), "this path has no WebSocket; use /ws or /ws/KEY");
                return Verdict::Answered { keep_alive: false };
            }
            Route::Health if readable => {
                let (status, body) = if self.draining { (503, "shutting down\n") } else { (200, "ok\n") };
                let no_store = [("Cache-Control", "no-store")];
                answer(out, manner, status, "text/plain; charset=utf-8", &no_store, body.as_bytes());
            }
            Route::Static(page) if readable => {
                let page = &options.routes[page];
                let extra = [("Cache-Control", "no-cache"), ("Content-Security-Policy", PAGE_POLICY)];
                answer(out, manner, 200, &page.content_type, &extra, &page.body);
            }
            Route::Feed(key) if readable => {
                let home = self.hub.core_of(&Topic::Feed(key.clone()));
                let stays = self.draining || self.http(index).is_some_and(|http| http.stay);
                if home != self.facts.core && !stays {
                    return Verdict::Move(home);
                }
                return Verdict::Document(Awaited::new(key, request, origin, manner));
            }
            Route::Primus => {
                let dialect = Dialect::Primus(Pinging::Idle);
                return self.upgrade(index, request, Door::of(dialect, Service::default(), None), out);
            }
            Route::PrimusSpec => return self.primus_spec(request, out),
            Route::Events(key) => return self.begin_events(index, request, key, out),
            Route::Socket(key) => {
                return self.upgrade(index, request, Door::of(Dialect::Plain, Service::default(), key), out);
            }
            Route::SockJs { service, route } => {
                return self.sockjs_request(index, request, service, &route, out);
            }
            Route::Engine { is_socketio } => return self.engine_request(index, request, is_socketio, out),
            Route::BadKey(error) => {
                self.metrics().request_errors.add(1);
                text(out, manner, 400, &cors(origin), &error.to_string());
            }
            Route::OldSocketIo => {
                self.metrics().request_errors.add(1);
                let why = "Socket.IO before 1.0 is not supported; use socket.io-client 1 or newer";
                text(out, Manner::LAST, 400, &cors(origin), why);
                return Verdict::Answered { keep_alive: false };
            }
            Route::Unknown => {
                // What follows may be frames.
                let manner = if is_upgrade { Manner { keep_alive: false, ..manner } } else { manner };
                if request.method() == "GET"
                    && !is_upgrade
                    && let Some(page) = self.ask_app(About::default(), |app, ctx| app.page(ctx, request))
                {
                    return self.begin_page(request, &page, out);
                }
                self.metrics().request_errors.add(1);
                text(
                    out,
                    manner,
                    404,
                    &[],
                    "there is nothing here; see /ws, /ws/KEY, /socket.io/, /engine.io/, /sockjs/, /primus/, /sse/KEY, \
                     /feed/KEY, /healthz",
                );
                return Verdict::Answered { keep_alive: manner.keep_alive };
            }
            Route::Health | Route::Static(_) | Route::Feed(_) => {
                self.metrics().request_errors.add(1);
                let allow = [("Allow", "GET, HEAD")];
                text(out, manner, 405, &allow, "only GET and HEAD are answered here");
            }
        }
        Verdict::Answered { keep_alive }
    }

    /// The value of `Access-Control-Allow-Origin` for a request, except those of SockJS.
    pub(super) fn allow_origin<'a>(&self, request: &Request<'a>) -> Option<&'a str> {
        self.shared.options.origins.answer(request.header_str("origin"))
    }

    fn refuse_origin(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> Verdict {
        self.metrics().origins_refused.add(1);
        self.metrics().request_errors.add(1);
        if self.once_a_second() {
            let origin = origin::of_page(request).filter(|origin| !origin.is_empty());
            let origin = origin.unwrap_or("null").escape_default().to_string();
            tracing::warn!(
                "refused a request from origin {origin}; if its pages may connect, add to the configuration: \
                 [origins] allow = [\"{origin}\"]"
            );
        }
        let manner = Manner::of(request, self.draining);
        text(out, manner, 403, &[("Vary", "Origin")], "this origin may not connect ([origins] allow)");
        Verdict::Answered { keep_alive: manner.keep_alive }
    }

    /// The application behind a service.
    pub(super) fn app_of(&self, service: Service) -> &dyn Application {
        let other = service.place().and_then(|place| self.services.get(place)?.app.as_ref());
        &**other.unwrap_or(&self.app)
    }

    pub(super) fn upgrade(
        &mut self,
        index: usize,
        request: &Request<'_>,
        door: Door,
        out: &mut Vec<u8>,
    ) -> Verdict {
        let manner = Manner::of(request, self.draining);
        let Speech { dialect, service, is_deaf } = door.speech;
        let is_plain = dialect == Dialect::Plain;
        let deflate = is_plain && self.shared.options.deflate.enabled;
        let offered = DeflateOptions::default();
        let accepted = match handshake::check_request(request, deflate.then_some(&offered)) {
            Ok(accepted) => accepted,
            Err(error) => {
                self.metrics().request_errors.add(1);
                if service.place().is_some() {
                    text(out, Manner::LAST, 400, error.headers(), sockjs::answer::NOT_WEBSOCKET);
                    return Verdict::Answered { keep_alive: false };
                }
                // Whoever meant to speak WebSocket goes on in frames.
                let keep_alive = manner.keep_alive && error.status() != 400;
                let manner = Manner { keep_alive, ..manner };
                text(out, manner, error.status(), error.headers(), &error.to_string());
                return Verdict::Answered { keep_alive };
            }
        };
        let wished = Wishes::parse(request.query())
            .and_then(|mut wishes| Ok((wishes.feeds(door.key.clone(), true)?, wishes.raw)));
        let (feeds, raw) = match wished {
            Ok(wished) => wished,
            Err(error) => {
                self.metrics().request_errors.add(1);
                text(out, Manner::LAST, 400, &[], &error.to_string());
                return Verdict::Answered { keep_alive: false };
            }
        };
        if self.draining {
            text(out, Manner::LAST, 503, &[("Retry-After", "1")], "the server is shutting down");
            return Verdict::Answered { keep_alive: false };
        }
        let envelope = if is_deaf || raw { Envelope::Raw } else { self.app_of(service).envelope() };
        let mut headers = Vec::new();
        if !is_deaf {
            match self.ask_to_connect(index, request, envelope, service) {
                Connect::Accept => {}
                Connect::AcceptWith(extra) => headers = extra,
                Connect::Pending => return Verdict::Again(Waiting::Admission(None)),
                Connect::Refuse { status, message } => {
                    self.metrics().request_errors.add(1);
                    text(out, Manner::LAST, status, &[], &message);
                    return Verdict::Answered { keep_alive: false };
                }
            }
        }
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        accepted.write_response(out, &headers, None);
        door.greet(out);
        // Shared deflated frames are made with the largest window.
        let deflates = accepted.deflate.is_some_and(|d| d.server_max_window_bits >= WINDOW_BITS);
        let session = self.hub.handle_open(door.format(envelope, deflates), index as u64);
        self.hub.set_source(session, self.source_of(index));
        self.become_socket(index, Accepts::Messages, door.speech, envelope, accepted.deflate);
        if let Some(conn) = self.table.get_mut(index) {
            conn.session = Some(session);
        }
        let now = self.millis();
        let options = &self.shared.options;
        let interval =
            super::primus::first_ping(dialect, options.heartbeat.interval, options.primus.ping_interval);
        self.arm(index, now.after(interval));
        if !is_deaf {
            let about = About {
                session: Some(session),
                writer: dialect.writer(envelope),
                envelope,
                request: Some(request),
                service,
                ..About::default()
            };
            self.tell_app(about, out, |app, ctx| app.opened(ctx, session, envelope));
        }
        self.subscribe_feeds(session, feeds);
        Verdict::Upgraded
    }

    /// What the application says to somebody who wants to connect, now or in answer to an earlier question.
    pub(super) fn ask_to_connect(
        &mut self,
        index: usize,
        request: &Request<'_>,
        envelope: Envelope,
        service: Service,
    ) -> Connect {
        if let Some((answer, _)) = self.admission(index) {
            return answer;
        }
        let pending = self.table.get(index).map(|conn| RequestId(conn.id));
        let about = About { envelope, request: Some(request), pending, service, ..About::default() };
        self.ask_app(about, |app, ctx| app.connect(ctx, request))
    }

    /// A connection speaks WebSocket from now on.
    pub(super) fn become_socket(
        &mut self,
        index: usize,
        accepts: Accepts,
        speech: Speech,
        envelope: Envelope,
        deflate: Option<ws::Negotiated>,
    ) {
        let now = self.millis();
        let Some(conn) = self.table.get_mut(index) else { return };
        // Who finished sending while it waited for admission is gone, and nothing more will tell.
        if matches!(&conn.stack, Stack::Http(http) if http.finished) {
            self.later.push(Later::Close(conn.id));
        }
        let socket = Socket {
            ws: ws::Connection::new(ws::Role::Server, deflate),
            accepts,
            speech,
            envelope,
            alive_at: now,
            // Pings of Primus keep their pace from the beginning.
            pinged_at: matches!(speech.dialect, Dialect::Primus(_)).then_some(now),
            message_since: None,
            unread: None,
        };
        self.table.set_stack(index, Stack::Socket(socket));
    }

    /// A request whose body was needed is whole, or has its turn again.
    pub(super) fn posted(
        &mut self,
        index: usize,
        request: &Request<'_>,
        kept: &mut Kept,
        out: &mut Vec<u8>,
    ) -> Verdict {
        let shared = self.shared.clone();
        match route(request.path(), &shared.options) {
            Route::SockJs { service, route } => {
                let verdict = self.sockjs_posted(request, service, &route, kept, out);
                self.hold_if_congested(index);
                verdict
            }
            _ => self.engine_posted(index, request, kept, out),
        }
    }
}

/// What the built-in pages may do: run and style themselves, and talk to this server.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline' 'self'; style-src 'unsafe-inline'; img-src data: 'self'; \
     connect-src 'self' ws: wss:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
