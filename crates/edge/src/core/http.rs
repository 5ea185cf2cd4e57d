//! HTTP connections: requests in order, one at a time, until one becomes something else.

use super::Core;
use super::request::{Route, Wishes, answer, cors, route, text, wishes};
use super::table::{Accepts, Conn, Http, Socket, Stack, Waiting};
use crate::app::{Connect, Envelope};
use crate::format;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stentor_driver::{ConnId, Driver};
use stentor_hub::{CoreId, Disconnect, Key, Policy, Topic};
use stentor_wire::http1::{self, BodyDecoder, BodyKind, HeadScanner, Request};
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

impl<D: Driver> Core<D> {
    /// A connection begins, with bytes read already. `stay`: it can't be moved to another core.
    pub(super) fn begin_http(&mut self, conn: ConnId, peer: SocketAddr, buffer: Vec<u8>, stay: bool) {
        let deadline = self.millis().after(self.shared.options.limits.head_time_max);
        let fresh = buffer.is_empty();
        let http = Http {
            peer,
            buffer,
            scanner: HeadScanner::default(),
            body: None,
            deadline,
            waiting: None,
            moving: false,
            stay,
        };
        let index = self.table.insert(conn, Stack::Http(Box::new(http)));
        self.shared.loads[self.facts.core].store(self.table.count(), Ordering::Relaxed);
        self.arm(index, deadline);
        if !fresh {
            self.serve(index);
        }
    }

    /// Deals with what has been read of an HTTP connection.
    pub(super) fn serve(&mut self, index: usize) {
        let mut out = std::mem::take(&mut self.cork);
        while self.serve_one(index, &mut out) {}
        self.answer(index, out);
    }

    /// Deals with one request or part of a body and says whether to go on.
    fn serve_one(&mut self, index: usize, out: &mut Vec<u8>) -> bool {
        let limits = self.http_limits;
        let Some(conn) = self.table.get_mut(index) else { return false };
        let Stack::Http(http) = &mut conn.stack else { return false };
        if http.waiting.is_some() || http.moving {
            // Pipelined requests wait in the buffer, and beyond a head's worth in the kernel.
            if http.buffer.len() > limits.head_bytes_max && !conn.paused_for_replies {
                conn.paused_for_replies = true;
                self.driver.pause(conn.id);
            }
            return false;
        }
        if let Some((decoder, left)) = &mut http.body {
            let Ok(decoded) = decoder.decode(&http.buffer) else {
                return self.bad_request(index, out, 400, "the body's framing is broken");
            };
            let (consumed, done) = (decoded.consumed, decoded.done);
            if decoded.data.len() > *left {
                return self.bad_request(index, out, 413, "the body is too large (limits.body_bytes_max)");
            }
            *left -= decoded.data.len();
            http.buffer.drain(..consumed);
            if done {
                http.body = None;
            }
            return done || (consumed > 0 && !http.buffer.is_empty());
        }
        match http.scanner.find_end(&http.buffer, &limits) {
            Err(error) => self.bad_request(index, out, error.status(), &error.to_string()),
            Ok(None) => false,
            Ok(Some(head)) => {
                let mut buffer = std::mem::take(&mut http.buffer);
                let verdict = match http1::parse_request(&buffer[..head], &limits) {
                    Err(error) => return self.bad_request(index, out, error.status(), &error.to_string()),
                    Ok(request) => {
                        self.metrics().requests.add(1);
                        let body = request.body();
                        (self.request(index, &request, out), body, request.expects_continue())
                    }
                };
                self.act_on(index, verdict, &mut buffer, head, out)
            }
        }
    }

