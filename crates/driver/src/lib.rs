//! The kernel behind one completion-shaped interface: epoll, io_uring, and a simulated one.
//!
//! A [`Driver`] belongs to one thread. It accepts and opens TCP connections, reads into a few shared
//! receive buffers, sends owned frames, keeps timers and can be woken by other threads. It knows no
//! protocol. The data plane and the load generator stand on the same interface.
//!
//! **Contract**, the same for every implementation and checked by one test suite (`tests/driver/suite/`):
//!
//! - [`Driver::wait`] collects events, [`Driver::next_event`] returns them. A turn is one `wait` and then
//!   `next_event` until it returns `None`.
//! - Idle connections own no buffer. [`Event::Received`] lends one of the driver's receive buffers,
//!   which goes back by [`Driver::recycle`]; a driver may run out of buffers if they aren't returned.
//! - At most one send is in flight per connection. [`Driver::send`] while one is in flight is a bug of
//!   the caller (`assert!`); the caller collects further frames and sends them together later.
//! - Frames in flight are owned by the driver until the kernel has taken them (or the connection ends).
//! - After [`Event::Closed`], [`Driver::close`] or [`Driver::detach`] the id is dead: calls with it do
//!   nothing, and no event names it. Ids are not reused while one is still known to the driver
//!   (they carry a generation).
//! - Within one turn each connection gets at most one [`Event::Received`], so that none starves. Its
//!   events precede those of timers: data that arrives in time is seen before its timeout.
//! - A failed send stays [`Sending::InFlight`] until [`Event::Closed`]; data that the peer sent before can
//!   still arrive in between. A connection that is closed with bytes in flight is reset, so that the peer
//!   doesn't take a truncated stream for a complete one.
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
//! **Unsafe** is in `mailbox` (the ring), `socket` (two calls that no wrapper has), `cpu` and `allocator` (one call each), and in `uring/ring`,
//! `uring/flight` and `uring/receive` (what the kernel reads and writes while we don't). All are run under the
//! address sanitizer, and the first two under Miri, as far as these know the system calls:
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

/// Gives the system back what the calling thread has freed, as far as the allocator knows how: without the feature
/// `mimalloc` this does nothing. To be called after much has been freed; it looks at all that the thread holds.
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
    /// The kernel has taken everything; no event follows.
    Done,
    /// Some of it is still owned by the driver; [`Event::Sent`] or [`Event::Closed`] follows.
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
    /// A connection begun with [`Driver::connect`] is established. If it fails, `Closed` comes instead.
    Connected(ConnId),
    /// Bytes arrived.
    Received {
        /// The connection.
        conn: ConnId,
        /// The bytes; give the buffer back with [`Driver::recycle`].
        data: ReceiveBuffer,
        /// When the read returned; without [`Options::receive_times`], when the turn began.
        at: Instant,
    },
    /// The other side has finished sending (end of file). It may still read.
    PeerFinished(ConnId),
    /// The other side of a paused connection has finished sending: [`Event::PeerFinished`] follows after
    /// [`Driver::resume`] and the bytes that are unread. It may still read.
    EndPending(ConnId),
    /// The send in flight is done: the kernel has taken all of it.
    Sent(ConnId),
    /// The connection is gone: reset, refused, or [`Driver::finish`] completed. The id is dead.
    Closed {
        /// The connection.
        conn: ConnId,
        /// The cause; `None` if [`Driver::finish`] completed.
        error: Option<io::Error>,
    },
    /// A timer fired: the token that it was set with. Its [`TimerId`] is dead.
    Timer(u64),
    /// A [`Waker`] of this driver was used since the last turn.
    Woken,
}

/// The number of connections that have file descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// For connections of all drivers of the process together: three quarters of RLIMIT_NOFILE as it was when the driver
    /// was made, or half where it is small. The others are reserved.
    pub shared: usize,
    /// Additional ones for connections of this driver: direct descriptors.
    pub own: usize,
}

/// One thread's view of the kernel. See the crate's documentation for the contract.
pub trait Driver {
    /// The time, as read when [`Driver::wait`] last returned (virtual in the simulation).
    fn now(&self) -> Instant;

    /// Listens at `addr` and returns the address bound (port 0 picks one). TCP_NODELAY is set. A driver may
    /// listen at up to 256 addresses.
    ///
    /// # Errors
    /// The address is in use, is not an address of this host, or is not permitted; or there are 256 listeners.
    fn listen(&mut self, addr: SocketAddr, options: &ListenOptions) -> io::Result<SocketAddr>;

