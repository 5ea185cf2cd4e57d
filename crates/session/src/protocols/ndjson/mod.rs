//! Newline-delimited JSON over HTTP: `stentor.v1` for clients that have no WebSocket. Sessions outlive their connections.
//!
//! ```text
//!                                 GET /ndjson/ID?received=N
//!                  ┌────────────────────────────────────────────────┐
//!                  ▼                                                │
//! POST /ndjson ─► streaming ── the stream breaks or is complete ─► waiting, lines are queued
//!                  │                                                │
//!                  └─► ended by the server ─► removed ◄── silence ──┘
//! ```
//!
//! `POST /ndjson` opens a session, and its body has the client's first messages; `GET /ndjson` opens a session without
//! messages. `POST /ndjson/ID?n=NUMBER` carries further messages, one per line. A request whose number was handled before
//! is answered without handling it again. A request whose predecessor with the same number was cut off continues there. So
//! each message is handled once, in order.
//!
//! The server draws the session's id, which names node and core. Requests that arrive elsewhere are handed over. The id is a
//! secret of the client. A client that began with a token must present a token of the same principal with each request.
//!
//! A browser sends a preflight request before each address to which a page of another origin sends a token. So that such a
//! page has two addresses only, the header `Stentor-Query` replaces the query, and `/ndjson/session` with `sid=ID` in this
//! header replaces `/ndjson/ID`.
//!
//! Lines in flight are lost when a stream breaks. The request for the next stream says how many lines the client has
//! received. If lines are missing, the session ends: the client opens another session with its positions, and receives the
//! missed messages or `history_expired`. So no line is missing silently.
//!
//! [`client`] handles messages, heartbeats and ends; [`mod@stream`] writes the responses that carry lines; [`encode`] writes lines.

mod client;
mod encode;
mod stream;

pub(crate) use client::Client;
pub(crate) use encode::Lines;

use super::client::{ActiveTransport, Client as _};
use super::clients::{ClientTable, Clients};
use super::message::{self, scope_of};
use super::opening::{Admitted, NotAdmitted, Opening};
use super::query::ConnectQuery;
use super::request::{
    BufferedRequest, Opened, RequestContext, RequestOutcome, borrowed, cors, push_preflight,
    write_stream_head,
};
use super::response::ResponseState;
use super::route::{Closing, Protocol, RouteFacts};
use crate::app::{Decided, Envelope, Refused};
use crate::executor::{Effect, Executor, Feeds, PollAnswer, ToConnection};
use crate::identity::{End, Owner, Service, Sid};
use crate::options::Options;
use crate::ports::Denial;
use client::ENCODING;
use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;
use stentor_wire::http1;
use stream::Stream;

type Outcome = RequestOutcome;

const PATH: &str = "/ndjson";
/// The last segment of the path of a request whose header [`QUERY`] names the session.
const NAMED_IN_HEADER: &str = "session";
/// The header that replaces the query of the URL if it is present.
const QUERY: &str = "stentor-query";
const CONTENT_TYPE: &str = "application/x-ndjson";
const NO_SESSION: &str = "there is no such session";
const NOT_UTF8: &str = "the body is not UTF-8";

/// The protocol: `/ndjson`, and the paths of its sessions.
pub(crate) struct NdJson;

/// The session's id in a path. `Some("")` if the path opens a session, `None` if it isn't a path of the protocol.
fn session_of(path: &str) -> Option<&str> {
    match path.strip_prefix(PATH)? {
        "" => Some(""),
        rest => rest.strip_prefix('/'),
    }
}

/// The query of a request, or the header in its place.
fn query_of<'r>(cx: &RequestContext<'r>) -> &'r str {
    cx.request.header_str(QUERY).unwrap_or(cx.request.query())
}

/// The session's id in a request. `Some("")` if the request opens a session.
fn session_in<'r>(cx: &RequestContext<'r>) -> Option<Cow<'r, str>> {
    match session_of(cx.request.path())? {
        NAMED_IN_HEADER => parameter(cx, "sid").filter(|sid| !sid.is_empty()),
        session => Some(Cow::Borrowed(session)),
    }
}

/// The value of a parameter of the query.
fn parameter<'r>(cx: &RequestContext<'r>, name: &str) -> Option<Cow<'r, str>> {
    http1::query_pairs(query_of(cx)).find_map(|(found, value)| (found == name).then_some(value))
}

