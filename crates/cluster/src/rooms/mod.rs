//! Rooms with history of a cluster: the engine orders them for all nodes. Sans-I/O.
//!
//! A message of this node goes to the engine ([`appends`]), and reaches members when the engine returns it with its position, as
//! on all nodes. For each room with subscribers, the node knows the last position of its core, and delivers later messages:
//!
//! ```text
//!              subscribers            read                 the next message ┐
//!   no state ─────────────► unknown ───────► known, in order ◄──────────────┘
//!                                             │      ▲
//!                      a gap, another epoch,  │      │ read: delivered, or announced
//!                      or a newer head        ▼      │ as a gap with a reason
//!                                            reading ┘   messages wait meanwhile
//! ```
//!
//! The last message of a room has no successor that would show a gap. So the node compares the newest positions with the engine's
//! after each lost connection, and every 18 to 30 seconds.
//!
//! **Invariants.** A core gets the messages of an epoch in the order of their offsets, each once. It gets a message after a gap
//! only after an update that announces the gap. Queues are bounded.

mod appends;
mod driver;
mod heads;
mod reads;
mod room;
mod vacant;

use crate::NodeId;
use crate::engine::{EngineError, PAYLOAD_BYTES_MAX, Reply, Request};
use crate::replaced::Replaced;
use appends::{Appends, Step};
use bytes::Bytes;
pub(crate) use driver::{Publisher, READ_INTERVAL, RoomDriver};
use heads::Heads;
use reads::Reads;
pub(crate) use room::Resync;
use room::{News, Next, Reading, RoomState};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::{Data, Epoch, HistoryLimits, Position, Room, ShrinkingMap, history_limits, pop_front};
use stentor_ports::{Broadcast, Denial, PublicId, RoomUpdate};
pub(crate) use vacant::VacantRooms;

/// Interval at which newest positions are compared with the engine's: twice within [`HEAD_TTL`](crate::engine::HEAD_TTL), for
/// which an engine keeps them after each request.
const HEADS_INTERVAL: Duration = Duration::from_secs(24);
/// Delay before a failed request is repeated.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Size of the updates waiting for the data plane at which the node takes no more messages.
const UPDATES_BYTES_MAX: usize = 8 << 20;

/// The content of a message, and the sessions that don't receive it.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) event: Option<Arc<str>>,
    pub(crate) data: Data,
    pub(crate) except_rooms: Vec<Room>,
    pub(crate) except_sessions: Vec<PublicId>,
}

impl Content {
    fn bytes(&self) -> usize {
        self.data.len() + size_of_val(&self.except_rooms[..]) + size_of_val(&self.except_sessions[..])
    }
}

impl From<Broadcast> for Content {
    fn from(message: Broadcast) -> Self {
        let Broadcast { event, data, except_rooms, except_sessions, .. } = message;
        Self { event, data, except_rooms, except_sessions }
    }
}

/// An output of the machine. `P` names a publisher that waits.
#[derive(Debug)]
pub(crate) enum Output<P> {
    /// A request to the engine. Pass its answer to [`Rooms::handle_reply`].
    Request(u64, Request),
    /// The decision about a publisher's message.
    Decide(P, Result<(), Denial>),
    /// An update for the core of a room.
    Room(Room, RoomUpdate),
}

/// The subject of a request.
enum Asked {
    Append(u64),
    /// The history of a room in one of its incarnations.
    Read(Room, u64),
    /// The end of an epoch that the engine has returned to, of a room in one of its incarnations.
    End(Room, u64, Epoch),
    /// The heads of rooms, with their incarnations and the positions of their cores.
    Heads(Vec<(Room, u64, Position)>),
}

