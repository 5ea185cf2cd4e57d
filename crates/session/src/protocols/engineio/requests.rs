//! Requests to `/engine.io/` and `/socket.io/`.

use super::responses::{Clients, Outcome, cors_of, new_poll, refuse, refuse_denied};
use super::{ApplicationProtocol, Client, Endpoint, Probe, linked, payload};
use crate::app::{Decided, Envelope, Refused};
use crate::budget::MESSAGE_BYTES;
use crate::encode::Encoding;
use crate::executor::{Alarm, Effect, Feeds};
use crate::identity::{ClientId, End, Owner, Service, Sid};
use crate::model::{Disconnect, SessionId};
use crate::options::Options;
use crate::ports::{Denial, Identity};
use crate::protocols::client::{ActiveTransport, Client as _, Flow, TransportStatus};
use crate::protocols::clients::Clients as AllClients;
use crate::protocols::dialect::Upgraded;
use crate::protocols::link::valid_headers;
use crate::protocols::message::{self, scope_of};
use crate::protocols::opening::{Admitted, NotAdmitted, Opening};
use crate::protocols::query::ConnectQuery;
use crate::protocols::request::{BufferedRequest, RequestContext, borrowed, push_preflight};
use crate::protocols::socketio::{Carrier, Handshake as ClientHandshake, SocketIo, describe};
use crate::protocols::token::{V1_PROTOCOL, subprotocol, subprotocols};
use crate::protocols::upgrade::close_denied;
use smallvec::SmallVec;
use std::sync::Arc;
use stentor_wire::engineio::{
    self, Open, PacketKind, PayloadDecoder, PayloadFormat, Request as Query, RequestError, Transport, Version,
};
use stentor_wire::ws::handshake;

/// Handles the headers of a request.
pub(crate) fn handle_request(
    cx: &mut RequestContext<'_>,
    clients: &mut AllClients,
    endpoint: Endpoint,
) -> Outcome {
    let method = cx.request.method();
    if method == "OPTIONS" {
        let mut extra = cors_of(cx);
        let Some(cors) = cx.cors_of_app() else {
            push_preflight(&mut extra, cx.request, "GET,POST");
            return cx.answer(204, "text/plain", &extra, b"");
        };
        extra.extend(cors.preflight_headers(cx.request.header_str("access-control-request-headers")));
        return cx.answer(cors.preflight_status, "text/plain", &extra, b"");
    }
    let query = match Query::parse(cx.request.query()) {
        Ok(query) => query,
        Err(error) => return refuse(cx, error, None),
    };
    let of_app = cx.engine.is_none_or(|engine| engine.allows_version_3);
    if query.version == Version::V3 && !(of_app && cx.ex.options().engine.allow_version_3) {
        return refuse(cx, RequestError::UnsupportedVersion, None);
    }
    let has_transport = cx.engine.is_none_or(|engine| match query.transport {
        Transport::Polling => engine.has_polling,
        Transport::WebSocket => engine.has_websocket,
    });
    if !has_transport {
        return refuse(cx, RequestError::UnknownTransport, None);
    }
    if query.sid.is_some() {
        return handle_request_of_client(cx, &mut clients.engineio, &query, endpoint, None);
    }
    if let Err(error) = query.check_method(method, cx.is_upgrade()) {
        return refuse(cx, error, None);
    }
    match endpoint {
        Endpoint::Plain => handshake(cx, clients, query, false),
        Endpoint::SocketIo => handshake(cx, clients, query, true),
        Endpoint::Link(app) => linked::handshake(cx, clients, query, app),
    }
}

