//! Compares the batcher with a model on a virtual clock, and checks the wire format.

mod turns;

use super::answer::{self, Admission, Emits, Permission, Scope};
use super::batcher::{Batch, Batcher, Limits, Source};
use super::breaker::{FAILURES_MAX, PAUSE_MAX, PAUSE_MIN, SOURCES_MIN};
use super::cache::Cache;
use super::direct::Direct;
use super::failure::Cause;
use super::options::HookKind;
use super::question::{self, Connection};
use crate::fair::Owner;
use fastrand::Rng;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};
use stentor_auth::{Actions, Recipients, Rule};
use stentor_hub::{Data, Room, Rooms, SessionId, Topic};
use stentor_ports::Recipients as Counter;
use stentor_ports::{
    Answers, Arguments, Asking, Authorizer, ClientEvent, ClientFacts, Decision, Denial, EventEmit,
    EventReply, IdKey, Identity, Principal, PublicId, Question, SessionRooms, Ticket, fake,
};

const LIMITS: Limits = Limits {
    batch_max: 4,
    batch_bytes_max: 100,
    batch_delay: Duration::from_millis(5),
    timeout: Duration::from_millis(200),
    requests_max: 3,
    waiting_max: 12,
    waiting_bytes_max: 400,
};

/// Numbers as clients. All of them share one queue.
impl Source for u64 {
    fn source(&self) -> u64 {
        *self
    }

    fn owner(&self) -> Owner {
        Owner::new(0, 0)
    }

    fn ticket(&self) -> Ticket {
        Ticket::for_test(self.source())
    }
}

impl Source for &str {
    fn source(&self) -> u64 {
        super::source_of(self)
    }

    fn owner(&self) -> Owner {
        Owner::new(0, 0)
    }

    fn ticket(&self) -> Ticket {
        Ticket::for_test(self.source())
    }
}

/// The batcher's expected behavior in its simplest form.
#[derive(Default)]
struct Model {
    /// Accepted questions that aren't in a request: client, time and size.
    waiting: VecDeque<(u64, Instant, usize)>,
    in_flight: BTreeMap<u64, Vec<u64>>,
    failures: u32,
    open_until: Option<Instant>,
    pause: Duration,
    probe: Option<u64>,
    answered: HashMap<u64, u32>,
    /// The client of each accepted question, by the question's id.
    ids: HashMap<u64, u64>,
}

impl Model {
    fn is_open(&self, now: Instant) -> bool {
        self.open_until.is_some_and(|until| now < until)
    }

    fn ended(&mut self, now: Instant, number: u64, succeeded: bool) {
        let is_probe = self.probe == Some(number);
        if self.open_until.is_some() && !is_probe {
            return;
        }
        if succeeded {
            (self.failures, self.open_until, self.probe) = (0, None, None);
            return;
        }
        self.failures += 1;
        if is_probe {
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        } else if self.failures < FAILURES_MAX {
            return;
        } else {
            self.pause = PAUSE_MIN;
        }
        (self.open_until, self.probe) = (Some(now + self.pause), None);
    }
}

/// Sends due requests, and compares them with the model.
fn poll(batcher: &mut Batcher<u64>, model: &mut Model, now: Instant) {
    while let Some(batch) = batcher.poll_batch(now) {
        let count = batch.questions.len();
        assert!((1..=LIMITS.batch_max).contains(&count));
        let bytes: usize = batch.questions.iter().map(Vec::len).sum();
        assert!(count == 1 || bytes <= LIMITS.batch_bytes_max);
        assert!(!model.is_open(now) && model.probe.is_none());
        if model.open_until.is_some() {
            model.probe = Some(batch.number);
        }
        // Removes expired questions, which the request doesn't contain.
        while model.waiting.front().is_some_and(|(_, at, _)| *at + LIMITS.timeout <= now) {
            model.waiting.pop_front();
        }
        let asked: Vec<_> = model.waiting.drain(..count).collect();
        assert_eq!(batch.deadline, asked[count - 1].1 + LIMITS.timeout);
        assert!(batch.deadline > now);
        let askers: Vec<u64> = asked.iter().map(|(asker, ..)| *asker).collect();
        let texts: Vec<_> = asked.iter().map(|(asker, _, size)| text(*asker, *size)).collect();
        assert_eq!(batch.questions, texts, "in order");
        let was_idle = model.in_flight.is_empty();
        model.in_flight.insert(batch.number, askers);
        assert!(model.in_flight.len() <= LIMITS.requests_max);
        let is_full = count == LIMITS.batch_max
            || bytes + model.waiting.front().map_or(0, |(.., size)| *size) >= LIMITS.batch_bytes_max;
        let is_old = asked[0].1 + LIMITS.batch_delay <= now;
        assert!(was_idle || is_full || is_old, "too early");
    }
    if let Some(timeout) = batcher.poll_timeout(now) {
        assert!(timeout > now, "nothing is due after a poll");
    }
    for (asker, cause) in batcher.take_failed() {
        *model.answered.entry(asker).or_default() += 1;
        match cause {
            Cause::Timeout => model.waiting.retain(|(waiting, at, _)| {
                assert!(*waiting != asker || *at + LIMITS.timeout <= now, "too early");
                *waiting != asker
            }),
            Cause::BreakerOpen => model.waiting.retain(|(waiting, ..)| *waiting != asker),
            other => panic!("{other:?}"),
        }
    }
}

