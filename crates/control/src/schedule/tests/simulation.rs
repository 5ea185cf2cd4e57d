//! The scheduler with simulated upstreams, on virtual time. Every run checks the limits at each start of a
//! fetch.

use super::super::*;
use super::{change, requester};
use std::collections::BTreeMap;

/// The response of an upstream: its duration, and the outcome of the fetch. `None` is a document.
pub(super) type Reply = (Duration, Option<Outcome>);

/// Returns the response to a request for a key at a time (since the start).
type Replies<'a> = Box<dyn FnMut(&Key, Duration) -> Reply + 'a>;

/// A started fetch.
pub(super) struct Start {
    pub(super) at: Duration,
    pub(super) key: Key,
    pub(super) upstream: usize,
    pub(super) first: bool,
    pub(super) took: Duration,
}

pub(super) struct Simulation<'a> {
    pub(super) scheduler: Scheduler,
    pub(super) options: FeedsOptions,
    zero: Instant,
    now: Instant,
    number: u64,
    replies: Replies<'a>,
    /// Fetches in flight, ordered by the time at which they end.
    in_flight: BTreeMap<(Instant, u64), (FetchJob, Option<Outcome>)>,
    pub(super) starts: Vec<Start>,
    /// Documents and states sent to the subscribers of each key, with their times.
    pub(super) told: BTreeMap<Key, Vec<(Duration, String)>>,
}

pub(super) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(super) fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

/// Returns options with upstreams with the prefixes `a`, `b`, …, default settings, and room for many keys.
pub(super) fn upstreams(count: usize, change: impl Fn(usize, &mut UpstreamOptions)) -> FeedsOptions {
    let upstream = |n: usize| {
        let mut upstream =
            UpstreamOptions { name: n.to_string(), prefix: format!("u{n}/"), ..UpstreamOptions::default() };
        change(n, &mut upstream);
        upstream
    };
    FeedsOptions {
        upstreams: (0..count).map(upstream).collect(),
        keys_max: 100_000,
        ..FeedsOptions::default()
    }
}

impl<'a> Simulation<'a> {
    pub(super) fn new(options: FeedsOptions, reply: impl FnMut(&Key, Duration) -> Reply + 'a) -> Self {
        let zero = Instant::now();
        Self {
            scheduler: Scheduler::new(options.clone(), 1),
            options,
            zero,
            now: zero,
            number: 0,
            replies: Box::new(reply),
            in_flight: BTreeMap::new(),
            starts: Vec::new(),
            told: BTreeMap::new(),
        }
    }

    pub(super) fn time(&self) -> Duration {
        self.now - self.zero
    }

    /// Requests these keys for a session of the address `source`.
    pub(super) fn want(&mut self, source: u64, keys: impl IntoIterator<Item = String>) -> &mut Self {
        for text in keys {
            self.scheduler.handle_wanted(self.now, &key(&text), true, &[requester(source, source)]);
        }
        self
    }

    pub(super) fn run_until(&mut self, until: Duration) -> &mut Self {
        let until = self.zero + until;
        loop {
            self.start();
            let next = self.in_flight.first_key_value().map(|((end, _), _)| *end);
            let next = [next, self.scheduler.poll_timeout()].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            while let Some(first) = self.in_flight.first_entry().filter(|first| first.key().0 <= self.now) {
                let (job, outcome) = first.remove();
                self.number += 1;
                let document = || match &job.kept {
                    Some(_) if self.number.is_multiple_of(2) => {
                        Outcome::Same { validators: None, freshness: Freshness::Unsaid }
                    }
                    _ => Outcome::Fresh {
                        change: change(&self.number.to_string()),
                        validators: Validators::default(),
                        freshness: Freshness::Unsaid,
                    },
                };
                let outcome = outcome.unwrap_or_else(document);
                self.scheduler.handle_result(self.now, &job.key, outcome);
            }
        }
        self.now = until;
        self
    }

    fn tell(&mut self) {
        while let Some((key, update)) = self.scheduler.poll_event() {
            let text = match update {
                FeedUpdate::Changed(_) => "document".into(),
                FeedUpdate::State { state, .. } => state.as_str().into(),
                FeedUpdate::Forget => "forget".into(),
                _ => continue,
            };
            let at = self.now - self.zero;
            self.told.entry(key).or_default().push((at, text));
        }
    }

