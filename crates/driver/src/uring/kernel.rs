//! Implements the event loop's kernel interface on io_uring.

use super::flight::State;
use super::{
    Connection, Descriptor, EDGES, OperationId, Place, PollFlags, Socket, Target, Token, Uring, errno,
};
use crate::backlog::{Cursor, Progress};
use crate::buffer::Buffers;
use crate::connection::Phase;
use crate::detached::TransferredSocket;
use crate::kernel::{Kernel, Receipt};
use crate::transmit::{transmit, transmit_bytes};
use crate::turn::{Clock, Turn};
use crate::waker::Sleeper;
use crate::{Capacity, ConnId, Frame, ListenOptions, socket};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Maximum number of sends that are submitted before completions are read. Each holds about 130 bytes: a
/// message to 250,000 connections in one turn held 33 MB, and a driver keeps memory that it once used.
const SENDS_UNREAD_MAX: usize = 4096;

impl Kernel for Uring {
    type Socket = Socket;

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
        if !self.waker_polled || !self.alarm_polled || !self.listening.are_polled() {
            self.poll_unpolled();
        }
        self.rings.enter(self.events_per_turn, timeout)
    }

    #[inline]
    fn record(&mut self, turn: &mut Turn<Socket>) {
        self.record_completions(turn, self.events_per_turn);
    }

    /// Reports only completions set aside. If the rings have others, entering them returns at once.
    #[inline]
    fn has_events(&mut self) -> bool {
        self.rings.have_aside()
    }

    #[inline]
    fn begin_turn(&mut self) {
        self.lone_sends_left = self.options.lone_sends_per_turn;
        self.sends_unread = 0;
        self.repolls_left = self.options.submission_entries as usize;
    }

    /// Reads the direct connections in the queue before they are stepped. Otherwise data that has arrived in
    /// time would be returned a turn later, after its timeout.
    #[inline]
    fn read_ahead(&mut self, turn: &mut Turn<Socket>) -> io::Result<()> {
        if self.rings.have_direct() { self.read_direct_ahead(turn) } else { Ok(()) }
    }

    fn listen(&mut self, addr: SocketAddr, options: &ListenOptions) -> io::Result<SocketAddr> {
        self.listening.listeners.listen(addr, options)
    }

    fn stop_listening(&mut self) {
        self.listening.stop(self.rings.main());
    }

    #[inline]
    fn may_accept(&self) -> bool {
        self.listening.listeners.are_ready()
    }

    /// Accepts with a call, because the call returns the peer's address. (A multishot accept reports none, so
    /// it would need a further call, and it accepts every connection, however few the driver wants in one
    /// turn.)
    fn accept(&mut self) -> Option<io::Result<(Socket, SocketAddr, u8)>> {
        let accepted = self.listening.listeners.accept()?;
        Some(accepted.map(|(fd, peer, listener)| (self.place(fd), peer, listener)))
    }

    fn connect(&mut self, remote: SocketAddr, source: Option<IpAddr>) -> io::Result<Socket> {
        socket::connect(remote, source).map(|fd| self.place(fd))
    }

    fn adopt(&mut self, socket: TransferredSocket) -> io::Result<Socket> {
        socket.into_fd().map(|fd| self.place(fd))
    }

    /// A connection that is being established is only polled.
    fn register(&mut self, conn: ConnId, connection: &mut Connection) -> io::Result<()> {
        if connection.state.phase == Phase::Connecting {
            self.await_room(conn, &mut connection.socket);
        } else {
            self.poll(conn, &mut connection.socket);
        }
        Ok(())
    }

    /// Renews a poll that ended because the completion queue was full. Few polls are renewed in each turn: a
    /// renewed poll with an event completes at once, and would fill the queue again, forever.
    #[inline]
    fn keep_watching(&mut self, conn: ConnId, connection: &mut Connection) -> bool {
        if connection.state.broken || connection.socket.polled {
            return true;
        }
        if self.repolls_left == 0 {
            return false;
        }
        self.repolls_left -= 1;
        self.poll(conn, &mut connection.socket);
        true
    }

    fn connected(&mut self, connection: &Connection) -> Option<Result<(), Errno>> {
        let Connection { socket, state, .. } = connection;
        state.writable.then(|| match socket.suspect {
            true => Err(self.error(socket).unwrap_or(Errno::CONNRESET)),
            false => Ok(()),
        })
    }

    /// Makes room in the submission queue, so that a broadcast to very many connections is sent in batches
    /// whose memory is released batch by batch.
    #[inline]
    fn make_room(&mut self, turn: &mut Turn<Socket>) {
        if self.rings.are_nearly_full() {
            self.flush(turn);
        }
    }

    fn send(&mut self, conn: ConnId, connection: &mut Connection, frames: &mut Vec<Frame>) -> Progress {
        if frames.iter().all(Frame::is_empty) {
            return Progress::Done;
        }
        let mut cursor = Cursor::default();
        let mut progress = Progress::Stalled;
        let place = &connection.socket.place;
        let lone = self.lone_sends_left > 0 && matches!(place, Place::Descriptor(_));
        if connection.state.phase == Phase::Open && (lone || frames.iter().any(Frame::is_file)) {
            self.lone_sends_left = self.lone_sends_left.saturating_sub(1);
            progress = match self.rings.descriptor(place) {
                Ok(fd) => transmit(fd.as_fd(), frames, &mut cursor, &mut self.cork),
                Err(error) => Progress::Failed(errno(&error)),
            };
        }
        if progress != Progress::Done {
            let flight = self.flights.begin(conn, frames, cursor);
            self.keep_in_flight(conn, connection, flight, progress);
        }
        progress
    }

    #[inline]
    fn send_bytes(&mut self, conn: ConnId, connection: &mut Connection, bytes: &[u8]) -> Progress {
        let mut taken = 0;
        let progress = match &connection.socket.place {
            _ if bytes.is_empty() => Progress::Done,
            Place::Descriptor(fd) if connection.state.phase == Phase::Open => {
                transmit_bytes(fd.as_fd(), bytes, &mut taken)
            }
            _ => Progress::Stalled,
        };
        if progress != Progress::Done {
            let flight = self.flights.begin_bytes(conn, &bytes[taken..]);
            self.keep_in_flight(conn, connection, flight, progress);
        }
        progress
    }

    /// Submits a send early in two cases. The first few sends of a turn to direct descriptors are submitted one
    /// by one, like sends to file descriptors. Many sends are submitted together, because a finished send needs
    /// no flight.
    fn submit_send(&mut self, turn: &mut Turn<Socket>, conn: ConnId, now: bool) -> bool {
        let Some(Socket { place, flight: Some(flight), .. }) =
            turn.connections.get(conn.0).map(|connection| &connection.socket)
        else {
            return false;
        };
        let flight = *flight;
        let is_worth_it = self.lone_sends_left > 0 && matches!(place, Place::Slot { .. });
        let are_many = self.sends_unread >= SENDS_UNREAD_MAX;
        if self.flights.state(flight) != State::Submitted || !(now || is_worth_it || are_many) {
            return false;
        }
        self.lone_sends_left = self.lone_sends_left.saturating_sub(1);
        self.flush(turn);
        std::mem::take(&mut turn.connections.at_mut(conn.0.index).socket.sent)
    }

    fn progress(&mut self, conn: ConnId, connection: &mut Connection) -> Progress {
        let Connection { socket, state, .. } = connection;
        let Some(flight) = socket.flight else {
            socket.sent = false;
            return Progress::Done;
        };
        let progress = match self.flights.state(flight) {
            State::Submitted => Progress::Stalled,
            State::Completed => Progress::Done,
            State::Failed(error) => Progress::Failed(error),
            State::Waiting if !self.flights.is_by_call(flight) => {
                let (ring, target) = self.rings.of(&socket.place);
                self.flights.submit(flight, ring, target);
                Progress::Stalled
            }
            State::Waiting if !std::mem::take(&mut state.writable) => Progress::Stalled,
            State::Waiting => {
                let progress = match self.rings.descriptor(&socket.place) {
                    Ok(fd) => self.flights.transmit(flight, fd.as_fd(), &mut self.cork),
                    Err(error) => self.flights.fail(flight, errno(&error)),
                };
                if progress == Progress::Stalled {
                    self.await_room(conn, socket);
                }
                progress
            }
        };
        if progress == Progress::Done {
            self.flights.end(flight);
            socket.flight = None;
        }
        progress
    }

    #[inline]
    fn is_in_flight(&self, socket: &Socket) -> bool {
        socket.flight.is_some() || socket.sent
    }

    fn in_flight_bytes(&self, socket: &Socket) -> usize {
        socket.flight.map_or(0, |flight| self.flights.bytes(flight))
    }

    fn owned_bytes(&self) -> usize {
        self.flights.owned_bytes()
    }

    // Inlined by hand, because a call's result would pass through memory.
    #[inline(always)]
    fn receive(&mut self, conn: ConnId, connection: &mut Connection, buffers: &mut Buffers) -> Receipt {
        match &connection.socket.place {
            Place::Descriptor(fd) => socket::receive(fd.as_fd(), &mut connection.state, buffers),
            Place::Slot { .. } => self.receive_direct(conn, connection, buffers),
        }
    }

    #[inline]
    fn is_receiving(&self, socket: &Socket) -> bool {
        socket.receive.is_some()
    }

    fn error(&mut self, socket: &Socket) -> Option<Errno> {
        match socket.flight.map(|flight| self.flights.state(flight)) {
            Some(State::Failed(error)) => Some(error),
            _ => socket::error(self.rings.descriptor(&socket.place).ok()?.as_fd()),
        }
    }

    fn shutdown(&mut self, socket: &Socket) {
        let _ = self.rings.descriptor(&socket.place).map(|fd| shutdown(fd.as_fd(), Shutdown::Write));
    }

    fn is_unacknowledged(&mut self, socket: &Socket) -> bool {
        let descriptor = self.rings.descriptor(&socket.place);
        descriptor.is_ok_and(|fd| socket::unacknowledged_bytes(fd.as_fd()) > 0)
    }

    fn close(&mut self, conn: ConnId, connection: Connection, reset: bool) {
        let Socket { place, .. } = &connection.socket;
        if self.disarm(conn, &connection.socket) || reset {
            let _ = self.rings.descriptor(place).map(|fd| socket::reset(fd.as_fd()));
        }
        self.rings.close(connection.socket.place);
    }

    /// Turns a direct descriptor into a file descriptor for the transfer.
    fn detach(&mut self, turn: &mut Turn<Socket>, conn: ConnId) -> Option<TransferredSocket> {
        let installed = match self.rings.descriptor(&turn.connections.get(conn.0)?.socket.place) {
            Ok(Descriptor::Installed(fd)) => Some(fd),
            Ok(Descriptor::Lent(_)) => None,
            Err(_) => return None,
        };
        // The socket's poll reads no bytes, so the poll may be cancelled later: its events until then refer to
        // no connection.
        let socket = turn.connections.remove(conn.0)?.socket;
        self.disarm(conn, &socket);
        let fd = match (installed, socket.place) {
            (None, Place::Descriptor(fd)) => fd,
            (installed, place) => {
                self.rings.close(place);
                installed?
            }
        };
        Some(TransferredSocket::Descriptor(fd))
    }

    fn capacity(&self) -> Capacity {
        self.rings.capacity()
    }
}

