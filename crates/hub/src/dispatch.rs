//! Messages between shards. Between any two shards they are first in, first out, and none is lost.

use crate::history::{HistoryPart, Replay};
use crate::key::Key;
use crate::presence::PresenceChange;
use crate::publication::{Body, Data, FeedState, Position, Publication};
use crate::session_id::SessionId;
use crate::topic::{Room, Rooms, Topic};
use crate::version_lag::{FAR, UNKNOWN};
use smallvec::SmallVec;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

/// Identifies a core of this process, from 0.
pub type CoreId = usize;

/// Maximum number of cores in a process.
pub const CORES_MAX: usize = 256;

/// A set of cores. Takes 16 bytes in each topic.
#[derive(Clone, Debug, Default)]
pub(crate) struct CoreSet {
    first: u64,
    /// Cores from 64 on.
    others: Option<Box<[u64; CORES_MAX / 64 - 1]>>,
}

impl CoreSet {
    pub(crate) fn set(&mut self, core: CoreId, on: bool) {
        let word = match (core / 64, &mut self.others) {
            (0, _) => &mut self.first,
            (_, None) if !on => return,
            (word, others) => &mut others.get_or_insert_default()[word - 1],
        };
        let bit = 1 << (core % 64);
        *word = if on { *word | bit } else { *word & !bit };
    }

    fn words(&self) -> impl Iterator<Item = u64> {
        let others = self.others.iter().flat_map(|others| others.iter());
        std::iter::once(self.first).chain(others.copied())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words().all(|word| word == 0)
    }

    /// Adds the cores of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        other.iter().for_each(|core| self.set(core, true));
    }

    /// Iterates over the cores, lowest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = CoreId> {
        (0..).zip(self.words()).flat_map(|(word, mut bits)| {
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros() as usize;
                bits &= bits.wrapping_sub(1);
                (bit < 64).then_some(word * 64 + bit)
            })
        })
    }
}

/// One message from one shard to another.
pub enum Dispatch<F> {
    /// The sender has members of a plain room now, or no longer.
    Interest {
        /// The room.
        room: Room,
        /// `true` if the sender has members.
        has_members: bool,
    },
    /// To the home core: a session of the sender wants to become a member. `Joined` is the answer.
    Join {
        /// The topic.
        topic: Topic,
        /// The session.
        session: SessionId,
        /// The source of that session ([`Hub::set_source`](crate::Hub::set_source)).
        source: u64,
        /// The client's position.
        since: Option<Position>,
    },
    /// The home core's answer to `Join`: all later publications reach the sender of `Join`. Answers come in
    /// the order of the requests.
    Joined {
        /// The topic.
        topic: Topic,
        /// The session of the request.
        session: SessionId,
        /// The client's position, as in `Join`.
        since: Option<Position>,
        /// Messages of a room that the session missed.
        replay: Replay<F>,
        /// The newest snapshot, and the feed's state if it isn't live, for future members.
        current: Current<F>,
    },
    /// The home core now knows the history of a room for which it answered with [`Replay::Unknown`].
    History(Room, Arc<HistoryPart<F>>),
    /// The home core reports that members of a room missed publications.
    Gap(Room),
    /// The home core reports that its version of a feed was as new as the engine's at the read with this
    /// number.
    Confirmed(Key, u64),
    /// To the home core: the sender prepares a room with history as if it had members. `Prepared` with the
    /// same number is the answer, as soon as the home core knows the history.
    Prepare(Room, NonZeroU64),
    /// The home core knows the history of a room that the receiver prepares.
    Prepared {
        /// The room.
        room: Room,
        /// The number of the request.
        number: NonZeroU64,
        /// `true` if the receiver is sent further messages of the room, `false` if the home core has no slot
        /// for the room.
        is_followed: bool,
    },
    /// The sender knows too many topics to accept this one. Answers a `Join`, with its session, or an
    /// `Interest`, without one. After a refused `Interest` the receiver's members would miss publications of
    /// the sender's core.
    Refused(Topic, Option<SessionId>),
    /// The sender has no members left. Only sent to the home core.
    Leave(Topic),
    /// A publication for the receiver's members.
    Publish(Topic, Arc<Publication<F>>, Emit),
    /// A publication for the receiver's members of several rooms. Each session receives it once.
    PublishToSeveral(Rooms, Arc<Publication<F>>, Emit),
    /// To the home core of a room with history: assign a position and broadcast it.
    Submit {
        /// The room.
        room: Room,
        /// The event's name.
        event: Option<Arc<str>>,
        /// The data.
        data: Data,
        /// Options of the event.
        options: Emit,
    },
    /// To the home core of a room's presence: a session of the sender has joined the room, or left it.
    Presence(Room, PresenceChange),
}

