//! Settings of mimalloc, for programs whose global allocator it is.
//!
//! Huge pages are off (the crate's feature `no_thp`): with them, 15,000 idle connections took three times the
//! memory in one measurement.

#![allow(unsafe_code)] // Two calls of a C library.

/// `mi_option_purge_delay` of mimalloc 3, which the bindings don't name.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Returns freed pages to the system at once. mimalloc keeps them for a second, and for longer in a thread
/// that becomes idle before: after a flood of messages of 1 MB the process held 140 MB although 3 MB were in
/// use.
///
/// Call it once, before threads start. MIMALLOC_PURGE_DELAY in the environment takes precedence.
pub fn return_freed_pages_at_once() {
    // SAFETY: the call stores a number in a table of mimalloc's, whose bounds it checks itself.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, 0) };
}

/// Returns the calling thread's unused pages. Otherwise, blocks that another thread has freed, and pages that
/// mimalloc keeps for reuse by the thread, stay until the thread allocates again. Takes about a microsecond
/// for each 64 kB that the thread holds.
pub(crate) fn release_unused() {
    // SAFETY: only reads the calling thread's own pages and lists that are shared atomically.
    unsafe { libmimalloc_sys::mi_collect(false) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn purge_delay_ms() -> std::ffi::c_long {
        // SAFETY: reads a number.
        unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) }
    }

    #[test]
    fn the_option_is_the_purge_delay() {
        // mimalloc's default, which differs from that of every other option.
        assert_eq!(purge_delay_ms(), 1000);
        return_freed_pages_at_once();
        assert_eq!(purge_delay_ms(), 0);
    }
}
