//! Measures the memory that connections and clients hold besides their fixed size, and charges it to the ledger.
//!
//! **Invariant.** After each change from outside and after each input, the charge of a connection equals the memory that it holds
//! ([`check_holdings`], in debug builds).

use super::table::{Conn, Machine};
use super::{Connections, Protocols};
use crate::ledger;
use crate::ledger::{Ledger, Pressure};
use std::sync::Arc;
use stentor_driver::Driver;
use stentor_session::app::{Effect, ToConnection};
use stentor_session::executor::{Executor, SMALL_INPUT_BYTES};

/// Memory of a connection in the driver and the timing wheel.
const DRIVER_BYTES: usize = 96;

impl Conn {
    /// Bytes that the connection holds besides its fixed size, by [`ledger::HOLDING_CLASSES`].
    fn held(&self) -> ledger::Held {
        let replies = self.replies.get().map_or(0, Vec::capacity);
        let (received, messages, bodies) = match &self.machine {
            Machine::Http(connection) => {
                let (received, bodies) = connection.http.held_bytes();
                (received, 0, bodies)
            }
            Machine::WebSocket(socket) => {
                let (unread, messages) = socket.held_bytes();
                (unread, messages, 0)
            }
            Machine::Preface(preface) => (preface.received.capacity(), 0, 0),
            Machine::Closing { .. } => (0, 0, 0),
        };
        [received, messages, bodies, 0, replies, 0]
    }

    /// Charges the memory that the connection holds now. Called after writes from outside; [`Connections::weigh`] does this
    /// after the connection's own input.
    pub(super) fn weigh(&mut self, ledger: &Arc<Ledger>) {
        let held = self.held();
        self.replies.set_holding(ledger, held);
    }

    /// Returns `true` if the connection holds no additional memory, which is the usual case.
    #[inline]
    pub(super) fn holds_nothing(&self) -> bool {
        self.replies.is_empty()
            && matches!(&self.machine, Machine::WebSocket(socket) if socket.holds_nothing())
    }
}

impl<D: Driver> Connections<D> {
    /// Charges the memory that a connection holds now. Closes it if it grows beyond [`SMALL_INPUT_BYTES`] while
    /// memory is short.
    #[inline]
    pub(super) fn weigh(&mut self, ex: &mut Executor, index: usize) {
        if self.table.get(index).is_some_and(|conn| !conn.holds_nothing()) {
            self.weigh_what_is_held(ex, index);
        }
    }

    fn weigh_what_is_held(&mut self, ex: &mut Executor, index: usize) {
        let ledger = ex.ledger();
        let Some(conn) = self.table.get_mut(index) else { return };
        let held = conn.held();
        let grown = conn.replies.set_holding(ledger, held);
        if grown > 0 && conn.replies.holding_bytes() > SMALL_INPUT_BYTES && ledger.pressure() > Pressure::None
        {
            let id = conn.id;
            ex.push(Effect::Connection(id, ToConnection::RefuseInput));
        }
    }

    /// The memory that a connection holds, including bytes in flight, unless these belong to its session.
    pub(super) fn held_by_connection(&self, ex: &Executor, conn: &Conn) -> usize {
        let is_sessions = conn.session.is_some_and(|session| ex.hub.is_in_flight(session));
        let in_flight = if is_sessions { 0 } else { self.driver.in_flight_bytes(conn.id) };
        conn.replies.holding_bytes() + in_flight
    }
}

/// Reports the memory that this core holds now.
pub(super) fn report_memory(conns: &mut Connections<impl Driver>, protocols: &mut Protocols) {
    let footprint = protocols.ex.hub.footprint();
    let connections =
        conns.table.bytes() + conns.driver.connections() * DRIVER_BYTES + protocols.clients.bytes();
    conns.report.set([
        connections,
        footprint.sessions + protocols.ex.session_bytes(),
        footprint.subscriptions,
        footprint.topics,
        footprint.outboxes,
        conns.driver.owned_bytes(),
    ]);
    protocols.charge_presence();
}

/// Checks, in debug builds and once per tick, that all held memory is charged. Tests that count instructions must not count this
/// check. It is skipped with many connections, because it would take too long.
#[cfg(debug_assertions)]
pub(super) fn check_holdings(conns: &Connections<impl Driver>, protocols: &Protocols) {
    const CONNECTIONS_MAX: usize = 64;
    if conns.table.count() > CONNECTIONS_MAX {
        return;
    }
    for index in conns.table.indices() {
        if let Some(conn) = conns.table.get(index) {
            assert_eq!(conn.replies.holding_bytes(), conn.held().iter().sum::<usize>(), "connection {index}");
        }
    }
    for client in protocols.clients.iter() {
        let (state, attachments) = (client.state(), client.attachment_bytes());
        assert_eq!(state.holding.bytes(), state.held(attachments).iter().sum::<usize>(), "{:?}", state.id);
    }
}
