//! Socket.IO, protocols 5 and 4, on Engine.IO: namespaces, events, acknowledgements, and recovery.
//!
//! A client has a *socket* in each namespace to which it is connected. For the application and the hub, each socket is a session
//! of its own. As in socket.io 4, an invalid packet ends the client's connection: a second CONNECT, a packet for a namespace that
//! isn't connected, or a packet that can't be parsed.
//!
//! **Recovery** (protocol 5). When a client is disconnected without leaving, its sockets are *suspended*: the hub keeps
//! their rooms, and its log has the messages published in the meantime. A client that reconnects presents the `pid` of its
//! socket and the last offset that it has received. The server sends the missed messages before the answer to the CONNECT
//! ([`crate::executor`]). A client that reconnects to another core is moved to the core that has its missed messages.

mod connect;
mod handshake;

use connect::Connecting;
pub(crate) use connect::id_of_version_3;
pub(crate) use handshake::{Handshake, describe};

use super::client::{ClientState, Flow};
use super::message::after_handler;
use crate::app::{self, Ack, Arguments, Envelope, Event, HandlerScope, Waiter};
use crate::encode::{Encoding, EngineFraming};
use crate::executor::{Executor, Feeds};
use crate::identity::{ClientId, End, Sid};
use crate::millis::Millis;
use crate::model::{ConnId, Disconnect, SessionId};
use bytes::Bytes;
use smallvec::SmallVec;
use std::sync::Arc;
use stentor_wire::engineio::{Data, Version};
use stentor_wire::http1::Request;
use stentor_wire::socketio::{self, Attachments, Body, Decoder, Packet, Role};

/// The Socket.IO state of a client.
pub struct SocketIo {
    /// A packet whose attachments are incomplete, and the deadline for the missing attachments.
    unfinished: Option<(Decoder, Millis)>,
    sockets: SmallVec<[Socket; 1]>,
    /// The deadline for connecting to a namespace.
    connect_until: Millis,
    /// The feeds of the handshake's query, for the main namespace.
    feeds: Option<Box<Feeds>>,
    /// `true` if the client can't move to another core.
    pub stays: bool,
    /// Number of permanently refused CONNECTs.
    refused: u8,
    /// A CONNECT that waits for a decision. The client's further messages wait for it.
    connecting: Option<Box<Connecting<'static>>>,
    /// The client's handshake, for other servers that request it. `None` if there are no such servers.
    pub(crate) handshake: Option<Box<Handshake>>,
}

/// A client's socket in a namespace.
pub(crate) struct Socket {
    pub(crate) session: SessionId,
    /// The namespace. `None` for the main one.
    pub namespace: Option<Arc<str>>,
    /// The slot among the recoverable sockets.
    recovery: Option<u32>,
}

impl Socket {
    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("/")
    }

    fn slot(&self) -> Option<usize> {
        self.recovery.map(|slot| slot as usize)
    }
}

/// The Engine.IO client that carries Socket.IO's packets.
#[derive(Clone, Copy)]
pub(crate) struct Carrier {
    client: ClientId,
    /// The connection on which the packet arrived.
    conn: ConnId,
    sid: Sid,
    source: u64,
    framing: EngineFraming,
    version: Version,
}

impl Carrier {
    pub(crate) fn of(state: &ClientState, conn: ConnId, framing: EngineFraming, version: Version) -> Self {
        Self { client: state.id, conn, sid: state.sid, source: state.source, framing, version }
    }
}

/// The context of a packet that is handled.
struct Input<'a> {
    carrier: Carrier,
    request: Option<&'a Request<'a>>,
}

impl SocketIo {
    pub(crate) fn new(connect_until: Millis, feeds: Option<Box<Feeds>>) -> Self {
        Self {
            unfinished: None,
            sockets: SmallVec::new(),
            connect_until,
            feeds,
            stays: false,
            refused: 0,
            connecting: None,
            handshake: None,
        }
    }

    /// Returns `true` if the client isn't connected to a namespace and has no incomplete or waiting packet.
    pub fn is_fresh(&self) -> bool {
        self.sockets.is_empty() && self.unfinished.is_none() && self.connecting.is_none()
    }

    pub(crate) fn sockets(&self) -> &[Socket] {
        &self.sockets
    }

    pub(crate) fn find_session(&self, session: SessionId) -> Option<&Socket> {
        self.sockets.iter().find(|socket| socket.session == session)
    }

    #[inline]
    pub(crate) fn find(&self, namespace: &str) -> Option<&Socket> {
        // The main namespace is the usual one, and has no name to compare.
        let namespace = Some(namespace).filter(|namespace| *namespace != "/");
        self.sockets.iter().find(|socket| socket.namespace.as_deref() == namespace)
    }

    pub(crate) fn set_feeds(&mut self, feeds: Feeds) {
        self.feeds = (!feeds.keys.is_empty()).then(|| feeds.into());
    }

    /// The feeds and the handshake, for a move to another core.
    pub(crate) fn into_moved(self) -> (Option<Box<Feeds>>, Option<Box<Handshake>>) {
        (self.feeds, self.handshake)
    }

