//! Nodes on the virtual clock: the same clients, over a simulated network. Time passes only while somebody waits, so no
//! client is too slow for a timeout, however busy the machine is.
//!
//! The simulation belongs to the thread of its test. While there is one, clients connect to it.

use super::PATIENCE;
use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_driver::sim::{self, SimDriver, World};
use stentor_driver::{ConnId, Driver, Event, ListenOptions, Sending};
use stentor_edge::{ControlPlane, Core, DataPlane, Options, simulated};

/// What a client's socket has received.
struct Socket {
    conn: ConnId,
    received: Vec<u8>,
    finished: bool,
    /// The connection is gone.
    closed: bool,
    in_flight: bool,
}

struct Simulation {
    number: u64,
    world: World,
    cores: Vec<Core<SimDriver>>,
    clients: SimDriver,
    addr: SocketAddr,
    sockets: Vec<Socket>,
}

thread_local! {
    static SIMULATION: RefCell<Option<Simulation>> = const { RefCell::new(None) };
    static STARTED: RefCell<u64> = const { RefCell::new(0) };
}

/// Starts the node of this thread.
pub(super) fn start(
    cores: usize,
    options: Options,
    control: Arc<dyn ControlPlane>,
) -> (Arc<dyn DataPlane>, SocketAddr) {
    let world = World::new(1, sim::Options::default());
    let mut addr = SocketAddr::from(([127, 0, 0, 1], 8000));
    let drivers = (0..cores).map(|_| {
        let mut driver = world.driver();
        addr = driver.listen(addr, &ListenOptions::default()).unwrap();
        driver
    });
    let drivers = drivers.collect();
    let (cores, plane) = simulated(options, [1, 2], control, drivers);
    let number = STARTED.with_borrow_mut(|started| {
        *started += 1;
        *started
    });
    let clients = world.driver();
    let simulation = Simulation { number, world, cores, clients, addr, sockets: Vec::new() };
    let before = SIMULATION.replace(Some(simulation));
    assert!(before.is_none(), "one simulation at a time");
    (plane, addr)
}

/// Ends the node of this thread.
pub(super) fn stop() {
    SIMULATION.take();
}

fn with<R>(run: impl FnOnce(&mut Simulation) -> R) -> Option<R> {
    SIMULATION.with_borrow_mut(|simulation| simulation.as_mut().map(run))
}

/// The virtual time.
pub(super) fn now() -> Option<Instant> {
    with(|simulation| simulation.world.now())
}

/// Lets the next thing happen. Returns whether there is a simulation.
pub(super) fn advance() -> bool {
    with(Simulation::step).is_some()
}

/// Lets time pass. Returns whether there is a simulation.
pub(super) fn pass(duration: Duration) -> bool {
    with(|simulation| simulation.world.clone().run_for(duration, || simulation.turn())).is_some()
}

impl Simulation {
    fn socket(&mut self, conn: ConnId) -> &mut Socket {
        self.sockets.iter_mut().find(|socket| socket.conn == conn).unwrap()
    }

    fn step(&mut self) {
        if !self.turn() {
            self.world.step();
        }
    }

    fn turn(&mut self) -> bool {
        let mut had_something = false;
        for core in &mut self.cores {
            had_something |= core.turn(Some(Duration::ZERO)).unwrap();
        }
        self.clients.wait(Some(Duration::ZERO)).unwrap();
        while let Some(event) = self.clients.next_event() {
            had_something = true;
            match event {
                Event::Received { conn, data, .. } => {
                    self.socket(conn).received.extend_from_slice(&data);
                    self.clients.recycle(data);
                }
                Event::PeerFinished(conn) => self.socket(conn).finished = true,
                Event::Sent(conn) => self.socket(conn).in_flight = false,
                Event::Closed { conn, .. } => self.socket(conn).closed = true,
                _ => {}
            }
        }
        had_something
    }

    /// Steps until something is so. An error if it isn't in time.
    fn step_until(&mut self, conn: ConnId, holds: impl Fn(&Socket) -> bool) -> io::Result<&mut Socket> {
        let until = self.world.now() + PATIENCE;
        while !holds(self.socket(conn)) {
            if self.world.now() > until {
                return Err(ErrorKind::TimedOut.into());
            }
            self.step();
        }
        Ok(self.socket(conn))
    }
}

/// A client's socket in the simulation of its thread.
pub(crate) struct Stream {
    simulation: u64,
    conn: ConnId,
}

impl Stream {
    /// Connects to the node of this thread, if there is one.
    pub(super) fn connect() -> Option<Self> {
        with(|simulation| {
            let conn = simulation.clients.connect(simulation.addr, None).unwrap();
            simulation.clients.pause(conn);
            let (received, finished) = (Vec::new(), false);
            let socket = Socket { conn, received, finished, closed: false, in_flight: false };
            simulation.sockets.push(socket);
            Self { simulation: simulation.number, conn }
        })
    }

    fn with<R>(&self, run: impl FnOnce(&mut Simulation) -> R) -> Option<R> {
        with(|simulation| (simulation.number == self.simulation).then(|| run(simulation))).flatten()
    }

    /// Reads what has arrived, or waits for it. A client that isn't reading receives nothing.
    pub(super) fn read(&mut self, bytes: &mut [u8], is_peek: bool) -> io::Result<usize> {
        let read = |simulation: &mut Simulation| {
            simulation.clients.resume(self.conn);
            let has_news = |socket: &Socket| !socket.received.is_empty() || socket.finished || socket.closed;
            let socket = simulation.step_until(self.conn, has_news)?;
            let count = socket.received.len().min(bytes.len());
            bytes[..count].copy_from_slice(&socket.received[..count]);
            let is_reset = count == 0 && socket.closed && !socket.finished;
            if !is_peek {
                socket.received.drain(..count);
            }
            simulation.clients.pause(self.conn);
            if is_reset { Err(ErrorKind::ConnectionReset.into()) } else { Ok(count) }
        };
        self.with(read).expect("the node is there")
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let write = |simulation: &mut Simulation| {
            if simulation.socket(self.conn).closed {
                return Err(ErrorKind::BrokenPipe.into());
            }
            simulation.socket(self.conn).in_flight = true;
            if simulation.clients.send_bytes(self.conn, bytes) == Sending::Done {
                simulation.socket(self.conn).in_flight = false;
            }
            let socket = simulation.step_until(self.conn, |socket| !socket.in_flight || socket.closed)?;
            if socket.in_flight { Err(ErrorKind::BrokenPipe.into()) } else { Ok(bytes.len()) }
        };
        self.with(write).expect("the node is there")
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let conn = self.conn;
        self.with(|simulation| {
            simulation.clients.close(conn);
            simulation.sockets.retain(|socket| socket.conn != conn);
        });
    }
}
