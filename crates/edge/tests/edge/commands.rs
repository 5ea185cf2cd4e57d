//! Commands for sessions: recipients, listed sessions, and behaviour at the limits.

use crate::harness::{
    Io, Packet, Server, VERSIONS, Way, Ws, answer, id_of, on_one_and_three, receive, until,
};
use serde_json::{Value, json};
use std::sync::mpsc;
use std::time::Duration;
use stentor_edge::{Options, Recovery};
use stentor_hub::{Data, Room, Rooms};
use stentor_ports::{
    Command, CommandError, Concerned, Done, PublicId, Publish, RoomList, RoomsQuery, SessionList,
    SessionsQuery, Target,
};
use stentor_wire::engineio::Version;

impl Server {
    pub(crate) fn emit(&self, target: Target, data: &str) -> usize {
        self.emit_to(target, data, false)
    }

    pub(crate) fn emit_volatile(&self, target: Target, data: &str) -> usize {
        self.emit_to(target, data, true)
    }

    fn emit_to(&self, target: Target, data: &str, volatile: bool) -> usize {
        let (event, data) = (Some("e".into()), Data::Json(data.to_owned().into()));
        let give = |done| self.plane().command(target, Command::Emit { event, data, volatile, done });
        answer(give).unwrap().sessions
    }

    pub(crate) fn join_rooms(&self, target: Target, rooms: &[&str]) -> Concerned {
        let rooms = Rooms::new(target.namespace(), rooms.iter().copied()).unwrap();
        answer(|done| self.plane().command(target, Command::Join { rooms, done })).unwrap()
    }

    pub(crate) fn leave_rooms(&self, target: Target, rooms: &[&str]) -> Concerned {
        let rooms = Rooms::new(target.namespace(), rooms.iter().copied()).unwrap();
        answer(|done| self.plane().command(target, Command::Leave { rooms, done })).unwrap()
    }

    pub(crate) fn disconnect(&self, target: Target, close: bool) -> usize {
        answer(|done| self.plane().command(target, Command::Disconnect { close, done })).unwrap().sessions
    }

    pub(crate) fn list(&self, target: Target, limit: usize) -> SessionList {
        answer(|done| self.plane().command(target, Command::Sessions { limit, done })).unwrap()
    }

    fn rooms(&self, namespace: &str, prefix: &str, after: &str, limit: usize) -> RoomList {
        let query =
            RoomsQuery { namespace: namespace.into(), prefix: prefix.into(), after: after.into(), limit };
        answer(|done| self.plane().list_rooms(query, done)).unwrap()
    }
}

pub(crate) fn nobody() -> Target {
    Target::of("/").unwrap()
}

pub(crate) fn room(name: &str) -> Target {
    nobody().room(name).unwrap()
}

/// The transport of a test client: `/ws`, SockJS over WebSocket, or Socket.IO.
pub(crate) enum Link {
    Ws(Ws),
    SockJs(Ws),
    Io(Io),
}

pub(crate) struct Client {
    pub(crate) link: Link,
    /// The session's public id.
    id: String,
}

impl Client {
    /// Connects one client of each protocol and transport, in the main namespace.
    pub(crate) fn all(server: &Server) -> Vec<Self> {
        let mut clients = vec![Self::ws(server), Self::sockjs(server)];
        for (version, way) in [
            (Version::V4, Way::Socket),
            (Version::V4, Way::Polling),
            (Version::V3, Way::Socket),
            (Version::V3, Way::Polling),
        ] {
            clients.push(Self::io(server, version, way));
        }
        clients
    }

    pub(crate) fn ws(server: &Server) -> Self {
        let mut ws = server.ws("/ws");
        let id = ws.next_json()["session"].as_str().unwrap().to_owned();
        Self { link: Link::Ws(ws), id }
    }

    pub(crate) fn sockjs(server: &Server) -> Self {
        let mut ws = server.ws("/sockjs/000/s/websocket");
        assert_eq!(ws.next_text(), "o");
        let id = sockjs_message(&mut ws)["session"].as_str().unwrap().to_owned();
        Self { link: Link::SockJs(ws), id }
    }

    pub(crate) fn io(server: &Server, version: Version, way: Way) -> Self {
        let mut io = Io::open(server.addr, "/socket.io/", version, way, "");
        let answer = io.connect("", Value::Null);
        let id =
            if version == Version::V4 { answer["sid"].as_str().unwrap().to_owned() } else { io.sid.clone() };
        Self { link: Link::Io(io), id }
    }

