//! State that the cores of a node share, and the interface to the control plane.

mod command;
mod draining;
mod fullest;
mod gather;
pub(crate) mod limits;
pub mod link;
pub(crate) mod link_tasks;
mod moving;
mod node_sessions;
mod ports;
mod presence;
mod subscribers;
pub mod tasks;

use draining::NodeDrain;

use crate::ledger::{Charge, Class, Ledger, Pressure};
use crate::metrics::CoreMetrics;
use crate::moved::SessionIds;
use crate::options::Options;
use crate::ports::{Busy, ControlPlane, REQUESTERS_MAX};
use crate::refusal_log::RefusalLog;
pub use command::{ControlCommand, SocketCommand};
use limits::SharedLimits;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use stentor_hub::{CoreId, Key, Requester};

/// A core moves a new connection to the least loaded core only if the difference of their connections is above this number.
const IMBALANCE_MIN: usize = 32;

type Queue = Vec<ControlCommand>;

/// Maximum number of unfinished tasks per core.
const TASKS_MAX: usize = 1_024;

/// The inbox of a core: bounded in messages and bytes.
pub struct Inbox {
    queue: Mutex<Queue>,
    waiting: AtomicUsize,
    /// Number of unfinished tasks, including those that the core has taken.
    tasks: AtomicUsize,
    /// Bytes of the unfinished commands, including those that the core has taken.
    charge: Charge,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
    messages_max: usize,
    bytes_max: usize,
}

impl Inbox {
    fn new(ledger: Arc<Ledger>, messages_max: usize, bytes_max: usize) -> Self {
        Self {
            queue: Mutex::default(),
            waiting: AtomicUsize::new(0),
            tasks: AtomicUsize::new(0),
            charge: Charge::new(ledger, Class::Inboxes),
            wake: OnceLock::new(),
            messages_max,
            bytes_max,
        }
    }

    /// Sets the function that wakes the core.
    pub fn connect(&self, wake: impl Fn() + Send + Sync + 'static) {
        // Only one core may use an inbox. A second call is a bug.
        assert!(self.wake.set(Box::new(wake)).is_ok());
    }

    /// Returns `true` if no command waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0
    }

    /// Returns `true` if the inbox has room for a command. A command of any size fits into an empty inbox.
    fn has_room(&self, queue: &Queue, is_task: bool, bytes: usize) -> bool {
        let tasks = self.tasks.load(Ordering::Relaxed);
        if is_task && tasks >= TASKS_MAX {
            return false;
        }
        let is_full = queue.len() >= self.messages_max;
        let has_bytes = self.charge.bytes() + bytes <= self.bytes_max;
        (!is_full && has_bytes) || (queue.is_empty() && tasks == 0)
    }

    fn push(&self, queue: &mut Queue, command: ControlCommand, bytes: usize) {
        if command.is_task() {
            self.tasks.fetch_add(1, Ordering::Relaxed);
        }
        queue.push(command);
        self.charge.add(bytes);
        self.waiting.store(queue.len(), Ordering::SeqCst);
    }

    /// Adds a command.
    ///
    /// # Errors
    /// The inbox is full. The command is given back.
    pub fn put(&self, command: ControlCommand) -> Result<(), Box<ControlCommand>> {
        let bytes = command.bytes();
        {
            let mut queue = self.queue.lock();
            if !self.has_room(&queue, command.is_task(), bytes) {
                return Err(Box::new(command));
            }
            self.push(&mut queue, command, bytes);
        }
        self.wake();
        Ok(())
    }

    /// Adds a command even if the inbox is full. The caller must wait until the command is done before it adds the next one.
    pub(crate) fn put_always(&self, command: ControlCommand) {
        let bytes = command.bytes();
        self.push(&mut self.queue.lock(), command, bytes);
        self.wake();
    }

    /// Subtracts the bytes of a command that the core has carried out. The command's publications count themselves.
    pub fn carried_out(&self, bytes: usize) {
        self.charge.subtract(bytes);
    }

    /// Subtracts the bytes of a task that the core has finished.
    pub fn task_finished(&self, bytes: usize) {
        self.tasks.fetch_sub(1, Ordering::Relaxed);
        self.charge.subtract(bytes);
    }

    /// Takes all waiting commands. `None` if there are none. Commands stay charged until [`Inbox::carried_out`] or
    /// [`Inbox::task_finished`]. Never blocks.
    pub fn take(&self) -> Option<Vec<ControlCommand>> {
        if self.is_empty() {
            return None;
        }
        // If another thread holds the lock, the core tries again in its next turn: it doesn't sleep while commands wait.
        let mut queue = self.queue.try_lock()?;
        self.waiting.store(0, Ordering::SeqCst);
        Some(std::mem::take(&mut queue))
    }

    /// Wakes the core.
    pub fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }
}

