use std::path::Path;

use super::record::About;
use super::*;
use crate::catalogue::Catalogue;
use crate::generator::LoadSpec;

#[test]
fn scenarios_say_what_they_are_and_name_who_can_take_part() {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers");
    let catalogue = Catalogue::read(&peers).unwrap();
    for scenario in SCENARIOS {
        for text in [scenario.question, scenario.load, scenario.metric, scenario.source] {
            assert!(!text.is_empty(), "{scenario:?}");
        }
        assert!(scenario.question.ends_with('?'), "{}", scenario.question);
        let about = About::from(scenario);
        assert_eq!((&*about.name, &*about.repaired), (scenario.name, scenario.repaired));
        assert_eq!(
            (about.published.len(), about.peers.len()),
            (scenario.published.len(), scenario.peers.len())
        );
        for effort in [Effort::Smoke, Effort::Quick, Effort::Full] {
            let cases = (scenario.cases)(effort);
            assert!(!cases.is_empty(), "{}", scenario.name);
            for name in scenario.peers {
                let known = catalogue.find(name.split(':').next().unwrap()).unwrap();
                assert!(cases.iter().any(|case| case.admits(known)), "{}: {name}", scenario.name);
            }
            for case in &cases {
                let admits = |server: &str| case.admits(catalogue.find(server).unwrap());
                assert!(!case.metrics.is_empty(), "{}", case.name);
                assert!(scenario.peers.is_empty() <= !case.usual.is_empty(), "{}", case.name);
                assert!(case.usual.iter().all(|server| admits(server)), "{}: {:?}", case.name, case.usual);
                for target in &case.targets {
                    let known = target.against.is_none_or(|against| case.usual.contains(&against));
                    assert!(known && case.metrics.contains(&target.metric), "{}: {target:?}", case.name);
                }
                // Noise is looked at wherever there is more than one run.
                assert_eq!(case.pairs > 1, case.again, "{}", case.name);
                assert!(effort != Effort::Smoke || case.pairs == 1, "{}", case.name);
            }
        }
    }
}

#[test]
fn a_quick_case_takes_two_minutes_for_two_servers_at_most() {
    for case in SCENARIOS.iter().flat_map(|scenario| (scenario.cases)(Effort::Quick)) {
        let connecting_s = case.connections as f64 / case.connect_rate_hz.unwrap_or(4000.0);
        let load_s = match &case.load {
            LoadSpec::Chat(plan) => plan.step.as_secs_f64() * plan.rates_hz.len() as f64,
            // It ends when the CPU is used up, of slow servers soon.
            LoadSpec::Budget { .. } => continue,
            load => load.lasts().as_secs_f64(),
        };
        // A start, idle connections and a pause. Five rounds are enough to find a factor of 1.5 (`bench::stats`).
        let servers = if case.again { 3.0 } else { 2.0 };
        let run_s = connecting_s + load_s + 0.7;
        assert!(run_s * servers * case.pairs.min(5) as f64 <= 120.0, "{}: {run_s} s", case.name);
    }
}
