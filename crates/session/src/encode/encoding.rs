//! Encodings: the formats of a session's messages and publications.
//!
//! The hub knows an encoding only by its number. The table in this file assigns the numbers.

use super::frame::SharedFrames;
use crate::message::{Envelope, Message};
use std::collections::BTreeSet;
use stentor_frame::Frame;
use stentor_hub::{Body, FormatId};

/// Maximum number of custom protocols.
pub const CUSTOM_PROTOCOLS_MAX: usize = 8;

/// Framing of Engine.IO packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineFraming {
    /// WebSocket messages of version 4.
    V4,
    /// WebSocket messages of version 3.
    V3,
    /// Records that wait for a poll, the same in both versions.
    Record,
}

/// The form in which a protocol writes the messages and publications of its sessions.
pub(crate) trait OwnWire: Sync {
    /// The name of the protocol.
    fn protocol(&self) -> &'static str;

    /// Appends a message to one session.
    fn message(&self, out: &mut Vec<u8>, message: Message<'_>);

    /// Appends a message in JSON to one session.
    fn json(&self, out: &mut Vec<u8>, text: &str) {
        self.message(out, Message::Text(text));
    }

    /// Encodes a publication, once per node. `None` if sessions don't receive the publication.
    fn publication(&self, frames: &SharedFrames, body: &Body, envelope: Envelope) -> Option<Frame>;

    /// The wire in which pending deliveries are encoded if they are sent as messages. `None` if it is the protocol's own wire.
    fn message_wire(&self) -> Option<Own> {
        None
    }

    /// Appends a publication, encoded in [`Self::message_wire`] if there is one, as [`Self::message`] would have written it.
    fn append_message_of(&self, encoded: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(encoded);
    }
}

/// Frames or packets that carry messages and publications.
#[derive(Clone, Copy)]
pub(crate) enum Wire {
    /// A document's body, for HTTP responses. Other publications become empty.
    Document,
    /// Server-Sent Events, each in its own HTTP chunk.
    Events,
    /// Engine.IO packets.
    EngineIo(EngineFraming),
    /// Socket.IO events in Engine.IO packets.
    SocketIo(EngineFraming),
    /// The encoding of a protocol that implements `OwnWire`.
    Own(&'static dyn OwnWire),
    /// WebSocket messages. With `deflated`, a publication is compressed if that makes it shorter.
    WebSocket { deflated: bool },
    /// WebSocket messages of a protocol of [`Options::protocols`](crate::options::Options::protocols), by its index.
    Custom(u8),
}

/// The format of a session's messages and publications: an index in `WIRES`, and a flag whose meaning depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding(u8);

macro_rules! define_wires {
    ($($name:ident = $wire:expr),* $(,)?) => {
        /// The wires of [`Wire::Own`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Own {
            $($name),*
        }

        impl Own {
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];
        }

        static WIRES: [Wire; WIRES_LEN] = [
            Wire::Document,
            Wire::Events,
            Wire::EngineIo(EngineFraming::V4),
            Wire::EngineIo(EngineFraming::V3),
            Wire::EngineIo(EngineFraming::Record),
            Wire::SocketIo(EngineFraming::V4),
            Wire::SocketIo(EngineFraming::V3),
            Wire::SocketIo(EngineFraming::Record),
            $(Wire::Own(&$wire),)*
            Wire::WebSocket { deflated: false },
            Wire::WebSocket { deflated: true },
            Wire::Custom(0),
            Wire::Custom(1),
            Wire::Custom(2),
            Wire::Custom(3),
            Wire::Custom(4),
            Wire::Custom(5),
            Wire::Custom(6),
            Wire::Custom(7),
        ];
    };
}

own_wires!(define_wires);

/// Indexes in `WIRES` of the first entry of each kind.
const EVENTS: u8 = 1;
const ENGINE_IO: u8 = 2;
const SOCKET_IO: u8 = 5;
const OWN: u8 = 8;
const WEBSOCKET: u8 = OWN + Own::ALL.len() as u8;
const CUSTOM: u8 = WEBSOCKET + 2;

