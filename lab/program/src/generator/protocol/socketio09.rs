//! Socket.IO 0.7 to 0.9, protocol 1 of the document in LearnBoost/socket.io-spec: all packets except those of the load.
//!
//! A client requests a session by GET `/socket.io/1/`, whose answer is `ID:HEARTBEAT:CLOSE:TRANSPORTS` (seconds), and
//! opens a transport at `/socket.io/1/TRANSPORT/ID`. A packet is text, `KIND:ID:ENDPOINT[:DATA]`. Over WebSocket, each
//! packet is a message. In the body of a poll, a single packet has no prefix, and each of several is preceded by
//! U+FFFD, its length in UTF-16 units and U+FFFD.
//!
//! | kind | | |
//! |---|---|---|
//! | `0` | disconnect | the end |
//! | `1` | connect | the load may begin |
//! | `2` | heartbeat | answered with the same |
//! | `3` to `6`, `8` | message, JSON, event, ack, noop | nothing to be done |
//! | `7` | error | the end |
//!
//! Deliberately absent: endpoints other than the empty one, acks, the transports besides WebSocket and `xhr-polling`.

use super::{Fault, Reaction, is_plain};

/// The character before and after a packet's length.
const MARK: &str = "\u{fffd}";
const HEARTBEAT: &str = "2::";

/// The id in the answer that grants a session. It needs no escaping in requests.
pub(super) fn session_id(answer: &[u8]) -> Result<&str, Fault> {
    let answer = str::from_utf8(answer).map_err(|_| Fault::Answer("a session that isn't text"))?;
    let mut parts = answer.split(':');
    let (id, rest) = (parts.next().unwrap_or_default(), parts.count());
    if !is_plain(id) || rest != 3 {
        return Err(Fault::Answer("a session that isn't ID:HEARTBEAT:CLOSE:TRANSPORTS"));
    }
    Ok(id)
}

/// Handles a packet that doesn't belong to the load.
pub(super) fn react(packet: &[u8]) -> Result<Reaction, Fault> {
    let packet = str::from_utf8(packet).map_err(|_| Fault::Answer("a packet that isn't text"))?;
    let mut parts = packet.splitn(4, ':');
    let (kind, _, endpoint) = (parts.next(), parts.next(), parts.next());
    let Some(endpoint) = endpoint else { return Err(Fault::Answer("a packet without its colons")) };
    match kind {
        Some("0") if endpoint.is_empty() => Err(Fault::Ended("a disconnect".to_owned())),
        Some("1") if endpoint.is_empty() => Ok(Reaction::OPENED),
        Some("2") => Ok(Reaction::answer(HEARTBEAT.to_owned())),
        Some("0" | "1" | "3" | "4" | "5" | "6" | "8") => Ok(Reaction::NOTHING),
        Some("7") => Err(Fault::Ended(format!("the error {}", parts.next().unwrap_or_default()))),
        _ => Err(Fault::Answer("a packet of an unknown kind")),
    }
}

/// Calls `each` for the packets of a body.
pub(super) fn packets(body: &[u8], mut each: impl FnMut(&str) -> Result<(), Fault>) -> Result<(), Fault> {
    let body = str::from_utf8(body).map_err(|_| Fault::Answer("a body that isn't text"))?;
    if body.starts_with(MARK) { counted(body, MARK, each) } else { each(body) }
}

/// Calls `each` for the successive parts of `text`, each preceded by its length in UTF-16 units between two marks.
pub(super) fn counted(
    mut text: &str,
    mark: &str,
    mut each: impl FnMut(&str) -> Result<(), Fault>,
) -> Result<(), Fault> {
    while !text.is_empty() {
        let counted = text.strip_prefix(mark).and_then(|text| text.split_once(mark));
        let part =
            counted.and_then(|(units, text)| text.split_at_checked(end_of(text, units.parse().ok()?)?));
        let (part, rest) = part.ok_or(Fault::Answer("a text whose lengths are wrong"))?;
        each(part)?;
        text = rest;
    }
    Ok(())
}

/// The byte offset after this many UTF-16 units of `text`.
fn end_of(text: &str, units: usize) -> Option<usize> {
    // Nearly all text is ASCII.
    if text.as_bytes().get(..units)?.is_ascii() {
        return Some(units);
    }
    let mut left = units;
    for (at, character) in text.char_indices() {
        if left == 0 {
            return Some(at);
        }
        left = left.checked_sub(character.len_utf16())?;
    }
    (left == 0).then_some(text.len())
}

/// Appends a body of these packets.
pub(super) fn write_packets(out: &mut Vec<u8>, packets: &[String]) {
    if let [packet] = packets {
        out.extend_from_slice(packet.as_bytes());
        return;
    }
    for packet in packets {
        let units = packet.encode_utf16().count();
        out.extend_from_slice(format!("{MARK}{units}{MARK}{packet}").as_bytes());
    }
}
