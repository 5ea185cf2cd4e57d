//! The wire formats of publications: how each is encoded, once per node.
//!
//! A format is what is said ([`Envelope`]) and in what it travels: a WebSocket frame, plain or deflated, Engine.IO
//! packets, framed or as records for polls, SockJS frames in the wrapping of a transport, Server-Sent Events, or messages
//! of Primus.

use crate::app::Envelope;
use crate::writer::{Carriage, EngineWriter};
use bytes::Bytes;
use std::cell::RefCell;
use stentor_driver::{Frame, Meter};
use stentor_hub::{Body, Data, Encoder, FeedState, FormatId, Key, Position, Publication};
use stentor_wire::engineio::Version;
use stentor_wire::primus;
use stentor_wire::socketio::{self, Head};
use stentor_wire::sockjs::{self, Wrapping};
use stentor_wire::sse;
use stentor_wire::ws::{self, Deflater, Opcode};

/// A document's body alone, for answers over HTTP. Other publications are empty.
pub(crate) const BODY: FormatId = FormatId(0);
/// `stentor.v1` over WebSocket.
pub(crate) const WS_V1: FormatId = FormatId(1);
/// `stentor.v1` over WebSocket, deflated.
pub(crate) const WS_V1_DEFLATED: FormatId = FormatId(2);
/// Bodies only, over WebSocket.
pub(crate) const WS_RAW: FormatId = FormatId(3);
/// Bodies only, over WebSocket, deflated.
pub(crate) const WS_RAW_DEFLATED: FormatId = FormatId(4);
/// The first of Engine.IO's: three carriages of each of four envelopes.
const ENGINE: u8 = 5;

const CARRIAGES: [EngineWriter; 3] = [
    EngineWriter { version: Version::V4, carriage: Carriage::Frame },
    EngineWriter { version: Version::V3, carriage: Carriage::Frame },
    // Records are the same in both versions.
    EngineWriter { version: Version::V4, carriage: Carriage::Record },
];

/// The first of SockJS's: five wrappings of each of two envelopes.
const SOCKJS: u8 = ENGINE + (CARRIAGES.len() * ENVELOPES.len()) as u8;

/// The format of a SockJS session whose frames leave in this wrapping. Those of transports that stream are chunks
/// (RFC 9112, 7.1), as HTTP/1.1 has them; polls and HTTP/1.0 take them apart with [`sockjs_frame`].
pub(crate) fn of_sockjs(wrapping: Wrapping, envelope: Envelope) -> FormatId {
    let place = Wrapping::ALL.iter().position(|one| *one == wrapping).unwrap_or(0);
    let envelope = usize::from(envelope != Envelope::V1);
    FormatId(SOCKJS + (envelope * Wrapping::ALL.len() + place) as u8)
}

/// What a SockJS session's format says.
fn sockjs_of(format: FormatId) -> Option<(Wrapping, Envelope)> {
    let number = usize::from(format.0.checked_sub(SOCKJS)?);
    let envelope = *[Envelope::V1, Envelope::Raw].get(number / Wrapping::ALL.len())?;
    Some((Wrapping::ALL[number % Wrapping::ALL.len()], envelope))
}

/// The frame within what [`of_sockjs`]'s formats encode to.
pub(crate) fn sockjs_frame(wrapping: Wrapping, encoded: &[u8]) -> &[u8] {
    match wrapping {
        Wrapping::Xhr | Wrapping::EventSource | Wrapping::HtmlFile => unchunked(encoded),
        Wrapping::WebSocket | Wrapping::Jsonp => encoded,
    }
}

/// The data of one chunk.
pub(crate) fn unchunked(chunk: &[u8]) -> &[u8] {
    let head = chunk.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    chunk[head..].strip_suffix(b"\r\n").unwrap_or_default()
}

/// Bytes of the data of one chunk that is so long as a whole: what is left without size, line ends and trailing line
/// end.
pub(crate) fn unchunked_bytes(chunk_bytes: usize) -> usize {
    (1..=16)
        .filter_map(|digits| chunk_bytes.checked_sub(digits + 4).map(|bytes| (digits, bytes)))
        .find(|(digits, bytes)| bytes.checked_ilog(16).map_or(1, |log| log as usize + 1) == *digits)
        .map_or(0, |(_, bytes)| bytes)
}

