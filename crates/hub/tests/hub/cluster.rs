//! A node in a cluster: the engine or another node assigns the positions of rooms and feeds.

use crate::node::{Node, feed_at_0, kept_at_0, room};
use bytes::Bytes;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;
use stentor_hub::{
    Body, Data, Document, Emit, Epoch, FeedState, HistoryMessage, Key, Notice, Policy, Position,
    RecoveryLimits, ResumeError, Room, SessionId, Topic,
};

fn at(epoch: u64, offset: u64) -> Position {
    Position { epoch: Epoch(epoch), offset }
}

fn messages(offsets: impl IntoIterator<Item = u64>) -> Vec<HistoryMessage> {
    let message = |offset: u64| HistoryMessage { offset, event: None, data: data(offset) };
    offsets.into_iter().map(message).collect()
}

fn data(offset: u64) -> Data {
    Data::Text(Bytes::from(format!("m{offset}")))
}

/// A node with two cores. The room's home is core 0.
struct Rig {
    node: Node,
    room: Room,
    topic: Topic,
    /// Cores and sessions with a gap notice. `check` removes the entries that it expects.
    gaps: Vec<(usize, SessionId)>,
}

fn clustered() -> Node {
    Node::with(2, |options| (options.external_positions, options.reports_rooms) = (true, true))
}

fn rig() -> Rig {
    let (room, topic) = kept_at_0();
    Rig { node: clustered(), room, topic, gaps: Vec::new() }
}

impl Rig {
    fn join(&mut self, core: usize, since: Option<Position>) -> SessionId {
        let session = self.node.open(core);
        self.node.hubs[core].handle_subscribe(session, &self.topic, Policy::Queue, since).unwrap();
        self.node.run_until_idle();
        session
    }

    fn history(&mut self, after: Position, offsets: impl IntoIterator<Item = u64>) {
        self.node.hubs[0].handle_history(self.node.now, &self.room, after, messages(offsets));
        self.node.run_until_idle();
    }

    /// Confirms that the engine has no newer messages than this node. Returns the number of cores that asked.
    fn confirm(&mut self) -> usize {
        let hubs = self.node.hubs.iter_mut();
        let rooms: Vec<Topic> = hubs.flat_map(|hub| std::iter::from_fn(|| hub.poll_unconfirmed())).collect();
        assert!(rooms.iter().all(|room| *room == self.topic));
        if !rooms.is_empty() {
            self.node.hubs[0].handle_confirmed(&self.room);
            self.node.run_until_idle();
        }
        rooms.len()
    }

    fn positioned(&mut self, position: Position) -> bool {
        let (now, data, room) = (self.node.now, data(position.offset), self.room.clone());
        let delivered =
            self.node.hubs[0].handle_positioned(now, &room, position, None, data, Emit::default());
        self.node.run_until_idle();
        delivered
    }

    fn check(&mut self, sessions: &[SessionId; 2], expect: &[&str], gap: bool) {
        for (core, session) in sessions.iter().enumerate() {
            if gap {
                assert_eq!(self.node.take(core, *session), [""; 0], "the notice comes first, on core {core}");
            }
            while let Some(notice) = self.node.hubs[core].poll_notice() {
                assert!(matches!(&notice, Notice::Gap { topic, .. } if *topic == self.topic));
                self.gaps.push((core, notice.session()));
            }
            assert_eq!(self.node.take(core, *session), expect, "core {core}");
            let before = self.gaps.len();
            self.gaps.retain(|notified| *notified != (core, *session));
            assert_eq!(before - self.gaps.len(), usize::from(gap), "core {core}");
        }
    }
}

