//! Protocols over WebSocket: one connection, and messages on it. Clients of Socket.IO 0.7 to 0.9 first request their
//! session on the side connection.
//!
//! ```text
//! connected (-GET-> Asking -id->) -request-> Upgrading -101-> messages …
//! ```

use std::time::Duration;

use memchr::memchr_iter;
use stentor_wire::http1::write_request_head;
use stentor_wire::ws::{Opcode, encode};

use super::answer::Answer;
use super::envelope::MessageReader;
use super::feed::{FeedReader, SUBSCRIBE};
use super::frames::{FrameReader, Piece};
use super::gathered::Gathered;
use super::handshake::Handshake;
use super::hixie::{self, HixieHandshake, HixieReader};
use super::mqtt::PacketReader;
use super::session::Session;
use super::{
    ClientEvent, Dialect, Fault, Lane, Out, Protocol, ProtocolClient, bayeux, mqtt, nats, rooms, socketio06,
    socketio09,
};

/// The key of all masks (RFC 6455 section 5.3). Zero costs both sides the least.
const MASK: Option<[u8; 4]> = Some([0; 4]);

/// A client over WebSocket; see the module's documentation.
pub(in super::super) struct WebSocketClient {
    /// The handshake, until the server has accepted the WebSocket.
    opening: Option<Box<Opening>>,
    frames: Frames,
    cutter: Cutter,
    /// Compressed messages.
    compressed: Gathered,
    messages: MessageReader,
    session: Session,
}

enum Opening {
    /// A GET on the side connection requests a session. The key is for the later handshake.
    Asking(Answer, u128),
    Upgrading(Handshake),
    UpgradingHixie(HixieHandshake),
}

enum Frames {
    /// Frames of RFC 6455.
    Rfc(FrameReader),
    Hixie(HixieReader),
}

/// The way in which messages of the load are contained in those of WebSocket.
enum Cutter {
    /// One message of the load in each.
    Whole,
    /// One message of the load per line. The last line of a frame ends with it, or continues in the next.
    Lines {
        end_with_frames: bool,
    },
    Packets(PacketReader),
    /// Messages of a room.
    Rooms(Gathered),
    /// Messages of a feed with a known document.
    Feed(Box<FeedReader>),
    /// Messages with lengths, in frames.
    Counted(Gathered),
}

impl Cutter {
    fn take(&mut self, bytes: &[u8], ends: bool, receiver: &mut Receiver<'_>) -> Result<(), Fault> {
        match self {
            Self::Whole => receiver.take(bytes, ends),
            Self::Feed(reader) => match &receiver.dialect.feed {
                Some(feed) => reader.take(feed, bytes, ends, &mut receiver.out.happened),
                None => Err(Fault::Answer("there is no feed")),
            },
            Self::Rooms(gathered) => {
                if let Some(message) = gathered.take(bytes, ends)? {
                    receiver.out.happened.push(rooms::react(&message)?);
                }
                Ok(())
            }
            Self::Lines { end_with_frames } => {
                let mut begin = 0;
                for end in memchr_iter(b'\n', bytes) {
                    receiver.take(&bytes[begin..end], true)?;
                    begin = end + 1;
                }
                let ends = ends && *end_with_frames;
                if ends || begin < bytes.len() { receiver.take(&bytes[begin..], ends) } else { Ok(()) }
            }
            Self::Packets(packets) => packets.take(bytes, |bytes, ends| receiver.take(bytes, ends)),
            Self::Counted(gathered) => match gathered.take(bytes, ends)? {
                Some(frame) => socketio06::messages(&frame, |message| match receiver.session.is_open {
                    true if !message.starts_with('~') => receiver.take(message.as_bytes(), true),
                    _ => receiver.react(message.as_bytes()),
                }),
                None => Ok(()),
            },
        }
    }
}

