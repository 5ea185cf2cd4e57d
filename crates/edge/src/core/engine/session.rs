//! A client's packets, its heartbeats, and its end.

use super::super::carry::{POLL_BYTES_MAX, POLL_FRAMES_MAX};
use super::super::client::{Carrier, ClientId, Upper};
use super::super::table::{Again, Conn, Poll, Stack, Waiting};
use super::super::{About, Core, Later};
use super::{Engine, Probe, is_probe, payload};
use crate::app::Message;
use crate::encode::{BINARY, EngineWriter, FrameTarget, Writer, records};
use crate::millis::Millis;
use smallvec::SmallVec;
use std::time::Duration;
use stentor_driver::{ConnId, Driver};
use stentor_hub::Disconnect;
use stentor_wire::engineio::{self, Data, Packet, PacketKind, Version};
use stentor_wire::http1::Request;
use stentor_wire::ws::{self, Kind, Opcode};

pub(in super::super) use super::super::client::End;

/// How often polls are released while a client moves to a WebSocket. Engine.IO does it as often.
const RELEASE_INTERVAL: Duration = Duration::from_millis(100);
/// A timer that is later than this was held up by a busy server.
const HELD_UP: Duration = Duration::from_millis(20);

impl Engine {
    /// A connection ends, perhaps that of a probe.
    pub(in super::super) fn probe_lost(&mut self, conn: ConnId) {
        self.probe.take_if(|probe| probe.conn == conn);
    }
}

