//! HTTP connections: requests in order, one at a time, until one becomes something else. What each request is answered
//! with is in [`super::routes`].
//!
//! What is read is dealt with where it lies; only the rest of it is kept, and an idle connection keeps
//! nothing. Each request gets exactly one answer, also where its body turns out to be too large or broken
//! after that: then the connection ends.
//!
//! Pipelined requests wait while an earlier one waits for something, or while answers aren't read: those
//! that have been read in the buffer, which holds at most a head and what came with it in one read, the
//! others in the kernel.

use super::request::{Manner, answer, cors, text};
use super::table::{Awaited, Conn, Held, Http, Kept, Receiving, Stack, Waiting};
use super::turn::REQUEST_BYTES;
use super::{Core, Incoming};
use crate::app::Connect;
use crate::encode::Format;
use crate::millis::Millis;
use crate::plane;
use stentor_driver::{ConnId, Driver};
use stentor_hub::{CoreId, Policy, Topic};
use stentor_wire::http1::{self, BodyDecoder, BodyKind, Request};

/// The response text for a request that is too large for the remaining memory.
const MEMORY_SHORT: &str = "the server is short of memory; send it again later (limits.memory_bytes_max)";
/// `Retry-After`, in seconds.
const RETRY_AFTER_SECONDS: &str = "5";

