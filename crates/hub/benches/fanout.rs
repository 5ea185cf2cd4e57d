//! Measures the hub's own cost per delivery: one publication to many sessions with empty outboxes, then
//! `poll_ready`, `take` and `handle_sent` for each, as edge does when the kernel accepts all bytes at once.
//! Prints the median of several rounds, in nanoseconds per delivery.
//!
//! The `recovery` rows also keep deliveries in the recovery log.
//!
//! Members are in random order, as after many joins and leaves. In the last rows two cores deliver the same
//! publication at the same time, each to that many sessions, and compete for shared cache lines: once with
//! clones of one frame counted in one place, once with a count per core ([`Encoder::per_core`]).
//!
//! `cargo bench -p stentor-hub --bench fanout`

#![allow(clippy::print_stdout, reason = "the benchmark prints its measurements")]

use bytes::Bytes;
use std::hint::black_box;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use stentor_hub::{
    Body, Data, Dispatch, Document, Emit, Encoder, FeedState, FormatId, Hub, Key, Options, Policy,
    Publication, RecoveryLimits, Room, Topic,
};

/// An encoder whose frames are references to shared bytes, as in edge. Each reference has two steps, so that
/// each core can have an outer count of its own.
struct Shared<const PER_CORE: bool>;

type Frame = Arc<Arc<[u8]>>;

impl<const PER_CORE: bool> Encoder for Shared<PER_CORE> {
    type Frame = Frame;

    fn encode(&self, _format: FormatId, publication: &Publication<Frame>) -> Option<Frame> {
        let bytes = match publication.body() {
            Body::Message {
                data: Data::Json(b) | Data::Text(b) | Data::Binary(b) | Data::Arguments { json: b, .. },
                ..
            } => &b[..],
            Body::Snapshot { document, .. } => &document.body[..],
            Body::Delta { patch, .. } => &patch[..],
            Body::State { reason, .. } => reason.as_bytes(),
            Body::Presence { notice, .. } => &notice[..],
        };
        Some(Arc::new(bytes.into()))
    }

    fn len(frame: &Frame) -> usize {
        frame.len()
    }

    fn per_core(frame: &Frame) -> Frame {
        if PER_CORE { Arc::new(Arc::clone(frame)) } else { frame.clone() }
    }
}

/// Makes a shard with this many subscribers in random order.
fn shard<const PER_CORE: bool>(
    core: usize,
    cores: usize,
    sessions: usize,
    topic: &Topic,
    policy: Policy,
    recovery: Option<RecoveryLimits>,
) -> Hub<Shared<PER_CORE>> {
    let mut hub = Hub::new(Options { core, cores, recovery, ..Options::default() }, Shared);
    let mut ids: Vec<_> = (0..sessions).map(|n| hub.handle_open(FormatId(0), n as u64)).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut ids);
    for id in ids {
        hub.handle_subscribe(id, topic, policy, None).expect("within the limits");
    }
    hub
}

/// Takes all pending deliveries, as edge does, and returns their number.
fn drain<E: Encoder>(hub: &mut Hub<E>, frames: &mut Vec<E::Frame>) -> usize {
    let mut taken = 0;
    while let Some((session, tag)) = hub.poll_ready() {
        hub.take(session, 64 * 1024, 64, |_, frame| frames.push(frame.clone()));
        taken += frames.len();
        // The driver owns the frames until the kernel has accepted them, which takes no time here.
        black_box((&frames, tag));
        frames.clear();
        hub.handle_sent(session);
    }
    taken
}

fn data(round: usize) -> Bytes {
    Bytes::from(format!("{{\"round\":{round},\"padding\":\"{}\"}}", "x".repeat(900)))
}

fn rounds(sessions: usize) -> usize {
    (2_000_000 / sessions).clamp(15, 500)
}

fn median(mut ns: Vec<f64>) -> f64 {
    ns.sort_unstable_by(f64::total_cmp);
    ns[ns.len() / 2]
}

