use super::*;

#[test]
fn counts_work_and_knows_the_dead() {
    let own = CpuClock::own();
    let by_id = CpuClock::of_process(std::process::id()).unwrap();
    let before = own.read().unwrap();
    while own.read().unwrap() < before + Duration::from_millis(5) {}
    // Both read the same clock, whatever delay is between the reads and whatever else the process does.
    let (a, b, c) = (own.read().unwrap(), by_id.read().unwrap(), own.read().unwrap());
    assert!(a <= b && b <= c, "{a:?} {b:?} {c:?}");

    let mut child = std::process::Command::new("true").spawn().unwrap();
    let clock = CpuClock::of_process(child.id());
    child.wait().unwrap();
    assert!(clock.and_then(|clock| clock.read()).is_err());
}
