//! One core of the data plane: one driver, the protocol stacks of its connections, one hub shard.
//!
//! A turn: gather events, handle each (answers leave at once), take in what other cores and the control
//! plane sent, then send what sessions are owed. What gathered for a session during a turn leaves as one
//! vectored send; where much is published in a turn, some leaves in between, so that nobody is taken for
//! slow who had no chance to read.
//!
//! **Invariants.** At most one send is in flight per connection. A connection's answers (`replies`) leave
//! before what its session is owed. A connection whose answers aren't read, or whose publications other
//! cores can't take in, isn't read from: nothing here grows with what a client does, but for the bounds in
//! [`crate::options::Limits`]. A turn that leaves something to do for the next one doesn't let it sleep.

mod carry;
mod client;
mod commands;
mod end;
mod engine;
mod events;
mod eviction;
mod handlers;
mod http;
mod mail;
mod memory;
mod page;
mod primus;
mod recovery;
mod request;
mod routes;
mod send;
mod socket;
mod socketio;
mod sockjs;
mod table;
mod turn;
mod wishes;

pub(crate) use client::Clients;
pub(crate) use handlers::Facts;
pub(crate) use mail::Mailboxes;
pub(crate) use socketio::Sockets;

use crate::app::{Acks, Action, Application};
use crate::encode::{FeedEvents, Formats};
use crate::ledger::{Pressure, Report};
use crate::millis::{Clock, Millis};
use crate::shared::Shared;
use client::{ClientId, End, Sids};
use engine::moving::Departed;
use handlers::{About, AppTimer};
use memory::{Release, Relief};
use recovery::Suspension;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use stentor_driver::{ConnId, Driver, Event, Frame};
use stentor_hub::{CoreId, Disconnect, Hub, SubscribeError};
use stentor_wire::http1;
use stentor_wire::ws;
use table::{Again, Kept, Table};
use turn::{Budget, CpuSampler};

/// Interval after which a full ring to another core, or a frame that another core encodes, is checked again.
const CORES_RETRY: Duration = Duration::from_millis(1);
/// What a client is told whose topic can't be taken in.
const TOO_MANY_TOPICS: &str =
    "the maximum of feeds and rooms is reached (limits.topics_max, limits.memory_bytes_max)";
pub(crate) const TOO_MANY_COLD_KEYS: &str =
    "the maximum of new feeds is reached (limits.cold_keys_max, feeds_limits.keys_max); try again later";
/// How often limits that no event guards are looked at.
const TICK: Duration = Duration::from_secs(1);
/// The timer's token of the tick; connections' tokens are above 2⁶³, the application's between.
const TICK_TOKEN: u64 = 0;
/// The timer's token for the end of a drain's time: all that it does is to end a wait.
const DRAINED_TOKEN: u64 = 1;
/// The timer's token for what sessions get at their own rate: all that it does is to end a wait.
const RATE_TOKEN: u64 = 2;
/// The timer token for the next round of making room. The timer only ends a wait.
const RELIEF_TOKEN: u64 = 3;
const APP_TOKEN: u64 = 1 << 62;
/// A timer's token that names a client.
const CLIENT_TOKEN: u64 = 1 << 61;
/// The hub's tag of a session that belongs to a client, not to a connection.
const CLIENT_TAG: u64 = 1 << 63;
/// The hub's tag of a session whose client is lost.
const SUSPENDED_TAG: u64 = 1 << 62;

fn client_token(id: ClientId) -> u64 {
    CLIENT_TOKEN | id.to_bits()
}

fn client_tag(id: ClientId) -> u64 {
    CLIENT_TAG | id.to_bits()
}

/// The reason to end a session whose subscription is refused.
fn why_refused(error: SubscribeError) -> Disconnect {
    match error {
        SubscribeError::TooManySubscriptions => Disconnect::BadRequest,
        SubscribeError::TooManyTopics | SubscribeError::TooManyColdKeys => Disconnect::Overloaded,
    }
}

/// Who a session belongs to.
#[derive(Clone, Copy)]
enum Owner {
    /// A connection, by its index.
    Connection(usize),
    Client(ClientId),
}

