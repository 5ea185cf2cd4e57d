//! Output of connections: answers to a client's input first, then pending deliveries of its session. Pauses reading from a
//! connection whose output doesn't leave.
//!
//! ```text
//!  received ──► handlers ──► answer ──┬─► in flight ──► sent ──► flush ─┐
//!                                     └─► replies (one is in flight) ───┤
//!  a publication ──► ready ──► flush ───────────────────────────────────┴─► resume_deferred ──► next input, or the end
//! ```

use super::connections::CORK_BYTES;
use super::table::{Held, Machine};
use super::{Connections, Mail, Protocols, holdings};
use std::time::Instant;
use stentor_driver::{Driver, Frame, Sending};
use stentor_hub::SessionId;
use stentor_session::executor::{Executor, SEND_BYTES_MAX, SEND_FRAMES_MAX, SMALL_INPUT_BYTES};
use stentor_session::protocols::client::ActiveTransport;
use stentor_session::protocols::response::ResponseContext;

/// Length of a response up to the end of its status code.
const STATUS_LINE_BYTES: usize = "HTTP/1.1 200".len();

/// Size above which the cork is replaced after an unusually large answer.
const CORK_BYTES_MAX: usize = 1 << 20;

/// Sends the answers in the cork, before pending deliveries of the session.
pub(super) fn answer(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    index: usize,
) {
    if !conns.cork.is_empty() {
        mail.send_new(&mut protocols.ex);
    }
    if conns.access.is_on {
        let sent = std::mem::take(&mut conns.cork);
        conns.log_sent(&protocols.ex, index, &sent);
        conns.cork = sent;
    }
    let bytes = conns.cork.len();
    if bytes > 0
        && let Some(conn) = conns.table.get_mut(index)
    {
        if conn.in_flight || conn.replies.is_some() {
            let replies = conn.replies.get_or_insert_default();
            replies.extend_from_slice(&conns.cork);
            if replies.len() > protocols.ex.options().limits.replies_bytes_max {
                conns.hold(index, Held::REPLIES);
            }
        } else {
            protocols.ex.metrics().sent_bytes.add(bytes as u64);
            if conns.driver.send_bytes(conn.id, &conns.cork) == Sending::InFlight {
                conn.in_flight = true;
                if bytes > SMALL_INPUT_BYTES {
                    holdings::report_memory(conns, protocols);
                }
            } else if matches!(conn.machine, Machine::Http(_)) {
                // The bytes may have been the answer to a poll.
                taken(conns, protocols, index);
            }
        }
    }
    conns.cork.clear();
    if conns.cork.capacity() > CORK_BYTES_MAX {
        conns.cork = Vec::with_capacity(CORK_BYTES);
    }
    conns.weigh(&mut protocols.ex, index);
    conns.resume_deferred(&mut protocols.ex, index);
}

/// Called when the kernel has accepted the bytes in flight.
pub(super) fn sent(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, index: usize) {
    let now = protocols.ex.millis();
    let Some(conn) = conns.table.get_mut(index) else { return };
    conn.in_flight = false;
    conn.in_flight_bytes = 0;
    if let Machine::WebSocket(socket) = &mut conn.machine {
        socket.handle_sent(now);
    }
    taken(conns, protocols, index);
    flush(conns, protocols, index);
}

/// Called when the kernel has accepted all bytes in flight. Returns `true` if more bytes may wait for the connection.
fn taken(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, index: usize) -> bool {
    let Some(conn) = conns.table.get(index) else { return false };
    // Over HTTP, the next bytes may be the end of a response.
    let is_http = !matches!(conn.machine, Machine::WebSocket(_));
    let has_more = match (conn.client(), conn.session) {
        (Some(client), _) => {
            protocols.clients.get_mut(client).is_some_and(|client| client.handle_sent(&mut protocols.ex))
        }
        (None, Some(session)) => protocols.ex.hub.handle_sent(session),
        (None, None) => false,
    };
    has_more || is_http
}

/// Sends waiting answers, then pending deliveries of the session, until a send is in flight.
pub(super) fn flush(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, index: usize) {
    loop {
        let Some(conn) = conns.table.get_mut(index) else { return };
        if conn.in_flight {
            return;
        }
        if let Some(replies) = conn.replies.take() {
            conns.frames.push(Frame::owned(replies));
            conn.weigh(protocols.ex.ledger());
        }
        let conn_id = conn.id;
        match &mut conn.machine {
            Machine::WebSocket(socket) => match (socket.client(), conn.session) {
                (Some(client), _) => {
                    if let Some(client) = protocols.clients.get_mut(client)
                        && client.state().transport == ActiveTransport::WebSocket(conn_id)
                    {
                        client.take_frames(&mut protocols.ex, &mut conns.frames);
                    }
                }
                (None, Some(session)) => take(&mut protocols.ex, session, &mut conns.frames),
                (None, None) => {}
            },
            Machine::Http(connection) => {
                if let Some(response) = connection.http.response_mut() {
                    let client = response.client().and_then(|id| protocols.clients.get_mut(id));
                    let (ex, session) = (&mut protocols.ex, conn.session);
                    let mut cx = ResponseContext { ex, conn: conn_id, session, client };
                    response.take_frames(&mut cx, &mut conns.frames);
                }
            }
            Machine::Preface(_) | Machine::Closing { .. } => {}
        }
        if conns.frames.is_empty() {
            break;
        }
        if conns.access.is_on && conns.access.awaits_status(index) {
            let begin: Vec<u8> = conns.frames[0].bytes().iter().take(STATUS_LINE_BYTES).copied().collect();
            conns.log_sent(&protocols.ex, index, &begin);
        }
        let bytes: usize = conns.frames.iter().map(Frame::len).sum();
        protocols.ex.metrics().sent_bytes.add(bytes as u64);
        let sending = conns.driver.send(conn_id, &mut conns.frames);
        protocols.ex.record_latencies(Instant::now);
        if let Some(conn) = conns.table.get_mut(index) {
            conn.in_flight = sending == Sending::InFlight;
        }
        if sending == Sending::InFlight {
            return;
        }
        if !taken(conns, protocols, index) {
            break;
        }
    }
    conns.resume_deferred(&mut protocols.ex, index);
}

/// Moves deliveries of a session into `frames`, up to the size of one send.
#[inline]
fn take(ex: &mut Executor, session: SessionId, frames: &mut Vec<Frame>) {
    ex.take(session, SEND_BYTES_MAX, SEND_FRAMES_MAX, |_, frame| frames.push(frame.clone()));
}
