//! HTTP connections: requests in order, one at a time, until one becomes something else.
//!
//! What is read is dealt with where it lies; only the rest of it is kept, and an idle connection keeps
//! nothing. Each request gets exactly one answer, also where its body turns out to be too large or broken
//! after that: then the connection ends.
//!
//! Pipelined requests wait while an earlier one waits for something, or while answers aren't read: those
//! that have been read in the buffer, which holds at most a head and what came with it in one read, the
//! others in the kernel.

use super::request::{Manner, Route, Wishes, answer, cors, route, text, wishes};
use super::table::{Accepts, Conn, Held, Http, Socket, Stack, Waiting};
use super::{Core, Incoming};
use crate::app::{Action, Connect, Envelope};
use crate::format;
use stentor_driver::Driver;
use stentor_hub::{CoreId, Disconnect, Key, Policy, SubscribeError, Topic};
use stentor_wire::http1::{self, BodyDecoder, BodyKind, Request};
use stentor_wire::ws::{self, DeflateOptions, handshake};

/// What became of a request.
enum Verdict {
    /// Answered in full.
    Answered { keep_alive: bool },
    /// The connection speaks WebSocket now.
    Upgraded,
    /// Something is awaited.
    Waiting(Waiting),
    /// It belongs to another core.
    Move(CoreId),
}

/// How far the input has been dealt with: so many bytes of it.
enum Step {
    /// What follows can be looked at.
    Next(usize),
    /// More bytes are needed, or something has to happen first.
    Pause(usize),
    /// The connection ends or speaks something else; what is left is dealt with or worth nothing.
    Over,
}

impl<D: Driver> Core<D> {
    /// A connection begins, perhaps with bytes read already. `stay`: it can't be moved to another core.
    pub(super) fn begin_http(&mut self, incoming: Incoming, stay: bool) {
        let Incoming { conn, peer, mut buffer, finished } = incoming;
        let deadline = self.millis().after(self.shared.options.limits.head_time_max);
        let http = Http { stay, finished, ..Http::new(peer, deadline) };
        let index = self.table.insert(conn, Stack::Http(Box::new(http)));
        self.arm(index, deadline);
        if !buffer.is_empty() || finished || self.draining {
            self.serve(index, &mut buffer);
        }
    }

    fn http(&mut self, index: usize) -> Option<&mut Http> {
        match self.table.get_mut(index) {
            Some(Conn { stack: Stack::Http(http), .. }) => Some(http),
            _ => None,
        }
    }

    /// Deals with what has been read of an HTTP connection: what was kept, and `received`.
    pub(super) fn serve(&mut self, index: usize, received: &mut [u8]) {
        let replies_bytes_max = self.shared.options.limits.replies_bytes_max;
        let Some(http) = self.http(index) else { return };
        let mut kept = std::mem::take(&mut http.buffer);
        if http.is_busy() || !kept.is_empty() {
            kept.extend_from_slice(received);
        }
        let was_kept = !kept.is_empty();
        let input = if was_kept { &mut kept } else { received };
        let mut out = std::mem::take(&mut self.cork);
        let mut at = 0;
        let goes_on = loop {
            if out.len() > replies_bytes_max && at < input.len() {
                if let Some(http) = self.http(index) {
                    http.stalled = true;
                }
                break true;
            }
            match self.serve_one(index, &mut input[at..], &mut out) {
                Step::Next(bytes) => at += bytes,
                Step::Pause(bytes) => {
                    at += bytes;
                    break true;
                }
                Step::Over => break false,
            }
        };
        if goes_on {
            let rest = if at == input.len() {
                Vec::new()
            } else if was_kept {
                kept.drain(..at);
                kept
            } else {
                input[at..].to_vec()
            };
            self.keep(index, rest);
        }
        self.answer(index, out);
        let draining = self.draining;
        if let Some(http) = self.http(index)
            && !http.is_busy()
            && (http.finished || draining && http.buffer.is_empty())
        {
            self.end(index);
        }
    }

