//! The whole data plane on one thread, on a virtual clock, from one seed.
//!
//! Cores on simulated drivers, clients that speak `stentor.v1` or Socket.IO over the same simulated network, and a control plane
//! that publishes and updates documents. Clients subscribe, publish, stall and reconnect; Socket.IO clients recover missed
//! messages, on any core. A shadow model knows the messages that each client may receive. Each message is checked, and again when
//! all is quiet:
//!
//! - a client receives only messages of its subscriptions;
//! - per room and publisher, messages arrive in order without a gap; in rooms with history, all members have the same order;
//! - a recovered client has received each message once, however often it reconnected;
//! - no client receives an older version of a document after a newer one, and all end with the newest;
//! - a client is closed only for a reason that the model knows (a full outbox), and others don't notice;
//! - the counters add up, and all memory is freed when all clients have left.
//!
//! A failing run prints its seed: `STENTOR_SEED=n cargo test -p stentor-edge --test edge simulation`.

use crate::harness::template;
use crate::stage::{FEEDS, Heard, Play, Stage, run_seeds};
use bytes::Bytes;
use fastrand::Rng;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;
use stentor_edge::{App, Limits, Options, Recovery, Rooms, Rule};
use stentor_hub::{Data, Document, HistoryLimits, Room};
use stentor_ports::{FeedUpdate, Publish};

/// Rooms whose name begins with `h` keep history.
const ROOMS: [&str; 4] = ["a", "b", "h1", "h2"];

/// The state of a Socket.IO client.
#[derive(Clone, Default)]
struct Memory {
    /// `true` after the answer to CONNECT.
    connected: bool,
    pid: Option<String>,
    offset: Option<String>,
}

/// A client and its state in the model.
#[derive(Default)]
struct Client {
    /// `None` for a `stentor.v1` client.
    socketio: Option<Memory>,
    /// The client's number as a publisher. 0 is the control plane.
    publisher: u64,
    /// Topics with an answered subscription that wasn't ended since.
    subscribed: HashSet<String>,
    /// Topics with an unanswered subscription (`true`) or unsubscription (`false`). Messages of these topics may or may not
    /// arrive.
    uncertain: HashMap<u64, (String, bool)>,
    /// The last number by room and publisher.
    last: HashMap<(String, u64), u64>,
    /// Epoch and offset of the last message by topic.
    places: HashMap<String, (u64, u64)>,
    version: HashMap<String, u64>,
    /// Number of unanswered pings.
    pings: usize,
}

struct Simulation {
    stage: Stage,
    /// Clients by the numbers of their connections.
    clients: BTreeMap<usize, Client>,
    next_id: u64,
    next_publisher: u64,
    /// The last used number by publisher and room.
    numbers: HashMap<(u64, String), u64>,
    /// Publisher and number of the message at each position of a room with history.
    orders: HashMap<(String, (u64, u64)), (u64, u64)>,
    versions: HashMap<&'static str, u64>,
    closed_by_server: HashMap<u16, usize>,
    deliveries: usize,
    recoveries: usize,
}

impl Play for Simulation {
    fn stage(&mut self) -> &mut Stage {
        &mut self.stage
    }

    fn hear(&mut self, link: usize, heard: Heard) {
        let Some(client) = self.clients.get(&link) else { return };
        match heard {
            Heard::Text(text) if client.socketio.is_some() => self.packet(link, &text),
            Heard::Text(text) => self.check(link, serde_json::from_str(&text).unwrap()),
            Heard::Closed(code) => *self.closed_by_server.entry(code).or_default() += 1,
            Heard::Lost => _ = self.clients.remove(&link),
            Heard::Opened | Heard::Body(_) => {}
        }
    }
}

impl Simulation {
    fn new(seed: u64) -> Self {
        Self {
            stage: Stage::new(seed, options),
            clients: BTreeMap::new(),
            next_id: 1,
            next_publisher: 1,
            numbers: HashMap::new(),
            orders: HashMap::new(),
            versions: HashMap::new(),
            closed_by_server: HashMap::new(),
            deliveries: 0,
            recoveries: 0,
        }
    }

    fn publisher(&mut self) -> u64 {
        self.next_publisher += 1;
        self.next_publisher - 1
    }

    fn connect(&mut self, client: Client) {
        let target = match client.socketio {
            None => "/ws",
            Some(_) => "/socket.io/?EIO=4&transport=websocket",
        };
        let publisher = self.publisher();
        self.clients.insert(self.stage.open_ws(target), Client { publisher, ..client });
    }

    /// Cuts a client's connection. A Socket.IO client reconnects in most cases.
    fn cut(&mut self, link: usize, is_reset: bool) {
        let client = self.clients.remove(&link).unwrap();
        self.stage.cut(link, is_reset);
        if client.socketio.is_none() || self.stage.random.usize(..5) == 0 {
            return;
        }
        // The server may not have noticed the loss yet. In this case, the client starts a new session.
        let pause = Duration::from_millis(self.stage.random.u64(..3) * 20);
        self.run_for(pause);
        let socketio = client.socketio.map(|memory| Memory { connected: false, ..memory });
        // The client's last messages may have been lost with the connection, so it publishes under another number.
        self.connect(Client { socketio, pings: 0, ..client });
    }

