//! The protocol of a namespace's messages: decodes channel and payload, and encodes messages.

use super::inbox::Kind;
use super::refused::Refused;
use super::{Adapter, Options};
use crate::socketio::channels::{Channel, Channels};
use crate::socketio::python::{self, Action, Callback};
use crate::socketio::sharded::{self, Mode};
use crate::socketio::{
    Broadcast, Event, Flags, Parser, Request, RequestBody, Response, ResponseBody, Selection, Target,
    WireError, sender,
};
use bytes::Bytes;
use std::sync::Arc;
use stentor_ports::PublicId;

/// Prefix of the host names of Stentor's nodes on python-socketio's channel. The nodes ignore each other there if they
/// share the namespace in another way, too.
const PYTHON_HOST: &str = "stentor-";

/// A message of another server.
#[derive(Debug)]
pub(super) enum Incoming {
    /// An event to sessions.
    Broadcast {
        selection: Selection,
        volatile: bool,
        event: Event,
    },
    Request(Request),
    Response(Response),
}

/// A channel, with a payload to publish.
pub(super) type Published = (String, Bytes);

/// The protocol of the other servers, in one namespace.
pub(super) struct Protocol {
    namespace: Arc<str>,
    /// The uid of this node. Messages with this uid are its own.
    uid: Arc<str>,
    wire: Wire,
}

enum Wire {
    Classic { channels: Channels, pattern: String, parser: Parser },
    Sharded { prefix: String, all: String, own: String, mode: Mode },
    Python { channel: String, ignores_stentor: bool },
}

impl Protocol {
    /// Makes the protocol. `is_only`: the namespace is shared in no other way.
    pub(super) fn new(options: &Options, namespace: &Arc<str>, is_only: bool) -> Self {
        let Options { adapter, prefix, mode, parser, .. } = options;
        let (mode, parser) = (*mode, *parser);
        let number = format!("{:016x}", fastrand::u64(..));
        let (uid, wire) = match adapter {
            Adapter::Classic => {
                let uid = std::iter::repeat_with(fastrand::alphanumeric).take(6).collect();
                let channels = Channels::new(prefix, namespace);
                (uid, Wire::Classic { pattern: channels.pattern(), channels, parser })
            }
            Adapter::Sharded => {
                let own = sharded::answers(prefix, namespace, &number);
                let all = format!("{prefix}#{namespace}#");
                (number, Wire::Sharded { prefix: prefix.clone(), all, own, mode })
            }
            Adapter::Python => (
                format!("{PYTHON_HOST}{number}"),
                Wire::Python { channel: prefix.clone(), ignores_stentor: !is_only },
            ),
        };
        Self { namespace: namespace.clone(), uid: uid.into(), wire }
    }

    /// The channels that are always subscribed, whichever rooms have members.
    pub(super) fn channels(&self) -> Vec<Arc<str>> {
        match &self.wire {
            Wire::Classic { channels, .. } => {
                let own = channels.response_to(&self.uid);
                vec![channels.request().into(), channels.response().into(), own.into()]
            }
            Wire::Sharded { all, own, .. } => vec![all.as_str().into(), own.as_str().into()],
            Wire::Python { channel, .. } => vec![channel.as_str().into()],
        }
    }

    /// The pattern of further channels.
    pub(super) fn pattern(&self) -> Option<&str> {
        if let Wire::Classic { pattern, .. } = &self.wire { Some(pattern) } else { None }
    }

    /// The channel of a room, if it is subscribed while the room has members.
    pub(super) fn channel_of(&self, room: &str) -> Option<String> {
        match &self.wire {
            Wire::Sharded { all, mode, .. } if mode.has_channel(room) => Some(format!("{all}{room}#")),
            _ => None,
        }
    }

    /// Returns `true` if single sessions have channels of their own.
    pub(super) fn has_session_channels(&self) -> bool {
        matches!(&self.wire, Wire::Sharded { mode: Mode::DynamicPrivate, .. })
    }

    /// The kind of a message on a channel. `None` if it isn't one of this namespace, or this node sent it.
    pub(super) fn kind_of(&self, pattern: Option<&[u8]>, channel: &[u8], payload: &[u8]) -> Option<Kind> {
        match &self.wire {
            Wire::Classic { channels, pattern: own, .. } => {
                // A channel may match the patterns of two namespaces.
                if pattern.is_some_and(|pattern| pattern != own.as_bytes()) {
                    return None;
                }
                match channels.decode(channel)? {
                    Channel::Broadcast { .. } if sender(payload) == Some(&self.uid) => None,
                    Channel::Broadcast { room } => Some(Kind::Broadcast(room.map(Into::into))),
                    Channel::Request => Some(Kind::Request),
                    Channel::Response => Some(Kind::Response),
                }
            }
            Wire::Sharded { all, own, .. } if channel == own.as_bytes() || channel == all.as_bytes() => {
                Some(Kind::Request)
            }
            Wire::Sharded { all, .. } => {
                let room = str::from_utf8(channel).ok()?.strip_prefix(&**all)?.strip_suffix('#')?;
                Some(Kind::Broadcast(Some(room.into())))
            }
            Wire::Python { channel: own, .. } => (channel == own.as_bytes()).then_some(Kind::Request),
        }
    }

