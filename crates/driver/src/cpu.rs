//! The CPU time of the thread.

#![allow(unsafe_code)] // The C library writes to a variable of ours.

use std::time::Duration;

/// Returns the CPU time of the calling thread, in user space and in the kernel. This is a system call. It
/// uses the C library, because rustix looks for the kernel's shared object first, which crashes under
/// valgrind.
pub fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid pointer to a timespec and outlives the call. If the call fails, it stays zero.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_advances_with_work() {
        let begun = thread_cpu_time();
        while thread_cpu_time() < begun + Duration::from_millis(1) {
            std::hint::spin_loop();
        }
        assert!(thread_cpu_time() > begun);
    }
}
