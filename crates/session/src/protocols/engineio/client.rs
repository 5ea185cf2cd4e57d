//! The interface of an Engine.IO client to the core.

use super::heartbeat::SERVER_DELAY_MIN;
use super::packets::RELEASE_INTERVAL;
use super::{ApplicationProtocol, Client, Probe};
use crate::app::{Decided, HandlerScope, Message, Sent};
use crate::encode::EngineFraming;
use crate::executor::Executor;
use crate::identity::End;
use crate::millis::Millis;
use crate::model::{ConnId, Disconnect, SessionId};
use crate::protocols::client::{self, ActiveTransport, ClientState, Flow, TransportStatus};
use crate::protocols::link::Link;
use crate::protocols::socketio::{self, Carrier, SocketIo, id_of_version_3, write_disconnect};
use smallvec::SmallVec;
use stentor_json as json;
use stentor_wire::engineio::{self, Packet, PacketKind, Version};

impl client::Client for Client {
    fn state(&self) -> &ClientState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ClientState {
        &mut self.state
    }

    /// Each client is counted as a Socket.IO client.
    fn beside() -> usize {
        size_of::<SocketIo>()
    }

    fn into_state(self) -> ClientState {
        self.state
    }

    fn each_session(&self, each: &mut dyn FnMut(SessionId)) {
        self.sessions().for_each(each);
    }

    fn session_in(&self, namespace: &str) -> Option<SessionId> {
        match &self.application {
            ApplicationProtocol::Plain { session, .. } => (namespace == "/").then_some(*session),
            ApplicationProtocol::SocketIo(io) => io.find(namespace).map(|socket| socket.session),
            ApplicationProtocol::Link(_) | ApplicationProtocol::None => None,
        }
    }

    fn namespace_of(&self, session: SessionId) -> Option<&str> {
        match &self.application {
            ApplicationProtocol::Plain { .. } => Some("/"),
            ApplicationProtocol::SocketIo(io) => io.find_session(session).map(|socket| socket.namespace()),
            ApplicationProtocol::Link(_) | ApplicationProtocol::None => None,
        }
    }

    fn id_of(&self, session: SessionId) -> Option<String> {
        let has_own = self.socketio().is_some() && self.version == Version::V3;
        let namespace = self.namespace_of(session).unwrap_or("/");
        has_own.then(|| id_of_version_3(&self.state.sid.to_string(), namespace))
    }

    fn handshake(&self) -> Option<&str> {
        self.socketio()?.handshake.as_ref().map(|handshake| &*handshake.text)
    }

    fn attachment_bytes(&self) -> usize {
        let headers = self.headers().into_iter().flat_map(|headers| headers.iter());
        let of_link = self.link().map_or(0, Link::held_bytes)
            + headers.map(|header| size_of_val(header) + header.0.len() + header.1.len()).sum::<usize>();
        self.socketio().map_or(of_link, SocketIo::held_bytes)
    }

    fn queued_bytes(&self) -> usize {
        self.link().map_or(0, Link::queued_bytes)
    }

    fn forget_connection(&mut self, conn: ConnId) {
        self.probe.take_if(|probe| probe.conn == conn);
    }

    fn keep(&mut self, ex: &mut Executor, encoded: &[u8]) {
        self.write(ex, |_, out| out.extend_from_slice(encoded));
    }

    fn end_session(&mut self, ex: &mut Executor, session: SessionId, why: Disconnect) {
        // If the client should reconnect, all of its sessions end, because it reconnects only after its connection has ended.
        let Some(io) = self.socketio_mut().filter(|_| !why.reconnect()) else {
            return self.end(ex, End::Because(why));
        };
        let Some((before, namespace)) = io.disconnect_socket(ex, session, why) else { return };
        self.write(ex, |framing, out| {
            out.extend_from_slice(&before);
            write_disconnect(framing, &namespace, out);
        });
        ex.arm_client(self.state.id);
    }