#[test]
fn messages_have_the_positions_they_are_given_and_never_go_back() {
    let mut rig = rig();
    let sessions = [rig.join(0, None), rig.join(1, None)];
    assert!(!rig.positioned(at(7, 4)), "the history is unknown");
    rig.history(at(7, 3), [4, 5]);
    rig.check(&sessions, &[], false);
    for (offset, delivered) in [(5, false), (6, true), (6, false), (2, false), (9, true), (8, false)] {
        assert_eq!(rig.positioned(at(7, offset)), delivered, "{offset}");
    }
    let newest = [0, 1].map(|core| {
        let mut positions = Vec::new();
        rig.node.hubs[core].take(sessions[core], usize::MAX, usize::MAX, |publication, _| {
            let Body::Message { position, .. } = publication.body() else { panic!() };
            positions.push(position.unwrap());
        });
        positions
    });
    assert_eq!(newest, [[at(7, 6), at(7, 9)], [at(7, 6), at(7, 9)]]);
    // Reconnecting clients receive all messages after their position, even if offsets have gaps.
    for (since, expect) in [(3, &["m4", "m5", "m6", "m9"][..]), (6, &["m9"]), (7, &["m9"]), (9, &[])] {
        let sessions = [rig.join(0, Some(at(7, since))), rig.join(1, Some(at(7, since)))];
        rig.check(&sessions, expect, false);
    }
    let sessions = [rig.join(0, Some(at(7, 2))), rig.join(1, Some(at(7, 2)))];
    rig.check(&sessions, &[], true);
    assert_eq!(rig.confirm(), 0);
    for since in [at(7, 10), at(6, 5)] {
        let sessions = [rig.join(0, Some(since)), rig.join(1, Some(since))];
        rig.check(&sessions, &[], false);
        assert_eq!(rig.confirm(), 1);
        rig.check(&sessions, &[], true);
    }
}

/// The clients were connected to a node that has received more messages than this node.
#[test]
fn members_with_newer_positions_wait_until_this_node_has_caught_up() {
    let mut rig = rig();
    let others = [rig.join(0, None), rig.join(1, None)];
    rig.history(at(7, 3), [4]);
    let sessions = [rig.join(0, Some(at(7, 6))), rig.join(1, Some(at(7, 6)))];
    let late = [rig.join(0, Some(at(6, 9))), rig.join(1, Some(at(6, 9)))];
    let left = [rig.join(0, Some(at(7, 6))), rig.join(1, Some(at(7, 6)))];
    for core in [0, 1] {
        assert!(rig.node.hubs[core].handle_unsubscribe(left[core], &rig.topic));
    }
    for offset in 5..8 {
        assert!(rig.positioned(at(7, offset)));
    }
    // Waiting members don't receive messages with an excepted session either.
    let (now, room) = (rig.node.now, rig.room.clone());
    let except = Emit::default().except_session(0, others[0]);
    assert!(rig.node.hubs[0].handle_positioned(now, &room, at(7, 8), None, data(8), except));
    rig.node.run_until_idle();
    for sessions in [sessions, late, left] {
        rig.check(&sessions, &[], false);
    }
    assert_eq!(rig.confirm(), 1);
    rig.check(&sessions, &["m7", "m8"], false);
    rig.check(&late, &[], true);
    rig.check(&left, &[], false);
    // The clients have a position of an epoch that this node hasn't seen yet.
    let sessions = [rig.join(0, Some(at(8, 1))), rig.join(1, Some(at(8, 1)))];
    assert!(rig.positioned(at(8, 1)) && rig.positioned(at(8, 2)));
    rig.check(&sessions, &[], false);
    assert_eq!(rig.confirm(), 1);
    rig.check(&sessions, &["m2"], false);
    assert!(rig.positioned(at(8, 3)));
    for sessions in [sessions, late] {
        assert_eq!(rig.node.take(0, sessions[0]).last().unwrap(), "m3");
        assert_eq!(rig.node.take(1, sessions[1]).last().unwrap(), "m3");
    }
    assert_eq!(rig.confirm(), 0);
}

