//! Sockets, listeners and the segments between them.
//!
//! Invariants: bytes of one socket arrive in the order sent, followed by its end or reset; `in_transit` is
//! the sum of its segments in `events`; `outgoing + in_transit <= send_buffer_bytes` and, at the other end,
//! `incoming + in_transit <= receive_buffer_bytes`.

use super::Options;
use crate::slab::{Key, Slab};
use crate::turn::Clock;
use crate::{ConnId, ListenOptions};
use fastrand::Rng;
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Range of ports for sockets that bind to port 0.
const EPHEMERAL: std::ops::Range<u16> = 32768..61000;

/// Delay before a connection that found the accept queue full tries again (as in Linux).
const SYN_RETRY_DELAY: Duration = Duration::from_secs(1);

/// One end of a connection.
pub(super) struct Socket {
    /// The driver and connection that are notified. `None` while the socket is in an accept queue, detached,
    /// or closed with bytes still to send.
    owner: Option<(usize, ConnId)>,
    /// The other end, which may no longer exist.
    other: Option<Key>,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    established: bool,
    outgoing: VecDeque<u8>,
    in_transit: usize,
    incoming: VecDeque<u8>,
    /// `true` if the write side has been shut down: the end of file follows `outgoing`.
    shut: bool,
    end_sent: bool,
    end_received: bool,
    error: Option<Errno>,
    /// `true` if the owner has found the send buffer full.
    blocked: bool,
    /// `true` if the owner has closed the socket, which is removed when its bytes have been sent.
    orphan: bool,
    /// Time at which the socket's last segment arrives.
    last_arrival: Instant,
}

/// A future event on the network.
enum NetworkEvent {
    Syn { from: Key, backlog_full: bool },
    Established { to: Key },
    Refused { to: Key },
    Segment { from: Key, to: Key, bytes: Vec<u8> },
    End { to: Key },
    Reset { to: Key },
}

/// The result of reading.
pub(super) enum Read {
    Bytes(usize),
    Nothing,
    End,
    Failed(Errno),
}

/// A listening address of one driver.
pub(super) struct Listener {
    addr: SocketAddr,
    reuse_port: bool,
    backlog: usize,
    queue: VecDeque<Key>,
}

/// The state of one driver in the network.
pub(super) struct DriverState {
    /// Connections whose sockets have changed.
    pub(super) notices: Vec<ConnId>,
    pub(super) clock: Clock,
    listeners: Vec<Listener>,
    pub(super) accepts_to_fail: u32,
}

/// The simulated network.
pub(super) struct Network {
    options: Options,
    random: Rng,
    now: Instant,
    drivers: Vec<DriverState>,
    sockets: Slab<Socket>,
    events: BTreeMap<(Instant, u64), NetworkEvent>,
    sequence: u64,
    port: u16,
    /// Sockets of detached connections: dropping the connection drops its token, which closes the socket.
    detached: Vec<(Key, Weak<()>)>,
}

