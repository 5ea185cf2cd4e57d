use super::*;

#[test]
fn live_figures_are_printed_in_a_few_words() {
    let check = |latency, expect: &str| {
        let live = Live { delivered_hz: 4000.4, latency, server_share: 0.426 };
        assert_eq!(live.to_string(), expect);
    };
    check(None, "4000/s, server 43 %");
    let times = (Duration::from_micros(520), Duration::from_micros(1200));
    check(Some(times), "4000/s, p50 0.52 ms, p99 1.20 ms, server 43 %");
}
