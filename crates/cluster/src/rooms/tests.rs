//! Rooms with history of several nodes on a simulated engine, against what the engine has really appended.

#[macro_use]
#[path = "../../../edge/tests/harness/ignore.rs"]
mod ignore;
mod clients;
mod driver;
mod model;

use super::*;
use crate::engine::memory::Bus;
use crate::engine::{Channel, Event};
use crate::simulation::simulate;
use model::{Member, Truth};
use std::collections::HashSet;
use stentor_hub::{Epoch, Key, Topic};

const START: Position = Position { epoch: Epoch::NONE, offset: 0 };
const KEEP: usize = 6;
const ROOMS: [&str; 2] = ["a", "b"];
/// Per node. Those with even numbers have tickets.
const PUBLISHERS: usize = 4;

fn limits() -> HistoryLimits {
    HistoryLimits { publications_max: KEEP, bytes_max: 1 << 20, age_max: Duration::from_secs(300) }
}

fn room(index: usize) -> Room {
    Room::plain(ROOMS[index]).expect("a room")
}

/// What nodes of the cluster send; anything else is a stranger's.
fn decode(_: &Room, payload: &Bytes) -> Option<Content> {
    payload.starts_with(b"m").then(|| Content {
        event: None,
        data: Data::Text(payload.clone()),
        except_rooms: Vec::new(),
        except_sessions: Vec::new(),
    })
}

/// How often each publisher of a node has published, and for which of its messages it waits.
#[derive(Clone, Copy, Default)]
struct Publisher {
    count: u64,
    waits: Option<(usize, u64)>,
}

/// An answer on its way: the number of messages in each room when it was made goes with it.
type Late = (u64, Result<Reply, EngineError>, Vec<usize>);

struct Node {
    id: NodeId,
    rooms: Rooms<(usize, usize, u64)>,
    members: [Option<Member>; ROOMS.len()],
    publishers: [Publisher; PUBLISHERS],
    requests: VecDeque<(u64, Request)>,
    answers: Vec<Late>,
    events: VecDeque<Event>,
    /// How many messages there were when the engine said that a room has none.
    empty_at: Vec<usize>,
    /// How many messages there were when a member came that waits for them.
    confirms: [Option<usize>; ROOMS.len()],
    is_connected: bool,
}

struct Cluster {
    now: Instant,
    bus: Bus,
    nodes: Vec<Node>,
    truth: [Truth; ROOMS.len()],
    is_up: bool,
    random: fastrand::Rng,
    refused: u64,
}

impl Cluster {
    /// As on Redis. Its epochs can be told from those of detours.
    fn begin_rooms_when_read(&mut self) {
        self.bus.begin_rooms_when_read();
        for _ in 0..3 {
            let key = stentor_hub::Key::parse("any").expect("a key");
            let draw = Request::AcquireLease { key, term_seen: 0, ttl: Duration::ZERO };
            self.bus.handle_request(self.now, draw).expect("an answer");
        }
    }

    fn new(nodes: u64, seed: u64) -> Self {
        let mut bus = Bus::default();
        let now = Instant::now();
        // The epochs by which the machine takes its detours are those that chance doesn't draw.
        for _ in 0..3 {
            let key = Key::parse("k").expect("a key");
            let lease = Request::AcquireLease { key, term_seen: 0, ttl: Duration::ZERO };
            bus.handle_request(now, lease).expect("a lease");
        }
        let node = |id| Node {
            id: NodeId(id),
            rooms: Rooms::new(NodeId(id), vec![(String::new(), limits())], Duration::from_secs(4)),
            members: Default::default(),
            publishers: Default::default(),
            requests: VecDeque::new(),
            answers: Vec::new(),
            events: VecDeque::new(),
            empty_at: vec![0; ROOMS.len()],
            confirms: [None; ROOMS.len()],
            is_connected: false,
        };
        let nodes = (1..=nodes).map(node).collect();
        let random = fastrand::Rng::with_seed(seed);
        let truth = Default::default();
        let mut cluster = Self { now, bus, nodes, truth, is_up: true, random, refused: 0 };
        (0..cluster.nodes.len()).for_each(|index| cluster.connect(index));
        cluster
    }

