//! Reports of new subscribers, and of topics that gain their first subscriber or lose their last one.

use crate::node::{Node, key, room};
use stentor_hub::{Attendance, FeedState, FormatId, Policy, Topic};

#[test]
fn subscriptions_are_reported_in_order() {
    let mut node = Node::new(1);
    let hub = &mut node.hubs[0];
    let topic = Topic::Room(room("r"));
    let unseen = hub.handle_open(FormatId(0), 0);
    hub.handle_subscribe(unseen, &topic, Policy::Queue, None).unwrap();
    assert!(hub.take_attendance().is_empty(), "nobody wants to know");
    hub.handle_close(unseen);
    hub.report_attendance();
    let (one, two) = (hub.handle_open(FormatId(0), 0), hub.handle_open(FormatId(0), 0));
    for session in [one, two, two] {
        hub.handle_subscribe(session, &topic, Policy::Queue, None).unwrap();
    }
    let subscribed = |session| Attendance::Subscribed(session, topic.clone());
    let expect = [Attendance::Occupied(topic.clone()), subscribed(one), subscribed(two)];
    assert_eq!(hub.take_attendance(), expect);
    assert!(hub.handle_unsubscribe(one, &topic) && hub.take_attendance().is_empty());
    hub.handle_close(two);
    assert_eq!(hub.take_attendance(), [Attendance::Vacated(topic.clone())]);
    assert!(hub.take_attendance().is_empty());
}

#[test]
fn a_feed_that_is_not_found_loses_its_subscribers() {
    let mut node = Node::new(1);
    let hub = &mut node.hubs[0];
    hub.report_attendance();
    let key = key("a");
    let topic = Topic::Feed(key.clone());
    let session = hub.handle_open(FormatId(0), 0);
    hub.handle_subscribe(session, &topic, Policy::Latest, None).unwrap();
    hub.take_attendance();
    hub.handle_state(&key, FeedState::NotFound, "".into());
    assert_eq!(hub.take_attendance(), [Attendance::Vacated(topic)]);
    hub.handle_state(&key, FeedState::NotFound, "again".into());
    assert!(hub.take_attendance().is_empty(), "it had nobody to lose");
}
