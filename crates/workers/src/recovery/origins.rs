//! Numbers of the broadcasts that clients can miss, by the node that has sent them.
//!
//! Each node numbers its broadcasts, and other nodes receive them in this order. So the last number of each node says which broadcasts a
//! node has had. A broadcast that the engine has lost counts as had.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Instant;

/// The node that has sent a broadcast. `None`: this node.
pub(crate) type Origin = Option<u64>;

/// Maximum number of other nodes whose numbers are known, nodes that have left included. Above it, the one that was silent for the longest
/// time is forgotten.
const ORIGINS_MAX: usize = 1_000;
/// Bytes that the number of a node takes.
const ORIGIN_BYTES: usize = 64;

/// The source of a broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) node: Origin,
    /// Number among the node's broadcasts.
    pub(crate) number: u64,
}

/// The numbers of the last broadcasts that a node has had, as it reports them to another node.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The reporting node's own number.
    own: u64,
    /// The number of the node that receives the report.
    yours: u64,
    /// Other nodes and their numbers.
    others: Vec<(u64, u64)>,
}

/// The broadcasts that another node has had.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Had(HashMap<Origin, u64>);

impl Had {
    /// Reads the report of a node.
    pub(crate) fn read(report: &Report, from: u64) -> Self {
        let others = report.others.iter().take(ORIGINS_MAX).map(|(node, number)| (Some(*node), *number));
        Self(others.chain([(Some(from), report.own), (None, report.yours)]).collect())
    }

    pub(crate) fn has(&self, source: Source) -> bool {
        self.0.get(&source.node).is_some_and(|last| source.number <= *last)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.len() * ORIGIN_BYTES
    }
}

/// The last numbers of all nodes.
#[derive(Default)]
pub(crate) struct Origins {
    own: u64,
    others: HashMap<u64, (u64, Instant)>,
}

impl Origins {
    /// Number of this node's last broadcast.
    pub(crate) fn own(&self) -> u64 {
        self.own
    }

    /// Draws the number of this node's next broadcast.
    pub(crate) fn draw(&mut self) -> Source {
        self.own += 1;
        Source { node: None, number: self.own }
    }

    /// Another node has sent its broadcasts up to this number.
    pub(crate) fn handle(&mut self, node: u64, number: u64, now: Instant) {
        if !self.others.contains_key(&node)
            && self.others.len() >= ORIGINS_MAX
            && let Some((&oldest, _)) = self.others.iter().min_by_key(|(_, (_, at))| *at)
        {
            self.others.remove(&oldest);
        }
        let (last, at) = self.others.entry(node).or_insert((number, now));
        (*last, *at) = (number.max(*last), now);
    }

    /// The numbers for another node.
    pub(crate) fn report(&self, to: u64) -> Report {
        let others = self.others.iter().filter(|(node, _)| **node != to);
        Report {
            own: self.own,
            yours: self.others.get(&to).map_or(0, |(number, _)| *number),
            others: others.map(|(node, (number, _))| (*node, *number)).collect(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.others.len() * ORIGIN_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_nodes_are_bounded_and_never_go_back() {
        let (mut origins, start) = (Origins::default(), Instant::now());
        origins.draw();
        for (node, second) in (0..=ORIGINS_MAX as u64).zip(0..) {
            origins.handle(node, 7, start + std::time::Duration::from_secs(second));
        }
        origins.handle(5, 3, start);
        let report = origins.report(5);
        assert_eq!((report.own, report.yours, report.others.len()), (1, 7, ORIGINS_MAX - 1));
        assert!(
            report.others.iter().all(|(node, _)| *node != 0),
            "the one that was silent for the longest time"
        );
        let had = Had::read(&report, 9);
        let has = |node, number| had.has(Source { node, number });
        assert!(has(None, 7) && !has(None, 8) && has(Some(9), 1) && !has(Some(9), 2) && !has(Some(0), 1));
        let next = origins.draw();
        assert_eq!(next, Source { node: None, number: 2 });
    }
}