/// Server-Sent Events of one feed: each in a chunk, with its id.
pub(crate) const EVENTS_OF_ONE: FormatId = FormatId(SOCKJS + 2 * Wrapping::ALL.len() as u8);
/// Server-Sent Events of several feeds: the id differs per client, and leaves before.
pub(crate) const EVENTS_OF_SEVERAL: FormatId = FormatId(EVENTS_OF_ONE.0 + 1);

/// The first of Primus's.
const PRIMUS: u8 = EVENTS_OF_SEVERAL.0 + 1;

/// The format of a Primus session.
pub(crate) fn of_primus(envelope: Envelope) -> FormatId {
    FormatId(PRIMUS + u8::from(envelope != Envelope::V1))
}

/// What is said over Engine.IO. With `recovers`, Socket.IO's events end with their offset.
const ENVELOPES: [(Envelope, bool); 4] =
    [(Envelope::V1, false), (Envelope::Raw, false), (Envelope::SocketIo, false), (Envelope::SocketIo, true)];

/// The format of an Engine.IO session.
pub(crate) fn of_engine(writer: EngineWriter, envelope: Envelope, recovers: bool) -> FormatId {
    let carriage = match (writer.carriage, writer.version) {
        (Carriage::Frame, Version::V4) => 0,
        (Carriage::Frame, Version::V3) => 1,
        (Carriage::Record, _) => 2,
    };
    let envelope = match (envelope, recovers) {
        (Envelope::V1, _) => 0,
        (Envelope::Raw, _) => 1,
        (Envelope::SocketIo, false) => 2,
        (Envelope::SocketIo, true) => 3,
    };
    FormatId(ENGINE + envelope * CARRIAGES.len() as u8 + carriage)
}

/// What an Engine.IO session's format says.
fn engine_of(format: FormatId) -> Option<(EngineWriter, Envelope, bool)> {
    let number = usize::from(format.0.checked_sub(ENGINE)?);
    let (envelope, recovers) = *ENVELOPES.get(number / CARRIAGES.len())?;
    Some((CARRIAGES[number % CARRIAGES.len()], envelope, recovers))
}

/// Window that shared deflated frames are made with (RFC 7692, 7.1.2.1). A client that asks for a smaller
/// one is sent plain frames, so that one deflated frame serves all.
pub(crate) const WINDOW_BITS: u8 = 15;

/// How feeds reach Socket.IO clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FeedEvents {
    /// The event's name.
    pub(crate) name: String,
    /// The document alone, as one string, instead of an object with its position.
    pub(crate) as_string: bool,
}

/// Encodes publications.
pub(crate) struct Formats {
    meter: Meter,
    deflater: RefCell<Deflater>,
    deflate_bytes_min: usize,
    feeds: FeedEvents,
}

/// One message of a plain session, in parts so that a document isn't copied twice.
struct Plain<'a> {
    opcode: Opcode,
    head: Vec<u8>,
    data: Cow<'a>,
    tail: &'static [u8],
}

impl Plain<'_> {
    /// The message as text: bytes as base64.
    fn text(&self) -> std::borrow::Cow<'_, str> {
        if self.opcode != Opcode::Text {
            use base64::Engine;
            return base64::engine::general_purpose::STANDARD.encode(&self.data).into();
        }
        if self.head.is_empty() && self.tail.is_empty() {
            return String::from_utf8_lossy(&self.data);
        }
        // What we wrote ourselves is UTF-8, and so is what was checked when it came in.
        String::from_utf8([&self.head, &self.data[..], self.tail].concat()).unwrap_or_default().into()
    }
}

impl Formats {
    pub(crate) fn new(meter: Meter, deflate_level: u8, deflate_bytes_min: usize, feeds: FeedEvents) -> Self {
        Self { meter, deflater: RefCell::new(Deflater::new(deflate_level)), deflate_bytes_min, feeds }
    }

