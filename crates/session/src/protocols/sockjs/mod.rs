//! SockJS, according to its runnable specification (sockjs-protocol, `main`): clients over HTTP, and WebSockets.
//!
//! ```text
//!  first receiver ──► open ◄──► attached (a poll, or a stream until it has reached its limit)
//!                       │            │
//!   disconnect_delay    │            │ the server closes it, or the receiver's connection is lost
//!                       ▼            ▼
//!                   removed ◄── ended: later receivers get the close code, for disconnect_delay
//! ```
//!
//! Over WebSocket, a session ends with its connection, and the id in the path has no meaning. Only the messages differ from
//! those of a plain session ([`messages`]); the heartbeats are WebSocket's. Over HTTP, a session is a [`Client`]. Its id is a
//! digest, under the node's seed, of prefix, key and the session id that the client chose. So ids of any form cost the same,
//! are evenly distributed, and name the core that owns the session. Requests that arrive on another core are moved.
//!
//! [`routes`] has the paths, and this file handles their requests; [`receiver`] writes the responses that carry frames;
//! [`client`] handles messages, heartbeats and the end; [`socket`] is the dialect of WebSockets, and [`encode`] writes
//! frames.
//!
//! Deliberately absent: hixie-76 (see [`stentor_wire::sockjs`]).

mod client;
mod encode;
mod messages;
mod receiver;
mod routes;
mod socket;

pub(crate) use client::Client;
pub(crate) use encode::Frames;
pub(crate) use receiver::Receiver;
pub(crate) use routes::SockJs;
pub(crate) use socket::OnWebSocket;

use crate::app::{Decided, Envelope, Refused};
use crate::executor::Feeds;
use crate::identity::{ClientId, Owner, Service, Sid};
use crate::model::{Key, KeyError, Policy, SessionId};
use crate::options::{self, Options};
use crate::ports::{Denial, Handover, Location, SessionClaim, SessionName};
use crate::protocols::client::{ActiveTransport, Client as _};
use crate::protocols::clients::{ClientTable, Clients as AllClients};
use crate::protocols::dialect::Plain;
use crate::protocols::message::{self, scope_of};
use crate::protocols::opening::{Admitted, NotAdmitted, Opening};
use crate::protocols::request::{
    BufferedRequest, RequestContext, RequestOutcome, Suspended, borrowed, challenge, key_of_path, status_of,
    write_piece,
};
use crate::protocols::response::ResponseState;
use crate::protocols::token::disconnect_for;
use crate::protocols::upgrade;
use receiver::PollStart;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use stentor_wire::http1::{self, Version};
use stentor_wire::sockjs::answer::{
    self, Callback, Cors, Header, Iframe, push_error_headers, push_headers, push_preflight_headers,
};
use stentor_wire::sockjs::{
    Close, Error, Frame, Limits, Messages, Resource, ResponseLimit, Route, Transport, Wrapping,
};
use stentor_wire::ws::handshake;

type Outcome = RequestOutcome;
type Clients = ClientTable<Client>;

/// The text of the response to messages for a session that doesn't exist.
const NO_SESSION: &str = "there is no such session";

/// The requested resource below a prefix, and the properties that determine the form of the response.
struct Exchange<'a> {
    service: Service,
    settings: &'a options::SockJs,
    resource: Resource<'a>,
    key: Option<Key>,
}

