//! A network without a kernel: everything on one thread, on a virtual clock, from one seed.
//!
//! A [`World`] holds the clock and the network. Its drivers ([`World::driver`]) are ordinary [`Driver`]s: a
//! server listens with one, simulated clients connect with another. [`Driver::wait`] never blocks; when no
//! driver has anything to do, whoever runs the simulation calls [`World::step`], which moves the clock to the
//! next thing that happens. [`World::run_until_idle`] and [`World::run_for`] are that loop.
//!
//! The seed decides how long each segment travels, where streams are cut, which of several listeners gets a
//! connection, and which accepts and connections fail; so a failing run is repeated by its seed. Buffers are
//! bounded on both sides, so a peer that doesn't read stalls its sender as in a kernel.
//!
//! What it deliberately doesn't do: lose, repeat or reorder segments (TCP hides that), share bandwidth, time
//! out a peer that is gone.
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

/// How the simulated network behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// The drivers' own options. (`events_per_turn` bounds nothing here.)
    pub driver: crate::Options,
    /// How long a segment travels, one way.
    pub latency: RangeInclusive<Duration>,
    /// Length of a segment at most, in bytes, at least 1.
    pub segment_bytes_max: usize,
    /// What a socket takes from its driver before it is full, in bytes, at least 1: sent bytes count until
    /// they have arrived.
    pub send_buffer_bytes: usize,
    /// What a socket keeps for its driver to read, in bytes, at least 1.
    pub receive_buffer_bytes: usize,
    /// How many of a million segments reset their connection instead.
    pub resets_per_million: u32,
    /// How many of a million accepts fail for want of descriptors. (The connection stays in its queue.)
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
    /// A world that runs by `seed`.
    ///
    /// # Panics
    /// If a buffer or the segment's length is 0, or the range of latencies is empty.
    pub fn new(seed: u64, options: Options) -> Self {
        Self(Rc::new(RefCell::new(Network::new(seed, options))))
    }

    /// A driver in this world. Dropping it closes its connections.
    pub fn driver(&self) -> SimDriver {
        let options = self.0.borrow().options().driver.clone();
        self.driver_with(&options)
    }

    /// As [`World::driver`], with options of its own.
    pub fn driver_with(&self, options: &crate::Options) -> SimDriver {
        SimDriver::new(Rc::clone(&self.0), options)
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.0.borrow().now()
    }

    /// Moves the clock to the next thing that happens, in the network or to a timer; false if nothing ever
    /// will. Call it when the drivers have had their turns and none had an event.
    pub fn step(&self) -> bool {
        self.0.borrow_mut().step(None)
    }

    /// Takes `turn` (a turn of every driver; whether any had an event) and [`World::step`] in turns until
    /// nothing is left to happen.
    pub fn run_until_idle(&self, mut turn: impl FnMut() -> bool) {
        loop {
            while turn() {}
            if !self.step() {
                return;
            }
        }
    }

    /// As [`World::run_until_idle`], but for `duration` of virtual time; at its end the clock stands there.
    pub fn run_for(&self, duration: Duration, mut turn: impl FnMut() -> bool) {
        let until = self.now() + duration;
        loop {
            while turn() {}
            if !self.0.borrow_mut().step(Some(until)) {
                return;
            }
        }
    }

    /// Resets a connection of `driver` on both sides, now. Does nothing for a dead id.
    pub fn reset(&self, driver: &SimDriver, conn: ConnId) {
        if let Some(socket) = driver.socket(conn) {
            self.0.borrow_mut().reset_both(socket);
        }
    }

    /// Ends the sending side of a connection of `driver`, which can still receive. Does nothing for a dead id.
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
