//! Presence of rooms, compared with the actual memberships.

use crate::model::rig::Random;
use crate::node::{Node, room};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::{
    Absence, MemberId, MembersPage, OutgoingPresence, Policy, PresenceChange, PresenceMessage,
    PresenceNotice, PresenceOptions, RecoveryLimits, Room, RoomMember, SessionId, Topic, User,
};

const CORES: usize = 3;
const MS: Duration = Duration::from_millis(1);
const GRACE: Duration = Duration::from_secs(5);

fn options(has_other_nodes: bool) -> PresenceOptions {
    PresenceOptions {
        rooms: vec!["chat".to_owned()],
        members_max: 1_000,
        grace: GRACE,
        interval: 100 * MS,
        has_other_nodes,
    }
}

/// A client that watches a room by the rules of docs/protocol.md.
#[derive(Default)]
struct Watcher {
    members: BTreeSet<MemberId>,
    version: Option<u64>,
    count: usize,
    /// Number of ids in notices as joined. `leaves` and `replaced` count the other ids.
    joins: usize,
    leaves: usize,
    replaced: usize,
    notices: usize,
}

impl Watcher {
    fn page(&mut self, page: &MembersPage) {
        self.members = page.members.iter().map(|member| member.id).collect();
        (self.version, self.count) = (page.version, page.count);
        assert!(!page.has_more);
    }

    /// Applies a notice. Returns `true` if the client must read the members again.
    fn notice(&mut self, notice: &PresenceNotice) -> bool {
        let Some(version) = self.version else { return true };
        if notice.version <= version {
            return false;
        }
        assert_eq!(notice.version, version + 1, "no notice is missing");
        self.notices += 1;
        for member in &notice.joined {
            self.joins += 1;
            assert!(self.members.insert(member.id), "joined twice");
        }
        for (member, before) in &notice.replaced {
            self.replaced += 1;
            assert!(self.members.remove(before), "replaced nobody");
            assert!(self.members.insert(member.id), "joined twice");
        }
        for member in &notice.left {
            self.leaves += 1;
            assert!(self.members.remove(&member.id), "left twice");
        }
        (self.version, self.count) = (Some(notice.version), notice.count);
        notice.more > 0
    }
}

/// Nodes that share an engine, which may lose messages.
struct Cluster {
    nodes: Vec<Node>,
    wire: VecDeque<(usize, Option<u64>, OutgoingPresence)>,
    /// Members by node, core and session.
    records: BTreeMap<(usize, usize, u64), Arc<RoomMember>>,
    next: u32,
    room: Room,
    /// The watcher of each node, if it has one.
    watchers: Vec<Option<(usize, SessionId, Watcher)>>,
    loss_percent: usize,
    random: Random,
    /// Nodes that are cut off from the others.
    cut: BTreeSet<usize>,
    /// Number of messages that nodes have received, and of the versions that they list.
    received: usize,
    listed: usize,
}

impl Cluster {
    fn new(nodes: usize, seed: u64) -> Self {
        let node = |number| {
            Node::with(CORES, |hub| {
                hub.seed = [number as u64, 7];
                hub.presence = Some(options(nodes > 1));
                hub.recovery = Some(RecoveryLimits { bytes_max: 1 << 20, age_max: Duration::from_secs(600) });
            })
        };
        let mut nodes: Vec<Node> = (0..nodes).map(node).collect();
        let now = nodes[0].now;
        nodes.iter_mut().for_each(|node| node.now = now);
        Self {
            watchers: nodes.iter().map(|_| None).collect(),
            nodes,
            wire: VecDeque::new(),
            records: BTreeMap::new(),
            next: 0,
            room: room("chat"),
            loss_percent: 0,
            random: Random::new(seed),
            cut: BTreeSet::new(),
            received: 0,
            listed: 0,
        }
    }

    fn open(&mut self, node: usize, core: usize, user: Option<usize>) -> SessionId {
        let session = self.nodes[node].open(core);
        self.next += 1;
        let mut id = [0; 15];
        id[..4].copy_from_slice(&self.next.to_be_bytes());
        let user = user.map(|user| User { issuer: "i".into(), subject: format!("u{user}").into() });
        let member =
            RoomMember { id: MemberId(id), user, info: Some("{}".into()), since_ms: self.next.into() };
        self.records.insert((node, core, session.to_bits()), Arc::new(member));
        session
    }

    fn id(&self, node: usize, core: usize, session: SessionId) -> MemberId {
        self.records[&(node, core, session.to_bits())].id
    }

