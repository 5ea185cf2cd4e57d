//! Clients and the connections that carry them: what is the same for Engine.IO and SockJS.
//!
//! ```text
//!  what is said ──► queue ──┐                    ┌─► one answer (a poll), which ends with it
//!  publications ──► hub ────┴─► flush_client ────┼─► an answer that goes on (a stream)
//!                                                └─► a WebSocket
//! ```
//!
//! **Invariant.** A client ends once: its sessions at once, then who carries it is told; who comes later is told for a
//! while.

use super::client::{Carrier, Client, ClientId, End, Protocol, Upper};
use super::mail::Mail;
use super::table::{Socket, Stack};
use super::{About, Core};
use crate::app::Sent;
use crate::millis::Millis;
use crate::options::Service;
use smallvec::SmallVec;
use stentor_driver::{ConnId, Driver};
use stentor_hub::SessionId;

/// Bytes of publications in one answer to a poll, unless one is larger by itself.
pub(super) const POLL_BYTES_MAX: usize = 1 << 20;
/// Publications in one answer to a poll.
pub(super) const POLL_FRAMES_MAX: usize = 1_024;

impl<D: Driver> Core<D> {
    /// Sets the client's timer to `at`, if it isn't set to an earlier time.
    pub(super) fn arm_client(&mut self, id: ClientId, at: Millis) {
        let now = self.millis();
        let Some(client) = self.clients.get_mut(id) else { return };
        if let Some(timer) = client.timer {
            if !at.is_before(client.timer_at) {
                return;
            }
            self.driver.timer_cancel(timer);
        }
        let at = at.coarse(now);
        client.timer = Some(self.driver.timer_set(self.facts.now + at.from(now), super::client_token(id)));
        client.timer_at = at;
    }

    /// Something may be due of a client.
    pub(super) fn client_due(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if let Some(timer) = client.timer.take() {
            self.driver.timer_cancel(timer);
        }
        match client.protocol {
            Protocol::Engine(_) => self.engine_due(id),
            Protocol::SockJs(_) => self.sockjs_due(id),
        }
    }

    /// The client that a connection carries, or wants to.
    pub(super) fn client_of(&self, index: usize) -> Option<ClientId> {
        match &self.table.get(index)?.stack {
            Stack::Socket(Socket { accepts, .. }) => accepts.client(),
            Stack::Http(http) => http.waiting.as_ref()?.client(),
            Stack::Closing { .. } => None,
        }
    }

    /// By which service a client came in.
    pub(super) fn service_of(&self, id: ClientId) -> Service {
        self.clients
            .get(id)
            .and_then(|client| client.sockjs())
            .map_or(Service::default(), |sockjs| sockjs.service)
    }

    /// Says something to one session of a client, from outside of the handling of its own messages.
    pub(super) fn say_to_client(&mut self, id: ClientId, session: SessionId, what: &Sent) {
        match self.clients.get(id).map(|client| &client.protocol) {
            Some(Protocol::Engine(_)) => {
                self.write_to_session(id, session, |writer, out| what.write(writer, out));
            }
            Some(Protocol::SockJs(_)) => self.say_to_sockjs(id, what),
            None => {}
        }
    }

    /// What was taken for a client is with the kernel.
    pub(super) fn client_sent(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(id) else { return };
        for session in client.sessions() {
            self.hub.handle_sent(session);
        }
    }

    /// Sends what waits for a client, if something is there to carry it.
    pub(super) fn flush_client(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(id) else { return };
        match (client.carrier, &client.protocol) {
            (Carrier::None, _) => {}
            (Carrier::Socket(conn) | Carrier::Stream(conn), _) => {
                if let Some(index) = self.table.index_of(conn) {
                    self.flush(index);
                }
            }
            (Carrier::Poll(conn), Protocol::Engine(_)) => {
                let records = self.take_records(id);
                if !records.is_empty() {
                    self.answer_poll(id, conn, &records);
                }
            }
            (Carrier::Poll(conn), Protocol::SockJs(_)) => self.answer_sockjs_poll(id, conn),
        }
    }

    /// Ends a client: its sessions at once, then who carries it is told.
    pub(super) fn end_client(&mut self, id: ClientId, end: End) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if client.ended {
            return;
        }
        if let End::Because(why) = end {
            self.shared.metrics[self.facts.core].disconnects[why as usize].add(1);
        }
        let upper = std::mem::replace(&mut client.upper, Upper::None);
        client.ended = true;
        client.may_reconnect = end.may_reconnect();
        let carrier = std::mem::replace(&mut client.carrier, Carrier::None);
        let (is_engine, service) = match &client.protocol {
            Protocol::Engine(_) => (true, Service::default()),
            Protocol::SockJs(sockjs) => (false, sockjs.service),
        };
        // Where nothing is taken from a client, the application doesn't know of it.
        let is_known = client.sockjs().is_none_or(|sockjs| sockjs.accepts);
        let sid = client.sid;
        let sessions: SmallVec<[SessionId; 2]> = upper.sessions().collect();
        for session in self.suspend(upper, end) {
            self.hub.handle_close(session);
        }
        if is_known {
            for session in sessions {
                let about = About { service, ..About::default() };
                self.ask_app(about, |app, ctx| app.closed(ctx, session));
            }
        }
        if is_engine {
            let name = sid.to_string();
            self.ask_app(About::default(), |app, ctx| app.gone(ctx, &name));
            self.end_engine(id, carrier, end);
        } else {
            self.end_sockjs(id, carrier, end);
        }
    }

    pub(super) fn close_socket_of(&mut self, conn: ConnId, code: u16, reason: &str) {
        if let Some(index) = self.table.index_of(conn) {
            self.close_socket(index, code, reason);
        }
    }

    pub(super) fn drop_client(&mut self, id: ClientId) {
        let Some(client) = self.take_client(id) else { return };
        let home = client.sid.core(self.shared.cores);
        if home != self.facts.core {
            self.post(home, Mail::Ended(client.sid));
        }
    }

    pub(super) fn take_client(&mut self, id: ClientId) -> Option<Client> {
        let client = self.clients.remove(id)?;
        if let Some(timer) = client.timer {
            self.driver.timer_cancel(timer);
        }
        Some(client)
    }

    /// A connection that names a client ends; `unsent`: with something for it that the kernel hasn't taken.
    pub(super) fn carrier_lost(&mut self, conn: ConnId, id: ClientId, unsent: bool) {
        if unsent {
            return self.end_client(id, End::Gone);
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        if let Some(engine) = client.engine_mut() {
            engine.probe_lost(conn);
        }
        if client.carrier.is(conn) {
            client.carrier = Carrier::None;
            self.end_client(id, End::Gone);
        }
    }
}
