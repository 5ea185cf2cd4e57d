//! Nodes on the virtual clock: the same clients, over a simulated network. Time passes only while a client waits, so no
//! client is too slow for a timeout, however busy the machine is.
//!
//! A simulation belongs to the thread of its test, and holds all nodes and clients of this thread. It begins with the
//! first node, and ends when the last node and the last client are dropped.

use super::PATIENCE;
use fastrand::Rng;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_driver::sim::{self, SimDriver, World};
use stentor_driver::{ConnId, Driver, Event, Sending};
use stentor_edge::{AppFactory, Core, Options, Simulated, simulated};
use stentor_ports::ControlPlane;

/// Time that passes in one step if no timer is set and no data is in flight.
const IDLE_STEP: Duration = Duration::from_secs(1);

/// Size of the server's send buffers. Smaller than a kernel's, so that slow clients are noticed sooner.
const SEND_BUFFER_BYTES: usize = 256 * 1024;

/// A client's socket, with bytes that it has received, and bytes that it hasn't sent yet.
#[derive(Default)]
struct Socket {
    is_connected: bool,
    received: Vec<u8>,
    waiting: Vec<u8>,
    in_flight: bool,
    /// `true` if the server has finished sending.
    finished: bool,
    /// `true` if the connection has ended.
    closed: bool,
}

struct Node {
    /// The cores that haven't finished, with their numbers.
    cores: Vec<(usize, Core<SimDriver>)>,
    stopped: Option<usize>,
}

struct Simulation {
    world: World,
    random: Rng,
    nodes: HashMap<u64, Node>,
    clients: SimDriver,
    sockets: HashMap<ConnId, Socket>,
}

thread_local! {
    static SIMULATION: RefCell<Option<Simulation>> = const { RefCell::new(None) };
    /// Number of started nodes, from which the seed of the next node is made.
    static STARTED: Cell<u64> = const { Cell::new(0) };
}

fn with<R>(run: impl FnOnce(&mut Simulation) -> R) -> Option<R> {
    SIMULATION.with_borrow_mut(|simulation| simulation.as_mut().map(run))
}

/// Starts a node. Returns its number and the node.
pub(super) fn start(
    options: Options,
    control: Arc<dyn ControlPlane>,
    app: Option<AppFactory>,
) -> (u64, Simulated) {
    SIMULATION.with_borrow_mut(|simulation| {
        let simulation = simulation.get_or_insert_with(|| {
            let options = sim::Options { send_buffer_bytes: SEND_BUFFER_BYTES, ..sim::Options::default() };
            let world = World::new(1, options);
            let clients = world.driver();
            let (nodes, sockets) = (HashMap::new(), HashMap::new());
            Simulation { world, random: Rng::with_seed(1), nodes, clients, sockets }
        });
        let number = STARTED.get() + 1;
        STARTED.set(number);
        let mut node = simulated(&simulation.world, options, [number, 2], control, app).unwrap();
        let cores = std::mem::take(&mut node.cores).into_iter().enumerate().collect();
        simulation.nodes.insert(number, Node { cores, stopped: None });
        (number, node)
    })
}

/// Lets a node run until all of its cores have finished. Returns `false` if they don't finish in time.
pub(super) fn join(number: u64) -> bool {
    with(|simulation| {
        let until = simulation.world.now() + PATIENCE;
        while !simulation.nodes[&number].cores.is_empty() && simulation.world.now() < until {
            simulation.step();
        }
        simulation.nodes[&number].cores.is_empty()
    })
    .unwrap()
}

/// Stops a core. With `false`, the core continues.
pub(super) fn stop_core(number: u64, core: usize, is_stopped: bool) {
    with(|simulation| simulation.nodes.get_mut(&number).unwrap().stopped = is_stopped.then_some(core))
        .unwrap();
}

/// Removes a node.
pub(super) fn remove(number: u64) {
    drop(with(|simulation| simulation.nodes.remove(&number)));
    end_if_unused();
}

fn end_if_unused() {
    let is_unused =
        |simulation: &mut Simulation| simulation.nodes.is_empty() && simulation.sockets.is_empty();
    if with(is_unused) == Some(true) {
        SIMULATION.take();
    }
}

/// The virtual time. `None` without a simulation.
pub(super) fn now() -> Option<Instant> {
    with(|simulation| simulation.world.now())
}

/// Advances the simulation by one step. Returns `false` if there is no simulation.
pub(crate) fn advance() -> bool {
    with(Simulation::step).is_some()
}

/// Lets time pass.
pub(crate) fn pass(duration: Duration) {
    with(|simulation| simulation.run_for(duration)).expect("a node on the virtual clock");
}

impl Simulation {
    fn step(&mut self) {
        if !self.turn() && !self.world.step() {
            self.run_for(IDLE_STEP);
        }
    }

    fn run_for(&mut self, duration: Duration) {
        self.world.clone().run_for(duration, || self.turn());
    }

