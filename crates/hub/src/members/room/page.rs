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
        let is_meant = |entry: &&Entry| match for_watcher {
            true => entry.unreported.is_none(),
            false => entry.is_present_on(THIS_NODE),
        };
        let mut visited = 0;
        let listed = self.entries.listed(after).inspect(|_| visited += 1);
        let mut known = listed.filter(is_meant).filter_map(|entry| entry.member.as_ref()).peekable();
        let watch = self.watch.as_ref().filter(|_| for_watcher);
        let pending = watch.and_then(|watch| watch.pending.as_ref());
        let range = (after.map_or(Unbounded, Excluded), Unbounded);
        let gone = pending.into_iter().flat_map(|pending| pending.gone.records.range(range));
        let mut gone = gone.map(|(_, record)| &record.member).peekable();
        let mut page = MembersPage {
            members: Vec::new(),
            has_more: false,
            count: watch.map_or(self.own.count, |watch| watch.last_count),
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
