//! Nodes that share feeds, over an engine in memory that may lose messages, be unreachable, or start again without
//! its data.

mod clients;
mod cold_keys;
mod failovers;
mod leases;
mod memory;
mod pushes;

use super::*;
use crate::engine::memory::Bus;
use crate::engine::{EngineError, Event};
use crate::frame::Frames;
use crate::simulation::simulate;
use bytes::Bytes;
use clients::{Client, Whole, hub};
use pushes::History;
use std::collections::HashSet;
use stentor_hub::{Hub, Patch, SessionId, Topic};
use stentor_ports::{DocumentChange, Ledger};

const IDLE_TTL: Duration = Duration::from_secs(2);

fn frames(node: u64) -> Frames {
    Frames::new(NodeId(node), None, 1 << 20)
}

fn cold_keys(keys_max: usize) -> ColdKeys {
    ColdKeys::new(keys_max, Arc::new(Ledger::new(usize::MAX)))
}

fn key() -> Key {
    Key::parse("game/1").expect("a key")
}

/// A feed whose documents are pushed.
fn pushed() -> Key {
    Key::parse("pushed/1").expect("a key")
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

/// A feed as the control plane and the subscribers of a node see it.
#[derive(Default)]
struct View {
    is_fetching: bool,
    /// The last document that the control plane has given.
    fetched: Option<Document>,
    wanted: bool,
    /// Positions and versions received since the node has had subscribers.
    shown: Vec<(Position, u64)>,
    state: Option<FeedState>,
}

/// One node: its machine, and the feeds [`key`] and [`pushed`].
struct Node {
    id: NodeId,
    feeds: Feeds,
    frames: Frames,
    view: View,
    pushed: View,
    is_connected: bool,
    answers: Vec<(u64, PushAnswer)>,
    /// Hub with the clients of [`key`], and with `resident`, which is there while the node has subscribers.
    hub: Hub<Whole>,
    resident: Option<SessionId>,
}

impl Node {
    fn new(id: u64) -> Self {
        let source = |key: &Key| if *key == pushed() { FeedSource::Pushed } else { FeedSource::Fetched };
        Self {
            id: NodeId(id),
            feeds: Feeds::new(frames(id), Arc::new(source), IDLE_TTL, cold_keys(1_000_000)),
            frames: frames(id),
            view: View::default(),
            pushed: View::default(),
            is_connected: true,
            answers: Vec::new(),
            hub: hub(),
            resident: None,
        }
    }

    /// Handles a frame of another node.
    fn handle(
        &mut self,
        now: Instant,
        sender: NodeId,
        channel: Channel,
        position: Option<Position>,
        frame: Frame,
    ) {
        match (frame, channel) {
            (Frame::Feed(entry), Channel::Topic(Topic::Feed(key))) => {
                self.feeds.handle_entry(now, sender, &key, position, &entry);
            }
            (Frame::Released(term), Channel::Topic(Topic::Feed(key))) => {
                self.feeds.handle_released(now, &key, term);
            }
            (Frame::Alive, _) => self.feeds.handle_alive(now, sender),
            _ => {}
        }
    }

    fn view(&mut self, key: &Key) -> &mut View {
        if *key == pushed() { &mut self.pushed } else { &mut self.view }
    }
}

struct Cluster {
    now: Instant,
    bus: Bus,
    nodes: Vec<Node>,
    /// The newest version of the upstream.
    upstream: u64,
    /// Number of frames about feeds that nodes have published.
    published: usize,
    /// Requests on their way, each with the index of its node.
    requests: VecDeque<(usize, Ticket, Request)>,
    /// `true` if the engine answers.
    is_up: bool,
    /// `true` if the engine has no memory for leases and versions.
    is_full: bool,
    /// `true` if an entry may arrive after entries that were stored later.
    is_unordered: bool,
    /// Events that arrive later.
    late: Vec<(NodeId, Event)>,
    clients: Vec<Client>,
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
            published: 0,
            requests: VecDeque::new(),
            is_up: true,
            is_full: false,
            is_unordered: false,
            late: Vec::new(),
            clients: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Creates nodes, of which the first `following` have subscribers of [`key`].
    fn following(nodes: u64, following: usize) -> Self {
        let mut cluster = Self::new(nodes, 1);
        (0..following).for_each(|index| cluster.want(index, true));
        cluster.run_until_idle();
        cluster
    }

    fn want(&mut self, node: usize, wanted: bool) {
        self.want_key(node, &key(), wanted);
    }

    fn want_key(&mut self, index: usize, key: &Key, wanted: bool) {
        let node = &mut self.nodes[index];
        if std::mem::replace(&mut node.view(key).wanted, wanted) == wanted {
            return;
        }
        node.view(key).shown.clear();
        node.view(key).state = None;
        if *key != pushed() {
            node.resident(wanted);
        }
        self.bus.set_interest(node.id, Channel::from(key.clone()), wanted);
        let wanted = KeyInterest { key: key.clone(), wanted, requesters: Vec::new() };
        let is_wanted = wanted.wanted;
        node.feeds.handle_wanted(self.now, wanted);
        self.collect(index);
        if !is_wanted && *key != pushed() {
            self.leave(index);
        }
    }

    /// Carries out the outputs of a node's machine.
    fn collect(&mut self, index: usize) {
        while let Some(output) = self.nodes[index].feeds.poll_output() {
            let node = &mut self.nodes[index];
            match output {
                Output::Request(ticket, request) => self.requests.push_back((index, ticket, request)),
                Output::Publish(channel, payload) => {
                    if self.is_up && node.is_connected {
                        self.published += usize::from(matches!(channel, Channel::Topic(_)));
                        self.bus.publish(&channel, &payload);
                    }
                }
                Output::Control(wanted) => {
                    assert_eq!(wanted.key, key(), "nobody fetches what is pushed");
                    node.view.is_fetching = wanted.wanted;
                    node.view.fetched = None;
                }
                Output::Plane(key, update) => {
                    if key != pushed() {
                        node.update_hub(&key, update.clone());
                    }
                    let view = node.view(&key);
                    match update {
                        FeedUpdate::At { position, document, patches } => {
                            assert!(view.wanted, "nobody has subscribed to it");
                            check_patches(&patches);
                            view.state = Some(FeedState::Live);
                            view.shown.push((position, version_of(&document)));
                        }
                        FeedUpdate::State { state, .. } => view.state = Some(state),
                        FeedUpdate::Forget => view.shown.clear(),
                        FeedUpdate::Confirmed(_) => {}
                        other => panic!("unexpected: {other:?}"),
                    }
                }
                Output::Pushed(id, answer) => node.answers.push((id, answer)),
                Output::Refused(error) => panic!("a frame of the log was refused: {error}"),
            }
        }
    }

    /// A node that fetches publishes the upstream's version.
    fn fetch(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if !node.view.is_fetching {
            return;
        }
        let new = document(self.upstream);
        if node.view.fetched.as_ref() == Some(&new) {
            return;
        }
        let before = node.view.fetched.replace(new.clone());
        let update = match before {
            Some(before) => {
                let patch = Patch { base: before.body, operations: Bytes::from_static(b"[]") };
                FeedUpdate::Changed(DocumentChange { document: new.into(), patch: Some(patch) })
            }
            None => FeedUpdate::Changed(new.into()),
        };
        let passed_on = node.feeds.handle_update(self.now, &key(), update);
        assert!(passed_on.is_none(), "who fetches holds the lease");
        self.collect(index);
    }

    /// Answers the oldest request.
    fn answer(&mut self) {
        let Some((index, ticket, request)) = self.requests.pop_front() else { return };
        self.answer_one(index, ticket, request);
        self.collect(index);
        self.deliver();
    }

    fn answer_one(&mut self, index: usize, ticket: Ticket, request: Request) {
        let reply = if !self.is_up || !self.nodes[index].is_connected {
            Err(EngineError::Unavailable("away".into()))
        } else if self.is_full
            && matches!(request, Request::AcquireLease { .. } | Request::StoreVersion { .. })
        {
            Err(EngineError::Refused("out of memory".into()))
        } else {
            self.bus.handle_request(self.now, request)
        };
        self.nodes[index].feeds.handle_reply(self.now, ticket, reply, |_| true);
    }

    /// Delivers frames. Frames of a node may arrive after later ones of other nodes.
    fn deliver(&mut self) {
        let mut arrived: VecDeque<_> = self.late.drain(..).collect();
        let mut held = HashSet::new();
        loop {
            arrived.extend(std::iter::from_fn(|| self.bus.poll_delivery()));
            let Some((id, event)) = arrived.pop_front() else { return };
            let Some(index) = self.nodes.iter().position(|node| node.id == id) else { continue };
            let Event::Message { channel, position, payload } = &event else { continue };
            let Ok((sender, frame)) = self.nodes[index].frames.decode(channel, payload) else { continue };
            if sender == id || !self.nodes[index].is_connected {
                continue;
            }
            if self.is_unordered && (held.contains(&(id, sender)) || self.random.u32(..4) == 0) {
                held.insert((id, sender));
                self.late.push((id, event));
                continue;
            }
            self.nodes[index].handle(self.now, sender, channel.clone(), *position, frame);
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

    /// Runs all steps for which no time must pass.
    fn run_until_idle(&mut self) {
        loop {
            (0..self.nodes.len()).for_each(|index| self.fetch(index));
            self.deliver();
            self.take();
            if self.requests.is_empty() && self.late.is_empty() {
                return;
            }
            self.answer();
        }
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.pass(Duration::from_millis(100));
            self.run_until_idle();
        }
    }

    /// The node that fetches begins to shut down. Checks that another node fetches, if any has subscribers.
    #[track_caller]
    fn leave_feeds(&mut self, holder: usize) {
        self.nodes[holder].feeds.handle_leaving(self.now);
        self.collect(holder);
        self.upstream += 1;
        let has_others = (0..self.nodes.len()).any(|index| index != holder && self.nodes[index].view.wanted);
        self.run_for(Duration::from_millis(if has_others { 400 } else { 1_200 }));
        assert_eq!(self.holders() == [holder], !has_others && self.nodes[holder].view.wanted);
        self.check_newest(self.upstream);
    }

    fn holders(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|index| self.nodes[*index].view.is_fetching).collect()
    }

    fn newest(&self, index: usize) -> Option<u64> {
        self.nodes[index].view.shown.last().map(|(_, version)| *version)
    }

    /// Checks that all nodes with subscribers show this version.
    #[track_caller]
    fn check_newest(&self, expected: u64) {
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.view.wanted) {
            check_order(&node.view.shown);
            assert_eq!(self.newest(index), Some(expected), "node {index}");
        }
    }

    /// Passes news of [`key`] from a node's control plane to its machine.
    fn update(&mut self, index: usize, update: FeedUpdate) -> Option<FeedUpdate> {
        let own = self.nodes[index].feeds.handle_update(self.now, &key(), update);
        self.collect(index);
        self.run_until_idle();
        own
    }

    /// Kills a node without notice, and returns it. A new node takes its index.
    fn kill(&mut self, index: usize) -> Node {
        let dead = std::mem::replace(&mut self.nodes[index], Node::new(9));
        self.bus.disconnect(dead.id);
        dead
    }

    /// The answer to a node's request is lost.
    fn lose_answer(&mut self, index: usize, ticket: Ticket) {
        let lost = Err(EngineError::Unavailable("away".into()));
        self.nodes[index].feeds.handle_reply(self.now, ticket, lost, |_| true);
        self.collect(index);
    }

    fn connect(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.is_connected = true;
        self.bus.connect(node.id);
        for key in [key(), pushed()] {
            self.bus.set_interest(node.id, Channel::from(key.clone()), node.view(&key).wanted);
        }
        node.feeds.handle_connected(self.now);
        self.collect(index);
    }

    /// The other server becomes the primary. Nodes lose their connections, and some connect again at once.
    fn change_primary(&mut self) {
        let Self { nodes, random, .. } = self;
        let connected = (0..nodes.len()).filter(|index| nodes[*index].is_connected && random.u32(..4) > 0);
        let connected: Vec<usize> = connected.collect();
        self.change_primary_for(&connected);
    }

    /// The other server becomes the primary. The nodes `connected` connect to it at once.
    fn change_primary_for(&mut self, connected: &[usize]) {
        self.bus.change_primary();
        // Terms grow with the servers' clocks.
        self.now += Duration::from_millis(1);
        (0..self.nodes.len()).for_each(|index| self.disconnect(index));
        connected.iter().for_each(|index| self.connect(*index));
    }

    fn disconnect(&mut self, index: usize) {
        self.nodes[index].is_connected = false;
        self.bus.disconnect(self.nodes[index].id);
    }
}

