//! Messages between shards. Between each two shards they are first in, first out, and none is lost.

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

/// Names a core of this process, from 0.
pub type CoreId = usize;

/// How many cores there may be in a process.
pub const CORES_MAX: usize = 256;

/// A set of cores: 16 bytes in each topic.
#[derive(Clone, Debug, Default)]
pub(crate) struct CoreSet {
    first: u64,
    /// The cores from 64 on.
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

    /// The cores in it, lowest first.
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
    /// The sender has (or no longer has) members of a plain room.
    Interest {
        /// Which room.
        room: Room,
        /// Whether it has members.
        has_members: bool,
    },
    /// To the home core: a session of the sender wants to become a member. `Joined` answers.
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
    /// From the home core: publications from here on reach the sender of `Join`. Answers come in the order of the
    /// requests.
    Joined {
        /// The topic.
        topic: Topic,
        /// The session that asked.
        session: SessionId,
        /// The client's position, as in `Join`.
        since: Option<Position>,
        /// What the session missed in a room.
        replay: Replay<F>,
        /// The newest snapshot, and the feed's state if it isn't live, for members to come.
        current: Current<F>,
    },
    /// From the home core: it knows the history of a room now, which it didn't when it answered with
    /// [`Replay::Unknown`].
    History(Room, Arc<HistoryPart<F>>),
    /// From the home core: members of a room missed publications.
    Gap(Room),
    /// From the home core: a feed was as new as in the engine when that was read for the given time.
    Confirmed(Key, u64),
    /// To the home core: the sender prepares a room with history, as if it had members. `Prepared` answers, with the same
    /// number, as soon as the home core knows the history.
    Prepare(Room, NonZeroU64),
    /// From the home core: it knows the history of a room that the receiver prepares.
    Prepared {
        /// The room.
        room: Room,
        /// The number of the request.
        number: NonZeroU64,
        /// The receiver is sent what follows. `false`: there is no place for the room.
        is_followed: bool,
    },
    /// The sender knows too many topics to accept this one. Answers a `Join`, with its session, or an `Interest`:
    /// then the receiver's members would miss what the sender's core publishes.
    Refused(Topic, Option<SessionId>),
    /// To the home core: the sender has no members left.
    Leave(Topic),
    /// For the receiver's members.
    Publish(Topic, Arc<Publication<F>>, Emit),
    /// For the receiver's members of several rooms, once for each.
    PublishToSeveral(Rooms, Arc<Publication<F>>, Emit),
    /// To the home core of a room with history: assign a position and broadcast it.
    Submit {
        /// The room.
        room: Room,
        /// The event's name.
        event: Option<Arc<str>>,
        /// The data.
        data: Data,
        /// Its options.
        options: Emit,
    },
    /// To the home core of a room's presence: a session of the sender has joined the room, or left it.
    Presence(Room, PresenceChange),
}

/// Approximate size of a message without its content.
const DISPATCH_BYTES: usize = 64;

impl<F> Dispatch<F> {
    /// Approximate size of a message per receiving session.
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

    /// Whether the receiver sends an answer.
    pub(crate) fn is_question(&self) -> bool {
        matches!(self, Self::Join { .. })
    }
}

/// Counts the sessions that a message is for. Each core adds its own, so the last one to drop its reference has the sum.
pub trait Tally: Send + Sync {
    /// Adds the sessions of one core.
    fn add(&self, sessions: usize);
}

/// How something is emitted. Exceptions are shared by the cores that it reaches, and nothing where there are
/// none.
#[derive(Clone, Default)]
pub struct Emit {
    /// Whether to skip sessions with pending deliveries. A volatile message can't be recovered.
    pub volatile: bool,
    pub(crate) except: Exceptions,
    pub(crate) id: Option<NonZeroU64>,
    tally: Option<Arc<dyn Tally>>,
}

/// The exceptions of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exceptions(Option<Arc<Except>>);

impl Exceptions {
    /// The sessions of a core.
    pub(crate) fn sessions(&self, core: CoreId) -> impl Iterator<Item = SessionId> {
        let sessions = self.0.iter().flat_map(|except| &except.sessions);
        sessions.filter(move |(of, _)| *of == core).map(|(_, session)| *session)
    }