/// The pending report about a key for the control plane.
#[derive(Default)]
pub(crate) struct Demand {
    wanted: bool,
    requesters: Vec<Requester>,
}

/// The pending reports about all keys for the control plane.
pub(crate) struct Demands<'a>(MutexGuard<'a, BTreeMap<Key, Demand>>);

impl Demands<'_> {
    pub(crate) fn set_wanted(&mut self, key: Key, wanted: bool) {
        let demand = self.0.entry(key).or_default();
        demand.wanted = wanted;
        if !wanted {
            demand.requesters.clear();
        }
    }

    /// Adds a session that requests a key without a state.
    pub(crate) fn add_requester(&mut self, key: Key, requester: Requester) {
        let demand = self.0.entry(key).or_default();
        demand.wanted = true;
        if demand.requesters.len() < REQUESTERS_MAX && !demand.requesters.contains(&requester) {
            demand.requesters.push(requester);
        }
    }
}

/// The part of a core that other threads use.
pub struct SharedCore {
    /// Commands for the core.
    pub inbox: Inbox,
    /// Number of connections.
    pub load: AtomicUsize,
    /// While memory is short: the bytes of the largest suspended socket and of the largest other holder.
    pub largest: [AtomicUsize; 2],
    /// Bytes of the messages in the rings to each core. They aren't charged, because the messages' publications count themselves
    /// in the ledger.
    mail_bytes: Vec<AtomicUsize>,
    /// The metrics.
    pub metrics: Arc<CoreMetrics>,
}

/// State that the cores of a node share.
pub struct Shared {
    /// The options at the start, for those that can't change. The current values of other options are in
    /// [`Executor::options`](crate::executor::Executor::options).
    pub initial: Arc<Options>,
    /// Number of cores.
    pub cores: usize,
    /// A random seed, drawn at the start.
    pub seed: [u64; 2],
    /// The memory held for clients.
    pub ledger: Arc<Ledger>,
    /// The cores, by their numbers.
    pub each: Vec<SharedCore>,
    pub(crate) ids: SessionIds,
    /// Counts and limits of addresses and users.
    pub limits: SharedLimits,
    /// The control plane.
    pub control: Arc<dyn ControlPlane>,
    /// Returns the times at which the certificates for TLS expire.
    expiries: Box<dyn Fn() -> Vec<(PathBuf, Duration)> + Send + Sync>,
    wanted: Mutex<BTreeMap<Key, Demand>>,
    drain: NodeDrain,
    pub(crate) refusals: RefusalLog,
    /// `true` if a publication was refused because memory was short, and [`ControlPlane::space`] hasn't been called since.
    refused_for_memory: AtomicBool,
    /// Number of cores with messages that wait for the broker.
    behind_broker: AtomicUsize,
    /// Number of connections that are relayed to other nodes.
    relayed: Arc<AtomicUsize>,
}

impl Shared {
    /// Makes the state of a node's cores. `expiries` returns the times at which the node's certificates expire.
    pub fn new(
        options: Options,
        cores: usize,
        seed: [u64; 2],
        control: Arc<dyn ControlPlane>,
        expiries: impl Fn() -> Vec<(PathBuf, Duration)> + Send + Sync + 'static,
    ) -> Self {
        let limits = &options.limits;
        let own = || Arc::new(Ledger::new(limits.memory_bytes_max));
        let ledger = options.ledger.clone().unwrap_or_else(own);
        let inbox = || Inbox::new(ledger.clone(), limits.inbox_messages_max, limits.inbox_bytes_max);
        let core = || SharedCore {
            inbox: inbox(),
            load: AtomicUsize::new(0),
            largest: Default::default(),
            mail_bytes: (0..cores).map(|_| AtomicUsize::new(0)).collect(),
            metrics: Arc::default(),
        };
        Self {
            cores,
            seed,
            each: (0..cores).map(|_| core()).collect(),
            ids: SessionIds::new(seed, cores, options.broker.as_deref()),
            limits: SharedLimits::new(&options, seed, &ledger),
            control,
            expiries: Box::new(expiries),
            wanted: Mutex::default(),
            drain: NodeDrain::default(),
            refusals: RefusalLog::default(),
            refused_for_memory: AtomicBool::new(false),
            behind_broker: AtomicUsize::new(0),
            relayed: Arc::default(),
            ledger,
            initial: Arc::new(options),
        }
    }

