//! Requests for followed redirects count towards the rate.

use super::*;

#[test]
fn redirects_take_the_place_of_fetches() {
    let mut bench = Bench::new(upstream_options(1, |upstream| {
        upstream.requests_per_second_max = 4;
        upstream.concurrency_max = 100;
    }));
    let wait = |bench: &mut Bench, quarters: u32, key: &str| {
        let until = bench.now + Duration::from_millis(250) * quarters;
        assert_eq!(bench.scheduler.poll_timeout(), Some(until), "{key}");
        bench.check("", "").now = until;
        bench.check(key, "");
    };
    bench.want_all(&["b1", "b2", "b3", "b4"]).check("b1", "");
    bench.scheduler.record_redirects(bench.now, 1, 2);
    wait(&mut bench, 3, "b2");
    bench.scheduler.record_redirects(bench.now, 1, 0);
    wait(&mut bench, 1, "b3");
    // Redirects of another upstream don't count towards this upstream's rate.
    bench.scheduler.record_redirects(bench.now, 0, 3);
    wait(&mut bench, 1, "b4");
}
