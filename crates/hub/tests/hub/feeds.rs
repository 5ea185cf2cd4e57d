//! What sessions get of feeds: patches from what they have, by policy and rate, on the home core and on others.
//! The random test in `model` covers the ground; these name the places.

use crate::node::{Node, feed_at_0, text};
use std::time::Duration;
use stentor_hub::{
    Body, Epoch, FeedState, FormatId, Key, PatchLimits, Policy, Position, SessionId, SubscribeOptions, Topic,
};

const LATEST: SubscribeOptions =
    SubscribeOptions { policy: Policy::Latest, deltas: true, interval: Duration::ZERO };

/// Version `n`: 60 bytes, so that some patches are shorter.
fn version(n: u32) -> String {
    format!("{:<60}", format!("\"v{n}\""))
}

/// Publishes version `n`, with the patch from the one before.
fn publish(node: &mut Node, key: &Key, n: u32) {
    node.patched(key, &version(n - 1), &version(n), &format!("[\"{n}\"]"));
}

fn whole(n: u32) -> String {
    format!("doc {} live", version(n))
}

fn patch(numbers: impl IntoIterator<Item = u32>) -> String {
    let numbers: Vec<_> = numbers.into_iter().map(|n| format!("\"{n}\"")).collect();
    format!("[{}] after {} versions", numbers.join(","), numbers.len())
}

struct Rig {
    node: Node,
    key: Key,
    feed: Topic,
}

fn rig(cores: usize, change: impl Fn(&mut stentor_hub::Options)) -> Rig {
    let (key, feed) = feed_at_0();
    let mut node = Node::with(cores, change);
    node.patched(&key, "", &version(0), "[]");
    Rig { node, key, feed }
}

impl Rig {
    fn join(&mut self, core: usize, terms: impl Into<SubscribeOptions>) -> SessionId {
        let session = self.node.open(core);
        self.node.subscribe(core, session, &self.feed, terms);
        self.node.run_until_idle();
        session
    }

    fn publish(&mut self, numbers: impl IntoIterator<Item = u32>) {
        for n in numbers {
            publish(&mut self.node, &self.key, n);
            self.node.run_until_idle();
        }
    }

    fn position(&mut self, offset: u64) -> Position {
        let session = self.join(0, Policy::Latest);
        let newest = self.node.position(0, session).unwrap();
        self.node.hubs[0].handle_close(session);
        Position { offset, ..newest }
    }
}

#[test]
fn fast_consumers_get_deltas_and_slow_ones_joined_deltas() {
    for core in [0, 1] {
        let mut rig = rig(2, |_| {});
        let session = rig.join(core, Policy::Latest);
        assert_eq!(rig.node.take(core, session), [whole(0)]);
        rig.publish([1]);
        assert_eq!(rig.node.take(core, session), [patch([1])]);
        rig.publish(2..5);
        assert_eq!(rig.node.take(core, session), [patch(2..5)]);
        // 12 of them are as long as the document.
        rig.publish(5..30);
        assert_eq!(rig.node.take(core, session), [whole(29)]);
        rig.publish([30]);
        assert_eq!(rig.node.take(core, session), [patch([30])]);
    }
}

#[test]
fn deltas_follow_what_was_taken_not_what_was_published() {
    let mut rig = rig(1, |_| {});
    let session = rig.join(0, Policy::Latest);
    rig.publish(1..4);
    assert_eq!(rig.node.take(0, session), [whole(3)], "it had nothing");
    rig.publish([4]);
    // In flight, and gone for good as far as the next one is concerned.
    rig.node.hubs[0].take(session, usize::MAX, 1, |publication, _| {
        assert!(matches!(publication.body(), Body::Delta { base: 4, .. }));
    });
    rig.publish([5]);
    rig.node.hubs[0].handle_sent(session);
    assert_eq!(rig.node.take(0, session), [patch([5])]);
}

