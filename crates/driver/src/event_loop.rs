//! The event loop, the same on every kernel.
//!
//! [`Driver::wait`] lets the kernel record events in the connections, and puts these into one queue.
//! [`Driver::next_event`] steps through the part of the queue that existed when the turn began, and then
//! reads and writes. A connection with more to read goes to the end of the queue, hence into the next turn,
//! so each is read at most once per turn.
//!
//! A read that fills less than its buffer has drained the socket (epoll(7)). So it isn't tried again before
//! the next edge, unless the peer has ended its side: then the end of file follows without an edge.
//!
//! Order within a turn: the connections' events, accepted connections, timers. Therefore data that arrives in
//! time is seen before its timeout. The first bytes of an accepted connection follow it at once, on kernels that read
//! new connections without an event ([`Kernel::READS_ACCEPTED`]).
//!
//! Invariants: `queued` is set exactly for connections in the queue; a connection that is `broken`, or
//! `readable` and not paused, or has an end to report, is in the queue or is being stepped.

use crate::backlog::Progress;
use crate::connection::{Connection, Phase};
use crate::detached::DetachedConnection;
use crate::kernel::{Kernel, Receipt};
use crate::turn::{Clock, Turn};
use crate::{
    Capacity, ConnId, Driver, Event, Frame, ListenOptions, Options, ReceiveBuffer, Sending, TimerId, Waker,
};
use rustix::io::Errno;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// A duration longer than any pause of accepting.
const PAUSE_MAX: Duration = Duration::from_secs(365 * 86_400);

/// A driver: the part of one kernel, and the common part.
pub(crate) struct EventLoop<K: Kernel> {
    pub(crate) turn: Turn<K::Socket>,
    pub(crate) kernel: K,
}

impl<K: Kernel> EventLoop<K> {
    /// # Panics
    /// If an option is below its minimum.
    pub(crate) fn new(options: &Options, kernel: K) -> Self {
        Self { turn: Turn::new(options, kernel.now()), kernel }
    }

    /// Returns `true` if this turn has events to return.
    fn has_work(&mut self) -> bool {
        !self.turn.queue.is_empty()
            || self.turn.woken
            || self.kernel.clock(|clock| clock.timers.has_due() || clock.lingers.has_due())
            || self.kernel.may_accept() && self.kernel.clock(|clock| clock.accept_again_at.is_none())
            || self.kernel.has_events()
    }

    /// Sets the alarm if necessary. Returns the maximum duration of the sleep; `None` if only events and the
    /// alarm end it.
    fn sleep(&mut self, until: Option<Instant>) -> io::Result<Option<Duration>> {
        if self.has_work() {
            return Ok(Some(Duration::ZERO));
        }
        if let Some(first) = self.kernel.clock(Clock::take_alarm) {
            self.kernel.set_alarm(first)?;
        }
        Ok(until.map(|until| until.saturating_duration_since(Instant::now())))
    }

    /// Polls the kernel once and records its events.
    fn collect_events(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let sleeps = timeout != Some(Duration::ZERO) && self.kernel.sleeper().may_sleep();
        let entered = self.kernel.enter(if sleeps { timeout } else { Some(Duration::ZERO) });
        self.turn.woken |= self.kernel.sleeper().end_sleep();
        let now = self.kernel.now();
        self.turn.now = now;
        entered?;
        self.kernel.record(&mut self.turn);
        self.kernel.clock(|clock| clock.advance(now));
        Ok(())
    }

