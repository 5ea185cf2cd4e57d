//! Preparation of rooms before a session joins, in a cluster.
//!
//! While the home core doesn't know the history of a room, the room has no position there: a message that is
//! published after a session has joined can't be distinguished from an older one in the history. Therefore a
//! core prepares the room first: the core counts as interested, which makes the node read the history, and
//! the room has no member yet. A follower for which the room is prepared follows it: a session that joins is
//! a member at once, and receives every message that the home core sends from then on.
//!
//! ```text
//!  follower:  Prepare(n) ──►             home core, which reads the history if it doesn't know it
//!             ready  ◄── Prepared(n)
//! ```
//!
//! **Invariant.** A follower is ready only while the home core has it in `interested` without interruption
//! since it knew the history. Only the answer to the last request counts, because the follower has left the
//! room between two requests.

use crate::dispatch::{CoreId, Dispatch};
use crate::encoder::Encoder;
use crate::shard::Hub;
use crate::topic::{Room, Topic};
use crate::topics::TopicState;
use std::num::NonZeroU64;

impl<F> TopicState<F> {
    /// Ends the preparation because the follower leaves the topic. Returns `true` if the room was prepared.
    pub(crate) fn end_preparation(&mut self) -> bool {
        let Some(homed) = &mut self.homed else { return false };
        std::mem::take(&mut homed.preparation).asked.is_some()
    }

    /// Records at the home core that a follower has left the topic.
    pub(crate) fn forget_preparing(&mut self, follower: CoreId) {
        if let Some(stream) = self.stream_mut() {
            stream.preparing.retain(|(core, _)| *core != follower);
        }
    }
}

impl<E: Encoder> Hub<E> {
    /// Prepares a room that a session of this core is about to join. Returns `true` if the session can join
    /// now and will receive every message published from then on. This is the case for all rooms whose
    /// positions no other node assigns.
    ///
    /// Otherwise [`Hub::poll_prepared`] reports the room when the session can join. Until
    /// [`Hub::handle_release`], the room is kept as if it had a subscriber.
    pub fn handle_prepare(&mut self, room: &Room) -> bool {
        if !self.prepares_rooms() {
            return true;
        }
        let topic = Topic::Room(room.clone());
        if self.topics.home_of(&topic).is_none() {
            return true;
        }
        // Without a slot for the room, the session can't join.
        let Some(index) = self.topics.find_or_insert(&topic) else { return true };
        let core = self.core;
        let Some(state) = self.topics.at_mut(index) else { return true };
        let is_known = state.newest().is_some();
        let Some(homed) = &mut state.homed else { return true };
        let (home, preparation) = (homed.core, &mut homed.preparation);
        if is_known || preparation.is_ready {
            return true;
        }
        preparation.holds += 1;
        if home == core {
            self.subscribers_changed(index);
        } else if preparation.asked.is_none() {
            self.preparations += 1;
            preparation.asked = NonZeroU64::new(self.preparations);
            let prepare = preparation.asked.map(|number| Dispatch::Prepare(room.clone(), number));
            prepare.into_iter().for_each(|prepare| self.outgoing.push(home, prepare));
        }
        false
    }

    /// Returns `true` if rooms may have to be prepared, because other nodes assign the positions of their messages.
    #[inline]
    pub fn prepares_rooms(&self) -> bool {
        self.topics.options.external_positions
    }

    /// Takes back one call of [`Hub::handle_prepare`] that returned `false`.
    pub fn handle_release(&mut self, room: &Room) {
        let Some(index) = self.room_index(room) else { return };
        let homed = self.topics.at_mut(index).and_then(|state| state.homed.as_mut());
        let Some(homed) = homed.filter(|homed| homed.preparation.holds > 0) else { return };
        homed.preparation.holds -= 1;
        self.release_if_unused(index);
    }

    /// Returns the next room that sessions of this core can join and for which [`Hub::handle_prepare`]
    /// returned `false`.
    pub fn poll_prepared(&mut self) -> Option<Room> {
        self.prepared.pop_front()
    }

    /// Handles a follower's request to prepare a room with its home here.
    pub(crate) fn handle_preparation(&mut self, from: CoreId, room: Room, number: NonZeroU64) {
        let index = self.topics.find_or_insert(&Topic::Room(room.clone()));
        let state = index.and_then(|index| self.topics.at_mut(index));
        let is_followed = state.is_some();
        if let Some(state) = state {
            state.interested.set(from, true);
            if state.newest().is_none()
                && let Some(stream) = state.stream_mut()
            {
                stream.preparing.push((from, number));
                index.into_iter().for_each(|index| self.subscribers_changed(index));
                return;
            }
        }
        // Without a slot for the room, the home core refuses the session when it joins.
        self.outgoing.push(from, Dispatch::Prepared { room, number, is_followed });
    }

    /// Handles the home core's answer to this follower's preparation of a room.
    pub(crate) fn handle_prepared(&mut self, room: &Room, number: NonZeroU64, is_followed: bool) {
        let Some(index) = self.room_index(room) else { return };
        let homed = self.topics.at_mut(index).and_then(|state| state.homed.as_mut());
        let Some(preparation) = homed.map(|homed| &mut homed.preparation) else { return };
        if preparation.asked == Some(number) {
            (preparation.is_ready, preparation.is_followed) = (true, is_followed);
            if preparation.holds > 0 {
                self.prepared.push_back(room.clone());
            }
        }
    }

    /// Answers preparations of a room whose history the home core knows from now on.
    pub(crate) fn report_prepared(&mut self, index: u32, room: &Room) {
        let Some(state) = self.topics.at_mut(index) else { return };
        if state.is_held() {
            self.prepared.push_back(room.clone());
        }
        let preparing = state.stream_mut().map(|stream| std::mem::take(&mut stream.preparing));
        for (core, number) in preparing.into_iter().flatten() {
            self.outgoing.push(core, Dispatch::Prepared { room: room.clone(), number, is_followed: true });
        }
    }
}
