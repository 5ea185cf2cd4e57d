//! The driver on edge-triggered epoll.
//!
//! Every socket is registered for IN and RDHUP, and from its first partial write on for OUT as well: a new socket can be
//! written to, so an edge for OUT would wake the driver for nothing. An edge is stored in the connection until it is
//! consumed. A partial write has filled the socket, so the write isn't tried again before the next edge.

use crate::alarm::Alarm;
use crate::backlog::{Backlog, Cursor, InFlight, Progress};
use crate::buffer::Buffers;
use crate::connection::{self, Phase};
use crate::detached::TransferredSocket;
use crate::event_loop::{Backend, EventLoop};
use crate::kernel::{Kernel, Receipt};
use crate::listeners::Listeners;
use crate::slab::{INDEX_MAX, Key};
use crate::transmit::{transmit, transmit_bytes};
use crate::turn::{Clock, Turn};
use crate::waker::Sleeper;
use crate::{Capacity, ConnId, Frame, ListenOptions, Meter, Options, descriptors, socket};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Indices of watched file descriptors other than connections.
const WAKER_INDEX: u32 = INDEX_MAX;
const LISTENER_INDEX: u32 = INDEX_MAX + 1;
const ALARM_INDEX: u32 = INDEX_MAX + 2;

/// The longest single sleep: the maximum of `epoll_wait`, the only call before Linux 5.11.
const SLEEP_MAX: Duration = Duration::from_secs(24 * 3600);

/// The events for which every connection is registered.
const EDGES: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);
/// The events for which a connection is registered if its writes have to wait.
const EDGES_AND_ROOM: EventFlags = EDGES.union(EventFlags::OUT);

/// The driver on epoll; see the module's documentation, and [`crate::Driver`]'s.
pub struct EpollDriver(EventLoop<Epoll>);

impl EpollDriver {
    /// Makes a driver for the calling thread.
    ///
    /// # Errors
    /// The kernel provides no epoll, eventfd or timerfd (out of file descriptors or memory).
    ///
    /// # Panics
    /// If an option is below its minimum.
    pub fn new(options: &Options) -> io::Result<Self> {
        let kernel = Epoll {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            sleeper: Sleeper::new()?,
            alarm: Alarm::new()?,
            descriptors: descriptors::for_connections(),
            clock: Clock::new(Instant::now()),
            listeners: Listeners::default(),
            edges: Vec::with_capacity(options.events_per_turn),
            cork: Vec::new(),
            owned: Meter::default(),
        };
        if let Some(eventfd) = kernel.sleeper.eventfd() {
            kernel.watch(eventfd, WAKER_INDEX, 0)?;
        }
        kernel.watch(&kernel.alarm, ALARM_INDEX, 0)?;
        Ok(Self(EventLoop::new(options, kernel)))
    }
}

impl Backend for EpollDriver {
    type Kernel = Epoll;

    #[inline]
    fn event_loop(&self) -> &EventLoop<Epoll> {
        &self.0
    }

    #[inline]
    fn event_loop_mut(&mut self) -> &mut EventLoop<Epoll> {
        &mut self.0
    }
}

pub(crate) struct Epoll {
    epoll: OwnedFd,
    sleeper: Sleeper,
    alarm: Alarm,
    /// Number of the process's file descriptors for connections.
    descriptors: u32,
    clock: Clock,
    listeners: Listeners,
    /// The kernel's events; empty between waits.
    edges: Vec<epoll::Event>,
    /// Buffer in which small frames are combined.
    cork: Vec<u8>,
    /// Counts bytes in flight that belong to one connection alone.
    owned: Meter,
}

pub(crate) struct Socket {
    fd: OwnedFd,
    /// `true` if epoll reports when there is room to write.
    awaits_room: bool,
    in_flight: InFlight,
}

type Connection = connection::Connection<Socket>;

impl Epoll {
    /// Watches a file descriptor that isn't a connection.
    fn watch(&self, fd: impl AsFd, index: u32, generation: u32) -> io::Result<()> {
        let data = EventData::new_u64(Key { index, generation }.to_bits());
        Ok(epoll::add(&self.epoll, fd, data, EventFlags::IN | EventFlags::ET)?)
    }

