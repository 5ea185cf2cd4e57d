//! Nodes on an engine in memory, with the messages between them and the engine.

use super::model::{Truth, decode, index_of, limits, room};
use super::{DETOUR_EPOCHS, ROOMS, START};
use crate::NodeId;
use crate::engine::memory::Bus;
use crate::engine::{Channel, EngineError, Event, Reply, Request};
use crate::rooms::{HEADS_INTERVAL, Output, Rooms};
use crate::simulation::Run;
use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};
use stentor_hub::{Key, Position, Room, Topic};
use stentor_ports::{Denial, RoomUpdate};

/// Publishers per node. Those with even numbers have tickets, so they wait for a decision.
pub(super) const PUBLISHERS: usize = 4;

/// A message: its publisher, its room, and its number among the publisher's messages.
type Published = (usize, usize, u64);

/// The data plane of a node.
pub(super) trait Plane: Sized {
    /// Passes an update of a room to the node's subscribers.
    fn update(cluster: &mut Cluster<Self>, index: usize, room: &Room, update: RoomUpdate);

    /// Runs the cores of a node. Returns `true` if a core had work.
    fn turn(_: &mut Cluster<Self>, _index: usize) -> bool {
        false
    }
}

/// Tasks for the engine, in order.
enum Outgoing {
    Interest(Room, bool),
    Request(u64, Request),
}

/// Number of messages that a publisher has published, and the message whose decision it waits for.
#[derive(Clone, Copy, Default)]
pub(super) struct Publisher {
    count: u64,
    pub(super) waits: Option<Published>,
}

pub(super) struct Node<P> {
    id: NodeId,
    pub(super) rooms: Rooms<Published>,
    pub(super) plane: P,
    pub(super) publishers: [Publisher; PUBLISHERS],
    /// Interest in each room, as the data plane has reported it.
    interest: [bool; ROOMS.len()],
    outgoing: VecDeque<Outgoing>,
    /// Answers on their way, each with the number of messages in each room when the engine made it.
    answers: Vec<(u64, Result<Reply, EngineError>, [usize; ROOMS.len()])>,
    pub(super) events: VecDeque<Event>,
    /// Number of messages in each room when the engine made the answer received last.
    pub(super) answered_at: [usize; ROOMS.len()],
    is_connected: bool,
}

pub(super) struct Cluster<P> {
    pub(super) now: Instant,
    pub(super) bus: Bus,
    pub(super) nodes: Vec<Node<P>>,
    pub(super) truth: [Truth; ROOMS.len()],
    pub(super) is_up: bool,
    /// The engine's answer to [`Request::EndEpoch`]. `None` if the engine ends epochs.
    pub(super) end_refusal: Option<EngineError>,
    pub(super) random: fastrand::Rng,
    pub(super) refused: u64,
}

impl<P: Plane> Cluster<P> {
    /// Creates connected nodes with these data planes.
    pub(super) fn new(planes: impl IntoIterator<Item = P>, seed: u64) -> Self {
        let mut bus = Bus::default();
        let now = Instant::now();
        // The engine's epochs begin after those that the machine may draw for its detours.
        for _ in 0..DETOUR_EPOCHS {
            let key = Key::parse("k").expect("a key");
            let lease = Request::AcquireLease { key, term_seen: 0, ttl: Duration::ZERO };
            bus.handle_request(now, lease).expect("a lease");
        }
        let node = |(id, plane)| Node {
            id: NodeId(id),
            rooms: Rooms::new(
                NodeId(id),
                vec![(String::new(), limits())],
                Duration::from_secs(4),
                super::vacant_rooms(usize::MAX),
            ),
            plane,
            publishers: Default::default(),
            interest: [false; ROOMS.len()],
            outgoing: VecDeque::new(),
            answers: Vec::new(),
            events: VecDeque::new(),
            answered_at: [0; ROOMS.len()],
            is_connected: false,
        };
        let nodes: Vec<_> = (1..).zip(planes).map(node).collect();
        let (random, truth) = (fastrand::Rng::with_seed(seed), Default::default());
        let mut cluster = Self { now, bus, nodes, truth, is_up: true, end_refusal: None, random, refused: 0 };
        (0..cluster.nodes.len()).for_each(|index| cluster.connect(index));
        cluster
    }

    pub(super) fn connect(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.is_connected = true;
        self.bus.connect(node.id);
        // Interest is a state: only its last value counts.
        node.outgoing.retain(|outgoing| matches!(outgoing, Outgoing::Request(..)));
        for (i, is_interested) in node.interest.into_iter().enumerate() {
            self.bus.set_interest(node.id, room(i).into(), is_interested);
        }
        node.events.push_back(Event::Connected);
    }