/// While a session waits for its room's position, the node reports that the room has subscribers, but the
/// room has no member.
#[test]
fn a_core_prepares_a_room_for_a_session() {
    for core in [0, 1] {
        let mut rig = rig();
        let (room, topic) = (rig.room.clone(), rig.topic.clone());
        assert!(!rig.node.hubs[core].handle_prepare(&room));
        rig.node.run_until_idle();
        assert_eq!(rig.node.hubs[0].poll_subscribed(), Some((topic.clone(), true)));
        assert_eq!((rig.node.hubs[core].poll_prepared(), rig.node.hubs[core].member_count(&room)), (None, 0));
        rig.history(at(7, 3), [4, 5]);
        assert_eq!(rig.node.hubs[core].poll_prepared(), Some(room.clone()));
        // The room is ready, so further sessions don't wait.
        assert!(rig.node.hubs[core].handle_prepare(&room));
        let session = rig.node.open(core);
        rig.node.hubs[core].handle_subscribe(session, &topic, Policy::Queue, None).unwrap();
        rig.node.hubs[core].handle_release(&room);
        // The session receives the message even if the home core hasn't handled the subscription yet: the
        // home core sends to every core that has prepared the room.
        assert!(rig.positioned(at(7, 6)));
        rig.node.run_until_idle();
        assert_eq!(rig.node.hubs[0].poll_subscribed(), None);
        assert_eq!(rig.node.take(core, session), ["m6"]);
        assert!(rig.node.hubs[core].handle_unsubscribe(session, &topic));
        rig.node.run_until_idle();
        assert_eq!(rig.node.hubs[0].poll_subscribed(), Some((topic, false)));
        // A session that stops waiting leaves no state behind.
        assert!(!rig.node.hubs[core].handle_prepare(&room));
        rig.node.hubs[core].handle_release(&room);
        rig.node.run_until_idle();
        assert_eq!(rig.node.hubs[0].poll_subscribed(), None);
        assert_eq!(rig.node.hubs.iter().map(|hub| hub.topics()).sum::<usize>(), 0);
    }
}

/// The home core answers the first request, then forgets the history because the requesting core has released
/// the room.
#[test]
fn an_answer_to_an_earlier_preparation_is_ignored() {
    let mut rig = rig();
    let room = rig.room.clone();
    assert!(!rig.node.hubs[1].handle_prepare(&room));
    rig.node.pass(1, 0);
    assert!(rig.node.hubs[0].poll_subscribed().is_some());
    rig.node.hubs[0].handle_history(rig.node.now, &room, at(7, 3), Vec::new());
    rig.node.hubs[1].handle_release(&room);
    rig.node.pass(1, 0);
    assert!(rig.node.hubs[0].poll_subscribed().is_some_and(|(_, has_subscribers)| !has_subscribers));
    assert!(!rig.node.hubs[1].handle_prepare(&room));
    rig.node.run_until_idle();
    assert_eq!(rig.node.hubs[1].poll_prepared(), None);
    rig.history(at(7, 5), []);
    assert_eq!(rig.node.hubs[1].poll_prepared(), Some(room));
}

#[test]
fn this_node_assigns_no_position() {
    let mut rig = rig();
    let sessions = [rig.join(0, None), rig.join(1, None)];
    rig.history(at(7, 0), []);
    let room = rig.room.clone();
    rig.node.publish(1, &room, "own");
    rig.node.run_until_idle();
    assert_eq!(rig.node.position(0, sessions[0]), None);
    assert_eq!(rig.node.take(1, sessions[1]), ["own"]);
    assert_eq!(rig.node.hubs[0].history_stats().publications, 0);
}

#[test]
fn reconnecting_clients_wait_until_the_history_is_known() {
    let mut rig = rig();
    let sessions = [rig.join(0, Some(at(7, 4))), rig.join(1, Some(at(7, 4)))];
    let expired = [rig.join(0, Some(at(7, 1))), rig.join(1, Some(at(6, 4)))];
    let new = [rig.join(0, None), rig.join(1, None)];
    let left = [rig.join(0, Some(at(7, 4))), rig.join(1, Some(at(7, 4)))];
    for core in [0, 1] {
        assert!(rig.node.hubs[core].handle_unsubscribe(left[core], &rig.topic));
    }
    rig.check(&sessions, &[], false);
    assert!(rig.node.hubs[1].footprint().subscriptions > 0);
    rig.history(at(7, 3), 4..7);
    rig.check(&sessions, &["m5", "m6"], false);
    // Until the engine confirms, a position of another epoch may be newer than the history that was read.
    assert_eq!(rig.confirm(), 1);
    rig.check(&expired, &[], true);
    rig.check(&new, &[], false);
    rig.check(&left, &[], false);
    assert!(rig.positioned(at(7, 7)));
    for sessions in [sessions, expired, new] {
        rig.check(&sessions, &["m7"], false);
    }
}

