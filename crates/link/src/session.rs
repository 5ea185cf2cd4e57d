//! A session of an application, and the worker that has it.
//!
//! ```text
//!              OPEN, asks              ACCEPT
//!  request ─┬───────────────► asking ──────────┐
//!           │ OPEN                             ▼     RELEASE
//!           ├───────────────────────────────► open ─────────► moving
//!           │                                 │  ▲               │ RELEASED
//!           │ no worker                       │  │ RESUME        ▼
//!           └─► held ── a worker: as above    │  └─ resuming ◄─ waiting ── `grace` ──► closed
//!                 └─ `grace` ──► refused      │                  ▲
//!                                             └── link ended ────┘
//! ```
//!
//! An asking session whose link ends is held again, and one that isn't answered within `grace` is refused. A resuming or moving one
//! waits. A moving one is open again if its worker keeps it (KEPT). One whose worker neither gives it back nor keeps it within
//! `worker_timeout` waits, too, as if the worker had crashed.

use crate::value::{Handle, Json, Messages};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The caller's number of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// A place in the line of sessions without a worker: when its turn is over, and its number.
pub(crate) type Place = (Instant, u64);

/// A session of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Number of the link.
    pub(crate) link: u32,
    pub(crate) handle: Handle,
}

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The client's request waits for a worker.
    Held(Place),
    /// The client's request waits for the worker's answer, at most until the time of its place.
    Asking(Owner, Place),
    /// The worker receives the client's messages.
    Open(Owner),
    /// The worker was asked to give the session back, at the latest at the time of its place.
    Moving(Owner, Place),
    /// The worker gets the session when its description has arrived.
    Resuming(Owner),
    /// The session waits for a worker.
    Waiting(Place),
}

impl State {
    pub(crate) fn owner(self) -> Option<Owner> {
        match self {
            Self::Asking(owner, _) | Self::Open(owner) | Self::Moving(owner, _) | Self::Resuming(owner) => {
                Some(owner)
            }
            Self::Held(_) | Self::Waiting(_) => None,
        }
    }

    /// The session's place in the line.
    pub(crate) fn place(self) -> Option<Place> {
        match self {
            Self::Held(place) | Self::Waiting(place) => Some(place),
            _ => None,
        }
    }

    /// The end of the time in which the worker has to answer.
    pub(crate) fn answer_by(self) -> Option<Place> {
        match self {
            Self::Asking(_, place) | Self::Moving(_, place) => Some(place),
            _ => None,
        }
    }

    /// `true` while the client's request isn't answered.
    pub(crate) fn is_request(self) -> bool {
        matches!(self, Self::Held(_) | Self::Asking(..))
    }
}

/// Bytes that a waiting message needs beside its content.
const MESSAGE_OVERHEAD_BYTES: usize = 64;

/// Size of a session's messages that wait for its worker, in bytes, together with those that the caller counts. The caller reads it from
/// any thread.
pub type QueuedBytes = Arc<AtomicUsize>;

/// Bytes that messages which wait together need.
fn weight(messages: &Messages) -> usize {
    MESSAGE_OVERHEAD_BYTES + messages.iter().map(|message| message.data().len()).sum::<usize>()
}

/// A session.
pub(crate) struct Session {
    pub(crate) state: State,
    /// The client's request, until it is answered.
    pub(crate) handshake: Option<Json>,
    /// Messages that wait for the worker.
    pub(crate) queue: VecDeque<Messages>,
    /// Count of the worker's frame with the last message.
    pub(crate) written: u64,
    /// Weight of the queue.
    queue_bytes: usize,
    /// Receives the changes of `queue_bytes`.
    queued: QueuedBytes,
    /// `true` from [`crate::Action::Pause`] or [`crate::Application::handle_full`] to [`crate::Action::Continue`].
    pub(crate) is_paused: bool,
    /// `true` while the session is among those that wait for room on the link.
    pub(crate) is_blocked: bool,
    /// `true` if the caller waits until the messages so far are handled.
    pub(crate) is_confirming: bool,
    /// `true` from RELEASE until another worker has the session.
    pub(crate) is_moving: bool,
}

impl Session {
    pub(crate) fn new(state: State, handshake: Json, queued: QueuedBytes) -> Self {
        Self {
            state,
            handshake: Some(handshake),
            queue: VecDeque::new(),
            written: 0,
            queue_bytes: 0,
            queued,
            is_paused: false,
            is_blocked: false,
            is_confirming: false,
            is_moving: false,
        }
    }

    /// Counts messages that are added to the queue. Returns their weight.
    pub(crate) fn count_queued(&mut self, messages: &Messages) -> usize {
        let bytes = weight(messages);
        self.queue_bytes += bytes;
        self.queued.fetch_add(bytes, Ordering::Relaxed);
        bytes
    }

    /// Subtracts all messages of the queue. Returns their weight.
    pub(crate) fn forget_queued(&mut self) -> usize {
        let bytes = std::mem::take(&mut self.queue_bytes);
        self.queued.fetch_sub(bytes, Ordering::Relaxed);
        bytes
    }

    /// Subtracts messages that have left the queue. Returns their weight.
    pub(crate) fn discount_queued(&mut self, messages: &Messages) -> usize {
        let bytes = weight(messages);
        self.queue_bytes -= bytes;
        self.queued.fetch_sub(bytes, Ordering::Relaxed);
        bytes
    }
}