    fn connect(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.is_connected = true;
        self.bus.connect(node.id);
        for (i, member) in node.members.iter().enumerate() {
            self.bus.set_interest(node.id, room(i).into(), member.is_some());
        }
        node.events.push_back(Event::Connected);
    }

    /// Some of the requests on their way still have an effect, and no answer.
    fn disconnect(&mut self, index: usize) {
        let executed = self.random.usize(..=self.nodes[index].requests.len());
        (0..executed).for_each(|_| self.execute(index, true));
        let node = &mut self.nodes[index];
        node.is_connected = false;
        node.events.clear();
        node.events.push_back(Event::Disconnected { reason: "lost".into() });
        self.bus.disconnect(node.id);
        while !self.nodes[index].requests.is_empty() {
            self.execute(index, false);
        }
    }

    fn set_interest(&mut self, index: usize, room_index: usize, has_subscribers: bool) {
        let node = &mut self.nodes[index];
        self.bus.set_interest(node.id, room(room_index).into(), has_subscribers);
        node.members[room_index] = has_subscribers.then(Member::default);
        node.confirms[room_index] = None;
        node.rooms.handle_interest(&room(room_index), has_subscribers);
        self.collect(index);
    }

    /// A member comes that waits for all messages that there are.
    fn confirm(&mut self, index: usize, room_index: usize) {
        let node = &mut self.nodes[index];
        if node.members[room_index].as_ref().is_some_and(|member| member.newest.is_some()) {
            node.confirms[room_index] = Some(self.truth[room_index].0.len());
            node.rooms.handle_confirm(&room(room_index));
            self.collect(index);
        }
    }

    fn publish(&mut self, index: usize, publisher: usize, room_index: usize) {
        let node = &mut self.nodes[index];
        let state = &mut node.publishers[publisher];
        if state.waits.is_some() {
            return;
        }
        state.count += 1;
        let payload = format!("m {index} {publisher} {}", state.count);
        let ticket = publisher.is_multiple_of(2).then_some((publisher, room_index, state.count));
        if node.rooms.handle_publish(self.now, &room(room_index), payload.into(), ticket, None).is_ok() {
            state.waits = ticket.map(|(_, room_index, count)| (room_index, count));
        }
        self.collect(index);
    }

    /// Someone who isn't a node of the cluster writes to the engine.
    fn intrude(&mut self, room_index: usize) {
        let (room, limits) = (room(room_index), limits());
        let append = Request::Append { room, payload: "?".into(), idempotency_key: None, limits };
        self.carry_out(append).expect("an engine in memory");
    }

    /// Carries out a request to the engine.
    fn carry_out(&mut self, request: Request) -> Result<Reply, EngineError> {
        let appended = match &request {
            Request::Append { room, payload, .. } => Some((room.clone(), payload.clone())),
            _ => None,
        };
        let reply = self.bus.handle_request(self.now, request);
        if let (Some((room, payload)), Ok(Reply::Position(position))) = (appended, &reply) {
            let index = ROOMS.iter().position(|name| *name == room.name()).expect("a room");
            let truth = &mut self.truth[index];
            match truth.index_of(*position) {
                Some(index) => assert_eq!(truth.0[index].1, payload, "two messages at a position"),
                None => truth.0.push((*position, payload)),
            }
        }
        while let Some((id, event)) = self.bus.poll_delivery() {
            let node = self.nodes.iter_mut().find(|node| node.id == id).expect("a node");
            node.events.push_back(event);
        }
        reply
    }

    /// The engine takes a node's oldest request, or never gets it.
    fn execute(&mut self, index: usize, is_answer_lost: bool) {
        let Some((number, request)) = self.nodes[index].requests.pop_front() else { return };
        let lost = Err(EngineError::Unavailable("away".into()));
        let reply = if !self.nodes[index].is_connected {
            lost
        } else if is_answer_lost {
            self.carry_out(request).and(lost)
        } else if !self.is_up {
            if self.random.bool() { lost } else { Err(EngineError::Full) }
        } else {
            self.carry_out(request)
        };
        let lens = self.truth.iter().map(|truth| truth.0.len()).collect();
        self.nodes[index].answers.push((number, reply, lens));
    }

    /// An answer reaches its node, maybe not in order.
    fn answer(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.answers.is_empty() {
            return;
        }
        let (number, reply, lens) = node.answers.remove(self.random.usize(..node.answers.len()));
        node.empty_at = lens;
        node.rooms.handle_reply(self.now, number, reply, decode);
        self.collect(index);
    }