#[test]
fn lost_messages_and_a_new_epoch_are_never_silent() {
    let mut rig = rig();
    let sessions = [rig.join(0, None), rig.join(1, None)];
    rig.history(at(7, 0), [1]);
    // The history is read again: no gap.
    rig.history(at(7, 0), 1..4);
    rig.check(&sessions, &["m2", "m3"], false);
    rig.history(at(7, 3), []);
    rig.check(&sessions, &[], false);
    rig.history(at(7, 1), []);
    rig.check(&sessions, &[], false);
    // The engine no longer has the messages after 3.
    rig.history(at(7, 5), [6]);
    rig.check(&sessions, &["m6"], true);
    assert!(rig.positioned(at(7, 7)));
    rig.check(&sessions, &["m7"], false);
    // The engine has lost its state and starts a new epoch.
    assert!(rig.positioned(at(8, 1)));
    rig.check(&sessions, &["m1"], true);
    assert!(rig.positioned(at(8, 2)));
    rig.check(&sessions, &["m2"], false);
    for (since, expect, gap) in
        [(at(7, 6), &[][..], true), (at(8, 0), &["m1", "m2"], false), (at(8, 1), &["m2"], false)]
    {
        let sessions = [rig.join(0, Some(since)), rig.join(1, Some(since))];
        rig.confirm();
        rig.check(&sessions, expect, gap);
    }
    rig.history(at(9, 0), []);
    rig.check(&sessions, &[], true);
}

#[test]
fn the_first_message_of_a_room_follows_no_gap() {
    let mut rig = rig();
    let sessions = [rig.join(0, None), rig.join(1, None)];
    let expired = [rig.join(0, Some(at(7, 1))), rig.join(1, Some(at(7, 1)))];
    rig.history(Position { epoch: Epoch::NONE, offset: 0 }, []);
    rig.check(&sessions, &[], false);
    rig.confirm();
    rig.check(&expired, &[], true);
    assert!(rig.positioned(at(8, 1)));
    for sessions in [sessions, expired] {
        rig.check(&sessions, &["m1"], false);
    }
}

/// A session with a gap isn't resumed, because resuming would state that the client missed no messages.
#[test]
fn a_suspended_session_that_missed_messages_of_a_room_does_not_resume() {
    let (room, topic) = kept_at_0();
    let recovery = RecoveryLimits { bytes_max: 1 << 20, age_max: Duration::from_secs(60) };
    let node = Node::with(2, |options| {
        (options.external_positions, options.reports_rooms) = (true, true);
        options.recovery = Some(recovery);
    });
    let mut rig = Rig { node, room, topic, gaps: Vec::new() };
    let mut session = rig.join(1, None);
    for polls in [false, true] {
        rig.history(at(7, 0), []);
        assert!(rig.node.hubs[1].handle_suspend(session));
        assert_eq!(rig.node.hubs[1].handle_resume(session, None), Ok(()), "nothing is missed");
        assert!(rig.node.hubs[1].handle_suspend(session));
        rig.history(at(8 + u64::from(polls), 0), []);
        if polls {
            assert_eq!(rig.node.hubs[1].poll_notice(), None);
        }
        let (now, hub) = (rig.node.now, &mut rig.node.hubs[1]);
        assert_eq!(hub.handle_resume(session, None), Err(ResumeError::NotCovered));
        assert_eq!(hub.handle_departure(session, None, usize::MAX).err(), Some(ResumeError::NotCovered));
        let arrived = hub.handle_arrival(now, session, &rig.room, None, Vec::new(), &HashSet::new());
        assert_eq!(arrived, Err(ResumeError::NotCovered));
        hub.handle_close(session);
        session = rig.join(1, None);
    }
}

#[test]
fn interest_in_rooms_is_reported_at_one_core() {
    for name in ["plain", "kept/n"] {
        for reports_rooms in [false, true] {
            let mut node = Node::with(3, |options| options.reports_rooms = reports_rooms);
            let topic = Topic::from(room(name));
            let reporter = node.hubs[0].core_of(&topic);
            let check = |node: &mut Node, expect: &[bool]| {
                node.run_until_idle();
                for core in 0..3 {
                    let expect = if core == reporter && reports_rooms { expect } else { &[] };
                    let reports: Vec<_> = std::iter::from_fn(|| node.hubs[core].poll_subscribed()).collect();
                    let expect: Vec<_> = expect.iter().map(|level| (topic.clone(), *level)).collect();
                    assert_eq!(reports, expect, "{name}, core {core}");
                }
            };
            let sessions: Vec<_> = (0..3).map(|core| node.open(core)).collect();
            for first in 0..3 {
                node.subscribe(first, sessions[first], &topic, Policy::Queue);
                check(&mut node, &[true]);
                let second = (first + 1) % 3;
                node.subscribe(second, sessions[second], &topic, Policy::Queue);
                check(&mut node, &[]);
                node.hubs[first].handle_unsubscribe(sessions[first], &topic);
                check(&mut node, &[]);
                node.hubs[second].handle_unsubscribe(sessions[second], &topic);
                check(&mut node, &[false]);
            }
            assert!((0..3).all(|core| node.hubs[core].topics() == 0));
        }
    }
}

