//! Reading from direct descriptors, which no call can do: by operations, in batches.
//!
//! One receive is under way per connection at most. It doesn't wait (the poll has fired), so it completes with
//! the enter that submits it; until then it owns one of a few buffers. What it got is copied to memory of its
//! own, as it may stay longer than the buffer can be spared: until its connection is stepped, and not paused.
//!
//! Invariant: a buffer that an operation writes to is not touched before it completes. (Were the receives
//! dropped while some are submitted, their buffers would be lost, not freed.)

#![allow(unsafe_code)] // The kernel is given addresses.

use super::ring::{Ring, Target, on};
use super::token::{OperationId, Token};
use crate::ConnId;
use crate::slab::Slab;
use io_uring::opcode;
use io_uring::types::{Fd, Fixed};
use rustix::io::Errno;
use std::ptr::NonNull;

/// Receives under way at most, each with a buffer.
const RECEIVES_MAX: usize = 64;

/// Size of a buffer at most: there are as many as receives under way.
const BUFFER_BYTES_MAX: usize = 16 * 1024;

struct Receive {
    /// `None` after the connection has ended.
    conn: Option<ConnId>,
    state: State,
}

enum State {
    /// The kernel may write there.
    Submitted(Buffer),
    Completed(Result<Box<[u8]>, Errno>),
}

/// A buffer that is the kernel's for now, hence no reference.
struct Buffer(NonNull<[u8]>);

// SAFETY: it is a box whose content only the kernel touches.
unsafe impl Send for Buffer {}

/// All receives of a driver.
pub(super) struct Receives {
    receives: Slab<Receive>,
    submitted: usize,
    spare: Vec<Box<[u8]>>,
    buffer_bytes: usize,
}

impl Receives {
    pub(super) fn new(buffer_bytes: usize) -> Self {
        let buffer_bytes = buffer_bytes.min(BUFFER_BYTES_MAX);
        Self { receives: Slab::new(), submitted: 0, spare: Vec::new(), buffer_bytes }
    }

    /// Begins to receive; `None` where as many as may be are under way.
    pub(super) fn begin(&mut self, conn: ConnId, ring: &mut Ring, target: Target) -> Option<OperationId> {
        if self.submitted == RECEIVES_MAX {
            return None;
        }
        let buffer = self.spare.pop().unwrap_or_else(|| vec![0; self.buffer_bytes].into_boxed_slice());
        let buffer = NonNull::from(Box::leak(buffer));
        let state = State::Submitted(Buffer(buffer));
        let id = OperationId::of(self.receives.insert(Receive { conn: Some(conn), state }).index);
        self.submitted += 1;
        let (start, len) = (buffer.cast::<u8>().as_ptr(), buffer.len() as u32);
        let entry = on!(target, |fd| opcode::Recv::new(fd, start, len).flags(libc::MSG_DONTWAIT).build());
        // SAFETY: the buffer is leaked, and made a box again only when this operation completes.
        unsafe { ring.push(entry.user_data(Token::Receive(id).to_bits())) };
        Some(id)
    }

    /// Notes what became of a receive: the connection that waits for it, if any does, and whether it has filled
    /// its buffer, so that there may be more.
    pub(super) fn complete(&mut self, id: OperationId, result: Result<u32, Errno>) -> Option<(ConnId, bool)> {
        let receive = self.receives.at_mut(id.index());
        let State::Submitted(Buffer(buffer)) = receive.state else {
            panic!("{id:?} completes twice");
        };
        self.submitted -= 1;
        // SAFETY: it was leaked from a box by `begin`, and the kernel no longer uses it.
        let buffer = unsafe { Box::from_raw(buffer.as_ptr()) };
        let received: Result<Box<[u8]>, Errno> =
            result.map(|len| buffer[..(len as usize).min(buffer.len())].into());
        self.spare.push(buffer);
        let Some(conn) = receive.conn else {
            self.receives.remove(self.receives.key_at(id.index()));
            return None;
        };
        let full = matches!(&received, Ok(bytes) if bytes.len() == self.buffer_bytes);
        receive.state = State::Completed(received);
        Some((conn, full))
    }

    /// What has been received (nothing: the end of file); `None` while it is under way. Then the id is dead.
    pub(super) fn take(&mut self, id: OperationId) -> Option<Result<Box<[u8]>, Errno>> {
        let key = self.receives.key_at(id.index());
        if matches!(self.receives.at(key.index).state, State::Submitted(_)) {
            return None;
        }
        match self.receives.remove(key)?.state {
            State::Completed(received) => Some(received),
            State::Submitted(_) => None,
        }
    }

    /// Nobody waits for it any more.
    pub(super) fn abandon(&mut self, id: OperationId) {
        if self.take(id).is_none() {
            self.receives.at_mut(id.index()).conn = None;
        }
    }

    /// Receives under way, and what has been received and waits for its connection's step.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.receives.len()
    }

    /// Receives that the kernel may write to.
    pub(super) fn submitted(&self) -> usize {
        self.submitted
    }
}
