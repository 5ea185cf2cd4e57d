//! Log lines about failing upstreams: one when a kind of failure begins, one for each further cause of this
//! kind, and one when it ends. Failed fetches aren't logged one by one. Sans-I/O: counts of failing keys go
//! in, lines come out.
//!
//! A kind of failure that begins and ends repeatedly causes at most [`CHANGES_MAX`] lines within
//! [`INTERVAL`]. A later change is logged with the first fetch after the interval.

use crate::schedule::{FAILURE_CLASSES, FailureClass};
use std::time::{Duration, Instant};
use stentor_hub::Key;

/// Maximum number of log lines for one kind of failure of one upstream within [`INTERVAL`].
const CHANGES_MAX: u32 = 4;
const INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of causes of one kind of failure that are logged before it ends.
const CAUSES_MAX: usize = 16;
/// Minimum time between two lines about keys that an upstream doesn't have. Such lines are rare because
/// clients may request any key.
const MISSING_INTERVAL: Duration = Duration::from_secs(600);

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A first key fails with this kind of failure.
    Fails {
        class: FailureClass,
        /// The key and the reason with all details. `None` if the scheduler itself refused a document.
        last: Option<(Key, String)>,
    },
    /// The last key has stopped failing with this kind of failure.
    Recovered { class: FailureClass },
}

/// The logged failures of one upstream.
#[derive(Default)]
pub(crate) struct FailureLog {
    classes: [Logged; FAILURE_CLASSES],
    /// Time of the last log line about a missing key.
    missing: Option<Instant>,
}

#[derive(Default)]
struct Logged {
    /// The last logged state. `true` if keys fail.
    failing: bool,
    /// Start of the interval in which changes are counted.
    since: Option<Instant>,
    /// Number of changes in this interval.
    changes: u32,
    last: Option<(Key, String)>,
    /// The cause of the last recorded failure.
    cause: String,
    /// The causes that have been logged since this kind of failure began.
    causes: Vec<String>,
}

impl FailureLog {
    /// Records a failed fetch. `cause` identifies the cause within the kind of failure. `text` is the message
    /// with all details.
    pub(crate) fn record(&mut self, class: FailureClass, cause: &str, key: &Key, text: &str) {
        let logged = &mut self.classes[class as usize];
        logged.last = Some((key.clone(), text.to_owned()));
        cause.clone_into(&mut logged.cause);
    }

    /// Records that the upstream doesn't have a key. Returns `true` if this must be logged.
    pub(crate) fn record_missing(&mut self, now: Instant) -> bool {
        let is_due = self.missing.is_none_or(|last| now.duration_since(last) >= MISSING_INTERVAL);
        if is_due {
            self.missing = Some(now);
        }
        is_due
    }

    /// Returns the log lines that are due. `failing` are the current numbers of failing keys by kind of
    /// failure.
    pub(crate) fn review(&mut self, now: Instant, failing: &[usize; FAILURE_CLASSES]) -> Vec<Line> {
        let mut lines = Vec::new();
        for (class, (logged, failing)) in
            FailureClass::ALL.into_iter().zip(self.classes.iter_mut().zip(failing))
        {
            let failing = *failing > 0;
            let has_new_cause = failing
                && logged.last.is_some()
                && logged.causes.len() < CAUSES_MAX
                && !logged.causes.contains(&logged.cause);
            if failing == logged.failing && !has_new_cause {
                continue;
            }
            if logged.since.is_none_or(|since| now.duration_since(since) >= INTERVAL) {
                (logged.since, logged.changes) = (Some(now), 0);
            }
            if logged.changes == CHANGES_MAX {
                continue;
            }
            logged.changes += 1;
            if !std::mem::replace(&mut logged.failing, failing) {
                logged.causes.clear();
            }
            logged.causes.push(logged.cause.clone());
            let last = logged.last.take();
            lines.push(if failing { Line::Fails { class, last } } else { Line::Recovered { class } });
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the log lines for these numbers of keys that fail with 500 and with 401.
    fn review(log: &mut FailureLog, now: Instant, server_error: usize, unauthorized: usize) -> String {
        let mut failing = [0; FAILURE_CLASSES];
        failing[FailureClass::ServerError as usize] = server_error;
        failing[FailureClass::Unauthorized as usize] = unauthorized;
        let text = |line| match line {
            Line::Fails { class, last } => {
                let (key, cause) =
                    last.map_or_else(Default::default, |(key, cause)| (key.to_string(), cause));
                format!("{} {key} {cause}", class.name())
            }
            Line::Recovered { class } => format!("no {}", class.name()),
        };
        log.review(now, &failing).into_iter().map(text).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn a_kind_of_failure_is_logged_when_it_begins_and_when_it_ends() {
        let (mut log, now) = (FailureLog::default(), Instant::now());
        let key = Key::parse("a").unwrap();
        assert_eq!(review(&mut log, now, 0, 0), "");
        log.record(FailureClass::ServerError, "503", &key, "503");
        assert_eq!(review(&mut log, now, 1, 0), "server_error a 503");
        // The number of failing keys changes, which causes no line.
        assert_eq!(review(&mut log, now, 7, 0), "");
        assert_eq!(review(&mut log, now, 1, 0), "");
        log.record(FailureClass::Unauthorized, "401", &key, "401");
        assert_eq!(review(&mut log, now, 0, 1), "unauthorized a 401; no server_error");
        // The cause of the failure stays the same, changes, and changes back. Only the new cause is logged.
        log.record(FailureClass::Unauthorized, "401", &key, "401 again");
        assert_eq!(review(&mut log, now, 0, 1), "");
        log.record(FailureClass::Unauthorized, "403", &key, "403");
        assert_eq!(review(&mut log, now, 0, 2), "unauthorized a 403");
        log.record(FailureClass::Unauthorized, "401", &key, "401");
        assert_eq!(review(&mut log, now, 0, 2), "");
        assert_eq!(review(&mut log, now, 0, 0), "no unauthorized");
        log.record(FailureClass::Unauthorized, "403", &key, "403");
        assert_eq!(review(&mut log, now, 0, 1), "unauthorized a 403");
    }

    #[test]
    fn missing_keys_are_logged_rarely() {
        let (mut log, now) = (FailureLog::default(), Instant::now());
        let lines = (0..1201).filter(|seconds| log.record_missing(now + Duration::from_secs(*seconds)));
        assert_eq!(lines.count(), 3);
    }

    #[test]
    fn intermittent_failures_do_not_fill_the_log() {
        let (mut log, now) = (FailureLog::default(), Instant::now());
        let lines = (0..1000).filter(|n| !review(&mut log, now, n % 2, 0).is_empty()).count();
        assert_eq!(lines, CHANGES_MAX as usize);
        // The change that wasn't logged within the interval is logged after it.
        assert_eq!(review(&mut log, now, 1, 0), "");
        assert_eq!(review(&mut log, now + INTERVAL, 1, 0), "server_error  ");
        assert_eq!(review(&mut log, now + INTERVAL, 1, 0), "");
    }
}
