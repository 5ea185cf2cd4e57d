use std::time::Duration;

use super::*;

#[test]
fn counts_from_the_kernels_figure() {
    let before = monotonic_ns();
    let clock = Clock::new();
    let now = Instant::now();
    let after = monotonic_ns();
    let now_ns = clock.at_ns(now);
    assert!(before <= now_ns + 1_000_000 && now_ns <= after + 1_000_000, "{before} {now_ns} {after}");
    assert_eq!(clock.at_ns(now + Duration::from_secs(3)), now_ns + 3_000_000_000);
    assert_eq!(clock.at_ns(now - Duration::from_millis(5)), now_ns - 5_000_000);
}
