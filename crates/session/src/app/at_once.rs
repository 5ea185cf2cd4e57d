//! Takes pending deliveries out of a session's outbox, to send them together with an answer to its client.

use crate::encode::{Encoding, Encodings, OwnWire, Wire};
use stentor_hub::{Hub, SessionId, Topic};

/// Maximum size of pending deliveries that are sent together with the answers to the client, so that no answer overtakes a
/// delivery. A session with more is a slow consumer, and receives its deliveries step by step.
pub(crate) const AT_ONCE_BYTES_MAX: usize = 64 * 1024;

/// Appends all pending deliveries of a session to `out`, as [`Encoding::message`] would write them.
pub(crate) fn take_at_once(hub: &mut Hub<Encodings>, session: SessionId, out: &mut Vec<u8>) {
    let is_in_flight = hub.is_in_flight(session);
    let Some(encoding) = hub.format(session).map(Encoding::from) else { return };
    match encoding.wire() {
        Wire::Own(wire) => take_messages(hub, session, (encoding, wire), out),
        _ => hub.take_all(session, |_, frame| out.extend_from_slice(&frame.bytes())),
    }
    // If bytes are in flight, the driver's event for them marks these deliveries as sent, too.
    if !is_in_flight {
        hub.handle_sent(session);
    }
}

/// Like [`take_at_once`], but only if a message of this room is pending and all pending deliveries together have at most
/// [`AT_ONCE_BYTES_MAX`].
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

/// Like [`take_at_once`], for a protocol with a wire of its own, whose messages may have another form than publications.
fn take_messages(
    hub: &mut Hub<Encodings>,
    session: SessionId,
    (encoding, wire): (Encoding, &dyn OwnWire),
    out: &mut Vec<u8>,
) {
    let other = wire.message_wire().map(|own| Encoding::own(own, encoding.envelope()));
    if let Some(other) = other {
        hub.set_format(session, other.into());
    }
    hub.take_all(session, |_, frame| wire.append_message_of(&frame.bytes(), out));
    if other.is_some() {
        hub.set_format(session, encoding.into());
    }
}
