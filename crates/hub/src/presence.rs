//! Presence: types of the messages about the members of rooms between shards and nodes. [`crate::members`]
//! keeps the members.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Interval between the `Watch` messages of a watching node.
pub(crate) const WATCH_INTERVAL: Duration = Duration::from_secs(10);
/// Time for which other nodes publish their changes after a `Watch`.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// Time after which a node that hasn't answered a `Watch` counts as gone.
pub(crate) const CONFIRM_TIMEOUT: Duration = Duration::from_secs(25);
/// Minimum time between two `Watch` messages because of a lost message.
pub(crate) const REPAIR_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of changes in one message to other nodes; the others follow after an interval.
pub(crate) const DELTA_CHANGES_MAX: usize = 1_000;
/// Maximum number of changes in one notice. Further changes are only counted.
pub(crate) const NOTICE_CHANGES_MAX: usize = 100;
/// Maximum size of the users and info in one notice, in bytes.
pub(crate) const NOTICE_BYTES_MAX: usize = 16 << 10;
/// Maximum number of members in a page of a list.
pub const MEMBERS_LISTED_MAX: usize = 1_000;
/// Approximate maximum size of a page, in bytes.
pub(crate) const MEMBERS_LISTED_BYTES_MAX: usize = 256 << 10;

/// Options of presence: its rooms and limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresenceOptions {
    /// Prefixes of the rooms' names.
    pub rooms: Vec<String>,
    /// Maximum number of listed members of a room. Further members are only counted.
    pub members_max: usize,
    /// Time for which a session that ended stays a member, in case its user returns.
    pub grace: Duration,
    /// Minimum time between two notices about a room.
    pub interval: Duration,
    /// `true` if the cluster has other nodes.
    pub has_other_nodes: bool,
}

/// The public id of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub [u8; 15]);

/// A user: a subject means something only together with its issuer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct User {
    /// The issuer that confirmed the user.
    pub issuer: Arc<str>,
    /// The subject.
    pub subject: Arc<str>,
}

/// A member of a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomMember {
    /// The public id of the session.
    pub id: MemberId,
    /// The session's user; `None` if anonymous.
    pub user: Option<User>,
    /// Application data that is shown with the member, as JSON.
    pub info: Option<Arc<str>>,
    /// Time of joining, in milliseconds since 1970.
    pub since_ms: u64,
}

impl RoomMember {
    /// Returns the approximate size of the shown data, in bytes.
    pub fn bytes(&self) -> usize {
        let user = self.user.as_ref().map_or(0, |user| user.subject.len());
        64 + user + self.info.as_ref().map_or(0, |info| info.len())
    }
}

/// Reason why a session is no longer a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// The session has left the room.
    Unsubscribed,
    /// The session has ended. Its user may return.
    Ended,
    /// The client is disconnected and may resume the session.
    Suspended,
}

/// A change of one session's membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PresenceChange {
    /// The session has joined.
    Joined(Arc<RoomMember>),
    /// The session has left.
    Left(MemberId, Absence),
}

/// A notice to the watchers of a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresenceNotice {
    /// The room.
    pub room: crate::Room,
    /// Grows by one with each notice.
    pub version: u64,
    /// Members that have joined.
    pub joined: Vec<Arc<RoomMember>>,
    /// Members that have returned, each with its previous session.
    pub replaced: Vec<(Arc<RoomMember>, MemberId)>,
    /// Members that have left.
    pub left: Vec<Arc<RoomMember>>,
    /// Number of changes that aren't listed.
    pub more: usize,
    /// Number of members.
    pub count: usize,
}

/// A part of a list of members, in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MembersPage {
    /// The members.
    pub members: Vec<Arc<RoomMember>>,
    /// `true` if more members follow.
    pub has_more: bool,
    /// Number of members, listed or not.
    pub count: usize,
    /// For watchers: the version of the last notice that the page includes.
    pub version: Option<u64>,
    /// Number of members that were visited for this page.
    pub visited: usize,
}

/// A message between nodes about a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PresenceMessage {
    /// The sender watches the room and has these versions of other nodes' members.
    Watch {
        /// Pairs of node and version. In a received message, the receiver is node 0. In a message to all nodes, the pair with node
        /// `u64::MAX` follows the versions that were confirmed lately.
        have: Vec<(u64, u64)>,
    },
    /// Changes of the sender's members.
    Delta {
        /// The version before these changes.
        from: u64,
        /// The version after these changes.
        to: u64,
        /// Number of the sender's members.
        count: usize,
        /// Members that have joined.
        joined: Vec<Arc<RoomMember>>,
        /// Members that have left.
        left: Vec<(MemberId, Absence)>,
    },
    /// All members of the sender.
    Snapshot {
        /// The version.
        version: u64,
        /// Number of the sender's members.
        count: usize,
        /// The listed members.
        members: Vec<Arc<RoomMember>>,
    },
    /// The receiver already knows the newest version.
    Current {
        /// The version.
        version: u64,
    },
}

impl PresenceMessage {
    /// Returns the approximate size in bytes.
    pub fn bytes(&self) -> usize {
        let sum = |members: &[Arc<RoomMember>]| members.iter().map(|member| member.bytes()).sum::<usize>();
        match self {
            Self::Watch { have } => size_of_val(&have[..]),
            Self::Delta { joined, left, .. } => sum(joined) + size_of_val(&left[..]),
            Self::Snapshot { members, .. } => sum(members),
            Self::Current { .. } => 0,
        }
    }
}

/// Statistics of a shard's presence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PresenceStats {
    /// Number of members known here.
    pub members: usize,
    /// Approximate size of the known members, in bytes.
    pub bytes: usize,
    /// Number of notices.
    pub notices: u64,
    /// Number of changes that shared a notice with others, or were undone before their notice.
    pub coalesced: u64,
    /// Number of changes that notices only counted.
    pub truncated: u64,
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsubscribed => "unsubscribed",
            Self::Ended => "ended",
            Self::Suspended => "suspended",
        })
    }
}
