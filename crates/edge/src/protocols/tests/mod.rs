//! Each protocol on a virtual clock, without a socket, a driver or a core.

#![allow(clippy::unwrap_used)] // Tests may panic; clippy knows only functions marked as such.

mod moving;
mod relay;
mod rig;

use crate::app::{Action, Echo, Envelope, RoomsApp};
use crate::encode::Format;
use crate::executor::{Effect, PollAnswer};
use crate::identity::Owner;
use crate::options::SockJs;
use crate::protocols::client::{ActiveTransport, TransportStatus};
use crate::protocols::clients::TableEntry;
use crate::rule::Rooms;
use rig::{Conn, Machine, Rig, frame, get, post, text, upgrade};
use std::time::Duration;
use stentor_hub::{Disconnect, Document, FeedState, Key, Policy, Room};

const MILLISECOND: Duration = Duration::from_millis(1);

fn echo() -> Rig {
    Rig::new(Box::new(Echo), |options| options.sockjs = vec![SockJs::at("/sockjs")])
}

/// A WebSocket that is open.
fn socket(rig: &mut Rig, target: &str) -> (Conn, String) {
    let mut conn = rig.connect();
    let response = rig.receive(&mut conn, upgrade(target));
    assert!(response.starts_with("HTTP/1.1 101 "), "{response}");
    let (_, first) = response.split_once("\r\n\r\n").unwrap();
    let first = first.to_owned();
    (conn, first)
}

fn closes_for(rig: &mut Rig) -> Option<Disconnect> {
    rig.ex.actions.drain(..).find_map(|action| match action {
        Action::Close { why, .. } => Some(why),
        _ => None,
    })
}

#[test]
fn http_answers_pipelined_requests_in_order_and_times_out() {
    let mut rig = echo();
    let mut conn = rig.connect();
    let both = get("/healthz") + &get("/nothing");
    let (first, second) = both.split_at(30);
    assert_eq!(rig.receive(&mut conn, &first[..10]), "");
    let responses = rig.receive(&mut conn, [&first[10..], second].concat());
    let statuses: Vec<&str> = responses.split("HTTP/1.1 ").skip(1).map(|response| &response[..3]).collect();
    assert_eq!(statuses, ["200", "404"]);
    // The next request begins and doesn't end.
    assert_eq!(rig.receive(&mut conn, "GET / HT"), "");
    let timeout = rig.ex.options().limits.header_timeout;
    rig.wait(timeout - MILLISECOND);
    assert_eq!(rig.time_out(&mut conn), "");
    rig.wait(2 * MILLISECOND);
    assert!(rig.time_out(&mut conn).starts_with("HTTP/1.1 408 "));
    assert!(matches!(conn.machine, Machine::Ended));
}

#[test]
fn websocket_echoes_pings_and_gives_up() {
    let mut rig = echo();
    let (mut conn, _) = socket(&mut rig, "/ws");
    let message = text("hello");
    assert_eq!(rig.receive(&mut conn, &message[..3]), "");
    assert_eq!(rig.receive(&mut conn, &message[3..]), frame("hello"));
    let heartbeat = rig.ex.options().heartbeat;
    rig.wait(heartbeat.interval - MILLISECOND);
    assert_eq!(rig.time_out(&mut conn), "");
    rig.wait(2 * MILLISECOND);
    assert_eq!(rig.time_out(&mut conn), "\u{fffd}\0");
    // Whatever is received answers a ping.
    rig.receive(&mut conn, text("x"));
    rig.wait(heartbeat.interval + MILLISECOND);
    rig.time_out(&mut conn);
    rig.wait(heartbeat.timeout + MILLISECOND);
    rig.time_out(&mut conn);
    assert_eq!(closes_for(&mut rig), Some(Disconnect::HeartbeatTimeout));
}

#[test]
fn websocket_ends_a_message_that_does_not_end() {
    let mut rig = echo();
    let (mut conn, _) = socket(&mut rig, "/ws");
    rig.receive(&mut conn, &text("hello")[..7]);
    let timeout = rig.ex.options().limits.message_timeout;
    rig.wait(timeout + MILLISECOND);
    rig.time_out(&mut conn);
    assert_eq!(closes_for(&mut rig), Some(Disconnect::MessageTimeout));
}

