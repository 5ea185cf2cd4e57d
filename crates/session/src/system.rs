//! The system's clock and random source, which only the crate with the threads and sockets asks.

use std::time::Instant;

/// Functions of the system that sessions need.
#[derive(Clone, Copy, Debug)]
pub struct System {
    /// Returns the Unix time of an instant, in milliseconds. Simulated if the driver is.
    pub unix_millis: fn(Instant) -> u64,
    /// Fills a buffer with random bytes that nobody can predict.
    pub fill_random: fn(&mut [u8]),
}

#[cfg(test)]
pub(crate) mod tests;
