//! Replicas of documents at clients of all protocols, over the simulated edge, from one seed.
//!
//! A control plane renews documents, as bursts and in peace; clients subscribe on all kinds of terms, stall, are cut
//! off, come back and say what they have, change their minds; from time to time the server is another one. The shadow
//! is every version that ever was. Checked at every message:
//!
//! - what a client has, after it has applied what it was sent, is a version that existed, and never an older one than
//!   before: also after it was cut off, and after a restart;
//! - a delta is for what this client has, and nobody gets one who didn't ask for it;
//! - who comes back and gets a whole document is told why, and truly;
//! - patches stay within their budget, and the counters add up.
//!
//! And when all stalls are over: everybody has the newest within [`SETTLES`] (but for those whose policy says otherwise);
//! memory comes back when all have gone.
//!
//! A failing run prints its seed: `STENTOR_SEED=n cargo test -p stentor-edge --test edge replicas`.

mod client;
mod document;

use client::{Client, MANNERS, Manner, Phase, Place};
use document::Versions;
use fastrand::Rng;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use stentor_delta::{ApplyLimits, apply};
use stentor_driver::sim::{self, SimDriver, World};
use stentor_driver::{ConnId, Driver, Event, Frame, Sending};
use stentor_edge::{
    ControlPlane, Core, DataPlane, FeedUpdate, Limits, Options, Simulated, SockJs, simulated,
};
use stentor_hub::{FeedState, Key};
use stentor_wire::http1;
use stentor_wire::ws::{self, Opcode, handshake::ClientHandshake};

struct NoControl;

impl ControlPlane for NoControl {
    fn wanted(&self) {}
    fn space(&self) {}
}

const FEEDS: [&str; 3] = ["matches/1", "matches/2", "table"];
const CLIENTS: usize = 14;
const OPERATIONS: usize = 400;
/// The longest that anybody asked to wait between two versions.
const INTERVAL_MAX: Duration = Duration::from_secs(1);
/// How soon after the last stall everybody has the newest.
const SETTLES: Duration = INTERVAL_MAX.saturating_add(Duration::from_secs(1));
const PATCH_BYTES_MAX: usize = 4_000;

