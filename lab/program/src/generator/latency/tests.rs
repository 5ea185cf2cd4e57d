use super::*;

#[test]
fn survives_the_journey_between_processes() {
    let mut times = Latencies::new();
    for ns in [0, 1, 999, 123_456, 5_000_000_000, u64::MAX] {
        times.record_ns(ns);
    }
    let text = serde_json::to_string(&times).unwrap();
    let back: Latencies = serde_json::from_str(&text).unwrap();
    let mut twice = back.clone();
    twice.merge(&times);
    assert_eq!((times.len(), back.len(), twice.len()), (6, 6, 12));
    for percent in [0.0, 50.0, 99.0, 100.0] {
        assert_eq!(times.percentile(percent), back.percentile(percent));
        assert_eq!(times.percentile(percent), twice.percentile(percent));
    }
    assert_eq!(Latencies::new().max(), Duration::ZERO);
}
