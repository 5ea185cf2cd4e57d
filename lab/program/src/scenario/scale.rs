//! Up to a million clients of one process.

use std::time::Duration;

use super::machine::memory_bytes;
use super::marks::LAST;
use super::{Effort, Scenario};
use crate::bench::Metric::{
    BytesPerConnection, CpuPerMessage, IdleCpu, KernelPerConnection, LastReceiver, PeakMemory, Undelivered,
};
use crate::bench::{Case, Course, bound};
use crate::generator::{LoadSpec, Protocol};
use crate::plot::Place::Span;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "scale",
    question: "How many clients does one process hold, what does each cost, and how long until all have a notification?",
    load: "10,000, 25,000, 50,000, 100,000 … connections that are in a room and do nothing; then a message of 1,000 bytes goes to \
           all of them, three times. What the server uses between the messages is taken off that, and where it scatters as much as the messages \
           cost, their CPU isn't told. Full goes on as far as memory reaches, to 1,000,000; peers take part as far as one process \
           has descriptors.",
    metric: "The last receiver (of the median message), ms; server CPU per delivery, µs; memory per connection, bytes: the \
             server's private pages, and the kernel's (slab and socket buffers, both ends of a connection); server CPU per idle \
             connection, µs a second.",
    source: "Half a million notifications with Socket.IO, June 2017; Centrifugo's authors, February 2020 \
             (centrifugal.dev/blog/2020/02/10/million-connections-with-centrifugo).",
    published: &[
        ("the aim", "500,000 clients notified within 1–2 s", &[(LAST, "", Span(500e3, (1000.0, 2000.0)))]),
        (
            "Centrifugo, 20 servers with Redis, 40 CPUs in all",
            "1,000,000 clients, 500,000 deliveries a second, p99 200 ms, 30 kB a connection",
            &[],
        ),
    ],
    repaired: "Clients are on the same machine and share a core, so the last receiver is the generator's time as much as the \
               server's: CPU per delivery tells what the server needs. One core of Stentor's holds 255,000 \
               connections without descriptors of their own; beyond, it has two, on the same core of the machine.",
    peers: &["stentor", "uws-cpp", "ws8"],
    cases,
};

/// With heartbeats for five minutes, a message to all is to take 9 s of one core, and the server 400 MB.
const GOAL: usize = 1_000_000;
/// All levels, with the name of each.
const LEVELS: [(&str, usize); 9] = [
    ("scale-10k", 10_000),
    ("scale-25k", 25_000),
    ("scale-50k", 50_000),
    ("scale-100k", 100_000),
    ("scale-150k", 150_000),
    ("scale-200k", 200_000),
    ("scale-250k", 250_000),
    ("scale-500k", 500_000),
    ("scale-1m", GOAL),
];
/// What is left to the machine, and what a connection takes of the rest: about 8 kB of the kernel for both ends, a quarter of
/// which once more while a message is on its way to all, and the generator's own.
const MEMORY_KEPT_BYTES: usize = 4 << 30;
const CONNECTION_BYTES: usize = 16 << 10;
/// What a delivery takes at most, a slow server's and a slow machine's too: messages are so far apart that each has time.
const DELIVERY_MAX: Duration = Duration::from_micros(80);

fn cases(effort: Effort) -> Vec<Case> {
    let most = (memory_bytes("MemAvailable") as usize).saturating_sub(MEMORY_KEPT_BYTES) / CONNECTION_BYTES;
    let level = |(name, connections): (&'static str, usize)| {
        let every = DELIVERY_MAX.mul_f64(connections as f64).max(Duration::from_millis(500));
        let load = LoadSpec::to_all(1000, 1.0 / every.as_secs_f64(), 1, effort.of(3, 3, 2));
        let title = format!("{connections} connections, and a message of 1000 bytes to all");
        let metrics = &[
            LastReceiver,
            CpuPerMessage,
            BytesPerConnection,
            KernelPerConnection,
            IdleCpu,
            PeakMemory,
            Undelivered,
        ];
        let case = Case::new(name, title, (connections, load), Protocol::WebSocket, metrics);
        // Full: a heartbeat of every connection, and a little more.
        let rest = if connections == GOAL { 300.0 } else { 26.0 };
        let course = Course::Rested(effort.span(rest, 3.0, 0.3));
        let case = case.or(&[Protocol::SocketIo, Protocol::SockJs, Protocol::Tcp]).connecting_at(8000.0);
        let targets = match connections {
            GOAL => vec![bound(CpuPerMessage, 9.0), bound(PeakMemory, 400e6), bound(Undelivered, 0.0)],
            _ => Vec::new(),
        };
        effort.long_case(Case { course, targets, ..case })
    };
    let all = LEVELS.into_iter();
    match effort {
        Effort::Smoke => vec![level(("scale-1k", 1000))],
        Effort::Quick => all.take(3).map(level).collect(),
        // The first ones always, so that there is something to say where memory is short.
        Effort::Full => all.filter(|(_, connections)| *connections <= most.max(10_000)).map(level).collect(),
    }
}
