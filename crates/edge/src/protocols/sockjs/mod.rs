//! SockJS, as the runnable specification has it (sockjs-protocol, `main`): clients over HTTP, and WebSockets.
//!
//! ```text
//!  first receiver ──► open ◄──► attached (a poll, or a stream until it has carried enough)
//!                       │            │
//!   disconnect_delay    │            │ closed by us, or the receiver was lost
//!                       ▼            ▼
//!                      gone ◄── ended: later receivers are told how, for disconnect_delay
//! ```
//!
//! Over WebSocket a session lives and ends with its connection, whatever its id: only the messages differ from those of
//! a plain one ([`websocket`]), and the heartbeats are WebSocket's. Over HTTP a session is a [`Client`], named by a digest
//! under the node's seed of prefix, key and session id, all of which its client chose: so ids of any form cost the same,
//! spread evenly, and name the core that owns the session. Requests that arrive elsewhere are handed over.
//!
//! This file handles requests; [`receiver`] writes the answers that carry frames; [`client`] handles messages,
//! heartbeats and ends.
//!
//! Deliberately absent: hixie-76 (see [`stentor_wire::sockjs`]).

mod client;
mod receiver;
pub(crate) mod websocket;

pub(crate) use client::Client;
pub(crate) use receiver::Receiver;

use crate::app::{Connect, Envelope, HandlerScope};
use crate::encode::Format;
use crate::encode::{FrameTarget, Writer};
use crate::executor::{Effect, Feeds};
use crate::identity::Service;
use crate::identity::{ClientId, Owner, Sid};
use crate::model::{Key, Policy};
use crate::options;
use crate::protocols::client::ActiveTransport;
use crate::protocols::clients::ClientTable;
use crate::protocols::request::{
    BufferedRequest, RequestContext, RequestOutcome, ResponseOptions, key_of_path, text,
};
use receiver::PollStart;
use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use stentor_wire::http1::{self, Request, Version};
use stentor_wire::sockjs::answer::{
    self, Callback, Cors, Header, push_error_headers, push_headers, push_preflight_headers,
};
use stentor_wire::sockjs::{
    Close, Error, Frame, Limits, Messages, Resource, ResponseLimit, Route, Transport, Wrapping,
};

type Outcome = RequestOutcome<Box<Receiver>>;
type Clients = ClientTable<Client>;

/// What becomes of a request under a prefix.
pub(crate) enum Handled {
    Response(Outcome),
    /// It asks for a WebSocket, perhaps for one feed.
    WebSocket {
        framed: bool,
        key: Option<Key>,
    },
}

/// A request, and what decides about the form of its answer.
struct Exchange<'a> {
    request: &'a Request<'a>,
    resource: Resource<'a>,
    settings: &'a options::SockJs,
    options: ResponseOptions,
}

/// How the end of an answer is known.
enum Length {
    /// There is no body.
    Nothing,
    Bytes(usize),
    Chunks,
    /// By the end of the connection.
    End,
    /// Whoever goes on with the head says it.
    Later,
}

