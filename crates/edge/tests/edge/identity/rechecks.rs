//! Rechecks of identities.

use super::{Issuer, Node, expect_withdrawn, subscribe};
use crate::harness::receive;
use serde_json::json;
use std::sync::mpsc;
use stentor_hub::{Data, Room};
use stentor_ports::{Busy, Done, IdentityFilter, Publish, Recheck, RecheckAction};

#[test]
fn everything_is_authorized_again_although_the_inboxes_are_full() {
    let node = Node::start(1, Issuer::default(), |options| options.limits.inbox_messages_max = 64);
    let mut ws = node.user("42");
    assert_eq!(subscribe(&mut ws, "public"), "ok");
    let mut other = node.user("43");
    node.stop_core(0, true);
    other.send_json(json!({"type": "subscribe", "room": "public"}));
    let room = Room::plain("elsewhere").unwrap();
    let publish = || {
        let data = Data::Json(bytes::Bytes::from_static(b"1"));
        node.plane().publish(Publish { room: room.clone(), event: None, data })
    };
    while publish() != Err(Busy) {}
    let (done, looked_at) = mpsc::channel();
    let recheck = Recheck { filter: IdentityFilter::default(), action: RecheckAction::Authorize };
    node.plane().recheck(recheck, Done::new(move |answer| done.send(answer).unwrap()));
    node.change_rules("public");
    node.stop_core(0, false);
    assert_eq!(receive(&looked_at).unwrap().sessions, 2);
    expect_withdrawn(&mut ws, "public");
}