fn check_patches(patches: &[Bytes]) {
    assert!(patches.iter().all(|patch| &patch[..] == b"[]"));
}

fn state(state: FeedState) -> FeedUpdate {
    FeedUpdate::State { state, reason: "a reason".into() }
}

/// Number of epochs of the shown versions.
fn epochs(shown: &[(Position, u64)]) -> usize {
    shown.iter().map(|(position, _)| position.epoch.0).collect::<BTreeSet<_>>().len()
}

/// Checks that positions only grow within an epoch, and that a replaced epoch doesn't return.
#[track_caller]
fn check_positions(shown: &[(Position, u64)]) {
    let mut runs: Vec<Epoch> = shown.iter().map(|(position, _)| position.epoch).collect();
    runs.dedup();
    assert_eq!(runs.len(), epochs(shown), "an epoch returned: {shown:?}");
    let is_before =
        |pair: &[(Position, u64)]| pair[0].0.epoch != pair[1].0.epoch || pair[0].0.offset < pair[1].0.offset;
    assert!(shown.windows(2).all(is_before), "{shown:?}");
}

/// Checks positions, and that versions don't decrease.
#[track_caller]
fn check_order(shown: &[(Position, u64)]) {
    check_positions(shown);
    assert!(shown.is_sorted_by_key(|(_, version)| version), "a feed went back: {shown:?}");
}

