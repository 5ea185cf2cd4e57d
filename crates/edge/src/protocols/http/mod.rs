//! HTTP/1.1 connections: requests in order, one at a time, until one becomes something else. What each request is
//! answered with is in [`routes`].
//!
//! Input is handled where it lies; only the rest of it is kept, and an idle connection keeps nothing. Each request gets
//! exactly one response, also where its body turns out to be too large or broken after that: then the connection ends.
//!
//! Pipelined requests wait while an earlier one waits for something, or while responses aren't read: those that have
//! been read in the buffer, which holds at most a head and what came with it in one read, the others in the kernel.

mod errors;
mod routes;
mod timeout;
mod waiting;

use errors::{bad_request, too_large, write_error, write_memory_short};
pub(crate) use timeout::TimeoutOutcome;
pub(crate) use waiting::Waiting;

use super::clients::ClientTable;
use super::request::{BufferedRequest, RequestOutcome};
use super::websocket::WebSocket;
use super::{engineio, sockjs};
use crate::app::Connect;
use crate::budget::REQUEST_BYTES;
use crate::executor::Executor;
use crate::identity::Sid;
use crate::limits::{LimitReached, Slot};
use crate::millis::Millis;
use crate::model::{ConnId, CoreId, SessionId};
use crate::options::Limits;
use crate::ports::{Handover, Location, NodeTag};
use std::net::SocketAddr;
use stentor_wire::http1::{self, BodyDecoder, BodyKind, HeadScanner};

/// What a connection needs to handle requests.
pub(crate) struct HttpContext<'a> {
    pub(crate) ex: &'a mut Executor,
    pub(crate) engineio: &'a mut ClientTable<engineio::Client>,
    pub(crate) sockjs: &'a mut ClientTable<sockjs::Client>,
    /// Where a client is that began on this core and was moved.
    pub(crate) departed: &'a dyn Fn(Sid) -> Option<CoreId>,
    pub(crate) conn: ConnId,
    /// The session of a response that waits.
    pub(crate) session: &'a mut Option<SessionId>,
    /// What the connection counts for its address.
    pub(crate) slot: &'a mut Slot,
}

/// What the core does after input.
pub(crate) enum InputOutcome {
    /// The connection goes on.
    Continue(Progress),
    /// It ends after what is in `out`.
    End,
    /// It speaks WebSocket now, and this much of the input is left for that.
    Upgraded { socket: WebSocket, rest: Vec<u8> },
}

/// How a connection goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// A request was completed.
    pub(crate) requested: bool,
    /// Input waits, so nothing more is read.
    pub(crate) waits: bool,
    /// The rest of a body is handled in the next turn.
    pub(crate) yields: bool,
    /// Messages of a body were passed to the application.
    pub(crate) published: bool,
}

/// How far the input has been handled: so many bytes of it.
enum Step {
    /// What follows can be handled.
    Next(usize),
    /// More bytes are needed, or something has to happen first.
    Pause(usize),
    /// The connection ends; what is left is worth nothing.
    End,
    Upgraded(usize, WebSocket),
}

/// A body that is arriving.
struct Receiving {
    decoder: BodyDecoder,
    /// How many bytes of it there may still be.
    bytes_left: usize,
    /// What is kept of it; nothing where its request has been answered already.
    buffered: Option<Box<BufferedRequest>>,
}

/// What was read of a connection and not handled, when it begins on a core.
#[derive(Default)]
pub(crate) struct MovedRequest {
    pub(crate) buffer: Vec<u8>,
    /// The client has finished sending.
    pub(crate) finished: bool,
    /// A request whose body hasn't all been handled.
    pub(crate) buffered: Option<Box<BufferedRequest>>,
    /// How the connection came, if not from its client.
    pub(crate) handover: Option<Handover>,
    /// The client speaks TLS, with this server or another node.
    pub(crate) is_tls: bool,
}

/// Where a connection moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Core(CoreId),
    Node(NodeTag),
}

