//! The nodes that are alive. Each node reports on one subject, and records the arrival of the others' reports. No
//! report is stored, and no clocks are compared. A node that connects asks the others to report.
//!
//! A report is `!`, the node's id, the report's duration (ms), both in eight bytes, and the record. A question is `?`.

use crate::NodeId;
use crate::engine::{NODES_MAX, RECORD_BYTES_MAX};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// A question to all nodes.
pub(super) const QUESTION: &[u8] = b"?";
/// Maximum duration of a report.
const TTL_MAX: Duration = Duration::from_secs(60);

#[derive(Default)]
struct State {
    /// Records, with the end of their duration.
    nodes: BTreeMap<NodeId, (Bytes, Instant)>,
    own: Option<NodeId>,
}

/// The nodes that have reported.
#[derive(Default)]
pub(super) struct Records(Mutex<State>);

impl Records {
    /// Records this node's report. Returns the report for the others.
    pub(super) fn report(&self, now: Instant, node: NodeId, record: Bytes, ttl: Duration) -> Bytes {
        let report = report(node, &record, ttl);
        let mut state = self.0.lock();
        state.own = Some(node);
        state.insert(now, node, record, ttl);
        report
    }

    /// Handles a message. Returns this node's answer, if any.
    pub(super) fn handle(&self, now: Instant, mut message: Bytes) -> Option<Bytes> {
        let mut state = self.0.lock();
        if message == QUESTION {
            let own = state.own?;
            let (record, until) = state.nodes.get(&own)?;
            return Some(report(own, record, until.checked_duration_since(now)?));
        }
        if message.try_get_u8() != Ok(b'!') {
            return None;
        }
        let (node, ttl_ms) = (NodeId(message.try_get_u64().ok()?), message.try_get_u64().ok()?);
        if state.own != Some(node) && message.len() <= RECORD_BYTES_MAX {
            state.insert(now, node, message, Duration::from_millis(ttl_ms).min(TTL_MAX));
        }
        None
    }

    /// The nodes that are alive, by id.
    pub(super) fn alive(&self, now: Instant) -> Vec<(NodeId, Bytes)> {
        let mut state = self.0.lock();
        state.nodes.retain(|_, (_, until)| *until > now);
        state.nodes.iter().map(|(node, (record, _))| (*node, record.clone())).collect()
    }
}

impl State {
    fn insert(&mut self, now: Instant, node: NodeId, record: Bytes, ttl: Duration) {
        if self.nodes.len() >= NODES_MAX {
            self.nodes.retain(|_, (_, until)| *until > now);
        }
        if self.nodes.len() < NODES_MAX || self.own == Some(node) || self.nodes.contains_key(&node) {
            self.nodes.insert(node, (record, now + ttl));
        }
    }
}

fn report(node: NodeId, record: &[u8], ttl: Duration) -> Bytes {
    let mut report = BytesMut::with_capacity(17 + record.len());
    report.put_u8(b'!');
    report.put_u64(node.0);
    report.put_u64(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
    report.put_slice(record);
    report.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn reported(now: Instant, node: u64, record: &[u8], ttl: Duration) -> Records {
        let records = Records::default();
        assert_eq!(records.handle(now, report(NodeId(node), record, ttl)), None);
        records
    }

    #[test]
    fn reports_of_unknown_nodes_are_bounded() {
        let now = Instant::now();
        let large = vec![b' '; RECORD_BYTES_MAX + 1];
        assert!(reported(now, 2, &large, MINUTE).alive(now).is_empty());
        let forever = reported(now, 2, b"{}", Duration::MAX);
        assert_eq!(forever.alive(now).len(), 1);
        assert!(forever.alive(now + TTL_MAX).is_empty());
        let records = Records::default();
        for node in 0..=NODES_MAX as u64 {
            records.handle(now, report(NodeId(node), b"{}", MINUTE));
        }
        assert_eq!(records.alive(now).len(), NODES_MAX);
        // A report of a new node replaces those of dead nodes.
        let later = now + MINUTE;
        records.handle(later, report(NodeId(1 << 20), b"{}", MINUTE));
        assert_eq!(records.alive(later), [(NodeId(1 << 20), Bytes::from_static(b"{}"))]);
    }
}
