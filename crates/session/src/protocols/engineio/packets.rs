//! Packets of a client: input and output.

use super::{ApplicationProtocol, Client, payload};
use crate::app::{HandlerScope, Message};
use crate::encode::{Encoding, EngineFraming};
use crate::executor::{Effect, Executor, PollAnswer, ToConnection};
use crate::identity::{End, Service};
use crate::model::{ConnId, SessionId};
use crate::ports::LinkReport;
use crate::protocols::client::{ActiveTransport, Client as _, Flow};
use crate::protocols::message::{deliver, scope_of};
use crate::protocols::socketio;
use smallvec::SmallVec;
use std::time::Duration;
use stentor_wire::engineio::{Data, Packet, PacketKind, Transport, Version};
use stentor_wire::http1::Request;

/// Interval at which waiting polls are answered during an upgrade, as in the package `engine.io`.
pub(super) const RELEASE_INTERVAL: Duration = Duration::from_millis(100);

impl Client {
    /// Completes the client's upgrade to a WebSocket.
    pub(super) fn upgrade(&mut self, ex: &mut Executor, conn: ConnId, out: &mut Vec<u8>) {
        self.probe = None;
        if let ActiveTransport::Poll(poll) = self.state.transport {
            // The waiting poll receives the queue. Later packets are sent on the WebSocket.
            self.state.queue.extend_from_slice(&payload::NOOP);
            let records = self.take_records(ex);
            ex.push(Effect::Connection(poll, ToConnection::Answer(PollAnswer::Records(records))));
        }
        self.set_transport(ex, ActiveTransport::WebSocket(conn));
        let queue = self.take_queue();
        self.write_queue_on_websocket(&queue, out);
        self.set_encodings(ex);
        self.sessions().for_each(|session| ex.note_upgrade(session));
        if let Some(link) = self.link_mut() {
            link.upgraded = true;
            link.report(ex, LinkReport::Upgraded(Transport::WebSocket.name()));
            self.handle_queue_written(ex);
        }
        ex.flush_client(self.state.id);
    }

    /// Sets the encoding of all sessions to that of the transport.
    pub(super) fn set_encodings(&self, ex: &mut Executor) {
        let encoding = self.encoding(ex.options().engine.recovery.is_some());
        let sessions: SmallVec<[SessionId; 2]> = self.sessions().collect();
        for session in sessions {
            ex.set_encoding(session, encoding);
        }
    }

    /// Handles one packet, which arrived on `conn`. Answers are appended to `out`.
    #[inline]
    pub(super) fn handle_packet(
        &mut self,
        ex: &mut Executor,
        conn: ConnId,
        packet: &Packet<'_>,
        request: Option<&Request<'_>>,
        out: &mut Vec<u8>,
    ) -> Flow {
        match (packet.kind, self.version, packet.data) {
            (PacketKind::Message, _, data) => return self.handle_message(ex, conn, data, request, out),
            (PacketKind::Ping, Version::V3, Data::Text(text)) => {
                self.framing().packet(out, text.len() + 1, |out| {
                    out.push(PacketKind::Pong.digit());
                    out.extend_from_slice(text.as_bytes());
                });
            }
            (PacketKind::Pong, Version::V4, _) => {
                self.state.due_at = ex.millis().after(self.heartbeat(ex).interval);
                self.pinged_at = None;
            }
            // In each version, only one side sends pings, so this packet is the wrong one.
            (PacketKind::Ping | PacketKind::Pong, ..) => {
                ex.note_fault(self.sessions());
                ex.end_client(self.state.id, End::Fault);
                return Flow::Stop;
            }
            (PacketKind::Close, ..) => {
                ex.end_client(self.state.id, End::Closed);
                return Flow::Stop;
            }
            (PacketKind::Open | PacketKind::Upgrade | PacketKind::Noop, ..) => {}
        }
        Flow::Continue
    }

    fn handle_message(
        &mut self,
        ex: &mut Executor,
        conn: ConnId,
        data: Data<'_>,
        request: Option<&Request<'_>>,
        out: &mut Vec<u8>,
    ) -> Flow {
        ex.metrics().messages.add(1);
        let framing = self.framing();
        let (session, envelope) = match &mut self.application {
            ApplicationProtocol::None => return Flow::Stop,
            ApplicationProtocol::SocketIo(io) => {
                let carrier = socketio::Carrier::of(&self.state, conn, framing, self.version);
                let held_before = io.held_bytes();
                let next = io.handle_message(ex, carrier, data, request, out);
                if held_before != io.held_bytes() {
                    self.weigh(ex);
                }
                return next;
            }
            ApplicationProtocol::Plain { session, envelope } => (*session, *envelope),
            ApplicationProtocol::Link(link) => {
                let held_before = link.held_bytes();
                let next = link.handle_message(ex, conn, self.state.id, data);
                if held_before != link.held_bytes() {
                    self.weigh(ex);
                }
                return next;
            }
        };
        let message = match data {
            Data::Text(text) => Message::Text(text),
            Data::Binary(bytes) => Message::Binary(bytes),
        };
        let encoding = Encoding::engine_io(framing, envelope, false);
        let scope = scope_of(session, encoding, Service::default(), request);
        deliver(ex, HandlerScope { asker: Some(conn), ..scope }, message, out)
    }

    /// Writes packets to the client outside the handling of its own messages.
    pub fn write(&mut self, ex: &mut Executor, write: impl FnOnce(EngineFraming, &mut Vec<u8>)) {
        if self.state.ended {
            return;
        }
        write(self.framing(), &mut self.state.queue);
        self.charge(ex);
        if !matches!(self.state.transport, ActiveTransport::WebSocket(_)) {
            self.check_queue(ex, true);
        }
        ex.flush_client(self.state.id);
    }

    /// Answers the poll that carries the client with a NOOP packet.
    pub fn write_noop(&mut self, ex: &mut Executor) {
        self.state.queue.extend_from_slice(&payload::NOOP);
        self.charge(ex);
    }
}