struct Simulation {
    seed: u64,
    random: Rng,
    world: World,
    addr: SocketAddr,
    cores: Vec<Core<SimDriver>>,
    plane: Arc<dyn DataPlane>,
    /// The clients'.
    driver: SimDriver,
    clients: Vec<Client>,
    by_conn: BTreeMap<usize, usize>,
    shared: ws::Shared,
    versions: BTreeMap<&'static str, Versions>,
    /// How often what this is about happened.
    seen: BTreeMap<String, u64>,
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
        let addr = SocketAddr::from(([127, 0, 0, 1], 8000));
        let Simulated { cores, plane, .. } = start(seed, &mut random, &world, addr);
        let driver = world.driver();
        let limits = ws::Limits { message_bytes_max: 1 << 20, ..ws::Limits::default() };
        let versions = FEEDS.iter().map(|feed| (*feed, Versions::new(&mut random))).collect();
        let mut simulation = Self {
            seed,
            random,
            world,
            addr,
            cores,
            plane,
            driver,
            clients: Vec::new(),
            by_conn: BTreeMap::new(),
            shared: ws::Shared::new(limits),
            versions,
            seen: BTreeMap::new(),
        };
        for feed in FEEDS {
            let newest = simulation.versions[feed].newest();
            simulation.update(feed, newest);
        }
        for _ in 0..CLIENTS {
            let client = simulation.some_client();
            simulation.clients.push(client);
        }
        simulation
    }

    fn saw(&mut self, what: impl Into<String>) {
        *self.seen.entry(what.into()).or_default() += 1;
    }

    fn some_client(&mut self) -> Client {
        let manner = self.random.choice(MANNERS).unwrap();
        let first = self.random.usize(..FEEDS.len());
        let count = if manner == Manner::Raw { 1 } else { 1 + self.random.usize(..FEEDS.len()) };
        let feeds: Vec<&str> = (0..count).map(|n| FEEDS[(first + n) % FEEDS.len()]).collect();
        let terms = self.some_terms();
        Client::new(manner, &feeds, terms)
    }

    fn some_terms(&mut self) -> Value {
        let mut terms = json!({});
        if self.random.usize(..4) != 0 {
            terms["delta"] = (self.random.usize(..4) != 0).into();
        }
        match self.random.usize(..6) {
            0 => terms["policy"] = "queue".into(),
            1 => terms["policy"] = "drop_oldest".into(),
            2 | 3 => {
                terms["rate"] =
                    self.random.choice([1.0 / INTERVAL_MAX.as_secs_f64(), 5.0, 60.0]).unwrap().into()
            }
            _ => {}
        }
        terms
    }

    fn update(&mut self, feed: &str, update: FeedUpdate) {
        self.plane.update_feed(&Key::parse(feed).unwrap(), update).unwrap();
    }

    fn renew(&mut self) {
        let feed = self.random.choice(FEEDS).unwrap();
        let many = if self.random.usize(..5) == 0 { 1 + self.random.usize(..30) } else { 1 };
        for _ in 0..many {
            let update = self.versions.get_mut(feed).unwrap().next(&mut self.random);
            self.update(feed, update);
            if self.random.usize(..2) == 0 {
                self.run_for(Duration::from_micros(10));
            }
        }
    }

    /// The server is another one, that knows nothing of the first.
    fn restart(&mut self) {
        self.note_figures();
        self.cores.clear();
        let seed = self.random.get_seed();
        let Simulated { cores, plane, .. } = start(seed, &mut self.random, &self.world, self.addr);
        (self.cores, self.plane) = (cores, plane);
        for feed in FEEDS {
            let newest = self.versions[feed].newest();
            // Perhaps after the first clients are back.
            if self.random.usize(..2) == 0 {
                self.run_for(Duration::from_millis(20));
            }
            self.update(feed, newest);
        }
        self.saw("restart");
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
            self.event(event);
        }
        had_something
    }

    fn operate(&mut self) {
        let n = self.random.usize(..self.clients.len());
        let client = &mut self.clients[n];
        match (self.random.usize(..100), client.conn) {
            (0..40, _) => self.renew(),
            (40..65, None) => self.connect(n),
            (40..50, Some(conn)) => {
                client.stalled = !client.stalled;
                if client.stalled { self.driver.pause(conn) } else { self.driver.resume(conn) }
            }
            (50..57, Some(conn)) => {
                if self.random.usize(..2) == 0 {
                    self.driver.close(conn);
                } else {
                    self.world.reset(&self.driver, conn);
                }
                self.lost(conn);
            }
            (57..63, Some(_)) if client.can_ask() => {
                let terms = self.some_terms();
                self.clients[n].agree(terms);
                self.ask(n, true);
                self.saw("other terms");
            }
            (63..65, Some(_)) if client.can_ask() => {
                self.ask(n, false);
                self.saw("a document again");
            }
            (65..67, None) => {
                // Somebody else comes in its place.
                let other = self.some_client();
                self.clients[n] = other;
            }
            (67..70, _) => {
                let feed = self.random.choice(FEEDS).unwrap();
                let state = self.random.choice([FeedState::Live, FeedState::Stale]).unwrap();
                self.update(feed, FeedUpdate::State { state, reason: "it is so".into() });
            }
            (70, _) if self.random.usize(..2) == 0 => self.restart(),
            _ => {
                let pause = Duration::from_micros(1 + self.random.usize(..20_000) as u64);
                self.run_for(pause);
            }
        }
    }

    fn connect(&mut self, n: usize) {
        let conn = self.driver.connect(self.addr, None).unwrap();
        let client = &mut self.clients[n];
        client.conn = Some(conn);
        client.phase = Phase::Connecting;
        client.waiting.clear();
        (client.in_flight, client.stalled, client.ready) = (false, false, false);
        self.by_conn.insert(conn.index(), n);
    }

    fn lost(&mut self, conn: ConnId) {
        let Some(n) = self.client_of(conn) else { return };
        self.by_conn.remove(&conn.index());
        self.clients[n].lost();
    }

    fn client_of(&self, conn: ConnId) -> Option<usize> {
        let n = *self.by_conn.get(&conn.index())?;
        (self.clients[n].conn == Some(conn)).then_some(n)
    }

    fn ask(&mut self, n: usize, resume: bool) {
        let messages = self.clients[n].ask(resume);
        self.send(n, &messages);
    }

    fn send(&mut self, n: usize, messages: &[String]) {
        let client = &mut self.clients[n];
        if let Phase::Socket(connection) = &mut client.phase {
            for text in messages {
                let mask = connection.next_mask();
                ws::encode(&mut client.waiting, Opcode::Text, text.as_bytes(), false, mask);
            }
        }
        self.flush(n);
    }

    fn flush(&mut self, n: usize) {
        let client = &mut self.clients[n];
        if let Some(conn) = client.conn
            && !client.in_flight
            && !client.waiting.is_empty()
        {
            let frame = Frame::from(std::mem::take(&mut client.waiting));
            client.in_flight = self.driver.send(conn, &mut vec![frame]) == Sending::InFlight;
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Connected(conn) => {
                let Some(n) = self.client_of(conn) else { return };
                let client = &mut self.clients[n];
                let target = client.target();
                if client.manner == Manner::Events {
                    let mut headers = vec![("Host", "127.0.0.1:8000")];
                    if !client.last_event_id.len().is_multiple_of(2) {
                        headers.push(("Last-Event-ID", &client.last_event_id));
                    }
                    http1::write_request_head(&mut client.waiting, "GET", &target, &headers);
                    client.phase = Phase::Head(Vec::new());
                } else {
                    let handshake = ClientHandshake::new([7; 16], false);
                    handshake.write_request(&mut client.waiting, "127.0.0.1:8000", &target, &[]);
                    client.phase = Phase::Handshake(handshake, Vec::new());
                }
                self.flush(n);
            }
            Event::Received { conn, mut data, .. } => {
                if let Some(n) = self.client_of(conn) {
                    self.received(n, &mut data);
                }
                self.driver.recycle(data);
            }
            Event::Sent(conn) => {
                if let Some(n) = self.client_of(conn) {
                    self.clients[n].in_flight = false;
                    self.flush(n);
                }
            }
            Event::PeerFinished(conn) => {
                self.lost(conn);
                self.driver.close(conn);
            }
            Event::Closed { conn, .. } => self.lost(conn),
            Event::Accepted { .. } | Event::AcceptFailed(_) | Event::Timer(_) | Event::Woken => {}
        }
    }

    fn received(&mut self, n: usize, data: &mut [u8]) {
        let client = &mut self.clients[n];
        let mut rest = data;
        let mut glued;
        if let Phase::Handshake(_, buffer) | Phase::Head(buffer) = &mut client.phase {
            buffer.extend_from_slice(rest);
            let limits = http1::Limits::default();
            let Some(end) = http1::HeadScanner::default().find_end(buffer, &limits).unwrap() else { return };
            let head: Vec<u8> = buffer.drain(..end).collect();
            glued = std::mem::take(buffer);
            let response = http1::parse_response(&head, &limits).unwrap();
            match &mut client.phase {
                Phase::Handshake(handshake, _) => {
                    let deflate = handshake.check_response(&response).unwrap();
                    client.phase = Phase::Socket(ws::Connection::new(ws::Role::Client, deflate));
                    client.opened();
                }
                _ => {
                    assert_eq!(response.status(), 200, "seed {}", self.seed);
                    client.begin_events();
                }
            }
            rest = &mut glued;
        }
        if client.manner == Manner::Events {
            for told in client.read_events(rest) {
                self.check(n, &told);
            }
            return;
        }
        let mut texts = Vec::new();
        let Phase::Socket(connection) = &mut client.phase else { return };
        while !rest.is_empty() {
            let received = connection.receive(&mut self.shared, rest, &mut client.waiting);
            let consumed = received.consumed;
            match received.event {
                Some(ws::Event::Message(message)) => texts.push(message.text().unwrap().to_owned()),
                Some(ws::Event::Closed { code, error, .. }) => {
                    assert!(error.is_none(), "seed {}: the server broke the protocol", self.seed);
                    assert_eq!(code, 4501, "seed {}", self.seed);
                    *self.seen.entry("slow consumer".into()).or_default() += 1;
                }
                _ => {}
            }
            rest = &mut rest[consumed..];
        }
        self.flush(n);
        for text in texts {
            let (answers, told) = self.clients[n].hear(&text);
            self.send(n, &answers);
            for told in told {
                self.check(n, &told);
            }
        }
    }

    /// Holds what a client was told against the shadow.
    fn check(&mut self, n: usize, told: &Value) {
        let seed = self.seed;
        let client = &mut self.clients[n];
        let (manner, kind) = (client.manner, told["type"].as_str().unwrap().to_owned());
        match &*kind {
            "welcome" => return self.ask(n, true),
            "ok" => return client.done(told["id"].as_u64().unwrap()),
            "state" => return,
            "snapshot" | "delta" | "reset" => {}
            other => panic!("seed {seed}: {manner:?} was told {other}: {told}"),
        }
        let feed = told["feed"].as_str().unwrap();
        let who = format!("seed {seed}: client {n}, {manner:?}, {feed}, {}", client.terms);
        let (feed, replica) = client.replicas.iter_mut().find(|(known, _)| **known == feed).expect(&who);
        let place: Option<Place> = told["epoch"].as_u64().zip(told["offset"].as_u64());
        let asked = match &*kind {
            "reset" => replica.answered.take(),
            // What comes before the answer to a question is an answer to an earlier one, if to any.
            _ if replica.is_open() => replica.asked,
            _ => replica.asked.take(),
        };
        replica.answered = asked.filter(|_| kind == "snapshot");
        let mut seen = Vec::new();
        if kind == "delta" {
            let may_be = replica.deltas || replica.deltas_next && replica.is_open();
            assert!(may_be, "{who}: wanted no deltas");
            let base = told["epoch"].as_u64().zip(told["base"].as_u64());
            assert_eq!(base, replica.place, "{who}: a delta for another version");
            let [old, patch] =
                [&replica.document, &told["patch"]].map(|value| serde_json::to_vec(value).unwrap());
            let new = apply(&old, &patch, ApplyLimits::default()).expect(&who);
            replica.document = serde_json::from_slice(&new).unwrap();
            seen.push(if asked.is_some() { "resumed by a delta" } else { "delta" });
            if place.unwrap().1 > base.unwrap().1 + 1 {
                seen.push("joined");
            }
        } else if kind == "snapshot" {
            replica.document = told["data"].clone();
            seen.push("snapshot");
        }
        let may_ask = asked.is_some() && replica.deltas;
        let is_promised = may_ask && replica.is_promised && !replica.is_open();
        let epoch = place.or(replica.place).map(|place| place.0);
        let is_other_epoch = asked.is_some_and(|asked| Some(asked.0) != epoch);
        match told["reason"].as_str() {
            // On a stream of events it comes after the document.
            None if kind == "snapshot" && manner != Manner::Events && is_other_epoch => {
                assert!(!is_promised, "{who}: a document without a reason");
            }
            None => assert_ne!(kind, "reset", "{who}"),
            Some(reason) => {
                assert!(may_ask, "{who}: nobody asked for {reason}");
                assert_eq!(reason, if is_other_epoch { "epoch" } else { "history" }, "{who}");
                seen.push(if reason == "epoch" { "reason epoch" } else { "reason history" });
            }
        }
        if kind != "reset" {
            let version = replica.document["version"].as_u64().unwrap() as usize;
            assert!(
                self.versions[feed].all.get(version) == Some(&replica.document),
                "{who}: never was {version}"
            );
            assert!(replica.version <= Some(version), "{who}: {version} after {:?}", replica.version);
            replica.version = Some(version);
            replica.place = place;
        }
        for what in seen {
            self.saw(format!("{manner:?}: {what}"));
        }
    }

    fn metric(&self, name: &str) -> u64 {
        let metrics = self.plane.metrics();
        let metric = metrics.iter().find(|m| m.name == name).unwrap();
        metric.samples.iter().map(|(_, value)| value).sum()
    }

    fn check_figures(&self) {
        let seed = self.seed;
        let ends = ["sent", "dropped", "conflated", "pending", "dropped_on_disconnect"];
        let accounted: u64 = ends.iter().map(|end| self.metric(&format!("deliveries_{end}"))).sum();
        assert_eq!(self.metric("deliveries_due"), accounted, "seed {seed}: counters don't add up");
        let bytes_max = (PATCH_BYTES_MAX * self.cores.len()) as u64;
        assert!(self.metric("feed_patch_bytes") <= bytes_max, "seed {seed}: more patches than may be");
    }

    /// What happened at this server goes with it.
    fn note_figures(&mut self) {
        for name in ["deliveries_conflated", "deliveries_dropped", "feed_patches_evicted"] {
            let value = self.metric(name);
            *self.seen.entry(name.into()).or_default() += value;
        }
    }

    /// Runs to the end; how often what happened.
    fn run(mut self) -> BTreeMap<String, u64> {
        let seed = self.seed;
        for _ in 0..OPERATIONS {
            self.operate();
            self.check_figures();
        }
        // All come back and wake up, twice, so that what was quiet meanwhile is told of something as well.
        for _ in 0..2 {
            for n in 0..self.clients.len() {
                self.clients[n].stalled = false;
                match self.clients[n].conn {
                    Some(conn) => self.driver.resume(conn),
                    None => self.connect(n),
                }
            }
            self.run_for(SETTLES);
            // Who was cut off for its slowness comes back.
            for n in 0..self.clients.len() {
                if self.clients[n].conn.is_none() {
                    self.connect(n);
                }
            }
            self.run_for(SETTLES);
            for client in &self.clients {
                match client.terms["policy"].as_str() {
                    // The newest is left out where older ones on their way fill the outbox.
                    Some("drop_oldest") => continue,
                    // Its documents together are more than its outbox may hold.
                    Some("queue") if client.conn.is_none() => continue,
                    _ => assert!(client.conn.is_some(), "seed {seed}: {:?} was cut off", client.manner),
                }
                for (feed, replica) in &client.replicas {
                    let newest = self.versions[feed].all.last();
                    let who = (client.manner, feed, &client.terms);
                    assert!(newest == Some(&replica.document), "seed {seed}: {who:?} hasn't the newest");
                }
            }
            for feed in FEEDS {
                let update = self.versions.get_mut(feed).unwrap().next(&mut self.random);
                self.update(feed, update);
            }
        }
        self.run_for(SETTLES);
        assert_eq!(self.metric("deliveries_pending"), 0, "seed {seed}");
        self.note_figures();
        for client in &self.clients {
            client.conn.into_iter().for_each(|conn| self.driver.close(conn));
        }
        self.run_for(Duration::from_secs(30));
        for feed in FEEDS {
            self.update(feed, FeedUpdate::Forget);
        }
        self.run_for(Duration::from_secs(1));
        self.check_figures();
        let gauges = ["connections", "sessions", "topics", "feed_patch_bytes"];
        for gauge in gauges {
            assert_eq!(self.metric(gauge), 0, "seed {seed}: {gauge} stays");
        }
        let others = ["connections", "sessions", "subscriptions", "send_buffers"];
        let metrics = self.plane.metrics();
        let memory = metrics.iter().find(|m| m.name == "memory_bytes").unwrap();
        for (labels, bytes) in &memory.samples {
            let class = &*labels[0].1;
            assert!(*bytes == 0 || others.contains(&class), "seed {seed}: {bytes} bytes of {class} stay");
        }
        self.seen
    }
}

