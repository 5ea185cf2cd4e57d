//! What is kept for each connection: 56 bytes, and a backlog only while there is something to keep.

use super::transmit::{Cursor, Progress, transmit};
use crate::TimerId;
use crate::frame::Frame;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::collections::VecDeque;
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
    pub(super) backlog: Option<Box<Backlog>>,
    pub(super) peer: SocketAddr,
}

/// What a connection holds only now and then.
#[derive(Default)]
pub(super) struct Backlog {
    /// In flight, and not yet taken by the kernel. The first one lacks its first `offset` bytes.
    frames: VecDeque<Frame>,
    offset: usize,
    bytes: usize,
    /// Why sending failed. The frames stay until the connection is reported closed.
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
            backlog: None,
            peer,
        }
    }

    /// Notes what epoll has told.
    pub(super) fn note(&mut self, flags: EventFlags) {
        self.readable |= flags.intersects(EventFlags::IN | EventFlags::RDHUP);
        self.writable |= flags.contains(EventFlags::OUT);
        self.ending |= flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        self.broken |= flags.intersects(EventFlags::HUP | EventFlags::ERR);
    }

    /// Bytes in flight that the kernel hasn't taken.
    pub(super) fn backlog_bytes(&self) -> usize {
        self.backlog.as_ref().map_or(0, |backlog| backlog.bytes)
    }

    /// Whether a send is in flight (a failed one included, until it is reported).
    pub(super) fn in_flight(&self) -> bool {
        self.backlog_bytes() > 0
    }

    /// Keeps what the kernel didn't take: the frames from `cursor` on.
    pub(super) fn keep(&mut self, frames: impl Iterator<Item = Frame>, offset: usize, error: Option<Errno>) {
        let frames: VecDeque<Frame> = frames.collect();
        let bytes = frames.iter().map(Frame::len).sum::<usize>() - offset;
        self.backlog = Some(Box::new(Backlog { frames, offset, bytes, error, linger: None }));
    }

    /// Goes on with the backlog; `Done` if there is none.
    pub(super) fn transmit_backlog(&mut self) -> Progress {
        let Some(backlog) = &mut self.backlog else { return Progress::Done };
        // Built once and only popped, so it never wraps.
        let mut cursor = Cursor { frame: 0, offset: backlog.offset };
        let progress = transmit(self.fd.as_fd(), backlog.frames.make_contiguous(), &mut cursor);
        backlog.frames.drain(..cursor.frame);
        backlog.offset = cursor.offset;
        // Few frames are left by now, mostly; and it happens once per edge.
        backlog.bytes = backlog.frames.iter().map(Frame::len).sum::<usize>() - backlog.offset;
        if let Progress::Failed(error) = progress {
            backlog.error = Some(error);
        }
        progress
    }
}
