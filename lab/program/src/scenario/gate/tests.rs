use serde_json::Value;

use super::*;
use crate::scenario::compare::tests::{kept, raw};

#[test]
fn each_fault_has_its_exit_code() {
    let old = kept("0.1.0", &[4.0, 4.1, 3.9], &[9.0, 9.1, 8.9]);
    let check = |stentor: &[f64], change: &dyn Fn(&mut Value), gate: Gate, code: u8, expect: &str| {
        let mut new = raw("0.2.0", stentor, &[9.0, 9.1, 8.9]);
        change(&mut new["report"]["cases"][0]["servers"]);
        let judgement = judge(&old, &serde_json::from_value(new).unwrap(), 0.05).unwrap();
        let text = judgement.to_string();
        assert_eq!((judgement.gate, gate.exit_code()), (gate, code), "{text}");
        assert!(text.contains(expect), "{expect}: {text}");
    };
    let as_it_is = |_: &mut Value| {};
    check(&[4.0, 4.1, 3.9], &as_it_is, Gate::Held, 0, "gate: held");
    check(&[2.0, 2.1, 1.9], &as_it_is, Gate::Held, 0, "better");
    check(&[6.0, 6.1, 5.9], &as_it_is, Gate::Slower, 3, "1kB: stentor: CPU/message: 4.00 µs → 6.00 µs");
    check(&[4.0], &as_it_is, Gate::Invalid, 4, "one run says nothing");
    let corrupt = |servers: &mut Value| {
        for trial in servers[0]["trials"].as_array_mut().unwrap() {
            trial["doubts"] = serde_json::json!([{ "latency_only": false, "what": "5 messages corrupt" }]);
        }
    };
    check(&[4.0, 4.1, 3.9], &corrupt, Gate::Invalid, 4, "5 messages corrupt");
    // An invalid run of another server doesn't fail the gate, as long as the baseline server has a result.
    check(
        &[4.0, 4.1, 3.9],
        &|servers| {
            servers[1]["trials"][0]["doubts"] = serde_json::json!([{ "latency_only": false, "what": "lost" }])
        },
        Gate::Held,
        0,
        "held",
    );
    let nothing = |servers: &mut Value| {
        servers[1]["trials"][0]["figures"] = serde_json::json!({});
        servers[1]["trials"][0]["doubts"] =
            serde_json::json!([{ "latency_only": false, "what": "it crashed" }]);
    };
    check(&[6.0, 6.1, 5.9], &nothing, Gate::Failed, 1, "ws8 gave nothing: it crashed");
}

#[test]
fn a_little_is_tolerated() {
    let old = kept("0.1.0", &[4.0, 4.0, 4.0], &[9.0, 9.0, 9.0]);
    let new = kept("0.2.0", &[4.1, 4.1, 4.1], &[9.0, 9.0, 9.0]);
    assert_eq!(judge(&old, &new, 0.05).unwrap().gate, Gate::Held);
    assert_eq!(judge(&old, &new, 0.01).unwrap().gate, Gate::Slower);
}
