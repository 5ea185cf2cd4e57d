//! Handing out: what is done for one connection when its turn has come, and the events that follow from it.

use super::connection::{Connection, EDGES, Phase};
use super::flight::State;
use super::rings::Socket;
use super::token::Token;
use super::{UringDriver, errno, reset};
use crate::buffer::Buffers;
use crate::epoll::socket;
use crate::epoll::transmit::Progress;
use crate::{ConnId, Event, ReceiveBuffer};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

impl UringDriver {
    /// The next event of the connection that is being stepped: after [`Event::Received`] there is none in this turn.
    pub(super) fn step(&mut self, conn: ConnId) -> Option<Event> {
        let connection = self.connections.get_mut(conn.into())?;
        match connection.phase {
            Phase::Connecting => {
                if !connection.writable {
                    return None;
                }
                if connection.suspect {
                    return self.closed(conn, None);
                }
                connection.phase = Phase::Open;
                Some(Event::Connected(conn))
            }
            Phase::Open => self.step_open(conn),
            Phase::Finishing(_) => self.step_finishing(conn),
        }
    }

    /// Goes on with what is in flight: `Done` if there is none any more.
    fn progress(&mut self, conn: ConnId) -> Progress {
        let Some(connection) = self.connections.get_mut(conn.into()) else { return Progress::Done };
        let Some(flight) = connection.flight else { return Progress::Done };
        let progress = match self.flights.state(flight) {
            State::Submitted => Progress::Stalled,
            State::Completed => Progress::Done,
            State::Failed(error) => Progress::Failed(error),
            State::Waiting if self.flights.is_by_call(flight) => {
                if !std::mem::take(&mut connection.writable) {
                    return Progress::Stalled;
                }
                let progress = match self.rings.descriptor(&connection.socket) {
                    Ok(fd) => self.flights.transmit(flight, fd.as_fd(), &mut self.cork),
                    Err(error) => {
                        self.flights.fail(flight, errno(&error));
                        Progress::Failed(errno(&error))
                    }
                };
                if progress == Progress::Stalled {
                    self.await_room(conn);
                }
                progress
            }
            State::Waiting => {
                let (ring, target) = self.rings.of(&connection.socket);
                self.flights.submit(flight, ring, target);
                Progress::Stalled
            }
        };
        if progress == Progress::Done {
            self.flights.end(flight);
            if let Some(connection) = self.connections.get_mut(conn.into()) {
                connection.flight = None;
            }
        }
        progress
    }

    pub(super) fn await_room(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(conn.into())
            && !std::mem::replace(&mut connection.awaits_room, true)
        {
            let (ring, target) = self.rings.of(&connection.socket);
            ring.poll_once(Token::Room(conn.into()), target, PollFlags::OUT);
        }
    }

