use super::*;

#[test]
fn steal_is_a_share_of_the_wanted_cpu_time() {
    let at = |stat: &str| MachineTime::parse(stat).unwrap();
    let before = at("cpu  100 10 50 9000 70 3 7 20 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
    let after = at("cpu  160 10 60 9900 70 3 7 50 5 5\n");
    assert!((after.steal_since(&before) - 0.3).abs() < 1e-9);
    assert_eq!(before.steal_since(&before), 0.0);
    // A counter that decreases, as steal's did in old kernels.
    assert_eq!(before.steal_since(&after), 0.0);
    for stat in ["", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 7", "cpu 1 2 3 4 5 6 7 x"] {
        assert_eq!(MachineTime::parse(stat), None, "{stat}");
    }
    assert!(MachineTime::now().is_ok());
}
