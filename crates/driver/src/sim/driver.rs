//! The driver of a simulated network: the same turns as on a kernel, at virtual times.
//!
//! Its queue works as that of the epoll driver (see there), with the network's notices in place of edges. What
//! has been missed can always be read off the socket, so a notice need not say what happened.

use super::network::{Network, Read};
use crate::backlog::{Backlog, Cursor};
use crate::buffer::Buffers;
use crate::detached::TransferredSocket;
use crate::frame::View;
use crate::slab::{Key, Slab};
use crate::waker::Sleeper;
use crate::{
    Capacity, ConnId, DetachedConnection, Driver, Event, Frame, ListenOptions, Meter, ReceiveBuffer, Sending,
    TimerId, Waker,
};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A file's bytes are read in pieces of this size at most.
const FILE_PIECE_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connecting,
    Open,
    Finishing,
}

struct Connection {
    socket: Key,
    phase: Phase,
    ended: bool,
    paused: bool,
    queued: bool,
    shut: bool,
    backlog: Option<Backlog>,
    linger: Option<TimerId>,
}

/// What became of a transmission.
enum Progress {
    Done,
    Stalled,
    Failed,
}

/// A driver in a [`super::World`]. See [`Driver`] and the module's documentation.
pub struct SimDriver {
    net: Rc<RefCell<Network>>,
    /// Its number in the network.
    index: usize,
    now: Instant,
    sleeper: Sleeper,
    connections: Slab<Connection>,
    queue: VecDeque<ConnId>,
    queue_left: usize,
    current: Option<(ConnId, bool)>,
    accepts_left: usize,
    woken: bool,
    buffers: Buffers,
    /// Bytes in flight that belong to one connection alone.
    owned: Meter,
}