    // This function and the next are not inlined: their callers are large, and would keep less in
    // registers.
    #[inline(never)]
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let until = match timeout {
            Some(timeout) if K::BLOCKS && !timeout.is_zero() => Instant::now().checked_add(timeout),
            _ => None,
        };
        let poll = !K::BLOCKS || timeout.is_some_and(|timeout| timeout.is_zero());
        // The caller didn't take all events of the last turn.
        if let Some(conn) = self.turn.current.take() {
            self.turn.enqueue(conn);
        }
        loop {
            let sleep = if poll { Some(Duration::ZERO) } else { self.sleep(until)? };
            self.collect_events(sleep)?;
            if poll || self.has_work() || until.is_some_and(|until| self.turn.now >= until) {
                break;
            }
            // There is no event: a timer has only moved down a level of the wheel, or a wake came late.
        }
        self.kernel.begin_turn();
        self.kernel.read_ahead(&mut self.turn)?;
        self.turn.queue_left = self.turn.queue.len();
        self.turn.queue_later = 0;
        if self.turn.queue_left > self.turn.options.events_per_turn {
            self.turn.divide();
        }
        self.turn.accepts_left = self.turn.options.accepts_per_turn;
        Ok(())
    }

    /// Returns `true` at the end of the turn.
    #[inline]
    fn is_over(&mut self) -> bool {
        let turn = &self.turn;
        turn.queue_left + turn.queue_later == 0
            && turn.current.is_none()
            && !turn.woken
            && !self.kernel.may_accept()
            && !self.kernel.clock(|clock| clock.timers.has_due() || clock.lingers.has_due())
    }

    #[inline(never)]
    fn next_event(&mut self) -> Option<Event> {
        if std::mem::take(&mut self.turn.woken) {
            return Some(Event::Woken);
        }
        loop {
            let (conn, was_queued) = match self.turn.current.take() {
                Some(conn) => (conn, false),
                None if self.turn.queue_left == 0 => {
                    if self.turn.queue_later == 0 {
                        break;
                    }
                    self.step_more();
                    continue;
                }
                None => {
                    self.turn.queue_left -= 1;
                    (self.turn.queue.pop_front()?, true)
                }
            };
            if let Some(event) = self.step(conn, was_queued) {
                if !matches!(event, Event::Received { .. }) {
                    self.turn.current = Some(conn);
                }
                return Some(event);
            }
        }
        // The rare steps are not inlined: each call would set up the stack space that they need.
        if self.kernel.may_accept()
            && let Some(event) = self.step_accept()
        {
            return Some(event);
        }
        if self.kernel.clock(|clock| clock.lingers.has_due())
            && let Some(event) = self.step_linger()
        {
            return Some(event);
        }
        self.kernel.clock(|clock| clock.timers.pop_due()).map(Event::Timer)
    }

    /// Continues with the next part of the queue.
    #[cold]
    fn step_more(&mut self) {
        let Self { turn, kernel } = self;
        // If reading ahead fails, the next wait reports the error.
        let _ = kernel.read_ahead(turn);
        turn.queue_left = turn.queue_later;
        turn.divide();
    }

    /// Returns the next event of the connection that is being stepped; after [`Event::Received`] there is
    /// none in this turn. `was_queued` is `true` if it was just taken from the queue.
    fn step(&mut self, conn: ConnId, was_queued: bool) -> Option<Event> {
        let Self { turn, kernel } = self;
        let connection = turn.connections.get_mut(conn.0)?;
        connection.state.queued &= !was_queued;
        match connection.state.phase {
            Phase::Connecting => return self.step_connecting(conn),
            Phase::Open => {}
            Phase::Finishing => return self.step_finishing(conn),
        }
        if kernel.is_in_flight(&connection.socket) {
            match kernel.progress(conn, connection) {
                Progress::Done => return Some(Event::Sent(conn)),
                Progress::Failed(_) => connection.state.fail(),
                Progress::Stalled => {}
            }
        }
        let state = &connection.state;
        let may_read = state.readable || state.broken || kernel.is_receiving(&connection.socket);
        if state.paused || state.ended || !may_read {
            return if state.broken {
                self.closed(conn, None)
            } else if state.has_end_to_report() {
                connection.state.end_reported = true;
                Some(Event::EndPending(conn))
            } else {
                self.rest(conn)
            };
        }
        match kernel.receive(conn, connection, &mut turn.buffers) {
            Receipt::Bytes(data) => {
                let state = &connection.state;
                if state.readable || state.broken || !kernel.keep_watching(conn, connection) {
                    turn.enqueue(conn); // read once in a turn
                }
                let at = if turn.options.receive_times { kernel.now() } else { turn.now };
                Some(Event::Received { conn, data, at })
            }
            Receipt::Failed(error) => self.closed(conn, Some(error)),
            // A broken connection has no open half.
            Receipt::End | Receipt::Nothing if connection.state.broken => self.closed(conn, None),
            Receipt::End => {
                connection.state.ended = true;
                Some(Event::PeerFinished(conn))
            }
            Receipt::Nothing => self.rest(conn),
            Receipt::Pending => self.await_receipt(conn),
        }
    }

    /// Leaves a connection until its next event.
    #[inline]
    fn rest(&mut self, conn: ConnId) -> Option<Event> {
        let connection = self.turn.connections.get_mut(conn.0)?;
        if !self.kernel.keep_watching(conn, connection) {
            self.turn.enqueue(conn);
        }
        None
    }

    /// Tries again in the next turn if the kernel has accepted no request to read.
    #[inline]
    fn await_receipt(&mut self, conn: ConnId) -> Option<Event> {
        if !self.kernel.is_receiving(&self.turn.connections.get(conn.0)?.socket) {
            self.turn.enqueue(conn);
        }
        None
    }

    #[inline(never)]
    fn step_connecting(&mut self, conn: ConnId) -> Option<Event> {
        let connection = self.turn.connections.get_mut(conn.0)?;
        match self.kernel.connected(connection)? {
            Ok(()) => {
                connection.state.phase = Phase::Open;
                Some(Event::Connected(conn))
            }
            Err(error) => self.closed(conn, Some(error)),
        }
    }

    #[inline(never)]
    fn step_finishing(&mut self, conn: ConnId) -> Option<Event> {
        let Self { turn, kernel } = self;
        let connection = turn.connections.get_mut(conn.0)?;
        if !connection.state.shut {
            match kernel.progress(conn, connection) {
                Progress::Done => {
                    // If the peer has ended its side, the socket is closed at once, which ends our side as well.
                    if !connection.state.ended {
                        kernel.shutdown(&connection.socket);
                    }
                    connection.state.shut = true;
                }
                Progress::Stalled => {}
                Progress::Failed(error) => return self.closed(conn, Some(error)),
            }
        }
        let may_read = connection.state.readable || kernel.is_receiving(&connection.socket);
        if may_read && !connection.state.ended {
            match kernel.receive(conn, connection, &mut turn.buffers) {
                Receipt::Bytes(data) => {
                    turn.buffers.recycle(data);
                    // One buffer per turn, as for connections that are read normally.
                    turn.enqueue(conn);
                    return None;
                }
                Receipt::End => connection.state.ended = true,
                Receipt::Nothing => {}
                Receipt::Pending => return self.await_receipt(conn),
                Receipt::Failed(error) => return self.closed(conn, Some(error)),
            }
        }
        let state = &connection.state;
        if state.ended && state.shut {
            self.end(conn, false);
            return Some(Event::Closed { conn, error: None });
        }
        if state.broken { self.closed(conn, None) } else { self.rest(conn) }
    }

    #[inline(never)]
    fn step_accept(&mut self) -> Option<Event> {
        if self.turn.accepts_left == 0 || self.kernel.clock(|clock| clock.accept_again_at.is_some()) {
            return None;
        }
        self.turn.accepts_left -= 1;
        let accepted = self.kernel.accept()?;
        let registered = accepted.and_then(|(socket, peer, listener)| {
            let conn = self.register(socket, Phase::Open)?;
            if K::READS_ACCEPTED {
                self.turn.connections.at_mut(conn.0.index).state.readable = true;
                self.turn.current = Some(conn);
            }
            Ok(Event::Accepted { conn, peer, listener })
        });
        Some(match registered {
            Ok(accepted) => accepted,
            Err(error) => {
                let again_at = self.turn.now + self.turn.options.accept_pause;
                self.kernel.clock(|clock| {
                    clock.accept_again_at = Some(again_at);
                    clock.needs_alarm();
                });
                Event::AcceptFailed(error)
            }
        })
    }

    /// Ends a `finish` whose peer took too long.
    #[inline(never)]
    fn step_linger(&mut self) -> Option<Event> {
        let conn = self.kernel.clock(|clock| clock.lingers.pop_due())?;
        let socket = &self.turn.connections.get(conn.0)?.socket;
        // Data in the peer's kernel is left to the peer; data that the peer's kernel doesn't accept is
        // dropped.
        let reset = self.kernel.is_unacknowledged(socket);
        self.end(conn, reset);
        Some(Event::Closed { conn, error: None })
    }

    fn register(&mut self, socket: K::Socket, phase: Phase) -> io::Result<ConnId> {
        let conn = ConnId(self.turn.connections.insert(Connection::new(socket, phase)));
        let registered = self.kernel.register(conn, self.turn.connections.at_mut(conn.0.index));
        if registered.is_err() {
            self.turn.connections.remove(conn.0);
        }
        registered.map(|()| conn)
    }

    /// Removes a connection and closes it.
    fn end(&mut self, conn: ConnId, reset: bool) {
        let Some(connection) = self.turn.connections.remove(conn.0) else { return };
        if let Some(linger) = connection.linger {
            self.kernel.clock(|clock| clock.lingers.cancel(linger));
        }
        self.kernel.close(conn, connection, reset);
    }

    /// Ends a connection with an error: the given one, otherwise the one that the kernel knows.
    #[inline(never)]
    fn closed(&mut self, conn: ConnId, error: Option<Errno>) -> Option<Event> {
        let socket = &self.turn.connections.get(conn.0)?.socket;
        let error = error.or_else(|| self.kernel.error(socket)).unwrap_or(Errno::CONNRESET);
        self.end(conn, false);
        Some(Event::Closed { conn, error: Some(error.into()) })
    }

    /// Returns the connection on which a caller sends, or which it detaches.
    #[inline]
    fn idle(&mut self, conn: ConnId) -> Option<(&mut Connection<K::Socket>, &mut K)> {
        let connection = self.turn.open(conn)?;
        let in_flight = self.kernel.is_in_flight(&connection.socket);
        assert!(!in_flight, "a send is in flight on this connection");
        Some((connection, &mut self.kernel))
    }

    #[inline]
    fn sent(&mut self, conn: ConnId, progress: Progress) -> Sending {
        if progress == Progress::Done { Sending::Done } else { self.unsent(conn, progress) }
    }

    fn unsent(&mut self, conn: ConnId, progress: Progress) -> Sending {
        if let Progress::Failed(_) = progress {
            // Bytes received before can still be read. Then, or at once if paused, `Closed` follows.
            self.turn.connections.at_mut(conn.0.index).state.fail();
            self.turn.enqueue(conn);
        } else if self.kernel.submit_send(&mut self.turn, conn, false) {
            return Sending::Done;
        }
        // Most sends need no operation, so room is made for the next one that does.
        self.kernel.make_room(&mut self.turn);
        Sending::InFlight
    }
}

