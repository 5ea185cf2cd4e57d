//! Primus: its messages and heartbeats on a WebSocket, and the other resources under `/primus` (see [`stentor_wire::primus`] for
//! the protocol).
//!
//! A session ends with its connection, like a plain session. A client's message is a JSON value: the application receives a
//! string as text, any other value as its JSON text, and the answer is written as a value again. Pings are sent at a fixed
//! interval, even while other messages are sent, because clients depend on pings. A client that sends pings itself (up to
//! version 6) receives only answers.

use super::client::Flow;
use super::clients::Clients;
use super::dialect::{Dialect, Handled, Heartbeat};
use super::message::deliver;
use super::request::{RequestContext, RequestOutcome, cors};
use super::route::{Closing, Protocol, RouteFacts};
use super::upgrade;
use crate::app::{HandlerScope, Message};
use crate::encode::{Encoding, Own, OwnWire, SharedFrames, raw, v1};
use crate::executor::Executor;
use crate::identity::Service;
use crate::message::Envelope;
use crate::model::{Body, Data, Disconnect, Frame};
use crate::options::Options;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::time::Duration;
use stentor_json as json;
use stentor_wire::primus::{self, FromClient, Route};
use stentor_wire::ws::{self, Opcode};

/// The path at which Primus is served.
const PATH: &str = "/primus";

/// The protocol: its WebSocket, and the page with the server's specification.
pub(crate) struct Primus;

fn route_of(path: &str) -> Option<Route> {
    path.strip_prefix(PATH).and_then(primus::parse_path)
}

impl Protocol for Primus {
    fn route(&self, path: &str, _options: &Options) -> Option<RouteFacts> {
        match route_of(path)? {
            Route::Connect => {
                Some(RouteFacts { opens_session: true, has_socket: true, ..RouteFacts::default() })
            }
            Route::Spec => Some(RouteFacts::default()),
            // The server doesn't have the library: pages have their own build of it.
            Route::Library => None,
        }
    }

    fn example(&self) -> Option<&'static str> {
        Some("/primus/")
    }

    fn closing(&self) -> Option<Closing> {
        Some(Closing {
            protocol: "Primus",
            reconnect: "close frame with code and reason",
            refused: "the message `primus::server::close`, then the close frame",
            codes: Vec::new(),
        })
    }

    fn handle_request(&self, cx: &mut RequestContext<'_>, clients: &mut Clients) -> RequestOutcome {
        match route_of(cx.request.path()) {
            Some(Route::Connect) => {
                upgrade::handle_request(cx, clients, Pinging::Idle.into(), Service::default(), None)
            }
            _ => handle_spec_request(cx),
        }
    }
}

/// Answers a request for the server's specification.
fn handle_spec_request(cx: &mut RequestContext<'_>) -> RequestOutcome {
    if !cx.reads() {
        return cx.refuse_method(Vec::new());
    }
    let mut body = Vec::with_capacity(128);
    primus::write_spec(&mut body, PATH, Some(cx.ex.options().primus.ping_interval));
    cx.answer(200, "application/json", &cors(cx.allow_origin()), &body)
}

/// Appends a control message of Primus.
fn write(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    ws::encode_with(out, Opcode::Text, 48, write);
}

/// The party that pings. The dialect of a connection has no other state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pinging {
    /// The server sends pings, and the last one has been answered.
    Idle,
    /// The server sends pings, and the last one hasn't been answered.
    Awaited,
    /// The client sends pings.
    Theirs,
}

impl Dialect for Pinging {
    fn name(&self) -> &'static str {
        "primus"
    }

    fn encoding(&self, _service: Service, envelope: Envelope, _deflates: bool) -> Encoding {
        Encoding::own(if envelope == Envelope::V1 { Own::PrimusValue } else { Own::PrimusText }, envelope)
    }

    /// If the client shouldn't reconnect, appends the message that prevents it.
    fn close(&self, code: u16, _reason: &str, out: &mut Vec<u8>) {
        let reconnects = (4500..4600).contains(&code);
        if !reconnects {
            write(out, primus::write_close);
        }
    }

    fn handle_message(
        &mut self,
        ex: &mut Executor,
        scope: HandlerScope<'_>,
        message: Message<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        Handled::Flow(self.handle(ex, scope, message, out))
    }

    fn heartbeat(&self, options: &Options) -> Heartbeat {
        match self {
            Self::Theirs => Heartbeat::OfClient,
            Self::Idle | Self::Awaited => Heartbeat::Paced {
                interval: options.primus.ping_interval,
                is_awaited: *self == Self::Awaited,
            },
        }
    }

    fn is_paced(&self) -> bool {
        true
    }

    fn handle_sign_of_life(&mut self) {
        if *self == Self::Awaited {
            *self = Self::Idle;
        }
    }

    fn write_ping(&mut self, clock: Duration, out: &mut Vec<u8>) {
        *self = Self::Awaited;
        write(out, |out| primus::write_ping(out, clock));
    }
}

