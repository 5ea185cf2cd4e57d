//! Input of connections: passes it to the machines and carries out their outcomes.

use super::table::{Conn, Held, Machine};
use super::{Connections, Incoming, Mail, Protocols, end, send};
use std::time::Duration;
use stentor_driver::{ConnId, Driver, Sending};
use stentor_session::app::Connect;
use stentor_session::executor::SMALL_INPUT_BYTES;
use stentor_session::identity::End;
use stentor_session::protocols::client::Flow;
use stentor_session::protocols::http::{Http, HttpContext};
use stentor_session::protocols::websocket::{SocketContext, WebSocket};
use stentor_wire::ws;

/// Begins a connection with the bytes that were already read from it.
pub(super) fn begin(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    incoming: Incoming,
) {
    let Incoming { conn, peer, mut moved, slot, begins_tls, stays, refusal } = incoming;
    let limits = &protocols.ex.options().limits;
    // A TLS handshake has a timeout of its own.
    let handshake = if begins_tls { limits.tls_handshake_timeout } else { Duration::ZERO };
    let deadline = protocols.ex.millis().after(limits.header_timeout + handshake);
    let deadline = refusal.map_or(deadline, |(_, deadline)| deadline);
    if begins_tls {
        conns.driver.begin(conn, std::mem::take(&mut moved.buffer));
        moved.socket.is_tls = true;
    }
    let continues = moved.buffered.is_some();
    let has_input = !moved.buffer.is_empty() || moved.finished || protocols.ex.is_finishing();
    let mut http = Http::new(peer, deadline, moved, stays || refusal.is_some());
    if let Some((reached, _)) = refusal {
        http.refuse(reached);
    }
    let index = conns.table.insert(conn, Machine::http(http));
    conns.table.set_slot(index, slot);
    conns.arm(&protocols.ex, index, deadline);
    if continues {
        conns.weigh(&mut protocols.ex, index);
        conns.next_turn.push(index);
    } else if has_input {
        serve(conns, protocols, mail, index, &mut []);
    }
}

/// Result of running the machine of a WebSocket.
pub(super) enum Ran {
    /// The connection isn't a WebSocket, or has ended.
    NotASocket,
    /// Whole messages were answered, and the answers have been sent.
    Answered,
    /// Anything else may have happened.
    Changed,
}

