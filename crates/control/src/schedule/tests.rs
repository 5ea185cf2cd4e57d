mod holds;
mod limits;
mod model;
mod redirects;
mod simulation;

use super::results::{RETRY_MIN, backoff};
use super::*;
use crate::options::UpstreamOptions;
use bytes::Bytes;
use stentor_hub::Document;
use stentor_ports::DocumentChange;

fn options() -> FeedsOptions {
    let upstream = |prefix: &str, poll_interval| UpstreamOptions {
        prefix: prefix.into(),
        poll_interval: Duration::from_secs(poll_interval),
        concurrency_max: 2,
        ..UpstreamOptions::default()
    };
    FeedsOptions {
        upstreams: vec![upstream("a", 10), upstream("b", 1), upstream("a/b", 5)],
        keys_max: 6,
        documents_bytes_max: 100,
        fetches_max: 4,
        retry_after_max: Duration::from_secs(60),
        not_found_after: Duration::ZERO,
        not_found_retry_interval: Duration::from_secs(60),
        ..FeedsOptions::default()
    }
}

/// Returns options with limits for many keys and fetches. `change` changes the upstream with the index `nth`.
fn upstream_options(nth: usize, change: impl FnOnce(&mut UpstreamOptions)) -> FeedsOptions {
    let mut options = FeedsOptions { fetches_max: 1000, keys_max: 1000, ..options() };
    change(&mut options.upstreams[nth]);
    options
}

/// A scheduler on a clock of whole seconds, and short helpers for inputs and outputs.
struct Bench {
    scheduler: Scheduler,
    zero: Instant,
    now: Instant,
}

impl Bench {
    fn new(options: FeedsOptions) -> Self {
        let zero = Instant::now();
        Self { scheduler: Scheduler::new(options, 1), zero, now: zero }
    }

    fn at(&mut self, seconds: u64) -> &mut Self {
        self.now = self.zero + Duration::from_secs(seconds);
        self
    }

    fn want(&mut self, key: &str, wanted: bool) -> &mut Self {
        self.scheduler.handle_wanted(self.now, &Key::parse(key).unwrap(), wanted, &[]);
        self
    }

    fn want_all(&mut self, keys: &[&str]) -> &mut Self {
        keys.iter().for_each(|key| _ = self.want(key, true));
        self
    }

    /// Fetches these keys one after another, and returns documents.
    #[track_caller]
    fn fetch_all(&mut self, keys: &[&str]) -> &mut Self {
        for key in keys {
            self.want(key, true).check(key, "").result(key, fresh("1")).check("", &format!("{key}=1"));
        }
        self
    }

    /// Requests a key for the session `session` of the address `source`.
    fn want_by(&mut self, key: &str, source: u64, session: u64) -> &mut Self {
        let requester = requester(source, session);
        self.scheduler.handle_wanted(self.now, &Key::parse(key).unwrap(), true, &[requester]);
        self
    }

    fn result(&mut self, key: &str, outcome: Outcome) -> &mut Self {
        self.scheduler.handle_result(self.now, &Key::parse(key).unwrap(), outcome);
        self
    }

    /// Starts all fetches that may start now. Returns their keys.
    fn jobs(&mut self) -> String {
        let mut keys = Vec::new();
        while let Some(job) = self.scheduler.poll_fetch(self.now) {
            keys.push(job.key.to_string());
        }
        if let Some(next) = self.scheduler.poll_timeout() {
            assert!(next > self.now, "a time-out that has passed spins");
        }
        keys.join(" ")
    }

    /// Takes all updates. Returns them as `key=document` or `key:state`.
    fn events(&mut self) -> String {
        let mut events = Vec::new();
        while let Some((key, update)) = self.scheduler.poll_event() {
            events.push(match update {
                FeedUpdate::Changed(DocumentChange { document, .. }) => {
                    format!("{key}={}", String::from_utf8_lossy(&document.body))
                }
                FeedUpdate::At { .. } | FeedUpdate::Confirmed(_) => {
                    panic!("the control plane assigns no positions")
                }
                FeedUpdate::State { state, .. } => format!("{key}:{}", state.as_str()),
                FeedUpdate::Forget => format!("{key}:forget"),
                FeedUpdate::Refuse(requester) => format!("{key}:refuse:{}", requester.session.to_bits()),
            });
        }
        events.join(" ")
    }

    #[track_caller]
    fn check(&mut self, jobs: &str, events: &str) -> &mut Self {
        assert_eq!((self.jobs().as_str(), self.events().as_str()), (jobs, events));
        self
    }

    #[track_caller]
    fn next(&mut self, seconds: Option<u64>) -> &mut Self {
        let next = self.scheduler.poll_timeout().map(|at| (at - self.zero).as_secs());
        assert_eq!(next, seconds);
        self
    }

    /// Asserts that the next retry is due within this time, and advances the clock to it.
    #[track_caller]
    fn retry_within(&mut self, seconds: u64) -> &mut Self {
        let wait = self.scheduler.poll_timeout().expect("a retry") - self.now;
        assert!(wait >= RETRY_MIN && wait <= Duration::from_secs(seconds), "{wait:?}");
        self.now += wait;
        self
    }
}

pub(super) fn requester(source: u64, session: u64) -> Requester {
    Requester { source, core: 0, session: stentor_hub::SessionId::from_bits(session) }
}

