//! A node: its cores, each on a thread of its own.

use crate::core::{Core, Mailboxes};
use crate::listeners::Listeners;
use crate::options::{LISTENERS_MAX, Options};
use crate::ports::ControlPlane;
use inherited::Inherited;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stentor_driver::mailbox;
use stentor_driver::sim::{SimDriver, World};
use stentor_driver::{
    Capacity, Driver, EpollDriver, Kind, ListenOptions, UringDriver, Waker, listening_socket,
};
use stentor_hub::{CORES_MAX, CoreId, Room};
use stentor_session::app::{Application, Chat, Echo, RoomsApp};
use stentor_session::executor::Apps;
use stentor_session::identity::PREFIXES_MAX;
use stentor_session::options::{App, Options as SessionOptions};
use stentor_session::shared::Shared;
use stentor_session::shared::Shared as NodeHandle;

mod inherited;

/// Makes the application of a core.
pub type AppFactory = Arc<dyn Fn(CoreId) -> Box<dyn Application> + Send + Sync>;

/// The choice of the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverChoice {
    /// io_uring if it works, otherwise epoll.
    #[default]
    Auto,
    /// io_uring; the node doesn't start without it.
    IoUring,
    /// epoll.
    Epoll,
}

/// The reason why a node can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address of a listener can't be bound.
    #[error("can't listen at {0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// The configured driver doesn't work on this system.
    #[error("{0}")]
    Driver(String),
    /// An option is invalid.
    #[error("{0}")]
    Options(String),
    /// The system refuses a thread or file descriptor.
    #[error("can't start: {0}")]
    Io(io::Error),
}

/// Properties of a started node, for the log.
#[derive(Clone, Debug)]
pub struct Started {
    /// The first address at which the node listens.
    pub addr: SocketAddr,
    /// All addresses, in the order of [`Options::all_listeners`].
    pub addrs: Vec<SocketAddr>,
    /// The number of cores.
    pub cores: usize,
    /// Maximum number of connections, by the limits and the process's file descriptors. At this number, a new connection replaces
    /// a connection without a complete request.
    pub connections_max: usize,
    /// The driver's name.
    pub driver: &'static str,
    /// The reason for not using io_uring, if the driver was chosen automatically.
    pub fallback_reason: Option<String>,
}

/// Maximum number of listening sockets of a core, because the driver numbers them with a byte.
const SOCKETS_OF_CORE_MAX: usize = 256;

/// Time for which the node retries to bind an address in use. After a process was killed, the kernel still closes its
/// sockets: sockets held by its io_uring took up to 80 ms (Linux 6.18), and more than a second where each core had six
/// threads to run.
const LISTEN_RETRY: Duration = Duration::from_secs(3);
/// Delay between two attempts.
const LISTEN_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The unexpected end of a core. The clients of this core receive nothing, while clients of the other cores are still served. The
/// caller should end the process.
#[derive(Debug)]
pub struct CoreFailed {
    /// The core.
    pub core: CoreId,
    /// The kernel's error; `None` after a panic.
    pub error: Option<io::Error>,
}

impl fmt::Display for CoreFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            Some(error) => write!(f, "core {} has failed: {error}", self.core),
            None => write!(f, "core {} has panicked", self.core),
        }
    }
}

impl std::error::Error for CoreFailed {}

/// The data plane of a process.
pub struct Node {
    shared: Arc<Shared>,
    sockets: Vec<Weak<OwnedFd>>,
    threads: Vec<JoinHandle<()>>,
    /// The result of each core.
    ends: mpsc::Receiver<Result<(), CoreFailed>>,
    started: Started,
}

/// Waits until no other process listens at `addr`, for [`LISTEN_RETRY`].
fn wait_until_unused(addr: SocketAddr) -> io::Result<()> {
    let until = Instant::now() + LISTEN_RETRY;
    loop {
        match stentor_driver::check_unused(addr) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::sleep(LISTEN_RETRY_INTERVAL);
            }
            checked => return checked,
        }
    }
}

/// A core accepts at most one in this many of its maximum of connections per turn.
const ACCEPTS_PART: usize = 8;

/// Interval between checks of the kernel's socket memory.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the blocking work of the cores, until the node is dropped.
fn watch(listeners: &Arc<Listeners>) -> io::Result<()> {
    let listeners = Arc::downgrade(listeners);
    let watch = move || {
        while let Some(listeners) = listeners.upgrade() {
            listeners.look_at_kernel_memory();
            drop(listeners);
            std::thread::sleep(WATCH_INTERVAL);
        }
    };
    std::thread::Builder::new().name("watch".into()).spawn(watch).map(drop)
}

