//! The nodes of the cluster. Sans-I/O: requests out, replies in.

use crate::NodeId;
use crate::engine::{NODES_MAX, RECORD_BYTES_MAX, Request};
use crate::frame::Frames;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::CORES_MAX;
use stentor_ports::{IdKey, PublicId};

/// Interval at which a node reports that it is alive.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);
/// Interval of these reports while the node looks for a node that has just started.
const HASTY_INTERVAL: Duration = Duration::from_millis(500);
/// Time without a report after which a node is dead.
pub const NODE_TTL: Duration = Duration::from_secs(10);

/// Longest time between two replies of the engine that counts against silent nodes. In a longer one, they may have
/// reported unseen.
const GAP_MIN: Duration = Duration::from_secs(6);

/// A node's description of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// The node's name in the configuration (`cluster.node`).
    pub name: String,
    /// Stentor's version.
    pub version: String,
    /// Address at which other nodes reach the node (`cluster.advertise`). `None` if they can't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Start time, in seconds since 1970.
    pub started_at_seconds: u64,
    /// Number of connections.
    pub connections: usize,
}

/// A node's report, in the form in which the engine stores it.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    #[serde(flatten)]
    record: NodeRecord,
    /// Number of the report. It distinguishes reports with the same record.
    #[serde(default)]
    number: u64,
    /// `true` for the last report of a node that has left.
    #[serde(default)]
    left: bool,
}

/// A node's last report, and its time of arrival.
#[derive(Debug)]
struct Reported {
    bytes: Bytes,
    at: Instant,
}

/// A change of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A new node is alive.
    Joined(NodeId),
    /// A node has left, or is dead.
    Left(NodeId, NodeRecord),
}

/// Nodes, as issuers of ids: the seeds of the ids of their sessions.
#[derive(Clone, Default)]
pub(crate) struct Issuers(Arc<BTreeMap<NodeId, [u64; 2]>>);

impl Issuers {
    /// The node that has given this id to a session. It may no longer have the session, and with a probability of one in 65,536 for
    /// each node it is another node.
    pub(crate) fn find(&self, id: PublicId) -> Option<NodeId> {
        let is_of = |seed: [u64; 2]| id.decode(IdKey { seed, cores: CORES_MAX }).is_some();
        self.0.iter().find(|(_, seed)| is_of(**seed)).map(|(node, _)| *node)
    }
}

/// The nodes that are alive.
pub(crate) struct Registry {
    node: NodeId,
    frames: Frames,
    nodes: BTreeMap<NodeId, NodeRecord>,
    /// The last report of each of these nodes. A node whose record is missing is dead only if it hasn't reported for
    /// [`NODE_TTL`]: the record may have been deleted, or the engine's store lost.
    reported: BTreeMap<NodeId, Reported>,
    issuers: Issuers,
    /// Number of reports that this node has made.
    number: u64,
    /// Number of records ignored in the last reply.
    unreadable: usize,
    due: Instant,
    /// Time of this node's last report.
    reported_at: Option<Instant>,
    /// Time of the last reply.
    heard_at: Option<Instant>,
}

impl Registry {
    /// Returns the registry of `node`, whose reports `frames` authenticates. The first report is due at once.
    pub(crate) fn new(node: NodeId, frames: Frames, now: Instant) -> Self {
        Self {
            node,
            frames,
            nodes: BTreeMap::new(),
            reported: BTreeMap::new(),
            issuers: Issuers::default(),
            number: 0,
            unreadable: 0,
            due: now,
            reported_at: None,
            heard_at: None,
        }
    }