impl SimDriver {
    pub(super) fn new(net: Rc<RefCell<Network>>) -> Self {
        let (index, now, receive_buffer_bytes) = {
            let mut net = net.borrow_mut();
            (net.add_driver(), net.now(), net.options().driver.receive_buffer_bytes)
        };
        Self {
            net,
            index,
            now,
            sleeper: Sleeper::simulated(),
            connections: Slab::new(),
            queue: VecDeque::new(),
            queue_left: 0,
            current: None,
            accepts_left: 0,
            woken: false,
            buffers: Buffers::new(receive_buffer_bytes),
            owned: Meter::default(),
        }
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    pub(super) fn socket(&self, conn: ConnId) -> Option<Key> {
        self.connections.get(conn.into()).map(|connection| connection.socket)
    }

    fn open(&mut self, conn: ConnId) -> Option<&mut Connection> {
        self.connections.get_mut(conn.into()).filter(|connection| connection.phase != Phase::Finishing)
    }

    fn enqueue(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(conn.into())
            && !std::mem::replace(&mut connection.queued, true)
        {
            self.queue.push_back(conn);
        }
    }

    fn register(&mut self, socket: Key, phase: Phase, ended: bool, paused: bool) -> ConnId {
        let conn = ConnId::from(self.connections.insert(Connection {
            socket,
            phase,
            ended,
            paused,
            queued: false,
            shut: false,
            backlog: None,
            linger: None,
        }));
        self.net.borrow_mut().set_owner(socket, self.index, conn);
        conn
    }

    fn remove(&mut self, conn: ConnId) -> Option<Connection> {
        let connection = self.connections.remove(conn.into())?;
        if let Some(linger) = connection.linger {
            self.net.borrow_mut().driver(self.index).lingers.cancel(linger);
        }
        Some(connection)
    }

    fn closed(&mut self, conn: ConnId, error: Option<Errno>) -> Option<Event> {
        let connection = self.remove(conn)?;
        // A stream that is cut off ends by a reset.
        self.net.borrow_mut().close(connection.socket, connection.backlog.is_some());
        Some(Event::Closed { conn, error: error.map(io::Error::from) })
    }

    fn step(&mut self, conn: ConnId, may_read: bool) -> Option<Event> {
        let connection = self.connections.get_mut(conn.into())?;
        match connection.phase {
            Phase::Connecting => {
                let established = self.net.borrow().established(connection.socket);
                match established {
                    Ok(true) => {
                        connection.phase = Phase::Open;
                        Some(Event::Connected(conn))
                    }
                    Ok(false) => None,
                    Err(error) => self.closed(conn, Some(error)),
                }
            }
            Phase::Open => self.step_open(conn, may_read),
            Phase::Finishing => self.step_finishing(conn),
        }
    }

    fn step_open(&mut self, conn: ConnId, may_read: bool) -> Option<Event> {
        let mut net = self.net.borrow_mut();
        let connection = self.connections.get_mut(conn.into())?;
        if matches!(connection.transmit_backlog(&mut net), Some(Progress::Done)) {
            return Some(Event::Sent(conn));
        }
        let error = net.error(connection.socket);
        if connection.paused || connection.ended {
            drop(net);
            return if error.is_some() { self.closed(conn, error) } else { None };
        }
        if !may_read {
            drop(net);
            self.enqueue(conn);
            return None;
        }
        let mut storage = self.buffers.take();
        let read = net.read(connection.socket, &mut storage);
        let at = net.now();
        drop(net);
        match read {
            Read::Bytes(len) => Some(Event::Received { conn, data: Buffers::lend(storage, len), at }),
            other => {
                self.buffers.put(storage);
                match other {
                    Read::Failed(error) => self.closed(conn, Some(error)),
                    Read::End => {
                        connection.ended = true;
                        Some(Event::PeerFinished(conn))
                    }
                    Read::Bytes(_) | Read::Nothing => None,
                }
            }
        }
    }

    fn step_finishing(&mut self, conn: ConnId) -> Option<Event> {
        let mut net = self.net.borrow_mut();
        let connection = self.connections.get_mut(conn.into())?;
        if !connection.shut && matches!(connection.transmit_backlog(&mut net), None | Some(Progress::Done)) {
            net.shut(connection.socket);
            connection.shut = true;
        }
        let mut failed = net.error(connection.socket);
        let mut more = false;
        if !connection.ended {
            let mut storage = self.buffers.take();
            match net.read(connection.socket, &mut storage) {
                Read::Bytes(_) => more = true,
                Read::Nothing => {}
                Read::End => connection.ended = true,
                Read::Failed(error) => failed = Some(error),
            }
            self.buffers.put(storage);
        }
        let over = connection.ended && connection.shut;
        drop(net);
        if failed.is_some() || over {
            return self.closed(conn, failed);
        }
        if more {
            self.enqueue(conn);
        }
        None
    }

    fn step_accept(&mut self) -> Option<Event> {
        if self.accepts_left == 0 {
            return None;
        }
        let accepted = self.net.borrow_mut().accept(self.index)?;
        Some(match accepted {
            Ok(socket) => {
                self.accepts_left -= 1;
                let peer = self.net.borrow().remote(socket);
                Event::Accepted { conn: self.register(socket, Phase::Open, false, false), peer }
            }
            Err(error) => Event::AcceptFailed(error),
        })
    }

    fn step_linger(&mut self) -> Option<Event> {
        let token = self.net.borrow_mut().driver(self.index).lingers.pop_due()?;
        let conn = ConnId::from_bits(token);
        let connection = self.remove(conn)?;
        let mut net = self.net.borrow_mut();
        let reset = connection.backlog.is_some() || net.unacknowledged_bytes(connection.socket) > 0;
        net.close(connection.socket, reset);
        Some(Event::Closed { conn, error: None })
    }

    fn after_send(&mut self, conn: ConnId, failed: bool) -> Sending {
        if failed {
            self.enqueue(conn);
        }
        Sending::InFlight
    }
}

impl Connection {
    /// Goes on with the backlog, if there is one.
    fn transmit_backlog(&mut self, net: &mut Network) -> Option<Progress> {
        let backlog = self.backlog.as_mut()?;
        let progress = backlog.transmit(|frames, cursor| transmit(net, self.socket, frames, cursor));
        if let Progress::Done = progress {
            self.backlog = None;
        }
        Some(progress)
    }
}

fn transmit(net: &mut Network, socket: Key, frames: &[Frame], cursor: &mut Cursor) -> Progress {
    loop {
        cursor.advance(frames, 0); // past empty frames
        let Some(frame) = frames.get(cursor.frame) else { return Progress::Done };
        let room = match net.room(socket) {
            Ok(0) => return Progress::Stalled,
            Ok(room) => room.min(frame.len() - cursor.offset),
            Err(_) => return Progress::Failed,
        };
        match frame.view() {
            View::Memory(bytes) => {
                net.write(socket, &bytes[cursor.offset..cursor.offset + room]);
                cursor.advance(frames, room);
            }
            View::File(file) => {
                let mut piece = vec![0; room.min(FILE_PIECE_BYTES)];
                match file.file().read_at(&mut piece, cursor.offset as u64) {
                    Ok(0) | Err(_) => return Progress::Failed,
                    Ok(len) => {
                        net.write(socket, &piece[..len]);
                        cursor.advance(frames, len);
                    }
                }
            }
        }
    }
}

impl Driver for SimDriver {
    fn now(&self) -> Instant {
        self.now
    }

