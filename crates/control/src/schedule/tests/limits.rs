//! Tests of the reported limit that delays keys, and of the reported value that would suffice.

use super::*;

impl Bench {
    fn lane(&self) -> LaneStats {
        self.scheduler.lanes().nth(1).unwrap()
    }

    /// Runs all due fetches, every two seconds. Each fetch takes two seconds, and waits `waits_ms` of it for
    /// memory.
    fn fetch_for(&mut self, seconds: std::ops::Range<u64>, waits_ms: u64) -> &mut Self {
        for second in seconds.step_by(2) {
            self.at(second);
            let keys = self.jobs();
            self.events();
            self.at(second + 2);
            for key in keys.split_whitespace() {
                let waited = Duration::from_millis(waits_ms);
                self.scheduler.record_body(&Key::parse(key).unwrap(), 1000, waited);
                self.result(key, fresh(&format!("{second}")));
            }
        }
        self
    }
}

#[test]
fn a_limit_is_named_while_only_first_fetches_wait() {
    // 20 keys are fetched for the first time, two at a time. The interval is an hour, so no refresh is due.
    let hourly = |upstream: &mut UpstreamOptions| {
        upstream.poll_interval = Duration::from_secs(3600);
        upstream.concurrency_max = 2;
    };
    let keys: Vec<String> = (0..20).map(|n| format!("b{n}")).collect();
    let mut bench = Bench::new(upstream_options(1, hourly));
    for key in &keys {
        bench.want(key, true);
    }
    bench.fetch_for(0..8, 0);
    let LaneStats { limited_by, first_limited_by, first_wait, .. } = bench.lane();
    assert_eq!((limited_by, first_wait), (None, Duration::from_secs(6)));
    // The sufficient value counts the keys in flight and waiting when the last fetch started (two and
    // twelve), and as many refreshes.
    assert_eq!(first_limited_by.map(|(limit, _)| limit), Some(Limit::Concurrency));
    assert!(first_limited_by.is_some_and(|(_, sufficient)| sufficient >= 12), "{first_limited_by:?}");
    bench.fetch_for(8..40, 0);
    assert_eq!((bench.lane().first_limited_by, bench.lane().first_wait), (None, Duration::ZERO));
}

#[test]
fn memory_is_named_when_fetches_mostly_wait_for_it() {
    let check = |waits_ms: u64, expect: (Limit, usize)| {
        let mut bench = Bench::new(upstream_options(1, |upstream| upstream.concurrency_max = 2));
        bench.want_all(&["b1", "b2", "b3", "b4"]).fetch_for(0..60, waits_ms);
        assert_eq!(bench.lane().limited_by, Some(expect), "{waits_ms} ms");
    };
    // Four keys are due each second, and each fetch takes two seconds, so `concurrency_max` (2) delays them.
    check(0, (Limit::Concurrency, 4));
    check(500, (Limit::Concurrency, 4));
    check(1500, (Limit::FetchesBytes, 2000));
}