    /// One WebSocket message in one frame.
    fn frame(&self, plain: &Plain<'_>, deflate: bool) -> Frame {
        let Plain { opcode, head, data, tail } = plain;
        let len = head.len() + data.len() + tail.len();
        if deflate && len >= self.deflate_bytes_min {
            let whole = [head, &data[..], tail].concat();
            let mut deflater = self.deflater.borrow_mut();
            let deflated = deflater.deflate(&whole, WINDOW_BITS);
            if deflated.len() < len {
                let header = ws::server_header(*opcode, deflated.len(), true);
                return Frame::shared(&[&header, deflated], &self.meter);
            }
        }
        let header = ws::server_header(*opcode, len, false);
        Frame::shared(&[&header, head, data, tail], &self.meter)
    }

    /// Engine.IO packets, as `write` appends them.
    fn packets(&self, write: impl FnOnce(&mut Vec<u8>)) -> Frame {
        let mut bytes = Vec::new();
        write(&mut bytes);
        Frame::shared(&[&bytes], &self.meter)
    }

    /// A SockJS frame of one message.
    fn sockjs(&self, wrapping: Wrapping, plain: &Plain<'_>) -> Frame {
        let text = plain.text();
        let mut frame = Vec::with_capacity(text.len() + text.len() / 8 + 64);
        wrapping.write(&mut frame, &sockjs::Frame::Messages(&[&text]));
        match wrapping {
            Wrapping::WebSocket => {
                Frame::shared(&[&ws::server_header(Opcode::Text, frame.len(), false), &frame], &self.meter)
            }
            Wrapping::Xhr | Wrapping::EventSource | Wrapping::HtmlFile => self.chunk(&frame),
            Wrapping::Jsonp => Frame::shared(&[&frame], &self.meter),
        }
    }

    /// A message of Primus; nothing where its clients would take it for the protocol's own.
    fn primus(&self, body: &Body, envelope: Envelope) -> Option<Frame> {
        let (plain, is_json) = if envelope == Envelope::V1 {
            (v1(body), true)
        } else {
            let plain = raw(body)?;
            let is_json = match body {
                Body::Snapshot { document, .. } => document.json,
                Body::Message { event: None, data, .. } => {
                    matches!(data, Data::Json(_) | Data::Arguments { .. })
                }
                // One string becomes text, anything else a list.
                Body::Message { event: Some(_), .. } => !plain.head.is_empty(),
                Body::State { .. } | Body::Delta { .. } => false,
            };
            (plain, is_json)
        };
        let text = plain.text();
        let mut message = Vec::with_capacity(text.len() + 16);
        if is_json {
            (!primus::is_reserved(&text)).then(|| primus::write_message(&mut message, &text))?;
        } else {
            (!text.starts_with(primus::PREFIX)).then(|| primus::write_text(&mut message, &text))?;
        }
        Some(Frame::shared(&[&ws::server_header(Opcode::Text, message.len(), false), &message], &self.meter))
    }