/// Without subscribers the node doesn't receive the engine's messages, so the history must be read again.
#[test]
fn a_room_without_subscribers_forgets_its_history() {
    let mut rig = rig();
    let report = |rig: &mut Rig| rig.node.hubs[0].poll_subscribed().map(|(_, level)| level);
    let first = rig.join(1, None);
    assert_eq!(report(&mut rig), Some(true));
    rig.history(at(7, 0), 1..4);
    // A subscriber that joins before the report keeps the history.
    rig.node.hubs[1].handle_close(first);
    rig.node.run_until_idle();
    let second = rig.join(1, Some(at(7, 2)));
    assert_eq!((report(&mut rig), rig.node.take(1, second)), (None, vec!["m3".to_owned()]));
    rig.node.hubs[1].handle_close(second);
    rig.node.run_until_idle();
    assert_eq!(report(&mut rig), Some(false));
    assert_eq!((rig.node.hubs[0].history_stats().publications, rig.node.hubs[0].topics()), (0, 0));
    rig.history(at(7, 0), 1..4);
    assert!(!rig.positioned(at(7, 4)));
    let third = rig.join(1, Some(at(7, 2)));
    assert_eq!(report(&mut rig), Some(true));
    assert_eq!(rig.node.take(1, third), Vec::<String>::new());
    rig.history(at(7, 0), 1..6);
    assert_eq!(rig.node.take(1, third), ["m3", "m4", "m5"]);
    assert_eq!(report(&mut rig), None);
}

struct Client {
    core: usize,
    session: SessionId,
    /// Position of the last received message. `None` if the next message may have any position.
    last: Option<Position>,
}

/// An engine that evicts its messages and starts new epochs; a node that receives some messages immediately
/// and sometimes reads the history; sessions on two cores that join, leave and reconnect.
struct Seeded {
    random: fastrand::Rng,
    rig: Rig,
    /// Positions of all messages ever published, oldest first.
    all: Vec<Position>,
    newest: Position,
    /// The position from which on the engine's history is complete.
    after: Position,
    /// Newest position that the node has received or read. `None` while the node doesn't know the room's
    /// history.
    read: Option<Position>,
    clients: Vec<Client>,
    seen: BTreeMap<&'static str, u64>,
}

impl Seeded {
    fn step(&mut self) {
        match self.random.u8(..16) {
            0..6 => self.publish(),
            6 => self.after = self.newest,
            7 if self.random.u8(..4) == 0 => {
                let epoch = self.newest.epoch.0 + 1;
                (self.newest, self.after) = (at(epoch, 0), at(epoch, 0));
            }
            8..10 => self.read(),
            10..12 => {
                let core = self.random.usize(..2);
                // Some clients come from another node, which may have received more messages than this one.
                let last = (!self.all.is_empty() && self.random.u8(..3) == 0)
                    .then(|| self.all[self.all.len() - 1 - self.random.usize(..self.all.len().min(10))]);
                let session = self.rig.join(core, last);
                self.clients.push(Client { core, session, last });
            }
            12..15 if !self.clients.is_empty() => {
                let client = self.random.usize(..self.clients.len());
                let Client { core, session, last } = self.clients.swap_remove(client);
                self.rig.node.hubs[core].handle_close(session);
                self.rig.node.run_until_idle();
                if last.is_some() {
                    let core = self.random.usize(..2);
                    let session = self.rig.join(core, last);
                    self.clients.push(Client { core, session, last });
                    *self.seen.entry("reconnected").or_default() += 1;
                }
            }
            _ => {}
        }
        self.take();
    }

    fn publish(&mut self) {
        let before = self.newest;
        self.newest.offset += self.random.u64(1..3);
        self.all.push(self.newest);
        let is_next = self.read == Some(before) || (self.read.is_some() && before.offset == 0);
        if is_next && self.random.u8(..4) > 0 {
            assert!(self.rig.positioned(self.newest));
            self.read = Some(self.newest);
        }
        if before.offset > 0
            && self.read.is_some_and(|read| read.epoch == before.epoch && read.offset >= before.offset)
        {
            assert!(!self.rig.positioned(before), "it comes again");
        }
    }

