//! How connections end, and the timers by which they do.
//!
//! ```text
//!  disconnect (a reason of ours) ─► close_socket ─┐
//!  answered and not kept alive, peer's close ─────┴─► end ─► Closing ─► finish (the driver's) ─► gone
//!  the peer is gone, no progress ───────────────────► abort ──────────────────────────────────► gone
//!  the peer is gone, and only waits to subscribe ───► abort ──────────────────────────────────► gone
//!  the driver says that it is gone ─────────────────► forget ─────────────────────────────────► gone
//! ```
//!
//! **Invariants.** A connection in the table has a timer from its beginning to its end, so that no state
//! lasts for ever. Its session ends with the first step out of `Http` or `WebSocket`, and only once.

use super::Core;
use super::table::{Conn, Held, Machine};
use super::timer::Timer;
use crate::app::{Envelope, HandlerScope};
use crate::identity::Owner;
use crate::millis::Millis;
use crate::protocols::client::Flow;
use crate::protocols::http::Waiting;
use std::time::Duration;
use stentor_driver::{ConnId, Driver, Sending};
use stentor_hub::{Disconnect, SessionId};

impl<D: Driver> Core<D> {
    /// Sets the connection's timer to `at`, if it isn't set to an earlier time.
    pub(super) fn arm(&mut self, index: usize, at: Millis) {
        let now = self.ex.millis();
        let Some(conn) = self.table.get_mut(index) else { return };
        if let Some(timer) = conn.timer {
            if !at.is_before(conn.timer_at) {
                return;
            }
            self.driver.timer_cancel(timer);
        }
        let at = at.coarse(now);
        let timer = Timer::Connection { index, serial: conn.serial };
        conn.timer = Some(self.driver.timer_set(self.ex.context.now + at.from(now), timer.token()));
        conn.timer_at = at;
    }

    /// A connection's timer has fired: something may be overdue, or only moved.
    pub(super) fn due(&mut self, index: usize) {
        let now = self.ex.millis();
        let Some(conn) = self.table.get_mut(index) else { return };
        conn.timer = None;
        match &mut conn.machine {
            Machine::Http(connection) => {
                let deadline = connection.http.poll_timeout();
                if now.is_before(deadline) {
                    return self.arm(index, deadline);
                }
                self.http_due(index);
            }
            Machine::WebSocket(_) => self.socket_due(index),
            Machine::Preface(preface) if now.is_before(preface.deadline) => {
                let deadline = preface.deadline;
                self.arm(index, deadline);
            }
            Machine::Preface(_) => {
                self.refuse_preface(index, "it did not arrive in time (proxies.header_timeout)")
            }
            &mut Machine::Closing { deadline } if now.is_before(deadline) => self.arm(index, deadline),
            Machine::Closing { .. } => {
                if self.progress(index) != Some(true) {
                    return self.abort(index);
                }
                // Slow is not dead.
                let deadline = now.after(self.ex.options().limits.close_timeout);
                if let Some(conn) = self.table.get_mut(index) {
                    conn.machine = Machine::Closing { deadline };
                }
                self.arm(index, deadline);
            }
        }
    }

    fn http_due(&mut self, index: usize) {
        let status = self.status(index);
        let Some(conn) = self.table.get_mut(index) else { return };
        let id = conn.id;
        let Some(http) = conn.http() else { return };
        let mut out = Vec::new();
        if http.handle_timeout(&mut self.ex, id, status, &mut out) == Flow::Stop {
            return self.end_after(index, out);
        }
        let deadline = http.poll_timeout();
        self.append_replies(index, &mut out);
        self.arm(index, deadline);
        self.flush(index);
    }

    fn socket_due(&mut self, index: usize) {
        let status = self.status(index);
        let Some(conn) = self.table.get_mut(index) else { return };
        let (id, session) = (conn.id, conn.session);
        let Machine::WebSocket(socket) = &mut conn.machine else { return };
        let mut out = Vec::new();
        socket.handle_timeout(&mut self.ex, session, status, &mut out);
        let due = socket.poll_timeout(&self.ex);
        if !out.is_empty() {
            if conn.in_flight || conn.replies.is_some() {
                self.append_replies(index, &mut out);
            } else if self.driver.send_bytes(id, &out) == Sending::InFlight {
                conn.in_flight = true;
            }
        }
        if let Some(due) = due {
            self.arm(index, due);
        }
    }

    /// Appends to what waits to be sent.
    pub(super) fn append_replies(&mut self, index: usize, out: &mut Vec<u8>) {
        if self.ex.access.is_on {
            self.log_sent(index, out);
        }
        if let Some(conn) = self.table.get_mut(index)
            && !out.is_empty()
        {
            conn.replies.get_or_insert_default().append(out);
            conn.weigh(&self.ex.shared.ledger);
        }
    }

    /// Ends a session for a reason of ours.
    pub(super) fn disconnect(&mut self, session: SessionId, why: Disconnect) {
        if why == Disconnect::ClosedByApplication {
            self.send_pending(session);
        }
        match self.ex.owner_of(session) {
            Some(Owner::Connection(index, _)) => {
                self.ex.count_disconnect(why);
                self.close_socket(index, why.code(), why.reason());
            }
            Some(Owner::Client(id)) => {
                if let Some(client) = self.clients.get_mut(id) {
                    client.end_session(&mut self.ex, session, why);
                }
            }
            Some(Owner::Socket(_)) | None => self.ex.close_session(session),
        }
    }