impl Exchange<'_> {
    /// The headers of a successful answer.
    fn headers<'r>(&self, cx: &RequestContext<'r>) -> Vec<Header<'r>> {
        let mut headers = Vec::with_capacity(12);
        push_headers(&mut headers, &self.resource, &Cors::of(cx.request));
        headers
    }

    /// Writes the headers of a response. `length` is the header that determines where the response ends, unless it ends
    /// with the connection.
    fn write_head(
        &self,
        cx: &RequestContext<'_>,
        out: &mut Vec<u8>,
        status: u16,
        headers: &[(&str, &str)],
        length: Option<(&str, &str)>,
    ) {
        let cookie;
        let mut all: Vec<(&str, &str)> = vec![("Date", cx.options.date.as_str())];
        all.extend_from_slice(headers);
        let is_typed = headers.iter().any(|(name, _)| *name == "Content-Type");
        if is_typed && !headers.iter().any(|(name, _)| *name == "X-Content-Type-Options") {
            all.push(("X-Content-Type-Options", "nosniff"));
        }
        all.push(("Connection", if cx.options.keep_alive { "keep-alive" } else { "close" }));
        if self.settings.jsessionid && self.resource.has_cookie() {
            cookie = answer::jsessionid(cx.request.header_str("cookie"), cx.ex.options().cookie_path());
            all.push(("Set-Cookie", &cookie));
        }
        all.extend(length);
        http1::write_response_head(out, status, &all);
    }

    /// Sends a complete answer.
    fn answer(
        &self,
        cx: &mut RequestContext<'_>,
        status: u16,
        headers: &[Header<'_>],
        body: &[u8],
    ) -> Outcome {
        let length = body.len().to_string();
        let length = (!matches!(status, 204 | 304)).then_some(("Content-Length", &*length));
        let mut out = std::mem::take(cx.out);
        self.write_head(cx, &mut out, status, headers, length);
        out.extend_from_slice(body);
        *cx.out = out;
        cx.answered()
    }

    /// Answers with an error text for people.
    fn refuse(&self, cx: &mut RequestContext<'_>, status: u16, words: &str) -> Outcome {
        cx.count_error();
        let mut headers = Vec::new();
        push_error_headers(&mut headers, &self.resource, &Cors::of(cx.request));
        self.answer(cx, status, &headers, format!("{words}\n").as_bytes())
    }

    /// Answers a client that is refused.
    fn refuse_denied(&self, cx: &mut RequestContext<'_>, denial: &Denial) -> Outcome {
        cx.count_error();
        let challenge = challenge(denial);
        let mut headers: Vec<(&str, &str)> = Vec::new();
        push_error_headers(&mut headers, &self.resource, &Cors::of(cx.request));
        headers.extend(challenge.as_ref().map(|(name, value)| (*name, &**value)));
        self.answer(cx, status_of(denial), &headers, format!("{}\n", denial.message).as_bytes())
    }

    /// Answers with an error of the protocol.
    fn fail(&self, cx: &mut RequestContext<'_>, error: Error) -> Outcome {
        self.refuse(cx, error.status(), error.body())
    }

    /// Returns the id of a client: a digest, under the node's seed, of prefix, key and the session's name in the path.
    fn sid(&self, cx: &RequestContext<'_>, session: &str) -> Sid {
        let half = |half: u8| {
            let key = self.key.as_ref().map(Key::as_str);
            let mut hasher = DefaultHasher::new();
            (cx.ex.shared.seed, half, self.service, key, session).hash(&mut hasher);
            hasher.finish()
        };
        Sid::digest([half(0), half(1)])
    }

    /// Looks on the other nodes of a cluster for a session that this node doesn't have. With `opens`, this node opens the
    /// session if no node has it. `location` is the answer for which the request waited. `None` if this node answers the
    /// request.
    fn find_elsewhere(
        &self,
        cx: &mut RequestContext<'_>,
        session: &str,
        opens: bool,
        location: Option<&Location>,
    ) -> Option<Outcome> {
        let relay = cx.ex.options().relay.as_ref()?;
        match location {
            // The session's node can't be reached.
            None if cx.handover == Some(Handover::Returned) => None,
            None => {
                let key = self.key.as_ref().map(Key::as_str);
                let name = SessionName { prefix: &self.settings.prefix, key, session };
                relay.locate(name, opens, cx.ex.when_located(cx.conn));
                Some(Outcome::Suspended(Suspended::until_located(|cx, clients, location| {
                    continue_request(cx, clients, Late { location: Some(location), ..Late::default() })
                })))
            }
            Some(Location::Node(node)) => cx.relay_to(*node),
            Some(Location::Here(_) | Location::Unknown) => None,
        }
    }

    /// Begins a response that carries frames to a client.
    fn begin(
        &self,
        cx: &mut RequestContext<'_>,
        client: ClientId,
        transport: Transport,
        extra: &[(String, String)],
    ) -> Option<Receiver> {
        let wrapping = Wrapping::of(transport)?;
        let callback = callback_of(cx, transport).ok()?;
        let is_poll = matches!(transport, Transport::Xhr | Transport::Jsonp);
        let chunked = !is_poll && cx.request.version() == Version::Http11;
        cx.options.keep_alive &= is_poll || chunked;
        let mut receiver = Receiver {
            client,
            state: ResponseState::new(cx.options.keep_alive),
            wrapping,
            chunked,
            limit: ResponseLimit::new(transport, self.settings.response_bytes_max),
            poll: None,
        };
        let mut headers: Vec<(&str, &str)> = self.headers(cx);
        headers.extend(borrowed(extra));
        if !is_poll {
            // Disables buffering in nginx, which would delay frames.
            headers.push(("X-Accel-Buffering", "no"));
        }
        let mut head = Vec::with_capacity(384);
        let length = chunked.then_some(("Transfer-Encoding", "chunked"));
        self.write_head(cx, &mut head, 200, &headers, length);
        if is_poll {
            // Removes the empty line after the headers: the length is appended later, as the last header.
            head.truncate(head.len() - 2);
            let mut call = Vec::new();
            if let Some(callback) = &callback {
                stentor_wire::sockjs::write_jsonp_callback(&mut call, callback);
            }
            receiver.poll = Some(Box::new(PollStart { head, callback: call }));
            return Some(receiver);
        }
        cx.out.append(&mut head);
        let mut prelude = Vec::with_capacity(2_100);
        match &callback {
            Some(callback) => answer::write_html_prelude(&mut prelude, callback),
            None => answer::write_prelude(&mut prelude, transport),
        }
        write_piece(cx.out, chunked, &prelude);
        Some(receiver)
    }
}