/// Handles a request of a client. `decided` is the decision for which the request waited.
fn handle_request_of_client(
    cx: &mut RequestContext<'_>,
    clients: &mut Clients,
    query: &Query<'_>,
    endpoint: Endpoint,
    decided: Option<Decided>,
) -> Outcome {
    let method = cx.request.method();
    let id = match find(cx, clients, query.sid.as_deref().unwrap_or_default()) {
        Ok(id) => id,
        Err(outcome) => return outcome,
    };
    if let Err(error) = query.check_method(method, cx.is_upgrade()) {
        return refuse(cx, error, None);
    }
    let Some(client) = clients.get_mut(id) else { return refuse(cx, RequestError::UnknownSession, None) };
    // A request with the id but another version or protocol doesn't come from the client itself (CVE-2026-102599).
    if client.version != query.version || client.endpoint != endpoint {
        return refuse(cx, RequestError::BadRequest, None);
    }
    let sessions: SmallVec<[SessionId; 2]> = client.sessions().collect();
    match cx.check_token(id, protocol_name(endpoint), &sessions, decided) {
        Ok(()) => {}
        // The client may end or move while the request waits, so it is looked up again.
        Err(Refused::Pending) => {
            return cx.wait_for_one(move |cx, clients, decided| match Query::parse(cx.request.query()) {
                Ok(query) => handle_request_of_client(cx, &mut clients.engineio, &query, endpoint, decided),
                Err(error) => refuse(cx, error, None),
            });
        }
        Err(Refused::Denied(denial)) => return refuse_denied(cx, &denial),
    }
    match (query.transport, method) {
        (Transport::WebSocket, _) => probe(cx, client),
        // The request is refused, but the client's WebSocket continues (CVE-2026-59725).
        (_, "POST") if !client.is_polling() || payload_format(cx, query).is_none() => {
            refuse(cx, RequestError::BadRequest, None)
        }
        (_, "POST") => cx.body(),
        _ => poll(cx, client, query),
    }
}

/// Handles the body of a client's POST, or the rest of the body: as much as may be published at once.
pub(crate) fn handle_body(
    cx: &mut RequestContext<'_>,
    clients: &mut Clients,
    buffered: &mut BufferedRequest,
) -> Outcome {
    let Ok(query) = Query::parse(cx.request.query()) else {
        return refuse(cx, RequestError::BadRequest, None);
    };
    let id = query.sid.as_deref().and_then(Sid::parse).and_then(|sid| clients.find(sid));
    // The client may have ended, or completed its upgrade, while the body was arriving.
    let client = id.and_then(|id| clients.get_mut(id)).filter(|client| client.is_polling());
    let Some(client) = client else { return refuse(cx, RequestError::UnknownSession, None) };
    packets(cx, client, &query, buffered)
}

/// Finds the client that a request names.
fn find(cx: &mut RequestContext<'_>, clients: &mut Clients, sid: &str) -> Result<ClientId, Outcome> {
    let Some(sid) = Sid::parse(sid) else { return Err(refuse(cx, RequestError::UnknownSession, None)) };
    if cx.ex.is_of_other_node(sid) {
        return Err(cx.relay_to_node_of(sid, |cx| refuse(cx, RequestError::UnknownSession, None)));
    }
    let departed = cx.departed;
    let ex = &mut *cx.ex;
    let home = sid.core(ex.shared.cores);
    let elsewhere = if home == ex.context.core { departed(sid) } else { Some(home) };
    match (clients.find(sid), elsewhere) {
        (Some(id), _) => {
            if let Some(client) = clients.get_mut(id)
                && client.is_overdue(ex)
            {
                client.handle_timeout(ex, TransportStatus::default());
                if client.state.removed {
                    return Err(refuse(cx, RequestError::UnknownSession, None));
                }
            }
            Ok(id)
        }
        (None, Some(core)) => Err(cx.move_to(core)),
        (None, None) => Err(refuse(cx, RequestError::UnknownSession, None)),
    }
}

fn protocol_name(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Plain => "engineio",
        Endpoint::SocketIo => "socketio",
        Endpoint::Link(_) => linked::PROTOCOL,
    }
}

