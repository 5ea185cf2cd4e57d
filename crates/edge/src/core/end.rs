//! How connections end, and the timers by which they do.
//!
//! ```text
//!  disconnect (a reason of ours) ─► close_socket ─┐
//!  answered and not kept alive, peer's close ─────┴─► end ─► Closing ─► finish (the driver's) ─► gone
//!  the peer is gone, no progress ───────────────────► abort ──────────────────────────────────► gone
//!  the driver says that it is gone ─────────────────► forget ─────────────────────────────────► gone
//! ```
//!
//! **Invariants.** A connection in the table has a timer from its beginning to its end, so that no state
//! lasts for ever. Its session ends with the first step out of `Http` or `Socket`, and only once.

use super::client::{Client, End};
use super::table::{Conn, Stack, Waiting, token_of};
use super::{About, CLIENT_TAG, Core, DRAINED_TOKEN, Owner};
use crate::millis::Millis;
use stentor_driver::Driver;
use stentor_hub::{Disconnect, SessionId};

impl<D: Driver> Core<D> {
    /// Who a tag of the hub's names.
    pub(super) fn owner(&self, tag: u64) -> Option<Owner> {
        if tag & CLIENT_TAG == 0 {
            return Some(Owner::Connection(tag as usize));
        }
        self.clients.of_bits(tag ^ CLIENT_TAG).map(Owner::Client)
    }

    pub(super) fn owner_of(&self, session: SessionId) -> Option<Owner> {
        match self.owner(self.hub.tag(session)?)? {
            Owner::Connection(index) => self
                .table
                .get(index)
                .filter(|conn| conn.session == Some(session))
                .map(|_| Owner::Connection(index)),
            owner => Some(owner),
        }
    }

    /// Sets the connection's timer to `at`, if it isn't set to an earlier time.
    pub(super) fn arm(&mut self, index: usize, at: Millis) {
        let now = self.millis();
        let Some(conn) = self.table.get_mut(index) else { return };
        if let Some(timer) = conn.timer {
            if !at.is_before(conn.timer_at) {
                return;
            }
            self.driver.timer_cancel(timer);
        }
        let at = at.coarse(now);
        let token = token_of(index, conn.serial);
        conn.timer = Some(self.driver.timer_set(self.facts.now + at.from(now), token));
        conn.timer_at = at;
    }

    /// A connection's timer has fired: something may be overdue, or only moved.
    pub(super) fn due(&mut self, index: usize) {
        let Some(conn) = self.table.get_mut(index) else { return };
        conn.timer = None;
        match conn.stack {
            Stack::Http(_) => self.http_due(index),
            Stack::Socket(_) => self.socket_due(index),
            Stack::Closing { deadline } => {
                let now = self.millis();
                if now.is_before(deadline) {
                    self.arm(index, deadline);
                } else if self.progress(index) == Some(true) {
                    // Slow is not dead.
                    let deadline = now.after(self.shared.options.limits.close_timeout);
                    if let Some(conn) = self.table.get_mut(index) {
                        conn.stack = Stack::Closing { deadline };
                    }
                    self.arm(index, deadline);
                } else {
                    self.abort(index);
                }
            }
        }
    }

    /// Ends a session for a reason of ours.
    pub(super) fn disconnect(&mut self, session: SessionId, why: Disconnect) {
        let index = match self.owner_of(session) {
            Some(Owner::Connection(index)) => index,
            Some(Owner::Client(id)) => return self.disconnect_socket(id, session, why),
            None => return self.hub.handle_close(session),
        };
        self.metrics().disconnects[why as usize].add(1);
        self.close_socket(index, why.code(), why.reason());
    }

    /// Ends a session because the application wants it so, in its words.
    pub(super) fn dismiss(&mut self, session: SessionId, code: u16, reason: &str) {
        match self.owner_of(session) {
            Some(Owner::Connection(index)) => {
                self.metrics().disconnects[Disconnect::ClosedByApplication as usize].add(1);
                self.close_socket(index, code, reason);
            }
            Some(Owner::Client(id)) => {
                if let Some(sockjs) = self.clients.get_mut(id).and_then(Client::sockjs_mut) {
                    sockjs.say_when_closed(code, reason);
                }
                self.disconnect_socket(id, session, Disconnect::ClosedByApplication);
            }
            None => self.hub.handle_close(session),
        }
    }