/// Makes the exchange for a service's resource, with the key in its path.
fn exchange<'a>(
    options: &'a Options,
    service: Service,
    route: &Route<'a>,
) -> Option<(Exchange<'a>, Option<KeyError>)> {
    let settings = options.sockjs.get(service.place()?)?;
    let (key, error) = match route.key.map(|key| key_of_path(key, &options.keys)).transpose() {
        Ok(key) => (key, None),
        Err(error) => (None, Some(error)),
    };
    Some((Exchange { service, settings, resource: route.resource, key }, error))
}

/// Makes the exchange for a path under a prefix.
fn exchange_of<'a>(path: &'a str, options: &'a Options) -> Option<(Exchange<'a>, Route<'a>)> {
    let (service, route) = routes::route_of(path, options)?;
    Some((exchange(options, service, &route)?.0, route))
}

/// The answer for which a request waited.
#[derive(Default)]
struct Late {
    /// The decision about the token of a request of a client.
    decided: Option<Decided>,
    /// The node of the session that the request names.
    location: Option<Location>,
}

/// Continues a request for a session with the answer for which it waited.
fn continue_request(cx: &mut RequestContext<'_>, clients: &mut AllClients, late: Late) -> Outcome {
    let current = cx.ex.options.clone();
    // The prefix may have been removed from the configuration while the request waited.
    match exchange_of(cx.request.path(), &current) {
        Some((exchange, Route { resource: Resource::Session { session, transport, .. }, .. })) => {
            handle_session(cx, clients, &exchange, session, transport, late)
        }
        _ => Outcome::LAST,
    }
}