/// Approximate size of a message without its content, in bytes.
const DISPATCH_BYTES: usize = 64;

impl<F> Dispatch<F> {
    /// Returns the approximate size of a message in bytes. A body that several messages share counts in each.
    pub fn weight_bytes(&self) -> usize {
        let publications = |all: &[Arc<Publication<F>>]| {
            all.iter().map(|publication| publication.body().len() + DISPATCH_BYTES).sum::<usize>()
        };
        let carried = match self {
            Self::Publish(_, publication, options) | Self::PublishToSeveral(_, publication, options) => {
                publication.body().len() + options.bytes()
            }
            Self::Submit { data, options, .. } => data.len() + options.bytes(),
            Self::Joined { replay, current, .. } => {
                let newest = current.snapshot.as_ref().map_or(0, |newest| newest.body().len());
                newest + if let Replay::Messages(missed) = replay { publications(missed) } else { 0 }
            }
            Self::History(_, history) => publications(&history.messages),
            Self::Interest { .. }
            | Self::Join { .. }
            | Self::Refused(..)
            | Self::Leave(..)
            | Self::Presence(..)
            | Self::Gap(..)
            | Self::Prepare(..)
            | Self::Prepared { .. }
            | Self::Confirmed(..) => 0,
        };
        DISPATCH_BYTES + carried
    }

    /// Returns `true` if the receiver sends an answer.
    pub(crate) fn is_question(&self) -> bool {
        matches!(self, Self::Join { .. })
    }
}

/// Counts the receiving sessions of a message. Each core adds its own, so the core that drops the last
/// reference has the sum.
pub trait Tally: Send + Sync {
    /// Adds the sessions of one core.
    fn add(&self, sessions: usize);
}

/// Options of a message. All cores that the message reaches share its exceptions. An empty list of exceptions
/// takes no memory.
#[derive(Clone, Default)]
pub struct Emit {
    /// `true` skips sessions with pending deliveries, and sessions that aren't writable. A volatile message can't be recovered.
    pub volatile: bool,
    pub(crate) except: Exceptions,
    pub(crate) id: Option<NonZeroU64>,
    tally: Option<Arc<dyn Tally>>,
}

/// The exceptions of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exceptions(Option<Arc<Except>>);

impl Exceptions {
    /// Iterates over the excepted sessions of a core.
    pub(crate) fn sessions(&self, core: CoreId) -> impl Iterator<Item = SessionId> {
        let sessions = self.0.iter().flat_map(|except| &except.sessions);
        sessions.filter(move |(of, _)| *of == core).map(|(_, session)| *session)
    }

    /// Returns the approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |except| {
            except.sessions.len() * size_of::<(CoreId, SessionId)>() + except.rooms.len() * size_of::<Room>()
        })
    }
}

/// The exceptions of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Except {
    sessions: SmallVec<[(CoreId, SessionId); 1]>,
    rooms: Vec<Room>,
}

// Compares the content of the exceptions, regardless of the tally.
impl PartialEq for Emit {
    fn eq(&self, other: &Self) -> bool {
        (self.volatile, &self.except) == (other.volatile, &other.except)
    }
}

impl Eq for Emit {}

impl fmt::Debug for Emit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { volatile, except, .. } = self;
        f.debug_struct("Emit").field("volatile", volatile).field("except", except).finish_non_exhaustive()
    }
}

impl Emit {
    /// Makes options for delivery only to sessions without pending deliveries.
    pub fn volatile() -> Self {
        Self { volatile: true, ..Self::default() }
    }

    /// Excepts this session of that core.
    pub fn except_session(mut self, core: CoreId, session: SessionId) -> Self {
        self.except_mut().sessions.push((core, session));
        self
    }

    /// Excepts the members of this room.
    pub fn except_room(mut self, room: Room) -> Self {
        self.except_mut().rooms.push(room);
        self
    }

    /// Sets the [id](Publication::id) by which other nodes know the message; 0 lets this shard draw one. See
    /// [`Hub::draw_id`](crate::Hub::draw_id).
    pub fn identified(mut self, id: u64) -> Self {
        self.id = NonZeroU64::new(id);
        self
    }

    /// Counts the receiving sessions, suspended ones included, without the excepted ones.
    pub fn counted_by(mut self, tally: Arc<dyn Tally>) -> Self {
        self.tally = Some(tally);
        self
    }

    pub(crate) fn count(&self, sessions: usize) {
        if let Some(tally) = &self.tally {
            tally.add(sessions);
        }
    }