#[test]
fn one_node_fetches_and_all_follow() {
    let mut cluster = Cluster::following(3, 3);
    assert_eq!(cluster.holders(), [0]);
    for version in 2..200 {
        cluster.upstream = version;
        cluster.run_until_idle();
        cluster.pass(Duration::from_millis(200));
        cluster.check_newest(version);
    }
    assert_eq!(cluster.holders(), [0], "the lease is renewed");
    assert_eq!(epochs(&cluster.nodes[2].view.shown), 1);
    assert_eq!(cluster.nodes.iter().map(|node| node.feeds.stats().resyncs).sum::<u64>(), 0);
}

#[test]
fn a_node_that_joins_late_has_the_newest_version_at_once_in_the_same_epoch() {
    let mut cluster = Cluster::following(2, 1);
    for version in 2..80 {
        cluster.upstream = version;
        cluster.run_until_idle();
    }
    cluster.want(1, true);
    cluster.run_until_idle();
    assert_eq!(cluster.nodes[1].view.shown.last(), cluster.nodes[0].view.shown.last());
    cluster.upstream = 100;
    cluster.run_until_idle();
    assert_eq!(cluster.nodes[1].view.shown.last(), cluster.nodes[0].view.shown.last());
    assert_eq!(cluster.newest(1), Some(100));
}

