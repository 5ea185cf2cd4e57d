//! Deliveries of feeds: patches from the session's version, by policy and rate, on the home core and on other
//! cores. The random test in `model` covers the rules. Tests here are examples, or cases that the model
//! leaves out.

use crate::node::{Node, feed_at_0, text};
use std::time::Duration;
use stentor_hub::{FeedState, FormatId, Key, Policy, Position, SessionId, SubscribeOptions, Topic};

const LATEST: SubscribeOptions =
    SubscribeOptions { policy: Policy::Latest, deltas: true, interval: Duration::ZERO };

/// Returns version `n`: 60 bytes, so that some patches are shorter.
fn version(n: u32) -> String {
    format!("{:<60}", format!("\"v{n}\""))
}

/// Publishes version `n`, with the patch from the previous one.
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
    fn join(&mut self, core: usize, options: impl Into<SubscribeOptions>) -> SessionId {
        let session = self.node.open(core);
        self.node.subscribe(core, session, &self.feed, options);
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
        // 12 patches are as long as the document, so 25 patches aren't sent.
        rig.publish(5..30);
        assert_eq!(rig.node.take(core, session), [whole(29)]);
        rig.publish([30]);
        assert_eq!(rig.node.take(core, session), [patch([30])]);
    }
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
    // A text document has no patches, and the version after it has none either.
    node.document(&key, "text", FeedState::Live);
    assert_eq!(node.take(0, session), ["doc text live"]);
    node.patched(&key, "text", &version(3), "[\"3\"]");
    assert_eq!(node.take(0, session), [whole(3)]);
    node.state(&key, FeedState::Stale, "why");
    publish(&mut node, &key, 4);
    assert_eq!(node.take(0, session), [patch([4])], "live again, and the state is not told any more");
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

// Rates

/// Advances the time of the first core.
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
    // The rate changes while a version is delayed.
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
        assert!(!rig.node.hubs[0].has_pending(session), "too soon");
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

#[test]
fn a_dropped_feed_is_not_kept_for_an_unreported_subscriber() {
    let (key, feed) = feed_at_0();
    let mut node = Node::new(1);
    let session = node.open(0);
    let subscribed = |node: &mut Node| node.hubs[0].poll_subscribed().map(|(_, wanted)| wanted);
    node.subscribe(0, session, &feed, Policy::Latest);
    assert_eq!(subscribed(&mut node), Some(true));
    node.document(&key, "1", FeedState::Live);
    node.hubs[0].handle_unsubscribe(session, &feed);
    assert_eq!(subscribed(&mut node), Some(false));
    // The control plane drops the feed while a subscriber comes and goes. The control plane reads only the
    // newest report, so it doesn't keep the feed again.
    node.subscribe(0, session, &feed, Policy::Latest);
    node.hubs[0].handle_forget(&key);
    assert_eq!(subscribed(&mut node), Some(true));
    node.hubs[0].handle_unsubscribe(session, &feed);
    assert_eq!(subscribed(&mut node), Some(false));
    assert_eq!(node.hubs[0].topics(), 0);
}