    fn act_on(
        &mut self,
        index: usize,
        (verdict, body, expects_continue): (Verdict, BodyKind, bool),
        buffer: &mut Vec<u8>,
        head: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let limits = self.shared.options.limits.clone();
        let now = self.millis();
        let Some(conn) = self.table.get_mut(index) else { return false };
        match (verdict, &mut conn.stack) {
            (Verdict::Upgraded, _) => {
                // A frame glued to the handshake is not lost.
                self.socket_input(index, &mut buffer[head..], out);
                false
            }
            (Verdict::Answered { keep_alive }, Stack::Http(http)) => {
                // A client that asks first and is not answered 100 sends no body (RFC 9110, 10.1.1), but may:
                // the connection can't be used again.
                if !keep_alive || expects_continue {
                    self.finish_after(index, std::mem::take(out));
                    return false;
                }
                buffer.drain(..head);
                http.buffer = std::mem::take(buffer);
                if body != BodyKind::Empty {
                    http.body = Some((BodyDecoder::new(body), limits.body_bytes_max));
                }
                http.stay = false;
                http.deadline = now.after(limits.idle_time_max);
                let deadline = http.deadline;
                self.arm(index, deadline);
                true
            }
            (Verdict::Waiting(waiting), Stack::Http(http)) => {
                buffer.drain(..head);
                http.buffer = std::mem::take(buffer);
                http.deadline = now.after(limits.wait_time_max);
                let deadline = http.deadline;
                let topic = Topic::Feed(waiting.key.clone());
                http.waiting = Some(waiting);
                self.arm(index, deadline);
                let session = self.hub.handle_open(format::BODY, index as u64);
                if let Some(conn) = self.table.get_mut(index) {
                    conn.session = Some(session);
                }
                if self.hub.handle_subscribe(session, &topic, Policy::Latest, None).is_err() {
                    self.fail_waiting(
                        index,
                        503,
                        "the server knows as many topics as it may (limits.topics_max)",
                    );
                }
                false
            }
            (Verdict::Move(core), Stack::Http(http)) => {
                http.buffer = std::mem::take(buffer);
                http.moving = true;
                let idle = !conn.in_flight && conn.replies.is_none();
                if idle && out.is_empty() {
                    self.move_connection(index, core);
                }
                false
            }
            _ => false,
        }
    }

    /// What waited is done: the connection is free for the next request.
    pub(super) fn request_done(&mut self, index: usize) {
        let Some(Conn { id, stack: Stack::Http(http), .. }) = self.table.get_mut(index) else { return };
        if http.moving {
            // Looked at anew: the route is the same, and nothing is in flight now.
            http.moving = false;
            http.scanner = HeadScanner::default();
            return self.serve(index);
        }
        let Some(waiting) = http.waiting.take_if(|waiting| waiting.answered) else { return };
        let id = *id;
        http.deadline = Default::default();
        self.end_session(index);
        if !waiting.keep_alive {
            self.drop_connection(index);
            self.driver.finish(id, self.shared.options.limits.close_time_max);
            return;
        }
        let deadline = self.millis().after(self.shared.options.limits.idle_time_max);
        if let Some(Conn { stack: Stack::Http(http), .. }) = self.table.get_mut(index) {
            http.deadline = deadline;
            http.stay = false;
        }
        self.arm(index, deadline);
        self.serve(index);
    }

    fn move_connection(&mut self, index: usize, core: CoreId) {
        let Some(Conn { id, stack: Stack::Http(http), .. }) = self.table.get_mut(index) else { return };
        let (id, peer, buffer) = (*id, http.peer, std::mem::take(&mut http.buffer));
        self.drop_connection(index);
        self.hand_over(id, peer, buffer, core);
    }

    /// Answers with an error and ends the connection: what follows in the stream can't be trusted.
    fn bad_request(&mut self, index: usize, out: &mut Vec<u8>, status: u16, why: &str) -> bool {
        self.metrics().request_errors.add(1);
        text(out, status, &[], false, &format!("{why}\n"));
        self.finish_after(index, std::mem::take(out));
        false
    }

    /// Ends a connection after `bytes` have left.
    fn finish_after(&mut self, index: usize, bytes: Vec<u8>) {
        if let Some(conn) = self.table.get_mut(index) {
            if !bytes.is_empty() {
                conn.replies.get_or_insert_default().extend_from_slice(&bytes);
            }
            self.end(index, self.shared.options.limits.close_time_max);
        }
    }

