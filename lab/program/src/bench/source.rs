//! The HTTP API behind a server that fetches what it pushes.

use std::time::Duration;

use super::{Case, Course};
use crate::Error;
use crate::document::Shape;
use crate::generator::LoadSpec;
use crate::upstream::{Content, Pacing, Upstream};

/// The delay from the end of the idle measurement to the first version of a feed.
pub(super) const WAITS: Duration = Duration::from_millis(700);

/// Starts the API for this load. Returns it with the configuration of a server whose feed is `bench`.
pub(super) fn start(
    case: &Case,
    load: &LoadSpec,
    document: Option<Shape>,
) -> Result<(Upstream, String), Error> {
    // The API holds its answer until there is a new version.
    let at_once = "poll_interval = \"1ms\"";
    let (pacing, hesitates, settings) = match (load, case.course) {
        (LoadSpec::Fanout { rate_hz, .. }, _) => (Pacing::Every(*rate_hz), Duration::ZERO, at_once),
        (LoadSpec::Follow { .. }, _) => (Pacing::Newest, Duration::ZERO, at_once),
        // Each document is requested once per second and has changed by then.
        (LoadSpec::Receive { .. }, _) => {
            let settings = "poll_interval = \"1s\"\nrequests_per_second_max = 10_000";
            (Pacing::Every(1.0), Duration::ZERO, settings)
        }
        // A single version, which is requested once.
        (LoadSpec::Ask, Course::Cold(hesitates)) => (Pacing::Every(1.0), hesitates, "poll_interval = \"1h\""),
        // It never starts: the first answer is the only one.
        _ => (Pacing::Every(1.0), Duration::ZERO, at_once),
    };
    let content = match (load, document) {
        (LoadSpec::Receive { .. }, Some(shape)) => Content::Documents(shape),
        (_, Some(shape)) => Content::Document(shape),
        (LoadSpec::Fanout { bytes, .. }, None) => Content::Text { bytes: *bytes },
        _ => Content::Text { bytes: 0 },
    };
    let upstream = Upstream::start(content, pacing, hesitates)?;
    let address = upstream.address();
    let config = format!(
        "[[feeds]]\nname = \"bench\"\nurl = \"http://{address}\"\n{settings}\ntimeout = \"1h\"\n\
         read_timeout = \"1h\"\n"
    );
    Ok((upstream, config))
}