impl<'a> Exchange<'a> {
    fn cors(&self) -> Cors<'a> {
        Cors::of(self.request)
    }

    /// The headers of a good answer.
    fn headers(&self) -> Vec<Header<'a>> {
        let mut headers = Vec::with_capacity(12);
        push_headers(&mut headers, &self.resource, &self.cors());
        headers
    }

    fn write_head(
        &self,
        out: &mut Vec<u8>,
        status: u16,
        headers: &[Header<'_>],
        length: &Length,
        extra: &[(String, String)],
    ) {
        let (cookie, bytes);
        let keep_alive = self.options.keep_alive && !matches!(length, Length::End);
        let mut all: Vec<(&str, &str)> = headers.to_vec();
        let is_typed = headers.iter().any(|(name, _)| *name == "Content-Type");
        if is_typed && !headers.iter().any(|(name, _)| *name == "X-Content-Type-Options") {
            all.push(("X-Content-Type-Options", "nosniff"));
        }
        all.push(("Connection", if keep_alive { "keep-alive" } else { "close" }));
        if self.settings.jsessionid && self.resource.has_cookie() {
            cookie = answer::jsessionid(self.request.header_str("cookie"));
            all.push(("Set-Cookie", &cookie));
        }
        all.extend(extra.iter().map(|(name, value)| (&**name, &**value)));
        match length {
            Length::Bytes(n) => {
                bytes = n.to_string();
                all.push(("Content-Length", &bytes));
            }
            Length::Chunks => all.push(("Transfer-Encoding", "chunked")),
            Length::Nothing | Length::End | Length::Later => {}
        }
        http1::write_response_head(out, status, &all);
    }

    /// A whole answer.
    fn answer(&self, out: &mut Vec<u8>, status: u16, headers: &[Header<'_>], body: &[u8]) -> Outcome {
        let length = if matches!(status, 204 | 304) { Length::Nothing } else { Length::Bytes(body.len()) };
        self.write_head(out, status, headers, &length, &[]);
        out.extend_from_slice(body);
        Outcome::Answered { keep_alive: self.options.keep_alive }
    }

    /// An answer for people.
    fn tell(&self, out: &mut Vec<u8>, status: u16, words: &str) -> Outcome {
        let mut headers = Vec::new();
        push_error_headers(&mut headers, &self.resource, &self.cors());
        self.answer(out, status, &headers, format!("{words}\n").as_bytes())
    }

    /// Begins the answer that carries frames to a client.
    fn begin(
        &self,
        client: ClientId,
        transport: Transport,
        callback: Option<&Callback<'_>>,
        extra: &[(String, String)],
        out: &mut Vec<u8>,
    ) -> Option<Receiver> {
        let wrapping = Wrapping::of(transport)?;
        let is_poll = matches!(transport, Transport::Xhr | Transport::Jsonp);
        let chunked = !is_poll && self.request.version() == Version::Http11;
        let mut receiver = Receiver {
            client,
            keep_alive: self.options.keep_alive && (is_poll || chunked),
            wrapping,
            chunked,
            limit: ResponseLimit::new(transport, self.settings.response_bytes_max),
            poll: None,
            answered: false,
        };
        if is_poll {
            let (mut head, mut call) = (Vec::with_capacity(384), Vec::new());
            self.write_head(&mut head, 200, &self.headers(), &Length::Later, extra);
            // The length is the last header.
            head.truncate(head.len() - 2);
            if let Some(callback) = callback {
                stentor_wire::sockjs::write_jsonp_callback(&mut call, callback);
            }
            receiver.poll = Some(Box::new(PollStart { head, callback: call }));
            return Some(receiver);
        }
        let length = if chunked { Length::Chunks } else { Length::End };
        let mut headers = self.headers();
        // What nginx understands: frames aren't to wait for more.
        headers.push(("X-Accel-Buffering", "no"));
        self.write_head(out, 200, &headers, &length, extra);
        let mut prelude = Vec::with_capacity(2_100);
        match callback {
            Some(callback) => answer::write_html_prelude(&mut prelude, callback),
            None => answer::write_prelude(&mut prelude, transport),
        }
        if chunked {
            http1::write_chunk(out, &prelude);
        } else {
            out.append(&mut prelude);
        }
        Some(receiver)
    }

    fn refuse(&self, cx: &RequestContext<'_>, error: Error, out: &mut Vec<u8>) -> Outcome {
        cx.count_error();
        self.tell(out, error.status(), error.body())
    }
}

/// A client that wants to receive.
struct Reception<'a> {
    exchange: Exchange<'a>,
    service: Service,
    sid: Sid,
    key: Option<Key>,
    transport: Transport,
    callback: Option<Callback<'a>>,
}

/// The id of a client: a digest of what it chose, under the node's seed.
fn sid_of(cx: &RequestContext<'_>, service: Service, key: Option<&Key>, session: &str) -> Sid {
    let half = |half: u8| {
        let mut hasher = DefaultHasher::new();
        (cx.ex.context.seed, half, service, key.map(Key::as_str), session).hash(&mut hasher);
        hasher.finish()
    };
    Sid::digest([half(0), half(1)])
}