#[test]
fn a_holder_without_subscribers_lets_another_node_fetch() {
    let mut cluster = Cluster::following(2, 2);
    cluster.want(0, false);
    cluster.run_until_idle();
    // The holder continues to fetch for `IDLE_TTL`, because its subscribers may return.
    cluster.upstream = 2;
    cluster.run_for(IDLE_TTL / 2);
    assert_eq!((cluster.holders(), cluster.newest(1)), (vec![0], Some(2)));
    cluster.want(0, true);
    assert_eq!(cluster.newest(0), Some(2), "at once");
    cluster.run_for(IDLE_TTL);
    assert_eq!(cluster.holders(), [0]);
    cluster.want(0, false);
    cluster.run_for(IDLE_TTL);
    assert_eq!(cluster.holders(), [0_usize; 0]);
    cluster.upstream = 3;
    // The other node doesn't wait until the lease expires.
    cluster.run_for(Duration::from_millis(500));
    assert_eq!((cluster.holders(), cluster.newest(1)), (vec![1], Some(3)));
    check_order(&cluster.nodes[1].view.shown);
}

#[test]
fn a_feed_whose_lease_was_lost_without_subscribers_is_shown_to_the_next_one() {
    let mut cluster = Cluster::new(2, 1);
    cluster.want(0, true);
    cluster.run_for(IDLE_TTL / 2);
    cluster.want(0, false);
    cluster.bus.forget();
    cluster.want(1, true);
    cluster.run_for(RENEW_INTERVAL - IDLE_TTL / 2 + Duration::from_millis(200));
    assert_eq!((cluster.holders(), cluster.nodes[0].feeds.stats().lost_leases), (vec![1], 1));
    cluster.want(0, true);
    cluster.run_until_idle();
    assert_eq!((cluster.newest(0), cluster.newest(1)), (Some(1), Some(1)));
}

