//! The `Date` header of responses.

use std::cell::Cell;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Bytes of a date in the form that HTTP sends (RFC 9110, 5.6.7).
const BYTES: usize = 29;

/// The value of a `Date` header (RFC 9110, 6.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpDate([u8; BYTES]);

impl HttpDate {
    /// The date of a Unix time in milliseconds, before the year 10000.
    fn of(unix_millis: u64) -> Self {
        let time = UNIX_EPOCH + Duration::from_millis(unix_millis);
        let text = httpdate::fmt_http_date(time);
        Self(text.as_bytes().try_into().unwrap_or([b' '; BYTES]))
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// The date of a core, formatted once per second.
pub(crate) struct DateClock {
    /// The date, and the time at which the next second begins.
    shown: Cell<(HttpDate, Instant)>,
}

impl DateClock {
    /// Makes a clock at `now`, whose Unix time is `unix_millis` (in milliseconds).
    pub(crate) fn new(now: Instant, unix_millis: u64) -> Self {
        Self { shown: Cell::new(shown(now, unix_millis)) }
    }

    /// The date at `now`, which must not be before the previous `now`. `unix_millis` is called once per second.
    pub(crate) fn at(&self, now: Instant, unix_millis: impl Fn(Instant) -> u64) -> HttpDate {
        if now >= self.shown.get().1 {
            self.shown.set(shown(now, unix_millis(now)));
        }
        self.shown.get().0
    }
}

/// The date at `now`, and the time at which the next second begins.
fn shown(now: Instant, unix_millis: u64) -> (HttpDate, Instant) {
    (HttpDate::of(unix_millis), now + Duration::from_millis(1000 - unix_millis % 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_once_a_second() {
        let begin = Instant::now();
        let unix_millis = |now: Instant| 784_111_777_250 + now.duration_since(begin).as_millis() as u64;
        let clock = DateClock::new(begin, unix_millis(begin));
        for (after, expect) in
            [(0, "37"), (749, "37"), (750, "38"), (1749, "38"), (1750, "39"), (60_000, "37")]
        {
            let date = clock.at(begin + Duration::from_millis(after), unix_millis);
            let minute = if after < 60_000 { 49 } else { 50 };
            assert_eq!(
                date.as_str(),
                format!("Sun, 06 Nov 1994 08:{minute}:{expect} GMT"),
                "after {after} ms"
            );
        }
    }
}