    /// Keeps what can't be dealt with yet, and no more than a head and what came with it.
    fn keep(&mut self, index: usize, rest: Vec<u8>) {
        let limits = &self.shared.options.limits;
        let (head_bytes_max, head_time_max) = (limits.head_bytes_max, limits.head_time_max);
        let head_deadline = self.millis().after(head_time_max);
        let Some(http) = self.http(index) else { return };
        let is_busy = http.is_busy();
        let hold = http.stalled || is_busy && rest.len() > head_bytes_max;
        let begins = !is_busy && !rest.is_empty() && !http.begun;
        http.buffer = rest;
        if begins {
            http.begun = true;
            http.deadline = head_deadline;
            self.arm(index, head_deadline);
        }
        if hold {
            self.hold(index, Held::INPUT);
        } else {
            self.release(index, Held::INPUT);
        }
    }

    /// Deals with one request, or part of a body.
    fn serve_one(&mut self, index: usize, input: &mut [u8], out: &mut Vec<u8>) -> Step {
        let limits = self.http_limits;
        let Some(http) = self.http(index) else { return Step::Over };
        if http.is_busy() {
            return Step::Pause(0);
        }
        if http.body.is_some() {
            return self.discard_body(index, input, out);
        }
        let head = match http.scanner.find_end(input, &limits) {
            Ok(Some(head)) => head,
            Ok(None) => return Step::Pause(0),
            Err(error) => return self.bad_request(index, out, error.status(), &error.to_string()),
        };
        let request = match http1::parse_request(&input[..head], &limits) {
            Ok(request) => request,
            Err(error) => return self.bad_request(index, out, error.status(), &error.to_string()),
        };
        let body_bytes_max = self.shared.options.limits.body_bytes_max;
        let body = request.body();
        if matches!(body, BodyKind::Length(bytes) if bytes > body_bytes_max as u64) {
            return self.bad_request(index, out, 413, "the body is too large (limits.body_bytes_max)");
        }
        // A client that asks first and is not answered 100 sends no body (RFC 9110, 10.1.1), but may: the
        // connection can't be used again.
        let expects_continue = request.expects_continue();
        let verdict = self.request(index, &request, out);
        if !matches!(verdict, Verdict::Move(_)) {
            self.metrics().requests.add(1);
        }
        let idle_deadline = self.millis().after(self.shared.options.limits.idle_time_max);
        let Some(conn) = self.table.get_mut(index) else { return Step::Over };
        let http = match (&mut conn.stack, &verdict) {
            (Stack::Http(http), _) => http,
            (Stack::Socket(_), Verdict::Upgraded) => {
                // A frame glued to the handshake is not lost.
                self.socket_input(index, &mut input[head..], out);
                return Step::Over;
            }
            _ => return Step::Over,
        };
        if let Verdict::Move(core) = verdict {
            // It is looked at anew there.
            http.moving = Some(core);
            return Step::Pause(0);
        }
        http.body = (body != BodyKind::Empty).then(|| (BodyDecoder::new(body), body_bytes_max));
        http.begun = false;
        http.stay = false;
        http.deadline = idle_deadline;
        match verdict {
            Verdict::Answered { keep_alive } if keep_alive && !expects_continue => {
                self.arm(index, idle_deadline);
                Step::Next(head)
            }
            Verdict::Waiting(waiting) => self.wait_for(index, waiting.last_if(expects_continue), head, out),
            _ => self.finish_after(index, out),
        }
    }

    /// Reads a body and throws it away, up to a bound. Its request has been answered.
    fn discard_body(&mut self, index: usize, input: &[u8], out: &mut Vec<u8>) -> Step {
        let Some(http) = self.http(index) else { return Step::Over };
        let Some((decoder, left)) = &mut http.body else { return Step::Pause(0) };
        let mut at = 0;
        while at < input.len() {
            match decoder.decode(&input[at..]) {
                Ok(decoded) if decoded.data.len() <= *left => {
                    *left -= decoded.data.len();
                    at += decoded.consumed;
                    if decoded.done {
                        http.body = None;
                        return Step::Next(at);
                    }
                }
                // Too large, or broken: what follows can't be told from it.
                _ => {
                    self.metrics().request_errors.add(1);
                    return self.finish_after(index, out);
                }
            }
        }
        Step::Pause(at)
    }

