//! A budget of the server's CPU time. The server is a thread of this process, and it is this process's clock that is read: every
//! other test would spend from the budget as well, so this one has a program of its own.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod server;

use std::time::{Duration, Instant};

use server::{Fault, Server};
use stentor_lab::generator::{BudgetPlan, LoadSpec, Outcome, Spec, run};

/// How often a generator may be too busy for the rate of connecting.
const TRIES: usize = 10;

/// The outcome, and the time from before the beginning to after the end. Each load has a server of its own, because one that still
/// closes earlier connections would spend some of the budget.
fn spend(spec: &Spec) -> (Outcome, Duration) {
    for _ in 0..TRIES {
        let server = Server::start(false, Fault::None);
        let spec = Spec { targets: vec![server.address], ..spec.clone() };
        let begun = Instant::now();
        match run(&spec, |_| Ok(())) {
            // On a busy machine: that it says so, and gives no result, is right.
            Err(error) if error.to_string().contains("connections a second instead") => {}
            outcome => return (outcome.unwrap(), begun.elapsed()),
        }
    }
    panic!("the rate of connecting wasn't reached in any of {TRIES} tries");
}

#[test]
fn a_budget_ends_when_the_server_has_used_it() {
    let cpu = Duration::from_millis(400);
    let (often, seldom) = (Duration::from_millis(20), Duration::from_millis(200));
    let budget = |every, cpu, one_by_one| LoadSpec::Budget(BudgetPlan { bytes: 17, every, cpu, one_by_one });
    let mut spec = Spec::new(([127, 0, 0, 1], 0).into(), "/ws", 5000, budget(often, cpu, false));
    spec.server_pids = vec![std::process::id()];
    spec.connect_rate_hz = 200.0;
    let (outcome, took) = spend(&spec);
    // The generator is in the same process here, so the budget is soon gone.
    assert!(outcome.load.server_cpu >= cpu && outcome.load.server_cpu < cpu * 3, "{outcome:?}");
    let audit = &outcome.audit;
    assert!(outcome.connections > 10 && outcome.connections < 5000, "{outcome:?}");
    assert!(audit.expected > 20 && audit.delivered == audit.expected, "{audit:?}");
    assert_eq!((audit.corrupt, audit.wrong_length, audit.gaps), (0, 0, 0), "{audit:?}");
    assert_eq!(outcome.latency.len(), audit.delivered);
    // Each echo is timed from when it was due, so none takes longer than the load and the wait after it.
    assert!(outcome.latency.max() < took, "{:?} {took:?}", outcome.latency.max());
    let grows = outcome.progress.windows(2).all(|two| two[0].connections <= two[1].connections);
    assert!(grows && !outcome.progress.is_empty(), "{:?}", outcome.progress);
    // One begun when the last one is up: no rate holds it back. Where each takes long, on a busy machine, frequent echoes would
    // spend it all before many are up.
    spec.load = budget(seldom, cpu, true);
    spec.connect_rate_hz = 1.0;
    let (outcome, _) = spend(&spec);
    assert!(outcome.connections > 20, "{outcome:?}");
    assert_eq!(outcome.audit.delivered, outcome.audit.expected);
    // Too few connections for the budget: they go on.
    spec.load = budget(often, Duration::from_millis(100), true);
    spec.connections = 3;
    let (outcome, _) = spend(&spec);
    assert_eq!(outcome.connections, 3);
    assert!(outcome.audit.expected > 3 && outcome.audit.delivered == outcome.audit.expected, "{outcome:?}");
}
