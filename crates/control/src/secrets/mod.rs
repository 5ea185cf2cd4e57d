//! Secrets in the configuration: `${NAME}` is replaced by an environment variable, `${file:/path}` by the
//! content of a file.
//!
//! [`Secrets`] holds the values. An environment variable keeps the value that it had at the start of the
//! process. A file is read when its value is first needed, then every [`WATCH_INTERVAL`], and after a 401 of
//! an upstream ([`Secrets::reread`]). A reload makes new `Secrets`, which read every file again. A file that
//! can't be read or has no valid value keeps its last value.
//!
//! - `references`: texts with references to secrets.
//! - `file`: the rules for the content of a file.
//! - `url`: secrets in a URL.
//! - `basic_auth`: a user and a password.
//! - `masks`: masks secrets in external texts.
//!
//! **Invariant.** No error, log line or `Debug` output of this module contains a value.

mod basic_auth;
mod file;
mod masks;
mod references;
mod url;

pub(crate) use masks::{Masks, SECRET_BYTES_MIN};
pub use references::{Reference, literal, references};
pub use url::UrlText;
pub(crate) use url::escape;

use crate::request_header::upstream_header;
use hyper::header::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use references::{Piece, pieces};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Interval at which the files are read again. Kubernetes replaces files without an event for their paths.
pub(crate) const WATCH_INTERVAL: Duration = Duration::from_secs(5);

/// Value of every secret while a configuration is checked without its secrets. It is valid in a host, as a
/// port and in a path.
const SAMPLE: &str = "1";

/// The values of secrets. Clones share them.
#[derive(Clone, Default)]
pub struct Secrets(Arc<Inner>);

#[derive(Default)]
struct Inner {
    is_sample: bool,
    variables: HashMap<String, String>,
    files: Mutex<HashMap<PathBuf, Held>>,
    /// Values from before a reload, used for files that can no longer be read.
    previous: HashMap<PathBuf, Arc<str>>,
    /// Incremented when the value of a file changes.
    version: AtomicU64,
}

/// The held value of a file.
struct Held {
    value: Arc<str>,
    /// The logged reason why the file has no valid value now.
    failure: Option<String>,
}

/// All secrets are equal, because values aren't part of a configuration. Only its texts with references are
/// compared.
impl PartialEq for Secrets {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Secrets {}

stentor_ports::opaque_debug!(Secrets, "Secrets(…)");

impl Secrets {
    /// Makes secrets from these variables and from files. A file that can't be read keeps its value in
    /// `previous`.
    pub fn new(variables: impl IntoIterator<Item = (String, String)>, previous: &Self) -> Self {
        let previous = previous.0.files.lock();
        let previous = previous.iter().map(|(path, held)| (path.clone(), held.value.clone())).collect();
        let variables = variables.into_iter().collect();
        Self(Arc::new(Inner { variables, previous, ..Inner::default() }))
    }

    /// Makes secrets that all have the same valid value, for the check of a configuration.
    pub fn sample() -> Self {
        Self(Arc::new(Inner { is_sample: true, ..Inner::default() }))
    }

    /// Returns `true` if the values are samples.
    pub fn is_sample(&self) -> bool {
        self.0.is_sample
    }

    /// Returns the environment variables, for settings that use some of them by other names.
    pub fn variables(&self) -> &HashMap<String, String> {
        &self.0.variables
    }

    /// Replaces the references of a text.
    ///
    /// # Errors
    /// Returns the mistake, as the predicate of a sentence about the text.
    pub fn expand(&self, text: &str) -> Result<String, String> {
        pieces(text).try_fold(String::new(), |mut expanded, piece| {
            match piece? {
                Piece::Text(plain) => expanded += plain,
                Piece::Reference(reference) => expanded += &self.needed(&reference)?,
            }
            Ok(expanded)
        })
    }

