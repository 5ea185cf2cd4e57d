//! Documents that are pushed to any node.

use super::*;
use std::collections::HashMap;
use stentor_ports::{PushDenied, PushedFeed};

/// A push. `version` is the push's number, or 0 if the push deletes the document.
struct Pushed {
    version: u64,
    began: u64,
    /// `None` if the push isn't answered or its outcome is unknown.
    ended: Option<u64>,
    is_stored: Option<bool>,
}

/// Pushed documents, and the documents that nodes have shown.
#[derive(Default)]
pub(super) struct History {
    /// `true` if the engine has lost data.
    pub(super) is_lossy: bool,
    pushes: Vec<Pushed>,
    clock: u64,
    /// The version shown at each position.
    shown: HashMap<(Epoch, u64), u64>,
}

impl History {
    pub(super) fn push(&mut self, cluster: &mut Cluster, index: usize) {
        self.clock += 1;
        let id = self.pushes.len() as u64 + 1;
        let version = if cluster.random.u32(..5) == 0 { 0 } else { id };
        self.pushes.push(Pushed { version, began: self.clock, ended: None, is_stored: None });
        cluster.push(index, id, (version > 0).then_some(version), None);
    }

    /// Records the answers to pushes, and the versions shown.
    pub(super) fn note(&mut self, cluster: &mut Cluster) {
        self.clock += 1;
        for node in &mut cluster.nodes {
            for (id, answer) in node.answers.drain(..) {
                let push = &mut self.pushes[id as usize - 1];
                assert_eq!(push.is_stored, None, "answered twice");
                match answer {
                    Err(PushDenied::Unavailable { is_unknown: true }) => {}
                    answer => (push.ended, push.is_stored) = (Some(self.clock), Some(answer.is_ok())),
                }
            }
            for view in [&node.view, &node.pushed] {
                if let Some((position, version)) = view.shown.last() {
                    assert_eq!(
                        self.shown.entry((position.epoch, position.offset)).or_insert(*version),
                        version,
                        "{position:?}"
                    );
                }
            }
        }
    }

    /// Checks that all nodes show the version that was pushed last.
    pub(super) fn check(&self, cluster: &Cluster, seed: u64) {
        let nodes: Vec<&Node> = cluster.nodes.iter().filter(|node| node.pushed.wanted).collect();
        let newest = |node: &Node| node.pushed.shown.last().map_or(0, |(_, version)| *version);
        let Some(first) = nodes.first().map(|node| newest(node)) else { return };
        assert!(
            nodes.iter().all(|node| newest(node) == first),
            "seed {seed}: {:?}",
            nodes.iter().map(|node| newest(node)).collect::<Vec<_>>()
        );
        for node in &nodes {
            check_positions(&node.pushed.shown);
        }
        let refused = |push: &&Pushed| push.version == first && push.is_stored == Some(false);
        assert!(first == 0 || !self.pushes.iter().any(|push| refused(&push)), "seed {seed}: it was refused");
        if self.is_lossy {
            return;
        }
        // No stored push may have begun after the last push had ended. Any of the deletions may have been the last
        // push.
        let lasts = self.pushes.iter().filter(|push| push.version == first && push.is_stored != Some(false));
        let ended = lasts.map(|push| push.ended.unwrap_or(u64::MAX)).max().unwrap_or(0);
        let later = self.pushes.iter().find(|push| push.is_stored == Some(true) && push.began > ended);
        assert!(
            later.is_none(),
            "seed {seed}: {:?} is lost, {first} is shown",
            later.map(|push| push.version)
        );
    }
}

impl Cluster {
    /// Creates nodes, of which the first `subscribed` have subscribers of [`pushed`].
    fn subscribed(nodes: u64, subscribed: usize) -> Self {
        let mut cluster = Self::new(nodes, 1);
        (0..subscribed).for_each(|index| cluster.want_key(index, &pushed(), true));
        cluster.run_until_idle();
        cluster
    }

    /// Pushes a version, or a deletion (`None`), to a node.
    fn push(&mut self, index: usize, id: u64, version: Option<u64>, sequence: Option<u64>) {
        let push = PushedFeed { change: version.map(|version| document(version).into()), sequence };
        self.nodes[index].feeds.handle_push(self.now, id, &pushed(), push);
        self.collect(index);
    }

    /// Pushes a version, or a deletion (`None`), and returns the answer.
    fn pushed(&mut self, index: usize, version: Option<u64>, sequence: Option<u64>) -> PushAnswer {
        self.push(index, 1, version, sequence);
        self.run_for(Duration::from_millis(500));
        let (1, answer) = self.nodes[index].answers.remove(0) else { panic!("another push") };
        answer
    }

    /// Takes the answers of a node, with the pushes' numbers.
    fn answers(&mut self, index: usize) -> Vec<(u64, PushAnswer)> {
        std::mem::take(&mut self.nodes[index].answers)
    }

