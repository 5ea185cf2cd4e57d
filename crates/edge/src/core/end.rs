//! The end of connections, and the timers that enforce it.
//!
//! ```text
//!  disconnect (a reason of ours) ─► close_socket ─┐
//!  answered and not kept alive, peer's close ─────┴─► end ─► Closing ─► finish (the driver's) ─► gone
//!  the peer is gone, no progress ───────────────────► abort ──────────────────────────────────► gone
//!  the peer is gone, and only waits to subscribe ───► abort ──────────────────────────────────► gone
//!  the driver says that it is gone ─────────────────► forget ─────────────────────────────────► gone
//! ```
//!
//! **Invariants.** A connection in the table has a timer at all times, so that no state lasts for ever. Its session ends with the
//! first step out of `Http` or `WebSocket`, and only once.

use super::table::{Conn, Held, Machine};
use super::{Connections, Protocols, clients, send};
use std::time::Duration;
use stentor_driver::Driver;
use stentor_hub::{Disconnect, SessionId};
use stentor_session::app::HandlerScope;
use stentor_session::identity::{End, Owner};
use stentor_session::message::Envelope;
use stentor_session::protocols::http::Waiting;

/// Ends a session for one of the server's reasons.
pub(super) fn disconnect(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    session: SessionId,
    why: Disconnect,
) {
    if why == Disconnect::ClosedByApplication {
        send_pending(conns, protocols, session);
    }
    match protocols.ex.owner_of(session) {
        Some(Owner::Connection(index, _)) => {
            protocols.ex.count_disconnect(why);
            close_socket(conns, protocols, index, (why.code(), why.reason()), End::Because(why));
        }
        Some(Owner::Client(id)) => {
            if let Some(client) = protocols.clients.get_mut(id) {
                client.end_session(&mut protocols.ex, session, why);
            }
        }
        Some(Owner::Socket(_)) | None => protocols.ex.close_session(session, End::Because(why)),
    }
}

/// Ends a session for the application, with the application's code and reason.
pub(super) fn close_with(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    session: SessionId,
    code: u16,
    reason: &str,
) {
    let why = Disconnect::ClosedByApplication;
    send_pending(conns, protocols, session);
    match protocols.ex.owner_of(session) {
        Some(Owner::Connection(index, _)) => {
            protocols.ex.count_disconnect(why);
            close_socket(conns, protocols, index, (code, reason), End::Because(why));
        }
        Some(Owner::Client(id)) => {
            if let Some(client) = protocols.clients.get_mut(id) {
                client.set_closed(code, reason);
                client.end_session(&mut protocols.ex, session, why);
            }
        }
        Some(Owner::Socket(_)) | None => protocols.ex.close_session(session, End::Because(why)),
    }
}

/// Closes a WebSocket connection with a code and a reason, and its session, whose end has the reason `why`. Other connections are closed
/// at once.
pub(super) fn close_socket(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    index: usize,
    (code, reason): (u16, &str),
    why: End,
) {
    if let Some(conn) = conns.table.get_mut(index)
        && let Machine::WebSocket(socket) = &mut conn.machine
    {
        socket.close(code, reason, conn.replies.get_or_insert_default());
        conn.weigh(protocols.ex.ledger());
    }
    end_because(conns, protocols, index, why);
}

/// Ends a connection after `out` has been sent.
pub(super) fn end_after(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    index: usize,
    mut out: Vec<u8>,
) {
    conns.append_replies(&mut protocols.ex, index, &mut out);
    end(conns, protocols, index);
}

/// Ends a connection for its client's reason.
pub(super) fn end(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, index: usize) {
    let why = conns.table.get(index).map_or(End::Gone, Conn::end_reason);
    end_because(conns, protocols, index, why);
}

/// Ends a connection. Its session ends at once, for the reason `why`; the driver closes the connection after the bytes in flight and the
/// answers have been sent. The connection is aborted if the kernel accepts no byte for `close_timeout`.
pub(super) fn end_because(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    index: usize,
    why: End,
) {
    end_session(conns, protocols, index, why);
    let deadline = protocols.ex.millis().after(protocols.ex.options().limits.close_timeout);
    // Progress is measured from the current number of bytes in flight.
    conns.progress(index);
    if conns.table.get(index).is_none() {
        return;
    }
    conns.table.set_machine(index, Machine::Closing { deadline });
    if let Some(conn) = conns.table.get_mut(index) {
        conn.weigh(protocols.ex.ledger());
    }
    send::flush(conns, protocols, index);
    conns.arm(&protocols.ex, index, deadline);
}

/// Ends a connection at once, because its peer no longer reads.
pub(super) fn abort(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, index: usize) {
    abort_because(conns, protocols, index, End::Gone);
}

