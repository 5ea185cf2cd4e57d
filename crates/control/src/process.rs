//! The kernel's statistics of this process: proc(5).

use std::io;
use std::time::Duration;

/// Unit of CPU times in `/proc` (`USER_HZ`), which is the same on all architectures but Alpha and IA-64. The kernel's auxiliary vector has it,
/// too, but rustix can't read that under valgrind.
pub(crate) const TICKS_PER_SECOND: u64 = 100;

/// Statistics of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessStats {
    pub(crate) resident_bytes: usize,
    pub(crate) cpu: Duration,
    pub(crate) descriptors: usize,
    pub(crate) descriptors_max: usize,
    /// Start time of the process in seconds since 1970, by the kernel's clock.
    pub(crate) started_at_seconds: u64,
}

/// Reads the statistics from `/proc`. This takes long if very many file descriptors are open.
pub(crate) fn stats() -> io::Result<ProcessStats> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let Stat { cpu_ticks, start_ticks, resident_pages } =
        parse_stat(&stat).ok_or(io::ErrorKind::InvalidData)?;
    let booted_at_seconds = booted_at(&std::fs::read_to_string("/proc/stat")?).unwrap_or(0);
    let (descriptors, descriptors_max) = descriptor_counts()?;
    Ok(ProcessStats {
        resident_bytes: resident_pages.saturating_mul(rustix::param::page_size()),
        cpu: Duration::from_secs_f64(cpu_ticks as f64 / TICKS_PER_SECOND as f64),
        descriptors,
        descriptors_max,
        started_at_seconds: booted_at_seconds + start_ticks / TICKS_PER_SECOND,
    })
}

/// Returns the number of open file descriptors, and their limit.
pub(crate) fn descriptor_counts() -> io::Result<(usize, usize)> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    Ok((descriptors()?, limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)))
}

/// Fields of `/proc/self/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// `utime + stime` (14 and 15).
    cpu_ticks: u64,
    /// `starttime` (22), in ticks since the system's start.
    start_ticks: u64,
    /// `rss` (24).
    resident_pages: usize,
}

/// Parses the fields. The second field is the program's name in parentheses, which may itself contain spaces
/// and parentheses.
fn parse_stat(stat: &str) -> Option<Stat> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(14 - 3);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let start_ticks = fields.nth(22 - 16)?.parse().ok()?;
    let resident_pages = fields.nth(24 - 23)?.parse().ok()?;
    Some(Stat { cpu_ticks: user + system, start_ticks, resident_pages })
}

/// Returns the CPU time of a process or thread in ticks, from its `stat`.
pub(crate) fn cpu_ticks(stat: &str) -> Option<u64> {
    parse_stat(stat).map(|stat| stat.cpu_ticks)
}

/// Returns the system's start time in seconds since 1970: `btime` in `/proc/stat`.
fn booted_at(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Returns the number of open file descriptors. Since Linux 6.2, it is the folder's size. On older kernels,
/// the entries are counted.
fn descriptors() -> io::Result<usize> {
    match std::fs::metadata("/proc/self/fd")?.len() {
        0 => Ok(std::fs::read_dir("/proc/self/fd")?.count()),
        entries => Ok(usize::try_from(entries).unwrap_or(usize::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    fn a_process_name_with_parentheses_is_parsed() {
        let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let stat = format!("1 (a ) b) S {}", fields.join(" "));
        assert_eq!(parse_stat(&stat), Some(Stat { cpu_ticks: 14 + 15, start_ticks: 22, resident_pages: 24 }));
        assert_eq!(parse_stat("1 (a) S 4 5"), None);
        assert_eq!(parse_stat(""), None);
        assert_eq!(booted_at("cpu 1 2\nbtime 1700000000\nprocesses 3\n"), Some(1_700_000_000));
    }

    #[test]
    fn the_statistics_of_this_process_are_read() {
        let stats = stats().unwrap();
        assert!(stats.resident_bytes > 100_000);
        assert!(stats.descriptors >= 3 && stats.descriptors <= stats.descriptors_max);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!((now - 3600..=now + 1).contains(&stats.started_at_seconds), "{}", stats.started_at_seconds);
    }
}
