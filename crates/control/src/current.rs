//! A value that a reload replaces. A reader gets the value that is current at this time, and may keep it
//! after a reload.

use parking_lot::RwLock;
use std::sync::Arc;

/// A replaceable value (see the module's documentation).
pub(crate) struct Current<T>(RwLock<Arc<T>>);

impl<T> Current<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(RwLock::new(Arc::new(value)))
    }

    pub(crate) fn load(&self) -> Arc<T> {
        self.0.read().clone()
    }

    pub(crate) fn store(&self, value: T) {
        *self.0.write() = Arc::new(value);
    }
}
