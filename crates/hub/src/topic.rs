//! Topics: feeds by key, and rooms by namespace and name.
//!
//! A topic is a typed value, never a concatenated string, so that a room's name can't collide with a feed or
//! with a room of another namespace. Names chosen by clients are bounded here.

use crate::key::{Key, shared_text_bytes};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// Maximum length of the name of a room or namespace in bytes.
pub const ROOM_BYTES_MAX: usize = 256;

/// A room: a name within a namespace. Plain protocols live in namespace `/`.
///
/// The name takes one allocation and 16 bytes, because servers keep millions of names.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Room(
    /// A character whose code is the namespace's length, then the namespace and the name.
    Arc<str>,
);

/// Reason why a text isn't a room's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoomError {
    /// The text is empty.
    #[error("the room's name is empty")]
    Empty,
    /// The text has more than [`ROOM_BYTES_MAX`] bytes.
    #[error("the room's name is longer than {ROOM_BYTES_MAX} bytes")]
    TooLong,
}

fn check_name(name: &str) -> Result<(), RoomError> {
    match name.len() {
        0 => Err(RoomError::Empty),
        1..=ROOM_BYTES_MAX => Ok(()),
        _ => Err(RoomError::TooLong),
    }
}

impl Room {
    /// Makes the room `name` of `namespace`, each 1–256 bytes.
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

    /// Returns the allocated size in bytes: two counters and the text.
    pub(crate) fn allocated_bytes(&self) -> usize {
        shared_text_bytes(&self.0)
    }

    /// Makes another room of the same namespace.
    ///
    /// # Errors
    /// The name is empty or too long.
    pub fn sibling(&self, name: &str) -> Result<Self, RoomError> {
        check_name(name)?;
        Ok(Self::join(self.namespace(), name))
    }

    /// Makes the room `name` of namespace `/`, which plain protocols use.
    ///
    /// # Errors
    /// The name is empty or too long.
    pub fn plain(name: &str) -> Result<Self, RoomError> {
        Self::new("/", name)
    }

    /// Makes the room of all sockets of a namespace. Its name is empty, which [`Room::new`] refuses, so that
    /// clients can't name it. It never keeps history.
    ///
    /// # Errors
    /// The namespace is empty or too long.
    pub fn all_members(namespace: &str) -> Result<Self, RoomError> {
        check_name(namespace)?;
        Ok(Self::join(namespace, ""))
    }

    /// Returns `true` for the room of all sockets of a namespace.
    pub fn is_all_members(&self) -> bool {
        self.name().is_empty()
    }

    /// Returns the namespace.
    pub fn namespace(&self) -> &str {
        self.split().0
    }

    /// Returns the name within the namespace.
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
    /// Compares by namespace, then by name.
    fn cmp(&self, other: &Self) -> Ordering {
        self.split().cmp(&other.split())
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("namespace", &self.namespace()).field("name", &self.name()).finish()
    }
}

/// One or more distinct rooms of one namespace. A message to them reaches each member of any of them once.
/// Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rooms(Arc<[Room]>);

impl Rooms {
    /// Makes the rooms with these names in a namespace, each 1–256 bytes.
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

    /// Returns the first room.
    pub fn first(&self) -> &Room {
        &self.0[0]
    }

    /// Iterates over the rooms in the order in which they were named.
    pub fn iter(&self) -> std::slice::Iter<'_, Room> {
        self.0.iter()
    }

    /// Returns the room if there is only one.
    pub fn only(&self) -> Option<&Room> {
        if let [only] = &self.0[..] { Some(only) } else { None }
    }
}

impl TryFrom<Vec<Room>> for Rooms {
    type Error = RoomError;

    /// # Errors
    /// The list is empty. All rooms must be of one namespace.
    fn try_from(mut rooms: Vec<Room>) -> Result<Self, RoomError> {
        // A client may name thousands of rooms.
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

/// A topic to which sessions subscribe.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// A feed: a document that Stentor keeps up to date.
    Feed(Key),
    /// A room.
    Room(Room),
    /// The presence of a room: notices of members that join and leave.
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
