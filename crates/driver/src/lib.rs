//! The kernel behind one completion-shaped interface: epoll, io_uring, and a simulated one.
//!
//! A [`Driver`] belongs to one thread. It accepts and opens TCP connections, reads into a few shared receive
//! buffers, sends owned frames, keeps timers and can be woken by other threads. It knows no protocol. The
//! data plane and the load generator use the same interface.
//!
//! **Contract**, the same for every implementation and checked by one test suite (`tests/driver/suite/`):
//!
//! - [`Driver::wait`] collects events, [`Driver::next_event`] returns them. A turn is one `wait` and then
//!   `next_event` until it returns `None`.
//! - Idle connections own no buffer. [`Event::Received`] lends one of the driver's receive buffers, to be
//!   returned with [`Driver::recycle`]; a driver may run out of buffers if they aren't returned.
//! - At most one send is in flight per connection. [`Driver::send`] while one is in flight is a bug of
//!   the caller (`assert!`); the caller collects further frames and sends them together later.
//! - Frames in flight are owned by the driver until the kernel has accepted them (or the connection ends).
//! - After [`Event::Closed`], [`Driver::close`] or [`Driver::detach`] the id is dead: calls with it have no
//!   effect, and no event contains it. Ids are not reused while one is still known to the driver (they carry
//!   a generation).
//! - Within one turn each connection gets at most one [`Event::Received`], so that no connection starves. Its
//!   events precede those of timers: data that arrives in time is seen before its timeout.
//! - A failed send stays [`Sending::InFlight`] until [`Event::Closed`]. Data that the peer sent before can
//!   still arrive in between. A connection that is closed with bytes in flight is reset, so that the peer
//!   doesn't read a truncated stream as complete.
//! - A wake is never lost: a wake before the wait makes it return at once. Check the mailboxes after each
//!   wait.
//!
//! The drivers: [`UringDriver`] where [`probe()`] allows it, [`EpollDriver`] elsewhere, and [`sim`] for tests.
//! They share one event loop (`event_loop`).
//! To add one: a module that implements `kernel::Kernel`, its [`Kind`] in `probe`, its kind of socket in `detached`, one
//! line in `tests/driver/suite.rs`.
//!
//! The process must ignore SIGPIPE (as Rust's runtime arranges), because `sendfile` raises it.
//!
//! **Unsafe** code is in `mailbox` (the ring), `socket` (two calls without a safe wrapper), `cpu` and
//! `allocator` (one call each), and in `uring/ring`, `uring/flight` and `uring/receive` (memory that the
//! kernel reads and writes asynchronously). All of it is tested with the address sanitizer, and the first two
//! also with Miri, as far as Miri supports the system calls:
//!
//! ```text
//! MIRIFLAGS=-Zmiri-disable-isolation RUSTFLAGS='--cfg rustix_use_libc' cargo +nightly miri test \
//!     -p stentor-driver --lib -- mailbox slab wheel backlog waker::tests::a_wake
//! RUSTFLAGS=-Zsanitizer=address cargo +nightly test -p stentor-driver --target x86_64-unknown-linux-gnu
//! ```

mod alarm;
#[cfg(feature = "mimalloc")]
pub mod allocator;
mod backlog;
mod buffer;
mod connection;
mod cpu;
mod descriptors;
mod detached;
mod epoll;
mod event_loop;
mod kernel;
mod listeners;
pub mod mailbox;
mod options;
mod probe;
pub mod sim;
mod slab;
mod socket;
mod transmit;
mod turn;
mod uring;
mod waker;
mod wheel;

pub use buffer::ReceiveBuffer;
pub use cpu::thread_cpu_time;
pub use detached::DetachedConnection;
pub use epoll::EpollDriver;
pub use options::{ListenOptions, Options};
pub use probe::{Kind, Probe, probe};
pub use socket::{activated_sockets, check_unused, listening_socket};
pub use stentor_frame::{ConnId, FILE_FRAME_BYTES_MIN, FILE_FRAMES_MAX, Frame, Meter, TimerId};
pub use uring::{UringDriver, UringOptions};
pub use waker::Waker;