    pub(crate) fn id(&self) -> PublicId {
        PublicId::parse(&self.id).unwrap()
    }

    /// Event and data of the next message.
    fn message(&mut self) -> Value {
        let plain = |message: Value| {
            assert_eq!(message["type"], "message", "{message}");
            json!([message["event"], message["data"]])
        };
        match &mut self.link {
            Link::Ws(ws) => plain(ws.next_json()),
            Link::SockJs(ws) => plain(sockjs_message(ws)),
            Link::Io(io) => io.event(),
        }
    }

    pub(crate) fn expect(&mut self, data: Value) {
        assert_eq!(self.message(), json!(["e", data]));
    }
}

fn sockjs_message(ws: &mut Ws) -> Value {
    let frame = ws.next_text();
    let messages: Vec<String> = serde_json::from_str(frame.strip_prefix('a').unwrap()).unwrap();
    serde_json::from_str(&messages[0]).unwrap()
}

/// A target with these clients, by their ids.
fn named(clients: &[Client]) -> Target {
    clients.iter().fold(nobody(), |target, client| target.session(client.id()))
}

/// Sends a message to each client alone and expects it next, which shows that no other message came before.
fn fence(server: &Server, clients: &mut [Client]) {
    assert_eq!(server.emit(named(clients), r#""fence""#), clients.len());
    clients.iter_mut().for_each(|client| client.expect(json!("fence")));
}

#[test]
fn sessions_of_all_protocols_join_get_one_copy_and_leave() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut clients = Client::all(&server);
        let named = named(&clients);
        let all = Concerned::sessions(clients.len());
        assert_eq!(server.join_rooms(named.clone(), &["a", "b"]), all);
        assert_eq!(server.join_rooms(named.clone(), &["a"]), all, "again");
        // The target contains each client three times: by both rooms and by its id.
        let several = named.clone().room("a").unwrap().room("b").unwrap().room("empty").unwrap();
        assert_eq!(server.list(several.clone(), 100).count, clients.len());
        assert_eq!(server.list(several.clone(), 100).sessions.len(), clients.len());
        assert_eq!(server.emit(several, "1"), clients.len());
        assert_eq!(server.emit(room("a").room("b").unwrap(), "2"), clients.len());
        assert_eq!(server.emit(room("a"), r#"{"n":3}"#), clients.len());
        for client in &mut clients {
            client.expect(json!(1));
            client.expect(json!(2));
            client.expect(json!({"n": 3}));
        }
        // The members of both rooms leave one, and stay in the other.
        assert_eq!(server.leave_rooms(named.clone(), &["a", "empty"]), all);
        assert_eq!(server.emit(room("a"), "4"), 0);
        assert_eq!(server.emit(room("a").room("b").unwrap(), "5"), clients.len());
        clients.iter_mut().for_each(|client| client.expect(json!(5)));
        fence(&server, &mut clients);
        server.check_balance();
    });
}

/// Other cores know the members before the command is answered.
#[test]
fn a_membership_has_begun_when_it_is_answered() {
    let server = Server::start(3, |options| options.limits.subscriptions_max = 10_000);
    let clients = server.ws_on_each_core("/ws");
    let ids = clients.into_iter().map(|mut ws| (id_of(&ws.next_json()["session"]), ws));
    let clients: Vec<_> = ids.collect();
    for n in 0..1_000 {
        let (id, _) = &clients[n % clients.len()];
        let name = format!("r{n}");
        assert_eq!(server.join_rooms(nobody().session(*id), &[&name]).sessions, 1);
        assert_eq!(server.emit(room(&name), "1"), 1, "{name}");
    }
}

#[test]
fn exceptions_are_left_out_of_messages_and_commands() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut clients = Client::all(&server);
        let named = named(&clients);
        server.join_rooms(named.clone(), &["a"]);
        for (n, client) in clients.iter().enumerate() {
            if n % 2 == 0 {
                server.join_rooms(nobody().session(client.id()), &["even"]);
            }
        }
        let odd = clients.len() / 2;
        assert_eq!(server.emit(room("a").except_room("even").unwrap(), "1"), odd);
        assert_eq!(server.emit(named.clone().except_room("even").unwrap(), "2"), odd);
        for client in clients.iter_mut().skip(1).step_by(2) {
            client.expect(json!(1));
            client.expect(json!(2));
        }
        // Each protocol's ids work as exceptions.
        for n in 0..clients.len() {
            let target = room("a").room("even").unwrap().except_session(clients[n].id());
            assert_eq!(server.emit(target, "3"), clients.len() - 1);
            for (other, client) in clients.iter_mut().enumerate() {
                if other != n {
                    client.expect(json!(3));
                }
            }
        }
        let but_even = room("a").except_room("even").unwrap().except_session(clients[1].id());
        assert_eq!(server.join_rooms(but_even, &["few"]).sessions, odd - 1);
        assert_eq!(server.emit(room("few"), "4"), odd - 1);
        clients.iter_mut().skip(3).step_by(2).for_each(|client| client.expect(json!(4)));
        fence(&server, &mut clients);
    });
}

