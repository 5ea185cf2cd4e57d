//! The driver on io_uring: one ring per driver, and one call into it per turn. (More rings come only where the
//! process runs out of descriptors: see `rings`.)
//!
//! Measurements decide between the alternatives (CPU of a server that echoes 64 B to 1,000 connections, or
//! broadcasts 1 kB to 2,000; Linux 6.18, loopback):
//!
//! - Connections wait on a multishot poll and are read by `recv(2)` when it fires. A multishot receive into
//!   provided buffers saves that call, but cost 7 % more CPU for the echo, and takes 490 B more of kernel
//!   memory per idle connection. A receive submitted after the poll costs the same as the call.
//! - Sends are queued and submitted with the next enter, or when the queue is full: 8 to 20 % less CPU than a
//!   call each, if there are many. The first few of a turn, and bytes for one connection, are sent by a call:
//!   small batches save nothing, and the call saves the event.
//! - Registered descriptors save nothing. Frames in a memfd are sent by `sendfile(2)`.
//!
//! The turn is that of [`crate::EpollDriver`]: [`Driver::wait`] records completions in the connections
//! and queues them; [`Driver::next_event`] steps through the part of the queue that was there when the turn
//! began. Within a turn come first the connections' events, then accepted connections, then timers.
//!
//! An operation that is under way holds a reference to its file. So to close a connection its operations are
//! cancelled first, all by entries of one queue, whose order the kernel keeps; what they complete with carries
//! a generation that no connection has.
//!
//! Invariants: `queued` is set exactly for connections in the queue; a connection with something to do is in
//! the queue or has been stepped since the completion; every open connection is polled, or is in the queue.

mod connection;
mod flight;
mod listeners;
mod receive;
mod ring;
mod rings;
mod step;
mod token;
mod turn;

use crate::alarm::Alarm;
use crate::backlog::Cursor;
use crate::buffer::Buffers;
use crate::descriptors;
use crate::detached::TransferredSocket;
use crate::epoll::socket;
use crate::epoll::transmit::{Progress, transmit, transmit_bytes};
use crate::slab::Slab;
use crate::waker::Sleeper;
use crate::wheel::Wheel;
use crate::{
    Capacity, ConnId, DetachedConnection, Driver, Event, Frame, ListenOptions, Options, ReceiveBuffer,
    Sending, TimerId, Waker,
};
use connection::{Connection, EDGES, Phase};
use flight::{FlightId, Flights, State};
use listeners::Listeners;
use receive::Receives;
use ring::{Completion, Ring, Target};
use rings::{Descriptor, DirectLimits, Rings, Socket};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_linger, socket_error};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use token::Token;

/// How long a driver that is dropped waits for the kernel to end its operations.
const DROP_TIMEOUT: Duration = Duration::from_millis(200);

/// What is longer than this is for ever: it can be added to an instant.
const LINGER_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Options of this driver only.
#[derive(Clone, Debug)]
pub struct UringOptions {
    /// Entries of the submission queue, 1 to 32,768, rounded up to a power of two: so many sends share one
    /// call at most. The completion queue has four times as many.
    pub submission_entries: u32,
    /// Sends that leave by a call of their own in each turn, before the others gather.
    pub lone_sends_per_turn: usize,
    /// Connections whose descriptor would have this number or a higher one become direct descriptors, which
    /// count for no limit of the process. `None`: three quarters of RLIMIT_NOFILE as it is when the driver is made, or half
    /// where it is small.
    /// (It takes Linux 6.8; before, all connections have descriptors.)
    pub direct_from: Option<u32>,
    /// Rings for direct descriptors at most, each of which takes a descriptor; 0: none become direct.
    pub direct_rings_max: u8,
    /// Direct descriptors per ring at most; RLIMIT_NOFILE bounds it as well.
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

/// See the module's documentation, and [`Driver`]'s.
pub struct UringDriver {
    rings: Rings,
    sleeper: Sleeper,
    waker_polled: bool,
    alarm: Alarm,
    alarm_polled: bool,
    options: Options,
    uring_options: UringOptions,
    now: Instant,
    connections: Slab<Connection>,
    flights: Flights,
    receives: Receives,
    listeners: Listeners,
    /// Completions; empty between calls.
    completions: Vec<Completion>,
    queue: VecDeque<ConnId>,
    /// How many of the queue belong to this turn.
    queue_left: usize,
    /// The connection being stepped.
    current: Option<ConnId>,
    accepts_left: usize,
    lone_sends_left: usize,
    repolls_left: usize,
    woken: bool,
    timers: Wheel,
    /// Ends of `finish`; the tokens are connections.
    lingers: Wheel,
    buffers: Buffers,
    /// Where small frames are put together.
    cork: Vec<u8>,
}

impl UringDriver {
    /// A driver with the usual [`UringOptions`], for the thread that first waits with it.
    ///
    /// # Errors
    /// The kernel's, where io_uring is missing, forbidden or too old ([`crate::probe`] says it in words), or
    /// where there are no descriptors or no memory left.
    ///
    /// # Panics
    /// If an option is below its minimum.
    pub fn new(options: &Options) -> io::Result<Self> {
        Self::with(options, &UringOptions::default())
    }

