//! Memory of presence: allocated and charged.

#![allow(clippy::unwrap_used, clippy::print_stderr)] // Tests may panic, and say what they found.

use cap::Cap;
use std::alloc::System;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::{
    Absence, Encoder, FormatId, Hub, MemberId, Options, Policy, PresenceChange, PresenceMessage,
    PresenceOptions, Publication, Room, RoomMember, SessionId, Topic, User,
};

#[global_allocator]
static ALLOCATED: Cap<System> = Cap::new(System, usize::MAX);

const GRACE: Duration = Duration::from_secs(5);
const INTERVAL: Duration = Duration::from_millis(100);
/// Time after which other nodes that haven't repeated their `Watch` receive no more changes.
const LEASE: Duration = Duration::from_secs(30);
/// Limit for a member and its share of its room, without texts, in bytes.
const MEMBER_BYTES_MAX: usize = 300;

struct Nothing;

impl Encoder for Nothing {
    type Frame = Arc<[u8]>;

    fn encode(&self, _format: FormatId, _publication: &Publication<Self::Frame>) -> Option<Self::Frame> {
        None
    }

    fn len(frame: &Self::Frame) -> usize {
        frame.len()
    }
}

/// Rooms with equally many members: `here` sessions of this node and `there` sessions of another node.
struct Rooms {
    hub: Hub<Nothing>,
    watcher: SessionId,
    now: Instant,
    rooms: Vec<Room>,
    here: usize,
    there: usize,
    user: Option<User>,
    /// Bytes allocated and charged before the first member joined.
    before: (usize, usize),
}

