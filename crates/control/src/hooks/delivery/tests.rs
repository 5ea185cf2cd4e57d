//! Tests of deliveries and resyncs on a virtual clock.

use super::*;
use fastrand::Rng;
use serde_json::{Value, from_slice, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const LIMITS: QueueLimits =
    QueueLimits { waiting_max: 2_000, waiting_bytes_max: 100_000, batch_max: 100, has_resync: false };

/// A queue, its clock, and the numbers of the notices that the backend has accepted.
struct Rig {
    queue: Queue,
    begun: Instant,
    now: Instant,
    taken: Vec<u64>,
    requests: usize,
    dropped: u64,
    pushed: u64,
    sequences: Vec<u64>,
}

impl Rig {
    /// Makes a rig whose queue has one notice about each of these subjects, in this order.
    fn new(subjects: impl IntoIterator<Item = u64>) -> Self {
        let begun = Instant::now();
        let queue = Queue::new(LIMITS);
        let mut rig = Self {
            queue,
            begun,
            now: begun,
            taken: Vec::new(),
            requests: 0,
            dropped: 0,
            pushed: 0,
            sequences: Vec::new(),
        };
        rig.push(subjects);
        rig
    }

    fn push(&mut self, subjects: impl IntoIterator<Item = u64>) {
        for subject in subjects {
            self.pushed += 1;
            assert!(self.queue.push(subject, true, || format!("{{\"n\":{}}}", self.pushed).into_bytes()));
        }
    }

    fn seconds(&self) -> f64 {
        self.now.duration_since(self.begun).as_secs_f64()
    }

    /// Sends due requests until `until`, in seconds since the start. `backend` receives the time in seconds
    /// and the numbers of the request's notices.
    fn run(&mut self, until: f64, mut backend: impl FnMut(f64, &[u64]) -> Result<(), Cause>) {
        let until = self.begun + Duration::from_secs_f64(until);
        while self.now < until {
            let Some(next) = self.queue.poll_request(self.now) else {
                let at = self.queue.poll_timeout(self.now);
                assert!(at.is_none_or(|at| at > self.now), "it would spin");
                self.now = at.unwrap_or(until).min(until);
                continue;
            };
            let Next::Send(texts) = next else { panic!("no resync was asked for") };
            let notices: Vec<Value> = texts.iter().map(|text| from_slice(text).unwrap()).collect();
            let numbers: Vec<u64> = notices.iter().map(|notice| notice["n"].as_u64().unwrap()).collect();
            self.requests += 1;
            self.now += Duration::from_millis(1);
            let outcome = backend(self.seconds(), &numbers);
            if outcome.is_ok() {
                self.taken.extend(numbers);
                self.sequences.extend(notices.iter().map(|notice| notice["sequence"].as_u64().unwrap()));
            }
            self.dropped += self.queue.handle_outcome(self.now, outcome);
        }
    }
}

#[test]
fn an_outage_drops_nothing_and_is_probed_with_one_notice() {
    for (cause, requests_max) in [(Cause::Status, 22), (Cause::Unavailable, 13), (Cause::Timeout, 22)] {
        let mut rig = Rig::new(0..1_000);
        let mut last = 0;
        rig.run(240.0, |at, numbers| {
            last = numbers.len();
            if at < 180.0 { Err(cause) } else { Ok(()) }
        });
        assert_eq!((rig.taken.clone(), rig.dropped), ((1..=1_000).collect(), 0), "{cause:?}");
        // The delays between attempts are 0.5 s, 1 s … 30 s, 30 s. After the outage, the batches grow again.
        assert!(rig.requests <= requests_max + 1 + 14, "{cause:?}: {}", rig.requests);
        assert_eq!(rig.queue.held_bytes(), 0);
    }
}

#[test]
fn the_second_failure_in_a_row_is_an_outage() {
    let mut rig = Rig::new(0..1_000);
    let mut sizes = Vec::new();
    rig.run(100.0, |at, numbers| {
        sizes.push((numbers.len(), at.floor()));
        if sizes.len() <= 5 { Err(Cause::Connect) } else { Ok(()) }
    });
    let expect =
        [(100, 0.0), (50, 0.0), (1, 1.0), (1, 3.0), (1, 7.0), (1, 15.0), (2, 15.0), (4, 15.0), (8, 15.0)];
    assert_eq!(sizes[..9], expect);
}

#[test]
fn a_notice_is_dropped_only_if_it_fails_for_a_minute_while_others_succeed() {
    // Notice 4 fails. Notice 6 is about the same subject, so it waits behind 4.
    let mut rig = Rig::new([0, 1, 2, 7, 3, 7, 4]);
    let mut failures = 0;
    let mut poison = |at: f64, numbers: &[u64]| {
        failures += usize::from(numbers == [4]);
        if numbers.contains(&4) && at < 1_000.0 { Err(Cause::Status) } else { Ok(()) }
    };
    rig.run(20.0, &mut poison);
    assert_eq!((rig.taken.clone(), rig.dropped), (vec![1, 2, 3, 5, 7], 0));
    // Without further notices, no success shows that the backend works, so notice 4 is kept.
    rig.run(200.0, &mut poison);
    assert_eq!(rig.dropped, 0);
    for until in [216.0, 232.0, 248.0] {
        assert_eq!(rig.dropped, 0, "{until}");
        rig.push([9]);
        rig.run(until, &mut poison);
    }
    assert_eq!((rig.taken.clone(), rig.dropped), (vec![1, 2, 3, 5, 7, 8, 9, 10, 6], 1));
    assert!(failures >= 5 && rig.queue.held_bytes() == 0);
}

#[test]
fn a_notice_that_was_set_aside_arrives_before_others_about_its_subject() {
    let mut rig = Rig::new([7, 1, 7, 2]);
    rig.run(
        100.0,
        |at, numbers| if numbers.contains(&1) && at < 20.0 { Err(Cause::Invalid) } else { Ok(()) },
    );
    assert_eq!((rig.taken, rig.dropped), (vec![2, 4, 1, 3], 0));
    assert_eq!(rig.sequences, [2, 4, 1, 3], "the numbers that they had in the first request");
}

#[test]
fn many_failing_notices_delay_others_by_two_minutes_at_most() {
    let mut rig = Rig::new(0..300);
    rig.run(120.0, |_, numbers| if numbers.iter().any(|n| *n <= 100) { Err(Cause::Status) } else { Ok(()) });
    rig.taken.sort_unstable();
    assert_eq!((rig.taken.clone(), rig.dropped), ((101..=300).collect(), 0));
    // Further notices succeed, which shows that the backend works.
    for second in 121..300 {
        rig.push([1_000]);
        rig.run(f64::from(second), |_, numbers| {
            if numbers.iter().any(|n| *n <= 100) { Err(Cause::Status) } else { Ok(()) }
        });
    }
    assert_eq!((rig.dropped, rig.queue.held()), (100, 0));
}

#[test]
fn remaining_notices_are_sent_at_the_end_without_pauses() {
    let mut rig = Rig::new(0..3);
    rig.run(0.3, |_, _| Err(Cause::Connect));
    rig.queue.end();
    rig.run(0.4, |_, _| Ok(()));
    assert_eq!(rig.taken, [1, 2, 3]);
}

#[test]
fn the_queue_is_bounded_and_numbers_dropped_notices() {
    let limits = QueueLimits { waiting_max: 3, waiting_bytes_max: 100, batch_max: 9, ..LIMITS };
    let (mut queue, now) = (Queue::new(limits), Instant::now());
    let push = |queue: &mut Queue| queue.push(0, true, || b"{\"a\":1}".to_vec());
    let numbers = |queue: &mut Queue| {
        let Some(Next::Send(texts)) = queue.poll_request(now) else { return Vec::new() };
        queue.handle_outcome(now, Ok(()));
        texts.iter().map(|text| from_slice::<Value>(text).unwrap()["sequence"].clone()).collect()
    };
    assert_eq!([(); 5].map(|()| push(&mut queue)), [true, true, true, false, false]);
    assert_eq!(numbers(&mut queue), [1, 2, 3]);
    assert!(push(&mut queue) && !queue.push(0, false, Vec::new), "there is no memory");
    assert!(push(&mut queue) && !queue.push(0, true, || vec![0; 101]));
    // Notice 7 is missing, so notices 6 and 8 are sent in separate requests.
    assert_eq!((numbers(&mut queue), numbers(&mut queue)), (vec![json!(6)], vec![json!(8)]));
    assert_eq!((numbers(&mut queue).len(), queue.held_bytes()), (0, 0));
}

/// The rooms of a node, and a backend's list of them.
struct Rooms {
    queue: Queue,
    /// The occupied rooms by the sequence number of their notice.
    occupied: BTreeMap<u64, u64>,
    last: u64,
    /// The backend's list.
    listed: BTreeSet<u64>,
    /// The sequence numbers that the backend has received.
    seen: HashSet<u64>,
    /// Id of the resync that is in progress.
    pass: Option<u64>,
    passes: usize,
    pages: usize,
}

impl Rooms {
    fn new(waiting_max: usize) -> Self {
        let limits = QueueLimits { waiting_max, batch_max: 7, has_resync: true, ..LIMITS };
        Self {
            queue: Queue::new(limits),
            occupied: BTreeMap::new(),
            last: 0,
            listed: BTreeSet::new(),
            seen: HashSet::new(),
            pass: None,
            passes: 0,
            pages: 0,
        }
    }

    /// Gives a room its first subscriber, or removes its last one.
    fn toggle(&mut self, room: u64) {
        let number = self.occupied.iter().find(|(_, other)| **other == room).map(|(number, _)| *number);
        let kind = match number {
            Some(number) => {
                self.occupied.remove(&number);
                "vacated"
            }
            None => {
                self.last += 1;
                self.occupied.insert(self.last, room);
                "occupied"
            }
        };
        self.queue.push(room, true, || json!({"notice": kind, "room": room}).to_string().into_bytes());
    }

    fn make_page(&mut self, wanted: &PageRequest) {
        let until = wanted.until.unwrap_or(self.last);
        let rooms = self
            .occupied
            .range(wanted.after.min(until)..=until)
            .filter(|(number, _)| **number > wanted.after);
        let rooms: Vec<_> =
            rooms.filter(|(number, _)| !wanted.left_out.contains(number)).take(wanted.topics_max).collect();
        let end = rooms.last().map_or(until, |(number, _)| **number);
        let listed: Vec<_> = rooms.iter().map(|(_, room)| json!({"room": room})).collect();
        let (id, page, topics) = (wanted.id, wanted.page, rooms.len());
        let text = json!({"id": id, "last": topics == 0, "notice": "resync", "page": page, "rooms": listed});
        self.pages += 1;
        self.queue.set_page(Page { end, until, topics, text: text.to_string().into_bytes() });
    }

    fn take(&mut self, notice: &Value) {
        if !self.seen.insert(notice["sequence"].as_u64().unwrap()) {
            return;
        }
        let room = |value: &Value| value["room"].as_u64().unwrap();
        match notice["notice"].as_str().unwrap() {
            "occupied" => _ = self.listed.insert(room(notice)),
            "vacated" => _ = self.listed.remove(&room(notice)),
            _ => {
                if notice["page"] == 0 {
                    self.listed.clear();
                    self.passes += 1;
                }
                self.listed.extend(notice["rooms"].as_array().unwrap().iter().map(room));
                self.pass = notice["id"].as_u64().filter(|_| notice["last"] == false);
            }
        }
    }

    /// Sends one due request. `fails` receives its rooms, and returns the failure or `None`. Returns `false`
    /// if no request is due.
    fn step(&mut self, now: Instant, fails: impl Fn(&[u64]) -> Option<Cause>) -> bool {
        let texts = match self.queue.poll_request(now) {
            None => return false,
            Some(Next::MakePage(wanted)) => {
                self.make_page(&wanted);
                return true;
            }
            Some(Next::Send(texts)) => texts,
        };
        let notices: Vec<Value> = texts.iter().map(|text| from_slice(text).unwrap()).collect();
        let places = notices.iter().flat_map(|notice| notice["rooms"].as_array().into_iter().flatten());
        let rooms: Vec<u64> = places.chain(&notices).filter_map(|place| place["room"].as_u64()).collect();
        let failed = fails(&rooms);
        if failed.is_none() {
            notices.iter().for_each(|notice| self.take(notice));
        }
        self.queue.handle_outcome(now, failed.map_or(Ok(()), Err));
        true
    }

    fn rooms(&self) -> BTreeSet<u64> {
        self.occupied.values().copied().collect()
    }
}

/// Runs a backend that is down for three minutes and then fails repeatedly. Requests with the room `poison`
/// always fail.
fn run_resync(seed: u64, poison: Option<u64>) {
    let (mut rooms, mut rng) = (Rooms::new(20), Rng::with_seed(seed));
    let begun = Instant::now();
    let cause = [Cause::Status, Cause::Unavailable, Cause::Timeout][rng.usize(..3)];
    let period = rng.u64(20..300);
    for tenth in 0..8_000 {
        let now = begun + Duration::from_millis(100 * tenth);
        let is_away = (200..2_000).contains(&tenth) || tenth < 4_500 && tenth / period % 2 == 1;
        if rng.u8(..4) == 0 && tenth < 4_000 {
            rooms.toggle(rng.u64(..40));
        }
        let fails = |failing: &[u64]| {
            let is_poison = poison.is_some_and(|poison| failing.contains(&poison));
            is_away.then_some(cause).or(is_poison.then_some(Cause::Status))
        };
        for _ in 0..rng.usize(..5) {
            rooms.step(now, fails);
        }
    }
    let (mut expect, mut found) = (rooms.rooms(), rooms.listed.clone());
    if let Some(poison) = poison {
        expect.remove(&poison);
        found.remove(&poison);
    }
    assert_eq!(found, expect, "seed {seed}, {cause:?}, poison {poison:?}");
    assert!(rooms.passes > 0 && (poison.is_some() || rooms.queue.held() == 0), "seed {seed}");
}

#[test]
fn after_a_gap_the_backend_knows_the_occupied_rooms() {
    for seed in 0..60 {
        run_resync(seed, None);
        run_resync(seed, Some(7));
    }
}

#[test]
fn other_notices_wait_for_the_last_page_and_pages_are_small() {
    let (mut rooms, now) = (Rooms::new(20), Instant::now());
    (0..20).for_each(|room| rooms.toggle(room));
    while rooms.step(now, |_| None) {}
    assert_eq!((rooms.passes, rooms.listed.len()), (0, 20));
    (0..25).for_each(|room| rooms.toggle(room));
    // Rooms 0 to 19 are vacated now. The notices of rooms 20 to 24 were dropped.
    while rooms.passes == 0 {
        assert!(rooms.step(now, |_| None));
    }
    rooms.toggle(30);
    while rooms.pass.is_some() {
        assert!(rooms.step(now, |rooms| rooms.contains(&30).then(|| panic!("it waits"))));
    }
    assert_eq!(rooms.listed, (20..25).collect());
    while rooms.step(now, |_| None) {}
    assert_eq!((rooms.rooms(), rooms.pages), (rooms.listed.clone(), 2));
}

#[test]
fn a_failing_room_is_skipped_by_resyncs() {
    // Requests with one of four adjacent rooms always fail. The backend still receives all other rooms.
    let (mut rooms, begun) = (Rooms::new(20), Instant::now());
    (0..30).for_each(|room| rooms.toggle(room));
    let fails = |rooms: &[u64]| rooms.iter().any(|room| (10..14).contains(room)).then_some(Cause::Status);
    for second in 0..600 {
        while rooms.step(begun + Duration::from_secs(second), fails) {}
    }
    let expect = (0..10).chain(14..30).collect();
    assert_eq!((&rooms.listed, rooms.queue.poll_timeout(begun)), (&expect, None));
    assert!(rooms.queue.held() == 0 && rooms.passes <= 25, "{} passes", rooms.passes);
}

/// The oldest notice fails, and the one behind it was dropped.
#[test]
fn no_notice_overtakes_a_gap() {
    let mut rig = Rig::new([0]);
    assert!(!rig.queue.push(1, false, Vec::new));
    rig.push([2, 3]);
    let fails = |notices: &[u64]| if notices.contains(&1) { Err(Cause::Status) } else { Ok(()) };
    rig.run(60.0, |_, notices| fails(notices));
    rig.sequences.sort_unstable();
    assert_eq!(rig.sequences, [3, 4]);

    let (mut rooms, begun) = (Rooms::new(20), Instant::now());
    rooms.toggle(7);
    rooms.last += 1;
    rooms.occupied.insert(rooms.last, 8);
    assert!(!rooms.queue.push(8, false, Vec::new));
    (9..12).for_each(|room| rooms.toggle(room));
    for tenth in 0..600 {
        let fails = |failing: &[u64]| failing.contains(&7).then_some(Cause::Status);
        rooms.step(begun + Duration::from_millis(100 * tenth), fails);
        assert!(rooms.passes > 0 || rooms.listed.is_empty(), "{:?} before the first page", rooms.listed);
    }
    assert_eq!((rooms.listed, rooms.queue.held()), ((8..12).collect(), 1));
}

#[test]
fn a_failing_notice_does_not_delay_the_resync_after_a_gap() {
    let (mut rooms, begun) = (Rooms::new(1), Instant::now());
    // The queue has no space for the second notice.
    rooms.toggle(7);
    rooms.toggle(8);
    for tenth in 0..300 {
        let fails = |failing: &[u64]| failing.contains(&7).then_some(Cause::Status);
        rooms.step(begun + Duration::from_millis(100 * tenth), fails);
    }
    assert!(rooms.passes > 0 && rooms.listed.contains(&8), "{:?}", rooms.listed);
}
