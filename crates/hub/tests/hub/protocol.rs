//! One test per rule that was once broken, or would be easy to break: what a session gets, in which order,
//! and what is left behind. The random test beside this one covers the ground; these name the places.

use crate::node::{Node, feed_at_0, kept_at_0, key};
use std::time::Duration;
use stentor_hub::{Disconnect, FeedState, FormatId, Key, Notice, Policy, Room, SubscribeError, Topic};

// ---- wanted ----

#[test]
fn only_the_home_core_reports_subscribed_keys() {
    let mut node = Node::new(2);
    let (key, feed) = feed_at_0();
    let session = node.open(1);
    node.subscribe(1, session, &feed, Policy::Latest);
    node.run_until_idle();
    assert_eq!(node.hubs[1].poll_subscribed(), None);
    assert_eq!(node.hubs[0].poll_subscribed(), Some((key.clone().into(), true)));
    assert_eq!(node.hubs[0].poll_subscribed(), None);
    node.hubs[1].handle_close(session);
    node.run_until_idle();
    assert_eq!(node.hubs[1].poll_subscribed(), None);
    assert_eq!(node.hubs[0].poll_subscribed(), Some((key.into(), false)));
    assert_eq!((node.hubs[0].topics(), node.hubs[1].topics()), (0, 0));
}

#[test]
fn a_feed_dropped_during_a_short_subscription_is_removed() {
    let mut node = Node::new(1);
    let (key, feed) = feed_at_0();
    node.document(&key, "one", FeedState::Live);
    let session = node.open(0);
    node.subscribe(0, session, &feed, Policy::Latest);
    // Control hasn't heard of the session, and never will.
    node.hubs[0].handle_forget(&key);
    assert_eq!(node.take(0, session), ["doc one live"]);
    node.hubs[0].handle_close(session);
    assert_eq!(node.hubs[0].poll_subscribed(), None);
    assert_eq!((node.hubs[0].topics(), node.live.bytes()), (0, 0));
}

#[test]
fn a_feed_dropped_when_it_is_subscribed_again_stays_once_reported() {
    let mut node = Node::new(1);
    let (key, feed) = feed_at_0();
    node.document(&key, "one", FeedState::Live);
    let session = node.open(0);
    node.subscribe(0, session, &feed, Policy::Latest);
    node.hubs[0].handle_forget(&key);
    assert_eq!(node.hubs[0].poll_subscribed(), Some((key.clone().into(), true)));
    node.hubs[0].handle_close(session);
    let session = node.open(0);
    node.subscribe(0, session, &feed, Policy::Latest);
    assert_eq!(node.take(0, session), ["doc one live"]);
    assert_eq!(node.hubs[0].poll_subscribed(), None);
}

// ---- home and followers ----

#[test]
fn an_answer_to_an_older_join_isnt_taken_for_the_newer_ones() {
    let mut node = Node::new(2);
    let (room, topic) = kept_at_0();
    let first = node.open(0);
    node.subscribe(0, first, &topic, Policy::Queue);
    node.publish(0, &room, "one");
    let since = node.position(0, first);
    node.publish(0, &room, "two");
    let session = node.open(1);
    // Comes, goes, and comes back with a place, before home has answered.
    node.subscribe(1, session, &topic, Policy::Queue);
    assert!(node.hubs[1].handle_unsubscribe(session, &topic));
    assert_eq!(node.hubs[1].handle_subscribe(session, &topic, Policy::Queue, since), Ok(()));
    node.run_until_idle();
    node.publish(0, &room, "three");
    node.run_until_idle();
    assert_eq!(node.take(1, session), ["two", "three"]);
}

#[test]
fn an_answer_to_a_closed_session_isnt_taken_for_its_successors() {
    let mut node = Node::new(2);
    let (key, feed) = feed_at_0();
    node.document(&key, "one", FeedState::Live);
    let gone = node.open(1);
    node.subscribe(1, gone, &feed, Policy::Latest);
    node.hubs[1].handle_close(gone);
    let successor = node.open(1);
    assert_ne!(gone, successor);
    node.run_until_idle();
    node.document(&key, "two", FeedState::Live);
    node.run_until_idle();
    assert_eq!(node.take(1, successor), Vec::<String>::new());
    assert_eq!(node.hubs[1].topics(), 0);
}

