//! SockJS, as the runnable specification has it (sockjs-protocol, `main`): sessions over HTTP, and WebSockets.
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
//! a plain one (`Dialect::SockJs`), and the heartbeats are WebSocket's. Over HTTP a session is a
//! [`Client`](super::client::Client), named by a digest under the node's seed of prefix, key and session id, all of which
//! its client chose: so ids of any form cost the same, spread evenly, and name the core that owns the session. Requests
//! that arrive elsewhere are handed over.
//!
//! This file deals with requests; [`receiver`] with the answers that carry frames; [`session`] with messages,
//! heartbeats and ends.
//!
//! Deliberately absent: hixie-76 (see [`stentor_wire::sockjs`]).

mod receiver;
mod session;

pub(super) use receiver::Receiver;

use super::client::{Carrier, Client, ClientId, Protocol, Sid, Upper};
use super::http::Verdict;
use super::request::{Manner, key_of_path, text};
use super::routes::Door;
use super::table::{Dialect, Kept, Waiting};
use super::wishes::Feeds;
use super::{About, Core, Later, client_tag};
use crate::app::{Application, Connect, Envelope};
use crate::encode::Format;
use crate::encode::{FrameTarget, Writer};
use crate::options::{self, Service};
use crate::origin::Origins;
use receiver::PollStart;
use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use stentor_driver::Driver;
use stentor_hub::{Key, Policy};
use stentor_wire::http1::{self, Request, Version};
use stentor_wire::sockjs::answer::{
    self, Callback, Cors, Header, Iframe, push_error_headers, push_headers, push_preflight_headers,
};
use stentor_wire::sockjs::{
    Close, Error, Frame, Limits, Messages, Resource, ResponseLimit, Route, Transport, Wrapping,
};

/// What is kept for a prefix.
pub(super) struct Prefix {
    /// Its own application, if it has one.
    pub(super) app: Option<Box<dyn Application>>,
    iframe: Iframe,
}

/// For each prefix of the options, with its application.
pub(super) fn prefixes(
    all: &[options::SockJs],
    origins: &Origins,
    apps: Vec<Option<Box<dyn Application>>>,
) -> Vec<Prefix> {
    let ancestors = origins.ancestors();
    all.iter()
        .zip(apps)
        .map(|(sockjs, app)| Prefix { app, iframe: Iframe::new(&sockjs.client_url, ancestors.as_deref()) })
        .collect()
}

/// What SockJS knows of a client.
pub(super) struct SockJs {
    pub(super) service: Service,
    /// The application gets its messages; or there is only a feed, and it may send none.
    pub(super) accepts: bool,
    /// How it was closed, if the application has said or somebody has to be told.
    closed: Option<Box<(u16, Box<str>)>>,
}

/// A request, and what decides about the form of its answer.
struct Asked<'a> {
    request: &'a Request<'a>,
    resource: Resource<'a>,
    options: &'a options::SockJs,
    manner: Manner,
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

