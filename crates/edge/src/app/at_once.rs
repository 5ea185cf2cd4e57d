//! Pending deliveries that leave a session's queue at once, to be sent with what is written to its client now.

use crate::encode::{Encoding, Encodings, Wire, sockjs_frame};
use crate::message::Message;
use stentor_hub::{Hub, SessionId, Topic};
use stentor_wire::sockjs::Wrapping;

/// Pending deliveries up to this size are sent together with the answers to the client, so that no answer overtakes
/// them. A session with more is a slow consumer: its deliveries are sent step by step.
pub(crate) const AT_ONCE_BYTES_MAX: usize = 64 * 1024;

/// Appends all pending deliveries of a session to `out`, as [`Encoding::message`] would write them.
pub(crate) fn take_at_once(hub: &mut Hub<Encodings>, session: SessionId, out: &mut Vec<u8>) {
    let is_in_flight = hub.is_in_flight(session);
    let Some(encoding) = hub.format(session).map(Encoding::from) else { return };
    match encoding.wire() {
        Wire::SockJs(wrapping) if wrapping != Wrapping::WebSocket => {
            take_records(hub, session, encoding, out);
        }
        _ => hub.take_all(session, |_, frame| out.extend_from_slice(&frame.bytes())),
    }
    // The kernel reports what was in flight before, and this with it.
    if !is_in_flight {
        hub.handle_sent(session);
    }
}

/// The same if something of this room waits, and not much in all.
pub(crate) fn take_before_leave(
    hub: &mut Hub<Encodings>,
    session: SessionId,
    topic: &Topic,
    out: &mut Vec<u8>,
) {
    let waits = matches!(topic, Topic::Room(_)) && hub.has_pending_of(session, topic);
    if waits && hub.waiting_bytes_of(session) <= AT_ONCE_BYTES_MAX {
        take_at_once(hub, session, out);
    }
}

/// The same as [`take_at_once`] for a client of SockJS over HTTP. Its frames depend on the request that carries them, which may be another one
/// then: so they become messages again. `xhr` has the shortest frames.
fn take_records(hub: &mut Hub<Encodings>, session: SessionId, encoding: Encoding, out: &mut Vec<u8>) {
    let xhr = Encoding::sockjs(Wrapping::Xhr, encoding.envelope());
    hub.set_format(session, xhr.into());
    hub.take_all(session, |_, frame| {
        let bytes = frame.bytes();
        let messages = Wrapping::Xhr.messages_of(sockjs_frame(Wrapping::Xhr, &bytes));
        let message = messages.and_then(|message| std::str::from_utf8(message).ok());
        if let Some(text) = message.and_then(stentor_json::string) {
            xhr.message("/", out, Message::Text(&text));
        }
    });
    hub.set_format(session, encoding.into());
}