#[test]
fn sessions_and_rooms_are_listed() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let clients = Client::all(&server);
        let named = named(&clients);
        server.join_rooms(named.clone(), &["a"]);
        server.join_rooms(nobody().session(clients[0].id()), &["b/1", "b/2"]);
        let list = server.list(room("a").room("b/1").unwrap(), 100);
        assert_eq!((list.count, list.sessions.len()), (clients.len(), clients.len()));
        for (client, protocol) in
            clients.iter().zip(["websocket", "sockjs", "socketio", "socketio", "socketio", "socketio"])
        {
            let info = list.sessions.iter().find(|info| info.id == client.id).unwrap();
            let mut rooms: Vec<&str> = info.rooms.iter().map(|room| &**room).collect();
            rooms.sort_unstable();
            let expect: &[&str] = if client.id == clients[0].id { &["a", "b/1", "b/2"] } else { &["a"] };
            assert_eq!((&*info.protocol, &*rooms), (protocol, expect));
        }
        let sockets = nobody().everybody();
        let list = server.list(sockets, 2);
        assert_eq!((list.count, list.sessions.len()), (4, 2));
        assert_eq!(server.list(named, 0).count, clients.len());
        assert_eq!(server.list(room("nowhere"), 100), SessionList::default());

        let all = |names: &[(&str, usize)]| {
            names.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect::<Vec<_>>()
        };
        for (prefix, after, limit, expect, is_truncated) in [
            ("", "", 100, all(&[("a", 6), ("b/1", 1), ("b/2", 1)]), false),
            ("", "", 2, all(&[("a", 6), ("b/1", 1)]), true),
            ("", "b/1", 2, all(&[("b/2", 1)]), false),
            ("b/", "", 2, all(&[("b/1", 1), ("b/2", 1)]), false),
        ] {
            let RoomList { rooms, truncated, .. } = server.rooms("/", prefix, after, limit);
            assert_eq!((rooms, truncated), (expect, is_truncated), "{prefix:?} {after:?} {limit}");
        }
        assert_eq!(server.rooms("/other", "", "", 2), RoomList::default());
    });
}

#[test]
fn sessions_of_a_node_are_listed_by_their_send_buffers() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.limits.send_buffer_bytes_max = 8 << 20);
        let clients = Client::all(&server);
        let list = |search: &str, limit| {
            let query = SessionsQuery { search: search.into(), limit, ..SessionsQuery::default() };
            answer(|done| server.plane().list_sessions(query, done)).unwrap()
        };
        let all = list("", 100);
        assert_eq!((all.count, all.sessions.len()), (clients.len(), clients.len()));
        let mut ids: Vec<&str> = all.sessions.iter().map(|info| &*info.id).collect();
        let mut expect: Vec<&str> = clients.iter().map(|client| &*client.id).collect();
        ids.sort_unstable();
        expect.sort_unstable();
        assert_eq!(ids, expect);
        // A client that doesn't read.
        let slow = &clients[1];
        let message = format!("\"{}\"", "x".repeat(100_000));
        while server.metric("send_buffer_bytes") < 1_000_000 {
            server.emit(nobody().session(slow.id()), &message);
        }
        let fullest = list("", 1);
        assert_eq!((fullest.count, &*fullest.sessions[0].id), (clients.len(), &*slow.id));
        assert!(fullest.sessions[0].details.send_buffer_bytes > 100_000);
        let found = list(&clients[0].id, 100);
        assert_eq!((found.count, &*found.sessions[0].id), (1, &*clients[0].id));
        let address = all.sessions[0].details.address.as_deref().unwrap();
        assert_eq!(list(address, 2).count, clients.len());
        assert_eq!(list("nobody", 2), SessionList::default());
        assert_eq!(list("", 0).count, clients.len());
    });
}