/// A public type that is an [`EventLoop`] inside.
pub(crate) trait Backend {
    type Kernel: Kernel;

    fn event_loop(&self) -> &EventLoop<Self::Kernel>;

    fn event_loop_mut(&mut self) -> &mut EventLoop<Self::Kernel>;
}

impl<B: Backend> Driver for B {
    fn now(&self) -> Instant {
        self.event_loop().turn.now
    }

    fn listen(&mut self, addr: SocketAddr, options: &ListenOptions) -> io::Result<SocketAddr> {
        self.event_loop_mut().kernel.listen(addr, options)
    }

    fn connect(&mut self, remote: SocketAddr, source: Option<IpAddr>) -> io::Result<ConnId> {
        let this = self.event_loop_mut();
        this.kernel.make_room(&mut this.turn);
        let socket = this.kernel.connect(remote, source)?;
        this.register(socket, Phase::Connecting)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.event_loop_mut().wait(timeout)
    }

    #[inline]
    fn next_event(&mut self) -> Option<Event> {
        let this = self.event_loop_mut();
        if this.is_over() { None } else { this.next_event() }
    }

    fn recycle(&mut self, buffer: ReceiveBuffer) {
        self.event_loop_mut().turn.buffers.recycle(buffer);
    }

    fn send(&mut self, conn: ConnId, frames: &mut Vec<Frame>) -> Sending {
        let this = self.event_loop_mut();
        let progress = match this.idle(conn) {
            Some((connection, kernel)) => kernel.send(conn, connection, frames),
            None => Progress::Done,
        };
        // `clear` is a call, which takes 21 of the 993 instructions of a delivery.
        while frames.pop().is_some() {}
        this.sent(conn, progress)
    }

