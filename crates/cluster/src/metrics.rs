//! A node's counters about its cluster.

use crate::engine::Waiting;
use crate::feeds::FeedStats;
use crate::frame::FrameError;
use crate::rooms::RoomStats;
use std::sync::atomic::{AtomicU64, Ordering};
use stentor_ports::{Metric, MetricKind};

/// The outcome of a search for a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Found,
    NotFound,
    Timeout,
    Failed,
}

impl Outcome {
    pub(crate) const ALL: [Self; 4] = [Self::Found, Self::NotFound, Self::Timeout, Self::Failed];

    /// The outcome's label in metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::NotFound => "not_found",
            Self::Timeout => "timeout",
            Self::Failed => "failed",
        }
    }
}

/// Counters that all threads increment.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) refused_malformed: AtomicU64,
    pub(crate) refused_version: AtomicU64,
    pub(crate) refused_not_authentic: AtomicU64,
    pub(crate) refused_too_large: AtomicU64,
    pub(crate) refused_for_memory: AtomicU64,
    pub(crate) too_large: AtomicU64,
    pub(crate) connection_losses: AtomicU64,
    pub(crate) surveys: SurveyCounters,
    pub(crate) interest: AtomicU64,
    pub(crate) is_connected: AtomicU64,
    /// Number of ended searches, by [`Outcome`].
    finds: [AtomicU64; Outcome::ALL.len()],
    pub(crate) sockets_handed_over: AtomicU64,
}

/// Counters of questions to other nodes.
#[derive(Debug, Default)]
pub(crate) struct SurveyCounters {
    pub(crate) begun: AtomicU64,
    pub(crate) incomplete: AtomicU64,
    pub(crate) refused: AtomicU64,
}

/// Gauges at one moment.
pub(crate) struct Gauges {
    pub(crate) nodes: usize,
    pub(crate) unreadable_records: usize,
    pub(crate) engine_away_seconds: usize,
    pub(crate) registry_age_seconds: usize,
    pub(crate) inbox_bytes: usize,
    pub(crate) waiting: Waiting,
    pub(crate) feeds: FeedStats,
    pub(crate) rooms: RoomStats,
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn count_refused(&self, error: FrameError) {
        count(match error {
            FrameError::Version => &self.refused_version,
            FrameError::NotAuthentic => &self.refused_not_authentic,
            FrameError::TooLarge => &self.refused_too_large,
            FrameError::TooShort | FrameError::Malformed | FrameError::Name => &self.refused_malformed,
        });
    }

    pub(crate) fn count_find(&self, outcome: Outcome) {
        count(&self.finds[outcome as usize]);
    }

