//! The data plane: one core is one driver, protocol stacks and one hub shard.

mod plane;

pub use plane::{Busy, ControlPlane, DataPlane, FeedUpdate, Metric, MetricKind, Publish, Wanted};