/// Handles the first request of a client.
fn handshake(
    cx: &mut RequestContext<'_>,
    clients: &mut AllClients,
    query: Query<'_>,
    is_socketio: bool,
) -> Outcome {
    let endpoint = if is_socketio { Endpoint::SocketIo } else { Endpoint::Plain };
    if let Some(unavailable) = cx.unavailable_to_new_clients() {
        return unavailable;
    }
    // Socket.IO clients receive whole documents unless they request deltas.
    let parsed = ConnectQuery::parse(cx.request.query(), &cx.ex.options().keys).and_then(|mut query| {
        let feeds = query.feeds(None, !is_socketio)?;
        Ok((feeds, query.raw))
    });
    let (feeds, raw) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return refuse(cx, RequestError::BadRequest, Some(&error)),
    };
    let accepted = match query.transport {
        Transport::Polling => None,
        // Compression is off, as in Engine.IO's own server, so frames and records of polls share their bytes.
        Transport::WebSocket => match handshake::check_request(cx.request, None) {
            Ok(accepted) => Some(accepted),
            Err(_) => return refuse(cx, RequestError::BadRequest, None),
        },
    };
    let Query { version, transport, jsonp, base64, .. } = query;
    let query = Query { version, transport, sid: None, jsonp, base64 };
    let sid = cx.ex.draw_sid();
    let opening = Opening::new(protocol_name(endpoint), Envelope::Raw, Service::default()).of_client(sid);
    // Clients of Socket.IO protocol 5 present their token in a CONNECT packet. A token in the handshake counts as well.
    let opening = if is_socketio && version == Version::V4 && !cx.has_token() {
        opening.identified_later(cx.ex.questions.identities.is_on())
    } else {
        opening
    };
    cx.admit(clients, opening, move |cx, clients, admitted| {
        let (identity, headers) = match admitted {
            Ok(Admitted { identity, headers }) => (Ok(identity), headers),
            // Clients of Socket.IO protocol 4 are refused by a packet, not by a response.
            Err(NotAdmitted::Denied(denial)) if is_socketio && version == Version::V3 => {
                (Err(denial), Vec::new())
            }
            Err(NotAdmitted::Denied(denial)) => {
                return match &accepted {
                    // Pages can't read the status of a refused handshake. This client knows the close codes.
                    Some(accepted) if subprotocol(cx.request) == Some(V1_PROTOCOL) => {
                        close_denied(cx, accepted, None, &denial)
                    }
                    _ => refuse_denied(cx, &denial),
                };
            }
            Err(NotAdmitted::Refused { message, .. }) => {
                return refuse(cx, RequestError::Forbidden, Some(&message));
            }
        };
        if let Some(unavailable) = cx.unavailable_to_new_clients() {
            return unavailable;
        }
        let handshake = Handshake { sid, query, is_socketio, accepted, feeds, raw };
        handshake.open(cx, &mut clients.engineio, identity, headers)
    })
}

/// A handshake that is accepted.
struct Handshake {
    sid: Sid,
    query: Query<'static>,
    is_socketio: bool,
    /// The response to the handshake of a WebSocket. `None` if the client polls.
    accepted: Option<handshake::Accepted>,
    /// The feeds that the query names.
    feeds: Feeds,
    /// `true` if the client requests raw mode.
    raw: bool,
}

