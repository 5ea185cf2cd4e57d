//! Ids of sessions that are reserved before the sessions open.

use crate::node::{Node, room};
use stentor_hub::{FormatId, Policy, Topic};

#[test]
fn a_reserved_session_opens_once() {
    let mut node = Node::new(1);
    let hub = &mut node.hubs[0];
    let session = hub.reserve();
    let topic = Topic::Room(room("r"));
    assert!(hub.handle_subscribe(session, &topic, Policy::Queue, None).is_ok());
    assert_eq!((hub.sessions(), hub.tag(session), hub.topics()), (0, None, 0));
    assert!(hub.handle_open_reserved(session, FormatId(1), 7));
    assert_eq!((hub.sessions(), hub.tag(session), hub.format(session)), (1, Some(7), Some(FormatId(1))));
    assert!(!hub.handle_open_reserved(session, FormatId(1), 8));
    hub.release(session);
    assert_eq!(hub.tag(session), Some(7), "it is open");
    hub.handle_close(session);
    assert!(!hub.handle_open_reserved(session, FormatId(1), 8), "an id isn't used twice");
}

#[test]
fn the_place_of_a_reserved_session_is_freed() {
    let mut node = Node::new(1);
    let hub = &mut node.hubs[0];
    let refused = hub.reserve();
    let other = hub.handle_open(FormatId(0), 0);
    hub.release(refused);
    let next = hub.handle_open(FormatId(0), 0);
    assert!(next != refused && next != other);
    assert_eq!((hub.session_places(), hub.sessions()), (2, 2));
    assert!(!hub.handle_open_reserved(refused, FormatId(0), 0));
}

#[test]
fn a_session_that_closes_for_a_while_keeps_its_id() {
    let mut node = Node::new(1);
    let hub = &mut node.hubs[0];
    let session = hub.reserve();
    for tag in 0..2 {
        assert!(hub.handle_open_reserved(session, FormatId(0), tag));
        assert!(hub.handle_close_reserving(session));
        assert_ne!(hub.handle_open(FormatId(0), 0), session);
    }
    assert_eq!(hub.sessions(), 2);
}
