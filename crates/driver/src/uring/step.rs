//! Handing out: what is done for one connection when its turn has come, and the events that follow from it.

use super::UringDriver;
use super::connection::{Connection, EDGES, Phase};
use super::flight::State;
use super::token::Token;
use crate::buffer::Buffers;
use crate::epoll::transmit::Progress;
use crate::{ConnId, Event};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::os::fd::AsFd;
use std::time::Instant;

impl UringDriver {
    /// The next event of the connection that is being stepped.
    pub(super) fn step(&mut self, conn: ConnId, may_read: bool) -> Option<Event> {
        let connection = self.connections.get_mut(conn.into())?;
        match connection.phase {
            Phase::Connecting => {
                if !connection.writable {
                    return None;
                }
                match socket_error(&connection.fd) {
                    Ok(Ok(())) => {
                        connection.phase = Phase::Open;
                        Some(Event::Connected(conn))
                    }
                    Ok(Err(error)) | Err(error) => self.closed(conn, Some(error)),
                }
            }
            Phase::Open => self.step_open(conn, may_read),
            Phase::Finishing(_) => self.step_finishing(conn),
        }
    }

    /// Goes on with what is in flight: `Done` if there is none any more.
    fn progress(&mut self, conn: ConnId) -> Progress {
        let Some(connection) = self.connections.get_mut(conn.into()) else { return Progress::Done };
        let Some(flight) = connection.flight else { return Progress::Done };
        let progress = match self.flights.state(flight) {
            State::Sailing => Progress::Stalled,
            State::Landed => Progress::Done,
            State::Failed(error) => Progress::Failed(error),
            State::Waiting if self.flights.is_by_call(flight) => {
                if !std::mem::take(&mut connection.writable) {
                    return Progress::Stalled;
                }
                let progress = self.flights.transmit(flight, connection.fd.as_fd(), &mut self.cork);
                if progress == Progress::Stalled {
                    self.await_room(conn);
                }
                progress
            }
            State::Waiting => {
                self.flights.launch(flight, &mut self.ring, connection.fd.as_fd());
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
            self.ring.poll_once(Token::Room(conn.into()), connection.fd.as_fd(), PollFlags::OUT);
        }
    }

    fn keep_polled(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(conn.into())
            && !connection.broken
            && !std::mem::replace(&mut connection.polled, true)
        {
            self.ring.poll(Token::Poll(conn.into()), connection.fd.as_fd(), EDGES);
        }
    }

    fn step_open(&mut self, conn: ConnId, may_read: bool) -> Option<Event> {
        if self.connections.get(conn.into())?.flight.is_some() {
            match self.progress(conn) {
                Progress::Done => return Some(Event::Sent(conn)),
                Progress::Stalled => {}
                Progress::Failed(_) => self.connections.get_mut(conn.into())?.fail(),
            }
        }
        self.keep_polled(conn);
        let connection = self.connections.get_mut(conn.into())?;
        if connection.paused || connection.ended {
            return if connection.broken { self.closed(conn, None) } else { None };
        }
        if !connection.readable && !connection.broken {
            return None;
        }
        if !may_read {
            self.enqueue(conn);
            return None;
        }
        let mut storage = self.buffers.take();
        let result = receive(connection, &mut storage);
        let read = match result {
            Ok(read) => read,
            Err(Errno::AGAIN) => {
                self.buffers.put(storage);
                connection.readable = false;
                return if connection.broken { self.closed(conn, None) } else { None };
            }
            Err(error) => {
                self.buffers.put(storage);
                return self.closed(conn, Some(error));
            }
        };
        if read == 0 {
            self.buffers.put(storage);
            connection.readable = false;
            connection.ended = true;
            // A broken connection has no half: its end is told as such by the next step.
            return if connection.broken { self.closed(conn, None) } else { Some(Event::PeerFinished(conn)) };
        }
        connection.readable = read == storage.len() || connection.ending;
        Some(Event::Received { conn, data: Buffers::lend(storage, read), at: Instant::now() })
    }

    fn step_finishing(&mut self, conn: ConnId) -> Option<Event> {
        if !self.connections.get(conn.into())?.shut {
            match self.progress(conn) {
                Progress::Done => {
                    let connection = self.connections.get_mut(conn.into())?;
                    // It fails where the connection is broken, which reading tells.
                    let _ = shutdown(&connection.fd, Shutdown::Write);
                    connection.shut = true;
                }
                Progress::Stalled => {}
                Progress::Failed(error) => return self.closed(conn, Some(error)),
            }
        }
        self.keep_polled(conn);
        let connection = self.connections.get_mut(conn.into())?;
        if connection.readable && !connection.ended {
            let mut storage = self.buffers.take();
            let result = receive(connection, &mut storage);
            let size_bytes = storage.len();
            self.buffers.put(storage);
            match result {
                Ok(0) => connection.ended = true,
                Ok(read) => {
                    connection.readable = read == size_bytes || connection.ending;
                    if connection.readable {
                        // One buffer per turn, as for those that are listened to.
                        self.enqueue(conn);
                        return None;
                    }
                }
                Err(Errno::AGAIN) => connection.readable = false,
                Err(error) => return self.closed(conn, Some(error)),
            }
        }
        if connection.ended && connection.shut {
            self.end(conn);
            return Some(Event::Closed { conn, error: None });
        }
        if connection.broken { self.closed(conn, None) } else { None }
    }

    pub(super) fn step_accept(&mut self) -> Option<Event> {
        if self.accepts_left == 0 {
            return None;
        }
        match self.listeners.accept()? {
            Ok((fd, peer)) => {
                self.accepts_left -= 1;
                let conn = self.register(Connection::new(fd, Phase::Open, peer));
                Some(Event::Accepted { conn, peer })
            }
            Err(error) => {
                self.listeners.pause(self.now + self.options.accept_pause);
                Some(Event::AcceptFailed(error))
            }
        }
    }

    /// The end of a `finish` whose peer took too long.
    pub(super) fn step_linger(&mut self) -> Option<Event> {
        let conn = ConnId::from_bits(self.lingers.pop_due()?);
        self.end(conn);
        Some(Event::Closed { conn, error: None })
    }
}

fn receive(connection: &Connection, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    loop {
        match recv(&connection.fd, &mut *buffer, RecvFlags::empty()) {
            Ok((read, _)) => return Ok(read),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}
