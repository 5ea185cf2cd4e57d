//! A room with history: the position of the node's core, and the messages that must be read.

use super::Content;
use super::vacant::Trace;
use crate::engine::History;
use std::collections::VecDeque;
use stentor_hub::{Epoch, HistoryLimits, HistoryMessage, Position};
use stentor_ports::RoomUpdate;

/// Maximum number of messages that wait for a read of the room's history.
const WAITING_MAX: usize = 256;
/// Maximum size of these messages. A single message may be larger.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Maximum number of additional reads before a room is confirmed, even if further members arrive. Members that arrive during the
/// last read may be notified of a gap that doesn't exist.
const CONFIRM_READS_MAX: u32 = 3;
/// The position of a room that never had a message, according to the engine.
const START: Position = Position { epoch: Epoch::NONE, offset: 0 };

stentor_ports::named! {
    /// The reason for notifying members that they may have missed messages.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub(crate) enum Resync {
        /// The history doesn't reach back to the missed messages.
        Truncated = "truncated",
        /// The engine has begun another epoch.
        Epoch = "epoch",
        /// The engine has lost the room.
        Forgotten = "forgotten",
        /// The engine has returned to an earlier position.
        RolledBack = "rolled_back",
        /// The room had no message, and messages may have been published and expired while the connection was lost.
        Unproven = "unproven",
        /// A message isn't an authentic frame of this version.
        Unreadable = "unreadable",
        /// The engine can't read the history.
        Refused = "refused",
    }
}

/// Updates of a room for its core.
#[derive(Default)]
pub(super) struct News {
    pub(super) updates: Vec<RoomUpdate>,
    pub(super) resyncs: Vec<Resync>,
    /// The replaced epoch.
    pub(super) replaced: Option<Epoch>,
}

/// The state of reading the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    No,
    /// The read is scheduled, in the order of these numbers.
    Due(u64),
    /// The request with this number reads.
    Asked(u64),
}

/// The state of members that wait for the engine's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Confirm {
    No,
    /// The members wait for the next read.
    Requested,
    /// The members wait for a read that has begun since their request.
    Asked,
}

/// The result of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Next {
    /// No work.
    Idle,
    /// The history must be read.
    Read,
}

/// A message, or `None` if it can't be read.
pub(super) type Arrived = (Position, Option<Content>);

/// A room with subscribers on this node.
pub(super) struct RoomState {
    /// Distinguishes periods in which the room has subscribers.
    pub(super) incarnation: u64,
    pub(super) limits: HistoryLimits,
    /// The messages of this node's clients. `None` if there were none.
    pub(super) trace: Option<Trace>,
    reading: Reading,
    confirm: Confirm,
    /// Number of additional reads for members that arrived during one.
    confirm_reads: u32,
    /// The position of the core. `None` while the core waits for the history.
    newest: Option<Position>,
    /// The part of the history that has been read for the core.
    partial: Option<Partial>,
    /// Messages that arrived during the read.
    waiting: VecDeque<Arrived>,
    /// Size of `waiting`.
    waiting_bytes: usize,
    /// `true` if messages that arrived during the read were dropped.
    has_dropped: bool,
    /// `true` if another read must begin, whatever the current one returns.
    needs_read: bool,
    /// Number of the last request whose answer the core has completely: the engine's messages at the time of the request.
    read_at: u64,
    /// `true` if the connection was lost since the room was last known to be complete.
    is_unproven: bool,
    /// Position of a message that is known to be missing.
    seen: Option<Position>,
}

/// A part of a history: messages that follow a position, oldest first.
struct Partial {
    after: Position,
    messages: Vec<HistoryMessage>,
    /// Size of the messages.
    bytes: usize,
}

impl Partial {
    fn new(after: Position) -> Self {
        Self { after, messages: Vec::new(), bytes: 0 }
    }

    /// The position of the last message.
    fn end(&self) -> Position {
        end(self.after, &self.messages)
    }

    fn push(&mut self, message: HistoryMessage) {
        self.bytes += bytes_of(&message);
        self.messages.push(message);
    }

    /// Removes the oldest messages beyond this number.
    fn trim(&mut self, messages_max: usize) {
        let excess = self.messages.len().saturating_sub(messages_max);
        for message in self.messages.drain(..excess) {
            self.bytes -= bytes_of(&message);
            self.after.offset = message.offset;
        }
    }
}