    /// The time at which [`Registry::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Instant {
        self.due
    }

    /// Returns the report that is due, if any. The next report becomes due whether or not this one is answered.
    /// `since_1970` is the time.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        since_1970: Duration,
        record: &NodeRecord,
    ) -> Option<Request> {
        if now < self.due {
            return None;
        }
        self.due = now + HEARTBEAT_INTERVAL;
        self.reported_at = Some(now);
        Some(self.report(since_1970, record, false))
    }

    fn report(&mut self, since_1970: Duration, record: &NodeRecord, left: bool) -> Request {
        self.number += 1;
        let report = Report { record: record.clone(), number: self.number, left };
        let report = serde_json::to_vec(&report).unwrap_or_default();
        let record = self.frames.seal_record(since_1970, &report);
        Request::Heartbeat { node: self.node, record, ttl: NODE_TTL }
    }

    /// Makes the next report due soon, because this node looks for a node that it doesn't know.
    pub(crate) fn hasten(&mut self, now: Instant) {
        let soon = self.reported_at.map_or(now, |at| now.max(at + HASTY_INTERVAL));
        self.due = self.due.min(soon);
    }

    /// Returns the report that this node has left. It lasts as long as other reports, because a missing record proves
    /// nothing.
    pub(crate) fn leave(&mut self, since_1970: Duration, record: &NodeRecord) -> Request {
        self.report(since_1970, record, true)
    }

    /// Handles the engine's answer, with the records of all nodes. `since_1970` is the time.
    pub(crate) fn handle_nodes(
        &mut self,
        now: Instant,
        since_1970: Duration,
        records: Vec<(NodeId, Bytes)>,
    ) -> Vec<Change> {
        let since_last = self.age(now).unwrap_or_default();
        self.heard_at = Some(now);
        if since_last > GAP_MIN {
            self.reported.values_mut().for_each(|reported| reported.at += since_last);
        }
        let count = records.len();
        let readable = records.into_iter().filter_map(|(node, bytes)| {
            (bytes.len() <= RECORD_BYTES_MAX).then_some(())?;
            let report = self.frames.open_record(node, since_1970, bytes.clone())?;
            Some((node, (serde_json::from_slice::<Report>(&report).ok()?, bytes)))
        });
        let mut reports: BTreeMap<_, _> = readable.take(NODES_MAX).collect();
        self.unreadable = count - reports.len();
        let mut left = Vec::new();
        for (node, record) in std::mem::take(&mut self.nodes) {
            let is_here = match (reports.get(&node), self.reported.get(&node)) {
                (Some((report, _)), _) => !report.left,
                (None, Some(reported)) => {
                    let dead_at = reported.at + NODE_TTL;
                    let is_unknown = now < dead_at;
                    if is_unknown {
                        self.due = self.due.min(dead_at);
                    }
                    is_unknown
                }
                (None, None) => false,
            };
            if is_here {
                self.nodes.insert(node, record);
            } else if node != self.node {
                left.push(Change::Left(node, record));
            }
        }
        reports.retain(|_, (report, _)| !report.left);
        let mut changes = Vec::new();
        for (node, (report, bytes)) in reports {
            if self.nodes.insert(node, report.record).is_none() && node != self.node {
                changes.push(Change::Joined(node));
            }
            if self.reported.get(&node).is_none_or(|reported| reported.bytes != bytes) {
                self.reported.insert(node, Reported { bytes, at: now });
            }
        }
        self.reported.retain(|node, _| self.nodes.contains_key(node));
        let id_seeds = Arc::make_mut(&mut self.issuers.0);
        id_seeds.retain(|node, _| self.nodes.contains_key(node));
        for node in self.nodes.keys() {
            id_seeds.entry(*node).or_insert_with(|| self.frames.id_seed(*node));
        }
        changes.extend(left);
        changes
    }

    /// The nodes that are alive according to the last reply, including this node, by id.
    pub(crate) fn nodes(&self) -> &BTreeMap<NodeId, NodeRecord> {
        &self.nodes
    }

    /// The other nodes.
    pub(crate) fn others(&self) -> impl Iterator<Item = (NodeId, &NodeRecord)> {
        self.nodes.iter().filter(|(node, _)| **node != self.node).map(|(node, record)| (*node, record))
    }

    /// The nodes that are alive, as issuers of ids. Finding an issuer takes a decryption for each node, so the caller releases the registry
    /// first.
    pub(crate) fn issuers(&self) -> Issuers {
        self.issuers.clone()
    }

    /// Number of records ignored in the last reply: of other versions, with other clocks, or not authentic.
    pub(crate) fn unreadable(&self) -> usize {
        self.unreadable
    }

    /// Time since the engine's last answer.
    pub(crate) fn age(&self, now: Instant) -> Option<Duration> {
        self.heard_at.map(|at| now.saturating_duration_since(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::RECORD_AGE_MAX;
    use stentor_hub::SessionId;

    fn record(name: &str) -> NodeRecord {
        NodeRecord {
            name: name.into(),
            version: "1".into(),
            address: None,
            started_at_seconds: 7,
            connections: 3,
        }
    }

    /// The time of all tests.
    const NOW: Duration = Duration::from_secs(1_000_000);

    fn registry(now: Instant) -> Registry {
        Registry::new(NodeId(1), Frames::new(NodeId(1), None, 0), now)
    }

    /// A node's report.
    fn bytes(name: &str, number: u64, left: bool) -> Bytes {
        serde_json::to_vec(&Report { record: record(name), number, left }).unwrap_or_default().into()
    }

    #[test]
    fn a_node_reports_at_once_and_then_every_three_seconds() {
        let start = Instant::now();
        let mut registry = registry(start);
        assert_eq!(registry.poll_timeout(), start);
        let first = registry.handle_timeout(start, NOW, &record("a"));
        let report = |number, left| {
            let record = bytes("a", number, left);
            Request::Heartbeat { node: NodeId(1), record, ttl: NODE_TTL }
        };
        assert_eq!(first, Some(report(1, false)));
        let next = start + HEARTBEAT_INTERVAL;
        assert_eq!(registry.poll_timeout(), next);
        assert_eq!(registry.handle_timeout(next - Duration::from_millis(1), NOW, &record("a")), None);
        assert!(registry.handle_timeout(next, NOW, &record("a")).is_some());
        // A hastened report is due `HASTY_INTERVAL` after the last report at the earliest.
        registry.hasten(next + Duration::from_millis(100));
        registry.hasten(next + Duration::from_millis(200));
        assert_eq!(registry.poll_timeout(), next + HASTY_INTERVAL);
        registry.hasten(next + Duration::from_secs(1));
        assert_eq!(registry.poll_timeout(), next + HASTY_INTERVAL);
        assert!(registry.handle_timeout(next + HASTY_INTERVAL, NOW, &record("a")).is_some());
        assert_eq!(registry.poll_timeout(), next + HASTY_INTERVAL + HEARTBEAT_INTERVAL);
        assert_eq!(registry.leave(NOW, &record("a")), report(4, true));
    }

    #[test]
    fn nodes_come_and_go() {
        let now = Instant::now();
        let mut registry = registry(now);
        assert_eq!(registry.age(now), None);
        let own = (NodeId(1), bytes("a", 1, false));
        let all = vec![own.clone(), (NodeId(2), bytes("b", 1, false))];
        assert_eq!(registry.handle_nodes(now, NOW, all), [Change::Joined(NodeId(2))]);
        let others: Vec<_> = registry.others().map(|(node, record)| (node, record.name.clone())).collect();
        assert_eq!(others, [(NodeId(2), "b".to_owned())]);
        let all = vec![own, (NodeId(2), bytes("b", 2, true)), (NodeId(3), bytes("b", 1, false))];
        let left = Change::Left(NodeId(2), record("b"));
        assert_eq!(registry.handle_nodes(now, NOW, all.clone()), [Change::Joined(NodeId(3)), left]);
        assert_eq!(registry.handle_nodes(now, NOW, all), []);
        assert_eq!(registry.age(now + NODE_TTL), Some(NODE_TTL));
    }

    #[test]
    fn the_issuer_of_an_id_is_known_while_it_is_alive() {
        let now = Instant::now();
        let frames = |node| Frames::new(NodeId(node), Some(b"secret"), 0);
        let mut registry = Registry::new(NodeId(1), frames(1), now);
        let record = |node, left| (NodeId(node), frames(node).seal_record(NOW, &bytes("a", 1, left)));
        let id = |node| {
            let key = IdKey { seed: frames(9).id_seed(NodeId(node)), cores: 4 };
            PublicId::of(key, 3, SessionId::from_bits(7))
        };
        registry.handle_nodes(now, NOW, vec![record(1, false), record(2, false)]);
        assert_eq!(
            [1, 2, 3].map(|node| registry.issuers().find(id(node))),
            [Some(NodeId(1)), Some(NodeId(2)), None]
        );
        registry.handle_nodes(now, NOW, vec![record(1, false), record(2, true)]);
        assert_eq!([1, 2].map(|node| registry.issuers().find(id(node))), [Some(NodeId(1)), None]);
        let other = Frames::new(NodeId(1), Some(b"another"), 0).id_seed(NodeId(1));
        let other = PublicId::of(IdKey { seed: other, cores: 4 }, 3, SessionId::from_bits(7));
        assert_eq!(registry.issuers().find(other), None, "of another cluster");
    }

    #[test]
    fn a_node_without_a_record_is_dead_when_it_has_not_reported_for_ten_seconds() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut registry = registry(now);
        assert!(registry.handle_timeout(now, NOW, &record("a")).is_some());
        let b = |number| vec![(NodeId(2), bytes("b", number, false))];
        let (joined, left) = ([Change::Joined(NodeId(2))], [Change::Left(NodeId(2), record("b"))]);
        assert_eq!(registry.handle_nodes(now, NOW, b(1)), joined);
        // The records of node 2 are deleted, and node 2 reports again in time.
        for at in [3, 6, 9] {
            assert_eq!(registry.handle_nodes(now + at * second, NOW, vec![]), []);
        }
        assert_eq!(registry.handle_nodes(now + 9 * second, NOW, b(2)), []);
        for at in [12, 15, 18] {
            assert_eq!(registry.handle_nodes(now + at * second, NOW, vec![]), []);
        }
        // Node 2 doesn't report again. Node 1's timer is due when node 2 counts as dead.
        assert!(registry.handle_timeout(now + 18 * second, NOW, &record("a")).is_some());
        assert_eq!(registry.handle_nodes(now + 18 * second, NOW, vec![]), []);
        assert_eq!(registry.poll_timeout(), now + 19 * second);
        assert_eq!(registry.nodes().len(), 1);
        assert_eq!(registry.handle_nodes(now + 19 * second, NOW, vec![]), left);
        assert_eq!(registry.handle_nodes(now + 19 * second, NOW, b(3)), joined);
        // A record with the same number doesn't count as a new report.
        assert_eq!(registry.handle_nodes(now + 24 * second, NOW, b(3)), []);
        assert_eq!(registry.handle_nodes(now + 29 * second, NOW, vec![]), left);
        // The engine is unreachable for a minute, and has no records afterwards.
        assert_eq!(registry.handle_nodes(now + 30 * second, NOW, b(4)), joined);
        for at in [90, 93, 96, 99] {
            assert_eq!(registry.handle_nodes(now + at * second, NOW, vec![]), []);
        }
        assert_eq!(registry.handle_nodes(now + 100 * second, NOW, vec![]), left);
    }

    #[test]
    fn invalid_records_are_counted_and_ignored() {
        let now = Instant::now();
        let mut registry = registry(now);
        let huge = Bytes::from(vec![b' '; RECORD_BYTES_MAX + 1]);
        let all =
            vec![(NodeId(2), Bytes::from_static(b"{")), (NodeId(3), huge), (NodeId(4), bytes("d", 1, false))];
        assert_eq!(registry.handle_nodes(now, NOW, all), [Change::Joined(NodeId(4))]);
        assert_eq!(registry.unreadable(), 2);
    }

    #[test]
    fn with_a_secret_a_record_counts_that_its_node_has_written_lately() {
        let now = Instant::now();
        let frames = |node| Frames::new(NodeId(node), Some(b"secret"), 0);
        let sealed = |frames: Frames, at| frames.seal_record(at, &bytes("b", 1, false));
        let second = Duration::from_secs(1);
        let late = NOW - RECORD_AGE_MAX;
        let mut changed = sealed(frames(2), NOW).to_vec();
        changed[10] ^= 1;
        for (record, counts) in [
            (sealed(frames(2), NOW), true),
            (sealed(frames(2), late + second), true),
            (sealed(frames(2), NOW + RECORD_AGE_MAX - second), true),
            (sealed(frames(2), late), false),
            (sealed(frames(2), NOW + RECORD_AGE_MAX), false),
            (sealed(frames(3), NOW), false),
            (sealed(Frames::new(NodeId(2), Some(b"other"), 0), NOW), false),
            (bytes("b", 1, false), false),
            (changed.into(), false),
            (Bytes::new(), false),
        ] {
            let mut registry = Registry::new(NodeId(1), frames(1), now);
            let changes = registry.handle_nodes(now, NOW, vec![(NodeId(2), record.clone())]);
            let expected: &[Change] = if counts { &[Change::Joined(NodeId(2))] } else { &[] };
            assert_eq!(changes, expected, "{record:?}");
            assert_eq!(registry.unreadable(), usize::from(!counts));
        }
        // Other nodes read the record that a node writes.
        let mut registry = Registry::new(NodeId(1), frames(1), now);
        let report = registry.handle_timeout(now, NOW, &record("a"));
        let Some(Request::Heartbeat { record, .. }) = report else { panic!("{report:?}") };
        assert_eq!(frames(2).open_record(NodeId(1), NOW, record), Some(bytes("a", 1, false)));
    }
}