/// All numbers of encodings are below this one.
pub(crate) const ENCODINGS_MAX: usize = 2 * WIRES_LEN;

const WIRES_LEN: usize = CUSTOM as usize + CUSTOM_PROTOCOLS_MAX;

impl Encoding {
    /// Bodies of documents.
    pub(crate) const DOCUMENT: Self = Self::at(0, false);
    /// Server-Sent Events of one feed, with their ids.
    pub(crate) const EVENTS_OF_ONE: Self = Self::at(EVENTS, false);
    /// Server-Sent Events of several feeds. Ids differ between clients, so each id is sent separately, before its event.
    pub(crate) const EVENTS_OF_SEVERAL: Self = Self::at(EVENTS, true);
    /// WebSocket messages without an envelope (raw mode).
    pub(crate) const RAW: Self = Self::at(WEBSOCKET, true);
    /// Socket.IO events for a socket whose client has no connection yet.
    pub(crate) const MOVED_SOCKET: Self = Self::at(SOCKET_IO, true);

    const fn at(place: u8, flag: bool) -> Self {
        Self(place << 1 | flag as u8)
    }

    /// The encoding of a plain session, to which no application sends Socket.IO events.
    const fn plain(place: u8, envelope: Envelope) -> Self {
        Self::at(place, !matches!(envelope, Envelope::V1))
    }

    /// The encoding of a plain session on a WebSocket.
    pub fn websocket(envelope: Envelope, deflated: bool) -> Self {
        Self::plain(WEBSOCKET + u8::from(deflated), envelope)
    }

    /// The encoding of a session of a custom protocol, by the protocol's index.
    pub(crate) fn custom(place: usize, envelope: Envelope) -> Self {
        Self::plain(CUSTOM + place as u8, envelope)
    }

    /// The encoding of an Engine.IO or Socket.IO session. If a Socket.IO session `recovers`, its publications end with their
    /// offset.
    #[inline]
    pub(crate) fn engine_io(framing: EngineFraming, envelope: Envelope, recovers: bool) -> Self {
        match envelope {
            Envelope::SocketIo => Self::at(SOCKET_IO + framing as u8, recovers),
            plain => Self::plain(ENGINE_IO + framing as u8, plain),
        }
    }

    /// The encoding of a session of a protocol with a wire of its own.
    pub(crate) const fn own(wire: Own, envelope: Envelope) -> Self {
        Self::plain(OWN + wire as u8, envelope)
    }

    /// Frames or packets that carry the session's messages.
    #[inline]
    pub(crate) fn wire(self) -> Wire {
        WIRES[usize::from(self.0 >> 1)]
    }

    fn flag(self) -> bool {
        self.0 & 1 == 1
    }

    /// Returns `true` if messages are sent unchanged as WebSocket messages.
    #[inline]
    pub(crate) fn is_websocket(self) -> bool {
        self.0 >= WEBSOCKET << 1
    }

    /// Returns `true` if messages are sent as Socket.IO events.
    #[inline]
    pub(crate) fn is_socketio(self) -> bool {
        (SOCKET_IO..OWN).contains(&(self.0 >> 1))
    }

    /// Returns `true` if publications are sent in an HTTP response, so the session receives no other messages.
    pub fn is_response(self) -> bool {
        self.0 < ENGINE_IO << 1
    }

    /// Returns `true` if the events of a stream contain their ids.
    pub(super) fn has_ids(self) -> bool {
        self == Self::EVENTS_OF_ONE
    }

    /// Returns `true` if the events of a Socket.IO session end with their offset.
    pub(super) fn recovers(self) -> bool {
        self.flag()
    }

    /// The envelope of the session's messages.
    pub fn envelope(self) -> Envelope {
        match self.wire() {
            Wire::SocketIo(_) => Envelope::SocketIo,
            Wire::Document | Wire::Events => Envelope::Raw,
            _ if self.flag() => Envelope::Raw,
            _ => Envelope::V1,
        }
    }

