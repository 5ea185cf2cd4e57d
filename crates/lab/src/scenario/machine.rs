//! Where something was measured.

use std::fs;

use serde::Serialize;

use crate::measure::cores;

/// A machine's fingerprint.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor, as it calls itself.
    pub cpu: String,
    /// How many cores this process may use.
    pub cores: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
}

impl Machine {
    /// This one. What the kernel doesn't tell is empty.
    pub fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim_start_matches([' ', '\t', ':']).trim().to_owned()
        };
        let memory = after(&read("/proc/meminfo"), "MemTotal");
        let kilobytes: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
        Self {
            cpu: after(&read("/proc/cpuinfo"), "model name"),
            cores: cores(),
            memory_bytes: kilobytes * 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}