    /// Chooses a client that may send a message.
    fn pick(&mut self) -> Option<usize> {
        let is_connected = |(link, client): &(&usize, &Client)| {
            self.stage.is_open_ws(**link) && client.socketio.as_ref().is_none_or(|memory| memory.connected)
        };
        let open: Vec<usize> = self.clients.iter().filter(is_connected).map(|(link, _)| *link).collect();
        self.stage.random.choice(open)
    }

    fn some_room(&mut self) -> &'static str {
        self.stage.random.choice(ROOMS).unwrap()
    }

    fn operate(&mut self) {
        match self.stage.random.usize(..100) {
            0..15 if self.clients.len() < 25 => {
                let socketio = self.stage.random.bool().then(Memory::default);
                self.connect(Client { socketio, ..Client::default() });
            }
            0..35 => {
                let Some(index) = self.pick() else { return };
                let subscribe = self.stage.random.usize(..3) > 0;
                let topic = match self.stage.random.bool() {
                    true => format!("feed/{}", self.stage.random.choice(FEEDS).unwrap()),
                    false => format!("room/{}", self.some_room()),
                };
                let id = self.next_id;
                self.next_id += 1;
                let client = self.clients.get_mut(&index).unwrap();
                // One open request per topic, so that the model knows the meaning of an answer.
                if client.uncertain.values().any(|(asked, _)| *asked == topic) {
                    return;
                }
                client.uncertain.insert(id, (topic.clone(), subscribe));
                self.ask(index, id, &topic, subscribe);
            }
            35..60 => {
                let Some(index) = self.pick() else { return };
                let room = self.some_room();
                let data = self.message(self.clients[&index].publisher, room);
                let text = match self.clients[&index].socketio {
                    None => format!(r#"{{"type":"publish","room":"{room}","data":{data}}}"#),
                    Some(_) => format!(r#"42["say",{data}]"#),
                };
                self.stage.send(index, &text);
            }
            60..72 => {
                let room = self.some_room();
                self.publish(room);
            }
            72..84 => {
                let feed = self.stage.random.choice(FEEDS).unwrap();
                self.renew(feed);
            }
            84..88 => {
                let Some(index) = self.pick() else { return };
                self.stage.stall_or_resume(index);
            }
            number @ 88..93 => {
                let Some(index) = self.pick() else { return };
                self.cut(index, number >= 91);
            }
            93..95 => {
                // Clients that don't read send as well. Their answers accumulate, and the server stops reading.
                let Some(index) = self.pick().filter(|n| self.clients[n].socketio.is_none()) else { return };
                let ping = format!(r#"{{"id":"{}","type":"ping"}}"#, "p".repeat(50));
                (0..60).for_each(|_| self.stage.send(index, &ping));
                self.clients.get_mut(&index).unwrap().pings += 60;
            }
            _ => {
                let pause = Duration::from_micros(1 + self.stage.random.u64(..5_000));
                self.run_for(pause);
            }
        }
    }

    /// The next message of a publisher to a room.
    fn message(&mut self, publisher: u64, room: &str) -> String {
        let number = self.numbers.entry((publisher, room.to_owned())).or_default();
        *number += 1;
        let number = *number;
        let padding = "x".repeat(self.stage.random.usize(..300));
        format!(r#"{{"room":"{room}","publisher":{publisher},"number":{number},"padding":"{padding}"}}"#)
    }

    /// The control plane publishes to a room.
    fn publish(&mut self, room: &str) {
        let data = Data::Json(Bytes::from(self.message(0, room)));
        self.stage.plane.publish(Publish { room: Room::plain(room).unwrap(), event: None, data }).unwrap();
    }

    fn renew(&mut self, feed: &'static str) {
        let version = self.versions.entry(feed).or_default();
        *version += 1;
        let body = format!(
            r#"{{"version":{version},"padding":"{}"}}"#,
            "y".repeat(self.stage.random.usize(..1_500))
        );
        let document =
            Document { body: Bytes::from(body), json: true, content_type: "application/json".into() };
        self.stage.update(feed, FeedUpdate::Changed(document.into()));
    }

    /// Subscribes to a topic, or unsubscribes.
    fn ask(&mut self, index: usize, id: u64, topic: &str, subscribe: bool) {
        let (kind, name) = topic.split_once('/').unwrap();
        let verb = if subscribe { "subscribe" } else { "unsubscribe" };
        let text = match (&self.clients[&index].socketio, kind) {
            (None, _) => format!(r#"{{"id":{id},"type":"{verb}","{kind}":"{name}"}}"#),
            (Some(_), "feed") => format!(r#"42{id}["{verb}","{name}"]"#),
            (Some(_), _) => format!(r#"42{id}["{verb} room","{name}"]"#),
        };
        self.stage.send(index, &text);
    }

    /// Handles a packet of a Socket.IO client like a message of `stentor.v1`.
    fn packet(&mut self, index: usize, text: &str) {
        let client = self.clients.get_mut(&index).unwrap();
        let memory = client.socketio.as_mut().unwrap();
        if text == "2" {
            return self.stage.send(index, "3");
        }
        if text.starts_with('0') {
            let auth = match (&memory.pid, &memory.offset) {
                (None, _) => String::new(),
                (Some(pid), None) => json!({"pid": pid}).to_string(),
                (Some(pid), Some(offset)) => json!({"pid": pid, "offset": offset}).to_string(),
            };
            return self.stage.send(index, &format!("40{auth}"));
        }
        if let Some(answer) = text.strip_prefix("40") {
            let answer: Value = serde_json::from_str(answer).unwrap();
            let pid = answer["pid"].as_str().map(str::to_owned);
            memory.connected = true;
            if memory.pid == pid {
                self.recoveries += 1;
                // The last messages to the client may have been lost with the connection.
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
            assert_eq!(answer, "{\"ok\":true}]", "seed {}", self.stage.seed);
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

    /// Compares a client's message with the model.
    fn check(&mut self, index: usize, message: Value) {
        let seed = self.stage.seed;
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
                    let place = (message["epoch"].as_u64().unwrap(), offset);
                    if let Some((epoch, last)) = client.places.insert(topic, place) {
                        assert_eq!(place, (epoch, last + 1), "seed {seed}: client {index}, {room}");
                    }
                    let here = self.orders.entry((room, place)).or_insert((publisher, number));
                    assert_eq!(*here, (publisher, number), "seed {seed}: client {index} has another order");
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

    fn check_documents(&self) {
        for (index, client) in &self.clients {
            for feed in client.subscribed.iter().filter_map(|topic| topic.strip_prefix("feed/")) {
                let (has, newest) = (client.version.get(&format!("feed/{feed}")), self.versions.get(feed));
                assert_eq!(has, newest, "seed {}: client {index} hasn't the newest {feed}", self.stage.seed);
            }
        }
    }

    /// Runs to the end. Returns the numbers of checked deliveries, of clients closed for a full outbox, and of recovered clients.
    fn run(mut self) -> (usize, usize, usize) {
        let seed = self.stage.seed;
        for feed in FEEDS {
            self.renew(feed);
        }
        for _ in 0..600 {
            self.operate();
            self.stage.check_counters();
        }
        // All clients read again, until no delivery is pending.
        self.stage.resume_all();
        self.run_for(Duration::from_secs(2));
        // A client that subscribed late has the newest document, too.
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
            for room in client.subscribed.iter().filter_map(|topic| topic.strip_prefix("room/")) {
                let key = (room.to_owned(), 0);
                let (has, newest) = (client.last.get(&key), self.numbers.get(&(0, room.to_owned())));
                assert_eq!(has, newest, "seed {seed}: client {index} hasn't the newest of room {room}");
            }
        }
        assert_eq!(self.stage.metric("deliveries_pending"), 0, "seed {seed}");
        for code in self.closed_by_server.keys() {
            assert_eq!(*code, 4501, "seed {seed}: closed for another reason than a full outbox");
        }
        // All clients leave. The feeds are dropped, and in time so is the rooms' history.
        self.clients.clear();
        self.stage.cut_all();
        self.run_for(Duration::from_secs(10));
        self.stage.forget_feeds();
        self.run_for(Duration::from_secs(3_700));
        self.stage.check_empty(&["send_buffer_bytes"]);
        (self.deliveries, self.closed_by_server.values().sum(), self.recoveries)
    }
}

fn options(random: &mut Rng) -> Options {
    let history =
        HistoryLimits { publications_max: 50, bytes_max: 100_000, age_max: Duration::from_secs(3_600) };
    // With these rules, Socket.IO clients can do the same as `stentor.v1` clients with their messages.
    let rule = |event: &str| Rule { event: event.into(), ack: true, ..Rule::default() };
    let mut options = Options { cores: 1 + random.usize(..4), ..Options::default() };
    options.app = App::Rooms;
    options.rooms = Rooms {
        publish: true,
        history: vec![("h".to_owned(), history)],
        rules: vec![
            Rule { join: template("{}"), ..rule("subscribe room") },
            Rule { leave: template("{}"), ..rule("unsubscribe room") },
            Rule { broadcast: template("{room}"), ..rule("say") },
        ],
        ..Rooms::default()
    };
    options.engine.recovery = Some(Recovery { age_max: Duration::from_secs(5), ..Recovery::default() });
    options.limits = Limits {
        send_buffer_bytes_max: 2_000 + random.usize(..20_000),
        mailbox_messages_max: 2 + random.usize(..30),
        replies_bytes_max: 500,
        ..Limits::default()
    };
    options
}

#[test]
fn seeds() {
    let Some(results) = run_seeds(30, |seed| Simulation::new(seed).run()) else { return };
    let sum = |of: fn(&(usize, usize, usize)) -> usize| results.iter().map(of).sum::<usize>();
    // The seeds must cover all situations.
    let deliveries = sum(|result| result.0);
    assert!(deliveries > 10_000, "only {deliveries} deliveries");
    assert!(sum(|result| result.1) > 0, "no outbox was ever full");
    let recovered = sum(|result| result.2);
    assert!(recovered > 50, "only {recovered} came back");
}
