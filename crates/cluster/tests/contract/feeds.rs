//! Leases and logs of feeds.

use crate::{Fixture, Node, key, sleep_ms};
use bytes::Bytes;
use std::time::Duration;
use stentor_cluster::engine::{
    EngineError, FEED_CHANGES_MAX, FeedLog, Lease, PAYLOAD_BYTES_MAX, Reply, Request, TERM_TTL, Version,
};
use stentor_hub::{Epoch, Key, KeyCharset, Position};

pub(crate) const LONG: Duration = Duration::from_secs(60);
/// A lease that expires within a test. A busy machine doesn't delay a request nearly as long.
const SHORT: Duration = Duration::from_secs(2);

pub(crate) async fn acquire(node: &Node, key: &Key, term_seen: u64, ttl: Duration) -> Option<Lease> {
    let Reply::Lease(lease) = node.request(Request::AcquireLease { key: key.clone(), term_seen, ttl }).await
    else {
        panic!()
    };
    lease
}

pub(crate) async fn renew(node: &Node, key: &Key, lease: Lease, ttl: Duration) -> bool {
    let Reply::Lease(held) = node.request(Request::RenewLease { key: key.clone(), lease, ttl }).await else {
        panic!()
    };
    assert!(held.is_none_or(|held| held == lease));
    held.is_some()
}

pub(crate) async fn release(node: &Node, key: &Key, lease: Lease) {
    assert_eq!(
        node.request(Request::ReleaseLease { key: key.clone(), lease, term_ttl: TERM_TTL }).await,
        Reply::Done
    );
}

pub(crate) async fn store(
    node: &Node,
    key: &Key,
    lease: Lease,
    version: Version,
) -> Result<Reply, EngineError> {
    node.try_request(Request::StoreVersion { key: key.clone(), lease, version }).await
}

pub(crate) async fn load(node: &Node, key: &Key) -> Option<FeedLog> {
    let Reply::Feed(log) = node.request(Request::LoadFeed { key: key.clone() }).await else { panic!() };
    log
}

pub(crate) fn version(offset: u64, change: &'static str, base: Option<&'static str>) -> Version {
    let (change, base) = (Bytes::from(change), base.map(Bytes::from));
    Version { position: Position { epoch: Epoch(7), offset }, change, base }
}

pub(crate) async fn one_node_holds_a_lease(fixture: &impl Fixture) {
    let (a, b) = (Node::connect(fixture).await, Node::connect(fixture).await);
    let (k, other) = (key("feed/1"), key("feed/2"));
    let lease = acquire(&a, &k, 0, LONG).await.unwrap();
    assert_eq!(acquire(&b, &k, 0, LONG).await, None);
    assert_eq!(acquire(&a, &k, 0, LONG).await, None);
    assert!(acquire(&b, &other, 0, LONG).await.is_some());
    let forged = Lease { token: lease.token ^ 1, ..lease };
    assert!(!renew(&b, &k, forged, LONG).await);
    release(&b, &k, forged).await;
    assert!(renew(&a, &k, lease, LONG).await);
    release(&a, &k, lease).await;
    assert!(!renew(&a, &k, lease, LONG).await);
    assert!(acquire(&b, &k, 0, LONG).await.is_some());
    // Node a has seen a later term than the engine's lease, as after a failover. The engine grants a further term.
    let k = key("feed/3");
    let former = acquire(&b, &k, 0, LONG).await.unwrap();
    assert_eq!(acquire(&a, &k, former.term, LONG).await, None);
    let later = acquire(&a, &k, former.term + 1, LONG).await.unwrap();
    assert!(later.term > former.term + 1);
    assert!(!renew(&b, &k, former, LONG).await);
    assert!(renew(&a, &k, later, LONG).await);
}