#[test]
fn many_rooms_are_listed_page_by_page() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.limits.subscriptions_max = 10_000);
        let mut clients = server.ws_on_each_core("/ws");
        for (n, client) in clients.iter_mut().enumerate() {
            client.next_json();
            for room in 0..500 {
                client.ask(json!({"type": "subscribe", "room": format!("r{room:03}")}));
                if n == 0 {
                    client.ask(json!({"type": "subscribe", "room": format!("own{room:03}")}));
                }
            }
        }
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = server.rooms("/", "", &after, 7);
            after = page.rooms.last().unwrap().0.clone();
            all.extend(page.rooms);
            if !page.truncated {
                break;
            }
        }
        let own = (0..500).map(|n| (format!("own{n:03}"), 1));
        let shared = (0..500).map(|n| (format!("r{n:03}"), clients.len()));
        assert_eq!(all, own.chain(shared).collect::<Vec<_>>());
    });
}

#[test]
fn sessions_are_disconnected() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.rooms.namespaces = vec!["/chat".into()]);
        let mut clients = Client::all(&server);
        for client in &clients {
            assert_eq!(server.disconnect(nobody().session(client.id()), false), 1);
        }
        for client in &mut clients {
            match &mut client.link {
                Link::Ws(ws) => assert_eq!(ws.expect_close().0, 4403),
                Link::SockJs(ws) => assert!(ws.next_text().starts_with("c[4403")),
                // The connection stays, and the client connects again.
                Link::Io(io) => {
                    io.expect("41");
                    if io.version() == Version::V4 {
                        assert!(io.connect("", Value::Null)["sid"].is_string());
                    }
                }
            }
        }
        for client in clients {
            if let Link::Io(io) = client.link {
                io.leave_abruptly();
            }
        }
        server.check_empty();

        for (way, waits) in [(Way::Socket, false), (Way::Polling, true), (Way::Polling, false)] {
            let mut io = Io::socket(&server, way);
            io.connect("/chat", Value::Null);
            let id = io.connect("", Value::Null)["sid"].as_str().unwrap().to_owned();
            if waits {
                io.begin_poll();
            }
            assert_eq!(server.disconnect(nobody().session(PublicId::parse(&id).unwrap()), true), 1);
            let told = [io.next_text(), io.next_text()];
            assert_eq!(told, ["41/chat,", "41"], "{way:?}");
            let end = io.expect_end();
            assert_eq!(end, if way == Way::Socket { 4403 } else { 0 });
        }
        server.check_empty();
    });
}

#[test]
fn commands_stay_in_their_namespace() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.rooms.namespaces = vec!["/chat".into()]);
        for version in VERSIONS {
            let mut io = Io::open(server.addr, "/socket.io/", version, Way::Socket, "");
            let main = io.connect("", Value::Null)["sid"].as_str().unwrap_or(&io.sid.clone()).to_owned();
            let chat = io.connect("/chat", Value::Null)["sid"].as_str().map(str::to_owned);
            let chat = chat.unwrap_or_else(|| format!("/chat#{}", io.sid));
            let of_chat = || Target::of("/chat").unwrap();
            let [main, chat_id] = [&main, &chat].map(|id| PublicId::parse(id).unwrap());
            if version == Version::V4 {
                // Protocol 4 has one id for all namespaces.
                assert_eq!(server.emit(of_chat().session(main), "0"), 0);
                assert_eq!(server.join_rooms(nobody().session(chat_id), &["r"]).sessions, 0);
                assert_eq!(server.disconnect(of_chat().session(main), true), 0);
            }
            assert_eq!(server.join_rooms(of_chat().session(chat_id), &["r"]).sessions, 1);
            assert_eq!(server.emit(room("r"), "1"), 0);
            assert_eq!(server.emit(of_chat().room("r").unwrap(), "2"), 1);
            assert_eq!(io.next_text(), r#"42/chat,["e",2]"#);
            assert_eq!(server.emit(of_chat().everybody(), "3"), 1);
            assert_eq!(io.next_text(), r#"42/chat,["e",3]"#);
            assert_eq!(server.list(of_chat().everybody(), 9).sessions[0].id, chat);
            assert_eq!(server.disconnect(of_chat().everybody(), false), 1);
            io.expect("41/chat,");
            assert_eq!(server.emit(nobody().everybody(), "4"), 1);
            assert_eq!(io.event(), json!(["e", 4]));
        }
    });
}

