//! Reads from direct descriptors, which no call can do, with operations in batches.
//!
//! At most one receive is in progress per connection. It doesn't wait (the poll has fired), so it completes
//! with the enter that submits it; until then it owns one of a few buffers. The received bytes are copied to
//! separate memory, because they may be needed for longer than the buffer is available: until their
//! connection is stepped, and not paused.
//!
//! Invariant: a buffer to which an operation writes is not touched before it completes. (If the receives were
//! dropped while some are submitted, their buffers would be leaked, not freed.)

#![allow(unsafe_code)] // The kernel is given addresses.

use super::ring::{Ring, Target, on};
use super::token::{OperationId, Token};
use crate::ConnId;
use crate::slab::Slab;
use io_uring::opcode;
use io_uring::types::{Fd, Fixed};
use rustix::io::Errno;
use std::ptr::NonNull;

/// Maximum number of receives in progress, each with a buffer.
const RECEIVES_MAX: usize = 64;

/// Maximum size in bytes of a receive's buffer. There is one buffer per receive in progress.
const BUFFER_BYTES_MAX: usize = 16 * 1024;

struct Receive {
    /// `None` after the connection has ended.
    conn: Option<ConnId>,
    state: State,
}

enum State {
    /// The kernel may write to the buffer.
    Submitted(Buffer),
    Completed(Result<Box<[u8]>, Errno>),
}

/// A buffer that currently belongs to the kernel, hence no reference.
struct Buffer(NonNull<[u8]>);

// SAFETY: the pointer is a box whose content only the kernel touches.
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

    /// Starts a receive; `None` if the maximum number is in progress.
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

    /// Records the result of a receive. Returns the connection that waits for it, if there is one, and `true`
    /// if the buffer was filled, so that there may be more bytes.
    pub(super) fn complete(&mut self, id: OperationId, result: Result<u32, Errno>) -> Option<(ConnId, bool)> {
        let receive = self.receives.at_mut(id.index());
        let State::Submitted(Buffer(buffer)) = receive.state else {
            panic!("{id:?} completes twice");
        };
        self.submitted -= 1;
        // SAFETY: the buffer was leaked from a box by `begin`, and the kernel no longer uses it.
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

    /// Takes the received bytes (empty at the end of file), after which the id is dead. `None` while the
    /// receive is in progress.
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

    /// Abandons a receive whose result is no longer needed.
    pub(super) fn abandon(&mut self, id: OperationId) {
        if self.take(id).is_none() {
            self.receives.at_mut(id.index()).conn = None;
        }
    }

    /// Returns the number of receives in progress, and of received buffers that wait for their connection's
    /// step.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.receives.len()
    }

    /// Returns the number of receives to which the kernel may write.
    pub(super) fn submitted(&self) -> usize {
        self.submitted
    }
}
