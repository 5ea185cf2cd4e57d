//! A value that a reload replaces. Readers get the current value, and keep it as long as they need it.

use std::sync::{Arc, PoisonError, RwLock};

/// The current value; see the module's documentation.
pub(crate) struct Current<T>(RwLock<Arc<T>>);

impl<T> Current<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(RwLock::new(Arc::new(value)))
    }

    pub(crate) fn load(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn store(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }
}