    /// Runs a turn of all cores, beginning with one that the seed chooses, and of all clients. Returns `true` if there
    /// was work.
    fn turn(&mut self) -> bool {
        let mut had_something = false;
        for node in self.nodes.values_mut() {
            node.cores.retain_mut(|(_, core)| !core.is_finished());
            let first = self.random.usize(..=node.cores.len());
            let (before, after) = node.cores.split_at_mut(first);
            for (_, core) in
                after.iter_mut().chain(before).filter(|(number, _)| node.stopped != Some(*number))
            {
                had_something |= core.turn(Some(Duration::ZERO)).unwrap();
            }
        }
        self.clients.wait(Some(Duration::ZERO)).unwrap();
        while let Some(event) = self.clients.next_event() {
            had_something = true;
            self.client_event(event);
        }
        had_something
    }

    fn client_event(&mut self, event: Event) {
        let (Event::Connected(conn)
        | Event::Received { conn, .. }
        | Event::PeerFinished(conn)
        | Event::Sent(conn)
        | Event::Closed { conn, .. }) = event
        else {
            return;
        };
        let Some(socket) = self.sockets.get_mut(&conn) else { return };
        match event {
            Event::Received { data, .. } => {
                socket.received.extend_from_slice(&data);
                self.clients.recycle(data);
            }
            Event::Connected(_) => socket.is_connected = true,
            Event::PeerFinished(_) => socket.finished = true,
            Event::Sent(_) => {
                socket.in_flight = false;
                self.flush(conn);
            }
            _ => socket.closed = true,
        }
    }

    fn socket(&mut self, conn: ConnId) -> &mut Socket {
        self.sockets.get_mut(&conn).unwrap()
    }

    fn flush(&mut self, conn: ConnId) {
        let Some(socket) = self.sockets.get_mut(&conn) else { return };
        if !socket.in_flight && !socket.waiting.is_empty() {
            let bytes = std::mem::take(&mut socket.waiting);
            socket.in_flight = self.clients.send_bytes(conn, &bytes) == Sending::InFlight;
        }
    }

    /// Advances the simulation until `holds` returns `true`. Returns an error if it doesn't in time.
    fn step_until(
        &mut self,
        conn: ConnId,
        patience: Duration,
        holds: impl Fn(&Socket) -> bool,
    ) -> io::Result<&mut Socket> {
        let until = self.world.now() + patience;
        while !holds(self.socket(conn)) {
            if self.world.now() > until {
                return Err(ErrorKind::TimedOut.into());
            }
            self.step();
        }
        Ok(self.socket(conn))
    }
}

/// A client's connection in the simulation of this thread.
pub(crate) struct Stream(ConnId);

impl Stream {
    /// Connects in the simulation of this thread, if there is one.
    pub(super) fn connect(addr: SocketAddr, source: Option<IpAddr>) -> Option<io::Result<Self>> {
        with(|simulation| {
            let conn = simulation.clients.connect(addr, source)?;
            simulation.clients.pause(conn);
            simulation.sockets.insert(conn, Socket::default());
            let socket =
                simulation.step_until(conn, PATIENCE, |socket| socket.is_connected || socket.closed)?;
            if socket.closed {
                simulation.sockets.remove(&conn);
                return Err(ErrorKind::ConnectionRefused.into());
            }
            Ok(Self(conn))
        })
    }

    fn with<R>(&self, run: impl FnOnce(&mut Simulation, ConnId) -> R) -> R {
        with(|simulation| run(simulation, self.0)).expect("a thread keeps its clients")
    }

    /// Reads received bytes, or waits for some. The socket receives only during this call.
    pub(super) fn read(&mut self, bytes: &mut [u8], is_peek: bool) -> io::Result<usize> {
        self.with(|simulation, conn| {
            simulation.clients.resume(conn);
            let has_news = |socket: &Socket| !socket.received.is_empty() || socket.finished || socket.closed;
            let socket = simulation.step_until(conn, PATIENCE, has_news)?;
            let count = socket.received.len().min(bytes.len());
            bytes[..count].copy_from_slice(&socket.received[..count]);
            let is_reset = count == 0 && socket.closed && !socket.finished;
            if !is_peek {
                socket.received.drain(..count);
            }
            simulation.clients.pause(conn);
            if is_reset { Err(ErrorKind::ConnectionReset.into()) } else { Ok(count) }
        })
    }

    /// Sends without waiting.
    pub(super) fn enqueue(&self, bytes: &[u8]) {
        self.with(|simulation, conn| {
            simulation.socket(conn).waiting.extend_from_slice(bytes);
            simulation.flush(conn);
            simulation.turn();
        });
    }

    /// Waits until all bytes are sent, for at most `patience`.
    pub(super) fn wait_sent(&self, patience: Duration) -> io::Result<()> {
        self.with(|simulation, conn| {
            let socket =
                simulation.step_until(conn, patience, |socket| !socket.in_flight || socket.closed)?;
            if socket.closed { Err(ErrorKind::BrokenPipe.into()) } else { Ok(()) }
        })
    }

    pub(super) fn is_open(&self) -> bool {
        self.with(|simulation, conn| !simulation.socket(conn).closed)
    }

    pub(super) fn reset(&self) {
        self.with(|simulation, conn| simulation.world.reset(&simulation.clients, conn));
    }

    pub(super) fn finish_sending(&self) {
        self.wait_sent(PATIENCE).unwrap();
        self.with(|simulation, conn| simulation.world.finish_sending(&simulation.clients, conn));
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let conn = self.0;
        with(|simulation| {
            simulation.clients.close(conn);
            simulation.sockets.remove(&conn);
        });
        end_if_unused();
    }
}