#[test]
fn a_dead_holder_is_followed_by_another_within_its_lease() {
    let mut cluster = Cluster::following(2, 2);
    let mut dead = cluster.kill(0);
    cluster.upstream = 2;
    cluster.run_for(LEASE_TTL + ACQUIRE_INTERVAL * 2);
    assert_eq!((cluster.holders(), cluster.newest(1)), (vec![1], Some(2)));
    // The dead node was only suspended. When it resumes, it must not store anything.
    dead.view.is_fetching = true;
    dead.feeds.handle_timeout(cluster.now);
    let outputs: Vec<_> = std::iter::from_fn(|| dead.feeds.poll_output()).collect();
    let stops =
        outputs.iter().any(|output| matches!(output, Output::Control(KeyInterest { wanted: false, .. })));
    assert!(stops, "{outputs:?}");
}

#[test]
fn without_the_engine_subscribers_learn_that_the_feed_is_stale() {
    let mut cluster = Cluster::following(2, 2);
    cluster.is_up = false;
    cluster.run_for(Duration::from_secs(8));
    assert_eq!((cluster.holders(), cluster.nodes[0].view.state), (vec![], Some(FeedState::Stale)));
    cluster.is_up = true;
    cluster.upstream = 5;
    cluster.run_for(Duration::from_secs(8));
    cluster.check_newest(5);
    assert_eq!(cluster.holders().len(), 1);
}

/// The control plane may have been fetching when the lease was lost.
#[test]
fn fetches_of_a_follower_have_no_effect() {
    let mut cluster = Cluster::following(2, 2);
    assert_eq!(cluster.update(1, FeedUpdate::Changed(document(7).into())), None);
    cluster.check_newest(1);
}

