//! Deliveries on a virtual clock.

use super::*;

const LIMITS: QueueLimits = QueueLimits { waiting_max: 2_000, waiting_bytes_max: 100_000, batch_max: 100 };

/// A queue, a clock, and what the backend has taken.
struct Rig {
    queue: Queue,
    begun: Instant,
    now: Instant,
    taken: Vec<u64>,
    requests: usize,
    dropped: u64,
}

impl Rig {
    /// With notices about these subjects.
    fn new(subjects: impl IntoIterator<Item = u64>) -> Self {
        let begun = Instant::now();
        let queue = Queue::new(LIMITS);
        let mut rig = Self { queue, begun, now: begun, taken: Vec::new(), requests: 0, dropped: 0 };
        rig.push(subjects);
        rig
    }

    fn push(&mut self, subjects: impl IntoIterator<Item = u64>) {
        for subject in subjects {
            assert!(self.queue.push(subject, true, |number| number.to_string().into_bytes()));
        }
    }

    fn seconds(&self) -> f64 {
        self.now.duration_since(self.begun).as_secs_f64()
    }

    /// Sends requests until this second. `backend` gets the time in seconds and the numbers of notices.
    fn run(&mut self, until: f64, mut backend: impl FnMut(f64, &[u64]) -> Result<(), Cause>) {
        let until = self.begun + Duration::from_secs_f64(until);
        while self.now < until {
            let number = |text: &&Vec<u8>| String::from_utf8_lossy(text).parse().unwrap();
            let Some(numbers) = self.queue.poll_request(self.now) else {
                let at = self.queue.poll_timeout(self.now);
                assert!(at.is_none_or(|at| at > self.now), "it would spin");
                self.now = at.unwrap_or(until).min(until);
                continue;
            };
            let numbers: Vec<u64> = numbers.iter().map(number).collect();
            self.requests += 1;
            self.now += Duration::from_millis(1);
            let outcome = backend(self.seconds(), &numbers);
            if outcome.is_ok() {
                self.taken.extend(numbers);
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
        // While it lasted: 0.5 s, 1 s … 30 s, 30 s. The batches grow again afterwards.
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
    // Number 4 fails, and 6 is about the same subject.
    let mut rig = Rig::new([0, 1, 2, 7, 3, 7, 4]);
    let mut failures = 0;
    let mut poison = |at: f64, numbers: &[u64]| {
        failures += usize::from(numbers == [4]);
        if numbers.contains(&4) && at < 1_000.0 { Err(Cause::Status) } else { Ok(()) }
    };
    rig.run(20.0, &mut poison);
    assert_eq!((rig.taken.clone(), rig.dropped), (vec![1, 2, 3, 5, 7], 0));
    // No other notice comes.
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
}

#[test]
fn many_notices_in_a_row_that_fail_keep_others_for_two_minutes_at_most() {
    let mut rig = Rig::new(0..300);
    rig.run(120.0, |_, numbers| if numbers.iter().any(|n| *n <= 100) { Err(Cause::Status) } else { Ok(()) });
    rig.taken.sort_unstable();
    assert_eq!((rig.taken.clone(), rig.dropped), ((101..=300).collect(), 0));
    // Further notices are their witnesses.
    for second in 121..300 {
        rig.push([1_000]);
        rig.run(f64::from(second), |_, numbers| {
            if numbers.iter().any(|n| *n <= 100) { Err(Cause::Status) } else { Ok(()) }
        });
    }
    assert_eq!((rig.dropped, rig.queue.held()), (100, 0));
}

#[test]
fn what_is_left_is_sent_at_the_end_without_pauses() {
    let mut rig = Rig::new(0..3);
    rig.run(0.3, |_, _| Err(Cause::Connect));
    rig.queue.end();
    rig.run(0.4, |_, _| Ok(()));
    assert_eq!(rig.taken, [1, 2, 3]);
}

#[test]
fn the_queue_is_bounded_and_numbers_what_it_drops() {
    let limits = QueueLimits { waiting_max: 3, waiting_bytes_max: 100, batch_max: 9 };
    let mut queue = Queue::new(limits);
    let push = |queue: &mut Queue| queue.push(0, true, |number| number.to_string().into_bytes());
    assert_eq!([(); 5].map(|()| push(&mut queue)), [true, true, true, false, false]);
    assert_eq!(queue.poll_request(Instant::now()).unwrap().len(), 3);
    assert_eq!(queue.handle_outcome(Instant::now(), Ok(())), 0);
    assert!(push(&mut queue));
    assert_eq!(queue.poll_request(Instant::now()).unwrap(), [b"6"]);
    queue.handle_outcome(Instant::now(), Ok(()));
    assert!(!queue.push(0, false, |_| Vec::new()), "there is no memory");
    assert!(!queue.push(0, true, |_| vec![0; 101]) && queue.held_bytes() == 0);
}