    /// Ends a connection: its session at once, then what is in flight and the answers leave, then the driver
    /// ends it. Where nothing of that is taken for `close_timeout`, it is aborted.
    pub(super) fn end(&mut self, index: usize) {
        self.end_session(index);
        let deadline = self.millis().after(self.shared.options.limits.close_timeout);
        // What is in flight now is where progress begins.
        self.progress(index);
        if self.table.get(index).is_none() {
            return;
        }
        self.table.set_stack(index, Stack::Closing { deadline });
        if let Some(conn) = self.table.get_mut(index) {
            conn.weigh(&self.shared.ledger);
        }
        self.flush(index);
        self.arm(index, deadline);
    }

    /// Ends a connection at once: nobody is there to read.
    pub(super) fn abort(&mut self, index: usize) {
        self.end_session(index);
        let Some(id) = self.table.get(index).map(|conn| conn.id) else { return };
        self.drop_connection(index);
        self.driver.close(id);
    }

    /// The peer has finished sending.
    pub(super) fn finished(&mut self, index: usize) {
        let Some(conn) = self.table.get_mut(index) else { return };
        match &mut conn.stack {
            // Nobody polls who doesn't read.
            Stack::Http(http) if http.waiting.as_ref().is_some_and(Waiting::ends_with_input) => {
                self.abort(index);
            }
            // It may still read its answers (RFC 9112, 9.6).
            Stack::Http(http) => {
                http.finished = true;
                self.serve(index, &mut []);
            }
            // Without a close frame before, it is gone.
            Stack::Socket(_) if conn.in_flight => self.abort(index),
            Stack::Socket(_) => self.end(index),
            Stack::Closing { .. } => {}
        }
    }

    pub(super) fn end_session(&mut self, index: usize) {
        let Some(conn) = self.table.get(index) else { return };
        let id = conn.id;
        if let Some(client) = self.client_of(index) {
            let answered = matches!(&conn.stack, Stack::Http(http)
                if http.waiting.as_ref().is_some_and(Waiting::is_answered));
            let unsent = answered && conn.in_flight;
            return self.carrier_lost(id, client, unsent);
        }
        let Some(conn) = self.table.get_mut(index) else { return };
        let Some(session) = conn.session.take() else { return };
        let opened_by = match &conn.stack {
            Stack::Socket(socket) if !socket.speech.is_deaf => Some(socket.speech.service),
            _ => None,
        };
        self.hub.handle_close(session);
        if let Some(service) = opened_by {
            self.ask_app(About { service, ..About::default() }, |app, ctx| app.closed(ctx, session));
        }
    }

    /// The driver has dropped a connection.
    pub(super) fn forget(&mut self, index: usize) {
        self.end_session(index);
        self.drop_connection(index);
    }

    pub(super) fn drop_connection(&mut self, index: usize) {
        let Some(conn) = self.table.remove(index) else { return };
        if let Some(timer) = conn.timer {
            self.driver.timer_cancel(timer);
        }
    }

    /// The node ends: no new connections, and each client is told when to come back. Requests that wait for
    /// something get half of the time, then an answer.
    pub(super) fn drain(&mut self) {
        let Some(until) = self.shared.drain_until() else { return };
        self.draining = true;
        self.driver.stop_listening();
        let left = until.saturating_duration_since(self.facts.now);
        let last_answers = self.millis().after(left / 2);
        for id in self.clients.ids() {
            self.end_client(id, End::Because(Disconnect::Shutdown));
        }
        for index in self.table.indices() {
            match self.table.get_mut(index) {
                Some(Conn { stack: Stack::Socket(_), session: Some(session), .. }) => {
                    let session = *session;
                    self.disconnect(session, Disconnect::Shutdown);
                }
                Some(Conn { stack: Stack::Http(http), .. })
                    if matches!(http.waiting, Some(Waiting::Events(_))) =>
                {
                    self.cut_events(index);
                }
                Some(Conn { stack: Stack::Http(http), .. }) => {
                    http.deadline = http.deadline.earlier(last_answers);
                    let deadline = http.deadline;
                    if !http.is_busy() && http.buffer.is_empty() {
                        // Nothing is under way that it could be wanted for: closed without waiting for the peer, since
                        // browsers close their side of an idle connection when they want it the next time.
                        self.abort(index);
                    } else {
                        self.arm(index, deadline);
                    }
                }
                _ => {}
            }
        }
        self.driver.timer_set(until, DRAINED_TOKEN);
    }
}