#[test]
fn a_patch_for_another_document_is_not_used() {
    let mut rig = rig(1, |_| {});
    let session = rig.join(0, Policy::Latest);
    rig.node.take(0, session);
    let Rig { mut node, key, .. } = rig;
    node.patched(&key, &version(7), &version(1), "[\"wrong\"]");
    assert_eq!(node.take(0, session), [whole(1)]);
    publish(&mut node, &key, 2);
    assert_eq!(node.take(0, session), [patch([2])]);
    // Text has no patches, nor has what follows it.
    node.document(&key, "text", FeedState::Live);
    assert_eq!(node.take(0, session), ["doc text live"]);
    node.patched(&key, "text", &version(3), "[\"3\"]");
    assert_eq!(node.take(0, session), [whole(3)]);
    node.state(&key, FeedState::Stale, "why");
    publish(&mut node, &key, 4);
    assert_eq!(node.take(0, session), [patch([4])], "live again, and the state is not told any more");
}

#[test]
fn formats_and_options_without_deltas_get_snapshots() {
    let mut rig = rig(1, |_| {});
    let raw = rig.node.hubs[0].handle_open(FormatId(2), 0);
    rig.node.subscribe(0, raw, &rig.feed, Policy::Latest);
    let wants_none = rig.join(0, SubscribeOptions { deltas: false, ..LATEST });
    let drops = rig.join(0, Policy::DropOldest);
    for n in 0..4 {
        if n > 0 {
            rig.publish([n]);
        }
        for session in [raw, wants_none, drops] {
            assert_eq!(rig.node.take(0, session), [whole(n)]);
        }
    }
    // Changed while subscribed.
    let since = Some(rig.position(4));
    rig.node.hubs[0].handle_subscribe(wants_none, &rig.feed, LATEST, since).unwrap();
    assert_eq!(rig.node.take(0, wants_none), Vec::<String>::new());
    rig.publish([4]);
    assert_eq!(rig.node.take(0, wants_none), [patch([4])]);
}

#[test]
fn a_document_that_a_format_doesnt_support_is_dropped() {
    for policy in [Policy::Latest, Policy::Queue, Policy::DropOldest] {
        let mut rig = rig(1, |_| {});
        let session = rig.node.hubs[0].handle_open(FormatId(3), 0);
        rig.node.subscribe(0, session, &rig.feed, policy);
        assert_eq!(rig.node.take(0, session), [whole(0)]);
        let Rig { mut node, key, .. } = rig;
        node.document(&key, "unspeakable", FeedState::Live);
        node.state(&key, FeedState::Stale, "why");
        assert_eq!(node.take(0, session), ["stale why"], "{policy:?}");
        node.document(&key, "one", FeedState::Live);
        assert_eq!(node.take(0, session), ["doc one live"]);
    }
}

#[test]
fn a_queue_of_deltas_has_no_gap() {
    let mut rig = rig(2, |o| o.send_buffer_bytes_max = 200);
    let session = rig.join(1, Policy::Queue);
    // Until the first document was taken, there is nothing that a gap could be in.
    rig.publish([1]);
    assert_eq!(rig.node.take(1, session), [whole(1)]);
    rig.publish(2..4);
    assert_eq!(rig.node.take(1, session), [patch([2]), patch([3])]);
    // A change of policy leaves the newest: what waited was not sent.
    rig.publish(4..6);
    let since = Some(rig.position(4));
    rig.node.hubs[1].handle_subscribe(session, &rig.feed, Policy::Latest, since).unwrap();
    assert_eq!(rig.node.take(1, session), [whole(5)]);
    rig.publish(6..8);
    let since = Some(rig.position(6));
    rig.node.hubs[1].handle_subscribe(session, &rig.feed, Policy::Queue, since).unwrap();
    assert_eq!(rig.node.take(1, session), [patch([6, 7])]);
    rig.publish([8]);
    assert_eq!(rig.node.take(1, session), [patch([8])]);
}

