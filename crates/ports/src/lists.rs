//! Lists of sessions and rooms.

use super::{LinkApp, Principal};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of sessions in a [`SessionList`].
pub const SESSIONS_LISTED_MAX: usize = 1_000;
/// Maximum number of ended sessions in a [`SessionList`].
pub const ENDED_LISTED_MAX: usize = 10;
/// Maximum number of rooms in a [`RoomList`].
pub const ROOMS_LISTED_MAX: usize = 1_000;
/// Maximum size of the ids and names in a [`SessionList`], in bytes.
pub const LIST_BYTES_MAX: usize = 1 << 20;

/// A list of sessions of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionList {
    /// Some of the sessions, in no particular order.
    pub sessions: Vec<SessionInfo>,
    /// Some of the sessions that the target names by id and that have ended lately.
    pub ended: Vec<EndedSession>,
    /// The number of sessions of the target, without ended ones.
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

    /// Adds the part of another core or node to a list of at most `limit` sessions.
    pub fn merge(&mut self, other: Self, limit: usize) {
        self.count = self.count.saturating_add(other.count);
        for info in other.sessions {
            if self.sessions.len() < limit && self.bytes < LIST_BYTES_MAX {
                self.push(info);
            }
        }
        let left = ENDED_LISTED_MAX.saturating_sub(self.ended.len());
        self.ended.extend(other.ended.into_iter().take(left));
        self.missing_nodes.extend(other.missing_nodes);
    }

    /// Adds the part of another core or node to a list of at most `limit` sessions: those with the fullest send buffers.
    pub fn merge_fullest(&mut self, other: Self, limit: usize) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = 0;
        let mut all = std::mem::take(&mut self.sessions);
        all.extend(other.sessions);
        all.sort_by_key(|info| Reverse(info.details.send_buffer_bytes));
        for info in all.into_iter().take(limit) {
            if self.bytes < LIST_BYTES_MAX {
                self.push(info);
            }
        }
    }

    /// Adds a session.
    pub fn push(&mut self, info: SessionInfo) {
        self.bytes += info.bytes();
        self.sessions.push(info);
    }
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The session's public id. For clients of Socket.IO protocol 4, this is `socket.id`.
    pub id: String,
    /// The name of the session's protocol, as in the label `protocol` of the metrics.
    pub protocol: Cow<'static, str>,
    /// The session's rooms, unordered. Truncated when the session list reaches [`LIST_BYTES_MAX`].
    pub rooms: Vec<String>,
    /// The handshake of a Socket.IO client as JSON, if the node keeps handshakes.
    pub handshake: Option<Box<str>>,
    /// Further details.
    pub details: SessionDetails,
}

impl SessionInfo {
    /// Bytes of the session's ids and names.
    pub fn bytes(&self) -> usize {
        let rooms: usize = self.rooms.iter().map(String::len).sum();
        let handshake = self.handshake.as_ref().map_or(0, |handshake| handshake.len());
        self.id.len() + rooms + handshake + self.details.bytes()
    }

    /// `true` if the session's id, user or address contains a text.
    fn contains(&self, text: &str) -> bool {
        let SessionDetails { user, address, .. } = &self.details;
        self.id.contains(text)
            || user.as_ref().is_some_and(|user| user.subject.contains(text))
            || address.as_ref().is_some_and(|address| address.contains(text))
    }
}

/// Selects sessions of a node to list: those that match all fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionsQuery {
    /// Lists only sessions whose id, user or address contains this text.
    pub search: String,
    /// Lists only sessions whose user has exactly this id. `None` lists those of all users, and of anonymous clients.
    pub user: Option<String>,
    /// Lists only sessions whose user has exactly this issuer. `None` lists those of all issuers, and of anonymous clients.
    pub issuer: Option<String>,
    /// Lists only sessions from exactly this IPv4 address or IPv6 /64 network. `None` lists those of all addresses.
    pub address: Option<String>,
    /// Maximum number of sessions to list: at most [`SESSIONS_LISTED_MAX`].
    pub limit: usize,
}

impl SessionsQuery {
    /// `true` if all sessions match.
    pub fn is_for_all(&self) -> bool {
        self.search.is_empty() && !self.names_user() && self.address.is_none()
    }

    /// `true` if only sessions of users match.
    pub fn names_user(&self) -> bool {
        self.user.is_some() || self.issuer.is_some()
    }

