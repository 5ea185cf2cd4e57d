//! Presence on one core: passes information about members between sessions, the hub, other nodes, and clients that list
//! members.

use super::Protocols;
use crate::app::{PresenceReply, Sent, error_reply, members_reply, write_notice};
use crate::ledger::{Charge, Class, Ledger};
use crate::ports::{MemberList, MembersQuery, PublicId};
use crate::shared::ControlCommand;
use crate::shared::tasks::MembersTask;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use stentor_hub::{MemberId, PresenceChange, RoomMember, SessionId, User};

/// Maximum number of unanswered requests of clients for members, per core.
const QUERIES_MAX: usize = 1_024;

/// A core's state for presence.
pub(crate) struct PresenceState {
    charge: Charge,
    /// Public ids of sessions that moved here from other nodes. They are kept until the leave of the session has been reported.
    moved: BTreeMap<SessionId, PublicId>,
    /// `true` if it is time to remove the ids of ended sessions.
    is_old: bool,
    queries: Arc<AtomicUsize>,
}

impl PresenceState {
    pub(crate) fn new(ledger: Arc<Ledger>) -> Self {
        let charge = Charge::new(ledger, Class::Presence);
        Self { charge, moved: BTreeMap::new(), is_old: false, queries: Arc::default() }
    }

    /// Removes the ids of ended sessions, if it is time and no change waits that may need them.
    fn forget_ended(&mut self, changes_wait: bool, is_open: impl Fn(SessionId) -> bool) {
        if self.is_old && !changes_wait {
            self.is_old = false;
            self.moved.retain(|session, _| is_open(*session));
        }
    }

    fn moved_bytes(&self) -> usize {
        // Nodes of the tree are at least half full, so it takes at most twice its entries.
        self.moved.len() * 2 * size_of::<(SessionId, PublicId)>()
    }
}

/// Counts a request until the permit is dropped.
struct Permit(Arc<AtomicUsize>);

