//! A value that notes that it may have been changed.

use std::ops::{Deref, DerefMut};

/// See the module's documentation.
pub struct Tracked<T> {
    value: T,
    has_changed: bool,
}

impl<T> Tracked<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value, has_changed: true }
    }

    /// Whether the value may have been changed since the last call of [`Self::take_changed`].
    #[inline]
    pub fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Notes a change that was made [`Self::untracked`].
    pub fn note_change(&mut self) {
        self.has_changed = true;
    }

    /// The value, for a change that isn't noted.
    #[inline]
    pub(crate) fn untracked(&mut self) -> &mut T {
        &mut self.value
    }

    /// Whether the value may have been changed since the last call.
    #[inline]
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }
}

impl<T> Deref for Tracked<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Tracked<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.has_changed = true;
        &mut self.value
    }
}