    /// Ends a node's connection. The engine still carries out some of the node's requests, but their answers are lost.
    pub(super) fn disconnect(&mut self, index: usize) {
        let executed = self.random.usize(..=self.nodes[index].outgoing.len());
        (0..executed).for_each(|_| self.execute(index, true));
        let node = &mut self.nodes[index];
        node.is_connected = false;
        node.events.clear();
        node.events.push_back(Event::Disconnected { reason: "lost".into() });
        self.bus.disconnect(node.id);
        while !self.nodes[index].outgoing.is_empty() {
            self.execute(index, false);
        }
    }

    /// The data plane of a node reports whether a room has subscribers.
    pub(super) fn report_interest(&mut self, index: usize, room: &Room, has_subscribers: bool) {
        let node = &mut self.nodes[index];
        node.interest[index_of(room)] = has_subscribers;
        node.outgoing.push_back(Outgoing::Interest(room.clone(), has_subscribers));
        node.rooms.handle_interest(room, has_subscribers);
        self.collect(index);
    }

    pub(super) fn publish(&mut self, index: usize, publisher: usize, room_index: usize) {
        let node = &mut self.nodes[index];
        let state = &mut node.publishers[publisher];
        if state.waits.is_some() {
            return;
        }
        state.count += 1;
        let payload = format!("m {index} {publisher} {}", state.count);
        let ticket = publisher.is_multiple_of(2).then_some((publisher, room_index, state.count));
        let publisher = (ticket, Some(publisher as u64));
        if node.rooms.handle_publish(self.now, &room(room_index), payload.into(), publisher, None).is_ok() {
            state.waits = ticket;
        }
        self.collect(index);
    }

