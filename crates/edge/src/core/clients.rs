//! The client sessions of a core that outlive their connections, and the connections that carry them.

use super::Core;
use super::mail::CoreMessage;
use super::table::Conn;
use super::timer::Timer;
use crate::executor::PollAnswer;
use crate::identity::{ClientId, ClientKind, End};
use crate::millis::Millis;
use crate::protocols::client::{ActiveTransport, ClientState, TransportStatus};
use crate::protocols::clients::{ClientTimer, TableEntry};
use crate::protocols::http::Waiting;
use stentor_driver::{ConnId, Driver};

impl<D: Driver> Core<D> {
    pub(super) fn client_state(&self, id: ClientId) -> Option<&ClientState> {
        match id.kind() {
            ClientKind::EngineIo => self.engineio.get(id).map(TableEntry::state),
            ClientKind::SockJs => self.sockjs.get(id).map(TableEntry::state),
        }
    }

    /// Sets the client's timer, if it isn't set to an earlier time.
    #[inline]
    pub(super) fn arm_client(&mut self, id: ClientId) {
        let (at, timer) = match id.kind() {
            ClientKind::EngineIo => {
                let Some(client) = self.engineio.get(id) else { return };
                (client.poll_timeout(), self.engineio.timer(id))
            }
            ClientKind::SockJs => {
                let Some(client) = self.sockjs.get(id) else { return };
                (client.poll_timeout(), self.sockjs.timer(id))
            }
        };
        if timer.is_none_or(|timer| at.is_before(timer.at)) {
            self.set_client_timer(id, timer, at);
        }
    }

    fn set_client_timer(&mut self, id: ClientId, before: Option<ClientTimer>, at: Millis) {
        if let Some(timer) = before {
            self.driver.timer_cancel(timer.id);
        }
        let now = self.ex.millis();
        let at = at.coarse(now);
        let timer = self.driver.timer_set(self.ex.context.now + at.from(now), Timer::Client(id).token());
        self.keep_client_timer(id, Some(ClientTimer { id: timer, at }));
    }

    fn keep_client_timer(&mut self, id: ClientId, timer: Option<ClientTimer>) {
        match id.kind() {
            ClientKind::EngineIo => self.engineio.set_timer(id, timer),
            ClientKind::SockJs => self.sockjs.set_timer(id, timer),
        }
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
        if self.client_state(id).is_none() {
            return;
        }
        self.keep_client_timer(id, None);
        let status = self.transport_status(id);
        match id.kind() {
            ClientKind::EngineIo => {
                if let Some(client) = self.engineio.get_mut(id) {
                    client.handle_timeout(&mut self.ex, status);
                }
            }
            ClientKind::SockJs => {
                let Some(client) = self.sockjs.get_mut(id) else { return };
                let conn = client.state().transport.conn();
                if client.handle_timeout(&mut self.ex, status)
                    && let Some(conn) = conn
                {
                    self.send_heartbeat(id, conn);
                }
            }
        }
        self.arm_client(id);
    }

    /// The kernel has taken what was sent to a client. Returns whether more is waiting.
    pub(super) fn client_sent(&mut self, id: ClientId) -> bool {
        match id.kind() {
            ClientKind::EngineIo => {
                let Some(client) = self.engineio.get(id) else { return false };
                let mut has_more = !client.state().queue.is_empty();
                for session in client.sessions() {
                    has_more |= self.ex.hub.handle_sent(session);
                }
                has_more
            }
            ClientKind::SockJs => {
                let session = self.sockjs.get(id).and_then(|client| client.session);
                session.is_some_and(|session| self.ex.hub.handle_sent(session))
            }
        }
    }

    /// Sends what waits for a client, if a connection is there for it.
    pub(super) fn flush_client(&mut self, id: ClientId) {
        let Some(transport) = self.client_state(id).map(|state| state.transport) else { return };
        match (transport, id.kind()) {
            (ActiveTransport::None, _) => {}
            (ActiveTransport::WebSocket(conn) | ActiveTransport::Stream(conn), _) => {
                let Some(index) = self.table.index_of(conn) else { return };
                self.flush(index);
            }
            (ActiveTransport::Poll(conn), ClientKind::EngineIo) => self.answer_engine_poll(id, conn),
            (ActiveTransport::Poll(conn), ClientKind::SockJs) => self.answer_receiver(id, conn),
        }
        match id.kind() {
            ClientKind::EngineIo => {
                let index = transport.conn().and_then(|conn| self.table.index_of(conn));
                let is_in_flight = index.is_some_and(|index| self.is_in_flight(index));
                if let Some(client) = self.engineio.get_mut(id)
                    && is_in_flight
                {
                    client.check_queue(&mut self.ex);
                }
            }
            ClientKind::SockJs => {
                if let Some(client) = self.sockjs.get_mut(id)
                    && !client.state().ended
                {
                    client.check_queue(&mut self.ex);
                }
            }
        }
    }

