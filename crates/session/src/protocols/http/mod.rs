//! HTTP/1.1 connections: requests in order, one at a time, until the connection is upgraded. `routes` answers the requests.
//!
//! Input is handled in place. Only unhandled input is kept, so an idle connection keeps nothing. Each request gets exactly one
//! response. If its body turns out to be too large or invalid after the response, the connection ends.
//!
//! Pipelined requests wait while an earlier request waits, or while the client doesn't read responses. The buffer holds at most
//! the headers of a request and the bytes that arrived with them in one read. Further requests stay in the kernel.

mod errors;
mod routes;
mod timeout;
mod waiting;

use errors::{bad_request, too_large, write_error, write_memory_short};
pub use waiting::Waiting;

use super::client::Flow;
use super::clients::Clients;
use super::request::{Answer, Answered, BufferedRequest, RequestOutcome};
use super::response::Response;
use super::websocket::WebSocket;
use crate::access::AccessLog;
use crate::app::Connect;
use crate::budget::REQUEST_BYTES;
use crate::executor::Executor;
use crate::identity::{End, Sid};
use crate::limits::{LimitReached, Slot};
use crate::millis::Millis;
use crate::model::{ConnId, CoreId, Disconnect, SessionId};
use crate::options::{Limits, Options};
use crate::ports::{ForwardedClient, Handover, Location, NodeTag};
use crate::proxies::SocketPeer;
use std::net::SocketAddr;
use stentor_wire::http1::{self, BodyDecoder, BodyKind, HeadScanner, Request};

/// The environment of a connection that handles requests.
pub struct HttpContext<'a> {
    /// The executor.
    pub ex: &'a mut Executor,
    /// The clients of the core.
    pub clients: &'a mut Clients,
    /// Returns the current core of a client that began on this core and was moved.
    pub departed: &'a dyn Fn(Sid) -> Option<CoreId>,
    /// The connection.
    pub conn: ConnId,
    /// The session of a waiting response.
    pub session: &'a mut Option<SessionId>,
    /// The entry that counts the connection for its address.
    pub slot: &'a mut Slot,
    /// The access log.
    pub access: &'a mut AccessLog,
}

/// Events while an input is handled, besides responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// `true` if a complete request has been handled.
    pub requested: bool,
    /// `true` if messages of a body were passed to the application.
    pub published: bool,
}

/// The number of handled bytes of the input, and how the connection continues with the rest.
type Step = (usize, Flow);

/// The step that ends the connection and drops the rest of the input.
const END: Step = (0, Flow::Stop);

/// A body that is arriving.
struct Receiving {
    decoder: BodyDecoder,
    /// Maximum number of further bytes of the body.
    bytes_left: usize,
    /// The request with the received part of its body. `None` if the request has already been answered.
    buffered: Option<Box<BufferedRequest>>,
}

/// Unhandled input of a connection that is new on this core.
#[derive(Default)]
pub struct MovedRequest {
    /// Bytes that were read and not handled.
    pub buffer: Vec<u8>,
    /// `true` if the client has finished sending.
    pub finished: bool,
    /// A request whose body is partly unhandled.
    pub buffered: Option<Box<BufferedRequest>>,
    /// The way in which the connection arrived. `None` if it comes directly from its client.
    pub handover: Option<Handover>,
    /// The other end of the socket.
    pub socket: SocketPeer,
}

/// The destination of a connection that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Another core of this node.
    Core(CoreId),
    /// Another node.
    Node(NodeTag),
    /// The HTTP server of a worker.
    Worker(ForwardedClient),
}

/// Whether a connection may move to the core of its next request.
#[derive(Clone, Copy)]
enum Placement {
    Movable,
    /// Another core had no room for the connection.
    Fixed,
    /// The connection exceeds a limit, so its first request is refused.
    Refused(LimitReached),
}

