//! Random operations on virtual time, compared with a model that has only the rules.

use super::super::results::RETRY_MIN;
use super::super::*;
use super::{change, failed_with, requester};
use crate::options::UpstreamOptions;
use bytes::Bytes;
use std::collections::BTreeMap;
use stentor_ports::DocumentChange;

/// For each upstream: prefix, interval in milliseconds, concurrent fetches, fetches per second.
const UPSTREAMS: [(&str, u64, usize, usize); 3] =
    [("a", 1000, 2, 1000), ("b", 300, 3, 2), ("ab", 5000, 1, 5)];

/// The expected state of a key.
#[derive(Default)]
struct Shadow {
    wanted: bool,
    /// `true` if a client has subscribed to the key since its last fetch, while the key was not found.
    asked: bool,
    /// No fetch may start before this time.
    not_before: Option<Instant>,
    in_flight: bool,
    started: Option<Instant>,
    /// The last fetched document. If it is sent (the scheduler may refuse it), no fetch may start before this
    /// time.
    promise: Option<(Bytes, Instant)>,
    /// The last document sent to the home core.
    document: Option<Bytes>,
    /// The last state sent to the home core.
    state: Option<FeedState>,
    unwanted_since: Option<Instant>,
    /// `true` if all requesters of the key were refused.
    refused: bool,
    /// `true` if `not_found` was sent to subscribers since the last subscription.
    lost_told: bool,
}

fn upstream_of(key: &str) -> usize {
    if key.starts_with("ab") { 2 } else { usize::from(key.starts_with('b')) }
}

/// Applies the updates as a home core does.
fn take_events(scheduler: &mut Scheduler, shadows: &mut BTreeMap<Key, Shadow>, context: &str) {
    while let Some((key, update)) = scheduler.poll_event() {
        let shadow = shadows.get_mut(&key).unwrap();
        match update {
            FeedUpdate::Changed(DocumentChange { document, .. }) => {
                assert_ne!(shadow.document.as_ref(), Some(&document.body), "{context}: {key} twice");
                let (body, until) = shadow.promise.take().unwrap();
                assert_eq!(body, document.body, "{context}: {key} tells another document");
                shadow.not_before = Some(until);
                shadow.document = Some(document.body.clone());
                shadow.state = Some(FeedState::Live);
            }
            FeedUpdate::At { .. } | FeedUpdate::Confirmed(_) => {
                panic!("the control plane assigns no positions")
            }
            FeedUpdate::State { state, .. } => {
                if state == FeedState::NotFound {
                    shadow.document = None;
                    shadow.lost_told = true;
                }
                shadow.state = Some(state);
            }
            FeedUpdate::Forget => {
                shadow.document = None;
                shadow.state = None;
            }
            FeedUpdate::Refuse(_) => shadow.refused = true,
        }
    }
}

