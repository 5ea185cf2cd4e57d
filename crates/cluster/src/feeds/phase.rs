//! Phases of a feed on one node, and all transitions between them.
//!
//! ```text
//!              read, lease needed              acquired
//!   Loading ──────────────────────► Acquiring ──────────► Holding
//!      │                              ▲    │                │  │
//!      │ read, lease not needed       │    │ refused        │  │ a further term is needed
//!      ▼             due, or a push   │    ▼                │  └──────────► Acquiring
//!   Following ────────────────────────┘  Following          │ lost or released
//!                                                           └────────────► Following
//! ```
//!
//! In each phase, the log in the engine may be read (again), now or at a later time. A holder either reads or stores: the log that is read
//! may have the entry that is being stored, or not.
//!
//! ```text
//!              read               next step
//!   Reading ─────────► Ready ─────────────────► Storing
//!      ▲                │ ▲                      │   │
//!      ├────────────────┘ └──────────────────────┘   │
//!      │ a version was missed      stored            │
//!      └─────────────────────────────────────────────┘
//!        outcome unknown, or a version was missed
//! ```

use super::log::{Pending, State};
use super::{LEASE_MARGIN, LEASE_TTL, RENEW_INTERVAL};
use crate::engine::Lease;
use std::mem;
use std::time::Instant;
use stentor_ports::DocumentChange;

/// A read of the log that isn't finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The request was sent. `again`: a version has arrived since, so the answer may be out of date.
    Active { again: bool },
    /// The request is sent at this time.
    At(Instant),
}

/// The work of a holder.
pub(super) enum Work {
    Ready,
    Reading(Read),
    Storing(Storing),
}

/// An entry that is being stored.
pub(super) struct Storing {
    pub(super) pending: Pending,
    /// The push that the entry is for.
    pub(super) push: Option<u64>,
    /// `true` if the log is read next, because a version may have been missed.
    pub(super) then_read: bool,
}

/// The control plane's newest document, which isn't stored yet.
pub(super) struct Next {
    pub(super) change: DocumentChange,
    /// The state after the document. `None` for live.
    pub(super) state: Option<State>,
}

/// State of the node that holds the lease. It is dropped with the lease.
pub(super) struct Holding {
    pub(super) lease: Lease,
    pub(super) renew_at: Instant,
    /// Time from which the node stores nothing.
    pub(super) ends_at: Instant,
    /// `true` once the control plane has given news.
    pub(super) is_informed: bool,
    /// `true` once the log has the feed's state, stored under this lease.
    pub(super) is_logged: bool,
    /// `true` if the engine has refused the last entry.
    pub(super) is_refused: bool,
    /// Time from which the node may report again that the engine refuses the newest version.
    pub(super) report_refused_at: Instant,
    pub(super) next: Option<Next>,
    pub(super) work: Work,
}

/// The phase of a feed.
pub(super) enum Phase {
    /// The node reads the log for the first time.
    Loading(Read),
    /// Another node holds the lease, or none does.
    Following { acquire_at: Instant, read: Option<Read> },
    /// The node has asked for the lease.
    Acquiring { read: Option<Read> },
    /// The node fetches the feed, or stores documents that were pushed.
    Holding(Box<Holding>),
}

impl Phase {
    pub(super) fn holding(&self) -> Option<&Holding> {
        if let Self::Holding(holding) = self { Some(holding) } else { None }
    }

    pub(super) fn holding_mut(&mut self) -> Option<&mut Holding> {
        if let Self::Holding(holding) = self { Some(holding) } else { None }
    }

    pub(super) fn lease(&self) -> Option<Lease> {
        self.holding().map(|holding| holding.lease)
    }

    fn read(&self) -> Option<Read> {
        match self {
            Self::Loading(read) => Some(*read),
            Self::Following { read, .. } | Self::Acquiring { read } => *read,
            Self::Holding(holding) => match holding.work {
                Work::Reading(read) => Some(read),
                Work::Ready | Work::Storing(_) => None,
            },
        }
    }

    fn set_read(&mut self, read: Read) {
        match self {
            Self::Loading(current) => *current = read,
            Self::Following { read: current, .. } | Self::Acquiring { read: current } => {
                *current = Some(read)
            }
            Self::Holding(holding) => holding.work = Work::Reading(read),
        }
    }