impl Protocol for NdJson {
    fn route(&self, path: &str, _options: &Options) -> Option<RouteFacts> {
        let session = session_of(path)?;
        Some(RouteFacts {
            opens_session: session.is_empty(),
            takes_body: true,
            has_socket: false,
            outlives_drain: true,
        })
    }

    fn example(&self) -> Option<&'static str> {
        Some(PATH)
    }

    fn closing(&self) -> Option<Closing> {
        Some(Closing {
            protocol: "NDJSON",
            reconnect: "the line `{\"type\":\"disconnect\",\"code\":CODE,\"reason\":\"REASON\"}`, then the end of the response",
            refused: "the same",
            codes: Vec::new(),
        })
    }

    fn secret(&self, path: &str, _options: &Options) -> Option<Range<usize>> {
        let session = session_of(path).filter(|session| !matches!(*session, "" | NAMED_IN_HEADER))?;
        Some(path.len() - session.len()..path.len())
    }

    fn handle_request(&self, cx: &mut RequestContext<'_>, clients: &mut Clients) -> Outcome {
        if cx.request.method() == "OPTIONS" {
            let mut extra = headers(cx);
            push_preflight(&mut extra, cx.request, "GET, POST");
            return cx.answer(204, CONTENT_TYPE, &extra, b"");
        }
        let Some(session) = session_in(cx) else { return refuse(cx, 404, NO_SESSION) };
        match (cx.request.method(), &*session) {
            ("GET" | "POST", "") => open(cx, clients),
            ("GET" | "POST", session) => handle_request_of_client(cx, &mut clients.ndjson, session, None),
            _ => {
                let mut extra = headers(cx);
                extra.push(("Allow", "GET, POST"));
                cx.refuse(405, &extra, "GET opens or resumes a stream, POST opens one or sends")
            }
        }
    }

    fn handle_body(
        &self,
        cx: &mut RequestContext<'_>,
        clients: &mut Clients,
        buffered: &mut BufferedRequest,
    ) -> Outcome {
        if let Some(opened) = &buffered.opened {
            return handle_first(cx, &mut clients.ndjson, opened, &buffered.body);
        }
        let sid = session_in(cx).and_then(|session| Sid::parse(&session));
        // The client may have ended while the body was arriving.
        let id = sid.and_then(|sid| clients.ndjson.find(sid));
        let Some(client) = id.and_then(|id| clients.ndjson.get_mut(id)) else {
            return refuse(cx, 404, NO_SESSION);
        };
        client.touch(cx.ex);
        if client.state.ended {
            return refuse_ended(cx, client);
        }
        let number = number_of(cx, "n").unwrap_or_default();
        if number <= client.handled {
            return accepted(cx);
        }
        let next = client.handled + 1;
        if number != next {
            return refuse(cx, 409, &format!("the number of the next request is {next}"));
        }
        let Ok(body) = std::str::from_utf8(&buffered.body) else {
            return refuse(cx, 400, NOT_UTF8);
        };
        if cx.ex.questions.waiting.waits_for_earlier(cx.conn, client.state.id)
            || !client.handle_lines(cx.ex, cx.conn, body, cx.request)
        {
            return Outcome::Rest;
        }
        client.handled = number;
        if has_end(cx) {
            end(cx.ex, client);
        }
        accepted(cx)
    }
}

/// Handles the messages in the body of the request that opened the session. Then the session's first stream begins.
fn handle_first(
    cx: &mut RequestContext<'_>,
    clients: &mut ClientTable<Client>,
    opened: &Opened,
    body: &[u8],
) -> Outcome {
    let Some(client) = clients.get_mut(opened.client) else { return refuse(cx, 404, NO_SESSION) };
    client.touch(cx.ex);
    let Ok(body) = std::str::from_utf8(body) else {
        end(cx.ex, client);
        return refuse(cx, 400, NOT_UTF8);
    };
    if cx.ex.questions.waiting.waits_for_earlier(cx.conn, client.state.id)
        || !client.handle_lines(cx.ex, cx.conn, body, cx.request)
    {
        return Outcome::Rest;
    }
    stream(cx, client, &opened.headers)
}

/// Returns `true` if the client requests the end of its session.
fn has_end(cx: &RequestContext<'_>) -> bool {
    number_of(cx, "end") == Some(1)
}

