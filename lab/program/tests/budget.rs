//! A budget of the server's CPU time. The server is a thread of this process, and the test reads this process's clock.
//! Every other test would use up the budget as well, so this test has a program of its own.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod server;

use std::time::{Duration, Instant};

use server::{Fault, Server};
use stentor_lab::generator::{BudgetPlan, LoadSpec, Outcome, Spec, run};

/// Maximum number of attempts while the generator is too busy for the rate of connecting.
const TRIES: usize = 10;

/// Returns the outcome, and the time that the whole load took. Each load has a server of its own, because a server that
/// still closes earlier connections would use up the budget.
fn spend(spec: &Spec) -> (Outcome, Duration) {
    for _ in 0..TRIES {
        let server = Server::start(false, Fault::None);
        let spec = Spec { targets: vec![server.address], ..spec.clone() };
        let begun = Instant::now();
        match run(&spec, |_| Ok(())) {
            // A busy machine is reported in place of a result.
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
    // The generator is in the same process, so the budget is soon used up.
    assert!(outcome.load.server_cpu >= cpu && outcome.load.server_cpu < cpu * 3, "{outcome:?}");
    let audit = &outcome.audit;
    assert!(outcome.connections > 10 && outcome.connections < 5000, "{outcome:?}");
    assert!(audit.expected > 20 && audit.delivered == audit.expected, "{audit:?}");
    assert_eq!((audit.corrupt, audit.wrong_length, audit.gaps), (0, 0, 0), "{audit:?}");
    assert_eq!(outcome.latency.len(), audit.delivered);
    // Each echo is timed from its due time, so none takes longer than the load and the wait after it.
    assert!(outcome.latency.max() < took, "{:?} {took:?}", outcome.latency.max());
    let grows = outcome.progress.windows(2).all(|two| two[0].connections <= two[1].connections);
    assert!(grows && !outcome.progress.is_empty(), "{:?}", outcome.progress);
    // Each connection begins when the previous one is open, without a rate. On a busy machine, where each takes long,
    // frequent echoes would use up the budget before many are open.
    spec.load = budget(seldom, cpu, true);
    spec.connect_rate_hz = 1.0;
    let (outcome, _) = spend(&spec);
    assert!(outcome.connections > 20, "{outcome:?}");
    assert_eq!(outcome.audit.delivered, outcome.audit.expected);
    // Three connections don't use up the budget by connecting, so they continue with echoes.
    spec.load = budget(often, Duration::from_millis(100), true);
    spec.connections = 3;
    let (outcome, _) = spend(&spec);
    assert_eq!(outcome.connections, 3);
    assert!(outcome.audit.expected > 3 && outcome.audit.delivered == outcome.audit.expected, "{outcome:?}");
}
