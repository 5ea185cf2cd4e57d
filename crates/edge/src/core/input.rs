//! Input: from the driver to the machine of a connection, and what follows from its outcome.

use super::table::{Conn, Held, Machine};
use super::{Core, Incoming};
use crate::app::Connect;
use crate::executor::SMALL_INPUT_BYTES;
use crate::limits::LimitReached;
use crate::millis::Millis;
use crate::protocols::client::Flow;
use crate::protocols::http::{Destination, Http, HttpContext};
use crate::protocols::websocket::{SocketContext, WebSocket};
use std::time::Duration;
use stentor_driver::{ConnId, Driver, Sending};
use stentor_wire::ws;

impl<D: Driver> Core<D> {
    /// A connection begins, perhaps with bytes read already. `stays`: it can't be moved to another core.
    pub(super) fn begin_http(&mut self, incoming: Incoming, stays: bool) {
        let limits = &self.ex.options().limits;
        // A handshake has a time of its own.
        let handshake = if incoming.begins_tls { limits.tls_handshake_timeout } else { Duration::ZERO };
        let deadline = self.ex.millis().after(limits.header_timeout + handshake);
        self.begin(incoming, stays, deadline, None);
    }

    /// A connection begins whose first request is to be refused, and is awaited until `deadline`.
    pub(super) fn begin_refused(&mut self, incoming: Incoming, reached: LimitReached, deadline: Millis) {
        self.begin(incoming, true, deadline, Some(reached));
    }

    fn begin(&mut self, incoming: Incoming, stays: bool, deadline: Millis, refusal: Option<LimitReached>) {
        let Incoming { conn, peer, mut moved, slot, begins_tls } = incoming;
        if begins_tls {
            self.driver.begin(conn, std::mem::take(&mut moved.buffer));
            moved.is_tls = true;
        }
        let continues = moved.buffered.is_some();
        let has_input = !moved.buffer.is_empty() || moved.finished || self.ex.finishing;
        let mut http = Http::new(peer, deadline, moved, stays);
        if let Some(reached) = refusal {
            http.refuse(reached);
        }
        let index = self.table.insert(conn, Machine::http(http));
        self.table.set_slot(index, slot);
        self.arm(index, deadline);
        if continues {
            self.weigh(index);
            self.next_turn.push(index);
        } else if has_input {
            self.serve(index, &mut []);
        }
    }

    /// Handles what arrived on a connection.
    #[inline]
    pub(super) fn received(&mut self, id: ConnId, data: &mut [u8]) {
        let is_socket =
            self.run_socket(id, |socket, cx, shared, out| socket.handle_input(cx, shared, data, out));
        if !is_socket && self.table.index_of(id).is_some() {
            self.has_changed = true;
            if !self.receive_preface(id.index(), data) {
                self.serve(id.index(), data);
            }
        }
    }