/// Handles the headers of a request to a path under a prefix.
fn handle_request(
    cx: &mut RequestContext<'_>,
    clients: &mut AllClients,
    service: Service,
    route: &Route<'_>,
) -> Outcome {
    let (current, request) = (cx.ex.options.clone(), cx.request);
    let Some((exchange, bad_key)) = exchange(&current, service, route) else {
        return Outcome::LAST;
    };
    let (resource, settings) = (exchange.resource, exchange.settings);
    cx.options.head_only = false;
    if cx.is_upgrade() && !resource.is_websocket() {
        return exchange.refuse(cx, 400, "there is no WebSocket here");
    }
    if resource.is_websocket() && !settings.websocket {
        return exchange.refuse(cx, 404, "there are no WebSockets here");
    }
    if !resource.allows(request.method()) {
        cx.count_error();
        return exchange.answer(cx, 405, &[("Allow", resource.methods())], b"");
    }
    if request.method() == "OPTIONS" {
        let mut headers = Vec::new();
        push_preflight_headers(&mut headers, &resource, &Cors::of(request));
        return exchange.answer(cx, 204, &headers, b"");
    }
    if let Some(error) = bad_key {
        return exchange.refuse(cx, 400, &error.to_string());
    }
    match resource {
        Resource::Greeting => exchange.answer(cx, 200, &exchange.headers(cx), answer::GREETING.as_bytes()),
        Resource::Iframe => {
            let ancestors = current.origins.ancestors();
            let iframe = &Iframe::new(&settings.client_url, ancestors.as_deref());
            if request.header_str("if-none-match").is_some_and(|tags| iframe.is_named_by(tags)) {
                let mut headers = Vec::new();
                answer::push_unchanged_headers(&mut headers, iframe);
                return exchange.answer(cx, 304, &headers, b"");
            }
            let mut headers: Vec<Header<'_>> = exchange.headers(cx);
            headers.push(("ETag", iframe.etag()));
            headers.extend(iframe.ancestors().map(|policy| ("Content-Security-Policy", policy)));
            exchange.answer(cx, 200, &headers, iframe.page().as_bytes())
        }
        Resource::Info => {
            let mut body = Vec::with_capacity(96);
            let entropy = cx.ex.context.sids.number();
            answer::write_info(&mut body, settings.websocket, settings.jsessionid, entropy);
            exchange.answer(cx, 200, &exchange.headers(cx), &body)
        }
        Resource::RawWebSocket | Resource::Session { transport: Transport::WebSocket, .. } => {
            if let Err(error) = handshake::check_request(request, None) {
                return cx.refuse_last(400, error.headers(), answer::NOT_WEBSOCKET);
            }
            let is_raw = matches!(resource, Resource::RawWebSocket);
            let dialect = if is_raw { Plain.into() } else { OnWebSocket.into() };
            upgrade::handle_request(cx, clients, dialect, service, exchange.key)
        }
        Resource::Session { session, transport, .. } => {
            handle_session(cx, clients, &exchange, session, transport, Late::default())
        }
    }
}

/// The function that a JSONP request or an htmlfile request calls.
fn callback_of<'r>(cx: &RequestContext<'r>, transport: Transport) -> Result<Option<Callback<'r>>, Error> {
    match transport {
        Transport::HtmlFile | Transport::Jsonp => Callback::from_query(cx.request.query()).map(Some),
        _ => Ok(None),
    }
}

/// Handles the headers of a request that names a session over HTTP. `late` is the answer for which the request waited.
fn handle_session(
    cx: &mut RequestContext<'_>,
    clients: &mut AllClients,
    exchange: &Exchange<'_>,
    session: &str,
    transport: Transport,
    late: Late,
) -> Outcome {
    if let Err(error) = callback_of(cx, transport) {
        return exchange.fail(cx, error);
    }
    let sid = exchange.sid(cx, session);
    let home = sid.core(cx.ex.shared.cores);
    if home != cx.ex.context.core {
        return cx.move_to(home);
    }
    let sends = matches!(transport, Transport::XhrSend | Transport::JsonpSend);
    let known = clients.sockjs.find(sid);
    if let Some(id) = known {
        let session: SmallVec<[SessionId; 1]> =
            clients.sockjs.get(id).and_then(|client| client.session).into_iter().collect();
        match cx.check_token(id, "sockjs", &session, late.decided) {
            Ok(()) => {}
            // The client may end while the request waits, so it is looked up again.
            Err(Refused::Pending) => {
                return cx.wait_for_one(|cx, clients, decided| {
                    continue_request(cx, clients, Late { decided, ..Late::default() })
                });
            }
            Err(Refused::Denied(denial)) => return exchange.refuse_denied(cx, &denial),
        }
    } else if let Some(outcome) = exchange.find_elsewhere(cx, session, !sends, late.location.as_ref()) {
        return outcome;
    }
    match known {
        None if sends => exchange.refuse(cx, 404, NO_SESSION),
        Some(_) if sends => cx.body(),
        Some(id) => receive(cx, &mut clients.sockjs, exchange, id, transport, None),
        None => {
            let claim = if let Some(Location::Here(claim)) = late.location { Some(claim) } else { None };
            open(cx, clients, exchange, sid, transport, claim)
        }
    }
}

