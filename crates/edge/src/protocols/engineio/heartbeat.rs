//! What is due of a client, and its end.

use super::packets::RELEASE_INTERVAL;
use super::{ApplicationProtocol, Client, payload};
use crate::app::HandlerScope;
use crate::executor::{Effect, Executor, PollAnswer};
use crate::identity::End;
use crate::model::{ConnId, Disconnect, SessionId};
use crate::protocols::client::{ActiveTransport, TransportStatus};
use crate::protocols::clients::TableEntry;
use smallvec::SmallVec;
use std::time::Duration;
use stentor_wire::engineio::Version;

/// A timer that is later than this was held up by a busy server.
const HELD_UP: Duration = Duration::from_millis(20);

impl Client {
    /// Whether the client is overdue, although its timer hasn't fired yet.
    pub(super) fn is_overdue(&self, ex: &Executor) -> bool {
        let (now, heartbeat) = (ex.millis(), ex.options().heartbeat);
        match (self.state.transport, self.version) {
            // Only the core knows whether such a connection makes progress.
            (ActiveTransport::WebSocket(_), _) => false,
            (_, Version::V3) => {
                !now.is_before(self.state.alive_at.after(heartbeat.interval + heartbeat.timeout))
            }
            (_, Version::V4) => self.pinged_at.is_some() && !now.is_before(self.state.due_at),
        }
    }

