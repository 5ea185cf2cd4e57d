//! What shards tell each other. First in, first out between each two of them, nothing lost.

use crate::publication::{Data, Position, Publication};
use crate::session::SessionId;
use crate::topic::{Room, Topic};
use std::sync::Arc;

/// Names a core of this process, from 0.
pub type CoreId = usize;

/// How many cores there may be in a process.
pub const CORES_MAX: usize = 256;

/// A set of cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoreSet([u64; CORES_MAX / 64]);

impl CoreSet {
    pub(crate) fn set(&mut self, core: CoreId, on: bool) {
        let bit = 1 << (core % 64);
        if on {
            self.0[core / 64] |= bit;
        } else {
            self.0[core / 64] &= !bit;
        }
    }

    pub(crate) fn contains(&self, core: CoreId) -> bool {
        self.0[core / 64] & (1 << (core % 64)) != 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; CORES_MAX / 64]
    }
}

/// One message from one shard to another.
pub enum Dispatch<F> {
    /// The sender has (or no longer has) members of a plain room.
    Interest {
        /// Which room.
        room: Room,
        /// Whether it has any.
        wanted: bool,
    },
    /// To the home core: a session of the sender wants to be a member. `Joined` answers.
    Join {
        /// Of what.
        topic: Topic,
        /// Who.
        session: SessionId,
        /// What the client has.
        since: Option<Position>,
    },
    /// From the home core: publications from here on reach the sender of `Join`.
    Joined {
        /// Of what.
        topic: Topic,
        /// Who asked.
        session: SessionId,
        /// What the session is owed now; `None` where the past doesn't reach back so far.
        replay: Option<Vec<Arc<Publication<F>>>>,
        /// The newest snapshot and, where the feed isn't live, its state, for members to come.
        current: Current<F>,
    },
    /// To the home core: the sender has no members left.
    Leave {
        /// Of what.
        topic: Topic,
    },
    /// For the receiver's members.
    Publish {
        /// To what.
        topic: Topic,
        /// What.
        publication: Arc<Publication<F>>,
        /// How.
        how: Emit,
    },
    /// To the home core of a room with history: give it a place and spread it.
    Submit {
        /// Where to.
        room: Room,
        /// The event's name.
        event: Option<Arc<str>>,
        /// What is said.
        data: Data,
        /// How.
        how: Emit,
    },
}

/// How something is emitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Emit {
    /// Whether to leave out sessions that are owed something already.
    pub volatile: bool,
    /// A session that doesn't get it, with its core.
    pub except: Option<(CoreId, SessionId)>,
}

/// The newest that is known of a feed.
pub struct Current<F> {
    /// The newest document.
    pub(crate) snapshot: Option<Arc<Publication<F>>>,
    /// The newest change of state since, if the feed isn't live.
    pub(crate) state: Option<Arc<Publication<F>>>,
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
