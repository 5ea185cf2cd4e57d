//! A [`System`] for tests: its time stands still, and its random source is real.

use super::System;

/// A system whose time stands still.
pub(crate) const SYSTEM: System = System {
    unix_millis: |_| 1_700_000_000_000,
    fill_random: |bytes| getrandom::fill(bytes).expect("the system has random bytes"),
};
