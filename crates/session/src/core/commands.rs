//! Handles messages of other nodes, and updates of feeds and rooms.

use super::Protocols;
use crate::app::ENVELOPE_BYTES;
use crate::ports::{Broadcast, DocumentChange, FeedUpdate, PublicId, RoomUpdate};
use stentor_hub::{Emit, FeedState, Key, Room};

impl Protocols {
    /// Delivers a message of another node.
    pub fn receive(&mut self, message: Broadcast) {
        let Broadcast { id, rooms, except_rooms, except_sessions, event, data, volatile } = message;
        let how = if volatile { Emit::volatile() } else { Emit::default() };
        let how = self.leave_out(how.identified(id), except_rooms, except_sessions);
        self.ex.budget.count_published(data.len() + ENVELOPE_BYTES);
        self.ex.hub.handle_emit(self.ex.context.now, &rooms, event, data, how);
    }

    /// Excludes members of rooms, and sessions of this node, from a message.
    fn leave_out(&self, how: Emit, rooms: Vec<Room>, sessions: Vec<PublicId>) -> Emit {
        let how = rooms.into_iter().fold(how, Emit::except_room);
        let sessions = sessions.into_iter().filter_map(|id| self.ex.shared.session_of(id));
        sessions.fold(how, |how, (core, session)| how.except_session(core, session))
    }

    /// Handles an update of a room from the engine.
    pub fn update_room(&mut self, room: &Room, update: RoomUpdate) {
        self.ex.budget.count_published(update.bytes() + ENVELOPE_BYTES);
        let now = self.ex.context.now;
        match update {
            RoomUpdate::Message { position, event, data, except_rooms, except_sessions } => {
                let how = self.leave_out(Emit::default(), except_rooms, except_sessions);
                self.ex.hub.handle_positioned(now, room, position, event, data, how);
            }
            RoomUpdate::History { after, messages } => {
                self.ex.hub.handle_history(now, room, after, messages);
            }
            RoomUpdate::Confirmed => self.ex.hub.handle_confirmed(room),
        }
    }

    /// Handles an update of a feed.
    pub fn update_feed(&mut self, key: &Key, update: FeedUpdate) {
        match update {
            FeedUpdate::Changed(DocumentChange { document, patch }) => {
                // Counts the whole document without a patch. Sessions with the policy `queue` receive more than the newest version.
                let published = patch.as_ref().map_or(&document.body, |patch| &patch.operations);
                self.ex.budget.count_published(published.len() + ENVELOPE_BYTES);
                self.ex.hub.handle_document(key, FeedState::Live, document, patch);
            }
            FeedUpdate::At { position, document, patches } => {
                self.ex.budget.count_published(document.body.len() + ENVELOPE_BYTES);
                self.ex.hub.handle_document_at(key, position, FeedState::Live, document, &patches);
            }
            FeedUpdate::State { state, reason } => self.ex.hub.handle_state(key, state, reason),
            FeedUpdate::Forget => self.ex.hub.handle_forget(key),
            FeedUpdate::Refuse(requester) => self.ex.hub.handle_refusal(requester.session, key),
            FeedUpdate::Confirmed(read) => self.ex.hub.handle_feed_confirmed(key, read),
        }
    }
}