    pub(crate) fn hub_options(&self, core: CoreId, options: &Options) -> stentor_hub::Options {
        let limits = &options.limits;
        stentor_hub::Options {
            core,
            cores: self.cores,
            seed: self.seed,
            send_buffer_bytes_max: limits.send_buffer_bytes_max,
            subscriptions_max: limits.subscriptions_max,
            topics_max: limits.topics_max,
            room_history: options.rooms.history.clone(),
            patches: stentor_hub::PatchLimits {
                patches_max: limits.feed_patches_max,
                bytes_max: limits.feed_patches_bytes_max,
            },
            feed_interval_min: limits.feed_interval_min,
            external_positions: options.broker.as_ref().is_some_and(|broker| broker.orders_history()),
            presence: self.presence_options(),
            recovery: options.engine.recovery.map(|recovery| stentor_hub::RecoveryLimits {
                bytes_max: recovery.bytes_max,
                age_max: recovery.age_max,
            }),
            reports_rooms: options.broker.is_some(),
            live: self.ledger.publications.clone(),
        }
    }

    /// Locks the pending reports for the control plane, to change them.
    pub(crate) fn demands(&self) -> Demands<'_> {
        Demands(self.wanted.lock())
    }

    /// Bytes of the messages in the ring from one core to another. Both cores change the number.
    pub fn mail_bytes(&self, from: CoreId, to: CoreId) -> &AtomicUsize {
        &self.each[from].mail_bytes[to]
    }

    /// The inbox of a core.
    pub fn inbox(&self, core: CoreId) -> &Inbox {
        &self.each[core].inbox
    }

    /// The metrics of all cores, by their numbers.
    fn each_metrics(&self) -> Vec<Arc<CoreMetrics>> {
        self.each.iter().map(|core| core.metrics.clone()).collect()
    }

    /// The inboxes of all cores, by their numbers.
    pub fn inboxes(&self) -> impl Iterator<Item = &Inbox> {
        self.each.iter().map(|core| &core.inbox)
    }

    /// The least loaded core, if the connections of `core` exceed its connections by more than `IMBALANCE_MIN` and by more than an
    /// eighth.
    pub fn much_less_loaded_than(&self, core: CoreId) -> Option<CoreId> {
        let load = |core: CoreId| self.each[core].load.load(Ordering::Relaxed);
        let least = (0..self.cores).min_by_key(|core| load(*core))?;
        (load(core) > load(least) + IMBALANCE_MIN && load(core) > load(least) + load(least) / 8)
            .then_some(least)
    }

    /// Notifies the control plane that memory is available again, if a publication was refused. Called from time to time while
    /// the process is within its budget.
    pub fn notify_space(&self) {
        if self.refused_for_memory.swap(false, Ordering::SeqCst) {
            self.control.space();
        }
    }
}

impl Shared {
    /// Returns `true` if publications are refused because memory is used up. If so, [`ControlPlane::space`] is called when they
    /// are accepted again.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        let is_full = self.ledger.pressure() == Pressure::Full;
        if is_full {
            self.refused_for_memory.store(true, Ordering::SeqCst);
        }
        is_full
    }

    /// Returns `true` if publications of the control plane are refused because the broker is busy. If so, [`ControlPlane::space`]
    /// is called when they are accepted again.
    pub(crate) fn is_broker_behind(&self) -> bool {
        self.behind_broker.load(Ordering::SeqCst) > 0
    }

    /// Records that messages of a core wait for the broker, or no longer do.
    pub fn set_broker_behind(&self, is_behind: bool) {
        if is_behind {
            self.behind_broker.fetch_add(1, Ordering::SeqCst);
        } else if self.behind_broker.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.control.space();
        }
    }

    /// Adds commands for several cores: all commands or none.
    pub(crate) fn put_together(&self, mut commands: Vec<(CoreId, ControlCommand)>) -> Result<(), Busy> {
        // Inboxes are locked in the order of the cores, so that two callers never wait for each other.
        commands.sort_by_key(|(core, _)| *core);
        {
            let mut queues: Vec<(CoreId, MutexGuard<'_, Queue>)> = Vec::new();
            for (core, command) in &commands {
                let inbox = self.inbox(*core);
                if queues.last().is_none_or(|(last, _)| last != core) {
                    queues.push((*core, inbox.queue.lock()));
                }
                let has_room = |queue: &Queue| inbox.has_room(queue, command.is_task(), command.bytes());
                if !queues.last().is_some_and(|(_, queue)| has_room(queue)) {
                    return Err(Busy);
                }
            }
            let mut queues = queues.iter_mut().peekable();
            for (core, command) in commands {
                while queues.next_if(|(of, _)| *of != core).is_some() {}
                if let Some((_, queue)) = queues.peek_mut() {
                    let bytes = command.bytes();
                    self.inbox(core).push(queue, command, bytes);
                }
            }
        }
        self.inboxes().filter(|inbox| !inbox.is_empty()).for_each(Inbox::wake);
        Ok(())
    }
}
