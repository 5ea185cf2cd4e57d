//! Timeouts of a client, and its end.

use super::packets::RELEASE_INTERVAL;
use super::{Client, payload};
use crate::executor::{Effect, Executor, PollAnswer, ToConnection};
use crate::identity::End;
use crate::model::Disconnect;
use crate::protocols::client::{ActiveTransport, Client as _};
use std::time::Duration;
use stentor_wire::engineio::Version;

/// Delay of a timer above which the server itself counts as delayed.
pub(super) const SERVER_DELAY_MIN: Duration = Duration::from_millis(20);

impl Client {
    /// Returns `true` if the client is overdue, although its timer hasn't fired yet.
    pub(super) fn is_overdue(&self, ex: &Executor) -> bool {
        let (now, heartbeat) = (ex.millis(), self.heartbeat(ex));
        match (self.state.transport, self.version) {
            // Only the core knows whether a WebSocket makes progress.
            (ActiveTransport::WebSocket(_), _) => false,
            (_, Version::V3) => {
                !now.is_before(self.state.alive_at.after(heartbeat.interval + heartbeat.timeout))
            }
            (_, Version::V4) => self.pinged_at.is_some() && !now.is_before(self.state.due_at),
        }
    }

    pub(super) fn handle_probe_timeout(&mut self, ex: &mut Executor) {
        let now = ex.millis();
        let is_polling = matches!(self.state.transport, ActiveTransport::Poll(_));
        let Some(probe) = &mut self.probe else { return };
        if !now.is_before(probe.until) {
            let conn = probe.conn;
            self.probe = None;
            ex.close_socket(conn);
        } else if probe.answered && !now.is_before(probe.release_at) {
            probe.release_at = now.after(RELEASE_INTERVAL);
            if is_polling {
                self.state.queue.extend_from_slice(&payload::NOOP);
                self.charge(ex);
            }
        }
        ex.flush_client(self.state.id);
    }

    pub(super) fn end_transport(&mut self, ex: &mut Executor, end: End, mut last_words: Vec<u8>) {
        if let Some(probe) = self.probe.take() {
            ex.push(if end.may_reconnect() {
                // The client may already use the WebSocket although its upgrade packet hasn't arrived.
                Effect::Connection(probe.conn, ToConnection::End)
            } else {
                Effect::Connection(probe.conn, ToConnection::Close(1000, ""))
            });
        }
        match std::mem::replace(&mut self.state.transport, ActiveTransport::None) {
            ActiveTransport::WebSocket(conn) if end.may_reconnect() => {
                ex.push(Effect::Connection(conn, ToConnection::End))
            }
            ActiveTransport::WebSocket(conn) => {
                if !last_words.is_empty() {
                    ex.push(Effect::Connection(conn, ToConnection::Write(last_words)));
                }
                let (code, reason) = match end {
                    End::Because(why) => (why.code(), why.reason()),
                    End::Fault => (1002, ""),
                    End::Gone | End::Closed | End::TakenOver => (1000, ""),
                };
                ex.push(Effect::Connection(conn, ToConnection::Close(code, reason)));
            }
            // socket.io-client 4 handles Socket.IO packets after Engine.IO packets of the same payload: a close packet would
            // overtake them.
            ActiveTransport::Poll(conn) if !last_words.is_empty() => {
                let answer = PollAnswer::Records(std::mem::take(&mut last_words));
                ex.push(Effect::Connection(conn, ToConnection::Answer(answer)));
                return self.linger(ex);
            }
            ActiveTransport::Poll(conn) => {
                let answer = match end {
                    _ if end.may_reconnect() => Some(PollAnswer::Unavailable),
                    End::Because(_) | End::Fault => Some(PollAnswer::Records(payload::CLOSE.to_vec())),
                    End::Closed | End::TakenOver => Some(PollAnswer::Records(payload::NOOP.to_vec())),
                    End::Gone => None,
                };
                if let Some(answer) = answer {
                    ex.push(Effect::Connection(conn, ToConnection::Answer(answer)));
                }
            }
            // The next poll receives the reason. A client that didn't answer a ping has disconnected, so it isn't kept.
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

    /// Keeps the client until its next poll, which receives the close reason.
    fn linger(&mut self, ex: &mut Executor) {
        self.state.due_at = ex.millis().after(ex.options().limits.close_timeout);
        ex.arm_client(self.state.id);
    }
}