pub(super) fn change(body: &str) -> DocumentChange {
    let document = Document {
        body: Bytes::copy_from_slice(body.as_bytes()),
        json: false,
        content_type: "text/plain".into(),
    };
    document.into()
}

fn fresh(body: &str) -> Outcome {
    fresh_for(body, Freshness::Unsaid)
}

fn fresh_for(body: &str, freshness: Freshness) -> Outcome {
    Outcome::Fresh { change: change(body), validators: Validators::default(), freshness }
}

fn same() -> Outcome {
    Outcome::Same { validators: None, freshness: Freshness::Unsaid }
}

fn failed() -> Outcome {
    failed_with(FailureClass::ServerError, None)
}

/// Makes a failure. The class `TooManyRequests` (429) also pauses the upstream.
pub(super) fn failed_with(class: FailureClass, retry_after: Option<Duration>) -> Outcome {
    Outcome::Failed { class, reason: "no".into(), retry_after, pause: class == FailureClass::TooManyRequests }
}

fn lost() -> Outcome {
    Outcome::NotFound { reason: "404".into() }
}

/// The next larger blocks of mimalloc have 224 and 96 bytes.
#[test]
fn a_key_takes_small_blocks_besides_its_document() {
    let version = size_of::<[usize; 2]>() + size_of::<Version>();
    assert!(size_of::<Entry>() <= 192 && version <= 80, "{} and {version}", size_of::<Entry>());
}

#[test]
fn a_wanted_key_is_fetched_at_its_interval() {
    let mut bench = Bench::new(options());
    bench.next(None).want("a/x", true).check("a/x", "").next(None);
    bench.at(3).result("a/x", fresh("1")).check("", "a/x=1").next(Some(10));
    bench.at(10).check("a/x", "").at(11).result("a/x", same()).check("", "").next(Some(20));
    bench.at(20).check("a/x", "").at(35).result("a/x", fresh("2")).check("a/x", "a/x=2");
}

/// The common times of an interval of ten seconds are ten milliseconds apart.
#[test]
fn refreshes_begin_at_common_times() {
    let mut bench = Bench::new(options());
    let after = |bench: &mut Bench, millis: u64| bench.now = bench.zero + Duration::from_millis(millis);
    bench.fetch_all(&["a/x"]);
    after(&mut bench, 13);
    bench.fetch_all(&["a/y"]);
    after(&mut bench, 18);
    bench.fetch_all(&["a/z"]).at(10).check("a/x", "").result("a/x", same());
    after(&mut bench, 10_009);
    bench.check("", "");
    // The delay of a fetch doesn't add up.
    after(&mut bench, 10_015);
    bench
        .check("a/y a/z", "")
        .result("a/y", same())
        .result("a/z", same())
        .at(20)
        .check("a/x", "")
        .result("a/x", same());
    after(&mut bench, 20_009);
    bench.check("", "");
    after(&mut bench, 20_010);
    bench.check("a/y a/z", "");
}

#[test]
fn the_longest_prefix_wins_and_unknown_keys_are_reported() {
    let mut bench = Bench::new(options());
    bench.want("a/b/c", true);
    assert_eq!(bench.scheduler.poll_fetch(bench.now).map(|job| job.upstream), Some(2));
    bench.want("ab", true);
    assert_eq!(bench.scheduler.poll_fetch(bench.now).map(|job| job.upstream), Some(0));
    bench.want("c", true).check("", "c:not_found c:forget").want("c", false).check("", "");
    assert_eq!(bench.scheduler.stats().keys, 2);
    assert_eq!(bench.scheduler.stats().counters.unknown_keys, 1);
}

#[test]
fn max_age_wins_over_the_interval() {
    fn check_within(bounds: [u64; 2], freshness: Freshness, next: Option<u64>) {
        let [max_age_min, max_age_max] = bounds.map(Duration::from_secs);
        let options = upstream_options(0, |a| *a = UpstreamOptions { max_age_min, max_age_max, ..a.clone() });
        let mut bench = Bench::new(options);
        bench.want("a", true).check("a", "").at(1).result("a", fresh_for("1", freshness)).jobs();
        bench.next(next);
    }
    let check = |freshness, next| check_within([1, 0], freshness, next);
    check(Freshness::Unsaid, Some(10));
    check(Freshness::For(Duration::from_secs(3)), Some(4));
    check(Freshness::For(Duration::from_secs(300)), Some(301));
    check(Freshness::For(Duration::ZERO), Some(2));
    check(Freshness::For(Duration::MAX), Some(1 + 24 * 3600));
    check(Freshness::Over, None);
    for (seconds, next) in [(3, 6), (5, 6), (30, 31), (60, 61), (300, 61)] {
        check_within([5, 60], Freshness::For(Duration::from_secs(seconds)), Some(next));
    }
    check_within([5, 60], Freshness::Unsaid, Some(10));
    check_within([5, 3 * 24 * 3600], Freshness::For(Duration::MAX), Some(1 + 3 * 24 * 3600));
}

#[test]
fn a_complete_key_is_published_once_and_not_fetched_again() {
    let mut bench = Bench::new(options());
    bench.want("a", true).check("a", "");
    bench.result("a", fresh_for("last", Freshness::Over)).check("", "a=last a:complete").next(None);
    bench.at(1000).check("", "").want("a", false).at(1001).want("a", true).check("", "").next(None);

    bench.want("b", true).check("b", "").result("b", Outcome::Gone { reason: "410".into() });
    bench.check("", "b:complete").next(None);
    // The home core doesn't keep the state of a key without a document, so a new subscriber causes another
    // update.
    bench.want("b", false).want("b", true).check("", "b:complete");
}

