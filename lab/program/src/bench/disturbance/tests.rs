use std::collections::BTreeMap;

use super::super::{CaseReport, Metric, ServerReport};
use super::*;

fn run(context: &[(&str, f64)], doubts: usize) -> Trial {
    let doubt = Doubt::about_times(Cause::GeneratorLate, "lag".into());
    Trial {
        figures: BTreeMap::from([(Metric::LatencyP99, 1.0)]),
        context: context.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        doubts: vec![doubt; doubts],
        ..Trial::default()
    }
}

#[test]
fn other_load_on_the_cpu_invalidates_times() {
    assert!(steal_doubt(STEAL_MAX).is_none() && others_doubt(OTHERS_MAX).is_none());
    let doubt = steal_doubt(0.31).unwrap();
    assert!(doubt.latency_only && doubt.what.contains("31 %"), "{doubt:?}");
    let doubt = others_doubt(0.5).unwrap();
    assert!(doubt.latency_only && doubt.what.contains("50 % of a core"), "{doubt:?}");
}

#[test]
fn disturbances_are_warned_of_with_what_to_do() {
    let check = |trials: Vec<Trial>, expect: &[&str]| {
        let server = ServerReport {
            name: "stentor".into(),
            medians: BTreeMap::new(),
            comparisons: BTreeMap::new(),
            trials,
        };
        let case = CaseReport {
            name: "one".into(),
            title: String::new(),
            metrics: Vec::new(),
            rate_hz: None,
            connections: None,
            servers: vec![server],
            verdicts: Vec::new(),
        };
        let found = warnings(&Report { cases: vec![case], ..Report::default() });
        assert_eq!(found.len(), expect.len(), "{found:?}");
        for (found, expect) in found.iter().zip(expect) {
            assert!(found.contains(expect), "{found}: {expect}");
        }
    };
    check(vec![run(&[(STEAL, 0.01), (OTHERS, 0.02), (GENERATOR, 0.5), (FREQUENCY, 3000.0)], 0)], &[]);
    check(
        vec![run(&[(STEAL, 0.12), (OTHERS, 0.4)], 0), run(&[(GENERATOR, 0.9)], 0)],
        &[
            "took up to 12 % of the CPU that the cores requested (steal) in 1 of 2 runs. Use",
            "used up to 40 % of a core in 1 of 2 runs. Stop them",
            "used up to 90 % of its core in 1 of 2 runs. Those servers could do more: their rates are lower bounds",
        ],
    );
    check(
        vec![run(&[(FREQUENCY, 2000.0)], 0), run(&[(FREQUENCY, 3000.0), (REPEATED, 2.0)], 0)],
        &["from 2000 to 3000 MHz", "repeated 2 times"],
    );
}

#[test]
fn disturbed_runs_are_repeated_but_not_for_ever() {
    let mut repeats = Repeats::new(Effort::Quick, 6);
    assert!(!repeats.wants("one", &run(&[], 0)));
    // The repetition is undisturbed.
    assert!(repeats.wants("one", &run(&[], 1)));
    let kept = repeats.better("one", run(&[], 1), run(&[], 0));
    assert!(kept.doubts.is_empty() && kept.context[REPEATED] == 1.0);
    assert!(!repeats.wants("one", &kept));
    // If two repetitions don't help, this server has no more of them.
    for _ in 0..REPEATS_OF_RUN {
        assert!(repeats.wants("two", &run(&[], 1)));
        repeats.better("two", run(&[], 1), run(&[], 1));
    }
    assert!(!repeats.wants("two", &run(&[], 1)));
    assert!(!repeats.wants("two", &run(&[], 1)));
    // The case has three repetitions left.
    let left =
        (0..100).filter(|_| repeats.wants("three", &run(&[], 1)) || repeats.wants("four", &run(&[], 1)));
    assert_eq!(left.count(), 3);
    assert!(!Repeats::new(Effort::Smoke, 6).wants("one", &run(&[], 1)));
}
