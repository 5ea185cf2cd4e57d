//! Nodes that hold leases, and whether they are alive.
//!
//! A node that fetches feeds reports to all nodes every [`REPORT_INTERVAL`]. So followers of thousands of feeds don't have to ask the engine
//! for each of them whether its lease is still held. A node is silent if it hasn't reported for [`SILENCE_MAX`], by which time
//! its leases may have expired.

use crate::NodeId;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often a node that fetches feeds reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// A node that hasn't reported for this long is silent.
const SILENCE_MAX: Duration = Duration::from_millis(3_500);
/// A node that hasn't reported for this long is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// Maximum number of nodes that are known.
const HOLDERS_MAX: usize = crate::NODES_MAX;

#[derive(Default)]
pub(super) struct Holders {
    heard_at: HashMap<NodeId, Instant>,
    report_at: Option<Instant>,
}

impl Holders {
    /// A node is alive.
    pub(super) fn handle_alive(&mut self, now: Instant, node: NodeId) {
        if self.heard_at.len() >= HOLDERS_MAX && !self.heard_at.contains_key(&node) {
            self.heard_at.retain(|_, at| now.saturating_duration_since(*at) < FORGET_AFTER);
        }
        if self.heard_at.len() < HOLDERS_MAX || self.heard_at.contains_key(&node) {
            self.heard_at.insert(node, now);
        }
    }

    /// A log names a node as a holder. It counts as alive now, until it is silent.
    pub(super) fn handle_named(&mut self, now: Instant, node: NodeId) {
        if !self.heard_at.contains_key(&node) {
            self.handle_alive(now, node);
        }
    }

    /// The engine is connected again. No reports could arrive meanwhile.
    pub(super) fn handle_connected(&mut self, now: Instant) {
        self.heard_at.values_mut().for_each(|at| *at = now);
    }

    /// When a node will be silent, or since when it is. `None`: it is unknown.
    pub(super) fn silent_at(&self, node: NodeId) -> Option<Instant> {
        self.heard_at.get(&node).map(|at| *at + SILENCE_MAX)
    }

    /// This node has begun to fetch a feed.
    pub(super) fn begin_reports(&mut self, now: Instant) {
        self.report_at.get_or_insert(now);
    }

    /// When [`Holders::take_report`] is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.report_at
    }

    /// Whether this node has to say that it fetches feeds.
    pub(super) fn take_report(&mut self, now: Instant) -> bool {
        let is_due = self.report_at.is_some_and(|at| at <= now);
        if is_due {
            self.report_at = Some(now + REPORT_INTERVAL);
        }
        is_due
    }
}