/// What has to wait until what is being handled has been answered.
enum Later {
    End(ClientId, End),
    /// To the core that keeps what it lost.
    Depart(ClientId, CoreId),
    Close(ConnId),
    /// The messages of a SockJS client's WebSocket can't be understood.
    Broken(ConnId),
    Flush(usize),
    /// It holds more memory than is allowed now.
    Overload(ConnId),
}

/// The applications of a core: the node's, and those of SockJS prefixes that have others, by their place.
pub(crate) struct Apps {
    pub(crate) node: Box<dyn Application>,
    pub(crate) services: Vec<Option<Box<dyn Application>>>,
}

/// A connection that begins on this core, with what was read of it already.
struct Incoming {
    conn: ConnId,
    peer: SocketAddr,
    buffer: Vec<u8>,
    /// The client has finished sending.
    finished: bool,
    /// A request whose body hasn't all been dealt with.
    kept: Option<Box<Kept>>,
}

/// One core.
pub struct Core<D: Driver> {
    driver: D,
    shared: Arc<Shared>,
    facts: Facts,
    clock: Clock,
    hub: Hub<Formats>,
    app: Box<dyn Application>,
    /// What is different for each SockJS prefix, by its place in the options.
    services: Vec<sockjs::Prefix>,
    table: Table,
    clients: Clients,
    suspended: Suspension,
    /// Where clients are that began here and were moved.
    departed: Departed,
    sids: Sids,
    /// The rest of the current message, if it is left for later.
    again: Option<Again>,
    report: Report,
    relief: Relief,
    release: Release,
    /// Moved out while messages are taken out of what was received.
    ws: Option<Box<ws::Shared>>,
    http_limits: http1::Limits,
    mailboxes: Mailboxes,
    tasks: commands::Tasks,
    /// Bytes that leave with the event being handled: one buffer for all connections.
    cork: Vec<u8>,
    frames: Vec<Frame>,
    actions: Vec<Action>,
    later: Vec<Later>,
    acks: Acks,
    app_timers: slab::Slab<AppTimer>,
    /// Connections whose next request or message can be looked at.
    revisit: VecDeque<usize>,
    /// The same, but not before other events have had their turn.
    next_turn: Vec<usize>,
    /// Connections left by earlier turns.
    left: VecDeque<usize>,
    /// Connections whose messages wait until no other message is half inflated.
    waiting_to_inflate: VecDeque<ConnId>,
    budget: Budget,
    cpu: CpuSampler,
    /// About how many bytes were published since sessions were last sent what they are owed.
    published_bytes: usize,
    /// How many of them by connections that were revisited in this turn.
    revisited_bytes: usize,
    /// Beyond that many, they are sent it at once.
    published_bytes_max: usize,
    /// Connections not read from until the mailboxes of other cores have room.
    waiting_for_cores: Vec<ConnId>,
    /// Something for another core didn't fit into its ring.
    mail_waits: bool,
    /// When the timer for rates fires.
    rates_due: Option<Instant>,
    draining: bool,
    logged_at: Option<Instant>,
}

