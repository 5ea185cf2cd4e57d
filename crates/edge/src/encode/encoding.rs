//! Encodings: how the messages and publications of a session are written.
//!
//! The hub knows an encoding by its number. The table of this file is the only place that knows the numbers.

use crate::message::Envelope;
use stentor_hub::FormatId;
use stentor_wire::sockjs::Wrapping;

/// Protocols of the embedder's own that there may be.
pub const CUSTOM_PROTOCOLS_MAX: usize = 8;

/// Framing of Engine.IO packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineFraming {
    /// WebSocket messages of version 4.
    V4,
    /// WebSocket messages of version 3.
    V3,
    /// Records that wait for a poll: the same in both versions.
    Record,
}

/// Frames or packets that carry messages and publications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// A document's body alone, for responses over HTTP. Other publications are empty.
    Document,
    /// Server-Sent Events, each in a chunk.
    Events,
    /// JSON values of Primus in WebSocket messages. With `is_value`, text that is JSON is written as that value, other
    /// text as a string.
    Primus { is_value: bool },
    /// Engine.IO packets.
    EngineIo(EngineFraming),
    /// Socket.IO events in Engine.IO packets.
    SocketIo(EngineFraming),
    /// SockJS frames. Publications for transports that stream are chunks (RFC 9112, 7.1), as HTTP/1.1 has them; polls and
    /// HTTP/1.0 unwrap them with [`sockjs_frame`](super::sockjs_frame). Messages for a transport over HTTP are records.
    SockJs(Wrapping),
    /// WebSocket messages. With `deflated`, a publication is compressed if that makes it shorter.
    WebSocket { deflated: bool },
    /// WebSocket messages of a protocol of [`Options::protocols`](crate::Options::protocols), by its place.
    Custom(u8),
}

/// How messages and publications of a session are written: a place in [`WIRES`], and a flag whose meaning depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encoding(u8);

