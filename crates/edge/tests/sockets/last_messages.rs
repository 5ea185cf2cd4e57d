//! Messages published before the application ends a session or takes it out of a room: the client receives them first.
//!
//! On the virtual clock, so that a core finds the message and the command in the same turn each time.

use super::commands::{Client, Link, nobody, room};
use crate::harness::{Server, Way, on_one_and_three, pace, until};
use serde_json::{Value, json};
use std::sync::mpsc;
use std::time::Duration;
use stentor_edge::{Command, Concerned, Done, Publish};
use stentor_hub::{Data, Room, Rooms};
use stentor_wire::engineio::Version;

/// So many that each core is the home of some.
const ROOMS: usize = 6;
/// More than a connection takes at once.
const LARGE_BYTES: usize = 900_000;

/// What the application does to the members of a room.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    Leave,
    Disconnect,
    /// The connection ends as well.
    Close,
}

const ACTS: [Act; 3] = [Act::Leave, Act::Disconnect, Act::Close];

impl Act {
    fn command(self, room: &str, done: Done<Concerned>) -> Command {
        match self {
            Self::Leave => Command::Leave { rooms: Rooms::new("/", [room]).unwrap(), done },
            Self::Disconnect => Command::Disconnect { close: false, done },
            Self::Close => Command::Disconnect { close: true, done },
        }
    }
}

fn publish(server: &Server, room: &str, data: &str) {
    let data = Data::Json(data.to_owned().into());
    let room = Room::plain(room).unwrap();
    server.plane().publish(Publish { room, event: Some("e".into()), data }).unwrap();
}

/// Publishes to a room, and acts on its members as soon as all cores have passed the message on. Returns how many there are.
fn publish_and_act(server: &Server, cores: usize, name: &str, act: Act) -> usize {
    let (sender, acted) = mpsc::channel();
    let done = Done::new(move |answer: Result<Concerned, _>| sender.send(answer.unwrap()).unwrap());
    publish(server, name, r#""last""#);
    let (plane, target, command) = (server.plane_handle(), room(name), act.command(name, done));
    if cores == 1 {
        plane.command(target, command);
    } else {
        let passed_on = Done::new(move |_: Result<Concerned, _>| plane.command(target, command));
        let join = Command::Join { rooms: Rooms::new("/", ["empty"]).unwrap(), done: passed_on };
        server.plane().command(room("empty"), join);
    }
    let mut members = None;
    until("the command to be carried out", || {
        members = acted.try_recv().ok();
        members.is_some()
    });
    members.unwrap().sessions
}

/// Reads the last message, then the end.
fn expect_last(server: &Server, client: &mut Client, act: Act) {
    client.expect(json!("last"));
    if act == Act::Leave {
        assert_eq!(server.emit(nobody().session(client.id()), "0"), 1);
        return client.expect(json!(0));
    }
    match &mut client.link {
        Link::Ws(ws) => assert_eq!(ws.expect_close().0, 4403),
        Link::SockJs(ws) => assert!(ws.next_text().starts_with("c[4403")),
        Link::Io(io) => {
            io.expect("41");
            if act == Act::Close {
                let end = if io.is_polled() { 0 } else { 4403 };
                assert_eq!(io.expect_end(), end);
            }
        }
    }
}

/// Makes them members of a room. A client that waits in vain ends, because it answers no ping.
fn join(server: &Server, name: &str, clients: &mut [Client]) {
    let named = clients.iter().fold(nobody(), |target, client| target.session(client.id()));
    assert_eq!(server.join_rooms(named, &[name]), Concerned::sessions(clients.len()));
    for client in clients {
        if let Link::Io(io) = &mut client.link {
            io.ignore_pings();
        }
    }
}

#[test]
fn a_message_published_before_is_received_first() {
    on_one_and_three(|cores| {
        for act in ACTS {
            let server = Server::simulated(cores, |_| {});
            for n in 0..ROOMS {
                let name = format!("room-{n}");
                let mut clients = Client::all(&server);
                // Of those that poll, some have a poll waiting.
                clients.push(Client::io(&server, Version::V4, Way::Polling));
                if let Link::Io(io) = &mut clients.last_mut().unwrap().link {
                    io.begin_poll();
                }
                join(&server, &name, &mut clients);
                assert_eq!(publish_and_act(&server, cores, &name, act), clients.len());
                clients.iter_mut().for_each(|client| expect_last(&server, client, act));
            }
            server.check_balance();
        }
    });
}

/// A large message is still on its way.
#[test]
fn a_client_that_reads_slowly_receives_it_too() {
    on_one_and_three(|cores| {
        for act in ACTS {
            let server = Server::simulated(cores, |_| {});
            let mut clients = [Client::ws(&server), Client::sockjs(&server)]
                .into_iter()
                .chain([Version::V4, Version::V3].map(|version| Client::io(&server, version, Way::Socket)))
                .collect::<Vec<_>>();
            join(&server, "a", &mut clients);
            let large = "x".repeat(LARGE_BYTES);
            publish(&server, "a", &format!("\"{large}\""));
            pace(Duration::from_millis(10));
            assert_eq!(server.metric("deliveries_pending"), clients.len() as u64, "it fits");
            assert_eq!(publish_and_act(&server, cores, "a", act), clients.len());
            for client in &mut clients {
                client.expect(Value::from(large.clone()));
                expect_last(&server, client, act);
            }
            server.check_balance();
        }
    });
}
