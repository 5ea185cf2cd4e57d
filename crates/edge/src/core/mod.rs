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

mod actions;
mod admission;
mod clients;
mod commands;
mod drain;
mod end;
mod eviction;
mod identities;
mod input;
mod mail;
mod memory;
mod migration;
mod preface;
mod presence;
mod relay;
mod send;
mod table;
mod timer;
mod turn;

pub(crate) use mail::Mailboxes;

use crate::app::Alarm;
use crate::executor::{Apps, Executor};
use crate::identity::Owner;
use crate::ledger::{Pressure, Report};
use crate::limits::Slot;
use crate::millis::Millis;
use crate::options::Limits;
use crate::protocols::http::MovedRequest;
use crate::protocols::table::Clients;
use crate::refusal_log::Refusal;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::tls::{TlsLayer, TlsSettings};
use drain::Draining;
use memory::{Release, Relief};
use migration::Departed;
use presence::PresenceState;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use stentor_driver::{ConnId, Driver, Event, Frame};
use stentor_hub::{CoreId, Hub, Topic};
use stentor_wire::ws;
use table::Table;
use timer::Timer;
use turn::CpuSampler;

/// Interval after which a full ring to another core, or a frame that another core encodes, is checked again.
const CORES_RETRY: Duration = Duration::from_millis(1);
/// How often limits that no event guards are looked at.
const TICK: Duration = Duration::from_secs(1);

/// A connection that begins on this core, with what was read of it already.
struct Incoming {
    conn: ConnId,
    peer: SocketAddr,
    moved: MovedRequest,
    /// What it counts for its address.
    slot: Slot,
    /// It was accepted by a listener for TLS. What was read of it is TLS, too.
    begins_tls: bool,
}

fn ws_limits(limits: &Limits) -> ws::Limits {
    ws::Limits { message_bytes_max: limits.message_bytes_max, fragments_max: limits.fragments_max }
}

