//! Measures the cost of rooms in the hub: the allocated bytes of a room with one subscription, and the time
//! to join and leave a room without other members.
//!
//! - *memory*: sessions with 2,000 different rooms each.
//! - *join and leave*: one session leaves all of its 2,000 rooms in random order and joins them again.
//! - *one of 2,000*: the session leaves one of its rooms and joins it again.
//!
//! `cargo bench -p stentor-hub --bench rooms`

#![allow(clippy::print_stdout, reason = "the benchmark prints its measurements")]

use cap::Cap;
use std::alloc::System;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use stentor_hub::{Encoder, FormatId, Hub, Options, Policy, Publication, Room, SessionId, Topic};

#[global_allocator]
static ALLOCATED: Cap<System> = Cap::new(System, usize::MAX);

const ROOMS_OF_A_SESSION: usize = 2_000;

struct Nothing;

impl Encoder for Nothing {
    type Frame = Arc<[u8]>;

    fn encode(&self, _format: FormatId, _publication: &Publication<Self::Frame>) -> Option<Self::Frame> {
        None
    }

    fn len(frame: &Self::Frame) -> usize {
        frame.len()
    }
}

fn hub() -> Hub<Nothing> {
    Hub::new(Options { topics_max: usize::MAX, subscriptions_max: 10_000, ..Options::default() }, Nothing)
}

fn room(n: usize) -> Topic {
    Topic::from(Room::plain(&format!("user:{n}")).expect("a short name"))
}

fn join(hub: &mut Hub<Nothing>, session: SessionId, topic: &Topic) {
    hub.handle_subscribe(session, topic, Policy::Queue, None).expect("within the limits");
}

fn memory(rooms: usize) {
    let mut hub = hub();
    let before = ALLOCATED.allocated();
    for first in (0..rooms).step_by(ROOMS_OF_A_SESSION) {
        let session = hub.handle_open(FormatId(0), 0);
        for n in first..first + ROOMS_OF_A_SESSION {
            join(&mut hub, session, &room(n));
        }
    }
    let each = (ALLOCATED.allocated() - before) as f64 / rooms as f64;
    let charged = hub.footprint();
    let charged = (charged.sessions + charged.subscriptions + charged.topics) as f64 / rooms as f64;
    println!("{rooms:>9} rooms: {each:.0} B for a room and its subscription; {charged:.0} B are charged");
}

fn churn() {
    let mut hub = hub();
    let session = hub.handle_open(FormatId(0), 0);
    let mut topics: Vec<Topic> = (0..ROOMS_OF_A_SESSION).map(room).collect();
    topics.iter().for_each(|topic| join(&mut hub, session, topic));
    let mut rng = fastrand::Rng::with_seed(1);
    let (mut all, mut one) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        rng.shuffle(&mut topics);
        let began = Instant::now();
        for topic in &topics {
            black_box(hub.handle_unsubscribe(session, topic));
        }
        topics.iter().for_each(|topic| join(&mut hub, session, topic));
        all.push(began.elapsed().as_nanos() as f64 / ROOMS_OF_A_SESSION as f64);
        let began = Instant::now();
        for topic in &topics {
            black_box(hub.handle_unsubscribe(session, topic));
            join(&mut hub, session, topic);
        }
        one.push(began.elapsed().as_nanos() as f64 / ROOMS_OF_A_SESSION as f64);
    }
    for (name, mut ns) in [("all of them", all), ("one of 2,000", one)] {
        ns.sort_unstable_by(f64::total_cmp);
        let median = ns[ns.len() / 2];
        println!("leave and join {name}: {median:.0} ns, {:.2} million a second", 1e3 / median);
    }
}

fn main() {
    for rooms in [100_000, 900_000, 1_000_000] {
        memory(rooms);
    }
    churn();
}
