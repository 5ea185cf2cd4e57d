//! The memory of removed feeds.

use super::*;
use crate::engine::{Lease, Reply};

const FEEDS: usize = 3_000;

/// Answers all requests as an engine without feeds does.
fn answer_all(feeds: &mut Feeds, now: Instant) {
    while let Some(output) = feeds.poll_output() {
        let Output::Request(ticket, request) = output else { continue };
        let reply = match request {
            Request::LoadFeed { .. } => Reply::Feed(None),
            Request::AcquireLease { term_seen, .. } => {
                Reply::Lease(Some(Lease { term: term_seen + 1, token: 7 }))
            }
            Request::RenewLease { lease, .. } => Reply::Lease(Some(lease)),
            _ => Reply::Done,
        };
        feeds.handle_reply(now, ticket, Ok(reply), |_| true);
    }
}

#[test]
fn feeds_that_are_gone_leave_no_memory_behind() {
    let mut feeds =
        Feeds::new(frames(1), Arc::new(|_: &Key| FeedSource::Fetched), IDLE_TTL, cold_keys(FEEDS));
    let now = Instant::now();
    let keys = (0..FEEDS).map(|n| Key::parse(&format!("cold/{n}")).expect("a key"));
    let keys: Vec<Key> = keys.collect();
    let wanted = |key: &Key, wanted| KeyInterest { key: key.clone(), wanted, requesters: Vec::new() };
    for key in &keys {
        feeds.handle_wanted(now, wanted(key, true));
    }
    answer_all(&mut feeds, now);
    assert_eq!(feeds.stats().leases, FEEDS);
    assert!(feeds.held_bytes() > FEEDS * size_of::<Feed>(), "{}", feeds.held_bytes());
    for key in &keys {
        feeds.handle_wanted(now, wanted(key, false));
    }
    answer_all(&mut feeds, now);
    feeds.handle_timeout(now + IDLE_TTL);
    answer_all(&mut feeds, now + IDLE_TTL);
    assert_eq!((feeds.stats().leases, feeds.stats().followed, feeds.held_bytes()), (0, 0, 0));
    let tables = [feeds.feeds.capacity(), feeds.requests.asked.capacity()];
    let queues = [feeds.requests.waiting.capacity(), feeds.outputs.capacity(), feeds.due.len()];
    assert!(tables.into_iter().all(|capacity| capacity <= FEEDS / 2), "{tables:?}");
    assert_eq!(queues, [0, 0, 0]);
}
