//! Feeds without a document whose keys are in the engine because of the clients of one node.

use super::*;
use crate::engine::{Lease, Reply, TERM_TTL};
use std::collections::HashMap;

const KEYS_MAX: usize = 20;
const BUDGET: usize = 1 << 30;

/// A node whose upstream has no document, and an engine.
struct Bench {
    now: Instant,
    feeds: Feeds,
    ledger: Arc<Ledger>,
    leases: HashMap<Key, Lease>,
    /// Times at which the engine forgets the terms of released leases.
    terms: Vec<Instant>,
    /// Keys that the control plane fetches.
    fetched: HashSet<Key>,
    renewals: usize,
}

impl Bench {
    fn new() -> Self {
        let ledger = Arc::new(Ledger::new(BUDGET));
        let cold = ColdKeys::new(KEYS_MAX, ledger.clone());
        Self {
            now: Instant::now(),
            feeds: Feeds::new(frames(1), Arc::new(|_| FeedSource::Fetched), IDLE_TTL, cold),
            ledger,
            leases: HashMap::new(),
            terms: Vec::new(),
            fetched: HashSet::new(),
            renewals: 0,
        }
    }

    /// Number of keys in the engine.
    fn in_engine(&self) -> usize {
        self.leases.len() + self.terms.iter().filter(|at| **at > self.now).count()
    }

    fn want(&mut self, i: usize, wanted: bool) {
        self.feeds.handle_wanted(self.now, KeyInterest { key: cold(i), wanted, requesters: Vec::new() });
        self.settle();
    }

    /// Answers the node's requests, and checks the bound of keys.
    fn settle(&mut self) {
        while let Some(output) = self.feeds.poll_output() {
            match output {
                Output::Request(ticket, request) => {
                    let reply = self.answer(&request);
                    self.feeds.handle_reply(self.now, ticket, Ok(reply), |_| true);
                }
                Output::Control(KeyInterest { key, wanted: true, .. }) => {
                    self.feeds.handle_update(self.now, &key, state(FeedState::NotFound));
                    self.fetched.insert(key);
                }
                Output::Control(KeyInterest { key, .. }) => {
                    self.fetched.remove(&key);
                }
                Output::Publish(..) | Output::Plane(..) | Output::Pushed(..) | Output::Refused(_) => {}
            }
            assert!(self.in_engine() <= 2 * KEYS_MAX, "{}", self.in_engine());
        }
        assert!(self.in_engine() <= self.feeds.stats().cold_keys);
        assert!(!self.ledger.has_room(BUDGET - 100 * self.leases.len()) || self.leases.is_empty());
    }

    fn answer(&mut self, request: &Request) -> Reply {
        match request {
            Request::LoadFeed { .. } => Reply::Feed(None),
            Request::AcquireLease { key, term_seen, .. } => {
                let lease = Lease { term: term_seen + 1, token: 1 };
                assert_eq!(self.leases.insert(key.clone(), lease), None);
                Reply::Lease(Some(lease))
            }
            Request::RenewLease { key, lease, .. } => {
                self.renewals += 1;
                Reply::Lease(self.leases.get(key).copied().filter(|held| held == lease))
            }
            Request::ReleaseLease { key, term_ttl, .. } => {
                assert!(self.leases.remove(key).is_some());
                self.terms.push(self.now + *term_ttl);
                Reply::Done
            }
            Request::StoreVersion { key, .. } => {
                self.leases.remove(key);
                Reply::Done
            }
            other => panic!("unexpected: {other:?}"),
        }
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.feeds.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.feeds.handle_timeout(self.now);
            self.settle();
        }
        self.now = end;
    }
}

fn cold(i: usize) -> Key {
    Key::parse(&format!("none/{i}")).expect("a key")
}

#[test]
fn random_keys_have_a_bound_and_leave_nothing() {
    let mut bench = Bench::new();
    for i in 0..1_000 {
        bench.want(i, true);
        bench.want(i, false);
        if i % 12 == 0 {
            bench.run_for(Duration::from_secs(1));
        }
    }
    bench.run_for(Duration::from_secs(1));
    let stats = bench.feeds.stats();
    assert!(stats.cold_keys > 0 && stats.cold_keys_released > 0, "{stats:?}");
    bench.want(1_000, true);
    assert!(bench.fetched.contains(&cold(1_000)), "the next client doesn't wait");
    bench.want(1_000, false);
    bench.run_for(IDLE_TTL + TERM_TTL);
    assert_eq!((bench.in_engine(), bench.feeds.stats().cold_keys), (0, 0));
    assert!(bench.ledger.has_room(BUDGET), "nothing counts any more");
}

#[test]
fn keys_with_subscribers_wait_for_their_turn_at_the_bound() {
    let mut bench = Bench::new();
    for i in 0..=2 * KEYS_MAX {
        bench.want(i, true);
    }
    assert_eq!((bench.in_engine(), bench.fetched.len()), (2 * KEYS_MAX, 2 * KEYS_MAX));
    bench.run_for(Duration::from_secs(60));
    assert!(bench.renewals > 0 && !bench.fetched.contains(&cold(2 * KEYS_MAX)));
    bench.want(0, false);
    bench.run_for(RETRY_DELAY * 4);
    assert!(bench.fetched.contains(&cold(2 * KEYS_MAX)));
    assert_eq!(bench.feeds.stats().cold_keys_released, 1);
}

#[test]
fn a_feed_with_a_document_is_no_cold_key() {
    let mut bench = Bench::new();
    for i in 0..4 * KEYS_MAX {
        bench.want(i, true);
        bench.feeds.handle_update(bench.now, &cold(i), FeedUpdate::Changed(document(1).into()));
        bench.settle();
    }
    let stats = bench.feeds.stats();
    assert_eq!((stats.leases, stats.cold_keys, bench.leases.len()), (4 * KEYS_MAX, 0, 0));
    assert!(bench.ledger.has_room(BUDGET));
}