/// Handles the head of a request to a path under a prefix.
pub(crate) fn handle_request(
    cx: &mut RequestContext<'_>,
    clients: &mut Clients,
    request: &Request<'_>,
    service: Service,
    route: &Route<'_>,
    out: &mut Vec<u8>,
) -> Handled {
    let shared = cx.ex.shared.clone();
    let Some((place, settings)) =
        service.place().and_then(|place| Some((place, shared.options.sockjs.get(place)?)))
    else {
        return Handled::Response(Outcome::LAST);
    };
    let resource = route.resource;
    let options = ResponseOptions { head_only: false, ..ResponseOptions::of(request, cx.ex.draining) };
    let mut exchange = Exchange { request, resource, settings, options };
    let is_websocket = resource.is_websocket();
    let is_upgrade = request.headers().list_has("upgrade", "websocket");
    // What follows may be frames, which must not be read as requests (CVE-2020-7693).
    exchange.options.keep_alive &= !is_upgrade;
    if is_upgrade && !is_websocket {
        cx.count_error();
        return Handled::Response(exchange.tell(out, 400, "there is no WebSocket here"));
    }
    if is_websocket && !settings.websocket {
        cx.count_error();
        return Handled::Response(exchange.tell(out, 404, "there are no WebSockets here"));
    }
    if !resource.allows(request.method()) {
        cx.count_error();
        return Handled::Response(exchange.answer(out, 405, &[("Allow", resource.methods())], b""));
    }
    if request.method() == "OPTIONS" {
        let mut headers = Vec::new();
        push_preflight_headers(&mut headers, &resource, &exchange.cors());
        return Handled::Response(exchange.answer(out, 204, &headers, b""));
    }
    let key = match route.key.map(key_of_path).transpose() {
        Ok(key) => key,
        Err(error) => {
            cx.count_error();
            return Handled::Response(exchange.tell(out, 400, &error.to_string()));
        }
    };
    Handled::Response(match resource {
        Resource::Greeting => exchange.answer(out, 200, &exchange.headers(), answer::GREETING.as_bytes()),
        Resource::Iframe => {
            let Some(iframe) = shared.iframes.get(place) else { return Handled::Response(Outcome::LAST) };
            if request.header_str("if-none-match").is_some_and(|tags| iframe.is_named_by(tags)) {
                let mut headers = Vec::new();
                answer::push_unchanged_headers(&mut headers, iframe);
                return Handled::Response(exchange.answer(out, 304, &headers, b""));
            }
            let mut headers = exchange.headers();
            headers.push(("ETag", iframe.etag()));
            headers.extend(iframe.ancestors().map(|policy| ("Content-Security-Policy", policy)));
            exchange.answer(out, 200, &headers, iframe.page().as_bytes())
        }
        Resource::Info => {
            let mut body = Vec::with_capacity(96);
            // Any number will do where the system has none at hand.
            let entropy = getrandom::u32().unwrap_or(cx.ex.context.seed[0] as u32);
            answer::write_info(&mut body, settings.websocket, settings.jsessionid, entropy);
            exchange.answer(out, 200, &exchange.headers(), &body)
        }
        Resource::RawWebSocket => return Handled::WebSocket { framed: false, key },
        Resource::Session { transport: Transport::WebSocket, .. } => {
            return Handled::WebSocket { framed: true, key };
        }
        Resource::Session { session, transport, .. } => {
            let callback = match transport {
                Transport::HtmlFile | Transport::Jsonp => match Callback::from_query(request.query()) {
                    Ok(callback) => Some(callback),
                    Err(error) => return Handled::Response(exchange.refuse(cx, error, out)),
                },
                _ => None,
            };
            let sid = sid_of(cx, service, key.as_ref(), session);
            let home = sid.core(shared.cores);
            if home != cx.ex.context.core {
                if !cx.ex.draining && !cx.stays {
                    return Handled::Response(Outcome::Move(home));
                }
                let why = "the session's core is busy; try again";
                text(out, ResponseOptions::LAST, 503, &[("Retry-After", "1")], why);
                return Handled::Response(Outcome::LAST);
            }
            match transport {
                Transport::XhrSend | Transport::JsonpSend if clients.find(sid).is_none() => {
                    cx.count_error();
                    exchange.tell(out, 404, "there is no such session")
                }
                Transport::XhrSend | Transport::JsonpSend => {
                    Outcome::Body { bytes_max: shared.options.limits.message_bytes_max }
                }
                _ => {
                    receive(cx, clients, Reception { exchange, service, sid, key, transport, callback }, out)
                }
            }
        }
    })
}

