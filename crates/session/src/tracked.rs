//! A value that records whether it may have been changed.

use std::ops::{Deref, DerefMut};

/// A value that records whether it may have been changed.
pub struct Tracked<T> {
    value: T,
    has_changed: bool,
}

impl<T> Tracked<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value, has_changed: true }
    }

    /// Returns `true` if the value may have been changed since the last call of [`Self::take_changed`].
    #[inline]
    pub fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Records a change that was made through `untracked`.
    pub fn note_change(&mut self) {
        self.has_changed = true;
    }

    /// Returns the value for access that isn't recorded as a change.
    #[inline]
    pub(crate) fn untracked(&mut self) -> &mut T {
        &mut self.value
    }

    /// Returns `true` if the value may have been changed since the last call.
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
