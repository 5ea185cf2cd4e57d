//! Tests of turns: questions are sent alternately for each address, and within an address for each session.

use super::*;
use crate::hooks::ports::{cache_key, granting};
use crate::hooks::{Asker, Client, HookAuthenticator, HookAuthorizer, HookOptions, Hooks};
use std::cell::Cell;
use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Waker};
use stentor_ports::{
    Access, Authentication, Authenticator, Credentials, Decision, LazyRooms, Ledger, Question, SessionRooms,
    SignatureWork,
};

/// A client: its address and its session.
type Peer = (u64, u64);

impl Source for Peer {
    fn source(&self) -> u64 {
        self.1
    }

    fn owner(&self) -> Owner {
        Owner::new(self.0, self.1)
    }

    fn ticket(&self) -> Ticket {
        Ticket::for_test(self.source())
    }
}

/// Answers all questions of a request except the bad ones. Returns their askers.
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
    // The first question is sent alone.
    let peers = |list: &[Peer]| list.to_vec();
    ask(&mut batcher, now, [(1, 1)]);
    let first = batcher.poll_batch(now).unwrap();
    ask(&mut batcher, now, [(1, 1), (1, 1), (1, 1), (1, 1), (1, 1), (1, 2), (1, 2), (2, 3), (2, 3), (3, 4)]);
    answer_except(&mut batcher, now, &first, |_| false);
    let order: Vec<_> = batches(&mut batcher, now + LIMITS.batch_delay)
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

/// An address asks as many questions as it can with many sessions, and some of them fail. A client of another
/// address is never refused, and its question is in one of the next requests.
#[test]
fn a_flood_of_questions_delays_and_refuses_no_other_address() {
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let mut now = Instant::now();
        let mut batcher = Batcher::<Peer>::new(LIMITS);
        let mut in_flight = VecDeque::<Batch>::new();
        // Ids of the other client's questions, `true` while its last question waits, and the number of
        // requests sent before that question.
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
            now += LIMITS.batch_delay;
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
        // The queue of the session is full. A client of another address and another session of this address
        // are accepted.
        for peer in [(2, 2), (1, 3)] {
            assert_eq!(batcher.ask(now, peer, |_| vec![0; size]), Ok(true));
            assert_eq!(batcher.take_failed(), [((1, 1), Cause::QueueFull)]);
            assert_eq!((batcher.waiting(), batcher.waiting_bytes()), (count, count * size));
        }
        // A question larger than a whole queue is refused.
        let too_large = vec![0; LIMITS.waiting_bytes_max + 1];
        assert_eq!(batcher.ask(now, (2, 2), |_| too_large), Err(((2, 2), Cause::QueueFull)));
    }
    // If all queues are equally long, the new question is refused.
    let mut batcher = Batcher::<Peer>::new(LIMITS);
    ask(&mut batcher, now, (0..LIMITS.waiting_max as u64).map(|n| (n, n)));
    assert_eq!(batcher.ask(now, (100, 100), |_| vec![0]), Err(((100, 100), Cause::QueueFull)));
}

/// The timeout of a request is that of its newest question, so an old question doesn't shorten the time of
/// the others.
#[test]
fn a_request_has_the_time_of_its_newest_question() {
    let now = Instant::now();
    let mut batcher = Batcher::<Peer>::new(Limits { requests_max: 1, ..LIMITS });
    ask(&mut batcher, now, [(1, 1)]);
    let first = batcher.poll_batch(now).unwrap();
    ask(&mut batcher, now, [(1, 1)]);
    let later = now + LIMITS.timeout - LIMITS.batch_delay;
    ask(&mut batcher, later, [(2, 2)]);
    answer_except(&mut batcher, later, &first, |_| false);
    let both = batcher.poll_batch(later).unwrap();
    assert_eq!((both.questions.len(), both.deadline), (2, later + LIMITS.timeout));
}

#[test]
fn questions_of_disconnected_clients_are_dropped() {
    let now = Instant::now();
    let mut batcher = Batcher::<Peer>::new(LIMITS);
    ask(&mut batcher, now, [(1, 1)]);
    let first = batcher.poll_batch(now).unwrap();
    assert!(!batcher.cancel(Ticket::for_test(1)), "it is in a request");
    ask(&mut batcher, now, (2..6).map(|n| (1, n)));
    for (session, is_dropped) in [(3, true), (3, false), (9, false)] {
        assert_eq!(batcher.cancel(Ticket::for_test(session)), is_dropped, "{session}");
    }
    assert_eq!((batcher.waiting(), batcher.waiting_bytes()), (3, 3));
    assert_eq!(answer_except(&mut batcher, now, &first, |_| false), [(1, 1)]);
    let batch = batcher.poll_batch(now).unwrap();
    assert_eq!(answer_except(&mut batcher, now, &batch, |_| false), [(1, 2), (1, 4), (1, 5)]);
    assert_eq!((batcher.waiting(), batcher.waiting_bytes(), batcher.take_failed()), (0, 0, vec![]));
}

