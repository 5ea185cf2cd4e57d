//! Engine.IO packets of a worker's messages, for one client and for all clients of a broadcast.

use crate::encode::{BINARY, EngineFraming, OwnWire, SharedFrames, TEXT, record, records};
use crate::message::{Envelope, Message};
use crate::model::{Body, Data, Frame};
use crate::ports::{LinkMessage, LinkMessages};

/// The wire of sessions of the application link: Engine.IO packets in a framing. A publication has records of packets.
pub(crate) struct Packets(pub(crate) EngineFraming);

impl OwnWire for Packets {
    fn protocol(&self) -> &'static str {
        "link"
    }

    fn message(&self, out: &mut Vec<u8>, message: Message<'_>) {
        match message {
            Message::Text(text) => write_text(self.0, text, out),
            Message::Binary(bytes) => self.0.binary(out, bytes),
        }
    }

    fn publication(&self, frames: &SharedFrames, body: &Body, _: Envelope) -> Option<Frame> {
        let Body::Message { data: Data::Binary(packets), .. } = body else { return None };
        if self.0 == EngineFraming::Record {
            return Some(frames.of(&[packets]));
        }
        let mut out = Vec::with_capacity(packets.len() + 16);
        for (kind, packet) in records(packets) {
            match (kind, std::str::from_utf8(packet)) {
                (BINARY, _) | (_, Err(_)) => self.0.binary(&mut out, packet),
                (_, Ok(text)) => self.0.text(&mut out, text),
            }
        }
        Some(frames.of(&[&out]))
    }
}

fn write_text(framing: EngineFraming, text: &str, out: &mut Vec<u8>) {
    framing.packet(out, text.len() + 1, |out| {
        out.push(b'4');
        out.extend_from_slice(text.as_bytes());
    });
}

/// Appends the packets of a unit.
pub(crate) fn write_unit(framing: EngineFraming, unit: &LinkMessages, out: &mut Vec<u8>) {
    for message in unit {
        match message {
            // The link has checked the text.
            LinkMessage::Text(text) => {
                write_text(framing, std::str::from_utf8(text).unwrap_or_default(), out)
            }
            LinkMessage::Binary(bytes) => framing.binary(out, bytes),
        }
    }
}

/// Returns the packets of a unit as records, for a publication.
pub(crate) fn write_records(unit: &LinkMessages) -> Vec<u8> {
    let mut out = Vec::new();
    for message in unit {
        match message {
            LinkMessage::Text(text) => record(&mut out, TEXT, |out| {
                out.push(b'4');
                out.extend_from_slice(text);
            }),
            LinkMessage::Binary(bytes) => record(&mut out, BINARY, |out| out.extend_from_slice(bytes)),
        }
    }
    out
}