    fn send_bytes(&mut self, conn: ConnId, bytes: &[u8]) -> Sending {
        let this = self.event_loop_mut();
        let Some((connection, kernel)) = this.idle(conn) else { return Sending::Done };
        let progress = kernel.send_bytes(conn, connection, bytes);
        this.sent(conn, progress)
    }

    fn in_flight_bytes(&self, conn: ConnId) -> usize {
        let EventLoop { turn, kernel } = self.event_loop();
        let connection = turn.connections.get(conn.0);
        let open = connection.filter(|connection| connection.state.phase != Phase::Finishing);
        open.map_or(0, |connection| kernel.in_flight_bytes(&connection.socket))
    }

    fn owned_bytes(&self) -> usize {
        self.event_loop().kernel.owned_bytes()
    }

    fn pause(&mut self, conn: ConnId) {
        let turn = &mut self.event_loop_mut().turn;
        if let Some(connection) = turn.open(conn) {
            connection.state.paused = true; // a broken one is in the queue, which reports it
            connection.state.end_reported = false;
            if connection.state.has_end_to_report() {
                turn.enqueue(conn);
            }
        }
    }

    fn resume(&mut self, conn: ConnId) {
        let EventLoop { turn, kernel } = self.event_loop_mut();
        if let Some(connection) = turn.open(conn)
            && std::mem::take(&mut connection.state.paused)
            && (connection.state.readable || kernel.is_receiving(&connection.socket))
        {
            turn.enqueue(conn);
        }
    }

