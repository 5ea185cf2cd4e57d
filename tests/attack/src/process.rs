//! The kernel's figures for the server process (proc(5)): its own pages, and memfds, which belong to it even if they
//! aren't mapped. A page of a memfd that is mapped as well counts twice, which is on the safe side.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The resident set, `VmRSS` of `/proc/PID/status`. `None` once the process has ended.
pub(crate) fn resident_bytes(pid: u32) -> Option<u64> {
    field(pid, "VmRSS:")
}

/// The size of the resident pages that belong to no file, `RssAnon`. `None` once the process has ended.
pub(crate) fn anonymous_bytes(pid: u32) -> Option<u64> {
    field(pid, "RssAnon:")
}

/// A size in `/proc/PID/status`.
fn field(pid: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// The size of a process's memfds: allocated blocks, not the length. 0 once the process has ended.
pub(crate) fn memfd_bytes(pid: u32) -> u64 {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return 0 };
    descriptors.flatten().map(|descriptor| bytes_of_memfd(&descriptor.path()).unwrap_or(0)).sum()
}

/// Returns the size of a memfd. `None` if the file descriptor is another file, or was closed meanwhile.
fn bytes_of_memfd(descriptor: &Path) -> Option<u64> {
    let target = std::fs::read_link(descriptor).ok()?;
    if !target.to_str()?.starts_with("/memfd:") {
        return None;
    }
    // Blocks have 512 bytes here, whatever the file system's are (stat(2)).
    Some(std::fs::metadata(descriptor).ok()?.blocks() * 512)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::io::Write;

    #[test]
    fn this_process_is_seen() {
        let me = std::process::id();
        assert!(resident_bytes(me).unwrap() > 100_000);
        assert!((100_000..resident_bytes(me).unwrap()).contains(&anonymous_bytes(me).unwrap()));
        let before = memfd_bytes(me);
        let mut memfd = std::fs::File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        memfd.write_all(&[1; 100_000]).unwrap();
        let after = memfd_bytes(me);
        assert!((100_000..=200_000).contains(&(after - before)), "{before} {after}");
        assert_eq!(resident_bytes(u32::MAX), None);
    }
}
