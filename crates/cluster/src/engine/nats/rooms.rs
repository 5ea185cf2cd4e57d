//! Rooms with history: a subject per room.
//!
//! JetStream numbers the messages of a stream, not those of a subject, so the node that appends assigns the offset: one
//! more than that of the newest message. It draws an epoch for the first message of a room, and when the newest message
//! is older than the server's restart, because later ones may be lost. The newest message contains the limits of the
//! history, which readers apply. The stream itself keeps more.
//!
//! The stream's own sequence numbers also grow, but not by one: rooms, the hub and each client would need another rule
//! for gaps. The cost of consecutive offsets is that appends to one room take turns.

use super::Shared;
use super::entries::{Entry, add_recent, all};
use super::jetstream::{Outcome, Session, Stored, Stream, Which, unexpected};
use super::topics::Topic;
use crate::clock::since_1970;
use crate::engine::{EngineError, History, Reply};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::{Epoch, HistoryLimits, Position};

/// Maximum number of messages in a read. A read takes a round trip for each 16 of them.
const MESSAGES_MAX: usize = 4_096;

/// The header of a message.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Meta {
    /// The server's generation when the message was stored.
    g: String,
    /// The position of the newest message of the room, which is this one unless it is a part.
    e: u64,
    o: u64,
    /// Sequences of earlier messages, newest first.
    p: Vec<u64>,
    /// Sequences of the message's other parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    n: Vec<u64>,
    /// The limits of the history: messages, bytes, age (ms).
    l: (usize, usize, u64),
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    part: bool,
}

impl Meta {
    fn head(&self) -> Option<Position> {
        (self.o > 0).then_some(Position { epoch: Epoch(self.e), offset: self.o })
    }

    fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The state of a room after its newest message.
#[derive(Clone, Debug)]
struct Known {
    /// The connection on which the message was read.
    connection: u64,
    sequence: u64,
    epoch: u64,
    offset: u64,
    recent: Vec<u64>,
}

impl Known {
    fn new(session: &Session, newest: Option<&Stored>) -> Result<Self, EngineError> {
        let connection = session.connection;
        let Some(newest) = newest else {
            return Ok(Self { connection, sequence: 0, epoch: 0, offset: 0, recent: Vec::new() });
        };
        let sequence = newest.sequence;
        let meta: Meta = newest.meta().ok_or_else(unexpected)?;
        if meta.g != session.generation {
            return Ok(Self { connection, sequence, epoch: 0, offset: 0, recent: Vec::new() });
        }
        let mut recent = meta.p;
        if !meta.part {
            add_recent(&mut recent, sequence);
        }
        Ok(Self { connection, sequence, epoch: meta.e, offset: meta.o, recent })
    }
}

/// This node's knowledge of a room.
#[derive(Default)]
pub(super) struct RoomState(Option<Known>);

impl Topic for RoomState {
    fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |known| size_of_val(&known.recent[..]))
    }
}

impl Shared {
    pub(super) async fn append(
        self: &Arc<Self>,
        session: &Arc<Session>,
        state: &mut RoomState,
        subject: &str,
        payload: &Bytes,
        idempotency_key: Option<&str>,
        limits: &HistoryLimits,
    ) -> Result<Position, EngineError> {
        self.raise_limits(session, limits).await?;
        let key = idempotency_key.map(|key| {
            let digest = Sha256::new().chain_update(subject).chain_update([0]).chain_update(key).finalize();
            BASE64_URL_SAFE_NO_PAD.encode(digest)
        });
        loop {
            // The state is set again when the message is stored. Otherwise, it is read again.
            let known = match state.0.take().filter(|known| known.connection == session.connection) {
                Some(known) => known,
                None => {
                    let newest = self.read(session, Stream::Rooms, Which::Last(subject)).await?;
                    Known::new(session, newest.as_ref())?
                }
            };
            let epoch = if known.offset == 0 { fastrand::u64(1..1 << 53) } else { known.epoch };
            let offset = known.offset.saturating_add(1);
            let age_ms = u64::try_from(limits.age_max.as_millis()).unwrap_or(u64::MAX);
            let meta = Meta {
                g: session.generation.clone(),
                e: epoch,
                o: offset,
                p: known.recent.clone(),
                l: (limits.publications_max, limits.bytes_max, age_ms),
                ..Meta::default()
            };
            let part_meta = Meta { e: known.epoch, o: known.offset, part: true, ..meta.clone() }.text();
            let key = key.as_deref();
            let expected = known.sequence;
            let entry = Entry { subject, expected, idempotency_key: key, part_meta, content: payload };
            let stored = self.store_entry(session, entry, |parts| Meta { n: parts, ..meta }.text()).await?;
            let Some(Outcome { sequence, is_duplicate }) = stored else { continue };
            if is_duplicate {
                let stored = self.read(session, Stream::Rooms, Which::Sequence(sequence)).await?;
                let head = stored.and_then(|stored| stored.meta::<Meta>()).and_then(|meta| meta.head());
                let reason = "the message was published before; its position is gone";
                return head.ok_or_else(|| EngineError::Unavailable(reason.into()));
            }
            let mut recent = known.recent;
            add_recent(&mut recent, sequence);
            state.0 = Some(Known { sequence, epoch, offset, recent, ..known });
            return Ok(Position { epoch: Epoch(epoch), offset });
        }
    }