#[test]
fn errors_keep_the_document_back_off_and_are_reported_once() {
    let mut bench = Bench::new(options());
    bench.fetch_all(&["b"]).at(1).check("b", "");
    bench.result("b", failed()).check("", "b:stale").retry_within(1).check("b", "");
    bench.result("b", failed()).check("", "").retry_within(2).check("b", "");
    for _ in 0..40 {
        bench.result("b", failed()).check("", "").retry_within(60).check("b", "");
    }
    assert_eq!(bench.scheduler.stats().documents_bytes, 1);
    bench.result("b", same()).check("", "b:live").retry_within(1).check("b", "").result("b", failed());
    bench.check("", "b:stale").retry_within(1).check("b", "").result("b", fresh("2")).check("", "b=2");
}

#[test]
fn jitter_covers_the_whole_range() {
    let options = options();
    let mut random = Rng::with_seed(7);
    let waits: Vec<_> = (0..1000).map(|_| backoff(&options, 4, &mut random).as_secs_f64()).collect();
    let mean = waits.iter().sum::<f64>() / 1000.0;
    assert!(waits.iter().all(|wait| (0.1..=8.0).contains(wait)));
    assert!((3.5..4.5).contains(&mean), "{mean}");
    assert!(waits.iter().any(|wait| *wait < 0.5) && waits.iter().any(|wait| *wait > 7.5));
    assert!(backoff(&options, u32::MAX, &mut random) <= options.backoff_max);
}

#[test]
fn retry_after_is_obeyed_within_bounds() {
    fn check(class: FailureClass, retry_after: u64, least: u64, most: u64) {
        let retry_after_max = FeedsOptions::default().retry_after_max;
        // `backoff_max` doesn't limit a delay by `Retry-After`.
        let mut bench =
            Bench::new(FeedsOptions { retry_after_max, backoff_max: Duration::from_secs(3), ..options() });
        let retry_after = Some(Duration::from_secs(retry_after));
        bench.want("b", true).check("b", "");
        bench.result("b", failed_with(class, retry_after)).check("", "b:stale");
        let wait = bench.scheduler.poll_timeout().unwrap() - bench.now;
        assert!(wait >= Duration::from_secs(least) && wait <= Duration::from_secs(most), "{wait:?}");
    }
    check(FailureClass::ServerError, 0, 0, 1);
    check(FailureClass::ServerError, 20, 20, 20);
    check(FailureClass::ServerError, 1_000_000, 60, 60);
    check(FailureClass::TooManyRequests, 30, 30, 30);
    check(FailureClass::TooManyRequests, 1_000_000, 3600, 3600);
}

#[test]
fn a_503_with_retry_after_holds_its_upstream_until_a_fetch_succeeds() {
    let mut bench = Bench::new(upstream_options(1, |upstream| upstream.concurrency_max = 10));
    let busy = || failed_with(FailureClass::ServerError, Some(Duration::from_secs(20)));
    let held = |bench: &Bench| bench.scheduler.lanes().nth(1).unwrap().held_until;
    bench.want_all(&["b1", "b2", "b3", "b4"]).check("b1 b2 b3 b4", "");
    bench.result("b1", busy()).result("b2", fresh("1")).check("", "b1:stale b2=1");
    // One key in four has failed with `Retry-After`, which doesn't hold the other keys of the upstream.
    bench.at(1).check("b2", "");
    assert_eq!(held(&bench), None);
    bench.result("b2", busy()).result("b3", busy()).result("b4", busy()).events();
    bench.want("b5", true).check("", "").next(Some(20)).at(20).check("", "");
    assert_eq!(held(&bench), Some(bench.zero + Duration::from_secs(21)));
    let keys = bench.at(21).jobs();
    assert_eq!(keys.split(' ').count(), 5, "{keys}");
    // The first successful fetch ends the hold.
    bench.result("b1", busy()).result("b2", busy()).result("b3", fresh("1")).events();
    assert_eq!(held(&bench), None);
    bench.want("b6", true).check("b6", "");
}

#[test]
fn a_not_found_key_requested_in_a_loop_is_still_retried() {
    let mut bench = Bench::new(options());
    bench.want("a", true).check("a", "").result("a", lost()).check("", "a:not_found").want("a", false);
    // Each subscriber receives `not_found`, which ends its subscription before a fetch is due.
    for at in 1..60 {
        bench.at(at).want("a", true).check("", "a:not_found").want("a", false).check("", "");
    }
    bench.at(60).check("a", "").result("a", lost()).check("", "");
    // Without a new subscription, no fetch is due, and the key is forgotten.
    bench.at(88).check("", "").at(89).check("", "a:forget").at(90);
    bench.want("a", true).check("a", "").result("a", lost()).check("", "a:not_found").want("a", false);
    bench.at(95).want("a", true).check("", "a:not_found").want("a", false).check("", "");
    bench.at(124).want("a", true).check("", "a:not_found").want("a", false);
    bench.at(150).check("a", "").result("a", fresh("1")).check("", "a=1");
}