    /// `true` if sessions of this user may match. `None` is an anonymous client.
    pub fn is_for_user(&self, user: Option<&Principal>) -> bool {
        let is = |wanted: &Option<String>, actual: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| actual == Some(wanted))
        };
        is(&self.user, user.map(|user| &*user.subject)) && is(&self.issuer, user.map(|user| &*user.issuer))
    }

    /// `true` if a session matches.
    pub fn matches(&self, info: &SessionInfo) -> bool {
        let is_from = |address: &String| info.details.address.as_ref() == Some(address);
        self.is_for_user(info.details.user.as_ref())
            && self.address.as_ref().is_none_or(is_from)
            && info.contains(&self.search)
    }
}

/// Details of a session. All are absent if the session is on a Socket.IO server that isn't Stentor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionDetails {
    /// The name of the node. `None` in lists for a target, and without a cluster.
    pub node: Option<Box<str>>,
    /// The application whose workers have the session. `None` in lists for a target, and if Stentor itself handles the session.
    pub app: Option<SessionApp>,
    /// The namespace. `None` in lists for a target, whose sessions all have the namespace of the target.
    pub namespace: Option<Box<str>>,
    /// The user. `None` if the client is anonymous.
    pub user: Option<Principal>,
    /// Public information about the client: JSON.
    pub info: Option<Arc<str>>,
    /// The client's IPv4 address or IPv6 /64 network.
    pub address: Option<String>,
    /// The Unix time when the session opened, in seconds.
    pub since: Option<u64>,
    /// The current transport of a client whose session outlives its connections: `websocket`, `polling`, `stream`, or `none`.
    pub transport: Option<Cow<'static, str>>,
    /// The feeds to which the session is subscribed, with the offset of the newest version that the client may have. Empty in
    /// lists of all sessions.
    pub feeds: Vec<(Box<str>, u64)>,
    /// Events of the session, oldest first. Empty in lists of all sessions, and after the first sessions of a list for a target.
    pub timeline: Vec<SessionEvent>,
    /// Bytes in the session's send buffer.
    pub send_buffer_bytes: usize,
}

/// A session that has ended. Times are Unix times in seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedSession {
    /// The session's public id.
    pub id: String,
    /// The name of the session's protocol.
    pub protocol: Cow<'static, str>,
    /// The client's IPv4 address or IPv6 /64 network.
    pub address: String,
    /// The time when the session opened.
    pub since: u64,
    /// The time when the session ended.
    pub ended: u64,
    /// Events of the session, oldest first. The last one is `ended`, with the reason.
    pub timeline: Vec<SessionEvent>,
}

/// An event in the timeline of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionEvent {
    /// The name of the event: lowercase words joined by `_`.
    pub name: Cow<'static, str>,
    /// The transport, the code of the denial, the key of the limit, or the reason for the end. Empty if there is none.
    pub reason: Cow<'static, str>,
    /// Number of times that the event has happened.
    pub count: u32,
    /// Unix time of the first time, in seconds.
    pub first: u64,
    /// Unix time of the last time, in seconds.
    pub last: u64,
}

/// An application whose workers have a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionApp {
    /// The application's number on this node.
    Number(LinkApp),
    /// The application's name, in a cluster.
    Name(Arc<str>),
}

impl SessionDetails {
    fn bytes(&self) -> usize {
        let node = self.node.as_ref().map_or(0, |node| node.len());
        let user = self.user.as_ref().map_or(0, |user| user.issuer.len() + user.subject.len());
        let namespace = self.namespace.as_ref().map_or(0, |namespace| namespace.len());
        node + namespace
            + self.feeds.iter().map(|(key, _)| key.len() + size_of::<u64>()).sum::<usize>()
            + self.timeline.len() * size_of::<SessionEvent>()
            + user
            + self.info.as_ref().map_or(0, |info| info.len())
            + self.address.as_ref().map_or(0, String::len)
    }
}

/// Selects rooms to list.
#[derive(Clone, Debug)]
pub struct RoomsQuery {
    /// The namespace of the rooms.
    pub namespace: String,
    /// The prefix of the rooms' names.
    pub prefix: String,
    /// Lists only names that follow this one, in the order of their bytes.
    pub after: String,
    /// Maximum number of rooms to list: at most [`ROOMS_LISTED_MAX`].
    pub limit: usize,
}

/// Rooms that have members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoomList {
    /// The first rooms in the order of the bytes of their names, with the number of members of each.
    pub rooms: Vec<(String, usize)>,
    /// `true` if more rooms follow: continue after the last one.
    pub truncated: bool,
    /// Names of nodes that didn't answer in time: their members aren't counted.
    pub missing_nodes: Vec<String>,
}