fn text(asker: u64, size: usize) -> Vec<u8> {
    vec![asker as u8; size]
}

#[test]
fn the_batcher_matches_its_model() {
    for seed in 0..100 {
        run_model(seed);
    }
}

fn run_model(seed: u64) {
    let mut random = Rng::with_seed(seed);
    let (mut batcher, mut model) = (Batcher::new(LIMITS), Model::default());
    let (mut now, mut accepted) = (Instant::now(), 0);
    // In some runs, many requests fail, so that the breaker opens.
    let failing = [0, 2, 8][random.usize(..3)];
    for asker in 0..600 {
        let size = random.usize(1..60);
        let bytes: usize = model.waiting.iter().map(|(.., size)| size).sum();
        let mut given = 0;
        let write = |id| {
            given = id;
            text(asker, size)
        };
        match batcher.ask(now, asker, write) {
            Ok(_) => {
                assert!(!model.is_open(now), "seed {seed}");
                model.ids.insert(asker, given);
                model.waiting.push_back((asker, now, size));
                accepted += 1;
            }
            Err((same, Cause::BreakerOpen)) => assert!(same == asker && model.is_open(now), "seed {seed}"),
            Err((_, Cause::QueueFull)) => assert!(
                model.waiting.len() >= LIMITS.waiting_max || bytes + size > LIMITS.waiting_bytes_max,
                "seed {seed}"
            ),
            Err(other) => panic!("seed {seed}: {other:?}"),
        }
        poll(&mut batcher, &mut model, now);
        let numbers: Vec<u64> = model.in_flight.keys().copied().collect();
        for number in numbers {
            if random.bool() {
                continue;
            }
            let askers = model.in_flight.remove(&number).unwrap();
            let response = if random.u32(..10) < failing { Err(Cause::Broken) } else { Ok(()) };
            let answered = match response {
                Err(cause) => batcher.handle_response::<u64>(now, number, Err(cause)),
                Ok(()) => {
                    let mut answers: Vec<(u64, u64)> =
                        askers.iter().map(|asker| (model.ids[asker], *asker)).collect();
                    random.shuffle(&mut answers);
                    batcher.handle_response(now, number, Ok(answers))
                }
            };
            assert_eq!(answered.iter().map(|(asker, _)| *asker).collect::<Vec<_>>(), askers);
            for (asker, result) in &answered {
                assert_eq!(*result, response.map(|()| *asker), "seed {seed}");
                *model.answered.entry(*asker).or_default() += 1;
            }
            assert!(batcher.handle_response::<u64>(now, number, Err(Cause::Broken)).is_empty(), "twice");
            model.ended(now, number, response.is_ok());
        }
        poll(&mut batcher, &mut model, now);
        let steps = [0, 1, 3, 7, 50, 400];
        now += Duration::from_millis(steps[random.usize(..steps.len())]);
        poll(&mut batcher, &mut model, now);
        assert_eq!(batcher.in_flight(), model.in_flight.len());
        assert_eq!(batcher.waiting(), model.waiting.len(), "seed {seed}");
        assert_eq!(batcher.waiting_bytes(), model.waiting.iter().map(|(.., size)| size).sum::<usize>());
        assert_eq!(batcher.is_broken(), model.open_until.is_some());
    }
    let numbers: Vec<u64> = model.in_flight.keys().copied().collect();
    for number in numbers {
        let answered = batcher.handle_response::<u64>(now, number, Err(Cause::Broken));
        answered.iter().for_each(|(asker, _)| *model.answered.entry(*asker).or_default() += 1);
    }
    now += LIMITS.timeout;
    while batcher.poll_batch(now).is_some() {}
    batcher.take_failed().iter().for_each(|(asker, _)| *model.answered.entry(*asker).or_default() += 1);
    assert_eq!(model.answered.len(), accepted, "seed {seed}: each is answered");
    assert!(model.answered.values().all(|times| *times == 1), "seed {seed}: once");
}

/// Asks questions whose texts are their ids.
fn ask<A: Source>(batcher: &mut Batcher<A>, now: Instant, askers: impl IntoIterator<Item = A>) {
    for asker in askers {
        assert!(batcher.ask(now, asker, |id| id.to_string().into_bytes()).is_ok());
    }
}

fn ids(questions: &[Vec<u8>]) -> Vec<u64> {
    questions.iter().map(|text| std::str::from_utf8(text).unwrap().parse().unwrap()).collect()
}

/// Takes all requests that may be sent.
fn batches<A: Source>(batcher: &mut Batcher<A>, now: Instant) -> Vec<Batch> {
    std::iter::from_fn(|| batcher.poll_batch(now)).collect()
}

/// Ends a request with a response or a failure.
fn respond<A: Source>(
    batcher: &mut Batcher<A>,
    now: Instant,
    batch: &Batch,
    response: Result<(), Cause>,
) -> Vec<(A, Result<(), Cause>)> {
    let answers = ids(&batch.questions).into_iter().map(|id| (id, ())).collect();
    batcher.handle_response(now, batch.number, response.map(|()| answers))
}

/// Makes a batcher with one request in flight, which has one question with the id 1. Returns it and the
/// request's number.
fn one_in_flight(now: Instant) -> (Batcher<&'static str>, u64) {
    let mut batcher = Batcher::new(LIMITS);
    ask(&mut batcher, now, ["a"]);
    let batch = batcher.poll_batch(now).unwrap();
    assert_eq!(batch.questions, [b"1"]);
    (batcher, batch.number)
}

