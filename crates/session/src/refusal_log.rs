//! Log lines about refused connections and requests. Their number is bounded, because any client can cause refusals.
//!
//! Each kind of refusal is logged once a minute per value, for at most `VALUES_MAX` values of a node. Further refusals are
//! counted, and the first line of the next minute includes their number.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time during which a kind of refusal is logged once per value.
const INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of lines per [`INTERVAL`].
const VALUES_MAX: usize = 16;
/// Maximum length of a client's value in the log, in characters.
const VALUE_CHARS_MAX: usize = 200;

/// A kind of refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A connection couldn't be accepted.
    Accept,
    /// A connection exceeded a limit of its address.
    Limit,
    /// A trusted proxy doesn't name the client of a request.
    ClientHeader,
    /// A page's origin isn't allowed to connect.
    Origin,
    /// A connection began without the header of the PROXY protocol.
    ProxyHeader,
    /// A request names a user, and doesn't come from an authenticating proxy.
    User,
}

#[derive(Default)]
struct Minute {
    begun: Option<Instant>,
    logged: Vec<(Refusal, Box<str>)>,
}

/// The recently logged refusals of a node.
#[derive(Default)]
pub struct RefusalLog {
    minute: Mutex<Minute>,
    /// The number of refusals that weren't logged.
    missed: AtomicU64,
}

/// A refusal that is logged now.
#[derive(Debug, PartialEq, Eq)]
pub struct Logged {
    /// The value from the client, escaped and cut.
    pub value: String,
    /// The number of refusals that weren't logged since the last line.
    missed: u64,
}

impl Logged {
    /// The end of the line, with the number of refusals that weren't logged. Empty if there are none.
    pub fn others(&self) -> String {
        if self.missed == 0 {
            String::new()
        } else {
            format!(" ({} refusals before weren't logged)", self.missed)
        }
    }
}

impl RefusalLog {
    /// Returns the line if a refusal must be logged now. Otherwise, counts the refusal and returns `None`.
    pub fn admit(&self, now: Instant, refusal: Refusal, value: &str) -> Option<Logged> {
        let value: String = value.chars().take(VALUE_CHARS_MAX).flat_map(char::escape_default).collect();
        // While another core logs a refusal, this one is only counted, so no core waits.
        let Some(mut minute) = self.minute.try_lock() else { return self.miss() };
        if minute.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= INTERVAL) {
            *minute = Minute { begun: Some(now), logged: Vec::new() };
        }
        let is_logged = |(kind, other): &(Refusal, Box<str>)| *kind == refusal && **other == *value;
        if minute.logged.len() >= VALUES_MAX || minute.logged.iter().any(is_logged) {
            return self.miss();
        }
        minute.logged.push((refusal, value.as_str().into()));
        Some(Logged { value, missed: self.missed.swap(0, Ordering::Relaxed) })
    }

    fn miss(&self) -> Option<Logged> {
        self.missed.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_logged_once_a_minute_per_kind_and_value() {
        let (log, begin) = (RefusalLog::default(), Instant::now());
        let admit = |seconds: u64, refusal, value: &str| {
            let logged = log.admit(begin + Duration::from_secs(seconds), refusal, value)?;
            Some((logged.others(), logged.value))
        };
        let first = |value: &str| Some((String::new(), value.to_owned()));
        assert_eq!(admit(0, Refusal::Origin, "a"), first("a"));
        assert_eq!(admit(0, Refusal::Origin, "b"), first("b"));
        assert_eq!(admit(0, Refusal::Limit, "a"), first("a"));
        for seconds in [0, 1, 59] {
            assert_eq!(admit(seconds, Refusal::Origin, "a"), None, "after {seconds} s");
        }
        let others = " (3 refusals before weren't logged)".to_owned();
        assert_eq!(admit(60, Refusal::Origin, "a"), Some((others, "a".into())));
        assert_eq!(admit(61, Refusal::Origin, "a"), None);
    }

    #[test]
    fn the_number_and_length_of_log_lines_are_bounded() {
        let (log, now) = (RefusalLog::default(), Instant::now());
        let admitted = |n: usize| log.admit(now, Refusal::Origin, &format!("{n}\"{}", "x".repeat(15_000)));
        let logged: Vec<Logged> = (0..10_000).filter_map(admitted).collect();
        assert_eq!(logged.len(), VALUES_MAX);
        assert_eq!(logged[3].value, format!("3\\\"{}", "x".repeat(198)));
        let later = log.admit(now + INTERVAL, Refusal::Accept, "").unwrap();
        assert_eq!(later, Logged { value: String::new(), missed: 10_000 - VALUES_MAX as u64 });
    }
}
