//! The task that joins the scheduler, the fetches and the data plane.
//!
//! Updates are delivered one by one, in order. While the data plane's mailbox is full, the task starts no
//! fetch and takes no changes of subscriptions. So the number of waiting updates is bounded by the fetches in
//! flight and one batch of changes.

use crate::metrics::{FetchLabels, Metrics, UpstreamLabels};
use crate::options::FeedsOptions;
use crate::pushed_documents::PushedDocuments;
use crate::schedule::{FailureClass, FetchJob, Freshness, KeyList, KeysQuery, Outcome, Scheduler};
use crate::signals::{Signals, stopped};
use crate::upstream::{Bodies, DocumentProcessor, Failure, Fetched, Upstreams};
use crate::upstream_log::UpstreamLog;
use crate::view::FeedsView;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::Key;
use stentor_ports::FeedUpdate;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

/// The state of the feeds' task. [`Self::run`] runs it.
pub(crate) struct Feeds {
    data_plane: Arc<dyn stentor_ports::Feeds>,
    signals: Arc<Signals>,
    metrics: Metrics,
    upstreams: Upstreams,
    scheduler: Scheduler,
    processor: DocumentProcessor,
    bodies: Arc<Bodies>,
    pushed_documents: Arc<PushedDocuments>,
    view: Arc<FeedsView>,
    /// The fetches in flight, each with the time that it took.
    fetches: JoinSet<(Fetched, Duration)>,
    /// The key and upstream of each fetch in flight.
    in_flight: HashMap<Id, (Key, usize)>,
    /// The next update, if the data plane's mailbox had no space for it.
    undelivered: Option<(Key, FeedUpdate)>,
    /// `true` if the data plane may have changes of subscriptions that this task hasn't taken.
    has_wanted: bool,
    /// The log state of each upstream.
    logs: Vec<UpstreamLog>,
}

/// Options of a reload.
pub(crate) struct Change {
    pub(crate) options: FeedsOptions,
    pub(crate) upstreams: Upstreams,
    /// Dropped when the options apply, which notifies the caller.
    pub(crate) applied: oneshot::Sender<()>,
}

/// A request of the admin port.
pub(crate) enum Request {
    /// A key was fetched outside the schedule.
    Refetch(Key),
    /// The list of keys, which the function receives. It returns at once.
    List(KeysQuery, Box<dyn FnOnce(KeyList) + Send>),
}

impl Feeds {
    pub(crate) fn new(
        options: &FeedsOptions,
        upstreams: Upstreams,
        data_plane: Arc<dyn stentor_ports::Feeds>,
        signals: Arc<Signals>,
        metrics: Metrics,
        pushed_documents: Arc<PushedDocuments>,
        bodies: Arc<Bodies>,
    ) -> Self {
        let view = FeedsView::new(upstreams.iter().map(|upstream| upstream.name.clone()));
        Self {
            data_plane,
            signals,
            metrics,
            logs: options.upstreams.iter().map(|_| UpstreamLog::default()).collect(),
            upstreams,
            scheduler: Scheduler::new(options.clone(), RandomState::new().hash_one(0)),
            processor: DocumentProcessor::default(),
            bodies,
            pushed_documents,
            view: Arc::new(view),
            fetches: JoinSet::new(),
            in_flight: HashMap::new(),
            undelivered: None,
            has_wanted: true,
        }
    }

    pub(crate) fn view(&self) -> Arc<FeedsView> {
        self.view.clone()
    }

