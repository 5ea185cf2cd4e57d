//! Handing frames to the kernel: as few calls as possible, in order.
//!
//! One frame goes by `send`, a run of several by `sendmsg`, one in a memfd by `sendfile` (which copies
//! nothing). MSG_MORE on everything that something follows directly, so that the pieces share segments.
//!
//! `sendfile` knows no MSG_NOSIGNAL: the process must ignore SIGPIPE, as Rust's runtime arranges.

use crate::backlog::Cursor;
use crate::frame::{Frame, View};
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};

/// Frames in one `sendmsg` at most: UIO_MAXIOV of the kernel.
const RUN_MAX: usize = 1024;

/// Below this, the array of slices is small enough to be made for every call.
const RUN_SMALL: usize = 16;

/// What became of a transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The kernel has taken everything.
    Done,
    /// The socket is full; an edge will tell when it isn't.
    Stalled,
    /// The connection is broken.
    Failed(Errno),
}

/// Sends `bytes`; how many were taken is added to `taken`.
pub(crate) fn transmit_bytes(socket: BorrowedFd<'_>, bytes: &[u8], taken: &mut usize) -> Progress {
    while *taken < bytes.len() {
        match send(socket, &bytes[*taken..], SendFlags::NOSIGNAL) {
            Ok(sent) => *taken += sent,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Progress::Stalled,
            Err(error) => return Progress::Failed(error),
        }
    }
    Progress::Done
}

/// Sends `frames` from `cursor` on and moves it; a frame that the cursor has passed may be released.
pub(crate) fn transmit(socket: BorrowedFd<'_>, frames: &[Frame], cursor: &mut Cursor) -> Progress {
    loop {
        cursor.advance(frames, 0); // past empty frames
        let Some(frame) = frames.get(cursor.frame) else { return Progress::Done };
        let result = match frame.view() {
            View::File(file) => {
                let mut offset = cursor.offset as u64;
                sendfile(socket, file.file(), Some(&mut offset), file.len() - cursor.offset)
            }
            View::Memory(bytes) => {
                match frames[cursor.frame..].iter().take(RUN_MAX).take_while(in_memory).count() {
                    1 => {
                        let more = cursor.frame + 1 < frames.len();
                        send(socket, &bytes[cursor.offset..], flags(more))
                    }
                    run @ ..=RUN_SMALL => send_run::<RUN_SMALL>(socket, frames, *cursor, run),
                    run => send_run::<RUN_MAX>(socket, frames, *cursor, run),
                }
            }
        };
        match result {
            // The file is shorter than it was made: someone has broken the seal.
            Ok(0) => return Progress::Failed(Errno::IO),
            Ok(sent) => cursor.advance(frames, sent),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Progress::Stalled,
            Err(error) => return Progress::Failed(error),
        }
    }
}

fn in_memory(frame: &&Frame) -> bool {
    !frame.is_file()
}

fn flags(more: bool) -> SendFlags {
    if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL }
}

fn send_run<const N: usize>(
    socket: BorrowedFd<'_>,
    frames: &[Frame],
    cursor: Cursor,
    run: usize,
) -> rustix::io::Result<usize> {
    let end = cursor.frame + run;
    let mut slices = [IoSlice::new(&[]); N];
    for (slice, frame) in slices.iter_mut().zip(&frames[cursor.frame..end]) {
        if let View::Memory(bytes) = frame.view() {
            *slice = IoSlice::new(bytes);
        }
    }
    slices[0].advance(cursor.offset);
    sendmsg(socket.as_fd(), &slices[..run], &mut SendAncillaryBuffer::default(), flags(end < frames.len()))
}
