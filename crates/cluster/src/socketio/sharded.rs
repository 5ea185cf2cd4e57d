//! The sharded adapter: Redis's sharded publish and subscribe, from Redis 7 on. JSON, or MessagePack if there is binary
//! data.
//!
//! | channel | content |
//! |---|---|
//! | `socket.io#/chat#` | requests and broadcasts |
//! | `socket.io#/chat#ROOM#` | broadcasts to one room, depending on the [mode](Mode) |
//! | `socket.io#/chat#UID#` | answers for one server |

use super::content::{
    encode, event, options, packet, write_name, write_names, write_options, write_plain, write_text,
};
use super::payload::{Payload, is_truthy, members, names, namespace, number, optional_name, required_name};
use super::response::{sessions, write_sessions, write_value};
use super::{Flags, Parser, RequestBody, Response, ResponseBody, Selection, Target, WireError};
use bytes::Bytes;
use std::sync::Arc;
pub use stentor_cluster_settings::SubscriptionMode as Mode;

/// A message of a server to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The sender: 16 hexadecimal digits.
    pub uid: Arc<str>,
    /// The namespace.
    pub namespace: Arc<str>,
    /// The content.
    pub body: Body,
}

/// A request or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A request, or a broadcast.
    Request {
        /// The id that answers repeat. Without an id, no answer is wanted.
        id: Option<Arc<str>>,
        /// The task. There are no requests for sessions, rooms or a single socket.
        body: RequestBody,
    },
    /// An answer, but never a list of rooms or [`ResponseBody::Done`].
    Response(Response),
}

impl Message {
    /// Decodes a message.
    ///
    /// # Errors
    /// The payload isn't a known message, or exceeds a limit.
    pub fn decode(payload: &Bytes) -> Result<Self, WireError> {
        let payload = Payload::decode(payload)?;
        let [uid, nsp, kind, data] = members(Some(payload.text()?), ["uid", "nsp", "type", "data"])?;
        let namespace = namespace(nsp)?;
        let [id, opts, rooms, close, sent, sockets, client_count] =
            members(data, ["requestId", "opts", "rooms", "close", "packet", "sockets", "clientCount"])?;
        let value = || payload.arguments(sent.unwrap_or_default());
        let body = match number(kind)? {
            kind @ (3..=7 | 9) => {
                let (selection, flags) = options(opts)?;
                let target = |selection| Target::Selection(selection);
                let body = match kind {
                    3 => {
                        let (event, _) = packet(&payload, sent)?;
                        RequestBody::Broadcast { namespace: namespace.clone(), selection, flags, event }
                    }
                    4 => RequestBody::Join { target: target(selection), rooms: names(rooms)? },
                    5 => RequestBody::Leave { target: target(selection), rooms: names(rooms)? },
                    6 => RequestBody::Disconnect { target: target(selection), close: is_truthy(close) },
                    7 if id.is_none() => return Err(WireError::Malformed),
                    7 => RequestBody::Fetch(selection),
                    _ => RequestBody::ServerSideEmit(event(&payload, sent)?),
                };
                Body::Request { id: optional_name(id)?, body }
            }
            kind @ (8 | 10..=12) => {
                let body = match kind {
                    8 => ResponseBody::Sessions(sessions(&payload, sockets.ok_or(WireError::Malformed)?)?),
                    10 => ResponseBody::ServerSideEmit(value()?),
                    11 => ResponseBody::ClientCount(number(client_count)?),
                    _ => ResponseBody::Acknowledged(value()?),
                };
                Body::Response(Response { id: required_name(id)?, body })
            }
            _ => return Err(WireError::UnknownType),
        };
        Ok(Self { uid: required_name(uid)?, namespace, body })
    }

    /// The channel of a request. For an answer, see [`answers`].
    pub fn channel(&self, prefix: &str, mode: Mode) -> String {
        let room = match &self.body {
            Body::Request { id: None, body: RequestBody::Broadcast { selection, .. } } => {
                match &selection.rooms[..] {
                    [room] if mode.has_channel(room) => Some(room),
                    _ => None,
                }
            }
            _ => None,
        };
        let all = format!("{prefix}#{}#", self.namespace);
        room.map_or(all.clone(), |room| format!("{all}{room}#"))
    }