/// A thousand deliveries for each short message: the publisher's share of a turn is used long before its input is.
#[test]
fn deliveries_count_as_work_of_the_connection_that_publishes() {
    let rooms = Rooms { publish: true, ..Rooms::default() };
    let mut rig = Rig::new(Box::new(RoomsApp::new(rooms)), |_| {});
    let room = Room::plain("large").unwrap();
    for index in 0..1_000 {
        let format = Format::websocket(Envelope::V1, false);
        let session = rig.ex.open_session(format, Owner::Connection(index), 0);
        rig.ex.subscribe(session, &room.clone().into(), Policy::Queue, None).unwrap();
    }
    let (mut conn, _) = socket(&mut rig, "/ws");
    rig.wait(MILLISECOND);
    rig.receive(&mut conn, text(r#"{"type":"publish","room":"large","data":1}"#).repeat(100));
    let Machine::WebSocket(socket) = &conn.machine else { panic!("not a WebSocket") };
    assert!(socket.has_unread());
}

#[test]
fn engineio_polls_pings_and_gives_up() {
    let mut rig = echo();
    let (mut polls, mut posts) = (rig.connect(), rig.connect());
    let opened = rig.receive(&mut polls, get("/engine.io/?EIO=4&transport=polling"));
    let sid = opened.split(r#""sid":""#).nth(1).unwrap()[..20].to_owned();
    let target = format!("/engine.io/?EIO=4&transport=polling&sid={sid}");
    // A poll waits until there is something.
    rig.effects();
    assert_eq!(rig.receive(&mut polls, get(&target)), "");
    let answer = rig.receive(&mut posts, post(&target, "4hello"));
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    let id = rig.engine_client().state().id;
    assert!(
        rig.effects().iter().any(|effect| matches!(effect, Effect::FlushClient(client) if *client == id))
    );
    let mut out = Vec::new();
    if let Machine::Http(http) = &mut polls.machine
        && let Some(crate::protocols::http::Waiting::Poll(poll)) = &mut http.waiting
    {
        assert!(rig.engineio.get_mut(id).unwrap().answer_poll(&mut rig.ex, poll, &mut out));
    }
    assert!(out.ends_with(b"\r\n\r\n4hello"));
    // A ping after the interval, the end after the timeout.
    let heartbeat = rig.ex.options().heartbeat;
    rig.wait(heartbeat.interval + MILLISECOND);
    rig.engineio.get_mut(id).unwrap().handle_timeout(&mut rig.ex, TransportStatus::default());
    assert!(rig.engine_client().state().queue.ends_with(b"2"));
    rig.wait(heartbeat.timeout + MILLISECOND);
    rig.effects();
    rig.engineio.get_mut(id).unwrap().handle_timeout(&mut rig.ex, TransportStatus::default());
    assert!(
        rig.effects().iter().any(|effect| matches!(effect, Effect::RemoveClient(client) if *client == id))
    );
}

#[test]
fn engineio_ends_a_client_that_polls_twice() {
    let mut rig = echo();
    let (mut first, mut second) = (rig.connect(), rig.connect());
    let opened = rig.receive(&mut first, get("/engine.io/?EIO=4&transport=polling"));
    let sid = opened.split(r#""sid":""#).nth(1).unwrap()[..20].to_owned();
    let poll = get(&format!("/engine.io/?EIO=4&transport=polling&sid={sid}"));
    assert_eq!(rig.receive(&mut first, &poll), "");
    assert!(rig.receive(&mut second, &poll).starts_with("HTTP/1.1 400 "));
    // The first is told of the end.
    let told = rig.effects().into_iter().any(|effect| {
        matches!(effect, Effect::AnswerPoll { answer: PollAnswer::Records(records), .. } if records.ends_with(b"1"))
    });
    assert!(told);
    // Nobody finds the client any more.
    assert!(rig.receive(&mut second, &poll).contains("Session ID unknown"));
}

#[test]
fn socketio_connects_echoes_and_must_connect_in_time() {
    let mut rig = echo();
    let (mut conn, open) = socket(&mut rig, "/socket.io/?EIO=4&transport=websocket");
    assert!(open.contains(r#"0{"sid":"#), "{open}");
    assert!(rig.receive(&mut conn, text("40")).contains(r#"40{"sid":"#));
    assert_eq!(rig.receive(&mut conn, text(r#"420["hi",1]"#)), frame(r#"42["hi",1]"#) + &frame("430[1]"));
    assert!(rig.receive(&mut conn, text("40/no,")).contains(r#"44/no,{"message":"Invalid namespace"}"#));
    // Another client connects to nothing.
    let (_idle, _) = socket(&mut rig, "/socket.io/?EIO=4&transport=websocket");
    let timeout = rig.ex.options().engine.connect_timeout;
    rig.wait(timeout + MILLISECOND);
    rig.effects();
    for id in rig.engineio.ids() {
        rig.engineio.get_mut(id).unwrap().handle_timeout(&mut rig.ex, TransportStatus::default());
    }
    let ended = rig.engineio.ids().iter().filter(|id| rig.engineio.get(**id).unwrap().state().ended).count();
    assert_eq!(ended, 1);
    let code = rig.effects().into_iter().find_map(|effect| match effect {
        Effect::CloseSocket { code, .. } => Some(code),
        _ => None,
    });
    assert_eq!(code, Some(Disconnect::NotConnected.code()));
}

#[test]
fn sockjs_opens_echoes_beats_and_forgets() {
    let mut rig = echo();
    let (mut conn, mut sends) = (rig.connect(), rig.connect());
    let xhr = post("/sockjs/0/x/xhr", "");
    assert!(rig.receive(&mut conn, &xhr).ends_with("\r\n\r\no\n"));
    let id = rig.sockjs.ids()[0];
    assert!(
        rig.receive(&mut sends, post("/sockjs/0/x/xhr_send", r#"["a","b"]"#)).starts_with("HTTP/1.1 204 ")
    );
    let mut next = rig.connect();
    assert!(rig.receive(&mut next, &xhr).ends_with("\r\n\r\na[\"a\",\"b\"]\n"));
    // The next one waits, and is to have a heartbeat.
    let mut waiting = rig.connect();
    assert_eq!(rig.receive(&mut waiting, &xhr), "");
    let settings = rig.ex.options().sockjs[0].clone();
    rig.wait(settings.heartbeat - MILLISECOND);
    let client = rig.sockjs.get_mut(id).unwrap();
    assert!(!client.handle_timeout(&mut rig.ex, TransportStatus::default()));
    rig.wait(2 * MILLISECOND);
    assert!(rig.sockjs.get_mut(id).unwrap().handle_timeout(&mut rig.ex, TransportStatus::default()));
    // Nobody comes again.
    rig.sockjs.get_mut(id).unwrap().receiver_left(&mut rig.ex);
    rig.wait(settings.disconnect_delay + MILLISECOND);
    rig.effects();
    rig.sockjs.get_mut(id).unwrap().handle_timeout(&mut rig.ex, TransportStatus::default());
    assert!(
        rig.effects().iter().any(|effect| matches!(effect, Effect::RemoveClient(client) if *client == id))
    );
}

#[test]
fn sockjs_frames_messages_on_a_websocket() {
    let mut rig = echo();
    let (mut conn, open) = socket(&mut rig, "/sockjs/0/x/websocket");
    assert_eq!(open, frame("o"));
    assert_eq!(rig.receive(&mut conn, text(r#"["a","b"]"#)), frame(r#"a["a"]"#) + &frame(r#"a["b"]"#));
    assert_eq!(rig.receive(&mut conn, text("no")), "");
    assert!(matches!(rig.effects().as_slice(), [Effect::CloseSocket { .. }]));
}

#[test]
fn primus_pings_at_its_pace() {
    let mut rig = echo();
    let (mut conn, _) = socket(&mut rig, "/primus/");
    assert_eq!(rig.receive(&mut conn, text(r#""hello""#)), frame(r#""hello""#));
    let interval = rig.ex.options().primus.ping_interval;
    rig.wait(interval + MILLISECOND);
    assert!(rig.time_out(&mut conn).contains("primus::ping::"));
    rig.wait(interval + MILLISECOND);
    rig.time_out(&mut conn);
    assert_eq!(closes_for(&mut rig), Some(Disconnect::HeartbeatTimeout));
}

#[test]
fn sse_begins_with_retry_and_comments_as_heartbeats() {
    let mut rig = echo();
    let mut conn = rig.connect();
    let response = rig.receive(&mut conn, get("/sse/scores"));
    assert!(
        response.contains("Content-Type: text/event-stream") && response.contains("retry: "),
        "{response}"
    );
    let document = Document { body: b"[1]"[..].into(), content_type: "application/json".into(), json: true };
    rig.ex.hub.handle_document(&Key::parse("scores").unwrap(), FeedState::Live, document, None);
    let session = conn.session.unwrap();
    assert!(rig.deliveries(session).contains("event: snapshot\ndata: [1]"));
    let interval = rig.ex.options().heartbeat.interval;
    rig.wait(interval + MILLISECOND);
    let comment = rig.time_out(&mut conn);
    assert_eq!(comment, "3\r\n: \n\r\n");
}

#[test]
fn a_lost_connection_ends_the_client_that_it_carries() {
    let mut rig = echo();
    let (_conn, _) = socket(&mut rig, "/engine.io/?EIO=4&transport=websocket");
    let client = rig.engine_client();
    let ActiveTransport::WebSocket(conn) = client.state().transport else { panic!("not on a WebSocket") };
    let id = client.state().id;
    rig.engineio.get_mut(id).unwrap().handle_connection_lost(&mut rig.ex, conn, false);
    assert!(rig.engineio.get(id).unwrap().state().ended);
}
