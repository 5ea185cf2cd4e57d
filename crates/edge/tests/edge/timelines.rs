//! Timelines of sessions, which lists of sessions for a target have.

use crate::commands::nobody;
use crate::harness::{HOUR, Io, Server, Way, Ws, id_of, on_one_and_three, unix_millis, until};
use serde_json::{Value, json};
use std::time::Duration;
use stentor_edge::{LimitPolicy, Recovery, SessionLimits};
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

    /// Waits until a session has ended. Returns the reason.
    fn end_of(&self, id: PublicId) -> String {
        let mut ended = Vec::new();
        until("the end of the session", || {
            ended = self.list(nobody().session(id), 1).ended;
            !ended.is_empty()
        });
        let EndedSession { ended: ended_at, timeline, .. } = ended.remove(0);
        match timeline.last() {
            Some(SessionEvent { name, reason, count: 1, first, last })
                if name == "ended" && [*first, *last] == [ended_at; 2] =>
            {
                reason.to_string()
            }
            _ => panic!("{timeline:?}"),
        }
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
        assert_eq!(events.collect::<Vec<_>>(), ["request_refused unknown_type", "ended connection_lost"]);
        assert_eq!(server.list(nobody().everybody(), 9).ended, Vec::new(), "only named sessions");
    });
}

#[test]
fn the_end_of_a_session_has_the_reason() {
    /// Ends the session of a client, whose id is given.
    type End = fn(&Server, &mut Ws, PublicId);
    let ends: [(&str, End); 7] = [
        ("closed_by_client", |_, ws, _| ws.send_close(1000, "")),
        ("protocol_error", |_, ws, _| ws.send_raw(&[0xff; 8])),
        ("connection_lost", |_, ws, _| ws.stream().finish_sending()),
        ("closed_by_application", |server, _, id| {
            server.disconnect(nobody().session(id), false);
        }),
        ("too_many_requests", |_, ws, _| (0..2).for_each(|_| ws.send_json(json!({"type": "ping"})))),
        ("heartbeat_timeout", |_, ws, _| ws.ignore_pings()),
        ("shutdown", |server, _, _| server.drain(HOUR)),
    ];
    let server = Server::start(1, |options| {
        options.heartbeat.interval = Duration::from_secs(1);
        options.heartbeat.timeout = Duration::from_secs(1);
        options.session_limits = SessionLimits {
            messages_per_second: 1,
            burst: Duration::from_secs(1),
            policy: LimitPolicy::Close,
            ..SessionLimits::default()
        };
    });
    // A request that waits keeps the drained node from ending.
    let mut waiting = server.http();
    waiting.send("GET /feed/k HTTP/1.1\r\nHost: a\r\n\r\n");
    server.wait_wanted("k", true);
    for (reason, end) in ends {
        let mut ws = server.ws("/ws");
        let id = id_of(&ws.next_json()["session"]);
        end(&server, &mut ws, id);
        assert_eq!(server.end_of(id), reason);
    }
}

#[test]
fn the_end_of_a_socket_has_the_reason_why_its_client_was_disconnected() {
    type End = fn(&Server) -> PublicId;
    fn connected(server: &Server, way: Way) -> (Io, PublicId) {
        let mut io = Io::socket(server, way);
        let id = id_of(&io.connect("", Value::Null)["sid"]);
        (io, id)
    }
    let ends: [(&str, End); 7] = [
        ("closed_by_client", |server| {
            let (mut io, id) = connected(server, Way::Socket);
            io.send("41");
            id
        }),
        ("closed_by_client", |server| {
            let (io, id) = connected(server, Way::Polling);
            io.leave();
            id
        }),
        ("closed_by_client", |server| {
            let mut ws = server.ws("/socket.io/?EIO=4&transport=websocket");
            ws.next_text();
            ws.send_text("40");
            let connected: Value = serde_json::from_str(&ws.next_text()[2..]).unwrap();
            ws.send_close(1001, "");
            id_of(&connected["sid"])
        }),
        ("connection_lost", |server| {
            let (io, id) = connected(server, Way::Socket);
            io.cut();
            id
        }),
        ("protocol_error", |server| {
            let (mut io, id) = connected(server, Way::Socket);
            io.send("9");
            id
        }),
        ("closed_by_application", |server| {
            let (_io, id) = connected(server, Way::Socket);
            server.disconnect(nobody().session(id), true);
            id
        }),
        ("heartbeat_timeout", |server| connected(server, Way::Polling).1),
    ];
    for recovery in [None, Some(Recovery { age_max: Duration::from_secs(2), ..Recovery::default() })] {
        let server = Server::start(1, |options| {
            options.heartbeat.interval = Duration::from_secs(1);
            options.heartbeat.timeout = Duration::from_secs(1);
            options.engine.recovery = recovery;
        });
        for (reason, end) in ends {
            assert_eq!(server.end_of(end(&server)), reason);
        }
    }
}