    /// Subscribes a request to what it waits for.
    fn wait_for(&mut self, index: usize, waiting: Waiting, head: usize, out: &mut Vec<u8>) -> Step {
        let deadline = self.millis().after(self.shared.options.limits.wait_time_max);
        let topic = Topic::Feed(waiting.key.clone());
        let session = self.hub.handle_open(format::BODY, index as u64);
        if self.hub.handle_subscribe(session, &topic, Policy::Latest, None).is_err() {
            self.hub.handle_close(session);
            self.metrics().request_errors.add(1);
            let why = super::TOO_MANY_TOPICS;
            waiting.fail(503, why, self.draining, out);
            let keep_alive = waiting.keep_alive && !self.draining;
            return if keep_alive { Step::Next(head) } else { self.finish_after(index, out) };
        }
        if let Some(conn) = self.table.get_mut(index)
            && let Stack::Http(http) = &mut conn.stack
        {
            conn.session = Some(session);
            http.deadline = deadline;
            http.waiting = Some(waiting);
        }
        self.arm(index, deadline);
        Step::Pause(head)
    }

    /// What a connection waited for has happened, and nothing is in flight: it is free for the next request.
    pub(super) fn request_done(&mut self, index: usize) {
        let idle_deadline = self.millis().after(self.shared.options.limits.idle_time_max);
        let Some(conn) = self.table.get_mut(index) else { return };
        let Stack::Http(http) = &mut conn.stack else { return };
        if conn.in_flight || conn.replies.is_some() {
            return;
        }
        if let Some(core) = http.moving.take() {
            return self.move_connection(index, core);
        }
        http.stalled = false;
        if let Some(waiting) = http.waiting.take_if(|waiting| waiting.answered) {
            http.deadline = idle_deadline;
            self.end_session(index);
            if !waiting.keep_alive || self.draining {
                return self.end(index);
            }
            self.arm(index, idle_deadline);
        }
        self.serve(index, &mut []);
    }

    fn move_connection(&mut self, index: usize, core: CoreId) {
        // The next core knows no reason not to read.
        self.release(index, Held::INPUT);
        let Some(Conn { id, stack: Stack::Http(http), .. }) = self.table.get_mut(index) else { return };
        let buffer = std::mem::take(&mut http.buffer);
        let incoming = Incoming { conn: *id, peer: http.peer, buffer, finished: http.finished };
        self.drop_connection(index);
        self.hand_over(incoming, core);
    }

    /// Answers with an error and ends the connection: what follows in the stream can't be trusted.
    fn bad_request(&mut self, index: usize, out: &mut Vec<u8>, status: u16, why: &str) -> Step {
        self.metrics().request_errors.add(1);
        text(out, Manner::LAST, status, &[], why);
        self.finish_after(index, out)
    }

    /// Ends a connection after `out` has left.
    fn finish_after(&mut self, index: usize, out: &mut Vec<u8>) -> Step {
        if let Some(conn) = self.table.get_mut(index) {
            if !out.is_empty() {
                conn.replies.get_or_insert_default().append(out);
            }
            self.end(index);
        }
        Step::Over
    }