    /// Returns the approximate size of the exceptions in bytes.
    pub fn bytes(&self) -> usize {
        self.except.bytes()
    }

    fn except_mut(&mut self) -> &mut Except {
        Arc::make_mut(self.except.0.get_or_insert_default())
    }

    /// Returns `true` if all members receive the message.
    #[inline]
    pub(crate) fn has_no_exceptions(&self) -> bool {
        self.except.0.is_none()
    }

    /// Iterates over the excepted sessions of a core.
    pub(crate) fn excepted_sessions(&self, core: CoreId) -> impl Iterator<Item = SessionId> {
        self.except.sessions(core)
    }

    /// Returns the excepted sessions of all cores.
    pub fn excepted(&self) -> &[(CoreId, SessionId)] {
        self.except.0.as_ref().map_or(&[], |except| &except.sessions)
    }

    /// Returns the rooms whose members don't receive the message.
    pub fn excepted_rooms(&self) -> &[Room] {
        self.except.0.as_ref().map_or(&[], |except| &except.rooms)
    }
}

/// The newest known document and state of a feed.
pub struct Current<F> {
    /// The newest document.
    pub(crate) snapshot: Option<Arc<Publication<F>>>,
    /// The newest change of state since the document, if it differs from the document's own state (or,
    /// without a document, from live).
    pub(crate) state: Option<Arc<Publication<F>>>,
}

impl<F> Current<F> {
    /// Applies `publication` to the feed. The home core and its followers do the same. Returns the number of
    /// versions by which a new document is ahead of the previous one; [`UNKNOWN`] if their epochs differ.
    pub(crate) fn apply(&mut self, publication: &Arc<Publication<F>>) -> u16 {
        match publication.body() {
            Body::Snapshot { .. } => {
                let before = self.snapshot.as_ref().and_then(|before| before.position());
                *self = Self { snapshot: Some(publication.clone()), state: None };
                return self.behind(before);
            }
            Body::State { state: FeedState::NotFound, .. } => {
                *self = Self { snapshot: None, state: Some(publication.clone()) };
            }
            Body::State { state, .. } => {
                self.state = None;
                if self.feed_state() != *state {
                    self.state = Some(publication.clone());
                }
            }
            Body::Message { .. } | Body::Delta { .. } | Body::Presence { .. } => {}
        }
        UNKNOWN
    }

    /// Returns the number of versions that a client at `since` is behind the newest document; [`UNKNOWN`] if
    /// no patch can lead from `since`.
    pub(crate) fn behind(&self, since: Option<Position>) -> u16 {
        let newest = self.snapshot.as_ref().map(|snapshot| snapshot.body());
        match (newest, since) {
            (Some(Body::Snapshot { position, .. }), Some(since)) if position.epoch == since.epoch => {
                let behind = position.offset.checked_sub(since.offset).filter(|_| since.offset > 0);
                behind.map_or(UNKNOWN, |behind| u16::try_from(behind).unwrap_or(FAR).min(FAR))
            }
            _ => UNKNOWN,
        }
    }

    /// Returns `true` if a client at `since` has a newer version of the same epoch, received from another
    /// node.
    pub(crate) fn is_before(&self, since: Option<Position>) -> bool {
        let newest = self.snapshot.as_ref().and_then(|snapshot| snapshot.position());
        newest.zip(since).is_some_and(|(newest, since)| {
            newest.epoch == since.epoch
                && (newest.offset + 1..newest.offset + u64::from(FAR)).contains(&since.offset)
        })
    }

    /// Returns `true` if a client has a version of another epoch.
    pub(crate) fn is_of_other_epoch(&self, since: Option<Position>) -> bool {
        let newest = self.snapshot.as_ref().and_then(|snapshot| snapshot.position());
        newest.zip(since).is_some_and(|(newest, since)| newest.epoch != since.epoch)
    }

    /// Returns the feed's state as clients know it.
    pub(crate) fn feed_state(&self) -> FeedState {
        match [&self.state, &self.snapshot].into_iter().flatten().next().map(|p| p.body()) {
            Some(Body::State { state, .. } | Body::Snapshot { state, .. }) => *state,
            _ => FeedState::Live,
        }
    }

    /// Returns `true` if neither document nor state is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.snapshot.is_none() && self.state.is_none()
    }
}

impl<F> Default for Current<F> {
    fn default() -> Self {
        Self { snapshot: None, state: None }
    }
}

impl<F> Clone for Current<F> {
    fn clone(&self) -> Self {
        Self { snapshot: self.snapshot.clone(), state: self.state.clone() }
    }
}

#[cfg(test)]
mod tests;
