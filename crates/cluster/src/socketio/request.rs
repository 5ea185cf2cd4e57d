//! Requests of the classic adapter: JSON, or MessagePack where there may be binary data.
//!
//! Redis counts the subscribers of the request channel, so each MUST answer every request for which
//! [`is_answered`](Request::is_answered) is `true`, even with an empty answer. Otherwise, callers wait for 5 seconds.

use super::content::{
    encode, event, options, packet, write_name, write_names, write_options, write_plain, write_text,
};
use super::payload::{self, Payload, is_truthy, members, names, optional_name, required_name};
use super::{Event, Flags, Parser, Selection, WireError};
use bytes::Bytes;
use std::sync::Arc;

/// A request of a server or an emitter to all servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The sender. Most requests of emitters don't have it.
    pub uid: Option<Arc<str>>,
    /// The id that answers repeat.
    pub id: Option<Arc<str>>,
    /// The task of a request.
    pub body: RequestBody,
}

/// The sockets that a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The selected sockets.
    Selection(Selection),
    /// The socket with this id. Only the server that has it answers. (Adapters before 7.)
    Session(Arc<str>),
}

/// The task of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestBody {
    /// Lists the sockets in these rooms. (Adapters before 7.)
    Sessions {
        /// Empty for all sockets.
        rooms: Vec<Arc<str>>,
    },
    /// Lists the rooms.
    Rooms,
    /// Sockets join rooms.
    Join {
        /// The sockets.
        target: Target,
        /// The rooms.
        rooms: Vec<Arc<str>>,
    },
    /// Sockets leave rooms.
    Leave {
        /// The sockets.
        target: Target,
        /// The rooms.
        rooms: Vec<Arc<str>>,
    },
    /// Sockets are disconnected.
    Disconnect {
        /// The sockets.
        target: Target,
        /// `true` if the sockets' connections are closed as well.
        close: bool,
    },
    /// Lists sockets, with their rooms and data.
    Fetch(Selection),
    /// An event for the servers' own code. With an id, the sender wants an answer.
    ServerSideEmit(Event),
    /// An event to sockets, which acknowledge it.
    Broadcast {
        /// The namespace.
        namespace: Arc<str>,
        /// The sockets.
        selection: Selection,
        /// Options for sending the event.
        flags: Flags,
        /// The event.
        event: Event,
    },
}

impl Request {
    /// Decodes a request.
    ///
    /// # Errors
    /// The payload isn't a known request, or exceeds a limit.
    pub fn decode(payload: &Bytes) -> Result<Self, WireError> {
        let payload = Payload::decode(payload)?;
        let [uid, id, kind, opts, rooms, sid, room, close, data, sent] = members(
            Some(payload.text()?),
            ["uid", "requestId", "type", "opts", "rooms", "sid", "room", "close", "data", "packet"],
        )?;
        let selection = || options(opts).map(|(selection, _)| selection);
        let target = || match opts {
            Some(_) => selection().map(Target::Selection),
            None => required_name(sid).map(Target::Session),
        };
        // The rooms to join or leave.
        let target_rooms = || if opts.is_some() { names(rooms) } else { Ok(vec![required_name(room)?]) };
        let body = match payload::number(kind)? {
            0 => RequestBody::Sessions { rooms: names(rooms)? },
            1 => RequestBody::Rooms,
            2 => RequestBody::Join { target: target()?, rooms: target_rooms()? },
            3 => RequestBody::Leave { target: target()?, rooms: target_rooms()? },
            4 => RequestBody::Disconnect { target: target()?, close: is_truthy(close) },
            5 => RequestBody::Fetch(selection()?),
            6 => RequestBody::ServerSideEmit(event(&payload, data)?),
            7 => {
                let (event, namespace) = packet(&payload, sent)?;
                let (selection, flags) = options(opts)?;
                RequestBody::Broadcast { namespace, selection, flags, event }
            }
            _ => return Err(WireError::UnknownType),
        };
        let request = Self { uid: optional_name(uid)?, id: optional_name(id)?, body };
        // Of the answered requests, only `ServerSideEmit` can do without an id.
        match request.body {
            RequestBody::ServerSideEmit(_) => Ok(request),
            _ if request.is_answered() && request.id.is_none() => Err(WireError::Malformed),
            _ => Ok(request),
        }
    }

    /// Returns `true` if every server has to answer the request.
    pub fn is_answered(&self) -> bool {
        match &self.body {
            RequestBody::Sessions { .. }
            | RequestBody::Rooms
            | RequestBody::Fetch(_)
            | RequestBody::Broadcast { .. } => true,
            RequestBody::ServerSideEmit(_) => self.id.is_some(),
            RequestBody::Join { .. } | RequestBody::Leave { .. } | RequestBody::Disconnect { .. } => false,
        }
    }

    /// Encodes the request as a payload.
    ///
    /// # Errors
    /// If the request is too large or nested too deeply, or if its data isn't [arguments](stentor_hub::Data::Arguments).
    pub fn encode(&self, parser: Parser) -> Result<Bytes, WireError> {
        let mut out = vec![b'{'];
        if let Some(uid) = &self.uid {
            write_text(&mut out, "uid", uid);
        }
        if let Some(id) = &self.id {
            write_text(&mut out, "requestId", id);
        }
        write_plain(&mut out, "type", self.body.kind());
        let mut attachments: &[Bytes] = &[];
        match &self.body {
            RequestBody::Sessions { rooms } => write_names(&mut out, "rooms", rooms),
            RequestBody::Rooms => {}
            RequestBody::Join { target, rooms } | RequestBody::Leave { target, rooms } => {
                target.write(&mut out);
                match (target, &rooms[..]) {
                    (Target::Session(_), [room]) => write_text(&mut out, "room", room),
                    (Target::Session(_), _) => return Err(WireError::Malformed),
                    (Target::Selection(_), rooms) => write_names(&mut out, "rooms", rooms),
                }
            }
            RequestBody::Disconnect { target, close } => {
                target.write(&mut out);
                write_plain(&mut out, "close", close);
            }
            RequestBody::Fetch(selection) => {
                write_name(&mut out, "opts");
                write_options(&mut out, selection, None);
            }
            RequestBody::ServerSideEmit(event) => {
                write_name(&mut out, "data");
                attachments = event.write(&mut out)?;
            }
            RequestBody::Broadcast { namespace, selection, flags, event } => {
                write_name(&mut out, "packet");
                attachments = event.write_packet(&mut out, Some(namespace))?;
                write_name(&mut out, "opts");
                write_options(&mut out, selection, Some(*flags));
            }
        }
        out.push(b'}');
        let may_be_binary = !attachments.is_empty() || matches!(self.body, RequestBody::Broadcast { .. });
        encode(out, attachments, may_be_binary, parser)
    }
}

impl RequestBody {
    /// Returns the number that stands for the type in a request.
    fn kind(&self) -> u8 {
        match self {
            Self::Sessions { .. } => 0,
            Self::Rooms => 1,
            Self::Join { .. } => 2,
            Self::Leave { .. } => 3,
            Self::Disconnect { .. } => 4,
            Self::Fetch(_) => 5,
            Self::ServerSideEmit(_) => 6,
            Self::Broadcast { .. } => 7,
        }
    }
}

impl Target {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Selection(selection) => {
                write_name(out, "opts");
                write_options(out, selection, None);
            }
            Self::Session(id) => write_text(out, "sid", id),
        }
    }
}
