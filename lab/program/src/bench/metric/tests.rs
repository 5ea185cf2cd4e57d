use super::*;

#[test]
fn each_metric_has_the_name_that_results_use() {
    for metric in Metric::ALL {
        assert_eq!(serde_json::to_value(metric).unwrap(), metric.name());
        assert_eq!(Metric::of_name(metric.name()).ok(), Some(*metric));
    }
    assert_eq!(Metric::of_name("fog").ok(), None);
    assert!(Metric::Rate.larger_is_better() && !Metric::LatencyP99.larger_is_better());
}

#[test]
fn figures_have_thousands_separators_and_units() {
    let check = |metric: Metric, value, expect: &str| assert_eq!(metric.format(value), expect);
    check(Metric::Rate, 1_234_567.4, "1,234,567");
    check(Metric::CpuPerMessage, 0.456, "0.46 µs");
    check(Metric::BytesPerConnection, 12_345.0, "12,345 B");
    check(Metric::PeakMemory, 12_345_678.0, "12.3 MB");
    check(Metric::LatencyP99, 2.0, "2.000 ms");
    check(Metric::LatencyP99, 1234.56, "1,234.6 ms");
    check(Metric::MemoryGrowth, -0.5, "-0.50 %");
}
