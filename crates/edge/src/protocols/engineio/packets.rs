//! The packets of a client, and what is written to it.

use super::{ApplicationProtocol, Client, Poll, Probe, payload};
use crate::app::{Message, Sent};
use crate::encode::{BINARY, Encoding, EngineFraming, records};
use crate::executor::{Effect, Executor, PollAnswer};
use crate::identity::{End, Service};
use crate::millis::Millis;
use crate::model::{ConnId, Disconnect, SessionId};
use crate::protocols::client::{ActiveTransport, Next, POLL_BYTES_MAX, POLL_FRAMES_MAX};
use crate::protocols::clients::TableEntry;
use crate::protocols::message::{deliver, scope_of};
use crate::protocols::socketio::{self, SocketIo};
use smallvec::SmallVec;
use std::time::Duration;
use stentor_wire::engineio::{self, Data, Packet, PacketKind, Version};
use stentor_wire::http1::Request;

/// How often polls are released while a client moves to a WebSocket. Engine.IO does it as often.
pub(super) const RELEASE_INTERVAL: Duration = Duration::from_millis(100);

impl Client {
    /// A message has arrived on a WebSocket that carries the client, or wants to.
    pub(crate) fn handle_frame(
        &mut self,
        ex: &mut Executor,
        conn: ConnId,
        message: Message<'_>,
        out: &mut Vec<u8>,
    ) -> Next {
        let now = ex.millis();
        if self.state.removed {
            ex.push(Effect::CloseSocket { conn, code: 1000, reason: "" });
            return Next::Stop;
        }
        let mut scratch = Vec::new();
        let packet = engineio::decode_message(self.version, message, &mut scratch);
        if self.state.transport == ActiveTransport::WebSocket(conn) {
            self.state.alive_at = now;
            let Ok(packet) = packet else {
                ex.metrics().protocol_errors.add(1);
                ex.end_client(self.state.id, End::Fault);
                return Next::Stop;
            };
            return self.handle_packet(ex, &packet, None, out);
        }
        match (&mut self.probe, packet) {
            (Some(probe), Ok(packet)) if probe.conn == conn && is_probe(&packet) => {
                // It is a text in either version.
                EngineFraming::V4.text(out, "3probe");
                probe.answered = true;
                probe.release_at = now.after(RELEASE_INTERVAL);
                Next::Continue
            }
            (Some(Probe { conn: probing, answered: true, .. }), Ok(packet))
                if *probing == conn && packet.kind == PacketKind::Upgrade =>
            {
                self.upgrade(ex, conn, out);
                Next::Continue
            }
            // Before the probe it isn't known what this is: only this connection ends.
            _ => {
                ex.metrics().protocol_errors.add(1);
                ex.push(Effect::CloseSocket { conn, code: 1000, reason: "" });
                Next::Stop
            }
        }
    }

    /// The client moves to a WebSocket.
    fn upgrade(&mut self, ex: &mut Executor, conn: ConnId, out: &mut Vec<u8>) {
        self.probe = None;
        if let ActiveTransport::Poll(poll) = self.state.transport {
            // The poll that waits gets what there is; the next packets leave on the WebSocket.
            self.state.queue.extend_from_slice(&payload::NOOP);
            let records = self.take_records(ex);
            ex.push(Effect::AnswerPoll { conn: poll, answer: PollAnswer::Records(records) });
        }
        self.state.transport = ActiveTransport::WebSocket(conn);
        let queue = self.take_queue();
        let framing = self.framing();
        for (kind, packet) in records(&queue) {
            match (kind, std::str::from_utf8(packet)) {
                (BINARY, _) | (_, Err(_)) => framing.binary(out, packet),
                (_, Ok(text)) => framing.text(out, text),
            }
        }
        let encoding = self.encoding(ex.options().engine.recovery.is_some());
        let sessions: SmallVec<[SessionId; 2]> = self.sessions().collect();
        for session in sessions {
            ex.set_encoding(session, encoding);
        }
        ex.push(Effect::FlushClient(self.state.id));
    }