    /// Approximate size.
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

// The bytes of its content, whoever counts them.
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
    /// Only to sessions without pending deliveries.
    pub fn volatile() -> Self {
        Self { volatile: true, ..Self::default() }
    }

    /// Not to this session of that core either.
    pub fn except_session(mut self, core: CoreId, session: SessionId) -> Self {
        self.except_mut().sessions.push((core, session));
        self
    }

    /// Not to the members of this room either.
    pub fn except_room(mut self, room: Room) -> Self {
        self.except_mut().rooms.push(room);
        self
    }

    /// With an [id](Publication::id) that other nodes know it by; 0: with one of this shard's. See [`Hub::draw_id`](crate::Hub::draw_id).
    pub fn identified(mut self, id: u64) -> Self {
        self.id = NonZeroU64::new(id);
        self
    }

    /// Counts the sessions that it is for, except those that are left out. Suspended ones count.
    pub fn counted_by(mut self, tally: Arc<dyn Tally>) -> Self {
        self.tally = Some(tally);
        self
    }

    pub(crate) fn count(&self, sessions: usize) {
        if let Some(tally) = &self.tally {
            tally.add(sessions);
        }
    }

    /// Approximate size of the exceptions.
    pub fn bytes(&self) -> usize {
        self.except.bytes()
    }

    fn except_mut(&mut self) -> &mut Except {
        Arc::make_mut(self.except.0.get_or_insert_default())
    }

    /// Whether all members receive it.
    #[inline]
    pub fn has_no_exceptions(&self) -> bool {
        self.except.0.is_none()
    }

    /// The sessions of a core that don't get it.
    pub(crate) fn excepted_sessions(&self, core: CoreId) -> impl Iterator<Item = SessionId> {
        self.except.sessions(core)
    }

    /// The sessions of all cores that don't get it.
    pub fn excepted(&self) -> &[(CoreId, SessionId)] {
        self.except.0.as_ref().map_or(&[], |except| &except.sessions)
    }

    /// The rooms whose members don't receive it.
    pub fn excepted_rooms(&self) -> &[Room] {
        self.except.0.as_ref().map_or(&[], |except| &except.rooms)
    }
}

/// The newest that is known of a feed.
pub struct Current<F> {
    /// The newest document.
    pub(crate) snapshot: Option<Arc<Publication<F>>>,
    /// The newest change of state since, if it differs from the document's own (or, without a document, from live).
    pub(crate) state: Option<Arc<Publication<F>>>,
}

impl<F> Current<F> {
    /// The feed goes on with `publication`. The home core and those that follow it do the same. Returns how many
    /// versions a new document is ahead of the one before it; [`UNKNOWN`] if they have no common epoch.
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

    /// How many versions a client at `since` is behind the newest document; [`UNKNOWN`] if no patch can lead from
    /// there.
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

    /// Whether a client at `since` has a newer version of the same epoch, which another node gave it.
    pub(crate) fn is_before(&self, since: Option<Position>) -> bool {
        let newest = self.snapshot.as_ref().and_then(|snapshot| snapshot.position());
        newest.zip(since).is_some_and(|(newest, since)| {
            newest.epoch == since.epoch
                && (newest.offset + 1..newest.offset + u64::from(FAR)).contains(&since.offset)
        })
    }

    /// Whether a client has a version of another epoch than this one.
    pub(crate) fn is_of_other_epoch(&self, since: Option<Position>) -> bool {
        let newest = self.snapshot.as_ref().and_then(|snapshot| snapshot.position());
        newest.zip(since).is_some_and(|(newest, since)| newest.epoch != since.epoch)
    }

    /// The feed's state as clients know it.
    pub(crate) fn feed_state(&self) -> FeedState {
        match [&self.state, &self.snapshot].into_iter().flatten().next().map(|p| p.body()) {
            Some(Body::State { state, .. } | Body::Snapshot { state, .. }) => *state,
            _ => FeedState::Live,
        }
    }

    /// Whether nothing is known.
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
