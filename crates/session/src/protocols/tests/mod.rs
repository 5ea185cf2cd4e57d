//! Tests of protocol machines in situations that clients alone can't cause: on a virtual clock, without socket, driver or core.
//! `crates/edge/tests/edge` tests each protocol from the client's side, on a virtual clock as well.

#![allow(clippy::unwrap_used)] // Tests may panic; clippy knows only functions marked as such.

mod moving;
mod once;
mod relay;
mod rig;

use crate::app::{Echo, Envelope, RoomsApp};
use crate::encode::Encoding;
use crate::identity::{End, Owner, Service};
use crate::options::SockJs;
use crate::ports::ENDED_LISTED_MAX;
use crate::rule::Rooms;
use rig::{Conn, Machine, Rig, frame, text, upgrade};
use std::time::Duration;
use stentor_hub::{HistoryLimits, Policy, Room, SessionId};

const MILLISECOND: Duration = Duration::from_millis(1);

/// Opens a WebSocket. Returns the connection and the first output after the response to the upgrade.
fn socket(rig: &mut Rig, target: &str) -> (Conn, String) {
    let mut conn = rig.connect();
    let response = rig.receive(&mut conn, upgrade(target));
    assert!(response.starts_with("HTTP/1.1 101 "), "{response}");
    let (_, first) = response.split_once("\r\n\r\n").unwrap();
    let first = first.to_owned();
    (conn, first)
}

/// Each short message causes 1,000 deliveries, so the publisher's share of a turn is used up while most of its input is unread.
#[test]
fn deliveries_count_as_work_of_the_connection_that_publishes() {
    let rooms = Rooms { publish: true, ..Rooms::default() };
    let mut rig = Rig::new(Box::new(RoomsApp::new(rooms)), |_| {});
    let room = Room::plain("large").unwrap();
    for index in 0..1_000 {
        let encoding = Encoding::websocket(Envelope::V1, false);
        let owner = Owner::Connection(index, Service::default());
        let session = rig.ex.open_session(encoding, owner, 0, None);
        rig.ex.hub.handle_subscribe(session, &room.clone().into(), Policy::Queue, None).unwrap();
    }
    let (mut conn, _) = socket(&mut rig, "/ws");
    rig.wait(MILLISECOND);
    rig.receive(&mut conn, text(r#"{"type":"publish","room":"large","data":1}"#).repeat(100));
    let Machine::WebSocket(socket) = &conn.machine else { panic!("not a WebSocket") };
    assert!(socket.has_unread());
}

/// Checks for each protocol that an echoed message causes neither effects nor messages to other cores. The core's shortcut
/// requires this.
#[test]
fn an_echo_causes_nothing_but_its_answer() {
    let check = |target: &str, first: &[&str], message: &str, answer: &str| {
        let mut rig = Rig::new(Box::new(Echo), |options| options.sockjs = vec![SockJs::at("/sockjs")]);
        let (mut conn, _) = socket(&mut rig, target);
        for message in first {
            rig.receive(&mut conn, text(message));
        }
        rig.arm_clients();
        let dispatches = rig.ex.dispatches();
        for _ in 0..2 {
            assert_eq!(rig.receive(&mut conn, text(message)), frame(answer), "{target}");
            assert!(rig.ex.effects.is_empty() && rig.ex.dispatches() == dispatches, "{target}");
        }
    };
    check("/ws", &[], "a", "a");
    check("/primus/", &[], "\"a\"", "\"a\"");
    check("/sockjs/0/a/websocket", &[], r#"["a"]"#, r#"a["a"]"#);
    check("/engine.io/?EIO=4&transport=websocket", &[], "4a", "4a");
    check("/engine.io/?EIO=3&transport=websocket", &[], "2a", "3a");
    check("/socket.io/?EIO=4&transport=websocket", &["40"], r#"42["a",1]"#, r#"42["a",1]"#);
}

/// In one input, a client subscribes to `kept` at an expired position, publishes to `kept` and `other`, and unsubscribes from
/// `other`. The core handles no notices in between.
#[test]
fn a_leave_after_a_gap_in_another_room_loses_nothing() {
    let limits = HistoryLimits { publications_max: 9, bytes_max: 1_000, age_max: Duration::from_secs(300) };
    let rooms = Rooms { publish: true, history: vec![("kept".into(), limits)], ..Rooms::default() };
    let app = Box::new(RoomsApp::new(rooms.clone()));
    let mut rig = Rig::new(app, |options| options.rooms = rooms);
    let (mut conn, _) = socket(&mut rig, "/ws");
    let sent = [
        r#"{"type":"subscribe","room":"other"}"#,
        r#"{"type":"subscribe","room":"kept","epoch":9,"offset":9}"#,
        r#"{"type":"publish","room":"kept","data":"first"}"#,
        r#"{"type":"publish","room":"other","data":"second"}"#,
        r#"{"type":"unsubscribe","room":"other","id":"left"}"#,
    ];
    let received = rig.receive(&mut conn, sent.map(text).concat());
    let at = ["history_expired", "first", "second", "left"].map(|news| received.find(news));
    assert!(at.is_sorted() && at[0].is_some(), "{at:?}: {received}");
    assert_eq!(rig.ex.poll_notice(), None, "it was notified once");
}

/// Many of the ids that a request names may be older than all kept ends.
#[test]
fn an_end_is_found_among_many_ids_whose_ends_are_not_kept() {
    let mut rig = Rig::new(Box::new(Echo), |_| {});
    let [_, session] = [0, 1].map(|index| {
        let (encoding, owner) =
            (Encoding::websocket(Envelope::V1, false), Owner::Connection(index, Service::default()));
        rig.ex.open_session(encoding, owner, 0, None)
    });
    let id = rig.ex.public_id(session).to_string();
    rig.ex.close_session(session, End::Gone);
    // Later sessions in the place of the first one, whose ids are smaller.
    let forgotten =
        (1..=2 * ENDED_LISTED_MAX as u64).map(|generation| SessionId::from_bits(generation << 32));
    let named: Vec<SessionId> = forgotten.chain([session]).collect();
    let ended = rig.ex.ended_of(named).into_iter().map(|ended| ended.id);
    assert_eq!(ended.collect::<Vec<_>>(), [id]);
}
