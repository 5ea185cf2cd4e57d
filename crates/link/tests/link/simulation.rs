//! A server and a worker over a connection that breaks, on virtual time, from seeds.
//!
//! Every message arrives once and in order, frames and unacknowledged bytes stay within their bounds, and after a crash each
//! message that the worker hasn't handled is among those that Stentor still has. `STENTOR_SEED=17` runs one seed.

use crate::{hello_frame, number_in, text_of};
use bytes::Bytes;
use smallvec::smallvec;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use stentor_link::{
    End, Entry, Event, Exchange, FRAME_BYTES, Frame, Handle, Hello, Link, LinkOptions, Message, Messages,
    Received, SendFlags, ServerEntry, Transmit, WorkerEntry,
};

const SEEDS: u64 = 2_000;
const STEPS: u32 = 150;
const HANDLES: u32 = 4;
/// Largest message that the simulation sends.
const MESSAGE_BYTES_MAX: usize = 80_000;

/// One direction of a connection: frames with the times of their arrival.
#[derive(Default)]
struct Wire(VecDeque<(Instant, Bytes)>);

impl Wire {
    fn push(&mut self, frame: Bytes, at: Instant) {
        let last = self.0.back().map_or(at, |(last, _)| *last);
        self.0.push_back((at.max(last), frame));
    }

    fn pop(&mut self, now: Instant) -> Option<Bytes> {
        let is_due = self.0.front().is_some_and(|(at, _)| *at <= now);
        is_due.then(|| self.0.pop_front().unwrap().1)
    }
}

/// Counts of messages that one side has written and the other has handled, by session.
#[derive(Default)]
struct Flow {
    written: BTreeMap<u32, u64>,
    handled: BTreeMap<u32, u64>,
}

impl Flow {
    fn next(&mut self, handle: u32, rng: &mut fastrand::Rng) -> Messages {
        let count = self.written.entry(handle).or_default();
        *count += 1;
        let len = match rng.u8(..60) {
            0 => rng.usize(..MESSAGE_BYTES_MAX),
            1..6 => rng.usize(..8_000),
            _ => rng.usize(..100),
        };
        smallvec![Message::Text(text_of(*count, len))]
    }

    fn handle(&mut self, handle: Handle, messages: &Messages) {
        let count = self.handled.entry(handle.0).or_default();
        *count += 1;
        assert_eq!(number_in(&messages[0]), *count, "messages of session {} in order", handle.0);
    }
}