impl Uring {
    fn place(&mut self, fd: OwnedFd) -> Socket {
        let place = self.rings.adopt(fd, self.sleeper.eventfd());
        Socket {
            place,
            polled: false,
            awaits_room: false,
            suspect: false,
            flight: None,
            sent: false,
            receive: None,
        }
    }

    /// Polls are started here and not earlier, because the ring belongs to the thread that first enters it.
    #[inline(never)]
    fn poll_unpolled(&mut self) {
        self.listening.poll_unpolled(self.rings.main());
        if !self.waker_polled
            && let Some(eventfd) = self.sleeper.eventfd()
        {
            self.rings.main().poll(Token::Waker, Target::Descriptor(eventfd.as_raw_fd()), PollFlags::IN);
            self.waker_polled = true;
        }
        if !std::mem::replace(&mut self.alarm_polled, true) {
            let target = Target::Descriptor(self.alarm.as_fd().as_raw_fd());
            self.rings.main().poll(Token::Alarm, target, PollFlags::IN);
        }
    }

    #[inline(never)]
    fn read_direct_ahead(&mut self, turn: &mut Turn<Socket>) -> io::Result<()> {
        for nth in 0..turn.queue.len().min(turn.options.events_per_turn) {
            let conn = turn.queue[nth];
            while let Some(connection) = turn.connections.get_mut(conn.0)
                && connection.may_read_ahead()
            {
                self.begin_receive(conn, connection);
                if connection.socket.receive.is_none() {
                    // The maximum number is in progress.
                    self.rings.enter_direct(usize::MAX)?;
                    self.record_completions(turn, usize::MAX);
                }
            }
        }
        self.rings.enter_direct(usize::MAX)?;
        self.record_completions(turn, usize::MAX);
        Ok(())
    }