/// Ends a connection at once, and its session for the reason `why`.
pub(super) fn abort_because(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    index: usize,
    why: End,
) {
    end_session(conns, protocols, index, why);
    let Some(id) = conns.table.get(index).map(|conn| conn.id) else { return };
    conns.drop_connection(&mut protocols.ex, index);
    conns.driver.close(id);
}

/// Called when a peer has finished sending on a connection that is paused. All input from before is still handled, except
/// questions whether the client may subscribe: these subscriptions would end with the connection. Other questions stay, because
/// their messages, events and logins were accepted and may have effects. Questions also stay for HTTP requests, whose clients may
/// only have finished sending, for clients that outlive their connections, and for clients whose events may do more than
/// subscribe.
pub(super) fn end_pending(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, index: usize) {
    let Some(conn) = conns.table.get(index) else { return };
    match &conn.machine {
        Machine::Http(connection)
            if connection.http.waiting.as_ref().is_some_and(Waiting::ends_with_input) =>
        {
            abort(conns, protocols, index);
        }
        Machine::WebSocket(socket) if conn.held.has(Held::DECISION) && socket.client().is_none() => {
            let is_v1 = socket.encoding().envelope() == Envelope::V1;
            protocols.ex.drop_subscriptions(conn.id, is_v1);
        }
        _ => {}
    }
}

fn end_session(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, index: usize, why: End) {
    let Some(conn) = conns.table.get_mut(index) else { return };
    if let Some(client) = conn.client() {
        let answered = matches!(&conn.machine, Machine::Http(connection)
            if connection.http.waiting.as_ref().is_some_and(Waiting::is_answered));
        let (id, unsent) = (conn.id, answered && conn.in_flight);
        // For the client's own protocol, a WebSocket that has failed is a lost connection.
        let why = if why == End::Closed { why } else { End::Gone };
        if let Some(client) = protocols.clients.get_mut(client) {
            client.handle_connection_lost(&mut protocols.ex, id, why, unsent);
        }
        return;
    }
    let Some(session) = conn.session.take() else { return };
    let opened_by = match &conn.machine {
        Machine::WebSocket(socket) if !socket.profile().push_only => Some(socket.profile().service),
        _ => None,
    };
    protocols.ex.close_session(session, why);
    if let Some(service) = opened_by {
        let scope = HandlerScope { service, ..HandlerScope::default() };
        protocols.ex.notify_app(scope, |app, ctx| app.closed(ctx, session));
    }
}

/// Removes a connection that the driver has dropped.
pub(super) fn forget(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, index: usize) {
    end_session(conns, protocols, index, End::Gone);
    conns.drop_connection(&mut protocols.ex, index);
}

/// Ends the connection's SSE stream, if it has one, so that the client reconnects. `after` is the reconnect delay, `why` the reason for the
/// end.
pub(super) fn end_events(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    index: usize,
    after: Option<Duration>,
    why: Disconnect,
) {
    let Some(http) = conns.table.get_mut(index).and_then(Conn::http) else { return };
    if let Some(response) = http.response_mut()
        && response.is_stream()
        && !response.is_whole()
    {
        let mut out = Vec::with_capacity(32);
        response.send_away(after, &mut out);
        conns.append_replies(&mut protocols.ex, index, &mut out);
        end_because(conns, protocols, index, End::Because(why));
    }
}

/// Sends a session's pending deliveries before the application ends it. Deliveries that its connection can't take now are sent
/// with the answers, up to `AT_ONCE_BYTES_MAX` of them.
pub(super) fn send_pending(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    session: SessionId,
) {
    if !protocols.ex.has_pending(session) {
        return;
    }
    match protocols.ex.owner_of(session) {
        Some(Owner::Connection(index, _)) => send::flush(conns, protocols, index),
        Some(Owner::Client(id)) => clients::flush_client(conns, protocols, id),
        Some(Owner::Socket(_)) | None => {}
    }
    if !protocols.ex.has_pending(session) {
        return;
    }
    match protocols.ex.owner_of(session) {
        Some(Owner::Connection(index, _)) => {
            if let Some(Conn { machine: Machine::WebSocket(_), .. }) = conns.table.get(index) {
                let mut pending = protocols.ex.take_if_few(session);
                conns.append_replies(&mut protocols.ex, index, &mut pending);
                send::flush(conns, protocols, index);
            }
        }
        Some(Owner::Client(id)) => {
            if let Some(client) = protocols.clients.get_mut(id) {
                let pending = protocols.ex.take_if_few(session);
                client.keep(&mut protocols.ex, &pending);
            }
        }
        Some(Owner::Socket(_)) | None => {}
    }
}
