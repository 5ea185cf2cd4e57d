use super::*;
use fastrand::Rng;
use std::collections::BTreeMap;

#[test]
fn an_entry_with_its_slot_is_32_bytes() {
    assert_eq!(size_of::<Option<Entry<u64>>>() + 8, 32);
}

/// Returns a number below 2 to the `bits`, evenly distributed over the orders of magnitude.
fn magnitude(random: &mut Rng, bits: u32) -> u64 {
    let bound = 1 << random.u32(..bits);
    random.u64(..bound)
}

/// Sets and cancels timers and advances the time at random. Compares the wheel with a map sorted by tick.
fn check(seed: u64, steps: usize) {
    let mut random = Rng::with_seed(seed);
    let origin = Instant::now();
    let mut wheel = Wheel::new(origin);
    let mut now = origin;
    let mut model: BTreeMap<(u64, u64), (Instant, TimerId)> = BTreeMap::new();
    for token in 0..steps as u64 {
        match random.u64(..10) {
            0..5 => {
                // From the past to days ahead, evenly distributed over the orders of magnitude.
                let ahead = magnitude(&mut random, 50);
                let at = if ahead == 0 { origin } else { now + Duration::from_nanos(ahead) };
                let tick = ticks_up(at - origin).max(ticks_down(now - origin) + 1);
                model.insert((tick, token), (at, wheel.set(at, token)));
            }
            5..7 => {
                if !model.is_empty() {
                    let nth = random.usize(..model.len());
                    let key = *model.keys().nth(nth).unwrap();
                    wheel.cancel(model.remove(&key).unwrap().1);
                }
            }
            kind => {
                now += match wheel.next_wake() {
                    Some(wake) if kind == 7 => wake.saturating_duration_since(now),
                    _ => Duration::from_nanos(magnitude(&mut random, 46)),
                };
                wheel.advance(now);
                if random.u64(..3) == 0
                    && let Some(first) = model.first_entry()
                {
                    wheel.cancel(first.remove().1); // often one that is due, but not yet popped
                }
                let mut last = 0;
                while let Some(token) = wheel.pop_due() {
                    let (&key, &(at, id)) = model.iter().find(|(key, _)| key.1 == token).unwrap();
                    assert!(at <= now, "seed {seed}: early");
                    assert!(key.0 >= last, "seed {seed}: out of order");
                    last = key.0;
                    model.remove(&key);
                    wheel.cancel(id); // no effect on a popped timer
                }
                if let Some(((tick, _), _)) = model.first_key_value() {
                    assert!(*tick > ticks_down(now - origin), "seed {seed}: late");
                }
            }
        }
        assert_eq!(wheel.entries.len(), model.len(), "seed {seed}");
        assert!(!wheel.has_due(), "seed {seed}: due without an advance");
        let first = model.first_key_value().map(|((tick, _), _)| *tick);
        assert_eq!(wheel.next_wake().is_some(), first.is_some(), "seed {seed}");
        if let (Some(wake), Some(first)) = (wheel.next_wake(), first) {
            assert!(ticks_down(wake - origin) <= first, "seed {seed}: would wake too late");
        }
    }
    wheel.advance(now + Duration::from_secs(40 * 24 * 3600));
    assert_eq!(std::iter::from_fn(|| wheel.pop_due()).count(), model.len(), "seed {seed}");
    assert_eq!(wheel.next_wake(), None, "seed {seed}");
}

#[test]
fn the_wheel_behaves_like_a_sorted_map() {
    for seed in 0..if cfg!(miri) { 2 } else { 50 } {
        check(seed, 600);
    }
}

#[test]
fn far_instants_are_bounded() {
    let origin = Instant::now();
    let mut wheel = Wheel::new(origin);
    wheel.set(origin + Duration::from_secs(3_000_000_000), 1);
    assert!(wheel.next_wake().is_some());
    wheel.advance(origin + Duration::from_secs(500_000_000));
    assert_eq!(wheel.pop_due(), None);
    wheel.advance(origin + Duration::from_secs(600_000_000));
    assert_eq!(wheel.pop_due(), Some(1));
}