    fn listen(&mut self, addr: SocketAddr, options: &ListenOptions) -> io::Result<SocketAddr> {
        self.net.borrow_mut().listen(self.index, addr, options)
    }

    fn connect(&mut self, remote: SocketAddr, source: Option<IpAddr>) -> io::Result<ConnId> {
        let socket = self.net.borrow_mut().connect(remote, source)?;
        Ok(self.register(socket, Phase::Connecting, false, false))
    }

    fn wait(&mut self, _timeout: Option<Duration>) -> io::Result<()> {
        self.woken |= self.sleeper.end_sleep();
        let notices = {
            let mut net = self.net.borrow_mut();
            self.now = net.now();
            let driver = net.driver(self.index);
            driver.timers.advance(self.now);
            driver.lingers.advance(self.now);
            driver.accept_again_at = driver.accept_again_at.filter(|at| *at > self.now);
            std::mem::take(&mut driver.notices)
        };
        for conn in notices {
            self.enqueue(conn);
        }
        self.queue_left = self.queue.len();
        self.accepts_left = self.net.borrow().options().driver.accepts_per_turn;
        self.current = None;
        Ok(())
    }

    fn next_event(&mut self) -> Option<Event> {
        if std::mem::take(&mut self.woken) {
            return Some(Event::Woken);
        }
        loop {
            if let Some((conn, has_read)) = self.current {
                if let Some(event) = self.step(conn, !has_read) {
                    self.current = Some((conn, has_read || matches!(event, Event::Received { .. })));
                    return Some(event);
                }
                self.current = None;
            }
            if self.queue_left == 0 {
                break;
            }
            self.queue_left -= 1;
            if let Some(conn) = self.queue.pop_front()
                && let Some(connection) = self.connections.get_mut(conn.into())
            {
                connection.queued = false;
                self.current = Some((conn, false));
            }
        }
        if let Some(event) = self.step_accept().or_else(|| self.step_linger()) {
            return Some(event);
        }
        self.net.borrow_mut().driver(self.index).timers.pop_due().map(Event::Timer)
    }

    fn recycle(&mut self, buffer: ReceiveBuffer) {
        self.buffers.recycle(buffer);
    }

