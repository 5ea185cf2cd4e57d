//! What is kept for each connection on every kernel.

use crate::TimerId;

/// ```text
///  connect ──> Connecting ──Connected──> Open ──finish──> Finishing ──Closed──> (gone)
///  accept, attach ──────────────────────┘
/// ```
/// `close`, `detach` and errors lead out of every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Connecting,
    Open,
    /// Our side sends what is left and ends; the other side's bytes are discarded.
    Finishing,
}

/// What is kept for each connection, with the socket as its kernel knows it.
pub(crate) struct Connection<S> {
    pub(crate) socket: S,
    /// Ends a `finish` that takes too long.
    pub(crate) linger: Option<TimerId>,
    pub(crate) state: State,
}

pub(crate) struct State {
    pub(crate) phase: Phase,
    /// There may be bytes to read, or the end of file.
    pub(crate) readable: bool,
    /// There may be room to write, or the connection is established or refused.
    pub(crate) writable: bool,
    /// The peer has ended its side, or the connection is broken: no edge reports the end of file after what
    /// is still to be read, so a short read doesn't mean that there is nothing more.
    pub(crate) ending: bool,
    /// The connection is gone in both directions; what was received before can still be read.
    pub(crate) broken: bool,
    /// The end of file has been read.
    pub(crate) ended: bool,
    pub(crate) paused: bool,
    /// [`crate::Event::EndPending`] has been returned since the last call of [`crate::Driver::pause`].
    pub(crate) end_reported: bool,
    /// It stands in the driver's queue.
    pub(crate) queued: bool,
    /// Our side has been shut down.
    pub(crate) shut: bool,
}

impl<S> Connection<S> {
    pub(crate) fn new(socket: S, phase: Phase) -> Self {
        let state = State {
            phase,
            readable: false,
            writable: false,
            ending: false,
            broken: false,
            ended: false,
            paused: false,
            end_reported: false,
            queued: false,
            shut: false,
        };
        Self { socket, linger: None, state }
    }
}

impl State {
    /// Notes that the kernel reports the end of both directions, or an error.
    #[cold]
    pub(crate) fn hang_up(&mut self, is_error: bool) {
        self.readable = true;
        self.ending = true;
        // Of an open connection that hasn't failed, both directions end only if it is one of a pair of Unix sockets whose other end
        // was closed. What that end has sent is still there, as with TCP.
        self.broken |= is_error || self.ended || self.phase != Phase::Open;
    }

    /// Whether the end of what the peer of a paused connection sends is to be reported.
    pub(crate) fn has_end_to_report(&self) -> bool {
        self.ending && self.paused && !self.ended && !self.end_reported
    }

    /// Notes that nothing can be sent any more.
    pub(crate) fn fail(&mut self) {
        self.broken = true;
        self.ending = true;
    }
}
