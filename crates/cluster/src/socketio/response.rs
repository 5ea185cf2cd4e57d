//! Answers of the classic adapter: JSON, or MessagePack where there may be binary data.

use super::content::{encode, values, write_list, write_name, write_names, write_plain, write_text};
use super::payload::{self, Payload, items, members, name, names_up_to, required_name};
use super::{LIST_MAX, Parser, WireError};
use bytes::Bytes;
use std::sync::Arc;
use stentor_hub::Data;
use stentor_json as json;

/// The answer of a server to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The id of the request.
    pub id: Arc<str>,
    /// The answer.
    pub body: ResponseBody,
}

/// A server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponseBody {
    /// Answer to a request for a single socket: it is carried out.
    Done,
    /// The sockets.
    Sessions(Vec<RemoteSession>),
    /// The rooms, including those of single sockets.
    Rooms(Vec<Arc<str>>),
    /// The answer of the server's code to an event, as [arguments](Data::Arguments): one, or none. Null is none.
    ServerSideEmit(Data),
    /// Number of the server's clients that a broadcast was sent to.
    ClientCount(u64),
    /// The acknowledgement of one of these clients, as [arguments](Data::Arguments): one, or none. Null is none.
    Acknowledged(Data),
}

/// A socket of another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteSession {
    /// The socket's id.
    pub id: Arc<str>,
    /// The details, if the request was for them.
    pub details: Option<SessionDetails>,
}

/// Details of a socket of another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionDetails {
    /// The handshake, as JSON: `headers`, `time`, `address`, `xdomain`, `secure`, `issued`, `url`, `query`, `auth`.
    pub handshake: Bytes,
    /// The socket's rooms, including the one with its id.
    pub rooms: Vec<Arc<str>>,
    /// The application's data about the socket, as JSON. Binary data in it isn't available.
    pub data: Bytes,
}

/// Sockets, each by its id or with details.
pub(super) fn sessions(payload: &Payload, array: &str) -> Result<Vec<RemoteSession>, WireError> {
    let mut rooms_left = LIST_MAX;
    items(array, LIST_MAX, |item| {
        if !item.starts_with('{') {
            return Ok(RemoteSession { id: name(item)?, details: None });
        }
        let [id, handshake, rooms, data] = members(Some(item), ["id", "handshake", "rooms", "data"])?;
        let rooms = names_up_to(rooms, rooms_left)?;
        rooms_left -= rooms.len();
        let part =
            |value: Option<&str>| value.map_or_else(|| Bytes::from_static(b"{}"), |part| payload.slice(part));
        let details = SessionDetails { handshake: part(handshake), rooms, data: part(data) };
        Ok(RemoteSession { id: required_name(id)?, details: Some(details) })
    })
}

pub(super) fn write_sessions(out: &mut Vec<u8>, sessions: &[RemoteSession]) {
    write_name(out, "sockets");
    write_list(out, sessions, |out, RemoteSession { id, details }| {
        let Some(SessionDetails { handshake, rooms, data }) = details else {
            return json::write_string(out, id);
        };
        out.push(b'{');
        write_text(out, "id", id);
        write_name(out, "handshake");
        out.extend_from_slice(handshake);
        write_names(out, "rooms", rooms);
        write_name(out, "data");
        out.extend_from_slice(data);
        out.push(b'}');
    });
}

/// Writes a member that is missing if there is no value. Returns the attachments.
pub(super) fn write_value<'a>(
    out: &mut Vec<u8>,
    name: &str,
    data: &'a Data,
) -> Result<&'a [Bytes], WireError> {
    let (values, attachments) = values(data)?;
    // A second value would become another member.
    if let Some(value) = json::elements(values).next() {
        write_name(out, name);
        out.extend_from_slice(value.as_bytes());
    }
    Ok(attachments)
}

impl Response {
    /// Decodes an answer.
    ///
    /// # Errors
    /// The payload isn't a known answer, or exceeds a limit.
    pub fn decode(payload: &Bytes) -> Result<Self, WireError> {
        let payload = Payload::decode(payload)?;
        let [id, kind, sockets, rooms, data, client_count, packet] = members(
            Some(payload.text()?),
            ["requestId", "type", "sockets", "rooms", "data", "clientCount", "packet"],
        )?;
        let body = match kind.map(|kind| payload::number(Some(kind))).transpose()? {
            None => match (sockets, rooms) {
                (Some(sockets), _) => ResponseBody::Sessions(sessions(&payload, sockets)?),
                (None, Some(rooms)) => ResponseBody::Rooms(names_up_to(Some(rooms), LIST_MAX)?),
                (None, None) => ResponseBody::Done,
            },
            Some(6) => ResponseBody::ServerSideEmit(payload.arguments(data.unwrap_or_default())?),
            Some(8) => ResponseBody::ClientCount(payload::number(client_count)?),
            Some(9) => ResponseBody::Acknowledged(payload.arguments(packet.unwrap_or_default())?),
            Some(_) => return Err(WireError::UnknownType),
        };
        Ok(Self { id: required_name(id)?, body })
    }

    /// Encodes the answer as a payload.
    ///
    /// # Errors
    /// The answer is too large or nested too deeply, or its data isn't [arguments](Data::Arguments).
    pub fn encode(&self, parser: Parser) -> Result<Bytes, WireError> {
        let mut out = vec![b'{'];
        let kind = match self.body {
            ResponseBody::ServerSideEmit(_) => Some(6),
            ResponseBody::ClientCount(_) => Some(8),
            ResponseBody::Acknowledged(_) => Some(9),
            ResponseBody::Done | ResponseBody::Sessions(_) | ResponseBody::Rooms(_) => None,
        };
        if let Some(kind) = kind {
            write_plain(&mut out, "type", kind);
        }
        write_text(&mut out, "requestId", &self.id);
        let mut attachments: &[Bytes] = &[];
        match &self.body {
            ResponseBody::Done => {}
            ResponseBody::Sessions(sessions) => write_sessions(&mut out, sessions),
            ResponseBody::Rooms(rooms) => write_names(&mut out, "rooms", rooms),
            ResponseBody::ServerSideEmit(data) => attachments = write_value(&mut out, "data", data)?,
            ResponseBody::ClientCount(count) => write_plain(&mut out, "clientCount", count),
            ResponseBody::Acknowledged(data) => attachments = write_value(&mut out, "packet", data)?,
        }
        out.push(b'}');
        let may_be_binary = !attachments.is_empty() || kind == Some(9);
        encode(out, attachments, may_be_binary, parser)
    }
}