    fn shown(&self) -> Vec<Option<u64>> {
        self.nodes.iter().map(|node| node.pushed.shown.last().map(|(_, version)| *version)).collect()
    }
}

#[test]
fn an_engine_without_memory_is_asked_for_a_lease_once_a_second() {
    let mut cluster = Cluster::new(1, 1);
    cluster.is_full = true;
    cluster.push(0, 1, Some(1), None);
    cluster.run_for(5 * RETRY_DELAY);
    let requests = cluster.nodes[0].feeds.stats().requests;
    assert!((4..=7).contains(&requests), "{requests}");
    cluster.is_full = false;
    cluster.run_for(2 * RETRY_DELAY);
    assert_eq!(cluster.answers(0), [(1, Ok(true))]);
}

#[test]
fn a_document_reaches_all_nodes_in_one_epoch_whichever_it_is_pushed_to() {
    let mut cluster = Cluster::subscribed(3, 2);
    assert_eq!(cluster.nodes[0].pushed.state, None, "its subscribers wait");
    for version in 1..100 {
        assert_eq!(cluster.pushed(version as usize % 3, Some(version), None), Ok(true));
        assert_eq!(cluster.shown(), [Some(version), Some(version), None]);
    }
    assert_eq!(cluster.pushed(2, Some(99), None), Ok(false));
    let shown = &cluster.nodes[1].pushed.shown;
    assert_eq!(*shown, cluster.nodes[0].pushed.shown);
    assert_eq!(epochs(shown), 1);
    // A node joins after the other nodes have lost their subscribers.
    cluster.nodes.truncate(2);
    cluster.nodes.push(Node::new(7));
    cluster.bus.connect(NodeId(7));
    (0..2).for_each(|index| cluster.want_key(index, &pushed(), false));
    cluster.want_key(2, &pushed(), true);
    cluster.run_until_idle();
    assert_eq!(cluster.shown(), [None, None, Some(99)]);
    assert_eq!(cluster.nodes[0].feeds.stats().followed, 0);
}

#[test]
fn a_sequence_number_counts_whichever_node_has_it() {
    let mut cluster = Cluster::new(2, 1);
    let old = |last| Err(PushDenied::OldSequence { last });
    assert_eq!(cluster.pushed(0, Some(1), Some(5)), Ok(true));
    assert_eq!(cluster.pushed(1, Some(2), Some(4)), old(5));
    assert_eq!(cluster.pushed(1, Some(1), Some(7)), Ok(false), "only the number changes");
    assert_eq!(cluster.pushed(0, Some(2), Some(6)), old(7));
    assert_eq!(cluster.pushed(0, None, Some(6)), old(7));
    assert_eq!(cluster.pushed(0, Some(2), Some(7)), Ok(true));
    assert_eq!(cluster.pushed(1, None, Some(7)), Ok(true));
    assert_eq!(cluster.pushed(0, Some(2), Some(1)), Ok(true), "as if it were new");
}

#[test]
fn a_deletion_reaches_all_nodes() {
    let mut cluster = Cluster::subscribed(3, 2);
    assert_eq!(cluster.pushed(0, None, None), Err(PushDenied::NotFound));
    assert_eq!(cluster.pushed(0, Some(1), None), Ok(true));
    assert_eq!(cluster.pushed(2, None, None), Ok(true));
    for node in &cluster.nodes[..2] {
        assert_eq!((node.pushed.shown.len(), node.pushed.state), (0, Some(FeedState::NotFound)));
    }
    assert_eq!(cluster.pushed(1, None, None), Err(PushDenied::NotFound));
    cluster.want_key(2, &pushed(), true);
    cluster.run_until_idle();
    assert_eq!((cluster.shown()[2], cluster.nodes[2].pushed.state), (None, None), "it waits");
    assert_eq!(cluster.pushed(0, Some(2), None), Ok(true));
    assert_eq!(cluster.shown(), [Some(2); 3]);
}

#[test]
fn pushes_to_several_nodes_at_once_have_one_order() {
    let mut cluster = Cluster::subscribed(3, 1);
    for round in 0..20 {
        for index in 0..3 {
            cluster.push(index, index as u64, Some(3 * round + index as u64 + 1), None);
        }
        cluster.run_for(Duration::from_secs(1));
        for index in 0..3 {
            assert_eq!(cluster.answers(index), [(index as u64, Ok(true))]);
        }
    }
    let shown = &cluster.nodes[0].pushed.shown;
    assert_eq!(shown.len(), 60);
    assert!(shown.windows(2).all(|pair| pair[0].0.offset + 1 == pair[1].0.offset));
}