    /// Runs the machine of a connection and does what follows from the outcome, if it is a WebSocket. Returns whether it is.
    #[inline]
    fn run_socket(
        &mut self,
        id: ConnId,
        run: impl FnOnce(&mut WebSocket, &mut SocketContext<'_>, &mut ws::Shared, &mut Vec<u8>) -> Flow,
    ) -> bool {
        let Some(conn) = self.table.get_by_id(id) else { return false };
        let Machine::WebSocket(socket) = &mut conn.machine else { return false };
        let dispatches = self.ex.dispatches();
        let mut cx =
            SocketContext { ex: &mut self.ex, clients: &mut self.clients, conn: id, session: conn.session };
        cx.ex.questions.set_asker(Some(id));
        let flow = run(socket, &mut cx, &mut self.ws, &mut self.cork);
        self.ex.questions.set_asker(None);
        // Most messages are whole, and what answers them leaves at once: without this shorter way, an echo takes 9 %
        // more instructions.
        let is_usual = flow == Flow::Continue
            && self.ex.dispatches() == dispatches
            && !self.ex.questions.is_waiting(id)
            && conn.holds_nothing()
            && conn.held.is_none()
            && !conn.in_flight
            && self.cork.len() <= SMALL_INPUT_BYTES;
        if is_usual {
            if !self.cork.is_empty() && self.driver.send_bytes(id, &self.cork) == Sending::InFlight {
                conn.in_flight = true;
                self.has_changed = true;
            }
            self.cork.clear();
        } else {
            let out = std::mem::take(&mut self.cork);
            self.after_socket_input(id.index(), flow, dispatches, out);
        }
        true
    }

    /// Does what follows from the input of a WebSocket.
    fn after_socket_input(&mut self, index: usize, flow: Flow, dispatches_before: u64, mut out: Vec<u8>) {
        self.has_changed = true;
        if flow == Flow::Stop {
            self.append_replies(index, &mut out);
            self.cork = out;
            return self.end(index);
        }
        let Some(Conn { id, machine: Machine::WebSocket(socket), held, .. }) = self.table.get(index) else {
            return;
        };
        let id = *id;
        let message_due = if socket.is_mid_message() { socket.poll_timeout(&self.ex) } else { None };
        let was_held = held.has(Held::INPUT);
        if let Some(due) = message_due {
            self.arm(index, due);
        }
        if self.ex.questions.is_waiting(id) {
            self.hold(index, Held::DECISION);
            self.has_changed = true;
        }
        if flow != Flow::Continue {
            self.hold(index, Held::INPUT);
            if flow == Flow::Yield {
                self.leave(index);
            }
        } else if was_held {
            self.release(index, Held::INPUT);
        }
        if self.ex.dispatches() != dispatches_before {
            self.hold_if_congested(index);
        }
        self.answer(index, out);
    }

    /// Handles what has been read of an HTTP connection: what was kept, and `received`.
    pub(super) fn serve(&mut self, index: usize, received: &mut [u8]) {
        self.run_http(index, |http, cx, out| http.handle_input(cx, received, out));
    }

    /// Runs the machine of an HTTP connection, and does what follows from the outcome.
    fn run_http(
        &mut self,
        index: usize,
        run: impl FnOnce(&mut Http, &mut HttpContext<'_>, &mut Vec<u8>) -> Flow,
    ) {
        let mut slot = self.table.take_slot(index);
        let Some(Conn { id, machine: Machine::Http(connection), session, .. }) = self.table.get_mut(index)
        else {
            return self.table.set_slot(index, slot);
        };
        let dispatches = self.ex.dispatches();
        let mut out = std::mem::take(&mut self.cork);
        let departed = &self.departed;
        let conn = *id;
        self.ex.questions.set_asker(Some(conn));
        let mut cx = HttpContext {
            ex: &mut self.ex,
            clients: &mut self.clients,
            departed: &|sid| departed.core_of(sid),
            conn,
            session,
            slot: &mut slot,
        };
        let flow = run(&mut connection.http, &mut cx, &mut out);
        let upgraded = connection.http.take_upgraded();
        self.table.set_slot(index, slot);
        self.ex.questions.set_asker(None);
        if self.ex.questions.is_waiting(conn) {
            self.hold(index, Held::DECISION);
            self.has_changed = true;
        }
        match (flow, upgraded) {
            (_, Some(upgraded)) => self.upgraded(index, upgraded.0, upgraded.1, out),
            (Flow::Stop, None) => {
                self.table.requested(index);
                self.append_replies(index, &mut out);
                self.cork = out;
                self.end(index);
            }
            (flow, None) => self.after_http_input(index, flow, dispatches, out),
        }
    }

    fn after_http_input(&mut self, index: usize, flow: Flow, dispatches_before: u64, out: Vec<u8>) {
        let Some(http) = self.table.get_mut(index).and_then(Conn::http) else { return };
        let (deadline, is_finished) = (http.poll_timeout(), http.is_finished(self.ex.finishing));
        let progress = http.take_progress();
        if progress.requested {
            self.table.requested(index);
        }
        if flow == Flow::Yield {
            self.next_turn.push(index);
        }
        if flow == Flow::Continue {
            self.release(index, Held::INPUT);
        } else {
            self.hold(index, Held::INPUT);
        }
        self.arm(index, deadline);
        if progress.published && self.ex.dispatches() != dispatches_before {
            self.hold_if_congested(index);
        }
        self.answer(index, out);
        if is_finished {
            self.end(index);
        }
    }

    /// A connection speaks WebSocket from now on; `rest` is what followed its handshake.
    fn upgraded(&mut self, index: usize, socket: WebSocket, mut rest: Vec<u8>, out: Vec<u8>) {
        let is_finished = self.table.get_mut(index).and_then(Conn::http).is_some_and(|http| http.finished);
        let due = socket.poll_timeout(&self.ex);
        self.table.set_machine(index, Machine::WebSocket(socket));
        let Some(conn) = self.table.get_mut(index) else { return };
        let id = conn.id;
        if let Some(due) = due {
            self.arm(index, due);
        }
        self.release(index, Held::INPUT);
        self.answer(index, out);
        if !rest.is_empty() {
            self.received(id, &mut rest);
        }
        // A client that finished sending while it waited for admission is gone, and nothing more will tell.
        if is_finished {
            self.close_socket_of(id, 1000, "");
        }
    }

    /// The application has decided about a request that waited for it.
    pub(super) fn admit(&mut self, index: usize, decision: Connect) {
        let Some(http) = self.table.get_mut(index).and_then(Conn::http) else { return };
        if http.handle_admission(decision) {
            self.http_ready(index);
        }
    }

    /// The permission that something on a connection waited for is there.
    pub(super) fn resume_decided(&mut self, conn: ConnId) {
        let Some(index) = self.table.index_of(conn) else { return };
        self.has_changed = true;
        self.ex.resume_kept(conn);
        self.release(index, Held::DECISION);
        if let Some(http) = self.table.get_mut(index).and_then(Conn::http) {
            http.handle_decision();
        }
        self.revisit.push_back(index);
    }

    /// Nothing is in flight, and what the connection waited for has happened: it is free for the next request.
    pub(super) fn http_ready(&mut self, index: usize) {
        let Some(conn) = self.table.get_mut(index) else { return };
        if conn.in_flight || conn.replies.is_some() {
            return;
        }
        let Some(http) = conn.http() else { return };
        if let Some(destination) = http.moving.take() {
            return self.move_connection(index, destination);
        }
        self.run_http(index, |http, cx, out| http.handle_ready(cx, out));
    }

    fn move_connection(&mut self, index: usize, destination: Destination) {
        // The next core knows no reason not to read.
        self.release(index, Held::INPUT);
        self.release(index, Held::CORES);
        self.release(index, Held::TURN);
        let Some(conn) = self.table.get_mut(index) else { return };
        let id = conn.id;
        let Some(http) = conn.http() else { return };
        let (peer, moved) = (http.peer, http.take_moved());
        let incoming =
            Incoming { conn: id, peer, moved, slot: self.table.take_slot(index), begins_tls: false };
        self.drop_connection(index);
        match destination {
            Destination::Core(core) => self.hand_over(incoming, core),
            Destination::Node(node) => self.relay(incoming, node),
        }
    }

    /// Continues a connection for which something had to happen first, with what was read and waits.
    pub(super) fn resume_input(&mut self, index: usize) {
        let Some(conn) = self.table.get_mut(index) else { return };
        let (id, held) = (conn.id, conn.held);
        match &mut conn.machine {
            _ if held.has(Held::TURN) || held.has(Held::DECISION) => {}
            Machine::Http(_) if held.has(Held::CORES) => {}
            Machine::Http(_) => self.http_ready(index),
            Machine::WebSocket(socket) if held.has(Held::REPLIES) || held.has(Held::CORES) => {
                socket.leave_step_slot();
            }
            Machine::WebSocket(socket) => {
                if socket.has_unread() {
                    self.run_socket(id, |socket, cx, shared, out| socket.resume_input(cx, shared, out));
                }
            }
            Machine::Preface(_) | Machine::Closing { .. } => {}
        }
    }
}