    /// Handles one packet. Its answers are appended to `out`.
    #[inline]
    pub(super) fn handle_packet(
        &mut self,
        ex: &mut Executor,
        packet: &Packet<'_>,
        request: Option<&Request<'_>>,
        out: &mut Vec<u8>,
    ) -> Next {
        match (packet.kind, self.version, packet.data) {
            (PacketKind::Message, _, data) => return self.handle_message(ex, data, request, out),
            (PacketKind::Ping, Version::V3, Data::Text(text)) => {
                self.framing().packet(out, text.len() + 1, |out| {
                    out.push(PacketKind::Pong.digit());
                    out.extend_from_slice(text.as_bytes());
                });
            }
            (PacketKind::Pong, Version::V4, _) => {
                self.state.due_at = ex.millis().after(ex.options().heartbeat.interval);
                self.pinged_at = None;
            }
            // In each version only one side pings.
            (PacketKind::Ping | PacketKind::Pong, ..) => {
                ex.metrics().protocol_errors.add(1);
                ex.end_client(self.state.id, End::Fault);
                return Next::Stop;
            }
            (PacketKind::Close, ..) => {
                ex.end_client(self.state.id, End::Closed);
                return Next::Stop;
            }
            (PacketKind::Open | PacketKind::Upgrade | PacketKind::Noop, ..) => {}
        }
        Next::Continue
    }

    fn handle_message(
        &mut self,
        ex: &mut Executor,
        data: Data<'_>,
        request: Option<&Request<'_>>,
        out: &mut Vec<u8>,
    ) -> Next {
        ex.metrics().messages.add(1);
        let framing = self.framing();
        let (session, envelope) = match &mut self.application {
            ApplicationProtocol::None => return Next::Stop,
            ApplicationProtocol::SocketIo(io) => {
                let carrier = socketio::Carrier::of(&self.state, framing, self.version);
                let held_before = io.held_bytes();
                let next = io.handle_message(ex, carrier, data, request, out);
                if held_before != io.held_bytes() {
                    self.weigh(ex);
                }
                return next;
            }
            ApplicationProtocol::Plain { session, envelope } => (*session, *envelope),
        };
        let message = match data {
            Data::Text(text) => Message::Text(text),
            Data::Binary(bytes) => Message::Binary(bytes),
        };
        let encoding = Encoding::engine_io(framing, envelope, false);
        let scope = scope_of(session, encoding, Service::default(), request);
        deliver(ex, scope, message, out)
    }

    /// Writes to the client outside the handling of its own messages.
    pub(crate) fn write(&mut self, ex: &mut Executor, write: impl FnOnce(EngineFraming, &mut Vec<u8>)) {
        if self.state.ended {
            return;
        }
        write(self.framing(), &mut self.state.queue);
        self.charge(ex);
        if !matches!(self.state.transport, ActiveTransport::WebSocket(_)) {
            self.check_queue(ex);
        }
        ex.push(Effect::FlushClient(self.state.id));
    }

    /// Releases the poll that carries the client.
    pub(crate) fn write_noop(&mut self, ex: &mut Executor) {
        self.state.queue.extend_from_slice(&payload::NOOP);
        self.charge(ex);
    }

    /// Ends the client if too much waits for it.
    pub(crate) fn check_queue(&mut self, ex: &mut Executor) {
        if self.state.queue.len() > ex.options().limits.send_buffer_bytes_max {
            ex.end_client(self.state.id, End::Because(Disconnect::SlowConsumer));
        }
    }

    /// Sends a message to one session, outside the handling of the client's own messages.
    pub(crate) fn send(&mut self, ex: &mut Executor, session: SessionId, what: &Sent) {
        let (namespace, before) = match &self.application {
            ApplicationProtocol::None => return,
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

    /// Everything that waits for a polling client, as records.
    pub(super) fn take_records(&mut self, ex: &mut Executor) -> Vec<u8> {
        let mut records = self.take_queue();
        for session in self.application.sessions() {
            ex.take(session, POLL_BYTES_MAX, POLL_FRAMES_MAX, |_, frame| {
                records.extend_from_slice(&frame.bytes());
            });
        }
        records
    }

    /// Answers the poll that carries the client, if something waits. Returns whether it did.
    pub(crate) fn answer_poll(&mut self, ex: &mut Executor, poll: &mut Poll, out: &mut Vec<u8>) -> bool {
        let records = self.take_records(ex);
        if records.is_empty() {
            return false;
        }
        self.state.transport = ActiveTransport::None;
        poll.answer(&PollAnswer::Records(records), ex.date(), out);
        true
    }

    /// The time at which something is due.
    pub(crate) fn poll_timeout(&self) -> Millis {
        let mut at = self.state.due_at;
        if self.state.ended {
            return at;
        }
        if let Some(probe) = &self.probe {
            at = at.earlier(if probe.answered { probe.until.earlier(probe.release_at) } else { probe.until });
        }
        match self.socketio().and_then(SocketIo::poll_timeout) {
            Some(other) => at.earlier(other),
            None => at,
        }
    }
}

/// Whether a packet is the probe of an upgrade.
fn is_probe(packet: &Packet<'_>) -> bool {
    *packet == Packet::text(PacketKind::Ping, "probe")
}
