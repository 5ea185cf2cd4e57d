//! Lists of sessions and rooms.

use super::Principal;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of sessions in a [`SessionList`].
pub const SESSIONS_LISTED_MAX: usize = 1_000;
/// Maximum number of rooms in a [`RoomList`].
pub const ROOMS_LISTED_MAX: usize = 1_000;
/// Maximum size of the names in a [`SessionList`].
pub const LIST_BYTES_MAX: usize = 1 << 20;

/// Sessions of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionList {
    /// Some of the sessions, in no particular order.
    pub sessions: Vec<SessionInfo>,
    /// How many there are.
    pub count: usize,
    /// Names of nodes that didn't answer in time: their sessions are neither listed nor counted.
    pub missing_nodes: Vec<String>,
    /// Bytes of the ids and names in `sessions`.
    pub bytes: usize,
}

impl SessionList {
    /// A list of some of `count` sessions.
    pub fn new(sessions: Vec<SessionInfo>, count: usize) -> Self {
        let mut list = Self { count, ..Self::default() };
        sessions.into_iter().for_each(|info| list.push(info));
        list
    }

    /// Adds another core's or node's part of a list of at most `limit` sessions.
    pub fn merge(&mut self, other: Self, limit: usize) {
        self.count += other.count;
        for info in other.sessions {
            if self.sessions.len() < limit && self.bytes < LIST_BYTES_MAX {
                self.push(info);
            }
        }
        self.missing_nodes.extend(other.missing_nodes);
    }

    /// Adds a session.
    pub fn push(&mut self, info: SessionInfo) {
        self.bytes +=
            info.id.len() + info.rooms.iter().map(String::len).sum::<usize>() + info.details.bytes();
        self.bytes += info.handshake.as_ref().map_or(0, |handshake| handshake.len());
        self.sessions.push(info);
    }
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its public id. For clients of Socket.IO protocol 4, `socket.id` as they know it.
    pub id: String,
    /// The name of its protocol, as in the label `protocol` of the metrics.
    pub protocol: Cow<'static, str>,
    /// The rooms that it is a member of, in no particular order. Cut off if the list has [`LIST_BYTES_MAX`].
    pub rooms: Vec<String>,
    /// For clients of Socket.IO, if the node keeps handshakes: how they have connected, as JSON.
    pub handshake: Option<Box<str>>,
    /// What is known of it besides.
    pub details: SessionDetails,
}

/// What is known of a session. Nothing is, if it is on a server of another kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionDetails {
    /// Whose it is. `None`: anonymous.
    pub user: Option<Principal>,
    /// What others may know of its client: JSON.
    pub info: Option<Arc<str>>,
    /// The address of its client; of IPv6 the /64 network.
    pub address: Option<String>,
    /// When it opened, in seconds since 1970.
    pub since: Option<u64>,
    /// Bytes that wait in its send buffer.
    pub send_buffer_bytes: usize,
}

impl SessionDetails {
    fn bytes(&self) -> usize {
        let user = self.user.as_ref().map_or(0, |user| user.issuer.len() + user.subject.len());
        user + self.info.as_ref().map_or(0, |info| info.len()) + self.address.as_ref().map_or(0, String::len)
    }
}

/// Which rooms to list.
#[derive(Clone, Debug)]
pub struct RoomsQuery {
    /// Rooms of this namespace,
    pub namespace: String,
    /// whose names begin with this text,
    pub prefix: String,
    /// and are greater than this one, in the order of their bytes.
    pub after: String,
    /// How many to list: at most [`ROOMS_LISTED_MAX`].
    pub limit: usize,
}

/// Rooms that have members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoomList {
    /// The first rooms in the order of the bytes of their names, and how many sessions are members of each.
    pub rooms: Vec<(String, usize)>,
    /// Whether there are more: continue after the last one.
    pub truncated: bool,
    /// Names of nodes that didn't answer in time: their members aren't counted.
    pub missing_nodes: Vec<String>,
}

impl RoomList {
    /// Adds another node's part of a list of at most `limit` rooms.
    pub fn merge(&mut self, other: Self, limit: usize) {
        let mut rooms: BTreeMap<String, usize> = std::mem::take(&mut self.rooms).into_iter().collect();
        for (name, members) in other.rooms {
            *rooms.entry(name).or_default() += members;
        }
        self.truncated |= other.truncated || rooms.len() > limit;
        self.rooms = rooms.into_iter().take(limit).collect();
        self.missing_nodes.extend(other.missing_nodes);
    }
}
