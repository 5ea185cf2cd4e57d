use std::path::Path;

use super::*;
use crate::bench::Effort;
use crate::catalogue::Catalogue;
use crate::generator::LoadSpec;

#[test]
fn scenarios_are_complete_and_name_servers_that_can_take_part() {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers");
    let catalogue = Catalogue::read(&peers).unwrap();
    for scenario in SCENARIOS.iter() {
        for text in [&scenario.question, &scenario.load, &scenario.metric, &scenario.source] {
            assert!(!text.is_empty() && !text.contains('\n'), "{scenario:?}");
        }
        assert!(scenario.question.ends_with('?'), "{}", scenario.question);
        // Results contain the texts, not the cases.
        let written = serde_json::to_value(scenario).unwrap();
        let read: Scenario = serde_json::from_value(written.clone()).unwrap();
        assert_eq!((&read.name, read.published.len()), (&scenario.name, scenario.published.len()));
        assert!(written.get("cases").is_none() && written["peers"].is_array(), "{written}");
        for effort in [Effort::Smoke, Effort::Quick, Effort::Full] {
            let cases = scenario.cases(effort);
            assert!(!cases.is_empty(), "{}", scenario.name);
            for name in &scenario.peers {
                let known = catalogue.find(name.split(':').next().unwrap()).unwrap();
                assert!(cases.iter().any(|case| case.admits(known)), "{}: {name}", scenario.name);
            }
            for case in &cases {
                let admits = |server: &String| case.admits(catalogue.find(server).unwrap());
                assert!(!case.metrics.is_empty() && !case.protocols.is_empty(), "{}", case.name);
                assert!(!case.title.contains('{'), "{}", case.title);
                assert!(scenario.peers.is_empty() <= !case.servers.is_empty(), "{}", case.name);
                assert!(case.servers.iter().all(admits), "{}: {:?}", case.name, case.servers);
                for goal in &case.goals {
                    let known = goal.against.as_ref().is_none_or(|against| case.servers.contains(against));
                    assert!(known, "{}: {goal:?}", case.name);
                }
                assert!(effort != Effort::Smoke || case.pairs == 1, "{}", case.name);
            }
        }
    }
}

#[test]
fn a_quick_case_takes_two_minutes_for_two_servers_at_most() {
    for case in SCENARIOS.iter().flat_map(|scenario| scenario.cases(Effort::Quick)) {
        let connecting_s = case.connections as f64 / case.connect_rate_hz.unwrap_or(4000.0);
        let load_s = match &case.load {
            LoadSpec::Chat(plan) => plan.step.as_secs_f64() * plan.rates_hz(case.connections).count() as f64,
            LoadSpec::Budget { .. } => continue,
            load => load.lasts().as_secs_f64(),
        };
        let servers = if case.pairs > 1 { 3.0 } else { 2.0 };
        let run_s = connecting_s + load_s + 0.7;
        assert!(run_s * servers * case.pairs.min(5) as f64 <= 120.0, "{}: {run_s} s", case.name);
    }
}