    /// As [`UringDriver::new`].
    ///
    /// # Errors
    /// As [`UringDriver::new`].
    ///
    /// # Panics
    /// If an option is below its minimum.
    pub fn with(options: &Options, uring_options: &UringOptions) -> io::Result<Self> {
        assert!(options.events_per_turn > 0 && options.accepts_per_turn > 0, "{options:?}");
        assert!(uring_options.submission_entries > 0, "{uring_options:?}");
        let now = Instant::now();
        let limits = DirectLimits {
            from: uring_options.direct_from.unwrap_or_else(descriptors::for_connections),
            rings_max: uring_options.direct_rings_max,
            slots_per_ring: uring_options.direct_slots_per_ring.min(descriptors::limit()),
        };
        Ok(Self {
            rings: Rings::new(uring_options.submission_entries, limits)?,
            sleeper: Sleeper::new()?,
            waker_polled: false,
            alarm: Alarm::new()?,
            alarm_polled: false,
            now,
            connections: Slab::new(),
            flights: Flights::new(),
            receives: Receives::new(options.receive_buffer_bytes),
            listeners: Listeners::new(),
            completions: Vec::new(),
            queue: VecDeque::new(),
            queue_left: 0,
            current: None,
            accepts_left: 0,
            lone_sends_left: 0,
            repolls_left: 0,
            woken: false,
            timers: Wheel::new(now),
            lingers: Wheel::new(now),
            buffers: Buffers::new(options.receive_buffer_bytes),
            cork: Vec::new(),
            options: Options {
                accepts_per_turn: descriptors::accepts_per_turn(options.accepts_per_turn),
                ..options.clone()
            },
            uring_options: uring_options.clone(),
        })
    }

    /// Whether io_uring works here, with everything that this driver needs; else why not, in words.
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

    /// The connection, if it is alive for the caller: not where it is being finished.
    fn open(&mut self, conn: ConnId) -> Option<&mut Connection> {
        self.connections.get_mut(conn.into()).filter(|connection| !connection.is_finishing())
    }

    fn enqueue(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(conn.into())
            && !std::mem::replace(&mut connection.queued, true)
        {
            self.queue.push_back(conn);
        }
    }

    /// A new connection of the ring. What is being connected is only waited for.
    fn register(&mut self, connection: Connection) -> ConnId {
        let conn = ConnId::from(self.connections.insert(connection));
        let connection = self.connections.at_mut(conn.index);
        let (ring, target) = self.rings.of(&connection.socket);
        if connection.phase == Phase::Connecting {
            connection.awaits_room = true;
            ring.poll_once(Token::Room(conn.into()), target, PollFlags::OUT);
        } else {
            connection.polled = true;
            ring.poll(Token::Poll(conn.into()), target, EDGES);
        }
        conn
    }

