//! A network without a kernel: everything on one thread, on a virtual clock, from one seed.
//!
//! A [`World`] holds the clock and the network. Its drivers ([`World::driver`]) are ordinary [`Driver`]s: a
//! server listens with one, simulated clients connect with another. [`Driver::wait`] never blocks. When no
//! driver has an event left, the caller that runs the simulation calls [`World::step`], which moves the clock
//! to the next event. [`World::run_until_idle`] and [`World::run_for`] are that loop.
//!
//! The seed determines the travel time of each segment, where streams are split, which of several listeners gets a connection,
//! and the accepts and connections that fail. A run with the same seed fails in the same way. Buffers are bounded on both sides,
//! so a peer that doesn't read stalls its sender as in a kernel.
//!
//! Deliberately absent: loss, repetition and reordering of segments (TCP hides them), shared bandwidth, and
//! timeouts of lost peers.
//!
//! [`Driver`]: crate::Driver
//! [`Driver::wait`]: crate::Driver::wait

mod driver;
mod network;

pub use driver::SimDriver;

use crate::ConnId;
use network::Network;
use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The behavior of the simulated network.
#[derive(Clone, Debug)]
pub struct Options {
    /// The options of the drivers. (`events_per_turn` has no effect here.)
    pub driver: crate::Options,
    /// One-way travel time of a segment.
    pub latency: RangeInclusive<Duration>,
    /// Maximum length of a segment in bytes, at least 1.
    pub segment_bytes_max: usize,
    /// Number of bytes that a socket accepts from its driver before it is full, at least 1: sent bytes count
    /// until they have arrived.
    pub send_buffer_bytes: usize,
    /// Number of bytes that a socket keeps for its driver to read, at least 1.
    pub receive_buffer_bytes: usize,
    /// Number of segments per million that reset their connection instead of arriving.
    pub resets_per_million: u32,
    /// Number of accepts per million that fail for lack of file descriptors. (The connection stays in its
    /// queue.)
    pub accept_failures_per_million: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            driver: crate::Options::default(),
            latency: Duration::from_micros(20)..=Duration::from_millis(2),
            segment_bytes_max: 16 * 1024,
            send_buffer_bytes: 64 * 1024,
            receive_buffer_bytes: 64 * 1024,
            resets_per_million: 0,
            accept_failures_per_million: 0,
        }
    }
}

/// A simulated network with its clock. A clone is the same world.
#[derive(Clone)]
pub struct World(Rc<RefCell<Network>>);

impl World {
    /// Makes a world that runs by `seed`.
    ///
    /// # Panics
    /// If a buffer or the segment's length is 0, or the range of latencies is empty.
    pub fn new(seed: u64, options: Options) -> Self {
        Self(Rc::new(RefCell::new(Network::new(seed, options))))
    }

    /// Makes a driver in this world. Dropping it closes its connections.
    pub fn driver(&self) -> SimDriver {
        let options = self.0.borrow().options().driver.clone();
        self.driver_with(&options)
    }

    /// Like [`World::driver`], with separate options.
    pub fn driver_with(&self, options: &crate::Options) -> SimDriver {
        SimDriver::new(Rc::clone(&self.0), options)
    }

    /// Returns the time.
    pub fn now(&self) -> Instant {
        self.0.borrow().now()
    }

    /// Moves the clock to the next event in the network or of a timer. Returns `false` if there will never be
    /// one. Call it after a turn of every driver in which none had an event.
    pub fn step(&self) -> bool {
        self.0.borrow_mut().step(None)
    }

    /// Alternates between `turn` (a turn of every driver, which returns whether any had an event) and
    /// [`World::step`], until there are no more events.
    pub fn run_until_idle(&self, mut turn: impl FnMut() -> bool) {
        loop {
            while turn() {}
            if !self.step() {
                return;
            }
        }
    }

    /// Like [`World::run_until_idle`], but for `duration` of virtual time, after which the clock stops.
    pub fn run_for(&self, duration: Duration, mut turn: impl FnMut() -> bool) {
        let until = self.now() + duration;
        loop {
            while turn() {}
            if !self.0.borrow_mut().step(Some(until)) {
                return;
            }
        }
    }

    /// Resets a connection of `driver` on both sides, now. Has no effect for a dead id.
    pub fn reset(&self, driver: &SimDriver, conn: ConnId) {
        if let Some(socket) = driver.socket(conn) {
            self.0.borrow_mut().reset_both(socket);
        }
    }

    /// Ends the sending side of a connection of `driver`, which can still receive. Has no effect for a dead
    /// id.
    pub fn finish_sending(&self, driver: &SimDriver, conn: ConnId) {
        if let Some(socket) = driver.socket(conn) {
            self.0.borrow_mut().shut(socket);
        }
    }

    /// Lets the next `count` accepts of `driver` fail.
    pub fn fail_accepts(&self, driver: &SimDriver, count: u32) {
        self.0.borrow_mut().driver(driver.index()).accepts_to_fail += count;
    }
}
