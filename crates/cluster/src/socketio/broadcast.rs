//! Broadcasts of the classic adapter: `[uid, {type:2, data:[event, …], nsp}, {rooms, except, flags}]` in MessagePack, or in JSON.

use super::content::{encode, options, packet, write_options};
use super::payload::{Payload, list, name};
use super::{Event, Flags, Parser, Selection, WireError};
use bytes::Bytes;
use rmp::Marker;
use std::sync::Arc;
use stentor_json as json;

/// An event to rooms of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broadcast {
    /// The sender: 6 characters for a server, and `emitter` for an emitter. A server ignores its own messages.
    pub uid: Arc<str>,
    /// The namespace. A receiver ignores a broadcast to another one than the channel's.
    pub namespace: Arc<str>,
    /// The sockets that receive the event.
    pub selection: Selection,
    /// Options for sending the event.
    pub flags: Flags,
    /// The event.
    pub event: Event,
}

/// Returns the sender of a broadcast without decoding the rest, because most broadcasts that a server receives may be
/// its own. If `None`, [`Broadcast::decode`] returns the error.
pub fn sender(payload: &[u8]) -> Option<&str> {
    if let [b'[', b'"', rest @ ..] = payload {
        return str::from_utf8(rest.split(|byte| *byte == b'"').next()?).ok();
    }
    let [0x92..=0x94, rest @ ..] = payload else { return None };
    let (marker, rest) = rest.split_first()?;
    let Marker::FixStr(len) = Marker::from_u8(*marker) else { return None };
    str::from_utf8(rest.get(..usize::from(len))?).ok()
}

impl Broadcast {
    /// Decodes a broadcast.
    ///
    /// # Errors
    /// The payload isn't a broadcast of an event, or exceeds a limit.
    pub fn decode(payload: &Bytes) -> Result<Self, WireError> {
        let payload = Payload::decode(payload)?;
        let mut parts = json::elements(list(payload.text()?)?);
        let (uid, event, selection) = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(uid), Some(event), Some(selection), None) => (uid, event, selection),
            (Some(_), Some(_), None, None) => return Err(WireError::Obsolete),
            _ => return Err(WireError::Malformed),
        };
        if !selection.starts_with(['{', '[']) {
            return Err(WireError::Malformed);
        }
        let (event, namespace) = packet(&payload, Some(event))?;
        let (selection, flags) = options(Some(selection))?;
        Ok(Self { uid: name(uid)?, namespace, selection, flags, event })
    }

    /// Encodes the broadcast as a payload.
    ///
    /// # Errors
    /// The broadcast is too large or nested too deeply, or its data isn't [arguments](stentor_hub::Data::Arguments).
    pub fn encode(&self, parser: Parser) -> Result<Bytes, WireError> {
        let mut out = vec![b'['];
        json::write_string(&mut out, &self.uid);
        out.push(b',');
        let attachments = self.event.write_packet(&mut out, Some(&self.namespace))?;
        out.push(b',');
        write_options(&mut out, &self.selection, Some(self.flags));
        out.push(b']');
        encode(out, attachments, true, parser)
    }
}