impl WebSocketClient {
    pub(super) fn new(dialect: &Dialect) -> Self {
        let protocol = dialect.protocol;
        Self {
            opening: None,
            frames: match protocol {
                Protocol::SocketIo06 | Protocol::SocketIo07 => Frames::Hixie(HixieReader::default()),
                _ => Frames::Rfc(FrameReader::default()),
            },
            cutter: match (protocol, &dialect.feed) {
                (_, Some(feed)) => Cutter::Feed(Box::new(FeedReader::new(protocol, feed, &dialect.path))),
                (Protocol::SocketIo06, _) => Cutter::Counted(Gathered::default()),
                (Protocol::Centrifuge, _) => Cutter::Lines { end_with_frames: true },
                (Protocol::Nats, _) => Cutter::Lines { end_with_frames: false },
                (Protocol::Rooms, _) => Cutter::Rooms(Gathered::default()),
                (Protocol::Mqtt, _) => Cutter::Packets(PacketReader::default()),
                _ => Cutter::Whole,
            },
            compressed: Gathered::default(),
            messages: MessageReader::default(),
            session: Session::new(protocol),
        }
    }

    fn upgrade(&mut self, dialect: &Dialect, key: u128, path: &str, out: &mut Vec<u8>) {
        self.opening = Some(Box::new(match &self.frames {
            Frames::Rfc(_) => Opening::Upgrading(Handshake::begin(dialect, key, path, out)),
            Frames::Hixie(_) => Opening::UpgradingHixie(HixieHandshake::begin(dialect, path, out)),
        }));
    }

    /// Consumes a part of the answer to the request for a session.
    fn take_session(&mut self, dialect: &Dialect, data: &[u8], out: &mut Out) -> Result<(), Fault> {
        let Some(Opening::Asking(answer, key)) = self.opening.as_deref_mut() else {
            return Err(Fault::Answer("an answer to no request"));
        };
        if answer.feed(data)? {
            answer.check()?;
            let (key, body) = (*key, std::mem::take(&mut answer.body));
            let path = format!("{}websocket/{}", dialect.path, socketio09::session_id(&body)?);
            self.upgrade(dialect, key, &path, &mut out.main);
        }
        Ok(())
    }

    fn take_frames(&mut self, dialect: &Dialect, data: &[u8], out: &mut Out) -> Result<(), Fault> {
        let Self { frames, cutter, compressed, messages, session, .. } = self;
        let mut receiver = Receiver { dialect, messages, session, out };
        let each = |piece: Piece<'_>| match piece {
            Piece::Data { bytes, ends, compressed: false } => cutter.take(bytes, ends, &mut receiver),
            Piece::Data { bytes, ends, .. } => match compressed.take(bytes, ends)? {
                Some(message) => receiver.inflate(&message, cutter),
                None => Ok(()),
            },
            Piece::Control { opcode, payload } => receiver.control(opcode, payload),
        };
        match frames {
            Frames::Rfc(frames) => frames.feed(data, each),
            Frames::Hixie(frames) => frames.feed(data, each),
        }
    }
}

impl ProtocolClient for WebSocketClient {
    fn connected(&mut self, dialect: &Dialect, key: u128, out: &mut Out) {
        match dialect.protocol {
            Protocol::SocketIo07 | Protocol::SocketIo09 => {
                // Browsers don't upgrade the connection of that request, and the client no longer needs the connection.
                let headers = [("Host", dialect.host.as_str()), ("Connection", "close")];
                write_request_head(&mut out.side, "GET", &dialect.path, &headers);
                self.opening = Some(Box::new(Opening::Asking(Answer::default(), key)));
            }
            Protocol::SockJs => {
                let path = format!("{}/websocket", dialect.sockjs_session(key));
                self.upgrade(dialect, key, &path, &mut out.main);
            }
            _ => self.upgrade(dialect, key, &dialect.path_of(key), &mut out.main),
        }
    }

    fn receive(&mut self, dialect: &Dialect, lane: Lane, data: &[u8], out: &mut Out) -> Result<(), Fault> {
        if lane == Lane::Side {
            return self.take_session(dialect, data, out);
        }
        let upgraded = match self.opening.as_deref_mut() {
            None => return self.take_frames(dialect, data, out),
            Some(Opening::Asking(..)) => return Err(Fault::Answer("an answer to no request")),
            Some(Opening::Upgrading(handshake)) => handshake.take(data)?,
            Some(Opening::UpgradingHixie(handshake)) => handshake.take(data)?,
        };
        let Some(rest) = upgraded else { return Ok(()) };
        self.opening = None;
        if let Frames::Rfc(frames) = &mut self.frames {
            frames.deflate = dialect.deflate;
        }
        if !matches!(self.cutter, Cutter::Feed(_)) && self.session.opens_at_once() {
            out.happened.push(ClientEvent::Opened);
        }
        if let Some(greeting) = self.session.greeting() {
            write_message(dialect, greeting, &mut out.main);
        }
        self.take_frames(dialect, &rest, out)
    }

