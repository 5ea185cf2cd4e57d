//! The wire formats of publications: what is said, and in what it travels.
//!
//! The hub names a format by a number. The table at the end of this file is the only place that knows the numbers.

use super::{EngineWriter, FrameTarget};
use crate::message::Envelope;
use stentor_hub::FormatId;
use stentor_wire::engineio::Version;
use stentor_wire::sockjs::Wrapping;

/// Protocols of the embedder's own that there may be.
pub const CUSTOM_PROTOCOLS_MAX: usize = 8;

/// A wire format of publications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A document's body alone, for responses over HTTP. Other publications are empty.
    Body,
    /// WebSocket messages, deflated where that is shorter.
    WebSocket { content: Content, deflated: bool },
    /// Engine.IO packets.
    EngineIo { framing: EngineFraming, content: EngineContent },
    /// SockJS frames. Those of transports that stream are chunks (RFC 9112, 7.1), as HTTP/1.1 has them; polls and
    /// HTTP/1.0 unwrap them with [`sockjs_frame`](super::sockjs_frame).
    SockJs { wrapping: Wrapping, content: Content },
    /// Server-Sent Events of one feed: each in a chunk, with its id.
    EventsOfOne,
    /// Server-Sent Events of several feeds. The id differs per client and is sent before.
    EventsOfSeveral,
    /// Primus messages.
    Primus { content: Content },
    /// WebSocket messages of a protocol of [`Options::protocols`](crate::Options::protocols), by its place.
    Custom(u8),
}

/// What a plain session receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Messages of `stentor.v1`.
    V1,
    /// Bodies alone (raw mode).
    Raw,
}

impl From<Envelope> for Content {
    /// No application sends Socket.IO events to plain sessions.
    fn from(envelope: Envelope) -> Self {
        match envelope {
            Envelope::V1 => Self::V1,
            Envelope::Raw | Envelope::SocketIo => Self::Raw,
        }
    }
}

/// What an Engine.IO session receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineContent {
    /// The same as a plain session.
    Plain(Content),
    /// Socket.IO events. If the session `recovers`, they end with their offset.
    SocketIo { recovers: bool },
}

/// How Engine.IO packets are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineFraming {
    /// WebSocket messages of version 4.
    V4,
    /// WebSocket messages of version 3.
    V3,
    /// Records that wait for a poll: the same in both versions.
    Record,
}

impl From<EngineFraming> for EngineWriter {
    fn from(framing: EngineFraming) -> Self {
        match framing {
            EngineFraming::V4 => EngineWriter { version: Version::V4, target: FrameTarget::WebSocket },
            EngineFraming::V3 => EngineWriter { version: Version::V3, target: FrameTarget::WebSocket },
            EngineFraming::Record => EngineWriter { version: Version::V4, target: FrameTarget::Poll },
        }
    }
}

impl From<EngineWriter> for EngineFraming {
    fn from(writer: EngineWriter) -> Self {
        match (writer.target, writer.version) {
            (FrameTarget::WebSocket, Version::V4) => Self::V4,
            (FrameTarget::WebSocket, Version::V3) => Self::V3,
            (FrameTarget::Poll, Version::V3 | Version::V4) => Self::Record,
        }
    }
}

impl Format {
    /// The protocol of sessions with this format, one of [`PROTOCOLS`](crate::PROTOCOLS). `None`: they are requests for a document.
    pub(crate) fn protocol(self) -> Option<&'static str> {
        Some(match self {
            Self::Body => return None,
            Self::WebSocket { .. } | Self::Custom(_) => "websocket",
            Self::EngineIo { content: EngineContent::Plain(_), .. } => "engineio",
            Self::EngineIo { content: EngineContent::SocketIo { .. }, .. } => "socketio",
            Self::SockJs { .. } => "sockjs",
            Self::EventsOfOne | Self::EventsOfSeveral => "sse",
            Self::Primus { .. } => "primus",
        })
    }

    /// The format of a plain session on a WebSocket.
    pub(crate) fn websocket(envelope: Envelope, deflated: bool) -> Self {
        Self::WebSocket { content: envelope.into(), deflated }
    }

    /// The format of an Engine.IO session.
    pub(crate) fn engine_io(writer: EngineWriter, envelope: Envelope, recovers: bool) -> Self {
        let content = match envelope {
            Envelope::V1 => EngineContent::Plain(Content::V1),
            Envelope::Raw => EngineContent::Plain(Content::Raw),
            Envelope::SocketIo => EngineContent::SocketIo { recovers },
        };
        Self::EngineIo { framing: writer.into(), content }
    }

    /// The format of a Socket.IO session that has no connection yet.
    pub(crate) fn moved_socket() -> Self {
        Self::EngineIo { framing: Framing::V4, content: EngineContent::SocketIo { recovers: true } }
    }

    /// The format of a SockJS session.
    pub(crate) fn sockjs(wrapping: Wrapping, envelope: Envelope) -> Self {
        Self::SockJs { wrapping, content: envelope.into() }
    }

    /// The format of a Primus session.
    pub(crate) fn primus(envelope: Envelope) -> Self {
        Self::Primus { content: envelope.into() }
    }
}

