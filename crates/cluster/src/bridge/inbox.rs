//! The bounded queue of arrived messages. A message that doesn't fit is dropped and counted, because Redis would close the
//! connection of a slow reader.

use crate::engine::Limits;
use crate::socketio::decoded_bytes_max;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stentor_ports::{Charge, Class, Ledger};
use tokio::sync::Notify;

/// Maximum decoded size of a message that is handled even if the memory budget is used up, one at a time.
const SMALL_BYTES: usize = 1 << 20;

/// The channel of a namespace on which a message arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A broadcast, with its room if it is for exactly one.
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
    /// Charge for the messages that wait or are being handled.
    charge: Charge,
    /// Charge for the decoded messages.
    decoded: Charge,
    ledger: Arc<Ledger>,
    messages_max: usize,
    bytes_max: usize,
    added: Notify,
    dropped: AtomicU64,
}

/// The message that is being handled, one at a time. It is charged until it is dropped.
pub(super) struct Taken<'a> {
    pub(super) message: Arrived,
    inbox: &'a Inbox,
}

impl Taken<'_> {
    /// Charges the memory for decoding the message in advance. Returns `true` if there is room.
    pub(super) fn count_decoded(&self) -> bool {
        let bytes = decoded_bytes_max(&self.message.payload);
        let fits = bytes <= SMALL_BYTES || self.inbox.ledger.has_room(bytes);
        if fits {
            self.inbox.decoded.set(bytes);
        }
        fits
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.inbox.charge.subtract(bytes_of(&self.message));
        self.inbox.decoded.set(0);
    }
}

/// Bytes charged for a message.
fn bytes_of(message: &Arrived) -> usize {
    size_of::<Arrived>() + message.payload.len()
}

impl Inbox {
    pub(super) fn new(limits: &Limits, ledger: Arc<Ledger>) -> Self {
        Self {
            queue: Mutex::default(),
            charge: Charge::new(ledger.clone(), Class::Cluster),
            decoded: Charge::new(ledger.clone(), Class::Cluster),
            ledger,
            messages_max: limits.events_max,
            bytes_max: limits.events_bytes_max,
            added: Notify::new(),
            dropped: AtomicU64::new(0),
        }
    }

    pub(super) fn push(&self, message: Arrived) {
        let mut queue = self.queue.lock();
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

    pub(super) async fn next(&self) -> Taken<'_> {
        loop {
            if let Some(message) = self.queue.lock().pop_front() {
                return Taken { message, inbox: self };
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
    async fn messages_beyond_the_limits_are_dropped_and_counted() {
        let limits = Limits { events_max: 3, events_bytes_max: 1_000, ..Limits::default() };
        let ledger = Arc::new(Ledger::new(1 << 20));
        let inbox = Inbox::new(&limits, ledger.clone());
        // A single message fits, however large it is.
        inbox.push(message(2_000));
        inbox.push(message(1));
        assert!(inbox.bytes() > 2_000 && !ledger.has_room((1 << 20) - 2_000));
        let taken = inbox.next().await;
        assert_eq!((taken.message.payload.len(), inbox.dropped()), (2_000, 1));
        assert!(inbox.bytes() > 2_000, "it counts while it is handled");
        drop(taken);
        (0..4).for_each(|_| inbox.push(message(1)));
        assert_eq!((inbox.bytes(), inbox.dropped()), (3 * bytes_of(&message(1)), 2));
        drop(inbox);
        assert!(ledger.has_room(1 << 20));
    }

    #[tokio::test]
    async fn decoding_counts_before_it_is_done() {
        let all = 64 << 20;
        let ledger = Arc::new(Ledger::new(all));
        let inbox = Inbox::new(&Limits::default(), ledger.clone());
        for len in [1, 4 << 20, 4 << 20, 1] {
            inbox.push(message(len));
        }
        for (others, fits) in [(all, true), (0, true), (all, false), (all, true)] {
            let charge = Charge::new(ledger.clone(), Class::Cluster);
            charge.add(others);
            let taken = inbox.next().await;
            assert_eq!(taken.count_decoded(), fits);
            let is_counted = !ledger.has_room(all - (36 << 20));
            assert_eq!(is_counted, others > 0 || fits, "twice 16 MiB of text, and attachments");
        }
        assert!(ledger.has_room(all));
    }
}
