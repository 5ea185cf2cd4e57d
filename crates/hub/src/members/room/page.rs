//! Pages of a list of members.

use super::{Entry, RoomPresence, THIS_NODE};
use crate::presence::{MEMBERS_LISTED_BYTES_MAX, MemberId, MembersPage};
use std::ops::Bound::{Excluded, Unbounded};

impl RoomPresence {
    /// Returns the members after `after`. A page for watchers has the members of whom watchers were notified;
    /// any other page has the members of this node.
    pub(in crate::members) fn page(
        &self,
        after: Option<MemberId>,
        limit: usize,
        for_watcher: bool,
    ) -> MembersPage {
        let range = (after.map_or(Unbounded, Excluded), Unbounded);
        let is_meant = |entry: &&Entry| match for_watcher {
            true => entry.is_reported,
            false => entry.node == THIS_NODE && entry.leaves_at.is_none(),
        };
        let mut visited = 0;
        let listed = self.entries.listed.range(range).inspect(|_| visited += 1);
        let known = listed
            .filter_map(|id| Some(&self.entries.by_id.get(id).filter(is_meant)?.record.as_ref()?.member));
        let mut known = known.peekable();
        let mut gone = self
            .gone
            .records
            .range(range)
            .map(|(_, record)| &record.member)
            .filter(|_| for_watcher)
            .peekable();
        let mut page = MembersPage {
            members: Vec::new(),
            has_more: false,
            count: if for_watcher { self.last_count } else { self.own.count },
            version: for_watcher.then_some(self.version),
            visited: 0,
        };
        let mut bytes = 0;
        loop {
            let next = match (known.peek(), gone.peek()) {
                (Some(a), Some(b)) if b.id < a.id => gone.next(),
                (Some(_), _) => known.next(),
                (None, _) => gone.next(),
            };
            let Some(record) = next else { break };
            if page.members.len() >= limit || bytes > MEMBERS_LISTED_BYTES_MAX {
                page.has_more = true;
                break;
            }
            bytes += record.bytes();
            page.members.push(record.clone());
        }
        drop(known);
        page.visited = visited + page.members.len();
        page
    }
}
