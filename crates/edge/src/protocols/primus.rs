//! Primus: its messages and heartbeats on a WebSocket, and what else there is under `/primus` (see
//! [`stentor_wire::primus`] for the protocol).
//!
//! A session lives and ends with its connection, as a plain one does. What a client sends is a JSON value: a string is
//! passed to the application as text, any other value as the text of its JSON, and the answer to it is written as a
//! value again. Pings leave at a fixed pace, whatever else is sent: clients count on that. A client that pings itself
//! (up to version 6) is only answered.

use super::client::Flow;
use super::message::deliver;
use super::profile::Pinging;
use super::request::{RequestContext, RequestOutcome, cors};
use crate::app::{HandlerScope, Message};
use crate::encode::frame;
use crate::executor::Executor;
use crate::model::{Disconnect, SessionId};
use std::time::Duration;
use stentor_json as json;
use stentor_wire::primus::{self, FromClient};
use stentor_wire::ws::Opcode;

/// Where it is served.
pub(crate) const PATH: &str = "/primus";

/// A message of the protocol's own.
fn write(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    frame(out, Opcode::Text, 48, write);
}

/// Appends what keeps a client from reconnecting, if it shouldn't.
pub(crate) fn write_goodbye(out: &mut Vec<u8>, code: u16) {
    let reconnects = (4500..4600).contains(&code);
    if !reconnects {
        write(out, primus::write_close);
    }
}

/// Appends a ping. `clock` is the time since the server's start.
pub(crate) fn write_ping(out: &mut Vec<u8>, clock: Duration) {
    write(out, |out| primus::write_ping(out, clock));
}

/// Answers a request for what the server speaks.
pub(crate) fn handle_spec_request(cx: &mut RequestContext<'_>) -> RequestOutcome {
    if !cx.reads() {
        return cx.refuse_method(Vec::new());
    }
    let mut body = Vec::with_capacity(128);
    primus::write_spec(&mut body, PATH, Some(cx.ex.options().primus.ping_interval));
    cx.answer(200, "application/json", &cors(cx.allow_origin()), &body)
}

/// Handles a message on a WebSocket.
pub(crate) fn handle_message(
    ex: &mut Executor,
    scope: HandlerScope<'_>,
    session: SessionId,
    pinging: &mut Pinging,
    message: Message<'_>,
    out: &mut Vec<u8>,
) -> Flow {
    let Some(text) = message.text() else { return fault(ex, session) };
    match primus::from_client(text) {
        FromClient::Pong(_) | FromClient::Unknown => Flow::Continue,
        FromClient::Ping(text) => {
            write(out, |out| primus::write_pong(out, text));
            *pinging = Pinging::Theirs;
            Flow::Continue
        }
        FromClient::AskId => {
            let id = ex.public_id(session).to_string();
            write(out, |out| primus::write_id(out, &id));
            Flow::Continue
        }
        FromClient::Message(text) => {
            if json::check(text).is_err() {
                return fault(ex, session);
            }
            ex.metrics().messages.add(1);
            let value = text.trim_matches([' ', '\t', '\r', '\n']);
            let (string, encoding) = match json::string(value) {
                Some(string) => (string, scope.encoding),
                None => (value.into(), scope.encoding.of_value()),
            };
            let scope = HandlerScope { encoding, ..scope };
            deliver(ex, scope, Message::Text(&string), out)
        }
    }
}

fn fault(ex: &mut Executor, session: SessionId) -> Flow {
    ex.metrics().protocol_errors.add(1);
    ex.close(session, Disconnect::ProtocolError);
    Flow::Stop
}
