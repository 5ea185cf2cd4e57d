//! **Question:** what do those who read notice of those who don't?
//!
//! **Load:** a document of 165 kB once a second to clients that read; then the same beside as many that never read, or that read
//! 64 KiB a second and so fall behind. Stentor's are subscribed to a feed, peers publish in a room.
//! **Metric:** p99 of those who read as a multiple of the p99 without the others; how many of the others the server ended; kernel
//! memory per client that doesn't read, bytes; peak memory and its growth.
//!
//! **Published:** nothing; npm ws 0.4 died of it in the sports site's test (see [`super::feed_capacity`]).

use std::time::Duration;

use super::{Effort, Scenario};
use crate::bench::{Case, CaseKind, Metric};
use crate::generator::{LoadSpec, Misbehaviour, Protocol, Publisher};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "slow-readers",
    question: "What do those who read notice of those who don't?",
    load: "165 kB once a second to 500 clients; then the same beside 500 more that never read, or that read at most 64 KiB a \
           second. Stentor's are subscribed to a feed, whose old versions such clients skip; peers publish in a room.",
    metric: "p99 of those who read, as a multiple of the p99 without the others; the others that the server ended; kernel memory \
             for each of them, bytes; peak memory, and its growth in 10 s.",
    source: "Our own; it is the bench's case `slow`.",
    published: &[],
    repaired: "Nothing. Clients beside are a generator of their own. Whether a server ends clients that don't read is its policy, \
               neither good nor bad; that it holds ever more memory for them is bad.",
    peers: &["stentor", "uws-cpp", "ws8"],
    cases,
};

fn cases(effort: Effort) -> Vec<Case> {
    let clients = effort.of(500, 500, 50);
    let beside = |name, what: &str, how| {
        effort.case(Case {
            or: &[Protocol::SocketIo, Protocol::SockJs, Protocol::Tcp],
            pairs: 1,
            ..Case::new(
                name,
                format!("{clients} clients that {what} beside {clients} that read"),
                CaseKind::Beside {
                    connections: clients,
                    load: LoadSpec::Fanout {
                        bytes: 165_000,
                        rate_hz: effort.of(1.0, 2.0, 5.0),
                        warm_up: effort.of(6, 4, 2),
                        count: effort.of(14, 8, 3),
                        publisher: Publisher::Own,
                    },
                    how,
                    misbehaving: clients,
                    alone_max: effort.of(10, 6, 2),
                },
                Protocol::WebSocket,
                &[
                    Metric::LatencyShift,
                    Metric::LatencyP99,
                    Metric::CutOff,
                    Metric::KernelPerSlow,
                    Metric::PeakMemory,
                    Metric::MemoryGrowth,
                ],
            )
        })
    };
    let never = beside("never", "never read", Misbehaviour::NeverReads);
    let slowly =
        beside("slowly", "read 64 KiB a second", Misbehaviour::ReadsSlowly { every: Duration::from_secs(1) });
    if effort == Effort::Full { vec![never, slowly] } else { vec![never] }
}
