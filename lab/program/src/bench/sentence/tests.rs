use super::super::case::Goal;
use super::super::stats::Rule;
use super::super::{Case, Trial};
use super::*;
use crate::generator::{Cause, Doubt};

fn runs(figures: &[(f64, f64, f64)], bounded: bool, doubt: Option<(Cause, &str)>) -> Vec<Trial> {
    let trial = |(rate, cpu, p99): &(f64, f64, f64)| Trial {
        figures: [Metric::Rate, Metric::CpuPerMessage, Metric::LatencyP99]
            .into_iter()
            .zip([*rate, *cpu, *p99])
            .collect(),
        doubts: doubt.iter().map(|(cause, what)| Doubt::about_times(*cause, (*what).to_owned())).collect(),
        bounds: bounded.then_some(Metric::Rate).into_iter().collect(),
        ..Trial::default()
    };
    figures.iter().map(trial).collect()
}

fn said(ours: Vec<Trial>, theirs: Vec<Trial>, goals: Vec<Goal>) -> (Vec<String>, Vec<String>) {
    let case: Case = toml::from_str(
        "name = \"one\"\ntitle = \"a case\"\nload = \"ask\"\nconnections = 1\nprotocols = []\n\
         metrics = [\"rate\", \"cpu_per_message\", \"latency_p99\"]\npairs = 1",
    )
    .unwrap();
    let case = Case { goals, ..case };
    let again = ours.iter().map(|trial| Trial { bounds: Default::default(), ..trial.clone() }).collect();
    let trials = vec![("stentor".into(), ours), ("ws8".into(), theirs), ("stentor again".into(), again)];
    let report = CaseReport::new(&case, trials, true, Rule::Fixed);
    (report.sentences(), report.goals())
}

#[test]
fn verdicts_are_sentences() {
    let fast = [(2100.0, 4.5, 1.0), (2080.0, 4.6, 1.0), (2120.0, 4.4, 1.0)];
    let slow = [(1000.0, 10.0, 1.0), (1010.0, 10.1, 1.0), (990.0, 9.9, 1.0)];
    let check = |ours, theirs, expect: &str| {
        let (found, _) = said(ours, theirs, Vec::new());
        assert_eq!(found, [expect]);
    };
    let busy = Some((Cause::GeneratorBusy, "the generator used 95 % of its core"));
    check(
        runs(&fast, false, busy),
        runs(&slow, false, None),
        "Better than ws8: stentor serves 2.1× its round trips (2.0–2.2×) at 0.45× its CPU per message; p99 latency inconclusive: \
         the generator was busy.",
    );
    check(
        runs(&fast, true, None),
        runs(&slow, false, None),
        "Better than ws8: stentor serves at least 2.1× its round trips (the generator was at its limit) at 0.45× its CPU per \
         message; p99 latency within 1 % (1.00×).",
    );
    // A bound can't prove the opposite.
    check(
        runs(&slow, true, None),
        runs(&fast, false, None),
        "Partly worse than ws8: stentor uses 2.2× its CPU per message (2.2–2.3×); p99 latency within 1 % (1.00×); round trips inconclusive: the \
         generator was at its limit.",
    );
    check(
        runs(&slow, true, None),
        runs(&slow, true, None),
        "No difference shown between stentor and ws8; CPU per message within 1 % (1.00×); p99 latency within 1 % (1.00×); round trips \
         inconclusive: the generator was at its limit.",
    );
    let noisy = [(1000.0, 10.0, 1.0), (3500.0, 14.0, 1.0), (300.0, 7.0, 1.0)];
    let (found, _) = said(runs(&fast, false, None), runs(&noisy, false, None), Vec::new());
    assert!(
        found[0].contains("; round trips (2.10×) inconclusive: minimum detectable difference "),
        "{found:?}"
    );
    let (found, _) = said(runs(&noisy, false, None), runs(&slow, false, None), Vec::new());
    assert!(
        found[0].contains(
            "round trips (1.00×) and CPU per message (1.00×) inconclusive: minimum detectable difference "
        ) && found[0].contains(" to "),
        "{found:?}"
    );
    check(
        runs(&fast[..1], false, None),
        runs(&slow[..1], false, None),
        "No difference shown between stentor and ws8; round trips, CPU per message and p99 latency inconclusive: too few runs.",
    );
    check(
        [runs(&fast[..1], false, None), runs(&fast[..2], false, busy)].concat(),
        runs(&slow, false, None),
        "Better than ws8: stentor serves 2.1× its round trips (2.1–2.1×) at 0.45× its CPU per message; p99 latency inconclusive: \
         too few valid runs (stentor: the generator was busy).",
    );
    let dear = [(2100.0, 42.0, 1.0), (2080.0, 42.4, 1.0), (2120.0, 41.6, 1.0)];
    check(
        runs(&dear, false, None),
        runs(&slow, false, None),
        "Better and worse than ws8: stentor serves 2.1× its round trips (2.0–2.2×) at 4.2× its CPU per message; p99 latency within \
         1 % (1.00×).",
    );
    check(Vec::new(), runs(&slow, false, None), "stentor: no valid run (round trips wasn't measured).");
}

#[test]
fn goals_are_sentences() {
    let same = [(1000.0, 10.0, 1.0); 3];
    let goal =
        |metric, against: Option<&str>, bound| Goal { metric, against: against.map(str::to_owned), bound };
    let goals = vec![
        goal(Metric::CpuPerMessage, Some("ws8"), 1.15),
        goal(Metric::Rate, Some("ws8"), 2.0),
        goal(Metric::LatencyP99, None, 50.0),
        goal(Metric::AgeShift, None, 1.5),
        goal(Metric::Rate, Some("ws9"), 2.0),
    ];
    let (_, goals) = said(runs(&same, false, None), runs(&same, false, None), goals);
    assert_eq!(
        goals,
        [
            "Goal reached: CPU per message, at most 1.15× ws8's. Result: 1.00× ws8's.",
            "Goal MISSED: round trips, at least 2.00× ws8's. Result: 1.00× ws8's.",
            "Goal reached: p99 latency, at most 50.0 ms. Result: 1.000 ms.",
            "Goal not measured: age after the overload, relative to before, at most 1.50×.",
            "Goal not measured: round trips, at least 2.00× ws9's.",
        ]
    );
}