/// Makes a ring from each core to each other core.
fn connect_all(wakers: &[Waker], messages_max: usize) -> Vec<Mailboxes> {
    let cores = wakers.len();
    let mut all: Vec<Mailboxes> = (0..cores).map(|_| Mailboxes::new(cores)).collect();
    for from in 0..cores {
        for to in (0..cores).filter(|to| *to != from) {
            let (sender, receiver) = mailbox::channel(messages_max, wakers[to].clone());
            all[from].to[to] = Some(sender);
            all[to].from[from] = Some(receiver);
        }
    }
    all
}

/// A node in a simulated world. The caller runs [`Core::turn`] of each core, all on one thread.
pub struct Simulated {
    /// The cores.
    pub cores: Vec<Core<SimDriver>>,
    /// The control plane's handle.
    pub plane: Arc<NodeHandle>,
    /// All addresses, in the order of [`Options::all_listeners`].
    pub addrs: Vec<SocketAddr>,
}

/// Starts a node of `options.cores` cores in `world`, with `app` or the built-in application that the options name.
///
/// # Errors
/// An address is in use.
pub fn simulated(
    world: &World,
    options: Options,
    seed: [u64; 2],
    control: Arc<dyn ControlPlane>,
    app: Option<AppFactory>,
) -> io::Result<Simulated> {
    let (apps, driver_options) = (apps(&options, app), driver_options(&options, options.cores));
    let listeners = options.all_listeners();
    let mut addrs: Vec<_> = listeners.iter().map(|listener| listener.address).collect();
    let mut drivers = Vec::with_capacity(options.cores);
    for _ in 0..options.cores {
        let mut driver = world.driver_with(&driver_options);
        for addr in &mut addrs {
            *addr = driver.listen(*addr, &ListenOptions::default())?;
        }
        drivers.push(driver);
    }
    let (shared, listeners) = shared_of(options, drivers.len(), seed, control);
    let wakers: Vec<Waker> = drivers.iter().map(Driver::waker).collect();
    let mailboxes = connect_all(&wakers, shared.initial.limits.mailbox_messages_max);
    let cores = drivers
        .into_iter()
        .zip(mailboxes)
        .enumerate()
        .map(|(core, (driver, mailboxes))| {
            connect_inbox(&shared, core, driver.waker());
            Core::new(driver, core, shared.clone(), listeners.clone(), mailboxes, apps(core))
        })
        .collect();
    Ok(Simulated { cores, plane: shared, addrs })
}

/// The options of a node's drivers.
fn driver_options(options: &Options, cores: usize) -> stentor_driver::Options {
    // The kernel's receive times are for the lab only.
    let mut driver_options =
        stentor_driver::Options { receive_times: false, ..stentor_driver::Options::default() };
    // A small part of the maximum, so that a connection is read before it can be evicted.
    let part = options.limits.connections_max / cores / ACCEPTS_PART;
    driver_options.accepts_per_turn = driver_options.accepts_per_turn.min(part).max(1);
    driver_options
}

/// Makes the state and the listeners that the cores of a node share.
fn shared_of(
    options: Options,
    cores: usize,
    seed: [u64; 2],
    control: Arc<dyn ControlPlane>,
) -> (Arc<Shared>, Arc<Listeners>) {
    let listeners = Arc::new(Listeners::new(&options));
    let of_certificates = listeners.clone();
    let shared = Shared::new(options.session, cores, seed, control, move || of_certificates.expiries());
    (Arc::new(shared), listeners)
}

/// Lets callers of a core's inbox wake the core.
fn connect_inbox(shared: &Shared, core: CoreId, waker: Waker) {
    shared.inbox(core).connect(move || waker.wake());
}

/// The data plane of a node with one core that doesn't run, to list its metrics.
pub fn idle(options: Options, control: Arc<dyn ControlPlane>) -> Arc<NodeHandle> {
    shared_of(options, 1, [0; 2], control).0
}

/// A built-in application.
fn built_in(app: App, options: &SessionOptions) -> Box<dyn Application> {
    match app {
        App::Echo => Box::new(Echo),
        App::Chat => match Room::plain("chat") {
            Ok(room) => Box::new(Chat::new(room)),
            Err(_) => Box::new(Echo),
        },
        App::Rooms => Box::new(RoomsApp::new(options.rooms.clone())),
    }
}

