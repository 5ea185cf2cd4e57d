//! The driver on io_uring: one ring per driver, and one call into it per turn. (Further rings exist only if
//! the process runs out of file descriptors: see `rings`.)
//!
//! Measurements decide between the alternatives (CPU of a server that echoes 64 B to 1,000 connections, or
//! broadcasts 1 kB to 2,000; Linux 6.18, loopback):
//!
//! - Connections use a multishot poll and are read with `recv(2)` when it fires. A multishot receive into
//!   provided buffers saves that call, but cost 7 % more CPU for the echo, and takes 490 B more of kernel
//!   memory per idle connection. A receive submitted after the poll costs the same as the call.
//! - Sends are queued and submitted with the next enter, or when the queue is full: 8 to 20 % less CPU than
//!   one call each, if there are many. The first few of a turn, and bytes for one connection, are sent with a
//!   call: small batches save no CPU time, and the call saves the event.
//! - Registered descriptors save no CPU time. Frames in a memfd are sent with `sendfile(2)`.
//!
//! An operation in progress holds a reference to its file. To close a connection, its operations are
//! therefore cancelled first, all by entries of one queue, whose order the kernel keeps; their completions
//! carry a generation that no connection has.
//!
//! Invariants: a connection with work is in the queue or has been stepped since the completion; every open
//! connection is polled, or is in the queue.

mod flight;
mod kernel;
mod listening;
mod receive;
mod ring;
mod rings;
mod token;

use crate::alarm::Alarm;
use crate::event_loop::{Backend, EventLoop};
use crate::turn::{Clock, Turn};
use crate::waker::Sleeper;
use crate::{ConnId, Options, connection, descriptors};
use flight::{Flights, State};
use listening::Listening;
use receive::Receives;
use ring::{Completion, Ring, Target};
use rings::{Descriptor, DirectLimits, Place, Rings};
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};
use token::{OperationId, Token};

/// Time for which a dropped driver waits for the kernel to end its operations.
const DROP_TIMEOUT: Duration = Duration::from_millis(200);

/// The events for which a connection polls. Room to write is polled only after a call has found a full
/// socket.
const EDGES: PollFlags = PollFlags::IN.union(PollFlags::RDHUP);

/// Options of this driver only.
#[derive(Clone, Debug)]
pub struct UringOptions {
    /// Entries of the submission queue, 1 to 32,768, rounded up to a power of two: the maximum number of
    /// sends that share one call. The completion queue has four times as many.
    pub submission_entries: u32,
    /// Number of sends in each turn that use a separate call before the others are batched.
    pub lone_sends_per_turn: usize,
    /// Connections whose file descriptor would have this number or a higher one become direct descriptors,
    /// which count towards no limit of the process. `None`: three quarters of RLIMIT_NOFILE at the time when
    /// the driver is made, or half if it is small. (Requires Linux 6.8; before, all connections have file
    /// descriptors.)
    pub direct_from: Option<u32>,
    /// Maximum number of rings for direct descriptors, each of which takes a file descriptor; 0 disables
    /// direct descriptors.
    pub direct_rings_max: u8,
    /// Maximum number of direct descriptors per ring; RLIMIT_NOFILE limits it as well.
    pub direct_slots_per_ring: u32,
}

impl Default for UringOptions {
    fn default() -> Self {
        Self {
            submission_entries: 1024,
            lone_sends_per_turn: 4,
            direct_from: None,
            direct_rings_max: 16,
            direct_slots_per_ring: 16 * 1024,
        }
    }
}

/// The driver on io_uring; see the module's documentation, and [`crate::Driver`]'s.
pub struct UringDriver(EventLoop<Uring>);

pub(crate) struct Uring {
    rings: Rings,
    sleeper: Sleeper,
    waker_polled: bool,
    alarm: Alarm,
    alarm_polled: bool,
    clock: Clock,
    options: UringOptions,
    events_per_turn: usize,
    flights: Flights,
    receives: Receives,
    listening: Listening,
    lone_sends_left: usize,
    /// Number of sends submitted in this turn since completions were read.
    sends_unread: usize,
    repolls_left: usize,
    /// Buffer in which small frames are combined.
    cork: Vec<u8>,
}

