use super::*;
use crate::generator::{Latencies, Span};

#[test]
fn the_costs_of_connects_and_echoes_are_fitted() {
    let point = |seconds: u64| {
        let (connections, messages) = (seconds * 1000, seconds * seconds * 500);
        let cpu = 0.01 + 80e-6 * connections as f64 + 11e-6 * messages as f64;
        let server_cpu = Duration::from_secs_f64(cpu);
        Progress { connections, messages, server_cpu, server_bytes: 0, kernel_bytes: 0 }
    };
    let points: Vec<Progress> = (1..20).map(point).collect();
    let (connect, echo) = fitted(&points).unwrap();
    assert!((connect - 80e-6).abs() < 1e-9 && (echo - 11e-6).abs() < 1e-9, "{connect} {echo}");
    assert_eq!(fitted(&points[..3]), None);
    assert_eq!(fitted(&[points[0]; 9]), None);
}

#[test]
fn outcomes_become_curves() {
    let point = |connections: u64, server_bytes, kernel_bytes| Progress {
        connections,
        messages: 0,
        server_cpu: Duration::from_millis(connections),
        server_bytes,
        kernel_bytes,
    };
    let outcome = Outcome {
        progress: vec![point(0, 20_000_000, 7_000_000), point(100, 21_000_000, 9_000_000)],
        p99_of_each_ns: vec![1_000_000, 2_000_000, 5_000_000],
        ..Outcome::default()
    };
    let publisher = crate::generator::Publisher::Own;
    let load = LoadSpec::Fanout(FanoutPlan { bytes: 1, rate_hz: 2.0, warm_up: 0, count: 3, publisher });
    let curves = curves(&load, &outcome, &[]);
    let check = |curve, expect: &[(f64, f64)]| assert_eq!(curves[&curve], expect, "{curve:?}");
    check(Curve::AgeOverTime, &[(0.0, 1.0), (0.5, 2.0), (1.0, 5.0)]);
    check(Curve::CpuOverConnections, &[(0.0, 0.0), (100.0, 100.0)]);
    check(Curve::MemoryOverConnections, &[(0.0, 20.0), (100.0, 21.0)]);
    check(Curve::KernelOverConnections, &[(0.0, 0.0), (100.0, 2.0)]);
    assert_eq!(curves.len(), 4);
}

#[test]
fn curves_are_bounded() {
    for length in [0, 1, 199, 200, 201, 999, 100_000] {
        let mut points: Vec<(f64, f64)> = (0..length).map(|nth| (f64::from(nth), 0.0)).collect();
        let last = points.last().copied();
        thin_out(&mut points);
        assert!(points.len() <= POINTS_MAX && points.last().copied() == last, "{length}");
        assert!(length > 200 || points.len() == length as usize, "{length}");
    }
}

fn step(delivered_hz: f64, mean_ms: u64, wrong: u64) -> ChatStep {
    let mut latency = Latencies::new();
    latency.record_ns(mean_ms * 1_000_000);
    ChatStep { delivered_hz, wrong, latency, span: Span::default(), lag: Duration::ZERO }
}

#[test]
fn a_generator_without_cpu_left_makes_a_lower_bound_and_no_doubt() {
    let of = |mean_ms: u64, own_percent: u64, lag_ms: u64| {
        let own_cpu = Duration::from_millis(own_percent);
        let span = Span { wall: Duration::from_millis(100), own_cpu, ..Span::default() };
        ChatStep { span, lag: Duration::from_millis(lag_ms), ..step(1000.0, mean_ms, 0) }
    };
    let check = |steps: &[ChatStep], bound: bool, doubted: bool| {
        let found = (lower_bound(steps).is_some(), !doubts(steps).is_empty());
        assert_eq!(found, (bound, doubted), "{steps:?}");
    };
    check(&[of(10, 30, 1), of(300, 50, 1)], false, false);
    check(&[of(10, 30, 1), of(10, 50, 1)], true, false);
    check(&[of(10, 30, 1), of(100, 90, 30), of(300, 100, 900)], true, false);
    check(&[of(10, 30, 1), of(300, 90, 30)], true, false);
    check(&[of(10, 90, 30), of(100, 50, 1), of(300, 60, 1)], false, false);
    check(&[of(10, 30, 30), of(300, 50, 1)], false, true);
    check(&[of(300, 50, 30)], false, false);
    check(&[], true, false);
}

#[test]
fn a_hypervisor_that_keeps_too_much_makes_a_lower_bound() {
    let of = |mean_ms: u64, steal_share: f64| {
        let span = Span { wall: Duration::from_millis(100), steal_share, ..Span::default() };
        ChatStep { span, ..step(1000.0, mean_ms, 0) }
    };
    let check = |steps: &[ChatStep], expect: Option<&str>| {
        assert_eq!(lower_bound(steps).as_deref(), expect, "{steps:?}");
    };
    let kept = "the hypervisor took 40 % of the CPU that the cores requested (steal)";
    check(&[of(10, 0.0), of(100, 0.1), of(300, 0.1)], None);
    check(&[of(10, 0.0), of(100, 0.0), of(300, 0.4)], Some(kept));
    check(&[of(10, 0.0), of(100, 0.4), of(300, 0.0)], Some(kept));
    check(&[of(10, 0.4), of(100, 0.0), of(300, 0.0)], None);
}

#[test]
fn saturation_lies_between_the_steps_around_200_ms() {
    let check = |steps: &[ChatStep], expect: f64| {
        let found = saturation_hz(steps);
        assert!((found / expect - 1.0).abs() < 0.01 || found == expect, "{found} {expect}");
    };
    check(&[step(1000.0, 10, 0), step(2000.0, 100, 0), step(3000.0, 300, 0)], 2500.0);
    check(&[step(1000.0, 10, 0), step(2000.0, 100, 0)], 2000.0);
    check(&[step(1000.0, 10, 0), step(2000.0, 100, 1), step(3000.0, 300, 0)], 1000.0);
    check(&[step(1000.0, 100, 0), step(900.0, 300, 0)], 1000.0);
    check(&[step(1000.0, 400, 0)], 500.0);
}
