//! Clients of several nodes with several cores each: `ok` is a position. A message that is published in a room after a client has
//! its `ok` reaches the client once, in order, however long a read of the history takes; or a notice says that messages may be missing.
//!
//! Clients do what the data plane does for them (`prepare.rs` of `stentor-edge`).

use super::model::Truth;
use super::{ROOMS, decode, limits, room};
use crate::NodeId;
use crate::engine::memory::Bus;
use crate::engine::{Channel, EngineError, Event, Reply, Request};
use crate::rooms::{HEADS_INTERVAL, Output, Resync, Rooms};
use crate::simulation::{Run, simulate};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_edge::RoomUpdate;
use stentor_hub::{
    Body, Emit, Encoder, FormatId, Hub, Notice, Options, Policy, Position, Publication, Room, SessionId,
    Topic,
};

const NODES: usize = 2;
const CORES: usize = 2;
const CLIENTS: usize = 3;

/// Frames without content.
struct NoFrames;

impl Encoder for NoFrames {
    type Frame = ();

    fn encode(&self, _: FormatId, _: &Publication<()>) -> Option<()> {
        Some(())
    }

    fn len((): &()) -> usize {
        1
    }
}

/// A client's subscription to a room, as the client knows it.
#[derive(Clone, Copy, Debug)]
enum State {
    Out,
    /// It has no answer yet.
    Waiting,
    /// Since there were so many messages, of which the client expects this one next. `None`: none has arrived since.
    In {
        since: usize,
        next: Option<usize>,
    },
}

struct Client {
    core: usize,
    session: SessionId,
    rooms: [State; ROOMS.len()],
    gaps: usize,
    received: usize,
}

/// Tasks for the engine, in order.
enum Outgoing {
    Interest(Room, bool),
    Request(u64, Request),
}

struct Node {
    id: NodeId,
    hubs: Vec<Hub<NoFrames>>,
    rooms: Rooms<()>,
    clients: Vec<Client>,
    /// As reported.
    interest: [bool; ROOMS.len()],
    outgoing: VecDeque<Outgoing>,
    answers: Vec<(u64, Result<Reply, EngineError>)>,
    events: VecDeque<Event>,
    /// For each core.
    updates: Vec<VecDeque<(Room, RoomUpdate)>>,
    is_connected: bool,
}

struct Cluster {
    now: Instant,
    bus: Bus,
    nodes: Vec<Node>,
    truth: [Truth; ROOMS.len()],
    published: usize,
    is_up: bool,
    random: fastrand::Rng,
}

fn index_of(room: &Room) -> usize {
    ROOMS.iter().position(|name| *name == room.name()).expect("a room")
}

impl Cluster {
    fn new(seed: u64) -> Self {
        let mut cluster = Self {
            now: Instant::now(),
            bus: Bus::default(),
            nodes: Vec::new(),
            truth: Default::default(),
            published: 0,
            is_up: true,
            random: fastrand::Rng::with_seed(seed),
        };
        if seed.is_multiple_of(2) {
            cluster.bus.begin_rooms_when_read();
        }
        for id in 1..=NODES as u64 {
            let history = vec![(String::new(), limits())];
            let hub = |core| {
                let options = Options {
                    core,
                    cores: CORES,
                    seed: [seed, id],
                    room_history: history.clone(),
                    external_positions: true,
                    reports_rooms: true,
                    ..Options::default()
                };
                Hub::new(options, NoFrames)
            };
            let mut hubs: Vec<_> = (0..CORES).map(hub).collect();
            let client = |n: usize| {
                let core = n % CORES;
                let session = hubs[core].handle_open(FormatId(0), 0);
                Client { core, session, rooms: [State::Out; ROOMS.len()], gaps: 0, received: 0 }
            };
            let clients = (0..CLIENTS).map(client).collect();
            let id = NodeId(id);
            cluster.nodes.push(Node {
                id,
                hubs,
                rooms: Rooms::new(id, history, Duration::from_secs(4)),
                clients,
                interest: [false; ROOMS.len()],
                outgoing: VecDeque::new(),
                answers: Vec::new(),
                events: VecDeque::new(),
                updates: (0..CORES).map(|_| VecDeque::new()).collect(),
                is_connected: false,
            });
            cluster.connect(cluster.nodes.len() - 1);
        }
        cluster
    }

    fn connect(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.is_connected = true;
        self.bus.connect(node.id);
        // Interest is a level.
        node.outgoing.retain(|outgoing| matches!(outgoing, Outgoing::Request(..)));
        for (i, is_interested) in node.interest.into_iter().enumerate() {
            self.bus.set_interest(node.id, room(i).into(), is_interested);
        }
        node.events.push_back(Event::Connected);
    }