impl Permit {
    fn new(queries: &Arc<AtomicUsize>) -> Option<Self> {
        let has_room = |open: usize| (open < QUERIES_MAX).then_some(open + 1);
        queries.fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_room).ok()?;
        Some(Self(queries.clone()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Protocols {
    /// Sends joins and leaves to other cores and nodes, and notices to subscribers. Returns `false` if there were no joins,
    /// leaves or notices.
    pub fn pump_presence(&mut self) -> bool {
        if !self.ex.shared.has_presence() {
            return false;
        }
        let now = self.ex.context.now;
        let mut has_changed = false;
        let changes = self.ex.hub.untracked().take_membership_changes();
        for change in changes {
            has_changed = true;
            let presence = match change.absence {
                None => PresenceChange::Joined(Arc::new(self.member(change.session))),
                Some(absence) => PresenceChange::Left(self.member_id(change.session), absence),
            };
            self.ex.hub.untracked().handle_presence(now, change.room, presence);
        }
        let hub = self.ex.hub.untracked();
        self.presence.forget_ended(hub.has_membership_changes(), |session| hub.tag(session).is_some());
        hub.handle_presence_time(now);
        while let Some(notice) = hub.poll_presence_notice() {
            has_changed = true;
            let text = Bytes::from(write_notice(&notice));
            self.ex.budget.count_published(text.len());
            hub.publish_presence(now, &notice.room, text);
        }
        while let Some(message) = hub.poll_presence_message() {
            if let Some(broker) = self.ex.outlet.broker() {
                broker.send_presence(&message);
            }
        }
        has_changed
    }

    /// Describes a session as a member of a room, for other clients.
    fn member(&mut self, session: SessionId) -> RoomMember {
        let id = self.ex.public_id(session);
        if id != PublicId::of(self.ex.shared.ids.key, self.ex.context.core, session) {
            self.presence.moved.insert(session, id);
        }
        let (user, info) = self.ex.who_is(session);
        let info_bytes_max = self.ex.options().rooms.presence.info_bytes_max;
        RoomMember {
            id: id.into(),
            user: user.map(|user| User { issuer: user.issuer, subject: user.subject }),
            info: info.filter(|info| info.len() <= info_bytes_max),
            since_ms: self.ex.unix_millis(),
        }
    }

    fn member_id(&self, session: SessionId) -> MemberId {
        let moved = self.presence.moved.get(&session).copied();
        moved.unwrap_or_else(|| PublicId::of(self.ex.shared.ids.key, self.ex.context.core, session)).into()
    }

    /// Charges the memory that presence holds.
    pub fn charge_presence(&mut self) {
        let bytes = self.ex.hub.presence_bytes() + self.presence.moved_bytes();
        self.presence.charge.set(bytes);
    }

    /// Updates the metrics, which other threads read.
    pub fn report_presence(&mut self) {
        if !self.ex.shared.has_presence() {
            return;
        }
        let hub = self.ex.hub.untracked();
        self.presence.is_old = true;
        let stats = hub.presence_stats();
        let metrics = self.ex.metrics();
        metrics.presence_members.set(stats.members as u64);
        metrics.presence_notices.set(stats.notices);
        metrics.presence_coalesced.set(stats.coalesced);
        metrics.presence_truncated.set(stats.truncated);
    }

    /// Lists members of a room with presence if this core is the room's home. For a room without presence, counts the
    /// members on this core. Also returns the number of visited members.
    pub fn list_own_members(&mut self, task: &MembersTask) -> (MemberList, usize) {
        let MembersTask { query, for_watcher, .. } = task;
        let (now, core) = (self.ex.context.now, self.ex.context.core);
        let hub = self.ex.hub.untracked();
        if !hub.has_presence(&query.room) {
            let count = hub.member_count(&query.room);
            return (MemberList { count, ..MemberList::default() }, 0);
        }
        if hub.presence_core(&query.room) != core {
            return (MemberList::default(), 0);
        }
        let after = query.after.map(MemberId::from);
        let page = hub.present_members(now, &query.room, after, query.limit, *for_watcher);
        let list = MemberList {
            members: page.members,
            has_more: page.has_more,
            count: page.count,
            version: page.version,
            missing_nodes: Vec::new(),
        };
        (list, page.visited)
    }

    /// Lists members of a room for a client. The answer is sent later. If too many requests are open, returns an error as
    /// the answer.
    pub fn list_members(
        &mut self,
        session: SessionId,
        query: MembersQuery,
        for_watcher: bool,
        reply: PresenceReply,
    ) -> Option<Sent> {
        let Some(permit) = Permit::new(&self.presence.queries) else { return Some(error_reply(&reply)) };
        let (shared, core) = (self.ex.shared.clone(), self.ex.context.core);
        let room = query.room.clone();
        let has_presence = self.ex.hub.has_presence(&room);
        let answer = move |list| {
            let what = match list {
                Ok(list) => members_reply(&reply, &room, &list, has_presence),
                Err(_) => error_reply(&reply),
            };
            drop(permit);
            // If the inbox is full, the answer is dropped, and the client receives none.
            let _ = shared.inbox(core).put(ControlCommand::Answer(session, Box::new(what)));
        };
        self.ex.shared.list_members_for_client(query, for_watcher, answer);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_an_ended_session_is_kept_until_its_leave_is_reported() {
        let mut presence = PresenceState::new(Arc::new(Ledger::new(1 << 20)));
        let (ended, open) = (SessionId::from_bits(1), SessionId::from_bits(2));
        presence.moved = [ended, open].map(|session| (session, PublicId::of_bytes([7; 15]))).into();
        presence.forget_ended(false, |session| session == open);
        assert_eq!(presence.moved.len(), 2, "it isn't time yet");
        presence.is_old = true;
        presence.forget_ended(true, |session| session == open);
        assert_eq!(presence.moved.len(), 2, "the change may wait for a core that is behind");
        presence.forget_ended(false, |session| session == open);
        assert_eq!(presence.moved.keys().collect::<Vec<_>>(), [&open]);
        let ended = (2..1_000).map(SessionId::from_bits);
        presence.moved.extend(ended.map(|session| (session, PublicId::of_bytes([7; 15]))));
        presence.is_old = true;
        presence.forget_ended(false, |session| session == open);
        assert!(presence.moved_bytes() < 1_000, "{} bytes", presence.moved_bytes());
    }
}
