//! Samples a server's memory during a load, on a separate thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::measure::{memfd_bytes, resident_bytes, socket_bytes};

/// Interval between memory samples.
pub(super) const SAMPLE_EVERY: Duration = Duration::from_millis(250);
/// One of this many samples also counts the memfds.
const SAMPLES_PER_MEMFDS: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) resident_bytes: u64,
    pub(super) memfd_bytes: u64,
    pub(super) kernel_bytes: u64,
}

pub(super) struct Sampler {
    over: Arc<AtomicBool>,
    thread: thread::JoinHandle<Vec<Sample>>,
}

impl Sampler {
    /// Samples the server's processes `pids` and those that they have `started`, as long as they exist. `with_memfds`
    /// also counts memory in memfds, which takes time for each descriptor.
    pub(super) fn start(pids: Vec<u32>, started: Vec<u32>, with_memfds: bool) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let sum = move |of: fn(u32) -> io::Result<u64>| -> io::Result<u64> {
            let first = pids.iter().map(|pid| of(*pid)).sum::<io::Result<u64>>()?;
            Ok(first + started.iter().filter_map(|pid| of(*pid).ok()).sum::<u64>())
        };
        let thread = thread::spawn(move || {
            let mut samples: Vec<Sample> = Vec::new();
            while !seen.load(Ordering::Relaxed) {
                let memfd = match samples.last() {
                    Some(last) if !(with_memfds && samples.len().is_multiple_of(SAMPLES_PER_MEMFDS)) => {
                        Ok(last.memfd_bytes)
                    }
                    _ if with_memfds => sum(memfd_bytes),
                    _ => Ok(0),
                };
                if let (Ok(resident_bytes), Ok(memfd_bytes), Ok(kernel_bytes)) =
                    (sum(resident_bytes), memfd, socket_bytes())
                {
                    samples.push(Sample { resident_bytes, memfd_bytes, kernel_bytes });
                }
                thread::park_timeout(SAMPLE_EVERY);
            }
            samples
        });
        Self { over, thread }
    }

    pub(super) fn stop(self) -> Vec<Sample> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or_default()
    }
}

/// Memory that an allocator may take and return without consequence.
const GROWTH_IGNORED_BYTES: f64 = 1e6;

/// Growth from the maximum of the third quarter of the samples to that of the last quarter.
pub(super) fn growth_percent_per_10_s(samples: &[Sample]) -> f64 {
    let quarter = samples.len() / 4;
    if quarter == 0 {
        return 0.0;
    }
    let peak = |samples: &[Sample]| {
        samples.iter().map(|sample| sample.resident_bytes + sample.memfd_bytes).max().unwrap_or(0) as f64
    };
    let (third, last) = (peak(&samples[2 * quarter..3 * quarter]), peak(&samples[3 * quarter..]));
    let seconds = quarter as f64 * SAMPLE_EVERY.as_secs_f64();
    ((last - third - GROWTH_IGNORED_BYTES) / third.max(1.0) * 100.0 * 10.0 / seconds).max(0.0)
}

/// Kernel memory between the bursts: the lowest figure of the second half, when the buffers of slow clients are full
/// and those of the others are empty.
pub(super) fn held_kernel_bytes(samples: &[Sample]) -> u64 {
    samples[samples.len() / 2..].iter().map(|sample| sample.kernel_bytes).min().unwrap_or(0)
}

#[cfg(test)]
mod tests;
