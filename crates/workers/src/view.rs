//! The links and metrics for operators.

use crate::application::{Applications, ENDS};
use crate::forward;
use crate::nodes::NodeStats;
use crate::occasional::Occasional;
use crate::recovery::RecoveryStats;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use stentor_link::{Link, Refusal, Stats};
use stentor_ports::{LinkInfo, LinkState, Metric, MetricKind, MetricSource};

fn state_of(link: &Link) -> LinkState {
    match link {
        link if link.is_ended() => LinkState::Ended,
        link if link.is_lost() => LinkState::Lost,
        link if link.is_draining() => LinkState::Draining,
        _ => LinkState::Up,
    }
}

/// An application.
#[derive(Default)]
struct AppView {
    name: Arc<str>,
    links: Vec<LinkInfo>,
    requests: usize,
    waiting: usize,
    waiting_changes: usize,
    queued_bytes: usize,
    stats: Stats,
    recovery: RecoveryStats,
    /// The other nodes. `None` without a cluster.
    nodes: Option<NodeStats>,
    ends: [u64; ENDS.len()],
}

#[derive(Default)]
struct State {
    apps: Vec<AppView>,
    data_refused: u64,
    relays_dropped: u64,
    /// Number of workers that were refused, by the code of ERROR.
    refused: BTreeMap<&'static str, u64>,
    /// Refusals by code. A worker that is refused tries again and again.
    log: BTreeMap<&'static str, Occasional>,
}

/// The last view of the service.
#[derive(Default)]
pub(crate) struct View(Mutex<State>);

impl View {
    /// Counts a worker that is refused, and logs it. `app`: the application, if it is known.
    pub(crate) fn handle_refusal(&self, app: Option<&str>, refusal: &Refusal, now: Instant) {
        let code = refusal.code.name();
        let mut state = self.0.lock();
        *state.refused.entry(code).or_default() += 1;
        let logged = state.log.entry(code).or_default().count(1, now);
        drop(state);
        if let Some(refusals) = logged {
            let (reason, missed) = (&refusal.message, refusals - 1);
            tracing::warn!(app, code, reason, missed, "a worker was refused");
        }
    }

    /// Takes over the state after a turn. Texts are copied only for new links.
    pub(crate) fn update(&self, applications: &Applications) {
        let mut state = self.0.lock();
        state.data_refused = applications.data_refused();
        state.relays_dropped = applications.relays_dropped();
        state.apps.resize_with(applications.len(), AppView::default);
        for (app, view) in state.apps.iter_mut().enumerate() {
            let application = applications.get(app);
            view.requests = application.requests();
            view.waiting = application.waiting();
            view.waiting_changes = application.waiting_changes();
            view.queued_bytes = application.queued_bytes();
            view.stats = application.stats();
            view.recovery = applications.recovery(app);
            view.nodes = applications.nodes(app);
            view.ends = applications.ends(app);
            view.name = applications.name_of(app).clone();
            let mut former = std::mem::take(&mut view.links).into_iter().peekable();
            for link in application.links() {
                let number = link.number();
                while former.next_if(|info| info.link < number).is_some() {}
                let mut info = former.next_if(|info| info.link == number).unwrap_or_else(|| LinkInfo {
                    node: None,
                    app: view.name.clone(),
                    link: number,
                    worker: link.name().into(),
                    instance: link.instance().into(),
                    state: LinkState::Up,
                    on_crash: link.on_crash().name().into(),
                    sessions: 0,
                    unacknowledged_bytes: 0,
                });
                info.state = state_of(link);
                info.sessions = application.sessions_of(number);
                info.unacknowledged_bytes = link.unacknowledged_bytes();
                view.links.push(info);
            }
        }
    }

    /// All links, by application and number.
    pub(crate) fn links(&self) -> Vec<LinkInfo> {
        self.0.lock().apps.iter().flat_map(|app| app.links.iter().cloned()).collect()
    }
}

