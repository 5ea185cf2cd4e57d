//! Frames, which nodes send each other: one per message on a channel of the engine.
//!
//! A frame is `version, kind, sender, body, tag`. The tag is there if the cluster has a secret: the first 16 bytes of
//! the HMAC-SHA256 over channel and frame. Without the secret, a writer to the engine can neither forge frames nor
//! repeat a frame on another channel. Frames from the engine are checked like input of clients.
//!
//! With a secret, a node's record is `time, record, tag`. The tag covers the node's id. Without the secret, a writer
//! can neither announce a node that doesn't exist nor change a node's address. The time limits how long the record of a
//! dead node can be repeated.

mod codec;
mod entry;
mod presence;
mod revocations;
mod socket;
mod survey;

pub use entry::{LogEntry, Version};
pub use presence::PresenceFrame;
pub use revocations::{REVOCATIONS_MAX, RevocationsFrame};
pub use socket::{SocketAnswer, SocketFrame};
pub use survey::{Answered, Question, Task};

use crate::NodeId;
use crate::engine::{Channel, PAYLOAD_BYTES_MAX};
use bytes::Bytes;
use codec::{Reader, Writer};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
pub use stentor_cluster_settings::CONTENT_BYTES_MAX;
use stentor_hub::{Data, Room, Rooms, Topic};
use stentor_ports::Broadcast;

/// Grows when the encoding or the meaning of a frame changes. Nodes of different versions refuse each other's frames. `tests/frames.txt` has
/// the frames of this version.
const VERSION: u8 = 7;
/// Place of the sender's id in a frame.
const SENDER: Range<usize> = 2..10;
const TAG_BYTES: usize = 16;
/// Maximum difference between the time of a node's record and the reader's clock, in both directions.
pub const RECORD_AGE_MAX: Duration = Duration::from_secs(60);

/// The reason why a frame was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame ends too early.
    #[error("the frame is too short")]
    TooShort,
    /// The frame breaks a rule of its format.
    #[error("the frame is malformed")]
    Malformed,
    /// The frame has another version of the format.
    #[error("the frame is of another version of the format; all nodes have to run compatible versions")]
    Version,
    /// The frame's tag is wrong: the sender has another secret, or none.
    #[error("the frame isn't authentic; all nodes need the same `cluster.secret`")]
    NotAuthentic,
    /// A name in the frame is too long.
    #[error("a name in the frame is too long")]
    Name,
    /// The frame contains a document that is larger than this node's `document_bytes_max`.
    #[error("the document is larger than `document_bytes_max` of this node's feeds")]
    TooLarge,
}

impl FrameError {
    /// The error's label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::TooShort | Self::Malformed | Self::Name => "malformed",
            Self::Version => "version",
            Self::NotAuthentic => "not_authentic",
            Self::TooLarge => "too_large",
        }
    }
}

/// A frame of one node to others.
#[derive(Debug)]
pub enum Frame {
    /// A message to rooms, for the members on the receiving node.
    Message(Broadcast),
    /// A question to one node or all.
    Question {
        /// The id that the answer repeats. Unique per sender.
        id: u64,
        /// The question.
        question: Question,
    },
    /// The answer to a question of the receiving node.
    Answer {
        /// The id of the question.
        id: u64,
        /// `Err` if the node couldn't answer, because it was short of memory, or stopped.
        answer: Result<Answered, AnswerError>,
    },
    /// An entry of a feed's log, or a state that no log has.
    Feed(LogEntry),
    /// A message about a Socket.IO socket that moves.
    Socket(SocketFrame),
    /// The lease of a feed with this term has been released: no node fetches the feed.
    Released(u64),
    /// Presence: the members of a room on a node.
    Presence(PresenceFrame),
    /// A message about the list of revocations.
    Revocations(RevocationsFrame),
    /// Acknowledgements of the sender's clients, for a call of the receiving node.
    Acknowledged {
        /// The id of the call.
        call: u64,
        /// The arguments of each acknowledgement: JSON texts joined by commas.
        texts: Vec<Bytes>,
    },
    /// The sender is alive: it fetches feeds, or has just joined.
    Alive,
    /// A message of the sender's application link, for those of other nodes.
    Application {
        /// The name of the application.
        app: Arc<str>,
        /// The content, which only application links read.
        message: Bytes,
    },
}

