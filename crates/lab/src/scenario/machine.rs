//! Where something was measured.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::measure::cores;

/// A machine's fingerprint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_bytes: u64,
    pub kernel: String,
    /// Whether it is a virtual one, whose cores others may use at times.
    pub is_virtual: bool,
    /// What the kernel reads the time from.
    pub clock_source: String,
}

impl Machine {
    /// This one. What the kernel doesn't tell is empty.
    pub(crate) fn here() -> Self {
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
            is_virtual: after(&read("/proc/cpuinfo"), "flags").split(' ').any(|flag| flag == "hypervisor"),
            clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
                .trim()
                .to_owned(),
        }
    }

    pub(super) fn line(&self) -> String {
        let kind = if self.is_virtual { "virtual machine" } else { "machine" };
        format!("{kind} with {} cores ({})", self.cores, self.cpu)
    }

    /// In what the two differ, in words. What one of them doesn't say doesn't count.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let gigabytes = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
        let pairs = [
            ("processor", self.cpu.clone(), other.cpu.clone()),
            ("cores", self.cores.to_string(), other.cores.to_string()),
            ("memory", gigabytes(self.memory_bytes), gigabytes(other.memory_bytes)),
            ("kernel", self.kernel.clone(), other.kernel.clone()),
            ("clock", self.clock_source.clone(), other.clock_source.clone()),
        ];
        let differing =
            pairs.into_iter().filter(|(_, one, two)| one != two && !one.is_empty() && !two.is_empty());
        differing.map(|(what, one, two)| format!("{what}: {one} / {two}")).collect()
    }
}