/// Metrics of rooms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoomStats {
    /// Number of rooms with history that have subscribers on this node.
    pub(crate) rooms: usize,
    /// Number of rooms whose history is being read or waits to be read.
    pub(crate) reading: usize,
    pub(crate) appends: usize,
    pub(crate) append_bytes: usize,
    /// Number of messages that the engine has confirmed.
    pub(crate) appended: u64,
    pub(crate) appends_failed: u64,
    /// Bytes of messages that wait for a read or for the data plane.
    pub(crate) waiting_bytes: usize,
    /// Number of gaps that a read has closed.
    pub(crate) recovered: u64,
    pub(crate) resyncs: BTreeMap<Resync, u64>,
    /// Number of rooms without subscribers on this node that the engine stores because of this node's clients.
    pub(crate) vacant: usize,
    pub(crate) vacant_refused: u64,
}

struct Queued<P> {
    output: Output<P>,
    /// The incarnation of the room to which an update belongs.
    incarnation: u64,
    bytes: usize,
}

/// The rooms with history of one node.
pub(crate) struct Rooms<P> {
    history: Vec<(String, HistoryLimits)>,
    rooms: ShrinkingMap<Room, RoomState>,
    vacant: VacantRooms,
    appends: Appends<P>,
    asked: ShrinkingMap<u64, Asked>,
    drawn: u64,
    /// `true` if the connection to the engine isn't the first one.
    may_have_missed: bool,
    reads: Reads,
    heads: Heads,
    outputs: VecDeque<Queued<P>>,
    output_bytes: usize,
    /// Bytes of messages that wait for reads of their rooms.
    waiting_bytes: usize,
    /// Replaced epochs of rooms. Members receive no further messages of these epochs.
    replaced: Replaced,
    recovered: u64,
    resyncs: BTreeMap<Resync, u64>,
}

impl<P> Rooms<P> {
    /// Makes the machine without rooms. `history` lists the rooms with history, by the longest prefix of their names. Messages
    /// are decided within about `append_timeout`.
    pub(crate) fn new(
        node: NodeId,
        history: Vec<(String, HistoryLimits)>,
        append_timeout: Duration,
        vacant: VacantRooms,
    ) -> Self {
        Self {
            history,
            rooms: ShrinkingMap::default(),
            vacant,
            appends: Appends::new(node, append_timeout),
            asked: ShrinkingMap::default(),
            drawn: 0,
            may_have_missed: false,
            reads: Reads::default(),
            heads: Heads::new(node.0),
            outputs: VecDeque::new(),
            output_bytes: 0,
            waiting_bytes: 0,
            replaced: Replaced::default(),
            recovered: 0,
            resyncs: Resync::ALL.map(|reason| (reason, 0)).into(),
        }
    }

    /// Returns `true` if a room keeps history.
    pub(crate) fn keeps_history(&self, room: &Room) -> bool {
        history_limits(&self.history, room).is_some()
    }

    /// The next output.
    pub(crate) fn poll_output(&mut self) -> Option<Output<P>> {
        loop {
            let Some(Queued { output, incarnation, bytes }) = pop_front(&mut self.outputs) else {
                // Reads may have waited for space.
                self.start_reads();
                if self.outputs.is_empty() {
                    return None;
                }
                continue;
            };
            self.output_bytes -= bytes;
            // The core has dropped the room's state in the meantime.
            let is_stale = matches!(&output, Output::Room(room, _)
                if self.rooms.get(room).is_none_or(|state| state.incarnation != incarnation));
            if !is_stale {
                return Some(output);
            }
        }
    }