    /// Gives the response that waits on a connection to `write`, with the buffer for it, and sends what was written.
    fn respond(&mut self, conn: ConnId, write: impl FnOnce(&mut Self, &mut Waiting, &mut Vec<u8>)) {
        let Some(index) = self.table.index_of(conn) else { return };
        let Some(waiting) =
            self.table.get_mut(index).and_then(Conn::http).and_then(|http| http.waiting.take())
        else {
            return;
        };
        let mut waiting = waiting;
        let mut out = Vec::new();
        write(self, &mut waiting, &mut out);
        if self.ex.finishing {
            waiting.make_last();
        }
        let answered = waiting.is_answered();
        let idle_deadline = self.ex.millis().after(self.ex.options().limits.idle_timeout);
        let Some(conn) = self.table.get_mut(index) else { return };
        let Some(http) = conn.http() else { return };
        http.waiting = Some(waiting);
        if answered {
            http.deadline = idle_deadline;
        }
        if !out.is_empty() {
            conn.replies.get_or_insert_default().append(&mut out);
        }
        conn.weigh(&self.ex.shared.ledger);
        if answered {
            self.arm(index, idle_deadline);
        }
        self.flush(index);
    }

    fn answer_engine_poll(&mut self, id: ClientId, conn: ConnId) {
        self.respond(conn, |core, waiting, out| {
            if let (Some(client), Waiting::Poll(poll)) = (core.engineio.get_mut(id), waiting) {
                client.answer_poll(&mut core.ex, poll, out);
            }
        });
    }

    /// Answers a poll of Engine.IO.
    pub(super) fn answer_poll(&mut self, conn: ConnId, answer: &PollAnswer) {
        self.respond(conn, |core, waiting, out| {
            if let Waiting::Poll(poll) = waiting
                && !poll.answered
            {
                poll.keep_alive &= !core.ex.draining;
                poll.answer(answer, core.ex.date(), out);
            }
        });
    }

    /// Writes what waits for a SockJS client, or how it ended, to its receiver.
    pub(super) fn answer_receiver(&mut self, id: ClientId, conn: ConnId) {
        self.respond(conn, |core, waiting, out| {
            if let (Some(client), Waiting::Receiver(receiver)) = (core.sockjs.get_mut(id), waiting)
                && !receiver.answered
            {
                receiver.keep_alive &= !(core.ex.draining && client.state().ended);
                client.answer(&mut core.ex, receiver, out);
            }
        });
    }

    fn send_heartbeat(&mut self, id: ClientId, conn: ConnId) {
        self.respond(conn, |core, waiting, out| {
            if let (Some(client), Waiting::Receiver(receiver)) = (core.sockjs.get_mut(id), waiting) {
                client.heartbeat(&mut core.ex, receiver, out);
            }
        });
    }

    pub(super) fn end_client(&mut self, id: ClientId, end: End) {
        match id.kind() {
            ClientKind::EngineIo => {
                if let Some(client) = self.engineio.get_mut(id) {
                    client.end(&mut self.ex, end);
                }
            }
            ClientKind::SockJs => {
                if let Some(client) = self.sockjs.get_mut(id) {
                    client.end(&mut self.ex, end);
                }
            }
        }
    }

    /// Drops what waits for a client that has ended.
    pub(super) fn drop_queue(&mut self, id: ClientId) {
        match id.kind() {
            ClientKind::EngineIo => drop(self.engineio.get_mut(id).map(TableEntry::take_queue)),
            ClientKind::SockJs => drop(self.sockjs.get_mut(id).map(TableEntry::take_queue)),
        }
    }

    /// A connection that names a client has ended; `unsent`: with something that the kernel hasn't taken.
    pub(super) fn client_connection_lost(&mut self, conn: ConnId, id: ClientId, unsent: bool) {
        match id.kind() {
            ClientKind::EngineIo => {
                if let Some(client) = self.engineio.get_mut(id) {
                    client.handle_connection_lost(&mut self.ex, conn, unsent);
                }
            }
            ClientKind::SockJs => {
                if let Some(client) = self.sockjs.get_mut(id) {
                    let carried = client.state().transport.conn() == Some(conn);
                    client.handle_connection_lost(&mut self.ex, carried, unsent);
                }
            }
        }
    }

    /// Removes a client, and notifies the core that its id names, if that is another one.
    pub(super) fn remove_client(&mut self, id: ClientId) {
        let removed = match id.kind() {
            ClientKind::EngineIo => {
                self.engineio.remove(id).map(|(client, timer)| (client.state().sid, timer))
            }
            ClientKind::SockJs => self.sockjs.remove(id).map(|(client, timer)| (client.state().sid, timer)),
        };
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

    /// All clients of this core.
    pub(super) fn client_ids(&self) -> Vec<ClientId> {
        [self.engineio.ids(), self.sockjs.ids()].concat()
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