const WIRES: [Wire; CUSTOM as usize + CUSTOM_PROTOCOLS_MAX] = [
    Wire::Document,
    Wire::Events,
    Wire::Primus { is_value: false },
    Wire::Primus { is_value: true },
    Wire::EngineIo(EngineFraming::V4),
    Wire::EngineIo(EngineFraming::V3),
    Wire::EngineIo(EngineFraming::Record),
    Wire::SocketIo(EngineFraming::V4),
    Wire::SocketIo(EngineFraming::V3),
    Wire::SocketIo(EngineFraming::Record),
    Wire::SockJs(Wrapping::WebSocket),
    Wire::SockJs(Wrapping::Xhr),
    Wire::SockJs(Wrapping::EventSource),
    Wire::SockJs(Wrapping::HtmlFile),
    Wire::SockJs(Wrapping::Jsonp),
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

/// Places in [`WIRES`] of the first entry of each kind.
const EVENTS: u8 = 1;
const PRIMUS: u8 = 2;
const ENGINE_IO: u8 = 4;
const SOCKET_IO: u8 = 7;
const SOCKJS: u8 = 10;
const WEBSOCKET: u8 = 15;
const CUSTOM: u8 = 17;

impl Encoding {
    /// Bodies of documents.
    pub(crate) const DOCUMENT: Self = Self::at(0, false);
    /// Server-Sent Events of one feed, with their ids.
    pub(crate) const EVENTS_OF_ONE: Self = Self::at(EVENTS, false);
    /// Server-Sent Events of several feeds. The id differs per client and is sent before.
    pub(crate) const EVENTS_OF_SEVERAL: Self = Self::at(EVENTS, true);
    /// WebSocket messages that carry bodies alone.
    pub(crate) const RAW: Self = Self::at(WEBSOCKET, true);
    /// Socket.IO events for a socket that has no connection yet.
    pub(crate) const MOVED_SOCKET: Self = Self::at(SOCKET_IO, true);

    const fn at(place: u8, flag: bool) -> Self {
        Self(place << 1 | flag as u8)
    }

    /// An entry for a plain session. No application sends it Socket.IO events.
    fn plain(place: u8, envelope: Envelope) -> Self {
        Self::at(place, envelope != Envelope::V1)
    }

    /// A plain session on a WebSocket.
    pub(crate) fn websocket(envelope: Envelope, deflated: bool) -> Self {
        Self::plain(WEBSOCKET + u8::from(deflated), envelope)
    }

    /// A session of a custom protocol, by its place.
    pub(crate) fn custom(place: usize, envelope: Envelope) -> Self {
        Self::plain(CUSTOM + place as u8, envelope)
    }

    /// A session of Engine.IO or Socket.IO. If a Socket.IO session `recovers`, its publications end with their offset.
    #[inline]
    pub(crate) fn engine_io(framing: EngineFraming, envelope: Envelope, recovers: bool) -> Self {
        match envelope {
            Envelope::SocketIo => Self::at(SOCKET_IO + framing as u8, recovers),
            plain => Self::plain(ENGINE_IO + framing as u8, plain),
        }
    }

    /// A session of SockJS.
    pub(crate) fn sockjs(wrapping: Wrapping, envelope: Envelope) -> Self {
        Self::plain(SOCKJS + wrapping as u8, envelope)
    }

    /// A session of Primus.
    pub(crate) fn primus(envelope: Envelope) -> Self {
        Self::plain(PRIMUS + u8::from(envelope == Envelope::V1), envelope)
    }

    /// For an answer of Primus to a value: text that is JSON is a value.
    pub(crate) fn of_value(self) -> Self {
        Self::at(PRIMUS + 1, self.flag())
    }

    /// Frames or packets that carry the session's messages.
    #[inline]
    pub(crate) fn wire(self) -> Wire {
        WIRES[usize::from(self.0 >> 1)]
    }

    fn flag(self) -> bool {
        self.0 & 1 == 1
    }

    /// Whether a message is a WebSocket message as it is.
    #[inline]
    pub(crate) fn is_websocket(self) -> bool {
        self.0 >= WEBSOCKET << 1
    }

    /// Whether a request over HTTP waits for the publications: the session has no messages of its own.
    pub(crate) fn is_response(self) -> bool {
        self.0 < PRIMUS << 1
    }

    /// Whether the events of a stream have their ids.
    pub(super) fn has_ids(self) -> bool {
        self == Self::EVENTS_OF_ONE
    }

    /// Whether the events of a Socket.IO session end with their offset.
    pub(super) fn recovers(self) -> bool {
        self.flag()
    }

    /// The envelope of the session's messages.
    pub(crate) fn envelope(self) -> Envelope {
        match self.wire() {
            Wire::SocketIo(_) => Envelope::SocketIo,
            Wire::Document | Wire::Events => Envelope::Raw,
            _ if self.flag() => Envelope::Raw,
            _ => Envelope::V1,
        }
    }

    /// The name of the session's protocol, one of [`PROTOCOLS`](crate::PROTOCOLS). `None`: the session is a request for a document.
    pub(crate) fn protocol(self) -> Option<&'static str> {
        Some(match self.wire() {
            Wire::Document => return None,
            Wire::Events => "sse",
            Wire::Primus { .. } => "primus",
            Wire::EngineIo(_) => "engineio",
            Wire::SocketIo(_) => "socketio",
            Wire::SockJs(_) => "sockjs",
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

    #[test]
    fn encodings_are_where_the_table_has_them() {
        assert!(WIRES.len() * 2 <= FORMATS_MAX);
        let check = |encoding: Encoding, wire: Wire, envelope: Envelope| {
            assert_eq!((encoding.wire(), encoding.envelope()), (wire, envelope));
            assert_eq!(encoding.is_websocket(), matches!(wire, Wire::WebSocket { .. } | Wire::Custom(_)));
            assert_eq!(encoding.is_response(), matches!(wire, Wire::Document | Wire::Events));
        };
        check(Encoding::DOCUMENT, Wire::Document, Envelope::Raw);
        check(Encoding::EVENTS_OF_ONE, Wire::Events, Envelope::Raw);
        check(Encoding::EVENTS_OF_SEVERAL, Wire::Events, Envelope::Raw);
        check(Encoding::RAW, Wire::WebSocket { deflated: false }, Envelope::Raw);
        check(Encoding::MOVED_SOCKET, Wire::SocketIo(EngineFraming::V4), Envelope::SocketIo);
        assert!(Encoding::MOVED_SOCKET.recovers());
        for envelope in [Envelope::V1, Envelope::Raw] {
            let is_value = envelope == Envelope::V1;
            check(Encoding::primus(envelope), Wire::Primus { is_value }, envelope);
            check(Encoding::primus(envelope).of_value(), Wire::Primus { is_value: true }, envelope);
            for deflated in [false, true] {
                check(Encoding::websocket(envelope, deflated), Wire::WebSocket { deflated }, envelope);
            }
            for place in 0..CUSTOM_PROTOCOLS_MAX {
                check(Encoding::custom(place, envelope), Wire::Custom(place as u8), envelope);
            }
            let (socket, xhr, source) = (Wrapping::WebSocket, Wrapping::Xhr, Wrapping::EventSource);
            for wrapping in [socket, xhr, source, Wrapping::HtmlFile, Wrapping::Jsonp] {
                check(Encoding::sockjs(wrapping, envelope), Wire::SockJs(wrapping), envelope);
            }
        }
        for framing in [EngineFraming::V4, EngineFraming::V3, EngineFraming::Record] {
            for envelope in [Envelope::V1, Envelope::Raw] {
                check(Encoding::engine_io(framing, envelope, false), Wire::EngineIo(framing), envelope);
            }
            for recovers in [false, true] {
                let encoding = Encoding::engine_io(framing, Envelope::SocketIo, recovers);
                check(encoding, Wire::SocketIo(framing), Envelope::SocketIo);
                assert_eq!(encoding.recovers(), recovers);
            }
        }
    }
}