#[test]
fn unknown_ids_select_no_session() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut client = Client::ws(&server);
        let other_node = Server::start(1, |_| {});
        let foreign = Client::ws(&other_node).id();
        let gone = Client::ws(&server);
        let made_up = (0..8).map(|n| PublicId::parse(&format!("{n}AAAAAAAAAAAAAAAAAAA")).unwrap());
        let ids: Vec<PublicId> = made_up.chain([foreign, gone.id()]).collect();
        drop(gone);
        server.until_metric("sessions", |sessions| sessions == 1);
        let target = ids.iter().fold(nobody(), |target, id| target.session(*id).except_session(*id));
        assert_eq!(server.emit(target.clone(), "1"), 0);
        let target = ids.iter().fold(nobody(), |target, id| target.session(*id));
        assert_eq!(server.emit(target.clone(), "1"), 0);
        assert_eq!(server.join_rooms(target.clone(), &["r"]), Concerned::default());
        assert_eq!(server.leave_rooms(target.clone(), &["r"]), Concerned::default());
        assert_eq!(server.disconnect(target.clone(), true), 0);
        let SessionList { sessions, ended, count, .. } = server.list(target.clone(), 10);
        assert_eq!((sessions.len(), ended.len(), count), (0, 1, 0), "only this server's session has ended");
        // The other clients are still found.
        assert_eq!(server.emit(target.session(client.id()), "2"), 1);
        client.expect(json!(2));
    });
}

#[test]
fn a_session_with_as_many_rooms_as_it_may_have_is_reported() {
    let server = Server::start(1, |options| options.limits.subscriptions_max = 2);
    let [one, other] = [Client::ws(&server), Client::ws(&server)];
    assert_eq!(server.join_rooms(nobody().session(one.id()), &["a", "b"]).sessions, 1);
    let both = nobody().session(one.id()).session(other.id());
    assert_eq!(
        server.join_rooms(both.clone(), &["a", "c"]),
        Concerned { sessions: 1, refused: 1, ..Concerned::default() }
    );
    assert_eq!(server.join_rooms(both, &["a"]), Concerned::sessions(2));
}

#[test]
fn a_volatile_message_skips_clients_that_do_not_read() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut clients = [Client::ws(&server), Client::ws(&server)];
        let named = named(&clients);
        server.join_rooms(named.clone(), &["a"]);
        let large = format!("\"{}\"", "x".repeat(300_000));
        // Sends until the kernel accepts no more bytes for the client that doesn't read.
        let (mut sent, skipped) = (0, || server.metric("deliveries_dropped"));
        while skipped() == 0 {
            assert_eq!(server.emit_volatile(room("a"), &large), 2);
            sent += 1;
            clients[0].message();
            assert!(sent < 1_000, "the client's socket takes everything");
        }
        // A command is answered in a later turn, after the metrics of earlier turns have been published.
        server.join_rooms(named.clone(), &["a"]);
        let before = skipped();
        assert_eq!(server.emit_volatile(named.clone(), "1"), 2);
        assert_eq!(clients[0].message(), json!(["e", 1]));
        until("the message to be skipped", || skipped() == before + 1);
        assert_eq!(server.emit(room("a"), "2"), 2);
        clients[0].expect(json!(2));
        let mut seen = 0;
        while clients[1].message() != json!(["e", 2]) {
            seen += 1;
        }
        assert!(seen < sent, "{seen} of {sent}");
        server.check_balance();
    });
}

