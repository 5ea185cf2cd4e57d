//! The stage of the simulations: a data plane on one thread, on a virtual clock, from one seed, and its clients' connections.
//!
//! A failing run prints its seed. `STENTOR_SEED=n` runs only the seed n, and `STENTOR_SEEDS=n` runs n seeds.

use crate::harness::Control;
use fastrand::Rng;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;
use stentor_driver::sim::{self, SimDriver, World};
use stentor_driver::{ConnId, Driver, Event, Frame, Sending};
use stentor_edge::{Core, Options, Simulated, simulated};
use stentor_hub::Key;
use stentor_ports::{FeedUpdate, LocalNode};
use stentor_wire::http1;
use stentor_wire::ws::{self, Opcode, handshake::ClientHandshake};

/// Size of the tables of all cores after the rooms of a simulation have ended, in bytes: the list of pages, and the names' table, which doesn't
/// shrink below a capacity of 1,024.
const ROOM_TABLES_BYTES_MAX: u64 = 8 << 10;

pub(crate) const FEEDS: [&str; 3] = ["matches/1", "matches/2", "table"];
const HOST: &str = "127.0.0.1:8000";

/// An event of a client's connection.
pub(crate) enum Heard {
    /// The WebSocket is open, or the body of the answer begins.
    Opened,
    Text(String),
    Body(Vec<u8>),
    /// The server has closed the WebSocket, with this code.
    Closed(u16),
    /// The connection has ended.
    Lost,
}

enum Phase {
    /// The received headers of the answer to a handshake or to another request.
    Head(Option<ClientHandshake>, Vec<u8>),
    Socket(ws::Connection),
    Body,
}

/// A client's connection.
struct Link {
    conn: ConnId,
    phase: Phase,
    waiting: Vec<u8>,
    in_flight: bool,
    is_stalled: bool,
}

pub(crate) struct Stage {
    pub(crate) seed: u64,
    pub(crate) random: Rng,
    pub(crate) plane: Arc<dyn LocalNode>,
    world: World,
    cores: Vec<Core<SimDriver>>,
    /// The driver of the clients' connections.
    driver: SimDriver,
    shared: ws::Shared,
    links: BTreeMap<usize, Link>,
    by_conn: HashMap<ConnId, usize>,
    next_link: usize,
    heard: VecDeque<(usize, Heard)>,
    had_something: bool,
}

/// A simulation: handles the clients' events, and runs the [`Stage`] (cores, network and clock).
pub(crate) trait Play {
    fn stage(&mut self) -> &mut Stage;

    /// Handles an event of the connection with this number.
    fn hear(&mut self, link: usize, heard: Heard);

    fn run_for(&mut self, duration: Duration) {
        let world = self.stage().world.clone();
        world.run_for(duration, || self.turn());
    }

    /// Runs a turn of all cores, and handles the clients' events. Returns `true` if there was work.
    fn turn(&mut self) -> bool {
        self.stage().turn_cores();
        while let Some((link, heard)) = self.stage().next_heard() {
            self.hear(link, heard);
        }
        self.stage().had_something
    }
}

impl Stage {
    pub(crate) fn new(seed: u64, options: impl FnOnce(&mut Rng) -> Options) -> Self {
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
        let Simulated { cores, plane, .. } = start(&world, seed, options(&mut random));
        let driver = world.driver();
        let limits = ws::Limits { message_bytes_max: 1 << 20, ..ws::Limits::default() };
        Self {
            seed,
            random,
            plane,
            world,
            cores,
            driver,
            shared: ws::Shared::new(limits),
            links: BTreeMap::new(),
            by_conn: HashMap::new(),
            next_link: 0,
            heard: VecDeque::new(),
            had_something: false,
        }
    }

    /// Replaces the server by a new one, which has no state of the first.
    pub(crate) fn restart(&mut self, options: impl FnOnce(&mut Rng) -> Options) {
        self.cores.clear();
        let seed = self.random.get_seed();
        let Simulated { cores, plane, .. } = start(&self.world, seed, options(&mut self.random));
        (self.cores, self.plane) = (cores, plane);
    }

    pub(crate) fn cores(&self) -> usize {
        self.cores.len()
    }

    /// A turn of each core, beginning with one that the seed chooses.
    fn turn_cores(&mut self) {
        self.had_something = false;
        let first = self.random.usize(..self.cores.len());
        for n in 0..self.cores.len() {
            let core = (first + n) % self.cores.len();
            self.had_something |= self.cores[core].turn(Some(Duration::ZERO)).unwrap();
        }
        self.driver.wait(Some(Duration::ZERO)).unwrap();
    }

