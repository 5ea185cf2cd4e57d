//! Clients of several nodes with several cores each. A client's `ok` marks a position in the room. A message that is
//! published afterwards reaches the client once, in order, however long a read of the history takes; or a notice says
//! that messages may be missing.
//!
//! Clients do what the data plane does for them (`prepare.rs` of `stentor-edge`).

use super::ROOMS;
use super::cluster::{PUBLISHERS, Plane};
use super::model::{index_of, limits, room};
use crate::rooms::Resync;
use crate::simulation::{Run, simulate};
use std::collections::VecDeque;
use std::sync::Arc;
use stentor_hub::{
    Body, Emit, Encoder, FormatId, Hub, Notice, Options, Policy, Position, Publication, Room, SessionId,
    Topic,
};
use stentor_ports::RoomUpdate;

const NODES: u64 = 2;
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
    /// The client waits for its answer.
    Waiting,
    /// In the room since there were `since` messages. The client expects message `next`; `None` before the first one arrives.
    In {
        since: usize,
        next: Option<usize>,
        /// Gaps that the client was notified of, and that its messages haven't shown yet.
        notices: usize,
    },
}

struct Client {
    core: usize,
    session: SessionId,
    rooms: [State; ROOMS.len()],
    /// Position of the last message received in each room.
    newest: [Option<Position>; ROOMS.len()],
    gaps: usize,
    resumed: usize,
    received: usize,
}

impl Client {
    /// Returns `true` if the client isn't in a room, but has a position there.
    fn may_resume(&self, i: usize) -> bool {
        matches!(self.rooms[i], State::Out) && self.newest[i].is_some()
    }
}

/// The cores of a node, and their clients.
struct Cores {
    hubs: Vec<Hub<NoFrames>>,
    clients: Vec<Client>,
    /// Updates for each core.
    updates: Vec<VecDeque<(Room, RoomUpdate)>>,
}

impl Cores {
    fn new(seed: u64, node: u64) -> Self {
        let hub = |core| {
            let options = Options {
                core,
                cores: CORES,
                seed: [seed, node],
                room_history: vec![(String::new(), limits())],
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
            Client {
                core,
                session,
                rooms: [State::Out; ROOMS.len()],
                newest: [None; ROOMS.len()],
                gaps: 0,
                resumed: 0,
                received: 0,
            }
        };
        let clients = (0..CLIENTS).map(client).collect();
        Self { hubs, clients, updates: (0..CORES).map(|_| VecDeque::new()).collect() }
    }
}

type Cluster = super::cluster::Cluster<Cores>;

impl Plane for Cores {
    fn update(cluster: &mut Cluster, index: usize, room: &Room, update: RoomUpdate) {
        let Self { hubs, updates, .. } = &mut cluster.nodes[index].plane;
        let home = hubs[0].home_of(&Topic::Room(room.clone())).expect("it keeps history");
        updates[home].push_back((room.clone(), update));
    }

