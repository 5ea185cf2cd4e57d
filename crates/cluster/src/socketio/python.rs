//! The channel of python-socketio: JSON on one channel for all namespaces. Versions before 5.14 send pickle, which is
//! refused.

use super::content::{event_name, values, write_list, write_name, write_names, write_plain, write_text};
use super::payload::{
    arguments, list, members, name, names, namespace, number, optional_name, required_name,
};
use super::{ATTACHMENTS_MAX, Event, Selection, WireError};
use crate::engine::PAYLOAD_BYTES_MAX;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use std::sync::Arc;
use stentor_hub::Data;
use stentor_json as json;

pub use stentor_cluster_settings::PYTHON_CHANNEL as CHANNEL;

/// The first byte of pickle from protocol 2 on.
const PICKLE: u8 = 0x80;

/// A message of a server or emitter to all servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The sender, or the receiver of a [callback](Action::Callback). A server ignores its own messages.
    pub host: Arc<str>,
    /// The namespace.
    pub namespace: Arc<str>,
    /// The action of a message.
    pub action: Action,
}

/// The action of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// An event to sockets.
    Emit {
        /// The sockets. Here, `except` has ids of sockets only.
        selection: Selection,
        /// The event. python-socketio sends one null argument and no argument alike: both are decoded as no argument.
        event: Event,
        /// The receiver of acknowledgements, if the sender wants them.
        callback: Option<Callback>,
    },
    /// A client has acknowledged an event of the host.
    Callback {
        /// The first room of the event's [`Callback`].
        session: Arc<str>,
        /// The event's number.
        id: u64,
        /// The client's answer, as [arguments](Data::Arguments).
        arguments: Data,
    },
    /// A socket is disconnected.
    Disconnect {
        /// The socket.
        session: Arc<str>,
    },
    /// A socket joins a room.
    EnterRoom {
        /// The socket.
        session: Arc<str>,
        /// The room.
        room: Arc<str>,
    },
    /// A socket leaves a room.
    LeaveRoom {
        /// The socket.
        session: Arc<str>,
        /// The room.
        room: Arc<str>,
    },
    /// All sockets leave a room.
    CloseRoom {
        /// The room.
        room: Arc<str>,
    },
}

/// The receiver of acknowledgements, which arrive as [`Action::Callback`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callback {
    /// The room that the event was emitted to.
    pub room: Arc<str>,
    /// The namespace.
    pub namespace: Arc<str>,
    /// The number of the event.
    pub id: u64,
}

fn emit(message: &str) -> Result<Action, WireError> {
    let [event, data, binary, room, skip_sid, callback] =
        members(Some(message), ["event", "data", "binary", "room", "skip_sid", "callback"])?;
    let selection = Selection { rooms: names(room)?, except: names(skip_sid)? };
    // Without a room, the event is for all sockets. python-socketio delivers an event to no client if the room's
    // name or the list is empty.
    if selection.rooms.is_empty() && room.is_some() {
        return Err(WireError::Malformed);
    }
    let event_name = event_name(event.ok_or(WireError::Malformed)?)?;
    let data = data.unwrap_or("null");
    let (data, attachments) = if binary == Some("true") {
        let mut elements = json::elements(list(data)?);
        (elements.next().ok_or(WireError::Malformed)?, attachments(elements)?)
    } else {
        (data, Vec::new())
    };
    let values = if data.starts_with('[') { list(data)? } else { data };
    let values = if values == "null" { "" } else { values };
    let event = Event { name: event_name, arguments: arguments(minified(values), attachments)? };
    Ok(Action::Emit { selection, event, callback: decode_callback(callback)? })
}

/// Decodes the receiver of acknowledgements. Ignores an invalid one, as python-socketio does.
fn decode_callback(callback: Option<&str>) -> Result<Option<Callback>, WireError> {
    let Some(callback) = callback.filter(|callback| callback.starts_with('[')) else { return Ok(None) };
    let parts: Vec<&str> = json::elements(list(callback)?).take(4).collect();
    let &[room, namespace, id] = &parts[..] else { return Ok(None) };
    let (room, namespace) = (name(room)?, name(namespace)?);
    Ok(Some(Callback { room, namespace, id: number(Some(id))? }))
}

fn attachments<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Vec<Bytes>, WireError> {
    let mut attachments = Vec::new();
    for text in texts {
        if attachments.len() == ATTACHMENTS_MAX {
            return Err(WireError::TooMany);
        }
        let text = json::string(text).ok_or(WireError::Malformed)?;
        attachments.push(STANDARD.decode(&*text).map_err(|_| WireError::Malformed)?.into());
    }
    Ok(attachments)
}

/// Removes the spaces that Python writes.
fn minified(values: &str) -> Bytes {
    let mut out = Vec::with_capacity(values.len());
    json::minify_to(&mut out, values.as_bytes());
    out.into()
}