    fn disconnect(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.is_connected = false;
        node.events.clear();
        node.events.push_back(Event::Disconnected { reason: "lost".into() });
        self.bus.disconnect(node.id);
    }

    /// A client subscribes, or unsubscribes.
    fn toggle(&mut self, index: usize, client: usize, i: usize) {
        let topic = Topic::Room(room(i));
        let node = &mut self.nodes[index];
        let Client { core, session, rooms, .. } = &mut node.clients[client];
        let hub = &mut node.hubs[*core];
        match rooms[i] {
            State::Out if hub.handle_prepare(&room(i)) => self.join(index, client, i, None),
            State::Out => rooms[i] = State::Waiting,
            State::Waiting => {
                hub.handle_release(&room(i));
                rooms[i] = State::Out;
            }
            State::In { .. } => {
                hub.handle_unsubscribe(*session, &topic);
                rooms[i] = State::Out;
            }
        }
    }

    /// A client joins, and has its `ok`.
    fn join(&mut self, index: usize, client: usize, i: usize, since: Option<Position>) {
        let node = &mut self.nodes[index];
        let client = &mut node.clients[client];
        let joined =
            node.hubs[client.core].handle_subscribe(client.session, &room(i).into(), Policy::Queue, since);
        assert_eq!(joined, Ok(()));
        client.rooms[i] = State::In { since: self.truth[i].0.len(), next: None };
    }

    /// A client that waits doesn't wait any longer.
    fn give_up(&mut self, index: usize, client: usize, i: usize) {
        let Client { core, rooms, .. } = &self.nodes[index].clients[client];
        if let (State::Waiting, core) = (rooms[i], *core) {
            self.join(index, client, i, Some(Position::UNKNOWN));
            self.nodes[index].hubs[core].handle_release(&room(i));
        }
    }

    fn publish(&mut self, index: usize, i: usize) {
        self.published += 1;
        let payload = Bytes::from(format!("m{}", self.published));
        let node = &mut self.nodes[index];
        // With or without somebody who waits for the engine.
        let publisher = self.published.is_multiple_of(2).then_some(());
        let _ = node.rooms.handle_publish(self.now, &room(i), payload, publisher, None);
        self.collect(index);
    }

    /// Runs a turn of a core. A core sends its mail to the other cores before it answers its clients, and takes the mail of the other
    /// cores before updates.
    fn turn(&mut self, index: usize, core: usize) {
        while self.pass_mail(index, CORES - 1 - core) {}
        if let Some((room, update)) = self.nodes[index].updates[core].pop_front() {
            let (now, hub) = (self.now, &mut self.nodes[index].hubs[core]);
            match update {
                RoomUpdate::Message { position, event, data, .. } => {
                    hub.handle_positioned(now, &room, position, event, data, Emit::default());
                }
                RoomUpdate::History { after, messages } => hub.handle_history(now, &room, after, messages),
                RoomUpdate::Confirmed => hub.handle_confirmed(&room),
            }
        }
        while let Some(room) = self.nodes[index].hubs[core].poll_prepared() {
            let i = index_of(&room);
            for client in 0..CLIENTS {
                let Client { core: own, rooms, .. } = &self.nodes[index].clients[client];
                if let (State::Waiting, true) = (rooms[i], *own == core) {
                    self.join(index, client, i, None);
                    self.nodes[index].hubs[core].handle_release(&room);
                }
            }
        }
        let node = &mut self.nodes[index];
        while let Some(topic) = node.hubs[core].poll_unconfirmed() {
            let Topic::Room(room) = topic else { panic!("{topic:?}") };
            node.rooms.handle_confirm(&room);
        }
        while let Some((topic, has_subscribers)) = node.hubs[core].poll_subscribed() {
            let Topic::Room(room) = topic else { panic!("{topic:?}") };
            node.interest[index_of(&room)] = has_subscribers;
            node.outgoing.push_back(Outgoing::Interest(room.clone(), has_subscribers));
            node.rooms.handle_interest(&room, has_subscribers);
        }
        self.receive(index, core);
        self.collect(index);
    }

