//! Options that depend not only on the configuration, but also on the machine and on the cluster.

use crate::config::Config;
use crate::config::options::Options;
use rustix::process::{Resource, getrlimit};
use std::time::Duration;

/// Returns the maximum number of connections that are relayed to other nodes. Each needs two file
/// descriptors, and all together may use an eighth of the limit. The cores leave a quarter of the limit to
/// the rest of the process.
fn relayed_connections_max() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / 16).unwrap_or(usize::MAX)
}

/// Returns the options of both planes for a configuration on this machine.
pub(crate) fn options(config: &Config) -> Options {
    let mut options = config.options();
    let connections_max = &mut options.edge.limits.relayed_connections_max;
    *connections_max = relayed_connections_max().min(*connections_max);
    options
}

/// Sets `idle_ttl` to zero if the node has an engine. The cluster then decides for how long an idle feed is
/// fetched, and a node that has lost its lease must stop at once.
pub(crate) fn leave_idle_feeds_to_cluster(config: &Config, control: &mut stentor_control::Options) {
    if config.cluster.engine.0.is_some() {
        control.feeds.idle_ttl = Duration::ZERO;
    }
}
