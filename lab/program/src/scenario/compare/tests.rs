use serde_json::{Value, json};

use super::*;

/// A result with one case of `stentor` and `ws8`, with these CPU times per message, and one p99 for all.
pub(in crate::scenario) fn kept(version: &str, stentor: &[f64], ws8: &[f64]) -> Record {
    serde_json::from_value(raw(version, stentor, ws8)).unwrap()
}

pub(in crate::scenario) fn raw(version: &str, stentor: &[f64], ws8: &[f64]) -> Value {
    let runs = |name: &str, figures: &[f64]| {
        let trial = |cpu: &f64| {
            json!({ "figures": { "cpu_per_message": cpu, "latency_p99": 2.0, "of_the_future": 1 },
                "context": { "p99 lag ms": 0.02 }, "curves": {}, "doubts": [], "unmeasured": null })
        };
        json!({ "name": name, "medians": {}, "trials": figures.iter().map(trial).collect::<Vec<_>>() })
    };
    json!({
        "schema": 1,
        "scenario": { "name": "fanout", "question": "?" },
        "effort": "quick", "began": "2026-11-21T19:12:14Z", "took_s": 1.0,
        "machine": { "cpu": "Z80", "cores": 2, "memory_bytes": 1, "kernel": "6.18" },
        "servers": [{ "name": "stentor", "versions": { "stentor": version } },
            { "name": "ws8", "versions": { "ws": "8" } }],
        "report": { "congestion": "cubic", "missing": [], "cases": [{
            "name": "1kB", "title": "1 kB", "metrics": ["cpu_per_message", "latency_p99", "of_the_future"],
            "servers": [runs("stentor", stentor), runs("ws8", ws8), runs("stentor again", stentor)],
        }] },
    })
}

#[test]
fn changes_are_told_from_noise_and_from_the_machine() {
    let check = |new: &[f64], new_ws8: &[f64], expect: &str| {
        let old = kept("0.1.0", &[4.0, 4.1, 3.9], &[9.0, 9.1, 8.9]);
        let compared = compare(&old, &kept("0.2.0", new, new_ws8)).unwrap();
        assert_eq!(compared.rows.len(), 4, "{compared}");
        let row = &compared.rows[0];
        assert!(row.is_decisive && (row.case.as_str(), row.server.as_str()) == ("1kB", "stentor"));
        assert!(row.change.to_string().starts_with(expect), "{expect}: {compared}");
    };
    let same = [9.0, 9.1, 8.9];
    check(&[4.0, 4.1, 3.9], &same, "no difference shown");
    check(&[4.2, 4.1, 3.9], &same, "no difference shown");
    check(&[6.0, 6.1, 5.9], &same, "worse");
    check(&[3.0, 3.1, 2.9], &same, "better");
    // The unchanged other server has become as expensive, so the machine is the cause.
    check(&[6.0, 6.1, 5.9], &[13.6, 13.7, 13.5], "no difference shown");
    check(&[6.0], &same, "too few");
    check(&[], &same, "no valid run");
}

#[test]
fn differences_that_affect_a_comparison_are_reported() {
    let old = kept("0.1.0", &[4.0, 4.1], &[9.0, 9.1]);
    let check = |change: &dyn Fn(&mut Value), expect: &str| {
        let mut new = raw("0.2.0", &[4.0, 4.1], &[9.0, 9.1]);
        change(&mut new);
        let told = match compare(&old, &serde_json::from_value(new).unwrap()) {
            Ok(compared) => compared.to_string(),
            Err(error) => error.to_string(),
        };
        assert!(told.contains(expect), "{told}");
    };
    check(&|new| new["scenario"]["name"] = "idle".into(), "fanout and idle");
    check(
        &|new| new["machine"]["kernel"] = "6.19".into(),
        "warning: the machines differ: kernel: 6.18 / 6.19",
    );
    check(&|new| new["effort"] = "full".into(), "the effort differs: quick / full");
    check(&|new| new["report"]["congestion"] = "bbr".into(), "the congestion control differs");
    check(&|new| new["report"]["cases"][0]["name"] = "2kB".into(), "no case and server in common");
    check(
        &|new| new["report"]["cases"][0]["servers"][1]["name"] = "ws9".into(),
        "ws8 is only in the old one",
    );
    check(&|new| new["servers"][1]["versions"]["ws"] = "9".into(), "looks like a change of the server");
    // Two unknown versions may differ.
    let (mut old, mut new) = (raw("0.1.0", &[4.0; 3], &[9.0; 3]), raw("0.2.0", &[4.0; 3], &[9.0; 3]));
    for result in [&mut old, &mut new] {
        result["servers"][1]["versions"]["ws"] = "unknown: ws can't be run".into();
    }
    let parse = |result: &Value| Record::parse(&result.to_string()).unwrap();
    let warnings = compare(&parse(&old), &parse(&new)).unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("looks like a change")), "{warnings:?}");
}

#[test]
fn a_newer_format_is_refused() {
    let mut newer = raw("0.2.0", &[4.0], &[9.0]);
    newer["schema"] = 9.into();
    assert!(Record::parse(&newer.to_string()).unwrap_err().contains("the number 9"));
    assert!(Record::parse("{}").unwrap_err().contains("no result of a scenario"));
}
