//! Dialects: the messages and heartbeats on a WebSocket with a session of its own.

use super::client::Flow;
use super::message::deliver;
use crate::app::{HandlerScope, Message};
use crate::encode::Encoding;
use crate::executor::Executor;
use crate::identity::{ClientId, Service};
use crate::message::Envelope;
use crate::options::Options;
use std::time::Duration;
use stentor_wire::ws::Negotiated;

/// A server's ping frame without payload (RFC 6455, 5.5.2).
const PING: [u8; 2] = [0x89, 0];

/// The next step of a connection after a WebSocket message.
pub(crate) enum Handled {
    /// The WebSocket message is handled.
    Flow(Flow),
    /// Some messages in the WebSocket message remain, for a later turn.
    Rest(Rest),
    /// The message is invalid. The connection ends with this code and reason, without a closing message of the dialect.
    Refused(u16, &'static str),
}

/// The text with the remaining messages, and their number.
pub(crate) type Rest = (String, usize);

/// The pings on a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heartbeat {
    /// The server sends a WebSocket ping after silence. Any input counts as an answer.
    AfterSilence,
    /// The server sends pings at a fixed interval, whatever else is sent. `is_awaited` is `true` until the last ping is
    /// answered.
    Paced { interval: Duration, is_awaited: bool },
    /// The client sends pings.
    OfClient,
}

/// The messages and heartbeats of one protocol. The implementing value holds the state of a connection, if there is any.
pub(crate) trait Dialect {
    /// The name of the protocol.
    fn name(&self) -> &'static str;

    /// Returns `true` if messages may be compressed.
    fn allows_deflate(&self) -> bool {
        false
    }

    /// The encoding of a session. `deflates` is `true` if the client has negotiated compression.
    fn encoding(&self, service: Service, envelope: Envelope, deflates: bool) -> Encoding;

    /// Appends the first message of a session.
    fn open(&self, _out: &mut Vec<u8>) {}

    /// Appends the message that precedes a Close frame.
    fn close(&self, _code: u16, _reason: &str, _out: &mut Vec<u8>) {}

    /// Handles a WebSocket message. Answers are appended to `out`.
    fn handle_message(
        &mut self,
        ex: &mut Executor,
        scope: HandlerScope<'_>,
        message: Message<'_>,
        out: &mut Vec<u8>,
    ) -> Handled;

    /// Handles the remaining messages of a WebSocket message.
    fn resume(
        &mut self,
        _ex: &mut Executor,
        _scope: HandlerScope<'_>,
        _rest: Rest,
        _out: &mut Vec<u8>,
    ) -> Handled {
        Handled::Flow(Flow::Continue)
    }

    fn heartbeat(&self, _options: &Options) -> Heartbeat {
        Heartbeat::AfterSilence
    }

    /// Returns `true` if the server sends pings at a fixed interval.
    fn is_paced(&self) -> bool {
        false
    }

    /// Called when bytes were received.
    fn handle_sign_of_life(&mut self) {}

    /// Appends a ping. `clock` is the time since the server's start.
    fn write_ping(&mut self, _clock: Duration, out: &mut Vec<u8>) {
        out.extend_from_slice(&PING);
    }
}

/// The application's messages without framing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain;

impl Dialect for Plain {
    fn name(&self) -> &'static str {
        "websocket"
    }

    fn allows_deflate(&self) -> bool {
        true
    }

    fn encoding(&self, service: Service, envelope: Envelope, deflates: bool) -> Encoding {
        match service.custom() {
            Some(place) => Encoding::custom(place, envelope),
            None => Encoding::websocket(envelope, deflates),
        }
    }

    #[inline]
    fn handle_message(
        &mut self,
        ex: &mut Executor,
        scope: HandlerScope<'_>,
        message: Message<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        ex.metrics().messages.add(1);
        Handled::Flow(deliver(ex, scope, message, out))
    }
}

macro_rules! define_dialects {
    ($($name:ident($dialect:ty)),* $(,)?) => {
        /// Any dialect, dispatched without a pointer.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum AnyDialect {
            $($name($dialect)),*
        }

        $(impl From<$dialect> for AnyDialect {
            fn from(dialect: $dialect) -> Self {
                Self::$name(dialect)
            }
        })*

        impl AnyDialect {
            pub(crate) fn get(&self) -> &dyn Dialect {
                match self {
                    $(Self::$name(dialect) => dialect),*
                }
            }

            pub(crate) fn get_mut(&mut self) -> &mut dyn Dialect {
                match self {
                    $(Self::$name(dialect) => dialect),*
                }
            }

            /// See [`Dialect::handle_message`].
            #[inline]
            pub(crate) fn handle_message(
                &mut self,
                ex: &mut Executor,
                scope: HandlerScope<'_>,
                message: Message<'_>,
                out: &mut Vec<u8>,
            ) -> Handled {
                match self {
                    $(Self::$name(dialect) => dialect.handle_message(ex, scope, message, out)),*
                }
            }

            /// See [`Dialect::is_paced`].
            #[inline]
            pub(crate) fn is_paced(&self) -> bool {
                match self {
                    $(Self::$name(dialect) => dialect.is_paced()),*
                }
            }
        }
    };
}

dialects!(define_dialects);

/// The dialect of a WebSocket, and the service by which its client connected.
#[derive(Clone, Copy, Debug)]
pub struct SocketProfile {
    pub(crate) dialect: AnyDialect,
    /// `true` if the client may send no messages.
    pub push_only: bool,
    /// The service by which the client connected.
    pub service: Service,
}

/// The properties of a connection that is upgraded to a WebSocket.
#[derive(Debug)]
pub struct Upgraded {
    /// The client whose packets the connection carries or will carry. `None` if the connection has a session of its own.
    pub(crate) client: Option<ClientId>,
    pub(crate) profile: SocketProfile,
    /// The encoding of the messages of its own session.
    pub(crate) encoding: Encoding,
    pub(crate) deflate: Option<Negotiated>,
}

impl Upgraded {
    /// A connection that carries or will carry the packets of a client.
    pub(crate) fn to_client(client: ClientId) -> Self {
        let profile = SocketProfile { dialect: Plain.into(), push_only: false, service: Service::default() };
        Self { client: Some(client), profile, encoding: Encoding::RAW, deflate: None }
    }
}
