//! The kernel's statistics of this process: proc(5).

use std::io;
use std::time::Duration;

/// Statistics of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessStats {
    pub(crate) resident_bytes: usize,
    pub(crate) cpu: Duration,
    pub(crate) descriptors: usize,
    pub(crate) descriptors_max: usize,
}

/// Reads files in `/proc`, which takes long if very many descriptors are open.
pub(crate) fn stats() -> io::Result<ProcessStats> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (cpu_ticks, resident_pages) = parse_stat(&stat).ok_or(io::ErrorKind::InvalidData)?;
    let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    Ok(ProcessStats {
        resident_bytes: resident_pages.saturating_mul(rustix::param::page_size()),
        cpu: Duration::from_secs_f64(cpu_ticks as f64 / ticks_per_second as f64),
        descriptors: descriptors()?,
        descriptors_max: limit.current.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX),
    })
}

/// `utime + stime` (fields 14 and 15) in ticks, and `rss` (field 24) in pages. The second field is the program's
/// name in parentheses, which may itself hold spaces and parentheses.
fn parse_stat(stat: &str) -> Option<(u64, usize)> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(14 - 3);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let resident = fields.nth(24 - 16)?.parse().ok()?;
    Some((user + system, resident))
}

/// Since Linux 6.2 the folder's size is the number of its entries; before, they are counted.
fn descriptors() -> io::Result<usize> {
    match std::fs::metadata("/proc/self/fd")?.len() {
        0 => Ok(std::fs::read_dir("/proc/self/fd")?.count()),
        entries => Ok(usize::try_from(entries).unwrap_or(usize::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_parentheses_is_parsed() {
        let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let stat = format!("1 (a ) b) S {}", fields.join(" "));
        assert_eq!(parse_stat(&stat), Some((14 + 15, 24)));
        assert_eq!(parse_stat("1 (a) S 4 5"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn the_statistics_of_this_process_are_read() {
        let stats = stats().unwrap();
        assert!(stats.resident_bytes > 100_000);
        assert!(stats.descriptors >= 3 && stats.descriptors <= stats.descriptors_max);
    }
}
