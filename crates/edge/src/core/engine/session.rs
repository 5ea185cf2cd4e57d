//! A client's packets, its heartbeats, and its end.

use super::super::client::{Carrier, Client, ClientId, Upper};
use super::super::mail::Mail;
use super::super::table::{Conn, Held, Stack, Waiting};
use super::super::{About, Core, Later};
use super::{Probe, is_probe, payload};
use crate::app::Message;
use crate::millis::Millis;
use crate::writer::{BINARY, Carriage, EngineWriter, Writer, records};
use smallvec::SmallVec;
use std::time::Duration;
use stentor_driver::{ConnId, Driver};
use stentor_hub::{Disconnect, SessionId};
use stentor_wire::engineio::{self, Data, Packet, PacketKind, Version};
use stentor_wire::http1::Request;
use stentor_wire::ws::{self, Kind, Opcode};

/// How often polls are released while a client moves to a WebSocket. Engine.IO does it as often.
const RELEASE_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes of publications in one answer to a poll, unless one is larger by itself.
const POLL_BYTES_MAX: usize = 1 << 20;
/// Publications in one answer to a poll.
const POLL_FRAMES_MAX: usize = 1_024;

/// How a client ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum End {
    /// It has gone: nobody is there to be told.
    Gone,
    /// It has said so.
    Closed,
    /// It has broken the protocol below messages.
    Fault,
    /// For a reason of ours.
    Because(Disconnect),
}

