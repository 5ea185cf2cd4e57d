//! The driver on edge-triggered epoll.
//!
//! Every socket is registered once, for IN, OUT and RDHUP, and never modified: an edge is kept in the
//! connection until it is used up. [`Driver::wait`] records the edges and puts their connections into
//! one queue; [`Driver::next_event`] steps through the part of the queue that was there when the turn began,
//! and does the reading and writing then. A connection with more to read goes to the end of the queue, hence
//! into the next turn, so each is read at most once per turn.
//!
//! A read that fills less than its buffer has drained the socket (epoll(7)); a write that isn't taken whole
//! has filled it. So neither is tried again before the next edge, except where the peer has ended its side:
//! then the end of file follows without an edge of its own.
//!
//! Within a turn come first the connections' events, then accepted connections, then timers: data that
//! arrives in time is seen before its timeout.
//!
//! Invariants: `queued` is set exactly for connections in the queue; one that is `broken`, or `readable` and not
//! paused, is in the queue or the one being stepped.

mod connection;
pub(crate) mod socket;
mod step;
pub(crate) mod transmit;

use crate::alarm::{Alarm, earlier};
use crate::backlog::{Backlog, Cursor};
use crate::buffer::Buffers;
use crate::descriptors;
use crate::detached::TransferredSocket;
use crate::slab::{INDEX_MAX, Slab};
use crate::waker::Sleeper;
use crate::wheel::Wheel;
use crate::{
    Capacity, ConnId, DetachedConnection, Driver, Event, Frame, ListenOptions, Meter, Options, ReceiveBuffer,
    Sending, TimerId, Waker,
};
use connection::{Connection, Phase};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use transmit::{Progress, transmit, transmit_bytes};

/// Indices of what epoll watches besides connections.
const WAKER_INDEX: u32 = INDEX_MAX;
const LISTENER_INDEX: u32 = INDEX_MAX + 1;
const ALARM_INDEX: u32 = INDEX_MAX + 2;

/// The longest sleep at a stretch: what `epoll_wait` can express, and kernels before 5.11 have nothing else.
const SLEEP_MAX: Duration = Duration::from_secs(24 * 3600);

/// What every connection is registered for.
const EDGES: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

/// See the module's documentation, and [`Driver`]'s.
pub struct EpollDriver {
    epoll: OwnedFd,
    sleeper: Sleeper,
    alarm: Alarm,
    options: Options,
    /// The process's descriptors for connections.
    descriptors: u32,
    now: Instant,
    connections: Slab<Connection>,
    listeners: Vec<Listener>,
    listener_first: usize,
    /// Until when no listener is asked, after a failure.
    accept_again_at: Option<Instant>,
    /// The kernel's events; empty between waits.
    edges: Vec<epoll::Event>,
    queue: VecDeque<ConnId>,
    /// How many of the queue belong to this turn.
    queue_left: usize,
    /// The connection being stepped.
    current: Option<ConnId>,
    accepts_left: usize,
    woken: bool,
    timers: Wheel,
    /// Ends of `finish`; the tokens are connections.
    lingers: Wheel,
    buffers: Buffers,
    /// Where small frames are put together.
    cork: Vec<u8>,
    /// Bytes in flight that belong to one connection alone.
    owned: Meter,
}

struct Listener {
    fd: OwnedFd,
    /// There may be a connection to accept.
    ready: bool,
}

impl EpollDriver {
    /// A driver for the calling thread.
    ///
    /// # Errors
    /// The kernel's, where it gives no epoll, eventfd or timerfd (out of descriptors or memory).
    ///
    /// # Panics
    /// If an option is below its minimum.
    pub fn new(options: &Options) -> io::Result<Self> {
        assert!(options.events_per_turn > 0 && options.accepts_per_turn > 0, "{options:?}");
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let sleeper = Sleeper::new()?;
        if let Some(eventfd) = sleeper.eventfd() {
            let token = ConnId { index: WAKER_INDEX, generation: 0 };
            epoll::add(&epoll, eventfd, data(token), EventFlags::IN | EventFlags::ET)?;
        }
        let alarm = Alarm::new()?;
        let token = ConnId { index: ALARM_INDEX, generation: 0 };
        epoll::add(&epoll, &alarm, data(token), EventFlags::IN | EventFlags::ET)?;
        let now = Instant::now();
        Ok(Self {
            epoll,
            sleeper,
            alarm,
            descriptors: descriptors::for_connections(),
            now,
            connections: Slab::new(),
            listeners: Vec::new(),
            listener_first: 0,
            accept_again_at: None,
            edges: Vec::with_capacity(options.events_per_turn),
            queue: VecDeque::new(),
            queue_left: 0,
            current: None,
            accepts_left: 0,
            woken: false,
            timers: Wheel::new(now),
            lingers: Wheel::new(now),
            buffers: Buffers::new(options.receive_buffer_bytes),
            cork: Vec::new(),
            owned: Meter::default(),
            options: Options {
                accepts_per_turn: descriptors::accepts_per_turn(options.accepts_per_turn),
                ..options.clone()
            },
        })
    }

