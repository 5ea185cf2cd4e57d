//! The HTTP API behind a server that fetches what it pushes.

use std::time::Duration;

use crate::Error;
use crate::document::Shape;
use crate::upstream::{Content, Pacer, Pacing, Served, Upstream};

/// How long after the generators' look at idle connections the first version of a feed is due.
const SOURCE_WAITS: Duration = Duration::from_millis(700);

/// Of a feed whose API holds its answer until there is a new version.
const AT_ONCE: &str = "poll_interval = \"1ms\"";

/// What a server with a feed fetches, and the configuration that tells it where.
pub(super) struct Source {
    upstream: Upstream,
    config: String,
}

impl Source {
    /// One whose versions follow each other at `rate_hz` once they [`begin`](Self::begin_after). A server asks for the next
    /// one as soon as it has one.
    pub(super) fn new(content: Content, rate_hz: f64) -> Result<Self, Error> {
        Self::start(content, Pacing::Every(rate_hz), Duration::ZERO, AT_ONCE)
    }

    /// One with a single version, which isn't asked for again; the answer takes `hesitates`.
    pub(super) fn cold(content: Content, hesitates: Duration) -> Result<Self, Error> {
        Self::start(content, Pacing::Every(1.0), hesitates, "poll_interval = \"1h\"")
    }

    /// One whose rate is set while it runs, by [`Self::pacer`].
    pub(super) fn paced(content: Content) -> Result<Self, Error> {
        Self::start(content, Pacing::Newest, Duration::ZERO, AT_ONCE)
    }

    /// One with a document for each key, of which each is asked for once a second and has changed by then.
    pub(super) fn many(shape: Shape) -> Result<Self, Error> {
        let settings = "poll_interval = \"1s\"\nrequests_per_second_max = 10_000";
        Self::start(Content::Documents(shape), Pacing::Every(1.0), Duration::ZERO, settings)
    }

    pub(super) fn pacer(&self) -> Pacer {
        self.upstream.pacer()
    }

    fn start(content: Content, pacing: Pacing, hesitates: Duration, settings: &str) -> Result<Self, Error> {
        let upstream = Upstream::start(content, pacing, hesitates)?;
        let address = upstream.address();
        let config = format!(
            "[[feeds]]\nname = \"bench\"\nurl = \"http://{address}\"\n{settings}\ntimeout = \"1h\"\n\
             read_timeout = \"1h\"\n"
        );
        Ok(Self { upstream, config })
    }

    /// The configuration of a server whose feed `bench` is this document.
    pub(super) fn config(&self) -> &str {
        &self.config
    }

    /// Says that the generators begin now, and look at idle connections for `idle` first.
    pub(super) fn begin_after(&self, idle: Duration) {
        self.upstream.begin_in(idle + SOURCE_WAITS);
    }

    /// Versions that were answered so far.
    pub(super) fn versions(&self) -> u64 {
        self.upstream.versions()
    }

    pub(super) fn stop(self) -> Served {
        self.upstream.stop()
    }
}
