//! Memory of a process (proc_pid_smaps(5), smaps_rollup) and of the kernel's sockets (/proc/net/sockstat).

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Memory without pages of files, in RAM or swapped out; shared memory counts by its share (PSS, from Linux 5.4 on). The kernel
    /// reports pages of the program's file as private or shared, depending on whether another process runs the same program.
    pub private_bytes: u64,
    /// The largest resident set so far (VmHWM).
    pub peak_resident_bytes: u64,
}

impl ProcessMemory {
    /// The memory of process `pid` now.
    pub fn of_process(pid: u32) -> io::Result<Self> {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok(Self {
            private_bytes: ["Pss_Anon:", "Pss_Shmem:", "SwapPss:"]
                .map(|name| kib(&rollup, name))
                .iter()
                .sum(),
            peak_resident_bytes: kib(&status, "VmHWM:"),
        })
    }
}

/// Resident set of process `pid` now, in bytes; cheaper than [`ProcessMemory::of_process`].
pub fn resident_bytes(pid: u32) -> io::Result<u64> {
    Ok(kib(&fs::read_to_string(format!("/proc/{pid}/status"))?, "VmRSS:"))
}

/// Kernel memory in bytes: its structures (slab) and the buffers of TCP sockets. It covers the whole machine, so only a
/// difference over many connections is meaningful. On loopback, both ends count.
pub fn kernel_bytes() -> io::Result<u64> {
    let slab = kib(&fs::read_to_string("/proc/meminfo")?, "Slab:");
    Ok(slab + socket_bytes()?)
}

/// Bytes in memfds of process `pid`, which its resident set doesn't include. Reads every descriptor, about a
/// microsecond each.
pub fn memfd_bytes(pid: u32) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = entry?.path();
        // A descriptor may have been closed in the meantime.
        if fs::read_link(&path)
            .is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"/memfd:"))
            && let Ok(file) = fs::metadata(&path)
        {
            bytes += file.blocks() * 512;
        }
    }
    Ok(bytes)
}

/// The buffers of all TCP sockets of the machine, in bytes. Both ends of a loopback connection count.
pub fn socket_bytes() -> io::Result<u64> {
    Ok(socket_pages(&fs::read_to_string("/proc/net/sockstat")?) * rustix::param::page_size() as u64)
}

fn socket_pages(sockstat: &str) -> u64 {
    let tcp = sockstat.lines().find_map(|line| line.strip_prefix("TCP:")).unwrap_or_default();
    let figure = tcp.split_whitespace().skip_while(|word| *word != "mem").nth(1);
    figure.and_then(|figure| figure.parse().ok()).unwrap_or(0)
}

/// The number after `name` at the start of a line, in kB.
fn kib(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|figure| figure.parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

#[cfg(test)]
mod tests;