/// As in Socket.IO, no connection of a polling client takes a message between two polls.
#[test]
fn a_volatile_message_skips_clients_between_two_polls() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut io = Io::socket(&server, Way::Polling);
        let sid = io.connect("", Value::Null)["sid"].clone();
        let itself = nobody().session(PublicId::parse(sid.as_str().unwrap()).unwrap());
        assert_eq!(server.join_rooms(itself.clone(), &["a"]).sessions, 1);
        for target in [room("a"), itself] {
            assert_eq!(server.emit_volatile(target.clone(), "1"), 1);
            assert_eq!(server.emit(target.clone(), "2"), 1);
            io.expect(r#"42["e",2]"#);
            server.until_requested(|| io.begin_poll());
            assert_eq!(server.emit_volatile(target.clone(), "3"), 1);
            // The first message has ended the poll.
            assert_eq!(server.emit_volatile(target, "4"), 1);
            io.expect(r#"42["e",3]"#);
        }
        io.upgrade();
        assert_eq!(server.emit(room("a"), "5"), 1);
        io.expect(r#"42["e",5]"#);
        assert_eq!(server.emit_volatile(room("a"), "6"), 1);
        io.expect(r#"42["e",6]"#);
        server.check_balance();
    });
}

#[test]
fn a_recovered_socket_keeps_its_id_and_receives_messages_for_it_alone() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |options| options.engine.recovery = Some(Recovery::default()));
        let mut io = Io::socket(&server, Way::Socket);
        let connected = io.connect("", Value::Null);
        let (sid, pid) = (connected["sid"].clone(), connected["pid"].clone());
        let id = PublicId::parse(sid.as_str().unwrap()).unwrap();
        assert_eq!(server.join_rooms(nobody().session(id), &["a"]).sessions, 1);
        assert_eq!(server.emit(nobody().session(id), "1"), 1);
        let Packet::Text(event) = io.next() else { panic!() };
        let event: Value = serde_json::from_str(event.strip_prefix("42").unwrap()).unwrap();
        assert_eq!((&event[0], &event[1]), (&json!("e"), &json!(1)));
        io.cut();
        server.until_metric("socketio_recovery_sockets", |suspended| suspended == 1);
        // While the client is disconnected, its messages are kept, and it isn't listed.
        assert_eq!(server.emit(nobody().session(id), "2"), 1);
        assert_eq!(server.emit(room("a"), "3"), 1);
        assert_eq!(server.list(room("a"), 9).count, 0);
        let auth = json!({"pid": pid, "offset": event[2]});
        let mut io = Io::socket(&server, Way::Socket);
        io.send(&format!("40{auth}"));
        let missed = [io.next_text(), io.next_text()];
        assert!(missed[0].starts_with(r#"42["e",2,"#) && missed[1].starts_with(r#"42["e",3,"#), "{missed:?}");
        let connected: Value = serde_json::from_str(io.next_text().strip_prefix("40").unwrap()).unwrap();
        assert_eq!(connected["sid"], sid);
        // The command ends the session even while its client is disconnected.
        io.cut();
        server.until_metric("socketio_recovery_sockets", |suspended| suspended == 1);
        assert_eq!(server.disconnect(nobody().session(id), false), 1);
        server.until_metric("sessions", |sessions| sessions == 0);
        let mut io = Io::socket(&server, Way::Socket);
        assert_ne!(io.connect("", auth)["sid"], sid);
    });
}

/// A core that has nothing else to do works on its commands slice by slice.
#[test]
fn work_for_many_sessions_is_divided_among_turns() {
    const CLIENTS: usize = 400;
    let server = Server::start(1, |_| {});
    let mut clients: Vec<Ws> = (0..CLIENTS).map(|_| server.member("a")).collect();
    let yields = || server.metric("command_yields");
    assert_eq!(server.emit(room("a"), "1"), CLIENTS);
    let before = yields();
    // Each disconnect takes 128 of the 8,192 steps of a turn.
    assert_eq!(server.disconnect(room("a"), false), CLIENTS);
    until("the slices to be counted", || yields() >= before + (CLIENTS as u64 * 128 / 8_192) - 1);
    for client in &mut clients {
        assert_eq!(client.skip_to_close(), 4403);
    }
    server.check_empty();
}

#[test]
fn a_session_is_listed_with_its_feeds_and_its_transport() {
    let server = Server::start(3, |_| {});
    for version in ["1", "2"] {
        server.document("matches/1", version);
    }
    let describe = |id: PublicId| {
        let details = server.list(nobody().session(id), 1).sessions.remove(0).details;
        (details.transport, details.feeds)
    };
    let (mut ws, id) = server.client_and_id();
    ws.ask(json!({"type": "subscribe", "feed": "matches/1"}));
    assert_eq!(ws.next_json()["type"], "snapshot");
    ws.ask(json!({"type": "subscribe", "feed": "cold"}));
    assert_eq!(describe(id), (None, vec![("matches/1".into(), 2)]));
    let mut io = Io::socket(&server, Way::Polling);
    let id = id_of(&io.connect("", Value::Null)["sid"]);
    io.begin_poll();
    until("the poll", || describe(id).0 == Some("polling".into()));
    drop(io);
    let mut io = Io::socket(&server, Way::Moved);
    let id = id_of(&io.connect("", Value::Null)["sid"]);
    assert_eq!(describe(id), (Some("websocket".into()), vec![]));
}

