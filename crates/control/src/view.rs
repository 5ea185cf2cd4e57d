//! The state of the feeds, for metrics and status. The feeds' task writes it, and requests to the admin port
//! read it.

use crate::schedule::{FAILURE_CLASSES, LaneStats, Scheduler, Stats};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use stentor_hub::Key;

/// The state of an upstream.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpstreamView {
    pub(crate) name: Arc<str>,
    pub(crate) fetches: u64,
    pub(crate) failures: u64,
    /// The scheduler's statistics of the upstream.
    pub(crate) lane: LaneStats,
    /// Interval of fetches that `Cache-Control` of the last response sets. `None` while `poll_interval`
    /// applies.
    pub(crate) max_age: Option<Duration>,
    /// The time since which the last fetch of some key has failed.
    pub(crate) failing_since: Option<SystemTime>,
    /// The last failure or 404: its key, cause and time.
    pub(crate) last_failure: Option<(Key, String, SystemTime)>,
    /// The key whose fetch failed last, and the cause. `None` if the key has been fetched since.
    pub(crate) failed_key: Option<(Key, String)>,
}

/// The state of all feeds.
pub(crate) struct FeedsView(Mutex<(Stats, Vec<UpstreamView>)>);

impl FeedsView {
    pub(crate) fn new(upstreams: impl Iterator<Item = Arc<str>>) -> Self {
        let views = upstreams.map(|name| UpstreamView { name, ..UpstreamView::default() });
        Self(Mutex::new((Stats::default(), views.collect())))
    }

    /// Replaces the upstreams. An upstream with the same name as before keeps its counts.
    pub(crate) fn configure(&self, upstreams: impl Iterator<Item = Arc<str>>) {
        let (_, views) = &mut *self.0.lock();
        let mut before = std::mem::take(views);
        views.extend(upstreams.map(|name| {
            let place = before.iter().position(|view| view.name == name);
            place.map_or_else(
                || UpstreamView { name, ..UpstreamView::default() },
                |place| before.swap_remove(place),
            )
        }));
    }

    /// Makes the view of one upstream with every kind of failure.
    pub(crate) fn with_every_failure(name: &str) -> Self {
        let view = Self::new([name.into()].into_iter());
        view.0.lock().1[0].lane.has_failed = [true; FAILURE_CLASSES];
        view
    }

    pub(crate) fn stats(&self) -> Stats {
        self.0.lock().0
    }

    pub(crate) fn upstreams(&self) -> Vec<UpstreamView> {
        self.0.lock().1.clone()
    }

    /// Copies the scheduler's current statistics.
    pub(crate) fn show(&self, scheduler: &Scheduler) {
        let (stats, upstreams) = &mut *self.0.lock();
        *stats = scheduler.stats();
        for (upstream, lane) in upstreams.iter_mut().zip(scheduler.lanes()) {
            upstream.failing_since =
                (lane.failed_keys() > 0).then(|| upstream.failing_since.unwrap_or_else(SystemTime::now));
            upstream.lane = lane;
        }
    }

    /// Counts a finished fetch, and stores its failure.
    pub(crate) fn record_fetch(&self, upstream: usize, key: &Key, has_failed: bool, failure: Option<String>) {
        let upstream = &mut self.0.lock().1[upstream];
        upstream.fetches += 1;
        upstream.failures += u64::from(has_failed);
        if has_failed {
            upstream.failed_key = Some((key.clone(), failure.clone().unwrap_or_default()));
        } else if upstream.failed_key.as_ref().is_some_and(|(failed, _)| failed == key) {
            upstream.failed_key = None;
        }
        if let Some(failure) = failure {
            upstream.last_failure = Some((key.clone(), failure, SystemTime::now()));
        }
    }

    /// Stores the time until the next fetch that `Cache-Control` of a response sets.
    pub(crate) fn show_max_age(&self, upstream: usize, max_age: Option<Duration>) {
        self.0.lock().1[upstream].max_age = max_age;
    }
}
