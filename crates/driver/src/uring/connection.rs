//! What is kept for each connection. What it sends is kept in [`super::flight`], and only while it sends.

use super::flight::FlightId;
use super::receive::ReceiveId;
use super::rings::Socket;
use crate::TimerId;
use rustix::event::PollFlags;
use std::net::SocketAddr;

/// What a connection polls for. Room to write is asked for only where a call has met a full socket.
pub(super) const EDGES: PollFlags = PollFlags::IN.union(PollFlags::RDHUP);

/// ```text
///  connect ──> Connecting ──Connected──> Open ──finish──> Finishing ──Closed──> (gone)
///  accept, attach ──────────────────────┘
/// ```
/// `close`, `detach` and errors lead out of every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Connecting,
    Open,
    /// Our side sends what is left and ends; the other side's bytes are discarded. At the latest the timer
    /// ends it.
    Finishing(TimerId),
}

pub(super) struct Connection {
    pub(super) socket: Socket,
    pub(super) phase: Phase,
    /// The ring polls it for [`EDGES`].
    pub(super) polled: bool,
    /// The ring polls it for room to write, once.
    pub(super) awaits_room: bool,
    /// There may be bytes to read, or the end of file.
    pub(super) readable: bool,
    /// There is room to write, or it is established, or neither will ever be.
    pub(super) writable: bool,
    /// The socket may have an error to tell.
    pub(super) suspect: bool,
    /// The peer has ended its side, or the connection is broken: no edge tells of the end of file after what
    /// is still to be read, so a short read doesn't mean that there is nothing more.
    pub(super) ending: bool,
    /// The connection is gone in both directions; what was received before can still be read.
    pub(super) broken: bool,
    /// The end of file has been read.
    pub(super) ended: bool,
    pub(super) paused: bool,
    /// It stands in the driver's queue.
    pub(super) queued: bool,
    /// Our side has been shut down.
    pub(super) shut: bool,
    pub(super) flight: Option<FlightId>,
    /// Only of a direct one.
    pub(super) receive: Option<ReceiveId>,
    pub(super) peer: SocketAddr,
}

impl Connection {
    pub(super) fn new(socket: Socket, phase: Phase, peer: SocketAddr) -> Self {
        Self {
            socket,
            phase,
            polled: false,
            awaits_room: false,
            readable: false,
            writable: false,
            suspect: false,
            ending: false,
            broken: false,
            ended: false,
            paused: false,
            queued: false,
            shut: false,
            flight: None,
            receive: None,
            peer,
        }
    }

    pub(super) fn is_finishing(&self) -> bool {
        matches!(self.phase, Phase::Finishing(_))
    }

    /// Records what the poll for [`EDGES`] reported.
    pub(super) fn record(&mut self, flags: PollFlags) {
        let broken = flags.intersects(PollFlags::HUP | PollFlags::ERR);
        self.readable |= flags.intersects(EDGES);
        self.ending |= broken || flags.contains(PollFlags::RDHUP);
        self.broken |= broken;
    }

    /// Whether an operation is to read it, and none does.
    pub(super) fn may_read_ahead(&self) -> bool {
        self.readable
            && !self.paused
            && !self.ended
            && self.receive.is_none()
            && self.phase != Phase::Connecting
            && matches!(self.socket, Socket::Direct { .. })
    }

    /// Notes that it can't send any more.
    pub(super) fn fail(&mut self) {
        self.broken = true;
        self.ending = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_takes_80_bytes() {
        // With the generation and the free list's link.
        assert!(size_of::<Option<Connection>>() + 8 <= 80, "{}", size_of::<Option<Connection>>());
    }
}