    /// Runs until `stop` is set, then aborts the fetches in flight. `changes` receives new options with their
    /// upstreams. `requests` receives the admin port's requests.
    pub(crate) async fn run(
        mut self,
        mut changes: mpsc::Receiver<Change>,
        mut requests: mpsc::Receiver<Request>,
        mut stop: watch::Receiver<bool>,
    ) {
        let watch = |options: &FeedsOptions| Box::pin(options.secrets.clone().watch());
        let mut secrets = watch(self.scheduler.options());
        loop {
            self.turn();
            self.view.show(&self.scheduler);
            let blocked = self.undelivered.is_some();
            let timeout = self.scheduler.poll_timeout().filter(|_| !blocked);
            tokio::select! {
                () = stopped(&mut stop) => return,
                Some(joined) = self.fetches.join_next_with_id() => {
                    self.finish(joined);
                    // Results that came together are delivered together.
                    while let Some(joined) = self.fetches.try_join_next_with_id() {
                        self.finish(joined);
                    }
                }
                Some(change) = changes.recv() => {
                    secrets = watch(&change.options);
                    self.configure(change);
                }
                () = &mut secrets => {}
                Some(request) = requests.recv() => match request {
                    Request::Refetch(key) => self.scheduler.refetch(Instant::now().into_std(), &key),
                    Request::List(query, reply) => reply(self.scheduler.list(&query)),
                },
                () = self.signals.when_wanted(), if !blocked => self.has_wanted = true,
                () = deliver(&*self.data_plane, &self.signals, &self.undelivered), if blocked => {
                    self.undelivered = None;
                }
                () = sleep_until(timeout.map_or_else(Instant::now, Instant::from_std)), if timeout.is_some() => {}
            }
        }
    }

    /// Applies new options.
    fn configure(&mut self, Change { options, upstreams, applied }: Change) {
        if options.upstreams != *self.scheduler.upstreams() {
            // Fetches in flight use the previous configuration.
            self.fetches.abort_all();
            self.in_flight.clear();
            let mut before: Vec<_> = self.upstreams.iter().map(|upstream| upstream.name.clone()).collect();
            let mut logs = std::mem::take(&mut self.logs);
            self.logs.extend(upstreams.iter().map(|upstream| {
                let place = before.iter().position(|name| *name == upstream.name);
                place.map_or_else(UpstreamLog::default, |place| {
                    before.swap_remove(place);
                    logs.swap_remove(place).after_reload()
                })
            }));
            self.view.configure(upstreams.iter().map(|upstream| upstream.name.clone()));
        }
        // Replaces the upstreams even if their options are equal, because the trusted certificates may have
        // changed.
        self.upstreams = upstreams;
        self.bodies.set_bytes_max(options.fetches_bytes_max);
        self.pushed_documents.configure(&options);
        self.scheduler.configure(Instant::now().into_std(), options);
        drop(applied);
    }

    /// Carries out all work that doesn't need to wait.
    fn turn(&mut self) {
        loop {
            while self.undelivered.is_none()
                && let Some((key, update)) = self.scheduler.poll_event()
            {
                if self.data_plane.update_feed(&key, update.clone()).is_err() {
                    self.metrics.mailbox_waits.inc();
                    self.undelivered = Some((key, update));
                }
            }
            if self.undelivered.is_some() {
                return;
            }
            let now = Instant::now().into_std();
            if std::mem::take(&mut self.has_wanted) {
                for change in self.data_plane.take_key_interest() {
                    // A pushed document is kept with and without subscribers, so its key isn't scheduled.
                    if !self.pushed_documents.handle_wanted(&change.key, change.wanted) {
                        self.scheduler.handle_wanted(now, &change.key, change.wanted, &change.requesters);
                    }
                }
            }
            match self.scheduler.poll_fetch(now) {
                Some(job) => self.start(job),
                None if self.scheduler.has_events() => {}
                None => return,
            }
        }
    }

    fn start(&mut self, job: FetchJob) {
        let upstream = self.upstreams.at(job.upstream).clone();
        let (processor, bodies) = (self.processor.clone(), self.bodies.clone());
        let what = (job.key.clone(), job.upstream);
        let handle = self.fetches.spawn(async move {
            let begun = Instant::now();
            (upstream.fetch(&job, &processor, &bodies).await, begun.elapsed())
        });
        self.in_flight.insert(handle.id(), what);
    }