    fn join(&mut self, node: usize, core: usize, session: SessionId) {
        let topic = Topic::Room(self.room.clone());
        self.nodes[node].hubs[core].handle_subscribe(session, &topic, Policy::Queue, None).unwrap();
    }

    fn leave(&mut self, node: usize, core: usize, session: SessionId) {
        let topic = Topic::Room(self.room.clone());
        self.nodes[node].hubs[core].handle_unsubscribe(session, &topic);
    }

    fn watch(&mut self, node: usize, core: usize) {
        let session = self.nodes[node].open(core);
        let topic = Topic::Presence(self.room.clone());
        self.nodes[node].hubs[core].handle_subscribe(session, &topic, Policy::Queue, None).unwrap();
        self.watchers[node] = Some((core, session, Watcher::default()));
        self.run_until_idle(node);
        self.read(node);
    }

    fn list(&mut self, node: usize, for_watcher: bool) -> MembersPage {
        let now = self.nodes[node].now;
        let home = self.nodes[node].hubs[0].presence_core(&self.room);
        self.nodes[node].hubs[home].present_members(now, &self.room, None, 1_000, for_watcher)
    }

    /// Reads the members as a node's watcher.
    fn read(&mut self, node: usize) {
        let page = self.list(node, true);
        if let Some((_, _, watcher)) = &mut self.watchers[node] {
            watcher.page(&page);
        }
    }

    /// Carries out a node's due actions.
    fn run_until_idle(&mut self, node: usize) {
        let now = self.nodes[node].now;
        loop {
            let mut busy = false;
            for core in 0..CORES {
                let hub = &mut self.nodes[node].hubs[core];
                for change in hub.take_membership_changes() {
                    busy = true;
                    let member = &self.records[&(node, core, change.session.to_bits())];
                    let presence = match change.absence {
                        None => PresenceChange::Joined(member.clone()),
                        Some(absence) => PresenceChange::Left(member.id, absence),
                    };
                    hub.handle_presence(now, change.room, presence);
                }
                hub.handle_time(now);
                hub.handle_presence_time(now);
                // `presence_stats` checks its sums in tests.
                if self.random.below(20) == 0 {
                    let _ = hub.presence_stats();
                }
                while let Some(message) = hub.poll_presence_message() {
                    busy = true;
                    let lost = self.random.below(100) < self.loss_percent;
                    if !lost {
                        self.wire.push_back((node, message.to, message));
                    }
                }
                while let Some(notice) = hub.poll_presence_notice() {
                    busy = true;
                    hub.publish_presence(now, &notice.room.clone(), Bytes::from_static(b"notice"));
                    let again = self.watchers[node].as_mut().is_some_and(|(_, _, w)| w.notice(&notice));
                    if again {
                        let home = hub.presence_core(&self.room);
                        assert_eq!(home, core);
                        let page = hub.present_members(now, &self.room, None, 1_000, true);
                        if let Some((_, _, watcher)) = &mut self.watchers[node] {
                            watcher.page(&page);
                        }
                    }
                }
            }
            self.nodes[node].run_until_idle();
            if !busy {
                return;
            }
        }
    }

