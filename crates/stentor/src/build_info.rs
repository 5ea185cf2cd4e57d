//! The metric `stentor_build_info`: the program that runs, for queries that compare versions during a deploy.

use std::sync::Arc;
use stentor_ports::{Metric, MetricKind, MetricSource};

/// The commit of the sources. Packages have it; other builds say `unknown`, so that a commit doesn't compile anything again.
const COMMIT: &str = match option_env!("STENTOR_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

struct BuildInfo {
    driver: &'static str,
}

impl MetricSource for BuildInfo {
    fn metrics(&self) -> Vec<Metric> {
        let labels = [("version", env!("CARGO_PKG_VERSION")), ("commit", COMMIT), ("driver", self.driver)];
        let labels = labels.map(|(name, value)| (name, value.to_owned())).to_vec();
        let help = "Version, commit and driver of this process. The value is always 1";
        vec![Metric { name: "build_info", help, kind: MetricKind::Gauge, samples: vec![(labels, 1)] }]
    }
}

/// Returns the metric of a process whose data plane uses `driver`.
pub(crate) fn metric(driver: &'static str) -> Arc<dyn MetricSource> {
    Arc::new(BuildInfo { driver })
}
