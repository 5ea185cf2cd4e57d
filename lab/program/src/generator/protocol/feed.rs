//! Reads one feed over WebSocket whose document is known ([`crate::document`]): whole documents, or `stentor.v1` with
//! snapshots and deltas.
//!
//! | `protocol` | path | messages |
//! |---|---|---|
//! | `websocket` | `/ws/KEY` | each version, unchanged |
//! | `stentor-v1` | `/ws?feed=KEY` | `welcome`, a snapshot, then deltas; the client is open after the snapshot |
//! | `stentor-v1` | `/ws?feed=KEY/{}` | the same, with a feed for each client |
//! | `stentor-v1` | `/ws` | `welcome`, which opens it; the client subscribes when the load sends |
//!
//! Documents are compared byte by byte with the expected ones while they arrive. Messages of `stentor.v1` are the same for all
//! clients with the same version, so each is parsed once, and the copies are compared with it. A few clients store their messages
//! and apply them after the measurement ([`FeedReader::verify`]), each separately, by the crate `json-patch`, which is independent
//! of the server.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use json_patch::Patch;
use serde::Deserialize;
use serde_json::Value;

use super::gathered::Gathered;
use super::{ClientEvent, Fault, Protocol};
use crate::document::{BODY_AT, Document, HEAD_AT, Shape};
use crate::payload::{self, Head};

/// Number of clients per generator that apply their messages.
pub(super) const VERIFYING: usize = 40;
/// The feed's key.
const KEY: &str = "bench";
/// The message that subscribes to the feed.
pub(super) const SUBSCRIBE: &[u8] = br#"{"type":"subscribe","feed":"bench"}"#;
/// Maximum number of messages kept. Messages of clients that are further behind are parsed again.
const KEPT: usize = 32;
/// Maximum number of versions kept for comparison: for an overload, those of some seconds.
const VERSIONS_KEPT: usize = 256;
/// Maximum number of versions by which a message may be ahead of the newest known one. A higher number counts as
/// corrupt.
const AHEAD_MAX: u64 = 1000;

/// State of the feed that all clients of a generator share.
#[derive(Debug)]
pub(super) struct Feed {
    shape: Shape,
    bytes: usize,
    newest: RefCell<Document>,
    /// The newest versions, the oldest first.
    versions: RefCell<VecDeque<(u64, Rc<[u8]>)>>,
    seen: RefCell<VecDeque<Rc<Seen>>>,
    verifying: Cell<usize>,
}

/// A received message, parsed.
#[derive(Debug)]
pub(super) struct Seen {
    text: Vec<u8>,
    message: Message,
    head: Option<Head>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Message {
    Welcome {},
    Snapshot { feed: String, epoch: u64, offset: u64, data: Value },
    Delta { feed: String, epoch: u64, base: u64, offset: u64, patch: Patch },
    Ok {},
    State { state: String, reason: String },
    Error { message: String },
}

impl Feed {
    pub(super) fn new(shape: Shape) -> Self {
        let document = Document::new(shape);
        Self {
            shape,
            bytes: document.text().len(),
            versions: RefCell::new(VecDeque::from([(0, document.text().into())])),
            newest: RefCell::new(document),
            seen: RefCell::default(),
            verifying: Cell::new(0),
        }
    }

    /// Version `number` of the document (0: before its first change). `None` if the version is no longer kept.
    fn version(&self, number: u64) -> Option<Rc<[u8]>> {
        let mut newest = self.newest.borrow_mut();
        let mut versions = self.versions.borrow_mut();
        if number > newest.version() + AHEAD_MAX {
            return None;
        }
        while newest.version() < number {
            newest.advance();
            versions.push_back((newest.version(), newest.text().into()));
            if versions.len() > VERSIONS_KEPT {
                versions.pop_front();
            }
        }
        versions.iter().rev().find(|(version, _)| *version == number).map(|(_, text)| Rc::clone(text))
    }

