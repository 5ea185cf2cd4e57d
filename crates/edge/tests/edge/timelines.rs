//! Timelines of sessions, which lists of sessions for a target have.

use crate::commands::nobody;
use crate::harness::{Io, Server, Way, id_of, on_one_and_three, unix_millis, until};
use serde_json::{Value, json};
use std::time::Duration;
use stentor_edge::{LimitPolicy, SessionLimits};
use stentor_ports::{EndedSession, PublicId, SessionEvent, SessionList};
use stentor_wire::engineio::Version;

impl Server {
    fn timeline(&self, id: PublicId) -> Vec<SessionEvent> {
        self.list(nobody().session(id), 1).sessions.remove(0).details.timeline
    }

    /// The events of a session, without their times.
    fn events(&self, id: PublicId) -> Vec<String> {
        let events = self.timeline(id).into_iter();
        events.map(|event| format!("{} {} {}", event.name, event.reason, event.count)).collect()
    }
}

#[test]
fn an_upgrade_is_an_event() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        for version in [Version::V4, Version::V3] {
            let mut io = Io::open(server.addr, "/socket.io/", version, Way::Polling, "");
            let answer = io.connect("", Value::Null);
            let id = if version == Version::V4 { id_of(&answer["sid"]) } else { id_of(&json!(io.sid)) };
            assert_eq!(server.events(id), [""; 0], "a session that only polls");
            let before = unix_millis() / 1_000;
            io.upgrade();
            until("the upgrade", || !server.events(id).is_empty());
            let events = server.timeline(id);
            let [SessionEvent { name, reason, count: 1, first, last }] = &events[..] else {
                panic!("{events:?}")
            };
            assert_eq!((&**name, &**reason, first), ("upgraded", "websocket", last));
            assert!(*first >= before, "{first} {before}");
        }
    });
}

#[test]
fn refused_requests_are_events() {
    let server = Server::start(1, |options| options.limits.subscriptions_max = 2);
    let mut ws = server.ws("/ws");
    let id = id_of(&ws.next_json()["session"]);
    for room in ["a", "b", "c", "d"] {
        ws.send_json(json!({"type": "subscribe", "room": room}));
        ws.next_json();
    }
    // By default, clients may not publish.
    for message in [json!({"type": "publish", "room": "a", "data": 1}), json!({"type": "dance"}), json!([])] {
        ws.send_json(message);
        assert_eq!(ws.next_json()["type"], "error");
    }
    let expect = [
        "subscription_refused too_many_subscriptions 2",
        "request_refused not_allowed 1",
        "request_refused unknown_type 1",
        "request_refused bad_json 1",
    ];
    assert_eq!(server.events(id), expect);
    let mut other = server.ws("/ws");
    let other = id_of(&other.next_json()["session"]);
    assert_eq!(server.events(other), [""; 0], "of another session");
}

#[test]
fn messages_above_a_limit_are_events() {
    let server = Server::start(1, |options| {
        options.session_limits = SessionLimits {
            messages_per_second: 1,
            burst: Duration::from_secs(1),
            policy: LimitPolicy::Error,
            ..SessionLimits::default()
        };
    });
    let mut ws = server.ws("/ws");
    let id = id_of(&ws.next_json()["session"]);
    let mut refused = 0;
    while refused < 3 {
        ws.send_json(json!({"type": "ping"}));
        refused += u32::from(ws.next_json()["type"] == "error");
    }
    assert_eq!(server.events(id), ["rate_limited session_limits.messages_per_second 3"]);
    server.until_metric("messages_limited", |limited| limited == 3);
}

#[test]
fn dropped_deliveries_are_events() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.limits.send_buffer_bytes_max = 500_000);
        let mut slow = server.ws("/ws");
        let id = id_of(&slow.next_json()["session"]);
        slow.ask(json!({"type": "subscribe", "room": "r", "policy": "drop_oldest"}));
        let text = format!("\"{}\"", "x".repeat(50_000));
        while server.metric("deliveries_dropped") < 20 {
            server.publish("r", &text);
            server.until_metric("inbox_messages", |waiting| waiting == 0);
        }
        let dropped = server.metric("deliveries_dropped");
        assert_eq!(server.events(id), [format!("deliveries_dropped  {dropped}")]);
        assert_eq!(server.metric("timeline_events_lost"), 0);
    });
}

#[test]
fn only_the_first_sessions_of_a_list_have_timelines() {
    let server = Server::start(1, |_| {});
    let mut clients = server.clients(12);
    for ws in &mut clients {
        ws.join("a");
        ws.send_json(json!({"type": "dance"}));
        ws.next_json();
    }
    let list = server.list(nobody().room("a").unwrap(), 100);
    let with = list.sessions.iter().filter(|info| !info.details.timeline.is_empty()).count();
    assert_eq!((list.count, with), (12, 10));
}

#[test]
fn the_timeline_of_a_session_that_has_ended_is_listed() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let before = unix_millis() / 1_000;
        let mut ws = server.ws("/ws");
        let id = id_of(&ws.next_json()["session"]);
        ws.send_json(json!({"type": "dance"}));
        ws.next_json();
        let list = |id| server.list(nobody().session(id), 9);
        assert_eq!((list(id).sessions.len(), list(id).ended), (1, Vec::new()));
        drop(ws);
        server.until_metric("timeline_ended_sessions", |ended| ended == 1);
        let SessionList { sessions, mut ended, count: 0, .. } = list(id) else { panic!() };
        assert_eq!((sessions, ended.len()), (Vec::new(), 1));
        let EndedSession { id: ended_id, protocol, address, since, ended, timeline } = ended.remove(0);
        assert_eq!((ended_id, &*protocol, &*address), (id.to_string(), "websocket", "127.0.0.1"));
        assert!(before <= since && since <= ended && ended <= unix_millis() / 1_000, "{since} {ended}");
        let events = timeline.iter().map(|event| format!("{} {}", event.name, event.reason));
        assert_eq!(events.collect::<Vec<_>>(), ["request_refused unknown_type"]);
        assert_eq!(server.list(nobody().everybody(), 9).ended, Vec::new(), "only named sessions");
    });
}
