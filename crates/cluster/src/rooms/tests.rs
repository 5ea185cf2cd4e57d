//! Rooms with history of several nodes on a simulated engine, checked against the messages that the engine has
//! appended.

mod clients;
mod cluster;
mod driver;
mod model;
mod vacant;

use super::*;
use crate::engine::{Event, History};
use crate::simulation::simulate;
use cluster::{PUBLISHERS, Plane};
use model::{KEEP, Member, decode, index_of, limits, room};
use std::collections::{HashMap, HashSet};
use stentor_hub::Epoch;
use stentor_ports::Ledger;

const START: Position = Position { epoch: Epoch::NONE, offset: 0 };
const ROOMS: [&str; 2] = ["a", "b"];
/// Number of epochs that the machine may draw for detours.
const DETOUR_EPOCHS: u64 = 3;

/// The members of a node's rooms.
#[derive(Default)]
struct Members {
    members: [Option<Member>; ROOMS.len()],
    /// Number of messages when a member came that waits for all of them. `None` if no member waits.
    confirms: [Option<usize>; ROOMS.len()],
    /// For a member's socket that is to be given away: the result of [`Rooms::handle_prove`], and the number of
    /// messages then.
    proofs: [Option<(u64, usize)>; ROOMS.len()],
}

type Cluster = cluster::Cluster<Members>;

fn vacant_rooms(max: usize) -> VacantRooms {
    VacantRooms::new(max, Duration::ZERO, Arc::new(Ledger::new(usize::MAX)))
}

impl Plane for Members {
    fn update(cluster: &mut Cluster, index: usize, room: &Room, update: RoomUpdate) {
        let i = index_of(room);
        let newest = cluster.nodes[index].plane.members[i].as_ref().and_then(|member| member.newest);
        let kept = cluster.kept(room, newest.unwrap_or(START));
        let node = &mut cluster.nodes[index];
        let member = node.plane.members[i].as_mut().expect("it has subscribers");
        if matches!(update, RoomUpdate::Confirmed) {
            let waits = node.plane.confirms[i].take().expect("a member waits");
            // In an empty room, each position that a client names counts as lost.
            let is_there = member.expected.is_none_or(|next| next >= waits);
            assert!(is_there || member.newest == Some(START));
        } else {
            member.update(update, &cluster.truth[i], node.answered_at[i], &kept);
        }
    }
}

impl Cluster {
    fn of(nodes: usize) -> Self {
        Self::new((0..nodes).map(|_| Members::default()), 1)
    }

    /// Two nodes; the second one has members of room 0.
    fn with_member() -> Self {
        let mut cluster = Self::of(2);
        cluster.set_interest(1, 0, true);
        cluster.run_until_idle();
        cluster
    }

    /// One node, which has members of room 0.
    fn alone() -> Self {
        let mut cluster = Self::of(1);
        cluster.set_interest(0, 0, true);
        cluster.run_until_idle();
        cluster
    }

    fn set_interest(&mut self, index: usize, room_index: usize, has_subscribers: bool) {
        let Members { members, confirms, proofs } = &mut self.nodes[index].plane;
        members[room_index] = has_subscribers.then(Member::default);
        (confirms[room_index], proofs[room_index]) = (None, None);
        self.report_interest(index, &room(room_index), has_subscribers);
    }

    /// A member comes and waits for all messages appended so far.
    fn confirm(&mut self, index: usize, room_index: usize) {
        let node = &mut self.nodes[index];
        if node.plane.members[room_index].as_ref().is_some_and(|member| member.newest.is_some()) {
            node.plane.confirms[room_index] = Some(self.truth[room_index].0.len());
            node.rooms.handle_confirm(&room(room_index));
            self.collect(index);
        }
    }

    /// Requests that the room's core reads all current messages, as before a member's socket moves to another node.
    fn prove(&mut self, index: usize, room_index: usize) {
        let node = &mut self.nodes[index];
        if node.plane.members[room_index].is_some() && node.plane.proofs[room_index].is_none() {
            let since = node.rooms.handle_prove(&room(room_index));
            node.plane.proofs[room_index] = Some((since, self.truth[room_index].0.len()));
            self.collect(index);
        }
    }

