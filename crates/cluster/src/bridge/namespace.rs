//! A shared namespace: its channels, and its rooms with members on this node.

use super::Options;
use super::expected::Expected;
use super::protocol::Protocol;
use super::refused::Refused;
use crate::socketio::{Event, Selection};
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;
use stentor_hub::{Data, Room, RoomError, Rooms, ShrinkingMap};
use stentor_ports::{Broadcast, LocalNode, PublicId, Target};

/// The event's name for clients of Socket.IO if a message has none.
const DEFAULT_EVENT: &str = "message";

pub(super) struct Namespace {
    pub(super) name: Arc<str>,
    pub(super) protocol: Protocol,
    pub(super) all_members: Room,
    rooms: Mutex<MemberRooms>,
}

/// Rooms that have members on this node.
#[derive(Default)]
struct MemberRooms {
    /// Rooms with members, according to the data plane.
    known: ShrinkingMap<Arc<str>, ()>,
    /// Ids of sessions with channels of their own.
    sessions: ShrinkingMap<Arc<str>, ()>,
    /// Rooms that may have members soon, because sessions were requested to join them.
    expected: Expected,
    /// Rooms and sessions that may have gained their first member, or lost the last one, since the channels were subscribed.
    changed: HashSet<Arc<str>>,
}

impl MemberRooms {
    fn contains(&self, room: &str) -> bool {
        self.known.contains_key(room) || self.expected.contains(room)
    }
}

impl Namespace {
    /// Makes a shared namespace. `is_only`: the namespace is shared in no other way.
    pub(super) fn new(options: &Options, name: &str, is_only: bool) -> Result<Self, RoomError> {
        let all_members = Room::all_members(name)?;
        let name: Arc<str> = name.into();
        let protocol = Protocol::new(options, &name, is_only);
        Ok(Self { name, protocol, all_members, rooms: Mutex::default() })
    }