    /// An event; after a document perhaps others that say why it comes whole, and that it isn't as new as it could be.
    fn event(&self, body: &Body, with_id: bool) -> Option<Frame> {
        let mut out = Vec::with_capacity(body.len() + 128);
        let state_event = |out: &mut Vec<u8>, key: &Key, state: FeedState, reason: Option<&str>| {
            let mut data = br#"{"feed":"#.to_vec();
            data.extend_from_slice(&json_string(key.as_str()));
            data.extend_from_slice(format!(r#","state":"{}""#, state.as_str()).as_bytes());
            if let Some(reason) = reason {
                data.extend_from_slice(br#","reason":"#);
                data.extend_from_slice(&json_string(reason));
            }
            data.push(b'}');
            let data = std::str::from_utf8(&data).unwrap_or_default();
            sse::write_event(out, &sse::Event { id: None, event: Some("state"), data });
        };
        let write_id = |out: &mut Vec<u8>, key: &Key, Position { epoch, offset }: Position| {
            if with_id {
                sse::write_position_id(out, [sse::Position { key: key.as_str(), epoch: epoch.0, offset }]);
            }
        };
        match body {
            Body::Snapshot { key, position, state, unpatched, .. } => {
                write_id(&mut out, key, *position);
                let data = raw(body)?;
                sse::write_event(
                    &mut out,
                    &sse::Event { id: None, event: Some("snapshot"), data: &data.text() },
                );
                // After the document: who is cut off in between must not know its id.
                if let Some(unpatched) = unpatched {
                    let mut data = br#"{"feed":"#.to_vec();
                    data.extend_from_slice(&json_string(key.as_str()));
                    data.extend_from_slice(format!(r#","reason":"{}"}}"#, unpatched.as_str()).as_bytes());
                    let data = std::str::from_utf8(&data).unwrap_or_default();
                    sse::write_event(&mut out, &sse::Event { id: None, event: Some("reset"), data });
                }
                if *state != FeedState::Live {
                    state_event(&mut out, key, *state, None);
                }
            }
            Body::Delta { key, position, .. } => {
                write_id(&mut out, key, *position);
                let data = v1(body);
                sse::write_event(
                    &mut out,
                    &sse::Event { id: None, event: Some("delta"), data: &data.text() },
                );
            }
            Body::State { key, state, reason } => state_event(&mut out, key, *state, Some(reason)),
            Body::Message { .. } => {
                sse::write_event(&mut out, &sse::Event { data: &raw(body)?.text(), ..sse::Event::default() });
            }
        }
        Some(self.chunk(&out))
    }

    /// One chunk of an answer over HTTP/1.1.
    fn chunk(&self, data: &[u8]) -> Frame {
        Frame::shared(&[format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"], &self.meter)
    }

    fn engine(&self, writer: EngineWriter, plain: &Plain<'_>) -> Frame {
        let Plain { opcode, head, data, tail } = plain;
        let len = head.len() + data.len() + tail.len();
        self.packets(|out| match opcode {
            Opcode::Text => writer.packet(out, len + 1, |out| {
                out.push(b'4');
                for part in [head, &data[..], tail] {
                    out.extend_from_slice(part);
                }
            }),
            _ => writer.binary(out, data),
        })
    }

    /// A Socket.IO event. Feeds live in the main namespace.
    fn socketio(&self, writer: EngineWriter, publication: &Publication<Frame>, recovers: bool) -> Frame {
        let (mut namespace, mut name) = ("/", &*self.feeds.name);
        let mut attachments: &[Bytes] = &[];
        let one;
        let json: Cow<'_> = match publication.body() {
            Body::Message { room, event, data, .. } => {
                namespace = room.namespace();
                name = event.as_deref().unwrap_or("message");
                match data {
                    Data::Arguments { json, attachments: several } => {
                        attachments = several;
                        Cow::Borrowed(json)
                    }
                    Data::Binary(bytes) => {
                        one = [bytes.clone()];
                        attachments = &one;
                        Cow::Borrowed(br#"{"_placeholder":true,"num":0}"#)
                    }
                    data => json_value(data),
                }
            }
            Body::Snapshot { document, .. } if self.feeds.as_string => {
                Cow::Owned(json_string(&String::from_utf8_lossy(&document.body)))
            }
            body => {
                let Plain { mut head, data, tail, .. } = v1(body);
                head.extend_from_slice(&data);
                head.extend_from_slice(tail);
                Cow::Owned(head)
            }
        };
        // A client that can be recovered takes a string at the end of any event for the offset.
        let offset = match (recovers, publication.is_recoverable()) {
            (true, true) => write_offset(publication.id()),
            (true, false) if json.ends_with(b"\"") => "null".to_owned(),
            _ => String::new(),
        };
        // What we wrote ourselves is UTF-8, and so is what was checked when it came in.
        let json = std::str::from_utf8(&json).unwrap_or_default();
        let head = Head { attachments: attachments.len(), ..Head::new(namespace) };
        self.packets(|out| {
            writer.socketio(out, json.len() + name.len() + namespace.len() + 32, attachments, |out| {
                socketio::write_event(out, &head, name, &[json, &offset]);
            });
        })
    }
}

/// A publication's id as Socket.IO clients send it back: a JSON string. 0 stands for none.
pub(crate) fn write_offset(id: u64) -> String {
    format!("\"{id:016x}\"")
}

/// Reads the offset that a client sends back; 0 is none.
pub(crate) fn parse_offset(text: &str) -> Option<u64> {
    (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok())?
}

impl Encoder for Formats {
    type Frame = Frame;

    fn len(frame: &Frame) -> usize {
        frame.len()
    }

    fn encode(&self, format: FormatId, publication: &Publication<Frame>) -> Option<Frame> {
        let body = publication.body();
        match (format, body) {
            (BODY, Body::Snapshot { document, .. }) => {
                return Some(Frame::shared(&[&document.body], &self.meter));
            }
            (BODY, Body::Delta { .. }) => return None,
            (BODY, _) => return Some(Frame::owned(Vec::new())),
            (WS_V1 | WS_V1_DEFLATED, _) => return Some(self.frame(&v1(body), format == WS_V1_DEFLATED)),
            (WS_RAW | WS_RAW_DEFLATED, _) => {
                return Some(self.frame(&raw(body)?, format == WS_RAW_DEFLATED));
            }
            _ => {}
        }
        if matches!(format, EVENTS_OF_ONE | EVENTS_OF_SEVERAL) {
            return self.event(body, format == EVENTS_OF_ONE);
        }
        for envelope in [Envelope::V1, Envelope::Raw] {
            if format == of_primus(envelope) {
                return self.primus(body, envelope);
            }
        }
        if let Some((wrapping, envelope)) = sockjs_of(format) {
            let plain = if envelope == Envelope::V1 { v1(body) } else { raw(body)? };
            return Some(self.sockjs(wrapping, &plain));
        }
        match engine_of(format) {
            Some((writer, Envelope::V1, _)) => Some(self.engine(writer, &v1(body))),
            Some((writer, Envelope::Raw, _)) => Some(self.engine(writer, &raw(body)?)),
            // A client that expects documents expects nothing else of them.
            Some((_, Envelope::SocketIo, _))
                if self.feeds.as_string && matches!(body, Body::State { .. } | Body::Delta { .. }) =>
            {
                None
            }
            Some((writer, Envelope::SocketIo, recovers)) => {
                Some(self.socketio(writer, publication, recovers))
            }
            None => unreachable!("no session is opened with format {}", format.0),
        }
    }
}

/// A publication's body alone; nothing where it has none.
fn raw(body: &Body) -> Option<Plain<'_>> {
    let plain = |opcode, data| Some(Plain { opcode, head: Vec::new(), data, tail: b"" });
    match body {
        Body::Snapshot { document, .. } => {
            let is_text = document.json || std::str::from_utf8(&document.body).is_ok();
            let opcode = if is_text { Opcode::Text } else { Opcode::Binary };
            plain(opcode, Cow::Borrowed(&document.body[..]))
        }
        Body::Message { event: None, data: Data::Binary(bytes), .. } => {
            plain(Opcode::Binary, Cow::Borrowed(&bytes[..]))
        }
        Body::Message { event: None, data: Data::Json(bytes) | Data::Text(bytes), .. } => {
            plain(Opcode::Text, Cow::Borrowed(&bytes[..]))
        }
        Body::Message { event: None, data, .. } => plain(Opcode::Text, json_value(data)),
        Body::Message { event: Some(event), data, .. } => {
            // An event `message` with one string is what a plain client's text becomes, and the other way round.
            if &**event == "message"
                && let Data::Arguments { json, attachments } = data
                && attachments.is_empty()
                && let Ok(text) = serde_json::from_slice::<String>(json)
            {
                return plain(Opcode::Text, Cow::Owned(text.into_bytes()));
            }
            let mut head = b"[".to_vec();
            head.extend_from_slice(&json_string(event));
            let data = match data {
                Data::Arguments { json, .. } => Cow::Borrowed(&json[..]),
                data => json_value(data),
            };
            if !data.is_empty() {
                head.push(b',');
            }
            Some(Plain { opcode: Opcode::Text, head, data, tail: b"]" })
        }
        // Who gets documents only gets them whole.
        Body::State { .. } | Body::Delta { .. } => None,
    }
}

/// A publication as a message of `stentor.v1`.
fn v1(body: &Body) -> Plain<'_> {
    let mut head = Vec::with_capacity(128);
    let text = |head, data, tail| Plain { opcode: Opcode::Text, head, data, tail };
    match body {
        Body::Message { room, event, data, position } => {
            head.extend_from_slice(br#"{"type":"message""#);
            // A message to the session alone has no room.
            if !room.is_everybody() {
                head.extend_from_slice(br#","room":"#);
                head.extend_from_slice(&json_string(room.name()));
            }
            if let Some(event) = event {
                head.extend_from_slice(br#","event":"#);
                head.extend_from_slice(&json_string(event));
            }
            if let Some(position) = position {
                write_position(&mut head, *position);
            }
            if matches!(data, Data::Binary(_)) {
                head.extend_from_slice(br#","encoding":"base64""#);
            }
            head.extend_from_slice(br#","data":"#);
            // Of several arguments a list, of one that one.
            let data = match data {
                Data::Arguments { json, .. }
                    if std::str::from_utf8(json)
                        .is_ok_and(|json| stentor_json::elements(json).count() == 1) =>
                {
                    Cow::Borrowed(&json[..])
                }
                data => json_value(data),
            };
            text(head, data, b"}")
        }
        Body::Snapshot { key, position, state, unpatched, document } => {
            head.extend_from_slice(br#"{"type":"snapshot","feed":"#);
            head.extend_from_slice(&json_string(key.as_str()));
            write_position(&mut head, *position);
            head.extend_from_slice(br#","state":""#);
            head.extend_from_slice(state.as_str().as_bytes());
            if let Some(unpatched) = unpatched {
                head.extend_from_slice(br#"","reason":""#);
                head.extend_from_slice(unpatched.as_str().as_bytes());
            }
            head.extend_from_slice(br#"","data":"#);
            let data = if document.json {
                Cow::Borrowed(&document.body[..])
            } else {
                json_value(&Data::Text(document.body.clone())).into_owned().into()
            };
            text(head, data, b"}")
        }
        Body::Delta { key, base, position, patch } => {
            head.extend_from_slice(br#"{"type":"delta","feed":"#);
            head.extend_from_slice(&json_string(key.as_str()));
            let Position { epoch, offset } = position;
            let place = format!(r#","epoch":{},"base":{base},"offset":{offset},"patch":"#, epoch.0);
            head.extend_from_slice(place.as_bytes());
            text(head, Cow::Borrowed(&patch[..]), b"}")
        }
        Body::State { key, state, reason } => {
            head.extend_from_slice(br#"{"type":"state","feed":"#);
            head.extend_from_slice(&json_string(key.as_str()));
            head.extend_from_slice(br#","state":""#);
            head.extend_from_slice(state.as_str().as_bytes());
            head.extend_from_slice(br#"","reason":"#);
            head.extend_from_slice(&json_string(reason));
            text(head, Cow::Borrowed(b""), b"}")
        }
    }
}

type Cow<'a> = std::borrow::Cow<'a, [u8]>;

fn write_position(out: &mut Vec<u8>, position: Position) {
    out.extend_from_slice(
        format!(r#","epoch":{},"offset":{}"#, position.epoch.0, position.offset).as_bytes(),
    );
}

/// A text as a JSON string.
pub(crate) fn json_string(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    stentor_json::write_string(&mut out, text);
    out
}

/// Maximum size of an error text as sent: escaped, without its quotes.
pub(crate) const ERROR_BYTES_MAX: usize = 256;

/// An error text as a JSON string. It may repeat client input, so it is cut to [`ERROR_BYTES_MAX`] after escaping.
pub(crate) fn json_error_text(text: &str) -> String {
    let mut end = text.floor_char_boundary(ERROR_BYTES_MAX);
    loop {
        let escaped = json_string(&text[..end]);
        if escaped.len() <= ERROR_BYTES_MAX + 2 {
            return String::from_utf8(escaped).unwrap_or_default();
        }
        end = text.floor_char_boundary(end * 3 / 4);
    }
}

/// Data as a JSON value: JSON as it is, text as a string (bad UTF-8 replaced), bytes as base64, arguments as
/// an array (without their attachments).
fn json_value(data: &Data) -> Cow<'_> {
    match data {
        Data::Json(bytes) => Cow::Borrowed(bytes),
        Data::Text(bytes) => Cow::Owned(json_string(&String::from_utf8_lossy(bytes))),
        Data::Arguments { json, .. } => Cow::Owned([b"[", &json[..], b"]"].concat()),
        Data::Binary(bytes) => {
            use base64::Engine;
            Cow::Owned(json_string(&base64::engine::general_purpose::STANDARD.encode(bytes)))
        }
    }
}
