//! Rooms with history in a cluster: an engine outside the process orders their messages for all nodes.
//!
//! ```text
//!              the first one comes                   handle_history
//!   no subscribers ─────────────────────────► unknown ─────────────────► known ◄─┐ handle_positioned,
//!         ▲                                      │                         │ └───┘ handle_history
//!         └──────────────────────────────────────┴─────────────────────────┘
//!              poll_subscribed: the last one has left
//! ```
//!
//! While the history of a room is unknown, messages with a position aren't delivered. Sessions that name no
//! position join once the history is known ([`crate::preparation`]). A session that joins earlier doesn't
//! receive the messages of the history.
//!
//! A session that names its position waits in [`Awaiting`](crate::awaiting::Awaiting), on its own core, for
//! the messages after it. A session also waits if its position is newer than this node's or of another epoch:
//! either its previous node has received more, or its epoch is over. Only the engine can tell which
//! ([`Hub::poll_unconfirmed`]). The same applies to a session that names a version of a feed that hasn't
//! reached this node yet, or a version of another epoch.
//!
//! **Invariant.** Within an epoch, a core delivers the messages of a room in order and each once. Before it
//! delivers a message after a skipped one, each member gets a [`Notice::Gap`](crate::Notice::Gap).

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

/// A message in the engine's history of a room.
#[derive(Clone, Debug)]
pub struct HistoryMessage {
    /// The message's offset.
    pub offset: u64,
    /// The event's name, if it has one.
    pub event: Option<Arc<str>>,
    /// The message's data.
    pub data: Data,
}

impl<E: Encoder> Hub<E> {
    /// Handles a message that the engine has published in a room with history. Call it on the room's home
    /// core only. Offsets may leave out numbers, but no message: if a message may be missing, call
    /// [`Hub::handle_history`] instead.
    ///
    /// A message that isn't newer than the newest one of the same epoch is ignored. So is every message while
    /// the room's history is unknown. A message of another epoch starts that epoch: members get a
    /// [`Notice::Gap`](crate::Notice::Gap). Returns `true` if the message was delivered.
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

    /// Handles the engine's history of a room: all `messages` after `after`, oldest first. Call it on the
    /// room's home core only. If the room never had a message, `after` is offset 0 of [`Epoch::NONE`]; the
    /// first epoch then starts without a gap.
    ///
    /// - If the history was unknown, it is known from here on. Sessions that named their position receive the
    ///   messages after it, or a [`Notice::Gap`](crate::Notice::Gap).
    /// - If `after` has the same epoch as the newest message and isn't beyond it, members receive the newer
    ///   messages.
    /// - Otherwise messages are lost: members get a [`Notice::Gap`](crate::Notice::Gap), then `messages`,and
    ///   the history starts at `after`.
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