    /// Clients of a core read what there is for them.
    fn receive(&mut self, index: usize, core: usize) {
        let Node { hubs, clients, .. } = &mut self.nodes[index];
        let hub = &mut hubs[core];
        while hub.poll_ready().is_some() {}
        while let Some(notice) = hub.poll_notice() {
            let Notice::Gap { session, topic: Topic::Room(room) } = &notice else { panic!("{notice:?}") };
            let i = index_of(room);
            let client = clients.iter_mut().find(|client| (client.core, client.session) == (core, *session));
            let client = client.expect("a client");
            client.gaps += 1;
            if let state @ State::In { .. } = &mut client.rooms[i] {
                *state = State::In { since: self.truth[i].0.len(), next: None };
            }
        }
        for client in clients.iter_mut().filter(|client| client.core == core) {
            let mut messages = Vec::new();
            hub.take(client.session, usize::MAX, usize::MAX, |publication: &Arc<_>, ()| {
                messages.push(publication.clone());
            });
            hub.handle_sent(client.session);
            for publication in messages {
                let Body::Message { room, position: Some(position), .. } = publication.body() else {
                    panic!("a message with a position")
                };
                let i = index_of(room);
                let at = self.truth[i].index_of(*position).expect("it was appended");
                let State::In { since, next } = &mut client.rooms[i] else {
                    panic!("{:?} before the answer", client.rooms)
                };
                match *next {
                    Some(next) => assert_eq!(at, next, "lost, twice, or not in order"),
                    None => assert!(at <= *since, "message {at} is the first one after {since}"),
                }
                *next = Some(at + 1);
                client.received += 1;
            }
        }
    }

    /// The engine takes a node's oldest request, or never gets it.
    fn execute(&mut self, index: usize, is_answer_lost: bool) {
        let Some(next) = self.nodes[index].outgoing.pop_front() else { return };
        let node = &self.nodes[index];
        let (number, request) = match next {
            Outgoing::Interest(room, is_interested) => {
                if node.is_connected {
                    self.bus.set_interest(node.id, room.into(), is_interested);
                }
                return;
            }
            Outgoing::Request(number, request) => (number, request),
        };
        let lost = Err(EngineError::Unavailable("away".into()));
        let reply = match node.is_connected && self.is_up {
            false => lost,
            true if is_answer_lost => self.carry_out(request).and(lost),
            true => self.carry_out(request),
        };
        self.nodes[index].answers.push((number, reply));
    }

    fn carry_out(&mut self, request: Request) -> Result<Reply, EngineError> {
        let appended = match &request {
            Request::Append { room, payload, .. } => Some((index_of(room), payload.clone())),
            _ => None,
        };
        let reply = self.bus.handle_request(self.now, request);
        if let (Some((i, payload)), Ok(Reply::Position(position))) = (appended, &reply)
            && self.truth[i].index_of(*position).is_none()
        {
            self.truth[i].0.push((*position, payload));
        }
        while let Some((id, event)) = self.bus.poll_delivery() {
            let node = self.nodes.iter_mut().find(|node| node.id == id).expect("a node");
            node.events.push_back(event);
        }
        reply
    }

    /// An answer reaches its node, maybe not in order.
    fn answer(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if !node.answers.is_empty() {
            let (number, reply) = node.answers.remove(self.random.usize(..node.answers.len()));
            node.rooms.handle_reply(self.now, number, reply, decode);
            self.collect(index);
        }
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
        for index in 0..NODES {
            self.nodes[index].rooms.handle_timeout(self.now);
            self.collect(index);
        }
    }

    /// Carries out what a machine wants.
    fn collect(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        while let Some(output) = node.rooms.poll_output() {
            match output {
                Output::Request(number, request) => {
                    node.outgoing.push_back(Outgoing::Request(number, request));
                }
                Output::Decide((), _) => {}
                Output::Room(room, update) => {
                    let home = node.hubs[0].home_of(&Topic::Room(room.clone())).expect("it keeps history");
                    node.updates[home].push_back((room, update));
                }
            }
        }
    }

    /// A message from one core to another.
    fn pass_mail(&mut self, index: usize, from: usize) -> bool {
        let (now, hubs, to) = (self.now, &mut self.nodes[index].hubs, CORES - 1 - from);
        let dispatch = hubs[from].outgoing(to).pop_front();
        let has_passed = dispatch.is_some();
        if let Some(dispatch) = dispatch {
            hubs[to].handle_dispatch(now, from, dispatch);
        }
        has_passed
    }

    /// Lets everything happen that can happen without time.
    fn run_until_idle(&mut self) {
        loop {
            let mut has_happened = false;
            for index in 0..NODES {
                for core in 0..CORES {
                    has_happened |= !self.nodes[index].updates[core].is_empty();
                    self.turn(index, core);
                    has_happened |= self.pass_mail(index, core);
                    // The hub reports the changes that the mail has caused.
                    has_happened |= !self.nodes[index].hubs[core].is_quiet();
                }
                let node = &self.nodes[index];
                has_happened |=
                    !(node.outgoing.is_empty() && node.answers.is_empty() && node.events.is_empty());
                self.execute(index, false);
                self.answer(index);
                self.deliver(index);
            }
            if !has_happened {
                return;
            }
        }
    }

