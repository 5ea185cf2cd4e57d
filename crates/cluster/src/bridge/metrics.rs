//! Counters and metrics of bridges.

use super::refused::{LABELS, Refused};
use super::{Bridge, Options};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stentor_ports::{Metric, MetricKind, plain_metrics};

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

impl Counters {
    pub(super) fn count_refused(&self, reason: Refused) {
        if let Some(counter) = LABELS.iter().position(|label| *label == reason.label()) {
            self.refused[counter].fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Bridge {
    /// Lists the metrics of this bridge, without the labels that name it.
    fn metrics(&self) -> Vec<Metric> {
        let counters = &self.counters;
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut all = Vec::from(plain_metrics! {
            /// Whether the Redis of a `[[cluster.socketio]]` is connected and all its channels are subscribed.
            Gauge "bridge_up" = self.shards.are_up();
            /// Times that the connection to this Redis was lost.
            Counter "bridge_connection_losses" = value(&counters.connection_losses);
            /// Events published to Socket.IO's servers.
            Counter "bridge_messages_sent" = value(&counters.sent);
            /// Events of Socket.IO's servers for clients of this node.
            Counter "bridge_messages_received" = value(&counters.received);
            /// Events and answers that were too large for Redis, or for which there was no room; other servers don't have them.
            Counter "bridge_messages_not_sent" = value(&counters.not_sent);
            /// Requests to Socket.IO's servers, by the admin API.
            Counter "bridge_requests_sent" = value(&counters.requests_sent);
            /// Requests that not all servers answered in time.
            Counter "bridge_requests_incomplete" = value(&counters.requests_incomplete);
            /// Requests of Socket.IO's servers.
            Counter "bridge_requests_received" = value(&counters.requests_received);
        });
        all.push(Metric::by(
            "reason",
            MetricKind::Counter,
            "bridge_messages_refused",
            "Messages from Redis that were refused, by reason.",
            LABELS.iter().zip(counters.refused.iter().map(value)),
        ));
        all.extend(plain_metrics! {
            /// Messages dropped because they arrived faster than this node handles them.
            Counter "bridge_messages_dropped" = self.inbox.dropped();
            /// Size of the messages that wait to be published to Redis.
            Gauge "bridge_outgoing_bytes" = self.publisher.messages.outgoing.unsent().1;
            /// Size of the messages from Redis that wait for this node.
            Gauge "bridge_inbox_bytes" = self.inbox.bytes();
        });
        all
    }
}

/// The metrics of all bridges, each by its prefix and the address of its Redis, without the password.
pub(super) fn metrics(bridges: &[Arc<Bridge>]) -> Vec<Metric> {
    let mut all: Vec<Metric> = Vec::new();
    for bridge in bridges {
        let Options { prefix, address, .. } = &bridge.options;
        for (number, mut metric) in bridge.metrics().into_iter().enumerate() {
            for (labels, _) in &mut metric.samples {
                labels.splice(0..0, [("prefix", prefix.clone()), ("redis", address.to_string())]);
            }
            match all.get_mut(number) {
                Some(known) => known.samples.append(&mut metric.samples),
                None => all.push(metric),
            }
        }
    }
    all
}