    fn finish(&mut self, joined: Result<(Id, (Fetched, Duration)), JoinError>) {
        let (id, (fetched, took)) = joined.unwrap_or_else(|error| {
            (error.id(), (Failure::Internal("a fetch panicked").into(), Duration::ZERO))
        });
        // A change of the configuration has cancelled the fetch if it isn't in flight.
        let Some((key, upstream)) = self.in_flight.remove(&id) else { return };
        let name = self.upstreams.at(upstream).name.clone();
        let labels = FetchLabels { upstream: name.clone(), outcome: fetched.label };
        self.metrics.fetches.get_or_create(&labels).inc();
        let labels = UpstreamLabels { upstream: name.clone() };
        self.metrics.fetch_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        let received = u64::try_from(fetched.traffic.received_bytes).unwrap_or(u64::MAX);
        self.metrics.fetch_received_bytes.get_or_create(&labels).inc_by(received);
        let is_missing = matches!(fetched.outcome, Outcome::NotFound { .. });
        let failure = fetched.failure.map(|failure| {
            let cause = failure.to_string();
            tracing::debug!(upstream = &*name, key = key.as_str(), cause, "a fetch failed");
            if !is_missing {
                self.logs[upstream].failures.record(failure.class(), &failure.cause(), &key, &cause);
            }
            cause
        });
        let has_failed = matches!(fetched.outcome, Outcome::Failed { .. });
        self.view.record_fetch(upstream, &key, has_failed, failure.clone());
        if let Some(freshness) = fetched.outcome.freshness() {
            self.record_freshness(upstream, &key, freshness);
        }
        self.scheduler.record_body(&key, fetched.traffic.received_bytes, fetched.traffic.body_wait);
        let now = Instant::now().into_std();
        self.scheduler.record_redirects(now, upstream, fetched.traffic.redirects);
        self.scheduler.handle_result(now, &key, fetched.outcome);
        if let Some(cause) = failure.filter(|_| is_missing) {
            let keeps_document = self.scheduler.failing(&key) == Some(FailureClass::NotFound);
            self.logs[upstream].record_missing(now, &name, &key, &cause, keeps_document);
        }
        if let Some(lane) = self.scheduler.lanes().nth(upstream) {
            let log = &mut self.logs[upstream];
            let interval = log.max_age.interval.unwrap_or(lane.interval);
            self.metrics.upstream_interval.get_or_create(&labels).set(interval.as_secs_f64());
            log.review(now, &self.scheduler.upstreams()[upstream], &lane);
        }
    }

    /// Records the time until the next fetch of this key, if the upstream's `Cache-Control` sets it, for
    /// metrics and status.
    fn record_freshness(&mut self, upstream: usize, key: &Key, freshness: Freshness) {
        let options = self.scheduler.options();
        let max_age = match freshness {
            Freshness::For(age) => Some(age),
            Freshness::Unsaid | Freshness::Over => None,
        };
        let interval = max_age.map(|age| options.bounded_max_age(upstream, age));
        let now = Instant::now().into_std();
        self.logs[upstream].record_max_age(now, &options.upstreams[upstream], key, max_age, interval);
        self.view.show_max_age(upstream, interval);
        let labels = UpstreamLabels { upstream: self.upstreams.at(upstream).name.clone() };
        self.metrics.upstream_max_age.get_or_create(&labels).set(interval.unwrap_or_default().as_secs_f64());
    }
}

/// Waits until the data plane has accepted the update.
async fn deliver(
    data_plane: &dyn stentor_ports::Feeds,
    signals: &Signals,
    update: &Option<(Key, FeedUpdate)>,
) {
    let Some((key, update)) = update else { return };
    // Without a deadline, `when_space` returns only after success.
    let _ = signals.when_space(None, || data_plane.update_feed(key, update.clone())).await;
}
