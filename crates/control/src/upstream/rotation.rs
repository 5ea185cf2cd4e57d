//! Upstreams whose secrets change while they are in use.
//!
//! An [`Upstream`] never changes. When the value of a secret changes, the next fetch uses a new [`Upstream`],
//! which shares the unchanged parts. After a 401, the files are read at once, and the request is sent once
//! more if a value has changed. If a new value can't be used, for example in a header, the last value stays
//! in use.

use super::{Bodies, DocumentProcessor, Fetched, Upstream, fetch::Trace};
use crate::current::Current;
use crate::schedule::FetchJob;
use crate::secrets::{Reference, Secrets, references};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Minimum time between two reads of the files because of a 401.
const REREAD_INTERVAL: Duration = Duration::from_secs(10);

/// An upstream with its current secrets (see the module's documentation).
pub(crate) struct Rotating {
    pub(crate) name: Arc<str>,
    secrets: Secrets,
    current: Current<Upstream>,
    /// The last version of the secrets that was tried: the upstream uses it, or it can't be used.
    version: Mutex<u64>,
    /// Time of the last read because of a 401. The outer `None` means that no file is referenced, and the
    /// inner `None` that there was no such read.
    reread: Option<Mutex<Option<Instant>>>,
}

impl Rotating {
    pub(super) fn new(upstream: Upstream, secrets: &Secrets) -> Self {
        let texts = upstream.options.texts_with_secrets();
        let all: Vec<_> = texts.flat_map(|text| references(text).unwrap_or_default()).collect();
        let has_files = all.iter().any(|reference| matches!(reference, Reference::File(_)));
        Self {
            name: upstream.name.clone(),
            secrets: secrets.clone(),
            version: Mutex::new(secrets.version()),
            reread: has_files.then(Mutex::default),
            current: Current::new(upstream),
        }
    }

    /// Logs which keys the upstream has, and its URL.
    pub(crate) fn log(&self) {
        self.current().log();
    }

    /// Returns the upstream with the current values of its secrets.
    pub(super) fn current(&self) -> Arc<Upstream> {
        let mut version = self.version.lock();
        let newest = self.secrets.version();
        if std::mem::replace(&mut *version, newest) != newest {
            match self.current.load().renewed(&self.secrets) {
                Ok(None) => {}
                Ok(Some(upstream)) => self.current.store(upstream),
                Err(error) => {
                    tracing::warn!(%error, "the new value of a secret can't be used; the last one stays in use");
                }
            }
        }
        self.current.load()
    }

    /// Fetches the job's key. Takes at most the upstream's `timeout` plus the time to process the body, or
    /// twice that if the upstream answers 401 and a secret has changed.
    pub(crate) async fn fetch(
        &self,
        job: &FetchJob,
        processor: &DocumentProcessor,
        bodies: &Arc<Bodies>,
    ) -> Fetched {
        self.fetch_traced(job, processor, bodies, &mut Trace::default()).await
    }

    /// Like [`Self::fetch`]. Records the response's headers if `trace` asks for them.
    pub(super) async fn fetch_traced(
        &self,
        job: &FetchJob,
        processor: &DocumentProcessor,
        bodies: &Arc<Bodies>,
        trace: &mut Trace,
    ) -> Fetched {
        let upstream = self.current();
        let fetched = upstream.fetch_traced(job, processor, bodies, trace).await;
        if !fetched.is_unauthorized() {
            return fetched;
        }
        self.reread().await;
        let renewed = self.current();
        // If the upstream is unchanged, no secret has a new value. (Another fetch may have read the files.)
        if Arc::ptr_eq(&renewed, &upstream) {
            return fetched;
        }
        renewed.fetch_traced(job, processor, bodies, trace).await
    }

    async fn reread(&self) {
        let Some(last) = &self.reread else { return };
        let now = Instant::now();
        {
            let mut last = last.lock();
            if last.is_some_and(|last| now - last < REREAD_INTERVAL) {
                return;
            }
            *last = Some(now);
        }
        let secrets = self.secrets.clone();
        // An error means that the runtime is shutting down.
        let _ = tokio::task::spawn_blocking(move || secrets.reread()).await;
    }
}
