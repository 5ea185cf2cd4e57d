//! Sends in flight. They own the frames while the kernel reads them.
//!
//! ```text
//!            submit                complete: some of it
//!  Waiting ──────────> Submitted ───────────────────────> Waiting
//!     │                   │ complete: all of it ────────> Completed ──end──> (gone)
//!     │                   │ complete: an error ─────────> Failed ──end──> (gone)
//!     │ transmit          │ abandon ──> Submitted, without a connection ──complete──> (gone)
//!     └─> Completed, Failed
//! ```
//! At most one operation is in progress per flight. One frame is sent with SEND, several with SENDMSG. Frames
//! in a memfd, and other frames in the same send, are sent with calls ([`transmit`]).
//!
//! Invariant: memory to which a submitted flight refers is neither changed nor released before it completes.
//! All code that could do so is in this module; the flights must be leaked if they are dropped while some are
//! submitted ([`Flights::leak`]).

#![allow(unsafe_code)] // The kernel is given addresses.

use super::ring::{Ring, Target, on};
use super::token::{OperationId, Token};
use crate::ConnId;
use crate::backlog::{Backlog, Cursor, Progress, charge_owned};
use crate::slab::Slab;
use crate::transmit::{CORK_BYTES, RUN_MAX, SMALL_BYTES, transmit};
use io_uring::opcode;
use io_uring::types::{Fd, Fixed};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use stentor_frame::{Charge, Frame, Meter, View};

/// Maximum number of bytes in one operation (but at least one frame's rest or this many of its bytes). The
/// kernel only reports complete operations, so this is the granularity of a slow connection's progress.
const OPERATION_BYTES_MAX: usize = 128 * 1024;

/// Maximum number of spare runs kept for later flights; further ones are freed.
const SPARE_MAX: usize = 64;

/// The state of a flight; see the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    Submitted,
    Completed,
    Failed(Errno),
}

/// The frames that the kernel has not accepted.
enum PendingFrames {
    /// The most common case, which needs no allocation.
    One {
        frame: Frame,
        offset: usize,
    },
    Many(Backlog),
    /// The kernel has accepted all of them.
    None,
}

struct Flight {
    /// `None` after the connection has ended.
    conn: Option<ConnId>,
    state: State,
    /// `true` if the flight is sent with calls, not by the ring.
    by_call: bool,
    /// Number of bytes that the kernel hasn't accepted; for a completed flight, the number that its last
    /// operation sent.
    bytes: usize,
    frames: PendingFrames,
    run: Option<Box<Run>>,
    /// Charge of a single frame; a backlog has its own.
    _charge: Option<Charge>,
}

/// The memory to which a SENDMSG refers.
struct Run {
    header: libc::msghdr,
    slices: Vec<libc::iovec>,
}

// SAFETY: its pointers go to its own slices and to the frames of its flight, which move with it; only the
// kernel follows them.
unsafe impl Send for Run {}

/// All flights of a driver.
pub(super) struct Flights {
    flights: Slab<Flight>,
    submitted: usize,
    /// Counts bytes that belong to one connection alone.
    owned: Meter,
    #[allow(clippy::vec_box)] // It goes into a flight as it is.
    spare: Vec<Box<Run>>,
}

impl Flights {
    pub(super) fn new() -> Self {
        Self { flights: Slab::new(), submitted: 0, owned: Meter::default(), spare: Vec::new() }
    }

    /// Takes over `frames` from `cursor` on. The vector is left empty, its capacity kept.
    pub(super) fn begin(&mut self, conn: ConnId, frames: &mut Vec<Frame>, cursor: Cursor) -> OperationId {
        let by_call = frames.iter().any(Frame::is_file);
        let bytes = frames.iter().map(Frame::len).sum::<usize>();
        let frames = if frames.len() == 1 {
            frames
                .pop()
                .map_or(PendingFrames::None, |frame| PendingFrames::One { frame, offset: cursor.offset })
        } else if !by_call && bytes <= CORK_BYTES.min(frames.len() * SMALL_BYTES) {
            // Small slices are copied, because a slice costs the kernel more than its copy.
            let mut copy = Vec::with_capacity(bytes);
            frames.drain(..).skip(cursor.frame).for_each(|frame| copy.extend_from_slice(&frame.bytes()));
            PendingFrames::One { frame: Frame::owned(copy), offset: cursor.offset }
        } else {
            PendingFrames::Many(Backlog::of(frames, cursor, &self.owned))
        };
        self.insert(conn, frames, by_call)
    }