    fn send(&mut self, conn: ConnId, frames: &mut Vec<Frame>) -> Sending {
        let (net, owned) = (Rc::clone(&self.net), self.owned.clone());
        let Some(connection) = self.open(conn) else {
            frames.clear();
            return Sending::Done;
        };
        assert!(connection.backlog.is_none(), "a send is in flight on this connection");
        let mut cursor = Cursor::default();
        let failed = match transmit(&mut net.borrow_mut(), connection.socket, frames, &mut cursor) {
            Progress::Done => {
                frames.clear();
                return Sending::Done;
            }
            Progress::Stalled => false,
            Progress::Failed => true,
        };
        connection.backlog = Some(Backlog::of(frames, cursor, &owned));
        self.after_send(conn, failed)
    }

    fn send_bytes(&mut self, conn: ConnId, bytes: &[u8]) -> Sending {
        self.send(conn, &mut vec![Frame::owned(bytes.to_vec())])
    }

    fn in_flight_bytes(&self, conn: ConnId) -> usize {
        self.connections
            .get(conn.into())
            .filter(|connection| connection.phase != Phase::Finishing)
            .and_then(|connection| connection.backlog.as_ref())
            .map_or(0, Backlog::bytes)
    }

    fn owned_bytes(&self) -> usize {
        self.owned.bytes()
    }

    fn pause(&mut self, conn: ConnId) {
        if let Some(connection) = self.open(conn) {
            connection.paused = true;
        }
    }

    fn resume(&mut self, conn: ConnId) {
        if let Some(connection) = self.open(conn)
            && std::mem::take(&mut connection.paused)
        {
            self.enqueue(conn);
        }
    }

    fn finish(&mut self, conn: ConnId, linger: Duration) {
        let until = self.now.checked_add(linger);
        let net = Rc::clone(&self.net);
        let index = self.index;
        let Some(connection) = self.open(conn) else { return };
        if connection.phase == Phase::Connecting {
            // There is no peer to close in order.
            connection.ended = true;
            connection.shut = true;
        }
        connection.phase = Phase::Finishing;
        connection.linger =
            until.map(|until| net.borrow_mut().driver(index).lingers.set(until, conn.to_bits()));
        self.enqueue(conn);
    }

    fn close(&mut self, conn: ConnId) {
        if self.open(conn).is_some() {
            self.closed(conn, None);
        }
    }

    fn detach(&mut self, conn: ConnId) -> Option<DetachedConnection> {
        let connection = self.open(conn)?;
        assert!(connection.backlog.is_none(), "a send is in flight on this connection");
        if connection.phase != Phase::Open {
            return None;
        }
        let Connection { socket, ended, paused, .. } = self.remove(conn)?;
        let mut net = self.net.borrow_mut();
        let transferred = TransferredSocket::Simulated { socket, token: net.detach(socket) };
        Some(DetachedConnection { socket: transferred, peer: net.remote(socket), ended, paused })
    }

    fn attach(&mut self, detached: DetachedConnection) -> io::Result<ConnId> {
        let DetachedConnection {
            socket: TransferredSocket::Simulated { socket, token }, ended, paused, ..
        } = detached
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if !self.net.borrow_mut().attach(socket, &token) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(self.register(socket, Phase::Open, ended, paused))
    }

    fn connections(&self) -> usize {
        self.connections.len()
    }

    fn capacity(&self) -> Capacity {
        Capacity { shared: usize::MAX, own: 0 }
    }

    fn timer_set(&mut self, at: Instant, token: u64) -> TimerId {
        self.net.borrow_mut().driver(self.index).timers.set(at, token)
    }

    fn timer_cancel(&mut self, timer: TimerId) {
        self.net.borrow_mut().driver(self.index).timers.cancel(timer);
    }

    fn waker(&self) -> Waker {
        self.sleeper.waker()
    }

    fn stop_listening(&mut self) {
        self.net.borrow_mut().stop_listening(self.index);
    }
}

impl Drop for SimDriver {
    fn drop(&mut self) {
        let mut net = self.net.borrow_mut();
        net.retire(self.index);
        for connection in self.connections.drain() {
            net.close(connection.socket, connection.backlog.is_some());
        }
    }
}