/// What became of a request.
pub(super) enum Verdict {
    /// Answered in full.
    Answered { keep_alive: bool },
    /// The connection speaks WebSocket now.
    Upgraded,
    /// A document is awaited.
    Document(Awaited),
    /// Something else is awaited.
    Waiting(Waiting),
    /// It is looked at again when something has happened.
    Again(Waiting),
    /// Its body is needed, up to so many bytes.
    Body { bytes_max: usize },
    /// The rest of its body is looked at after what it has published has left.
    Rest,
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
        let Incoming { conn, peer, mut buffer, finished, kept } = incoming;
        let deadline = self.millis().after(self.shared.options.limits.header_timeout);
        let waiting = kept.map(Waiting::Body);
        let goes_on = waiting.is_some();
        let http = Http { stay, finished, waiting, ..Http::new(peer, deadline) };
        let index = self.table.insert(conn, Stack::Http(Box::new(http)));
        self.arm(index, deadline);
        if goes_on {
            self.keep(index, buffer);
            self.weigh(index);
            self.next_turn.push(index);
        } else if !buffer.is_empty() || finished || self.draining {
            self.serve(index, &mut buffer);
        }
    }

    pub(super) fn http(&mut self, index: usize) -> Option<&mut Http> {
        match self.table.get_mut(index) {
            Some(Conn { stack: Stack::Http(http), .. }) => Some(http),
            _ => None,
        }
    }

    /// A number for the client address of an HTTP connection.
    pub(super) fn source_of(&self, index: usize) -> u64 {
        match self.table.get(index).map(|conn| &conn.stack) {
            Some(Stack::Http(http)) => plane::source_of(http.peer.ip()),
            _ => 0,
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
            let used = self.budget.is_used();
            if (used || out.len() > replies_bytes_max) && at < input.len() {
                if let Some(http) = self.http(index) {
                    http.stalled = true;
                }
                break true;
            }
            let (bytes, goes_on) = match self.serve_one(index, &mut input[at..], &mut out) {
                Step::Next(bytes) => (bytes, None),
                Step::Pause(bytes) => (bytes, Some(true)),
                Step::Over => (0, Some(false)),
            };
            at += bytes;
            self.budget.count(bytes + REQUEST_BYTES);
            if let Some(goes_on) = goes_on {
                break goes_on;
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
        let (header_bytes_max, header_timeout) = (limits.header_bytes_max, limits.header_timeout);
        let head_deadline = self.millis().after(header_timeout);
        let Some(http) = self.http(index) else { return };
        let is_busy = http.is_busy();
        let hold = http.stalled || is_busy && rest.len() > header_bytes_max;
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
            return self.receive_body(index, input, out);
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
        let body = request.body();
        // A client that asks first and is not answered 100 sends no body (RFC 9110, 10.1.1), but may: the
        // connection can't be used again.
        let expects_continue = request.expects_continue();
        let verdict = self.request(index, &request, out);
        if !matches!(verdict, Verdict::Move(_) | Verdict::Again(_)) {
            self.metrics().requests.add(1);
        }
        let is_too_large_now = matches!(verdict, Verdict::Body { .. })
            && matches!(body, BodyKind::Length(bytes) if self.is_too_large_now(bytes as usize));
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
        match verdict {
            // It is looked at anew, there or then.
            Verdict::Move(core) => {
                http.moving = Some(core);
                return Step::Pause(0);
            }
            Verdict::Again(waiting) => {
                http.waiting = Some(waiting);
                let deadline = self.millis().after(self.shared.options.limits.request_timeout);
                return self.pause_until(index, deadline, 0);
            }
            _ => {}
        }
        http.admission = None;
        http.begun = false;
        http.stay = false;
        if let Verdict::Body { bytes_max } = verdict {
            if matches!(body, BodyKind::Length(bytes) if bytes > bytes_max as u64) {
                return self.too_large(index, &request, out);
            }
            if is_too_large_now {
                self.metrics().inputs_refused.add(1);
                return self.refuse_body(index, &request, out);
            }
            if expects_continue {
                out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            }
            let kept = Box::new(Kept { head: input[..head].to_vec(), ..Kept::default() });
            if body == BodyKind::Empty {
                return self.body_arrived(index, kept, head, out);
            }
            let decoder = BodyDecoder::new(body);
            http.body = Some(Receiving { decoder, bytes_left: bytes_max, kept: Some(kept) });
            let deadline = self.millis().after(self.shared.options.limits.idle_timeout);
            return self.next_until(index, deadline, head);
        }
        if body != BodyKind::Empty {
            let bytes_left = self.shared.options.limits.body_bytes_max;
            http.body = Some(Receiving { decoder: BodyDecoder::new(body), bytes_left, kept: None });
        }
        self.conclude(index, verdict, expects_continue, head, out)
    }

    fn next_until(&mut self, index: usize, deadline: Millis, consumed: usize) -> Step {
        if let Some(http) = self.http(index) {
            http.deadline = deadline;
        }
        self.arm(index, deadline);
        Step::Next(consumed)
    }

    fn pause_until(&mut self, index: usize, deadline: Millis, consumed: usize) -> Step {
        self.next_until(index, deadline, consumed);
        Step::Pause(consumed)
    }

    /// Goes on after a request of which `consumed` bytes of the input are dealt with. `last`: the connection can't
    /// take another one.
    fn conclude(
        &mut self,
        index: usize,
        verdict: Verdict,
        last: bool,
        consumed: usize,
        out: &mut Vec<u8>,
    ) -> Step {
        self.table.requested(index);
        let limits = &self.shared.options.limits;
        let (idle_timeout, request_timeout) = (limits.idle_timeout, limits.request_timeout);
        let heartbeat_interval = self.shared.options.heartbeat.interval;
        let now = self.millis();
        match verdict {
            Verdict::Answered { keep_alive } if keep_alive && !last => {
                self.next_until(index, now.after(idle_timeout), consumed)
            }
            Verdict::Document(awaited) => self.wait_for(index, awaited.last_if(last), consumed, out),
            Verdict::Waiting(mut waiting) => {
                if last {
                    waiting.make_last();
                }
                let until = match &waiting {
                    Waiting::Page(page) => now.after(page.next_after()),
                    Waiting::Events(_) => now.after(heartbeat_interval),
                    waiting if waiting.is_answered() => now.after(idle_timeout),
                    _ => now.after(request_timeout),
                };
                if let Some(http) = self.http(index) {
                    http.waiting = Some(waiting);
                }
                self.pause_until(index, until, consumed)
            }
            _ => self.finish_after(index, out),
        }
    }

    /// Reads a body: keeps it for its request, or throws it away, up to a bound.
    fn receive_body(&mut self, index: usize, input: &[u8], out: &mut Vec<u8>) -> Step {
        let Some(http) = self.http(index) else { return Step::Over };
        let Some(Receiving { decoder, bytes_left, kept }) = &mut http.body else { return Step::Pause(0) };
        let mut at = 0;
        while at < input.len() {
            match decoder.decode(&input[at..]) {
                Ok(decoded) if decoded.data.len() <= *bytes_left => {
                    *bytes_left -= decoded.data.len();
                    at += decoded.consumed;
                    if let Some(kept) = kept {
                        kept.body.extend_from_slice(decoded.data);
                    }
                    if decoded.done {
                        let kept = kept.take();
                        http.body = None;
                        return match kept {
                            Some(kept) => self.body_arrived(index, kept, at, out),
                            None => Step::Next(at),
                        };
                    }
                }
                // Too large, or broken: what follows can't be told from it.
                decoded => {
                    let kept = kept.take();
                    let Some(kept) = kept else {
                        self.metrics().request_errors.add(1);
                        return self.finish_after(index, out);
                    };
                    return match (decoded, http1::parse_request(&kept.head, &self.http_limits)) {
                        (Ok(_), Ok(request)) => self.too_large(index, &request, out),
                        _ => self.bad_request(index, out, 400, "the body's framing is broken"),
                    };
                }
            }
        }
        Step::Pause(at)
    }

    /// A request whose body was needed is there, or what is left of it is looked at again.
    fn body_arrived(
        &mut self,
        index: usize,
        mut kept: Box<Kept>,
        consumed: usize,
        out: &mut Vec<u8>,
    ) -> Step {
        let head = std::mem::take(&mut kept.head);
        let Ok(request) = http1::parse_request(&head, &self.http_limits) else {
            return self.finish_after(index, out);
        };
        let verdict = self.posted(index, &request, &mut kept, out);
        let idle_deadline = self.millis().after(self.shared.options.limits.idle_timeout);
        let Some(http) = self.http(index) else { return Step::Over };
        if matches!(verdict, Verdict::Rest | Verdict::Move(_)) {
            if let Verdict::Move(core) = verdict {
                http.moving = Some(core);
            }
            kept.head = head;
            http.waiting = Some(Waiting::Body(kept));
            self.next_turn.push(index);
            return self.pause_until(index, idle_deadline, consumed);
        }
        self.conclude(index, verdict, false, consumed, out)
    }

    /// Answers a request whose body is larger than it may be: 413 without a body, as Engine.IO's clients expect.
    fn too_large(&mut self, index: usize, request: &Request<'_>, out: &mut Vec<u8>) -> Step {
        self.metrics().request_errors.add(1);
        let extra = cors(self.allow_origin(request));
        answer(out, Manner::LAST, 413, "text/plain; charset=utf-8", &extra, b"");
        self.finish_after(index, out)
    }

    /// Answers 503 to a request whose body is too large for the remaining memory.
    fn refuse_body(&mut self, index: usize, request: &Request<'_>, out: &mut Vec<u8>) -> Step {
        self.metrics().request_errors.add(1);
        let mut extra = vec![("Retry-After", RETRY_AFTER_SECONDS)];
        extra.extend(cors(request.header_str("origin")));
        text(out, Manner::LAST, 503, &extra, MEMORY_SHORT);
        self.finish_after(index, out)
    }

    /// Closes a connection with an incomplete request, because memory is short.
    pub(super) fn refuse_request(&mut self, index: usize) {
        self.metrics().request_errors.add(1);
        let mut out = Vec::new();
        text(&mut out, Manner::LAST, 503, &[("Retry-After", RETRY_AFTER_SECONDS)], MEMORY_SHORT);
        self.finish_after(index, &mut out);
    }

    /// Subscribes a request to what it waits for.
    fn wait_for(&mut self, index: usize, waiting: Awaited, head: usize, out: &mut Vec<u8>) -> Step {
        let deadline = self.millis().after(self.shared.options.limits.request_timeout);
        let topic = Topic::Feed(waiting.key.clone());
        let session = self.hub.handle_open(Format::Body.into(), index as u64);
        self.hub.set_source(session, self.source_of(index));
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
            http.waiting = Some(Waiting::Document(Box::new(waiting)));
        }
        self.arm(index, deadline);
        Step::Pause(head)
    }

    /// What a connection waited for has happened, and nothing is in flight: it is free for the next request.
    pub(super) fn request_done(&mut self, index: usize) {
        let idle_deadline = self.millis().after(self.shared.options.limits.idle_timeout);
        let Some(conn) = self.table.get_mut(index) else { return };
        let Stack::Http(http) = &mut conn.stack else { return };
        if conn.in_flight || conn.replies.is_some() {
            return;
        }
        if let Some(core) = http.moving.take() {
            return self.move_connection(index, core);
        }
        http.stalled = false;
        if let Some(Waiting::Body(kept)) = http.waiting.take_if(|waiting| matches!(waiting, Waiting::Body(_)))
        {
            let mut out = std::mem::take(&mut self.cork);
            let step = self.body_arrived(index, kept, 0, &mut out);
            self.answer(index, out);
            if !matches!(step, Step::Next(_)) {
                return;
            }
        } else if let Some(waiting) = http.waiting.take_if(|waiting| waiting.is_answered()) {
            http.deadline = idle_deadline;
            self.end_session(index);
            if !waiting.keep_alive() || self.draining {
                return self.end(index);
            }
            self.arm(index, idle_deadline);
        }
        self.serve(index, &mut []);
    }

    fn move_connection(&mut self, index: usize, core: CoreId) {
        // The next core knows no reason not to read.
        self.release(index, Held::INPUT);
        self.release(index, Held::CORES);
        self.release(index, Held::TURN);
        let Some(Conn { id, stack: Stack::Http(http), .. }) = self.table.get_mut(index) else { return };
        let buffer = std::mem::take(&mut http.buffer);
        let kept = match http.waiting.take() {
            Some(Waiting::Body(kept)) => Some(kept),
            _ => None,
        };
        let incoming = Incoming { conn: *id, peer: http.peer, buffer, finished: http.finished, kept };
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
                conn.weigh(&self.shared.ledger);
            }
            self.end(index);
        }
        Step::Over
    }

    /// The deadline of an HTTP connection may have passed.
    pub(super) fn http_due(&mut self, index: usize) {
        let now = self.millis();
        let idle_deadline = now.after(self.shared.options.limits.idle_timeout);
        let Some(http) = self.http(index) else { return };
        let deadline = http.deadline;
        if now.is_before(deadline) {
            return self.arm(index, deadline);
        }
        if matches!(&http.waiting, Some(Waiting::Page(page)) if !page.is_answered()) {
            return self.more_of_page(index);
        }
        if matches!(&http.waiting, Some(Waiting::Events(events)) if !events.answered) {
            return self.events_due(index);
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
            Some(waiting) if waiting.is_answered() => self.arm(index, idle_deadline),
            Some(Waiting::Page(_) | Waiting::Events(_)) => {}
            // The client's own timer says when it is over.
            Some(Waiting::Poll(_) | Waiting::Receiver(_) | Waiting::Body(_)) => {
                http.deadline = idle_deadline;
                self.arm(index, idle_deadline);
            }
            Some(Waiting::Admission(_)) => {
                let mut out = Vec::new();
                self.bad_request(
                    index,
                    &mut out,
                    504,
                    "no answer from the application in time (limits.request_timeout)",
                );
            }
            Some(Waiting::Document(waiting)) => {
                let (status, why) = match (&waiting.unchanged, draining) {
                    (Some(_), _) => (304, ""),
                    (None, true) => (503, "the server is shutting down"),
                    (None, false) => (504, "no document arrived in time (limits.request_timeout)"),
                };
                self.fail_waiting(index, status, why);
            }
            // A whole request is there, and is about to be looked at.
            None if http.is_busy() => self.arm(index, idle_deadline),
            None if !http.begun || http.buffer.is_empty() => self.end(index),
            None => {
                let mut out = Vec::new();
                let why = "the request headers did not arrive in time (limits.header_timeout)";
                self.bad_request(index, &mut out, 408, why);
            }
        }
    }

    pub(super) fn fail_waiting(&mut self, index: usize, status: u16, why: &str) {
        if status >= 400 {
            self.metrics().request_errors.add(1);
        }
        let deadline = self.millis().after(self.shared.options.limits.idle_timeout);
        let draining = self.draining;
        let Some(conn) = self.table.get_mut(index) else { return };
        let Stack::Http(http) = &mut conn.stack else { return };
        let Some(Waiting::Document(waiting)) = &mut http.waiting else { return };
        waiting.answered = true;
        waiting.fail(status, why, draining, conn.replies.get_or_insert_default());
        http.deadline = deadline;
        conn.weigh(&self.shared.ledger);
        self.arm(index, deadline);
        self.flush(index);
    }

    /// The application has decided about a request that waited for it.
    pub(super) fn admit(&mut self, conn: ConnId, answer: Connect) {
        let Some(index) = self.table.index_of(conn) else { return };
        let Some(http) = self.http(index) else { return };
        if let Some(Waiting::Admission(sid)) = http.waiting {
            http.waiting = None;
            http.admission = Some(Box::new((answer, sid)));
            self.request_done(index);
        }
    }
}