    /// The node's oldest event.
    fn deliver(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        match node.events.pop_front() {
            Some(Event::Message { channel: Channel::Topic(Topic::Room(room)), position, payload }) => {
                let position = position.expect("it was appended");
                node.rooms.handle_message(&room, position, decode(&room, &payload));
            }
            Some(Event::Connected) => node.rooms.handle_connected(self.now),
            Some(Event::Disconnected { .. }) => node.rooms.handle_disconnected(),
            _ => {}
        }
        self.collect(index);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        for index in 0..self.nodes.len() {
            self.nodes[index].rooms.handle_timeout(self.now);
            self.collect(index);
        }
    }

    /// Carries out what a machine wants.
    fn collect(&mut self, index: usize) {
        while let Some(output) = self.nodes[index].rooms.poll_output() {
            match output {
                Output::Request(number, request) => self.nodes[index].requests.push_back((number, request)),
                Output::Decide((publisher, room_index, count), decision) => {
                    let waits = self.nodes[index].publishers[publisher].waits.take();
                    assert_eq!(waits, Some((room_index, count)), "decided twice");
                    let payload = format!("m {index} {publisher} {count}");
                    let has_it = self.truth[room_index].0.iter().any(|(_, other)| *other == payload);
                    match decision {
                        Ok(()) => assert!(has_it),
                        Err(denial) => {
                            self.refused += 1;
                            assert!(denial.retry && (!has_it || denial.message.contains("unknown")));
                        }
                    }
                }
                Output::Room(room, update) => {
                    let i = ROOMS.iter().position(|name| *name == room.name()).expect("a room");
                    let newest = self.nodes[index].members[i].as_ref().and_then(|member| member.newest);
                    let kept = self.kept(&room, newest.unwrap_or(START));
                    let node = &mut self.nodes[index];
                    let member = node.members[i].as_mut().expect("it has subscribers");
                    if matches!(update, RoomUpdate::Confirmed) {
                        let waits = node.confirms[i].take().expect("somebody waits");
                        // Of an empty room, whatever position a client names is told to be lost.
                        let is_there = member.expected.is_none_or(|next| next >= waits);
                        assert!(is_there || member.newest == Some(START));
                        continue;
                    }
                    member.update(update, &self.truth[i], node.empty_at[i], &kept);
                }
            }
        }
    }

    /// Offsets of readable messages that the engine still has after a position, if it is of the same epoch.
    fn kept(&mut self, room: &Room, since: Position) -> HashSet<u64> {
        let request = Request::History { room: room.clone(), since, messages_max: usize::MAX };
        let Ok(Reply::History(history)) = self.bus.handle_request(self.now, request) else { panic!() };
        let same = history.messages.into_iter().filter(|(position, _)| position.epoch == since.epoch);
        same.filter(|(_, payload)| decode(room, payload).is_some()).map(|(at, _)| at.offset).collect()
    }

    /// Lets everything happen that can happen without time.
    fn run_until_idle(&mut self) {
        while self
            .nodes
            .iter()
            .any(|n| !(n.requests.is_empty() && n.answers.is_empty() && n.events.is_empty()))
        {
            for index in 0..self.nodes.len() {
                self.execute(index, false);
                self.answer(index);
                self.deliver(index);
            }
        }
    }

    fn member(&self, index: usize, room_index: usize) -> &Member {
        self.nodes[index].members[room_index].as_ref().expect("subscribers")
    }

    fn resyncs(&self, index: usize) -> Vec<(&'static str, u64)> {
        let resyncs = self.nodes[index].rooms.stats().resyncs;
        resyncs.into_iter().filter(|(_, n)| *n > 0).map(|(reason, n)| (reason.label(), n)).collect()
    }