#[test]
fn answers_are_matched_by_id() {
    fn check(answers: &[(u64, &str)], expect: Result<&str, Cause>) {
        let now = Instant::now();
        let (mut batcher, number) = one_in_flight(now);
        let answers = answers.iter().map(|(id, answer)| (*id, (*answer).to_owned())).collect();
        let answered = batcher.handle_response(now, number, Ok(answers));
        assert_eq!(answered, [("a", expect.map(str::to_owned))]);
    }
    check(&[(1, "x")], Ok("x"));
    check(&[(2, "y"), (1, "x"), (1, "z")], Ok("x"));
    check(&[], Err(Cause::MissingAnswer));
    check(&[(2, "y"), (0, "z")], Err(Cause::MissingAnswer));
}

#[test]
fn the_first_question_leaves_at_once_and_others_are_batched() {
    let now = Instant::now();
    let (mut batcher, number) = one_in_flight(now);
    assert_eq!(batcher.ask(now, "b", |_| vec![0]), Ok(true), "the timer has to be set");
    assert_eq!(batcher.ask(now, "c", |_| vec![0]), Ok(false));
    assert_eq!(batcher.poll_batch(now), None);
    assert_eq!(batcher.poll_timeout(now), Some(now + LIMITS.batch_delay));
    let later = now + LIMITS.batch_delay;
    assert_eq!(batcher.poll_batch(later).unwrap().questions.len(), 2);
    // Without a request in flight, a question is sent at once.
    let mut batcher = one_in_flight(now).0;
    assert_eq!(batcher.ask(now, "b", |_| vec![0]), Ok(true));
    batcher.handle_response(now, number, Ok(vec![(1, ())]));
    assert_eq!(batcher.poll_batch(now).unwrap().questions.len(), 1);
    // A full batch is sent at once.
    let mut batcher = one_in_flight(now).0;
    for n in 0..LIMITS.batch_max {
        let is_due = n == 0 || n + 1 == LIMITS.batch_max;
        assert_eq!(batcher.ask(now, "b", |_| vec![0]), Ok(is_due));
    }
    assert_eq!(batcher.poll_batch(now).unwrap().questions.len(), LIMITS.batch_max);
}

#[test]
fn the_breaker_opens_probes_and_closes() {
    let mut now = Instant::now();
    let mut batcher = Batcher::new(LIMITS);
    let fail = |batcher: &mut Batcher<u64>, now: Instant| {
        batcher.ask(now, 0, |_| vec![0]).unwrap();
        let number = batcher.poll_batch(now).unwrap().number;
        batcher.handle_response::<()>(now, number, Err(Cause::Unavailable))
    };
    for _ in 0..FAILURES_MAX {
        assert!(!batcher.is_broken());
        fail(&mut batcher, now);
    }
    assert_eq!(batcher.ask(now, 1, |_| vec![0]), Err((1, Cause::BreakerOpen)));
    // The end of the pause is a timeout of the batcher, so that the metric is correct without further
    // questions.
    assert!(batcher.is_paused(now));
    assert_eq!(batcher.poll_timeout(now), Some(now + PAUSE_MIN));
    assert!(!batcher.is_paused(now + PAUSE_MIN));
    let mut pause = PAUSE_MIN;
    for _ in 0..8 {
        now += pause - Duration::from_millis(1);
        assert!(batcher.ask(now, 1, |_| vec![0]).is_err());
        now += Duration::from_millis(1);
        // A question that arrives during the probe has the probe's outcome.
        batcher.ask(now, 2, |_| vec![0]).unwrap();
        let number = batcher.poll_batch(now).unwrap().number;
        batcher.ask(now, 3, |_| vec![0]).unwrap();
        let later = now + LIMITS.batch_delay;
        assert_eq!(batcher.poll_batch(later), None, "one request only");
        let answered = batcher.handle_response::<()>(now, number, Err(Cause::Connect));
        assert_eq!(answered, [(2, Err(Cause::Connect))]);
        assert_eq!(batcher.take_failed(), [(3, Cause::BreakerOpen)]);
        pause = (pause * 2).min(PAUSE_MAX);
    }
    now += pause;
    batcher.ask(now, 4, |_| vec![0]).unwrap();
    let number = batcher.poll_batch(now).unwrap().number;
    // Ids are consecutive. The response has answers for all ids from 0 to 99.
    let ids = (0..100).map(|id| (id, ())).collect();
    assert_eq!(batcher.handle_response(now, number, Ok(ids)), [(4, Ok(()))]);
    assert!(!batcher.is_broken());
}

/// Makes a batcher after a failed request with questions of two clients, `b` and `c`. Either question may be
/// the cause.
fn two_failed(now: Instant) -> Batcher<&'static str> {
    let (mut batcher, number) = one_in_flight(now);
    batcher.handle_response(now, number, Ok(vec![(1, ())]));
    ask(&mut batcher, now, ["b", "c"]);
    let Batch { number, questions, .. } = batcher.poll_batch(now).unwrap();
    assert_eq!(questions, [b"2", b"3"]);
    assert!(batcher.ask_again(number, questions));
    batcher
}