#[test]
fn publications_in_transit_when_a_core_left_dont_reach_later_members() {
    let mut node = Node::new(2);
    let (key, feed) = feed_at_0();
    let session = node.open(1);
    node.subscribe(1, session, &feed, Policy::Queue);
    node.run_until_idle();
    node.document(&key, "one", FeedState::Live);
    assert!(node.hubs[1].handle_unsubscribe(session, &feed));
    node.subscribe(1, session, &feed, Policy::Queue);
    node.run_until_idle();
    assert_eq!(node.take(1, session), ["doc one live"]);
}

#[test]
fn a_member_that_joins_a_follower_after_not_found_gets_no_old_document() {
    let mut node = Node::new(2);
    let (key, feed) = feed_at_0();
    node.document(&key, "one", FeedState::Live);
    let [first, second, third] = [node.open(1), node.open(1), node.open(1)];
    node.subscribe(1, first, &feed, Policy::Latest);
    node.subscribe(1, second, &feed, Policy::Latest);
    node.pass(1, 0);
    node.pass(0, 1);
    node.state(&key, FeedState::NotFound, "gone");
    // It follows, knows that the key is lost, and still waits for the answer to the second.
    node.pass(0, 1);
    assert_eq!(node.take(1, first), ["doc one live", "not_found gone"]);
    node.subscribe(1, third, &feed, Policy::Latest);
    assert_eq!(node.take(1, third), ["not_found gone"]);
    node.run_until_idle();
    assert_eq!(node.take(1, second), ["not_found gone"]);
    assert_eq!(node.hubs[1].topics(), 0);
    for session in [first, third, second] {
        assert_eq!(node.hubs[1].poll_notice(), Some(Notice::NotFound { session, key: key.clone() }));
    }
}

#[test]
fn a_home_core_that_knows_too_many_topics_refuses_joins() {
    let mut node = Node::with(2, |o| o.topics_max = 1);
    let (key, feed) = feed_at_0();
    let other = node.open(0);
    node.subscribe(0, other, &Room::plain("chat").unwrap().into(), Policy::Queue);
    // The other core knows of that room now as well: until its member is gone.
    node.hubs[0].outgoing(1).clear();
    let session = node.open(1);
    node.subscribe(1, session, &feed, Policy::Latest);
    node.run_until_idle();
    assert_eq!(
        node.hubs[1].poll_notice(),
        Some(Notice::Refused { session, topic: feed.clone(), reason: SubscribeError::TooManyTopics })
    );
    assert_eq!(node.hubs[1].topics(), 0);
    // When there is room, it may come again.
    node.hubs[0].handle_close(other);
    node.hubs[0].outgoing(1).clear();
    node.subscribe(1, session, &feed, Policy::Latest);
    node.run_until_idle();
    node.document(&key, "one", FeedState::Live);
    node.run_until_idle();
    assert_eq!(node.take(1, session), ["doc one live"]);
}

#[test]
fn members_of_a_plain_room_that_another_core_refuses_are_removed() {
    let mut node = Node::with(3, |o| o.topics_max = if o.core == 2 { 0 } else { 10 });
    let topic = Topic::from(Room::plain("chat").unwrap());
    let session = node.open(0);
    node.subscribe(0, session, &topic, Policy::Queue);
    node.run_until_idle();
    assert_eq!(
        node.hubs[0].poll_notice(),
        Some(Notice::Refused { session, topic, reason: SubscribeError::TooManyTopics })
    );
    assert_eq!((node.hubs[0].topics(), node.hubs[1].topics()), (0, 0));
}

// ---- feeds ----

#[test]
fn a_state_that_differs_from_the_documents_is_sent() {
    fn check(does: impl Fn(&mut Node, &Key), expect: &[&str]) {
        let mut node = Node::new(2);
        let (key, feed) = feed_at_0();
        let following = node.open(1);
        node.subscribe(1, following, &feed, Policy::Latest);
        node.run_until_idle();
        does(&mut node, &key);
        node.run_until_idle();
        for core in 0..2 {
            let session = node.open(core);
            node.subscribe(core, session, &feed, Policy::Latest);
            assert_eq!(node.take(core, session), expect, "core {core}");
        }
    }
    let doc = |n: &mut Node, k: &Key, state| n.document(k, "one", state);
    check(|n, k| doc(n, k, FeedState::Live), &["doc one live"]);
    check(|n, k| doc(n, k, FeedState::Complete), &["doc one complete"]);
    check(
        |n, k| {
            doc(n, k, FeedState::Live);
            n.state(k, FeedState::Stale, "why");
        },
        &["doc one live", "stale why"],
    );
    check(
        |n, k| {
            doc(n, k, FeedState::Live);
            n.state(k, FeedState::Stale, "why");
            n.state(k, FeedState::Live, "");
        },
        &["doc one live"],
    );
    check(
        |n, k| {
            doc(n, k, FeedState::Complete);
            n.state(k, FeedState::Live, "it is back");
        },
        &["doc one complete", "live it is back"],
    );
    check(
        |n, k| {
            doc(n, k, FeedState::Complete);
            doc(n, k, FeedState::Live);
        },
        &["doc one complete", "live "],
    );
}

