//! A document that changes more often than all clients can be sent it.

use super::{Effort, Scenario};
use crate::bench::Metric::{AgeShift, CpuPerMessage, Deliveries, MemoryGrowth, PeakMemory, Undelivered};
use crate::bench::{Case, Course, bound, overload_lasts};
use crate::document::Shape;
use crate::generator::{LoadSpec, Protocol};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "overload",
    question: "What do clients get when a document changes more often than it can be delivered?",
    load: "A document of 165 kB, whole, to 10,000 clients. The capacity is 0.9 times what is delivered while 40 versions a second are \
           offered. Then the document changes at 0.5, 2, 5, 10 and again 0.5 times that rate.",
    metric: "Age of what the median client has after the overload, as a multiple of the age before; documents delivered a second at \
             10 times the capacity; versions that clients skipped at 0.5 times, %; peak memory and its growth.",
    source: "Our own.",
    published: &[],
    repaired: "Age is the time since the version that a client has was due, sampled every 250 ms over all clients. Kernel receive \
               buffers are limited to 128 kB: otherwise old documents wait there.",
    peers: &["stentor-epoll-documents"],
    cases,
};

/// Servers that keep the newest value only.
const LATEST: &[&str] = &["stentor-epoll-documents"];

fn cases(effort: Effort) -> Vec<Case> {
    let connections = effort.of(10_000, 2000, 50);
    let bytes = effort.of(165_000, 165_000, 50_000);
    let phase = effort.span(20.0, 6.0, 1.0);
    let case = Case::new(
        "overload",
        format!(
            "a document of {bytes} bytes to {connections} clients, up to 10 times as often as it can be delivered"
        ),
        (connections, LoadSpec::Follow { lasts: overload_lasts(phase) }),
        Protocol::WebSocket,
        &[AgeShift, Deliveries, Undelivered, CpuPerMessage, PeakMemory, MemoryGrowth],
    );
    let goals = vec![bound(AgeShift, 1.5), bound(Undelivered, 1.0), bound(PeakMemory, 64e6)];
    let case = case.by_feed(Some(Shape { bytes, changes: 20 })).connecting_at(1000.0).goals(LATEST, goals);
    vec![Case { only: LATEST, course: Course::Overload(phase), ..case }]
}