    fn start(&mut self) {
        self.tell();
        while let Some(job) = self.scheduler.poll_fetch(self.now) {
            let at = self.now - self.zero;
            let (took, outcome) = (self.replies)(&job.key, at);
            let (key, upstream, first) = (job.key.clone(), job.upstream, job.kept.is_none());
            self.check(&key, upstream);
            self.starts.push(Start { at, key, upstream, first, took });
            self.number += 1;
            self.in_flight.insert((self.now + took, self.number), (job, outcome));
        }
        let next = self.scheduler.poll_timeout();
        assert!(next.is_none_or(|next| next > self.now), "it spins");
        self.tell();
    }

    /// Checks that a fetch of this key that starts now keeps to the limits.
    fn check(&self, key: &Key, upstream: usize) {
        assert!(self.in_flight.values().all(|(job, _)| job.key != *key), "two fetches of {key}");
        let options = &self.options.upstreams[upstream];
        let of_upstream = self.in_flight.values().filter(|(job, _)| job.upstream == upstream).count();
        assert!(of_upstream < options.concurrency_max, "{key}: concurrency_max");
        let fetches_max = self.options.fetches_max.max(self.options.upstreams.len());
        assert!(self.in_flight.len() < fetches_max, "{key}: fetches_max");
        let rate = options.requests_per_second_max;
        let most = rate + (rate / 10).max(1);
        let recent = self.starts.iter().rev().filter(|start| start.upstream == upstream);
        let since = self.time().saturating_sub(Duration::from_secs(1));
        let recent = recent.take_while(|start| start.at > since).count();
        assert!(recent < most, "{key}: {recent} requests within a second");
    }

    /// Returns the time at which the subscribers of the key `of` first received `what`.
    pub(super) fn first_received(&self, of: &str, what: &str) -> Option<Duration> {
        let told = self.told.get(&key(of))?;
        told.iter().find(|(_, text)| text == what).map(|(at, _)| *at)
    }

    /// Returns the longest interval between two starts of fetches of the same key within a period, of the
    /// keys for which the function returns `true`.
    pub(super) fn longest_interval(
        &self,
        of: impl Fn(&Key) -> bool,
        from: Duration,
        to: Duration,
    ) -> Duration {
        let mut last: BTreeMap<&Key, Duration> = BTreeMap::new();
        let mut longest = Duration::ZERO;
        for start in self.starts.iter().filter(|start| of(&start.key) && start.at <= to) {
            if let Some(before) = last.insert(&start.key, start.at)
                && start.at >= from
            {
                longest = longest.max(start.at - before);
            }
        }
        let unfinished = last.values().map(|before| to.saturating_sub(*before));
        unfinished.fold(longest, Duration::max)
    }
}

#[test]
fn first_documents_do_not_wait_for_refreshes_of_a_slow_api() {
    let options = upstreams(1, |_, _| {});
    let mut simulation = Simulation::new(options, |_, _| (ms(2000), None));
    simulation.want(1, (0..120).map(|n| format!("u0/{n}"))).run_until(ms(15_000));
    let without = |n: &usize| simulation.first_received(&format!("u0/{n}"), "document").is_none();
    assert_eq!((0..120).filter(without).count(), 0, "clients without a document");
    // The sufficient value is the number of keys, since a key has at most one fetch at a time.
    let limited_by = simulation.scheduler.lanes().next().unwrap().limited_by;
    assert_eq!(limited_by, Some((Limit::Concurrency, 120)));
    // At least half of the started fetches are refreshes.
    let within = |start: &&Start| start.at > ms(1000) && start.at < ms(11_000);
    let (first, refresh): (Vec<_>, Vec<_>) =
        simulation.starts.iter().filter(within).partition(|start| start.first);
    assert!(refresh.len() >= first.len() && first.len() >= 80, "{} {}", refresh.len(), first.len());
}

