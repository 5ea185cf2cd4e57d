//! Turns the edges of a connection into events, one at a time.

use super::connection::{Connection, Phase};
use super::transmit::Progress;
use super::{EpollDriver, reset, socket};
use crate::buffer::Buffers;
use crate::{ConnId, Event};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::os::fd::AsFd;
use std::time::Instant;

impl EpollDriver {
    /// The next event of the connection that is being stepped: after [`Event::Received`] there is none in this turn.
    pub(super) fn step(&mut self, conn: ConnId) -> Option<Event> {
        let connection = self.connections.get_mut(conn.into())?;
        match connection.phase {
            Phase::Connecting => return self.step_connecting(conn),
            Phase::Open => {}
            Phase::Finishing => return self.step_finishing(conn),
        }
        if std::mem::take(&mut connection.writable) && connection.in_flight() && connection.error().is_none()
        {
            match connection.transmit_backlog(&mut self.cork) {
                Progress::Done => return Some(Event::Sent(conn)),
                Progress::Stalled => {}
                Progress::Failed(_) => connection.broken = true,
            }
        }
        if connection.paused || connection.ended {
            return if connection.broken { self.closed(conn, None) } else { None };
        }
        if !connection.readable && !connection.broken {
            return None;
        }
        let mut storage = self.buffers.take();
        let read = match receive(connection, &mut storage) {
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
            // A broken connection has no half: the next step reports its end.
            return if connection.broken { self.closed(conn, None) } else { Some(Event::PeerFinished(conn)) };
        }
        connection.readable = read == storage.len() || connection.ending;
        if connection.readable || connection.broken {
            self.enqueue(conn); // read once in a turn
        }
        let at = if self.options.receive_times { Instant::now() } else { self.now };
        Some(Event::Received { conn, data: Buffers::lend(storage, read), at })
    }

    #[inline(never)]
    fn step_connecting(&mut self, conn: ConnId) -> Option<Event> {
        let connection = self.connections.get_mut(conn.into())?;
        if !connection.writable && !connection.broken {
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

    #[inline(never)]
    fn step_finishing(&mut self, conn: ConnId) -> Option<Event> {
        let connection = self.connections.get_mut(conn.into())?;
        connection.writable = false;
        if !connection.shut {
            match connection.transmit_backlog(&mut self.cork) {
                Progress::Done => {
                    // It fails where the connection is broken, which reading reports.
                    let _ = shutdown(&connection.fd, Shutdown::Write);
                    connection.shut = true;
                }
                Progress::Stalled => {}
                Progress::Failed(error) => return self.closed(conn, Some(error)),
            }
        }
        while connection.readable && !connection.ended {
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
            self.remove(conn);
            return Some(Event::Closed { conn, error: None });
        }
        if connection.broken { self.closed(conn, None) } else { None }
    }

    /// Ends a connection by an error: the given one, else the one that sending met, else the socket's.
    #[inline(never)]
    fn closed(&mut self, conn: ConnId, error: Option<Errno>) -> Option<Event> {
        let connection = self.remove(conn)?;
        let pending = || socket_error(&connection.fd).ok().and_then(Result::err);
        let error = error.or_else(|| connection.error()).or_else(pending).unwrap_or(Errno::CONNRESET);
        Some(Event::Closed { conn, error: Some(error.into()) })
    }

    #[inline(never)]
    pub(super) fn step_accept(&mut self) -> Option<Event> {
        while self.accepts_left > 0 && self.accept_again_at.is_none() {
            // In turns, so that one busy listener doesn't use up the batch of all.
            let count = self.listeners.len();
            let mut order = (0..count).map(|nth| (self.listener_first + nth) % count);
            let index = order.find(|index| self.listeners[*index].ready)?;
            self.listener_first = index + 1;
            let listener = &mut self.listeners[index];
            let accepted = match socket::accept(listener.fd.as_fd()) {
                Ok(None) => {
                    listener.ready = false;
                    continue;
                }
                Ok(Some((fd, peer))) => {
                    self.accepts_left -= 1;
                    self.register(Connection::new(fd, Phase::Open, peer)).map(|conn| (conn, peer))
                }
                Err(error) => Err(error),
            };
            return Some(match accepted {
                Ok((conn, peer)) => Event::Accepted { conn, peer },
                Err(error) => {
                    self.accept_again_at = Some(self.now + self.options.accept_pause);
                    Event::AcceptFailed(error)
                }
            });
        }
        None
    }

    /// The end of a `finish` whose peer took too long.
    #[inline(never)]
    pub(super) fn step_linger(&mut self) -> Option<Event> {
        let conn = ConnId::from_bits(self.lingers.pop_due()?);
        let connection = self.remove(conn)?;
        // What the peer's kernel has is left to the peer; what it doesn't even take isn't kept for it.
        if connection.in_flight() || socket::unacknowledged_bytes(connection.fd.as_fd()) > 0 {
            reset(connection);
        }
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