#[test]
fn a_not_found_key_is_reported_and_retried_rarely() {
    let mut bench = Bench::new(options());
    bench.want("a", true).check("a", "").result("a", lost()).check("", "a:not_found").next(Some(60));
    // Another subscriber receives the state at once, without a fetch.
    bench.at(1).want("a", true).check("", "a:not_found").next(Some(60));
    bench.at(60).check("a", "").result("a", lost()).check("", "").next(Some(120));
    bench.at(120).check("a", "").result("a", failed()).check("", "").next(Some(180));
    bench.at(180).check("a", "").result("a", fresh("1")).check("", "a=1").next(Some(190));
    // The key had a document and is now not found. The scheduler drops the document, so a later one is a new
    // version.
    bench.at(190).check("a", "").result("a", lost()).check("", "a:not_found");
    assert_eq!(bench.scheduler.stats().documents_bytes, 0);
    // Without subscribers the key isn't fetched, and is forgotten.
    bench.want("a", false).check("", "").next(Some(220)).at(220).check("", "a:forget").next(None);
    assert_eq!(bench.scheduler.stats().keys, 0);
}

#[test]
fn a_document_stays_while_its_upstream_answers_404_for_a_while() {
    let mut options = options();
    options.not_found_after = Duration::from_secs(30);
    let mut bench = Bench::new(options);
    bench.fetch_all(&["a"]).at(10).check("a", "").result("a", lost()).check("", "a:stale").next(Some(20));
    assert_eq!(bench.scheduler.lanes().next().unwrap().failing[FailureClass::NotFound as usize], 1);
    // Another failure than 404 doesn't make the key `not_found`.
    bench.at(20).check("a", "").result("a", failed()).check("", "a:stale").retry_within(1).check("a", "");
    bench.result("a", lost()).check("", "a:stale");
    for at in [31, 42] {
        bench.at(at).check("a", "").result("a", lost()).check("", "");
    }
    bench.at(51).check("a", "").result("a", lost()).check("", "a:not_found").next(Some(111));
    assert_eq!(bench.scheduler.stats().documents_bytes, 0);
    assert_eq!(bench.scheduler.lanes().next().unwrap().failing[FailureClass::NotFound as usize], 0);
    // When the upstream has the document again, it is a new version.
    bench.at(111).check("a", "").result("a", fresh("1")).check("", "a=1");
    bench.at(121).check("a", "").result("a", lost()).check("", "a:stale");
    bench.at(131).check("a", "").result("a", same()).check("", "a:live");
}

#[test]
fn keys_that_do_not_exist_share_a_tenth_of_the_capacity() {
    let mut options = upstream_options(0, |upstream| {
        upstream.concurrency_max = 20;
        upstream.requests_per_second_max = 100;
    });
    options.not_found_retry_interval = Duration::from_secs(5);
    let mut bench = Bench::new(options);
    let keys: Vec<_> = (0..20).map(|n| format!("a{n}")).collect();
    for key in &keys {
        bench.want(key, true);
        bench.now += Duration::from_millis(100);
        bench.check(key, "").result(key, lost()).check("", &format!("{key}:not_found"));
    }
    bench.at(60);
    assert_eq!(bench.jobs(), "a0");
    // Keys that don't exist may use a tenth: ten fetches per second, two at a time.
    bench.now += Duration::from_millis(100);
    assert_eq!(bench.jobs(), "a1");
    bench.now += Duration::from_millis(100);
    assert_eq!(bench.jobs(), "");
    // New keys are fetched before keys that don't exist.
    bench.result("a0", lost());
    bench.want_all(&["ax0", "ax1"]).check("ax0 ax1 a2", "");
}

#[test]
fn a_key_without_subscribers_lingers() {
    let mut bench = Bench::new(options());
    bench.fetch_all(&["a"]);
    bench.at(5).want("a", false).check("", "").next(Some(10));
    bench.at(10).check("a", "").result("a", fresh("2")).check("", "a=2");
    bench.at(20).check("a", "").result("a", fresh("3")).check("", "a=3");
    // A client that subscribes to a lingering key causes neither a fetch nor another update.
    bench.at(25).want("a", true).check("", "").want("a", false).at(30).check("a", "").result("a", same());
    bench.check("", "").at(55).check("", "a:forget").next(None);
    bench.want("a", true).check("a", "").result("a", fresh("3")).check("", "a=3");
}

#[test]
fn a_fetch_that_outlives_the_linger_time_is_forgotten() {
    let mut bench = Bench::new(options());
    bench.want("a", true).check("a", "").want("a", false).next(None);
    bench.at(31).check("", "").result("a", fresh("1")).check("", "").next(None);
    assert_eq!(bench.scheduler.stats(), Stats::default());
    // A client subscribes again before the response arrives, so the response is used.
    bench.want("a", true).check("a", "").want("a", false).at(35).want("a", true).check("", "");
    bench.at(36).result("a", fresh("1")).check("", "a=1");
}

#[test]
fn resubscribing_causes_no_fetch() {
    let mut bench = Bench::new(options());
    bench.fetch_all(&["a"]);
    let resubscribe = |bench: &mut Bench, times| {
        for _ in 0..times {
            bench.want("a", false).check("", "").want("a", true).check("", "");
        }
    };
    resubscribe(&mut bench, 1000);
    bench.next(Some(10)).at(10).check("a", "");
    // Resubscribing during a fetch and during the delay after a failure also changes nothing.
    resubscribe(&mut bench, 10);
    bench.result("a", failed()).check("", "a:stale");
    let retry = bench.scheduler.poll_timeout();
    resubscribe(&mut bench, 10);
    assert_eq!(bench.scheduler.poll_timeout(), retry);
}