    /// Keeps the unsent part of a send. The kernel reports when there is room to write again.
    fn keep_in_flight(
        &self,
        conn: ConnId,
        Connection { socket, state, .. }: &mut Connection,
        mut progress: Progress,
        backlog: impl FnOnce() -> Backlog,
    ) -> Progress {
        if state.phase == Phase::Open {
            state.writable = false;
        }
        if progress == Progress::Stalled && !std::mem::replace(&mut socket.awaits_room, true) {
            let data = EventData::new_u64(conn.0.to_bits());
            if let Err(error) = epoll::modify(&self.epoll, &socket.fd, data, EDGES_AND_ROOM) {
                progress = Progress::Failed(error);
            }
        }
        socket.in_flight.keep(progress, backlog);
        progress
    }
}

impl Socket {
    fn new(fd: OwnedFd) -> Self {
        Self { fd, awaits_room: false, in_flight: InFlight::default() }
    }
}

impl Kernel for Epoll {
    type Socket = Socket;

    const READS_ACCEPTED: bool = true;

    #[inline]
    fn sleeper(&self) -> &Sleeper {
        &self.sleeper
    }

    #[inline]
    fn clock<R>(&mut self, work: impl FnOnce(&mut Clock) -> R) -> R {
        work(&mut self.clock)
    }

    #[inline]
    fn set_alarm(&mut self, at: Instant) -> io::Result<()> {
        self.alarm.set(at)
    }

    #[inline]
    fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        // epoll rounds the timeout up to the millisecond.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout.min(SLEEP_MAX)).ok());
        match epoll::wait(&self.epoll, spare_capacity(&mut self.edges), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    #[inline]
    fn record(&mut self, turn: &mut Turn<Socket>) {
        for edge in &self.edges {
            let key = Key::from_bits(edge.data.u64());
            match key.index {
                WAKER_INDEX => {} // it only ends the wait
                ALARM_INDEX => {
                    self.alarm.rang();
                    self.clock.needs_alarm();
                }
                LISTENER_INDEX => {
                    self.listeners.set_ready(key.generation as usize);
                }
                _ => {
                    if let Some(Connection { state, .. }) = turn.connections.get_mut(key) {
                        let flags = edge.flags;
                        state.readable |= flags.intersects(EventFlags::IN | EventFlags::RDHUP);
                        state.writable |= flags.contains(EventFlags::OUT);
                        state.ending |= flags.contains(EventFlags::RDHUP);
                        if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
                            state.hang_up(flags.contains(EventFlags::ERR));
                        }
                        if !std::mem::replace(&mut state.queued, true) {
                            turn.queue.push_back(ConnId(key));
                        }
                    }
                }
            }
        }
        self.edges.clear();
    }

    fn listen(&mut self, addr: SocketAddr, options: &ListenOptions) -> io::Result<SocketAddr> {
        let bound = self.listeners.listen(addr, options)?;
        let nth = self.listeners.list.len() - 1;
        let watched = self.watch(&self.listeners.list[nth].fd, LISTENER_INDEX, nth as u32);
        if watched.is_err() {
            self.listeners.list.pop();
        }
        watched.map(|()| bound)
    }

    fn stop_listening(&mut self) {
        for listener in self.listeners.list.drain(..) {
            // Closing isn't enough, because another process may have the socket too.
            let _ = epoll::delete(&self.epoll, &listener.fd);
        }
    }

    #[inline]
    fn may_accept(&self) -> bool {
        self.listeners.are_ready()
    }

    fn accept(&mut self) -> Option<io::Result<(Socket, SocketAddr, u8)>> {
        Some(self.listeners.accept()?.map(|(fd, peer, listener)| (Socket::new(fd), peer, listener)))
    }

    fn connect(&mut self, remote: SocketAddr, source: Option<IpAddr>) -> io::Result<Socket> {
        socket::connect(remote, source).map(Socket::new)
    }

    fn adopt(&mut self, socket: TransferredSocket) -> io::Result<Socket> {
        socket.into_fd().map(Socket::new)
    }

