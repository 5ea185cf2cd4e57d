use super::*;
use crate::scenario::compare::tests::raw;

#[test]
fn cases_that_differ_in_size_are_one_plot() {
    let check = |case, expect: &str| assert_eq!(family(case), expect);
    check("room-1300-nginx", "room-nginx");
    check("closed-25k", "closed");
    check("t1", "t1");
    let mut result = raw("0.1.0", &[4.0], &[8.0]);
    let cases = result["report"]["cases"].as_array_mut().unwrap();
    cases.push(cases[0].clone());
    for (nth, case) in cases.iter_mut().enumerate() {
        case["name"] = format!("room-{nth}k").into();
        case["connections"] = (1000 * (nth + 1)).into();
        case["servers"][0]["medians"]["latency_p99"] = nth.into();
    }
    let plots = overviews(&Record::parse(&result.to_string()).unwrap());
    assert_eq!(plots.len(), 2);
    let points: Vec<_> =
        plots[1].lines.iter().map(|line| (line.name.as_str(), line.points.clone())).collect();
    assert_eq!(points, [("stentor", vec![(1000.0, 0.0), (2000.0, 1.0)]), ("ws8", Vec::new())]);
    // An older file doesn't contain the number of connections.
    assert!(overviews(&Record::parse(&raw("0.1.0", &[4.0], &[8.0]).to_string()).unwrap()).is_empty());
}