pub(crate) struct Socket {
    place: Place,
    /// `true` if the ring polls it for [`EDGES`].
    polled: bool,
    /// `true` if the ring polls it for room to write, once.
    awaits_room: bool,
    /// `true` if the socket may have an error to report.
    suspect: bool,
    flight: Option<OperationId>,
    /// `true` if the kernel has accepted the send, and [`Event::Sent`](crate::Event::Sent) must follow.
    sent: bool,
    /// The receive in progress, only of a direct connection.
    receive: Option<OperationId>,
}

type Connection = connection::Connection<Socket>;

impl UringDriver {
    /// Makes a driver with the default [`UringOptions`], for the thread that first waits with it.
    ///
    /// # Errors
    /// io_uring is missing, forbidden or too old ([`crate::probe()`] describes the reason), or the kernel is
    /// out of file descriptors or memory.
    ///
    /// # Panics
    /// If an option is below its minimum.
    pub fn new(options: &Options) -> io::Result<Self> {
        Self::with(options, &UringOptions::default())
    }

    /// Makes a driver, like [`UringDriver::new`].
    ///
    /// # Errors
    /// The same as for [`UringDriver::new`].
    ///
    /// # Panics
    /// If an option is below its minimum.
    pub fn with(options: &Options, uring_options: &UringOptions) -> io::Result<Self> {
        assert!(uring_options.submission_entries > 0, "{uring_options:?}");
        let limits = DirectLimits {
            from: uring_options.direct_from.unwrap_or_else(descriptors::for_connections),
            rings_max: uring_options.direct_rings_max,
            slots_per_ring: uring_options.direct_slots_per_ring.min(descriptors::limit()),
        };
        let kernel = Uring {
            rings: Rings::new(uring_options.submission_entries, limits)?,
            sleeper: Sleeper::new()?,
            waker_polled: false,
            alarm: Alarm::new()?,
            alarm_polled: false,
            clock: Clock::new(Instant::now()),
            options: uring_options.clone(),
            events_per_turn: options.events_per_turn,
            flights: Flights::new(),
            receives: Receives::new(options.receive_buffer_bytes),
            listening: Listening::default(),
            lone_sends_left: 0,
            sends_unread: 0,
            repolls_left: 0,
            cork: Vec::new(),
        };
        Ok(Self(EventLoop::new(options, kernel)))
    }

    /// Checks that io_uring works here, with every feature that this driver needs. The error is a
    /// description.
    pub(crate) fn check() -> Result<(), String> {
        let forbidden = "seccomp or kernel.io_uring_disabled";
        let reason = |error: io::Error| match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => format!("{error} ({forbidden})"),
            Some(libc::ENOSYS) => format!("{error} (this kernel has no io_uring, or hides it)"),
            Some(libc::EINVAL) => format!("{error} (Linux 6.1 or newer is needed)"),
            Some(libc::ENOMEM) => format!("{error} (is RLIMIT_MEMLOCK too small?)"),
            _ => error.to_string(),
        };
        let mut ring = Ring::new(4).map_err(|error| format!("io_uring_setup: {}", reason(error)))?;
        let missing = ring.check().map_err(|error| format!("io_uring_register: {}", reason(error)))?;
        missing.map_err(|name| format!("io_uring: this kernel lacks {name}"))?;
        ring.enter(Some(Duration::ZERO)).map_err(|error| format!("io_uring_enter: {}", reason(error)))
    }
}

impl Backend for UringDriver {
    type Kernel = Uring;

    #[inline]
    fn event_loop(&self) -> &EventLoop<Uring> {
        &self.0
    }

    #[inline]
    fn event_loop_mut(&mut self) -> &mut EventLoop<Uring> {
        &mut self.0
    }
}

impl Drop for UringDriver {
    /// Makes the kernel release everything, so that the sockets close now and not when it cleans up the ring.
    fn drop(&mut self) {
        let EventLoop { turn, kernel } = &mut self.0;
        let until = Instant::now() + DROP_TIMEOUT;
        let _ = kernel.rings.cancel_all(DROP_TIMEOUT);
        while kernel.rings.enter(usize::MAX, Some(Duration::ZERO)).is_ok() {
            kernel.record_completions(turn, usize::MAX);
            if kernel.flights.submitted() + kernel.receives.submitted() == 0 || Instant::now() > until {
                break;
            }
            std::thread::yield_now();
        }
        if kernel.flights.submitted() > 0 {
            kernel.flights.leak();
        }
    }
}