    fn finish(&mut self, conn: ConnId, linger: Duration) {
        let EventLoop { turn, kernel } = self.event_loop_mut();
        // A linger that is too long to be added means forever.
        let until = turn.now.checked_add(linger);
        let Some(connection) = turn.open(conn) else { return };
        connection.linger = until.map(|until| {
            kernel.clock(|clock| {
                clock.needs_alarm();
                clock.lingers.set(until, conn)
            })
        });
        let state = &mut connection.state;
        if state.phase == Phase::Connecting {
            // No peer exists with which to close in order.
            state.ended = true;
            state.shut = true;
        }
        state.phase = Phase::Finishing;
        state.readable = true;
        // A connection whose event was returned last is stepped next.
        if turn.current != Some(conn) {
            turn.enqueue(conn);
        }
    }

    fn close(&mut self, conn: ConnId) {
        let this = self.event_loop_mut();
        if this.turn.open(conn).is_none() {
            return;
        }
        // A send that only waits for its submission is submitted, so it isn't cut off.
        this.kernel.submit_send(&mut this.turn, conn, true);
        this.end(conn, false);
        this.kernel.make_room(&mut this.turn);
    }

    fn detach(&mut self, conn: ConnId) -> Option<DetachedConnection> {
        let this = self.event_loop_mut();
        let (connection, kernel) = this.idle(conn)?;
        if connection.state.phase != Phase::Open || kernel.is_receiving(&connection.socket) {
            return None;
        }
        let (ended, paused) = (connection.state.ended, connection.state.paused);
        let socket = this.kernel.detach(&mut this.turn, conn)?;
        this.kernel.make_room(&mut this.turn);
        Some(DetachedConnection { socket, ended, paused, state: None })
    }

    fn attach(&mut self, detached: DetachedConnection) -> io::Result<ConnId> {
        let this = self.event_loop_mut();
        this.kernel.make_room(&mut this.turn);
        let DetachedConnection { socket, ended, paused, state: _ } = detached;
        let socket = this.kernel.adopt(socket)?;
        let conn = this.register(socket, Phase::Open)?;
        let state = &mut this.turn.connections.at_mut(conn.0.index).state;
        (state.ended, state.paused) = (ended, paused);
        Ok(conn)
    }

    fn connections(&self) -> usize {
        self.event_loop().turn.connections.len()
    }

    fn capacity(&self) -> Capacity {
        self.event_loop().kernel.capacity()
    }

    fn timer_set(&mut self, at: Instant, token: u64) -> TimerId {
        self.event_loop_mut().kernel.clock(|clock| {
            clock.needs_alarm();
            clock.timers.set(at, token)
        })
    }

    fn timer_cancel(&mut self, timer: TimerId) {
        self.event_loop_mut().kernel.clock(|clock| clock.timers.cancel(timer));
    }

    fn waker(&self) -> Waker {
        self.event_loop().kernel.sleeper().waker()
    }

    fn stop_listening(&mut self) {
        let kernel = &mut self.event_loop_mut().kernel;
        kernel.clock(|clock| clock.accept_again_at = None);
        kernel.stop_listening();
    }

    fn pause_accepting(&mut self, is_paused: bool) {
        let this = self.event_loop_mut();
        let again_at = is_paused.then(|| this.turn.now + PAUSE_MAX);
        this.kernel.clock(|clock| clock.accept_again_at = again_at);
    }
}
