//! Comparisons and differences of [`Millis`] across the wrap of 32 bits, and the clock.

use super::*;

#[test]
fn comparisons_and_differences_work_across_the_wrap() {
    let early = Millis::new(u32::MAX - 5);
    let late = early.after(Duration::from_millis(10));
    assert!(early.is_before(late) && !late.is_before(early));
    assert_eq!(late.from(early), Duration::from_millis(10));
    assert_eq!(early.from(late), Duration::ZERO);
    assert_eq!(early.earlier(late), early);
    let start = Instant::now();
    let [before, after] = [0, 300].map(|ms| Millis::at(start, start + Duration::from_millis(ms)));
    assert!(before.is_before(after) && after.0 < before.0);
}

#[test]
fn a_clock_shows_the_computed_time() {
    let start = Instant::now();
    let mut clock = Clock::new(start, |_| 0);
    let mut now = start;
    for step in 0..5_000_u64 {
        now += Duration::from_nanos(step * step % 1_700_000);
        assert_eq!(clock.at(now), Millis::at(start, now), "step {step}");
    }
    for nanos in [0, 999_999, 1, 999_999, 1_000_000, 1_000_001] {
        now += Duration::from_nanos(nanos);
        assert_eq!(clock.at(now), Millis::at(start, now), "{nanos}");
    }
}

#[test]
fn coarse_timers_are_at_most_a_256th_late_and_coincide() {
    for begin in [7, u32::MAX - 20_000] {
        let now = Millis::new(begin);
        for wait in [0, 1, 255, 300, 511, 512, 3_000, 25_000, 45_000, 3_600_000] {
            let at = now.after(Duration::from_millis(wait));
            let late = at.coarse(now).from(at).as_millis() as u64;
            assert!(late <= wait / 256, "{wait} ms, late by {late}");
        }
        let fires = |n| {
            let now = now.after(Duration::from_millis(n));
            now.after(Duration::from_secs(25)).coarse(now).0
        };
        let different: std::collections::HashSet<_> = (0..1_000).map(fires).collect();
        assert!(different.len() <= 17, "{}", different.len());
    }
}
