//! CPU time of the process's threads: proc(5).

use crate::process::{TICKS_PER_SECOND, cpu_ticks};
use std::collections::BTreeMap;

/// The beginning of the name of a core's thread.
const CORE: &str = "core-";
/// The name under which the CPU time of all other threads is summed.
const OTHERS: &str = "other threads";

/// Returns the CPU time of each core's thread, and of all others together, in percent of a second. A thread that
/// ends takes its time with it, so the sum of the others may decrease.
pub(super) fn cpu_percent_seconds() -> Vec<(String, f64)> {
    let stats = std::fs::read_dir("/proc/self/task").into_iter().flatten().filter_map(|task| {
        // A thread may have ended since.
        std::fs::read_to_string(task.ok()?.path().join("stat")).ok()
    });
    sums(stats.filter_map(|stat| Some((name(&stat)?.to_owned(), cpu_ticks(&stat)?))))
        .into_iter()
        .map(|(name, ticks)| (name, ticks as f64 * 100.0 / TICKS_PER_SECOND as f64))
        .collect()
}

/// Returns the thread's name, which is in parentheses and may itself contain parentheses.
fn name(stat: &str) -> Option<&str> {
    Some(stat.split_once('(')?.1.rsplit_once(')')?.0)
}

/// Sums the ticks by thread: the cores in order of their numbers, then the others.
fn sums(threads: impl Iterator<Item = (String, u64)>) -> Vec<(String, u64)> {
    let mut by_core: BTreeMap<u32, u64> = BTreeMap::new();
    let mut others = 0;
    for (name, ticks) in threads {
        match name.strip_prefix(CORE).and_then(|core| core.parse().ok()) {
            Some(core) => *by_core.entry(core).or_default() += ticks,
            None => others += ticks,
        }
    }
    let cores = by_core.into_iter().map(|(core, ticks)| (format!("core {core}"), ticks));
    cores.chain([(OTHERS.to_owned(), others)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_summed_by_core() {
        let threads = [("core-10", 1), ("core-2", 2), ("tokio (x)", 3), ("core-2", 4), ("core-x", 5)];
        let expect = [("core 2", 6), ("core 10", 1), ("other threads", 8)];
        assert_eq!(
            sums(threads.map(|(name, ticks)| (name.to_owned(), ticks)).into_iter()),
            expect.map(|(name, ticks)| (name.to_owned(), ticks))
        );
        assert_eq!(name("7 (a (b) c) S 1"), Some("a (b) c"));
        assert_eq!(name("7"), None);
    }

    #[test]
    fn this_process_has_cpu_time() {
        let begun = std::time::Instant::now();
        // A tick is 10 ms.
        while cpu_percent_seconds().iter().all(|(_, percent)| *percent == 0.0) {
            assert!(begun.elapsed() < std::time::Duration::from_secs(60));
        }
    }
}