impl Handshake {
    /// Adds the client and opens its session.
    fn open(
        self,
        cx: &mut RequestContext<'_>,
        clients: &mut Clients,
        identity: Result<Option<Arc<Identity>>, Denial>,
        mut headers: Vec<(String, String)>,
    ) -> Outcome {
        let Self { sid, query, is_socketio, accepted, feeds, raw } = self;
        let (query, name) = (&query, sid.to_string());
        let transport = match accepted {
            Some(_) => ActiveTransport::WebSocket(cx.conn),
            None => ActiveTransport::None,
        };
        let is_secure = cx.client.is_secure;
        let ex = &mut *cx.ex;
        let mut client = Client::new(ex, sid, cx.client.source(), transport, query.version);
        client.endpoint = if is_socketio { Endpoint::SocketIo } else { Endpoint::Plain };
        client.base64 = query.base64;
        if is_socketio {
            let connect_until = ex.millis().after(ex.options().engine.connect_timeout);
            client.application = ApplicationProtocol::SocketIo(Box::new(SocketIo::new(connect_until, None)));
        }
        let client = clients.insert(client);
        let id = client.state.id;
        ex.arm_client(id);
        cx.remember_client(id, protocol_name(client.endpoint), identity.as_ref().ok().cloned().flatten());
        if cx.ex.options().keeps_handshakes
            && let Some(io) = client.socketio_mut()
        {
            let at = cx.ex.unix_millis();
            let text = describe(cx.request, query, (cx.client.ip, cx.client.is_secure), at);
            io.handshake = Some(ClientHandshake::new(cx.ex, text));
        }
        let ex = &mut *cx.ex;
        let options = ex.options.clone();
        let Options { engine, heartbeat, limits, .. } = &*options;
        headers.extend(engine.cookie.as_ref().map(|cookie| {
            let secure = if engine.cookie_secure || is_secure { "; Secure" } else { "" };
            let same_site = engine.cookie_same_site.name();
            let path = options.cookie_path();
            let value = format!("{cookie}={name}; Path={path}; HttpOnly{secure}; SameSite={same_site}");
            ("Set-Cookie".to_owned(), value)
        }));
        let open = Open {
            sid: name.into(),
            websocket_upgrade: query.transport == Transport::Polling,
            ping_interval: heartbeat.interval,
            ping_timeout: heartbeat.timeout,
            payload_bytes_max: Some(limits.message_bytes_max as u64),
        };
        let mut packets = Vec::with_capacity(192);
        client.framing().packet(&mut packets, 112, |out| {
            out.push(PacketKind::Open.digit());
            open.write(query.version, out);
        });
        open_session(cx, client, identity, (feeds, raw), &mut packets);
        let Some(accepted) = accepted else {
            let poll = new_poll(cx, client, query);
            payload::write_answer(cx.out, cx.options.date, &poll, &packets, &borrowed(&headers));
            return cx.answered();
        };
        accepted.write_response(cx.out, &borrowed(&headers), subprotocols(cx.request).next());
        if engine.open_delay.is_zero() {
            cx.out.append(&mut packets);
        } else {
            let at = cx.ex.context.now + engine.open_delay;
            cx.ex.push(Effect::Alarm(at, Alarm::Write(id, packets)));
        }
        Outcome::Upgraded(Upgraded::to_client(id))
    }
}

/// Opens the session of a new client.
fn open_session(
    cx: &mut RequestContext<'_>,
    client: &mut Client,
    identity: Result<Option<Arc<Identity>>, Denial>,
    (feeds, raw): (Feeds, bool),
    out: &mut Vec<u8>,
) {
    let carrier = Carrier::of(&client.state, cx.conn, client.framing(), client.version);
    let ex = &mut *cx.ex;
    if let ApplicationProtocol::SocketIo(io) = &mut client.application {
        io.set_feeds(feeds);
        // Clients of Socket.IO protocol 4 are connected to the main namespace without a CONNECT.
        if client.version == Version::V3 {
            io.connect_unasked(ex, carrier, cx.request, identity, out);
        }
        return;
    }
    let envelope = if raw { Envelope::Raw } else { ex.app_of(Service::default()).envelope() };
    let encoding = Encoding::engine_io(client.framing(), envelope, false);
    let (owner, source) = (Owner::Client(client.state.id), client.state.source);
    let session = ex.open_session(encoding, owner, source, identity.ok().flatten());
    client.application = ApplicationProtocol::Plain { session, envelope };
    client.set_transport(ex, client.state.transport);
    let scope = scope_of(session, encoding, Service::default(), Some(cx.request));
    message::open(ex, scope, out);
    ex.join_rooms(session, "/");
    ex.subscribe_feeds(cx.conn, session, feeds);
}