    /// Returns a message of `stentor.v1`, parsed before or now.
    fn message(&self, text: &[u8]) -> Result<Rc<Seen>, Fault> {
        let mut seen = self.seen.borrow_mut();
        if let Some(known) = seen.iter().rev().find(|known| known.text == text) {
            return Ok(Rc::clone(known));
        }
        let Ok(message) = serde_json::from_slice::<Message>(text) else {
            let told = String::from_utf8_lossy(&text[..text.len().min(100)]).into_owned();
            return Err(Fault::Ended(format!("what isn't stentor.v1: {told}")));
        };
        let head = match &message {
            Message::Snapshot { data, .. } => {
                data["head"].as_str().and_then(|head| Head::read(head.as_bytes()))
            }
            Message::Delta { patch, .. } => patch.iter().rev().find_map(|operation| match operation {
                json_patch::PatchOperation::Replace(replace) if replace.path.as_str() == "/head" => {
                    Head::read(replace.value.as_str()?.as_bytes())
                }
                _ => None,
            }),
            _ => None,
        };
        let parsed = Rc::new(Seen { text: text.to_vec(), message, head });
        // The welcome message of each client has a different session.
        if !matches!(parsed.message, Message::Welcome {}) {
            if seen.len() == KEPT {
                seen.pop_front();
            }
            seen.push_back(Rc::clone(&parsed));
        }
        Ok(parsed)
    }
}

/// The received part of a message.
#[derive(Debug)]
enum Reading {
    /// Whole documents: the first bytes, then the expected version, the number of received bytes, and whether they
    /// agree.
    Document {
        start: Vec<u8>,
        version: Option<Rc<[u8]>>,
        len: usize,
        same: bool,
    },
    Message(Gathered),
}

/// The reader of one client of a feed; see the module's documentation.
#[derive(Debug)]
pub(super) struct FeedReader {
    reading: Reading,
    opened: bool,
    /// `true` if the client's path subscribes it.
    is_subscribed: bool,
    /// The name of its feed, once received.
    name: Option<String>,
    /// Epoch and offset of the client's version.
    position: Option<(u64, u64)>,
    /// All messages, if the client is verified.
    log: Option<Vec<Rc<Seen>>>,
}

impl FeedReader {
    pub(super) fn new(protocol: Protocol, feed: &Feed, path: &str) -> Self {
        let reading = match protocol {
            Protocol::StentorV1 => Reading::Message(Gathered::default()),
            _ => Reading::Document { start: Vec::new(), version: None, len: 0, same: true },
        };
        let verifies = protocol == Protocol::StentorV1 && feed.verifying.get() < VERIFYING;
        feed.verifying.set(feed.verifying.get() + usize::from(verifies));
        let is_subscribed = path.contains("feed=");
        Self {
            reading,
            opened: false,
            is_subscribed,
            name: None,
            position: None,
            log: verifies.then(Vec::new),
        }
    }

    /// Consumes the next bytes of a message, which are the last ones if `ends`.
    pub(super) fn take(
        &mut self,
        feed: &Feed,
        bytes: &[u8],
        ends: bool,
        happened: &mut Vec<ClientEvent>,
    ) -> Result<(), Fault> {
        match &mut self.reading {
            Reading::Document { start, version, len, same } => {
                let mut rest = bytes;
                if start.len() < BODY_AT {
                    let (begin, behind) = bytes.split_at(bytes.len().min(BODY_AT - start.len()));
                    start.extend_from_slice(begin);
                    *len += begin.len();
                    rest = behind;
                    if start.len() == BODY_AT {
                        // Publication 0 is version 1; version 0 is the initial document.
                        let head = Head::read(&start[HEAD_AT..]);
                        *version = head.and_then(|head| feed.version(head.sequence.checked_add(1)?));
                    }
                }
                if !rest.is_empty() {
                    let expected = version.as_ref().and_then(|version| version.get(*len..*len + rest.len()));
                    *same &= expected == Some(rest);
                    *len += rest.len();
                }
                if ends {
                    let head = start.get(HEAD_AT..).and_then(Head::read);
                    let framed = version
                        .as_ref()
                        .is_some_and(|version| start.get(..HEAD_AT) == version.get(..HEAD_AT));
                    happened.push(ClientEvent::Payload {
                        head,
                        payload_bytes: *len as u64,
                        clean: *same && framed && payload::is_intact(&start[HEAD_AT..]),
                    });
                    start.clear();
                    (*version, *len, *same) = (None, 0, true);
                    self.open(happened);
                }
                Ok(())
            }
            // The buffer is freed afterwards, because the one snapshot is much longer than later messages.
            Reading::Message(gathered) => match gathered.take(bytes, ends)? {
                Some(message) => self.react(feed, &message, happened),
                None => Ok(()),
            },
        }
    }