    /// The connection, if it is alive for the caller: not where it is being finished.
    fn open(&mut self, conn: ConnId) -> Option<&mut Connection> {
        open(&mut self.connections, conn)
    }

    fn enqueue(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(conn.into())
            && !std::mem::replace(&mut connection.queued, true)
        {
            self.queue.push_back(conn);
        }
    }

    fn register(&mut self, connection: Connection) -> io::Result<ConnId> {
        let conn = ConnId::from(self.connections.insert(connection));
        let fd = self.connections.at(conn.index).fd.as_fd();
        if let Err(error) = epoll::add(&self.epoll, fd, data(conn), EDGES) {
            self.connections.remove(conn.into());
            return Err(error.into());
        }
        Ok(conn)
    }

    fn remove(&mut self, conn: ConnId) -> Option<Connection> {
        let connection = self.connections.remove(conn.into())?;
        if let Some(linger) = connection.extra.as_ref().and_then(|extra| extra.linger) {
            self.lingers.cancel(linger);
        }
        Some(connection)
    }

    /// Whether this turn has anything to hand out.
    fn has_work(&self) -> bool {
        !self.queue.is_empty()
            || self.woken
            || self.timers.has_due()
            || self.lingers.has_due()
            || self.accept_again_at.is_none() && self.listeners.iter().any(|listener| listener.ready)
    }

    /// Asks the kernel once and records its events.
    fn gather(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let sleeps = timeout != Some(Duration::ZERO) && self.sleeper.may_sleep();
        // Rounded up to the millisecond by epoll.
        let timeout =
            if sleeps { timeout.map(|timeout| timeout.min(SLEEP_MAX)) } else { Some(Duration::ZERO) };
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let result = epoll::wait(&self.epoll, spare_capacity(&mut self.edges), timeout.as_ref());
        self.woken |= self.sleeper.end_sleep();
        self.now = Instant::now();
        match result {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for edge in &self.edges {
            let conn = ConnId::from_bits(edge.data.u64());
            match conn.index {
                WAKER_INDEX => {} // see `end_sleep`
                ALARM_INDEX => {} // see the clock
                LISTENER_INDEX => {
                    if let Some(listener) = self.listeners.get_mut(conn.generation as usize) {
                        listener.ready = true;
                    }
                }
                _ => {
                    if let Some(connection) = self.connections.get_mut(conn.into()) {
                        connection.record(edge.flags);
                        if !std::mem::replace(&mut connection.queued, true) {
                            self.queue.push_back(conn);
                        }
                    }
                }
            }
        }
        self.edges.clear();
        self.alarm.advance(self.now);
        self.accept_again_at = self.accept_again_at.filter(|at| *at > self.now);
        self.timers.advance(self.now);
        self.lingers.advance(self.now);
        Ok(())
    }

    /// How long the kernel may sleep, unless the alarm rings.
    fn sleep(&mut self, until: Option<Instant>) -> io::Result<Option<Duration>> {
        if self.has_work() {
            return Ok(Some(Duration::ZERO));
        }
        let first = earlier(self.timers.next_wake(), self.lingers.next_wake());
        if let Some(first) = earlier(first, self.accept_again_at) {
            self.alarm.set(first)?;
        }
        Ok(until.map(|until| until.saturating_duration_since(Instant::now())))
    }

    fn after_send(&mut self, conn: ConnId, failed: bool) -> Sending {
        if failed {
            // What has been received before can still be read; then, or at once if paused, `Closed` comes.
            if let Some(connection) = self.connections.get_mut(conn.into()) {
                connection.broken = true;
                connection.ending = true;
            }
            self.enqueue(conn);
        }
        Sending::InFlight
    }
}

fn open(connections: &mut Slab<Connection>, conn: ConnId) -> Option<&mut Connection> {
    connections.get_mut(conn.into()).filter(|connection| connection.phase != Phase::Finishing)
}

/// Closes a socket by a reset: of a stream that is cut off, so that the peer doesn't take it for the whole, and
/// the kernel doesn't keep its share for minutes.
fn reset(connection: Connection) {
    let _ = set_socket_linger(&connection.fd, Some(Duration::ZERO));
}

fn data(conn: ConnId) -> EventData {
    EventData::new_u64(conn.to_bits())
}

impl Driver for EpollDriver {
    fn now(&self) -> Instant {
        self.now
    }

    fn listen(&mut self, addr: SocketAddr, options: &ListenOptions) -> io::Result<SocketAddr> {
        let (fd, bound) = socket::listen(addr, options)?;
        let token = ConnId { index: LISTENER_INDEX, generation: self.listeners.len() as u32 };
        epoll::add(&self.epoll, &fd, data(token), EventFlags::IN | EventFlags::ET)?;
        self.listeners.push(Listener { fd, ready: false });
        Ok(bound)
    }

