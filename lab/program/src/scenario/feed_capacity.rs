//! Clients of a live document (a sports site, 2014).

use super::marks::CLIENTS;
use super::{Effort, Scenario};
use crate::bench::Metric::{
    self, BytesPerMessage, Clients, CpuPerMessage, LatencyP50, LatencyP99, MemoryGrowth, PeakMemory,
};
use crate::bench::{Case, Course};
use crate::document::Shape;
use crate::generator::{LoadSpec, Protocol};
use crate::plot::Place::Across;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "feed-capacity",
    question: "How many clients can be kept up to date on a live document, and what does it cost?",
    load: "164,194 bytes once a second to more and more clients, up to 10,000, until one is disconnected, less than 99.9 % come, \
           the age's p99 exceeds the period, or memory grows by more than 1 % in 10 s. T1: 4,000 clients, 5 kB a second. T2: 2,000 clients, 10 kB a second. T3: 4,000 clients, 10 kB every two seconds. 20 \
           values of the document change from version to version; it comes from an HTTP API.",
    metric: "The most clients; server CPU per client and version, µs, fetching included; bytes per client and version; p99, ms; peak memory.",
    source: "A sports site's live feed, January 2014: Node 0.10, ws 0.4, Socket.IO 0.9, Engine.IO 0.7.12, Primus 1.5.0.",
    published: &[
        ("Socket.IO 0.9", "140 clients", &[(CLIENTS, "search", Across(140.0))]),
        ("Engine.IO 0.7.12", "230 clients", &[(CLIENTS, "search", Across(230.0))]),
        ("ws 0.4", "410 clients; at 415 the process dies", &[(CLIENTS, "search", Across(410.0))]),
        ("Engine.IO, T2 against T1", "−20 % memory, −35 % CPU, −75 % event loop latency", &[]),
        ("Engine.IO, T3 against T1", "−25 % CPU", &[]),
    ],
    repaired: "`stentor` sends what changed, as the original announced and never built; `stentor-epoll-documents` sends whole \
               documents; peers, which have no feeds, send a message of the same length from one client to all. Clients connect \
               at 2,000 a second instead of one every 500 ms, each level on a fresh process; a level that is over the \
               generator's head gives a lower bound.",
    peers: &["stentor", "stentor-epoll-documents", "ws8", "ws04", "engineio07", "socketio09", "primus15"],
    cases,
};

/// The big document of the original.
const BIG_BYTES: usize = 164_194;

/// What a version costs.
pub(super) const COSTS: &[Metric] = &[CpuPerMessage, BytesPerMessage, LatencyP50, LatencyP99, PeakMemory];
/// What a search finds.
const FOUND: &[Metric] =
    &[Clients, CpuPerMessage, BytesPerMessage, LatencyP50, LatencyP99, PeakMemory, MemoryGrowth];

/// By a feed whose document is so long.
fn of_document(case: Case, bytes: usize) -> Case {
    case.by_feed(Some(Shape { bytes, changes: 20 })).connecting_at(2000.0)
}

fn cases(effort: Effort) -> Vec<Case> {
    let test = |name, connections: usize, bytes: usize, rate_hz: f64| {
        let connections = effort.of(connections, connections, connections / 20);
        let rate_hz = effort.of(rate_hz, rate_hz, 4.0);
        let load = LoadSpec::to_all(bytes, rate_hz, effort.of(5, 1, 1), effort.of(20, 4, 3));
        let title = format!("{bytes} bytes to {connections} clients, {rate_hz} a second");
        let case = Case::new(name, title, (connections, load), Protocol::StentorV1, COSTS);
        effort.case(of_document(case, bytes).or(&[Protocol::WebSocket]))
    };
    let big = effort.of(BIG_BYTES, BIG_BYTES, BIG_BYTES / 10);
    let rate_hz = effort.of(1.0, 1.0, 4.0);
    let load = LoadSpec::to_all(big, rate_hz, effort.of(5, 1, 1), effort.of(30, 3, 2));
    let title = format!("the most clients of a document of {big} bytes");
    let most = effort.of(10_000, 10_000, 80);
    let search = Case::new("search", title, (most, load), Protocol::StentorV1, FOUND);
    let search = effort.long_case(Case {
        pairs: 1,
        course: Course::Search { first: effort.of(625, 5000, 80), within: effort.of(0.03, 0.3, 0.5) },
        ..of_document(search, big).or(&[Protocol::WebSocket, Protocol::SocketIo])
    });
    let t1 = test("t1", 4000, 5000, 1.0);
    if effort == Effort::Full {
        return vec![search, t1, test("t2", 2000, 10_000, 1.0), test("t3", 4000, 10_000, 0.5)];
    }
    vec![search, t1]
}
