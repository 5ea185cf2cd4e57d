//! Vacant rooms: rooms with history that clients of this node have published to, and that have no subscribers on this node.
//!
//! A rule may allow clients to publish to rooms of any name, and the engine stores each such room until its messages have reached
//! their age. So the number of vacant rooms that a node causes in the engine is bounded. A client address may add a room while it
//! has fewer rooms than are still free. Each address counts at most half of the maximum, so no address can prevent others from
//! publishing.
//!
//! A room with subscribers on this node doesn't count before the last one has left. The memory of sessions bounds such rooms.

use super::{NO_HISTORY, RoomState, Rooms};
use crate::engine::HEAD_TTL;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::{Room, ShrinkingMap, history_limits};
use stentor_ports::{Charge, Class, Denial, Ledger};

/// Maximum age of messages. A greater one counts as this one.
const TTL_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Memory for a room besides its name: its places in both tables, half filled.
const ROOM_BYTES: usize = 2 * size_of::<(Instant, Room)>() + 2 * size_of::<(Room, Trace)>();

/// The messages that clients of this node have published to a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trace {
    /// The time at which the engine removes the messages.
    until: Instant,
    /// The address of the client that published the first one.
    source: u64,
}

/// The vacant rooms of a node.
pub(crate) struct VacantRooms {
    max: usize,
    /// Time for which a room stays in the engine after its messages have reached their age.
    grace: Duration,
    rooms: ShrinkingMap<Room, Trace>,
    due: BTreeSet<(Instant, Room)>,
    /// Number of rooms per client address.
    sources: ShrinkingMap<u64, usize>,
    /// Number of rooms of all addresses, where each address counts at most `max / 2` rooms.
    counted: usize,
    refused: u64,
    charge: Charge,
}

impl VacantRooms {
    /// An empty set of at most `max` rooms. The engine keeps each for `grace` after its messages have reached their age.
    pub(crate) fn new(max: usize, grace: Duration, ledger: Arc<Ledger>) -> Self {
        Self {
            max,
            grace: grace.max(HEAD_TTL),
            rooms: ShrinkingMap::default(),
            due: BTreeSet::new(),
            sources: ShrinkingMap::default(),
            counted: 0,
            refused: 0,
            charge: Charge::new(ledger, Class::Cluster),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rooms.len()
    }

    /// Number of messages that were refused because of the maximum.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Time at which the engine forgets the next room.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Forgets the rooms that the engine has forgotten by now.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((at, room)) = self.due.first()
            && *at <= now
        {
            let room = room.clone();
            self.remove(&room);
        }
    }

    /// Returns `true` if a client of this address may publish to a further room.
    fn has_room(&self, source: u64) -> bool {
        let own = self.sources.get(&source).copied().unwrap_or(0);
        own < self.max.saturating_sub(self.counted)
    }

    /// Adds a room that has become vacant, or prolongs one to which a message was published.
    pub(super) fn insert(&mut self, room: &Room, trace: Trace) {
        self.remove(room);
        self.rooms.insert(room.clone(), trace);
        self.due.insert((trace.until, room.clone()));
        self.charge.add(ROOM_BYTES + room.name().len());
        let own = self.sources.entry(trace.source).or_default();
        *own += 1;
        self.counted += usize::from(*own <= self.max / 2);
    }

    /// Removes a room that has subscribers, or that the engine has forgotten.
    pub(super) fn remove(&mut self, room: &Room) -> Option<Trace> {
        let trace = self.rooms.remove(room)?;
        self.due.remove(&(trace.until, room.clone()));
        self.charge.subtract(ROOM_BYTES + room.name().len());
        if let Some(own) = self.sources.get_mut(&trace.source) {
            self.counted -= usize::from(*own <= self.max / 2);
            *own -= 1;
            if *own == 0 {
                self.sources.remove(&trace.source);
            }
        }
        Some(trace)
    }
}

impl<P> Rooms<P> {
    /// Admits a message of a client at this address to a room.
    ///
    /// # Errors
    /// The maximum number of vacant rooms of this node, or of this address, is reached.
    pub(super) fn admit(&mut self, now: Instant, room: &Room, source: u64) -> Result<(), Denial> {
        self.vacant.expire(now);
        let known = match self.rooms.get(room) {
            Some(state) => state.trace.filter(|trace| trace.until > now),
            None => self.vacant.rooms.get(room).copied(),
        };
        if known.is_none() && !self.vacant.has_room(source) {
            self.vacant.refused += 1;
            let message = "clients have published to as many rooms without subscribers on this node as they may \
                           (cluster.vacant_rooms_max)";
            return Err(Denial { retry: true, ..Denial::new("too_many_topics", message) });
        }
        let age = history_limits(&self.history, room).unwrap_or(NO_HISTORY).age_max;
        let until = now + age.min(TTL_MAX) + self.vacant.grace;
        let trace = Trace { until, source: known.map_or(source, |known| known.source) };
        match self.rooms.get_mut(room) {
            Some(state) => state.trace = Some(trace),
            None => self.vacant.insert(room, trace),
        }
        Ok(())
    }

    /// Removes a room's state, because the room has lost its subscribers or its core has forgotten it.
    pub(super) fn vacate(&mut self, room: &Room) -> Option<RoomState> {
        let state = self.rooms.remove(room)?;
        if let Some(trace) = state.trace {
            self.vacant.insert(room, trace);
        }
        Some(state)
    }
}