#[test]
fn questions_of_a_failed_request_are_asked_again_alone() {
    let now = Instant::now();
    let mut batcher = two_failed(now);
    ask(&mut batcher, now, ["later"]);
    assert_eq!((batcher.waiting(), batcher.waiting_bytes(), batcher.in_flight()), (3, 3, 0));
    let alone = batches(&mut batcher, now);
    assert_eq!(alone.len(), 2, "others are still gathered");
    assert!(alone.iter().all(|batch| batch.deadline == now + LIMITS.timeout));
    let [one, two] = &alone[..] else { panic!("{alone:?}") };
    assert_eq!((&one.questions[..], &two.questions[..]), (&[b"2".to_vec()][..], &[b"3".to_vec()][..]));
    // A question is repeated only once.
    assert!(!batcher.ask_again(one.number, one.questions.clone()));
    let answered = batcher.handle_response::<()>(now, one.number, Err(Cause::Status));
    assert_eq!(answered, [("b", Err(Cause::Status))]);
    assert_eq!(batcher.handle_response(now, two.number, Ok(vec![(3, "x")])), [("c", Ok("x"))]);
    // A repeated question that can't be sent within `timeout` fails.
    let mut batcher = two_failed(now);
    let late = now + LIMITS.timeout;
    assert_eq!(batcher.poll_batch(late), None);
    assert_eq!(batcher.take_failed(), [("b", Cause::Timeout), ("c", Cause::Timeout)]);
    assert_eq!((batcher.waiting(), batcher.waiting_bytes(), batcher.poll_timeout(late)), (0, 0, None));
}

/// The batcher finds a question that the backend can't handle by halving the failed request. Other questions
/// are sent in other requests.
#[test]
fn a_bad_question_is_found_by_halving() {
    let now = Instant::now();
    let (mut batcher, number) = one_in_flight(now);
    ask(&mut batcher, now, ["b", "c", "d", "e"]);
    let first = batcher.poll_batch(now).unwrap();
    batcher.handle_response(now, number, Ok(vec![(1, ())]));
    assert!(batcher.ask_again(first.number, first.questions));
    ask(&mut batcher, now, ["f", "g", "h", "i"]);
    let mut requests = VecDeque::from(batches(&mut batcher, now));
    let sizes: Vec<_> = requests.iter().map(|batch| batch.questions.len()).collect();
    assert_eq!(sizes, [2, 2, 4], "two halves, and another's questions");
    let (mut answered, mut sent) = (Vec::new(), 0);
    while let Some(batch) = requests.pop_front() {
        sent += 1;
        if !ids(&batch.questions).contains(&3) {
            answered.extend(respond(&mut batcher, now, &batch, Ok(())));
        } else if !batcher.ask_again(batch.number, batch.questions.clone()) {
            answered.extend(respond(&mut batcher, now, &batch, Err(Cause::Status)));
        }
        requests.extend(batches(&mut batcher, now));
    }
    let bad: Vec<_> = answered.iter().filter(|(_, answer)| answer.is_err()).collect();
    assert_eq!((answered.len(), bad, sent), (8, vec![&("c", Err(Cause::Status))], 5));
    assert!(!batcher.is_broken());
    assert_eq!((batcher.waiting(), batcher.waiting_bytes(), batcher.in_flight()), (0, 0, 0));
}

/// Asks a question for each of these clients, asserts that one request has them all, and ends it with this
/// response.
fn exchange(batcher: &mut Batcher<u64>, now: Instant, clients: &[u64], response: Result<(), Cause>) {
    ask(batcher, now, clients.iter().copied());
    let batch = batcher.poll_batch(now).unwrap();
    let answered = respond(batcher, now, &batch, response);
    assert_eq!(answered.iter().map(|(asker, _)| *asker).collect::<Vec<_>>(), clients);
}

/// Failures of two clients' questions don't open the breaker. If the backend is down, the breaker opens
/// within five requests.
#[test]
fn failures_of_fewer_than_three_clients_do_not_open_the_breaker() {
    let now = Instant::now();
    let client =
        [Cause::Status, Cause::Invalid, Cause::MissingAnswer, Cause::Timeout, Cause::Broken, Cause::TooLarge];
    for cause in client {
        let mut batcher = Batcher::new(LIMITS);
        for n in 0..100 {
            exchange(&mut batcher, now, &[n % (SOURCES_MIN as u64 - 1)], Err(cause));
            assert!(!batcher.is_broken(), "{cause:?}");
        }
    }
    let backend = [Cause::Connect, Cause::Unavailable, Cause::Redirect];
    let rows = client.map(|cause| (cause, u64::from(FAILURES_MAX))).into_iter();
    for (cause, clients) in rows.chain(backend.map(|cause| (cause, 1))) {
        let mut batcher = Batcher::new(LIMITS);
        for n in 0..u64::from(FAILURES_MAX) {
            assert!(!batcher.is_broken(), "{cause:?}");
            exchange(&mut batcher, now, &[n % clients], Err(cause));
        }
        assert!(batcher.is_broken(), "{cause:?}");
    }
}