/// An HTTP connection.
pub struct Http {
    /// The address of the connection's other end.
    pub peer: SocketAddr,
    socket: SocketPeer,
    /// Unhandled input. It owns no memory while it is empty.
    buffer: Vec<u8>,
    scanner: HeadScanner,
    /// A body that is arriving.
    body: Option<Receiving>,
    /// The deadline for the headers, the body, the next request, or the end of a wait.
    pub deadline: Millis,
    /// `true` if the deadline is for the headers of a request that has begun.
    begun: bool,
    /// The reason why a request waits. `None` if no request waits.
    pub waiting: Option<Waiting>,
    /// The destination of the request at the front of the buffer. The connection moves when no bytes are in flight.
    pub moving: Option<Destination>,
    /// The way in which the connection arrived. `None` if it comes directly from its client.
    handover: Option<Handover>,
    placement: Placement,
    /// `true` if requests wait in the buffer until the responses to earlier ones are read.
    pub stalled: bool,
    /// `true` if the client has finished sending. The connection ends after the pending responses (RFC 9112, 9.6).
    pub finished: bool,
    progress: Progress,
    /// The WebSocket to which the connection was upgraded, with the rest of the input.
    upgraded: Option<Box<(WebSocket, Vec<u8>)>>,
}

/// Removes the prefix of all paths from a request. Health checks may lack it.
fn below_base<'b>(request: Request<'b>, options: &Options) -> Request<'b> {
    let below = request.below(&options.base_path);
    let is_check = below.path().is_empty() && matches!(request.path(), "/healthz" | "/readyz");
    if is_check { request } else { below }
}

fn http_limits(limits: &Limits) -> http1::Limits {
    http1::Limits { header_bytes_max: limits.header_bytes_max, headers_max: limits.headers_max }
}

impl Http {
    /// A connection whose input hasn't been handled yet. `stays` is `true` if it can't be moved to another core.
    pub fn new(peer: SocketAddr, deadline: Millis, moved: MovedRequest, stays: bool) -> Self {
        let MovedRequest { buffer, finished, buffered, handover, socket } = moved;
        Self {
            peer,
            socket,
            buffer,
            scanner: HeadScanner::default(),
            body: None,
            deadline,
            begun: true,
            waiting: buffered.map(Waiting::Body),
            moving: None,
            handover,
            placement: if stays { Placement::Fixed } else { Placement::Movable },
            stalled: false,
            finished,
            progress: Progress::default(),
            upgraded: None,
        }
    }

    /// Makes the connection refuse its first request, because the connection exceeds a limit.
    pub fn refuse(&mut self, reached: LimitReached) {
        self.placement = Placement::Refused(reached);
    }

    /// Returns `true` if the next request must wait.
    pub fn is_busy(&self) -> bool {
        self.waiting.is_some() || self.moving.is_some() || self.stalled
    }

    /// Returns `true` if no part of a request has arrived.
    pub fn is_idle(&self) -> bool {
        !self.is_busy() && self.buffer.is_empty() && self.body.is_none()
    }

    /// Returns `true` if the connection ends now, because no response is left. `finishing` is `true` if the node has drained.
    pub fn is_finished(&self, finishing: bool) -> bool {
        !self.is_busy() && self.finished || finishing && self.is_idle()
    }

    /// Returns `true` if the connection can continue when no bytes are in flight: with a request, or the move to another core.
    pub fn is_ready(&self) -> bool {
        let is_ready =
            |waiting: &Waiting| waiting.is_answered() || matches!(waiting, Waiting::Answered { .. });
        self.waiting.as_ref().is_some_and(is_ready) || self.moving.is_some()
    }

    /// The waiting response.
    pub fn response(&self) -> Option<&dyn Response> {
        self.waiting.as_ref()?.response()
    }

    /// The response that isn't complete.
    pub fn response_mut(&mut self) -> Option<&mut (dyn Response + 'static)> {
        if let Some(Waiting::Response(response)) = &mut self.waiting { Some(&mut **response) } else { None }
    }

    /// Takes the state that another core needs to continue.
    pub fn take_moved(&mut self) -> MovedRequest {
        let buffered = match self.waiting.take() {
            Some(Waiting::Body(buffered)) => Some(buffered),
            _ => None,
        };
        MovedRequest {
            buffer: std::mem::take(&mut self.buffer),
            finished: self.finished,
            buffered,
            handover: self.handover,
            socket: self.socket,
        }
    }

    /// Sizes of the received input, and of the body that is arriving or waiting with its request.
    pub fn held_bytes(&self) -> (usize, usize) {
        let arriving = match &self.body {
            Some(Receiving { buffered: Some(buffered), .. }) => buffered.held_bytes(),
            _ => 0,
        };
        let waiting = self.waiting.as_ref().map_or(0, Waiting::held_bytes);
        (self.buffer.capacity(), arriving + waiting)
    }

