//! Clients that read slowly or never beside others.

use std::time::Duration;

use super::{Effort, Scenario};
use crate::bench::Metric::{CutOff, KernelPerSlow, LatencyP99, LatencyShift, MemoryGrowth, PeakMemory};
use crate::bench::{Case, Course, bound};
use crate::generator::{LoadSpec, Misbehaviour, Protocol};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "slow-readers",
    question: "What do those who read notice of those who don't?",
    load: "165 kB once a second to 500 clients; then the same beside 500 more that never read, or that read at most 64 KiB a \
           second. Stentor's are subscribed to a feed, whose old versions such clients skip; peers publish in a room.",
    metric: "p99 of those who read, as a multiple of the p99 without the others; the others that the server ended; kernel memory \
             for each of them, bytes; peak memory, and its growth in 10 s.",
    source: "Our own.",
    published: &[],
    repaired: "Nothing. Clients beside are a generator of their own. Whether a server ends clients that don't read is its policy, \
               neither good nor bad; that it holds ever more memory for them is bad.",
    peers: &["stentor", "uws-cpp", "ws8"],
    cases,
};

fn cases(effort: Effort) -> Vec<Case> {
    let every = Duration::from_secs(1);
    let slowly = case(effort, "read-slowly", "read 64 KiB a second", Misbehaviour::ReadsSlowly { every });
    if effort == Effort::Full { vec![never_read(effort), slowly] } else { vec![never_read(effort)] }
}

pub(super) fn never_read(effort: Effort) -> Case {
    let goals = vec![bound(LatencyShift, 1.5), bound(KernelPerSlow, 200_000.0), bound(MemoryGrowth, 1.0)];
    case(effort, "never-read", "never read", Misbehaviour::NeverReads)
        .goals(&["stentor-uring", "bare-epoll", "uws-cpp"], goals)
}

fn case(effort: Effort, name: &'static str, what: &str, how: Misbehaviour) -> Case {
    let clients = effort.of(500, 500, 100);
    let rate_hz = effort.of(1.0, 2.0, 4.0);
    let load = LoadSpec::to_all(165_000, rate_hz, effort.of(6, 4, 2), effort.of(14, 8, 5));
    let course = Course::Beside { how, clients, alone_max: effort.of(10, 6, 5) };
    let case = Case::new(
        name,
        format!("{clients} clients that {what} beside {clients} that read"),
        (clients, load),
        Protocol::WebSocket,
        &[LatencyShift, LatencyP99, CutOff, KernelPerSlow, PeakMemory, MemoryGrowth],
    );
    let case = case.by_feed(None).or(&[Protocol::SocketIo, Protocol::SockJs, Protocol::Tcp]);
    effort.long_case(Case { course, ..case })
}
