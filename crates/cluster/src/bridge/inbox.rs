//! What has arrived and waits to be handled: bounded. What doesn't fit is dropped and counted, because Redis would close the
//! connection of a slow reader.

use crate::engine::Limits;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stentor_edge::{Charge, Class, Ledger};
use tokio::sync::Notify;

/// Which channel of a namespace a message arrived on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// With the room, if it is to exactly one.
    Broadcast(Option<Box<str>>),
    Request,
    Response,
}

/// A message as it arrived.
#[derive(Clone, Debug)]
pub(super) struct Arrived {
    /// The namespace's index.
    pub(super) namespace: usize,
    pub(super) kind: Kind,
    pub(super) payload: Bytes,
}

pub(super) struct Inbox {
    queue: Mutex<VecDeque<Arrived>>,
    /// The size of what waits. Changed while the queue is locked.
    charge: Charge,
    messages_max: usize,
    bytes_max: usize,
    added: Notify,
    dropped: AtomicU64,
}

/// What a message counts.
fn bytes_of(message: &Arrived) -> usize {
    size_of::<Arrived>() + message.payload.len()
}

impl Inbox {
    pub(super) fn new(limits: &Limits, ledger: Arc<Ledger>) -> Self {
        Self {
            queue: Mutex::default(),
            charge: Charge::new(ledger, Class::Cluster),
            messages_max: limits.events_max,
            bytes_max: limits.events_bytes_max,
            added: Notify::new(),
            dropped: AtomicU64::new(0),
        }
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Arrived>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, message: Arrived) {
        let mut queue = self.queue();
        let bytes = bytes_of(&message);
        let is_full = self.charge.bytes() + bytes > self.bytes_max && !queue.is_empty();
        if is_full || queue.len() >= self.messages_max {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.charge.add(bytes);
        queue.push_back(message);
        drop(queue);
        self.added.notify_one();
    }

    pub(super) async fn next(&self) -> Arrived {
        loop {
            {
                let mut queue = self.queue();
                if let Some(message) = queue.pop_front() {
                    self.charge.subtract(bytes_of(&message));
                    return message;
                }
            }
            self.added.notified().await;
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.charge.bytes()
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: usize) -> Arrived {
        Arrived { namespace: 0, kind: Kind::Broadcast(None), payload: vec![0; len].into() }
    }

    #[tokio::test]
    async fn what_does_not_fit_is_dropped_and_counted() {
        let limits = Limits { events_max: 3, events_bytes_max: 1_000, ..Limits::default() };
        let ledger = Arc::new(Ledger::new(1 << 20));
        let inbox = Inbox::new(&limits, ledger.clone());
        // A single one fits, however large it is.
        inbox.push(message(2_000));
        inbox.push(message(1));
        assert!(inbox.bytes() > 2_000 && !ledger.has_room((1 << 20) - 2_000));
        assert_eq!((inbox.next().await.payload.len(), inbox.dropped()), (2_000, 1));
        (0..4).for_each(|_| inbox.push(message(1)));
        assert_eq!((inbox.bytes(), inbox.dropped()), (3 * bytes_of(&message(1)), 2));
        drop(inbox);
        assert!(ledger.has_room(1 << 20));
    }
}