    /// Handles a Socket.IO event without attachments on the WebSocket that carries the client. The way of other packets
    /// copies their parts several times.
    #[inline]
    fn handle_frequent(
        &mut self,
        ex: &mut Executor,
        conn: ConnId,
        message: Message<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Flow> {
        let (ApplicationProtocol::SocketIo(io), Message::Text(text)) = (&self.application, message) else {
            return None;
        };
        if self.state.removed || self.state.transport != ActiveTransport::WebSocket(conn) {
            return None;
        }
        let (session, event) = io.lone_event(ex, json::strip_byte(text, b'4')?)?;
        self.state.alive_at = ex.millis();
        ex.metrics().messages.add(1);
        let scope = socketio::scope_of(session, "/", self.framing());
        let scope = HandlerScope { asker: Some(conn), ..scope };
        Some(socketio::handle_event(ex, session, scope, &event, &[], out))
    }

    fn handle_frame(
        &mut self,
        ex: &mut Executor,
        conn: ConnId,
        message: Message<'_>,
        out: &mut Vec<u8>,
    ) -> Flow {
        let now = ex.millis();
        if self.state.removed {
            ex.close_socket(conn);
            return Flow::Stop;
        }
        let mut scratch = Vec::new();
        let packet = engineio::decode_message(self.version, message, &mut scratch);
        if self.state.transport == ActiveTransport::WebSocket(conn) {
            self.state.alive_at = now;
            let Ok(packet) = packet else {
                ex.note_fault(self.sessions());
                ex.end_client(self.state.id, End::Fault);
                return Flow::Stop;
            };
            return self.handle_packet(ex, conn, &packet, None, out);
        }
        match (&mut self.probe, packet) {
            (Some(probe), Ok(packet)) if probe.conn == conn && is_probe(&packet) => {
                // The packet is text in both versions.
                EngineFraming::V4.text(out, "3probe");
                probe.answered = true;
                probe.release_at = now.after(RELEASE_INTERVAL);
                Flow::Continue
            }
            (Some(Probe { conn: probing, answered: true, .. }), Ok(packet))
                if *probing == conn && packet.kind == PacketKind::Upgrade =>
            {
                self.upgrade(ex, conn, out);
                Flow::Continue
            }
            // Before the probe, the connection may belong to another client, so only the connection ends.
            _ => {
                ex.note_fault(self.sessions());
                ex.close_socket(conn);
                Flow::Stop
            }
        }
    }

    fn handle_decided(&mut self, ex: &mut Executor, conn: ConnId, decided: Vec<Decided>) {
        if let Some(link) = self.link_mut() {
            return link.handle_decided();
        }
        let carrier = Carrier::of(&self.state, conn, self.framing(), self.version);
        let Some(io) = self.socketio_mut() else { return };
        let mut answers = Vec::new();
        io.handle_decided(ex, carrier, decided, &mut answers);
        self.keep(ex, &answers);
    }

    #[inline]
    fn poll_timeout(&self) -> Millis {
        let mut at = self.state.due_at;
        if self.state.ended {
            return at;
        }
        if let Some(probe) = &self.probe {
            at = at.earlier(if probe.answered { probe.until.earlier(probe.release_at) } else { probe.until });
        }
        let of_application = match &self.application {
            ApplicationProtocol::SocketIo(io) => io.poll_timeout(),
            ApplicationProtocol::Link(link) => link.poll_timeout(),
            ApplicationProtocol::Plain { .. } | ApplicationProtocol::None => None,
        };
        of_application.map_or(at, |other| at.earlier(other))
    }

    fn handle_timeout(&mut self, ex: &mut Executor, status: TransportStatus) {
        let now = ex.millis();
        if self.state.ended {
            if !now.is_before(self.state.due_at) {
                self.remove(ex);
            }
            return;
        }
        self.handle_probe_timeout(ex);
        let message_timeout = ex.options().limits.message_timeout;
        if let Some(io) = self.socketio_mut() {
            if io.is_connect_overdue(now) {
                return self.end(ex, End::Because(Disconnect::NotConnected));
            }
            if status.paused_by_server {
                // The server has paused reading, so the client can't complete its packet.
                io.extend_packet(now.after(message_timeout));
            } else if io.is_packet_overdue(now) {
                return self.end(ex, End::Because(Disconnect::MessageTimeout));
            }
        }
        if let Some(link) = self.link_mut() {
            if status.paused_by_server || link.waits() {
                link.extend_unit(now.after(message_timeout));
            } else if link.is_unit_overdue(now) {
                return self.end(ex, End::Because(Disconnect::MessageTimeout));
            }
        }
        if now.is_before(self.state.due_at) {
            return;
        }
        if self.link().is_some_and(Link::is_asking) {
            // The request that waits has a timeout of its own.
            self.state.due_at = now.after(ex.options().limits.request_timeout);
            return;
        }
        if status.progressed || status.paused_by_server || self.link().is_some_and(Link::waits) {
            self.state.alive_at = now;
        }
        let heartbeat = self.heartbeat(ex);
        let alive_at = self.state.alive_at;
        match (self.version, self.pinged_at) {
            (Version::V3, _) => {
                self.state.due_at = alive_at.after(heartbeat.interval + heartbeat.timeout);
                if !now.is_before(self.state.due_at) {
                    self.end(ex, End::Because(Disconnect::HeartbeatTimeout));
                }
            }
            // Progress of sent bytes counts as a sign of life. Pings are still sent, because clients wait for them.
            (Version::V4, Some(pinged_at)) if !pinged_at.is_before(alive_at) => {
                self.end(ex, End::Because(Disconnect::HeartbeatTimeout));
            }
            (Version::V4, _) => {
                self.pinged_at = Some(now);
                // The interval starts at the due time, so that clients can rely on the sum of interval and timeout. If the
                // server itself was delayed, the interval starts now.
                let due_at = self.state.due_at;
                let from = if now.from(due_at) > SERVER_DELAY_MIN { now } else { due_at };
                self.state.due_at = from.after(heartbeat.timeout);
                self.write(ex, |framing, out| framing.text(out, "2"));
            }
        }
    }

    fn check_queue(&mut self, ex: &mut Executor, is_in_flight: bool) {
        if is_in_flight && self.state.queue.len() > ex.options().limits.send_buffer_bytes_max {
            ex.end_client(self.state.id, End::Because(Disconnect::SlowConsumer));
        }
        let queued_bytes = self.state.queue.len();
        if let Some(link) = self.link_mut() {
            let outbox_bytes = link.hub_session.map_or(0, |session| ex.hub.waiting_bytes_of(session));
            link.check_pressure(ex, queued_bytes + outbox_bytes);
        }
    }

    fn handle_drained(&mut self, ex: &mut Executor) {
        if let Some(link) = self.link_mut() {
            link.handle_drained(ex);
        }
    }

    fn send(&mut self, ex: &mut Executor, session: SessionId, what: &Sent) {
        let (namespace, before) = match &self.application {
            // A client of the application link receives messages from its worker only.
            ApplicationProtocol::None | ApplicationProtocol::Link(_) => return,
            ApplicationProtocol::Plain { .. } => (None, Vec::new()),
            ApplicationProtocol::SocketIo(io) => {
                let Some(socket) = io.find_session(session) else { return };
                (socket.namespace.clone(), socketio::take_before_answers(ex, socket))
            }
        };
        let encoding = self.encoding(false);
        self.write(ex, |_, out| {
            out.extend_from_slice(&before);
            what.write(encoding, namespace.as_deref().unwrap_or("/"), out);
        });
    }

    /// Ends the client: first its sessions, then the connection that carries it, or its next poll.
    ///
    /// If the client should reconnect, a poll is answered 503 and a WebSocket ends without a Close frame: OkHttp
    /// reports a Close frame only as "closing", so its Socket.IO client continues until a ping is missing.
    fn end(&mut self, ex: &mut Executor, end: End) {
        if !self.state.begin_end(ex, end) {
            return;
        }
        let application = std::mem::replace(&mut self.application, ApplicationProtocol::None);
        let ended: SmallVec<[SessionId; 2]> = match application {
            ApplicationProtocol::None => SmallVec::new(),
            ApplicationProtocol::Plain { session, .. } => {
                ex.close_session(session, end);
                SmallVec::from_slice(&[session])
            }
            ApplicationProtocol::SocketIo(io) => io.end(ex, self.state.id, end),
            ApplicationProtocol::Link(mut link) => {
                link.end(ex, self.state.id, end);
                SmallVec::new()
            }
        };
        for session in ended {
            ex.notify_app(HandlerScope::default(), |app, ctx| app.closed(ctx, session));
        }
        let sid = self.state.sid;
        ex.notify_app(HandlerScope::default(), |app, ctx| app.client_disconnected(ctx, sid));
        let mut last_words = self.take_queue();
        if end != End::Because(Disconnect::ClosedByApplication) {
            last_words = Vec::new();
        }
        self.end_transport(ex, end, last_words);
    }

    /// Ends the client and its connection for the application. Its sockets are disconnected first, so that the client doesn't
    /// reconnect.
    fn close(&mut self, ex: &mut Executor) {
        let framing = self.framing();
        let mut packets = Vec::new();
        if let Some(io) = self.socketio_mut() {
            io.disconnect_all(ex, framing, &mut packets);
        }
        // The response to one poll has these packets, and the response to the next poll has the close packet.
        self.state.queue.append(&mut packets);
        self.end(ex, End::Because(Disconnect::ClosedByApplication));
    }
}

/// Returns `true` if a packet is the probe of an upgrade.
fn is_probe(packet: &Packet<'_>) -> bool {
    *packet == Packet::text(PacketKind::Ping, "probe")
}
