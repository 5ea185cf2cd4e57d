//! A fetch outside the schedule that succeeds ends a hold by `Retry-After`.

use super::*;

impl Bench {
    fn refetch(&mut self, key: &str) -> &mut Self {
        self.scheduler.refetch(self.now, &Key::parse(key).unwrap());
        self
    }
}

fn held(class: FailureClass) -> Outcome {
    failed_with(class, Some(Duration::from_secs(60)))
}

#[test]
fn a_pause_ends_for_all_keys_of_its_upstream() {
    let mut bench = Bench::new(options());
    bench.fetch_all(&["b1", "b2", "b3"]).at(1).check("b1 b2", "");
    bench.result("b1", held(FailureClass::TooManyRequests)).result("b2", held(FailureClass::TooManyRequests));
    bench.check("", "b1:stale b2:stale").at(30).check("", "");
    bench.refetch("a1").check("", "").refetch("x").check("", "");
    // A fetch of a key without subscribers also ends the hold.
    bench.refetch("b4").check("b3 b1", "").result("b3", fresh("2")).check("b2", "b3=2");
}

#[test]
fn the_hold_of_another_key_stays() {
    let mut bench = Bench::new(options());
    bench.fetch_all(&["b1", "b2"]).at(1).check("b1 b2", "");
    bench.result("b1", held(FailureClass::ServerError)).result("b2", fresh("2")).check("", "b1:stale b2=2");
    bench.at(2).check("b2", "").result("b2", fresh("3")).check("", "b2=3");
    bench.refetch("b2").check("b2", "").result("b2", fresh("4")).check("", "b2=4");
    bench
        .refetch("b1")
        .check("b1", "")
        .refetch("b1")
        .check("", "")
        .result("b1", fresh("2"))
        .check("", "b1=2");
}
