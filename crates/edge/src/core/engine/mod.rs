//! Engine.IO, protocols 4 and 3: sessions that are polled, carried by a WebSocket, or move from the one to the other.
//!
//! ```text
//!  GET without sid ──► polled ──── WebSocket: 2probe, 3probe, 5 ────┐
//!                        │                                          ▼
//!  WebSocket without sid ┼──────────────────────────────────► on a WebSocket
//!                        │                                          │
//!                        └──► ended: 1, 6, silence, a fault ◄───────┘
//! ```
//!
//! This file deals with requests; [`session`] with packets, heartbeats and ends; [`payload`] with the bodies of polls;
//! [`moving`] with clients that come back to another core than theirs.
//! What the packets of a session mean is the application's ([`super::socketio`] in between). Behaviours that public
//! suites expect follow engine.io 6: a second poll ends the session, an aborted poll too.

pub(super) mod moving;
pub(super) mod payload;
pub(super) mod session;

use super::client::{Carrier, Client, ClientId, Protocol, Sid, Upper};
use super::http::Verdict;
use super::request::{Manner, answer, cors, push_credentials, text};
use super::socketio::SocketIo;
use super::table::{Accepts, Conn, Kept, Poll, Speech, Stack, Waiting};
use super::turn::MESSAGE_BYTES;
use super::wishes::Wishes;
use super::{About, AppTimer, Core, Later};
use crate::app::{Connect, Envelope, RequestId};
use crate::encode::{EngineWriter, FrameTarget};
use crate::millis::Millis;
use stentor_driver::{ConnId, Driver};
use stentor_wire::engineio::{self, Request as Query};
use stentor_wire::engineio::{
    Open, Packet, PacketKind, PayloadDecoder, PayloadFormat, RequestError, Transport, Version,
};
use stentor_wire::http1::Request;
use stentor_wire::ws::handshake;

/// How a client moves from polling to a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    conn: ConnId,
    /// It has sent its probe and been answered.
    answered: bool,
    /// When polls are released again, so that the client can stop polling.
    release_at: Millis,
    /// When there has to have been an end to it.
    until: Millis,
}

/// What Engine.IO knows of a client.
pub(super) struct Engine {
    pub(super) version: Version,
    pub(super) is_socketio: bool,
    /// The client said in its handshake that it can't read bytes in answers to polls.
    base64: bool,
    probe: Option<Probe>,
    /// A ping is out, and hasn't been answered (protocol 4).
    pinged_at: Option<Millis>,
}

impl Client {
    /// The version of Engine.IO that it speaks. Whoever speaks none has records only, which are the same in both.
    pub(super) fn version(&self) -> Version {
        self.engine().map_or(Version::V4, |engine| engine.version)
    }

    /// How packets leave now.
    pub(super) fn writer(&self) -> EngineWriter {
        let target = match self.carrier {
            Carrier::Socket(_) => FrameTarget::WebSocket,
            Carrier::None | Carrier::Poll(_) | Carrier::Stream(_) => FrameTarget::Poll,
        };
        EngineWriter { version: self.version(), target }
    }
}

impl<D: Driver> Core<D> {
    /// A request to `/engine.io/` or `/socket.io/`.
    pub(super) fn engine_request(
        &mut self,
        index: usize,
        request: &Request<'_>,
        is_socketio: bool,
        out: &mut Vec<u8>,
    ) -> Verdict {
        if request.method() == "OPTIONS" {
            return self.preflight(request, out);
        }
        let is_upgrade = request.headers().list_has("upgrade", "websocket");
        let query = match Query::parse(request.query()) {
            Ok(query) => query,
            Err(error) => return self.engine_refuse(request, error, None, out),
        };
        if query.version == Version::V3 && !self.shared.options.engine.allow_version_3 {
            return self.engine_refuse(request, RequestError::UnsupportedVersion, None, out);
        }
        let found = match query.sid.as_deref() {
            None => None,
            Some(sid) => {
                let Some(sid) = Sid::parse(sid) else {
                    return self.engine_refuse(request, RequestError::UnknownSession, None, out);
                };
                let home = sid.core(self.shared.cores);
                let elsewhere = if home == self.facts.core { self.departed.core_of(sid) } else { Some(home) };
                match (self.clients.find(sid), elsewhere) {
                    (Some(id), _) if !self.is_overdue(id) => Some(id),
                    (None, Some(core)) if !self.draining && !self.is_to_stay(index) => {
                        return Verdict::Move(core);
                    }
                    (None, Some(_)) => {
                        let why = "the session's core is busy; try again";
                        text(out, Manner::LAST, 503, &[("Retry-After", "1")], why);
                        return Verdict::Answered { keep_alive: false };
                    }
                    _ => return self.engine_refuse(request, RequestError::UnknownSession, None, out),
                }
            }
        };
        if let Err(error) = query.check_method(request.method(), is_upgrade) {
            return self.engine_refuse(request, error, None, out);
        }
        match (found, query.transport, request.method()) {
            (None, _, _) => self.engine_handshake(index, request, &query, is_socketio, out),
            (Some(id), transport, method) => {
                // Another version or protocol on the same id is none of its client's doing (CVE-2026-102599).
                let fits = self.clients.get(id).and_then(Client::engine).is_some_and(|engine| {
                    engine.version == query.version && engine.is_socketio == is_socketio
                });
                match (transport, method) {
                    _ if !fits => self.engine_refuse(request, RequestError::BadRequest, None, out),
                    (Transport::WebSocket, _) => self.engine_probe(index, request, id, out),
                    (_, "POST") => {
                        if !self.is_polled(id) {
                            return self.engine_refuse(request, RequestError::BadRequest, None, out);
                        }
                        // CVE-2026-59725: answered, and the connection goes on.
                        if payload_format(request, &query).is_none() {
                            return self.engine_refuse(request, RequestError::BadRequest, None, out);
                        }
                        Verdict::Body { bytes_max: self.shared.options.limits.message_bytes_max }
                    }
                    _ => self.engine_poll(index, request, &query, id, out),
                }
            }
        }
    }

