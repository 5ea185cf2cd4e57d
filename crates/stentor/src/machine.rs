//! Options that depend on the machine and on the other nodes, in addition to the configuration.

use crate::config::Config;
use crate::config::options::Options;
use rustix::process::{Resource, getrlimit};
use std::time::Duration;

/// Returns the maximum number of connections relayed to other nodes, with two file descriptors each: an
/// eighth of all file descriptors. The cores leave a quarter to the rest of the process.
fn relayed_connections_max() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / 16).unwrap_or(usize::MAX)
}

/// Returns the options of both planes, as far as the configuration determines them.
pub(crate) fn options(config: &Config) -> Options {
    let mut options = config.options();
    let connections_max = &mut options.edge.limits.relayed_connections_max;
    *connections_max = relayed_connections_max().min(*connections_max);
    options
}

/// Leaves idle feeds to the cluster: with an engine, the cluster decides how long a feed is fetched. A node
/// that has lost its lease must stop at once.
pub(crate) fn leave_idle_feeds_to_cluster(config: &Config, control: &mut stentor_control::Options) {
    if config.cluster.engine.0.is_some() {
        control.feeds.idle_ttl = Duration::ZERO;
    }
}