    /// Delivers a room's next message and adds it to the history.
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
        // The id is the same on each node, so that a session that moves to another node receives the message
        // once.
        let publication = self.make(body, false, id_at(room, position));
        if let Some(state) = self.topics.at_mut(index) {
            state.set_newest(position);
        }
        self.topics.remember(now, index, &publication);
        publication
    }

    /// Records that messages from `newest` up to `after` are lost.
    fn skip_to(&mut self, index: u32, room: &Room, newest: Position, after: Position) {
        self.topics.restart(index, after);
        if newest.epoch == Epoch::NONE {
            return;
        }
        self.relay_all(index, || Dispatch::Gap(room.clone()));
        self.handle_gap(room);
    }

    /// Notifies this core's members of a room that they missed messages.
    pub(crate) fn handle_gap(&mut self, room: &Room) {
        let Some(index) = self.room_index(room) else { return };
        let members = self.topics.at(index).map_or(Members::new(), |state| state.members.clone());
        for member in members {
            self.suspensions.note_gap(self.sessions.id_of(member));
            // Waiting members learn of the gap when their wait ends.
            if !self.awaiting.contains(index, member) {
                self.push_gap(member, index);
            }
        }
    }

    /// Returns the next topic for which only the engine can tell whether this node is up to date: a room
    /// whose waiting members named a position newer than the history here or of another epoch, or a feed
    /// whose members named a version of another epoch. Read the engine's state, then call
    /// [`Hub::handle_confirmed`] on the room's home core. For a feed, call [`Hub::handle_asked`] at once,
    /// then [`Hub::handle_feed_confirmed`] on its home core.
    pub fn poll_unconfirmed(&mut self) -> Option<Topic> {
        while let Some(index) = self.to_confirm.pop_first() {
            let topic = self.topics.at(index).map(|state| &state.topic);
            if let Some(topic @ (Topic::Room(_) | Topic::Feed(_))) = topic {
                return Some(topic.clone());
            }
        }
        None
    }

    /// Records that the engine is being asked about a feed that [`Hub::poll_unconfirmed`] returned. Reads of
    /// the engine that begin from now on have numbers above `asked`.
    pub fn handle_asked(&mut self, key: &Key, asked: u64) {
        if let Some(index) = self.topics.find(&Topic::Feed(key.clone())) {
            self.awaiting.ask(index, asked);
        }
    }

    /// Handles the engine's answer: a feed here is as new as it was in the engine at the `read`th read. Call
    /// it on the feed's home core only. Members that were recorded before this read are sent the newest
    /// version, whatever its epoch. A member with a newer version of the same epoch is sent nothing: the
    /// engine has lost versions, so the member waits for the next one.
    pub fn handle_feed_confirmed(&mut self, key: &Key, read: u64) {
        if let Some(index) = self.topics.find(&Topic::Feed(key.clone())) {
            self.relay_all(index, || Dispatch::Confirmed(key.clone(), read));
            self.release_confirmed(key, read);
        }
    }

    /// Sends the newest version to members of this core for which the engine was asked before a read.
    pub(crate) fn release_confirmed(&mut self, key: &Key, read: u64) {
        let Some(index) = self.topics.find(&Topic::Feed(key.clone())) else { return };
        for (member, since) in self.awaiting.take_answered(index, read) {
            self.deliver_feed(member, index, Some(since), true);
        }
    }

    /// Handles the engine's answer for a room: the history here is as new as the engine's was after
    /// [`Hub::poll_unconfirmed`] reported the room. Call it on the room's home core only. Waiting members are
    /// sent the messages after their position, or a [`Notice::Gap`](crate::Notice::Gap).
    pub fn handle_confirmed(&mut self, room: &Room) {
        let Some(index) = self.room_index(room) else { return };
        if self.topics.at(index).is_some_and(|state| state.newest().is_some()) {
            self.share_history(index, room, true);
        }
    }

    /// Passes the history of a room with its home here to the members that wait for it.
    fn share_history(&mut self, index: u32, room: &Room, is_confirmed: bool) {
        let Some(mut history) = self.topics.at(index).and_then(|state| state.history()) else { return };
        history.is_confirmed = is_confirmed;
        let history = Arc::new(history);
        self.relay_all(index, || Dispatch::History(room.clone(), history.clone()));
        self.handle_awaited(room, &history);
    }

    /// Handles the history for which sessions of this core wait.
    pub(crate) fn handle_awaited(&mut self, room: &Room, history: &HistoryPart<E::Frame>) {
        let Some(index) = self.room_index(room) else { return };
        for (member, since) in self.awaiting.take_all(index) {
            let replay = match history.since(since) {
                // The member may have joined after the engine was asked.
                Replay::Unplaced if !history.is_confirmed => {
                    self.to_confirm.insert(index);
                    Replay::Unknown
                }
                replay => replay,
            };
            self.deliver_history(member, index, Some(since), replay);
        }
    }

    /// Sends a message to each other core that follows a topic.
    fn relay_all(&mut self, index: u32, dispatch: impl Fn() -> Dispatch<E::Frame>) {
        let interested = self.topics.at(index).map_or(CoreSet::default(), |state| state.interested.clone());
        interested.iter().for_each(|core| self.outgoing.push(core, dispatch()));
    }
}