    fn send(&mut self, dialect: &Dialect, payload: &[u8], out: &mut Out) {
        out.scratch.clear();
        match dialect.protocol {
            Protocol::Bayeux => {
                bayeux::write_publication(&mut out.scratch, &self.session.client_id, payload);
            }
            Protocol::Nats => nats::write_publication(&mut out.scratch, payload),
            Protocol::Mqtt => mqtt::write_publication(&mut out.scratch, payload),
            _ if matches!(self.cutter, Cutter::Feed(_)) => out.scratch.extend_from_slice(SUBSCRIBE),
            _ => dialect.outbound.wrap(&mut out.scratch, payload),
        }
        write_message(dialect, &out.scratch, &mut out.main);
    }

    fn heartbeat_interval(&self) -> Option<Duration> {
        self.session.heartbeat_interval
    }

    fn heartbeat(&mut self, dialect: &Dialect, out: &mut Out) {
        write_message(dialect, self.session.heartbeat(), &mut out.main);
    }

    fn side_is_idle(&self) -> bool {
        !matches!(self.opening.as_deref(), Some(Opening::Asking(..)))
    }

    fn verify(&self, dialect: &Dialect) -> Option<(u64, u64)> {
        match &self.cutter {
            Cutter::Feed(reader) => reader.verify(dialect.feed.as_ref()?),
            _ => None,
        }
    }
}

/// Handles messages after they have been separated from their frames.
struct Receiver<'a> {
    dialect: &'a Dialect,
    messages: &'a mut MessageReader,
    session: &'a mut Session,
    out: &'a mut Out,
}

impl Receiver<'_> {
    /// Consumes the next bytes of a message.
    fn take(&mut self, bytes: &[u8], ends: bool) -> Result<(), Fault> {
        let other = self.messages.take(&self.dialect.inbound, bytes, ends, &mut self.out.happened)?;
        other.map_or(Ok(()), |message| self.react(&message))
    }

    /// Inflates a whole compressed message.
    fn inflate(&mut self, compressed: &[u8], cutter: &mut Cutter) -> Result<(), Fault> {
        let mut inflated = self.out.inflated.take().unwrap_or_default();
        let taken = match inflated.open(compressed) {
            Ok(plain) => cutter.take(plain, true, self),
            Err(error) => Err(error.into()),
        };
        self.out.inflated = Some(inflated);
        taken
    }

    /// Handles a message that doesn't belong to the load.
    fn react(&mut self, message: &[u8]) -> Result<(), Fault> {
        let reaction = self.session.react_to_message(message)?;
        self.out.happened.extend(reaction.opened.then_some(ClientEvent::Opened));
        if reaction.changes > 0 {
            let payload_bytes = reaction.changes;
            self.out.happened.push(ClientEvent::Payload { head: None, payload_bytes, clean: true });
        }
        if let Some(text) = reaction.answer {
            write_message(self.dialect, text.as_bytes(), &mut self.out.main);
        }
        Ok(())
    }

    fn control(&mut self, opcode: u8, payload: &[u8]) -> Result<(), Fault> {
        match opcode {
            8 => return Err(Fault::Ended("a close frame".to_owned())),
            9 => encode(&mut self.out.main, Opcode::Pong, payload, false, MASK),
            _ => {}
        }
        Ok(())
    }
}

fn write_message(dialect: &Dialect, text: &[u8], out: &mut Vec<u8>) {
    match dialect.protocol {
        Protocol::SocketIo06 => {
            let mut message = Vec::with_capacity(text.len() + 16);
            socketio06::write_message(&mut message, text);
            hixie::write_text(out, &message);
        }
        Protocol::SocketIo07 => hixie::write_text(out, text),
        protocol => {
            let opcode = if protocol.is_binary() { Opcode::Binary } else { Opcode::Text };
            encode(out, opcode, text, false, MASK);
        }
    }
}