    fn rooms(&self) -> MutexGuard<'_, MemberRooms> {
        let mut rooms = self.rooms.lock();
        rooms.expected.expire(Instant::now());
        rooms
    }

    /// Records whether a room has members. Returns `true` if subscriptions to channels must change.
    pub(super) fn set_interest(&self, room: &Room, has_members: bool) -> bool {
        let mut rooms = self.rooms();
        let name: Arc<str> = room.name().into();
        let has_channel = !room.is_all_members() && self.protocol.channel_of(&name).is_some();
        if has_channel {
            rooms.changed.insert(name.clone());
        }
        if has_members {
            rooms.known.insert(name, ());
        } else {
            rooms.known.remove(&name);
        }
        has_channel
    }

    /// Records that a session has begun or ended. Returns `true` if subscriptions to channels must change.
    pub(super) fn set_session(&self, id: PublicId, has_begun: bool) -> bool {
        let has_channel = self.protocol.has_session_channels();
        if has_channel {
            let (id, rooms) = (Arc::<str>::from(id.to_string()), &mut *self.rooms());
            rooms.changed.insert(id.clone());
            if has_begun {
                rooms.sessions.insert(id, ());
            } else {
                rooms.sessions.remove(&id);
            }
        }
        has_channel
    }

    /// The channels of the rooms that have members, and of sessions.
    pub(super) fn room_channels(&self) -> Vec<Arc<str>> {
        let rooms = self.rooms();
        let names = rooms.known.keys().chain(rooms.sessions.keys());
        names.filter_map(|room| Some(self.protocol.channel_of(room)?.into())).collect()
    }

    /// Channels of rooms that have gained or lost members since the last call, and whether the rooms have members now.
    pub(super) fn changed_channels(&self) -> Vec<(Arc<str>, bool)> {
        let MemberRooms { known, sessions, changed, .. } = &mut *self.rooms();
        let channel = |room: Arc<str>| {
            let is_wanted = known.contains_key(&room) || sessions.contains_key(&room);
            Some((self.protocol.channel_of(&room)?.into(), is_wanted))
        };
        std::mem::take(changed).into_iter().filter_map(channel).collect()
    }

    /// Adds rooms that sessions may join now.
    pub(super) fn expect_members(&self, rooms: &Rooms) {
        self.rooms().expected.add(Instant::now(), rooms.iter().map(|room| room.name().into()));
    }

    /// Returns `true` if a message to the room may be for sessions of this node.
    pub(super) fn may_concern(&self, room: &str, plane: &dyn LocalNode) -> bool {
        PublicId::parse(room).is_some_and(|id| plane.may_have(id)) || self.rooms().contains(room)
    }

    /// The sessions of this node that a selection contains. A name that can't be a room's name refuses the whole selection:
    /// without the name, fewer rooms would be excepted, or a selection without rooms would stand for all sessions.
    pub(super) fn local(&self, selection: &Selection, plane: &dyn LocalNode) -> Result<Target, Refused> {
        let names = selection.rooms.iter().chain(&selection.except);
        for name in names {
            self.all_members.sibling(name).map_err(|_| Refused::RoomName)?;
        }
        let here = self.rooms();
        let rooms = |names: &[Arc<str>]| -> Vec<Room> {
            let names = names.iter().filter(|name| here.contains(name));
            names.filter_map(|name| self.all_members.sibling(name).ok()).collect()
        };
        // The name of a room may be the id of a session.
        let ids = |names: &[Arc<str>]| -> Vec<PublicId> {
            let ids = names.iter().filter_map(|name| PublicId::parse(name));
            ids.filter(|id| plane.may_have(*id)).collect()
        };
        let members_of = match selection.rooms.is_empty() {
            true => vec![self.all_members.clone()],
            false => rooms(&selection.rooms),
        };
        let target = Target::of_rooms(self.all_members.clone(), members_of, rooms(&selection.except));
        let target = ids(&selection.rooms).into_iter().fold(target, Target::session);
        Ok(ids(&selection.except).into_iter().fold(target, Target::except_session))
    }

    /// The receivers and the event of a message of this node. `None` if other servers have no receivers.
    pub(super) fn outgoing(&self, message: &Broadcast) -> Option<(Selection, Event)> {
        if message.except_rooms.contains(&self.all_members) {
            return None;
        }
        let names = |rooms: &mut dyn Iterator<Item = &Room>| rooms.map(|room| room.name().into()).collect();
        let mut rooms: Vec<Arc<str>> = names(&mut message.rooms.iter());
        if message.rooms.iter().any(Room::is_all_members) {
            rooms.clear();
        }
        let mut except: Vec<Arc<str>> = names(&mut message.except_rooms.iter());
        except.extend(message.except_sessions.iter().map(|id| id.to_string().into()));
        let event = event(message.event.clone(), &message.data);
        Some((Selection { rooms, except }, event))
    }
}

/// A message to the members of the target's rooms. `None` if it has no rooms.
pub(super) fn broadcast(target: Target, event: Event, volatile: bool) -> Option<Broadcast> {
    let except_sessions = target.except_session_ids().collect();
    Some(Broadcast {
        // Messages of other servers have no ids.
        id: 0,
        rooms: Rooms::try_from(target.rooms).ok()?,
        except_rooms: target.except_rooms,
        except_sessions,
        event: Some(event.name),
        data: event.arguments,
        volatile,
    })
}

/// The event that clients of Socket.IO receive.
pub(super) fn event(name: Option<Arc<str>>, data: &Data) -> Event {
    let arguments = match data {
        Data::Arguments { .. } => data.clone(),
        Data::Json(json) => Data::Arguments { json: json.clone(), attachments: [].into() },
        Data::Text(text) => {
            let mut json = Vec::with_capacity(text.len() + 2);
            stentor_json::write_string(&mut json, &String::from_utf8_lossy(text));
            Data::Arguments { json: json.into(), attachments: [].into() }
        }
        Data::Binary(bytes) => Data::Arguments {
            json: Bytes::from_static(br#"{"_placeholder":true,"num":0}"#),
            attachments: [bytes.clone()].into(),
        },
    };
    Event { name: name.unwrap_or_else(|| DEFAULT_EVENT.into()), arguments }
}