    /// Size of an incomplete packet and of a CONNECT that waits for a decision, in bytes.
    pub fn held_bytes(&self) -> usize {
        let unfinished = self.unfinished.as_ref().map_or(0, |(decoder, _)| decoder.held_bytes());
        unfinished + self.connecting.as_ref().map_or(0, |connecting| connecting.bytes())
    }

    /// The deadline for missing attachments or for the first namespace.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Millis> {
        let packet = self.unfinished.as_ref().map(|(_, until)| *until);
        let connect = self.sockets.is_empty().then_some(self.connect_until);
        match (packet, connect) {
            (Some(packet), Some(connect)) => Some(packet.earlier(connect)),
            (packet, connect) => packet.or(connect),
        }
    }

    pub(crate) fn is_connect_overdue(&self, now: Millis) -> bool {
        self.sockets.is_empty() && !now.is_before(self.connect_until)
    }

    pub(crate) fn is_packet_overdue(&self, now: Millis) -> bool {
        self.unfinished.as_ref().is_some_and(|(_, until)| !now.is_before(*until))
    }

    pub(crate) fn extend_packet(&mut self, until: Millis) {
        if let Some((_, current)) = &mut self.unfinished {
            *current = until;
        }
    }

    /// Reads a text as an event of the main namespace without attachments, the most frequent message. Returns it with the
    /// session of the client's socket. `None` for any other message.
    #[inline]
    pub(crate) fn lone_event<'m>(
        &self,
        ex: &Executor,
        text: &'m str,
    ) -> Option<(SessionId, socketio::Event<'m>)> {
        if self.unfinished.is_some() || text.len() > ex.options().limits.message_bytes_max {
            return None;
        }
        Some((self.find("/")?.session, socketio::lone_event(text)?))
    }

    /// Handles a message of the client. Answers are appended to `out`.
    pub(crate) fn handle_message(
        &mut self,
        ex: &mut Executor,
        carrier: Carrier,
        data: Data<'_>,
        request: Option<&Request<'_>>,
        out: &mut Vec<u8>,
    ) -> Flow {
        let limits = socketio::Limits {
            attachments_max: ex.options().engine.attachments_max,
            packet_bytes_max: ex.options().limits.message_bytes_max,
        };
        let (mut decoder, until) = match self.unfinished.take() {
            Some((decoder, until)) => (decoder, Some(until)),
            None => (Decoder::new(carrier.version.into(), Role::Server), None),
        };
        let input = Input { carrier, request };
        let next = match data {
            Data::Text(text) => match decoder.text(text, &limits) {
                Ok(Some(Packet { namespace, body })) => self.handle_packet(ex, &input, namespace, body, out),
                Ok(None) => Flow::Continue,
                Err(_) => fault(ex, carrier.client),
            },
            Data::Binary(bytes) => match decoder.binary(bytes, &limits) {
                Ok(Some(assembled)) => {
                    let Packet { namespace, body } = assembled.packet();
                    self.handle_packet(ex, &input, namespace, body, out)
                }
                Ok(None) => Flow::Continue,
                Err(_) => fault(ex, carrier.client),
            },
        };
        if decoder.is_mid_packet() {
            // As for a fragmented WebSocket message, the timeout starts with the first part.
            let until = until.unwrap_or_else(|| ex.millis().after(ex.options().limits.message_timeout));
            self.unfinished = Some((decoder, until));
        }
        next
    }

    fn handle_packet(
        &mut self,
        ex: &mut Executor,
        input: &Input<'_>,
        namespace: &str,
        body: Body<'_>,
        out: &mut Vec<u8>,
    ) -> Flow {
        let (session, body) = match (self.find(namespace), body) {
            (None, Body::Connect { payload, query }) => {
                // Clients of protocol 4 authenticate with the namespace's query, as in socket.io 4.
                let auth = query.map(connect::object_of_query);
                let payload = payload.or(auth.as_deref());
                return self.handle_connect(ex, input, namespace, payload, query, out);
            }
            (Some(socket), body) => (socket.session, body),
            (None, _) => return fault(ex, input.carrier.client),
        };
        let scope =
            HandlerScope { request: input.request, ..scope_of(session, namespace, input.carrier.framing) };
        let asked = ex.effects.mark();
        match body {
            Body::Event(event) => {
                let scope = HandlerScope { asker: Some(input.carrier.conn), ..scope };
                return handle_event(ex, session, scope, &event, &owned(event.attachments), out);
            }
            Body::Ack(ack) => {
                // Ignores an acknowledgement without a receiver: it is late, invented, or belongs to another session.
                let Some((_, waiter)) = ex.acks.take(ack.id, Some(session)) else { return Flow::Continue };
                let attachments = owned(ack.attachments);
                let answer = Arguments { json: ack.arguments.raw(), attachments: &attachments };
                match waiter {
                    Waiter::App(token) => {
                        ex.call_app(scope, out, |app, ctx| app.acked(ctx, session, token, Some(answer)));
                    }
                    Waiter::Command(answered) => answered(answer.to_data()),
                }
            }
            Body::Disconnect => {
                self.leave(ex, session, End::Closed);
                return Flow::Continue;
            }
            Body::Connect { .. } | Body::ConnectError { .. } => return fault(ex, input.carrier.client),
        }
        after_handler(ex, asked, session)
    }

    /// Removes the client from a namespace. Its connection stays open.
    fn leave(&mut self, ex: &mut Executor, session: SessionId, why: End) {
        let left = self.sockets.iter().position(|socket| socket.session == session);
        if let Some(slot) = left.and_then(|at| self.sockets.remove(at).slot()) {
            ex.end_recoverable(slot);
        }
        if self.sockets.is_empty() {
            self.connect_until = ex.millis().after(ex.options().engine.connect_timeout);
        }
        ex.close_session(session, why);
        ex.notify_app(HandlerScope::default(), |app, ctx| app.closed(ctx, session));
    }

    /// Ends one socket for one of the server's reasons. Returns its pending deliveries, which must be sent first, and its
    /// namespace.
    pub(crate) fn disconnect_socket(
        &mut self,
        ex: &mut Executor,
        session: SessionId,
        why: Disconnect,
    ) -> Option<(Vec<u8>, String)> {
        let socket = self.find_session(session)?;
        let namespace = socket.namespace().to_owned();
        ex.count_disconnect(why);
        let before = take_before_answers(ex, socket);
        self.leave(ex, session, End::Because(why));
        Some((before, namespace))
    }

    /// Disconnects all sockets for the application. Appends the packets that notify the client to `out`.
    pub(crate) fn disconnect_all(&mut self, ex: &mut Executor, framing: EngineFraming, out: &mut Vec<u8>) {
        while let Some(socket) = self.sockets.first() {
            let (session, namespace) = (socket.session, socket.namespace().to_owned());
            out.append(&mut ex.take_if_few(socket.session));
            self.leave(ex, session, End::Because(Disconnect::ClosedByApplication));
            write_disconnect(framing, &namespace, out);
        }
    }

    /// Handles the end of the client. Recoverable sockets are kept for a limited time. Returns the sessions whose end must be
    /// reported to the application.
    pub fn end(self, ex: &mut Executor, client: ClientId, end: End) -> SmallVec<[SessionId; 2]> {
        // A client that broke the protocol won't recover its sockets.
        let is_disconnected = end != End::Because(Disconnect::ProtocolError);
        let mut ended = SmallVec::new();
        for socket in self.sockets {
            let session = socket.session;
            match socket.slot() {
                // Another client has taken the socket over.
                Some(slot) if !ex.recovery.is_of(slot, session, client) => continue,
                Some(slot) if is_disconnected && ex.suspend(slot, session, end) => {}
                Some(slot) => {
                    ex.end_recoverable(slot);
                    ex.close_session(session, end);
                }
                None => ex.close_session(session, end),
            }
            ended.push(session);
        }
        ended
    }
}

