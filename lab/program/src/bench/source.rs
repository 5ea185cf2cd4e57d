//! The HTTP API behind a server that fetches what it pushes.

use std::time::Duration;

use super::{Case, Course};
use crate::Error;
use crate::document::Shape;
use crate::generator::LoadSpec;
use crate::upstream::{Content, Pacing, Upstream};

/// Delay from the end of the idle measurement to the first version of a feed.
pub(super) const WAITS: Duration = Duration::from_millis(700);

/// Starts the API for this load. Returns it with the configuration of a server whose feed is `bench`.
pub(super) fn start(
    case: &Case,
    load: &LoadSpec,
    document: Option<Shape>,
) -> Result<(Upstream, String), Error> {
    // With this interval, the API delays its answer until there is a new version.
    let at_once = "poll_interval = \"1ms\"";
    let hesitates = if let Course::Cold(hesitates) = case.course { hesitates } else { Duration::ZERO };
    let (pacing, settings) = match load {
        LoadSpec::Fanout { rate_hz, .. } => (Pacing::Every(*rate_hz), at_once),
        LoadSpec::Follow { .. } => (Pacing::Newest, at_once),
        // Each document is requested once per second and has changed by then.
        LoadSpec::Receive { .. } => {
            (Pacing::Every(1.0), "poll_interval = \"1s\"\nrequests_per_second_max = 10_000")
        }
        // A single version, which is requested once.
        LoadSpec::Ask => (Pacing::Every(1.0), "poll_interval = \"1h\""),
        // Versions never start: the first answer is the only one.
        _ => (Pacing::Every(1.0), at_once),
    };
    let content = match (load, document) {
        (LoadSpec::Receive { .. }, Some(shape)) => Content::documents(shape),
        (_, Some(shape)) => Content::document(shape),
        (LoadSpec::Fanout { bytes, .. }, None) => Content::text(*bytes),
        _ => Content::text(0),
    };
    let upstream = Upstream::start(content, pacing, hesitates)?;
    let address = upstream.address();
    let config = format!(
        "[[feeds]]\nname = \"bench\"\nurl = \"http://{address}\"\n{settings}\ntimeout = \"1h\"\n\
         read_timeout = \"1h\"\n"
    );
    Ok((upstream, config))
}