/// Returns a function that makes a core's applications: the given one or the built-in one that the options name, the applications
/// of SockJS prefixes that name another, and the applications of custom protocols.
fn apps(options: &SessionOptions, given: Option<AppFactory>) -> Arc<dyn Fn(CoreId) -> Apps + Send + Sync> {
    let options = options.clone();
    Arc::new(move |core| Apps {
        node: given.as_ref().map_or_else(|| built_in(options.app, &options), |make| make(core)),
        services: (0..PREFIXES_MAX)
            .map(|place| {
                let other = options.prefix(place)?.1;
                other.filter(|app| given.is_some() || *app != options.app).map(|app| built_in(app, &options))
            })
            .chain(options.protocols.iter().map(|protocol| Some((protocol.app)(core))))
            .collect(),
    })
}

impl Node {
    /// Opens the listeners and starts the cores, with `app` or the built-in application that the options name. SockJS
    /// prefixes may name a built-in application of their own.
    ///
    /// # Errors
    /// An option is invalid, the driver does not work here, an address can't be bound, or the system refuses descriptors,
    /// random bytes or threads.
    pub fn start(
        mut options: Options,
        choice: DriverChoice,
        control: Arc<dyn ControlPlane>,
        app: Option<AppFactory>,
    ) -> Result<Self, StartError> {
        options.check().map_err(StartError::Options)?;
        if options.tls.is_none() && options.listeners.iter().any(|listener| listener.tls) {
            return Err(StartError::Options("a listener for TLS needs a certificate".into()));
        }
        // Only the drivers own these sockets, so they are closed when the drivers stop listening.
        let inherited = Inherited(std::mem::take(&mut options.sockets));
        let apps = apps(&options, app);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let cores = if options.cores == 0 { processors } else { options.cores }.min(CORES_MAX);
        let mut seed = [0; 2];
        for word in &mut seed {
            *word = getrandom::u64().map_err(|error| StartError::Io(io::Error::other(error)))?;
        }
        let probe = stentor_driver::probe();
        if choice == DriverChoice::IoUring
            && let Some(why) = probe.fallback_reason
        {
            return Err(StartError::Driver(format!(
                "--driver io_uring: io_uring doesn't work here: {why}; leave the choice to --driver auto, or take \
                 --driver epoll"
            )));
        }
        let driver_options = driver_options(&options, cores);
        let shared = shared_of(options, cores, seed, control);
        if choice != DriverChoice::Epoll && probe.kind == Kind::IoUring {
            let make = move || UringDriver::new(&driver_options);
            Self::run(shared, apps, make, inherited, ("io_uring", None))
        } else {
            let fallback_reason = if choice == DriverChoice::Auto { probe.fallback_reason } else { None };
            let make = move || EpollDriver::new(&driver_options);
            Self::run(shared, apps, make, inherited, ("epoll", fallback_reason))
        }
    }