    /// The time at which [`Rooms::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let due = [
            self.appends.poll_timeout(),
            self.reads.retry_at,
            self.heads.poll_timeout(),
            self.vacant.poll_timeout(),
        ];
        due.into_iter().flatten().min()
    }

    /// Returns `true` if too many updates wait for the data plane, so that messages should wait.
    pub(crate) fn is_full(&self) -> bool {
        self.output_bytes >= UPDATES_BYTES_MAX
    }

    /// Bytes of appends, of messages that wait for a read, of updates for the data plane, and of replaced epochs.
    pub(crate) fn held_bytes(&self) -> usize {
        self.appends.bytes() + self.waiting_bytes + self.output_bytes + self.replaced.held_bytes()
    }

    pub(crate) fn stats(&self) -> RoomStats {
        RoomStats {
            rooms: self.rooms.len(),
            reading: self.rooms.values().filter(|state| state.reading() != Reading::No).count(),
            appends: self.appends.len(),
            append_bytes: self.appends.bytes(),
            appended: self.appends.confirmed(),
            appends_failed: self.appends.failures(),
            waiting_bytes: self.waiting_bytes + self.output_bytes,
            recovered: self.recovered,
            resyncs: self.resyncs.clone(),
            vacant: self.vacant.len(),
            vacant_refused: self.vacant.refused(),
        }
    }

    /// Returns `true` if the history of a room is being read, or will be.
    pub(crate) fn is_reading(&self, room: &Room) -> bool {
        self.rooms.get(room).is_some_and(|state| state.reading() != Reading::No)
    }

    /// Adds a message that was published on this node by a client at the address `source` or by a backend, with the optional
    /// idempotency key of its publisher.
    ///
    /// # Errors
    /// The queue is full. Returns the publisher.
    pub(crate) fn handle_publish(
        &mut self,
        now: Instant,
        room: &Room,
        payload: Bytes,
        (publisher, source): (Option<P>, Option<u64>),
        key: Option<Arc<str>>,
    ) -> Result<(), Option<P>> {
        // A message to another room isn't passed to this machine.
        let limits = history_limits(&self.history, room).unwrap_or(NO_HISTORY);
        let admitted = match source {
            _ if payload.len() > PAYLOAD_BYTES_MAX => {
                Err(Denial::new("unavailable", "the message is too large for the cluster's engine"))
            }
            Some(source) => self.admit(now, room, source),
            None => Ok(()),
        };
        if let Err(denial) = admitted {
            if let Some(publisher) = publisher {
                self.push(Output::Decide(publisher, Err(denial)));
            }
            return Ok(());
        }
        self.appends.handle_publish(now, room, payload, limits, publisher, key)?;
        self.send_appends();
        Ok(())
    }

    /// Handles a change of interest: the node has got subscribers of a room, and the room's core has no state of it; or the node
    /// has lost the last subscriber.
    pub(crate) fn handle_interest(&mut self, room: &Room, has_subscribers: bool) {
        let Some(limits) = history_limits(&self.history, room) else { return };
        if let Some(state) = self.vacate(room) {
            self.waiting_bytes -= state.waiting_bytes();
            if let Some(place) = state.due() {
                self.reads.due.remove(&place);
            }
        }
        if has_subscribers {
            let incarnation = self.draw();
            let trace = self.vacant.remove(room);
            self.rooms.insert(room.clone(), RoomState::new(incarnation, limits, trace));
            self.read(room);
        }
    }

    /// Called when a member on this node has a position that its core doesn't know.
    pub(crate) fn handle_confirm(&mut self, room: &Room) {
        self.change(room, |state, _| state.handle_confirm());
    }

    /// Makes sure that a room's core has all messages that the engine has now. Returns the argument for [`Rooms::is_read`].
    pub(crate) fn handle_prove(&mut self, room: &Room) -> u64 {
        let now = self.drawn;
        self.change(room, |state, _| state.handle_prove());
        now
    }

    /// Returns `true` if a room's core has all messages that the engine had when `since` was returned, or was notified
    /// of a gap. Also returns `true` for a room without subscribers or without history.
    pub(crate) fn is_read(&self, room: &Room, since: u64) -> bool {
        self.rooms.get(room).is_none_or(|state| state.is_read(since))
    }

    /// Handles an arrived message of a room with history. `content` is `None` if it can't be read.
    pub(crate) fn handle_message(&mut self, room: &Room, position: Position, content: Option<Content>) {
        self.change(room, |state, news| state.handle_message(position, content, news));
    }

    /// Handles the loss of the connection to the engine, or of messages from it.
    pub(crate) fn handle_disconnected(&mut self) {
        self.may_have_missed = true;
    }

    /// Handles a new connection to the engine. If it isn't the first one, messages may have been missed.
    pub(crate) fn handle_connected(&mut self, now: Instant) {
        self.reads.retry_at = None;
        // Reads before the first report of a connection were made on this connection.
        if std::mem::replace(&mut self.may_have_missed, true) {
            let rooms: Vec<Room> = self.rooms.keys().cloned().collect();
            for room in rooms {
                self.change(&room, |state, _| state.handle_connected());
            }
        }
        self.compare_all(now);
        self.start_reads();
    }

    /// Handles an answer of the engine. `decode` reads the content of a message.
    pub(crate) fn handle_reply(
        &mut self,
        now: Instant,
        number: u64,
        reply: Result<Reply, EngineError>,
        decode: impl Fn(&Room, &Bytes) -> Option<Content>,
    ) {
        match self.asked.remove(&number) {
            Some(Asked::Append(id)) => {
                self.appends.handle_reply(now, id, reply);
                self.send_appends();
            }
            Some(Asked::Read(room, incarnation)) => {
                self.handle_read(now, number, &room, incarnation, reply, decode);
                self.start_reads();
            }
            Some(Asked::End(room, incarnation, epoch)) => {
                self.handle_end(now, number, &room, incarnation, epoch, reply);
                self.start_reads();
            }
            Some(Asked::Heads(asked)) => self.handle_heads(now, number, asked, reply),
            None => {}
        }
    }

    /// Handles timeouts that are due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.vacant.expire(now);
        self.appends.handle_timeout(now);
        self.send_appends();
        if self.reads.retry_at.take_if(|at| *at <= now).is_some() {
            self.start_reads();
        }
        self.compare_due(now);
    }

    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    fn push(&mut self, output: Output<P>) {
        self.outputs.push_back(Queued { output, incarnation: 0, bytes: 0 });
    }

    fn request(&mut self, number: u64, asked: Asked, request: Request) {
        self.asked.insert(number, asked);
        self.push(Output::Request(number, request));
    }

    fn send_appends(&mut self) {
        while let Some(step) = self.appends.poll_step() {
            match step {
                Step::Send(id, request) => {
                    let number = self.draw();
                    self.request(number, Asked::Append(id), request);
                }
                Step::Decide(publisher, decision) => self.push(Output::Decide(publisher, decision)),
            }
        }
    }

    /// Changes the state of a room, and carries out the effects. Returns `true` if members miss messages.
    fn change(&mut self, room: &Room, change: impl FnOnce(&mut RoomState, &mut News) -> Next) -> bool {
        let Some(state) = self.rooms.get_mut(room) else { return false };
        let mut news = News::default();
        let waited = state.waiting_bytes();
        let next = change(state, &mut news);
        self.waiting_bytes = self.waiting_bytes - waited + state.waiting_bytes();
        let incarnation = state.incarnation;
        for update in news.updates {
            let bytes = bytes_of(&update);
            self.output_bytes += bytes;
            let output = Output::Room(room.clone(), update);
            self.outputs.push_back(Queued { output, incarnation, bytes });
        }
        news.replaced.into_iter().for_each(|epoch| self.replaced.add(epoch));
        for reason in &news.resyncs {
            *self.resyncs.entry(*reason).or_default() += 1;
        }
        if next == Next::Read {
            self.read(room);
        }
        !news.resyncs.is_empty()
    }
}

const NO_HISTORY: HistoryLimits =
    HistoryLimits { publications_max: 0, bytes_max: 0, age_max: Duration::ZERO };

fn bytes_of(update: &RoomUpdate) -> usize {
    size_of::<RoomUpdate>()
        + match update {
            RoomUpdate::Message { data, except_rooms, except_sessions, .. } => {
                data.len() + size_of_val(&except_rooms[..]) + size_of_val(&except_sessions[..])
            }
            RoomUpdate::History { messages, .. } => messages.iter().map(room::bytes_of).sum(),
            RoomUpdate::Confirmed => 0,
        }
}

#[cfg(test)]
mod tests;
