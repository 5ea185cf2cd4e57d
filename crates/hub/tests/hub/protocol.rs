//! Policies and budgets: rules that were once broken, or would be easy to break. The random test in `model`
//! covers the other rules.

use crate::node::{Node, feed_at_0, kept_at_0, room};
use stentor_hub::{Disconnect, Epoch, FeedState, FormatId, Notice, Policy, Position, Topic};

#[test]
fn a_not_found_notice_stays_true_after_the_next_subscription() {
    let mut node = Node::new(1);
    let (key, feed) = feed_at_0();
    let session = node.open(0);
    node.subscribe(0, session, &feed, Policy::Latest);
    node.state(&key, FeedState::NotFound, "gone");
    let room = Topic::from(room("chat"));
    node.subscribe(0, session, &room, Policy::Queue);
    assert!(node.hubs[0].handle_unsubscribe(session, &room));
    assert_eq!(node.take(0, session), ["not_found gone"]);
}

#[test]
fn a_change_of_policy_keeps_only_the_newest_version() {
    let mut node = Node::new(1);
    let (key, feed) = feed_at_0();
    let session = node.open(0);
    node.subscribe(0, session, &feed, Policy::Latest);
    node.document(&key, "one", FeedState::Live);
    node.subscribe(0, session, &feed, Policy::Queue);
    node.document(&key, "two", FeedState::Live);
    node.subscribe(0, session, &feed, Policy::Latest);
    node.document(&key, "three", FeedState::Live);
    assert_eq!(node.take(0, session), ["doc three live"]);
    // The policy changes back and forth while the client reads nothing: pending deliveries don't grow.
    for _ in 0..100 {
        node.subscribe(0, session, &feed, Policy::Queue);
        node.subscribe(0, session, &feed, Policy::Latest);
    }
    assert_eq!(node.take(0, session), ["doc three live"]);
    assert_eq!(node.hubs[0].pending_bytes(), 0);
}

#[test]
fn messages_that_become_droppable_are_dropped_in_order() {
    let mut node = Node::with(1, |o| o.send_buffer_bytes_max = 10);
    let [kept, may_later, may] = ["r/kept", "r/later", "r/may"].map(room);
    let session = node.open(0);
    node.subscribe(0, session, &kept.clone().into(), Policy::Queue);
    node.subscribe(0, session, &may_later.clone().into(), Policy::Queue);
    node.subscribe(0, session, &may.clone().into(), Policy::DropOldest);
    node.publish(0, &kept, "aaaa");
    node.publish(0, &may_later, "bb");
    for text in ["cc", "dd", "ee"] {
        node.publish(0, &may, text);
    }
    node.subscribe(0, session, &may_later.clone().into(), Policy::DropOldest);
    node.publish(0, &may, "ff");
    assert_eq!(node.take(0, session), ["aaaa", "dd", "ee", "ff"]);
}

#[test]
fn history_that_doesnt_fit_is_a_gap_and_doesnt_end_the_session() {
    let mut node = Node::with(1, |o| o.send_buffer_bytes_max = 10);
    let (room, topic) = kept_at_0();
    let first = node.open(0);
    node.subscribe(0, first, &topic, Policy::DropOldest);
    node.publish(0, &room, "zero");
    let since = node.position(0, first);
    for text in ["one", "two", "three"] {
        node.publish(0, &room, text);
    }
    let session = node.open(0);
    assert_eq!(node.hubs[0].handle_subscribe(session, &topic, Policy::Queue, since), Ok(()));
    assert_eq!(node.hubs[0].poll_terminating(), None);
    assert_eq!(node.hubs[0].poll_notice(), Some(Notice::Gap { session, topic: topic.clone() }));
    assert_eq!(node.hubs[0].poll_notice(), None);
    node.publish(0, &room, "four");
    assert_eq!(node.take(0, session), ["four"]);
    // Under `DropOldest` the oldest missed messages are dropped.
    let session = node.open(0);
    assert_eq!(node.hubs[0].handle_subscribe(session, &topic, Policy::DropOldest, since), Ok(()));
    assert_eq!(node.take(0, session), ["three", "four"]);
}

/// Deliveries of all rooms that become pending after the gap wait for its notice. Earlier deliveries don't
/// wait.
#[test]
fn only_deliveries_after_a_gap_wait_for_its_notice() {
    let mut node = Node::new(1);
    let ((kept, topic), other) = (kept_at_0(), room("other"));
    let session = node.open(0);
    node.subscribe(0, session, &other.clone().into(), Policy::Queue);
    let unknown = Some(Position { epoch: Epoch(9), offset: 9 });
    assert_eq!(node.hubs[0].handle_subscribe(session, &topic, Policy::Queue, unknown), Ok(()));
    node.publish(0, &other, "one");
    assert_eq!(node.take(0, session), ["one"]);
    node.publish(0, &kept, "two");
    node.publish(0, &other, "three");
    assert_eq!(node.take(0, session), [""; 0]);
    assert_eq!(node.hubs[0].poll_notice(), Some(Notice::Gap { session, topic }));
    assert_eq!(node.hubs[0].poll_notice(), None);
    assert_eq!(node.take(0, session), ["two", "three"]);
}

#[test]
fn frames_without_bytes_are_bounded_too() {
    let mut node = Node::with(1, |o| o.send_buffer_bytes_max = 10);
    let room = room("chat");
    let session = node.open(0);
    node.subscribe(0, session, &room.clone().into(), Policy::Queue);
    for _ in 0..11 {
        node.publish(0, &room, "");
    }
    assert_eq!(node.hubs[0].poll_terminating(), Some((session, 0, Disconnect::SlowConsumer)));
}

#[test]
fn a_frame_above_4_gib_is_counted_alike_in_and_out() {
    let mut node = Node::new(1);
    let room = room("chat");
    let session = node.hubs[0].handle_open(FormatId(9), 0);
    node.subscribe(0, session, &room.clone().into(), Policy::Queue);
    node.publish(0, &room, "vast");
    assert!(node.hubs[0].pending_bytes() > 4 << 29);
    assert_eq!(node.take(0, session), ["vast"]);
    assert_eq!(node.hubs[0].pending_bytes(), 0);
}

#[test]
fn held_bytes_include_waiting_and_in_flight_publications() {
    let mut node = Node::new(1);
    let (key, feed) = feed_at_0();
    let room = room("chat");
    let [holds, waits, idle] = [node.open(0), node.open(0), node.open(0)];
    for session in [holds, waits, idle] {
        node.subscribe(0, session, &feed, Policy::Latest);
    }
    node.subscribe(0, waits, &room.clone().into(), Policy::Queue);
    node.document(&key, &"old".repeat(100), FeedState::Live);
    node.hubs[0].take(holds, 1, 1, |_, _| {});
    node.publish(0, &room, "short");
    node.document(&key, "new", FeedState::Live);
    let held = [holds, waits, idle].map(|session| node.hubs[0].held_bytes(session));
    assert_eq!(held, ["doc  live".len() + 300, "short".len(), 0]);
    let subscriptions = [holds, waits, idle].map(|session| node.hubs[0].subscriptions(session));
    assert_eq!(subscriptions, [1, 2, 1]);
    node.hubs[0].handle_close(holds);
    assert_eq!((node.hubs[0].held_bytes(holds), node.hubs[0].subscriptions(holds)), (0, 0));
}
