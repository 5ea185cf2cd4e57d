//! The cluster as the control plane sees it, and its metrics.

use super::{Cluster, Options};
use crate::clock;
use crate::engine::Limits;
use crate::engine::memory::Memory;
use crate::finish::Finish;
use crate::frame::{Answered, Question};
use crate::metrics::Gauges;
use crate::relay::Relays;
use crate::{NodeId, NodeRecord};
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::Room;
use stentor_ports::{
    Done, FeedList, FeedLister, FeedSource, FeedsQuery, Ledger, Metric, MetricSource, NodeInfo, Topology,
};

impl Cluster {
    /// A cluster of one node, to list the metrics of a node in a cluster.
    pub fn alone() -> Arc<Self> {
        let node = NodeId::draw();
        let (engine, events) = Memory::default().connect(node, Limits::default());
        let options = Options {
            name: String::new(),
            advertise: None,
            secret: None,
            version: String::new(),
            history: Vec::new(),
            vacant_rooms_max: usize::MAX,
            decision_timeout: Duration::ZERO,
            feed_idle_ttl: Duration::ZERO,
            feed_keys_max: usize::MAX,
            feed_source: Arc::new(|_| FeedSource::Fetched),
            relays: None,
            unready_after: None,
            document_bytes_max: 0,
            ledger: Arc::new(Ledger::new(usize::MAX)),
            revocations: None,
        };
        Self::new(node, options, Arc::new(engine), &events, 0)
    }
}

impl MetricSource for Cluster {
    fn metrics(&self) -> Vec<Metric> {
        let now = clock::now();
        let state = &*self.state.lock();
        let registry = &state.registry;
        let age = registry.age(now).unwrap_or_default().as_secs();
        let mut all = self.counters.metrics(&Gauges {
            nodes: registry.nodes().len(),
            unreadable_records: registry.unreadable(),
            engine_away_seconds: usize::try_from(self.absence.duration().as_secs()).unwrap_or(usize::MAX),
            registry_age_seconds: usize::try_from(age).unwrap_or(usize::MAX),
            inbox_bytes: self.waiting.bytes(),
            waiting: self.engine.waiting(),
            feeds: self.feeds.stats(),
            rooms: self.rooms.stats(),
        });
        all.extend(Relays::metrics(self.options.relays.as_deref()));
        all
    }
}

impl Cluster {
    /// Adds the name of this node to the keys that it fetches, and the keys with pushed documents that have subscribers here.
    fn complete_feeds(&self, mut list: FeedList, query: &FeedsQuery) -> FeedList {
        let name: Arc<str> = self.options.name.as_str().into();
        list.feeds.iter_mut().for_each(|info| info.node = Some(name.clone()));
        list.merge(self.feeds.list_pushed(query), query.limit);
        list
    }

    /// Lists the feed keys of this node, for another node.
    pub(super) fn list_own_feeds(self: &Arc<Self>, query: FeedsQuery, done: Done<FeedList>) {
        let Some(lister) = self.observers.feeds.get() else { return done.answer(Ok(FeedList::default())) };
        let (this, asked) = (self.clone(), query.clone());
        let complete =
            move |list: Result<_, _>| done.answer(list.map(|list| this.complete_feeds(list, &asked)));
        lister.list_feeds(query, Done::new(complete));
    }
}

impl Topology for Cluster {
    fn nodes(&self) -> Vec<NodeInfo> {
        let info = |(node, record): (&NodeId, &NodeRecord)| NodeInfo {
            id: node.to_string(),
            name: record.name.clone(),
            version: record.version.clone(),
            address: record.address.clone(),
            started_at_seconds: record.started_at_seconds,
            connections: record.connections,
            is_this: *node == self.node(),
        };
        self.state.lock().registry.nodes().iter().map(info).collect()
    }

    fn is_ordered(&self, room: &Room) -> bool {
        self.keeps_history(room)
    }

    fn join_feeds(&self, lister: Arc<dyn FeedLister>) {
        // A second call would be a bug of the node's start.
        assert!(self.observers.feeds.set(lister).is_ok());
    }

    fn list_feeds(&self, query: FeedsQuery, own: FeedList, done: Done<FeedList>) {
        let finish = Finish::Feeds { limit: query.limit, done };
        let own = self.complete_feeds(own, &query);
        self.survey(None, Question::Feeds(query), Answered::Feeds(own), finish);
    }
}
