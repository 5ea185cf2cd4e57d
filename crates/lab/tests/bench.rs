//! The bench against the real server: that a case runs from its configuration to its table. What is measured
//! here is worth nothing (an unoptimised server on a busy machine), so no figure is judged.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::{Path, PathBuf};

use stentor_lab::bench::{Metric, Options, run};
use stentor_lab::generator::{DriverKind, Invocation};
use stentor_lab::measure::cores;

/// The server that was built beside this test, if it was (`cargo test -p stentor-lab` alone doesn't).
fn stentor() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_stentor-lab")).with_file_name("stentor");
    path.exists().then_some(path)
}

#[test]
fn slow_clients_are_fed_beside_fast_ones() {
    let Some(stentor) = stentor() else {
        eprintln!("skipped: no stentor was built; `cargo build -p stentor` does it");
        return;
    };
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/peers");
    let mut servers = vec!["stentor-epoll".to_owned()];
    if peers.join("bare/build/bare").exists() {
        servers.push("bare-epoll".to_owned());
    } else {
        eprintln!("without bare-epoll: it isn't built; lab/peers/bare/install does it");
    }
    let options = Options {
        invocation: Invocation {
            program: PathBuf::from(env!("CARGO_BIN_EXE_stentor-lab")),
            prefix: Vec::new(),
        },
        servers: servers.clone(),
        cases: vec!["slow".to_owned()],
        stentor: Some(stentor),
        peers,
        pairs: Some(1),
        quick: true,
        server_core: 0,
        generator_core: usize::from(cores() > 1),
        generator_driver: DriverKind::Epoll,
        congestion: "whatever".to_owned(),
        echo_rate_hz: None,
        seed: 1,
    };
    let mut progress = Vec::new();
    let report = run(&options, &mut progress).unwrap();
    let case = &report.cases[0];
    assert_eq!(case.servers.len(), servers.len() + 1);
    for server in [&case.servers[0], &case.servers[servers.len()]] {
        let trial = &server.trials[0];
        assert!(trial.figures[&Metric::LatencyShift] > 0.0, "{trial:?}");
        assert!(trial.figures[&Metric::PeakMemory] > 1e6, "{trial:?}");
        // Whoever is late here skips a version, as the feed's policy says; but nobody is thrown out, and what
        // comes is right.
        for doubt in &trial.doubts {
            let fault = ["repeated", "wrong length", "corrupt", "lost"];
            assert!(!fault.iter().any(|fault| doubt.what.contains(fault)), "{trial:?}");
        }
    }
    let table = report.to_string();
    assert!(table.contains("kernel/slow client") && table.contains("stentor-epoll again"), "{table}");
}
