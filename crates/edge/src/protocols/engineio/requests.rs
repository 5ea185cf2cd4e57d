//! Requests to `/engine.io/` and `/socket.io/`.

use super::{ApplicationProtocol, Client, Poll, Probe, payload};
use crate::app::{Connect, Envelope, HandlerScope};
use crate::encode::Format;
use crate::encode::{EngineWriter, FrameTarget, Writer};
use crate::executor::budget::MESSAGE_BYTES;
use crate::executor::{Effect, Feeds};
use crate::identity::Service;
use crate::identity::{ClientId, End, Owner, Sid};
use crate::model::Disconnect;
use crate::protocols::client::{ActiveTransport, Next, TransportStatus};
use crate::protocols::clients::ClientTable;
use crate::protocols::query::ConnectQuery;
use crate::protocols::request::{
    BufferedRequest, RequestContext, RequestOutcome, ResponseOptions, answer, cors, push_credentials, text,
};
use crate::protocols::socketio::{Carrier, SocketIo};
use stentor_wire::engineio::{
    self, Open, PacketKind, PayloadDecoder, PayloadFormat, Request as Query, RequestError, Transport, Version,
};
use stentor_wire::http1::Request;
use stentor_wire::ws::handshake::{self, Accepted};

type Outcome = RequestOutcome<Poll>;
type Clients = ClientTable<Client>;

/// A request as it is answered.
struct Exchange<'a, 'r> {
    cx: &'a mut RequestContext<'r>,
    request: &'a Request<'a>,
    out: &'a mut Vec<u8>,
}

/// Handles the head of a request.
pub(crate) fn handle_request(
    cx: &mut RequestContext<'_>,
    clients: &mut Clients,
    departed: impl Fn(Sid) -> Option<usize>,
    request: &Request<'_>,
    is_socketio: bool,
    out: &mut Vec<u8>,
) -> Outcome {
    let mut exchange = Exchange { cx, request, out };
    if request.method() == "OPTIONS" {
        return exchange.preflight();
    }
    let is_upgrade = request.headers().list_has("upgrade", "websocket");
    let query = match Query::parse(request.query()) {
        Ok(query) => query,
        Err(error) => return exchange.refuse(error, None),
    };
    if query.version == Version::V3 && !exchange.cx.ex.options().engine.allow_version_3 {
        return exchange.refuse(RequestError::UnsupportedVersion, None);
    }
    let found = match query.sid.as_deref() {
        None => None,
        Some(sid) => match exchange.find(clients, departed, sid) {
            Ok(id) => Some(id),
            Err(outcome) => return outcome,
        },
    };
    if let Err(error) = query.check_method(request.method(), is_upgrade) {
        return exchange.refuse(error, None);
    }
    let Some(id) = found else { return exchange.handshake(clients, &query, is_socketio) };
    let Some(client) = clients.get_mut(id) else {
        return exchange.refuse(RequestError::UnknownSession, None);
    };
    // Another version or protocol on the same id isn't its client's doing (CVE-2026-102599).
    if client.version != query.version || client.is_socketio != is_socketio {
        return exchange.refuse(RequestError::BadRequest, None);
    }
    match (query.transport, request.method()) {
        (Transport::WebSocket, _) => exchange.probe(client),
        // CVE-2026-59725: answered, and the connection goes on.
        (_, "POST") if !client.is_polling() || payload_format(request, &query).is_none() => {
            exchange.refuse(RequestError::BadRequest, None)
        }
        (_, "POST") => Outcome::Body { bytes_max: exchange.cx.ex.options().limits.message_bytes_max },
        _ => exchange.poll(client, &query),
    }
}

/// Handles the body of a client's POST, or what is left of it: as much as may be published at once.
pub(crate) fn handle_body(
    cx: &mut RequestContext<'_>,
    clients: &mut Clients,
    request: &Request<'_>,
    buffered: &mut BufferedRequest,
    out: &mut Vec<u8>,
) -> Outcome {
    let mut exchange = Exchange { cx, request, out };
    let Ok(query) = Query::parse(request.query()) else {
        return exchange.refuse(RequestError::BadRequest, None);
    };
    let id = query.sid.as_deref().and_then(Sid::parse).and_then(|sid| clients.find(sid));
    // It may have ended, or moved on, while the body was on its way.
    let client = id.and_then(|id| clients.get_mut(id)).filter(|client| client.is_polling());
    let Some(client) = client else { return exchange.refuse(RequestError::UnknownSession, None) };
    exchange.packets(client, &query, buffered)
}

