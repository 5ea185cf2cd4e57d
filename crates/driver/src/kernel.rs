//! The interface between the event loop and a kernel.

use crate::backlog::Progress;
use crate::buffer::Buffers;
use crate::connection::Connection;
use crate::detached::TransferredSocket;
use crate::turn::{Clock, Turn};
use crate::waker::Sleeper;
use crate::{Capacity, ConnId, Frame, ListenOptions, ReceiveBuffer};
use rustix::io::Errno;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// The result of reading.
pub(crate) enum Receipt {
    Bytes(ReceiveBuffer),
    End,
    Nothing,
    /// The kernel has not answered yet, or accepts no further request now.
    Pending,
    Failed(Errno),
}

/// One kernel. `conn` is always the id of `connection`.
pub(crate) trait Kernel {
    /// The socket's state in this kernel.
    type Socket;

    /// `false` if waiting takes no time.
    const BLOCKS: bool = true;

    /// `true` if a new connection is read in the turn that accepts it, without waiting for an event: its first bytes have
    /// often arrived with it.
    const READS_ACCEPTED: bool = false;

    fn sleeper(&self) -> &Sleeper;

    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Runs `work` on the driver's clock. The clock belongs to the kernel, because the simulated one depends
    /// on the clocks of all drivers.
    fn clock<R>(&mut self, work: impl FnOnce(&mut Clock) -> R) -> R;

    /// Makes [`Kernel::enter`] return at `at` or before.
    fn set_alarm(&mut self, at: Instant) -> io::Result<()>;

    /// Waits for events, at most for `timeout`. A timeout of zero collects the available events.
    fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// Records events in the connections, and queues these.
    fn record(&mut self, turn: &mut Turn<Self::Socket>);

    /// Returns `true` if there are more events to record.
    fn has_events(&mut self) -> bool {
        false
    }

    /// Prepares a turn after its events have been recorded.
    fn begin_turn(&mut self) {}

    /// Prepares to read the connections that are stepped next: the first [`crate::Options::events_per_turn`]
    /// ones of the queue.
    ///
    /// # Errors
    /// The kernel can't continue.
    fn read_ahead(&mut self, _turn: &mut Turn<Self::Socket>) -> io::Result<()> {
        Ok(())
    }

    fn listen(&mut self, addr: SocketAddr, options: &ListenOptions) -> io::Result<SocketAddr>;

    fn stop_listening(&mut self);

    /// Returns `true` if there may be a connection to accept.
    fn may_accept(&self) -> bool;

    /// Accepts the next connection. Returns it with its peer's address and the number of its listener.
    fn accept(&mut self) -> Option<io::Result<(Self::Socket, SocketAddr, u8)>>;

    fn connect(&mut self, remote: SocketAddr, source: Option<IpAddr>) -> io::Result<Self::Socket>;

    /// Adopts a socket of another driver.
    fn adopt(&mut self, socket: TransferredSocket) -> io::Result<Self::Socket>;

    /// Starts watching a new connection.
    fn register(&mut self, conn: ConnId, connection: &mut Connection<Self::Socket>) -> io::Result<()>;

    /// Watches a connection again if the kernel has stopped doing so. Returns `false` if that must wait for
    /// the next turn.
    fn keep_watching(&mut self, _conn: ConnId, _connection: &mut Connection<Self::Socket>) -> bool {
        true
    }

    /// Returns the result of connecting; `None` while it is in progress.
    fn connected(&mut self, connection: &Connection<Self::Socket>) -> Option<Result<(), Errno>>;

    /// Makes room for the operations of one more call.
    fn make_room(&mut self, _turn: &mut Turn<Self::Socket>) {}

    /// Sends what the kernel accepts at once and keeps the rest in flight.
    fn send(
        &mut self,
        conn: ConnId,
        connection: &mut Connection<Self::Socket>,
        frames: &mut Vec<Frame>,
    ) -> Progress;

    /// Like [`Kernel::send`], for bytes instead of frames.
    fn send_bytes(
        &mut self,
        conn: ConnId,
        connection: &mut Connection<Self::Socket>,
        bytes: &[u8],
    ) -> Progress;

    /// Submits the queued part of a stalled send: if `now`, or if a separate call is worthwhile. Returns
    /// `true` if the kernel has accepted all of it.
    fn submit_send(&mut self, _turn: &mut Turn<Self::Socket>, _conn: ConnId, _now: bool) -> bool {
        false
    }

    /// Continues the send in flight; returns `Done` if there is none.
    fn progress(&mut self, conn: ConnId, connection: &mut Connection<Self::Socket>) -> Progress;

    /// Returns `true` if a send is in flight. A failed send counts until its connection ends.
    fn is_in_flight(&self, socket: &Self::Socket) -> bool;

    /// Returns the bytes in flight that the kernel hasn't accepted.
    fn in_flight_bytes(&self, socket: &Self::Socket) -> usize;

    /// Implements [`crate::Driver::owned_bytes`].
    fn owned_bytes(&self) -> usize;

    /// Reads once, and records whether there may be more.
    fn receive(
        &mut self,
        conn: ConnId,
        connection: &mut Connection<Self::Socket>,
        buffers: &mut Buffers,
    ) -> Receipt;

    /// Returns `true` if bytes may have been read from the socket that [`Kernel::receive`] hasn't returned.
    fn is_receiving(&self, _socket: &Self::Socket) -> bool {
        false
    }

    /// Returns the cause of a connection's failure, if it is known.
    fn error(&mut self, socket: &Self::Socket) -> Option<Errno>;

    /// Shuts down the write side. The call may fail on a broken connection, which reading reports.
    fn shutdown(&mut self, socket: &Self::Socket);

    /// Returns `true` if the peer's kernel hasn't received everything that was sent.
    fn is_unacknowledged(&mut self, socket: &Self::Socket) -> bool;

    /// Closes a removed connection: by a reset if requested, or if a send is in flight, so that the peer
    /// doesn't read a truncated stream as complete, and the kernel doesn't keep the rest for minutes.
    fn close(&mut self, conn: ConnId, connection: Connection<Self::Socket>, reset: bool);

    /// Removes an open connection without closing it. Returns `None` if that is impossible; the connection
    /// then stays.
    fn detach(&mut self, turn: &mut Turn<Self::Socket>, conn: ConnId) -> Option<TransferredSocket>;

    fn capacity(&self) -> Capacity;
}
