//! What is kept for each connection: 56 bytes, and an extra only while there is something in it.

use super::transmit::{Progress, transmit};
use crate::TimerId;
use crate::backlog::Backlog;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

/// ```text
///  connect ──> Connecting ──Connected──> Open ──finish──> Finishing ──Closed──> (gone)
///  accept, attach ──────────────────────┘
/// ```
/// `close`, `detach` and errors lead out of every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Connecting,
    Open,
    /// Our side sends what is left and ends; the other side's bytes are discarded.
    Finishing,
}

pub(super) struct Connection {
    pub(super) fd: OwnedFd,
    pub(super) phase: Phase,
    /// There may be bytes to read, or the end of file.
    pub(super) readable: bool,
    /// There was room to write since the backlog was last tried.
    pub(super) writable: bool,
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
    pub(super) extra: Option<Box<Extra>>,
    pub(super) peer: SocketAddr,
}

/// What a connection holds only now and then.
#[derive(Default)]
pub(super) struct Extra {
    /// In flight, and not yet taken by the kernel. After an error it stays until that is reported.
    pub(super) backlog: Option<Backlog>,
    /// Why sending failed.
    pub(super) error: Option<Errno>,
    /// Ends a `finish` that takes too long.
    pub(super) linger: Option<TimerId>,
}

impl Connection {
    pub(super) fn new(fd: OwnedFd, phase: Phase, peer: SocketAddr) -> Self {
        Self {
            fd,
            phase,
            readable: false,
            writable: false,
            ending: false,
            broken: false,
            ended: false,
            paused: false,
            queued: false,
            shut: false,
            extra: None,
            peer,
        }
    }

    /// Records what epoll reported.
    pub(super) fn record(&mut self, flags: EventFlags) {
        self.readable |= flags.intersects(EventFlags::IN | EventFlags::RDHUP);
        self.writable |= flags.contains(EventFlags::OUT);
        self.ending |= flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        self.broken |= flags.intersects(EventFlags::HUP | EventFlags::ERR);
    }

    fn backlog(&self) -> Option<&Backlog> {
        self.extra.as_ref()?.backlog.as_ref()
    }

    /// Bytes in flight that the kernel hasn't taken.
    pub(super) fn in_flight_bytes(&self) -> usize {
        self.backlog().map_or(0, Backlog::bytes)
    }

    /// Whether a send is in flight (a failed one included, until it is reported).
    pub(super) fn in_flight(&self) -> bool {
        self.backlog().is_some()
    }

    /// Why sending failed.
    pub(super) fn error(&self) -> Option<Errno> {
        self.extra.as_ref()?.error
    }

    /// Keeps what the kernel didn't take.
    pub(super) fn keep(&mut self, backlog: Backlog, error: Option<Errno>) {
        self.extra = Some(Box::new(Extra { backlog: Some(backlog), error, linger: None }));
    }

    /// Goes on with the backlog; `Done` if there is none any more.
    pub(super) fn transmit_backlog(&mut self, cork: &mut Vec<u8>) -> Progress {
        let Some(extra) = &mut self.extra else { return Progress::Done };
        let Some(backlog) = &mut extra.backlog else { return Progress::Done };
        let progress = backlog.transmit(|frames, cursor| transmit(self.fd.as_fd(), frames, cursor, cork));
        match progress {
            Progress::Done if extra.linger.is_none() => self.extra = None,
            Progress::Done => extra.backlog = None,
            Progress::Stalled => {}
            Progress::Failed(error) => extra.error = Some(error),
        }
        progress
    }
}
