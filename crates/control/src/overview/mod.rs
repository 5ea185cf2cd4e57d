//! The overview of the server: time series of the last 15 minutes, and findings about what is wrong now. The
//! status page and `stentor top` show it.
//!
//! - `readings`: reads the figures of all parts of the process at one moment.
//! - `series`: keeps the time series; sans-I/O.
//! - `findings`: derives the findings from readings; a pure function.
//! - `threads`: CPU time of the threads.
//!
//! One sample is taken per [`INTERVAL`], whether a page is open or not. A sample reads counters that other
//! parts count anyway, so messages cost nothing more.
//!
//! **Invariant.** The series take at most [`SERIES_MAX`] × [`SAMPLES_MAX`] numbers of four bytes.

mod findings;
mod readings;
mod series;
mod threads;

pub use findings::DOCUMENTS as FINDING_DOCUMENTS;
pub(crate) use findings::Finding;
pub(crate) use readings::Sources;
pub(crate) use series::Chart;

use crate::signals::stopped;
use parking_lot::Mutex;
use readings::Deliveries;
use serde::Serialize;
use series::Series;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

/// Time between two samples.
const INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of samples: those of 15 minutes.
const SAMPLES_MAX: usize = 450;
/// Number of samples per minute.
const MINUTE_SAMPLES: usize = 30;
/// Maximum number of series. More than about 200 cores would need more; the series of further cores are left
/// out.
const SERIES_MAX: usize = 256;

/// The time series, and the sources of their figures.
pub(crate) struct Overview {
    sources: Sources,
    kept: Mutex<Kept>,
}

/// The samples, and the findings of the last one.
struct Kept {
    series: Series,
    /// Deliveries since the start, at the last [`MINUTE_SAMPLES`] samples.
    flow: VecDeque<Deliveries>,
    findings: Vec<Finding>,
}

/// The response of `GET /api/v1/overview`.
#[derive(Serialize)]
pub(crate) struct View {
    interval_ms: u64,
    /// The Unix times of the samples.
    times_ms: Vec<u64>,
    charts: Vec<Chart>,
    findings: Vec<Finding>,
}

impl Overview {
    pub(crate) fn new(sources: Sources) -> Self {
        let series = Series::new(SAMPLES_MAX, SERIES_MAX);
        Self { sources, kept: Mutex::new(Kept { series, flow: VecDeque::new(), findings: Vec::new() }) }
    }

    /// Takes samples until `stop` is set.
    pub(crate) async fn run(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stopped(&mut stop) => return,
                _ = ticks.tick() => {}
            }
            let this = self.clone();
            // On the blocking pool, because reading `/proc` blocks. A panic ends one sample only.
            if let Err(error) = tokio::task::spawn_blocking(move || this.sample()).await {
                tracing::debug!(%error, "a sample of the overview failed");
            }
        }
    }

    fn sample(&self) {
        let mut readings = self.sources.read();
        let mut kept = self.kept.lock();
        kept.series.record(Instant::now(), &readings);
        let before = kept.flow.front().copied().unwrap_or_default();
        if kept.flow.len() == MINUTE_SAMPLES {
            kept.flow.pop_front();
        }
        kept.flow.push_back(readings.flow);
        readings.flow = readings.flow.since(before);
        kept.findings = findings::findings(&readings);
    }

    /// Returns the samples that were taken after a Unix time in milliseconds, and the current findings.
    pub(crate) fn view(&self, after_ms: u64) -> View {
        let kept = self.kept.lock();
        let (times_ms, charts) = kept.series.after(after_ms);
        let interval_ms = u64::try_from(INTERVAL.as_millis()).unwrap_or(u64::MAX);
        View { interval_ms, times_ms, charts, findings: kept.findings.clone() }
    }
}