impl<'a> Asked<'a> {
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
        let keep_alive = self.manner.keep_alive && !matches!(length, Length::End);
        let mut all: Vec<(&str, &str)> = headers.to_vec();
        let is_typed = headers.iter().any(|(name, _)| *name == "Content-Type");
        if is_typed && !headers.iter().any(|(name, _)| *name == "X-Content-Type-Options") {
            all.push(("X-Content-Type-Options", "nosniff"));
        }
        all.push(("Connection", if keep_alive { "keep-alive" } else { "close" }));
        if self.options.jsessionid && self.resource.has_cookie() {
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
    fn answer(&self, out: &mut Vec<u8>, status: u16, headers: &[Header<'_>], body: &[u8]) -> Verdict {
        let length = if matches!(status, 204 | 304) { Length::Nothing } else { Length::Bytes(body.len()) };
        self.write_head(out, status, headers, &length, &[]);
        out.extend_from_slice(body);
        Verdict::Answered { keep_alive: self.manner.keep_alive }
    }

    /// An answer for people.
    fn tell(&self, out: &mut Vec<u8>, status: u16, words: &str) -> Verdict {
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
            keep_alive: self.manner.keep_alive && (is_poll || chunked),
            wrapping,
            chunked,
            limit: ResponseLimit::new(transport, self.options.response_bytes_max),
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
}

/// Who wants to receive, and how.
struct Reception<'a> {
    asked: Asked<'a>,
    service: Service,
    sid: Sid,
    key: Option<Key>,
    transport: Transport,
    callback: Option<Callback<'a>>,
}

impl<D: Driver> Core<D> {
    /// The name of a session: a digest of what its client chose, under the node's seed.
    fn sockjs_sid(&self, service: Service, key: Option<&Key>, session: &str) -> Sid {
        let half = |half: u8| {
            let mut hasher = DefaultHasher::new();
            (self.facts.seed, half, service, key.map(Key::as_str), session).hash(&mut hasher);
            hasher.finish()
        };
        Sid::digest([half(0), half(1)])
    }

    /// A request to a path under a prefix.
    pub(super) fn sockjs_request(
        &mut self,
        index: usize,
        request: &Request<'_>,
        service: Service,
        route: &Route<'_>,
        out: &mut Vec<u8>,
    ) -> Verdict {
        let shared = self.shared.clone();
        let Some(options) = service.place().and_then(|place| shared.options.sockjs.get(place)) else {
            return Verdict::Answered { keep_alive: false };
        };
        let resource = route.resource;
        let manner = Manner { head_only: false, ..Manner::of(request, self.draining) };
        let mut asked = Asked { request, resource, options, manner };
        let is_websocket = resource.is_websocket();
        let is_upgrade = request.headers().list_has("upgrade", "websocket");
        // What follows may be frames, which must not be read as requests (CVE-2020-7693).
        asked.manner.keep_alive &= !is_upgrade;
        if is_upgrade && !is_websocket {
            self.metrics().request_errors.add(1);
            return asked.tell(out, 400, "there is no WebSocket here");
        }
        if is_websocket && !options.websocket {
            self.metrics().request_errors.add(1);
            return asked.tell(out, 404, "there are no WebSockets here");
        }
        if !resource.allows(request.method()) {
            self.metrics().request_errors.add(1);
            return asked.answer(out, 405, &[("Allow", resource.methods())], b"");
        }
        if request.method() == "OPTIONS" {
            let mut headers = Vec::new();
            push_preflight_headers(&mut headers, &resource, &asked.cors());
            return asked.answer(out, 204, &headers, b"");
        }
        let key = match route.key.map(key_of_path).transpose() {
            Ok(key) => key,
            Err(error) => {
                self.metrics().request_errors.add(1);
                return asked.tell(out, 400, &error.to_string());
            }
        };
        match resource {
            Resource::Greeting => asked.answer(out, 200, &asked.headers(), answer::GREETING.as_bytes()),
            Resource::Iframe => {
                let Some(prefix) = service.place().and_then(|place| self.services.get(place)) else {
                    return Verdict::Answered { keep_alive: false };
                };
                let iframe = &prefix.iframe;
                if request.header_str("if-none-match").is_some_and(|tags| iframe.is_named_by(tags)) {
                    let mut headers = Vec::new();
                    answer::push_unchanged_headers(&mut headers, iframe);
                    return asked.answer(out, 304, &headers, b"");
                }
                let mut headers = asked.headers();
                headers.push(("ETag", iframe.etag()));
                headers.extend(iframe.ancestors().map(|policy| ("Content-Security-Policy", policy)));
                asked.answer(out, 200, &headers, iframe.page().as_bytes())
            }
            Resource::Info => {
                let mut body = Vec::with_capacity(96);
                // Any number will do where the system has none at hand.
                let entropy = getrandom::u32().unwrap_or(self.facts.seed[0] as u32);
                answer::write_info(&mut body, options.websocket, options.jsessionid, entropy);
                asked.answer(out, 200, &asked.headers(), &body)
            }
            Resource::RawWebSocket => {
                self.upgrade(index, request, Door::of(Dialect::Plain, service, key), out)
            }
            Resource::Session { transport: Transport::WebSocket, .. } => {
                self.upgrade(index, request, Door::of(Dialect::SockJs, service, key), out)
            }
            Resource::Session { session, transport, .. } => {
                let callback = match transport {
                    Transport::HtmlFile | Transport::Jsonp => match Callback::from_query(request.query()) {
                        Ok(callback) => Some(callback),
                        Err(error) => return self.refuse_sockjs(&asked, error, out),
                    },
                    _ => None,
                };
                let sid = self.sockjs_sid(service, key.as_ref(), session);
                let home = sid.core(shared.cores);
                if home != self.facts.core {
                    if !self.draining && !self.is_to_stay(index) {
                        return Verdict::Move(home);
                    }
                    let why = "the session's core is busy; try again";
                    text(out, Manner::LAST, 503, &[("Retry-After", "1")], why);
                    return Verdict::Answered { keep_alive: false };
                }
                match transport {
                    Transport::XhrSend | Transport::JsonpSend if self.find_sockjs(sid).is_none() => {
                        self.metrics().request_errors.add(1);
                        asked.tell(out, 404, "there is no such session")
                    }
                    Transport::XhrSend | Transport::JsonpSend => {
                        Verdict::Body { bytes_max: shared.options.limits.message_bytes_max }
                    }
                    _ => self.sockjs_receive(
                        index,
                        Reception { asked, service, sid, key, transport, callback },
                        out,
                    ),
                }
            }
        }
    }

    fn refuse_sockjs(&mut self, asked: &Asked<'_>, error: Error, out: &mut Vec<u8>) -> Verdict {
        self.metrics().request_errors.add(1);
        asked.tell(out, error.status(), error.body())
    }

    fn find_sockjs(&self, sid: Sid) -> Option<ClientId> {
        self.clients
            .find(sid)
            .filter(|id| self.clients.get(*id).is_some_and(|client| client.sockjs().is_some()))
    }

    /// A client wants frames: the first time it does, its session begins.
    fn sockjs_receive(&mut self, index: usize, reception: Reception<'_>, out: &mut Vec<u8>) -> Verdict {
        let is_poll = matches!(reception.transport, Transport::Xhr | Transport::Jsonp);
        let Some(conn) = self.table.get(index).map(|conn| conn.id) else {
            return Verdict::Answered { keep_alive: false };
        };
        let (id, extra) = match self.find_sockjs(reception.sid) {
            Some(id) => (id, None),
            None => match self.open_sockjs(index, &reception, out) {
                Ok((id, headers)) => (id, Some(headers)),
                Err(verdict) => return verdict,
            },
        };
        let Reception { asked, transport, callback, .. } = reception;
        let is_new = extra.is_some();
        let extra = extra.unwrap_or_default();
        let Some(mut receiver) = asked.begin(id, transport, callback.as_ref(), &extra, out) else {
            return Verdict::Answered { keep_alive: false };
        };
        let now = self.millis();
        let (heartbeat, delay) = (asked.options.heartbeat, asked.options.disconnect_delay);
        let Some(client) = self.clients.get_mut(id) else { return Verdict::Answered { keep_alive: false } };
        client.alive_at = now;
        // Whether what is answered matters to the session.
        let mut watched = false;
        if client.carrier != Carrier::None {
            receiver.refuse(out, Close::ANOTHER_CONNECTION);
        } else if client.ended {
            client.due_at = now.after(delay);
            receiver.last_words(client, &mut self.hub, out);
        } else {
            if let Upper::Plain { session, envelope } = client.upper {
                self.hub.set_format(session, Format::sockjs(receiver.wrapping, envelope).into());
            }
            if is_new {
                receiver.say(out, &Frame::Open);
            } else if is_poll {
                receiver.messages(client, &mut self.hub, out);
            }
            watched = true;
            if receiver.answered {
                client.due_at = now.after(delay);
            } else {
                client.carrier = if is_poll { Carrier::Poll(conn) } else { Carrier::Stream(conn) };
                client.due_at = now.after(heartbeat);
                self.later.push(Later::Flush(index));
            }
        }
        let due_at = self.clients.get(id).map_or(now, |client| client.due_at);
        self.arm_client(id, due_at);
        if watched {
            return Verdict::Waiting(Waiting::Receiver(Box::new(receiver)));
        }
        Verdict::Answered { keep_alive: receiver.keep_alive }
    }

    /// Begins a session, with the headers that the application wants in the first answer.
    fn open_sockjs(
        &mut self,
        index: usize,
        reception: &Reception<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(ClientId, Vec<(String, String)>), Verdict> {
        let Reception { asked, service, sid, key, transport, .. } = reception;
        let over = |out: &mut Vec<u8>, seconds, why| {
            text(out, Manner::LAST, 503, &[("Retry-After", seconds)], why);
            Err(Verdict::Answered { keep_alive: false })
        };
        if self.draining {
            return over(out, "1", "the server is shutting down");
        }
        if self.clients.count() >= self.shared.options.limits.connections_max {
            return over(out, "5", "too many sessions (limits.connections_max)");
        }
        let accepts = key.is_none();
        let envelope = if accepts { self.app_of(*service).envelope() } else { Envelope::Raw };
        let mut headers = Vec::new();
        if accepts {
            match self.ask_to_connect(index, asked.request, envelope, *service) {
                Connect::Accept => {}
                Connect::AcceptWith(extra) => headers = extra,
                Connect::Pending => return Err(Verdict::Again(Waiting::Admission(None))),
                Connect::Refuse { status, message } => {
                    self.metrics().request_errors.add(1);
                    return Err(asked.tell(out, status, &message));
                }
            }
        }
        let now = self.millis();
        let due_at = now.after(asked.options.disconnect_delay);
        let sockjs = SockJs { service: *service, accepts, closed: None };
        let id = self.clients.insert(Client::new(*sid, Protocol::SockJs(sockjs), Carrier::None, now, due_at));
        self.arm_client(id, due_at);
        let wrapping = Wrapping::of(*transport).unwrap_or(Wrapping::Xhr);
        let session = self.hub.handle_open(Format::sockjs(wrapping, envelope).into(), client_tag(id));
        self.hub.set_source(session, self.source_of(index));
        if let Some(client) = self.clients.get_mut(id) {
            client.upper = Upper::Plain { session, envelope };
        }
        if accepts {
            let mut queue = Vec::new();
            let about = About {
                session: Some(session),
                writer: Writer::SockJs(FrameTarget::Poll),
                envelope,
                request: Some(asked.request),
                service: *service,
                ..About::default()
            };
            self.tell_app(about, &mut queue, |app, ctx| app.opened(ctx, session, envelope));
            if let Some(client) = self.clients.get_mut(id) {
                client.queue = queue;
                client.weigh(&self.shared.ledger);
            }
        }
        let (keys, terms) = (key.iter().cloned().collect(), Policy::Latest.into());
        self.subscribe_feeds(session, Feeds { keys, terms });
        Ok((id, headers))
    }

    /// The body of a client's messages is there.
    pub(super) fn sockjs_posted(
        &mut self,
        request: &Request<'_>,
        service: Service,
        route: &Route<'_>,
        kept: &mut Kept,
        out: &mut Vec<u8>,
    ) -> Verdict {
        let Kept { body, done, begun, .. } = kept;
        let shared = self.shared.clone();
        let Some(options) = service.place().and_then(|place| shared.options.sockjs.get(place)) else {
            return Verdict::Answered { keep_alive: false };
        };
        let Resource::Session { session, transport, .. } = route.resource else {
            return Verdict::Answered { keep_alive: false };
        };
        let manner = Manner::of(request, self.draining);
        let asked = Asked { request, resource: route.resource, options, manner };
        let key = route.key.and_then(|key| key_of_path(key).ok());
        // It may have ended while the body was on its way.
        let Some(id) = self.find_sockjs(self.sockjs_sid(service, key.as_ref(), session)) else {
            self.metrics().request_errors.add(1);
            return asked.tell(out, 404, "there is no such session");
        };
        let payload = match transport {
            _ if begun.is_some() => Cow::Borrowed(&body[..]),
            Transport::JsonpSend => {
                match stentor_wire::sockjs::jsonp_payload(request.header_str("content-type"), body) {
                    Ok(payload) => payload,
                    Err(error) => return self.refuse_sockjs(&asked, error, out),
                }
            }
            _ => Cow::Borrowed(&body[..]),
        };
        let limits = Limits { messages_max: options.messages_max };
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
            Err(error) => return self.refuse_sockjs(&asked, error, out),
        };
        if let Some((rest_bytes, left)) = self.deliver_sockjs(id, messages, request) {
            let payload_bytes = payload.len();
            if let Cow::Owned(payload) = payload {
                *body = payload;
            }
            (*done, *begun) = (payload_bytes - rest_bytes, Some(left));
            return Verdict::Rest;
        }
        let status = route.resource.status();
        let body: &[u8] = if status == 204 { b"" } else { answer::JSONP_SENT.as_bytes() };
        asked.answer(out, status, &asked.headers(), body)
    }
}