/// Nodes with subscribers receive the state; a node that joins late reads it from the log.
#[test]
fn states_reach_all_nodes() {
    let mut cluster = Cluster::following(3, 2);
    for expected in [FeedState::Stale, FeedState::Live, FeedState::Complete, FeedState::NotFound] {
        assert_eq!(cluster.update(0, state(expected)), Some(state(expected)));
        assert_eq!(cluster.nodes[1].view.state, Some(expected));
        if expected != FeedState::NotFound {
            cluster.want(2, true);
            cluster.run_until_idle();
            assert_eq!((cluster.newest(2), cluster.nodes[2].view.state), (Some(1), Some(expected)));
            cluster.want(2, false);
            cluster.run_until_idle();
            cluster.nodes[2] = Node::new(7);
            cluster.bus.connect(NodeId(7));
        }
    }
}

#[test]
fn a_version_whose_outcome_is_unknown_is_stored_again() {
    let mut cluster = Cluster::following(2, 2);
    cluster.upstream = 2;
    cluster.fetch(0);
    cluster.is_up = false;
    cluster.answer();
    cluster.is_up = true;
    cluster.pass(RETRY_DELAY);
    cluster.run_until_idle();
    cluster.check_newest(2);
}

#[test]
fn a_version_that_the_engine_refuses_is_stored_again_after_a_delay() {
    let mut cluster = Cluster::following(2, 2);
    cluster.is_full = true;
    cluster.upstream = 2;
    cluster.fetch(0);
    // The change is refused, the log is read, and the change is refused again.
    let mut answered = 0;
    while !cluster.requests.is_empty() && answered < 100 {
        cluster.answer();
        answered += 1;
    }
    assert_eq!(answered, 3);
    let requests = |cluster: &Cluster| cluster.nodes[0].feeds.stats().requests;
    let before = requests(&cluster);
    assert_eq!(cluster.published, 1);
    cluster.run_for(10 * RETRY_DELAY);
    assert!(cluster.published <= 1 + 10 / RENEW_INTERVAL.as_secs() as usize, "{}", cluster.published);
    let (reads_and_stores, renewals) = (2 * 10, 10 / RENEW_INTERVAL.as_secs());
    assert!(requests(&cluster) - before <= reads_and_stores + renewals);
    assert_eq!((cluster.holders(), cluster.newest(1)), (vec![0], Some(1)));
    let states = |cluster: &Cluster| [0, 1].map(|index| cluster.nodes[index].view.state);
    assert_eq!(states(&cluster), [Some(FeedState::Stale); 2]);
    assert!((10..=12).contains(&cluster.nodes[0].feeds.stats().refused_entries));
    cluster.is_full = false;
    cluster.run_for(RETRY_DELAY);
    cluster.check_newest(2);
    assert!(!states(&cluster).contains(&Some(FeedState::Stale)));
}

#[test]
fn a_document_that_is_gone_is_not_shown_to_a_node_that_joins_late() {
    let mut cluster = Cluster::following(2, 1);
    cluster.update(0, state(FeedState::NotFound));
    cluster.want(0, false);
    cluster.run_for(IDLE_TTL);
    cluster.run_until_idle();
    cluster.want(1, true);
    cluster.answer();
    assert_eq!(
        (cluster.newest(1), cluster.nodes[1].view.state),
        (None, None),
        "whether it is there is to be seen"
    );
    cluster.upstream = 2;
    cluster.run_until_idle();
    assert_eq!((cluster.newest(1), cluster.nodes[1].view.state), (Some(2), Some(FeedState::Live)));
}