    /// Returns a message and its namespace. `None` if this node sent the message, or if it isn't for servers.
    pub(super) fn decode(
        &self,
        kind: &Kind,
        payload: &Bytes,
    ) -> Result<Option<(Arc<str>, Incoming)>, Refused> {
        let (uid, namespace, incoming) = match (&self.wire, kind) {
            (Wire::Classic { .. }, Kind::Broadcast(_)) => {
                let Broadcast { uid, namespace, selection, flags, event } = Broadcast::decode(payload)?;
                let volatile = flags.volatile;
                (Some(uid), namespace, Incoming::Broadcast { selection, volatile, event })
            }
            (Wire::Classic { .. }, Kind::Request) => {
                let request = Request::decode(payload)?;
                let namespace = match &request.body {
                    RequestBody::Broadcast { namespace, .. } => namespace.clone(),
                    _ => self.namespace.clone(),
                };
                (request.uid.clone(), namespace, Incoming::Request(request))
            }
            (Wire::Classic { .. }, Kind::Response) => {
                (None, self.namespace.clone(), Incoming::Response(Response::decode(payload)?))
            }
            (Wire::Sharded { .. }, _) => {
                let sharded::Message { uid, namespace, body } = sharded::Message::decode(payload)?;
                let incoming = match body {
                    sharded::Body::Request {
                        id: None,
                        body: RequestBody::Broadcast { selection, flags, event, .. },
                    } => Incoming::Broadcast { selection, volatile: flags.volatile, event },
                    sharded::Body::Request { id, body } => {
                        Incoming::Request(Request { uid: Some(uid.clone()), id, body })
                    }
                    sharded::Body::Response(response) => Incoming::Response(response),
                };
                (Some(uid), namespace, incoming)
            }
            (Wire::Python { ignores_stentor, .. }, _) => {
                let python::Message { host, namespace, action } = python::Message::decode(payload)?;
                if *ignores_stentor && host.starts_with(PYTHON_HOST) {
                    return Ok(None);
                }
                let Some(incoming) = of_python(&host, &namespace, action) else { return Ok(None) };
                // All namespaces have one channel.
                return Ok((host != self.uid).then_some((namespace, incoming)));
            }
        };
        if namespace != self.namespace {
            return Err(Refused::Namespace);
        }
        Ok((uid.as_ref() != Some(&self.uid)).then_some((namespace, incoming)))
    }

    /// An event to sessions.
    pub(super) fn broadcast(
        &self,
        selection: Selection,
        volatile: bool,
        event: Event,
    ) -> Result<Published, WireError> {
        let flags = Flags { volatile, ..Flags::default() };
        let (uid, namespace) = (self.uid.clone(), self.namespace.clone());
        match &self.wire {
            Wire::Classic { channels, parser, .. } => {
                let channel = channels.broadcast(&selection.rooms);
                Ok((channel, Broadcast { uid, namespace, selection, flags, event }.encode(*parser)?))
            }
            Wire::Sharded { .. } => self
                .request(None, RequestBody::Broadcast { namespace, selection, flags, event })?
                .pop()
                .ok_or(WireError::UnknownType),
            Wire::Python { channel, .. } => {
                // Servers in Python can except only sockets. With excepted rooms, their members would receive the message
                // wrongly.
                if !selection.except.iter().all(|name| PublicId::parse(name).is_some()) {
                    return Err(WireError::UnknownType);
                }
                let action = Action::Emit { selection, event, callback: None };
                Ok((channel.clone(), python::Message { host: uid, namespace, action }.encode()?))
            }
        }
    }

    /// Encodes a request of this node as one or several messages.
    pub(super) fn request(&self, id: Option<&str>, body: RequestBody) -> Result<Vec<Published>, WireError> {
        let id: Option<Arc<str>> = id.map(Into::into);
        match &self.wire {
            Wire::Classic { channels, parser, .. } => {
                let request = Request { uid: Some(self.uid.clone()), id, body };
                Ok(vec![(channels.request().into(), request.encode(*parser)?)])
            }
            Wire::Sharded { prefix, mode, .. } => {
                let body = sharded::Body::Request { id, body };
                let (uid, namespace) = (self.uid.clone(), self.namespace.clone());
                let message = sharded::Message { uid, namespace, body };
                Ok(vec![(message.channel(prefix, *mode), message.encode()?)])
            }
            Wire::Python { channel, .. } => {
                let publish = |action| {
                    let (host, namespace) = (self.uid.clone(), self.namespace.clone());
                    Ok((channel.clone(), python::Message { host, namespace, action }.encode()?))
                };
                to_python(body)?.into_iter().map(publish).collect()
            }
        }
    }

