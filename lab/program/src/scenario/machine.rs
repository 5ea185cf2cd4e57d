//! The machine of a measurement.

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
    /// `true` if the machine is virtual, so that others may use its cores.
    pub is_virtual: bool,
    /// The kernel's source of time.
    pub clock_source: String,
}

impl Machine {
    /// This machine. Properties that the kernel doesn't report are empty.
    pub(crate) fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        Self {
            cpu: after(&cpuinfo, "model name").to_owned(),
            cores: cores(),
            memory_bytes: memory_bytes("MemTotal"),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            is_virtual: after(&cpuinfo, "flags").split(' ').any(|flag| flag == "hypervisor"),
            clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
                .trim()
                .to_owned(),
        }
    }

    pub(super) fn line(&self) -> String {
        let kind = if self.is_virtual { "virtual machine" } else { "machine" };
        format!("{kind} with {} cores ({})", self.cores, self.cpu)
    }

    /// Differences between two machines, in words. Properties that one of them lacks are ignored.
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

/// The value after a name in a file of the kernel.
fn after<'a>(text: &'a str, name: &str) -> &'a str {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim_start_matches([' ', '\t', ':']).trim()
}

/// A value of the kernel's memory statistics. 0 if there is none.
pub(super) fn memory_bytes(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    after(&text, name).trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}