    /// Takes over a copy of bytes.
    pub(super) fn begin_bytes(&mut self, conn: ConnId, bytes: &[u8]) -> OperationId {
        self.insert(conn, PendingFrames::One { frame: Frame::owned(bytes.to_vec()), offset: 0 }, false)
    }

    fn insert(&mut self, conn: ConnId, frames: PendingFrames, by_call: bool) -> OperationId {
        let bytes = frames.bytes();
        let _charge = match &frames {
            PendingFrames::One { frame, .. } => charge_owned([frame], &self.owned),
            PendingFrames::Many(_) | PendingFrames::None => None,
        };
        let flight =
            Flight { conn: Some(conn), state: State::Waiting, by_call, bytes, frames, run: None, _charge };
        OperationId::of(self.flights.insert(flight).index)
    }

    pub(super) fn state(&self, id: OperationId) -> State {
        self.flights.at(id.index()).state
    }

    /// Returns `true` if a flight must be sent with [`Flights::transmit`], not with [`Flights::submit`].
    pub(super) fn is_by_call(&self, id: OperationId) -> bool {
        self.flights.at(id.index()).by_call
    }

    /// Returns the number of bytes that the kernel hasn't accepted or hasn't reported as accepted; never 0.
    pub(super) fn bytes(&self, id: OperationId) -> usize {
        self.flights.at(id.index()).bytes
    }

    /// Returns the bytes of all flights that belong to one connection alone.
    pub(super) fn owned_bytes(&self) -> usize {
        self.owned.bytes()
    }

    /// Returns the number of flights from which the kernel reads.
    pub(super) fn submitted(&self) -> usize {
        self.submitted
    }

    /// Starts the next operation of a waiting flight.
    pub(super) fn submit(&mut self, id: OperationId, ring: &mut Ring, target: Target) {
        let flight = self.flights.at_mut(id.index());
        assert!(flight.state == State::Waiting && !flight.by_call, "{:?}", flight.state);
        let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        let entry = match &mut flight.frames {
            PendingFrames::One { frame, offset } => {
                let View::Memory(bytes) = frame.view() else { return };
                let left = &bytes[*offset..];
                let len = left.len().min(OPERATION_BYTES_MAX);
                let flags = if len < left.len() { flags | libc::MSG_MORE } else { flags };
                on!(target, |fd| opcode::Send::new(fd, left.as_ptr(), len as u32).flags(flags).build())
            }
            PendingFrames::Many(backlog) => {
                let run = flight.run.get_or_insert_with(|| self.spare.pop().unwrap_or_else(Run::empty));
                let more = backlog.transmit(|frames, cursor| run.fill(frames, *cursor));
                let flags = if more { flags | libc::MSG_MORE } else { flags };
                let header = &raw const run.header;
                on!(target, |fd| opcode::SendMsg::new(fd, header).flags(flags as u32).build())
            }
            PendingFrames::None => return,
        };
        flight.state = State::Submitted;
        self.submitted += 1;
        // SAFETY: the entry refers to the frames and the run of a flight that is submitted now: this module
        // keeps them unchanged until it completes. They are on the heap, so moving the flight doesn't move
        // them.
        unsafe { ring.push(entry.user_data(Token::Send(id).to_bits())) };
    }

