//! The client sessions of a core that outlive their connections, and the connections that carry them.

use super::Core;
use super::mail::CoreMessage;
use super::table::Conn;
use super::timer::Timer;
use crate::executor::PollAnswer;
use crate::identity::{ClientId, End};
use crate::protocols::client::{ActiveTransport, ClientState, ClientTimer, TransportStatus};
use crate::protocols::response::ResponseContext;
use stentor_driver::{ConnId, Driver};

impl<D: Driver> Core<D> {
    pub(super) fn client_state(&self, id: ClientId) -> Option<&ClientState> {
        self.clients.get(id).map(|client| client.state())
    }

    /// Sets the client's timer, if it isn't set to an earlier time.
    #[inline]
    pub(super) fn arm_client(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if !client.is_due_earlier() {
            return;
        }
        if let Some(timer) = client.state().timer {
            self.driver.timer_cancel(timer.id);
        }
        let (at, now) = (client.poll_timeout(), self.ex.millis());
        let fires_at = self.ex.context.now + at.coarse(now).from(now);
        let timer = self.driver.timer_set(fires_at, Timer::Client(id).token());
        client.state_mut().timer = Some(ClientTimer { id: timer, at });
    }

    /// What is known of the connection that carries a client. Only a WebSocket shows by its progress that the client
    /// reads.
    fn transport_status(&mut self, id: ClientId) -> TransportStatus {
        let Some(transport) = self.client_state(id).map(|state| state.transport) else {
            return TransportStatus::default();
        };
        let Some(index) = transport.conn().and_then(|conn| self.table.index_of(conn)) else {
            return TransportStatus::default();
        };
        match transport {
            ActiveTransport::WebSocket(_) => self.status(index),
            _ => TransportStatus { in_flight: self.is_in_flight(index), ..TransportStatus::default() },
        }
    }

    fn is_in_flight(&self, index: usize) -> bool {
        self.table.get(index).is_some_and(|conn| conn.in_flight)
    }

    /// The timer of a client has fired.
    pub(super) fn client_due(&mut self, id: ClientId) {
        let status = self.transport_status(id);
        let Some(client) = self.clients.get_mut(id) else { return };
        client.state_mut().timer = None;
        client.handle_timeout(&mut self.ex, status);
        self.arm_client(id);
    }

    /// Sends what waits for a client, if a connection is there for it.
    pub(super) fn flush_client(&mut self, id: ClientId) {
        let Some(transport) = self.client_state(id).map(|state| state.transport) else { return };
        let index = transport.conn().and_then(|conn| self.table.index_of(conn));
        match (transport, index) {
            (ActiveTransport::Poll(conn), _) => self.answer_client(conn, PollAnswer::Pending),
            (_, Some(index)) => self.flush(index),
            (_, None) => {}
        }
        let is_in_flight = index.is_some_and(|index| self.is_in_flight(index));
        if let Some(client) = self.clients.get_mut(id) {
            client.check_queue(&mut self.ex, is_in_flight);
        }
    }

    /// Writes to the response that waits on a connection, and sends what was written.
    pub(super) fn answer_client(&mut self, conn: ConnId, answer: PollAnswer) {
        let Some(index) = self.table.index_of(conn) else { return };
        let Some(Conn { session, .. }) = self.table.get(index) else { return };
        let session = *session;
        let Some(http) = self.table.get_mut(index).and_then(Conn::http) else { return };
        let Some(response) = http.response_mut() else { return };
        let client = response.client().and_then(|id| self.clients.get_mut(id));
        let mut out = Vec::new();
        response.answer(&mut ResponseContext { ex: &mut self.ex, conn, session, client }, answer, &mut out);
        response.state_mut().keep_alive &= !self.ex.finishing;
        let is_whole = response.is_whole();
        let idle_deadline = self.ex.millis().after(self.ex.options().limits.idle_timeout);
        if is_whole {
            http.deadline = idle_deadline;
        }
        if let Some(conn) = self.table.get_mut(index) {
            if !out.is_empty() {
                conn.replies.get_or_insert_default().append(&mut out);
            }
            conn.weigh(&self.ex.shared.ledger);
        }
        if is_whole {
            self.arm(index, idle_deadline);
        }
        self.flush(index);
    }

    pub(super) fn end_client(&mut self, id: ClientId, end: End) {
        if let Some(client) = self.clients.get_mut(id) {
            client.end(&mut self.ex, end);
        }
    }

    /// Removes a client, and notifies the core that its id names, if that is another one.
    pub(super) fn remove_client(&mut self, id: ClientId) {
        let removed = self.clients.remove(id);
        self.ex.questions.identities.take_client(id);
        self.ex.handshakes.take(id);
        let Some((sid, timer)) = removed else { return };
        if let Some(timer) = timer {
            self.driver.timer_cancel(timer.id);
        }
        let home = sid.core(self.ex.shared.cores);
        if home != self.ex.context.core {
            self.post(home, CoreMessage::Ended(sid));
        }
    }

    /// What is known of a connection.
    pub(super) fn status(&mut self, index: usize) -> TransportStatus {
        let progressed = self.progress(index);
        TransportStatus {
            progressed: progressed == Some(true),
            in_flight: progressed.is_some(),
            paused_by_server: self.table.get(index).is_some_and(|conn| conn.held.is_ours()),
        }
    }
}