/// Ends a session at its client's request.
fn end(ex: &mut Executor, client: &mut Client) {
    client.end(ex, End::Closed);
    client.remove(ex);
}

/// The headers of every response.
fn headers<'r>(cx: &RequestContext<'r>) -> Vec<(&'r str, &'r str)> {
    let mut headers = cors(cx.allow_origin());
    // These headers keep proxies from buffering lines: compressing proxies buffer data to compress it, and nginx buffers data
    // before it forwards them.
    headers.extend([("Cache-Control", "no-store, no-transform"), ("X-Accel-Buffering", "no")]);
    headers
}

fn refuse(cx: &mut RequestContext<'_>, status: u16, why: &str) -> Outcome {
    let extra = headers(cx);
    cx.refuse(status, &extra, why)
}

/// Answers a request whose messages have been handled.
fn accepted(cx: &mut RequestContext<'_>) -> Outcome {
    let extra = headers(cx);
    cx.answer(204, CONTENT_TYPE, &extra, b"")
}

fn refuse_ended(cx: &mut RequestContext<'_>, client: &Client) -> Outcome {
    let (code, reason) = client.closed().unwrap_or_default();
    refuse(cx, 410, &format!("the session has ended: {code} {reason}"))
}

/// The time until the heartbeat (an empty line) of a silent stream. A stream with a bound ends then.
fn heartbeat_after(ex: &Executor, is_bounded: bool) -> Duration {
    let options = ex.options();
    let interval = options.heartbeat.interval;
    if is_bounded { interval.min(options.limits.request_timeout) } else { interval }
}

/// The number that the query has under this name. `None` if there is no valid number.
fn number_of(cx: &RequestContext<'_>, name: &str) -> Option<u64> {
    parameter(cx, name)?.parse().ok()
}

/// Handles a request of a client, if it belongs to the same principal. `decided` is the decision for which the request waited.
fn handle_request_of_client(
    cx: &mut RequestContext<'_>,
    clients: &mut ClientTable<Client>,
    session: &str,
    decided: Option<Decided>,
) -> Outcome {
    let Some(sid) = Sid::parse(session) else { return refuse(cx, 404, NO_SESSION) };
    if cx.ex.is_of_other_node(sid) {
        return cx.relay_to_node_of(sid, |cx| refuse(cx, 404, NO_SESSION));
    }
    let home = sid.core(cx.ex.shared.cores);
    if home != cx.ex.context.core {
        return cx.move_to(home);
    }
    let Some(client) = clients.find(sid).and_then(|id| clients.get_mut(id)) else {
        return refuse(cx, 404, NO_SESSION);
    };
    let id = client.state.id;
    let identities = &cx.ex.questions.identities;
    let began_with_token =
        identities.client(id).is_some_and(|client| client.request_token.is_some() || client.user.is_some());
    let checked = if began_with_token && !cx.has_token() {
        Err(Refused::Denied(Denial::new("token_missing", "the session began with a token")))
    } else {
        let session = client.session;
        cx.check_token(id, "ndjson", session.as_slice(), decided)
    };
    match checked {
        Ok(()) if cx.request.method() == "GET" => resume(cx, client),
        Ok(()) if number_of(cx, "n").is_some() => cx.body(),
        Ok(()) if has_end(cx) => {
            end(cx.ex, client);
            accepted(cx)
        }
        Ok(()) => refuse(cx, 400, "the query has no number of this request: ?n=1, then 2, and so on"),
        // The client may end while the request waits, so it is looked up again.
        Err(Refused::Pending) => cx.wait_for_one(|cx, clients, decided| {
            let session = session_in(cx).unwrap_or_default();
            handle_request_of_client(cx, &mut clients.ndjson, &session, decided)
        }),
        Err(Refused::Denied(denial)) => {
            let extra = headers(cx);
            cx.refuse_denied(&denial, &extra)
        }
    }
}

