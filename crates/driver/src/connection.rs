//! The state of a connection that every kernel needs.

use crate::TimerId;

/// ```text
///  connect ──> Connecting ──Connected──> Open ──finish──> Finishing ──Closed──> (gone)
///  accept, attach ──────────────────────┘
/// ```
/// `close`, `detach` and errors end every state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Connecting,
    Open,
    /// Our side sends the remaining frames and ends; bytes from the other side are discarded.
    Finishing,
}

/// The state of a connection, with its socket as its kernel represents it.
pub(crate) struct Connection<S> {
    pub(crate) socket: S,
    /// The timer that ends a `finish` that takes too long.
    pub(crate) linger: Option<TimerId>,
    pub(crate) state: State,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    /// `true` if there may be bytes to read, or the end of file.
    pub(crate) readable: bool,
    /// `true` if there may be room to write, or the connection is established or refused.
    pub(crate) writable: bool,
    /// `true` if the peer has ended its side, or the connection is broken. No edge reports the end of file
    /// after the unread bytes, so a short read doesn't mean that there are no more bytes.
    pub(crate) ending: bool,
    /// `true` if both directions are closed. Bytes received before can still be read.
    pub(crate) broken: bool,
    /// `true` if the end of file has been read.
    pub(crate) ended: bool,
    pub(crate) paused: bool,
    /// `true` if [`crate::Event::EndPending`] has been returned since the last call of [`crate::Driver::pause`].
    pub(crate) end_reported: bool,
    /// `true` if the connection is in the driver's queue.
    pub(crate) queued: bool,
    /// `true` if the write side has been shut down, or closing the socket will do so.
    pub(crate) shut: bool,
}

impl<S> Connection<S> {
    pub(crate) fn new(socket: S, phase: Phase) -> Self {
        Self { socket, linger: None, state: State { phase, ..State::default() } }
    }
}

impl State {
    /// Records that the kernel reports the end of both directions, or an error.
    #[cold]
    pub(crate) fn hang_up(&mut self, is_error: bool) {
        self.readable = true;
        self.ending = true;
        // If an open connection hasn't failed, both directions only end if it is one of a pair of Unix
        // sockets whose other end was closed. The bytes from that end are still readable, as with TCP.
        self.broken |= is_error || self.ended || self.phase != Phase::Open;
    }

    /// Returns `true` if the connection is paused, and the end of its peer's bytes must be reported.
    pub(crate) fn has_end_to_report(&self) -> bool {
        self.ending && self.paused && !self.ended && !self.end_reported
    }

    /// Records that sending is no longer possible.
    pub(crate) fn fail(&mut self) {
        self.broken = true;
        self.ending = true;
    }
}
