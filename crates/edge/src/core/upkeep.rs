//! Upkeep of a core: its work by the clock, independent of its connections. It frees memory while memory is short
//! ([`super::memory`]), drains ([`super::drain`]), sets the core's timers, and reports.
//!
//! **Invariant.** A turn that only answers messages does none of this. It only checks that memory isn't short and that no drain
//! begins.

use super::drain::Draining;
use super::memory::{Release, Relief};
use super::timer::{Earliest, Timer};
use super::{Connections, Mail, Protocols, TICK, clients, events, holdings, identities};
use crate::ledger::Pressure;
use std::time::Instant;
use stentor_driver::Driver;
use stentor_session::executor::Executor;

/// Upkeep of a core.
#[derive(Default)]
pub(super) struct Upkeep {
    pub(super) relief: Relief,
    pub(super) release: Release,
    /// Number of drains of the node that this core has begun.
    pub(super) drains_seen: usize,
    pub(super) drain: Option<Box<Draining>>,
    /// Time of the last warning that one address has most sessions. `None` if there was none.
    pub(super) warned_at: Option<Instant>,
    rates: Earliest<Instant>,
    decisions: Earliest<Instant>,
    presence: Earliest<Instant>,
    /// Time at which the next token is due, in Unix milliseconds.
    pub(super) identities: Earliest<u64>,
}

impl Upkeep {
    /// Begins a drain that was requested since the last turn. Returns `true` if there was one.
    #[inline]
    pub(super) fn follow_drain(
        &mut self,
        conns: &mut Connections<impl Driver>,
        protocols: &mut Protocols,
        mail: &mut Mail,
    ) -> bool {
        let has_new = self.has_new_drain(&protocols.ex);
        if has_new {
            self.follow_new_drain(conns, protocols, mail);
        }
        has_new
    }

    #[cold]
    fn follow_new_drain(
        &mut self,
        conns: &mut Connections<impl Driver>,
        protocols: &mut Protocols,
        mail: &mut Mail,
    ) {
        self.drains_seen = protocols.ex.shared.drains();
        let drain = protocols.ex.shared.last_drain();
        self.begin_drain(conns, protocols, mail, drain);
    }

    /// Returns `true` if a drain was requested that this core hasn't begun.
    #[inline]
    pub(super) fn has_new_drain(&self, ex: &Executor) -> bool {
        ex.shared.drains() != self.drains_seen
    }

    /// Sets the timers that end a wait when a delivery may be sent, the oldest question is late, or a token is due.
    pub(super) fn set_timers(&mut self, conns: &mut Connections<impl Driver>, ex: &mut Executor) {
        if let Some(at) = ex.hub.poll_timeout()
            && self.rates.set(at)
        {
            conns.driver.timer_set(at, Timer::Rates.token());
        }
        if let Some(at) = ex.question_due()
            && self.decisions.set(at)
        {
            conns.driver.timer_set(at, Timer::Decisions.token());
        }
        if ex.shared.has_presence()
            && let Some(at) = ex.hub.poll_presence_timeout()
            && self.presence.set(at)
        {
            conns.driver.timer_set(at, Timer::Presence.token());
        }
        self.set_identity_timer(conns, ex);
    }

    /// Handles a timer of the driver.
    pub(super) fn handle_timer(
        &mut self,
        conns: &mut Connections<impl Driver>,
        protocols: &mut Protocols,
        mail: &mut Mail,
        timer: Timer,
    ) {
        match timer {
            Timer::Tick => self.tick(conns, protocols),
            Timer::Drain => self.continue_drain(conns, protocols, mail),
            // The TLS layer handles its own timer.
            Timer::Relief | Timer::Tls => {}
            Timer::Rates => self.rates.fired(),
            Timer::Presence => self.presence.fired(),
            Timer::Decisions => {
                self.decisions.fired();
                protocols.ex.expire_questions();
            }
            Timer::Identities => {
                self.identities.fired();
                identities::check_due_identities(conns, protocols);
            }
            Timer::App(slot) => protocols.alarm_due(slot),
            Timer::Client(id) => clients::client_due(conns, protocols, id),
            Timer::Connection { index, serial } => {
                if conns.table.get(index).is_some_and(|conn| conn.serial == serial) {
                    events::due(conns, protocols, index);
                }
            }
        }
    }

    /// Checks, once per [`TICK`], limits that no event triggers.
    fn tick(&mut self, conns: &mut Connections<impl Driver>, protocols: &mut Protocols) {
        let ex = &mut protocols.ex;
        let now = ex.now();
        conns.driver.timer_set(now + TICK, Timer::Tick.token());
        ex.hub.handle_tick(now);
        ex.expire_suspended();
        self.check_addresses(ex);
        // Answered questions are removed as well, even before their deadline.
        ex.tick_questions();
        protocols.review_sessions();
        protocols.ex.end_unclaimed_arrivals();
        // The system's clock may have been changed.
        identities::check_due_identities(conns, protocols);
        if protocols.ex.core() == 0 && protocols.ex.ledger().pressure() < Pressure::Full {
            protocols.ex.shared.notify_space();
        }
        #[cfg(debug_assertions)]
        holdings::check_holdings(conns, protocols);
        protocols.report_presence();
        self.release_unused_memory(&protocols.ex);
        protocols.ex.note_drops();
        protocols.ex.record_counts();
    }
}

/// Updates all values that other threads read.
pub(super) fn report(conns: &mut Connections<impl Driver>, protocols: &mut Protocols) {
    conns.record_load(&protocols.ex);
    holdings::report_memory(conns, protocols);
    protocols.ex.metrics().record(
        &protocols.ex.hub,
        conns.table.count(),
        protocols.clients.counts(),
        protocols.ex.suspended(),
        conns.waiting_for_cores.len(),
    );
}
