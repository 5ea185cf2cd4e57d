//! Turns by address and session.

use super::*;
use std::collections::HashSet;

/// A client by its address and session.
type Peer = (u64, u64);

impl Source for Peer {
    fn source(&self) -> u64 {
        self.1
    }

    fn owner(&self) -> Owner {
        Owner::new(self.0, self.1)
    }
}

/// Answers all questions of a request but the bad ones. Returns who has asked them.
fn answer_except(
    batcher: &mut Batcher<Peer>,
    now: Instant,
    batch: &Batch,
    bad: impl Fn(u64) -> bool,
) -> Vec<Peer> {
    let answers = ids(&batch.questions).into_iter().filter(|id| !bad(*id)).map(|id| (id, ())).collect();
    batcher.handle_response(now, batch.number, Ok(answers)).into_iter().map(|(asker, _)| asker).collect()
}

#[test]
fn addresses_and_sessions_take_turns() {
    let now = Instant::now();
    let mut batcher = Batcher::new(LIMITS);
    // The first leaves alone.
    let peers = |list: &[Peer]| list.to_vec();
    ask(&mut batcher, now, [(1, 1)]);
    let first = batcher.poll_batch(now).unwrap();
    ask(&mut batcher, now, [(1, 1), (1, 1), (1, 1), (1, 1), (1, 1), (1, 2), (1, 2), (2, 3), (2, 3), (3, 4)]);
    answer_except(&mut batcher, now, &first, |_| false);
    let order: Vec<_> = batches(&mut batcher, now + LIMITS.gather)
        .iter()
        .map(|batch| answer_except(&mut batcher, now, batch, |_| false))
        .collect();
    let expected = [
        peers(&[(1, 1), (2, 3), (3, 4), (1, 2)]),
        peers(&[(2, 3), (1, 1), (1, 2), (1, 1)]),
        peers(&[(1, 1), (1, 1)]),
    ];
    assert_eq!(order, expected);
}

/// One address asks as much as it can with many sessions, some of whose questions fail. A client of another address is never
/// refused, and its question is in one of the next requests.
#[test]
fn a_flood_of_questions_delays_and_refuses_no_other_address() {
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let mut now = Instant::now();
        let mut batcher = Batcher::<Peer>::new(LIMITS);
        let mut in_flight = VecDeque::<Batch>::new();
        // Ids of the other client's questions, whether the last one waits, and requests that left before it.
        let (mut asked, mut waits, mut requests) = (HashSet::new(), false, 0);
        for _ in 0..200 {
            for _ in 0..random.usize(..20) {
                let (session, size) = (random.u64(1..30), random.usize(1..60));
                _ = batcher.ask(now, (1, session), |id| format!("{id:0size$}").into_bytes());
            }
            if !waits {
                let write = |id: u64| {
                    asked.insert(id);
                    id.to_string().into_bytes()
                };
                assert!(batcher.ask(now, (2, 100), write).is_ok(), "seed {seed}");
                (waits, requests) = (true, 0);
            }
            while let Some(batch) = batcher.poll_batch(now) {
                waits &= !ids(&batch.questions).iter().any(|id| asked.contains(id));
                requests += usize::from(waits);
                assert!(requests <= 2, "seed {seed}");
                in_flight.push_back(batch);
            }
            for (peer, cause) in batcher.take_failed() {
                assert_eq!((peer.0, cause), (1, Cause::QueueFull), "seed {seed}");
            }
            now += LIMITS.gather;
            while in_flight.len() > random.usize(..3)
                && let Some(batch) = in_flight.pop_front()
            {
                answer_except(&mut batcher, now, &batch, |id| id % 3 == 0 && !asked.contains(&id));
            }
        }
        assert!(!batcher.is_broken(), "seed {seed}");
    }
}

#[test]
fn the_longest_queue_is_refused_when_too_many_questions_wait() {
    let now = Instant::now();
    let full = |size: usize, count: usize| {
        let mut batcher = Batcher::<Peer>::new(LIMITS);
        for _ in 0..count {
            assert!(batcher.ask(now, (1, 1), |_| vec![0; size]).is_ok());
        }
        batcher
    };
    for (size, count) in [(1, LIMITS.waiting_max), (100, LIMITS.waiting_bytes_max / 100)] {
        let mut batcher = full(size, count);
        assert_eq!(batcher.ask(now, (1, 1), |_| vec![0; size]), Err(((1, 1), Cause::QueueFull)));
        // Another address, and another session of this address.
        for peer in [(2, 2), (1, 3)] {
            assert_eq!(batcher.ask(now, peer, |_| vec![0; size]), Ok(true));
            assert_eq!(batcher.take_failed(), [((1, 1), Cause::QueueFull)]);
            assert_eq!((batcher.waiting(), batcher.waiting_bytes()), (count, count * size));
        }
        // Too large for any queue.
        let too_large = vec![0; LIMITS.waiting_bytes_max + 1];
        assert_eq!(batcher.ask(now, (2, 2), |_| too_large), Err(((2, 2), Cause::QueueFull)));
    }
    // Of equal queues, the new one is refused.
    let mut batcher = Batcher::<Peer>::new(LIMITS);
    ask(&mut batcher, now, (0..LIMITS.waiting_max as u64).map(|n| (n, n)));
    assert_eq!(batcher.ask(now, (100, 100), |_| vec![0]), Err(((100, 100), Cause::QueueFull)));
}

/// A question that has waited for long doesn't shorten the time of others in its request.
#[test]
fn a_request_has_the_time_of_its_newest_question() {
    let now = Instant::now();
    let mut batcher = Batcher::<Peer>::new(Limits { requests_max: 1, ..LIMITS });
    ask(&mut batcher, now, [(1, 1)]);
    let first = batcher.poll_batch(now).unwrap();
    ask(&mut batcher, now, [(1, 1)]);
    let later = now + LIMITS.timeout - LIMITS.gather;
    ask(&mut batcher, later, [(2, 2)]);
    answer_except(&mut batcher, later, &first, |_| false);
    let both = batcher.poll_batch(later).unwrap();
    assert_eq!((both.questions.len(), both.deadline), (2, later + LIMITS.timeout));
}
