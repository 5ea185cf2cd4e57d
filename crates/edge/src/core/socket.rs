//! WebSocket connections: messages to the application, heartbeats, and their end.

use super::Core;
use super::table::{Accepts, Conn, Socket, Stack};
use crate::app::Message;
use stentor_driver::{Driver, Sending};
use stentor_hub::Disconnect;
use stentor_wire::ws::{Event, Kind};

/// A ping without payload, as a server sends it (RFC 6455, 5.5.2).
const PING: [u8; 2] = [0x89, 0];

impl<D: Driver> Core<D> {
    /// Deals with received bytes; what answers them is appended to `out`.
    pub(super) fn socket_input(&mut self, index: usize, data: &mut [u8], out: &mut Vec<u8>) {
        let now = self.millis();
        let Some(conn) = self.table.get_mut(index) else { return };
        let (Stack::Socket(socket), Some(session)) = (&mut conn.stack, conn.session) else { return };
        socket.alive_at = now;
        socket.pinged_at = None;
        let mut at = 0;
        let mut messages = 0;
        let mut published = false;
        let mut closed = false;
        while at < data.len() {
            let received = socket.ws.receive(&mut self.ws, &mut data[at..], out);
            at += received.consumed;
            match received.event {
                Some(Event::Message { kind, data }) => {
                    messages += 1;
                    if socket.accepts == Accepts::Nothing {
                        self.actions
                            .push(crate::app::Action::Close { session, why: Disconnect::NotAccepted });
                        break;
                    }
                    let message = match (kind, std::str::from_utf8(data)) {
                        (Kind::Text, Ok(text)) => Message::Text(text),
                        _ => Message::Binary(data),
                    };
                    let facts = self.facts;
                    let envelope = socket.envelope;
                    let asked = self.actions.len();
                    let mut ctx =
                        facts.context(&mut self.hub, out, &mut self.actions, Some(session), envelope);
                    self.app.message(&mut ctx, session, message);
                    published |= ctx.published;
                    let ended = self.actions[asked..].iter().any(
                        |action| matches!(action, crate::app::Action::Close { session: s, .. } if *s == session),
                    );
                    if ended {
                        break;
                    }
                }
                Some(Event::Ping | Event::Pong(_)) => {}
                Some(Event::Closed { error, .. }) => {
                    if error.is_some() {
                        self.shared.metrics[self.facts.core].protocol_errors.add(1);
                    }
                    closed = true;
                    break;
                }
                None if received.consumed == 0 => break,
                None => {}
            }
        }
        if socket.ws.is_mid_message() {
            if socket.message_since.is_none() {
                socket.message_since = Some(now);
                self.arm(index, now.after(self.shared.options.limits.message_time_max));
            }
        } else {
            socket.message_since = None;
        }
        self.metrics().messages.add(messages);
        if closed {
            if let Some(conn) = self.table.get_mut(index) {
                conn.replies.get_or_insert_default().append(out);
            }
            self.end(index, self.shared.options.limits.close_time_max);
        } else if published {
            self.hold_if_congested(index);
        }
    }

    /// Closes a WebSocket connection with a code and a reason, or any other at once.
    pub(super) fn close_socket(&mut self, index: usize, code: u16, reason: &str) {
        if let Some(conn) = self.table.get_mut(index)
            && let Stack::Socket(socket) = &mut conn.stack
        {
            socket.ws.close(code, reason, conn.replies.get_or_insert_default());
        }
        self.end(index, self.shared.options.limits.close_time_max);
    }

    /// Something may be due on a WebSocket connection: a ping, the end of a message, the end of patience.
    pub(super) fn socket_due(&mut self, index: usize) {
        let now = self.millis();
        let heartbeat = self.shared.options.heartbeat;
        let message_time_max = self.shared.options.limits.message_time_max;
        let Some(Conn { id, stack: Stack::Socket(socket), session, .. }) = self.table.get_mut(index) else {
            return;
        };
        let Some(session) = *session else { return };
        let message_due = socket.message_since.map(|since| since.after(message_time_max));
        if message_due.is_some_and(|due| !now.is_before(due)) {
            return self.disconnect(session, Disconnect::MessageTimeout);
        }
        let in_flight_bytes = u32::try_from(self.driver.in_flight_bytes(*id)).unwrap_or(u32::MAX);
        if in_flight_bytes != socket.in_flight_bytes {
            socket.in_flight_bytes = in_flight_bytes;
            socket.alive_at = now;
        }
        let mut next = match socket.pinged_at {
            Some(pinged_at) if socket.is_alive_since(pinged_at) => {
                socket.pinged_at = None;
                socket.alive_at.after(heartbeat.interval)
            }
            Some(pinged_at) => pinged_at.after(heartbeat.timeout),
            None => socket.alive_at.after(heartbeat.interval),
        };
        if !now.is_before(next) {
            if socket.pinged_at.is_some() {
                return self.disconnect(session, Disconnect::HeartbeatTimeout);
            }
            socket.pinged_at = Some(now);
            next = now.after(heartbeat.timeout);
            self.ping(index);
        }
        let next = message_due.map_or(next, |due| due.earlier(next));
        self.arm(index, next);
    }

    fn ping(&mut self, index: usize) {
        let Some(conn) = self.table.get_mut(index) else { return };
        if conn.in_flight || conn.replies.is_some() {
            conn.replies.get_or_insert_default().extend_from_slice(&PING);
        } else if self.driver.send_bytes(conn.id, &PING) == Sending::InFlight {
            conn.in_flight = true;
        }
    }
}

impl Socket {
    /// Whether there was a sign of life after a ping.
    fn is_alive_since(&self, pinged_at: crate::millis::Millis) -> bool {
        pinged_at.is_before(self.alive_at)
    }
}