    fn next_heard(&mut self) -> Option<(usize, Heard)> {
        while self.heard.is_empty() {
            let event = self.driver.next_event()?;
            self.had_something = true;
            self.event(event);
        }
        self.heard.pop_front()
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Connected(conn) | Event::Sent(conn) => {
                if let Some(link) = self.by_conn.get(&conn).and_then(|link| self.links.get_mut(link)) {
                    link.in_flight = false;
                    link.flush(&mut self.driver);
                }
            }
            Event::Received { conn, mut data, .. } => {
                if let Some(link) = self.by_conn.get(&conn) {
                    self.received(*link, &mut data);
                }
                self.driver.recycle(data);
            }
            Event::PeerFinished(conn) => {
                self.lost(conn);
                self.driver.close(conn);
            }
            Event::Closed { conn, .. } => self.lost(conn),
            Event::Accepted { .. }
            | Event::AcceptFailed(_)
            | Event::EndPending(_)
            | Event::Timer(_)
            | Event::Woken => {}
        }
    }

    fn lost(&mut self, conn: ConnId) {
        if let Some(link) = self.by_conn.remove(&conn) {
            self.links.remove(&link);
            self.heard.push_back((link, Heard::Lost));
        }
    }

    fn received(&mut self, number: usize, data: &mut [u8]) {
        let mut rest = data;
        let link = self.links.get_mut(&number).unwrap();
        let mut glued;
        if let Phase::Head(handshake, buffer) = &mut link.phase {
            buffer.extend_from_slice(rest);
            let limits = http1::Limits::default();
            let Some(end) = http1::HeadScanner::default().find_end(buffer, &limits).unwrap() else { return };
            let response = http1::parse_response(&buffer[..end], &limits).unwrap();
            let phase = match handshake {
                Some(handshake) => {
                    let deflate = handshake.check_response(&response).unwrap();
                    Phase::Socket(ws::Connection::new(ws::Role::Client, deflate))
                }
                None => {
                    assert_eq!(response.status(), 200, "seed {}", self.seed);
                    Phase::Body
                }
            };
            glued = buffer.split_off(end);
            rest = &mut glued;
            link.phase = phase;
            self.heard.push_back((number, Heard::Opened));
        }
        let Phase::Socket(connection) = &mut link.phase else {
            return self.heard.push_back((number, Heard::Body(rest.to_vec())));
        };
        while !rest.is_empty() {
            let received = connection.receive(&mut self.shared, rest, &mut link.waiting);
            let consumed = received.consumed;
            let heard = match received.event {
                Some(ws::Event::Message(message)) => Some(Heard::Text(message.text().unwrap().to_owned())),
                Some(ws::Event::Closed { code, error, .. }) => {
                    assert!(error.is_none(), "seed {}: the server broke the protocol", self.seed);
                    Some(Heard::Closed(code))
                }
                _ => None,
            };
            self.heard.extend(heard.map(|heard| (number, heard)));
            rest = &mut rest[consumed..];
        }
        link.flush(&mut self.driver);
    }

    /// Opens a WebSocket, and returns the number of its connection.
    pub(crate) fn open_ws(&mut self, target: &str) -> usize {
        let (handshake, mut request) = (ClientHandshake::new([7; 16], false), Vec::new());
        handshake.write_request(&mut request, HOST, target, &[]);
        self.connect(request, Some(handshake))
    }

    /// Sends a GET request for an endless response, and returns the number of its connection.
    pub(crate) fn get(&mut self, target: &str, headers: &[(&str, &str)]) -> usize {
        let mut request = Vec::new();
        http1::write_request_head(&mut request, "GET", target, &[&[("Host", HOST)], headers].concat());
        self.connect(request, None)
    }

    fn connect(&mut self, waiting: Vec<u8>, handshake: Option<ClientHandshake>) -> usize {
        let conn = self.driver.connect(HOST.parse::<SocketAddr>().unwrap(), None).unwrap();
        self.next_link += 1;
        // The request waits until the connection is open.
        let (phase, in_flight, is_stalled) = (Phase::Head(handshake, Vec::new()), true, false);
        self.links.insert(self.next_link, Link { conn, phase, waiting, in_flight, is_stalled });
        self.by_conn.insert(conn, self.next_link);
        self.next_link
    }

    pub(crate) fn is_open_ws(&self, link: usize) -> bool {
        self.links.get(&link).is_some_and(|link| matches!(link.phase, Phase::Socket(_)))
    }

    /// Sends a text over a WebSocket, unless the connection has ended.
    pub(crate) fn send(&mut self, link: usize, text: &str) {
        let Some(link) = self.links.get_mut(&link) else { return };
        if let Phase::Socket(connection) = &mut link.phase {
            let mask = connection.next_mask();
            ws::encode(&mut link.waiting, Opcode::Text, text.as_bytes(), false, mask);
        }
        link.flush(&mut self.driver);
    }

    /// Makes a client stop reading, or read again.
    pub(crate) fn stall_or_resume(&mut self, link: usize) {
        let link = self.links.get_mut(&link).unwrap();
        link.is_stalled = !link.is_stalled;
        if link.is_stalled { self.driver.pause(link.conn) } else { self.driver.resume(link.conn) }
    }

    pub(crate) fn resume_all(&mut self) {
        for link in self.links.values_mut() {
            link.is_stalled = false;
            self.driver.resume(link.conn);
        }
    }

    /// Closes or resets a client's connection. The client receives no event of it any more.
    pub(crate) fn cut(&mut self, link: usize, is_reset: bool) {
        let Link { conn, .. } = self.links.remove(&link).unwrap();
        self.by_conn.remove(&conn);
        if is_reset { self.world.reset(&self.driver, conn) } else { self.driver.close(conn) }
    }

    pub(crate) fn cut_all(&mut self) {
        for link in self.links.keys().copied().collect::<Vec<_>>() {
            self.cut(link, false);
        }
    }

    pub(crate) fn update(&self, feed: &str, update: FeedUpdate) {
        self.plane.update_feed(&Key::parse(feed).unwrap(), update).unwrap();
    }

    pub(crate) fn forget_feeds(&self) {
        FEEDS.iter().for_each(|feed| self.update(feed, FeedUpdate::Forget));
    }

    pub(crate) fn metric(&self, name: &str) -> u64 {
        let metrics = self.plane.metrics();
        let metric = metrics.iter().find(|metric| metric.name == name).unwrap();
        metric.samples.iter().map(|(_, value)| value).sum()
    }

    pub(crate) fn check_counters(&self) {
        let ends = ["sent", "dropped", "conflated", "pending", "dropped_on_disconnect"];
        let accounted: u64 = ends.iter().map(|end| self.metric(&format!("deliveries_{end}"))).sum();
        assert_eq!(self.metric("deliveries_due"), accounted, "seed {}: counters don't add up", self.seed);
    }

    /// Checks that all memory is freed after all clients have left.
    pub(crate) fn check_empty(&self, gauges: &[&str]) {
        self.check_counters();
        for gauge in ["connections", "sessions", "topics"].iter().chain(gauges) {
            assert_eq!(self.metric(gauge), 0, "seed {}: {gauge} stays", self.seed);
        }
        let others = ["connections", "sessions", "subscriptions", "send_buffers"];
        let metrics = self.plane.metrics();
        let memory = metrics.iter().find(|metric| metric.name == "memory_bytes").unwrap();
        for (labels, bytes) in &memory.samples {
            let class = &*labels[0].1;
            let kept = if class == "rooms" { ROOM_TABLES_BYTES_MAX } else { 0 };
            let stays = *bytes > kept && !others.contains(&class);
            assert!(!stays, "seed {}: {bytes} bytes of {class} stay", self.seed);
        }
    }
}