/// The error of a node that can't answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerError;

/// Writes and reads the frames of one node.
#[derive(Clone)]
pub struct Frames {
    node: NodeId,
    secret: Option<Hmac<Sha256>>,
    document_bytes_max: usize,
}

impl Frames {
    /// Frames of `node`. All nodes have the same secret, of any length, or none. Documents of more than
    /// `document_bytes_max` are refused.
    pub fn new(node: NodeId, secret: Option<&[u8]>, document_bytes_max: usize) -> Self {
        // HMAC takes keys of any length.
        let secret = secret.and_then(|secret| Hmac::new_from_slice(secret).ok());
        Self { node, secret, document_bytes_max }
    }

    /// The node that writes the frames.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// The seed of the ids of a node's sessions, which all nodes derive from the secret and the node's id. Without a secret,
    /// those who know the node's id can derive it as well.
    pub fn id_seed(&self, node: NodeId) -> [u64; 2] {
        let Some(mut mac) = self.secret.clone().or_else(|| Hmac::new_from_slice(&[]).ok()) else {
            return [node.0, 0];
        };
        mac.update(b"session ids");
        mac.update(&node.0.to_be_bytes());
        let digest = mac.finalize().into_bytes();
        let word = |at: usize| digest[at..at + 8].iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        [word(0), word(8)]
    }

    /// Encodes a frame.
    pub fn encode(&self, channel: &Channel, frame: &Frame) -> Bytes {
        let mut w = Writer::default();
        w.u8(VERSION);
        w.u8(match frame {
            Frame::Message(_) => 0,
            Frame::Question { .. } => 1,
            Frame::Answer { .. } => 2,
            Frame::Feed(LogEntry { version: Some(_), .. }) => 3,
            Frame::Feed(LogEntry { version: None, .. }) => 4,
            Frame::Socket(_) => 5,
            Frame::Released(_) => 6,
            Frame::Alive => 7,
            Frame::Presence(_) => 8,
            Frame::Revocations(_) => 9,
            Frame::Application { .. } => 10,
            Frame::Acknowledged { .. } => 11,
        });
        w.u64(self.node.0);
        match frame {
            Frame::Message(message) => w.message(message),
            Frame::Question { id, question } => {
                w.u64(*id);
                w.question(question);
            }
            Frame::Answer { id, answer } => {
                w.u64(*id);
                w.option(answer.as_ref().ok(), Writer::answer);
            }
            Frame::Feed(entry) => w.entry(entry),
            Frame::Socket(frame) => w.socket_frame(frame),
            Frame::Released(term) => w.u64(*term),
            Frame::Presence(frame) => w.presence(frame),
            Frame::Revocations(frame) => w.revocations(frame),
            Frame::Acknowledged { call, texts } => {
                w.u64(*call);
                w.list(texts.iter(), |w, text| w.bytes(text));
            }
            Frame::Alive => {}
            Frame::Application { app, message } => {
                w.text(app);
                w.bytes(message);
            }
        }
        if let Some(tag) = self.mac(channel, &w.0) {
            w.0.extend_from_slice(&tag.finalize().into_bytes()[..TAG_BYTES]);
        }
        w.0.freeze()
    }

    /// Decodes a frame. Returns its sender as well.
    ///
    /// # Errors
    /// The bytes aren't a frame, or aren't authentic.
    pub fn decode(&self, channel: &Channel, bytes: &Bytes) -> Result<(NodeId, Frame), FrameError> {
        self.parse(self.authenticated(channel, bytes)?)
    }

