use std::net::SocketAddr;

use super::*;

#[test]
fn a_task_is_cut_without_loss() {
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let check = |connections: usize, servers: u16, expect: &[(usize, u16, u8, bool)]| {
        let publisher = Publisher::Own;
        let load =
            LoadSpec::Fanout(FanoutPlan { bytes: 1000, rate_hz: 1.0, warm_up: 1, count: 2, publisher });
        let mut spec = Spec::new(address(1), "/", connections, load);
        spec.targets.extend((2..=servers).map(address));
        let got: Vec<_> = parts(&spec)
            .iter()
            .map(|part| {
                let publishes =
                    matches!(part.load, LoadSpec::Fanout(FanoutPlan { publisher: Publisher::Own, .. }));
                (part.connections, part.target().port(), part.first_source, publishes)
            })
            .collect();
        assert_eq!(got, expect);
    };
    check(1, 1, &[(1, 1, 0, true)]);
    check(1, 2, &[(1, 1, 0, true)]);
    check(15_000, 1, &[(15_000, 1, 0, true)]);
    check(15_001, 1, &[(7500, 1, 0, false), (7501, 1, 1, true)]);
    check(25_000, 2, &[(12_500, 1, 0, false), (12_500, 2, 2, true)]);
    check(
        50_000,
        1,
        &[(12_500, 1, 0, false), (12_500, 1, 2, false), (12_500, 1, 4, false), (12_500, 1, 6, true)],
    );
    check(38_000, 2, &[(9500, 1, 0, false), (9500, 2, 1, false), (9500, 1, 2, false), (9500, 2, 3, true)]);
}

#[test]
fn a_worker_refuses_what_is_no_task() {
    let mut said = Vec::new();
    assert!(serve_worker(&mut &b"{}\n"[..], &mut said).is_err());
    assert!(said.is_empty());
}