impl<D: Driver> Core<D> {
    /// A core that listens already, as number `core` of the node.
    pub(crate) fn new(
        driver: D,
        core: CoreId,
        shared: Arc<Shared>,
        mailboxes: Mailboxes,
        apps: Apps,
    ) -> Self {
        let options = &shared.options;
        let now = driver.now();
        let feeds =
            FeedEvents { name: options.engine.feed_event.clone(), as_string: options.engine.feed_as_string };
        let deflate = options.deflate;
        let formats = Formats::new(shared.ledger.frames.clone(), deflate.level, deflate.bytes_min, feeds);
        let hub = Hub::new(shared.hub_options(core), formats);
        let ws_limits = ws::Limits {
            message_bytes_max: options.limits.message_bytes_max,
            fragments_max: options.limits.fragments_max,
        };
        let mut core = Self {
            driver,
            facts: Facts {
                now,
                millis: Clock::new(now).at(now),
                core,
                seed: shared.seed,
                heartbeat_interval: options.heartbeat.interval,
                json_depth_max: options.limits.json_depth_max,
                authorizer: options.authorizer.clone(),
                pressure: Pressure::None,
                refusals: Cell::new(0),
            },
            clock: Clock::new(now),
            hub,
            app: apps.node,
            services: sockjs::prefixes(&options.sockjs, &options.origins, apps.services),
            table: Table::default(),
            clients: Clients::default(),
            suspended: Suspension::default(),
            departed: Departed::default(),
            sids: Sids::default(),
            again: None,
            report: Report::new(shared.ledger.clone()),
            relief: Relief::default(),
            release: Release::default(),
            ws: Some(Box::new(ws::Shared::new(ws_limits))),
            http_limits: http1::Limits {
                header_bytes_max: options.limits.header_bytes_max,
                headers_max: options.limits.headers_max,
                ..http1::Limits::default()
            },
            mailboxes,
            tasks: commands::Tasks::default(),
            cork: Vec::with_capacity(16 * 1024),
            frames: Vec::new(),
            actions: Vec::new(),
            later: Vec::new(),
            acks: Acks::default(),
            app_timers: slab::Slab::new(),
            revisit: VecDeque::new(),
            next_turn: Vec::new(),
            left: VecDeque::new(),
            waiting_to_inflate: VecDeque::new(),
            budget: Budget::new(options.limits.turn_bytes_max),
            cpu: CpuSampler::default(),
            published_bytes: 0,
            revisited_bytes: 0,
            published_bytes_max: options.limits.send_buffer_bytes_max / 4,
            waiting_for_cores: Vec::new(),
            mail_waits: false,
            rates_due: None,
            draining: false,
            logged_at: None,
            shared,
        };
        core.driver.timer_set(now + TICK, TICK_TOKEN);
        core
    }