    /// Decodes a frame of another node. `None` for this node's own ones, which engines return to it.
    ///
    /// # Errors
    /// The bytes aren't a frame, or aren't authentic.
    pub(crate) fn decode_foreign(
        &self,
        channel: &Channel,
        bytes: &Bytes,
    ) -> Result<Option<(NodeId, Frame)>, FrameError> {
        let frame = self.authenticated(channel, bytes)?;
        let is_own = frame.get(SENDER) == Some(&self.node.0.to_le_bytes()[..]);
        if is_own { Ok(None) } else { self.parse(frame).map(Some) }
    }

    /// Returns a frame without its tag.
    fn authenticated(&self, channel: &Channel, bytes: &Bytes) -> Result<Bytes, FrameError> {
        let mut bytes = bytes.clone();
        if bytes.first() != Some(&VERSION) {
            return Err(if bytes.is_empty() { FrameError::TooShort } else { FrameError::Version });
        }
        if self.secret.is_some() {
            let frame_len = bytes.len().checked_sub(TAG_BYTES).ok_or(FrameError::NotAuthentic)?;
            let tag = bytes.split_off(frame_len);
            let is_authentic =
                self.mac(channel, &bytes).is_some_and(|mac| mac.verify_truncated_left(&tag).is_ok());
            if !is_authentic {
                return Err(FrameError::NotAuthentic);
            }
        }
        Ok(bytes)
    }

    fn parse(&self, frame: Bytes) -> Result<(NodeId, Frame), FrameError> {
        let mut r = Reader::new(frame);
        r.u8()?;
        let (kind, sender) = (r.u8()?, NodeId(r.u64()?));
        let frame = match kind {
            0 => Frame::Message(r.message()?),
            1 => Frame::Question { id: r.u64()?, question: r.question()? },
            2 => Frame::Answer { id: r.u64()?, answer: r.option(Reader::answer)?.ok_or(AnswerError) },
            kind @ (3 | 4) => Frame::Feed(r.entry(kind == 3, self.document_bytes_max)?),
            5 => Frame::Socket(r.socket_frame()?),
            6 => Frame::Released(r.u64()?),
            7 => Frame::Alive,
            8 => Frame::Presence(r.presence()?),
            9 => Frame::Revocations(r.revocations()?),
            10 => Frame::Application { app: r.text()?, message: r.bytes()? },
            11 => Frame::Acknowledged { call: r.u64()?, texts: r.list(Reader::utf8)? },
            _ => return Err(FrameError::Malformed),
        };
        r.end()?;
        Ok((sender, frame))
    }

    /// Returns this node's record in its stored form. `at` is the time since 1970.
    pub fn seal_record(&self, at: Duration, record: &[u8]) -> Bytes {
        let Some(mut mac) = self.record_mac(self.node) else { return Bytes::copy_from_slice(record) };
        let mut w = Writer::default();
        w.u64(at.as_secs());
        w.0.extend_from_slice(record);
        mac.update(&w.0);
        w.0.extend_from_slice(&mac.finalize().into_bytes()[..TAG_BYTES]);
        w.0.freeze()
    }

    /// Returns the content of a node's stored record. `now` is the time since 1970. `None` if it isn't proven that the
    /// node wrote the record less than [`RECORD_AGE_MAX`] ago.
    pub fn open_record(&self, node: NodeId, now: Duration, mut record: Bytes) -> Option<Bytes> {
        let Some(mut mac) = self.record_mac(node) else { return Some(record) };
        let tag = record.split_off(record.len().checked_sub(TAG_BYTES)?);
        mac.update(&record);
        mac.verify_truncated_left(&tag).ok()?;
        let mut r = Reader::new(record);
        let at = Duration::from_secs(r.u64().ok()?);
        (at.abs_diff(now) < RECORD_AGE_MAX).then_some(r.rest)
    }

    fn record_mac(&self, node: NodeId) -> Option<Hmac<Sha256>> {
        let mut mac = self.secret.clone()?;
        let mut name = Writer::default();
        name.u8(4);
        name.u64(node.0);
        mac.update(&name.0);
        Some(mac)
    }