    /// Polls a connection again whose poll has ended by itself, as it does when the completion queue is full. Few in
    /// each turn: where there is something to tell it is told at once, and would fill the queue again, for ever.
    fn keep_polled(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn.into()) else { return };
        if connection.broken || connection.polled {
            return;
        }
        if self.repolls_left == 0 {
            return self.enqueue(conn);
        }
        self.repolls_left -= 1;
        connection.polled = true;
        let (ring, target) = self.rings.of(&connection.socket);
        ring.poll(Token::Poll(conn.into()), target, EDGES);
    }

    fn step_open(&mut self, conn: ConnId) -> Option<Event> {
        let mut connection = self.connections.get_mut(conn.into())?;
        if connection.flight.is_some() {
            let progress = self.progress(conn);
            connection = self.connections.get_mut(conn.into())?;
            match progress {
                Progress::Done => return Some(Event::Sent(conn)),
                Progress::Stalled => {}
                Progress::Failed(_) => connection.fail(),
            }
        }
        if connection.paused || connection.ended {
            if connection.broken {
                return self.closed(conn, None);
            }
            self.keep_polled(conn);
            return None;
        }
        if !connection.readable && !connection.broken && connection.receive.is_none() {
            self.keep_polled(conn);
            return None;
        }
        match self.receive(conn) {
            Receipt::Bytes(data) => {
                let connection = self.connections.get_mut(conn.into())?;
                if connection.readable || connection.broken {
                    self.enqueue(conn); // read once in a turn
                } else if !connection.polled {
                    self.keep_polled(conn);
                }
                let at = if self.options.receive_times { Instant::now() } else { self.now };
                Some(Event::Received { conn, data, at })
            }
            Receipt::End => {
                let connection = self.connections.get_mut(conn.into())?;
                connection.readable = false;
                connection.ended = true;
                // A broken connection has no half: the next step reports its end.
                if connection.broken { self.closed(conn, None) } else { Some(Event::PeerFinished(conn)) }
            }
            Receipt::Nothing if self.connections.get(conn.into())?.broken => self.closed(conn, None),
            Receipt::Nothing | Receipt::Pending => None,
            Receipt::Failed(error) => self.closed(conn, Some(error)),
        }
    }

    /// Reads once from a connection that may have something, and notes whether it may have more.
    fn receive(&mut self, conn: ConnId) -> Receipt {
        let Some(connection) = self.connections.get_mut(conn.into()) else { return Receipt::Nothing };
        let Socket::Real(fd) = &connection.socket else { return self.receive_direct(conn) };
        let mut storage = self.buffers.take();
        match receive(fd.as_fd(), &mut storage) {
            Ok(read) if read > 0 => {
                connection.readable = read == storage.len() || connection.ending;
                Receipt::Bytes(Buffers::lend(storage, read))
            }
            result => {
                self.buffers.put(storage);
                connection.readable = false;
                match result {
                    Ok(_) => Receipt::End,
                    Err(Errno::AGAIN) => Receipt::Nothing,
                    Err(error) => Receipt::Failed(error),
                }
            }
        }
    }

    /// As [`UringDriver::receive`], in two steps. `readable` is false from the first one on, unless something is
    /// told after that: so an answer that is older than it isn't taken for the last word.
    fn receive_direct(&mut self, conn: ConnId) -> Receipt {
        let Some(connection) = self.connections.get_mut(conn.into()) else { return Receipt::Nothing };
        if let Some(receive) = connection.receive {
            let Some(received) = self.receives.take(receive) else { return Receipt::Pending };
            connection.receive = None;
            match received {
                Ok(bytes) if bytes.is_empty() => return Receipt::End,
                Ok(bytes) => {
                    // It fits: receives are as large as buffers at most. Few are in the cache, so copies are cheap.
                    let mut storage = self.buffers.take();
                    storage[..bytes.len()].copy_from_slice(&bytes);
                    return Receipt::Bytes(Buffers::lend(storage, bytes.len()));
                }
                Err(Errno::AGAIN) if connection.readable => {}
                Err(Errno::AGAIN) => return Receipt::Nothing,
                Err(error) => return Receipt::Failed(error),
            }
        }
        self.begin_receive(conn);
        if self.connections.get(conn.into()).is_some_and(|connection| connection.receive.is_none()) {
            self.enqueue(conn);
        }
        Receipt::Pending
    }

    /// Begins to read a direct connection, unless as many receives as may be are under way.
    pub(super) fn begin_receive(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn.into()) else { return };
        let (ring, target) = self.rings.of(&connection.socket);
        connection.receive = self.receives.begin(conn, ring, target);
        connection.readable &= connection.receive.is_none();
    }

    #[inline(never)]
    fn step_finishing(&mut self, conn: ConnId) -> Option<Event> {
        if !self.connections.get(conn.into())?.shut {
            match self.progress(conn) {
                Progress::Done => {
                    let connection = self.connections.get_mut(conn.into())?;
                    // It fails where the connection is broken, which reading reports.
                    let descriptor = self.rings.descriptor(&connection.socket);
                    let _ = descriptor.map(|fd| shutdown(fd.as_fd(), Shutdown::Write));
                    connection.shut = true;
                }
                Progress::Stalled => {}
                Progress::Failed(error) => return self.closed(conn, Some(error)),
            }
        }
        let connection = self.connections.get_mut(conn.into())?;
        if (connection.readable || connection.receive.is_some()) && !connection.ended {
            match self.receive(conn) {
                Receipt::Bytes(data) => {
                    self.buffers.recycle(data);
                    // One buffer per turn, as for those that are listened to.
                    self.enqueue(conn);
                    return None;
                }
                Receipt::End => self.connections.get_mut(conn.into())?.ended = true,
                Receipt::Nothing => {}
                Receipt::Pending => return None,
                Receipt::Failed(error) => return self.closed(conn, Some(error)),
            }
        }
        let connection = self.connections.get(conn.into())?;
        if connection.ended && connection.shut {
            self.end(conn);
            return Some(Event::Closed { conn, error: None });
        }
        if connection.broken {
            return self.closed(conn, None);
        }
        self.keep_polled(conn);
        None
    }

    #[inline(never)]
    pub(super) fn step_accept(&mut self) -> Option<Event> {
        if self.accepts_left == 0 {
            return None;
        }
        match self.listeners.accept()? {
            Ok((fd, peer)) => {
                self.accepts_left -= 1;
                let socket = self.rings.adopt(fd, self.sleeper.eventfd());
                let conn = self.register(Connection::new(socket, Phase::Open, peer));
                Some(Event::Accepted { conn, peer })
            }
            Err(error) => {
                self.listeners.pause(self.now + self.options.accept_pause);
                Some(Event::AcceptFailed(error))
            }
        }
    }

    /// The end of a `finish` whose peer took too long.
    #[inline(never)]
    pub(super) fn step_linger(&mut self) -> Option<Event> {
        let conn = ConnId::from_bits(self.lingers.pop_due()?);
        let connection = self.connections.get(conn.into())?;
        // What the peer's kernel has is left to the peer; what it doesn't even take isn't kept for it.
        let descriptor = self.rings.descriptor(&connection.socket);
        if let Ok(fd) = descriptor
            && socket::unacknowledged_bytes(fd.as_fd()) > 0
        {
            reset(fd.as_fd());
        }
        self.end(conn);
        Some(Event::Closed { conn, error: None })
    }
}

/// What came of reading.
enum Receipt {
    /// The kernel has not answered yet; then the connection is queued.
    Pending,
    Bytes(ReceiveBuffer),
    End,
    Nothing,
    Failed(Errno),
}

fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    loop {
        match recv(socket, &mut *buffer, RecvFlags::empty()) {
            Ok((read, _)) => return Ok(read),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}