/// An HTTP connection.
pub(crate) struct Http {
    pub(crate) peer: SocketAddr,
    is_tls: bool,
    /// What was read and not handled; owns no memory while it is empty.
    buffer: Vec<u8>,
    scanner: HeadScanner,
    /// A request's body that is arriving.
    body: Option<Receiving>,
    /// When the head has to be there, the body to end, the next request to begin, or what is awaited to come.
    pub(crate) deadline: Millis,
    /// The deadline is that of a head.
    begun: bool,
    /// What a request waits for.
    pub(crate) waiting: Option<Waiting>,
    /// The application's decision about the request at the front of the buffer.
    admission: Option<Box<(Connect, Option<Sid>)>>,
    /// Which node has the session that the request at the front of the buffer names.
    location: Option<Location>,
    /// The request at the front of the buffer belongs there; what is in flight is awaited.
    pub(crate) moving: Option<Destination>,
    /// How the connection came, if not from its client.
    handover: Option<Handover>,
    /// The connection can't be moved: another core had no room for it.
    stays: bool,
    /// The connection is above a limit: its first request is answered with that.
    refusal: Option<LimitReached>,
    /// The request at the front of the buffer has been counted for the limits of its address.
    is_counted: bool,
    /// Requests wait in the buffer until the responses to earlier ones are read.
    pub(crate) stalled: bool,
    /// The client has finished sending: after the pending responses, the connection ends (RFC 9112, 9.6).
    pub(crate) finished: bool,
}

fn http_limits(limits: &Limits) -> http1::Limits {
    http1::Limits { header_bytes_max: limits.header_bytes_max, headers_max: limits.headers_max }
}

impl Http {
    /// A connection on which nothing has been handled yet, with what was read of it already. `stays`: it can't be moved
    /// to another core.
    pub(crate) fn new(peer: SocketAddr, deadline: Millis, moved: MovedRequest, stays: bool) -> Self {
        let MovedRequest { buffer, finished, buffered, handover, is_tls } = moved;
        Self {
            peer,
            is_tls,
            buffer,
            scanner: HeadScanner::default(),
            body: None,
            deadline,
            begun: true,
            waiting: buffered.map(Waiting::Body),
            admission: None,
            location: None,
            moving: None,
            handover,
            stays,
            refusal: None,
            is_counted: false,
            stalled: false,
            finished,
        }
    }

    /// The first request is refused: the connection is above a limit.
    pub(crate) fn refuse(&mut self, reached: LimitReached) {
        self.refusal = Some(reached);
    }

    /// Whether something has to happen before the next request is handled.
    pub(crate) fn is_busy(&self) -> bool {
        self.waiting.is_some() || self.moving.is_some() || self.stalled
    }