    fn read(&mut self) {
        let reports: Vec<_> = std::iter::from_fn(|| self.rig.node.hubs[0].poll_subscribed()).collect();
        if !self.clients.is_empty() {
            let kept =
                self.all.iter().filter(|p| p.epoch == self.after.epoch && p.offset > self.after.offset);
            let kept: Vec<u64> = kept.map(|position| position.offset).collect();
            self.rig.history(self.after, kept);
            self.read = Some(self.newest);
            *self.seen.entry("confirmed").or_default() += u64::from(self.rig.confirm() > 0);
        } else if !reports.is_empty() {
            self.read = None;
        }
    }

    /// Takes all clients' messages. Checks that each message directly follows the client's previous message,
    /// unless the client was notified of a gap.
    fn take(&mut self) {
        let mut gaps = Vec::new();
        for core in [0, 1] {
            while let Some(notice) = self.rig.node.hubs[core].poll_notice() {
                gaps.push((core, notice.session()));
                *self.seen.entry("gap").or_default() += 1;
            }
        }
        for client in &mut self.clients {
            let mut may_skip = gaps.contains(&(client.core, client.session));
            let hub = &mut self.rig.node.hubs[client.core];
            hub.take(client.session, usize::MAX, usize::MAX, |publication, _| {
                let Body::Message { position: Some(position), .. } = publication.body() else { panic!() };
                let index = self.all.iter().position(|one| one == position).unwrap();
                let before = index.checked_sub(1).map(|before| self.all[before]);
                let follows = client.last.is_none() || client.last == before;
                assert!(follows || may_skip, "{position:?} after {:?}", client.last);
                may_skip &= follows;
                let last = client.last.and_then(|last| self.all.iter().position(|one| *one == last));
                assert!(last.is_none_or(|last| last < index), "{position:?} again");
                client.last = Some(*position);
                *self.seen.entry("received").or_default() += 1;
            });
            hub.handle_sent(client.session);
            if may_skip {
                client.last = None;
            }
        }
    }
}

#[test]
fn no_message_is_missed_silently() {
    let mut seen = BTreeMap::new();
    for seed in 0..300 {
        println!("seed {seed}");
        let mut world = Seeded {
            random: fastrand::Rng::with_seed(seed),
            rig: rig(),
            all: Vec::new(),
            newest: at(1, 0),
            after: at(1, 0),
            read: None,
            clients: Vec::new(),
            seen: BTreeMap::new(),
        };
        for _ in 0..300 {
            world.step();
        }
        world.read();
        world.take();
        for client in &world.clients {
            assert!(client.last.is_none_or(|last| last == world.newest), "{:?}", client.last);
        }
        for (what, times) in world.seen {
            *seen.entry(what).or_insert(0) += times;
        }
    }
    assert!(seen["received"] > 10_000 && seen["gap"] > 1_000 && seen["reconnected"] > 1_000, "{seen:?}");
    assert!(seen["confirmed"] > 500, "{seen:?}");
}

// Feeds

/// A node that receives a feed from another node, as documents of 60 bytes and patches of 5 bytes.
struct FeedRig {
    node: Node,
    key: Key,
    feed: Topic,
}

fn feed_rig() -> FeedRig {
    let (key, feed) = feed_at_0();
    FeedRig { node: clustered(), key, feed }
}

fn version(n: u64) -> String {
    format!("{n:>60}")
}

impl FeedRig {
    fn join(&mut self, core: usize, since: Option<Position>) -> SessionId {
        let session = self.node.open(core);
        self.node.hubs[core].handle_subscribe(session, &self.feed, Policy::Latest, since).unwrap();
        self.node.run_until_idle();
        session
    }

    /// Handles the version at a position, with the last `patches` patches that lead to this version.
    fn document(&mut self, position: Position, patches: u64) -> bool {
        let body = Bytes::from(version(position.offset));
        let document = Document { body, json: true, content_type: "application/json".into() };
        let patches = position.offset + 1 - patches..=position.offset;
        let patches: Vec<Bytes> = patches.map(|n| Bytes::from(format!("[{n:>3}]"))).collect();
        let is_newer =
            self.node.hubs[0].handle_document_at(&self.key, position, FeedState::Live, document, &patches);
        self.node.run_until_idle();
        is_newer
    }