/// Makes ids that look random.
fn id(n: usize) -> MemberId {
    let mut id = [0; 15];
    id[..8].copy_from_slice(&(n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    MemberId(id)
}

impl Rooms {
    /// Makes rooms without members, of one node.
    fn new(rooms: usize, here: usize, user: Option<User>) -> Self {
        Self::make(rooms, (here, 0), false, user)
    }

    /// Makes rooms without members, which a session watches, of one of two nodes.
    fn watched(rooms: usize, here: usize, there: usize, user: Option<User>) -> Self {
        let mut rooms = Self::make(rooms, (here, there), true, user);
        for room in &rooms.rooms {
            let topic = Topic::Presence(room.clone());
            rooms.hub.handle_subscribe(rooms.watcher, &topic, Policy::Queue, None).unwrap();
        }
        rooms.start();
        rooms
    }

    fn make(rooms: usize, (here, there): (usize, usize), has_other_nodes: bool, user: Option<User>) -> Self {
        let presence = PresenceOptions {
            rooms: vec!["chat".to_owned()],
            members_max: 10_000,
            grace: GRACE,
            interval: INTERVAL,
            has_other_nodes,
        };
        let options = Options {
            presence: Some(presence),
            topics_max: rooms,
            subscriptions_max: rooms,
            ..Options::default()
        };
        let mut hub = Hub::new(options, Nothing);
        let rooms: Vec<_> = (0..rooms).map(|n| Room::plain(&format!("chat/{n}")).unwrap()).collect();
        let watcher = hub.handle_open(FormatId(0), 0);
        let mut rooms = Self { hub, watcher, now: Instant::now(), rooms, here, there, user, before: (0, 0) };
        rooms.start();
        rooms
    }

    /// Measures the memory before the first member joins.
    fn start(&mut self) {
        self.before = (ALLOCATED.allocated(), self.hub.presence_stats().bytes);
        self.pass(Duration::ZERO);
    }

    /// Applies the same change to each room's sessions of this node.
    fn all(&mut self, change: impl Fn(&Self, usize) -> PresenceChange) {
        for n in 0..self.here * self.rooms.len() {
            let room = self.rooms[n % self.rooms.len()].clone();
            let change = change(self, n);
            self.hub.handle_presence(self.now, room, change);
        }
    }

    /// Makes all sessions of this node join. They share the texts of `user`.
    fn join(&mut self) {
        self.all(|rooms, n| {
            let user = rooms.user.clone();
            PresenceChange::Joined(Arc::new(RoomMember { id: id(n), user, info: None, since_ms: 1 }))
        });
    }

    fn leave(&mut self, absence: Absence) {
        self.all(|_, n| PresenceChange::Left(id(n), absence));
    }

    /// Sets the members that the other node reports in each room.
    fn set_others(&mut self, version: u64, count: usize) {
        for n in 0..self.rooms.len() {
            let member = |m: usize| {
                let user = User { issuer: "https://issuer.example".into(), subject: "subject".into() };
                let info = Some(r#"{"name":"Ada Lovelace","color":"red"}"#.into());
                let id = id(self.rooms.len() * (self.here + m) + n);
                Arc::new(RoomMember { id, user: Some(user), info, since_ms: 1 })
            };
            let members = (0..count).map(member).collect();
            let message = PresenceMessage::Snapshot { version, count, members };
            self.hub.handle_presence_message(self.now, &self.rooms[n], 7, message);
        }
    }

    fn unwatch(&mut self) {
        for room in &self.rooms {
            self.hub.handle_unsubscribe(self.watcher, &Topic::Presence(room.clone()));
        }
    }

    /// Advances the clock and carries out due actions.
    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.hub.handle_presence_time(self.now);
        while self.hub.poll_presence_notice().is_some() {}
        while self.hub.poll_presence_message().is_some() {}
    }

    /// Returns the bytes allocated and charged.
    fn bytes(&self) -> (usize, usize) {
        let taken = ALLOCATED.allocated().saturating_sub(self.before.0);
        (taken, self.hub.presence_stats().bytes - self.before.1)
    }

    /// Checks that the allocated bytes are charged, with a tolerance of an eighth. Returns the bytes per member.
    fn check(&self, when: &str) -> usize {
        let (taken, charged) = self.bytes();
        let (rooms, members) = (self.rooms.len(), self.here + self.there);
        let each = taken / rooms / members;
        let what = format!("{rooms} rooms with {members} members, {when}: {taken} bytes, {each} per member");
        assert!((taken * 7 / 8..taken * 9 / 8).contains(&charged), "{what}, {charged} charged");
        eprintln!("{what}");
        each
    }

    /// Checks that less than 40 kB are still allocated and charged.
    fn check_empty(&self) {
        let (taken, charged) = self.bytes();
        assert!(taken < 40_000 && charged < 40_000, "{taken} bytes are left, {charged} charged");
    }
}

/// One test only, because allocations are counted for the process.
#[test]
fn presence_is_charged_for_its_allocations_and_frees_them() {
    let user = Some(User { issuer: "issuer".into(), subject: "subject".into() });
    // Numbers of rooms just above those at which their table doubles: the most memory per room.
    for (rooms, here) in
        [(14_400, 1), (14_400, 2), (3_600, 4), (3_600, 8), (1_800, 9), (300, 100), (1, 10_000)]
    {
        for user in [None, user.clone()] {
            let mut rooms = Rooms::new(rooms, here, user);
            rooms.join();
            let each = rooms.check("joined");
            assert!(each <= MEMBER_BYTES_MAX, "{here} in a room: {each} bytes for each");
            rooms.leave(Absence::Suspended);
            rooms.check("about to leave");
            rooms.pass(GRACE);
            rooms.check_empty();
            rooms.join();
            rooms.hub.set_memory_short(true);
            rooms.leave(Absence::Suspended);
            rooms.check_empty();
        }
    }
    let mut rooms = Rooms::make(14_400, (1, 0), true, user.clone());
    rooms.join();
    rooms.check("joined, while other nodes may watch");
    rooms.pass(LEASE);
    let each = rooms.check("joined, and no other node watches");
    assert!(each <= MEMBER_BYTES_MAX, "{each} bytes in a cluster");
    drop(rooms);
    for (rooms, here, there) in
        [(14_400, 1, 0), (14_400, 0, 1), (3_600, 4, 4), (3_600, 2, 10), (100, 200, 200), (1, 0, 10_000)]
    {
        let mut rooms = Rooms::watched(rooms, here, there, user.clone());
        rooms.join();
        rooms.set_others(1, there);
        rooms.check("joined, and nobody has been told");
        rooms.pass(INTERVAL);
        rooms.check("joined");
        rooms.set_others(2, 0);
        rooms.leave(Absence::Unsubscribed);
        rooms.check("some about to leave, and nobody has been told");
        rooms.unwatch();
        for _ in 0..100 {
            rooms.pass(GRACE / 10);
        }
        rooms.check_empty();
    }
}
