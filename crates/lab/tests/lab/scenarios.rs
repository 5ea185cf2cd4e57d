//! Every scenario with `--smoke` against Stentor and one peer, as far as they are there: that it runs from its words to its
//! page. What is measured is worth nothing (an unoptimised server on a busy machine), so no figure is judged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use stentor_lab::catalogue::Catalogue;

/// Scenarios that run at once.
const AT_A_TIME: usize = 6;

/// The lab's own binary, run in the repository.
fn lab() -> (PathBuf, PathBuf) {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_stentor-lab"));
    let stentor = program.with_file_name("stentor");
    (program, stentor)
}

fn run(arguments: &[&str]) -> (bool, String) {
    let (program, stentor) = lab();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let core = usize::from(stentor_lab::measure::cores() > 1).to_string();
    let output = Command::new(program)
        .current_dir(root)
        .args(arguments)
        .args(["--congestion", "system", "--generator-core", &core])
        .arg("--stentor")
        .arg(stentor)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[test]
fn each_runs_from_its_words_to_its_page() {
    if !lab().1.exists() {
        eprintln!("skipped: no stentor was built; `cargo build -p stentor` does it");
        return;
    }
    let results = std::env::temp_dir().join(format!("stentor-lab-results-{}", std::process::id()));
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
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/peers");
    let catalogue = Catalogue::read(&peers).unwrap();
    // Several at a time: they wait most of the time, and nothing is measured here.
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check_scenario(&catalogue, *case, &results);
                }
            });
        }
    });
    fs::remove_dir_all(&results).unwrap();
}

/// Runs a scenario with one of Stentor's and, if it is installed, another, and looks at what it writes.
fn check_scenario(catalogue: &Catalogue, (scenario, ours, other): (&str, &str, &str), results: &Path) {
    let is_there = catalogue.find(other).unwrap().peer.as_ref().is_none_or(|peer| peer.is_installed());
    if !is_there {
        eprintln!("{scenario} without {other}: it isn't installed");
    }
    // The judged one comes first, whatever the order on the command line.
    let names = if is_there { format!("{other},{ours}") } else { ours.to_owned() };
    let folder = results.join(scenario);
    let folder = folder.to_str().unwrap();
    let (_, said) = run(&["run", scenario, "--smoke", "--peers", &names, "--results", folder]);
    let mut pages = 0;
    for entry in fs::read_dir(folder).unwrap_or_else(|_| panic!("{said}")) {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        if path.extension().is_some_and(|extension| extension == "html") {
            pages += 1;
            // It needs nothing else.
            for loads in ["http", "src=", "<link", "<script", "url("] {
                assert!(!text.contains(loads), "{scenario}: {loads}");
            }
            assert!(text.starts_with("<!doctype html>") && text.ends_with("</html>"), "{scenario}");
            continue;
        }
        let record: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&record["schema"], &record["effort"]), (&Value::from(1), &Value::from("smoke")));
        assert_eq!(record["scenario"]["name"], scenario);
        for case in record["report"]["cases"].as_array().unwrap() {
            assert_eq!(case["servers"][0]["name"], ours, "{scenario}: {case}");
            // On a busy machine a run may give nothing but its reason.
            let trial = &case["servers"][0]["trials"][0];
            let (figures, doubts) =
                (trial["figures"].as_object().unwrap(), trial["doubts"].as_array().unwrap());
            assert!(!figures.is_empty() || !doubts.is_empty(), "{scenario}: {trial}");
            // What is ours, it can't be.
            assert!(!trial.to_string().contains("server nginx"), "{scenario}: {trial}");
        }
        assert!(!record["report"]["cases"].as_array().unwrap().is_empty(), "{scenario}: {said}");
    }
    assert_eq!(pages, 1, "{scenario}: {said}");
}

/// Over TLS, also where nginx does it, and with tokens.
#[test]
fn servers_with_tls_and_with_tokens_are_measured() {
    if !lab().1.exists() {
        eprintln!("skipped: no stentor was built; `cargo build -p stentor` does it");
        return;
    }
    let mut names =
        vec!["stentor-epoll-tls", "stentor-epoll-auth", "stentor-epoll-hs256", "stentor-epoll-es256"];
    if Command::new("nginx").arg("-v").output().is_ok() {
        names.push("stentor-epoll-nginx-tls");
    } else {
        eprintln!("skipped: nginx isn't installed");
    }
    let results = std::env::temp_dir().join(format!("stentor-lab-secure-{}", std::process::id()));
    let folder = results.to_str().unwrap();
    let (success, said) =
        run(&["run", "fanout", "--smoke", "--peers", &names.join(","), "--results", folder]);
    assert!(success, "{said}");
    for name in names {
        // Its run had figures, although the table leaves them out where a busy machine made the generator late.
        assert!(said.contains(&format!(" {name}: CPU/message ")), "{name}: {said}");
    }
    fs::remove_dir_all(&results).unwrap();
}

