use super::*;
use crate::bench::Effort;
use crate::scenario::SCENARIOS;

fn trials(values: &[f64]) -> Vec<Trial> {
    values
        .iter()
        .map(|value| Trial { figures: BTreeMap::from([(Metric::CpuPerMessage, *value)]), ..Trial::default() })
        .collect()
}

#[test]
fn a_difference_is_claimed_only_beyond_the_noise() {
    let goals = SCENARIOS.iter().find(|scenario| scenario.name == "goals").unwrap();
    let all = goals.cases(Effort::Full);
    let case = all.iter().find(|case| case.name == "fanout-1kB").unwrap();
    let check = |again: &[f64], other: &[f64], differs: bool, reached: bool| {
        let report = CaseReport::new(
            case,
            vec![
                ("ours".into(), trials(&[4.0, 4.1, 3.9])),
                ("uws-cpp".into(), trials(other)),
                ("ours again".into(), trials(again)),
            ],
            true,
            Rule::Fixed,
        );
        let comparison = report.servers[1].comparisons[&Metric::CpuPerMessage];
        assert_eq!(comparison.differs, differs, "{comparison:?}");
        let verdict = |against| {
            let found = report.verdicts.iter().find(|verdict| verdict.against.as_deref() == Some(against));
            let verdict = found.unwrap();
            (verdict.measured.is_some(), verdict.reached)
        };
        assert_eq!(verdict("uws-cpp"), (true, reached), "{:?}", report.verdicts);
        // A goal without a figure isn't reached.
        assert_eq!(verdict("bare-uring"), (false, false));
    };
    check(&[4.0, 4.0, 4.0], &[6.0, 6.1, 6.2], true, true);
    check(&[4.0, 4.4, 3.6], &[4.2, 4.6, 4.3], false, false);
    check(&[4.0, 4.0, 4.0], &[4.0, 4.1, 4.0], false, false);
    check(&[2.0, 2.0, 2.0], &[6.0, 6.1, 6.2], false, true);
}
