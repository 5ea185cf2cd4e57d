//! Responses to polls: the body, assembled from records when the poll arrives; and the response without a body that makes
//! clients reconnect.

use super::Poll;
use crate::encode::{BINARY, RECORD_HEAD_BYTES, TEXT, records};
use crate::http_date::HttpDate;
use crate::protocols::request::{ResponseOptions, answer, push_credentials, text};
use stentor_wire::engineio::{self, Packet, PayloadEncoder, PayloadFormat};

/// A record that ends a poll without a message.
pub(super) const NOOP: [u8; RECORD_HEAD_BYTES + 1] = [TEXT, 1, 0, 0, 0, b'6'];
/// A record that ends the session.
pub(super) const CLOSE: [u8; RECORD_HEAD_BYTES + 1] = [TEXT, 1, 0, 0, 0, b'1'];
/// Payload for the first poll of a closed session: a NOOP packet and a CLOSE packet.
pub(super) const END: [u8; 2 * (RECORD_HEAD_BYTES + 1)] = [TEXT, 1, 0, 0, 0, b'6', TEXT, 1, 0, 0, 0, b'1'];

/// Appends the complete response to a poll. `queue` holds at least one record.
pub(super) fn write_answer(
    out: &mut Vec<u8>,
    date: HttpDate,
    poll: &Poll,
    queue: &[u8],
    extra: &[(&str, &str)],
) {
    let text_only = poll.base64 || poll.jsonp.is_some();
    let has_binary = records(queue).any(|(kind, _)| kind == BINARY);
    let format = PayloadFormat::of_answer(poll.version, text_only, has_binary);
    let format = if poll.is_client_1 { format.of_client_1() } else { format };
    let mut body = Vec::with_capacity(queue.len() + 16);
    let mut encoder = PayloadEncoder::new(format, &mut body);
    for (kind, packet) in records(queue) {
        match (kind, std::str::from_utf8(packet)) {
            (TEXT, Ok(text)) => encoder.push_encoded(text),
            _ => encoder.push(&Packet::binary(packet)),
        }
    }
    let mut content_type = format.content_type();
    if let Some(index) = poll.jsonp {
        let mut script = Vec::with_capacity(body.len() + 32);
        engineio::write_jsonp_answer(&mut script, index, std::str::from_utf8(&body).unwrap_or_default());
        (body, content_type) = (script, "text/javascript; charset=UTF-8");
    }
    let mut headers = cors_of(poll);
    let own = poll.headers.iter().flat_map(|headers| headers.iter());
    let extra: Vec<(&str, &str)> =
        extra.iter().copied().chain(own.map(|(name, value)| (&**name, &**value))).collect();
    headers.retain(|(name, _)| !extra.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)));
    headers.extend_from_slice(&extra);
    answer(out, options_of(poll, date), 200, content_type, &headers, &body);
}

/// Appends the response to a poll of a closed session whose client should reconnect automatically. A close packet doesn't
/// achieve this: python-engineio and rust_socketio don't reconnect after one.
pub(super) fn write_unavailable(out: &mut Vec<u8>, date: HttpDate, poll: &Poll) {
    let mut headers = cors_of(poll);
    headers.push(("Retry-After", "1"));
    text(out, options_of(poll, date), 503, &headers, "the session has ended; reconnect");
}

fn cors_of(poll: &Poll) -> Vec<(&str, &str)> {
    if let Some(of_app) = poll.cors.as_ref().and_then(|engine| engine.cors.as_ref()) {
        let mut headers = of_app.headers(poll.origin.as_deref());
        headers.push(("Cache-Control", "no-store"));
        return headers;
    }
    let mut headers = vec![("Cache-Control", "no-store"), ("Vary", "Origin")];
    if let Some(origin) = poll.origin.as_deref() {
        headers.push(("Access-Control-Allow-Origin", origin));
        push_credentials(&mut headers, Some(origin));
    }
    headers
}

fn options_of(poll: &Poll, date: HttpDate) -> ResponseOptions {
    ResponseOptions { keep_alive: poll.state.keep_alive, head_only: false, date }
}