    /// Runs until the node is drained.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        while !self.is_finished() {
            self.turn(None)?;
        }
        Ok(())
    }

    /// Whether the node drains and nothing is left to do here, or the time for it is over.
    pub(crate) fn is_finished(&self) -> bool {
        let Some(until) = self.shared.drain_until() else { return false };
        let idle = self.driver.connections() == 0 && self.mailboxes.is_empty();
        self.draining && (idle || self.facts.now >= until)
    }

    /// Waits for events, at most `timeout`, and handles them. Says whether there was anything to do.
    pub fn turn(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        if self.has_left() {
            self.resume_left();
        }
        let commands_wait = self.has_commands();
        let busy = !self.mailboxes.is_empty()
            || !self.revisit.is_empty()
            || self.has_left()
            || commands_wait
            || self.shared.drain_until().is_some() != self.draining;
        let timeout = match timeout {
            _ if busy => Some(Duration::ZERO),
            // Neither the reader of a full ring nor a core that encodes a frame sends a notification, so check again
            // soon.
            timeout if self.mail_waits || self.hub.awaits_encodings() => {
                Some(timeout.unwrap_or(CORES_RETRY).min(CORES_RETRY))
            }
            timeout => timeout,
        };
        self.driver.wait(timeout)?;
        self.revisited_bytes = 0;
        self.budget.begin_turn();
        self.cpu.begin_turn();
        self.facts.now = self.driver.now();
        self.facts.millis = self.clock.at(self.facts.now);
        self.hub.handle_time(self.facts.now);
        self.mind_memory();
        if self.shared.drain_until().is_some() && !self.draining {
            self.drain();
        }
        let mut had_something = busy;
        while let Some(event) = self.driver.next_event() {
            had_something = true;
            self.handle(event);
            self.pump_if_much_was_published();
        }
        self.take_mail();
        self.take_commands();
        self.pump();
        self.set_rate_timer();
        self.record_load();
        self.report_memory();
        self.shared.metrics[self.facts.core].record(
            &self.hub,
            self.table.count(),
            &self.clients,
            self.suspended.count(),
            self.waiting_for_cores.len(),
        );
        if self.cpu.is_sampled() {
            let taken = self.cpu.end_turn();
            self.metrics().turn_cpu.record(taken);
        }
        Ok(had_something)
    }

    /// Makes sure that a wait ends when something that was held may leave.
    fn set_rate_timer(&mut self) {
        let Some(at) = self.hub.poll_timeout() else { return };
        if self.rates_due.is_none_or(|due| at < due) {
            self.rates_due = Some(at);
            self.driver.timer_set(at, RATE_TOKEN);
        }
    }

    /// The shard, for tests that look inside.
    pub fn hub(&self) -> &Hub<impl stentor_hub::Encoder> {
        &self.hub
    }

    fn millis(&self) -> Millis {
        self.facts.millis
    }

    fn metrics(&self) -> &crate::metrics::CoreMetrics {
        &self.shared.metrics[self.facts.core]
    }

    /// Tells the other cores how many connections there are here, those that are being finished included.
    fn record_load(&self) {
        self.shared.loads[self.facts.core].store(self.driver.connections(), Ordering::Relaxed);
    }

    /// Whether something that strangers cause may be logged now: they must not fill the log.
    fn once_a_second(&mut self) -> bool {
        let now = self.facts.now;
        let due = self.logged_at.is_none_or(|at| now.saturating_duration_since(at) >= Duration::from_secs(1));
        if due {
            self.logged_at = Some(now);
        }
        due
    }

    /// Deals with one event of the driver.
    fn handle(&mut self, event: Event) {
        match event {
            Event::Accepted { conn, peer } => self.accepted(conn, peer),
            Event::AcceptFailed(error) => {
                self.metrics().accept_errors.add(1);
                if self.once_a_second() {
                    tracing::warn!(%error, "could not accept a connection; trying again in 100 ms");
                }
            }
            Event::Received { conn, mut data, at: _ } => {
                if let Some(index) = self.table.index_of(conn) {
                    self.metrics().received_bytes.add(data.len() as u64);
                    self.budget.begin();
                    self.received(index, &mut data);
                }
                self.driver.recycle(data);
            }
            Event::PeerFinished(conn) => {
                if let Some(index) = self.table.index_of(conn) {
                    self.finished(index);
                }
            }
            Event::Sent(conn) => {
                if let Some(index) = self.table.index_of(conn) {
                    self.sent(index);
                }
            }
            Event::Closed { conn, .. } => {
                if let Some(index) = self.table.index_of(conn) {
                    self.forget(index);
                }
            }
            Event::Timer(token) => self.timer(token),
            // The core opens no connections, and mail is looked at in each turn.
            Event::Connected(_) | Event::Woken => {}
        }
    }

    fn timer(&mut self, token: u64) {
        match (table::named_by(token), token) {
            (Some((index, serial)), _) => {
                if self.table.get(index).is_some_and(|conn| conn.serial == serial) {
                    self.due(index);
                }
            }
            (None, TICK_TOKEN) => self.tick(),
            (None, DRAINED_TOKEN | RELIEF_TOKEN) => {}
            // One that was overtaken by an earlier one does no harm.
            (None, RATE_TOKEN) => self.rates_due = None,
            (None, token) if token & APP_TOKEN != 0 => self.app_due((token - APP_TOKEN) as usize),
            (None, token) => {
                if let Some(id) = self.clients.of_bits(token - CLIENT_TOKEN) {
                    self.client_due(id);
                }
            }
        }
    }

    fn tick(&mut self) {
        self.driver.timer_set(self.facts.now + TICK, TICK_TOKEN);
        self.hub.handle_tick(self.facts.now);
        self.expire_suspended();
        if self.facts.core == 0 && self.shared.ledger.pressure() < Pressure::Full {
            self.shared.tell_space();
        }
        self.metrics().publications_refused.set(self.facts.refusals.get());
        #[cfg(debug_assertions)]
        self.check_holdings();
        self.release_unused_memory();
        self.metrics().record_past(self.hub.history_stats(), self.hub.log_stats());
    }

    /// Does what handlers asked for, and sends what sessions are owed and what other cores are to know.
    fn pump(&mut self) {
        if !self.is_quiet() {
            self.work_off();
        }
        self.published_bytes = 0;
        self.send_mail();
    }

    /// Whether there is nothing to work off, as in most turns that only answer.
    fn is_quiet(&self) -> bool {
        self.hub.is_quiet()
            && self.later.is_empty()
            && self.actions.is_empty()
            && self.revisit.is_empty()
            && self.left.is_empty()
    }

    fn work_off(&mut self) {
        loop {
            if let Some(notice) = self.hub.poll_notice() {
                self.notice(&notice);
            } else if let Some((session, _, why)) = self.hub.poll_terminating() {
                self.disconnect(session, why);
            } else if let Some(later) = self.later.pop() {
                match later {
                    Later::End(id, end) => self.end_client(id, end),
                    Later::Depart(id, core) => self.depart_or_stay(id, core),
                    Later::Close(conn) => {
                        if let Some(index) = self.table.index_of(conn) {
                            self.close_socket(index, 1000, "");
                        }
                    }
                    Later::Broken(conn) => {
                        if let Some(index) = self.table.index_of(conn) {
                            self.close_broken_sockjs(index);
                        }
                    }
                    Later::Flush(index) => self.flush(index),
                    Later::Overload(conn) => {
                        if let Some(index) = self.table.index_of(conn) {
                            self.refuse_input(index);
                        }
                    }
                }
            } else if !self.actions.is_empty() {
                self.act();
            } else if let Some((_, tag)) = self.hub.poll_ready() {
                self.cpu.pause();
                let mut next = Some(tag);
                while let Some(tag) = next {
                    match self.owner(tag) {
                        Some(Owner::Connection(index)) => self.flush(index),
                        Some(Owner::Client(id)) => self.flush_client(id),
                        None => {}
                    }
                    next = self.hub.poll_ready().map(|(_, tag)| tag);
                }
                self.cpu.resume();
            } else if self.revisited_bytes <= self.published_bytes_max {
                // Last, because it may publish more. What is in flight on io_uring is with the kernel when the next
                // turn begins: until then, no more than readers' outboxes hold.
                self.published_bytes = 0;
                if !self.go_on_with_revisited() && !self.go_on_with_left() {
                    break;
                }
                self.revisited_bytes += self.published_bytes;
            } else {
                break;
            }
        }
        self.tell_wanted();
    }

    /// Reports the feeds that have subscribers, and their requesters, to the control plane.
    fn tell_wanted(&mut self) {
        let mut wanted = self.hub.poll_subscribed();
        let mut requester = self.hub.poll_requester();
        if wanted.is_none() && requester.is_none() {
            return;
        }
        // Under one lock, so that a key always arrives with its requesters.
        let mut demands = self.shared.demands();
        while let Some((key, level)) = wanted {
            demands.set_wanted(key, level);
            wanted = self.hub.poll_subscribed();
        }
        while let Some((key, who)) = requester {
            demands.add_requester(key, who);
            requester = self.hub.poll_requester();
        }
        drop(demands);
        self.shared.control.wanted();
    }

    /// Lets sessions have what they are owed before it is so much that it seems as if they didn't read.
    fn pump_if_much_was_published(&mut self) {
        if self.published_bytes > self.published_bytes_max {
            self.pump();
        }
    }

    fn accepted(&mut self, conn: ConnId, peer: SocketAddr) {
        self.record_load();
        // The new one counts already.
        let has_room = self.shared.connections() <= self.connections_max();
        let is_refused = self.shared.kernel_is_full() || self.shared.ledger.pressure() > Pressure::None;
        if is_refused || !(has_room || self.evict()) {
            self.metrics().refused.add(1);
            self.driver.close(conn);
            return;
        }
        self.metrics().accepted.add(1);
        let arrival = Incoming { conn, peer, buffer: Vec::new(), finished: false, kept: None };
        match self.shared.much_less_loaded_than(self.facts.core) {
            Some(core) => self.hand_over(arrival, core),
            None => self.begin_http(arrival, false),
        }
    }
}
