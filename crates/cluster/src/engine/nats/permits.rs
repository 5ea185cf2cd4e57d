//! How many requests may be without an answer, and what they hold.

use crate::engine::{EngineError, Limits};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stentor_edge::{Charge, Class, Ledger};

/// Requests without an answer.
pub(super) struct Permits {
    count: Mutex<usize>,
    /// Their size. Changed while the count is locked.
    charge: Charge,
}

/// The right to have one more request without an answer.
pub(super) struct Permit {
    permits: Arc<Permits>,
    bytes: usize,
}

impl Permits {
    pub(super) fn new(ledger: Arc<Ledger>) -> Arc<Self> {
        Arc::new(Self { count: Mutex::new(0), charge: Charge::new(ledger, Class::Cluster) })
    }

    fn count(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests without an answer, and their size in bytes.
    pub(super) fn unanswered(&self) -> (usize, usize) {
        (*self.count(), self.charge.bytes())
    }
}

impl Permit {
    pub(super) fn new(permits: &Arc<Permits>, limits: &Limits, bytes: usize) -> Result<Self, EngineError> {
        let mut count = permits.count();
        let is_full = *count >= limits.requests_max
            || (*count > 0 && permits.charge.bytes() + bytes > limits.outgoing_bytes_max);
        if is_full {
            return Err(EngineError::Full);
        }
        *count += 1;
        permits.charge.add(bytes);
        drop(count);
        Ok(Self { permits: permits.clone(), bytes })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.permits.count() -= 1;
        self.permits.charge.subtract(self.bytes);
    }
}