/// Handles a poll.
fn poll(cx: &mut RequestContext<'_>, client: &mut Client, query: &Query<'_>) -> Outcome {
    let mut poll = new_poll(cx, client, query);
    poll.base64 |= client.base64;
    let ex = &mut *cx.ex;
    client.state.alive_at = ex.millis();
    match client.state.transport {
        // The client has completed its upgrade, so it must not poll.
        ActiveTransport::WebSocket(_) => return refuse(cx, RequestError::BadRequest, None),
        // A second poll at the same time is the client's mistake, or another client's.
        ActiveTransport::Poll(_) => {
            client.end(ex, End::Fault);
            return refuse(cx, RequestError::BadRequest, None);
        }
        ActiveTransport::None | ActiveTransport::Stream(_) => {}
    }
    if client.state.ended {
        let last_words = client.take_queue();
        if client.state.may_reconnect {
            payload::write_unavailable(cx.out, cx.options.date, &poll);
            client.remove(ex);
        } else if last_words.is_empty() {
            payload::write_answer(cx.out, cx.options.date, &poll, &payload::END, &[]);
            client.remove(ex);
        } else {
            // The response to the next poll has the end of the session.
            payload::write_answer(cx.out, cx.options.date, &poll, &last_words, &[]);
        }
        return cx.answered();
    }
    let records = client.take_records(ex);
    if records.is_empty() {
        client.set_transport(ex, ActiveTransport::Poll(cx.conn));
    } else {
        poll.state.is_whole = true;
        payload::write_answer(cx.out, cx.options.date, &poll, &records, &[]);
    }
    Outcome::Waiting(Box::new(poll))
}

/// Handles the packets of a POST.
fn packets(
    cx: &mut RequestContext<'_>,
    client: &mut Client,
    query: &Query<'_>,
    buffered: &mut BufferedRequest,
) -> Outcome {
    let BufferedRequest { body: buffered_body, done, begun, migrates, .. } = buffered;
    client.state.alive_at = cx.ex.millis();
    if cx.ex.questions.waiting.waits_for_earlier(cx.conn, client.state.id) {
        return Outcome::Rest;
    }
    let mut form = None;
    let body = match query.jsonp {
        Some(_) if begun.is_none() => match engineio::decode_jsonp_form(buffered_body) {
            Ok(payload) => form.insert(payload.into_owned()).as_bytes(),
            Err(_) => return bad_payload(cx, client),
        },
        _ => &buffered_body[..],
    };
    let packets_max = cx.ex.options().engine.packets_max;
    let send_buffer_bytes_max = cx.ex.options().limits.send_buffer_bytes_max;
    let body = body.get(*done..).unwrap_or_default();
    if begun.is_some() && body.is_empty() {
        // All packets have been handled: the request waited only for the decision about the last packet, or for the
        // worker's confirmation.
        let id = client.state.id;
        if client.link_mut().is_some_and(|link| link.confirm(cx.ex, cx.conn, id)) {
            return Outcome::Rest;
        }
        return posted(cx, client);
    }
    let decoder = payload_format(cx, query).map(|format| PayloadDecoder::new(format, body, packets_max));
    let Some(Ok(mut decoder)) = decoder else { return bad_payload(cx, client) };
    let mut queue = client.take_queue();
    let already_done = *done;
    let mut outcome = None;
    let mut packets = 0;
    while queue.len() <= send_buffer_bytes_max {
        let read = already_done + (body.len() - decoder.bytes_left());
        let ex = &mut *cx.ex;
        ex.budget.count(read - *done);
        *done = read;
        let waits = ex.questions.waiting.is_waiting(cx.conn);
        let is_much = (ex.budget.is_used() || ex.budget.published_much()) && decoder.bytes_left() > 0;
        // The request is answered after its last packet, so the rest waits for a later turn or a decision.
        if packets > 0 && (is_much || waits) {
            outcome = Some(Outcome::Rest);
            break;
        }
        packets += 1;
        ex.budget.count(MESSAGE_BYTES);
        let Ok(packet) = decoder.next_packet() else { return bad_payload(cx, client) };
        let Some(packet) = packet else { break };
        match client.handle_packet(ex, cx.conn, &packet, Some(cx.request), &mut queue) {
            Flow::Continue | Flow::Wait | Flow::Yield => {}
            Flow::Stop => break,
            Flow::Migrate(core) => {
                outcome = Some(Outcome::Move(core));
                break;
            }
        }
    }
    let ex = &mut *cx.ex;
    if outcome.is_none()
        && let (id, Some(link)) = (client.state.id, client.link_mut())
        && link.confirm(ex, cx.conn, id)
    {
        // The response waits until the worker has handled the messages.
        outcome = Some(Outcome::Rest);
    }
    if !client.state.ended {
        client.state.queue = queue;
        client.weigh(ex);
        if client.state.queue.len() > send_buffer_bytes_max {
            client.end(ex, End::Because(Disconnect::SlowConsumer));
            outcome = None;
        } else if !matches!(outcome, Some(Outcome::Move(_))) {
            ex.flush_client(client.state.id);
        }
        ex.arm_client(client.state.id);
    }
    if let Some(outcome) = outcome {
        *begun = Some(0);
        if let Some(form) = form {
            *buffered_body = form.into_bytes();
        }
        *migrates = matches!(outcome, Outcome::Move(_)).then_some(client.state.id);
        return outcome;
    }
    posted(cx, client)
}