type Samples = Vec<(Vec<(&'static str, String)>, u64)>;

fn metric(kind: MetricKind, name: &'static str, help: &'static str, samples: Samples) -> Metric {
    Metric { name, help, kind, samples }
}

impl State {
    /// A value of each application.
    fn by_app(&self, value: impl Fn(&AppView) -> u64) -> Samples {
        self.apps.iter().map(|app| (vec![("app", app.name.to_string())], value(app))).collect()
    }

    /// A value of each application on a node of a cluster.
    fn by_app_of_nodes(&self, value: impl Fn(NodeStats) -> u64) -> Samples {
        let sample = |app: &AppView| Some((vec![("app", app.name.to_string())], value(app.nodes?)));
        self.apps.iter().filter_map(sample).collect()
    }

    /// Several values of each application, by another label.
    fn by_label<const N: usize>(
        &self,
        label: &'static str,
        values: impl Fn(&AppView) -> [(&'static str, u64); N],
    ) -> Samples {
        let samples = self.apps.iter().flat_map(|app| {
            let of = |(text, value): (&str, u64)| {
                (vec![("app", app.name.to_string()), (label, text.to_owned())], value)
            };
            values(app).map(of)
        });
        samples.collect()
    }

    /// A value of each worker. Links of workers with the same name count together.
    fn by_worker(&self, value: impl Fn(&LinkInfo) -> usize) -> Samples {
        let mut all: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for link in self.apps.iter().flat_map(|app| &app.links) {
            *all.entry((&link.app, &link.worker)).or_default() += value(link) as u64;
        }
        let sample = |((app, worker), value): ((&str, &str), u64)| {
            (vec![("app", app.to_owned()), ("worker", worker.to_owned())], value)
        };
        all.into_iter().map(sample).collect()
    }

    fn metrics(&self) -> Vec<Metric> {
        use MetricKind::{Counter, Gauge};
        let states = |app: &AppView| {
            let count = |state| app.links.iter().filter(|link| link.state == state).count() as u64;
            [LinkState::Up, LinkState::Draining, LinkState::Lost].map(|state| (state.name(), count(state)))
        };
        let ends = |app: &AppView| std::array::from_fn::<_, { ENDS.len() }, _>(|n| (ENDS[n], app.ends[n]));
        let refused = self.refused.iter();
        let refused = refused.map(|(code, count)| (vec![("code", (*code).to_owned())], *count)).collect();
        vec![
            metric(
                Gauge,
                "link_workers",
                "Links of workers, by application and state",
                self.by_label("state", states),
            ),
            metric(Gauge, "link_sessions", "Sessions of each worker", self.by_worker(|link| link.sessions)),
            metric(
                Gauge,
                "link_unacknowledged_bytes",
                "Bytes that each worker hasn't acknowledged; clients' messages wait above links.window_bytes",
                self.by_worker(|link| link.unacknowledged_bytes),
            ),
            metric(
                Gauge,
                "link_requests",
                "Clients' requests that wait for a worker or its answer, by application",
                self.by_app(|app| app.requests as u64),
            ),
            metric(
                Gauge,
                "link_waiting_sessions",
                "Sessions and requests without a worker, by application",
                self.by_app(|app| app.waiting as u64),
            ),
            metric(
                Gauge,
                "link_waiting_changes",
                "Workers that wait with a change of other workers' sockets (such as socketsJoin), because another worker of the node has more than 4 MiB to acknowledge, or the cores carry out others, by application",
                self.by_app(|app| app.waiting_changes as u64),
            ),
            metric(
                Gauge,
                "link_queued_bytes",
                "Size of clients' messages that wait for workers, by application",
                self.by_app(|app| app.queued_bytes as u64),
            ),
            metric(
                Counter,
                "link_requests_refused",
                "Clients' requests refused with 503, because no worker took them in time or too many waited, by application",
                self.by_app(|app| app.stats.requests_refused),
            ),
            metric(
                Counter,
                "link_sessions_resumed",
                "Sessions that another worker has resumed, by application",
                self.by_app(|app| app.stats.sessions_resumed),
            ),
            metric(
                Counter,
                "link_sessions_moved",
                "Sessions that were moved from a running worker, by application",
                self.by_app(|app| app.stats.sessions_moved),
            ),
            metric(
                Counter,
                "link_sessions_lost",
                "Sessions closed because their worker crashed (on_crash = disconnect) or no worker took them in time or could take their rooms (more than 4 MiB), by application and reason",
                self.by_label("reason", |app| {
                    [("crash", app.stats.sessions_crashed), ("no_worker", app.stats.sessions_without_worker)]
                }),
            ),
            metric(
                Counter,
                "link_crash_messages",
                "Messages that a crashed worker hadn't acknowledged and that were redelivered or dropped, by application and policy",
                self.by_label("policy", |app| {
                    [("redeliver", app.stats.messages_redelivered), ("drop", app.stats.messages_dropped)]
                }),
            ),
            metric(
                Counter,
                "link_ends",
                "Links that have ended, by application and end",
                self.by_label("end", ends),
            ),
            metric(
                Gauge,
                "link_recovery_bytes",
                "Size of the broadcasts and disconnected sockets kept for clients that reconnect, by application",
                self.by_app(|app| app.recovery.bytes as u64),
            ),
            metric(
                Gauge,
                "link_recovery_sockets",
                "Sockets of disconnected clients that can be recovered, by application",
                self.by_app(|app| app.recovery.sockets as u64),
            ),
            metric(
                Counter,
                "link_recoveries",
                "Clients that reconnected with a former socket, by application and outcome: recovered, or failed because they came too late or missed too much",
                self.by_label("outcome", |app| {
                    [("recovered", app.recovery.recovered), ("failed", app.recovery.failed)]
                }),
            ),
            metric(
                Gauge,
                "link_recovery_searches",
                "Clients that reconnected and whose sockets other nodes of the cluster are asked for, by application",
                self.by_app(|app| app.recovery.searches as u64),
            ),
            metric(
                Counter,
                "link_recovery_evicted",
                "Broadcasts and disconnected sockets evicted early (links.recovery_bytes_max), by application",
                self.by_app(|app| app.recovery.evicted),
            ),
            metric(
                Gauge,
                "link_cluster_workers",
                "Workers that take sessions at other nodes of the cluster, by application; 0 while the engine is away",
                self.by_app_of_nodes(|nodes| nodes.workers.into()),
            ),
            metric(
                Gauge,
                "link_cluster_conflicts",
                "Other nodes of the cluster whose workers have other options than this node's, by application",
                self.by_app_of_nodes(|nodes| nodes.conflicts as u64),
            ),
            metric(
                Counter,
                "link_cluster_entries_sent",
                "Broadcasts, changes of rooms, requests and answers of workers that were sent to other nodes, by application",
                self.by_app_of_nodes(|nodes| nodes.sent),
            ),
            metric(
                Counter,
                "link_cluster_entries_received",
                "Broadcasts, changes of rooms, requests and answers of other nodes' workers, by application",
                self.by_app_of_nodes(|nodes| nodes.received),
            ),
            metric(
                Counter,
                "link_cluster_entries_dropped",
                "Broadcasts, changes of rooms, requests and answers that other nodes don't get, because the engine was away or they were too large for it, by application",
                self.by_app_of_nodes(|nodes| nodes.dropped),
            ),
            metric(
                Counter,
                "link_cluster_messages_dropped",
                "Messages of other nodes' workers that this node dropped, because more than 8 MiB of them, shared by the applications, waited for its cores or its engine (16 MiB for changes of sockets), by application",
                self.by_app_of_nodes(|nodes| nodes.missed),
            ),
            metric(
                Counter,
                "link_cluster_messages_refused",
                "Malformed messages of other nodes' application links, by application",
                self.by_app_of_nodes(|nodes| nodes.refused),
            ),
            metric(
                Counter,
                "link_data_refused",
                "Values of socket.data that exceeded 64 KiB, and so weren't kept for other workers",
                vec![(Vec::new(), self.data_refused)],
            ),
            metric(
                Counter,
                "link_relays_dropped",
                "Questions and answers between workers that were dropped, because too many bytes waited for the worker that was to receive them",
                vec![(Vec::new(), self.relays_dropped)],
            ),
            metric(
                Counter,
                "link_workers_refused",
                "Connections of workers that were refused, by code",
                refused,
            ),
        ]
    }
}

impl MetricSource for View {
    fn metrics(&self) -> Vec<Metric> {
        self.0.lock().metrics()
    }
}

/// The metrics of the service, and of requests for other paths.
struct Sample(View);

impl MetricSource for Sample {
    fn metrics(&self) -> Vec<Metric> {
        [self.0.metrics(), forward::metrics([0; 4])].concat()
    }
}

/// A source with a sample of each metric, for the reference.
pub fn sample_metrics() -> Arc<dyn MetricSource> {
    let name: Arc<str> = "any".into();
    let link = LinkInfo {
        node: None,
        app: name.clone(),
        link: 1,
        worker: "any".into(),
        instance: "any".into(),
        state: LinkState::Up,
        on_crash: "disconnect".into(),
        sessions: 0,
        unacknowledged_bytes: 0,
    };
    let nodes = Some(NodeStats::default());
    let app = AppView { name, links: vec![link], nodes, ..AppView::default() };
    let codes = stentor_link::Code::ALL.map(|code| (code.name(), 0));
    let state = State { apps: vec![app], refused: codes.into(), ..State::default() };
    Arc::new(Sample(View(Mutex::new(state))))
}