    /// The deadline of an HTTP connection may have passed.
    pub(super) fn http_due(&mut self, index: usize) {
        let now = self.millis();
        let idle_deadline = now.after(self.shared.options.limits.idle_time_max);
        let Some(http) = self.http(index) else { return };
        let deadline = http.deadline;
        if now.is_before(deadline) {
            return self.arm(index, deadline);
        }
        // While an answer leaves, its progress decides: slow is not dead.
        match self.progress(index) {
            Some(true) => {
                if let Some(http) = self.http(index) {
                    http.deadline = idle_deadline;
                }
                return self.arm(index, idle_deadline);
            }
            Some(false) => return self.abort(index),
            None => {}
        }
        let draining = self.draining;
        let Some(http) = self.http(index) else { return };
        match &http.waiting {
            Some(waiting) if waiting.answered => self.arm(index, idle_deadline),
            Some(waiting) => {
                let (status, why) = match (&waiting.unchanged, draining) {
                    (Some(_), _) => (304, ""),
                    (None, true) => (503, "the server is going away"),
                    (None, false) => (504, "the upstream has not answered in time (limits.wait_time_max)"),
                };
                self.fail_waiting(index, status, why);
            }
            // A whole request is there, and is about to be looked at.
            None if http.is_busy() => self.arm(index, idle_deadline),
            None if !http.begun || http.buffer.is_empty() => self.end(index),
            None => {
                let mut out = Vec::new();
                let why = "the request did not end in time (limits.head_time_max)";
                self.bad_request(index, &mut out, 408, why);
            }
        }
    }

    pub(super) fn fail_waiting(&mut self, index: usize, status: u16, why: &str) {
        if status >= 400 {
            self.metrics().request_errors.add(1);
        }
        let deadline = self.millis().after(self.shared.options.limits.idle_time_max);
        let draining = self.draining;
        let Some(conn) = self.table.get_mut(index) else { return };
        let Stack::Http(http) = &mut conn.stack else { return };
        let Some(waiting) = &mut http.waiting else { return };
        waiting.answered = true;
        waiting.fail(status, why, draining, conn.replies.get_or_insert_default());
        http.deadline = deadline;
        self.arm(index, deadline);
        self.flush(index);
    }

    fn request(&mut self, index: usize, request: &Request<'_>, out: &mut Vec<u8>) -> Verdict {
        let manner = Manner::of(request, self.draining);
        let Manner { keep_alive, .. } = manner;
        let shared = &self.shared;
        let options = &shared.options;
        let target = route(request.path(), &options.routes);
        let origin = request.header_str("origin");
        let has_origin = request.header("origin").is_some();
        let readable = matches!(request.method(), "GET" | "HEAD");
        if let Route::Socket(_) | Route::Feed(_) = target
            && has_origin
            && !origin.is_some_and(|origin| options.origins.allow(Some(origin), request.authority()))
        {
            return self.refuse_origin(request, out);
        }
        match target {
            Route::Health | Route::Static(_) | Route::Feed(_)
                if request.headers().list_has("upgrade", "websocket") =>
            {
                // What follows may be frames, which must not be read as requests.
                self.metrics().request_errors.add(1);
                text(out, Manner::LAST, 400, &cors(origin), "there is no WebSocket here; see /ws, /ws/KEY");
                return Verdict::Answered { keep_alive: false };
            }
            Route::Health if readable => {
                let (status, body) = if self.draining { (503, "draining\n") } else { (200, "ok\n") };
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
                return Verdict::Waiting(Waiting::new(key, request, manner));
            }
            Route::Socket(key) => return self.upgrade(index, request, key, out),
            Route::BadKey(error) => {
                self.metrics().request_errors.add(1);
                text(out, manner, 400, &cors(origin), &error.to_string());
            }
            Route::Unknown => {
                self.metrics().request_errors.add(1);
                text(out, manner, 404, &[], "there is nothing here; see /ws, /ws/KEY, /feed/KEY, /healthz");
            }
            Route::Health | Route::Static(_) | Route::Feed(_) => {
                self.metrics().request_errors.add(1);
                let allow = [("Allow", "GET, HEAD")];
                text(out, manner, 405, &allow, "only GET and HEAD are answered here");
            }
        }
        Verdict::Answered { keep_alive }
    }