#[test]
fn a_flood_of_new_keys_at_most_doubles_the_interval_of_running_feeds() {
    let options = upstreams(1, |_, upstream| upstream.requests_per_second_max = 20);
    // Fetches of new keys hang until their timeout.
    let hangs = Outcome::failed(FailureClass::Timeout, "");
    let is_new = |key: &Key| key.as_str().starts_with("u0/new");
    let reply = |key: &Key, _| if is_new(key) { (ms(9000), Some(hangs.clone())) } else { (ms(100), None) };
    let mut simulation = Simulation::new(options, reply);
    // The first 20 keys use the whole rate.
    simulation.want(1, (0..20).map(|n| format!("u0/{n}"))).run_until(ms(5000));
    simulation.want(2, (0..10_000).map(|n| format!("u0/new{n}"))).run_until(ms(60_000));
    let longest = simulation.longest_interval(|key| !is_new(key), ms(5000), ms(60_000));
    assert!(longest <= ms(2200), "{longest:?}");
}

#[test]
fn sections_that_hang_do_not_delay_another() {
    // The last case has more sections than fetches.
    for (sections, fetches_max) in [(6, 256), (32, 256), (40, 32)] {
        let mut options = upstreams(sections, |_, upstream| upstream.poll_interval = ms(3_600_000));
        options.fetches_max = fetches_max;
        let reply = |key: &Key, _| {
            let is_healthy = key.as_str().starts_with("u0/");
            let hangs = Outcome::failed(FailureClass::Timeout, "");
            if is_healthy { (ms(100), None) } else { (ms(10_000), Some(hangs)) }
        };
        let mut simulation = Simulation::new(options, reply);
        for section in 1..sections {
            simulation.want(1, (0..40).map(|n| format!("u{section}/{n}")));
        }
        for at in 0..60 {
            simulation.run_until(ms(at * 500)).want(2, [format!("u0/{at}")]);
        }
        simulation.run_until(ms(31_000));
        for at in 0..60 {
            let told = simulation.first_received(&format!("u0/{at}"), "document").expect("a document");
            assert!(told <= ms(at * 500 + 200), "{sections} sections: asked at {} ms, {told:?}", at * 500);
        }
    }
}

/// During a deploy, the proxy in front of the API answers 404.
#[test]
fn no_subscription_ends_when_an_api_answers_404_during_a_deploy() {
    let not_found = Outcome::NotFound { reason: "404".into() };
    let (from, to) = (ms(5000), ms(6500));
    let reply = |_: &Key, at| (ms(20), (at >= from && at < to).then(|| not_found.clone()));
    let mut simulation = Simulation::new(upstreams(1, |_, _| {}), reply);
    simulation.want(1, (0..200).map(|n| format!("u0/{n}"))).run_until(ms(20_000));
    for (key, told) in &simulation.told {
        let stale = told.iter().position(|(_, text)| text == "stale").expect("it is stale");
        let (back, text) = &told[stale + 1];
        assert!(text != "not_found" && *back <= to + ms(2000), "{key}: {text} at {back:?}");
        assert!(told.iter().all(|(_, text)| text != "not_found"), "{key}");
    }
}

/// Clients request 1,000 keys that don't exist, again every second.
#[test]
fn keys_that_do_not_exist_delay_no_others() {
    let is_lost = |key: &Key| key.as_str().starts_with("u0/none");
    let not_found = Outcome::NotFound { reason: "404".into() };
    let reply = |key: &Key, _| (ms(500), is_lost(key).then(|| not_found.clone()));
    let mut simulation = Simulation::new(upstreams(1, |_, _| {}), reply);
    simulation.want(1, (0..30).map(|n| format!("u0/{n}")));
    for second in 0..60 {
        simulation.want(2, (0..1000).map(|n| format!("u0/none{n}"))).run_until(ms(second * 1000));
    }
    let longest = simulation.longest_interval(|key| !is_lost(key), ms(40_000), ms(59_000));
    assert!(longest <= ms(1100), "{longest:?}");
    // Keys that don't exist are still fetched: three at a time, each taking 0.5 s.
    let asked = simulation.starts.iter().filter(|start| is_lost(&start.key) && start.at > ms(40_000)).count();
    assert!((100..=130).contains(&asked), "{asked}");
}

fn server_error() -> Option<Outcome> {
    Some(Outcome::failed(FailureClass::ServerError, "500"))
}

