use super::*;

#[test]
fn a_publication_is_late_after_its_period_but_never_before_ten_milliseconds() {
    for (period_ms, in_time_ms) in [(1, 10), (9, 10), (10, 10), (11, 11), (2_000, 2_000)] {
        let [period, in_time] = [period_ms, in_time_ms].map(Duration::from_millis);
        assert!(!is_late(in_time, period), "{period:?}");
        assert!(is_late(in_time + Duration::from_nanos(1), period), "{period:?}");
    }
}