#[test]
fn workers_are_bounded_per_upstream_and_process_and_shared_fairly() {
    let mut bench = Bench::new(options());
    // There are four workers. One is reserved for each of the three upstreams, and all share the fourth.
    bench.want_all(&["a1", "a2", "a3", "b1", "b2"]).check("a1 b1 a2", "").next(None);
    // First fetches leave half of the upstream's workers to keys with a document.
    bench.result("b1", fresh("1")).check("b2", "b1=1").result("a1", fresh("1")).check("", "a1=1");
    bench.result("a2", fresh("1")).check("a3", "a2=1");
    // A key that loses its subscribers before its turn isn't fetched.
    bench.want("a4", true).check("", "").want("a4", false).result("a3", fresh("1"));
    bench.check("", "a3=1").want("a4", true).check("a4", "");
}

#[test]
fn fetches_of_an_upstream_keep_to_its_rate() {
    let mut bench = Bench::new(upstream_options(1, |upstream| {
        upstream.requests_per_second_max = 4;
        upstream.concurrency_max = 100;
    }));
    bench.want_all(&["b1", "b2", "b3", "a1"]);
    // The rate of the upstream `b` doesn't delay keys of the upstream `a`.
    bench.check("a1 b1", "");
    let lane = |bench: &Bench| bench.scheduler.lanes().nth(1).unwrap();
    let stats = |lane: LaneStats| (lane.in_flight, lane.waiting, lane.rate_waits);
    assert_eq!(stats(lane(&bench)), (1, 2, 1));
    let quarter = Duration::from_millis(250);
    for key in ["b2", "b3"] {
        assert_eq!(bench.scheduler.poll_timeout(), Some(bench.now + quarter));
        bench.check("", "");
        bench.now += quarter;
        bench.check(key, "");
    }
    assert_eq!(stats(lane(&bench)), (3, 0, 2));
    // An idle upstream saves up no fetches for later.
    bench.next(None).at(100).want("b4", true).want("b5", true).check("b4", "").at(101).check("b5", "");
}

#[test]
fn at_a_high_rate_a_tenth_of_a_second_may_begin_at_once() {
    let mut bench = Bench::new(upstream_options(1, |upstream| {
        upstream.requests_per_second_max = 1000;
        upstream.concurrency_max = 1000;
    }));
    for n in 0..300 {
        bench.want(&format!("b{n}"), true);
    }
    assert_eq!(bench.jobs().split(' ').count(), 100);
    bench.now += Duration::from_millis(50);
    assert_eq!(bench.jobs().split(' ').count(), 50);
}

#[test]
fn the_interval_is_longer_where_the_rate_does_not_allow_the_configured_one() {
    let mut bench = Bench::new(upstream_options(1, |upstream| upstream.requests_per_second_max = 1));
    let interval = |bench: &Bench| bench.scheduler.lanes().nth(1).unwrap().interval.as_secs();
    bench.want_all(&["b1", "b2", "b3"]);
    for second in 0..40 {
        let key = bench.at(second).jobs();
        bench.result(&key, fresh("1"));
    }
    assert_eq!(interval(&bench), 3);
    // Two keys lose their subscribers. The rate now allows the configured interval for the remaining key.
    bench.want("b1", false).want("b2", false).at(100).jobs();
    for second in 100..104 {
        bench.at(second).result("b3", fresh("1")).jobs();
    }
    assert_eq!(interval(&bench), 1);
}

#[test]
fn an_upstream_that_answers_429_is_paused() {
    let mut bench = Bench::new(options());
    bench.want_all(&["b1", "b2", "b3", "b4", "a1"]).check("a1 b1 b2", "");
    let too_many = |retry_after| failed_with(FailureClass::TooManyRequests, Some(retry_after));
    let pause = Duration::from_secs(20);
    bench.at(1).result("b1", too_many(pause)).check("", "b1:stale");
    bench.result("a1", fresh("1")).check("", "a1=1");
    // The result of another fetch in flight doesn't end the pause.
    bench.at(2).result("b2", lost()).check("", "b2:not_found").want("b2", false);
    bench.at(9).check("", "").next(Some(10));
    bench.at(10).check("a1", "").next(Some(21)).at(21).check("b3 b4", "");
    bench.result("b3", too_many(pause));
    // The pause is at most `retry_after_max`.
    bench.result("b4", too_many(Duration::MAX)).want("a1", false).result("a1", same()).events();
    assert_eq!(bench.at(60).jobs(), "");
    assert_eq!(bench.at(81).jobs(), "b1 b3");
}

/// Answers the fetch `in_flight`, then runs `count` fetches one after another. Returns their keys in order.
fn order(bench: &mut Bench, in_flight: &str, count: usize) -> String {
    let mut order = vec![in_flight.to_owned()];
    for n in 0..count {
        bench.result(&order[n], fresh_for("2", Freshness::For(Duration::from_secs(3600))));
        order.push(bench.jobs());
        bench.events();
    }
    order[1..].join(" ")
}