/// The scope for calling the application about a client's packet.
#[inline]
pub(crate) fn scope_of(session: SessionId, namespace: &str, framing: EngineFraming) -> HandlerScope<'_> {
    let encoding = Encoding::engine_io(framing, Envelope::SocketIo, false);
    HandlerScope { session: Some(session), encoding, namespace: Some(namespace), ..HandlerScope::default() }
}

/// Passes an event with its attachments to the application. Answers are appended to `out`.
#[inline(always)] // As `Executor::call_app`.
pub(crate) fn handle_event(
    ex: &mut Executor,
    session: SessionId,
    scope: HandlerScope<'_>,
    event: &socketio::Event<'_>,
    attachments: &[Bytes],
    out: &mut Vec<u8>,
) -> Flow {
    let asked = ex.effects.mark();
    let event = Event {
        name: &event.name(),
        arguments: Arguments { json: event.arguments.raw(), attachments },
        ack: event.id.map(Ack),
    };
    ex.call_app(scope, out, |app, ctx| app::handle_event(app, ctx, session, &event));
    after_handler(ex, asked, session)
}

/// Appends the packet that notifies a client that its socket in a namespace is disconnected.
pub(crate) fn write_disconnect(framing: EngineFraming, namespace: &str, out: &mut Vec<u8>) {
    framing.packet(out, namespace.len() + 3, |out| {
        out.push(b'4');
        socketio::write_disconnect(out, namespace);
    });
}

/// Ends the connection of a client that has broken the protocol.
fn fault(ex: &mut Executor, client: ClientId) -> Flow {
    ex.metrics().protocol_errors.add(1);
    ex.end_client(client, End::Because(Disconnect::ProtocolError));
    Flow::Stop
}

/// Takes the pending deliveries of a recoverable socket, which must be sent before answers.
pub(crate) fn take_before_answers(ex: &mut Executor, socket: &Socket) -> Vec<u8> {
    if socket.recovery.is_some() { ex.take_if_few(socket.session) } else { Vec::new() }
}

fn owned(attachments: Attachments<'_>) -> SmallVec<[Bytes; 1]> {
    attachments.iter().map(Bytes::copy_from_slice).collect()
}
