//! Rooms with history and without subscribers, which the engine has because clients of one node published to them.

use super::*;
use crate::engine::{HEAD_TTL, History};
use stentor_ports::{Denial, Ledger};

const MAX: usize = 40;
const BUDGET: usize = 1 << 30;

/// A node, and an engine that accepts every message.
struct Bench {
    now: Instant,
    rooms: Rooms<()>,
    ledger: Arc<Ledger>,
    /// Time at which the engine forgets each room.
    kept: HashMap<Room, Instant>,
}

impl Bench {
    fn new() -> Self {
        let ledger = Arc::new(Ledger::new(BUDGET));
        let vacant = VacantRooms::new(MAX, HEAD_TTL, ledger.clone());
        let rooms = Rooms::new(NodeId(1), vec![(String::new(), limits())], Duration::from_secs(4), vacant);
        Self { now: Instant::now(), rooms, ledger, kept: HashMap::new() }
    }

    /// Publishes as a client at an address, or as a backend (`None`). Returns the answer.
    fn publish(&mut self, source: Option<u64>, room: &Room) -> Result<(), Denial> {
        let publisher = (Some(()), source);
        assert_eq!(self.rooms.handle_publish(self.now, room, "m".into(), publisher, None), Ok(()));
        self.settle().expect("an answer")
    }

    fn settle(&mut self) -> Option<Result<(), Denial>> {
        let mut decision = None;
        while let Some(output) = self.rooms.poll_output() {
            match output {
                Output::Request(number, request) => {
                    let reply = match request {
                        Request::Append { room, limits, .. } => {
                            self.kept.insert(room, self.now + limits.age_max + HEAD_TTL);
                            Ok(Reply::Position(START))
                        }
                        Request::Heads { rooms } => Ok(Reply::Heads(vec![None; rooms.len()])),
                        _ => Ok(Reply::History(History::default())),
                    };
                    self.rooms.handle_reply(self.now, number, reply, decode);
                }
                Output::Decide((), answer) => decision = Some(answer),
                Output::Room(..) => {}
            }
        }
        decision
    }

    fn subscribe(&mut self, room: &Room, has_subscribers: bool) {
        self.rooms.handle_interest(room, has_subscribers);
        self.settle();
    }

    /// A client at an address publishes to rooms from `first` on. Returns the number of rooms until one is refused.
    fn fill(&mut self, source: u64, first: usize) -> usize {
        (first..first + 2 * MAX).take_while(|i| self.publish(Some(source), &random(*i)).is_ok()).count()
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.rooms.handle_timeout(self.now);
        self.settle();
    }

    /// Checks the number of rooms in the engine, which the node must know.
    #[track_caller]
    fn check(&self, expected: usize) {
        let in_engine = self.kept.values().filter(|until| **until > self.now).count();
        assert_eq!((self.rooms.stats().vacant, in_engine), (expected, expected));
        assert_eq!(self.ledger.has_room(BUDGET), expected == 0);
    }
}

fn random(i: usize) -> Room {
    Room::plain(&format!("random {i}")).expect("a room")
}

fn kept_for() -> Duration {
    limits().age_max + HEAD_TTL
}

#[test]
fn random_rooms_have_a_bound_and_leave_nothing() {
    let mut bench = Bench::new();
    assert_eq!(bench.fill(1, 0), MAX / 2);
    let denial = bench.publish(Some(1), &random(MAX)).expect_err("too many rooms");
    assert!(denial.code == "too_many_topics" && denial.retry, "{denial:?}");
    // Accepted: a room that is there already, another address, and a backend.
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.publish(Some(1), &random(0)), Ok(()));
    assert_eq!(bench.publish(Some(2), &random(MAX)), Ok(()));
    bench.check(MAX / 2 + 1);
    assert_eq!(bench.publish(None, &random(MAX + 1)), Ok(()));
    assert_eq!(bench.rooms.stats().vacant_refused, 2);
    bench.pass(kept_for() - Duration::from_secs(1));
    bench.kept.remove(&random(MAX + 1));
    bench.check(2);
    bench.pass(Duration::from_secs(1));
    bench.check(0);
    assert_eq!(bench.fill(1, 0), MAX / 2);
}

#[test]
fn many_addresses_have_one_bound() {
    let mut bench = Bench::new();
    let taken: Vec<usize> = (0..8).map(|source| bench.fill(source, 1_000 * source as usize)).collect();
    assert_eq!(taken, [20, 10, 5, 3, 1, 1, 0, 0]);
    bench.check(MAX);
}

/// A client joins a room, publishes and leaves. Its message stays in the engine.
#[test]
fn a_room_counts_once_its_subscribers_have_left() {
    let mut bench = Bench::new();
    for i in 0..3 * MAX {
        bench.subscribe(&random(i), true);
        let is_refused = bench.publish(Some(1), &random(i)).is_err();
        assert_eq!(is_refused, i >= MAX / 2);
        bench.subscribe(&random(i), false);
    }
    bench.check(MAX / 2);
    // A room that has subscribers again isn't counted. Its expiry doesn't change.
    bench.subscribe(&random(0), true);
    assert_eq!(bench.rooms.stats().vacant, MAX / 2 - 1);
    bench.subscribe(&random(0), true);
    bench.subscribe(&random(0), false);
    bench.check(MAX / 2);
    bench.pass(kept_for());
    bench.check(0);
}

/// Many rooms of one address lose their subscribers at once.
#[test]
fn one_address_does_not_prevent_another_from_publishing() {
    let mut bench = Bench::new();
    (0..4 * MAX).for_each(|i| bench.subscribe(&random(i), true));
    (0..4 * MAX).for_each(|i| assert_eq!(bench.publish(Some(1), &random(i)), Ok(())));
    assert_eq!(bench.rooms.stats().vacant, 0);
    (0..4 * MAX).for_each(|i| bench.subscribe(&random(i), false));
    bench.check(4 * MAX);
    assert!(bench.publish(Some(1), &random(4 * MAX)).is_err());
    assert_eq!(bench.fill(2, 5 * MAX), MAX / 4);
    bench.pass(kept_for());
    bench.check(0);
    assert_eq!(bench.fill(1, 0), MAX / 2);
}
