//! Nodes that hold leases, and the times of their reports.
//!
//! A node that fetches feeds reports to all nodes every [`REPORT_INTERVAL`]. So followers of thousands of feeds needn't
//! ask the engine about each lease. A node is silent if it hasn't reported for [`SILENCE_MAX`]. Its leases may have
//! expired by then.

use crate::NodeId;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Interval at which a node that fetches feeds reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Time without a report after which a node is silent.
const SILENCE_MAX: Duration = Duration::from_millis(3_500);
/// Time without a report after which a node is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// Maximum number of nodes that are known.
const HOLDERS_MAX: usize = crate::NODES_MAX;

#[derive(Default)]
pub(super) struct Holders {
    heard_at: HashMap<NodeId, Instant>,
    report_at: Option<Instant>,
}

impl Holders {
    /// Records that a node is alive.
    pub(super) fn handle_alive(&mut self, now: Instant, node: NodeId) {
        if self.heard_at.len() >= HOLDERS_MAX && !self.heard_at.contains_key(&node) {
            self.heard_at.retain(|_, at| now.saturating_duration_since(*at) < FORGET_AFTER);
        }
        if self.heard_at.len() < HOLDERS_MAX || self.heard_at.contains_key(&node) {
            self.heard_at.insert(node, now);
        }
    }

    /// Handles a node that a log names as a holder. Until it is silent, it counts as alive.
    pub(super) fn handle_named(&mut self, now: Instant, node: NodeId) {
        if !self.heard_at.contains_key(&node) {
            self.handle_alive(now, node);
        }
    }

    /// Called when the engine is connected again. No reports could arrive without the connection.
    pub(super) fn handle_connected(&mut self, now: Instant) {
        self.heard_at.values_mut().for_each(|at| *at = now);
    }

    /// Time at which a node is silent, or since which it is. `None` if the node is unknown.
    pub(super) fn silent_at(&self, node: NodeId) -> Option<Instant> {
        self.heard_at.get(&node).map(|at| *at + SILENCE_MAX)
    }

    /// Begins reports, because this node has begun to fetch a feed.
    pub(super) fn begin_reports(&mut self, now: Instant) {
        self.report_at.get_or_insert(now);
    }

    /// The time at which [`Holders::take_report`] is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.report_at
    }

    /// Returns `true` if this node must report now that it fetches feeds.
    pub(super) fn take_report(&mut self, now: Instant) -> bool {
        let is_due = self.report_at.is_some_and(|at| at <= now);
        if is_due {
            self.report_at = Some(now + REPORT_INTERVAL);
        }
        is_due
    }
}
