//! Topics: feeds by key, and rooms by namespace and name.
//!
//! A topic is a typed value, never a concatenated string, so that a room can't be named to collide with a
//! feed or with a room of another namespace. Names chosen by clients are bounded here.

use crate::key::{Key, shared_text_bytes};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// Longest name of a room or namespace, in bytes.
pub const ROOM_BYTES_MAX: usize = 256;

/// A room: a name within a namespace. Plain protocols live in namespace `/`.
///
/// One allocation and 16 bytes, because servers keep millions of them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Room(
    /// A character whose code is the namespace's length, the namespace and the name.
    Arc<str>,
);

/// Why a text isn't a room's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomError {
    /// It is empty.
    Empty,
    /// More than [`ROOM_BYTES_MAX`] bytes.
    TooLong,
}

impl fmt::Display for RoomError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the room's name is empty"),
            Self::TooLong => write!(f, "the room's name is longer than {ROOM_BYTES_MAX} bytes"),
        }
    }
}

impl std::error::Error for RoomError {}

fn check_name(name: &str) -> Result<(), RoomError> {
    match name.len() {
        0 => Err(RoomError::Empty),
        1..=ROOM_BYTES_MAX => Ok(()),
        _ => Err(RoomError::TooLong),
    }
}

impl Room {
    /// The room `name` of `namespace`, each 1–256 bytes.
    ///
    /// # Errors
    /// The name or the namespace is empty or too long.
    pub fn new(namespace: &str, name: &str) -> Result<Self, RoomError> {
        check_name(namespace)?;
        check_name(name)?;
        Ok(Self::join(namespace, name))
    }

    fn join(namespace: &str, name: &str) -> Self {
        // Every length up to 256 is the code of a character.
        let length = char::from_u32(namespace.len() as u32).unwrap_or_default();
        let mut text = String::with_capacity(length.len_utf8() + namespace.len() + name.len());
        text.push(length);
        text.push_str(namespace);
        text.push_str(name);
        Self(text.into())
    }

    fn split(&self) -> (&str, &str) {
        let mut rest = self.0.chars();
        let length = rest.next().map_or(0, |length| length as usize);
        rest.as_str().split_at_checked(length).unwrap_or_default()
    }

    /// Size of what is allocated, in bytes: two counters and the text.
    pub(crate) fn allocated_bytes(&self) -> usize {
        shared_text_bytes(&self.0)
    }

    /// Another room of the same namespace.
    ///
    /// # Errors
    /// The name is empty or too long.
    pub fn sibling(&self, name: &str) -> Result<Self, RoomError> {
        check_name(name)?;
        Ok(Self::join(self.namespace(), name))
    }

    /// The room `name` of namespace `/`, which plain protocols use.
    ///
    /// # Errors
    /// The name is empty or too long.
    pub fn plain(name: &str) -> Result<Self, RoomError> {
        Self::new("/", name)
    }

    /// The room that all sockets of a namespace are members of. Its name is empty, which [`Room::new`] refuses, so that
    /// no client can name it. It never keeps history.
    ///
    /// # Errors
    /// The namespace is empty or too long.
    pub fn all_members(namespace: &str) -> Result<Self, RoomError> {
        check_name(namespace)?;
        Ok(Self::join(namespace, ""))
    }

    /// Whether all sockets of the namespace are its members.
    pub fn is_all_members(&self) -> bool {
        self.name().is_empty()
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.split().0
    }

    /// The name within the namespace.
    pub fn name(&self) -> &str {
        self.split().1
    }
}

impl PartialOrd for Room {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Room {
    /// By namespace, then by name.
    fn cmp(&self, other: &Self) -> Ordering {
        self.split().cmp(&other.split())
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("namespace", &self.namespace()).field("name", &self.name()).finish()
    }
}

/// Rooms of one namespace, at least one, none twice: something emitted to them reaches whoever is a member
/// of any, once. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rooms(Arc<[Room]>);

impl Rooms {
    /// The rooms of a namespace that have these names, each 1–256 bytes.
    ///
    /// # Errors
    /// There are no names, or one of them or the namespace is empty or too long.
    pub fn new<'a>(namespace: &str, names: impl IntoIterator<Item = &'a str>) -> Result<Self, RoomError> {
        let mut rooms: Vec<Room> = Vec::new();
        for name in names {
            let room = match rooms.first() {
                None => Room::new(namespace, name)?,
                Some(first) => first.sibling(name)?,
            };
            if !rooms.contains(&room) {
                rooms.push(room);
            }
        }
        if rooms.is_empty() { Err(RoomError::Empty) } else { Ok(Self(rooms.into())) }
    }

    /// The one that is named first.
    pub fn first(&self) -> &Room {
        &self.0[0]
    }

    /// All of them, in the order in which they were named.
    pub fn iter(&self) -> std::slice::Iter<'_, Room> {
        self.0.iter()
    }

    /// The only one, if it is only one.
    pub fn only(&self) -> Option<&Room> {
        if let [only] = &self.0[..] { Some(only) } else { None }
    }
}

impl TryFrom<Vec<Room>> for Rooms {
    type Error = RoomError;

    /// # Errors
    /// If there is none. All are to be of one namespace.
    fn try_from(mut rooms: Vec<Room>) -> Result<Self, RoomError> {
        // There may be thousands, named by a stranger.
        let mut seen = HashSet::with_capacity(rooms.len());
        rooms.retain(|room| seen.insert(room.clone()));
        if rooms.is_empty() { Err(RoomError::Empty) } else { Ok(Self(rooms.into())) }
    }
}

impl From<Room> for Rooms {
    fn from(room: Room) -> Self {
        Self([room].into())
    }
}

/// Something that sessions subscribe to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// A feed: a document that Stentor keeps up to date.
    Feed(Key),
    /// A room.
    Room(Room),
    /// Who joins and leaves a room.
    Presence(Room),
}

impl From<Key> for Topic {
    fn from(key: Key) -> Self {
        Self::Feed(key)
    }
}

impl From<Room> for Topic {
    fn from(room: Room) -> Self {
        Self::Room(room)
    }
}

#[cfg(test)]
mod tests;