    fn check(&mut self, sessions: [SessionId; 2], expect: &[String]) {
        for core in [0, 1] {
            assert_eq!(self.node.take(core, sessions[core]), expect, "core {core}");
        }
    }

    /// Asks the engine for all cores with unconfirmed clients, after the engine's `asked`th read. Returns
    /// these cores.
    fn ask(&mut self, asked: u64) -> Vec<usize> {
        let mut cores = Vec::new();
        for (core, hub) in self.node.hubs.iter_mut().enumerate() {
            while let Some(topic) = hub.poll_unconfirmed() {
                assert_eq!(topic, self.feed);
                hub.handle_asked(&self.key, asked);
                cores.push(core);
            }
        }
        cores
    }

    /// Confirms that the engine had no newer version at its `read`th read.
    fn confirm(&mut self, read: u64) {
        self.node.hubs[0].handle_feed_confirmed(&self.key, read);
        self.node.run_until_idle();
    }

    /// Reconnects one client per core with the position `since`, and checks their deliveries.
    fn check_since(&mut self, since: Position, expect: &[String]) {
        let sessions = [self.join(0, Some(since)), self.join(1, Some(since))];
        self.check(sessions, expect);
    }
}

fn whole(n: u64) -> String {
    format!("doc {} live", version(n))
}

fn patch(versions: std::ops::RangeInclusive<u64>) -> String {
    let count = versions.clone().count();
    let steps: Vec<String> = versions.map(|n| format!("{n:>3}")).collect();
    format!("[{}] after {count} versions", steps.join(","))
}

#[test]
fn a_feed_continues_after_another_nodes_version() {
    let mut rig = feed_rig();
    let sessions = [rig.join(0, None), rig.join(1, None)];
    assert!(rig.document(at(7, 10), 3));
    rig.check(sessions, &[whole(10)]);
    assert!(rig.document(at(7, 11), 1));
    rig.check(sessions, &[patch(11..=11)]);
    for old in [at(7, 11), at(7, 3)] {
        assert!(!rig.document(old, 1));
    }
    rig.check(sessions, &[]);
    // Patches that lead to the first version received by this node are used too.
    rig.check_since(at(7, 7), &[patch(8..=11)]);
    rig.check_since(at(7, 6), &[whole(11)]);
    rig.check_since(at(7, 11), &[]);
    rig.check_since(at(7, 12345678), &[whole(11)]);
    assert!(rig.ask(0).is_empty());
    // Clients of a node with newer versions wait until this node has caught up.
    let ahead = [rig.join(0, Some(at(7, 13))), rig.join(1, Some(at(7, 13)))];
    let further = [rig.join(0, Some(at(7, 15))), rig.join(1, Some(at(7, 15)))];
    // This node receives two versions at once.
    assert!(rig.document(at(7, 14), 2));
    rig.check_since(at(7, 12), &[patch(13..=14)]);
    rig.check(ahead, &[patch(14..=14)]);
    rig.check(further, &[]);
    rig.check(sessions, &[whole(14)]);
    assert!(rig.document(at(7, 16), 2));
    rig.check(further, &[patch(16..=16)]);
    rig.check(ahead, &[patch(15..=16)]);
    rig.check(sessions, &[patch(15..=16)]);
    assert!(rig.document(at(7, 20), 0) && rig.document(at(7, 21), 1));
    rig.check_since(at(7, 20), &[patch(21..=21)]);
    rig.check(sessions, &[whole(21)]);
    // A new lease holder may start a new epoch with any offset.
    assert!(rig.document(at(8, 1), 0) && rig.document(at(8, 2), 1));
    rig.check(sessions, &[whole(2)]);
    assert!(rig.document(at(8, 3), 1));
    rig.check(sessions, &[patch(3..=3)]);
    // This node holds the lease from here on.
    let document = Document { body: "9".into(), json: true, content_type: "application/json".into() };
    rig.node.hubs[0].handle_document(&rig.key, FeedState::Live, document, None);
    rig.node.run_until_idle();
    assert_eq!(rig.node.position(1, sessions[1]), Some(at(8, 4)));
}