    /// Every client has all that was published since its answer.
    fn check_complete(&self) {
        for client in self.nodes.iter().flat_map(|node| &node.clients) {
            for (state, truth) in client.rooms.iter().zip(&self.truth) {
                match *state {
                    State::Out => {}
                    State::Waiting => panic!("it waits for ever"),
                    State::In { since, next } => assert_eq!(next.unwrap_or(since), truth.0.len(), "lost"),
                }
            }
        }
    }
}

/// One step. `is_lossy`: connections are lost, and the engine forgets.
fn step(cluster: &mut Cluster, run: &mut Run, step: u64, is_lossy: bool) {
    cluster.random = run.random(step);
    let index = cluster.random.usize(..NODES);
    let core = cluster.random.usize(..CORES);
    let client = cluster.random.usize(..CLIENTS);
    let i = cluster.random.usize(..ROOMS.len());
    match cluster.random.u32(..64) {
        0..=5 => {
            let before = cluster.nodes[index].clients[client].rooms[i];
            cluster.toggle(index, client, i);
            let after = cluster.nodes[index].clients[client].rooms[i];
            run.note(step, format!("client {client} of node {index}, room {i}: {before:?}, then {after:?}"));
        }
        6..=12 => {
            run.note(step, format!("message {} to room {i} on node {index}", cluster.published + 1));
            cluster.publish(index, i);
        }
        13..=28 => {
            run.note(step, format!("core {core} of node {index} has a turn"));
            cluster.turn(index, core);
        }
        29..=38 => {
            run.note(step, format!("node {index} passes mail from core {core}"));
            cluster.pass_mail(index, core);
        }
        39..=45 => {
            run.note(step, format!("the engine carries out what node {index} sends"));
            cluster.execute(index, false);
        }
        46 => {
            run.note(step, format!("the same for node {index}, and the answer is lost"));
            cluster.execute(index, true);
        }
        47..=51 => {
            run.note(step, format!("node {index} receives an answer"));
            cluster.answer(index);
        }
        52..=56 => {
            run.note(step, format!("node {index} receives {:?}", cluster.nodes[index].events.front()));
            cluster.deliver(index);
        }
        57 => {
            cluster.is_up = !cluster.is_up;
            run.note(step, if cluster.is_up { "the engine answers" } else { "the engine is away" });
        }
        58 if is_lossy => {
            run.note(step, format!("client {client} of node {index} waits no longer for room {i}"));
            cluster.give_up(index, client, i);
        }
        59 if is_lossy && cluster.nodes[index].is_connected => {
            run.note(step, format!("node {index} loses its connection"));
            cluster.disconnect(index);
        }
        59 | 60 if is_lossy && !cluster.nodes[index].is_connected => {
            run.note(step, format!("node {index} is connected"));
            cluster.connect(index);
        }
        61 if is_lossy && cluster.random.u32(..8) == 0 => {
            run.note(step, "the engine starts again without its data");
            (0..NODES).for_each(|index| cluster.disconnect(index));
            cluster.bus.forget();
        }
        61 if cluster.random.u32(..8) == 0 => {
            run.note(step, format!("{HEADS_INTERVAL:?} pass"));
            cluster.pass(HEADS_INTERVAL);
        }
        _ => {
            let ms = cluster.random.u64(..500);
            run.note(step, format!("{ms} ms pass"));
            cluster.pass(Duration::from_millis(ms));
        }
    }
}

/// Reads take any time, and requests fail. In half of the runs, connections are lost too, and the engine forgets everything.
#[test]
fn what_is_published_after_an_answer_arrives_once_or_is_announced() {
    let (mut received, mut gaps) = (0, 0);
    simulate(0..2_000, 300, |run| {
        let is_lossy = run.seed % 4 > 1;
        let mut cluster = Cluster::new(run.seed);
        for number in run.steps.clone() {
            step(&mut cluster, run, number, is_lossy);
        }
        cluster.is_up = true;
        for index in 0..NODES {
            if !cluster.nodes[index].is_connected {
                cluster.connect(index);
            }
        }
        for _ in 0..30 {
            cluster.pass(Duration::from_secs(5));
            cluster.run_until_idle();
        }
        cluster.check_complete();
        for node in &cluster.nodes {
            // Without an epoch before the first message, a node that learns of it by a comparison of positions can't tell whether
            // it is the first one. A node that reads while many messages are on their way may find that the history is shorter.
            let resyncs = node.rooms.stats().resyncs;
            let expected = resyncs[&Resync::Unproven] + resyncs[&Resync::Truncated];
            for client in &node.clients {
                assert!(is_lossy || client.gaps as u64 <= expected, "a gap that isn't there");
                gaps += client.gaps;
                received += client.received;
            }
        }
    });
    assert!(received > 10_000 && gaps > 100, "{received} messages, {gaps} gaps");
}