/// Runs the machine of a WebSocket and carries out the outcome.
#[inline]
pub(super) fn run_socket(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    id: ConnId,
    run: impl FnOnce(&mut WebSocket, &mut SocketContext<'_>, &mut ws::Shared, &mut Vec<u8>) -> Flow,
) -> Ran {
    let Some(conn) = conns.table.get_by_id(id) else { return Ran::NotASocket };
    let Machine::WebSocket(socket) = &mut conn.machine else { return Ran::NotASocket };
    let dispatches = protocols.ex.dispatches();
    let Protocols { ex, ws, clients, .. } = protocols;
    let mut cx = SocketContext { ex, clients, conn: id, session: conn.session };
    let flow = run(socket, &mut cx, ws, &mut conns.cork);
    // Most messages are whole, and their answers are sent at once. Without this shortcut, an echo takes 9 % more
    // instructions.
    let is_usual = flow == Flow::Continue
        && protocols.ex.dispatches() == dispatches
        && !protocols.ex.is_waiting(id)
        && conn.holds_nothing()
        && conn.held.is_none()
        && !conn.in_flight
        && conns.cork.len() <= SMALL_INPUT_BYTES;
    if !is_usual {
        after_socket_input(conns, protocols, mail, id.index(), flow, dispatches);
        return Ran::Changed;
    }
    conn.in_flight = !conns.cork.is_empty() && conns.driver.send_bytes(id, &conns.cork) == Sending::InFlight;
    conns.cork.clear();
    if conn.in_flight { Ran::Changed } else { Ran::Answered }
}

/// Carries out the outcome of a WebSocket's input.
fn after_socket_input(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    index: usize,
    flow: Flow,
    dispatches_before: u64,
) {
    if flow == Flow::Stop {
        conns.append_cork(&mut protocols.ex, index);
        return end::end(conns, protocols, index);
    }
    let Some(Conn { id, machine: Machine::WebSocket(socket), held, .. }) = conns.table.get(index) else {
        return conns.cork.clear();
    };
    let id = *id;
    let message_due = if socket.is_mid_message() { socket.poll_timeout(&protocols.ex) } else { None };
    let was_held = held.has(Held::INPUT);
    if let Some(due) = message_due {
        conns.arm(&protocols.ex, index, due);
    }
    if protocols.ex.is_waiting(id) {
        conns.hold(index, Held::DECISION);
    }
    if flow != Flow::Continue {
        conns.hold(index, Held::INPUT);
        if flow == Flow::Yield {
            conns.leave(&protocols.ex, index);
        }
    } else if was_held {
        conns.release(index, Held::INPUT);
    }
    if protocols.ex.dispatches() != dispatches_before {
        conns.hold_if_congested(&mut protocols.ex, index);
    }
    send::answer(conns, protocols, mail, index);
}

/// Handles the input of an HTTP connection: buffered bytes, then `received`.
pub(super) fn serve(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    index: usize,
    received: &mut [u8],
) {
    run_http(conns, protocols, mail, index, |http, cx, out| http.handle_input(cx, received, out));
}

/// Runs the machine of an HTTP connection, and carries out the outcome.
pub(super) fn run_http(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    index: usize,
    run: impl FnOnce(&mut Http, &mut HttpContext<'_>, &mut Vec<u8>) -> Flow,
) {
    let mut slot = conns.table.take_slot(index);
    let Some(Conn { id, machine: Machine::Http(connection), session, .. }) = conns.table.get_mut(index)
    else {
        return conns.table.set_slot(index, slot);
    };
    let dispatches = protocols.ex.dispatches();
    let conn = *id;
    let Protocols { ex, clients, departed, .. } = protocols;
    let departed = &|sid| departed.core_of(sid);
    let mut cx =
        HttpContext { ex, clients, departed, conn, session, slot: &mut slot, access: &mut conns.access };
    let flow = run(&mut connection.http, &mut cx, &mut conns.cork);
    let upgraded = connection.http.take_upgraded();
    conns.table.set_slot(index, slot);
    if protocols.ex.is_waiting(conn) {
        conns.hold(index, Held::DECISION);
    }
    match (flow, upgraded) {
        (_, Some(upgraded)) => begin_socket(conns, protocols, mail, index, upgraded.0, upgraded.1),
        (Flow::Stop, None) => {
            conns.table.requested(index);
            conns.append_cork(&mut protocols.ex, index);
            end::end(conns, protocols, index);
        }
        (flow, None) => after_http_input(conns, protocols, mail, index, flow, dispatches),
    }
}

fn after_http_input(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    index: usize,
    flow: Flow,
    dispatches_before: u64,
) {
    let Some(http) = conns.table.get_mut(index).and_then(Conn::http) else { return conns.cork.clear() };
    let (deadline, is_finished) = (http.poll_timeout(), http.is_finished(protocols.ex.is_finishing()));
    let progress = http.take_progress();
    if progress.requested {
        conns.table.requested(index);
    }
    if flow == Flow::Yield {
        conns.next_turn.push(index);
    }
    if flow == Flow::Continue {
        conns.release(index, Held::INPUT);
    } else {
        conns.hold(index, Held::INPUT);
    }
    conns.arm(&protocols.ex, index, deadline);
    if progress.published && protocols.ex.dispatches() != dispatches_before {
        conns.hold_if_congested(&mut protocols.ex, index);
    }
    send::answer(conns, protocols, mail, index);
    if is_finished {
        end::end(conns, protocols, index);
    }
}

/// Upgrades a connection to WebSocket. `rest` is the input that followed its handshake.
fn begin_socket(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    index: usize,
    socket: WebSocket,
    mut rest: Vec<u8>,
) {
    let is_finished = conns.table.get_mut(index).and_then(Conn::http).is_some_and(|http| http.finished);
    let due = socket.poll_timeout(&protocols.ex);
    conns.table.set_machine(index, Machine::WebSocket(socket));
    let Some(conn) = conns.table.get_mut(index) else { return };
    let id = conn.id;
    if let Some(due) = due {
        conns.arm(&protocols.ex, index, due);
    }
    conns.release(index, Held::INPUT);
    send::answer(conns, protocols, mail, index);
    if !rest.is_empty() {
        run_socket(conns, protocols, mail, id, |socket, cx, shared, out| {
            socket.handle_input(cx, shared, &mut rest, out)
        });
    }
    // A client that finished sending while it waited for admission has disconnected. No later event reports this.
    if is_finished && let Some(index) = conns.table.index_of(id) {
        end::close_socket(conns, protocols, index, (1000, ""), End::Gone);
    }
}

impl<D: Driver> Connections<D> {
    /// Continues a request whose admission the application has decided.
    pub(super) fn admit(&mut self, index: usize, decision: Connect) {
        let Some(http) = self.table.get_mut(index).and_then(Conn::http) else { return };
        if http.handle_admission(decision) {
            self.revisit.push_back(index);
        }
    }

    /// Continues a connection whose pending decision has arrived.
    pub(super) fn resume_decided(&mut self, protocols: &mut Protocols, conn: ConnId) {
        let Some(index) = self.table.index_of(conn) else { return };
        if !protocols.resume_decided(conn) {
            return;
        }
        self.release(index, Held::DECISION);
        if let Some(http) = self.table.get_mut(index).and_then(Conn::http) {
            http.handle_decision();
        }
        self.revisit.push_back(index);
    }
}
