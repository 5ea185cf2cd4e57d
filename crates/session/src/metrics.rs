//! Metrics of the data plane. Each core writes its own, and any thread reads them.

pub mod tls;

use crate::encode::{ENCODINGS_MAX, Encoding, Encodings};
use crate::identity::ClientKind;
use crate::ports::{Histogram, HistogramSample, Metric, MetricKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stentor_hub::{Disconnect, FormatId, HistoryStats, Hub, LogStats};

/// A number that one thread writes.
#[derive(Debug, Default)]
pub struct Figure(AtomicU64);

impl Figure {
    /// Adds `n`. Only the core that owns the number writes it, so no atomic addition is needed.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Sets a gauge, or a counter that another part counts.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number for each encoding.
struct ByEncoding([Figure; ENCODINGS_MAX]);

impl Default for ByEncoding {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Figure::default()))
    }
}

macro_rules! figures {
    ($($(#[doc = $help:literal])+ $name:ident: $kind:ident = $metric:literal,)*) => {
        /// The metrics of one core.
        #[derive(Default)]
        pub struct CoreMetrics {
            $($(#[doc = $help])+ pub $name: Figure,)*
            pub(crate) disconnects: [Figure; Disconnect::ALL.len()],
            pub(crate) turn_cpu: Seconds,
            delivery: Seconds,
            sessions_by_encoding: ByEncoding,
            /// Handshakes of TLS.
            pub tls: tls::Handshakes,
        }

        /// The metrics of all cores, by core.
        pub fn collect(cores: &[Arc<CoreMetrics>]) -> Vec<Metric> {
            let mut all = vec![$(Metric::by(
                "core",
                MetricKind::$kind,
                $metric,
                concat!($($help),+).trim_ascii(),
                cores.iter().map(|figures| figures.$name.value()).enumerate(),
            ),)*];
            let ended = |why: Disconnect| cores.iter().map(|core| core.disconnects[why as usize].value()).sum();
            let disconnects = Disconnect::ALL.map(|why| (why.name(), ended(why)));
            let help = "Sessions ended by the server, by reason.";
            all.push(Metric::by("reason", MetricKind::Counter, "disconnects", help, disconnects));
            let open = |name| cores.iter().map(|core| core.sessions_of(name)).sum();
            let sessions = Encoding::protocols().into_iter().map(|name| (name, open(name)));
            let help = "Open sessions, by protocol.";
            all.push(Metric::by("protocol", MetricKind::Gauge, "sessions_by_protocol", help, sessions));
            all.extend(tls::collect(cores));
            all
        }
    };
}

figures! {
    /// Open connections.
    connections: Gauge = "connections",
    /// Open sessions.
    sessions: Gauge = "sessions",
    /// Open Engine.IO sessions.
    clients: Gauge = "engineio_sessions",
    /// Open SockJS sessions, those over WebSocket excluded.
    sockjs: Gauge = "sockjs_sessions",
    /// Socket.IO sockets of disconnected clients that can still be recovered.
    suspended: Gauge = "socketio_recovery_sockets",
    /// Recovered Socket.IO sockets.
    recovered: Counter = "socketio_recoveries",
    /// Socket.IO sockets that could not be recovered: too late, or the messages were evicted.
    recoveries_failed: Counter = "socketio_recoveries_failed",
    /// Publications kept for disconnected Socket.IO clients.
    recovery_publications: Gauge = "socketio_recovery_publications",
    /// Bytes of the publications kept for disconnected Socket.IO clients, as socketio.recovery_bytes_max counts them.
    recovery_bytes: Gauge = "socketio_recovery_bytes",
    /// Publications evicted early from the recovery log (socketio.recovery_bytes_max, limits.memory_bytes_max).
    recovery_evicted: Counter = "socketio_recovery_evicted",
    /// Publications in the history of rooms.
    history_publications: Gauge = "room_history_publications",
    /// Bytes of the publications in the history of rooms.
    history_bytes: Gauge = "room_history_bytes",
    /// Sessions whose client has an identity.
    identities: Gauge = "identities",
    /// Clients and tokens refused: the token is missing, invalid, expired or revoked, or a hook refused the client.
    tokens_refused: Counter = "tokens_refused",
    /// Feeds and rooms.
    topics: Gauge = "topics",
    /// Sessions that a drain has yet to end.
    drain_pending: Gauge = "drain_sessions_pending",
    /// Accepted connections.
    accepted: Counter = "connections_accepted",
    /// Connections closed at once: none could make room for them, or the kernel is short of socket memory.
    refused: Counter = "connections_refused",
    /// Connections without a complete request that were closed for new ones: limits.connections_max, or three quarters
    /// of the file descriptors, were reached.
    evicted: Counter = "connections_evicted",
    /// Connections refused or closed because an address, or the node, had as many as it may, or too many new ones
    /// (address_limits, limits.connections_per_second).
    connections_limited: Counter = "connections_limited",
    /// Sessions refused because an address or a user had as many as it may, or too many new ones (address_limits,
    /// user_limits).
    sessions_limited: Counter = "sessions_limited",
    /// Messages, events and publications above the limits of their sessions (session_limits).
    messages_limited: Counter = "messages_limited",
    /// Events of sessions that their timelines lack: newer ones have replaced them, or too many happened within a second.
    timeline_lost: Counter = "timeline_events_lost",
    /// Ended sessions whose timelines can still be read.
    sessions_ended: Gauge = "timeline_ended_sessions",
    /// Publications that clients repeated with an idempotency key, and that were not published again.
    publications_repeated: Counter = "publications_repeated",
    /// Connections closed because their PROXY protocol header was malformed, late, or not from a trusted network.
    proxy_headers_refused: Counter = "proxy_headers_refused",
    /// Share of a core's sessions that come from one address, in percent, if it is more than half of at least 100. An
    /// estimate from a sample. A proxy that isn't in proxies.trusted shows here.
    address_share: Gauge = "address_share_percent",
    /// Failed attempts to accept a connection, for lack of file descriptors or memory.
    accept_errors: Counter = "accept_errors",
    /// Connections moved to another core.
    handed_over: Counter = "connections_migrated",
    /// Connections passed through to the nodes that have their clients' sessions.
    relayed: Counter = "relays",
    /// Requests answered with 503 because too many connections are passed through (limits.relayed_connections_max).
    relays_refused: Counter = "relays_refused",
    /// Connections that other nodes have passed through to this one.
    adopted: Counter = "relays_received",
    /// Answered HTTP requests, upgrades included.
    requests: Counter = "http_requests",
    /// HTTP requests answered with status 400 or above.
    request_errors: Counter = "http_request_errors",
    /// Requests refused because of their Origin.
    origins_refused: Counter = "origins_refused",
    /// Messages received from clients.
    messages: Counter = "messages_received",
    /// Bytes received from clients.
    received_bytes: Counter = "received_bytes",
    /// Bytes sent to clients, without the overhead of TLS.
    sent_bytes: Counter = "sent_bytes",
    /// Sessions and connections ended because the client broke the protocol or a limit.
    protocol_errors: Counter = "protocol_errors",
    /// Deliveries due: publications times the sessions that receive them.
    due: Counter = "deliveries_due",
    /// Deliveries handed to the kernel.
    sent: Counter = "deliveries_sent",
    /// Deliveries dropped: volatile, or evicted from a full send buffer.
    dropped: Counter = "deliveries_dropped",
    /// Deliveries replaced by a newer version of the feed.
    conflated: Counter = "deliveries_conflated",
    /// Deliveries pending: queued or in flight.
    owed: Gauge = "deliveries_pending",
    /// Deliveries dropped because the session ended.
    abandoned: Counter = "deliveries_dropped_on_disconnect",
    /// Encoded bytes queued for sessions with the policies queue and drop_oldest. Shared frames count once per session.
    owed_bytes: Gauge = "send_buffer_bytes",
    /// Feed patches kept for subscribers that are behind.
    patches: Gauge = "feed_patches",
    /// Bytes of kept feed patches.
    patch_bytes: Gauge = "feed_patch_bytes",
    /// Evicted feed patches (limits.feed_patches_bytes_max, limits.memory_bytes_max).
    patches_evicted: Counter = "feed_patches_evicted",
    /// Feed versions sent as snapshots.
    snapshots: Counter = "feed_snapshots",
    /// Feed versions sent as deltas from the previous version.
    deltas: Counter = "feed_deltas",
    /// Feed versions sent as joined deltas from an older version.
    joined: Counter = "feed_deltas_joined",
    /// Messages to other cores that wait with the sender, because a mailbox is full.
    mailbox_overflow: Gauge = "mailbox_overflow_messages",
    /// Messages for other nodes that wait with a core, because the broker is busy.
    broker_waiting: Gauge = "broker_waiting_messages",
    /// Connections that are not read until other cores or the broker have caught up.
    held: Gauge = "connections_paused",
    /// Publications refused because the process was over its memory budget, or because of `limits.idempotency_keys_max`.
    publications_refused: Counter = "publications_refused",
    /// Times that a connection had used its share of a turn (limits.turn_bytes_max) and went on in the next.
    turn_yields: Counter = "turn_yields",
    /// Times that a core left the rest of a command for the next turn.
    command_yields: Counter = "command_yields",
    /// Times that a core freed memory because limits.memory_bytes_max was reached or nearly so.
    overloads: Counter = "memory_overloads",
    /// Questions to the authorizer whose answers are not known yet.
    decisions_pending: Gauge = "decisions_pending",
    /// Questions to the authorizer that were refused: too many were open (limits.decisions_max), or no answer came in time
    /// (limits.decision_timeout). In a cluster, also clients that joined a room before the engine said where its history ends.
    decisions_unanswered: Counter = "decisions_unanswered",
    /// Open connections that ended because the client broke TLS.
    tls_errors: Counter = "tls_errors",
    /// Members that are known in rooms with presence.
    presence_members: Gauge = "presence_members",
    /// Notices of joins and leaves, to watchers of rooms.
    presence_notices: Counter = "presence_notices",
    /// Joins and leaves that needed no notice of their own: they shared one, or were undone within 100 ms.
    presence_coalesced: Counter = "presence_changes_coalesced",
    /// Joins and leaves that notices only counted, because they were too many.
    presence_truncated: Counter = "presence_changes_truncated",
    /// Large messages and bodies refused because the memory budget was nearly used up.
    inputs_refused: Counter = "memory_inputs_refused",
}

/// Upper bounds of the buckets of turns, in seconds.
const TURN_CPU_SECONDS: [f64; Seconds::BOUNDS] =
    [0.000_02, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1];

/// Upper bounds of the buckets of deliveries, in seconds.
const DELIVERY_SECONDS: [f64; Seconds::BOUNDS] =
    [0.000_1, 0.000_25, 0.001, 0.002_5, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0, 30.0];

/// A histogram of durations.
#[derive(Default)]
pub(crate) struct Seconds {
    /// Numbers of durations: one for each bound, of the durations that don't exceed it but exceed the bound before, and one
    /// for the durations above all bounds.
    buckets: [Figure; Seconds::BOUNDS + 1],
    nanoseconds: Figure,
}

impl Seconds {
    const BOUNDS: usize = 11;

    fn record(&self, bounds: &[f64; Self::BOUNDS], taken: Duration) {
        let seconds = taken.as_secs_f64();
        self.buckets[bounds.partition_point(|bound| *bound < seconds)].add(1);
        self.nanoseconds.add(u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX));
    }

    fn buckets(&self) -> Vec<u64> {
        self.buckets.iter().map(Figure::value).collect()
    }

    fn sum(&self) -> f64 {
        self.nanoseconds.value() as f64 / 1e9
    }
}

/// The histograms of all cores, by core.
pub(crate) fn histograms(cores: &[Arc<CoreMetrics>]) -> Vec<Histogram> {
    let samples = |of: fn(&CoreMetrics) -> &Seconds| {
        let sample = |(core, figures): (usize, &Arc<CoreMetrics>)| {
            let seconds = of(figures);
            let labels = vec![("core", core.to_string())];
            HistogramSample { labels, buckets: seconds.buckets(), sum: seconds.sum() }
        };
        cores.iter().enumerate().map(sample).collect()
    };
    let turns = Histogram {
        name: "turn_cpu_seconds",
        help: "Processor time of a core's thread per turn, without sending publications; of every 64th turn.",
        bounds: &TURN_CPU_SECONDS,
        samples: samples(|figures| &figures.turn_cpu),
    };
    let deliveries = Histogram {
        name: "delivery_seconds",
        help: "Time from a publication to the moment when the kernel has it for a client, also for a slow one; of every 64th \
               publication.",
        bounds: &DELIVERY_SECONDS,
        samples: samples(|figures| &figures.delivery),
    };
    vec![turns, deliveries, tls::histogram(cores)]
}

impl CoreMetrics {
    /// Records the processor time of a turn.
    pub fn record_turn(&self, taken: Duration) {
        self.turn_cpu.record(&TURN_CPU_SECONDS, taken);
    }

    pub(crate) fn record_delivery(&self, taken: Duration) {
        self.delivery.record(&DELIVERY_SECONDS, taken);
    }

    /// Records the number of sessions by protocol. Not called in every turn, because there are many formats.
    pub fn record_protocols(&self, hub: &Hub<Encodings>) {
        for (figure, sessions) in self.sessions_by_encoding.0.iter().zip(hub.formats()) {
            figure.set(u64::from(*sessions));
        }
    }

    /// The number of sessions of a protocol.
    fn sessions_of(&self, protocol: &str) -> u64 {
        let of_protocol = |number: &u8| Encoding::from(FormatId(*number)).protocol() == Some(protocol);
        let numbers = (0..ENCODINGS_MAX as u8).filter(of_protocol);
        numbers.map(|number| self.sessions_by_encoding.0[usize::from(number)].value()).sum()
    }

    /// Updates the numbers that other parts count.
    pub fn record(
        &self,
        hub: &Hub<Encodings>,
        connections: usize,
        [engineio, sockjs, ..]: [usize; ClientKind::ALL.len()],
        suspended: usize,
        held: usize,
    ) {
        self.clients.set(engineio as u64);
        self.sockjs.set(sockjs as u64);
        self.suspended.set(suspended as u64);
        let counters = hub.counters();
        self.connections.set(connections as u64);
        self.sessions.set(hub.sessions() as u64);
        self.topics.set(hub.topics() as u64);
        self.due.set(counters.due);
        self.sent.set(counters.sent);
        self.dropped.set(counters.dropped);
        self.conflated.set(counters.conflated);
        self.owed.set(counters.pending);
        self.abandoned.set(counters.dropped_on_disconnect);
        self.owed_bytes.set(hub.pending_bytes() as u64);
        let feeds = hub.feed_stats();
        self.patches.set(feeds.patches as u64);
        self.patch_bytes.set(feeds.patch_bytes as u64);
        self.patches_evicted.set(feeds.patches_evicted);
        self.snapshots.set(feeds.snapshots);
        self.deltas.set(feeds.deltas);
        self.joined.set(feeds.joined);
        self.held.set(held as u64);
    }

    /// Records the sizes of histories and of the recovery log. Not called in every turn.
    pub fn record_past(&self, history: HistoryStats, log: LogStats) {
        self.history_publications.set(history.publications as u64);
        self.history_bytes.set(history.bytes as u64);
        self.recovery_publications.set(log.publications as u64);
        self.recovery_bytes.set(log.bytes as u64);
        self.recovery_evicted.set(log.evicted);
    }
}
