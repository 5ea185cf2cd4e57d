//! Metrics of TLS.

use super::{CoreMetrics, Figure, Seconds};
use crate::ports::{Histogram, HistogramSample, Metric, MetricKind};
use std::sync::Arc;
use std::time::Duration;

/// Upper bounds of the buckets of handshakes, in seconds.
const HANDSHAKE_SECONDS: [f64; Seconds::BOUNDS] =
    [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

crate::ports::named! {
    /// The reason why a handshake was not completed.
    #[derive(Clone, Copy, Debug)]
    pub enum HandshakeFailure {
        /// The client broke the protocol, or offers nothing that the server accepts.
        Protocol = "protocol",
        /// The handshake took longer than `limits.tls_handshake_timeout`.
        Timeout = "timeout",
        /// The client spoke HTTP without TLS.
        PlainHttp = "plain_http",
        /// The handshake was the oldest one when `limits.tls_handshakes_max` was reached.
        Evicted = "evicted",
        /// The connection ended.
        Disconnected = "disconnected",
    }
}

/// Handshakes of one core.
#[derive(Default)]
pub struct Handshakes {
    /// Completed handshakes: first index 1 for TLS 1.3, second index 1 for resumed sessions.
    completed: [[Figure; 2]; 2],
    failed: [Figure; HandshakeFailure::ALL.len()],
    seconds: Seconds,
}

impl Handshakes {
    /// Records a completed handshake.
    pub fn complete(&self, is_version_13: bool, is_resumed: bool, taken: Duration) {
        self.completed[usize::from(is_version_13)][usize::from(is_resumed)].add(1);
        self.seconds.record(&HANDSHAKE_SECONDS, taken);
    }

    /// Records a handshake that was not completed.
    pub fn fail(&self, why: HandshakeFailure) {
        self.failed[why as usize].add(1);
    }
}

/// Handshakes of all cores.
pub(super) fn collect(cores: &[Arc<CoreMetrics>]) -> [Metric; 2] {
    let sum = |figure: &dyn Fn(&Handshakes) -> &Figure| {
        cores.iter().map(|figures| figure(&figures.tls).value()).sum::<u64>()
    };
    let completed = [("1.2", 0), ("1.3", 1)].into_iter().flat_map(|(version, nth)| {
        [false, true].map(|resumed| {
            let labels = vec![("version", version.to_owned()), ("resumed", resumed.to_string())];
            (labels, sum(&|handshakes| &handshakes.completed[nth][usize::from(resumed)]))
        })
    });
    let failed =
        HandshakeFailure::ALL.map(|why| (why.name(), sum(&|handshakes| &handshakes.failed[why as usize])));
    [
        Metric {
            name: "tls_handshakes",
            help: "Completed TLS handshakes, by version and by whether an earlier session was resumed.",
            kind: MetricKind::Counter,
            samples: completed.collect(),
        },
        Metric::by(
            "reason",
            MetricKind::Counter,
            "tls_handshake_failures",
            "TLS handshakes that were not completed, by reason: protocol (the client broke it, or offers nothing that the \
             server accepts), timeout (limits.tls_handshake_timeout), plain_http (no TLS at all), evicted \
             (limits.tls_handshakes_max), disconnected.",
            failed,
        ),
    ]
}

/// Durations of handshakes, by core.
pub(super) fn histogram(cores: &[Arc<CoreMetrics>]) -> Histogram {
    let samples = cores.iter().enumerate().map(|(core, figures)| {
        let seconds = &figures.tls.seconds;
        HistogramSample {
            labels: vec![("core", core.to_string())],
            buckets: seconds.buckets(),
            sum: seconds.sum(),
        }
    });
    Histogram {
        name: "tls_handshake_seconds",
        help: "Time from the start of a connection to the end of its TLS handshake.",
        bounds: &HANDSHAKE_SECONDS,
        samples: samples.collect(),
    }
}
