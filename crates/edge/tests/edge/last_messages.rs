//! Messages published before the application ends a session or removes it from a room: the client receives them first.
//!
//! The tests use the virtual clock, so that a core finds the message and the command in the same turn each time.

use super::commands::{Client, Link, nobody, room};
use crate::harness::{Http, Server, Way, on_one_and_three, pass, receive};
use serde_json::{Value, json};
use std::sync::mpsc;
use std::time::Duration;
use stentor_hub::{Data, Room, Rooms};
use stentor_ports::{Command, Concerned, Done, PublicId, Publish};
use stentor_wire::engineio::Version;

/// Number of rooms. Large enough that each core is the home core of some of them.
const ROOMS: usize = 6;
/// Size of a message that a connection can't send at once.
const LARGE_BYTES: usize = 900_000;

/// The application's action on the members of a room.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    Leave,
    Disconnect,
    /// Disconnects the sessions and closes their connections.
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

/// Publishes to a room, and acts on its members as soon as all cores have received the message. Returns the number of members.
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
    receive(&acted).sessions
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

/// Makes the clients members of a room. Socket.IO clients stop answering pings, so that a wait for a missing message
/// ends.
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
            let server = Server::start(cores, |_| {});
            for n in 0..ROOMS {
                let name = format!("room-{n}");
                let mut clients = Client::all(&server);
                // Some of the polling clients have a waiting poll.
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

/// A large message is still in transit.
#[test]
fn a_client_that_reads_slowly_receives_it_too() {
    on_one_and_three(|cores| {
        for act in ACTS {
            let server = Server::start(cores, |_| {});
            let mut clients = [Client::ws(&server), Client::sockjs(&server)]
                .into_iter()
                .chain([Version::V4, Version::V3].map(|version| Client::io(&server, version, Way::Socket)))
                .collect::<Vec<_>>();
            join(&server, "a", &mut clients);
            let large = "x".repeat(LARGE_BYTES);
            publish(&server, "a", &format!("\"{large}\""));
            pass(Duration::from_millis(10));
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

/// A client of SockJS over HTTP.
struct SockJs<'s> {
    server: &'s Server,
    path: String,
    id: PublicId,
}

impl<'s> SockJs<'s> {
    fn open(server: &'s Server, name: &str) -> Self {
        let mut this =
            Self { server, path: format!("/sockjs/000/{name}"), id: PublicId::parse(NOBODY).unwrap() };
        assert_eq!(this.receive("xhr"), "o\n");
        let welcome = this.receive("xhr");
        let messages: Vec<String> = serde_json::from_str(welcome.strip_prefix('a').unwrap()).unwrap();
        let welcome: Value = serde_json::from_str(&messages[0]).unwrap();
        this.id = PublicId::parse(welcome["session"].as_str().unwrap()).unwrap();
        this
    }

    fn request(&self, transport: &str) -> Http {
        let method = if transport.starts_with("xhr") { "POST" } else { "GET" };
        let mut http = self.server.http();
        let path = &self.path;
        http.send(format!("{method} {path}/{transport} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"));
        http
    }

    /// The body of the answer.
    fn receive(&self, transport: &str) -> String {
        self.request(transport).response().text().to_owned()
    }
}

/// An id of no session.
const NOBODY: &str = "AAAAAAAAAAAAAAAAAAAA";
/// The frame with the last publication.
const LAST: &str = r#"a["{\"type\":\"message\",\"room\":\"a\",\"event\":\"e\",\"data\":\"last\"}"]"#;

#[test]
fn a_client_of_sockjs_without_a_request_receives_it_with_the_next_one() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let clients: Vec<_> = ["x", "j", "s"].map(|name| SockJs::open(&server, name)).into();
        let all = || clients.iter().fold(nobody(), |target, client| target.session(client.id));
        assert_eq!(server.join_rooms(all(), &["a"]), Concerned::sessions(clients.len()));
        assert_eq!(publish_and_act(&server, cores, "a", Act::Disconnect), clients.len());
        server.until_metric("sessions", |sessions| sessions == 0);
        server.until_metric("memory_bytes{poll_records}", |bytes| bytes > 0);
        let script = |frame: &str| format!("/**/cb({});\r\n", Value::from(frame));
        // A poll receives one frame, and a stream receives both.
        assert_eq!(clients[0].receive("xhr"), format!("{LAST}\n"));
        assert_eq!(clients[1].receive("jsonp?c=cb"), script(LAST));
        let mut stream = clients[2].request("xhr_streaming");
        stream.stream_head();
        stream.next_chunk();
        assert_eq!(stream.next_chunk(), format!("{LAST}\n"));
        assert!(stream.next_chunk().starts_with("c[4403,"));
        assert_eq!(stream.chunk(), None);
        for _ in 0..2 {
            assert!(clients[0].receive("xhr").starts_with("c[4403,"));
            assert!(clients[1].receive("jsonp?c=cb").starts_with(r#"/**/cb("c[4403,"#));
        }
        // No state is left of a client that doesn't return.
        server.until_metric("sockjs_sessions", |sessions| sessions == 0);
        server.until_metric("memory_bytes{poll_records}", |bytes| bytes == 0);
        server.check_balance();
    });
}

/// Pending messages of ended clients don't cause the end of other clients.
#[test]
fn last_messages_of_sockjs_clients_are_dropped_when_memory_is_short() {
    const CLIENTS: usize = 200;
    const DATA_BYTES: usize = 50_000;
    const BUDGET: usize = CLIENTS * DATA_BYTES / 2;
    let server = Server::start(1, |options| {
        options.limits.memory_bytes_max = BUDGET;
        options.sockjs[0].disconnect_delay = Duration::from_secs(3600);
    });
    for n in 0..CLIENTS {
        let client = SockJs::open(&server, &format!("s{n}"));
        assert_eq!(server.join_rooms(nobody().session(client.id), &["a"]), Concerned::sessions(1));
    }
    publish(&server, "a", &format!("\"{}\"", "x".repeat(DATA_BYTES)));
    assert_eq!(publish_and_act(&server, 1, "a", Act::Disconnect), CLIENTS);
    server.until_metric("memory_bytes{poll_records}", |bytes| bytes < BUDGET as u64);
    server.check_balance();
}