    /// Every member has all that there is.
    fn check_complete(&mut self, seed: u64) {
        for index in 0..self.nodes.len() {
            for i in 0..ROOMS.len() {
                let request = Request::Heads { rooms: vec![room(i)] };
                let Ok(Reply::Heads(heads)) = self.bus.handle_request(self.now, request) else { panic!() };
                let Some(member) = &self.nodes[index].members[i] else { continue };
                assert_eq!(member.newest, Some(heads[0].unwrap_or(START)), "seed {seed}");
                assert_eq!(member.expected, Some(self.truth[i].0.len()), "seed {seed}");
            }
            let rooms = &self.nodes[index].rooms;
            let stats = rooms.stats();
            assert_eq!((stats.appends, stats.append_bytes, stats.reading), (0, 0, 0), "seed {seed}");
            assert_eq!(
                (stats.waiting_bytes, rooms.asked.len(), rooms.to_read.len()),
                (0, 0, 0),
                "seed {seed}"
            );
            assert!(self.nodes[index].publishers.iter().all(|publisher| publisher.waits.is_none()));
            assert_eq!(self.nodes[index].confirms, [None; ROOMS.len()], "seed {seed}");
        }
    }

    /// Messages of one publisher are in its order, and once per epoch.
    fn check_publishers(&self, seed: u64) {
        for truth in &self.truth {
            let mut newest: HashMap<Vec<u8>, (Epoch, u64)> = HashMap::new();
            for (position, payload) in truth.0.iter().filter(|(_, payload)| payload.starts_with(b"m")) {
                let cut = payload.iter().rposition(|byte| *byte == b' ').expect("three numbers");
                let count = std::str::from_utf8(&payload[cut + 1..])
                    .map(str::parse)
                    .expect("text")
                    .expect("a number");
                let before = newest.insert(payload[..cut].to_vec(), (position.epoch, count));
                if let Some((epoch, before)) = before {
                    let is_in_order = before < count || (before == count && epoch != position.epoch);
                    assert!(is_in_order, "seed {seed}: {count} after {before}");
                }
            }
        }
    }
}

#[test]
fn members_on_all_nodes_receive_one_order() {
    let mut cluster = Cluster::new(3, 1);
    (0..3).for_each(|index| cluster.set_interest(index, 0, true));
    cluster.run_until_idle();
    for _ in 0..50 {
        for index in 0..3 {
            (0..PUBLISHERS).for_each(|publisher| cluster.publish(index, publisher, 0));
        }
        cluster.run_until_idle();
    }
    cluster.check_complete(1);
    cluster.check_publishers(1);
    for index in 0..3 {
        let member = cluster.member(index, 0);
        assert_eq!((member.received, member.gaps), (50 * 3 * PUBLISHERS, 0));
    }
}

#[test]
fn a_lost_last_message_is_noticed_within_a_minute() {
    let mut cluster = Cluster::new(2, 1);
    cluster.set_interest(1, 0, true);
    cluster.run_until_idle();
    for expected in [1, 2] {
        cluster.publish(0, 0, 0);
        cluster.execute(0, false);
        cluster.nodes[1].events.clear();
        cluster.run_until_idle();
        assert_eq!(cluster.member(1, 0).received, expected - 1);
        cluster.pass(HEADS_INTERVAL.mul_f64(1.25));
        cluster.run_until_idle();
        assert_eq!(cluster.member(1, 0).received, expected);
    }
    // Of the first one it can't be told whether it is the only one that was missed.
    assert_eq!(cluster.resyncs(1), [("unproven", 1)]);
    assert_eq!(cluster.nodes[1].rooms.stats().recovered, 1);
}

#[test]
fn a_room_that_has_an_epoch_before_its_first_message_proves_that_nothing_is_missing() {
    let mut cluster = Cluster::new(2, 1);
    cluster.begin_rooms_when_read();
    cluster.set_interest(1, 0, true);
    cluster.run_until_idle();
    for expected in [0, 1] {
        cluster.disconnect(1);
        (0..expected).for_each(|_| cluster.publish(0, 0, 0));
        cluster.execute(0, false);
        cluster.run_until_idle();
        cluster.connect(1);
        cluster.run_until_idle();
        let member = cluster.member(1, 0);
        assert_eq!((member.received, member.gaps, cluster.resyncs(1)), (expected, 0, vec![]));
    }
}

#[test]
fn what_was_missed_while_the_connection_was_lost_is_read() {
    for (missed, resyncs) in [(0, vec![]), (KEEP, vec![]), (KEEP + 1, vec![("truncated", 1)])] {
        let mut cluster = Cluster::new(2, 1);
        cluster.set_interest(1, 0, true);
        cluster.run_until_idle();
        cluster.publish(0, 1, 0);
        cluster.run_until_idle();
        cluster.disconnect(1);
        for _ in 0..missed {
            cluster.publish(0, 1, 0);
            cluster.run_until_idle();
        }
        cluster.connect(1);
        cluster.run_until_idle();
        cluster.check_complete(1);
        assert_eq!(cluster.resyncs(1), resyncs);
        assert_eq!(cluster.member(1, 0).received, 1 + missed.min(KEEP));
    }
}

