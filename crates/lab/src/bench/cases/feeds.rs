//! Documents that change a little, and clients that are sent what changed.

use std::time::Duration;

use super::{Case, CaseKind, PAIRS_OF_STEADY, Scale, bound, ratio};
use crate::bench::Metric;
use crate::document::Shape;
use crate::generator::Protocol;

pub(super) fn cases(scale: Scale) -> Vec<Case> {
    let crowd = scale.of(4000, 4000, 300);
    let asking = scale.of(10_000, 10_000, 1000);
    vec![
        Case {
            name: "feed-delta",
            title: format!(
                "a document of 165 kB with 20 changed values a second to {crowd} clients: what changed, the document, \
                 or a message of 1000 bytes"
            ),
            kind: CaseKind::Feed {
                connections: crowd,
                shape: Shape { bytes: 165_000, changes: 20 },
                message_bytes: 1000,
                connect_rate_hz: scale.of(500.0, 1000.0, 500.0),
                rate_hz: 1.0,
                warm_up: scale.of(3, 2, 1),
                count: scale.of(10, 6, 3),
            },
            protocol: Protocol::StentorV1,
            metrics: &[
                Metric::CpuPerMessage,
                Metric::BytesPerMessage,
                Metric::LatencyP50,
                Metric::LatencyP99,
                Metric::PeakMemory,
            ],
            targets: vec![
                ratio(Metric::CpuPerMessage, "stentor-epoll-ws", 1.3),
                ratio(Metric::CpuPerMessage, "stentor-epoll-documents", 1.0 / 3.0),
                ratio(Metric::BytesPerMessage, "stentor-epoll-documents", 0.01),
                bound(Metric::LatencyP99, 50.0),
            ],
            only: &[],
            or: &[],
            by_slowest: false,
            usual: vec!["stentor-epoll", "stentor-epoll-ws", "stentor-epoll-documents"],
            again: true,
            pairs: scale.pairs(PAIRS_OF_STEADY),
        },
        Case {
            name: "feed-cold",
            title: format!(
                "{asking} clients ask at once for a document of 5 kB that the server has to fetch first"
            ),
            kind: CaseKind::Cold {
                connections: asking,
                shape: Shape { bytes: 5000, changes: 1 },
                hesitates: Duration::from_millis(100),
            },
            protocol: Protocol::StentorV1,
            metrics: &[
                Metric::LastReceiver,
                Metric::UpstreamRequests,
                Metric::CpuPerMessage,
                Metric::Undelivered,
            ],
            targets: vec![
                bound(Metric::LastReceiver, 1000.0),
                bound(Metric::UpstreamRequests, 1.0),
                bound(Metric::Undelivered, 0.0),
            ],
            only: &["stentor-epoll", "stentor-uring"],
            or: &[],
            by_slowest: false,
            usual: vec!["stentor-epoll"],
            again: true,
            pairs: scale.pairs(PAIRS_OF_STEADY),
        },
    ]
}