#[test]
fn a_push_that_the_engine_does_not_answer_is_refused_in_time() {
    let mut cluster = Cluster::new(1, 1);
    cluster.is_up = false;
    cluster.push(0, 1, Some(1), None);
    cluster.run_for(push::PUSH_TIMEOUT);
    assert_eq!(cluster.answers(0), [(1, Err(PushDenied::Unavailable { is_unknown: false }))]);
    // Only the request that stores the version isn't answered.
    cluster.is_up = true;
    cluster.push(0, 2, Some(2), None);
    while !matches!(cluster.requests.front(), Some((_, _, Request::StoreVersion { .. }))) {
        cluster.answer();
    }
    cluster.is_up = false;
    cluster.run_for(push::PUSH_TIMEOUT);
    assert_eq!(cluster.answers(0), [(2, Err(PushDenied::Unavailable { is_unknown: true }))]);
    assert_eq!(cluster.nodes[0].feeds.stats().followed, 0, "nothing is kept of it");
}

#[test]
fn a_node_that_dies_during_a_push_delays_others_no_longer_than_its_lease() {
    let mut cluster = Cluster::new(2, 1);
    cluster.push(0, 1, Some(1), None);
    cluster.answer();
    cluster.nodes[0] = Node::new(9);
    cluster.requests.clear();
    cluster.push(1, 2, Some(2), None);
    cluster.run_for(LEASE_TTL + PUSH_RETRY_DELAY * 4);
    assert_eq!(cluster.nodes[1].answers, [(2, Ok(true))]);
}

#[test]
fn documents_that_the_engine_lost_are_stored_again() {
    let mut cluster = Cluster::subscribed(3, 2);
    assert_eq!(cluster.pushed(2, Some(1), Some(4)), Ok(true));
    let before = cluster.nodes[0].pushed.shown.clone();
    cluster.bus.forget();
    (0..3).for_each(|index| cluster.connect(index));
    cluster.run_for(Duration::from_secs(2));
    cluster.want_key(2, &pushed(), true);
    cluster.run_for(Duration::from_secs(1));
    assert_eq!(cluster.nodes[2].pushed.shown, before, "the same version");
    assert_eq!(cluster.pushed(2, Some(2), Some(3)), Err(PushDenied::OldSequence { last: 4 }));
    assert_eq!(cluster.pushed(1, Some(2), None), Ok(true));
    assert_eq!(cluster.shown(), [Some(2); 3]);
    // The epoch is a new one, because other nodes may have had newer versions.
    assert_ne!(cluster.nodes[0].pushed.shown[1].0.epoch, before[0].0.epoch);
}

#[test]
fn a_document_with_subscribers_is_stored_again_before_it_expires() {
    let mut cluster = Cluster::subscribed(1, 1);
    assert_eq!(cluster.pushed(0, Some(1), None), Ok(true));
    let before = cluster.nodes[0].feeds.stats().requests;
    cluster.pass(REFRESH_INTERVAL.mul_f64(1.3));
    cluster.run_for(Duration::from_secs(1));
    // The node acquires the lease, reads, stores and releases.
    assert_eq!(cluster.nodes[0].feeds.stats().requests - before, 4);
    assert_eq!(cluster.nodes[0].pushed.shown.len(), 1, "nobody notices");
}

#[test]
fn subscribers_of_undeclared_keys_without_a_document_are_notified() {
    let mut cluster = Cluster::new(1, 1);
    cluster.nodes[0].feeds = Feeds::new(frames(1), Arc::new(|_| FeedSource::Unknown), IDLE_TTL, cold_keys(1));
    cluster.want_key(0, &pushed(), true);
    cluster.run_until_idle();
    assert_eq!(cluster.nodes[0].pushed.state, Some(FeedState::NotFound));
    cluster.nodes[0].pushed.state = None;
    let wanted = KeyInterest { key: pushed(), wanted: true, requesters: Vec::new() };
    cluster.nodes[0].feeds.handle_wanted(cluster.now, wanted);
    cluster.collect(0);
    assert_eq!(cluster.nodes[0].pushed.state, Some(FeedState::NotFound), "later subscribers learn it too");
    assert_eq!(cluster.pushed(0, Some(1), None), Ok(true));
    assert_eq!(cluster.shown(), [Some(1)]);
}

#[test]
fn a_version_that_arrived_before_the_first_subscriber_is_shown_to_it() {
    let mut cluster = Cluster::new(2, 1);
    cluster.push(0, 1, Some(1), Some(1));
    // Node 0 knows the feed while its push waits. It receives the feed's entries because of an earlier interest.
    let waiting = std::mem::take(&mut cluster.requests);
    cluster.bus.set_interest(NodeId(1), Channel::from(pushed()), true);
    assert_eq!(cluster.pushed(1, Some(2), Some(2)), Ok(true));
    cluster.want_key(0, &pushed(), true);
    cluster.requests.extend(waiting);
    cluster.run_for(Duration::from_millis(500));
    assert_eq!(cluster.nodes[0].answers, [(1, Err(PushDenied::OldSequence { last: 2 }))]);
    assert_eq!(cluster.shown()[0], Some(2));
}