    fn run<D: Driver + 'static>(
        (shared, listeners): (Arc<Shared>, Arc<Listeners>),
        apps: Arc<dyn Fn(CoreId) -> Apps + Send + Sync>,
        make: impl Fn() -> io::Result<D> + Clone + Send + 'static,
        inherited: Inherited,
        (driver, fallback_reason): (&'static str, Option<String>),
    ) -> Result<Self, StartError> {
        let cores = shared.cores;
        let mut addrs: Vec<SocketAddr> = listeners.all.iter().map(|listener| listener.address).collect();
        if addrs.len() > LISTENERS_MAX {
            return Err(StartError::Options(format!("at most {LISTENERS_MAX} listeners are allowed")));
        }
        // The cores share the ports with each other, and would also share them with another server of the same user.
        for (_, &addr) in addrs.iter().enumerate().filter(|(listener, _)| !inherited.has(*listener)) {
            wait_until_unused(addr).map_err(|error| StartError::Listen(addr, error))?;
        }
        let rounds = inherited.rounds(cores);
        if rounds * addrs.len() > SOCKETS_OF_CORE_MAX {
            let message = format!(
                "{cores} cores can't take over what {} have opened: at most {SOCKETS_OF_CORE_MAX} sockets per core are allowed",
                rounds * cores
            );
            return Err(StartError::Options(message));
        }
        let mut sockets = Vec::new();
        let mut connections_max = shared.initial.limits.connections_max;
        let (ready, readies) = mpsc::channel();
        let (end, ends) = mpsc::channel();
        let mut threads = Vec::with_capacity(cores);
        let mut wakers = Vec::with_capacity(cores);
        let mut go = Vec::with_capacity(cores);
        // A driver belongs to the thread that makes it. Each thread makes its driver and listens. Then all receive their
        // mailboxes, so that the first connection finds all cores connected.
        for core in 0..cores {
            let (mail, mails) = mpsc::channel();
            go.push(mail);
            let (shared, listeners) = (shared.clone(), listeners.clone());
            let (apps, make, ready) = (apps.clone(), make.clone(), ready.clone());
            let (end, addrs_of_first, inherited) = (end.clone(), addrs.clone(), inherited.clone());
            let serve = move || {
                let opened = make().map_err(StartError::Io).and_then(|mut driver| {
                    let mut own = Vec::new();
                    let mut listen = |(listener, addr), round| {
                        let socket = inherited.socket(listener, (round, core, cores));
                        let options = ListenOptions { socket, ..ListenOptions::default() };
                        let listening = listening_socket(addr, &options).and_then(|(socket, _)| {
                            own.push(Arc::downgrade(&socket));
                            driver.listen(addr, &ListenOptions { socket: Some(socket), ..options })
                        });
                        listening.map_err(|error| StartError::Listen(addr, error))
                    };
                    let mut bound = addrs_of_first;
                    for round in 0..rounds {
                        let addrs = bound.into_iter().enumerate();
                        bound = addrs.map(|addr| listen(addr, round)).collect::<Result<_, _>>()?;
                    }
                    Ok((driver, bound, own))
                });
                let driver = match opened {
                    Ok((driver, bound, own)) => {
                        connect_inbox(&shared, core, driver.waker());
                        if ready.send(Ok((bound, own, driver.waker(), driver.capacity()))).is_err() {
                            return Ok(());
                        }
                        driver
                    }
                    Err(error) => {
                        // Sending fails only if the start has already failed.
                        let _ = ready.send(Err(error));
                        return Ok(());
                    }
                };
                drop((ready, inherited));
                let Ok(mailboxes) = mails.recv() else { return Ok(()) };
                let mut core_loop = Core::new(driver, core, shared, listeners, mailboxes, apps(core));
                core_loop.run().map_err(|error| CoreFailed { core, error: Some(error) })
            };
            let thread = std::thread::Builder::new().name(format!("core-{core}")).spawn(move || {
                let ended = catch_unwind(AssertUnwindSafe(serve));
                // The receiver has been dropped only if the start has failed.
                let _ = end.send(ended.unwrap_or(Err(CoreFailed { core, error: None })));
            });
            threads.push(thread.map_err(StartError::Io)?);
            // The cores start one after the other, so that port 0 becomes the port of the first core.
            match readies.recv() {
                Ok(Ok((bound, opened, waker, Capacity { shared: for_all, own }))) => {
                    addrs = bound;
                    sockets.extend(opened);
                    wakers.push(waker);
                    let descriptors = for_all.saturating_add(own.saturating_mul(cores));
                    connections_max = connections_max.min(descriptors);
                }
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(StartError::Io(io::Error::other("a core's thread ended at its start"))),
            }
        }
        for (go, mailboxes) in
            go.into_iter().zip(connect_all(&wakers, shared.initial.limits.mailbox_messages_max))
        {
            if go.send(mailboxes).is_err() {
                return Err(StartError::Io(io::Error::other("a core's thread ended at its start")));
            }
        }
        watch(&listeners).map_err(StartError::Io)?;
        let started = Started { addr: addrs[0], addrs, cores, connections_max, driver, fallback_reason };
        Ok(Self { shared, sockets, threads, ends, started })
    }

    /// The properties of the started node.
    pub fn started(&self) -> &Started {
        &self.started
    }

    /// The listening sockets of all cores while they listen, for a process that takes over.
    pub fn sockets(&self) -> &[Weak<OwnedFd>] {
        &self.sockets
    }

    /// The control plane's handle.
    pub fn plane(&self) -> Arc<NodeHandle> {
        self.shared.clone()
    }

    /// Waits until the node is drained.
    ///
    /// # Errors
    /// A core has failed. Returns at once; the other cores continue.
    pub fn join(self) -> Result<(), CoreFailed> {
        for ended in self.ends.iter().take(self.threads.len()) {
            ended?;
        }
        for thread in self.threads {
            // A thread doesn't panic after it has sent its result.
            let _ = thread.join();
        }
        Ok(())
    }
}
