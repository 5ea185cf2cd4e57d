//! The presence functions of a shard ([`crate::members`]).

use crate::dispatch::{CoreId, Dispatch, Emit};
use crate::encoder::Encoder;
use crate::members::{MembershipChange, OutgoingPresence};
use crate::presence::{
    Absence, MemberId, MembersPage, PresenceChange, PresenceMessage, PresenceNotice, PresenceStats,
};
use crate::publication::Body;
use crate::session::SessionState;
use crate::session_id::SessionId;
use crate::shard::Hub;
use crate::subscription::{Flags, Member};
use crate::topic::{Room, Topic};
use bytes::Bytes;
use std::time::Instant;

/// Number of messages waiting for a core above which the core receives no membership changes. The changes
/// wait in [`crate::members`], which merges the changes of each session.
const MESSAGES_MAX: usize = 1_024;

impl<E: Encoder> Hub<E> {
    /// Returns `true` if a room has presence.
    pub fn has_presence(&self, room: &Room) -> bool {
        self.topics.has_presence(&Topic::Room(room.clone()))
    }

    /// Returns the home core of a room's presence.
    pub fn presence_core(&self, room: &Room) -> CoreId {
        self.core_of(&Topic::Presence(room.clone()))
    }

    /// Reports that a session became a member of a room with presence.
    #[cold]
    pub(crate) fn joined_visibly(&mut self, member: Member, index: u32) {
        if !self.is_suspended(member) {
            self.membership_changed(member, index, None);
        }
    }

    /// Reports that a session is no longer a member of a room with presence.
    #[cold]
    pub(crate) fn left_visibly(&mut self, member: Member, index: u32, absence: Absence) {
        // The home core has already been notified that a suspended session is absent.
        if !self.is_suspended(member) {
            self.membership_changed(member, index, Some(absence));
        }
    }

    fn is_suspended(&self, member: Member) -> bool {
        self.sessions.slots[member.session as usize].state == SessionState::Suspended
    }

    fn membership_changed(&mut self, member: Member, index: u32, absence: Option<Absence>) {
        let Some(Topic::Room(room)) = self.topics.at(index).map(|state| state.topic.clone()) else { return };
        let session = self.sessions.id_of(member);
        let home = self.presence_core(&room);
        if let Some(presence) = &mut self.presence {
            presence.changes.set(home, &room, session, absence);
        }
    }

    /// Called when a session was suspended or resumed: the members of its rooms with presence change.
    pub(crate) fn suspension_changed(&mut self, session: SessionId, absence: Option<Absence>) {
        if self.presence.is_none() {
            return;
        }
        for member in self.sessions.members(session) {
            let subscription = self.sessions.subscription(member);
            let index = subscription.topic;
            if !subscription.flags.has(Flags::PENDING)
                && self.topics.at(index).is_some_and(|t| t.has_presence)
            {
                self.membership_changed(member, index, absence);
            }
        }
    }

    /// Takes the changes of this shard's sessions in rooms with presence. Call [`Hub::handle_presence`] with
    /// each.
    pub fn take_membership_changes(&mut self) -> Vec<MembershipChange> {
        let mut all = Vec::new();
        let Some(presence) = &mut self.presence else { return all };
        if presence.changes.is_empty() {
            return all;
        }
        for home in 0..self.topics.options.cores {
            if home == self.core || self.outgoing.to(home).pending() <= MESSAGES_MAX {
                presence.changes.take(home, &mut all);
            }
        }
        all
    }

    /// Returns `true` if changes of members wait for a slow core.
    pub fn has_membership_changes(&self) -> bool {
        self.presence.as_ref().is_some_and(|presence| !presence.changes.is_empty())
    }

    /// Called when a session of this shard has joined a room with presence, or left it.
    pub fn handle_presence(&mut self, now: Instant, room: Room, change: PresenceChange) {
        let home = self.presence_core(&room);
        if home != self.core {
            return self.outgoing.push(home, Dispatch::Presence(room, change));
        }
        if let Some(presence) = &mut self.presence {
            presence.table.handle_change(now, &room, change);
        }
    }

