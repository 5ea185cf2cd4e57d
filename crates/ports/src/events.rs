//! Events of clients for the application behind the server: the port through which the data plane delivers them.
//!
//! ```text
//!  client ── event ── its core ── EventSink::handle ──► the application
//!                        ▲                                  │
//!                        └──────── ReplyToEvent  ◄─────────┘
//! ```
//!
//! The client's message waits for the reply as for a permission, and the server reads no further input of the client meanwhile.
//! So a session has at most one event in progress, and its events keep their order.

use super::{Asking, Denial, Identity, PublicId, ReplyToEvent, SessionRooms};
use crate::Arguments;
use std::fmt;
use std::sync::Arc;
use stentor_hub::{Data, Emit, Room, Rooms, Tally};

/// An event of a client.
#[derive(Clone, Copy, Debug)]
pub struct ClientEvent<'a> {
    /// The question that the reply answers.
    pub asking: Asking<'a>,
    /// The session that sent the event.
    pub session: PublicId,
    /// The client's identity. `None` if the node has no [`Authenticator`](super::Authenticator).
    pub identity: Option<&'a Identity>,
    /// The client's protocol, as in [`SessionInfo::protocol`](super::SessionInfo::protocol).
    pub protocol: &'static str,
    /// The client's IPv4 address or IPv6 /64 network.
    pub address: Option<&'a str>,
    /// A number for this address or network.
    pub source: u64,
    /// The session's namespace; `/` for plain sessions.
    pub namespace: &'a str,
    /// The event's name.
    pub name: &'a str,
    /// The event's arguments.
    pub arguments: Arguments<'a>,
    /// The rooms of the session, as many as the application receives ([`EventSink::rooms_max`]).
    pub rooms: &'a SessionRooms,
    /// `true` if the client expects an acknowledgement: it receives [`EventReply::ack`].
    pub wants_ack: bool,
}

impl ClientEvent<'_> {
    /// Returns a reply by which the event can be answered later.
    pub fn later(&self) -> ReplyToEvent {
        self.asking.later()
    }
}

/// The application's reply to an event. The actions are carried out in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventReply {
    /// Rooms that the session leaves.
    pub leave: Vec<Room>,
    /// Rooms that the session joins. The [`Authorizer`](super::Authorizer) isn't asked.
    pub join: Vec<Room>,
    /// The arguments of the acknowledgement: JSON texts joined by commas, perhaps none.
    pub ack: String,
    /// Messages to send.
    pub emit: Vec<EventEmit>,
    /// `true` if the session ends, for the reason `closed_by_application`.
    pub disconnect: bool,
}

/// A message in the application's reply to an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventEmit {
    /// The rooms whose members receive the message. `None` if only the session receives it.
    pub rooms: Option<Rooms>,
    /// `true` if the session that sent the event is left out.
    pub except_sender: bool,
    /// `true` if sessions that can't receive the message at once are skipped.
    pub volatile: bool,
    /// The event's name.
    pub event: Option<Arc<str>>,
    /// The content.
    pub data: Data,
    /// Counts the sessions on this node that the message is for, if it has rooms.
    pub recipients: Recipients,
}

/// Counts the recipients of a message in the application's reply. All values compare as equal, so that replies can be compared.
#[derive(Clone, Default)]
pub struct Recipients(pub Option<Arc<dyn Tally>>);

impl PartialEq for Recipients {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Recipients {}

crate::opaque_debug!(Recipients, "Recipients");

impl EventEmit {
    /// The options with which the message is sent to its rooms.
    pub fn how(&self) -> Emit {
        let how = if self.volatile { Emit::volatile() } else { Emit::default() };
        match &self.recipients.0 {
            Some(tally) => {
                // A message that isn't sent isn't counted.
                tally.add(0);
                how.counted_by(tally.clone())
            }
            None => how,
        }
    }
}

impl EventReply {
    /// Approximate size.
    pub fn bytes(&self) -> usize {
        let emits: usize = self.emit.iter().map(|emit| size_of::<EventEmit>() + emit.data.len()).sum();
        size_of::<Self>() + self.ack.len() + emits + (self.join.len() + self.leave.len()) * size_of::<Room>()
    }
}

/// Receives events of clients for the application behind the server. The cores call it on their threads, so it must not
/// block.
pub trait EventSink: fmt::Debug + Send + Sync {
    /// `true` if the application handles events with this name. `is_known` is `true` if the server would otherwise handle
    /// the event itself.
    fn takes(&self, namespace: &str, name: &str, is_known: bool) -> bool;

    /// Maximum number of the session's rooms that the application receives with an event.
    fn rooms_max(&self) -> usize {
        0
    }

    /// Takes an event. A reply follows ([`ClientEvent::later`]), within `limits.decision_timeout`; otherwise
    /// the client is refused with [`Denial::UNAVAILABLE`].
    ///
    /// # Errors
    /// The reason why the event isn't passed on.
    fn handle(&self, event: &ClientEvent<'_>) -> Result<(), Denial>;
}
