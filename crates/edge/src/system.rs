//! The system's clock and random source, for sessions.

use std::time::{Instant, SystemTime, UNIX_EPOCH};
use stentor_session::system::System;

/// The system's clock and random source.
pub(crate) const SYSTEM: System = System { unix_millis, fill_random };

/// Returns the Unix time of an instant, in milliseconds. With a simulated driver, this time is simulated as well.
fn unix_millis(at: Instant) -> u64 {
    let (wall, clock) = (SystemTime::now(), Instant::now());
    let time = match at.checked_duration_since(clock) {
        Some(ahead) => wall + ahead,
        None => wall - clock.duration_since(at),
    };
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn fill_random(bytes: &mut [u8]) {
    // Without random bytes, ids could be guessed, so the server doesn't run.
    #[expect(clippy::expect_used, reason = "the system's random source has worked at the start")]
    getrandom::fill(bytes).expect("the system has random bytes");
}