/// A client wants frames: the first time it does, its session begins.
fn receive(
    cx: &mut RequestContext<'_>,
    clients: &mut Clients,
    reception: Reception<'_>,
    out: &mut Vec<u8>,
) -> Outcome {
    let is_poll = matches!(reception.transport, Transport::Xhr | Transport::Jsonp);
    let (id, extra) = match clients.find(reception.sid) {
        Some(id) => (id, None),
        None => match open(cx, clients, &reception, out) {
            Ok((client, headers)) => (client.state.id, Some(headers)),
            Err(outcome) => return outcome,
        },
    };
    let Reception { exchange, transport, callback, .. } = reception;
    let Some(client) = clients.get_mut(id) else { return Outcome::LAST };
    let is_new = extra.is_some();
    let extra = extra.unwrap_or_default();
    let Some(mut receiver) = exchange.begin(id, transport, callback.as_ref(), &extra, out) else {
        return Outcome::LAST;
    };
    let ex = &mut *cx.ex;
    let now = ex.millis();
    let (heartbeat, delay) = (exchange.settings.heartbeat, exchange.settings.disconnect_delay);
    client.state.alive_at = now;
    ex.push(Effect::ArmClient(id));
    if client.state.transport != ActiveTransport::None {
        receiver.refuse(out, Close::ANOTHER_CONNECTION);
        return Outcome::Answered { keep_alive: receiver.keep_alive };
    }
    if client.state.ended {
        client.state.due_at = now.after(delay);
        receiver.last_words(client, ex, out);
        return Outcome::Answered { keep_alive: receiver.keep_alive };
    }
    if let Some(session) = client.session {
        ex.set_format(session, Format::sockjs(receiver.wrapping, client.envelope));
    }
    if is_new {
        receiver.say(out, &Frame::Open);
    } else if is_poll {
        receiver.messages(client, ex, out);
    }
    if receiver.answered {
        client.state.due_at = now.after(delay);
    } else {
        let conn = cx.conn;
        client.state.transport =
            if is_poll { ActiveTransport::Poll(conn) } else { ActiveTransport::Stream(conn) };
        client.state.due_at = now.after(heartbeat);
        ex.push(Effect::FlushClient(id));
    }
    Outcome::Waiting(Box::new(receiver))
}

/// A new client, with the headers of its first response.
type Opened<'c> = (&'c mut Client, Vec<(String, String)>);

