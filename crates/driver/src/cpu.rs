//! The thread's processor time.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Processor time of the calling thread, in user space and in the kernel. A system call.
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_advances_with_work() {
        let begun = thread_cpu_time();
        while thread_cpu_time() < begun + Duration::from_millis(1) {
            std::hint::spin_loop();
        }
        assert!(thread_cpu_time() > begun);
    }
}