/// One core.
pub struct Core<D: Driver> {
    driver: TlsLayer<D>,
    table: Table,
    clients: Clients,
    ex: Executor,
    /// Where clients are that began here and were moved.
    departed: Departed,
    report: Report,
    relief: Relief,
    release: Release,
    /// What all WebSockets share.
    ws: Box<ws::Shared>,
    /// Until when connections above a limit are awaited, to be refused.
    refused: VecDeque<Millis>,
    /// When it was last logged that one address has most sessions.
    warned_at: Option<Instant>,
    mailboxes: Mailboxes,
    tasks: commands::Tasks,
    /// Bytes that leave with the event being handled: one buffer for all connections.
    cork: Vec<u8>,
    frames: Vec<Frame>,
    alarms: slab::Slab<Alarm>,
    /// Connections whose next request or message can be handled.
    revisit: VecDeque<usize>,
    /// The same, but not before other events have had their turn.
    next_turn: Vec<usize>,
    /// Connections left by earlier turns.
    left: VecDeque<usize>,
    /// Connections whose messages wait until no other message is half inflated.
    waiting_to_inflate: VecDeque<ConnId>,
    cpu: CpuSampler,
    /// Bytes published by connections that were revisited in this turn.
    revisited_bytes: usize,
    /// Connections not read from until the mailboxes of other cores have room.
    waiting_for_cores: Vec<ConnId>,
    /// Something for another core didn't fit into its ring.
    mail_waits: bool,
    /// Messages or commands may wait: this core was woken, or left some for the next turn.
    has_mail: bool,
    /// [`Executor::dispatches`] when they were last passed on.
    dispatches_sent: u64,
    /// Something other than answering messages has happened in this turn, so what it reports may have changed.
    has_changed: bool,
    /// Nothing waited when a turn began, and since then nothing but answering messages has happened.
    is_settled: bool,
    /// When the timer for rates fires.
    rates_due: Option<Instant>,
    /// Whether the timer for questions is set.
    awaits_decisions: bool,
    /// When the timer for tokens fires, in Unix milliseconds.
    identities_due: Option<u64>,
    /// How often the node was told to drain, as far as this core knows.
    drains_seen: usize,
    drain: Option<Box<Draining>>,
    presence: PresenceState,
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
        let now = driver.now();
        let ws_limits = ws_limits(&shared.initial.options.limits);
        let tls = shared.initial.options.tls.as_ref().map(|handle| TlsSettings {
            handle: handle.clone(),
            timeout: shared.initial.options.limits.tls_handshake_timeout,
            handshakes_max: shared.initial.options.limits.tls_handshakes_max,
            ledger: shared.ledger.clone(),
            metrics: shared.metrics[core].clone(),
            timer: Timer::Tls.token(),
        });
        let mut driver = TlsLayer::new(driver, tls);
        driver.timer_set(now + TICK, Timer::Tick.token());
        Self {
            driver,
            table: Table::default(),
            clients: Clients::default(),
            departed: Departed::default(),
            report: Report::new(shared.ledger.clone()),
            presence: PresenceState::new(shared.ledger.clone()),
            ex: Executor::new(shared, core, now, apps),
            relief: Relief::default(),
            release: Release::default(),
            ws: Box::new(ws::Shared::new(ws_limits)),
            refused: VecDeque::new(),
            warned_at: None,
            mailboxes,
            tasks: commands::Tasks::default(),
            cork: Vec::with_capacity(16 * 1024),
            frames: Vec::new(),
            alarms: slab::Slab::new(),
            revisit: VecDeque::new(),
            next_turn: Vec::new(),
            left: VecDeque::new(),
            waiting_to_inflate: VecDeque::new(),
            cpu: CpuSampler::default(),
            revisited_bytes: 0,
            waiting_for_cores: Vec::new(),
            mail_waits: false,
            has_mail: true,
            dispatches_sent: 0,
            has_changed: true,
            is_settled: false,
            rates_due: None,
            awaits_decisions: false,
            identities_due: None,
            drains_seen: 0,
            drain: None,
        }
    }

    /// Takes the settings that apply from now on.
    fn set_settings(&mut self, settings: Arc<Settings>) {
        self.ws.set_limits(ws_limits(&settings.options.limits));
        self.ex.set_settings(settings);
    }

    /// Runs until the node is drained.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        while !self.is_finished() {
            self.turn(None)?;
        }
        Ok(())
    }

    /// Whether the node drains and nothing is left to do here, or the time for it is over.
    pub fn is_finished(&mut self) -> bool {
        self.is_drained()
    }

    /// Waits for events, at most `timeout`, and handles them. Says whether there was anything to do.
    ///
    /// # Errors
    /// The driver can't wait for events.
    pub fn turn(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let busy = !self.is_settled && self.is_busy();
        let timeout = if self.is_settled { timeout } else { self.limit_wait(timeout, busy) };
        self.driver.wait(timeout)?;
        self.revisited_bytes = 0;
        self.cpu.begin_turn();
        self.ex.begin_turn(self.driver.now());
        self.mind_memory();
        if self.ex.shared.drains() != self.drains_seen {
            self.drains_seen = self.ex.shared.drains();
            self.has_changed = true;
            self.begin_drain(self.ex.shared.drain());
        }
        let mut had_something = busy;
        self.has_changed |= busy;
        while let Some(event) = self.driver.next_event() {
            had_something = true;
            self.handle(event);
            self.pump_if_much_was_published();
        }
        if self.has_mail {
            self.handle_mail();
        }
        self.pump();
        // A turn that only answered messages has changed nothing of this: 6 % of an echo's instructions.
        if self.ex.hub.take_changed() | std::mem::take(&mut self.has_changed) {
            self.is_settled = false;
            while self.mind_presence() {
                self.ex.hub.note_change();
                self.pump();
            }
            self.mind_notices();
            self.set_rate_timer();
            self.set_decision_timer();
            self.set_identity_timer();
            self.report();
        }
        // Those that left with other answers.
        self.ex.record_latencies();
        if self.cpu.is_sampled() {
            let taken = self.cpu.end_turn();
            self.ex.metrics().record_turn(taken);
        }
        Ok(had_something)
    }

    /// Whether something waits that no event announces. Connections left by the last turn may continue.
    fn is_busy(&mut self) -> bool {
        if self.has_left() {
            self.resume_left();
        }
        self.has_mail && (!self.mailboxes.is_empty() || self.has_commands())
            || !self.revisit.is_empty()
            || self.has_left()
            || self.ex.questions.has_unverified()
            || self.ex.shared.drains() != self.drains_seen
    }

    /// How long a turn may wait for events. If for as long as it likes, nothing waits.
    fn limit_wait(&mut self, timeout: Option<Duration>, busy: bool) -> Option<Duration> {
        if busy {
            return Some(Duration::ZERO);
        }
        // Neither the reader of a full ring nor a core that encodes a frame sends a notification, so check again soon.
        if self.mail_waits || self.ex.hub.awaits_encodings() {
            return Some(timeout.unwrap_or(CORES_RETRY).min(CORES_RETRY));
        }
        self.is_settled = true;
        timeout
    }

    /// Takes what other cores and the control plane have sent. Whoever sends wakes this core.
    fn handle_mail(&mut self) {
        self.has_changed = true;
        self.take_commands();
        self.take_mail();
        self.carry_out_commands();
        self.review_sessions();
        self.has_mail = !self.mailboxes.is_empty() || self.has_commands_left();
    }

    /// Updates everything that is read from outside.
    fn report(&mut self) {
        self.record_load();
        self.report_memory();
        self.ex.metrics().record(
            &self.ex.hub,
            self.table.count(),
            self.clients.counts(),
            self.ex.recovery.suspended(),
            self.waiting_for_cores.len(),
        );
    }

    /// Makes sure that a wait ends when something that was held may leave.
    fn set_rate_timer(&mut self) {
        let Some(at) = self.ex.hub.poll_timeout() else { return };
        if self.rates_due.is_none_or(|due| at < due) {
            self.rates_due = Some(at);
            self.driver.timer_set(at, Timer::Rates.token());
        }
    }

    /// Makes sure that the oldest question ends in time. All are given the same time, so it is the first.
    fn set_decision_timer(&mut self) {
        if !self.awaits_decisions
            && let Some(at) = self.ex.questions.poll_timeout()
        {
            self.awaits_decisions = true;
            self.driver.timer_set(at, Timer::Decisions.token());
        }
    }

    /// The shard, for tests that look inside.
    pub fn hub(&self) -> &Hub<impl stentor_hub::Encoder> {
        &self.ex.hub
    }

    /// Tells the other cores how many connections there are here, those that are being finished included.
    fn record_load(&self) {
        self.ex.shared.loads[self.ex.context.core].store(self.driver.connections(), Ordering::Relaxed);
    }

    /// Deals with one event of the driver.
    fn handle(&mut self, event: Event) {
        if let Event::Received { conn, mut data, at: _ } = event {
            self.ex.metrics().received_bytes.add(data.len() as u64);
            self.ex.budget.begin();
            self.received(conn, &mut data);
            return self.driver.recycle(data);
        }
        self.has_changed = true;
        match event {
            Event::Accepted { conn, peer, listener } => self.accepted(conn, peer, listener),
            Event::AcceptFailed(error) => {
                self.ex.metrics().accept_errors.add(1);
                if let Some(logged) = self.ex.log_refusal(Refusal::Accept, &error.to_string()) {
                    let others = logged.others();
                    tracing::warn!(%error, "could not accept a connection; trying again in 100 ms{others}");
                }
            }
            Event::PeerFinished(conn) => {
                if let Some(index) = self.table.index_of(conn) {
                    self.finished(index);
                }
            }
            Event::EndPending(conn) => {
                if let Some(index) = self.table.index_of(conn) {
                    self.end_pending(index);
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
            Event::Timer(token) => self.timer(Timer::of(token)),
            Event::Woken => self.has_mail = true,
            // The core opens no connections.
            Event::Connected(_) | Event::Received { .. } => {}
        }
    }

    fn timer(&mut self, timer: Timer) {
        match timer {
            Timer::Tick => self.tick(),
            Timer::Drain => self.continue_drain(),
            // The layer keeps its own.
            Timer::Relief | Timer::Tls => {}
            // One that was overtaken by an earlier one does no harm.
            Timer::Rates => self.rates_due = None,
            Timer::Presence => self.presence.timer_fired(),
            Timer::Decisions => {
                self.awaits_decisions = false;
                self.ex.questions.expire(self.ex.context.now);
            }
            Timer::Identities => {
                self.identities_due = None;
                self.check_due_identities();
            }
            Timer::App(slot) => self.alarm_due(slot),
            Timer::Client(id) => self.client_due(id),
            Timer::Connection { index, serial } => {
                if self.table.get(index).is_some_and(|conn| conn.serial == serial) {
                    self.due(index);
                }
            }
        }
    }

    fn tick(&mut self) {
        self.driver.timer_set(self.ex.context.now + TICK, Timer::Tick.token());
        self.ex.hub.handle_tick(self.ex.context.now);
        self.ex.expire_suspended();
        self.mind_addresses();
        // Those that are answered are forgotten, whatever the time is that they had.
        self.ex.questions.expire(self.ex.context.now);
        self.finish_joined();
        self.ex.questions.retry_reviews(self.ex.context.now);
        self.review_sessions();
        self.ex.end_unclaimed_arrivals();
        // The system's clock may have been set.
        self.check_due_identities();
        if self.ex.context.core == 0 && self.ex.shared.ledger.pressure() < Pressure::Full {
            self.ex.shared.tell_space();
        }
        self.ex.metrics().publications_refused.set(self.ex.context.refusals.get());
        self.ex.metrics().messages_limited.set(self.ex.context.limited.get());
        self.ex.metrics().decisions_pending.set(self.ex.questions.open() as u64);
        self.ex.metrics().decisions_unanswered.set(self.ex.questions.unanswered);
        self.ex.metrics().identities.set(self.ex.questions.identities.count() as u64);
        self.ex.metrics().tokens_refused.set(self.ex.questions.identities.refused);
        #[cfg(debug_assertions)]
        self.check_holdings();
        self.report_presence();
        self.release_unused_memory();
        self.ex.metrics().record_protocols(&self.ex.hub);
        self.ex.metrics().record_past(self.ex.hub.history_stats(), self.ex.hub.log_stats());
    }

    /// Does what handlers asked for, and sends what sessions are owed and what other cores are to know.
    // A call takes 20 of the 1,283 instructions of an echo.
    #[inline(always)]
    fn pump(&mut self) {
        if !self.is_quiet() {
            self.carry_out_all();
        }
        self.ex.published_bytes = 0;
        if self.mail_waits || self.ex.dispatches() != self.dispatches_sent {
            self.has_changed = true;
            self.send_mail();
        }
    }

    /// Whether there is nothing to work off, as in most turns that only answer.
    #[inline]
    fn is_quiet(&self) -> bool {
        (!self.ex.hub.has_changed() || self.ex.hub.is_quiet())
            && self.ex.effects.is_empty()
            && self.ex.questions.is_quiet()
            && self.revisit.is_empty()
            && self.left.is_empty()
    }

    // Not inlined: a turn that only answers doesn't come here.
    #[inline(never)]
    fn carry_out_all(&mut self) {
        self.has_changed = true;
        loop {
            self.send_new_mail();
            if let Some(notice) = self.ex.poll_notice() {
                self.handle_notice(&notice);
                // Deliveries that follow a gap go on when the next notice is polled.
                self.carry_out_effects();
            } else if let Some((session, _, why)) = self.ex.hub.poll_terminating() {
                self.disconnect(session, why);
            } else if let Some(room) = self.ex.hub.poll_prepared() {
                self.handle_prepared(&room);
            } else if let Some(room) = self.ex.questions.poll_released() {
                self.ex.hub.handle_release(&room);
            } else if let Some(conn) = self.ex.questions.poll_decided() {
                self.resume_decided(conn);
            } else if let Some((session, topic, denial)) = self.ex.questions.poll_withdrawn() {
                self.ex.withdraw(session, topic, denial);
            } else if !self.ex.effects.is_empty() {
                self.carry_out_effects();
            } else if let Some((_, tag)) = self.ex.hub.poll_ready() {
                self.cpu.pause();
                let mut next = Some(tag);
                while let Some(tag) = next {
                    match self.ex.recovery.owner(tag) {
                        Some(Owner::Connection(index, _)) => self.flush(index),
                        Some(Owner::Client(id)) => self.flush_client(id),
                        Some(Owner::Socket(_)) | None => {}
                    }
                    next = self.ex.hub.poll_ready().map(|(_, tag)| tag);
                }
                self.cpu.resume();
            } else if self.revisited_bytes <= self.ex.published_bytes_max {
                // Last, because it may publish more. What is in flight on io_uring is with the kernel when the next
                // turn begins: until then, no more than readers' outboxes hold.
                self.ex.published_bytes = 0;
                if !self.resume_revisited() && !self.resume_one_left() && !self.begin_verification() {
                    break;
                }
                self.revisited_bytes += self.ex.published_bytes;
            } else {
                break;
            }
        }
        self.tell_wanted();
    }

    /// Reports the feeds that have subscribers, and their requesters, to the control plane; and to the broker which topics
    /// have subscribers, and which histories are behind.
    pub(super) fn tell_wanted(&mut self) {
        while let Some(topic) = self.ex.hub.poll_unconfirmed() {
            match (self.ex.outlet.broker(), topic) {
                (Some(broker), Topic::Room(room)) => broker.confirm_history(&room),
                (Some(broker), Topic::Feed(key)) => {
                    let asked = broker.confirm_feed(&key);
                    self.ex.hub.handle_asked(&key, asked);
                }
                _ => {}
            }
        }
        let mut wanted = self.ex.hub.poll_subscribed();
        let mut requester = self.ex.hub.poll_requester();
        if wanted.is_none() && requester.is_none() {
            return;
        }
        // Under one lock, so that a key always arrives with its requesters.
        let mut demands = self.ex.shared.demands();
        while let Some((topic, level)) = wanted {
            if let Some(broker) = self.ex.outlet.broker() {
                broker.set_interest(&topic, level);
            }
            if let Topic::Feed(key) = topic {
                demands.set_wanted(key, level);
            }
            wanted = self.ex.hub.poll_subscribed();
        }
        while let Some((key, who)) = requester {
            demands.add_requester(key, who);
            requester = self.ex.hub.poll_requester();
        }
        drop(demands);
        self.ex.shared.control.wanted();
    }

    /// Lets sessions have what they are owed before it is so much that it seems as if they didn't read.
    fn pump_if_much_was_published(&mut self) {
        if self.ex.published_bytes > self.ex.published_bytes_max {
            self.pump();
        }
    }

    /// Whether one more connection may be served.
    fn has_room(&mut self) -> bool {
        // One that was accepted counts already.
        let has_room = self.ex.shared.connections() <= self.connections_max();
        let is_refused = self.ex.shared.kernel_is_full() || self.ex.shared.ledger.pressure() > Pressure::None;
        !is_refused && (has_room || self.evict())
    }

    fn accepted(&mut self, conn: ConnId, peer: SocketAddr, socket: u8) {
        // A core may have several sockets of each listener (`node::Inherited`).
        let listener = (usize::from(socket) % (1 + self.ex.options().listeners.len())) as u8;
        self.record_load();
        if !self.has_room() {
            self.ex.metrics().refused.add(1);
            self.driver.close(conn);
            return;
        }
        self.ex.metrics().accepted.add(1);
        if self.ex.options().has_proxy_protocol(listener) {
            return self.begin_preface(conn, peer, listener);
        }
        self.admitted(conn, peer, listener, MovedRequest::default());
    }
}