/// Begins a session, with the headers that the application wants in the first answer.
fn open<'c>(
    cx: &mut RequestContext<'_>,
    clients: &'c mut Clients,
    reception: &Reception<'_>,
    out: &mut Vec<u8>,
) -> Result<Opened<'c>, Outcome> {
    let Reception { exchange, service, sid, key, transport, .. } = reception;
    let over = |out: &mut Vec<u8>, seconds, why| {
        text(out, ResponseOptions::LAST, 503, &[("Retry-After", seconds)], why);
        Err(Outcome::LAST)
    };
    if cx.ex.draining {
        return over(out, "1", "the server is shutting down");
    }
    if cx.clients >= cx.ex.options().limits.connections_max {
        return over(out, "5", "too many sessions (limits.connections_max)");
    }
    let push_only = key.is_some();
    let envelope = if push_only { Envelope::Raw } else { cx.ex.app_of(*service).envelope() };
    let mut headers = Vec::new();
    if !push_only {
        match cx.ask_to_connect(exchange.request, envelope, *service, None) {
            Connect::Accept => {}
            Connect::AcceptWith(extra) => headers = extra,
            Connect::Pending => return Err(Outcome::Admission(None)),
            Connect::Refuse { status, message } => {
                cx.count_error();
                return Err(exchange.tell(out, status, &message));
            }
        }
    }
    let ex = &mut *cx.ex;
    let client = clients.insert(Client::new(ex, *sid, cx.source, (*service, envelope, push_only)));
    let wrapping = Wrapping::of(*transport).unwrap_or(Wrapping::Xhr);
    let format = Format::sockjs(wrapping, envelope);
    let session = ex.open_session(format, Owner::Client(client.state.id), cx.source);
    client.session = Some(session);
    if !push_only {
        let scope = HandlerScope {
            session: Some(session),
            writer: Writer::SockJs(FrameTarget::Poll),
            envelope,
            request: Some(exchange.request),
            service: *service,
            ..HandlerScope::default()
        };
        ex.call_app(scope, &mut client.state.queue, |app, ctx| app.opened(ctx, session, envelope));
        client.charge(ex);
    }
    let (keys, options) = (key.iter().cloned().collect(), Policy::Latest.into());
    ex.subscribe_feeds(session, Feeds { keys, options });
    Ok((client, headers))
}

/// Handles the body of a client's messages, or what is left of it.
pub(crate) fn handle_body(
    cx: &mut RequestContext<'_>,
    clients: &mut Clients,
    request: &Request<'_>,
    (service, route): (Service, &Route<'_>),
    buffered: &mut BufferedRequest,
    out: &mut Vec<u8>,
) -> Outcome {
    let BufferedRequest { body, done, begun, .. } = buffered;
    let shared = cx.ex.shared.clone();
    let Some(settings) = service.place().and_then(|place| shared.options.sockjs.get(place)) else {
        return Outcome::LAST;
    };
    let Resource::Session { session, transport, .. } = route.resource else { return Outcome::LAST };
    let options = ResponseOptions::of(request, cx.ex.draining);
    let exchange = Exchange { request, resource: route.resource, settings, options };
    let key = route.key.and_then(|key| key_of_path(key).ok());
    // It may have ended while the body was on its way.
    let client = clients.find(sid_of(cx, service, key.as_ref(), session)).and_then(|id| clients.get_mut(id));
    let Some(client) = client else {
        cx.count_error();
        return exchange.tell(out, 404, "there is no such session");
    };
    let payload = match transport {
        _ if begun.is_some() => Cow::Borrowed(&body[..]),
        Transport::JsonpSend => {
            match stentor_wire::sockjs::jsonp_payload(request.header_str("content-type"), body) {
                Ok(payload) => payload,
                Err(error) => return exchange.refuse(cx, error, out),
            }
        }
        _ => Cow::Borrowed(&body[..]),
    };
    let limits = Limits { messages_max: settings.messages_max };
    let messages = match begun {
        // Checked when the request arrived.
        Some(left) => {
            let rest = payload.get(*done..).and_then(|rest| std::str::from_utf8(rest).ok());
            Ok(Messages::resume(rest.unwrap_or_default(), *left))
        }
        None => stentor_wire::sockjs::parse_body(&payload, &limits),
    };
    let messages = match messages {
        Ok(messages) => messages,
        Err(error) => return exchange.refuse(cx, error, out),
    };
    if let Some((rest_bytes, left)) = client.handle_messages(cx.ex, messages, request) {
        let payload_bytes = payload.len();
        if let Cow::Owned(payload) = payload {
            *body = payload;
        }
        (*done, *begun) = (payload_bytes - rest_bytes, Some(left));
        return Outcome::Rest;
    }
    let status = route.resource.status();
    let body: &[u8] = if status == 204 { b"" } else { answer::JSONP_SENT.as_bytes() };
    exchange.answer(out, status, &exchange.headers(), body)
}
