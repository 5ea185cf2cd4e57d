//! Engine.IO, protocols 4 and 3: clients that poll, clients on a WebSocket, and clients that upgrade from polling to a WebSocket.
//!
//! ```text
//!  GET without sid ──► polling ─── WebSocket: 2probe, 3probe, 5 ───┐
//!                        │                                         ▼
//!  WebSocket without sid ┼─────────────────────────────────► on a WebSocket
//!                        │                                         │
//!                        └──► ended: 1, 6, silence, a fault ◄──────┘
//! ```
//!
//! `requests` handles requests, `packets` handles packets, `client` handles frames, timeouts and the end; `payload` writes the
//! bodies of polls, and `responses` has what requests have in common. `linked` serves clients of the application link. Socket.IO is
//! in `protocols::socketio`. Where public test suites expect it, the behaviour is that of engine.io 6: a second poll ends the
//! client, and so does an aborted poll.

mod client;
mod described;
mod heartbeat;
mod linked;
mod packets;
mod payload;
mod requests;
mod responses;

pub(crate) use requests::{handle_body, handle_request};

use super::client::{ActiveTransport, Client as _, ClientState};
use super::link::Link;
use super::response::{Response, ResponseContext, ResponseState};
use super::socketio::{Handshake, SocketIo};
use crate::encode::{Encoding, EngineFraming, Own};
use crate::executor::{Executor, Feeds, PollAnswer};
use crate::identity::{ClientId, Sid};
use crate::message::Envelope;
use crate::millis::Millis;
use crate::model::{ConnId, SessionId};
use crate::options::Heartbeat;
use crate::ports::{EngineOptions, LinkApp, LinkHeaders};
use std::sync::Arc;
use stentor_wire::engineio::Version;

/// The upgrade of a client from polling to a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The WebSocket.
    pub conn: ConnId,
    /// `true` if the client has sent its probe and has been answered.
    pub answered: bool,
    /// The time at which the waiting poll is answered again with a NOOP packet, so that the client can stop polling.
    pub release_at: Millis,
    /// The deadline for the upgrade.
    pub until: Millis,
}

/// The protocol of a client's messages.
pub(crate) enum ApplicationProtocol {
    /// No protocol, because no session has begun or the client has ended.
    None,
    /// Messages for the application.
    Plain {
        session: SessionId,
        envelope: Envelope,
    },
    SocketIo(Box<SocketIo>),
    /// Messages for a worker.
    Link(Box<Link>),
}

/// The server of a path's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// The node's application: `/engine.io/`.
    Plain,
    /// Socket.IO: `/socket.io/`.
    SocketIo,
    /// The workers of an application.
    Link(LinkApp),
}

impl ApplicationProtocol {
    fn sessions(&self) -> impl Iterator<Item = SessionId> {
        let (plain, sockets) = match self {
            Self::None => (None, [].as_slice()),
            Self::Plain { session, .. } => (Some(*session), [].as_slice()),
            Self::SocketIo(io) => (None, io.sockets()),
            Self::Link(link) => (link.hub_session, [].as_slice()),
        };
        plain.into_iter().chain(sockets.iter().map(|socket| socket.session))
    }
}

/// A waiting poll.
pub struct Poll {
    pub(crate) client: ClientId,
    version: Version,
    state: ResponseState,
    /// The value of `Access-Control-Allow-Origin` for the response. With `cors`: the origin of the client's page.
    pub origin: Option<Box<str>>,
    /// Options of the client's application, if they allow the origin.
    cors: Option<Arc<EngineOptions>>,
    /// The number of the JSONP callback. `None` without JSONP.
    pub(crate) jsonp: Option<u32>,
    /// `true` if the client can't read bytes.
    pub(crate) base64: bool,
    /// `true` if the client decodes text like engine.io-client 1.x.
    is_client_1: bool,
    /// Headers of the worker for the response.
    headers: Option<Arc<LinkHeaders>>,
}

impl Response for Poll {
    fn state(&self) -> &ResponseState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ResponseState {
        &mut self.state
    }

    fn client(&self) -> Option<ClientId> {
        Some(self.client)
    }

    /// Counts only the origin. The poll itself isn't counted, because a charge would take more memory than the poll.
    fn held_bytes(&self) -> usize {
        self.origin.as_deref().map_or(0, str::len)
    }

    fn answer(&mut self, cx: &mut ResponseContext<'_>, answer: PollAnswer, out: &mut Vec<u8>) {
        if self.state.is_whole {
            return;
        }
        let date = cx.ex.date();
        match (answer, &mut cx.client) {
            (PollAnswer::Pending, Some(client)) => {
                let records = client.take_records(cx.ex);
                if records.is_empty() {
                    return;
                }
                client.handle_response_end(cx.ex);
                self.state.keep_alive &= cx.ex.keeps_connection(true);
                payload::write_answer(out, date, self, &records, &[]);
            }
            (PollAnswer::Pending | PollAnswer::Heartbeat, _) => return,
            (PollAnswer::Records(records), _) => {
                self.state.keep_alive &= !cx.ex.is_draining();
                payload::write_answer(out, date, self, &records, &[]);
            }
            (PollAnswer::Unavailable, _) => {
                self.state.keep_alive &= !cx.ex.is_draining();
                payload::write_unavailable(out, date, self);
            }
        }
        self.state.is_whole = true;
    }
}

