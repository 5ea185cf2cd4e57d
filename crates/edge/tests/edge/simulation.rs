//! The whole data plane on one thread, on a virtual clock, from one seed.
//!
//! Cores over simulated drivers, clients that speak `stentor.v1` or Socket.IO over the same simulated network, and
//! a control plane that publishes and renews documents. Clients subscribe, publish, stall, come and go; those of
//! Socket.IO come back for what they missed, to any core. A shadow model knows what each may receive. Checked at
//! every message and again when all is quiet:
//!
//! - nobody receives what it hasn't subscribed to;
//! - per room and publisher, messages arrive in order without a gap; in rooms with history there is one order;
//! - who comes back and is recovered has had each message once, however often that was;
//! - of a document nobody gets an older version after a newer one, and everybody ends with the newest;
//! - a client is closed only for a reason that the model knows (a full outbox), and others don't notice;
//! - the counters add up, and memory comes back when everybody has gone.
//!
//! A failing run prints its seed: `STENTOR_SEED=n cargo test -p stentor-edge --test edge simulation`.

use bytes::Bytes;
use fastrand::Rng;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use stentor_driver::sim::{self, SimDriver, World};
use stentor_driver::{ConnId, Driver, Event, Frame, Sending};
use stentor_edge::{
    App, ControlPlane, Core, DataPlane, EngineIo, FeedUpdate, Limits, Options, Publish, Recovery, Rooms,
    Rule, Simulated, Template, simulated,
};
use stentor_hub::{Data, Document, HistoryLimits, Key, Room};
use stentor_wire::http1;
use stentor_wire::ws::{self, Opcode, handshake::ClientHandshake};

struct NoControl;

impl ControlPlane for NoControl {
    fn wanted(&self) {}
    fn space(&self) {}
}

const FEEDS: [&str; 3] = ["matches/1", "matches/2", "table"];
/// Rooms whose name begins with `h` keep history.
const ROOMS: [&str; 4] = ["a", "b", "h1", "h2"];

enum Phase {
    Connecting,
    Handshake { handshake: ClientHandshake, buffer: Vec<u8> },
    Open(ws::Connection),
}

/// What a Socket.IO client remembers of itself.
#[derive(Clone, Default)]
struct Memory {
    /// Its CONNECT has been answered.
    connected: bool,
    pid: Option<String>,
    offset: Option<String>,
}

/// A client and what the model knows of it.
struct Client {
    conn: ConnId,
    /// `None` for one of `stentor.v1`.
    socketio: Option<Memory>,
    /// Who it is as a publisher; 0 is the control plane.
    publisher: u64,
    phase: Phase,
    waiting: Vec<u8>,
    in_flight: bool,
    stalled: bool,
    /// Topics whose subscription was answered and not given up since.
    subscribed: HashSet<String>,
    /// Topics asked for (true) or given up (false) without an answer yet: anything may come.
    uncertain: HashMap<u64, (String, bool)>,
    /// By room and publisher: the last number.
    last: HashMap<(String, u64), u64>,
    /// By topic: epoch and offset of the last one.
    places: HashMap<String, (u64, u64)>,
    version: HashMap<String, u64>,
    /// Pings sent and not answered.
    pings: usize,
}