/// A server, at `addr`.
fn start(seed: u64, random: &mut Rng, world: &World, addr: SocketAddr) -> Simulated {
    let options = Options {
        listen: addr,
        cores: 1 + random.usize(..3),
        sockjs: vec![SockJs::at("/sockjs")],
        limits: Limits {
            send_buffer_bytes_max: 2_000 + random.usize(..20_000),
            mailbox_messages_max: 2 + random.usize(..30),
            feed_patches_max: random.choice([0, 3, 100]).unwrap(),
            feed_patches_bytes_max: PATCH_BYTES_MAX,
            ..Limits::default()
        },
        ..Options::default()
    };
    simulated(world, options, [seed, !seed], Arc::new(NoControl), None).unwrap()
}

#[test]
fn seeds() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("STENTOR_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("STENTOR_SEEDS").unwrap_or(32),
    };
    let many = seeds.end - seeds.start > 10;
    let mut seen = BTreeMap::new();
    for seed in seeds {
        let run = || Simulation::new(seed).run();
        let outcome = std::panic::catch_unwind(run).unwrap_or_else(|panic| {
            eprintln!("replay with STENTOR_SEED={seed}");
            std::panic::resume_unwind(panic)
        });
        for (what, times) in outcome {
            *seen.entry(what).or_insert(0) += times;
        }
    }
    eprintln!("{seen:#?}");
    if !many {
        return;
    }
    // The seeds really do what they are for.
    let mut expected: Vec<String> = ["restart", "other terms", "a document again", "slow consumer"]
        .into_iter()
        .chain(["deliveries_conflated", "deliveries_dropped", "feed_patches_evicted", "Raw: snapshot"])
        .map(str::to_owned)
        .collect();
    for manner in MANNERS.into_iter().filter(|manner| *manner != Manner::Raw) {
        for what in ["snapshot", "delta", "joined", "resumed by a delta", "reason epoch", "reason history"] {
            expected.push(format!("{manner:?}: {what}"));
        }
    }
    for what in expected {
        assert!(seen.get(&what).is_some_and(|times| *times > 0), "never: {what}");
    }
}