/// Size of a message of a history.
pub(super) fn bytes_of(message: &HistoryMessage) -> usize {
    size_of_val(message) + message.data.len()
}

fn covers(newest: Position, other: Position) -> bool {
    newest.epoch == other.epoch && newest.offset >= other.offset
}

impl RoomState {
    pub(super) fn new(incarnation: u64, limits: HistoryLimits, trace: Option<Trace>) -> Self {
        Self {
            incarnation,
            limits,
            trace,
            reading: Reading::No,
            confirm: Confirm::No,
            confirm_reads: 0,
            newest: None,
            partial: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            has_dropped: false,
            needs_read: false,
            read_at: 0,
            is_unproven: false,
            seen: None,
        }
    }

    /// The newest position of the core, unless it waits for the history.
    pub(super) fn newest(&self) -> Option<Position> {
        self.newest
    }

    /// Size of the messages that wait for a read, and of the part of the history that has been read for the core.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes + self.partial.as_ref().map_or(0, |partial| partial.bytes)
    }

    pub(super) fn reading(&self) -> Reading {
        self.reading
    }

    /// The place of the scheduled read. Histories that have been read in part come first, so that few parts are held.
    pub(super) fn due(&self) -> Option<(bool, u64)> {
        if let Reading::Due(number) = self.reading { Some((self.partial.is_none(), number)) } else { None }
    }

    /// Schedules a read. Messages wait for it.
    pub(super) fn set_due(&mut self, number: u64) {
        self.reading = Reading::Due(number);
    }

    /// Begins a read with the request of this number. Returns the position to read from.
    pub(super) fn ask(&mut self, number: u64) -> Position {
        self.reading = Reading::Asked(number);
        if self.confirm == Confirm::Requested {
            self.confirm = Confirm::Asked;
        }
        // The answer contains the messages that have arrived until now.
        self.waiting.clear();
        (self.waiting_bytes, self.has_dropped, self.needs_read) = (0, false, false);
        let partial = self.partial.as_ref().map(Partial::end);
        self.newest.or(partial).unwrap_or(START)
    }

    /// Records that the request with this number ends an epoch of the room. Messages wait for its answer.
    pub(super) fn wait_for_end(&mut self, number: u64) {
        self.reading = Reading::Asked(number);
    }

    /// Handles a member that waits until the core has the engine's current messages.
    pub(super) fn handle_confirm(&mut self) -> Next {
        self.confirm = Confirm::Requested;
        if self.reading == Reading::No { Next::Read } else { Next::Idle }
    }

    /// Makes sure that the core has the engine's current messages.
    pub(super) fn handle_prove(&mut self) -> Next {
        self.needs_read = true;
        if self.reading == Reading::No { Next::Read } else { Next::Idle }
    }

    /// Returns `true` if the core has the messages that the engine had when a request with a number above `after` was
    /// made.
    pub(super) fn is_read(&self, after: u64) -> bool {
        self.read_at > after
    }

    /// Called when the connection to the engine was lost and is established again.
    pub(super) fn handle_connected(&mut self) -> Next {
        self.is_unproven = true;
        match self.reading {
            Reading::No | Reading::Due(_) => Next::Idle,
            // The answer may lack later messages.
            Reading::Asked(_) => Next::Read,
        }
    }

    /// Handles an arrived message.
    pub(super) fn handle_message(
        &mut self,
        position: Position,
        content: Option<Content>,
        news: &mut News,
    ) -> Next {
        let Some(newest) = self.newest.filter(|_| self.reading == Reading::No) else {
            self.wait(position, content);
            return Next::Idle;
        };
        if covers(newest, position) {
            return Next::Idle;
        }
        // Any client of the engine can write to the channel. A position counts only with an authentic message, and the history
        // determines which message has it.
        let Some(Content { event, data, except_rooms, except_sessions }) = content else { return Next::Read };
        let follows = position.epoch == newest.epoch && position.offset == newest.offset + 1;
        let is_first = newest == START && position.offset == 1 && !self.is_unproven;
        if !follows && !is_first {
            self.seen = Some(position);
            return Next::Read;
        }
        self.is_unproven = false;
        self.newest = Some(position);
        news.updates.push(RoomUpdate::Message { position, event, data, except_rooms, except_sessions });
        Next::Idle
    }

    /// Handles the engine's newest position. `asked_at` is the core's position at the time of the request.
    pub(super) fn handle_head(
        &mut self,
        asked_at: Position,
        head: Option<Position>,
        news: &mut News,
    ) -> Next {
        let Some(newest) = self.newest.filter(|_| self.reading == Reading::No) else { return Next::Idle };
        let is_complete = match head {
            Some(head) => covers(newest, head) && !(covers(asked_at, head) && asked_at != head),
            // Messages since the request are newer than the answer.
            None if asked_at == START && newest != START => return Next::Idle,
            None if newest == START => {
                if self.is_unproven {
                    self.resync(START, Resync::Unproven, news);
                }
                true
            }
            None => false,
        };
        if newest == START && !is_complete {
            // The room's first message didn't arrive, so others may have been published and expired before.
            self.is_unproven = true;
        }
        if is_complete {
            self.is_unproven = false;
            return Next::Idle;
        }
        Next::Read
    }

    /// Handles a part of the history with its decoded messages.
    pub(super) fn handle_history(
        &mut self,
        history: &History,
        messages: Vec<Arrived>,
        news: &mut News,
    ) -> Next {
        let Some(head) = history.head else {
            match self.newest {
                None => self.begin(START, Vec::new(), news),
                Some(START) if !self.is_unproven && self.seen.is_none() => {}
                Some(START) => self.resync(START, Resync::Unproven, news),
                Some(_) => self.resync(START, Resync::Forgotten, news),
            }
            return self.finish(news);
        };
        let is_end = messages.last().is_none_or(|(position, _)| position.offset >= head.offset);
        let start = messages.first().map_or(head, |(first, _)| before(*first));
        match self.newest {
            None => self.collect(start, messages),
            Some(newest) => self.fill(newest, head, start, messages, news),
        }
        if !is_end {
            return Next::Read;
        }
        if let Some(Partial { after, messages, .. }) = self.partial.take() {
            self.begin(after, messages, news);
        }
        self.finish(news)
    }

    /// Called when the engine can't read the history.
    pub(super) fn handle_refusal(&mut self, news: &mut News) -> Next {
        match self.newest {
            None => self.begin(self.seen.unwrap_or(START), Vec::new(), news),
            Some(newest) => self.resync(self.seen.unwrap_or(newest), Resync::Refused, news),
        }
        self.finish(news)
    }

    /// Keeps a message until the history is read.
    fn wait(&mut self, position: Position, content: Option<Content>) {
        let bytes = content.as_ref().map_or(0, Content::bytes);
        let is_full = self.waiting.len() >= WAITING_MAX
            || (self.waiting_bytes + bytes > WAITING_BYTES_MAX && !self.waiting.is_empty());
        if is_full {
            // Another read returns these messages.
            self.waiting.clear();
            self.waiting_bytes = 0;
            self.has_dropped = true;
        }
        self.waiting_bytes += bytes;
        self.waiting.push_back((position, content));
    }

    /// Ends the read, and delivers the messages that arrived meanwhile.
    fn finish(&mut self, news: &mut News) -> Next {
        let reading = std::mem::replace(&mut self.reading, Reading::No);
        self.is_unproven = false;
        self.seen = None;
        if std::mem::take(&mut self.has_dropped) {
            return Next::Read;
        }
        while let Some((position, content)) = self.waiting.pop_front() {
            self.waiting_bytes -= content.as_ref().map_or(0, Content::bytes);
            if self.handle_message(position, content, news) == Next::Read {
                return Next::Read;
            }
        }
        if let Reading::Asked(number) = reading {
            self.read_at = number;
        }
        if self.needs_read {
            return Next::Read;
        }
        match self.confirm {
            Confirm::No => return Next::Idle,
            Confirm::Requested if self.confirm_reads < CONFIRM_READS_MAX => {
                self.confirm_reads += 1;
                return Next::Read;
            }
            Confirm::Requested | Confirm::Asked => {}
        }
        (self.confirm, self.confirm_reads) = (Confirm::No, 0);
        news.updates.push(RoomUpdate::Confirmed);
        Next::Idle
    }

    /// Makes the first update of the room for its core.
    fn begin(&mut self, after: Position, messages: Vec<HistoryMessage>, news: &mut News) {
        self.newest = Some(end(after, &messages));
        self.partial = None;
        news.updates.push(RoomUpdate::History { after, messages });
    }

    /// Adds a part to the history that the core waits for.
    fn collect(&mut self, start: Position, read: Vec<Arrived>) {
        let continued = self.partial.take().filter(|partial| partial.end() == start);
        let mut partial = continued.unwrap_or_else(|| Partial::new(start));
        for (position, content) in read {
            match content {
                Some(Content { event, data, .. }) => {
                    if position != next(partial.end()) {
                        partial = Partial::new(before(position));
                    }
                    partial.push(HistoryMessage { offset: position.offset, event, data });
                }
                None => partial = Partial::new(position),
            }
        }
        // If another node keeps more messages, the engine's history may be longer.
        partial.trim(self.limits.publications_max);
        self.partial = Some(partial);
    }

    /// Delivers the read part of the messages that the core has missed. The answer begins after `start`.
    fn fill(
        &mut self,
        newest: Position,
        head: Position,
        start: Position,
        read: Vec<Arrived>,
        news: &mut News,
    ) {
        if newest == START && start.offset == 0 && !self.is_unproven && self.seen.is_none() {
            // The history has all messages of the room, and no loss is known.
            self.begin(start, Vec::new(), news);
        } else if newest == START {
            self.resync(start, Resync::Unproven, news);
        } else if newest.epoch != head.epoch {
            self.resync(start, Resync::Epoch, news);
        } else if newest.offset > head.offset {
            // Messages of the two positions can't be compared.
            return self.resync(head, Resync::RolledBack, news);
        }
        let mut missed = Vec::new();
        for (position, content) in read {
            let newest = end(self.newest.unwrap_or(START), &missed);
            if covers(newest, position) {
                continue;
            }
            if position != next(newest) {
                self.deliver(&mut missed, news);
                self.resync(before(position), Resync::Truncated, news);
            }
            match content {
                Some(Content { event, data, .. }) => {
                    missed.push(HistoryMessage { offset: position.offset, event, data });
                }
                None => {
                    self.deliver(&mut missed, news);
                    self.resync(position, Resync::Unreadable, news);
                }
            }
        }
        self.deliver(&mut missed, news);
        if let Some(newest) = self.newest
            && !covers(newest, start)
        {
            self.resync(start, Resync::Truncated, news);
        }
    }

    /// Delivers messages that follow the core's position.
    fn deliver(&mut self, messages: &mut Vec<HistoryMessage>, news: &mut News) {
        if let (Some(after), false) = (self.newest, messages.is_empty()) {
            self.begin(after, std::mem::take(messages), news);
        }
    }

    /// Continues the core at `after`, and announces a gap to its members.
    fn resync(&mut self, after: Position, reason: Resync, news: &mut News) {
        let newest = self.newest.unwrap_or(START);
        let mut continue_at = |after| news.updates.push(RoomUpdate::History { after, messages: Vec::new() });
        // The core sees neither a gap after an empty room nor a gap that leads back. So it first continues at a
        // position of another room state: of a room with messages, or of an empty one.
        if newest.epoch == Epoch::NONE {
            let epoch = if after.epoch == Epoch(1) { Epoch(2) } else { Epoch(1) };
            continue_at(Position { epoch, offset: 0 });
        } else if covers(newest, after) {
            continue_at(START);
        }
        continue_at(after);
        if newest.epoch != Epoch::NONE && newest.epoch != after.epoch {
            news.replaced = Some(newest.epoch);
        }
        self.newest = Some(after);
        news.resyncs.push(reason);
    }
}

fn next(position: Position) -> Position {
    Position { offset: position.offset + 1, ..position }
}

fn before(position: Position) -> Position {
    Position { offset: position.offset.saturating_sub(1), ..position }
}

/// The position of the last of `messages`, which follow `after`.
fn end(after: Position, messages: &[HistoryMessage]) -> Position {
    messages.last().map_or(after, |last| Position { offset: last.offset, ..after })
}