    fn turn(cluster: &mut Cluster, index: usize) -> bool {
        let mut has_happened = false;
        for core in 0..CORES {
            has_happened |= !cluster.nodes[index].plane.updates[core].is_empty();
            cluster.turn(index, core);
            has_happened |= cluster.pass_mail(index, core);
            // The hub still has to report changes that the mail has caused.
            has_happened |= !cluster.nodes[index].plane.hubs[core].is_quiet();
        }
        has_happened
    }
}

impl Cluster {
    /// A client subscribes, or unsubscribes.
    fn toggle(&mut self, index: usize, client: usize, i: usize) {
        let topic = Topic::Room(room(i));
        let Cores { hubs, clients, .. } = &mut self.nodes[index].plane;
        let Client { core, session, rooms, .. } = &mut clients[client];
        let hub = &mut hubs[*core];
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

    /// A client joins, and receives its `ok`.
    fn join(&mut self, index: usize, client: usize, i: usize, since: Option<Position>) {
        let Cores { hubs, clients, .. } = &mut self.nodes[index].plane;
        let client = &mut clients[client];
        let joined =
            hubs[client.core].handle_subscribe(client.session, &room(i).into(), Policy::Queue, since);
        assert_eq!(joined, Ok(()));
        client.rooms[i] = State::In { since: self.truth[i].0.len(), next: None, notices: 0 };
    }

    /// A client subscribes with the position of the last message that it received.
    fn resume(&mut self, index: usize, client: usize, i: usize) {
        let position = self.nodes[index].plane.clients[client].newest[i].expect("a position");
        self.join(index, client, i, Some(position));
        let next = self.truth[i].index_of(position).map(|at| at + 1);
        let client = &mut self.nodes[index].plane.clients[client];
        client.resumed += 1;
        client.rooms[i] = State::In { since: self.truth[i].0.len(), next, notices: 0 };
    }

    /// A waiting client stops waiting, and joins with an unknown position.
    fn give_up(&mut self, index: usize, client: usize, i: usize) {
        let Client { core, rooms, .. } = &self.nodes[index].plane.clients[client];
        if let (State::Waiting, core) = (rooms[i], *core) {
            self.join(index, client, i, Some(Position::UNKNOWN));
            self.nodes[index].plane.hubs[core].handle_release(&room(i));
        }
    }

    /// Runs a turn of a core. A core sends its mail to the other cores before it answers its clients, and takes the mail of the other
    /// cores before updates.
    fn turn(&mut self, index: usize, core: usize) {
        while self.pass_mail(index, CORES - 1 - core) {}
        if let Some((room, update)) = self.nodes[index].plane.updates[core].pop_front() {
            let (now, hub) = (self.now, &mut self.nodes[index].plane.hubs[core]);
            match update {
                RoomUpdate::Message { position, event, data, .. } => {
                    hub.handle_positioned(now, &room, position, event, data, Emit::default());
                }
                RoomUpdate::History { after, messages } => hub.handle_history(now, &room, after, messages),
                RoomUpdate::Confirmed => hub.handle_confirmed(&room),
            }
        }
        while let Some(room) = self.nodes[index].plane.hubs[core].poll_prepared() {
            let i = index_of(&room);
            for client in 0..CLIENTS {
                let Client { core: own, rooms, .. } = &self.nodes[index].plane.clients[client];
                if let (State::Waiting, true) = (rooms[i], *own == core) {
                    self.join(index, client, i, None);
                    self.nodes[index].plane.hubs[core].handle_release(&room);
                }
            }
        }
        let node = &mut self.nodes[index];
        while let Some(topic) = node.plane.hubs[core].poll_unconfirmed() {
            let Topic::Room(room) = topic else { panic!("{topic:?}") };
            node.rooms.handle_confirm(&room);
        }
        while let Some((topic, has_subscribers)) = self.nodes[index].plane.hubs[core].poll_subscribed() {
            let Topic::Room(room) = topic else { panic!("{topic:?}") };
            self.report_interest(index, &room, has_subscribers);
        }
        self.receive(index, core);
        self.collect(index);
    }

    /// Clients of a core receive their messages and notices.
    fn receive(&mut self, index: usize, core: usize) {
        let Cores { hubs, clients, .. } = &mut self.nodes[index].plane;
        let hub = &mut hubs[core];
        while hub.poll_ready().is_some() {}
        // A core may send waiting messages before it handles notices.
        let is_sent_first = self.random.bool();
        while !is_sent_first && let Some(notice) = hub.poll_notice() {
            let Notice::Gap { session, topic: Topic::Room(room) } = &notice else { panic!("{notice:?}") };
            let i = index_of(room);
            let client = clients.iter_mut().find(|client| (client.core, client.session) == (core, *session));
            let client = client.expect("a client");
            client.gaps += 1;
            if let State::In { since, notices, .. } = &mut client.rooms[i] {
                (*since, *notices) = (self.truth[i].0.len(), *notices + 1);
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
                let State::In { since, next, notices } = &mut client.rooms[i] else {
                    panic!("{:?} before the answer", client.rooms)
                };
                match *next {
                    Some(next) if at == next => {}
                    Some(next) if *notices == 0 => panic!("{at} for {next}: lost, twice, or not in order"),
                    Some(_) => *notices -= 1,
                    None => assert!(at <= *since, "message {at} is the first one after {since}"),
                }
                *next = Some(at + 1);
                client.newest[i] = Some(*position);
                client.received += 1;
            }
            for room in client.rooms.iter_mut().filter(|_| !is_sent_first) {
                if let State::In { next, notices: notices @ 1.., .. } = room {
                    (*next, *notices) = (None, 0);
                }
            }
        }
    }

    /// Passes a message from one core to the other one. Returns `true` if there was one.
    fn pass_mail(&mut self, index: usize, from: usize) -> bool {
        let (now, hubs, to) = (self.now, &mut self.nodes[index].plane.hubs, CORES - 1 - from);
        let dispatch = hubs[from].outgoing(to).pop_front();
        let has_passed = dispatch.is_some();
        if let Some(dispatch) = dispatch {
            hubs[to].handle_dispatch(now, from, dispatch);
        }
        has_passed
    }

    /// Checks that every client has all messages published since its `ok`.
    fn check_complete(&self) {
        for client in self.nodes.iter().flat_map(|node| &node.plane.clients) {
            for (state, truth) in client.rooms.iter().zip(&self.truth) {
                match *state {
                    State::Out => {}
                    State::Waiting => panic!("it waits for ever"),
                    State::In { since, next, .. } => assert_eq!(next.unwrap_or(since), truth.0.len(), "lost"),
                }
            }
        }
    }
}

/// One step. `is_lossy`: connections are lost, and the engine forgets.
fn step(cluster: &mut Cluster, run: &mut Run, step: u64, is_lossy: bool) {
    cluster.random = run.random(step);
    let index = cluster.random.usize(..cluster.nodes.len());
    let core = cluster.random.usize(..CORES);
    let client = cluster.random.usize(..CLIENTS);
    let i = cluster.random.usize(..ROOMS.len());
    match cluster.random.u32(..64) {
        0..=5 if cluster.nodes[index].plane.clients[client].may_resume(i) && cluster.random.bool() => {
            run.note(step, format!("client {client} of node {index} resumes in room {i}"));
            cluster.resume(index, client, i);
        }
        0..=5 => {
            let before = cluster.nodes[index].plane.clients[client].rooms[i];
            cluster.toggle(index, client, i);
            let after = cluster.nodes[index].plane.clients[client].rooms[i];
            run.note(step, format!("client {client} of node {index}, room {i}: {before:?}, then {after:?}"));
        }
        6..=12 => {
            let publisher = cluster.random.usize(..PUBLISHERS);
            run.note(step, format!("publisher {publisher} publishes to room {i} on node {index}"));
            cluster.publish(index, publisher, i);
        }
        13..=28 => {
            run.note(step, format!("core {core} of node {index} has a turn"));
            cluster.turn(index, core);
        }
        29..=38 => {
            run.note(step, format!("node {index} passes mail from core {core}"));
            cluster.pass_mail(index, core);
        }
        39 if is_lossy => {
            run.note(step, format!("client {client} of node {index} waits no longer for room {i}"));
            cluster.give_up(index, client, i);
        }
        _ => cluster.step(run, step, index, is_lossy),
    }
}

/// Reads take any time, and requests fail. In half of the runs, connections are lost too, and the engine forgets everything.
#[test]
fn publications_after_an_answer_arrive_once_or_are_announced() {
    let (mut received, mut gaps, mut resumed) = (0, 0, 0);
    simulate(0..2_000, 300, |run| {
        let is_lossy = run.seed % 4 > 1;
        let mut cluster = Cluster::new((1..=NODES).map(|node| Cores::new(run.seed, node)), run.seed);
        if run.seed % 2 == 0 {
            cluster.bus.begin_rooms_when_read();
        }
        for number in run.steps.clone() {
            step(&mut cluster, run, number, is_lossy);
        }
        cluster.heal();
        cluster.check_complete();
        for node in &cluster.nodes {
            // If a room has no epoch before its first message, a node that learns of this message by comparing
            // positions can't tell whether it is the first one. A node that reads while many messages are appended may
            // find a truncated history.
            let resyncs = node.rooms.stats().resyncs;
            let expected = resyncs[&Resync::Unproven] + resyncs[&Resync::Truncated];
            for client in &node.plane.clients {
                assert!(is_lossy || client.gaps as u64 <= expected, "a gap that isn't there");
                gaps += client.gaps;
                received += client.received;
                resumed += client.resumed;
            }
        }
    });
    let counts = (received, gaps, resumed);
    assert!(received > 10_000 && gaps > 100 && resumed > 200, "{counts:?}");
}
