//! A lock around a value whose memory is charged to the ledger.

use parking_lot::Mutex;
use std::sync::Arc;
use stentor_ports::{Charge, Class, Ledger};

/// A value that knows how much memory it holds.
pub(super) trait Held {
    /// Returns the memory in bytes, approximately.
    fn held_bytes(&self) -> usize;
}

/// A locked value. Its charge is correct whenever it isn't locked.
pub(super) struct Charged<T> {
    value: Mutex<T>,
    charge: Charge,
}

impl<T: Held> Charged<T> {
    pub(super) fn new(ledger: &Arc<Ledger>, value: T) -> Self {
        Self { value: Mutex::new(value), charge: Charge::new(ledger.clone(), Class::Hooks) }
    }

    /// Uses the value while it is locked, then sets its charge.
    pub(super) fn with<R>(&self, using: impl FnOnce(&mut T) -> R) -> R {
        let mut value = self.value.lock();
        let result = using(&mut value);
        self.charge.set(value.held_bytes());
        result
    }
}