    /// Appends the response to an incomplete request while memory is short.
    pub fn write_memory_short(&self, ex: &Executor, out: &mut Vec<u8>) {
        let head = match &self.body {
            Some(Receiving { buffered: Some(buffered), .. }) => &buffered.head,
            _ => &self.buffer,
        };
        write_memory_short(ex, head, out);
    }

    /// The time at which [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Millis {
        self.deadline
    }

    /// Handles a drain: a waiting request gets its response by `last_responses`.
    pub fn handle_drain(&mut self, last_responses: Millis) {
        self.deadline = self.deadline.earlier(last_responses);
    }

    /// Handles the application's decision about a waiting request. Returns `false` if no request waits for it.
    pub fn handle_admission(&mut self, decision: Connect) -> bool {
        self.handle_answer(Answer::Admitted(decision))
    }

    /// Handles the location of the session that a waiting request names. Returns `false` if no request waits for it.
    pub fn handle_location(&mut self, location: Location) -> bool {
        self.handle_answer(Answer::Located(location))
    }

    /// Handles the decision that the connection waited for.
    pub fn handle_decision(&mut self) {
        self.handle_answer(Answer::Decided);
        self.stalled = true;
    }

    /// Handles an answer for the waiting request. Returns `false` if no request waits for it.
    fn handle_answer(&mut self, answer: Answer) -> bool {
        let suspended = self.waiting.take_if(|waiting| matches!(waiting, Waiting::Suspended { .. }));
        let Some(Waiting::Suspended { request, buffered }) = suspended else { return false };
        let (waiting, is_answered) = match request.answer(answer) {
            Ok(request) => (Waiting::Answered { request, buffered }, true),
            Err(request) => (Waiting::Suspended { request, buffered }, false),
        };
        self.waiting = Some(waiting);
        is_answered
    }

    /// Takes the events of the input that was handled.
    pub fn take_progress(&mut self) -> Progress {
        std::mem::take(&mut self.progress)
    }

    /// Takes the WebSocket to which the connection was upgraded, with the input that followed its handshake.
    pub fn take_upgraded(&mut self) -> Option<Box<(WebSocket, Vec<u8>)>> {
        self.upgraded.take()
    }

    /// Continues the connection when no bytes are in flight and its wait is over.
    pub fn handle_ready(&mut self, cx: &mut HttpContext<'_>, out: &mut Vec<u8>) -> Flow {
        self.stalled = false;
        let continues =
            |waiting: &mut Waiting| matches!(waiting, Waiting::Body(_) | Waiting::Answered { .. });
        let continued = match self.waiting.take_if(continues) {
            Some(Waiting::Body(buffered)) => Some((None, buffered)),
            Some(Waiting::Answered { request, buffered: Some(buffered) }) => Some((Some(request), buffered)),
            Some(Waiting::Answered { request, buffered: None }) => {
                return self.handle_requests(cx, &mut [], Some(request), out);
            }
            _ => None,
        };
        if let Some((answered, buffered)) = continued {
            let (_, flow) = self.handle_body(cx, buffered, answered, 0, out);
            if flow != Flow::Continue {
                return flow;
            }
        } else if let Some(waiting) = self.waiting.take_if(|waiting| waiting.is_answered()) {
            self.release_slot(cx);
            self.deadline = cx.ex.millis().after(cx.ex.options().limits.idle_timeout);
            if let Some(session) = cx.session.take() {
                // A stream is complete when none of its feeds is left. The ends of other responses aren't listed.
                cx.ex.close_session(session, End::Because(Disconnect::NotFound));
            }
            let keep_alive = waiting.response().is_some_and(|response| response.state().keep_alive);
            if !keep_alive || cx.ex.is_finishing() {
                return Flow::Stop;
            }
        }
        self.handle_input(cx, &mut [], out)
    }

    /// Handles buffered input, then `received`. Responses are appended to `out`. After [`Flow::Stop`], the connection ends
    /// when `out` has been sent, or it has been upgraded to a WebSocket.
    pub fn handle_input(&mut self, cx: &mut HttpContext<'_>, received: &mut [u8], out: &mut Vec<u8>) -> Flow {
        self.handle_requests(cx, received, None, out)
    }

    /// Handles buffered input, then `received`. `answered` is the answer for the first request, if it waited for one.
    fn handle_requests(
        &mut self,
        cx: &mut HttpContext<'_>,
        received: &mut [u8],
        mut answered: Option<Answered>,
        out: &mut Vec<u8>,
    ) -> Flow {
        let replies_bytes_max = cx.ex.options().limits.replies_bytes_max;
        let mut kept = std::mem::take(&mut self.buffer);
        if self.is_busy() || !kept.is_empty() {
            kept.extend_from_slice(received);
        }
        let was_kept = !kept.is_empty();
        let input = if was_kept { &mut kept } else { received };
        let (mut at, mut flow) = (0, Flow::Continue);
        while flow == Flow::Continue {
            let is_much = cx.ex.budget.is_used() || out.len() > replies_bytes_max;
            if answered.is_none()
                && (is_much || cx.ex.questions.waiting.is_waiting(cx.conn))
                && at < input.len()
            {
                self.stalled = true;
                break;
            }
            let bytes;
            (bytes, flow) = self.handle_one(cx, &mut input[at..], answered.take(), out);
            at += bytes;
            cx.ex.budget.count(bytes + REQUEST_BYTES);
        }
        if let Some(upgraded) = &mut self.upgraded {
            // Frames may have arrived together with the handshake.
            upgraded.1 = input[at..].to_vec();
        }
        if flow == Flow::Stop {
            return flow;
        }
        let rest = if at == input.len() {
            Vec::new()
        } else if was_kept {
            kept.drain(..at);
            kept
        } else {
            input[at..].to_vec()
        };
        match (self.keep(cx.ex, rest), flow) {
            (_, Flow::Yield) => Flow::Yield,
            (true, _) => Flow::Wait,
            (false, _) => Flow::Continue,
        }
    }

    /// Keeps input that can't be handled yet. Returns `true` if reading must pause, so that no more is kept than the
    /// headers of a request and the bytes that arrived with them.
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

    /// Handles one request, or part of a body. `answered` is the answer for which the request waited.
    fn handle_one(
        &mut self,
        cx: &mut HttpContext<'_>,
        input: &mut [u8],
        answered: Option<Answered>,
        out: &mut Vec<u8>,
    ) -> Step {
        if self.is_busy() {
            return (0, Flow::Wait);
        }
        if self.body.is_some() {
            return self.receive_body(cx, input, out);
        }
        let limits = http_limits(&cx.ex.options().limits);
        let head = match self.scanner.find(input, &limits) {
            Ok(Some(head)) => head,
            Ok(None) => return (0, Flow::Wait),
            Err(error) => return bad_request(cx.ex, input, out, error.status(), &error.to_string()),
        };
        let request = match head.parse_request(input, &limits) {
            Ok(request) => below_base(request, cx.ex.options()),
            Err(error) => return bad_request(cx.ex, input, out, error.status(), &error.to_string()),
        };
        let (head, body) = (head.bytes, request.body());
        let expects_continue = request.expects_continue();
        let outcome = match answered {
            None => self.route(cx, &request, out),
            Some(answered) => self.resume(cx, &request, answered, out),
        };
        match outcome {
            // The request stays in the buffer and is parsed again, on the other core or later.
            RequestOutcome::Move(core) => return self.leave_for(Destination::Core(core)),
            RequestOutcome::Relay(node) => return self.leave_for(Destination::Node(node)),
            RequestOutcome::Forward(client) => return self.leave_for(Destination::Worker(client)),
            RequestOutcome::Suspended(request) => {
                self.waiting = Some(Waiting::Suspended { request, buffered: None });
                self.deadline = cx.ex.millis().after(cx.ex.options().limits.request_timeout);
                return (0, Flow::Wait);
            }
            _ => cx.ex.metrics().requests.add(1),
        }
        self.begun = false;
        self.placement = Placement::Movable;
        self.handover.take_if(|handover| *handover == Handover::Returned);
        match outcome {
            RequestOutcome::Upgraded(upgraded) => {
                let socket = WebSocket::new(cx.ex.millis(), upgraded);
                self.upgraded = Some(Box::new((socket, Vec::new())));
                (head, Flow::Stop)
            }
            RequestOutcome::Body { bytes_max, opened } => {
                if matches!(body, BodyKind::Length(bytes) if bytes > bytes_max as u64) {
                    return too_large(cx.ex, &input[..head], out);
                }
                if matches!(body, BodyKind::Length(bytes) if cx.ex.is_too_large_now(bytes as usize)) {
                    cx.ex.metrics().inputs_refused.add(1);
                    write_memory_short(cx.ex, &input[..head], out);
                    return END;
                }
                if expects_continue {
                    out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                }
                let buffered = Box::new(BufferedRequest {
                    head: input[..head].to_vec(),
                    opened,
                    ..BufferedRequest::default()
                });
                if body == BodyKind::Empty {
                    return self.handle_body(cx, buffered, None, head, out);
                }
                let decoder = BodyDecoder::new(body);
                self.body = Some(Receiving { decoder, bytes_left: bytes_max, buffered: Some(buffered) });
                self.deadline = cx.ex.millis().after(cx.ex.options().limits.idle_timeout);
                (head, Flow::Continue)
            }
            outcome => {
                if body != BodyKind::Empty {
                    let bytes_left = cx.ex.options().limits.body_bytes_max;
                    self.body =
                        Some(Receiving { decoder: BodyDecoder::new(body), bytes_left, buffered: None });
                }
                self.conclude(cx, outcome, head)
            }
        }
    }

    /// The connection moves with the request at the front of its buffer.
    fn leave_for(&mut self, destination: Destination) -> Step {
        self.moving = Some(destination);
        (0, Flow::Wait)
    }

    /// Continues after a request that has handled `consumed` bytes of the input.
    fn conclude(&mut self, cx: &mut HttpContext<'_>, outcome: RequestOutcome, consumed: usize) -> Step {
        self.progress.requested = true;
        let limits = &cx.ex.options().limits;
        let now = cx.ex.millis();
        match outcome {
            RequestOutcome::Answered { keep_alive: true } => {
                self.deadline = now.after(limits.idle_timeout);
                (consumed, Flow::Continue)
            }
            RequestOutcome::Waiting(response) => {
                let is_whole = response.is_whole();
                let timeout = if is_whole { limits.idle_timeout } else { response.first_timeout(cx.ex) };
                self.deadline = now.after(timeout);
                self.waiting = Some(Waiting::Response(response));
                (consumed, Flow::Wait)
            }
            _ => END,
        }
    }

    /// Reads a part of a body, up to a limit. Keeps it for its request, or discards it.
    fn receive_body(&mut self, cx: &mut HttpContext<'_>, input: &[u8], out: &mut Vec<u8>) -> Step {
        let Some(Receiving { decoder, bytes_left, buffered }) = &mut self.body else {
            return (0, Flow::Wait);
        };
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
                            Some(buffered) => self.handle_body(cx, buffered, None, at, out),
                            None => (at, Flow::Continue),
                        };
                    }
                }
                // The body is too large or invalid, so the start of the next request is unknown.
                decoded => {
                    let Some(buffered) = buffered.take() else {
                        cx.ex.metrics().request_errors.add(1);
                        return END;
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
        (at, Flow::Wait)
    }

    /// Handles a request whose body has arrived, or continues with the rest of the body. `answered` is the answer for which
    /// the request waited.
    fn handle_body(
        &mut self,
        cx: &mut HttpContext<'_>,
        mut buffered: Box<BufferedRequest>,
        answered: Option<Answered>,
        consumed: usize,
        out: &mut Vec<u8>,
    ) -> Step {
        let head = std::mem::take(&mut buffered.head);
        let limits = http_limits(&cx.ex.options().limits);
        let Ok(request) = http1::parse_request(&head, &limits) else { return END };
        let request = below_base(request, cx.ex.options());
        let outcome = self.route_body(cx, &request, &mut buffered, answered, out);
        self.progress.published = true;
        if let RequestOutcome::Suspended(request) = outcome {
            buffered.head = head;
            self.waiting = Some(Waiting::Suspended { request, buffered: Some(buffered) });
            self.deadline = cx.ex.millis().after(cx.ex.options().limits.request_timeout);
            return (consumed, Flow::Wait);
        }
        if matches!(outcome, RequestOutcome::Rest | RequestOutcome::Move(_)) {
            if let RequestOutcome::Move(core) = outcome {
                self.moving = Some(Destination::Core(core));
            }
            buffered.head = head;
            self.waiting = Some(Waiting::Body(buffered));
            self.deadline = cx.ex.millis().after(cx.ex.options().limits.idle_timeout);
            return (consumed, Flow::Yield);
        }
        self.conclude(cx, outcome, consumed)
    }
}