    /// Ends a session because the application wants it so, in its words.
    pub(super) fn close_with(&mut self, session: SessionId, code: u16, reason: &str) {
        let why = Disconnect::ClosedByApplication;
        self.send_pending(session);
        match self.ex.owner_of(session) {
            Some(Owner::Connection(index, _)) => {
                self.ex.count_disconnect(why);
                self.close_socket(index, code, reason);
            }
            Some(Owner::Client(id)) => {
                if let Some(client) = self.clients.get_mut(id) {
                    client.set_closed(code, reason);
                    client.end_session(&mut self.ex, session, why);
                }
            }
            Some(Owner::Socket(_)) | None => self.ex.close_session(session),
        }
    }

    /// Closes a WebSocket connection with a code and a reason, or any other at once.
    pub(super) fn close_socket(&mut self, index: usize, code: u16, reason: &str) {
        if let Some(conn) = self.table.get_mut(index)
            && let Machine::WebSocket(socket) = &mut conn.machine
        {
            socket.close(code, reason, conn.replies.get_or_insert_default());
            conn.weigh(&self.ex.shared.ledger);
        }
        self.end(index);
    }

    pub(super) fn close_socket_of(&mut self, conn: ConnId, code: u16, reason: &str) {
        if let Some(index) = self.table.index_of(conn) {
            self.close_socket(index, code, reason);
        }
    }

    /// Ends a connection after `out` has left.
    pub(super) fn end_after(&mut self, index: usize, mut out: Vec<u8>) {
        self.append_replies(index, &mut out);
        self.end(index);
    }

    /// Ends a connection: its session at once, then what is in flight and the answers leave, then the driver
    /// ends it. Where nothing of that is taken for `close_timeout`, it is aborted.
    pub(super) fn end(&mut self, index: usize) {
        self.end_session(index);
        let deadline = self.ex.millis().after(self.ex.options().limits.close_timeout);
        // What is in flight now is where progress begins.
        self.progress(index);
        if self.table.get(index).is_none() {
            return;
        }
        self.table.set_machine(index, Machine::Closing { deadline });
        if let Some(conn) = self.table.get_mut(index) {
            conn.weigh(&self.ex.shared.ledger);
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
        match &mut conn.machine {
            // Nobody polls who doesn't read.
            Machine::Http(connection)
                if connection.http.waiting.as_ref().is_some_and(Waiting::ends_with_input) =>
            {
                self.abort(index);
            }
            Machine::Http(connection) => {
                connection.http.finished = true;
                self.serve(index, &mut []);
            }
            // Without a close frame before, it is gone.
            Machine::WebSocket(_) if conn.in_flight => self.abort(index),
            Machine::WebSocket(_) => self.end(index),
            Machine::Preface(_) => self.refuse_preface(index, "the connection ended before it"),
            Machine::Closing { .. } => {}
        }
    }

    /// The peer of a connection that isn't read from has finished sending. All that it has sent before is still handled, but
    /// for questions whether it may subscribe: the subscriptions would end with the connection. Other questions stay, because what they
    /// are about (a message, an event, a login) was accepted and may have effects. So do those of HTTP requests, which a client that only
    /// finishes sending waits for, and of clients that outlive their connections or whose events may do more than subscribe.
    pub(super) fn end_pending(&mut self, index: usize) {
        let Some(conn) = self.table.get(index).filter(|conn| conn.held.has(Held::DECISION)) else { return };
        match &conn.machine {
            Machine::Http(connection)
                if connection.http.waiting.as_ref().is_some_and(Waiting::ends_with_input) =>
            {
                self.abort(index);
            }
            Machine::WebSocket(socket) if socket.client().is_none() => {
                self.ex.questions.drop_subscriptions(conn.id, socket.encoding().envelope() == Envelope::V1);
            }
            _ => {}
        }
    }

    fn end_session(&mut self, index: usize) {
        let Some(conn) = self.table.get_mut(index) else { return };
        if let Some(client) = conn.client() {
            let answered = matches!(&conn.machine, Machine::Http(connection)
                if connection.http.waiting.as_ref().is_some_and(Waiting::is_answered));
            let (id, unsent) = (conn.id, answered && conn.in_flight);
            if let Some(client) = self.clients.get_mut(client) {
                client.handle_connection_lost(&mut self.ex, id, unsent);
            }
            return;
        }
        let Some(session) = conn.session.take() else { return };
        let opened_by = match &conn.machine {
            Machine::WebSocket(socket) if !socket.profile().push_only => Some(socket.profile().service),
            _ => None,
        };
        self.ex.close_session(session);
        if let Some(service) = opened_by {
            let scope = HandlerScope { service, ..HandlerScope::default() };
            self.ex.notify_app(scope, |app, ctx| app.closed(ctx, session));
        }
    }

    /// The driver has dropped a connection.
    pub(super) fn forget(&mut self, index: usize) {
        self.end_session(index);
        self.drop_connection(index);
    }

    pub(super) fn drop_connection(&mut self, index: usize) {
        let Some(conn) = self.table.remove(index) else { return };
        if self.ex.access.is_on {
            self.ex.access.end(index, self.ex.context.now);
        }
        self.ex.release_connection(&mut self.table.take_slot(index));
        self.ex.questions.forget(conn.id);
        if let Some(timer) = conn.timer {
            self.driver.timer_cancel(timer);
        }
    }

    /// Ends an SSE stream, if there is one, so that its client reconnects: `after` this time if one is given.
    pub(super) fn end_events(&mut self, index: usize, after: Option<Duration>) {
        let Some(http) = self.table.get_mut(index).and_then(Conn::http) else { return };
        if let Some(response) = http.response_mut()
            && response.is_stream()
            && !response.is_whole()
        {
            let mut out = Vec::with_capacity(32);
            response.send_away(after, &mut out);
            self.end_after(index, out);
        }
    }
}