impl RoomList {
    /// Adds the part of another node to a list of at most `limit` rooms.
    pub fn merge(&mut self, other: Self, limit: usize) {
        let mut rooms: BTreeMap<String, usize> = std::mem::take(&mut self.rooms).into_iter().collect();
        for (name, members) in other.rooms {
            let sum = rooms.entry(name).or_default();
            *sum = sum.saturating_add(members);
        }
        self.truncated |= other.truncated || rooms.len() > limit;
        self.rooms = rooms.into_iter().take(limit).collect();
        self.missing_nodes.extend(other.missing_nodes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Concerned, FeedList, MemberList};

    fn list(queued: &[usize]) -> SessionList {
        let session = |bytes: &usize| SessionInfo {
            id: format!("{bytes:03}"),
            protocol: "websocket".into(),
            rooms: Vec::new(),
            handshake: None,
            details: SessionDetails { send_buffer_bytes: *bytes, ..SessionDetails::default() },
        };
        SessionList::new(queued.iter().map(session).collect(), queued.len())
    }

    fn queued(list: &SessionList) -> Vec<usize> {
        list.sessions.iter().map(|info| info.details.send_buffer_bytes).collect()
    }

    /// Merges two parts that are equal.
    fn twice<T: Clone>(part: &T, merge: impl Fn(&mut T, T)) -> T {
        let mut sum = part.clone();
        merge(&mut sum, part.clone());
        sum
    }

    /// The parts come from other nodes.
    #[test]
    fn counts_that_are_too_large_do_not_overflow() {
        let count = usize::MAX;
        let sessions = SessionList { count, ..SessionList::default() };
        assert_eq!(twice(&sessions, |sum, part| sum.merge(part, 9)), sessions);
        assert_eq!(twice(&sessions, |sum, part| sum.merge_fullest(part, 9)), sessions);
        let rooms = RoomList { rooms: vec![("a".into(), count)], ..RoomList::default() };
        assert_eq!(twice(&rooms, |sum, part| sum.merge(part, 9)), rooms);
        let feeds = FeedList { count, ..FeedList::default() };
        assert_eq!(twice(&feeds, |sum, part| sum.merge(part, 9)), feeds);
        let members = MemberList { count, ..MemberList::default() };
        assert_eq!(twice(&members, |sum, part| sum.merge(part, 9)).count, count);
        let concerned = Concerned { sessions: count, refused: count, ..Concerned::default() };
        assert_eq!(twice(&concerned, |sum, part| sum.merge(part)), concerned);
    }

    #[test]
    fn the_fullest_send_buffers_are_merged() {
        let mut sum = SessionList::default();
        for part in [list(&[3, 9]), list(&[]), list(&[5, 1, 7])] {
            sum.merge_fullest(part, 3);
        }
        assert_eq!((queued(&sum), sum.count, sum.bytes), (vec![9, 7, 5], 5, 9));
    }

    #[test]
    fn sessions_are_found_by_id_user_and_address() {
        let mut info = list(&[123]).sessions.remove(0);
        info.details.user = Some(Principal { issuer: "i".into(), subject: "ada".into() });
        info.details.address = Some("192.0.2.7".into());
        for (text, expect) in
            [("", true), ("12", true), ("ada", true), ("2.7", true), ("i", false), ("x", false)]
        {
            let query = SessionsQuery { search: text.into(), ..SessionsQuery::default() };
            assert_eq!(query.matches(&info), expect, "{text}");
        }
        for (user, issuer, address, expect) in [
            (Some("ada"), Some("i"), Some("192.0.2.7"), true),
            (Some("ada"), None, None, true),
            (None, Some("i"), None, true),
            (None, None, Some("192.0.2.7"), true),
            (Some("ad"), None, None, false),
            (Some("ada"), Some("other"), None, false),
            (None, None, Some("192.0.2.70"), false),
            (None, None, Some("92.0.2.7"), false),
        ] {
            let [user, issuer, address] =
                [user, issuer, address].map(|text: Option<&str>| text.map(Into::into));
            let query = SessionsQuery { user, issuer, address, ..SessionsQuery::default() };
            assert!(!query.is_for_all(), "{query:?}");
            assert_eq!(query.matches(&info), expect, "{query:?}");
        }
        let of_ada = SessionsQuery { user: Some("ada".into()), ..SessionsQuery::default() };
        info.details.user = None;
        assert!(!of_ada.matches(&info), "an anonymous client");
        assert!(SessionsQuery::default().is_for_all());
    }
}