pub(crate) async fn terms_grow(fixture: &impl Fixture) {
    let (a, b) = (Node::connect(fixture).await, Node::connect(fixture).await);
    let k = key("feed");
    let first = acquire(&a, &k, 0, LONG).await.unwrap();
    release(&a, &k, first).await;
    let second = acquire(&b, &k, 0, LONG).await.unwrap();
    assert!(second.term > first.term);
    release(&b, &k, second).await;
    let seen = second.term + 1_000_000_000;
    let third = acquire(&a, &k, seen, LONG).await.unwrap();
    assert!(third.term > seen);
    release(&a, &k, third).await;
    assert!(acquire(&b, &k, 0, LONG).await.unwrap().term > third.term);
}

pub(crate) async fn a_lease_expires_unless_it_is_renewed(fixture: &impl Fixture) {
    let (a, b) = (Node::connect(fixture).await, Node::connect(fixture).await);
    let k = key("feed");
    let lease = acquire(&a, &k, 0, SHORT).await.unwrap();
    for _ in 0..5 {
        sleep_ms(100).await;
        assert!(renew(&a, &k, lease, SHORT).await);
        assert_eq!(acquire(&b, &k, 0, SHORT).await, None);
    }
    sleep_ms(2_200).await;
    assert!(!renew(&a, &k, lease, SHORT).await);
    let next = acquire(&b, &k, 0, LONG).await.unwrap();
    assert!(next.term > lease.term);
    assert!(!renew(&a, &k, lease, LONG).await);
    release(&a, &k, lease).await;
    assert!(renew(&b, &k, next, LONG).await);
}

pub(crate) async fn a_version_needs_the_lease(fixture: &impl Fixture) {
    let (a, b) = (Node::connect(fixture).await, Node::connect(fixture).await);
    let k = key("feed");
    let none = Lease { term: 1, token: 1 };
    assert_eq!(store(&a, &k, none, version(1, "", Some("base"))).await, Err(EngineError::Fenced));
    let lease = acquire(&a, &k, 0, SHORT).await.unwrap();
    assert_eq!(store(&a, &k, lease, version(1, "", Some("base"))).await, Ok(Reply::Done));
    assert_eq!(acquire(&b, &k, lease.term, LONG).await, None);
    sleep_ms(2_200).await;
    assert_eq!(store(&a, &k, lease, version(2, "late", None)).await, Err(EngineError::Fenced));
    let next = acquire(&b, &k, lease.term, LONG).await.unwrap();
    assert_eq!(store(&a, &k, lease, version(2, "late", None)).await, Err(EngineError::Fenced));
    assert_eq!(store(&b, &k, next, version(2, "change", None)).await, Ok(Reply::Done));
    let log = load(&a, &k).await.unwrap();
    assert_eq!((log.term, log.changes.len()), (next.term, 1));
}

/// The key contains characters that are special in the names of engines.
pub(crate) async fn a_log_has_a_base_and_its_changes(fixture: &impl Fixture) {
    let (a, mut b) = (Node::connect(fixture).await, Node::connect(fixture).await);
    let k = Key::parse_as("São Paulo/{a}.b*/> 50%", KeyCharset::Utf8).unwrap();
    b.follow(&k).await;
    assert_eq!(load(&b, &k).await, None);
    let lease = acquire(&a, &k, 0, LONG).await.unwrap();
    let without_base = store(&a, &k, lease, version(1, "c1", None)).await;
    assert!(matches!(without_base, Err(EngineError::Refused(_))), "{without_base:?}");
    let at = |offset| Position { epoch: Epoch(7), offset };
    let stored = [(1, "c1", Some("base:1")), (2, "", None), (5, "1:2:c5", None)];
    for (offset, change, base) in stored {
        assert_eq!(store(&a, &k, lease, version(offset, change, base)).await, Ok(Reply::Done));
    }
    let changes = vec![(at(2), "".into()), (at(5), "1:2:c5".into())];
    let log = FeedLog {
        term: lease.term,
        base_position: at(1),
        base: "base:1".into(),
        changes,
        may_lack_newest: false,
    };
    assert_eq!(load(&b, &k).await, Some(log));
    for (offset, change, _) in stored {
        assert_eq!(b.message().await, (k.clone().into(), Some(at(offset)), change.into()));
    }
    store(&a, &k, lease, version(6, "c6", Some("base 6"))).await.unwrap();
    let log = FeedLog {
        term: lease.term,
        base_position: at(6),
        base: "base 6".into(),
        changes: vec![],
        may_lack_newest: false,
    };
    assert_eq!(load(&b, &k).await, Some(log));
}

