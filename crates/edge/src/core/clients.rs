//! The client sessions of a core that outlive their connections, and the connections that carry them.

use super::mail::CoreMessage;
use super::table::Conn;
use super::timer::Timer;
use super::{Connections, Mail, Protocols, send};
use stentor_driver::{ConnId, Driver};
use stentor_session::executor::PollAnswer;
use stentor_session::identity::ClientId;
use stentor_session::protocols::client::{ActiveTransport, ClientTimer, TransportStatus};
use stentor_session::protocols::response::ResponseContext;

/// Sets the client's timer, unless it is set to an earlier time.
#[inline]
pub(super) fn arm_client(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, id: ClientId) {
    let Some(client) = protocols.clients.get_mut(id) else { return };
    if !client.is_due_earlier() {
        return;
    }
    if let Some(timer) = client.state().timer {
        conns.driver.timer_cancel(timer.id);
    }
    let (at, now) = (client.poll_timeout(), protocols.ex.millis());
    let fires_at = protocols.ex.now() + at.coarse(now).from(now);
    let timer = conns.driver.timer_set(fires_at, Timer::Client(id).token());
    client.state_mut().timer = Some(ClientTimer { id: timer, at });
}

/// Returns the status of the connection that carries a client. Only the progress of a WebSocket shows that its client reads.
fn transport_status(
    conns: &mut Connections<impl Driver>,
    protocols: &Protocols,
    id: ClientId,
) -> TransportStatus {
    let Some(transport) = protocols.client_state(id).map(|state| state.transport) else {
        return TransportStatus::default();
    };
    let Some(index) = transport.conn().and_then(|conn| conns.table.index_of(conn)) else {
        return TransportStatus::default();
    };
    match transport {
        ActiveTransport::WebSocket(_) => conns.status(index),
        _ => TransportStatus { in_flight: conns.is_in_flight(index), ..TransportStatus::default() },
    }
}

/// Handles the timer of a client.
pub(super) fn client_due(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, id: ClientId) {
    let status = transport_status(conns, protocols, id);
    let Some(client) = protocols.clients.get_mut(id) else { return };
    client.state_mut().timer = None;
    client.handle_timeout(&mut protocols.ex, status);
    arm_client(conns, protocols, id);
}

/// Sends a client's pending messages, if it has a connection that can take them.
pub(super) fn flush_client(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, id: ClientId) {
    let Some(transport) = protocols.client_state(id).map(|state| state.transport) else { return };
    let index = transport.conn().and_then(|conn| conns.table.index_of(conn));
    match (transport, index) {
        (ActiveTransport::Poll(conn), _) => answer_client(conns, protocols, conn, PollAnswer::Pending),
        (_, Some(index)) => send::flush(conns, protocols, index),
        (_, None) => {}
    }
    let is_in_flight = index.is_some_and(|index| conns.is_in_flight(index));
    if let Some(client) = protocols.clients.get_mut(id) {
        client.check_queue(&mut protocols.ex, is_in_flight);
    }
}

/// Removes a client. If its id names another core, that core is notified.
pub(super) fn remove_client(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    id: ClientId,
) {
    let removed = protocols.clients.remove(id);
    protocols.ex.take_client(id);
    let Some((sid, timer)) = removed else { return };
    if let Some(timer) = timer {
        conns.driver.timer_cancel(timer.id);
    }
    let home = sid.core(protocols.ex.shared.cores);
    if home != protocols.ex.core() {
        mail.post(home, CoreMessage::Ended(sid));
    }
}

/// Writes to the waiting response of a connection, and sends the bytes.
pub(super) fn answer_client(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    conn: ConnId,
    answer: PollAnswer,
) {
    let Some(index) = conns.table.index_of(conn) else { return };
    let Some(Conn { session, .. }) = conns.table.get(index) else { return };
    let session = *session;
    let Some(http) = conns.table.get_mut(index).and_then(Conn::http) else { return };
    let Some(response) = http.response_mut() else { return };
    let client = response.client().and_then(|id| protocols.clients.get_mut(id));
    let mut out = Vec::new();
    response.answer(&mut ResponseContext { ex: &mut protocols.ex, conn, session, client }, answer, &mut out);
    response.state_mut().keep_alive &= !protocols.ex.is_finishing();
    let is_whole = response.is_whole();
    let idle_deadline = protocols.ex.millis().after(protocols.ex.options().limits.idle_timeout);
    if is_whole {
        http.deadline = idle_deadline;
    }
    if let Some(conn) = conns.table.get_mut(index) {
        if !out.is_empty() {
            conn.replies.get_or_insert_default().append(&mut out);
        }
        conn.weigh(protocols.ex.ledger());
    }
    if is_whole {
        conns.arm(&protocols.ex, index, idle_deadline);
    }
    send::flush(conns, protocols, index);
}