    /// Reads from a direct connection in two steps. `readable` is `false` from the first step on, unless an
    /// event is reported afterwards, so that an older result isn't treated as the latest.
    #[inline(never)]
    fn receive_direct(
        &mut self,
        conn: ConnId,
        connection: &mut Connection,
        buffers: &mut Buffers,
    ) -> Receipt {
        if let Some(receive) = connection.socket.receive {
            let Some(received) = self.receives.take(receive) else { return Receipt::Pending };
            connection.socket.receive = None;
            match received {
                Ok(bytes) if bytes.is_empty() => {
                    connection.state.readable = false;
                    return Receipt::End;
                }
                Ok(bytes) => {
                    // The copy fits: receives are at most as large as buffers. The bytes are few and in the cache,
                    // so copies are cheap.
                    let mut storage = buffers.take();
                    storage[..bytes.len()].copy_from_slice(&bytes);
                    return Receipt::Bytes(Buffers::lend(storage, bytes.len()));
                }
                Err(Errno::AGAIN) if connection.state.readable => {}
                Err(Errno::AGAIN) => return Receipt::Nothing,
                Err(error) => return Receipt::Failed(error),
            }
        }
        self.begin_receive(conn, connection);
        Receipt::Pending
    }

    fn poll(&mut self, conn: ConnId, socket: &mut Socket) {
        socket.polled = true;
        let (ring, target) = self.rings.of(&socket.place);
        ring.poll(Token::Poll(conn.0), target, EDGES);
    }