/// The number of the first custom protocol's format.
const FIRST_CUSTOM: u8 = 31;
/// Numbers below this one are formats.
const FORMATS: u8 = FIRST_CUSTOM + CUSTOM_PROTOCOLS_MAX as u8;

/// Both directions between formats and their numbers, from one table. The compiler checks that it is complete.
macro_rules! numbers {
    ($($number:literal => ($($format:tt)+),)+) => {
        impl From<Format> for FormatId {
            fn from(format: Format) -> FormatId {
                FormatId(match format {
                    $($($format)+ => $number,)+
                    Format::Custom(place) => FIRST_CUSTOM + place,
                })
            }
        }

        impl TryFrom<FormatId> for Format {
            type Error = FormatId;

            fn try_from(id: FormatId) -> Result<Format, FormatId> {
                Ok(match id.0 {
                    $($number => $($format)+,)+
                    FIRST_CUSTOM..FORMATS => Format::Custom(id.0 - FIRST_CUSTOM),
                    _ => return Err(id),
                })
            }
        }
    };
}

use Content::{Raw, V1};
use EngineContent::{Plain, SocketIo};
use EngineFraming as Framing;

numbers! {
    0 => (Format::Body),
    1 => (Format::WebSocket { content: V1, deflated: false }),
    2 => (Format::WebSocket { content: V1, deflated: true }),
    3 => (Format::WebSocket { content: Raw, deflated: false }),
    4 => (Format::WebSocket { content: Raw, deflated: true }),
    5 => (Format::EngineIo { framing: Framing::V4, content: Plain(V1) }),
    6 => (Format::EngineIo { framing: Framing::V3, content: Plain(V1) }),
    7 => (Format::EngineIo { framing: Framing::Record, content: Plain(V1) }),
    8 => (Format::EngineIo { framing: Framing::V4, content: Plain(Raw) }),
    9 => (Format::EngineIo { framing: Framing::V3, content: Plain(Raw) }),
    10 => (Format::EngineIo { framing: Framing::Record, content: Plain(Raw) }),
    11 => (Format::EngineIo { framing: Framing::V4, content: SocketIo { recovers: false } }),
    12 => (Format::EngineIo { framing: Framing::V3, content: SocketIo { recovers: false } }),
    13 => (Format::EngineIo { framing: Framing::Record, content: SocketIo { recovers: false } }),
    14 => (Format::EngineIo { framing: Framing::V4, content: SocketIo { recovers: true } }),
    15 => (Format::EngineIo { framing: Framing::V3, content: SocketIo { recovers: true } }),
    16 => (Format::EngineIo { framing: Framing::Record, content: SocketIo { recovers: true } }),
    17 => (Format::SockJs { wrapping: Wrapping::WebSocket, content: V1 }),
    18 => (Format::SockJs { wrapping: Wrapping::Xhr, content: V1 }),
    19 => (Format::SockJs { wrapping: Wrapping::EventSource, content: V1 }),
    20 => (Format::SockJs { wrapping: Wrapping::HtmlFile, content: V1 }),
    21 => (Format::SockJs { wrapping: Wrapping::Jsonp, content: V1 }),
    22 => (Format::SockJs { wrapping: Wrapping::WebSocket, content: Raw }),
    23 => (Format::SockJs { wrapping: Wrapping::Xhr, content: Raw }),
    24 => (Format::SockJs { wrapping: Wrapping::EventSource, content: Raw }),
    25 => (Format::SockJs { wrapping: Wrapping::HtmlFile, content: Raw }),
    26 => (Format::SockJs { wrapping: Wrapping::Jsonp, content: Raw }),
    27 => (Format::EventsOfOne),
    28 => (Format::EventsOfSeveral),
    29 => (Format::Primus { content: V1 }),
    30 => (Format::Primus { content: Raw }),
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_hub::FORMATS_MAX;

    #[test]
    fn every_number_below_the_hubs_limit_is_a_format_or_none() {
        let formats: Vec<Format> =
            (0..=u8::MAX).filter_map(|number| FormatId(number).try_into().ok()).collect();
        assert!(formats.len() <= FORMATS_MAX);
        for (number, format) in (0..).zip(formats) {
            assert_eq!(FormatId::from(format), FormatId(number), "{format:?}");
        }
    }
}