    /// Checks whether a room's presence has gained its first subscriber or lost its last one.
    pub(crate) fn presence_subscribers_changed(&mut self, room: Room) {
        if let Some(presence) = &mut self.presence
            && presence.subscribers_changed.last() != Some(&room)
        {
            presence.subscribers_changed.push(room);
        }
    }

    fn note_presence_subscribers(&mut self, now: Instant) {
        let Some(presence) = &mut self.presence else { return };
        for room in std::mem::take(&mut presence.subscribers_changed) {
            let index = self.topics.find(&Topic::Presence(room.clone()));
            let is_watched = index
                .and_then(|index| self.topics.at(index))
                .is_some_and(|state| !state.members.is_empty() || !state.interested.is_empty());
            presence.table.set_watched(now, &room, is_watched);
        }
    }

    /// Carries out due actions. Call it when subscriptions or the time may have changed, before
    /// [`Hub::poll_presence_notice`] and [`Hub::poll_presence_message`].
    pub fn handle_presence_time(&mut self, now: Instant) {
        self.note_presence_subscribers(now);
        if let Some(presence) = &mut self.presence {
            presence.table.handle_time(now);
        }
    }

    /// Returns the time for the next [`Hub::handle_presence_time`] without other events.
    pub fn poll_presence_timeout(&self) -> Option<Instant> {
        self.presence.as_ref()?.table.poll_timeout()
    }

    /// Handles another node's message about a room with its home here.
    pub fn handle_presence_message(
        &mut self,
        now: Instant,
        room: &Room,
        node: u64,
        message: PresenceMessage,
    ) {
        if let Some(presence) = &mut self.presence {
            presence.table.handle_message(now, room, node, message);
        }
    }

    /// Handles the death of another node.
    pub fn handle_lost_node(&mut self, now: Instant, node: u64) {
        if let Some(presence) = &mut self.presence {
            presence.table.handle_lost_node(now, node);
        }
    }

    /// Returns the next notice for the subscribers of a room's presence. Call [`Hub::publish_presence`] with
    /// it.
    pub fn poll_presence_notice(&mut self) -> Option<PresenceNotice> {
        self.presence.as_mut()?.table.poll_notice()
    }

    /// Returns the next message for other nodes.
    pub fn poll_presence_message(&mut self) -> Option<OutgoingPresence> {
        self.presence.as_mut()?.table.poll_message()
    }

    /// Sends a notice to the subscribers of a room's presence. `notice` is its text.
    pub fn publish_presence(&mut self, now: Instant, room: &Room, notice: Bytes) {
        let Some(index) = self.topics.find(&Topic::Presence(room.clone())) else { return };
        let publication = self.make(Body::Presence { room: room.clone(), notice }, false, None);
        self.broadcast(now, index, &publication, &Emit::default());
    }

    /// Returns the members, after `after`, of a room with its home here: for subscribers of its presence, the
    /// members of all nodes that they were notified of; otherwise those of this node.
    pub fn present_members(
        &mut self,
        now: Instant,
        room: &Room,
        after: Option<MemberId>,
        limit: usize,
        for_watcher: bool,
    ) -> MembersPage {
        self.note_presence_subscribers(now);
        match &mut self.presence {
            Some(presence) => presence.table.page(now, room, after, limit, for_watcher),
            None => MembersPage::default(),
        }
    }

    /// Returns statistics of the rooms with their home here.
    pub fn presence_stats(&self) -> PresenceStats {
        let Some(presence) = &self.presence else { return PresenceStats::default() };
        PresenceStats { bytes: self.presence_bytes(), ..presence.table.stats() }
    }

    /// Returns the approximate size of presence in this shard, in bytes.
    pub fn presence_bytes(&self) -> usize {
        self.presence.as_ref().map_or(0, |presence| presence.table.bytes() + presence.changes.bytes())
    }
}