    /// Encodes the answer to a request of `uid`.
    pub(super) fn response(&self, to: Option<&str>, response: Response) -> Result<Published, WireError> {
        match (&self.wire, to) {
            (Wire::Classic { channels, parser, .. }, _) => {
                Ok((channels.response().into(), response.encode(*parser)?))
            }
            (Wire::Sharded { prefix, .. }, Some(to)) => {
                let (uid, namespace) = (self.uid.clone(), self.namespace.clone());
                let message = sharded::Message { uid, namespace, body: sharded::Body::Response(response) };
                Ok((sharded::answers(prefix, &self.namespace, to), message.encode()?))
            }
            (Wire::Python { channel, .. }, Some(to)) => {
                let (room, number) = response.id.rsplit_once('#').ok_or(WireError::Malformed)?;
                let id = number.parse().map_err(|_| WireError::Malformed)?;
                let ResponseBody::Acknowledged(arguments) = response.body else {
                    return Err(WireError::UnknownType);
                };
                let action = Action::Callback { session: room.into(), id, arguments };
                let namespace = self.namespace.clone();
                Ok((channel.clone(), python::Message { host: to.into(), namespace, action }.encode()?))
            }
            (Wire::Sharded { .. } | Wire::Python { .. }, _) => Err(WireError::UnknownType),
        }
    }

    /// The command that counts the servers, including this one. `None` if servers can't be asked.
    pub(super) fn count_servers(&self) -> Option<[&str; 3]> {
        match &self.wire {
            Wire::Classic { channels, .. } => Some(["PUBSUB", "NUMSUB", channels.request()]),
            Wire::Sharded { all, .. } => Some(["PUBSUB", "SHARDNUMSUB", all]),
            Wire::Python { .. } => None,
        }
    }
}

/// The message of a server in Python. `None` if it is an acknowledgement, which this node never requests.
fn of_python(host: &Arc<str>, namespace: &Arc<str>, action: Action) -> Option<Incoming> {
    let body = match action {
        Action::Emit { selection, event, callback: None } => {
            return Some(Incoming::Broadcast { selection, volatile: false, event });
        }
        Action::Emit { selection, event, callback: Some(Callback { room, id, .. }) } => {
            // The answer repeats the room and the callback's number.
            let id = Some(format!("{room}#{id}").into());
            let (namespace, flags) = (namespace.clone(), Flags::default());
            let body = RequestBody::Broadcast { namespace, selection, flags, event };
            return Some(Incoming::Request(Request { uid: Some(host.clone()), id, body }));
        }
        Action::Callback { .. } => return None,
        Action::Disconnect { session } => {
            RequestBody::Disconnect { target: Target::Session(session), close: false }
        }
        Action::EnterRoom { session, room } => {
            RequestBody::Join { target: Target::Session(session), rooms: vec![room] }
        }
        Action::LeaveRoom { session, room } => {
            RequestBody::Leave { target: Target::Session(session), rooms: vec![room] }
        }
        Action::CloseRoom { room } => {
            let selection = Selection { rooms: vec![room.clone()], except: Vec::new() };
            RequestBody::Leave { target: Target::Selection(selection), rooms: vec![room] }
        }
    };
    Some(Incoming::Request(Request { uid: None, id: None, body }))
}

/// Encodes a request for servers in Python, which act on single sockets only.
fn to_python(body: RequestBody) -> Result<Vec<Action>, WireError> {
    let sessions = |target: Target| match target {
        Target::Selection(Selection { rooms, except })
            if !rooms.is_empty()
                && except.is_empty()
                && rooms.iter().all(|name| PublicId::parse(name).is_some()) =>
        {
            Ok(rooms)
        }
        _ => Err(WireError::UnknownType),
    };
    let each = |target, rooms: Vec<Arc<str>>, action: fn(Arc<str>, Arc<str>) -> Action| {
        let pairs = sessions(target)?.into_iter();
        Ok(pairs
            .flat_map(|session| {
                rooms.iter().map(move |room| (session.clone(), room.clone())).collect::<Vec<_>>()
            })
            .map(|(session, room)| action(session, room))
            .collect())
    };
    match body {
        RequestBody::Join { target, rooms } => {
            each(target, rooms, |session, room| Action::EnterRoom { session, room })
        }
        RequestBody::Leave { target, rooms } => {
            each(target, rooms, |session, room| Action::LeaveRoom { session, room })
        }
        RequestBody::Disconnect { target, .. } => {
            Ok(sessions(target)?.into_iter().map(|session| Action::Disconnect { session }).collect())
        }
        _ => Err(WireError::UnknownType),
    }
}