    fn react(&mut self, feed: &Feed, text: &[u8], happened: &mut Vec<ClientEvent>) -> Result<(), Fault> {
        let seen = feed.message(text)?;
        match &seen.message {
            Message::Welcome {} if !self.is_subscribed => {
                self.open(happened);
                return Ok(());
            }
            Message::State { state, reason } if state != "live" => {
                return Err(Fault::Ended(format!("the state {state}: {reason}")));
            }
            Message::Welcome {} | Message::Ok {} | Message::State { .. } => return Ok(()),
            Message::Error { message } => return Err(Fault::Ended(message.clone())),
            Message::Snapshot { feed, .. } | Message::Delta { feed, .. }
                if !feed.starts_with(KEY) || self.name.get_or_insert_with(|| feed.clone()) != feed =>
            {
                return Err(Fault::Ended(format!("the feed {feed}")));
            }
            Message::Snapshot { epoch, offset, .. } => self.position = Some((*epoch, *offset)),
            Message::Delta { epoch, base, offset, .. } => {
                if self.position != Some((*epoch, *base)) {
                    return Err(Fault::Answer("a delta for a version that this client doesn't have"));
                }
                self.position = Some((*epoch, *offset));
            }
        }
        if let Some(log) = &mut self.log {
            log.push(Rc::clone(&seen));
        }
        // The load counts the length of the resulting document. Its content is verified at the end.
        happened.push(ClientEvent::Payload {
            head: seen.head,
            payload_bytes: feed.bytes as u64,
            clean: true,
        });
        self.open(happened);
        Ok(())
    }

    fn open(&mut self, happened: &mut Vec<ClientEvent>) {
        if !std::mem::replace(&mut self.opened, true) {
            happened.push(ClientEvent::Opened);
        }
    }

    /// The number of wrong documents and of all documents of this client. `None` if it doesn't verify.
    pub(super) fn verify(&self, feed: &Feed) -> Option<(u64, u64)> {
        let log = self.log.as_ref()?;
        let mut expected = Document::new(feed.shape);
        let mut has = Value::Null;
        let (mut wrong, mut verified) = (0, 0);
        for (nth, seen) in log.iter().enumerate() {
            let applied = match &seen.message {
                Message::Snapshot { data, .. } => {
                    has = data.clone();
                    true
                }
                Message::Delta { patch, .. } => json_patch::patch(&mut has, patch).is_ok(),
                _ => continue,
            };
            let head = has["head"].as_str().and_then(|head| Head::read(head.as_bytes()));
            let Some(head) = head.filter(|head| applied && head.sequence < u64::MAX / 2) else {
                wrong += 1;
                continue;
            };
            // The first document is version 0.
            let version = if nth == 0 && head.intended_ns == 0 { 0 } else { head.sequence + 1 };
            if version > expected.version() + AHEAD_MAX {
                wrong += 1;
                continue;
            }
            while expected.version() < version {
                expected.advance();
            }
            expected.set_head(head);
            let same = serde_json::from_slice::<Value>(expected.text()).is_ok_and(|value| value == has);
            wrong += u64::from(!same || expected.version() != version);
            verified += 1;
        }
        Some((wrong, verified))
    }
}
