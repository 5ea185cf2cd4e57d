//! Shards whose messages the tests pass on by hand, and short helpers for inputs.

use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::{
    Body, Data, Document, Emit, Encoder, FeedState, FormatId, HistoryLimits, Hub, Key, LiveBytes, Options,
    Patch, Position, Publication, Room, SessionId, SubscribeOptions, Topic,
};

/// Encodes frames as texts like `hello`, `doc one live` or `stale why`. Format 1 needs 3 bytes more per
/// frame, format 2 doesn't support changes of state and deltas, format 3 doesn't support an `unspeakable`
/// document, format 9 claims to be larger than 4 GiB.
pub(crate) struct Texts;

impl Encoder for Texts {
    type Frame = (Arc<str>, usize);

    fn encode(&self, format: FormatId, publication: &Publication<Self::Frame>) -> Option<Self::Frame> {
        let text = match publication.body() {
            Body::Message { data: Data::Text(b) | Data::Json(b) | Data::Binary(b), .. } => text(b),
            Body::Message { data: Data::Arguments { json, attachments }, .. } => {
                format!("{} and {} attachments", text(json), attachments.len())
            }
            Body::Snapshot { document, state, .. } => {
                format!("doc {} {}", text(&document.body), state.as_str())
            }
            Body::Delta { base, position, patch, .. } => {
                format!("{} after {} versions", text(patch), position.offset - base)
            }
            Body::State { state, reason, .. } => format!("{} {reason}", state.as_str()),
            Body::Presence { notice, .. } => text(notice),
        };
        let bytes = match (format.0, publication.body()) {
            (1, _) => text.len() + 3,
            (3, Body::Snapshot { .. } | Body::Delta { .. }) if text.contains("unspeakable") => return None,
            (2, Body::State { .. } | Body::Delta { .. }) => return None,
            (9, _) => 5 << 30,
            _ => text.len(),
        };
        Some((text.into(), bytes))
    }

    fn len(frame: &Self::Frame) -> usize {
        frame.1
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Shards whose messages the tests pass on by hand.
pub(crate) struct Node {
    pub(crate) now: Instant,
    pub(crate) hubs: Vec<Hub<Texts>>,
    pub(crate) live: LiveBytes,
}

impl Node {
    pub(crate) fn new(cores: usize) -> Self {
        Self::with(cores, |_| {})
    }

    pub(crate) fn with(cores: usize, change: impl Fn(&mut Options)) -> Self {
        let live = LiveBytes::default();
        let limits =
            HistoryLimits { publications_max: 100, bytes_max: 10_000, age_max: Duration::from_secs(60) };
        let options = |core| {
            let mut options = Options {
                core,
                cores,
                live: live.clone(),
                room_history: vec![("kept".to_owned(), limits)],
                ..Options::default()
            };
            change(&mut options);
            options
        };
        let hubs = (0..cores).map(|core| Hub::new(options(core), Texts)).collect();
        Self { now: Instant::now(), hubs, live }
    }

    pub(crate) fn open(&mut self, core: usize) -> SessionId {
        self.hubs[core].handle_open(FormatId(0), 0)
    }

    /// Passes on one message from one core to another.
    pub(crate) fn pass(&mut self, from: usize, to: usize) {
        let dispatch = self.hubs[from].outgoing(to).pop_front().expect("something is on its way");
        self.hubs[to].handle_dispatch(self.now, from, dispatch);
    }

    /// Passes on all messages until none is left.
    pub(crate) fn run_until_idle(&mut self) {
        let cores = self.hubs.len();
        let waiting = |node: &mut Self| {
            (0..cores * cores)
                .map(|n| (n / cores, n % cores))
                .find(|(a, b)| !node.hubs[*a].outgoing(*b).is_empty())
        };
        while let Some((from, to)) = waiting(self) {
            self.pass(from, to);
        }
    }

    /// Takes all deliveries of a session.
    pub(crate) fn take(&mut self, core: usize, session: SessionId) -> Vec<String> {
        let mut got = Vec::new();
        self.hubs[core].take(session, usize::MAX, usize::MAX, |_, frame| got.push(frame.0.to_string()));
        self.hubs[core].handle_sent(session);
        assert!(self.hubs[core].counters().balanced());
        got
    }

    pub(crate) fn document(&mut self, key: &Key, body: &str, state: FeedState) {
        let home = self.hubs[0].core_of(&key.clone().into());
        let body = Bytes::from(body.to_owned());
        let document = Document { body, json: false, content_type: "text/plain".into() };
        self.hubs[home].handle_document(key, state, document, None);
    }

    /// Handles a JSON document, with the patch that leads to it from `base`.
    pub(crate) fn patched(&mut self, key: &Key, base: &str, body: &str, operations: &str) {
        let home = self.hubs[0].core_of(&key.clone().into());
        let body = Bytes::from(body.to_owned());
        let document = Document { body, json: true, content_type: "application/json".into() };
        let (base, operations) = (Bytes::from(base.to_owned()), Bytes::from(operations.to_owned()));
        let patch = Patch { base, operations };
        self.hubs[home].handle_document(key, FeedState::Live, document, Some(patch));
    }

    pub(crate) fn state(&mut self, key: &Key, state: FeedState, reason: &str) {
        let home = self.hubs[0].core_of(&key.clone().into());
        self.hubs[home].handle_state(key, state, reason.into());
    }

    pub(crate) fn publish(&mut self, core: usize, room: &Room, text: &str) {
        let data = Data::Text(Bytes::from(text.to_owned()));
        self.hubs[core].handle_publish(self.now, room, None, data, Emit::default());
    }

    pub(crate) fn publish_volatile(&mut self, core: usize, room: &Room, text: &str) {
        let data = Data::Text(Bytes::from(text.to_owned()));
        self.hubs[core].handle_publish(self.now, room, None, data, Emit::volatile());
    }

    pub(crate) fn subscribe(
        &mut self,
        core: usize,
        session: SessionId,
        topic: &Topic,
        options: impl Into<SubscribeOptions>,
    ) {
        assert_eq!(self.hubs[core].handle_subscribe(session, topic, options, None), Ok(()));
    }

    pub(crate) fn position(&mut self, core: usize, session: SessionId) -> Option<Position> {
        let mut newest = None;
        self.hubs[core].take(session, usize::MAX, usize::MAX, |publication, _| match publication.body() {
            Body::Message { position, .. } => newest = *position,
            Body::Snapshot { position, .. } | Body::Delta { position, .. } => newest = Some(*position),
            Body::State { .. } | Body::Presence { .. } => {}
        });
        self.hubs[core].handle_sent(session);
        newest
    }
}

pub(crate) fn room(name: &str) -> Room {
    Room::plain(name).unwrap()
}

pub(crate) fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

/// Finds a topic of this kind whose home is core 0 of two.
pub(crate) fn at_core_0(make: impl Fn(usize) -> Topic) -> Topic {
    let node = Node::new(2);
    (0..).map(make).find(|topic| node.hubs[0].home_of(topic) == Some(0)).unwrap()
}

pub(crate) fn feed_at_0() -> (Key, Topic) {
    let topic = at_core_0(|n| key(&format!("k/{n}")).into());
    let Topic::Feed(key) = topic.clone() else { unreachable!() };
    (key, topic)
}

pub(crate) fn kept_at_0() -> (Room, Topic) {
    let topic = at_core_0(|n| room(&format!("kept/{n}")).into());
    let Topic::Room(room) = topic.clone() else { unreachable!() };
    (room, topic)
}
