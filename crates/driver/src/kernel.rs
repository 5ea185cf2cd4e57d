//! What the event loop asks of a kernel.

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
    /// The kernel has not answered yet, or takes no further request now.
    Pending,
    Failed(Errno),
}

/// One kernel. `conn` is always the id of `connection`.
pub(crate) trait Kernel {
    /// What it keeps for each connection.
    type Socket;

    /// Whether waiting takes time.
    const BLOCKS: bool = true;

    fn sleeper(&self) -> &Sleeper;

    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Works on the driver's clock, which is the kernel's because the simulated one moves by those of all drivers.
    fn clock<R>(&mut self, work: impl FnOnce(&mut Clock) -> R) -> R;

    /// Makes [`Kernel::enter`] return at `at` or before.
    fn set_alarm(&mut self, at: Instant) -> io::Result<()>;

    /// Waits for events, at most for `timeout`, except that one of zero gathers what is there.
    fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// Records events in the connections, and queues these. Returns no events.
    fn record(&mut self, turn: &mut Turn<Self::Socket>);

    /// Whether there are more events to record.
    fn has_events(&mut self) -> bool {
        false
    }

    /// Prepares a turn after its events have been recorded.
    fn begin_turn(&mut self) {}

    /// Prepares to read the connections that are stepped next: as many at the front of the queue as events are gathered in a turn.
    ///
    /// # Errors
    /// The kernel's, where it can't go on.
    fn read_ahead(&mut self, _turn: &mut Turn<Self::Socket>) -> io::Result<()> {
        Ok(())
    }

    fn listen(&mut self, addr: SocketAddr, options: &ListenOptions) -> io::Result<SocketAddr>;

    fn stop_listening(&mut self);

    /// Whether there may be a connection to accept.
    fn may_accept(&self) -> bool;

    /// The next connection, with its peer's address and the number of its listener.
    fn accept(&mut self) -> Option<io::Result<(Self::Socket, SocketAddr, u8)>>;

    fn connect(&mut self, remote: SocketAddr, source: Option<IpAddr>) -> io::Result<Self::Socket>;

    /// Takes over a socket of another driver.
    fn adopt(&mut self, socket: TransferredSocket) -> io::Result<Self::Socket>;

    /// Begins to watch a new connection.
    fn register(&mut self, conn: ConnId, connection: &mut Connection<Self::Socket>) -> io::Result<()>;

    /// Watches a connection again if the kernel has stopped doing so; false if that has to wait for the next turn.
    fn keep_watching(&mut self, _conn: ConnId, _connection: &mut Connection<Self::Socket>) -> bool {
        true
    }

    /// Whether connecting has succeeded or failed; `None` as long as it has done neither.
    fn connected(&mut self, connection: &Connection<Self::Socket>) -> Option<Result<(), Errno>>;

    /// Makes room for the operations of one more call.
    fn make_room(&mut self, _turn: &mut Turn<Self::Socket>) {}

    /// Sends what can be sent at once and keeps the rest in flight.
    fn send(
        &mut self,
        conn: ConnId,
        connection: &mut Connection<Self::Socket>,
        frames: &mut Vec<Frame>,
    ) -> Progress;

    /// As [`Kernel::send`].
    fn send_bytes(
        &mut self,
        conn: ConnId,
        connection: &mut Connection<Self::Socket>,
        bytes: &[u8],
    ) -> Progress;

    /// Submits what a stalled send has queued, `now` or if it is worth a call of its own; true if the kernel has taken it all.
    fn submit_send(&mut self, _turn: &mut Turn<Self::Socket>, _conn: ConnId, _now: bool) -> bool {
        false
    }

    /// Continues the send in flight; `Done` if there is none.
    fn progress(&mut self, conn: ConnId, connection: &mut Connection<Self::Socket>) -> Progress;

    /// Whether a send is in flight. One that failed is, until its connection ends.
    fn is_in_flight(&self, socket: &Self::Socket) -> bool;

    /// Bytes in flight that the kernel hasn't taken.
    fn in_flight_bytes(&self, socket: &Self::Socket) -> usize;

    /// See [`crate::Driver::owned_bytes`].
    fn owned_bytes(&self) -> usize;

    /// Reads once, and notes whether there may be more.
    fn receive(
        &mut self,
        conn: ConnId,
        connection: &mut Connection<Self::Socket>,
        buffers: &mut Buffers,
    ) -> Receipt;

    /// Whether bytes may have been taken from the socket that [`Kernel::receive`] hasn't returned.
    fn is_receiving(&self, _socket: &Self::Socket) -> bool {
        false
    }

    /// The cause of a connection's failure, if it is known.
    fn error(&mut self, socket: &Self::Socket) -> Option<Errno>;

    /// Ends our side. On a broken connection it may fail, which reading reports.
    fn shutdown(&mut self, socket: &Self::Socket);

    /// Whether the peer's kernel hasn't taken all that was sent.
    fn is_unacknowledged(&mut self, socket: &Self::Socket) -> bool;

    /// Closes a connection that has been removed: by a reset if asked, or if a send is in flight, so that the peer doesn't
    /// take a truncated stream for the whole, and the kernel doesn't keep the rest for minutes.
    fn close(&mut self, conn: ConnId, connection: Connection<Self::Socket>, reset: bool);

    /// Removes an open connection without closing it; `None` if that is impossible, and the connection stays.
    fn detach(&mut self, turn: &mut Turn<Self::Socket>, conn: ConnId) -> Option<TransferredSocket>;

    fn capacity(&self) -> Capacity;
}
