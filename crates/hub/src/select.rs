//! Selects sessions of this core by their rooms, for commands other than publications, a bounded number at a time.
//!
//! A selection continues over several calls, between which sessions may start and end. It visits the members
//! of each room from the last to the first: a member that leaves is replaced by the last one, so no remaining
//! member is missed. A session that is visited twice, or is in several of the rooms, is selected once.

use crate::encoder::Encoder;
use crate::recipients::Seen;
use crate::session::SessionState;
use crate::session_id::SessionId;
use crate::shard::Hub;
use crate::subscription::NO_TOPIC;
use crate::topic::{Room, Topic};
use std::sync::Arc;

/// The sessions of a core that are members of at least one of some rooms, and of none of the excepted rooms.
pub struct Selection {
    rooms: Arc<[Room]>,
    except_rooms: Arc<[Room]>,
    /// The room that is being visited.
    room: usize,
    /// Number of the room's members that are still to be visited; `None` before the first one.
    left: Option<usize>,
    seen: Seen,
}

impl Selection {
    /// Starts a selection: the members of any of `rooms`, except those of any of `except_rooms` and
    /// `except_sessions` of this core.
    pub fn new(
        rooms: Arc<[Room]>,
        except_rooms: Arc<[Room]>,
        except_sessions: impl IntoIterator<Item = SessionId>,
    ) -> Self {
        let mut seen = Seen::default();
        for session in except_sessions {
            seen.add(session.index);
        }
        Self { rooms, except_rooms, room: 0, left: None, seen }
    }
}

impl<E: Encoder> Hub<E> {
    /// Continues a selection: appends the sessions that it finds to `found`, suspended ones included. Visits
    /// at most `visits_max` members. Returns the number of visited members, or `None` after the last one.
    pub fn select(
        &self,
        selection: &mut Selection,
        visits_max: usize,
        found: &mut Vec<SessionId>,
    ) -> Option<usize> {
        let except = self.room_indexes(&selection.except_rooms);
        let mut visits = 0;
        while let Some(room) = selection.rooms.get(selection.room) {
            // A room may end between two calls, and its index may be reused.
            let members = self.room_index(room).and_then(|index| self.topics.at(index));
            let members = members.map_or(&[][..], |state| &state.members);
            let left = selection.left.unwrap_or(members.len()).min(members.len());
            let end = left.saturating_sub(visits_max - visits);
            for member in members[end..left].iter().rev() {
                let id = self.sessions.id_of(*member);
                let is_open =
                    self.sessions.alive(id).is_some_and(|session| session.state != SessionState::Terminating);
                if is_open && selection.seen.add(member.session) && !self.is_in_any(id, &except) {
                    found.push(id);
                }
            }
            visits += left - end;
            if end > 0 {
                selection.left = Some(end);
                return Some(visits);
            }
            selection.room += 1;
            selection.left = None;
        }
        None
    }

    /// Removes from `sessions` the members of any of `rooms`.
    pub fn leave_out_members(&self, sessions: &mut Vec<SessionId>, rooms: &[Room]) {
        let topics = self.room_indexes(rooms);
        sessions.retain(|session| !self.is_in_any(*session, &topics));
    }

    /// Returns the indexes of these rooms, sorted.
    fn room_indexes(&self, rooms: &[Room]) -> Vec<u32> {
        let mut indexes: Vec<u32> = rooms.iter().filter_map(|room| self.room_index(room)).collect();
        indexes.sort_unstable();
        indexes
    }

    /// Returns `true` if a session has joined a room. The home core may not have confirmed it yet.
    pub fn has_joined(&self, session: SessionId, room: &Room) -> bool {
        self.room_index(room).is_some_and(|index| self.subscription_to(session, index).is_some())
    }

    /// Returns `true` if a session is subscribed to a topic. The home core may not have confirmed it yet.
    pub fn is_subscribed(&self, session: SessionId, topic: &Topic) -> bool {
        self.topics.find(topic).is_some_and(|index| self.subscription_to(session, index).is_some())
    }

    /// Returns the number of this core's sessions that are members of a room, suspended ones included.
    pub fn member_count(&self, room: &Room) -> usize {
        let index = self.room_index(room);
        index.and_then(|index| self.topics.at(index)).map_or(0, |state| state.members.len())
    }

    /// Returns the number of this core's sessions that are subscribed to a feed, suspended ones included.
    pub fn subscriber_count(&self, feed: &Topic) -> usize {
        self.topics.find(feed).and_then(|index| self.topics.at(index)).map_or(0, |state| state.members.len())
    }

    /// Iterates over the rooms of which a session is a member.
    pub fn rooms_of(&self, session: SessionId) -> impl Iterator<Item = &Room> {
        let subscriptions = self.sessions.alive(session).map_or(&[][..], |session| &session.subscriptions);
        let topics = subscriptions.iter().filter(|subscription| subscription.topic != NO_TOPIC);
        topics.filter_map(|subscription| match &self.topics.at(subscription.topic)?.topic {
            Topic::Room(room) => Some(room),
            Topic::Feed(_) | Topic::Presence(_) => None,
        })
    }

    /// Continues a walk over the rooms of this core: calls `each` with every room that has members here, and
    /// their number. Visits at most `visits_max` topics from `next` on. Returns the topic to continue with,
    /// or `None` after the last one. A room that is created during a walk may be missed.
    pub fn walk_rooms(
        &self,
        next: usize,
        visits_max: usize,
        mut each: impl FnMut(&Room, usize),
    ) -> Option<usize> {
        let end = self.topics.end().min(next.saturating_add(visits_max));
        for state in (next..end).filter_map(|index| self.topics.at(index as u32)) {
            if let Topic::Room(room) = &state.topic
                && !state.members.is_empty()
            {
                each(room, state.members.len());
            }
        }
        (end < self.topics.end()).then_some(end)
    }

    /// Returns the number of places in the table of sessions, empty ones included.
    pub fn session_places(&self) -> usize {
        self.sessions.slots.len()
    }

    /// Returns the session at a place of the table, suspended or not, and the bytes in its send buffer. `None` if the
    /// place is empty.
    pub fn session_at(&self, place: usize) -> Option<(SessionId, usize)> {
        let session = self.sessions.slots.get(place)?;
        let id = session.id(place as u32);
        session.is(id).then_some((id, session.queue_bytes as usize))
    }

    pub(crate) fn room_index(&self, room: &Room) -> Option<u32> {
        self.topics.find(&Topic::Room(room.clone()))
    }

    /// Returns `true` if a session is in one of these `topics`, which must be sorted.
    fn is_in_any(&self, session: SessionId, topics: &[u32]) -> bool {
        let subscriptions = self.sessions.alive(session).map_or(&[][..], |session| &session.subscriptions);
        !topics.is_empty() && subscriptions.iter().any(|one| topics.binary_search(&one.topic).is_ok())
    }
}
