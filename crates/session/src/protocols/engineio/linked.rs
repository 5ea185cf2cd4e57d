//! Clients of the application link: the request that waits for a worker, and the worker's messages.
//!
//! The client exists from its request on, so that messages that follow the acceptance at once find it. Its id is unknown to everybody
//! else until the response.

use super::described::describe;
use super::responses::{Clients, Outcome, cors_of, new_poll, refuse, refuse_denied};
use super::{ApplicationProtocol, Client, Endpoint, payload};
use crate::app::{Connect, Envelope};
use crate::encode::{BINARY, records};
use crate::executor::{Effect, Executor, ToConnection};
use crate::identity::{End, Owner, Service, Sid};
use crate::model::Disconnect;
use crate::ports::{
    Identity, LinkAcceptance, LinkApp, LinkCloseReason, LinkDescription, LinkHandshake, LinkHeaders,
    LinkMessages, LinkRefusal, LinkReport,
};
use crate::protocols::client::{ActiveTransport, Client as _};
use crate::protocols::clients::Clients as AllClients;
use crate::protocols::dialect::Upgraded;
use crate::protocols::link::{Answer, Link, valid_headers, write_records, write_unit};
use crate::protocols::opening::{Admitted, NotAdmitted, Opening};
use crate::protocols::request::{RequestContext, Suspended};
use crate::protocols::token::subprotocols;
use std::sync::Arc;
use stentor_wire::engineio::{Open, PacketKind, Request as Query, RequestError, Transport, Version};
use stentor_wire::ws::handshake;

/// The name of the clients' protocol.
pub(super) const PROTOCOL: &str = "link";

/// Handles the request that opens a session: asks for a worker, and answers as the worker decides.
pub(super) fn handshake(
    cx: &mut RequestContext<'_>,
    clients: &mut AllClients,
    query: Query<'_>,
    app: LinkApp,
) -> Outcome {
    if let Some(unavailable) = cx.unavailable_to_new_clients() {
        return unavailable;
    }
    if query.transport == Transport::WebSocket && handshake::check_request(cx.request, None).is_err() {
        return refuse(cx, RequestError::BadRequest, None);
    }
    let Query { version, transport, jsonp, base64, .. } = query;
    let query = Query { version, transport, sid: None, jsonp, base64 };
    let sid = cx.ex.draw_sid();
    let opening = Opening::new(PROTOCOL, Envelope::Raw, Service::default()).of_client(sid);
    cx.admit(clients, opening, move |cx, clients, admitted| match admitted {
        Ok(Admitted { identity, .. }) => open(cx, &mut clients.engineio, query, (sid, app), identity),
        Err(NotAdmitted::Denied(denial)) => refuse_denied(cx, &denial),
        Err(NotAdmitted::Refused { message, .. }) => refuse(cx, RequestError::Forbidden, Some(&message)),
    })
}

/// Adds the client, and asks for a worker.
fn open(
    cx: &mut RequestContext<'_>,
    clients: &mut Clients,
    query: Query<'static>,
    (sid, app): (Sid, LinkApp),
    identity: Option<Arc<Identity>>,
) -> Outcome {
    if let Some(unavailable) = cx.unavailable_to_new_clients() {
        return unavailable;
    }
    let Some(engine) = cx.engine.cloned() else { return refuse(cx, RequestError::BadRequest, None) };
    let request = LinkHandshake {
        sid: sid.to_string().into(),
        protocol: if query.version == Version::V4 { 4 } else { 3 },
        transport: query.transport.name(),
        ..describe(cx)
    };
    let queued = request.queued.clone();
    let Some(session) = cx.ex.link.as_mut().map(|link| link.draw()) else {
        return cx.unavailable("1", &[], "there is no application link");
    };
    let mut client = Client::new(cx.ex, sid, cx.client.source(), ActiveTransport::None, query.version);
    client.endpoint = Endpoint::Link(app);
    client.base64 = query.base64;
    client.application = ApplicationProtocol::Link(Box::new(Link::new(
        session,
        app,
        cx.conn,
        identity.clone(),
        (queued, engine),
    )));
    // The wait for the worker has a timeout of its own.
    client.state.due_at = cx.ex.millis().after(cx.ex.options().limits.request_timeout);
    let id = clients.insert(client).state.id;
    let conn = cx.conn;
    let is_taken = cx.ex.link.as_mut().is_some_and(|link| link.open(session, id, conn, (app, request)));
    if !is_taken {
        clients.remove(id);
        return cx.unavailable("1", &[], "too many requests wait for the application");
    }
    cx.ex.arm_client(id);
    cx.remember_client(id, PROTOCOL, identity);
    Outcome::Suspended(Suspended::until_admitted(move |cx, clients, _| {
        cx.ex.take_requested(cx.conn);
        match clients.engineio.get_mut(id) {
            Some(client) => answer(cx, client, &query),
            None => cx.unavailable("1", &[], "the session has ended"),
        }
    }))
}

