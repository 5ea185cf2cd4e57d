//! Counters of connections that are passed through.

use std::sync::atomic::{AtomicU64, Ordering};
use stentor_ports::{Metric, MetricKind, named};

named! {
    /// The reason why a connection couldn't be passed through.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Failure {
        /// The other node doesn't listen, or broke off.
        Unreachable = "unreachable",
        /// The other node didn't answer in time.
        TimedOut = "timeout",
        /// The other side isn't the expected node.
        NotAuthentic = "not_authentic",
        /// The connection ended in between, or the node left.
        Broken = "broken",
    }
}

named! {
    /// The reason why the internal listener closed a connection.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Refusal {
        /// The connection was the oldest of too many that hadn't proved themselves yet.
        TooMany = "too_many",
        /// The other side doesn't know the secret.
        NotAuthentic = "not_authentic",
        /// The other side didn't prove itself in time.
        TimedOut = "timeout",
        /// The connection ended before the other side had proved itself.
        Incomplete = "incomplete",
    }
}

/// Counters that all threads increment.
#[derive(Debug, Default)]
pub(super) struct Counters {
    failures: [AtomicU64; Failure::ALL.len()],
    refusals: [AtomicU64; Refusal::ALL.len()],
    pub(super) received: AtomicU64,
    pub(super) claims_failed: AtomicU64,
}

/// Adds one.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    pub(super) fn count_failure(&self, failure: Failure) {
        count(&self.failures[failure as usize]);
    }

    pub(super) fn count_refusal(&self, refusal: Refusal) {
        count(&self.refusals[refusal as usize]);
    }

    pub(super) fn metrics(&self) -> Vec<Metric> {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let failures = Failure::ALL.iter().zip(&self.failures);
        let refusals = Refusal::ALL.iter().zip(&self.refusals);
        vec![
            Metric::by(
                "reason",
                MetricKind::Counter,
                "cluster_relay_failures",
                "Connections that couldn't be passed through to the node that has the session, or broke off.",
                failures.map(|(reason, counter)| (reason.name(), value(counter))),
            ),
            Metric::by(
                "reason",
                MetricKind::Counter,
                "cluster_internal_refused",
                "Connections that the internal listener closed (cluster.listen).",
                refusals.map(|(reason, counter)| (reason.name(), value(counter))),
            ),
        ]
    }
}