    /// Records the result of a flight's operation. Returns the connection that waits for it, if there is one.
    pub(super) fn complete(&mut self, id: OperationId, result: Result<u32, Errno>) -> Option<ConnId> {
        let flight = self.flights.at_mut(id.index());
        assert_eq!(flight.state, State::Submitted);
        self.submitted -= 1;
        flight.state = match result {
            // An empty operation is never submitted.
            Ok(0) => State::Failed(Errno::IO),
            Ok(taken) => {
                flight.frames.advance(taken as usize);
                match flight.frames.bytes() {
                    0 => State::Completed,
                    left => {
                        flight.bytes = left;
                        State::Waiting
                    }
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => State::Waiting,
            Err(error) => State::Failed(error),
        };
        if flight.state != State::Waiting {
            flight.frames = PendingFrames::None;
        }
        if flight.conn.is_none() {
            self.end(id);
            return None;
        }
        flight.conn
    }

    /// Sends from a flight that is sent with calls.
    pub(super) fn transmit(
        &mut self,
        id: OperationId,
        socket: BorrowedFd<'_>,
        cork: &mut Vec<u8>,
    ) -> Progress {
        let flight = self.flights.at_mut(id.index());
        assert_eq!(flight.state, State::Waiting);
        let progress = match &mut flight.frames {
            PendingFrames::One { frame, offset } => {
                let mut cursor = Cursor { frame: 0, offset: *offset };
                let progress = transmit(socket, std::slice::from_ref(frame), &mut cursor, cork);
                *offset = if cursor.frame == 0 { cursor.offset } else { frame.len() };
                progress
            }
            PendingFrames::Many(backlog) => {
                backlog.transmit(|frames, cursor| transmit(socket, frames, cursor, cork))
            }
            PendingFrames::None => Progress::Done,
        };
        match progress {
            Progress::Done => flight.state = State::Completed,
            Progress::Stalled => flight.bytes = flight.frames.bytes(),
            Progress::Failed(error) => flight.state = State::Failed(error),
        }
        progress
    }

    /// Fails a waiting flight that will not be sent.
    pub(super) fn fail(&mut self, id: OperationId, error: Errno) -> Progress {
        let flight = self.flights.at_mut(id.index());
        assert_eq!(flight.state, State::Waiting);
        flight.state = State::Failed(error);
        Progress::Failed(error)
    }

    /// Releases a flight that is not submitted.
    pub(super) fn end(&mut self, id: OperationId) {
        let key = self.flights.key_at(id.index());
        assert_ne!(self.flights.at(key.index).state, State::Submitted);
        if let Some(run) = self.flights.remove(key).and_then(|flight| flight.run)
            && self.spare.len() < SPARE_MAX
        {
            self.spare.push(run);
        }
    }

    /// Releases a flight as soon as possible. Returns `true` if the flight is submitted, so that its
    /// operation must be cancelled.
    pub(super) fn abandon(&mut self, id: OperationId) -> bool {
        let flight = self.flights.at_mut(id.index());
        if flight.state == State::Submitted {
            flight.conn = None;
            return true;
        }
        self.end(id);
        false
    }

    /// Leaks the memory of all flights, because the kernel may still read from it.
    pub(super) fn leak(&mut self) {
        std::mem::forget(std::mem::replace(&mut self.flights, Slab::new()));
    }
}

impl PendingFrames {
    fn bytes(&self) -> usize {
        match self {
            Self::One { frame, offset } => frame.len() - offset,
            Self::Many(backlog) => backlog.bytes(),
            Self::None => 0,
        }
    }

    fn advance(&mut self, bytes: usize) {
        match self {
            Self::One { offset, .. } => *offset += bytes,
            Self::Many(backlog) => backlog.transmit(|frames, cursor| cursor.advance(frames, bytes)),
            Self::None => {}
        }
    }
}

impl Run {
    fn empty() -> Box<Self> {
        // SAFETY: a message header of zeros has no address and no data.
        Box::new(Self { header: unsafe { std::mem::zeroed() }, slices: Vec::new() })
    }

    /// Refers to the part of `frames` from `cursor` on that fits one operation. Returns `true` if there is
    /// more.
    fn fill(&mut self, frames: &[Frame], cursor: Cursor) -> bool {
        self.slices.clear();
        let mut room = OPERATION_BYTES_MAX;
        let mut offset = cursor.offset;
        let mut more = false;
        for frame in &frames[cursor.frame..] {
            let View::Memory(bytes) = frame.view() else { break };
            let left = &bytes[std::mem::take(&mut offset)..];
            if left.is_empty() {
                continue;
            }
            if room == 0 || self.slices.len() == RUN_MAX {
                more = true;
                break;
            }
            let taken = left.len().min(room);
            room -= taken;
            more = taken < left.len();
            self.slices.push(libc::iovec { iov_base: left.as_ptr().cast_mut().cast(), iov_len: taken });
        }
        self.header.msg_iov = self.slices.as_mut_ptr();
        self.header.msg_iovlen = self.slices.len() as _; // musl declares an int
        more
    }
}
