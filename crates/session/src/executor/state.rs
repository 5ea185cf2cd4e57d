//! The state of the core and its turn: the time, the memory, and the drain.

use super::Executor;
use crate::drain::DrainState;
use crate::ledger::{Ledger, Pressure};
use crate::shared::SharedCore;
use std::sync::Arc;
use std::time::Instant;
use stentor_hub::CoreId;

impl Executor {
    /// The time at which this turn began.
    #[inline]
    pub fn now(&self) -> Instant {
        self.context.now
    }

    /// The number of the core.
    #[inline]
    pub fn core(&self) -> CoreId {
        self.context.core
    }

    /// The part of this core that other threads use.
    #[inline]
    pub fn shared_core(&self) -> &SharedCore {
        &self.shared.each[self.context.core]
    }

    /// The ledger of the process's memory.
    #[inline]
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.shared.ledger
    }

    /// The memory pressure of which this core knows.
    #[inline]
    pub fn pressure(&self) -> Pressure {
        self.context.pressure
    }

    /// Sets the memory pressure. Returns the previous one.
    pub fn set_pressure(&mut self, pressure: Pressure) -> Pressure {
        self.hub.set_memory_short(pressure > Pressure::None);
        std::mem::replace(&mut self.context.pressure, pressure)
    }

    /// `true` once the window of a drain has opened: no session begins.
    #[inline]
    pub fn is_draining(&self) -> bool {
        self.context.drain.is_draining()
    }

    /// `true` if a connection stays open after a response. `is_of_session` is `true` for a response to an existing session.
    #[inline]
    pub(crate) fn keeps_connection(&self, is_of_session: bool) -> bool {
        self.context.drain.keeps_connection(is_of_session)
    }

    /// `true` once a drain has ended all sessions: connections end after their response.
    #[inline]
    pub fn is_finishing(&self) -> bool {
        self.context.drain.is_finishing()
    }

    /// The state of the node's drain, mutable.
    pub fn drain_mut(&mut self) -> &mut DrainState {
        &mut self.context.drain
    }
}
