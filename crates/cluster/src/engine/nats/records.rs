//! Which nodes are alive. Each reports on one subject, and notes when it received the reports of the others: nothing is stored,
//! and no clocks are compared. A node that connects asks the others to report.
//!
//! A report is `!`, the node's id and how many milliseconds it lasts, in eight bytes each, and the record; a question is `?`.

use crate::NodeId;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A question to all nodes.
pub(super) const QUESTION: &[u8] = b"?";
/// Maximum number of nodes that are kept.
const NODES_MAX: usize = 4_096;
/// Maximum size of a record. Larger ones are ignored.
const RECORD_BYTES_MAX: usize = 64 << 10;

#[derive(Default)]
struct State {
    /// Each until when it lasts.
    nodes: BTreeMap<NodeId, (Bytes, Instant)>,
    own: Option<NodeId>,
}

/// The nodes that have reported.
#[derive(Default)]
pub(super) struct Records(Mutex<State>);

impl Records {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This node reports. Returns the report for the others. `record`: empty if it leaves.
    pub(super) fn report(&self, now: Instant, node: NodeId, record: Bytes, ttl: Duration) -> Bytes {
        let report = report(node, &record, ttl);
        let mut state = self.state();
        state.own = Some(node);
        state.insert(now, node, record, ttl);
        report
    }

    /// A message arrived. Returns what this node answers.
    pub(super) fn handle(&self, now: Instant, mut message: Bytes) -> Option<Bytes> {
        let mut state = self.state();
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
            state.insert(now, node, message, Duration::from_millis(ttl_ms.min(u64::from(u32::MAX))));
        }
        None
    }

    /// The nodes that are alive, by id.
    pub(super) fn alive(&self, now: Instant) -> Vec<(NodeId, Bytes)> {
        let mut state = self.state();
        state.nodes.retain(|_, (_, until)| *until > now);
        state.nodes.iter().map(|(node, (record, _))| (*node, record.clone())).collect()
    }
}

impl State {
    fn insert(&mut self, now: Instant, node: NodeId, record: Bytes, ttl: Duration) {
        if record.is_empty() {
            self.nodes.remove(&node);
        } else if self.nodes.len() < NODES_MAX || self.nodes.contains_key(&node) {
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
