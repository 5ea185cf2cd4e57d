//! The HTTP API behind a server that fetches what it pushes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use crate::Error;
use crate::generator::Latencies;
use crate::upstream::Upstream;

/// How long after the generators' look at idle connections the first version of a feed is due.
const SOURCE_WAITS: Duration = Duration::from_millis(700);

/// What a server with a feed fetches, and the file that tells it where.
pub(super) struct Source {
    upstream: Upstream,
    config: PathBuf,
}

impl Source {
    /// A document of `bytes` bytes whose versions follow each other at `rate_hz` once they [`begin`](Self::begin_after).
    pub(super) fn new(bytes: usize, rate_hz: f64) -> Result<Self, Error> {
        let upstream = Upstream::start(bytes, rate_hz)?;
        let address = upstream.address();
        let config =
            std::env::temp_dir().join(format!("stentor-lab-{}-{}.toml", process::id(), address.port()));
        // The upstream holds its answer until a version is due, so it is asked again at once and patiently.
        let text = format!(
            "[[feeds]]\nname = \"bench\"\nurl = \"http://{address}\"\ninterval = \"1ms\"\ntimeout = \"1h\"\n\
             read_timeout = \"1h\"\n"
        );
        fs::write(&config, text).map_err(Error::io("writing a configuration"))?;
        Ok(Self { upstream, config })
    }

    /// The configuration of a server whose feed `bench` is this document.
    pub(super) fn config(&self) -> &Path {
        &self.config
    }

    /// Says that the generators begin now, and look at idle connections for `idle` first.
    pub(super) fn begin_after(&self, idle: Duration) {
        self.upstream.begin_in(idle + SOURCE_WAITS);
    }

    /// Ends it; returns its lag.
    pub(super) fn stop(self) -> Result<Latencies, Error> {
        let _ = fs::remove_file(&self.config);
        self.upstream.stop()
    }
}
