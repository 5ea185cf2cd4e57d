//! `compare`, `gate` and `history` from the command line, on fake servers: every exit code. The baselines are made to
//! fit, because measured figures depend on the load of the machine.

use std::fs;
use std::path::PathBuf;

use crate::fakes::{self, Folder, read};
use crate::server::{Fault, Server};
use serde_json::Value;

/// Writes a result of a run of `honest` with its figures times `factor`. Returns the file.
fn baseline(folder: &Folder, result: &Value, name: &str, factor: f64) -> PathBuf {
    let mut old = result.clone();
    for trial in old["report"]["cases"][0]["servers"][0]["trials"].as_array_mut().unwrap() {
        trial["doubts"] = Value::Array(Vec::new());
        for figure in trial["figures"].as_object_mut().unwrap().values_mut() {
            *figure = Value::from(figure.as_f64().unwrap() * factor);
        }
    }
    let path = folder.path(name);
    fs::write(&path, old.to_string()).unwrap();
    path
}

#[test]
fn every_exit_code_of_a_gate() {
    let folder = Folder::new("gate");
    folder
        .peer("honest", Fault::None, 7)
        .peer("corrupting", Fault::Corrupts, 1999)
        .script("absent", "exit 1", "exit 1");
    let (code, said) = folder.run(&["run", "fanout", "--smoke", "--pairs", "2", "--peers", "honest"]);
    assert_eq!(code, 0, "{said}");
    let result = read(&folder.results()[0]);
    let trials = result["report"]["cases"][0]["servers"][0]["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 2, "{said}");

    let was_fast = baseline(&folder, &result, "fast", 1e-6);
    let was_slow = baseline(&folder, &result, "slow", 1e6);
    let gate = |baseline: &PathBuf, more: &[&str], expect: i32, told: &str| {
        let mut arguments = vec!["gate", baseline.to_str().unwrap(), "--pairs", "2"];
        arguments.extend_from_slice(more);
        let (code, said) = folder.run(&arguments);
        // A run spoiled by a busy machine is invalid. The gate reports it correctly.
        let spoiled = code == 4 && fakes::is_of_disturbance(&said);
        assert!(code == expect && said.contains(told) || spoiled, "{code} instead of {expect}: {said}");
    };
    gate(&was_slow, &[], 0, "gate: held");
    gate(&was_fast, &[], 3, "gate: SLOWER");
    let mut of_corrupting = read(&was_slow);
    of_corrupting["report"]["cases"][0]["servers"][0]["name"] = "corrupting".into();
    of_corrupting["servers"][0]["name"] = "corrupting".into();
    let of_corrupting_path = folder.path("corrupting.json");
    fs::write(&of_corrupting_path, of_corrupting.to_string()).unwrap();
    gate(&of_corrupting_path, &[], 4, "messages corrupt");
    gate(&was_slow, &["--peers", "honest,absent"], 1, "absent couldn't be installed");
    gate(&folder.path("nowhere.json"), &[], 1, "nowhere.json");
    gate(&was_slow, &["--tolerance"], 2, "--tolerance");

    // `compare` compares two existing results, and `history` compares many.
    let compare = |old: &PathBuf, told: &str| {
        let new = folder.results()[0].clone();
        let (code, said) = fakes::said(fakes::lab().arg("compare").args([old, &new]).output().unwrap());
        assert!(code == 0 && said.contains(told), "{said}");
    };
    compare(&was_fast, "honest");
    let page = folder.path("history.html");
    let mut history = fakes::lab();
    history.args(["history", "honest", "--results"]).arg(folder.path("results")).arg("--page").arg(&page);
    let (code, said) = fakes::said(history.output().unwrap());
    assert!(code == 0 && said.contains("fanout, fanout-1kB") && said.contains("honest 1"), "{said}");
    assert!(fs::read_to_string(page).unwrap().contains("<svg"));
}

#[test]
fn a_server_that_runs_already_is_measured() {
    let folder = Folder::new("target");
    let server = Server::start_with(true, Fault::None, 7);
    let (target, pid) = (server.address.to_string(), std::process::id().to_string());
    let run = |more: &[&str]| {
        let arguments = [&["run", "fanout", "--smoke", "--target", &target], more].concat();
        let (code, said) = folder.run(&arguments);
        assert_eq!(code, 0, "{said}");
        let result = read(folder.results().last().unwrap());
        assert_eq!(result["servers"][0]["name"], "target", "{said}");
        result["report"]["cases"][0]["servers"][0]["trials"][0]["figures"].clone()
    };
    // Unknown figures are left out.
    let figures = run(&[]);
    assert!(figures["latency_p99"].is_number() && figures["peak_memory"].is_null(), "{figures}");
    assert!(figures["cpu_per_message"].is_null(), "{figures}");
    let figures = run(&["--server-pid", &pid]);
    assert!(figures["cpu_per_message"].is_number() && figures["peak_memory"].is_number(), "{figures}");
}
