//! Drivers that talk to each other on one thread, and the rules that every turn must obey.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use stentor_driver::{
    ConnId, DetachedConnection, Driver, Event, Frame, ListenOptions, ReceiveBuffer, Sending,
};

/// Time after which a case that waits for the kernel has failed. The simulation detects this without it.
const PATIENCE: Duration = Duration::from_secs(60);

/// An event of a driver, without the received bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Accepted(ConnId, SocketAddr),
    AcceptFailed(Option<i32>),
    Connected(ConnId),
    PeerFinished(ConnId),
    EndPending(ConnId),
    Sent(ConnId),
    Closed(ConnId, Option<io::ErrorKind>),
    Timer(u64),
    Woken,
}

/// One driver, and its returned events.
pub(crate) struct Side {
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) log: Vec<Seen>,
    pub(crate) received: HashMap<ConnId, Vec<u8>>,
    /// The listener of each accepted connection.
    pub(crate) listeners: HashMap<ConnId, u8>,
    /// If `Some`, buffers are kept and not recycled.
    pub(crate) keep: Option<Vec<(ConnId, ReceiveBuffer)>>,
    /// Address of the receive buffer of each read.
    pub(crate) addresses: Vec<usize>,
    /// Called when a timer fires.
    pub(crate) on_timer: fn(&mut dyn Driver, u64),
    dead: HashSet<ConnId>,
    finishing: HashSet<ConnId>,
}

impl Side {
    fn new(driver: Box<dyn Driver>) -> Self {
        Self {
            driver,
            log: Vec::new(),
            received: HashMap::new(),
            listeners: HashMap::new(),
            keep: None,
            addresses: Vec::new(),
            on_timer: |_, _| {},
            dead: HashSet::new(),
            finishing: HashSet::new(),
        }
    }

    pub(crate) fn saw(&self, seen: &Seen) -> bool {
        self.log.contains(seen)
    }

    pub(crate) fn count(&self, seen: &Seen) -> usize {
        self.log.iter().filter(|other| *other == seen).count()
    }

    pub(crate) fn accepted(&self) -> Vec<(ConnId, SocketAddr)> {
        let accepted = |seen: &Seen| match *seen {
            Seen::Accepted(conn, peer) => Some((conn, peer)),
            _ => None,
        };
        self.log.iter().filter_map(accepted).collect()
    }

    pub(crate) fn closed(&self, conn: ConnId) -> Option<Option<io::ErrorKind>> {
        self.log.iter().find_map(|seen| match *seen {
            Seen::Closed(other, error) if other == conn => Some(error),
            _ => None,
        })
    }

    pub(crate) fn bytes(&self, conn: ConnId) -> &[u8] {
        self.received.get(&conn).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn listen(&mut self, addr: &str) -> SocketAddr {
        self.driver.listen(addr.parse().unwrap(), &ListenOptions::default()).unwrap()
    }

    pub(crate) fn send(&mut self, conn: ConnId, frames: impl IntoIterator<Item = Frame>) -> Sending {
        let mut frames: Vec<Frame> = frames.into_iter().collect();
        let capacity = frames.capacity();
        let sending = self.driver.send(conn, &mut frames);
        assert!(frames.is_empty() && frames.capacity() == capacity);
        sending
    }

    pub(crate) fn close(&mut self, conn: ConnId) {
        self.driver.close(conn);
        self.dead.insert(conn);
    }

    pub(crate) fn finish(&mut self, conn: ConnId, linger: Duration) {
        self.driver.finish(conn, linger);
        self.finishing.insert(conn);
    }

    pub(crate) fn detach(&mut self, conn: ConnId) -> Option<DetachedConnection> {
        let detached = self.driver.detach(conn);
        if detached.is_some() {
            self.dead.insert(conn);
        }
        detached
    }

    pub(crate) fn attach(&mut self, detached: DetachedConnection) -> ConnId {
        let conn = self.driver.attach(detached).unwrap();
        self.dead.remove(&conn);
        conn
    }

    /// Runs one turn. Returns its number of events.
    pub(crate) fn turn(&mut self, timeout: Option<Duration>) -> usize {
        self.driver.wait(timeout).unwrap();
        let mut read = HashSet::new();
        let mut events = 0;
        while let Some(event) = self.driver.next_event() {
            events += 1;
            let (conn, seen) = match event {
                Event::Received { conn, data, at } => {
                    assert!(!data.is_empty(), "an empty read");
                    assert!(at >= self.driver.now());
                    assert!(read.insert(conn), "two reads in one turn");
                    self.received.entry(conn).or_default().extend_from_slice(&data);
                    self.addresses.push(data.as_ptr() as usize);
                    match &mut self.keep {
                        Some(kept) => kept.push((conn, data)),
                        None => self.driver.recycle(data),
                    }
                    (Some(conn), None)
                }
                Event::Accepted { conn, peer, listener } => {
                    self.listeners.insert(conn, listener);
                    (Some(conn), Some(Seen::Accepted(conn, peer)))
                }
                Event::AcceptFailed(error) => (None, Some(Seen::AcceptFailed(error.raw_os_error()))),
                Event::Connected(conn) => (Some(conn), Some(Seen::Connected(conn))),
                Event::PeerFinished(conn) => (Some(conn), Some(Seen::PeerFinished(conn))),
                Event::EndPending(conn) => (Some(conn), Some(Seen::EndPending(conn))),
                Event::Sent(conn) => (Some(conn), Some(Seen::Sent(conn))),
                Event::Closed { conn, error } => {
                    assert!(!self.dead.contains(&conn), "closed twice");
                    self.finishing.remove(&conn);
                    assert_eq!(self.driver.in_flight_bytes(conn), 0);
                    let kind = error.map(|error| error.kind());
                    self.log.push(Seen::Closed(conn, kind));
                    self.dead.insert(conn);
                    (None, None)
                }
                Event::Timer(token) => {
                    (self.on_timer)(&mut *self.driver, token);
                    (None, Some(Seen::Timer(token)))
                }
                Event::Woken => (None, Some(Seen::Woken)),
            };
            if let Some(conn) = conn {
                assert!(!self.dead.contains(&conn), "an event of a dead connection: {seen:?}");
                assert!(!self.finishing.contains(&conn), "an event of a finishing connection: {seen:?}");
            }
            self.log.extend(seen);
        }
        events
    }
}

/// A server, a client, and another driver (to which connections move, or which shares the port).
pub(crate) struct Pair {
    pub(crate) server: Side,
    pub(crate) client: Side,
    pub(crate) other: Side,
    /// More bytes than the buffers of two sockets hold.
    pub(crate) large_bytes: usize,
    /// Moves a virtual clock to the next event; returns `false` if there is none. `None` for a real clock.
    advance: Option<Box<dyn FnMut() -> bool>>,
}

impl Pair {
    /// Makes a pair of drivers with a real clock: of the server, the client and the other side.
    pub(crate) fn new(drivers: [Box<dyn Driver>; 3], large_bytes: usize) -> Self {
        let [server, client, other] = drivers.map(Side::new);
        Self { server, client, other, large_bytes, advance: None }
    }