    /// Encodes the message as a payload.
    ///
    /// # Errors
    /// The message is too large or nested too deeply, its data isn't [arguments](stentor_hub::Data::Arguments), or the
    /// sharded adapter has no such message.
    pub fn encode(&self) -> Result<Bytes, WireError> {
        let mut out = vec![b'{'];
        let attachments = match &self.body {
            Body::Request { id, body } => write_request(&mut out, id.as_deref(), body)?,
            Body::Response(response) => write_response(&mut out, response)?,
        };
        out.push(b'}');
        write_text(&mut out, "uid", &self.uid);
        write_text(&mut out, "nsp", &self.namespace);
        out.push(b'}');
        encode(out, attachments, !attachments.is_empty(), Parser::MessagePack)
    }
}

/// The channel for answers to the requests of a server.
pub fn answers(prefix: &str, namespace: &str, uid: &str) -> String {
    format!("{prefix}#{namespace}#{uid}#")
}

/// Writes the type, and the data but for its closing brace. Returns the attachments.
fn write_request<'a>(
    out: &mut Vec<u8>,
    id: Option<&str>,
    body: &'a RequestBody,
) -> Result<&'a [Bytes], WireError> {
    let begin = |out: &mut Vec<u8>, kind: u8| {
        write_plain(out, "type", kind);
        write_name(out, "data");
        out.push(b'{');
    };
    let write_id = |out: &mut Vec<u8>| {
        if let Some(id) = id {
            write_text(out, "requestId", id);
        }
    };
    let write_opts = |out: &mut Vec<u8>, selection: &Selection, flags: Flags| {
        write_name(out, "opts");
        write_options(out, selection, Some(flags));
    };
    match body {
        RequestBody::Broadcast { selection, flags, event, .. } => {
            begin(out, 3);
            write_name(out, "packet");
            let attachments = event.write_packet(out, None)?;
            write_id(out);
            write_opts(out, selection, *flags);
            return Ok(attachments);
        }
        RequestBody::Join { target: Target::Selection(selection), rooms } => {
            begin(out, 4);
            write_opts(out, selection, Flags::default());
            write_names(out, "rooms", rooms);
        }
        RequestBody::Leave { target: Target::Selection(selection), rooms } => {
            begin(out, 5);
            write_opts(out, selection, Flags::default());
            write_names(out, "rooms", rooms);
        }
        RequestBody::Disconnect { target: Target::Selection(selection), close } => {
            begin(out, 6);
            write_opts(out, selection, Flags::default());
            write_plain(out, "close", close);
        }
        RequestBody::Fetch(selection) => {
            begin(out, 7);
            write_opts(out, selection, Flags::default());
            write_id(out);
        }
        RequestBody::ServerSideEmit(event) => {
            begin(out, 9);
            write_id(out);
            write_name(out, "packet");
            return event.write(out);
        }
        _ => return Err(WireError::UnknownType),
    }
    Ok(&[])
}

/// Writes the type, and the data but for its closing brace. Returns the attachments.
fn write_response<'a>(out: &mut Vec<u8>, response: &'a Response) -> Result<&'a [Bytes], WireError> {
    let kind = match response.body {
        ResponseBody::Sessions(_) => 8,
        ResponseBody::ServerSideEmit(_) => 10,
        ResponseBody::ClientCount(_) => 11,
        ResponseBody::Acknowledged(_) => 12,
        ResponseBody::Done | ResponseBody::Rooms(_) => return Err(WireError::UnknownType),
    };
    write_plain(out, "type", kind);
    write_name(out, "data");
    out.push(b'{');
    write_text(out, "requestId", &response.id);
    match &response.body {
        ResponseBody::Sessions(sessions) => write_sessions(out, sessions),
        ResponseBody::ClientCount(count) => write_plain(out, "clientCount", count),
        ResponseBody::ServerSideEmit(data) | ResponseBody::Acknowledged(data) => {
            return write_value(out, "packet", data);
        }
        ResponseBody::Done | ResponseBody::Rooms(_) => {}
    }
    Ok(&[])
}