/// A question and its cancellation reach the queue of the question's hook.
#[test]
fn ports_cancel_their_questions() {
    let ledger = Arc::new(Ledger::new(1 << 20));
    let options = HookOptions {
        name: "chat".into(),
        url: "http://127.0.0.1:1/".into(),
        on: vec![HookKind::Subscribe, HookKind::Connect],
        ..HookOptions::default()
    };
    let hooks = Hooks::new("n", &[options], &ledger).unwrap();
    let waiting = || hooks.hooks[0].batcher.with(|batcher| batcher.waiting());
    let topic = Topic::Room(room("lobby"));
    let authorizers: [Arc<dyn Authorizer>; 2] = [
        Arc::new(HookAuthorizer::new(None, hooks.clone())),
        granting(Arc::new(Anything), Vec::new(), hooks.clone()),
    ];
    let (ticket, answers) = (Ticket::for_test(1), nobody());
    let asking = Asking::new(ticket, &answers);
    let access = Access::Subscribe(&topic);
    for authorizer in authorizers {
        let question =
            Question { asking, session: None, rooms: LazyRooms::NONE, source: 1, identity: None, access };
        assert_eq!(HookAuthorizer::new(None, hooks.clone()).authorize(&question), Decision::Pending);
        assert_eq!(waiting(), 1);
        authorizer.cancel(ticket);
        assert_eq!((waiting(), ledger.bytes()), (0, 0));
    }
    let authenticator = HookAuthenticator::new(None, hooks.clone());
    let credentials = Credentials { user: None, token: None, client: ClientFacts::default(), session: None };
    let answer = authenticator.authenticate(asking, &credentials, &mut SignatureWork::new(Duration::ZERO));
    assert!(matches!(answer, Authentication::Pending));
    assert_eq!(waiting(), 1);
    authenticator.cancel(ticket);
    assert_eq!(waiting(), 0);
}

/// Verifies tokens for ever.
#[derive(Debug)]
struct Verification;

impl Authenticator for Verification {
    fn authenticate(&self, _: Asking<'_>, _: &Credentials<'_>, _: &mut SignatureWork) -> Authentication {
        Authentication::Pending
    }
}

#[test]
fn clients_whose_tokens_are_verified_are_charged() {
    let ledger = Arc::new(Ledger::new(1 << 20));
    let hooks = Hooks::new("n", &[], &ledger).unwrap();
    let authenticator = HookAuthenticator::new(Some(Arc::new(Verification)), hooks);
    let (ticket, answers, agent) = (Ticket::for_test(1), nobody(), "x".repeat(10_000));
    let client = ClientFacts { user_agent: Some(&agent), ..ClientFacts::default() };
    let credentials = Credentials { user: None, token: None, client, session: None };
    let mut work = SignatureWork::new(Duration::ZERO);
    let answer = authenticator.authenticate(Asking::new(ticket, &answers), &credentials, &mut work);
    assert!(matches!(answer, Authentication::Pending));
    assert!(ledger.bytes() > agent.len(), "{}", ledger.bytes());
    authenticator.cancel(ticket);
    assert_eq!(ledger.bytes(), 0);
}

/// The rooms of a session aren't copied for an answer that is cached.
#[test]
fn the_cache_is_asked_before_rooms_are_copied() {
    let options = HookOptions {
        name: "chat".into(),
        url: "http://127.0.0.1:1/".into(),
        on: vec![HookKind::Subscribe],
        rooms_max: 7,
        ..HookOptions::default()
    };
    let hooks = Hooks::new("n", &[options], &Arc::new(Ledger::new(1 << 20))).unwrap();
    let authorizer = HookAuthorizer::new(None, hooks.clone());
    let (topic, answers, copied) = (Topic::Room(room("lobby")), nobody(), Cell::new(0));
    let take = |count_max| {
        copied.set(copied.get() + count_max);
        SessionRooms::default()
    };
    let question = Question {
        asking: Asking::new(Ticket::for_test(1), &answers),
        session: None,
        rooms: LazyRooms::new(&take),
        source: 1,
        identity: None,
        access: Access::Subscribe(&topic),
    };
    assert_eq!((authorizer.authorize(&question), copied.take()), (Decision::Pending, 7));
    let key = cache_key(HookKind::Subscribe, None, None, &topic);
    hooks.hooks[0].cache.with(|cache| cache.put(Instant::now(), key, Duration::from_secs(60), Ok(())));
    assert_eq!((authorizer.authorize(&question), copied.take()), (Decision::Allow, 0));
}

/// Other questions are refused to make room for a question that still doesn't fit. All refusals are reported.
#[test]
fn questions_refused_to_make_room_in_vain_are_reported() {
    let options = HookOptions {
        name: "h".into(),
        url: "http://127.0.0.1:1".into(),
        on: vec![HookKind::Subscribe],
        waiting_bytes_max: 10_000,
        ..HookOptions::default()
    };
    let hooks = Hooks::new("n", &[options], &Arc::new(Ledger::new(1 << 20))).unwrap();
    let (hook, answers) = (&hooks.hooks[0], nobody());
    let ask = |number, client, size| {
        let client = Client { number: client, address: client };
        let asker =
            Asker::Access(client, Asking::new(Ticket::for_test(number), &answers).later(), "key".into());
        hook.ask(HookKind::Subscribe, asker, |_| vec![0; size]).is_ok()
    };
    let is_notified = || {
        let mut notified = std::pin::pin!(hook.asked.notified());
        notified.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    };
    assert!((1..=5).all(|number| ask(number, 1, 1_900)));
    assert!(is_notified() && !is_notified(), "of the first one");
    assert!(!ask(6, 2, 9_000));
    assert!(is_notified());
    assert_eq!(hook.batcher.with(Batcher::take_failed).len(), 1);
}