    pub(super) async fn heads(&self, session: &Session, subjects: &[String]) -> Result<Reply, EngineError> {
        let reads = subjects.iter().map(|subject| self.read(session, Stream::Rooms, Which::Last(subject)));
        let mut heads = Vec::with_capacity(subjects.len());
        for newest in all(reads).await {
            heads.push(match newest? {
                Some(newest) => newest.meta::<Meta>().ok_or_else(unexpected)?.head(),
                None => None,
            });
        }
        Ok(Reply::Heads(heads))
    }

    pub(super) async fn history(
        &self,
        session: &Session,
        subject: &str,
        since: Position,
        messages_max: usize,
        age_max: Duration,
    ) -> Result<Reply, EngineError> {
        let none = || Ok(Reply::History(History { truncated: true, ..History::default() }));
        let Some(newest) = self.read(session, Stream::Rooms, Which::Last(subject)).await? else {
            return none();
        };
        let meta: Meta = newest.meta().ok_or_else(unexpected)?;
        let Some(head) = meta.head() else { return none() };
        let is_same = since.epoch == head.epoch && since.offset <= head.offset;
        let after = if is_same { since.offset } else { 0 };
        let mut messages = match messages_max {
            0 => Vec::new(),
            _ => self.messages(session, newest, meta, after, age_max).await?,
        };
        let first = messages.first().map_or(head.offset.saturating_add(1), |(position, _)| position.offset);
        messages.truncate(messages_max);
        let truncated = !is_same || first > after.saturating_add(1);
        Ok(Reply::History(History { head: Some(head), messages, truncated }))
    }

    /// Messages with offsets greater than `after`, within the limits of the history.
    async fn messages(
        &self,
        session: &Session,
        newest: Stored,
        meta: Meta,
        after: u64,
        age_max: Duration,
    ) -> Result<Vec<(Position, Bytes)>, EngineError> {
        let epoch = meta.e;
        let (mut before, mut offset) = (meta.p.clone(), meta.o);
        let mut chunk = if meta.part { Vec::new() } else { vec![Some(newest)] };
        let mut limits = None;
        // The server's clock and this node's clock may differ a little.
        let now = since_1970();
        let (mut messages, mut bytes) = (Vec::new(), 0_usize);
        // Reads messages from the newest to the oldest.
        'all: loop {
            for stored in chunk {
                let Some(stored) = stored else { break 'all };
                let meta: Meta = stored.meta().ok_or_else(unexpected)?;
                if meta.e != epoch || meta.o <= after {
                    break 'all;
                }
                let ((messages_max, bytes_max, age_ms), newest_time) =
                    *limits.get_or_insert((meta.l, stored.time));
                let Some(content) = self.content(session, Stream::Rooms, stored.payload, &meta.n).await?
                else {
                    break 'all;
                };
                bytes = bytes.saturating_add(content.len());
                if messages.len() >= messages_max.min(MESSAGES_MAX)
                    || bytes > bytes_max
                    || newest_time.saturating_sub(stored.time) / 1_000_000 > age_ms
                    || now.saturating_sub(Duration::from_nanos(stored.time)) > age_max
                {
                    break 'all;
                }
                messages.push((Position { epoch: Epoch(epoch), offset: meta.o }, content));
                (before, offset) = (meta.p, meta.o - 1);
            }
            let needed = usize::try_from(offset.saturating_sub(after)).unwrap_or(usize::MAX);
            before.truncate(needed);
            if before.is_empty() {
                break;
            }
            chunk = self.read_all(session, Stream::Rooms, &before).await?;
        }
        messages.reverse();
        Ok(messages)
    }
}