    /// After the read, a member whose socket is given away has all messages appended before the request, or was
    /// notified of a gap.
    fn check_proofs(&mut self) {
        for node in &mut self.nodes {
            for (i, proof) in node.plane.proofs.iter_mut().enumerate() {
                let is_read = |(since, _): &mut (u64, usize)| node.rooms.is_read(&room(i), *since);
                let Some((_, published)) = proof.take_if(is_read) else { continue };
                let member = node.plane.members[i].as_ref().expect("it has members");
                let has_all = member.expected.is_none_or(|next| next >= published);
                assert!(has_all || member.newest == Some(START), "{published} messages, {member:?}");
            }
        }
    }

    fn member(&self, index: usize, room_index: usize) -> &Member {
        self.nodes[index].plane.members[room_index].as_ref().expect("subscribers")
    }

    fn resyncs(&self, index: usize) -> Vec<(&'static str, u64)> {
        let resyncs = self.nodes[index].rooms.stats().resyncs;
        resyncs.into_iter().filter(|(_, n)| *n > 0).map(|(reason, n)| (reason.name(), n)).collect()
    }

    /// Checks that every member has all messages, and that no request and no publisher waits.
    fn check_complete(&mut self, seed: u64) {
        for index in 0..self.nodes.len() {
            for i in 0..ROOMS.len() {
                let head = self.head(room(i));
                let Some(member) = &self.nodes[index].plane.members[i] else { continue };
                assert_eq!(member.newest, Some(head), "seed {seed}");
                assert_eq!(member.expected, Some(self.truth[i].0.len()), "seed {seed}");
            }
            let rooms = &self.nodes[index].rooms;
            let stats = rooms.stats();
            assert_eq!((stats.appends, stats.append_bytes, stats.reading), (0, 0, 0), "seed {seed}");
            assert_eq!(
                (stats.waiting_bytes, rooms.asked.len(), rooms.reads.due.len()),
                (0, 0, 0),
                "seed {seed}"
            );
            assert!(self.nodes[index].publishers.iter().all(|publisher| publisher.waits.is_none()));
            let Members { confirms, proofs, .. } = &self.nodes[index].plane;
            assert_eq!((*confirms, *proofs), ([None; ROOMS.len()], [None; ROOMS.len()]), "seed {seed}");
        }
    }