/// Answers a request as the worker has decided.
fn answer(cx: &mut RequestContext<'_>, client: &mut Client, query: &Query<'_>) -> Outcome {
    let Some(link) = client.link_mut() else { return refuse(cx, RequestError::UnknownSession, None) };
    match std::mem::replace(&mut link.answer, Answer::Begun) {
        Answer::Accepted(acceptance) => {
            // The application's first worker may have connected while the request waited.
            if let Some(engine) = cx.engine {
                link.engine = engine.clone();
            }
            begin(cx, client, query, *acceptance)
        }
        Answer::Refused(refusal) => {
            client.application = ApplicationProtocol::None;
            client.state.ended = true;
            client.remove(cx.ex);
            write_refusal(cx, &refusal)
        }
        Answer::Denied(denial) => {
            client.application = ApplicationProtocol::None;
            client.state.ended = true;
            client.remove(cx.ex);
            refuse_denied(cx, &denial)
        }
        Answer::Asked(_) | Answer::Begun => {
            client.end(cx.ex, End::Because(Disconnect::Overloaded));
            cx.unavailable("1", &[], "the application didn't answer")
        }
    }
}

fn write_refusal(cx: &mut RequestContext<'_>, refusal: &LinkRefusal) -> Outcome {
    cx.count_error();
    let is_content_type = |(name, _): &&(Box<str>, Box<str>)| name.eq_ignore_ascii_case("content-type");
    let content_type =
        refusal.headers.iter().find(is_content_type).map_or("application/json", |header| &*header.1);
    let content_type =
        if content_type.bytes().any(|byte| byte < b' ') { "application/json" } else { content_type };
    let own = cors_of(cx);
    let headers: Vec<(&str, &str)> = valid_headers(&refusal.headers).collect();
    let is_new =
        |(name, _): &(&str, &str)| !headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
    let headers: Vec<(&str, &str)> = own.into_iter().filter(is_new).chain(headers.iter().copied()).collect();
    let status = if (200..600).contains(&refusal.status) { refusal.status } else { 500 };
    cx.answer(status, content_type, &headers, &refusal.body)
}

/// Begins an accepted session with the response to its request.
fn begin(
    cx: &mut RequestContext<'_>,
    client: &mut Client,
    query: &Query<'_>,
    acceptance: LinkAcceptance,
) -> Outcome {
    let ex = &mut *cx.ex;
    let heartbeat = client.heartbeat(ex);
    let Some(engine) = client.link().map(|link| link.engine.clone()) else {
        return refuse(cx, RequestError::UnknownSession, None);
    };
    let bytes_max = ex.options().limits.message_bytes_max;
    let open = Open {
        sid: client.state.sid.to_string().into(),
        websocket_upgrade: query.transport == Transport::Polling
            && engine.allows_upgrades
            && engine.has_websocket,
        ping_interval: heartbeat.interval,
        ping_timeout: heartbeat.timeout,
        payload_bytes_max: Some(engine.message_bytes_max.unwrap_or(bytes_max).min(bytes_max) as u64),
    };
    client.state.alive_at = ex.millis();
    client.state.due_at = match query.version {
        Version::V4 => ex.millis().after(heartbeat.interval),
        Version::V3 => ex.millis().after(heartbeat.interval + heartbeat.timeout),
    };
    let id = client.state.id;
    ex.arm_client(id);
    let cookie = engine.cookie.as_ref().map(|cookie| {
        let sid = client.state.sid.to_string();
        ("Set-Cookie", format!("{}={sid}{}", cookie.name, cookie.attributes))
    });
    let cookie = cookie.iter().map(|(name, value)| (*name, &**value));
    let first = cookie.chain(valid_headers(&acceptance.first));
    let accepted = match query.transport {
        Transport::Polling => None,
        // The request was checked before it waited.
        Transport::WebSocket => handshake::check_request(cx.request, None).ok(),
    };
    if accepted.is_some() {
        client.state.transport = ActiveTransport::WebSocket(cx.conn);
    }
    let mut packets = Vec::with_capacity(192);
    client.framing().packet(&mut packets, 112, |out| {
        out.push(PacketKind::Open.digit());
        open.write(query.version, out);
    });
    let Some(accepted) = accepted else {
        // `new_poll` includes the headers that all responses have.
        let poll = new_poll(cx, client, query);
        payload::write_answer(cx.out, cx.options.date, &poll, &packets, &first.collect::<Vec<_>>());
        return cx.answered();
    };
    let headers: Vec<(&str, &str)> = first.chain(valid_headers(&acceptance.all)).collect();
    accepted.write_response(cx.out, &headers, subprotocols(cx.request).next());
    cx.out.append(&mut packets);
    let queue = client.take_queue();
    client.write_queue_on_websocket(&queue, cx.out);
    client.set_encodings(cx.ex);
    client.handle_queue_written(cx.ex);
    cx.ex.flush_client(id);
    Outcome::Upgraded(Upgraded::to_client(id))
}

impl Client {
    /// The state of the application link, if a worker serves the client.
    pub(crate) fn link(&self) -> Option<&Link> {
        if let ApplicationProtocol::Link(link) = &self.application { Some(link) } else { None }
    }