impl Exchange<'_, '_> {
    fn options(&self) -> ResponseOptions {
        ResponseOptions::of(self.request, self.cx.ex.draining)
    }

    /// The client that a request names.
    fn find(
        &mut self,
        clients: &mut Clients,
        departed: impl Fn(Sid) -> Option<usize>,
        sid: &str,
    ) -> Result<ClientId, Outcome> {
        let Some(sid) = Sid::parse(sid) else { return Err(self.refuse(RequestError::UnknownSession, None)) };
        let ex = &mut *self.cx.ex;
        let home = sid.core(ex.shared.cores);
        let elsewhere = if home == ex.context.core { departed(sid) } else { Some(home) };
        match (clients.find(sid), elsewhere) {
            (Some(id), _) => {
                if let Some(client) = clients.get_mut(id)
                    && client.is_overdue(ex)
                {
                    client.handle_timeout(ex, TransportStatus::default());
                    if client.state.removed {
                        return Err(self.refuse(RequestError::UnknownSession, None));
                    }
                }
                Ok(id)
            }
            (None, Some(core)) if !ex.draining && !self.cx.stays => Err(Outcome::Move(core)),
            (None, Some(_)) => {
                let why = "the session's core is busy; try again";
                text(self.out, ResponseOptions::LAST, 503, &[("Retry-After", "1")], why);
                Err(Outcome::LAST)
            }
            (None, None) => Err(self.refuse(RequestError::UnknownSession, None)),
        }
    }

    /// The answer to what a browser asks before a request that it finds unusual (Fetch, 3.2.2).
    fn preflight(&mut self) -> Outcome {
        let options = self.options();
        let mut extra = cors_of(self.cx, self.request);
        extra.push(("Access-Control-Allow-Methods", "GET,POST"));
        if let Some(headers) = self.request.header_str("access-control-request-headers") {
            extra.push(("Access-Control-Allow-Headers", headers));
        }
        answer(self.out, options, 204, "text/plain", &extra, b"");
        Outcome::Answered { keep_alive: options.keep_alive }
    }

    fn refuse(&mut self, error: RequestError, message: Option<&str>) -> Outcome {
        self.cx.count_error();
        let mut body = Vec::with_capacity(64);
        error.write_body(&mut body, message);
        // A client that meant to speak WebSocket continues in frames.
        let is_upgrade = self.request.headers().list_has("upgrade", "websocket");
        let options = if is_upgrade { ResponseOptions::LAST } else { self.options() };
        answer(self.out, options, error.status(), "application/json", &cors_of(self.cx, self.request), &body);
        Outcome::Answered { keep_alive: options.keep_alive }
    }

    fn unavailable(&mut self, retry_after: &str, why: &str) -> Outcome {
        text(self.out, ResponseOptions::LAST, 503, &[("Retry-After", retry_after)], why);
        Outcome::LAST
    }