/// Opens a session, if the client may connect.
fn open(cx: &mut RequestContext<'_>, clients: &mut Clients) -> Outcome {
    if cx.ex.app_of(Service::default()).envelope() != Envelope::V1 {
        return refuse(cx, 404, "the application has no messages of stentor.v1");
    }
    let parsed = ConnectQuery::parse(query_of(cx), &cx.ex.options().keys);
    let feeds = match parsed.and_then(|mut query| query.feeds(None, true)) {
        Ok(feeds) => feeds,
        Err(error) => return refuse(cx, 400, &error),
    };
    if let Some(unavailable) = cx.unavailable_to_new_clients() {
        return unavailable;
    }
    let sid = cx.ex.draw_sid();
    let opening = Opening::new("ndjson", Envelope::V1, Service::default()).of_client(sid);
    cx.admit(clients, opening, move |cx, clients, admitted| match admitted {
        Ok(admitted) => match cx.unavailable_to_new_clients() {
            Some(unavailable) => unavailable,
            None => handle_opened(cx, &mut clients.ndjson, sid, feeds, admitted),
        },
        Err(NotAdmitted::Refused { status, message }) => refuse(cx, status, &message),
        Err(NotAdmitted::Denied(denial)) => {
            let extra = headers(cx);
            cx.refuse_denied(&denial, &extra)
        }
    })
}

/// Adds a client that may connect, and opens its session.
fn handle_opened(
    cx: &mut RequestContext<'_>,
    clients: &mut ClientTable<Client>,
    sid: Sid,
    feeds: Feeds,
    Admitted { identity, headers }: Admitted,
) -> Outcome {
    let client = clients.insert(Client::new(cx.ex, sid, cx.client.source()));
    let id = client.state.id;
    cx.remember_client(id, "ndjson", identity.clone());
    let ex = &mut *cx.ex;
    let session = ex.open_session(ENCODING, Owner::Client(id), cx.client.source(), identity);
    client.session = Some(session);
    let timeout = client::session_timeout(ex).as_millis();
    encode::write_line(
        &mut client.state.queue,
        &format!(r#"{{"type":"session","sid":"{sid}","timeout_ms":{timeout}}}"#),
    );
    let scope = scope_of(session, ENCODING, Service::default(), Some(cx.request));
    message::open(ex, scope, &mut client.state.queue);
    ex.join_rooms(session, "/");
    ex.subscribe_feeds(cx.conn, session, feeds);
    client.charge(ex);
    ex.arm_client(id);
    if cx.request.method() == "GET" {
        return stream(cx, client, &headers);
    }
    let opened = Some(Box::new(Opened { client: id, headers }));
    Outcome::Body { bytes_max: cx.ex.options().limits.message_bytes_max, opened }
}

/// Continues a session with another stream.
fn resume(cx: &mut RequestContext<'_>, client: &mut Client) -> Outcome {
    let Some(received) = number_of(cx, "received") else {
        return refuse(cx, 400, "the query has no number of received lines: ?received=N");
    };
    client.touch(cx.ex);
    if !client.state.ended && received != client.lines_sent {
        if received > client.lines_sent {
            return refuse(cx, 400, "the session has sent fewer lines");
        }
        client.end_lost(cx.ex);
    }
    stream(cx, client, &[])
}

/// Begins the response that carries lines from now on.
fn stream(cx: &mut RequestContext<'_>, client: &mut Client, more: &[(String, String)]) -> Outcome {
    let id = client.state.id;
    let mut extra = headers(cx);
    extra.extend(borrowed(more));
    let mut options = cx.options;
    let is_chunked = write_stream_head(cx.out, cx.request, &mut options, 200, CONTENT_TYPE, &extra);
    cx.options = options;
    let left_bytes = number_of(cx, "bytes").map_or(usize::MAX, |bytes| bytes as usize);
    let state = ResponseState::new(options.keep_alive);
    let mut stream = Stream { client: id, state, is_chunked, left_bytes };
    if client.state.ended {
        stream.write_end(client, cx.out);
        return cx.answered();
    }
    let ex = &mut *cx.ex;
    let former = client.state.transport;
    client.set_transport(ex, ActiveTransport::Stream(cx.conn));
    if former != ActiveTransport::None {
        client.handle_sent(ex);
    }
    if let Some(former) = former.conn().filter(|former| *former != cx.conn) {
        ex.push(Effect::Connection(former, ToConnection::Answer(PollAnswer::Pending)));
    }
    client.state.due_at = ex.millis().after(heartbeat_after(ex, left_bytes != usize::MAX));
    ex.arm_client(id);
    ex.flush_client(id);
    Outcome::Waiting(Box::new(stream))
}
