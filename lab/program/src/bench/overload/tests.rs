use super::*;
use crate::bench::{Course, Effort};
use crate::scenario::SCENARIOS;

/// Duration of the saturation, of all phases, and of a second to begin.
fn lasts(phase: Duration) -> Duration {
    SATURATES + phase * (OFFERED.len() as u32 + 1) + Duration::from_secs(1)
}

#[test]
fn the_load_of_the_scenario_lasts_as_long_as_its_phases() {
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == "overload").unwrap();
    for effort in [Effort::Smoke, Effort::Quick, Effort::Full] {
        let cases = scenario.cases(effort);
        let Course::Overload(phase) = cases[0].course else { panic!("{cases:?}") };
        assert_eq!(cases[0].load.lasts(), lasts(phase));
    }
}

#[test]
fn a_phase_is_read_in_its_steady_state() {
    let second = 1_000_000_000;
    let sample = |nth: u64, age_ms: u64, delivered, skipped| Following {
        at_ns: nth * second / 4,
        age_ns: [age_ms * 1_000_000; 2],
        delivered,
        skipped,
    };
    // A phase of ten seconds: in its first 4 s, the previous phase still shows. Afterwards, versions are 250 ms old.
    let samples: Vec<Following> = (0..40)
        .map(|nth| if nth < 16 { sample(nth, 900, 10, 90) } else { sample(nth, 250, 50, 50) })
        .collect();
    let steady = SteadyState::of(&Phase { multiple: 2.0, from_ns: 0, to_ns: 10 * second }, &samples);
    assert_eq!((steady.age_ms, steady.delivered_hz, steady.skipped_share), (250.0, 200.0, 0.5));
    let empty = SteadyState::of(&Phase { multiple: 2.0, from_ns: 0, to_ns: 0 }, &samples);
    assert_eq!((empty.age_ms, empty.delivered_hz, empty.skipped_share), (0.0, 0.0, 0.0));
}

#[test]
fn phases_follow_the_capacity() {
    use crate::document::Shape;
    use crate::upstream::{Content, Upstream};
    let shape = Shape { bytes: 100, changes: 1 };
    let upstream = Upstream::start(Content::document(shape), true, Duration::ZERO).unwrap();
    let phase = Duration::from_secs(3);
    let mut conductor = Conductor::new(upstream.pacer(), 10, phase);
    conductor.begin();
    let mut at = Duration::ZERO;
    while at < lasts(phase) {
        at += Duration::from_secs(1);
        // Deliveries before the server is saturated don't count.
        let delivered_hz = if at < SATURATED_AFTER { 9000.0 } else { 100.0 };
        conductor.step(at, delivered_hz);
    }
    let Conductor { capacity_hz, phases, .. } = conductor;
    assert!((capacity_hz - 9.0).abs() < 1e-9, "{capacity_hz}");
    assert_eq!(phases.iter().map(|phase| phase.multiple).collect::<Vec<f64>>(), OFFERED);
    assert!(phases.iter().all(|phase| phase.from_ns <= phase.to_ns), "{phases:?}");
}
