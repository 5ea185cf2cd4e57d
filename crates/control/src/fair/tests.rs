//! Tests of the order of service, in tables and with random arrivals.

use super::*;
use fastrand::Rng;

fn owner(source: u64, session: u64) -> Owner {
    Owner { source, session: Some((0, session)) }
}

fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

#[derive(Default)]
struct Bench {
    queue: FairQueue<Key>,
    waiting: BTreeMap<Key, (Owner, u64)>,
    tickets: u64,
}

impl Bench {
    fn insert(&mut self, owner: Owner, text: &str) {
        self.tickets += 1;
        self.waiting.insert(key(text), (owner, self.tickets));
        self.queue.insert(owner, self.tickets, key(text));
    }

    fn remove(&mut self, key: &Key) {
        let (owner, ticket) = self.waiting.remove(key).unwrap();
        self.queue.remove(owner, ticket);
    }

    fn next(&mut self) -> Option<Key> {
        let key = self.queue.next()?;
        self.remove(&key);
        Some(key)
    }

    fn order(&mut self, count: usize) -> String {
        (0..count).filter_map(|_| self.next()).map(|key| key.to_string()).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn addresses_take_turns_and_their_sessions() {
    let mut bench = Bench::default();
    for n in 0..4 {
        for session in 0..2 {
            bench.insert(owner(1, session), &format!("a{session}.{n}"));
        }
        bench.insert(owner(2, 0), &format!("b.{n}"));
    }
    assert_eq!(bench.order(9), "a0.0 b.0 a1.0 b.1 a0.1 b.2 a1.1 b.3 a0.2");
    assert_eq!(bench.order(9), "a1.2 a0.3 a1.3");
    assert_eq!((bench.queue.len(), bench.queue.0.children.len()), (0, 0));
}

#[test]
fn a_new_session_is_served_next() {
    let mut bench = Bench::default();
    for session in 0..11 {
        for n in 0..1000 {
            bench.insert(owner(1, session), &format!("{session}.{n}"));
        }
    }
    bench.order(100);
    // Adds a key of a new session of the same address, then a key of another address.
    bench.insert(owner(1, 99), "same");
    assert!(bench.order(1) == "same");
    bench.insert(owner(2, 1), "other");
    assert!(bench.order(1) == "other");
    // A session that requests its next key after each document is new only once.
    bench.insert(owner(1, 50), "x");
    let mut served = 0;
    for _ in 0..110 {
        if bench.order(1) == "x" {
            served += 1;
            bench.insert(owner(1, 50), "x");
        }
    }
    assert!((8..=12).contains(&served), "{served} of 110 for one of twelve");
}

#[test]
fn a_stream_of_new_sessions_starves_no_other() {
    let mut bench = Bench::default();
    bench.insert(owner(1, 0), "old.0");
    bench.insert(owner(1, 0), "old.1");
    assert_eq!(bench.order(1), "old.0");
    let mut waited = 0;
    for n in 1.. {
        bench.insert(owner(1, n), &format!("new.{n}"));
        bench.insert(owner(1, n), &format!("more.{n}"));
        if bench.order(1) == "old.1" {
            break;
        }
        waited += 1;
    }
    assert!(waited <= NEW_IN_ROW_MAX as usize, "{waited}");
}

#[test]
fn the_owner_with_the_most_waiting_keys_is_found() {
    let mut bench = Bench::default();
    assert_eq!(bench.queue.last_of_longest(), None);
    for (source, session, count) in [(1, 0, 3), (1, 1, 4), (2, 0, 5)] {
        for n in 0..count {
            bench.insert(owner(source, session), &format!("{source}/{session}/{n}"));
        }
    }
    assert_eq!(bench.queue.longest(), 7);
    assert_eq!(bench.queue.last_of_longest(), Some(&key("1/1/3")));
    assert_eq!(bench.queue.waiting_of(owner(1, 1)), (7, 4));
    assert_eq!(bench.queue.waiting_of(owner(1, 7)), (7, 0));
    assert_eq!(bench.queue.waiting_of(owner(7, 7)), (0, 0));
}

/// Random keys are added, removed and served. Every waiting key is served exactly once, and no session waits
/// longer than a few rounds of the other sessions.
#[test]
fn every_key_is_served_once_and_no_session_starves() {
    for seed in 0..50 {
        let (mut bench, mut random) = (Bench::default(), Rng::with_seed(seed));
        // Number of other sessions' keys served while a session waited, by address and session.
        let mut passed: BTreeMap<(u64, u64), usize> = BTreeMap::new();
        let owner_of = |key: &Key| {
            let mut parts = key.as_str().split('/').map(|part| part.parse::<u64>().unwrap());
            (parts.next().unwrap(), parts.next().unwrap())
        };
        for n in 0..4000 {
            let (source, session) = (random.u64(..4), random.u64(..5));
            match random.u64(..5) {
                0..=1 => bench.insert(owner(source, session), &format!("{source}/{session}/{n}")),
                2 if !bench.waiting.is_empty() => {
                    let nth = random.usize(..bench.waiting.len());
                    let key = bench.waiting.keys().nth(nth).unwrap().clone();
                    bench.remove(&key);
                }
                _ => {
                    let Some(key) = bench.next() else {
                        assert!(bench.waiting.is_empty(), "seed {seed}: it stopped");
                        continue;
                    };
                    passed.remove(&owner_of(&key));
                    let waiting: BTreeSet<_> = bench.waiting.keys().map(owner_of).collect();
                    passed.retain(|owner, _| waiting.contains(owner));
                    for owner in waiting {
                        let passed = passed.entry(owner).or_default();
                        *passed += 1;
                        // A round is 20 sessions. Keys of new sessions may be served before.
                        assert!(*passed <= 4 * 20, "seed {seed}: {owner:?} starves");
                    }
                }
            }
            assert_eq!(bench.queue.len(), bench.waiting.len(), "seed {seed}");
            assert!(bench.queue.0.children.len() <= 4);
        }
    }
}