    /// Passes a decision to its publisher, and checks the decision against the history.
    fn decide(&mut self, index: usize, published: Published, decision: Result<(), Denial>) {
        let (publisher, room_index, count) = published;
        let waits = self.nodes[index].publishers[publisher].waits.take();
        assert_eq!(waits, Some(published), "decided twice");
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

    /// Appends a message that no node has sent.
    pub(super) fn intrude(&mut self, room_index: usize) {
        let (room, limits) = (room(room_index), limits());
        let append = Request::Append { room, payload: "?".into(), idempotency_key: None, limits };
        self.carry_out(append).expect("an engine in memory");
    }

    /// Publishes a forged message on a room's channel. The engine doesn't append it.
    pub(super) fn forge(&mut self, room_index: usize, position: Position) {
        let channel = Channel::from(room(room_index));
        for node in self.nodes.iter_mut().filter(|node| node.is_connected && node.interest[room_index]) {
            let (channel, position) = (channel.clone(), Some(position));
            node.events.push_back(Event::Message { channel, position, payload: "?".into() });
        }
    }

    /// Carries out a request on the engine, and records an appended message.
    fn carry_out(&mut self, request: Request) -> Result<Reply, EngineError> {
        let appended = match &request {
            Request::Append { room, payload, .. } => Some((index_of(room), payload.clone())),
            _ => None,
        };
        let reply = self.bus.handle_request(self.now, request);
        if let (Some((i, payload)), Ok(Reply::Position(position))) = (appended, &reply) {
            let truth = &mut self.truth[i];
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

    /// Passes a node's oldest task to the engine. The task has no effect if the node isn't connected.
    pub(super) fn execute(&mut self, index: usize, is_answer_lost: bool) {
        let Some(next) = self.nodes[index].outgoing.pop_front() else { return };
        let (id, is_connected) = (self.nodes[index].id, self.nodes[index].is_connected);
        let (number, request) = match next {
            Outgoing::Interest(room, is_interested) => {
                if is_connected {
                    self.bus.set_interest(id, room.into(), is_interested);
                }
                return;
            }
            Outgoing::Request(number, request) => (number, request),
        };
        let lost = Err(EngineError::Unavailable("away".into()));
        let end_refusal = self.end_refusal.clone().filter(|_| matches!(request, Request::EndEpoch { .. }));
        let reply = if !is_connected {
            lost
        } else if let Some(error) = end_refusal {
            Err(error)
        } else if is_answer_lost {
            self.carry_out(request).and(lost)
        } else if !self.is_up {
            if self.random.bool() { lost } else { Err(EngineError::Full) }
        } else {
            self.carry_out(request)
        };
        let counts = self.truth.each_ref().map(|truth| truth.0.len());
        self.nodes[index].answers.push((number, reply, counts));
    }

    /// A random one of the answers on their way reaches its node.
    fn answer(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.answers.is_empty() {
            return;
        }
        let (number, reply, counts) = node.answers.remove(self.random.usize(..node.answers.len()));
        node.answered_at = counts;
        node.rooms.handle_reply(self.now, number, reply, decode);
        self.collect(index);
    }

    /// Delivers the node's oldest event.
    pub(super) fn deliver(&mut self, index: usize) {
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

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
        for index in 0..self.nodes.len() {
            self.nodes[index].rooms.handle_timeout(self.now);
            self.collect(index);
        }
    }

    /// Carries out the outputs of a node's machine.
    pub(super) fn collect(&mut self, index: usize) {
        while let Some(output) = self.nodes[index].rooms.poll_output() {
            match output {
                Output::Request(number, request) => {
                    self.nodes[index].outgoing.push_back(Outgoing::Request(number, request));
                }
                Output::Decide(published, decision) => self.decide(index, published, decision),
                Output::Room(room, update) => P::update(self, index, &room, update),
            }
        }
    }

    /// Offsets of readable messages that the engine still has after `since`, in the same epoch.
    pub(super) fn kept(&mut self, room: &Room, since: Position) -> HashSet<u64> {
        let request =
            Request::History { room: room.clone(), since, messages_max: usize::MAX, age_max: Duration::MAX };
        let Ok(Reply::History(history)) = self.bus.handle_request(self.now, request) else { panic!() };
        let same = history.messages.into_iter().filter(|(position, _)| position.epoch == since.epoch);
        same.filter(|(_, payload)| decode(room, payload).is_some()).map(|(at, _)| at.offset).collect()
    }

    pub(super) fn head(&mut self, room: Room) -> Position {
        let request = Request::Heads { rooms: vec![room] };
        let Ok(Reply::Heads(heads)) = self.bus.handle_request(self.now, request) else { panic!() };
        heads[0].unwrap_or(START)
    }

    /// Runs all steps for which no time must pass.
    pub(super) fn run_until_idle(&mut self) {
        let mut is_idle = false;
        while !is_idle {
            is_idle = true;
            for index in 0..self.nodes.len() {
                is_idle &= !P::turn(self, index);
                let node = &self.nodes[index];
                is_idle &= node.outgoing.is_empty() && node.answers.is_empty() && node.events.is_empty();
                self.execute(index, false);
                self.answer(index);
                self.deliver(index);
            }
        }
    }

    /// One step of the engine, of a node's connection, or of the clock. `is_lossy`: connections are lost, and the engine forgets.
    pub(super) fn step(&mut self, run: &mut Run, step: u64, index: usize, is_lossy: bool) {
        match self.random.u32(..42) {
            0..=10 => {
                run.note(step, format!("the engine carries out what node {index} sends"));
                self.execute(index, false);
            }
            11 => {
                run.note(step, format!("the same for node {index}, and the answer is lost"));
                self.execute(index, true);
            }
            12..=22 => {
                run.note(step, format!("node {index} receives an answer"));
                self.answer(index);
            }
            23..=34 => {
                run.note(step, format!("node {index} receives {:?}", self.nodes[index].events.front()));
                self.deliver(index);
            }
            35 => {
                self.is_up = !self.is_up;
                run.note(step, if self.is_up { "the engine answers" } else { "the engine is away" });
            }
            36 if is_lossy && self.nodes[index].is_connected => {
                run.note(step, format!("node {index} loses its connection"));
                self.disconnect(index);
            }
            36..=38 if is_lossy && !self.nodes[index].is_connected => {
                run.note(step, format!("node {index} is connected"));
                self.connect(index);
            }
            39 if is_lossy && self.random.u32(..8) == 0 => {
                run.note(step, "the engine starts again without its data");
                (0..self.nodes.len()).for_each(|index| self.disconnect(index));
                self.bus.forget();
            }
            40 if self.random.u32(..4) == 0 => {
                run.note(step, format!("{HEADS_INTERVAL:?} pass"));
                self.pass(HEADS_INTERVAL);
            }
            _ => {
                let ms = self.random.u64(..500);
                run.note(step, format!("{ms} ms pass"));
                self.pass(Duration::from_millis(ms));
            }
        }
    }

    /// Ends all faults, and lets the nodes catch up.
    pub(super) fn heal(&mut self) {
        self.is_up = true;
        for index in 0..self.nodes.len() {
            if !self.nodes[index].is_connected {
                self.connect(index);
            }
        }
        for _ in 0..30 {
            self.pass(Duration::from_secs(5));
            self.run_until_idle();
        }
    }
}