impl<D: Driver> Core<D> {
    /// A message has arrived on a WebSocket that carries a client, or wants to. Says whether to go on with what
    /// follows it.
    pub(in super::super) fn engine_frame(
        &mut self,
        conn: ConnId,
        id: ClientId,
        kind: Kind,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> bool {
        let now = self.millis();
        let Some(client) = self.clients.get_mut(id) else {
            self.later.push(Later::Close(conn));
            return false;
        };
        let mut scratch = Vec::new();
        let version = client.version();
        let packet = engineio::decode_message(version, kind, data, &mut scratch);
        if client.carrier == Carrier::Socket(conn) {
            client.alive_at = now;
            let Ok(packet) = packet else {
                self.metrics().protocol_errors.add(1);
                self.later.push(Later::End(id, End::Fault));
                return false;
            };
            let goes_on = self.engine_packet(id, &packet, None, out);
            if let (false, Some(core)) = (goes_on, self.leaving(id)) {
                // As the client sent it, but for the mask.
                let opcode = if kind == Kind::Text { Opcode::Text } else { Opcode::Binary };
                let mut again = Vec::with_capacity(data.len() + 14);
                ws::encode(&mut again, opcode, data, false, Some([0; 4]));
                self.again = Some(Again::Frame(again));
                self.later.push(Later::Depart(id, core));
            }
            return goes_on;
        }
        let writer = EngineWriter { version, target: FrameTarget::WebSocket };
        match (client.engine_mut().and_then(|engine| engine.probe.as_mut()), packet) {
            (Some(probe), Ok(packet)) if probe.conn == conn && is_probe(&packet) => {
                writer.text(out, "3probe");
                probe.answered = true;
                probe.release_at = now.after(RELEASE_INTERVAL);
                let release_at = probe.release_at;
                self.arm_client(id, release_at);
                true
            }
            (Some(Probe { conn: probing, answered: true, .. }), Ok(packet))
                if *probing == conn && packet.kind == PacketKind::Upgrade =>
            {
                self.upgraded(id, conn, out);
                true
            }
            // What it is can't be known before the probe: only this connection ends.
            _ => {
                self.metrics().protocol_errors.add(1);
                self.later.push(Later::Close(conn));
                false
            }
        }
    }

    /// A client has moved to a WebSocket.
    fn upgraded(&mut self, id: ClientId, conn: ConnId, out: &mut Vec<u8>) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if let Some(engine) = client.engine_mut() {
            engine.probe = None;
        }
        if matches!(client.carrier, Carrier::Poll(_)) {
            client.queue.extend_from_slice(&payload::NOOP);
            self.flush_client(id);
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        client.carrier = Carrier::Socket(conn);
        let queue = client.take_queue();
        let writer = client.writer();
        for (kind, packet) in records(&queue) {
            match (kind, std::str::from_utf8(packet)) {
                (BINARY, _) | (_, Err(_)) => writer.binary(out, packet),
                (_, Ok(text)) => writer.text(out, text),
            }
        }
        let formats: SmallVec<[_; 2]> = client
            .sessions()
            .map(|session| (session, client.format(self.shared.options.engine.recovery.is_some())))
            .collect();
        for (session, format) in formats {
            if let Some(format) = format {
                self.hub.set_format(session, format);
            }
        }
        if let Some(index) = self.table.index_of(conn) {
            self.later.push(Later::Flush(index));
        }
    }

    /// Deals with one packet of a client; what answers it is appended to `out`. Says whether to go on with those that
    /// follow it.
    pub(super) fn engine_packet(
        &mut self,
        id: ClientId,
        packet: &Packet<'_>,
        request: Option<&Request<'_>>,
        out: &mut Vec<u8>,
    ) -> bool {
        let now = self.millis();
        let interval = self.shared.options.heartbeat.interval;
        let Some(client) = self.clients.get_mut(id) else { return false };
        match (packet.kind, client.version(), packet.data) {
            (PacketKind::Message, _, data) => return self.client_message(id, data, request, out),
            (PacketKind::Ping, Version::V3, Data::Text(text)) => {
                client.writer().packet(out, text.len() + 1, |out| {
                    out.push(PacketKind::Pong.digit());
                    out.extend_from_slice(text.as_bytes());
                });
            }
            (PacketKind::Pong, Version::V4, _) => {
                let due_at = now.after(interval);
                client.due_at = due_at;
                if let Some(engine) = client.engine_mut() {
                    engine.pinged_at = None;
                }
                // The timer is set to the end of patience, which may be later.
                self.arm_client(id, due_at);
            }
            // In each version only one side pings.
            (PacketKind::Ping | PacketKind::Pong, ..) => {
                self.metrics().protocol_errors.add(1);
                self.later.push(Later::End(id, End::Fault));
                return false;
            }
            (PacketKind::Close, ..) => {
                self.later.push(Later::End(id, End::Closed));
                return false;
            }
            (PacketKind::Open | PacketKind::Upgrade | PacketKind::Noop, ..) => {}
        }
        true
    }

    fn client_message(
        &mut self,
        id: ClientId,
        data: Data<'_>,
        request: Option<&Request<'_>>,
        out: &mut Vec<u8>,
    ) -> bool {
        self.metrics().messages.add(1);
        let Some(client) = self.clients.get_mut(id) else { return false };
        let (session, envelope) = match &client.upper {
            Upper::None => return false,
            Upper::SocketIo(_) => return self.socketio_message(id, data, request, out),
            Upper::Plain { session, envelope } => (*session, *envelope),
        };
        let writer = Writer::Engine(client.writer());
        let message = match data {
            Data::Text(text) => Message::Text(text),
            Data::Binary(bytes) => Message::Binary(bytes),
        };
        let asked = self.actions.len();
        let about = About { session: Some(session), writer, envelope, request, ..About::default() };
        self.tell_app(about, out, |app, ctx| app.message(ctx, session, message));
        !self.asks_to_close(asked, session)
    }

    /// Writes something to a client, from outside of the handling of its own messages.
    pub(in super::super) fn write_to_client(
        &mut self,
        id: ClientId,
        write: impl FnOnce(EngineWriter, &mut Vec<u8>),
    ) {
        let bytes_max = self.shared.options.limits.send_buffer_bytes_max;
        let Some(client) = self.clients.get_mut(id) else { return };
        let writer = client.writer();
        let Carrier::Socket(conn) = client.carrier else {
            if client.ended {
                return;
            }
            write(writer, &mut client.queue);
            client.weigh(&self.shared.ledger);
            if client.queue.len() > bytes_max {
                return self.end_client(id, End::Because(Disconnect::SlowConsumer));
            }
            return self.flush_client(id);
        };
        let Some(index) = self.table.index_of(conn) else { return };
        let Some(conn) = self.table.get_mut(index) else { return };
        let replies = conn.replies.get_or_insert_default();
        write(writer, replies);
        let is_slow = replies.len() > bytes_max && conn.in_flight;
        conn.weigh(&self.shared.ledger);
        if is_slow {
            self.end_client(id, End::Because(Disconnect::SlowConsumer));
        } else {
            self.flush(index);
        }
    }

    /// Everything that waits for a polled client, as records.
    pub(in super::super) fn take_records(&mut self, id: ClientId) -> Vec<u8> {
        let Some(client) = self.clients.get_mut(id) else { return Vec::new() };
        let mut records = client.take_queue();
        for session in client.sessions() {
            self.hub.take(session, POLL_BYTES_MAX, POLL_FRAMES_MAX, |_, frame| {
                records.extend_from_slice(&frame.bytes());
            });
        }
        records
    }

    pub(in super::super) fn answer_poll(&mut self, id: ClientId, conn: ConnId, records: &[u8]) {
        self.answer_poll_with(id, conn, |out, version, poll| {
            payload::write_answer(out, version, poll, records, &[]);
        });
    }

    fn answer_poll_with(
        &mut self,
        id: ClientId,
        conn: ConnId,
        write: impl FnOnce(&mut Vec<u8>, Version, &Poll),
    ) {
        let deadline = self.millis().after(self.shared.options.limits.idle_timeout);
        let Some(client) = self.clients.get_mut(id) else { return };
        client.carrier = Carrier::None;
        let version = client.version();
        let Some(index) = self.table.index_of(conn) else { return };
        let Some(conn) = self.table.get_mut(index) else { return };
        let Conn { stack: Stack::Http(http), replies, .. } = conn else { return };
        let Some(Waiting::Poll(poll)) = &mut http.waiting else { return };
        poll.answered = true;
        poll.keep_alive &= !self.draining;
        http.deadline = deadline;
        write(replies.get_or_insert_default(), version, poll);
        conn.weigh(&self.shared.ledger);
        self.arm(index, deadline);
        self.flush(index);
    }

    /// The client has ended; `carrier` carried it. It is told, now or when it comes again.
    ///
    /// If the client should reconnect, a poll is answered 503 and a WebSocket ends without a Close frame: OkHttp
    /// reports a Close frame only as "closing", so its Socket.IO client continues until a ping is missing.
    pub(in super::super) fn end_engine(&mut self, id: ClientId, carrier: Carrier, end: End) {
        let linger = self.millis().after(self.shared.options.limits.close_timeout);
        let Some(client) = self.clients.get_mut(id) else { return };
        let mut last_words = client.take_queue();
        if end != End::Because(Disconnect::ClosedByApplication) {
            last_words = Vec::new();
        }
        if let Some(probe) = client.engine_mut().and_then(|engine| engine.probe.take()) {
            if end.may_reconnect() {
                // The client may have moved there already while its announcement is still in flight.
                self.cut_socket(probe.conn);
            } else {
                self.close_socket_of(probe.conn, 1000, "");
            }
        }
        match carrier {
            Carrier::Socket(conn) if end.may_reconnect() => {
                self.cut_socket(conn);
                self.drop_client(id);
            }
            Carrier::Socket(conn) => {
                let (code, reason) = match end {
                    End::Because(why) => (why.code(), why.reason()),
                    End::Fault => (1002, ""),
                    End::Gone | End::Closed | End::TakenOver(_) => (1000, ""),
                };
                self.close_socket_of(conn, code, reason);
                self.drop_client(id);
            }
            Carrier::Poll(conn) => {
                match end {
                    _ if end.may_reconnect() => {
                        self.answer_poll_with(id, conn, |out, _, poll| payload::write_unavailable(out, poll));
                    }
                    End::Because(_) | End::Fault => {
                        last_words.extend_from_slice(&payload::CLOSE);
                        self.answer_poll(id, conn, &last_words);
                    }
                    End::Closed | End::TakenOver(_) => self.answer_poll(id, conn, &payload::NOOP),
                    End::Gone => {}
                }
                self.drop_client(id);
            }
            // The next poll is told. Who didn't answer a ping is taken for gone.
            Carrier::None if matches!(end, End::Because(why) if why != Disconnect::HeartbeatTimeout) => {
                if let Some(client) = self.clients.get_mut(id) {
                    client.queue = last_words;
                    client.weigh(&self.shared.ledger);
                }
                self.arm_client(id, linger);
            }
            Carrier::None | Carrier::Stream(_) => self.drop_client(id),
        }
    }

    /// Ends a WebSocket without a Close frame.
    fn cut_socket(&mut self, conn: ConnId) {
        if let Some(index) = self.table.index_of(conn) {
            self.end(index);
        }
    }

    /// Whether a client has just turned out to be overdue, before its timer has said so.
    pub(super) fn is_overdue(&mut self, id: ClientId) -> bool {
        let now = self.millis();
        let Some(client) = self.clients.get(id) else { return true };
        let Some(engine) = client.engine() else { return true };
        let silence = self.shared.options.heartbeat.interval + self.shared.options.heartbeat.timeout;
        let is_overdue = match engine.version {
            Version::V3 => !now.is_before(client.alive_at.after(silence)),
            Version::V4 => engine.pinged_at.is_some() && !now.is_before(client.due_at),
        };
        if is_overdue {
            self.client_due(id);
        }
        self.clients.get(id).is_none()
    }

    /// The deadline for the missing attachments of a client's packet, if any.
    fn attachments_until(&mut self, id: ClientId) -> Option<Millis> {
        let later = self.millis().after(self.shared.options.limits.message_timeout);
        let client = self.clients.get_mut(id)?;
        let Upper::SocketIo(io) = &mut client.upper else { return None };
        let until = io.packet_until()?;
        let Carrier::Socket(conn) = client.carrier else { return Some(until) };
        let conn = self.table.index_of(conn).and_then(|index| self.table.get(index));
        if !conn.is_some_and(|conn| conn.held.is_ours()) {
            return Some(until);
        }
        // We have paused reading, so we can't see what the client sends.
        io.extend_packet(later);
        Some(later)
    }

    /// Something may be due of a client, whose timer isn't set.
    pub(in super::super) fn engine_due(&mut self, id: ClientId) {
        let now = self.millis();
        let heartbeat = self.shared.options.heartbeat;
        let Some(client) = self.clients.get_mut(id) else { return };
        if client.ended {
            return self.drop_client(id);
        }
        // What else is to be looked at, and when.
        let mut others: Option<Millis> = None;
        let mut also = |at: Millis| others = Some(others.map_or(at, |other| other.earlier(at)));
        let is_polling = matches!(client.carrier, Carrier::Poll(_));
        let Some(engine) = client.engine_mut() else { return };
        if let Some(probe) = &mut engine.probe {
            if !now.is_before(probe.until) {
                let conn = probe.conn;
                engine.probe = None;
                self.close_socket_of(conn, 1000, "");
            } else {
                also(probe.until);
                if probe.answered {
                    let releases = !now.is_before(probe.release_at);
                    if releases {
                        probe.release_at = now.after(RELEASE_INTERVAL);
                    }
                    also(probe.release_at);
                    if releases && is_polling {
                        client.queue.extend_from_slice(&payload::NOOP);
                    }
                }
                self.flush_client(id);
            }
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        if let Upper::SocketIo(io) = &client.upper
            && io.sockets.is_empty()
        {
            if !now.is_before(io.connect_until) {
                return self.end_client(id, End::Because(Disconnect::NotConnected));
            }
            also(io.connect_until);
        }
        match self.attachments_until(id) {
            Some(until) if !now.is_before(until) => {
                return self.end_client(id, End::Because(Disconnect::MessageTimeout));
            }
            Some(until) => also(until),
            None => {}
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        let due_at = client.due_at;
        if now.is_before(due_at) {
            return self.arm_client(id, others.map_or(due_at, |other| other.earlier(due_at)));
        }
        let carrier = client.carrier;
        let progressed = match carrier {
            // It may not be read from because of us: then what it sends can't be seen.
            Carrier::Socket(conn) => self.table.index_of(conn).is_some_and(|index| {
                self.progress(index) == Some(true)
                    || self.table.get(index).is_some_and(|conn| conn.held.is_ours())
            }),
            _ => false,
        };
        let Some(client) = self.clients.get_mut(id) else { return };
        if progressed {
            client.alive_at = now;
        }
        let alive_at = client.alive_at;
        let Some(engine) = client.engine_mut() else { return };
        let due_at = match (engine.version, engine.pinged_at) {
            (Version::V3, _) => {
                let due_at = alive_at.after(heartbeat.interval + heartbeat.timeout);
                if !now.is_before(due_at) {
                    return self.end_client(id, End::Because(Disconnect::HeartbeatTimeout));
                }
                due_at
            }
            // Slow is not dead: but the client waits for pings, whatever else it gets.
            (Version::V4, Some(pinged_at)) if !pinged_at.is_before(alive_at) => {
                return self.end_client(id, End::Because(Disconnect::HeartbeatTimeout));
            }
            (Version::V4, _) => {
                engine.pinged_at = Some(now);
                // From when it was due, so that clients can rely on the sum of both; but a server that was held up has
                // to be patient.
                let from = if now.from(due_at) > HELD_UP { now } else { due_at };
                from.after(heartbeat.timeout)
            }
        };
        let pings = engine.version == Version::V4;
        client.due_at = due_at;
        self.arm_client(id, others.map_or(due_at, |other| other.earlier(due_at)));
        if pings {
            self.write_to_client(id, |writer, out| writer.text(out, "2"));
        }
    }
}
