//! Reads of the histories of rooms, a few at the same time.

use super::room::{Reading, RoomState};
use super::{Asked, Content, RETRY_DELAY, Rooms};
use crate::engine::{EngineError, History, Reply, Request};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::mem;
use std::time::Instant;
use stentor_hub::{Epoch, Position, Room};

/// Maximum number of histories that are read at the same time.
pub(super) const READS_MAX: usize = 16;
/// Maximum number of messages per request.
const READ_MESSAGES_MAX: usize = 1_000;

#[derive(Default)]
pub(super) struct Reads {
    /// Rooms whose history must be read, in this order: see [`RoomState::due`].
    pub(super) due: BTreeMap<(bool, u64), Room>,
    /// Number of reads without an answer.
    open: usize,
    /// The time until which reads wait, because one has failed.
    pub(super) retry_at: Option<Instant>,
    /// `true` if the engine has refused to end an epoch, and has ended none since.
    is_end_refused: bool,
}

impl Reads {
    /// Takes the next room whose history can be read now.
    fn pop(&mut self) -> Option<Room> {
        if self.retry_at.is_some() || self.open >= READS_MAX {
            return None;
        }
        self.due.pop_first().map(|(_, room)| room)
    }

    /// Delays further reads, because one has failed.
    fn delay(&mut self, now: Instant) {
        self.retry_at.get_or_insert(now + RETRY_DELAY);
    }
}

impl<P> Rooms<P> {
    /// Schedules a read of a room's history.
    pub(super) fn read(&mut self, room: &Room) {
        let number = self.draw();
        if let Some(state) = self.rooms.get_mut(room) {
            state.set_due(number);
            self.reads.due.extend(state.due().map(|place| (place, room.clone())));
        }
        self.start_reads();
    }

    pub(super) fn start_reads(&mut self) {
        while !self.is_full()
            && let Some(room) = self.reads.pop()
        {
            let number = self.draw();
            let Some(state) = self.rooms.get_mut(&room) else { continue };
            let waited = state.waiting_bytes();
            let (since, incarnation) = (state.ask(number), state.incarnation);
            self.waiting_bytes = self.waiting_bytes - waited + state.waiting_bytes();
            let messages_max = state.limits.publications_max.min(READ_MESSAGES_MAX);
            self.reads.open += 1;
            let asked = Asked::Read(room.clone(), incarnation);
            let age_max = state.limits.age_max;
            self.request(number, asked, Request::History { room, since, messages_max, age_max });
        }
    }

    pub(super) fn handle_read(
        &mut self,
        now: Instant,
        number: u64,
        room: &Room,
        incarnation: u64,
        reply: Result<Reply, EngineError>,
        decode: impl Fn(&Room, &Bytes) -> Option<Content>,
    ) {
        self.reads.open -= 1;
        let is_expected = |state: &&RoomState| {
            state.incarnation == incarnation && state.reading() == Reading::Asked(number)
        };
        let Some(newest) = self.rooms.get(room).filter(is_expected).map(RoomState::newest) else { return };
        match reply {
            Ok(Reply::History(History { head: Some(Position { epoch, .. }), .. }))
                if self.replaced.contains(epoch) =>
            {
                self.end_epoch(room, epoch);
            }
            Ok(Reply::History(mut history)) => {
                let epoch = history.head.map(|head| head.epoch);
                let messages = mem::take(&mut history.messages).into_iter();
                let messages = messages.filter(|(position, _)| Some(position.epoch) == epoch);
                let messages = messages.map(|(position, payload)| (position, decode(room, &payload)));
                let messages = messages.collect();
                let resynced =
                    self.change(room, |state, news| state.handle_history(&history, messages, news));
                let now_at = self.rooms.get(room).and_then(RoomState::newest);
                if newest.is_some() && now_at != newest && !resynced {
                    self.recovered += 1;
                }
            }
            Err(EngineError::Refused(reason)) => {
                tracing::warn!(
                    room = room.name(),
                    reason = &*reason,
                    "the engine can't read the history of a room"
                );
                self.change(room, RoomState::handle_refusal);
            }
            Ok(_) | Err(_) => {
                self.reads.delay(now);
                self.read(room);
            }
        }
    }

    /// Ends an epoch to which the engine has returned and whose messages members have received. The engine must begin another
    /// one.
    fn end_epoch(&mut self, room: &Room, epoch: Epoch) {
        let number = self.draw();
        let Some(state) = self.rooms.get_mut(room) else { return };
        state.wait_for_end(number);
        self.reads.open += 1;
        let asked = Asked::End(room.clone(), state.incarnation, epoch);
        self.request(number, asked, Request::EndEpoch { room: room.clone(), epoch });
    }

    pub(super) fn handle_end(
        &mut self,
        now: Instant,
        number: u64,
        room: &Room,
        incarnation: u64,
        epoch: Epoch,
        reply: Result<Reply, EngineError>,
    ) {
        self.reads.open -= 1;
        match reply {
            Ok(_) => self.reads.is_end_refused = false,
            // The engine never returns to an earlier epoch, so this is another one.
            Err(EngineError::Unsupported) => self.replaced.remove(epoch),
            // Redis without memory, for example, refuses to end the epoch for now.
            Err(error) => {
                if matches!(error, EngineError::Refused(_))
                    && !mem::replace(&mut self.reads.is_end_refused, true)
                {
                    tracing::warn!(room = room.name(), %error, "rooms with history wait: the engine can't begin another epoch");
                }
                self.reads.delay(now);
            }
        }
        let is_expected =
            |state: &RoomState| state.incarnation == incarnation && state.reading() == Reading::Asked(number);
        if self.rooms.get(room).is_some_and(is_expected) {
            self.read(room);
        }
    }
}