    /// Makes a pair of drivers whose virtual clock `advance` moves.
    pub(crate) fn simulated(
        drivers: [Box<dyn Driver>; 3],
        large_bytes: usize,
        advance: impl FnMut() -> bool + 'static,
    ) -> Self {
        Self { advance: Some(Box::new(advance)), ..Self::new(drivers, large_bytes) }
    }

    /// Runs a turn of each driver. Returns the number of events.
    pub(crate) fn turn(&mut self) -> usize {
        let zero = Some(Duration::ZERO);
        self.server.turn(zero) + self.client.turn(zero) + self.other.turn(zero)
    }

    /// Lets time pass until the next event. Returns `false` if there is none to wait for.
    fn idle(&mut self) -> bool {
        match &mut self.advance {
            Some(advance) => advance(),
            None => {
                std::thread::yield_now();
                true
            }
        }
    }

    /// Lets time pass without a turn of the server or the client.
    pub(crate) fn pass(&mut self, duration: Duration) {
        let fired = self.other.log.len();
        self.other.driver.timer_set(self.other.driver.now() + duration, u64::MAX);
        while self.other.log.len() == fired {
            assert!(self.other.turn(Some(Duration::ZERO)) > 0 || self.idle());
        }
    }

    /// Runs turns until `done` returns `true`.
    #[track_caller]
    pub(crate) fn until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            if self.turn() > 0 || done(self) {
                continue;
            }
            let over = !self.idle() || begun.elapsed() > PATIENCE;
            assert!(!over, "never: server {:?}, client {:?}", tail(&self.server.log), tail(&self.client.log));
        }
    }

    /// Opens a connection from the client to the server. Returns its two ends (server's, client's).
    #[track_caller]
    pub(crate) fn connect(&mut self, addr: SocketAddr) -> (ConnId, ConnId) {
        let before = self.server.accepted().len();
        let near = self.client.driver.connect(addr, None).unwrap();
        self.until(|pair| pair.client.saw(&Seen::Connected(near)) && pair.server.accepted().len() > before);
        (self.server.accepted()[before].0, near)
    }

    /// Opens this many connections to a new listener at the same time. Returns the server's ends and the
    /// client's.
    #[track_caller]
    pub(crate) fn connect_many(&mut self, count: usize) -> (Vec<ConnId>, Vec<ConnId>) {
        let (addr, before) = (self.server.listen("127.0.0.1:0"), self.server.accepted().len());
        let near: Vec<_> = (0..count).map(|_| self.client.driver.connect(addr, None).unwrap()).collect();
        self.until(|pair| {
            pair.server.accepted().len() == before + count
                && near.iter().all(|conn| pair.client.saw(&Seen::Connected(*conn)))
        });
        (self.server.accepted()[before..].iter().map(|(conn, _)| *conn).collect(), near)
    }

    /// Like [`Pair::connect`], to a new listener.
    #[track_caller]
    pub(crate) fn connected(&mut self) -> (ConnId, ConnId) {
        let addr = self.server.listen("127.0.0.1:0");
        self.connect(addr)
    }

    /// Makes a round trip over a new connection. Afterwards all earlier events of the kernel have been
    /// returned.
    #[track_caller]
    pub(crate) fn barrier(&mut self) {
        let (far, near) = self.connected();
        self.client.send(near, [Frame::from_static(b"?")]);
        self.until(|pair| pair.server.bytes(far) == b"?");
        self.server.send(far, [Frame::from_static(b"!")]);
        self.until(|pair| pair.client.bytes(near) == b"!");
        self.client.close(near);
        self.until(|pair| pair.server.saw(&Seen::PeerFinished(far)));
        self.server.close(far);
    }
}

fn tail(log: &[Seen]) -> &[Seen] {
    &log[log.len().saturating_sub(20)..]
}

/// Makes bytes in which a comparison detects lost, repeated and moved parts.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|at| ((at + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}
