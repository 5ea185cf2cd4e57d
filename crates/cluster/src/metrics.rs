//! A node's counters about its cluster.

use crate::engine::Waiting;
use crate::feeds::FeedStats;
use crate::frame::FrameError;
use crate::rooms::RoomStats;
use std::sync::atomic::{AtomicU64, Ordering};
use stentor_ports::{Metric, MetricKind, named, plain_metrics};

named! {
    /// The outcome of a search for a socket.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Outcome {
        Found = "found",
        NotFound = "not_found",
        Timeout = "timeout",
        Failed = "failed",
    }
}

/// Counters that all threads increment.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Messages to rooms without history. The engine's confirmations count those to rooms with history.
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
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let refused = [
            (FrameError::Malformed, &self.refused_malformed),
            (FrameError::Version, &self.refused_version),
            (FrameError::NotAuthentic, &self.refused_not_authentic),
            (FrameError::TooLarge, &self.refused_too_large),
        ];
        let resyncs = gauges.rooms.resyncs.iter();
        let finds = Outcome::ALL.iter().zip(&self.finds);
        let mut all = Vec::from(plain_metrics! {
            /// Whether the engine is connected.
            Gauge "cluster_engine_up" = value(&self.is_connected);
            /// Time since the connection to the engine was lost; 0 while it is connected.
            Gauge "cluster_engine_away_seconds" = gauges.engine_away_seconds;
            /// Nodes that are alive, this one included.
            Gauge "cluster_nodes" = gauges.nodes;
            /// Records of nodes that this one ignores: invalid ones, and those of nodes with another version, secret or clock.
            Gauge "cluster_nodes_unreadable" = gauges.unreadable_records;
            /// Time since the engine last listed the nodes that are alive.
            Gauge "cluster_registry_age_seconds" = gauges.registry_age_seconds;
            /// Size of the messages from the engine that wait for this node.
            Gauge "cluster_inbox_bytes" = gauges.inbox_bytes;
            /// Messages to other nodes that the engine has not accepted.
            Gauge "cluster_outgoing_messages" = gauges.waiting.messages;
            /// Size of the messages to other nodes that the engine has not accepted.
            Gauge "cluster_outgoing_bytes" = gauges.waiting.messages_bytes;
            /// Requests that the engine hasn't answered.
            Gauge "cluster_requests" = gauges.waiting.requests;
            /// Size of the requests that the engine has not answered.
            Gauge "cluster_requests_bytes" = gauges.waiting.requests_bytes;
            /// Topics with subscribers on this node.
            Gauge "cluster_topics" = value(&self.interest);
            /// Feeds that this node fetches for all nodes.
            Gauge "cluster_leases" = gauges.feeds.leases;
            /// Feeds with subscribers on this node that another node fetches, or that no node fetches yet.
            Gauge "cluster_followed_feeds" = gauges.feeds.followed;
            /// Times that the log of a feed was read again from the engine, because a version was missed.
            Counter "cluster_feed_resyncs" = gauges.feeds.resyncs;
            /// Times that the engine refused a change of a feed again, as Redis does without memory. A first refusal isn't counted. The node repeats the request after a second.
            Counter "cluster_feed_stores_refused" = gauges.feeds.refused_entries;
            /// Times that this node lost the lease of a feed to another node, or couldn't renew it.
            Counter "cluster_leases_lost" = gauges.feeds.lost_leases;
            /// Requests to the engine about feeds: to read, to store, and for leases.
            Counter "cluster_feed_requests" = gauges.feeds.requests;
            /// Requests to the engine about feeds that wait until others are answered.
            Gauge "cluster_feed_requests_waiting" = gauges.feeds.requests_waiting;
            /// Keys of feeds without a document that the engine stores because of this node: leases that it holds or requests, and
            /// terms that the engine hasn't removed.
            Gauge "cluster_cold_keys" = gauges.feeds.cold_keys;
            /// Leases of feeds without a document and without subscribers released before feeds_limits.idle_ttl, because
            /// feeds_limits.keys_max were held.
            Counter "cluster_cold_keys_released" = gauges.feeds.cold_keys_released;
            /// Rooms with history in the engine because clients of this node published to them, and without subscribers on this node.
            Gauge "cluster_vacant_rooms" = gauges.rooms.vacant;
            /// Messages refused because cluster.vacant_rooms_max rooms without subscribers on this node were reached.
            Counter "cluster_vacant_rooms_refused" = gauges.rooms.vacant_refused;
            /// Rooms with history that have subscribers on this node.
            Gauge "cluster_history_rooms" = gauges.rooms.rooms;
            /// Rooms with subscribers on this node whose history is being read from the engine, or waits for it.
            Gauge "cluster_history_rooms_reading" = gauges.rooms.reading;
            /// Size of the messages of rooms with history that wait for a read or for this node's cores.
            Gauge "cluster_history_bytes" = gauges.rooms.waiting_bytes;
            /// Messages to rooms with history that the engine hasn't confirmed.
            Gauge "cluster_appends" = gauges.rooms.appends;
            /// Size of the messages to rooms with history that the engine has not confirmed.
            Gauge "cluster_appends_bytes" = gauges.rooms.append_bytes;
            /// Messages to rooms with history that the engine didn't confirm in time.
            Counter "cluster_appends_failed" = gauges.rooms.appends_failed;
            /// Gaps in rooms with history that a read has closed.
            Counter "cluster_history_gaps_filled" = gauges.rooms.recovered;
        });
        all.push(Metric::by(
            "reason",
            MetricKind::Counter,
            "cluster_history_resyncs",
            "Gaps in rooms with history that members were notified of, because the messages couldn't be read.",
            resyncs.map(|(reason, count)| (reason.name(), *count)),
        ));
        all.extend(plain_metrics! {
            /// Messages to rooms published to other nodes.
            Counter "cluster_messages_sent" = value(&self.sent) + gauges.rooms.appended;
            /// Messages to rooms that other nodes published.
            Counter "cluster_messages_received" = value(&self.received);
        });
        all.push(Metric::by(
            "reason",
            MetricKind::Counter,
            "cluster_frames_refused",
            "Messages from the engine that aren't authentic frames of this version, or have a document that is too large.",
            refused.map(|(error, counter)| (error.label(), value(counter))),
        ));
        all.extend(plain_metrics! {
            /// Versions of feeds that this node had no memory for (limits.memory_bytes_max). It reads them later.
            Counter "cluster_versions_deferred" = value(&self.refused_for_memory);
            /// Messages to rooms that were too large for the engine; other nodes don't have them.
            Counter "cluster_messages_too_large" = value(&self.too_large);
            /// Times that the connection to the engine was lost, or messages from it were dropped.
            Counter "cluster_connection_losses" = value(&self.connection_losses);
        });
        all.push(Metric::by(
            "outcome",
            MetricKind::Counter,
            "cluster_recoveries",
            "Socket.IO clients that reconnected to this node with a socket of another one, by outcome.",
            finds.map(|(outcome, count)| (outcome.name(), value(count))),
        ));
        all.extend(plain_metrics! {
            /// Socket.IO sockets handed over to other nodes, to which their clients have reconnected.
            Counter "cluster_sockets_handed_over" = value(&self.sockets_handed_over);
            /// Questions to other nodes about sessions and rooms.
            Counter "cluster_surveys" = value(&self.surveys.begun);
            /// Questions that not all nodes answered in time.
            Counter "cluster_surveys_incomplete" = value(&self.surveys.incomplete);
            /// Questions to other nodes that weren't sent, because 1,024 questions waited for answers.
            Counter "cluster_surveys_refused" = value(&self.surveys.refused);
        });
        all
    }
}