/// Answers a POST whose packets have been handled.
fn posted(cx: &mut RequestContext<'_>, client: &Client) -> Outcome {
    let headers = client.headers().cloned().unwrap_or_default();
    let headers: Vec<(&str, &str)> = cors_of(cx).into_iter().chain(valid_headers(&headers)).collect();
    cx.answer(200, "text/html", &headers, b"ok")
}

fn bad_payload(cx: &mut RequestContext<'_>, client: &mut Client) -> Outcome {
    cx.ex.note_fault(client.sessions());
    client.end(cx.ex, End::Fault);
    refuse(cx, RequestError::BadRequest, None)
}

/// Handles a WebSocket request of a polling client that upgrades.
fn probe(cx: &mut RequestContext<'_>, client: &mut Client) -> Outcome {
    let Ok(accepted) = handshake::check_request(cx.request, None) else {
        return refuse(cx, RequestError::BadRequest, None);
    };
    // A WebSocket of a client that has ended would have no timeouts.
    if client.state.ended {
        return refuse(cx, RequestError::UnknownSession, None);
    }
    let (ex, conn) = (&mut *cx.ex, cx.conn);
    let headers = client.headers().cloned().unwrap_or_default();
    let headers: Vec<(&str, &str)> = valid_headers(&headers).collect();
    accepted.write_response(cx.out, &headers, subprotocols(cx.request).next());
    if matches!(client.state.transport, ActiveTransport::WebSocket(_)) || client.probe.is_some() {
        // A client may have one WebSocket. The server can't tell which of two is genuine, so it closes the second one.
        ex.close_socket(conn);
    } else {
        let of_app = cx.engine.and_then(|engine| engine.upgrade_timeout);
        let until = ex.millis().after(of_app.unwrap_or(ex.options().engine.upgrade_timeout));
        client.probe = Some(Probe { conn, answered: false, release_at: until, until });
        ex.arm_client(client.state.id);
    }
    Outcome::Upgraded(Upgraded::to_client(client.state.id))
}

/// The format of a POST's body.
fn payload_format(cx: &RequestContext<'_>, query: &Query<'_>) -> Option<PayloadFormat> {
    let content_type = cx.request.header_str("content-type").unwrap_or_default();
    let is_octet_stream = content_type.to_ascii_lowercase().starts_with("application/octet-stream");
    let format = PayloadFormat::of_request(query.version, is_octet_stream)?;
    Some(if cx.ex.options().engine.polling_1 { format.of_client_1() } else { format })
}
