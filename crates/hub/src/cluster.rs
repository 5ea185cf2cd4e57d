//! Rooms with history on a node that is one of several: an engine outside of the process orders them for all nodes.
//!
//! ```text
//!              the first one comes                   handle_history
//!   no subscribers ─────────────────────────► unknown ─────────────────► known ◄─┐ handle_positioned,
//!         ▲                                      │                         │ └───┘ handle_history
//!         └──────────────────────────────────────┴─────────────────────────┘
//!              poll_subscribed: the last one has left
//! ```
//!
//! While the history of a room is unknown, nothing with a position is delivered. Sessions that name no position join when it is known
//! ([`crate::preparation`]). One that joins earlier receives nothing that the history has. Sessions that
//! named their position wait in [`Awaiting`](crate::awaiting::Awaiting), on their own core, for what followed it. So do those whose position is
//! newer than what this node knows, or of another epoch: they come from a node that knows more, or are late, which only the
//! engine can tell ([`Hub::poll_unconfirmed`]). And those that named a version of a feed that hasn't come from another node yet,
//! or one of another epoch.
//!
//! **Invariant.** Within an epoch, a core delivers the messages of a room in order, each once, and never one after
//! another that it has skipped without a [`Notice::Gap`](crate::Notice::Gap) to each member.

use crate::dispatch::{CoreSet, Dispatch, Emit};
use crate::encoder::Encoder;
use crate::history::{HistoryPart, Replay};
use crate::ids::id_at;
use crate::key::Key;
use crate::publication::{Body, Data, Epoch, Position, Publication};
use crate::shard::Hub;
use crate::topic::{Room, Topic};
use crate::topics::Members;
use std::sync::Arc;
use std::time::Instant;

/// A message of a room's history, as the engine keeps it.
#[derive(Clone, Debug)]
pub struct HistoryMessage {
    /// Its offset.
    pub offset: u64,
    /// The event's name, if it has one.
    pub event: Option<Arc<str>>,
    /// The data.
    pub data: Data,
}

impl<E: Encoder> Hub<E> {
    /// The engine has published a message in a room with history. Call it on the room's home core only. Offsets may
    /// leave out numbers, but no message: if one may be missing, call [`Hub::handle_history`] instead.
    ///
    /// A message that isn't newer than the newest one of the same epoch is ignored, and so is every message while the
    /// room's history is unknown. A message of another epoch begins it: members get a
    /// [`Notice::Gap`](crate::Notice::Gap). Returns whether the message was delivered.
    pub fn handle_positioned(
        &mut self,
        now: Instant,
        room: &Room,
        position: Position,
        event: Option<Arc<str>>,
        data: Data,
        options: Emit,
    ) -> bool {
        let Some(index) = self.room_index(room) else { return false };
        let Some(newest) = self.topics.at(index).and_then(|state| state.newest()) else { return false };
        if newest.covers(position) {
            return false;
        }
        if newest.epoch != position.epoch {
            self.skip_to(
                index,
                room,
                newest,
                Position { offset: position.offset.saturating_sub(1), ..position },
            );
        }
        let publication = self.positioned(now, index, room, position, event, data);
        self.broadcast(now, index, &publication, &options);
        true
    }

    /// What the engine keeps of a room with history: all `messages` that followed `after`, oldest first. Call it on
    /// the room's home core only. If the room never had a message, `after` is offset 0 of [`Epoch::NONE`]; the first
    /// epoch then begins without a gap.
    ///
    /// - The history was unknown: it is known from here on. Sessions that named their position are sent what followed
    ///   it, or a [`Notice::Gap`](crate::Notice::Gap).
    /// - `after` isn't beyond the newest message and of the same epoch: members receive the messages that are newer.
    /// - Otherwise messages are lost: members get a [`Notice::Gap`](crate::Notice::Gap), then `messages`, and the
    ///   history begins at `after`.
    ///
    /// No effect if the room has no subscribers on this node.
    pub fn handle_history(
        &mut self,
        now: Instant,
        room: &Room,
        after: Position,
        messages: Vec<HistoryMessage>,
    ) {
        let Some(index) = self.room_index(room) else { return };
        let Some(state) = self.topics.at(index).filter(|state| state.home() == Some(self.core)) else {
            return;
        };
        match state.newest() {
            None => {
                self.topics.restart(index, after);
                for HistoryMessage { offset, event, data } in messages {
                    let position = Position { offset, ..after };
                    self.positioned(now, index, room, position, event, data);
                }
                self.share_history(index, room, false);
                self.report_prepared(index, room);
                return;
            }
            Some(newest) if newest.covers(after) => {}
            Some(newest) => self.skip_to(index, room, newest, after),
        }
        for HistoryMessage { offset, event, data } in messages {
            let position = Position { offset, ..after };
            self.handle_positioned(now, room, position, event, data, Emit::default());
        }
    }