    /// Ends what the ring does for a connection, except that its descriptor stays open. True if something of
    /// it was still to be sent.
    fn disarm(&mut self, conn: ConnId, connection: &Connection) -> bool {
        let (ring, _) = self.rings.of(&connection.socket);
        if connection.polled {
            ring.cancel(Token::Poll(conn.into()));
        }
        if connection.awaits_room {
            ring.cancel(Token::Room(conn.into()));
        }
        if let Some(receive) = connection.receive {
            self.receives.abandon(receive); // it doesn't wait, so it needn't be cancelled
        }
        if let Phase::Finishing(linger) = connection.phase {
            self.lingers.cancel(linger);
        }
        let Some(flight) = connection.flight else { return false };
        let completed = self.flights.state(flight) == State::Completed;
        if self.flights.abandon(flight) {
            ring.cancel(flight.token());
        }
        !completed
    }

    /// Removes a connection and closes it. If bytes are in flight, by a reset: the peer must not take the
    /// stream for complete, and the kernel must not keep the rest for minutes.
    fn end(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.remove(conn.into()) else { return };
        if self.disarm(conn, &connection) {
            let _ = self.rings.descriptor(&connection.socket).map(|fd| reset(fd.as_fd()));
        }
        self.rings.close(connection.socket);
    }

    /// Ends a connection by an error: the given one, else the one that sending met, else the socket's.
    fn closed(&mut self, conn: ConnId, error: Option<Errno>) -> Option<Event> {
        let connection = self.connections.get(conn.into())?;
        let sending = || match self.flights.state(connection.flight?) {
            State::Failed(error) => Some(error),
            _ => None,
        };
        let error = error.or_else(sending).or_else(|| {
            let fd = self.rings.descriptor(&connection.socket).ok()?;
            socket_error(fd.as_fd()).ok()?.err()
        });
        let error = error.unwrap_or(Errno::CONNRESET);
        self.end(conn);
        Some(Event::Closed { conn, error: Some(error.into()) })
    }