/// A timeout doesn't show which question of the request hung. So each of its clients gets separate requests
/// until one of the client's questions is answered.
#[test]
fn clients_of_a_failed_request_get_separate_requests() {
    let now = Instant::now();
    let mut batcher = Batcher::new(LIMITS);
    exchange(&mut batcher, now, &[1, 2, 3], Err(Cause::Timeout));
    ask(&mut batcher, now, [1, 2, 2, 3, 4]);
    let batches = batches(&mut batcher, now + LIMITS.batch_delay);
    let sizes: Vec<_> = batches.iter().map(|batch| batch.questions.len()).collect();
    assert_eq!(sizes, [1, 1, 2], "all that may be in flight");
    // Questions of a client are batched again after one of them was answered.
    let mut batcher = Batcher::new(LIMITS);
    exchange(&mut batcher, now, &[1, 2], Err(Cause::Timeout));
    exchange(&mut batcher, now, &[1], Ok(()));
    exchange(&mut batcher, now, &[1, 4], Ok(()));
}

/// Makes a batcher whose breaker has opened because of the questions of five clients.
fn broken(now: Instant) -> Batcher<u64> {
    let mut batcher = Batcher::new(LIMITS);
    for client in 0..u64::from(FAILURES_MAX) {
        exchange(&mut batcher, now, &[client], Err(Cause::Status));
    }
    batcher
}

#[test]
fn the_probe_is_another_clients_question() {
    let mut now = Instant::now();
    let mut batcher = broken(now);
    now += PAUSE_MIN;
    assert_eq!(batcher.ask(now, 1, |_| vec![0]), Err((1, Cause::BreakerOpen)));
    exchange(&mut batcher, now, &[99], Ok(()));
    assert!(!batcher.is_broken());
    exchange(&mut batcher, now, &[1], Err(Cause::Status));
    // Without questions of other clients, the probe is a question of a client whose requests have failed.
    let mut batcher = broken(now);
    now += PAUSE_MIN * 2;
    exchange(&mut batcher, now, &[1], Ok(()));
    assert!(!batcher.is_broken());
}

/// Requests that fail because of one question don't open the breaker. Requests without any answer do.
#[test]
fn one_bad_question_does_not_open_the_breaker() {
    for is_any_answered in [true, false] {
        let now = Instant::now();
        let mut batcher = Batcher::new(LIMITS);
        let mut rounds = 0;
        while rounds < 2 * u64::from(FAILURES_MAX) && !batcher.is_broken() {
            ask(&mut batcher, now, [2 * rounds, 2 * rounds + 1]);
            let batch = batcher.poll_batch(now).unwrap();
            assert!(batcher.ask_again(batch.number, batch.questions));
            let [one, two] = [(); 2].map(|()| batcher.poll_batch(now).unwrap());
            let answer = if is_any_answered { Ok(()) } else { Err(Cause::Status) };
            respond(&mut batcher, now, &one, answer);
            respond(&mut batcher, now, &two, Err(Cause::Status));
            rounds += 1;
        }
        assert_eq!(batcher.is_broken(), !is_any_answered, "{is_any_answered}");
    }
}

#[test]
fn the_cache_is_bounded_in_number_and_time() {
    let now = Instant::now();
    let mut cache = Cache::new(3);
    let second = Duration::from_secs(1);
    let denied: Result<(), Denial> = Err(Denial::new("a", "b"));
    cache.put(now, "a".into(), second, Ok(()));
    cache.put(now, "b".into(), second * 9, denied.clone());
    assert_eq!(cache.find(now, "a"), Some(Ok(())));
    assert_eq!(cache.find(now, "b"), Some(denied));
    assert_eq!(cache.find(now, "c"), None);
    let later = now + second;
    assert_eq!(cache.find(later, "a"), None);
    for n in 0..1_000 {
        cache.put(later, "same".into(), second, Ok(()));
        cache.put(later, n.to_string().into(), second, Ok(()));
        assert!(cache.len() <= 3);
        assert_eq!(cache.find(later, "same"), Some(Ok(())), "the newest of a key stays");
    }
    let mut none = Cache::new(0);
    none.put(now, "a".into(), second, Ok(()));
    assert_eq!((none.find(now, "a"), none.len()), (None, 0));
}

fn room(name: &str) -> Room {
    Room::new("/n", name).unwrap()
}