impl Message {
    /// Decodes a message.
    ///
    /// # Errors
    /// The payload isn't a known message, or exceeds a limit.
    pub fn decode(payload: &Bytes) -> Result<Self, WireError> {
        if payload.first() == Some(&PICKLE) {
            return Err(WireError::Pickle);
        }
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(WireError::TooLarge);
        }
        let text = str::from_utf8(payload).map_err(|_| WireError::Malformed)?;
        json::check(text)?;
        if !text.starts_with('{') {
            return Err(WireError::Malformed);
        }
        let [method, host, nsp, sid, room, id, args] =
            members(Some(text), ["method", "host_id", "namespace", "sid", "room", "id", "args"])?;
        let session = || required_name(sid);
        let room = || required_name(room);
        let action = match &*required_name(method)? {
            "emit" => emit(text)?,
            "callback" => {
                let values = minified(list(args.ok_or(WireError::Malformed)?)?);
                let arguments = arguments(values, Vec::new())?;
                Action::Callback { session: session()?, id: number(id)?, arguments }
            }
            "disconnect" => Action::Disconnect { session: session()? },
            "enter_room" => Action::EnterRoom { session: session()?, room: room()? },
            "leave_room" => Action::LeaveRoom { session: session()?, room: room()? },
            "close_room" => Action::CloseRoom { room: room()? },
            _ => return Err(WireError::UnknownType),
        };
        let host = optional_name(host)?.unwrap_or_default();
        Ok(Self { host, namespace: namespace(nsp)?, action })
    }

    /// Encodes the message as a payload.
    ///
    /// # Errors
    /// The message is too large, its data isn't [arguments](Data::Arguments), or a callback's data has attachments.
    pub fn encode(&self) -> Result<Bytes, WireError> {
        let mut out = vec![b'{'];
        let method = match &self.action {
            Action::Emit { .. } => "emit",
            Action::Callback { .. } => "callback",
            Action::Disconnect { .. } => "disconnect",
            Action::EnterRoom { .. } => "enter_room",
            Action::LeaveRoom { .. } => "leave_room",
            Action::CloseRoom { .. } => "close_room",
        };
        write_text(&mut out, "method", method);
        match &self.action {
            Action::Emit { selection, event, callback } => {
                write_text(&mut out, "event", &event.name);
                write_data(&mut out, &event.arguments)?;
                write_room(&mut out, "room", &selection.rooms);
                write_room(&mut out, "skip_sid", &selection.except);
                write_name(&mut out, "callback");
                match callback {
                    None => out.extend_from_slice(b"null"),
                    Some(Callback { room, namespace, id }) => {
                        out.push(b'[');
                        json::write_string(&mut out, room);
                        out.push(b',');
                        json::write_string(&mut out, namespace);
                        out.extend_from_slice(format!(",{id}]").as_bytes());
                    }
                }
            }
            Action::Callback { session, id, arguments } => {
                let (values, attachments) = values(arguments)?;
                if !attachments.is_empty() {
                    return Err(WireError::Malformed);
                }
                write_text(&mut out, "sid", session);
                write_plain(&mut out, "id", id);
                write_plain(&mut out, "args", format_args!("[{values}]"));
            }
            Action::Disconnect { session } => write_text(&mut out, "sid", session),
            Action::EnterRoom { session, room } | Action::LeaveRoom { session, room } => {
                write_text(&mut out, "sid", session);
                write_text(&mut out, "room", room);
            }
            Action::CloseRoom { room } => write_text(&mut out, "room", room),
        }
        write_text(&mut out, "namespace", &self.namespace);
        write_text(&mut out, "host_id", &self.host);
        out.push(b'}');
        if out.len() > PAYLOAD_BYTES_MAX { Err(WireError::TooLarge) } else { Ok(out.into()) }
    }
}

/// Writes the arguments: a list, or, if there is binary data, a list of that list and the attachments in base64.
fn write_data(out: &mut Vec<u8>, data: &Data) -> Result<(), WireError> {
    let (values, attachments) = values(data)?;
    let values = if values.is_empty() { "null" } else { values };
    write_name(out, "data");
    let parts: Vec<String> = std::iter::once(format!("[{values}]"))
        .chain(attachments.iter().map(|attachment| format!("\"{}\"", STANDARD.encode(attachment))))
        .collect();
    if attachments.is_empty() {
        out.extend_from_slice(parts[0].as_bytes());
    } else {
        write_list(out, &parts, |out, part| out.extend_from_slice(part.as_bytes()));
    }
    write_plain(out, "binary", !attachments.is_empty());
    Ok(())
}

/// Writes no name as null, one as a string, and several as a list.
fn write_room(out: &mut Vec<u8>, name: &str, names: &[Arc<str>]) {
    match names {
        [] => write_plain(out, name, "null"),
        [one] => write_text(out, name, one),
        several => write_names(out, name, several),
    }
}
