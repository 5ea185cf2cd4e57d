use super::*;

#[test]
fn pins_and_releases() {
    let all = cores();
    let first = (0..CpuSet::MAX_CPU).find(|core| sched_getaffinity(None).unwrap().is_set(*core)).unwrap();
    let pinned = pin_current(first).unwrap();
    assert_eq!(cores(), 1);
    drop(pinned);
    assert_eq!(cores(), all);
    assert!(pin_current(CpuSet::MAX_CPU).is_err());
}