impl Pinging {
    fn handle(
        &mut self,
        ex: &mut Executor,
        scope: HandlerScope<'_>,
        message: Message<'_>,
        out: &mut Vec<u8>,
    ) -> Flow {
        let Some(text) = message.text() else { return fault(ex, scope) };
        let (text, encoding) = match primus::from_client(text) {
            FromClient::Text(text) => (text.unescape(), scope.encoding),
            FromClient::Message(text) => {
                if json::check(text).is_err() {
                    return fault(ex, scope);
                }
                let value = text.trim_matches([' ', '\t', '\r', '\n']);
                (value.into(), Encoding::own(Own::PrimusValue, scope.encoding.envelope()))
            }
            FromClient::Pong(_) | FromClient::Unknown => return Flow::Continue,
            FromClient::Ping(text) => {
                write(out, |out| primus::write_pong(out, text));
                *self = Self::Theirs;
                return Flow::Continue;
            }
            FromClient::AskId => {
                if let Some(session) = scope.session {
                    let id = ex.public_id(session).to_string();
                    write(out, |out| primus::write_id(out, &id));
                }
                return Flow::Continue;
            }
        };
        ex.metrics().messages.add(1);
        deliver(ex, HandlerScope { encoding, ..scope }, Message::Text(&text), out)
    }
}

fn fault(ex: &mut Executor, scope: HandlerScope<'_>) -> Flow {
    ex.metrics().protocol_errors.add(1);
    if let Some(session) = scope.session {
        ex.close(session, Disconnect::ProtocolError);
    }
    Flow::Stop
}

/// JSON values in WebSocket messages. With `is_value`, text that is JSON is written as that value, other text as a string.
pub(crate) struct Values {
    pub(crate) is_value: bool,
}

/// Appends a message, unless clients would mistake it for a message of the protocol itself.
fn write_value(out: &mut Vec<u8>, text: &str, is_json: bool) {
    if is_json && !primus::is_reserved(text) {
        ws::encode_with(out, Opcode::Text, text.len(), |out| primus::write_message(out, text));
    } else if !is_json && !primus::is_reserved_text(text) {
        ws::encode_with(out, Opcode::Text, text.len() + 2, |out| primus::write_text(out, text));
    }
}

impl OwnWire for Values {
    fn protocol(&self) -> &'static str {
        "primus"
    }

    /// Appends a message. Primus has no binary messages, so bytes are sent as base64.
    fn message(&self, out: &mut Vec<u8>, message: Message<'_>) {
        match message {
            Message::Text(text) => write_value(out, text, self.is_value && json::check(text).is_ok()),
            Message::Binary(bytes) => self.message(out, Message::Text(&STANDARD.encode(bytes))),
        }
    }

    fn json(&self, out: &mut Vec<u8>, text: &str) {
        write_value(out, text, json::check(text).is_ok());
    }

    fn publication(&self, frames: &SharedFrames, body: &Body, envelope: Envelope) -> Option<Frame> {
        let (plain, is_json) = match envelope {
            Envelope::V1 => (v1(body), true),
            Envelope::Raw | Envelope::SocketIo => {
                let plain = raw(body)?;
                let is_json = match body {
                    Body::Snapshot { document, .. } => document.json,
                    Body::Message { event: None, data, .. } => {
                        matches!(data, Data::Json(_) | Data::Arguments { .. })
                    }
                    // A single string becomes text. Other arguments become a list.
                    Body::Message { event: Some(_), .. } => !plain.head.is_empty(),
                    Body::State { .. } | Body::Delta { .. } | Body::Presence { .. } => false,
                };
                (plain, is_json)
            }
        };
        let mut bytes = Vec::new();
        write_value(&mut bytes, &plain.text(), is_json);
        (!bytes.is_empty()).then(|| frames.of(&[&bytes]))
    }
}