    fn handshake(&mut self, clients: &mut Clients, query: &Query<'_>, is_socketio: bool) -> Outcome {
        if self.cx.ex.draining {
            return self.unavailable("1", "the server is shutting down");
        }
        if self.cx.clients >= self.cx.ex.options().limits.connections_max {
            return self.unavailable("5", "too many sessions (limits.connections_max)");
        }
        // Clients of Socket.IO expect whole documents unless they say otherwise.
        let parsed = ConnectQuery::parse(self.request.query()).and_then(|mut query| {
            let feeds = query.feeds(None, !is_socketio)?;
            Ok((feeds, query.raw))
        });
        let (feeds, raw) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => return self.refuse(RequestError::BadRequest, Some(&error.to_string())),
        };
        let accepted = match query.transport {
            Transport::Polling => None,
            // Compression is off for these, as in their own server: a frame is shared with polls' records.
            Transport::WebSocket => match handshake::check_request(self.request, None) {
                Ok(accepted) => Some(accepted),
                Err(_) => return self.refuse(RequestError::BadRequest, None),
            },
        };
        let known = self.cx.admission.as_ref().and_then(|admission| admission.1);
        let sid = known.unwrap_or_else(|| self.cx.ex.draw_sid());
        let name = sid.to_string();
        let service = Service::default();
        let headers = match self.cx.ask_to_connect(self.request, Envelope::Raw, service, Some(&name)) {
            Connect::Accept => Vec::new(),
            Connect::AcceptWith(headers) => headers,
            Connect::Pending => return Outcome::Admission(Some(sid)),
            Connect::Refuse { message, .. } => return self.refuse(RequestError::Forbidden, Some(&message)),
        };
        let transport = match accepted {
            Some(_) => ActiveTransport::WebSocket(self.cx.conn),
            None => ActiveTransport::None,
        };
        let ex = &mut *self.cx.ex;
        let mut client = Client::new(ex, sid, self.cx.source, transport, query.version);
        client.is_socketio = is_socketio;
        client.base64 = query.base64;
        if is_socketio {
            let connect_until = ex.millis().after(ex.options().engine.connect_timeout);
            client.application = ApplicationProtocol::SocketIo(Box::new(SocketIo::new(connect_until, None)));
        }
        let client = clients.insert(client);
        ex.push(Effect::ArmClient(client.state.id));
        self.accept(client, query, (feeds, raw), accepted, headers)
    }

    /// Answers the handshake of a new client.
    fn accept(
        &mut self,
        client: &mut Client,
        query: &Query<'_>,
        wanted: (Feeds, bool),
        accepted: Option<Accepted>,
        headers: Vec<(String, String)>,
    ) -> Outcome {
        let (id, name) = (client.state.id, client.state.sid.to_string());
        let engine = &self.cx.ex.options().engine;
        let delay = engine.open_delay;
        let cookie = engine.cookie.as_ref().map(|cookie| {
            let secure = if engine.cookie_secure { "; Secure" } else { "" };
            let same_site = engine.cookie_same_site.name();
            let value = format!("{cookie}={name}; Path=/; HttpOnly{secure}; SameSite={same_site}");
            ("Set-Cookie".to_owned(), value)
        });
        let headers: Vec<(String, String)> = headers.into_iter().chain(cookie).collect();
        let extra: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        let open = self.open_packet(&name, query);
        let Some(accepted) = accepted else {
            let writer = EngineWriter { version: query.version, target: FrameTarget::Poll };
            let mut queue = Vec::with_capacity(192);
            writer.text(&mut queue, &open);
            self.open(client, wanted, &mut queue);
            let poll = self.new_poll(client, query);
            payload::write_answer(self.out, query.version, &poll, &queue, &extra);
            return Outcome::Answered { keep_alive: poll.keep_alive };
        };
        accepted.write_response(self.out, &extra, handshake::subprotocols(self.request).next());
        let writer = EngineWriter { version: query.version, target: FrameTarget::WebSocket };
        let mut packets = if delay.is_zero() { std::mem::take(self.out) } else { Vec::new() };
        writer.text(&mut packets, &open);
        self.open(client, wanted, &mut packets);
        if delay.is_zero() {
            *self.out = packets;
        } else {
            let at = self.cx.ex.context.now + delay;
            self.cx.ex.push(Effect::WriteLater(at, id, packets));
        }
        Outcome::UpgradedTo(id)
    }

    fn open_packet(&self, sid: &str, query: &Query<'_>) -> String {
        let options = self.cx.ex.options();
        let open = Open {
            sid: sid.into(),
            websocket_upgrade: query.transport == Transport::Polling,
            ping_interval: options.heartbeat.interval,
            ping_timeout: options.heartbeat.timeout,
            payload_bytes_max: Some(options.limits.message_bytes_max as u64),
        };
        let mut packet = vec![PacketKind::Open.digit()];
        open.write(query.version, &mut packet);
        String::from_utf8(packet).unwrap_or_default()
    }

    /// Opens the session of a new client.
    fn open(&mut self, client: &mut Client, (feeds, raw): (Feeds, bool), out: &mut Vec<u8>) {
        let engine = client.writer();
        let carrier = Carrier::of(&client.state, engine);
        let ex = &mut *self.cx.ex;
        if let ApplicationProtocol::SocketIo(io) = &mut client.application {
            io.set_feeds(feeds);
            // Clients of protocol 4 are connected to the main namespace unasked.
            if client.version == Version::V3 {
                io.connect_unasked(ex, carrier, self.request, out);
            }
            return;
        }
        let envelope = if raw { Envelope::Raw } else { ex.app_of(Service::default()).envelope() };
        let format = Format::engine_io(engine, envelope, false);
        let session = ex.open_session(format, Owner::Client(client.state.id), client.state.source);
        client.application = ApplicationProtocol::Plain { session, envelope };
        let scope = HandlerScope {
            session: Some(session),
            writer: Writer::Engine(engine),
            envelope,
            request: Some(self.request),
            ..HandlerScope::default()
        };
        ex.call_app(scope, out, |app, ctx| app.opened(ctx, session, envelope));
        ex.subscribe_feeds(session, feeds);
    }

    /// A client polls.
    fn poll(&mut self, client: &mut Client, query: &Query<'_>) -> Outcome {
        let mut poll = self.new_poll(client, query);
        poll.base64 |= client.base64;
        let ex = &mut *self.cx.ex;
        client.state.alive_at = ex.millis();
        match client.state.transport {
            // It has moved on.
            ActiveTransport::WebSocket(_) => return self.refuse(RequestError::BadRequest, None),
            // Two at once: whoever polls doesn't know what it does, or isn't the client.
            ActiveTransport::Poll(_) => {
                client.end(ex, End::Fault);
                return self.refuse(RequestError::BadRequest, None);
            }
            ActiveTransport::None | ActiveTransport::Stream(_) => {}
        }
        if client.state.ended {
            let last_words = client.take_queue();
            if client.state.may_reconnect {
                payload::write_unavailable(self.out, &poll);
                client.remove(ex);
            } else if last_words.is_empty() {
                payload::write_answer(self.out, query.version, &poll, &payload::END, &[]);
                client.remove(ex);
            } else {
                // The next poll is told of the end.
                payload::write_answer(self.out, query.version, &poll, &last_words, &[]);
            }
            return Outcome::Answered { keep_alive: poll.keep_alive };
        }
        let records = client.take_records(ex);
        if records.is_empty() {
            client.state.transport = ActiveTransport::Poll(self.cx.conn);
        } else {
            poll.answered = true;
            payload::write_answer(self.out, query.version, &poll, &records, &[]);
        }
        Outcome::Waiting(poll)
    }

    /// Handles the packets of a POST.
    fn packets(&mut self, client: &mut Client, query: &Query<'_>, buffered: &mut BufferedRequest) -> Outcome {
        let BufferedRequest { body: buffered_body, done, begun, migrates, .. } = buffered;
        client.state.alive_at = self.cx.ex.millis();
        let mut form = None;
        let body = match query.jsonp {
            Some(_) if begun.is_none() => match engineio::decode_jsonp_form(buffered_body) {
                Ok(payload) => form.insert(payload.into_owned()).as_bytes(),
                Err(_) => return self.bad_payload(client),
            },
            _ => &buffered_body[..],
        };
        let packets_max = self.cx.ex.options().engine.packets_max;
        let send_buffer_bytes_max = self.cx.ex.options().limits.send_buffer_bytes_max;
        let body = body.get(*done..).unwrap_or_default();
        let decoder =
            payload_format(self.request, query).map(|format| PayloadDecoder::new(format, body, packets_max));
        let Some(Ok(mut decoder)) = decoder else { return self.bad_payload(client) };
        let mut queue = client.take_queue();
        let already_done = *done;
        let mut outcome = None;
        let mut packets = 0;
        while queue.len() <= send_buffer_bytes_max {
            let read = already_done + (body.len() - decoder.bytes_left());
            let ex = &mut *self.cx.ex;
            ex.budget.count(read - *done);
            *done = read;
            let is_much = ex.budget.is_used() || ex.published_much();
            if is_much && packets > 0 && decoder.bytes_left() > 0 {
                outcome = Some(Outcome::Rest);
                break;
            }
            packets += 1;
            ex.budget.count(MESSAGE_BYTES);
            match decoder.next_packet() {
                Ok(Some(packet)) => match client.handle_packet(ex, &packet, Some(self.request), &mut queue) {
                    Next::Continue => {}
                    Next::Stop => break,
                    Next::Migrate(core) => {
                        outcome = Some(Outcome::Move(core));
                        break;
                    }
                },
                Ok(None) => break,
                Err(_) => return self.bad_payload(client),
            }
        }
        let ex = &mut *self.cx.ex;
        if !client.state.ended {
            client.state.queue = queue;
            client.weigh(ex);
            if client.state.queue.len() > send_buffer_bytes_max {
                client.end(ex, End::Because(Disconnect::SlowConsumer));
                outcome = None;
            } else if !matches!(outcome, Some(Outcome::Move(_))) {
                ex.push(Effect::FlushClient(client.state.id));
            }
            ex.push(Effect::ArmClient(client.state.id));
        }
        if let Some(outcome) = outcome {
            *begun = Some(0);
            if let Some(form) = form {
                *buffered_body = form.into_bytes();
            }
            *migrates = matches!(outcome, Outcome::Move(_)).then_some(client.state.id);
            return outcome;
        }
        let options = self.options();
        answer(self.out, options, 200, "text/html", &cors_of(self.cx, self.request), b"ok");
        Outcome::Answered { keep_alive: options.keep_alive }
    }

    fn bad_payload(&mut self, client: &mut Client) -> Outcome {
        self.cx.ex.metrics().protocol_errors.add(1);
        client.end(self.cx.ex, End::Fault);
        self.refuse(RequestError::BadRequest, None)
    }

    /// A polling client opens a WebSocket, to move there.
    fn probe(&mut self, client: &mut Client) -> Outcome {
        let Ok(accepted) = handshake::check_request(self.request, None) else {
            return self.refuse(RequestError::BadRequest, None);
        };
        // Nothing would watch over a connection of a client that is no longer there.
        if client.state.ended {
            return self.refuse(RequestError::UnknownSession, None);
        }
        let (ex, conn) = (&mut *self.cx.ex, self.cx.conn);
        accepted.write_response(self.out, &[], handshake::subprotocols(self.request).next());
        if matches!(client.state.transport, ActiveTransport::WebSocket(_)) || client.probe.is_some() {
            // One is enough, and it isn't clear whose this is.
            ex.push(Effect::CloseSocket { conn, code: 1000, reason: "" });
        } else {
            let until = ex.millis().after(ex.options().engine.upgrade_timeout);
            client.probe = Some(Probe { conn, answered: false, release_at: until, until });
            ex.push(Effect::ArmClient(client.state.id));
        }
        Outcome::UpgradedTo(client.state.id)
    }

    fn new_poll(&self, client: &Client, query: &Query<'_>) -> Poll {
        Poll {
            client: client.state.id,
            version: client.version,
            keep_alive: self.options().keep_alive,
            origin: self.cx.allow_origin(self.request).map(Into::into),
            jsonp: query.jsonp,
            base64: query.base64,
            answered: false,
        }
    }
}

/// Lets a page of another origin read the response, and send cookies if its origin is listed.
fn cors_of<'r>(cx: &RequestContext<'_>, request: &Request<'r>) -> Vec<(&'r str, &'r str)> {
    let origin = cx.allow_origin(request);
    let mut extra = cors(origin);
    push_credentials(&mut extra, origin);
    extra.push(("Cache-Control", "no-store"));
    extra
}

/// The format of a POST's body.
fn payload_format(request: &Request<'_>, query: &Query<'_>) -> Option<PayloadFormat> {
    let content_type = request.header_str("content-type").unwrap_or_default();
    let is_octet_stream = content_type.to_ascii_lowercase().starts_with("application/octet-stream");
    PayloadFormat::of_request(query.version, is_octet_stream)
}
