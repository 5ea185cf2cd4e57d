//! Reports the progress of a running load once per second, if requested. It then costs one clock read per turn.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::outcome::Reading;
use super::{Latencies, Outcome};

/// Interval between reports.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Serialize, Deserialize)]
pub(super) enum Report {
    Connected,
    Live(Live),
    Done(Box<Outcome>),
    Failed(String),
}

impl Report {
    /// The report as a line of JSON.
    pub(super) fn line(&self) -> serde_json::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// The progress: rates of the last second, and times since the start including the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Live {
    /// Messages received per second by all generators, estimated from this one.
    pub delivered_hz: f64,
    /// Median and 99th percentile of the messages with an intended time.
    pub latency: Option<(Duration, Duration)>,
    /// The server's share of a core.
    pub server_share: f64,
}

impl fmt::Display for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}/s", self.delivered_hz)?;
        if let Some((p50, p99)) = self.latency {
            let [p50, p99] = [p50, p99].map(|time| time.as_secs_f64() * 1e3);
            write!(f, ", p50 {p50:.2} ms, p99 {p99:.2} ms")?;
        }
        write!(f, ", server {:.0} %", self.server_share * 100.0)
    }
}

/// Reports progress to the parent process.
pub(super) struct ProgressReporter {
    out: File,
    /// Factor from this generator's messages to those of all generators.
    scale: f64,
    next: Instant,
    since: Option<Reading>,
    recorded: u64,
    latency: Latencies,
}

impl ProgressReporter {
    /// Writes to the standard output of this process, which [`super::worker`] uses too. Both write whole lines.
    pub(super) fn new(scale: f64) -> std::io::Result<Self> {
        let out = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
        let latency = Latencies::new();
        Ok(Self { out, scale, next: Instant::now() + EVERY, since: None, recorded: 0, latency })
    }

    /// Counts a received message.
    pub(super) fn record(&mut self, intended_ns: Option<u64>, at_ns: u64) {
        self.recorded += 1;
        if let Some(intended_ns) = intended_ns.filter(|intended_ns| *intended_ns > 0) {
            self.latency.record_ns(at_ns.saturating_sub(intended_ns));
        }
    }

    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// Reports the progress since the last call. A closed pipe doesn't stop the load.
    pub(super) fn report(&mut self, now: Reading) {
        self.next = Instant::now() + EVERY;
        let recorded = std::mem::take(&mut self.recorded);
        let Some(since) = self.since.replace(now) else { return };
        let span = since.until(&now);
        let latency = (!self.latency.is_empty())
            .then(|| (self.latency.percentile(50.0), self.latency.percentile(99.0)));
        let live = Live {
            delivered_hz: recorded as f64 * self.scale / span.wall.as_secs_f64().max(1e-9),
            latency,
            server_share: span.server_share(),
        };
        if let Ok(line) = Report::Live(live).line() {
            let _ = self.out.write_all(&line);
        }
    }
}

#[cfg(test)]
mod tests;
