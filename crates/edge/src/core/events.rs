//! Events of connections: from the driver, from timers and from queues. An event is passed to the connection's machine, and the
//! machine's outcome is carried out.

use super::input::Ran;
use super::table::{Held, Machine};
use super::{Connections, Incoming, Mail, Protocols, admission, end, handover, input, preface, relay, send};
use stentor_driver::{ConnId, Driver, Event, ReceiveBuffer, Sending};
use stentor_session::protocols::client::Flow;
use stentor_session::protocols::http::{Destination, Waiting};
use stentor_session::refusal_log::Refusal;

/// Handles a read of the driver. Returns `false` if nothing but answers on the same connection followed from it.
#[inline]
pub(super) fn handle_received(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    conn: ConnId,
    mut data: ReceiveBuffer,
) -> bool {
    protocols.ex.metrics().received_bytes.add(data.len() as u64);
    protocols.ex.budget.begin();
    let has_changed = received(conns, protocols, mail, conn, &mut data);
    conns.driver.recycle(data);
    has_changed
}

/// Handles any other event of the driver.
pub(super) fn handle(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    event: Event,
) {
    match event {
        Event::Accepted { conn, peer, listener } => {
            admission::accepted(conns, protocols, mail, conn, peer, listener)
        }
        Event::AcceptFailed(error) => {
            protocols.ex.metrics().accept_errors.add(1);
            if let Some(logged) = protocols.ex.log_refusal(Refusal::Accept, &error.to_string()) {
                let others = logged.others();
                tracing::warn!(%error, "could not accept a connection; trying again in 100 ms{others}");
            }
        }
        Event::PeerFinished(conn) => {
            if let Some(index) = conns.table.index_of(conn) {
                finished(conns, protocols, mail, index);
            }
        }
        Event::EndPending(conn) => {
            if let Some(index) = conns.table.index_of(conn) {
                end::end_pending(conns, protocols, index);
            }
        }
        Event::Sent(conn) => {
            if let Some(index) = conns.table.index_of(conn) {
                send::sent(conns, protocols, index);
            }
        }
        Event::Closed { conn, .. } => {
            if let Some(index) = conns.table.index_of(conn) {
                end::forget(conns, protocols, index);
            }
        }
        // The core opens no connections. The turn itself handles received data, timers and wakes.
        Event::Connected(_) | Event::Received { .. } | Event::Timer(_) | Event::Woken => {}
    }
}

/// Handles received bytes of a connection. Returns `false` if nothing but answers on this connection followed from them.
#[inline]
pub(super) fn received(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    id: ConnId,
    data: &mut [u8],
) -> bool {
    match input::run_socket(conns, protocols, mail, id, |socket, cx, shared, out| {
        socket.handle_input(cx, shared, data, out)
    }) {
        Ran::Answered => return false,
        Ran::Changed => {}
        Ran::NotASocket if conns.table.index_of(id).is_none() => return false,
        Ran::NotASocket => {
            if !preface::receive_preface(conns, protocols, mail, id.index(), data) {
                input::serve(conns, protocols, mail, id.index(), data);
            }
        }
    }
    true
}

/// Called when the peer has finished sending.
pub(super) fn finished(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    index: usize,
) {
    let Some(conn) = conns.table.get_mut(index) else { return };
    match &mut conn.machine {
        // A polling client finishes sending only after it has read the answer, so this client has disconnected.
        Machine::Http(connection)
            if connection.http.waiting.as_ref().is_some_and(Waiting::ends_with_input) =>
        {
            end::abort(conns, protocols, index);
        }
        Machine::Http(connection) => {
            connection.http.finished = true;
            input::serve(conns, protocols, mail, index, &mut []);
        }
        // A peer that finishes sending without a close frame has disconnected.
        Machine::WebSocket(_) if conn.in_flight => end::abort(conns, protocols, index),
        Machine::WebSocket(_) => end::end(conns, protocols, index),
        Machine::Preface(_) => {
            preface::refuse_preface(conns, protocols, index, "the connection ended before it")
        }
        Machine::Closing { .. } => {}
    }
}

/// Continues a connection that waited, with its buffered input.
pub(super) fn resume_input(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    index: usize,
) {
    let Some(conn) = conns.table.get_mut(index) else { return };
    let (id, held) = (conn.id, conn.held);
    match &mut conn.machine {
        _ if held.has(Held::TURN) || held.has(Held::DECISION) => {}
        Machine::Http(_) if held.has(Held::CORES) => {}
        Machine::Http(_) => http_ready(conns, protocols, mail, index),
        Machine::WebSocket(socket) if held.has(Held::REPLIES) || held.has(Held::CORES) => {
            socket.leave_step_slot();
        }
        Machine::WebSocket(socket) => {
            if socket.has_unread() {
                input::run_socket(conns, protocols, mail, id, |socket, cx, shared, out| {
                    socket.resume_input(cx, shared, out)
                });
            }
        }
        Machine::Preface(_) | Machine::Closing { .. } => {}
    }
}

