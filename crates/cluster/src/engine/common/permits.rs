//! A bound on entries and on their bytes, charged to the ledger.

use crate::engine::{EngineError, Request, check_size};
use parking_lot::Mutex;
use std::mem;
use std::sync::Arc;
use stentor_ports::{Charge, Class, Ledger};

/// Number and size of the entries that hold a [`Permit`].
pub(crate) struct Permits {
    count: Mutex<usize>,
    /// Size of the entries. Changes only while `count` is locked.
    charge: Charge,
    count_max: usize,
    /// Maximum size of all entries. A single entry may be larger.
    bytes_max: usize,
}

/// Room for entries. It is given back on drop.
pub(crate) struct Permit {
    permits: Arc<Permits>,
    count: usize,
    bytes: usize,
}

impl Permits {
    pub(crate) fn new(ledger: Arc<Ledger>, count_max: usize, bytes_max: usize) -> Arc<Self> {
        let charge = Charge::new(ledger, Class::Cluster);
        Arc::new(Self { count: Mutex::new(0), charge, count_max, bytes_max })
    }

    /// Number of entries, and their size in bytes.
    pub(crate) fn used(&self) -> (usize, usize) {
        (*self.count.lock(), self.charge.bytes())
    }

    /// Acquires room for a request.
    ///
    /// # Errors
    /// [`EngineError::Full`], or the request is too large.
    pub(in crate::engine) fn admit(
        self: &Arc<Self>,
        request: &Request,
        bytes: usize,
    ) -> Result<Permit, EngineError> {
        check_size(request.largest_payload())?;
        self.acquire(bytes)
    }

    /// Acquires room for an entry.
    ///
    /// # Errors
    /// [`EngineError::Full`]
    pub(crate) fn acquire(self: &Arc<Self>, bytes: usize) -> Result<Permit, EngineError> {
        let mut count = self.count.lock();
        let exceeds_bytes = *count > 0 && self.charge.bytes() + bytes > self.bytes_max;
        if *count >= self.count_max || exceeds_bytes {
            return Err(EngineError::Full);
        }
        *count += 1;
        self.charge.add(bytes);
        drop(count);
        Ok(Permit { permits: self.clone(), count: 1, bytes })
    }
}

impl Permit {
    /// An empty permit, to which others are added.
    pub(super) fn empty(permits: &Arc<Permits>) -> Self {
        Self { permits: permits.clone(), count: 0, bytes: 0 }
    }

    pub(super) fn add(&mut self, mut other: Self) {
        self.count += mem::take(&mut other.count);
        self.bytes += mem::take(&mut other.bytes);
    }

    /// Moves the room of one entry to another permit.
    pub(super) fn move_one(&mut self, bytes: usize, to: &mut Self) {
        self.count -= 1;
        self.bytes -= bytes;
        to.count += 1;
        to.bytes += bytes;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.permits.count.lock() -= self.count;
        self.permits.charge.subtract(self.bytes);
    }
}