    /// Returns all metrics. `gauges` are values that other parts of the node know.
    pub(crate) fn metrics(&self, gauges: &Gauges) -> Vec<Metric> {
        let one = |name, help, kind, counter: &AtomicU64| Metric {
            name,
            help,
            kind,
            samples: vec![(Vec::new(), counter.load(Ordering::Relaxed))],
        };
        let total = |name, help, value: u64| Metric {
            name,
            help,
            kind: MetricKind::Counter,
            samples: vec![(Vec::new(), value)],
        };
        let gauge = |name, help, value: usize| Metric {
            name,
            help,
            kind: MetricKind::Gauge,
            samples: vec![(Vec::new(), value as u64)],
        };
        let refused = [
            (FrameError::Malformed, &self.refused_malformed),
            (FrameError::Version, &self.refused_version),
            (FrameError::NotAuthentic, &self.refused_not_authentic),
            (FrameError::TooLarge, &self.refused_too_large),
        ];
        let refused = refused.map(|(error, counter)| {
            (vec![("reason", error.label().to_owned())], counter.load(Ordering::Relaxed))
        });
        use MetricKind::{Counter, Gauge};
        vec![
            one("cluster_engine_up", "Whether the engine is connected.", Gauge, &self.is_connected),
            gauge(
                "cluster_engine_away_seconds",
                "Time since the connection to the engine was lost; 0 while it is connected.",
                gauges.engine_away_seconds,
            ),
            gauge("cluster_nodes", "Nodes that are alive, this one included.", gauges.nodes),
            gauge(
                "cluster_nodes_unreadable",
                "Records of nodes that this one ignores: invalid ones, and those of nodes with another version, secret or clock.",
                gauges.unreadable_records,
            ),
            gauge(
                "cluster_registry_age_seconds",
                "Time since the engine last listed the nodes that are alive.",
                gauges.registry_age_seconds,
            ),
            gauge(
                "cluster_inbox_bytes",
                "Size of the messages from the engine that wait for this node.",
                gauges.inbox_bytes,
            ),
            gauge(
                "cluster_outgoing_messages",
                "Messages to other nodes that the engine has not accepted.",
                gauges.waiting.messages,
            ),
            gauge(
                "cluster_outgoing_bytes",
                "Size of the messages to other nodes that the engine has not accepted.",
                gauges.waiting.messages_bytes,
            ),
            gauge("cluster_requests", "Requests that the engine hasn't answered.", gauges.waiting.requests),
            gauge(
                "cluster_requests_bytes",
                "Size of the requests that the engine has not answered.",
                gauges.waiting.requests_bytes,
            ),
            one("cluster_topics", "Topics with subscribers on this node.", Gauge, &self.interest),
            gauge("cluster_leases", "Feeds that this node fetches for all nodes.", gauges.feeds.leases),
            gauge(
                "cluster_followed_feeds",
                "Feeds with subscribers on this node that another node fetches, or that no node fetches yet.",
                gauges.feeds.followed,
            ),
            total(
                "cluster_feed_resyncs",
                "Times that the log of a feed was read again from the engine, because a version was missed.",
                gauges.feeds.resyncs,
            ),
            total(
                "cluster_leases_lost",
                "Times that this node lost the lease of a feed to another node, or couldn't renew it.",
                gauges.feeds.lost_leases,
            ),
            total(
                "cluster_feed_requests",
                "Requests to the engine about feeds: to read, to store, and for leases.",
                gauges.feeds.requests,
            ),
            gauge(
                "cluster_feed_requests_waiting",
                "Requests to the engine about feeds that wait until others are answered.",
                gauges.feeds.requests_waiting,
            ),
            gauge(
                "cluster_cold_keys",
                "Keys of feeds without a document that the engine stores because of this node: leases that it holds or requests, and terms that the engine hasn't removed.",
                gauges.feeds.cold_keys,
            ),
            total(
                "cluster_cold_keys_released",
                "Leases of feeds without a document and without subscribers released before feeds_limits.idle_ttl, because feeds_limits.keys_max were held.",
                gauges.feeds.cold_keys_released,
            ),
            gauge(
                "cluster_vacant_rooms",
                "Rooms with history in the engine because clients of this node published to them, and without subscribers on this node.",
                gauges.rooms.vacant,
            ),
            total(
                "cluster_vacant_rooms_refused",
                "Messages refused because cluster.vacant_rooms_max rooms without subscribers on this node were reached.",
                gauges.rooms.vacant_refused,
            ),
            gauge(
                "cluster_history_rooms",
                "Rooms with history that have subscribers on this node.",
                gauges.rooms.rooms,
            ),
            gauge(
                "cluster_history_rooms_reading",
                "Rooms with subscribers on this node whose history is being read from the engine, or waits for it.",
                gauges.rooms.reading,
            ),
            gauge(
                "cluster_history_bytes",
                "Size of the messages of rooms with history that wait for a read or for this node's cores.",
                gauges.rooms.waiting_bytes,
            ),
            gauge(
                "cluster_appends",
                "Messages to rooms with history that the engine hasn't confirmed.",
                gauges.rooms.appends,
            ),
            gauge(
                "cluster_appends_bytes",
                "Size of the messages to rooms with history that the engine has not confirmed.",
                gauges.rooms.append_bytes,
            ),
            total(
                "cluster_appends_failed",
                "Messages to rooms with history that the engine didn't confirm in time.",
                gauges.rooms.appends_failed,
            ),
            total(
                "cluster_history_gaps_filled",
                "Gaps in rooms with history that a read has closed.",
                gauges.rooms.recovered,
            ),
            Metric {
                name: "cluster_history_resyncs",
                help: "Gaps in rooms with history that members were notified of, because the messages couldn't be read.",
                kind: Counter,
                samples: gauges
                    .rooms
                    .resyncs
                    .iter()
                    .map(|(reason, count)| (vec![("reason", reason.label().to_owned())], *count))
                    .collect(),
            },
            one("cluster_messages_sent", "Messages to rooms published to other nodes.", Counter, &self.sent),
            one(
                "cluster_messages_received",
                "Messages to rooms that other nodes published.",
                Counter,
                &self.received,
            ),
            Metric {
                name: "cluster_frames_refused",
                help: "Messages from the engine that aren't authentic frames of this version, or have a document that is too large.",
                kind: Counter,
                samples: refused.into(),
            },
            one(
                "cluster_versions_deferred",
                "Versions of feeds that this node had no memory for (limits.memory_bytes_max). It reads them later.",
                Counter,
                &self.refused_for_memory,
            ),
            one(
                "cluster_messages_too_large",
                "Messages to rooms that were too large for the engine; other nodes don't have them.",
                Counter,
                &self.too_large,
            ),
            one(
                "cluster_connection_losses",
                "Times that the connection to the engine was lost, or messages from it were dropped.",
                Counter,
                &self.connection_losses,
            ),
            Metric {
                name: "cluster_recoveries",
                help: "Socket.IO clients that reconnected to this node with a socket of another one, by outcome.",
                kind: Counter,
                samples: Outcome::ALL
                    .iter()
                    .zip(&self.finds)
                    .map(|(outcome, count)| {
                        (vec![("outcome", outcome.label().to_owned())], count.load(Ordering::Relaxed))
                    })
                    .collect(),
            },
            one(
                "cluster_sockets_handed_over",
                "Socket.IO sockets handed over to other nodes, to which their clients have reconnected.",
                Counter,
                &self.sockets_handed_over,
            ),
            one(
                "cluster_surveys",
                "Questions to other nodes about sessions and rooms.",
                Counter,
                &self.surveys.begun,
            ),
            one(
                "cluster_surveys_incomplete",
                "Questions that not all nodes answered in time.",
                Counter,
                &self.surveys.incomplete,
            ),
            one(
                "cluster_surveys_refused",
                "Questions to other nodes that weren't sent, because 1,024 questions waited for answers.",
                Counter,
                &self.surveys.refused,
            ),
        ]
    }
}