    pub(crate) fn link_mut(&mut self) -> Option<&mut Link> {
        if let ApplicationProtocol::Link(link) = &mut self.application { Some(link) } else { None }
    }

    /// Headers of all responses of the client.
    pub(super) fn headers(&self) -> Option<&Arc<LinkHeaders>> {
        self.link().map(|link| &link.headers).filter(|headers| !headers.is_empty())
    }

    /// Appends queued records as messages of the WebSocket that now carries the client.
    pub(super) fn write_queue_on_websocket(&self, queue: &[u8], out: &mut Vec<u8>) {
        let framing = self.framing();
        for (kind, packet) in records(queue) {
            match (kind, std::str::from_utf8(packet)) {
                (BINARY, _) | (_, Err(_)) => framing.binary(out, packet),
                (_, Ok(text)) => framing.text(out, text),
            }
        }
    }

    /// Called when the queue was written with the answer to an input, which isn't reported as sent.
    pub(super) fn handle_queue_written(&mut self, ex: &mut Executor) {
        let session = self.link().and_then(|link| link.hub_session);
        if !session.is_some_and(|session| ex.hub.has_pending(session)) {
            self.handle_drained(ex);
        }
    }

    /// Accepts the session for the worker of a link.
    pub(crate) fn accept(&mut self, ex: &mut Executor, owner: u32, acceptance: LinkAcceptance) {
        let encoding = self.encoding(false);
        let (id, source) = (self.state.id, self.state.source);
        let Some(link) = self.link_mut() else { return };
        let Answer::Asked(conn) = link.answer else { return };
        let identity = link.identity.take();
        // The worker may have taken long.
        if let Err(denial) = ex.check_again(source, identity.as_deref()) {
            link.answer = Answer::Denied(denial);
            link.report_end(ex, LinkCloseReason::ForcedClose, Vec::new());
            return ex.push(Effect::Connection(conn, ToConnection::Admit(Connect::Accept)));
        }
        link.owner = owner;
        link.input.unit.parser = acceptance.parser;
        link.headers = Arc::new(
            valid_headers(&acceptance.all).map(|(name, value)| (name.into(), value.into())).collect(),
        );
        link.answer = Answer::Accepted(Box::new(acceptance));
        let session = ex.open_session(encoding, Owner::Client(id), source, identity);
        link.hub_session = Some(session);
        ex.push(Effect::Connection(conn, ToConnection::Admit(Connect::Accept)));
        self.charge(ex);
    }

    /// Refuses the session.
    pub(crate) fn refuse(&mut self, ex: &mut Executor, refusal: LinkRefusal) {
        let Some(link) = self.link_mut() else { return };
        let Answer::Asked(conn) = link.answer else { return };
        link.answer = Answer::Refused(Box::new(refusal));
        let session = link.session;
        if let Some(link) = &mut ex.link {
            link.forget(session);
        }
        ex.push(Effect::Connection(conn, ToConnection::Admit(Connect::Accept)));
    }

    /// Returns `true` if a volatile message would be sent at once.
    pub(crate) fn takes_volatile(&self) -> bool {
        let can_send =
            matches!(self.state.transport, ActiveTransport::WebSocket(_) | ActiveTransport::Poll(_));
        can_send && self.link().is_some_and(|link| link.output.is_drained)
    }

    /// Sends a worker's messages: all of them, one after the other.
    pub(crate) fn send_unit(
        &mut self,
        ex: &mut Executor,
        messages: &LinkMessages,
        (is_volatile, wants_receipt): (bool, bool),
    ) {
        let is_dropped = self.state.ended || is_volatile && !self.takes_volatile();
        let Some(link) = self.link_mut() else { return };
        if !is_dropped {
            link.output.is_drained = false;
        }
        if wants_receipt {
            link.expect_receipt(ex);
        }
        if is_dropped {
            return;
        }
        // Messages in the outbox are sent after the queue, so a message must not overtake them there.
        match link.hub_session {
            Some(session) if ex.hub.waiting_bytes_of(session) > 0 => {
                ex.send_records([session], write_records(messages), false);
            }
            _ => self.write(ex, |framing, out| write_unit(framing, messages, out)),
        }
    }

    /// Ends the session for the worker. With `discards`, pending messages are dropped.
    pub(crate) fn close_for_worker(&mut self, ex: &mut Executor, discards: bool) {
        if discards {
            self.take_queue();
        } else if let Some(session) = self.link().and_then(|link| link.hub_session) {
            let queue = &mut self.state.queue;
            ex.take(session, usize::MAX, usize::MAX, |_, frame| queue.extend_from_slice(&frame.bytes()));
        }
        self.end(ex, End::Because(Disconnect::ClosedByApplication));
    }

    /// Describes the session for the worker that takes it.
    pub(crate) fn describe_to_worker(&self, ex: &Executor, request: u32) {
        let (Some(link), Some(sessions)) = (self.link(), &ex.link) else { return };
        let sockets = sessions.members.describe(self.state.id);
        link.report(ex, LinkReport::Described(LinkDescription { request, upgraded: link.upgraded, sockets }));
    }
}
