//! The driver of a simulated network: the same turns as on a kernel, at virtual times.
//!
//! The network's notices replace edges. A notice need not say what has happened, because missed changes can
//! always be read from the socket.

use super::network::{Network, Read};
use crate::backlog::{Backlog, Cursor, InFlight, Progress};
use crate::buffer::Buffers;
use crate::connection;
use crate::detached::TransferredSocket;
use crate::event_loop::{Backend, EventLoop};
use crate::kernel::{Kernel, Receipt};
use crate::slab::Key;
use crate::turn::{Clock, Turn};
use crate::waker::Sleeper;
use crate::{Capacity, ConnId, Frame, ListenOptions, Meter};
use rustix::io::Errno;
use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::{Duration, Instant};
use stentor_frame::View;

/// Maximum size in bytes of the pieces in which a file is read.
const FILE_PIECE_BYTES: usize = 64 * 1024;

/// A driver in a [`super::World`]. See [`crate::Driver`] and the module's documentation.
pub struct SimDriver(EventLoop<Sim>);

impl SimDriver {
    pub(super) fn new(net: Rc<RefCell<Network>>, options: &crate::Options) -> Self {
        let index = net.borrow_mut().add_driver();
        let kernel = Sim { net, index, sleeper: Sleeper::simulated(), owned: Meter::default() };
        Self(EventLoop::new(options, kernel))
    }

    pub(super) fn index(&self) -> usize {
        self.0.kernel.index
    }

    pub(super) fn socket(&self, conn: ConnId) -> Option<Key> {
        self.0.turn.connections.get(conn.0).map(|connection| connection.socket.key)
    }
}

impl Backend for SimDriver {
    type Kernel = Sim;

    fn event_loop(&self) -> &EventLoop<Sim> {
        &self.0
    }

    fn event_loop_mut(&mut self) -> &mut EventLoop<Sim> {
        &mut self.0
    }
}

impl Drop for SimDriver {
    fn drop(&mut self) {
        let EventLoop { turn, kernel } = &mut self.0;
        let mut net = kernel.net.borrow_mut();
        net.retire(kernel.index);
        for connection in turn.connections.drain() {
            net.close(connection.socket.key, connection.socket.in_flight.is_some());
        }
    }
}

pub(crate) struct Sim {
    net: Rc<RefCell<Network>>,
    /// Number of this driver in the network.
    index: usize,
    sleeper: Sleeper,
    /// Counts bytes in flight that belong to one connection alone.
    owned: Meter,
}

pub(crate) struct Socket {
    key: Key,
    in_flight: InFlight,
}

type Connection = connection::Connection<Socket>;

impl Socket {
    fn new(key: Key) -> Self {
        Self { key, in_flight: InFlight::default() }
    }
}

impl Kernel for Sim {
    type Socket = Socket;

    const BLOCKS: bool = false;

    fn sleeper(&self) -> &Sleeper {
        &self.sleeper
    }

    fn now(&self) -> Instant {
        self.net.borrow().now()
    }

    fn clock<R>(&mut self, work: impl FnOnce(&mut Clock) -> R) -> R {
        work(&mut self.net.borrow_mut().driver(self.index).clock)
    }

    fn set_alarm(&mut self, _: Instant) -> io::Result<()> {
        Ok(())
    }

    fn enter(&mut self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }

    fn record(&mut self, turn: &mut Turn<Socket>) {
        let mut net = self.net.borrow_mut();
        for conn in std::mem::take(&mut net.driver(self.index).notices) {
            if let Some(Connection { socket, state, .. }) = turn.connections.get_mut(conn.0) {
                state.readable = true;
                state.ending |= net.has_received_end(socket.key);
                state.broken |= net.error(socket.key).is_some();
                turn.enqueue(conn);
            }
        }
    }

    fn listen(&mut self, addr: SocketAddr, options: &ListenOptions) -> io::Result<SocketAddr> {
        self.net.borrow_mut().listen(self.index, addr, options)
    }

    fn stop_listening(&mut self) {
        self.net.borrow_mut().stop_listening(self.index);
    }

    fn may_accept(&self) -> bool {
        self.net.borrow_mut().may_accept(self.index)
    }

    fn accept(&mut self) -> Option<io::Result<(Socket, SocketAddr, u8)>> {
        let mut net = self.net.borrow_mut();
        Some(net.accept(self.index)?.map(|(key, listener)| (Socket::new(key), net.remote(key), listener)))
    }

    fn connect(&mut self, remote: SocketAddr, source: Option<IpAddr>) -> io::Result<Socket> {
        self.net.borrow_mut().connect(remote, source).map(Socket::new)
    }