#[test]
fn an_unchanged_document_or_state_is_not_sent() {
    let mut node = Node::new(1);
    let (key, feed) = feed_at_0();
    let session = node.open(0);
    node.subscribe(0, session, &feed, Policy::Queue);
    for _ in 0..2 {
        node.document(&key, "one", FeedState::Complete);
    }
    assert_eq!(node.take(0, session), ["doc one complete"]);
    for _ in 0..2 {
        node.state(&key, FeedState::Stale, "why");
    }
    node.state(&key, FeedState::Stale, "another reason");
    for _ in 0..2 {
        node.document(&key, "one", FeedState::Live);
    }
    assert_eq!(node.take(0, session), ["stale why", "stale another reason", "live "]);
}

// ---- policies and budgets ----

#[test]
fn a_not_found_notice_stays_true_after_the_next_subscription() {
    let mut node = Node::new(1);
    let (key, feed) = feed_at_0();
    let session = node.open(0);
    node.subscribe(0, session, &feed, Policy::Latest);
    node.state(&key, FeedState::NotFound, "gone");
    let room = Topic::from(Room::plain("chat").unwrap());
    node.subscribe(0, session, &room, Policy::Queue);
    assert!(node.hubs[0].handle_unsubscribe(session, &room));
    assert_eq!(node.take(0, session), ["not_found gone"]);
}

#[test]
fn requesting_missing_keys_without_reading_is_bounded() {
    let mut node = Node::with(1, |o| o.subscriptions_max = 3);
    let session = node.open(0);
    let mut refused = 0;
    for n in 0..10 {
        let key = key(&format!("k/{n}"));
        node.state(&key, FeedState::NotFound, "gone");
        let result = node.hubs[0].handle_subscribe(session, &key.into(), Policy::Latest, None);
        refused += usize::from(result == Err(SubscribeError::TooManySubscriptions));
    }
    assert_eq!(refused, 7);
    assert_eq!(node.take(0, session).len(), 3);
    let room = Topic::from(Room::plain("chat").unwrap());
    node.subscribe(0, session, &room, Policy::Queue);
}

#[test]
fn a_change_of_policy_leaves_the_newest_and_never_an_older_one_after_it() {
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
    // Forth and back without reading: nothing gathers.
    for _ in 0..100 {
        node.subscribe(0, session, &feed, Policy::Queue);
        node.subscribe(0, session, &feed, Policy::Latest);
    }
    assert_eq!(node.take(0, session), ["doc three live"]);
    assert_eq!(node.hubs[0].pending_bytes(), 0);
}

#[test]
fn a_change_of_policy_leaves_no_state_that_is_older_than_the_document() {
    let mut node = Node::new(1);
    let (key, feed) = feed_at_0();
    let [session, other] = [node.open(0), node.open(0)];
    node.subscribe(0, session, &feed, Policy::Queue);
    node.state(&key, FeedState::Stale, "why");
    node.document(&key, "one", FeedState::Live);
    node.subscribe(0, other, &feed, Policy::Latest);
    let since = node.position(0, other);
    assert_eq!(node.hubs[0].handle_subscribe(session, &feed, Policy::Latest, since), Ok(()));
    assert_eq!(node.take(0, session), ["doc one live"]);
    // One that is newer stays.
    node.document(&key, "two", FeedState::Live);
    node.state(&key, FeedState::Stale, "why");
    let since = node.position(0, other);
    assert_eq!(node.hubs[0].handle_subscribe(session, &feed, Policy::Queue, since), Ok(()));
    assert_eq!(node.take(0, session), ["doc two live", "stale why"]);
}

