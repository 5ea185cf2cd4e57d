//! Messages that wait to be published, in order.

use super::parts::{self, WHOLE};
use super::protocol;
use crate::engine::{EngineError, Limits};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stentor_edge::{Charge, Class, Ledger};

struct Message {
    subject: String,
    payload: Bytes,
    /// Of a message in parts: which it is, and how much of it was written.
    id: u64,
    written: usize,
}

#[derive(Default)]
struct Waiting {
    messages: VecDeque<Message>,
    /// Of these and of those that are being written.
    count: usize,
}

/// How much of a batch counts as waiting until it is written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    count: usize,
    bytes: usize,
}

/// What waits to be published.
pub(super) struct Outgoing {
    waiting: Mutex<Waiting>,
    /// The size of what waits, and of what is being written. Changed while the messages are locked.
    charge: Charge,
}

/// What a message counts.
fn bytes_of(subject: &str, payload: &Bytes) -> usize {
    size_of::<Message>() + subject.len() + payload.len()
}

impl Outgoing {
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        Self { waiting: Mutex::default(), charge: Charge::new(ledger, Class::Cluster) }
    }

    /// Messages that wait or are being written, and their size in bytes.
    pub(super) fn unsent(&self) -> (usize, usize) {
        (self.waiting().count, self.charge.bytes())
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, limits: &Limits, subject: String, payload: Bytes) -> Result<(), EngineError> {
        let bytes = bytes_of(&subject, &payload);
        let mut waiting = self.waiting();
        let is_full = waiting.count >= limits.outgoing_messages_max
            || (waiting.count > 0 && self.charge.bytes() + bytes > limits.outgoing_bytes_max);
        if is_full {
            return Err(EngineError::Full);
        }
        waiting.count += 1;
        self.charge.add(bytes);
        waiting.messages.push_back(Message { subject, payload, id: fastrand::u64(..), written: 0 });
        Ok(())
    }

    /// A new connection: a message in parts starts again.
    pub(super) fn begin(&self) {
        if let Some(first) = self.waiting().messages.front_mut() {
            (first.id, first.written) = (fastrand::u64(..), 0);
        }
    }

    /// Appends commands until `to` has about `bytes_max` bytes.
    pub(super) fn take(&self, to: &mut Vec<u8>, bytes_max: usize, part_bytes_max: usize) -> Written {
        let mut taken = Written::default();
        let waiting = &mut *self.waiting();
        while to.len() < bytes_max
            && let Some(first) = waiting.messages.front_mut()
        {
            let (total, rest) = (first.payload.len(), &first.payload[first.written..]);
            if total <= part_bytes_max {
                protocol::publish(to, &first.subject, "", "", &[WHOLE, rest]);
            } else {
                let is_last = rest.len() <= part_bytes_max;
                let part = &rest[..rest.len().min(part_bytes_max)];
                let start = parts::start(first.id, total, is_last);
                protocol::publish(to, &first.subject, "", "", &[&start, part]);
                first.written += part.len();
                if !is_last {
                    continue;
                }
            }
            taken.count += 1;
            taken.bytes += bytes_of(&first.subject, &first.payload);
            waiting.messages.pop_front();
        }
        taken
    }

    pub(super) fn done(&self, written: Written) {
        let mut waiting = self.waiting();
        waiting.count -= written.count;
        self.charge.subtract(written.bytes);
    }
}