fn one_core(sessions: usize, topic: &Topic, policy: Policy, recovery: Option<RecoveryLimits>) {
    let mut hub = shard::<false>(0, 1, sessions, topic, policy, recovery);
    let mut frames = Vec::new();
    let (mut fan_out, mut drained) = (Vec::new(), Vec::new());
    for round in 0..rounds(sessions) {
        let data = data(round);
        let began = Instant::now();
        match topic {
            Topic::Room(room) => hub.handle_publish(began, room, None, Data::Json(data), Emit::default()),
            Topic::Feed(key) => {
                let document = Document { body: data, json: true, content_type: "application/json".into() };
                hub.handle_document(key, FeedState::Live, document, None);
            }
            Topic::Presence(_) => unreachable!("the benchmark has none"),
        }
        fan_out.push(began.elapsed().as_nanos() as f64 / sessions as f64);
        let began = Instant::now();
        assert_eq!(drain(&mut hub, &mut frames), sessions);
        drained.push(began.elapsed().as_nanos() as f64 / sessions as f64);
    }
    assert!(hub.counters().balanced());
    let (fan_out, drained) = (median(fan_out), median(drained));
    println!(
        "1 core,  {sessions:>6} sessions, {:<10} {:>6.1} ns per delivery: fan-out {fan_out:.1}, drain {drained:.1}",
        if recovery.is_some() { "recovery:".to_owned() } else { format!("{policy:?}:") },
        fan_out + drained
    );
}

fn two_cores<const PER_CORE: bool>(sessions: usize, room: &Room) {
    let topic = Topic::from(room.clone());
    let rounds = rounds(sessions);
    let start = Barrier::new(2);
    let (to_other, from_one) = mpsc::channel::<Dispatch<Frame>>();
    let mut one = shard::<PER_CORE>(0, 2, sessions, &topic, Policy::Queue, None);
    let mut other = shard::<PER_CORE>(1, 2, sessions, &topic, Policy::Queue, None);
    let now = Instant::now();
    while let Some(dispatch) = other.outgoing(0).pop_front() {
        one.handle_dispatch(now, 1, dispatch);
    }
    let start = &start;
    let ns = thread::scope(|scope| {
        scope.spawn(move || {
            let mut frames = Vec::new();
            for _ in 0..rounds {
                start.wait();
                let dispatch = from_one.recv().expect("one per round");
                other.handle_dispatch(now, 0, dispatch);
                drain(&mut other, &mut frames);
                start.wait();
            }
        });
        let mut frames = Vec::new();
        let mut ns = Vec::new();
        for round in 0..rounds {
            let data = data(round);
            one.outgoing(1).clear();
            start.wait();
            let began = Instant::now();
            one.handle_publish(now, room, None, Data::Json(data), Emit::default());
            while let Some(dispatch) = one.outgoing(1).pop_front() {
                to_other.send(dispatch).expect("it listens");
            }
            drain(&mut one, &mut frames);
            ns.push(began.elapsed().as_nanos() as f64 / sessions as f64);
            start.wait();
        }
        ns
    });
    let counted = if PER_CORE { "per core" } else { "in one place" };
    println!(
        "2 cores, {sessions:>6} sessions, Queue:     {:>6.1} ns per delivery, frames counted {counted}",
        median(ns)
    );
}

fn main() {
    let room = Room::plain("chat").expect("a name");
    let feed = Topic::from(Key::parse("scores/1").expect("a key"));
    let recovery = RecoveryLimits { bytes_max: 16 << 20, age_max: Duration::from_secs(120) };
    for sessions in [2_000, 15_000, 100_000] {
        one_core(sessions, &room.clone().into(), Policy::Queue, None);
        one_core(sessions, &room.clone().into(), Policy::Queue, Some(recovery));
        one_core(sessions, &room.clone().into(), Policy::DropOldest, None);
        one_core(sessions, &feed, Policy::Latest, None);
    }
    for sessions in [2_000, 15_000, 100_000] {
        two_cores::<false>(sessions, &room);
        two_cores::<true>(sessions, &room);
    }
}
