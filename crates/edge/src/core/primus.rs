//! Primus: its messages and heartbeats on a WebSocket, and what else there is under `/primus` (see
//! [`stentor_wire::primus`] for the protocol).
//!
//! A session lives and ends with its connection, as a plain one does. What a client sends is a JSON value: a string is
//! handed to the application as text, any other value as the text of its JSON, and the answer to it is written as a
//! value again. Pings leave at a fixed pace, whatever else is said: clients count on that. A client that pings itself
//! (up to version 6) is only answered.

use super::Core;
use super::http::Verdict;
use super::request::{Manner, answer, cors, text};
use super::socket::Talker;
use super::table::{Conn, Dialect, Pinging, Socket, Stack};
use crate::app::{Action, Envelope, Message};
use crate::encode::{Writer, frame};
use std::time::Duration;
use stentor_driver::{ConnId, Driver};
use stentor_hub::{Disconnect, SessionId};
use stentor_json as json;
use stentor_wire::http1::Request;
use stentor_wire::primus::{self, FromClient};
use stentor_wire::ws::{Kind, Opcode};

/// Where it is served.
pub(super) const PATH: &str = "/primus";

/// A message of the protocol's own.
fn say(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    frame(out, Opcode::Text, 48, write);
}

/// What keeps a client from coming back, where it shouldn't.
pub(super) fn say_goodbye(out: &mut Vec<u8>, code: u16) {
    let comes_back = (4500..4600).contains(&code);
    if !comes_back {
        say(out, primus::write_close);
    }
}

impl<D: Driver> Core<D> {
    /// A request for what the server speaks.
    pub(super) fn primus_spec(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> Verdict {
        let manner = Manner::of(request, self.draining);
        let extra = cors(self.allow_origin(request));
        if matches!(request.method(), "GET" | "HEAD") {
            let mut body = Vec::with_capacity(128);
            primus::write_spec(&mut body, PATH, Some(self.shared.options.primus.ping_interval));
            answer(out, manner, 200, "application/json", &extra, &body);
        } else {
            self.metrics().request_errors.add(1);
            text(out, manner, 405, &[("Allow", "GET, HEAD")], "only GET and HEAD are answered here");
        }
        Verdict::Answered { keep_alive: manner.keep_alive }
    }

    /// A message on a WebSocket. Says whether to go on with what follows it.
    pub(super) fn primus_message(
        &mut self,
        conn: ConnId,
        talker: Talker,
        kind: Kind,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(text) = kind.text(data) else { return self.primus_fault(talker) };
        let message = primus::from_client(text);
        match message {
            FromClient::Pong(_) | FromClient::Unknown => true,
            FromClient::Ping(text) => {
                say(out, |out| primus::write_pong(out, text));
                if let Some(index) = self.table.index_of(conn)
                    && let Some(Conn { stack: Stack::Socket(socket), .. }) = self.table.get_mut(index)
                {
                    socket.speech.dialect = Dialect::Primus(Pinging::Theirs);
                }
                true
            }
            FromClient::AskId => {
                let id = self.facts.public_id(talker.session).to_string();
                say(out, |out| primus::write_id(out, &id));
                true
            }
            FromClient::Message(text) => {
                if json::check(text).is_err() {
                    return self.primus_fault(talker);
                }
                self.metrics().messages.add(1);
                let value = text.trim_matches([' ', '\t', '\r', '\n']);
                let (string, is_value) = match json::string(value) {
                    Some(string) => (string, talker.envelope == Envelope::V1),
                    None => (value.into(), true),
                };
                self.hand_message(talker, Writer::Primus { is_value }, Message::Text(&string), out)
            }
        }
    }

    fn primus_fault(&mut self, talker: Talker) -> bool {
        self.metrics().protocol_errors.add(1);
        self.actions.push(Action::Close { session: talker.session, why: Disconnect::ProtocolError });
        false
    }

    /// A heartbeat of a session may be due.
    pub(super) fn primus_due(&mut self, index: usize, session: SessionId, progressed: bool) {
        let now = self.millis();
        let heartbeat = self.shared.options.heartbeat;
        let interval = self.shared.options.primus.ping_interval;
        let clock = self.facts.now.saturating_duration_since(self.clock.start());
        let Some(conn) = self.table.get_mut(index) else { return };
        let Conn { stack: Stack::Socket(socket), replies, .. } = conn else { return };
        let Dialect::Primus(pinging) = socket.speech.dialect else { return };
        if progressed {
            socket.alive_at = now;
        }
        let last = socket.pinged_at.unwrap_or(socket.alive_at);
        let next = match pinging {
            Pinging::Theirs => socket.alive_at.after(heartbeat.interval + heartbeat.timeout),
            Pinging::Idle | Pinging::Awaited => last.after(interval),
        };
        if now.is_before(next) {
            return self.arm(index, next);
        }
        let is_silent = match pinging {
            Pinging::Theirs => true,
            Pinging::Awaited => !last.is_before(socket.alive_at),
            Pinging::Idle => false,
        };
        if is_silent {
            return self.disconnect(session, Disconnect::HeartbeatTimeout);
        }
        socket.pinged_at = Some(now);
        socket.speech.dialect = Dialect::Primus(Pinging::Awaited);
        say(replies.get_or_insert_default(), |out| primus::write_ping(out, clock));
        conn.weigh(&self.shared.ledger);
        self.arm(index, now.after(interval));
        self.flush(index);
    }
}

impl Socket {
    /// Something was received: where pings are answered by anything, that was the answer.
    pub(super) fn has_spoken(&mut self) {
        match &mut self.speech.dialect {
            Dialect::Primus(pinging @ Pinging::Awaited) => *pinging = Pinging::Idle,
            Dialect::Primus(_) => {}
            Dialect::Plain | Dialect::SockJs => self.pinged_at = None,
        }
    }
}

/// How often a session of this dialect is looked at first.
pub(super) fn first_ping(dialect: Dialect, heartbeat: Duration, ping_interval: Duration) -> Duration {
    match dialect {
        Dialect::Plain | Dialect::SockJs => heartbeat,
        Dialect::Primus(_) => ping_interval,
    }
}
