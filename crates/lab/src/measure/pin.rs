//! Which cores a thread may run on (sched_setaffinity(2)).

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How many cores this process may use.
pub fn cores() -> usize {
    sched_getaffinity(None).map_or(1, |set| set.count() as usize)
}

/// Pins the calling thread to `core`, and with it the threads and processes that it starts from now on.
/// The returned guard undoes it for the thread when it is dropped.
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

/// Undoes a pinning.
#[must_use = "the thread is released when this is dropped"]
pub struct Pinned {
    before: CpuSet,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // It was allowed a moment ago; where it no longer is, the thread stays where it is.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_and_releases() {
        let all = cores();
        let first = (0..CpuSet::MAX_CPU).find(|core| sched_getaffinity(None).unwrap().is_set(*core)).unwrap();
        let pinned = pin_current(first).unwrap();
        assert_eq!(cores(), 1);
        drop(pinned);
        assert_eq!(cores(), all);
        assert!(pin_current(CpuSet::MAX_CPU).is_err());
    }
}