    /// The deadline of an HTTP connection may have passed.
    pub(super) fn http_due(&mut self, index: usize) {
        let now = self.millis();
        let Some(Conn { stack: Stack::Http(http), .. }) = self.table.get(index) else { return };
        let deadline = http.deadline;
        if now.is_before(deadline) {
            return self.arm(index, deadline);
        }
        match &http.waiting {
            // The answer is on its way to a slow reader: the send's progress decides.
            Some(waiting) if waiting.answered => self.end(index, Duration::ZERO),
            Some(_) => self.fail_waiting(index, 504, "the upstream has not answered in time"),
            None if http.buffer.is_empty() => self.end(index, self.shared.options.limits.close_time_max),
            None => {
                let mut out = Vec::new();
                self.bad_request(
                    index,
                    &mut out,
                    408,
                    "the request did not end in time (limits.head_time_max)",
                );
            }
        }
    }

    fn fail_waiting(&mut self, index: usize, status: u16, why: &str) {
        self.metrics().request_errors.add(1);
        let deadline = self.millis().after(self.shared.options.limits.close_time_max);
        let Some(conn) = self.table.get_mut(index) else { return };
        let Stack::Http(http) = &mut conn.stack else { return };
        let Some(waiting) = &mut http.waiting else { return };
        waiting.fail(status, why, &mut self.frames);
        http.deadline = deadline;
        if conn.in_flight {
            // An earlier answer is still on its way.
            let replies = conn.replies.get_or_insert_default();
            for frame in self.frames.drain(..) {
                replies.extend_from_slice(&frame.bytes());
            }
        } else {
            conn.in_flight = self.driver.send(conn.id, &mut self.frames) == stentor_driver::Sending::InFlight;
        }
        self.arm(index, deadline);
        self.settle(index);
    }

    fn request(&mut self, index: usize, request: &Request<'_>, out: &mut Vec<u8>) -> Verdict {
        let keep_alive = request.keep_alive();
        let options = &self.shared.options;
        let target = route(request.path(), &options.routes);
        let origin = request.header_str("origin");
        let has_origin = request.header("origin").is_some();
        let method = request.method();
        let readable = matches!(method, "GET" | "HEAD");
        if let Route::Socket(_) | Route::Feed(_) = target
            && has_origin
            && !origin.is_some_and(|origin| options.origins.allow(Some(origin), request.authority()))
        {
            return self.refuse_origin(request, out);
        }
        let head_only = method == "HEAD";
        match target {
            Route::Health if readable => {
                let (status, body) = if self.draining { (503, "draining\n") } else { (200, "ok\n") };
                let no_store = [("Cache-Control", "no-store")];
                let kind = "text/plain; charset=utf-8";
                answer(out, status, kind, &no_store, keep_alive, body.as_bytes(), head_only);
            }
            Route::Static(page) if readable => {
                let page = &options.routes[page];
                let extra = [("Cache-Control", "no-cache"), ("Content-Security-Policy", PAGE_POLICY)];
                answer(out, 200, &page.content_type, &extra, keep_alive, &page.body, head_only);
            }
            Route::Feed(key) if readable => {
                let home = self.hub.core_of(&Topic::Feed(key.clone()));
                let stays =
                    matches!(self.table.get(index), Some(Conn { stack: Stack::Http(http), .. }) if http.stay);
                if home != self.facts.core && !stays {
                    return Verdict::Move(home);
                }
                return Verdict::Waiting(Waiting::new(key, request));
            }
            Route::Socket(key) => return self.upgrade(index, request, key, out),
            Route::BadKey(error) => {
                self.metrics().request_errors.add(1);
                text(out, 400, &cors(origin), keep_alive, &format!("{error}\n"));
            }
            Route::Unknown => {
                self.metrics().request_errors.add(1);
                text(
                    out,
                    404,
                    &[],
                    keep_alive,
                    "there is nothing here; see /ws, /ws/KEY, /feed/KEY, /healthz\n",
                );
            }
            Route::Health | Route::Static(_) | Route::Feed(_) => {
                self.metrics().request_errors.add(1);
                text(
                    out,
                    405,
                    &[("Allow", "GET, HEAD")],
                    keep_alive,
                    "only GET and HEAD are answered here\n",
                );
            }
        }
        Verdict::Answered { keep_alive }
    }