    /// Makes a header for every request to an upstream. Replaces the references to secrets.
    ///
    /// # Errors
    /// Returns an error that describes the mistake.
    pub fn header(&self, name: &str, text: &str) -> Result<(HeaderName, HeaderValue), String> {
        upstream_header(name, "")?;
        for reference in references(text).map_err(|wrong| format!("the header {name:?} {wrong}"))? {
            let value = self.needed(&reference).map_err(|wrong| format!("the header {name:?} {wrong}"))?;
            if upstream_header(name, &value).is_err() {
                let hint = match reference {
                    Reference::Variable(_) => " (a line break at its end?)",
                    Reference::File(_) => "",
                };
                return Err(format!(
                    "{reference}, for the header {name:?}, has characters that are not allowed in a header{hint}"
                ));
            }
        }
        upstream_header(name, &self.expand(text)?)
    }

    /// Returns the values of a text's references. Skips references without a value.
    pub(crate) fn values(&self, text: &str) -> Vec<Arc<str>> {
        let all = references(text).unwrap_or_default();
        all.iter().filter_map(|reference| self.value(reference).ok()).collect()
    }

    /// Returns the files in a text that prevent the server from starting, each with the reason.
    pub fn unusable_files(text: &str) -> Vec<String> {
        let all = references(text).unwrap_or_default();
        let unusable = all.iter().filter_map(|reference| match reference {
            Reference::File(path) => file::read(path).err().map(|why| format!("{reference} {why}")),
            Reference::Variable(_) => None,
        });
        unusable.collect()
    }

    /// Reads all files again. May block. Logs files that have changed or can no longer be used.
    pub(crate) fn reread(&self) {
        let paths: Vec<_> = self.0.files.lock().keys().cloned().collect();
        for path in paths {
            let read = file::read(&path);
            if let Some(held) = self.0.files.lock().get_mut(&path)
                && held.update(&path, read)
            {
                self.0.version.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// Reads all files every [`WATCH_INTERVAL`]. Never returns.
    pub(crate) async fn watch(self) {
        loop {
            tokio::time::sleep(WATCH_INTERVAL).await;
            if !self.0.files.lock().is_empty() {
                let secrets = self.clone();
                // An error means that the runtime is shutting down.
                let _ = tokio::task::spawn_blocking(move || secrets.reread()).await;
            }
        }
    }

    /// Returns a number that changes when the value of a file changes.
    pub(crate) fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    fn needed(&self, reference: &Reference<'_>) -> Result<Arc<str>, String> {
        self.value(reference).map_err(|why| format!("needs {reference}, which {why}"))
    }

    /// Returns the value of a reference, or the reason why it has none.
    fn value(&self, reference: &Reference<'_>) -> Result<Arc<str>, String> {
        match reference {
            _ if self.is_sample() => Ok(SAMPLE.into()),
            Reference::Variable(name) => match self.0.variables.get(*name).map(String::as_str) {
                None | Some("") => Err("is not set".into()),
                Some(value) => Ok(value.into()),
            },
            Reference::File(path) => self.content(path),
        }
    }

    fn content(&self, path: &Path) -> Result<Arc<str>, String> {
        let mut files = self.0.files.lock();
        if let Some(held) = files.get(path) {
            return Ok(held.value.clone());
        }
        let held = match (file::read(path), self.0.previous.get(path)) {
            (Ok(value), _) => Held { value: value.into(), failure: None },
            (failed @ Err(_), Some(last)) => {
                let mut held = Held { value: last.clone(), failure: None };
                held.update(path, failed);
                held
            }
            (Err(why), None) => return Err(why),
        };
        Ok(files.entry(path.to_owned()).or_insert(held).value.clone())
    }
}

impl Held {
    /// Stores the result of reading a file. Returns `true` if the value has changed.
    fn update(&mut self, path: &Path, read: Result<String, String>) -> bool {
        let path = path.display();
        match read {
            Ok(value) => {
                self.failure = None;
                let has_changed = *self.value != *value;
                if has_changed {
                    tracing::info!(%path, "a file with a secret has changed; its new value is in use");
                    self.value = value.into();
                }
                has_changed
            }
            Err(why) => {
                if self.failure.as_ref() != Some(&why) {
                    tracing::warn!(%path, "a file with a secret {why}; its last value stays in use");
                    self.failure = Some(why);
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;