impl Network {
    pub(super) fn new(seed: u64, options: Options) -> Self {
        assert!(
            options.segment_bytes_max > 0
                && options.send_buffer_bytes > 0
                && options.receive_buffer_bytes > 0,
            "{options:?}"
        );
        assert!(!options.latency.is_empty(), "{options:?}");
        Self {
            options,
            random: Rng::with_seed(seed),
            now: Instant::now(),
            drivers: Vec::new(),
            sockets: Slab::new(),
            events: BTreeMap::new(),
            sequence: 0,
            port: EPHEMERAL.start,
            detached: Vec::new(),
        }
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    pub(super) fn now(&self) -> Instant {
        self.now
    }

    pub(super) fn driver(&mut self, index: usize) -> &mut DriverState {
        &mut self.drivers[index]
    }

    pub(super) fn add_driver(&mut self) -> usize {
        self.drivers.push(DriverState {
            notices: Vec::new(),
            clock: Clock::new(self.now),
            listeners: Vec::new(),
            accepts_to_fail: 0,
        });
        self.drivers.len() - 1
    }

    /// Removes a driver's listeners and timers.
    pub(super) fn retire(&mut self, driver: usize) {
        self.stop_listening(driver);
        let now = self.now;
        let driver = &mut self.drivers[driver];
        driver.clock = Clock::new(now);
        driver.notices = Vec::new();
    }

    /// Moves the clock to the next event, at most to `limit`. Returns `false` if it stops at `limit`, or
    /// there are no more events.
    pub(super) fn step(&mut self, limit: Option<Instant>) -> bool {
        self.close_dropped_connections();
        let wakes = self.drivers.iter().flat_map(|driver| driver.clock.wakes()).flatten();
        let next = wakes
            .filter(|wake| *wake > self.now)
            .chain(self.events.first_key_value().map(|((at, _), _)| *at))
            .min();
        let Some(next) = next.filter(|next| limit.is_none_or(|limit| *next <= limit)) else {
            self.now = self.now.max(limit.unwrap_or(self.now));
            return false;
        };
        self.now = self.now.max(next);
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 <= self.now
        {
            let event = entry.remove();
            self.handle_event(event);
        }
        true
    }

    fn handle_event(&mut self, event: NetworkEvent) {
        match event {
            NetworkEvent::Syn { from, backlog_full } => self.syn(from, backlog_full),
            NetworkEvent::Established { to } => {
                if let Some(socket) = self.sockets.get_mut(to) {
                    socket.established = true;
                    self.notify(to);
                    self.pump(to);
                }
            }
            NetworkEvent::Refused { to } => self.fail(to, Errno::CONNREFUSED),
            NetworkEvent::Segment { from, to, bytes } => {
                if let Some(socket) = self.sockets.get_mut(from) {
                    socket.in_transit -= bytes.len();
                    if std::mem::take(&mut socket.blocked) {
                        self.notify(from);
                    }
                }
                match self.sockets.get_mut(to) {
                    Some(socket) if !socket.orphan => {
                        socket.incoming.extend(bytes);
                        self.notify(to);
                    }
                    // The bytes will not be read.
                    _ => {
                        self.sockets.remove(to);
                        self.later(self.now, NetworkEvent::Reset { to: from });
                    }
                }
                self.pump(from);
            }
            NetworkEvent::End { to } => {
                if let Some(socket) = self.sockets.get_mut(to) {
                    socket.end_received = true;
                    self.notify(to);
                    self.pump(to);
                }
            }
            NetworkEvent::Reset { to } => self.fail(to, Errno::CONNRESET),
        }
    }

    fn syn(&mut self, from: Key, backlog_full: bool) {
        let Some(client) = self.sockets.get(from) else { return };
        let (addr, peer) = (client.remote, client.local);
        let mut found: Vec<(usize, usize)> = self.listening(addr).collect();
        if found.is_empty() {
            return self.later(self.now, NetworkEvent::Refused { to: from });
        }
        let (driver, nth) = found.swap_remove(self.random.usize(..found.len()));
        let listener = &self.drivers[driver].listeners[nth];
        if listener.queue.len() >= listener.backlog.max(1) {
            let at = if backlog_full { self.now + SYN_RETRY_DELAY } else { self.now };
            return self.later(at, NetworkEvent::Syn { from, backlog_full: true });
        }
        let socket = self.socket(addr, peer);
        if let Some(socket) = self.sockets.get_mut(socket) {
            socket.other = Some(from);
            socket.established = true;
        }
        if let Some(client) = self.sockets.get_mut(from) {
            client.other = Some(socket);
        }
        self.drivers[driver].listeners[nth].queue.push_back(socket);
        self.later(self.now, NetworkEvent::Established { to: from });
    }

    /// Iterates over the listeners for `addr`: those at exactly that address, otherwise those at all
    /// addresses.
    fn listening(&self, addr: SocketAddr) -> impl Iterator<Item = (usize, usize)> {
        let all = |ip: IpAddr| SocketAddr::new(ip, addr.port());
        let v4 = addr.is_ipv4().then_some(all(Ipv4Addr::UNSPECIFIED.into()));
        let candidates = [Some(addr), v4, Some(all(Ipv6Addr::UNSPECIFIED.into()))];
        let at = move |addr: SocketAddr| {
            self.drivers.iter().enumerate().flat_map(move |(driver, entry)| {
                let here = move |(_, listener): &(usize, &Listener)| listener.addr == addr;
                entry.listeners.iter().enumerate().filter(here).map(move |(nth, _)| (driver, nth))
            })
        };
        candidates.into_iter().flatten().find(|addr| at(*addr).next().is_some()).into_iter().flat_map(at)
    }

    pub(super) fn listen(
        &mut self,
        driver: usize,
        mut addr: SocketAddr,
        options: &ListenOptions,
    ) -> io::Result<SocketAddr> {
        while addr.port() == 0 || self.port_is_taken(addr, options.reuse_port) {
            if addr.port() != 0 {
                return Err(Errno::ADDRINUSE.into());
            }
            let port = self.next_port();
            if self.listening(SocketAddr::new(addr.ip(), port)).next().is_none() {
                addr.set_port(port);
            }
        }
        let backlog = options.backlog as usize;
        let listener = Listener { addr, reuse_port: options.reuse_port, backlog, queue: VecDeque::new() };
        self.drivers[driver].listeners.push(listener);
        Ok(addr)
    }

    fn port_is_taken(&self, addr: SocketAddr, reuse_port: bool) -> bool {
        let mut listeners = self.drivers.iter().flat_map(|driver| &driver.listeners);
        listeners.any(|listener| listener.addr == addr && !(reuse_port && listener.reuse_port))
    }

    fn next_port(&mut self) -> u16 {
        self.port = if self.port + 1 < EPHEMERAL.end { self.port + 1 } else { EPHEMERAL.start };
        self.port
    }

    /// Closes the listeners of a driver and resets the connections in their queues.
    pub(super) fn stop_listening(&mut self, driver: usize) {
        for listener in std::mem::take(&mut self.drivers[driver].listeners) {
            for socket in listener.queue {
                self.close(socket, true);
            }
        }
    }

    /// Returns `true` if a driver has a connection to accept.
    pub(super) fn may_accept(&self, driver: usize) -> bool {
        self.drivers[driver].listeners.iter().any(|listener| !listener.queue.is_empty())
    }

    /// Accepts the next connection for a driver, from the fullest queue. Returns it with the number of its
    /// listener.
    pub(super) fn accept(&mut self, driver: usize) -> Option<io::Result<(Key, u8)>> {
        if !self.may_accept(driver) {
            return None;
        }
        let by_chance = self.random.u32(..1_000_000) < self.options.accept_failures_per_million;
        let driver = &mut self.drivers[driver];
        if driver.accepts_to_fail > 0 || by_chance {
            driver.accepts_to_fail = driver.accepts_to_fail.saturating_sub(1);
            return Some(Err(Errno::MFILE.into()));
        }
        let fullest =
            driver.listeners.iter_mut().enumerate().max_by_key(|(_, listener)| listener.queue.len());
        let (nth, listener) = fullest?;
        Some(Ok((listener.queue.pop_front()?, u8::try_from(nth).unwrap_or(u8::MAX))))
    }

    pub(super) fn connect(&mut self, remote: SocketAddr, source: Option<IpAddr>) -> io::Result<Key> {
        let loopback: IpAddr =
            if remote.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        let source = source.unwrap_or(loopback);
        if source.is_ipv4() != remote.is_ipv4() {
            return Err(Errno::AFNOSUPPORT.into());
        }
        let local = SocketAddr::new(source, self.next_port());
        let socket = self.socket(local, remote);
        self.later(self.now, NetworkEvent::Syn { from: socket, backlog_full: false });
        Ok(socket)
    }

    fn socket(&mut self, local: SocketAddr, remote: SocketAddr) -> Key {
        self.sockets.insert(Socket {
            owner: None,
            other: None,
            local,
            remote,
            established: false,
            outgoing: VecDeque::new(),
            in_transit: 0,
            incoming: VecDeque::new(),
            shut: false,
            end_sent: false,
            end_received: false,
            error: None,
            blocked: false,
            orphan: false,
            last_arrival: self.now,
        })
    }

    /// Gives a socket to a driver and notifies it at once.
    pub(super) fn set_owner(&mut self, socket: Key, driver: usize, conn: ConnId) {
        if let Some(entry) = self.sockets.get_mut(socket) {
            entry.owner = Some((driver, conn));
            self.notify(socket);
        }
    }

    pub(super) fn remote(&self, socket: Key) -> SocketAddr {
        self.sockets.at(socket.index).remote
    }

    /// Returns whether a connection has been established, or the reason why it never will be.
    pub(super) fn established(&self, socket: Key) -> Result<bool, Errno> {
        let socket = self.sockets.get(socket).ok_or(Errno::NOTCONN)?;
        socket.error.map_or(Ok(socket.established), Err)
    }

    /// Returns the reason why a connection is broken.
    pub(super) fn error(&self, socket: Key) -> Option<Errno> {
        self.sockets.get(socket)?.error
    }

    /// Returns `true` if the other end has finished sending, and all its bytes have arrived.
    pub(super) fn has_received_end(&self, socket: Key) -> bool {
        self.sockets.get(socket).is_some_and(|socket| socket.end_received)
    }

    /// Returns the number of bytes that haven't arrived.
    pub(super) fn unacknowledged_bytes(&self, socket: Key) -> usize {
        self.sockets.get(socket).map_or(0, |socket| socket.outgoing.len() + socket.in_transit)
    }

    /// Returns the room for more bytes to send. After a result of 0, the network notifies the owner when
    /// there is room.
    pub(super) fn room(&mut self, socket: Key) -> Result<usize, Errno> {
        let socket = self.sockets.get_mut(socket).ok_or(Errno::PIPE)?;
        if let Some(error) = socket.error {
            return Err(error);
        }
        if !socket.established {
            return Ok(0); // `Established` notifies
        }
        let room = self.options.send_buffer_bytes - socket.outgoing.len() - socket.in_transit;
        socket.blocked = room == 0;
        Ok(room)
    }

    /// Takes bytes to send, at most as many as there is room for.
    pub(super) fn write(&mut self, socket: Key, bytes: &[u8]) {
        if let Some(entry) = self.sockets.get_mut(socket) {
            entry.outgoing.extend(bytes);
            self.pump(socket);
        }
    }

    /// Reads the available bytes; at their end, returns the reason why there are no more.
    pub(super) fn read(&mut self, key: Key, buffer: &mut [u8]) -> Read {
        let Some(socket) = self.sockets.get_mut(key) else { return Read::End };
        let len = socket.incoming.len().min(buffer.len());
        if len > 0 {
            take(&mut socket.incoming, &mut buffer[..len]);
            // The receive window has opened.
            if let Some(other) = socket.other {
                self.pump(other);
            }
            return Read::Bytes(len);
        }
        match socket.error {
            Some(error) => Read::Failed(error),
            None if socket.end_received => Read::End,
            None => Read::Nothing,
        }
    }

    /// Shuts down the write side after the remaining bytes.
    pub(super) fn shut(&mut self, socket: Key) {
        if let Some(entry) = self.sockets.get_mut(socket) {
            entry.shut = true;
            self.pump(socket);
        }
    }

    /// Closes a socket: by a reset if requested or if bytes are unread, otherwise in order.
    pub(super) fn close(&mut self, key: Key, reset: bool) {
        let Some(socket) = self.sockets.get_mut(key) else { return };
        socket.owner = None;
        if socket.error.is_some() {
            self.sockets.remove(key);
        } else if reset || !socket.established || !socket.incoming.is_empty() {
            let (other, after) = (socket.other, socket.last_arrival.max(self.now));
            if let Some(other) = other {
                self.later(after, NetworkEvent::Reset { to: other });
            }
            self.sockets.remove(key);
        } else {
            socket.orphan = true;
            self.shut(key);
        }
    }

    /// Resets both ends, now.
    pub(super) fn reset_both(&mut self, socket: Key) {
        let other = self.sockets.get(socket).and_then(|socket| socket.other);
        self.fail(socket, Errno::CONNRESET);
        if let Some(other) = other {
            self.fail(other, Errno::CONNRESET);
        }
    }

    /// Takes a socket from its driver, until [`Network::attach`] or until the token is dropped.
    pub(super) fn detach(&mut self, socket: Key) -> Arc<()> {
        let token = Arc::new(());
        if let Some(entry) = self.sockets.get_mut(socket) {
            entry.owner = None;
        }
        self.detached.push((socket, Arc::downgrade(&token)));
        token
    }

    /// Returns `true` if the token was made by [`Network::detach`] of this world; the token is used up.
    pub(super) fn attach(&mut self, socket: Key, token: &Arc<()>) -> bool {
        let weak = Arc::downgrade(token);
        let position = self.detached.iter().position(|(key, other)| *key == socket && other.ptr_eq(&weak));
        position.map(|position| self.detached.swap_remove(position)).is_some()
    }

    fn close_dropped_connections(&mut self) {
        while let Some(lost) = self.detached.iter().position(|(_, token)| token.strong_count() == 0) {
            let (socket, _) = self.detached.swap_remove(lost);
            self.close(socket, false);
        }
    }

    /// Sends as many bytes as the other end has room for, in segments of random length, and then the end.
    fn pump(&mut self, key: Key) {
        loop {
            let Some(socket) = self.sockets.get(key).filter(|socket| socket.established) else { return };
            let Some(other) = socket.other else { return };
            let from = socket.last_arrival.max(self.now);
            if socket.outgoing.is_empty() {
                if socket.shut && !socket.end_sent {
                    self.later_from(key, from, NetworkEvent::End { to: other });
                    let socket = self.sockets.at_mut(key.index);
                    socket.end_sent = true;
                }
                if self.sockets.get(key).is_some_and(|socket| socket.orphan && socket.end_received) {
                    self.sockets.remove(key);
                }
                return;
            }
            // All bytes can be sent to a closed end; it answers with a reset.
            let window = self.sockets.get(other).map_or(usize::MAX, |other| {
                (self.options.receive_buffer_bytes - other.incoming.len()).saturating_sub(socket.in_transit)
            });
            let len_max = window.min(socket.outgoing.len()).min(self.options.segment_bytes_max);
            if len_max == 0 {
                return;
            }
            if self.random.u32(..1_000_000) < self.options.resets_per_million {
                return self.reset_both(key);
            }
            let len = self.random.usize(1..=len_max);
            let socket = self.sockets.at_mut(key.index);
            let mut bytes = vec![0; len];
            take(&mut socket.outgoing, &mut bytes);
            socket.in_transit += len;
            self.later_from(key, from, NetworkEvent::Segment { from: key, to: other, bytes });
        }
    }

    fn later_from(&mut self, key: Key, from: Instant, event: NetworkEvent) {
        // Relative to now, but never before earlier segments.
        let at = (self.now + self.latency()).max(from);
        self.sockets.at_mut(key.index).last_arrival = at;
        self.put(at, event);
    }

    fn later(&mut self, from: Instant, event: NetworkEvent) {
        let at = from + self.latency();
        self.put(at, event);
    }

    fn put(&mut self, at: Instant, event: NetworkEvent) {
        self.events.insert((at, self.sequence), event);
        self.sequence += 1;
    }

    fn latency(&mut self) -> Duration {
        let (min, max) = (self.options.latency.start(), self.options.latency.end());
        let spread = u64::try_from((*max - *min).as_nanos()).unwrap_or(u64::MAX);
        *min + Duration::from_nanos(self.random.u64(..=spread))
    }

    fn fail(&mut self, key: Key, error: Errno) {
        let Some(socket) = self.sockets.get_mut(key) else { return };
        if socket.orphan {
            self.sockets.remove(key);
            return;
        }
        socket.error.get_or_insert(error);
        socket.outgoing.clear();
        self.notify(key);
    }

    fn notify(&mut self, socket: Key) {
        if let Some((driver, conn)) = self.sockets.get(socket).and_then(|socket| socket.owner) {
            self.drivers[driver].notices.push(conn);
        }
    }
}

/// Moves the first bytes of a queue into a buffer, as many as it holds.
fn take(queue: &mut VecDeque<u8>, buffer: &mut [u8]) {
    let (first, second) = queue.as_slices();
    let (begin, end) = buffer.split_at_mut(first.len().min(buffer.len()));
    begin.copy_from_slice(&first[..begin.len()]);
    end.copy_from_slice(&second[..end.len()]);
    queue.drain(..buffer.len());
}
