//! Budgets: bytes that are shared by sessions and counted once, and the outcome of deliveries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts distinct live bytes of a process: each publication once, while a reference to it exists. Frames are
/// counted by their maker.
#[derive(Clone, Debug, Default)]
pub struct LiveBytes(Arc<AtomicUsize>);

impl LiveBytes {
    /// Bytes alive now.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts `bytes` until the charge is dropped.
    pub fn charge(&self, bytes: usize) -> Charge {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Charge { counter: self.0.clone(), bytes }
    }
}

/// Bytes counted by a [`LiveBytes`]; they are taken off when it is dropped.
#[derive(Debug)]
pub struct Charge {
    counter: Arc<AtomicUsize>,
    bytes: usize,
}

impl Charge {
    /// The counter of these bytes.
    pub(crate) fn live(&self) -> LiveBytes {
        LiveBytes(self.counter.clone())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The size of a shard, without publications and frames, which count themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Sessions.
    pub sessions: usize,
    /// Their subscriptions.
    pub subscriptions: usize,
    /// Rooms and feeds.
    pub topics: usize,
    /// Entries of outboxes.
    pub outboxes: usize,
}

/// The outcome of all deliveries (one publication to one session) to the sessions of one shard. **Invariant:** `due
/// = sent + dropped + conflated + pending + dropped_on_disconnect`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Publications times their sessions.
    pub due: u64,
    /// Taken by the kernel.
    pub sent: u64,
    /// Not sent: volatile, displaced by `drop_oldest`, or not supported by the session's format.
    pub dropped: u64,
    /// Replaced by a newer version of the same document.
    pub conflated: u64,
    /// Waiting, or in flight.
    pub pending: u64,
    /// Pending when the session or subscription ended.
    pub dropped_on_disconnect: u64,
}

impl Counters {
    /// Whether the counters add up.
    pub fn balanced(&self) -> bool {
        self.due == self.sent + self.dropped + self.conflated + self.pending + self.dropped_on_disconnect
    }
}