    /// Delivers messages between nodes until none is left.
    fn exchange(&mut self) {
        for node in 0..self.nodes.len() {
            self.run_until_idle(node);
        }
        while let Some((from, to, OutgoingPresence { room, message, .. })) = self.wire.pop_front() {
            for node in 0..self.nodes.len() {
                let is_for = to.is_none_or(|to| to == node as u64 + 1);
                if node == from || !is_for || self.cut.contains(&node) != self.cut.contains(&from) {
                    continue;
                }
                let mut message = message.clone();
                self.received += 1;
                if let PresenceMessage::Watch { have } = &mut message {
                    self.listed += have.len();
                    have.iter_mut().filter(|(of, _)| *of == node as u64 + 1).for_each(|(of, _)| *of = 0);
                }
                let hub = &mut self.nodes[node];
                let (now, home) = (hub.now, hub.hubs[0].presence_core(&room));
                hub.hubs[home].handle_presence_message(now, &room, from as u64 + 1, message);
                self.run_until_idle(node);
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.nodes[0].now + time;
        while self.nodes[0].now < end {
            let step = 50 * MS;
            self.nodes.iter_mut().for_each(|node| node.now += step);
            self.exchange();
        }
    }

    /// Checks that every watcher knows exactly the members.
    fn check(&self, truth: &BTreeSet<MemberId>, context: &str) {
        for (node, watcher) in self.watchers.iter().enumerate() {
            let Some((_, _, watcher)) = watcher else { continue };
            assert_eq!(watcher.members, *truth, "{context}: node {node}");
            assert_eq!(watcher.count, truth.len(), "{context}: node {node}");
        }
    }
}

#[test]
fn every_watcher_knows_the_members_after_the_last_change() {
    for seed in 0..150 {
        run(seed);
    }
}

fn run(seed: u64) {
    let mut random = Random::new(seed ^ 0xabcd);
    let nodes = 1 + random.below(3);
    let mut cluster = Cluster::new(nodes, seed);
    let mut sessions: Vec<(usize, usize, SessionId, bool, bool)> = Vec::new();
    for node in 0..nodes {
        if node == 0 || random.below(3) > 0 {
            cluster.watch(node, random.below(CORES));
        }
    }
    cluster.loss_percent = [0, 0, 10, 50][random.below(4)];
    for _ in 0..150 {
        match random.below(10) {
            0..=3 => {
                let (node, core) = (random.below(nodes), random.below(CORES));
                let user = Some(random.below(6)).filter(|user| *user < 5);
                let session = cluster.open(node, core, user);
                cluster.join(node, core, session);
                sessions.push((node, core, session, true, false));
            }
            n if !sessions.is_empty() => {
                let at = random.below(sessions.len());
                let (node, core, session, joined, suspended) = &mut sessions[at];
                match n {
                    4 => {
                        cluster.nodes[*node].hubs[*core].handle_close(*session);
                        sessions.swap_remove(at);
                    }
                    5 => {
                        cluster.leave(*node, *core, *session);
                        *joined = false;
                    }
                    6 => {
                        cluster.join(*node, *core, *session);
                        *joined = true;
                    }
                    7 if !*suspended => {
                        *suspended = cluster.nodes[*node].hubs[*core].handle_suspend(*session);
                    }
                    8 if *suspended => {
                        *suspended = cluster.nodes[*node].hubs[*core].handle_resume(*session, None).is_err();
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        if random.below(4) == 0 {
            // Lists may be read at any time, whatever notices are pending.
            let node = random.below(nodes);
            cluster.run_until_idle(node);
            cluster.read(node);
        }
        if random.below(20) == 0 {
            // A watcher may subscribe at any time. It replaces the node's previous watcher, if there is one.
            let (node, core) = (random.below(nodes), random.below(CORES));
            if let Some((core, session, _)) = cluster.watchers[node].take() {
                cluster.nodes[node].hubs[core].handle_close(session);
            }
            cluster.watch(node, core);
        }
        if random.below(3) == 0 {
            cluster.pass(Duration::from_millis(random.below(700) as u64));
        }
        if nodes > 1 && random.below(40) == 0 {
            cluster.cut = if cluster.cut.is_empty() { [random.below(nodes)].into() } else { [].into() };
            cluster.pass(Duration::from_secs(random.below(50) as u64));
        }
    }
    cluster.loss_percent = 0;
    cluster.cut.clear();
    // A lost message is detected at the next `Watch`; a node that doesn't answer, after 25 s.
    cluster.pass(Duration::from_secs(60));
    let present = sessions.iter().filter(|(_, _, _, joined, suspended)| *joined && !suspended);
    let truth = present.map(|(node, core, session, ..)| (*node, cluster.id(*node, *core, *session)));
    let truth: Vec<_> = truth.collect();
    cluster.check(&truth.iter().map(|(_, id)| *id).collect(), &format!("seed {seed}"));
    for node in 0..nodes {
        let listed = cluster.list(node, false).members.into_iter().map(|member| member.id);
        let own = truth.iter().filter(|(at, _)| *at == node).map(|(_, id)| *id);
        assert_eq!(listed.collect::<BTreeSet<_>>(), own.collect(), "seed {seed}: members of node {node}");
    }
    for (node, core, session, ..) in sessions {
        cluster.nodes[node].hubs[core].handle_close(session);
    }
    cluster.pass(Duration::from_secs(60));
    cluster.check(&BTreeSet::new(), &format!("seed {seed}, in the end"));
    for node in &cluster.nodes {
        let members: usize = node.hubs.iter().map(|hub| hub.presence_stats().members).sum();
        assert_eq!(members, 0, "seed {seed}: nobody is remembered");
    }
}

#[test]
fn a_user_who_returns_within_the_grace_takes_the_place_of_the_old_session() {
    let mut cluster = Cluster::new(2, 1);
    cluster.watch(0, 0);
    let first = cluster.open(0, 1, Some(7));
    cluster.join(0, 1, first);
    cluster.pass(Duration::from_secs(1));
    cluster.nodes[0].hubs[1].handle_close(first);
    cluster.pass(GRACE - 500 * MS);
    // The user returns on another node.
    let second = cluster.open(1, 0, Some(7));
    cluster.join(1, 0, second);
    cluster.pass(GRACE * 2);
    let truth = [cluster.id(1, 0, second)].into();
    cluster.check(&truth, "returned");
    let watcher = &cluster.watchers[0].as_ref().unwrap().2;
    assert_eq!((watcher.joins, watcher.leaves, watcher.replaced), (1, 0, 1));
    // The user doesn't return this time.
    cluster.nodes[1].hubs[0].handle_close(second);
    cluster.pass(GRACE - 500 * MS);
    cluster.check(&truth, "within the grace");
    assert!(cluster.list(1, false).members.is_empty(), "members that are leaving aren't listed");
    cluster.pass(Duration::from_secs(1));
    cluster.check(&BTreeSet::new(), "after the grace");
}

#[test]
fn a_session_that_moves_to_another_node_stays() {
    let mut cluster = Cluster::new(3, 1);
    cluster.watch(0, 0);
    let before = cluster.open(1, 1, None);
    cluster.join(1, 1, before);
    cluster.pass(Duration::from_secs(1));
    let after = cluster.nodes[2].open(0);
    let member = cluster.records[&(1, 1, before.to_bits())].clone();
    cluster.records.insert((2, 0, after.to_bits()), member);
    cluster.join(2, 0, after);
    cluster.pass(Duration::from_secs(1));
    cluster.nodes[1].hubs[1].handle_close(before);
    cluster.pass(Duration::from_secs(20));
    cluster.check(&[cluster.id(1, 1, before)].into(), "moved");
    let watcher = &cluster.watchers[0].as_ref().unwrap().2;
    assert_eq!((watcher.joins, watcher.leaves, watcher.replaced), (1, 0, 0));
}

#[test]
fn anonymous_and_unsubscribing_sessions_leave_at_once() {
    let mut cluster = Cluster::new(1, 1);
    cluster.watch(0, 0);
    let anonymous = cluster.open(0, 1, None);
    let user = cluster.open(0, 2, Some(1));
    cluster.join(0, 1, anonymous);
    cluster.join(0, 2, user);
    cluster.pass(200 * MS);
    cluster.check(&[cluster.id(0, 1, anonymous), cluster.id(0, 2, user)].into(), "joined");
    cluster.nodes[0].hubs[1].handle_close(anonymous);
    cluster.leave(0, 2, user);
    cluster.pass(200 * MS);
    cluster.check(&BTreeSet::new(), "left");
}

#[test]
fn a_dead_nodes_members_leave() {
    let mut cluster = Cluster::new(3, 1);
    cluster.watch(0, 0);
    let session = cluster.open(1, 1, Some(1));
    cluster.join(1, 1, session);
    let other = cluster.open(2, 1, Some(2));
    cluster.join(2, 1, other);
    cluster.pass(Duration::from_secs(1));
    cluster.check(&[cluster.id(1, 1, session), cluster.id(2, 1, other)].into(), "both");
    // The registry reports the node of `session` as lost. The node of `other` stops answering.
    let now = cluster.nodes[0].now;
    cluster.cut = [0].into();
    cluster.nodes[0].hubs.iter_mut().for_each(|hub| hub.handle_lost_node(now, 2));
    cluster.pass(GRACE + 200 * MS);
    cluster.check(&[cluster.id(2, 1, other)].into(), "after the grace");
    cluster.pass(Duration::from_secs(40));
    cluster.check(&BTreeSet::new(), "after the silence");
}

#[test]
fn messages_about_a_watched_room_grow_with_its_nodes() {
    for nodes in [2, 4, 8, 64] {
        let mut cluster = Cluster::new(nodes, 1);
        let mut truth = BTreeSet::new();
        for node in 0..nodes {
            let session = cluster.open(node, 0, Some(node));
            truth.insert(cluster.id(node, 0, session));
            cluster.join(node, 0, session);
            cluster.watch(node, 0);
        }
        cluster.pass(Duration::from_secs(30));
        cluster.check(&truth, "joined");
        (cluster.received, cluster.listed) = (0, 0);
        cluster.pass(Duration::from_secs(60));
        // Per node and 10 s. If each node sent its list to all, these were twice the nodes, and the square of the nodes.
        let (received, listed) = (cluster.received / nodes / 6, cluster.listed / nodes / 6);
        assert!(
            received <= 12 && listed <= 3 * nodes,
            "{nodes} nodes: {received} messages, {listed} versions"
        );
        // A change still reaches all.
        let session = cluster.open(0, 0, None);
        truth.insert(cluster.id(0, 0, session));
        cluster.join(0, 0, session);
        cluster.pass(Duration::from_secs(1));
        cluster.check(&truth, "one more");
    }
}

#[test]
fn ten_thousand_joins_are_coalesced() {
    let mut cluster = Cluster::new(1, 1);
    cluster.watch(0, 0);
    for n in 0..10_000 {
        let session = cluster.open(0, n % CORES, Some(n));
        cluster.join(0, n % CORES, session);
        if n % 100 == 0 {
            cluster.pass(50 * MS);
        }
    }
    cluster.pass(Duration::from_secs(1));
    let (core, session, watcher) = cluster.watchers[0].as_ref().unwrap();
    let (core, session) = (*core, *session);
    assert_eq!(watcher.count, 10_000);
    assert_eq!(watcher.members.len(), 1_000, "others are counted only");
    // Watchers receive at most one notice per 100 ms.
    let notices = cluster.nodes[0].take(core, session).len();
    assert!((40..=60).contains(&notices), "{notices} notices in 6 s");
}

#[test]
fn a_list_skips_no_members() {
    let mut cluster = Cluster::new(1, 1);
    cluster.watch(0, 0);
    let open = |cluster: &mut Cluster, n: usize| (n % CORES, cluster.open(0, n % CORES, None));
    let sessions: Vec<_> = (0..10_000).map(|n| open(&mut cluster, n)).collect();
    sessions.iter().for_each(|(core, session)| cluster.join(0, *core, *session));
    cluster.pass(Duration::from_secs(1));
    let home = cluster.nodes[0].hubs[0].presence_core(&cluster.room);
    let list = |cluster: &mut Cluster, after, limit, for_watcher| {
        let node = &mut cluster.nodes[0];
        node.hubs[home].present_members(node.now, &cluster.room, after, limit, for_watcher)
    };
    for for_watcher in [true, false] {
        let page = list(&mut cluster, None, 1_000, for_watcher);
        assert_eq!((page.members.len(), page.has_more, page.count), (1_000, false, 10_000));
        assert!(page.visited <= 2_000, "{}", page.visited);
        let last = page.members.last().map(|member| member.id);
        assert_eq!(list(&mut cluster, last, 1_000, for_watcher).visited, 0, "9,000 follow");
        assert!(list(&mut cluster, None, 10, for_watcher).visited <= 21);
    }
    // All members leave before watchers are notified.
    sessions.iter().for_each(|(core, session)| cluster.leave(0, *core, *session));
    cluster.run_until_idle(0);
    let page = list(&mut cluster, None, 1_000, true);
    assert_eq!((page.members.len(), page.has_more), (1_000, false), "they are gone with the next notice");
    assert!(page.visited <= 2_000, "{}", page.visited);
    cluster.pass(Duration::from_secs(1));
    cluster.check(&BTreeSet::new(), "all have left");
}

#[test]
fn a_member_that_joins_and_leaves_in_a_loop_waits_once_per_room() {
    let mut node = Node::with(2, |hub| hub.presence = Some(options(false)));
    let session = node.open(0);
    for _ in 0..50 {
        for n in 0..1_000 {
            let room = Topic::Room(room(&format!("chat/{n}")));
            node.hubs[0].handle_subscribe(session, &room, Policy::Queue, None).unwrap();
            node.hubs[0].handle_unsubscribe(session, &room);
        }
    }
    assert_eq!(node.hubs[0].take_membership_changes(), [], "everything was undone");
    let room = room("chat/1");
    node.hubs[0].handle_subscribe(session, &room.clone().into(), Policy::Queue, None).unwrap();
    assert_eq!(node.hubs[0].take_membership_changes().len(), 1);
    node.hubs[0].handle_close(session);
    let changes = node.hubs[0].take_membership_changes();
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].absence, Some(Absence::Ended));
}

#[test]
fn rooms_without_presence_cost_nothing() {
    let mut node = Node::with(1, |hub| hub.presence = Some(options(false)));
    let session = node.open(0);
    let other = room("other");
    assert!(!node.hubs[0].has_presence(&other) && node.hubs[0].has_presence(&room("chat7")));
    node.hubs[0].handle_subscribe(session, &other.into(), Policy::Queue, None).unwrap();
    assert_eq!(node.hubs[0].take_membership_changes(), []);
}
