//! Encodes packets. The functions append the text of an Engine.IO message. The `4` of
//! [`engineio::message_header`](crate::engineio::message_header) precedes it, and each attachment follows as
//! a message of its own.
//!
//! Arguments are given as lists of JSON values, which are concatenated and may be empty: for example the
//! arguments of another packet and additional ones.
//!
//! Namespaces begin with `/` and contain no comma, for which the protocol has no escape. The caller supplies
//! valid JSON.

use super::packet::Version;
use crate::ws;
use stentor_json as json;

/// The part of a packet before the arguments of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// The ack id; `Some` if the sender requests an ack.
    pub id: Option<u64>,
    /// Number of attachments that follow.
    pub attachments: usize,
}

impl<'a> Head<'a> {
    /// Makes the head of an event without ack and attachments.
    pub fn new(namespace: &'a str) -> Self {
        Head { namespace, id: None, attachments: 0 }
    }

    /// Appends the head and the bracket before the list.
    #[inline]
    fn write(&self, out: &mut Vec<u8>, kind: u8, binary_kind: u8) {
        if self.attachments == 0 && self.id.is_none() && self.namespace.len() == 1 {
            // Most events.
            out.extend_from_slice(&[kind, b'[']);
        } else {
            self.write_all(out, kind, binary_kind);
        }
    }

    #[inline(never)]
    fn write_all(&self, out: &mut Vec<u8>, kind: u8, binary_kind: u8) {
        if self.attachments == 0 {
            out.push(kind);
        } else {
            out.push(binary_kind);
            write_number(out, self.attachments as u64);
            out.push(b'-');
        }
        write_namespace(out, self.namespace);
        if let Some(id) = self.id {
            write_number(out, id);
        }
        out.push(b'[');
    }
}

fn write_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn write_namespace(out: &mut Vec<u8>, namespace: &str) {
    debug_assert!(namespace.starts_with('/') && !namespace.contains(','), "{namespace}");
    if namespace != "/" {
        out.extend_from_slice(namespace.as_bytes());
        out.push(b',');
    }
}

/// Appends the lists as the rest of an array. `is_empty` is `true` if the array has no value yet.
#[inline]
fn write_lists(out: &mut Vec<u8>, mut is_empty: bool, lists: &[&str]) {
    for list in lists {
        if list.is_empty() {
            continue;
        }
        if !is_empty {
            out.push(b',');
        }
        out.extend_from_slice(list.as_bytes());
        is_empty = false;
    }
    out.push(b']');
}

/// Appends an event.
#[inline]
pub fn write_event(out: &mut Vec<u8>, head: &Head<'_>, name: &str, arguments: &[&str]) {
    head.write(out, b'2', b'5');
    json::write_string(out, name);
    write_lists(out, false, arguments);
}

/// Appends a server's WebSocket message with an event of the main namespace that has arguments, no ack and no attachments: the
/// most frequent packet. Takes two thirds of the instructions of [`write_event`] and [`ws::encode_with`]. Returns `false`, and
/// appends nothing, if the name must be escaped or the message has more than 125 bytes.
#[inline]
pub fn write_lone_event(out: &mut Vec<u8>, name: &str, arguments: &str) -> bool {
    // `42["`, `",` and `]` surround the name and the arguments.
    let header = ws::short_header(ws::Opcode::Text, 7 + name.len() + arguments.len());
    let Some([first, second]) = header.filter(|_| !arguments.is_empty() && json::is_plain(name)) else {
        return false;
    };
    out.extend_from_slice(&[first, second, b'4', b'2', b'[', b'"']);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\",");
    out.extend_from_slice(arguments.as_bytes());
    out.push(b']');
    true
}

/// Appends an event whose name is the first value in `lists`: with [`Event::raw`](super::Event::raw) an echo.
pub fn write_event_list(out: &mut Vec<u8>, head: &Head<'_>, lists: &[&str]) {
    head.write(out, b'2', b'5');
    write_lists(out, true, lists);
}

/// Appends an ack: the answer to the event with this id.
pub fn write_ack(out: &mut Vec<u8>, namespace: &str, id: u64, attachments: usize, arguments: &[&str]) {
    Head { namespace, id: Some(id), attachments }.write(out, b'3', b'6');
    write_lists(out, true, arguments);
}

/// Appends a client's CONNECT to a namespace. `auth` is a JSON object in protocol 5, and a query in protocol
/// 4, percent-encoded so that it has no comma.
pub fn write_connect(out: &mut Vec<u8>, version: Version, namespace: &str, auth: Option<&str>) {
    out.push(b'0');
    match (version, auth) {
        (Version::V4, Some(query)) => {
            out.extend_from_slice(namespace.as_bytes());
            out.push(b'?');
            out.extend_from_slice(query.as_bytes());
            out.push(b',');
        }
        (_, auth) => {
            write_namespace(out, namespace);
            out.extend_from_slice(auth.unwrap_or_default().as_bytes());
        }
    }
}

/// Appends a server's confirmation of a CONNECT. Only protocol 5 sends the ids; `pid` is for connections that
/// can be recovered.
pub fn write_connected(out: &mut Vec<u8>, version: Version, namespace: &str, sid: &str, pid: Option<&str>) {
    out.push(b'0');
    write_namespace(out, namespace);
    if version == Version::V5 {
        out.extend_from_slice(b"{\"sid\":");
        json::write_string(out, sid);
        if let Some(pid) = pid {
            out.extend_from_slice(b",\"pid\":");
            json::write_string(out, pid);
        }
        out.push(b'}');
    }
}

/// Appends a server's refusal. `data` is JSON. Protocol 5 sends it with the message, protocol 4 in place of
/// the message.
pub fn write_connect_error(
    out: &mut Vec<u8>,
    version: Version,
    namespace: &str,
    message: &str,
    data: Option<&str>,
) {
    out.push(b'4');
    write_namespace(out, namespace);
    match (version, data) {
        (Version::V4, Some(data)) => out.extend_from_slice(data.as_bytes()),
        (Version::V4, None) => json::write_string(out, message),
        (Version::V5, data) => {
            out.extend_from_slice(b"{\"message\":");
            json::write_string(out, message);
            if let Some(data) = data {
                out.extend_from_slice(b",\"data\":");
                out.extend_from_slice(data.as_bytes());
            }
            out.push(b'}');
        }
    }
}

/// Appends a DISCONNECT: this side leaves a namespace.
pub fn write_disconnect(out: &mut Vec<u8>, namespace: &str) {
    out.push(b'1');
    write_namespace(out, namespace);
}
