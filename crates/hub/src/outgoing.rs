//! Messages from a shard to other shards that haven't been passed on yet.
//!
//! Interest in plain rooms is a *level*, that is, a state and not an event: at most the difference between
//! the last sent and the current state waits for a core, however often members join and leave. Interest is
//! sent before all other messages, so that a core that receives a publication of this core knows its members.
//! The other messages are first in, first out.
//!
//! **Invariants.** A room is in `levels` at most once for each core. A level waits only while it differs from
//! the last sent one. If a core has refused the room, the level waits until it has been sent again, because
//! it is unknown which messages the core refused. `bytes` is the sum of [`Dispatch::weight_bytes`] over
//! `messages`.

use crate::dispatch::{CoreId, Dispatch};
use crate::topic::Room;
use crate::topics::Seeded;
use std::collections::{HashMap, VecDeque};

/// The waiting messages for one core.
pub struct Outgoing<F> {
    levels: VecDeque<Level>,
    /// The position of each room in `levels`, counted from the first one ever added.
    numbers: HashMap<Room, u64, Seeded>,
    first: u64,
    messages: VecDeque<Dispatch<F>>,
    bytes: usize,
    /// Number of messages whose answer is outstanding.
    unanswered: usize,
}

struct Level {
    room: Room,
    has_members: bool,
    /// `true` if the level must be sent even if it equals the last sent one.
    anew: bool,
}

impl<F> Outgoing<F> {
    fn new(seed: [u64; 2]) -> Self {
        Self {
            levels: VecDeque::new(),
            numbers: HashMap::with_hasher(Seeded(seed)),
            first: 0,
            messages: VecDeque::new(),
            bytes: 0,
            unanswered: 0,
        }
    }

    /// Returns the number of waiting messages.
    pub fn len(&self) -> usize {
        self.levels.len() + self.messages.len()
    }

    /// Returns `true` if no message waits.
    pub fn is_empty(&self) -> bool {
        self.levels.is_empty() && self.messages.is_empty()
    }

    /// Returns the approximate size of the messages: the sum of [`Dispatch::weight_bytes`].
    pub fn weight_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of messages that wait, or were passed on and haven't been answered.
    pub fn pending(&self) -> usize {
        self.len() + self.unanswered
    }

    /// Takes the next message to pass on.
    pub fn pop_front(&mut self) -> Option<Dispatch<F>> {
        if let Some(Level { room, has_members, .. }) = self.levels.pop_front() {
            self.numbers.remove(&room);
            self.first += 1;
            return Some(Dispatch::Interest { room, has_members });
        }
        let dispatch = self.messages.pop_front()?;
        self.bytes -= dispatch.weight_bytes();
        self.unanswered += usize::from(dispatch.is_question());
        Some(dispatch)
    }

    /// Takes back the message of [`Outgoing::pop_front`] that couldn't be passed on. Call it directly after
    /// that function.
    pub fn put_back(&mut self, dispatch: Dispatch<F>) {
        match dispatch {
            Dispatch::Interest { room, has_members } => {
                self.first -= 1;
                self.numbers.insert(room.clone(), self.first);
                // The level may have changed meanwhile. Sending it twice does no harm.
                self.levels.push_front(Level { room, has_members, anew: true });
            }
            dispatch => {
                self.bytes += dispatch.weight_bytes();
                self.unanswered -= usize::from(dispatch.is_question());
                self.messages.push_front(dispatch);
            }
        }
    }

    /// Iterates over the waiting messages except interest.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &Dispatch<F>> {
        self.messages.iter()
    }

    /// Drops all messages, because the core has ended and neither receives nor answers messages.
    pub fn clear(&mut self) {
        self.first += self.levels.len() as u64;
        self.levels.clear();
        self.numbers.clear();
        self.messages.clear();
        (self.bytes, self.unanswered) = (0, 0);
    }

    /// Records that this core has members of a plain room now, or no longer.
    fn set_level(&mut self, room: &Room, has_members: bool) {
        let Some(number) = self.numbers.get(room).copied() else {
            self.numbers.insert(room.clone(), self.first + self.levels.len() as u64);
            self.levels.push_back(Level { room: room.clone(), has_members, anew: false });
            return;
        };
        let at = (number - self.first) as usize;
        if self.levels[at].anew {
            self.levels[at].has_members = has_members;
            return;
        }
        // The level equals the last sent one again.
        self.numbers.remove(room);
        self.levels.swap_remove_back(at);
        if let Some(moved) = self.levels.get(at) {
            self.numbers.insert(moved.room.clone(), number);
        }
    }
}

/// The messages that wait for each core.
pub(crate) struct Outbound<F> {
    to: Vec<Outgoing<F>>,
    /// Number of messages since the start.
    pub(crate) count: u64,
}

impl<F> Outbound<F> {
    pub(crate) fn new(cores: usize, seed: [u64; 2]) -> Self {
        Self { to: (0..cores).map(|_| Outgoing::new(seed)).collect(), count: 0 }
    }

    pub(crate) fn to(&mut self, core: CoreId) -> &mut Outgoing<F> {
        &mut self.to[core]
    }

    pub(crate) fn push(&mut self, core: CoreId, dispatch: Dispatch<F>) {
        self.count += 1;
        let outgoing = &mut self.to[core];
        outgoing.bytes += dispatch.weight_bytes();
        outgoing.messages.push_back(dispatch);
    }

    /// Records that this core has members of a plain room now, or no longer.
    pub(crate) fn set_level(&mut self, core: CoreId, room: &Room, has_members: bool) {
        self.count += 1;
        self.to[core].set_level(room, has_members);
    }

    /// Called when a core has refused interest in a plain room that no longer has members here. The level is
    /// sent again, because it is unknown what the core has recorded.
    pub(crate) fn resend_interest(&mut self, core: CoreId, room: &Room) {
        self.count += 1;
        let outgoing = &mut self.to[core];
        if !outgoing.numbers.contains_key(room) {
            outgoing.set_level(room, false);
        }
        if let Some(number) = outgoing.numbers.get(room) {
            let level = &mut outgoing.levels[(*number - outgoing.first) as usize];
            (level.has_members, level.anew) = (false, true);
        }
    }

    /// Records that a core has answered a message.
    pub(crate) fn answered(&mut self, core: CoreId) {
        let outgoing = &mut self.to[core];
        outgoing.unanswered = outgoing.unanswered.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests;