/// Publications at one node reach clients of another, and one node fetches a feed for all, by a Redis.
#[test]
fn servers_of_several_nodes_are_measured() {
    if !lab().1.exists() {
        eprintln!("skipped: no stentor was built; `cargo build -p stentor` does it");
        return;
    }
    if Command::new("redis-server").arg("--version").output().is_err() {
        eprintln!("skipped: redis-server isn't installed");
        return;
    }
    let results = std::env::temp_dir().join(format!("stentor-lab-nodes-{}", std::process::id()));
    let folder = results.to_str().unwrap();
    let cases = "cluster-latency,cluster-feed";
    let servers = "stentor-epoll-3nodes";
    let (success, said) =
        run(&["bench", "--smoke", "--cases", cases, "--servers", servers, "--results", folder]);
    assert!(success, "{said}");
    let mut files = fs::read_dir(&results).unwrap().map(|entry| entry.unwrap().path());
    let file = files.find(|path| path.extension().is_some_and(|extension| extension == "json"));
    let record: Value = serde_json::from_slice(&fs::read(file.unwrap()).unwrap()).unwrap();
    let trial = |case: usize| &record["report"]["cases"][case]["servers"][0]["trials"][0];
    let figure = |case, name| trial(case)["figures"][name].as_f64().unwrap_or_else(|| panic!("{said}"));
    // The last node sends the event, and Redis passes it to both nodes with clients.
    let bytes = figure(0, "engine_bytes") * 3.0;
    assert!((3000.0..6000.0).contains(&bytes), "{bytes}: {said}");
    assert!(figure(0, "cpu_per_publication") > 0.0, "{said}");
    // The document, four versions at least, and the one that is waited for. Each node on its own would send three times as many.
    assert!(figure(1, "upstream_requests") >= 5.0 && figure(1, "upstream_ratio") <= 1.1, "{said}");
    let bytes = figure(1, "engine_bytes");
    assert!((500.0..50_000.0).contains(&bytes), "{bytes}: {said}");
    fs::remove_dir_all(&results).unwrap();
}

#[test]
fn what_is_not_there_is_told() {
    let check = |arguments: &[&str], expect: &str| {
        let (success, said) = run(arguments);
        assert!(!success && said.contains(expect), "{said}");
    };
    check(&["run", "echo-26k"], "there are echo-25k");
    check(&["run", "echo-25k", "--smoke", "--peers", "ws9"], "no server `ws9`");
    check(&["run", "echo-25k", "--smoke", "--peers", "stentor:fog"], "doesn't speak `fog`");
}

#[test]
fn a_peer_that_fails_does_not_keep_the_others_from_it() {
    if !lab().1.exists() {
        eprintln!("skipped: no stentor was built; `cargo build -p stentor` does it");
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let folder = std::env::temp_dir().join(format!("stentor-lab-failing-{}", std::process::id()));
    let script = |peer: &str, name: &str, text: &str| {
        let path = folder.join(peer).join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    for (peer, install, run) in [
        ("uninstallable", "echo no compiler here >&2; exit 1", "exit 0"),
        ("unstartable", "exit 0", "echo the port is taken >&2; exit 1"),
        // It listens nowhere: every connection is refused.
        ("deaf", "exit 0", "echo ready http://127.0.0.1:9; exec sleep 60"),
    ] {
        fs::create_dir_all(folder.join(peer)).unwrap();
        let manifest = "about = \"fails\"\nmodes = [\"echo\"]\n[protocols]\nwebsocket = \"/\"\n";
        fs::write(folder.join(peer).join("peer.toml"), manifest).unwrap();
        script(peer, "install", install);
        script(peer, "run", run);
    }
    let results = folder.join("results");
    let names = "stentor,uninstallable,unstartable,deaf";
    let (peers, results) = (folder.to_str().unwrap(), results.to_str().unwrap());
    let (success, said) =
        run(&["run", "echo-25k", "--smoke", "--peers", names, "--peers-dir", peers, "--results", results]);
    assert!(!success, "{said}");
    for told in ["no compiler here", "the port is taken", "not everybody could be measured"] {
        assert!(said.contains(told), "{told}: {said}");
    }
    let mut rows = said.lines().filter(|line| line.trim_start().starts_with("stentor "));
    assert!(rows.any(|row| row.contains("µs")), "{said}");
    fs::remove_dir_all(&folder).unwrap();
}