    fn mac(&self, channel: &Channel, frame: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = self.secret.clone()?;
        let mut name = Writer::default();
        match channel {
            Channel::Topic(Topic::Feed(key)) => {
                name.u8(0);
                name.text(key.as_str());
            }
            Channel::Topic(Topic::Room(room) | Topic::Presence(room)) => {
                name.u8(1);
                name.text(room.namespace());
                name.text(room.name());
            }
            Channel::Node(node) => {
                name.u8(2);
                name.u64(node.0);
            }
            Channel::Nodes => name.u8(3),
            // 4 is for records of nodes.
            Channel::Application(app) => {
                name.u8(5);
                name.text(app);
            }
        }
        mac.update(&name.0);
        mac.update(frame);
        Some(mac)
    }
}

// Names and the signature fit into the rest of a frame.
const _: () = assert!(CONTENT_BYTES_MAX + (1 << 20) <= PAYLOAD_BYTES_MAX);

impl Writer {
    fn message(&mut self, message: &Broadcast) {
        let Broadcast { id, rooms, except_rooms, except_sessions, event, data, volatile } = message;
        self.u64(*id);
        self.text(rooms.first().namespace());
        self.list(rooms.iter(), |w, room| w.text(room.name()));
        self.rooms(except_rooms);
        self.ids(except_sessions);
        self.content(event.as_deref(), data, *volatile);
    }

    fn content(&mut self, event: Option<&str>, data: &Data, volatile: bool) {
        self.option(event, Self::text);
        self.u8(u8::from(volatile));
        match data {
            Data::Json(bytes) => {
                self.u8(0);
                self.bytes(bytes);
            }
            Data::Text(bytes) => {
                self.u8(1);
                self.bytes(bytes);
            }
            Data::Binary(bytes) => {
                self.u8(2);
                self.bytes(bytes);
            }
            Data::Arguments { json, attachments } => {
                self.u8(3);
                self.bytes(json);
                self.list(attachments.iter(), |w, attachment| w.bytes(attachment));
            }
        }
    }
}

/// The content of a message.
struct Content {
    event: Option<Arc<str>>,
    data: Data,
    volatile: bool,
}

/// A room of the namespace whose room of all members is `everybody`. The empty name stands for `everybody`.
fn room(everybody: &Room, name: &str) -> Result<Room, FrameError> {
    if name.is_empty() {
        Ok(everybody.clone())
    } else {
        everybody.sibling(name).map_err(|_| FrameError::Name)
    }
}

impl Reader {
    fn message(&mut self) -> Result<Broadcast, FrameError> {
        let id = self.u64()?;
        let everybody = Room::all_members(&self.text()?).map_err(|_| FrameError::Name)?;
        let rooms = self.rooms(&everybody)?;
        let rooms = Rooms::try_from(rooms).map_err(|_| FrameError::Malformed)?;
        let (except_rooms, except_sessions) = (self.rooms(&everybody)?, self.ids()?);
        let Content { event, data, volatile } = self.content()?;
        Ok(Broadcast { id, rooms, except_rooms, except_sessions, event, data, volatile })
    }

    fn utf8(&mut self) -> Result<Bytes, FrameError> {
        let bytes = self.content_bytes()?;
        match std::str::from_utf8(&bytes) {
            Ok(_) => Ok(bytes),
            Err(_) => Err(FrameError::Malformed),
        }
    }

    fn content(&mut self) -> Result<Content, FrameError> {
        let event = self.option(Self::text)?;
        let volatile = self.flag()?;
        let data = match self.u8()? {
            0 => Data::Json(self.utf8()?),
            1 => Data::Text(self.utf8()?),
            2 => Data::Binary(self.content_bytes()?),
            3 => Data::Arguments { json: self.utf8()?, attachments: self.list(Self::content_bytes)?.into() },
            _ => return Err(FrameError::Malformed),
        };
        Ok(Content { event, data, volatile })
    }
}