    /// Checks that each publisher's messages are in its order, and once per epoch.
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
    let mut cluster = Cluster::of(3);
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
fn a_lost_last_message_is_noticed_within_half_a_minute() {
    let mut cluster = Cluster::with_member();
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
    // The node can't know whether the first message is the only one that it missed.
    assert_eq!(cluster.resyncs(1), [("unproven", 1)]);
    assert_eq!(cluster.nodes[1].rooms.stats().recovered, 1);
}

#[test]
fn a_quiet_room_keeps_its_epoch_as_long_as_it_has_members() {
    let mut cluster = Cluster::with_member();
    let pass_ages = |cluster: &mut Cluster, ages: u32| {
        let steps = ages * u32::try_from(limits().age_max.as_secs() / 10).unwrap();
        for _ in 0..steps {
            cluster.pass(Duration::from_secs(10));
            cluster.run_until_idle();
        }
    };
    for expected in [1, 2] {
        cluster.publish(0, 0, 0);
        cluster.execute(0, false);
        cluster.run_until_idle();
        assert_eq!((cluster.member(1, 0).received, cluster.member(1, 0).gaps), (expected, 0));
        pass_ages(&mut cluster, 10);
    }
    assert_eq!(cluster.resyncs(1), []);
    // Without members, the room expires a minute after its last message.
    let epoch = cluster.head(room(0)).epoch;
    cluster.set_interest(1, 0, false);
    pass_ages(&mut cluster, 1);
    cluster.publish(0, 0, 0);
    cluster.execute(0, false);
    assert_ne!(cluster.head(room(0)).epoch, epoch);
}

#[test]
fn a_room_that_has_an_epoch_before_its_first_message_proves_that_nothing_is_missing() {
    let mut cluster = Cluster::of(2);
    cluster.bus.begin_rooms_when_read();
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
fn messages_missed_during_a_lost_connection_are_read() {
    for (missed, resyncs) in [(0, vec![]), (KEEP, vec![]), (KEEP + 1, vec![("truncated", 1)])] {
        let mut cluster = Cluster::with_member();
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
fn messages_that_no_node_sent_have_no_position() {
    for already in [0, 1] {
        let mut cluster = Cluster::with_member();
        (0..already).for_each(|_| cluster.publish(0, 1, 0));
        cluster.run_until_idle();
        let newest = cluster.head(room(0));
        let forged = [newest.epoch, Epoch(99)]
            .into_iter()
            .flat_map(|epoch| [1, 5].map(|more| Position { epoch, offset: newest.offset + more }));
        for position in forged {
            cluster.forge(0, position);
            // The forged messages arrive before the real one, and while the history is read.
            cluster.deliver(1);
            cluster.forge(0, position);
        }
        cluster.publish(0, 1, 0);
        cluster.run_until_idle();
        cluster.check_complete(1);
        let member = cluster.member(1, 0);
        assert_eq!((member.received, member.gaps, cluster.resyncs(1)), (already + 1, 0, vec![]));
    }
}

#[test]
fn an_engine_that_forgets_or_goes_back_is_announced() {
    let mut cluster = Cluster::of(1);
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
    // Fewer messages within the same epoch. No engine should answer this.
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

/// Sentinel makes A the primary, then B, then A again, and so on. Members receive no message of an epoch that they have left, and
/// each change is announced.
#[test]
fn an_engine_that_returns_to_an_epoch_begins_another_one() {
    simulate(0..300, 60, |run| {
        let mut cluster = Cluster::new((0..3).map(|_| Members::default()), run.seed);
        if run.seed % 2 == 0 {
            cluster.bus.begin_rooms_when_read();
        }
        (0..3).for_each(|index| cluster.set_interest(index, 0, true));
        cluster.run_until_idle();
        let mut epochs: [Vec<Epoch>; 3] = Default::default();
        for step in run.steps.clone() {
            cluster.random = run.random(step);
            let index = cluster.random.usize(..3);
            match cluster.random.u32(..16) {
                0 => {
                    run.note(step, "the other server becomes the primary");
                    cluster.run_until_idle();
                    cluster.bus.change_primary();
                    for index in 0..3 {
                        cluster.disconnect(index);
                        cluster.connect(index);
                    }
                    cluster.heal();
                }
                1..=6 => {
                    run.note(step, format!("node {index} publishes"));
                    cluster.publish(index, 1, 0);
                }
                7..=10 => cluster.execute(index, false),
                _ => cluster.run_until_idle(),
            }
            for (index, known) in epochs.iter_mut().enumerate() {
                let Some(Position { epoch, .. }) = cluster.member(index, 0).newest else { continue };
                if known.last() != Some(&epoch) {
                    assert!(epoch == Epoch::NONE || !known.contains(&epoch), "{epoch:?} again: {known:?}");
                    known.push(epoch);
                }
            }
        }
        // Members still receive new messages.
        let received = [0, 1, 2].map(|index| cluster.member(index, 0).received);
        cluster.heal();
        cluster.publish(0, 1, 0);
        cluster.run_until_idle();
        cluster.check_complete(run.seed);
        for (index, before) in received.into_iter().enumerate() {
            assert!(cluster.member(index, 0).received > before);
        }
    });
}

/// Redis without memory answers reads, and refuses to end an epoch.
#[test]
fn a_replaced_epoch_is_not_accepted_while_the_engine_refuses_to_end_it() {
    for (refusal, is_accepted) in [
        (EngineError::Refused("out of memory".into()), false),
        (EngineError::Full, false),
        (EngineError::Unsupported, true),
    ] {
        let mut cluster = Cluster::alone();
        let publish = |cluster: &mut Cluster| {
            cluster.publish(0, 0, 0);
            cluster.heal();
            cluster.member(0, 0).newest.expect("a position").epoch
        };
        let change_primary = |cluster: &mut Cluster| {
            cluster.bus.change_primary();
            cluster.disconnect(0);
            cluster.connect(0);
        };
        let first = publish(&mut cluster);
        change_primary(&mut cluster);
        let second = publish(&mut cluster);
        assert_ne!(first, second);
        cluster.end_refusal = Some(refusal);
        change_primary(&mut cluster);
        cluster.heal();
        let current = cluster.member(0, 0).newest.expect("a position").epoch;
        assert_eq!(current, if is_accepted { first } else { second });
        if !is_accepted {
            cluster.end_refusal = None;
            assert!(![first, second].contains(&publish(&mut cluster)));
        }
    }
}

/// The node repeats the append. An engine that has lost its data no longer knows the idempotency key.
#[test]
fn a_message_whose_answer_is_lost_has_one_position_per_epoch() {
    for (forgets, positions) in [(false, 1), (true, 2)] {
        let mut cluster = Cluster::with_member();
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
    let mut cluster = Cluster::alone();
    cluster.confirm(0, 0);
    cluster.run_until_idle();
    cluster.check_complete(1);
    assert_eq!((cluster.resyncs(0), cluster.member(0, 0).gaps), (vec![], 0));
}

#[test]
fn members_that_come_all_the_time_do_not_keep_others_waiting() {
    let mut cluster = Cluster::alone();
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
    let mut cluster = Cluster::alone();
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
fn waiting_messages_are_bounded() {
    let mut cluster = Cluster::of(2);
    cluster.is_up = false;
    // Publishers are refused for now, and served when the engine is back.
    let publish = |cluster: &mut Cluster| {
        let rooms = &mut cluster.nodes[0].rooms;
        let result = rooms.handle_publish(cluster.now, &room(0), "m".into(), (None, None), None);
        cluster.collect(0);
        result
    };
    while publish(&mut cluster).is_ok() {}
    assert_eq!(cluster.nodes[0].rooms.stats().appends, appends::APPENDS_MAX);
    let mut large = Rooms::<()>::new(NodeId(1), Vec::new(), Duration::from_secs(1), vacant_rooms(1));
    let payload = Bytes::from(vec![b'm'; appends::APPENDS_BYTES_MAX + 1]);
    assert_eq!(large.handle_publish(cluster.now, &room(0), payload, (None, None), None), Ok(()));
    assert_eq!(large.handle_publish(cluster.now, &room(0), "m".into(), (None, None), None), Err(None));
    cluster.is_up = true;
    for _ in 0..2 * appends::APPENDS_MAX {
        cluster.pass(Duration::from_millis(1));
        cluster.run_until_idle();
    }
    assert_eq!(publish(&mut cluster), Ok(()));
    // Messages that wait for a read of the history are bounded, too.
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

/// The rooms of a node, for tests that answer its requests themselves.
fn alone() -> Rooms<()> {
    let limits = HistoryLimits { publications_max: 9, ..limits() };
    Rooms::new(NodeId(1), vec![(String::new(), limits)], RETRY_DELAY, vacant_rooms(1))
}

const MESSAGE_BYTES: usize = 1_000;

/// An answer of the engine: one message of a history.
fn part(offset: u64, head: u64) -> History {
    let position = |offset| Position { epoch: Epoch(1), offset };
    let messages = vec![(position(offset), Bytes::from(vec![b'm'; MESSAGE_BYTES]))];
    History { head: Some(position(head)), messages, truncated: false }
}

#[test]
fn few_histories_are_held_in_part_and_these_are_charged() {
    const PARTS: u64 = 3;
    let mut rooms = alone();
    for i in 0..10 * reads::READS_MAX {
        rooms.handle_interest(&Room::plain(&i.to_string()).expect("a room"), true);
    }
    let (mut read, mut held) = (0, Vec::new());
    while let Some(output) = rooms.poll_output() {
        match output {
            Output::Request(number, Request::History { since, .. }) => {
                let reply = Reply::History(part(since.offset + 1, PARTS));
                rooms.handle_reply(Instant::now(), number, Ok(reply), decode);
                held.push(rooms.held_bytes());
            }
            Output::Room(_, RoomUpdate::History { messages, .. }) => {
                assert_eq!(messages.len() as u64, PARTS);
                read += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(held[0] >= MESSAGE_BYTES, "the first part is charged");
    // Parts, and whole histories on their way to the cores.
    let most = 2 * PARTS as usize * reads::READS_MAX * MESSAGE_BYTES;
    assert!(held.iter().all(|held| *held <= most), "{held:?}");
    assert_eq!((read, rooms.held_bytes()), (10 * reads::READS_MAX, 0));
}

#[test]
fn the_part_of_a_history_that_the_engine_loses_is_forgotten() {
    let mut rooms = alone();
    rooms.handle_interest(&room(0), true);
    for history in [part(1, 2), History { head: None, messages: Vec::new(), truncated: false }] {
        let Some(Output::Request(number, Request::History { .. })) = rooms.poll_output() else { panic!() };
        rooms.handle_reply(Instant::now(), number, Ok(Reply::History(history)), decode);
    }
    let output = rooms.poll_output();
    assert!(
        matches!(&output, Some(Output::Room(_, RoomUpdate::History { messages, .. })) if messages.is_empty())
    );
    assert_eq!(rooms.held_bytes(), 0);
}

/// Clients publish on all nodes, members join and leave, messages and connections are lost, and the engine is unreachable,
/// answers late, or loses its data. `Member` checks each update. After the faults, every member has all messages.
#[test]
fn rooms_survive_faults_and_no_loss_is_silent() {
    let (mut received, mut gaps, mut refused, mut recovered) = (0, 0, 0, 0);
    let mut reasons: HashSet<&str> = HashSet::new();
    simulate(0..3_000, 400, |run| {
        let seed = run.seed;
        let mut cluster = Cluster::new((0..3).map(|_| Members::default()), seed);
        if seed % 2 == 0 {
            cluster.bus.begin_rooms_when_read();
        }
        for step in run.steps.clone() {
            cluster.random = run.random(step);
            let index = cluster.random.usize(..cluster.nodes.len());
            let i = cluster.random.usize(..ROOMS.len());
            match cluster.random.u32(..66) {
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
                17 => {
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
                18 if cluster.random.u32(..4) == 0 => {
                    run.note(step, format!("something else is published to room {i}"));
                    cluster.intrude(i);
                }
                18 if cluster.random.u32(..3) == 0 => {
                    run.note(
                        step,
                        format!("something else takes the next position on the channel of room {i}"),
                    );
                    let head = cluster.head(room(i));
                    cluster.forge(i, Position { offset: head.offset + 1, ..head });
                }
                18 => {
                    run.note(step, format!("node {index} confirms room {i}"));
                    cluster.confirm(index, i);
                }
                64 | 65 => {
                    run.note(step, format!("node {index} is asked for a socket in room {i}"));
                    cluster.prove(index, i);
                }
                _ => cluster.step(run, step, index, true),
            }
            cluster.check_proofs();
        }
        cluster.heal();
        cluster.check_proofs();
        cluster.check_complete(seed);
        cluster.check_publishers(seed);
        for index in 0..3 {
            let node = &cluster.nodes[index];
            received += node.plane.members.iter().flatten().map(|member| member.received).sum::<usize>();
            gaps += node.plane.members.iter().flatten().map(|member| member.gaps).sum::<usize>();
            recovered += node.rooms.stats().recovered;
            reasons.extend(cluster.resyncs(index).into_iter().map(|(reason, _)| reason));
        }
        refused += cluster.refused;
    });
    // The faults have occurred, and messages have arrived nevertheless.
    let counts = (received, gaps, refused, recovered);
    assert!(received > 10_000 && gaps > 1_000 && refused > 100 && recovered > 100, "{counts:?}");
    for reason in ["truncated", "epoch", "forgotten", "unproven", "unreadable"] {
        assert!(reasons.contains(reason), "{reason}");
    }
}
