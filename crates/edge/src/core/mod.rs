//! One core of the data plane: one driver, the protocol stacks of its connections, one hub shard.
//!
//! A turn gathers events and handles each of them, so that answers leave at once. It then takes messages of other cores and
//! commands of the control plane, and sends pending deliveries. Deliveries that gather for a session during a turn leave as one
//! vectored send. If much is published in a turn, some deliveries leave earlier. Otherwise a session that had no chance to read
//! would seem slow.
//!
//! **Invariants.** At most one send is in flight per connection. A connection's answers (`replies`) leave before pending
//! deliveries of its session. The core doesn't read from a connection while its client doesn't read answers, or while other cores
//! can't take its publications. So a client's input makes nothing here grow beyond the bounds in
//! [`stentor_session::options::Limits`]. A core that leaves work for the next turn doesn't sleep before it.

mod actions;
mod admission;
mod clients;
mod commands;
mod connections;
mod drain;
mod end;
mod events;
mod eviction;
mod handover;
mod holdings;
mod identities;
mod input;
mod link;
mod mail;
mod memory;
mod migration;
mod preface;
mod relay;
mod send;
mod table;
mod tasks;
mod timer;
mod turn;
mod upkeep;
mod work;

pub(crate) use mail::Mailboxes;

use crate::ledger::Report;
use crate::listeners::Listeners;
use crate::system::SYSTEM;
use crate::tls::{TlsLayer, TlsSettings};
use connections::Connections;
use mail::Mail;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_driver::{ConnId, Driver, Event};
use stentor_hub::{CoreId, Hub};
use stentor_session::access::AccessLog;
use stentor_session::core::Protocols;
use stentor_session::executor::Apps;
use stentor_session::limits::{LimitReached, Slot};
use stentor_session::millis::Millis;
use stentor_session::protocols::http::MovedRequest;
use stentor_session::shared::Shared;
use timer::Timer;
use upkeep::Upkeep;
use work::Work;

/// Interval after which the core checks again whether a full ring to another core has room, or another core has encoded a frame.
const CORES_RETRY: Duration = Duration::from_millis(1);
/// Interval between checks of limits that no event triggers.
const TICK: Duration = Duration::from_secs(1);

/// A connection that begins on this core, with the bytes that were already read from it.
struct Incoming {
    conn: ConnId,
    peer: SocketAddr,
    moved: MovedRequest,
    /// The connection's entry in the count of its address.
    slot: Slot,
    /// `true` if a listener for TLS accepted the connection. The bytes that were read from it are then TLS records.
    begins_tls: bool,
    /// `true` if the connection can't be moved to another core.
    stays: bool,
    /// The reason for refusing the connection's first request, and the time until which that request is awaited.
    refusal: Option<(LimitReached, Millis)>,
}

impl Incoming {
    fn new(conn: ConnId, peer: SocketAddr, moved: MovedRequest, slot: Slot) -> Self {
        Self { conn, peer, moved, slot, begins_tls: false, stays: false, refusal: None }
    }
}

/// One core, in five parts that don't refer to each other. A function that needs several parts takes each as a parameter.
pub struct Core<D: Driver> {
    conns: Connections<D>,
    protocols: Protocols,
    mail: Mail,
    work: Work,
    upkeep: Upkeep,
}

impl<D: Driver> Core<D> {
    /// Makes core number `core` of the node. Its listeners are already open.
    pub(crate) fn new(
        driver: D,
        core: CoreId,
        shared: Arc<Shared>,
        listeners: Arc<Listeners>,
        mailboxes: Mailboxes,
        apps: Apps,
    ) -> Self {
        let now = driver.now();
        let tls = listeners.tls.as_ref().map(|handle| TlsSettings {
            handle: handle.clone(),
            timeout: shared.initial.limits.tls_handshake_timeout,
            handshakes_max: shared.initial.limits.tls_handshakes_max,
            ledger: shared.ledger.clone(),
            metrics: shared.each[core].metrics.clone(),
            timer: Timer::Tls.token(),
        });
        Self {
            conns: Connections::new(
                TlsLayer::new(driver, tls),
                listeners,
                Report::new(shared.ledger.clone()),
                AccessLog::new(shared.initial.access_log, shared.ledger.clone()),
            ),
            protocols: Protocols::new(shared, core, now, apps, SYSTEM),
            mail: Mail::new(mailboxes),
            work: Work::new(),
            upkeep: Upkeep::default(),
        }
    }

    /// Runs until the node is drained.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        while !self.is_finished() {
            self.turn(None)?;
        }
        Ok(())
    }

    /// Returns `true` if the node drains, and this core has no work left or no time left.
    #[inline]
    pub fn is_finished(&mut self) -> bool {
        self.upkeep.is_drained(&self.conns, &self.protocols, &self.mail)
    }

    /// Waits for events for at most `timeout`, and handles them. Returns `true` if there was any work.
    ///
    /// # Errors
    /// The driver can't wait for events.
    #[inline(always)] // Called in one place of the binary.
    pub fn turn(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let Self { conns, protocols, mail, work, upkeep } = self;
        let mut had_something = false;
        let mut timeout = timeout;
        if !work.only_answered {
            had_something =
                turn::is_busy(conns, protocols, mail, work) || upkeep.has_new_drain(&protocols.ex);
            // The reader of a full ring and a core that encodes a frame send no notification.
            let checks_soon = mail.waits || protocols.ex.hub.awaits_encodings();
            timeout = work.limit_wait(timeout, had_something, checks_soon);
        }
        conns.driver.wait(timeout)?;
        work.begin_turn();
        protocols.ex.begin_turn(conns.driver.now());
        // `true` if anything but answering messages has happened, so that the core's metrics may have changed.
        let mut has_changed = had_something;
        has_changed |= upkeep.check_memory(conns, protocols);
        has_changed |= upkeep.follow_drain(conns, protocols, mail);
        while let Some(event) = conns.driver.next_event() {
            had_something = true;
            has_changed |= match event {
                Event::Timer(token) => {
                    let timer = Timer::of(token);
                    upkeep.handle_timer(conns, protocols, mail, timer);
                    if timer == Timer::Tick {
                        tasks::finish_joined(conns, protocols, mail, work);
                    }
                    true
                }
                Event::Woken => {
                    work.has_mail = true;
                    true
                }
                Event::Received { conn, data, at: _ } => {
                    events::handle_received(conns, protocols, mail, conn, data)
                }
                event => {
                    events::handle(conns, protocols, mail, event);
                    true
                }
            };
            has_changed |= turn::pump_if_much_was_published(conns, protocols, mail, work);
        }
        if work.has_mail {
            has_changed = true;
            commands::handle_mail(conns, protocols, mail, work);
        }
        has_changed |= turn::pump(conns, protocols, mail, work);
        // A turn that only answered messages skips this: it would be 6 % of an echo's instructions.
        if protocols.ex.hub.take_changed() | has_changed {
            work.only_answered = false;
            while protocols.pump_presence() {
                protocols.ex.hub.note_change();
                turn::pump(conns, protocols, mail, work);
            }
            protocols.report_notices();
            upkeep.set_timers(conns, &mut protocols.ex);
            upkeep::report(conns, protocols);
        }
        // Includes the deliveries that were sent together with answers.
        protocols.ex.record_latencies(Instant::now);
        if work.cpu.is_sampled() {
            let taken = work.cpu.end_turn();
            protocols.ex.metrics().record_turn(taken);
        }
        Ok(had_something)
    }

    /// The hub's shard, for tests.
    pub fn hub(&self) -> &Hub<impl stentor_hub::Encoder> {
        &self.protocols.ex.hub
    }
}