/// A client of Engine.IO.
pub struct Client {
    state: ClientState,
    pub(crate) version: Version,
    pub(crate) endpoint: Endpoint,
    /// `true` if the client can't read bytes in responses to polls, according to its handshake.
    pub(crate) base64: bool,
    /// The client's unfinished upgrade to a WebSocket.
    pub probe: Option<Probe>,
    /// The time of a ping that the client hasn't answered (protocol 4).
    pinged_at: Option<Millis>,
    pub(crate) application: ApplicationProtocol,
}

/// The state of a client that moves to another core. Its recoverable sockets are already there, and its timers begin anew.
pub struct MigratedClient {
    pub(crate) sid: Sid,
    source: u64,
    version: Version,
    base64: bool,
    queue: Vec<u8>,
    feeds: Option<Box<Feeds>>,
    handshake: Option<Box<Handshake>>,
}

impl Client {
    fn new(ex: &Executor, sid: Sid, source: u64, transport: ActiveTransport, version: Version) -> Self {
        let (now, heartbeat) = (ex.millis(), ex.options().heartbeat);
        // The heartbeat of an application begins when its worker has accepted the client.
        let due_at = match version {
            Version::V4 => now.after(heartbeat.interval),
            // In version 3, the client sends pings.
            Version::V3 => now.after(heartbeat.interval + heartbeat.timeout),
        };
        Self {
            state: ClientState::new(sid, source, transport, now, due_at),
            version,
            endpoint: Endpoint::Plain,
            base64: false,
            probe: None,
            pinged_at: None,
            application: ApplicationProtocol::None,
        }
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.application.sessions()
    }

    /// The state of Socket.IO, if the client speaks it.
    pub fn socketio(&self) -> Option<&SocketIo> {
        if let ApplicationProtocol::SocketIo(io) = &self.application { Some(io) } else { None }
    }

    pub(crate) fn socketio_mut(&mut self) -> Option<&mut SocketIo> {
        if let ApplicationProtocol::SocketIo(io) = &mut self.application { Some(io) } else { None }
    }

    /// The envelope of publications and messages to the client's sessions.
    pub fn envelope(&self) -> Envelope {
        match self.application {
            ApplicationProtocol::Plain { envelope, .. } => envelope,
            ApplicationProtocol::Link(_) => Envelope::Raw,
            ApplicationProtocol::SocketIo(_) | ApplicationProtocol::None => Envelope::SocketIo,
        }
    }

    /// The current framing of packets.
    pub(crate) fn framing(&self) -> EngineFraming {
        match (self.state.transport, self.version) {
            (ActiveTransport::WebSocket(_), Version::V4) => EngineFraming::V4,
            (ActiveTransport::WebSocket(_), Version::V3) => EngineFraming::V3,
            (ActiveTransport::None | ActiveTransport::Poll(_) | ActiveTransport::Stream(_), _) => {
                EngineFraming::Record
            }
        }
    }

    /// The encoding of the sessions of this client. `recovers` is `true` if disconnected clients receive missed messages.
    fn encoding(&self, recovers: bool) -> Encoding {
        if let ApplicationProtocol::Link(_) = self.application {
            let wire = match self.framing() {
                EngineFraming::V4 => Own::LinkV4,
                EngineFraming::V3 => Own::LinkV3,
                EngineFraming::Record => Own::LinkRecord,
            };
            return Encoding::own(wire, Envelope::Raw);
        }
        Encoding::engine_io(self.framing(), self.envelope(), recovers && self.version == Version::V4)
    }

    /// The times of the client's heartbeat.
    fn heartbeat(&self, ex: &Executor) -> Heartbeat {
        let Heartbeat { interval, timeout } = ex.options().heartbeat;
        let Some(Link { engine, .. }) = self.link() else { return Heartbeat { interval, timeout } };
        Heartbeat {
            interval: engine.ping_interval.unwrap_or(interval),
            timeout: engine.ping_timeout.unwrap_or(timeout),
        }
    }

    /// Returns `true` if the client polls, and hasn't ended.
    fn is_polling(&self) -> bool {
        !matches!(self.state.transport, ActiveTransport::WebSocket(_)) && !self.state.ended
    }

    /// Converts the client for a move to another core.
    pub fn migrate(self) -> MigratedClient {
        let (feeds, handshake) = match self.application {
            ApplicationProtocol::SocketIo(io) => io.into_moved(),
            ApplicationProtocol::None | ApplicationProtocol::Plain { .. } | ApplicationProtocol::Link(_) => {
                (None, None)
            }
        };
        let ClientState { sid, source, queue, .. } = self.state;
        MigratedClient { sid, source, version: self.version, base64: self.base64, queue, feeds, handshake }
    }

    /// Continues a client from another core.
    pub fn arrived(ex: &Executor, migrated: MigratedClient) -> Self {
        let MigratedClient { sid, source, version, base64, queue, feeds, handshake } = migrated;
        let connect_until = ex.millis().after(ex.options().engine.connect_timeout);
        let mut client = Self::new(ex, sid, source, ActiveTransport::None, version);
        client.endpoint = Endpoint::SocketIo;
        client.base64 = base64;
        let mut io = SocketIo::new(connect_until, feeds);
        io.handshake = handshake;
        client.application = ApplicationProtocol::SocketIo(Box::new(io));
        client.state.queue = queue;
        client.charge(ex);
        client
    }
}
