//! Common parts of messages: events, the sockets that they are for, and flags. All are written as Socket.IO writes
//! them.

use super::json_to_msgpack::to_msgpack;
use super::payload::{self, Payload, is_truthy, list, members, names};
use super::{Parser, WireError};
use crate::engine::PAYLOAD_BYTES_MAX;
use bytes::Bytes;
use std::sync::Arc;
use stentor_hub::Data;
use stentor_json as json;
use stentor_wire::socketio::RESERVED_EVENTS;

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The event's name, which isn't a reserved one.
    pub name: Arc<str>,
    /// The event's [arguments](Data::Arguments).
    pub arguments: Data,
}

/// The sockets that a message is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The members of any of these rooms. Every socket is a member of the room with its id. Empty for all sockets.
    pub rooms: Vec<Arc<str>>,
    /// The members of these rooms are excluded.
    pub except: Vec<Arc<str>>,
}

/// Options for sending an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `true` if clients that aren't ready to receive the event are skipped.
    pub volatile: bool,
    /// `true` if the event may be compressed. `None` if the sender doesn't say.
    pub compress: Option<bool>,
    /// Time for which the sender waits for acknowledgements (ms).
    pub timeout_ms: Option<u64>,
    /// `true` if the sender expects one acknowledgement only.
    pub expect_single_response: bool,
}

/// The types of packets that are events: EVENT and, in older packages, BINARY_EVENT.
const EVENTS: [u64; 2] = [2, 5];

/// Decodes the selected sockets and the flags.
pub(super) fn options(value: Option<&str>) -> Result<(Selection, Flags), WireError> {
    let [rooms, except, flags] = members(value, ["rooms", "except", "flags"])?;
    let selection = Selection { rooms: names(rooms)?, except: names(except)? };
    let [volatile, compress, timeout, expect_single_response] =
        members(flags, ["volatile", "compress", "timeout", "expectSingleResponse"])?;
    // JavaScript's numbers may have a fraction.
    let timeout = timeout.and_then(|number| number.parse::<f64>().ok());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    let flags = Flags {
        volatile: is_truthy(volatile),
        compress: compress.map(|_| is_truthy(compress)),
        timeout_ms: timeout.map(|ms| ms as u64),
        expect_single_response: is_truthy(expect_single_response),
    };
    Ok((selection, flags))
}

/// Decodes a packet that is an event, with its namespace.
pub(super) fn packet(payload: &Payload, value: Option<&str>) -> Result<(Event, Arc<str>), WireError> {
    let [kind, data, namespace] = members(value, ["type", "data", "nsp"])?;
    if !EVENTS.contains(&payload::number(kind)?) {
        return Err(WireError::UnknownType);
    }
    Ok((event(payload, data)?, payload::namespace(namespace)?))
}

/// Decodes an event from `[name, …]`.
pub(super) fn event(payload: &Payload, array: Option<&str>) -> Result<Event, WireError> {
    let list = list(array.ok_or(WireError::Malformed)?)?;
    let first = json::elements(list).next().ok_or(WireError::Malformed)?;
    let rest = list[first.len()..].trim_ascii_start();
    let arguments = rest.strip_prefix(',').unwrap_or(rest).trim_ascii_start();
    Ok(Event { name: event_name(first)?, arguments: payload.arguments(arguments)? })
}

/// Returns the name of an event, unless it is reserved.
pub(super) fn event_name(value: &str) -> Result<Arc<str>, WireError> {
    let name = payload::name(value)?;
    if RESERVED_EVENTS.contains(&&*name) { Err(WireError::ReservedEvent) } else { Ok(name) }
}

/// Writes `,"name":` after a member, and `"name":` before all others.
pub(super) fn write_name(out: &mut Vec<u8>, name: &str) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    json::write_string(out, name);
    out.push(b':');
}

/// Writes a member that is a string.
pub(super) fn write_text(out: &mut Vec<u8>, name: &str, text: &str) {
    write_name(out, name);
    json::write_string(out, text);
}

/// Writes a member that is an array of strings.
pub(super) fn write_names(out: &mut Vec<u8>, name: &str, names: &[Arc<str>]) {
    write_name(out, name);
    write_list(out, names, |out, name| json::write_string(out, name));
}

/// Writes an array.
pub(super) fn write_list<T>(out: &mut Vec<u8>, items: &[T], mut write: impl FnMut(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(b']');
}

/// Writes a member that is a number or a truth value.
pub(super) fn write_plain(out: &mut Vec<u8>, name: &str, value: impl std::fmt::Display) {
    write_name(out, name);
    out.extend_from_slice(value.to_string().as_bytes());
}

impl Selection {
    /// Writes the members of an object.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_names(out, "rooms", &self.rooms);
        write_names(out, "except", &self.except);
    }
}

/// Writes `{rooms, except, flags}`.
pub(super) fn write_options(out: &mut Vec<u8>, selection: &Selection, flags: Option<Flags>) {
    out.push(b'{');
    selection.write(out);
    if let Some(flags) = flags {
        write_name(out, "flags");
        flags.write(out);
    }
    out.push(b'}');
}

impl Flags {
    fn write(self, out: &mut Vec<u8>) {
        out.push(b'{');
        if self.volatile {
            write_plain(out, "volatile", true);
        }
        if let Some(compress) = self.compress {
            write_plain(out, "compress", compress);
        }
        if let Some(timeout_ms) = self.timeout_ms {
            write_plain(out, "timeout", timeout_ms);
        }
        if self.expect_single_response {
            write_plain(out, "expectSingleResponse", true);
        }
        out.push(b'}');
    }
}

/// Encodes JSON text as a payload: as it is, or as MessagePack if the parser does so with messages that may have binary
/// data.
pub(super) fn encode(
    json: Vec<u8>,
    attachments: &[Bytes],
    may_be_binary: bool,
    parser: Parser,
) -> Result<Bytes, WireError> {
    match parser {
        Parser::MessagePack if may_be_binary => return to_msgpack(&json, attachments),
        Parser::Json if !attachments.is_empty() => return Err(WireError::NoBinary),
        _ => {}
    }
    if json.len() > PAYLOAD_BYTES_MAX { Err(WireError::TooLarge) } else { Ok(json.into()) }
}

/// The text of values, joined by commas, and their attachments.
pub(super) fn values(data: &Data) -> Result<(&str, &[Bytes]), WireError> {
    let (json, attachments): (_, &[Bytes]) = match data {
        Data::Arguments { json, attachments } => (json, attachments),
        Data::Json(json) => (json, &[]),
        Data::Text(_) | Data::Binary(_) => return Err(WireError::Malformed),
    };
    Ok((str::from_utf8(json).map_err(|_| WireError::Malformed)?, attachments))
}

impl Event {
    /// Writes `[name, …]`. Returns the attachments.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<&[Bytes], WireError> {
        let (arguments, attachments) = values(&self.arguments)?;
        out.push(b'[');
        json::write_string(out, &self.name);
        if !arguments.is_empty() {
            out.push(b',');
            out.extend_from_slice(arguments.as_bytes());
        }
        out.push(b']');
        Ok(attachments)
    }

    /// Writes the packet, with its namespace if the format has it there.
    pub(super) fn write_packet(
        &self,
        out: &mut Vec<u8>,
        namespace: Option<&str>,
    ) -> Result<&[Bytes], WireError> {
        out.extend_from_slice(b"{\"type\":2,\"data\":");
        let attachments = self.write(out)?;
        if let Some(namespace) = namespace {
            write_text(out, "nsp", namespace);
        }
        out.push(b'}');
        Ok(attachments)
    }
}
