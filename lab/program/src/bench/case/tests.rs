use super::*;
use crate::scenario::SCENARIOS;

#[test]
fn nothing_is_subtracted_if_publications_replace_heartbeats() {
    const USUAL: Duration = Duration::from_millis(300);
    let cases: Vec<Case> = SCENARIOS.iter().flat_map(|scenario| scenario.cases(Effort::Smoke)).collect();
    let rest = |name: &str| cases.iter().find(|case| case.name == name).unwrap().rest(USUAL);
    assert_eq!(rest("direct"), (Duration::ZERO, 0));
    assert_eq!(rest("echo-1k"), (USUAL, 0));
    assert_eq!(rest("scale-1k"), (USUAL, delivery::SLICES));
}