/// Returns memory that the calling thread has freed to the system, as far as the allocator supports it;
/// without the feature `mimalloc` this has no effect. Call it after freeing much memory, because it visits
/// all memory that the thread holds.
pub fn release_unused_memory() {
    #[cfg(feature = "mimalloc")]
    allocator::release_unused();
}

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// The result of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// The kernel has accepted everything; no event follows.
    Done,
    /// The driver still owns a part; [`Event::Sent`] or [`Event::Closed`] follows.
    InFlight,
}

/// An event since the last turn.
#[derive(Debug)]
pub enum Event {
    /// A listener accepted a connection.
    Accepted {
        /// The new connection.
        conn: ConnId,
        /// The address of the other side.
        peer: SocketAddr,
        /// The listener that accepted it: the number of [`Driver::listen`] calls before its own.
        listener: u8,
    },
    /// Accepting failed (out of file descriptors or memory). The driver pauses its listeners for 100 ms, then
    /// accepts again.
    AcceptFailed(io::Error),
    /// A connection begun with [`Driver::connect`] is established. If connecting fails, `Closed` comes
    /// instead.
    Connected(ConnId),
    /// Bytes arrived.
    Received {
        /// The connection.
        conn: ConnId,
        /// The bytes; give the buffer back with [`Driver::recycle`].
        data: ReceiveBuffer,
        /// Time when the read returned; without [`Options::receive_times`], time when the turn began.
        at: Instant,
    },
    /// The peer has finished sending (end of file). The peer may still read.
    PeerFinished(ConnId),
    /// The peer of a paused connection has finished sending: [`Event::PeerFinished`] follows after
    /// [`Driver::resume`] and the unread bytes. The peer may still read.
    EndPending(ConnId),
    /// The send in flight is complete: the kernel has accepted all of it.
    Sent(ConnId),
    /// The connection has ended: it was reset or refused, or [`Driver::finish`] completed. The id is dead.
    Closed {
        /// The connection.
        conn: ConnId,
        /// The cause; `None` if [`Driver::finish`] completed.
        error: Option<io::Error>,
    },
    /// A timer fired. The value is its token. Its [`TimerId`] is dead.
    Timer(u64),
    /// A [`Waker`] of this driver was used since the last turn.
    Woken,
}

/// Number of connections that can have file descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// File descriptors for connections of all drivers of the process together: three quarters of
    /// RLIMIT_NOFILE at the time when the driver was made, or half if it is small. The others are reserved.
    pub shared: usize,
    /// Additional direct descriptors for connections of this driver.
    pub own: usize,
}

/// One thread's view of the kernel. See the crate's documentation for the contract.
pub trait Driver {
    /// Returns the time at which [`Driver::wait`] last returned (virtual in the simulation).
    fn now(&self) -> Instant;

    /// Listens at `addr` and returns the address bound (port 0 picks one). TCP_NODELAY is set. A driver may
    /// listen at up to 256 addresses.
    ///
    /// # Errors
    /// The address is in use, is not an address of this host, or is not permitted; or there are 256 listeners.
    fn listen(&mut self, addr: SocketAddr, options: &ListenOptions) -> io::Result<SocketAddr>;

    /// Begins to connect to `remote`, from the address `source` if given (the port is chosen late, so that
    /// ports don't run out per address). `Connected` or `Closed` follows. Frames that are sent before are
    /// kept, and leave when the connection is established.
    ///
    /// # Errors
    /// Errors that the kernel reports at once: out of file descriptors or ports, no route, not an address of
    /// this host.
    fn connect(&mut self, remote: SocketAddr, source: Option<IpAddr>) -> io::Result<ConnId>;