#[test]
fn a_queued_message_displaces_droppable_ones() {
    let mut node = Node::with(1, |o| o.send_buffer_bytes_max = 10);
    let [may, must] = ["may", "must"].map(|name| Room::plain(name).unwrap());
    let session = node.open(0);
    node.subscribe(0, session, &may.clone().into(), Policy::DropOldest);
    node.subscribe(0, session, &must.clone().into(), Policy::Queue);
    for text in ["aaaa", "bbbb", "cccc"] {
        node.publish(0, &may, text);
    }
    node.publish(0, &must, "important");
    assert_eq!(node.hubs[0].poll_terminating(), None);
    assert_eq!(node.take(0, session), ["important"]);
    node.publish(0, &must, "important");
    node.publish(0, &must, "too");
    assert_eq!(node.hubs[0].poll_terminating(), Some((session, 0, Disconnect::SlowConsumer)));
    assert_eq!(node.hubs[0].poll_terminating(), None);
}

#[test]
fn messages_that_become_droppable_are_dropped_in_order() {
    let mut node = Node::with(1, |o| o.send_buffer_bytes_max = 10);
    let [kept, may_later, may] =
        ["kept", "later", "may"].map(|name| Room::plain(&format!("r/{name}")).unwrap());
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
    node.publish(0, &room, "four");
    assert_eq!(node.take(0, session), ["four"]);
    // Under a policy that may leave something out, it does.
    let session = node.open(0);
    assert_eq!(node.hubs[0].handle_subscribe(session, &topic, Policy::DropOldest, since), Ok(()));
    assert_eq!(node.take(0, session), ["three", "four"]);
}

#[test]
fn removed_deliveries_dont_block_volatile_messages() {
    let mut node = Node::new(1);
    let [one, two] = ["one", "two"].map(|name| Room::plain(name).unwrap());
    let session = node.open(0);
    node.subscribe(0, session, &one.clone().into(), Policy::Queue);
    node.subscribe(0, session, &two.clone().into(), Policy::Queue);
    node.publish(0, &one, "hello");
    assert!(node.hubs[0].handle_unsubscribe(session, &one.into()));
    assert!(!node.hubs[0].has_pending(session));
    node.publish_volatile(0, &two, "now");
    node.publish_volatile(0, &two, "and now");
    assert_eq!(node.take(0, session), ["now"]);
}

#[test]
fn frames_without_bytes_are_bounded_too() {
    let mut node = Node::with(1, |o| o.send_buffer_bytes_max = 10);
    let room = Room::plain("chat").unwrap();
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
    let room = Room::plain("chat").unwrap();
    let session = node.hubs[0].handle_open(FormatId(9), 0);
    node.subscribe(0, session, &room.clone().into(), Policy::Queue);
    node.publish(0, &room, "vast");
    assert!(node.hubs[0].pending_bytes() > 4 << 29);
    assert_eq!(node.take(0, session), ["vast"]);
    assert_eq!(node.hubs[0].pending_bytes(), 0);
}

#[test]
fn held_bytes_include_what_waits_and_what_is_in_flight() {
    let mut node = Node::new(1);
    let (key, feed) = feed_at_0();
    let room = Room::plain("chat").unwrap();
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

#[test]
fn under_memory_pressure_the_history_of_the_quietest_rooms_is_evicted_first() {
    let mut node = Node::new(1);
    let rooms = [0, 1, 2].map(|n| Room::plain(&format!("kept/{n}")).unwrap());
    for room in &rooms {
        node.now += Duration::from_secs(1);
        node.publish(0, room, "12345");
        node.publish(0, room, "12345");
    }
    assert_eq!(node.hubs[0].topics(), 3);
    assert_eq!(node.hubs[0].handle_overload(11), 15);
    assert_eq!(node.hubs[0].topics(), 2);
    node.now += Duration::from_secs(61);
    node.hubs[0].handle_tick(node.now);
    assert_eq!((node.hubs[0].topics(), node.live.bytes()), (0, 0));
}

#[test]
fn closed_sessions_get_no_notices() {
    let mut node = Node::new(1);
    let (key, feed) = feed_at_0();
    let session = node.open(0);
    node.subscribe(0, session, &feed, Policy::Latest);
    node.state(&key, FeedState::NotFound, "gone");
    node.hubs[0].handle_close(session);
    assert_eq!(node.hubs[0].poll_notice(), None);
    assert_eq!(node.hubs[0].poll_ready(), None);
}