    /// Keeps what a send's call hasn't taken in flight.
    fn keep_in_flight(&mut self, conn: ConnId, flight: FlightId, progress: Progress) -> Sending {
        let Some(connection) = self.connections.get_mut(conn.into()) else { return Sending::Done };
        connection.flight = Some(flight);
        match progress {
            Progress::Failed(error) => {
                // What has been received before can still be read; then, or at once if paused, `Closed` comes.
                self.flights.fail(flight, error);
                connection.fail();
                self.enqueue(conn);
            }
            _ if connection.phase == Phase::Connecting => {} // its first step goes on
            _ if self.flights.is_by_call(flight) => self.await_room(conn),
            _ => {
                let (ring, target) = self.rings.of(&connection.socket);
                self.flights.submit(flight, ring, target);
                if matches!(target, Target::Slot(_)) && self.lone_sends_left > 0 {
                    // What a call is to a descriptor.
                    self.lone_sends_left -= 1;
                    self.flush();
                    if self.flights.state(flight) == State::Completed {
                        self.flights.end(flight);
                        self.connections.at_mut(conn.index).flight = None;
                        return Sending::Done;
                    }
                }
            }
        }
        Sending::InFlight
    }
}

/// Lets the closing of a socket be a reset: of a stream that is cut off, so that the peer doesn't take it for the
/// whole, and the kernel doesn't keep its share for minutes.
fn reset(socket: BorrowedFd<'_>) {
    let _ = set_socket_linger(socket, Some(Duration::ZERO));
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

impl Driver for UringDriver {
    fn now(&self) -> Instant {
        self.now
    }

    fn listen(&mut self, addr: SocketAddr, options: &ListenOptions) -> io::Result<SocketAddr> {
        self.listeners.listen(addr, options)
    }

    fn connect(&mut self, remote: SocketAddr, source: Option<IpAddr>) -> io::Result<ConnId> {
        self.make_room();
        let fd = socket::connect(remote, source)?;
        let socket = self.rings.adopt(fd, self.sleeper.eventfd());
        Ok(self.register(Connection::new(socket, Phase::Connecting, remote)))
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let until = match timeout {
            Some(timeout) if !timeout.is_zero() => Instant::now().checked_add(timeout),
            _ => None,
        };
        let poll = timeout.is_some_and(|timeout| timeout.is_zero());
        loop {
            let sleep = if poll { Some(Duration::ZERO) } else { self.sleep(until)? };
            self.gather(sleep)?;
            if poll || self.has_work() || until.is_some_and(|until| self.now >= until) {
                break;
            }
            // Only a timer has moved nearer within the wheel, or a wake came late.
        }
        self.read_ahead()?;
        self.queue_left = self.queue.len();
        self.accepts_left = self.options.accepts_per_turn;
        self.lone_sends_left = self.uring_options.lone_sends_per_turn;
        self.repolls_left = self.uring_options.submission_entries as usize;
        self.current = None;
        Ok(())
    }

    fn next_event(&mut self) -> Option<Event> {
        if std::mem::take(&mut self.woken) {
            return Some(Event::Woken);
        }
        loop {
            if let Some(conn) = self.current.take()
                && let Some(event) = self.step(conn)
            {
                if !matches!(event, Event::Received { .. }) {
                    self.current = Some(conn);
                }
                return Some(event);
            }
            if self.queue_left == 0 {
                break;
            }
            self.queue_left -= 1;
            if let Some(conn) = self.queue.pop_front()
                && let Some(connection) = self.connections.get_mut(conn.into())
            {
                connection.queued = false;
                self.current = Some(conn);
            }
        }
        // The rare ones are not inlined: what they need of the stack, each call would set up.
        if self.listeners.are_ready()
            && let Some(event) = self.step_accept()
        {
            return Some(event);
        }
        if self.lingers.has_due()
            && let Some(event) = self.step_linger()
        {
            return Some(event);
        }
        self.timers.pop_due().map(Event::Timer)
    }

    fn recycle(&mut self, buffer: ReceiveBuffer) {
        self.buffers.recycle(buffer);
    }

    fn send(&mut self, conn: ConnId, frames: &mut Vec<Frame>) -> Sending {
        self.make_room();
        let Some(connection) = self.open(conn) else {
            frames.clear();
            return Sending::Done;
        };
        assert!(connection.flight.is_none(), "a send is in flight on this connection");
        if frames.iter().all(Frame::is_empty) {
            frames.clear();
            return Sending::Done;
        }
        let mut cursor = Cursor::default();
        let mut progress = Progress::Stalled;
        let is_open = connection.phase == Phase::Open;
        let is_real = matches!(connection.socket, Socket::Real(_));
        if is_open && (self.lone_sends_left > 0 && is_real || frames.iter().any(Frame::is_file)) {
            self.lone_sends_left = self.lone_sends_left.saturating_sub(1);
            let connection = self.connections.at(conn.index);
            progress = match self.rings.descriptor(&connection.socket) {
                Ok(fd) => transmit(fd.as_fd(), frames, &mut cursor, &mut self.cork),
                Err(error) => Progress::Failed(errno(&error)),
            };
            if progress == Progress::Done {
                frames.clear();
                return Sending::Done;
            }
        }
        let flight = self.flights.begin(conn, frames, cursor);
        self.keep_in_flight(conn, flight, progress)
    }

    fn send_bytes(&mut self, conn: ConnId, bytes: &[u8]) -> Sending {
        self.make_room();
        let Some(connection) = self.open(conn) else { return Sending::Done };
        assert!(connection.flight.is_none(), "a send is in flight on this connection");
        let mut taken = 0;
        let progress = match &connection.socket {
            _ if bytes.is_empty() => Progress::Done,
            Socket::Real(fd) if connection.phase == Phase::Open => {
                transmit_bytes(fd.as_fd(), bytes, &mut taken)
            }
            _ => Progress::Stalled,
        };
        if progress == Progress::Done {
            return Sending::Done;
        }
        let flight = self.flights.begin_bytes(conn, &bytes[taken..]);
        self.keep_in_flight(conn, flight, progress)
    }

    fn in_flight_bytes(&self, conn: ConnId) -> usize {
        let connection = self.connections.get(conn.into()).filter(|connection| !connection.is_finishing());
        connection.and_then(|connection| connection.flight).map_or(0, |flight| self.flights.bytes(flight))
    }

    fn owned_bytes(&self) -> usize {
        self.flights.owned_bytes()
    }

    fn pause(&mut self, conn: ConnId) {
        if let Some(connection) = self.open(conn) {
            connection.paused = true; // a broken one is in the queue, which reports it
        }
    }

    fn resume(&mut self, conn: ConnId) {
        let Some(connection) = self.open(conn).filter(|connection| connection.paused) else { return };
        connection.paused = false;
        if connection.readable || connection.receive.is_some() {
            self.enqueue(conn);
        }
    }

    fn finish(&mut self, conn: ConnId, linger: Duration) {
        let until = self.now + linger.min(LINGER_MAX);
        if self.open(conn).is_none() {
            return;
        }
        let linger = self.lingers.set(until, conn.to_bits());
        let connection = self.connections.at_mut(conn.index);
        if connection.phase == Phase::Connecting {
            // There is no peer to close in order.
            connection.ended = true;
            connection.shut = true;
        }
        connection.phase = Phase::Finishing(linger);
        connection.readable = true;
        self.enqueue(conn);
    }

    fn close(&mut self, conn: ConnId) {
        let Some(connection) = self.open(conn) else { return };
        if connection.flight.is_some_and(|flight| self.flights.state(flight) == State::Submitted) {
            // Perhaps it only waits for the next enter, and needn't be cut off.
            self.flush();
        }
        self.end(conn);
        self.make_room();
    }

    fn detach(&mut self, conn: ConnId) -> Option<DetachedConnection> {
        let connection = self.open(conn)?;
        assert!(connection.flight.is_none(), "a send is in flight on this connection");
        if connection.phase != Phase::Open || connection.receive.is_some() {
            return None;
        }
        // A direct one becomes a descriptor for the way.
        let installed = match self.rings.descriptor(&self.connections.at(conn.index).socket) {
            Ok(Descriptor::Installed(fd)) => Some(fd),
            Ok(Descriptor::Lent(_)) => None,
            Err(_) => return None,
        };
        // Its poll takes no bytes, so it may be cancelled at leisure: what it tells until then names nobody.
        let connection = self.connections.remove(conn.into())?;
        self.disarm(conn, &connection);
        let Connection { socket, peer, ended, paused, .. } = connection;
        let fd = match (installed, socket) {
            (None, Socket::Real(fd)) => fd,
            (installed, socket) => {
                self.rings.close(socket);
                installed?
            }
        };
        self.make_room();
        Some(DetachedConnection { socket: TransferredSocket::Descriptor(fd), peer, ended, paused })
    }

    fn attach(&mut self, detached: DetachedConnection) -> io::Result<ConnId> {
        self.make_room();
        let DetachedConnection { socket: TransferredSocket::Descriptor(fd), peer, ended, paused } = detached
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let socket = self.rings.adopt(fd, self.sleeper.eventfd());
        let connection = Connection { ended, paused, ..Connection::new(socket, Phase::Open, peer) };
        Ok(self.register(connection))
    }

    fn connections(&self) -> usize {
        self.connections.len()
    }

    fn capacity(&self) -> Capacity {
        self.rings.capacity()
    }

    fn timer_set(&mut self, at: Instant, token: u64) -> TimerId {
        self.timers.set(at, token)
    }

    fn timer_cancel(&mut self, timer: TimerId) {
        self.timers.cancel(timer);
    }

    fn waker(&self) -> Waker {
        self.sleeper.waker()
    }

    fn stop_listening(&mut self) {
        self.listeners.stop(self.rings.main());
    }
}

impl Drop for UringDriver {
    /// Lets the kernel go of everything, so that the sockets close now and not when it cleans up the ring.
    fn drop(&mut self) {
        let until = Instant::now() + DROP_TIMEOUT;
        let _ = self.rings.cancel_all(DROP_TIMEOUT);
        while self.rings.enter(usize::MAX, Some(Duration::ZERO)).is_ok() {
            self.record(usize::MAX);
            if self.flights.submitted() + self.receives.submitted() == 0 || Instant::now() > until {
                break;
            }
            std::thread::yield_now();
        }
        if self.flights.submitted() > 0 {
            self.flights.leak();
        }
    }
}