struct Simulation {
    seed: u64,
    random: Rng,
    world: World,
    cores: Vec<Core<SimDriver>>,
    plane: Arc<dyn DataPlane>,
    driver: SimDriver,
    addr: SocketAddr,
    clients: HashMap<usize, Client>,
    shared: ws::Shared,
    next_id: u64,
    next_publisher: u64,
    /// By publisher and room: the last number used.
    numbers: HashMap<(u64, String), u64>,
    versions: HashMap<&'static str, u64>,
    closed_by_server: HashMap<u16, usize>,
    deliveries: usize,
    recoveries: usize,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let world = World::new(
            seed,
            sim::Options {
                segment_bytes_max: 1 + random.usize(..4_000),
                send_buffer_bytes: 256 + random.usize(..8_000),
                receive_buffer_bytes: 256 + random.usize(..8_000),
                ..sim::Options::default()
            },
        );
        let cores = 1 + random.usize(..4);
        let history =
            HistoryLimits { publications_max: 50, bytes_max: 100_000, age_max: Duration::from_secs(3_600) };
        let options = Options {
            cores,
            app: App::Rooms,
            rooms: Rooms {
                publish: true,
                history: vec![("h".to_owned(), history)],
                rules: rules(),
                ..Rooms::default()
            },
            engine: EngineIo {
                recovery: Some(Recovery { age_max: Duration::from_secs(5), ..Recovery::default() }),
                ..EngineIo::default()
            },
            limits: Limits {
                send_buffer_bytes_max: 2_000 + random.usize(..20_000),
                mailbox_messages_max: 2 + random.usize(..30),
                replies_bytes_max: 500,
                ..Limits::default()
            },
            ..Options::default()
        };
        let Simulated { cores, plane, addrs } =
            simulated(&world, options, [seed, !seed], Arc::new(NoControl), None).unwrap();
        let driver = world.driver();
        let limits = ws::Limits { message_bytes_max: 1 << 20, ..ws::Limits::default() };
        Self {
            seed,
            random,
            world,
            cores,
            plane,
            driver,
            addr: addrs[0],
            clients: HashMap::new(),
            shared: ws::Shared::new(limits),
            next_id: 1,
            next_publisher: 1,
            numbers: HashMap::new(),
            versions: HashMap::new(),
            closed_by_server: HashMap::new(),
            deliveries: 0,
            recoveries: 0,
        }
    }

    fn run_for(&mut self, duration: Duration) {
        let world = self.world.clone();
        world.run_for(duration, || self.turn());
    }

    /// A turn of everybody, beginning with a core that the seed chooses.
    fn turn(&mut self) -> bool {
        let mut had_something = false;
        let first = self.random.usize(..self.cores.len());
        for n in 0..self.cores.len() {
            let core = (first + n) % self.cores.len();
            had_something |= self.cores[core].turn(Some(Duration::ZERO)).unwrap();
        }
        self.driver.wait(Some(Duration::ZERO)).unwrap();
        while let Some(event) = self.driver.next_event() {
            had_something = true;
            self.client_event(event);
        }
        had_something
    }

    fn publisher(&mut self) -> u64 {
        self.next_publisher += 1;
        self.next_publisher - 1
    }

    fn connect(&mut self) {
        let conn = self.driver.connect(self.addr, None).unwrap();
        let publisher = self.publisher();
        let socketio = (self.random.usize(..2) == 0).then(Memory::default);
        let client = Client {
            conn,
            socketio,
            publisher,
            phase: Phase::Connecting,
            waiting: Vec::new(),
            in_flight: false,
            stalled: false,
            subscribed: HashSet::new(),
            uncertain: HashMap::new(),
            last: HashMap::new(),
            places: HashMap::new(),
            version: HashMap::new(),
            pings: 0,
        };
        self.clients.insert(conn.index(), client);
    }

    /// A client has lost its connection. One of Socket.IO comes back, in most cases.
    fn lost(&mut self, client: Client) {
        if client.socketio.is_none() || self.random.usize(..5) == 0 {
            return;
        }
        // The server may not know yet that it was gone: then it begins anew.
        let pause = Duration::from_millis(self.random.usize(..3) as u64 * 20);
        self.run_for(pause);
        let conn = self.driver.connect(self.addr, None).unwrap();
        let socketio = client.socketio.map(|memory| Memory { connected: false, ..memory });
        // What it said last may have been lost with the connection.
        let publisher = self.publisher();
        let phase = Phase::Connecting;
        let (waiting, in_flight, stalled) = (Vec::new(), false, false);
        let client =
            Client { conn, socketio, publisher, phase, waiting, in_flight, stalled, pings: 0, ..client };
        self.clients.insert(conn.index(), client);
    }

    fn pick(&mut self) -> Option<usize> {
        let open = self.clients.iter().filter(|(_, client)| client.is_connected());
        let mut open: Vec<usize> = open.map(|(index, _)| *index).collect();
        open.sort_unstable();
        (!open.is_empty()).then(|| open[self.random.usize(..open.len())])
    }

    fn send(&mut self, index: usize, text: &str) {
        let client = self.clients.get_mut(&index).unwrap();
        if let Phase::Open(connection) = &mut client.phase {
            let mask = connection.next_mask();
            ws::encode(&mut client.waiting, Opcode::Text, text.as_bytes(), false, mask);
        }
        flush(&mut self.driver, client);
    }

    fn operate(&mut self) {
        match self.random.usize(..100) {
            0..15 if self.clients.len() < 25 => self.connect(),
            0..35 => {
                let Some(index) = self.pick() else { return };
                let subscribe = self.random.usize(..3) > 0;
                let (kind, name) = match self.random.usize(..2) {
                    0 => ("feed", FEEDS[self.random.usize(..FEEDS.len())]),
                    _ => ("room", ROOMS[self.random.usize(..ROOMS.len())]),
                };
                let id = self.next_id;
                self.next_id += 1;
                let client = self.clients.get_mut(&index).unwrap();
                let topic = format!("{kind}/{name}");
                // One question at a time about a topic, so that the model knows what an answer means.
                if client.uncertain.values().any(|(asked, _)| *asked == topic) {
                    return;
                }
                client.uncertain.insert(id, (topic.clone(), subscribe));
                self.ask(index, id, &topic, subscribe);
            }
            35..60 => {
                let Some(index) = self.pick() else { return };
                let room = ROOMS[self.random.usize(..ROOMS.len())];
                let data = self.message(self.clients[&index].publisher, room);
                let text = match self.clients[&index].socketio {
                    None => format!(r#"{{"type":"publish","room":"{room}","data":{data}}}"#),
                    Some(_) => format!(r#"42["say",{data}]"#),
                };
                self.send(index, &text);
            }
            60..72 => {
                let room = ROOMS[self.random.usize(..ROOMS.len())];
                self.publish(room);
            }
            72..84 => {
                let feed = FEEDS[self.random.usize(..FEEDS.len())];
                self.renew(feed);
            }
            84..88 => {
                let Some(index) = self.pick() else { return };
                let client = self.clients.get_mut(&index).unwrap();
                client.stalled = !client.stalled;
                if client.stalled {
                    self.driver.pause(client.conn);
                } else {
                    self.driver.resume(client.conn);
                }
            }
            88..91 => {
                let Some(index) = self.pick() else { return };
                let client = self.clients.remove(&index).unwrap();
                self.driver.close(client.conn);
                self.lost(client);
            }
            93..95 => {
                // Also by those that don't read: then the answers pile up, and the server stops reading.
                let Some(index) = self.pick().filter(|n| self.clients[n].socketio.is_none()) else { return };
                for _ in 0..60 {
                    self.send(index, &format!(r#"{{"id":"{}","type":"ping"}}"#, "p".repeat(50)));
                }
                if let Some(client) = self.clients.get_mut(&index) {
                    client.pings += 60;
                }
            }
            91..93 => {
                let Some(index) = self.pick() else { return };
                let client = self.clients.remove(&index).unwrap();
                self.world.reset(&self.driver, client.conn);
                self.lost(client);
            }
            _ => {
                let pause = Duration::from_micros(1 + self.random.usize(..5_000) as u64);
                self.run_for(pause);
            }
        }
    }

    /// The next message of a publisher to a room.
    fn message(&mut self, publisher: u64, room: &str) -> String {
        let number = self.numbers.entry((publisher, room.to_owned())).or_default();
        *number += 1;
        let number = *number;
        let padding = "x".repeat(self.random.usize(..300));
        format!(r#"{{"room":"{room}","publisher":{publisher},"number":{number},"padding":"{padding}"}}"#)
    }

    /// The control plane publishes to a room.
    fn publish(&mut self, room: &str) {
        let data = Data::Json(Bytes::from(self.message(0, room)));
        self.plane.publish(Publish { room: Room::plain(room).unwrap(), event: None, data }).unwrap();
    }

    fn renew(&mut self, feed: &'static str) {
        let version = self.versions.entry(feed).or_default();
        *version += 1;
        let body =
            format!(r#"{{"version":{version},"padding":"{}"}}"#, "y".repeat(self.random.usize(..1_500)));
        let document =
            Document { body: Bytes::from(body), json: true, content_type: "application/json".into() };
        self.plane.update_feed(&Key::parse(feed).unwrap(), FeedUpdate::Document(document)).unwrap();
    }

    fn client_event(&mut self, event: Event) {
        match event {
            Event::Connected(conn) => {
                let Some(client) = self.clients.get_mut(&conn.index()) else { return };
                let handshake = ClientHandshake::new([7; 16], false);
                let target = match client.socketio {
                    None => "/ws",
                    Some(_) => "/socket.io/?EIO=4&transport=websocket",
                };
                handshake.write_request(&mut client.waiting, "127.0.0.1:8000", target, &[]);
                client.phase = Phase::Handshake { handshake, buffer: Vec::new() };
                flush(&mut self.driver, client);
            }
            Event::Received { conn, mut data, .. } => {
                self.client_received(conn, &mut data);
                self.driver.recycle(data);
            }
            Event::Sent(conn) => {
                if let Some(client) = self.clients.get_mut(&conn.index()) {
                    client.in_flight = false;
                    flush(&mut self.driver, client);
                }
            }
            Event::PeerFinished(conn) => {
                self.clients.remove(&conn.index());
                self.driver.close(conn);
            }
            Event::Closed { conn, .. } => {
                self.clients.remove(&conn.index());
            }
            Event::Accepted { .. } | Event::AcceptFailed(_) | Event::Timer(_) | Event::Woken => {}
        }
    }

    fn client_received(&mut self, conn: ConnId, data: &mut [u8]) {
        let Some(client) = self.clients.get_mut(&conn.index()) else { return };
        let mut rest = data;
        let mut glued;
        if let Phase::Handshake { handshake, buffer } = &mut client.phase {
            buffer.extend_from_slice(rest);
            let limits = http1::Limits::default();
            let Some(end) = http1::HeadScanner::default().find_end(buffer, &limits).unwrap() else { return };
            let response = http1::parse_response(&buffer[..end], &limits).unwrap();
            let deflate = handshake.check_response(&response).unwrap();
            glued = buffer.split_off(end);
            client.phase = Phase::Open(ws::Connection::new(ws::Role::Client, deflate));
            rest = &mut glued;
        }
        let Phase::Open(connection) = &mut client.phase else { return };
        let mut messages = Vec::new();
        while !rest.is_empty() {
            let received = connection.receive(&mut self.shared, rest, &mut client.waiting);
            let consumed = received.consumed;
            match received.event {
                Some(ws::Event::Message(message)) => messages.push(message.bytes().to_vec()),
                Some(ws::Event::Closed { code, error, .. }) => {
                    assert!(error.is_none(), "seed {}: the server broke the protocol", self.seed);
                    *self.closed_by_server.entry(code).or_default() += 1;
                }
                _ => {}
            }
            rest = &mut rest[consumed..];
        }
        flush(&mut self.driver, client);
        for message in messages {
            let text = std::str::from_utf8(&message).unwrap();
            if self.clients[&conn.index()].socketio.is_some() {
                self.packet(conn.index(), text);
            } else {
                self.check(conn.index(), serde_json::from_str(text).unwrap());
            }
        }
    }

    /// Asks for a topic, or gives it up.
    fn ask(&mut self, index: usize, id: u64, topic: &str, subscribe: bool) {
        let (kind, name) = topic.split_once('/').unwrap();
        let verb = if subscribe { "subscribe" } else { "unsubscribe" };
        let text = match (&self.clients[&index].socketio, kind) {
            (None, _) => format!(r#"{{"id":{id},"type":"{verb}","{kind}":"{name}"}}"#),
            (Some(_), "feed") => format!(r#"42{id}["{verb}","{name}"]"#),
            (Some(_), _) => format!(r#"42{id}["{verb} room","{name}"]"#),
        };
        self.send(index, &text);
    }

    /// Takes what a Socket.IO client received, as if it were a message of `stentor.v1`.
    fn packet(&mut self, index: usize, text: &str) {
        let client = self.clients.get_mut(&index).unwrap();
        let memory = client.socketio.as_mut().unwrap();
        if text == "2" {
            return self.send(index, "3");
        }
        if text.starts_with('0') {
            let auth = match (&memory.pid, &memory.offset) {
                (None, _) => String::new(),
                (Some(pid), None) => json!({"pid": pid}).to_string(),
                (Some(pid), Some(offset)) => json!({"pid": pid, "offset": offset}).to_string(),
            };
            return self.send(index, &format!("40{auth}"));
        }
        if let Some(answer) = text.strip_prefix("40") {
            let answer: Value = serde_json::from_str(answer).unwrap();
            let pid = answer["pid"].as_str().map(str::to_owned);
            memory.connected = true;
            if memory.pid == pid {
                self.recoveries += 1;
                // What it was told last may have been lost with the connection.
                let again: Vec<(u64, (String, bool))> =
                    client.uncertain.iter().map(|(id, asked)| (*id, asked.clone())).collect();
                for (id, (topic, subscribe)) in again {
                    self.ask(index, id, &topic, subscribe);
                }
            } else {
                client.socketio = Some(Memory { connected: true, pid, offset: None });
                client.subscribed.clear();
                client.uncertain.clear();
                client.last.clear();
                client.places.clear();
                client.version.clear();
            }
            return;
        }
        if let Some(answer) = text.strip_prefix("43") {
            let (id, answer) = answer.split_once('[').unwrap();
            assert_eq!(answer, "{\"ok\":true}]", "seed {}", self.seed);
            return self.check(index, json!({"type": "ok", "id": id.parse::<u64>().unwrap()}));
        }
        let mut event: Vec<Value> = serde_json::from_str(text.strip_prefix("42").unwrap()).unwrap();
        if let Some(Value::String(offset)) = event.pop_if(|last| last.is_string()) {
            memory.offset = Some(offset);
        }
        let data = event.pop().unwrap();
        match event[0].as_str().unwrap() {
            "feed" => self.check(index, data),
            _ => self.check(index, json!({"type": "message", "room": data["room"], "data": data})),
        }
    }

    /// Holds a message that a client received against the model.
    fn check(&mut self, index: usize, message: Value) {
        let seed = self.seed;
        let client = self.clients.get_mut(&index).unwrap();
        let kind = message["type"].as_str().unwrap();
        let topic = match (&message["feed"], &message["room"]) {
            (Value::String(feed), _) => format!("feed/{feed}"),
            (_, Value::String(room)) => format!("room/{room}"),
            _ => String::new(),
        };
        if matches!(kind, "message" | "snapshot" | "state") {
            self.deliveries += 1;
            let expected = client.subscribed.contains(&topic)
                || client.uncertain.values().any(|(asked, _)| *asked == topic);
            assert!(expected, "seed {seed}: client {index} received {topic} unasked");
        }
        match kind {
            "welcome" => {}
            "ok" => {
                if message["id"].is_string() {
                    client.pings -= 1;
                }
                let Some(id) = message["id"].as_u64() else { return };
                let (topic, subscribe) = client.uncertain.remove(&id).unwrap();
                if subscribe {
                    client.subscribed.insert(topic);
                } else {
                    client.subscribed.remove(&topic);
                    client.places.remove(&topic);
                    client.last.retain(|(room, _), _| format!("room/{room}") != topic);
                }
            }
            "message" => {
                let room = message["room"].as_str().unwrap().to_owned();
                let publisher = message["data"]["publisher"].as_u64().unwrap();
                let number = message["data"]["number"].as_u64().unwrap();
                if let Some(last) = client.last.insert((room.clone(), publisher), number) {
                    assert_eq!(
                        number,
                        last + 1,
                        "seed {seed}: client {index}, {room}, publisher {publisher}"
                    );
                }
                let has_offset = room.starts_with('h') && client.socketio.is_none();
                assert_eq!(message["offset"].is_u64(), has_offset, "seed {seed}");
                if let Some(offset) = message["offset"].as_u64() {
                    let epoch = message["epoch"].as_u64().unwrap();
                    if let Some(last) = client.places.insert(topic, (epoch, offset)) {
                        assert_eq!(
                            (epoch, offset),
                            (last.0, last.1 + 1),
                            "seed {seed}: client {index}, {room}"
                        );
                    }
                }
            }
            "snapshot" => {
                let place = (message["epoch"].as_u64().unwrap(), message["offset"].as_u64().unwrap());
                let version = message["data"]["version"].as_u64().unwrap();
                if let Some(last) = client.places.insert(topic.clone(), place) {
                    assert!(place.0 == last.0 && place.1 >= last.1, "seed {seed}: {topic} went back");
                }
                if let Some(last) = client.version.insert(topic.clone(), version) {
                    assert!(version >= last, "seed {seed}: client {index}, {topic}: {version} after {last}");
                }
            }
            other => panic!("seed {seed}: unexpected {other}: {message}"),
        }
    }

    fn metric(&self, name: &str) -> u64 {
        let metrics = self.plane.metrics();
        let metric = metrics.iter().find(|m| m.name == name).unwrap();
        metric.samples.iter().map(|(_, value)| value).sum()
    }

    fn check_counters(&self) {
        let ends = ["sent", "dropped", "conflated", "pending", "dropped_on_disconnect"];
        let accounted: u64 = ends.iter().map(|end| self.metric(&format!("deliveries_{end}"))).sum();
        assert_eq!(self.metric("deliveries_due"), accounted, "seed {}: counters don't add up", self.seed);
    }

    fn check_documents(&self) {
        for (index, client) in &self.clients {
            for feed in client.subscribed.iter().filter_map(|topic| topic.strip_prefix("feed/")) {
                let (has, newest) = (client.version.get(&format!("feed/{feed}")), self.versions.get(feed));
                assert_eq!(has, newest, "seed {}: client {index} hasn't the newest {feed}", self.seed);
            }
        }
    }

    /// Runs to the end; how many deliveries were checked, how many clients closed for a full outbox, and how many
    /// recovered.
    fn run(mut self) -> (usize, usize, usize) {
        let seed = self.seed;
        for feed in FEEDS {
            self.renew(feed);
        }
        for _ in 0..600 {
            self.operate();
            self.check_counters();
        }
        // All wake up, and everything settles.
        for client in self.clients.values_mut() {
            client.stalled = false;
            self.driver.resume(client.conn);
        }
        self.run_for(Duration::from_secs(2));
        // Who came late has got the newest document all the same.
        self.check_documents();
        for feed in FEEDS {
            self.renew(feed);
        }
        for room in ROOMS {
            self.publish(room);
        }
        self.run_for(Duration::from_secs(2));
        self.check_documents();
        for (index, client) in &self.clients {
            assert!(client.uncertain.is_empty(), "seed {seed}: client {index} was left without an answer");
            for topic in &client.subscribed {
                match topic.split_once('/').unwrap() {
                    ("feed", feed) => {
                        let (has, newest) = (client.version.get(topic), self.versions.get(feed));
                        assert_eq!(has, newest, "seed {seed}: client {index} hasn't the newest {feed}");
                    }
                    (_, room) => {
                        let key = (room.to_owned(), 0);
                        let (has, newest) = (client.last.get(&key), self.numbers.get(&(0, room.to_owned())));
                        assert_eq!(
                            has, newest,
                            "seed {seed}: client {index} hasn't the newest of room {room}"
                        );
                    }
                }
            }
        }
        assert_eq!(self.metric("deliveries_pending"), 0, "seed {seed}");
        for code in self.closed_by_server.keys() {
            assert_eq!(*code, 4501, "seed {seed}: closed for another reason than a full outbox");
        }
        // Everybody goes; the feeds are forgotten, and so is the rooms' history in time.
        for (_, client) in self.clients.drain() {
            self.driver.close(client.conn);
        }
        self.run_for(Duration::from_secs(10));
        for feed in FEEDS {
            self.plane.update_feed(&Key::parse(feed).unwrap(), FeedUpdate::Forget).unwrap();
        }
        self.run_for(Duration::from_secs(3_700));
        self.check_counters();
        for gauge in ["connections", "sessions", "topics", "send_buffer_bytes"] {
            assert_eq!(self.metric(gauge), 0, "seed {seed}: {gauge} stays");
        }
        let others = ["connections", "sessions", "subscriptions", "send_buffers"];
        let metrics = self.plane.metrics();
        let memory = metrics.iter().find(|m| m.name == "memory_bytes").unwrap();
        for (labels, bytes) in &memory.samples {
            let class = &*labels[0].1;
            assert!(*bytes == 0 || others.contains(&class), "seed {seed}: {bytes} bytes of {class} stay");
        }
        (self.deliveries, self.closed_by_server.values().sum(), self.recoveries)
    }
}

impl Client {
    /// Whether it may say something.
    fn is_connected(&self) -> bool {
        matches!(self.phase, Phase::Open(_)) && self.socketio.as_ref().is_none_or(|memory| memory.connected)
    }
}

/// By which Socket.IO clients do what those of `stentor.v1` do by its messages.
fn rules() -> Vec<Rule> {
    let template = |text: &str| vec![Template::parse(text).unwrap()];
    let rule = |event: &str| Rule { event: event.into(), ack: true, ..Rule::default() };
    vec![
        Rule { join: template("{}"), ..rule("subscribe room") },
        Rule { leave: template("{}"), ..rule("unsubscribe room") },
        Rule { broadcast: template("{room}"), ..rule("say") },
    ]
}

fn flush(driver: &mut SimDriver, client: &mut Client) {
    if !client.in_flight && !client.waiting.is_empty() {
        let frame = Frame::from(std::mem::take(&mut client.waiting));
        client.in_flight = driver.send(client.conn, &mut vec![frame]) == Sending::InFlight;
    }
}

#[test]
fn seeds() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("STENTOR_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("STENTOR_SEEDS").unwrap_or(30),
    };
    let many = seeds.end - seeds.start > 10;
    let (mut deliveries, mut closed, mut recovered) = (0, 0, 0);
    for seed in seeds {
        let run = || Simulation::new(seed).run();
        let outcome = std::panic::catch_unwind(run).unwrap_or_else(|panic| {
            eprintln!("replay with STENTOR_SEED={seed}");
            std::panic::resume_unwind(panic)
        });
        deliveries += outcome.0;
        closed += outcome.1;
        recovered += outcome.2;
    }
    // The seeds really do what they are for.
    if many {
        assert!(deliveries > 10_000, "only {deliveries} deliveries");
        assert!(closed > 0, "no outbox was ever full");
        assert!(recovered > 50, "only {recovered} came back");
    }
}