    fn connect(&mut self, remote: SocketAddr, source: Option<IpAddr>) -> io::Result<ConnId> {
        let fd = socket::connect(remote, source)?;
        self.register(Connection::new(fd, Phase::Connecting, remote))
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
        self.queue_left = self.queue.len();
        self.accepts_left = self.options.accepts_per_turn;
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
        if self.listeners.iter().any(|listener| listener.ready)
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
        let Some(connection) = open(&mut self.connections, conn) else {
            frames.clear();
            return Sending::Done;
        };
        assert!(!connection.in_flight(), "a send is in flight on this connection");
        let mut cursor = Cursor::default();
        let progress = match connection.phase {
            Phase::Connecting => Progress::Stalled,
            _ => transmit(connection.fd.as_fd(), frames, &mut cursor, &mut self.cork),
        };
        let error = match progress {
            Progress::Done => {
                frames.clear();
                return Sending::Done;
            }
            Progress::Stalled => None,
            Progress::Failed(error) => Some(error),
        };
        connection.keep(Backlog::of(frames, cursor, &self.owned), error);
        self.after_send(conn, error.is_some())
    }

    fn send_bytes(&mut self, conn: ConnId, bytes: &[u8]) -> Sending {
        let Some(connection) = open(&mut self.connections, conn) else { return Sending::Done };
        assert!(!connection.in_flight(), "a send is in flight on this connection");
        let mut taken = 0;
        let progress = match connection.phase {
            Phase::Connecting => Progress::Stalled,
            _ => transmit_bytes(connection.fd.as_fd(), bytes, &mut taken),
        };
        let error = match progress {
            Progress::Done => return Sending::Done,
            Progress::Stalled => None,
            Progress::Failed(error) => Some(error),
        };
        connection.keep(Backlog::of_bytes(bytes, taken, &self.owned), error);
        self.after_send(conn, error.is_some())
    }

    fn in_flight_bytes(&self, conn: ConnId) -> usize {
        self.connections
            .get(conn.into())
            .filter(|connection| connection.phase != Phase::Finishing)
            .map_or(0, Connection::in_flight_bytes)
    }

    fn owned_bytes(&self) -> usize {
        self.owned.bytes()
    }

    fn pause(&mut self, conn: ConnId) {
        if let Some(connection) = self.open(conn) {
            connection.paused = true; // a broken one is in the queue, which reports it
        }
    }

    fn resume(&mut self, conn: ConnId) {
        if let Some(connection) = self.open(conn)
            && std::mem::take(&mut connection.paused)
            && connection.readable
        {
            self.enqueue(conn);
        }
    }

    fn finish(&mut self, conn: ConnId, linger: Duration) {
        let until = self.now.checked_add(linger);
        let Some(connection) = self.open(conn) else { return };
        if connection.phase == Phase::Connecting {
            // There is no peer to close in order.
            connection.ended = true;
            connection.shut = true;
        }
        connection.phase = Phase::Finishing;
        connection.readable = true;
        let linger = until.map(|until| self.lingers.set(until, conn.to_bits()));
        if let Some(connection) = self.connections.get_mut(conn.into()) {
            connection.extra.get_or_insert_default().linger = linger;
        }
        self.enqueue(conn);
    }

    fn close(&mut self, conn: ConnId) {
        if self.open(conn).is_some()
            && let Some(connection) = self.remove(conn)
            && connection.in_flight()
        {
            reset(connection);
        }
    }

    fn detach(&mut self, conn: ConnId) -> Option<DetachedConnection> {
        let connection = self.open(conn)?;
        assert!(!connection.in_flight(), "a send is in flight on this connection");
        if connection.phase != Phase::Open {
            return None;
        }
        let connection = self.remove(conn)?;
        // It can't fail: it is registered. Were it to, the id's generation hides what comes.
        let _ = epoll::delete(&self.epoll, &connection.fd);
        let Connection { fd, peer, ended, paused, .. } = connection;
        Some(DetachedConnection { socket: TransferredSocket::Descriptor(fd), peer, ended, paused })
    }

    fn attach(&mut self, detached: DetachedConnection) -> io::Result<ConnId> {
        let DetachedConnection { socket: TransferredSocket::Descriptor(fd), peer, ended, paused } = detached
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let connection = Connection { ended, paused, ..Connection::new(fd, Phase::Open, peer) };
        self.register(connection)
    }

    fn connections(&self) -> usize {
        self.connections.len()
    }

    fn capacity(&self) -> Capacity {
        Capacity { shared: self.descriptors as usize, own: 0 }
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
        self.listeners.clear();
        self.accept_again_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_takes_64_bytes() {
        // With the generation and the free list's link.
        assert!(size_of::<Option<Connection>>() + 8 <= 64, "{}", size_of::<Option<Connection>>());
    }
}