impl Uring {
    /// Records at most `max` completions, of which each ring has an equal share, rounded up. Returns no
    /// events.
    fn record_completions(&mut self, turn: &mut Turn<Socket>, max: usize) {
        let share = if self.rings.have_direct() { max.div_ceil(self.rings.count()) } else { max };
        for nth in 0..self.rings.count() {
            // Recording may cause further completions, which are left for the next time.
            for _ in 0..self.rings.ring(nth).completions().min(share) {
                let Some(completion) = self.rings.ring(nth).next_completion() else { break };
                self.record_completion(turn, completion);
            }
        }
    }

    #[inline]
    fn record_completion(&mut self, turn: &mut Turn<Socket>, completion: Completion) {
        let flags = completion.result().map(|flags| PollFlags::from_bits_retain(flags as u16));
        match Token::from_bits(completion.token) {
            Token::Ignored | Token::Installed(_) => {}
            // Completions of the waker and the alarm only end the wait.
            Token::Waker => self.waker_polled = completion.more,
            Token::Alarm => {
                self.alarm_polled = completion.more;
                self.alarm.rang();
                self.clock.needs_alarm();
            }
            Token::Listener(nth) => self.listening.record(self.rings.main(), nth, completion.more),
            Token::Send(flight) => {
                let Some(conn) = self.flights.complete(flight, completion.result()) else { return };
                // The flight is released at once, not when its connection is stepped: a message to all
                // connections would hold one flight for each.
                if self.flights.state(flight) == State::Completed {
                    self.flights.end(flight);
                    let socket = &mut turn.connections.at_mut(conn.0.index).socket;
                    socket.flight = None;
                    socket.sent = true;
                }
                turn.enqueue(conn);
            }
            Token::Receive(receive) => {
                let Some((conn, full)) = self.receives.complete(receive, completion.result()) else { return };
                if let Some(Connection { state, .. }) = turn.connections.get_mut(conn.0) {
                    state.readable |= full || state.ending && completion.result > 0;
                }
                turn.enqueue(conn);
            }
            Token::Freed { slot, ring } => self.rings.freed(slot, ring),
            Token::Poll(key) => {
                let Some((conn, Connection { socket, state, .. })) = token::find(key, &mut turn.connections)
                else {
                    return;
                };
                socket.polled = completion.more;
                match flags {
                    Ok(flags) => {
                        state.readable |= flags.intersects(EDGES);
                        state.ending |= flags.contains(PollFlags::RDHUP);
                        if flags.intersects(PollFlags::HUP | PollFlags::ERR) {
                            state.hang_up(flags.contains(PollFlags::ERR));
                        }
                    }
                    Err(Errno::CANCELED) => {}
                    Err(_) => state.fail(),
                }
                if !std::mem::replace(&mut state.queued, true) {
                    turn.queue.push_back(conn);
                }
            }
            Token::Room(key) => {
                let Some((conn, Connection { socket, state, .. })) = token::find(key, &mut turn.connections)
                else {
                    return;
                };
                state.writable = true;
                socket.awaits_room = false;
                socket.suspect =
                    flags.map_or(true, |flags| flags.intersects(PollFlags::ERR | PollFlags::HUP));
                turn.enqueue(conn);
            }
        }
    }

    /// Submits the queued operations, and records their results.
    fn flush(&mut self, turn: &mut Turn<Socket>) {
        // If submitting fails, the next wait reports the error.
        let _ = self.rings.submit();
        self.record_completions(turn, usize::MAX);
        self.sends_unread = 0;
    }

    fn await_room(&mut self, conn: ConnId, socket: &mut Socket) {
        if !std::mem::replace(&mut socket.awaits_room, true) {
            let (ring, target) = self.rings.of(&socket.place);
            ring.poll_once(Token::Room(conn.0), target, PollFlags::OUT);
        }
    }

    /// Starts reading a direct connection, unless the maximum number of receives is in progress.
    fn begin_receive(&mut self, conn: ConnId, connection: &mut Connection) {
        let (ring, target) = self.rings.of(&connection.socket.place);
        connection.socket.receive = self.receives.begin(conn, ring, target);
        connection.state.readable &= connection.socket.receive.is_none();
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
