//! Nodes that share feeds, over an engine in memory that may lose messages, be away, or start again without its data.

use super::*;
use crate::engine::memory::Bus;
use crate::engine::{Channel, Event};
use crate::frame::{Frame, Frames};
use stentor_hub::{Document, Patch};

fn key() -> Key {
    Key::parse("game/1").expect("a key")
}

fn document(version: u64) -> Document {
    let filler = "filler ".repeat(30);
    let body = format!(r#"{{"version":{version},"text":"{filler}"}}"#);
    Document { body: body.into(), json: true, content_type: "application/json".into() }
}

fn version_of(document: &Document) -> u64 {
    let text = std::str::from_utf8(&document.body).expect("text");
    text[11..].split(',').next().and_then(|number| number.parse().ok()).expect("a number")
}

/// One node: its machine, and what its control plane and its subscribers have.
struct Node {
    id: NodeId,
    feeds: Feeds,
    frames: Frames,
    is_fetching: bool,
    /// Of the control plane: the last document that it gave.
    fetched: Option<Document>,
    wanted: bool,
    /// Positions and versions that subscribers received, since they came.
    shown: Vec<(Position, u64)>,
    state: Option<FeedState>,
    is_connected: bool,
}

impl Node {
    fn new(id: u64) -> Self {
        Self {
            id: NodeId(id),
            feeds: Feeds::new(NodeId(id)),
            frames: Frames::new(NodeId(id), None, 1 << 20),
            is_fetching: false,
            fetched: None,
            wanted: false,
            shown: Vec::new(),
            state: None,
            is_connected: true,
        }
    }
}

struct Cluster {
    now: Instant,
    bus: Bus,
    nodes: Vec<Node>,
    /// What the upstream has.
    upstream: u64,
    /// Requests on their way: when, whose.
    requests: VecDeque<(usize, Ticket, FeedRequest)>,
    /// Whether the engine answers.
    is_up: bool,
    random: fastrand::Rng,
}

impl Cluster {
    fn new(nodes: u64, seed: u64) -> Self {
        let mut bus = Bus::default();
        let nodes: Vec<Node> = (1..=nodes).map(Node::new).collect();
        nodes.iter().for_each(|node| bus.connect(node.id));
        Self {
            now: Instant::now(),
            bus,
            nodes,
            upstream: 1,
            requests: VecDeque::new(),
            is_up: true,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    fn want(&mut self, node: usize, wanted: bool) {
        if self.nodes[node].wanted == wanted {
            return;
        }
        self.nodes[node].wanted = wanted;
        let id = self.nodes[node].id;
        self.bus.set_interest(id, Channel::from(key()), wanted);
        self.nodes[node].shown.clear();
        let wanted = Wanted { key: key(), wanted, requesters: Vec::new() };
        self.nodes[node].feeds.handle_wanted(self.now, wanted);
        self.collect(node);
    }

    /// Carries out what a machine asks for.
    fn collect(&mut self, index: usize) {
        while let Some(output) = self.nodes[index].feeds.poll_output() {
            let node = &mut self.nodes[index];
            match output {
                Output::Request(ticket, request) => self.requests.push_back((index, ticket, request)),
                Output::Publish(key, change) => {
                    let channel = Channel::from(key);
                    let payload = node.frames.encode(&channel, &Frame::State(change));
                    if self.is_up && node.is_connected {
                        self.bus.publish(&channel, &payload);
                    }
                }
                Output::Control(wanted) => {
                    node.is_fetching = wanted.wanted;
                    node.fetched = None;
                }
                Output::Plane(_, FeedUpdate::At { position, document, patches }) => {
                    check_patches(&patches);
                    node.state = Some(FeedState::Live);
                    node.shown.push((position, version_of(&document)));
                }
                Output::Plane(_, FeedUpdate::State { state, .. }) => node.state = Some(state),
                Output::Plane(_, FeedUpdate::Forget) => node.shown.clear(),
                Output::Plane(_, other) => panic!("unexpected: {other:?}"),
            }
        }
    }

    /// Who fetches gives what the upstream has.
    fn fetch(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if !node.is_fetching {
            return;
        }
        let new = document(self.upstream);
        if node.fetched.as_ref() == Some(&new) {
            return;
        }
        let before = node.fetched.replace(new.clone());
        let update = match before {
            Some(before) => {
                let patch = Patch { base: before.body, operations: Bytes::from_static(b"[]") };
                FeedUpdate::Patched(new, patch)
            }
            None => FeedUpdate::Document(new),
        };
        let passed_on = node.feeds.handle_update(self.now, &key(), update);
        assert!(passed_on.is_none(), "who fetches holds the lease");
        self.collect(index);
    }

    /// Answers the oldest request.
    fn answer(&mut self) {
        let Some((index, ticket, request)) = self.requests.pop_front() else { return };
        let (frames, decoding) = (self.nodes[index].frames.clone(), self.nodes[index].frames.clone());
        let request = request
            .encode(|key, version| frames.encode(&Channel::from(key.clone()), &Frame::Version(version)));
        let reply = if self.is_up && self.nodes[index].is_connected {
            self.bus.handle_request(self.now, request)
        } else {
            Err(EngineError::Unavailable("away".into()))
        };
        let answer = Answer::of(reply, |payload| match decoding.decode(&Channel::from(key()), payload) {
            Ok((_, Frame::Version(version))) => Some(version),
            _ => None,
        });
        self.nodes[index].feeds.handle_reply(self.now, ticket, answer);
        self.collect(index);
        self.deliver();
    }

    fn deliver(&mut self) {
        while let Some((id, event)) = self.bus.poll_delivery() {
            let Some(index) = self.nodes.iter().position(|node| node.id == id) else { continue };
            let Event::Message { channel, position, payload } = event else { continue };
            let Ok((sender, frame)) = self.nodes[index].frames.decode(&channel, &payload) else { continue };
            if sender == id || !self.nodes[index].is_connected {
                continue;
            }
            let node = &mut self.nodes[index];
            match (frame, position) {
                (Frame::Version(version), Some(position)) => {
                    node.feeds.handle_version(self.now, &key(), position, &version);
                }
                (Frame::State(change), _) => node.feeds.handle_state(&key(), change),
                _ => {}
            }
            self.collect(index);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        for index in 0..self.nodes.len() {
            self.nodes[index].feeds.handle_timeout(self.now);
            self.collect(index);
        }
    }

    /// Lets everything happen that can happen without time.
    fn run_until_idle(&mut self) {
        loop {
            (0..self.nodes.len()).for_each(|index| self.fetch(index));
            self.deliver();
            if self.requests.is_empty() {
                return;
            }
            self.answer();
        }
    }

    fn holders(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|index| self.nodes[*index].is_fetching).collect()
    }

    fn newest(&self, index: usize) -> Option<u64> {
        self.nodes[index].shown.last().map(|(_, version)| *version)
    }

    fn connect(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.is_connected = true;
        self.bus.connect(node.id);
        self.bus.set_interest(node.id, Channel::from(key()), node.wanted);
        node.feeds.handle_connected(self.now);
        self.collect(index);
    }

    fn disconnect(&mut self, index: usize) {
        self.nodes[index].is_connected = false;
        self.bus.disconnect(self.nodes[index].id);
    }
}

fn check_patches(patches: &[Bytes]) {
    assert!(patches.iter().all(|patch| &patch[..] == b"[]"));
}

/// Within an epoch, versions and positions only grow.
fn check_order(shown: &[(Position, u64)]) {
    for pair in shown.windows(2) {
        let [(before, old), (after, new)] = pair else { continue };
        if before.epoch == after.epoch {
            assert!(before.offset < after.offset, "{shown:?}");
        }
        assert!(old <= new, "a feed went back: {shown:?}");
    }
}

#[test]
fn one_node_fetches_and_all_follow() {
    let mut cluster = Cluster::new(3, 1);
    (0..3).for_each(|index| cluster.want(index, true));
    cluster.run_until_idle();
    assert_eq!(cluster.holders(), [0]);
    for version in 2..200 {
        cluster.upstream = version;
        cluster.run_until_idle();
        cluster.pass(Duration::from_millis(200));
        assert_eq!((0..3).map(|index| cluster.newest(index)).collect::<Vec<_>>(), [Some(version); 3]);
    }
    assert_eq!(cluster.holders(), [0], "the lease is renewed");
    let shown = &cluster.nodes[2].shown;
    assert!(shown.windows(2).all(|pair| pair[0].0.epoch == pair[1].0.epoch));
    assert_eq!(cluster.nodes.iter().map(|node| node.feeds.stats().resyncs).sum::<u64>(), 0);
}

#[test]
fn a_node_that_joins_late_has_the_newest_version_at_once_in_the_same_epoch() {
    let mut cluster = Cluster::new(2, 1);
    cluster.want(0, true);
    for version in 2..80 {
        cluster.upstream = version;
        cluster.run_until_idle();
    }
    cluster.want(1, true);
    cluster.run_until_idle();
    assert_eq!(cluster.nodes[1].shown.last(), cluster.nodes[0].shown.last());
    cluster.upstream = 100;
    cluster.run_until_idle();
    assert_eq!(cluster.nodes[1].shown.last(), cluster.nodes[0].shown.last());
    assert_eq!(cluster.newest(1), Some(100));
}

#[test]
fn a_holder_without_subscribers_lets_another_node_fetch() {
    let mut cluster = Cluster::new(2, 1);
    (0..2).for_each(|index| cluster.want(index, true));
    cluster.run_until_idle();
    cluster.want(0, false);
    cluster.run_until_idle();
    assert_eq!(cluster.holders(), [0_usize; 0]);
    cluster.upstream = 2;
    cluster.pass(ACQUIRE_INTERVAL * 2);
    cluster.run_until_idle();
    assert_eq!((cluster.holders(), cluster.newest(1)), (vec![1], Some(2)));
    check_order(&cluster.nodes[1].shown);
}

#[test]
fn a_dead_holder_is_followed_by_another_within_its_lease() {
    let mut cluster = Cluster::new(2, 1);
    (0..2).for_each(|index| cluster.want(index, true));
    cluster.run_until_idle();
    // It ends without a word: nothing of it happens any more.
    let mut dead = std::mem::replace(&mut cluster.nodes[0], Node::new(9));
    cluster.bus.disconnect(dead.id);
    cluster.upstream = 2;
    for _ in 0..(LEASE_TTL + ACQUIRE_INTERVAL * 2).as_millis() / 100 {
        cluster.pass(Duration::from_millis(100));
        cluster.run_until_idle();
    }
    assert_eq!((cluster.holders(), cluster.newest(1)), (vec![1], Some(2)));
    // It was only stopped, and comes back: it must not store anything.
    dead.is_fetching = true;
    dead.feeds.handle_timeout(cluster.now);
    let outputs: Vec<_> = std::iter::from_fn(|| dead.feeds.poll_output()).collect();
    let stops = outputs.iter().any(|output| matches!(output, Output::Control(Wanted { wanted: false, .. })));
    assert!(stops, "{outputs:?}");
}

#[test]
fn without_the_engine_subscribers_learn_that_the_feed_is_stale() {
    let mut cluster = Cluster::new(2, 1);
    (0..2).for_each(|index| cluster.want(index, true));
    cluster.run_until_idle();
    cluster.is_up = false;
    for _ in 0..80 {
        cluster.pass(Duration::from_millis(100));
        cluster.run_until_idle();
    }
    assert_eq!((cluster.holders(), cluster.nodes[0].state), (vec![], Some(FeedState::Stale)));
    cluster.is_up = true;
    cluster.upstream = 5;
    for _ in 0..80 {
        cluster.pass(Duration::from_millis(100));
        cluster.run_until_idle();
    }
    assert_eq!((cluster.newest(0), cluster.newest(1)), (Some(5), Some(5)));
    assert_eq!(cluster.holders().len(), 1);
}

#[test]
fn states_reach_all_nodes() {
    let mut cluster = Cluster::new(2, 1);
    (0..2).for_each(|index| cluster.want(index, true));
    cluster.run_until_idle();
    for state in [FeedState::Stale, FeedState::Live, FeedState::Complete, FeedState::NotFound] {
        let update = FeedUpdate::State { state, reason: "a reason".into() };
        let own = cluster.nodes[0].feeds.handle_update(cluster.now, &key(), update.clone());
        assert_eq!(own, Some(update));
        cluster.collect(0);
        cluster.run_until_idle();
        assert_eq!(cluster.nodes[1].state, Some(state));
    }
}

#[test]
fn a_version_whose_outcome_is_unknown_is_stored_again() {
    let mut cluster = Cluster::new(2, 1);
    (0..2).for_each(|index| cluster.want(index, true));
    cluster.run_until_idle();
    cluster.upstream = 2;
    cluster.fetch(0);
    cluster.is_up = false;
    cluster.answer();
    cluster.is_up = true;
    cluster.pass(RETRY_DELAY);
    cluster.run_until_idle();
    assert_eq!((cluster.newest(0), cluster.newest(1)), (Some(2), Some(2)));
}

/// Subscribers come and go, nodes lose their connection, the engine is away, answers late or forgets everything. After the
/// faults, every node with subscribers shows what the upstream has, and never did a feed go back.
#[test]
fn feeds_survive_faults_and_never_go_back() {
    for seed in 0..2_000 {
        let mut cluster = Cluster::new(4, seed);
        for step in 0..300 {
            let index = cluster.random.usize(..cluster.nodes.len());
            let action = cluster.random.u32(..24);
            match action {
                0..=3 => cluster.upstream += 1,
                4 | 5 => cluster.want(index, true),
                6 => cluster.want(index, false),
                7 if cluster.nodes[index].is_connected => cluster.disconnect(index),
                7 | 8 => cluster.connect(index),
                9 => cluster.is_up = !cluster.is_up,
                10 if step % 7 == 0 => cluster.bus.forget(),
                11..=14 => cluster.fetch(index),
                15..=20 => cluster.answer(),
                _ => {
                    let ms = cluster.random.u64(..1500);
                    cluster.pass(Duration::from_millis(ms));
                }
            }
        }
        cluster.is_up = true;
        (0..4).for_each(|index| cluster.connect(index));
        for _ in 0..150 {
            cluster.pass(Duration::from_millis(100));
            cluster.run_until_idle();
        }
        cluster.upstream += 1;
        cluster.run_until_idle();
        let expect = cluster.nodes.iter().any(|node| node.wanted).then_some(cluster.upstream);
        for node in cluster.nodes.iter().filter(|node| node.wanted) {
            check_order(&node.shown);
            assert_eq!(node.shown.last().map(|(_, version)| *version), expect, "seed {seed}");
            assert_eq!(node.state, Some(FeedState::Live), "seed {seed}");
        }
        assert!(cluster.holders().len() <= 1, "seed {seed}");
        assert_eq!(cluster.nodes.iter().map(|node| node.feeds.asked.len()).sum::<usize>(), 0, "seed {seed}");
    }
}