    /// Whether the client is polled, and hasn't ended.
    fn is_polled(&self, id: ClientId) -> bool {
        self.clients
            .get(id)
            .is_some_and(|client| !matches!(client.carrier, Carrier::Socket(_)) && !client.ended)
    }

    /// What a browser asks before a request that it finds unusual (Fetch, 3.2.2).
    fn preflight(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> Verdict {
        let manner = Manner::of(request, self.draining);
        let mut extra = self.engine_cors(request);
        extra.push(("Access-Control-Allow-Methods", "GET,POST"));
        if let Some(headers) = request.header_str("access-control-request-headers") {
            extra.push(("Access-Control-Allow-Headers", headers));
        }
        answer(out, manner, 204, "text/plain", &extra, b"");
        Verdict::Answered { keep_alive: manner.keep_alive }
    }

    pub(super) fn engine_refuse(
        &mut self,
        request: &Request<'_>,
        error: RequestError,
        message: Option<&str>,
        out: &mut Vec<u8>,
    ) -> Verdict {
        self.metrics().request_errors.add(1);
        let mut body = Vec::with_capacity(64);
        error.write_body(&mut body, message);
        // Whoever meant to speak WebSocket goes on in frames.
        let is_upgrade = request.headers().list_has("upgrade", "websocket");
        let manner = if is_upgrade { Manner::LAST } else { Manner::of(request, self.draining) };
        answer(out, manner, error.status(), "application/json", &self.engine_cors(request), &body);
        Verdict::Answered { keep_alive: manner.keep_alive }
    }

    fn engine_handshake(
        &mut self,
        index: usize,
        request: &Request<'_>,
        query: &Query<'_>,
        is_socketio: bool,
        out: &mut Vec<u8>,
    ) -> Verdict {
        if self.draining {
            text(out, Manner::LAST, 503, &[("Retry-After", "1")], "the server is shutting down");
            return Verdict::Answered { keep_alive: false };
        }
        if self.clients.count() >= self.shared.options.limits.connections_max {
            text(
                out,
                Manner::LAST,
                503,
                &[("Retry-After", "5")],
                "too many sessions (limits.connections_max)",
            );
            return Verdict::Answered { keep_alive: false };
        }
        // Clients of Socket.IO expect whole documents unless they say otherwise.
        let wished = Wishes::parse(request.query()).and_then(|mut wishes| {
            let feeds = wishes.feeds(None, !is_socketio)?;
            Ok((feeds, wishes.raw))
        });
        let (feeds, raw) = match wished {
            Ok(wished) => wished,
            Err(error) => {
                let why = error.to_string();
                return self.engine_refuse(request, RequestError::BadRequest, Some(&why), out);
            }
        };
        let accepted = match query.transport {
            Transport::Polling => None,
            // Compression is off for these, as in their own server: a frame is shared with polls' records.
            Transport::WebSocket => match handshake::check_request(request, None) {
                Ok(accepted) => Some(accepted),
                Err(_) => return self.engine_refuse(request, RequestError::BadRequest, None, out),
            },
        };
        let admission = self.admission(index);
        let known = admission.as_ref().and_then(|(_, sid)| *sid);
        let sid = known.unwrap_or_else(|| self.sids.draw(self.facts.core, self.shared.cores));
        let name = sid.to_string();
        let answer = match admission {
            Some((answer, _)) => answer,
            None => {
                let about = About {
                    request: Some(request),
                    client: Some(&name),
                    pending: self.table.get(index).map(|conn| RequestId(conn.id)),
                    ..About::default()
                };
                self.ask_app(about, |app, ctx| app.connect(ctx, request))
            }
        };
        let headers = match answer {
            Connect::Accept => Vec::new(),
            Connect::AcceptWith(headers) => headers,
            Connect::Pending => return Verdict::Again(Waiting::Admission(Some(sid))),
            Connect::Refuse { message, .. } => {
                return self.engine_refuse(request, RequestError::Forbidden, Some(&message), out);
            }
        };
        let Some(conn) = self.table.get(index).map(|conn| conn.id) else {
            return Verdict::Answered { keep_alive: false };
        };
        let engine = &self.shared.options.engine;
        let cookie = engine.cookie.as_ref().map(|cookie| {
            let secure = if engine.cookie_secure { "; Secure" } else { "" };
            let same_site = engine.cookie_same_site.name();
            (
                "Set-Cookie".to_owned(),
                format!("{cookie}={name}; Path=/; HttpOnly{secure}; SameSite={same_site}"),
            )
        });
        let headers: Vec<(String, String)> = headers.into_iter().chain(cookie).collect();
        let extra: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        let carrier = if accepted.is_some() { Carrier::Socket(conn) } else { Carrier::None };
        let source = self.source_of(index);
        let id = self.new_client(sid, query, is_socketio, carrier);
        if let Some(client) = self.clients.get_mut(id) {
            client.source = source;
        }
        let open = self.open_packet(&name, query);
        match accepted {
            Some(accepted) => {
                accepted.write_response(out, &extra, handshake::subprotocols(request).next());
                self.become_socket(index, Accepts::Client(id), Speech::default(), Envelope::Raw, None);
                let writer = EngineWriter { version: query.version, target: FrameTarget::WebSocket };
                let delay = self.shared.options.engine.open_delay;
                let mut delayed = Vec::new();
                let out = if delay.is_zero() { out } else { &mut delayed };
                writer.text(out, &open);
                self.open_upper(id, request, feeds, raw, out);
                if !delayed.is_empty() {
                    self.set_app_timer(self.facts.now + delay, AppTimer::Write(id, delayed));
                }
                Verdict::Upgraded
            }
            None => {
                let writer = EngineWriter { version: query.version, target: FrameTarget::Poll };
                let mut queue = Vec::with_capacity(192);
                writer.text(&mut queue, &open);
                self.open_upper(id, request, feeds, raw, &mut queue);
                let manner = Manner::of(request, self.draining);
                let poll = self.poll_of(id, request, query, manner);
                payload::write_answer(out, query.version, &poll, &queue, &extra);
                Verdict::Answered { keep_alive: manner.keep_alive }
            }
        }
    }

    fn open_packet(&self, sid: &str, query: &Query<'_>) -> String {
        let options = &self.shared.options;
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

    fn new_client(&mut self, sid: Sid, query: &Query<'_>, is_socketio: bool, carrier: Carrier) -> ClientId {
        let (version, base64) = (query.version, query.base64);
        let now = self.millis();
        let heartbeat = self.shared.options.heartbeat;
        let due_at = match version {
            Version::V4 => now.after(heartbeat.interval),
            // The client pings.
            Version::V3 => now.after(heartbeat.interval + heartbeat.timeout),
        };
        let engine = Engine { version, is_socketio, base64, probe: None, pinged_at: None };
        let mut client = Client::new(sid, Protocol::Engine(engine), carrier, now, due_at);
        if is_socketio {
            let connect_until = now.after(self.shared.options.engine.connect_timeout);
            client.upper = Upper::SocketIo(Box::new(SocketIo::new(connect_until, None)));
        }
        let id = self.clients.insert(client);
        self.arm_client(id, due_at);
        if is_socketio {
            self.arm_client(id, now.after(self.shared.options.engine.connect_timeout));
        }
        id
    }

    /// A client polls.
    fn engine_poll(
        &mut self,
        index: usize,
        request: &Request<'_>,
        query: &Query<'_>,
        id: ClientId,
        out: &mut Vec<u8>,
    ) -> Verdict {
        let now = self.millis();
        let manner = Manner::of(request, self.draining);
        let Some(conn) = self.table.get(index).map(|conn| conn.id) else {
            return Verdict::Answered { keep_alive: false };
        };
        let mut poll = self.poll_of(id, request, query, manner);
        let Some(client) = self.clients.get_mut(id) else {
            return self.engine_refuse(request, RequestError::UnknownSession, None, out);
        };
        client.alive_at = now;
        poll.base64 |= client.engine().is_some_and(|engine| engine.base64);
        match client.carrier {
            // It has moved on.
            Carrier::Socket(_) => return self.engine_refuse(request, RequestError::BadRequest, None, out),
            // Two at once: whoever polls doesn't know what it does, or isn't the client.
            Carrier::Poll(_) => {
                self.end_client(id, session::End::Fault);
                return self.engine_refuse(request, RequestError::BadRequest, None, out);
            }
            Carrier::None | Carrier::Stream(_) => {}
        }
        if client.ended {
            if client.may_reconnect {
                payload::write_unavailable(out, &poll);
            } else {
                let records = [&client.take_queue()[..], &payload::END].concat();
                payload::write_answer(out, query.version, &poll, &records, &[]);
            }
            self.drop_client(id);
            return Verdict::Answered { keep_alive: manner.keep_alive };
        }
        let records = self.take_records(id);
        if !records.is_empty() {
            poll.answered = true;
            payload::write_answer(out, query.version, &poll, &records, &[]);
            return Verdict::Waiting(Waiting::Poll(poll));
        }
        if let Some(client) = self.clients.get_mut(id) {
            client.carrier = Carrier::Poll(conn);
        }
        Verdict::Waiting(Waiting::Poll(poll))
    }

    /// The body of a client's POST is there, or has its turn again. Of what is in it so much is dealt with as may be
    /// published at once.
    pub(super) fn engine_posted(
        &mut self,
        index: usize,
        request: &Request<'_>,
        kept: &mut Kept,
        out: &mut Vec<u8>,
    ) -> Verdict {
        let Kept { body: kept_body, done, begun, departs, .. } = kept;
        let body = &kept_body[..];
        let Ok(query) = Query::parse(request.query()) else {
            return self.engine_refuse(request, RequestError::BadRequest, None, out);
        };
        let id = query.sid.as_deref().and_then(Sid::parse).and_then(|sid| self.clients.find(sid));
        // It may have ended, or moved on, while the body was on its way.
        let Some(id) = id.filter(|id| self.is_polled(*id)) else {
            return self.engine_refuse(request, RequestError::UnknownSession, None, out);
        };
        let now = self.millis();
        if let Some(client) = self.clients.get_mut(id) {
            client.alive_at = now;
        }
        let mut form = None;
        let body = match query.jsonp {
            Some(_) if begun.is_none() => match engineio::decode_jsonp_form(body) {
                Ok(payload) => form.insert(payload.into_owned()).as_bytes(),
                Err(_) => return self.bad_payload(id, request, out),
            },
            _ => body,
        };
        let packets_max = self.shared.options.engine.packets_max;
        let send_buffer_bytes_max = self.shared.options.limits.send_buffer_bytes_max;
        let body = body.get(*done..).unwrap_or_default();
        let decoder =
            payload_format(request, &query).map(|format| PayloadDecoder::new(format, body, packets_max));
        let Some(Ok(mut decoder)) = decoder else { return self.bad_payload(id, request, out) };
        let mut queue = self.clients.get_mut(id).map(Client::take_queue).unwrap_or_default();
        let dispatches_before = self.hub.dispatches();
        let already_done = *done;
        let mut verdict = None;
        let mut packets = 0;
        while verdict.is_none() && queue.len() <= send_buffer_bytes_max {
            let read = already_done + (body.len() - decoder.bytes_left());
            self.budget.count(read - *done);
            *done = read;
            let is_much = self.budget.is_used() || self.published_bytes > self.published_bytes_max;
            if is_much && packets > 0 && decoder.bytes_left() > 0 {
                verdict = Some(Verdict::Rest);
                break;
            }
            packets += 1;
            self.budget.count(MESSAGE_BYTES);
            match decoder.next_packet() {
                Ok(Some(packet)) => {
                    if !self.engine_packet(id, &packet, Some(request), &mut queue) {
                        verdict = self.leaving(id).map(Verdict::Move);
                        break;
                    }
                }
                Ok(None) => break,
                Err(_) => return self.bad_payload(id, request, out),
            }
        }
        if self.hub.dispatches() != dispatches_before {
            self.hold_if_congested(index);
        }
        if let Some(client) = self.clients.get_mut(id)
            && !client.ended
        {
            client.queue = queue;
            client.weigh(&self.shared.ledger);
            if client.queue.len() > send_buffer_bytes_max {
                self.end_client(id, session::End::Because(stentor_hub::Disconnect::SlowConsumer));
                verdict = None;
            } else if !matches!(verdict, Some(Verdict::Move(_))) {
                self.flush_client(id);
                self.weigh_client(id);
            }
        }
        if let Some(verdict) = verdict {
            *begun = Some(0);
            if let Some(form) = form {
                *kept_body = form.into_bytes();
            }
            *departs = matches!(verdict, Verdict::Move(_)).then_some(id);
            return verdict;
        }
        let manner = Manner::of(request, self.draining);
        answer(out, manner, 200, "text/html", &self.engine_cors(request), b"ok");
        Verdict::Answered { keep_alive: manner.keep_alive }
    }

    fn bad_payload(&mut self, id: ClientId, request: &Request<'_>, out: &mut Vec<u8>) -> Verdict {
        self.metrics().protocol_errors.add(1);
        self.end_client(id, session::End::Fault);
        self.engine_refuse(request, RequestError::BadRequest, None, out)
    }

    /// A client that is polled opens a WebSocket, to move there.
    fn engine_probe(
        &mut self,
        index: usize,
        request: &Request<'_>,
        id: ClientId,
        out: &mut Vec<u8>,
    ) -> Verdict {
        let Ok(accepted) = handshake::check_request(request, None) else {
            return self.engine_refuse(request, RequestError::BadRequest, None, out);
        };
        // Nothing would watch over a connection of a client that isn't there any more.
        if self.clients.get(id).is_none_or(|client| client.ended) {
            return self.engine_refuse(request, RequestError::UnknownSession, None, out);
        }
        let until = self.millis().after(self.shared.options.engine.upgrade_timeout);
        let Some(conn) = self.table.get(index).map(|conn| conn.id) else {
            return Verdict::Answered { keep_alive: false };
        };
        let Some(client) = self.clients.get_mut(id) else {
            return self.engine_refuse(request, RequestError::UnknownSession, None, out);
        };
        let carrier = client.carrier;
        let Some(engine) = client.engine_mut() else {
            return self.engine_refuse(request, RequestError::UnknownSession, None, out);
        };
        accepted.write_response(out, &[], handshake::subprotocols(request).next());
        let is_second = matches!(carrier, Carrier::Socket(_)) || engine.probe.is_some();
        if !is_second {
            engine.probe = Some(Probe { conn, answered: false, release_at: until, until });
        }
        self.become_socket(index, Accepts::Client(id), Speech::default(), Envelope::Raw, None);
        if is_second {
            // One is enough, and it isn't clear whose this is.
            self.later.push(Later::Close(conn));
        } else {
            self.arm_client(id, until);
        }
        Verdict::Upgraded
    }

    fn poll_of(&self, client: ClientId, request: &Request<'_>, query: &Query<'_>, manner: Manner) -> Poll {
        Poll {
            client,
            keep_alive: manner.keep_alive,
            origin: self.allow_origin(request).map(Into::into),
            jsonp: query.jsonp,
            base64: query.base64,
            answered: false,
        }
    }

    /// Lets a page of another origin read the response, and send cookies if its origin is listed.
    fn engine_cors<'a>(&self, request: &Request<'a>) -> Vec<(&'a str, &'a str)> {
        let origin = self.allow_origin(request);
        let mut extra: Vec<(&str, &str)> = cors(origin);
        push_credentials(&mut extra, origin);
        extra.push(("Cache-Control", "no-store"));
        extra
    }

    /// Whether the connection stays on this core because it couldn't be moved.
    pub(super) fn is_to_stay(&self, index: usize) -> bool {
        matches!(self.table.get(index), Some(Conn { stack: Stack::Http(http), .. }) if http.stay)
    }

    /// What the application has said meanwhile about the request at the front.
    pub(super) fn admission(&mut self, index: usize) -> Option<(Connect, Option<Sid>)> {
        match self.table.get_mut(index) {
            Some(Conn { stack: Stack::Http(http), .. }) => http.admission.take().map(|answer| *answer),
            _ => None,
        }
    }
}

/// The format of a POST's body.
fn payload_format(request: &Request<'_>, query: &Query<'_>) -> Option<PayloadFormat> {
    let content_type = request.header_str("content-type").unwrap_or_default();
    let is_octet_stream = content_type.to_ascii_lowercase().starts_with("application/octet-stream");
    PayloadFormat::of_request(query.version, is_octet_stream)
}

/// What a packet carries, whatever its kind.
fn is_probe(packet: &Packet<'_>) -> bool {
    *packet == Packet::text(PacketKind::Ping, "probe")
}