    /// Submits pending operations and waits until an event has occurred or `timeout` has passed (`None`:
    /// forever; zero: not at all). Due timers count as events.
    ///
    /// # Errors
    /// The kernel refuses to wait. A caller can't recover from this error.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// Returns the next event of this turn.
    fn next_event(&mut self) -> Option<Event>;

    /// Takes a receive buffer back.
    fn recycle(&mut self, buffer: ReceiveBuffer);

    /// Sends `frames` as one vectored send; the vector is left empty, its capacity kept. `conn` must not have
    /// a send in flight. Empty `frames` give `Done`. An error of the kernel appears as `Closed` later.
    fn send(&mut self, conn: ConnId, frames: &mut Vec<Frame>) -> Sending;

    /// Like [`Driver::send`], for bytes that belong to this connection alone. Bytes that the kernel doesn't
    /// accept at once are copied.
    fn send_bytes(&mut self, conn: ConnId, bytes: &[u8]) -> Sending;

    /// Returns the bytes in flight that the kernel has not accepted yet; 0 for a dead id. (A driver that is
    /// only notified of complete sends returns the full size.)
    fn in_flight_bytes(&self, conn: ConnId) -> usize;

    /// Returns the memory in flight on all connections that belongs to one connection each: owned frames, and
    /// copies by [`Driver::send_bytes`]. Shared frames count in their own [`Meter`].
    fn owned_bytes(&self) -> usize;

    /// Stops reading from `conn`: no `Received` until [`Driver::resume`]. Flow control then reaches the peer.
    /// An error of the connection is still reported. The end of the peer's bytes is also reported
    /// ([`Event::EndPending`]), once after each call, as soon as the kernel knows it. Costs no system call.
    fn pause(&mut self, conn: ConnId);

    /// Resumes reading from `conn`.
    fn resume(&mut self, conn: ConnId);

    /// Ends `conn` in order: sends all bytes in flight, shuts down the write side, discards received bytes until the peer's end
    /// of file or until `linger` has passed, and then closes it. `Closed { error: None }` follows (with an error if the peer
    /// resets it). No other event of `conn` follows, and no other call accepts its id.
    fn finish(&mut self, conn: ConnId, linger: Duration);

    /// Closes `conn` now. Frames in flight are freed when the kernel no longer reads them. No event follows.
    fn close(&mut self, conn: ConnId);

    /// Removes `conn` from this driver, to be attached to another one. No bytes may be in flight (`assert!`). `None` for an
    /// invalid id, or if bytes have been read that aren't returned yet.
    fn detach(&mut self, conn: ConnId) -> Option<DetachedConnection>;

    /// Attaches a connection that another driver of the same kind detached. It stays paused if it was.
    ///
    /// # Errors
    /// The kernel is out of memory, or the connection is of another kind of driver (`InvalidInput`). The connection is
    /// closed.
    fn attach(&mut self, detached: DetachedConnection) -> io::Result<ConnId>;

    /// Returns the number of connections of this driver, including those being finished.
    fn connections(&self) -> usize;

    /// Returns the number of connections that can have file descriptors. The driver doesn't enforce it: more
    /// may be accepted, at the cost of descriptors that are reserved for the rest of the process.
    fn capacity(&self) -> Capacity;

    /// Sets a timer: [`Event::Timer`] with `token` follows at `at` or up to 10 ms later, never before, and
    /// never in the turn in which it is set. Two timers less than 8 ms apart may fire in either order.
    fn timer_set(&mut self, at: Instant, token: u64) -> TimerId;

    /// Cancels a timer; has no effect if it has fired.
    fn timer_cancel(&mut self, timer: TimerId);

    /// Returns a handle with which other threads wake this driver.
    fn waker(&self) -> Waker;

    /// Stops accepting for good (shutdown): closes the listening sockets.
    fn stop_listening(&mut self);

    /// Pauses or resumes accepting. The listening sockets stay open: another process accepts from them
    /// meanwhile.
    fn pause_accepting(&mut self, is_paused: bool);
}