#[test]
fn responses_are_read() {
    fn check(body: &str, expect: Result<&[(u64, &str)], &str>) {
        let text = answer::text(body.as_bytes().to_vec());
        let answers = text.as_ref().map_err(String::clone).and_then(|text| answer::answers(text));
        match expect {
            Ok(expect) => assert_eq!(answers.as_deref(), Ok(expect), "{body}"),
            Err(wrong) => {
                assert!(answers.as_ref().is_err_and(|error| error.contains(wrong)), "{body} {answers:?}")
            }
        }
    }
    let one = (1, r#"{"id":1}"#);
    check(r#"{"answers":[{"id":1},{"id":2,"x":[1]}]}"#, Ok(&[one, (2, r#"{"id":2,"x":[1]}"#)]));
    check("{\r\n \"answers\": [\n{\"id\": 1}\n]}", Ok(&[one]));
    check(r#"{"answers":[],"more":1}"#, Ok(&[]));
    check("\u{feff}{\"answers\":[{\"id\":1}]}", Ok(&[one]));
    check("\u{feff}{\"answers\":\n[]}", Ok(&[]));
    // An answer without a valid id is ignored.
    check(r#"{"answers":[{"id":"1"},{},7,null,{"id":-1},{"id":2}]}"#, Ok(&[(2, r#"{"id":2}"#)]));
    check("", Err("not a JSON object"));
    check("[]", Err("not a JSON object"));
    check("<html>", Err("not a JSON object"));
    check("{}", Err("missing field `answers`"));
    check(r#"{"answers":{}}"#, Err("expected a sequence"));
    check(r#"{"answers":[{"id":1}"#, Err("EOF"));
    check(&format!(r#"{{"answers":{}}}"#, "[".repeat(200)), Err("deeper"));
    assert_eq!(answer::text(b"{\"\xff\":1}".to_vec()), Err("it is not UTF-8".to_owned()));
}

#[test]
fn permissions_are_read() {
    let permission = |result, ttl| Ok(Permission { result, ttl });
    assert_eq!(answer::permission(r#"{"id":1,"allow":true}"#), permission(Ok(()), None));
    let denied = Denial::new("not_allowed", "this is not allowed");
    assert_eq!(answer::permission(r#"{"id":1,"allow":false}"#), permission(Err(denied), None));
    let denied = Denial { retry: true, ..Denial::new("too_early", "later") };
    let text = r#"{"id":1,"allow":false,"code":"too_early","message":"later","retry":true,"ttl":2}"#;
    assert_eq!(answer::permission(text), permission(Err(denied), Some(Duration::from_secs(2))));
    for (ttl, milliseconds) in
        [("0.5", Some(500)), ("0", None), ("-1", None), ("1e300", Some(24 * 3_600_000))]
    {
        let found = answer::permission(&format!(r#"{{"id":1,"allow":true,"ttl":{ttl}}}"#)).unwrap().ttl;
        assert_eq!(found, milliseconds.map(Duration::from_millis), "{ttl}");
    }
    // A malformed answer is an error, so it never allows an action.
    for (text, wrong) in [
        (r#"{"id":1}"#, "\"allow\" is missing"),
        (r#"{"id":1,"allow":"true"}"#, "invalid type"),
        (r#"{"id":1,"allow":1}"#, "invalid type"),
        (r#"{"id":1,"allow":true,"alow":false}"#, "unknown field `alow`"),
        (r#"{"id":1,"allow":false,"code":"Not Allowed"}"#, "\"code\""),
        (r#"{"id":1,"allow":false,"code":""}"#, "\"code\""),
    ] {
        let error = answer::permission(text).unwrap_err();
        assert!(error.contains(wrong), "{text}: {error}");
    }
    let long = format!(r#"{{"id":1,"allow":false,"message":"{}"}}"#, "x".repeat(2_000));
    assert!(answer::permission(&long).unwrap_err().contains("longer"));
}

/// Answers about a client without a session, which name no sessions.
fn without_sessions(namespace: &str) -> Scope<'_> {
    Scope { namespace, session: None, recipients: &|_| Counter::default() }
}

#[test]
fn replies_to_events_are_read() {
    let reply =
        |text: &str| answer::reply(text, without_sessions("/n")).map(|reply| reply.map(|(reply, _)| reply));
    assert_eq!(reply(r#"{"id":1}"#), Ok(Ok(EventReply::default())));
    let denied = Denial::new("not_allowed", "no");
    assert_eq!(reply(r#"{"id":1,"allow":false,"message":"no"}"#), Ok(Err(denied)));
    let text = r#"{"id":1,"ack":["a",{"b":[2]}],"leave":["l"],"join":["j","k"],"disconnect":true,"emit":[
        {"event":"one","arguments":[1,"x"],"rooms":["r","s"],"except_sender":true},
        {"event":"two","data":{"c":null}},
        {"event":"three","all":true}]}"#;
    let emit = |rooms, event: &str, json: &'static str| EventEmit {
        rooms,
        except_sender: false,
        volatile: false,
        event: Some(event.into()),
        data: Data::Json(json.into()),
        recipients: Counter::default(),
    };
    let expect = EventReply {
        leave: vec![room("l")],
        join: vec![room("j"), room("k")],
        ack: r#""a",{"b":[2]}"#.into(),
        emit: vec![
            EventEmit {
                rooms: Some(Rooms::new("/n", ["r", "s"]).unwrap()),
                except_sender: true,
                data: Data::Arguments { json: r#"1,"x""#.as_bytes().into(), attachments: [].into() },
                ..emit(None, "one", "")
            },
            emit(None, "two", r#"{"c":null}"#),
            emit(Some(Room::all_members("/n").unwrap().into()), "three", "null"),
        ],
        disconnect: true,
    };
    assert_eq!(reply(text), Ok(Ok(expect)));
    for (text, wrong) in [
        (r#"{"id":1,"ack":"a"}"#, "expected a sequence"),
        (r#"{"id":1,"join":[""]}"#, "a room in \"join\""),
        (r#"{"id":1,"join":"j"}"#, "expected a sequence"),
        (r#"{"id":1,"emit":[{"data":1}]}"#, "missing field `event`"),
        (r#"{"id":1,"emit":[{"event":"e","room":"r"}]}"#, "unknown field `room`"),
        (r#"{"id":1,"emit":[{"event":"e","data":1,"arguments":[]}]}"#, "both"),
    ] {
        let error = reply(text).unwrap_err();
        assert!(error.contains(wrong), "{text}: {error}");
    }
    let long = format!(r#"{{"id":1,"emit":[{{"event":"{}"}}]}}"#, "e".repeat(300));
    assert!(reply(&long).unwrap_err().contains("longer"));
}

/// Checks who receives a message of an answer about the session `own`: the client (`*`), rooms, and other sessions.
#[test]
fn messages_name_rooms_and_sessions_alike() {
    let [own, other, third] = [0, 1, 2]
        .map(|number| PublicId::of(IdKey { seed: [1, 2], cores: 1 }, 0, SessionId::from_bits(number)));
    let check = |fields: &str, expected: &[&str]| {
        let name = |fields: String, (name, id): (&str, PublicId)| fields.replace(name, &id.to_string());
        let ids = [("OWN", own), ("OTHER", other), ("THIRD", third)];
        let fields = ids.into_iter().fold(fields.to_owned(), name);
        let text = format!(r#"{{"id":1,"emit":[{{"event":"e",{fields}}}]}}"#);
        let counted = std::cell::Cell::new(0);
        let recipients = &|_: &std::sync::Arc<str>| {
            counted.set(counted.get() + 1);
            Counter::default()
        };
        let scope = Scope { namespace: "/n", session: Some(own), recipients };
        let (reply, direct) = answer::reply(&text, scope).unwrap().unwrap();
        let mut seen = Vec::new();
        for EventEmit { rooms, except_sender, volatile, .. } in &reply.emit {
            let rooms = rooms.iter().flat_map(Rooms::iter).map(Room::name).collect::<Vec<_>>().join("+");
            let but = if *except_sender { " but *" } else { "" };
            let name = if rooms.is_empty() { "*".to_owned() } else { rooms + but };
            seen.push(if *volatile { format!("{name}?") } else { name });
        }
        for Direct { target, volatile, .. } in &direct {
            assert!(target.rooms.is_empty() && target.namespace() == "/n");
            let name = |id: PublicId| match id {
                id if id == other => "OTHER",
                id if id == third => "THIRD",
                _ => "OWN",
            };
            let ids = target.session_ids().map(name).collect::<Vec<_>>().join("+");
            let but = target.except_rooms.iter().map(Room::name).collect::<Vec<_>>().join("+");
            let name = if but.is_empty() { ids } else { format!("{ids} but {but}") };
            seen.push(if *volatile { format!("{name}?") } else { name });
        }
        assert_eq!(seen, expected, "{text}");
        // The recipients are counted only of a message that is sent in one part and isn't for the client.
        let is_counted = counted.get() + direct.iter().filter(|message| message.is_counted).count();
        assert_eq!(is_counted, usize::from(seen.len() == 1 && !seen[0].starts_with('*')), "{text}");
    };
    check(r#""volatile":true"#, &["*?"]);
    check(r#""rooms":["r","s"]"#, &["r+s"]);
    check(r#""rooms":["BBBBBBBBBBBBBBBBBBBB"]"#, &["BBBBBBBBBBBBBBBBBBBB"]);
    check(r#""rooms":["OTHER"]"#, &["OTHER"]);
    check(r#""rooms":["OTHER","OTHER","THIRD"],"volatile":true"#, &["OTHER+THIRD?"]);
    check(r#""rooms":["/n#OTHER"]"#, &["OTHER"]);
    check(r#""rooms":["r","OTHER"],"except_sender":true"#, &["r but *", "OTHER but r"]);
    check(r#""rooms":["OWN"]"#, &["*"]);
    check(r#""rooms":["OWN"],"except_sender":true"#, &[]);
    check(r#""rooms":["OWN","r"]"#, &["*", "r but *"]);
    check(r#""rooms":["OWN","OTHER"],"except_sender":true"#, &["OTHER"]);
}

#[test]
fn admissions_are_read() {
    let text = r#"{"id":1,"allow":true,"user":"42","info":{"name":"Ada"},"join":["user:42"],
        "emit":[{"event":"hello"},{"event":"new","rooms":["r"],"except_sender":true}]}"#;
    let message = |rooms, except_sender, event: &str| EventEmit {
        rooms,
        except_sender,
        volatile: false,
        event: Some(event.into()),
        data: Data::Json("null".into()),
        recipients: Counter::default(),
    };
    let emit = vec![message(None, false, "hello"), message(Some(room("r").into()), true, "new")];
    let expect = Admission {
        user: Some("42".into()),
        info: Some(r#"{"name":"Ada"}"#.into()),
        join: vec![room("user:42")],
        permissions: Vec::new(),
        emits: Emits { emit, direct: Vec::new() },
    };
    let admission = |text: &str| answer::admission(text, without_sessions("/n"));
    assert_eq!(admission(text), Ok(Ok(expect)));
    let denied = Denial::new("token_expired", "log in again");
    let text = r#"{"id":1,"allow":false,"code":"token_expired","message":"log in again"}"#;
    assert_eq!(admission(text), Ok(Err(denied)));
    assert!(admission(r#"{"id":1,"user":"42"}"#).is_err());
    let granted =
        |permissions: &str| admission(&format!(r#"{{"id":1,"allow":true,"permissions":{permissions}}}"#));
    let expect =
        Rule::new(&[], &[], &["a"], None, Actions::parse(&["subscribe"]).unwrap(), Recipients::Users);
    let granted_one = granted(r#"[{"rooms":["a"],"allow":["subscribe"]}]"#).unwrap().unwrap();
    assert_eq!(granted_one.permissions, [expect.unwrap()]);
    for wrong in [
        r#"{"rooms":["a"]}"#,
        r#"[{"rooms":["a"],"allow":["eat"]}]"#,
        r#"[{"room":"a","allow":["subscribe"]}]"#,
    ] {
        assert!(granted(wrong).unwrap_err().starts_with("\"permissions\": "), "{wrong}");
    }
}

/// Returns the JSON blocks of docs/hooks.md in order: a request, three questions, a response, notices.
pub(super) fn documented() -> Vec<Value> {
    let page = include_str!("../../../../docs/hooks.md");
    let blocks = page.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.map(|block| serde_json::from_str(block).unwrap()).collect()
}

#[derive(Debug)]
pub(super) struct Anything;

impl Authorizer for Anything {
    fn authorize(&self, _: &Question<'_>) -> Decision {
        Decision::Allow
    }
}

/// Makes a receiver that ignores all answers.
pub(super) fn nobody() -> std::sync::Arc<dyn Answers> {
    std::sync::Arc::new(fake::Node::new(|_| Ok(())))
}

#[test]
fn rooms_of_a_session_are_written_up_to_the_hooks_maximum() {
    let check = |rooms_max, is_truncated, expected: &str| {
        let rooms = SessionRooms { names: vec!["a".into(), "\"b\"".into()], is_truncated };
        let rooms = Some((&rooms, rooms_max));
        let connection = Connection { session: Some("s"), rooms, ..Connection::default() };
        let about = question::About::Session(connection, None, None);
        let text = String::from_utf8(question::notice(HookKind::Disconnected, 7, &about)).unwrap();
        let expected = format!(
            r#"{{"notice":"disconnected","at_ms":7,"connection":{{"session":"s"{expected}}},"user":null}}"#
        );
        assert_eq!(text, expected);
    };
    check(0, true, "");
    check(1, false, r#","rooms":["a"],"more_rooms":true"#);
    check(2, false, r#","rooms":["a","\"b\""]"#);
    check(3, true, r#","rooms":["a","\"b\""],"more_rooms":true"#);
}

#[test]
fn sent_requests_match_the_documentation() {
    let documented = documented();
    let session = PublicId::parse("ZJ0sGbPTcG1y2fgHnVxz").unwrap();
    let mut identity = Identity::anonymous(std::sync::Arc::new(Anything));
    identity.principal = Some(Principal { issuer: "hook:chat".into(), subject: "42".into() });
    let event = question::event(
        1,
        &ClientEvent {
            asking: Asking::new(Ticket::for_test(1), &nobody()),
            session,
            identity: Some(&identity),
            protocol: "socketio",
            address: Some("192.0.2.7"),
            source: 0xc000_0207,
            namespace: "/",
            name: "join",
            arguments: Arguments { json: r#""user:42""#, attachments: &[] },
            rooms: &SessionRooms::default(),
            wants_ack: true,
        },
        0,
    );
    let batch = Batch { number: 1, questions: vec![event], deadline: Instant::now() };
    let body = super::http::body("5c1f0a7e9b3d2468", "questions", batch.questions.iter());
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), documented[0]);

    let client = ClientFacts {
        address: Some([192, 0, 2, 7].into()),
        protocol: "socketio",
        namespace: Some("/"),
        origin: Some("https://example.com"),
        user_agent: Some("Mozilla/5.0"),
        traceparent: None,
    };
    let id = session.to_string();
    let connection = Connection { session: Some(&id), namespace: Some("/"), ..Connection::default() };
    let lobby = Topic::Room(Room::plain("lobby").unwrap());
    for (text, expect) in [
        (question::connect(2, Some(&id), &client, Some("ada-token"), None), &documented[1]),
        (question::access(3, HookKind::Subscribe, connection, None, &lobby), &documented[2]),
        (question::access(4, HookKind::Publish, connection, None, &lobby), &documented[3]),
    ] {
        assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), *expect);
    }
}

#[test]
fn the_documented_answers_are_understood() {
    let text = documented()[4].to_string();
    let answers = answer::answers(&text).unwrap();
    assert_eq!(answers.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let (reply, _) = answer::reply(answers[0].1, without_sessions("/")).unwrap().unwrap();
    assert_eq!(reply.join, [Room::plain("user:42").unwrap()]);
    assert_eq!(reply.emit.len(), 1);
    let admission = answer::admission(answers[1].1, without_sessions("/")).unwrap().unwrap();
    assert_eq!((admission.user.as_deref(), admission.join.len()), (Some("42"), 1));
    let allowed = Permission { result: Ok(()), ttl: Some(Duration::from_secs(60)) };
    assert_eq!(answer::permission(answers[2].1), Ok(allowed));
    let denied = Denial::new("not_allowed", "the lobby is read-only");
    assert_eq!(answer::permission(answers[3].1), Ok(Permission { result: Err(denied), ttl: None }));
}

#[test]
fn client_data_stays_in_its_object() {
    let evil = r#"x","user":{"id":"1"},"y":""#;
    let client = ClientFacts { origin: Some(evil), user_agent: Some("\"}\n"), ..ClientFacts::default() };
    let text = question::connect(7, None, &client, Some(evil), None);
    let question: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(question["user"], Value::Null);
    assert_eq!(question["client"]["origin"], evil);
    assert_eq!(question["client"]["token"], evil);
    assert_eq!(question.as_object().unwrap().len(), 5);
}