/// A search describes each session, with its rooms, and pauses between two of them.
#[test]
fn a_search_of_sessions_is_divided_among_turns() {
    const CLIENTS: usize = 40;
    const ROOMS: usize = 100;
    let server = Server::start(1, |options| options.limits.subscriptions_max = 1_000);
    let clients: Vec<Ws> = (0..CLIENTS).map(|_| server.member("a")).collect();
    let names: Vec<String> = (0..ROOMS).map(|n| n.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    server.join_rooms(room("a"), &names);
    let list = |search: String| {
        let query = SessionsQuery { search, limit: 100, ..SessionsQuery::default() };
        answer(|done| server.plane().list_sessions(query, done)).unwrap()
    };
    let address = list(String::new()).sessions.remove(0).details.address.unwrap();
    let before = server.metric("command_yields");
    let list = list(address);
    assert_eq!((list.count, list.sessions.len()), (clients.len(), clients.len()));
    // Each session takes 17 of the 8,192 steps of a turn, and each of its rooms 8.
    let steps = CLIENTS * (17 + 8 * ROOMS);
    server.until_metric("command_yields", |yields| yields >= before + (steps / 8_192) as u64);
}

#[test]
fn a_full_inbox_refuses_a_command_as_a_whole() {
    let server = Server::start(3, |options: &mut Options| options.limits.inbox_bytes_max = 4_000_000);
    let client = Client::ws(&server);
    server.join_rooms(nobody().session(client.id()), &["a"]);
    let (sender, receiver) = mpsc::channel();
    let message = || Data::Json(format!("\"{}\"", "x".repeat(500_000)).into());
    let (mut given, mut accepted) = (0, 0);
    // Sends commands faster than the core takes them.
    let busy = loop {
        for _ in 0..64 {
            let (sender, target) = (sender.clone(), room("a").session(client.id()));
            let done = Done::new(move |answer: Result<Concerned, _>| sender.send(answer).unwrap());
            let emit = Command::Emit { event: None, data: message(), volatile: true, done };
            server.plane().command(target, emit);
            given += 1;
        }
        let answers: Vec<_> = (0..64).map(|_| receive(&receiver)).collect();
        for answer in &answers {
            assert!(matches!(answer, Ok(Concerned { sessions: 1, .. }) | Err(CommandError::Busy)));
        }
        let busy = answers.iter().filter(|answer| answer.is_err()).count();
        accepted += 64 - busy as u64;
        if busy > 0 {
            break busy;
        }
        assert!(given < 100_000, "the inbox is never full");
    };
    assert!(busy < given);
    // A refused command was carried out by no core, and holds no memory.
    server.until_metric("deliveries_due", |due| due == accepted);
    server.until_metric("inbox_bytes", |bytes| bytes == 0);
    server.until_metric("memory_bytes{inboxes}", |bytes| bytes == 0);
    assert_eq!(server.list(room("a"), 0).count, 1);
}

#[test]
fn publications_and_commands_of_one_caller_to_one_room_keep_their_order() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, |_| {});
        let mut clients = Client::all(&server);
        let named = named(&clients);
        server.join_rooms(named, &["a"]);
        for n in 0..20 {
            let (room, data) = (Room::plain("a").unwrap(), Data::Json((2 * n).to_string().into()));
            server.plane().publish(Publish { room, event: Some("e".into()), data }).unwrap();
            assert_eq!(server.emit(self::room("a"), &(2 * n + 1).to_string()), clients.len());
        }
        for client in &mut clients {
            (0..40).for_each(|n| client.expect(json!(n)));
        }
    });
}

#[test]
fn a_stopped_node_answers_commands() {
    let server = Server::start(1, |_| {});
    let _client = Client::ws(&server);
    server.drain(Duration::ZERO);
    let plane = server.plane_handle();
    server.join();
    let (sender, receiver) = mpsc::channel();
    let done = Done::new(move |answer: Result<Concerned, _>| sender.send(answer).unwrap());
    plane.command(room("a"), Command::Disconnect { close: false, done });
    drop(plane);
    assert_eq!(receive(&receiver), Err(CommandError::Stopped));
}