    /// Whether nothing of a request has arrived.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_busy() && self.buffer.is_empty()
    }

    /// Whether the connection ends now, since nothing is left to answer.
    pub(crate) fn is_finished(&self, finishing: bool) -> bool {
        !self.is_busy() && (self.finished || finishing && self.buffer.is_empty())
    }

    /// Whether something can continue once nothing is in flight: the next request, or the move to another core.
    pub(crate) fn is_ready(&self) -> bool {
        let answered = self.waiting.as_ref().is_some_and(Waiting::is_answered);
        let is_decided = self.admission.is_some() || self.location.is_some();
        answered || self.moving.is_some() || is_decided && self.waiting.is_none()
    }

    /// Takes what is needed to continue on another core.
    pub(crate) fn take_moved(&mut self) -> MovedRequest {
        let buffered = match self.waiting.take() {
            Some(Waiting::Body(buffered)) => Some(buffered),
            _ => None,
        };
        MovedRequest {
            buffer: std::mem::take(&mut self.buffer),
            finished: self.finished,
            buffered,
            handover: self.handover,
            is_tls: self.is_tls,
        }
    }

    /// Bytes of received input, and of the body that is arriving or waiting with its request.
    pub(crate) fn held_bytes(&self) -> (usize, usize) {
        let arriving = match &self.body {
            Some(Receiving { buffered: Some(buffered), .. }) => buffered.held_bytes(),
            _ => 0,
        };
        let waiting = self.waiting.as_ref().map_or(0, Waiting::held_bytes);
        (self.buffer.capacity(), arriving + waiting)
    }

    /// Appends the response to an incomplete request while memory is short.
    pub(crate) fn write_memory_short(&self, ex: &Executor, out: &mut Vec<u8>) {
        let head = match &self.body {
            Some(Receiving { buffered: Some(buffered), .. }) => &buffered.head,
            _ => &self.buffer,
        };
        write_memory_short(ex, head, out);
    }

    /// When [`Self::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Millis {
        self.deadline
    }

    /// The server shuts down: a request that waits gets its response by then.
    pub(crate) fn handle_drain(&mut self, last_responses: Millis) {
        self.deadline = self.deadline.earlier(last_responses);
    }

    /// The application has decided about a request that waited for it. Returns whether there was one.
    pub(crate) fn handle_admission(&mut self, decision: Connect) -> bool {
        let Some(Waiting::Admission(sid)) = self.waiting else { return false };
        self.waiting = None;
        self.admission = Some(Box::new((decision, sid)));
        true
    }

    /// It is known which node has the session that a request names. Returns whether one waited for it.
    pub(crate) fn handle_location(&mut self, location: Location) -> bool {
        let waited = self.waiting.take_if(|waiting| matches!(waiting, Waiting::Location)).is_some();
        if waited {
            self.location = Some(location);
        }
        waited
    }

    /// The permission that something on this connection waited for is there.
    pub(crate) fn handle_decision(&mut self) {
        self.waiting.take_if(|waiting| matches!(waiting, Waiting::Admission(_) | Waiting::StreamAdmission));
        self.stalled = true;
    }

    /// Nothing is in flight, and what the connection waited for has happened: it continues.
    pub(crate) fn handle_ready(&mut self, cx: &mut HttpContext<'_>, out: &mut Vec<u8>) -> InputOutcome {
        self.stalled = false;
        let mut progress = Progress::default();
        if let Some(Waiting::Body(buffered)) =
            self.waiting.take_if(|waiting| matches!(waiting, Waiting::Body(_)))
        {
            match self.handle_body(cx, buffered, 0, out, &mut progress) {
                Step::Next(_) => {}
                Step::Pause(_) => {
                    progress.waits = true;
                    return InputOutcome::Continue(progress);
                }
                Step::End | Step::Upgraded(..) => return InputOutcome::End,
            }
        } else if let Some(waiting) = self.waiting.take_if(|waiting| waiting.is_answered()) {
            self.release_slot(cx);
            self.deadline = cx.ex.millis().after(cx.ex.options().limits.idle_timeout);
            if let Some(session) = cx.session.take() {
                cx.ex.close_session(session);
            }
            if !waiting.keep_alive() || cx.ex.finishing {
                return InputOutcome::End;
            }
        }
        match self.handle_input(cx, &mut [], out) {
            InputOutcome::Continue(next) => InputOutcome::Continue(Progress {
                requested: progress.requested || next.requested,
                published: progress.published || next.published,
                ..next
            }),
            outcome => outcome,
        }
    }

    /// Handles what has been read: what was kept, and `received`. Responses are appended to `out`.
    pub(crate) fn handle_input(
        &mut self,
        cx: &mut HttpContext<'_>,
        received: &mut [u8],
        out: &mut Vec<u8>,
    ) -> InputOutcome {
        let replies_bytes_max = cx.ex.options().limits.replies_bytes_max;
        let mut kept = std::mem::take(&mut self.buffer);
        if self.is_busy() || !kept.is_empty() {
            kept.extend_from_slice(received);
        }
        let was_kept = !kept.is_empty();
        let input = if was_kept { &mut kept } else { received };
        let mut progress = Progress::default();
        let mut at = 0;
        loop {
            let is_much = cx.ex.budget.is_used() || out.len() > replies_bytes_max;
            if (is_much || cx.ex.questions.awaits_decision()) && at < input.len() {
                self.stalled = true;
                break;
            }
            let step = self.handle_one(cx, &mut input[at..], out, &mut progress);
            let (Step::Next(bytes) | Step::Pause(bytes) | Step::Upgraded(bytes, ..)) = step else {
                cx.ex.budget.count(REQUEST_BYTES);
                return InputOutcome::End;
            };
            at += bytes;
            cx.ex.budget.count(bytes + REQUEST_BYTES);
            match step {
                Step::Next(_) => {}
                Step::Upgraded(_, socket) => {
                    // A frame glued to the handshake is not lost.
                    return InputOutcome::Upgraded { socket, rest: input[at..].to_vec() };
                }
                Step::Pause(_) | Step::End => break,
            }
        }
        let rest = if at == input.len() {
            Vec::new()
        } else if was_kept {
            kept.drain(..at);
            kept
        } else {
            input[at..].to_vec()
        };
        progress.waits = self.keep(cx.ex, rest);
        InputOutcome::Continue(progress)
    }

    /// Keeps what can't be handled yet. Returns whether nothing more is read: no more is kept than a head and what came
    /// with it.
    fn keep(&mut self, ex: &Executor, rest: Vec<u8>) -> bool {
        let limits = &ex.options().limits;
        let is_busy = self.is_busy();
        if !is_busy && !rest.is_empty() && !self.begun {
            self.begun = true;
            self.deadline = ex.millis().after(limits.header_timeout);
        }
        let waits = self.stalled || is_busy && rest.len() > limits.header_bytes_max;
        self.buffer = rest;
        waits
    }

    /// Handles one request, or part of a body.
    fn handle_one(
        &mut self,
        cx: &mut HttpContext<'_>,
        input: &mut [u8],
        out: &mut Vec<u8>,
        progress: &mut Progress,
    ) -> Step {
        if self.is_busy() {
            return Step::Pause(0);
        }
        if self.body.is_some() {
            return self.receive_body(cx, input, out, progress);
        }
        let limits = http_limits(&cx.ex.options().limits);
        let head = match self.scanner.find_end(input, &limits) {
            Ok(Some(head)) => head,
            Ok(None) => return Step::Pause(0),
            Err(error) => return bad_request(cx.ex, input, out, error.status(), &error.to_string()),
        };
        let request = match http1::parse_request(&input[..head], &limits) {
            Ok(request) => request,
            Err(error) => return bad_request(cx.ex, input, out, error.status(), &error.to_string()),
        };
        let body = request.body();
        // A client that asks first and is not answered 100 sends no body (RFC 9110, 10.1.1), but may: the
        // connection can't be used again.
        let expects_continue = request.expects_continue();
        let outcome = self.route(cx, &request, out);
        match outcome {
            // It is looked at anew, there or then.
            RequestOutcome::Move(core) => {
                self.moving = Some(Destination::Core(core));
                return Step::Pause(0);
            }
            RequestOutcome::Relay(node) => {
                self.moving = Some(Destination::Node(node));
                return Step::Pause(0);
            }
            RequestOutcome::Location => {
                self.waiting = Some(Waiting::Location);
                self.deadline = cx.ex.millis().after(cx.ex.options().limits.request_timeout);
                return Step::Pause(0);
            }
            RequestOutcome::Admission(_) | RequestOutcome::StreamAdmission => {
                self.waiting = Some(match outcome {
                    RequestOutcome::Admission(sid) => Waiting::Admission(sid),
                    _ => Waiting::StreamAdmission,
                });
                self.deadline = cx.ex.millis().after(cx.ex.options().limits.request_timeout);
                return Step::Pause(0);
            }
            _ => cx.ex.metrics().requests.add(1),
        }
        cx.ex.questions.settle();
        self.admission = None;
        self.location = None;
        self.begun = false;
        self.stays = false;
        self.is_counted = false;
        self.handover.take_if(|handover| *handover == Handover::Returned);
        match outcome {
            RequestOutcome::Upgraded(upgraded) => {
                Step::Upgraded(head, WebSocket::new(cx.ex.millis(), upgraded))
            }
            RequestOutcome::Body { bytes_max } => {
                if matches!(body, BodyKind::Length(bytes) if bytes > bytes_max as u64) {
                    return too_large(cx.ex, &input[..head], out);
                }
                if matches!(body, BodyKind::Length(bytes) if cx.ex.is_too_large_now(bytes as usize)) {
                    cx.ex.metrics().inputs_refused.add(1);
                    write_memory_short(cx.ex, &input[..head], out);
                    return Step::End;
                }
                if expects_continue {
                    out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                }
                let buffered =
                    Box::new(BufferedRequest { head: input[..head].to_vec(), ..BufferedRequest::default() });
                if body == BodyKind::Empty {
                    return self.handle_body(cx, buffered, head, out, progress);
                }
                let decoder = BodyDecoder::new(body);
                self.body = Some(Receiving { decoder, bytes_left: bytes_max, buffered: Some(buffered) });
                self.deadline = cx.ex.millis().after(cx.ex.options().limits.idle_timeout);
                Step::Next(head)
            }
            outcome => {
                if body != BodyKind::Empty {
                    let bytes_left = cx.ex.options().limits.body_bytes_max;
                    self.body =
                        Some(Receiving { decoder: BodyDecoder::new(body), bytes_left, buffered: None });
                }
                self.conclude(cx, outcome, expects_continue, head, progress)
            }
        }
    }

    /// Continues after a request of which `consumed` bytes of the input are handled. `last`: the connection can't take
    /// another one.
    fn conclude(
        &mut self,
        cx: &mut HttpContext<'_>,
        outcome: RequestOutcome<Waiting>,
        last: bool,
        consumed: usize,
        progress: &mut Progress,
    ) -> Step {
        progress.requested = true;
        let limits = &cx.ex.options().limits;
        let now = cx.ex.millis();
        match outcome {
            RequestOutcome::Answered { keep_alive } if keep_alive && !last => {
                self.deadline = now.after(limits.idle_timeout);
                Step::Next(consumed)
            }
            RequestOutcome::Waiting(mut waiting) => {
                if last {
                    waiting.make_last();
                }
                self.deadline = match &waiting {
                    Waiting::Page(page) => now.after(page.next_after()),
                    Waiting::Events(_) => now.after(cx.ex.options().heartbeat.interval),
                    waiting if waiting.is_answered() => now.after(limits.idle_timeout),
                    _ => now.after(limits.request_timeout),
                };
                self.waiting = Some(waiting);
                Step::Pause(consumed)
            }
            _ => Step::End,
        }
    }

    /// Reads a body: keeps it for its request, or throws it away, up to a bound.
    fn receive_body(
        &mut self,
        cx: &mut HttpContext<'_>,
        input: &[u8],
        out: &mut Vec<u8>,
        progress: &mut Progress,
    ) -> Step {
        let Some(Receiving { decoder, bytes_left, buffered }) = &mut self.body else { return Step::Pause(0) };
        let mut at = 0;
        while at < input.len() {
            match decoder.decode(&input[at..]) {
                Ok(decoded) if decoded.data.len() <= *bytes_left => {
                    *bytes_left -= decoded.data.len();
                    at += decoded.consumed;
                    if let Some(buffered) = buffered {
                        buffered.body.extend_from_slice(decoded.data);
                    }
                    if decoded.done {
                        let buffered = buffered.take();
                        self.body = None;
                        return match buffered {
                            Some(buffered) => self.handle_body(cx, buffered, at, out, progress),
                            None => Step::Next(at),
                        };
                    }
                }
                // Too large, or broken: what follows can't be told from it.
                decoded => {
                    let Some(buffered) = buffered.take() else {
                        cx.ex.metrics().request_errors.add(1);
                        return Step::End;
                    };
                    return match decoded {
                        Ok(_) => too_large(cx.ex, &buffered.head, out),
                        Err(_) => {
                            bad_request(cx.ex, &buffered.head, out, 400, "the body's framing is broken")
                        }
                    };
                }
            }
        }
        Step::Pause(at)
    }

    /// A request whose body was needed is there, or what is left of it has its turn again.
    fn handle_body(
        &mut self,
        cx: &mut HttpContext<'_>,
        mut buffered: Box<BufferedRequest>,
        consumed: usize,
        out: &mut Vec<u8>,
        progress: &mut Progress,
    ) -> Step {
        let head = std::mem::take(&mut buffered.head);
        let limits = http_limits(&cx.ex.options().limits);
        let Ok(request) = http1::parse_request(&head, &limits) else { return Step::End };
        let outcome = self.route_body(cx, &request, &mut buffered, out);
        progress.published = true;
        if matches!(outcome, RequestOutcome::Rest | RequestOutcome::Move(_)) {
            if let RequestOutcome::Move(core) = outcome {
                self.moving = Some(Destination::Core(core));
            }
            buffered.head = head;
            self.waiting = Some(Waiting::Body(buffered));
            self.deadline = cx.ex.millis().after(cx.ex.options().limits.idle_timeout);
            progress.yields = true;
            return Step::Pause(consumed);
        }
        self.conclude(cx, outcome, false, consumed, progress)
    }
}