    /// Keeps the unsent part of a send's call in flight.
    fn keep_in_flight(
        &mut self,
        conn: ConnId,
        connection: &mut Connection,
        flight: OperationId,
        progress: Progress,
    ) {
        connection.socket.flight = Some(flight);
        if let Progress::Failed(error) = progress {
            self.flights.fail(flight, error);
        } else if connection.state.phase == Phase::Connecting {
            // The first step of the connection continues the flight.
        } else if self.flights.is_by_call(flight) {
            self.await_room(conn, &mut connection.socket);
        } else {
            let (ring, target) = self.rings.of(&connection.socket.place);
            self.flights.submit(flight, ring, target);
            self.sends_unread += 1;
        }
    }

    /// Ends the ring's operations for a connection, except that its descriptor stays open. Returns `true` if
    /// a part of its send was unsent.
    fn disarm(&mut self, conn: ConnId, socket: &Socket) -> bool {
        let (ring, _) = self.rings.of(&socket.place);
        if socket.polled {
            ring.cancel(Token::Poll(conn.0));
        }
        if socket.awaits_room {
            ring.cancel(Token::Room(conn.0));
        }
        if let Some(receive) = socket.receive {
            self.receives.abandon(receive); // it doesn't wait, so it needn't be cancelled
        }
        let Some(flight) = socket.flight else { return false };
        let completed = self.flights.state(flight) == State::Completed;
        if self.flights.abandon(flight) {
            ring.cancel(Token::Send(flight));
        }
        !completed
    }
}

impl Connection {
    /// Returns `true` if the connection must be read by an operation, and none is in progress.
    fn may_read_ahead(&self) -> bool {
        let Self { socket, state, .. } = self;
        state.readable
            && !state.paused
            && !state.ended
            && socket.receive.is_none()
            && state.phase != Phase::Connecting
            && matches!(socket.place, Place::Slot { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Driver, Event, Options, UringDriver, UringOptions, probe};
    use std::io::Write;
    use std::net::TcpStream;

    const CLIENTS: usize = 200;

    /// Read at once, the answers of a million clients to a heartbeat took 50 MB.
    #[test]
    fn data_of_many_connections_is_read_in_parts() {
        if probe().fallback_reason.is_some() {
            return;
        }
        let part = 8;
        let options = Options { events_per_turn: part, ..Options::default() };
        let direct = UringOptions { direct_from: Some(0), ..UringOptions::default() };
        let mut driver = UringDriver::with(&options, &direct).unwrap();
        let addr = driver.listen("127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| TcpStream::connect(addr).unwrap()).collect();
        let (mut accepted, mut received, mut held_max) = (0, 0, 0);
        let until = Instant::now() + Duration::from_secs(60);
        while received < CLIENTS {
            assert!(Instant::now() < until, "{accepted} accepted, {received} received");
            driver.wait(Some(Duration::from_millis(10))).unwrap();
            while let Some(event) = driver.next_event() {
                held_max = held_max.max(driver.0.kernel.receives.held());
                match event {
                    Event::Accepted { .. } => accepted += 1,
                    Event::Received { data, .. } => {
                        received += data.len();
                        driver.recycle(data);
                    }
                    _ => {}
                }
            }
            if accepted == CLIENTS {
                accepted = 0;
                clients.iter_mut().for_each(|client| client.write_all(b"x").unwrap());
            }
        }
        // Connections of one part, and those that weren't ready when the previous part was read.
        assert!((1..=2 * part).contains(&held_max), "{held_max}");
    }

    #[test]
    fn an_idle_connection_takes_56_bytes() {
        // The size includes the generation and the free list's link.
        assert!(size_of::<Option<Connection>>() + 8 <= 56, "{}", size_of::<Option<Connection>>());
    }
}
