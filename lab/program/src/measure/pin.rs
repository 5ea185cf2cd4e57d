//! The cores that a thread may use (sched_setaffinity(2)), and its priority (sched(7)).

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Number of cores that this process may use.
pub fn cores() -> usize {
    sched_getaffinity(None).map_or(1, |set| set.count() as usize)
}

/// Pins the calling thread to `core`, and the threads and processes that it starts from then on. Dropping the returned guard undoes
/// it for the thread.
pub fn pin_current(core: usize) -> io::Result<Pinned> {
    let before = sched_getaffinity(None)?;
    let mut set = CpuSet::new();
    if core >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    set.set(core);
    sched_setaffinity(None, &set)?;
    Ok(Pinned { before })
}

/// Sets the priority of this process and its children to `nice`, -20 (highest) to 19. If the kernel groups sessions (autogroup), a
/// process's own value counts only within its session, so the session's is set too.
pub fn take_priority(nice: i32) -> io::Result<()> {
    rustix::process::setpriority_process(None, nice)?;
    match std::fs::write("/proc/self/autogroup", nice.to_string()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Undoes the pinning when dropped.
#[must_use = "the thread is released when this is dropped"]
pub struct Pinned {
    before: CpuSet,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Pinning was allowed a moment ago. If it no longer is, the thread stays on its core.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests;
