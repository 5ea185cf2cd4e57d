//! Servers with deliberate faults: the lab reports each fault, and the server's own count of it.

use std::time::{Duration, Instant};

use crate::fakes::side_by_side;
use crate::server::{Fault, Server};
use stentor_lab::generator::{Audit, FanoutPlan, LoadSpec, Outcome, Publisher, Spec, run};

const CONNECTIONS: usize = 20;
/// Number of deliveries from one fault to the next.
const EVERY: u64 = 1000;
/// Time to wait for late messages on a busy machine. A check that already sees all missing messages and the last one
/// doesn't wait.
const LATE: Duration = Duration::from_secs(60);

/// 5,000 echoes without a warm-up, so each of them counts.
fn echo() -> LoadSpec {
    let measure = Duration::from_secs(1);
    LoadSpec::EchoOpen { bytes: 100, rate_hz: 5000.0, warm_up: Duration::ZERO, measure }
}

/// 5,000 deliveries.
fn fanout() -> LoadSpec {
    LoadSpec::Fanout(FanoutPlan {
        bytes: 100,
        rate_hz: 500.0,
        warm_up: 0,
        count: 250,
        publisher: Publisher::Own,
    })
}

fn measure(server: &Server, load: LoadSpec) -> Outcome {
    let mut spec = Spec::new(server.address, "/ws", CONNECTIONS, load);
    (spec.idle, spec.late) = (Duration::from_millis(10), LATE);
    run(&spec, |_| Ok(())).unwrap()
}

/// Checks a server with a fault in every thousandth delivery, by echo and by fan-out: the audit has five of this fault,
/// and the only doubt is `doubt`.
fn check((fault, doubt, expect): &(Fault, &str, Audit)) {
    for (chat, load) in [(false, echo()), (true, fanout())] {
        let server = Server::start_with(chat, *fault, EVERY);
        let outcome = measure(&server, load);
        assert_eq!(server.faults(), 5, "{fault:?}");
        assert_eq!(outcome.audit, *expect, "{fault:?}, chat: {chat}");
        // The load of this machine isn't the server's fault.
        let doubts = outcome.doubts().into_iter().filter(|doubt| !doubt.latency_only).map(|doubt| doubt.what);
        let told: Vec<String> =
            doubts.filter(|what| !what.contains("its core") && !what.contains("weren't out")).collect();
        let expect = if doubt.is_empty() { Vec::new() } else { vec![format!("5 messages {doubt}")] };
        assert_eq!(told, expect, "{fault:?}, chat: {chat}");
    }
}

#[test]
fn each_fault_is_named_and_an_honest_server_is_not_accused() {
    let all = Audit { expected: 5000, delivered: 5000, ..Audit::default() };
    let without = Audit { delivered: 4995, ..all.clone() };
    let cases = [
        (Fault::None, "", all.clone()),
        (Fault::Drops, "missing", Audit { gaps: 5, ..without.clone() }),
        (Fault::Swaps, "out of order", Audit { reordered: 5, ..all.clone() }),
        (Fault::Corrupts, "corrupt", Audit { corrupt: 5, ..without.clone() }),
        (Fault::Shortens, "of a wrong length", Audit { wrong_length: 5, ..without }),
        (Fault::Repeats, "repeated", Audit { repeated: 5, ..all }),
    ];
    side_by_side(2, &cases, check);
}

/// A message with an unreadable number is also missing, because its number is unknown.
#[test]
fn a_server_that_changes_a_number() {
    let server = Server::start_with(false, Fault::Renumbers, EVERY);
    let outcome = measure(&server, echo());
    let audit = &outcome.audit;
    assert_eq!((audit.corrupt, audit.gaps, audit.delivered), (5, 5, 4995), "{audit:?}");
}

/// Changes a bit in each byte of a payload, twice: digits that stay digits (of the number, the time and the checksum),
/// and the bytes after them. A wrong number matches no message, so one is missing as well.
#[test]
fn a_server_that_flips_a_bit_anywhere() {
    for (chat, load) in [(false, echo()), (true, fanout())] {
        let server = Server::start_with(chat, Fault::Flips, 25);
        let outcome = measure(&server, load);
        assert_eq!(server.faults(), 200);
        let expect =
            Audit { expected: 5000, delivered: 4800, corrupt: 200, gaps: 2 * 16, ..Audit::default() };
        assert_eq!(outcome.audit, expect, "chat: {chat}");
        assert!(outcome.latency.max() < Duration::from_secs(60), "{:?}", outcome.latency.max());
    }
}

/// The server stalls for 200 ms of each second, which delays a fifth of the messages: the p99 of all messages is the
/// 95th percentile of these. A loop in which the generator waits for the server would hardly show this.
#[test]
fn a_server_that_stalls() {
    let server = Server::start(false, Fault::Stalls);
    let measure_for = Duration::from_secs(2);
    let load =
        LoadSpec::EchoOpen { bytes: 100, rate_hz: 500.0, warm_up: Duration::ZERO, measure: measure_for };
    let begun = Instant::now();
    let outcome = measure(&server, load);
    let took = begun.elapsed();
    let p99 = outcome.latency.percentile(99.0);
    assert!(p99 >= Duration::from_millis(150), "{p99:?}");
    assert!(p99 < took, "{p99:?} {took:?}");
    let audit = &outcome.audit;
    assert_eq!((audit.delivered, audit.expected), (1000, 1000), "{audit:?}");
}