struct World {
    rng: fastrand::Rng,
    now: Instant,
    server: Link,
    worker: Exchange<ServerEntry, WorkerEntry>,
    to_worker: Wire,
    to_server: Wire,
    /// `true` while the TCP connection exists.
    is_open: bool,
    /// `true` after the worker has received WELCOME on this connection.
    is_welcome: bool,
    /// Until when the worker handles nothing.
    busy_until: Instant,
    to_clients: Flow,
    to_application: Flow,
    breaks: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let now = Instant::now();
        let hello = Hello::read(hello_frame("one", (None, 0), "redeliver")).unwrap();
        let mut world = Self {
            rng: fastrand::Rng::with_seed(seed),
            now,
            server: Link::new(1, hello, 1, LinkOptions::default(), now),
            worker: Exchange::default(),
            to_worker: Wire::default(),
            to_server: Wire::default(),
            is_open: true,
            is_welcome: false,
            busy_until: now,
            to_clients: Flow::default(),
            to_application: Flow::default(),
            breaks: 0,
        };
        // Numbers wrap around.
        if seed.is_multiple_of(4) {
            world.worker.start_at(u64::from(u32::MAX) - 20);
            world.server.start_at(u64::from(u32::MAX) - 20);
        }
        world
    }

    fn arrival(&mut self) -> Instant {
        self.now + Duration::from_micros(self.rng.u64(..5_000))
    }

    fn step(&mut self) {
        let handle = self.rng.u32(..HANDLES);
        match self.rng.u8(..16) {
            0..5 => {
                for _ in 0..self.rng.u8(1..12) {
                    if self.server.has_room() {
                        let messages = self.to_application.next(handle, &mut self.rng);
                        self.server.write(&ServerEntry::Message { handle: Handle(handle), messages });
                    }
                }
            }
            5..9 => {
                for _ in 0..self.rng.u8(1..8) {
                    let messages = self.to_clients.next(handle, &mut self.rng);
                    let flags = SendFlags::default();
                    self.worker.write(&WorkerEntry::Send { handle: Handle(handle), flags, messages });
                }
            }
            9 => self.worker.write(&WorkerEntry::Nop {}),
            10 => self.server.write(&ServerEntry::Pressure { handle: Handle(handle), is_on: true }),
            11 => self.busy_until = self.now + Duration::from_millis(self.rng.u64(..100)),
            12 if self.rng.u8(..4) == 0 => self.break_connection(),
            _ => self.now += Duration::from_micros(self.rng.u64(..20_000)),
        }
        self.pump();
    }

    /// The connection breaks, and the worker connects again. Stentor may not have noticed yet.
    fn break_connection(&mut self) {
        self.breaks += 1;
        self.to_worker.0.clear();
        self.to_server.0.clear();
        (self.is_open, self.is_welcome) = (false, false);
        if self.rng.bool() {
            self.server.handle_disconnect(self.now);
        }
        // Frames that both sides write meanwhile are lost, or wait.
        for _ in 0..self.rng.u8(..4) {
            self.now += Duration::from_millis(self.rng.u64(..40));
            self.pump();
        }
        self.is_open = true;
        let hello = Hello::read(hello_frame("one", (None, self.worker.received()), "redeliver")).unwrap();
        self.server.handle_rejoin(&hello, 1, self.now);
    }

    /// Both sides receive what has arrived, handle it, and transmit.
    fn pump(&mut self) {
        self.server.handle_timeout(self.now);
        while let Some(frame) = self.to_server.pop(self.now) {
            self.server.handle_frame(frame, self.now);
            while let Some(event) = self.server.poll_event() {
                match event {
                    Event::Entry(WorkerEntry::Send { handle, messages, .. }) => {
                        self.to_clients.handle(handle, &messages);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        while self.now >= self.busy_until
            && let Some(frame) = self.to_worker.pop(self.now)
        {
            self.worker_frame(frame);
        }
        while let Some(transmit) = self.server.poll_transmit(self.now) {
            match transmit {
                Transmit::Frame(frame) => {
                    check_frame::<ServerEntry>(&frame);
                    let at = self.arrival();
                    if self.is_open {
                        self.to_worker.push(frame.to_bytes(), at);
                    }
                }
                Transmit::Ping => self.server.handle_pong(self.now),
                Transmit::Close => panic!("the server closes the connection"),
            }
        }
        while self.is_welcome
            && let Some(frame) = self.worker.poll_transmit(self.now)
        {
            check_frame::<WorkerEntry>(&frame);
            let at = self.arrival();
            self.to_server.push(frame.to_bytes(), at);
        }
        let bound = LinkOptions::default().window_bytes + MESSAGE_BYTES_MAX + 40 * STEPS as usize;
        assert!(self.server.unacknowledged_bytes() <= bound, "{}", self.server.unacknowledged_bytes());
    }

    fn worker_frame(&mut self, frame: Bytes) {
        if !self.is_welcome {
            let Some(Ok(ServerEntry::Welcome { welcome })) = Received::new(frame).unwrap().next() else {
                panic!("WELCOME is the first frame")
            };
            let welcome: serde_json::Value = serde_json::from_str(welcome.as_str()).unwrap();
            let received = welcome["received"].as_u64().unwrap() as u32;
            assert_eq!(welcome["resumed"].as_bool().unwrap(), self.breaks > 0);
            self.worker.reconnect(received, self.now).unwrap();
            self.is_welcome = true;
            return;
        }
        self.worker.handle_frame(frame, self.now).unwrap();
        while let Some(entry) = self.worker.poll_entry().unwrap() {
            match entry {
                ServerEntry::Message { handle, messages } => self.to_application.handle(handle, &messages),
                ServerEntry::Pressure { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A frame of more than 64 KiB has one entry.
fn check_frame<E: Entry>(frame: &Frame) {
    let entries = Received::<E>::new(frame.to_bytes()).unwrap().map(Result::unwrap).count();
    assert!(frame.len() <= FRAME_BYTES || entries == 1, "{} bytes, {entries} entries", frame.len());
}

fn run(seed: u64) -> u32 {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step();
    }
    if seed.is_multiple_of(3) {
        crash(world);
        return 0;
    }
    // All arrives, and is acknowledged.
    for _ in 0..60 {
        world.now += Duration::from_millis(5);
        world.pump();
    }
    for flow in [&world.to_clients, &world.to_application] {
        assert_eq!(flow.written, flow.handled);
    }
    assert_eq!((world.server.unacknowledged_bytes(), world.worker.unacknowledged_bytes()), (0, 0));
    assert_eq!(world.worker.poll_timeout(), None);
    world.breaks
}

/// The worker crashes. Messages that it hasn't handled are redelivered, in order and without a gap.
fn crash(mut world: World) {
    world.server.handle_disconnect(world.now);
    world.now += LinkOptions::default().rejoin;
    world.server.handle_timeout(world.now);
    assert_eq!(world.server.poll_event(), Some(Event::Ended(End::Lost)));
    let Flow { written, handled } = &world.to_application;
    let mut redelivered: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for (handle, messages) in world.server.aftermath().redelivered {
        redelivered.entry(handle.0).or_default().push(number_in(&messages[0]));
    }
    for (handle, last) in written {
        let numbers = redelivered.remove(handle).unwrap_or_default();
        let first = numbers.first().copied().unwrap_or(last + 1);
        assert!(first <= handled.get(handle).unwrap_or(&0) + 1, "session {handle}: {first} of {last}");
        assert!(numbers.into_iter().eq(first..=*last), "session {handle}");
    }
    assert!(redelivered.is_empty());
}

#[test]
fn nothing_is_lost_repeated_or_reordered() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("STENTOR_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("STENTOR_SEEDS").unwrap_or(SEEDS),
    };
    let mut breaks = 0;
    for seed in seeds.clone() {
        let result = std::panic::catch_unwind(|| run(seed));
        breaks += result.unwrap_or_else(|panic| {
            println!("replay with STENTOR_SEED={seed}");
            std::panic::resume_unwind(panic)
        });
    }
    assert!(seeds.end - seeds.start < 100 || breaks > 100, "{breaks} broken connections");
}
