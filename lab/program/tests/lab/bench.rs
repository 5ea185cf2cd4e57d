//! The bench against the real server: a case runs from its configuration to its table. The figures aren't checked,
//! because the server is unoptimised and the machine is busy.

use std::path::{Path, PathBuf};

use crate::fakes::stentor;
use stentor_lab::bench::{Effort, Metric, Options, Report, Trial};
use stentor_lab::scenario::{SCENARIOS, run};

/// Runs a case of the goals once, small and short, with Stentor and those of `others` that are built. Returns `None`
/// without Stentor.
fn run_quickly(case: &str, others: &[(&str, &str)]) -> Option<(Report, usize)> {
    let stentor = stentor()?;
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers");
    let mut servers = vec!["stentor-epoll".to_owned()];
    for (name, built) in others {
        if peers.join(built).exists() {
            servers.push((*name).to_owned());
        } else {
            eprintln!("without {name}: lab/peers/{built} isn't there");
        }
    }
    let program = PathBuf::from(env!("CARGO_BIN_EXE_stentor-lab"));
    let mut options = Options {
        servers: servers.clone(),
        cases: vec![case.to_owned()],
        pairs: Some(1),
        effort: Effort::Smoke,
        ..Options::new(program, peers)
    };
    options.placing.stentor = Some(stentor);
    let goals = SCENARIOS.iter().find(|scenario| scenario.name == "goals").unwrap();
    let results = std::env::temp_dir().join(format!("stentor-lab-goals-{case}-{}", std::process::id()));
    let (record, page) = run(goals, options, &results, None, &mut Vec::new()).unwrap();
    assert!(std::fs::read_to_string(page).unwrap().ends_with("</html>"));
    std::fs::remove_dir_all(&results).unwrap();
    assert_eq!(record.report.cases[0].servers.len(), servers.len());
    Some((record.report, servers.len()))
}

/// Checks that no client is disconnected and all deliveries are correct. A client that is late here may skip a version
/// of a feed, as its policy says.
fn check_honest(trial: &Trial) {
    for doubt in &trial.doubts {
        let fault = ["repeated", "wrong length", "corrupt", "lost"];
        assert!(!fault.iter().any(|fault| doubt.what.contains(fault)), "{trial:?}");
    }
}

/// Checks that there is a cost per message. On a machine that is too busy, the run is invalid, and contains the reason.
fn check_cost(trial: &Trial) {
    let cost = trial.figures.get(&Metric::CpuPerMessage);
    let says_why = trial.unmeasured.is_some() || trial.doubts.iter().any(|doubt| !doubt.latency_only);
    assert!(cost.map_or(says_why, |cost| *cost > 0.0), "{trial:?}");
}

#[test]
fn slow_clients_are_fed_beside_fast_ones() {
    let Some((report, servers)) = run_quickly("never-read", &[("bare-epoll", "bare/build/bare")]) else {
        return;
    };
    let case = &report.cases[0];
    for server in &case.servers[..servers.min(1)] {
        let trial = &server.trials[0];
        assert!(trial.figures[&Metric::LatencyShift] > 0.0, "{trial:?}");
        assert!(trial.figures[&Metric::PeakMemory] > 1e6, "{trial:?}");
        check_honest(trial);
    }
    let table = report.to_string();
    assert!(table.contains("kernel/slow client") && table.contains("Goal "), "{table}");
}

#[test]
fn a_feed_reaches_clients_of_events() {
    let Some((report, _)) = run_quickly("sse-fanout", &[("stentor-epoll-ws", "")]) else { return };
    for server in &report.cases[0].servers {
        let trial = &server.trials[0];
        check_cost(trial);
        check_honest(trial);
    }
}

#[test]
fn a_budget_of_cpu_is_compared_by_connections() {
    let Some((report, servers)) = run_quickly("budget", &[("tcp", "tcp/run")]) else { return };
    let verdict = &report.cases[0].verdicts.first();
    assert_eq!(verdict.is_some(), servers > 1);
    for server in &report.cases[0].servers {
        let trial = &server.trials[0];
        // A machine that is too busy for the rate gives no figure, and a doubt says so.
        let told = trial.doubts.iter().any(|doubt| doubt.what.contains("connections a second instead"));
        assert!(told || trial.figures[&Metric::Connections] > 10.0, "{trial:?}");
    }
}

#[test]
fn changes_of_a_document_are_verified() {
    let others = [("stentor-epoll-ws", ""), ("stentor-epoll-documents", "")];
    let Some((report, _)) = run_quickly("feed-delta", &others) else { return };
    let servers = &report.cases[0].servers;
    for server in servers {
        check_honest(&server.trials[0]);
    }
    let bytes = |server: usize| servers[server].trials[0].figures[&Metric::BytesPerMessage];
    assert!(bytes(0) * 50.0 < bytes(2), "{} of {}", bytes(0), bytes(2));
    assert!(servers[0].trials[0].context["documents verified"] >= 40.0, "{:?}", servers[0].trials);
}

#[test]
fn a_cold_document_is_fetched_once() {
    let Some((report, _)) = run_quickly("feed-cold", &[]) else { return };
    let trial = &report.cases[0].servers[0].trials[0];
    assert_eq!((trial.figures[&Metric::UpstreamRequests], trial.figures[&Metric::Undelivered]), (1.0, 0.0));
}

#[test]
fn many_documents_are_fetched_and_verified() {
    let node = [("feeds-node", "feeds-node/node_modules")];
    for (case, others) in [("feed-many", &[][..]), ("feed-500x5kB", &node)] {
        let Some((report, _)) = run_quickly(case, others) else { return };
        for server in &report.cases[0].servers {
            let trial = &server.trials[0];
            check_honest(trial);
            check_cost(trial);
            // Each verifying client has a snapshot and a version.
            assert!(trial.context["documents verified"] >= 80.0, "{case}: {trial:?}");
        }
    }
}

#[test]
fn publications_over_http_are_accepted() {
    let Some((report, _)) = run_quickly("publish-api", &[]) else { return };
    let trial = &report.cases[0].servers[0].trials[0];
    check_honest(trial);
    assert!(trial.figures[&Metric::CpuPerMessage] > 0.0, "{trial:?}");
}

#[test]
fn joins_and_leaves_are_announced() {
    let others = [("uws-cpp", "uws-cpp/build/server"), ("centrifuge", "centrifuge/build/server")];
    let Some((report, _)) = run_quickly("presence", &others) else { return };
    for server in &report.cases[0].servers {
        check_honest(&server.trials[0]);
        assert_eq!(server.trials[0].figures[&Metric::Undelivered], 0.0, "{:?}", server.trials[0]);
    }
}
