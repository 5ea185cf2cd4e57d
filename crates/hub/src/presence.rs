//! Presence: who is in a room, as shards and nodes tell each other. [`crate::members`] keeps it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How often a watching node says so.
pub(crate) const WATCH_INTERVAL: Duration = Duration::from_secs(10);
/// For how long after that the others publish their changes.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// A node that hasn't answered a watching one for this long has left.
pub(crate) const CONFIRM_TIMEOUT: Duration = Duration::from_secs(25);
/// The least time between two repetitions because a message was lost.
pub(crate) const REPAIR_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of changes in one message to other nodes; the rest follows after an interval.
pub(crate) const DELTA_CHANGES_MAX: usize = 1_000;
/// Maximum number of changes in one notice. Further ones are counted.
pub(crate) const NOTICE_CHANGES_MAX: usize = 100;
/// Maximum size of the users and info in one notice.
pub(crate) const NOTICE_BYTES_MAX: usize = 16 << 10;
/// Maximum number of members in a page of a list.
pub const MEMBERS_LISTED_MAX: usize = 1_000;
/// Approximate maximum size of a page.
pub(crate) const MEMBERS_LISTED_BYTES_MAX: usize = 256 << 10;

/// The rooms that have presence, and its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresenceOptions {
    /// Prefixes of the rooms' names.
    pub rooms: Vec<String>,
    /// Members of a room that are listed. Further ones are counted.
    pub members_max: usize,
    /// How long a session that ended stays a member, in case that its user returns.
    pub grace: Duration,
    /// The least time between two notices about a room.
    pub interval: Duration,
    /// Whether there are other nodes.
    pub has_other_nodes: bool,
}

/// The public id of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub [u8; 15]);

/// A user: a subject means something only together with its issuer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct User {
    /// Who has confirmed it.
    pub issuer: Arc<str>,
    /// Whom.
    pub subject: Arc<str>,
}

/// A member of a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomMember {
    /// The session.
    pub id: MemberId,
    /// Whose session it is; `None`: anonymous.
    pub user: Option<User>,
    /// What is shown with it: JSON.
    pub info: Option<Arc<str>>,
    /// When it joined, in milliseconds since 1970.
    pub since_ms: u64,
}

impl RoomMember {
    /// Approximate size of what is shown.
    pub fn bytes(&self) -> usize {
        let user = self.user.as_ref().map_or(0, |user| user.subject.len());
        64 + user + self.info.as_ref().map_or(0, |info| info.len())
    }
}

/// Why a session isn't a member any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It has left the room.
    Unsubscribed,
    /// It has ended. Its user may return.
    Ended,
    /// Its client is disconnected, and may resume it.
    Suspended,
}

/// A change of one session's membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PresenceChange {
    /// It has joined.
    Joined(Arc<RoomMember>),
    /// It has left.
    Left(MemberId, Absence),
}

/// What watchers of a room are notified of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresenceNotice {
    /// The room.
    pub room: crate::Room,
    /// Grows by one with each notice.
    pub version: u64,
    /// Who has joined.
    pub joined: Vec<Arc<RoomMember>>,
    /// Who has returned, with the session that it had before.
    pub replaced: Vec<(Arc<RoomMember>, MemberId)>,
    /// Who has left.
    pub left: Vec<Arc<RoomMember>>,
    /// Changes that aren't listed.
    pub more: usize,
    /// How many members there are.
    pub count: usize,
}

/// A part of a list of members, in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MembersPage {
    /// The members.
    pub members: Vec<Arc<RoomMember>>,
    /// Whether more follow.
    pub has_more: bool,
    /// How many members there are, listed or not.
    pub count: usize,
    /// The version of the last notice that it includes, for watchers.
    pub version: Option<u64>,
    /// How many members were looked at for it.
    pub visited: usize,
}

/// What nodes tell each other about a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PresenceMessage {
    /// The sender watches the room, and has these versions of other nodes.
    Watch {
        /// Node and version.
        have: Vec<(u64, u64)>,
    },
    /// Changes of the sender's members.
    Delta {
        /// The version before.
        from: u64,
        /// The version after.
        to: u64,
        /// How many members the sender has.
        count: usize,
        /// Who has joined.
        joined: Vec<Arc<RoomMember>>,
        /// Who has left.
        left: Vec<(MemberId, Absence)>,
    },
    /// All members of the sender.
    Snapshot {
        /// The version.
        version: u64,
        /// How many there are.
        count: usize,
        /// Those that are listed.
        members: Vec<Arc<RoomMember>>,
    },
    /// The receiver knows the newest version.
    Current {
        /// The version.
        version: u64,
    },
}

impl PresenceMessage {
    /// Approximate size.
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

/// Figures of a shard's presence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PresenceStats {
    /// Members known here.
    pub members: usize,
    /// Approximate size of what is known, in bytes.
    pub bytes: usize,
    /// Notices.
    pub notices: u64,
    /// Changes that needed no notice of their own: they shared one, or were undone before it.
    pub coalesced: u64,
    /// Changes that notices only counted.
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
