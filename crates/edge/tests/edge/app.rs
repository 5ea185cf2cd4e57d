//! The application interface: arguments of handlers and actions of their context.

use crate::harness::{Seen, Server, Ws};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_edge::{Application, Connect, Context, Envelope, Message, Options};
use stentor_hub::{Data, Disconnect, Policy, Room, SessionId};
use stentor_wire::http1::Request;

/// An application that carries out its clients' commands and records its calls.
struct Puppet {
    log: Arc<Mutex<Vec<&'static str>>>,
    sessions: Vec<SessionId>,
    room: Room,
}

impl Application for Puppet {
    fn connect(&mut self, _: &mut Context<'_>, request: &Request<'_>) -> Connect {
        self.log.lock().unwrap().push("connect");
        match request.query() {
            "no" => Connect::Refuse { status: 403, message: "not you".into() },
            _ => Connect::Accept,
        }
    }

    fn opened(&mut self, ctx: &mut Context<'_>, session: SessionId, _: Envelope) {
        self.log.lock().unwrap().push("opened");
        self.sessions.push(session);
        ctx.join(session, &self.room, Policy::Queue).unwrap();
        if self.sessions.len() == 99 {
            ctx.close(session, Disconnect::BadRequest);
        }
    }

    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, message: Message<'_>) {
        let first = self.sessions[0];
        match message {
            Message::Text("close me") => {
                ctx.close(session, Disconnect::NotAccepted);
                ctx.close(session, Disconnect::BadRequest);
            }
            Message::Text("close the first") => ctx.close(first, Disconnect::Overloaded),
            Message::Text("tell the others") => {
                let how = ctx.except(session);
                let _ = ctx.publish(&self.room, None, Data::Text("told".into()), how);
            }
            Message::Text("leave") => assert!(ctx.unsubscribe(session, &self.room.clone().into())),
            Message::Text("later") => {
                ctx.after(Duration::from_millis(20), 7);
                ctx.after(Duration::from_millis(10), 5);
            }
            Message::Text("answer and publish") => {
                let _ = ctx.publish(&self.room, None, Data::Text("published".into()), Default::default());
                ctx.send(session, Message::Text("answered"));
            }
            // Sends to the first session.
            other => ctx.send(first, other),
        }
    }

    fn closed(&mut self, ctx: &mut Context<'_>, session: SessionId) {
        self.log.lock().unwrap().push("closed");
        self.sessions.retain(|other| *other != session);
        let _ = ctx.publish(&self.room, None, Data::Text("somebody left".into()), Default::default());
    }

    fn timer(&mut self, ctx: &mut Context<'_>, token: u64) {
        let _ =
            ctx.publish(&self.room, None, Data::Text(format!("timer {token}").into()), Default::default());
    }
}

type Log = Arc<Mutex<Vec<&'static str>>>;

fn puppet(set: impl FnOnce(&mut Options)) -> (Server, Log) {
    let log = Log::default();
    let app = log.clone();
    let server = Server::with_app(
        1,
        Arc::new(move |_| {
            let room = Room::plain("all").unwrap();
            Box::new(Puppet { log: app.clone(), sessions: Vec::new(), room })
        }),
        set,
    );
    (server, log)
}

#[test]
fn a_session_is_opened_and_closed_once() {
    let (server, log) = puppet(|_| {});
    assert_eq!(Ws::open(server.addr, "/ws?no", &[], false).err(), Some(403));
    // The route of a feed doesn't call the application.
    let mut feed = server.ws("/ws/k");
    feed.send_text("hello");
    assert_eq!(feed.expect_close().0, 4400);
    // A request for a document doesn't call the application either.
    server.document("k", "1");
    assert_eq!(server.http().get("/feed/k").text(), "1");
    assert_eq!(*log.lock().unwrap(), ["connect"]);
    log.lock().unwrap().clear();
    let mut ws = server.ws("/ws");
    ws.send_close(1000, "");
    assert_eq!(ws.expect_close().0, 1000);
    assert_eq!(*log.lock().unwrap(), ["connect", "opened", "closed"]);
    // The first reason for closing counts, and the later message of the same read isn't handled.
    log.lock().unwrap().clear();
    let mut ws = server.ws("/ws");
    let mut both = crate::harness::ws::frame(stentor_wire::ws::Opcode::Text, b"close me", true, false);
    both.extend(crate::harness::ws::frame(stentor_wire::ws::Opcode::Text, b"hello", true, false));
    ws.send_raw(&both);
    assert_eq!(ws.expect_close().0, 4400);
    assert_eq!(*log.lock().unwrap(), ["connect", "opened", "closed"]);
    assert_eq!((server.disconnects("not_accepted"), server.disconnects("bad_request")), (2, 0));
}

#[test]
fn answers_come_before_publications_and_reach_others_too() {
    let (server, _) = puppet(|_| {});
    let mut first = server.ws("/ws");
    first.send_text("answer and publish");
    assert_eq!(first.next_text(), "answered");
    assert_eq!(first.next_text(), "published");
    let mut second = server.ws("/ws");
    second.send_text("for the first");
    second.send_binary(b"bytes");
    assert_eq!(first.next_text(), "for the first");
    assert_eq!(first.next_binary(), b"bytes");
    second.send_text("tell the others");
    assert_eq!(first.next_text(), "told");
    assert_eq!(second.fence(), []);
    second.send_text("close the first");
    assert_eq!(first.expect_close().0, 4502);
    assert_eq!(second.next_text(), "somebody left");
    second.send_text("leave");
    second.send_text("tell the others");
    assert_eq!(second.fence(), []);
}

#[test]
fn timers_fire_once_in_order() {
    let (server, _) = puppet(|_| {});
    let mut ws = server.ws("/ws");
    ws.send_text("later");
    assert_eq!(ws.next_text(), "timer 5");
    assert_eq!(ws.next_text(), "timer 7");
    ws.send_text("later");
    assert_eq!(ws.next_text(), "timer 5");
    assert_eq!(ws.next_text(), "timer 7");
    assert_eq!(ws.fence(), []);
}

/// Messages of an application to a client that doesn't read have the same bound as messages of rooms.
#[test]
fn messages_of_the_application_to_a_client_that_does_not_read_are_bounded() {
    let (server, _) = puppet(|options| {
        options.limits.send_buffer_bytes_max = 1 << 20;
        options.heartbeat.interval = Duration::from_secs(3600);
    });
    let mut silent = server.ws("/ws");
    let mut speaker = server.ws("/ws");
    let mut sent = 0;
    while server.disconnects("slow_consumer") == 0 {
        speaker.send_binary(&[0; 100_000]);
        sent += 1;
        assert!(sent < 1000, "what is sent to one session is not bounded");
    }
    assert_eq!(silent.skip_to_close(), 4501);
    loop {
        // After the end of the silent session, the speaker's own session is the first one and receives the messages.
        match speaker.next() {
            Seen::Text(text) => break assert_eq!(text, "somebody left"),
            Seen::Binary(_) => {}
            other => panic!("{other:?}"),
        }
    }
}