impl<D: Driver> Core<D> {
    /// Sets the client's timer to `at`, if it isn't set to an earlier time.
    pub(in super::super) fn arm_client(&mut self, id: ClientId, at: Millis) {
        let now = self.millis();
        let Some(client) = self.clients.get_mut(id) else { return };
        if let Some(timer) = client.timer {
            if !at.is_before(client.timer_at) {
                return;
            }
            self.driver.timer_cancel(timer);
        }
        client.timer =
            Some(self.driver.timer_set(self.facts.now + at.from(now), super::super::client_token(id)));
        client.timer_at = at;
    }

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
        let packet = engineio::decode_message(client.engine.version, kind, data, &mut scratch);
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
                self.again = Some(again);
                self.later.push(Later::Depart(id, core));
            }
            return goes_on;
        }
        let writer = EngineWriter { version: client.engine.version, carriage: Carriage::Frame };
        match (&mut client.engine.probe, packet) {
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
        client.engine.probe = None;
        if matches!(client.carrier, Carrier::Poll(_)) {
            client.queue.extend_from_slice(&payload::NOOP);
            self.flush_client(id);
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        client.carrier = Carrier::Socket(conn);
        let queue = std::mem::take(&mut client.queue);
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
        match (packet.kind, client.engine.version, packet.data) {
            (PacketKind::Message, _, data) => return self.client_message(id, data, request, out),
            (PacketKind::Ping, Version::V3, Data::Text(text)) => {
                client.writer().packet(out, text.len() + 1, |out| {
                    out.push(PacketKind::Pong.digit());
                    out.extend_from_slice(text.as_bytes());
                });
            }
            (PacketKind::Pong, Version::V4, _) => {
                client.engine.pinged_at = None;
                let due_at = now.after(interval);
                client.engine.due_at = due_at;
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
        let bytes_max = self.shared.options.limits.outbox_bytes_max;
        let Some(client) = self.clients.get_mut(id) else { return };
        let writer = client.writer();
        let Carrier::Socket(conn) = client.carrier else {
            if client.engine.ended {
                return;
            }
            write(writer, &mut client.queue);
            if client.queue.len() > bytes_max {
                return self.end_client(id, End::Because(Disconnect::SlowConsumer));
            }
            return self.flush_client(id);
        };
        let Some(index) = self.table.index_of(conn) else { return };
        let Some(conn) = self.table.get_mut(index) else { return };
        let replies = conn.replies.get_or_insert_default();
        write(writer, replies);
        if replies.len() > bytes_max && conn.in_flight {
            self.end_client(id, End::Because(Disconnect::SlowConsumer));
        } else {
            self.flush(index);
        }
    }

    /// Everything that waits for a polled client, as records.
    pub(super) fn take_records(&mut self, id: ClientId) -> Vec<u8> {
        let Some(client) = self.clients.get_mut(id) else { return Vec::new() };
        let mut records = std::mem::take(&mut client.queue);
        for session in client.sessions() {
            self.hub.take(session, POLL_BYTES_MAX, POLL_FRAMES_MAX, |_, frame| {
                records.extend_from_slice(&frame.bytes());
            });
        }
        records
    }

    /// What was taken for a client is with the kernel.
    pub(in super::super) fn client_sent(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(id) else { return };
        for session in client.sessions() {
            self.hub.handle_sent(session);
        }
    }

    /// Sends what waits for a client, if something is there to carry it.
    pub(in super::super) fn flush_client(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(id) else { return };
        match client.carrier {
            Carrier::None => {}
            Carrier::Socket(conn) => {
                if let Some(index) = self.table.index_of(conn) {
                    self.flush(index);
                }
            }
            Carrier::Poll(conn) => {
                let records = self.take_records(id);
                if !records.is_empty() {
                    self.answer_poll(id, conn, &records);
                }
            }
        }
    }

    fn answer_poll(&mut self, id: ClientId, conn: ConnId, records: &[u8]) {
        let deadline = self.millis().after(self.shared.options.limits.idle_time_max);
        let Some(client) = self.clients.get_mut(id) else { return };
        client.carrier = Carrier::None;
        let version = client.engine.version;
        let Some(index) = self.table.index_of(conn) else { return };
        let Some(Conn { stack: Stack::Http(http), replies, .. }) = self.table.get_mut(index) else { return };
        let Some(Waiting::Poll(poll)) = &mut http.waiting else { return };
        poll.answered = true;
        poll.keep_alive &= !self.draining;
        http.deadline = deadline;
        payload::write_answer(replies.get_or_insert_default(), version, poll, records, &[]);
        self.arm(index, deadline);
        self.flush(index);
    }

    /// Ends a client: its sessions at once, then who carries it is told.
    pub(in super::super) fn end_client(&mut self, id: ClientId, end: End) {
        let linger = self.millis().after(self.shared.options.limits.close_time_max);
        let Some(client) = self.clients.get_mut(id) else { return };
        if client.engine.ended {
            return;
        }
        if let End::Because(why) = end {
            self.shared.metrics[self.facts.core].disconnects[why as usize].add(1);
        }
        let upper = std::mem::replace(&mut client.upper, Upper::None);
        client.queue = Vec::new();
        client.engine.ended = true;
        let (carrier, probe) = (client.carrier, client.engine.probe.take());
        client.carrier = Carrier::None;
        let sid = client.sid.to_string();
        let sockets: SmallVec<[SessionId; 2]> = upper.sessions().collect();
        // Who leaves its namespaces, or broke the protocol, doesn't come back for what it missed.
        let ended = self.suspend(upper, end != End::Because(Disconnect::ProtocolError));
        for session in ended {
            self.hub.handle_close(session);
        }
        for session in sockets {
            self.ask_app(About::default(), |app, ctx| app.closed(ctx, session));
        }
        self.ask_app(About::default(), |app, ctx| app.gone(ctx, &sid));
        if let Some(probe) = probe {
            self.close_socket_of(probe.conn, 1000, "");
        }
        match carrier {
            Carrier::Socket(conn) => {
                let (code, reason) = match end {
                    End::Because(why) => (why.code(), why.reason()),
                    End::Fault => (1002, ""),
                    End::Gone | End::Closed => (1000, ""),
                };
                self.close_socket_of(conn, code, reason);
                self.drop_client(id);
            }
            Carrier::Poll(conn) => {
                match end {
                    End::Because(_) | End::Fault => self.answer_poll(id, conn, &payload::CLOSE),
                    End::Closed => self.answer_poll(id, conn, &payload::NOOP),
                    End::Gone => {}
                }
                self.drop_client(id);
            }
            // The next poll is told. Who didn't answer a ping is taken for gone.
            Carrier::None if matches!(end, End::Because(why) if why != Disconnect::HeartbeatTimeout) => {
                self.arm_client(id, linger);
            }
            Carrier::None => self.drop_client(id),
        }
    }

    fn close_socket_of(&mut self, conn: ConnId, code: u16, reason: &str) {
        if let Some(index) = self.table.index_of(conn) {
            self.close_socket(index, code, reason);
        }
    }

    pub(super) fn drop_client(&mut self, id: ClientId) {
        let Some(client) = self.take_client(id) else { return };
        let home = client.sid.core(self.shared.cores);
        if home != self.facts.core {
            self.post(home, Mail::Ended(client.sid));
        }
    }

    pub(super) fn take_client(&mut self, id: ClientId) -> Option<Client> {
        let client = self.clients.remove(id)?;
        if let Some(timer) = client.timer {
            self.driver.timer_cancel(timer);
        }
        Some(client)
    }

    /// A connection that names a client ends; `unsent`: with packets of its that the kernel hasn't taken.
    pub(in super::super) fn carrier_lost(&mut self, conn: ConnId, id: ClientId, unsent: bool) {
        if unsent {
            return self.end_client(id, End::Gone);
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        if client.engine.probe.is_some_and(|probe| probe.conn == conn) {
            client.engine.probe = None;
        }
        if matches!(client.carrier, Carrier::Socket(c) | Carrier::Poll(c) if c == conn) {
            client.carrier = Carrier::None;
            self.end_client(id, End::Gone);
        }
    }

    /// Whether a client has just turned out to be overdue, before its timer has said so.
    pub(super) fn is_overdue(&mut self, id: ClientId) -> bool {
        let now = self.millis();
        let Some(client) = self.clients.get(id) else { return true };
        let silence = self.shared.options.heartbeat.interval + self.shared.options.heartbeat.timeout;
        let is_overdue = match client.engine.version {
            Version::V3 => !now.is_before(client.alive_at.after(silence)),
            Version::V4 => client.engine.pinged_at.is_some() && !now.is_before(client.engine.due_at),
        };
        if is_overdue {
            self.client_due(id);
        }
        self.clients.get(id).is_none()
    }

    /// Something may be due of a client.
    pub(in super::super) fn client_due(&mut self, id: ClientId) {
        let now = self.millis();
        let heartbeat = self.shared.options.heartbeat;
        let Some(client) = self.clients.get_mut(id) else { return };
        if let Some(timer) = client.timer.take() {
            self.driver.timer_cancel(timer);
        }
        if client.engine.ended {
            return self.drop_client(id);
        }
        // What else is to be looked at, and when.
        let mut others: Option<Millis> = None;
        let mut also = |at: Millis| others = Some(others.map_or(at, |other| other.earlier(at)));
        if let Some(probe) = &mut client.engine.probe {
            if !now.is_before(probe.until) {
                let conn = probe.conn;
                client.engine.probe = None;
                self.close_socket_of(conn, 1000, "");
            } else {
                if probe.answered && !now.is_before(probe.release_at) {
                    probe.release_at = now.after(RELEASE_INTERVAL);
                    if matches!(client.carrier, Carrier::Poll(_)) {
                        client.queue.extend_from_slice(&payload::NOOP);
                    }
                }
                also(probe.until);
                if probe.answered {
                    also(probe.release_at);
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
        let due_at = client.engine.due_at;
        if now.is_before(due_at) {
            return self.arm_client(id, others.map_or(due_at, |other| other.earlier(due_at)));
        }
        let carrier = client.carrier;
        let progressed = match carrier {
            // It may not be read from because of us: then what it sends can't be seen.
            Carrier::Socket(conn) => self.table.index_of(conn).is_some_and(|index| {
                self.progress(index) == Some(true)
                    || self.table.get(index).is_some_and(|conn| conn.held.has(Held::CORES))
            }),
            _ => false,
        };
        let Some(client) = self.clients.get_mut(id) else { return };
        if progressed {
            client.alive_at = now;
        }
        let alive_at = client.alive_at;
        let due_at = match (client.engine.version, client.engine.pinged_at) {
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
                client.engine.pinged_at = Some(now);
                // From now, not from when it was due: a server that was held up has to be patient.
                now.after(heartbeat.timeout)
            }
        };
        client.engine.due_at = due_at;
        let pings = client.engine.version == Version::V4;
        self.arm_client(id, others.map_or(due_at, |other| other.earlier(due_at)));
        if pings {
            self.write_to_client(id, |writer, out| writer.text(out, "2"));
        }
    }
}
