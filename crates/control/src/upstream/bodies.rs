//! The bodies that are being received. Their bytes are charged to the ledger, and share a limit. At the
//! limit, fetches wait in the middle of their bodies. The oldest fetch never waits, so that one fetch always
//! completes.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use stentor_ports::{Charge, Class, Ledger};
use tokio::sync::Notify;
use tokio::time::Instant;

/// All bodies of all upstreams.
pub(crate) struct Bodies {
    bytes_max: AtomicUsize,
    /// The bytes of each body by the body's number, and the next number.
    held: Mutex<(BTreeMap<u64, usize>, u64)>,
    charge: Charge,
    changed: Notify,
}

impl Bodies {
    pub(crate) fn new(bytes_max: usize, ledger: Arc<Ledger>) -> Arc<Self> {
        Arc::new(Self {
            bytes_max: AtomicUsize::new(bytes_max),
            held: Mutex::default(),
            charge: Charge::new(ledger, Class::Bodies),
            changed: Notify::new(),
        })
    }

    /// Sets a new limit in bytes for all bodies.
    pub(crate) fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// Registers a new body, with no bytes yet.
    pub(crate) fn begin(self: &Arc<Self>) -> HeldBody {
        let (held, next) = &mut *self.held.lock();
        *next += 1;
        held.insert(*next, 0);
        HeldBody { bodies: self.clone(), number: *next }
    }

    fn try_add(&self, number: u64, bytes: usize) -> bool {
        let (held, _) = &mut *self.held.lock();
        let is_oldest = held.first_key_value().is_some_and(|(first, _)| *first == number);
        let fits = self.charge.bytes().saturating_add(bytes) <= self.bytes_max.load(Ordering::Relaxed);
        if let Some(body) = held.get_mut(&number).filter(|_| is_oldest || fits) {
            *body += bytes;
            self.charge.add(bytes);
            return true;
        }
        false
    }
}

/// The bytes of one body, charged until this value is dropped.
pub(crate) struct HeldBody {
    bodies: Arc<Bodies>,
    number: u64,
}

impl HeldBody {
    /// Waits until this many more bytes may be held. Returns the waiting time.
    pub(crate) async fn add(&self, bytes: usize) -> Duration {
        let mut begun = None;
        loop {
            let changed = self.bodies.changed.notified();
            tokio::pin!(changed);
            // Registers before the attempt, so that a later change isn't missed.
            changed.as_mut().enable();
            if self.bodies.try_add(self.number, bytes) {
                return begun.map_or(Duration::ZERO, |begun: Instant| begun.elapsed());
            }
            begun.get_or_insert_with(Instant::now);
            changed.await;
        }
    }
}

impl Drop for HeldBody {
    fn drop(&mut self) {
        let removed = self.bodies.held.lock().0.remove(&self.number);
        self.bodies.charge.subtract(removed.unwrap_or(0));
        self.bodies.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result of `work` if it is available at once.
    async fn at_once<T>(work: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(Duration::ZERO, work).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_limit_all_bodies_but_the_oldest_wait() {
        let bodies = Bodies::new(100, Arc::new(Ledger::new(usize::MAX)));
        let (first, second, third) = (bodies.begin(), bodies.begin(), bodies.begin());
        assert_eq!(first.add(60).await, Duration::ZERO);
        assert_eq!(second.add(40).await, Duration::ZERO);
        assert_eq!((at_once(second.add(1)).await, at_once(third.add(1)).await), (None, None));
        assert_eq!(at_once(first.add(50)).await, Some(Duration::ZERO), "the oldest goes on");
        let waiting = tokio::spawn(async move { (second.add(60).await, second) });
        tokio::task::yield_now().await;
        tokio::time::advance(Duration::from_secs(3)).await;
        drop(first);
        let (waited, second) = waiting.await.unwrap();
        assert_eq!((waited, bodies.charge.bytes()), (Duration::from_secs(3), 100));
        assert_eq!(at_once(third.add(1)).await, None);
        bodies.set_bytes_max(101);
        assert_eq!(at_once(third.add(1)).await, Some(Duration::ZERO));
        drop((second, third));
        assert_eq!(bodies.charge.bytes(), 0);
    }
}
