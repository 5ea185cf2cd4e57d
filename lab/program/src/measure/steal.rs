//! CPU steal: time in which a core of this machine wanted to run while the hypervisor ran another machine (`/proc/stat`,
//! proc_stat(5)). A process's CPU clock doesn't include it; its latency and throughput suffer from it.

use std::time::Duration;
use std::{fs, io};

/// CPU time of the whole machine since it started, in ticks (mostly 10 ms).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineTime {
    /// Ticks in which cores ran: user and kernel, including interrupts.
    ran: u64,
    /// Ticks in which cores wanted to run, but didn't.
    steal: u64,
}

impl MachineTime {
    /// The time until now.
    pub fn now() -> io::Result<Self> {
        Self::parse(&fs::read_to_string("/proc/stat")?).ok_or(io::ErrorKind::InvalidData.into())
    }

    /// The first line: `cpu user nice system idle iowait irq softirq steal …`, over all cores.
    fn parse(stat: &str) -> Option<Self> {
        let mut fields = stat.lines().next()?.split_ascii_whitespace();
        if fields.next() != Some("cpu") {
            return None;
        }
        let ticks: Vec<u64> = fields.take(8).map(|ticks| ticks.parse().ok()).collect::<Option<_>>()?;
        let [user, nice, system, _idle, _iowait, irq, softirq, steal] = ticks[..] else { return None };
        Some(Self { ran: user + nice + system + irq + softirq, steal })
    }

    /// The time that all cores together ran since `before`.
    pub fn ran_since(&self, before: &Self) -> Duration {
        let ticks = self.ran.saturating_sub(before.ran) as f64;
        Duration::from_secs_f64(ticks / rustix::param::clock_ticks_per_second() as f64)
    }

    /// The share of the CPU time requested since `before` that the cores didn't get, 0 to 1.
    pub fn steal_since(&self, before: &Self) -> f64 {
        let steal = self.steal.saturating_sub(before.steal);
        let wanted = self.ran.saturating_sub(before.ran) + steal;
        if wanted == 0 { 0.0 } else { steal as f64 / wanted as f64 }
    }
}

#[cfg(test)]
mod tests;