impl Link {
    fn flush(&mut self, driver: &mut SimDriver) {
        if !self.in_flight && !self.waiting.is_empty() {
            let frame = Frame::from(std::mem::take(&mut self.waiting));
            self.in_flight = driver.send(self.conn, &mut vec![frame]) == Sending::InFlight;
        }
    }
}

fn start(world: &World, seed: u64, options: Options) -> Simulated {
    let options = Options { listen: HOST.parse().unwrap(), ..options };
    simulated(world, options, [seed, !seed], Arc::new(Control::default()), None).unwrap()
}

/// Runs the seeds below `seeds`, or those that the environment selects. Returns the results if there are more than
/// 10 seeds, so that all situations must have occurred.
pub(crate) fn run_seeds<T>(seeds: u64, run: impl Fn(u64) -> T) -> Option<Vec<T>> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("STENTOR_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("STENTOR_SEEDS").unwrap_or(seeds),
    };
    let is_many = seeds.end - seeds.start > 10;
    let run = |seed| {
        catch_unwind(AssertUnwindSafe(|| run(seed))).unwrap_or_else(|panic| {
            eprintln!("replay with STENTOR_SEED={seed}");
            resume_unwind(panic)
        })
    };
    let results = seeds.map(run).collect();
    is_many.then_some(results)
}