    fn refuse_origin(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> Verdict {
        self.metrics().origins_refused.add(1);
        self.metrics().request_errors.add(1);
        let origin = request.header("origin").unwrap_or_default().escape_ascii().to_string();
        // One line a second: pages of strangers must not fill the log.
        let now = self.facts.now;
        if self.refused_logged_at.is_none_or(|at| now.saturating_duration_since(at) >= Duration::from_secs(1))
        {
            self.refused_logged_at = Some(now);
            tracing::warn!(
                "refused a request from origin {origin}; if its pages may connect, add to the configuration: \
                 [origins] allow = [\"{origin}\"]"
            );
        }
        text(
            out,
            403,
            &[("Vary", "Origin")],
            request.keep_alive(),
            "this origin may not connect ([origins] allow)\n",
        );
        Verdict::Answered { keep_alive: request.keep_alive() }
    }

    fn upgrade(
        &mut self,
        index: usize,
        request: &Request<'_>,
        key: Option<Key>,
        out: &mut Vec<u8>,
    ) -> Verdict {
        let keep_alive = request.keep_alive();
        let deflate = self.shared.options.deflate;
        let offered = DeflateOptions::default();
        let accepted = match handshake::check_request(request, deflate.enabled.then_some(&offered)) {
            Ok(accepted) => accepted,
            Err(error) => {
                self.metrics().request_errors.add(1);
                let keep_alive = keep_alive && error.status() != 400;
                text(out, error.status(), error.headers(), keep_alive, &format!("{error}\n"));
                return Verdict::Answered { keep_alive };
            }
        };
        let Wishes { mut feeds, raw } = match wishes(request.query()) {
            Ok(wishes) => wishes,
            Err(error) => {
                self.metrics().request_errors.add(1);
                text(out, 400, &[], keep_alive, &format!("feed: {error}\n"));
                return Verdict::Answered { keep_alive };
            }
        };
        if self.draining {
            text(out, 503, &[("Retry-After", "1")], false, "the server is going away\n");
            return Verdict::Answered { keep_alive: false };
        }
        let accepts = if key.is_some() { Accepts::Nothing } else { Accepts::Messages };
        let envelope = if key.is_some() || raw { Envelope::Raw } else { self.app.envelope() };
        if accepts == Accepts::Messages {
            let mut none = Vec::new();
            let mut ctx = self.facts.context(&mut self.hub, &mut none, &mut self.actions, None, envelope);
            if let Connect::Refuse { status, message } = self.app.connect(&mut ctx, request) {
                self.metrics().request_errors.add(1);
                text(out, status, &[], keep_alive, &format!("{message}\n"));
                return Verdict::Answered { keep_alive };
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
                in_flight_bytes: 0,
                message_since: None,
            });
        }
        if accepts == Accepts::Messages {
            let mut ctx = self.facts.context(&mut self.hub, out, &mut self.actions, Some(session), envelope);
            self.app.opened(&mut ctx, session, envelope);
        }
        for feed in feeds {
            if self.hub.handle_subscribe(session, &Topic::Feed(feed), Policy::Latest, None).is_err() {
                self.actions.push(crate::app::Action::Close { session, why: Disconnect::Overloaded });
                break;
            }
        }
        Verdict::Upgraded
    }
}

/// What the built-in pages may do: run and style themselves, and talk to this server.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline' 'self'; style-src 'unsafe-inline'; img-src data: 'self'; \
     connect-src 'self' ws: wss:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