#[test]
fn first_fetches_and_refreshes_alternate() {
    let mut bench = Bench::new(upstream_options(0, |upstream| upstream.concurrency_max = 1));
    bench.fetch_all(&["a1", "a2", "a3"]);
    bench.want_all(&["a4", "a5", "a6", "a7"]).check("a4", "").at(10).check("", "");
    assert_eq!(order(&mut bench, "a4", 6), "a1 a5 a2 a6 a3 a7");
}

#[test]
fn refreshes_that_are_late_by_ten_intervals_come_first() {
    let mut bench = Bench::new(upstream_options(0, |upstream| upstream.concurrency_max = 1));
    let keys: Vec<_> = (0..9).map(|n| format!("a{n}")).collect();
    bench.fetch_all(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    bench.want_all(&["ax", "ay"]).check("ax", "").at(110).check("", "");
    // A key that waits for its first fetch has a turn after seven late refreshes.
    assert_eq!(order(&mut bench, "ax", 10), "a0 a1 a2 a3 a4 a5 a6 ay a7 a8");
}

#[test]
fn first_fetches_leave_workers_for_refreshes() {
    let mut bench = Bench::new(upstream_options(0, |upstream| upstream.concurrency_max = 4));
    // While no key has a document, first fetches may use all workers of the upstream.
    bench
        .want_all(&["a1", "a2", "a3", "a4", "a5"])
        .check("a1 a2 a3 a4", "")
        .result("a1", fresh("1"))
        .check("", "a1=1");
    bench.result("a2", fresh("1")).check("", "a2=1").result("a3", fresh("1")).check("a5", "a3=1");
    for key in ["a4", "a5"] {
        bench.result(key, fresh("1"));
    }
    bench.events();
    // Now all five keys have documents. First fetches leave half of the workers free, so due refreshes don't
    // wait.
    for n in 0..20 {
        bench.want(&format!("ax{n}"), true);
    }
    bench.check("ax0 ax1", "").at(10);
    bench.check("a1 a2", "").result("a1", same()).check("a3", "");
    bench.result("ax0", fresh("1")).check("ax2", "ax0=1").result("a2", same()).check("a4", "");
}

#[test]
fn first_fetches_make_up_for_refreshes_that_ended_before_them() {
    let mut bench = Bench::new(upstream_options(0, |upstream| upstream.concurrency_max = 4));
    bench.fetch_all(&["a1", "a2", "a3", "a4", "a5", "a6", "a7"]);
    bench.at(10).want_all(&["ax1", "ax2", "ax3", "ax4"]).check("a1 ax1 a2 ax2", "");
    // Two first fetches are in flight, the maximum, so only refreshes start.
    bench.result("a1", same()).check("a3", "").result("a2", same()).check("a4", "");
    // Four refreshes have started, and two first fetches. So first fetches get both free workers.
    bench.result("ax1", fresh("1")).check("ax3", "ax1=1").result("ax2", fresh("1")).check("ax4", "ax2=1");
}

#[test]
fn first_fetches_are_not_starved_by_refreshes() {
    let options = upstream_options(1, |upstream| upstream.concurrency_max = 1);
    let mut bench = Bench::new(FeedsOptions { fetches_max: 1, ..options });
    // With 20 keys, a refresh is always due.
    for n in 0..20 {
        bench.fetch_all(&[&format!("b{n}")]);
    }
    bench.want("bnew", true);
    let mut waited = 0;
    loop {
        bench.now += Duration::from_millis(500);
        let job = bench.jobs();
        if job == "bnew" {
            break;
        }
        assert_ne!(job, "");
        bench.result(&job, same());
        waited += 1;
    }
    assert!(waited <= 8, "{waited}");
}

#[test]
fn a_session_with_thousands_of_new_keys_delays_no_other() {
    let options = upstream_options(0, |upstream| upstream.concurrency_max = 8);
    let mut bench = Bench::new(FeedsOptions { keys_max: 10_000, cold_keys_max: 1000, ..options });
    for session in 0..11 {
        for n in 0..1000 {
            bench.want_by(&format!("a{session}/{n}"), 1, session);
        }
    }
    // The table is full. Keys of the last session have replaced keys of sessions that wait for far more keys.
    // The replaced keys are reported as `not_found`. Further keys of the last session are refused.
    assert_eq!(bench.scheduler.stats().keys, 10_000);
    assert_eq!(bench.scheduler.stats().counters.refused_keys, 1000);
    let events = bench.events();
    let refused = events.split(' ').filter(|event| event.contains(":refuse:")).count();
    let displaced = events.split(' ').filter(|event| event.ends_with(":not_found")).count();
    assert_eq!((refused + displaced, events.split(' ').count()), (1000, 1000 + displaced));
    assert!((400..=500).contains(&displaced), "{displaced}");
    let mut in_flight = bench.jobs();
    assert_eq!(in_flight.split(' ').count(), 8);
    // Answers the fetches in flight until each session has had a turn.
    for _ in 0..5 {
        for key in in_flight.split(' ') {
            bench.result(key, lost());
        }
        in_flight = bench.jobs();
    }
    bench.events();
    // A session of another address requests a key, and a new session of the same address another.
    bench.want_by("amine", 2, 100).want_by("aours", 1, 101);
    assert_eq!(bench.scheduler.stats().counters.refused_keys, 1002);
    bench.events();
    let mut flying = in_flight.split(' ');
    let mut next = || flying.next().unwrap();
    bench.result(next(), lost());
    let first = bench.jobs();
    bench.result(next(), lost());
    assert_eq!((first.as_str(), bench.jobs().as_str()), ("amine", "aours"));
    // The next key of the session 100 waits for one turn, not for all other keys.
    bench.want_by("amine2", 2, 100);
    bench.result(next(), lost());
    bench.result(next(), lost());
    assert!(bench.jobs().split(' ').any(|key| key == "amine2"));
}

/// A session requests 900 keys at once. Their fetches take turns with those of other sessions.
#[test]
fn a_session_may_ask_for_all_its_keys_at_once() {
    let mut bench = Bench::new(FeedsOptions { keys_max: 10_000, fetches_max: 1, ..options() });
    for n in 0..900 {
        bench.want_by(&format!("a{n}"), 1, 1);
    }
    bench.check("a0", "");
    assert_eq!(bench.scheduler.stats().cold, 900);
    // Another session of the same address and a session of another address request a key each.
    bench.want_by("a-same", 1, 2).want_by("a-other", 2, 3);
    bench.result("a0", lost()).check("a-other", "a0:not_found");
    bench.result("a-other", lost()).check("a-same", "a-other:not_found");
    bench.result("a-same", lost()).check("a1", "a-same:not_found");
}

#[test]
fn a_key_is_fetched_for_the_requester_that_waits_for_fewer() {
    let mut bench = Bench::new(FeedsOptions { keys_max: 1000, fetches_max: 1, ..options() });
    for n in 0..100 {
        bench.want_by(&format!("a{n}"), 1, 1);
    }
    bench.check("a0", "");
    // A second session requests a key that is far behind in the first session's queue.
    bench.want_by("a90", 2, 2).result("a0", lost());
    bench.check("a90", "a0:not_found");
    bench.result("a90", lost()).check("a1", "a90:not_found");
}

#[test]
fn a_session_waits_for_a_bounded_number_of_first_fetches() {
    let mut bench = Bench::new(FeedsOptions { cold_keys_max: 2, keys_max: 100, fetches_max: 1, ..options() });
    bench.want_by("a1", 1, 7).want_by("b1", 1, 7).check("a1 b1", "");
    // Keys with a fetch in flight don't count, so the session may wait for two more keys.
    bench.want_by("a2", 1, 7).want_by("b2", 1, 7).check("", "");
    bench.want_by("a3", 1, 7).want_by("a4", 1, 7).check("", "a3:refuse:7 a4:refuse:7");
    assert_eq!(bench.scheduler.stats().counters.refused_cold_keys, 2);
    // Another session may request `a3`. Since `a3` is then fetched for that session, the first session may
    // request it too.
    bench.want_by("a3", 1, 8).want_by("a3", 1, 7).check("", "");
    // A key with `REQUESTERS_MAX` known requesters may have unknown ones, so no requester is refused.
    let many: Vec<_> = (0..REQUESTERS_MAX).map(|_| requester(1, 7)).collect();
    bench.scheduler.handle_wanted(bench.now, &Key::parse("a4").unwrap(), true, &many);
    bench.check("", "");
    // When keys lose their subscribers, they no longer count, and the session may request other keys.
    for key in ["a2", "b2", "a4"] {
        bench.want(key, false);
    }
    bench.check("", "");
    assert_eq!(bench.scheduler.stats().cold, 3);
    bench.want_by("a5", 1, 7).check("", "").result("a1", lost()).check("a5", "a1:not_found");
    bench.result("a5", fresh("1")).check("a3", "a5=1");
}

#[test]
fn an_address_waits_for_a_bounded_number_of_first_fetches() {
    let mut bench = Bench::new(FeedsOptions { cold_keys_per_address_max: 3, fetches_max: 1, ..options() });
    bench.want_by("a1", 1, 7).check("a1", "");
    // Three keys of two sessions of an address wait. Further keys of this address are refused, also of a
    // third session. Sessions of other addresses aren't refused.
    bench.want_by("a2", 1, 7).want_by("a3", 1, 7).want_by("a4", 1, 8).check("", "");
    bench.want_by("a5", 1, 9).want_by("a6", 1, 7).check("", "a5:refuse:9 a6:refuse:7");
    bench.want_by("a5", 2, 10).want_by("a6", 0, 11).check("", "");
    assert_eq!(bench.scheduler.stats().counters.refused_cold_keys, 2);
    bench.want("a4", false).want_by("a7", 1, 9).check("", "");
}

#[test]
fn keys_are_bounded_and_keys_without_subscribers_are_evicted() {
    let mut bench = Bench::new(FeedsOptions { keys_max: 2, ..options() });
    bench.want("a1", true).want("a2", true).want("a3", true).check("a1 a2", "a3:not_found a3:forget");
    bench.result("a1", fresh("1")).result("a2", fresh("1")).check("", "a1=1 a2=1");
    bench.at(1).want("a2", false).at(2).want("a1", false).want("a3", true).check("a3", "a2:forget");
    let stats = bench.scheduler.stats();
    assert_eq!((stats.keys, stats.counters.refused_keys, stats.counters.evicted_keys), (2, 1, 1));
    // The key `a3` has no subscribers, but its fetch is in flight, so it isn't evicted.
    bench.want("a3", false).want("a1", true).want("a4", true).check("", "a4:not_found a4:forget");
}

#[test]
fn keys_that_were_never_fetched_displace_documents_in_half_of_the_table() {
    let mut bench = Bench::new(FeedsOptions { keys_max: 6, fetches_max: 1, ..options() });
    for key in ["a1", "a2", "a3", "a4"] {
        bench.want(key, true).check(key, "").result(key, fresh("1")).want(key, false);
        bench.check("", &format!("{key}=1"));
    }
    bench.want_by("ax1", 1, 1).want_by("ax2", 1, 1).check("ax1", "");
    // A third key that was never fetched evicts a document. A fourth one of the same session is refused. A
    // key of another session replaces a key of the first session.
    bench.want_by("ax3", 1, 1).check("", "a1:forget");
    bench.want_by("ax4", 1, 1).check("", "ax4:refuse:1");
    bench.want_by("ay1", 2, 2).check("", "ax3:not_found ax3:forget");
    // A key that has neither a document nor subscribers is removed first.
    bench.result("ax1", lost()).want("ax1", false).want_by("ay2", 2, 2);
    bench.check("ay1", "ax1:not_found ax1:forget");
}

#[test]
fn a_key_is_fetched_for_a_requester_that_is_known_later() {
    let mut bench = Bench::new(FeedsOptions { keys_max: 100, fetches_max: 1, ..options() });
    for n in 0..10 {
        bench.want(&format!("a{n}"), true);
    }
    bench.check("a0", "");
    // Requester 1 waits for more keys than unknown requesters, but is the only known requester of `a9`.
    for n in 0..20 {
        bench.want_by(&format!("ax{n}"), 1, 1);
    }
    bench.want_by("a9", 1, 1);
    let owner = bench.scheduler.entries[&Key::parse("a9").unwrap()].owner;
    assert_eq!(owner, Owner::from(&requester(1, 1)));
}

#[test]
fn documents_are_bounded_together() {
    let mut bench = Bench::new(options());
    let big = "x".repeat(60);
    for key in ["a1", "b1"] {
        bench.want(key, true).check(key, "");
    }
    bench.result("a1", fresh(&big)).check("", &format!("a1={big}"));
    bench.result("b1", fresh(&big)).check("", "b1:stale");
    assert_eq!(bench.scheduler.stats().counters.refused_documents, 1);
    assert_eq!(bench.scheduler.stats().documents_bytes, 60);
    // A new version uses the space of the key's previous version.
    bench.at(10).check("a1 b1", "").result("a1", fresh(&"y".repeat(100)));
    bench.check("", &format!("a1={}", "y".repeat(100)));
    // A key without subscribers is evicted to make space.
    bench.want("a1", false).result("b1", fresh(&big)).check("", &format!("a1:forget b1={big}"));
    assert_eq!(bench.scheduler.stats().documents_bytes, 60);
}

#[test]
fn an_inconsistent_upstream_or_caller_does_no_harm() {
    let mut bench = Bench::new(options());
    bench.want("a", true).check("a", "").result("a", same()).check("", "a:stale");
    bench.result("a", fresh("unasked")).result("zzz", fresh("unasked")).check("", "");
    bench.want("never", false).check("", "");
}

#[test]
fn failing_keys_are_listed_first_then_the_slowest() {
    let mut bench = Bench::new(options());
    bench.fetch_all(&["a/1", "a/2", "b"]);
    let listed = |bench: &Bench, search: &str, limit| {
        let list = bench.scheduler.list(&KeysQuery { search: search.into(), limit });
        let keys = list.keys.iter().map(|listed| {
            let state = listed.state.map_or("cold", FeedState::as_str);
            format!("{} {state} {} {}", listed.key, listed.failures, listed.fetch_time.as_secs())
        });
        (keys.collect::<Vec<_>>().join(", "), list.count)
    };
    bench.at(10).jobs();
    bench.at(11).want("a/3", true).result("a/1", same()).at(13).result("a/2", same());
    assert_eq!(listed(&bench, "a/", 9), ("a/2 live 0 3, a/1 live 0 1, a/3 cold 0 0".into(), 3));
    bench.result("b", failed());
    assert_eq!(listed(&bench, "", 2), ("b stale 1 3, a/2 live 0 3".into(), 4));
    assert_eq!(listed(&bench, "nothing", 2), (String::new(), 0));
    // The times of a key: failing since, last success, next fetch.
    let times = |bench: &Bench, key: &str| {
        let list = bench.scheduler.list(&KeysQuery { search: key.into(), limit: 1 });
        let ListedKey { failing_since, succeeded_at, due, .. } = list.keys[0];
        let seconds = |at: Instant| at.duration_since(bench.zero).as_secs();
        [failing_since, succeeded_at, due].map(|at| at.map(seconds))
    };
    assert_eq!(times(&bench, "a/2"), [None, Some(13), Some(20)]);
    assert_eq!(times(&bench, "a/3"), [None, None, Some(11)]);
    assert_eq!(times(&bench, "b")[..2], [Some(13), Some(0)]);
    bench.at(20).jobs();
    bench.at(21).result("b", failed());
    assert_eq!(times(&bench, "b")[..2], [Some(13), Some(0)], "since the first failure");
    bench.at(40).jobs();
    assert_eq!(times(&bench, "b")[2], None, "during a fetch");
    bench.result("b", same());
    assert_eq!(times(&bench, "b")[..2], [None, Some(40)]);
}