fn run(seed: u64) {
    let mut random = Rng::with_seed(seed);
    let options = FeedsOptions {
        upstreams: UPSTREAMS
            .map(|(prefix, poll_interval, concurrency_max, requests_per_second_max)| UpstreamOptions {
                prefix: prefix.into(),
                poll_interval: Duration::from_millis(poll_interval),
                concurrency_max,
                requests_per_second_max,
                ..UpstreamOptions::default()
            })
            .into(),
        keys_max: 12,
        cold_keys_max: 2,
        documents_bytes_max: 400,
        fetches_max: 5,
        idle_ttl: Duration::from_secs(4),
        not_found_after: Duration::from_secs(seed % 2 * 3),
        not_found_retry_interval: Duration::from_secs(8),
        ..FeedsOptions::default()
    };
    let name = |i: usize| format!("{}{i}", UPSTREAMS[i % 3].0);
    let keys: Vec<Key> = (0..18).map(|i| Key::parse(&name(i)).unwrap()).collect();
    let mut scheduler = Scheduler::new(options.clone(), seed);
    let mut shadows: BTreeMap<Key, Shadow> =
        keys.iter().map(|key| (key.clone(), Shadow::default())).collect();
    let mut now = Instant::now();
    let mut starts = [const { Vec::new() }; UPSTREAMS.len()];
    for step in 0..3000u32 {
        let key = &keys[random.usize(..keys.len())];
        // In the last part of the run, subscribers only leave.
        let closing = step >= 2000;
        match random.u64(..8) {
            0..=2 => {
                let shadow = shadows.get_mut(key).unwrap();
                let wanted = !closing && random.bool();
                if shadow.wanted && !wanted {
                    shadow.unwanted_since = Some(now);
                }
                shadow.asked |= wanted && shadow.state == Some(FeedState::NotFound);
                shadow.wanted = wanted;
                shadow.refused = false;
                shadow.lost_told = false;
                // The requester is one of three sessions at one of two addresses, or unknown.
                let requester = requester(random.u64(..2), random.u64(..3));
                let known = usize::from(random.u64(..4) != 0);
                scheduler.handle_wanted(now, key, wanted, &[requester][..known]);
            }
            3..=5 => {
                let flying = keys.iter().filter(|key| shadows[*key].in_flight).count();
                if flying > 0 {
                    let nth = random.usize(..flying);
                    let key = keys.iter().filter(|key| shadows[*key].in_flight).nth(nth).unwrap();
                    let shadow = shadows.get_mut(key).unwrap();
                    shadow.in_flight = false;
                    let size = random.usize(..150);
                    let body = format!("{step}:{}", "x".repeat(size));
                    let (outcome, mut wait) = outcome(&mut random, &body);
                    // A key with a document isn't `not_found` at once, and keeps its usual interval.
                    if matches!(outcome, Outcome::NotFound { .. }) && !options.not_found_after.is_zero() {
                        wait = Duration::ZERO;
                    }
                    shadow.not_before = Some(now + wait);
                    if let Outcome::Fresh { change, freshness, .. } = &outcome {
                        let until = match freshness {
                            Freshness::Unsaid => {
                                let interval = Duration::from_millis(UPSTREAMS[upstream_of(key.as_str())].1);
                                // A common time may be that much earlier.
                                let between = (interval / COMMON_TIMES).min(COMMON_TIMES_APART_MAX);
                                shadow.started.unwrap() + interval - between
                            }
                            Freshness::For(age) => now + *age,
                            Freshness::Over => now + DURATION_MAX,
                        };
                        shadow.promise = Some((change.document.body.clone(), until));
                    }
                    scheduler.handle_result(now, key, outcome);
                }
            }
            6 => now += Duration::from_millis(random.u64(..500)),
            _ => {
                if let Some(next) = scheduler.poll_timeout() {
                    now = now.max(next);
                }
            }
        }
        let context = format!("seed {seed} step {step}");
        take_events(&mut scheduler, &mut shadows, &context);
        while let Some(job) = scheduler.poll_fetch(now) {
            let shadow = shadows.get_mut(&job.key).unwrap();
            assert!(!shadow.in_flight, "{context}: two fetches of {}", job.key);
            assert_eq!(job.upstream, upstream_of(job.key.as_str()), "seed {seed}");
            shadow.in_flight = true;
            shadow.started = Some(now);
            let (row, rate) = (&mut starts[job.upstream], UPSTREAMS[job.upstream].3);
            row.push(now);
            // In any period, the starts are at most the rate plus the starts that are allowed at once.
            let most = rate + (rate / 10).max(1);
            if let Some(before) = row.len().checked_sub(most + 1) {
                let second = Duration::from_secs(1);
                assert!(now - row[before] >= second, "{context}: {} too fast", job.key);
            }
            let kept = job.kept.as_ref().map(|kept| &kept.document.body);
            let told = shadow.document.as_ref();
            if kept.is_none() && told.is_none() {
                assert!(
                    shadow.wanted || shadow.asked,
                    "{context}: a cold fetch of {} that nobody waits for",
                    job.key
                );
            }
            shadow.asked = false;
            if let Some(kept) = kept {
                assert_eq!(Some(kept), told, "{context}: {} compares with another version", job.key);
                // Only keys that were forgotten meanwhile may be fetched before their time.
                assert!(shadow.not_before.is_none_or(|at| at <= now), "{context}: {} too soon", job.key);
            }
        }
        assert!(scheduler.poll_timeout().is_none_or(|at| at > now), "{context}: it spins");
        take_events(&mut scheduler, &mut shadows, &context);
        let stats = scheduler.stats();
        let held: usize =
            shadows.values().filter_map(|shadow| shadow.document.as_ref()).map(Bytes::len).sum();
        assert_eq!(stats.documents_bytes, held, "{context}: bytes");
        assert!(stats.documents_bytes <= options.documents_bytes_max, "{context}: bytes");
        assert!(stats.keys <= options.keys_max, "{context}: keys");
        // Every key with subscribers is fetched or refused.
        for (key, shadow) in &shadows {
            let known = scheduler.entries.contains_key(key) || shadow.refused;
            let told_lost = shadow.lost_told;
            assert!(!shadow.wanted || known || told_lost, "{context}: {key} is forgotten");
        }
        assert_eq!(stats.keys, stats.cold + stats.live + stats.stale + stats.complete + stats.not_found);
        assert!(stats.in_flight <= options.fetches_max, "{context}: workers");
        for (i, (_, _, most, _)) in UPSTREAMS.iter().enumerate() {
            let flying =
                shadows.iter().filter(|(key, shadow)| shadow.in_flight && upstream_of(key.as_str()) == i);
            assert!(flying.count() <= *most, "{context}: workers of {i}");
        }
        // No due key waits while a worker is free, unless the upstream's rate delays it. One worker is
        // reserved for each upstream.
        let reserved: usize = scheduler.lanes().map(|lane| lane.in_flight.max(1)).sum();
        for (i, lane) in scheduler.lanes().enumerate() {
            let is_free =
                lane.in_flight == 0 || reserved < options.fetches_max && lane.in_flight < UPSTREAMS[i].2;
            let is_free = is_free && lane.held_until.is_none_or(|until| until <= now);
            let opens = starts[i].last().map(|last| *last + Duration::from_secs(1) / UPSTREAMS[i].3 as u32);
            if is_free && opens.is_none_or(|opens| opens <= now) {
                assert_eq!(lane.waiting - lane.first_waiting, 0, "{context}: idle workers of {i}");
                // First fetches leave exactly half of the workers to the others.
                let half_is_free = lane.in_flight < UPSTREAMS[i].2.div_ceil(2)
                    && stats.in_flight < options.fetches_max.div_ceil(2);
                // Keys that don't exist wait for a rate of their own.
                let lost = shadows.iter().filter(|(key, shadow)| {
                    upstream_of(key.as_str()) == i && shadow.state == Some(FeedState::NotFound)
                });
                assert!(
                    lane.first_waiting <= lost.count() || !half_is_free,
                    "{context}: idle workers of {i} for new keys"
                );
            }
        }
    }
    // All subscribers leave, and the linger times pass.
    for key in &keys {
        scheduler.handle_wanted(now, key, false, &[]);
    }
    for _ in 0..200 {
        while let Some(job) = scheduler.poll_fetch(now) {
            shadows.get_mut(&job.key).unwrap().in_flight = true;
        }
        for (key, shadow) in &mut shadows {
            if std::mem::take(&mut shadow.in_flight) {
                scheduler.handle_result(now, key, Outcome::NotFound { reason: "404".into() });
            }
        }
        let Some(next) = scheduler.poll_timeout() else { break };
        now = next;
    }
    let stats = scheduler.stats();
    assert_eq!((stats.keys, stats.documents_bytes, stats.in_flight), (0, 0, 0), "seed {seed}: a leak");
    assert_eq!(scheduler.poll_timeout(), None, "seed {seed}: an idle scheduler wakes up");
}

/// Returns a random outcome, and the minimum time until the next fetch according to the scheduler's rules.
fn outcome(random: &mut Rng, body: &str) -> (Outcome, Duration) {
    let fresh =
        |freshness| Outcome::Fresh { change: change(body), validators: Validators::default(), freshness };
    let seconds = Duration::from_secs(1 + random.u64(..5));
    match random.u64(..10) {
        0..=2 => (fresh(Freshness::Unsaid), Duration::ZERO),
        3 => (fresh(Freshness::For(seconds)), Duration::ZERO),
        4 => (fresh(Freshness::Over), Duration::ZERO),
        5 => (Outcome::Same { validators: None, freshness: Freshness::For(seconds) }, RETRY_MIN),
        6 => (Outcome::NotFound { reason: "404".into() }, Duration::from_secs(8)),
        7 => (Outcome::Gone { reason: "410".into() }, DURATION_MAX),
        _ => (failed_with(FailureClass::ServerError, Some(seconds)), seconds),
    }
}

#[test]
fn random_operations_keep_the_invariants() {
    for seed in 0..60 {
        run(seed);
    }
}
