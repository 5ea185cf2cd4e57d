//! Counters: live bytes, which sessions share and the process counts once, and outcomes of deliveries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts distinct live bytes of a process: each publication once, while a reference to it exists. The
/// encoder counts the bytes of its frames.
#[derive(Clone, Debug, Default)]
pub struct LiveBytes(Arc<AtomicUsize>);

impl LiveBytes {
    /// Returns the number of live bytes.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts `bytes` until the charge is dropped.
    pub fn charge(&self, bytes: usize) -> Charge {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Charge { counter: self.0.clone(), bytes }
    }
}

/// Bytes counted by a [`LiveBytes`], subtracted again on drop.
#[derive(Debug)]
pub struct Charge {
    counter: Arc<AtomicUsize>,
    bytes: usize,
}

impl Charge {
    /// Returns the counter of these bytes.
    pub(crate) fn live(&self) -> LiveBytes {
        LiveBytes(self.counter.clone())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Memory of a shard in bytes, without publications and frames, which are counted separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Sessions.
    pub sessions: usize,
    /// Subscriptions of the sessions.
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
    /// Publications times their receiving sessions.
    pub due: u64,
    /// Accepted by the kernel.
    pub sent: u64,
    /// Deliveries that weren't sent: volatile, dropped by `drop_oldest`, or not supported by the session's format.
    pub dropped: u64,
    /// Replaced by a newer version of the same document.
    pub conflated: u64,
    /// Waiting or in flight.
    pub pending: u64,
    /// Pending at the end of the session or the subscription.
    pub dropped_on_disconnect: u64,
}

impl Counters {
    /// Returns `true` if the counters add up.
    pub fn balanced(&self) -> bool {
        self.due == self.sent + self.dropped + self.conflated + self.pending + self.dropped_on_disconnect
    }
}
