//! The list of feed keys of all nodes: the port between the control planes, which fetch the keys, and the cluster, which carries the lists.

use super::{Done, LIST_BYTES_MAX};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

/// Selects feed keys to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedsQuery {
    /// Lists only keys that contain this text.
    pub search: String,
    /// Maximum number of listed keys.
    pub limit: usize,
}

/// A key of a feed, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedInfo {
    /// Name of the node that fetches the key. `None`: the node is in no cluster, or the document was pushed.
    pub node: Option<Arc<str>>,
    /// The key.
    pub key: Arc<str>,
    /// The state, as clients receive it, or `cold` if the key waits for its first document.
    pub state: Cow<'static, str>,
    /// Size of the document in bytes.
    pub document_bytes: usize,
    /// `true` if the key has subscribers.
    pub is_subscribed: bool,
    /// The fetches. `None` if the document was pushed.
    pub fetches: Option<FeedFetches>,
}

/// The fetches of a key. Times are Unix times in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedFetches {
    /// Name of the upstream.
    pub upstream: String,
    /// The URL, without secrets. `None` if the configuration has just changed.
    pub url: Option<String>,
    /// The reason for the state. Empty if there is none.
    pub reason: String,
    /// Number of fetches in a row that have failed.
    pub failures: u32,
    /// Duration of the last fetch, in microseconds.
    pub took_micros: u64,
    /// Time of the first of the failed fetches. `None` if the last fetch succeeded.
    pub failing_since: Option<u64>,
    /// Time of the last fetch that succeeded.
    pub last_success: Option<u64>,
    /// Time of the next fetch. `None` during a fetch, and for a complete key.
    pub next_fetch: Option<u64>,
}

impl FeedInfo {
    fn bytes(&self) -> usize {
        let fetches = self.fetches.as_ref();
        let texts = fetches.map_or(0, |fetches| {
            fetches.upstream.len() + fetches.url.as_ref().map_or(0, String::len) + fetches.reason.len()
        });
        size_of::<Self>() + self.key.len() + texts
    }

    /// The order in lists: first keys whose last fetch failed, then stale ones, then those whose last fetch took the longest, then
    /// those with pushed documents.
    fn rank(&self) -> impl Ord + use<> {
        let fetches = self.fetches.as_ref();
        let of =
            |fetches: &FeedFetches| (fetches.failing_since.is_some(), fetches.failures, fetches.took_micros);
        let (is_failing, failures, took) = fetches.map(of).unwrap_or_default();
        (Reverse((fetches.is_some(), is_failing, self.state == "stale", failures, took)), self.key.clone())
    }
}

/// A list of feed keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedList {
    /// The listed keys, those with problems first.
    pub feeds: Vec<FeedInfo>,
    /// Number of keys that match, listed or not. In a cluster, a key with a pushed document that isn't listed counts once for each node
    /// that has subscribers.
    pub count: usize,
    /// Names of nodes that didn't answer in time: their keys are neither listed nor counted.
    pub missing_nodes: Vec<String>,
}

impl FeedList {
    /// A list of some of `count` keys, with at most about [`LIST_BYTES_MAX`] of names.
    pub fn new(feeds: impl IntoIterator<Item = FeedInfo>, count: usize) -> Self {
        let mut bytes = 0;
        let feeds = feeds.into_iter().take_while(|info| {
            bytes += info.bytes();
            bytes <= LIST_BYTES_MAX
        });
        Self { feeds: feeds.collect(), count, missing_nodes: Vec::new() }
    }

    /// Adds the keys of another node to a list of at most `limit` keys. A pushed document that both nodes have is listed once.
    pub fn merge(&mut self, other: Self, limit: usize) {
        let mut all = std::mem::take(&mut self.feeds);
        all.extend(other.feeds);
        all.sort_by_cached_key(FeedInfo::rank);
        let listed = all.len();
        all.dedup_by(|later, one| later.fetches.is_none() && one.fetches.is_none() && later.key == one.key);
        let count = self.count.saturating_add(other.count).saturating_sub(listed - all.len());
        let missing_nodes = std::mem::take(&mut self.missing_nodes);
        *self = Self::new(all.into_iter().take(limit), count);
        self.missing_nodes = [missing_nodes, other.missing_nodes].concat();
    }
}

/// The numbers of subscribers of some feed keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscriberCounts {
    /// The number of subscribed sessions for each of the keys, in their order. Suspended sessions are included.
    pub counts: Vec<usize>,
    /// Names of nodes that didn't answer in time: their sessions aren't counted.
    pub missing_nodes: Vec<String>,
}

impl SubscriberCounts {
    /// Adds the counts of another core or node.
    pub fn merge(&mut self, other: Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum = sum.saturating_add(count);
        }
        self.missing_nodes.extend(other.missing_nodes);
    }
}

/// The control plane of a node, as the cluster calls it to list this node's keys. No call blocks.
pub trait FeedLister: Send + Sync {
    /// Lists the keys that this node fetches.
    fn list_feeds(&self, query: FeedsQuery, done: Done<FeedList>);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(key: &str, state: &'static str, fetches: Option<(u32, u64)>) -> FeedInfo {
        let fetches = fetches.map(|(failures, took_micros)| FeedFetches {
            failures,
            took_micros,
            failing_since: (failures > 0).then_some(1),
            ..FeedFetches::default()
        });
        let (document_bytes, is_subscribed) = (0, false);
        FeedInfo { node: None, key: key.into(), state: state.into(), document_bytes, is_subscribed, fetches }
    }

    #[test]
    fn the_keys_of_nodes_are_merged_those_with_problems_first() {
        let one =
            [info("a", "stale", Some((1, 5))), info("b", "live", Some((0, 7))), info("p", "live", None)];
        let other =
            [info("c", "live", Some((2, 0))), info("d", "live", Some((0, 9))), info("p", "live", None)];
        let mut sum = FeedList { missing_nodes: vec!["x".into()], ..FeedList::default() };
        sum.merge(FeedList::new(one, 5), 9);
        sum.merge(FeedList::new(other, 3), 9);
        let keys = |list: &FeedList| list.feeds.iter().map(|info| info.key.to_string()).collect::<String>();
        assert_eq!((keys(&sum), sum.count, sum.missing_nodes.len()), ("acdbp".into(), 7, 1));
        sum.merge(FeedList::default(), 2);
        assert_eq!((keys(&sum), sum.count), ("ac".into(), 7));
    }

    #[test]
    fn counts_of_cores_and_nodes_are_added() {
        let part = |counts: &[usize], missing: &[&str]| SubscriberCounts {
            counts: counts.to_vec(),
            missing_nodes: missing.iter().map(|name| (*name).to_owned()).collect(),
        };
        let mut sum = SubscriberCounts::default();
        for one in [part(&[1, 2], &["b"]), part(&[], &[]), part(&[3, usize::MAX], &["c"])] {
            sum.merge(one);
        }
        assert_eq!(sum, part(&[4, usize::MAX], &["b", "c"]));
    }

    #[test]
    fn a_list_is_bounded_in_bytes() {
        let long = "k".repeat(LIST_BYTES_MAX / 4);
        let all = (0..9).map(|_| info(&long, "live", None));
        assert_eq!(FeedList::new(all, 9).feeds.len(), 3);
    }
}