/// Handles a receiver: a request for frames. `headers` are the application's headers if the request has opened the session.
fn receive(
    cx: &mut RequestContext<'_>,
    clients: &mut Clients,
    exchange: &Exchange<'_>,
    id: ClientId,
    transport: Transport,
    headers: Option<&[(String, String)]>,
) -> Outcome {
    let is_poll = matches!(transport, Transport::Xhr | Transport::Jsonp);
    let Some(client) = clients.get_mut(id) else { return Outcome::LAST };
    let is_new = headers.is_some();
    let Some(mut receiver) = exchange.begin(cx, id, transport, headers.unwrap_or_default()) else {
        return Outcome::LAST;
    };
    let (ex, out) = (&mut *cx.ex, &mut *cx.out);
    let now = ex.millis();
    let (heartbeat, delay) = (exchange.settings.heartbeat, exchange.settings.disconnect_delay);
    client.state.alive_at = now;
    ex.arm_client(id);
    if client.state.transport != ActiveTransport::None {
        receiver.refuse(out, Close::ANOTHER_CONNECTION);
        return cx.answered();
    }
    if client.state.ended {
        client.state.due_at = now.after(delay);
        receiver.write_end(client, ex, out);
        return cx.answered();
    }
    if let Some(session) = client.session {
        ex.set_encoding(session, client.encoding(receiver.wrapping));
    }
    if is_new {
        receiver.write_frame(out, &Frame::Open);
    } else if is_poll {
        receiver.messages(client, ex, out);
    }
    let (transport, time) = match receiver.state.is_whole {
        true => (ActiveTransport::None, delay),
        false if is_poll => (ActiveTransport::Poll(cx.conn), heartbeat),
        false => (ActiveTransport::Stream(cx.conn), heartbeat),
    };
    client.set_transport(ex, transport);
    client.state.due_at = now.after(time);
    ex.flush_client(id);
    Outcome::Waiting(Box::new(receiver))
}

/// Opens a session for its first receiver, if the client may connect. `claim` is the node's claim to the session.
fn open(
    cx: &mut RequestContext<'_>,
    clients: &mut AllClients,
    exchange: &Exchange<'_>,
    sid: Sid,
    transport: Transport,
    claim: Option<Arc<dyn SessionClaim>>,
) -> Outcome {
    if let Some(unavailable) = cx.unavailable_to_new_clients() {
        return unavailable;
    }
    if let Err(reached) = cx.ex.check_address(cx.client.source()) {
        return cx.refuse_limit(reached);
    }
    let (service, push_only) = (exchange.service, exchange.key.is_some());
    let envelope = if push_only { Envelope::Raw } else { cx.ex.app_of(service).envelope() };
    let opening = Opening::new("sockjs", envelope, service).push_only(push_only);
    cx.admit(clients, opening, move |cx, clients, admitted| {
        // Another request may have opened the session while this one waited.
        if clients.sockjs.find(sid).is_some() {
            return continue_request(cx, clients, Late::default());
        }
        let current = cx.ex.options.clone();
        let Some((exchange, _)) = exchange_of(cx.request.path(), &current) else {
            return Outcome::LAST;
        };
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err(NotAdmitted::Denied(denial)) => return refuse_client(cx, &exchange, transport, &denial),
            Err(NotAdmitted::Refused { status, message }) => return exchange.refuse(cx, status, &message),
        };
        if let Some(unavailable) = cx.unavailable_to_new_clients() {
            return unavailable;
        }
        let (id, headers) =
            add_client(cx, &mut clients.sockjs, &exchange, sid, transport, (envelope, claim, admitted));
        receive(cx, &mut clients.sockjs, &exchange, id, transport, Some(&headers))
    })
}

/// Refuses a client whose token isn't accepted. Pages can't read the status of a response, and the client would try other
/// transports. So the response is a close frame.
fn refuse_client(
    cx: &mut RequestContext<'_>,
    exchange: &Exchange<'_>,
    transport: Transport,
    denial: &Denial,
) -> Outcome {
    let why = disconnect_for(denial);
    cx.count_error();
    cx.ex.count_disconnect(why);
    let Some(mut receiver) = exchange.begin(cx, ClientId::NONE, transport, &[]) else {
        return Outcome::LAST;
    };
    receiver.refuse(cx.out, Close { code: why.code(), reason: why.reason() });
    cx.answered()
}