#[test]
fn clients_that_reconnect_before_the_document_is_here_resume_too() {
    let mut rig = feed_rig();
    let new = [rig.join(0, None), rig.join(1, None)];
    let sessions = [rig.join(0, Some(at(7, 8))), rig.join(1, Some(at(7, 8)))];
    let newest = [rig.join(0, Some(at(7, 10))), rig.join(1, Some(at(7, 10)))];
    let old = [rig.join(0, Some(at(6, 10))), rig.join(1, Some(at(7, 1)))];
    let left = [rig.join(0, Some(at(7, 8))), rig.join(1, Some(at(7, 8)))];
    for core in [0, 1] {
        rig.node.hubs[core].handle_close(left[core]);
    }
    assert!(rig.document(at(7, 10), 3));
    rig.check(new, &[whole(10)]);
    rig.check(sessions, &[patch(9..=10)]);
    rig.check(newest, &[]);
    assert_eq!(rig.node.take(1, old[1]), [whole(10)]);
    // This client has a version of another epoch, which may be newer than the node's.
    assert_eq!(rig.node.take(0, old[0]), [""; 0]);
    assert_eq!(rig.ask(3), [0]);
    rig.confirm(4);
    assert_eq!(rig.node.take(0, old[0]), [whole(10)]);
    assert!(rig.document(at(7, 11), 1));
    for sessions in [new, sessions, newest, old] {
        rig.check(sessions, &[patch(11..=11)]);
    }
}

/// Another node may have started the client's epoch while this node was cut off from the engine.
#[test]
fn clients_of_another_epoch_wait_for_a_later_read_of_the_engine() {
    let mut rig = feed_rig();
    let others = [rig.join(0, None), rig.join(1, None)];
    assert!(rig.document(at(7, 10), 1));
    rig.check(others, &[whole(10)]);
    let join = |rig: &mut FeedRig, since| [rig.join(0, Some(since)), rig.join(1, Some(since))];
    let first = join(&mut rig, at(8, 3));
    assert_eq!(rig.ask(1), [0, 1]);
    let second = join(&mut rig, at(8, 3));
    // This node's own epoch continues, and waiting members receive none of its versions.
    assert!(rig.document(at(7, 11), 1));
    rig.check(others, &[patch(11..=11)]);
    rig.confirm(1);
    for sessions in [first, second] {
        rig.check(sessions, &[]);
    }
    // The node hasn't asked the engine for the second clients yet.
    rig.confirm(2);
    rig.check(first, &[whole(11)]);
    rig.check(second, &[]);
    assert_eq!(rig.ask(2), [0, 1]);
    assert!(rig.ask(2).is_empty(), "once");
    // Once the clients' epoch arrives, a version newer than theirs is delivered without an answer from the
    // engine.
    assert!(rig.document(at(8, 2), 0));
    rig.check(first, &[whole(2)]);
    rig.check(second, &[]);
    rig.confirm(3);
    rig.check(second, &[]);
    assert!(rig.document(at(8, 3), 1) && rig.document(at(8, 4), 1));
    rig.check(second, &[patch(4..=4)]);
    // A client that requests the complete document gets it at once.
    let impatient = join(&mut rig, at(9, 1));
    for core in [0, 1] {
        rig.node.hubs[core].handle_subscribe(impatient[core], &rig.feed, Policy::Latest, None).unwrap();
    }
    rig.check(impatient, &[whole(4)]);
    // A client that leaves while it waits is removed.
    let left = join(&mut rig, at(9, 1));
    for core in [0, 1] {
        rig.node.hubs[core].handle_close(left[core]);
    }
    rig.ask(4);
    rig.confirm(5);
    assert!(rig.document(at(8, 5), 1));
    rig.check(impatient, &[patch(5..=5)]);
}

/// Without an engine there is no answer to wait for.
#[test]
fn without_an_engine_clients_of_another_epoch_receive_the_nodes_version() {
    let (key, feed) = feed_at_0();
    for reports_rooms in [false, true] {
        let mut rig = FeedRig {
            node: Node::with(2, |options| options.reports_rooms = reports_rooms),
            key: key.clone(),
            feed: feed.clone(),
        };
        let others = [rig.join(0, None), rig.join(1, None)];
        assert!(rig.document(at(7, 10), 0));
        rig.check(others, &[whole(10)]);
        rig.check_since(at(8, 3), &[whole(10)]);
        assert!(rig.ask(0).is_empty());
    }
}
