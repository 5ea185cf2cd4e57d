//! Lists of a room's members.

use super::PublicId;
use std::collections::BTreeMap;
use std::sync::Arc;
use stentor_hub::{MEMBERS_LISTED_MAX, MemberId, Room, RoomMember};

/// Selects members of a room to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembersQuery {
    /// The room.
    pub room: Room,
    /// Lists members whose session ids follow this one.
    pub after: Option<PublicId>,
    /// Maximum number of members to list: at most [`MEMBERS_LISTED_MAX`].
    pub limit: usize,
}

/// Members of a room. Only rooms with presence (`rooms.presence.rooms`) have such a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberList {
    /// The members, in the order of their ids.
    pub members: Vec<Arc<RoomMember>>,
    /// `true` if more members follow.
    pub has_more: bool,
    /// The number of sessions that are members.
    pub count: usize,
    /// The version of the last presence notice that the list includes, if the list is for a session that receives notices.
    pub version: Option<u64>,
    /// Names of nodes that didn't answer in time: their members are neither listed nor counted.
    pub missing_nodes: Vec<String>,
}

impl MemberList {
    /// Adds the part of another core or node to a list of at most `limit` members.
    pub fn merge(&mut self, other: Self, limit: usize) {
        let limit = limit.min(MEMBERS_LISTED_MAX);
        // A part with `has_more` has further members after its last one. The merged list must end there, because greater
        // members of the other part come after these.
        let end = |part: &Self| part.members.last().filter(|_| part.has_more).map(|member| member.id);
        let end = [end(self), end(&other)].into_iter().flatten().min();
        if self.members.is_empty() {
            self.members = other.members;
        } else if !other.members.is_empty() {
            let all = std::mem::take(&mut self.members).into_iter().chain(other.members);
            // While a session moves to another node, both nodes list it.
            let all: BTreeMap<MemberId, Arc<RoomMember>> = all.map(|member| (member.id, member)).collect();
            self.members = all.into_values().collect();
        }
        self.members.retain(|member| end.is_none_or(|end| member.id <= end));
        self.has_more |= other.has_more || self.members.len() > limit;
        self.members.truncate(limit);
        self.count = self.count.saturating_add(other.count);
        self.version = self.version.or(other.version);
        self.missing_nodes.extend(other.missing_nodes);
    }
}

impl From<PublicId> for MemberId {
    fn from(id: PublicId) -> Self {
        Self(id.bytes())
    }
}

impl From<MemberId> for PublicId {
    fn from(id: MemberId) -> Self {
        Self::of_bytes(id.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(ids: &[u8], has_more: bool) -> MemberList {
        let member =
            |id: &u8| Arc::new(RoomMember { id: MemberId([*id; 15]), user: None, info: None, since_ms: 0 });
        MemberList {
            members: ids.iter().map(member).collect(),
            has_more,
            count: ids.len(),
            ..MemberList::default()
        }
    }

    /// A part may end before the limit, with `has_more`. Members after its last one belong to the next page.
    #[test]
    fn a_page_ends_with_the_part_that_ends_first() {
        let mut list = part(&[1, 4, 9], false);
        list.merge(part(&[2, 3, 5], true), 10);
        list.merge(part(&[6, 7], true), 10);
        let ids: Vec<u8> = list.members.iter().map(|member| member.id.0[0]).collect();
        assert_eq!((ids, list.has_more, list.count), (vec![1, 2, 3, 4, 5], true, 8));
    }
}