/// Adds a client that may connect, and opens its session. Returns the client, and the application's headers for the first
/// response.
fn add_client(
    cx: &mut RequestContext<'_>,
    clients: &mut Clients,
    exchange: &Exchange<'_>,
    sid: Sid,
    transport: Transport,
    (envelope, claim, Admitted { identity, headers }): (Envelope, Option<Arc<dyn SessionClaim>>, Admitted),
) -> (ClientId, Vec<(String, String)>) {
    let (service, push_only) = (exchange.service, exchange.key.is_some());
    let ex = &mut *cx.ex;
    let mut client = Client::new(ex, sid, cx.client.source(), (service, envelope, push_only));
    client.claim = claim;
    let client = clients.insert(client);
    let id = client.state.id;
    cx.remember_client(id, "sockjs", identity.clone());
    let ex = &mut *cx.ex;
    let wrapping = Wrapping::of(transport).unwrap_or(Wrapping::Xhr);
    let encoding = client.encoding(wrapping);
    let session = ex.open_session(encoding, Owner::Client(id), cx.client.source(), identity);
    client.session = Some(session);
    if !push_only {
        let scope = scope_of(session, encoding, service, Some(cx.request));
        message::open(ex, scope, &mut client.state.queue);
        ex.join_rooms(session, "/");
        client.charge(ex);
    }
    let (keys, options) = (exchange.key.iter().cloned().collect(), Policy::Latest.into());
    ex.subscribe_feeds(cx.conn, session, Feeds { keys, options });
    (id, headers)
}

/// Handles a body with messages, or the rest of the body.
fn handle_body(
    cx: &mut RequestContext<'_>,
    clients: &mut Clients,
    service: Service,
    route: &Route<'_>,
    buffered: &mut BufferedRequest,
) -> Outcome {
    let BufferedRequest { body, done, begun, .. } = buffered;
    let (current, request) = (cx.ex.options.clone(), cx.request);
    let Some((exchange, _)) = exchange(&current, service, route) else { return Outcome::LAST };
    let Resource::Session { session, transport, .. } = route.resource else { return Outcome::LAST };
    // The session may have ended while the body was arriving.
    let client = clients.find(exchange.sid(cx, session)).and_then(|id| clients.get_mut(id));
    let Some(client) = client else { return exchange.refuse(cx, 404, NO_SESSION) };
    let payload = match transport {
        Transport::JsonpSend if begun.is_none() => {
            stentor_wire::sockjs::jsonp_payload(request.header_str("content-type"), body)
        }
        _ => Ok(Cow::Borrowed(&body[..])),
    };
    let limits = Limits { messages_max: exchange.settings.messages_max };
    let messages = payload.as_ref().map_err(|error| *error).and_then(|payload| match begun {
        // The rest of a body: the token was checked when the request arrived.
        Some(left) => {
            let rest = payload.get(*done..).and_then(|rest| std::str::from_utf8(rest).ok());
            Ok(Messages::resume(rest.unwrap_or_default(), *left))
        }
        None => stentor_wire::sockjs::parse_body(payload, &limits),
    });
    let messages = match messages {
        Ok(messages) => messages,
        Err(error) => return exchange.fail(cx, error),
    };
    if cx.ex.questions.waiting.waits_for_earlier(cx.conn, client.state.id) {
        return Outcome::Rest;
    }
    let payload_bytes = payload.as_ref().map_or(0, |payload| payload.len());
    if let Some((rest_bytes, left)) =
        client.handle_messages(cx.ex, messages, payload_bytes, (cx.conn, request))
    {
        let payload = payload.unwrap_or_default();
        if let Cow::Owned(payload) = payload {
            *body = payload;
        }
        (*done, *begun) = (payload_bytes - rest_bytes, Some(left));
        return Outcome::Rest;
    }
    let status = route.resource.status();
    let body: &[u8] = if status == 204 { b"" } else { answer::JSONP_SENT.as_bytes() };
    exchange.answer(cx, status, &exchange.headers(cx), body)
}