/// Runs an outage that begins at 5 s. Returns the times of the first successful fetch of each key after it,
/// in order.
fn recoveries(keys: usize, outage: Duration, seed: u64) -> Vec<Duration> {
    let (from, to) = (ms(5000), ms(5000) + outage);
    let options = upstreams(1, |_, upstream| upstream.requests_per_second_max = 250);
    let reply = |_: &Key, at| (ms(20), if at >= from && at < to { server_error() } else { None });
    let mut simulation = Simulation::new(options, reply);
    simulation.scheduler.random = Rng::with_seed(seed);
    simulation.want(1, (0..keys).map(|n| format!("u0/{n}"))).run_until(to + ms(100_000));
    let recovery = |n: usize| {
        let told = &simulation.told[&key(&format!("u0/{n}"))];
        let back = told.iter().find(|(at, text)| *at > to && text != "stale").expect("it is back");
        back.0 - to
    };
    let mut recoveries: Vec<_> = (0..keys).map(recovery).collect();
    recoveries.sort_unstable();
    recoveries
}

#[test]
fn all_keys_are_back_soon_after_an_outage() {
    for seconds in [2, 8, 20, 60] {
        for (keys, seed) in [(200, 1), (200, 2), (5, 3), (5, 4), (1, 5), (1, 6)] {
            let recoveries = recoveries(keys, Duration::from_secs(seconds), seed);
            let most = *recoveries.last().unwrap();
            assert!(most <= ms(4000), "{keys} keys, {seconds} s: the last one after {most:?}");
            let most = recoveries[keys * 95 / 100];
            assert!(keys < 200 || most <= ms(2000), "{keys} keys, {seconds} s: 95 % after {most:?}");
        }
    }
}

#[test]
fn a_key_that_fails_alone_keeps_its_own_delay() {
    // The delay doesn't depend on how often other keys of the upstream are fetched.
    for poll_interval in [1, 60] {
        let options = upstreams(1, |_, upstream| upstream.poll_interval = Duration::from_secs(poll_interval));
        let reply = |key: &Key, _| (ms(20), if key.as_str() == "u0/bad" { server_error() } else { None });
        let mut simulation = Simulation::new(options, reply);
        simulation.want(1, (0..199).map(|n| format!("u0/{n}"))).want(1, ["u0/bad".into()]);
        simulation.run_until(ms(600_000));
        let requests = simulation.starts.iter().filter(|start| start.key == key("u0/bad")).count();
        // The delays are at most 1, 2, 4, … 60 s, and on average half of that.
        assert!((10..=35).contains(&requests), "{requests} requests");
    }
}

/// If an upstream answers one request in ten, a success makes all failing keys due, but at most every two
/// seconds. So the requests are no more than those to a working upstream.
#[test]
fn an_upstream_that_fails_mostly_is_not_asked_faster() {
    let mut random = Rng::with_seed(3);
    let reply = |_: &Key, _| (ms(20), if random.u32(..10) == 0 { None } else { server_error() });
    let mut simulation = Simulation::new(upstreams(1, |_, _| {}), reply);
    simulation.want(1, (0..200).map(|n| format!("u0/{n}"))).run_until(ms(60_000));
    let requests = simulation.starts.len();
    assert!(requests <= 200 * 60, "{requests} requests");
}

/// The behavior of an upstream.
#[derive(Clone, Copy, Debug)]
enum Behavior {
    Healthy,
    Slow,
    Failing,
    Hanging,
    /// Alternately up and down for this many seconds each.
    Flapping(u64),
    /// Answers 429 above this many requests per second.
    Limited(u64),
    /// Answers 404 for some keys always, and for the others during a deploy.
    Partial,
}

impl Behavior {
    fn any(random: &mut Rng) -> Self {
        match random.u32(..7) {
            0 => Self::Healthy,
            1 => Self::Slow,
            2 => Self::Failing,
            3 => Self::Hanging,
            4 => Self::Flapping(1 + random.u64(..9)),
            5 => Self::Limited(1 + random.u64(..5)),
            _ => Self::Partial,
        }
    }

    /// Returns the longest duration of a fetch.
    fn longest(self) -> Duration {
        match self {
            Self::Hanging => ms(10_000),
            Self::Slow => ms(2000),
            _ => ms(100),
        }
    }