#[test]
fn an_engine_that_forgets_or_goes_back_is_announced() {
    let mut cluster = Cluster::new(1, 1);
    cluster.set_interest(0, 0, true);
    cluster.publish(0, 0, 0);
    cluster.run_until_idle();
    cluster.bus.forget();
    cluster.nodes[0].rooms.handle_connected(cluster.now);
    cluster.collect(0);
    cluster.run_until_idle();
    cluster.publish(0, 0, 0);
    cluster.run_until_idle();
    assert_eq!((cluster.resyncs(0), cluster.member(0, 0).gaps), (vec![("forgotten", 1)], 1));
    // The same epoch, but fewer messages: no engine should do that.
    let newest = cluster.member(0, 0).newest.expect("a message");
    let rooms = &mut cluster.nodes[0].rooms;
    rooms.handle_connected(cluster.now);
    let head = Position { offset: 0, ..newest };
    for is_read in [false, true] {
        let Some(Output::Request(number, request)) = rooms.poll_output() else { panic!() };
        assert_eq!(matches!(request, Request::History { .. }), is_read);
        let history = crate::engine::History { head: Some(head), messages: Vec::new(), truncated: true };
        let reply = if is_read { Reply::History(history) } else { Reply::Heads(vec![Some(head)]) };
        rooms.handle_reply(cluster.now, number, Ok(reply), decode);
    }
    let updates: Vec<_> = std::iter::from_fn(|| rooms.poll_output())
        .map(|output| match output {
            Output::Room(_, RoomUpdate::History { after, .. }) => after,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(updates, [START, head], "by a detour that announces a gap");
}

/// The node sends it again. An engine that forgot doesn't know the idempotency key any more.
#[test]
fn a_message_whose_answer_is_lost_has_one_position_per_epoch() {
    for (forgets, positions) in [(false, 1), (true, 2)] {
        let mut cluster = Cluster::new(2, 1);
        cluster.set_interest(1, 0, true);
        cluster.run_until_idle();
        cluster.publish(0, 0, 0);
        cluster.execute(0, true);
        if forgets {
            cluster.bus.forget();
        }
        cluster.run_until_idle();
        assert!(cluster.nodes[0].publishers[0].waits.is_some(), "its answer is lost");
        cluster.pass(Duration::from_millis(250));
        cluster.run_until_idle();
        assert!(cluster.nodes[0].publishers[0].waits.is_none() && cluster.refused == 0, "it is accepted");
        let stored = cluster.truth[0].0.iter().filter(|(_, payload)| payload.starts_with(b"m 0 0 1"));
        let epochs: Vec<Epoch> = stored.map(|(position, _)| position.epoch).collect();
        assert_eq!(epochs.len(), positions);
        assert_eq!(epochs.iter().collect::<HashSet<_>>().len(), positions);
        let member = cluster.member(1, 0);
        assert_eq!((member.received, member.gaps), (positions, positions - 1), "the new epoch is announced");
    }
}

#[test]
fn an_empty_room_is_confirmed_without_a_gap() {
    let mut cluster = Cluster::new(1, 1);
    cluster.set_interest(0, 0, true);
    cluster.run_until_idle();
    cluster.confirm(0, 0);
    cluster.run_until_idle();
    cluster.check_complete(1);
    assert_eq!((cluster.resyncs(0), cluster.member(0, 0).gaps), (vec![], 0));
}

#[test]
fn members_that_come_all_the_time_do_not_keep_others_waiting() {
    let mut cluster = Cluster::new(1, 1);
    cluster.set_interest(0, 0, true);
    cluster.run_until_idle();
    let rooms = &mut cluster.nodes[0].rooms;
    rooms.handle_confirm(&room(0));
    let (mut reads, mut is_confirmed) = (0, false);
    while reads < 100 && !is_confirmed {
        match rooms.poll_output() {
            Some(Output::Request(number, request)) => {
                reads += 1;
                rooms.handle_confirm(&room(0));
                let reply = cluster.bus.handle_request(cluster.now, request);
                rooms.handle_reply(cluster.now, number, reply, decode);
            }
            Some(Output::Room(_, RoomUpdate::Confirmed)) => is_confirmed = true,
            output => panic!("{output:?}"),
        }
    }
    assert_eq!((reads, is_confirmed), (4, true));
}

#[test]
fn a_history_that_is_refused_is_announced_and_new_messages_follow() {
    let mut cluster = Cluster::new(1, 1);
    cluster.set_interest(0, 0, true);
    cluster.run_until_idle();
    let rooms = &mut cluster.nodes[0].rooms;
    let at = |offset| Position { epoch: Epoch(7), offset };
    rooms.handle_message(&room(0), at(5), decode(&room(0), &"m5".into()));
    let Some(Output::Request(number, Request::History { .. })) = rooms.poll_output() else { panic!() };
    rooms.handle_message(&room(0), at(6), decode(&room(0), &"m6".into()));
    rooms.handle_reply(cluster.now, number, Err(EngineError::Refused("wrong type".into())), decode);
    let updates: Vec<_> = std::iter::from_fn(|| rooms.poll_output()).collect();
    assert!(
        matches!(&updates[..], [
            Output::Room(_, RoomUpdate::History { after: detour, .. }),
            Output::Room(_, RoomUpdate::History { after, .. }),
            Output::Room(_, RoomUpdate::Message { position, .. }),
        ] if *detour != START && *after == at(5) && *position == at(6)),
        "{updates:?}"
    );
    assert_eq!(cluster.resyncs(0), [("refused", 1)]);
}

#[test]
fn what_waits_is_bounded() {
    let mut cluster = Cluster::new(2, 1);
    cluster.is_up = false;
    // Publishers are refused for now, and served when the engine is back.
    let publish = |cluster: &mut Cluster| {
        let rooms = &mut cluster.nodes[0].rooms;
        let result = rooms.handle_publish(cluster.now, &room(0), "m".into(), None, None);
        cluster.collect(0);
        result
    };
    while publish(&mut cluster).is_ok() {}
    assert_eq!(cluster.nodes[0].rooms.stats().appends, appends::APPENDS_MAX);
    let mut large = Rooms::<()>::new(NodeId(1), Vec::new(), Duration::from_secs(1));
    let payload = Bytes::from(vec![b'm'; appends::APPENDS_BYTES_MAX + 1]);
    assert_eq!(large.handle_publish(cluster.now, &room(0), payload, None, None), Ok(()));
    assert_eq!(large.handle_publish(cluster.now, &room(0), "m".into(), None, None), Err(None));
    cluster.is_up = true;
    for _ in 0..2 * appends::APPENDS_MAX {
        cluster.pass(Duration::from_millis(1));
        cluster.run_until_idle();
    }
    assert_eq!(publish(&mut cluster), Ok(()));
    // Messages that arrive while the history is read.
    cluster.run_until_idle();
    cluster.set_interest(1, 0, true);
    cluster.is_up = false;
    for _ in 0..1_000 {
        cluster.intrude(0);
        cluster.publish(0, 1, 0);
        let node = &mut cluster.nodes[1];
        node.rooms.handle_message(&room(0), START, decode(&room(0), &vec![b'm'; 100_000].into()));
        assert!(node.rooms.stats().waiting_bytes <= 1 << 20);
    }
    cluster.is_up = true;
    for _ in 0..10 {
        cluster.pass(RETRY_DELAY);
        cluster.run_until_idle();
    }
    cluster.check_complete(1);
}

/// Publishers on all nodes, members come and go, messages and connections are lost, the engine is away, answers late, or forgets
/// everything. `Member` checks each update; after the faults, every member has all that there is.
#[test]
fn rooms_survive_faults_and_no_loss_is_silent() {
    let (mut received, mut gaps, mut refused, mut recovered) = (0, 0, 0, 0);
    let mut reasons: HashSet<&str> = HashSet::new();
    simulate(0..3_000, 400, |run| {
        let seed = run.seed;
        let mut cluster = Cluster::new(3, seed);
        if seed % 2 == 0 {
            cluster.begin_rooms_when_read();
        }
        for step in run.steps.clone() {
            cluster.random = run.random(step);
            let index = cluster.random.usize(..cluster.nodes.len());
            let i = cluster.random.usize(..ROOMS.len());
            match cluster.random.u32(..64) {
                0..=13 => {
                    let publisher = cluster.random.usize(..PUBLISHERS);
                    run.note(step, format!("publisher {publisher} publishes to room {i} on node {index}"));
                    cluster.publish(index, publisher, i);
                }
                14 | 15 => {
                    run.note(step, format!("node {index} has members of room {i}"));
                    cluster.set_interest(index, i, true);
                }
                16 => {
                    run.note(step, format!("node {index} has no members of room {i}"));
                    cluster.set_interest(index, i, false);
                }
                17 if cluster.nodes[index].is_connected => {
                    run.note(step, format!("node {index} loses its connection"));
                    cluster.disconnect(index);
                }
                17..=19 if !cluster.nodes[index].is_connected => {
                    run.note(step, format!("node {index} is connected"));
                    cluster.connect(index);
                }
                20 => {
                    cluster.is_up = !cluster.is_up;
                    run.note(step, if cluster.is_up { "the engine answers" } else { "the engine is away" });
                }
                21 => {
                    let events = &mut cluster.nodes[index].events;
                    let messages =
                        events.iter().take_while(|event| matches!(event, Event::Message { .. })).count();
                    if messages > 1 && step % 2 == 0 {
                        run.note(step, format!("node {index} receives {:?} late", events[0]));
                        events.make_contiguous()[..messages.min(8)].rotate_left(1);
                    } else if messages > 0 {
                        run.note(step, format!("node {index} misses {:?}", events[0]));
                        events.pop_front();
                    }
                }
                22 if cluster.random.u32(..8) == 0 => {
                    run.note(step, "the engine starts again without its data");
                    (0..3).for_each(|index| cluster.disconnect(index));
                    cluster.bus.forget();
                }
                23 if cluster.random.u32(..4) == 0 => {
                    run.note(step, format!("something else is published to room {i}"));
                    cluster.intrude(i);
                }
                23 => {
                    run.note(step, format!("node {index} confirms room {i}"));
                    cluster.confirm(index, i);
                }
                24..=34 => {
                    run.note(step, format!("the engine carries out a request of node {index}"));
                    cluster.execute(index, false);
                }
                35 => {
                    run.note(
                        step,
                        format!("the engine carries out a request of node {index}, and the answer is lost"),
                    );
                    cluster.execute(index, true);
                }
                36..=46 => {
                    run.note(step, format!("node {index} receives an answer"));
                    cluster.answer(index);
                }
                47..=58 => {
                    let event = cluster.nodes[index].events.front();
                    run.note(step, format!("node {index} receives {event:?}"));
                    cluster.deliver(index);
                }
                59 if cluster.random.u32(..4) == 0 => {
                    run.note(step, format!("{HEADS_INTERVAL:?} pass"));
                    cluster.pass(HEADS_INTERVAL);
                }
                60.. => {
                    let ms = cluster.random.u64(..500);
                    run.note(step, format!("{ms} ms pass"));
                    cluster.pass(Duration::from_millis(ms));
                }
                _ => {}
            }
        }
        cluster.is_up = true;
        for index in 0..3 {
            if !cluster.nodes[index].is_connected {
                cluster.connect(index);
            }
        }
        for _ in 0..30 {
            cluster.pass(Duration::from_secs(5));
            cluster.run_until_idle();
        }
        cluster.check_complete(seed);
        cluster.check_publishers(seed);
        for index in 0..3 {
            let node = &cluster.nodes[index];
            received += node.members.iter().flatten().map(|member| member.received).sum::<usize>();
            gaps += node.members.iter().flatten().map(|member| member.gaps).sum::<usize>();
            recovered += node.rooms.stats().recovered;
            reasons.extend(cluster.resyncs(index).into_iter().map(|(reason, _)| reason));
        }
        refused += cluster.refused;
    });
    // The faults were there, and didn't prevent everything.
    let counts = (received, gaps, refused, recovered);
    assert!(received > 10_000 && gaps > 1_000 && refused > 100 && recovered > 100, "{counts:?}");
    for reason in ["truncated", "epoch", "forgotten", "unproven", "unreadable"] {
        assert!(reasons.contains(reason), "{reason}");
    }
}