#[test]
fn the_first_document_fits_whatever_else_is_pending() {
    for policy in [Policy::Queue, Policy::DropOldest] {
        // Not even two of the documents, which are 60 bytes long, fit.
        let mut rig = rig(1, |o| o.send_buffer_bytes_max = 100);
        let keys: Vec<Key> = (0..5).map(|n| Key::parse(&format!("k/{n}")).unwrap()).collect();
        let session = rig.node.open(0);
        for (n, key) in keys.iter().enumerate() {
            // Some are there already, some come later.
            if n < 3 {
                rig.node.document(key, &version(n as u32), FeedState::Live);
            }
            rig.node.subscribe(0, session, &Topic::Feed(key.clone()), policy);
            // Again and again, as a client might that takes no answer for none.
            for _ in 0..10 {
                rig.node.subscribe(0, session, &Topic::Feed(key.clone()), policy);
            }
        }
        for (n, key) in keys.iter().enumerate().skip(3) {
            rig.node.document(key, "an older one", FeedState::Live);
            rig.node.document(key, &version(n as u32), FeedState::Live);
        }
        rig.node.run_until_idle();
        assert_eq!(rig.node.hubs[0].pending_bytes_of(session), 0);
        assert_eq!(rig.node.hubs[0].poll_terminating(), None, "{policy:?}");
        assert_eq!(rig.node.take(0, session), (0..5).map(whole).collect::<Vec<_>>(), "{policy:?}");
        // From here on everything waits, within the budget.
        rig.node.document(&keys[0], &version(10), FeedState::Live);
        rig.node.document(&keys[0], &version(11), FeedState::Live);
        rig.node.run_until_idle();
        match policy {
            Policy::Queue => assert!(rig.node.hubs[0].poll_terminating().is_some()),
            _ => assert_eq!(rig.node.take(0, session), [whole(11)]),
        }
    }
}

#[test]
fn a_reconnecting_client_gets_what_it_missed() {
    for core in [0, 1] {
        for follows in [false, true] {
            let mut rig = rig(2, |_| {});
            let _other = follows.then(|| rig.join(core, Policy::Latest));
            rig.publish(1..6);
            let check = |rig: &mut Rig, since: Option<Position>, expect: &[String]| {
                let session = rig.node.open(core);
                rig.node.hubs[core].handle_subscribe(session, &rig.feed, Policy::Latest, since).unwrap();
                rig.node.run_until_idle();
                assert_eq!(rig.node.take(core, session), expect, "since {since:?}");
                rig.node.hubs[core].handle_close(session);
                rig.node.run_until_idle();
            };
            let Position { epoch, .. } = rig.position(0);
            let at = |offset| Some(Position { epoch, offset });
            check(&mut rig, at(6), &[]);
            check(&mut rig, at(5), &[patch([5])]);
            check(&mut rig, at(2), &[patch(2..6)]);
            check(&mut rig, at(1), &[patch(1..6)]);
            check(&mut rig, at(0), &[whole(5)]);
            check(&mut rig, at(7), &[whole(5)]);
            check(&mut rig, None, &[whole(5)]);
            // After a restart everything has another epoch.
            check(&mut rig, Some(Position { epoch: Epoch(epoch.0 ^ 1), offset: 5 }), &[whole(5)]);
        }
    }
}

#[test]
fn subscribing_again_sends_what_was_not_sent_or_a_snapshot_on_request() {
    let mut rig = rig(1, |_| {});
    let session = rig.join(0, Policy::Latest);
    rig.node.take(0, session);
    rig.publish([1]);
    rig.node.hubs[0].take(session, usize::MAX, 1, |_, _| {});
    // The client had not read the delta when it wrote this: it isn't sent twice.
    let since = Some(rig.position(1));
    rig.node.hubs[0].handle_subscribe(session, &rig.feed, LATEST, since).unwrap();
    assert_eq!(rig.node.take(0, session), Vec::<String>::new());
    rig.node.hubs[0].handle_subscribe(session, &rig.feed, LATEST, None).unwrap();
    assert_eq!(rig.node.take(0, session), [whole(1)]);
    rig.publish([2]);
    assert_eq!(rig.node.take(0, session), [patch([2])]);
}