    /// Begins to connect to `remote`, from the address `source` where given (port chosen late, so that
    /// it doesn't run out per address). `Connected` or `Closed` follows. What is sent before is kept, and
    /// leaves when it is established.
    ///
    /// # Errors
    /// Errors that the kernel reports at once: out of file descriptors or ports, no route, not an address of this host.
    fn connect(&mut self, remote: SocketAddr, source: Option<IpAddr>) -> io::Result<ConnId>;

    /// Submits what is pending and waits until something happened or `timeout` has passed (`None`: for
    /// ever; zero: not at all). Due timers count as something.
    ///
    /// # Errors
    /// The kernel refuses to wait. A caller can't recover from this.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// The next event of this turn.
    fn next_event(&mut self) -> Option<Event>;

    /// Gives a receive buffer back.
    fn recycle(&mut self, buffer: ReceiveBuffer);

    /// Sends `frames` as one vectored send; the vector is left empty, its capacity kept. Nothing may be
    /// in flight on `conn`. Empty `frames` is `Done`. An error of the kernel appears as `Closed` later.
    fn send(&mut self, conn: ConnId, frames: &mut Vec<Frame>) -> Sending;

    /// As [`Driver::send`], for bytes that belong to this connection alone: what the kernel doesn't take
    /// at once is copied.
    fn send_bytes(&mut self, conn: ConnId, bytes: &[u8]) -> Sending;

    /// Bytes in flight that the kernel has not taken yet; 0 for a dead id. (A driver that is
    /// notified of complete sends only returns the whole.)
    fn in_flight_bytes(&self, conn: ConnId) -> usize;

    /// Bytes of memory in flight on all connections that belong to one connection each: owned frames, and what
    /// [`Driver::send_bytes`] copied. Shared frames count in their own [`Meter`].
    fn owned_bytes(&self) -> usize;

    /// Stops reading from `conn`: no `Received` until [`Driver::resume`]. Flow control then reaches the
    /// peer. An error of the connection is still reported, and so is, once after each call, that the peer has finished
    /// sending ([`Event::EndPending`]), as soon as the kernel knows it. Costs no system call.
    fn pause(&mut self, conn: ConnId);

    /// Reads from `conn` again.
    fn resume(&mut self, conn: ConnId);

    /// Ends `conn` in order: what is in flight is sent, then the write side is shut down, what arrives
    /// is discarded until the peer's end of file or until `linger` has passed, then it is closed and
    /// `Closed { error: None }` follows (with an error where the peer resets it). No other event of `conn`
    /// follows, and for all other calls its id is dead.
    fn finish(&mut self, conn: ConnId, linger: Duration);

    /// Closes `conn` now. Frames in flight are freed when the kernel no longer reads them. No event follows.
    fn close(&mut self, conn: ConnId);

    /// Takes `conn` out of this driver, to be attached to another one. Only with nothing in flight
    /// (`assert!`); `None` for a dead id, or where bytes have been read that aren't handed out yet.
    fn detach(&mut self, conn: ConnId) -> Option<DetachedConnection>;

    /// Attaches a connection that another driver of the same kind detached. It stays paused if it was.
    ///
    /// # Errors
    /// The kernel is out of memory, or the connection is of another kind of driver (`InvalidInput`). The connection is
    /// closed.
    fn attach(&mut self, detached: DetachedConnection) -> io::Result<ConnId>;

    /// How many connections this driver holds, those being finished included.
    fn connections(&self) -> usize;

    /// The number of connections that have file descriptors. The driver doesn't enforce it: more may be accepted, at
    /// the cost of the descriptors reserved for the rest of the process.
    fn capacity(&self) -> Capacity;

    /// Sets a timer: [`Event::Timer`] with `token` comes at `at` or up to 10 ms later, never before, and
    /// never in the turn in which it is set. Of two timers less than 8 ms apart either may come first.
    fn timer_set(&mut self, at: Instant, token: u64) -> TimerId;

    /// Cancels a timer; does nothing where it has fired.
    fn timer_cancel(&mut self, timer: TimerId);

    /// A handle by which other threads wake this driver.
    fn waker(&self) -> Waker;

    /// Stops accepting (drain): the listening sockets are closed.
    fn stop_listening(&mut self);

    /// Stops accepting, or accepts again. The listening sockets stay open: another process accepts from them meanwhile.
    fn pause_accepting(&mut self, is_paused: bool);
}
