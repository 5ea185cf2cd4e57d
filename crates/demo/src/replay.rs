//! Recorded versions of a document, in the order in which they appeared.

use anyhow::{Context, bail};
use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of versions.
const FILES_MAX: usize = 10_000;
/// Maximum size of all versions in bytes. They are kept in memory.
const BYTES_MAX: usize = 512 << 20;

/// Recorded versions, and the rate at which they appear.
#[derive(Debug)]
pub struct Replay {
    /// At least one version, the oldest first.
    versions: Vec<Bytes>,
    /// Versions per second, above 0.
    per_second: f64,
}

impl Replay {
    /// Reads the files `*.json` of `dir`, in the order of their names. `per_second` is the number of versions
    /// per second, above 0.
    ///
    /// # Errors
    /// The folder or a file can't be read, a file isn't JSON, or there are no files or too many.
    pub fn load(dir: &Path, per_second: f64) -> anyhow::Result<Self> {
        let mut paths: Vec<PathBuf> = Vec::new();
        for entry in std::fs::read_dir(dir).context("can't be read")? {
            let path = entry.context("can't be read")?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                paths.push(path);
            }
        }
        paths.sort();
        if paths.is_empty() {
            bail!("it has no *.json files");
        }
        if paths.len() > FILES_MAX {
            bail!("{} files; the maximum is {FILES_MAX}", paths.len());
        }
        let mut bytes = 0;
        let mut versions = Vec::with_capacity(paths.len());
        for path in paths {
            let name = || path.file_name().unwrap_or_default().display().to_string();
            let version = std::fs::read(&path).with_context(name)?;
            bytes += version.len();
            if bytes > BYTES_MAX {
                bail!("more than {BYTES_MAX} bytes in total");
            }
            serde_json::from_slice::<serde::de::IgnoredAny>(&version)
                .with_context(|| format!("{}: not JSON", name()))?;
            versions.push(version.into());
        }
        Ok(Self { versions, per_second })
    }

    /// Returns the version at the time `elapsed` after the first one, and its number. After the last version,
    /// returns the last one.
    pub(super) fn at(&self, elapsed: Duration) -> (usize, &Bytes) {
        // A float that is too large for `usize` becomes the largest `usize`.
        let number = (elapsed.as_secs_f64() * self.per_second) as usize;
        let number = number.min(self.versions.len() - 1);
        (number, &self.versions[number])
    }

    /// Returns the time from one version to the next.
    pub fn interval(&self) -> Duration {
        Duration::try_from_secs_f64(1.0 / self.per_second).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    #[test]
    fn versions_are_ordered_by_name() {
        let dir = dir(&[("002.json", "2"), ("001.json", "1"), ("010.json", "10"), ("notes.txt", "x")]);
        fn check(replay: &Replay, elapsed_ms: u64, number: usize, text: &str) {
            let (found, version) = replay.at(Duration::from_millis(elapsed_ms));
            assert_eq!((found, &version[..]), (number, text.as_bytes()), "at {elapsed_ms} ms");
        }
        let replay = Replay::load(dir.path(), 2.0).unwrap();
        assert_eq!(replay.interval(), Duration::from_millis(500));
        check(&replay, 0, 0, "1");
        check(&replay, 499, 0, "1");
        check(&replay, 500, 1, "2");
        check(&replay, 1000, 2, "10");
        check(&replay, 1500, 2, "10");
        check(&replay, u64::MAX, 2, "10");
    }

    #[test]
    fn invalid_replays_are_refused() {
        fn check(files: &[(&str, &str)], expect: &str) {
            let error = Replay::load(dir(files).path(), 1.0).err().map(|error| format!("{error:#}"));
            assert!(error.as_ref().is_some_and(|e| e.starts_with(expect)), "{error:?}");
        }
        check(&[], "it has no *.json files");
        check(&[("a.txt", "1")], "it has no *.json files");
        check(&[("a.json", "1"), ("b.json", "{")], "b.json: not JSON: EOF while parsing");
        let none = Replay::load(Path::new("/nonexistent"), 1.0).err().map(|error| format!("{error:#}"));
        assert_eq!(none.as_deref(), Some("can't be read: No such file or directory (os error 2)"));
    }
}
