//! Appended messages, and the state of members that receive them.

use super::{ROOMS, START};
use crate::rooms::Content;
use bytes::Bytes;
use std::collections::HashSet;
use std::time::Duration;
use stentor_hub::{Data, Epoch, HistoryLimits, HistoryMessage, Position, Room};
use stentor_ports::RoomUpdate;

pub(super) const KEEP: usize = 6;

pub(super) fn limits() -> HistoryLimits {
    HistoryLimits { publications_max: KEEP, bytes_max: 1 << 20, age_max: Duration::from_secs(300) }
}

pub(super) fn room(index: usize) -> Room {
    Room::plain(ROOMS[index]).expect("a room")
}

pub(super) fn index_of(room: &Room) -> usize {
    ROOMS.iter().position(|name| *name == room.name()).expect("a room")
}

/// Decodes a node's message. Returns `None` for other bytes.
pub(super) fn decode(_: &Room, payload: &Bytes) -> Option<Content> {
    payload.starts_with(b"m").then(|| content(payload.clone()))
}

/// A text for all members of a room.
pub(super) fn content(text: Bytes) -> Content {
    Content { event: None, data: Data::Text(text), except_rooms: Vec::new(), except_sessions: Vec::new() }
}

fn covers(newest: Position, other: Position) -> bool {
    newest.epoch == other.epoch && newest.offset >= other.offset
}

/// All messages ever appended to a room, in order.
#[derive(Default)]
pub(super) struct Truth(pub(super) Vec<(Position, Bytes)>);

impl Truth {
    pub(super) fn index_of(&self, position: Position) -> Option<usize> {
        self.0.iter().position(|(at, _)| *at == position)
    }

    /// Index of the message after a position. `None` if there is no such position.
    fn index_after(&self, after: Position) -> Option<usize> {
        match after.offset {
            0 => self.index_of(Position { offset: 1, ..after }),
            _ => self.index_of(after).map(|index| index + 1),
        }
    }
}

/// The messages of a room that a core and its members have: the rules are those of `Hub::handle_history` and `Hub::handle_positioned`.
#[derive(Debug, Default)]
pub(super) struct Member {
    pub(super) newest: Option<Position>,
    /// Index of the message that must come next.
    pub(super) expected: Option<usize>,
    pub(super) gaps: usize,
    pub(super) received: usize,
}

impl Member {
    pub(super) fn update(&mut self, update: RoomUpdate, truth: &Truth, empty_at: usize, kept: &HashSet<u64>) {
        match update {
            RoomUpdate::Message { position, data, .. } => {
                let newest = self.newest.expect("the history comes first");
                let is_first = newest == START && position.offset == 1;
                let is_next = newest.epoch == position.epoch && position.offset == newest.offset + 1;
                assert!(is_first || is_next, "{position:?} after {newest:?}");
                self.receive(position, &data, truth);
            }
            RoomUpdate::History { after, messages } => {
                // The engine's epochs are greater than those of detours.
                let is_empty = after == START || (after.offset == 0 && after.epoch.0 > 2);
                let expected = truth.index_after(after).or(is_empty.then_some(empty_at));
                match self.newest {
                    Some(newest) if covers(newest, after) => {}
                    Some(newest) if newest.epoch == Epoch::NONE => {
                        // This update announces no gap, so it must continue at the expected message. Only a detour
                        // leads to a position that never existed.
                        assert!(
                            expected.is_none() || expected == self.expected,
                            "silence: {newest:?} {after:?}"
                        );
                        (self.newest, self.expected) = (Some(after), expected);
                    }
                    Some(newest) => {
                        if newest.epoch == after.epoch {
                            let mut missed = newest.offset + 1..=after.offset;
                            assert!(missed.any(|offset| !kept.contains(&offset)), "{newest:?} {after:?}");
                        }
                        self.gaps += 1;
                        (self.newest, self.expected) = (Some(after), expected);
                    }
                    None => (self.newest, self.expected) = (Some(after), expected),
                }
                for HistoryMessage { offset, data, .. } in messages {
                    let position = Position { offset, ..after };
                    assert!(!self.newest.is_some_and(|newest| covers(newest, position)), "twice");
                    self.receive(position, &data, truth);
                }
            }
            RoomUpdate::Confirmed => {}
        }
    }

    fn receive(&mut self, position: Position, data: &Data, truth: &Truth) {
        let index = truth.index_of(position);
        assert_eq!(index, self.expected, "{position:?} after {:?}", self.newest);
        let index = index.expect("it was appended");
        assert_eq!(*data, Data::Text(truth.0[index].1.clone()));
        (self.newest, self.expected) = (Some(position), Some(index + 1));
        self.received += 1;
    }
}