/// Changes of a feed's state are stored at the position of the current version.
pub(crate) async fn an_entry_may_have_the_position_of_the_one_before(fixture: &impl Fixture) {
    let (a, mut b) = (Node::connect(fixture).await, Node::connect(fixture).await);
    let k = key("feed");
    b.follow(&k).await;
    let lease = acquire(&a, &k, 0, LONG).await.unwrap();
    let at = |offset| Position { epoch: Epoch(7), offset };
    let stored =
        [(1, "c1", Some("base")), (1, "stale", None), (1, "live", None), (2, "c2", None), (2, "end", None)];
    for (offset, change, base) in stored {
        assert_eq!(store(&a, &k, lease, version(offset, change, base)).await, Ok(Reply::Done));
        assert_eq!(b.message().await, (k.clone().into(), Some(at(offset)), change.into()));
    }
    let changes = [(1, "stale"), (1, "live"), (2, "c2"), (2, "end")];
    let changes = changes.map(|(offset, change)| (at(offset), change.into())).into();
    let log = FeedLog {
        term: lease.term,
        base_position: at(1),
        base: "base".into(),
        changes,
        may_lack_newest: false,
    };
    assert_eq!(load(&b, &k).await, Some(log));
    // An entry with a base may repeat the position too.
    assert_eq!(store(&a, &k, lease, version(2, "again", Some("base"))).await, Ok(Reply::Done));
    assert_eq!(b.message().await, (k.clone().into(), Some(at(2)), "again".into()));
}

pub(crate) async fn a_log_can_be_read_while_it_begins_anew(fixture: &impl Fixture) {
    let (a, b) = (Node::connect(fixture).await, Node::connect(fixture).await);
    let k = key("feed");
    let lease = acquire(&a, &k, 0, LONG).await.unwrap();
    store(&a, &k, lease, version(1, "", Some("base"))).await.unwrap();
    let storing = async {
        for offset in 2..100 {
            store(&a, &k, lease, version(offset, "", Some("base"))).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let loading = async {
        loop {
            assert_eq!(load(&b, &k).await.unwrap().base, "base");
            // An engine in memory answers at once. Without yielding, the node that stores would never run.
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = storing => {}
        () = loading => {}
    }
}

pub(crate) async fn a_log_is_bounded(fixture: &impl Fixture) {
    let node = Node::connect(fixture).await;
    let k = key("feed");
    let lease = acquire(&node, &k, 0, LONG).await.unwrap();
    store(&node, &k, lease, version(0, "", Some("base"))).await.unwrap();
    for offset in 1..=FEED_CHANGES_MAX as u64 {
        store(&node, &k, lease, version(offset, "c", None)).await.unwrap();
    }
    let next = FEED_CHANGES_MAX as u64 + 1;
    let full = store(&node, &k, lease, version(next, "c", None)).await;
    assert!(matches!(full, Err(EngineError::Refused(_))), "{full:?}");
    store(&node, &k, lease, version(next, "c", Some("base"))).await.unwrap();
    let large =
        |offset| Version { change: vec![b'x'; PAYLOAD_BYTES_MAX / 2].into(), ..version(offset, "", None) };
    for offset in [next + 1, next + 2] {
        store(&node, &k, lease, large(offset)).await.unwrap();
    }
    let full = store(&node, &k, lease, large(next + 3)).await;
    assert!(matches!(full, Err(EngineError::Refused(_))), "{full:?}");
    assert_eq!(load(&node, &k).await.unwrap().changes.len(), 2);
}
