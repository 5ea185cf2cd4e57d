//! Messages that wait to be published, in order.

use super::permits::{Permit, Permits};
use crate::engine::{EngineError, Limits};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use stentor_ports::Ledger;
use tokio::sync::Notify;

/// A message. `P` is the state of one that is written in parts.
pub(crate) struct Message<P> {
    /// Name of the channel on the server.
    pub(crate) channel: String,
    pub(crate) payload: Bytes,
    pub(crate) progress: P,
}

impl<P> Message<P> {
    /// Bytes charged for the message.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.channel.len() + self.payload.len()
    }
}

/// The result of looking at the first message of the queue.
pub(crate) enum Taken {
    /// The message leaves the queue.
    Whole,
    /// The message stays, as there is more of it to write.
    Part,
    /// The message stays, and the batch ends before it.
    Nothing,
}

struct Waiting<P> {
    messages: VecDeque<Message<P>>,
    /// Permit of the messages in the queue.
    permit: Permit,
}

/// The queue of messages.
pub(crate) struct Outgoing<P = ()> {
    waiting: Mutex<Waiting<P>>,
    permits: Arc<Permits>,
    added: Notify,
}

impl<P: Default> Outgoing<P> {
    /// An empty queue with the bounds `outgoing_messages_max` and `outgoing_bytes_max`.
    pub(crate) fn new(ledger: Arc<Ledger>, limits: &Limits) -> Self {
        let permits = Permits::new(ledger, limits.outgoing_messages_max, limits.outgoing_bytes_max);
        let waiting = Waiting { messages: VecDeque::new(), permit: Permit::empty(&permits) };
        Self { waiting: Mutex::new(waiting), permits, added: Notify::new() }
    }

    /// Number of messages that wait or are being written, and their size in bytes.
    pub(crate) fn unsent(&self) -> (usize, usize) {
        self.permits.used()
    }

    /// Appends a message, and wakes the task that takes messages.
    ///
    /// # Errors
    /// [`EngineError::Full`]
    pub(crate) fn push(&self, channel: String, payload: Bytes) -> Result<(), EngineError> {
        self.append(channel, payload)?;
        self.notify();
        Ok(())
    }

    /// Wakes the task that takes messages.
    pub(crate) fn notify(&self) {
        self.added.notify_one();
    }

    /// Returns `true` if no message waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().messages.is_empty()
    }

    /// Appends a message. The caller takes it, or calls [`Self::notify`].
    ///
    /// # Errors
    /// [`EngineError::Full`]
    pub(crate) fn append(&self, channel: String, payload: Bytes) -> Result<(), EngineError> {
        let message = Message { channel, payload, progress: P::default() };
        let mut waiting = self.waiting.lock();
        let permit = self.permits.acquire(message.bytes())?;
        waiting.permit.add(permit);
        waiting.messages.push_back(message);
        Ok(())
    }

    /// Passes messages to `take`, from the first one on. Returns the permit of those that have left the queue: they count until it
    /// is dropped.
    pub(crate) fn take(&self, mut take: impl FnMut(&mut Message<P>) -> Taken) -> Permit {
        let mut taken = Permit::empty(&self.permits);
        let Waiting { messages, permit } = &mut *self.waiting.lock();
        while let Some(first) = messages.front_mut() {
            let bytes = first.bytes();
            match take(first) {
                Taken::Whole => {
                    messages.pop_front();
                    permit.move_one(bytes, &mut taken);
                }
                Taken::Part => {}
                Taken::Nothing => break,
            }
        }
        taken
    }

    /// Lets a message that was written in part begin again, on a new connection.
    pub(crate) fn restart(&self) {
        if let Some(first) = self.waiting.lock().messages.front_mut() {
            mem::take(&mut first.progress);
        }
    }

    /// Waits until a message is added.
    pub(crate) async fn added(&self) {
        self.added.notified().await;
    }
}