    /// Handles everything that is due.
    pub(crate) fn handle_timeout(&mut self, ex: &mut Executor, status: TransportStatus) {
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
                // What the client sends can't be seen.
                io.extend_packet(now.after(message_timeout));
            } else if io.is_packet_overdue(now) {
                return self.end(ex, End::Because(Disconnect::MessageTimeout));
            }
        }
        if now.is_before(self.state.due_at) {
            return;
        }
        if status.progressed || status.paused_by_server {
            self.state.alive_at = now;
        }
        let heartbeat = ex.options().heartbeat;
        let alive_at = self.state.alive_at;
        match (self.version, self.pinged_at) {
            (Version::V3, _) => {
                self.state.due_at = alive_at.after(heartbeat.interval + heartbeat.timeout);
                if !now.is_before(self.state.due_at) {
                    self.end(ex, End::Because(Disconnect::HeartbeatTimeout));
                }
            }
            // A slow client isn't dead. But it waits for pings, whatever else it gets.
            (Version::V4, Some(pinged_at)) if !pinged_at.is_before(alive_at) => {
                self.end(ex, End::Because(Disconnect::HeartbeatTimeout));
            }
            (Version::V4, _) => {
                self.pinged_at = Some(now);
                // Counted from when it was due, so that clients can rely on the sum of both intervals. But a server
                // that was held up has to be patient.
                let due_at = self.state.due_at;
                let from = if now.from(due_at) > HELD_UP { now } else { due_at };
                self.state.due_at = from.after(heartbeat.timeout);
                self.write(ex, |framing, out| framing.text(out, "2"));
            }
        }
    }

    fn handle_probe_timeout(&mut self, ex: &mut Executor) {
        let now = ex.millis();
        let is_polling = matches!(self.state.transport, ActiveTransport::Poll(_));
        let Some(probe) = &mut self.probe else { return };
        if !now.is_before(probe.until) {
            let conn = probe.conn;
            self.probe = None;
            ex.push(Effect::CloseSocket { conn, code: 1000, reason: "" });
        } else if probe.answered && !now.is_before(probe.release_at) {
            probe.release_at = now.after(RELEASE_INTERVAL);
            if is_polling {
                self.state.queue.extend_from_slice(&payload::NOOP);
                self.charge(ex);
            }
        }
        ex.push(Effect::FlushClient(self.state.id));
    }

    /// A connection that names the client has ended; `unsent`: with something that the kernel hasn't taken.
    pub(crate) fn handle_connection_lost(&mut self, ex: &mut Executor, conn: ConnId, unsent: bool) {
        self.probe.take_if(|probe| probe.conn == conn);
        let carried = self.state.transport.conn() == Some(conn);
        if carried {
            self.state.transport = ActiveTransport::None;
        }
        if carried || unsent {
            self.end(ex, End::Gone);
        }
    }

    /// Ends the client: its sessions now, then the connection that carries it is told, or the next one that comes.
    ///
    /// If the client should reconnect, a poll is answered 503 and a WebSocket ends without a Close frame: OkHttp
    /// reports a Close frame only as "closing", so its Socket.IO client continues until a ping is missing.
    pub(crate) fn end(&mut self, ex: &mut Executor, end: End) {
        if !self.state.begin_end(ex, end) {
            return;
        }
        let application = std::mem::replace(&mut self.application, ApplicationProtocol::None);
        let ended: SmallVec<[SessionId; 2]> = match application {
            ApplicationProtocol::None => SmallVec::new(),
            ApplicationProtocol::Plain { session, .. } => {
                ex.close_session(session);
                SmallVec::from_slice(&[session])
            }
            ApplicationProtocol::SocketIo(io) => io.end(ex, self.state.id, end),
        };
        for session in ended {
            ex.notify_app(HandlerScope::default(), |app, ctx| app.closed(ctx, session));
        }
        let name = self.state.sid.to_string();
        ex.notify_app(HandlerScope::default(), |app, ctx| app.client_disconnected(ctx, &name));
        let mut last_words = self.take_queue();
        if end != End::Because(Disconnect::ClosedByApplication) {
            last_words = Vec::new();
        }
        self.end_transport(ex, end, last_words);
    }

    /// Ends the client and its connection because the application wants it so. Its sockets are disconnected first, so
    /// that it doesn't reconnect.
    pub(crate) fn close(&mut self, ex: &mut Executor) {
        let framing = self.framing();
        let mut packets = Vec::new();
        if let Some(io) = self.socketio_mut() {
            io.disconnect_all(ex, framing, &mut packets);
        }
        // In the answer to one poll. The close packet is in that to the next.
        self.state.queue.append(&mut packets);
        self.end(ex, End::Because(Disconnect::ClosedByApplication));
    }

    fn end_transport(&mut self, ex: &mut Executor, end: End, mut last_words: Vec<u8>) {
        if let Some(probe) = self.probe.take() {
            ex.push(if end.may_reconnect() {
                // The client may have moved there already while its announcement is still in flight.
                Effect::CutSocket(probe.conn)
            } else {
                Effect::CloseSocket { conn: probe.conn, code: 1000, reason: "" }
            });
        }
        match std::mem::replace(&mut self.state.transport, ActiveTransport::None) {
            ActiveTransport::WebSocket(conn) if end.may_reconnect() => ex.push(Effect::CutSocket(conn)),
            ActiveTransport::WebSocket(conn) => {
                if !last_words.is_empty() {
                    ex.push(Effect::Write { conn, bytes: last_words });
                }
                let (code, reason) = match end {
                    End::Because(why) => (why.code(), why.reason()),
                    End::Fault => (1002, ""),
                    End::Gone | End::Closed | End::TakenOver(_) => (1000, ""),
                };
                ex.push(Effect::CloseSocket { conn, code, reason });
            }
            // socket.io-client 4 handles packets after those of Engine.IO that came with them: a close packet would
            // overtake them.
            ActiveTransport::Poll(conn) if !last_words.is_empty() => {
                let answer = PollAnswer::Records(std::mem::take(&mut last_words));
                ex.push(Effect::AnswerPoll { conn, answer });
                return self.linger(ex);
            }
            ActiveTransport::Poll(conn) => {
                let answer = match end {
                    _ if end.may_reconnect() => Some(PollAnswer::Unavailable),
                    End::Because(_) | End::Fault => Some(PollAnswer::Records(payload::CLOSE.to_vec())),
                    End::Closed | End::TakenOver(_) => Some(PollAnswer::Records(payload::NOOP.to_vec())),
                    End::Gone => None,
                };
                if let Some(answer) = answer {
                    ex.push(Effect::AnswerPoll { conn, answer });
                }
            }
            // The next poll is told. A client that didn't answer a ping is gone.
            ActiveTransport::None if matches!(end, End::Because(why) if why != Disconnect::HeartbeatTimeout) =>
            {
                self.state.queue = last_words;
                self.charge(ex);
                return self.linger(ex);
            }
            ActiveTransport::None | ActiveTransport::Stream(_) => {}
        }
        self.remove(ex);
    }

    /// The client is kept until its next poll, which is told of the end.
    fn linger(&mut self, ex: &mut Executor) {
        self.state.due_at = ex.millis().after(ex.options().limits.close_timeout);
        ex.push(Effect::ArmClient(self.state.id));
    }
}
