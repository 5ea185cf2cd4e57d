//! The HTTP API behind a server that fetches its documents.

use std::time::Duration;

use super::{Case, Course};
use crate::Error;
use crate::document::Shape;
use crate::generator::{FanoutPlan, LoadSpec};
use crate::upstream::{Content, Upstream};

/// Delay from the end of the idle measurement to the first version of a feed.
pub(super) const WAITS: Duration = Duration::from_millis(700);

/// Starts the API for this load.
pub(super) fn start(case: &Case, load: &LoadSpec, document: Option<Shape>) -> Result<Upstream, Error> {
    let hesitates = if let Course::Cold(hesitates) = case.course { hesitates } else { Duration::ZERO };
    let content = match (load, document) {
        (LoadSpec::Receive { .. }, Some(shape)) => Content::documents(shape),
        (_, Some(shape)) => Content::document(shape),
        (LoadSpec::Fanout(FanoutPlan { bytes, .. }), None) => Content::text(*bytes),
        _ => Content::text(0),
    };
    Upstream::start(content, matches!(load, LoadSpec::Follow { .. }), hesitates)
}

/// The interval at which a server requests the API for this load.
pub(super) fn poll_interval(load: &LoadSpec) -> Duration {
    match load {
        // Each document is requested once per second and has changed by then.
        LoadSpec::Receive { .. } => Duration::from_secs(1),
        // A single version, which is requested once.
        LoadSpec::Ask => Duration::from_secs(3600),
        // With this interval, the API delays its answer until there is a new version.
        _ => Duration::from_millis(1),
    }
}