    fn adopt(&mut self, socket: TransferredSocket) -> io::Result<Socket> {
        match socket {
            TransferredSocket::Simulated { socket, token }
                if self.net.borrow_mut().attach(socket, &token) =>
            {
                Ok(Socket::new(socket))
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn register(&mut self, conn: ConnId, connection: &mut Connection) -> io::Result<()> {
        self.net.borrow_mut().set_owner(connection.socket.key, self.index, conn);
        Ok(())
    }

    fn connected(&mut self, connection: &Connection) -> Option<Result<(), Errno>> {
        match self.net.borrow().established(connection.socket.key) {
            Ok(established) => established.then_some(Ok(())),
            Err(error) => Some(Err(error)),
        }
    }

    fn send(&mut self, _: ConnId, connection: &mut Connection, frames: &mut Vec<Frame>) -> Progress {
        let Socket { key, in_flight } = &mut connection.socket;
        let mut cursor = Cursor::default();
        let progress = transmit(&mut self.net.borrow_mut(), *key, frames, &mut cursor);
        in_flight.keep(progress, || Backlog::of(frames, cursor, &self.owned));
        progress
    }

    fn send_bytes(&mut self, conn: ConnId, connection: &mut Connection, bytes: &[u8]) -> Progress {
        self.send(conn, connection, &mut vec![Frame::owned(bytes.to_vec())])
    }

    fn progress(&mut self, _: ConnId, connection: &mut Connection) -> Progress {
        let Socket { key, in_flight } = &mut connection.socket;
        in_flight.transmit(|frames, cursor| transmit(&mut self.net.borrow_mut(), *key, frames, cursor))
    }

    fn is_in_flight(&self, socket: &Socket) -> bool {
        socket.in_flight.is_some()
    }

    fn in_flight_bytes(&self, socket: &Socket) -> usize {
        socket.in_flight.bytes()
    }

    fn owned_bytes(&self) -> usize {
        self.owned.bytes()
    }

    fn receive(&mut self, _: ConnId, connection: &mut Connection, buffers: &mut Buffers) -> Receipt {
        let mut storage = buffers.take();
        let read = self.net.borrow_mut().read(connection.socket.key, &mut storage);
        connection.state.readable = matches!(read, Read::Bytes(_));
        if let Read::Bytes(len) = read {
            return Receipt::Bytes(Buffers::lend(storage, len));
        }
        buffers.put(storage);
        match read {
            Read::End => Receipt::End,
            Read::Failed(error) => Receipt::Failed(error),
            Read::Bytes(_) | Read::Nothing => Receipt::Nothing,
        }
    }

    fn error(&mut self, socket: &Socket) -> Option<Errno> {
        socket.in_flight.error().or_else(|| self.net.borrow().error(socket.key))
    }

    fn shutdown(&mut self, socket: &Socket) {
        self.net.borrow_mut().shut(socket.key);
    }

    fn is_unacknowledged(&mut self, socket: &Socket) -> bool {
        self.net.borrow().unacknowledged_bytes(socket.key) > 0
    }

    fn close(&mut self, _: ConnId, connection: Connection, reset: bool) {
        let Socket { key, in_flight } = connection.socket;
        self.net.borrow_mut().close(key, reset || in_flight.is_some());
    }

    fn detach(&mut self, turn: &mut Turn<Socket>, conn: ConnId) -> Option<TransferredSocket> {
        let socket = turn.connections.remove(conn.0)?.socket.key;
        Some(TransferredSocket::Simulated { socket, token: self.net.borrow_mut().detach(socket) })
    }

    fn capacity(&self) -> Capacity {
        Capacity { shared: usize::MAX, own: 0 }
    }
}

fn transmit(net: &mut Network, socket: Key, frames: &[Frame], cursor: &mut Cursor) -> Progress {
    loop {
        cursor.advance(frames, 0); // past empty frames
        let Some(frame) = frames.get(cursor.frame) else { return Progress::Done };
        let room = match net.room(socket) {
            Ok(0) => return Progress::Stalled,
            Ok(room) => room.min(frame.len() - cursor.offset),
            Err(error) => return Progress::Failed(error),
        };
        match frame.view() {
            View::Memory(bytes) => {
                net.write(socket, &bytes[cursor.offset..cursor.offset + room]);
                cursor.advance(frames, room);
            }
            View::File(file) => {
                let mut piece = vec![0; room.min(FILE_PIECE_BYTES)];
                match file.file().read_at(&mut piece, cursor.offset as u64) {
                    Ok(0) | Err(_) => return Progress::Failed(Errno::IO),
                    Ok(len) => {
                        net.write(socket, &piece[..len]);
                        cursor.advance(frames, len);
                    }
                }
            }
        }
    }
}