#[test]
fn patches_are_kept_within_their_limits() {
    let mut rig = rig(2, |o| o.patches = PatchLimits { patches_max: 3, bytes_max: 1000 });
    let session = rig.join(1, Policy::Latest);
    rig.node.take(1, session);
    rig.publish(1..4);
    assert_eq!(rig.node.take(1, session), [patch(1..4)]);
    rig.publish(4..8);
    assert_eq!(rig.node.take(1, session), [whole(7)], "it needs four");
    let figures = rig.node.hubs[0].feed_stats();
    assert_eq!((figures.patches, figures.patch_bytes, figures.patches_evicted), (3, 15, 0));
    let figures = rig.node.hubs[1].feed_stats();
    assert_eq!((figures.patches, figures.snapshots, figures.deltas, figures.joined), (0, 2, 0, 1));
    // Out of memory: the newest patch stays with its version.
    rig.publish(8..10);
    assert_eq!(rig.node.hubs[0].handle_overload(15), 15);
    assert_eq!(rig.node.take(1, session), [whole(9)]);
    assert_eq!(rig.node.hubs[0].feed_stats().patches_evicted, 3);
    rig.publish([10]);
    assert_eq!(rig.node.take(1, session), [patch([10])]);
}

#[test]
fn patches_of_the_least_recently_used_feed_are_evicted_first() {
    let mut node = Node::with(1, |o| o.patches = PatchLimits { patches_max: 100, bytes_max: 20 });
    let keys = ["one", "two", "three"].map(|name| Key::parse(name).unwrap());
    let mut sessions = Vec::new();
    for key in &keys {
        node.patched(key, "", &version(0), "[]");
        let session = node.open(0);
        node.subscribe(0, session, &key.clone().into(), Policy::Latest);
        node.take(0, session);
        sessions.push(session);
    }
    for key in &keys[..2] {
        publish(&mut node, key, 1);
        publish(&mut node, key, 2);
    }
    // Two and two of 5 bytes. The first one's are used.
    assert_eq!(node.take(0, sessions[0]), [patch(1..3)]);
    publish(&mut node, &keys[2], 1);
    assert_eq!(node.take(0, sessions[1]), [whole(2)]);
    assert_eq!(node.hubs[0].feed_stats().patches, 3);
    publish(&mut node, &keys[0], 3);
    publish(&mut node, &keys[0], 4);
    assert_eq!(node.take(0, sessions[0]), [patch(3..5)]);
}

#[test]
fn a_dropped_feed_leaves_nothing_behind() {
    let mut rig = rig(2, |_| {});
    let session = rig.join(1, Policy::Latest);
    rig.publish(1..5);
    rig.node.hubs[0].handle_forget(&rig.key);
    assert_eq!(rig.node.take(1, session), [whole(4)]);
    rig.node.hubs[1].handle_close(session);
    rig.node.run_until_idle();
    assert_eq!((rig.node.hubs[0].topics(), rig.node.live.bytes()), (0, 0));
    assert_eq!(rig.node.hubs[0].feed_stats().patches, 0);
}

/// Who comes right after the control plane has forgotten a key, as others leave it, would otherwise wait for ever: their wish
/// and the new one look like one that never changed.
#[test]
fn a_dropped_key_is_reported_again() {
    let mut rig = rig(1, |_| {});
    let first = rig.join(0, Policy::Latest);
    let key = rig.key.clone();
    assert_eq!(rig.node.hubs[0].poll_subscribed(), Some((key.clone().into(), true)));
    rig.node.hubs[0].handle_state(&key, FeedState::NotFound, "no feed is configured for this key".into());
    rig.node.hubs[0].handle_forget(&key);
    rig.node.hubs[0].handle_close(first);
    rig.join(0, Policy::Latest);
    assert_eq!(rig.node.hubs[0].poll_subscribed(), Some((key.into(), true)));
    assert_eq!(rig.node.hubs[0].poll_subscribed(), None);
}

// ---- rates ----

/// Lets time pass on the first core.
fn wait(rig: &mut Rig, millis: u64) {
    rig.node.now += Duration::from_millis(millis);
    let now = rig.node.now;
    rig.node.hubs[0].handle_time(now);
}