    fn reply(self, key: &Key, at: Duration, recent: u64, random: &mut Rng) -> Reply {
        let failed = |class| Some(Outcome::failed(class, ""));
        let outcome = match self {
            Self::Healthy | Self::Slow => None,
            Self::Failing if random.u32(..5) > 0 => failed(FailureClass::ServerError),
            Self::Hanging if random.u32(..5) > 0 => return (self.longest(), failed(FailureClass::Timeout)),
            Self::Flapping(seconds) if at.as_secs() / seconds % 2 == 1 => failed(FailureClass::Connect),
            Self::Limited(most) if recent >= most => {
                let seconds = Duration::from_secs(random.u64(1..5));
                Some(super::failed_with(FailureClass::TooManyRequests, Some(seconds)))
            }
            Self::Partial if key.as_str().ends_with('7') || (20..25).contains(&at.as_secs()) => {
                Some(Outcome::NotFound { reason: "404".into() })
            }
            _ => None,
        };
        (self.longest() / (1 + random.u32(..4)), outcome)
    }
}

/// Runs a simulation. The limits, and "one fetch per key", are checked at each start. This function checks
/// that no key starves: a key with a document is fetched again when its own delay has passed and its section
/// could have made two and a half fetches of each of its keys; a key without a document, after eight fetches
/// of each.
fn run(seed: u64) {
    const OWN_DELAY: Duration = Duration::from_secs(10);
    let mut random = Rng::with_seed(seed);
    let sections = random.usize(1..5);
    let behaviors: Vec<Behavior> = (0..sections).map(|_| Behavior::any(&mut random)).collect();
    let concurrency: Vec<usize> = (0..sections).map(|_| random.usize(1..12)).collect();
    let rates: Vec<usize> = (0..sections).map(|_| random.usize(5..100)).collect();
    let mut options = upstreams(sections, |n, upstream| {
        upstream.concurrency_max = concurrency[n];
        upstream.requests_per_second_max = rates[n];
    });
    options.fetches_max = random.usize(1..30);
    options.backoff_max = OWN_DELAY;
    options.retry_after_max = OWN_DELAY;
    let counts: Vec<usize> = (0..sections).map(|_| random.usize(1..30)).collect();
    let mut replies = Rng::with_seed(seed);
    let mut recent: BTreeMap<(usize, u64), u64> = BTreeMap::new();
    let section = |key: &Key| key.as_str()[1..2].parse::<usize>().unwrap();
    let reply = |key: &Key, at: Duration| {
        let recent = recent.entry((section(key), at.as_secs())).or_default();
        *recent += 1;
        behaviors[section(key)].reply(key, at, *recent - 1, &mut replies)
    };
    let end = ms(100_000);
    let mut simulation = Simulation::new(options.clone(), reply);
    let mut wanted: BTreeMap<Key, Duration> = BTreeMap::new();
    for (n, count) in counts.iter().enumerate() {
        for i in 0..*count {
            let text = format!("u{n}/{i}");
            wanted.insert(key(&text), simulation.time());
            simulation.want(random.u64(..3), [text]);
            if random.u32(..4) == 0 {
                let time = simulation.time() + ms(random.u64(..400));
                simulation.run_until(time);
            }
        }
    }
    simulation.run_until(end);
    for (key, since) in wanted {
        let n = section(&key);
        let lost = simulation.told.get(&key).is_some_and(|told| told.iter().any(|(_, t)| t == "not_found"));
        if lost {
            // A key that doesn't exist isn't requested again in time.
            continue;
        }
        let share = (options.fetches_max / sections).max(1).min(concurrency[n]);
        let workers = u32::try_from(share.div_ceil(2)).unwrap();
        let one = (behaviors[n].longest() / workers).max(Duration::from_secs(1) / rates[n] as u32);
        // A limited upstream may allow only one request in each pause plus a second.
        let one = if matches!(behaviors[n], Behavior::Limited(_)) { one.max(ms(6000)) } else { one };
        let starts: Vec<_> = simulation.starts.iter().filter(|start| start.key == key).collect();
        let mut ended = since;
        let last = (end, starts.last().is_none_or(|start| start.first), Duration::ZERO);
        let starts = starts.iter().map(|start| (start.at, start.first, start.took));
        for (at, first, took) in starts.chain([last]) {
            let each = if first { one * 8 } else { one * 5 / 2 };
            let bound = OWN_DELAY + each * counts[n] as u32 + behaviors[n].longest();
            let waited = at.saturating_sub(ended);
            assert!(
                waited <= bound,
                "seed {seed}: {key} waits {waited:?} from {ended:?}, more than {bound:?}: {behaviors:?}"
            );
            ended = at + took;
        }
    }
}

#[test]
fn no_key_starves_for_any_upstream_behavior() {
    for seed in 0..20 {
        run(seed);
    }
}
