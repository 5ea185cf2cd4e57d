//! Counters of a bridge.

use super::refused::{LABELS, Refused};
use std::sync::atomic::{AtomicU64, Ordering};
use stentor_ports::{Metric, MetricKind};

/// Counters that all threads increment.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) connection_losses: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    pub(super) not_sent: AtomicU64,
    pub(super) requests_sent: AtomicU64,
    pub(super) requests_received: AtomicU64,
    pub(super) requests_incomplete: AtomicU64,
    refused: [AtomicU64; LABELS.len()],
}

/// Metrics of one bridge, by its prefix and its Redis.
pub(super) struct Figures<'a> {
    pub(super) prefix: &'a str,
    /// The address of Redis, without the password.
    pub(super) redis: String,
    pub(super) is_up: bool,
    pub(super) counters: &'a Counters,
    pub(super) inbox_bytes: usize,
    pub(super) outgoing_bytes: usize,
    pub(super) dropped: u64,
}

impl Counters {
    pub(super) fn count_refused(&self, reason: Refused) {
        if let Some(counter) = LABELS.iter().position(|label| *label == reason.label()) {
            self.refused[counter].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The metrics of all bridges.
pub(super) fn metrics(bridges: &[Figures<'_>]) -> Vec<Metric> {
    let labels =
        |figures: &Figures<'_>| vec![("prefix", figures.prefix.to_owned()), ("redis", figures.redis.clone())];
    let each = |name, help, kind, value: fn(&Figures<'_>) -> u64| {
        let samples = bridges.iter().map(|figures| (labels(figures), value(figures))).collect();
        Metric { name, help, kind, samples }
    };
    let one = |name, help, kind, counter: fn(&Counters) -> &AtomicU64| {
        let samples = bridges.iter();
        let samples =
            samples.map(|figures| (labels(figures), counter(figures.counters).load(Ordering::Relaxed)));
        Metric { name, help, kind, samples: samples.collect() }
    };
    let refused = bridges.iter().flat_map(|figures| {
        LABELS.iter().zip(&figures.counters.refused).map(|(reason, counter)| {
            let mut labels = labels(figures);
            labels.push(("reason", (*reason).to_owned()));
            (labels, counter.load(Ordering::Relaxed))
        })
    });
    use MetricKind::{Counter, Gauge};
    vec![
        each(
            "bridge_up",
            "Whether the Redis of a `[[cluster.socketio]]` is connected and all its channels are subscribed.",
            Gauge,
            |figures| figures.is_up.into(),
        ),
        one("bridge_connection_losses", "Times that the connection to this Redis was lost.", Counter, |c| {
            &c.connection_losses
        }),
        one("bridge_messages_sent", "Events published to Socket.IO's servers.", Counter, |c| &c.sent),
        one(
            "bridge_messages_received",
            "Events of Socket.IO's servers for clients of this node.",
            Counter,
            |c| &c.received,
        ),
        one(
            "bridge_messages_not_sent",
            "Events and answers that were too large for Redis, or for which there was no room; other servers don't have them.",
            Counter,
            |c| &c.not_sent,
        ),
        one("bridge_requests_sent", "Requests to Socket.IO's servers, by the admin API.", Counter, |c| {
            &c.requests_sent
        }),
        one("bridge_requests_incomplete", "Requests that not all servers answered in time.", Counter, |c| {
            &c.requests_incomplete
        }),
        one("bridge_requests_received", "Requests of Socket.IO's servers.", Counter, |c| {
            &c.requests_received
        }),
        Metric {
            name: "bridge_messages_refused",
            help: "Messages from Redis that were refused, by reason.",
            kind: Counter,
            samples: refused.collect(),
        },
        each(
            "bridge_messages_dropped",
            "Messages dropped because they arrived faster than this node handles them.",
            Counter,
            |figures| figures.dropped,
        ),
        each(
            "bridge_outgoing_bytes",
            "Size of the messages that wait to be published to Redis.",
            Gauge,
            |figures| figures.outgoing_bytes as u64,
        ),
        each(
            "bridge_inbox_bytes",
            "Size of the messages from Redis that wait for this node.",
            Gauge,
            |figures| figures.inbox_bytes as u64,
        ),
    ]
}