    /// A room's next message, kept in its history.
    fn positioned(
        &mut self,
        now: Instant,
        index: u32,
        room: &Room,
        position: Position,
        event: Option<Arc<str>>,
        data: Data,
    ) -> Arc<Publication<E::Frame>> {
        let body = Body::Message { room: room.clone(), event, data, position: Some(position) };
        // On each node the same, so that a session that moves to another one receives it once.
        let publication = self.make(body, false, id_at(room, position));
        if let Some(state) = self.topics.at_mut(index) {
            state.set_newest(position);
        }
        self.topics.remember(now, index, &publication);
        publication
    }

    /// Messages from `newest` up to `after` are lost.
    fn skip_to(&mut self, index: u32, room: &Room, newest: Position, after: Position) {
        self.topics.restart(index, after);
        if newest.epoch == Epoch::NONE {
            return;
        }
        self.relay_all(index, || Dispatch::Gap(room.clone()));
        self.handle_gap(room);
    }

    /// Members of a room on this core missed messages.
    pub(crate) fn handle_gap(&mut self, room: &Room) {
        let Some(index) = self.room_index(room) else { return };
        let members = self.topics.at(index).map_or(Members::new(), |state| state.members.clone());
        for member in members {
            if !self.suspended.is_empty()
                && let Some(suspended) = self.suspended.get_mut(&self.sessions.id_of(member))
            {
                suspended.has_gap = true;
            }
            // Those that wait learn it when their wait ends.
            if !self.awaiting.contains(index, member) {
                self.push_gap(member, index);
            }
        }
    }

    /// The next room with members who named a position that is newer than the history here, or of another epoch; or the next
    /// feed with such of another epoch. They wait. Read what the engine has, then call [`Hub::handle_confirmed`] on the room's
    /// home core. For a feed, call [`Hub::handle_asked`] at once, then [`Hub::handle_feed_confirmed`] on its home core.
    pub fn poll_unconfirmed(&mut self) -> Option<Topic> {
        while let Some(index) = self.to_confirm.pop_first() {
            let topic = self.topics.at(index).map(|state| &state.topic);
            if let Some(topic @ (Topic::Room(_) | Topic::Feed(_))) = topic {
                return Some(topic.clone());
            }
        }
        None
    }

    /// [`Hub::poll_unconfirmed`] has reported a feed. Reads of the engine that begin from now on have numbers above `asked`.
    pub fn handle_asked(&mut self, key: &Key, asked: u64) {
        if let Some(index) = self.topics.find(&Topic::Feed(key.clone())) {
            self.awaiting.ask(index, asked);
        }
    }

    /// A feed is as new as the engine's was when it was read for the `read`th time. Call it on the feed's home core only. Members for
    /// which that was asked before are sent the newest version, whichever epoch it is of. One that is older within the epoch of a
    /// member's own isn't sent: the engine has lost versions, and the next one decides.
    pub fn handle_feed_confirmed(&mut self, key: &Key, read: u64) {
        if let Some(index) = self.topics.find(&Topic::Feed(key.clone())) {
            self.relay_all(index, || Dispatch::Confirmed(key.clone(), read));
            self.release_confirmed(key, read);
        }
    }

    /// Members of this core for which the engine was asked before a read receive the newest version.
    pub(crate) fn release_confirmed(&mut self, key: &Key, read: u64) {
        let Some(index) = self.topics.find(&Topic::Feed(key.clone())) else { return };
        for (member, since) in self.awaiting.take_answered(index, read) {
            self.deliver_feed(member, index, Some(since), true);
        }
    }

    /// The history of a room is as new as the engine's was after [`Hub::poll_unconfirmed`] reported the room. Call it on
    /// the room's home core only. Members that wait are sent what followed their position, or a
    /// [`Notice::Gap`](crate::Notice::Gap).
    pub fn handle_confirmed(&mut self, room: &Room) {
        let Some(index) = self.room_index(room) else { return };
        if self.topics.at(index).is_some_and(|state| state.newest().is_some()) {
            self.share_history(index, room, true);
        }
    }

    /// The history of a room with its home here, for those that wait for it.
    fn share_history(&mut self, index: u32, room: &Room, is_confirmed: bool) {
        let Some(mut history) = self.topics.at(index).and_then(|state| state.history()) else { return };
        history.is_confirmed = is_confirmed;
        let history = Arc::new(history);
        self.relay_all(index, || Dispatch::History(room.clone(), history.clone()));
        self.handle_awaited(room, &history);
    }

    /// The history that sessions of this core wait for.
    pub(crate) fn handle_awaited(&mut self, room: &Room, history: &HistoryPart<E::Frame>) {
        let Some(index) = self.room_index(room) else { return };
        for (member, since) in self.awaiting.take_all(index) {
            let replay = match history.since(since) {
                // The member may have come after the engine was asked.
                Replay::Unplaced if !history.is_confirmed => {
                    self.to_confirm.insert(index);
                    Replay::Unknown
                }
                replay => replay,
            };
            self.deliver_history(member, index, Some(since), replay);
        }
    }

    /// To each other core that follows a topic.
    fn relay_all(&mut self, index: u32, dispatch: impl Fn() -> Dispatch<E::Frame>) {
        let interested = self.topics.at(index).map_or(CoreSet::default(), |state| state.interested.clone());
        interested.iter().for_each(|core| self.outgoing.push(core, dispatch()));
    }
}