    /// The names of all protocols.
    pub(crate) fn protocols() -> BTreeSet<&'static str> {
        (0..WIRES.len() as u8).filter_map(|place| Self::at(place, false).protocol()).collect()
    }

    /// The name of the session's protocol. `None` if the session is a request for a document.
    pub fn protocol(self) -> Option<&'static str> {
        Some(match self.wire() {
            Wire::Document => return None,
            Wire::Events => "sse",
            Wire::EngineIo(_) => "engineio",
            Wire::SocketIo(_) => "socketio",
            Wire::Own(wire) => wire.protocol(),
            Wire::WebSocket { .. } | Wire::Custom(_) => "websocket",
        })
    }
}

impl From<Encoding> for FormatId {
    fn from(encoding: Encoding) -> Self {
        Self(encoding.0)
    }
}

impl From<FormatId> for Encoding {
    fn from(format: FormatId) -> Self {
        Self(format.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_hub::FORMATS_MAX;

    /// An entry of the table, as text.
    fn shown(wire: Wire) -> String {
        match wire {
            Wire::Document => "document".to_owned(),
            Wire::Events => "events".to_owned(),
            Wire::EngineIo(framing) => format!("engineio {framing:?}"),
            Wire::SocketIo(framing) => format!("socketio {framing:?}"),
            Wire::Own(wire) => wire.protocol().to_owned(),
            Wire::WebSocket { deflated } => format!("websocket {deflated}"),
            Wire::Custom(place) => format!("custom {place}"),
        }
    }

    #[test]
    fn each_encoding_finds_its_entry_in_the_table() {
        assert!(WIRES.len() * 2 <= FORMATS_MAX);
        let check = |encoding: Encoding, wire: &str, envelope: Envelope| {
            assert_eq!((&*shown(encoding.wire()), encoding.envelope()), (wire, envelope));
            assert_eq!(encoding.is_websocket(), wire.starts_with("websocket") || wire.starts_with("custom"));
            assert_eq!(encoding.is_response(), ["document", "events"].contains(&wire));
            assert_eq!(encoding.is_socketio(), wire.starts_with("socketio"));
        };
        check(Encoding::DOCUMENT, "document", Envelope::Raw);
        check(Encoding::EVENTS_OF_ONE, "events", Envelope::Raw);
        check(Encoding::EVENTS_OF_SEVERAL, "events", Envelope::Raw);
        check(Encoding::RAW, "websocket false", Envelope::Raw);
        check(Encoding::MOVED_SOCKET, "socketio V4", Envelope::SocketIo);
        assert!(Encoding::MOVED_SOCKET.recovers());
        for envelope in [Envelope::V1, Envelope::Raw] {
            for deflated in [false, true] {
                let encoding = Encoding::websocket(envelope, deflated);
                check(encoding, &format!("websocket {deflated}"), envelope);
            }
            for place in 0..CUSTOM_PROTOCOLS_MAX {
                check(Encoding::custom(place, envelope), &format!("custom {place}"), envelope);
            }
            for own in Own::ALL {
                let name = format!("{own:?}").to_lowercase();
                let encoding = Encoding::own(*own, envelope);
                check(encoding, encoding.protocol().unwrap(), envelope);
                assert!(name.starts_with(encoding.protocol().unwrap()), "{name}");
            }
        }
        for framing in [EngineFraming::V4, EngineFraming::V3, EngineFraming::Record] {
            for envelope in [Envelope::V1, Envelope::Raw] {
                let encoding = Encoding::engine_io(framing, envelope, false);
                check(encoding, &format!("engineio {framing:?}"), envelope);
            }
            for recovers in [false, true] {
                let encoding = Encoding::engine_io(framing, Envelope::SocketIo, recovers);
                check(encoding, &format!("socketio {framing:?}"), Envelope::SocketIo);
                assert_eq!(encoding.recovers(), recovers);
            }
        }
    }
}