/// Subscribers join and leave, backends push, nodes lose their connections, and the engine is unreachable, answers
/// late, or loses its data. After the faults, every node with subscribers shows the upstream's version, or the
/// version that was pushed last. All nodes show the same version at one position, and no feed goes back. Then the
/// node that fetches shuts down: another one fetches half a second later, or the same node again if no other has
/// subscribers.
#[test]
fn feeds_survive_faults_and_never_go_back() {
    simulate(0..2_000, 400, |run| {
        let seed = run.seed;
        let mut cluster = Cluster::new(4, seed);
        cluster.clients.extend((0..4).map(|n| Client::new(n > 1)));
        // Entries arrive out of order as with NATS, which has no replica that lags.
        cluster.is_unordered = seed % 4 == 3 && seed % 3 != 0;
        let mut history = History::default();
        for step in run.steps.clone() {
            cluster.random = run.random(step);
            let index = cluster.random.usize(..cluster.nodes.len());
            match cluster.random.u32(..34) {
                0..=3 => {
                    cluster.upstream += 1;
                    run.note(step, format!("the upstream has version {}", cluster.upstream));
                }
                4 | 5 => {
                    run.note(step, format!("node {index} has subscribers"));
                    cluster.want(index, true);
                }
                6 => {
                    run.note(step, format!("node {index} has no subscribers"));
                    cluster.want(index, false);
                }
                7 if cluster.nodes[index].is_connected => {
                    run.note(step, format!("node {index} loses its connection"));
                    cluster.disconnect(index);
                }
                7 | 8 => {
                    run.note(step, format!("node {index} is connected"));
                    cluster.connect(index);
                }
                9 => {
                    cluster.is_up = !cluster.is_up;
                    run.note(step, if cluster.is_up { "the engine answers" } else { "the engine is away" });
                }
                10 if step % 7 == 0 && seed % 2 == 0 => {
                    run.note(step, "the engine forgets everything");
                    cluster.bus.forget();
                    history.is_lossy = true;
                }
                10 if step % 7 == 1 => {
                    run.note(step, "the replica has everything");
                    cluster.bus.replicate();
                }
                10 if step % 7 > 4 && seed % 3 == 0 => {
                    run.note(step, "the replica becomes the primary");
                    cluster.bus.fail_over();
                    history.is_lossy = true;
                }
                33 if step % 3 == 0 && seed % 3 == 0 => {
                    run.note(step, "the other server becomes the primary");
                    cluster.change_primary();
                    history.is_lossy = true;
                }
                11..=14 => {
                    run.note(step, format!("node {index} fetches, if it is to"));
                    cluster.fetch(index);
                }
                15..=22 => {
                    let asked = cluster.requests.front().map(|(index, _, request)| (index, request));
                    run.note(step, format!("the engine answers the first of {asked:?}"));
                    cluster.answer();
                }
                23 => {
                    run.note(step, format!("node {index} has subscribers of the pushed feed"));
                    cluster.want_key(index, &pushed(), true);
                }
                24 if step % 2 == 0 => {
                    run.note(step, format!("node {index} has no subscribers of the pushed feed"));
                    cluster.want_key(index, &pushed(), false);
                }
                24..=26 => {
                    run.note(step, format!("a document is pushed to node {index}"));
                    history.push(&mut cluster, index);
                }
                27..=29 => {
                    let client = cluster.random.usize(..cluster.clients.len());
                    run.note(step, format!("client {client} moves to node {index}"));
                    cluster.move_client(client, Some(index));
                }
                _ => {
                    let ms = cluster.random.u64(..1500);
                    run.note(step, format!("{ms} ms pass"));
                    cluster.pass(Duration::from_millis(ms));
                }
            }
            history.note(&mut cluster);
            cluster.take();
        }
        cluster.is_up = true;
        (0..4).for_each(|index| cluster.connect(index));
        cluster.run_for(Duration::from_secs(15));
        cluster.upstream += 1;
        cluster.run_until_idle();
        history.note(&mut cluster);
        cluster.check_newest(cluster.upstream);
        for node in cluster.nodes.iter().filter(|node| node.view.wanted) {
            assert_eq!(node.view.state, Some(FeedState::Live), "seed {seed}");
        }
        cluster.check_clients(cluster.upstream);
        history.check(&cluster, seed);
        assert!(cluster.holders().len() <= 1, "seed {seed}");
        cluster.holders().into_iter().for_each(|holder| cluster.leave_feeds(holder));
        assert_eq!(
            cluster.nodes.iter().map(|node| node.feeds.requests.asked.len()).sum::<usize>(),
            0,
            "seed {seed}"
        );
    });
}