    fn refuse_origin(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> Verdict {
        self.metrics().origins_refused.add(1);
        self.metrics().request_errors.add(1);
        if self.once_a_second() {
            let origin = request.header("origin").unwrap_or_default().escape_ascii().to_string();
            tracing::warn!(
                "refused a request from origin {origin}; if its pages may connect, add to the configuration: \
                 [origins] allow = [\"{origin}\"]"
            );
        }
        let manner = Manner::of(request, self.draining);
        text(out, manner, 403, &[("Vary", "Origin")], "this origin may not connect ([origins] allow)");
        Verdict::Answered { keep_alive: manner.keep_alive }
    }

    fn upgrade(
        &mut self,
        index: usize,
        request: &Request<'_>,
        key: Option<Key>,
        out: &mut Vec<u8>,
    ) -> Verdict {
        let manner = Manner::of(request, self.draining);
        let deflate = self.shared.options.deflate;
        let offered = DeflateOptions::default();
        let accepted = match handshake::check_request(request, deflate.enabled.then_some(&offered)) {
            Ok(accepted) => accepted,
            Err(error) => {
                self.metrics().request_errors.add(1);
                // Whoever meant to speak WebSocket goes on in frames.
                let keep_alive = manner.keep_alive && error.status() != 400;
                let manner = Manner { keep_alive, ..manner };
                text(out, manner, error.status(), error.headers(), &error.to_string());
                return Verdict::Answered { keep_alive };
            }
        };
        let Wishes { mut feeds, raw } = match wishes(request.query()) {
            Ok(wishes) => wishes,
            Err(error) => {
                self.metrics().request_errors.add(1);
                text(out, Manner::LAST, 400, &[], &format!("feed: {error}"));
                return Verdict::Answered { keep_alive: false };
            }
        };
        if self.draining {
            text(out, Manner::LAST, 503, &[("Retry-After", "1")], "the server is going away");
            return Verdict::Answered { keep_alive: false };
        }
        let accepts = if key.is_some() { Accepts::Nothing } else { Accepts::Messages };
        let envelope = if key.is_some() || raw { Envelope::Raw } else { self.app.envelope() };
        if accepts == Accepts::Messages {
            let mut none = Vec::new();
            let mut ctx = self.facts.context(&mut self.hub, &mut none, &mut self.actions, None, envelope);
            let answer = self.app.connect(&mut ctx, request);
            self.published_bytes += ctx.published_bytes;
            if let Connect::Refuse { status, message } = answer {
                self.metrics().request_errors.add(1);
                text(out, Manner::LAST, status, &[], &message);
                return Verdict::Answered { keep_alive: false };
            }
        }
        feeds.extend(key);
        accepted.write_response(out, &[], None);
        // Shared deflated frames are made with the largest window.
        let deflates = accepted.deflate.is_some_and(|d| d.server_max_window_bits >= format::WINDOW_BITS);
        let format = match (envelope, deflates) {
            (Envelope::V1, false) => format::WS_V1,
            (Envelope::V1, true) => format::WS_V1_DEFLATED,
            (Envelope::Raw, false) => format::WS_RAW,
            (Envelope::Raw, true) => format::WS_RAW_DEFLATED,
        };
        let session = self.hub.handle_open(format, index as u64);
        let now = self.millis();
        if let Some(conn) = self.table.get_mut(index) {
            conn.session = Some(session);
            conn.stack = Stack::Socket(Socket {
                ws: ws::Connection::new(ws::Role::Server, accepted.deflate),
                accepts,
                envelope,
                alive_at: now,
                pinged_at: None,
                message_since: None,
                unread: None,
            });
        }
        self.arm(index, now.after(self.shared.options.heartbeat.interval));
        if accepts == Accepts::Messages {
            let mut ctx = self.facts.context(&mut self.hub, out, &mut self.actions, Some(session), envelope);
            self.app.opened(&mut ctx, session, envelope);
            self.published_bytes += ctx.published_bytes;
        }
        for feed in feeds {
            if let Err(error) = self.hub.handle_subscribe(session, &Topic::Feed(feed), Policy::Latest, None) {
                let why = match error {
                    SubscribeError::TooManySubscriptions => Disconnect::BadRequest,
                    SubscribeError::TooManyTopics => Disconnect::Overloaded,
                };
                self.actions.push(Action::Close { session, why });
                break;
            }
        }
        Verdict::Upgraded
    }
}

/// What the built-in pages may do: run and style themselves, and talk to this server.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline' 'self'; style-src 'unsafe-inline'; img-src data: 'self'; \
     connect-src 'self' ws: wss:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