/// Continues with the request of an HTTP connection, or with its next one, if nothing is in flight.
pub(super) fn http_ready(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    index: usize,
) {
    let Some(conn) = conns.table.get_mut(index) else { return };
    if conn.in_flight || conn.replies.is_some() {
        return;
    }
    let Some(http) = conn.http() else { return };
    if let Some(destination) = http.moving.take() {
        return move_connection(conns, protocols, mail, index, destination);
    }
    input::run_http(conns, protocols, mail, index, |http, cx, out| http.handle_ready(cx, out));
}

pub(super) fn move_connection(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    index: usize,
    destination: Destination,
) {
    // The next core starts without a reason to pause reading.
    conns.release(index, Held::INPUT);
    conns.release(index, Held::CORES);
    conns.release(index, Held::TURN);
    let Some(conn) = conns.table.get_mut(index) else { return };
    let id = conn.id;
    let Some(http) = conn.http() else { return };
    let (peer, moved) = (http.peer, http.take_moved());
    let incoming = Incoming::new(id, peer, moved, conns.table.take_slot(index));
    conns.drop_connection(&mut protocols.ex, index);
    match destination {
        Destination::Core(core) => handover::hand_over(conns, protocols, mail, incoming, core),
        Destination::Node(node) => relay::relay(conns, protocols, mail, incoming, node),
        Destination::Worker(client) => relay::forward(conns, protocols, mail, incoming, client),
    }
}

/// Handles a connection's timer. A deadline may have passed, or may only have moved.
pub(super) fn due(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, index: usize) {
    let now = protocols.ex.millis();
    let Some(conn) = conns.table.get_mut(index) else { return };
    conn.timer = None;
    match &mut conn.machine {
        Machine::Http(connection) => {
            let deadline = connection.http.poll_timeout();
            if now.is_before(deadline) {
                return conns.arm(&protocols.ex, index, deadline);
            }
            http_due(conns, protocols, index);
        }
        Machine::WebSocket(_) => socket_due(conns, protocols, index),
        Machine::Preface(preface) if now.is_before(preface.deadline) => {
            let deadline = preface.deadline;
            conns.arm(&protocols.ex, index, deadline);
        }
        Machine::Preface(_) => preface::refuse_preface(
            conns,
            protocols,
            index,
            "it did not arrive in time (proxies.header_timeout)",
        ),
        &mut Machine::Closing { deadline } if now.is_before(deadline) => {
            conns.arm(&protocols.ex, index, deadline)
        }
        Machine::Closing { .. } => {
            if conns.progress(index) != Some(true) {
                return end::abort(conns, protocols, index);
            }
            // A slow peer gets more time as long as it makes progress.
            let deadline = now.after(protocols.ex.options().limits.close_timeout);
            if let Some(conn) = conns.table.get_mut(index) {
                conn.machine = Machine::Closing { deadline };
            }
            conns.arm(&protocols.ex, index, deadline);
        }
    }
}

pub(super) fn http_due(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, index: usize) {
    let status = conns.status(index);
    let Some(conn) = conns.table.get_mut(index) else { return };
    let id = conn.id;
    let Some(http) = conn.http() else { return };
    let mut out = Vec::new();
    if http.handle_timeout(&mut protocols.ex, id, status, &mut out) == Flow::Stop {
        return end::end_after(conns, protocols, index, out);
    }
    let deadline = http.poll_timeout();
    conns.append_replies(&mut protocols.ex, index, &mut out);
    conns.arm(&protocols.ex, index, deadline);
    send::flush(conns, protocols, index);
}

pub(super) fn socket_due(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, index: usize) {
    let status = conns.status(index);
    let Some(conn) = conns.table.get_mut(index) else { return };
    let (id, session) = (conn.id, conn.session);
    let Machine::WebSocket(socket) = &mut conn.machine else { return };
    let mut out = Vec::new();
    socket.handle_timeout(&mut protocols.ex, session, status, &mut out);
    let due = socket.poll_timeout(&protocols.ex);
    if !out.is_empty() {
        if conn.in_flight || conn.replies.is_some() {
            conns.append_replies(&mut protocols.ex, index, &mut out);
        } else if conns.driver.send_bytes(id, &out) == Sending::InFlight {
            conn.in_flight = true;
        }
    }
    if let Some(due) = due {
        conns.arm(&protocols.ex, index, due);
    }
}
