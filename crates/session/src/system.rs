//! The system's clock and random source, which the crate with the threads and sockets provides.

use std::time::Instant;

/// Functions of the system that sessions need.
#[derive(Clone, Copy, Debug)]
pub struct System {
    /// Returns the Unix time of an instant, in milliseconds. With a simulated driver, this time is simulated as well.
    pub unix_millis: fn(Instant) -> u64,
    /// Fills a buffer with unpredictable random bytes.
    pub fill_random: fn(&mut [u8]),
}

#[cfg(test)]
pub(crate) mod tests;