    fn register(&mut self, conn: ConnId, connection: &mut Connection) -> io::Result<()> {
        let Connection { socket, state, .. } = connection;
        socket.awaits_room = state.phase == Phase::Connecting;
        let edges = if socket.awaits_room { EDGES_AND_ROOM } else { EDGES };
        Ok(epoll::add(&self.epoll, &socket.fd, EventData::new_u64(conn.0.to_bits()), edges)?)
    }

    fn connected(&mut self, connection: &Connection) -> Option<Result<(), Errno>> {
        let Connection { socket, state, .. } = connection;
        (state.writable || state.broken).then(|| socket::error(socket.fd.as_fd()).map_or(Ok(()), Err))
    }

    #[inline]
    fn send(&mut self, conn: ConnId, connection: &mut Connection, frames: &mut Vec<Frame>) -> Progress {
        let mut cursor = Cursor::default();
        let progress = match connection.state.phase {
            Phase::Connecting => Progress::Stalled,
            _ => transmit(connection.socket.fd.as_fd(), frames, &mut cursor, &mut self.cork),
        };
        if progress == Progress::Done {
            return progress;
        }
        self.keep_in_flight(conn, connection, progress, || Backlog::of(frames, cursor, &self.owned))
    }

    #[inline]
    fn send_bytes(&mut self, conn: ConnId, connection: &mut Connection, bytes: &[u8]) -> Progress {
        let mut taken = 0;
        let progress = match connection.state.phase {
            Phase::Connecting => Progress::Stalled,
            _ => transmit_bytes(connection.socket.fd.as_fd(), bytes, &mut taken),
        };
        if progress == Progress::Done {
            return progress;
        }
        self.keep_in_flight(conn, connection, progress, || Backlog::of_bytes(bytes, taken, &self.owned))
    }

    fn progress(&mut self, _: ConnId, connection: &mut Connection) -> Progress {
        let Connection { socket: Socket { fd, in_flight, .. }, state, .. } = connection;
        in_flight.transmit(|frames, cursor| {
            if !std::mem::take(&mut state.writable) {
                return Progress::Stalled;
            }
            transmit(fd.as_fd(), frames, cursor, &mut self.cork)
        })
    }

    #[inline]
    fn is_in_flight(&self, socket: &Socket) -> bool {
        socket.in_flight.is_some()
    }

    fn in_flight_bytes(&self, socket: &Socket) -> usize {
        socket.in_flight.bytes()
    }

    fn owned_bytes(&self) -> usize {
        self.owned.bytes()
    }

    #[inline(always)]
    fn receive(&mut self, _: ConnId, connection: &mut Connection, buffers: &mut Buffers) -> Receipt {
        socket::receive(connection.socket.fd.as_fd(), &mut connection.state, buffers)
    }

    fn error(&mut self, socket: &Socket) -> Option<Errno> {
        socket.in_flight.error().or_else(|| socket::error(socket.fd.as_fd()))
    }

    fn shutdown(&mut self, socket: &Socket) {
        let _ = shutdown(&socket.fd, Shutdown::Write);
    }

    fn is_unacknowledged(&mut self, socket: &Socket) -> bool {
        socket::unacknowledged_bytes(socket.fd.as_fd()) > 0
    }

    fn close(&mut self, _: ConnId, connection: Connection, reset: bool) {
        if reset || connection.socket.in_flight.is_some() {
            socket::reset(connection.socket.fd.as_fd());
        }
    }

    fn detach(&mut self, turn: &mut Turn<Socket>, conn: ConnId) -> Option<TransferredSocket> {
        let fd = turn.connections.remove(conn.0)?.socket.fd;
        // The descriptor is registered, so this can't fail. If it did, the id's generation would hide later
        // events.
        let _ = epoll::delete(&self.epoll, &fd);
        Some(TransferredSocket::Descriptor(fd))
    }

    fn capacity(&self) -> Capacity {
        Capacity { shared: self.descriptors as usize, own: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_takes_48_bytes() {
        // The size includes the generation and the free list's link.
        assert!(size_of::<Option<Connection>>() + 8 <= 48, "{}", size_of::<Option<Connection>>());
    }
}