    /// Returns `true` while the engine reads the log.
    pub(super) fn is_reading(&self) -> bool {
        matches!(self.read(), Some(Read::Active { .. }))
    }

    /// Returns `true` if this node has all versions, as far as it knows.
    pub(super) fn is_current(&self) -> bool {
        let storing = self.holding().and_then(|holding| holding.storing());
        self.read().is_none() && !storing.is_some_and(|storing| storing.then_read)
    }

    /// Time at which the log is read.
    pub(super) fn read_at(&self) -> Option<Instant> {
        if let Some(Read::At(at)) = self.read() { Some(at) } else { None }
    }

    /// Begins to read the log. Returns `true` if a request must be sent. Otherwise, the log is read after the current
    /// work.
    pub(super) fn begin_read(&mut self) -> bool {
        if let Self::Holding(holding) = self
            && let Work::Storing(storing) = &mut holding.work
        {
            storing.then_read = true;
            return false;
        }
        let again = self.is_reading();
        self.set_read(Read::Active { again });
        !again
    }

    /// Reads the log at this time, or after the current work.
    pub(super) fn read_at_or_next(&mut self, at: Instant) {
        if self.begin_read() {
            self.set_read(Read::At(at));
        }
    }

    /// Handles a failed read of the log.
    pub(super) fn handle_read_failure(&mut self, retry_at: Instant) {
        self.set_read(Read::At(retry_at));
    }

    /// Handles the end of a read. Returns `true` if the log must be read again.
    pub(super) fn handle_read(&mut self, now: Instant) -> bool {
        let again = matches!(self.read(), Some(Read::Active { again: true }));
        match self {
            Self::Loading(_) => *self = Self::Following { acquire_at: now, read: None },
            Self::Following { read, .. } | Self::Acquiring { read } => *read = None,
            Self::Holding(holding) => holding.work = Work::Ready,
        }
        again
    }

    /// Called when a follower has asked for the lease.
    pub(super) fn acquire(&mut self) {
        *self = Self::Acquiring { read: self.read() };
    }

    /// Called when the node doesn't hold the lease. The node asks for the lease at this time, if no node holds the lease then.
    /// Returns the entry that the node was storing.
    pub(super) fn follow(&mut self, acquire_at: Instant) -> Option<Storing> {
        let read = self.read();
        match mem::replace(self, Self::Following { acquire_at, read }) {
            Self::Holding(mut holding) => holding.end_storing(),
            _ => None,
        }
    }

    /// Sets the time at which a follower asks for the lease.
    pub(super) fn acquire_at(&mut self, at: Instant) {
        if let Self::Following { acquire_at, .. } = self {
            *acquire_at = at;
        }
    }

    /// Called when the node has acquired the lease, with a request at `asked_at`.
    pub(super) fn hold(&mut self, lease: Lease, asked_at: Instant) {
        let work = self.read().map_or(Work::Ready, Work::Reading);
        *self = Self::Holding(Box::new(Holding {
            lease,
            renew_at: asked_at,
            ends_at: asked_at,
            is_informed: false,
            is_logged: false,
            is_refused: false,
            report_refused_at: asked_at,
            next: None,
            work,
        }));
        self.renew(asked_at);
    }

    /// Extends the lease. Its duration counts from the request at `asked_at`.
    pub(super) fn renew(&mut self, asked_at: Instant) {
        if let Self::Holding(holding) = self {
            holding.renew_at = asked_at + RENEW_INTERVAL;
            holding.ends_at = asked_at + LEASE_TTL - LEASE_MARGIN;
        }
    }
}

impl Holding {
    /// Returns `true` if an entry may be stored now.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        now < self.ends_at && matches!(self.work, Work::Ready)
    }

    pub(super) fn storing(&self) -> Option<&Storing> {
        if let Work::Storing(storing) = &self.work { Some(storing) } else { None }
    }

    /// Ends storing an entry, whatever the outcome is. Returns the entry.
    pub(super) fn end_storing(&mut self) -> Option<Storing> {
        self.storing()?;
        match mem::replace(&mut self.work, Work::Ready) {
            Work::Storing(storing) => Some(storing),
            Work::Ready | Work::Reading(_) => None,
        }
    }
}
