//! Every scenario with `--smoke` against Stentor and one other server, if they are there: each runs from its
//! declaration to its page. The figures aren't checked, because the server is unoptimised and the machine is busy.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::fakes::{self, Folder, read, side_by_side, stentor};
use serde_json::Value;
use stentor_lab::catalogue::Catalogue;

/// Runs the lab in the repository with these arguments and this folder for results. Returns `true` if it succeeds, and
/// its output.
fn run(stentor: &Path, results: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = fakes::lab();
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).args(arguments);
    command.args(fakes::measuring()).arg("--stentor").arg(stentor).arg("--results").arg(results);
    let (code, said) = fakes::said(command.output().unwrap());
    (code == 0, said)
}

#[test]
fn each_scenario_runs_from_its_command_to_its_page() {
    let Some(stentor) = stentor() else { return };
    let folder = Folder::new("scenarios");
    let cases = [
        ("echo-25k", "stentor", "ws8"),
        ("room-broadcast", "stentor:socketio", "socketio4"),
        ("chat-rtt", "stentor:sockjs", "sockjs-node"),
        ("cpu-budget", "stentor:socketio", "tcp"),
        ("feed-capacity", "stentor", "ws8"),
        ("fanout", "stentor", "ws8"),
        ("idle", "stentor", "ws8"),
        ("scale", "stentor", "ws8"),
        ("storm", "stentor", "ws8"),
        ("slow-readers", "stentor", "ws8"),
        ("misbehaving", "stentor", "ws8"),
        ("overload", "stentor-epoll-documents", "ws8"),
    ];
    // The goals have a test of their own.
    assert_eq!(cases.len() + 1, stentor_lab::scenario::SCENARIOS.len());
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers");
    let catalogue = Catalogue::read(&peers).unwrap();
    // Scenarios wait most of the time, and nothing is measured here.
    side_by_side(6, &cases, |case| check_scenario(&stentor, &catalogue, *case, &folder.path("results")));
}

/// Runs a scenario with one of Stentor's servers and, if it is installed, another server. Checks the written files.
fn check_scenario(
    stentor: &Path,
    catalogue: &Catalogue,
    (scenario, ours, other): (&str, &str, &str),
    results: &Path,
) {
    let is_there = catalogue.find(other).unwrap().peer.as_ref().is_none_or(|peer| peer.is_installed());
    if !is_there {
        eprintln!("{scenario} without {other}: it isn't installed");
    }
    // The baseline server comes first, whatever the order on the command line.
    let names = if is_there { format!("{other},{ours}") } else { ours.to_owned() };
    let folder = results.join(scenario);
    let (_, said) = run(stentor, &folder, &["run", scenario, "--smoke", "--peers", &names]);
    let mut pages = 0;
    for entry in fs::read_dir(folder).unwrap_or_else(|_| panic!("{said}")) {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "html") {
            pages += 1;
            let text = fs::read_to_string(&path).unwrap();
            // The page loads no other file.
            for loads in ["http", "src=", "<link", "<script", "url("] {
                assert!(!text.contains(loads), "{scenario}: {loads}");
            }
            assert!(text.starts_with("<!doctype html>") && text.ends_with("</html>"), "{scenario}");
            continue;
        }
        let record = read(&path);
        assert_eq!((&record["schema"], &record["effort"]), (&Value::from(1), &Value::from("smoke")));
        assert_eq!(record["scenario"]["name"], scenario);
        for case in record["report"]["cases"].as_array().unwrap() {
            assert_eq!(case["servers"][0]["name"], ours, "{scenario}: {case}");
            // On a busy machine, a run may have only the reason for its failure.
            let trial = &case["servers"][0]["trials"][0];
            let (figures, doubts) =
                (trial["figures"].as_object().unwrap(), trial["doubts"].as_array().unwrap());
            assert!(!figures.is_empty() || !doubts.is_empty(), "{scenario}: {trial}");
            // The proxy belongs to the lab, so no error may call it a server.
            assert!(!trial.to_string().contains("server nginx"), "{scenario}: {trial}");
        }
        assert!(!record["report"]["cases"].as_array().unwrap().is_empty(), "{scenario}: {said}");
    }
    assert_eq!(pages, 1, "{scenario}: {said}");
}

/// Measures servers over TLS, also behind nginx, and with tokens.
#[test]
fn servers_with_tls_and_with_tokens_are_measured() {
    let Some(stentor) = stentor() else { return };
    let mut names =
        vec!["stentor-epoll-tls", "stentor-epoll-auth", "stentor-epoll-hs256", "stentor-epoll-es256"];
    if Command::new("nginx").arg("-v").output().is_ok() {
        names.push("stentor-epoll-nginx-tls");
    } else {
        eprintln!("skipped: nginx isn't installed");
    }
    let folder = Folder::new("secure");
    let (success, said) =
        run(&stentor, &folder.path("results"), &["run", "fanout", "--smoke", "--peers", &names.join(",")]);
    assert!(success, "{said}");
    for name in names {
        // The run had figures. The table leaves them out if the generator was late on a busy machine.
        assert!(said.contains(&format!(" {name}: CPU/message ")), "{name}: {said}");
    }
}

/// Publications at one node reach clients of another, and one node fetches a feed for all, over Redis.
#[test]
fn servers_of_several_nodes_are_measured() {
    let Some(stentor) = stentor() else { return };
    if Command::new("redis-server").arg("--version").output().is_err() {
        eprintln!("skipped: redis-server isn't installed");
        return;
    }
    let folder = Folder::new("nodes");
    let cases = ["--cases", "cluster-latency,cluster-feed", "--servers", "stentor-epoll-3nodes"];
    let (success, said) =
        run(&stentor, &folder.path("results"), &[&["bench", "--smoke"], &cases[..]].concat());
    assert!(success, "{said}");
    let record = read(&folder.results()[0]);
    let trial = |case: usize| &record["report"]["cases"][case]["servers"][0]["trials"][0];
    let figure = |case, name| trial(case)["figures"][name].as_f64().unwrap_or_else(|| panic!("{said}"));
    // The last node sends the event, and Redis passes it to both nodes with clients.
    let bytes = figure(0, "engine_bytes") * 3.0;
    assert!((3000.0..6000.0).contains(&bytes), "{bytes}: {said}");
    assert!(figure(0, "cpu_per_publication") > 0.0, "{said}");
    // Expected requests: the document, at least four versions, and the pending one. Without a cluster, the nodes would
    // send three times as many.
    assert!(figure(1, "upstream_requests") >= 5.0 && figure(1, "upstream_ratio") <= 1.1, "{said}");
    let bytes = figure(1, "engine_bytes");
    assert!((500.0..50_000.0).contains(&bytes), "{bytes}: {said}");
}