fn every(millis: u64) -> SubscribeOptions {
    SubscribeOptions { interval: Duration::from_millis(millis), ..LATEST }
}

#[test]
fn a_rate_limits_versions_and_sends_the_newest() {
    let mut rig = rig(1, |_| {});
    wait(&mut rig, 0);
    let session = rig.join(0, every(100));
    assert_eq!(rig.node.take(0, session), [whole(0)]);
    rig.publish([1]);
    rig.node.state(&rig.key.clone(), FeedState::Stale, "why");
    rig.publish([2]);
    assert!(!rig.node.hubs[0].has_pending(session));
    assert_eq!(rig.node.take(0, session), Vec::<String>::new());
    assert_eq!(rig.node.hubs[0].poll_timeout(), Some(rig.node.now + Duration::from_millis(100)));
    wait(&mut rig, 99);
    assert!(rig.node.hubs[0].poll_ready().is_some(), "the first one");
    assert_eq!(rig.node.hubs[0].poll_ready(), None);
    wait(&mut rig, 1);
    assert_eq!(rig.node.hubs[0].poll_ready(), Some((session, 0)));
    assert_eq!(rig.node.hubs[0].poll_timeout(), None);
    assert_eq!(rig.node.take(0, session), [patch([1, 2])]);
    wait(&mut rig, 100);
    rig.publish([3]);
    assert_eq!(rig.node.take(0, session), [patch([3])], "not too soon");
    // Changed while something is held.
    rig.publish([4]);
    let since = Some(rig.position(4));
    wait(&mut rig, 50);
    rig.node.hubs[0].handle_subscribe(session, &rig.feed, every(51), since).unwrap();
    assert_eq!(rig.node.hubs[0].poll_timeout(), Some(rig.node.now + Duration::from_millis(1)));
    rig.node.hubs[0].handle_subscribe(session, &rig.feed, every(50), since).unwrap();
    assert_eq!(rig.node.take(0, session), [patch([4])]);
    rig.node.hubs[0].handle_subscribe(session, &rig.feed, LATEST, since).unwrap();
    rig.publish([5]);
    assert_eq!(rig.node.take(0, session), [patch([5])]);
}

#[test]
fn delayed_deliveries_are_counted_when_their_session_ends() {
    for how in 0..3 {
        let mut rig = rig(1, |o| o.feed_interval_min = Duration::from_millis(100));
        wait(&mut rig, 0);
        let session = rig.join(0, Policy::Latest);
        rig.node.take(0, session);
        rig.publish([1]);
        assert_eq!(rig.node.hubs[0].counters().pending, 1);
        match how {
            0 => rig.node.hubs[0].handle_close(session),
            1 => assert!(rig.node.hubs[0].handle_unsubscribe(session, &rig.feed)),
            _ => rig.node.state(&rig.key.clone(), FeedState::NotFound, "gone"),
        }
        let counters = rig.node.hubs[0].counters();
        assert!(counters.balanced());
        if how == 2 {
            wait(&mut rig, 100);
            assert_eq!(rig.node.take(0, session), [patch([1]), "not_found gone".to_owned()]);
        }
        assert_eq!((rig.node.hubs[0].counters().pending, rig.node.hubs[0].poll_timeout()), (0, None));
    }
}

#[test]
fn a_frame_is_made_once_for_all_sessions() {
    let mut rig = rig(2, |_| {});
    let sessions: Vec<(usize, SessionId)> =
        (0..6).map(|n| (n % 2, rig.join(n % 2, Policy::Latest))).collect();
    for (core, session) in &sessions {
        rig.node.take(*core, *session);
    }
    rig.publish(1..4);
    let mut frames = Vec::new();
    for (core, session) in &sessions {
        rig.node.hubs[*core].take(*session, usize::MAX, 9, |publication, frame| {
            frames.push((publication.id(), frame.0.clone()));
        });
    }
    assert_eq!(frames.len(), 6);
    assert!(frames.windows(2).all(|pair| std::sync::Arc::ptr_eq(&pair[0].1, &pair[1].1)));
    assert_eq!(text(frames[0].1.as_bytes()), patch(1..4));
}
